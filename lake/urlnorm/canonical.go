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

// parsePlain sets u to the URL of an input with a canonical scheme, host and port, and returns false for one in
// which any of these needs a closer look. What is canonical of the URL is part of raw.
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
	var hostStart int
	var defaultPort int32
	switch prefix := binary.LittleEndian.Uint64(raw); {
	case prefix == httpsPrefix:
		u.Scheme, hostStart, defaultPort = schemeHTTPS.name, len("https://"), schemeHTTPS.defaultPort
	case prefix<<8 == httpPrefix<<8:
		u.Scheme, hostStart, defaultPort = schemeHTTP.name, len("http://"), schemeHTTP.defaultPort
	default:
		return false
	}
	hostEnd, domain, ok := n.plainHost(raw, hostStart)
	if !ok {
		return false
	}
	u.Host, u.Domain = view(raw[hostStart:hostEnd]), view(raw[domain:hostEnd])
	u.Port = -1
	start := hostEnd // of the path
	if start < len(raw) && raw[start] == ':' {
		if u.Port, start, ok = canonicalPort(raw, start+1, defaultPort); !ok {
			return false
		}
	}
	if start == len(raw) || raw[start] == '#' {
		u.PathQuery = "/"
		return true
	}
	if raw[start] == '/' {
		if end := n.canonicalPathQuery(raw, start); end > 0 {
			u.PathQuery = view(raw[start:end])
			return true
		}
	}
	return n.changePathQuery(raw, start, u)
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

// canonicalPathQuery reads a path and query from s[start], a slash, to the end or a fragment. It returns where
// they end, 0 where they are not canonical.
func (n *Normalizer) canonicalPathQuery(s []byte, start int) (end int) {
	for i := start + 1; ; i++ {
		if i = skipPath(s, i); i == len(s) {
			return i
		}
		switch s[i] {
		case '/':
			if s[i-1] == '/' && s[i-2] != ':' {
				return 0
			}
		case '.':
			if s[i-1] == '/' && startsDotSegment(s[i:]) {
				return 0
			}
		case '%':
			if !canonicalEscape(s[i:]) {
				return 0
			}
			i += 2
		case '?':
			return n.canonicalQuery(s, i+1)
		case '#':
			return i
		default:
			if classes[s[i]]&escaped != 0 {
				return 0
			}
		}
	}
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
// not canonical: parameters in order, none empty, none stripped.
func (n *Normalizer) canonicalQuery(s []byte, start int) (end int) {
	var previous []byte
	nameEnd := -1
	for i := start; ; i++ {
		if i = skipQuery(s, i); i < len(s) {
			switch s[i] {
			case '&', '#':
			case '=':
				if nameEnd < 0 {
					nameEnd = i
				}
				continue
			case '%':
				if !canonicalEscape(s[i:]) {
					return 0
				}
				i += 2
				continue
			default:
				if classes[s[i]]&escaped != 0 {
					return 0
				}
				continue
			}
		}
		// s[start:i] is a parameter.
		if nameEnd < 0 {
			nameEnd = i
		}
		name := s[start:nameEnd]
		if i == start || bytes.Compare(previous, name) > 0 || n.stripped(name) {
			return 0
		}
		if i == len(s) || s[i] == '#' {
			return i
		}
		previous, start, nameEnd = name, i+1, -1
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
