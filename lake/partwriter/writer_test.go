package partwriter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/urlnorm"
)

const (
	testDataset = 7
	testBatch   = "2024-05-01"
)

// smallLimits make several row groups and parts of a few hundred rows.
var smallLimits = part.Limits{PageRows: 16, PageBytes: 600, PageColumnBytes: 4000, RowGroupBytes: 12_000, PartBytes: 40_000}

// nulls says which rows have optional values.
type nulls int

const (
	someNull nulls = iota
	allNull
	allSet
)

// testRows returns n rows as a merge yields them: sorted, one per record.
func testRows(seed uint64, n int, mode nulls) []row.Row {
	rng := rand.New(rand.NewPCG(seed, 1))
	has := func() bool { return mode == allSet || mode == someNull && rng.IntN(3) == 0 }
	letters := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "abcdefghijklmnopqrstuvwxyz0123456789-_%/=&"[rng.IntN(42)]
		}
		return string(b)
	}
	rows := make([]row.Row, n)
	for i := range rows {
		r := &rows[i]
		r.Domain = fmt.Sprintf("site%d.example", rng.IntN(1+n/20))
		r.Host = r.Domain
		if rng.IntN(2) == 0 {
			r.Host = fmt.Sprintf("www%d.%s", rng.IntN(3), r.Domain)
		}
		r.Scheme = []string{"http", "https", "ftp"}[rng.IntN(3)]
		r.PathQuery = "/" + letters(rng.IntN(60))
		if rng.IntN(50) == 0 {
			r.PathQuery += strings.Repeat("long/", rng.IntN(100))
		}
		r.Port = -1
		if has() {
			r.Port = int32(rng.IntN(math.MaxUint16 + 1))
		}
		if r.HasTS = has(); r.HasTS {
			r.TS = rng.Int64N(4e12) - 2e12
		}
		if r.HasSize = has(); r.HasSize {
			r.Size = int64(rng.Uint64())
		}
		if has() {
			r.Extras = fmt.Sprintf(`{"n":%d,"t":"ö%s"}`, i, letters(rng.IntN(20)))
		}
		if has() {
			r.RawURL = "HTTP://" + r.Host + "/./" + letters(rng.IntN(20)) + "\u00e9"
		}
	}
	return sortedRows(rows)
}

// sortedRows sorts rows by their keys and drops those of a record seen before.
func sortedRows(rows []row.Row) []row.Row {
	type keyed struct {
		key []byte
		row row.Row
	}
	byKey := make([]keyed, len(rows))
	for i, r := range rows {
		byKey[i] = keyed{r.AppendKey(nil), r}
	}
	slices.SortFunc(byKey, func(a, b keyed) int { return bytes.Compare(a.key, b.key) })
	for i := range byKey {
		rows[i] = byKey[i].row
	}
	return slices.CompactFunc(rows, func(a, b row.Row) bool {
		a.RawURL, b.RawURL = "", ""
		return a == b
	})
}

func testOptions(tb testing.TB, lim part.Limits) Options {
	return Options{Dataset: testDataset, Batch: testBatch, Prefix: lake.AnyPrefix, TempDir: tb.TempDir(), Limits: lim}
}

// writeParts writes rows and returns the parts and where they are.
func writeParts(tb testing.TB, rows []row.Row, opt Options) (*blob.Memory, []part.Written) {
	tb.Helper()
	store := blob.NewMemory()
	w := newRowWriter(context.Background(), store, opt)
	for i := range rows {
		if err := w.Append(&rows[i]); err != nil {
			tb.Fatal(err)
		}
	}
	parts, err := w.Finish()
	if err != nil {
		tb.Fatal(err)
	}
	return store, parts
}

// rowWriter gives a PartWriter rows.
type rowWriter struct {
	*Writer
	key row.Key
	buf []byte
}

func newRowWriter(ctx context.Context, store blob.Store, opt Options) *rowWriter {
	return &rowWriter{Writer: New(ctx, store, opt)}
}

func (w *rowWriter) Append(r *row.Row) error {
	w.buf = r.AppendKey(w.buf[:0])
	if err := w.key.Next(w.buf); err != nil {
		return w.fail(err)
	}
	return w.key.Pass(w.Writer)
}

func partBytes(tb testing.TB, store blob.Store, p part.Written) []byte {
	tb.Helper()
	data, _, err := store.Get(context.Background(), p.Part.Key)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// fileRow is a row with the columns that the writer adds.
type fileRow struct {
	row.Row
	DatasetID        uint32
	Batch            string
	DomainID, URLID  uint64
	NullRaw, NullExt bool
}

func wantFileRows(rows []row.Row) []fileRow {
	out := make([]fileRow, len(rows))
	for i, r := range rows {
		url := r.Scheme + "://" + r.Host
		if r.Port >= 0 {
			url += fmt.Sprintf(":%d", r.Port)
		}
		url += r.PathQuery
		out[i] = fileRow{r, testDataset, testBatch, xxh3.HashString(r.Domain), xxh3.HashString(url), r.RawURL == "", r.Extras == ""}
	}
	return out
}

// parquetGoRow is the schema as parquet-go sees it.
type parquetGoRow struct {
	DatasetID int32   `parquet:"dataset_id"`
	Batch     string  `parquet:"batch"`
	Scheme    string  `parquet:"scheme"`
	Port      *int32  `parquet:"port,optional"`
	DomainID  int64   `parquet:"domain_id"`
	Domain    string  `parquet:"domain"`
	Host      string  `parquet:"host"`
	TS        *int64  `parquet:"ts,optional,timestamp(millisecond)"`
	Size      *int64  `parquet:"size,optional"`
	PathQuery string  `parquet:"path_query"`
	URLID     int64   `parquet:"url_id"`
	RawURL    *string `parquet:"raw_url,optional"`
	Extras    *string `parquet:"extras,optional,json"`
}

func readParquetGo(tb testing.TB, data []byte) []fileRow {
	tb.Helper()
	f, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		tb.Fatal(err)
	}
	r := parquet.NewGenericReader[parquetGoRow](f)
	defer r.Close()
	rows := make([]parquetGoRow, f.NumRows()+1)
	n, err := r.Read(rows)
	if err != io.EOF || int64(n) != f.NumRows() {
		tb.Fatalf("parquet-go read %d of %d rows: %v", n, f.NumRows(), err)
	}
	out := make([]fileRow, n)
	for i, p := range rows[:n] {
		o := &out[i]
		o.DatasetID, o.Batch = uint32(p.DatasetID), p.Batch
		o.DomainID, o.URLID = uint64(p.DomainID), uint64(p.URLID)
		o.Scheme, o.Domain, o.Host, o.PathQuery = p.Scheme, p.Domain, p.Host, p.PathQuery
		o.Port = -1
		if p.Port != nil {
			o.Port = *p.Port
		}
		if o.HasTS = p.TS != nil; o.HasTS {
			o.TS = *p.TS
		}
		if o.HasSize = p.Size != nil; o.HasSize {
			o.Size = *p.Size
		}
		if o.NullRaw = p.RawURL == nil; !o.NullRaw {
			o.RawURL = *p.RawURL
		}
		if o.NullExt = p.Extras == nil; !o.NullExt {
			o.Extras = *p.Extras
		}
	}
	return out
}

func readArrow(tb testing.TB, data []byte) []fileRow {
	tb.Helper()
	pf, err := file.NewParquetReader(bytes.NewReader(data))
	if err != nil {
		tb.Fatal(err)
	}
	defer pf.Close()
	fr, err := pqarrow.NewFileReader(pf, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	if err != nil {
		tb.Fatal(err)
	}
	table, err := fr.ReadTable(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	defer table.Release()
	out := make([]fileRow, table.NumRows())
	// Extension types (JSON) are read through their storage.
	storage := func(a arrow.Array) arrow.Array {
		if e, ok := a.(array.ExtensionArray); ok {
			return e.Storage()
		}
		return a
	}
	for c := range int(table.NumCols()) {
		col := table.Column(c)
		row := 0
		for _, chunk := range col.Data().Chunks() {
			chunk = storage(chunk)
			for i := range chunk.Len() {
				o := &out[row]
				row++
				null := chunk.IsNull(i)
				str := func() string {
					switch a := chunk.(type) {
					case *array.String:
						return strings.Clone(a.Value(i))
					case *array.Binary: // arrow-go's reading of JSON
						return string(a.Value(i))
					}
					tb.Fatalf("column %s has type %s", col.Name(), chunk.DataType())
					return ""
				}
				num := func() int64 {
					switch a := chunk.(type) {
					case *array.Int32:
						return int64(a.Value(i))
					case *array.Int64:
						return a.Value(i)
					case *array.Timestamp:
						return int64(a.Value(i))
					}
					tb.Fatalf("column %s has type %s", col.Name(), chunk.DataType())
					return 0
				}
				switch part.Column(c) {
				case part.ColDatasetID:
					o.DatasetID = uint32(num())
				case part.ColBatch:
					o.Batch = str()
				case part.ColScheme:
					o.Scheme = str()
				case part.ColPort:
					if o.Port = -1; !null {
						o.Port = int32(num())
					}
				case part.ColDomainID:
					o.DomainID = uint64(num())
				case part.ColDomain:
					o.Domain = str()
				case part.ColHost:
					o.Host = str()
				case part.ColTS:
					if o.HasTS = !null; !null {
						o.TS = num()
					}
				case part.ColSize:
					if o.HasSize = !null; !null {
						o.Size = num()
					}
				case part.ColPathQuery:
					o.PathQuery = str()
				case part.ColURLID:
					o.URLID = uint64(num())
				case part.ColRawURL:
					o.RawURL, o.NullRaw = str(), null
				case part.ColExtras:
					o.Extras, o.NullExt = str(), null
				}
			}
		}
	}
	return out
}

// partCases are rows and limits that between them reach every form a page can have.
func partCases() []struct {
	name string
	rows []row.Row
	lim  part.Limits
} {
	long := testRows(3, 60, someNull)
	for i := range long {
		if i%7 == 0 {
			long[i].PathQuery = "/" + strings.Repeat(string(rune('a'+i%26)), 16<<10-1)
		}
	}
	empty := []row.Row{{Port: -1}, {Port: -1, HasTS: true}, {Port: 0, HasSize: true}, {Port: 0, HasTS: true, Extras: "{}"}}
	return []struct {
		name string
		rows []row.Row
		lim  part.Limits
	}{
		{"one row", testRows(1, 1, allSet), part.Limits{}},
		{"some null", testRows(2, 5000, someNull), part.Limits{}},
		{"all null", testRows(2, 3000, allNull), part.Limits{}},
		{"all set", testRows(2, 3000, allSet), part.Limits{}},
		{"exactly one page", sameSite(part.PageRows), part.Limits{}},
		{"one more than a page", sameSite(part.PageRows + 1), part.Limits{}},
		{"long paths", sortedRows(long), part.Limits{}},
		{"empty strings", sortedRows(empty), part.Limits{}},
		{"many row groups and parts", testRows(4, 2000, someNull), smallLimits},
		{"a row a page, a page a row group", testRows(5, 30, someNull), part.Limits{PageRows: 1, RowGroupBytes: 1, PartBytes: 3000}},
		{"a row a part", testRows(5, 5, someNull), part.Limits{PageRows: 1, PartBytes: 1}},
		{"more pages than a block has", testRows(6, 1200, someNull), part.Limits{PageRows: 2}},
	}
}

// sameSite returns n rows with short paths, so that only their number ends pages.
func sameSite(n int) []row.Row {
	rows := make([]row.Row, n)
	for i := range rows {
		rows[i] = row.Row{Domain: "a.example", Host: "a.example", Scheme: "https", Port: -1, PathQuery: fmt.Sprintf("/%07d", i)}
	}
	return rows
}

func TestPartsReadTheSameByOtherLibraries(t *testing.T) {
	for _, tc := range partCases() {
		t.Run(tc.name, func(t *testing.T) {
			store, parts := writeParts(t, tc.rows, testOptions(t, tc.lim))
			want := wantFileRows(tc.rows)
			var byParquetGo, byArrow []fileRow
			for i, p := range parts {
				data := partBytes(t, store, p)
				if wantKey := lake.PartKey(testDataset, lake.AnyPrefix, testBatch, lake.Digest(data), i); p.Part.Key != wantKey {
					t.Errorf("key %s, want %s", p.Part.Key, wantKey)
				}
				got := readParquetGo(t, data)
				if int64(len(got)) != p.Part.Rows || int64(len(data)) != p.Part.Bytes {
					t.Errorf("part %d says %d rows and %d bytes, has %d and %d", i, p.Part.Rows, p.Part.Bytes, len(got), len(data))
				}
				byParquetGo = append(byParquetGo, got...)
				byArrow = append(byArrow, readArrow(t, data)...)
			}
			if diff := cmp.Diff(want, byParquetGo); diff != "" {
				t.Errorf("parquet-go (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want, byArrow); diff != "" {
				t.Errorf("arrow (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPartMetadataIsTrue(t *testing.T) {
	for _, tc := range partCases() {
		t.Run(tc.name, func(t *testing.T) {
			store, parts := writeParts(t, tc.rows, testOptions(t, tc.lim))
			for _, p := range parts {
				data := partBytes(t, store, p)
				f, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
				if err != nil {
					t.Fatal(err)
				}
				if got := f.Metadata().CreatedBy; got != part.CreatedBy {
					t.Errorf("created_by %q", got)
				}
				if got := len(f.RowGroups()); got != p.Part.RowGroups {
					t.Errorf("%d row groups, entry says %d", got, p.Part.RowGroups)
				}
				for g, rg := range f.RowGroups() {
					checkRowGroup(t, f, g, rg)
				}
			}
		})
	}
}

// checkRowGroup compares offset index, column index, statistics and sorting columns with the values.
func checkRowGroup(t *testing.T, f *parquet.File, g int, rg parquet.RowGroup) {
	meta := f.Metadata().RowGroups[g]
	var sorting []string
	for _, s := range meta.SortingColumns {
		if s.Descending || !s.NullsFirst {
			t.Errorf("sorting column %+v", s)
		}
		sorting = append(sorting, part.Column(s.ColumnIdx).String())
	}
	if got := strings.Join(sorting, " "); got != "domain host path_query scheme port ts size extras raw_url" {
		t.Errorf("sorting columns %s", got)
	}
	var firstRows []int64
	for c, chunk := range rg.ColumnChunks() {
		offsets, err := chunk.OffsetIndex()
		if err != nil {
			t.Fatal(err)
		}
		index, err := chunk.ColumnIndex()
		if err != nil {
			t.Fatal(err)
		}
		var rows []int64
		for p := range offsets.NumPages() {
			rows = append(rows, offsets.FirstRowIndex(p))
		}
		if c == 0 {
			firstRows = rows
		} else if !slices.Equal(rows, firstRows) {
			t.Errorf("pages of %s start at rows %v, those of the first column at %v", part.Column(c), rows, firstRows)
		}
		typ := chunk.Type()
		pages := chunk.Pages()
		var nulls int64
		var lo, hi parquet.Value
		for p := 0; ; p++ {
			page, err := pages.ReadPage()
			if err == io.EOF {
				if p != index.NumPages() {
					t.Errorf("%s: %d pages, the column index has %d", part.Column(c), p, index.NumPages())
				}
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			values := make([]parquet.Value, page.NumValues())
			if n, err := page.Values().ReadValues(values); n != len(values) {
				t.Fatal(n, err)
			}
			var n int64
			for _, v := range values {
				if v.IsNull() {
					n++
					continue
				}
				if typ.Compare(v, index.MinValue(p)) < 0 || typ.Compare(v, index.MaxValue(p)) > 0 {
					t.Errorf("%s page %d: %v is not between %v and %v", part.Column(c), p, v, index.MinValue(p), index.MaxValue(p))
				}
				if lo.IsNull() || typ.Compare(v, lo) < 0 {
					lo = v.Clone()
				}
				if hi.IsNull() || typ.Compare(v, hi) > 0 {
					hi = v.Clone()
				}
			}
			if index.NullCount(p) != n || index.NullPage(p) != (n == int64(len(values))) {
				t.Errorf("%s page %d: %d nulls, column index says %d (%v)", part.Column(c), p, n, index.NullCount(p), index.NullPage(p))
			}
			nulls += n
			parquet.Release(page)
		}
		pages.Close()
		for p := 1; p < index.NumPages() && index.IsAscending(); p++ {
			if !index.NullPage(p) && !index.NullPage(p-1) && typ.Compare(index.MinValue(p-1), index.MinValue(p)) > 0 {
				t.Errorf("%s: bounds said to ascend do not", part.Column(c))
			}
		}
		if c == int(part.ColDomain) && !index.IsAscending() {
			t.Error("bounds of domain do not ascend")
		}
		st := meta.Columns[c].MetaData.Statistics
		if st.NullCount != nulls {
			t.Errorf("%s: null_count %d, has %d", part.Column(c), st.NullCount, nulls)
		}
		if lo.IsNull() {
			if st.MinValue != nil || st.MaxValue != nil {
				t.Errorf("%s: bounds without values", part.Column(c))
			}
			continue
		}
		min, max := typ.Kind().Value(st.MinValue), typ.Kind().Value(st.MaxValue)
		if typ.Compare(min, lo) > 0 || typ.Compare(max, hi) < 0 {
			t.Errorf("%s: statistics %v to %v, values %v to %v", part.Column(c), min, max, lo, hi)
		}
		if len(lo.String()) <= part.BoundBytes && !parquet.Equal(min, lo) || len(hi.String()) <= part.BoundBytes && !parquet.Equal(max, hi) {
			t.Errorf("%s: short bounds %v to %v are not the values %v to %v", part.Column(c), min, max, lo, hi)
		}
	}
}

func TestPartSchemaIsTheDocumentedOne(t *testing.T) {
	store, parts := writeParts(t, sameSite(1), testOptions(t, part.Limits{}))
	data := partBytes(t, store, parts[0])
	f, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range f.Metadata().Schema[1:] {
		s := fmt.Sprintf("%s %s", e.Name, e.Type.V)
		if e.RepetitionType.V == format.Optional {
			s += " optional"
		}
		if l := e.LogicalType.String(); l != "" {
			s += " " + l
		}
		got = append(got, s)
	}
	want := []string{
		"dataset_id INT32", "batch BYTE_ARRAY STRING", "scheme BYTE_ARRAY STRING", "port INT32 optional",
		"domain_id INT64", "domain BYTE_ARRAY STRING", "host BYTE_ARRAY STRING",
		"ts INT64 optional TIMESTAMP(isAdjustedToUTC=true,unit=MILLIS)", "size INT64 optional",
		"path_query BYTE_ARRAY STRING", "url_id INT64", "raw_url BYTE_ARRAY optional STRING", "extras BYTE_ARRAY optional JSON",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("schema (-want +got):\n%s", diff)
	}
	for i, c := range f.Metadata().RowGroups[0].Columns {
		codec, encoding := format.Zstd, format.Plain
		if part.Column(i) == part.ColURLID {
			codec = format.Uncompressed
		}
		if c.MetaData.Type == format.ByteArray {
			encoding = format.DeltaByteArray
		}
		if c.MetaData.Codec != codec || c.MetaData.DictionaryPageOffset != 0 || c.MetaData.Encoding[0] != encoding {
			t.Errorf("%s: %v %v", c.MetaData.PathInSchema, c.MetaData.Codec, c.MetaData.Encoding)
		}
	}
}

func TestPartKeepsItsLimits(t *testing.T) {
	rows := testRows(8, 3000, someNull)
	store, parts := writeParts(t, rows, testOptions(t, smallLimits))
	if len(parts) < 3 {
		t.Fatalf("%d parts", len(parts))
	}
	for _, p := range parts {
		data := partBytes(t, store, p)
		groups := make([]int64, p.Part.RowGroups) // bytes before compression, page headers left out
		for i := range p.Blocks {
			b := &p.Blocks[i]
			for n := range b.Pages() {
				rows := int(b.Starts[n+1] - b.Starts[n])
				if rows > smallLimits.PageRows {
					t.Errorf("page of %d rows", rows)
				}
				for c := range part.Column(part.NumColumns) {
					offs := b.Cols[c].Offs
					h, err := part.ReadPageHeader(data[offs[n]:offs[n+1]], c, rows, "part", "page")
					if err != nil {
						t.Fatal(err)
					}
					groups[b.RowGroup] += int64(h.Uncompressed)
				}
			}
		}
		var part int64
		for g, raw := range groups {
			if raw > smallLimits.RowGroupBytes {
				t.Errorf("row group %d of %d bytes", g, raw)
			}
			part += raw
		}
		if part > smallLimits.PartBytes {
			t.Errorf("part of %d bytes", part)
		}
	}
}

func TestRowsWithinTheirBoundAreOneRowGroup(t *testing.T) {
	cases := partCases()
	for seed := range uint64(20) {
		cases = append(cases, partCases()[0])
		c := &cases[len(cases)-1]
		c.name, c.rows = fmt.Sprintf("tangled %d", seed), sortedRows(tangledRows(seed, 100))
	}
	for _, tc := range cases {
		for _, pageRows := range []int{1, 2, 100, part.PageRows} {
			var keys int64
			for _, r := range tc.rows {
				keys += int64(len(r.AppendKey(nil)))
			}
			bound := MaxPlainBytes(testBatch, int64(len(tc.rows)), keys)
			_, parts := writeParts(t, tc.rows, testOptions(t, part.Limits{PageRows: pageRows, RowGroupBytes: bound, PartBytes: bound}))
			if len(parts) != 1 || parts[0].Part.RowGroups != 1 {
				t.Errorf("%s, pages of %d rows: %d parts, the first of %d row groups", tc.name, pageRows, len(parts), parts[0].Part.RowGroups)
			}
		}
	}
}

func TestLargeExtrasEndPages(t *testing.T) {
	rows := sameSite(100)
	for i := range rows {
		rows[i].Extras = `"` + strings.Repeat("x", 100<<10) + `"`
	}
	_, parts := writeParts(t, rows, testOptions(t, part.Limits{}))
	b := parts[0].Blocks[0]
	for i := range b.Pages() {
		if n := b.Starts[i+1] - b.Starts[i]; n > 11 {
			t.Errorf("page of %d rows of 100 KiB", n)
		}
	}
}

func TestPartBytesDependOnRowsAlone(t *testing.T) {
	rows := testRows(9, 4000, someNull)
	store, parts := writeParts(t, rows, testOptions(t, smallLimits))
	// Other rows in between leave the pooled encoders in another state; a shared writer's buffers too.
	writeParts(t, testRows(10, 3000, allSet), testOptions(t, part.Limits{}))
	runtime.GC()
	again, partsAgain := writeParts(t, rows, testOptions(t, smallLimits))
	if diff := cmp.Diff(parts, partsAgain, cmp.AllowUnexported(part.PageIndexBlock{}, part.PageRun{})); diff != "" {
		t.Fatalf("parts differ:\n%s", diff)
	}
	for i := range parts {
		if !bytes.Equal(partBytes(t, store, parts[i]), partBytes(t, again, partsAgain[i])) {
			t.Errorf("part %d differs", i)
		}
	}
}

func TestPartWriterRefuses(t *testing.T) {
	ok := row.Row{Domain: "b.example", Host: "b.example", Scheme: "http", Port: 80, PathQuery: "/b", TS: 5, HasTS: true, Size: 5, HasSize: true, Extras: `{"b":1}`, RawURL: "b"}
	change := func(f func(*row.Row)) row.Row { r := ok; f(&r); return r }
	cases := map[string]row.Row{
		"a smaller domain":   change(func(r *row.Row) { r.Domain = "a.example" }),
		"a smaller host":     change(func(r *row.Row) { r.Host = "a.example" }),
		"a smaller path":     change(func(r *row.Row) { r.PathQuery = "/a" }),
		"a shorter path":     change(func(r *row.Row) { r.PathQuery = "/" }),
		"a smaller scheme":   change(func(r *row.Row) { r.Scheme = "ftp" }),
		"a smaller port":     change(func(r *row.Row) { r.Port = 79 }),
		"no port":            change(func(r *row.Row) { r.Port = -1 }),
		"a smaller ts":       change(func(r *row.Row) { r.TS = -6 }),
		"no ts":              change(func(r *row.Row) { r.TS, r.HasTS = 0, false }),
		"a smaller size":     change(func(r *row.Row) { r.Size = 4 }),
		"no size":            change(func(r *row.Row) { r.Size, r.HasSize = 0, false }),
		"smaller extras":     change(func(r *row.Row) { r.Extras = `{"a":1}` }),
		"no extras":          change(func(r *row.Row) { r.Extras = "" }),
		"a domain not UTF-8": change(func(r *row.Row) { r.Domain = "c\xff" }),
		"a host not UTF-8":   change(func(r *row.Row) { r.Host = "c\xff" }),
		"a scheme not UTF-8": change(func(r *row.Row) { r.Scheme = "https\xff" }),
		"a path not UTF-8":   change(func(r *row.Row) { r.PathQuery = "/c\xff" }),
		"a raw URL not UTF-8": change(func(r *row.Row) {
			r.PathQuery = "/c"
			r.RawURL = "\xff"
		}),
		"extras not UTF-8":      change(func(r *row.Row) { r.Extras = "~\xff" }),
		"extras above the most": change(func(r *row.Row) { r.Extras = "~" + strings.Repeat("~", row.MaxKey) }),
	}
	for name, r := range cases {
		t.Run(name, func(t *testing.T) {
			w := newRowWriter(context.Background(), blob.NewMemory(), testOptions(t, part.Limits{}))
			first := ok
			if err := w.Append(&first); err != nil {
				t.Fatal(err)
			}
			err := w.Append(&r)
			if _, last := w.Finish(); last == nil { // text is looked at by page
				t.Errorf("accepted; Append: %v", err)
			}
		})
	}
}

// However many rows come at a time, the same parts are written, and a record that is there several times is written once.
func TestRowsAreWrittenAlikeHoweverManyAtATime(t *testing.T) {
	for _, tc := range partCases() {
		t.Run(tc.name, func(t *testing.T) {
			store, parts := writeParts(t, tc.rows, testOptions(t, tc.lim))
			var twice []row.Row
			for i, r := range tc.rows {
				twice = append(twice, r)
				for range i % 3 {
					if r.RawURL != "" {
						r.RawURL += "x"
					}
					twice = append(twice, r)
				}
			}
			for name, feeds := range map[string][]feed{
				"all at once":       fed(tc.rows, math.MaxInt, math.MaxInt),
				"as from a buffer":  fed(tc.rows, 256, 128),
				"one by one":        fed(tc.rows, 1, 1),
				"seven of two":      fed(tc.rows, 7, 2),
				"twice":             fed(twice, math.MaxInt, math.MaxInt),
				"twice, one by one": fed(twice, 1, 1),
			} {
				other := blob.NewMemory()
				fedParts, records := writeFed(t, other, feeds, testOptions(t, tc.lim))
				if records != len(tc.rows) {
					t.Errorf("%s: %d records, want %d", name, records, len(tc.rows))
				}
				if len(parts) != len(fedParts) {
					t.Fatalf("%s: %d parts, want %d", name, len(fedParts), len(parts))
				}
				for i := range parts {
					if !bytes.Equal(partBytes(t, store, parts[i]), partBytes(t, other, fedParts[i])) {
						t.Errorf("%s: part %d differs", name, i)
					}
				}
			}
		})
	}
}

func TestHostsAndRowsOutOfOrderAreRefused(t *testing.T) {
	https, http := &row.Suffix{Scheme: "https", Port: -1}, &row.Suffix{Scheme: "http", Port: -1}
	type call struct {
		hosts []row.SortedHost
		rows  []row.SortedRow
	}
	host := func(domain, host string, rows int) row.SortedHost {
		return row.SortedHost{Domain: domain, Host: host, DomainID: urlnorm.DomainID(domain), Rows: rows}
	}
	thisRow := func(path string, tail *row.Suffix) row.SortedRow {
		return row.SortedRow{Path: []byte(path), Suffix: tail}
	}
	one := func(r ...row.SortedRow) call {
		return call{[]row.SortedHost{host("b.example", "b.example", len(r))}, r}
	}
	hosts := func(h ...row.SortedHost) call {
		rows := make([]row.SortedRow, len(h))
		for i := range h {
			h[i].Rows, rows[i] = 1, thisRow("/b", https)
		}
		return call{h, rows}
	}
	long := strings.Repeat("long/", 100)
	for name, tc := range map[string]struct {
		calls  []call
		prefix string
	}{
		"a row without a host":            {calls: []call{{rows: []row.SortedRow{thisRow("/", https)}}}},
		"more rows than hosts have":       {calls: []call{{hosts: []row.SortedHost{host("b.example", "b.example", 1)}, rows: []row.SortedRow{thisRow("/", https), thisRow("/a", https)}}}},
		"less rows than hosts have":       {calls: []call{{hosts: []row.SortedHost{host("b.example", "b.example", 1)}}}},
		"a host without rows":             {calls: []call{{hosts: []row.SortedHost{host("b.example", "b.example", 0)}}}},
		"the same host":                   {calls: []call{hosts(host("b.example", "b.example", 0), host("b.example", "b.example", 0))}},
		"a smaller host":                  {calls: []call{hosts(host("b.example", "b.example", 0), host("b.example", "a.b.example", 0))}},
		"a smaller host in another call":  {calls: []call{one(thisRow("/b", https)), hosts(host("b.example", "a.b.example", 0))}},
		"a smaller domain":                {calls: []call{hosts(host("b.example", "b.example", 0), host("a.example", "c.a.example", 0))}},
		"another id of the same domain":   {calls: []call{hosts(host("b.example", "b.example", 0), row.SortedHost{Domain: "b.example", Host: "c.example", DomainID: 1, Rows: 0})}},
		"a smaller path":                  {calls: []call{one(thisRow("/b", https), thisRow("/a", https))}},
		"a smaller path in another call":  {calls: []call{one(thisRow("/b", https)), one(thisRow("/a", https))}},
		"a smaller path far behind":       {calls: []call{one(thisRow("/"+long+"b", https), thisRow("/"+long+"a", https))}},
		"a shorter path":                  {calls: []call{one(thisRow("/b", https), thisRow("/", https))}},
		"a shorter path in another call":  {calls: []call{one(thisRow("/b", https)), one(thisRow("/", https))}},
		"a much shorter path":             {calls: []call{one(thisRow("/"+long+"b", https), thisRow("/"+long, https))}},
		"a smaller tail":                  {calls: []call{one(thisRow("/b", https), thisRow("/b", http))}},
		"a smaller tail in another call":  {calls: []call{one(thisRow("/b", https)), one(thisRow("/b", http))}},
		"an usual tail behind another":    {calls: []call{one(thisRow("/b", &row.Suffix{Scheme: "https", Port: 1}), thisRow("/b", &row.UsualSuffixes[row.HTTPSSuffix]))}},
		"a smaller tail, an usual one":    {calls: []call{one(thisRow("/b", &row.UsualSuffixes[row.HTTPSSuffix]), thisRow("/b", &row.UsualSuffixes[row.HTTPSuffix]))}},
		"a smaller path of an usual tail": {calls: []call{one(thisRow("/a", &row.UsualSuffixes[row.HTTPSSuffix]), thisRow("/c", &row.UsualSuffixes[row.HTTPSSuffix]), thisRow("/b", &row.UsualSuffixes[row.HTTPSSuffix]))}},
		"a shorter path of an usual tail": {calls: []call{one(thisRow("/a", &row.UsualSuffixes[row.HTTPSSuffix]), thisRow("/ab", &row.UsualSuffixes[row.HTTPSSuffix]), thisRow("/a", &row.UsualSuffixes[row.HTTPSSuffix]))}},
		"a smaller domain that is longer": {calls: []call{hosts(host("m.example", "m.example", 0), host("n.example", "a.n.example", 0), host("n.example", "b.n.example", 0), host("a.examples", "a.examples", 0))}},
		"a smaller host that is longer":   {calls: []call{hosts(host("m.example", "m.example", 0), host("n.example", "x", 0), host("o.example", "x", 0), host("o.example", "o.example", 0))}},
		"a domain of another partition":   {calls: []call{one(thisRow("/", https))}, prefix: urlnorm.FormatID(^urlnorm.DomainID("b.example"))[:1]},
	} {
		opt := testOptions(t, part.Limits{})
		if tc.prefix != "" {
			opt.Prefix = tc.prefix
		}
		w := New(context.Background(), blob.NewMemory(), opt)
		for i, c := range tc.calls {
			if _, err := w.Rows(c.hosts, c.rows); (err != nil) != (i == len(tc.calls)-1) {
				t.Errorf("%s: call %d: %v", name, i, err)
			}
		}
		if _, err := w.Finish(); err == nil {
			t.Errorf("%s: Finish after it", name)
		}
	}
}

func TestPartWriterKeepsToItsPartition(t *testing.T) {
	for _, digits := range []int{1, 2} {
		rows := testRows(13, 400, someNull)
		prefix := urlnorm.FormatID(urlnorm.DomainID(rows[0].Domain))[:digits]
		opt := testOptions(t, part.Limits{})
		opt.Prefix = prefix
		store := blob.NewMemory()
		w := newRowWriter(context.Background(), store, opt)
		in := 0
		for i := range rows {
			if strings.HasPrefix(urlnorm.FormatID(urlnorm.DomainID(rows[i].Domain)), prefix) {
				in++
				if err := w.Append(&rows[i]); err != nil {
					t.Fatal(err)
				}
			}
		}
		parts, err := w.Finish()
		if err != nil || len(parts) != 1 || parts[0].Part.Rows != int64(in) || parts[0].Part.DomainPrefix != prefix {
			t.Fatalf("prefix %s: %+v, %v, want %d rows", prefix, parts, err, in)
		}
		w = newRowWriter(context.Background(), store, opt)
		refused := 0
		for i := range rows {
			if w.Append(&rows[i]) != nil {
				refused++
			}
		}
		if refused == 0 {
			t.Error("rows of all partitions accepted")
		}
	}
}

func TestPartWriterRefusesOptions(t *testing.T) {
	good := testOptions(t, part.Limits{})
	for name, change := range map[string]func(*Options){
		"no dataset":   func(o *Options) { o.Dataset = 0 },
		"batch":        func(o *Options) { o.Batch = "a/b" },
		"no prefix":    func(o *Options) { o.Prefix = "" },
		"long prefix":  func(o *Options) { o.Prefix = "0ab" },
		"upper prefix": func(o *Options) { o.Prefix = "AB" },
		"odd prefix":   func(o *Options) { o.Prefix = "zz" },
	} {
		opt := good
		change(&opt)
		if _, err := New(context.Background(), blob.NewMemory(), opt).Finish(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestNoRowsNoParts(t *testing.T) {
	_, parts := writeParts(t, nil, testOptions(t, part.Limits{}))
	if len(parts) != 0 {
		t.Errorf("%d parts", len(parts))
	}
}

// faultyStore fails the upload in one of its steps.
type faultyStore struct {
	*blob.Memory
	create, write, finish error
}

type faultyWriter struct {
	blob.Writer
	s *faultyStore
}

func (s *faultyStore) Create(ctx context.Context, key string) (blob.Writer, error) {
	if s.create != nil {
		return nil, s.create
	}
	w, err := s.Memory.Create(ctx, key)
	return &faultyWriter{w, s}, err
}

func (w *faultyWriter) Write(p []byte) (int, error) {
	if w.s.write != nil {
		return len(p) / 2, w.s.write
	}
	return w.Writer.Write(p)
}

func (w *faultyWriter) Finish() (blob.Info, error) {
	if w.s.finish != nil {
		w.Abort()
		return blob.Info{}, w.s.finish
	}
	return w.Writer.Finish()
}

func TestPartWriterLeavesNoFiles(t *testing.T) {
	rows := testRows(14, 600, someNull)
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		store faultyStore
		end   func(*rowWriter) error
		want  error
	}{
		"finished":      {end: func(w *rowWriter) error { _, err := w.Finish(); return err }},
		"aborted":       {end: func(w *rowWriter) error { w.Abort(); w.Abort(); return nil }},
		"create failed": {store: faultyStore{create: boom}, want: boom},
		"write failed":  {store: faultyStore{write: boom}, want: boom},
		"finish failed": {store: faultyStore{finish: boom}, want: boom},
	} {
		t.Run(name, func(t *testing.T) {
			opt := testOptions(t, smallLimits)
			tc.store.Memory = blob.NewMemory()
			w := newRowWriter(context.Background(), &tc.store, opt)
			var err error
			for i := range rows {
				if err = w.Append(&rows[i]); err != nil {
					break
				}
			}
			if tc.end != nil {
				err = tc.end(w)
			}
			if !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
			if _, err := w.Finish(); err == nil {
				t.Error("Finish of an ended writer succeeded")
			}
			left, err := os.ReadDir(opt.TempDir)
			if err != nil || len(left) != 0 {
				t.Errorf("left %v, %v", left, err)
			}
			if w.part.spool != nil {
				t.Error("part still open")
			}
		})
	}
}

// The last part of one writer is stored while others write.
func TestPartsAreStoredWhileOthersAreWritten(t *testing.T) {
	for _, limits := range []part.Limits{{}, smallLimits} {
		opt := testOptions(t, limits)
		store := blob.NewMemory()
		type stored struct {
			parts []part.Written
			err   error
		}
		var want [][]byte
		var got []chan stored
		for seed := range uint64(6) {
			rows := testRows(seed, 600, someNull)
			alone, parts := writeParts(t, rows, opt)
			for _, p := range parts {
				want = append(want, partBytes(t, alone, p))
			}
			w := newRowWriter(context.Background(), store, opt)
			for i := range rows {
				if err := w.Append(&rows[i]); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.End(); err != nil {
				t.Fatal(err)
			}
			if n, err := w.Rows(nil, nil); n != 0 || err == nil {
				t.Errorf("rows after End: %v", err)
			}
			if _, _, err := store.Get(context.Background(), parts[len(parts)-1].Part.Key); !errors.Is(err, blob.ErrNotExist) {
				t.Errorf("the last part after End: %v", err)
			}
			done := make(chan stored, 1)
			got = append(got, done)
			go func() {
				defer w.Abort()
				parts, err := w.Finish()
				done <- stored{parts, err}
			}()
		}
		var all []part.Written
		for _, done := range got {
			s := <-done
			if s.err != nil {
				t.Fatal(s.err)
			}
			all = append(all, s.parts...)
		}
		if len(all) != len(want) {
			t.Fatalf("%d parts, want %d", len(all), len(want))
		}
		for i, p := range all {
			if !bytes.Equal(partBytes(t, store, p), want[i]) {
				t.Errorf("part %d differs", i)
			}
		}
		w := newRowWriter(context.Background(), &faultyStore{Memory: blob.NewMemory(), create: errors.New("part of an aborted writer")}, opt)
		rows := testRows(1, 1, someNull)
		if err := w.Append(&rows[0]); err != nil {
			t.Fatal(err)
		}
		if err := w.End(); err != nil {
			t.Fatal(err)
		}
		w.Abort()
		if _, err := w.Finish(); err == nil || w.part.spool != nil {
			t.Errorf("Finish after Abort: %v", err)
		}
	}
}

func TestPartWriterNeedsItsFolderForSeveralRowGroups(t *testing.T) {
	rows := testRows(16, 600, someNull)
	for limits, want := range map[part.Limits]error{{}: nil, smallLimits: os.ErrNotExist} {
		opt := testOptions(t, limits)
		opt.TempDir += "/absent"
		w := newRowWriter(context.Background(), blob.NewMemory(), opt)
		var err error
		for i := 0; i < len(rows) && err == nil; i++ {
			err = w.Append(&rows[i])
		}
		if err == nil {
			_, err = w.Finish()
		}
		if !errors.Is(err, want) {
			t.Errorf("%+v: %v, want %v", limits, err, want)
		}
	}
}

func TestPartWriterStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	store := blob.NewMemory()
	w := newRowWriter(ctx, store, testOptions(t, smallLimits))
	rows := testRows(15, 100, someNull)
	for i := range rows[:50] {
		if err := w.Append(&rows[i]); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if _, err := w.Finish(); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestTruncatedBoundsStayBounds(t *testing.T) {
	for _, v := range []string{
		"", "short", strings.Repeat("a", part.BoundBytes), strings.Repeat("a", part.BoundBytes+1),
		strings.Repeat("a", part.BoundBytes-1) + "é", strings.Repeat("é", part.BoundBytes),
		strings.Repeat("\x7f", 2*part.BoundBytes), strings.Repeat("\ud7ff", part.BoundBytes),
		"a" + strings.Repeat("\U0010ffff", part.BoundBytes), strings.Repeat("\U0010ffff", part.BoundBytes),
	} {
		lo, hi := lowerBound([]byte(v)), upperBound([]byte(v))
		if string(lo) > v || string(hi) < v {
			t.Errorf("%.20q…: %.20q to %.20q", v, lo, hi)
		}
		if !strings.HasPrefix(v, string(lo)) || len(lo) > part.BoundBytes {
			t.Errorf("lower bound of %d bytes", len(lo))
		}
		if s := string(hi); strings.ToValidUTF8(s, "") != s || strings.ToValidUTF8(string(lo), "") != string(lo) {
			t.Errorf("%.20q…: bounds are not UTF-8", v)
		}
	}
}

// feed is what a PartWriter is fed at once.
type feed struct {
	hosts []row.SortedHost
	rows  []row.SortedRow
}

// fed is what a PartWriter is fed of sorted rows, at most so many rows of so many hosts at a time.
func fed(rows []row.Row, mostRows, mostHosts int) (feeds []feed) {
	// Text lies together, as in a merge's buffer.
	var size int
	for i := range rows {
		size += len(rows[i].PathQuery) + len(rows[i].Domain) + len(rows[i].Host)
	}
	arena := make([]byte, 0, size)
	keep := func(s string) []byte {
		arena = append(arena, s...)
		return arena[len(arena)-len(s):]
	}
	tails := map[row.Suffix]*row.Suffix{row.UsualSuffixes[row.HTTPSSuffix]: &row.UsualSuffixes[row.HTTPSSuffix], row.UsualSuffixes[row.HTTPSuffix]: &row.UsualSuffixes[row.HTTPSuffix]}
	f := new(feed)
	var host row.SortedHost
	for i := range rows {
		r := &rows[i]
		next := i == 0 || r.Host != host.Host || r.Domain != host.Domain
		if next {
			host = row.SortedHost{Domain: row.View(keep(r.Domain)), Host: row.View(keep(r.Host)), DomainID: urlnorm.DomainID(r.Domain), Rows: 0}
		}
		if len(f.rows) == mostRows || next && len(f.hosts) == mostHosts {
			feeds = append(feeds, *f)
			f = new(feed)
		}
		if next || len(f.hosts) == 0 {
			f.hosts = append(f.hosts, host)
		}
		tail := row.Suffix{Scheme: r.Scheme, Port: r.Port, TS: r.TS, HasTS: r.HasTS, Size: r.Size, HasSize: r.HasSize, Extras: r.Extras, RawURL: r.RawURL}
		at := tails[tail]
		if at == nil {
			at = &tail
			tails[tail] = at
		}
		f.hosts[len(f.hosts)-1].Rows++
		f.rows = append(f.rows, row.SortedRow{Path: keep(r.PathQuery), Suffix: at})
	}
	return append(feeds, *f)
}

func writeFed(tb testing.TB, store blob.Store, feeds []feed, opt Options) (parts []part.Written, records int) {
	tb.Helper()
	w := New(context.Background(), store, opt)
	for _, f := range feeds {
		n, err := w.Rows(f.hosts, f.rows)
		if err != nil {
			tb.Fatal(err)
		}
		records += n
	}
	parts, err := w.Finish()
	if err != nil {
		tb.Fatal(err)
	}
	return parts, records
}

// discardStore takes objects and forgets them.
type discardStore struct{ blob.Store }

type discardWriter struct{ io.Writer }

func (discardStore) Create(context.Context, string) (blob.Writer, error) {
	return discardWriter{io.Discard}, nil
}
func (discardWriter) Finish() (blob.Info, error) { return blob.Info{}, nil }
func (discardWriter) Abort()                     {}

// BenchmarkPartWriter writes real rows, and those of the list of URLs that URLAKE_BENCH_LIST names; real rows also
// with parquet-go's writer with the same pages, compression and columns.
func BenchmarkPartWriter(b *testing.B) {
	rows := realRows(b)
	report := func(b *testing.B, rows int, bytes int64) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(rows), "ns/row")
		b.ReportMetric(float64(bytes)/float64(rows), "B/row")
	}
	lists := map[string][]row.Row{"real": rows}
	if name := os.Getenv("URLAKE_BENCH_LIST"); name != "" {
		f, err := os.Open(name)
		if err != nil {
			b.Fatal(err)
		}
		lists["list"] = sortedRows(parseLines(f, nil))
		f.Close()
	}
	for name, rows := range lists {
		feeds := fed(rows, 256, 128)
		b.Run(name, func(b *testing.B) {
			var parts []part.Written
			for b.Loop() {
				parts, _ = writeFed(b, discardStore{}, feeds, testOptions(b, part.Limits{}))
			}
			var bytes int64
			var cols [part.NumColumns]int64
			for _, p := range parts {
				bytes += p.Part.Bytes
				for _, block := range p.Blocks {
					for c, run := range block.Cols {
						cols[c] += run.Offs[block.Pages()] - run.Offs[0]
					}
				}
			}
			for c, n := range cols {
				b.ReportMetric(float64(n)/float64(len(rows)), part.Column(c).String()+"-B/row")
			}
			report(b, len(rows), bytes)
		})
	}
	b.Run("parquet-go", func(b *testing.B) {
		var out bytes.Buffer
		for b.Loop() {
			out.Reset()
			writeParquetGo(b, &out, rows)
		}
		report(b, len(rows), int64(out.Len()))
	})
}

// writeParquetGo writes the rows of a part with parquet-go's column writers, pages of PageRows rows.
func writeParquetGo(tb testing.TB, out io.Writer, rows []row.Row) {
	tb.Helper()
	w := parquet.NewWriter(out, parquet.SchemaOf(new(parquetGoRow)),
		parquet.Compression(&zstd.Codec{Level: zstd.SpeedFastest}), parquet.DataPageVersion(2), parquet.ColumnIndexSizeLimit(func([]string) int { return part.BoundBytes }),
		parquet.DataPageStatistics(false), parquet.CreatedBy("urlake", "1", ""))
	cols := w.ColumnWriters()
	values := make([][]parquet.Value, part.NumColumns)
	text := func(c part.Column, s string, level int) {
		values[c] = append(values[c], parquet.ByteArrayValue([]byte(s)).Level(0, level, int(c)))
	}
	optional := func(c part.Column, has bool, v parquet.Value) {
		if has {
			values[c] = append(values[c], v.Level(0, 1, int(c)))
		} else {
			values[c] = append(values[c], parquet.NullValue().Level(0, 0, int(c)))
		}
	}
	for len(rows) > 0 {
		page := rows[:min(part.PageRows, len(rows))]
		rows = rows[len(page):]
		for c := range values {
			values[c] = values[c][:0]
		}
		for i := range page {
			r := &page[i]
			values[part.ColDatasetID] = append(values[part.ColDatasetID], parquet.Int32Value(testDataset).Level(0, 0, int(part.ColDatasetID)))
			text(part.ColBatch, testBatch, 0)
			text(part.ColScheme, r.Scheme, 0)
			optional(part.ColPort, r.Port >= 0, parquet.Int32Value(r.Port))
			values[part.ColDomainID] = append(values[part.ColDomainID], parquet.Int64Value(int64(urlnorm.DomainID(r.Domain))).Level(0, 0, int(part.ColDomainID)))
			text(part.ColDomain, r.Domain, 0)
			text(part.ColHost, r.Host, 0)
			optional(part.ColTS, r.HasTS, parquet.Int64Value(r.TS))
			optional(part.ColSize, r.HasSize, parquet.Int64Value(r.Size))
			text(part.ColPathQuery, r.PathQuery, 0)
			url := urlnorm.URLID([]byte(r.Scheme + "://" + r.Host + r.PathQuery))
			values[part.ColURLID] = append(values[part.ColURLID], parquet.Int64Value(int64(url)).Level(0, 0, int(part.ColURLID)))
			optional(part.ColRawURL, r.RawURL != "", parquet.ByteArrayValue([]byte(r.RawURL)))
			optional(part.ColExtras, r.Extras != "", parquet.ByteArrayValue([]byte(r.Extras)))
		}
		for c, w := range cols {
			if _, err := w.WriteRowValues(values[c]); err != nil {
				tb.Fatal(err)
			}
			if err := w.Flush(); err != nil {
				tb.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
}
