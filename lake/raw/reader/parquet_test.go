package reader

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pq "github.com/parquet-go/parquet-go"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/parquetin"
)

// writeParquet writes rows with parquet-go, a library other than the one under test.
func writeParquet[T any](t testing.TB, rows []T, opt ...pq.WriterOption) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := pq.NewGenericWriter[T](&buf, opt...)
	for chunk := range slices.Chunk(rows, 70) {
		if _, err := w.Write(chunk); err != nil {
			t.Fatal(err)
		}
		if len(rows) > 200 && rand.IntN(2) == 0 {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func tinyParquet(t testing.TB) []byte {
	type row struct {
		N   int64  `parquet:"n"`
		URL string `parquet:"url"`
	}
	return writeParquet(t, []row{{1, "http://p/"}, {2, "http://q/"}})
}

func readParquet(t *testing.T, data []byte, opt raw.Options) (got, raw.Plan) {
	t.Helper()
	r, err := New(bytes.NewReader(data), "a.parquet", opt)
	if err != nil {
		t.Fatal(err)
	}
	g, err := readAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if used := r.CompressedOffset(); len(g.Rows) > 0 && used != int64(len(data)) {
		t.Errorf("progress ends at %d of %d bytes", used, len(data))
	}

	// Read the object by its plan, and without random access.
	b, err := json.Marshal(r.Plan())
	if err != nil {
		t.Fatal(err)
	}
	var plan raw.Plan
	if err := json.Unmarshal(b, &plan); err != nil {
		t.Fatal(err)
	}
	again, err := Open(&chunks{data, 1}, "a.parquet", plan)
	if err != nil {
		t.Fatal(err)
	}
	g2, err := readAll(again)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(g, g2); diff != "" {
		t.Errorf("read by its plan %s from memory:\n%s", b, diff)
	}
	return g, plan
}

type link struct {
	Rank *int64   `parquet:"rank,optional"`
	URL  *string  `parquet:"url,optional"`
	Tags []string `parquet:"tags,list"`
}

type page struct {
	Title string                `parquet:"title,dict"`
	Links []link                `parquet:"links,list"`
	When  int64                 `parquet:"when,timestamp(microsecond)"`
	Site  struct{ A, B *int32 } `parquet:"site"`
	Attrs map[string]int32      `parquet:"attrs"`
	Bytes *float64              `parquet:"bytes,optional"`
}

// TestParquetAgreesWithWhatWasWritten draws nested rows, has parquet-go write them in many ways,
// and compares every record with the rows.
func TestParquetAgreesWithWhatWasWritten(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 12 {
		var rows []page
		for i := range r.IntN(2500) {
			p := page{Title: fmt.Sprintf("t%d \"é\"", r.IntN(50)), When: 1_700_000_000_000_000 + r.Int64N(1e15)}
			for range r.IntN(4) {
				l := link{}
				if r.IntN(3) > 0 {
					n := r.Int64N(1e6)
					l.Rank = &n
				}
				if r.IntN(8) > 0 {
					u := fmt.Sprintf("http://h%d.example/%d", r.IntN(90), i)
					l.URL = &u
				}
				for range r.IntN(3) {
					l.Tags = append(l.Tags, fmt.Sprintf("g%d", r.IntN(9)))
				}
				p.Links = append(p.Links, l)
			}
			if r.IntN(2) > 0 {
				n := int32(r.IntN(100) - 50)
				p.Site.B = &n
			}
			for range r.IntN(3) {
				if p.Attrs == nil {
					p.Attrs = map[string]int32{}
				}
				p.Attrs[fmt.Sprintf("k%d", r.IntN(20))] = r.Int32()
			}
			if r.IntN(2) > 0 {
				f := float64(r.IntN(1e6))
				p.Bytes = &f
			}
			rows = append(rows, p)
		}
		var want []string
		blank := int64(0)
		for i, p := range rows {
			if len(p.Links) == 0 {
				blank++
			}
			for _, l := range p.Links {
				if l.URL == nil {
					want = append(want, fmt.Sprintf("%d !no_url", i+1))
					continue
				}
				s := fmt.Sprintf("%d %s ts=%d", i+1, *l.URL, p.When/1000)
				if p.Bytes != nil {
					s += fmt.Sprintf(" size=%d", int64(*p.Bytes))
				}
				in := map[string]any{"tags": l.Tags}
				if l.Tags == nil {
					in["tags"] = []string{}
				}
				if l.Rank != nil {
					in["rank"] = *l.Rank
				}
				extras := map[string]any{"title": p.Title, "attrs": p.Attrs, "links": in}
				if p.Attrs == nil {
					extras["attrs"] = map[string]int32{}
				}
				if p.Site.B != nil {
					extras["site"] = map[string]any{"B": *p.Site.B}
				} else {
					extras["site"] = map[string]any{}
				}
				b, err := json.Marshal(extras) // orders ASCII names as canonical JSON does
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, s+" "+string(b))
			}
		}
		opts := []pq.WriterOption{pq.PageBufferSize(1 << r.IntN(16)), pq.DataPageVersion(1 + round%2), pq.CreatedBy("test", "1.2.3", "x")}
		opts = append(opts, []pq.WriterOption{pq.Compression(&pq.Uncompressed), pq.Compression(&pq.Snappy), pq.Compression(&pq.Zstd), pq.Compression(&pq.Gzip)}[round%4])
		data := writeParquet(t, rows, opts...)
		g, plan := readParquet(t, data, raw.Options{URLColumn: "links.url", TSColumn: "when", SizeField: "bytes", Extras: []string{"*"}})
		if plan.URL.Name != "links.url" {
			t.Errorf("wrong URL column %+v", plan.URL)
		}
		if diff := cmp.Diff(want, g.Rows); diff != "" {
			t.Fatalf("round %d, %d rows (-want +got):\n%.3000s", round, len(rows), diff)
		}
		if g.Counts.Blank != blank {
			t.Errorf("%d rows without links, counted %d", blank, g.Counts.Blank)
		}
	}
}

func TestParquetColumnsOfManyTypes(t *testing.T) {
	type row struct {
		Date  int32     `parquet:"date,date"`
		UUID  [16]byte  `parquet:"uuid,uuid"`
		Dec   int64     `parquet:"dec,decimal(2:18)"`
		DecB  [16]byte  `parquet:"decb,decimal(3:38)"`
		F     float32   `parquet:"f"`
		U32   uint32    `parquet:"u32"`
		U64   uint64    `parquet:"u64"`
		Yes   bool      `parquet:"yes"`
		Milli time.Time `parquet:"milli,timestamp(millisecond)"`
		Nano  time.Time `parquet:"nano,timestamp(nanosecond)"`
		Clock int32     `parquet:"clock,time(millisecond)"`
		Raw   []byte    `parquet:"raw"`
		Delta string    `parquet:"delta,delta"`
		Ints  int64     `parquet:"ints,delta"`
		URL   string    `parquet:"page_url,delta"`
	}
	at := time.Date(2024, 5, 6, 7, 8, 9, 123456789, time.UTC)
	minus := [16]byte{}
	for i := range minus {
		minus[i] = 0xff
	}
	minus[15] = 0x01 // -255
	data := writeParquet(t, []row{{19849, [16]byte{0: 0x12, 15: 0xff}, -1234, minus, 1.5, 1 << 31, 1 << 63, true, at, at, 3_723_004, []byte("a\xff\"b"), "x", -7, " http://a/ "},
		{Delta: "y", URL: "http://b/", Milli: at, Nano: at}})
	g, plan := readParquet(t, data, raw.Options{Extras: []string{"*"}})
	if plan.URL.Name != "page_url" || plan.URL.Number != 15 {
		t.Errorf("URL column %+v", plan.URL)
	}
	want := `1 http://a/ {"clock":"01:02:03.004","date":"2024-05-06","dec":"-12.34","decb":"-0.255","delta":"x","f":1.5,"ints":-7,"milli":"2024-05-06T07:08:09.123Z","nano":"2024-05-06T07:08:09.123456789Z","raw":"a` + "\ufffd" + `\"b","u32":2147483648,"u64":"9223372036854775808","uuid":"12000000-0000-0000-0000-0000000000ff","yes":true}`
	if len(g.Rows) != 2 || g.Rows[0] != want {
		t.Errorf("got  %q\nwant %q", g.Rows, want)
	}
	for column, ms := range map[string]int64{"date": 1714953600000, "milli": at.UnixMilli(), "nano": at.UnixMilli()} {
		g, _ := readParquet(t, data, raw.Options{TSColumn: column})
		if want := fmt.Sprintf("1 http://a/ ts=%d", ms); g.Rows[0] != want {
			t.Errorf("ts from %s: %q, want %q", column, g.Rows[0], want)
		}
	}
	for column, want := range map[string]string{"u32": "1 http://a/ size=2147483648", "u64": "1 !bad_size", "ints": "1 !bad_size", "f": "1 !bad_size"} {
		g, _ := readParquet(t, data, raw.Options{SizeField: column})
		if g.Rows[0] != want {
			t.Errorf("size from %s: %q, want %q", column, g.Rows[0], want)
		}
	}
	g, _ = readParquet(t, data, raw.Options{TSColumn: "raw"})
	if g.Rows[0] != "1 !bad_ts" || g.Rows[1] != "2 http://b/" {
		t.Errorf("ts from bytes: %q", g.Rows)
	}
}

func TestParquetColumnsAreChosenAndNamed(t *testing.T) {
	type inner struct {
		URL string `parquet:"url"`
	}
	type row struct {
		Text string  `parquet:"text"`
		In   inner   `parquet:"in"`
		Dot  string  `parquet:"a.b"`
		Many []inner `parquet:"many,list"`
		Flat []inner `parquet:"flat"`
		TS   int64   `parquet:"ts"`
	}
	data := writeParquet(t, []row{
		{"one", inner{"http://in/1"}, "http://dot/1", []inner{{"http://m/1"}, {"http://m/2"}}, []inner{{"http://f/1"}, {"http://f/2"}}, 1_700_000_000},
		{"two", inner{"http://in/2"}, "http://dot/2", nil, nil, 1_700_000_001}})
	for _, tc := range []struct {
		url    string
		extras []string
		want   []string
		blank  int64
	}{
		{"", nil, []string{"1 http://in/1 ts=1700000000000", "2 http://in/2 ts=1700000001000"}, 0},
		{"IN.URL", []string{"text"}, []string{`1 http://in/1 ts=1700000000000 {"text":"one"}`, `2 http://in/2 ts=1700000001000 {"text":"two"}`}, 0},
		{`a\.b`, nil, []string{"1 http://dot/1 ts=1700000000000", "2 http://dot/2 ts=1700000001000"}, 0},
		{"3", nil, []string{"1 http://dot/1 ts=1700000000000", "2 http://dot/2 ts=1700000001000"}, 0},
		{"many.url", []string{"text"}, []string{`1 http://m/1 ts=1700000000000 {"text":"one"}`, `1 http://m/2 ts=1700000000000 {"text":"one"}`}, 1},
		{"many.list.element.url", []string{"many", "flat.url"}, []string{
			`1 http://m/1 ts=1700000000000 {"flat.url":["http://f/1","http://f/2"],"many":[{"url":"http://m/1"},{"url":"http://m/2"}]}`,
			`1 http://m/2 ts=1700000000000 {"flat.url":["http://f/1","http://f/2"],"many":[{"url":"http://m/1"},{"url":"http://m/2"}]}`}, 1},
		{"flat.url", []string{"in"}, []string{`1 http://f/1 ts=1700000000000 {"in":{"url":"http://in/1"}}`, `1 http://f/2 ts=1700000000000 {"in":{"url":"http://in/1"}}`}, 1},
	} {
		g, plan := readParquet(t, data, raw.Options{URLColumn: tc.url, Extras: tc.extras})
		if diff := cmp.Diff(tc.want, g.Rows); diff != "" {
			t.Errorf("URL column %q, %+v (-want +got):\n%s", tc.url, plan.URL, diff)
		}
		if g.Counts.Blank != tc.blank {
			t.Errorf("URL column %q: %d blank, want %d", tc.url, g.Counts.Blank, tc.blank)
		}
	}
	for _, tc := range []struct {
		opt  raw.Options
		want string
	}{
		{raw.Options{URLColumn: "nothing"}, `no column "nothing"`},
		{raw.Options{URLColumn: "many"}, `no column "many"`},
		{raw.Options{URLColumn: "ts"}, "no text"},
		{raw.Options{SizeField: "many.url"}, "is a list"},
		{raw.Options{Extras: []string{"x"}}, `no column "x"`},
		{raw.Options{Format: raw.CSV}, "Parquet"},
	} {
		_, err := New(bytes.NewReader(data), "a.parquet", tc.opt)
		var fe *raw.FormatError
		if !errors.As(err, &fe) || !strings.Contains(fe.Reason, tc.want) {
			t.Errorf("%+v: got %v, want a rejection that says %q", tc.opt, err, tc.want)
		}
	}
}

func TestReversedHostsOfParquetAreTurnedRound(t *testing.T) {
	type row struct {
		Vertex int64  `parquet:"vertex"`
		Host   string `parquet:"host_rev"`
	}
	data := writeParquet(t, []row{{1, "com.example.www"}, {2, "org.wikipedia.en"}, {3, "uk.co.bbc"}})
	g, plan := read(t, "a.parquet", string(data), raw.Options{})
	want := []string{"1 www.example.com", "2 en.wikipedia.org", "3 bbc.co.uk"}
	if diff := cmp.Diff(want, g.Rows); diff != "" || len(plan.Notes) == 0 {
		t.Errorf("notes %q, records (-want +got):\n%s", plan.Notes, diff)
	}
}

// TestPartsOfALakeAreReadAsTheirRecords compares the records with the rows that parquet-go reads.
func TestPartsOfALakeAreReadAsTheirRecords(t *testing.T) {
	data, err := os.ReadFile("../../part/testdata/part-v1.parquet")
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		Scheme    string  `parquet:"scheme"`
		Port      *int32  `parquet:"port,optional"`
		Host      string  `parquet:"host"`
		TS        *int64  `parquet:"ts,optional"`
		Size      *int64  `parquet:"size,optional"`
		PathQuery string  `parquet:"path_query"`
		Extras    *string `parquet:"extras,optional"`
	}
	rows, err := pq.Read[row](bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(bytes.NewReader(data), "part.parquet", raw.Options{})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for i, want := range rows {
		rec, rej, err := r.Next()
		if err != nil || rej != nil {
			t.Fatalf("row %d: %v, %v", i+1, err, rej)
		}
		url := want.Scheme + "://" + want.Host
		if want.Port != nil {
			seen["port"]++
			url += fmt.Sprintf(":%d", *want.Port)
		}
		if url += want.PathQuery; string(rec.URL) != url {
			t.Errorf("row %d: URL %q, want %q", i+1, rec.URL, url)
		}
		if rec.HasTS != (want.TS != nil) || rec.HasTS && 1000*rec.TS != *want.TS {
			t.Errorf("row %d: time %d ms, want that of %v", i+1, rec.TS, want.TS)
		}
		if rec.HasSize != (want.Size != nil) || rec.HasSize && rec.Size != *want.Size {
			t.Errorf("row %d: size %d, want %v", i+1, rec.Size, want.Size)
		}
		if (rec.Extras != nil) != (want.Extras != nil) || want.Extras != nil && string(rec.Extras) != *want.Extras {
			t.Errorf("row %d: extras %s", i+1, rec.Extras)
		}
		if want.Extras != nil {
			seen["extras"]++
		}
	}
	if _, _, err := r.Next(); err != io.EOF || len(rows) == 0 || seen["port"] == 0 || seen["extras"] == 0 {
		t.Errorf("%d rows, with these columns seen: %v; then error %v", len(rows), seen, err)
	}
}

func TestLongValuesOfParquetAreRejected(t *testing.T) {
	type row struct {
		URL  string   `parquet:"url"`
		List []string `parquet:"list"`
	}
	many := slices.Repeat([]string{"word"}, 50_000)
	data := writeParquet(t, []row{{"http://a/", many}, {"http://" + strings.Repeat("b", 2000), nil}, {"http://c/", nil}, {"http://d/", []string{"x"}}})
	g, _ := readParquet(t, data, raw.Options{MaxLine: 1000, Extras: []string{"list"}})
	if diff := cmp.Diff([]string{"1 !too_long_line", "2 !too_long_line", `3 http://c/ {"list":[]}`, `4 http://d/ {"list":["x"]}`}, g.Rows); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestEmptyParquet(t *testing.T) {
	type row struct {
		N int64 `parquet:"n"`
	}
	if g, _ := readParquet(t, writeParquet(t, []row(nil)), raw.Options{}); len(g.Rows) > 0 {
		t.Errorf("records %q of no rows", g.Rows)
	}
}

// damaged reads a damaged file. It fails the test for an error that does not match ErrInput.
func damaged(t testing.TB, data []byte) (got, error) {
	r, err := New(bytes.NewReader(data), "a.parquet", raw.Options{URLColumn: "url", Extras: []string{"*"}})
	var g got
	if err == nil {
		g, err = readAll(r)
	}
	if err != nil && !errors.Is(err, raw.ErrInput) {
		t.Fatalf("%v is no ErrInput", err)
	}
	return g, err
}

func damageableParquet(t testing.TB) []byte {
	type row struct {
		URL   string   `parquet:"url,dict"`
		Delta string   `parquet:"delta,delta"`
		N     int64    `parquet:"n,delta"`
		List  []string `parquet:"list,list"`
		Opt   *int32   `parquet:"opt,optional"`
	}
	var rows []row
	for i := range 30 {
		rows = append(rows, row{URL: fmt.Sprintf("http://a/%d", i%4), Delta: fmt.Sprint("x", i), N: int64(i * i), List: []string{"a", "b"}[:i%3]})
	}
	return writeParquet(t, rows, pq.Compression(&pq.Uncompressed))
}

func TestTruncatedParquetIsAnErrorAtEveryLength(t *testing.T) {
	data := damageableParquet(t)
	for _, n := range testenv.Places(4, len(data), 7) {
		_, err := damaged(t, data[:n])
		var de *raw.DataError
		if !errors.As(err, &de) || !strings.Contains(err.Error(), "truncated") {
			t.Fatalf("cut to %d of %d bytes: %v, want a truncated object", n, len(data), err)
		}
	}
}

func TestDamagedParquetNeverPanics(t *testing.T) {
	t.Parallel()
	data := damageableParquet(t)
	// Thrift's numbers and lists are in the footer and in the headers of pages.
	for _, i := range testenv.Places(0, len(data), 3) {
		for _, bit := range []int{i % 8, 7} {
			flipped := bytes.Clone(data)
			flipped[i] ^= 1 << bit
			// The error is about the file, not about the decoder's code.
			if _, err := damaged(t, flipped); err != nil && (strings.Contains(err.Error(), "runtime") || strings.Contains(err.Error(), "nil pointer")) {
				t.Errorf("bit %d of byte %d flipped: %v", bit, i, err)
			}
		}
	}
}

func TestRowGroupsThatEndEarlyAreErrors(t *testing.T) {
	data := damageableParquet(t)
	meta := bytes.LastIndex(data, []byte("PAR1"))
	// The numbers of rows in the footer are varints: 30 is 60 in zigzag form. Raise every 30 to 31.
	// The file's and the row group's number of rows must then be errors.
	missed := 0
	for i := meta - 4 - int(binary.LittleEndian.Uint32(data[meta-4:])); i < meta; i++ {
		if data[i] != 60 {
			continue
		}
		longer := bytes.Clone(data)
		longer[i] = 62
		if _, err := damaged(t, longer); err != nil {
			missed++
		}
	}
	if missed < 2 {
		t.Errorf("%d errors, want one for the number of rows and one for the row group's", missed)
	}
}

func TestHostileFootersTakeBoundedMemory(t *testing.T) {
	uvarint := func(n uint64) []byte { return binary.AppendUvarint(nil, n) }
	whole := func(footer []byte) []byte {
		b := append([]byte("PAR1"), footer...)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(footer)))
		return append(b, "PAR1"...)
	}
	element := func(children uint64) []byte { // name "a", num_children
		return append(append([]byte{0x48, 1, 'a', 0x15}, uvarint(children<<1)...), 0)
	}
	list := func(n uint64) []byte { return append([]byte{0x15, 2, 0x19, 0xfc}, uvarint(n)...) }
	deep := list(200_000)
	for i := range 200_000 {
		n := uint64(1)
		if i == 199_999 {
			n = 0
		}
		deep = append(deep, element(n)...)
	}
	for name, footer := range map[string][]byte{
		"a list longer than the file":     list(1 << 31),
		"a root of two billion columns":   append(list(2), append(element(1<<31-1), element(0)...)...),
		"a schema 200,000 levels deep":    append(deep, 0x16, 0, 0),
		"a binary longer than the file":   {0x15, 2, 0x19, 0x1c, 0x48, 0xff, 0xff, 0xff, 0xff, 7, 0},
		"structs inside structs for ever": bytes.Repeat([]byte{0x1c}, 1<<20),
		"lists inside lists for ever":     append([]byte{0x19}, bytes.Repeat([]byte{0x19}, 1<<20)...),
		"nothing":                         {},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := damaged(t, whole(footer))
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
			t.Errorf("%s: allocated %d MiB", name, used>>20)
		}
	}
}

// A decoder allocates what a page's header says: the header is checked first.
func TestDictionaryPagesHoldTheirNumberOfValues(t *testing.T) {
	// In the header of a dictionary page the number of values, 4 in zigzag form, becomes 63.
	data := damageableParquet(t)
	i := max(bytes.Index(data, []byte{0x3c, 0x15, 0x08}), bytes.Index(data, []byte{0x4c, 0x15, 0x08}))
	if i < 0 {
		t.Fatal("no dictionary page")
	}
	data[i+2] = 0x7e
	if _, err := damaged(t, data); err == nil {
		t.Error("got no error for a dictionary with more values than its bytes can hold")
	}
}

// failingAt fails to read the 100 bytes from an offset on.
type failingAt struct {
	*bytes.Reader
	from int64
	err  error
}

func (f *failingAt) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > f.from && off < f.from+100 {
		return 0, f.err
	}
	return f.Reader.ReadAt(p, off)
}

func TestErrorsOfRandomAccessAreNotTheObjectsFault(t *testing.T) {
	data := damageableParquet(t)
	broken := errors.New("connection reset")
	for from := int64(0); from < int64(len(data)); from += 50 {
		r, err := New(&failingAt{bytes.NewReader(data), from, broken}, "a.parquet", raw.Options{URLColumn: "url", Extras: []string{"*"}})
		if err == nil {
			_, err = readAll(r)
		}
		if err == nil {
			continue // nothing was read there
		}
		if !errors.Is(err, broken) || errors.Is(err, raw.ErrInput) {
			t.Errorf("failing at byte %d: got %v, want the store's error and no ErrInput", from, err)
		}
	}
}

func TestParquetInsideOfCompression(t *testing.T) {
	r, err := New(bytes.NewReader(compressed(t, "gzip", tinyParquet(t))), "a.parquet.gz", raw.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if g, err := readAll(r); err != nil || len(g.Rows) != 2 {
		t.Errorf("%v, %v", g.Rows, err)
	}
	if _, err := New(&huge{prefix: []byte("PAR1"), filler: make([]byte, 4096), left: parquetin.MaxBuffered}, "a", raw.Options{}); !errors.Is(err, raw.ErrInput) {
		t.Errorf("a file larger than MaxBuffered: got %v, want an ErrInput", err)
	}
}

func TestParquetReadsOnlyItsColumns(t *testing.T) {
	type row struct {
		Text string `parquet:"text"`
		URL  string `parquet:"url"`
	}
	var rows []row
	for i := range 2000 {
		rows = append(rows, row{strings.Repeat(fmt.Sprintf("%x", i*2654435761), 400), fmt.Sprintf("http://a/%d", i)})
	}
	data := writeParquet(t, rows, pq.Compression(&pq.Uncompressed))
	at := &countingAt{Reader: bytes.NewReader(data)}
	r, err := New(at, "a.parquet", raw.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if g, err := readAll(r); err != nil || len(g.Rows) != len(rows) {
		t.Fatal(len(g.Rows), err)
	}
	if at.n > int64(len(data)/4) {
		t.Errorf("read %d of %d bytes", at.n, len(data))
	}
}

type countingAt struct {
	*bytes.Reader
	n int64
}

func (c *countingAt) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.Reader.ReadAt(p, off)
	c.n += int64(n)
	return n, err
}

// FuzzParquet overwrites a few bytes of a valid file: few other inputs get as far as the pages.
func FuzzParquet(f *testing.F) {
	type row struct {
		URL  string             `parquet:"url"`
		List []link             `parquet:"list,list"`
		Map  map[string]float64 `parquet:"map"`
		At   time.Time          `parquet:"at,timestamp(nanosecond)"`
	}
	u := "http://l/"
	var rows []row
	for i := range 50 {
		rows = append(rows, row{fmt.Sprintf("http://a/%d", i), []link{{URL: &u, Tags: []string{"x", "y"}}, {}}[:i%3], map[string]float64{"k": float64(i) / 3}, time.Unix(int64(i), 0)})
	}
	files := [][]byte{damageableParquet(f), tinyParquet(f), writeParquet(f, rows, pq.Compression(&pq.Snappy), pq.DataPageVersion(1)), writeParquet(f, rows, pq.Compression(&pq.Zstd)),
		parquetGroups(f, rows, []int{3, 9, 17}), emptyGroups(f, 2, 0, 3)}
	for i := range files {
		f.Add(uint8(i), uint16(20), []byte("\xff"), "")
		f.Add(uint8(i), uint16(300), []byte("\xff\xff\xff\xff\x07"), "list.url")
	}
	f.Fuzz(func(t *testing.T, which uint8, at uint16, patch []byte, url string) {
		data := bytes.Clone(files[int(which)%len(files)])
		copy(data[int(at)%len(data):], patch)
		if !bytes.HasPrefix(data, []byte(parquetin.Magic)) {
			return
		}
		opt := raw.Options{URLColumn: url, Extras: []string{"*"}, MaxLine: 100}
		checkReader(t, "a.parquet", data, opt)
		plan, ranges, err := Ranges(open(data), int64(len(data)), "a.parquet", opt, 1)
		if err != nil || ranges == nil {
			return
		}
		r, err := New(bytes.NewReader(data), "a.parquet", opt)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := readAll(r)
		parts, err2 := readRanges(data, "a.parquet", plan, ranges)
		if diff := cmp.Diff(whole, parts); (err == nil) != (err2 == nil) || err == nil && diff != "" {
			t.Fatalf("whole %v, in ranges %v:\n%s", err, err2, diff)
		}
	})
}

// FuzzFooter checks that every footer is read or rejected, without a panic of the decoder.
func FuzzFooter(f *testing.F) {
	data := damageableParquet(f)
	n := int(binary.LittleEndian.Uint32(data[len(data)-8:]))
	f.Add(data[len(data)-8-n : len(data)-8])
	f.Fuzz(func(t *testing.T, footer []byte) {
		b := append(append([]byte("PAR1"), footer...), binary.LittleEndian.AppendUint32(nil, uint32(len(footer)))...)
		b = append(b, "PAR1"...)
		checkAllocation(t, "a.parquet", b, raw.Options{URLColumn: "url", Extras: []string{"*"}})
		damaged(t, b)
	})
}

func BenchmarkParquet(b *testing.B) {
	type row struct {
		URL string `parquet:"url"`
		N   int64  `parquet:"n"`
	}
	var rows []row
	for i, u := range benchURLs(50_000) {
		rows = append(rows, row{u, int64(i)})
	}
	data := writeParquet(b, rows, pq.Compression(&pq.Zstd))
	b.ReportAllocs()
	for b.Loop() {
		r, err := New(bytes.NewReader(data), "a.parquet", raw.Options{})
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for {
			if _, _, err := r.Next(); err == io.EOF {
				break
			} else if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != len(rows) {
			b.Fatal(n)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(rows)), "ns/record")
}
