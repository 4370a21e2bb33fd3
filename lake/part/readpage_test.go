package part

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go/encoding/delta"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/zstdtext"
)

// onePage is a block of one page of rows rows of col, with the checksum of raw.
func onePage(col Column, rows int, raw []byte) *PageIndexBlock {
	b := &NewPageIndex(0, []int64{0, int64(rows)})[0]
	b.SetPage(col, 0, 4, int64(len(raw)), codec.CRC32C(raw))
	return b
}

// FuzzDecodePage decodes arbitrary bytes with a correct checksum.
func FuzzDecodePage(f *testing.F) {
	_, p, data := smallPart(f)
	b := &p.Blocks[0]
	for c := range Column(NumColumns) {
		for i := range b.Pages() {
			rows := uint16(b.PageStart(i+1) - b.PageStart(i))
			f.Add(uint8(c), rows, uint16(1), uint16(2), data[b.PageOffset(c, i):b.PageOffset(c, i+1)])
		}
	}
	f.Fuzz(func(t *testing.T, col uint8, rows, from, n uint16, raw []byte) {
		if int(col) >= NumColumns || len(raw) == 0 {
			return
		}
		c := Column(col)
		plan, err := NewPlan(onePage(c, int(rows), raw), int64(from), int64(n), c)
		if err != nil {
			return
		}
		got, err := plan.Decode("part", [][]byte{raw})
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		if got.Rows != int(n) {
			t.Fatalf("%d rows of %d", got.Rows, n)
		}
	})
}

// page encodes a page of numbers with a correct Parquet checksum.
func page(h pageHeader, rows int, body []byte) []byte {
	return testPage(h, rows, encodingPlain, body)
}

// stringsPage builds a page of text as DELTA_BYTE_ARRAY.
func stringsPage(prefixes, suffixes []int32, text string) []byte {
	body := append(slices.Concat(deltaPacked(prefixes...), deltaPacked(suffixes...)), text...)
	return testPage(pageHeader{Uncompressed: len(body)}, len(prefixes), encodingDeltaByteArray, body)
}

// longStrings is a page of n strings of nearly maxPageBytes each, no two equal.
func longStrings(n int) []byte {
	prefixes, suffixes := make([]int32, n), make([]int32, n)
	text := strings.Repeat("a", maxPageBytes/2) + strings.Repeat("b", n-1)
	suffixes[0] = maxPageBytes / 2
	for i := 1; i < n; i++ {
		prefixes[i], suffixes[i] = maxPageBytes/2-1, 1
	}
	return stringsPage(prefixes, suffixes, text)
}

func TestPagesThatDisagreeWithTheirHeaderAreRejected(t *testing.T) {
	u32 := func(n ...uint32) (b []byte) {
		for _, v := range n {
			b = binary.LittleEndian.AppendUint32(b, v)
		}
		return b
	}
	for name, tc := range map[string]struct {
		col  Column
		rows int
		raw  []byte
		ok   bool
	}{
		"numbers": {ColDatasetID, 2, page(
			pageHeader{Uncompressed: 8}, 2, u32(1, 2),
		), true},
		"too few numbers": {ColDatasetID, 2, page(pageHeader{Uncompressed: 4}, 2, u32(1)), false},
		"too many numbers": {ColDatasetID, 2, page(
			pageHeader{Uncompressed: 12}, 2, u32(1, 2, 3),
		), false},
		"other rows than the index": {ColDatasetID, 2, page(pageHeader{Uncompressed: 4}, 1, u32(1)), false},
		"wrong uncompressed size": {ColDatasetID, 2, page(
			pageHeader{Uncompressed: 9}, 2, u32(1, 2),
		), false},
		"not zstd": {ColDatasetID, 2, page(
			pageHeader{Uncompressed: 8, Zstd: true}, 2, u32(1, 2),
		), false},
		"zstd where there is none": {ColURLID, 1, page(
			pageHeader{Uncompressed: 8, Zstd: true}, 1, new(zstdtext.Encoder).Append(nil, nil, make([]byte, 8)),
		), false},
		"nulls in a required column": {ColDatasetID, 2, page(
			pageHeader{Uncompressed: 4, Nulls: 1}, 2, u32(1),
		), false},
		"levels in a required column": {ColDatasetID, 2, page(
			pageHeader{Uncompressed: 10, Levels: 2}, 2, append([]byte{4, 1}, u32(1, 2)...),
		), false},
		"strings": {ColHost, 3, stringsPage([]int32{0, 1, 2}, []int32{1, 1, 0}, "ab"), true},
		"plain strings": {ColHost, 1, page(
			pageHeader{Uncompressed: 5}, 1, append(u32(1), 'a'),
		), false},
		"delta of numbers": {ColDatasetID, 1, testPage(
			pageHeader{Uncompressed: 4}, 1, encodingDeltaByteArray, u32(1),
		), false},
		"a suffix too long":       {ColHost, 2, stringsPage([]int32{0, 0}, []int32{1, 2}, "ab"), false},
		"a prefix of the first":   {ColHost, 1, stringsPage([]int32{1}, []int32{1}, "a"), false},
		"a prefix too long":       {ColHost, 2, stringsPage([]int32{0, 2}, []int32{1, 1}, "ab"), false},
		"a prefix below zero":     {ColHost, 2, stringsPage([]int32{0, -1}, []int32{1, 1}, "ab"), false},
		"a suffix below zero":     {ColHost, 2, stringsPage([]int32{0, 1}, []int32{2, -1}, "a"), false},
		"a string of 2 GiB":       {ColHost, 1, stringsPage([]int32{0}, []int32{math.MaxInt32}, ""), false},
		"bytes after the strings": {ColHost, 1, stringsPage([]int32{0}, []int32{1}, "ab"), false},
		"strings of 16 TiB":       {ColHost, 1 << 20, longStrings(1 << 20), false},
		"more lengths than rows": {ColHost, 1, testPage(
			pageHeader{Uncompressed: 17}, 1, encodingDeltaByteArray,
			slices.Concat(deltaPacked(0, 0), deltaPacked(0, 0)),
		), false},
		"half of the lengths": {ColHost, 1, testPage(
			pageHeader{Uncompressed: 5}, 1, encodingDeltaByteArray, deltaPacked(0),
		), false},
		"levels": {ColPort, 3, page(
			pageHeader{Uncompressed: 6, Levels: 2, Nulls: 2}, 3, append([]byte{3, 2}, u32(80)...),
		), true},
		"runs of levels": {ColPort, 3, page(
			pageHeader{Uncompressed: 8, Levels: 4, Nulls: 2}, 3, append([]byte{4, 0, 2, 1}, u32(80)...),
		), true},
		"all null": {ColPort, 3, page(
			pageHeader{Uncompressed: 2, Levels: 2, Nulls: 3}, 3, []byte{6, 0},
		), true},
		"a wrong number of nulls": {ColPort, 3, page(
			pageHeader{Uncompressed: 10, Levels: 2, Nulls: 1}, 3, append([]byte{3, 2}, u32(80, 81)...),
		), false},
		"too few levels": {ColPort, 3, page(
			pageHeader{Uncompressed: 2, Levels: 2, Nulls: 3}, 3, []byte{4, 0},
		), false},
		"too many levels": {ColPort, 3, page(
			pageHeader{Uncompressed: 2, Levels: 2, Nulls: 3}, 3, []byte{8, 0},
		), false},
		"a level of two": {ColPort, 3, page(
			pageHeader{Uncompressed: 2, Levels: 2, Nulls: 3}, 3, []byte{6, 2},
		), false},
		"an empty run": {ColPort, 3, page(
			pageHeader{Uncompressed: 4, Levels: 4, Nulls: 3}, 3, []byte{0, 0, 6, 0},
		), false},
		"more levels than there are": {ColPort, 3, page(
			pageHeader{Uncompressed: 4, Levels: 4, Nulls: 3}, 3, []byte{6, 0, 6, 0},
		), false},
		"groups past the end": {ColPort, 3, page(
			pageHeader{Uncompressed: 3, Levels: 3, Nulls: 3}, 3, []byte{5, 0, 0},
		), false},
		"no levels": {ColPort, 3, page(
			pageHeader{Uncompressed: 12}, 3, u32(1, 2, 3),
		), false},
		"a negative port": {ColPort, 1, page(
			pageHeader{Uncompressed: 6, Levels: 2}, 1, append([]byte{2, 1}, u32(0xffffffff)...),
		), false},
		"a port too high": {ColPort, 1, page(
			pageHeader{Uncompressed: 6, Levels: 2}, 1, append([]byte{2, 1}, u32(1<<16)...),
		), false},
		"a time in whole milliseconds": {ColTS, 1, page(
			pageHeader{Uncompressed: 10, Levels: 2}, 1, append([]byte{2, 1}, u32(2000, 0)...),
		), true},
		"a part of a millisecond": {ColTS, 1, page(
			pageHeader{Uncompressed: 10, Levels: 2}, 1, append([]byte{2, 1}, u32(2001, 0)...),
		), false},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := NewPlan(onePage(tc.col, tc.rows, tc.raw), 0, int64(tc.rows), tc.col)
			if err != nil {
				t.Fatal(err)
			}
			_, err = plan.Decode("part", [][]byte{tc.raw})
			if tc.ok && err != nil || !tc.ok && !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// deltaPacked is values as DELTA_BINARY_PACKED, written by parquet-go.
func deltaPacked(values ...int32) []byte {
	b, err := (&delta.BinaryPackedEncoding{}).EncodeInt32(nil, values)
	if err != nil {
		panic(err)
	}
	return b
}

// DELTA_BINARY_PACKED of parquet-go is read, and no truncation of it; and parquet-go reads ours.
func TestDeltaPackedAgreesWithParquetGo(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 1))
	for n := range 400 {
		values := make([]int32, n)
		for i := range values {
			switch n % 4 {
			case 0:
				values[i] = rng.Int32N(60)
			case 1:
				values[i] = int32(rng.Uint32())
			case 2:
				values[i] = int32(n)
			case 3:
				values[i] = []int32{math.MinInt32, math.MaxInt32, 0, -1}[rng.IntN(4)]
			}
		}
		byOther, err := (&delta.BinaryPackedEncoding{}).DecodeInt32(nil, appendDeltaPacked(nil, values))
		if err != nil || !slices.Equal(byOther, values) {
			t.Fatalf("%d values: parquet-go: %v, %s", n, err, cmp.Diff(values, byOther))
		}
		data := deltaPacked(values...)
		got, rest, ok := readDeltaPacked(nil, append(slices.Clip(data), "rest"...), n)
		if !ok || string(rest) != "rest" || !slices.Equal(got, values) {
			t.Fatalf("%d values: read %v, %q behind them: %s", n, ok, rest, cmp.Diff(values, got))
		}
		for cut := range data {
			if _, _, ok := readDeltaPacked(nil, data[:cut], n); ok {
				t.Fatalf("%d values read from %d of %d bytes", n, cut, len(data))
			}
		}
	}
}

// stringsBody is the body of a page of values as DELTA_BYTE_ARRAY.
func stringsBody(values []string) []byte {
	var prefixes, suffixes []int32
	var text []byte
	last := ""
	for _, v := range values {
		n := codec.CommonPrefix([]byte(last), []byte(v))
		prefixes, suffixes = append(prefixes, int32(n)), append(suffixes, int32(len(v)-n))
		text = append(text, v[n:]...)
		last = v
	}
	return slices.Concat(deltaPacked(prefixes...), deltaPacked(suffixes...), text)
}

// FuzzAppendStrings decodes arbitrary bytes. Some rows decode as they do among all rows, and what
// was decoded survives being encoded and decoded again.
func FuzzAppendStrings(f *testing.F) {
	f.Add(stringsBody([]string{"/", "/a", "/a/b", "/a/b", "/b", ""}), 6, 1, 4)
	f.Add([]byte{}, 0, 0, 0)
	many := make([]string, 700)
	for i := range many {
		many[i] = strings.Repeat("x", i*i%150) + strconv.Itoa(i*i%11)
	}
	f.Add(stringsBody(many), len(many), 1, 400)
	f.Fuzz(func(t *testing.T, data []byte, n, lo, hi int) {
		if n < 0 || n > 1000 || lo < 0 || lo > hi || hi > n {
			return
		}
		var d pageDecoder
		var all, some, again []string
		ok := d.appendStrings(&all, data, nil, n, 0, n)
		// Only the memory limit depends on the rows, and little data does not reach it.
		if d.appendStrings(&some, data, nil, n, lo, hi) != ok && len(data) < 1<<10 {
			t.Fatalf("all rows: %v, rows %d to %d otherwise", ok, lo, hi)
		}
		if !ok {
			return
		}
		if !slices.Equal(some, all[lo:hi]) {
			t.Fatalf("rows %d to %d: %q, want %q", lo, hi, some, all[lo:hi])
		}
		if !d.appendStrings(&again, stringsBody(all), nil, n, 0, n) || !slices.Equal(all, again) {
			t.Fatalf("%q encoded and decoded is %q", all, again)
		}
	})
}

func BenchmarkAppendStrings(b *testing.B) {
	var paths []string
	for _, r := range realRows(b)[:PageRows] {
		paths = append(paths, r.PathQuery)
	}
	values := stringsBody(paths)
	n := len(paths)
	var d pageDecoder
	var out []string
	for b.Loop() {
		out = out[:0]
		if !d.appendStrings(&out, values, nil, n, 0, n) {
			b.Fatal("not read")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/row")
	b.SetBytes(int64(len(values)))
}
