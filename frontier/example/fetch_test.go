package example

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"code.dny.dev/ssrf"
	"github.com/google/go-cmp/cmp"
)

func TestOnlyPublicAddresses(t *testing.T) {
	guard := ssrf.New(ssrf.WithAnyPort())
	for address, want := range map[string]bool{
		"1.1.1.1": true, "2606:4700::1111": true, "127.0.0.1": false, "::1": false, "0.0.0.0": false, "::": false, "10.1.2.3": false,
		"172.16.0.1": false, "192.168.0.1": false, "169.254.169.254": false, "100.64.0.1": false, "224.0.0.1": false,
		"255.255.255.255": false, "240.0.0.1": false, "198.18.0.1": false, "::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false,
		"::127.0.0.1": false, "64:ff9b::7f00:1": false, "2002:7f00:1::": false, "2001::1": false, "fe80::1": false, "fc00::1": false,
		"fec0::1": false, "ff02::1": false,
	} {
		a := netip.AddrPortFrom(netip.MustParseAddr(address), 8080)
		network := "tcp6"
		if a.Addr().Is4() {
			network = "tcp4"
		}
		if err := guard.Safe(network, a.String(), nil); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestPrivateAddressesAreRefused has a name lead to this machine, and an address in a URL.
func TestPrivateAddressesAreRefused(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer server.Close()
	for _, allow := range []bool{false, true} {
		o := Options{AllowPrivate: allow, Timeout: 10 * time.Second, Resolve: map[string]string{"site.test": server.Listener.Addr().String()}}
		c := &Crawler{o: o, web: newClient(&o)}
		for _, u := range []string{"http://site.test/", server.URL, strings.Replace(server.URL, "127.0.0.1", "localhost", 1)} {
			p, err := c.get(t.Context(), u, nil, 10)
			if allow && (err != nil || p.status != 200) || !allow && !errors.Is(err, ssrf.ErrProhibitedIP) {
				t.Errorf("%s, allowed %v: %v", u, allow, err)
			}
		}
	}
	if asked != 3 {
		t.Errorf("%d requests", asked)
	}
}

func TestLinks(t *testing.T) {
	page, err := url.Parse("http://e.test/dir/page?q=1")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		html string
		want []string
	}{
		{``, nil},
		{`<a href="x">`, []string{"http://e.test/dir/x"}},
		{`<A HREF=x><a href='x#y'><a href="?z"><a href="#top">`, []string{"http://e.test/dir/x", "http://e.test/dir/page?z", "http://e.test/dir/page?q=1"}},
		{`<a href=" /a` + "\n" + `b ">`, []string{"http://e.test/ab"}},
		{`<a href="//f.test"><a href="https://u:p@g.test/">`, []string{"http://f.test", "https://g.test/"}},
		{`<a href="javascript:x"><a href="mailto:a@b"><a href="data:,x"><a><a href="">`, nil},
		{`<a href="a&amp;b">`, []string{"http://e.test/dir/a&b"}},
		{`<base href="/b/"><base href="/c/"><a href=x>`, []string{"http://e.test/b/x"}},
		{`<a href=x rel="noopener NoFollow"><a href=y rel="nofollowed">`, []string{"http://e.test/dir/y"}},
		{`<a href=x><meta name=ROBOTS content="noarchive,none">`, nil},
		{`<a href=x><meta name=robots content="nofollow"><link rel=canonical href="/c">`, []string{"http://e.test/c"}},
		{`<meta http-equiv="Refresh" content="0;URL='/r'">`, []string{"http://e.test/r"}},
		{`<textarea><a href=x></textarea><title><a href=y></title><svg><a href=z></svg>`, []string{"http://e.test/dir/z"}},
		{strings.Repeat(`<a href="http://e.test/`, 3), nil},
	} {
		if diff := cmp.Diff(c.want, links(page, http.Header{}, []byte(c.html))); diff != "" {
			t.Errorf("%s:\n%s", c.html, diff)
		}
	}
	if got := links(page, http.Header{"X-Robots-Tag": {"otherbot: noindex", "noindex, nofollow"}}, []byte("<a href=x>")); len(got) != 0 {
		t.Errorf("%v", got)
	}
	latin := links(page, http.Header{"Content-Type": {"text/html; charset=iso-8859-1"}}, []byte("<a href=\"/\xe9\">"))
	if !slices.Equal(latin, []string{"http://e.test/%C3%A9"}) {
		t.Errorf("%v", latin)
	}
	many := links(page, http.Header{}, []byte(strings.Repeat("<a href=x>", 5)+strings.Repeat("<a href=/", 1)))
	if len(many) != 1 {
		t.Errorf("%v", many)
	}
}

func FuzzLinks(f *testing.F) {
	f.Add(`<base href="/b/"><a href="x">`, "text/html")
	page := &url.URL{Scheme: "http", Host: "e.test", Path: "/"}
	f.Fuzz(func(t *testing.T, html, kind string) {
		for _, l := range links(page, http.Header{"Content-Type": {kind}}, []byte(html)) {
			if u, err := url.Parse(l); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Fragment != "" || u.User != nil {
				t.Errorf("%q: %q", html, l)
			}
		}
	})
}

func TestRetryAfter(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"": 0, "5": 5 * time.Second, "-5": 0, "soon": 0, "1e3": 0, "99999999": 24 * time.Hour, "Wed, 21 Oct 2015 07:28:00 GMT": 0,
		time.Now().Add(100 * time.Hour).UTC().Format(http.TimeFormat): 24 * time.Hour,
	} {
		if got := retryAfter(value); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}
