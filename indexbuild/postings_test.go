package indexbuild

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
)

var update = flag.Bool("update", false, "write the dumps in testdata anew")

// Partitions are a stable sort, whatever the memory, and whoever chose the keys.
func TestPartitionsSortStably(t *testing.T) {
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
					p := partitionsAt(t.TempDir(), memory, 0, width)
					p.limit = int64(memory)
					for _, v := range want {
						if err := p.add(v.Key, []byte(v.Val)); err != nil {
							t.Fatal(err)
						}
					}
					var got []value
					for i := range p.len() {
						err := p.each(context.Background(), i, func(s *sortedValues) error {
							for n := range s.len() {
								k, v := s.at(n)
								got = append(got, value{k, string(v)})
							}
							return nil
						})
						if err != nil {
							t.Fatal(err)
						}
					}
					p.close()
					if d := cmp.Diff(sorted, got); d != "" {
						t.Fatalf("%s: %d values in %d bytes, %d bits: %s", name, n, memory, width, d)
					}
				}
			}
		}
	}
}

// listSource yields records, some in a block.
type listSource struct {
	list []record
	rng  *rand.Rand
	w    blockWriter
}

func (s *listSource) load(_ context.Context, buf []byte) ([]byte, error) {
	if len(s.list) == 0 {
		return nil, nil
	}
	some := s.list[:min(1+s.rng.IntN(7), len(s.list))]
	s.list = s.list[len(some):]
	buf = buf[:0]
	for _, r := range some {
		var ok bool
		if buf, ok = s.w.add(buf, r.key, r.append(nil)); !ok {
			return nil, fmt.Errorf("%q after %q", r.key, s.w.last)
		}
	}
	return s.w.end(buf), nil
}

// domainRecords reads the records of one domain.
func domainRecords(vals, name []byte) (all []record, err error) {
	for len(vals) > 0 {
		r := record{key: name}
		n := recordLength(vals)
		if err := r.read(vals[:n]); err != nil {
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
		want := map[string]map[uint32]record{}
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
					r := record{key: []byte(name), dataset: dataset, totals: segment.Totals{Rows: 1 + rng.Int64N(5)}}
					r.tuples = []segment.Tuple{{FileID: 10*dataset + uint32(part), RowGroup: rng.Uint32N(3), Rows: r.totals.Rows}}
					switch rng.IntN(4) { // not plain
					case 0:
						r.totals.HasSize, r.totals.Size = true, rng.Int64N(1000)
					case 1:
						r.totals.HasTS, r.totals.FirstTS, r.totals.LastTS = true, -5, rng.Int64N(1000)
					case 2:
						r.tuples[0].FirstRow = 1 << 40
					}
					src.list = append(src.list, r)
					all := want[name][dataset]
					all.key, all.dataset = r.key, dataset
					all.totals.Add(r.totals)
					all.tuples = append(slices.Clone(all.tuples), r.tuples...)
					if want[name] == nil {
						want[name] = map[uint32]record{}
					}
					want[name][dataset] = all
				}
				sources = append(sources, src)
			}
		}
		got := map[string]map[uint32]record{}
		last := ""
		sp, err := newSpool(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if seed%2 == 1 { // by way of a file, in which datasets are mixed
			var spooledSources []domainSource
			for group := range slices.Chunk(sources, 3) {
				out := &spooled{spool: sp}
				var list blockWriter
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
		err = mergeWindows(context.Background(), sources, fileDatasets(60), urlKey, 1+rng.IntN(500), func(w *window) error {
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
				got[name] = map[uint32]record{}
				var sets []uint32
				records, err := domainRecords(w.val(i), []byte(name))
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range records {
					r.dataset = r.tuples[0].FileID / 10
					got[name][r.dataset] = r
					sets = append(sets, r.dataset)
				}
				if !slices.Equal(sets, w.sets[from:w.setEnds[i]]) || !slices.IsSorted(sets) {
					t.Fatalf("datasets %v of %q, records of %v", w.sets[from:w.setEnds[i]], name, sets)
				}
				from = w.setEnds[i]
			}
			return nil
		})
		sp.close()
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got, cmp.AllowUnexported(record{})); d != "" {
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
				src.list = append(src.list, record{key: []byte(name), totals: segment.Totals{Rows: 1}, tuples: []segment.Tuple{{FileID: uint32(i), Rows: 1}}})
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
					src.list = append(src.list, record{key: []byte(name), totals: segment.Totals{Rows: 1}, tuples: []segment.Tuple{{FileID: uint32(i), Rows: 1}}})
				}
			}
			sources, domains = append(sources, src), append(domains, int64(len(src.list)))
		}
		sp, err := newSpool(t.TempDir())
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
		sp.close()
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

// What was written to a scratch comes out, by way of a file or not.
func TestScratch(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	store := blob.NewMemory()
	for _, most := range []int{1, 10, 1000} {
		s := scratch{dir: t.TempDir(), most: most}
		var want []byte
		for range 50 {
			piece := bytes.Repeat([]byte{byte(rng.Uint32())}, rng.IntN(15))
			want = append(want, piece...)
			if _, err := s.Write(piece); err != nil {
				t.Fatal(err)
			}
		}
		key := fmt.Sprint(most)
		if err := s.upload(context.Background(), store, key); err != nil {
			t.Fatal(err)
		}
		s.close()
		got, _, err := store.Get(context.Background(), key)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d in memory: %d bytes, %v, want %d", most, len(got), err, len(want))
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
				s.list = append(s.list, record{key: fmt.Appendf(nil, "%06d", n*20+i), dataset: uint32(i), totals: segment.Totals{Rows: 1}, tuples: []segment.Tuple{{FileID: uint32(10 * i), Rows: 1}}})
			}
			all = append(all, s)
		}
		return append(all, failingSource{end})
	}
	if err := mergeWindows(context.Background(), sources(broken), fileDatasets(210), urlKey, 1000, func(*window) error { return nil }); !errors.Is(err, broken) {
		t.Errorf("a source that fails: %v", err)
	}
	n := 0
	if err := mergeWindows(context.Background(), sources(nil), fileDatasets(210), urlKey, 1000, func(*window) error {
		if n++; n == 3 {
			return broken
		}
		return nil
	}); !errors.Is(err, broken) {
		t.Errorf("a sink that fails: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := mergeWindows(ctx, sources(nil), fileDatasets(210), urlKey, 1000, func(*window) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

type failingSource struct{ err error }

func (f failingSource) load(context.Context, []byte) ([]byte, error) { return nil, f.err }

// sourceRecords reads all that a source has. Codes have to be those of the domains.
func sourceRecords(s domainSource) (all []record, err error) {
	last := ""
	for {
		block, err := s.load(context.Background(), nil)
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
			if want := uint64(62-shared/6)<<58 | binary.BigEndian.Uint64(column)<<10; c.code() != want || offsetCode(c.domain(), shared) != want {
				return nil, fmt.Errorf("code %x of %q after %q, want %x", c.code(), name, last, want)
			}
			last = name
			c.at += blockHeader + len(c.domain()) + len(c.records())
			if c.at == len(block)-blockSlack {
				break
			}
		}
	}
}

// hostileFrame is the only domain frame of an object with right checksums.
func hostileFrame(tb testing.TB, store blob.Store, frame []byte, domains, rows int64) *batchSource {
	tb.Helper()
	var buf bytes.Buffer
	w := codec.NewFrameWriter(&buf, 0)
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
	dir := batchDirectory{dataset: 1, batch: "b", parts: []batchPart{{key: "p", domains: domains, rows: rows, groups: groups, frames: 1}}}
	if _, _, err := w.Frame(nil, dir.append(nil)); err != nil {
		tb.Fatal(err)
	}
	ff, err := w.Finish()
	if err != nil {
		tb.Fatal(err)
	}
	put(tb, store, "postings", buf.Bytes())
	r, err := openBatch(context.Background(), store, lake.NewFrameObject("postings", ff))
	if err != nil {
		tb.Fatal(err)
	}
	return newBatchSource(&postingsObject{reader: r, files: []uint32{7}}, 0)
}

// namedTotals are a domain's.
type namedTotals struct {
	name   string
	totals segment.Totals
}

func tinyDomains() []namedTotals {
	return []namedTotals{
		{"example.com", segment.Totals{Rows: 39}},
		{"example.net", segment.Totals{Rows: 20, HasSize: true, Size: 70_000, HasTS: true, FirstTS: 1.7e12, LastTS: 1.8e12}},
		{"example.org", segment.Totals{Rows: 300}},
		{"xn--bcher-kva.example", segment.Totals{Rows: 1, HasTS: true}},
	}
}

// Behind right checksums a domain frame is still held to its form, and read as a plain reader reads it.
func FuzzDomainFrame(f *testing.F) {
	for n := 1; n <= 4; n++ {
		w := newBatchWriter(&bytes.Buffer{}, 1, "b")
		rows := int64(0)
		for _, d := range tinyDomains()[:n] {
			if err := w.domain([]byte(d.name), &d.totals); err != nil {
				f.Fatal(err)
			}
			rows += d.totals.Rows
		}
		if err := w.flush(); err != nil {
			f.Fatal(err)
		}
		f.Add(w.frame, int64(n), rows)
	}
	f.Fuzz(func(t *testing.T, frame []byte, domains, rows int64) {
		if len(frame) == 0 || domains < 0 || rows < 0 {
			return
		}
		s := hostileFrame(t, blob.NewMemory(), frame, domains, rows)
		defer s.close()
		all, err := sourceRecords(s)
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		var got []namedTotals
		last := ""
		next := segment.Tuple{FileID: 7}
		for _, r := range all {
			if string(r.key) <= last || len(r.key) > segment.MaxDomain {
				t.Fatalf("domain %q after %q", r.key, last)
			}
			last = string(r.key)
			if err := r.totals.Validate(); err != nil {
				t.Fatal(err)
			}
			got = append(got, namedTotals{last, r.totals})
			sum := int64(0)
			for _, tuple := range r.tuples {
				if tuple.RowGroup == 1 && next.RowGroup == 0 && next.FirstRow == (rows+1)/2 {
					next.RowGroup, next.FirstRow = 1, 0
				}
				if tuple.FileID != 7 || tuple.RowGroup != next.RowGroup || tuple.FirstRow != next.FirstRow {
					t.Fatalf("%q at %+v, wanted %+v", last, tuple, next)
				}
				next.FirstRow += tuple.Rows
				sum += tuple.Rows
			}
			if sum != r.totals.Rows {
				t.Fatalf("%q has %d rows, in tuples %d", last, r.totals.Rows, sum)
			}
		}
		plain := plainDomains(frame)
		if d := cmp.Diff(plain, got, cmp.AllowUnexported(namedTotals{})); d != "" {
			t.Fatal(d)
		}
		sum := int64(0)
		for _, d := range plain {
			sum += d.totals.Rows
		}
		if int64(len(plain)) != domains || sum != rows {
			t.Fatalf("%d domains, %d rows, want %d, %d", len(plain), sum, domains, rows)
		}
	})
}

// plainDomains reads a frame that is sound as docs/formats/batch-postings.md has it.
func plainDomains(frame []byte) (all []namedTotals) {
	le := binary.LittleEndian
	n, rows, totals := int(le.Uint32(frame)), int(le.Uint32(frame[4:])), int(le.Uint32(frame[8:]))
	shared, rest := frame[12:12+n], frame[12+n:12+2*n]
	counts := bytes.NewReader(frame[12+2*n : 12+2*n+rows])
	measures := bytes.NewReader(frame[12+2*n+rows : 12+2*n+rows+totals])
	text := frame[12+2*n+rows+totals:]
	last := ""
	for i := range n {
		d := namedTotals{name: last[:shared[i]] + string(text[:rest[i]])}
		text = text[rest[i]:]
		v, _ := binary.ReadUvarint(counts)
		d.totals.Rows = int64(v)
		if totals > 0 {
			flags, _ := measures.ReadByte()
			if flags&1 != 0 {
				v, _ := binary.ReadUvarint(measures)
				d.totals.HasSize, d.totals.Size = true, int64(v)
			}
			if flags&2 != 0 {
				d.totals.HasTS = true
				d.totals.FirstTS, _ = binary.ReadVarint(measures)
				v, _ := binary.ReadUvarint(measures)
				d.totals.LastTS = d.totals.FirstTS + int64(v)
			}
		}
		all = append(all, d)
		last = d.name
	}
	return all
}

func FuzzBatchDirectory(f *testing.F) {
	dir := batchDirectory{dataset: 1, batch: "b", parts: []batchPart{
		{key: "p", bytes: 100, domains: 5, rows: 60, groups: []int64{40, 20}, frames: 1, blocks: 2}, {key: "q", bytes: 100, domains: 1, rows: 3, groups: []int64{3}, frames: 1, blocks: 1}}}
	data := dir.append(nil)
	f.Add(data[:len(data)-4], 6)
	f.Fuzz(func(t *testing.T, body []byte, frames int) {
		if frames < 1 {
			return
		}
		b, err := decodeDirectory(codec.AppendCRC32C(bytes.Clone(body)), "postings", frames)
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		if again := b.append(nil); !bytes.Equal(again[:len(again)-4], body) {
			t.Fatalf("%x, read and written: %x", body, again)
		}
	})
}

func TestBatchWriterRefusesDomainsOutOfOrder(t *testing.T) {
	for _, names := range [][2]string{{"b", "a"}, {"a", "a"}, {"", "a"}, {"a", strings.Repeat("b", segment.MaxDomain+1)}} {
		w := newBatchWriter(&bytes.Buffer{}, 1, "b")
		var err error
		for _, n := range names {
			if err == nil {
				err = w.domain([]byte(n), &segment.Totals{Rows: 1})
			}
		}
		if err == nil {
			t.Errorf("%v: no error", names)
		}
	}
}

// Rows without a domain are not those of the next one.
func TestDomainRunsRefuseAnEmptyDomain(t *testing.T) {
	d := domainRuns{key: "part"}
	for i, domain := range []string{"", "a"} {
		row := &lake.Columns{Rows: 1, Domain: []string{domain}, HasSize: []bool{false}, HasTS: []bool{false}}
		if err := d.add(rows{Columns: row}); errors.Is(err, codec.ErrCorrupt) != (i == 0) {
			t.Errorf("domain %q: %v", domain, err)
		}
	}
}

// Pages in another order than the part's are no part.
func TestCollectorRefusesDomainsOutOfOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	l := &testLake{store: blob.NewMemory()}
	for _, o := range []lakeOptions{{rows: 200, domains: 100}, {rows: 200, domains: 100, sizes: true}} {
		o.limits = lake.PartLimits{PageRows: 20}
		l.writeBatch(t, 1, "b", randomRows(rng, o), o, func(task *ingest.MergedTask) lake.FrameObject {
			pages := domainPages(t, l.store, &task.Parts[0])
			c := NewCollector(1, "b", "")
			defer c.Close()
			for i, p := range pages {
				if i == 3 {
					if err := c.Domains(pages[0]); !errors.Is(err, codec.ErrCorrupt) {
						t.Errorf("the first page again: %v", err)
					}
				}
				if err := c.Domains(p); err != nil && i <= 3 {
					t.Error(err)
				}
			}
			return lake.FrameObject{}
		})
	}
}

// A part whose domains have other rows than it is refused.
func TestBatchWriterRefusesPartsOfOtherRows(t *testing.T) {
	for _, rows := range []int64{0, 2, 4} {
		w := newBatchWriter(&bytes.Buffer{}, 1, "b")
		if err := w.domain([]byte("a"), &segment.Totals{Rows: rows}); err != nil {
			continue
		}
		if err := w.part(&lake.Part{Rows: 3}, []int64{3}, nil); err == nil {
			t.Errorf("%d rows for 3: no error", rows)
		}
	}
}

// TestGolden reads a postings object after docs/formats/batch-postings.md, with nothing of this
// package, and writes down what every byte means.
func TestGolden(t *testing.T) {
	var buf bytes.Buffer
	w := newBatchWriter(&buf, 3, "2026-11")
	domains := tinyDomains()
	for i, n := range []int{3, 1} {
		rows := int64(0)
		for _, d := range domains[:n] {
			if err := w.domain([]byte(d.name), &d.totals); err != nil {
				t.Fatal(err)
			}
			rows += d.totals.Rows
		}
		domains = domains[n:]
		p := lake.Part{Object: lake.Object{Key: fmt.Sprintf("urls/%d.parquet", i), Bytes: 4096}, Rows: rows}
		groups := []int64{rows}
		if rows > 200 {
			groups = []int64{200, rows - 200}
		}
		if err := w.part(&p, groups, [][]byte{fmt.Appendf(nil, "block %d.0", i), fmt.Appendf(nil, "block %d.1", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.finish(); err != nil {
		t.Fatal(err)
	}

	// Frames by the seek table.
	data := buf.Bytes()
	foot := len(data) - 9
	n := int(binary.LittleEndian.Uint32(data[foot:]))
	dec, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	at := 0
	for i := range n {
		size := int(binary.LittleEndian.Uint32(data[foot-12*n+12*i:]))
		raw, err := dec.DecodeAll(data[at:at+size], nil)
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, raw)
		at += size
	}
	if len(frames) != 7 {
		t.Fatalf("%d frames", len(frames))
	}

	var out strings.Builder
	fmt.Fprintln(&out, "# A postings object of a batch, its frames decompressed (docs/formats/batch-postings.md)")
	fmt.Fprintln(&out, "# Written by go test ./indexbuild -run TestGolden -update")
	d := dumper{out: &out}
	for i, f := range frames[:2] {
		d.open(fmt.Sprintf("frame %d: domains of part %d", i, i), f)
		n := d.u32("domains")
		d.u32("bytes of rows")
		totals := d.u32("bytes of totals")
		shared := d.take(int(n), "of each, the bytes shared with the domain before")
		rest := d.take(int(n), "of each, further bytes")
		for range n {
			d.uvarint("rows")
		}
		for range n {
			if totals == 0 {
				break
			}
			flags := d.take(1, "totals: flags, 1 size, 2 ts")[0]
			if flags&1 != 0 {
				d.uvarint("  size")
			}
			if flags&2 != 0 {
				v, n := binary.Varint(d.data)
				d.take(n, "  first ts = %d", v)
				d.uvarint("  last ts, plus")
			}
		}
		domain := ""
		for i := range n {
			domain = domain[:shared[i]] + string(d.data[:rest[i]])
			d.take(int(rest[i]), "%q of %s", d.data[:rest[i]], domain)
		}
	}
	for i, f := range frames[2:6] {
		d.open(fmt.Sprintf("frame %d: a page index block (here a text stands for it)", i+2), f)
		d.take(len(f), "%q", f)
	}
	d.open("frame 6: directory", frames[6])
	d.take(4, "magic")
	d.take(4, "ver = %d", binary.LittleEndian.Uint32(d.data))
	d.uvarint("dataset_id")
	d.text("batch")
	for range d.uvarint("parts") {
		d.text("part: key")
		d.uvarint("  bytes")
		d.uvarint("  domains")
		d.uvarint("  domain frames")
		d.uvarint("  page index frames")
		for range d.uvarint("  row groups") {
			d.uvarint("    rows")
		}
	}
	sum := crc32.Checksum(frames[6][:len(frames[6])-4], crc32.MakeTable(crc32.Castagnoli))
	if got := d.u32("CRC-32C"); got != sum {
		t.Errorf("crc %08x, want %08x", got, sum)
	}
	if len(d.data) != 0 {
		t.Errorf("%d bytes left", len(d.data))
	}

	path := filepath.Join("testdata", "batch-postings.txt")
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(out.String(), "\n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// dumper writes bytes down with comments.
type dumper struct {
	out  *strings.Builder
	data []byte
	off  int
}

func (d *dumper) open(name string, data []byte) {
	fmt.Fprintf(d.out, "\n# %s\n", name)
	d.data, d.off = data, 0
}

func (d *dumper) take(n int, format string, args ...any) []byte {
	p := d.data[:n]
	comment := fmt.Sprintf(format, args...)
	for i := 0; i < n; i += 16 {
		fmt.Fprintf(d.out, "%04x  %-32x  %s\n", d.off+i, p[i:min(i+16, n)], comment)
		comment = "|"
	}
	d.data, d.off = d.data[n:], d.off+n
	return p
}

func (d *dumper) u32(what string) uint32 {
	v := binary.LittleEndian.Uint32(d.data)
	d.take(4, "%s = %d", what, v)
	return v
}

func (d *dumper) uvarint(what string) uint64 {
	v, n := binary.Uvarint(d.data)
	d.take(n, "%s = %d", what, v)
	return v
}

func (d *dumper) text(what string) {
	n := d.uvarint(what + ", bytes")
	d.take(int(n), "  %q", d.data[:n])
}
