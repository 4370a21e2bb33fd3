package reader

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"
	"github.com/google/go-cmp/cmp"
	pq "github.com/parquet-go/parquet-go"
	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/parquetin"
)

// parquetGroups writes rows in row groups of the given sizes, and the remaining rows in a last one.
func parquetGroups[T any](t testing.TB, rows []T, sizes []int, opt ...pq.WriterOption) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := pq.NewGenericWriter[T](&buf, opt...)
	for len(rows) > 0 {
		n := len(rows)
		if len(sizes) > 0 {
			n, sizes = min(n, sizes[0]), sizes[1:]
		}
		if _, err := w.Write(rows[:n]); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		rows = rows[n:]
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// checkGroups reads a Parquet file whole, and in ranges cut at all row groups, at none and at some.
// It returns what it read and the number of row groups.
func checkGroups(t testing.TB, data []byte, opt raw.Options, rng *rand.Rand) (got, int) {
	t.Helper()
	r, err := New(bytes.NewReader(data), "a.parquet", opt)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := readAll(r)
	if err != nil {
		t.Fatal(err)
	}
	groups := r.parse.(*parquetin.Parser).Object().NumRowGroups()
	for _, cut := range []float64{1, 0, 0.5, 0.5, 0.1} {
		var ranges []raw.Range
		last := raw.Range{StoredTo: int64(len(data))}
		for g := 1; g < groups; g++ {
			if rng.Float64() >= cut {
				continue
			}
			last.To, last.StoredTo = int64(g), last.Stored+1
			ranges = append(ranges, last)
			last = raw.Range{From: last.To, Stored: last.StoredTo, StoredTo: int64(len(data))}
		}
		last.To = int64(groups)
		parts, err := readRanges(data, "a.parquet", r.Plan(), append(ranges, last))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(whole, parts); diff != "" {
			t.Fatalf("%+v in %d ranges of %d row groups:\n%s", opt, len(ranges)+1, groups, diff)
		}
	}
	return whole, groups
}

// TestEveryRecordIsInOneRange writes random nested rows in row groups of random sizes, and reads
// them whole and in ranges. The URL is in a list, in a list inside a list, or at the top.
func TestEveryRecordIsInOneRange(t *testing.T) {
	type deep struct {
		Kind  string `parquet:"kind"`
		Links []link `parquet:"links,list"`
	}
	type row struct {
		Deep []deep  `parquet:"deep,list"`
		URL  *string `parquet:"page,optional"`
		When int64   `parquet:"ts,timestamp(microsecond)"`
		Size *int64  `parquet:"bytes,optional"`
		Note string  `parquet:"note,dict"`
	}
	rng := rand.New(rand.NewPCG(3, 4))
	text := func(i int) *string {
		s := fmt.Sprintf("http://h%d.example/%d", rng.IntN(9), i)
		switch rng.IntN(12) {
		case 0:
			return nil
		case 1:
			s = ""
		case 2:
			s += strings.Repeat("x", 300)
		}
		return &s
	}
	for round := range 4 {
		var rows []row
		for i := range 50 + rng.IntN(1500) {
			r := row{URL: text(i), When: 1_700_000_000_000_000 + rng.Int64N(1e12), Note: fmt.Sprint(i % 5)}
			if rng.IntN(9) == 0 {
				n := int64(-5)
				r.Size = &n
			}
			for range rng.IntN(3) {
				d := deep{Kind: "k"}
				for range rng.IntN(3) {
					d.Links = append(d.Links, link{URL: text(i), Tags: []string{"t"}})
				}
				r.Deep = append(r.Deep, d)
			}
			rows = append(rows, r)
		}
		var sizes []int
		for range rng.IntN(30) {
			sizes = append(sizes, 1+rng.IntN(100))
		}
		data := parquetGroups(t, rows, sizes, pq.DataPageVersion(1+round%2), pq.PageBufferSize(500))
		for _, opt := range []raw.Options{
			{URLColumn: "page", Extras: []string{"*"}, MaxLine: 250},
			{URLColumn: "5", SizeField: "bytes", Extras: []string{"deep.links.url", "note"}},
			{URLColumn: "deep.links.url", Extras: []string{"*"}, TSColumn: "note"},
			{URLColumn: "deep.links.url", Extras: []string{"deep.kind"}},
		} {
			g, groups := checkGroups(t, data, opt, rng)
			if len(g.Rows) == 0 || groups < min(len(sizes), 2) {
				t.Fatalf("%d records in %d row groups are too few for this test", len(g.Rows), groups)
			}
		}
	}
}

// emptyGroups writes row groups of the given sizes. A size may be 0: parquet-go cannot write that.
func emptyGroups(t testing.TB, sizes ...int) []byte {
	t.Helper()
	url := schema.NewByteArrayNode("url", parquet.Repetitions.Required, -1)
	n := schema.NewInt32Node("n", parquet.Repetitions.Optional, -1)
	root, err := schema.NewGroupNode("schema", parquet.Repetitions.Required, schema.FieldList{n, url}, -1)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w := file.NewParquetWriter(&buf, root)
	row := 0
	for _, size := range sizes {
		g, err := w.AppendRowGroupChecked()
		if err != nil {
			t.Fatal(err)
		}
		for c := range 2 {
			col, err := g.NextColumn()
			if err != nil {
				t.Fatal(err)
			}
			if c == 0 {
				_, err = col.(*file.Int32ColumnChunkWriter).WriteBatch(nil, make([]int16, size), nil)
			} else {
				var urls []parquet.ByteArray
				for i := range size {
					urls = append(urls, fmt.Appendf(nil, "http://a/%d", row+i))
				}
				_, err = col.(*file.ByteArrayColumnChunkWriter).WriteBatch(urls, nil, nil)
			}
			if err == nil {
				err = col.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		row += size
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestEmptyRowGroupsHaveNoRecords(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for _, sizes := range [][]int{{0, 3, 0, 0, 2, 0}, {5, 0, 0, 4}, {0, 0, 7}, {1, 1, 1}, {0, 0, 0}, {9}} {
		data := emptyGroups(t, sizes...)
		g, groups := checkGroups(t, data, raw.Options{Extras: []string{"*"}}, rng)
		rows := 0
		for _, s := range sizes {
			rows += s
		}
		if groups != len(sizes) || len(g.Rows) != rows || rows > 0 && g.Rows[rows-1] != fmt.Sprintf("%d http://a/%d", rows, rows-1) {
			t.Errorf("groups of %v: %d groups, %q", sizes, groups, g.Rows)
		}
		plan, ranges, err := Ranges(open(data), int64(len(data)), "a", raw.Options{}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if parts, err := readRanges(data, "a", plan, ranges); err != nil || len(ranges) > 0 && len(parts.Rows) != rows {
			t.Errorf("groups of %v in ranges %v: %v, %v", sizes, ranges, parts.Rows, err)
		}
	}
}

func TestRangesOfParquet(t *testing.T) {
	type row struct {
		Text string `parquet:"text"`
		URL  string `parquet:"url"`
	}
	var rows []row
	for i := range 4000 {
		rows = append(rows, row{strings.Repeat(fmt.Sprintf("%x", i*2654435761), 40), fmt.Sprintf("http://a/%d", i)})
	}
	sizes := make([]int, 39)
	for i := range sizes {
		sizes[i] = 100
	}
	data := parquetGroups(t, rows, sizes, pq.Compression(&pq.Uncompressed))
	whole, err := readAll(reader(t, data))
	if err != nil {
		t.Fatal(err)
	}
	size := int64(len(data))
	for _, every := range []int64{1, size / 100, size / 40, size / 10, size / 3, size - 1} {
		plan, ranges, err := Ranges(open(data), size, "a.parquet", raw.Options{}, every)
		if err != nil {
			t.Fatal(err)
		}
		if n := int((size + every - 1) / every); len(ranges) != min(n, 40) && len(ranges) < min(n, 40)*9/10 {
			t.Errorf("every %d of %d: %d ranges", every, size, len(ranges))
		}
		last := raw.Range{}
		for _, rg := range ranges {
			if rg.From != last.To || rg.Stored != last.StoredTo || rg.To <= rg.From || rg.StoredTo <= rg.Stored {
				t.Fatalf("range %+v does not follow %+v", rg, last)
			}
			last = rg
		}
		if last.To != 40 || last.StoredTo != size {
			t.Fatalf("wrong last range %+v", last)
		}
		parts, err := readRanges(data, "a.parquet", plan, ranges)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(whole, parts); diff != "" {
			t.Fatal(diff)
		}
		// The progress of a range goes from its first stored offset to its last.
		rg := ranges[len(ranges)/2]
		r, err := OpenRange(bytes.NewReader(data), "a.parquet", plan, rg)
		if err != nil || r.CompressedOffset() != rg.Stored {
			t.Fatalf("%v: progress begins at %d: %v", rg, r.CompressedOffset(), err)
		}
		if _, err := readAll(r); err != nil || r.CompressedOffset() != rg.StoredTo {
			t.Errorf("%v: progress ends at %d: %v", rg, r.CompressedOffset(), err)
		}
	}
}

func reader(t testing.TB, data []byte) *Reader {
	t.Helper()
	r, err := New(bytes.NewReader(data), "a.parquet", raw.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A range reads the bytes of its row groups and the footer, and no others.
func TestRangeOfParquetReadsOnlyItsRowGroups(t *testing.T) {
	type row struct {
		URL string `parquet:"url"`
	}
	const groups, each = 30, 5000
	var rows []row
	for i := range groups * each {
		rows = append(rows, row{fmt.Sprintf("http://a.example/%x", i*2654435761)})
	}
	sizes := make([]int, groups-1)
	for i := range sizes {
		sizes[i] = each
	}
	data := parquetGroups(t, rows, sizes, pq.Compression(&pq.Uncompressed))
	plan, ranges, err := Ranges(open(data), int64(len(data)), "a.parquet", raw.Options{}, 1)
	if err != nil || len(ranges) != groups {
		t.Fatalf("%d ranges, %v", len(ranges), err)
	}
	for _, rg := range ranges[1 : groups-1] {
		at := &countingAt{Reader: bytes.NewReader(data)}
		r, err := OpenRange(at, "a.parquet", plan, rg)
		if err != nil {
			t.Fatal(err)
		}
		footer := at.n
		if footer > 64<<10 {
			t.Fatalf("the footer takes %d bytes", footer)
		}
		if g, err := readAll(r); err != nil || len(g.Rows) != each {
			t.Fatalf("%d records, %v", len(g.Rows), err)
		}
		if n := at.n - footer; n > rg.StoredTo-rg.Stored {
			t.Errorf("%+v: read %d bytes, the row group has %d", rg, n, rg.StoredTo-rg.Stored)
		}
	}
}

func TestDamagedRowGroupNamesTheSameRowHoweverItIsCut(t *testing.T) {
	type row struct {
		URL string `parquet:"url"`
	}
	var rows []row
	for i := range 3000 {
		rows = append(rows, row{fmt.Sprintf("http://a.example/%x", i*2654435761)})
	}
	data := parquetGroups(t, rows, []int{1000, 1000}, pq.Compression(&pq.Zstd))
	plan, ranges, err := Ranges(open(data), int64(len(data)), "a.parquet", raw.Options{}, 1)
	if err != nil || len(ranges) != 3 {
		t.Fatalf("%v, %v", ranges, err)
	}
	clear(data[ranges[1].Stored+100 : ranges[1].StoredTo-100])
	var whole, part *raw.DataError
	if _, err := readAll(reader(t, data)); !errors.As(err, &whole) {
		t.Fatal(err)
	}
	if _, err := readRanges(data, "a.parquet", plan, ranges); !errors.As(err, &part) {
		t.Fatal(err)
	}
	if whole.Line != part.Line || whole.Line < 1001 || whole.Line > 2000 || whole.Error() != part.Error() {
		t.Errorf("whole: %v\nin ranges: %v", whole, part)
	}
	if _, err := readRanges(data, "a.parquet", plan, append(ranges[:1:1], ranges[2])); err != nil {
		t.Errorf("error %v in the intact row groups", err)
	}
	// A file with fewer row groups than planned, and one without random access.
	other := parquetGroups(t, rows, []int{1000})
	if _, err := readRanges(other, "a.parquet", plan, ranges[2:]); !errors.Is(err, raw.ErrInput) {
		t.Errorf("a range behind the last row group: got error %v", err)
	}
	if _, err := OpenRange(&chunks{data, 1}, "a.parquet", plan, ranges[1]); err == nil {
		t.Error("a range without random access: no error")
	}
}
