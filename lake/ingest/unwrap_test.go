package ingest

import (
	"bytes"
	"testing"
	"time"
)

func TestCopiesOfArchives(t *testing.T) {
	for _, c := range []struct{ wrapped, page, when string }{
		{"https://web.archive.org/web/20200131235959/http://example.com/", "http://example.com/", "2020-01-31T23:59:59Z"},
		{"http://web.archive.org/web/20200131235959id_/https://example.com/a?b=c/d#e", "https://example.com/a?b=c/d#e", "2020-01-31T23:59:59Z"},
		{"HTTPS://WEB.ARCHIVE.ORG/web/20200131235959IM_/HTTP://Example.com", "HTTP://Example.com", "2020-01-31T23:59:59Z"},
		{"web.archive.org/web/20200131235959/http://example.com/", "http://example.com/", "2020-01-31T23:59:59Z"},
		{"//web.archive.org/web/20200131235959js_/http:/example.com/x.js", "http://example.com/x.js", "2020-01-31T23:59:59Z"},
		{"https://web.archive.org/web/2020/http://example.com/", "http://example.com/", "2020-01-01T00:00:00Z"},
		{"https://web.archive.org/web/202006/http://example.com/", "http://example.com/", "2020-06-01T00:00:00Z"},
		{"https://web.archive.org/web/2020*/http://example.com/", "http://example.com/", "2020-01-01T00:00:00Z"},
		{"https://web.archive.org/web/*/http://example.com/", "http://example.com/", ""},
		{"https://web.archive.org/web/20201399999999/http://example.com/", "http://example.com/", ""},
		{"https://web.archive.org/web/20200131235959/http%3A%2F%2Fexample.com%2Fa%3Fb%3Dc", "http://example.com/a?b=c", "2020-01-31T23:59:59Z"},
		// Other archives with the form, named in the Memento registry.
		{"https://arquivo.pt/wayback/20091218030519/http://example.pt/", "http://example.pt/", "2009-12-18T03:05:19Z"},
		{"https://wayback.archive-it.org/3671/20150101120000/https://example.org/x", "https://example.org/x", "2015-01-01T12:00:00Z"},
		{"https://webarchive.nationalarchives.gov.uk/ukgwa/20130128103431mp_/http://example.gov.uk/", "http://example.gov.uk/", "2013-01-28T10:34:31Z"},
		{"https://vefsafn.is/is/20110101000000/http://example.is/", "http://example.is/", "2011-01-01T00:00:00Z"},
		{"http://localhost:8080/my-web/20200131235959/http://example.com/", "http://example.com/", "2020-01-31T23:59:59Z"},
		{"https://archive.ph/20200131235959/https://example.com/", "https://example.com/", "2020-01-31T23:59:59Z"},
		{"http://archive.today/2020.01.31-235959/http://example.com/", "http://example.com/", "2020-01-31T23:59:59Z"},
		// A copy of a copy: the page was captured at the inner time.
		{"https://web.archive.org/web/20210101000000/https://web.archive.org/web/20150101000000/http://example.com/", "http://example.com/", "2015-01-01T00:00:00Z"},
	} {
		page, ms, hasTime, ok := unwrapURL([]byte(c.wrapped))
		when := ""
		if hasTime {
			when = time.UnixMilli(ms).UTC().Format(time.RFC3339)
		}
		if !ok || string(page) != c.page || when != c.when {
			t.Errorf("%s: %s %q %v, want %s %q", c.wrapped, page, when, ok, c.page, c.when)
		}
	}
}

func TestOtherURLsStayAsTheyAre(t *testing.T) {
	for _, u := range []string{
		"", "/", "http://", "http://example.com/", "https://web.archive.org/", "https://web.archive.org/web/",
		"https://web.archive.org/web/20200131235959/", "https://web.archive.org/web/20200131235959/example",
		"https://example.com/20200131235959/article", "https://example.com/2020/http://example.org/",
		"https://example.com/123456789012345/http://example.org/", "https://example.com/20200131235959xyz_/http://example.org/",
		"https://example.com/?u=/20200131235959/http://example.org/", "https://example.com/a?b/20200131235959/http://example.org/",
		"https://example.com/20200131235959?/http://example.org/", "https://example.com/2020.01.31-235959/http://example.org/",
		"https://web.archive.org/save/http://example.org/", "https://example.com/login/http://example.org/",
		"mailto:a@b.example", "https://web.archive.org/web/20200131235959/ftp://example.org/",
	} {
		page, _, _, ok := unwrapURL([]byte(u))
		if ok || string(page) != u {
			t.Errorf("%s: %s %v", u, page, ok)
		}
	}
}

func FuzzURL(f *testing.F) {
	f.Add([]byte("https://web.archive.org/web/20200131235959id_/http://example.com/"))
	f.Add([]byte("archive.is/2020.01.31-235959/https%3A%2F%2Fexample.com"))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		page, _, hasTime, ok := unwrapURL(b)
		switch {
		case !bytes.Equal(b, before):
			t.Errorf("%q was changed to %q", before, b)
		case !ok && (hasTime || !bytes.Equal(page, b)):
			t.Errorf("%q is no copy, but %q %v", b, page, hasTime)
		case ok && (len(page) >= len(b) || !bytes.HasPrefix(bytes.ToLower(page), []byte("http")) || !bytes.Contains(page, []byte("://"))):
			t.Errorf("%q holds %q", b, page)
		}
	})
}
