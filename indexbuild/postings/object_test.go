package postings

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
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
)

var update = flag.Bool("update", false, "write the dumps in testdata anew")

// A scratch returns what was written, from a file or from memory.
func TestScratch(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	store := blob.NewMemory()
	for _, capacity := range []int{1, 10, 1000} {
		s := scratch{dir: t.TempDir(), capacity: capacity}
		var want []byte
		for range 50 {
			piece := bytes.Repeat([]byte{byte(rng.Uint32())}, rng.IntN(15))
			want = append(want, piece...)
			if _, err := s.Write(piece); err != nil {
				t.Fatal(err)
			}
		}
		key := fmt.Sprint(capacity)
		if err := s.upload(context.Background(), store, key); err != nil {
			t.Fatal(err)
		}
		s.close()
		got, _, err := store.Get(context.Background(), key)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("capacity %d: %d bytes, %v, want %d", capacity, len(got), err, len(want))
		}
	}
}

func FuzzDirectory(f *testing.F) {
	dir := directory{dataset: 1, batch: "b", parts: []Part{
		{Key: "p", Bytes: 100, Domains: 5, Rows: 60, Groups: []int64{40, 20}, domainFrames: 1, indexFrames: 2},
		{Key: "q", Bytes: 100, Domains: 1, Rows: 3, Groups: []int64{3}, domainFrames: 1, indexFrames: 1},
	}}
	data := dir.encode()
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
		if again := b.encode(); !bytes.Equal(again[:len(again)-4], body) {
			t.Fatalf("%x, decoded and encoded: %x", body, again)
		}
	})
}

func TestWriterRejectsDomainsOutOfOrder(t *testing.T) {
	tooLong := strings.Repeat("b", segment.MaxDomain+1)
	for _, names := range [][2]string{{"b", "a"}, {"a", "a"}, {"", "a"}, {"a", tooLong}} {
		w := NewWriter(&bytes.Buffer{}, 1, "b")
		var err error
		for _, n := range names {
			if err == nil {
				err = w.AddDomain([]byte(n), &segment.Totals{Rows: 1})
			}
		}
		if err == nil {
			t.Errorf("%v: no error", names)
		}
	}
}

// Rows without a domain are rejected, and not counted for the next domain.
func TestDomainCounterRejectsAnEmptyDomain(t *testing.T) {
	d := NewDomainCounter("part", nil)
	for i, domain := range []string{"", "a"} {
		row := &part.Columns{Rows: 1, Domain: []string{domain}, HasSize: []bool{false}, HasTS: []bool{false}}
		if err := d.Add(Rows{Columns: row}); errors.Is(err, codec.ErrCorrupt) != (i == 0) {
			t.Errorf("domain %q: %v", domain, err)
		}
	}
}

// The rows of a part are those of its domains.
func TestWriterRejectsPartsWithOtherRows(t *testing.T) {
	for _, rows := range []int64{0, 2, 4} {
		w := NewWriter(&bytes.Buffer{}, 1, "b")
		if err := w.AddDomain([]byte("a"), &segment.Totals{Rows: rows}); err != nil {
			continue
		}
		if err := w.EndPart(&lake.Part{Rows: 3}, []int64{3}, nil); err == nil {
			t.Errorf("%d rows for 3: no error", rows)
		}
	}
}

// TestGolden reads a postings object as docs/formats/batch-postings.md describes it, without any
// code of this package, and compares a commented dump of every byte with testdata.
func TestGolden(t *testing.T) {
	var buf bytes.Buffer
	w := NewWriter(&buf, 3, "2026-11")
	domains := tinyDomains()
	for i, n := range []int{3, 1} {
		rows := int64(0)
		for _, d := range domains[:n] {
			if err := w.AddDomain([]byte(d.name), &d.totals); err != nil {
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
		blocks := [][]byte{fmt.Appendf(nil, "block %d.0", i), fmt.Appendf(nil, "block %d.1", i)}
		if err := w.EndPart(&p, groups, blocks); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}

	// The seek table has the compressed size of each frame.
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
	fmt.Fprintln(&out, "# Written by go test ./indexbuild/postings -run TestGolden -update")
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

// dumper writes a hex dump with comments.
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
