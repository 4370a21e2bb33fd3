package blob

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// temp is a file in .tmp/ that becomes an object. Its writer holds a lock on it, which ends with
// the process: removeStale removes files without one.
type temp struct {
	root *os.Root
	name string
	f    *os.File
	lock *flock.Flock
}

// newTemp makes a temporary file and locks it. The first one of a store also removes stale files.
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
		// Another store removed the file as a stale one before it was locked.
	}
}

// discard closes the file and removes it unless it was renamed. It may be called twice.
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

// removeStale removes the files of dead writers from .tmp/. It ignores errors: such files are
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

// moveTimePast sets the file's modification time after old. The steps are the resolutions to which
// file systems round, up to FAT's two seconds.
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
