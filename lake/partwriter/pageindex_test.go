package partwriter

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/partreader"
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/lake/zstdtext"
)

var updateGolden = flag.Bool("update", false, "rewrite golden files; read the difference before committing it")

var allColumns = func() []part.Column {
	var all []part.Column
	for c := range part.Column(part.NumColumns) {
		all = append(all, c)
	}
	return all
}()

// columnRows turns columns that hold everything back into rows.
func columnRows(c *part.Columns) []fileRow {
	out := make([]fileRow, c.Rows)
	for i := range out {
		out[i] = fileRow{
			Row: row.Row{
				Domain: c.Domain[i], Host: c.Host[i], PathQuery: c.PathQuery[i], Scheme: c.Scheme[i], Port: c.Port[i],
				TS: c.TS[i], HasTS: c.HasTS[i], Size: c.Size[i], HasSize: c.HasSize[i], Extras: c.Extras[i], RawURL: c.RawURL[i],
			},
			DatasetID: c.DatasetID[i], Batch: c.Batch[i], DomainID: c.DomainID[i], URLID: c.URLID[i],
			NullRaw: c.RawURL[i] == "", NullExt: c.Extras[i] == "",
		}
	}
	return out
}

// readRange reads rows [from, to) of a part as lookups do: one plan per block.
func readRange(t *testing.T, store blob.Store, p part.Written, from, to int64) []fileRow {
	t.Helper()
	got := new(part.Columns)
	var row int64 // of the part
	for i := range p.Blocks {
		b := &p.Blocks[i]
		lo, hi := max(from, row), min(to, row+b.Rows())
		if lo < hi {
			plan, err := partreader.NewPlan(b, b.FirstRow+lo-row, hi-lo, allColumns...)
			if err != nil {
				t.Fatal(err)
			}
			var data [][]byte
			for _, r := range plan.Ranges {
				raw, err := store.ReadRange(context.Background(), p.Part.Key, r.Offset, r.Bytes)
				if err != nil {
					t.Fatal(err)
				}
				data = append(data, raw)
			}
			if err := plan.AppendTo(got, p.Part.Key, data); err != nil {
				t.Fatal(err)
			}
		}
		row += b.Rows()
	}
	return columnRows(got)
}

func TestPageReaderAgreesWithParquetGo(t *testing.T) {
	rng := rand.New(rand.NewPCG(20, 1))
	for _, tc := range partCases() {
		t.Run(tc.name, func(t *testing.T) {
			store, parts := writeParts(t, tc.rows, testOptions(t, tc.lim))
			for _, p := range parts {
				want := readParquetGo(t, partBytes(t, store, p))
				n := int64(len(want))
				if diff := cmp.Diff(want, readRange(t, store, p, 0, n)); diff != "" {
					t.Fatalf("all rows (-parquet-go +page reader):\n%s", diff)
				}
				for range 30 {
					from := rng.Int64N(n)
					to := from + 1 + rng.Int64N(min(200, n-from))
					if diff := cmp.Diff(want[from:to], readRange(t, store, p, from, to)); diff != "" {
						t.Fatalf("rows %d to %d (-parquet-go +page reader):\n%s", from, to, diff)
					}
				}
			}
		})
	}
}

func TestBuildPageIndexFindsWhatWasWritten(t *testing.T) {
	for _, tc := range partCases() {
		store, parts := writeParts(t, tc.rows, testOptions(t, tc.lim))
		for _, p := range parts {
			data := partBytes(t, store, p)
			blocks, err := part.BuildPageIndex(bytes.NewReader(data), int64(len(data)), p.Part.Key)
			if err != nil {
				t.Fatalf("%s: %v", tc.name, err)
			}
			if diff := cmp.Diff(p.Blocks, blocks, cmp.AllowUnexported(part.PageIndexBlock{}, part.PageRun{})); diff != "" {
				t.Errorf("%s: %s", tc.name, diff)
			}
			var rows int64
			for i := range blocks {
				if blocks[i].Pages() > part.PageIndexPages {
					t.Errorf("%s: block of %d pages", tc.name, blocks[i].Pages())
				}
				rows += blocks[i].Rows()
			}
			if rows != p.Part.Rows {
				t.Errorf("%s: blocks of %d rows, the part has %d", tc.name, rows, p.Part.Rows)
			}
		}
	}
}

func TestReadColumnsFillsOnlyWhatIsAsked(t *testing.T) {
	rows := testRows(21, 3000, someNull)
	store, parts := writeParts(t, rows, testOptions(t, part.Limits{}))
	p := parts[0]
	b := &p.Blocks[0]
	want := wantFileRows(rows)
	for _, cols := range [][]part.Column{
		{part.ColHost, part.ColTS, part.ColScheme, part.ColPort, part.ColPathQuery},
		{part.ColDomain, part.ColTS, part.ColSize},
		{part.ColPort}, {part.ColScheme}, {part.ColPort, part.ColScheme}, {part.ColURLID, part.ColURLID}, nil,
	} {
		got, err := partreader.ReadColumns(context.Background(), store, p.Part.Key, b, 2000, 100, cols...)
		if err != nil {
			t.Fatal(err)
		}
		expect := &part.Columns{Rows: 100}
		for _, r := range want[2000:2100] {
			for _, c := range slices.Compact(slices.Clone(cols)) {
				switch c {
				case part.ColHost:
					expect.Host = append(expect.Host, r.Host)
				case part.ColTS:
					expect.TS, expect.HasTS = append(expect.TS, r.TS), append(expect.HasTS, r.HasTS)
				case part.ColSize:
					expect.Size, expect.HasSize = append(expect.Size, r.Size), append(expect.HasSize, r.HasSize)
				case part.ColScheme:
					expect.Scheme = append(expect.Scheme, r.Scheme)
				case part.ColPort:
					expect.Port = append(expect.Port, r.Port)
				case part.ColPathQuery:
					expect.PathQuery = append(expect.PathQuery, r.PathQuery)
				case part.ColDomain:
					expect.Domain = append(expect.Domain, r.Domain)
				case part.ColURLID:
					expect.URLID = append(expect.URLID, r.URLID)
				}
			}
		}
		if diff := cmp.Diff(expect, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", cols, diff)
		}
	}
}

func TestPlanAsksForOneRangeAColumn(t *testing.T) {
	rows := testRows(22, 4000, someNull)
	_, parts := writeParts(t, rows, testOptions(t, part.Limits{PageRows: 64}))
	b := &parts[0].Blocks[0]
	plan, err := partreader.NewPlan(b, 1000, 100, part.ColTS, part.ColPathQuery, part.ColPort, part.ColHost, part.ColScheme)
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Ranges) != 4 {
		t.Errorf("%d ranges, want 4: scheme with port, host, ts, path_query", len(plan.Ranges))
	}
	for i := 1; i < len(plan.Ranges); i++ {
		if plan.Ranges[i].Offset < plan.Ranges[i-1].Offset+plan.Ranges[i-1].Bytes {
			t.Error("ranges overlap")
		}
	}
	for _, bad := range [][2]int64{{-1, 5}, {0, 0}, {0, -1}, {0, b.Rows() + 1}, {b.Rows(), 1}, {5, 1 << 62}, {-1 << 63, 1}} {
		if _, err := partreader.NewPlan(b, bad[0], bad[1], part.ColHost); err == nil {
			t.Errorf("rows %v planned", bad)
		}
	}
	for _, c := range []part.Column{-1, part.Column(part.NumColumns)} {
		if _, err := partreader.NewPlan(b, 0, 1, c); err == nil {
			t.Errorf("%v planned", c)
		}
	}
}

func TestDecodeRefusesOtherBytesThanPlanned(t *testing.T) {
	_, parts := writeParts(t, sameSite(10), testOptions(t, part.Limits{}))
	plan, err := partreader.NewPlan(&parts[0].Blocks[0], 0, 10, part.ColHost, part.ColPathQuery)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Decode("part", nil); err == nil {
		t.Error("no ranges accepted")
	}
	short := [][]byte{make([]byte, plan.Ranges[0].Bytes), make([]byte, plan.Ranges[1].Bytes-1)}
	if _, err := plan.Decode("part", short); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("short range: %v", err)
	}
}

// smallPart is a part of a few rows with all kinds of pages.
func smallPart(tb testing.TB) (*blob.Memory, part.Written, []byte) {
	store, parts := writeParts(tb, testRows(23, 12, someNull), testOptions(tb, part.Limits{PageRows: 5}))
	return store, parts[0], partBytes(tb, store, parts[0])
}

func TestFlippedBitsInAPartAreNoticed(t *testing.T) {
	t.Parallel()
	_, p, data := smallPart(t)
	want := readParquetGo(t, data)
	b := &p.Blocks[0]
	plan, err := partreader.NewPlan(b, 0, b.Rows(), allColumns...)
	if err != nil {
		t.Fatal(err)
	}
	end := b.Cols[part.NumColumns-1].Offs[b.Pages()]
	for i := range data {
		for bit := range 8 {
			data[i] ^= 1 << bit
			var ranges [][]byte
			for _, r := range plan.Ranges {
				ranges = append(ranges, data[r.Offset:r.Offset+r.Bytes])
			}
			got, err := plan.Decode("part", ranges)
			inPages := i >= len(part.ParquetMagic) && int64(i) < end
			var c *codec.CorruptError
			switch {
			case inPages && !errors.As(err, &c):
				t.Fatalf("byte %d bit %d: %v", i, bit, err)
			case inPages && (c.File != "part" || c.Offset < 0 || c.Offset > int64(i)):
				t.Fatalf("byte %d bit %d reported as %v", i, bit, c)
			case !inPages && err != nil:
				t.Fatalf("byte %d bit %d is outside the pages: %v", i, bit, err)
			case !inPages && !cmp.Equal(want, columnRows(got)):
				t.Fatalf("byte %d bit %d changed rows", i, bit)
			}
			// From the file alone, what Parquet's checksums cover is noticed, and nothing panics.
			if blocks, err := part.BuildPageIndex(bytes.NewReader(data), int64(len(data)), "part"); err != nil && !errors.Is(err, codec.ErrCorrupt) {
				t.Fatalf("byte %d bit %d: %v", i, bit, err)
			} else if err == nil && !slices.EqualFunc(blocks, p.Blocks, func(x, y part.PageIndexBlock) bool { return cmp.Equal(x.Starts, y.Starts) }) {
				t.Fatalf("byte %d bit %d changed the rows of pages", i, bit)
			}
			data[i] ^= 1 << bit
		}
	}
}

func TestTruncatedPartsAreRefused(t *testing.T) {
	_, _, data := smallPart(t)
	for n := range data {
		if _, err := part.BuildPageIndex(bytes.NewReader(data[:n]), int64(n), "part"); !errors.Is(err, codec.ErrCorrupt) {
			t.Fatalf("%d of %d bytes: %v", n, len(data), err)
		}
		if _, err := part.BuildPageIndex(bytes.NewReader(data[:n]), int64(len(data)), "part"); err == nil {
			t.Fatalf("%d of %d bytes read as all", n, len(data))
		}
	}
}

func TestReadColumnsOfAShortObjectFails(t *testing.T) {
	ctx := context.Background()
	store, p, data := smallPart(t)
	b := &p.Blocks[0]
	for n := range data {
		if _, err := store.Put(ctx, "short", data[:n], blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		_, err := partreader.ReadColumns(ctx, store, "short", b, 0, b.Rows(), part.ColExtras)
		if whole := int64(n) >= b.Cols[part.ColExtras].Offs[b.Pages()]; whole != (err == nil) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	if _, err := partreader.ReadColumns(ctx, store, "absent", b, 0, 1, part.ColHost); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("absent part: %v", err)
	}
}

func TestPageIndexBlockRoundTrip(t *testing.T) {
	for _, tc := range partCases() {
		_, parts := writeParts(t, tc.rows, testOptions(t, tc.lim))
		for _, p := range parts {
			for i := range p.Blocks {
				b := &p.Blocks[i]
				data := b.Append([]byte("before"))[len("before"):]
				got, err := part.DecodePageIndexBlock(data, "parts.idx")
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(b, got, cmp.AllowUnexported(part.PageIndexBlock{}, part.PageRun{})); diff != "" {
					t.Fatal(diff)
				}
			}
		}
	}
}

func TestPageIndexBlockTruncatedOrLonger(t *testing.T) {
	_, p, _ := smallPart(t)
	data := p.Blocks[0].Append(nil)
	for n := range data {
		if _, err := part.DecodePageIndexBlock(data[:n], "parts.idx"); !errors.Is(err, codec.ErrCorrupt) {
			t.Fatalf("%d of %d bytes: %v", n, len(data), err)
		}
	}
	if _, err := part.DecodePageIndexBlock(append(data, 0), "parts.idx"); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("a byte more: %v", err)
	}
}

func FuzzDecodePageIndexBlock(f *testing.F) {
	_, p, _ := smallPart(f)
	f.Add(p.Blocks[0].Append(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := part.DecodePageIndexBlock(data, "parts.idx")
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		if again := b.Append(nil); !bytes.Equal(again, data) {
			t.Fatalf("%x decodes to what encodes as %x", data, again)
		}
		plan, err := partreader.NewPlan(b, b.FirstRow, b.Rows(), allColumns...)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range plan.Ranges {
			if r.Offset < 0 || r.Bytes <= 0 {
				t.Fatalf("range %+v", r)
			}
		}
	})
}

// onePage is a block of one page of rows rows of col, with the checksum of raw.
func onePage(col part.Column, rows int, raw []byte) *part.PageIndexBlock {
	b := part.NewPageIndexBlock(0, 0, 1)
	b.Starts[1] = int64(rows)
	b.Cols[col].Offs[0], b.Cols[col].Offs[1] = 4, 4+int64(len(raw))
	b.Cols[col].Sums[0] = codec.CRC32C(raw)
	return b
}

// FuzzDecodePage gives the page decoder bytes whose checksum is right.
func FuzzDecodePage(f *testing.F) {
	_, p, data := smallPart(f)
	b := &p.Blocks[0]
	for c := range part.Column(part.NumColumns) {
		offs := b.Cols[c].Offs
		for i := range b.Pages() {
			f.Add(uint8(c), uint16(b.Starts[i+1]-b.Starts[i]), uint16(1), uint16(2), data[offs[i]:offs[i+1]])
		}
	}
	f.Fuzz(func(t *testing.T, col uint8, rows, from, n uint16, raw []byte) {
		if int(col) >= part.NumColumns || len(raw) == 0 {
			return
		}
		c := part.Column(col)
		plan, err := partreader.NewPlan(onePage(c, int(rows), raw), int64(from), int64(n), c)
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

func FuzzBuildPageIndex(f *testing.F) {
	_, p, data := smallPart(f)
	f.Add(data[p.Blocks[0].Cols[part.NumColumns-1].Offs[p.Blocks[0].Pages()]:])
	pages := data[:p.Blocks[0].Cols[part.NumColumns-1].Offs[p.Blocks[0].Pages()]]
	f.Fuzz(func(t *testing.T, tail []byte) {
		file := slices.Concat(pages, tail)
		if _, err := part.BuildPageIndex(bytes.NewReader(file), int64(len(file)), "part"); err != nil && !errors.Is(err, codec.ErrCorrupt) {
			t.Fatal(err)
		}
	})
}

// page builds a page of numbers with a correct Parquet checksum from a header and a body.
func page(h part.PageHeader, rows int, body []byte) []byte {
	return encodedPage(h, rows, part.EncodingPlain, body)
}

func encodedPage(h part.PageHeader, rows, encoding int, body []byte) []byte {
	h.Compressed, h.Crc = len(body), crc32.ChecksumIEEE(body)
	return append(part.AppendPageHeader(nil, h, rows, encoding), body...)
}

// strings builds a page of text as DELTA_BYTE_ARRAY.
func stringsPage(prefixes, suffixes []int32, text string) []byte {
	body := append(appendDeltaPacked(appendDeltaPacked(nil, prefixes), suffixes), text...)
	return encodedPage(part.PageHeader{Uncompressed: len(body)}, len(prefixes), part.EncodingDeltaByteArray, body)
}

// longStrings is a page of n strings of nearly MaxPageBytes each, of which no two are equal.
func longStrings(n int) []byte {
	prefixes, suffixes := make([]int32, n), make([]int32, n)
	text := strings.Repeat("a", part.MaxPageBytes/2) + strings.Repeat("b", n-1)
	suffixes[0] = part.MaxPageBytes / 2
	for i := 1; i < n; i++ {
		prefixes[i], suffixes[i] = part.MaxPageBytes/2-1, 1
	}
	return stringsPage(prefixes, suffixes, text)
}

func TestPagesThatDoNotAgreeWithTheirHeaderAreRefused(t *testing.T) {
	u32 := func(n ...uint32) (b []byte) {
		for _, v := range n {
			b = binary.LittleEndian.AppendUint32(b, v)
		}
		return b
	}
	for name, tc := range map[string]struct {
		col  part.Column
		rows int
		raw  []byte
		ok   bool
	}{
		"numbers":                     {part.ColDatasetID, 2, page(part.PageHeader{Uncompressed: 8}, 2, u32(1, 2)), true},
		"too few numbers":             {part.ColDatasetID, 2, page(part.PageHeader{Uncompressed: 4}, 2, u32(1)), false},
		"too many numbers":            {part.ColDatasetID, 2, page(part.PageHeader{Uncompressed: 12}, 2, u32(1, 2, 3)), false},
		"other rows than the index":   {part.ColDatasetID, 2, page(part.PageHeader{Uncompressed: 4}, 1, u32(1)), false},
		"wrong uncompressed size":     {part.ColDatasetID, 2, page(part.PageHeader{Uncompressed: 9}, 2, u32(1, 2)), false},
		"not zstd":                    {part.ColDatasetID, 2, page(part.PageHeader{Uncompressed: 8, Zstd: true}, 2, u32(1, 2)), false},
		"zstd where there is none":    {part.ColURLID, 1, page(part.PageHeader{Uncompressed: 8, Zstd: true}, 1, new(zstdtext.Encoder).Append(nil, nil, make([]byte, 8))), false},
		"nulls in a required column":  {part.ColDatasetID, 2, page(part.PageHeader{Uncompressed: 4, Nulls: 1}, 2, u32(1)), false},
		"levels in a required column": {part.ColDatasetID, 2, page(part.PageHeader{Uncompressed: 10, Levels: 2}, 2, append([]byte{4, 1}, u32(1, 2)...)), false},
		"strings":                     {part.ColHost, 3, stringsPage([]int32{0, 1, 2}, []int32{1, 1, 0}, "ab"), true},
		"plain strings":               {part.ColHost, 1, page(part.PageHeader{Uncompressed: 5}, 1, append(u32(1), 'a')), false},
		"delta of numbers":            {part.ColDatasetID, 1, encodedPage(part.PageHeader{Uncompressed: 4}, 1, part.EncodingDeltaByteArray, u32(1)), false},
		"a suffix too long":           {part.ColHost, 2, stringsPage([]int32{0, 0}, []int32{1, 2}, "ab"), false},
		"a prefix of the first":       {part.ColHost, 1, stringsPage([]int32{1}, []int32{1}, "a"), false},
		"a prefix too long":           {part.ColHost, 2, stringsPage([]int32{0, 2}, []int32{1, 1}, "ab"), false},
		"a prefix below zero":         {part.ColHost, 2, stringsPage([]int32{0, -1}, []int32{1, 1}, "ab"), false},
		"a suffix below zero":         {part.ColHost, 2, stringsPage([]int32{0, 1}, []int32{2, -1}, "a"), false},
		"a string of 2 GiB":           {part.ColHost, 1, stringsPage([]int32{0}, []int32{math.MaxInt32}, ""), false},
		"bytes after the strings":     {part.ColHost, 1, stringsPage([]int32{0}, []int32{1}, "ab"), false},
		"strings of 16 TiB":           {part.ColHost, 1 << 20, longStrings(1 << 20), false},
		"more lengths than rows":      {part.ColHost, 1, encodedPage(part.PageHeader{Uncompressed: 17}, 1, part.EncodingDeltaByteArray, append(appendDeltaPacked(nil, []int32{0, 0}), appendDeltaPacked(nil, []int32{0, 0})...)), false},
		"half of the lengths":         {part.ColHost, 1, encodedPage(part.PageHeader{Uncompressed: 5}, 1, part.EncodingDeltaByteArray, appendDeltaPacked(nil, []int32{0})), false},
		"levels":                      {part.ColPort, 3, page(part.PageHeader{Uncompressed: 6, Levels: 2, Nulls: 2}, 3, append([]byte{3, 2}, u32(80)...)), true},
		"runs of levels":              {part.ColPort, 3, page(part.PageHeader{Uncompressed: 8, Levels: 4, Nulls: 2}, 3, append([]byte{4, 0, 2, 1}, u32(80)...)), true},
		"all null":                    {part.ColPort, 3, page(part.PageHeader{Uncompressed: 2, Levels: 2, Nulls: 3}, 3, []byte{6, 0}), true},
		"a wrong number of nulls":     {part.ColPort, 3, page(part.PageHeader{Uncompressed: 10, Levels: 2, Nulls: 1}, 3, append([]byte{3, 2}, u32(80, 81)...)), false},
		"too few levels":              {part.ColPort, 3, page(part.PageHeader{Uncompressed: 2, Levels: 2, Nulls: 3}, 3, []byte{4, 0}), false},
		"too many levels":             {part.ColPort, 3, page(part.PageHeader{Uncompressed: 2, Levels: 2, Nulls: 3}, 3, []byte{8, 0}), false},
		"a level of two":              {part.ColPort, 3, page(part.PageHeader{Uncompressed: 2, Levels: 2, Nulls: 3}, 3, []byte{6, 2}), false},
		"an empty run":                {part.ColPort, 3, page(part.PageHeader{Uncompressed: 4, Levels: 4, Nulls: 3}, 3, []byte{0, 0, 6, 0}), false},
		"more levels than there are":  {part.ColPort, 3, page(part.PageHeader{Uncompressed: 4, Levels: 4, Nulls: 3}, 3, []byte{6, 0, 6, 0}), false},
		"groups past the end":         {part.ColPort, 3, page(part.PageHeader{Uncompressed: 3, Levels: 3, Nulls: 3}, 3, []byte{5, 0, 0}), false},
		"no levels":                   {part.ColPort, 3, page(part.PageHeader{Uncompressed: 12}, 3, u32(1, 2, 3)), false},
		"a negative port":             {part.ColPort, 1, page(part.PageHeader{Uncompressed: 6, Levels: 2}, 1, append([]byte{2, 1}, u32(0xffffffff)...)), false},
		"a port too high":             {part.ColPort, 1, page(part.PageHeader{Uncompressed: 6, Levels: 2}, 1, append([]byte{2, 1}, u32(1<<16)...)), false},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := partreader.NewPlan(onePage(tc.col, tc.rows, tc.raw), 0, int64(tc.rows), tc.col)
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

// Every byte of a header is covered twice, by the checksum and by what it has to say.
func TestPageHeadersAreReadStrictly(t *testing.T) {
	body := make([]byte, 300)
	raw := page(part.PageHeader{Uncompressed: 300}, 75, body)
	h, err := part.ReadPageHeader(raw, part.ColDatasetID, 75, "part", "page")
	if err != nil || h.Size != len(raw)-300 {
		t.Fatal(h, err)
	}
	for n := range h.Size {
		if _, err := part.ReadPageHeader(raw[:n], part.ColDatasetID, 75, "part", "page"); !errors.Is(err, codec.ErrCorrupt) {
			t.Fatalf("%d bytes of a header: %v", n, err)
		}
	}
}

// TestGolden compares the formats with a checked-in part and its page index: the part is readable,
// and the same rows give the same bytes.
func TestGolden(t *testing.T) {
	rows := []row.Row{
		{Domain: "example.com", Host: "example.com", Scheme: "https", Port: -1, PathQuery: "/", TS: 1714521600000, HasTS: true},
		{Domain: "example.com", Host: "www.example.com", Scheme: "http", Port: 8080, PathQuery: "/a?b=c", Size: 512, HasSize: true, RawURL: "HTTP://www.example.com:8080/a?b=c"},
		{Domain: "example.org", Host: "example.org", Scheme: "https", Port: -1, PathQuery: "/%C3%A9", Extras: `{"lang":"fr"}`},
	}
	store, parts := writeParts(t, rows, testOptions(t, part.Limits{PageRows: 2}))
	written := partBytes(t, store, parts[0])
	partFile := filepath.Join("testdata", "part-v1.parquet")
	if *updateGolden {
		if err := os.WriteFile(partFile, written, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(partFile)
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := part.BuildPageIndex(bytes.NewReader(golden), int64(len(golden)), partFile)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(context.Background(), partFile, golden, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	cols, err := partreader.ReadColumns(context.Background(), store, partFile, &blocks[0], 0, 3, allColumns...)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantFileRows(rows), columnRows(cols)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", partFile, diff)
	}
	if !bytes.Equal(golden, written) {
		t.Errorf("the rows of %s are now written as other bytes; if that is a new zstd, parts written from now on have other names than before: update knowingly", partFile)
	}

	dump := dumpPageIndexBlock(blocks[0].Append(nil))
	compareGolden(t, filepath.Join("testdata", "page-index.txt"), dump)

	// The document shows the same dump.
	doc := filepath.Join(testenv.Root(t), "docs", "formats", "page-index.md")
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	const open, shut = "```hexdump\n", "```\n"
	before, rest, ok := strings.Cut(string(text), open)
	_, after, ok2 := strings.Cut(rest, shut)
	if !ok || !ok2 {
		t.Fatalf("%s has no %q", doc, open)
	}
	want := before + open + dump + shut + after
	if *updateGolden {
		if err := os.WriteFile(doc, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Errorf("%s shows another dump than testdata/page-index.txt", doc)
	}
}

func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	if *updateGolden {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// dumpPageIndexBlock comments the bytes of a block. It walks them by the document, not by the decoder.
func dumpPageIndexBlock(data []byte) string {
	var out strings.Builder
	at := 0
	line := func(n int, format string, args ...any) {
		fmt.Fprintf(&out, "%04x  %-12s %s\n", at, hex.EncodeToString(data[at:at+n]), fmt.Sprintf(format, args...))
		at += n
	}
	num := func(format string) uint64 {
		v, n := binary.Uvarint(data[at:])
		line(n, format, v)
		return v
	}
	num("row group %d")
	num("first row %d")
	pages := int(num("%d pages"))
	for p := range pages {
		num(fmt.Sprintf("page %d: %%d rows", p))
	}
	for c := range part.Column(part.NumColumns) {
		num(c.String() + ": first page at byte %d")
		for p := range pages {
			num(fmt.Sprintf("  page %d: %%d bytes", p))
		}
		for p := range pages {
			line(4, "  page %d: CRC-32C %08x", p, binary.LittleEndian.Uint32(data[at:]))
		}
	}
	return out.String()
}

// realRows are the URLs of site maps, as a merge yields them: 300,000 rows of 4,000 hosts.
func realRows(tb testing.TB) []row.Row {
	tb.Helper()
	f, err := os.Open(testenv.Shared(tb, "data", "eot2024", "sitemap-url-seeds-a.tar.zst"))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	z, err := zstd.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	defer z.Close()
	var rows []row.Row
	for files := tar.NewReader(z); ; {
		if _, err := files.Next(); err == io.EOF {
			return sortedRows(rows)
		} else if err != nil {
			tb.Fatal(err)
		}
		from := len(rows)
		rows = parseLines(files, rows)
		for i := range rows[from:] {
			rows[from+i].TS, rows[from+i].HasTS = 1700000000000+int64(from+i)*997%86400000, true
		}
	}
}

// parseLines appends the URLs of a list.
func parseLines(list io.Reader, rows []row.Row) []row.Row {
	for lines := bufio.NewScanner(list); lines.Scan(); {
		if u, err := urlnorm.Parse(lines.Text()); err == nil {
			rows = append(rows, row.Row{Domain: u.Domain, Host: u.Host, Scheme: u.Scheme, Port: int32(u.Port), PathQuery: u.PathQuery})
		}
	}
	return rows
}

func BenchmarkReadPage(b *testing.B) {
	rows := realRows(b)
	store, parts := writeParts(b, rows, testOptions(b, part.Limits{}))
	p := parts[0]
	data := partBytes(b, store, p)
	cols := []part.Column{part.ColScheme, part.ColPort, part.ColHost, part.ColTS, part.ColPathQuery}
	rng := rand.New(rand.NewPCG(30, 1))
	b.Run("decode 100 rows", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			block := &p.Blocks[rng.IntN(len(p.Blocks))]
			plan, err := partreader.NewPlan(block, block.FirstRow+rng.Int64N(block.Rows()-100), 100, cols...)
			if err != nil {
				b.Fatal(err)
			}
			var ranges [5][]byte
			for i, r := range plan.Ranges {
				ranges[i] = data[r.Offset : r.Offset+r.Bytes]
			}
			if _, err := plan.Decode(p.Part.Key, ranges[:len(plan.Ranges)]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read 100 rows", func(b *testing.B) {
		b.ReportAllocs()
		var bytes, reads int64
		for b.Loop() {
			block := &p.Blocks[rng.IntN(len(p.Blocks))]
			first := block.FirstRow + rng.Int64N(block.Rows()-100)
			if _, err := partreader.ReadColumns(b.Context(), store, p.Part.Key, block, first, 100, cols...); err != nil {
				b.Fatal(err)
			}
			plan, _ := partreader.NewPlan(block, first, 100, cols...)
			for _, r := range plan.Ranges {
				bytes += r.Bytes
			}
			reads++
		}
		b.ReportMetric(float64(bytes)/float64(reads), "fetched-B/op")
	})
	b.Run("all rows all columns", func(b *testing.B) {
		for b.Loop() {
			for i := range p.Blocks {
				block := &p.Blocks[i]
				if _, err := partreader.ReadColumns(b.Context(), store, p.Part.Key, block, block.FirstRow, block.Rows(), allColumns...); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(p.Part.Rows), "ns/row")
	})
	b.Run("page index block", func(b *testing.B) {
		enc := p.Blocks[0].Append(nil)
		b.SetBytes(int64(len(enc)))
		for b.Loop() {
			if _, err := part.DecodePageIndexBlock(enc, "parts.idx"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
