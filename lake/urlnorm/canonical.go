package urlnorm

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// Most URLs of most datasets are canonical already, but perhaps for white space at the end, a fragment
// and the slash of an empty path. For those parsePlain is one scan that looks for anything else
// that parse would change. It never decides that an input is bad: it leaves what does not plainly
// start as a canonical URL to parse. Bytes are looked at eight at a time, see words.go.

// parsePlain sets u to the URL of an input with a canonical scheme, or none, host and port, and returns false for one
// in which any of these needs a closer look. What is canonical of the URL is part of raw.
func (n *Normalizer) parsePlain(raw []byte, u *URL) bool {
	if len(raw) >= maxCanonical {
		return false // a slash may have to be added
	}
	for len(raw) > 0 && raw[len(raw)-1] <= ' ' {
		raw = raw[:len(raw)-1]
	}
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
			n.out = n.appendPieces(n.out[:0], raw, start)
			u.PathQuery = view(n.out)
			return true
		}
	}
	return n.changePathQuery(raw, start, u)
}

// origin is what an input starts with, up to and with the slash of its path, when it has no port. Lists have
// runs of one host, whose inputs need not be looked at so far.
type origin struct {
	text         []byte // empty before the first
	scheme       string
	host, domain int // where they start in text
}

// begins sets the parts of u that are before the path, if raw starts as o does, and returns where the path
// starts; 0 if raw does not.
func (o *origin) begins(raw []byte, u *URL) (path int) {
	if len(o.text) == 0 || !bytes.HasPrefix(raw, o.text) {
		return 0
	}
	path = len(o.text) - 1
	u.Scheme, u.Host, u.Port, u.Domain = o.scheme, view(raw[o.host:path]), -1, view(raw[o.domain:path])
	return path
}

// plainOrigin sets the parts of u that are before the path, and returns where that starts, or would; 0 if one of
// them needs a closer look.
func (n *Normalizer) plainOrigin(raw []byte, u *URL) (path int) {
	s, start := schemeHTTP, 0
	switch prefix := binary.LittleEndian.Uint64(raw); {
	case prefix == httpsPrefix:
		s, start = schemeHTTPS, len("https://")
	case prefix<<8 == httpPrefix<<8:
		start = len("http://")
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
				return 0 // the host may be a scheme
			}
			if u.Port, end, ok = canonicalPort(raw, end+1, s.defaultPort); !ok {
				return 0
			}
		}
	}
	return end
}

// changePathQuery sets the path and query, which are from raw[start] to the end or a fragment, where they are
// not canonical. It returns false for what parse may see in another way.
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

// What an input may start with, as words; the shorter one lacks its last byte.
const (
	httpPrefix  = 'h' | 't'<<8 | 't'<<16 | 'p'<<24 | ':'<<32 | '/'<<40 | '/'<<48
	httpsPrefix = 'h' | 't'<<8 | 't'<<16 | 'p'<<24 | 's'<<32 | ':'<<40 | '/'<<48 | '/'<<56
)

// canonicalPort reads a port that is neither the default nor spelled in an odd way.
func canonicalPort(raw []byte, i int, defaultPort int32) (port int32, end int, ok bool) {
	start := i
	for i < len(raw) && '0' <= raw[i] && raw[i] <= '9' && i-start < 5 {
		port = port*10 + int32(raw[i]-'0')
		i++
	}
	return port, i, i > start && raw[start] != '0' && port <= 65535 && port != defaultPort
}

// canonicalPathQuery reads a path and query, of which scanPath has read from a slash up to s[i], to the end or a fragment. It
// returns where they end, 0 where they are not canonical. If all that is not so is the order of the query's parameters, they are not
// sorted, and in pieces.
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

// appendPieces appends the path and query of s, which are from s[start] on and canonical but for the order of
// parameters.
func (n *Normalizer) appendPieces(dst, s []byte, start int) []byte {
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

// canonicalEscape reports whether s starts with an escape that is needed and in upper case.
func canonicalEscape(s []byte) bool {
	v, ok := unescape(s)
	return ok && classes[v]&unreserved == 0 && s[1] == upperHex[v>>4] && s[2] == upperHex[v&15]
}

// canonicalQuery reads a query from s[start] to the end or a fragment. It returns where it ends, 0 where it is
// not canonical but for the order of parameters: none empty, none stripped. They are in pieces then.
func (n *Normalizer) canonicalQuery(s []byte, start int) (end int, sorted bool) {
	n.pieces = n.pieces[:0]
	sorted = true
	nameEnd := 0 // of the parameter from start; 0 before its '='
	for from := start; ; from += 64 {
		ends, equals, odd := scanQuery(s, from)
		for ; odd != 0; odd &= odd - 1 {
			i := from + firstBit(odd)
			if s[i] == '#' {
				// Nothing behind matters.
				below := odd&-odd - 1
				ends, equals = ends&below|odd&-odd, equals&below
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
			n.pieces = append(n.pieces, piece{start, nameEnd, i, head(s, start, nameEnd)})
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

// plainHost reads a host of lower-case letters, digits, hyphens, underscores and dots from s[start], and
// returns where its domain starts. It takes none that is not its own canonical form or needs a closer look.
func (n *Normalizer) plainHost(s []byte, start int) (end, domain int, ok bool) {
	if n.suffixes == nil {
		n.suffixes = suffixes()
	}
	end, dots, hyphens := scanName(s, start)
	length := end - start
	labels := dots<<1 | 1 // where labels start
	last := bits.Len64(dots)
	switch {
	case start == 0 && dots == 0:
		return 0, 0, false // without a scheme it may be a mere word
	case length > maxLabel, // and perhaps a label is
		end < len(s) && s[end] == '_',
		labels<<2&hyphens&(hyphens>>1) != 0,   // perhaps xn--
		length > last && s[start+last] <= '9', // an address or no name
		n.suffixes == nil:
		for end = start; end < len(s) && classes[s[end]]&hostPlain != 0; {
			end++
		}
		domain, ok = plainDomain(s[start:end])
		return end, start + domain, ok
	case labels&(dots|1<<length) != 0:
		return 0, 0, false // an empty label
	case start == 0:
		return end, end - len(Domain(view(s[:end]))), true
	}
	return end, start + n.suffixes.domain(view(s[:end]), start, dots), true
}

// plainDomain returns where the domain starts in a host of any length, as plainHost does.
func plainDomain(host []byte) (domain int, ok bool) {
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
		// A number, or a name that parse has to tell from one.
		addr, err := netip.ParseAddr(view(host))
		return 0, err == nil && addr.Is4()
	}
	return len(host) - len(Domain(view(host))), true
}
