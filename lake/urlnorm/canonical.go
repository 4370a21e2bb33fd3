package urlnorm

import (
	"bytes"
	"net/netip"

	"github.com/zeebo/xxh3"
)

// Most URLs of most datasets are canonical already, but perhaps for white space at the end, a fragment
// and the slash of an empty path. For those parseCanonical is one scan that looks for anything else
// that parse would change. It never decides that an input is bad: it leaves what is not plainly
// canonical to parse.

// hostMemo remembers the domains of hosts. It is a direct-mapped cache: neighbours in a crawl
// share hosts, and a collision costs one lookup in the public suffix list.
type hostMemo [memoSlots]struct {
	// length and domain are the host's length and where its domain starts in it. A host has
	// at least one byte, so that an empty slot matches none.
	length, domain uint8
	host           [memoHost]byte
}

const (
	memoSlots = 4096 // 256 KiB: a share of a core's cache
	memoHost  = 62   // a slot is a cache line; longer hosts are rare and looked up
)

// parseCanonical returns the URL of a plainly canonical input, and false for any other.
func (n *Normalizer) parseCanonical(raw []byte) (URL, bool) {
	if len(raw) >= maxCanonical {
		return URL{}, false // a slash may have to be added
	}
	for len(raw) > 0 && raw[len(raw)-1] <= ' ' {
		raw = raw[:len(raw)-1]
	}
	if i := bytes.IndexByte(raw, '#'); i >= 0 {
		raw = raw[:i]
	}
	var u URL
	var hostStart int
	var defaultPort int32
	switch {
	case bytes.HasPrefix(raw, []byte("https://")):
		u.Scheme, hostStart, defaultPort = schemeHTTPS.name, len("https://"), schemeHTTPS.defaultPort
	case bytes.HasPrefix(raw, []byte("http://")):
		u.Scheme, hostStart, defaultPort = schemeHTTP.name, len("http://"), schemeHTTP.defaultPort
	default:
		return URL{}, false
	}
	hostEnd := hostStart
	for hostEnd < len(raw) && classes[raw[hostEnd]]&hostPlain != 0 {
		hostEnd++
	}
	domain, ok := n.plainHost(raw[hostStart:hostEnd])
	if !ok {
		return URL{}, false
	}
	pathStart := hostEnd
	u.Port = -1
	if pathStart < len(raw) && raw[pathStart] == ':' {
		if u.Port, pathStart, ok = canonicalPort(raw, pathStart+1, defaultPort); !ok {
			return URL{}, false
		}
	}
	noPath := pathStart == len(raw)
	if !noPath && (raw[pathStart] != '/' || !n.canonicalPathQuery(raw[pathStart:])) {
		return URL{}, false
	}

	n.out = append(n.out[:0], raw...)
	if noPath {
		n.out = append(n.out, '/')
	}
	u.Host = view(n.out[hostStart:hostEnd])
	u.Domain = u.Host[domain:]
	u.PathQuery = view(n.out[pathStart:])
	return u, true
}

// canonicalPort reads a port that is neither the default nor spelled in an odd way.
func canonicalPort(raw []byte, i int, defaultPort int32) (port int32, end int, ok bool) {
	start := i
	for i < len(raw) && '0' <= raw[i] && raw[i] <= '9' && i-start < 5 {
		port = port*10 + int32(raw[i]-'0')
		i++
	}
	return port, i, i > start && raw[start] != '0' && port <= 65535 && port != defaultPort
}

// canonicalPathQuery reports whether s, which starts with a slash, is a canonical path and query.
func (n *Normalizer) canonicalPathQuery(s []byte) bool {
	for i := 1; i < len(s); i++ {
		if classes[s[i]]&pathStop == 0 {
			continue
		}
		switch s[i] {
		case '/':
			if s[i-1] == '/' && (i < 2 || s[i-2] != ':') {
				return false
			}
		case '.':
			if s[i-1] == '/' && startsDotSegment(s[i:]) {
				return false
			}
		case '%':
			if !canonicalEscape(s[i:]) {
				return false
			}
			i += 2
		case '?':
			return n.canonicalQuery(s[i+1:])
		default:
			return false
		}
	}
	return true
}

// startsDotSegment reports whether s starts with the segment "." or "..".
func startsDotSegment(s []byte) bool {
	s = s[1:]
	if len(s) > 0 && s[0] == '.' {
		s = s[1:]
	}
	return len(s) == 0 || s[0] == '/' || s[0] == '?'
}

// canonicalEscape reports whether s starts with an escape that is needed and in upper case.
func canonicalEscape(s []byte) bool {
	v, ok := unescape(s)
	return ok && classes[v]&unreserved == 0 && s[1] == upperHex[v>>4] && s[2] == upperHex[v&15]
}

// canonicalQuery reports whether s is a canonical query: parameters in order, none empty, none stripped.
func (n *Normalizer) canonicalQuery(s []byte) bool {
	var previous []byte
	start, nameEnd := 0, -1
	for i := 0; ; i++ {
		if i < len(s) {
			if classes[s[i]]&queryStop == 0 {
				continue
			}
			switch s[i] {
			case '&':
			case '=':
				if nameEnd < 0 {
					nameEnd = i
				}
				continue
			case '%':
				if !canonicalEscape(s[i:]) {
					return false
				}
				i += 2
				continue
			default:
				return false
			}
		}
		// s[start:i] is a parameter.
		if nameEnd < 0 {
			nameEnd = i
		}
		name := s[start:nameEnd]
		if i == start || bytes.Compare(previous, name) > 0 || n.stripped(name) {
			return false
		}
		if i >= len(s) {
			return true
		}
		previous, start, nameEnd = name, i+1, -1
	}
}

// plainHost returns where the domain starts in a host of lower-case letters, digits, hyphens, underscores
// and dots, and false for one that is not its own canonical form or needs a closer look.
func (n *Normalizer) plainHost(host []byte) (domain int, ok bool) {
	if n.memo == nil || len(host) > memoHost {
		return plainDomain(host)
	}
	slot := &n.memo[xxh3.Hash(host)%memoSlots]
	if int(slot.length) == len(host) && len(host) > 0 && string(slot.host[:slot.length]) == string(host) {
		return int(slot.domain), true
	}
	if domain, ok = plainDomain(host); ok {
		slot.length, slot.domain = uint8(len(host)), uint8(domain)
		copy(slot.host[:], host)
	}
	return domain, ok
}

// domainStart returns where the domain starts in any canonical host.
func (n *Normalizer) domainStart(host []byte) int {
	for _, c := range host {
		if classes[c]&hostPlain == 0 {
			return len(host) - len(Domain(view(host)))
		}
	}
	if domain, ok := n.plainHost(host); ok {
		return domain
	}
	return len(host) - len(Domain(view(host)))
}

// plainDomain is plainHost without memory.
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
