package snapshot_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/urlake/urlake/frontier/snapshot"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/codec"
)

// fake is what a frontier answers that has some files.
type fake struct {
	mu    sync.Mutex
	files map[string][]byte
	taken int
	held  int // snapshots that were not dropped
}

func (f *fake) change(do func(files map[string][]byte)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(f.files)
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case r.Method == http.MethodPost:
		f.taken++
		f.held++
		var files []map[string]any
		for name, data := range f.files {
			files = append(files, map[string]any{"path": "part/" + name, "size": len(data), "modified": len(data)})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"id": fmt.Sprintf("%06d", f.taken), "shard_count": 1, "shards": []int{0}, "files": files})
	case r.Method == http.MethodDelete:
		f.held--
		w.WriteHeader(http.StatusNoContent)
	default:
		_, name, _ := strings.Cut(r.URL.Path, "/files/part/")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.files[name]))
	}
}

// newFake has a file that is replaced, one that grows, and one that stays.
func newFake(t *testing.T) (*fake, string) {
	f := &fake{files: map[string][]byte{
		"redis": []byte("state 1"), "shard-000/visits": bytes.Repeat([]byte("visit"), 30_000), "shard-000/1.run": bytes.Repeat([]byte("run"), 50_000),
	}}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, server.URL
}

// content returns the files of a snapshot, by path.
func content(t *testing.T, store blob.Store, m *snapshot.Manifest) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, f := range m.Files {
		for _, p := range f.Pieces {
			r, err := store.Open(t.Context(), p.Object, 0, -1)
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			r.Close()
			files[f.Path] += string(data)
		}
	}
	if wrong, err := snapshot.Damaged(t.Context(), store, m); err != nil || len(wrong) > 0 {
		t.Errorf("snapshot %s: %v, %v", m.ID, wrong, err)
	}
	return files
}

func (f *fake) content() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	files := map[string]string{}
	for name, data := range f.files {
		files[name] = string(data)
	}
	return files
}

// TestStoreDiesAtAnyPoint lets a store die after each of its changes while a snapshot is made.
// Every snapshot that it lists then is whole, and the next one is what the frontier has.
func TestStoreDiesAtAnyPoint(t *testing.T) {
	for n := 0; ; n++ {
		memory := blob.NewMemory()
		f, base := newFake(t)
		take := func(store blob.Store) (*snapshot.Taken, error) {
			return snapshot.Take(t.Context(), store, snapshot.TakeOptions{Frontier: base, Keep: 1, Note: func(string) {}})
		}
		if _, err := take(memory); err != nil {
			t.Fatal(err)
		}
		had := []map[string]string{f.content()}
		f.change(func(files map[string][]byte) {
			files["redis"] = []byte("state 2")
			files["shard-000/visits"] = append(slices.Clone(files["shard-000/visits"]), "more"...)
			files["shard-000/2.run"] = []byte("another")
			delete(files, "shard-000/1.run")
		})
		had = append(had, f.content())
		faulty := blobtest.NewFaulty(memory)
		faulty.CrashAfter(n)
		_, err := take(faulty)
		crashed := faulty.Crashed()
		if crashed != (err != nil) {
			t.Fatalf("after %d changes: %v", n, err)
		}
		ids, err := snapshot.IDs(t.Context(), memory)
		if err != nil || len(ids) == 0 {
			t.Fatalf("after %d changes: %v, %v", n, ids, err)
		}
		for _, id := range ids {
			m, err := snapshot.Read(t.Context(), memory, id)
			if err != nil {
				t.Fatal(err)
			}
			if got := content(t, memory, m); !slices.ContainsFunc(had, func(want map[string]string) bool { return maps.Equal(got, want) }) {
				t.Errorf("after %d changes: snapshot %s is neither what the frontier had nor what it has", n, id)
			}
		}
		if err := memory.Delete(t.Context(), "lock.json"); err != nil { // it would have ended
			t.Fatal(err)
		}
		taken, err := take(memory)
		if err != nil {
			t.Fatal(err)
		}
		if got := content(t, memory, taken.Manifest); !maps.Equal(got, had[1]) {
			t.Errorf("after %d changes: the next snapshot is not what the frontier has", n)
		}
		objects := 0
		for info, err := range memory.List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			objects++
			t.Log(info.Key)
		}
		// A manifest, and the visits in two pieces.
		if objects != 5 {
			t.Errorf("after %d changes: %d objects are left", n, objects)
		}
		if f.held != 0 {
			t.Errorf("after %d changes: the frontier holds %d snapshots", n, f.held)
		}
		if !crashed {
			if n < 5 {
				t.Errorf("a snapshot is only %d changes", n)
			}
			return
		}
	}
}

// TestOneSnapshotAtATime begins a snapshot while another one is being made, and while there is a
// lock whose holder has died.
func TestOneSnapshotAtATime(t *testing.T) {
	_, base := newFake(t)
	store := blobtest.NewFaulty(blob.NewMemory())
	take := func(ctx context.Context) error {
		_, err := snapshot.Take(ctx, store, snapshot.TakeOptions{Frontier: base, Note: func(string) {}})
		return err
	}
	store.Inject(blobtest.Fault{Op: blob.OpCreate, Nth: 1, Do: func() {
		if err := take(t.Context()); err == nil || !strings.Contains(err.Error(), "another snapshot is being made") {
			t.Errorf("the second snapshot: %v", err)
		}
	}})
	if err := take(t.Context()); err != nil {
		t.Error(err)
	}
	if store.Fired() != 1 {
		t.Error("there was no second snapshot")
	}
	for _, c := range []struct {
		ended time.Duration
		taken bool
	}{{-time.Second, false}, {time.Hour, true}} {
		data, err := codec.Seal(map[string]any{"format": 1, "holder": "dead", "expires": time.Now().Add(-c.ended)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Put(t.Context(), "lock.json", data, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		if err := take(t.Context()); (err == nil) != c.taken {
			t.Errorf("with a lock that ended %v ago: %v", c.ended, err)
		}
	}
}

// TestSnapshotsOfDamagedStores makes a snapshot in a store whose last manifest or pieces are
// damaged, missing or of another frontier. It is whole nevertheless.
func TestSnapshotsOfDamagedStores(t *testing.T) {
	for what, damage := range map[string]func(store *blob.Memory, f *fake, m *snapshot.Manifest) error{
		"the manifest": func(store *blob.Memory, _ *fake, m *snapshot.Manifest) error {
			_, err := store.Put(t.Context(), "snapshots/"+m.ID+".json", []byte("{}"), blob.Condition{})
			return err
		},
		"a piece that is missing": func(store *blob.Memory, _ *fake, m *snapshot.Manifest) error {
			return store.Delete(t.Context(), m.Files[1].Pieces[0].Object)
		},
		"a piece that is shorter": func(store *blob.Memory, _ *fake, m *snapshot.Manifest) error {
			_, err := store.Put(t.Context(), m.Files[1].Pieces[0].Object, []byte("short"), blob.Condition{})
			return err
		},
		"visits of another frontier": func(_ *blob.Memory, f *fake, _ *snapshot.Manifest) error {
			f.change(func(files map[string][]byte) { files["shard-000/visits"] = bytes.Repeat([]byte("VISIT"), 31_000) })
			return nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			f, base := newFake(t)
			store := blob.NewMemory()
			o := snapshot.TakeOptions{Frontier: base, Note: func(s string) { t.Log(s) }}
			first, err := snapshot.Take(t.Context(), store, o)
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(store, f, first.Manifest); err != nil {
				t.Fatal(err)
			}
			second, err := snapshot.Take(t.Context(), store, o)
			if second == nil {
				t.Fatal(err)
			}
			if got := content(t, store, second.Manifest); !maps.Equal(got, f.content()) {
				t.Error("the snapshot is not what the frontier has")
			}
			t.Log(err) // that old objects stay, if it is not known which are named
		})
	}
}
