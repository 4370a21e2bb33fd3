// Package robots reads robots.txt as RFC 9309 says: which URLs of a host a crawler may fetch, and
// how long it has to wait between two of them.
//
// Lines are parsed by a port of Google's reference parser, which knows the usual misspellings, and
// any line end. Groups of one product token are one group, the longest rule wins, Allow wins a tie,
// and * and $ are special. Rules and paths are compared in a normal form (2.2.2) that goes further
// than the parser's: see normal. Crawl-delay is no part of the RFC; it is read here.
package robots

import (
	"encoding/binary"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/jimsmart/grobotstxt"
)

const (
	// MaxBytes is how much of a robots.txt is read. RFC 9309 (2.5) wants at least 500 KiB.
	MaxBytes = 500 << 10
	// MaxText is the most bytes that a Text has: a character has up to four.
	MaxText = 4 * MaxBytes
	// MaxRedirects is how many redirects in a row are followed to a robots.txt (2.3.1.2).
	MaxRedirects = 5
	// MaxAge is how long a robots.txt may be used (2.4).
	MaxAge = 24 * time.Hour
)

// Rules are what a robots.txt says to one crawler. The zero value allows everything.
type Rules struct {
	paths []rule
	// Delay is the Crawl-delay, 0 if there is none.
	Delay time.Duration
}

// rule is a path that a robots.txt allows or disallows, in the normal form.
type rule struct {
	pattern string
	allow   bool
}

// Token returns the product token of a User-Agent header, by which robots.txt names a crawler: the
// letters, hyphens and underscores that it begins with. It is empty if there are none.
func Token(userAgent string) string {
	end := strings.IndexFunc(userAgent, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '-' && r != '_'
	})
	if end < 0 {
		return userAgent
	}
	return userAgent[:end]
}

// Parse reads a robots.txt for the crawler of a User-Agent header. No text is an error: what is not
// understood is passed over. The text is decoded and bounded as Text does.
func Parse(text, userAgent string) Rules {
	p := parser{token: Token(userAgent)}
	// The library garbles an escape whose digits are lower-case letters and numbers.
	grobotstxt.Parse(escapes.ReplaceAllStringFunc(Text(text), strings.ToUpper), &p)
	if p.named {
		return p.own
	}
	return p.any
}

var escapes = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

// Text returns the first MaxBytes characters of a robots.txt as UTF-8. The RFC wants UTF-8 (2.3),
// and hosts have other files. A text with zero bytes is decoded as UTF-16 or UTF-32, also after a
// client has taken it for another encoding; if it is neither, all rules that it may have had are
// unknown, and Text returns one that disallows everything. Other bytes that are not UTF-8 become
// escapes, as they are in URLs; an escape counts as one character. A text that Text has returned
// stays as it is.
func Text(body string) string {
	body = body[:min(len(body), MaxText)]
	if strings.Contains(body, "\x00") {
		body = decode(body)
	}
	body = strings.ReplaceAll(body, "\ufeff", "")
	body = strings.TrimLeft(body, "\u00fe\u00ff\ufffd") // a misread byte order mark, or \xff
	if !utf8.ValidString(body) {
		b := make([]byte, 0, len(body)+len(body)/8)
		for i := 0; i < len(body); {
			r, n := utf8.DecodeRuneInString(body[i:])
			if r == utf8.RuneError && n == 1 {
				b = appendEscape(b, body[i])
			} else {
				b = append(b, body[i:i+n]...)
			}
			i += n
		}
		body = string(b)
	}
	if len(body) <= MaxBytes {
		return body
	}
	end := 0
	for n := 0; n < MaxBytes && end < len(body); n++ {
		if rest := body[end:]; isEscape(rest) {
			end += 3
		} else {
			_, size := utf8.DecodeRuneInString(rest)
			end += size
		}
	}
	return body[:end]
}

// agentLine matches what every robots.txt with rules has, in the spellings that the parser knows.
var agentLine = regexp.MustCompile(`(?i)user[- ]?agent`)

// decode returns a text with zero bytes as UTF-8: by the decoding that finds an agent and the most
// ASCII, since all that rules begin with is ASCII.
func decode(body string) string {
	const unknown = "User-agent: *\nDisallow: /\n"
	best, most := unknown, 0
	forms := []string{body}
	if utf8.ValidString(body) {
		// What a client has decoded as bytes, such as Latin-1. A mark may be lost, and no more.
		body = strings.TrimLeft(body, "\ufffd")
		if strings.Contains(body, "\ufffd") {
			return unknown
		}
		misread := make([]byte, 0, len(body))
		for _, r := range body {
			misread = append(misread, byte(min(r, 0xff)))
		}
		forms = []string{string(misread), body}
	}
	try := func(text string) {
		ascii := strings.Count(text, "\n")
		for _, r := range text {
			if r >= ' ' && r < 0x7f {
				ascii++
			}
		}
		if ascii > most && agentLine.MatchString(text) {
			best, most = strings.ReplaceAll(text, "\x00", ""), ascii
		}
	}
	for _, form := range forms {
		for _, width := range []int{2, 4} {
			try(fromUTF(binary.LittleEndian, width, form))
			try(fromUTF(binary.BigEndian, width, form))
		}
	}
	ascii := strings.ReplaceAll(body, "\x00", "")
	isASCII := !strings.ContainsFunc(ascii, func(r rune) bool { return r < ' ' && !unicode.IsSpace(r) || r >= 0x7f })
	switch {
	case most == 0:
		try(body) // with zeros between its lines
	case isASCII && ascii != best:
		return unknown // ASCII and UTF-16 in one file
	}
	return best
}

// fromUTF decodes UTF-16 or UTF-32, as width says in bytes.
func fromUTF(order binary.ByteOrder, width int, s string) string {
	var units []uint16
	var runes []rune
	for b := []byte(s); len(b) >= width; b = b[width:] {
		if width == 2 {
			units = append(units, order.Uint16(b))
		} else {
			runes = append(runes, rune(order.Uint32(b)))
		}
	}
	return string(append(runes, utf16.Decode(units)...))
}

// OfStatus says what holds for a host that answered a request for its robots.txt with a status, as
// 2.3.1 says. Read means that the body has the rules. Otherwise known tells whether there are none,
// so that everything is allowed; if that is not known either, nothing may be fetched for now.
func OfStatus(status int) (read, known bool) {
	switch {
	case status >= 200 && status < 300:
		return true, true
	case status == http.StatusTooManyRequests:
		return false, false // asked too often, the host has said nothing about its rules
	case status >= 300 && status < 500: // 3xx: after MaxRedirects
		return false, true
	}
	return false, false
}

// Allowed reports whether the crawler may fetch a URL of the host. The caller may know several
// spellings of the URL: the one to fetch, and the one found in a page. A rule may match any of
// them. The longest matching rule decides about each spelling, and all spellings that are not empty
// have to be allowed.
func (r Rules) Allowed(spellings ...string) bool {
	for _, url := range spellings {
		if url != "" && !r.allowed(normal(Path(url), false)) {
			return false
		}
	}
	return true
}

func (r Rules) allowed(path string) bool {
	longest, allow := 0, true
	for _, p := range r.paths {
		if n := len(p.pattern); (n > longest || n == longest && p.allow) && grobotstxt.Matches(path, p.pattern) {
			longest, allow = n, p.allow
		}
	}
	return allow
}

// Path returns the path and query of a URL in any spelling. Without a path it is /.
func Path(url string) string {
	url, _, _ = strings.Cut(strings.TrimSpace(url), "#")
	if i := strings.Index(url, "//"); i == 0 || i > 0 && url[i-1] == ':' {
		url = url[i+2:]
	}
	i := strings.IndexAny(url, `/?\`)
	switch {
	case i < 0:
		return "/"
	case url[i] != '/':
		return "/" + url[i:]
	}
	return url[i:]
}

// normal returns the normal form of a path or a rule (RFC 9309, 2.2.2). Escaped unreserved
// characters are decoded, and other escapes get upper-case digits. Characters that a URI has to
// escape, among them all that are not ASCII, are escaped, and so is a percent sign that begins no
// escape. At the end of a rule a percent sign stays, since the rest of an escape may follow in a
// path. * and $ are escaped where they are literal: everywhere in paths, and $ in rules except at
// the end (2.2.3).
func normal(s string, isRule bool) string {
	b := make([]byte, 0, len(s)+16)
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case isEscape(s[i:]):
			if c = byte(hexDigit(s[i+1])<<4 | hexDigit(s[i+2])); unreserved(c) {
				b = append(b, c)
			} else {
				b = appendEscape(b, c)
			}
			i += 2
		case c == '%' && isRule && (i+1 == len(s) || i+2 == len(s) && hexDigit(s[i+1]) >= 0):
			return string(append(b, strings.ToUpper(s[i:])...))
		case c == '*' && isRule, c == '$' && isRule && i+1 == len(s):
			b = append(b, c)
		case c == '*', c == '$', c == '%', c <= ' ', c >= 0x7f, strings.IndexByte("\"<>\\^`{|}", c) >= 0:
			b = appendEscape(b, c)
		default:
			b = append(b, c)
		}
	}
	return string(b)
}

// unreserved reports whether a character means the same with and without an escape (RFC 3986, 2.3).
func unreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// isEscape reports whether a text begins with an escape.
func isEscape(s string) bool {
	return len(s) > 2 && s[0] == '%' && hexDigit(s[1]) >= 0 && hexDigit(s[2]) >= 0
}

const hexDigits = "0123456789ABCDEF"

// hexDigit returns the value of a hexadecimal digit, -1 for other characters.
func hexDigit(c byte) int {
	if c >= 'a' && c <= 'f' {
		c -= 'a' - 'A'
	}
	return strings.IndexByte(hexDigits, c)
}

func appendEscape(b []byte, c byte) []byte {
	return append(b, '%', hexDigits[c>>4], hexDigits[c&15])
}

// parser collects the rules for a product token: the rules of its groups or, if it has none, of the
// groups of *.
type parser struct {
	token    string
	own, any Rules
	// named says that the token has a group.
	named bool
	// isOwn and isAny say whether the current group is for the token, or for *, and rules whether
	// the lines that name its crawlers are over.
	isOwn, isAny, rules bool
}

// HandleRobotsStart implements grobotstxt.ParseHandler.
func (p *parser) HandleRobotsStart() {}

// HandleRobotsEnd implements grobotstxt.ParseHandler.
func (p *parser) HandleRobotsEnd() {}

// HandleUserAgent implements grobotstxt.ParseHandler.
func (p *parser) HandleUserAgent(_ int, value string) {
	if p.rules {
		p.isOwn, p.isAny, p.rules = false, false, false
	}
	switch {
	case value == "*" || strings.HasPrefix(value, "* ") || strings.HasPrefix(value, "*\t"):
		p.isAny = true
	case p.token != "" && strings.EqualFold(Token(value), p.token):
		p.isOwn, p.named = true, true
	}
}

// HandleAllow implements grobotstxt.ParseHandler. As in Google's parser, a rule for /index.html
// also applies to /.
func (p *parser) HandleAllow(_ int, value string) {
	p.add(value, true)
	if i := strings.LastIndexByte(value, '/'); i >= 0 && strings.HasPrefix(value[i:], "/index.htm") {
		p.add(value[:i+1]+"$", true)
	}
}

// HandleDisallow implements grobotstxt.ParseHandler.
func (p *parser) HandleDisallow(_ int, value string) { p.add(value, false) }

func (p *parser) add(value string, allow bool) {
	p.rules = true
	if value == "" {
		return
	}
	r := rule{normal(value, true), allow}
	if p.isOwn {
		p.own.paths = append(p.own.paths, r)
	}
	if p.isAny {
		p.any.paths = append(p.any.paths, r)
	}
}

// HandleSitemap implements grobotstxt.ParseHandler.
func (p *parser) HandleSitemap(int, string) {}

// HandleUnknownAction implements grobotstxt.ParseHandler. Of several delays the longest holds.
func (p *parser) HandleUnknownAction(_ int, action, value string) {
	if !strings.EqualFold(action, "crawl-delay") {
		return
	}
	p.rules = true
	seconds, err := strconv.ParseFloat(value, 64)
	if err != nil || math.IsNaN(seconds) || seconds <= 0 {
		return
	}
	delay := time.Duration(min(seconds, 1e6) * float64(time.Second))
	if p.isOwn {
		p.own.Delay = max(p.own.Delay, delay)
	}
	if p.isAny {
		p.any.Delay = max(p.any.Delay, delay)
	}
}
