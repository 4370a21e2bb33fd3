package ingest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
)

// A run that was cleaned up leaves nothing, whatever is damaged, also if one of its steps is still
// under way.
func TestCleanupLeavesNothing(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		store := blob.NewMemory()
		input := filepath.Join(t.TempDir(), "list.txt")
		if err := os.WriteFile(input, []byte("http://example.com/\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		spec := Spec{Lake: store.URL(), Dataset: "d", Inputs: []string{input}}
		ended := func(context.Context, Owner) (bool, error) { return true, nil }
		if _, err := Claim(t.Context(), store, "run", spec, Owner{"n", "w"}, ended); err != nil {
			t.Fatal(err)
		}
		if _, err := MakePlan(t.Context(), store, "run", spec); err != nil {
			t.Fatal(err)
		}
		p, err := readPlan(t.Context(), store, "run")
		if err != nil {
			t.Fatal(err)
		}
		if damaged {
			if _, err := store.Put(t.Context(), planKey("run"), []byte("damaged"), blob.Condition{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := Cleanup(t.Context(), store, "run"); err != nil {
			t.Fatalf("damaged %v: %v", damaged, err)
		}
		out := FinishResult{BatchKey: "batches/x"}
		if err := p.finish(t.Context(), store, &out); !errors.Is(err, blob.ErrNotExist) {
			t.Errorf("finished after the clean-up: %v", err)
		}
		for _, folder := range []string{catalog.PendingRoot, "staging/run/", specKey(p.Spec)} {
			for info := range store.List(t.Context(), folder) {
				if !damaged || folder != specKey(p.Spec) { // which a sweep removes
					t.Errorf("damaged %v: %s is left", damaged, info.Key)
				}
			}
		}
	}
}
