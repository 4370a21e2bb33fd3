package many_test

import (
	"path/filepath"
	"testing"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest/many"
	"github.com/urlake/urlake/publish/gc"
)

// A collection deletes the superseded pieces of what was taken up, and no other: the next ingest
// finds nothing new.
func TestSupersededPiecesAreCollected(t *testing.T) {
	store := blob.NewMemory()
	dir := writeLists(t, map[string]string{"a.txt": "https://a.example/1\n", "b.txt": "https://b.example/1\n"})
	spec := specOf(store, many.FromFiles, filepath.Join(dir, "*.txt"))
	takeUp(t, store, spec)
	writeList(t, filepath.Join(dir, "a.txt"), "https://a.example/1\nhttps://a.example/2\n")
	takeUp(t, store, spec)
	testlake.Publish(t, store)
	res, err := gc.Collect(t.Context(), store, gc.Options{Keep: 1})
	if err != nil {
		t.Fatal(err)
	}
	if n := res.Deleted["pieces of inputs"].Objects; n == 0 {
		t.Errorf("no superseded piece was deleted: %+v", res.Deleted)
	}
	keys, ok, err := many.TakenPieces(t.Context(), store)
	if err != nil || !ok || len(keys) == 0 {
		t.Fatalf("pieces %q, %v, %v", keys, ok, err)
	}
	for _, key := range keys {
		if _, err := store.Stat(t.Context(), key); err != nil {
			t.Error(err)
		}
	}
	if _, out := takeUp(t, store, spec); len(out) > 0 {
		t.Errorf("taken up again: %+v", out)
	}
}
