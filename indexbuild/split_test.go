package indexbuild

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/part"
)

const splitDir = "staging/run/build/"

// buildInRanges builds a segment by the tasks of a split. Those of one step are run in a random
// order, some of them twice, and several at once.
func buildInRanges(ctx context.Context, store blob.Store, batches []segment.BatchRef, opt Options) (segment.Ref, error) {
	split, err := SplitSegment(ctx, store, batches, splitDir, opt)
	if err != nil {
		return segment.Ref{}, err
	}
	if split.Merges == 0 {
		return segment.Ref{}, errors.New("no ranges")
	}
	all := func(n int, task func(i int) error) error {
		order := append(rand.Perm(n), rand.IntN(n))
		errs := make([]error, len(order))
		var wg sync.WaitGroup
		for at, i := range order {
			wg.Add(1)
			go func() {
				defer wg.Done()
				errs[at] = task(i)
			}()
			if at%3 > 0 {
				wg.Wait()
			}
		}
		wg.Wait()
		return errors.Join(errs...)
	}
	if err := all(split.Merges, func(i int) error { return MergeRange(ctx, store, split, i, opt) }); err != nil {
		return segment.Ref{}, err
	}
	if err := all(split.Writes, func(i int) error { return WriteRange(ctx, store, split, i, opt) }); err != nil {
		return segment.Ref{}, err
	}
	return FinishSegment(ctx, store, split, opt)
}

func deleteAll(tb testing.TB, store blob.Store, prefix string) {
	tb.Helper()
	for info, err := range store.List(context.Background(), prefix) {
		if err != nil {
			tb.Fatal(err)
		}
		if err := store.Delete(context.Background(), info.Key); err != nil {
			tb.Fatal(err)
		}
	}
}

// A build in any number of ranges gives the bytes of a build in one piece.
func TestRangesGiveTheSameBytes(t *testing.T) {
	for seed := range uint64(5) {
		limits := indextest.TinyParts
		if seed%3 == 0 {
			limits = part.Limits{}
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			l := indextest.RandomLake(t, seed, limits)
			names := slices.Collect(func(yield func(string) bool) {
				for d := range l.Totals() {
					if !yield(d) {
						return
					}
				}
			})
			opt := Options{TempDir: t.TempDir(), Memory: 5000}
			if seed%2 == 1 {
				// Domains share ids: these go to the side table of the perfect hash.
				opt.KeyOf = func(d []byte) segment.Key {
					k := segment.KeyOf(string(d))
					k.ID &^= 0x3f << 50
					k.ID &= 0x7f<<56 | 3
					return k
				}
			}
			ref := mustBuild(t, l.Store, l.Batches, opt)
			want := indextest.SegmentObjects(t, l.Store, ref.ID)
			for _, ranges := range []int{1, 2, 3, 8, len(names), 3 * len(names)} {
				deleteAll(t, l.Store, segment.Prefix(ref.ID))
				deleteAll(t, l.Store, splitDir)
				opt.Ranges = ranges
				got, err := buildInRanges(t.Context(), l.Store, l.Batches, opt)
				if err != nil {
					t.Fatal(err)
				}
				if got != ref {
					t.Errorf("%d ranges: reference %+v, want %+v", ranges, got, ref)
				}
				if d := cmp.Diff(want, indextest.SegmentObjects(t, l.Store, ref.ID)); d != "" {
					t.Errorf("%d ranges: the segment has other bytes", ranges)
				}
			}
		})
	}
}
