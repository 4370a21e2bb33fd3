package lookup

// A search within a domain finds the pages that it has to read from the page index and the page
// keys of the domain's rows in one row group. It reads nothing itself.
//
// The rows of a domain are sorted, and the key of a page separates it from the page before
// (part.PageKey). So what a search looks for is within one page. A page without a key is between
// two keys that are farther apart, or between the ends of the rows: the answers are right, and only
// less narrow.

import (
	"sort"

	"github.com/urlake/urlake/lake/part"
)

// Index has the pages of a run of rows of one domain in one row group. It is immutable.
type Index struct {
	blocks []*part.PageIndexBlock
	// marks are the pages that begin within the run and have a key, in order.
	marks []pageMark
	// The rows of the run.
	first, end int64
}

// pageMark is a key and the row with which its page begins.
type pageMark struct {
	row int64
	key *part.PageKey
}

// newPageSearch returns the Index of the rows [first, end), all of one domain. The blocks of the
// page index cover them; keys are those of some of the blocks.
func newPageSearch(blocks []*part.PageIndexBlock, keys []*part.PageKeyBlock, first, end int64) *Index {
	x := &Index{blocks: blocks, first: first, end: end}
	for _, b := range blocks {
		for len(keys) > 0 && keys[0].FirstRow < b.FirstRow {
			keys = keys[1:]
		}
		if len(keys) == 0 {
			break
		}
		if keys[0].FirstRow != b.FirstRow {
			continue
		}
		of := keys[0].Keys
		for i := range min(len(of), b.Pages()) {
			row := b.FirstRow + b.PageStart(i)
			if row > first && row < end && !of[i].None() {
				x.marks = append(x.marks, pageMark{row, &of[i]})
			}
		}
	}
	return x
}

// Covers reports whether the index has the rows [first, end).
func (x *Index) Covers(first, end int64) bool { return x.first <= first && end <= x.end }

// Block returns the block of the page index with a row of the run.
func (x *Index) Block(row int64) *part.PageIndexBlock {
	i := sort.Search(len(x.blocks), func(i int) bool { return x.blocks[i].FirstRow > row }) - 1
	return x.blocks[i]
}

// Page returns the rows [first, end) of the page with a row of the run. Some may be outside of it.
func (x *Index) Page(row int64) (first, end int64) { return x.Block(row).Page(row) }

// Narrow returns a range [lo, hi] of rows with the first of the rows [lo, hi) of the run that is
// not before what is sought, or hi if all are. Before holds for all keys up to some point in their
// order, and for no other; a row is before what is sought if its own key would be. If all pages
// have keys, the rows [lo, hi) that are left are within one page.
func (x *Index) Narrow(lo, hi int64, before func(k *part.PageKey) bool) (int64, int64) {
	// The marks [from, to) are within the range.
	from := sort.Search(len(x.marks), func(i int) bool { return x.marks[i].row > lo })
	to := sort.Search(len(x.marks), func(i int) bool { return x.marks[i].row >= hi })
	if from >= to {
		return lo, hi
	}
	at := from + sort.Search(to-from, func(i int) bool { return !before(x.marks[from+i].key) })
	if at > from {
		lo = x.marks[at-1].row
	}
	if at < to {
		hi = x.marks[at].row
	}
	return lo, hi
}

// around returns the keys that bound the rows of the page with a row, from below and from above.
// They are nil where no key does, and below may be the key of an earlier page.
func (x *Index) around(row int64) (below, above *part.PageKey) {
	i := sort.Search(len(x.marks), func(i int) bool { return x.marks[i].row > row })
	if i > 0 {
		below = x.marks[i-1].key
	}
	if i < len(x.marks) {
		above = x.marks[i].key
	}
	return below, above
}

// selection says which keys of a domain are selected, by host and the beginning of path and query.
type selection struct {
	// Host is the only host, "" for all; Prefix is what the path begins with.
	Host, Prefix string
}

// All reports whether all keys are selected.
func (s selection) All() bool { return s.Host == "" && s.Prefix == "" }

// comparePath is 0 if path begins with prefix. Otherwise it compares the two.
func comparePath[T string | []byte](path T, prefix string) int {
	switch {
	case len(path) >= len(prefix) && string(path[:len(prefix)]) == prefix:
		return 0
	case string(path) < prefix:
		return -1
	}
	return 1
}

// compare is 0 if the selection has a host and a path, negative if it may only have later ones, of
// the host or of the domain, and else positive.
func compare[T string | []byte](s selection, host string, path T) int {
	if s.Host != "" && host != s.Host {
		if host < s.Host {
			return -1
		}
		return 1
	}
	return comparePath(path, s.Prefix)
}

// Next returns the first row from row on, a row of the run, that is on a page which may have
// selected rows, or the end of the run. It is row itself if its page may. All tells that the
// selection has all rows of the page that are in the run.
func (x *Index) Next(row int64, s selection) (next int64, all bool) {
	for row < x.end {
		below, above := x.around(row)
		oneHost := s.Host != "" || below != nil && above != nil && below.Host == above.Host
		late := below != nil && oneHost && compare(s, below.Host, below.Path) > 0
		if late && s.Host != "" {
			return x.end, false
		}
		if early := above != nil && oneHost && compare(s, above.Host, above.Path) < 0; !early && !late {
			all = below != nil && above != nil && below.Host == above.Host &&
				compare(s, below.Host, below.Path) == 0 && compare(s, above.Host, above.Path) == 0
			return row, all
		}
		// The next page with a key from above on, or the end.
		i := sort.Search(len(x.marks), func(i int) bool { return x.marks[i].row > row })
		if i == len(x.marks) {
			return x.end, false
		}
		row = x.marks[i].row
	}
	return x.end, false
}
