package blob

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// A put succeeds although the object and its folder are deleted right after the rename.
func TestPutWhileObjectAndFolderAreDeleted(t *testing.T) {
	l, err := NewLocal(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const key = "a/b/c"
	done := make(chan struct{})
	var deleter sync.WaitGroup
	deleter.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := l.Delete(t.Context(), key); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 100 {
		if info, err := l.Put(t.Context(), key, []byte("x"), Condition{}); err != nil || info.Size != 1 {
			t.Errorf("%+v, %v", info, err)
			break
		}
	}
	close(done)
	deleter.Wait()
}

// A folder that was removed and made again is not the folder that was fsynced, even if it has the
// same inode number.
func TestFoldersThatAreMadeAgainAreNotDurable(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	identity := func(name string) folderIdentity {
		d, err := root.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		return identify(d)
	}
	var f durableFolders
	for range 3 {
		if err := root.MkdirAll("a/b/c", 0o777); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a/b/c", "a/b", "a", "."} {
			id := identity(name)
			if known := f.has(name, id); known && (name == "a/b" || name == "a/b/c") {
				t.Fatalf("%s is known before it was fsynced", name)
			}
		}
		if err := f.sync(root, "a/b/c"); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a/b/c", "a/b", "a", "."} {
			if id := identity(name); id != "" && !f.has(name, id) {
				t.Fatalf("%s is not known after it was fsynced", name)
			}
		}
		if err := os.RemoveAll(filepath.Join(dir, "a", "b")); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.sync(root, "a/b"); !missing(err) {
		t.Fatalf("a folder that does not exist: %v", err)
	}
}

// The set is bounded, whatever the number of folders.
func TestDurableFoldersAreBounded(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := root.Mkdir("a", 0o777); err != nil {
		t.Fatal(err)
	}
	f := durableFolders{known: map[string]folderIdentity{}}
	for i := range maxDurable + 1 {
		f.known[string(rune(i))+"/"] = "x"
	}
	if err := f.sync(root, "a"); err != nil {
		t.Fatal(err)
	}
	if len(f.known) > 2 {
		t.Fatalf("%d folders known", len(f.known))
	}
}
