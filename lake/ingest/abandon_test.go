package ingest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/registry"
)

// The clean-up of a run that has not finished takes its ingest from the registry, whatever else is
// damaged. That of a finished run leaves the ingest there.
func TestCleanupAbandonsTheIngest(t *testing.T) {
	for _, damaged := range []string{"", "plan", "registry"} {
		store := blob.NewMemory()
		input := filepath.Join(t.TempDir(), "list.txt")
		if err := os.WriteFile(input, []byte("http://example.com/\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		plan, err := MakePlan(t.Context(), store, "run", Spec{Lake: store.URL(), Dataset: "d", Inputs: []string{input}})
		if err != nil {
			t.Fatal(err)
		}
		order := registry.ShardKey(registry.ShardOf(plan.DatasetID))
		before, _, err := store.Get(t.Context(), order)
		if err != nil {
			t.Fatal(err)
		}
		key := map[string]string{"plan": planKey("run"), "registry": order}[damaged]
		if key != "" {
			if _, err := store.Put(t.Context(), key, []byte("damaged"), blob.Condition{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := Cleanup(t.Context(), store, "run"); err != nil {
			t.Fatalf("damaged %q: %v", damaged, err)
		}
		if _, err := store.Stat(t.Context(), planKey("run")); !errors.Is(err, blob.ErrNotExist) {
			t.Errorf("damaged %q: the plan is still there, %v", damaged, err)
		}
		if damaged != "" {
			continue
		}
		if after, _, err := store.Get(t.Context(), order); err != nil || len(after) >= len(before) {
			t.Errorf("the ingest is still registered: %s, %v", after, err)
		}
		if _, err := registry.FinishIngest(t.Context(), store, plan.DatasetID, plan.Batch, "run", "0123"); !errors.Is(err, registry.ErrUnknownRun) {
			t.Errorf("finished after the clean-up: %v", err)
		}
	}
}
