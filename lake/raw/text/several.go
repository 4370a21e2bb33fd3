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
	// Eight bytes at a time, for bytes up to a space and for colons. The scheme's colon is mostly
	// among the first eight.
	const (
		ones   = ^uint64(0) / 255
		tops   = ones << 7
		spaces = ones * 0x21
		colons = ones * ':'
	)
	b := field
	if len(b) < 8 {
		return isPlain(b)
	}
	v := binary.LittleEndian.Uint64(b)
	found := (v - spaces) &^ v
	for b = b[8:]; len(b) >= 8; b = b[8:] {
		v = binary.LittleEndian.Uint64(b)
		c := v ^ colons
		found |= (v-spaces)&^v | (c-ones)&^c
	}
	v = binary.LittleEndian.Uint64(field[len(field)-8:])
	if len(field) >= 16 {
		c := v ^ colons
		found |= (c - ones) &^ c
	}
	found |= (v - spaces) &^ v
	return found&tops == 0 || isPlain(field)
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
// the URL. White space and # begin a comment up to the end of the line. Other white space belongs
// to the URL if it is one space, in query or fragment, or before what looks like a further part of
// a path, see continues. It also belongs to the URL if the text before it does not look like a URL:
// then package lake/urlnorm rejects the whole text with a better reason.
func CutURL(field []byte) (url, rest []byte, reason string) {
	for {
		before, line := cutComment(field)
		next, unclear := nextURL(before)
		if next < len(before) {
			rest = trimBetween(field[next:])
		} else {
			rest = line
		}
		if url = before[:next]; next < len(field) {
			url = trimBetween(url)
		}
		switch {
		case len(url) == 0 && len(rest) > 0:
			field = rest
			continue
		case unclear || rest != nil && bytes.ContainsAny(url, `<>"`+spaces):
			return url, rest, raw.SeveralURLs
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

// cutComment cuts a comment from field: white space, # and what follows up to the end of the line.
// next is the text behind it, nil for none.
func cutComment(field []byte) (before, next []byte) {
	for i, c := range field {
		if i > 0 && c == '#' && IsSpace(field[i-1]) {
			_, line, _ := bytes.Cut(field[i:], []byte{'\n'})
			return TrimSpace(field[:i]), TrimSpace(line)
		}
	}
	return field, nil
}

// nextURL returns the offset of the next scheme in field that begins a URL of its own, len(field)
// if there is none: one at the start of the field does not count. Before it is white space or a
// character of breaks; outside of a query a bracket or punctuation that is not ASCII; or one of , ;
// | unless a query has had a URL already. Where a line break was swallowed, a scheme of web URLs
// directly follows a letter or digit. Other URLs belong to the one before them. unclear is set if
// an earlier scheme stands behind a bracket that directly follows a part of the URL.
func nextURL(field []byte) (next int, unclear bool) {
	nested := false // a query has had a URL
	for at := 0; ; {
		i := bytes.Index(field[at:], []byte("://"))
		if i < 0 {
			return len(field), unclear
		}
		begin, end := at+i, at+i
		at = end + len("://")
		for begin > 0 && (isLetter(field[begin-1]) || timestamp.IsDigit(field[begin-1]) ||
			bytes.IndexByte([]byte("+.-"), field[begin-1]) >= 0) {
			begin--
		}
		if begin == 0 {
			continue
		}
		query := bytes.IndexByte(field[:begin], '?') >= 0
		before, _ := utf8.DecodeLastRune(field[:begin])
		if before == '\\' && end-begin > 2 && bytes.IndexByte([]byte("nrt"), field[begin]) >= 0 {
			begin++ // an escaped line break
		}
		glued := gluedScheme(field[begin:end])
		switch {
		case before < utf8.RuneSelf && IsSpace(byte(before)), strings.ContainsRune(breaks+spaces, before),
			!query && before >= utf8.RuneSelf && before != utf8.RuneError && (unicode.IsPunct(before) || unicode.IsSymbol(before)),
			!nested && before < utf8.RuneSelf && isSeparator(byte(before)):
			if hasScheme(field[begin:]) {
				return begin, unclear
			}
		case before == '{' || before == '}':
			if hasScheme(field[begin:]) {
				return begin, unclear // no URL has braces (RFC 3986)
			}
		case query:
			nested = true
		case strings.ContainsRune(brackets, before):
			if !hasScheme(field[begin:]) {
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
	lower := bytes.ToLower(scheme)
	for _, s := range []string{"https", "http", "ftp"} {
		if bytes.HasSuffix(lower, []byte(s)) {
			return len(scheme) - len(s)
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
		open := bytes.LastIndexByte(text, '<')
		word := lastWord(text)
		switch {
		case r == '>' && open >= 0 && bytes.IndexByte(text[open:], ':') < 0:
			text = text[:open]
		case bytes.HasSuffix(text, []byte("->")), bytes.HasSuffix(text, []byte("=>")):
			text = bytes.TrimRight(text, "-=>")
		case r == '>':
			text = text[:len(text)-1]
		case r >= utf8.RuneSelf && (unicode.IsPunct(r) || unicode.IsSymbol(r)) && r != utf8.RuneError:
			text = text[:len(text)-size]
		case r == ')' && isUnopened(text, '(', ')'), r == ']' && isUnopened(text, '[', ']'),
			r == '}' && isUnopened(text, '{', '}'):
			text = text[:len(text)-1]
		case len(text) > 1 && text[len(text)-2] == '\\' && (r == 'n' || r == 'r' || r == 't'):
			text = text[:len(text)-2]
		case r == '\\':
			text = text[:len(text)-1]
		case isBetween(word):
			text = text[:len(text)-len(word)]
		}
		if len(text) == before {
			return text
		}
	}
}

// lastWord returns what follows the last white space in text.
func lastWord(text []byte) []byte {
	i := bytes.LastIndexFunc(text, func(r rune) bool {
		return r < utf8.RuneSelf && IsSpace(byte(r)) || strings.ContainsRune(spaces, r)
	})
	if i < 0 {
		return text
	}
	_, n := utf8.DecodeRune(text[i:])
	return text[i+n:]
}

func isUnopened(text []byte, open, end byte) bool {
	return bytes.Count(text, []byte{end}) > bytes.Count(text, []byte{open})
}

// isBetween reports whether a word only stands between URLs.
func isBetween(word []byte) bool {
	if bytes.EqualFold(word, []byte("and")) || bytes.EqualFold(word, []byte("or")) {
		return true
	}
	return bytes.IndexFunc(word, func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || r == utf8.RuneError
	}) < 0
}

// textInside returns why white space in url and the text behind it are not part of the URL, "" if
// they may be. alone is set if no other URL follows.
func textInside(url []byte, alone bool) (reason string) {
	query := false
	for i := 0; i < len(url) && reason == ""; i++ {
		c := url[i]
		query = query || c == '?' || c == '#'
		if !IsSpace(c) {
			continue
		}
		next := i
		for next < len(url) && IsSpace(url[next]) {
			next++
		}
		reason = textAfter(url, i, next, query, alone)
		i = next - 1
	}
	return reason
}

// textAfter returns why the text at next, behind white space at i, is not part of the URL before
// it, "" if it may be.
func textAfter(field []byte, i, next int, query, alone bool) string {
	before, after := field[:i], field[next:]
	_, rest, scheme := bytes.Cut(before, []byte("://"))
	if scheme && !bytes.ContainsAny(rest, "./") || !scheme && (bytes.IndexByte(before, '.') < 0 || bytes.IndexByte(before, ' ') >= 0) {
		return "" // there is no host yet
	}
	for _, c := range []byte{before[len(before)-1], after[0]} {
		if isSeparator(c) && (!query || c != ',') {
			return raw.SeveralURLs
		}
	}
	if word := bytes.ToLower(after[:min(len(after), len("www."))]); string(word) == "www." || beginsWithHost(after) {
		return raw.SeveralURLs
	}
	single := next == i+1 && field[i] == ' '
	switch {
	case namesScheme(after):
	case single && (query || continues(before, after) || alone && isTitle(before, after)),
		bytes.IndexByte(before, ' ') > 0 && continues(before, after):
		return ""
	}
	return raw.TextAfterURL
}

// beginsWithHost reports whether text begins with a host name with a dot, and a slash.
func beginsWithHost(text []byte) bool {
	i := bytes.IndexByte(text, '/')
	if i < 0 {
		return false
	}
	host := text[:i]
	dot := bytes.LastIndexByte(host, '.')
	if dot < 1 || len(host)-dot < 3 {
		return false
	}
	for _, c := range host {
		if !isLetter(c) && !timestamp.IsDigit(c) && c != '.' && c != '-' {
			return false
		}
	}
	return bytes.IndexFunc(host[dot+1:], func(r rune) bool { return !isLetter(byte(r)) }) < 0
}

// namesScheme reports whether text begins with a scheme of URLs without a host, as mailto: is.
func namesScheme(text []byte) bool {
	scheme, _, ok := bytes.Cut(text, []byte{':'})
	return ok && len(scheme) > 1 && bytes.IndexFunc(scheme, func(r rune) bool { return !isLetter(byte(r)) }) < 0
}

// HasWords reports whether there is a text behind the first white space of a field that is no URL,
// no comment and not clearly part of the URL before it.
func HasWords(field []byte) bool {
	i := bytes.IndexAny(field, " \t")
	if i < 0 {
		return false
	}
	before, after := field[:i], TrimSpace(field[i:])
	return len(after) > 0 && after[0] != '#' && !hasScheme(after) && bytes.IndexByte(before, '.') > 0 &&
		!bytes.ContainsAny(before, "?#") && !continues(before, after)
}

// isTitle reports whether the text behind a single space may be more of a title that the last
// segment of the path before it begins: http://a/2015/2/gold medal, http://a/News/ESI Information.
// A remark mostly begins with a capital or a bracket.
func isTitle(before, text []byte) bool {
	_, path, ok := bytes.Cut(before, []byte("//"))
	if !ok {
		path = before
	}
	i := bytes.LastIndexByte(path, '/')
	if i < 0 || i == len(path)-1 {
		return false
	}
	segment, c := path[i+1:], text[0]
	return bytes.IndexByte(segment, ' ') >= 0 || c >= 'a' && c <= 'z' || timestamp.IsDigit(c) || c == '&' ||
		len(segment) > 1 && segment[0] >= 'A' && segment[0] <= 'Z'
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
	if i := bytes.IndexByte(path, '/'); i < 0 || i == len(path)-1 {
		return false
	}
	if bytes.ContainsAny(text, "/?=&%_") {
		return true
	}
	dot := bytes.LastIndexByte(text, '.')
	extension := text[dot+1:]
	if dot < 1 || len(extension) < 2 || len(extension) > 5 {
		return false
	}
	for _, c := range extension {
		if !isLetter(c) && !timestamp.IsDigit(c) {
			return false
		}
	}
	return true
}

// isSeparator reports whether c can separate URLs, and can also be part of one.
func isSeparator(c byte) bool { return c == ',' || c == ';' || c == '|' }

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// hasScheme reports whether text begins with a scheme and ://.
func hasScheme(text []byte) bool {
	for i, c := range text[:min(len(text), 16)] {
		if c == ':' {
			return i > 1 && bytes.HasPrefix(text[i:], []byte("://"))
		}
		if !isLetter(c) && (i == 0 || !timestamp.IsDigit(c) && c != '+' && c != '.' && c != '-') {
			return false
		}
	}
	return false
}

// AppendReversed appends the URL of a host whose labels are in reverse order: com.example.www is
// www.example.com. A port and a path may follow the host.
func AppendReversed(b, url []byte) []byte {
	end := len(url)
	if i := bytes.IndexAny(url, "/:?#"); i >= 0 {
		end = i
	}
	host := url[:end]
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
