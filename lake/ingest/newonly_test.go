package ingest_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
)

// A folder that grows is ingested again and again: no file is in two batches, and all of them are
// in one, whatever is retired in between.
func TestOnlyNewObjectsOfAFolderThatGrows(t *testing.T) {
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 5))
		store, dir := blob.NewMemory(), t.TempDir()
		files := map[string]bool{}
		batches := map[string][]string{} // files of the live batches
		for step := range 20 {
			for range r.IntN(3) {
				name := fmt.Sprint("f", r.IntN(100), ".txt")
				files[name] = true
				if err := os.WriteFile(filepath.Join(dir, name), fmt.Appendf(nil, "https://%s.test/\n", name), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if names := slices.Sorted(maps.Keys(batches)); len(names) > 0 && r.IntN(4) == 0 {
				testlake.Retire(t, store, catalog.BatchName{DatasetID: 1, Batch: names[0]})
				delete(batches, names[0])
			}
			if len(files) == 0 {
				continue
			}
			want := map[string]bool{}
			for name := range files {
				want[name] = true
			}
			for _, some := range batches {
				for _, name := range some {
					delete(want, name)
				}
			}
			spec := ingest.Spec{Lake: store.URL(), Dataset: "d", Inputs: []string{dir}, NewOnly: true}
			plan, err := ingest.MakePlan(t.Context(), store, testlake.Run(), spec)
			if err != nil || plan.Nothing != (len(want) == 0) || plan.Known != len(files)-len(want) || plan.Objects != len(want) {
				t.Fatalf("seed %d, step %d: %+v, %v; %d of %d are new", seed, step, plan, err, len(want), len(files))
			}
			if plan.Nothing {
				continue
			}
			done := testlake.IngestSpec(t, store, spec)
			if done.Rows != int64(len(want)) {
				t.Fatalf("seed %d, step %d: %d rows of %d new files", seed, step, done.Rows, len(want))
			}
			batches[plan.Batch] = slices.Collect(maps.Keys(want))
		}
	}
}

// The batch that is ingested again is replaced as a whole. Another dataset's batches do not count.
// A record that is lost is said, since its objects might be read twice.
func TestOnlyNewObjectsBesideTheBatchItself(t *testing.T) {
	store, dir := blob.NewMemory(), t.TempDir()
	for i := range 3 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), fmt.Appendf(nil, "https://a.test/%d\n", i), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	spec := ingest.Spec{Lake: store.URL(), Dataset: "d", Batch: "one", Inputs: []string{dir}, NewOnly: true}
	first := testlake.IngestSpec(t, store, spec)
	if again := testlake.IngestSpec(t, store, spec); again.Rows != 3 || !again.Existed {
		t.Errorf("%+v", again)
	}
	other := spec
	other.Dataset = "e"
	if done := testlake.IngestSpec(t, store, other); done.Rows != 3 {
		t.Errorf("%+v", done)
	}
	spec.Batch = "two"
	if plan, err := ingest.MakePlan(t.Context(), store, testlake.Run(), spec); err != nil || !plan.Nothing || plan.Known != 3 {
		t.Errorf("%+v, %v", plan, err)
	}
	if err := store.Delete(t.Context(), lake.BatchKey(1, "one", first.Digest)); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.MakePlan(t.Context(), store, testlake.Run(), spec); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("a lost record: %v", err)
	}
	spec.Replace = true
	var input *ingest.InputError
	if _, err := ingest.MakePlan(t.Context(), store, testlake.Run(), spec); !errors.As(err, &input) {
		t.Errorf("with replace: %v", err)
	}
}
