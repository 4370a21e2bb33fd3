package reader

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/raw"
)

// TestDialectsOfSharedFiles reads files that other programs wrote in dialects of JSON and CSV.
func TestDialectsOfSharedFiles(t *testing.T) {
	for _, tc := range []struct {
		name        string
		records     int64
		first, last string
	}{
		{"json-nan/nan.jsonl", 29, "1 https://site1.example.org/p", "29 https://site29.example.org/p"},
		{"json-nan/nanmix.jsonl", 1000, "1 https://site1.example.org/p", "1000 https://site1000.example.org/p"},
		{"json-values-in-a-row/glued.jsonl", 1000, "1 https://site1.example.org/p", "901 https://site1000.example.org/p"},
		{"rows-as-arrays/titles.jsonl", 39, "1 https://site1.example.org/p1", "39 https://site39.example.org/p39"},
		{"cdx-server-json/arrays.jsonl", 29,
			`2 https://site1.example.org/p ts=1577934241000 {"digest":"AAAA","length":"12","mime":"text/html","status":"200"}`,
			`30 https://site29.example.org/p ts=1577934249000 {"digest":"AAAA","length":"12","mime":"text/html","status":"200"}`},
		{"cdx-server-json/wayback-cdx.json", 29,
			`2 https://site1.example.org/p ts=1577934241000 {"digest":"AAAA","length":"12","mime":"text/html","status":"200"}`,
			`30 https://site29.example.org/p ts=1577934249000 {"digest":"AAAA","length":"12","mime":"text/html","status":"200"}`},
		{"csv-backslash/backslash.csv", 49, "2 https://site1.example.org/p", "50 https://site49.example.org/p"},
		{"csv-backslash/spark30.csv", 300, "2 https://site1.example.org/p", "301 https://site300.example.org/p"},
		{"records-on-several-levels/bm2.json", 529, "1 https://site1.example.org/p", "1 https://nested4-99.example.net/"},
	} {
		data, err := os.ReadFile(testenv.Shared(t, "cases", tc.name))
		if err != nil {
			t.Fatal(err)
		}
		g, _ := read(t, tc.name, string(data), raw.Options{})
		if g.Counts.Records != tc.records || g.Counts.Rejects != 0 {
			t.Errorf("%s: %d records and %d rejects, want %d and none", tc.name, g.Counts.Records, g.Counts.Rejects, tc.records)
		}
		if first, last := g.Rows[0], g.Rows[len(g.Rows)-1]; first != tc.first || last != tc.last {
			t.Errorf("%s: from %s to %s,\nwant from %s to %s", tc.name, first, last, tc.first, tc.last)
		}
	}
}

func TestJSONDialects(t *testing.T) {
	const long = `"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"`
	all := raw.Options{Extras: []string{"*"}}
	for _, tc := range []struct {
		name, text string
		opt        raw.Options
		format     string
		want       []string
	}{
		// Values in a row.
		{"nothing between objects", `{"url":"http://a/"}{"url":"http://b/"}` + "\n" + `{"url":"http://c/"}`, raw.Options{}, raw.JSON,
			[]string{"1 http://a/", "1 http://b/", "2 http://c/"}},
		{"no line break at all", `{"url":"http://a/"}{"url":"http://b/"}{"url":"http://c/"}`, raw.Options{}, raw.JSON,
			[]string{"1 http://a/", "1 http://b/", "1 http://c/"}},
		{"objects over lines", "{\n \"url\": \"http://a/\"\n}{\n \"url\": \"http://b/\"\n}\n", raw.Options{}, raw.JSON, []string{"1 http://a/", "3 http://b/"}},
		{"objects over lines behind one on a line", "{\"url\":\"http://a/\"}\n{\n \"url\": \"http://b/\"\n}\n", raw.Options{}, raw.JSON, []string{"1 http://a/", "2 http://b/"}},
		{"commas behind lines", "{\"url\":\"http://a/\"},\n{\"url\":\"http://b/\"},\n", raw.Options{}, raw.JSONLines, []string{"1 http://a/", "2 http://b/"}},
		{"arrays in a row", `[{"url":"http://a/"},{"url":"http://b/"}][{"url":"http://c/"}]`, raw.Options{}, raw.JSON, []string{"1 http://a/", "1 http://b/", "1 http://c/"}},
		{"an array as a line", "{\"url\":\"http://a/\"}\n[{\"url\":\"http://b/\"},{\"url\":\"http://c/\"}]\n[]\n", raw.Options{}, raw.JSONLines, []string{"1 http://a/", "2 http://b/", "2 http://c/"}},
		{"a joined file's byte order mark", "{\"url\":\"http://a/\"}\n\ufeff{\"url\":\"http://b/\"}\n", raw.Options{}, raw.JSONLines, []string{"1 http://a/", "2 http://b/"}},

		// Damage costs one record.
		{"a line cut in the middle, and its line break", `{"url":"http://a/"}` + "\n" + `{"url":"http://b/","x":"y{"url":"http://c/"}` + "\n" + `{"url":"http://d/"}`, raw.Options{}, raw.JSONLines,
			[]string{"1 http://a/", "2 !bad_json", "2 http://c/", "3 http://d/"}},
		{"an element broken inside", `[{"url":"http://a/"},{"url":"http://b/","x":},{"url":"http://c/"}]`, raw.Options{}, raw.JSON, []string{"1 http://a/", "1 !bad_json", "1 http://c/"}},
		{"a quote too few", `[{"url":"http://a/"},{"url":"http://b/,"x":1},{"url":"http://c/"}]`, raw.Options{}, raw.JSON, []string{"1 http://a/", "1 !bad_json", "1 http://c/"}},
		{"a quote too many", `["http://a/","http:"//b/","http://c/"]`, raw.Options{}, raw.JSON, []string{"1 http://a/", "1 !bad_json", "1 http://c/"}},
		{"a brace too few", `[{"url":"http://a/"},{"url":"http://b/","x":{"y":1},{"url":"http://c/"}]`, raw.Options{}, raw.JSON, []string{"1 http://a/", "1 !bad_json", "1 http://c/"}},
		{"a brace too many", `[{"url":"http://a/"},{"url":"http://b/"}},{"url":"http://c/"}]`, raw.Options{}, raw.JSON, []string{"1 http://a/", "1 http://b/", "1 !bad_json", "1 http://c/"}},
		{"no comma", `[{"url":"http://a/"} {"url":"http://b/"}` + "\n" + `{"url":"http://c/"}]`, raw.Options{}, raw.JSON, []string{"1 http://a/", "1 http://b/", "2 http://c/"}},
		{"a line break in a string", "[\n{\"url\":\"http://a/\"},\n{\"url\":\"http://b/\",\"x\":\"y\nz\"},\n{\"url\":\"http://c/\"}\n]", raw.Options{}, raw.JSON, []string{"2 http://a/", "3 !bad_json", "5 http://c/"}},
		{"other members first", "[{\"url\":\"http://a/\"},{\"url\":\"http://b/,\"x\":1},{\"x\":1,\"url\":\"http://c/\"}]", raw.Options{}, raw.JSON, []string{"1 http://a/", "1 !bad_json", "1 http://c/"}},
		{"records inside the broken one are none", `[{"url":"http://a/"},{"url":"http://b/","x": y,"in":[{"url":"http://x/"}]},{"url":"http://c/"}]`, raw.Options{}, raw.JSON, []string{"1 http://a/", "1 !bad_json", "1 http://c/"}},
		{"too long and broken", "[{\"url\":\"http://a/\"},\n{\"url\":\"http://b/\",\"x\":" + long + ",\"y\":[},\n{\"url\":\"http://c/\"}]", raw.Options{MaxLine: 60}, raw.JSON, []string{"1 http://a/", "2 !too_long_line", "3 http://c/"}},

		// Types of MongoDB are no members.
		{"types of MongoDB", `{"url":"http://a/","date":{"$date":{"$numberLong":"1457067967000"}}}` + "\n" + `{"url":"http://b/","date":{"$date":{"$numberLong":"1457067968000"}}}`, raw.Options{}, raw.JSONLines,
			[]string{"1 http://a/ ts=1457067967000", "2 http://b/ ts=1457067968000"}},
		{"dates of MongoDB", `[{"_id":{"$oid":"1"},"url":"http://a/","date":{"$date":"2016-03-04T05:06:07Z"}},{"url":"http://b/","date":{"$date":"2016-03-04T05:06:08Z"}}]`, raw.Options{}, raw.JSON,
			[]string{"1 http://a/ ts=1457067967000", "1 http://b/ ts=1457067968000"}},

		// Text around a URL.
		{"HTML", `{"url":"<a href=\"http://a.com/\">a title</a>"}` + "\n" + `{"url":"http://a.com/?q=\"two words\""}`, raw.Options{}, raw.JSONLines,
			[]string{"1 !several_urls", "1 !text_after_url", "2 http://a.com/?q=\"two words\""}},

		// Numbers that JSON lacks.
		{"NaN", `{"url":"http://a/","x":NaN,"y":[-Infinity,Infinity]}` + "\n" + `{"url":"http://b/","x":nan}`, all, raw.JSONLines, []string{`1 http://a/ {"x":null,"y":[null,null]}`, "2 !bad_json"}},

		// Rows.
		{"rows with a header", `["id","link","n"]` + "\n" + `[1,"http://a/",null]` + "\n" + `[2,"http://b/",""]`, all, raw.JSONLines, []string{`2 http://a/ {"id":1,"n":null}`, `3 http://b/ {"id":2}`}},
		{"rows without a header", `[1,"http://a/","x"]` + "\n" + `[2,"http://b/"]` + "\n" + `[3]`, all, raw.JSONLines, []string{`1 http://a/ {"1":1,"3":"x"}`, `2 http://b/ {"1":2}`, "3 !no_url"}},
		{"rows by number", `["http://m/","http://a/",1]` + "\n" + `["http://m/","http://b/",2]`, raw.Options{URLColumn: "2"}, raw.JSONLines, []string{"1 http://a/", "2 http://b/"}},
		{"rows in a row", `["http://a/",1]["http://b/",2]`, raw.Options{}, raw.JSON, []string{"1 http://a/", "1 http://b/"}},
		{"a broken row", "[[\"u\",\"n\"],\n[\"http://a/\",\"1\"],[\"http://b/,\"2\"],[\"http://c/\",\"3\"]]", raw.Options{}, raw.JSON, []string{"2 http://a/", "2 !bad_json", "2 http://c/"}},
		{"lists as lines", `["http://a/","http://b/"]` + "\n" + `["http://c/"]`, raw.Options{}, raw.JSON, []string{"1 http://a/", "1 http://b/", "2 http://c/"}},
		{"lists in a list", `[["http://a/","http://b/"],["http://c/"]]`, raw.Options{}, raw.JSON, []string{"1 http://a/", "1 http://b/", "1 http://c/"}},
		{"a CDX server's answers, and a key to resume", `[["timestamp","original","statuscode"],["20200102030401","http://a/","200"],["20200102030402","http://b/","-"],[],["org%2Cb"]]` + "\n" +
			`[["timestamp","original","statuscode"],["20200102030403","http://c/","404"]]`, raw.Options{}, raw.JSON,
			[]string{`1 http://a/ ts=1577934241000 {"status":"200"}`, "1 http://b/ ts=1577934242000", `2 http://c/ ts=1577934243000 {"status":"404"}`}},
		{"a CDX server's keys", `[["urlkey","timestamp"],["org,a)/x","20200102030401"]]`, raw.Options{}, raw.JSON, []string{"1 http://a.org/x ts=1577934241000"}},
		{"a CDX server's fields by name", `[["original","mimetype","length"],["http://a/","text/html","7"]]`, raw.Options{Extras: []string{"mimetype"}, SizeField: "length"}, raw.JSON, []string{`1 http://a/ size=7 {"mimetype":"text/html"}`}},

		// Records at several depths.
		{"groups in groups", `{"roots":{"bar":{"name":"bar","children":[{"name":"a","url":"http://a/"},{"name":"sub","children":[{"name":"b","url":"http://b/"},{"name":"c","url":"http://c/"}]}]}}}`, all, raw.JSON,
			[]string{`1 http://a/ {"name":"a"}`, `1 http://b/ {"name":"b"}`, `1 http://c/ {"name":"c"}`}},
		{"records in records", `{"url":"http://a/","in":[{"url":"http://b/","in":[]},` + "\n" + `{"url":null,"in":[{"url":"http://c/","in":[]}]}]}`, all, raw.JSON,
			[]string{"1 http://a/", `1 http://b/ {"in":[]}`, "2 !no_url", `2 http://c/ {"in":[]}`}},
		{"deeper than is looked for", `{"a":{"b":{"c":{"d":{"e":[{"url":"http://a/","n":1},{"url":"http://b/","n":2}]}}}}}`, raw.Options{}, raw.JSON, []string{"1 http://a/", "1 http://b/"}},
		{"groups longer than a record", `{"in":[{"url":"http://a/","n":1},{"in":[{"url":"http://b/","n":2},{"url":"http://c/","n":` + long + `}]}]}`, raw.Options{MaxLine: 60}, raw.JSON,
			[]string{"1 http://a/", "1 http://b/", "1 !too_long_line"}},
		{"leaves of several kinds", `{"roots":{"bar":{"children":[{"name":"a","id":1,"guid":"g","url":"http://a/"},{"name":"b","id":2,"guid":"g","url":"http://b/"},` + "\n" +
			`{"name":"f","children":[{"name":"c","url":"http://c/"},{"name":"g","children":[{"name":"d","url":"http://d/"}]}]},{"name":"e"}]}}}`, raw.Options{}, raw.JSON,
			[]string{"1 http://a/", "1 http://b/", "2 http://c/", "2 http://d/", "2 !no_url"}},
		{"leaves of several kinds, deep", `{"a":{"in":[{"in":[{"in":[{"id":1,"guid":"g","n":1,"url":"http://a/"},{"id":1,"guid":"g","n":1,"url":"http://b/"},{"n":1,"url":"http://c/"},{"n":1,"url":"http://d/"}]}]}]}}`,
			raw.Options{}, raw.JSON, []string{"1 http://a/", "1 http://b/", "1 http://c/", "1 http://d/"}},
		{"a folder among the elements", `[{"url":"http://a/"},{"url":"http://b/"},` + "\n" + `{"in":[{"url":"http://c/"},{"in":[{"url":"http://d/"}]}]},{"in":[]}]`, raw.Options{}, raw.JSON,
			[]string{"1 http://a/", "1 http://b/", "2 http://c/", "2 http://d/", "2 !no_url"}},
		{"a second level, with the names that lead to an element", `{"in":[{"url":"http://a/"},{"url":"http://b/"}],"more":{"x":{"url":"http://c/"}}}`, all, raw.JSON,
			[]string{`1 http://a/ {"key":"in"}`, `1 http://b/ {"key":"in"}`, `1 http://c/ {"key":"more.x"}`}},
		{"elements longer than a record", `{"in":[{"url":"http://a/"},{"url":"http://b/"},{"url":"http://c/","x":` + long + `},{"x":` + long + `}],` +
			`"more":{"in":{"y":[{"url":"http://d/","x":[1,2,3]},{"url":"http://e/"},{"url":"http://f/"}]}}}`, raw.Options{MaxLine: 60}, raw.JSON,
			[]string{"1 http://a/", "1 http://b/", "1 !too_long_line", "1 !too_long_line", "1 http://d/", "1 http://e/", "1 http://f/"}},
		{"a URL longer than a record, at any depth", `{"url":"http://a/","in":[{"url":` + long + `},{"url":"http://b/","in":[]}]}`, raw.Options{MaxLine: 60}, raw.JSON,
			[]string{"1 !too_long_line", "1 !too_long_line", "1 http://b/"}},
		{"a page of records", `{"next":"http://n/","results":[{"url":"http://a/"},{"url":"http://b/"}]}`, raw.Options{}, raw.JSON, []string{"1 !no_url", "1 http://a/", "1 http://b/"}},
		{"a page with a URL of the same name", `{"url":"http://n/","results":[{"url":"http://a/"},{"url":"http://b/"}]}`, raw.Options{}, raw.JSON, []string{"1 http://n/", "1 http://a/", "1 http://b/"}},
		{"groups with URLs", `{"groups":[{"url":"http://g/","in":[{"url":"http://a/"},{"url":"http://b/"}]},{"url":"http://h/","in":[{"url":"http://c/"}]}]}`, raw.Options{}, raw.JSON,
			[]string{"1 http://g/", "1 http://a/", "1 http://b/", "1 http://h/", "1 http://c/"}},
		{"one record with links", `{"url":"http://a/","authors":[{"homepage":"http://x/"},{"homepage":"http://y/"}]}`, raw.Options{}, raw.JSONLines, []string{"1 http://a/"}},

		// Lists of URLs.
		{"a list", `{"n":2,"urls":["http://a/","http:\/\/b\/",7]}`, all, raw.JSON, []string{`1 http://a/ {"n":2}`, `1 http://b/ {"n":2}`, "1 !no_url"}},
		{"a list by its name", `{"n":2,"to":["http://a/","http://b/"]}`, raw.Options{URLColumn: "to"}, raw.JSON, []string{"1 http://a/", "1 http://b/"}},
		{"a list inside", "{\"data\":{\n\"tags\":[\"x\"],\"urls\":[\n\"http://a/\",\n\"http://b/\"]}}", raw.Options{}, raw.JSON, []string{"1 http://a/", "1 http://b/"}},
		{"a list longer than a record", `{"urls":["http://a/",` + "\n" + strings.Repeat(`"http://b/",`, 9) + "\n" + `"http://c/",` + long + "]}", raw.Options{MaxLine: 60}, raw.JSON,
			slices.Concat([]string{"1 http://a/"}, slices.Repeat([]string{"2 http://b/"}, 9), []string{"3 http://c/", "3 !too_long_line"})},
		{"lists of lines", `{"t":"2020-01-02","urls":["http://a/","http://b/"]}` + "\n" + `{"urls":[]}` + "\n" + `{"urls":"http://c/"}` + "\n" + `{"urls":["http://d/"]}`, raw.Options{TSColumn: "t"}, raw.JSONLines,
			[]string{"1 http://a/ ts=1577923200000", "1 http://b/ ts=1577923200000", "2 !no_url", "3 http://c/", "4 http://d/"}},
		{"lists of elements", `[{"urls":["http://a/","http://b/"]},{"urls":["http://c/"]}]`, raw.Options{}, raw.JSON, []string{"1 http://a/", "1 http://b/", "1 http://c/"}},
		{"lists of records in an object", `{"sites":[{"n":1,"urls":["http://a/","http://b/"]},{"n":2,"urls":["http://c/"]}]}`, all, raw.JSON,
			[]string{`1 http://a/ {"n":1}`, `1 http://b/ {"n":1}`, `1 http://c/ {"n":2}`}},
		{"HAR", `{"log":{"version":"1.2","creator":{"name":"x"},"pages":[{"title":"http://page/","startedDateTime":"2020-01-01T00:00:00Z"}],"entries":[` + "\n" +
			`{"startedDateTime":"2020-01-02T03:04:01.5Z","request":{"url":"http://a/","headers":[]},"response":{"status":301,"redirectURL":"http://r/","content":{"mimeType":"text/html; charset=utf-8"}}}]}}`, raw.Options{}, raw.JSON,
			[]string{`2 http://a/ ts=1577934241500 {"mime":"text/html","status":"301"}`}},

		// URLs as names.
		{"keys", `{"http://a/":{"n":1,"image_url":"http://x/"},"http://b/":2}`, all, raw.JSON, []string{`1 http://a/ {"image_url":"http://x/","n":1}`, "1 http://b/"}},
		{"keys inside", `{"about":{},"pages":{"http://a/":{"time":"2020-01-02"}}}`, raw.Options{}, raw.JSON, []string{"1 http://a/"}},
		{"keys of lines", `{"http://a/":{"n":1}}` + "\n" + `{"http://b/":{"n":1}}`, raw.Options{}, raw.JSON, []string{"1 http://a/", "2 http://b/"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g, plan := read(t, "a", tc.text, tc.opt)
			if plan.Format != tc.format {
				t.Errorf("format %s, want %s", plan.Format, tc.format)
			}
			if diff := cmp.Diff(tc.want, g.Rows); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			checkReader(t, "a", []byte(tc.text), tc.opt)
		})
	}
}

// Records may be at other depths than the head of the document shows.
func TestJSONBehindTheHead(t *testing.T) {
	items := func(n int) string { return strings.Repeat(`{"url":"http://a/"},`, n-1) + `{"url":"http://a/"}` }
	for _, tc := range []struct {
		name, text       string
		records, rejects int64
	}{
		{"a second depth", `{"items":[` + items(20_000) + `],"more":{"items":[` + items(1000) + `]}}`, 21_000, 0},
		{"more than a record", `{"items":[` + items(20_000) + `],"more":{"items":[` + items(100_000) + `],"x":{"y":[` + items(100_000) + `]}}}`, 220_000, 0},
		{"a broken element in more than a record", `{"items":[` + items(20_000) + `],"more":{"items":[` + items(100_000) + `,{"url":},` + items(10) + `]}}`, 120_010, 1},
		{"a scalar and an empty element", `{"items":[` + items(20_000) + `],"n":1,"more":{"items":[]}}`, 20_000, 2},
		{"a list", `{"n":1,"urls":[` + strings.Repeat(`"http://a/",`, 200_000) + `"http://b/"],"m":1}`, 200_001, 0},
	} {
		g, _ := read(t, "a.json", tc.text, raw.Options{})
		if g.Counts.Records != tc.records || g.Counts.Rejects != tc.rejects {
			t.Errorf("%s: %d records and %d rejects, want %d and %d", tc.name, g.Counts.Records, g.Counts.Rejects, tc.records, tc.rejects)
		}
	}
}

// URLs that are not read are noted.
func TestJSONInsideRecordsIsNoted(t *testing.T) {
	for name, text := range map[string]string{
		"objects inside":    `{"url":"http://a/","x":{"url":"http://b/"}}` + "\n" + `{"url":"http://c/"}`,
		"one record":        `{"url":"http://a/","authors":[{"homepage":"http://x/"},{"homepage":"http://y/"}]}`,
		"strings in a list": `{"a":[{"url":"http://a/"},{"url":"http://b/"}],"b":["http://c/","http://d/"]}`,
	} {
		if _, plan := read(t, "a", text, raw.Options{}); !strings.Contains(strings.Join(plan.Notes, "\n"), "jq -") {
			t.Errorf("%s: notes %q, want one on what is not read", name, plan.Notes)
		}
	}
}

func TestCSVDialects(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		format     string
		want       []string
	}{
		{"backslashes in quotes", "t,url\n\"a \\\"b, c\\\" \\\\\",http://a/\n\"d\\e\",http://b/\n", raw.CSV, []string{`2 http://a/ {"t":"a \"b, c\" \\"}`, `3 http://b/ {"t":"d\\e"}`}},
		{"backslashes outside", "http://a/,x\\,y,1\nhttp://b/,\\N,2\n", raw.CSV, []string{`1 http://a/ {"2":"x,y","3":"1"}`, `2 http://b/ {"3":"2"}`}},
		{"tabs and line breaks behind backslashes", "http://a/\tx\\\ty\\\nz\t\\N\nhttp://b/\tx\\ny\t1\n", raw.TSV, []string{`1 http://a/ {"2":"x\ty\nz"}`, `3 http://b/ {"2":"x\ny","3":"1"}`}},
		{"backslashes that are paths", "url,t\nhttp://a/,\"C:\\d\\\"\nhttp://b/,C:\\new\n", raw.CSV, []string{`2 http://a/ {"t":"C:\\d\\"}`, `3 http://b/ {"t":"C:\\new"}`}},
		{"backslashes in quotes of every row", strings.Repeat("\"1\",\"http://a/\",\"it\\\"s\"\n", 3), raw.CSV,
			[]string{`1 http://a/ {"1":"1","3":"it\"s"}`, `2 http://a/ {"1":"1","3":"it\"s"}`, `3 http://a/ {"1":"1","3":"it\"s"}`}},
		{"two rows without a line break", "id,url,t\n1,http://a/,x\n2,http://b/,y3,http://c/,z\n4,http://d/,z\n", raw.CSV,
			[]string{`2 http://a/ {"id":"1","t":"x"}`, `3 http://b/ {"id":"2"}`, `3 http://c/ {"t":"z"}`, `4 http://d/ {"id":"4","t":"z"}`}},
		{"two rows that meet in a URL", "id\turl\n1\thttp://a/\n2\thttp://b/3\thttp://c/\n4\thttp://d/\n", raw.TSV,
			[]string{`2 http://a/ {"id":"1"}`, "3 !bad_csv", "3 http://c/", `4 http://d/ {"id":"4"}`}},
		{"two rows with a quote too few", "id,url,t\n1,http://a/,x\n2,http://b/,\"y\"3,http://c/,\"z\"\n4,http://d/,z\n", raw.CSV,
			[]string{`2 http://a/ {"id":"1","t":"x"}`, `3 http://b/ {"id":"2"}`, `3 http://c/ {"t":"z"}`, `4 http://d/ {"id":"4","t":"z"}`}},
		{"a stray quote before a field that begins with a separator", "id,url,t\n1,http://a/,\"x\n2,http://b/,y\n3,http://c/,\", z\"\n4,http://d/,z\n", raw.CSV,
			[]string{"2 !bad_csv", `3 http://b/ {"id":"2","t":"y"}`, `4 http://c/ {"id":"3","t":", z"}`, `5 http://d/ {"id":"4","t":"z"}`}},
		{"a separator in a URL that is not quoted", "id,url\n1,http://a/x,y.html\n2,http://b/\n3,http://c/,,\n4,\"http://d/x,y\"\n\"5\",http://e/x,y\n6,http://f/\n7,http://g/\n", raw.CSV,
			[]string{"2 !bad_csv", `3 http://b/ {"id":"2"}`, `4 http://c/ {"id":"3"}`, `5 http://d/x,y {"id":"4"}`, "6 !bad_csv", `7 http://f/ {"id":"6"}`, `8 http://g/ {"id":"7"}`}},
		{"rows with more fields than the header", "url;id\nhttp://a/;1;x\nhttp://b/;2;1;2\nhttp://c/;3\nhttp://d/;4\nhttp://e/;5\nhttp://f/;6\n", raw.CSV,
			[]string{`2 http://a/ {"id":"1"}`, `3 http://b/ {"id":"2"}`, `4 http://c/ {"id":"3"}`, `5 http://d/ {"id":"4"}`, `6 http://e/ {"id":"5"}`, `7 http://f/ {"id":"6"}`}},
		{"separators in the URLs of many rows", "id;url\n1;http://a/;x\n2;http://b/;1;2\n3;http://c/\n4;http://d/\n5;http://e/\n6;http://f/\n", raw.CSV,
			[]string{"2 !bad_csv", "3 !bad_csv", `4 http://c/ {"id":"3"}`, `5 http://d/ {"id":"4"}`, `6 http://e/ {"id":"5"}`, `7 http://f/ {"id":"6"}`}},
		{"blanks before quotes", "id, \"URL\", t\n1, \"http://a/x,y\", \"b \"\"c\"\"\" \n2,  \"http://b/\", \"d\n3, \"http://c/\", e \"f\"\n", raw.CSV,
			[]string{`2 http://a/x,y {"id":"1","t":"b \"c\""}`, `3 http://b/ {"id":"2","t":" \"d"}`, `4 http://c/ {"id":"3","t":" e \"f\""}`}},
		{"a header and no rows", "id,page,title\r\n", raw.CSV, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			name := "a." + tc.format
			g, plan := read(t, name, tc.text, raw.Options{Extras: []string{"*"}})
			if plan.Format != tc.format || plan.Backslash && plan.Ranged() {
				t.Errorf("plan %+v", plan)
			}
			if diff := cmp.Diff(tc.want, g.Rows); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			checkReader(t, name, []byte(tc.text), raw.Options{Extras: []string{"*"}})
		})
	}
}

// TestAHeaderThatEndsWithTheURLIsComplete refuses rows that go on behind the header's last column
// if that is the URL's, of which they may be a part.
func TestAHeaderThatEndsWithTheURLIsComplete(t *testing.T) {
	const text = "id;url\n1;http://a/;jsessionid=1\n2;http://b/;jsessionid=2\n3;http://c/\n"
	var refused *raw.FormatError
	if _, err := New(strings.NewReader(text), "a.csv", raw.Options{}); !errors.As(err, &refused) || !strings.Contains(refused.Reason, "its rows go on") {
		t.Errorf("error %v", err)
	}
	if g, _ := read(t, "a.csv", text, raw.Options{URLColumn: "url"}); g.Counts.Records+g.Counts.Rejects != 3 {
		t.Errorf("with the column's name: %q", g.Rows)
	}
	for _, text := range []string{"id;url\n1;http://a/;\n2;http://b/;\n", "id\turl\n1\thttp://a/\tx\n2\thttp://b/\ty\n"} {
		if g, _ := read(t, "a.csv", text, raw.Options{}); g.Counts.Records != 2 {
			t.Errorf("%q: %q", text, g.Rows)
		}
	}
}

func TestATableWithoutRowsIsReadInAnArchive(t *testing.T) {
	data := tarOf(t, "a.csv", "id,domain,title\n", "b.csv", "id,domain,title\n1,a.org,x\n", "c.csv", "id,page,title\n")
	g, err := readBytes(data)
	if err != nil || g.Counts.Records != 1 || g.Counts.Members != 3 {
		t.Errorf("%+v, %v", g, err)
	}
}

// TestRangesOfJSONDialects cuts lines with several values, and rows, at every byte.
func TestRangesOfJSONDialects(t *testing.T) {
	for name, line := range map[string]string{
		"several values": `{"url":"http://a/%[1]d"}{"url":"http://b/%[1]d","x":"y{"url":"http://c/%[1]d"} x`,
		"rows":           `["http://a/%[1]d",%[1]d,"x"]["http://b/%[1]d",2,"x"`,
		"CDX server":     `["2020010203040%[1]d","http://a/%[1]d"],["org%%2Cb"],["timestamp","original"],[]`,
	} {
		var w strings.Builder
		if name == "CDX server" {
			w.WriteString("[\"timestamp\",\"original\"]\n[\"20200102030400\",\"http://a/\"]\n[\"20200102030400\",\"http://b/\"]\n")
		}
		if name == "rows" {
			w.WriteString("[\"http://a/\",1,\"x\"]\n[\"http://b/\",1,\"x\"]\n")
			for i := range 30 {
				fmt.Fprintf(&w, "[\"http://a/%d\",1,\"x\"]\n", i)
			}
		}
		first := w.Len() + 1
		for i := range 3 {
			fmt.Fprintf(&w, line+"\n", i)
		}
		text := w.String()
		opt := raw.Options{Format: raw.JSONLines, Extras: []string{"*"}}
		whole, plan := read(t, "a", text, opt)
		if !plan.Ranged() || whole.Counts.Records < 5 {
			t.Fatalf("%s: plan %+v, counts %+v", name, plan, whole.Counts)
		}
		for at := first; at < len(text); at++ {
			cut, err := readRanges([]byte(text), "a", plan, cutAt(len(text), at))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(whole, cut); diff != "" {
				t.Fatalf("%s cut at %d:\n%s", name, at, diff)
			}
		}
	}
}
