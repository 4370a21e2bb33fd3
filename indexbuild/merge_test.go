package indexbuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/keysort"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
)

// domainRecord is a record of a domain.
type domainRecord struct {
	name string
	postings.Record
}

// oneRow returns the record of a domain with one row in a file.
func oneRow(name string, file uint32) domainRecord {
	return domainRecord{name, postings.Record{
		Totals: segment.Totals{Rows: 1}, Tuples: []segment.Tuple{{FileID: file, Rows: 1}},
	}}
}

// listSource yields records in blocks of a few.
type listSource struct {
	list   []domainRecord
	rng    *rand.Rand // of this source alone, because each source is loaded by a goroutine of its own
	writer postings.BlockWriter
}

func (s *listSource) Load(_ context.Context, buf []byte) ([]byte, error) {
	if len(s.list) == 0 {
		return nil, nil
	}
	some := s.list[:min(1+s.rng.IntN(7), len(s.list))]
	s.list = s.list[len(some):]
	buf = buf[:0]
	for _, r := range some {
		var err error
		if buf, err = s.writer.Append(buf, []byte(r.name), r.Append(nil)); err != nil {
			return nil, err
		}
	}
	return s.writer.End(buf), nil
}

// decodeRecords decodes the records of a domain.
func decodeRecords(encoded []byte) (all []postings.Record, err error) {
	for len(encoded) > 0 {
		var r postings.Record
		n := postings.RecordLen(encoded)
		if err := r.Decode(encoded[:n]); err != nil {
			return nil, err
		}
		all = append(all, r)
		encoded = encoded[n:]
	}
	return all, nil
}

// datasetsOfTen returns the datasets of files: ten files in each dataset.
func datasetsOfTen(files int) (datasets []uint32) {
	for i := range files {
		datasets = append(datasets, uint32(i/10))
	}
	return datasets
}

// datasetsOfOne returns the datasets of files: one file in each dataset.
func datasetsOfOne(files int) (datasets []uint32) {
	for i := range files {
		datasets = append(datasets, uint32(i))
	}
	return datasets
}

// A merge yields what a map of all records holds.
func TestMerge(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 5))
		want := map[string]map[uint32]postings.Record{}
		var sources []domainSource
		ff := strings.Repeat("\xff", 8)
		prefixes := []string{"", "a", "aaaaaaaaa", "aaaaaaaab", "b\x00", "b", ff, ff + "\xff"}
		for dataset := range uint32(1 + rng.IntN(6)) {
			for part := range 1 + rng.IntN(3) {
				names := map[string]bool{}
				for range rng.IntN(40) {
					names[prefixes[rng.IntN(len(prefixes))]+fmt.Sprint(rng.IntN(20))] = true
				}
				src := &listSource{rng: rand.New(rand.NewPCG(seed, uint64(len(sources))))}
				for _, name := range slices.Sorted(maps.Keys(names)) {
					r := domainRecord{name: name}
					r.Totals.Rows = 1 + rng.Int64N(5)
					r.Tuples = []segment.Tuple{
						{FileID: 10*dataset + uint32(part), RowGroup: rng.Uint32N(3), Rows: r.Totals.Rows},
					}
					switch rng.IntN(4) { // the first three are not plain
					case 0:
						r.Totals.HasSize, r.Totals.Size = true, rng.Int64N(1000)
					case 1:
						r.Totals.HasTS, r.Totals.FirstTS, r.Totals.LastTS = true, -5, rng.Int64N(1000)
					case 2:
						r.Tuples[0].FirstRow = 1 << 40
					}
					src.list = append(src.list, r)
					all := want[name][dataset]
					all.Totals.Add(r.Totals)
					all.Tuples = append(slices.Clone(all.Tuples), r.Tuples...)
					if want[name] == nil {
						want[name] = map[uint32]postings.Record{}
					}
					want[name][dataset] = all
				}
				sources = append(sources, src)
			}
		}
		got := map[string]map[uint32]postings.Record{}
		last := ""
		spool, err := keysort.NewSpool(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if seed%2 == 1 { // merge to spooled lists first, whose domains have several datasets
			var lists []domainSource
			for group := range slices.Chunk(sources, 3) {
				list := &spooledList{spool: spool}
				err := mergeWindows(context.Background(), group, datasetsOfTen(60), nil, 1+rng.IntN(500), list.append)
				if err != nil {
					t.Fatal(err)
				}
				lists = append(lists, list)
			}
			sources = lists
		}
		size := 1 + rng.IntN(500)
		err = mergeWindows(context.Background(), sources, datasetsOfTen(60), postings.DomainKey, size, func(w *window) error {
			from := uint32(0)
			for i := range w.ends {
				name := string(w.domain(i))
				if name <= last {
					t.Fatalf("%q after %q", name, last)
				}
				last = name
				if w.keys[i] != segment.KeyOf(name) {
					t.Fatalf("key %+v of %q, want %+v", w.keys[i], name, segment.KeyOf(name))
				}
				got[name] = map[uint32]postings.Record{}
				var sets []uint32
				records, err := decodeRecords(w.recordsOf(i))
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range records {
					dataset := r.Tuples[0].FileID / 10
					got[name][dataset] = r
					sets = append(sets, dataset)
				}
				if !slices.Equal(sets, w.sets[from:w.setEnds[i]]) || !slices.IsSorted(sets) {
					t.Fatalf("datasets %v of %q, records of %v", w.sets[from:w.setEnds[i]], name, sets)
				}
				from = w.setEnds[i]
			}
			return nil
		})
		spool.Close()
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, d)
		}
	}
}

// Whatever the domains are, a merge has them in the order of their bytes, and the records of equal
// ones in that of the sources.
func FuzzMerge(f *testing.F) {
	f.Add([]byte("a.com\nab.com\n\nabcd\nabcde\na.com\n\nabcd\x00\nabcd\n\n\xff\xff\xff\xff\xff\n\xff\xff\xff\xff"))
	f.Add(bytes.Repeat([]byte("abcdefgh\nabcdefgi\nabcdefghi\n\n"), 7))
	f.Fuzz(func(t *testing.T, data []byte) {
		want := map[string][]uint32{}
		var sources []domainSource
		for i, list := range bytes.SplitN(data, []byte("\n\n"), 40) {
			src := &listSource{rng: rand.New(rand.NewPCG(1, uint64(i)))}
			names := strings.Split(string(list), "\n")
			slices.Sort(names)
			for _, name := range slices.Compact(names) {
				if name == "" || len(name) > segment.MaxDomain {
					continue
				}
				want[name] = append(want[name], uint32(i))
				src.list = append(src.list, oneRow(name, uint32(i)))
			}
			sources = append(sources, src)
		}
		names, sets, err := mergeNames(sources, datasetsOfOne(len(sources)))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(slices.Sorted(maps.Keys(want)), names); d != "" {
			t.Fatal(d)
		}
		if d := cmp.Diff(want, sets); d != "" {
			t.Fatal(d)
		}
	})
}

// mergeNames merges sources and returns the domains, and the datasets of each.
func mergeNames(sources []domainSource, datasets []uint32) (names []string, sets map[string][]uint32, err error) {
	sets = map[string][]uint32{}
	err = mergeWindows(context.Background(), sources, datasets, nil, 64, func(w *window) error {
		from := uint32(0)
		for i := range w.ends {
			name := string(w.domain(i))
			names = append(names, name)
			sets[name] = slices.Clone(w.sets[from:w.setEnds[i]])
			from = w.setEnds[i]
		}
		return nil
	})
	return names, sets, err
}

// codeDomain returns a domain of few different bytes, zero and 0xff among them. It often has the
// length of whole columns of a code, or one more or less.
func codeDomain(rng *rand.Rand) []byte {
	const columnBytes = 6
	n := columnBytes*rng.IntN(segment.MaxDomain/columnBytes+1) + rng.IntN(3) - 1
	if rng.IntN(3) > 0 {
		n = rng.IntN(20)
	}
	b := bytes.Repeat([]byte{[]byte{0, 1, 'a', 0xfe, 0xff}[rng.IntN(5)]}, min(max(n, 1), segment.MaxDomain))
	for range rng.IntN(3) {
		b[len(b)-1-rng.IntN(min(len(b), 8))] = []byte{0, 1, 'a', 0xfe, 0xff}[rng.IntN(5)]
	}
	return b
}

// Up to as many sources as are merged at once, some without domains.
func TestMergeOfManySources(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 511, 512, 513, maxWidth - 1, maxWidth} {
		for seed := range uint64(4) {
			rng := rand.New(rand.NewPCG(uint64(n), seed))
			var pool []string
			for range 10 + rng.IntN(300) {
				pool = append(pool, string(codeDomain(rng)))
			}
			pool = append(pool, strings.Repeat("\xff", segment.MaxDomain), strings.Repeat("\xff", 6),
				strings.Repeat("\x00", segment.MaxDomain), "\x00")
			want := map[string][]uint32{}
			sources := make([]domainSource, n)
			for i := range n {
				src := &listSource{rng: rand.New(rand.NewPCG(seed, uint64(i)))}
				names := map[string]bool{}
				if i%5 != 4 || i == n-1 {
					for range 1 + rng.IntN(12) {
						names[pool[rng.IntN(len(pool))]] = true
					}
				}
				for _, name := range slices.Sorted(maps.Keys(names)) {
					want[name] = append(want[name], uint32(i))
					src.list = append(src.list, oneRow(name, uint32(i)))
				}
				sources[i] = src
			}
			names, sets, err := mergeNames(sources, datasetsOfOne(n))
			if err != nil {
				t.Fatal(err)
			}
			what := fmt.Sprintf("%d sources, seed %d", n, seed)
			if d := cmp.Diff(slices.Sorted(maps.Keys(want)), names); d != "" {
				t.Fatalf("%s: %s", what, d)
			}
			if d := cmp.Diff(want, sets); d != "" {
				t.Fatalf("%s: %s", what, d)
			}
		}
	}
}

// A merge that fails returns the cause, and a cancelled one ends.
func TestMergeEnds(t *testing.T) {
	broken := errors.New("broken")
	sources := func(end error) []domainSource {
		var all []domainSource
		for i := range 20 {
			s := &listSource{rng: rand.New(rand.NewPCG(1, uint64(i)))}
			for n := range 500 {
				s.list = append(s.list, oneRow(fmt.Sprintf("%06d", n*20+i), uint32(10*i)))
			}
			all = append(all, s)
		}
		return append(all, failingSource{end})
	}
	merge := func(ctx context.Context, end error, sink func(*window) error) error {
		return mergeWindows(ctx, sources(end), datasetsOfTen(210), postings.DomainKey, 1000, sink)
	}
	if err := merge(context.Background(), broken, func(*window) error { return nil }); !errors.Is(err, broken) {
		t.Errorf("a source that fails: %v", err)
	}
	n := 0
	if err := merge(context.Background(), nil, func(*window) error {
		if n++; n == 3 {
			return broken
		}
		return nil
	}); !errors.Is(err, broken) {
		t.Errorf("a sink that fails: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := merge(ctx, nil, func(*window) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

type failingSource struct{ err error }

func (f failingSource) Load(context.Context, []byte) ([]byte, error) { return nil, f.err }
