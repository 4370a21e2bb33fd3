package publish

import (
	"fmt"
	"slices"
	"testing"

	"github.com/urlake/urlake/lake/manifest"
)

// A thousand publishes of 100,000 rows go into lakes of several sizes. Most build only their own
// rows, and on average a row is built at most seven times, whatever the size of the lake.
func TestCompactionIsCheap(t *testing.T) {
	for _, before := range []int64{0, 1e6, 1e7, 1e8, 1e9} {
		base := &manifest.Version{ID: "v"}
		publishes := 0
		add := func(rows int64) (built int64) {
			publishes++
			p := &plan{Replaces: []string{}, Batches: []planned{
				{DatasetID: 1, Batch: fmt.Sprintf("b%05d", publishes), Rows: rows, New: true},
			}}
			p.compact(base, nil)
			replaced := func(segment string) bool { return slices.Contains(p.Replaces, segment) }
			next := &manifest.Version{ID: "v"}
			next.Segments = slices.DeleteFunc(slices.Clone(base.Segments), func(s manifest.Segment) bool { return replaced(s.ID) })
			next.Batches = slices.DeleteFunc(slices.Clone(base.Batches), func(b manifest.Batch) bool { return replaced(b.Segment) })
			id := fmt.Sprintf("s%05d", publishes)
			for _, b := range p.Batches {
				built += b.Rows
				next.Batches = append(next.Batches, manifest.Batch{DatasetID: 1, Batch: b.Batch, Rows: b.Rows, Segment: id})
			}
			next.Segments = append(next.Segments, manifest.Segment{ID: id, Rows: built})
			if len(next.Segments) > TargetSegments || len(next.Batches) != publishes {
				t.Fatalf("%d segments, %d batches after %d publishes", len(next.Segments), len(next.Batches), publishes)
			}
			base = next
			return built
		}
		if before > 0 {
			add(before)
		}
		const n, rows = 1000, 100_000
		var all []int64
		sum := int64(0)
		for range n {
			built := add(rows)
			all = append(all, built)
			sum += built
		}
		slices.Sort(all)
		t.Logf("lake of %d rows: rows built for each new one: mean %.1f, median %d, 90th percentile %d, maximum %d", before,
			float64(sum)/(n*rows), all[n/2]/rows, all[n*9/10]/rows, all[n-1]/rows)
		if all[n/2] != rows || sum > 7*n*rows {
			t.Errorf("lake of %d rows: median %d, sum %d", before, all[n/2], sum)
		}
	}
}
