package published_test

import (
	"strings"
	"testing"

	"github.com/urlake/urlake/indexbuild/published"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/registry"
)

// An ingest that waits is told which batch replaces its dataset, whichever of the two finished
// first.
func TestWhoWaitsIsToldWhatReplacesIt(t *testing.T) {
	for _, order := range [][]string{{"a", "b"}, {"b", "a"}} {
		store := blob.NewMemory()
		if _, err := registry.RegisterDataset(t.Context(), store, lake.Dataset{Name: "one"}); err != nil {
			t.Fatal(err)
		}
		for _, batch := range []string{"a", "b"} {
			if _, err := registry.RegisterIngest(t.Context(), store, 1, batch, "run"); err != nil {
				t.Fatal(err)
			}
		}
		for _, batch := range order {
			if _, err := registry.FinishReplacing(t.Context(), store, 1, batch, "run", "digest of "+batch, true); err != nil {
				t.Fatal(err)
			}
		}
		found, err := published.Find(t.Context(), store, segment.BatchRef{DatasetID: 1, Batch: "a", Digest: "digest of a"}, "")
		if err != nil || found.Published || !strings.Contains(found.Damage, "batch b replaces the dataset") {
			t.Errorf("%s: %+v, %v", order, found, err)
		}
	}
}
