package reader

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/unpack"
)

// TestCases reads small inputs made after reports about other programs.
func TestCases(t *testing.T) {
	root := testenv.Shared(t, "cases")
	for _, tc := range []struct {
		file    string
		records int64
		rows    []string // the first ones
	}{
		{"times-of-reduced-precision/year.csv", 200,
			[]string{"2 https://site1.example.org/p ts=820454400000", "3 https://site2.example.org/p ts=852076800000"}},
		{"times-of-reduced-precision/variableSizedDates.warc", 4, []string{
			`0 http://memento.us/ ts=1388534400000`}},
		{"tabs-between-urls/aria2.txt", 117, []string{"1 https://site1.example.org/p1",
			"1 http://mirror.example.net/p1", "2 out=f1"}},
		{"trailing-comment/seeds2.txt", 20, []string{"1 https://a1.example.org/", "2 https://b1.example.org/x"}},
		{"several-urls-in-a-cell/w3act.csv", 200, []string{
			"2 http://a1.example.org/ ts=1374505321000", "2 https://b1.example.net/ ts=1374505321000",
			"2 https://c1.example.com/x ts=1374505321000", "3 http://a2.example.org/ ts=1374505322000"}},
		{"reversed-hosts/ranks.txt", 399, []string{"2 alw.ac", "3 bullseye.ac", "4 blog.can.ac"}},
	} {
		t.Run(tc.file, func(t *testing.T) {
			object, err := os.ReadFile(filepath.Join(root, tc.file))
			if err != nil {
				t.Fatal(err)
			}
			r, err := New(bytes.NewReader(object), tc.file, raw.Options{Extras: []string{raw.None}})
			if err != nil {
				t.Fatal(err)
			}
			g, err := readAll(r)
			if c := g.Counts; err != nil || c.Records != tc.records || c.Rejects > 0 || c.BadTS > 0 {
				t.Errorf("%+v, error %v; want %d records", g.Counts, err, tc.records)
			}
			if diff := cmp.Diff(tc.rows, g.Rows[:len(tc.rows)]); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			checkReader(t, tc.file, object, raw.Options{})
		})
	}
}

// TestSeveralURLs checks which texts are one URL, and how others are cut, in every format with
// fields of text.
func TestSeveralURLs(t *testing.T) {
	for _, tc := range []struct {
		field string
		want  []string
	}{
		{"http://a.com/,http://b.com/", []string{"http://a.com/", "http://b.com/"}},
		{"http://a.com/; https://b.com/x ;ftp://c.com/", []string{"http://a.com/", "https://b.com/x", "ftp://c.com/"}},
		{"http://a.com/|HTTP://b.com/", []string{"http://a.com/", "HTTP://b.com/"}},
		{"http://a.com/ http://b.com/,", []string{"http://a.com/", "http://b.com/"}},
		{"http://a.com/?x=1,http://b.com/", []string{"http://a.com/?x=1", "http://b.com/"}},
		{"a.com/x, http://b.com/", []string{"a.com/x", "http://b.com/"}},
		{"http://a.com/x,y;z|w", []string{"http://a.com/x,y;z|w"}},
		{"https://web.archive.org/web/2016/http://x.com/", []string{"https://web.archive.org/web/2016/http://x.com/"}},
		{"https://web.archive.org/web/2016/http://x.com/;https://web.archive.org/web/2016/http://y.com/",
			[]string{"https://web.archive.org/web/2016/http://x.com/", "https://web.archive.org/web/2016/http://y.com/"}},
		{"http://a.com/?u=http://b.com/", []string{"http://a.com/?u=http://b.com/"}},
		{"http://a.com/?urls=http://b.com/,http://c.com/", []string{"http://a.com/?urls=http://b.com/,http://c.com/"}},
		{"http://a.com/?u=http://b.com/ http://c.com/", []string{"http://a.com/?u=http://b.com/", "http://c.com/"}},
		{"http://a.com/x#y", []string{"http://a.com/x#y"}},
		{"http://a.com/x # main site", []string{"http://a.com/x"}},
		{"http://a.com/My file.pdf", []string{"http://a.com/My file.pdf"}},
		{"http://a.com/?q=two words", []string{"http://a.com/?q=two words"}},
		{"http://a.com/#two words", []string{"http://a.com/#two words"}},
		{"http://a.com/2015/2/gold medal bill", []string{"http://a.com/2015/2/gold medal bill"}},
		{"http://bücher.example/ä ö", []string{"http://bücher.example/ä ö"}},
		{"http://a.com/wiki/条目 名字", []string{"http://a.com/wiki/条目 名字"}},
		{"http://a.com/11/rep. a launches #b", []string{"http://a.com/11/rep. a launches #b"}},
		{"http://a.com/11/rep. a launches # b", []string{"http://a.com/11/rep. a launches"}},
		{"http://a.com/x #b", []string{"http://a.com/x"}},
		{"http://a.com/x #b c http://d.com/", []string{"http://a.com/x"}},
		{"http://a.com/4/climate change hearing, full committee", []string{"http://a.com/4/climate change hearing, full committee"}},
		{"http://a.com/4/climate change hearing, b.com", []string{"!several_urls"}},
		{"http://a.com/4/climate change hearing; full committee", []string{"!several_urls"}},
		{"http://a.com/4/climate, hearing", []string{"!several_urls"}},
		{"http://a.com/6/this week: telephone town hall", []string{"http://a.com/6/this week: telephone town hall"}},
		{"http://a.com/p/Harp &amp; Vesselinov 2011.pdf", []string{"http://a.com/p/Harp &amp; Vesselinov 2011.pdf"}},
		{"http://a.com/8/visit to b  with c", []string{"http://a.com/8/visit to b  with c"}},
		{"http://a.com/8/visit  with c", []string{"!text_after_url"}},
		{"http://a.com/x.htm ;", []string{"http://a.com/x.htm"}},
		{"http://a.com/x.htm;", []string{"http://a.com/x.htm;"}},
		{"http://a.com/news/ESI CR Information 2016", []string{"http://a.com/news/ESI CR Information 2016"}},
		{"http://a.com/xhttp://b.com/y", []string{"http://a.com/x", "http://b.com/y"}},
		{"http://a.com/%2Fhttp://b.com/y", []string{"http://a.com/%2Fhttp://b.com/y"}},
		{"http://a.com/ Our page", []string{"!text_after_url"}},
		{"http://a.com/x  Our page.html", []string{"!text_after_url"}},
		{"http://a.com/x (archived)", []string{"!text_after_url"}},
		{"http://a.com/x www.b.com/y", []string{"!several_urls"}},
		{"http://a.com/ Our page http://b.com/", []string{"!text_after_url", "http://b.com/"}},
		{"http://a.com/x and http://b.com/y", []string{"http://a.com/x", "http://b.com/y"}},
		{"http://a.com/x / http://b.com/y", []string{"http://a.com/x", "http://b.com/y"}},
		{"http://a.com/x -> http://b.com/y", []string{"http://a.com/x", "http://b.com/y"}},
		{"http://a.com/x->http://b.com/y", []string{"http://a.com/x", "http://b.com/y"}},
		{"http://a.com/x → http://b.com/y", []string{"http://a.com/x", "http://b.com/y"}},
		{"http://a.com/x、http://b.com/y", []string{"http://a.com/x", "http://b.com/y"}},
		{"http://a.com/x (http://b.com/y)", []string{"http://a.com/x", "http://b.com/y"}},
		{"http://a.com/x (http://b.com/y), (http://c.com/z)", []string{"http://a.com/x", "http://b.com/y", "http://c.com/z"}},
		{"http://a.com/x<br>http://b.com/y<br />", []string{"http://a.com/x", "http://b.com/y"}},
		{"http://a.com/x\u00a0http://b.com/y", []string{"http://a.com/x", "http://b.com/y"}},
		{"http://a.com/x\u2028http://b.com/y", []string{"http://a.com/x", "http://b.com/y"}},
		{`http://a.com/x\nhttp://b.com/y`, []string{"http://a.com/x", "http://b.com/y"}},
		{`http://a.com/x\r\nhttp://b.com/y\r\n`, []string{"http://a.com/x", "http://b.com/y"}},
		{"[http://a.com/x, http://b.com/y]", []string{"http://a.com/x", "http://b.com/y"}},
		{"['http://a.com/x', 'http://b.com/y']", []string{"http://a.com/x", "http://b.com/y"}},
		{"{http://a.com/x,http://b.com/y}", []string{"http://a.com/x", "http://b.com/y"}},
		{"[http://a.com/x](http://b.com/y)", []string{"http://a.com/x", "http://b.com/y"}},
		{"<http://a.com/x> <http://b.com/y>", []string{"http://a.com/x", "http://b.com/y"}},
		{"- http://a.com/x", []string{"http://a.com/x"}},
		{"https://en.wikipedia.org/wiki/X_(y), http://b.com/z_(w)", []string{"https://en.wikipedia.org/wiki/X_(y)", "http://b.com/z_(w)"}},
		{"http://a.com/x http://b.com/?u=http://c.com/", []string{"http://a.com/x", "http://b.com/?u=http://c.com/"}},
		{"http://a.com/My file.pdf, http://b.com/y", []string{"http://a.com/My file.pdf", "http://b.com/y"}},
		{"http://a.com/x see http://b.com/y", []string{"!text_after_url", "http://b.com/y"}},
		{"<http://a.com/x>; rel=next, <http://b.com/y>", []string{"!several_urls", "http://b.com/y"}},
		{"http://a.com/xhttp://b.com/y", []string{"http://a.com/x", "http://b.com/y"}},
		{`<a href='http://a.com/x'>title</a>`, []string{"!several_urls"}},
		{"http://https://a.com/x", []string{"https://a.com/x"}},
		{"http://a.com/x http://http://b.com/", []string{"http://a.com/x", "http://b.com/"}},
		{"[[http://a.com/x][title 1]]", []string{"!text_after_url"}},
		{"<http://a.com/x|title 1>", []string{"!text_after_url"}},
		{"http://a.com/?q=a|b c", []string{"http://a.com/?q=a|b c"}},
		{"http://a.com/f('http://b.com/y')", []string{"!several_urls"}},
		{"http://a.com/x; n/a", []string{"!several_urls"}},
		{"http://a.com/x, b.com/y", []string{"!several_urls"}},
		{"http://a.com/x b.com/y", []string{"!several_urls"}},
		{"http://a.com/x; mailto:q@b.org", []string{"!several_urls"}},
		{"http://a.com/x mailto:q@b.org", []string{"!text_after_url"}},
		{"http://a.com/?u=(http://b.com/)", []string{"http://a.com/?u=(http://b.com/)"}},
		{"http://a.com/?u=xhttp://b.com/", []string{"http://a.com/?u=xhttp://b.com/"}},
		{"http://proxy.com/http://b.com/http://c.com/", []string{"http://proxy.com/http://b.com/http://c.com/"}},
		{"http://a.com/r%3Dhttp://b.com/", []string{"http://a.com/r%3Dhttp://b.com/"}},
		{"http://a.com/S=1/*http://b.com/", []string{"http://a.com/S=1/*http://b.com/"}},
		{"http://a.com/web/2016id_/http://b.com/", []string{"http://a.com/web/2016id_/http://b.com/"}},
		{"view-source:http://a.com/", []string{"view-source:http://a.com/"}},
	} {
		quoted, err := json.Marshal(tc.field)
		if err != nil {
			t.Fatal(err)
		}
		for name, object := range map[string]string{
			"a.txt":      "http://x.com/1\nhttp://x.com/2\n" + tc.field + "\n",
			"crlf.txt":   "http://x.com/1\r\nhttp://x.com/2\r\n" + tc.field + "\r\n",
			"a.csv":      "id,url\n1,http://x.com/1\n2,http://x.com/2\n3,\"" + tc.field + "\"\n",
			"a.tsv":      "id\turl\n1\thttp://x.com/1\n2\thttp://x.com/2\n3\t" + tc.field + "\n",
			"a.jsonl":    "{\"url\":\"http://x.com/1\"}\n{\"url\":\"http://x.com/2\"}\n{\"url\":" + string(quoted) + "}\n",
			"a.json":     "[\"http://x.com/1\",\"http://x.com/2\"," + string(quoted) + "]",
			"utf16.txt":  "",
			"single.csv": "url\nhttp://x.com/1\nhttp://x.com/2\n\"" + tc.field + "\"\n",
		} {
			if name == "utf16.txt" {
				object = "\xff\xfe"
				for _, c := range utf16.Encode([]rune("http://x.com/1\nhttp://x.com/2\n" + tc.field + "\n")) {
					object += string([]byte{byte(c), byte(c >> 8)})
				}
			}
			r, err := New(strings.NewReader(object), name, raw.Options{})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			g, err := readAll(r)
			var got []string
			for _, row := range g.Rows {
				_, url, _ := strings.Cut(row, " ")
				got = append(got, url)
			}
			if diff := cmp.Diff(append([]string{"http://x.com/1", "http://x.com/2"}, tc.want...), got); diff != "" || err != nil {
				t.Errorf("%s, %q: error %v, records (-want +got):\n%s", name, tc.field, err, diff)
			}
			checkReader(t, name, []byte(object), raw.Options{})
		}
	}
}

// TestMembersWithoutALastLineFeed joins compressed lists. A list that is compressed in pieces goes
// on.
func TestMembersWithoutALastLineFeed(t *testing.T) {
	var object []byte
	for _, member := range []string{"http://a.com/", "http://b.com/\nhttp://c", ".com/x ", "http://d.com/?u=", "e, http://f.com/ http://g.com/",
		"HTTPS://h.com/", "\nhttp://i.com/"} {
		object = append(object, compressed(t, "gzip", []byte(member))...)
	}
	g, _ := read(t, "a.txt.gz", string(object), raw.Options{})
	want := []string{"1 http://a.com/", "1 http://b.com/", "2 http://c.com/x", "2 http://d.com/?u=e", "2 http://f.com/", "2 http://g.com/",
		"2 HTTPS://h.com/", "3 http://i.com/"}
	if diff := cmp.Diff(want, g.Rows); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	checkReader(t, "a.txt.gz", object, raw.Options{})
}

// TestSeveralURLsAlike holds that the URLs of a field have the rest of its record in common.
func TestSeveralURLsAlike(t *testing.T) {
	text := "url,date,note\n\"http://a.com/\nhttp://b.com/\",2024-05-06,x\nhttp://c.com/,2024-05-07,y\n"
	g, _ := read(t, "a.csv", text, raw.Options{Extras: []string{"note"}})
	want := []string{`2 http://a.com/ ts=1714953600000 {"note":"x"}`, `2 http://b.com/ ts=1714953600000 {"note":"x"}`,
		`4 http://c.com/ ts=1715040000000 {"note":"y"}`}
	if diff := cmp.Diff(want, g.Rows); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// TestWordsBehindURLs holds that words behind most URLs make a list a table.
func TestWordsBehindURLs(t *testing.T) {
	g, plan := read(t, "a.txt", "http://a.com/x The first page\nhttp://b.com/ Second\nhttp://c.com/\nhttp://d.com/y\tA fourth\n", raw.Options{})
	want := []string{"1 http://a.com/x", "2 http://b.com/", "3 http://c.com/", "4 http://d.com/y"}
	if diff := cmp.Diff(want, g.Rows); diff != "" || plan.Format != raw.Spaced {
		t.Errorf("format %s, records (-want +got):\n%s", plan.Format, diff)
	}
}

// TestTitlesBehindURLs holds that words on most lines are a table even if they might be a path.
func TestTitlesBehindURLs(t *testing.T) {
	g, plan := read(t, "a.txt", "http://a.com/x the first page\nhttp://b.com/y the second\nhttp://c.com/z\n", raw.Options{})
	want := []string{"1 http://a.com/x", "2 http://b.com/y", "3 http://c.com/z"}
	if diff := cmp.Diff(want, g.Rows); diff != "" || plan.Format != raw.Spaced {
		t.Errorf("format %s, records (-want +got):\n%s", plan.Format, diff)
	}
}

// TestHosts holds which names without a scheme are hosts.
func TestHosts(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		opt        raw.Options
		want       []string // the records, or the reason of the refusal
	}{
		{"hosts", "example.com\nwww.kb.dk/x\n192.0.2.1\nбиблиотека.рф\n", raw.Options{}, []string{"1 example.com", "2 www.kb.dk/x", "3 192.0.2.1", "4 библиотека.рф"}},
		{"private", "a.local\nb.onion\nwiki.corp\n", raw.Options{}, []string{"1 a.local", "2 b.onion", "3 wiki.corp"}},
		{"files", "report.pdf\nindex.html\nimg/a.jpg\n", raw.Options{}, []string{`names such as "report.pdf"`}},
		{"files, BOM", "\ufeffreport.pdf\r\nindex.html\r\n", raw.Options{}, []string{`names such as "report.pdf"`}},
		{"an intranet", "wiki.acme\nmail.acme\n", raw.Options{}, []string{`names such as "wiki.acme"`}},
		{"an intranet by flag", "wiki.acme\nmail.acme\n", raw.Options{Format: raw.Lines}, []string{"1 wiki.acme", "2 mail.acme"}},
		{"an intranet with schemes", "http://wiki.acme/\nhttp://mail/\n", raw.Options{}, []string{"1 http://wiki.acme/", "2 http://mail/"}},
		{"files in a column of URLs", "url,n\nreport.pdf,1\nindex.html,2\n", raw.Options{}, []string{`names such as "report.pdf"`}},
		{"that is named", "url,n\nreport.pdf,1\nindex.html,2\n", raw.Options{URLColumn: "url"}, []string{"2 report.pdf", "3 index.html"}},
		{"files in a table", "name,size\nreport.pdf,1\nindex.html,2\n", raw.Options{Format: raw.CSV}, []string{"no column"}},
		{"reversed", "com.example.www\norg.wikipedia.en\nac.can.blog\n", raw.Options{}, []string{"1 www.example.com", "2 en.wikipedia.org", "3 blog.can.ac"}},
		{"reversed, by flag", "com.example.www\norg.wikipedia.en\n", raw.Options{Format: raw.Lines}, []string{"1 com.example.www", "2 org.wikipedia.en"}},
		{"vertices", "0\tcom.example.www\n1\torg.wikipedia.en\n", raw.Options{}, []string{"1 www.example.com", "2 en.wikipedia.org"}},
		{"vertices between blanks", "0 com.example.www\n1 org.wikipedia.en\n", raw.Options{}, []string{"1 www.example.com", "2 en.wikipedia.org"}},
		{"reversed in JSON", `{"host_rev":"com.example.www","n":"x"}` + "\n" + `{"host_rev":"org.wikipedia.en","n":"y"}` + "\n", raw.Options{},
			[]string{"1 www.example.com", "2 en.wikipedia.org"}},
		{"reversed beside hosts", `{"host_rev":"com.example.www","host":"www.example.com"}` + "\n" + `{"host_rev":"org.wikipedia.en","host":"en.wikipedia.org"}` + "\n",
			raw.Options{}, []string{"1 www.example.com", "2 en.wikipedia.org"}},
		{"ranks", "1,google.com\n2,kb.dk\n", raw.Options{}, []string{"1 google.com", "2 kb.dk"}},
		{"ranks behind", "google.com;1\nkb.dk;2\n", raw.Options{}, []string{"1 google.com", "2 kb.dk"}},
		{"ranks between blanks", "  1 google.com\n 20 kb.dk\n", raw.Options{}, []string{"1 google.com", "2 kb.dk"}},
		{"a hosts file between tabs", "127.0.0.1\tlocalhost\n127.0.0.1\tsite1.org # c\n127.0.0.1\tsite2.org\n127.0.0.1\tsite3.org\n127.0.0.1\tsite4.org\n127.0.0.1\tsite5.org\n127.0.0.1\tsite6.org\n127.0.0.1\tsite7.org\n127.0.0.1\tsite8.org\n127.0.0.1\tsite9.org\n", raw.Options{},
			[]string{"1 localhost", "2 site1.org", "3 site2.org", "4 site3.org", "5 site4.org", "6 site5.org", "7 site6.org", "8 site7.org", "9 site8.org", "10 site9.org"}},
		{"a hosts file of several names", "127.0.0.1\tlocalhost\n127.0.0.1\tsite1.org www.site1.org # c\n127.0.0.1\tsite2.org www.site2.org\n", raw.Options{}, []string{"hosts file with several names"}},
		{"files whose extensions are domains", "file1.zip\nREADME.md\nlib.rs\nx.example.com\n", raw.Options{}, []string{`names such as "file1.zip"`}},
		{"files in a table without a header", "file1.zip,1\nfile2.zip,2\n", raw.Options{}, []string{`names such as "file1.zip"`}},
		{"such hosts by flag", "a.zip\nb.zip\n", raw.Options{Format: raw.Lines}, []string{"1 a.zip", "2 b.zip"}},
		{"such hosts by name", "domain,n\nb92.rs,1\nc93.rs,2\n", raw.Options{}, []string{"2 b92.rs", "3 c93.rs"}},
		{"such hosts with more labels", "www.b92.rs\nabc.com.py\n", raw.Options{}, []string{"1 www.b92.rs", "2 abc.com.py"}},
		{"e-mail addresses", "user1@site1.org\nuser2@site2.org\n", raw.Options{}, []string{"e-mail addresses"}},
		{"user info", "http://user1@site1.org/\nhttp://user2@site2.org/\n", raw.Options{}, []string{"1 http://user1@site1.org/", "2 http://user2@site2.org/"}},
		{"DOIs", "10.1000/xyz1\n10.1000/xyz2\n", raw.Options{}, []string{"DOIs such as"}},
		{"DOIs with a scheme", "doi:10.1000/xyz1\nDOI: 10.1000/xyz2\n", raw.Options{}, []string{"DOIs such as"}},
		{"patterns", "*.example.org\n*.example.com\n", raw.Options{}, []string{"patterns such as"}},
		{"patterns with schemes", "https://*.example.org/\nhttps://*.example.com/\n", raw.Options{}, []string{"patterns such as"}},
		{"URLs cut from HTML", "http://a.com/x\">\nhttp://b.com/y\">\n", raw.Options{}, []string{"that begin elsewhere"}},
		{"URLs in a quote too few", "http://a.com/x\"\nhttp://b.com/y\",\n", raw.Options{}, []string{"that begin elsewhere"}},
		{"URLs in brackets", "x [--> http://a.com/x]\ny [--> http://b.com/y]\n", raw.Options{}, []string{"that begin elsewhere"}},
		{"URLs with brackets", "http://a.com/x_(y)\nhttp://b.com/[y]\n", raw.Options{}, []string{"1 http://a.com/x_(y)", "2 http://b.com/[y]"}},
		{"networks", "192.0.2.0/24\n198.51.100.0/25\n", raw.Options{}, []string{"networks such as"}},
		{"prefixes of SURT keys", "http://(org,example,\nhttp://(org,example,www,\n", raw.Options{}, []string{"1 http://(org,example,", "2 http://(org,example,www,"}},
		{"numbers", "1.5\n2.5\n", raw.Options{}, []string{`names such as "1.5"`}},
		{"a hosts file", "# ads\n0.0.0.0 ads.example.com\n0.0.0.0 track.example.net\n", raw.Options{}, []string{"2 ads.example.com", "3 track.example.net"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := New(strings.NewReader(tc.text), "a", tc.opt)
			if err != nil {
				var refused *raw.FormatError
				if !errors.As(err, &refused) || !strings.Contains(refused.Reason, tc.want[0]) || refused.Advice == "" {
					t.Errorf("error %v, want %q", err, tc.want)
				}
				return
			}
			g, err := readAll(r)
			if diff := cmp.Diff(tc.want, g.Rows); diff != "" || err != nil {
				t.Errorf("error %v, plan %+v, records (-want +got):\n%s", err, r.Plan(), diff)
			}
			checkReader(t, "a", []byte(tc.text), tc.opt)
		})
	}
}

// TestManyURLsWithExtras reads one line with many URLs and a large field, which would be a row of
// the field for each URL.
func TestManyURLsWithExtras(t *testing.T) {
	line := fmt.Sprintf("{\"url\":%q,\"x\":%q}\n", strings.Repeat("http://a/ ", 10_000), strings.Repeat("x", 500_000))
	r, err := New(strings.NewReader(line), "a.jsonl", raw.Options{Extras: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, _, err = r.Next()
	}
	if n := r.Counts().Records; !errors.Is(err, unpack.ErrBomb) || n > 3000 {
		t.Errorf("%d records, error %v", n, err)
	}
}
