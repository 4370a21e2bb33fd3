package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/frontier/journal"
	"github.com/urlake/urlake/frontier/shard"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// RestoreOptions say where to.
type RestoreOptions struct {
	// Dir is a folder that is empty or absent, and Name one of which Redis has nothing.
	Dir, Name string
	Redis     redis.UniversalClient
}

// ErrInUse means that a folder has something else in it.
var ErrInUse = errors.New("the folder is in use")

// marker is the content of the file frontier.RestoringName.
type marker struct {
	Format   int    `json:"format"`
	Snapshot string `json:"snapshot"`
	// Filled says that Redis has everything: only the markers are left to be removed.
	Filled bool `json:"filled"`
}

// Restore fills a folder and Redis from a snapshot. It checks every byte before it begins with
// Redis. It may be killed at any point: no frontier opens what is not whole, and Restore of the
// same snapshot begins again.
func Restore(ctx context.Context, store blob.Store, m *Manifest, o RestoreOptions) error {
	r := &restorer{store, m, o, filepath.Join(o.Dir, frontier.RestoringName)}
	if err := coord.CheckUnused(ctx, o.Redis, o.Name, m.ID); err != nil {
		if done, failed := coord.Restored(ctx, o.Redis, o.Name); failed != nil || !done || !r.filled() {
			return errors.Join(err, failed)
		}
		return r.done(nil)
	}
	if err := r.prepare(); err != nil {
		return err
	}
	states, err := r.files(ctx)
	if err != nil {
		if ctx.Err() == nil {
			err = errors.Join(err, os.RemoveAll(o.Dir)) // so that another snapshot can be taken
		}
		return err
	}
	to, err := coord.BeginRestore(ctx, o.Redis, o.Name, m.ID)
	if err != nil {
		return err
	}
	if err := r.redis(ctx, to, states); err != nil {
		return err
	}
	if err := r.mark(true); err != nil {
		return err
	}
	return r.done(to.End(ctx, m.Shards))
}

type restorer struct {
	store blob.Store
	m     *Manifest
	o     RestoreOptions
	// marker is the file that says that a restore has not ended.
	marker string
}

// filled says that of a restore of this snapshot only the end is missing.
func (r *restorer) filled() bool {
	data, err := os.ReadFile(r.marker)
	var had marker
	return err == nil && codec.Unseal(data, r.marker, 1, &had) == nil && had.Snapshot == r.m.ID && had.Filled
}

// prepare makes the folder, with a marker in it. It refuses one with something in it, unless that
// is left of a restore of the same snapshot, which it deletes.
func (r *restorer) prepare() error {
	entries, err := os.ReadDir(r.o.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	unfinished := filepath.Base(r.marker) + ".tmp" // of a restore that was killed before it did anything
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == unfinished })
	if len(entries) == 0 {
		if err := journal.MakeDir(r.o.Dir); err != nil {
			return err
		}
		return r.mark(false)
	}
	data, err := os.ReadFile(r.marker)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w: it has %s; restore to another folder", r.o.Dir, ErrInUse, entries[0].Name())
	}
	if err != nil {
		return err
	}
	var had marker
	if err := codec.Unseal(data, r.marker, 1, &had); err != nil {
		return fmt.Errorf("%w; delete %s and restore again", err, r.o.Dir)
	}
	if had.Snapshot != r.m.ID {
		return fmt.Errorf("%s: %w: a restore of snapshot %s has not ended; end that, or delete the folder", r.o.Dir, ErrInUse, had.Snapshot)
	}
	for _, e := range entries {
		if e.Name() != frontier.RestoringName {
			if err := os.RemoveAll(filepath.Join(r.o.Dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return r.mark(false)
}

func (r *restorer) mark(filled bool) error {
	data, err := codec.Seal(marker{1, r.m.ID, filled})
	if err != nil {
		return err
	}
	if err := writeSynced(r.marker+".tmp", data); err != nil {
		return err
	}
	if err := os.Rename(r.marker+".tmp", r.marker); err != nil {
		return err
	}
	return journal.SyncDir(r.o.Dir)
}

// done removes the marker after the last step.
func (r *restorer) done(err error) error {
	if err != nil {
		return err
	}
	if err := os.Remove(r.marker); err != nil {
		return err
	}
	return journal.SyncDir(r.o.Dir)
}

// parallel is how many files are downloaded at the same time.
const parallel = 4

// files downloads and checks the files. It returns the states of Redis, which do not stay.
func (r *restorer) files(ctx context.Context) (states map[string][]byte, err error) {
	folders := map[string]struct{}{}
	for _, f := range r.m.Files {
		for dir := filepath.Dir(filepath.FromSlash(f.Path)); dir != "."; dir = filepath.Dir(dir) {
			folders[dir] = struct{}{}
		}
	}
	for dir := range folders {
		if err := os.MkdirAll(filepath.Join(r.o.Dir, dir), 0o777); err != nil {
			return nil, err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, f := range r.m.Files {
		g.Go(func() error { return r.file(ctx, f) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for dir := range folders {
		if err := journal.SyncDir(filepath.Join(r.o.Dir, dir)); err != nil {
			return nil, err
		}
	}
	if states, err = r.states(); err != nil {
		return nil, err
	}
	for n := range r.m.Shards {
		dir := filepath.Join(r.o.Dir, frontier.ShardName(n))
		if _, err := os.Stat(dir); err != nil {
			return nil, codec.Corrupt(manifests+r.m.ID+suffix, "files", -1, "those of "+frontier.ShardName(n), "none")
		}
		if err := shard.Check(dir, shard.Options{MemoryBytes: 1 << 30}); err != nil {
			return nil, fmt.Errorf("snapshot %s: %w", r.m.ID, err)
		}
	}
	return states, nil
}

func (r *restorer) file(ctx context.Context, f File) (err error) {
	to, err := os.OpenFile(filepath.Join(r.o.Dir, filepath.FromSlash(f.Path)), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	for _, p := range f.Pieces {
		if err := r.piece(ctx, p, to); err != nil {
			return fmt.Errorf("snapshot %s: %s: %w", r.m.ID, f.Path, err)
		}
	}
	return to.Sync()
}

func (r *restorer) piece(ctx context.Context, p Piece, to io.Writer) error {
	body, err := r.store.Open(ctx, p.Object, 0, -1)
	if err != nil {
		return err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(to, sum), io.LimitReader(body, p.Size+1))
	if err := errors.Join(err, body.Close()); err != nil {
		return err
	}
	if n != p.Size {
		return codec.Corrupt(p.Object, "object", n, fmt.Sprintf("%d bytes", p.Size), fmt.Sprintf("%d or more", n))
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != p.SHA256 {
		return codec.Corrupt(p.Object, "object", -1, "sha256 "+p.SHA256, got)
	}
	return nil
}

// states reads and checks the states of Redis, by their paths, and deletes their files.
func (r *restorer) states() (map[string][]byte, error) {
	wanted := []string{frontier.StateName}
	for n := range r.m.Shards {
		wanted = append(wanted, frontier.ShardName(n)+"/"+frontier.StateName)
	}
	states := map[string][]byte{}
	for _, name := range wanted {
		file := filepath.Join(r.o.Dir, filepath.FromSlash(name))
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, codec.Corrupt(manifests+r.m.ID+suffix, "files", -1, name, "none")
		}
		if err == nil {
			err = coord.CheckState(data, name)
		}
		if err != nil {
			return nil, fmt.Errorf("snapshot %s: %w", r.m.ID, err)
		}
		states[name] = data
		if err := os.Remove(file); err != nil {
			return nil, err
		}
	}
	return states, nil
}

// redis fills Redis.
func (r *restorer) redis(ctx context.Context, to *coord.Restore, states map[string][]byte) error {
	if err := to.Frontier(ctx, states[frontier.StateName], frontier.StateName); err != nil {
		return err
	}
	for n := range r.m.Shards {
		name := frontier.ShardName(n) + "/" + frontier.StateName
		if err := to.Shard(ctx, n, states[name], name); err != nil {
			return err
		}
	}
	return nil
}

// Damaged reads all objects of a snapshot and returns what is wrong with each, by name.
func Damaged(ctx context.Context, store blob.Store, m *Manifest) (wrong []error, err error) {
	r := &restorer{store: store, m: m}
	for _, f := range m.Files {
		for _, p := range f.Pieces {
			switch err := r.piece(ctx, p, io.Discard); {
			case errors.Is(err, codec.ErrCorrupt) || errors.Is(err, blob.ErrNotExist):
				wrong = append(wrong, fmt.Errorf("%s: %w", f.Path, err))
			case err != nil:
				return wrong, err
			}
		}
	}
	return wrong, nil
}

func writeSynced(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}
