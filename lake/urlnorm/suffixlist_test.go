package urlnorm

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
	"golang.org/x/net/idna"
)

func mustParseList(tb testing.TB, dat string) *SuffixList {
	tb.Helper()
	l, err := ParseSuffixList([]byte(dat))
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func vectorsList(tb testing.TB) *SuffixList {
	tb.Helper()
	b, err := os.ReadFile(testenv.Shared(tb, "vectors", "psl", "public_suffix_list.dat"))
	if err != nil {
		tb.Fatal(err)
	}
	return mustParseList(tb, string(b))
}

func TestIsSuffix(t *testing.T) {
	l := mustParseList(t, "com\nuk\nco.uk\n*.np\n*.ck\n!www.ck\n*.kawasaki.jp\n!city.kawasaki.jp\njp\na.lone\n")
	for host, want := range map[string]bool{
		"com": true, "uk": true, "co.uk": true, "np": true, "ck": true, "kawasaki.jp": true, "jp": true, "a.lone": true,
		"intranet": false, "lone": false, "example.com": false, "www.ck": false, "city.kawasaki.jp": false, "1.2.3.4": false,
	} {
		if l.IsSuffix(host) != want {
			t.Errorf("%s: %v", host, !want)
		}
	}
}

// The list of the vectors is parsed twice, here and by the naive reference.
func TestParsedListEqualsReference(t *testing.T) {
	list, reference := vectorsList(t), readPublicSuffixList(t)
	want := slices.SortedFunc(maps.Keys(reference), compareRules)
	if got := strings.Fields(list.Text()); !slices.Equal(got, want) || list.Rules() != len(want) {
		t.Fatalf("%d rules, Rules() = %d, want %d", len(got), list.Rules(), len(want))
	}
	for _, rule := range want {
		name := strings.TrimPrefix(strings.Replace(rule, "*", "wild", 1), "!")
		_, parent, _ := strings.Cut(name, ".")
		long := strings.Repeat("a.", 40)
		for _, host := range []string{name, "a." + name, "b.a." + name, long + name, parent, "other." + parent, long + parent} {
			if host == "" || strings.HasSuffix(host, ".") {
				continue // the rule has no parent
			}
			domain := reference.domain(host)
			if got := list.Domain(host); got != domain {
				t.Errorf("Domain(%q) = %q, want %q", host, got, domain)
			}
			if u, err := Parse(list, "http://"+host+"/"); err == nil && u.Domain != domain {
				t.Errorf("Parse(%q) has domain %q, want %q", host, u.Domain, domain)
			}
			if rule := list.Rule(host); rule != "" && !reference[rule] {
				t.Errorf("Rule(%q) = %q, which is no rule", host, rule)
			}
		}
	}
}

// A list in the file's syntax that has the rules of golang.org/x/net is that list.
func TestParsedListEqualsTheModules(t *testing.T) {
	rules := strings.Fields(BuiltinSuffixes().Text())
	rand.Shuffle(len(rules), func(i, j int) { rules[i], rules[j] = rules[j], rules[i] })
	var dat strings.Builder
	dat.WriteString("\uFEFF// a comment\r\n\r\n")
	for i, rule := range rules {
		switch i % 4 {
		case 0:
			mark, name := splitRule(rule)
			name, err := idna.Punycode.ToUnicode(name)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&dat, "%s%s\r\n", mark, name)
		case 1:
			fmt.Fprintf(&dat, "  %s\t what follows white space is no rule\n", strings.ToUpper(rule))
		default:
			fmt.Fprintf(&dat, "%s\n// VERSION of nothing\n", rule)
		}
	}
	got := mustParseList(t, dat.String())
	if got.Text() != BuiltinSuffixes().Text() || !got.SameRules(BuiltinSuffixes()) || got.Rules() != len(rules) {
		t.Errorf("%d rules, want %d", got.Rules(), len(rules))
	}
	for _, host := range append(ruleHosts(t), oddHosts...) {
		if got, want := got.Domain(host), packageDomain(host); got != want {
			t.Errorf("Domain(%q) = %q, want %q", host, got, want)
		}
	}
}

// Small lists of few labels have every combination of rules, wildcards and exceptions.
func TestSmallListsEqualReference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	name := func(labels int) string {
		parts := make([]string, labels)
		for i := range parts {
			// The long labels differ before their last eight bytes only.
			parts[i] = []string{"a", "b", "c", "xlonglabel", "ylonglabel"}[r.IntN(5)]
		}
		return strings.Join(parts, ".")
	}
	for range 3000 {
		reference := rules{}
		exception := 2 + r.IntN(2) // labels: which of two nested exceptions decides is not defined
		var dat strings.Builder
		for range 1 + r.IntN(8) {
			rule := name(1 + r.IntN(3))
			switch r.IntN(4) {
			case 0:
				rule = "*." + rule
			case 1:
				rule = "!" + name(exception)
			}
			reference[rule] = true
			dat.WriteString(rule + "\n")
		}
		list := mustParseList(t, dat.String())
		for range 60 {
			host := name(1 + r.IntN(5))
			want := reference.domain(host)
			if got := list.Domain(host); got != want {
				t.Fatalf("rules %q: Domain(%q) = %q, want %q", list.Text(), host, got, want)
			}
			suffix, _ := list.table.match(host)
			if got := host[domainBefore(host, suffix):]; got != want {
				t.Fatalf("rules %q: by match, the domain of %q is %q, want %q", list.Text(), host, got, want)
			}
			if u, err := Parse(list, host+".b/"); err != nil || u.Domain != reference.domain(host+".b") {
				t.Fatalf("rules %q: Parse(%q) = %+v, %v", list.Text(), host+".b/", u, err)
			}
			// Without its rule, the host has another suffix or the same one by another rule.
			if rule := list.Rule(host); rule != "" && !reference[rule] ||
				rule == "" && reference.suffix(host) != host[strings.LastIndexByte(host, '.')+1:] {
				t.Fatalf("rules %q: Rule(%q) = %q", list.Text(), host, rule)
			}
		}
	}
}

func TestRuleThatDecides(t *testing.T) {
	list := mustParseList(t, "uk\nco.uk\n*.ck\n!www.ck\na.b.ck\n")
	for host, want := range map[string]string{
		"x.uk": "uk", "co.uk": "co.uk", "a.b.co.uk": "co.uk", "x.ck": "*.ck", "y.x.ck": "*.ck", "ck": "",
		"www.ck": "!www.ck", "a.www.ck": "!www.ck", "x.a.b.ck": "a.b.ck", "c.b.ck": "*.ck",
		"example.com": "", "1.2.3.4": "", "[::1]": "", "": "",
	} {
		if got := list.Rule(host); got != want {
			t.Errorf("Rule(%q) = %q, want %q", host, got, want)
		}
	}
}

func TestMalformedListsAreRejected(t *testing.T) {
	for dat, want := range map[string]string{
		"":                                  "no rule",
		"// only a comment\n":               "no rule",
		"com\nnet..org\n":                   "line 2: ",
		"com\n.org\n":                       "line 2: ",
		"com\r\norg.\r\n":                   "line 2: ",
		"com\n\n// c\na.*.org\n":            "line 4: ",
		"*\n":                               "line 1: ",
		"*.\n":                              "line 1: ",
		"*a.com\n":                          "line 1: ",
		"!com\n":                            "line 1: ",
		"!*.com\n":                          "line 1: ",
		"!\n":                               "line 1: ",
		"com\n<!DOCTYPE html>\n":            "line 2: ",
		"com\n\xff\n":                       "line 2 ",
		"com\na.1\n":                        "line 2: ",
		"com\n10.0.0.1\n":                   "line 2: ",
		strings.Repeat("a", 64) + "\n":      "line 1: ",
		strings.Repeat("a.", 130) + "com":   "line 1: ",
		"xn--a.com\n":                       "line 1: ",
		"// ===BEGIN ICANN DOMAINS===\ncom": "section",
		"com\n// ===END ICANN DOMAINS===":   "line 2: ",
		strings.Repeat("//\n", 2<<20):       "too many",
	} {
		if _, err := ParseSuffixList([]byte(dat)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want an error with %q", dat, err, want)
		}
	}
}

func TestIdentityNamesRules(t *testing.T) {
	list := mustParseList(t, "// VERSION: 2026-02-06_07-36-33_UTC\n// COMMIT: 1\ncom\nco.uk\n*.ck\n")
	want := "public_suffix_list.dat, version 2026-02-06_07-36-33_UTC, rules xxh3 e0a43e7d1187e3c2ac3f1ae9d3d1f4ad"
	if got := list.Identity(); len(got) != len(want) || got[:len(got)-32] != want[:len(want)-32] {
		t.Errorf("identity %q", got)
	}
	same := mustParseList(t, "*.ck\r\n// VERSION: 2026-02-06_07-36-33_UTC\r\n\r\n// other\r\nCO.UK and more\r\ncom\r\ncom\r\n")
	if same.Identity() != list.Identity() || !same.SameRules(list) {
		t.Errorf("%q and %q have the same rules", same.Identity(), list.Identity())
	}
	seen := map[string]string{list.Identity(): list.Text()}
	for _, rules := range []string{
		"com\nco.uk", "com\nco.uk\nck", "com\nco.uk\n*.uk", "com\nco.uk\n!x.ck", "com\nuk\n*.ck", "com\nco.uk\n*.ck\nuk",
	} {
		other := mustParseList(t, "// VERSION: 2026-02-06_07-36-33_UTC\n"+rules+"\n")
		if text, ok := seen[other.Identity()]; ok || other.SameRules(list) {
			t.Errorf("rules %q and %q are both %q", rules, text, other.Identity())
		}
		seen[other.Identity()] = rules
	}
	for _, comment := range []string{"", "// VERSION: ", "// VERSION: a\u202eb", "// version 1", "// VERSION: " + strings.Repeat("1", 70)} {
		l := mustParseList(t, comment+"\ncom\n")
		if !strings.HasPrefix(l.Identity(), "public_suffix_list.dat, rules xxh3 ") {
			t.Errorf("with comment %q the identity is %q", comment, l.Identity())
		}
	}

	again, err := NewSuffixList(list.Identity(), list.Text())
	if err != nil || again.Identity() != list.Identity() || again.Text() != list.Text() || again.Rules() != list.Rules() {
		t.Errorf("the list from its text is %+v, %v", again, err)
	}
	for text, want := range map[string]string{
		"com\n*.ck\nco.uk":     "line 3", // no end of line
		"com\nco.uk\n*.ck\n":   "line 3", // not sorted
		"com\ncom\n":           "line 2",
		"com\nCO.uk\n":         "line 2",
		"com\n\n":              "line 2",
		"":                     "no rule",
		"com\n*.ck\nco.us\n":   "digest",
		"com\n*.ck\nco.uk\r\n": "line 3",
	} {
		if _, err := NewSuffixList(list.Identity(), text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("text %q: %v, want an error with %q", text, err, want)
		}
	}
	for _, identity := range []string{"", "two\nlines", "é", strings.Repeat("a", 201)} {
		if _, err := NewSuffixList(identity, list.Text()); err == nil {
			t.Errorf("identity %q is accepted", identity)
		}
	}
}

// A Normalizer of another list must not use the domains of a cache.
func TestOriginsHaveOneList(t *testing.T) {
	a, b := mustParseList(t, "com\n"), mustParseList(t, "com\nexample.com\n")
	o := NewOrigins(0)
	domain := func(list *SuffixList) string {
		n, err := New(list, Options{})
		if err != nil {
			t.Fatal(err)
		}
		out := make([]Parsed, 1)
		n.ParseBatch(o, [][]byte{[]byte("http://a.example.com/")}, out)
		return strings.Clone(o.At(out[0].Origin).Domain)
	}
	if got := domain(a); got != "example.com" {
		t.Errorf("domain %q", got)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a cache is used with two lists")
			}
		}()
		domain(b)
	}()
	o.Reset()
	if got := domain(b); got != "a.example.com" {
		t.Errorf("domain %q", got)
	}
}

func FuzzParseSuffixList(f *testing.F) {
	f.Add("com\n*.ck\n!www.ck\n", "a.www.ck")
	f.Add("\uFEFF// VERSION: 1\r\nб.рф\r\nuk\r\n", "x.xn--90ais")
	f.Fuzz(func(t *testing.T, dat, host string) {
		l, err := ParseSuffixList([]byte(dat))
		if err != nil {
			return
		}
		if !strings.HasSuffix(host, l.Domain(host)) {
			t.Errorf("Domain(%q) = %q", host, l.Domain(host))
		}
		l.Rule(host)
		if again := mustParseList(t, l.Text()); !again.SameRules(l) {
			t.Errorf("text %q is parsed as %q", l.Text(), again.Text())
		}
		if _, err := NewSuffixList(l.Identity(), l.Text()); err != nil {
			t.Error(err)
		}
	})
}
