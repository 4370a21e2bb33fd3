package mapped

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/gofrs/flock"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// repairTimeout bounds the read of one block from the store in the middle of a lookup.
const repairTimeout = 30 * time.Second

// tempPrefix and tempSuffix enclose the names of copies that are still being fetched.
const (
	tempPrefix = "fetch-"
	tempSuffix = ".tmp"
)

// ErrCache means that a copy could not be written to the cache directory. The error wraps the
// system's.
var ErrCache = errors.New("the cache folder")

// fetch copies an object to path. The copy appears there whole and checked, or not at all.
func fetch(ctx context.Context, store blob.Store, key string, want Sums, path string) (err error) {
	dir := filepath.Dir(path)
	defer func() {
		var system *fs.PathError
		if errors.As(err, &system) && strings.HasPrefix(system.Path, dir) {
			err = fmt.Errorf("%w: %w", ErrCache, err)
		}
	}()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, tempPrefix+"*"+tempSuffix)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			tmp.Close()
			_ = os.Remove(tmp.Name())
		}
	}()
	// Held until the copy has its name: Prune removes temporary files that nobody locks.
	lock := flock.New(tmp.Name())
	if _, err := lock.TryLock(); err != nil {
		return err
	}
	defer lock.Close()

	r, err := store.Open(ctx, key, 0, want.Bytes)
	if err != nil {
		return err
	}
	h := NewHash()
	_, err = io.Copy(io.MultiWriter(tmp, h), r)
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if got := h.Sums().XXH64; got != want.XXH64 {
		return codec.Corrupt(key, "file", -1, fmt.Sprintf("xxh64 %016x", want.XXH64), fmt.Sprintf("%016x", got))
	}
	// A crash must not leave the copy's name on bytes that never reached the disk.
	if err := tmp.Sync(); err != nil {
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// repairCopy reads a block from the store and writes it into the copy at path. The mapping shows
// the new bytes.
func (f *File) repairCopy(ctx context.Context, store blob.Store, block int64, path string) error {
	from, to := f.bounds(block)
	data, err := store.ReadRange(ctx, f.name, from, to-from)
	if err != nil {
		return err
	}
	if got := xxhash.Sum64(data); got != f.want[block] {
		return f.corrupt(block, got)
	}
	out, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = out.WriteAt(data, from)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	return err
}

// Prune removes from a cache directory the files for which drop returns true, and temporary files
// of processes that died while they fetched. A file that is mapped keeps its bytes where the system
// lets mapped files be removed; elsewhere it stays until a later call. An absent directory is no
// error.
func Prune(dir string, drop func(name string) bool) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		path := filepath.Join(dir, name)
		switch {
		case strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, tempSuffix):
			// An empty file may have been created just now and not be locked yet.
			if st, err := e.Info(); err != nil || st.Size() == 0 {
				continue
			}
			lock := flock.New(path)
			if free, err := lock.TryLock(); err == nil && free {
				_ = os.Remove(path)
			}
			lock.Close()
		case drop(name):
			_ = os.Remove(path)
		}
	}
	return nil
}
