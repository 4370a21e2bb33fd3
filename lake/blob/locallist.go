package blob

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

// List implements Store. Its memory is proportional to the largest folder, not to the listing.
func (l *Local) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		if err := CheckPrefix(prefix); err != nil {
			yield(Info{}, fmt.Errorf("list: %w", err))
			return
		}
		if strings.HasPrefix(prefix, TmpDir+"/") {
			return
		}
		root, err := os.OpenRoot(l.dir)
		if missing(err) {
			if err = l.away(); err == nil {
				return
			}
		}
		if err == nil {
			l.seen.Store(true)
			defer root.Close()
			dir, base := path.Split(prefix)
			err = l.walk(ctx, root, dir, base, yield)
		} else {
			err = fmt.Errorf("list %s: %w", l.url, plain(err))
		}
		if err != nil && !errors.Is(err, errStop) {
			yield(Info{}, err)
		}
	}
}

// errStop ends a walk when the loop over List ends.
var errStop = errors.New("stop")

// walk yields the objects of a folder ("" or ending in a slash) whose names in it start with base.
func (l *Local) walk(
	ctx context.Context, root *os.Root, dir, base string, yield func(Info, error) bool,
) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d, err := root.OpenFile(path.Clean("./"+dir), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if missing(err) {
		return nil // deleted meanwhile, or no key has that prefix
	}
	if err != nil {
		return l.fail("list", dir, err)
	}
	entries, err := d.ReadDir(-1)
	d.Close()
	if err != nil && !missing(err) {
		return l.fail("list", dir, err)
	}
	// Byte order of the keys: the name of a folder is followed by a slash, so "a.b" precedes "a/b".
	name := func(e fs.DirEntry) string {
		if e.IsDir() {
			return e.Name() + "/"
		}
		return e.Name()
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(name(a), name(b)) })
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), base) || dir == "" && e.Name() == TmpDir {
			continue
		}
		key := dir + e.Name()
		if e.IsDir() {
			if err := l.walk(ctx, root, key+"/", "", yield); err != nil {
				return err
			}
			continue
		}
		var fi fs.FileInfo
		var err error
		switch e.Type() {
		case 0:
			fi, err = root.Lstat(key)
		case fs.ModeSymlink:
			fi, err = root.Stat(key)
			if err == nil && fi.IsDir() {
				err = errors.New("symbolic link to a folder")
			}
		default:
			continue
		}
		if missing(err) || err == nil && !fi.Mode().IsRegular() {
			continue
		}
		if err == nil {
			err = CheckKey(key)
		}
		if err != nil {
			return l.fail("list", key, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if !yield(fileInfo(key, fi), nil) {
			return errStop
		}
	}
	return nil
}
