package urlnorm

import (
	"bytes"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

const (
	maxLabel = 63  // RFC 1035, 2.3.4
	maxName  = 253 // the same, as text and without the root's dot

	// expansion is how many code points can become one byte of a name: NFC composes no more. Longer
	// names are padded with characters that the mapping ignores.
	expansion = 4
)

// toASCII is UTS #46 ToASCII: non-transitional, CheckHyphens and UseSTD3ASCIIRules off ("r3---sn-…"
// and underscores are real), CheckBidi and CheckJoiners on. Lengths are checked by canonicalName,
// together with empty labels and the root's dot.
var toASCII = idna.New(
	idna.MapForLookup(),
	idna.Transitional(false),
	idna.StrictDomainName(false),
	idna.CheckHyphens(false),
	idna.CheckJoiners(true),
	idna.BidiRule(),
)

// capitalSharpS is mapped here because UTS #46 changed its mapping from "ss" to "ß" in Unicode
// 15.1. What idna does depends on the Go release, and a canonical form must not. It is the one code
// point on whose mapping the tables of idna disagree.
const capitalSharpS = "ẞ"

// dots are the characters that UTS #46 maps to the label separator, apart from the full stop.
const dots = "。．｡"

// isScheme reports whether a host is the scheme of a web page, as in http://http//a/. Hosts may be
// named ftp.
func isScheme[T string | []byte](host T) bool {
	return string(host) == "http" || string(host) == "https"
}

// appendHost appends the canonical form of an authority's host to n.out. bare says that the input
// has no scheme; then a word that cannot be a public name is rejected as no host.
func (n *Normalizer) appendHost(text []byte, bare bool) *RejectError {
	if len(text) == 0 {
		return reject(RejectNoHost, "no host")
	}
	if text[0] == '[' {
		return n.appendIPv6(text)
	}
	n.host = n.host[:0]
	for i := 0; i < len(text); i++ {
		if v, ok := unescape(text[i:]); ok && text[i] == '%' {
			n.host = append(n.host, v)
			i += 2
			continue
		}
		n.host = append(n.host, text[i])
	}
	name, rej := canonicalName(n.host)
	if bare {
		word := rej == nil && !strings.Contains(name, ".") && name != "localhost"
		if word || rej != nil && !hasInnerDot(n.host) {
			return reject(RejectNoHost, "%s has no dot", quoted(n.host))
		}
	}
	if rej != nil {
		return rej
	}
	if isScheme(name) {
		return reject(RejectNoHost, "%s is a second scheme", quoted(n.host))
	}
	if !endsInNumber(name) {
		n.out = append(n.out, name...)
		return nil
	}
	addr, ok := parseIPv4(name)
	if !ok {
		return reject(RejectHost, "%s ends in a number and is no IPv4 address", quoted([]byte(name)))
	}
	n.out = addr.AppendTo(n.out)
	return nil
}

// hasInnerDot reports whether host, which is not a valid name, has a dot before its last character.
func hasInnerDot(host []byte) bool {
	_, size := utf8.DecodeLastRune(host)
	host = host[:len(host)-size]
	return bytes.IndexByte(host, '.') >= 0 || bytes.ContainsAny(host, dots)
}

// canonicalName maps a percent-decoded host to its canonical name, which may still be a spelling of
// an IPv4 address. It may change the bytes of host.
func canonicalName(host []byte) (string, *RejectError) {
	var name string
	if plainASCII(host) {
		// Of the steps of UTS #46, only the mapping to lower case can change such a name.
		for i, c := range host {
			host[i] = lowerASCII(c)
		}
		name = view(host)
	} else {
		var ok bool
		if name, ok = mapName(host); !ok {
			return "", reject(RejectHost, "%s is no valid name under UTS #46", quoted(host))
		}
	}
	name = strings.TrimSuffix(name, ".")
	label := 0
	for i := range len(name) {
		switch c := name[i]; {
		case c == '.':
			if label == 0 {
				return "", reject(RejectHost, "empty label")
			}
			label = 0
			continue
		case classes[c]&forbidden != 0:
			return "", reject(RejectHost, "character %q", c)
		}
		if label++; label > maxLabel {
			return "", reject(RejectHost, "label over %d bytes", maxLabel)
		}
	}
	if label == 0 {
		return "", reject(RejectHost, "empty label")
	}
	if len(name) > maxName {
		return "", reject(RejectHost, "name of %d bytes, over %d", len(name), maxName)
	}
	return name, nil
}

// plainASCII reports whether host is ASCII and has no label that starts with xn--.
func plainASCII(host []byte) bool {
	start := 0
	for i, c := range host {
		switch {
		case c >= utf8.RuneSelf:
			return false
		case c == '.':
			start = i + 1
		case c == '-' && i == start+3 && equalFold(host[start:i+1], "xn--"):
			return false
		}
	}
	return true
}

// mapName is UTS #46 ToASCII for names whose Unicode form maps to the same ASCII form again. The
// library accepts names that do not: malformed UTF-8, and A-labels of labels that start with xn--
// themselves.
func mapName(host []byte) (string, bool) {
	if !utf8.Valid(host) || tooLongToMap(host) {
		return "", false
	}
	name, err := toASCII.ToASCII(strings.ReplaceAll(string(host), capitalSharpS, "ß"))
	if err != nil || len(name) > maxName+len(".") {
		return "", false
	}
	inUnicode, err := toASCII.ToUnicode(name)
	if err != nil {
		return "", false
	}
	again, err := toASCII.ToASCII(inUnicode)
	return name, err == nil && again == name
}

// tooLongToMap keeps overlong names from the library, where a label takes time quadratic in its
// length: one of 64 KiB would take a second.
func tooLongToMap(host []byte) bool {
	runes, label := 0, 0
	for _, r := range view(host) {
		if runes++; r == '.' || strings.ContainsRune(dots, r) {
			label = 0
		} else if label++; label > expansion*maxLabel {
			return true
		}
	}
	return runes > expansion*maxName
}

// endsInNumber is WHATWG's "ends in a number" for a canonical name.
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if digits, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(digits, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// parseIPv4 parses the forms that browsers accept: one to four parts, decimal, octal after 0 or
// hexadecimal after 0x. The last part fills the remaining bytes.
func parseIPv4(name string) (netip.Addr, bool) {
	var addr [4]byte
	for part := 0; ; part++ {
		text, rest, more := strings.Cut(name, ".")
		v, ok := parseIPv4Number(text)
		switch {
		case !ok || more && part == 3:
			return netip.Addr{}, false
		case more:
			if v > 255 {
				return netip.Addr{}, false
			}
			addr[part] = byte(v)
			name = rest
		default:
			if v>>(8*(4-part)) != 0 {
				return netip.Addr{}, false
			}
			for i := 3; i >= part; i-- {
				addr[i] = byte(v)
				v >>= 8
			}
			return netip.AddrFrom4(addr), true
		}
	}
}

func parseIPv4Number(s string) (uint64, bool) {
	base := 10
	if digits, ok := strings.CutPrefix(s, "0x"); ok {
		if s, base = digits, 16; s == "" {
			return 0, true // "0x" is zero
		}
	} else if len(s) > 1 && s[0] == '0' {
		s, base = s[1:], 8
	}
	if s == "" || strings.Trim(s, "0123456789abcdef") != "" {
		return 0, false // ParseUint also takes signs
	}
	v, err := strconv.ParseUint(s, base, 64)
	return v, err == nil
}

// appendIPv6 appends the RFC 5952 form of a bracketed address to n.out, always in hexadecimal.
func (n *Normalizer) appendIPv6(text []byte) *RejectError {
	addr, err := netip.ParseAddr(string(text[1 : len(text)-1]))
	if err != nil || !addr.Is6() || addr.Zone() != "" {
		return reject(RejectHost, "%s is no IPv6 address", quoted(text))
	}
	b := addr.As16()
	var groups [8]uint16
	for i := range groups {
		groups[i] = uint16(b[2*i])<<8 | uint16(b[2*i+1])
	}
	// The longest run of two or more zero groups; of several, the first.
	zeros, end := -1, -1
	for i := 0; i < 8; i++ {
		j := i
		for j < 8 && groups[j] == 0 {
			j++
		}
		if j-i >= 2 && j-i > end-zeros {
			zeros, end = i, j
		}
		i = j
	}
	n.out = append(n.out, '[')
	for i := 0; i < 8; i++ {
		if i == zeros {
			n.out = append(n.out, "::"...)
			i = end - 1
			continue
		}
		if i > 0 && i != end {
			n.out = append(n.out, ':')
		}
		n.out = strconv.AppendUint(n.out, uint64(groups[i]), 16)
	}
	n.out = append(n.out, ']')
	return nil
}
