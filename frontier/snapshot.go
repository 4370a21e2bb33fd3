package frontier

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/urlake/urlake/frontier/shard"
)

const (
	// RestoringName is the file in Options.Dir that says that a restore has not ended.
	RestoringName = "restoring"
	// snapshotsName is the folder of snapshots that are being copied, and StateName the file of
	// what Redis has, in a shard's folder of a snapshot or above those.
	snapshotsName = "snapshots"
	StateName     = "redis"
	// snapshotLasts is how long a snapshot stays after it was last opened or kept.
	snapshotLasts = time.Hour
)

// SnapshotFile is a file of a snapshot. Only its first Size bytes belong to it. Its path begins
// with the part of the process that made it, and goes on as in Options.Dir.
type SnapshotFile struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
	// Modified is when the file was written to last, in nanoseconds since 1970.
	Modified int64 `json:"modified"`
}

// SnapshotPart is what one process has added to a snapshot.
type SnapshotPart struct {
	// Shards are the numbers of its shards.
	Shards []int          `json:"shards"`
	Files  []SnapshotFile `json:"files"`
}

var snapshotID = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)

// ErrNoSnapshot means that there is no snapshot of an id, or not any more.
var ErrNoSnapshot = errors.New("there is no such snapshot; it may have expired")

// Shards is the number of shards of the frontier.
func (f *Frontier) Shards() int { return f.o.Shards }

func (f *Frontier) snapshotDir(id string) string { return filepath.Join(f.o.Dir, snapshotsName, id) }

// Snapshot adds the shards that this process serves to a snapshot, in a folder part: its files as
// hard links, and what Redis has of it. Each shard is as if the process had died at a moment after
// the call began: everything that was answered before the call is in it. With whole, it also adds
// what Redis has of the frontier besides its shards.
func (f *Frontier) Snapshot(ctx context.Context, id, part string, whole bool) (p SnapshotPart, err error) {
	if !snapshotID.MatchString(id) || !snapshotID.MatchString(part) {
		return p, ErrNoSnapshot
	}
	dir := filepath.Join(f.snapshotDir(id), part)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return p, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	add := func(name string, size int64) error {
		info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name)))
		if err == nil {
			p.Files = append(p.Files, SnapshotFile{part + "/" + name, size, info.ModTime().UnixNano()})
		}
		return err
	}
	state := func(name string, data []byte) error {
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), data, 0o666); err != nil {
			return err
		}
		return add(name, int64(len(data)))
	}
	for _, s := range f.all() {
		folder := ShardName(s.number)
		linked, redis, err := f.snapshotOf(ctx, s.number, filepath.Join(dir, folder))
		if errors.Is(err, ErrElsewhere) {
			continue
		}
		if err != nil {
			return p, fmt.Errorf("shard %d: %w", s.number, err)
		}
		for _, l := range linked {
			if err := add(folder+"/"+l.Name, l.Size); err != nil {
				return p, err
			}
		}
		if err := state(folder+"/"+StateName, redis); err != nil {
			return p, err
		}
		p.Shards = append(p.Shards, s.number)
	}
	if whole {
		redis, err := f.coord.State(ctx)
		if err != nil {
			return p, err
		}
		return p, state(StateName, redis)
	}
	return p, nil
}

// snapshotOf links the files of a shard, and returns what Redis has of it, while others use it.
//
// Redis is read after the moment of the files, and not at once. It is what a process finds that
// opens a shard whose process died at that moment with the end of its journal: a lease of an entry
// that the files do not know counts for nothing, an entry whose lease has ended waits again, and
// queues in which something waits are made ready. What Redis had of before and still has is read,
// whatever changes meanwhile.
func (f *Frontier) snapshotOf(ctx context.Context, number int, dir string) (linked []shard.Linked, redis []byte, err error) {
	s, release, err := f.use(number)
	if err != nil {
		return nil, nil, err
	}
	defer release()
	if linked, err = s.files.Snapshot(dir, []string{robotsName}); err != nil {
		return nil, nil, err
	}
	if redis, err = s.coord.State(ctx); err != nil {
		return nil, nil, err
	}
	if !s.mine() {
		return nil, nil, ErrElsewhere
	}
	robots := filepath.Join(dir, robotsName)
	if err := s.robots.Copy(robots); err != nil {
		return nil, nil, err
	}
	info, err := os.Stat(robots)
	if err != nil {
		return nil, nil, err
	}
	return append(linked, shard.Linked{Name: robotsName, Size: info.Size()}), redis, nil
}

// OpenSnapshot returns the files of a snapshot, of whichever process of this frontier has made it.
// Close it afterwards.
func (f *Frontier) OpenSnapshot(id string) (*os.Root, error) {
	if err := f.KeepSnapshot(id); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(f.snapshotDir(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoSnapshot
	}
	return root, err
}

// KeepSnapshot lets a snapshot stay for an hour from now on.
func (f *Frontier) KeepSnapshot(id string) error {
	if !snapshotID.MatchString(id) {
		return ErrNoSnapshot
	}
	now := time.Now() // of the file system's clock, as far as that is this one
	err := os.Chtimes(f.snapshotDir(id), now, now)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNoSnapshot
	}
	return err
}

// DropSnapshot deletes a snapshot's folder, whether there is one or not.
func (f *Frontier) DropSnapshot(id string) error {
	if !snapshotID.MatchString(id) {
		return ErrNoSnapshot
	}
	return os.RemoveAll(f.snapshotDir(id))
}

// sweepSnapshots deletes snapshots of which nothing was read for long.
func (f *Frontier) sweepSnapshots() error {
	all, err := os.ReadDir(filepath.Join(f.o.Dir, snapshotsName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range all {
		info, failed := e.Info()
		switch {
		case errors.Is(failed, fs.ErrNotExist):
		case failed != nil:
			err = errors.Join(err, failed)
		case time.Since(info.ModTime()) > snapshotLasts:
			err = errors.Join(err, f.DropSnapshot(e.Name()))
		}
	}
	return err
}
