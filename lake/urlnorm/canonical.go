package urlnorm

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// Most URLs of most datasets are canonical already, apart from white space at the end, a fragment,
// or the slash of an empty path. For those, parsePlain is one scan for anything else that parse
// would change. It never rejects an input: what does not plainly start as a canonical URL is left
// to parse. Bytes are scanned eight or more at a time, see words.go.

// parsePlain sets u to the URL of an input with a canonical host and port, and a canonical scheme
// or none. It returns false if one of them needs a closer look. The canonical parts of the URL are
// parts of raw.
func (n *Normalizer) parsePlain(raw []byte, u *URL) bool {
	if len(raw) >= maxCanonical {
		return false // a slash may have to be added
	}
	raw = trimRight(raw)
	if len(raw) < wordSize {
		return false
	}
	start := n.lastOrigin.begins(raw, u)
	if start == 0 {
		if start = n.plainOrigin(raw, u); start == 0 {
			return false
		}
	}
	if start == len(raw) || raw[start] == '#' {
		u.PathQuery = "/"
		return true
	}
	if raw[start] == '/' {
		end, sorted := n.canonicalPathQuery(raw, scanPath(raw, start+1))
		switch {
		case end > 0 && sorted:
			u.PathQuery = view(raw[start:end])
			return true
		case end > 0:
			n.out = n.appendSortedPath(n.out[:0], raw, start)
			u.PathQuery = view(n.out)
			return true
		}
	}
	return n.changePathQuery(raw, start, u)
}

// origin is what an input starts with, up to and with the slash of its path, if it has no port.
// Lists have runs of URLs of one host, whose starts need not be parsed again.
type origin struct {
	text         []byte // empty before the first input
	scheme       string
	host, domain int // where they start in text
}

// begins sets the parts of u before the path if raw starts with o, and returns where the path
// starts; 0 if raw does not start with o.
func (o *origin) begins(raw []byte, u *URL) (path int) {
	if len(o.text) == 0 || !bytes.HasPrefix(raw, o.text) {
		return 0
	}
	path = len(o.text) - 1
	u.Scheme, u.Host, u.Port, u.Domain = o.scheme, view(raw[o.host:path]), -1, view(raw[o.domain:path])
	return path
}

// plainOrigin sets the parts of u before the path, and returns where the path starts or would
// start; 0 if a part needs a closer look.
func (n *Normalizer) plainOrigin(raw []byte, u *URL) (path int) {
	s := schemeHTTP
	text, start := plainScheme(raw)
	if text == textHTTPS {
		s = schemeHTTPS
	}
	end, domain, ok := n.plainHost(raw, start)
	if !ok {
		return 0
	}
	u.Scheme, u.Host, u.Port, u.Domain = s.name, view(raw[start:end]), -1, view(raw[domain:end])
	if end < len(raw) {
		switch raw[end] {
		case '/':
			n.lastOrigin.text = append(n.lastOrigin.text[:0], raw[:end+1]...)
			n.lastOrigin.scheme, n.lastOrigin.host, n.lastOrigin.domain = s.name, start, domain
		case ':':
			if start == 0 {
				return 0 // what looks like a host may be a scheme
			}
			if u.Port, end, ok = canonicalPort(raw, end+1, s.defaultPort); !ok {
				return 0
			}
		}
	}
	return end
}

// changePathQuery sets the path and query, which are in raw from start to the end or a fragment,
// and are not canonical. It returns false for what parse may read in another way.
func (n *Normalizer) changePathQuery(raw []byte, start int, u *URL) bool {
	rest := raw[start:]
	if i := bytes.IndexByte(rest, '#'); i >= 0 {
		rest = rest[:i]
	}
	if !isSlash(rest[0]) && rest[0] != '?' || hasTabOrNewline(rest) {
		return false
	}
	n.out = n.out[:0]
	n.appendPathQuery(rest)
	u.PathQuery = view(n.out)
	return start+len(n.out) <= maxCanonical
}

// Prefixes of inputs, as words. httpPrefix lacks a last byte.
const (
	httpPrefix  = 'h' | 't'<<8 | 't'<<16 | 'p'<<24 | ':'<<32 | '/'<<40 | '/'<<48
	httpsPrefix = 'h' | 't'<<8 | 't'<<16 | 'p'<<24 | 's'<<32 | ':'<<40 | '/'<<48 | '/'<<56
)

// plainScheme returns the scheme that an input of eight bytes or more starts with, textHTTPS,
// textHTTP or textBare, and where the text after it starts.
func plainScheme(raw []byte) (scheme, start int) {
	switch prefix := binary.LittleEndian.Uint64(raw); {
	case prefix == httpsPrefix:
		return textHTTPS, len("https://")
	case prefix<<8 == httpPrefix<<8:
		return textHTTP, len("http://")
	}
	return textBare, 0
}

// canonicalPort reads a port that is not the default and has no leading zero.
func canonicalPort(raw []byte, i int, defaultPort int32) (port int32, end int, ok bool) {
	start := i
	for i < len(raw) && '0' <= raw[i] && raw[i] <= '9' && i-start < 5 {
		port = port*10 + int32(raw[i]-'0')
		i++
	}
	return port, i, i > start && raw[start] != '0' && port <= 65535 && port != defaultPort
}

// canonicalPathQuery reads a path and query, of which scanPath has read from a slash up to s[i], to
// the end or a fragment. It returns where they end, 0 if they are not canonical. If only the order
// of the query's parameters is not canonical, it returns false and leaves the parameters in
// n.pieces.
func (n *Normalizer) canonicalPathQuery(s []byte, i int) (end int, sorted bool) {
	for ; i < len(s); i = scanPath(s, i+1) {
		switch s[i] {
		case '/':
			if s[i-1] == '/' && s[i-2] != ':' {
				return 0, false
			}
		case '.':
			if s[i-1] == '/' && startsDotSegment(s[i:]) {
				return 0, false
			}
		case '%':
			if !canonicalEscape(s[i:]) {
				return 0, false
			}
		case '?':
			return n.canonicalQuery(s, i+1)
		case '#':
			return i, true
		default:
			if classes[s[i]]&escaped != 0 {
				return 0, false
			}
		}
	}
	return len(s), true
}

// appendSortedPath appends the path and query that s has from start on, which are canonical but for
// the order of the parameters in n.pieces.
func (n *Normalizer) appendSortedPath(dst, s []byte, start int) []byte {
	query := n.pieces[0].start - len("?")
	return appendSorted(append(dst, s[start:query]...), s, n.pieces)
}

// startsDotSegment reports whether s starts with the segment "." or "..".
func startsDotSegment(s []byte) bool {
	s = s[1:]
	if len(s) > 0 && s[0] == '.' {
		s = s[1:]
	}
	return len(s) == 0 || s[0] == '/' || s[0] == '?' || s[0] == '#'
}

// canonicalEscape reports whether s starts with an escape that is necessary and in upper case.
func canonicalEscape(s []byte) bool {
	v, ok := unescape(s)
	return ok && classes[v]&unreserved == 0 && s[1] == upperHex[v>>4] && s[2] == upperHex[v&15]
}

// canonicalQuery reads a query from s[start] to the end or a fragment and puts its parameters into
// n.pieces. It returns where the query ends, and whether its parameters are sorted; 0 if it is not
// canonical in another way, or has empty or stripped parameters.
func (n *Normalizer) canonicalQuery(s []byte, start int) (end int, sorted bool) {
	n.pieces = n.pieces[:0]
	sorted = true
	nameEnd := 0 // of the parameter from start; 0 before its '='
	for from := start; ; from += 64 {
		ends, equals, special := scanQuery(s, from)
		for ; special != 0; special &= special - 1 {
			i := from + firstBit(special)
			if s[i] == '#' {
				// A fragment starts: nothing after it matters.
				below := special&-special - 1
				ends, equals = ends&below|special&-special, equals&below
				break
			}
			if classes[s[i]]&escaped != 0 || s[i] == '%' && !canonicalEscape(s[i:]) {
				return 0, false
			}
		}
		for ; ends != 0; ends &= ends - 1 {
			below := ends&-ends - 1
			if nameEnd == 0 {
				if e := equals & below; e != 0 {
					nameEnd = from + firstBit(e)
				}
			}
			equals &^= below
			// s[start:i] is a parameter.
			i := from + firstBit(ends)
			if nameEnd == 0 {
				nameEnd = i
			}
			if i == start || n.stripped(s[start:nameEnd]) {
				return 0, false
			}
			n.pieces = append(n.pieces, piece{start, nameEnd, i, namePrefix(s, start, nameEnd)})
			if last := len(n.pieces) - 1; last > 0 && sorted {
				sorted = !comesAfter(s, &n.pieces[last-1], &n.pieces[last])
			}
			if i == len(s) || s[i] == '#' {
				return i, sorted
			}
			start, nameEnd = i+1, 0
		}
		if nameEnd == 0 && equals != 0 {
			nameEnd = from + firstBit(equals)
		}
	}
}

// plainHost reads a host of lower-case letters, digits, hyphens, underscores and dots from
// s[start], and returns where it ends and where its domain starts. It accepts only hosts that are
// their own canonical form.
func (n *Normalizer) plainHost(s []byte, start int) (end, domain int, ok bool) {
	end, dots, hyphens := scanName(s, start)
	length := end - start
	labels := dots<<1 | 1 // where labels start
	last := bits.Len64(dots)
	switch {
	case start == 0 && dots == 0:
		return 0, 0, false // without a scheme it may be just a word
	case length > maxLabel, // perhaps a label is too long
		end < len(s) && s[end] == '_',
		labels<<2&hyphens&(hyphens>>1) != 0,   // perhaps xn--
		length > last && s[start+last] <= '9': // an IP address, or no name
		for end = start; end < len(s) && classes[s[end]]&hostPlain != 0; {
			end++
		}
		domain, ok = n.plainDomain(s[start:end])
		return end, start + domain, ok
	case labels&(dots|1<<length) != 0, isScheme(s[start:end]):
		return 0, 0, false // an empty label, or no host
	case start == 0:
		return end, end - len(n.suffixes.Domain(view(s[:end]))), true
	}
	return end, start + n.suffixes.table.domain(view(s[:end]), start, dots), true
}

// plainDomain returns where the domain starts in a host of any length, under the conditions of
// plainHost.
func (n *Normalizer) plainDomain(host []byte) (domain int, ok bool) {
	if len(host) > maxName || !plainASCII(host) {
		return 0, false
	}
	start := 0 // of the label
	for i, c := range host {
		if c == '.' {
			if i == start {
				return 0, false
			}
			start = i + 1
		} else if i-start >= maxLabel {
			return 0, false
		}
	}
	if start == len(host) {
		return 0, false
	}
	if c := host[start]; '0' <= c && c <= '9' {
		// An address, or a name that parse has to tell from one.
		addr, err := netip.ParseAddr(view(host))
		return 0, err == nil && addr.Is4()
	}
	return len(host) - len(n.suffixes.Domain(view(host))), true
}
