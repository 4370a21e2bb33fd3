package text

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake/raw"
)

// rows reads an object by a plan and returns its records and rejects: the line, then URL, time and
// extras, or ! and the reason.
func rows(t *testing.T, plan raw.Plan, object string) (rows []string) {
	t.Helper()
	if plan.MaxLine == 0 {
		plan.MaxLine = raw.DefaultMaxLine
	}
	in := NewInput(strings.NewReader(object), plan.MaxLine)
	p, err := NewParser(in, plan, &raw.Counts{})
	if err != nil {
		t.Fatal(err)
	}
	last := Position{Line: 1}
	for {
		var rec raw.Record
		var rej raw.Reject
		if err := p.Next(&rec, &rej); err == io.EOF {
			return rows
		} else if err != nil {
			return append(rows, err.Error())
		}
		at := in.Record()
		if at.Offset < last.Offset || strings.Count(object[last.Offset:at.Offset], "\n") != int(at.Line-last.Line) {
			t.Errorf("a record at %+v follows one at %+v", at, last)
		}
		last = at
		row := fmt.Sprintf("%d ", at.Line)
		if rej.Reason != "" {
			row += "!" + rej.Reason
		} else {
			row += string(rec.URL)
		}
		if rec.HasTS && rej.Reason == "" {
			row += fmt.Sprintf(" ts=%d", rec.TS)
		}
		if rec.Extras != nil {
			row += " " + string(rec.Extras)
		}
		rows = append(rows, row)
	}
}

func TestListsOfURLsBesideOtherValues(t *testing.T) {
	want := []string{"1 http://a/", "1 http://b/", "2 http://c/"}
	for _, before := range []string{
		``, `"meta":{"a":1},`, `"meta":{"tags":["http://x/"]},`, `"x":[["http://x/"],2],"y":[],`, `"urls":"http://x/",`,
	} {
		object := fmt.Sprintf(`{%[1]s"urls":["http://a/","http://b/"]}`+"\n"+`{%[1]s"urls":["http://c/"],"z":["http://x/"]}`, before)
		for _, format := range []string{raw.JSONLines, raw.JSON} {
			plan := raw.Plan{Format: format, URL: raw.Column{Name: "urls"}}
			if diff := cmp.Diff(want, rows(t, plan, object)); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", format, object, diff)
			}
		}
	}
}

// inTime runs do, which takes less than a second on a busy machine and minutes if its time is
// quadratic.
func inTime(t *testing.T, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { do(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("it takes more than linear time")
	}
}

// TestFieldsAreCutInLinearTime cuts the longest fields that there are.
func TestFieldsAreCutInLinearTime(t *testing.T) {
	for _, tc := range []struct {
		unit string
		urls int // per unit; 0: one in all
	}{
		{"http://a.example/ ", 1},
		{"http://a.example/,", 1},
		{"http://a.example/x # a comment\n", 1},
		{"http://a.example/?u=http://b.example/ ", 1},
		{"http://a.example/x) ", 1},
		{"http://a.example/x> ", 1},
		{"http://a.example/>(", 0},
		{"http://a.example/)(", 0},
		{"http://a.example/", 0},
		{"http://a.example/?q=x x x ", 0},
		{"http://a.example/x b c d e f ", 0},
		{"x y z ", 0},
		{"(", 0},
		{")", 0},
	} {
		field := strings.TrimSpace(strings.Repeat(tc.unit, raw.DefaultMaxLine/len(tc.unit)))
		for _, first := range []string{"", "http://a.example/x ", "http://a.example/x y=http://b.example/z "} {
			urls := 0
			inTime(t, func() {
				for rest := []byte(first + field); rest != nil; urls++ {
					_, rest, _ = CutURL(rest)
				}
			})
			if want := tc.urls * strings.Count(field, strings.TrimSpace(tc.unit)); urls < want {
				t.Errorf("%q has %d URLs, want %d", tc.unit, urls, want)
			}
		}
	}
}

func TestShortFieldsWithTwoSchemesAreNotPlain(t *testing.T) {
	for a := range 8 {
		for b := range 8 {
			field := "s3://" + strings.Repeat("a", a) + ",s3://" + strings.Repeat("b", b)
			if IsPlain([]byte(field)) {
				t.Errorf("%q is plain", field)
			}
			if url, rest, _ := CutURL([]byte(field)); string(url) != field[:5+a] || string(rest) != field[6+a:] {
				t.Errorf("%q is cut into %q and %q", field, url, rest)
			}
		}
	}
}

// TestIndexLinesWithoutALineBreak joins lines of indexes, whole and cut.
func TestIndexLinesWithoutALineBreak(t *testing.T) {
	const cdx = "com,example)/%[1]s 20160102030405 http://example.com/%[1]s text/html 200 SHA - - 9 8 %[1]s.warc.gz"
	const cdxj = `com,example)/%[1]s 20160102030405 {"url": "http://example.com/%[1]s", "filename": "%[1]s.warc.gz"}`
	const keyed = `com,example)/%[1]s 20160102030405 {"filename": "%[1]s.warc.gz"}`
	column := func(name string, number int) raw.Column {
		return raw.Column{Name: name, Number: number, Capture: number == 0}
	}
	ts := column("timestamp", 2)
	file := column("filename", 0)
	row := func(line int, url, file string) string {
		row := fmt.Sprintf("%d http://example.com/%s ts=1451703845000", line, url)
		if file != "" {
			row += ` {"filename":"` + file + `.warc.gz"}`
		}
		return row
	}
	for _, index := range []struct {
		name, line, bad string
		plan            raw.Plan
	}{
		{"CDX", cdx, raw.BadCDX, raw.Plan{Format: raw.CDX, Legends: []string{" CDX N b a m s k r M S V g"},
			URL: column("original", 3), TS: &ts, Extras: []raw.Column{file}}},
		{"CDXJ", cdxj, raw.BadJSON, raw.Plan{Format: raw.CDXJ, URL: column("url", 0), TS: &ts, Extras: []raw.Column{file}}},
		{"CDXJ, other member", strings.Replace(cdxj, "url", "original_uri", 1), raw.BadJSON,
			raw.Plan{Format: raw.CDXJ, SURT: true, URL: column("url", 0), TS: &ts, Extras: []raw.Column{file}}},
		{"CDXJ, key", keyed, raw.BadJSON, raw.Plan{Format: raw.CDXJ, SURT: true, URL: column("url", 0), TS: &ts,
			Extras: []raw.Column{file}}},
	} {
		a, b, c := fmt.Sprintf(index.line, "a"), fmt.Sprintf(index.line, "b"), fmt.Sprintf(index.line, "c")
		joined := []string{row(1, "a", "a"), row(1, "b", "b"), row(2, "c", "c")}
		if index.name == "CDX" {
			joined[0] = row(1, "a", "") // the names meet
		}
		if diff := cmp.Diff(joined, rows(t, index.plan, a+b+" \n"+c)); diff != "" {
			t.Errorf("%s, joined (-want +got):\n%s", index.name, diff)
		}
		if diff := cmp.Diff([]string{row(1, "a", "a"), row(1, "b", "b")}, rows(t, index.plan, "  "+a+" "+b)); diff != "" {
			t.Errorf("%s, joined with a blank (-want +got):\n%s", index.name, diff)
		}
		object := strings.Index(a, "{")
		for n := max(30, object+2); n < len(a)-10; n++ {
			want := []string{"1 !" + index.bad, row(1, "b", "b"), row(2, "c", "c")}
			if index.name == "CDX" && n > strings.Index(a, " text/html") {
				want[0] = row(1, "a", "") // lines may end behind the URL
			}
			if index.name == "CDX" && n < strings.Index(a, " http") {
				continue // it may also be a blank in the key
			}
			if index.line == keyed {
				want[1] = "1 !" + raw.NoURL // the key in which they meet
			}
			if diff := cmp.Diff(want, rows(t, index.plan, a[:n]+b+"\r\n"+c+"\n")); diff != "" {
				t.Fatalf("%s, %q joined (-want +got):\n%s", index.name, a[:n]+b, diff)
			}
			want = []string{row(1, "b", "b"), "1 !" + index.bad, row(2, "c", "c")}
			if index.name == "CDX" {
				want = want[1:] // the field in which they meet is followed by no whole line
			}
			if diff := cmp.Diff(want, rows(t, index.plan, b+a[:n]+"\n"+c+"\n")); diff != "" {
				t.Fatalf("%s, %q joined (-want +got):\n%s", index.name, b+a[:n], diff)
			}
		}
	}
}

func TestCDXJLinesAreCutInLinearTime(t *testing.T) {
	for _, unit := range []string{" {", "{ ", "a {", "20160102030405 x", `{"a": {"b": `} {
		for _, before := range []string{"", strings.Repeat(" ", raw.DefaultMaxLine/2), "a" + strings.Repeat(" ", raw.DefaultMaxLine/2)} {
			line := []byte(before + strings.Repeat(unit, raw.DefaultMaxLine/2/len(unit)))
			inTime(t, func() { CutCDXJ(line) })
		}
	}
}

// TestDamageIsReadInLinearTime reads objects with more damaged lines than a record can have bytes.
func TestDamageIsReadInLinearTime(t *testing.T) {
	array := raw.Plan{Format: raw.JSON, URL: raw.Column{Name: "url"}}
	const object = `{"url":"http://a.example/"}` + ",\n"
	table := raw.Plan{Format: raw.CSV, Separator: ",", Backslash: true, Columns: []string{"url", "n"},
		URL: raw.Column{Name: "url", Number: 1}}
	tabs := table
	tabs.Format, tabs.Separator = raw.TSV, "\t"
	for _, tc := range []struct {
		plan      raw.Plan
		good, bad string
		rows      bool // the damaged lines are rows too
		refused   bool
	}{
		{plan: array, good: object, bad: "{\n"},
		{plan: array, good: object, bad: "[\n", refused: true},
		{plan: array, good: object, bad: "[ {\n"},
		{plan: array, good: object, bad: `{"url":` + "\n"},
		{plan: array, good: object, bad: `{"url":"http://b.example/"` + "\n"},
		{plan: array, good: object, bad: `{"url":["http://b.example/"` + "\n"},
		{plan: array, good: object, bad: `{"url":"http://b.example/` + "\n"},
		{plan: array, good: object, bad: `"x":"` + "\n"},
		{plan: table, good: "http://a.example/,1\n", bad: `http://b.example/,C:\x\` + "\n", rows: true},
		{plan: table, good: "http://a.example/,1\n", bad: `http://b.example/,"` + "\n"},
		{plan: table, good: "http://a.example/,1\n", bad: `http://b.example/,\"` + "\n", rows: true},
		{plan: table, good: "http://a.example/,1\n", bad: `"http://b.example/",\` + "\n", rows: true},
		{plan: tabs, good: "http://a.example/\t1\n", bad: "http://b.example/\tC:\\x\\\n", rows: true},
		{plan: tabs, good: "http://a.example/\t1\n", bad: "http://b.example/\tC:\\x\n", rows: true},
	} {
		const most = 256 << 10
		tc.plan.MaxLine = most
		text := strings.Repeat(tc.good, most/2/len(tc.good)) + strings.Repeat(tc.bad, 2*most/len(tc.bad)) +
			strings.Repeat(tc.good, 10)
		if tc.plan.Format == raw.JSON {
			text = "[" + text
		}
		records, last := 0, ""
		inTime(t, func() {
			for _, last = range rows(t, tc.plan, text) {
				if !strings.Contains(last, " !") {
					records++
				}
			}
		})
		want := strings.Count(text, tc.good)
		if tc.rows {
			want += strings.Count(text, tc.bad)
		}
		if records < want && !tc.refused || tc.refused && last != errBroken.Error() {
			t.Errorf("%q: %d records, want %d", tc.bad, records, want)
		}
	}
}

func TestBackslashesAtTheEndOfLines(t *testing.T) {
	for _, tc := range []struct {
		text string // between commas
		want []string
	}{
		{"http://a/,C:\\x\\\nhttp://b/,2\n", []string{`1 http://a/ {"n":"C:\\x\\"}`, `2 http://b/ {"n":"2"}`}},
		{"http://a/,C:\\x\\\nhttp://b/,D:\\\nhttp://c/,3", []string{`1 http://a/ {"n":"C:\\x\\"}`, `2 http://b/ {"n":"D:\\"}`, `3 http://c/ {"n":"3"}`}},
		{"http://a/,two\\\nlines\nhttp://b/,2\n", []string{`1 http://a/ {"n":"two\nlines"}`, `3 http://b/ {"n":"2"}`}},
		{"http://a/,two\\\n lines\\\nand\nhttp://b/,C:\\\nhttp://c/,3", []string{`1 http://a/ {"n":"two\n lines\nand"}`, `4 http://b/ {"n":"C:\\"}`, `5 http://c/ {"n":"3"}`}},
		{"http://a/,C:\\", []string{`1 http://a/ {"n":"C:\\"}`}},
	} {
		for _, separator := range []string{",", "\t"} {
			plan := raw.Plan{Format: raw.CSV, Separator: separator, Backslash: true, Columns: []string{"url", "n"},
				URL: raw.Column{Name: "url", Number: 1}, AllExtras: true}
			if separator == "\t" {
				plan.Format = raw.TSV
			}
			text := strings.ReplaceAll(tc.text, ",", separator)
			if diff := cmp.Diff(tc.want, rows(t, plan, text)); diff != "" {
				t.Errorf("%q (-want +got):\n%s", text, diff)
			}
		}
	}
}

// TestRowsOfOtherWidth reads rows with a cell too many; some are two rows.
func TestRowsOfOtherWidth(t *testing.T) {
	for _, tc := range []struct {
		columns, url, row string
		want              []string
	}{
		{"id,url", "url", `"7","http://a/long","http://b/"`, []string{`1 http://a/long {"id":"7"}`}},
		{"id,url", "url", `7,http://a/8,http://b/`, []string{"1 !bad_csv", "1 http://b/"}},
		{"host,visits", "host", "www.example.com,1.234,56", []string{`1 www.example.com {"visits":"1.234"}`}},
		{"host,visits", "host", "www.example.com,12www.example.org,34", []string{"1 www.example.com", "1 !bad_csv"}},
		{"url,title,date", "url", "http://a,Foo,http://b,bar,x", []string{`1 http://a {"date":"http://b","title":"Foo"}`}},
		{"url,title,date", "url", "http://a,Foo,2016http://b,bar,2017", []string{`1 http://a {"title":"Foo"}`, "1 !bad_csv"}},
		{"url,title", "url", "http://a,Foohttp://b,bar", []string{"1 http://a", "1 !bad_csv"}},
		{"url,title", "url", "http://a,Foo,http://b,bar", []string{`1 http://a {"title":"Foo"}`, `1 http://b {"title":"bar"}`}},
	} {
		columns := strings.Split(tc.columns, ",")
		plan := raw.Plan{Format: raw.CSV, Separator: ",", Columns: columns, AllExtras: true, LongRow: 1,
			URL: raw.Column{Name: tc.url, Number: slices.Index(columns, tc.url) + 1}}
		if diff := cmp.Diff(tc.want, rows(t, plan, tc.row)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.row, diff)
		}
	}
}

// TestManyRecordsInsideARecord has the extras of a record leave out the many records in it.
func TestManyRecordsInsideARecord(t *testing.T) {
	var object strings.Builder
	object.WriteString(`{"url":"http://a/","n":1`)
	const inside = 50_000
	for i := range inside {
		fmt.Fprintf(&object, `,"%d":{"url":"http://b/"}`, i)
	}
	object.WriteString("}")
	plan := raw.Plan{Format: raw.JSON, Depth: raw.AnyDepth, AllExtras: true, URL: raw.Column{Name: "url"}, MaxLine: 4 << 20}
	inTime(t, func() {
		got := rows(t, plan, object.String())
		if len(got) != 1+inside || got[0] != `1 http://a/ {"n":1}` {
			t.Errorf("%d records, want %d; the first is %.100s", len(got), 1+inside, got[0])
		}
	})
}

func TestCDXServersCutTimes(t *testing.T) {
	columns := []string{"timestamp", "original"}
	plan := raw.Plan{Format: raw.JSON, Rows: true, HeaderRow: 1, Columns: columns, URL: raw.Column{Name: "1"},
		TS: &raw.Column{Name: "0"}}
	object := `[["timestamp","original"],["2016010203","http://a/"],["20160102","http://b/"]]`
	want := []string{"1 http://a/ ts=1451703600000", "1 http://b/ ts=1451692800000"}
	if diff := cmp.Diff(want, rows(t, plan, object)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
