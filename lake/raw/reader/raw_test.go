package reader

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/text"
)

// got is what a Reader returned for an object, in comparable form.
type got struct {
	Rows    []string // "line URL ts=… size=… extras", or "line !reason"
	Offsets []int64
	Lines   []int64
	Counts  raw.Counts
}

func readAll(r *Reader) (got, error) {
	var g got
	for {
		rec, rej, err := r.Next()
		if err != nil {
			return g.end(r, err)
		}
		if (rec == nil) == (rej == nil) {
			return g, errors.New("want exactly one of record and reject")
		}
		if rej != nil {
			g.reject(rej)
		} else {
			g.record(rec)
		}
	}
}

// readBatches is readAll with NextBatch, for up to size records. Some batches have one record. A
// list is read with NextURLs in part.
func readBatches(r *Reader, size int) (got, error) {
	var g got
	recs := make([]raw.Record, size)
	urls, lines := make([][]byte, size), make([]text.Position, size)
	for i := 0; ; i++ {
		some := recs
		if i%5 == 4 {
			some = recs[:1]
		}
		var n int
		var rej *raw.Reject
		var err error
		if r.IsList() && i%3 > 0 {
			n, rej, err = r.NextURLs(urls[:len(some)], lines)
			for i := range min(n, len(some)) {
				some[i] = raw.Record{URL: urls[i], Line: lines[i].Line, Offset: lines[i].Offset}
			}
		} else {
			n, rej, err = r.NextBatch(some)
		}
		if n > len(some) || err != nil && (n > 0 || rej != nil) || err == nil && n == 0 && rej == nil {
			return g, fmt.Errorf("%d records of %d, reject %v, error %w", n, len(some), rej, err)
		}
		for i := range n {
			g.record(&some[i])
		}
		if rej != nil {
			g.reject(rej)
		}
		if err != nil {
			return g.end(r, err)
		}
	}
}

func (g *got) end(r *Reader, err error) (got, error) {
	g.Counts = r.Counts()
	if err == io.EOF {
		err = nil
	}
	return *g, err
}

func (g *got) reject(rej *raw.Reject) {
	s := fmt.Sprintf("%d !%s", rej.Line, rej.Reason)
	if rej.Member != "" {
		s = rej.Member + ":" + s
	}
	g.Rows = append(g.Rows, s)
	g.Offsets, g.Lines = append(g.Offsets, rej.Offset), append(g.Lines, rej.Line)
}

func (g *got) record(rec *raw.Record) {
	s := fmt.Sprintf("%d %s", rec.Line, rec.URL)
	if rec.Member != "" {
		s = rec.Member + ":" + s
	}
	if rec.HasTS {
		s += fmt.Sprintf(" ts=%d", rec.TS)
	}
	if rec.HasSize {
		s += fmt.Sprintf(" size=%d", rec.Size)
	}
	if rec.Extras != nil {
		s += " " + string(rec.Extras)
	}
	g.Rows = append(g.Rows, s)
	g.Offsets, g.Lines = append(g.Offsets, rec.Offset), append(g.Lines, rec.Line)
}

func read(t *testing.T, name, text string, opt raw.Options) (got, raw.Plan) {
	t.Helper()
	r, err := New(strings.NewReader(text), name, opt)
	if err != nil {
		t.Fatal(err)
	}
	g, err := readAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return g, r.Plan()
}

func TestRecords(t *testing.T) {
	long := strings.Repeat("x", 60)
	const capture = ` {"digest":"AAAA","filename":"a.warc.gz","mime":"text/html","offset":"334","status":"200"}`
	all := []string{"*"}
	for _, tc := range []struct {
		name, object string // the test's name and the object's
		text         string
		opt          raw.Options
		format       string
		want         []string
		counts       raw.Counts // without Records and Rejects, which are counted in want
	}{
		// Lists.
		{"list", "a.txt", "http://a/\nhttp://b/\n", raw.Options{}, raw.Lines, []string{"1 http://a/", "2 http://b/"}, raw.Counts{}},
		{"list without a final line end", "a", "http://a/\nhttp://b/", raw.Options{}, raw.Lines, []string{"1 http://a/", "2 http://b/"}, raw.Counts{}},
		{"CRLF and CR CR LF", "a.txt", "http://a/\r\nhttp://b/\r\r\nhttp://c/\r\n", raw.Options{}, raw.Lines,
			[]string{"1 http://a/", "2 http://b/", "3 http://c/"}, raw.Counts{}},
		{"bare CR as line end", "a.txt", "http://a/\rhttp://b/\r\rhttp://c/", raw.Options{}, raw.Lines,
			[]string{"1 http://a/", "2 http://b/", "4 http://c/"}, raw.Counts{Blank: 1}},
		{"byte order marks, at the start and where files were joined", "a.txt", "\ufeffhttp://a/\n\ufeffhttp://b/\n", raw.Options{}, raw.Lines,
			[]string{"1 http://a/", "2 http://b/"}, raw.Counts{}},
		{"blank and comment lines", "a.txt", "\n# one\n  # two\n \t\nhttp://a/\n\n", raw.Options{}, raw.Lines, []string{"5 http://a/"}, raw.Counts{Blank: 3, Comments: 2}},
		{"white space around", "a.txt", " http://a/ \t\n\x0bhttp://b/ b\n", raw.Options{}, raw.Lines, []string{"1 http://a/", "2 !text_after_url"}, raw.Counts{}},
		{"what follows a URL on its line", "a.txt", "http://a/ # a remark\nhttp://b/#frag ment\nhttp://c/#!/x # y\n", raw.Options{}, raw.Lines,
			[]string{"1 http://a/", "2 http://b/#frag ment", "3 http://c/#!/x"}, raw.Counts{Spaced: 1}},
		{"playlist", "a.m3u", "#EXTM3U\n#EXTINF:-1,One\nrtsp://10.0.0.1:554/one\n", raw.Options{}, raw.Lines, []string{"3 rtsp://10.0.0.1:554/one"}, raw.Counts{Comments: 2}},
		{"hosts", "a.txt", "example.com\nexample.org\n", raw.Options{}, raw.Lines, []string{"1 example.com", "2 example.org"}, raw.Counts{}},
		{"commas in URLs make no table", "a.txt", "http://a/1,2\nhttp://b/3,4\nhttp://c/5,6\n", raw.Options{}, raw.Lines,
			[]string{"1 http://a/1,2", "2 http://b/3,4", "3 http://c/5,6"}, raw.Counts{}},
		{"IPv6 host at the start makes no JSON", "a.txt", "[::1]/a\n[::2]/b\n", raw.Options{}, raw.Lines, []string{"1 [::1]/a", "2 [::2]/b"}, raw.Counts{}},
		{"long lines are rejects", "a.txt", "http://a/\n" + long + "\nhttp://b/\n" + long, raw.Options{MaxLine: 59}, raw.Lines,
			[]string{"1 http://a/", "2 !too_long_line", "3 http://b/", "4 !too_long_line"}, raw.Counts{}},
		{"the longest line", "a.txt", long + "\r\n" + long + "x\r\n", raw.Options{MaxLine: 60}, raw.Lines, []string{"1 " + long, "2 !too_long_line"}, raw.Counts{}},
		{"no UTF-8", "a.txt", "http://a/\xe9\n", raw.Options{}, raw.Lines, []string{"1 http://a/\xe9"}, raw.Counts{}},
		{"a stray NUL is no binary file", "a.txt", "http://a/\x00\n", raw.Options{}, raw.Lines, []string{"1 http://a/\x00"}, raw.Counts{}},
		{"nothing", "a.csv", "", raw.Options{}, raw.Lines, nil, raw.Counts{}},
		{"nothing but lines", "a.txt", "\n\n", raw.Options{}, raw.Lines, nil, raw.Counts{Blank: 2}},
		{"all comments", "a.txt", "# a\n# b\n", raw.Options{}, raw.Lines, nil, raw.Counts{Comments: 2}},
		{"a list asked for", "a.csv", "url,x\nhttp://a/,1\n", raw.Options{Format: raw.Lines}, raw.Lines, []string{"1 url,x", "2 http://a/,1"}, raw.Counts{}},

		// CSV.
		{"header", "a.csv", "id,url\n1,http://a/\n2,http://b/\n", raw.Options{}, raw.CSV, []string{"2 http://a/", "3 http://b/"}, raw.Counts{}},
		{"header in a file of any name", "a", "id,url\n1,http://a/\n", raw.Options{}, raw.CSV, []string{"2 http://a/"}, raw.Counts{}},
		{"header behind BOM, CRLF", "a.csv", "\ufeffurl,x\r\nhttp://a/,1\r\n", raw.Options{}, raw.CSV, []string{"2 http://a/"}, raw.Counts{}},
		{"title rows before the header", "a.csv", "Number of URLs per domain,\n\nDomain,Number\na.org,3\n", raw.Options{}, raw.CSV, []string{"4 a.org"}, raw.Counts{Blank: 1}},
		{"no header, one column", "a.csv", "http://a/1,2\nhttp://b/\n", raw.Options{}, raw.CSV, []string{"1 http://a/1,2", "2 http://b/"}, raw.Counts{}},
		{"header, one column", "a.csv", "url\r\nexample.org\r\nhttp://a/1,2\r\n\"http://b/\"\r\n#c\r\n", raw.Options{}, raw.CSV,
			[]string{"2 example.org", "3 http://a/1,2", "4 http://b/"}, raw.Counts{Comments: 1}},
		{"one named column in a text file", "a.txt", "domains\nexample.org\n", raw.Options{}, raw.CSV, []string{"2 example.org"}, raw.Counts{}},
		{"no header, URL in the second column", "a.csv", "0,http://a/\n1,http://b/\n", raw.Options{}, raw.CSV, []string{"1 http://a/", "2 http://b/"}, raw.Counts{}},
		{"no header, two URL columns: the one that varies", "a.csv", "http://m/,http://a/\nhttp://m/,http://b/\n", raw.Options{}, raw.CSV, []string{"1 http://a/", "2 http://b/"}, raw.Counts{}},
		{"two URL columns, by number", "a.csv", "http://m/,http://a/\nhttp://m/,http://b/\n", raw.Options{URLColumn: "1"}, raw.CSV, []string{"1 http://m/", "2 http://m/"}, raw.Counts{}},
		{"unknown header above URLs", "a.csv", "n,address\n1,http://a/\n2,http://b/\n", raw.Options{}, raw.CSV, []string{"2 http://a/", "3 http://b/"}, raw.Counts{}},
		{"a name of digits", "a.csv", "x,0\n1,http://a/\n2,http://b/\n", raw.Options{URLColumn: "0"}, raw.CSV, []string{"2 http://a/", "3 http://b/"}, raw.Counts{}},
		{"named without regard to case", "a.csv", "n,Address\n1,http://a/\n", raw.Options{URLColumn: "address"}, raw.CSV, []string{"2 http://a/"}, raw.Counts{}},
		{"best name, not first", "a.csv", "Domain,Base Domain,URL\na.org,a.org,http://a.org/\n", raw.Options{}, raw.CSV, []string{"2 http://a.org/"}, raw.Counts{}},
		{"a name whose values are no URLs is passed over", "a.csv", "link,page_url\nyes,http://a/\nno,http://b/\n", raw.Options{}, raw.CSV, []string{"2 http://a/", "3 http://b/"}, raw.Counts{}},
		{"hosts without a header", "a.csv", "1,google.com\n2,example.org\n", raw.Options{}, raw.CSV, []string{"1 google.com", "2 example.org"}, raw.Counts{}},
		{"semicolons", "a.csv", "id;url\n1;http://a/1,2\n", raw.Options{}, raw.CSV, []string{"2 http://a/1,2"}, raw.Counts{}},
		{"bars", "a.txt", "id|url\n1|http://a/1,2\n", raw.Options{}, raw.CSV, []string{"2 http://a/1,2"}, raw.Counts{}},
		{"quotes, doubled quotes, line breaks", "a.csv", "t,url,n\n\"a \"\"b\"\",\r\nc\",\"http://a/\"\"\",1\nd,http://b/,2\n", raw.Options{Extras: all}, raw.CSV,
			[]string{`2 http://a/" {"n":"1","t":"a \"b\",\r\nc"}`, `4 http://b/ {"n":"2","t":"d"}`}, raw.Counts{}},
		{"quotes inside an unquoted field are kept", "a.csv", "url,t\nhttp://a/,12\" disk\n", raw.Options{Extras: all}, raw.CSV, []string{`2 http://a/ {"t":"12\" disk"}`}, raw.Counts{}},
		{"spaces behind a closing quote", "a.csv", "url,t\n\"http://a/\" ,\"x\"  \r\n\"http://b/\"\t,y\n", raw.Options{Extras: all}, raw.CSV,
			[]string{`2 http://a/ {"t":"x"}`, "3 !bad_csv"}, raw.Counts{}},
		{"a field goes on behind its quote", "a.csv", "url,t\nhttp://a/,\"b\"c\nhttp://d/,e\n", raw.Options{}, raw.CSV, []string{"2 !bad_csv", "3 http://d/"}, raw.Counts{}},
		{"a stray quote costs one record", "a.csv", "url,t\nhttp://a/,\"b\nhttp://c/,d\nhttp://e/,\"f\"\nhttp://g/,h\n", raw.Options{}, raw.CSV,
			[]string{"2 !bad_csv", "3 http://c/", "4 http://e/", "5 http://g/"}, raw.Counts{}},
		{"a quote that never closes costs one record", "a.csv", "url,t\nhttp://a/,\"b\nhttp://c/,d\nhttp://e/,f", raw.Options{}, raw.CSV,
			[]string{"2 !bad_csv", "3 http://c/", "4 http://e/"}, raw.Counts{}},
		{"the stray quote opened on the record's second line", "a.csv", "t,url,v\n\"a\nb\",http://a/,\"c\nd,http://e/,f\n", raw.Options{}, raw.CSV,
			[]string{"2 !bad_csv", "4 http://e/"}, raw.Counts{}},
		{"a quoted field longer than a record may be", "a.csv", "url,t\nhttp://a/,\"" + long + "\n" + long + "\"\nhttp://b/,c\n", raw.Options{MaxLine: 100}, raw.CSV,
			[]string{"2 !too_long_line", "3 " + long + "\"", "4 http://b/"}, raw.Counts{}},
		{"an empty URL", "a.csv", "url,t\n,a\nhttp://b/,c\n\" \",d\n", raw.Options{}, raw.CSV, []string{"2 !no_url", "3 http://b/", "4 !no_url"}, raw.Counts{}},
		{"a row too short", "a.csv", "t,url\na\nb,http://b/\n", raw.Options{}, raw.CSV, []string{"2 !no_url", "3 http://b/"}, raw.Counts{}},
		{"rows of empty cells are blank", "a.csv", "t,url\n,\n\"\",\" \"\nb,http://b/\n,\n", raw.Options{}, raw.CSV, []string{"4 http://b/"}, raw.Counts{Blank: 3}},
		{"an empty last column", "a.csv", "URL,\r\nhttp://a/,\r\nhttp://b/,\r\n", raw.Options{Extras: all}, raw.CSV, []string{"2 http://a/", "3 http://b/"}, raw.Counts{}},
		{"nameless and doubled columns are called by number", "a.csv", "url,,x,x,3\nhttp://a/,b,c,d,e\n", raw.Options{Extras: all}, raw.CSV,
			[]string{`2 http://a/ {"2":"b","3":"e","4":"d","x":"c"}`}, raw.Counts{}},
		{"named extras, time and size", "a.csv", "url,when,bytes,t,u\nhttp://a/,2024-05-06,12,x,y\nhttp://b/,,,,\nhttp://c/,soon,1,,\nhttp://d/,2024,-1,,\n",
			raw.Options{TSColumn: "when", SizeField: "bytes", Extras: []string{"u", "4"}}, raw.CSV,
			[]string{`2 http://a/ ts=1714953600000 size=12 {"t":"x","u":"y"}`, "3 http://b/", "4 !bad_ts", "5 !bad_size"}, raw.Counts{}},
		{"the largest size", "a.csv", "url,bytes\nhttp://a/,9007199254740991\nhttp://b/,9007199254740992\nhttp://c/,9223372036854775807\nhttp://d/,18446744073709551617\n",
			raw.Options{SizeField: "bytes"}, raw.CSV, []string{"2 http://a/ size=9007199254740991", "3 !bad_size", "4 !bad_size", "5 !bad_size"}, raw.Counts{}},
		{"a time nobody named, seen to be one", "a.csv", "url,ts\nhttp://a/,20240506000000\nhttp://b/,\n", raw.Options{}, raw.CSV,
			[]string{"2 http://a/ ts=1714953600000", "3 http://b/"}, raw.Counts{}},
		{"a column called ts that holds something else", "a.csv", "url,ts\nhttp://a/,soon\n", raw.Options{}, raw.CSV, []string{"2 http://a/"}, raw.Counts{}},
		{"seconds into a film are no time", "a.csv", "url,timestamp\nhttp://a/,35.2\n", raw.Options{}, raw.CSV, []string{"2 http://a/"}, raw.Counts{}},
		{"a head of blank lines", "a", strings.Repeat("\n", raw.HeadSize) + "http://a/\n", raw.Options{}, raw.Lines, []string{fmt.Sprintf("%d http://a/", raw.HeadSize+1)}, raw.Counts{Blank: raw.HeadSize}},
		{"a head of blank lines in CSV", "a", strings.Repeat("\n", raw.HeadSize) + "http://a/\n", raw.Options{Format: raw.CSV}, raw.CSV, []string{fmt.Sprintf("%d http://a/", raw.HeadSize+1)}, raw.Counts{Blank: raw.HeadSize}},
		{"nothing, of a named column", "a.csv", "\n", raw.Options{URLColumn: "url", Format: raw.CSV}, raw.CSV, nil, raw.Counts{Blank: 1}},
		{"the caller's time format", "a.csv", "url,at\nhttp://a/,8/4/2016 11:52\n", raw.Options{TSColumn: "at", TSFormat: "%m/%d/%Y %H:%M"}, raw.CSV,
			[]string{"2 http://a/ ts=1470311520000"}, raw.Counts{}},
		{"CSV asked for, in JSON's clothes", "a", "[url],x\nhttp://a/,1\n", raw.Options{Format: raw.CSV}, raw.CSV, []string{"2 http://a/"}, raw.Counts{}},

		// TSV.
		{"TSV", "a.tsv", "service_url\tname\r\nhttp://a/\tA, \"B\"\r\n", raw.Options{Extras: all}, raw.TSV, []string{`2 http://a/ {"name":"A, \"B\""}`}, raw.Counts{}},
		{"TSV by its tabs", "a.txt", "http://a/\t5\nhttp://b/\t6\n", raw.Options{}, raw.TSV, []string{"1 http://a/", "2 http://b/"}, raw.Counts{}},
		{"quotes in TSV are taken literally unless they enclose the field", "a.tsv",
			"url\tt\nhttp://a/\t\"x\"\"y\tz\"\nhttp://b/\t\"b\" c\nhttp://c/\t\"d\nhttp://e/\tf\"\n", raw.Options{Extras: all}, raw.TSV,
			[]string{`2 http://a/ {"t":"x\"y\tz"}`, `3 http://b/ {"t":"\"b\" c"}`, `4 http://c/ {"t":"\"d"}`, `5 http://e/ {"t":"f\""}`}, raw.Counts{}},

		// JSON Lines.
		{"JSON Lines", "a.jsonl", "{\"url\":\"http://a/\"}\n\n {\"url\" : \"http:\\/\\/b\\/\\u00e9\\ud83d\\ude00\"} \r\n", raw.Options{}, raw.JSONLines,
			[]string{"1 http://a/", "3 http://b/é😀"}, raw.Counts{Blank: 1}},
		{"short names, nested documents", "a.json", "{\"a\":{\"u\":\"http://x/\"},\"u\":\"http://a/\"}\n", raw.Options{}, raw.JSONLines, []string{"1 http://a/"}, raw.Counts{}},
		{"nested URL found", "a", "{\"a\":{\"url\":\"http://a/\"},\"n\":1}\n{\"a\":{\"url\":\"http://b/\"},\"n\":1}\n", raw.Options{Extras: all}, raw.JSONLines,
			[]string{`1 http://a/ {"a":{},"n":1}`, `2 http://b/ {"a":{},"n":1}`}, raw.Counts{}},
		{"by path", "a", "{\"a\":[{\"b.c\":\"http://a/\"}],\"url\":\"http://b/\"}\n", raw.Options{URLColumn: `a.0.b\.c`}, raw.JSONLines, []string{"1 http://a/"}, raw.Counts{}},
		{"unknown member with URLs", "a", "{\"n\":1,\"address\":\"http://a/\"}\n{\"n\":1,\"address\":\"http://b/\"}\n", raw.Options{}, raw.JSONLines,
			[]string{"1 http://a/", "2 http://b/"}, raw.Counts{}},
		{"strings", "a.jsonl", "\"http://a/\\u0026\"\n\"http://b/\"\n\"\"\n", raw.Options{}, raw.JSONLines, []string{"1 http://a/&", "2 http://b/", "3 !no_url"}, raw.Counts{}},
		{"rejects", "a.jsonl", "{\"url\":\"http://a/\"}\n{\"url\":\nhttp://b/\n{\"url\":null}\n{\"url\":5}\n{}\n[1]\n7\n{\"url\":\"  \"}\n{\"url\":\"http://c/\"} x\n", raw.Options{}, raw.JSONLines,
			[]string{"1 http://a/", "2 !bad_json", "3 !bad_json", "4 !no_url", "5 !no_url", "6 !no_url", "7 !no_url", "8 !no_url", "9 !no_url", "10 http://c/", "10 !bad_json"}, raw.Counts{}},
		{"time, size, all extras in canonical form", "a.jsonl",
			"{\"z\":1.50,\"url\":\"http://a/\",\"t\":1714953600.5,\"n\":\"12\",\"\\u0061\":[{\"c\":1e3,\"b\":null}],\"big\":12345678901234567890}\n{\"url\":\"http://b/\",\"t\":{},\"n\":1}\n{\"url\":\"http://c/\",\"n\":1.5}\n{\"url\":\"http://d/\",\"t\":null,\"n\":4.0}\n",
			raw.Options{TSColumn: "t", SizeField: "n", Extras: all}, raw.JSONLines,
			[]string{`1 http://a/ ts=1714953600500 size=12 {"a":[{"b":null,"c":1000}],"big":"12345678901234567890","z":1.5}`,
				"2 !bad_ts", "3 !bad_size", "4 http://d/ size=4"}, raw.Counts{}},
		{"named extras keep their path as name", "a.jsonl", "{\"url\":\"http://a/\",\"m\":{\"t\":\"x\",\"u\":1},\"k\":2}\n", raw.Options{Extras: []string{"m.t", "k", "none"}}, raw.JSONLines,
			[]string{`1 http://a/ {"k":2,"m.t":"x"}`}, raw.Counts{}},
		{"a member twice: the last", "a.jsonl", "{\"url\":\"http://a/\",\"x\":1,\"url\":\"http://b/\",\"x\":2}\n", raw.Options{Extras: all}, raw.JSONLines, []string{`1 http://b/ {"x":2}`}, raw.Counts{}},
		{"a time nobody named that fails later is left out and counted", "a.jsonl",
			"{\"url\":\"http://a/\",\"timestamp\":\"2024-05-06T00:00:00Z\"}\n" + strings.Repeat(" ", raw.HeadSize) + "\n{\"url\":\"http://b/\",\"timestamp\":\"?\"}\n", raw.Options{}, raw.JSONLines,
			[]string{"1 http://a/ ts=1714953600000", "3 http://b/"}, raw.Counts{Blank: 1, BadTS: 1}},
		{"record separators", "a.jsonl", "\x1e{\"url\":\"http://a/\"}\n\x1e{\"url\":\"http://b/\"}\n", raw.Options{}, raw.JSONLines, []string{"1 http://a/", "2 http://b/"}, raw.Counts{}},

		// JSON.
		{"array over lines", "a.json", "[\n  {\n    \"url\": \"http://a/\"\n  },\n  {\"url\": \"http://b/\"}, 7, {\"url\": }, {\"url\":\"]}\"},{\"url\": \"http://c/\"}\n]\n", raw.Options{}, raw.JSON,
			[]string{"2 http://a/", "5 http://b/", "5 !no_url", "5 !bad_json", "5 ]}", "5 http://c/"}, raw.Counts{}},
		{"array of strings, one of arrays", "a.json", "[\"http://a/\",\"http://b/\"]\n[\"http://c/\",[\"http://d/\"]]", raw.Options{}, raw.JSON,
			[]string{"1 http://a/", "1 http://b/", "2 http://c/", "2 !no_url"}, raw.Counts{}},
		{"objects over lines", "a.json", "{\n\"url\": \"http://a/\"\n}\n{\n\"url\": \"http://b/\"\n}\n", raw.Options{}, raw.JSON, []string{"1 http://a/", "4 http://b/"}, raw.Counts{}},
		{"empty array", "a.json", "[]", raw.Options{}, raw.JSON, nil, raw.Counts{}},
		{"an element too long", "a.json", "[{\"url\":\"http://a/\"},\n{\"url\":\"" + long + "\\\"\"},\n{\"url\":\"http://b/\"}]", raw.Options{MaxLine: 40}, raw.JSON,
			[]string{"1 http://a/", "2 !too_long_line", "3 http://b/"}, raw.Counts{}},

		{"one object of records", "a.json", "{\n\"x\": {\"href\": \"http://a/\", \"ts\": \"2024-05-06\"},\n\"y\\u0021\" :\n{\"href\": \"http://b/\"}, \"z\": {\"alias\": \"x\"}\n}\n", raw.Options{Extras: all}, raw.JSON,
			[]string{`2 http://a/ ts=1714953600000 {"key":"x"}`, `4 http://b/ {"key":"y!"}`, "4 !no_url"}, raw.Counts{}},
		{"one object of arrays, on one line", "a.json", `{"AK":{"tv":[{"website":"http://a/"},{"website":"http://b/","key":7}],"radio":[]},"AL":{"tv":[{"website":"http://c/"}]}}`, raw.Options{Extras: []string{"key"}}, raw.JSON,
			[]string{`1 http://a/ {"key":"AK.tv"}`, `1 http://b/ {"key":7}`, `1 http://c/ {"key":"AL.tv"}`}, raw.Counts{}},
		{"scalars beside an array of records", "a.json", `{"version": 1, "urls": [{"url":"http://a/"}, {"url":"http://b/"}], "end": "http://d/"}`, raw.Options{URLColumn: "url"}, raw.JSON,
			[]string{"1 !no_url", "1 http://a/", "1 http://b/", "1 !no_url"}, raw.Counts{}},
		{"the same, the array longer than a record may be", "a.json", "{\"version\": 1, \"urls\": [" + strings.Repeat("{\"url\":\"http://a/\"},\n", 9) + "{\"url\":\"" + long + "\"},\n{\"url\":\"http://b/\"}]}", raw.Options{MaxLine: 40, Format: raw.JSON}, raw.JSON,
			append(append([]string{"1 !no_url"}, repeatRows(9, 1, "http://a/")...), "10 !too_long_line", "11 http://b/"), raw.Counts{}},
		{"by a name that is none for URLs", "a.json", `{"a":{"address":"http://a/"},"b":{"address":"http://b/"}}`, raw.Options{URLColumn: "address"}, raw.JSON, []string{"1 http://a/", "1 http://b/"}, raw.Counts{}},

		// Archive indexes.
		{"CDX with legend", "a.cdx", " CDX N b a m s k r M S V g\norg,a)/ 20140126200624 http://a.org/ text/html 200 AAAA - - 2258 334 a.warc.gz\norg,a)/x 201401 http://a.org/x text/html\norg,a)/y 20140126200624 http://a.org/y\norg,a)/z 20140126200624\n",
			raw.Options{Extras: []string{"mimetype", "redirect"}, SizeField: "length"}, raw.CDX,
			[]string{`2 http://a.org/ ts=1390766784000 size=2258 {"mimetype":"text/html"}`, `3 http://a.org/x ts=1388534400000 {"mimetype":"text/html"}`,
				"4 !bad_cdx", "5 !bad_cdx"}, raw.Counts{Comments: 1}}, // a URL at the end of its line may be cut
		{"CDX of 9 fields without", "a.txt", "org,a)/ 20140126200624 http://a.org/ text/html 200 AAAA - 334 a.warc.gz\norg,a)/ when http://a.org/ text/html 200 AAAA - 334 a.warc.gz\n" +
			strings.Repeat("org,a)/ 20140126200624 http://a.org/ text/html 200 AAAA - 334 a.warc.gz\n", 8), raw.Options{}, raw.CDX,
			append([]string{"1 http://a.org/ ts=1390766784000" + capture, "2 http://a.org/" + capture}, repeatRows(8, 3, "http://a.org/ ts=1390766784000"+capture)...), raw.Counts{BadTS: 1}},
		{"CDXJ", "a", "!OpenWayback-CDXJ 1.0\norg,a)/ 20140126200624 {\"url\": \"http://a.org/\", \"length\": \"7\"}\norg,b)/ x {\"url\": \"http://b.org/\"}\norg,c)/\norg,d)/ 20140126200624 {\"url\"}\n",
			raw.Options{Format: raw.CDXJ, SizeField: "length", Extras: all}, raw.CDXJ,
			[]string{`2 http://a.org/ ts=1390766784000 size=7 {"urlkey":"org,a)/"}`, `3 http://b.org/ {"urlkey":"org,b)/"}`, "4 !bad_cdx", "5 !bad_json"}, raw.Counts{Comments: 1, BadTS: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g, plan := read(t, tc.object, tc.text, tc.opt)
			if plan.Format != tc.format {
				t.Errorf("format %s, want %s", plan.Format, tc.format)
			}
			if diff := cmp.Diff(tc.want, g.Rows); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			// A position is right if as many line ends precede the offset as the line number says,
			// and a line or an element of an array begins there.
			end := "\n"
			if plan.CRLines {
				end = "\r"
			}
			for i, o := range g.Offsets {
				if n := int64(1 + strings.Count(tc.text[:o], end)); n != g.Lines[i] {
					t.Errorf("record %d at byte %d has line number %d, want %d", i, o, g.Lines[i], n)
				}
				before := tc.text[:o]
				if o > 0 && plan.Format != raw.JSON && plan.Format != raw.JSONLines && !strings.HasSuffix(before, end) && !strings.HasSuffix(before, "\ufeff") {
					t.Errorf("record %d at byte %d does not begin there", i, o)
				}
			}
			for _, row := range tc.want {
				if _, what, _ := strings.Cut(row, " "); what[0] == '!' {
					tc.counts.Rejects++
				} else {
					tc.counts.Records++
				}
			}
			if diff := cmp.Diff(tc.counts, g.Counts); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}

			// Read the object again by the plan alone, as another process does.
			b, err := json.Marshal(plan)
			if err != nil {
				t.Fatal(err)
			}
			var again raw.Plan
			if err := json.Unmarshal(b, &again); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(plan, again); diff != "" {
				t.Errorf("plan through JSON (-want +got):\n%s", diff)
			}
			r, err := Open(&oneByte{data: []byte(tc.text)}, tc.object, again)
			if err != nil {
				t.Fatal(err)
			}
			if g2, err := readAll(r); err != nil {
				t.Error(err)
			} else if diff := cmp.Diff(g, g2); diff != "" {
				t.Errorf("read by the plan, byte by byte (-want +got):\n%s", diff)
			}
		})
	}
}

func repeatRows(n, line int, s string) []string {
	var rows []string
	for i := range n {
		rows = append(rows, fmt.Sprintf("%d %s", line+i, s))
	}
	return rows
}

// oneByte yields its data byte by byte.
type oneByte struct{ data []byte }

func (o *oneByte) Read(p []byte) (int, error) {
	if len(o.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, o.data[:1])
	o.data = o.data[1:]
	return n, nil
}

// randomText joins n random pieces of an alphabet.
func randomText(r *rand.Rand, alphabet []string, n int) []byte {
	var b []byte
	for range n {
		b = append(b, alphabet[r.IntN(len(alphabet))]...)
	}
	return b
}

func TestRecordsDoNotDependOnReads(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for format, alphabet := range map[string][]string{
		raw.Lines:     {"http://a/", "#", " ", "\n", "\r\n", "\r", "\ufeff", "\xff"},
		raw.CSV:       {"url", "http://a/", ",", ",", "\"", "\"", "\"\"", "\n", "\n", "\r\n", "2024-05-06", " ", ";"},
		raw.TSV:       {"url", "http://a/", "\t", "\t", "\"", "\"\"", "\n", "\n", "\r\n", "ts", "1714953600"},
		raw.JSONLines: {"{\"url\":\"http://a/\"}", "{", "}", "\"url\":", "\"x\\u00e9\"", ",", "[", "]", "1", "\n", "\n", "null"},
		raw.JSON:      {"{\"url\":\"http://a/\"}", "{\"url\":\"http://a/\"},", "{", "}", "\"url\":", "\"x\\\\\"", ",", "[", "]", "1", "\n", " ", "null"},
		raw.CDX:       {"a 20240506070809 http://a/", " CDX N b a", " ", "-", "\n", "\n", "2024", "!"},
		raw.CDXJ:      {"a 20240506070809 {\"url\":\"http://a/\"}", " ", "{", "}", "\n", "\n", "2024", "!"},
	} {
		for i := range 600 / testenv.Every(8) {
			text := randomText(r, alphabet, r.IntN(40))
			opt := raw.Options{Format: format, MaxLine: 1 + r.IntN(60), Extras: []string{"*"}}
			if format == raw.JSON || format == raw.JSONLines {
				opt.URLColumn = "url"
			}
			if i%3 == 0 {
				opt.Format = raw.Auto
			}
			checkReader(t, "a", text, opt)
		}
	}
}

func TestRejectionsSayWhatToDo(t *testing.T) {
	lists := tarOf(t, "b/c.md", "[a](http://a/)", "README", "http://a/")
	twice := tarOf(t, "a.tar", string(tarOf(t, "a.txt", "http://a/\n")))
	inside := compressed(t, "gzip", []byte("http://a/\n"))
	for _, tc := range []struct {
		name, object string
		data         []byte
		opt          raw.Options
		want         string // a word of the reason
	}{
		{"tar of documents", "a.tar", lists, raw.Options{}, "none of the 2 members"},
		{"tar in gzip, of documents", "a.tar.gz", compressed(t, "gzip", lists), raw.Options{}, "none of the 2 members"},
		{"Parquet asked for", "a.txt", []byte("http://a/\n"), raw.Options{Format: raw.Parquet}, "no Parquet"},
		{"MISP", "a.json", []byte(`{"Event":{"info":"x","Attribute":[{"type":"url","value":"http://a/"},{"type":"url","value":"http://b/"}]}}`), raw.Options{}, "MISP"},
		{"zip", "a.txt", []byte("PK\x03\x04abc"), raw.Options{}, "zip"},
		{"gzip in gzip", "a.gz", compressed(t, "gzip", inside), raw.Options{}, "twice"},
		{"UTF-32", "a.csv", []byte("\xff\xfe\x00\x00h\x00\x00\x00"), raw.Options{}, "UTF-32"},
		{"XML", "a.kml", []byte("\n<?xml version=\"1.0\"?><kml/>"), raw.Options{}, "XML"},
		{"binary", "a.txt", bytes.Repeat([]byte{1, 2, 'a', 0xff}, 50), raw.Options{}, "binary"},
		{"Parquet, whatever was asked for", "a.txt", []byte("PAR1\x15\x04"), raw.Options{Format: raw.Lines}, "Parquet"},
		{"access log", "a.log", []byte(`1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 7 "http://b/" "x"` + "\n"), raw.Options{}, "access log"},
		{"ZipNum index", "a.idx", []byte("com,example)/ 20140127171200\tzipnum\t0\t275\t1\n"), raw.Options{}, "ZipNum"},
		{"one document", "a.json", []byte("{\n\"a\": {\"href\": \"http://a/\"},\n\"b\": 5\n}\n"), raw.Options{}, "one JSON document"},
		{"no URLs in JSON", "a.jsonl", []byte("{\"a\": 1}\n{\"a\": 2}\n"), raw.Options{}, "no member"},
		{"no URLs in a table", "a.csv", []byte("a,b\n1,2\n3,4\n"), raw.Options{}, `"a", "b"`},
		{"no such column", "a.csv", []byte("a,url\n1,http://a/\n"), raw.Options{URLColumn: "link"}, `no column "link"`},
		{"number from 0", "a.csv", []byte("a,url\n0,http://a/\n1,http://b/\n"), raw.Options{URLColumn: "0"}, `no column "0"`},
		{"no such number", "a.csv", []byte("a,url\n1,http://a/\n"), raw.Options{URLColumn: "3"}, `no column "3"`},
		{"no such column in CDX", "a.cdx", []byte(" CDX N b a\na 20140127171200 http://a/\n"), raw.Options{TSColumn: "x"}, `no column "x"`},
		{"a list has no columns", "a.txt", []byte("http://a/\n"), raw.Options{TSColumn: "ts"}, "list"},
		{"tar in tar", "a.tar", twice, raw.Options{}, "inside an archive"},
		{"a member that cannot be read", "a.tar", tarOf(t, "a.xml", "<a/>"), raw.Options{}, "XML"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := New(bytes.NewReader(tc.data), tc.object, tc.opt)
			var fe *raw.FormatError
			if !errors.As(err, &fe) || !errors.Is(err, raw.ErrInput) {
				t.Fatalf("got %v, want a *FormatError", err)
			}
			if !strings.Contains(fe.Reason, tc.want) || !strings.HasPrefix(fe.Name, tc.object) {
				t.Errorf("got %v, want it to say %q", err, tc.want)
			}
			if fe.Advice == "" {
				t.Errorf("%v: no advice", err)
			}
		})
	}
}

func TestWrongOptionsAreNotTheObjectsFault(t *testing.T) {
	for _, opt := range []raw.Options{{Format: "tar"}, {Format: "xml"}, {MaxLine: -1}, {MaxLine: 1<<30 + 1}, {TSFormat: "%Q"}, {TSFormat: "today"}, {TSFormat: "%"}} {
		_, err := New(strings.NewReader("http://a/\n"), "a", opt)
		if err == nil || errors.Is(err, raw.ErrInput) {
			t.Errorf("%+v: got %v, want an error that is no ErrInput", opt, err)
		}
	}
}

func TestGuessesAmongSeveralAreNoted(t *testing.T) {
	for _, tc := range []struct {
		text string
		note string
	}{
		{"http://m/,http://a/\nhttp://m/,http://b/\n", `"2"`},
		{"n,onion_url,mirror2_url\n1,http://a/,http://p/\n2,http://a/,http://p/\n", `"mirror2_url"`},
		{`{"from_url":"http://a/","to_url":"http://b/"}` + "\n", `"to_url"`},
		{`{"a":{"url":"http://a/"}}` + "\n" + `{"a":{"url":"http://a/"}}` + "\n", `"a.url"`},
		{"1,http://a/\n2,http://b/\n", `"2"`},
	} {
		_, plan := read(t, "a.csv", tc.text, raw.Options{})
		if len(plan.Notes) != 1 || !strings.Contains(plan.Notes[0], tc.note) {
			t.Errorf("%q: notes %q, want one with %s", tc.text, plan.Notes, tc.note)
		}
	}
	if _, plan := read(t, "a.csv", "id,url\n1,http://a/\n", raw.Options{}); plan.Notes != nil {
		t.Errorf("notes %q on a table with one URL column", plan.Notes)
	}
}

func TestRecordsInsideOneObjectAreFoundByAnyPath(t *testing.T) {
	for _, tc := range []struct{ name, around, record, path string }{
		{"array step", `{"data":{"items":[%s]}}`, `{"id":%d,"ts":"2024-01-02T03:04:05Z","attributes":{"links":[{"href":"https://h/%[1]d"}]}}`, "attributes.links.0.href"},
		{"second element", `{"items":[%s]}`, `{"pair":["n%d","https://h/%[1]d"]}`, "pair.1"},
		{"groups", `{"results":[%s]}`, `{"a":{"url":"https://h/%d"}}`, "a.url"},
		{"deeper than members are looked for", `{"items":[%s]}`, `{"id":%d,"a":{"b":{"c":{"d":{"e":"https://h/%[1]d"}}}}}`, "a.b.c.d.e"},
	} {
		var records []string
		for i := range 50 {
			records = append(records, fmt.Sprintf(tc.record, i))
		}
		text := fmt.Sprintf(tc.around, strings.Join(records, ","))
		r, err := New(strings.NewReader(text), "a.json", raw.Options{URLColumn: tc.path})
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		n := 0
		for {
			rec, rej, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil || rej != nil {
				t.Fatalf("%s: record %d: %v, %v", tc.name, n, err, rej)
			}
			if want := fmt.Sprintf("https://h/%d", n); string(rec.URL) != want {
				t.Errorf("%s: URL %q, want %q", tc.name, rec.URL, want)
			}
			if rec.HasTS != strings.Contains(tc.record, `"ts"`) {
				t.Errorf("%s: time %v", tc.name, rec.HasTS)
			}
			n++
		}
		if n != 50 {
			t.Errorf("%s: %d records, want 50", tc.name, n)
		}
	}
}
