package urlnorm_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/urlake/urlake/lake/urlnorm"
)

func parse(tb testing.TB, rules ...string) *urlnorm.SuffixList {
	tb.Helper()
	list, err := urlnorm.ParseSuffixList([]byte(strings.Join(rules, "\n") + "\n"))
	if err != nil {
		tb.Fatal(err)
	}
	return list
}

// allHosts are all names of up to five of three labels.
func allHosts() (hosts []string) {
	level := []string{""}
	for range 5 {
		var next []string
		for _, below := range level {
			for _, label := range []string{"a", "b", "c"} {
				next = append(next, strings.TrimSuffix(label+"."+below, "."))
			}
		}
		hosts = append(hosts, next...)
		level = next
	}
	return hosts
}

// Every host is looked up in both lists. The domain of each that moves has to be affected, and the
// rule that moves it has to be one of the changed rules.
func TestChangesEqualBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	hosts := allHosts()
	randomRule := func() string {
		name := hosts[r.IntN(3+9+27+81)]
		switch r.IntN(4) {
		case 0:
			return "*." + name
		case 1:
			if strings.Contains(name, ".") {
				return "!" + name
			}
		}
		return name
	}
	changes, moved, affected := 0, 0, 0
	for range 2000 {
		before := map[string]bool{}
		for range 1 + r.IntN(6) {
			before[randomRule()] = true
		}
		after := maps.Clone(before)
		for range r.IntN(4) {
			if rule := randomRule(); r.IntN(2) == 0 {
				after[rule] = true
			} else if rule = slices.Sorted(maps.Keys(after))[0]; len(after) > 1 {
				delete(after, rule)
			}
		}
		from, to := parse(t, slices.Sorted(maps.Keys(before))...), parse(t, slices.Sorted(maps.Keys(after))...)
		c := urlnorm.NewSuffixChange(from, to)
		var added, removed []string
		for _, rule := range slices.Sorted(maps.Keys(after)) {
			if !before[rule] {
				added = append(added, rule)
			}
		}
		for _, rule := range slices.Sorted(maps.Keys(before)) {
			if !after[rule] {
				removed = append(removed, rule)
			}
		}
		if got := c.Added(); !slices.Equal(got, added) {
			t.Fatalf("added %q, want %q", got, added)
		}
		if got := c.Removed(); !slices.Equal(got, removed) {
			t.Fatalf("removed %q, want %q", got, removed)
		}
		changes += len(added) + len(removed)
		for _, host := range hosts {
			was, is := from.Domain(host), to.Domain(host)
			if c.Affects(was) {
				affected++
			}
			rule, isNew := c.Rule(host)
			if was == is {
				if rule != "" {
					t.Fatalf("%q to %q: %s stays and rule %q moves it", from.Text(), to.Text(), host, rule)
				}
				continue
			}
			moved++
			if !c.Affects(was) {
				t.Fatalf("%q to %q: %s moves from %s to %s, which is not affected", from.Text(), to.Text(), host, was, is)
			}
			if changed := map[bool][]string{true: added, false: removed}[isNew]; !slices.Contains(changed, rule) {
				t.Fatalf("%q to %q: rule %q (added %v) moves %s", from.Text(), to.Text(), rule, isNew, host)
			}
		}
	}
	// With so few names most domains are near a changed rule.
	if moved == 0 || affected > 20*moved {
		t.Errorf("%d changed rules, %d hosts move, %d domains are affected", changes, moved, affected)
	}
}

func TestFewDomainsAreAffected(t *testing.T) {
	from := parse(t, "com", "uk", "co.uk", "*.ck", "io")
	c := urlnorm.NewSuffixChange(from, parse(t, "com", "uk", "co.uk", "*.ck", "!www.ck", "io", "github.io", "a.b.shop.com"))
	for domain, want := range map[string]bool{
		"github.io": true, "io": true, "gitlab.io": false, "xgithub.io": false, "example.com": false, "shop.com": true,
		"b.shop.com": true, "com": true, "uk": false, "example.co.uk": false, "www.ck": true, "ck": true, "a.www.ck": true,
		"example.org": false, "192.0.2.1": false, "[::1]": false, "localhost": false,
	} {
		if got := c.Affects(domain); got != want {
			t.Errorf("Affects(%q) = %v", domain, got)
		}
	}
	same := urlnorm.NewSuffixChange(from, parse(t, "io", "uk", "com", "co.uk", "*.ck"))
	unknown := urlnorm.NewSuffixChange(nil, from)
	for _, domain := range []string{"github.io", "example.com", "192.0.2.1"} {
		if same.Affects(domain) || !unknown.Affects(domain) {
			t.Errorf("%s: affected without a change %v, by a change of an unknown list %v",
				domain, same.Affects(domain), unknown.Affects(domain))
		}
	}
	if rule, _ := unknown.Rule("a.co.uk"); rule != "" || len(unknown.Added())+len(unknown.Removed()) > 0 {
		t.Errorf("a change of an unknown list has rules: %q", rule)
	}
}

func BenchmarkAffects(b *testing.B) {
	own := urlnorm.BuiltinSuffixes()
	rules := strings.Fields(own.Text())
	c := urlnorm.NewSuffixChange(own, parse(b, slices.Delete(rules, 4000, 4100)...))
	for b.Loop() {
		c.Affects("example.co.uk")
	}
}
