package keysort

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/segment"
)

// A Sorter is a stable sort, whatever its memory and whoever chose the keys.
func TestSorterIsStable(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	type value struct {
		Key segment.Key
		Val string
	}
	for name, keyOf := range map[string]func(i, n int) segment.Key{
		"spread":        func(i, n int) segment.Key { return segment.Key{ID: rng.Uint64(), Check: rng.Uint32()} },
		"repeated":      func(i, n int) segment.Key { return segment.KeyOf(fmt.Sprint(rng.IntN(1 + n/3))) },
		"one id":        func(i, n int) segment.Key { return segment.Key{ID: 42, Check: rng.Uint32()} },
		"one key":       func(i, n int) segment.Key { return segment.Key{ID: 42, Check: 42} },
		"descending":    func(i, n int) segment.Key { return segment.Key{ID: uint64(n - i), Check: 1} },
		"low bits":      func(i, n int) segment.Key { return segment.Key{ID: rng.Uint64() >> 40, Check: rng.Uint32() >> 28} },
		"last bit only": func(i, n int) segment.Key { return segment.Key{ID: 7, Check: rng.Uint32() & 1} },
	} {
		for _, n := range []int{0, 1, 5, 1500} {
			var want []value
			for i := range n {
				want = append(want, value{keyOf(i, n), fmt.Sprint(i, strings.Repeat("x", rng.IntN(40)))})
			}
			sorted := slices.Clone(want)
			slices.SortStableFunc(sorted, func(a, b value) int { return segment.CompareKeys(a.Key, b.Key) })
			for _, memory := range []int{100, 20_000, 1 << 20} {
				for _, width := range []uint{0, 8} {
					sorter := newSorter(t.TempDir(), memory, 0, width)
					sorter.limit = int64(memory)
					for _, v := range want {
						if err := sorter.Add(v.Key, []byte(v.Val)); err != nil {
							t.Fatal(err)
						}
					}
					var got []value
					for i := range sorter.Len() {
						err := sorter.Each(context.Background(), i, func(s *Values) error {
							for n := range s.Len() {
								k, v := s.At(n)
								got = append(got, value{k, string(v)})
							}
							return nil
						})
						if err != nil {
							t.Fatal(err)
						}
					}
					sorter.Close()
					if d := cmp.Diff(sorted, got); d != "" {
						t.Fatalf("%s: %d values, %d bytes of memory, %d bits (-want +got): %s", name, n, memory, width, d)
					}
				}
			}
		}
	}
}

// BenchmarkPartitions adds a million values, of one or a few postings each, to as many partitions
// as five million values have.
func BenchmarkPartitions(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	var keys []segment.Key
	var vals [][]byte
	for range 1 << 20 {
		keys = append(keys, segment.Key{ID: rng.Uint64(), Check: rng.Uint32()})
		n := 1
		for rng.IntN(2) == 0 {
			n++
		}
		vals = append(vals, make([]byte, n*copyStep))
	}
	var free [][]byte
	for b.Loop() {
		sorter := New("", 1<<30, 200<<20/valueBytes, 0)
		sorter.free = free
		for i, k := range keys {
			if err := sorter.Add(k, vals[i]); err != nil {
				b.Fatal(err)
			}
		}
		free = sorter.free
		for i := range sorter.partitions {
			for _, c := range append(sorter.partitions[i].chunks, sorter.partitions[i].open) {
				if cap(c) == chunkBytes {
					free = append(free, c[:0])
				}
			}
		}
		sorter.Close()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(keys)), "ns/value")
}
