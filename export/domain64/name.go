package domain64

import (
	"fmt"
	"net/netip"
	"strings"
)

// Name is what has a code: the names at its levels, "" for those that it has not.
type Name struct {
	// TLD is the last label of the host: "com", also for a host of bbc.co.uk "uk". IP addresses are
	// below IPAddresses.
	TLD string
	// Domain is the registrable domain without its last label: "example" of example.com, "bbc.co"
	// of bbc.co.uk. It is "" for a host that is a top-level domain itself, such as localhost.
	Domain string
	// Sub is the rest of the host, of any number of labels: "www" of www.example.com.
	Sub string
	// Path is what follows the host, such as "/a?b". It is "" for the host as a whole.
	Path string
}

// IPAddresses stands for the top-level domain of IP addresses. No host name can have it.
const IPAddresses = "[ip]"

// SplitHost returns the name of a host that belongs to a registrable domain, both in canonical
// form, as rows of a lake have them. So a domain of the lake is one Domain here, whatever the
// public suffix list says of its suffix.
func SplitHost(host, domain string) (Name, error) {
	if isIP(host) {
		return Name{TLD: IPAddresses, Domain: host}, nil
	}
	sub, ok := strings.CutSuffix(host, domain)
	if ok && sub != "" {
		sub, ok = strings.CutSuffix(sub, ".")
		ok = ok && sub != ""
	}
	dot := strings.LastIndexByte(domain, '.')
	tld := domain[dot+1:]
	if !ok || tld == "" || dot == 0 || dot < 0 && sub != "" {
		return Name{}, fmt.Errorf("host %q: not one of the domain %q", host, domain)
	}
	return Name{TLD: tld, Domain: domain[:max(dot, 0)], Sub: sub}, nil
}

// isIP reports whether a host is an IP address: one in brackets, or in dotted decimal.
func isIP(host string) bool {
	if host == "" || host[0] != '[' && (host[len(host)-1] < '0' || host[len(host)-1] > '9') {
		return false
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil
}

// Level returns the lowest level of the name.
func (n Name) Level() Level {
	switch {
	case n.Path != "":
		return Path
	case n.Sub != "":
		return Sub
	case n.Domain != "":
		return Domain
	}
	return TLD
}

// Label returns the name at a level.
func (n Name) Label(at Level) string {
	return [...]string{n.TLD, n.Domain, n.Sub, n.Path}[at]
}

// Compare orders names by their labels, from the top-level domain down.
func (n Name) Compare(other Name) int {
	if c := strings.Compare(n.TLD, other.TLD); c != 0 {
		return c
	}
	if c := strings.Compare(n.Domain, other.Domain); c != 0 {
		return c
	}
	if c := strings.Compare(n.Sub, other.Sub); c != 0 {
		return c
	}
	return strings.Compare(n.Path, other.Path)
}

// With returns the name with another label at a level.
func (n Name) With(at Level, label string) Name {
	*[...]*string{&n.TLD, &n.Domain, &n.Sub, &n.Path}[at] = label
	return n
}

// Check returns an error if a name has a level without those above it.
func (n Name) Check() error {
	if n.TLD == "" || n.Domain == "" && n.Sub != "" {
		return fmt.Errorf("domain64 name %+v: want a top-level domain, and a domain above a subdomain", n)
	}
	return nil
}

// Host returns the host: the inverse of SplitHost.
func (n Name) Host() string {
	switch {
	case n.TLD == IPAddresses && n.Domain != "":
		return n.Domain
	case n.Domain == "":
		return n.TLD
	case n.Sub == "":
		return n.Domain + "." + n.TLD
	}
	return n.Sub + "." + n.Domain + "." + n.TLD
}

// String returns host and path.
func (n Name) String() string { return n.Host() + n.Path }
