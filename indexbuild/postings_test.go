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

// listSource yields records, some in a slab.
type listSource struct {
	records []record
	rng     *rand.Rand
	mixed   bool
}

func (s *listSource) next(context.Context) (*slab, error) {
	if len(s.records) == 0 {
		return nil, nil
	}
	sl := newSlab()
	for range 1 + s.rng.IntN(7) {
		if len(s.records) == 0 {
			break
		}
		r := s.records[0]
		s.records = s.records[1:]
		if s.mixed && sl.len() > 0 && string(sl.domain(sl.len()-1)) == string(r.key) {
			sl.vals = r.append(sl.vals)
			sl.valEnds[len(sl.valEnds)-1] = uint32(len(sl.vals))
			continue
		}
		sl.add(&r)
	}
	sl.mixed = s.mixed
	return sl, nil
}

// What comes out of a merge is what a map of all records holds.
func TestMergeIsAMapOfAllRecords(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 5))
		want := map[string]map[uint32]record{}
		var sources []slabSource
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
					src.records = append(src.records, r)
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
			var spooledSources []slabSource
			for group := range slices.Chunk(sources, 3) {
				out := &spooled{spool: sp}
				err := mergeSlabs(context.Background(), group, nil, func(w *window) error {
					at, _, err := sp.writeSlab(&w.slab, nil)
					out.at = append(out.at, at)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				spooledSources = append(spooledSources, out)
			}
			sources = spooledSources
		}
		err = mergeSlabs(context.Background(), sources, urlKey, func(w *window) error {
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
				err := mixedDomain(w.val(i), func(dataset uint32, packed []byte) error {
					var r record
					r.read(codec.NewDecoder(packed, "", ""), []byte(name))
					got[name][dataset] = r
					sets = append(sets, dataset)
					return nil
				})
				if err != nil {
					t.Fatal(err)
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

// A merge that fails says why, and one that is cancelled ends.
func TestMergeEnds(t *testing.T) {
	broken := errors.New("broken")
	sources := func(end error) []slabSource {
		var all []slabSource
		for i := range 20 {
			s := &listSource{rng: rand.New(rand.NewPCG(1, uint64(i)))}
			for n := range 500 {
				s.records = append(s.records, record{key: fmt.Appendf(nil, "%06d", n*20+i), dataset: uint32(i), totals: segment.Totals{Rows: 1}, tuples: []segment.Tuple{{Rows: 1}}})
			}
			all = append(all, s)
		}
		return append(all, failingSource{end})
	}
	if err := mergeSlabs(context.Background(), sources(broken), urlKey, func(*window) error { return nil }); !errors.Is(err, broken) {
		t.Errorf("a source that fails: %v", err)
	}
	n := 0
	if err := mergeSlabs(context.Background(), sources(nil), urlKey, func(*window) error {
		if n++; n == 3 {
			return broken
		}
		return nil
	}); !errors.Is(err, broken) {
		t.Errorf("a sink that fails: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := mergeSlabs(ctx, sources(nil), urlKey, func(*window) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

type failingSource struct{ err error }

func (f failingSource) next(context.Context) (*slab, error) { return nil, f.err }

// sourceRecords reads all that a source has.
func sourceRecords(s slabSource) (all []record, err error) {
	for {
		sl, err := s.next(context.Background())
		if sl == nil || err != nil {
			return all, err
		}
		for i := range sl.ends {
			r := record{}
			d := codec.NewDecoder(sl.val(i), "slab", "record")
			r.read(d, bytes.Clone(sl.domain(i)))
			if err := d.Close(); err != nil {
				return nil, fmt.Errorf("not what was checked: %v", err)
			}
			all = append(all, r)
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
	dir := batchDirectory{dataset: 1, batch: "b", domains: domains, rows: rows, frames: 1, parts: []batchPart{{key: "p", rows: rows}}}
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
	return &batchSource{r: r, files: []uint32{0, 7, 9}}
}

func tinyRecords() []record {
	return []record{
		{key: []byte("example.com"), totals: segment.Totals{Rows: 59, HasSize: true, Size: 70_000, HasTS: true, FirstTS: 1.7e12, LastTS: 1.8e12},
			tuples: []segment.Tuple{{FileID: 0, FirstRow: 1, Rows: 39}, {FileID: 0, RowGroup: 1, Rows: 20}}},
		{key: []byte("example.org"), totals: segment.Totals{Rows: 3}, tuples: []segment.Tuple{{FileID: 1, RowGroup: 2, FirstRow: 20, Rows: 3}}},
		{key: []byte("xn--bcher-kva.example"), totals: segment.Totals{Rows: 1, HasTS: true}, tuples: []segment.Tuple{{FileID: 0, FirstRow: 40, Rows: 1}}},
	}
}

// Behind right checksums a domain frame is still held to its form.
func FuzzDomainFrame(f *testing.F) {
	w := newBatchWriter(&bytes.Buffer{}, 1, "b")
	for _, r := range tinyRecords() {
		if err := w.domain(&r); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(w.frame, int64(3), int64(63))
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
		last := ""
		var n, sum int64
		for _, r := range all {
			if string(r.key) <= last || len(r.key) > segment.MaxDomain {
				t.Fatalf("domain %q after %q", r.key, last)
			}
			last = string(r.key)
			if err := r.totals.Validate(); err != nil {
				t.Fatal(err)
			}
			n, sum = n+1, sum+r.totals.Rows
		}
		slow, err := slowRecords(frame)
		if d := cmp.Diff(slow, all, cmp.AllowUnexported(record{})); d != "" || err != nil {
			t.Fatalf("by the slow path: %v, %s", err, d)
		}
		if n != domains || sum != rows {
			t.Fatalf("%d domains, %d rows, want %d, %d", n, sum, domains, rows)
		}
	})
}

// slowRecords reads a frame without the fast path.
func slowRecords(frame []byte) ([]record, error) {
	s := &batchSource{r: &batchReader{batchDirectory: &batchDirectory{dataset: 1}}, files: []uint32{0, 7, 9}}
	sl := newSlab()
	d := codec.NewDecoder(frame, "frame", "frame")
	for d.Len() > 0 && d.Err() == nil {
		s.read(sl, d)
	}
	if d.Err() != nil {
		return nil, d.Err()
	}
	return sourceRecords(&oneSlab{sl})
}

type oneSlab struct{ s *slab }

func (o *oneSlab) next(context.Context) (*slab, error) {
	s := o.s
	o.s = nil
	return s, nil
}

func FuzzBatchDirectory(f *testing.F) {
	dir := batchDirectory{dataset: 1, batch: "b", domains: 3, rows: 63, frames: 1, parts: []batchPart{{"p", 100, 60, 2, 2}, {"q", 100, 3, 1, 1}}}
	data := dir.append(nil)
	f.Add(data[:len(data)-4], 5)
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
	for _, names := range [][2]string{{"b", "a"}, {"a", "a"}} {
		w := newBatchWriter(&bytes.Buffer{}, 1, "b")
		var err error
		for _, n := range names {
			err = w.domain(&record{key: []byte(n), totals: segment.Totals{Rows: 1}, tuples: []segment.Tuple{{Rows: 1}}})
		}
		if err == nil {
			t.Errorf("%v: no error", names)
		}
	}
}

// TestGolden reads a postings object after docs/formats/batch-postings.md, with nothing of this
// package, and writes down what every byte means.
func TestGolden(t *testing.T) {
	var buf bytes.Buffer
	w := newBatchWriter(&buf, 3, "2026-11")
	records := tinyRecords()
	for i := range records {
		if err := w.domain(&records[i]); err != nil {
			t.Fatal(err)
		}
	}
	for i, rows := range []int64{60, 3} {
		p := lake.Part{Object: lake.Object{Key: fmt.Sprintf("urls/%d.parquet", i), Bytes: 4096}, Rows: rows, RowGroups: 3 - i}
		if err := w.part(&p, [][]byte{fmt.Appendf(nil, "block %d.0", i), fmt.Appendf(nil, "block %d.1", i)}); err != nil {
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
	if len(frames) != 6 {
		t.Fatalf("%d frames", len(frames))
	}

	var out strings.Builder
	fmt.Fprintln(&out, "# A postings object of a batch, its frames decompressed (docs/formats/batch-postings.md)")
	fmt.Fprintln(&out, "# Written by go test ./indexbuild -run TestGolden -update")
	d := dumper{out: &out}
	d.open("frame 0: domains", frames[0])
	domain := ""
	for len(d.data) > 0 {
		shared := d.uvarint("bytes shared with the domain before")
		rest := d.uvarint("  further bytes")
		domain = domain[:shared] + string(d.take(int(rest), "  %q", d.data[:rest]))
		d.uvarint("  rows of " + domain)
		flags := d.take(1, "  flags: 1 size, 2 ts")[0]
		if flags&1 != 0 {
			d.uvarint("  size")
		}
		if flags&2 != 0 {
			v, n := binary.Varint(d.data)
			d.take(n, "  first ts = %d", v)
			d.uvarint("  last ts, plus")
		}
		for range d.uvarint("  tuples") {
			d.uvarint("    part, plus")
			d.uvarint("    row_group")
			d.uvarint("    first_row")
			d.uvarint("    rows less one")
		}
	}
	for i, f := range frames[1:5] {
		d.open(fmt.Sprintf("frame %d: a page index block (here a text stands for it)", i+1), f)
		d.take(len(f), "%q", f)
	}
	d.open("frame 5: directory", frames[5])
	d.take(4, "magic")
	d.take(4, "ver = %d", binary.LittleEndian.Uint32(d.data))
	d.uvarint("dataset_id")
	d.text("batch")
	d.uvarint("domains")
	d.uvarint("rows")
	d.uvarint("domain frames")
	for range d.uvarint("parts") {
		d.text("part: key")
		d.uvarint("  bytes")
		d.uvarint("  rows")
		d.uvarint("  row groups")
		d.uvarint("  page index frames")
	}
	sum := crc32.Checksum(frames[5][:len(frames[5])-4], crc32.MakeTable(crc32.Castagnoli))
	if got := binary.LittleEndian.Uint32(d.take(4, "CRC-32C")); got != sum {
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

func (d *dumper) uvarint(what string) uint64 {
	v, n := binary.Uvarint(d.data)
	d.take(n, "%s = %d", what, v)
	return v
}

func (d *dumper) text(what string) {
	n := d.uvarint(what + ", bytes")
	d.take(int(n), "  %q", d.data[:n])
}
