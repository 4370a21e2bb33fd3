package urlnorm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/zeebo/xxh3"
	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

// hostURL is a URL whose host decodes to host, whatever bytes that has.
func hostURL(host string) string {
	var b strings.Builder
	for _, c := range []byte(host) {
		fmt.Fprintf(&b, "%%%02x", c)
	}
	return "http://" + b.String() + "/"
}

// checkHost compares the host that Parse makes of input with the expectation in v.want. inUnicode
// has the characters known to be in the input.
func (c *tally) checkHost(v *vector, input, inUnicode string) {
	c.t.Helper()
	v.input = hostURL(input)
	switch {
	case input == "":
		v.reject, v.reason = true, RejectNoHost
	case strings.ContainsFunc(inUnicode, newerThanTables):
		if !v.reject {
			v.rejectAs(RejectHost, "unicode-tables")
		}
	case !v.reject:
		if v.want = hostExpectation(v, v.want); !v.reject {
			v.want = "http://" + v.want + "/"
		}
	}
	c.check(v)
}

func TestWHATWGToASCII(t *testing.T) {
	c := newTally(t)
	for _, file := range []string{"toascii.json", "IdnaTestV2.json"} {
		var raw []json.RawMessage
		readJSON(t, &raw, "wpt", file)
		for _, r := range raw {
			if r[0] == '"' {
				continue
			}
			var e struct {
				Input  string
				Output *string
			}
			if err := json.Unmarshal(r, &e); err != nil {
				t.Fatal(err)
			}
			v := &vector{reject: e.Output == nil}
			if e.Output != nil {
				v.want = *e.Output
			}
			c.checkHost(v, e.Input, e.Input)
		}
	}
	c.report(2700, "a-labels-checked", "dns-limits", "no-separator", "one-trailing-dot", "unicode-tables")
}

func TestDNSLengths(t *testing.T) {
	c := newTally(t)
	var raw []json.RawMessage
	readJSON(t, &raw, "wpt", "verifydnslength_tests.json")
	for _, r := range raw {
		if r[0] == '"' {
			continue
		}
		var e struct {
			Input   string
			Failure bool
		}
		if err := json.Unmarshal(r, &e); err != nil {
			t.Fatal(err)
		}
		v := &vector{input: e.Input, reject: e.Failure, reason: RejectHost}
		if !e.Failure {
			v.reason = ""
			v.want = strings.TrimSuffix(strings.TrimSuffix(e.Input, "/"), ".") + "/"
		}
		c.check(v)
	}
	c.report(17)
}

// The Unicode consortium's file names the checks that fail. CheckHyphens (V2, V3) and
// UseSTD3ASCIIRules (U1) are off here, and a root dot is allowed, so A4_2 is an error only for
// other empty labels.
func TestUTS46Conformance(t *testing.T) {
	for _, file := range []string{"IdnaTestV2.txt", "psl_idna_test_vectors.txt"} {
		t.Run(file, func(t *testing.T) {
			b, err := os.ReadFile(testenv.Shared(t, "vectors", "idna", file))
			if err != nil {
				t.Fatal(err)
			}
			c := newTally(t)
			for _, line := range lines(b) {
				line, _, _ = strings.Cut(line, "#")
				f := strings.Split(line, ";")
				if len(f) != 7 {
					continue
				}
				for i := range f {
					f[i] = unescapeIDNATest(strings.Trim(f[i], " \t"))
				}
				source := f[0]
				inUnicode := cmp.Or(f[1], source)
				want := cmp.Or(f[3], inUnicode)
				status := cmp.Or(f[4], f[2])
				for _, empty := range []*string{&source, &want} {
					if *empty == `""` {
						*empty = ""
					}
				}
				v := &vector{want: want}
				for _, code := range strings.FieldsFunc(status, func(r rune) bool { return strings.ContainsRune("[], ", r) }) {
					switch code {
					case "V2", "V3", "U1":
					case "P1", "V6":
						// Up to Unicode 15.0 these were the codes of UseSTD3ASCIIRules, too.
						if _, err := refIDNA.ToASCII(std3Only.ReplaceAllString(inUnicode, "a")); err != nil {
							v.reject, v.reason = true, RejectHost
						}
					case "A4_1", "A4_2", "X4_2":
						// Lengths and empty labels, which hostExpectation checks.
					default:
						v.reject, v.reason = true, RejectHost
					}
				}
				if !v.reject && refForbidden.MatchString(want) {
					v.reject, v.reason = true, RejectHost // U1 rejects these
				}
				c.checkHost(v, source, source+inUnicode)
			}
			differences := []string{"dns-limits", "number-is-address", "one-trailing-dot"}
			if file == "IdnaTestV2.txt" {
				differences = append(differences, "unicode-tables")
			} else {
				// A label that decodes to one with xn-- is an error since Unicode 15.1 only.
				differences = append(differences, "a-labels-checked")
			}
			c.report(6000, differences...)
		})
	}
}

// std3Only matches the characters that only UseSTD3ASCIIRules disallows.
var std3Only = regexp.MustCompile(`[\x00-\x2c/:-@\[-` + "`" + `{-\x7f≠≮≯]|[=<>]\x{338}`)

var idnaEscape = regexp.MustCompile(`\\u[0-9A-Fa-f]{4}|\\x\{[0-9A-Fa-f]+\}`)

func unescapeIDNATest(s string) string {
	return idnaEscape.ReplaceAllStringFunc(s, func(e string) string {
		v, err := strconv.ParseUint(strings.Trim(e[2:], "{}"), 16, 32)
		if err != nil {
			return e
		}
		return string(rune(v))
	})
}

// ASCII names without A-labels bypass the library, and have to come out as from it.
func TestPlainNamesNeedNoMapping(t *testing.T) {
	for a := range 128 {
		for _, s := range []string{"%c", "a%c", "%ca", "a%cb.com", "ab-%ca"} {
			host := fmt.Sprintf(s, rune(a))
			if !plainASCII([]byte(host)) {
				t.Fatalf("%q is not plain", host)
			}
			want, err := toASCII.ToASCII(host)
			if err != nil {
				t.Errorf("%q: the library says %v", host, err)
			}
			if got, rej := canonicalName([]byte(host)); rej == nil && got != strings.TrimSuffix(want, ".") {
				t.Errorf("%q is %q, want %q", host, got, want)
			}
		}
	}
	for _, host := range []string{"é", "xn--a", "XN--A", "a.xn--b", "a.Xn--", "\x80"} {
		if plainASCII([]byte(host)) {
			t.Errorf("%q is plain", host)
		}
	}
}

// testdata/uts46.txt has what each code point that may be in a host becomes, as ranges with a
// checksum. Later Go releases have later Unicode tables: they may add code points, and must not
// change the form of any that was accepted.
func TestHostMappingIsPinned(t *testing.T) {
	b, err := os.ReadFile("testdata/uts46.txt")
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		b = []byte(mappingTable())
		if err := os.WriteFile("testdata/uts46.txt", b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	ranges := 0
	for _, line := range lines(b) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var lo, hi rune
		var sum uint64
		if _, err := fmt.Sscanf(line, "%x %x %x", &lo, &hi, &sum); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		ranges++
		if got, ok := mappingSum(lo, hi); !ok || got != sum {
			t.Errorf("hosts with U+%04X to U+%04X have another canonical form than before", lo, hi)
		}
	}
	if ranges < 500 {
		t.Errorf("testdata/uts46.txt has %d ranges", ranges)
	}
}

// mapped is the form of a host with r, "" if it is rejected.
func mapped(r rune) string {
	name, rej := canonicalName([]byte("a" + string(r) + "b"))
	if rej != nil {
		return ""
	}
	return name
}

func mappingSum(lo, hi rune) (uint64, bool) {
	h := xxh3.New()
	for r := lo; r <= hi; r++ {
		m := mapped(r)
		if m == "" {
			return 0, false
		}
		h.WriteString(m + "\n")
	}
	return h.Sum64(), true
}

func mappingTable() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# First and last code point, XXH3-64 of what a host \"a…b\" with each becomes. Unicode %s, in Go %s.\n", idna.UnicodeVersion, unicode.Version)
	for lo := rune(0); lo <= unicode.MaxRune; lo++ {
		if 0xD800 <= lo && lo < 0xE000 || mapped(lo) == "" {
			continue
		}
		hi := lo
		for hi < unicode.MaxRune && hi+1 != 0xD800 && mapped(hi+1) != "" {
			hi++
		}
		sum, _ := mappingSum(lo, hi)
		fmt.Fprintf(&b, "%04X %04X %016x\n", lo, hi, sum)
		lo = hi
	}
	return b.String()
}

func TestIPv4FormsOfOtherSystems(t *testing.T) {
	c := newTally(t)
	var funky map[string]*string
	readJSON(t, &funky, "urlcanon", "funky_ipv4.json")
	for host, want := range funky {
		v := &vector{input: "http://" + host + "/"}
		switch {
		case want != nil:
			v.want = "http://" + *want + "/"
		default:
			// No IPv4 address: a name there, and here one that must not end in a number.
			v.want = "http://" + hostExpectation(v, strings.TrimSuffix(host, ".")) + "/"
		}
		c.check(v)
	}
	c.report(40, "number-is-address")
}

// rules is an independent implementation of the public suffix algorithm (publicsuffix.org/list).
type rules map[string]bool

// suffix returns the public suffix of a host.
func (r rules) suffix(host string) string {
	labels := strings.Split(host, ".")
	n := 1 // labels; the prevailing rule is "*"
	for i := range labels {
		name := strings.Join(labels[i:], ".")
		if r["!"+name] {
			n = len(labels) - i - 1
			break
		}
		_, parent, _ := strings.Cut(name, ".")
		if r[name] || parent != "" && r["*."+parent] {
			n = max(n, len(labels)-i)
		}
	}
	return strings.Join(labels[len(labels)-n:], ".")
}

// domain returns the registrable domain, or the host itself if it is a public suffix.
func (r rules) domain(host string) string {
	suffix := r.suffix(host)
	if suffix == host {
		return host
	}
	above := strings.Split(strings.TrimSuffix(host, "."+suffix), ".")
	return above[len(above)-1] + "." + suffix
}

func readPublicSuffixList(tb testing.TB) rules {
	tb.Helper()
	b, err := os.ReadFile(testenv.Shared(tb, "vectors", "psl", "public_suffix_list.dat"))
	if err != nil {
		tb.Fatal(err)
	}
	r := rules{}
	for _, line := range lines(b) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "//") {
			continue
		}
		prefix := line[:strings.LastIndexAny(line, "!*")+1]
		if name := strings.TrimPrefix(line[len(prefix):], "."); name != "" {
			ascii, err := idna.Punycode.ToASCII(name)
			if err != nil {
				tb.Fatal(err)
			}
			line = prefix
			if strings.HasSuffix(prefix, "*") {
				line += "."
			}
			line += ascii
		}
		r[line] = true
	}
	if len(r) < 9000 {
		tb.Fatalf("%d rules", len(r))
	}
	return r
}

// The list in the vectors and the list in the library have different dates. Rules that only one of
// them has are found by querying the library for each rule itself. With those corrected, both must
// agree about hosts at, under and above every rule.
func TestDomainsFollowThePublicSuffixList(t *testing.T) {
	list := readPublicSuffixList(t)
	var hosts []string
	for rule := range list {
		name := strings.TrimPrefix(strings.Replace(rule, "*", "wild", 1), "!")
		hosts = append(hosts, name, "a."+name, "b.a."+name, "c.b.a."+name)
		if _, parent, ok := strings.Cut(name, "."); ok {
			hosts = append(hosts, parent, "other."+parent, "a.other."+parent)
		}
	}
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)

	var missing, extra []string
	for rule := range list {
		if !libraryHas(rule) {
			missing = append(missing, rule)
		}
	}
	for _, rule := range missing {
		delete(list, rule)
	}
	for _, host := range hosts {
		suffix := librarySuffix(host)
		if len(suffix) <= len(list.suffix(host)) {
			continue
		}
		rule := suffix
		if _, parent, _ := strings.Cut(suffix, "."); libraryHas("*." + parent) {
			rule = "*." + parent
		}
		extra = append(extra, rule)
		list[rule] = true
	}
	for _, host := range hosts {
		if got, want := BuiltinSuffixes().Domain(host), list.domain(host); got != want {
			t.Errorf("Domain(%q) = %q, want %q", host, got, want)
		}
	}
	slices.Sort(missing)
	slices.Sort(extra)
	t.Logf("%d hosts; rules only in the vectors' list: %d %v; only in the library's: %d %v", len(hosts), len(missing), missing, len(extra), extra)
	// Months of changes to the list are fewer than this; a broken lookup is not.
	if len(missing)+len(extra) > len(list)/20 {
		t.Errorf("%d and %d rules differ", len(missing), len(extra))
	}
}

// libraryHas reports whether the library's list has a rule.
func libraryHas(rule string) bool {
	switch {
	case strings.HasPrefix(rule, "!"):
		return librarySuffix(rule[1:]) != rule[1:]
	case strings.HasPrefix(rule, "*."):
		host := "wild" + rule[1:]
		return librarySuffix(host) == host
	}
	return librarySuffix(rule) == rule
}

func librarySuffix(host string) string {
	s, _ := publicsuffix.PublicSuffix(host)
	return s
}

func TestDomainsOfThePSLTests(t *testing.T) {
	pairs := [][2]string{}
	b, err := os.ReadFile(testenv.Shared(t, "vectors", "psl", "tests.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines(b) {
		if f := strings.Fields(line); len(f) == 2 && !strings.HasPrefix(line, "//") {
			pairs = append(pairs, [2]string{f[0], f[1]})
		}
	}
	b, err = os.ReadFile(testenv.Shared(t, "vectors", "psl", "test_psl.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^checkPublicSuffix\('?([^',]+)'?, '?([^')]+)'?\)`).FindAllStringSubmatch(string(b), -1) {
		pairs = append(pairs, [2]string{m[1], m[2]})
	}
	if len(pairs) < 140 {
		t.Fatalf("%d pairs", len(pairs))
	}
	for _, p := range pairs {
		if p[0] == "null" {
			continue // a null host cannot be written
		}
		u, err := Parse(BuiltinSuffixes(), "http://"+p[0]+"/")
		switch {
		case strings.HasPrefix(p[0], "."):
			if _, reason := canonical(u, err); reason != RejectHost {
				t.Errorf("%q: %v, want a rejected host", p[0], err)
			}
		case p[1] == "null":
			if u.Domain != u.Host || u.Host == "" {
				t.Errorf("domain of the public suffix %q is %q, want itself", p[0], u.Domain)
			}
		default:
			want, err := idna.Punycode.ToASCII(p[1])
			if err != nil || u.Domain != want {
				t.Errorf("domain of %q is %q, want %q", p[0], u.Domain, want)
			}
		}
	}
}

func TestDomainOfAnyString(t *testing.T) {
	for _, host := range []string{"", ".", "..", ".com", "com.", "a..com", "[", "[::1]", "1.2.3.4", "::1", "a.ck", "www.ck", "ck"} {
		if d := BuiltinSuffixes().Domain(host); !strings.HasSuffix(host, d) {
			t.Errorf("Domain(%q) = %q", host, d)
		}
	}
	if !strings.Contains(BuiltinSuffixes().Identity(), "git revision") {
		t.Errorf("Identity() = %q", BuiltinSuffixes().Identity())
	}
}
