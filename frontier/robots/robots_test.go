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

// TestDelay lists what crawlers are asked for.
func TestDelay(t *testing.T) {
	for _, c := range []struct {
		name, text, agent string
		seconds           float64
	}{
		{"nothing", "", "bot", 0},
		{"all", "User-agent: *\nCrawl-delay: 3", "bot", 3},
		{"all, without a name", "User-agent: *\nCrawl-delay: 3\nUser-agent: 7\nCrawl-delay: 5", "", 3},
		{"a fraction and a comment", "user-AGENT : * # all\r\ncrawl-DELAY:\t0.5 # quick", "bot", 0.5},
		{"by name", "User-agent: *\nCrawl-delay: 3\n\nUser-agent: Bot\nCrawl-delay: 10", "bot", 10},
		{"by name and version", "User-agent: Bot/1.0\nCrawl-delay: 10", "bot", 10},
		{"a longer name is another", "User-agent: Botany\nCrawl-delay: 10\nUser-agent: *\nCrawl-delay: 3", "bot", 3},
		{"several names", "User-agent: a\nUser-agent: bot\nDisallow: /x\nCrawl-delay: 10", "bot", 10},
		{"a group ends", "User-agent: bot\nDisallow: /x\nUser-agent: b\nCrawl-delay: 10", "bot", 0},
		{"a group of another record goes on", "User-agent: bot\nSitemap: https://a.example/\nUser-agent: b\nCrawl-delay: 10", "bot", 10},
		{"named without a delay", "User-agent: bot\nDisallow: /x\nUser-agent: *\nCrawl-delay: 10", "bot", 0},
		{"groups count together", "User-agent: bot\nCrawl-delay: 1\nUser-agent: b\nDisallow: /\nUser-agent: bot\nCrawl-delay: 4", "bot", 4},
		{"before any group", "Crawl-delay: 9\nUser-agent: *\nDisallow:", "bot", 0},
		{"after a line that is none", "Disallow: /\n<html>\nUser-agent: *\nCrawl-delay: 2", "bot", 2},
		{"nonsense", "User-agent: *\nCrawl-delay: soon\nCrawl-delay: -4\nCrawl-delay: NaN", "bot", 0},
		{"a byte order mark", "\ufeffUser-agent: *\nCrawl-delay: 2", "bot", 2},
		{"beyond what counts", strings.Repeat("# x\n", robots.MaxBytes/4) + "User-agent: *\nCrawl-delay: 2", "bot", 0},
	} {
		if got := robots.Parse(c.text, c.agent).Delay; got != time.Duration(c.seconds*float64(time.Second)) {
			t.Errorf("%s: %v, want %v seconds", c.name, got, c.seconds)
		}
	}
	if got := robots.Parse("User-agent: *\nCrawl-delay: 1e300", "bot").Delay; got != 1e6*time.Second {
		t.Errorf("a delay beyond all measure is %v", got)
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
