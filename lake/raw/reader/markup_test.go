package reader

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"

	"github.com/urlake/urlake/lake/raw"
)

const sitemap = `<?xml version="1.0" encoding="UTF-8"?>
<?xml-stylesheet type="text/xsl" href="/sitemap.xsl"?>
<!-- generator="x" <url><loc>http://commented.out/</loc></url> -->
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"
  xmlns:image="http://www.google.com/schemas/sitemap-image/1.1" xmlns:xhtml="http://www.w3.org/1999/xhtml">
<url>
  <loc>
    http://a.example/?x=1&amp;y=2
  </loc>
  <lastmod>2024-05-06T00:00:00+00:00</lastmod>
  <image:image><image:loc>http://a.example/i.png</image:loc></image:image>
  <xhtml:link rel="alternate" hreflang="de" href="http://a.example/de"/>
  <changefreq>daily</changefreq><priority>0.8</priority>
</url>
<url><loc><![CDATA[http://a.example/?a=1&b=2]]></loc></url>
<url><loc>http://a.example/&#228;?c=1&d=2</loc><lastmod>2024-05-06</lastmod></url>
<url></url>
</urlset>
`

const rss2 = `<?xml version="1.0"?>
<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom" xmlns:dc="http://purl.org/dc/elements/1.1/">
<channel><title>T</title><link>http://f.example/</link><atom:link href="http://f.example/rss" rel="self"/>
<image><url>http://f.example/i.png</url><link>http://f.example/</link></image>
<item><title>A &amp; B</title><link>http://f.example/1</link><atom:link href="http://f.example/x"/>
  <description><![CDATA[about <item><link>http://no/</link></item> in feeds]]></description>
  <pubDate>Mon, 06 May 2024 00:00:00 GMT</pubDate></item>
<item><guid isPermaLink="true">http://f.example/2</guid><pubDate>Sun, 05 May 2024 20:00:00 EDT</pubDate></item>
<item><guid isPermaLink="false">http://f.example/3</guid></item>
<item><link>http://f.example/4</link><dc:date>2024-05-06</dc:date></item>
</channel></rss>
`

const rss1 = `<?xml version="1.0"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/" xmlns:dc="http://purl.org/dc/elements/1.1/">
<channel rdf:about="http://f.example/"><link>http://f.example/</link></channel>
<item rdf:about="http://f.example/1"><title>A</title><link>http://f.example/1</link><dc:date>2024-05-06T00:00:00Z</dc:date></item>
</rdf:RDF>
`

const atomFeed = `<?xml version="1.0" encoding="utf-8"?>
<feed xmlns="http://www.w3.org/2005/Atom" xml:base="http://f.example/a/">
<title>T</title><link href="http://f.example/"/><link rel="self" href="/feed"/>
<entry><title type="xhtml"><div><b>x</b></div></title><link rel="edit" href="/edit/1"/><link href="1"/>
  <published>2024-05-05T00:00:00Z</published><updated>2024-05-06T00:00:00Z</updated></entry>
<entry xml:base="http://g.example/"><link rel='alternate' type="text/html" href="/2"/><published>2024-05-06T00:00:00Z</published></entry>
<entry><id>urn:uuid:1</id></entry>
</feed>
`

const opml = `<?xml version="1.0"?>
<opml version="2.0"><head><title>T</title></head><body>
<outline text="Folder">
  <outline type="rss" text="A" xmlUrl="http://a.example/rss?a=1&amp;b=2" htmlUrl="http://a.example/"/>
  <outline type="rss" text="B > C" xmlUrl="http://b.example/rss"/>
  <outline text="L" type="link" url="http://c.example/"></outline>
  <outline type="rss" text="none"/>
</outline>
</body></opml>
`

const bookmarks = `<!DOCTYPE NETSCAPE-Bookmark-file-1>
<!-- This is an automatically generated file.
     DO NOT EDIT! -->
<META HTTP-EQUIV="Content-Type" CONTENT="text/html; charset=UTF-8">
<TITLE>Bookmarks</TITLE>
<H1>Bookmarks</H1>
<DL><p>
    <DT><H3 ADD_DATE="1" LAST_MODIFIED="2">Folder</H3>
    <DL><p>
        <DT><A HREF="http://a.example/?a=1&amp;b=2" ADD_DATE="1714953600" ICON="data:image/png;base64,AA==">A <b>&amp;</b> B</A>
        <DD>About <i>it</i>
        <DT><A HREF="javascript:document.write('<a href=x>')" ADD_DATE="1714953600">js</A>
    </DL><p>
    <HR>
    <DT><a add_date='1714953600' href='http://b.example/' tags="x,y">b
    <DT><A>none</A>
</DL><p>
`

const timeMap = `<http://a.example/?a,b>; rel="original",
<http://w.example/timemap/link/http://a.example/?a,b>; rel="self"; type="application/link-format"; from="Mon, 06 May 2024 00:00:00 GMT",
<http://w.example/http://a.example/?a,b>
  ; rel="timegate",
<http://w.example/20240506000000/http://a.example/?a,b>; rel="first memento"; datetime="Mon, 06 May 2024 00:00:00 GMT",
<http://w.example/20240507000000/http://a.example/?a,b>; datetime="Tue, 07 May 2024 00:00:00 GMT"; rel=memento
, <http://w.example/20240508000000/http://a.example/?a,b>;rel="last memento";datetime="Wed, 08 May 2024 00:00:00 GMT"
`

const triples = `# comment
<http://a.example/s> <http://p.example/p> <http://b.example/o> .
_:b <http://p.example/p> "a \"literal\" . <http://no/>"@en-US .
<http://a.example/s\u00e4> <http://p.example/p> "5"^^<http://www.w3.org/2001/XMLSchema#int> . # c

<http://a.example/x> <http://p.example/p> _:c.
_:c <http://p.example/p> <urn:x:y> <http://g.example/> .
`

func TestMarkupIsRead(t *testing.T) {
	const day = " ts=1714953600000"
	next := func(days int64) string { return fmt.Sprintf(" ts=%d", 1714953600000+days*86400000) }
	all := raw.Options{Extras: []string{"*"}}
	for _, tc := range []struct {
		name, text string
		opt        raw.Options
		format     string
		want       []string
		counts     raw.Counts
	}{
		{"sitemap", sitemap, raw.Options{}, raw.Sitemap, []string{"6 http://a.example/?x=1&y=2" + day,
			"15 http://a.example/?a=1&b=2", "16 http://a.example/ä?c=1&d=2" + day, "17 !no_url"}, raw.Counts{}},
		{"sitemap with another prefix", `<s:urlset xmlns:s="x"><s:url><s:loc>http://a/</s:loc></s:url></s:urlset>`,
			raw.Options{}, raw.Sitemap, []string{"1 http://a/"}, raw.Counts{}},
		{"all of a sitemap", sitemap, all, raw.Sitemap, []string{
			`6 http://a.example/?x=1&y=2` + day + ` {"changefreq":"daily","priority":"0.8"}`,
			"15 http://a.example/?a=1&b=2", "16 http://a.example/ä?c=1&d=2" + day, "17 !no_url"}, raw.Counts{}},
		{"sitemap index", "<sitemapindex><sitemap><loc>http://a/1.xml.gz</loc><lastmod>2024-05-06</lastmod></sitemap></sitemapindex>",
			raw.Options{}, raw.Sitemap, []string{"1 http://a/1.xml.gz" + day}, raw.Counts{}},
		{"joined sitemaps", sitemap + sitemap, raw.Options{TSColumn: raw.None}, raw.Sitemap, []string{
			"6 http://a.example/?x=1&y=2", "15 http://a.example/?a=1&b=2", "16 http://a.example/ä?c=1&d=2", "17 !no_url",
			"24 http://a.example/?x=1&y=2", "33 http://a.example/?a=1&b=2", "34 http://a.example/ä?c=1&d=2", "35 !no_url"}, raw.Counts{}},
		{"an empty sitemap", "<urlset/>", raw.Options{}, raw.Sitemap, nil, raw.Counts{}},
		{"RSS 2.0", rss2, raw.Options{}, raw.RSS, []string{"5 http://f.example/1" + day, "8 http://f.example/2" + day,
			"9 !no_url", "10 http://f.example/4" + day}, raw.Counts{}},
		{"titles of RSS", rss2, raw.Options{Extras: []string{"title"}}, raw.RSS, []string{`5 http://f.example/1` + day + ` {"title":"A & B"}`,
			"8 http://f.example/2" + day, "9 !no_url", "10 http://f.example/4" + day}, raw.Counts{}},
		{"RSS 1.0", rss1, raw.Options{}, raw.RSS, []string{"4 http://f.example/1" + day}, raw.Counts{}},
		{"Atom", atomFeed, raw.Options{}, raw.Atom, []string{"4 http://f.example/a/1" + day, "6 http://g.example/2" + day, "7 !no_url"}, raw.Counts{}},
		{"when Atom was published", atomFeed, raw.Options{TSColumn: "published"}, raw.Atom, []string{
			"4 http://f.example/a/1" + next(-1), "6 http://g.example/2" + day, "7 !no_url"}, raw.Counts{}},
		{"Atom with a prefix", `<a:feed xmlns:a="http://www.w3.org/2005/Atom"><a:entry><a:link href="http://a/"/></a:entry></a:feed>`,
			raw.Options{}, raw.Atom, []string{"1 http://a/"}, raw.Counts{}},
		{"OPML", opml, raw.Options{}, raw.OPML, []string{"4 http://a.example/", "5 http://b.example/rss", "6 http://c.example/",
			"7 !no_url"}, raw.Counts{Comments: 1}},
		{"feeds of OPML", opml, raw.Options{URLColumn: "xmlUrl"}, raw.OPML, []string{"4 http://a.example/rss?a=1&b=2",
			"5 http://b.example/rss", "6 !no_url", "7 !no_url"}, raw.Counts{Comments: 1}},
		{"bookmarks", bookmarks, raw.Options{Extras: []string{"title", "tags"}}, raw.Bookmarks, []string{
			`10 http://a.example/?a=1&b=2` + day + ` {"title":"A & B"}`,
			`12 javascript:document.write('<a href=x>')` + day + ` {"title":"js"}`,
			`15 http://b.example/` + day + ` {"tags":"x,y","title":"b"}`, "16 !no_url"}, raw.Counts{}},
		{"bookmarks of Google", `<HTML>
<META HTTP-EQUIV="Content-Type" CONTENT="text/html; charset=UTF-8">
<TITLE>Bookmarks</TITLE><LINK HREF="a.css">
<H1>Bookmarks</H1>
<DL><p>
<DT><H3 ADD_DATE="1523996194943160">Unlabeled</H3>
<DL><p>
<DT><A HREF="http://a/" ADD_DATE="1714953600000000">a</A>
</DL><p>
</DL><p>
</HTML>
`, raw.Options{}, raw.Bookmarks, []string{"8 http://a/" + day}, raw.Counts{}},
		{"Pocket", `<!DOCTYPE html><html><head><title>Pocket Export</title></head><body><ul>
<li><a href="http://a/" time_added="1714953600" tags="">a</a></li></ul></body></html>`, raw.Options{}, raw.Bookmarks,
			[]string{"2 http://a/" + day}, raw.Counts{}},
		{"broken quotes", `<html><title>Pocket Export</title><ul>
<li><a href="http://a/ time_added="1714953600">a</a></li>
<li><a href="http://b/>b</a></li>
<li><a href="http://c/" tags="a "b" c">c</a></li>
<li><ahref='http://d/'>d</a></li><li><b href='http://e/'>e</a></li>
<li><a href=http://f/'>f</a></li>
<li><a href=http://g/ tags="'">g</a></li>
<li><a href="http://h/?q=&quot;h&quot;">h</a></li>
</ul>`, raw.Options{}, raw.Bookmarks, []string{"2 !bad_markup", "3 !bad_markup", "4 http://c/", "5 !bad_markup", "5 !bad_markup",
			"6 !bad_markup", "7 http://g/", `8 http://h/?q="h"`}, raw.Counts{}},
		{"broken outlines", `<opml><head xml:url="x"/><body><outline text="text" xmlUrl="http://a/"/>
<outline xmlUrl>"http://b/"/>
<outlines xmlUrl="http://c/"/><<outlin type="rss" htmlUrl='http://d/'/>
>outline url="http://e/"/>
<outline text="an <a href="http://x/">unescaped</a> link" xmlUrl="http://f/"/></body></opml>`, raw.Options{}, raw.OPML,
			[]string{"1 http://a/", "2 !bad_markup", "3 !bad_markup", "3 !bad_markup", "4 !bad_markup", "5 !bad_markup"}, raw.Counts{}},
		{"TimeMap", timeMap, raw.Options{}, raw.TimeMap, []string{"5 http://a.example/?a,b" + day,
			"6 http://a.example/?a,b" + next(1), "7 http://a.example/?a,b" + next(2)}, raw.Counts{Comments: 3}},
		{"mementos", timeMap, raw.Options{URLColumn: "memento", TSColumn: raw.None}, raw.TimeMap, []string{
			"5 http://w.example/20240506000000/http://a.example/?a,b", "6 http://w.example/20240507000000/http://a.example/?a,b",
			"7 http://w.example/20240508000000/http://a.example/?a,b"}, raw.Counts{Comments: 3}},
		{"N-Quads", triples, raw.Options{}, raw.NTriples, []string{"2 http://a.example/s", "2 http://b.example/o",
			"4 http://a.example/sä", "6 http://a.example/x", "7 urn:x:y", "7 http://g.example/"}, raw.Counts{Blank: 2, Comments: 1}},
		{"objects", triples, raw.Options{URLColumn: "object"}, raw.NTriples, []string{"2 http://b.example/o", "7 urn:x:y"},
			raw.Counts{Blank: 4, Comments: 1}},
		{"two statements a line", strings.Replace(triples, ".\n_:b", "._:b", 1), raw.Options{URLColumn: "subject"}, raw.NTriples,
			[]string{"2 http://a.example/s", "3 http://a.example/sä", "5 http://a.example/x"}, raw.Counts{Blank: 3, Comments: 1}},
	} {
		utf16, err := unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewEncoder().String(tc.text)
		if err != nil {
			t.Fatal(err)
		}
		for how, data := range map[string]string{
			"as it is": tc.text, "CRLF": strings.ReplaceAll(tc.text, "\n", "\r\n"), "UTF-16": utf16, "BOM": "\ufeff" + tc.text,
			"gzip": string(compressed(t, "gzip", []byte(tc.text))), "zstd": string(compressed(t, "zstd", []byte(tc.text))),
		} {
			t.Run(tc.name+", "+how, func(t *testing.T) {
				g, plan := read(t, "a", data, tc.opt)
				if plan.Format != tc.format {
					t.Errorf("read as %s", plan.Format)
				}
				if diff := cmp.Diff(tc.want, g.Rows); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				g.Counts.Records, g.Counts.Rejects = 0, 0
				if strings.Contains(tc.name, "sitemap") {
					g.Counts.Comments = 0
				}
				if diff := cmp.Diff(tc.counts, g.Counts); diff != "" {
					t.Errorf("counts (-want +got):\n%s", diff)
				}
				checkReader(t, "a", []byte(data), tc.opt)
				if how == "as it is" {
					checkReader(t, "a", []byte(data), raw.Options{Format: tc.format})
				}
			})
		}
	}
}

func TestDeclaredEncodingsOfXMLAreRead(t *testing.T) {
	for label, encoding := range map[string]*charmap.Charmap{"ISO-8859-1": charmap.Windows1252, "windows-1251": charmap.Windows1251} {
		doc := `<?xml version="1.0" encoding="` + label + `"?><urlset><url><loc>http://a/%s</loc></url></urlset>`
		want := "http://a/é"
		if encoding == charmap.Windows1251 {
			want = "http://a/ж"
		}
		data, err := encoding.NewEncoder().String(strings.Replace(doc, "http://a/%s", want, 1))
		if err != nil {
			t.Fatal(err)
		}
		g, _ := read(t, "a.xml", data, raw.Options{})
		if diff := cmp.Diff([]string{"1 " + want}, g.Rows); diff != "" {
			t.Errorf("%s: -want +got:\n%s", label, diff)
		}
		checkReader(t, "a.xml", []byte(data), raw.Options{})
	}
	g, _ := read(t, "a.xml", "<urlset><url><loc>http://a/\xe9</loc></url><url><loc>http://b/</loc></url></urlset>", raw.Options{})
	if diff := cmp.Diff([]string{"1 !bad_markup", "1 http://b/"}, g.Rows); diff != "" {
		t.Errorf("a byte that is no UTF-8: -want +got:\n%s", diff)
	}
}

func TestRecordsOfAnySizeTakeBoundedMemory(t *testing.T) {
	const n = 1 << 17
	for name, tc := range map[string]struct {
		text    string
		records int64
		reason  string // of all rejects
		rejects int64
	}{
		"comments that do not end": {"<urlset>" + strings.Repeat("<!--<url>", n) + "</urlset>", 0, raw.BadMarkup, n + 1},
		"sections that do not end": {"<rss><item><link>http://a/</link>" + strings.Repeat("<![CDATA[<item>", n) + "</rss>", 0, raw.BadMarkup, n + 1},
		"tags that do not end":     {"<urlset>" + strings.Repeat("<url a='", n) + "</urlset>", 0, raw.BadMarkup, n},
		// A link of another relation is no record.
		"links that do not end": {`<http://a/>; rel="original",` + strings.Repeat("<http://b/>; rel=x ", n), 0, "", 0},
		"one long record":       {"<urlset><url><loc>http://b/" + strings.Repeat("x", 3<<20) + "</loc></url><url><loc>http://a/</loc></url></urlset>", 1, raw.TooLong, 1},
		"deep":                  {"<urlset><url>" + strings.Repeat("<a>", n) + "</url></urlset>", 0, raw.BadMarkup, 1},
	} {
		got := allocated(func() {
			r, err := New(strings.NewReader(tc.text), "a", raw.Options{MaxLine: 1 << 20})
			for err == nil {
				var rej *raw.Reject
				if _, rej, err = r.Next(); rej != nil && rej.Reason != tc.reason {
					t.Fatalf("%s: a reject for %s", name, rej.Reason)
				}
			}
			if err != io.EOF {
				t.Fatalf("%s: %v", name, err)
			}
			if c := r.Counts(); c.Records != tc.records || c.Rejects != tc.rejects {
				t.Errorf("%s: %+v, want %d records and %d rejects", name, c, tc.records, tc.rejects)
			}
		})
		// A reject is some hundred bytes, and none are kept.
		if most := uint64(8<<20 + tc.rejects*300); got > most {
			t.Errorf("%s: allocated %d KiB, want at most %d", name, got>>10, most>>10)
		}
	}
}

func TestMarkupThatIsNotReadIsNamed(t *testing.T) {
	for _, tc := range []struct{ text, reason, advice string }{
		{"<!DOCTYPE html><html><a href='http://a/'>", "HTML", "lynx"},
		{"<HTML><a href='http://a/'>", "HTML", "lynx"},
		{"<META charset=utf-8><dl><dt><a href='http://a/'>a</a></dl>", "HTML", "lynx"},
		{"<?xml version='1.0'?><kml xmlns='http://www.opengis.net/kml/2.2'><a/></kml>", `"kml"`, "grep"},
		{"<?xml version='1.0'?><!DOCTYPE urlset [ <!ENTITY a 'b'> ]><urlset/>", "entities", "xmllint"},
		{"<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'><a/></rdf:RDF>", "RDF", "rapper"},
		{"<?xml version='1.0'?><plist version='1.0'><dict/></plist>", "property list", "plutil"},
		{"<?xml version='1.0' encoding='ebcdic-x'?><urlset/>", "ebcdic-x", "iconv"},
		{`<http://a/1>; rel="memento"; datetime="Mon, 06 May 2024 00:00:00 GMT"`, "original", "--unwrap"},
	} {
		_, err := New(strings.NewReader(tc.text), "a", raw.Options{})
		var fe *raw.FormatError
		if !errors.As(err, &fe) || !strings.Contains(fe.Reason, tc.reason) || !strings.Contains(fe.Advice, tc.advice) {
			t.Errorf("%.40q: %v, want %q and %q", tc.text, err, tc.reason, tc.advice)
		}
	}
	for _, format := range raw.MarkupFormats {
		for other, text := range map[string]string{raw.Sitemap: sitemap, raw.RSS: rss2, raw.Bookmarks: bookmarks, "html": "<html>"} {
			if format == other || format == raw.NTriples {
				continue
			}
			if _, err := New(strings.NewReader(text), "a", raw.Options{Format: format}); !errors.Is(err, raw.ErrInput) {
				t.Errorf("%s as %s: %v", other, format, err)
			}
		}
	}
	r, err := New(strings.NewReader("<sitemapindex></sitemapindex>"), "a", raw.Options{})
	if err != nil || len(r.Notes()) != 1 || !strings.Contains(r.Notes()[0], "sitemap index") {
		t.Errorf("notes of a sitemap index: %v, %v", r.Notes(), err)
	}
	if _, err := New(bytes.NewReader([]byte("<?xml version='1.0'?>")), "a", raw.Options{}); !errors.Is(err, raw.ErrInput) {
		t.Errorf("XML of nothing: %v", err)
	}
}
