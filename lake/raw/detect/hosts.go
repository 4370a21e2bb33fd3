package detect

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/urlake/urlake/lake/raw"
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
	return last[0] <= '9' || last[0] >= utf8.RuneSelf || strings.HasPrefix(last, "xn--") ||
		urlnorm.BuiltinSuffixes().Rule(host) != ""
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
// them: all but few begin with a top-level domain, and most end in none.
func areReversed(values []string) bool {
	n, public := 0, 0
	for _, v := range values {
		host, ok := cutHost(v)
		if !ok {
			continue
		}
		if isPublic(host) {
			public++
		}
		if first, _, _ := strings.Cut(host, "."); first[0] > '9' && urlnorm.BuiltinSuffixes().IsSuffix(first) {
			n++
		}
	}
	return n > 0 && few(len(values)-n, len(values)) && public*2 < n
}

// fileNames are the top-level domains that are mostly file extensions behind a single label.
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

// looksMail reports whether v is an e-mail address.
func looksMail(v string) bool {
	user, host, ok := strings.Cut(v, "@")
	return ok && user != "" && !strings.ContainsAny(user, "/?#:") && looksName(host)
}

// isNumeric reports whether v, which has no scheme, begins with numbers between dots that are no
// IPv4 address of four parts, as DOIs do. Browsers make addresses of them.
func isNumeric(v string) bool {
	if i := strings.IndexAny(v, "/?:#"); i >= 0 {
		v = v[:i]
	}
	return strings.Contains(v, ".") && strings.Trim(v, "0123456789.") == "" && !looksHost(v)
}

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
	n, first := 0, false
	example := ""
	for i, l := range lines {
		is, several := isHostsLine(l)
		if is {
			n++
			first = first || i == 0
		}
		if several && example == "" {
			example = string(l)
		}
	}
	if !first || n*10 < len(lines)*9 {
		return false, nil
	}
	if example != "" {
		return false, d.reject(fmt.Sprintf("it is a hosts file with several names in a line, as %q", raw.Shortened(example)),
			`write a name in a line: awk '{sub(/#.*/, ""); for (i = 2; i <= NF; i++) print $i}' FILE`)
	}
	return true, nil
}

// checkHosts refuses URLs that are mostly names without a scheme, if most of these are no hosts,
// and plans to turn reversed hosts round. hosts is set if the name of their column is a name for
// hosts, which a column of files does not have. Options that say what the URLs are override it.
func (d *detector) checkHosts(values []string, hosts bool) error {
	if mostly(values, func(v string) bool { return strings.Contains(v, "://") }) {
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
	if areReversed(values) {
		d.plan.Reversed = true
		d.note("its hosts are reversed, as %q, and are turned round (--format or --url-column takes them as they are)", values[0])
		return nil
	}
	names, known, example := 0, 0, ""
	for _, v := range values {
		if _, ok := cutHost(v); !ok && !isNumeric(v) {
			continue
		}
		if names++; looksHost(v) && (hosts || !looksFile(v)) {
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
