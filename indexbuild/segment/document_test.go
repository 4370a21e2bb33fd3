package segment

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/urlake/urlake/lake/blob"
)

var update = flag.Bool("update", false, "rewrite the dumps and the segment in testdata")

// tinyModel returns the segment of the examples in docs/formats.
func tinyModel() *model {
	m := &model{domains: map[string]map[uint32]*Posting{}, keyOf: KeyOf}
	file := func(dataset uint32, prefix, digest string, groups ...int64) {
		var rows int64
		for _, n := range groups {
			rows += n
		}
		m.groups = append(m.groups, groups)
		const path = "urls/dataset_id=%d/domain_prefix=%s/part-2026-11-%s-0.parquet"
		m.files = append(m.files, FileInfo{
			DatasetID: dataset, DomainPrefix: prefix, Batch: "2026-11", Bytes: 4096, Rows: rows,
			Path: fmt.Sprintf(path, dataset, prefix, strings.Repeat(digest, 32)),
		})
	}
	file(1, "any", "a", 40, 30)
	file(3, "any", "b", 25)
	const day = 86_400_000
	m.add("10.0.0.1", 1, Totals{Rows: 1, HasSize: true, Size: 300}, []Tuple{{0, 0, 0, 1}})
	m.add("example.com", 1,
		Totals{Rows: 59, HasSize: true, Size: 70_000_000, HasTS: true, FirstTS: 20_000 * day, LastTS: 20_365 * day},
		[]Tuple{{0, 0, 1, 39}, {0, 1, 0, 20}})
	m.add("example.com", 3,
		Totals{Rows: 20, HasSize: true, Size: 444, HasTS: true, FirstTS: 20_100 * day, LastTS: 20_101 * day},
		[]Tuple{{1, 0, 0, 20}})
	m.add("example.org", 1, Totals{Rows: 3, HasSize: true, Size: 512}, []Tuple{{0, 1, 20, 3}})
	m.add("test.co.uk", 1,
		Totals{Rows: 2, HasSize: true, Size: 407, HasTS: true, FirstTS: 20_007 * day, LastTS: 20_007 * day},
		[]Tuple{{0, 1, 23, 2}})
	m.add("test.co.uk", 3, Totals{Rows: 3}, []Tuple{{1, 0, 20, 3}})
	m.add("xn--bcher-kva.example", 1, Totals{Rows: 5, HasSize: true, Size: 350}, []Tuple{{0, 1, 25, 5}})
	m.add("xn--bcher-kva.example", 3, Totals{Rows: 2}, []Tuple{{1, 0, 23, 2}})
	return m
}

// dump reads bytes as docs/formats describes them, with no constant or function of the package, and
// writes them down with comments.
type dump struct {
	data []byte
	off  int
	out  strings.Builder
	err  error
}

func (d *dump) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
}

func (d *dump) note(format string, args ...any) { fmt.Fprintf(&d.out, "# "+format+"\n", args...) }

// take writes the next n bytes, 16 per line, and returns them.
func (d *dump) take(n int, format string, args ...any) []byte {
	if n < 0 || d.off+n > len(d.data) {
		d.fail("%s: %d bytes at %d of %d", format, n, d.off, len(d.data))
		return make([]byte, max(n, 0))
	}
	p := d.data[d.off:][:n]
	comment := fmt.Sprintf(format, args...)
	for i := 0; i < n; i += 16 {
		fmt.Fprintf(&d.out, "%06x  %-32x  %s\n", d.off+i, p[i:min(i+16, n)], comment)
		comment = "|"
	}
	d.off += n
	return p
}

func (d *dump) peek(n int) []byte { return d.data[min(d.off, len(d.data)):min(d.off+n, len(d.data))] }

func (d *dump) word(n int, what string) uint64 {
	var b [8]byte
	copy(b[:], d.peek(n))
	v := binary.LittleEndian.Uint64(b[:])
	format := "%s = %d"
	if n == 4 && v > 1<<24 || n == 8 && v > 1<<40 {
		format = "%s = %0" + strconv.Itoa(2*n) + "x"
	}
	d.take(n, format, what, v)
	return v
}

func (d *dump) uvarint(what string) uint64 {
	v, n := binary.Uvarint(d.peek(10))
	d.take(n, "%s = %d", what, v)
	return v
}

func (d *dump) varint(what string) int64 {
	v, n := binary.Varint(d.peek(10))
	d.take(n, "%s = %d", what, v)
	return v
}

func (d *dump) crc(from int, what string) {
	want := crc32.Checksum(d.data[from:min(d.off, len(d.data))], crc32.MakeTable(crc32.Castagnoli))
	if got := d.word(4, what); uint32(got) != want {
		d.fail("%s: %08x, want %08x", what, got, want)
	}
}

// bits takes n numbers of width bits, the lowest bit first.
func (d *dump) bits(n, width int, what string) []uint64 {
	start := d.off
	d.take((n*width+7)/8, "%s: %d × %d bits", what, n, width)
	values := make([]uint64, n)
	for i := range n * width {
		if at := start + i/8; at < len(d.data) && d.data[at]>>(i%8)&1 == 1 {
			values[i/width] |= 1 << (i % width)
		}
	}
	if n*width > 0 {
		fmt.Fprintf(&d.out, "#%39s  = %d\n", "", values)
	}
	return values
}

// column takes a packed column.
func (d *dump) column(n int, what string) []int64 {
	d.note("column of %s", what)
	base := d.varint("base")
	width := int(d.take(1, "width")[0])
	exceptions := int(d.uvarint("exceptions"))
	upper := 0
	if exceptions > 0 {
		upper = int(d.take(1, "upper")[0])
	}
	low := d.bits(n, width, "low bits")
	indexBits := 0
	for 1<<indexBits < n {
		indexBits++
	}
	if exceptions > 0 {
		at, more := d.bits(exceptions, indexBits, "indexes"), d.bits(exceptions, upper, "upper bits")
		for i := range at {
			low[at[i]] |= more[i] << width
		}
	}
	values := make([]int64, n)
	for i := range values {
		values[i] = base + int64(low[i])
	}
	fmt.Fprintf(&d.out, "#%39s%s: %d\n", "", what, values)
	return values
}

// some takes the bits that tell which entries have an optional value.
func (d *dump) some(p, n int, what string) []bool {
	has := make([]bool, n)
	var b []uint64
	if p == 2 {
		b = d.bits(n, 1, "entries with "+what)
	}
	for i := range has {
		has[i] = p == 1 || p == 2 && b[i] == 1
	}
	return has
}

func count(has []bool) (n int) {
	for _, h := range has {
		if h {
			n++
		}
	}
	return n
}

// documentEntry is an entry as a reader made after the documents knows it.
type documentEntry struct {
	domain         uint64
	check          uint64
	dataset        int64
	rows           int64
	size           *int64
	first, last    *int64
	file           int64
	group, row     int64
	offset, length int64
}

// block reads a block of postings.idx.
func (d *dump) block() []documentEntry {
	if string(d.take(4, "magic")) != "PDX1" || d.word(4, "ver") != 1 {
		d.fail("magic")
	}
	d.uvarint("shard")
	domains, n, files := int(d.uvarint("domains D")), int(d.uvarint("entries N")), int(d.uvarint("files F"))
	p := int(d.take(1, "presence of size | ts << 2 | payload << 4")[0])
	first := d.word(8, "first domain_id")
	lows := int(d.take(1, "L")[0])
	high := int(d.uvarint("H"))
	low := d.bits(domains, lows, "low bits of domain_id - first")
	upper := d.bits(high+domains, 1, "high bits of domain_id - first")
	var ids []uint64
	for at, bit := range upper {
		if i := len(ids); bit == 1 && i < len(low) {
			ids = append(ids, first+(uint64(at-i)<<lows|low[i]))
		}
	}
	var checks []uint64
	for i := range domains {
		checks = append(checks, d.word(4, fmt.Sprintf("domain %016x: check bits", ids[i])))
	}
	starts := make([]uint64, n)
	if domains == n {
		for i := range starts {
			starts[i] = 1
		}
	} else {
		starts = d.bits(n, 1, "first entries of a domain")
	}
	fileIDs, datasets := d.column(files, "file ids"), d.column(files, "their datasets")
	indexes, rows := d.column(n, "indexes in the file table"), d.column(n, "rows")
	entries := make([]documentEntry, n)
	domain := -1
	for i := range entries {
		domain += int(starts[i])
		entries[i] = documentEntry{
			domain: ids[domain], check: checks[domain], rows: rows[i],
			dataset: datasets[indexes[i]], file: fileIDs[indexes[i]],
		}
	}
	if p&3 != 0 {
		has := d.some(p&3, n, "size")
		sizes := d.column(count(has), "sizes")
		for i := range entries {
			if has[i] {
				entries[i].size, sizes = &sizes[0], sizes[1:]
			}
		}
	}
	if p>>2&3 != 0 {
		has := d.some(p>>2&3, n, "ts")
		base, unit := d.varint("base of ts"), int64(d.uvarint("unit of ts"))
		firsts := d.column(count(has), "(first ts - base) / unit")
		spans := d.column(count(has), "(last ts - first ts) / unit")
		for i := range entries {
			if has[i] {
				f := base + unit*firsts[0]
				l := f + unit*spans[0]
				entries[i].first, entries[i].last, firsts, spans = &f, &l, firsts[1:], spans[1:]
			}
		}
	}
	has := d.some(p>>4, n, "payload")
	payloads := count(has)
	var groups, firstRows, offsets, lengths []int64
	if payloads < n {
		groups, firstRows = d.column(n-payloads, "row groups"), d.column(n-payloads, "first rows")
	}
	if payloads > 0 {
		offsets, lengths = d.column(payloads, "payload offsets"), d.column(payloads, "payload lengths")
	}
	for i := range entries {
		if has[i] {
			entries[i].offset, entries[i].length, offsets, lengths = offsets[0], lengths[0], offsets[1:], lengths[1:]
		} else {
			entries[i].group, entries[i].row, groups, firstRows = groups[0], firstRows[0], groups[1:], firstRows[1:]
		}
	}
	d.crc(0, "CRC-32C")
	return entries
}

// payload reads one payload.
func (d *dump) payload() []Tuple {
	var tuples []Tuple
	var file, group uint64
	for i := range d.uvarint("tuples") {
		step := d.uvarint("file_id, plus")
		file += step
		if g := d.uvarint("  row_group"); i > 0 && step == 0 {
			group += g + 1
		} else {
			group = g
		}
		row := d.uvarint("  first_row")
		rows := d.uvarint("  rows less one") + 1
		tuples = append(tuples, Tuple{uint32(file), uint32(group), int64(row), int64(rows)})
		d.note("file %d, row group %d, rows %d to %d", file, group, row, row+rows)
	}
	return tuples
}

// frameFile reads a frame file, checks everything that a reader can check, and returns the contents
// of its frames and the fences. The dump shows the footer in detail; everything before it is zstd.
func (d *dump) frameFile(width int) (frames [][]byte, fences [][]byte) {
	data := d.data
	le := binary.LittleEndian
	foot := len(data) - 9
	n := int(le.Uint32(data[foot:]))
	table := foot - 12*n - 8
	fence := table
	if width > 0 {
		fence -= 8 + 16 + n*width + 4
	}
	at := 0
	for i := range n {
		at += int(le.Uint32(data[table+8+12*i:]))
		raw, err := zstdDecoder.DecodeAll(data[d.off:at], nil)
		if err != nil {
			d.fail("frame %d: %v", i, err)
			return nil, nil
		}
		d.take(at-d.off, "frame %d: zstd, %d bytes decompressed", i, len(raw))
		frames = append(frames, raw)
	}
	if d.off != fence {
		d.fail("footer at %d, want %d", d.off, fence)
	}
	if width > 0 {
		d.note("fences")
		d.word(4, "skippable frame")
		d.word(4, "its size")
		from := d.off
		d.take(4, `"FNCE"`)
		d.word(4, "ver")
		d.word(4, "frames")
		d.word(4, "width")
		for i := range n {
			fences = append(fences, d.take(width, "fence of frame %d", i))
		}
		d.crc(from, "CRC-32C")
	}
	d.note("seek table")
	d.word(4, "skippable frame")
	d.word(4, "its size")
	for i, raw := range frames {
		d.word(4, fmt.Sprintf("frame %d: compressed", i))
		d.word(4, "  decompressed")
		if sum := uint32(d.word(4, "  low half of xxh64")); sum != uint32(xxhash.Sum64(raw)) {
			d.fail("frame %d: checksum", i)
		}
	}
	d.word(4, "frames")
	d.take(1, "descriptor: with checksums")
	d.word(4, "magic")
	if d.off != len(data) {
		d.fail("%d bytes left", len(data)-d.off)
	}
	// Every zstd decoder skips the footer.
	whole, err := zstdDecoder.DecodeAll(data, nil)
	if err != nil || !bytes.Equal(whole, bytes.Join(frames, nil)) {
		d.fail("the file as one stream: %v", err)
	}
	return frames, fences
}

var zstdDecoder = func() *zstd.Decoder {
	dec, err := zstd.NewReader(nil)
	if err != nil {
		panic(err)
	}
	return dec
}()

// golden compares a dump with testdata.
func golden(t *testing.T, name, about string, d *dump) {
	t.Helper()
	if d.err != nil {
		t.Errorf("%s: %v", name, d.err)
	}
	if d.off != len(d.data) {
		t.Errorf("%s: %d of %d bytes described", name, d.off, len(d.data))
	}
	const header = "# %s\n# Written by go test ./indexbuild/segment -run TestGolden -update\n\n"
	text := fmt.Sprintf(header, about) + d.out.String()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text, "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// The pages of docs/formats describe every byte: a reader made from them alone finds the model in
// the files.
func TestGolden(t *testing.T) {
	m := tinyModel()
	store := blob.NewMemory()
	ref := m.write(t, store, 0)
	files := objects(t, store)
	file := func(name string) []byte { return files[Prefix(ref.ID)+name] }

	d := &dump{data: file(PostingsName(0))}
	frames, fences := d.frameFile(16)
	golden(t, "postings.idx.zst.txt", "postings/0000/postings.idx.zst: a frame file (docs/formats/segment.md)", d)
	block := &dump{data: frames[0]}
	entries := block.block()
	want0 := fmt.Sprintf("%016x%08x%08x", entries[0].domain, entries[0].check, entries[0].dataset)
	if fmt.Sprintf("%x", fences[0]) != want0 {
		t.Errorf("fence %x, want %s", fences[0], want0)
	}
	golden(t, "postings.idx.txt", "postings/0000/postings.idx.zst, decompressed: one block (docs/formats/postings.md)",
		block)

	d = &dump{data: file(PayloadsName(0))}
	frames, _ = d.frameFile(0)
	payloads := &dump{data: frames[0]}
	var tuples [][]Tuple
	offsets := map[int64]int{}
	for payloads.off < len(frames[0])-4 {
		offsets[int64(payloads.off)] = len(tuples)
		tuples = append(tuples, payloads.payload())
	}
	payloads.crc(0, "CRC-32C")
	golden(t, "postings.dat.txt", "postings/0000/postings.dat.zst, decompressed (docs/formats/postings.md)", payloads)

	want := m.postings()
	if len(entries) != len(want) {
		t.Fatalf("%d entries, want %d", len(entries), len(want))
	}
	for i, e := range entries {
		p := want[i]
		var got Posting
		got.Key, got.Dataset, got.Rows = Key{ID: e.domain, Check: uint32(e.check)}, uint32(e.dataset), e.rows
		if e.size != nil {
			got.HasSize, got.Size = true, *e.size
		}
		if e.first != nil {
			got.HasTS, got.FirstTS, got.LastTS = true, *e.first, *e.last
		}
		got.Tuples = []Tuple{{uint32(e.file), uint32(e.group), e.row, e.rows}}
		if e.length > 0 {
			got.Tuples = tuples[offsets[e.offset]]
		}
		if diff := cmp.Diff(*p, got, ignoreRows); diff != "" {
			t.Errorf("entry %d: %s", i, diff)
		}
	}

	d = &dump{data: file(MembershipName)}
	d.take(4, "magic")
	d.word(4, "ver")
	n := int(d.word(8, "N"))
	index := int(d.word(8, "index_offset"))
	d.note("bitmaps, in Roaring's portable form")
	for i := 0; d.off < index; i++ {
		from := d.off
		d.word(4, "cookie: no run containers")
		containers := int(d.word(4, "containers"))
		cards := 0
		for range containers {
			d.word(2, "key")
			cards += int(d.word(2, "cardinality less one")) + 1
		}
		for range containers {
			d.word(4, fmt.Sprintf("offset of the container from byte %06x", from))
		}
		for range cards {
			d.word(2, "dataset_id")
		}
	}
	d.note("index")
	for i := range n {
		d.word(8, fmt.Sprintf("ordinal %d, %s: start", i, m.names()[i]))
		d.word(4, "  length")
	}
	golden(t, "domain_to_datasets.roar.txt", "domain_to_datasets.roar (docs/formats/domain-to-datasets.md)", d)

	lines := func(names []string) string { return strings.Join(names, "\n") + "\n" }
	for _, f := range []struct{ name, want string }{
		{DomainsName, lines(m.names())}, {DomainStartsName, "\n"}, {ReversedName, lines(m.reversed())}, {ReversedStartsName, "\n"},
	} {
		d = &dump{data: file(f.name)}
		frames, _ = d.frameFile(0)
		if got := string(bytes.Join(frames, nil)); got != f.want {
			t.Errorf("%s: %q, want %q", f.name, got, f.want)
		}
		golden(t, f.name+".txt", f.name+" (docs/formats/domains.md)", d)
	}

	d = &dump{data: file(BatchesName)}
	frames, _ = d.frameFile(0)
	text := &dump{data: bytes.Join(frames, nil)}
	text.off = len(text.data)
	text.out.Write(text.data)
	golden(t, "batches.tsv.txt", "batches.tsv.zst, decompressed (docs/formats/files.md)", text)

	d = &dump{data: file(FilesName)}
	frames, fences = d.frameFile(8)
	if want := []byte{0, 0, 0, 0, 0, 0, 0, 1}; len(fences) != 1 || !bytes.Equal(fences[0], want) {
		t.Errorf("fences of files.tsv: %x, want %x", fences, want)
	}
	text = &dump{data: bytes.Join(frames, nil)}
	text.off = len(text.data)
	text.out.Write(text.data)
	golden(t, "files.tsv.txt", "files.tsv.zst, decompressed (docs/formats/files.md)", text)

	d = &dump{data: file(PartsName)}
	d.frameFile(16)
	golden(t, "parts.idx.zst.txt",
		"parts.idx.zst: page index blocks (docs/formats/parts-idx.md, docs/formats/page-index.md)", d)

	d = &dump{data: file(PageKeysName)}
	d.frameFile(16)
	golden(t, "parts.keys.zst.txt", "parts.keys.zst: page key blocks (docs/formats/page-keys.md)", d)

	text = &dump{data: file(InfoName)}
	text.off = len(text.data)
	text.out.Write(text.data)
	golden(t, "segment.json.txt", "segment.json (docs/formats/segment.md)", text)

	if *update {
		keep(t, ref, files)
	}
}

// keptSegment is the folder of the segment that keep writes.
func keptSegment() string { return filepath.Join("testdata", fmt.Sprintf("segment-v%d", Format)) }

// keep writes the segment below testdata, where it stays for as long as its format can be read.
func keep(t *testing.T, ref Ref, files map[string][]byte) {
	dir := keptSegment()
	if _, err := os.Stat(dir); err == nil {
		return // what was kept is never changed
	}
	data, err := json.MarshalIndent(ref, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{"ref.json": append(data, '\n')}
	for key, data := range files {
		out[strings.TrimPrefix(key, Prefix(ref.ID))] = data
	}
	for name, data := range out {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKeptSegment reads the segment in testdata, which stays as it is while the format does.
func TestKeptSegment(t *testing.T) {
	dir := keptSegment()
	data, err := os.ReadFile(filepath.Join(dir, "ref.json"))
	if err != nil {
		t.Fatal(err)
	}
	var ref Ref
	if err := json.Unmarshal(data, &ref); err != nil {
		t.Fatal(err)
	}
	store := blob.NewMemory()
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == "ref.json" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		_, err = store.Put(context.Background(), Prefix(ref.ID)+filepath.ToSlash(name), data, blob.Condition{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	m := tinyModel()
	for _, whole := range []bool{false, true} {
		s := mustOpen(t, store, ref, Options{WholeFiles: whole})
		if err := m.compare(s); err != nil {
			t.Error(err)
		}
		m.compareScans(t, s)
	}
	if err := m.compareBatches(store, ref); err != nil {
		t.Error(err)
	}
}

// compareBatches compares what ReadBatches yields with the model.
func (m *model) compareBatches(store blob.Store, ref Ref) error {
	var want, got []BatchSums
	for _, b := range m.batches() {
		sums := BatchSums{BatchRef: b}
		for _, f := range m.files {
			if f.DatasetID == b.DatasetID && f.Batch == b.Batch {
				sums.Rows, sums.Parts, sums.Bytes = sums.Rows+f.Rows, sums.Parts+1, sums.Bytes+f.Bytes
			}
		}
		want = append(want, sums)
	}
	for b, err := range ReadBatches(context.Background(), store, ref) {
		if err != nil {
			return err
		}
		got = append(got, b)
	}
	if d := cmp.Diff(want, got); d != "" {
		return fmt.Errorf("batches: %s", d)
	}
	return nil
}
