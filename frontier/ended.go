package frontier

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"

	"github.com/urlake/urlake/frontier/coord"
)

// A process that is killed leaves its shards in Redis until Options.Own is over. On the same
// machine the kernel says at once that it has ended: it has let go of the files' locks. So a
// process that locks a shard's files writes its name and the kernel's into the locked file.
// Whoever finds there the owner that Redis has, and gets the lock, takes the shard. It does not
// go by the lock alone: file systems that are shared by machines can have locks that other
// machines do not see, and a process that has taken a shard in Redis just now has not locked its
// files yet.

// bootID is what says of a running Linux kernel which one it is.
const bootID = "/proc/sys/kernel/random/boot_id"

// signature is what a process writes into the files that it has locked, "" if the machine has no
// name. The kernel is named and not the machine: after another start of that nothing is known of
// the locks before.
func signature(process string) string {
	kernel, err := os.ReadFile(bootID)
	if err != nil {
		return ""
	}
	return process + "\n" + strings.TrimSpace(string(kernel)) + "\n"
}

// lock locks the files of a shard. It is nil if another process has them locked.
func (f *Frontier) lock(n int) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(f.o.Dir, lockName(n)))
	if ok, err := lock.TryLock(); err != nil || !ok {
		return nil, err
	}
	return lock, nil
}

// sign signs a lock of the files of a shard that this process has. A lock that cannot be signed, as
// on a full disk, is one as well.
func (f *Frontier) sign(lock *flock.Flock) {
	if text := signature(f.coord.Node()); text != "" {
		_ = os.WriteFile(lock.Path(), []byte(text), 0o666)
	}
}

// succeed takes a shard that Redis has as that of another process, if that has ended on this
// machine, and locks its files. It returns nil if that is not certain.
func (f *Frontier) succeed(ctx context.Context, n int, owner string) (*coord.Shard, *flock.Flock, error) {
	signed, _ := os.ReadFile(filepath.Join(f.o.Dir, lockName(n))) // there is none if nobody has locked them
	if len(signed) == 0 || string(signed) != signature(owner) {
		return nil, nil, nil
	}
	lock, err := f.lock(n)
	if lock == nil {
		return nil, nil, err
	}
	var c *coord.Shard
	if err = f.coord.Forget(ctx, owner); err == nil {
		c, err = f.coord.Succeed(ctx, n, f.o.Own, owner)
	}
	if c == nil {
		return nil, nil, errors.Join(err, lock.Unlock())
	}
	if !f.succeeded.Swap(true) {
		f.o.Log.Warn("taking the shards of a process that has ended without giving them back", "process", owner)
	}
	return c, lock, nil
}
