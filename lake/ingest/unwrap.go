package ingest

import (
	"bytes"
	"net/url"
	"time"
)

// maxWrapped is how many archives may wrap each other.
const maxWrapped = 8

// unwrapURL finds the URL of a page in the URL under which a web archive shows its copy:
//
//	https://web.archive.org/web/20200101000000id_/http://example.com/
//
// Archives that run a Wayback Machine, OpenWayback or pywb, and archive.today, put the time of the
// capture before the page's URL. The form is known, not the archives: a path element of 14 digits,
// which two letters and _ may follow, and behind it a URL with its scheme. Shorter times are taken
// behind an element that ends in web or wayback, and on the hosts of archive.today also the form
// 2020.01.31-235959.
//
// It returns the page's URL within wrapped, and the time of the capture in milliseconds since the
// Unix epoch if hasTime is set. If an archive's copy was archived again, the URL and the time are
// the innermost ones. It returns false if wrapped is not the URL of a copy. The result may share
// memory with wrapped.
func unwrapURL(wrapped []byte) (page []byte, ms int64, hasTime, ok bool) {
	page = wrapped
	for range maxWrapped {
		inner, t, timed, is := unwrapOnce(page)
		if !is {
			break
		}
		page, ms, hasTime, ok = inner, t, timed, true
	}
	return page, ms, hasTime, ok
}

// unwrapOnce unwraps one archive.
func unwrapOnce(b []byte) (page []byte, ms int64, hasTime, ok bool) {
	host, path, ok := cutHost(b)
	if !ok {
		return nil, 0, false, false
	}
	today := isArchiveToday(host)
	var before []byte
	for len(path) > 0 {
		i := bytes.IndexByte(path, '/')
		if i < 0 {
			break
		}
		element, rest := path[:i], path[i+1:]
		if bytes.IndexByte(element, '?') >= 0 {
			break // a URL in a query is no copy
		}
		if digits, ok := captureTime(element, before, today); ok {
			if page := archivedURL(rest); page != nil {
				ms, hasTime := captureInstant(digits)
				return page, ms, hasTime, true
			}
		}
		before, path = element, rest
	}
	return nil, 0, false, false
}

// cutHost returns the host of an http or https URL and what is behind the slash after it. A URL
// without scheme, as lists have it, begins with the host.
func cutHost(b []byte) (host, path []byte, ok bool) {
	if n := schemeLength(b); n > 0 {
		b = b[n:]
	} else if bytes.HasPrefix(b, []byte("//")) {
		b = b[2:]
	}
	return bytes.Cut(b, []byte{'/'})
}

// schemeLength returns the length of http:// or https:// at the beginning of b, 0 if there is none.
// Some servers make one slash of two.
func schemeLength(b []byte) int {
	n := 4
	if len(b) < n || !bytes.EqualFold(b[:n], []byte("http")) {
		return 0
	}
	if n < len(b) && b[n]|0x20 == 's' {
		n++
	}
	if !bytes.HasPrefix(b[n:], []byte(":/")) {
		return 0
	}
	if n += 2; n < len(b) && b[n] == '/' {
		n++
	}
	return n
}

// isArchiveToday reports whether a host is one of archive.today.
func isArchiveToday(host []byte) bool {
	name, top, ok := bytes.Cut(bytes.TrimPrefix(bytes.ToLower(host), []byte("www.")), []byte{'.'})
	if !ok || string(name) != "archive" {
		return false
	}
	switch string(top) {
	case "today", "ph", "is", "li", "vn", "fo", "md":
		return true
	}
	return false
}

// captureTime returns the digits of a path element that is the time of a capture. before is the
// element before it.
func captureTime(element, before []byte, today bool) (digits []byte, ok bool) {
	if today && len(element) == len("2020.01.31-235959") && element[4] == '.' && element[7] == '.' && element[10] == '-' {
		digits = append(digits, element[:4]...)
		digits = append(append(append(digits, element[5:7]...), element[8:10]...), element[11:]...)
		return digits, leadingDigits(digits) == 14
	}
	n := leadingDigits(element)
	switch rest := element[n:]; {
	case len(rest) == 0:
	case len(rest) == 1 && rest[0] == '*' && n < 14: // the newest copy of a year, or of all
	case len(rest) == 3 && isLetter(rest[0]) && isLetter(rest[1]) && rest[2] == '_': // id_, im_, js_
	default:
		return nil, false
	}
	short := bytes.HasSuffix(before, []byte("web")) || bytes.HasSuffix(before, []byte("wayback"))
	if n == 14 || short && n <= 14 && (n >= 4 || n == 0 && len(element) > 0) {
		return element[:n], true
	}
	return nil, false
}

// leadingDigits returns how many bytes at the beginning of b are digits.
func leadingDigits(b []byte) (n int) {
	for n < len(b) && b[n] >= '0' && b[n] <= '9' {
		n++
	}
	return n
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// archivedURL returns the URL that rest is, with both slashes behind its scheme and without escapes
// if it was escaped as a whole, or nil if it has no scheme.
func archivedURL(rest []byte) []byte {
	if n := schemeLength(rest); n > 0 {
		if rest[n-2] == '/' {
			return rest
		}
		return append(append(bytes.Clone(rest[:n]), '/'), rest[n:]...)
	}
	const most = len("https%3A")
	colon := bytes.Index(bytes.ToLower(rest[:min(len(rest), most)]), []byte("%3a"))
	if colon < 0 {
		return nil
	}
	text, err := url.PathUnescape(string(rest))
	if err != nil || schemeLength([]byte(text)) == 0 {
		return nil
	}
	return archivedURL([]byte(text))
}

// captureInstant returns the time of up to 14 digits: year, month, day, hour, minute and second.
// What is missing is the first of its kind. It returns false if they are no time.
func captureInstant(digits []byte) (ms int64, ok bool) {
	const full = "00000101000000"
	if len(digits) < 4 || len(digits)%2 != 0 || len(digits) > len(full) {
		return 0, false
	}
	t, err := time.Parse("20060102150405", string(digits)+full[len(digits):])
	if err != nil {
		return 0, false
	}
	return t.UnixMilli(), true
}
