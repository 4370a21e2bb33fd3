package urlnorm

import (
	"bytes"
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/publicsuffix"
)

// moduleList is what publicsuffix.txt has to contain: the rules of the compiled-in
// golang.org/x/net/publicsuffix, read from its data files. Their format is in the table.go of that
// package.
func moduleList(tb testing.TB) string {
	tb.Helper()
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "golang.org/x/net/publicsuffix").Output()
	if err != nil {
		tb.Fatalf("go list: %v", err)
	}
	dir := strings.TrimSpace(string(out))
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			tb.Fatal(err)
		}
		return b
	}
	source := read("table.go")
	constant := func(name string) uint64 {
		m := regexp.MustCompile(`\b` + name + `\s*= (\d+)\n`).FindSubmatch(source)
		if m == nil {
			tb.Fatalf("%s/table.go has no constant %s", dir, name)
		}
		v, err := strconv.ParseUint(string(m[1]), 10, 64)
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
	// take removes the low bits of v and returns them.
	take := func(v *uint64, bits string) uint64 {
		n := constant(bits)
		low := *v & (1<<n - 1)
		*v >>= n
		return low
	}
	text, nodes, children := read("data/text"), read("data/nodes"), read("data/children")
	nodeBytes := constant("nodesBits") / 8
	bigEndian := func(b []byte) (v uint64) {
		for _, c := range b {
			v = v<<8 | uint64(c)
		}
		return v
	}
	exception, parentOnly := constant("nodeTypeException"), constant("nodeTypeParentOnly")

	var rules []string
	var walk func(lo, hi uint64, parent string)
	walk = func(lo, hi uint64, parent string) {
		for i := lo; i < hi; i++ {
			node := bigEndian(nodes[i*nodeBytes:][:nodeBytes])
			length := take(&node, "nodesBitsTextLength")
			offset := take(&node, "nodesBitsTextOffset")
			take(&node, "nodesBitsICANN")
			name := string(text[offset:][:length]) + parent
			below := bigEndian(children[4*take(&node, "nodesBitsChildren"):][:4])
			lo, hi := take(&below, "childrenBitsLo"), take(&below, "childrenBitsHi")
			switch take(&below, "childrenBitsNodeType") {
			case exception:
				rules = append(rules, "!"+name)
			case parentOnly:
			default:
				rules = append(rules, name)
			}
			if take(&below, "childrenBitsWildcard") != 0 {
				rules = append(rules, "*."+name)
			}
			walk(lo, hi, "."+name)
		}
	}
	walk(0, constant("numTLD"), "")
	slices.SortFunc(rules, func(a, b string) int {
		return cmp.Or(strings.Count(a, ".")-strings.Count(b, "."), cmp.Compare(a, b))
	})
	var list bytes.Buffer
	list.WriteString(publicsuffix.List.String() + "\n")
	for _, r := range rules {
		list.WriteString(r + "\n")
	}
	return list.String()
}

// publicsuffix.txt is checked in so that a build needs no generator.
func TestPublicSuffixRulesAreThoseOfTheModule(t *testing.T) {
	want := moduleList(t)
	if *update {
		if err := os.WriteFile("publicsuffix.txt", []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if publicSuffixList != want {
		got, _, _ := strings.Cut(publicSuffixList, "\n")
		t.Errorf("publicsuffix.txt has version %q, golang.org/x/net/publicsuffix %q: run `go generate ./lake/urlnorm`",
			got, BuiltinSuffixes().Identity())
	}
	if n := strings.Count(want, "\n"); n < 9000 {
		t.Errorf("%d rules", n-1)
	}
}

// packageDomain is Domain by golang.org/x/net/publicsuffix.
func packageDomain(host string) string {
	if strings.HasPrefix(host, "[") {
		return host
	}
	suffix, _ := publicsuffix.PublicSuffix(host)
	if len(suffix) >= len(host) {
		return host
	}
	return host[strings.LastIndexByte(host[:len(host)-len(suffix)-1], '.')+1:]
}

// ruleHosts returns hosts at, above, below and beside every rule. Many are public suffixes below
// wildcards and exceptions.
func ruleHosts(tb testing.TB) (hosts []string) {
	tb.Helper()
	rules := lines([]byte(publicSuffixList))[1:]
	if len(rules) < 9000 {
		tb.Fatalf("%d rules", len(rules))
	}
	for _, rule := range rules {
		name := strings.TrimLeft(rule, "!*.")
		hosts = append(hosts, name, "a."+name, "b.a."+name, "d.c.b.a."+name, strings.Replace(rule, "*", "www", 1),
			"x"+name, name[1:], "a.x"+name, name+"x", "a."+name+"x", name+".com", name+".", "."+name, "a.."+name,
			strings.ToUpper(name), strings.Replace(name, ".", ".x.", 1), strings.Replace(name, ".", "x.", 1),
			strings.Repeat("a", max(0, maxTableHost-1-len(name)))+"."+name,
			strings.Repeat("a", max(0, maxTableHost-len(name)))+"."+name)
		if _, parent, ok := strings.Cut(name, "."); ok {
			hosts = append(hosts, parent, "other."+parent, "a.other."+parent)
		}
	}
	return hosts
}

var oddHosts = []string{
	"", ".", "..", ".com", "com.", "a..com", "com..", "[", "[::1]", "1.2.3.4", "1.2.3.256", "::1", "fe80::1%eth0.com", "fe80::1%a:b", "::ffff:1.2.3.4",
	"01.2.3.4", "1.2.3", "a.1", "a.b1", "localhost", "a.localhost", "com\x00", "\x00com", "a.\xff", "é.com", "a:b.co.uk",
	strings.Repeat("a.", 40) + "co.uk", strings.Repeat("a", 64) + ".co.uk", strings.Repeat("a", 300), strings.Repeat(".", 64), strings.Repeat(".", 65),
}

func TestDomainsEqualThePackages(t *testing.T) {
	n := newNormalizer()
	for _, host := range append(ruleHosts(t), oddHosts...) {
		want := packageDomain(host)
		if got := BuiltinSuffixes().Domain(host); got != want {
			t.Errorf("Domain(%q) = %q, want %q", host, got, want)
		}
		if u, err := n.Parse([]byte("https://" + host + "/")); err == nil && u.Domain != packageDomain(u.Host) {
			t.Errorf("%q has domain %q, want %q", u.Host, u.Domain, packageDomain(u.Host))
		}
		if host == "" || isAddress(host) {
			continue
		}
		// Hosts of any length have the same domains by both ways of looking them up.
		suffix, _ := BuiltinSuffixes().table.match(host)
		if got := host[domainBefore(host, suffix):]; got != want {
			t.Errorf("by match, the domain of %q is %q, want %q", host, got, want)
		}
	}
}

func FuzzDomain(f *testing.F) {
	for _, host := range oddHosts {
		f.Add(host)
	}
	for i, host := range ruleHosts(f) {
		if i%97 == 0 {
			f.Add(host)
		}
	}
	f.Fuzz(func(t *testing.T, host string) {
		if got, want := BuiltinSuffixes().Domain(host), packageDomain(host); got != want {
			t.Errorf("Domain(%q) = %q, want %q", host, got, want)
		}
	})
}
