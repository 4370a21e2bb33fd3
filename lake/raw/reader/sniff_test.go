package reader

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake/raw"
)

// TestLists holds how lists are read that other programs write, or people copy.
func TestLists(t *testing.T) {
	lines := func(s ...string) string { return strings.Join(s, "\n") + "\n" }
	for _, tc := range []struct {
		name, file, text string
		want             []string // the records, or the reason of the refusal and its advice
	}{
		{"files with digits in their extensions", "a.txt", lines("song1.mp3", "a.7z", "x.bz2", "data.h5", "live.m3u8"),
			[]string{`names such as "song1.mp3"`, "--format lines"}},
		{"files in a column", "a.csv", lines("url,n", "song1.mp3,1", "song2.mp3,2"), []string{`names such as "song1.mp3"`, "--url-column"}},
		{"private hosts", "a.txt", lines("dev.local", "app.local"), []string{"1 dev.local", "2 app.local"}},
		{"private hosts of other names", "a.txt", lines("cloud.corp", "shop.lan", "blog.intranet"), []string{"1 cloud.corp", "2 shop.lan", "3 blog.intranet"}},
		{"private hosts with names of countries", "a.txt", lines("de.local", "it.local"), []string{"1 de.local", "2 it.local"}},
		{"hosts of no known domain", "a.txt", lines("dev.acme", "app.acme"), []string{`names such as "dev.acme"`, "--format lines"}},
		{"reversed hosts that end in digits", "a.txt", lines("com.foo1", "org.site1", "com.137"), []string{"1 foo1.com", "2 site1.org", "3 137.com"}},
		{"reversed hosts in punycode", "a.txt", lines("de.xn--bcher1-kva", "com.example.www"), []string{"1 xn--bcher1-kva.de", "2 www.example.com"}},
		{"hosts in punycode", "a.txt", lines("xn--bcher-kva.de", "xn--80abh7bk0c.xn--p1ai"), []string{"1 xn--bcher-kva.de", "2 xn--80abh7bk0c.xn--p1ai"}},
		{"reversed hosts in UTF-8", "a.txt", lines("com.bücher", "com.пример", "org.例え"), []string{"1 bücher.com", "2 пример.com", "3 例え.org"}},
		{"reversed hosts behind schemes", "a.txt", lines("http://org.example.site1.", "https://com.site2./x?y=1", "http://de.site3.:8080/"),
			[]string{"1 http://site1.example.org", "2 https://site2.com/x?y=1", "3 http://site3.de:8080/"}},
		{"reversed hosts behind schemes in a table", "a.csv", lines("el_id,el_to_domain_index", "1,http://org.example.site1.", "2,http://com.site2."),
			[]string{"2 http://site1.example.org", "3 http://site2.com"}},
		{"hosts that end in a dot", "a.txt", lines("http://site1.example.org./", "http://site2.com./x"), []string{"1 http://site1.example.org./", "2 http://site2.com./x"}},
		{"classes of Java", "a.txt", lines("com.example.site1.Main", "org.example.site2.Reader"), []string{`names such as "com.example.site1.Main"`, "--format lines"}},
		{"patterns of hosts", "a.txt", lines("*.site1.org", "*.site2.org"), []string{`patterns such as "*.site1.org"`, "sed"}},
		{"patterns of hosts in a table", "a.csv", lines("domain,n", "*.site1.org,1", "*.site2.org,2"), []string{`patterns such as "*.site1.org"`, "sed"}},
		{"CDX, times of days", "a.cdx", lines("org,site)/a 20160102 http://site.org/a text/html 200 ABCDEFGHIJKLMNOPQRSTUVWXYZ234567 - 12 f.warc.gz", "org,site)/b 20160103 http://site.org/b text/html 200 ABCDEFGHIJKLMNOPQRSTUVWXYZ234567 - 13 f.warc.gz"),
			[]string{`1 http://site.org/a ts=1451692800000`, `2 http://site.org/b ts=1451779200000`}},
		{"CDX, times of months", "a.txt", lines("org,site)/a 201601 http://site.org/a text/html 200 ABCDEFGHIJKLMNOPQRSTUVWXYZ234567 - 12 f.warc.gz", "org,site)/b 201602 http://site.org/b text/html 200 ABCDEFGHIJKLMNOPQRSTUVWXYZ234567 - 13 f.warc.gz"),
			[]string{`1 http://site.org/a ts=1451606400000`, `2 http://site.org/b ts=1454284800000`}},
		{"CDX, times of years", "a.txt", lines("org,site)/a 2016 http://site.org/a text/html 200 ABCDEFGHIJKLMNOPQRSTUVWXYZ234567 - 12 f.warc.gz", "org,site)/b 2017 http://site.org/b text/html 200 ABCDEFGHIJKLMNOPQRSTUVWXYZ234567 - 13 f.warc.gz"),
			[]string{`1 http://site.org/a ts=1451606400000`, `2 http://site.org/b ts=1483228800000`}},
		{"a table with years", "a.txt", lines("id url year type", "1 http://site.org/a 2016 text/html", "2 http://site.org/b 2017 text/html"),
			[]string{"2 http://site.org/a ts=1451606400000", "3 http://site.org/b ts=1483228800000"}},
		{"CDXJ, times of years", "a.cdxj", lines(`org,example,site1)/p1 2016 {"url":"http://site1.example.org/p1"}`, `org,example,site1)/p2 201602 {"url":"http://site1.example.org/p2"}`),
			[]string{"1 http://site1.example.org/p1 ts=1451606400000", "2 http://site1.example.org/p2 ts=1454284800000"}},
		{"CDXJ, times of days", "a.txt", lines(`org,example,site1)/p1 20160102 {"url":"http://site1.example.org/p1"}`, `org,example,site1)/p2 2016-02 {"url":"http://site1.example.org/p2"}`),
			[]string{"1 http://site1.example.org/p1 ts=1451692800000", "2 http://site1.example.org/p2 ts=1454284800000"}},
		{"two URLs a line between tabs", "a.txt", lines("http://a.org/1\thttp://b.org/1", "http://a.org/2\thttp://b.org/2"),
			[]string{"1 http://a.org/1", "1 http://b.org/1", "2 http://a.org/2", "2 http://b.org/2"}},
		{"two URLs a line between spaces", "a.txt", lines("http://a.org/1 http://b.org/1", "http://a.org/2 http://b.org/2"),
			[]string{"1 http://a.org/1", "1 http://b.org/1", "2 http://a.org/2", "2 http://b.org/2"}},
		{"two URLs a line between commas", "a.txt", lines("http://a.org/1, http://b.org/1", "http://a.org/2, http://b.org/2"),
			[]string{"1 http://a.org/1", "1 http://b.org/1", "2 http://a.org/2", "2 http://b.org/2"}},
		{"three URLs a line between semicolons", "a.txt", lines("http://a.org/1;http://b.org/1;http://c.org/1", "http://a.org/2;http://b.org/2;http://c.org/2"),
			[]string{"1 http://a.org/1", "1 http://b.org/1", "1 http://c.org/1", "2 http://a.org/2", "2 http://b.org/2", "2 http://c.org/2"}},
		{"lines of code", "a.txt", lines(`"http://a.org/1",`, `"http://a.org/2",`, `"http://a.org/3"`), []string{"1 http://a.org/1", "2 http://a.org/2", "3 http://a.org/3"}},
		{"lines of code, with indents", "a.txt", lines(`  'http://a.org/1',`, `  'http://a.org/2',`, `  'http://a.org/3'`), []string{"1 http://a.org/1", "2 http://a.org/2", "3 http://a.org/3"}},
		{"single quotes", "a.txt", lines(`'http://a.org/1'`, `'http://a.org/2'`), []string{"1 http://a.org/1", "2 http://a.org/2"}},
		{"other quotes", "a.txt", lines("“http://a.org/1”", "«http://a.org/2»,", "(http://a.org/3)"), []string{"1 http://a.org/1", "2 http://a.org/2", "3 http://a.org/3"}},
		{"commas at the ends", "a.txt", lines("http://a.org/1,", "http://a.org/2,", "http://a.org/3,", "http://a.org/4"), []string{"1 http://a.org/1", "2 http://a.org/2", "3 http://a.org/3", "4 http://a.org/4"}},
		{"semicolons at the ends", "a.txt", lines("http://a.org/1;", "http://a.org/2;"), []string{"1 http://a.org/1", "2 http://a.org/2"}},
		{"double quotes", "a.txt", lines(`"http://a.org/1"`, `"http://a.org/2"`), []string{"1 http://a.org/1", "2 http://a.org/2"}},
		{"single quotes and a comma", "a.txt", lines(`'http://a.org/1',`, `'http://a.org/2',`), []string{"1 http://a.org/1", "2 http://a.org/2"}},
		{"SURT keys", "a.txt", lines("org,site,www)/a", "org,site2)/b?c=1"), []string{"1 http://www.site.org/a", "2 http://site2.org/b?c=1"}},
		{"quoted SURT keys in a table", "a.csv", lines("surt,n", `"org,site,www)/a",2`, `"org,site)/b",3`), []string{"no column", "--url-column"}},
		{"SURT forms", "a.txt", lines("http://(org,site,www,)/a", "https://(org,site2,)/b?c=1"), []string{"1 http://www.site.org/a", "2 https://site2.org/b?c=1"}},
		{"a comment above hosts", "a.txt", lines("# comment", "0.0.0.0 site1.org", "0.0.0.0 site2.org"), []string{"2 site1.org", "3 site2.org"}},
		{"a comment above a single host", "a.txt", lines("# comment", "0.0.0.0 site1.org"), []string{"2 site1.org"}},
		{"a comment with names above hosts", "a.txt", lines("# Title: hosts of site", "0.0.0.0 site1.org"), []string{"2 site1.org"}},
		{"a comment above a table", "a.txt", lines("# comment", "1,site1.org", "2,site2.org"), []string{"1 !no_url", "2 site1.org", "3 site2.org"}},
		{"JSONP", "a.js", `callback([{"url":"http://a.org/1"},{"url":"http://a.org/2"}]);`, []string{"JSONP", "sed"}},
		{"URLs in angle brackets", "a.txt", lines("<http://a.org/1>", "<http://a.org/2>"), []string{"1 http://a.org/1", "2 http://a.org/2"}},
		{"Turtle", "a.ttl", lines("@prefix s: <http://schema.org/> .", "<http://a.org/1> a s:Page ;", "  s:name \"x\" ."), []string{"Turtle", "rapper"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := New(strings.NewReader(tc.text), tc.file, raw.Options{Extras: []string{}})
			if err != nil {
				var refused *raw.FormatError
				if !errors.As(err, &refused) || !strings.Contains(refused.Reason, tc.want[0]) || len(tc.want) != 2 || !strings.Contains(refused.Advice, tc.want[1]) {
					t.Errorf("error %v, want %q", err, tc.want)
				}
				return
			}
			g, err := readAll(r)
			for i, row := range g.Rows {
				g.Rows[i], _, _ = strings.Cut(row, " {")
			}
			if diff := cmp.Diff(tc.want, g.Rows); diff != "" || err != nil {
				t.Errorf("error %v, plan %+v, records (-want +got):\n%s", err, r.Plan(), diff)
			}
			checkReader(t, tc.file, []byte(tc.text), raw.Options{})
		})
	}
}
