// Package urlnorm turns any spelling of an http, https or ftp URL into urlake's canonical form, and
// derives its names: the host's registrable domain, the 64-bit ids of domain and URL, and the
// 63-bit key of the relational export. docs/formats/canonical-url.md has the rules in full. Ingest
// parses every line with it, and servers and programs the URLs that they are given.
//
// It promises that every build gives a URL the same canonical form and ids: the form has a name,
// [Form], and a change of the rules gets a new name. The form is idempotent: parsing a canonical
// URL returns it. No input makes it panic, whatever its bytes. The domain of a host also depends on
// a public suffix list, which is a value, [SuffixList]; the form and the URL's id do not depend on
// it. The package is pure: no I/O, no clock, no state that changes an answer.
//
// # Where the form differs from others
//
// The parser follows the WHATWG URL standard wherever that standard says what a URL means, since
// raw URLs were written for browsers. A canonical form also has to unite the spellings of one page,
// which the standard does not try to. The differences, by the names under which the tests count
// them:
//
//	no-base            There is no base URL. A reference without a scheme is a host of http
//	                   ("example.com/a", "//example.com"), or is rejected if that host has no
//	                   dot.
//	web-only           Only http, https and ftp name pages; other schemes are rejected. A word
//	                   with a dot, or localhost, before a colon and a port is a host, not a
//	                   scheme.
//	any-slashes        Any run of slashes and backslashes may follow the scheme, as in browsers;
//	                   RFC 3986 and Safe Browsing want two slashes.
//	host-checked       A host that no browser opens is rejected; SURT, Safe Browsing and urlcanon
//	                   keep it.
//	no-fragment        The fragment is dropped: servers never see it.
//	no-userinfo        User info is dropped: it is a credential.
//	one-trailing-dot   The root label's dot is dropped: DNS gives both names one answer.
//	dns-limits         Empty labels, labels over 63 bytes and names over 253 are rejected: no DNS
//	                   answer can exist for them.
//	no-separator       A host with a comma or semicolon is rejected: no DNS name has one, and
//	                   texts of several hosts do.
//	number-is-address  A name that ends in a number is an IPv4 address or is rejected. The
//	                   standard says so since 2021; older vectors, SURT and Safe Browsing keep
//	                   such names.
//	a-labels-checked   An xn-- label has to be one that UTS #46 produces. The standard stopped
//	                   checking names that are all ASCII; then one label would have many
//	                   spellings.
//	unicode-tables     Code points newer than the Unicode tables compiled in are rejected. A
//	                   later Go release accepts more of them, and changes the form of none that
//	                   was accepted.
//	unreserved         Escaped unreserved characters are decoded, the other escapes upper-cased
//	                   (RFC 3986, 6.2.2). Browsers leave them as they are.
//	stray-percent      A percent sign that starts no escape becomes %25: parsing again must not
//	                   find an escape that was not one before.
//	encoded-set        One set of characters is escaped in path and query alike: controls, space,
//	                   "<>^`{|} and all non-ASCII, and \ in the query (RFC 3986 allows none of
//	                   them). Browsers leave ^`{|}\ in queries and | in paths, and escape ' in
//	                   queries.
//	raw-bytes          Bytes that are not UTF-8 are escaped one by one; browsers replace them
//	                   with U+FFFD and so make different URLs equal.
//	slash-runs         Runs of slashes in a path are one slash, two after a colon (archives hold
//	                   URLs in paths).
//	sorted-query       Query parameters are sorted by name, empty ones and an empty query
//	                   dropped. SURT sorts whole parameters; here the values of a repeated name
//	                   keep their order.
//	nothing-guessed    SURT and the crawlers' canonicalizers also drop "www.", session ids,
//	                   default pages, trailing slashes, the case of paths and repeated escaping.
//	                   That makes different resources equal, so it is left to the caller.
package urlnorm

import (
	"bytes"
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unsafe"
)

// Form names the canonical form that this package makes. A lake records it.
const Form = "urlake-1"

const (
	// maxInput is the longest input that is parsed, in bytes. It bounds the scratch space; no
	// server accepts a URL half as long.
	maxInput = 64 << 10
	// maxCanonical is the longest canonical URL, in bytes: it bounds a row.
	maxCanonical = 16 << 10
)

// Reason says which rule rejected an input. Its values are stored in rejects files and
// returned by the servers.
type Reason string

const (
	// RejectScheme: the input names a scheme other than http, https and ftp.
	RejectScheme Reason = "scheme"
	// RejectNoHost: there is no host, or in its place a word without a dot or a second scheme.
	RejectNoHost Reason = "no_host"
	// RejectHost: the host is no valid name, IPv4 or IPv6 address.
	RejectHost Reason = "host"
	// RejectPort: the port is no number up to 65535.
	RejectPort Reason = "port"
	// RejectTooLong: the input is longer than 64 KiB or its canonical form than 16 KiB.
	RejectTooLong Reason = "too_long"
)

// RejectError is the error of every input that has no canonical form.
type RejectError struct {
	Reason Reason
	// Detail says why in words. Of the URL's text it holds at most the host, a label
	// of it, or the port, cut short.
	Detail string
}

func (e *RejectError) Error() string {
	return "URL rejected (" + string(e.Reason) + "): " + e.Detail
}

// URL is a canonical URL in its parts.
type URL struct {
	// Scheme is "http", "https" or "ftp".
	Scheme string
	// Host is a lower-case ASCII name without a trailing dot, a dotted-decimal IPv4
	// address, or an IPv6 address in brackets.
	Host string
	// Port is the port where it is not the scheme's default, else -1.
	Port int32
	// PathQuery starts with a slash and includes "?" and the query where there is one.
	PathQuery string
	// Domain is the registrable domain of Host, see SuffixList.Domain. It is a suffix of Host.
	Domain string
}

// String returns the canonical URL.
func (u URL) String() string {
	const port = len("://:65535")
	var short [256]byte // most URLs fit, so that they are copied once
	if len(u.Scheme)+len(u.Host)+len(u.PathQuery)+port > len(short) {
		return string(u.AppendTo(nil))
	}
	return string(u.AppendTo(short[:0]))
}

// AppendTo appends the canonical URL to dst.
func (u URL) AppendTo(dst []byte) []byte {
	dst = append(dst, u.Scheme...)
	dst = append(dst, "://"...)
	dst = append(dst, u.Host...)
	if u.Port >= 0 {
		dst = append(dst, ':')
		dst = strconv.AppendInt(dst, int64(u.Port), 10)
	}
	return append(dst, u.PathQuery...)
}

// Clone returns a copy whose strings do not depend on the Normalizer or its input.
func (u URL) Clone() URL {
	u.Host = strings.Clone(u.Host)
	u.Domain = u.Host[len(u.Host)-len(u.Domain):]
	u.PathQuery = strings.Clone(u.PathQuery)
	return u
}

// Options are the choices a caller has about the canonical form.
type Options struct {
	// StripParams drops query parameters by name: "gclid", or "utm_*" for every name
	// that starts so. Names are compared byte by byte in their canonical spelling.
	StripParams []string
}

// Normalizer parses URLs. It owns scratch buffers, so that a stream of URLs costs no allocation. It
// is not safe for concurrent use.
type Normalizer struct {
	suffixes      *SuffixList
	stripNames    []string
	stripPrefixes []string

	lastOrigin origin
	batch      *batch // nil before the first batch

	in     []byte  // the input without tab, CR and LF
	host   []byte  // the host, percent-decoded
	part   []byte  // the path or query with canonical escapes
	pieces []piece // query parameters within part or an input
	out    []byte  // the canonical URL, or its path and query, which the strings returned last are parts of
}

// New returns a Normalizer that finds domains by a public suffix list. Its error is that of Check.
func New(list *SuffixList, o Options) (*Normalizer, error) {
	n := &Normalizer{suffixes: list}
	for _, p := range o.StripParams {
		name, glob := strings.CutSuffix(p, "*")
		if name == "" || strings.ContainsAny(name, "*&=#?") {
			return nil, fmt.Errorf("strip parameter %q: want a name, or a prefix followed by *", p)
		}
		name = string(appendEscaped(nil, []byte(name), inQuery))
		if glob {
			n.stripPrefixes = append(n.stripPrefixes, name)
		} else {
			n.stripNames = append(n.stripNames, name)
		}
	}
	return n, nil
}

// Check returns an error that names the entry of StripParams that is no parameter name.
func (o Options) Check() error {
	_, err := New(nil, o)
	return err
}

// Parse returns raw's canonical form. The error is a *RejectError.
//
// The strings of the URL are parts of raw and of the Normalizer: they are valid until the next use
// of the Normalizer, and only while the bytes of raw do not change. Keep them with Clone, or copy
// what is needed with AppendTo. Parse does not change raw, nor use it after it has returned.
func (n *Normalizer) Parse(raw []byte) (u URL, err error) {
	if n.parsePlain(raw, &u) {
		return u, nil
	}
	u, rej := n.parse(raw)
	if rej != nil {
		return URL{}, rej
	}
	return u, nil
}

// ParseString is Parse for a string, of which the strings of the URL may be parts.
func (n *Normalizer) ParseString(raw string) (URL, error) {
	return n.Parse(unsafe.Slice(unsafe.StringData(raw), len(raw)))
}

// Parse returns raw's canonical form with default options, and its domain by a public suffix list.
// The error is a *RejectError. It is safe for concurrent use, and its strings stay valid.
func Parse(list *SuffixList, raw string) (URL, error) {
	n := Normalizer{suffixes: list}
	return n.Parse([]byte(raw))
}

func reject(r Reason, format string, args ...any) *RejectError {
	return &RejectError{Reason: r, Detail: fmt.Sprintf(format, args...)}
}

// maxQuoted is how much of a host or port a RejectError quotes, in bytes.
const maxQuoted = 80

func quoted(s []byte) string {
	if len(s) > maxQuoted {
		return strconv.QuoteToASCII(string(s[:maxQuoted])) + "…"
	}
	return strconv.QuoteToASCII(string(s))
}

// scheme is one of the schemes that are accepted.
type scheme struct {
	name        string
	defaultPort int32
}

var (
	schemeHTTP  = &scheme{"http", 80}
	schemeHTTPS = &scheme{"https", 443}
	schemeFTP   = &scheme{"ftp", 21}
)

// parse parses any input, in the order of the rules in docs/formats/canonical-url.md.
func (n *Normalizer) parse(raw []byte) (URL, *RejectError) {
	if len(raw) > maxInput {
		return URL{}, reject(RejectTooLong, "input of %d bytes, over %d", len(raw), maxInput)
	}
	s := n.clean(raw)
	sch, s, rej := splitScheme(s)
	if rej != nil {
		return URL{}, rej
	}
	bare := sch == nil
	if bare {
		sch = schemeHTTP
	}
	authority, rest := splitAuthority(s)
	hostText, portText, rej := splitHostPort(authority)
	if rej != nil {
		return URL{}, rej
	}

	n.out = append(n.out[:0], sch.name...)
	n.out = append(n.out, "://"...)
	hostStart := len(n.out)
	if rej := n.appendHost(hostText, bare); rej != nil {
		return URL{}, rej
	}
	hostEnd := len(n.out)
	port, rej := parsePort(portText, sch.defaultPort)
	if rej != nil {
		return URL{}, rej
	}
	if port >= 0 {
		n.out = append(n.out, ':')
		n.out = strconv.AppendInt(n.out, int64(port), 10)
	}
	pathStart := len(n.out)
	n.appendPathQuery(rest)
	if len(n.out) > maxCanonical {
		return URL{}, reject(RejectTooLong, "canonical form of %d bytes, over %d", len(n.out), maxCanonical)
	}
	host := n.out[hostStart:hostEnd]
	return URL{
		Scheme:    sch.name,
		Host:      view(host),
		Port:      port,
		PathQuery: view(n.out[pathStart:]),
		Domain:    n.suffixes.Domain(view(host)),
	}, nil
}

// view is b as a string, valid while b does not change.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// clean strips C0 controls and spaces around raw, tab, CR and LF within it, and the fragment.
func (n *Normalizer) clean(raw []byte) []byte {
	for len(raw) > 0 && raw[0] <= ' ' {
		raw = raw[1:]
	}
	raw = trimRight(raw)
	if i := bytes.IndexByte(raw, '#'); i >= 0 {
		raw = raw[:i]
	}
	if !hasTabOrNewline(raw) {
		return raw
	}
	n.in = n.in[:0]
	for _, c := range raw {
		if !isTabOrNewline(c) {
			n.in = append(n.in, c)
		}
	}
	return n.in
}

// trimRight strips C0 controls and spaces at the end.
func trimRight(raw []byte) []byte {
	for len(raw) > 0 && raw[len(raw)-1] <= ' ' {
		raw = raw[:len(raw)-1]
	}
	return raw
}

func hasTabOrNewline(s []byte) bool {
	return bytes.IndexByte(s, '\t') >= 0 || bytes.IndexByte(s, '\n') >= 0 || bytes.IndexByte(s, '\r') >= 0
}

func isTabOrNewline(c byte) bool { return c == '\t' || c == '\n' || c == '\r' }

func isSlash(c byte) bool { return c == '/' || c == '\\' }

func trimSlashes(s []byte) []byte {
	for len(s) > 0 && isSlash(s[0]) {
		s = s[1:]
	}
	return s
}

// splitScheme returns the scheme, or nil if the input names none, and the rest from the authority
// on.
func splitScheme(s []byte) (*scheme, []byte, *RejectError) {
	word, after, ok := cutSchemeWord(s)
	switch {
	case !ok || isHostWithPort(word, after):
		rest := trimSlashes(s)
		if len(s)-len(rest) == 1 {
			return nil, nil, reject(RejectNoHost, "a path alone")
		}
		return nil, rest, nil
	case equalFold(word, "http"):
		return schemeHTTP, trimSlashes(after), nil
	case equalFold(word, "https"):
		return schemeHTTPS, trimSlashes(after), nil
	case equalFold(word, "ftp"):
		return schemeFTP, trimSlashes(after), nil
	}
	return nil, nil, reject(RejectScheme, "neither http, https nor ftp")
}

// cutSchemeWord cuts s after the colon of a leading [A-Za-z][A-Za-z0-9+.-]*:.
func cutSchemeWord(s []byte) (word, after []byte, ok bool) {
	for i, c := range s {
		switch {
		case 'a' <= c|0x20 && c|0x20 <= 'z':
		case i > 0 && ('0' <= c && c <= '9' || c == '+' || c == '.' || c == '-'):
		case i > 0 && c == ':':
			return s[:i], s[i+1:], true
		default:
			return nil, nil, false
		}
	}
	return nil, nil, false
}

// isHostWithPort tells "example.com:8080/a" from a scheme: only a host is followed by just a port.
func isHostWithPort(word, after []byte) bool {
	if bytes.IndexByte(word, '.') < 0 && !equalFold(word, "localhost") {
		return false
	}
	digits := 0
	for digits < len(after) && '0' <= after[digits] && after[digits] <= '9' {
		digits++
	}
	return digits > 0 && (digits == len(after) || isSlash(after[digits]) || after[digits] == '?')
}

// equalFold compares ASCII text without case. lower is in lower case.
func equalFold(s []byte, lower string) bool {
	if len(s) != len(lower) {
		return false
	}
	for i, c := range s {
		if lowerASCII(c) != lower[i] {
			return false
		}
	}
	return true
}

func lowerASCII(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c |= 0x20
	}
	return c
}

// splitAuthority cuts s at the end of the authority and drops the user info.
func splitAuthority(s []byte) (authority, rest []byte) {
	end := bytes.IndexAny(s, `/\?`)
	if end < 0 {
		end = len(s)
	}
	authority, rest = s[:end], s[end:]
	return authority[bytes.LastIndexByte(authority, '@')+1:], rest
}

// splitHostPort cuts an authority without user info at the colon of its port.
func splitHostPort(authority []byte) (host, port []byte, rej *RejectError) {
	if len(authority) > 0 && authority[0] == '[' {
		end := bytes.IndexByte(authority, ']')
		if end < 0 {
			return nil, nil, reject(RejectHost, "no ] in %s", quoted(authority))
		}
		host, port = authority[:end+1], authority[end+1:]
		if len(port) > 0 && port[0] != ':' {
			return nil, nil, reject(RejectHost, "text after ] in %s", quoted(authority))
		}
		return host, bytes.TrimPrefix(port, []byte{':'}), nil
	}
	host, port, _ = bytes.Cut(authority, []byte{':'})
	return host, port, nil
}

// parsePort returns -1 for an empty port and the scheme's default.
func parsePort(text []byte, defaultPort int32) (int32, *RejectError) {
	if len(text) == 0 {
		return -1, nil
	}
	port := int32(0)
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, reject(RejectPort, "%s is no number", quoted(text))
		}
		if port = port*10 + int32(c-'0'); port > 65535 {
			return 0, reject(RejectPort, "%s is over 65535", quoted(text))
		}
	}
	if port == defaultPort {
		return -1, nil
	}
	return port, nil
}

// WithoutUserInfo appends raw to dst without the user info that Parse drops, and otherwise as it
// is, so that a raw URL may be stored. The canonical form stays the same. Only what Parse accepts
// is changed.
func WithoutUserInfo(dst, raw []byte) []byte {
	// Positions are found in what Parse reads and mapped back to raw, which may have tabs and
	// newlines anywhere, even inside the user info.
	var n Normalizer
	s := n.clean(raw)
	_, rest, rej := splitScheme(s)
	if rej != nil {
		return append(dst, raw...)
	}
	authority, path := splitAuthority(rest)
	from := len(s) - len(rest)
	to := len(s) - len(path) - len(authority)
	if from == to {
		return append(dst, raw...)
	}
	if from == 0 {
		to-- // a host at the very start could be taken for a scheme: keep its @
	}
	start := len(raw) - len(bytes.TrimLeftFunc(raw, func(r rune) bool { return r <= ' ' }))
	dst = append(dst, raw[:start]...)
	i := 0 // position in s
	for _, c := range raw[start:] {
		if i < from || i >= to {
			dst = append(dst, c)
		}
		if !isTabOrNewline(c) {
			i++
		}
	}
	return dst
}

// piece is a query parameter of a text: text[start:end], with its name in text[start:nameEnd] and
// the namePrefix of that.
type piece struct {
	start, nameEnd, end int
	prefix              uint64
}

// appendPathQuery appends the canonical path and query to out.
func (n *Normalizer) appendPathQuery(s []byte) {
	path, query, hasQuery := bytes.Cut(s, []byte{'?'})
	n.appendPath(path)
	if hasQuery {
		n.appendQuery(query)
	}
}

// appendPath appends the canonical path to out.
func (n *Normalizer) appendPath(path []byte) {
	n.part = appendEscaped(n.part[:0], path, inPath)
	if bytes.Contains(n.part, []byte("/.")) {
		n.part = removeDotSegments(n.part)
	}
	if len(n.part) == 0 {
		n.out = append(n.out, '/')
		return
	}
	if !bytes.Contains(n.part, []byte("//")) {
		n.out = append(n.out, n.part...)
		return
	}
	for i, c := range n.part {
		if c == '/' && i > 0 && n.part[i-1] == '/' && (i < 2 || n.part[i-2] != ':') {
			continue
		}
		n.out = append(n.out, c)
	}
}

// removeDotSegments removes "." and ".." segments in place. path is empty or starts with a slash.
// Empty segments count, as in RFC 3986, 5.2.4.
func removeDotSegments(path []byte) []byte {
	out := 0 // path[:out] is complete
	for rest := 0; rest < len(path); {
		end := rest + 1 // of the segment after path[rest], which is a slash
		for end < len(path) && path[end] != '/' {
			end++
		}
		last := end == len(path)
		switch string(path[rest+1 : end]) {
		case ".":
			if last {
				path[out] = '/'
				out++
			}
		case "..":
			out = max(bytes.LastIndexByte(path[:out], '/'), 0)
			if last {
				path[out] = '/'
				out++
			}
		default:
			out += copy(path[out:], path[rest:end])
		}
		rest = end
	}
	return path[:out]
}

// appendQuery appends "?" and the canonical query to out, or nothing.
func (n *Normalizer) appendQuery(query []byte) {
	n.part = appendEscaped(n.part[:0], query, inQuery)
	n.pieces = n.pieces[:0]
	for start := 0; start <= len(n.part); {
		end := len(n.part)
		if i := bytes.IndexByte(n.part[start:], '&'); i >= 0 {
			end = start + i
		}
		nameEnd := end
		if i := bytes.IndexByte(n.part[start:end], '='); i >= 0 {
			nameEnd = start + i
		}
		if end > start && !n.stripped(n.part[start:nameEnd]) {
			n.pieces = append(n.pieces, piece{start, nameEnd, end, namePrefix(n.part, start, nameEnd)})
		}
		start = end + 1
	}
	n.out = appendSorted(n.out, n.part, n.pieces)
}

// appendSorted appends the query of a text whose parameters are pieces. It sorts them by name and
// keeps the order of those with one name.
func appendSorted(dst, text []byte, pieces []piece) []byte {
	const few = 16
	if len(pieces) > few {
		slices.SortStableFunc(pieces, func(a, b piece) int { return compareNames(text, &a, &b) })
	} else {
		for i := 1; i < len(pieces); i++ {
			k, p := i, pieces[i]
			for ; k > 0 && comesAfter(text, &pieces[k-1], &p); k-- {
				pieces[k] = pieces[k-1]
			}
			if k < i {
				pieces[k] = p
			}
		}
	}
	sep := byte('?')
	for i := range pieces {
		dst = append(append(dst, sep), text[pieces[i].start:pieces[i].end]...)
		sep = '&'
	}
	return dst
}

// comesAfter reports whether a's name comes after b's.
func comesAfter(text []byte, a, b *piece) bool {
	return a.prefix > b.prefix || a.prefix == b.prefix && compareNames(text, a, b) > 0
}

func compareNames(text []byte, a, b *piece) int {
	if a.prefix != b.prefix {
		return cmp.Compare(a.prefix, b.prefix)
	}
	return bytes.Compare(text[a.start:a.nameEnd], text[b.start:b.nameEnd])
}

// namePrefix is the first eight bytes of a name, text[start:end], the first byte highest, padded
// with zeros: no name has a zero byte.
func namePrefix(text []byte, start, end int) uint64 {
	if len(text) >= wordSize {
		unused := 8 * max(0, wordSize-(end-start))
		return bits.ReverseBytes64(wordAt(text, start)) >> unused << unused
	}
	v := uint64(0)
	for i, c := range text[start:end] {
		v |= uint64(c) << (56 - 8*i)
	}
	return v
}

// stripped reports whether parameters of that name are to be dropped.
func (n *Normalizer) stripped(name []byte) bool {
	for _, s := range n.stripNames {
		if string(name) == s {
			return true
		}
	}
	for _, p := range n.stripPrefixes {
		if len(name) >= len(p) && string(name[:len(p)]) == p {
			return true
		}
	}
	return false
}

// component tells what escaped text is part of.
type component bool

const (
	inPath  component = false
	inQuery component = true
)

const upperHex = "0123456789ABCDEF"

// appendEscaped appends s with canonical escapes to dst. In a path, \ becomes a slash.
func appendEscaped(dst, s []byte, where component) []byte {
	for i := 0; i < len(s); i++ {
		if len(s) >= wordSize {
			text := i
			for {
				stops := textStops(wordAt(s, i)) // the zeros past the end of s are stops
				if stops != 0 {
					i += firstByte(stops)
					break
				}
				i += wordSize
			}
			if dst = append(dst, s[text:i]...); i == len(s) {
				break
			}
		}
		c := s[i]
		switch {
		case c == '%':
			v, ok := unescape(s[i:])
			switch {
			case !ok:
				dst = append(dst, "%25"...)
				continue
			case classes[v]&unreserved != 0:
				dst = append(dst, v)
			default:
				dst = append(dst, '%', upperHex[v>>4], upperHex[v&15])
			}
			i += 2
		case c == '\\' && where == inPath:
			dst = append(dst, '/')
		case classes[c]&escaped != 0:
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// unescape decodes the escape at the start of s.
func unescape(s []byte) (byte, bool) {
	if len(s) < 3 {
		return 0, false
	}
	hi, lo := hexValue(s[1]), hexValue(s[2])
	return hi<<4 | lo&15, hi < 16 && lo < 16
}

// hexValue is the value of a hexadecimal digit, 0xff for other bytes.
func hexValue(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10
	}
	return 0xff
}

// Classes of bytes. A byte may be in several.
const (
	unreserved uint8 = 1 << iota // RFC 3986, 2.3
	escaped                      // has to be escaped in a path or query
	forbidden                    // WHATWG's forbidden domain code points, and separators
	hostPlain                    // occurs in canonical names
)

var classes = func() (t [256]uint8) {
	set := func(chars string, class uint8) {
		for i := range len(chars) {
			t[chars[i]] |= class
		}
	}
	for c := range 256 {
		switch {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'z':
			t[c] |= unreserved | hostPlain
		case 'A' <= c && c <= 'Z':
			t[c] |= unreserved
		case c <= ' ' || c == 0x7f:
			t[c] |= escaped | forbidden
		case c >= 0x80:
			t[c] |= escaped
		}
	}
	set("-._~", unreserved)
	set("-._", hostPlain)
	set("\"<>^`{|}\\", escaped)
	set("#/:<>?@[\\]^|%", forbidden)
	set(",;", forbidden) // no DNS name has one, and texts of several hosts do
	return t
}()
