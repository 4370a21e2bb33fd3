package indexbuild

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
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

// A sorter is a stable sort, whatever its memory.
func TestSorterSortsStably(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{0, 1, 5, 3000} {
		var want []record
		for i := range n {
			key := fmt.Appendf(nil, "%d", rng.IntN(1+n/3))
			if rng.IntN(3) == 0 {
				key = append(key, strings.Repeat("x", rng.IntN(40))...)
			}
			want = append(want, record{key: key, dataset: uint32(i), totals: segment.Totals{Rows: 1}, tuples: []segment.Tuple{{FileID: uint32(i), Rows: 1}}})
		}
		for _, memory := range []int{1, 100, 10_000, 1 << 20} {
			s := newSorter(t.TempDir(), memory)
			for i := range want {
				if err := s.add(&want[i]); err != nil {
					t.Fatal(err)
				}
			}
			in, err := s.sorted(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			var got []record
			for {
				r, err := in.next()
				if err != nil {
					t.Fatal(err)
				}
				if r == nil {
					break
				}
				got = append(got, record{bytes.Clone(r.key), r.dataset, r.totals, slices.Clone(r.tuples)})
			}
			s.close()
			sorted := slices.Clone(want)
			slices.SortStableFunc(sorted, func(a, b record) int { return bytes.Compare(a.key, b.key) })
			if d := cmp.Diff(sorted, got, cmp.AllowUnexported(record{})); d != "" {
				t.Fatalf("%d records in %d bytes: %s", n, memory, d)
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
	return &batchSource{ctx: context.Background(), r: r, files: []uint32{0, 7, 9}}
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
		last := ""
		var n, sum int64
		for {
			r, err := s.next()
			if err != nil {
				if !errors.Is(err, codec.ErrCorrupt) {
					t.Fatal(err)
				}
				return
			}
			if r == nil {
				break
			}
			if string(r.key) <= last || len(r.key) > segment.MaxDomain {
				t.Fatalf("domain %q after %q", r.key, last)
			}
			last = string(r.key)
			if err := r.totals.Validate(); err != nil {
				t.Fatal(err)
			}
			n, sum = n+1, sum+r.totals.Rows
		}
		if n != domains || sum != rows {
			t.Fatalf("%d domains, %d rows, want %d, %d", n, sum, domains, rows)
		}
	})
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
