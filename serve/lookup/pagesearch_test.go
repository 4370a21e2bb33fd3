package lookup

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/urlake/urlake/lake/part"
)

// pageRun is rows of a domain as they stand in a row group, behind those of another one.
type pageRun struct {
	rows  []part.PageKey
	first int64
	index *Index
	start []int64 // rows with which pages begin, and the row after the last
}

// randomRun makes rows, divides them into pages and leaves out some keys, unless all is set.
func randomRun(rng *rand.Rand, all bool) pageRun {
	var r pageRun
	n := 1 + rng.IntN(400)
	for range n {
		r.rows = append(r.rows, part.PageKey{
			Host:   []string{"a.site.test", "site.test", "www.site.test"}[rng.IntN(3)],
			Path:   "/" + []string{"", "a", "ab", "abc", "b"}[rng.IntN(5)] + fmt.Sprint(rng.IntN(30)),
			Scheme: []string{"http", "https"}[rng.IntN(2)], Port: int32(rng.IntN(3) - 1),
		})
	}
	slices.SortFunc(r.rows, func(a, b part.PageKey) int { return a.Compare(&b) })
	r.first = int64(rng.IntN(20))
	total := int(r.first) + n + rng.IntN(20) // rows of the row group
	r.start = []int64{0}
	for at := 0; at < total; {
		at = min(total, at+1+rng.IntN(12))
		r.start = append(r.start, int64(at))
	}
	keys := make([]part.PageKey, len(r.start)-1)
	for i, row := range r.start[:len(keys)] {
		if at := row - r.first; at > 0 && at < int64(n) && (all || rng.IntN(3) > 0) {
			keys[i] = part.KeyBetween(&r.rows[at-1], &r.rows[at])
		}
	}
	var blocks []*part.PageIndexBlock
	for _, b := range part.NewPageIndex(0, r.start) {
		blocks = append(blocks, &b)
	}
	var of []*part.PageKeyBlock
	for _, b := range part.NewPageKeys(0, r.start, keys) {
		of = append(of, &b)
	}
	r.index = newPageSearch(blocks, of, r.first, r.first+int64(n))
	return r
}

func (r *pageRun) end() int64 { return r.first + int64(len(r.rows)) }

// What is sought is in the range that is left, which is within a page if all pages have keys.
func TestNarrow(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 3000 {
		all := round%2 == 0
		r := randomRun(rng, all)
		sought := r.rows[rng.IntN(len(r.rows))]
		if rng.IntN(3) == 0 {
			sought.Path += "x"
		}
		least := rng.IntN(2) // not less, or greater
		before := func(k *part.PageKey) bool { return k.Compare(&sought) < least }
		lo := r.first + rng.Int64N(int64(len(r.rows)))
		hi := lo + rng.Int64N(r.end()-lo+1)
		want := lo
		for want < hi && before(&r.rows[want-r.first]) {
			want++
		}
		a, b := r.index.Narrow(lo, hi, before)
		if a < lo || b > hi || want < a || want > b {
			t.Fatalf("rows %d to %d of %d to %d for %d", a, b, lo, hi, want)
		}
		if a < b && all {
			if _, end := r.index.Page(a); b > end {
				t.Fatalf("rows %d to %d, but the page ends with %d", a, b, end)
			}
		}
	}
}

// No page with selected rows is left out, and a page that is said to be selected is.
func TestNext(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	skipped, whole := 0, 0
	for range 3000 {
		r := randomRun(rng, rng.IntN(2) == 0)
		var s selection
		if rng.IntN(2) == 0 {
			s.Host = []string{"a.site.test", "site.test", "no.site.test"}[rng.IntN(3)]
		}
		if s.All() || rng.IntN(2) == 0 {
			s.Prefix = []string{"/a", "/ab", "/b1", "/abc2", "/z"}[rng.IntN(5)]
		}
		has := func(row int64) bool {
			k := &r.rows[row-r.first]
			return (s.Host == "" || k.Host == s.Host) && len(k.Path) >= len(s.Prefix) && k.Path[:len(s.Prefix)] == s.Prefix
		}
		row := r.first + rng.Int64N(int64(len(r.rows)))
		next, all := r.index.Next(row, s)
		if next < row || next > r.end() {
			t.Fatalf("row %d after %d", next, row)
		}
		for at := row; at < next; at++ {
			if has(at) {
				t.Fatalf("%+v: row %d is selected, and %d comes after %d", s, at, next, row)
			}
		}
		if skipped += int(next - row); all {
			first, end := r.index.Page(next)
			for at := max(first, r.first); at < min(end, r.end()); at++ {
				if whole++; !has(at) {
					t.Fatalf("%+v: row %d is not selected", s, at)
				}
			}
		}
	}
	if skipped < 1000 || whole < 1000 {
		t.Errorf("%d rows skipped, %d on whole pages", skipped, whole)
	}
}
