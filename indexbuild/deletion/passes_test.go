package deletion_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/deletion"
	"github.com/urlake/urlake/indexbuild/lakecheck"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/manifest"
)

// The table has the same bytes in however many passes it is made, and whether batches die
// together or one after the other.
func TestSameTableInPasses(t *testing.T) {
	store := blob.NewMemory()
	for i := range 4 {
		var records []testlake.Record
		for n := range 300 {
			records = append(records, testlake.Record{URL: fmt.Sprintf("http://www.d%d.example/%d/%d", n%97, i, n)})
		}
		testlake.Ingest(t, store, "alpha", fmt.Sprint("b", i), records)
	}
	testlake.Publish(t, store)
	m, _, err := manifest.Read(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	v, err := manifest.ReadVersion(t.Context(), store, m.Versions[len(m.Versions)-1])
	if err != nil {
		t.Fatal(err)
	}
	s := v.Segments[0]
	var dying []deletion.Batch
	for b, err := range v.BatchesIn(t.Context(), s.ID) {
		if err != nil {
			t.Fatal(err)
		}
		dying = append(dying, deletion.Batch{Stored: lakecheck.StoredRef(b), Rows: b.Rows})
	}
	want, err := deletion.OfBatches(t.Context(), store, &s, dying[1:3])
	if err != nil || want.Rows != 600 {
		t.Fatalf("%+v, %v", want, err)
	}
	for _, domains := range []int64{1, 7, 100, 599, 600} {
		got, err := deletion.OfBatchesIn(t.Context(), store, &s, dying[1:3], domains)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d domains at once: %s", domains, diff)
		}
		one, err := deletion.OfBatchesIn(t.Context(), store, &s, dying[2:3], domains)
		if err != nil {
			t.Fatal(err)
		}
		again := s
		again.Dead = &one
		if got, err = deletion.OfBatchesIn(t.Context(), store, &again, dying[1:2], domains); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("one after the other, %d domains at once: %s", domains, diff)
		}
	}
	// A batch that is dead cannot die again.
	again := s
	again.Dead = &want
	if got, err := deletion.OfBatches(t.Context(), store, &again, dying[1:2]); err == nil {
		t.Errorf("a batch died twice: %+v", got)
	}
}
