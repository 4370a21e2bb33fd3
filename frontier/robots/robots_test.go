package robots_test

import (
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"

	"github.com/urlake/urlake/frontier/robots"
	"github.com/urlake/urlake/internal/testenv"
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
		{"2.2.2: an escaped unreserved character in the rule", "User-agent: *\nDisallow: /%7Ejoe/", "https://e.example/~joe/x", false},
		{"2.2.2: in the URL", "User-agent: *\nDisallow: /~joe/", "https://e.example/%7ejoe/x", false},
		{"2.2.2: of a whole word", "User-agent: *\nDisallow: /foo/bar/%62%61%7A", "https://e.example/foo/bar/baz", false},
		{"2.2.2: a reserved character", "User-agent: *\nDisallow: /a%2Fb", "https://e.example/a/b", true},
		{"2.2.2: the case of escapes", "User-agent: *\nDisallow: /a%2fb", "https://e.example/a%2Fb", false},
		{"2.2.2: what has to be escaped", "User-agent: *\nDisallow: /a|b\"{c}", "https://e.example/a%7cb%22%7Bc%7D", false},
		{"2.2.2: in the URL, too", "User-agent: *\nDisallow: /a%7Cb%20c", "https://e.example/a|b c", false},
		{"2.2.2: Unicode in both", "User-agent: *\nDisallow: /ツ", "https://e.example/%e3%83%84", false},
		{"2.2.2: Latin-1", "User-agent: *\nDisallow: /caf\xe9", "https://e.example/caf%E9", false},
		{"2.2.2: a stray percent sign", "User-agent: *\nDisallow: /100%-x", "https://e.example/100%25-x", false},
		{"2.2.2: a stray percent sign in the URL", "User-agent: *\nDisallow: /100%25-x", "https://e.example/100%-x", false},
		{"2.2.2: a rule that ends in an escape", "User-agent: *\nDisallow: /a%e", "https://e.example/a%E9", false},
		{"2.2.2: lengths in the normal form", "User-agent: *\nDisallow: /%7Ejoe\nAllow: /~joe", "https://e.example/~joe", true},
		{"2.2.3: an escaped asterisk", "User-agent: *\nDisallow: /a-%2a.html", "https://e.example/a-*.html", false},
		{"2.2.3: is no wildcard", "User-agent: *\nDisallow: /a-%2A.html", "https://e.example/a-b.html", true},
		{"2.2.3: an escaped asterisk in both", "User-agent: *\nDisallow: /a-%2A.html", "https://e.example/a-%2A.html", false},
		{"2.2.3: a wildcard for an escaped asterisk", "User-agent: *\nDisallow: /a-*.html", "https://e.example/a-%2A.html", false},
		{"2.2.3: an escaped dollar sign", "User-agent: *\nDisallow: /foo-%24", "https://e.example/foo-$", false},
		{"2.2.3: is no end", "User-agent: *\nDisallow: /foo-%24", "https://e.example/foo-$x", false},
		{"2.2.3: a dollar sign inside", "User-agent: *\nDisallow: /a$b", "https://e.example/a%24b", false},
		{"2.2.2: a query without a path", "User-agent: *\nDisallow: /?q", "https://e.example?q=1", false},
		{"2.2.2: a URL in a query", "User-agent: *\nDisallow: /a?u=http://b", "https://e.example/a?u=http://b/#x", false},
		{"2.2.2: slashes in a row", "User-agent: *\nDisallow: /x//y", "https://e.example/x//y", false},
		{"as Google: a folder's index", "User-agent: *\nDisallow: /\nAllow: /a/index.html", "https://e.example/a/", true},
		{"2.2.2: empty", "User-agent: *\nDisallow:", "https://e.example/a", true},
		{"2.2.2: query", "User-agent: *\nDisallow: /a?x=", "https://e.example/a?x=1", false},
		{"2.2.3: $", "User-agent: *\nDisallow: /*.gif$", "https://e.example/a.gif", false},
		{"2.2.3: $, more", "User-agent: *\nDisallow: /*.gif$", "https://e.example/a.gif?x", true},
		{"2.2.3: patterns begin at the root", "User-agent: *\nDisallow: /b*c", "https://e.example/a/bxc", true},
		{"2.2.4: unknown lines", "Sitemap: x\nUser-agent: *\nNoindex: /\nDisallow: /a", "https://e.example/a", false},
		{"2.2: rules before a group", "Disallow: /\nUser-agent: *\nDisallow: /b", "https://e.example/a", true},
		{"2.2: comments, carriage returns", "\uFEFFUser-agent: * # all\rDisallow: /a # this\r\n", "https://e.example/a", false},
		{"2.2: carriage returns only", "User-agent: *\rDisallow: /a\rDisallow: /b", "https://e.example/b", false},
		{"2.3: marks of files that were joined", "User-agent: x\nDisallow: /a\n\ufeffUser-agent: *\nDisallow: /b", "https://e.example/b", false},
		{"2.3: zero bytes of lost UTF-16", "\ufffd\ufffdU\x00s\x00e\x00r\x00-\x00a\x00g\x00e\x00n\x00t\x00:\x00*\x00\n\x00D\x00i\x00s\x00allow:/b", "https://e.example/b", false},
		{"a delay that is no number", "User-agent: *\nCrawl-delay: soon\nDisallow: /a", "https://e.example/a", false},
		{"no text", "", "https://e.example/a", true},
	} {
		if got := robots.Parse(c.text, agent).Allowed(c.url); got != c.want {
			t.Errorf("%s: %q: %s: %v", c.name, c.text, c.url, got)
		}
	}
}

// TestSharedSpellings has the rules and URLs of real reports.
func TestSharedSpellings(t *testing.T) {
	data, err := os.ReadFile(testenv.Shared(t, "cases", "robots-spelling", "cases.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")[1:]
	for _, line := range lines {
		f := strings.Split(line, "\t")
		text := strings.ReplaceAll(f[0], `\n`, "\n")
		if got := robots.Parse(text, agent).Allowed(f[1]); got != (f[2] == "true") {
			t.Errorf("%q: %s: %v", text, f[1], got)
		}
	}
	if len(lines) == 0 {
		t.Error("no cases")
	}
}

// TestSpellings holds that each spelling of a URL has to be allowed, by the longest rule for it.
func TestSpellings(t *testing.T) {
	r := robots.Parse("User-agent: *\nDisallow: /*?b=1&a=2\nDisallow: /x//y\nDisallow: /d\nAllow: /d/open", agent)
	for _, c := range []struct {
		canonical, found string
		want             bool
	}{
		{"https://e.example/p?a=2&b=1", "https://e.example/p?b=1&a=2", false},
		{"https://e.example/p?b=1&a=2", "https://e.example/p?a=2&b=1", false},
		{"https://e.example/x/y", "https://e.example/x//y", false},
		{"https://e.example/x/y", "https://e.example/x/y", true},
		{"https://e.example/d/open", "https://e.example/d/./open", false}, // /d is the longest for the second
		{"https://e.example/d/open/a", "https://e.example/d/open//a", true},
	} {
		if got := r.Allowed(c.canonical, c.found); got != c.want {
			t.Errorf("%s, found as %s: %v", c.canonical, c.found, got)
		}
	}
}

// TestEncodings reads one file in all encodings that hosts have.
func TestEncodings(t *testing.T) {
	const text = "User-agent: *\r\nDisallow: /privé/\r\nCrawl-delay: 2\r\n"
	for name, e := range map[string]encoding.Encoding{
		"UTF-8": unicode.UTF8, "UTF-8 with a mark": unicode.UTF8BOM,
		"UTF-16LE with a mark": unicode.UTF16(unicode.LittleEndian, unicode.UseBOM), "UTF-16BE with a mark": unicode.UTF16(unicode.BigEndian, unicode.UseBOM),
		"UTF-16LE": unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM), "UTF-16BE": unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM),
		"UTF-32LE with a mark": utf32.UTF32(utf32.LittleEndian, utf32.UseBOM), "UTF-32BE with a mark": utf32.UTF32(utf32.BigEndian, utf32.UseBOM),
		"UTF-32LE": utf32.UTF32(utf32.LittleEndian, utf32.IgnoreBOM), "UTF-32BE": utf32.UTF32(utf32.BigEndian, utf32.IgnoreBOM),
	} {
		for _, s := range []string{text, strings.ReplaceAll(text, "é", "e"), "# Это не всё\n" + text} {
			body, err := e.NewEncoder().String(s)
			if err != nil {
				t.Fatal(err)
			}
			path := strings.Fields(s[strings.Index(s, "Disallow"):])[1]
			latin1, err := charmap.ISO8859_1.NewDecoder().String(body) // as a client may misread it
			if err != nil || strings.HasPrefix(name, "UTF-8") {
				latin1 = body
			}
			for _, body := range []string{body, latin1} {
				r := robots.Parse(body, agent)
				if r.Allowed("https://e.example"+path+"x") || !r.Allowed("https://e.example/b") || r.Delay != 2*time.Second {
					t.Errorf("%s: %q: %+v", name, body, r)
				}
				if again := robots.Text(body); !utf8.ValidString(again) || robots.Text(again) != again {
					t.Errorf("%s: %q", name, again)
				}
			}
			if misread := strings.ToValidUTF8(body, "\ufffd"); strings.Contains(body, "\x00") && misread != body {
				r := robots.Parse(misread, agent)
				if r.Allowed("https://e.example" + path + "x") {
					t.Errorf("%s, misread: %q: %+v", name, misread, r)
				}
			}
		}
	}
	for body, allowed := range map[string]bool{
		"User-agent: *\nDisallow: /a\n\x00\x00\x00":   true, // padded
		"Us\x00er-agent: *\nDisallow: /a\n":           false,
		"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR":         false,
		"\x00U\x00s\x00e\x00r\x00-\x00a\x00\x00g\x00": false,
	} {
		if r := robots.Parse(body, agent); r.Allowed("https://e.example/b") != allowed || r.Allowed("https://e.example/a") {
			t.Errorf("%q: %+v", body, r)
		}
	}
}

// TestDecodedTextsAreNotCutAgain has rules behind comments that take more bytes once they are
// decoded.
func TestDecodedTextsAreNotCutAgain(t *testing.T) {
	for name, e := range map[string]encoding.Encoding{
		"windows-1251": charmap.Windows1251, "UTF-16LE": unicode.UTF16(unicode.LittleEndian, unicode.UseBOM),
	} {
		text := "User-agent: *\n"
		if name == "UTF-16LE" {
			text += "# " + strings.Repeat("ﬁ", 220<<10)
		} else {
			text += "# " + strings.Repeat("всё", 130<<10)
		}
		body, err := e.NewEncoder().String(text + "\nDisallow: /a\n")
		if err != nil || len(body) > robots.MaxBytes {
			t.Fatal(len(body), err)
		}
		once := robots.Text(body)
		if len(once) > robots.MaxText || robots.Text(once) != once || robots.Parse(once, agent).Allowed("https://e.example/a") {
			t.Errorf("%s: %d bytes became %d", name, len(body), len(once))
		}
	}
	long := robots.Text(strings.Repeat("\xff\U0001f577", robots.MaxBytes))
	if len(long) > robots.MaxText || robots.Text(long) != long {
		t.Errorf("%d bytes", len(long))
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
		if again := robots.Text(text); !utf8.ValidString(again) {
			t.Errorf("%q is not UTF-8", again)
		}
	})
}
