// Long file: all tests write the same cases and read them back with three readers.

package part

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
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

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/urlnorm"
)

func testOptions(tb testing.TB, lim Limits) Options {
	return Options{
		Dataset: testDataset, Batch: testBatch, Prefix: lake.AnyPrefix, TempDir: tb.TempDir(), Limits: lim,
	}
}

// writeParts writes rows and returns the parts and the store that has them.
func writeParts(tb testing.TB, rows []row.Row, lim Limits) (*blob.Memory, []Written) {
	tb.Helper()
	return writeWith(tb, rows, testOptions(tb, lim))
}

func writeWith(tb testing.TB, rows []row.Row, opt Options) (*blob.Memory, []Written) {
	tb.Helper()
	store := blob.NewMemory()
	return store, writeRows(tb, NewWriter(context.Background(), store, opt), rows)
}

// rowWriter is a Writer that is given single rows.
type rowWriter struct {
	*Writer
	key row.Key
	buf []byte
}

func newRowWriter(ctx context.Context, store blob.Store, opt Options) *rowWriter {
	return &rowWriter{Writer: NewWriter(ctx, store, opt)}
}

func (w *rowWriter) Append(r *row.Row) error {
	w.buf = r.AppendKey(w.buf[:0])
	if err := w.key.Next(w.buf); err != nil {
		return w.fail(err)
	}
	return w.key.Pass(w.Writer)
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
	// Extension types (JSON) are read from their storage.
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
				switch Column(c) {
				case ColDatasetID:
					o.DatasetID = uint32(num())
				case ColBatch:
					o.Batch = str()
				case ColScheme:
					o.Scheme = str()
				case ColPort:
					if o.Port = -1; !null {
						o.Port = int32(num())
					}
				case ColDomainID:
					o.DomainID = uint64(num())
				case ColDomain:
					o.Domain = str()
				case ColHost:
					o.Host = str()
				case ColTS:
					if o.HasTS = !null; !null {
						o.TS = num() / 1000
					}
				case ColSize:
					if o.HasSize = !null; !null {
						o.Size = num()
					}
				case ColPathQuery:
					o.PathQuery = str()
				case ColURLID:
					o.URLID = uint64(num())
				case ColRawURL:
					o.RawURL, o.NullRaw = str(), null
				case ColExtras:
					o.Extras, o.NullExt = str(), null
				}
			}
		}
	}
	return out
}

func TestPartsReadTheSameByOtherLibraries(t *testing.T) {
	for _, tc := range writerCases() {
		t.Run(tc.Name, func(t *testing.T) {
			store, parts := writeParts(t, tc.Rows, tc.Limits)
			want := fileRows(tc.Rows)
			var byParquetGo, byArrow []fileRow
			for i, p := range parts {
				data := partBytes(t, store, p)
				wantKey := lake.PartKey(testDataset, lake.AnyPrefix, testBatch, lake.Digest(data), i)
				if p.Part.Key != wantKey {
					t.Errorf("key %s, want %s", p.Part.Key, wantKey)
				}
				got := readParquetGo(t, data)
				if int64(len(got)) != p.Part.Rows || int64(len(data)) != p.Part.Bytes {
					t.Errorf("part %d says %d rows and %d bytes, has %d and %d",
						i, p.Part.Rows, p.Part.Bytes, len(got), len(data))
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
	for _, tc := range writerCases() {
		t.Run(tc.Name, func(t *testing.T) {
			store, parts := writeParts(t, tc.Rows, tc.Limits)
			for _, p := range parts {
				data := partBytes(t, store, p)
				f, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
				if err != nil {
					t.Fatal(err)
				}
				if got := f.Metadata().CreatedBy; got != CreatedBy {
					t.Errorf("created_by %q, want %q", got, CreatedBy)
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

// checkRowGroup compares offset index, column index, statistics and sorting columns with the
// values.
func checkRowGroup(t *testing.T, f *parquet.File, g int, rg parquet.RowGroup) {
	meta := f.Metadata().RowGroups[g]
	var sorting []string
	for _, s := range meta.SortingColumns {
		if s.Descending || !s.NullsFirst {
			t.Errorf("sorting column %+v", s)
		}
		sorting = append(sorting, Column(s.ColumnIdx).String())
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
			t.Errorf("pages of %s start at rows %v, those of the first column at %v", Column(c), rows, firstRows)
		}
		typ := chunk.Type()
		pages := chunk.Pages()
		var nulls int64
		var lo, hi parquet.Value
		for p := 0; ; p++ {
			page, err := pages.ReadPage()
			if err == io.EOF {
				if p != index.NumPages() {
					t.Errorf("%s: %d pages, the column index has %d", Column(c), p, index.NumPages())
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
					t.Errorf("%s page %d: %v is not between %v and %v",
						Column(c), p, v, index.MinValue(p), index.MaxValue(p))
				}
				if lo.IsNull() || typ.Compare(v, lo) < 0 {
					lo = v.Clone()
				}
				if hi.IsNull() || typ.Compare(v, hi) > 0 {
					hi = v.Clone()
				}
			}
			if index.NullCount(p) != n || index.NullPage(p) != (n == int64(len(values))) {
				t.Errorf("%s page %d: %d nulls, column index says %d (%v)",
					Column(c), p, n, index.NullCount(p), index.NullPage(p))
			}
			nulls += n
			parquet.Release(page)
		}
		pages.Close()
		for p := 1; p < index.NumPages() && index.IsAscending(); p++ {
			if !index.NullPage(p) && !index.NullPage(p-1) && typ.Compare(index.MinValue(p-1), index.MinValue(p)) > 0 {
				t.Errorf("%s: bounds said to ascend do not", Column(c))
			}
		}
		if c == int(ColDomain) && !index.IsAscending() {
			t.Error("bounds of domain do not ascend")
		}
		st := meta.Columns[c].MetaData.Statistics
		if st.NullCount != nulls {
			t.Errorf("%s: null_count %d, has %d", Column(c), st.NullCount, nulls)
		}
		if lo.IsNull() {
			if st.MinValue != nil || st.MaxValue != nil {
				t.Errorf("%s: bounds without values", Column(c))
			}
			continue
		}
		min, max := typ.Kind().Value(st.MinValue), typ.Kind().Value(st.MaxValue)
		if typ.Compare(min, lo) > 0 || typ.Compare(max, hi) < 0 {
			t.Errorf("%s: statistics %v to %v, values %v to %v", Column(c), min, max, lo, hi)
		}
		if len(lo.String()) <= BoundBytes && !parquet.Equal(min, lo) ||
			len(hi.String()) <= BoundBytes && !parquet.Equal(max, hi) {
			t.Errorf("%s: short bounds %v to %v are not the values %v to %v", Column(c), min, max, lo, hi)
		}
	}
}

func TestPartSchemaIsTheDocumentedOne(t *testing.T) {
	store, parts := writeParts(t, sameSite(1), Limits{})
	data := partBytes(t, store, parts[0])
	f, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, e := range f.Metadata().Schema[1:] {
		if int(e.FieldID) != i+1 {
			t.Errorf("%s has field id %d", e.Name, e.FieldID)
		}
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
		"ts INT64 optional TIMESTAMP(isAdjustedToUTC=true,unit=MICROS)", "size INT64 optional",
		"path_query BYTE_ARRAY STRING", "url_id INT64",
		"raw_url BYTE_ARRAY optional STRING", "extras BYTE_ARRAY optional JSON",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("schema (-want +got):\n%s", diff)
	}
	for i, c := range f.Metadata().RowGroups[0].Columns {
		codec, encoding := format.Zstd, format.Plain
		if Column(i) == ColURLID {
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
	store, parts := writeParts(t, rows, smallLimits)
	if len(parts) < 3 {
		t.Fatalf("%d parts", len(parts))
	}
	for _, p := range parts {
		data := partBytes(t, store, p)
		groups := make([]int64, p.Part.RowGroups) // bytes before compression, page headers left out
		for i := range p.Blocks {
			b := &p.Blocks[i]
			for n := range b.Pages() {
				rows := int(b.PageStart(n+1) - b.PageStart(n))
				if rows > smallLimits.PageRows {
					t.Errorf("page of %d rows", rows)
				}
				for c := range Column(NumColumns) {
					h, err := ReadPageHeader(data[b.PageOffset(c, n):b.PageOffset(c, n+1)], c, rows, "part")
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
	cases := writerCases()
	for seed := range uint64(20) {
		cases = append(cases, writerCases()[0])
		c := &cases[len(cases)-1]
		c.Name, c.Rows = fmt.Sprintf("tangled %d", seed), sortedRows(tangledRows(seed, 100))
	}
	for _, tc := range cases {
		for _, pageRows := range []int{1, 2, 100, PageRows} {
			var keys int64
			for _, r := range tc.Rows {
				keys += int64(len(r.AppendKey(nil)))
			}
			bound := MaxPlainBytes(testBatch, int64(len(tc.Rows)), keys)
			lim := Limits{PageRows: pageRows, RowGroupBytes: bound, PartBytes: bound}
			_, parts := writeParts(t, tc.Rows, lim)
			if len(parts) != 1 || parts[0].Part.RowGroups != 1 {
				t.Errorf("%s, pages of %d rows: %d parts, the first of %d row groups",
					tc.Name, pageRows, len(parts), parts[0].Part.RowGroups)
			}
		}
	}
}

func TestLargeExtrasEndPages(t *testing.T) {
	rows := sameSite(100)
	for i := range rows {
		rows[i].Extras = `"` + strings.Repeat("x", 100<<10) + `"`
	}
	_, parts := writeParts(t, rows, Limits{})
	b := parts[0].Blocks[0]
	for i := range b.Pages() {
		if n := b.PageStart(i+1) - b.PageStart(i); n > 11 {
			t.Errorf("page of %d rows of 100 KiB", n)
		}
	}
}

func TestPartBytesDependOnRowsAlone(t *testing.T) {
	rows := testRows(9, 4000, someNull)
	store, parts := writeParts(t, rows, smallLimits)
	// Other rows in between change the state of pooled encoders and buffers.
	writeParts(t, testRows(10, 3000, allSet), Limits{})
	runtime.GC()
	again, partsAgain := writeParts(t, rows, smallLimits)
	for i := range parts {
		if i == len(partsAgain) || parts[i].Part != partsAgain[i].Part {
			t.Fatalf("parts %+v, want %+v", partsAgain, parts)
		}
		if !bytes.Equal(partBytes(t, store, parts[i]), partBytes(t, again, partsAgain[i])) {
			t.Errorf("part %d differs", i)
		}
	}
}

func TestInvalidRowsAreRejected(t *testing.T) {
	ok := row.Row{Domain: "b.example", Host: "b.example", Scheme: "http", Port: 80, PathQuery: "/b",
		TS: 5, HasTS: true, Size: 5, HasSize: true, Extras: `{"b":1}`, RawURL: "b"}
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
		"a ts out of range":  change(func(r *row.Row) { r.TS = MaxTS + 1 }),
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
			w := newRowWriter(context.Background(), blob.NewMemory(), testOptions(t, Limits{}))
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

// The parts do not depend on how many rows come at a time. A record that comes several times is
// written once.
func TestPartsDoNotDependOnHowManyRowsCome(t *testing.T) {
	for _, tc := range writerCases() {
		t.Run(tc.Name, func(t *testing.T) {
			store, parts := writeParts(t, tc.Rows, tc.Limits)
			var twice []row.Row
			for i, r := range tc.Rows {
				twice = append(twice, r)
				for range i % 3 {
					if r.RawURL != "" {
						r.RawURL += "x"
					}
					twice = append(twice, r)
				}
			}
			for name, batches := range map[string][]batch{
				"all at once":       batchesOf(tc.Rows, math.MaxInt, math.MaxInt),
				"as from a buffer":  batchesOf(tc.Rows, 256, 128),
				"one by one":        batchesOf(tc.Rows, 1, 1),
				"seven of two":      batchesOf(tc.Rows, 7, 2),
				"twice":             batchesOf(twice, math.MaxInt, math.MaxInt),
				"twice, one by one": batchesOf(twice, 1, 1),
			} {
				other := blob.NewMemory()
				batchParts, records := writeBatches(t, other, batches, testOptions(t, tc.Limits))
				if records != len(tc.Rows) {
					t.Errorf("%s: %d records, want %d", name, records, len(tc.Rows))
				}
				if len(parts) != len(batchParts) {
					t.Fatalf("%s: %d parts, want %d", name, len(batchParts), len(parts))
				}
				for i := range parts {
					if !bytes.Equal(partBytes(t, store, parts[i]), partBytes(t, other, batchParts[i])) {
						t.Errorf("%s: part %d differs", name, i)
					}
				}
			}
		})
	}
}

func TestHostsAndRowsOutOfOrderAreRejected(t *testing.T) {
	https, http := &row.Suffix{Scheme: "https", Port: -1}, &row.Suffix{Scheme: "http", Port: -1}
	usualHTTPS, usualHTTP := &row.UsualSuffixes[row.HTTPSSuffix], &row.UsualSuffixes[row.HTTPSuffix]
	host := func(domain, host string, rows int) row.SortedHost {
		return row.SortedHost{Domain: domain, Host: host, DomainID: urlnorm.DomainID(domain), Rows: rows}
	}
	sorted := func(path string, suffix *row.Suffix) row.SortedRow {
		return row.SortedRow{Path: []byte(path), Suffix: suffix}
	}
	one := func(r ...row.SortedRow) batch {
		return batch{[]row.SortedHost{host("b.example", "b.example", len(r))}, r}
	}
	hosts := func(h ...row.SortedHost) batch {
		rows := make([]row.SortedRow, len(h))
		for i := range h {
			h[i].Rows, rows[i] = 1, sorted("/b", https)
		}
		return batch{h, rows}
	}
	long := strings.Repeat("long/", 100)
	for name, tc := range map[string]struct {
		calls  []batch
		prefix string
	}{
		"a row without a host": {calls: []batch{{rows: []row.SortedRow{sorted("/", https)}}}},
		"more rows than hosts have": {
			calls: []batch{{
				hosts: []row.SortedHost{host("b.example", "b.example", 1)},
				rows:  []row.SortedRow{sorted("/", https), sorted("/a", https)},
			}},
		},
		"fewer rows than hosts have": {
			calls: []batch{{hosts: []row.SortedHost{host("b.example", "b.example", 1)}}},
		},
		"a host without rows": {
			calls: []batch{{hosts: []row.SortedHost{host("b.example", "b.example", 0)}}},
		},
		"the same host": {
			calls: []batch{hosts(host("b.example", "b.example", 0), host("b.example", "b.example", 0))},
		},
		"a smaller host": {
			calls: []batch{hosts(host("b.example", "b.example", 0), host("b.example", "a.b.example", 0))},
		},
		"a smaller host in another call": {
			calls: []batch{one(sorted("/b", https)), hosts(host("b.example", "a.b.example", 0))},
		},
		"a smaller domain": {
			calls: []batch{hosts(host("b.example", "b.example", 0), host("a.example", "c.a.example", 0))},
		},
		"another id of the same domain": {
			calls: []batch{hosts(
				host("b.example", "b.example", 0),
				row.SortedHost{Domain: "b.example", Host: "c.example", DomainID: 1, Rows: 0},
			)},
		},
		"a smaller path":                 {calls: []batch{one(sorted("/b", https), sorted("/a", https))}},
		"a smaller path in another call": {calls: []batch{one(sorted("/b", https)), one(sorted("/a", https))}},
		"a smaller path with a long common prefix": {
			calls: []batch{one(sorted("/"+long+"b", https), sorted("/"+long+"a", https))},
		},
		"a shorter path":                   {calls: []batch{one(sorted("/b", https), sorted("/", https))}},
		"a shorter path in another call":   {calls: []batch{one(sorted("/b", https)), one(sorted("/", https))}},
		"a much shorter path":              {calls: []batch{one(sorted("/"+long+"b", https), sorted("/"+long, https))}},
		"a smaller suffix":                 {calls: []batch{one(sorted("/b", https), sorted("/b", http))}},
		"a smaller suffix in another call": {calls: []batch{one(sorted("/b", https)), one(sorted("/b", http))}},
		"a usual suffix after another": {
			calls: []batch{one(sorted("/b", &row.Suffix{Scheme: "https", Port: 1}), sorted("/b", usualHTTPS))},
		},
		"a smaller suffix, a usual one": {calls: []batch{one(sorted("/b", usualHTTPS), sorted("/b", usualHTTP))}},
		"a smaller path of a usual suffix": {
			calls: []batch{one(sorted("/a", usualHTTPS), sorted("/c", usualHTTPS), sorted("/b", usualHTTPS))},
		},
		"a shorter path of a usual suffix": {
			calls: []batch{one(sorted("/a", usualHTTPS), sorted("/ab", usualHTTPS), sorted("/a", usualHTTPS))},
		},
		"a smaller domain that is longer": {
			calls: []batch{hosts(
				host("m.example", "m.example", 0),
				host("n.example", "a.n.example", 0),
				host("n.example", "b.n.example", 0),
				host("a.examples", "a.examples", 0),
			)},
		},
		"a smaller host that is longer": {
			calls: []batch{hosts(
				host("m.example", "m.example", 0),
				host("n.example", "x", 0),
				host("o.example", "x", 0),
				host("o.example", "o.example", 0),
			)},
		},
		"a domain of another partition": {
			calls: []batch{one(sorted("/", https))}, prefix: urlnorm.FormatID(^urlnorm.DomainID("b.example"))[:1],
		},
	} {
		opt := testOptions(t, Limits{})
		if tc.prefix != "" {
			opt.Prefix = tc.prefix
		}
		w := NewWriter(context.Background(), blob.NewMemory(), opt)
		for i, c := range tc.calls {
			if _, err := w.Rows(c.hosts, c.rows); (err != nil) != (i == len(tc.calls)-1) {
				t.Errorf("%s: call %d: %v", name, i, err)
			}
		}
		if _, err := w.Finish(); err == nil {
			t.Errorf("%s: Finish after the error succeeds", name)
		}
	}
}

func TestDomainsOfOtherPartitionsAreRejected(t *testing.T) {
	for _, digits := range []int{1, 2} {
		rows := testRows(13, 400, someNull)
		prefix := urlnorm.FormatID(urlnorm.DomainID(rows[0].Domain))[:digits]
		opt := testOptions(t, Limits{})
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
		rejected := 0
		for i := range rows {
			if w.Append(&rows[i]) != nil {
				rejected++
			}
		}
		if rejected == 0 {
			t.Error("rows of all partitions accepted")
		}
	}
}

func TestInvalidOptionsAreRejected(t *testing.T) {
	good := testOptions(t, Limits{})
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
		if _, err := NewWriter(context.Background(), blob.NewMemory(), opt).Finish(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestNoRowsNoParts(t *testing.T) {
	_, parts := writeParts(t, nil, Limits{})
	if len(parts) != 0 {
		t.Errorf("%d parts", len(parts))
	}
}

// faultyStore fails one step of the upload.
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
			if w.file.spool != nil {
				t.Error("part still open")
			}
		})
	}
}

// The last part of one writer is stored while others write.
func TestPartsAreStoredWhileOthersAreWritten(t *testing.T) {
	for _, limits := range []Limits{{}, smallLimits} {
		opt := testOptions(t, limits)
		store := blob.NewMemory()
		type stored struct {
			parts []Written
			err   error
		}
		var want [][]byte
		var got []chan stored
		for seed := range uint64(6) {
			rows := testRows(seed, 600, someNull)
			alone, parts := writeWith(t, rows, opt)
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
			_, _, err := store.Get(context.Background(), parts[len(parts)-1].Part.Key)
			if !errors.Is(err, blob.ErrNotExist) {
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
		var all []Written
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
		faulty := &faultyStore{Memory: blob.NewMemory(), create: errors.New("part of an aborted writer")}
		w := newRowWriter(context.Background(), faulty, opt)
		rows := testRows(1, 1, someNull)
		if err := w.Append(&rows[0]); err != nil {
			t.Fatal(err)
		}
		if err := w.End(); err != nil {
			t.Fatal(err)
		}
		w.Abort()
		if _, err := w.Finish(); err == nil || w.file.spool != nil {
			t.Errorf("Finish after Abort: %v", err)
		}
	}
}

func TestPartWriterNeedsItsFolderForSeveralRowGroups(t *testing.T) {
	rows := testRows(16, 600, someNull)
	for limits, want := range map[Limits]error{{}: nil, smallLimits: os.ErrNotExist} {
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
		"", "short", strings.Repeat("a", BoundBytes), strings.Repeat("a", BoundBytes+1),
		strings.Repeat("a", BoundBytes-1) + "é", strings.Repeat("é", BoundBytes),
		strings.Repeat("\x7f", 2*BoundBytes), strings.Repeat("\ud7ff", BoundBytes),
		"a" + strings.Repeat("\U0010ffff", BoundBytes), strings.Repeat("\U0010ffff", BoundBytes),
	} {
		lo, hi := lowerBound([]byte(v)), upperBound([]byte(v))
		if string(lo) > v || string(hi) < v {
			t.Errorf("%.20q…: %.20q to %.20q", v, lo, hi)
		}
		if !strings.HasPrefix(v, string(lo)) || len(lo) > BoundBytes {
			t.Errorf("lower bound of %d bytes", len(lo))
		}
		if s := string(hi); strings.ToValidUTF8(s, "") != s || strings.ToValidUTF8(string(lo), "") != string(lo) {
			t.Errorf("%.20q…: bounds are not UTF-8", v)
		}
	}
}

// batch is the argument of one call of Writer.Rows.
type batch struct {
	hosts []row.SortedHost
	rows  []row.SortedRow
}

// suffixOf is the suffix of a row.
func suffixOf(r *row.Row) row.Suffix {
	return row.Suffix{Scheme: r.Scheme, Port: r.Port, TS: r.TS, HasTS: r.HasTS, Size: r.Size, HasSize: r.HasSize,
		Extras: r.Extras, RawURL: r.RawURL}
}

// batchesOf cuts sorted rows into batches of at most maxRows rows and maxHosts hosts.
func batchesOf(rows []row.Row, maxRows, maxHosts int) (batches []batch) {
	// All text is in one piece of memory, as in the buffer of a merge.
	var size int
	for i := range rows {
		size += len(rows[i].PathQuery) + len(rows[i].Domain) + len(rows[i].Host)
	}
	arena := make([]byte, 0, size)
	keep := func(s string) []byte {
		arena = append(arena, s...)
		return arena[len(arena)-len(s):]
	}
	suffixes := make(map[row.Suffix]*row.Suffix)
	for i := range row.UsualSuffixes {
		suffixes[row.UsualSuffixes[i]] = &row.UsualSuffixes[i]
	}
	f := new(batch)
	var host row.SortedHost
	for i := range rows {
		r := &rows[i]
		next := i == 0 || r.Host != host.Host || r.Domain != host.Domain
		if next {
			host = row.SortedHost{
				Domain: row.View(keep(r.Domain)), Host: row.View(keep(r.Host)), DomainID: urlnorm.DomainID(r.Domain),
			}
		}
		if len(f.rows) == maxRows || next && len(f.hosts) == maxHosts {
			batches = append(batches, *f)
			f = new(batch)
		}
		if next || len(f.hosts) == 0 {
			f.hosts = append(f.hosts, host)
		}
		value := suffixOf(r)
		suffix := suffixes[value]
		if suffix == nil {
			suffix = &value
			suffixes[value] = suffix
		}
		f.hosts[len(f.hosts)-1].Rows++
		f.rows = append(f.rows, row.SortedRow{Path: keep(r.PathQuery), Suffix: suffix})
	}
	return append(batches, *f)
}

// writeBatches writes batches and returns the parts and the number of records.
func writeBatches(
	tb testing.TB, store blob.Store, batches []batch, opt Options,
) (parts []Written, records int) {
	tb.Helper()
	w := NewWriter(context.Background(), store, opt)
	for _, f := range batches {
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

// discardStore accepts objects and drops them.
type discardStore struct{ blob.Store }

type discardWriter struct{ io.Writer }

func (discardStore) Create(context.Context, string) (blob.Writer, error) {
	return discardWriter{io.Discard}, nil
}
func (discardWriter) Finish() (blob.Info, error) { return blob.Info{}, nil }
func (discardWriter) Abort()                     {}

// BenchmarkPartWriter writes real rows, and the list of URLs named by URLAKE_BENCH_LIST. For
// comparison, parquet-go writes the real rows with the same pages, compression and columns.
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
		batches := batchesOf(rows, 256, 128)
		b.Run(name, func(b *testing.B) {
			var parts []Written
			for b.Loop() {
				parts, _ = writeBatches(b, discardStore{}, batches, testOptions(b, Limits{}))
			}
			var bytes int64
			var cols [NumColumns]int64
			for _, p := range parts {
				bytes += p.Part.Bytes
				for i := range p.Blocks {
					block := &p.Blocks[i]
					for c := range cols {
						cols[c] += block.PageOffset(Column(c), block.Pages()) - block.PageOffset(Column(c), 0)
					}
				}
			}
			for c, n := range cols {
				b.ReportMetric(float64(n)/float64(len(rows)), Column(c).String()+"-B/row")
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

// writeParquetGo writes rows with parquet-go's column writers, in pages of PageRows rows.
func writeParquetGo(tb testing.TB, out io.Writer, rows []row.Row) {
	tb.Helper()
	w := parquet.NewWriter(out, parquet.SchemaOf(new(parquetGoRow)),
		parquet.Compression(&zstd.Codec{Level: zstd.SpeedFastest}), parquet.DataPageVersion(2),
		parquet.ColumnIndexSizeLimit(func([]string) int { return BoundBytes }),
		parquet.DataPageStatistics(false), parquet.CreatedBy("urlake", "1", ""))
	cols := w.ColumnWriters()
	values := make([][]parquet.Value, NumColumns)
	number := func(c Column, v parquet.Value) {
		values[c] = append(values[c], v.Level(0, 0, int(c)))
	}
	text := func(c Column, s string, level int) {
		values[c] = append(values[c], parquet.ByteArrayValue([]byte(s)).Level(0, level, int(c)))
	}
	optional := func(c Column, has bool, v parquet.Value) {
		if has {
			values[c] = append(values[c], v.Level(0, 1, int(c)))
		} else {
			values[c] = append(values[c], parquet.NullValue().Level(0, 0, int(c)))
		}
	}
	for len(rows) > 0 {
		page := rows[:min(PageRows, len(rows))]
		rows = rows[len(page):]
		for c := range values {
			values[c] = values[c][:0]
		}
		for i := range page {
			r := &page[i]
			number(ColDatasetID, parquet.Int32Value(testDataset))
			text(ColBatch, testBatch, 0)
			text(ColScheme, r.Scheme, 0)
			optional(ColPort, r.Port >= 0, parquet.Int32Value(r.Port))
			number(ColDomainID, parquet.Int64Value(int64(urlnorm.DomainID(r.Domain))))
			text(ColDomain, r.Domain, 0)
			text(ColHost, r.Host, 0)
			optional(ColTS, r.HasTS, parquet.Int64Value(r.TS*1000))
			optional(ColSize, r.HasSize, parquet.Int64Value(r.Size))
			text(ColPathQuery, r.PathQuery, 0)
			url := urlnorm.URLID([]byte(r.Scheme + "://" + r.Host + r.PathQuery))
			number(ColURLID, parquet.Int64Value(int64(url)))
			optional(ColRawURL, r.RawURL != "", parquet.ByteArrayValue([]byte(r.RawURL)))
			optional(ColExtras, r.Extras != "", parquet.ByteArrayValue([]byte(r.Extras)))
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
