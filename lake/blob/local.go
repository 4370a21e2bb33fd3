package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// placeAttempts is the maximum number of attempts to rename an object into a folder that deleters
// keep removing. Each further attempt needs another deleter that wins the same race.
const placeAttempts = 1000

// Local is a Store in a directory: keys are paths below it.
//
// # Writing
//
// An object is written to a file in .tmp/, which is fsynced, closed and renamed. Then its folder
// and the folders above it are fsynced up to the root, or up to one that this store has fsynced
// before; another process may have made them and not have fsynced them yet. Objects of megabytes
// are written past the page cache (O_DIRECT) if the file system supports that.
//
// Files that a crash leaves in .tmp/ are never listed and do no harm. The next store that writes
// removes those whose writers no longer hold the lock on them.
//
// # Conditions
//
// Objects are replaced and deleted under a lock on a file in .tmp/locks/, which the hash of the key
// selects. It is an flock(2) lock, so it excludes other processes and ends with its process. All
// writers of a root must share one file system with working flock and rename. Do not remove .tmp/
// while processes write.
//
// # ETags
//
// An ETag is the file's modification time in nanoseconds and its size, so it costs one stat. The
// store sets the time itself, because the kernel's has the resolution of its tick: two files of one
// size could have the same. While it holds the lock, it sets the time past that of the object that
// it replaces. So the times of one object strictly increase, even if the clock is set back or the
// file system rounds, and no ETag returns with other content. After a deletion this starts over: an
// ETag returns only if the clock shows the same nanosecond twice. Other programs that change files
// must change their size or time, as make and rsync expect.
//
// # Absent root
//
// A root that this process has seen, and that is absent later, is most likely on a file system that
// is not mounted at the moment. Every operation then fails with ErrAway, and the root is not made
// anew below the mount point.
//
// # Symbolic links
//
// Links are followed inside the root. A link out of the root is an error when a key or a listing
// reaches it, and so is a link to a folder in a listing. Other files that are not regular are not
// objects.
type Local struct {
	url string
	dir string // absolute

	// stripes are the locks among the goroutines of this process, which then need not poll for each
	// other's file locks.
	stripes [lockStripes]chan struct{}

	durable durableFolders

	seen atomic.Bool // the root has existed

	sweep sync.Once // removeStale
}

// NewLocal returns the store in a directory. The first write makes the directory if it does not
// exist.
func NewLocal(dir string) (*Local, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open store %q: %w", dir, err)
	}
	switch fi, err := os.Stat(abs); {
	case err == nil && !fi.IsDir():
		return nil, fmt.Errorf("open store %q: not a directory", dir)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("open store %q: %w", dir, plain(err))
	}
	l := &Local{url: trimSlashes(dir), dir: abs}
	if err := l.away(); err != nil {
		return nil, err
	}
	for i := range l.stripes {
		l.stripes[i] = make(chan struct{}, 1)
	}
	return l, nil
}

// away returns ErrAway if the root is absent that has existed before. It is called where an object
// or folder was not found.
func (l *Local) away() error {
	_, err := os.Stat(l.dir)
	switch {
	case err == nil:
		l.seen.Store(true)
	case missing(err) && l.seen.Load():
		return fmt.Errorf("%w: the folder %s is gone; mount its file system, or restart this program if it was removed on purpose",
			ErrAway, l.dir)
	}
	return nil
}

// URL implements Store.
func (l *Local) URL() string { return l.url }

// LocalPath implements LocalFiler. A link out of the root is an error.
func (l *Local) LocalPath(key string) (string, error) {
	if err := CheckKey(key); err != nil {
		return "", fmt.Errorf("local path: %w", err)
	}
	root, err := os.OpenRoot(l.dir)
	if err == nil {
		defer root.Close()
		_, err = root.Stat(key)
	}
	if err != nil && !missing(err) {
		return "", l.fail("local path", key, err)
	}
	return filepath.Join(l.dir, filepath.FromSlash(key)), nil
}

// Stat implements Store.
func (l *Local) Stat(ctx context.Context, key string) (Info, error) {
	if err := CheckKey(key); err != nil {
		return Info{}, fmt.Errorf("stat: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return Info{}, err
	}
	root, err := os.OpenRoot(l.dir)
	if err != nil {
		return Info{}, l.failRead("stat", key, err)
	}
	defer root.Close()
	fi, err := statObject(root, key)
	if err != nil {
		return Info{}, l.failRead("stat", key, err)
	}
	return fileInfo(key, fi), nil
}

// Get implements Store.
func (l *Local) Get(ctx context.Context, key string) ([]byte, Info, error) {
	f, fi, err := l.open(ctx, "get", key)
	if err != nil {
		return nil, Info{}, err
	}
	defer f.Close()
	if fi.Size() > MaxSmall {
		err := fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, fi.Size(), MaxSmall)
		return nil, Info{}, l.failRead("get", key, err)
	}
	b := make([]byte, fi.Size())
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, Info{}, l.failRead("get", key, err)
	}
	return b, fileInfo(key, fi), nil
}

// ReadRange implements Store.
func (l *Local) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	f, fi, err := l.open(ctx, "read", key)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := CheckRange(off, n); err != nil {
		return nil, l.failRead("read", key, err)
	}
	if n < 0 || off+n > fi.Size() {
		err := fmt.Errorf("%w: %d bytes from %d of %d", ErrRange, n, off, fi.Size())
		return nil, l.failRead("read", key, err)
	}
	b := make([]byte, n)
	if _, err := f.ReadAt(b, off); err != nil {
		return nil, l.failRead("read", key, err)
	}
	return b, nil
}

// Open implements Store. The stream reads the object as it was when it was opened.
func (l *Local) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	f, fi, err := l.open(ctx, "open", key)
	if err != nil {
		return nil, err
	}
	if err := CheckRange(off, n); err != nil {
		f.Close()
		return nil, l.failRead("open", key, err)
	}
	size := fi.Size()
	if off > size || off+max(n, 0) > size {
		f.Close()
		return nil, l.failRead("open", key, RangeError(off, n, size))
	}
	if n < 0 {
		n = size - off
	}
	return &fileStream{ctx: ctx, l: l, key: key, f: f, off: off, end: off + n}, nil
}

// Put implements Store.
func (l *Local) Put(ctx context.Context, key string, data []byte, cond Condition) (Info, error) {
	if err := CheckPut(ctx, key, data); err != nil {
		return Info{}, err
	}
	if cond != (Condition{}) {
		// A put that fails need not write the file first. commit checks again under the lock.
		info, err := l.Stat(ctx, key)
		if err != nil && !errors.Is(err, ErrNotExist) {
			return Info{}, err
		}
		if !cond.Holds(info.ETag, err == nil) {
			return Info{}, l.fail("put", key, l.refuse(key))
		}
	}
	t, err := l.newTemp()
	if err != nil {
		return Info{}, l.fail("put", key, err)
	}
	defer t.discard()
	if _, err := t.f.Write(data); err != nil {
		return Info{}, l.fail("put", key, err)
	}
	info, err := l.commit(ctx, t, key, cond)
	if err != nil {
		return Info{}, l.fail("put", key, err)
	}
	return info, nil
}

// refuse makes the object that violates a condition durable and returns ErrPrecondition. The caller
// then relies on the object, although its writer may not have fsynced its folder yet, or may have
// died before it could.
func (l *Local) refuse(key string) error {
	root, err := os.OpenRoot(l.dir)
	if err == nil {
		defer root.Close()
		err = l.durable.sync(root, path.Dir(key))
	}
	if missing(err) {
		err = l.away() // if the object was deleted meanwhile, nothing has to be durable
	}
	if err != nil {
		return err
	}
	return ErrPrecondition
}

// Create implements Store.
func (l *Local) Create(ctx context.Context, key string) (Writer, error) {
	if err := CheckKey(key); err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t, err := l.newTemp()
	if err != nil {
		return nil, l.fail("create", key, err)
	}
	return &fileWriter{ctx: ctx, l: l, key: key, t: t, buf: newFileBuffer(t.f)}, nil
}

// commit makes the temporary file durable and renames it to its key if cond holds.
func (l *Local) commit(ctx context.Context, t *temp, key string, cond Condition) (Info, error) {
	mtime := time.Now()
	if err := t.root.Chtimes(t.name, mtime, mtime); err != nil {
		return Info{}, err
	}
	if err := t.f.Sync(); err != nil {
		return Info{}, err
	}
	unlock, err := l.lock(ctx, key)
	if err != nil {
		return Info{}, err
	}
	defer unlock()

	old, err := statObject(t.root, key)
	exists := err == nil
	if err != nil && !missing(err) {
		return Info{}, err
	}
	var tag string
	if exists {
		tag = fileETag(old)
	}
	if !cond.Holds(tag, exists) {
		return Info{}, l.refuse(key)
	}
	fi, err := t.f.Stat()
	if err != nil {
		return Info{}, err
	}
	if exists && !fi.ModTime().After(old.ModTime()) {
		if fi, err = t.moveTimePast(old.ModTime()); err != nil {
			return Info{}, err
		}
	}
	if err := t.f.Close(); err != nil {
		return Info{}, err
	}
	if err := l.place(t, key); err != nil {
		return Info{}, err
	}
	// Under the lock, so that the object is durable before another writer replaces it.
	if err := l.durable.sync(t.root, path.Dir(key)); err != nil {
		return Info{}, err
	}
	return fileInfo(key, fi), nil
}

// place renames the temporary file to its key. It makes the folders of the key, again if a deleter
// removes them meanwhile. The caller holds the lock on the key.
func (l *Local) place(t *temp, key string) error {
	for range placeAttempts {
		err := t.root.Rename(t.name, key)
		if err == nil {
			return nil
		}
		if errors.Is(err, syscall.ENOTDIR) {
			return fmt.Errorf("%w: one of its folders is an object", ErrInvalidKey)
		}
		if errors.Is(err, fs.ErrNotExist) {
			if _, err := t.root.Lstat(t.name); err != nil {
				return err
			}
			err := t.root.MkdirAll(path.Dir(key), 0o777)
			if errors.Is(err, syscall.ENOTDIR) {
				return fmt.Errorf("%w: one of its folders is an object", ErrInvalidKey)
			}
			// A folder that a deleter removes between two calls of MkdirAll exists for the first of
			// them and not for the second: that is either error.
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
				return err
			}
			continue
		}
		if fi, statErr := t.root.Lstat(key); statErr == nil && fi.IsDir() {
			// A dead writer or deleter has left an empty folder, which is removed.
			if t.root.Remove(key) != nil {
				return fmt.Errorf("%w: it is a folder of other objects", ErrInvalidKey)
			}
			continue
		}
		return err
	}
	return fmt.Errorf("its folder was removed %d times while the object was put there", placeAttempts)
}

// Delete implements Store. It also removes folders that become empty.
func (l *Local) Delete(ctx context.Context, keys ...string) error {
	if err := CheckKeys(ctx, keys); err != nil {
		return err
	}
	root, err := os.OpenRoot(l.dir)
	if missing(err) {
		if err = l.away(); err == nil {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("delete below %s: %w", l.url, plain(err))
	}
	defer root.Close()
	var errs []error
	folders := map[string]bool{}
	for _, key := range keys {
		removed, err := l.remove(ctx, root, key, false)
		if err != nil {
			errs = append(errs, l.fail("delete", key, err))
			if ctx.Err() != nil {
				break
			}
		}
		if removed {
			folders[path.Dir(key)] = true
		}
	}
	if err := l.tidy(ctx, root, folders); err != nil {
		errs = append(errs, fmt.Errorf("delete below %s: %w", l.url, plain(err)))
	}
	return errors.Join(errs...)
}

// tidy removes the folders that are empty, then folders above them that become empty, and fsyncs
// those that are left.
func (l *Local) tidy(ctx context.Context, root *os.Root, folders map[string]bool) error {
	left := map[string]bool{}
	for dir := range folders {
		for dir != "." {
			if removed, err := l.remove(ctx, root, dir, true); err != nil || !removed {
				break
			}
			dir = path.Dir(dir)
		}
		left[dir] = true
	}
	for dir := range left {
		if err := l.durable.sync(root, dir); err != nil && !missing(err) {
			return err
		}
	}
	return nil
}

// remove removes an object, or an empty folder, and reports whether it was there. Under the lock on
// its key a folder does not become an object between Lstat and Remove, and no put sees its
// condition hold for an object that is then removed.
func (l *Local) remove(ctx context.Context, root *os.Root, key string, folder bool) (bool, error) {
	if _, err := root.Lstat(key); missing(err) {
		return false, nil
	}
	unlock, err := l.lock(ctx, key)
	if err != nil {
		return false, err
	}
	defer unlock()
	fi, err := root.Lstat(key)
	if err == nil && fi.IsDir() == folder {
		err = root.Remove(key)
	} else if err == nil {
		return false, nil
	}
	if missing(err) {
		return false, nil
	}
	return err == nil, err
}

// makeRoot opens the root and makes it if it does not exist.
func (l *Local) makeRoot() (*os.Root, error) {
	root, err := os.OpenRoot(l.dir)
	if err == nil {
		l.seen.Store(true)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return root, err
	}
	if err := l.away(); err != nil {
		return nil, err
	}
	above := filepath.Dir(l.dir)
	for {
		if _, err := os.Stat(above); !errors.Is(err, fs.ErrNotExist) || above == filepath.Dir(above) {
			break
		}
		above = filepath.Dir(above)
	}
	if err := os.MkdirAll(l.dir, 0o777); err != nil {
		return nil, err
	}
	for dir := filepath.Dir(l.dir); ; dir = filepath.Dir(dir) {
		if err := syncFolder(os.Open(dir)); err != nil {
			return nil, err
		}
		if dir == above || dir == filepath.Dir(dir) {
			break
		}
	}
	if root, err = os.OpenRoot(l.dir); err == nil {
		l.seen.Store(true)
	}
	return root, err
}

// syncFolder fsyncs and closes the folder d. It takes the results of os.Open and returns its error.
func syncFolder(d *os.File, err error) error {
	if err != nil {
		return err
	}
	defer d.Close()
	// Some file systems return EINVAL because they need not fsync folders.
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return nil
}

// open opens an object's file for reading. The caller closes it.
func (l *Local) open(ctx context.Context, op, key string) (*os.File, fs.FileInfo, error) {
	if err := CheckKey(key); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", op, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	f, err := openBeneath(l.dir, key)
	if err != nil {
		return nil, nil, l.failRead(op, key, err)
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		f.Close()
		return nil, nil, l.failRead(op, key, err)
	}
	l.seen.Store(true)
	return f, fi, nil
}

// openInRoot opens a file below dir without following links out of dir. O_NONBLOCK keeps the open
// of a FIFO from blocking.
func openInRoot(dir, key string) (*os.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.OpenFile(key, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// statObject is root.Stat, except that a file that is not regular does not exist.
func statObject(root *os.Root, key string) (fs.FileInfo, error) {
	fi, err := root.Stat(key)
	if err == nil && !fi.Mode().IsRegular() {
		return nil, fs.ErrNotExist
	}
	return fi, err
}

// missing reports whether err means that the object does not exist.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

func fileInfo(key string, fi fs.FileInfo) Info {
	return Info{Key: key, Size: fi.Size(), ETag: fileETag(fi)}
}

func fileETag(fi fs.FileInfo) string {
	return fmt.Sprintf("%x-%x", fi.ModTime().UnixNano(), fi.Size())
}

// fail adds the operation and the object to err, without those that package os has added.
func (l *Local) fail(op, key string, err error) error {
	return OpError(op, l.url, key, plain(err))
}

// failRead is fail for reads: a missing file is ErrNotExist, except below an absent root.
func (l *Local) failRead(op, key string, err error) error {
	if missing(err) {
		if err = l.away(); err == nil {
			err = ErrNotExist
		}
	}
	return l.fail(op, key, err)
}

// plain removes the operation and the path from an error of package os.
func plain(err error) error {
	var p *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &p):
		return p.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}
