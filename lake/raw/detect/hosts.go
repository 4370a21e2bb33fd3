package detect

import (
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

// checkHosts refuses URLs that are mostly names without a scheme, if most of these are no hosts,
// and plans to turn reversed ones round. Options that say what the URLs are override it.
func (d *detector) checkHosts(values []string) error {
	if areReversed(values) {
		d.plan.Reversed = true
		d.note("its hosts are reversed, as %q, and are turned round (--format or --url-column takes them as they are)", values[0])
		return nil
	}
	names, known, example := 0, 0, ""
	for _, v := range values {
		if _, ok := cutHost(v); !ok {
			continue
		}
		if names++; looksHost(v) {
			known++
		} else if example == "" {
			example = v
		}
	}
	if names*2 < len(values) || known*2 >= names {
		return nil
	}
	return d.reject(fmt.Sprintf("it holds names such as %q, of which most end in no public suffix and are no hosts", raw.Shortened(example)),
		"if they are hosts of a private network, name its format or column (--format lines, --url-column)")
}
