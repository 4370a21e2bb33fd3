package segment

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/urlake/urlake/lake/blob"
)

// TestRangesAreReadInWindows asks for the entries of all domains, and of some that are far apart,
// in a segment whose postings have more frames than a window. The rounds of reads are those of the
// windows, whatever shards the domains are in.
func TestRangesAreReadInWindows(t *testing.T) {
	const domains, datasets = 400, 500
	rng := rand.New(rand.NewPCG(5, 6))
	m := &model{domains: map[string]map[uint32]*Posting{}, keyOf: KeyOf}
	var keys []Key
	for i := range domains {
		keys = append(keys, KeyOf(fmt.Sprintf("%d.example", i)))
	}
	for id := range datasets {
		rows := int64(0)
		for i := range domains {
			n := 1 + rng.Int64N(3)
			sum := Totals{Rows: n, Size: rng.Int64N(1e12), HasSize: true, FirstTS: rng.Int64N(1e9), LastTS: 1e12 + rng.Int64N(1e12), HasTS: true}
			m.add(fmt.Sprintf("%d.example", i), uint32(id+1), sum, []Tuple{{FileID: uint32(id), FirstRow: rows, Rows: n}})
			rows += n
		}
		m.files = append(m.files, FileInfo{DatasetID: uint32(id + 1), DomainPrefix: "any", Path: fmt.Sprint("urls/", id), Batch: "b", Rows: rows})
		m.groups = append(m.groups, []int64{rows})
	}
	slices.SortFunc(keys, CompareKeys)
	store := blob.NewMemory()
	s := mustOpen(t, store, m.write(t, store, 2), Options{})
	frames := 0
	for i := range s.shards {
		h := &s.shards[i]
		frames += h.idx.Len()
		read := h.idx.read
		h.idx.read = func(ctx context.Context, off, n int64) ([]byte, error) {
			time.Sleep(time.Second)
			return read(ctx, off, n)
		}
	}
	if len(s.shards) < 4 || frames < 3*windowFrames {
		t.Fatalf("%d shards, %d frames", len(s.shards), frames)
	}
	all := func(first, last uint32, step int) (ranges []EntryRange) {
		for i := 0; i < len(keys); i += step {
			ranges = append(ranges, EntryRange{keys[i], first, last})
		}
		return ranges
	}
	for _, c := range []struct {
		name   string
		ranges []EntryRange
		most   int // rounds
	}{
		{"all", all(1, datasets, 1), frames/windowFrames + 1},
		{"one dataset of each", all(77, 77, 1), domains/windowFrames + 1},
		{"some", all(400, 420, 8), (domains/8 + rangeReads - 1) / rangeReads},
		{"one", all(3, 3, domains), 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			started := time.Now()
			var got [][]Entry
			err := s.EntryRanges(t.Context(), c.ranges, func(i int, entries []Entry) error {
				if i != len(got) {
					return fmt.Errorf("range %d after %d", i, len(got))
				}
				got = append(got, slices.Clone(entries))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if n := int(time.Since(started) / time.Second); n > c.most || n < 1 {
				t.Errorf("%s: %d rounds, want at most %d", c.name, n, c.most)
			}
			for i, r := range c.ranges {
				want, err := s.Entries(t.Context(), r.Key, r.First, int(r.Last-r.First+1))
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(want, got[i]) {
					t.Fatalf("%s, range %d: %v, want %v", c.name, i, got[i], want)
				}
			}
		})
	}
}
