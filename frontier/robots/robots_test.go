package robots_test

import (
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/frontier/robots"
)

const agent = "urlakebot/1.0 (+https://example.org/bot)"

// Each case says what RFC 9309 says, by its section.
func TestAllowed(t *testing.T) {
	for _, c := range []struct {
		name, text, url string
		want            bool
	}{
		{"2.2.1: no group", "User-agent: other\nDisallow: /", "https://e.example/a", true},
		{"2.2.1: any case", "user-AGENT: URLAKEBOT\ndisallow: /", "https://e.example/a", false},
		{"2.2.1: product token with a version", "User-agent: urlakebot/2\nDisallow: /", "https://e.example/a", false},
		{"2.2.1: a longer token is another crawler", "User-agent: urlakebots\nDisallow: /", "https://e.example/a", true},
		{"2.2.1: a shorter token is another crawler", "User-agent: urlake\nDisallow: /", "https://e.example/a", true},
		{"2.2.1: groups of a token are one", "User-agent: urlakebot\nDisallow: /a\nUser-agent: x\nDisallow: /c\nUser-agent: urlakebot\nDisallow: /b",
			"https://e.example/b", false},
		{"2.2.1: the own group replaces *", "User-agent: *\nDisallow: /\nUser-agent: urlakebot\nDisallow: /x", "https://e.example/a", true},
		{"2.2.1: several tokens, one group", "User-agent: x\nUser-agent: urlakebot\nDisallow: /", "https://e.example/a", false},
		{"2.2.2: case of paths", "User-agent: *\nDisallow: /A", "https://e.example/a", true},
		{"2.2.2: longest", "User-agent: *\nDisallow: /a\nAllow: /a/b", "https://e.example/a/b/c", true},
		{"2.2.2: longest, disallowed", "User-agent: *\nAllow: /a\nDisallow: /a/b", "https://e.example/a/b/c", false},
		{"2.2.2: a tie", "User-agent: *\nDisallow: /a\nAllow: /a", "https://e.example/a", true},
		{"2.2.2: percent-encoding", "User-agent: *\nDisallow: /ä", "https://e.example/%C3%A4", false},
		{"2.2.2: empty", "User-agent: *\nDisallow:", "https://e.example/a", true},
		{"2.2.2: query", "User-agent: *\nDisallow: /a?x=", "https://e.example/a?x=1", false},
		{"2.2.3: $", "User-agent: *\nDisallow: /*.gif$", "https://e.example/a.gif", false},
		{"2.2.3: $, more", "User-agent: *\nDisallow: /*.gif$", "https://e.example/a.gif?x", true},
		{"2.2.3: patterns begin at the root", "User-agent: *\nDisallow: /b*c", "https://e.example/a/bxc", true},
		{"2.2.4: unknown lines", "Sitemap: x\nUser-agent: *\nNoindex: /\nDisallow: /a", "https://e.example/a", false},
		{"2.2: rules before a group", "Disallow: /\nUser-agent: *\nDisallow: /b", "https://e.example/a", true},
		{"2.2: comments, carriage returns", "\uFEFFUser-agent: * # all\rDisallow: /a # this\r\n", "https://e.example/a", false},
		{"a delay that is no number", "User-agent: *\nCrawl-delay: soon\nDisallow: /a", "https://e.example/a", false},
		{"no text", "", "https://e.example/a", true},
	} {
		if got := robots.Parse(c.text, agent).Allowed(c.url); got != c.want {
			t.Errorf("%s: %q: %s: %v", c.name, c.text, c.url, got)
		}
	}
}

func TestDelay(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"":                                  0,
		"User-agent: *\nCrawl-delay: 2.5":   2500 * time.Millisecond,
		"User-agent: *\nCrawl-delay: -1":    0,
		"User-agent: *\nCrawl-delay: NaN":   0,
		"User-agent: *\nCrawl-delay: 1e300": 1e6 * time.Second,
		"Crawl-delay: 3\nUser-agent: *":     0,
		"User-agent: other\nCrawl-delay: 3": 0,
		"User-agent: *\nCrawl-delay: 3\nUser-agent: urlakebot\nDisallow: /x":                     0,
		"User-agent: *\nCrawl-delay: 3\nUser-agent: UrlakeBot/9\nDisallow: /x\nCrawl-delay: 1":   time.Second,
		"User-agent: urlakebot\nCrawl-delay: 1\nUser-agent: *\nCrawl-delay: 3":                   time.Second,
		"User-agent: urlakebot\nUser-agent: other\nCrawl-delay: 4":                               4 * time.Second,
		"User-agent: urlakebot\nCrawl-delay: 4\nUser-agent: urlakebot\nCrawl-delay: 2\nAllow: /": 4 * time.Second,
	} {
		if got := robots.Parse(text, agent).Delay; got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestOnlyTheBeginningOfALongFileIsRead(t *testing.T) {
	text := "User-agent: *\nDisallow: /a\n" + strings.Repeat("#", robots.MaxBytes) + "\nDisallow: /b\n"
	r := robots.Parse(text, agent)
	if r.Allowed("https://e.example/a") || !r.Allowed("https://e.example/b") {
		t.Error("the limit is another")
	}
}

func TestOfStatus(t *testing.T) {
	for status, want := range map[int][2]bool{
		200: {true, true}, 204: {true, true}, 301: {false, true}, 401: {false, true}, 403: {false, true}, 404: {false, true},
		410: {false, true}, 429: {false, false}, 500: {false, false}, 503: {false, false}, 0: {false, false},
	} {
		if read, known := robots.OfStatus(status); read != want[0] || known != want[1] {
			t.Errorf("%d: %v, %v", status, read, known)
		}
	}
}

func TestToken(t *testing.T) {
	for agent, want := range map[string]string{agent: "urlakebot", "a_b-C": "a_b-C", "1x": "", "": ""} {
		if got := robots.Token(agent); got != want {
			t.Errorf("%q: %q, want %q", agent, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("User-agent: *\nCrawl-delay: 2\nDisallow: /*a$", "https://e.example/a")
	f.Fuzz(func(t *testing.T, text, url string) {
		r := robots.Parse(text, agent)
		if r.Delay < 0 {
			t.Errorf("%q: %v", text, r.Delay)
		}
		r.Allowed(url)
	})
}
