package row

import (
	"cmp"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// FuzzDomainCache checks that caches of domains sort like the domains.
func FuzzDomainCache(f *testing.F) {
	for _, pair := range [][2]string{
		{"example.com", "example.org"}, {"a", "a."}, {"", "a"},
		{"xn--abc.de", "xn--abd.de"}, {"zzzzzzzzzzzz", "zzzzzzzzzzzzz"},
		{"1.2.3.4", "[::1]"}, {"_a.b", "`"}, {"z\xff", "zz"}, {"z{", "zzzzzzzzzzzz"}, {"a\x01", "a"}, {"\x7f", "z"},
	} {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, x, y string) {
		if strings.Compare(x, y) > 0 {
			x, y = y, x
		}
		if k, l := domainCache(x), domainCache(y); k > l {
			t.Errorf("%q is below %q, but its cache %d is above %d", x, y, k, l)
		}
	})
}

// Hosts are sorted whatever their names, also if caches, domains or names are equal.
func TestHostsAreSorted(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	b := &Buffer{}
	var order, other []hostRef
	for i := range 5000 {
		name := []byte{"-.0az_{[\x80"[rng.IntN(9)]}
		for range rng.IntN(16) {
			name = append(name, "-.0az_{[\x80aaaaaaaaaa"[rng.IntN(19)])
		}
		domain := string(name)
		if i >= 3500 {
			domain = "aaaaaaa" + domain // equal upper halves of caches
		}
		host := domain
		if rng.IntN(2) == 0 {
			host = string(rune('a'+rng.IntN(3))) + "." + domain
		}
		id := binary.BigEndian.Uint64(append([]byte(domain), make([]byte, 8)...))
		b.PlainHost(domain, host, id)
		order = append(order, hostRef{cache: domainCache(domain), host: uint32(i)})
	}
	for _, n := range []int{100, 600, 5000} {
		got := slices.Clone(order[:n])
		want := slices.Clone(got)
		slices.SortFunc(want, func(x, y hostRef) int {
			h, k := &b.hosts[x.host], &b.hosts[y.host]
			return cmp.Or(strings.Compare(b.domainName(h), b.domainName(k)),
				strings.Compare(b.hostName(h), b.hostName(k)), cmp.Compare(x.host, y.host))
		})
		other = make([]hostRef, n)
		sortRefs(got, other)
		b.sortAlike(got)
		if !slices.Equal(got, want) {
			t.Fatalf("%d hosts are not sorted", n)
		}
	}
}
