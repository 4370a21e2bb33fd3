package api

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/serve/lookup"
)

// TestSumsOfSizesThatOverflow holds that a sum of sizes is exact or missing, never another number:
// in one batch, in the batches of one segment, and in those of several.
func TestSumsOfSizesThatOverflow(t *testing.T) {
	store := blob.NewMemory()
	ingest := func(dataset, batch string, n int) {
		var records []testlake.Record
		for i := range n {
			records = append(records, testlake.Record{URL: fmt.Sprintf("https://example.com/%s/%d", batch, i), Size: raw.MaxSize, HasSize: true})
		}
		testlake.Ingest(t, store, dataset, batch, records)
	}
	ingest("fits", "b", 1024)
	ingest("one-batch", "b", 1025)
	ingest("one-segment", "b1", 1000)
	ingest("one-segment", "b2", 100)
	ingest("two-segments", "b1", 1000)
	testlake.Publish(t, store)
	ingest("two-segments", "b2", 100)
	testlake.Publish(t, store)
	s := start(t, store, lookup.Options{})
	var got domainAnswer
	if status := s.get("/v1/domain/example.com", &got); status != 200 {
		t.Fatal(status)
	}
	want := []datasetOf{
		{1, "fits", 1024, ptr(1024 * raw.MaxSize), false, nil, nil},
		{2, "one-batch", 1025, nil, true, nil, nil},
		{3, "one-segment", 1100, nil, true, nil, nil},
		{4, "two-segments", 1100, nil, true, nil, nil},
	}
	if diff := cmp.Diff(want, got.Datasets); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
