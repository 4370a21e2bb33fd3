package text

import (
	"bytes"
	"encoding/binary"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/timestamp"
)

// IsPlain reports whether the text of a field is at most one URL and nothing beside it: it has no
// space, tab or line feed and no second scheme. Other fields are cut by [CutURL].
func IsPlain(field []byte) bool {
	// The scheme's colon is mostly among the first eight bytes.
	if len(field) < 8 {
		return isPlain(field)
	}
	v := binary.LittleEndian.Uint64(field)
	found := (v - onesOf*'!') &^ v
	b := field[8:]
	for ; len(b) >= 32; b = b[32:] {
		found |= spaceOrColon(b) | spaceOrColon(b[8:]) | spaceOrColon(b[16:]) | spaceOrColon(b[24:])
	}
	for ; len(b) >= 8; b = b[8:] {
		found |= spaceOrColon(b)
	}
	found |= spaceOrColon(field[len(field)-8:])
	return found&(onesOf<<7) == 0 || isPlain(field)
}

const onesOf = ^uint64(0) / 255

// spaceOrColon returns a word with the top bit of a byte set if one of the first eight bytes of b
// is a colon, or a space or less.
func spaceOrColon(b []byte) uint64 {
	v := binary.LittleEndian.Uint64(b)
	return ((v - onesOf*'!') | ((v ^ onesOf*':') - onesOf)) &^ v
}

// isPlain is IsPlain for a field with a control character or a second colon.
func isPlain(field []byte) bool {
	for _, c := range field {
		if c == ' ' || c == '\t' || c == '\n' {
			return false
		}
	}
	i := bytes.Index(field, []byte("://"))
	return i < 0 || !bytes.Contains(field[i+1:], []byte("://"))
}

// CutURL cuts the first URL from the text of a field, which is not empty and has no white space
// around it. rest is the text of the next one, nil if there is none. If reason is not empty, the
// text before rest is not clearly one URL and is rejected for it.
//
// Another URL begins at a scheme and :// unless the URL before it carries it, as http://a/http://b
// and ?u=http://b,http://c do, see nextURL. Separators, brackets, quotes, tags and words such as
// "and" between URLs and around them are part of none. Where no other URL follows, x,y;z belongs to
// the URL, unless white space precedes a last one. White space and # begin a comment up to the end
// of the line, but a word with # is part of a URL that has spaces before it. Other white space
// belongs to the URL if it is one space, in query or fragment, or before what looks like a further
// part of a path, see continues, or in a title, see isTitle. It also belongs to the URL if the text
// before it does not look like a URL:
// then package lake/urlnorm rejects the whole text with a better reason. Of two schemes in a row
// the first is dropped. Text with < > or " before a query is no URL.
//
// To cut all URLs of a field takes time linear in its length.
func CutURL(field []byte) (url, rest []byte, reason string) {
	if n := len(field) - 1; n > 0 && isSeparator(field[n]) && IsSpace(field[n-1]) {
		field = TrimSpace(field[:n])
	}
	for {
		if i := bytes.Index(field, []byte("://")); i > 0 && gluedScheme(field[:i]) == 0 && BeginsWithScheme(field[i+3:]) {
			field = field[i+3:] // http://https://a/ has a scheme too many
		}
		next, unclear := nextURL(field)
		if url, rest = field[:next], field[next:]; len(rest) > 0 {
			url = trimBetween(url)
			if rest[0] == '#' {
				_, rest, _ = bytes.Cut(rest, []byte{'\n'})
				rest = TrimSpace(rest)
			}
			if next, _ = nextURL(rest); next == len(rest) {
				rest = trimBetween(rest)
			}
		}
		switch more := len(rest) > 0; {
		case !more:
			rest = nil
		case len(url) == 0:
			field = rest
			continue
		}
		if unclear || rest != nil && bytes.ContainsAny(url, `<>"`+spaces) {
			return url, rest, raw.SeveralURLs
		}
		if i := bytes.IndexAny(url, `<>"?#`); i >= 0 && url[i] != '?' && url[i] != '#' && BeginsWithScheme(url) {
			return url, rest, raw.TextAfterURL // <a href="http://a/">title
		}
		return url, rest, textInside(url, rest == nil)
	}
}

const (
	// breaks are characters that are in no URL.
	breaks = "<>\"\\^`"
	// brackets are characters of URLs that may also enclose one.
	brackets = "()[]{}'"
	// spaces are the spaces that are not ASCII, and characters without a width.
	spaces = "\u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009" +
		"\u200a\u200b\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"
)

// commentIn returns the offset of the first comment in field that begins in [from, to): a # behind
// white space. It is -1 if there is none. A # that begins a word behind other words is none; words
// is kept to find these once.
func commentIn(field []byte, from, to int, words *bool) int {
	for at := from; ; at++ {
		i := bytes.IndexByte(field[at:to], '#')
		if i < 0 {
			return -1
		}
		if at += i; at == 0 || !IsSpace(field[at-1]) {
			continue
		}
		if at+1 == len(field) || IsSpace(field[at+1]) {
			return at
		}
		*words = *words || bytes.ContainsAny(TrimSpace(field[:at]), " \t\n")
		if !*words {
			return at
		}
	}
}

// nextURL returns the offset of the next scheme in field that begins a URL of its own, or of the
// comment before it, len(field) if there is neither: a scheme at the start of the field does not
// count. Before it is white space or a
// character of breaks; outside of a query a bracket or punctuation that is not ASCII; or one of , ;
// | unless a query has had a URL already. Where a line break was swallowed, a scheme of web URLs
// directly follows a letter or digit. Other URLs belong to the one before them. unclear is set if
// an earlier scheme stands behind a bracket that directly follows a part of the URL.
func nextURL(field []byte) (next int, unclear bool) {
	query, nested := false, false // nested: a query has had a URL
	words := false
	for at := 0; ; {
		end := len(field)
		if i := bytes.Index(field[at:], []byte("://")); i >= 0 {
			end = at + i
		}
		if comment := commentIn(field, at, end, &words); comment >= 0 {
			return comment, unclear
		}
		if end == len(field) {
			return end, unclear
		}
		begin := end
		query = query || bytes.IndexByte(field[at:begin], '?') >= 0
		at = end + len("://")
		for begin > 0 && (isLetter(field[begin-1]) || timestamp.IsDigit(field[begin-1]) ||
			bytes.IndexByte([]byte("+.-"), field[begin-1]) >= 0) {
			begin--
		}
		if begin == 0 {
			continue
		}
		before, _ := utf8.DecodeLastRune(field[:begin])
		if before == '\\' && end-begin > 2 && bytes.IndexByte([]byte("nrt"), field[begin]) >= 0 {
			begin++ // an escaped line break
		}
		glued := gluedScheme(field[begin:end])
		switch {
		case before < utf8.RuneSelf && IsSpace(byte(before)), strings.ContainsRune(breaks+spaces, before),
			!query && before >= utf8.RuneSelf && before != utf8.RuneError && (unicode.IsPunct(before) || unicode.IsSymbol(before)),
			!nested && before < utf8.RuneSelf && isSeparator(byte(before)):
			if BeginsWithScheme(field[begin:]) {
				return begin, unclear
			}
		case before == '{' || before == '}':
			if BeginsWithScheme(field[begin:]) {
				return begin, unclear // no URL has braces (RFC 3986)
			}
		case query:
			nested = true
		case strings.ContainsRune(brackets, before):
			if !BeginsWithScheme(field[begin:]) {
				continue
			}
			// A bracket that opens directly behind a part of a URL may be one.
			url := bytes.TrimRight(field[:begin], "([{'")
			if len(url) > 0 && len(url) < begin && len(trimBetween(url)) == len(url) {
				unclear = true
				continue
			}
			return begin, unclear
		case glued > 0 && (before != '%' || glued != 2):
			return begin + glued, unclear // a line break was swallowed
		case glued == 0 && before >= utf8.RuneSelf:
			unclear = true
		}
	}
}

// gluedScheme returns how many bytes precede the scheme of a web URL that scheme ends with, 0 for
// another one.
func gluedScheme(scheme []byte) int {
	for _, s := range []string{"https", "http", "ftp"} {
		if n := len(scheme) - len(s); n >= 0 && bytes.EqualFold(scheme[n:], []byte(s)) {
			return n
		}
	}
	return 0
}

// trimBetween removes text between URLs that is part of none from the end of text: white space,
// separators, quotes, tags, arrows, brackets without their counterpart, and words that are "and",
// "or" or have neither letter nor digit.
func trimBetween(text []byte) []byte {
	for {
		before := len(text)
		text = bytes.TrimRight(text, ",;| \t\r\n\v\f([{'\"`^<"+spaces)
		r, size := utf8.DecodeLastRune(text)
		tail := text[max(0, len(text)-lookBack):]
		switch {
		case r == '>' && isTag(tail):
			text = text[:len(text)-len(tail)+bytes.LastIndexByte(tail, '<')]
		case bytes.HasSuffix(text, []byte("->")), bytes.HasSuffix(text, []byte("=>")):
			text = bytes.TrimRight(text, "-=>")
		case r == '>':
			text = text[:len(text)-1]
		case r >= utf8.RuneSelf && (unicode.IsPunct(r) || unicode.IsSymbol(r)) && r != utf8.RuneError:
			text = text[:len(text)-size]
		case r == ')' && isUnopened(tail, '(', ')'), r == ']' && isUnopened(tail, '[', ']'),
			r == '}' && isUnopened(tail, '{', '}'):
			text = text[:len(text)-1]
		case len(text) > 1 && text[len(text)-2] == '\\' && (r == 'n' || r == 'r' || r == 't'):
			text = text[:len(text)-2]
		case r == '\\':
			text = text[:len(text)-1]
		default:
			text = text[:len(text)-wordBetween(text)]
		}
		if len(text) == before {
			return text
		}
	}
}

// lookBack is how far trimBetween looks back. It is called for each of many URLs in a field.
const lookBack = 4096

func isUnopened(text []byte, open, end byte) bool {
	return bytes.Count(text, []byte{end}) > bytes.Count(text, []byte{open})
}

// isTag reports whether text, which ends in >, ends with a tag and not with a URL between < and >.
func isTag(text []byte) bool {
	open := bytes.LastIndexByte(text, '<')
	return open >= 0 && bytes.IndexByte(text[open:], ':') < 0
}

// wordBetween returns the length of the last word of text if it only stands between URLs, else 0.
func wordBetween(text []byte) int {
	at := len(text)
	if i := at - 3; i >= 0 && bytes.EqualFold(text[i:], []byte("and")) {
		at = i
	} else if i := at - 2; i >= 0 && bytes.EqualFold(text[i:], []byte("or")) {
		at = i
	}
	for at > 0 {
		r, size := utf8.DecodeLastRune(text[:at])
		switch {
		case r < utf8.RuneSelf && IsSpace(byte(r)), strings.ContainsRune(spaces, r):
			return len(text) - at
		case at < len(text) && isLetter(text[at]), unicode.IsLetter(r), unicode.IsDigit(r), r == utf8.RuneError:
			return 0
		}
		at -= size
	}
	return len(text)
}

// textInside returns why white space in url and the text behind it are not part of the URL, "" if
// they may be. alone is set if no other URL follows.
func textInside(url []byte, alone bool) (reason string) {
	t := prefix{url: url, scheme: len(url), slash: -1, last: lastPart(url), alone: alone}
	if i := bytes.Index(url, []byte("://")); i >= 0 {
		t.scheme = i + len("://")
	}
	path := 0
	if i := bytes.Index(url, []byte("//")); i >= 0 {
		path = i + len("//")
	}
	for i := 0; i < len(url) && reason == ""; i++ {
		switch c := url[i]; {
		case c == '/':
			t.dotted = i >= t.scheme || t.dotted && i+1 != t.scheme
			if i+1 == path {
				t.path, t.slash = path, -1
			} else if t.slash < 0 {
				t.slash = i
			}
			t.segment, t.titled = i+1, false
		case IsSpace(c):
			next := i
			for next < len(url) && IsSpace(url[next]) {
				next++
			}
			reason = t.textAt(i, next)
			if bytes.IndexByte(url[i:next], ' ') >= 0 {
				t.spaced, t.titled = true, true
			}
			i = next - 1
		default:
			t.dotted = t.dotted || c == '.'
			t.query = t.query || c == '?' || c == '#'
			t.ended = t.ended || !t.query && (c == '|' || c == '[' && i > 0 && url[i-1] == ']')
		}
	}
	return reason
}

// prefix is what textInside knows of a URL before some white space in it.
type prefix struct {
	url     []byte
	scheme  int // where the text behind the scheme begins, len(url) if there is none
	path    int // where the text behind the first // begins, 0 if there is none
	slash   int // the first slash in that text, -1 for none
	segment int // where the text behind the last slash begins
	last    int // see lastPart

	dotted bool // there is a host: a dot, or a slash behind the scheme
	query  bool // there is ? or #
	ended  bool // there is | or ][, which a title follows: <http://a/|a title>, [[http://a/][a title]]
	spaced bool // there is a space
	titled bool // there is a space in the segment
	alone  bool // no other URL follows
}

// textAt returns why the text at next, behind white space at i, is not part of the URL before it,
// "" if it may be.
func (t *prefix) textAt(i, next int) string {
	before, after := t.url[:i], t.url[next:]
	if !t.dotted || i < t.scheme && t.spaced {
		return "" // there is no host yet
	}
	title := t.alone && t.isTitle(i, after)
	for _, c := range []byte{before[len(before)-1], after[0]} {
		if isSeparator(c) && (!t.query || c != ',') && !(title && t.goesOn(before, after)) {
			return raw.SeveralURLs
		}
	}
	if bytes.EqualFold(after[:min(len(after), len("www."))], []byte("www.")) || beginsWithHost(after) {
		return raw.SeveralURLs
	}
	continues := t.slash >= 0 && t.slash != i-1 && next <= t.last
	single := next == i+1 && t.url[i] == ' ' || title && t.titled && string(t.url[i:next]) == "  "
	switch {
	case namesScheme(after), t.ended:
	case single && (t.query || continues || title), t.spaced && continues:
		return ""
	}
	return raw.TextAfterURL
}

// isTitle reports whether text behind a single space at i may be more of a title that the last
// segment of the path before it begins: http://a/2015/2/gold medal, http://a/News/ESI Information.
// A remark mostly begins with a capital or a bracket.
func (t *prefix) isTitle(i int, text []byte) bool {
	if t.segment <= t.path || t.segment == i {
		return false
	}
	first := t.url[t.segment]
	c, _ := utf8.DecodeRune(text)
	return t.titled || unicode.IsLetter(c) && !unicode.IsUpper(c) || c >= '0' && c <= '9' || c == '&' ||
		i-t.segment > 1 && first >= 'A' && first <= 'Z'
}

// goesOn reports whether a title goes on behind white space that a separator precedes: a comma
// behind several words and before one that is no host, or the end of an entity of HTML.
func (t *prefix) goesOn(before, after []byte) bool {
	if bytes.HasSuffix(before, []byte(",")) {
		word, _, _ := bytes.Cut(after, []byte{' '})
		return t.titled && !looksHost(word)
	}
	entity := before[max(0, len(before)-len(" &quot;")):]
	i := bytes.IndexByte(entity, '&')
	return i >= 0 && letters(entity[i+1:]) == len(entity)-len("&;")-i
}

// beginsWithHost reports whether text begins with a host name with a dot, and a slash.
func beginsWithHost(text []byte) bool {
	end, dot := 0, -1
	for end < len(text) && (isLetter(text[end]) || timestamp.IsDigit(text[end]) || text[end] == '.' || text[end] == '-') {
		if text[end] == '.' {
			dot = end
		}
		end++
	}
	return end < len(text) && text[end] == '/' && dot > 0 && end-dot > 2 && letters(text[dot+1:end]) == end-dot-1
}

// namesScheme reports whether text begins with a scheme of URLs without a host, as mailto: is.
func namesScheme(text []byte) bool {
	n := letters(text)
	return n > 1 && n+1 < len(text) && text[n] == ':' && !IsSpace(text[n+1])
}

// letters returns how many letters text begins with.
func letters(text []byte) (n int) {
	for n < len(text) && isLetter(text[n]) {
		n++
	}
	return n
}

// HasWords reports whether there is a text behind the first white space of a field that is no URL,
// no comment and not clearly part of the URL before it.
func HasWords(field []byte) bool {
	i := bytes.IndexAny(field, " \t")
	if i < 0 {
		return false
	}
	before, after := field[:i], TrimSpace(field[i:])
	return len(after) > 0 && after[0] != '#' && !BeginsWithScheme(after) && bytes.IndexByte(before, '.') > 0 &&
		!bytes.ContainsAny(before, "?#") && !continues(before, after)
}

// continues reports whether text behind white space looks like a further part of the path before
// it: the path has begun, and the text has a character that words seldom have, or ends as the name
// of a file does. "http://a/My file.pdf" is such a URL; "http://a/ Our page" is none, and
// "http://a/b Our page" may be either.
func continues(before, text []byte) bool {
	_, path, ok := bytes.Cut(before, []byte("//"))
	if !ok {
		path = before
	}
	i := bytes.IndexByte(path, '/')
	return i >= 0 && i < len(path)-1 && lastPart(text) >= 0
}

// lastPart returns the greatest offset from which on text looks like a part of a path, see
// continues, -1 if there is none.
func lastPart(text []byte) int {
	last := bytes.LastIndexAny(text, "/?=&%_")
	dot := bytes.LastIndexByte(text, '.')
	extension := text[dot+1:]
	if dot < 0 || len(extension) < 2 || len(extension) > 5 {
		return last
	}
	for _, c := range extension {
		if !isLetter(c) && !timestamp.IsDigit(c) {
			return last
		}
	}
	return max(last, dot-1)
}

// isSeparator reports whether c can separate URLs, and can also be part of one.
func isSeparator(c byte) bool { return c == ',' || c == ';' || c == '|' }

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// SchemeLen returns the length of the scheme that v begins with, which a colon follows (RFC 3986,
// section 3.1); 0 for none, or one of more than 32 bytes.
func SchemeLen[T string | []byte](v T) int {
	for i := 0; i < len(v) && i <= 32; i++ {
		switch c := v[i]; {
		case isLetter(c), i > 0 && (timestamp.IsDigit(c) || c == '+' || c == '.' || c == '-'):
		case c == ':':
			return i
		default:
			return 0
		}
	}
	return 0
}

// BeginsWithScheme reports whether text begins with a scheme and ://.
func BeginsWithScheme(text []byte) bool {
	n := SchemeLen(text)
	return n > 1 && bytes.HasPrefix(text[n:], []byte("://"))
}

// AppendReversed appends the URL of a host whose labels are in reverse order: com.example.www and
// com.example.www. are www.example.com. A scheme may precede the host, a port and a path may follow
// it.
func AppendReversed(b, url []byte) []byte {
	if i := bytes.Index(url, []byte("://")); i >= 0 {
		b, url = append(b, url[:i+3]...), url[i+3:]
	}
	end := len(url)
	if i := bytes.IndexAny(url, "/:?#"); i >= 0 {
		end = i
	}
	host := bytes.TrimSuffix(url[:end], []byte{'.'})
	for {
		i := bytes.LastIndexByte(host, '.')
		b = append(b, host[i+1:]...)
		if i < 0 {
			return append(b, url[end:]...)
		}
		b = append(b, '.')
		host = host[:i]
	}
}
