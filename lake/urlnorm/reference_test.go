package urlnorm

import (
	"math/big"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// reference is a second implementation of the canonical form, rule by rule of the format document,
// with strings and regular expressions and without regard to speed. Whatever has to hold for any
// input is tested against it.
func reference(raw string, strip ...string) (string, Reason) {
	// 1
	if len(raw) > 65536 {
		return "", RejectTooLong
	}
	s := refClean(raw)
	// 2
	scheme, rest := "http", s
	bare := true
	if m := refScheme.FindStringSubmatch(s); m != nil {
		switch word := strings.ToLower(m[1]); {
		case word == "http" || word == "https" || word == "ftp":
			scheme, rest, bare = word, strings.TrimLeft(m[2], `/\`), false
		case (strings.Contains(word, ".") || word == "localhost") && refOnlyPort.MatchString(m[2]):
		default:
			return "", RejectScheme
		}
	}
	if bare {
		if refOneSlash.MatchString(rest) {
			return "", RejectNoHost
		}
		rest = strings.TrimLeft(rest, `/\`)
	}
	// 3
	before, query, hasQuery := strings.Cut(rest, "?")
	before = strings.ReplaceAll(before, `\`, "/")
	authority, path, hasPath := strings.Cut(before, "/")
	if hasPath {
		path = "/" + path
	}
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		authority = authority[i+1:]
	}
	// 4
	m := refHostPort.FindStringSubmatch(authority)
	if m == nil {
		return "", RejectHost
	}
	host, reason := refHost(m[1], bare)
	if reason != "" {
		return "", reason
	}
	// 5
	if port := m[3]; port != "" {
		if strings.Trim(port, "0123456789") != "" {
			return "", RejectPort
		}
		n, _ := new(big.Int).SetString(port, 10)
		if n.Cmp(big.NewInt(65535)) > 0 {
			return "", RejectPort
		}
		if p := n.String(); p != map[string]string{"http": "80", "https": "443", "ftp": "21"}[scheme] {
			host += ":" + p
		}
	}
	// 6, 7, 8
	out := scheme + "://" + host + refPath(refEscape(path, ""))
	if hasQuery {
		out += refQuery(refEscape(query, `\`), strip)
	}
	// 9
	if len(out) > 16384 {
		return "", RejectTooLong
	}
	return out, ""
}

var (
	refScheme   = regexp.MustCompile(`(?s)^([A-Za-z][A-Za-z0-9+.-]*):(.*)$`)
	refOnlyPort = regexp.MustCompile(`^[0-9]+([/?\\]|$)`)
	refOneSlash = regexp.MustCompile(`^[/\\]([^/\\]|$)`)
	refHostPort = regexp.MustCompile(`(?s)^(\[[^\]]*\]|[^:\[][^:]*|)(:(.*))?$`)
)

func refClean(raw string) string {
	s := strings.TrimFunc(raw, func(r rune) bool { return r <= ' ' })
	s, _, _ = strings.Cut(s, "#")
	return strings.NewReplacer("\t", "", "\r", "", "\n", "").Replace(s)
}

func refHost(text string, bare bool) (string, Reason) {
	if text == "" {
		return "", RejectNoHost
	}
	if strings.HasPrefix(text, "[") {
		return refIPv6(text)
	}
	decoded := refDecode(text)
	name, ok := refName(decoded)
	if bare {
		switch {
		case ok && !strings.Contains(name, ".") && name != "localhost":
			return "", RejectNoHost
		case !ok && !strings.ContainsAny(trimLastRune(decoded), ".。．｡"):
			return "", RejectNoHost
		}
	}
	if !ok {
		return "", RejectHost
	}
	if name == "http" || name == "https" {
		return "", RejectNoHost
	}
	labels := strings.Split(name, ".")
	if refNumber.MatchString(labels[len(labels)-1]) {
		return refIPv4(labels)
	}
	return name, ""
}

func trimLastRune(s string) string {
	_, n := utf8.DecodeLastRuneInString(s)
	return s[:len(s)-n]
}

func refName(decoded string) (string, bool) {
	if !utf8.ValidString(decoded) || utf8.RuneCountInString(decoded) > 1012 || refLongLabel.MatchString(decoded) {
		return "", false
	}
	name, err := refIDNA.ToASCII(strings.ReplaceAll(decoded, "\u1e9e", "\u00df"))
	if err != nil {
		return "", false
	}
	labels, ok := decodeALabels(strings.Split(name, "."))
	if again, err := refIDNA.ToASCII(labels); !ok || err != nil || again != name {
		return "", false
	}
	name = strings.TrimSuffix(name, ".")
	if len(name) > 253 || refForbidden.MatchString(name) {
		return "", false
	}
	for _, l := range strings.Split(name, ".") {
		if l == "" || len(l) > 63 {
			return "", false
		}
	}
	return name, true
}

var (
	refIDNA = idna.New(idna.MapForLookup(), idna.Transitional(false), idna.StrictDomainName(false),
		idna.CheckHyphens(false), idna.CheckJoiners(true), idna.BidiRule())
	refForbidden = regexp.MustCompile(`[\x00-\x20#%,;/:<>?@\[\\\]^|\x7f]`)
	refLongLabel = regexp.MustCompile(`[^.。．｡]{253}`)
	refNumber    = regexp.MustCompile(`^([0-9]+|0x[0-9a-f]*)$`)
	refOctal     = regexp.MustCompile(`^0[0-7]+$`)
)

func refIPv4(labels []string) (string, Reason) {
	if len(labels) > 4 {
		return "", RejectHost
	}
	sum := new(big.Int)
	for i, l := range labels {
		v, ok := new(big.Int), true
		switch {
		case l == "0x":
		case strings.HasPrefix(l, "0x") && refNumber.MatchString(l):
			_, ok = v.SetString(l[2:], 16)
		case refOctal.MatchString(l):
			_, ok = v.SetString(l, 8)
		case l == "0" || refNumber.MatchString(l) && l[0] != '0':
			_, ok = v.SetString(l, 10)
		default:
			ok = false
		}
		bytesLeft := 1
		if i == len(labels)-1 {
			bytesLeft = 4 - i
		}
		if !ok || v.BitLen() > 8*bytesLeft {
			return "", RejectHost
		}
		sum.Add(sum.Lsh(sum, uint(8*bytesLeft)), v)
	}
	var b [4]byte
	sum.FillBytes(b[:])
	return netip.AddrFrom4(b).String(), ""
}

func refIPv6(text string) (string, Reason) {
	addr, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil || !addr.Is6() || strings.Contains(text, "%") || strings.Count(text, "[") > 1 {
		return "", RejectHost
	}
	if !addr.Is4In6() {
		return "[" + addr.String() + "]", ""
	}
	b := addr.As16()
	hex := func(hi, lo byte) string { return strconv.FormatUint(uint64(hi)<<8|uint64(lo), 16) }
	return "[::ffff:" + hex(b[12], b[13]) + ":" + hex(b[14], b[15]) + "]", ""
}

var refHex2 = regexp.MustCompile(`^[0-9A-Fa-f]{2}`)

// refDecode decodes every escape once.
func refDecode(s string) string {
	parts := strings.Split(s, "%")
	out := parts[0]
	for _, p := range parts[1:] {
		if refHex2.MatchString(p) {
			v, _ := strconv.ParseUint(p[:2], 16, 8)
			out += string([]byte{byte(v)}) + p[2:]
		} else {
			out += "%" + p
		}
	}
	return out
}

const refUnreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"

func refEscape(s, alsoEncoded string) string {
	var out strings.Builder
	encode := func(s string) {
		for _, b := range []byte(s) {
			if b <= ' ' || b >= 0x7f || strings.IndexByte("\"<>^`{|}"+alsoEncoded, b) >= 0 {
				out.WriteString("%" + strings.ToUpper(strconv.FormatUint(uint64(b)+0x100, 16)[1:]))
			} else {
				out.WriteByte(b)
			}
		}
	}
	parts := strings.Split(s, "%")
	encode(parts[0])
	for _, p := range parts[1:] {
		if !refHex2.MatchString(p) {
			out.WriteString("%25")
			encode(p)
			continue
		}
		v, _ := strconv.ParseUint(p[:2], 16, 8)
		if strings.IndexByte(refUnreserved, byte(v)) >= 0 {
			out.WriteByte(byte(v))
		} else {
			out.WriteString("%" + strings.ToUpper(p[:2]))
		}
		encode(p[2:])
	}
	return out.String()
}

var refSlashRun = regexp.MustCompile(`:?//+`)

func refPath(path string) string {
	if path == "" {
		return "/"
	}
	var segments []string
	in := strings.Split(path[1:], "/")
	for i, seg := range in {
		last := i == len(in)-1
		switch seg {
		case ".", "..":
			if seg == ".." && len(segments) > 0 {
				segments = segments[:len(segments)-1]
			}
			if last {
				segments = append(segments, "")
			}
		default:
			segments = append(segments, seg)
		}
	}
	return refSlashRun.ReplaceAllStringFunc("/"+strings.Join(segments, "/"), func(run string) string {
		if run[0] == ':' {
			return "://"
		}
		return "/"
	})
}

func refQuery(query string, strip []string) string {
	var params []string
	for _, p := range strings.Split(query, "&") {
		if name, _, _ := strings.Cut(p, "="); p != "" && !slices.Contains(strip, name) {
			params = append(params, p)
		}
	}
	slices.SortStableFunc(params, func(a, b string) int {
		an, _, _ := strings.Cut(a, "=")
		bn, _, _ := strings.Cut(b, "=")
		return strings.Compare(an, bn)
	})
	if len(params) == 0 {
		return ""
	}
	return "?" + strings.Join(params, "&")
}
