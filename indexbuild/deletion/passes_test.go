package deletion_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/deletion"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/lakecheck"
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
	m, _, err := catalog.ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	v, err := catalog.ReadVersion(t.Context(), store, m.Versions[len(m.Versions)-1])
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

// TestTotalsOfWhatIsLeft compares the table of batches of a union that die with sums of the
// records, in one pass and in many.
func TestTotalsOfWhatIsLeft(t *testing.T) {
	store := blob.NewMemory()
	rng := rand.New(rand.NewPCG(8, 8))
	batches := make([][]testlake.Record, 6)
	for i := range batches {
		for n := range 200 {
			r := testlake.Record{URL: fmt.Sprintf("http://www.d%d.example/%d/%d", rng.IntN(60), i, n)}
			if r.HasTS = rng.IntN(3) > 0; r.HasTS {
				r.TS = rng.Int64N(1e12)
			}
			if r.HasSize = rng.IntN(3) > 0; r.HasSize {
				r.Size = rng.Int64N(1e6)
			}
			batches[i] = append(batches[i], r)
		}
		testlake.Ingest(t, store, "alpha", fmt.Sprint("b", i), batches[i])
	}
	testlake.Publish(t, store)
	if _, err := publish.CompactAll(t.Context(), store, testlake.Run(), publish.Compaction{Full: true}, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	state, err := catalog.Look(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	s := state.Current.Segments[0]
	var dying []deletion.Batch
	want := map[segment.Key]segment.Totals{} // of domains that lose rows
	for b, err := range state.Current.BatchesIn(t.Context(), s.ID) {
		if err != nil {
			t.Fatal(err)
		}
		if b.Union == "" {
			t.Fatalf("batch %s is in no union", b.Batch)
		}
		if b.Batch == "b1" || b.Batch == "b4" {
			dying = append(dying, deletion.Batch{Stored: lakecheck.StoredRef(b), Member: b.Batch, Rows: b.Rows})
		}
	}
	key := func(r *testlake.Record) segment.Key {
		host, _, _ := strings.Cut(strings.TrimPrefix(r.URL, "http://www."), "/")
		return segment.KeyOf(host)
	}
	for _, i := range []int{1, 4} {
		for n := range batches[i] {
			want[key(&batches[i][n])] = segment.Totals{}
		}
	}
	for _, i := range []int{0, 2, 3, 5} {
		for n := range batches[i] {
			r := &batches[i][n]
			if sum, ok := want[key(r)]; ok {
				one := segment.Totals{Rows: 1, HasTS: r.HasTS, HasSize: r.HasSize, Size: r.Size}
				if one.HasTS {
					one.FirstTS, one.LastTS = r.TS, r.TS
				}
				sum.Add(one)
				want[key(r)] = sum
			}
		}
	}
	for _, domains := range []int64{3, 50, 1 << 20} {
		dead, err := deletion.OfBatchesIn(t.Context(), store, &s, dying, domains)
		if err != nil || dead.Rows != 400 {
			t.Fatalf("%+v, %v", dead, err)
		}
		table, err := deletion.Open(t.Context(), store, dead.Table, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := map[segment.Key]segment.Totals{}
		for e, err := range table.All(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			got[e.Key] = e.Totals
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d domains at once: %s", domains, diff)
		}
	}
}
