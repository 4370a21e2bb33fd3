package reader

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/raw"
)

// recordFormat is a format that TestADamagedRecordCostsOneRecord damages. make makes an object of n
// records whose URLs are those of damageURL. flips are the bytes that a byte of the object becomes.
// If the format has an end, an object without its last bytes is refused or has a reject. If cells
// is set, a byte that separates moves the cells, so that another text of the record is its URL. At
// most refused of the damaged objects may be refused.
type recordFormat struct {
	name    string
	opt     raw.Options
	make    func(n int) string
	flips   string
	ends    bool
	cells   bool
	refused int
}

// recordFormats are the formats that TestADamagedRecordCostsOneRecord damages.
var recordFormats = []recordFormat{
	{name: "a.jsonl", make: eachRecord("", "\n", "", `{"id":%d,"url":"%s","tags":["a","b"],"in":{"n":1.5,"t":"x y"}}`), flips: "\"{}[],:\n\\ x", cells: true},
	{name: "glued.jsonl", make: eachRecord("", "", "", `{"id":%d,"url":"%s","t":"a\"b"}`), flips: "\"{}[],:\n\\ x", cells: true, refused: 320},
	{name: "a.json", ends: true, make: eachRecord("[\n", ",\n", "\n]\n", `{"id":%d,"url":"%s","tags":["a","b"],"in":{"n":1,"t":"x, y"}}`), flips: "\"{}[],:\n\\ x", cells: true, refused: 110},
	{name: "line.json", ends: true, make: eachRecord("[", ",", "]", `{"id":%d,"url":"%s","tags":["a","b"],"in":{"n":1,"t":"x, y"}}`), flips: "\"{}[],:\n\\ x", cells: true, refused: 580},
	{name: "pretty.json", ends: true, make: eachRecord("[\n", ",\n", "\n]\n", "  {\n    \"id\": %d,\n    \"url\": \"%s\",\n    \"in\": [\n      {\n        \"t\": \"x\"\n      }\n    ]\n  }"), flips: "\"{}[],:\n\\ x", refused: 140},
	{name: "strings.json", ends: true, make: eachRecord("[", ",", "]", `"%[2]s"`), flips: "\"{}[],:\n\\ x", refused: 120},
	{name: "rows.jsonl", make: eachRecord(`["id","url","t"]`+"\n", "\n", "\n", `[%d,"%s","x"]`), flips: "\"{}[],:\n\\ x", cells: true},
	{name: "rows.json", ends: true, make: eachRecord(`[["timestamp","original","mimetype"],`+"\n", ",\n", "]", `["202001020304%02d","%s","text/html"]`), flips: "\"{}[],:\n\\ x", cells: true, refused: 280},
	{name: "a.csv", make: eachRecord("id,url,title\n", "\n", "\n", "%d,%s,a title"), flips: "\",;\n\t\\ x", cells: true},
	{name: "quoted.csv", make: eachRecord("id,url,title\n", "\n", "\n", `"%d","%s","a ""title"", or two"`), flips: "\",;\n\t\\ x", cells: true},
	{name: "mixed.csv", make: eachRecord("url,title,n\r\n", "\r\n", "\r\n", "%[2]s,\"a title,\nover lines\",%[1]d"), flips: "\",;\n\t\\ x", cells: true},
	{name: "empty.csv", make: eachRecord("id,title,url\n", "\n", "\n", `%d,"",%s`), flips: "\",;\n\t\\ x"},
	{name: "backslash.csv", make: eachRecord("id,title,url\n", "\n", "\n", `%d,"a \"title\", or two",%s`), flips: "\",;\n\t\\ x", cells: true},
	{name: "a.tsv", make: eachRecord("id\turl\ttitle\n", "\n", "\n", "%d\t%s\ta title"), flips: "\"\t,\n\\ x", cells: true},
	{name: "null.tsv", make: eachRecord("", "\n", "\n", "%d\t%s\t\\N"), flips: "\"\t,\n\\ x", cells: true},
	{name: "spaced.txt", opt: raw.Options{Format: raw.Spaced}, make: eachRecord("", "\n", "\n", "%d   %s   2020-01-02"), flips: "\"\t,\n\\ x", cells: true},
	{name: "found.txt", make: eachRecord("", "\n", "\n", "%d   %s   2020-01-02"), flips: "\"\t,\n\\ x", cells: true},
	{name: "hits", make: eachRecord("hits url\n", "\n", "\n", "%d %s"), flips: "\"\t,\n\\ x"},
	{name: "header", make: eachRecord("id,url,title\n", "\n", "\n", "%d,%s,a title"), flips: "\",;\n\t\\ x", cells: true},
	{name: "typed", make: eachRecord("", "\n", "\n", "%d,%s,2020-01-02"), flips: "\",;\n\t\\ x", cells: true},
	{name: "quoted", make: eachRecord("", "\r\n", "\r\n", `"%d";"%s";"2020-01-02"`), flips: "\",;\n\t\\ x", cells: true},
	{name: "tabs", make: eachRecord("", "\n", "\n", "%d\t%s\ta title"), flips: "\"\t,\n\\ x", cells: true},
	{name: "list", make: eachRecord("", "\n", "\n", "%[2]s"), flips: "\"\t,\n\\ x"},
	{name: "cdx11", make: eachRecord("", "\n", "\n", "org,example,h%[1]d)/p 202001020304%02[1]d %[2]s text/html 200 AAAABBBBCCCCDDDDEEEEFFFFGGGGHHHH - - 99 %[1]d7 a.warc.gz"), flips: "\"\t,\n\\ x"},
	{name: "legend.cdx", make: eachRecord(" CDX N b a m s k r V g\n", "\n", "\n", "org,example,h%[1]d)/p 202001020304%02[1]d %[2]s text/html 200 AAAABBBBCCCCDDDDEEEEFFFFGGGGHHHH - %[1]d7 a.warc.gz"), flips: "\"\t,\n\\ x"},
	{name: "cdxj", make: eachRecord("", "\n", "\n", `org,example,h%[1]d)/p 202001020304%02[1]d {"url": "%[2]s", "status": "200", "offset": "%[1]d7"}`), flips: "\"\t,\n{}\\ x"},
	{name: "objects", make: eachRecord("", "\n", "\n", `{"id":%d,"url":"%s","in":{"n":1.5,"t":"x y"}}`), flips: "\"{}[],:\n\\ x", cells: true},
	{name: "crawl.log", make: eachRecord("", "\n", "\n", "2020-01-02T03:04:%02[1]d.000Z   200       1234 %[2]s L http://a.com/ text/html #012 20200102030405000+12 sha1:AAAABBBBCCCCDDDDEEEEFFFFGGGGHHHH - -"), flips: "\"\t,\n\\ x", cells: true},
	{name: "a.har", ends: true, make: eachRecord(`{"log":{"version":"1.2","entries":[`, ",", "]}}", `{"startedDateTime":"2020-01-02T03:04:%02[1]d.000Z","request":{"method":"GET","url":"%[2]s"},"response":{"status":200}}`), flips: "\"{}[],:\n\\ x", refused: 1180},
	{name: "map.json", ends: true, make: eachRecord("{", ",\n", "}", `"k%d":{"url":"%s","t":"x, y"}`), flips: "\"{}[],:\n\\ x", cells: true, refused: 520},
	{name: "sitemap", ends: true, make: eachRecord("<?xml version=\"1.0\"?>\n<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n", "\n", "\n</urlset>\n", "<url>\n <loc>%[2]s</loc><lastmod>2024-05-06</lastmod>\n</url>"), flips: "x<>\"\n\xff", refused: 140},
	{name: "rss", ends: true, make: eachRecord("<rss version=\"2.0\"><channel><title><![CDATA[T]]></title>\n", "\n", "\n</channel></rss>\n", "<item><title><![CDATA[a <b> %d]]></title><link>%[2]s</link><!-- c --><guid>%[2]s</guid></item>"), flips: "x<>\"\n\xff", refused: 180},
	{name: "atom", ends: true, make: eachRecord("<feed xmlns=\"http://www.w3.org/2005/Atom\">\n", "\n", "\n</feed>\n", `<entry><link rel="alternate" href="%[2]s"/><updated>2024-05-06T00:00:00Z</updated></entry>`), flips: "x<>\"\n\xff", refused: 160},
	{name: "opml", ends: true, make: eachRecord("<opml version=\"2.0\"><body>\n", "\n", "\n</body></opml>\n", `<outline type="rss" text="x" xmlUrl="%[2]s"/>`), flips: "x<>\"\n\xff", refused: 120},
	{name: "bookmarks", ends: true, make: eachRecord("<!DOCTYPE NETSCAPE-Bookmark-file-1>\n<TITLE>B</TITLE><DL><p>\n", "\n", "\n</DL>\n", `    <DT><A HREF="%[2]s" ADD_DATE="1714953600">t %[1]d</A>`), flips: "x<>\"\n\xff", refused: 110},
	{name: "timemap", opt: raw.Options{URLColumn: "memento"}, make: eachRecord("<http://a.example/>; rel=\"original\",\n<http://w.example/t>; rel=\"self\",\n", ",\n", "\n", `<%[2]s>; rel="memento"; datetime="Mon, 06 May 2024 00:00:00 GMT"`), flips: "x<>\"\n\xff", refused: 90},
	{name: "triples", make: eachRecord("", "\n", "\n", `<%[2]s> <http://p.example/p> "x\"y"@en .`), flips: "x<>\"\n\xff"},
	{name: "quads", opt: raw.Options{URLColumn: "subject"}, make: eachRecord("", "\n", "\n", `<%[2]s> <http://p.example/p> "a \"b\""@en <http://g.example/> .`), flips: "\"<>.\n\\ x"},
}

// eachRecord returns a maker of objects: a beginning, records made by format of their number and
// URL with separators between them, and an end.
func eachRecord(begin, separator, end, format string) func(n int) string {
	return func(n int) string {
		var records []string
		for i := range n {
			records = append(records, fmt.Sprintf(format, i, damageURL(i)))
		}
		return begin + strings.Join(records, separator) + end
	}
}

func damageURL(i int) string { return fmt.Sprintf("https://h%d.example.org/p", i) }

// TestADamagedRecordCostsOneRecord damages bytes of the last record in all ways, and some
// bytes of the records before it, which tell the format.
func TestADamagedRecordCostsOneRecord(t *testing.T) {
	t.Parallel()
	const n = 12
	for _, f := range recordFormats {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			whole := f.make(n)
			var want []string
			for i := range n {
				want = append(want, damageURL(i))
			}
			if o := outcomeOf(t, f.name, []byte(whole), f.opt, "whole"); !slices.Equal(o.urls, want) || o.rejects > 0 || o.err != nil {
				t.Fatalf("the whole object: %+v", o)
			}
			inputs, refused := 0, 0
			check := func(damaged string, at int, how string) {
				inputs++
				o := outcomeOf(t, f.name, []byte(damaged), f.opt, how)
				if o.err != nil {
					refused++
				} else {
					f.check(t, o, want, damaged, at, how)
				}
				way := inputs % 97
				if way >= len(storedTexts) || o.err != nil || !utf8.ValidString(damaged) {
					return
				}
				again := outcomeOf(t, f.name, storedTexts[way](t, f.name, damaged), f.opt, how+", packed")
				if !slices.Equal(o.urls, again.urls) || o.rejects != again.rejects || again.err != nil {
					t.Errorf("%s: %+v, packed in way %d: %+v", how, o, way, again)
				}
			}
			first, last := len(f.make(1)), len(f.make(n-1))
			for i := max(0, 2*first-len(f.make(2))); i < len(whole); i += testenv.Every(3) {
				flips := f.flips
				if i < last {
					flips = flips[i%5 : min(i%5+i%2, len(flips))]
				}
				if i >= last || i%5 == 0 {
					check(whole[:i]+whole[i+1:], i, fmt.Sprintf("byte %d deleted", i))
				}
				for _, c := range []byte(flips) {
					if c != whole[i] {
						check(whole[:i]+string([]byte{c})+whole[i+1:], i, fmt.Sprintf("byte %d is %q", i, c))
					}
				}
				if f.ends && i > 0 && (i >= last || i%5 == 0) && i < len(strings.TrimRight(whole, "\n")) {
					if o := outcomeOf(t, f.name, []byte(whole[:i]), f.opt, "cut"); o.err == nil && o.rejects == 0 {
						t.Errorf("cut at %d it is read as a whole:\n%s", i, whole[max(0, i-99):i])
					}
				}
				// Without its last bytes an object may be a whole one.
				if cut := strings.TrimRight(whole[:i], ",\r\n"); i > last && cut != strings.TrimRight(f.make(n-1), "\r\n") {
					check(whole[:i], i, fmt.Sprintf("cut at %d", i))
				}
			}
			t.Logf("%d damaged objects, of which %d are refused", inputs, refused)
			if refused > f.refused {
				t.Errorf("%d damaged objects are refused, want at most %d", refused, f.refused)
			}
		})
	}
}

// storedTexts are ways to store a text, which must not change what is read.
var storedTexts = [6]func(t *testing.T, name, text string) []byte{
	func(t *testing.T, _, text string) []byte { return compressed(t, "gzip", []byte(text)) },
	func(t *testing.T, _, text string) []byte { return compressed(t, "zstd", []byte(text)) },
	func(_ *testing.T, _, text string) []byte { return inUTF16(text) },
	func(t *testing.T, name, text string) []byte { return tarOf(t, name, text) },
	func(t *testing.T, name, text string) []byte { return zipOf(t, name, text) },
	func(t *testing.T, name, text string) []byte {
		return compressed(t, "gzip", tarOf(t, name, string(compressed(t, "gzip", []byte(text)))))
	},
}

// outcome is what is read of an object: the URLs of its rows, how many rejects it has, and the
// error that refuses it.
type outcome struct {
	urls    []string
	rejects int
	err     error
}

func outcomeOf(t *testing.T, name string, data []byte, opt raw.Options, how string) (o outcome) {
	t.Helper()
	r, err := New(bytes.NewReader(data), name, opt)
	for err == nil {
		var rec *raw.Record
		var rej *raw.Reject
		if rec, rej, err = r.Next(); rec != nil {
			o.urls = append(o.urls, string(rec.URL))
		} else if rej != nil {
			o.rejects++
			hasLines := r.Plan().Format != raw.WARC && r.Plan().Format != raw.ARC
			if hasLines && rej.Line < 1 || rej.Offset < 0 {
				t.Errorf("%s: the reject %+v has no place", how, rej)
			}
		}
	}
	if err != io.EOF {
		o.err = err
		if !hasPlace(err) {
			t.Errorf("%s: %v has no place", how, err)
		}
	}
	return o
}

// check checks what is read of an object whose byte at is damaged against the URLs of the
// whole one. At most one URL may be missing, and only with a reject or with rows that the
// damage made of it. Every other row must be wanted.
func (f recordFormat) check(t *testing.T, o outcome, want []string, damaged string, at int, how string) {
	t.Helper()
	missing, made := without(want, o.urls)
	// The damaged record is within a record's length of the damage.
	length := len(f.make(12)) - len(f.make(11))
	record := damaged[max(0, at-length):min(len(damaged), at+length)]
	lost := len(missing) - len(made) - o.rejects
	switch {
	case len(missing) > 1:
		t.Errorf("%s: %q are missing, with %d rejects and the rows %q:\n%s", how, missing, o.rejects, made, record)
	case lost <= 0:
	default:
		t.Errorf("%s: %q is missing without a reject:\n%s", how, missing, record)
	}
	for _, url := range made {
		ofURL := slices.ContainsFunc(missing, func(m string) bool { return isPart(url, m) })
		if !ofURL && (!f.cells || !strings.Contains(unescape.Replace(record), unescape.Replace(url))) {
			t.Errorf("%s: the row %q is of no record, %q is missing:\n%s", how, url, missing, record)
		}
	}
	if len(made) > 2 {
		t.Errorf("%s: the rows %q are of one record:\n%s", how, made, record)
	}
}

// without returns the wanted URLs that are not among the URLs, and the URLs that are not wanted.
func without(want, urls []string) (missing, made []string) {
	missing = slices.Clone(want)
	for _, url := range urls {
		if i := slices.Index(missing, url); i >= 0 {
			missing = slices.Delete(missing, i, i+1)
		} else {
			made = append(made, url)
		}
	}
	return missing, made
}

// unescape removes what escapes consist of.
var unescape = strings.NewReplacer(`"`, "", `\`, "")

// hasPlace reports whether an error refuses an object, or names the place where it is damaged.
func hasPlace(err error) bool {
	var fe *raw.FormatError
	var de *raw.DataError
	return errors.As(err, &fe) || errors.As(err, &de) && de.Line >= 0 && de.Offset >= 0
}

// isPart reports whether a is the beginning or the end of b with at most one byte more, or all of b
// with one byte more, less or replaced. An escape replaces two bytes by one.
func isPart(a, b string) bool {
	if a == "" || strings.HasPrefix(b, a[:len(a)-1]) || strings.HasSuffix(b, a[1:]) {
		return a != ""
	}
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return len(a) <= 1 && len(b) <= 2
}

// inUTF16 returns text in UTF-16 with a byte order mark.
func inUTF16(text string) []byte {
	out := []byte("\xff\xfe")
	for _, u := range utf16Of(text) {
		out = binary.LittleEndian.AppendUint16(out, u)
	}
	return out
}
