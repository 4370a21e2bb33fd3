package publish

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/manifest"
)

// A thousand publishes of 100,000 rows go into lakes of several sizes. Most build only their own
// rows, and on average a row is built at most seven times, whatever the size of the lake.
func TestCompactionIsCheap(t *testing.T) {
	t.Parallel()
	for _, before := range []int64{0, 1e6, 1e7, 1e8, 1e9} {
		t.Run(fmt.Sprintf("%d rows", before), func(t *testing.T) {
			t.Parallel()
			compactionIsCheap(t, before)
		})
	}
}

// compactionIsCheap publishes into a lake that had rows before.
func compactionIsCheap(t *testing.T, before int64) {
	store := blob.NewMemory()
	publishes := 0
	add := func(rows int64) (built int64) {
		publishes++
		id := lake.Digest(fmt.Append(nil, publishes))
		commit := manifest.Commit{ID: id, Build: func(ctx context.Context, base *manifest.Version) (*manifest.Next, error) {
			p := &plan{CanonicalForm: "form", PublicSuffix: "list", Replaces: []string{}, Batches: []planned{
				{DatasetID: 1, Batch: fmt.Sprintf("b%05d", publishes), Digest: id, Rows: rows, New: true},
			}, Datasets: []lake.Dataset{{ID: 1, Name: "d"}}}
			if base != nil {
				p.Base = base.ID
			}
			if err := p.compact(ctx, base, nil); err != nil {
				return nil, err
			}
			for _, b := range p.Batches {
				built += b.Rows
			}
			return p.after(ctx, base, &Built{Segment: segment.Ref{ID: id, XXH64: id[:16], Rows: built}})
		}}
		if _, err := commit.Apply(t.Context(), store); err != nil {
			t.Fatal(err)
		}
		v, err := currentVersion(t.Context(), store)
		if err != nil || len(v.Segments) > TargetSegments || v.Counts.Batches != publishes {
			t.Fatalf("%+v after %d publishes, %v", v, publishes, err)
		}
		return built
	}
	if before > 0 {
		add(before)
	}
	const rows = 100_000
	n := int64(1000 / testenv.Every(5))
	var all []int64
	sum := int64(0)
	for range n {
		built := add(rows)
		all = append(all, built)
		sum += built
	}
	slices.Sort(all)
	t.Logf("lake of %d rows: rows built for each new one: mean %.1f, median %d, 90th percentile %d, maximum %d", before,
		float64(sum)/float64(n*rows), all[n/2]/rows, all[n*9/10]/rows, all[n-1]/rows)
	if all[n/2] != rows || sum > 7*n*rows {
		t.Errorf("lake of %d rows: median %d, sum %d", before, all[n/2], sum)
	}
}
