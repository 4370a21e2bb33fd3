package raw

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
)

// got is what a reader made of an object, in comparable form.
type got struct {
	Rows    []string // "line URL ts=… size=… extras", or "line !reason"
	Offsets []int64
	Lines   []int64
	Counts  Counts
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

// readBatches is readAll by batches of up to size records, some of them of one, and of lists some of URLs alone.
func readBatches(r *Reader, size int) (got, error) {
	var g got
	recs := make([]Record, size)
	urls, lines := make([][]byte, size), make([]Line, size)
	for i := 0; ; i++ {
		some := recs
		if i%5 == 4 {
			some = recs[:1]
		}
		var n int
		var rej *Reject
		var err error
		if r.IsList() && i%3 > 0 {
			n, rej, err = r.NextURLs(urls[:len(some)], lines)
			for i := range min(n, len(some)) {
				some[i] = Record{URL: urls[i], Line: lines[i].Line, Offset: lines[i].Offset}
			}
		} else {
			n, rej, err = r.NextBatch(some)
		}
		if n > len(some) || err != nil && (n > 0 || rej != nil) || err == nil && n == 0 && rej == nil {
			return g, fmt.Errorf("%d records of %d, reject %v, error %v", n, len(some), rej, err)
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

func (g *got) reject(rej *Reject) {
	s := fmt.Sprintf("%d !%s", rej.Line, rej.Reason)
	if rej.Member != "" {
		s = rej.Member + ":" + s
	}
	g.Rows = append(g.Rows, s)
	g.Offsets, g.Lines = append(g.Offsets, rej.Offset), append(g.Lines, rej.Line)
}

func (g *got) record(rec *Record) {
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

func read(t *testing.T, name, text string, opt Options) (got, Plan) {
	t.Helper()
	r, err := NewReader(strings.NewReader(text), name, opt)
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
	all := []string{"*"}
	for _, tc := range []struct {
		name, object string // the test's name and the object's
		text         string
		opt          Options
		format       string
		want         []string
		counts       Counts // of Records and Rejects nothing: they are counted in want
	}{
		// Lists.
		{"list", "a.txt", "http://a/\nhttp://b/\n", Options{}, Lines, []string{"1 http://a/", "2 http://b/"}, Counts{}},
		{"list without a final line end", "a", "http://a/\nhttp://b/", Options{}, Lines, []string{"1 http://a/", "2 http://b/"}, Counts{}},
		{"CRLF and CR CR LF", "a.txt", "http://a/\r\nhttp://b/\r\r\nhttp://c/\r\n", Options{}, Lines,
			[]string{"1 http://a/", "2 http://b/", "3 http://c/"}, Counts{}},
		{"bare CR as line end", "a.txt", "http://a/\rhttp://b/\r\rhttp://c/", Options{}, Lines,
			[]string{"1 http://a/", "2 http://b/", "4 http://c/"}, Counts{Blank: 1}},
		{"byte order marks, at the start and where files were joined", "a.txt", "\ufeffhttp://a/\n\ufeffhttp://b/\n", Options{}, Lines,
			[]string{"1 http://a/", "2 http://b/"}, Counts{}},
		{"blank and comment lines", "a.txt", "\n# one\n  # two\n \t\nhttp://a/\n\n", Options{}, Lines, []string{"5 http://a/"}, Counts{Blank: 3, Comments: 2}},
		{"white space around", "a.txt", " http://a/ \t\n\x0bhttp://b/ b\n", Options{}, Lines, []string{"1 http://a/", "2 http://b/ b"}, Counts{}},
		{"what follows a URL is part of its line", "a.txt", "http://a/ # a remark\nhttp://b/#frag ment\nhttp://c/#!/x # y\n", Options{}, Lines,
			[]string{"1 http://a/ # a remark", "2 http://b/#frag ment", "3 http://c/#!/x # y"}, Counts{}},
		{"playlist", "a.m3u", "#EXTM3U\n#EXTINF:-1,One\nrtsp://10.0.0.1:554/one\n", Options{}, Lines, []string{"3 rtsp://10.0.0.1:554/one"}, Counts{Comments: 2}},
		{"hosts", "a.txt", "example.com\nexample.org\n", Options{}, Lines, []string{"1 example.com", "2 example.org"}, Counts{}},
		{"commas in URLs make no table", "a.txt", "http://a/1,2\nhttp://b/3,4\nhttp://c/5,6\n", Options{}, Lines,
			[]string{"1 http://a/1,2", "2 http://b/3,4", "3 http://c/5,6"}, Counts{}},
		{"IPv6 host at the start makes no JSON", "a.txt", "[::1]/a\n[::2]/b\n", Options{}, Lines, []string{"1 [::1]/a", "2 [::2]/b"}, Counts{}},
		{"long lines are rejects", "a.txt", "http://a/\n" + long + "\nhttp://b/\n" + long, Options{MaxLine: 59}, Lines,
			[]string{"1 http://a/", "2 !too_long_line", "3 http://b/", "4 !too_long_line"}, Counts{}},
		{"the longest line", "a.txt", long + "\r\n" + long + "x\r\n", Options{MaxLine: 60}, Lines, []string{"1 " + long, "2 !too_long_line"}, Counts{}},
		{"no UTF-8", "a.txt", "http://a/\xe9\n", Options{}, Lines, []string{"1 http://a/\xe9"}, Counts{}},
		{"a stray NUL is no binary file", "a.txt", "http://a/\x00\n", Options{}, Lines, []string{"1 http://a/\x00"}, Counts{}},
		{"nothing", "a.csv", "", Options{}, Lines, nil, Counts{}},
		{"nothing but lines", "a.txt", "\n\n", Options{}, Lines, nil, Counts{Blank: 2}},
		{"all comments", "a.txt", "# a\n# b\n", Options{}, Lines, nil, Counts{Comments: 2}},
		{"a list asked for", "a.csv", "url,x\nhttp://a/,1\n", Options{Format: Lines}, Lines, []string{"1 url,x", "2 http://a/,1"}, Counts{}},

		// CSV.
		{"header", "a.csv", "id,url\n1,http://a/\n2,http://b/\n", Options{}, CSV, []string{"2 http://a/", "3 http://b/"}, Counts{}},
		{"header in a file of any name", "a", "id,url\n1,http://a/\n", Options{}, CSV, []string{"2 http://a/"}, Counts{}},
		{"header behind BOM, CRLF", "a.csv", "\ufeffurl,x\r\nhttp://a/,1\r\n", Options{}, CSV, []string{"2 http://a/"}, Counts{}},
		{"title rows before the header", "a.csv", "Number of URLs per domain,\n\nDomain,Number\na.org,3\n", Options{}, CSV, []string{"4 a.org"}, Counts{Blank: 1}},
		{"no header, one column", "a.csv", "http://a/1,2\nhttp://b/\n", Options{}, CSV, []string{"1 http://a/1,2", "2 http://b/"}, Counts{}},
		{"header, one column", "a.csv", "url\r\nexample.org\r\nhttp://a/1,2\r\n\"http://b/\"\r\n#c\r\n", Options{}, CSV,
			[]string{"2 example.org", "3 http://a/1,2", "4 http://b/"}, Counts{Comments: 1}},
		{"one named column in a text file", "a.txt", "domains\nexample.org\n", Options{}, CSV, []string{"2 example.org"}, Counts{}},
		{"no header, URL in the second column", "a.csv", "0,http://a/\n1,http://b/\n", Options{}, CSV, []string{"1 http://a/", "2 http://b/"}, Counts{}},
		{"no header, two URL columns: the one that varies", "a.csv", "http://m/,http://a/\nhttp://m/,http://b/\n", Options{}, CSV, []string{"1 http://a/", "2 http://b/"}, Counts{}},
		{"two URL columns, by number", "a.csv", "http://m/,http://a/\nhttp://m/,http://b/\n", Options{URLColumn: "1"}, CSV, []string{"1 http://m/", "2 http://m/"}, Counts{}},
		{"unknown header above URLs", "a.csv", "n,address\n1,http://a/\n2,http://b/\n", Options{}, CSV, []string{"2 http://a/", "3 http://b/"}, Counts{}},
		{"a name of digits", "a.csv", "x,0\n1,http://a/\n2,http://b/\n", Options{URLColumn: "0"}, CSV, []string{"2 http://a/", "3 http://b/"}, Counts{}},
		{"named without regard to case", "a.csv", "n,Address\n1,http://a/\n", Options{URLColumn: "address"}, CSV, []string{"2 http://a/"}, Counts{}},
		{"best name, not first", "a.csv", "Domain,Base Domain,URL\na.org,a.org,http://a.org/\n", Options{}, CSV, []string{"2 http://a.org/"}, Counts{}},
		{"a name whose values are no URLs is passed over", "a.csv", "link,page_url\nyes,http://a/\nno,http://b/\n", Options{}, CSV, []string{"2 http://a/", "3 http://b/"}, Counts{}},
		{"hosts without a header", "a.csv", "1,google.com\n2,example.org\n", Options{}, CSV, []string{"1 google.com", "2 example.org"}, Counts{}},
		{"semicolons", "a.csv", "id;url\n1;http://a/1,2\n", Options{}, CSV, []string{"2 http://a/1,2"}, Counts{}},
		{"bars", "a.txt", "id|url\n1|http://a/1,2\n", Options{}, CSV, []string{"2 http://a/1,2"}, Counts{}},
		{"quotes, doubled quotes, line breaks", "a.csv", "t,url,n\n\"a \"\"b\"\",\r\nc\",\"http://a/\"\"\",1\nd,http://b/,2\n", Options{Extras: all}, CSV,
			[]string{`2 http://a/" {"n":"1","t":"a \"b\",\r\nc"}`, `4 http://b/ {"n":"2","t":"d"}`}, Counts{}},
		{"quotes inside an unquoted field are kept", "a.csv", "url,t\nhttp://a/,12\" disk\n", Options{Extras: all}, CSV, []string{`2 http://a/ {"t":"12\" disk"}`}, Counts{}},
		{"spaces behind a closing quote", "a.csv", "url,t\n\"http://a/\" ,\"x\"  \r\n\"http://b/\"\t,y\n", Options{Extras: all}, CSV,
			[]string{`2 http://a/ {"t":"x"}`, "3 !bad_csv"}, Counts{}},
		{"a field goes on behind its quote", "a.csv", "url,t\nhttp://a/,\"b\"c\nhttp://d/,e\n", Options{}, CSV, []string{"2 !bad_csv", "3 http://d/"}, Counts{}},
		{"a stray quote costs one record", "a.csv", "url,t\nhttp://a/,\"b\nhttp://c/,d\nhttp://e/,\"f\"\nhttp://g/,h\n", Options{}, CSV,
			[]string{"2 !bad_csv", "3 http://c/", "4 http://e/", "5 http://g/"}, Counts{}},
		{"a quote that never closes costs one record", "a.csv", "url,t\nhttp://a/,\"b\nhttp://c/,d\nhttp://e/,f", Options{}, CSV,
			[]string{"2 !bad_csv", "3 http://c/", "4 http://e/"}, Counts{}},
		{"the stray quote opened on the record's second line", "a.csv", "t,url,v\n\"a\nb\",http://a/,\"c\nd,http://e/,f\n", Options{}, CSV,
			[]string{"2 !bad_csv", "4 http://e/"}, Counts{}},
		{"a quoted field longer than a record may be", "a.csv", "url,t\nhttp://a/,\"" + long + "\n" + long + "\"\nhttp://b/,c\n", Options{MaxLine: 100}, CSV,
			[]string{"2 !too_long_line", "3 " + long + "\"", "4 http://b/"}, Counts{}},
		{"an empty URL", "a.csv", "url,t\n,a\nhttp://b/,c\n\" \",d\n", Options{}, CSV, []string{"2 !no_url", "3 http://b/", "4 !no_url"}, Counts{}},
		{"a row too short", "a.csv", "t,url\na\nb,http://b/\n", Options{}, CSV, []string{"2 !no_url", "3 http://b/"}, Counts{}},
		{"rows of empty cells are blank", "a.csv", "t,url\n,\n\"\",\" \"\nb,http://b/\n,\n", Options{}, CSV, []string{"4 http://b/"}, Counts{Blank: 3}},
		{"an empty last column", "a.csv", "URL,\r\nhttp://a/,\r\nhttp://b/,\r\n", Options{Extras: all}, CSV, []string{"2 http://a/", "3 http://b/"}, Counts{}},
		{"nameless and doubled columns are called by number", "a.csv", "url,,x,x,3\nhttp://a/,b,c,d,e\n", Options{Extras: all}, CSV,
			[]string{`2 http://a/ {"2":"b","3":"e","4":"d","x":"c"}`}, Counts{}},
		{"named extras, time and size", "a.csv", "url,when,bytes,t,u\nhttp://a/,2024-05-06,12,x,y\nhttp://b/,,,,\nhttp://c/,soon,1,,\nhttp://d/,1,-1,,\n",
			Options{TSColumn: "when", SizeField: "bytes", Extras: []string{"u", "4"}}, CSV,
			[]string{`2 http://a/ ts=1714953600000 size=12 {"t":"x","u":"y"}`, "3 http://b/", "4 !bad_ts", "5 !bad_size"}, Counts{}},
		{"a time nobody named, seen to be one", "a.csv", "url,ts\nhttp://a/,20240506000000\nhttp://b/,\n", Options{}, CSV,
			[]string{"2 http://a/ ts=1714953600000", "3 http://b/"}, Counts{}},
		{"a column called ts that holds something else", "a.csv", "url,ts\nhttp://a/,soon\n", Options{}, CSV, []string{"2 http://a/"}, Counts{}},
		{"seconds into a film are no time", "a.csv", "url,timestamp\nhttp://a/,35.2\n", Options{}, CSV, []string{"2 http://a/"}, Counts{}},
		{"a head of blank lines", "a", strings.Repeat("\n", HeadSize) + "http://a/\n", Options{}, Lines, []string{fmt.Sprintf("%d http://a/", HeadSize+1)}, Counts{Blank: HeadSize}},
		{"a head of blank lines in CSV", "a", strings.Repeat("\n", HeadSize) + "http://a/\n", Options{Format: CSV}, CSV, []string{fmt.Sprintf("%d http://a/", HeadSize+1)}, Counts{Blank: HeadSize}},
		{"nothing, of a named column", "a.csv", "\n", Options{URLColumn: "url", Format: CSV}, CSV, nil, Counts{Blank: 1}},
		{"the caller's time format", "a.csv", "url,at\nhttp://a/,8/4/2016 11:52\n", Options{TSColumn: "at", TSFormat: "%m/%d/%Y %H:%M"}, CSV,
			[]string{"2 http://a/ ts=1470311520000"}, Counts{}},
		{"CSV asked for, in JSON's clothes", "a", "[url],x\nhttp://a/,1\n", Options{Format: CSV}, CSV, []string{"2 http://a/"}, Counts{}},

		// TSV.
		{"TSV", "a.tsv", "service_url\tname\r\nhttp://a/\tA, \"B\"\r\n", Options{Extras: all}, TSV, []string{`2 http://a/ {"name":"A, \"B\""}`}, Counts{}},
		{"TSV by its tabs", "a.txt", "http://a/\t5\nhttp://b/\t6\n", Options{}, TSV, []string{"1 http://a/", "2 http://b/"}, Counts{}},
		{"quotes in TSV are taken literally unless they enclose the field", "a.tsv",
			"url\tt\nhttp://a/\t\"x\"\"y\tz\"\nhttp://b/\t\"b\" c\nhttp://c/\t\"d\nhttp://e/\tf\"\n", Options{Extras: all}, TSV,
			[]string{`2 http://a/ {"t":"x\"y\tz"}`, `3 http://b/ {"t":"\"b\" c"}`, `4 http://c/ {"t":"\"d"}`, `5 http://e/ {"t":"f\""}`}, Counts{}},

		// JSON Lines.
		{"JSON Lines", "a.jsonl", "{\"url\":\"http://a/\"}\n\n {\"url\" : \"http:\\/\\/b\\/\\u00e9\\ud83d\\ude00\"} \r\n", Options{}, JSONLines,
			[]string{"1 http://a/", "3 http://b/é😀"}, Counts{Blank: 1}},
		{"short names, nested documents", "a.json", "{\"a\":{\"u\":\"http://x/\"},\"u\":\"http://a/\"}\n", Options{}, JSONLines, []string{"1 http://a/"}, Counts{}},
		{"nested URL found", "a", "{\"a\":{\"url\":\"http://a/\"},\"n\":1}\n{\"a\":{\"url\":\"http://b/\"},\"n\":1}\n", Options{Extras: all}, JSONLines,
			[]string{`1 http://a/ {"a":{},"n":1}`, `2 http://b/ {"a":{},"n":1}`}, Counts{}},
		{"by path", "a", "{\"a\":[{\"b.c\":\"http://a/\"}],\"url\":\"http://b/\"}\n", Options{URLColumn: `a.0.b\.c`}, JSONLines, []string{"1 http://a/"}, Counts{}},
		{"unknown member with URLs", "a", "{\"n\":1,\"address\":\"http://a/\"}\n{\"n\":1,\"address\":\"http://b/\"}\n", Options{}, JSONLines,
			[]string{"1 http://a/", "2 http://b/"}, Counts{}},
		{"strings", "a.jsonl", "\"http://a/\\u0026\"\n\"http://b/\"\n\"\"\n", Options{}, JSONLines, []string{"1 http://a/&", "2 http://b/", "3 !no_url"}, Counts{}},
		{"rejects", "a.jsonl", "{\"url\":\"http://a/\"}\n{\"url\":\nhttp://b/\n{\"url\":null}\n{\"url\":5}\n{}\n[1]\n7\n{\"url\":\"  \"}\n{\"url\":\"http://c/\"} x\n", Options{}, JSONLines,
			[]string{"1 http://a/", "2 !bad_json", "3 !bad_json", "4 !no_url", "5 !no_url", "6 !no_url", "7 !no_url", "8 !no_url", "9 !no_url", "10 !bad_json"}, Counts{}},
		{"time, size, all extras in canonical form", "a.jsonl",
			"{\"z\":1.50,\"url\":\"http://a/\",\"t\":1714953600.5,\"n\":\"12\",\"\\u0061\":[{\"c\":1e3,\"b\":null}],\"big\":12345678901234567890}\n{\"url\":\"http://b/\",\"t\":{},\"n\":1}\n{\"url\":\"http://c/\",\"n\":1.5}\n{\"url\":\"http://d/\",\"t\":null,\"n\":4.0}\n",
			Options{TSColumn: "t", SizeField: "n", Extras: all}, JSONLines,
			[]string{`1 http://a/ ts=1714953600500 size=12 {"a":[{"b":null,"c":1000}],"big":"12345678901234567890","z":1.5}`,
				"2 !bad_ts", "3 !bad_size", "4 http://d/ size=4"}, Counts{}},
		{"named extras keep their path as name", "a.jsonl", "{\"url\":\"http://a/\",\"m\":{\"t\":\"x\",\"u\":1},\"k\":2}\n", Options{Extras: []string{"m.t", "k", "none"}}, JSONLines,
			[]string{`1 http://a/ {"k":2,"m.t":"x"}`}, Counts{}},
		{"a member twice: the last", "a.jsonl", "{\"url\":\"http://a/\",\"x\":1,\"url\":\"http://b/\",\"x\":2}\n", Options{Extras: all}, JSONLines, []string{`1 http://b/ {"x":2}`}, Counts{}},
		{"a time nobody named that fails later is left out and counted", "a.jsonl",
			"{\"url\":\"http://a/\",\"timestamp\":\"2024-05-06T00:00:00Z\"}\n" + strings.Repeat(" ", HeadSize) + "\n{\"url\":\"http://b/\",\"timestamp\":\"?\"}\n", Options{}, JSONLines,
			[]string{"1 http://a/ ts=1714953600000", "3 http://b/"}, Counts{Blank: 1, BadTS: 1}},
		{"record separators", "a.jsonl", "\x1e{\"url\":\"http://a/\"}\n\x1e{\"url\":\"http://b/\"}\n", Options{}, JSONLines, []string{"1 http://a/", "2 http://b/"}, Counts{}},

		// JSON.
		{"array over lines", "a.json", "[\n  {\n    \"url\": \"http://a/\"\n  },\n  {\"url\": \"http://b/\"}, 7, {\"url\": }, {\"url\":\"]}\"},{\"url\": \"http://c/\"}\n]\n", Options{}, JSON,
			[]string{"2 http://a/", "5 http://b/", "5 !no_url", "5 !bad_json", "5 ]}", "5 http://c/"}, Counts{}},
		{"array of strings, one of arrays", "a.json", "[\"http://a/\",\"http://b/\"]\n[\"http://c/\",[\"http://d/\"]]", Options{}, JSON,
			[]string{"1 http://a/", "1 http://b/", "2 http://c/", "2 !no_url"}, Counts{}},
		{"objects over lines", "a.json", "{\n\"url\": \"http://a/\"\n}\n{\n\"url\": \"http://b/\"\n}\n", Options{}, JSON, []string{"1 http://a/", "4 http://b/"}, Counts{}},
		{"empty array", "a.json", "[]", Options{}, JSON, nil, Counts{}},
		{"an element too long", "a.json", "[{\"url\":\"http://a/\"},\n{\"url\":\"" + long + "\\\"\"},\n{\"url\":\"http://b/\"}]", Options{MaxLine: 40}, JSON,
			[]string{"1 http://a/", "2 !too_long_line", "3 http://b/"}, Counts{}},

		{"one object of records", "a.json", "{\n\"x\": {\"href\": \"http://a/\", \"ts\": \"2024-05-06\"},\n\"y\\u0021\" :\n{\"href\": \"http://b/\"}, \"z\": {\"alias\": \"x\"}\n}\n", Options{Extras: all}, JSON,
			[]string{`2 http://a/ ts=1714953600000 {"key":"x"}`, `4 http://b/ {"key":"y!"}`, "4 !no_url"}, Counts{}},
		{"one object of arrays, on one line", "a.json", `{"AK":{"tv":[{"website":"http://a/"},{"website":"http://b/","key":7}],"radio":[]},"AL":{"tv":[{"website":"http://c/"}]}}`, Options{Extras: []string{"key"}}, JSON,
			[]string{`1 http://a/ {"key":"AK.tv"}`, `1 http://b/ {"key":7}`, `1 http://c/ {"key":"AL.tv"}`}, Counts{}},
		{"scalars beside an array of records", "a.json", `{"version": 1, "urls": [{"url":"http://a/"}, {"url":"http://b/"}], "end": "http://d/"}`, Options{URLColumn: "url"}, JSON,
			[]string{"1 !no_url", "1 http://a/", "1 http://b/", "1 !no_url"}, Counts{}},
		{"the same, the array longer than a record may be", "a.json", "{\"version\": 1, \"urls\": [" + strings.Repeat("{\"url\":\"http://a/\"},\n", 9) + "{\"url\":\"" + long + "\"},\n{\"url\":\"http://b/\"}]}", Options{MaxLine: 40, Format: JSON}, JSON,
			append(append([]string{"1 !no_url"}, repeatRows(9, 1, "http://a/")...), "10 !too_long_line", "11 http://b/"), Counts{}},
		{"by a name that is none for URLs", "a.json", `{"a":{"address":"http://a/"},"b":{"address":"http://b/"}}`, Options{URLColumn: "address"}, JSON, []string{"1 http://a/", "1 http://b/"}, Counts{}},

		// Archive indexes.
		{"CDX with legend", "a.cdx", " CDX N b a m s k r M S V g\norg,a)/ 20140126200624 http://a.org/ text/html 200 AAAA - - 2258 334 a.warc.gz\norg,a)/x 201401 http://a.org/x\norg,a)/y 20140126200624\n",
			Options{Extras: []string{"mimetype", "redirect"}, SizeField: "length"}, CDX,
			[]string{`2 http://a.org/ ts=1390766784000 size=2258 {"mimetype":"text/html"}`, "3 http://a.org/x ts=1388534400000", "4 !bad_cdx"}, Counts{Comments: 1}},
		{"CDX of 9 fields without", "a.txt", "org,a)/ 20140126200624 http://a.org/ text/html 200 AAAA - 334 a.warc.gz\norg,a)/ when http://a.org/ text/html 200 AAAA - 334 a.warc.gz\n" +
			strings.Repeat("org,a)/ 20140126200624 http://a.org/ text/html 200 AAAA - 334 a.warc.gz\n", 8), Options{}, CDX,
			append([]string{"1 http://a.org/ ts=1390766784000", "2 http://a.org/"}, repeatRows(8, 3, "http://a.org/ ts=1390766784000")...), Counts{BadTS: 1}},
		{"CDXJ", "a", "!OpenWayback-CDXJ 1.0\norg,a)/ 20140126200624 {\"url\": \"http://a.org/\", \"length\": \"7\"}\norg,b)/ x {\"url\": \"http://b.org/\"}\norg,c)/\norg,d)/ 20140126200624 {\"url\"}\n",
			Options{Format: CDXJ, SizeField: "length", Extras: all}, CDXJ,
			[]string{`2 http://a.org/ ts=1390766784000 size=7 {"urlkey":"org,a)/"}`, `3 http://b.org/ {"urlkey":"org,b)/"}`, "4 !bad_cdx", "5 !bad_json"}, Counts{Comments: 1, BadTS: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g, plan := read(t, tc.object, tc.text, tc.opt)
			if plan.Format != tc.format {
				t.Errorf("format %s, want %s", plan.Format, tc.format)
			}
			if diff := cmp.Diff(tc.want, g.Rows); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			// A place is right if as many line ends precede the byte as the line says, and the
			// byte begins a line or an array's element.
			end := "\n"
			if plan.CRLines {
				end = "\r"
			}
			for i, o := range g.Offsets {
				if n := int64(1 + strings.Count(tc.text[:o], end)); n != g.Lines[i] {
					t.Errorf("record %d at byte %d is said to be on line %d, and is on %d", i, o, g.Lines[i], n)
				}
				before := tc.text[:o]
				if o > 0 && plan.Format != JSON && !strings.HasSuffix(before, end) && !strings.HasSuffix(before, "\ufeff") {
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

			// The same by the plan alone, as another process gets it.
			b, err := json.Marshal(plan)
			if err != nil {
				t.Fatal(err)
			}
			var again Plan
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

// randomText draws n pieces of an alphabet.
func randomText(r *rand.Rand, alphabet []string, n int) []byte {
	var b []byte
	for range n {
		b = append(b, alphabet[r.IntN(len(alphabet))]...)
	}
	return b
}

func TestCSVAgreesWithEncodingCSV(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	alphabet := []string{"a", "b", ",", ",", "\t", "\"", "\"", "\"\"", "\n", "\r\n", "\r", " "}
	for range 50_000 {
		checkCSV(t, randomText(r, alphabet, r.IntN(20)), ',')
	}
}

func TestRecordsDoNotDependOnReads(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for format, alphabet := range map[string][]string{
		Lines:     {"http://a/", "#", " ", "\n", "\r\n", "\r", "\ufeff", "\xff"},
		CSV:       {"url", "http://a/", ",", ",", "\"", "\"", "\"\"", "\n", "\n", "\r\n", "2024-05-06", " ", ";"},
		TSV:       {"url", "http://a/", "\t", "\t", "\"", "\"\"", "\n", "\n", "\r\n", "ts", "1714953600"},
		JSONLines: {"{\"url\":\"http://a/\"}", "{", "}", "\"url\":", "\"x\\u00e9\"", ",", "[", "]", "1", "\n", "\n", "null"},
		JSON:      {"{\"url\":\"http://a/\"}", "{\"url\":\"http://a/\"},", "{", "}", "\"url\":", "\"x\\\\\"", ",", "[", "]", "1", "\n", " ", "null"},
		CDX:       {"a 20240506070809 http://a/", " CDX N b a", " ", "-", "\n", "\n", "2024", "!"},
		CDXJ:      {"a 20240506070809 {\"url\":\"http://a/\"}", " ", "{", "}", "\n", "\n", "2024", "!"},
	} {
		for i := range 600 {
			text := randomText(r, alphabet, r.IntN(40))
			opt := Options{Format: format, MaxLine: 1 + r.IntN(60), Extras: []string{"*"}}
			if format == JSON || format == JSONLines {
				opt.URLColumn = "url"
			}
			if i%3 == 0 {
				opt.Format = Auto
			}
			checkReader(t, "a", text, opt)
		}
	}
}

func TestRefusedObjectsSayWhatToDo(t *testing.T) {
	lists := tarOf(t, "b/c.md", "[a](http://a/)", "README", "http://a/")
	twice := tarOf(t, "a.tar", string(tarOf(t, "a.txt", "http://a/\n")))
	inside := compressed(t, "gzip", []byte("http://a/\n"))
	for _, tc := range []struct {
		name, object string
		data         []byte
		opt          Options
		want         string // a word of the reason
	}{
		{"tar of documents", "a.tar", lists, Options{}, "none of the 2 members"},
		{"tar in gzip, of documents", "a.tar.gz", compressed(t, "gzip", lists), Options{}, "none of the 2 members"},
		{"Parquet asked for", "a.txt", []byte("http://a/\n"), Options{Format: Parquet}, "no Parquet"},
		{"MISP", "a.json", []byte(`{"Event":{"info":"x","Attribute":[{"type":"url","value":"http://a/"},{"type":"url","value":"http://b/"}]}}`), Options{}, "MISP"},
		{"zip", "a.txt", []byte("PK\x03\x04abc"), Options{}, "zip"},
		{"gzip in gzip", "a.gz", compressed(t, "gzip", inside), Options{}, "twice"},
		{"UTF-16", "a.csv", []byte("\xff\xfeh\x00t\x00"), Options{}, "UTF-16"},
		{"XML", "sitemap.xml", []byte("\n<?xml version=\"1.0\"?><urlset/>"), Options{}, "XML"},
		{"binary", "a.txt", bytes.Repeat([]byte{1, 2, 'a', 0xff}, 50), Options{}, "binary"},
		{"Parquet, whatever was asked for", "a.txt", []byte("PAR1\x15\x04"), Options{Format: Lines}, "Parquet"},
		{"access log", "a.log", []byte(`1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 7 "http://b/" "x"` + "\n"), Options{}, "access log"},
		{"ZipNum index", "a.idx", []byte("com,example)/ 20140127171200\tzipnum\t0\t275\t1\n"), Options{}, "ZipNum"},
		{"one document", "a.json", []byte("{\n\"a\": {\"href\": \"http://a/\"},\n\"b\": 5\n}\n"), Options{}, "one JSON document"},
		{"no URLs in JSON", "a.jsonl", []byte("{\"a\": 1}\n{\"a\": 2}\n"), Options{}, "no member"},
		{"no URLs in a table", "a.csv", []byte("a,b\n1,2\n3,4\n"), Options{}, `"a", "b"`},
		{"no such column", "a.csv", []byte("a,url\n1,http://a/\n"), Options{URLColumn: "link"}, `no column "link"`},
		{"number from 0", "a.csv", []byte("a,url\n0,http://a/\n1,http://b/\n"), Options{URLColumn: "0"}, `no column "0"`},
		{"no such number", "a.csv", []byte("a,url\n1,http://a/\n"), Options{URLColumn: "3"}, `no column "3"`},
		{"no such column in CDX", "a.cdx", []byte(" CDX N b a\na 20140127171200 http://a/\n"), Options{TSColumn: "x"}, `no column "x"`},
		{"a list has no columns", "a.txt", []byte("http://a/\n"), Options{TSColumn: "ts"}, "list"},
		{"tar in tar", "a.tar", twice, Options{}, "inside an archive"},
		{"a member that cannot be read", "a.tar", tarOf(t, "a.xml", "<a/>"), Options{}, "XML"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := NewReader(bytes.NewReader(tc.data), tc.object, tc.opt)
			var fe *FormatError
			if !errors.As(err, &fe) || !errors.Is(err, ErrInput) {
				t.Fatalf("got %v, want a *FormatError", err)
			}
			if !strings.Contains(fe.Reason, tc.want) || !strings.HasPrefix(fe.Name, tc.object) {
				t.Errorf("got %v, want it to say %q", err, tc.want)
			}
			if fe.Advice == "" && tc.name != "binary" {
				t.Errorf("%v: no advice", err)
			}
		})
	}
}

func TestWrongOptionsAreNotTheObjectsFault(t *testing.T) {
	for _, opt := range []Options{{Format: "tar"}, {Format: "xml"}, {MaxLine: -1}, {MaxLine: maxMaxLine + 1}, {TSFormat: "%Q"}, {TSFormat: "today"}, {TSFormat: "%"}} {
		_, err := NewReader(strings.NewReader("http://a/\n"), "a", opt)
		if opt.Check() == nil {
			t.Errorf("%+v: valid", opt)
		}
		if err == nil || errors.Is(err, ErrInput) {
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
		{"n,onion_url,proof_url\n1,http://a/,http://p/\n2,http://a/,http://p/\n", `"proof_url"`},
		{`{"from_url":"http://a/","to_url":"http://b/"}` + "\n", `"to_url"`},
		{`{"a":{"url":"http://a/"}}` + "\n" + `{"a":{"url":"http://a/"}}` + "\n", `"a.url"`},
		{"1,http://a/\n2,http://b/\n", `"2"`},
	} {
		_, plan := read(t, "a.csv", tc.text, Options{})
		if len(plan.Notes) != 1 || !strings.Contains(plan.Notes[0], tc.note) {
			t.Errorf("%q: notes %q, want one with %s", tc.text, plan.Notes, tc.note)
		}
	}
	if _, plan := read(t, "a.csv", "id,url\n1,http://a/\n", Options{}); plan.Notes != nil {
		t.Errorf("notes %q on a table with one URL column", plan.Notes)
	}
}

func TestNameClasses(t *testing.T) {
	best := []string{"URL", "uri", "Link", "Post URL", "source_link", "website", "Domain name", "hosting cost"}
	for i := 1; i < len(best); i++ {
		a, b := nameClass(best[i-1]), nameClass(best[i])
		if a == 0 || b != 0 && a >= b {
			t.Errorf("%q has class %d and %q %d, want the first better", best[i-1], a, best[i], b)
		}
	}
	for _, name := range []string{"", "title", "curl", "count", "original language", strings.Repeat("url ", 30)} {
		if c := nameClass(name); c != 0 {
			t.Errorf("%q has class %d, want none", name, c)
		}
	}
	for _, name := range []string{"sourceUrl", "target_urls", "og:url", "Page URLs", "URLPath-url"} {
		if c := nameClass(name); c != classURLWord {
			t.Errorf("%q has class %d, want %d", name, c, classURLWord)
		}
	}
}

// A member that nobody has is more often a wrong name than a late one.
func TestMembersThatNoRecordHasAreNoted(t *testing.T) {
	head := []byte(`{"url":"http://a.com/","t":1}` + "\n" + `{"url":"http://b.com/","n":{"x":2}}` + "\n")
	p, err := Detect("x.jsonl", head, Options{TSColumn: "time", SizeField: "t", Extras: []string{"n.x", "zip"}})
	if err != nil {
		t.Fatal(err)
	}
	notes := strings.Join(p.Notes, "\n")
	for name, noted := range map[string]bool{"time": true, "zip": true, `"t"`: false, "n.x": false} {
		if strings.Contains(notes, name) != noted {
			t.Errorf("notes on %s: want %v, have %q", name, noted, notes)
		}
	}
}
