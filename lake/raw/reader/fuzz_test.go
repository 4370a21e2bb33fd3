package reader

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/detect"
	"github.com/urlake/urlake/lake/raw/text"
	"github.com/urlake/urlake/lake/raw/unpack"
)

// maxJSONDepth is the deepest nesting that package jsondoc parses.
const maxJSONDepth = 512

// chunks yields data in pieces of a few sizes, so that reads end anywhere in a record.
type chunks struct {
	data []byte
	n    int
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	c.n = c.n*5%17 + 1
	n := copy(p[:min(len(p), c.n)], c.data)
	c.data = c.data[n:]
	return n, nil
}

// checkAllocation checks that what reading an object allocates is bounded by the object's size,
// whatever its bytes claim. A window of 128 MiB, the largest page and the footer's memory are
// within the fixed part; without them, opening an object takes far less. Objects of many records
// are not read to their end.
func checkAllocation(t *testing.T, name string, data []byte, opt raw.Options) {
	t.Helper()
	for _, low := range []bool{false, true} {
		opt.LowMemory = low
		fixed := uint64(512 << 20)
		if low {
			fixed = 2 * raw.LowMemory // all that was ever allocated, not only what is in use
		}
		got := allocated(func() {
			r, err := New(bytes.NewReader(data), name, opt)
			for n := 0; err == nil && n < 2000 && !low; n++ {
				_, _, err = r.Next()
			}
		})
		if most := fixed + 8192*uint64(len(data)); got > most {
			t.Fatalf("an object of %d bytes made its reader allocate %d MiB (low memory: %v)", len(data), got>>20, low)
		}
	}
}

// checkReader checks what must hold for every object in every format.
func checkReader(t *testing.T, name string, data []byte, opt raw.Options) {
	t.Helper()
	checkAllocation(t, name, data, opt)
	r, err := New(bytes.NewReader(data), name, opt)
	r2, err2 := New(&chunks{data, 1}, name, opt)
	if (err == nil) != (err2 == nil) {
		t.Fatalf("read in one piece: error %v; in pieces: %v", err, err2)
	}
	if err != nil {
		if !errors.Is(err, raw.ErrInput) {
			t.Fatalf("%v is no ErrInput", err)
		}
		return
	}
	if diff := cmp.Diff(r.Plan(), r2.Plan()); diff != "" {
		t.Fatalf("plans differ by how the object was read:\n%s", diff)
	}
	g, err1 := readAll(r)
	err = err1
	g2, err2 := readAll(r2)
	if diff := cmp.Diff(g, g2); diff != "" || (err == nil) != (err2 == nil) {
		t.Fatalf("records differ by how the object was read (%v, %v):\n%s", err, err2, diff)
	}
	if err != nil && !errors.Is(err, raw.ErrInput) {
		t.Fatalf("%v is no ErrInput", err)
	}
	if len(g.Rows) != int(g.Counts.Records+g.Counts.Rejects) {
		t.Fatalf("%d records and rejects, counts %+v", len(g.Rows), g.Counts)
	}
	for i := range g.Offsets {
		if f := r.Plan().Format; f == raw.Parquet || f == raw.Tar || f == raw.Zip || f == raw.WACZ || f == raw.WARC || f == raw.ARC {
			break // offsets are of members, of stored records, or missing
		}
		if i > 0 && (g.Offsets[i] < g.Offsets[i-1] || g.Lines[i] < g.Lines[i-1]) {
			t.Fatalf("record %d at line %d, byte %d follows one at line %d, byte %d", i, g.Lines[i], g.Offsets[i], g.Lines[i-1], g.Offsets[i-1])
		}
		if g.Offsets[i] > r.Offset() { // a missing rest is rejected at the end
			t.Fatalf("record %d at byte %d of %d", i, g.Offsets[i], r.Offset())
		}
	}
	plan, err := json.Marshal(r.Plan())
	if err != nil {
		t.Fatal(err)
	}
	var p raw.Plan
	if err := json.Unmarshal(plan, &p); err != nil {
		t.Fatal(err)
	}
	again, err := Open(bytes.NewReader(data), name, p)
	if err != nil {
		t.Fatalf("plan %s: %v", plan, err)
	}
	// Errors state a compressed offset. It may differ, because only New reads the first bytes to
	// plan.
	g3, err3 := readAll(again)
	if diff := cmp.Diff(g, g3); diff != "" || (err1 == nil) != (err3 == nil) {
		t.Fatalf("read again by plan %s (%v, %v):\n%s", plan, err1, err3, diff)
	}
	checkBatches(t, name, data, p, g, err3)
}

// checkBatches checks that batches have the records in g and end with the same error.
func checkBatches(t *testing.T, name string, data []byte, plan raw.Plan, g got, want error) {
	t.Helper()
	for _, by := range []struct {
		r    io.Reader
		size int
	}{{bytes.NewReader(data), 64}, {&chunks{data, 1}, 3}} {
		r, err := Open(by.r, name, plan)
		if err != nil {
			t.Fatal(err)
		}
		batches, err := readBatches(r, by.size)
		if diff := cmp.Diff(g, batches); diff != "" || (err == nil) != (want == nil) || by.size == 64 && fmt.Sprint(err) != fmt.Sprint(want) {
			t.Fatalf("%q in batches of %d records (%v, %v):\n%s", data, by.size, want, err, diff)
		}
	}
}

// seeds calls add for every object in testdata.
func seeds(f *testing.F, add func(name string, data []byte)) {
	paths, err := filepath.Glob("testdata/*")
	if err != nil || len(paths) == 0 {
		f.Fatal("no testdata", err)
	}
	for _, p := range paths {
		if info, err := os.Stat(p); err != nil || info.IsDir() || strings.HasSuffix(p, ".want") {
			continue
		}
		b, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		add(filepath.Base(p), b)
	}
}

func FuzzReader(f *testing.F) {
	seeds(f, func(name string, data []byte) { f.Add(name, data, uint16(60), "") })
	f.Add("a.csv", []byte("url,t\nhttp://a/,\"b\nhttp://c/,\"d\"\"\"\n"), uint16(10), "1")
	f.Add("a.csv", []byte("\"a\n"), uint16(3), "url")
	f.Fuzz(func(t *testing.T, name string, data []byte, maxLine uint16, urlColumn string) {
		for _, opt := range []raw.Options{{}, {Extras: []string{"*"}, MaxLine: int(maxLine) + 1, URLColumn: urlColumn}} {
			checkReader(t, name, data, opt)
		}
	})
}

func FuzzDetect(f *testing.F) {
	seeds(f, func(name string, data []byte) { f.Add(name, data, "", "", "", "") })
	f.Add("a.csv", []byte("url,ts,n\nhttp://a/,2024,1\n"), "url", "2", "n", "ts")
	f.Fuzz(func(t *testing.T, name string, head []byte, url, ts, size, extra string) {
		for _, format := range []string{raw.Auto, raw.Lines, raw.CSV, raw.TSV, raw.JSONLines, raw.JSON, raw.CDX, raw.CDXJ, raw.Spaced, raw.CrawlLog} {
			opt := raw.Options{Format: format, URLColumn: url, TSColumn: ts, SizeField: size}
			if extra != "" {
				opt.Extras = []string{extra}
			}
			plan, err := detect.Detect(name, head, opt)
			if err != nil {
				if !errors.Is(err, raw.ErrInput) {
					t.Fatalf("%s: %v is no ErrInput", format, err)
				}
				continue
			}
			again, err := detect.Detect(name, head, opt)
			if diff := cmp.Diff(plan, again); diff != "" || err != nil {
				t.Fatalf("%s: detected again: %v\n%s", format, err, diff)
			}
			if format != raw.Auto && plan.Format != format || plan.Format == raw.Auto {
				t.Fatalf("option Format %s, planned %s", format, plan.Format)
			}
			// The plan's columns exist.
			for _, c := range append([]raw.Column{plan.URL}, plan.Extras...) {
				if c.Number < 0 || plan.Format != raw.CDX && len(plan.Columns) > 0 && c.Number > 0 && c.Number <= len(plan.Columns) && plan.Columns[c.Number-1] != c.Name {
					t.Fatalf("%s: column %+v of %q", format, c, plan.Columns)
				}
			}
		}
	})
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("http://a/\r\n# c\n\n x # y\n"), uint16(20))
	f.Fuzz(func(t *testing.T, data []byte, maxLine uint16) {
		if !isText(data) {
			return
		}
		opt := raw.Options{Format: raw.Lines, MaxLine: int(maxLine) + 1}
		checkReader(t, "a", data, opt)
		r, err := New(bytes.NewReader(data), "a", opt)
		if err != nil {
			t.Fatal(err)
		}
		g, err := readAll(r)
		if err != nil {
			t.Fatal(err)
		}
		// Every line is a record, a reject, blank or a comment.
		text := strings.TrimPrefix(string(data), "\ufeff")
		end := "\n"
		if r.Plan().CRLines {
			end = "\r"
		}
		n := int64(len(strings.Split(text, end)))
		if text == "" || strings.HasSuffix(text, end) {
			n--
		}
		if c := g.Counts; c.Records+c.Rejects+c.Blank+c.Comments != n {
			t.Fatalf("%d lines, counts %+v", n, c)
		}
	})
}

func FuzzCSV(f *testing.F) {
	f.Add([]byte("a,b\n\"c\n,\"\"d\",e\r\n\r\n\"\"\n"))
	f.Add([]byte("\"a\"\r\n\"b\"\r"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if unpack.CompressionOf(data) == raw.NoCompression {
			checkReader(t, "a.csv", data, raw.Options{Format: raw.CSV, Extras: []string{"*"}, MaxLine: 40})
			checkReader(t, "a.tsv", data, raw.Options{Format: raw.TSV, URLColumn: "1", MaxLine: 40})
		}
	})
}

// isText reports whether data is neither compressed nor binary, so that any format can be named for
// it.
func isText(data []byte) bool {
	_, err := detect.Detect("a", data, raw.Options{Format: raw.Lines})
	return err == nil
}

// FuzzJSONArray compares the records of a valid document with encoding/json.
func FuzzJSONArray(f *testing.F) {
	f.Add([]byte("[\n{\"url\":\"http://a/\"}, \"b\", {\"url\":[1]},\n{\"url\":\"]\\\"\"}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if !isText(data) {
			return
		}
		opt := raw.Options{Format: raw.JSON, URLColumn: "url"}
		checkReader(t, "a", data, opt)
		var docs []json.RawMessage
		if err := json.Unmarshal(data, &docs); err != nil || docs == nil {
			return
		}
		r, err := New(bytes.NewReader(data), "a", opt)
		if err != nil {
			t.Fatal(err)
		}
		g, err := readAll(r)
		if err != nil || len(g.Rows) != len(docs) {
			t.Fatalf("%q: %d records and rejects of %d elements: %v", data, len(g.Rows), len(docs), err)
		}
		for i, d := range docs {
			if o := g.Offsets[i]; !bytes.HasPrefix(data[o:], d) {
				t.Fatalf("%q: element %d is not at byte %d", data, i, o)
			}
			if strings.HasSuffix(g.Rows[i], "!"+raw.BadJSON) && bytes.Count(d, []byte{'['})+bytes.Count(d, []byte{'{'}) <= maxJSONDepth {
				t.Fatalf("%q: element %d is rejected", data, i)
			}
		}
	})
}

func FuzzCDX(f *testing.F) {
	seeds(f, func(name string, data []byte) {
		if strings.HasPrefix(name, "index") {
			f.Add(data)
		}
	})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, format := range []string{raw.CDX, raw.CDXJ, raw.CrawlLog, raw.Spaced, raw.Auto} {
			for _, extras := range [][]string{nil, {"*"}, {raw.MIME, raw.Filename}} {
				checkReader(t, "a", data, raw.Options{Format: format, Extras: extras, MaxLine: 200})
			}
		}
	})
}

// FuzzJSONLines checks that a line that encoding/json reads is one record or reject, if it is no
// array, and that no other line is without either unless it holds nothing but commas and brackets.
func FuzzJSONLines(f *testing.F) {
	f.Add([]byte("{\"url\":\"http://a/\"}\n\x1e {\"url\":5} \r\n\n\"http://b/\"\n{\"url\":\n[1]x\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if !isText(data) {
			return
		}
		opt := raw.Options{Format: raw.JSONLines, URLColumn: "url", Extras: []string{"*"}}
		checkReader(t, "a", data, opt)
		r, err := New(bytes.NewReader(data), "a", opt)
		if err != nil {
			t.Fatal(err)
		}
		end := byte('\n')
		if r.Plan().CRLines {
			end = '\r'
		}
		g, err := readAll(r)
		if err != nil {
			t.Fatal(err)
		}
		rows := map[int64][]string{}
		for i, line := range g.Lines {
			rows[line] = append(rows[line], g.Rows[i])
		}
		for i, line := range bytes.Split(text.TrimBOM(data), []byte{end}) {
			line = text.TrimSpace(bytes.TrimPrefix(line, []byte{0x1e}))
			got := rows[int64(i+1)]
			delete(rows, int64(i+1))
			deep := bytes.Count(line, []byte{'['})+bytes.Count(line, []byte{'{'}) > maxJSONDepth
			switch {
			case len(line) > 0 && line[0] != '[' && json.Valid(line) && !deep:
				if len(got) != 1 || strings.HasSuffix(got[0], "!"+raw.BadJSON) {
					t.Fatalf("%q: %s", line, got)
				}
			case len(got) == 0 && len(bytes.Trim(line, " \t\r\n,[]\x1e"+"\ufeff")) > 0:
				t.Fatalf("no record of %q", line)
			}
		}
		if len(rows) > 0 {
			t.Fatalf("records of other lines: %v", rows)
		}
	})
}

// FuzzJSONTree compares the records inside objects and arrays with encoding/json.
func FuzzJSONTree(f *testing.F) {
	f.Add([]byte(`{"a":{"url":"http://a/"},"b":[{"url":"http://b/"},7],"c":"]}"}`), uint8(1))
	f.Add([]byte(`{"AK":{"tv":[{"url":"http://a/"}],"\u0061":[]},"x":null}`), uint8(3))
	f.Add([]byte("{\"a\" :\n[ ]}{\"b\":{}}"), uint8(2))
	f.Fuzz(func(t *testing.T, data []byte, depth uint8) {
		if !isText(data) {
			return
		}
		plan := raw.Plan{Compression: raw.NoCompression, Format: raw.JSON, Depth: 1 + int(depth%4), URL: raw.Column{Name: "url"}, AllExtras: true, MaxLine: 200}
		var read [2]got
		var errs [2]error
		for i, r := range []io.Reader{bytes.NewReader(data), &chunks{data, 1}} {
			rd, err := Open(r, "a", plan)
			if err != nil {
				t.Fatal(err)
			}
			if read[i], errs[i] = readAll(rd); errs[i] != nil && !errors.Is(errs[i], raw.ErrInput) {
				t.Fatal(errs[i])
			}
		}
		if (errs[0] == nil) != (errs[1] == nil) {
			t.Fatalf("read in one piece: error %v; in pieces: %v", errs[0], errs[1])
		}
		// Records before an error may differ: the whole object is rejected.
		if diff := cmp.Diff(read[0], read[1]); diff != "" && errs[0] == nil {
			t.Fatalf("records differ by how the object was read:\n%s", diff)
		}
		if !json.Valid(data) {
			return
		}
		var want []json.RawMessage
		var collect func(v json.RawMessage, depth int)
		collect = func(v json.RawMessage, depth int) {
			if depth == 0 || v[0] != '{' && v[0] != '[' {
				want = append(want, v)
				return
			}
			for _, c := range children(t, v) {
				collect(c, depth-1)
			}
		}
		collect(bytes.TrimSpace(data), plan.Depth)
		g := read[0]
		if errs[0] != nil {
			if long := slices.ContainsFunc(strings.Split(string(data), `"`), func(s string) bool { return len(s) > plan.MaxLine/2 }); !long {
				t.Fatalf("%q: %v", data, errs[0]) // only a name that is too long stops a Reader
			}
			return
		}
		if len(g.Rows) != len(want) {
			t.Fatalf("%q: %d records and rejects of %d values at depth %d", data, len(g.Rows), len(want), plan.Depth)
		}
		for i, v := range want {
			if !bytes.HasPrefix(data[g.Offsets[i]:], v) {
				t.Fatalf("%q: value %d is not at byte %d", data, i, g.Offsets[i])
			}
			if strings.HasSuffix(g.Rows[i], "!"+raw.BadJSON) && bytes.Count(v, []byte{'['})+bytes.Count(v, []byte{'{'}) <= maxJSONDepth {
				t.Fatalf("%q: value %d is %s", data, i, g.Rows[i])
			}
		}
	})
}
