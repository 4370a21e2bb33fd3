package publish_test

import (
	"fmt"
	"testing"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/publish"
)

// A publish and a compaction of more rows than a segment may have make several segments, and no
// compaction merges those into a larger one. A batch is in one segment, however large it is.
func TestSegmentsHaveALargestSize(t *testing.T) {
	defer func(n int64) { publish.MaxSegmentRows = n }(publish.MaxSegmentRows)
	publish.MaxSegmentRows = 40
	store := blob.NewMemory()
	rows := map[string]int64{}
	add := func(dataset string, n int) {
		for _, batch := range []string{"b1", "b2", "b3"} {
			testlake.Ingest(t, store, dataset, batch, records(dataset+batch, n))
			rows[dataset+batch] = int64(n)
		}
	}
	check := func(when string, segments int) {
		t.Helper()
		v := current(t, store)
		if len(v.Segments) != segments {
			t.Errorf("%s: %d segments, want %d", when, len(v.Segments), segments)
		}
		for _, s := range v.Segments {
			if s.Rows > publish.MaxSegmentRows && v.CountIn(s.ID) > 1 {
				t.Errorf("%s: a segment of %d batches has %d rows", when, v.CountIn(s.ID), s.Rows)
			}
		}
		found := 0
		for b, err := range v.Batches(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			found++
			if name := []string{"alpha", "beta", "gamma"}[b.DatasetID-1] + b.Batch; b.Rows != rows[name] {
				t.Errorf("%s: %s has %d rows, want %d", when, name, b.Rows, rows[name])
			}
		}
		if r := checkLake(t, store); found != len(rows) || len(r.Problems) > 0 {
			t.Errorf("%s: %d batches, want %d; %q", when, found, len(rows), r.Problems)
		}
	}
	add("alpha", 15) // two in a segment
	add("beta", 45)  // each by itself
	testlake.Publish(t, store)
	check("published", 5)
	for i := range 3 * publish.TargetSegments {
		testlake.Ingest(t, store, "gamma", fmt.Sprintf("b%03d", i), records(fmt.Sprint(i), 3))
		rows[fmt.Sprintf("gammab%03d", i)] = 3
		testlake.Publish(t, store)
		if _, err := publish.CompactAll(t.Context(), store, "compact", publish.Compaction{}, t.TempDir()); err != nil {
			t.Fatal(err)
		}
		if n := len(current(t, store).Segments); n > 5+publish.TargetSegments+1 {
			t.Fatalf("%d segments after %d publishes", n, i)
		}
	}
	full := func() string {
		t.Helper()
		done, err := publish.CompactAll(t.Context(), store, "compact", publish.Compaction{Full: true}, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		return done.Version
	}
	before := len(current(t, store).Segments)
	first := full()
	if n := len(current(t, store).Segments); n >= before {
		t.Errorf("%d segments after a full compaction of %d", n, before)
	}
	check("compacted", len(current(t, store).Segments))
	if second := full(); second != first {
		t.Errorf("a second full compaction made version %s of %s", second, first)
	}
}
