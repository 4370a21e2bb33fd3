package api

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/urlake/urlake/frontier"
)

// Lines of requests and answers are mostly plain: few members, and texts without escapes. These are
// read and written here; everything else, and every error, is left to package json, so a line means
// the same to both.

// plainLine reads an object of members whose values are texts of printable ASCII without escapes,
// or numbers of up to nine digits.
type plainLine struct {
	rest string
	seen uint32
}

// begin says whether the line may be plain.
func (p *plainLine) begin(line string) bool {
	if len(line) < 2 || line[0] != '{' {
		return false
	}
	p.rest, p.seen = line[1:], 0
	return true
}

func (p *plainLine) space() {
	for len(p.rest) > 0 && p.rest[0] == ' ' {
		p.rest = p.rest[1:]
	}
}

func (p *plainLine) skip(c byte) bool {
	p.space()
	if len(p.rest) == 0 || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// text reads a text.
func (p *plainLine) text() (string, bool) {
	if !p.skip('"') {
		return "", false
	}
	end := strings.IndexByte(p.rest, '"')
	if end < 0 || !isPlain(p.rest[:end]) {
		return "", false
	}
	text := p.rest[:end]
	p.rest = p.rest[end+1:]
	return text, true
}

// isPlain says that a text is of printable ASCII, and has no backslash.
func isPlain(s string) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	bad := uint64(0) // in the upper bit of a byte
	for len(s) >= 8 {
		w := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		escape := w ^ ones*'\\'
		// Above '~', below ' ', or a backslash. Carries go upwards, from a byte that is bad itself.
		bad |= w | (w + ones*(0x7f-'~')) | (w - ones*' ') | (escape - ones)
		s = s[8:]
	}
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '\\' {
			return false
		}
	}
	return bad&tops == 0
}

// name reads the name of the next member, whose number it has not read before. It is "" at the end
// of the line.
func (p *plainLine) name(number func(name string) int) (n int, end, ok bool) {
	p.space()
	if len(p.rest) == 1 && p.rest[0] == '}' {
		return 0, true, true
	}
	if p.seen != 0 && !p.skip(',') {
		return 0, false, false
	}
	name, ok := p.text()
	if !ok || !p.skip(':') {
		return 0, false, false
	}
	if n = number(name); n < 0 || p.seen&(1<<n) != 0 {
		return 0, false, false
	}
	p.seen |= 1 << n
	return n, false, true
}

// number reads a number of up to most.
func (p *plainLine) number(most uint64) (uint64, bool) {
	p.space()
	n := 0
	for n < len(p.rest) && n < 10 && p.rest[n] >= '0' && p.rest[n] <= '9' {
		n++
	}
	if n == 0 || n == 10 || n > 1 && p.rest[0] == '0' || n == len(p.rest) || p.rest[n] != ',' && p.rest[n] != '}' && p.rest[n] != ' ' {
		return 0, false
	}
	v, err := strconv.ParseUint(p.rest[:n], 10, 64)
	p.rest = p.rest[n:]
	return v, err == nil && v <= most
}

// parse reads a line of URLs.
func (u *urlLine) parse(line string) error {
	if _, ok := u.plain(line); ok {
		return nil
	}
	*u = urlLine{}
	return json.Unmarshal([]byte(line), u, json.RejectUnknownMembers(true))
}

// The members of a line of URLs.
const (
	memberURL = iota
	memberCrawl
	memberKey
	memberPriority
	memberDepth
)

// plain reads a plain line, and returns which members it has.
func (u *urlLine) plain(line string) (members uint32, ok bool) {
	var p plainLine
	if !p.begin(line) {
		return 0, false
	}
	for {
		n, end, ok := p.name(func(name string) int {
			switch name {
			case "url":
				return memberURL
			case "crawl":
				return memberCrawl
			case "key":
				return memberKey
			case "priority":
				return memberPriority
			case "depth":
				return memberDepth
			}
			return -1
		})
		if end || !ok {
			return p.seen, ok
		}
		var text string
		var v uint64
		switch n {
		case memberURL, memberCrawl, memberKey:
			text, ok = p.text()
		case memberPriority:
			v, ok = p.number(1<<16 - 1)
		case memberDepth:
			v, ok = p.number(1<<32 - 1)
		}
		if !ok {
			return 0, false
		}
		switch n {
		case memberURL:
			u.URL = text
		case memberCrawl:
			u.Crawl = text
		case memberKey:
			u.Key = text
		case memberPriority:
			u.Priority = uint16(v)
		case memberDepth:
			u.Depth = uint32(v)
		}
	}
}

// parse reads a line of results.
func (o *resultLine) parse(line string) error {
	if o.plain(line) {
		return nil
	}
	*o = resultLine{}
	return json.Unmarshal([]byte(line), o, json.RejectUnknownMembers(true))
}

func (o *resultLine) plain(line string) bool {
	var p plainLine
	if !p.begin(line) {
		return false
	}
	for {
		n, end, ok := p.name(func(name string) int {
			switch name {
			case "lease":
				return 0
			case "status":
				return 1
			case "content":
				return 2
			}
			return -1
		})
		if end || !ok {
			return ok
		}
		var text string
		var v uint64
		if n == 1 {
			v, ok = p.number(1<<16 - 1)
		} else {
			text, ok = p.text()
		}
		if !ok {
			return false
		}
		switch n {
		case 0:
			o.Lease = text
		case 1:
			o.Status = uint16(v)
		case 2:
			o.Content = text
		}
	}
}

// parse reads a line of seen checks.
func (q *seenLine) parse(line string) error {
	var u urlLine
	if members, ok := u.plain(line); ok && members < 1<<memberPriority {
		*q = seenLine{u.URL, u.Crawl, u.Key}
		return nil
	}
	*q = seenLine{}
	return json.Unmarshal([]byte(line), q, json.RejectUnknownMembers(true))
}

// answerLine is a line of an answer. AppendTo appends it with the newline at its end.
type answerLine interface{ appendTo(b []byte) []byte }

func appendJSON(b []byte, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil { // of a type that cannot fail
		panic(err)
	}
	return append(append(b, text...), '\n')
}

func (r lineResult) appendTo(b []byte) []byte {
	if r.Reason == "" {
		switch r.Result {
		case frontier.Added, frontier.Known, frontier.Settled, frontier.Retried, frontier.Ended:
			return append(append(append(b, `{"result":"`...), r.Result...), "\"}\n"...)
		}
	}
	return appendJSON(b, r)
}

func (r seenResult) appendTo(b []byte) []byte {
	if r.Reason != "" || r.Status != 0 || !r.Fetched.IsZero() {
		return appendJSON(b, r)
	}
	b = strconv.AppendBool(append(b, `{"seen":`...), r.Seen)
	return append(strconv.AppendBool(append(b, `,"settled":`...), r.Settled), "}\n"...)
}

// claimsTexts are buffers of answers to claims.
var claimsTexts = sync.Pool{New: func() any { return new([]byte) }}

// largestClaimsText bounds the buffers that are kept.
const largestClaimsText = 64 << 10

// answerClaims answers with claims, as answer would.
func answerClaims(w http.ResponseWriter, r *http.Request, a claimsAnswer) {
	buf := claimsTexts.Get().(*[]byte)
	b, err := a.appendTo(slices.Grow((*buf)[:0], 64+300*len(a.Claims)))
	if err != nil { // a text is not UTF-8
		answer(w, a)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if len(b) <= largestClaimsText {
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		hold(r, len(b))
	}
	_, _ = w.Write(b)
	if cap(b) <= largestClaimsText {
		*buf = b
		claimsTexts.Put(buf)
	}
}

func (a claimsAnswer) appendTo(b []byte) ([]byte, error) {
	var err error
	text := func(name, v string) {
		b = append(b, name...)
		quoted, failed := jsontext.AppendQuote(b, v)
		if b = quoted; err == nil {
			err = failed
		}
	}
	number := func(name string, v uint64) { b = strconv.AppendUint(append(b, name...), v, 10) }
	b = append(b, `{"claims":[`...)
	var expires time.Time
	var formatted []byte // expires, which most claims of an answer share
	for i, c := range a.Claims {
		if i > 0 {
			b = append(b, ',')
		}
		text(`{"lease":`, c.Lease)
		text(`,"url":`, c.URL)
		if c.Found != "" {
			text(`,"found":`, c.Found)
		}
		text(`,"domain":`, c.Domain)
		text(`,"crawl":`, c.Crawl)
		number(`,"depth":`, uint64(c.Depth))
		number(`,"priority":`, uint64(c.Priority))
		number(`,"tries":`, uint64(c.Tries))
		if len(c.Metadata) > 0 {
			b = append(append(b, `,"metadata":`...), c.Metadata...)
		}
		if formatted == nil || !c.Expires.Equal(expires) || c.Expires.Location() != expires.Location() {
			expires, formatted = c.Expires, c.Expires.AppendFormat(formatted[:0], time.RFC3339Nano)
		}
		b = append(append(append(b, `,"expires":"`...), formatted...), '"')
		if !c.RobotsUntil.IsZero() {
			b = c.RobotsUntil.AppendFormat(append(b, `,"robots_until":"`...), time.RFC3339Nano)
			b = append(b, '"')
		}
		b = append(b, '}')
	}
	return append(b, "]}\n"...), err
}
