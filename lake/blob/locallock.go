package blob

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/gofrs/flock"
)

const (
	// lockStripes is the number of lock files. Keys share them by hash: 64 are enough that writers
	// of different keys seldom wait for each other. A file is made when it is first needed.
	lockStripes = 64

	// lockPoll is the interval between attempts to take a lock that another process holds. Locks
	// are held for a rename and a few fsyncs.
	lockPoll = time.Millisecond
)

// lock waits until no other caller, in this process or another, may replace or delete key. Keys of
// one stripe share a lock, so a caller must not hold two.
func (l *Local) lock(ctx context.Context, key string) (unlock func(), err error) {
	stripe := xxhash.Sum64String(key) % lockStripes
	select {
	case l.stripes[stripe] <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	release := func() { <-l.stripes[stripe] }
	defer func() {
		if err != nil {
			release()
		}
	}()
	locks := filepath.Join(l.dir, TmpDir, "locks")
	name := filepath.Join(locks, fmt.Sprintf("%02x", stripe))
	for {
		f := flock.New(name, flock.SetPermissions(0o666))
		_, err := f.TryLockContext(ctx, lockPoll)
		if errors.Is(err, fs.ErrNotExist) {
			if err := l.away(); err != nil {
				return nil, err
			}
			if err := os.MkdirAll(locks, 0o777); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		// If the file was removed meanwhile, for example with the whole store, others may lock a
		// new file of that name: this lock excludes nobody.
		held, err := f.Stat()
		if err == nil {
			var now fs.FileInfo
			if now, err = os.Stat(name); err == nil && os.SameFile(held, now) {
				return func() { f.Unlock(); release() }, nil
			}
		}
		f.Unlock()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
}

// TryHold takes the lock of that name in the store, if nobody holds it, and reports whether it did.
// Release gives it back; the operating system does when the process dies, however that happens.
// Known is false for stores that have no such locks. Locks of other names are not affected, nor are
// writes. Wrappers are seen through by their method Unwrap() Store.
func TryHold(s Store, name string) (release func(), held, known bool, err error) {
	f, ok := AsLocalFiler(s)
	l, local := f.(*Local)
	if !ok || !local {
		return nil, false, false, nil
	}
	locks := filepath.Join(l.dir, TmpDir, "locks")
	if err := l.away(); err != nil {
		return nil, false, true, err
	}
	if err := os.MkdirAll(locks, 0o777); err != nil {
		return nil, false, true, err
	}
	file := filepath.Join(locks, name)
	lock := flock.New(file, flock.SetPermissions(0o666))
	if held, err = lock.TryLock(); !held {
		lock.Close()
		return nil, false, true, err
	}
	// The lock of a file that was removed meanwhile excludes nobody.
	locked, err := lock.Stat()
	if err == nil {
		var now fs.FileInfo
		if now, err = os.Stat(file); err == nil && os.SameFile(locked, now) {
			return func() { lock.Unlock() }, true, true, nil
		}
	}
	lock.Unlock()
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return nil, false, true, err
}
