package blob_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake/blob"
)

const (
	racerStore  = "BLOB_TEST_RACER_STORE"
	racerName   = "BLOB_TEST_RACER_NAME"
	racerRounds = "BLOB_TEST_RACER_ROUNDS"
)

func TestMain(m *testing.M) {
	if os.Getenv(racerStore) != "" {
		if err := race(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// race increments this racer's count in an object that all racers share, a number of times, and
// prints a line after each. Counts have a fixed width, so that all versions of the object have the
// same size.
func race() error {
	ctx := context.Background()
	s, err := blob.Open(ctx, os.Getenv(racerStore))
	if err != nil {
		return err
	}
	rounds, err := strconv.Atoi(os.Getenv(racerRounds))
	if err != nil {
		return err
	}
	name := os.Getenv(racerName)
	for range rounds {
		for {
			b, info, err := s.Get(ctx, "index/counts")
			if err != nil {
				return err
			}
			counts := map[string]string{}
			if err := json.Unmarshal(b, &counts); err != nil {
				return fmt.Errorf("torn object %q: %w", b, err)
			}
			n, err := strconv.Atoi(counts[name])
			if err != nil {
				return err
			}
			counts[name] = fmt.Sprintf("%06d", n+1)
			if b, err = json.Marshal(counts); err != nil {
				return err
			}
			_, err = s.Put(ctx, "index/counts", b, blob.Condition{IfMatch: info.ETag})
			if err == nil {
				break
			}
			if !errors.Is(err, blob.ErrPrecondition) {
				return err
			}
		}
		fmt.Println(name)
	}
	return nil
}

// Processes count in one object by conditional puts. One of them is killed meanwhile and may hold
// the lock.
func TestProcessesLoseNoUpdate(t *testing.T) {
	t.Parallel()
	const racers, rounds, killed = 4, 60, 0
	s := openStore(t, t.TempDir())
	counts := map[string]string{}
	for i := range racers {
		counts[fmt.Sprint(i)] = "000000"
	}
	b, err := json.Marshal(counts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "index/counts", b, blob.Condition{IfAbsent: true}); err != nil {
		t.Fatal(err)
	}
	var printed [racers]int
	var wg sync.WaitGroup
	for i := range racers {
		cmd := exec.Command(os.Args[0])
		n := rounds
		if i == killed {
			n = 1_000_000
		}
		cmd.Env = append(os.Environ(), racerStore+"="+s.URL(), fmt.Sprintf("%s=%d", racerName, i), fmt.Sprintf("%s=%d", racerRounds, n))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				if printed[i]++; i == killed && printed[i] == rounds/2 {
					cmd.Process.Kill()
				}
			}
			if err := cmd.Wait(); err != nil && i != killed {
				t.Errorf("racer %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if b, _, err = s.Get(t.Context(), "index/counts"); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &counts); err != nil {
		t.Fatal(err)
	}
	for i := range racers {
		got, _ := strconv.Atoi(counts[fmt.Sprint(i)])
		// A racer that is killed between its put and its line has one more.
		if got != printed[i] && !(i == killed && got == printed[i]+1) {
			t.Errorf("racer %d put %d times, its count is %d", i, printed[i], got)
		}
	}
}

// The test holds the lock of a key as another process does between comparison and rename.
func TestLocalChangesWaitForTheLock(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	info, err := s.Put(t.Context(), "k", []byte("old"), blob.Condition{})
	if err != nil {
		t.Fatal(err)
	}
	unlock := blob.LockKey(t, openStore(t, dir), "k")
	changes := map[string]func(ctx context.Context) error{
		"Put": func(ctx context.Context) error {
			_, err := s.Put(ctx, "k", []byte("new"), blob.Condition{})
			return err
		},
		"conditional Put": func(ctx context.Context) error {
			_, err := s.Put(ctx, "k", []byte("new"), blob.Condition{IfMatch: info.ETag})
			return err
		},
		"Finish": func(ctx context.Context) error {
			w, err := s.Create(ctx, "k")
			if err != nil {
				return err
			}
			_, err = w.Finish()
			return err
		},
		"Delete": func(ctx context.Context) error { return s.Delete(ctx, "k") },
	}
	for name, change := range changes {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := change(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s while another holds the lock: %v", name, err)
		}
		cancel()
	}
	if b, _, err := s.Get(t.Context(), "k"); err != nil || string(b) != "old" {
		t.Errorf("Get = %q, %v", b, err)
	}
	unlock()
	if err := changes["conditional Put"](t.Context()); err != nil {
		t.Errorf("after the lock was released: %v", err)
	}
}

// tree lists files and folders below dir, without the lock files.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if rel, _ := filepath.Rel(dir, p); err == nil && rel != "." && !strings.HasPrefix(rel, filepath.Join(".tmp", "locks")) {
			all = append(all, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestLocalLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	ctx := t.Context()
	for _, key := range []string{"a/b/c", "a/b/d/e", "f"} {
		if _, err := s.Put(ctx, key, []byte("x"), blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Put(ctx, "f", []byte("y"), blob.Condition{IfAbsent: true}); !errors.Is(err, blob.ErrPrecondition) {
		t.Fatal(err)
	}
	w, err := s.Create(ctx, "g/h")
	if err != nil {
		t.Fatal(err)
	}
	w.Abort()
	ended, cancel := context.WithCancel(ctx)
	if w, err = s.Create(ended, "g/h"); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := w.Finish(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := s.Delete(ctx, "a/b/d/e"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{".tmp", "a", "a/b", "a/b/c", "f"}, tree(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if err := s.Delete(ctx, "a/b/c", "f"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{".tmp"}, tree(t, dir)); diff != "" {
		t.Errorf("files after deletion (-want +got):\n%s", diff)
	}
}

func TestLocalRemovesTheFilesOfDeadWritersOnly(t *testing.T) {
	dir := t.TempDir()
	living := openStore(t, dir)
	w, err := living.Create(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if _, err := w.Write([]byte("alive")); err != nil {
		t.Fatal(err)
	}
	dead := filepath.Join(dir, ".tmp", "left-by-a-dead-writer")
	if err := os.WriteFile(dead, []byte("half an obj"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := openStore(t, dir).Put(t.Context(), "other", nil, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the dead writer's file: %v", err)
	}
	if _, err := w.Finish(); err != nil {
		t.Errorf("the living writer: %v", err)
	}
	if b, _, err := living.Get(t.Context(), "k"); err != nil || string(b) != "alive" {
		t.Errorf("Get = %q, %v", b, err)
	}
}

func TestLocalMakesItsRootAtTheFirstWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet")
	s := openStore(t, dir)
	if _, err := s.Stat(t.Context(), "k"); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("Stat: %v", err)
	}
	for info, err := range s.List(t.Context(), "") {
		t.Errorf("List: %v, %v", info, err)
	}
	if err := s.Delete(t.Context(), "k"); err != nil {
		t.Errorf("Delete: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("reading made the root: %v", err)
	}
	for range 2 {
		if _, err := s.Put(t.Context(), "a/k", []byte("x"), blob.Condition{IfAbsent: true}); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		s = openStore(t, dir) // a restarted program begins a new lake
	}
}

// Folders are removed whenever they are empty, which is just before an object is renamed into them.
func TestLocalMakesFoldersAgain(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				os.Remove(filepath.Join(dir, "a", "b"))
				os.Remove(filepath.Join(dir, "a"))
			}
		}
	})
	for i := range 40 {
		if _, err := s.Put(t.Context(), "a/b/k", []byte("x"), blob.Condition{IfAbsent: true}); err != nil {
			t.Errorf("round %d: %v", i, err)
		}
		if err := s.Delete(t.Context(), "a/b/k"); err != nil {
			t.Errorf("round %d: %v", i, err)
		}
	}
	close(done)
	wg.Wait()
}

func TestLocalLinksDoNotLeadOut(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o666); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, dir)
	if _, err := s.Put(t.Context(), "in/k", []byte("inside"), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link(filepath.Join(outside, "secret"), "file")
	link(outside, "folder")
	link("../"+filepath.Base(outside), "relative")
	link("in/k", "good")
	link("nowhere", "dangling")
	l, _ := blob.AsLocalFiler(s)
	for _, key := range []string{"file", "folder/secret", "relative/secret"} {
		if b, _, err := s.Get(t.Context(), key); err == nil || errors.Is(err, blob.ErrNotExist) {
			t.Errorf("Get(%s) = %q, %v", key, b, err)
		}
		if _, err := s.Stat(t.Context(), key); err == nil || errors.Is(err, blob.ErrNotExist) {
			t.Errorf("Stat(%s): %v", key, err)
		}
		if _, err := s.Open(t.Context(), key, 0, -1); err == nil {
			t.Errorf("Open(%s) succeeded", key)
		}
		if p, err := l.LocalPath(key); err == nil {
			t.Errorf("LocalPath(%s) = %s", key, p)
		}
	}
	for _, key := range []string{"folder/new", "folder/sub/new", "relative/new"} {
		if _, err := s.Put(t.Context(), key, []byte("x"), blob.Condition{}); err == nil {
			t.Errorf("Put(%s) succeeded", key)
		}
		s.Delete(t.Context(), "folder/secret")
	}
	if diff := cmp.Diff([]string{"secret"}, tree(t, outside)); diff != "" {
		t.Errorf("outside the root (-want +got):\n%s", diff)
	}
	var listed []string
	var listErr error
	for info, err := range s.List(t.Context(), "") {
		listed, listErr = append(listed, info.Key), err
	}
	if listErr == nil {
		t.Errorf("a listing passed over links that lead out: %v", listed)
	}
	for _, name := range []string{"file", "folder", "relative"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	// Links inside the root are followed.
	if b, _, err := s.Get(t.Context(), "good"); err != nil || string(b) != "inside" {
		t.Errorf("Get through a link inside = %q, %v", b, err)
	}
	var keys []string
	for info, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	if diff := cmp.Diff([]string{"good", "in/k"}, keys); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	// A link to a folder could be a cycle.
	link("..", filepath.Join("in", "loop"))
	var last error
	for _, last = range s.List(t.Context(), "") {
	}
	if last == nil {
		t.Error("a listing took a link to a folder")
	}
}

func TestLocalListReportsFilesThatNoKeyNames(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "line\nbreak"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, err := range openStore(t, dir).List(t.Context(), "") {
		if !errors.Is(err, blob.ErrInvalidKey) {
			t.Errorf("List: %v", err)
		}
	}
}

// An object with a modification time in the future, as after the clock was set back, is replaced by
// contents of the same size. Times must still increase: otherwise an ETag would return when the
// clock reaches them.
func TestLocalETagsDoNotDependOnTheClock(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	info, err := s.Put(t.Context(), "k", []byte("0000"), blob.Condition{})
	if err != nil {
		t.Fatal(err)
	}
	future := time.Now().Add(24 * time.Hour).Truncate(time.Second)
	if err := os.Chtimes(filepath.Join(dir, "k"), future, future); err != nil {
		t.Fatal(err)
	}
	tags := []string{info.ETag}
	last := future
	for i := range 10 {
		stat, err := s.Stat(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && stat.ETag != tags[len(tags)-1] {
			t.Fatalf("Stat has tag %s, Put had %s", stat.ETag, tags[len(tags)-1])
		}
		info, err := s.Put(t.Context(), "k", fmt.Appendf(nil, "%04d", i), blob.Condition{IfMatch: stat.ETag})
		if err != nil {
			t.Fatal(err)
		}
		if info.ETag == stat.ETag || slices.Contains(tags, info.ETag) {
			t.Fatalf("round %d: ETag %s is an earlier one", i, info.ETag)
		}
		tags = append(tags, info.ETag)
		fi, err := os.Stat(filepath.Join(dir, "k"))
		if err != nil {
			t.Fatal(err)
		}
		if !fi.ModTime().After(last) {
			t.Fatalf("round %d: the object's time is %v after %v", i, fi.ModTime(), last)
		}
		last = fi.ModTime()
	}
}

func TestLocalStreamEndsInAnErrorWhenTheFileShrinks(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	if _, err := s.Put(t.Context(), "k", make([]byte, 100_000), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	stream, err := s.Open(t.Context(), "k", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if err := os.Truncate(filepath.Join(dir, "k"), 50_000); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, stream); err == nil {
		t.Errorf("a stream of %d of 100,000 bytes ended without an error", n)
	}
}

// TestAbsentRootIsAway unmounts the file system of a store, by a rename. No operation may find that
// an object does not exist, since its callers would draw conclusions, or begin another lake there.
func TestAbsentRootIsAway(t *testing.T) {
	ctx := t.Context()
	mount := filepath.Join(t.TempDir(), "mnt")
	dir := filepath.Join(mount, "lake")
	list := func(s blob.Store) error {
		for _, err := range s.List(ctx, "a/") {
			return err
		}
		return nil
	}
	// Two stores know that the root exists: one has made it, one has found it.
	made, err := blob.NewLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := made.Stat(ctx, "a/b"); !errors.Is(err, blob.ErrNotExist) {
		t.Fatalf("in a new store: %v", err)
	}
	if err := list(made); err != nil {
		t.Fatal(err)
	}
	info, err := made.Put(ctx, "a/b", []byte("x"), blob.Condition{})
	if err != nil {
		t.Fatal(err)
	}
	found, err := blob.NewLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+"-unmounted"); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*blob.Local{made, found} {
		ops := map[string]func() error{
			"stat":   func() error { _, err := s.Stat(ctx, "a/b"); return err },
			"get":    func() error { _, _, err := s.Get(ctx, "a/b"); return err },
			"read":   func() error { _, err := s.ReadRange(ctx, "a/b", 0, 1); return err },
			"open":   func() error { _, err := s.Open(ctx, "a/b", 0, -1); return err },
			"list":   func() error { return list(s) },
			"delete": func() error { return s.Delete(ctx, "a/b") },
			"put":    func() error { _, err := s.Put(ctx, "a/c", nil, blob.Condition{}); return err },
			"absent": func() error { _, err := s.Put(ctx, "a/c", nil, blob.Condition{IfAbsent: true}); return err },
			"match":  func() error { _, err := s.Put(ctx, "a/b", nil, blob.Condition{IfMatch: info.ETag}); return err },
			"create": func() error { _, err := s.Create(ctx, "a/c"); return err },
		}
		for name, op := range ops {
			if err := op(); !errors.Is(err, blob.ErrAway) || errors.Is(err, blob.ErrNotExist) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%s: %v, want ErrAway", name, err)
			}
		}
	}
	if entries, err := os.ReadDir(mount); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v below the mount point; want nothing made there", entries, err)
	}
	if err := os.Rename(dir+"-unmounted", dir); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*blob.Local{made, found} {
		if data, _, err := s.Get(ctx, "a/b"); err != nil || string(data) != "x" {
			t.Errorf("mounted again: %q, %v", data, err)
		}
		if _, err := s.Stat(ctx, "a/c"); !errors.Is(err, blob.ErrNotExist) {
			t.Errorf("mounted again: %v", err)
		}
	}
}
