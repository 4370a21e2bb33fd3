package reader

import (
	"archive/tar"
	"encoding/hex"

	"github.com/klauspost/compress/zstd"
	pq "github.com/parquet-go/parquet-go"

	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/raw"
)

// compressedLists returns a list, and the list in every compression. In gzip and zstd it is
// compressed as two members or frames.
func compressedLists(t *testing.T) (text []byte, by map[string][]byte) {
	text = []byte(strings.Join(benchURLs(40), "\n"))
	half := len(text) / 2
	bz, err := os.ReadFile("testdata/table.csv.bz2")
	if err != nil {
		t.Fatal(err)
	}
	xz, err := os.ReadFile("testdata/list.txt.xz")
	if err != nil {
		t.Fatal(err)
	}
	return text, map[string][]byte{
		"xz":    xz,
		"gzip":  append(compressed(t, "gzip", text[:half]), compressed(t, "gzip", text[half:])...),
		"zstd":  append(compressed(t, "zstd", text[:half]), compressed(t, "zstd", text[half:])...),
		"bzip2": bz,
	}
}

func readBytes(data []byte) (got, error) {
	r, err := New(bytes.NewReader(data), "a", raw.Options{})
	if err != nil {
		return got{}, err
	}
	return readAll(r)
}

func TestTruncatedObjectsAreErrorsAtEveryLength(t *testing.T) {
	_, by := compressedLists(t)
	for how, data := range by {
		whole, err := readBytes(data)
		if err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		first := 0 // cut after the first member, the object is whole
		if how != "bzip2" && how != "xz" {
			text, _ := compressedLists(t)
			first = len(compressed(t, how, text[:len(text)/2]))
		}
		// An object shorter than its magic is a short text.
		for _, n := range testenv.Places(10, len(data), 7, first) {
			g, err := readBytes(data[:n])
			if n == first {
				if err != nil {
					t.Errorf("%s: the first member alone: %v", how, err)
				}
				continue
			}
			var de *raw.DataError
			if !errors.As(err, &de) || !errors.Is(err, raw.ErrInput) {
				t.Fatalf("%s cut to %d of %d bytes: got %v, want a *DataError", how, n, len(data), err)
			}
			if de.Compression != how || de.CompressedOffset > int64(n) || de.Line < 1 || de.Name != "a" {
				t.Errorf("%s cut to %d: position %+v", how, n, de)
			}
			if len(g.Rows) > len(whole.Rows) || !slices.Equal(g.Rows, whole.Rows[:len(g.Rows)]) {
				t.Errorf("%s cut to %d: records before the cut differ", how, n)
			}
		}
	}
}

func TestFlippedBitsAreErrorsOrChangeNothing(t *testing.T) {
	_, by := compressedLists(t)
	for how, data := range by {
		whole, err := readBytes(data)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range testenv.Places(0, len(data), 7) {
			flipped := bytes.Clone(data)
			flipped[i] ^= 1 << (i % 8)
			g, err := readBytes(flipped)
			if err == nil && !cmp.Equal(g, whole) {
				t.Errorf("%s: byte %d flipped: other records and no error", how, i)
			}
			if err != nil && !errors.Is(err, raw.ErrInput) {
				t.Errorf("%s: byte %d flipped: %v is no ErrInput", how, i, err)
			}
		}
	}
}

func TestBytesBehindCompressedData(t *testing.T) {
	text := []byte("http://a/\nhttp://b/\n")
	gz, zst := compressed(t, "gzip", text), compressed(t, "zstd", text)
	xz, err := os.ReadFile("testdata/list.txt.xz")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		data []byte
		ok   bool
	}{
		{"zero padding behind gzip", append(bytes.Clone(gz), make([]byte, 1000)...), true},
		{"text behind gzip", append(bytes.Clone(gz), "http://c/\n"...), false},
		{"a member behind padding", append(append(bytes.Clone(gz), 0), gz...), false},
		{"text behind zstd", append(bytes.Clone(zst), "http://c/\n"...), false},
		{"a skippable frame before and behind zstd", append(append([]byte("\x50\x2a\x4d\x18\x03\x00\x00\x00abc"), zst...), "\x5e\x2a\x4d\x18\x01\x00\x00\x00x"...), true},
		{"two xz streams, and padding", append(append(bytes.Clone(xz), xz...), 0, 0, 0, 0), true},
		{"text behind xz", append(bytes.Clone(xz), "http://c/\n"...), false},
		{"an empty gzip member between", bytes.Join([][]byte{gz, compressed(t, "gzip", nil), gz}, nil), true},
	} {
		g, err := readBytes(tc.data)
		if (err == nil) != tc.ok {
			t.Errorf("%s: %v", tc.name, err)
		}
		if len(g.Rows) < 2 {
			t.Errorf("%s: the records before are lost", tc.name)
		}
	}
}

func TestErrorsOfTheStoreAreNotTheObjectsFault(t *testing.T) {
	broken := errors.New("connection reset")
	text := []byte(strings.Repeat("http://example.com/\n", 40_000))
	for _, how := range []string{"none", "gzip", "zstd"} {
		data := text
		if how != "none" {
			var w bytes.Buffer
			r := rand.New(rand.NewPCG(1, 1))
			for range 40_000 {
				fmt.Fprintf(&w, "http://example.com/%x\n", r.Uint64())
			}
			data = compressed(t, how, w.Bytes())
		}
		for _, cut := range []int{0, 3, 5000, len(data) - 1} {
			r, err := New(io.MultiReader(bytes.NewReader(data[:cut]), &failing{broken}), "a", raw.Options{})
			if err == nil {
				_, err = readAll(r)
			}
			if !errors.Is(err, broken) || errors.Is(err, raw.ErrInput) {
				t.Errorf("%s cut at %d: got %v, want the store's error and no ErrInput", how, cut, err)
			}
		}
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

func TestAnErrorStays(t *testing.T) {
	r, err := New(strings.NewReader("[1} 2"), "a.json", raw.Options{Format: raw.JSON, URLColumn: "url"})
	if err != nil {
		t.Fatal(err)
	}
	_, first := readAll(r)
	_, _, second := r.Next()
	if first == nil || first != second { //nolint:errorlint // the same error, not a wrapped one
		t.Errorf("got %v and then %v, want one error twice", first, second)
	}
}

func TestBrokenArraysAreErrorsWithTheirPlace(t *testing.T) {
	for _, tc := range []struct {
		text   string
		line   int64
		offset int64
	}{
		{"[\"http://a/\",\n", 2, 14},
		{"[\"http://a/\",\n{\"url\": ", 2, 14},
		{"[\"http://a/\",\n\"http://", 2, 14},
		{"[\"http://a/\",\n{\"url\": \"http://b/}]", 2, 14},
		{"[\"http://a/\",\n{\"url\": [\"http://b/\"}, 5:", 2, 14},
	} {
		r, err := New(strings.NewReader(tc.text), "a.json", raw.Options{Format: raw.JSON, URLColumn: "url"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = readAll(r)
		var de *raw.DataError
		if !errors.As(err, &de) || de.Line != tc.line || de.Offset != tc.offset {
			t.Errorf("%q: got %v, want an error at line %d, byte %d", tc.text, err, tc.line, tc.offset)
		}
	}
}

func TestPlansMustMatchTheirObject(t *testing.T) {
	text := []byte("http://a/\n")
	r, err := New(bytes.NewReader(text), "a", raw.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(bytes.NewReader(compressed(t, "gzip", text)), "a", r.Plan()); !errors.Is(err, raw.ErrInput) {
		t.Errorf("a plan for plain text opened gzip: %v", err)
	}
	// The plan of an empty object names no column.
	for _, format := range []string{raw.CSV, raw.TSV, raw.CDX, raw.CDXJ, raw.JSON, raw.JSONLines} {
		r, err := Open(strings.NewReader("{} a b c\n"), "a", raw.Plan{Compression: "none", Format: format, AllExtras: true, Extras: []raw.Column{{}}, TS: &raw.Column{}, Size: &raw.Column{}})
		if err != nil {
			t.Fatal(err)
		}
		if _, rej, err := r.Next(); err != nil || rej == nil {
			t.Errorf("%s without a URL column: want a reject, got %v", format, err)
		}
	}
	if _, err := Open(bytes.NewReader(text), "a", raw.Plan{Compression: "none", Format: "xml"}); err == nil {
		t.Error("a plan with an unknown format was opened")
	}
}

func TestZstdWindowIsBounded(t *testing.T) {
	// A frame header with a window of 256 MiB (RFC 8878, 3.1.1.1.2), and one raw block.
	frame := "\x28\xb5\x2f\xfd\x00\x90\x51\x00\x00http://a/\n"
	if _, err := readBytes([]byte(frame)); !errors.Is(err, raw.ErrInput) || !strings.Contains(err.Error(), "--long") {
		t.Errorf("got %v, want a rejection that names --long", err)
	}
	// 128 MiB is the window of zstd --long without a number.
	frame = strings.Replace(frame, "\x90", "\x88", 1)
	if g, err := readBytes([]byte(frame)); err != nil || len(g.Rows) != 1 {
		t.Errorf("a window of 128 MiB: %v, %v", g.Rows, err)
	}
}

// huge yields a prefix, a filler many times over, and a suffix.
type huge struct {
	prefix, filler, suffix []byte
	left                   int64 // bytes of filler, a multiple of its length
}

func (h *huge) Read(p []byte) (int, error) {
	if len(h.prefix) > 0 {
		n := copy(p, h.prefix)
		h.prefix = h.prefix[n:]
		return n, nil
	}
	if h.left > 0 {
		n := 0
		for n < len(p) && h.left > 0 {
			at := len(h.filler) - int((h.left-1)%int64(len(h.filler))) - 1
			m := copy(p[n:], h.filler[at:])
			n += m
			h.left -= int64(m)
		}
		return n, nil
	}
	if len(h.suffix) > 0 {
		n := copy(p, h.suffix)
		h.suffix = h.suffix[n:]
		return n, nil
	}
	return 0, io.EOF
}

func TestEndlessRecordsAreSkippedInBoundedMemory(t *testing.T) {
	const size, bound = 64 << 20, 16 << 20
	a := bytes.Repeat([]byte("a"), 4096)
	nested := bytes.Repeat([]byte(`[{"a":1},"b\\"],`), 256)
	for _, tc := range []struct {
		name         string
		opt          raw.Options
		head, filler string
		tail         string
		want         []string
	}{
		{"lines", raw.Options{Format: raw.Lines}, "http://a/\n", string(a), "\nhttp://b/\n", []string{"1 http://a/", "2 !too_long_line", "3 http://b/"}},
		{"lines, the last", raw.Options{Format: raw.Lines}, "http://a/\n", string(a), "", []string{"1 http://a/", "2 !too_long_line"}},
		{"csv, unquoted", raw.Options{Format: raw.CSV}, "url,t\nhttp://a/,b\nhttp://c/,", string(a), "\nhttp://b/,c\n", []string{"2 http://a/", "3 !too_long_line", "4 http://b/"}},
		{"csv, quoted", raw.Options{Format: raw.CSV}, "url,t\nhttp://a/,b\nhttp://c/,\"", string(a), "\"\nhttp://b/,c\n", []string{"2 http://a/", "3 !too_long_line", "4 http://b/"}},
		{"csv, many fields", raw.Options{Format: raw.CSV, Extras: []string{"*"}}, "url,t\nhttp://a/,b\nhttp://c/,\"x\"", ",,\"\"", "\nhttp://b/,c\n", []string{"2 http://a/ {\"t\":\"b\"}", "3 !too_long_line", "4 http://b/ {\"t\":\"c\"}"}},
		{"tsv", raw.Options{Format: raw.TSV}, "url\tt\nhttp://a/\tb\nhttp://c/\t", string(a), "\nhttp://b/\tc\n", []string{"2 http://a/", "3 !too_long_line", "4 http://b/"}},
		{"jsonl", raw.Options{Format: raw.JSONLines}, "{\"url\":\"http://a/\"}\n{\"url\":\"", string(a), "\"}\n{\"url\":\"http://b/\"}\n", []string{"1 http://a/", "2 !too_long_line", "3 http://b/"}},
		{"json, a string", raw.Options{Format: raw.JSON}, "[{\"url\":\"http://a/\"},\n{\"url\":\"", string(a), "\"},\n{\"url\":\"http://b/\"}]", []string{"1 http://a/", "2 !too_long_line", "3 http://b/"}},
		{"json, nested", raw.Options{Format: raw.JSON}, "[{\"url\":\"http://a/\"},\n{\"url\":[", string(nested), "1]},\n{\"url\":\"http://b/\"}]", []string{"1 http://a/", "2 !too_long_line", "3 http://b/"}},
		{"cdx", raw.Options{Format: raw.CDX}, " CDX N b a\na 2024 http://a/\n", string(a), "\nb 2024 http://b/\n", []string{"2 http://a/ ts=1704067200000", "3 !too_long_line", "4 http://b/ ts=1704067200000"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r, err := New(&huge{[]byte(tc.head), []byte(tc.filler), []byte(tc.tail), size}, "a", tc.opt)
			if err != nil {
				t.Fatal(err)
			}
			g, err := readAll(r)
			if err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&after)
			if diff := cmp.Diff(tc.want, g.Rows); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			// TotalAlloc counts what the garbage collector has freed too.
			if used := after.TotalAlloc - before.TotalAlloc; used > bound {
				t.Errorf("allocated %d MiB, want at most %d", used>>20, bound>>20)
			}
		})
	}
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	const n = 2000
	var lines, table, quoted, docs bytes.Buffer
	table.WriteString("url,title,ts\n")
	quoted.WriteString("url,title,ts\n")
	for i, u := range benchURLs(n) {
		fmt.Fprintf(&lines, "%s\n", u)
		fmt.Fprintf(&table, "%s,t%d,2024-05-06T07:08:09+01:00\n", u, i)
		fmt.Fprintf(&quoted, "\"%s\",\"a \"\"b\"\"\n%d\",1714953600\n", u, i)
		fmt.Fprintf(&docs, "{\"url\":\"%s\\u0026\",\"title\":\"t\\n\",\"n\":[1,2.5],\"ts\":\"20240506070809\"}\n", u)
	}
	for name, text := range map[string][]byte{"lines": lines.Bytes(), "csv": table.Bytes(), "quoted csv": quoted.Bytes(), "jsonl": docs.Bytes()} {
		opt := raw.Options{Extras: []string{"*"}}
		r, err := New(bytes.NewReader(text), "a", opt)
		if err != nil {
			t.Fatal(err)
		}
		next := func() {
			if rec, _, err := r.Next(); err != nil || rec == nil {
				t.Fatal(name, err)
			}
		}
		for range n / 2 {
			next()
		}
		if a := testing.AllocsPerRun(n/4, next); a > 0 {
			t.Errorf("%s: %.2f allocations a record", name, a)
		}
		var recs [16]raw.Record
		batch := func() {
			if k, _, err := r.NextBatch(recs[:]); err != nil || k == 0 {
				t.Fatal(name, err)
			}
		}
		batch()
		if a := testing.AllocsPerRun(n/4/len(recs)-4, batch); a > 0 {
			t.Errorf("%s: %.2f allocations a batch", name, a)
		}
	}
}

// streamed compresses data as a zstd stream of unknown length, for which a decoder allocates the
// whole window.
func streamed(tb testing.TB, window int, data []byte) []byte {
	tb.Helper()
	var buf bytes.Buffer
	w, err := zstd.NewWriter(&buf, zstd.WithWindowSize(window))
	if err != nil {
		tb.Fatal(err)
	}
	for _, part := range [][]byte{data[:len(data)/2], data[len(data)/2:]} {
		if _, err := w.Write(part); err != nil {
			tb.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

func TestLittleMemoryRefusesWhatTakesMore(t *testing.T) {
	text := []byte(strings.Repeat("https://example.org/a\n", 1000))
	type row struct {
		URL string `parquet:"url"`
	}
	rows := []row{{"https://example.org/a"}, {"https://example.org/b"}}
	random := rand.NewChaCha8([32]byte{})
	var large []row
	for range 200 { // one page of 10 MB
		var b [25_000]byte
		random.Read(b[:])
		large = append(large, row{"https://example.org/" + hex.EncodeToString(b[:])})
	}
	footer := writeParquet(t, rows, pq.KeyValueMetadata("k", strings.Repeat("x", 2<<20)))
	member := func(data []byte) []byte {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		if err := w.WriteHeader(&tar.Header{Name: "a", Mode: 0o644, Size: int64(len(data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return buf.Bytes()
	}
	for name, c := range map[string]struct {
		data []byte
		fits bool
	}{
		"lines":                 {text, true},
		"gzip":                  {compressed(t, "gzip", text), true},
		"zstd":                  {streamed(t, 8<<20, text), true},
		"zstd of large window":  {streamed(t, 16<<20, text), false},
		"its second frame":      {append(compressed(t, "zstd", text), streamed(t, 16<<20, text)...), false},
		"member":                {member(streamed(t, 8<<20, text)), true},
		"member, large window":  {member(streamed(t, 16<<20, text)), false},
		"archive, large window": {streamed(t, 16<<20, member(text)), false},
		"Parquet":               {writeParquet(t, rows), true},
		"large footer":          {footer, false},
		"large page":            {writeParquet(t, large, pq.PageBufferSize(64<<20)), false},
		"compressed Parquet":    {compressed(t, "gzip", writeParquet(t, rows)), true},
		"the same, large":       {compressed(t, "gzip", writeParquet(t, large)), false},
	} {
		want, err := New(bytes.NewReader(c.data), name, raw.Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := New(bytes.NewReader(c.data), name, raw.Options{LowMemory: true})
		if (err == nil) != c.fits {
			t.Errorf("%s with little memory: %v, want that it fits %v", name, err, c.fits)
		}
		var format *raw.FormatError
		if errors.As(err, &format) {
			t.Errorf("%s with little memory: got the final error %v, want one to retry", name, err)
		}
		if err == nil {
			if diff := cmp.Diff(want.Plan(), got.Plan()); diff != "" {
				t.Errorf("%s: another plan with little memory: %s", name, diff)
			}
		}
	}
}
