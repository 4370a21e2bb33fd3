package mph

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"hash/crc32"
	"math/big"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite testdata/tiny.mphf.txt")

// document reads a file as docs/formats/domains-mphf.md describes it, without a constant or
// function of the package, and writes the commented dump.
type document struct {
	data []byte
	off  int
	dump strings.Builder
	err  error

	seed, domainsXXH64, domains, keys, lines, fallback, side uint64
	bucketBits                                               uint32
	records                                                  []documentRecord
	bits                                                     [][480]bool
	samples                                                  []uint32
	fallbackKeys                                             []uint64
	sideTable                                                [][2]uint32
	buckets                                                  []documentBucket
}

type documentRecord struct {
	key            uint64
	check, ordinal uint32
}

type documentBucket struct {
	slot, line   uint64
	keys, levels uint32
	ends         []uint32
}

func (d *document) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
}

// bytes reads the next n bytes and dumps them with a comment, 16 bytes a line.
func (d *document) bytes(n int, comment string) []byte {
	if d.off+n > len(d.data) {
		d.fail("%s: file ends", comment)
		return make([]byte, n)
	}
	p := d.data[d.off:][:n]
	for i := 0; i < n; i += 16 {
		fmt.Fprintf(&d.dump, "%06x  %-32x  %s\n", d.off+i, p[i:min(i+16, n)], comment)
		comment = "|"
	}
	d.off += n
	return p
}

func (d *document) section(name string) {
	if n := (64 - d.off%64) % 64; n > 0 {
		if !bytes.Equal(d.bytes(n, "zeros up to the next section"), make([]byte, n)) {
			d.fail("padding before %s is not zero", name)
		}
	}
	fmt.Fprintf(&d.dump, "\n# %s\n", name)
}

func (d *document) u32(comment string) uint32 { return uint32(d.number(4, comment)) }
func (d *document) u64(comment string) uint64 { return d.number(8, comment) }

// number reads a little-endian number of n bytes and adds it to its comment.
func (d *document) number(n int, comment string) uint64 {
	v := uint64(0)
	for i, b := range d.data[min(d.off, len(d.data)):min(d.off+n, len(d.data))] {
		v |= uint64(b) << (8 * i)
	}
	format := "%s = %d"
	if v >= 1_000_000 {
		format = "%s = %#x"
	}
	d.bytes(n, fmt.Sprintf(format, comment, v))
	return v
}

func (d *document) zero(n int) {
	if !bytes.Equal(d.bytes(n, "zeros"), make([]byte, n)) {
		d.fail("zeros at %d are not", d.off-n)
	}
}

func readDocument(data []byte) *document {
	d := &document{data: data}
	// Counts are in the trailer, the last 120 bytes.
	t := data[len(data)-120:]
	count := func(off int) int { return int(binary.LittleEndian.Uint64(t[off:])) }
	buckets := 1 << binary.LittleEndian.Uint32(t[56:])
	var offsets []int
	begin := func(name string) {
		d.section(name)
		offsets = append(offsets, d.off)
	}

	fmt.Fprint(&d.dump, "# header\n")
	if got := string(d.bytes(4, `magic "MPHF"`)); got != "MPHF" {
		d.fail("magic %q", got)
	}
	if v := d.u32("ver"); v != 1 {
		d.fail("version %d", v)
	}
	d.zero(56)

	begin("records, in slot order")
	for i := range count(24) {
		d.records = append(d.records, documentRecord{
			d.u64(fmt.Sprintf("slot %d: key", i)), d.u32("  check"), d.u32("  ordinal"),
		})
	}
	begin("lines")
	for i := range count(32) {
		p := d.bytes(60, fmt.Sprintf("line %d: bits", i))
		var line [480]bool
		for j := range line {
			line[j] = p[j/8]>>(j%8)&1 == 1
		}
		d.bits = append(d.bits, line)
		d.samples = append(d.samples, d.u32("  sample: ones before"))
	}
	begin("fallback")
	for i := range count(40) {
		d.fallbackKeys = append(d.fallbackKeys, d.u64(fmt.Sprintf("key %d", i)))
	}
	begin("side table")
	for i := range count(48) {
		first := d.u32(fmt.Sprintf("entry %d: check, or the count of a group", i))
		d.sideTable = append(d.sideTable, [2]uint32{first, d.u32("  ordinal, or the mark of a count")})
	}
	begin("directory")
	directory := d.off
	for i := range buckets {
		b := documentBucket{
			slot: d.u64(fmt.Sprintf("bucket %d: first slot", i)), line: d.u64("  first line"),
			keys: d.u32("  keys"), levels: d.u32("  levels"),
		}
		for l := range b.levels {
			b.ends = append(b.ends, d.u32(fmt.Sprintf("  level %d ends before line", l)))
		}
		d.zero(4 * (42 - int(b.levels)))
		d.buckets = append(d.buckets, b)
	}

	d.section("trailer")
	trailer := d.off
	d.seed, d.domainsXXH64 = d.u64("seed"), d.u64("domains_xxh64")
	d.domains, d.keys, d.lines = d.u64("domains"), d.u64("keys"), d.u64("lines")
	d.fallback, d.side = d.u64("fallback"), d.u64("side")
	d.bucketBits = d.u32("bucket_bits")
	d.u32("gamma in hundredths")
	for i, name := range []string{"records", "lines", "fallback", "side table", "directory"} {
		if got := d.u64(name + " at"); got != uint64(offsets[i]) {
			d.fail("%s at %d, want %d", name, got, offsets[i])
		}
	}
	if size := d.u64("size of the file"); size != uint64(len(data)) {
		d.fail("size %d of %d", size, len(data))
	}
	var covered []byte
	covered = append(covered, data[:64]...)
	covered = append(covered, data[directory:trailer]...)
	covered = append(covered, data[trailer:trailer+112]...)
	want := crc32.Checksum(covered, crc32.MakeTable(crc32.Castagnoli))
	if got := d.u32("crc32c of header, directory and trailer up to here"); got != want {
		d.fail("crc %08x, want %08x", got, want)
	}
	if got := string(d.bytes(4, `magic "MPHF"`)); got != "MPHF" {
		d.fail("magic at end %q", got)
	}
	if d.off != len(data) {
		d.fail("%d bytes left over", len(data)-d.off)
	}
	return d
}

// mul returns both halves of the 128-bit product.
func (d *document) mul(a, b uint64) (hi, lo uint64) {
	p := new(big.Int).Mul(new(big.Int).SetUint64(a), new(big.Int).SetUint64(b))
	hi = new(big.Int).Rsh(p, 64).Uint64()
	lo = new(big.Int).And(p, new(big.Int).SetUint64(1<<64-1)).Uint64()
	return hi, lo
}

func (d *document) mum(a, b uint64) uint64 {
	hi, lo := d.mul(a, b)
	return hi ^ lo
}

// slot implements "From key to slot".
func (d *document) slot(key uint64) (uint64, bool) {
	a := key ^ d.seed
	h := d.mum(a, 0x9e3779b97f4a7c15)
	b := d.buckets[0]
	if d.bucketBits > 0 {
		b = d.buckets[h>>(64-d.bucketBits)]
	}
	h <<= d.bucketBits
	start := uint32(0)
	for l, end := range b.ends {
		if l > 0 {
			factor := uint64(0x9e3779b97f4a7c15)
			for range l {
				factor += 0xd1b54a32d192ed02
			}
			h = d.mum(a, factor)
		}
		line, low := d.mul(h, uint64(end-start))
		bit, _ := d.mul(low, 480)
		at := b.line + uint64(start) + line
		if d.bits[at][bit] {
			slot := b.slot + uint64(d.samples[at])
			for i := range bit {
				if d.bits[at][i] {
					slot++
				}
			}
			return slot, true
		}
		start = end
	}
	for i, k := range d.fallbackKeys {
		if k == key {
			return d.keys - d.fallback + uint64(i), true
		}
	}
	return 0, false
}

// lookup implements "From record to ordinal".
func (d *document) lookup(key uint64, check uint32) (uint32, bool) {
	slot, ok := d.slot(key)
	if !ok || d.records[slot].key != key {
		return 0, false
	}
	r := d.records[slot]
	if r.ordinal != 0xffffffff {
		return r.ordinal, r.check == check
	}
	group := d.sideTable[r.check+1:][:d.sideTable[r.check][0]]
	for _, e := range group {
		if e[0] == check {
			return e[1], true
		}
	}
	return 0, false
}

func TestDocumentDescribesTheFile(t *testing.T) {
	for _, n := range []int{0, 1, 100, 3000} {
		for _, bucketKeys := range []int{1 << 20, 400} {
			keys := append(randomKeys(n), sharedKeys(n/50, 3)...)
			data, stats := setup{Options{Seed: 0xfeed_5eed_0123_4567}, bucketKeys, memoryKeys}.build(t, keys)
			d := readDocument(data)
			if d.err != nil {
				t.Fatal(d.err)
			}
			if d.domainsXXH64 != testXXH64 || d.domains != uint64(len(keys)) || d.seed != 0xfeed_5eed_0123_4567 {
				t.Errorf("trailer of %d domains: %x, %d, %x", len(keys), d.domainsXXH64, d.domains, d.seed)
			}
			want := Stats{
				Domains: len(keys), Keys: len(d.records), Buckets: len(d.buckets),
				LevelBytes: int64(len(d.bits)) * 64, Fallback: len(d.fallbackKeys), Shared: n / 50 * 3, Bytes: int64(len(data)),
			}
			for _, b := range d.buckets {
				want.Levels = max(want.Levels, int(b.levels))
			}
			if diff := cmp.Diff(want, stats); diff != "" {
				t.Error(diff)
			}
			table := open(t, data, keys)
			for i, k := range append(append([]Key{}, keys...), absentKeys(keys)...) {
				ordinal, ok := d.lookup(k.ID, k.Check)
				if ok != (i < len(keys)) || ok && ordinal != uint32(i) {
					t.Fatalf("key %d of %d: %d, %v", i, len(keys), ordinal, ok)
				}
				slot, ok := d.slot(k.ID)
				if got, gotOK, err := table.Slot(k.ID); got != slot || gotOK != ok || err != nil {
					t.Fatalf("slot of %x: %d, %v, %v, want %d, %v", k.ID, got, gotOK, err, slot, ok)
				}
			}
		}
	}
}

const goldenFile = "testdata/tiny.mphf.txt"

// tinyNames returns the domains of the golden file in the order of their ordinals.
func tinyNames(tb testing.TB) []string {
	c := collidingNames(tb)
	return []string{c[1], "example.com", "example.org", c[0], "xn--bcher-kva.example"}
}

func TestGoldenDump(t *testing.T) {
	names := tinyNames(t)
	keys := nameKeys(names)
	data, _ := setup{Options{Seed: 7}, bucketKeys, memoryKeys}.build(t, keys)
	d := readDocument(data)
	if d.err != nil {
		t.Fatal(d.err)
	}
	var header strings.Builder
	fmt.Fprintf(&header, "# domains.mphf, version 1: a file byte by byte (docs/formats/domains-mphf.md)\n")
	fmt.Fprintf(&header, "# Written by go test ./indexbuild/mph -run TestGoldenDump -update\n#\n# ordinal, key, check bits, domain:\n")
	for i, name := range names {
		fmt.Fprintf(&header, "# %d %016x %08x %s\n", i, keys[i].ID, keys[i].Check, name)
	}
	got := header.String() + "\n" + d.dump.String()
	if *update {
		if err := os.WriteFile(goldenFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("dump differs; if the format was to change, read the difference and run with -update:\n%s", diff)
	}
}

// The dump is also a file of version 1, which every later reader must read.
func TestGoldenFileIsRead(t *testing.T) {
	text, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	var data []byte
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		p, err := hex.DecodeString(strings.TrimSpace(line[8:40]))
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, p...)
	}
	keys := nameKeys(tinyNames(t))
	checkAnswers(t, open(t, data, keys), keys)
}
