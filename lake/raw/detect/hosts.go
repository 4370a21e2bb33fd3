package detect

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/text"
	"github.com/urlake/urlake/lake/raw/timestamp"
	"github.com/urlake/urlake/lake/urlnorm"
)

// privateNames are the top-level names of hosts that are in no public suffix list: special-use
// domain names (https://www.iana.org/assignments/special-use-domain-names), and what private
// networks use.
var privateNames = wordSet("local localhost localdomain internal intranet private home corp lan " +
	"onion i2p alt test example invalid")

// cutHost returns the host that v begins with, in lower case, if v has no scheme. ok is false if
// that is neither an address nor a name with a dot.
func cutHost(v string) (host string, ok bool) {
	if !isHostName(v) {
		return "", false
	}
	if i := strings.IndexAny(v, "/?:#"); i >= 0 {
		v = v[:i]
	}
	return strings.ToLower(strings.TrimSuffix(v, ".")), true
}

// isPublic reports whether a host of cutHost ends in a public suffix, or is an address.
func isPublic(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	if last[0] >= utf8.RuneSelf {
		host, _ = idna.ToASCII(last)
	}
	return last[0] <= '9' || urlnorm.BuiltinSuffixes().Rule(host) != ""
}

// looksHost reports whether v is an IPv4 address, or a host name that ends in a public suffix or in
// a name of private networks. A port and a path may follow.
func looksHost(v string) bool {
	host, ok := cutHost(v)
	return ok && (isPublic(host) || privateNames[host[strings.LastIndexByte(host, '.')+1:]])
}

// looksName reports whether v is a host name of looksHost, with nothing behind it, and no address.
func looksName(v string) bool {
	return looksHost(v) && !strings.ContainsAny(v, "/?:#") && !isIP(v)
}

// areReversed reports whether values are host names with the last label first, as web graphs have
// them, and MediaWiki behind a scheme (http://com.example.www./). All but few begin with a
// top-level domain, half of them with one of two letters or in commonDomains, and most end in none.
// A capital behind the first label belongs to a class of Java.
func areReversed(values []string) bool {
	n, common, hosts, missed := 0, 0, 0, 0
	for _, v := range values {
		_, host, scheme := strings.Cut(v, "://")
		if !scheme {
			host = v
		}
		if i := strings.IndexAny(host, "/?:#"); i >= 0 {
			host = host[:i]
		}
		first, rest, dotted := strings.Cut(host, ".")
		domain := strings.ToLower(first)
		if !dotted || first == "" || first[0] <= '9' || scheme && !strings.HasSuffix(rest, ".") ||
			strings.ContainsAny(rest, " \t,;|") || first == domain && strings.ToLower(rest) != rest ||
			!urlnorm.BuiltinSuffixes().IsSuffix(domain) {
			if missed++; !few(missed, len(values)) {
				return false
			}
			continue
		}
		n++
		if len(domain) == 2 || commonDomains[domain] {
			common++
		}
		if looksHost(host) {
			hosts++
		}
	}
	return common*2 >= n && hosts*2 < n
}

// commonDomains are the top-level domains of more than two letters that most hosts are in. Others
// are words, which hosts begin with (app.corp, blog.example).
var commonDomains = wordSet("com org net edu gov mil int info biz")

// fileNames are the top-level domains that are mostly extensions where nothing but a label is
// before them.
var fileNames = wordSet("cab java md mov pm ps pub py rs sh so zip")

// looksFile reports whether v may be the name of a file as well as a host.
func looksFile(v string) bool {
	_, ext, _ := strings.Cut(v, ".")
	return fileNames[strings.ToLower(ext)]
}

// isDOI reports whether v is a digital object identifier (ISO 26324).
func isDOI(v string) bool {
	v = strings.TrimSpace(v)
	if len(v) > len("doi:") && strings.EqualFold(v[:len("doi:")], "doi:") {
		v = strings.TrimSpace(v[len("doi:"):])
	}
	prefix, suffix, ok := strings.Cut(v, "/")
	registrant, dotted := strings.CutPrefix(prefix, "10.")
	return ok && dotted && suffix != "" && len(registrant) >= 4 && strings.Trim(registrant, "0123456789.") == ""
}

// isPattern reports whether v is a pattern of hosts: *.example.org, with a scheme or without.
func isPattern(v string) bool {
	return strings.HasPrefix(v, "*.") || strings.Contains(v, "://*.")
}

// endsElsewhere reports whether v is a URL that ends in a quote or bracket that begins before it.
func endsElsewhere(v string) bool {
	if !looksURL(v) {
		return false
	}
	v = strings.TrimRight(v, ",;")
	end := v[len(v)-1:]
	i := strings.Index(`>])}"`, end)
	return i == 4 && strings.Count(v, end)%2 == 1 || i >= 0 && i < 4 && strings.Count(v, end) > strings.Count(v, "<[({"[i:i+1])
}

// isNetwork reports whether v is a network of IPv4 addresses: 192.0.2.0/24.
func isNetwork(v string) bool {
	ip, bits, ok := strings.Cut(v, "/")
	return ok && bits != "" && len(bits) < 3 && timestamp.AllDigits([]byte(bits)) && isIP(ip)
}

// looksMail reports whether v is an e-mail address.
func looksMail(v string) bool {
	user, host, ok := strings.Cut(v, "@")
	return ok && user != "" && !strings.ContainsAny(user, "/?#:") && looksName(host)
}

// cutName returns the name with a dot that v begins with, if v has no scheme: a host, a file or a
// number.
func cutName(v string) (name string, ok bool) {
	if i := strings.IndexAny(v, "/?:#,;| \t\"'()<>"); i >= 0 {
		v = v[:i]
	}
	return v, strings.Contains(v, ".") && !strings.Contains(v, "@")
}

// isEnclosed reports whether v is a URL in quotes or brackets, as in lists copied from code, and in
// angle brackets (RFC 3986, appendix C). Separators may follow.
func isEnclosed(v string) bool {
	if looksURL(v) {
		return false
	}
	v = strings.TrimRight(v, ",; ")
	for _, pair := range []string{"<>", `""`, "''", "``", "()", "[]", "“”", "«»"} {
		half := len(pair) / 2
		url, ok := strings.CutPrefix(v, pair[:half])
		if ok && strings.HasSuffix(url, pair[half:]) {
			return looksURL(url)
		}
	}
	return false
}

// isSURT reports whether v is a SURT key, see [text.AppendSURTURL], and nothing else.
func isSURT(v string) bool {
	host, _, ok := strings.Cut(v, ")")
	return ok && strings.Contains(host, ",") && !strings.ContainsAny(v, " \t\"'") &&
		string(text.AppendSURTURL(nil, []byte(v))) != v
}

func isSURTLine(l []byte) bool { return isSURT(string(text.TrimSpace(l))) }

// isHostsLine reports whether l is a line of a hosts file (hosts(5)): an address, and names up to
// a comment. several says that it has several names with a dot.
func isHostsLine(l []byte) (is, several bool) {
	l = bytes.TrimLeft(l, " \t")
	if rest := bytes.TrimLeft(l, "0123456789abcdefABCDEF.:"); len(rest) == len(l) || len(rest) == 0 || rest[0] != ' ' && rest[0] != '\t' {
		return false, false // no address; most lines are told so
	}
	l, _, _ = bytes.Cut(l, []byte{'#'})
	fields := strings.Fields(string(l))
	if len(fields) < 2 || !isIP(fields[0]) {
		return false, false
	}
	names := 0
	for _, f := range fields[1:] {
		if looksName(f) {
			names++
		} else if strings.ContainsAny(f, "./:,;@") {
			return false, false
		}
	}
	return true, names > 1
}

// sniffHosts reports whether the lines are lines of a hosts file. It refuses lines with several
// names: a row of a table has one URL.
func (d *detector) sniffHosts(lines [][]byte) (bool, error) {
	n, example := 0, ""
	for i, l := range lines {
		is, several := isHostsLine(l)
		if is {
			n++
		} else if i == 0 {
			return false, nil
		}
		if several && example == "" {
			example = string(l)
		}
	}
	if n == 0 || n*10 < len(lines)*9 {
		return false, nil
	}
	if example != "" {
		return false, d.reject(fmt.Sprintf("it is a hosts file with several names in a line, as %q", raw.Shortened(example)),
			`write a name in a line: awk '{sub(/#.*/, ""); for (i = 2; i <= NF; i++) print $i}' FILE`)
	}
	return true, nil
}

// reverse plans to turn reversed hosts round, of which v is one.
func (d *detector) reverse(v string) {
	d.plan.Reversed = true
	d.note("its hosts are reversed, as %q, and are turned round (--format or --url-column takes them as they are)", v)
}

// checkHosts refuses URLs that are mostly names without a scheme, if most of these are no hosts,
// and plans to turn reversed hosts round. hosts is set if the name of their column is a name for
// hosts, which a column of files does not have. Options that say what the URLs are override it.
func (d *detector) checkHosts(values []string, hosts bool) error {
	if areReversed(values) {
		d.reverse(values[0])
		return nil
	}
	if i := slices.IndexFunc(values, isPattern); i >= 0 && !mostly(values, func(v string) bool { return !isPattern(v) }) {
		return d.reject(fmt.Sprintf("it holds patterns such as %q, which stand for many hosts", raw.Shortened(values[i])),
			`write the names behind them: sed 's/\*\.//' FILE`)
	}
	if mostly(values, func(v string) bool { return strings.Contains(v, "://") }) {
		if f := d.plan.Format; (f == raw.Lines || f == raw.Spaced) && half(values, endsElsewhere) {
			return d.reject(fmt.Sprintf("its URLs end in quotes or brackets that begin elsewhere, as in %q", raw.Shortened(values[0])),
				`write its URLs as lines: grep -oE 'https?://[^]"<>) ]+' FILE > urls.txt`)
		}
		return nil
	}
	if half(values, looksMail) {
		return d.reject(fmt.Sprintf("it holds e-mail addresses such as %q and no URLs", raw.Shortened(values[0])),
			"if their hosts are wanted, name its format or column (--format lines, --url-column)")
	}
	if half(values, isDOI) {
		return d.reject(fmt.Sprintf("it holds DOIs such as %q and no URLs", raw.Shortened(values[0])),
			"make URLs of them: sed -E 's|^(doi:)?|https://doi.org/|' FILE")
	}
	if half(values, isNetwork) {
		return d.reject(fmt.Sprintf("it holds networks such as %q and no URLs", raw.Shortened(values[0])),
			"leave it out (--exclude)")
	}
	names, known, example := 0, 0, ""
	for _, v := range values {
		name, ok := cutName(v)
		if !ok {
			continue
		}
		if names++; looksHost(name) && (hosts || !looksFile(v)) {
			known++
		} else if example == "" {
			example = v
		}
	}
	if names*2 < len(values) || known*2 >= names {
		return nil
	}
	return d.reject(fmt.Sprintf("it holds names such as %q; most of them are files or end in no public suffix, and are no hosts", raw.Shortened(example)),
		"if they are hosts, name its format or column (--format lines, --url-column)")
}
