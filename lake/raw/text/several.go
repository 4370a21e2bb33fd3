package text

import (
	"bytes"
	"encoding/binary"
	"strings"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/timestamp"
)

// IsPlain reports whether the text of a field is at most one URL and nothing beside it: it has no
// space, tab or line feed and no second scheme. Other fields are cut by [CutURL].
func IsPlain(field []byte) bool {
	// Eight bytes at a time, for bytes up to a space and for colons. That of the scheme is mostly
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
	return i < 0 || bytes.Index(field[i+1:], []byte("://")) < 0
}

// CutURL cuts the first URL from the text of a field, which is not empty and has no white space
// around it. rest is the text of the next one, nil if there is none. If reason is not empty, the
// text before rest is not clearly one URL and is rejected for it.
//
// A URL ends before white space or one of , ; | if, with more of these, a scheme and :// follow at
// once, or where a line break was swallowed, see swallowed. So x,y;z and http://b within
// http://a/http://b belong to the URL. Within a query that has had a URL, as ?u=http://b,http://c
// has, only white space ends it. It also ends before white space and #, which begins a comment up
// to the end of the line. Other white space belongs to the URL if that is one space, in query or
// fragment, or before what looks like a further part of a path, see continues and isTitle; and if
// what precedes it does not look like a URL, which package lake/urlnorm says better.
func CutURL(field []byte) (url, rest []byte, reason string) {
	query, nested, fragment := false, false, false
	for i := 0; i < len(field); i++ {
		c := field[i]
		switch {
		case c == '?':
			query = true
		case c == '#':
			fragment = true
		case c == ':' && bytes.HasPrefix(field[i:], []byte("://")):
			host := i + len("://")
			if begin := swallowed(field[:i]); begin > 0 && reason == "" && host < len(field) && field[host] != '/' {
				return field[:begin], field[begin:], ""
			}
			nested = nested || query
		case IsSpace(c), isSeparator(c) && !nested:
			next := i
			for next < len(field) && (IsSpace(field[next]) || isSeparator(field[next])) {
				next++
			}
			more := field[next:]
			switch {
			case len(more) == 0 && reason == "" && !IsSpace(c):
				return field, nil, ""
			case len(more) == 0 || hasScheme(more):
				return field[:i], bytes.TrimRight(more, ",;| \t\r\n\v\f"), reason
			case !IsSpace(c):
			case more[0] == '#' && reason == "":
				_, line, _ := bytes.Cut(more, []byte{'\n'})
				return field[:i], TrimSpace(line), ""
			case reason == "":
				reason = textAfter(field, i, next, query || fragment)
			}
		}
	}
	return field, nil, reason
}

// swallowed returns where the scheme begins that ends a text, if it begins a URL with no line break
// before it: directly behind a letter, a digit, or what no URL has, where no URL within another one
// begins. Otherwise it returns 0.
func swallowed(text []byte) int {
	for _, scheme := range []string{"https", "http", "ftp"} {
		begin := len(text) - len(scheme)
		if begin < 1 || !bytes.EqualFold(text[begin:], []byte(scheme)) || !bytes.Contains(text[:begin], []byte("://")) {
			continue
		}
		c := text[begin-1]
		escape := begin > 2 && text[begin-3] == '%'
		if (isLetter(c) || timestamp.IsDigit(c)) && !escape || strings.IndexByte("\"{}<>\\^`", c) >= 0 {
			return begin
		}
		return 0
	}
	return 0
}

// textAfter returns the reason for which the text at next, behind white space at i, is not part of
// the URL before it, "" if it may be.
func textAfter(field []byte, i, next int, query bool) string {
	before, after := field[:i], field[next:]
	_, rest, scheme := bytes.Cut(before, []byte("://"))
	if scheme && bytes.IndexAny(rest, "./") < 0 || !scheme && (bytes.IndexByte(before, '.') < 0 || bytes.IndexByte(before, ' ') >= 0) {
		return "" // there is no host yet
	}
	if word := bytes.ToLower(after[:min(len(after), len("www."))]); string(word) == "www." {
		return raw.SeveralURLs
	}
	single := next == i+1 && field[i] == ' '
	switch {
	case single && (query || continues(before, after) || isTitle(before, after)),
		bytes.IndexByte(before, ' ') > 0 && continues(before, after):
		return ""
	}
	return raw.TextAfterURL
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
		bytes.IndexAny(before, "?#") < 0 && !continues(before, after)
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
// of a file does. "http://a/My file.pdf" is such a URL; "http://a/ Our page" is none, and of
// "http://a/b Our page" nothing tells.
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

// isSeparator reports whether c can separate URLs and be a character of one.
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
