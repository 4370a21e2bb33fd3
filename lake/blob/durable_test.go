package blob

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
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

// TestRefusedPutMakesTheObjectDurable holds that a put which fails because the object exists fsyncs
// the object's folders first: the caller relies on the object, and its writer may have died before
// it did so.
func TestRefusedPutMakesTheObjectDurable(t *testing.T) {
	dir := t.TempDir()
	l, err := NewLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	// known reports whether the store has fsynced a folder.
	known := func(name string) bool {
		d, err := root.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		id := identify(d)
		if id == "" {
			testenv.Missing(t, "a file system that identifies folders")
		}
		return l.durable.has(name, id)
	}
	// put leaves what a writer leaves that dies between rename and fsync.
	const data = "x"
	put := func(key string) {
		name := filepath.Join(dir, filepath.FromSlash(key))
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(data), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	put("a/b/plan.json")
	if _, err := l.Put(t.Context(), "a/b/plan.json", []byte("y"), Condition{IfAbsent: true}); !errors.Is(err, ErrPrecondition) {
		t.Fatalf("error %v, want that the object is there", err)
	}
	for _, name := range []string{"a/b", "a", "."} {
		if !known(name) {
			t.Errorf("%q was not fsynced before the put was refused", name)
		}
	}

	// The same if the object appears after the first check, while the writer waits for the lock.
	tmp, err := l.newTemp()
	if err != nil {
		t.Fatal(err)
	}
	defer tmp.discard()
	put("c/d/plan.json")
	if _, err := l.commit(t.Context(), tmp, "c/d/plan.json", Condition{IfAbsent: true}); !errors.Is(err, ErrPrecondition) {
		t.Fatalf("error %v, want that the object is there", err)
	}
	if !known("c/d") || !known("c") {
		t.Error("under the lock: the object's folders were not fsynced")
	}
}

// BenchmarkPutRefused puts objects that are there.
func BenchmarkPutRefused(b *testing.B) {
	l, err := NewLocal(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	const key = "a/b/c/d/plan.json"
	if _, err := l.Put(b.Context(), key, []byte("x"), Condition{}); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := l.Put(b.Context(), key, []byte("x"), Condition{IfAbsent: true}); !errors.Is(err, ErrPrecondition) {
			b.Fatal(err)
		}
	}
}

// A folder that was removed and made again under its name is not the one that was fsynced, even
// where it has the same inode number.
func TestFoldersThatAreMadeAgainAreNotKnown(t *testing.T) {
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
