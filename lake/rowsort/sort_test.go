package rowsort

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/urlake/urlake/internal/testenv"
)

// FuzzSortSmall sorts rows by caches made from the input, with and without assembly, and compares
// the result with a stable sort.
func FuzzSortSmall(f *testing.F) {
	f.Add([]byte{3, 1, 2, 1, 3, 1, 2, 2, 9})
	f.Add(bytes.Repeat([]byte{7}, 64))
	f.Add([]byte("as many as there are bytes, some of which are the same"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > smallSort {
			in = in[:smallSort]
		}
		rows := make([]rowRef, len(in))
		for i, c := range in {
			// High and low bits, so that a signed comparison fails.
			rows[i] = rowRef{cache: uint64(c)<<56 | uint64(c)>>4, chunk: uint32(i), path: uint32(len(in))}
		}
		want := slices.Clone(rows)
		slices.SortStableFunc(want, func(x, y rowRef) int { return cmp.Compare(x.cache, y.cache) })
		inserted := slices.Clone(rows)
		if insertByCache(inserted); !slices.Equal(inserted, want) {
			t.Errorf("%v: inserted %v, want %v", in, inserted, want)
		}
		b := &Buffer{apart: make([]rowRef, smallSort)}
		b.sortSmall(rows)
		if !slices.Equal(rows, want) {
			t.Errorf("%v: got %v, want %v", in, rows, want)
		}
	})
}

// sortSmall is a stable sort for every number of rows up to smallSort.
func TestSortSmall(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	b := &Buffer{apart: make([]rowRef, smallSort)}
	for n := range smallSort + 1 {
		for range 20 {
			rows := make([]rowRef, n)
			for i := range rows {
				rows[i] = rowRef{cache: rng.Uint64() >> (rng.UintN(64)) << (rng.UintN(64)), chunk: uint32(i)}
			}
			want := slices.Clone(rows)
			slices.SortStableFunc(want, func(x, y rowRef) int { return cmp.Compare(x.cache, y.cache) })
			if b.sortSmall(rows); !slices.Equal(rows, want) {
				t.Fatalf("%d rows: got %v, want %v", n, rows, want)
			}
		}
	}
}

// sortSmall reads nothing after the last row.
func TestSortSmallReadsRowsOnly(t *testing.T) {
	mem := testenv.Guarded(t, smallSort*rowRefSize)
	all := unsafe.Slice((*rowRef)(unsafe.Pointer(&mem[0])), smallSort)
	b := &Buffer{apart: make([]rowRef, smallSort)}
	for n := range smallSort + 1 {
		rows := all[smallSort-n:]
		for i := range rows {
			rows[i] = rowRef{cache: uint64(n-i) / 2, chunk: uint32(i)}
		}
		want := slices.Clone(rows)
		slices.SortStableFunc(want, func(x, y rowRef) int { return cmp.Compare(x.cache, y.cache) })
		if b.sortSmall(rows); !slices.Equal(rows, want) {
			t.Fatalf("%d rows: got %v, want %v", n, rows, want)
		}
	}
}

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
