package indexbuild

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/indexbuild/keysort"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

// listSource yields records, some in a block.
type listSource struct {
	list []postings.Record
	rng  *rand.Rand
	w    postings.BlockWriter
}

func (s *listSource) Load(_ context.Context, buf []byte) ([]byte, error) {
	if len(s.list) == 0 {
		return nil, nil
	}
	some := s.list[:min(1+s.rng.IntN(7), len(s.list))]
	s.list = s.list[len(some):]
	buf = buf[:0]
	for _, r := range some {
		var ok bool
		if buf, ok = s.w.Add(buf, r.Key, r.Append(nil)); !ok {
			return nil, fmt.Errorf("%q after %q", r.Key, s.w.Last)
		}
	}
	return s.w.End(buf), nil
}

// domainRecords reads the records of one domain.
func domainRecords(vals, name []byte) (all []postings.Record, err error) {
	for len(vals) > 0 {
		r := postings.Record{Key: name}
		n := postings.RecordLength(vals)
		if err := r.Read(vals[:n]); err != nil {
			return nil, err
		}
		all = append(all, r)
		vals = vals[n:]
	}
	return all, nil
}

// fileDatasets gives each ten files a dataset.
func fileDatasets(files int) (all []uint32) {
	for i := range files {
		all = append(all, uint32(i/10))
	}
	return all
}

// What comes out of a merge is what a map of all records holds.
func TestMergeIsAMapOfAllRecords(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 5))
		want := map[string]map[uint32]postings.Record{}
		var sources []domainSource
		alphabet := []string{"", "a", "aaaaaaaaa", "aaaaaaaab", "b\x00", "b", "\xff\xff\xff\xff\xff\xff\xff\xff", "\xff\xff\xff\xff\xff\xff\xff\xff\xff"}
		for dataset := range uint32(1 + rng.IntN(6)) {
			for part := range 1 + rng.IntN(3) {
				names := map[string]bool{}
				for range rng.IntN(40) {
					names[alphabet[rng.IntN(len(alphabet))]+fmt.Sprint(rng.IntN(20))] = true
				}
				src := &listSource{rng: rand.New(rand.NewPCG(seed, uint64(len(sources))))}
				for _, name := range slices.Sorted(maps.Keys(names)) {
					r := postings.Record{Key: []byte(name), Dataset: dataset, Totals: segment.Totals{Rows: 1 + rng.Int64N(5)}}
					r.Tuples = []segment.Tuple{{FileID: 10*dataset + uint32(part), RowGroup: rng.Uint32N(3), Rows: r.Totals.Rows}}
					switch rng.IntN(4) { // not plain
					case 0:
						r.Totals.HasSize, r.Totals.Size = true, rng.Int64N(1000)
					case 1:
						r.Totals.HasTS, r.Totals.FirstTS, r.Totals.LastTS = true, -5, rng.Int64N(1000)
					case 2:
						r.Tuples[0].FirstRow = 1 << 40
					}
					src.list = append(src.list, r)
					all := want[name][dataset]
					all.Key, all.Dataset = r.Key, dataset
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
		sp, err := keysort.NewSpool(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if seed%2 == 1 { // by way of a file, in which datasets are mixed
			var spooledSources []domainSource
			for group := range slices.Chunk(sources, 3) {
				out := &spooled{spool: sp}
				var list postings.BlockWriter
				err := mergeWindows(context.Background(), group, fileDatasets(60), nil, 1+rng.IntN(500), func(w *window) error {
					return out.write(&list, &w.slab)
				})
				if err != nil {
					t.Fatal(err)
				}
				spooledSources = append(spooledSources, out)
			}
			sources = spooledSources
		}
		err = mergeWindows(context.Background(), sources, fileDatasets(60), postings.DomainKey, 1+rng.IntN(500), func(w *window) error {
			from := uint32(0)
			for i := range w.ends {
				name := string(w.domain(i))
				if name <= last {
					t.Fatalf("%q after %q", name, last)
				}
				last = name
				if w.keys[i] != segment.KeyOf(name) {
					t.Fatalf("key of %q", name)
				}
				got[name] = map[uint32]postings.Record{}
				var sets []uint32
				records, err := domainRecords(w.val(i), []byte(name))
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range records {
					r.Dataset = r.Tuples[0].FileID / 10
					got[name][r.Dataset] = r
					sets = append(sets, r.Dataset)
				}
				if !slices.Equal(sets, w.sets[from:w.setEnds[i]]) || !slices.IsSorted(sets) {
					t.Fatalf("datasets %v of %q, records of %v", w.sets[from:w.setEnds[i]], name, sets)
				}
				from = w.setEnds[i]
			}
			return nil
		})
		sp.Close()
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got, cmp.AllowUnexported(postings.Record{})); d != "" {
			t.Fatalf("seed %d: %s", seed, d)
		}
	}
}

// Whatever the domains are, a merge has them in the order of their bytes, and the records of equal ones in that of the sources.
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
				src.list = append(src.list, postings.Record{Key: []byte(name), Totals: segment.Totals{Rows: 1}, Tuples: []segment.Tuple{{FileID: uint32(i), Rows: 1}}})
			}
			sources = append(sources, src)
		}
		names, sets, err := mergeNames(sources, eachItsOwn(len(sources)))
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

// eachItsOwn are datasets of n files.
func eachItsOwn(n int) (datasets []uint32) {
	for i := range n {
		datasets = append(datasets, uint32(i))
	}
	return datasets
}

// mergeNames merges sources and returns the domains and the datasets of each.
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

// However many lists there are, as few are left as are merged at once, and what they have is the same.
func TestNarrow(t *testing.T) {
	for _, c := range []struct{ width, n int }{
		{mergeWidth, mergeWidth}, {mergeWidth, mergeWidth + 1}, {mergeWidth, mergeWidth + 100}, {mergeWidth, 2*mergeWidth - 1}, {mergeWidth, 2 * mergeWidth}, {mergeWidth, 3*mergeWidth + 7},
		{2, 9}, {3, 9}, {7, 100}, {100, 101},
	} {
		width, n := c.width, c.n
		rng := rand.New(rand.NewPCG(uint64(n), 5))
		want := map[string][]uint32{}
		var sources []domainSource
		var domains []int64
		for i := range n {
			src := &listSource{rng: rand.New(rand.NewPCG(uint64(i), 5))} // used by a goroutine of its own
			for d := range 60 {
				if rng.IntN(20) == 0 {
					name := fmt.Sprintf("%02d.example", d)
					want[name] = append(want[name], uint32(i))
					src.list = append(src.list, postings.Record{Key: []byte(name), Totals: segment.Totals{Rows: 1}, Tuples: []segment.Tuple{{FileID: uint32(i), Rows: 1}}})
				}
			}
			sources, domains = append(sources, src), append(domains, int64(len(src.list)))
		}
		sp, err := keysort.NewSpool(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		left, err := narrow(context.Background(), slices.Clone(sources), domains, eachItsOwn(n), sp, width)
		if err != nil {
			t.Fatal(err)
		}
		if exact := n < 2*width; len(left) > width || exact && len(left) < width {
			t.Errorf("%d of %d lists are left, wanted are %d", len(left), n, width)
		}
		names, sets, err := mergeNames(left, eachItsOwn(n))
		sp.Close()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.IsSorted(names) || !maps.EqualFunc(sets, want, slices.Equal) {
			t.Errorf("of %d lists something else comes out", n)
		}
	}
}

func TestLightestNeighbours(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 5))
	for range 500 {
		weights := make([]int64, 1+rng.IntN(12))
		for i := range weights {
			weights[i] = rng.Int64N(5)
		}
		n := 1 + rng.IntN(len(weights))
		sum := func(from int) (all int64) {
			for _, w := range weights[from : from+n] {
				all += w
			}
			return all
		}
		want := 0
		for from := range len(weights) - n + 1 {
			if sum(from) < sum(want) {
				want = from
			}
		}
		if got := lightest(weights, n); got != want {
			t.Fatalf("%d of %d begin at %d, want %d", n, weights, got, want)
		}
	}
}

// A merge that fails says why, and one that is cancelled ends.
func TestMergeEnds(t *testing.T) {
	broken := errors.New("broken")
	sources := func(end error) []domainSource {
		var all []domainSource
		for i := range 20 {
			s := &listSource{rng: rand.New(rand.NewPCG(1, uint64(i)))}
			for n := range 500 {
				s.list = append(s.list, postings.Record{Key: fmt.Appendf(nil, "%06d", n*20+i), Dataset: uint32(i), Totals: segment.Totals{Rows: 1}, Tuples: []segment.Tuple{{FileID: uint32(10 * i), Rows: 1}}})
			}
			all = append(all, s)
		}
		return append(all, failingSource{end})
	}
	if err := mergeWindows(context.Background(), sources(broken), fileDatasets(210), postings.DomainKey, 1000, func(*window) error { return nil }); !errors.Is(err, broken) {
		t.Errorf("a source that fails: %v", err)
	}
	n := 0
	if err := mergeWindows(context.Background(), sources(nil), fileDatasets(210), postings.DomainKey, 1000, func(*window) error {
		if n++; n == 3 {
			return broken
		}
		return nil
	}); !errors.Is(err, broken) {
		t.Errorf("a sink that fails: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := mergeWindows(ctx, sources(nil), fileDatasets(210), postings.DomainKey, 1000, func(*window) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

type failingSource struct{ err error }

func (f failingSource) Load(context.Context, []byte) ([]byte, error) { return nil, f.err }

// sourceRecords reads all that a source has. Codes have to be those of the domains.
func sourceRecords(s domainSource) (all []postings.Record, err error) {
	last := ""
	for {
		block, err := s.Load(context.Background(), nil)
		if block == nil || err != nil {
			return all, err
		}
		for c := (cursor{block: block}); c.block != nil; {
			records, err := domainRecords(c.records(), bytes.Clone(c.domain()))
			if err != nil || len(records) != 1 {
				return nil, fmt.Errorf("not what was checked: %d records, %v", len(records), err)
			}
			all = append(all, records[0])
			name := string(c.domain())
			shared := 0
			for shared < min(len(last), len(name)) && last[shared] == name[shared] {
				shared++
			}
			column := make([]byte, 8)
			copy(column[2:], name[shared/6*6:])
			if want := uint64(62-shared/6)<<58 | binary.BigEndian.Uint64(column)<<10; c.code() != want || postings.OffsetCode(c.domain(), shared) != want {
				return nil, fmt.Errorf("code %x of %q after %q, want %x", c.code(), name, last, want)
			}
			last = name
			c.at += postings.BlockHeader + len(c.domain()) + len(c.records())
			if c.at == len(block)-postings.BlockSlack {
				break
			}
		}
	}
}

// hostileFrame is the only domain frame of an object with right checksums.
func hostileFrame(tb testing.TB, store blob.Store, frame []byte, domains, rows int64) *postings.BatchSource {
	tb.Helper()
	var buf bytes.Buffer
	w := seekable.NewWriter(&buf, 0)
	if _, _, err := w.Frame(nil, frame); err != nil {
		tb.Fatal(err)
	}
	first := (rows + 1) / 2
	groups := []int64{first, rows - first}
	switch rows {
	case 0:
		groups = nil
	case 1:
		groups = groups[:1]
	}
	dir := postings.BatchDirectory{Dataset: 1, Batch: "b", Parts: []postings.BatchPart{{Key: "p", Domains: domains, Rows: rows, Groups: groups, Frames: 1}}}
	if _, _, err := w.Frame(nil, dir.Append(nil)); err != nil {
		tb.Fatal(err)
	}
	ff, err := w.Finish()
	if err != nil {
		tb.Fatal(err)
	}
	indextest.Put(tb, store, "postings", buf.Bytes())
	r, err := postings.OpenBatch(context.Background(), store, lake.NewFrameObject("postings", ff))
	if err != nil {
		tb.Fatal(err)
	}
	return postings.NewBatchSource(&postings.PostingsObject{Reader: r, Files: []uint32{7}}, 0)
}

// Behind right checksums a domain frame is still held to its form, and read as a plain reader reads it.
func FuzzDomainFrame(f *testing.F) {
	for n := 1; n <= 4; n++ {
		w := postings.NewBatchWriter(&bytes.Buffer{}, 1, "b")
		rows := int64(0)
		for _, d := range indextest.TinyDomains()[:n] {
			if err := w.Domain([]byte(d.Name), &d.Totals); err != nil {
				f.Fatal(err)
			}
			rows += d.Totals.Rows
		}
		if err := w.Flush(); err != nil {
			f.Fatal(err)
		}
		f.Add(w.Frame, int64(n), rows)
	}
	f.Fuzz(func(t *testing.T, frame []byte, domains, rows int64) {
		if len(frame) == 0 || domains < 0 || rows < 0 {
			return
		}
		s := hostileFrame(t, blob.NewMemory(), frame, domains, rows)
		defer s.Close()
		all, err := sourceRecords(s)
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		var got []indextest.NamedTotals
		last := ""
		next := segment.Tuple{FileID: 7}
		for _, r := range all {
			if string(r.Key) <= last || len(r.Key) > segment.MaxDomain {
				t.Fatalf("domain %q after %q", r.Key, last)
			}
			last = string(r.Key)
			if err := r.Totals.Validate(); err != nil {
				t.Fatal(err)
			}
			got = append(got, indextest.NamedTotals{Name: last, Totals: r.Totals})
			sum := int64(0)
			for _, tuple := range r.Tuples {
				if tuple.RowGroup == 1 && next.RowGroup == 0 && next.FirstRow == (rows+1)/2 {
					next.RowGroup, next.FirstRow = 1, 0
				}
				if tuple.FileID != 7 || tuple.RowGroup != next.RowGroup || tuple.FirstRow != next.FirstRow {
					t.Fatalf("%q at %+v, wanted %+v", last, tuple, next)
				}
				next.FirstRow += tuple.Rows
				sum += tuple.Rows
			}
			if sum != r.Totals.Rows {
				t.Fatalf("%q has %d rows, in tuples %d", last, r.Totals.Rows, sum)
			}
		}
		plain := plainDomains(frame)
		if d := cmp.Diff(plain, got, cmp.AllowUnexported(indextest.NamedTotals{})); d != "" {
			t.Fatal(d)
		}
		sum := int64(0)
		for _, d := range plain {
			sum += d.Totals.Rows
		}
		if int64(len(plain)) != domains || sum != rows {
			t.Fatalf("%d domains, %d rows, want %d, %d", len(plain), sum, domains, rows)
		}
	})
}

// plainDomains reads a frame that is sound as docs/formats/batch-postings.md has it.
func plainDomains(frame []byte) (all []indextest.NamedTotals) {
	le := binary.LittleEndian
	n, rows, totals := int(le.Uint32(frame)), int(le.Uint32(frame[4:])), int(le.Uint32(frame[8:]))
	shared, rest := frame[12:12+n], frame[12+n:12+2*n]
	counts := bytes.NewReader(frame[12+2*n : 12+2*n+rows])
	measures := bytes.NewReader(frame[12+2*n+rows : 12+2*n+rows+totals])
	text := frame[12+2*n+rows+totals:]
	last := ""
	for i := range n {
		d := indextest.NamedTotals{Name: last[:shared[i]] + string(text[:rest[i]])}
		text = text[rest[i]:]
		v, _ := binary.ReadUvarint(counts)
		d.Totals.Rows = int64(v)
		if totals > 0 {
			flags, _ := measures.ReadByte()
			if flags&1 != 0 {
				v, _ := binary.ReadUvarint(measures)
				d.Totals.HasSize, d.Totals.Size = true, int64(v)
			}
			if flags&2 != 0 {
				d.Totals.HasTS = true
				d.Totals.FirstTS, _ = binary.ReadVarint(measures)
				v, _ := binary.ReadUvarint(measures)
				d.Totals.LastTS = d.Totals.FirstTS + int64(v)
			}
		}
		all = append(all, d)
		last = d.Name
	}
	return all
}
