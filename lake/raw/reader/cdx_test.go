package reader

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/raw"
)

// cdxLine returns a line of a CDX index whose URL is http://HOST/, with the fields of letters.
func cdxLine(letters, host string, number int) string {
	values := map[string]string{"N": "org," + host + ")/", "A": host + "/", "b": "20150228104601", "a": "http://" + host + "/", "m": "text/html",
		"s": "200", "k": strings.Repeat("A", 32), "c": strings.Repeat("b", 32), "r": "-", "M": "-", "S": fmt.Sprint(1000 + number),
		"V": fmt.Sprint(2000 + number), "n": fmt.Sprint(1000 + number), "v": fmt.Sprint(2000 + number), "g": "f.warc.gz", "e": "10.0.0.1"}
	var fields []string
	for _, l := range strings.Fields(letters) {
		if l == "A" && letters[0] == 'A' {
			l = "a" // NetarchiveSuite
		}
		fields = append(fields, values[l])
	}
	return strings.Join(fields, " ") + "\n"
}

// cdxRow returns the row of such a line, without its number.
func cdxRow(letters, host string, number int) string {
	var extras []string
	for _, f := range []struct{ name, letter, value string }{
		{"digest", "k", strings.Repeat("A", 32)}, {"digest", "c", strings.Repeat("b", 32)}, {"filename", "g", "f.warc.gz"},
		{"length", "S", fmt.Sprint(1000 + number)}, {"length", "n", fmt.Sprint(1000 + number)}, {"mime", "m", "text/html"},
		{"offset", "V", fmt.Sprint(2000 + number)}, {"offset", "v", fmt.Sprint(2000 + number)}, {"status", "s", "200"},
	} {
		if slices.Contains(strings.Fields(letters), f.letter) {
			extras = append(extras, fmt.Sprintf("%q:%q", f.name, f.value))
		}
	}
	return fmt.Sprintf("http://%s/ ts=1425120361000 {%s}", host, strings.Join(extras, ","))
}

const (
	cdx11, cdx10, cdx9, cdx7 = "N b a m s k r M S V g", "N b a m s k r M V g", "N b a m s k r V g", "N b a m s k S"
	netarchive               = "A e b m n g v c"
)

// TestLinesByTheirNumberOfFields reads indexes whose lines have unlike fields.
func TestLinesByTheirNumberOfFields(t *testing.T) {
	reordered := "N a b s m k r g S V M"
	type part struct {
		legend  bool
		letters string
		lines   int
	}
	for name, parts := range map[string][]part{
		"two files, one behind the other":     {{true, cdx11, 5}, {true, cdx9, 5}},
		"the shorter first":                   {{true, cdx9, 3}, {true, cdx11, 30}, {true, cdx10, 4}},
		"merged in order":                     {{true, cdx11, 0}, {true, cdx9, 0}, {false, cdx11, 2}, {false, cdx9, 2}, {false, cdx11, 2}},
		"no legend, halves":                   {{false, cdx11, 5}, {false, cdx9, 5}},
		"no legend, all kinds":                {{false, cdx11, 2}, {false, cdx9, 2}, {false, cdx10, 2}, {false, cdx7, 2}, {false, netarchive, 2}},
		"a legend behind lines without":       {{false, cdx9, 6}, {true, cdx11, 3}},
		"a legend above lines of others":      {{true, cdx11, 6}, {false, cdx9, 3}, {false, netarchive, 3}},
		"as many fields in another order":     {{true, cdx11, 4}, {true, reordered, 4}, {true, cdx11, 2}},
		"of NetarchiveSuite behind another":   {{true, cdx11, 4}, {false, netarchive, 4}},
		"a legend that no program has":        {{true, cdx10, 2}, {true, "b a m s", 3}, {true, "a b s m k", 2}},
		"the same legend twice":               {{true, cdx9, 2}, {true, cdx9, 3}},
		"a legend of two fields less at last": {{true, cdx11, 100}, {true, cdx9, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, tail := range []string{"\n", "\r\n"} {
				var text strings.Builder
				var want []string
				for i, p := range parts {
					if p.legend {
						text.WriteString(" CDX " + p.letters + "\n")
					}
					for n := range p.lines {
						host := fmt.Sprintf("a%d-%d.org", i, n)
						text.WriteString(cdxLine(p.letters, host, n))
						want = append(want, cdxRow(p.letters, host, n))
					}
				}
				data := strings.ReplaceAll(text.String(), "\n", tail)
				r, err := New(strings.NewReader(data), "a.txt", raw.Options{})
				if err != nil {
					t.Fatal(err)
				}
				g, err := readAll(r)
				for i, row := range g.Rows {
					_, g.Rows[i], _ = strings.Cut(row, " ")
				}
				if diff := cmp.Diff(want, g.Rows); diff != "" || err != nil || r.Plan().Format != raw.CDX {
					t.Errorf("%s, error %v, rows (-want +got):\n%s", r.Plan().Format, err, diff)
				}
				checkReader(t, "a.txt", []byte(data), raw.Options{})
				checkReader(t, "a.txt", []byte(data), raw.Options{Extras: []string{"*"}})
			}
		})
	}
}

// TestLinesOfIndexesThatAreNoCaptures reads lines that are about other lines, and lines whose
// fields are not where a legend has them.
func TestLinesOfIndexesThatAreNoCaptures(t *testing.T) {
	line := cdxLine(cdx9, "a.org", 1)
	for name, tc := range map[string]struct {
		text              string
		records, comments int
		rejects           []string
	}{
		"aliases and comments":         {"@alias http://old.org/ http://a.org/\n# of 2015\n" + line + "!meta {}\n@alias http://b.org/ http://a.org/\n" + line, 2, 4, nil},
		"a legend behind an alias":     {"@alias http://old.org/ http://a.org/\n CDX " + cdx9 + "\n" + line, 1, 2, nil},
		"a blank in the URL":           {strings.Repeat(line, 3) + strings.Replace(line, "a.org/", "a.org/b c", 1), 3, 0, []string{"4 !bad_cdx"}},
		"two blanks in the URL":        {strings.Repeat(line, 3) + strings.Replace(line, "a.org/", "a.org/b c d", 1), 3, 0, []string{"4 !bad_cdx"}},
		"a blank in the key":           {strings.Repeat(line, 3) + "org,a)/b " + line, 3, 0, []string{"4 !bad_cdx"}},
		"a line cut within its URL":    {strings.Repeat(line, 3) + line[:strings.Index(line, "/ text")], 3, 0, []string{"4 !bad_cdx"}},
		"a line cut behind its status": {strings.Repeat(line, 3) + line[:strings.Index(line, " AAAA")], 4, 0, nil},
		"words":                        {strings.Repeat(line, 12) + "nine words that are no capture of a URL at\n", 12, 0, []string{"13 !bad_cdx"}},
	} {
		t.Run(name, func(t *testing.T) {
			g, plan := read(t, "a.cdx", tc.text, raw.Options{})
			var rejects []string
			for _, row := range g.Rows {
				if strings.Contains(row, " !") {
					rejects = append(rejects, row)
				}
			}
			if g.Counts.Records != int64(tc.records) || g.Counts.Comments != int64(tc.comments) || plan.Format != raw.CDX {
				t.Errorf("%s, counts %+v, want %d records, %d comments", plan.Format, g.Counts, tc.records, tc.comments)
			}
			if diff := cmp.Diff(tc.rejects, rejects); diff != "" {
				t.Errorf("rejects (-want +got):\n%s", diff)
			}
			checkReader(t, "a.cdx", []byte(tc.text), raw.Options{})
		})
	}
}

// TestRangesKnowTheLegends holds that the ranges of an index have the rows of the whole, or that a
// range says why not.
func TestRangesKnowTheLegends(t *testing.T) {
	lines := func(letters string, bytes int) string {
		var b strings.Builder
		for i := 0; b.Len() < bytes; i++ {
			b.WriteString(cdxLine(letters, fmt.Sprintf("%s%d.org", letters[len(letters)-1:], i), i))
		}
		return b.String()
	}
	reordered := "N a b s m k r g S V M"
	for name, tc := range map[string]struct {
		text    string
		refused bool
	}{
		"an unusual legend":                  {" CDX " + reordered + "\n" + lines(reordered, 600_000), false},
		"two unusual ones at the beginning":  {" CDX " + cdx11 + "\n" + lines(cdx11, 1000) + " CDX " + reordered + "\n" + lines(reordered, 600_000), false},
		"merged in order":                    {" CDX " + cdx11 + "\n CDX " + cdx9 + "\n" + strings.Repeat(lines(cdx9, 1)+lines(cdx11, 1), 3000), false},
		"a usual legend in the middle":       {" CDX " + cdx11 + "\n" + lines(cdx11, 400_000) + " CDX " + cdx9 + "\n" + lines(cdx9, 400_000), false},
		"no legend":                          {lines(cdx9, 400_000) + lines(cdx11, 400_000), false},
		"back to the first":                  {" CDX " + cdx11 + "\n" + lines(cdx11, 1000) + " CDX " + reordered + "\n" + lines(reordered, 1000) + " CDX " + cdx11 + "\n" + lines(cdx11, 600_000), false},
		"another order, far behind":          {" CDX " + cdx11 + "\n" + lines(cdx11, 400_000) + " CDX " + reordered + "\n" + lines(reordered, 400_000), true},
		"an unusual legend far behind":       {lines(cdx11, 400_000) + " CDX b a m s\n" + lines("b a m s", 400_000), true},
		"the first again, far behind others": {" CDX " + cdx11 + "\n CDX " + reordered + "\n" + lines(reordered, 400_000) + " CDX " + cdx11 + "\n" + lines(cdx11, 400_000), true},
	} {
		t.Run(name, func(t *testing.T) {
			data := []byte(tc.text)
			plan, ranges, err := Ranges(open(data), int64(len(data)), "a.cdx", raw.Options{}, 100_000)
			if err != nil || len(ranges) < 3 {
				t.Fatalf("%v, %v", ranges, err)
			}
			r, err := New(bytes.NewReader(data), "a.cdx", raw.Options{})
			if err != nil {
				t.Fatal(err)
			}
			whole, err := readAll(r)
			if err != nil || whole.Counts.Rejects > 0 {
				t.Fatalf("error %v, %+v", err, whole.Counts)
			}
			cut, err := readRanges(data, "a.cdx", plan, ranges)
			if tc.refused {
				if err == nil || !strings.Contains(err.Error(), "csplit") {
					t.Fatalf("got %v, want an error with advice", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(whole, cut); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

// TestDialectsOfCDXJ reads members by the values they hold.
func TestDialectsOfCDXJ(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"the member of no known name that has the keys' hosts": {
			`com,a)/x 20040511211249 {"referrer":"http://b.com/","page":"https://www.a.com/X"}` + "\n" + `com,c)/ 20040511211250 {"page":"https://c.com/"}` + "\n",
			[]string{"1 https://www.a.com/X ts=1084309969000", "2 https://c.com/ ts=1084309970000"}},
		"a URL of another site is not the capture's": {`com,a)/x 20040511211249 {"redirect":"http://b.com/"}` + "\n",
			[]string{"1 http://a.com/x ts=1084309969000"}},
		"blanks in the key": {`com,a)/x y {z} 20040511211249 {"url":"http://a.com/x y {z}","mime":"text/html"}` + "\n",
			[]string{`1 http://a.com/x y {z} ts=1084309969000 {"mime":"text/html"}`}},
		"tabs": {"com,a)/x\t20040511211249\t" + `{"url":"http://a.com/x"}` + "\n", []string{"1 http://a.com/x ts=1084309969000"}},
		"two dialects": {`com,a)/ 20040511211249 {"url":"http://www.a.com/","status":"200"}` + "\n" + `com,b)/ 20040511211249 {"original_uri":"http://www.b.com/","status_code":"404","mime_type":"a/b"}` + "\n" +
			`com,c)/ 20040511211249 {"status":"200"}` + "\n",
			[]string{`1 http://www.a.com/ ts=1084309969000 {"status":"200"}`, `2 http://www.b.com/ ts=1084309969000 {"mime":"a/b","status":"404"}`,
				`3 http://c.com/ ts=1084309969000 {"status":"200"}`}},
		"a TimeMap of MemGator, without keys": {"!context [\"http://tools.ietf.org/html/rfc7089\"]\n!id {\"uri\": \"http://localhost/timemap/cdxj/http://a.com/\"}\n" +
			`20040511211249 {"uri": "http://web.archive.org/web/20040511211249/http://a.com/", "rel": "memento", "datetime": "Tue, 11 May 2004 21:12:49 GMT"}` + "\n",
			[]string{"3 http://web.archive.org/web/20040511211249/http://a.com/ ts=1084309969000"}},
		"headers with an at sign": {"@context [\"http://oduwsdl.github.io/contexts/cdxj\"]\n@id {\"uri\": \"http://x.com/\"}\n" + `com,a)/ 20040511211249 {"url":"http://a.com/"}` + "\n",
			[]string{"3 http://a.com/ ts=1084309969000"}},
		"a timestamp in the object": {`com,a)/ {"url":"http://a.com/","timestamp":"20040511211249"}` + "\n", []string{"1 http://a.com/ ts=1084309969000"}},
		"blocks beside captures": {"!meta 0 {\"format\": \"cdxj-gzip-1.0\", \"filename\": \"index.cdx.gz\"}\n" + `com,a)/ 20040511211249 {"offset":0,"length":397,"digest":"sha256:28"}` + "\n" +
			`com,a)/ 20040511211249 {"url":"http://a.com/","offset":"7","length":"9"}` + "\n",
			[]string{`3 http://a.com/ ts=1084309969000 {"length":"9","offset":"7"}`}},
		"nothing but a header": {"!meta 0 {\"format\": \"cdxj-gzip-1.0\"}\n", nil},
		"no time": {`com,a)/ yesterday {"url":"http://a.com/"}` + "\n" + strings.Repeat(`com,a)/ 20040511211249 {"url":"http://a.com/"}`+"\n", 9),
			append([]string{"1 http://a.com/"}, repeatRows(9, 2, "http://a.com/ ts=1084309969000")...)},
	} {
		t.Run(name, func(t *testing.T) {
			g, plan := read(t, "a.cdxj", tc.text, raw.Options{})
			if diff := cmp.Diff(tc.want, g.Rows); diff != "" || plan.Format != raw.CDXJ {
				t.Errorf("%s, rows (-want +got):\n%s", plan.Format, diff)
			}
			if name == "no time" && g.Counts.BadTS != 1 {
				t.Errorf("counts %+v, want one bad timestamp", g.Counts)
			}
			checkReader(t, "a.cdxj", []byte(tc.text), raw.Options{})
			checkReader(t, "a.cdxj", []byte(tc.text), raw.Options{Extras: []string{"*"}})
		})
	}
}

// TestEmptyIndexOfWACZ reads archives whose index lists nothing.
func TestEmptyIndexOfWACZ(t *testing.T) {
	data := string(writeWARC(t, "gzip", crawl()))
	want, _ := rowsOf(t, "a.wacz", zipOf(t, "archive/a.warc.gz", data), raw.Options{})
	for name, index := range map[string][]byte{
		"empty": nil, "an empty gzip": compressed(t, "gzip", nil), "a header": []byte("!meta 0 {}\n"), "a blank line": []byte("\n"),
	} {
		for _, ext := range []string{".cdx", ".cdxj", ".cdx.gz"} {
			got, r := rowsOf(t, "a.wacz", zipOf(t, "indexes/index"+ext, string(index), "archive/a.warc.gz", data, "indexes/b.cdx", ""), raw.Options{})
			if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
				t.Errorf("%s%s: rows (-want +got):\n%s", name, ext, diff)
			}
			if notes := strings.Join(r.Notes(), "\n"); !strings.Contains(notes, "read from its WARC files") {
				t.Errorf("%s%s: notes %q", name, ext, notes)
			}
		}
	}
}

// TestSharedIndexes reads real and made indexes of several programs.
func TestSharedIndexes(t *testing.T) {
	for _, tc := range []struct {
		file string
		rows []string
	}{
		{"cdx-second-legend/legends.cdx", func() (rows []string) {
			const digest = `{"digest":"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567","filename":`
			for i := range 5 {
				rows = append(rows, fmt.Sprintf(`http://a%d.example.org/ ts=142512036%d000 %s"f.warc.gz","length":"10","mime":"text/html","offset":"20","status":"200"}`, i+1, i+1, digest))
			}
			for i := range 5 {
				rows = append(rows, fmt.Sprintf(`http://b%d.example.org/ ts=142512036%d000 %s"g.arc.gz","mime":"text/html","offset":"2000","status":"200"}`, i+1, i+1, digest))
			}
			return rows
		}()},
		{"cdxj-other-members/froggie_badHeaderHash.cdxj", []string{
			`http://matkelly.com/froggies/frog.png ts=1488396399000 {"mime":"image/png","status":"200"}`,
			`http://matkelly.com/robots.txt ts=1488396399000 {"mime":"text/plain","status":"200"}`,
			`http://www.cs.odu.edu/~mkelly/semester/2017_spring/remoteFroggie.html ts=1488396399000 {"mime":"text/html","status":"200"}`}},
		{"secondary-index/index.idx", nil},
	} {
		data, err := os.ReadFile(testenv.Shared(t, "cases", tc.file))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := rowsOf(t, tc.file, data, raw.Options{})
		if diff := cmp.Diff(tc.rows, got); diff != "" {
			t.Errorf("%s: rows (-want +got):\n%s", tc.file, diff)
		}
	}
	data, err := os.ReadFile(testenv.Shared(t, "cases/secondary-index/index.cdx.gz"))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := rowsOf(t, "index.cdx.gz", data, raw.Options{}); len(got) != 2 {
		t.Errorf("index.cdx.gz: %q, want 2 captures", got)
	}
}
