package indexbuild

import (
	"context"
	"testing"
	"time"

	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/blob"
)

// BenchmarkBuildInRanges builds a segment in ranges and reports how long its longest chain of tasks is.
func BenchmarkBuildInRanges(b *testing.B) {
	ctx := context.Background()
	store, err := blob.Open(ctx, "file://"+b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	pairs := indextest.BenchPairs(b)
	refs := indextest.SyntheticLake(b, store, pairs/2, 20, pairs, false)
	for _, ranges := range []int{8} {
		opt := Options{TempDir: b.TempDir(), Ranges: ranges}
		for range 4 {
			cpu, t0 := indextest.ProcessorTime(b), time.Now()
			lap := func(what string) {
				c := indextest.ProcessorTime(b)
				b.Logf("%d %s: %v, processor %v", ranges, what, time.Since(t0).Round(time.Millisecond), (c - cpu).Round(time.Millisecond))
				cpu, t0 = c, time.Now()
			}
			if ranges == 0 {
				ref, err := BuildSegment(ctx, store, refs, opt)
				if err != nil {
					b.Fatal(err)
				}
				lap("one")
				info, _ := segment.ReadInfo(ctx, store, ref)
				b.Log(info.Entries, info.Domains, info.ShardBits)
				continue
			}
			split, err := SplitSegment(ctx, store, refs, "staging/x/", opt)
			if err != nil {
				b.Fatal(err)
			}
			lap("split")
			for i := range split.Merges {
				if err := MergeRange(ctx, store, split, i, opt); err != nil {
					b.Fatal(err)
				}
				lap("merge")
			}
			for i := range split.Writes {
				if err := WriteRange(ctx, store, split, i, opt); err != nil {
					b.Fatal(err)
				}
				lap("write")
			}
			if _, err := FinishSegment(ctx, store, split, opt); err != nil {
				b.Fatal(err)
			}
			lap("finish")
			for info := range store.List(ctx, "staging/x/") {
				_ = store.Delete(ctx, info.Key)
			}
		}
	}
}
