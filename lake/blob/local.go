package blob

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/gofrs/flock"
)

const (
	// lockStripes is the number of lock files. Keys share them by hash; this many keep
	// writers of different keys apart, and making them costs a new lake little.
	lockStripes = 64

	// lockPoll is how often a lock that another process holds is tried again. Locks are
	// held for a rename and a fsync or two.
	lockPoll = time.Millisecond

	// placeAttempts bounds how often a folder that deleters keep removing is made again
	// under a new object. Each further attempt needs another deleter to win the same race.
	placeAttempts = 1000
)

// Local is a Store in a directory: keys are paths below it.
//
// # Writing
//
// An object is written to a file of its own in .tmp/, flushed, fsynced, closed, renamed to its
// place, and then its folder and every folder above it up to the root are fsynced (whoever made
// them may not have got there yet), but for those above one that this store has fsynced before. Objects of megabytes go past the page cache (O_DIRECT) where the file system can do that. What a crash leaves in .tmp/ is never listed and does no
// harm; the next store that writes removes it, recognising it by the lock that its dead
// writer no longer holds.
//
// # Conditions
//
// Replacing and deleting an object is done under a lock file in .tmp/locks/ (flock(2), so it
// holds between processes and ends with them), chosen by the key's hash. All writers of a
// root must therefore see one file system with working flock and rename; .tmp/ must not be
// removed while processes write.
//
// # ETags
//
// An ETag is the file's time of modification in nanoseconds and its size, so it costs one
// stat. Kernel timestamps alone would not do: two files of one size written within one tick look
// alike, and inode numbers are reused at once. Therefore the store sets the time itself, from
// the clock's full resolution, and while it holds the lock it moves the time past that of the
// object it replaces. The times along the history of one object thus strictly increase, even
// when the clock was set back or the file system rounds, and no tag returns to an object with
// other content. (After a deletion the history begins anew; a tag could then return only if
// the clock showed the same nanosecond twice.) Whoever changes files by other means must change
// their size or time, as make and rsync expect.
//
// # Symbolic links
//
// Links are followed inside the root only; one that leads out of it is an error where a
// key or a listing meets it, and so is a link to a folder in a listing. Files that are
// neither regular nor links are no objects.
type Local struct {
	url string
	dir string // absolute

	// stripes keeps the goroutines of this process from polling for locks they hold
	// against each other.
	stripes [lockStripes]chan struct{}

	durable durableFolders

	sweep sync.Once
}

// NewLocal returns the store in a directory, which need not exist: the first write makes it.
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
	for i := range l.stripes {
		l.stripes[i] = make(chan struct{}, 1)
	}
	return l, nil
}

// URL implements Store.
func (l *Local) URL() string { return l.url }

// LocalPath implements LocalFiler. A link on the way that leads out of the root is an error.
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
		return nil, Info{}, l.failRead("get", key, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, fi.Size(), MaxSmall))
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
		return nil, l.failRead("read", key, fmt.Errorf("%w: %d bytes from %d of %d", ErrRange, n, off, fi.Size()))
	}
	b := make([]byte, n)
	if _, err := f.ReadAt(b, off); err != nil {
		return nil, l.failRead("read", key, err)
	}
	return b, nil
}

// Open implements Store. The stream reads the object as it was, whatever happens to it.
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
		// What is refused already need not be written. commit asks again under the lock.
		info, err := l.Stat(ctx, key)
		if err != nil && !errors.Is(err, ErrNotExist) {
			return Info{}, err
		}
		if !cond.Holds(info.ETag, err == nil) {
			return Info{}, l.fail("put", key, ErrPrecondition)
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

type fileWriter struct {
	ctx  context.Context
	l    *Local
	key  string
	t    *temp // nil when done
	buf  *fileBuffer
	fail error
}

func (w *fileWriter) Write(p []byte) (int, error) {
	if err := w.usable(); err != nil {
		return 0, err
	}
	n, err := w.buf.Write(p)
	if err != nil {
		w.fail = w.l.fail("write", w.key, err)
	}
	return n, w.fail
}

func (w *fileWriter) usable() error {
	if w.t == nil {
		return w.l.fail("write", w.key, ErrWriterDone)
	}
	if w.fail == nil {
		w.fail = w.ctx.Err()
	}
	return w.fail
}

func (w *fileWriter) Finish() (Info, error) {
	if err := w.usable(); err != nil {
		w.Abort()
		return Info{}, err
	}
	defer w.Abort()
	if err := w.buf.Flush(); err != nil {
		return Info{}, w.l.fail("write", w.key, err)
	}
	info, err := w.l.commit(w.ctx, w.t, w.key, Condition{})
	if err != nil {
		return Info{}, w.l.fail("finish", w.key, err)
	}
	return info, nil
}

func (w *fileWriter) Abort() {
	if w.t != nil {
		w.buf.drop()
		w.t.discard()
		w.t, w.buf = nil, nil
	}
}

// temp is a file in .tmp/ that is to become an object. Its writer holds a lock on it for
// as long as it lives, which tells it from what dead writers left.
type temp struct {
	root *os.Root
	name string
	f    *os.File
	lock *flock.Flock
}

func (l *Local) newTemp() (_ *temp, err error) {
	root, err := l.makeRoot()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			root.Close()
		}
	}()
	l.sweep.Do(func() { l.removeStale(root) })
	for {
		name := TmpDir + "/" + rand.Text()
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		if errors.Is(err, fs.ErrNotExist) {
			if err := root.Mkdir(TmpDir, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		t := &temp{root: root, name: name, f: f}
		lock := flock.New(filepath.Join(l.dir, filepath.FromSlash(name)), flock.SetFlag(os.O_RDONLY))
		locked, err := lock.TryLock()
		if err == nil && locked {
			if _, err = root.Lstat(name); err == nil {
				t.lock = lock
				return t, nil
			}
		}
		lock.Close()
		f.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			root.Remove(name)
			return nil, err
		}
		// A sweeper took the file for a dead one before its lock was held.
	}
}

// discard ends what commit has not ended. It may be called twice.
func (t *temp) discard() {
	if t.root == nil {
		return
	}
	t.f.Close()
	t.root.Remove(t.name)
	t.lock.Unlock()
	t.root.Close()
	t.root = nil
}

// removeStale removes what dead writers left in .tmp/. What it cannot remove stays: it is
// harmless.
func (l *Local) removeStale(root *os.Root) {
	d, err := root.Open(TmpDir)
	if err != nil {
		return
	}
	defer d.Close()
	entries, _ := d.ReadDir(-1)
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		lock := flock.New(filepath.Join(l.dir, TmpDir, e.Name()), flock.SetFlag(os.O_RDONLY))
		if locked, err := lock.TryLock(); err == nil && locked {
			root.Remove(TmpDir + "/" + e.Name())
			lock.Unlock()
		}
	}
}

// commit makes the temporary file durable and puts it in its place if cond holds.
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
		return Info{}, ErrPrecondition
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
	// Under the lock, so that whoever is refused because the object is there, or puts another in its place, does so after it is durable.
	if err := l.durable.sync(t.root, path.Dir(key)); err != nil {
		return Info{}, err
	}
	return fileInfo(key, fi), nil
}

// moveTimePast gives the file a time of modification after old. The steps are the
// resolutions that file systems round to, down to FAT's two seconds.
func (t *temp) moveTimePast(old time.Time) (fs.FileInfo, error) {
	for _, step := range []time.Duration{1, time.Microsecond, time.Millisecond, time.Second, 2 * time.Second} {
		if err := t.root.Chtimes(t.name, old.Add(step), old.Add(step)); err != nil {
			return nil, err
		}
		fi, err := t.f.Stat()
		if err != nil {
			return nil, err
		}
		if fi.ModTime().After(old) {
			return fi, t.f.Sync()
		}
	}
	return nil, errors.New("the file system does not keep times of modification")
}

// place renames the temporary file to its key, whose lock the caller holds, making the
// folders it needs and, where a deleter takes one away in between, making it again.
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
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			continue
		}
		if fi, statErr := t.root.Lstat(key); statErr == nil && fi.IsDir() {
			// A folder that a dead writer or deleter left empty makes way.
			if t.root.Remove(key) != nil {
				return fmt.Errorf("%w: it is a folder of other objects", ErrInvalidKey)
			}
			continue
		}
		return err
	}
	return fmt.Errorf("its folder was removed %d times while the object was put there", placeAttempts)
}

// List implements Store. Memory is proportional to the largest folder, not to the listing.
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
			return
		}
		if err == nil {
			defer root.Close()
			dir, base := path.Split(prefix)
			err = l.walk(ctx, root, dir, base, yield)
		} else {
			err = fmt.Errorf("list %s: %w", l.url, plain(err))
		}
		if err != nil && err != errStop {
			yield(Info{}, err)
		}
	}
}

// errStop ends a walk whose caller wants no more.
var errStop = errors.New("stop")

// walk yields what is in a folder ("" or ending in a slash) under names that start with base.
func (l *Local) walk(ctx context.Context, root *os.Root, dir, base string, yield func(Info, error) bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d, err := root.OpenFile(path.Clean("./"+dir), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if missing(err) {
		return nil // deleted meanwhile, or nothing has that prefix
	}
	if err != nil {
		return l.fail("list", dir, err)
	}
	entries, err := d.ReadDir(-1)
	d.Close()
	if err != nil && !missing(err) {
		return l.fail("list", dir, err)
	}
	// In the order of the keys a folder's name ends in a slash: "a.b" comes before "a/b".
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

// Delete implements Store. Folders that become empty go too.
func (l *Local) Delete(ctx context.Context, keys ...string) error {
	if err := CheckKeys(ctx, keys); err != nil {
		return err
	}
	root, err := os.OpenRoot(l.dir)
	if missing(err) {
		return nil
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

// tidy removes those of the folders that are empty, and those above that this empties,
// and fsyncs the folders that stay.
func (l *Local) tidy(ctx context.Context, root *os.Root, folders map[string]bool) error {
	stay := map[string]bool{}
	for dir := range folders {
		for dir != "." {
			if removed, err := l.remove(ctx, root, dir, true); err != nil || !removed {
				break
			}
			dir = path.Dir(dir)
		}
		stay[dir] = true
	}
	for dir := range stay {
		if err := l.durable.sync(root, dir); err != nil && !missing(err) {
			return err
		}
	}
	return nil
}

// remove removes an object, or an empty folder. The lock on its key keeps a folder from
// turning into an object between the look and the removal, and an object from being replaced
// under a condition that no longer holds.
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

// lock takes the lock that guards replacing and deleting a key.
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
			if err := os.MkdirAll(locks, 0o777); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		// A lock on a file that is gone from its place (the whole store was removed, say)
		// guards nothing.
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

// makeRoot opens the root for writing and makes it where it does not exist.
func (l *Local) makeRoot() (*os.Root, error) {
	root, err := os.OpenRoot(l.dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return root, err
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
	return os.OpenRoot(l.dir)
}

// syncFolder fsyncs a folder that was opened, and closes it.
func syncFolder(d *os.File, err error) error {
	if err != nil {
		return err
	}
	defer d.Close()
	// EINVAL is how file systems say that they have nothing to do for a folder.
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
	return f, fi, nil
}

// openInRoot opens a file below dir without following links out of it. O_NONBLOCK keeps a
// FIFO from blocking the open.
func openInRoot(dir, key string) (*os.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.OpenFile(key, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// statObject is a Stat to which what is not a regular file does not exist.
func statObject(root *os.Root, key string) (fs.FileInfo, error) {
	fi, err := root.Stat(key)
	if err == nil && !fi.Mode().IsRegular() {
		return nil, fs.ErrNotExist
	}
	return fi, err
}

// missing is true of the errors by which a file system says that there is no such object.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

func fileInfo(key string, fi fs.FileInfo) Info {
	return Info{Key: key, Size: fi.Size(), ETag: fileETag(fi)}
}

func fileETag(fi fs.FileInfo) string {
	return fmt.Sprintf("%x-%x", fi.ModTime().UnixNano(), fi.Size())
}

// fail names the operation and the key, without the names that package os adds.
func (l *Local) fail(op, key string, err error) error {
	return OpError(op, l.url, key, plain(err))
}

// failRead is fail for operations to which a missing file is a missing object.
func (l *Local) failRead(op, key string, err error) error {
	if missing(err) {
		err = ErrNotExist
	}
	return l.fail(op, key, err)
}

// plain takes the operation and path off an error from package os.
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
