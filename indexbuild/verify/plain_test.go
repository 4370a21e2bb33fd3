package verify

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/blob"
)

// Plain blocks have the entries of their frames, in columns.
func TestPlainBlocksHaveAllEntries(t *testing.T) {
	for _, totals := range []bool{false, true} {
		blocks, others := readBothWays(t, totals)
		if (blocks > 10) == totals || (others > 0) != totals {
			t.Errorf("totals %v: %d plain blocks, %d runs with other entries", totals, blocks, others)
		}
	}
}

// readBothWays reads a segment as entries and as plain blocks, and compares them. It returns the
// number of plain blocks, and of runs with entries in other blocks.
func readBothWays(t *testing.T, totals bool) (blocks, others int) {
	ctx := context.Background()
	store := blob.NewMemory()
	ref := mustBuild(t, store, indextest.SyntheticLake(t, store, 60_000, 6, 100_000, totals), indexbuild.Options{SkipPageKeys: true})
	s, err := segment.Open(ctx, store, ref, segment.Options{CacheDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, r := range s.PostingsRuns(0) {
		for lo := r[0]; lo < r[1]; lo += 3 {
			hi := min(lo+3, r[1])
			var run, columns segment.PostingsRun
			if err := s.ReadPostings(ctx, 0, lo, hi, &run, nil); err != nil {
				t.Fatal(err)
			}
			var got []segment.Entry
			if err := s.ReadPostings(ctx, 0, lo, hi, &columns, func(b *segment.PlainBlock) {
				blocks++
				domain, starts := 0, b.Starts(nil)
				for i, file := range b.FileIndexes {
					if i == int(starts[domain+1]) {
						domain++
					}
					got = append(got, segment.Entry{
						Key: b.Keys[domain], Dataset: b.Datasets[file], Totals: segment.Totals{Rows: b.Rows[i]}, Inline: true,
						First: segment.Tuple{
							FileID: b.FileIDs[file], RowGroup: uint32(b.Groups[i]), FirstRow: b.Firsts[i], Rows: b.Rows[i],
						},
					})
				}
			}); err != nil {
				t.Fatal(err)
			}
			if len(columns.Entries) > 0 {
				others++
				got = columns.Entries
			}
			if !slices.Equal(got, run.Entries) {
				t.Fatalf("frames %d to %d: %d entries in plain blocks differ from %d",
					lo, hi, len(got), len(run.Entries))
			}
			var end, endColumns segment.PostingsEnd
			if err := errors.Join(s.Follow(0, &run, &end), s.Follow(0, &columns, &endColumns)); err != nil && lo == 0 {
				t.Fatal(err)
			}
			if end != endColumns {
				t.Errorf("frames %d to %d end at %+v, as plain blocks at %+v", lo, hi, end, endColumns)
			}
		}
	}
	return blocks, others
}

// plainBlock finds the same as entryRange, in valid and invalid blocks.
func TestPlainBlockIsEntryRange(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		v := &verifier{ctx: context.Background(), info: &segment.Info{}}
		number := 0
		for range 4 {
			var groups []rowGroup
			for range rng.IntN(3) {
				groups = append(groups, rowGroup{rows: 1 + rng.Int64N(50), number: number})
				number++
			}
			v.groups = append(v.groups, groups)
		}
		v.partial.pages = rng.IntN(10) == 0
		var want, got entryRange
		var run segment.PostingsRun
		var p plainRange
		tilings, plainTilings := make([]tiling, number), make([]tiling, number)
		id := uint64(0)
		for range 1 + rng.IntN(3) {
			b := segment.PlainBlock{FileIDs: []uint32{0, 1, 3, 9}, Datasets: []uint32{1, 1, 2, 3}}
			for range 1 + rng.IntN(6) {
				id += rng.Uint64N(2)
				k, file := segment.Key{ID: id, Check: 7}, rng.IntN(4)
				tuple := segment.Tuple{
					FileID: b.FileIDs[file], RowGroup: uint32(rng.IntN(3)), FirstRow: rng.Int64N(40), Rows: 1 + rng.Int64N(20),
				}
				b.Keys = append(b.Keys, k)
				b.FileIndexes, b.Rows = append(b.FileIndexes, int64(file)), append(b.Rows, tuple.Rows)
				b.Groups, b.Firsts = append(b.Groups, int64(tuple.RowGroup)), append(b.Firsts, tuple.FirstRow)
				run.Entries = append(run.Entries, segment.Entry{
					Key: k, Dataset: b.Datasets[file], Totals: segment.Totals{Rows: tuple.Rows}, First: tuple, Inline: true,
				})
			}
			v.plainBlock(&got, &p, &b, 0, plainTilings)
		}
		got.endRange(p.open)
		want.run = &run
		if err := v.entryRange(v.ctx, &want, 0, nil, tilings); err != nil {
			t.Fatal(err)
		}
		want.run = nil
		if !reflect.DeepEqual(want, got) || !slices.Equal(tilings, plainTilings) {
			t.Fatalf("blocks %+v %v, entries %+v %v", got, plainTilings, want, tilings)
		}
	}
}

func mustBuild(tb testing.TB, store blob.Store, batches []segment.BatchRef, opt indexbuild.Options) segment.Ref {
	tb.Helper()
	if opt.TempDir == "" {
		opt.TempDir = tb.TempDir()
	}
	ref, err := indexbuild.BuildSegment(context.Background(), store, batches, opt)
	if err != nil {
		tb.Fatal(err)
	}
	left, err := os.ReadDir(opt.TempDir)
	if err != nil {
		tb.Fatal(err)
	}
	if len(left) > 0 {
		tb.Errorf("temporary files left: %v", left)
	}
	return ref
}
