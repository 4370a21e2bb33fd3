package row

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/urlake/urlake/lake/codec"
)

// rowRef refers to a row while its host is sorted.
type rowRef struct {
	cache uint64 // eight bytes of its path, from the depth of the sort on; see loadPath
	chunk uint32 // number of the chunk of its path
	path  uint32 // position of its path in the chunk
}

const (
	// insertSort is the number of rows up to which an insertion sort by caches is the fastest.
	insertSort = 16
	// alikeSort is the same for rows whose paths have to be read.
	alikeSort = 6
)

// insertByCache sorts few rows by their caches.
func insertByCache(rows []rowRef) {
	for i := 1; i < len(rows); i++ {
		r, j := rows[i], i
		for ; j > 0 && rows[j-1].cache > r.cache; j-- {
			rows[j] = rows[j-1]
		}
		rows[j] = r
	}
}

// sort sorts rows whose paths agree in their first depth bytes and whose caches have the next
// eight. It reads a row again only if its cache is equal to another's: URLs of one site share long
// prefixes, and a comparison of whole paths is mostly a cache miss. (The caching of Ng and Kakehi,
// "Cache efficient radix sort for string sorting", 2007.)
func (b *Buffer) sort(rows []rowRef, depth int) {
	for {
		same := true
		for i := 1; i < len(rows) && same; i++ {
			same = rows[i].cache == rows[0].cache
		}
		if !same {
			b.sortByCache(rows, 56)
		}
		depth += 8
		// Groups of equal caches are sorted by recursion, but the longest by the loop: the stack
		// stays shallow however long the paths are.
		var longest []rowRef
		far := len(rows) > touchSort
		for touched := 0; len(rows) > 0; {
			if far && touched <= 0 {
				touched = min(touchBatch, len(rows))
				b.touchRefs(rows[:touched])
			}
			n := 1
			for n < len(rows) && rows[n].cache == rows[0].cache {
				n++
			}
			group := rows[:n]
			rows = rows[n:]
			touched -= n
			if n == 1 {
				continue
			}
			if n <= alikeSort {
				b.insert(group, depth)
				continue
			}
			group = b.endedFirst(group, depth)
			if len(group) > len(longest) {
				group, longest = longest, group
			}
			if len(group) > 1 {
				b.sort(group, b.deeper(group, depth))
			}
		}
		if len(longest) < 2 {
			return
		}
		rows, depth = longest, b.deeper(longest, depth)
	}
}

// sortByCache sorts rows by their caches, which agree in the bits above shift+8. It distributes
// them by one byte after the other (Knuth, The Art of Computer Programming 3, 5.2.5) and leaves
// small groups to insertByCache.
func (b *Buffer) sortByCache(rows []rowRef, shift int) {
	if n := len(rows); cap(b.apart) < n {
		b.apart = make([]rowRef, n+n/2)
	}
	for ; shift >= 0; shift -= 8 {
		if len(rows) <= insertSort {
			insertByCache(rows)
			return
		}
		var ends [256]int
		for i := range rows {
			ends[byte(rows[i].cache>>shift)]++
		}
		if ends[byte(rows[0].cache>>shift)] == len(rows) {
			continue
		}
		sum := 0
		for i, n := range ends {
			ends[i] = sum
			sum += n
		}
		apart := b.apart[:len(rows)]
		copy(apart, rows)
		for _, r := range apart {
			at := &ends[byte(r.cache>>shift)]
			rows[*at] = r
			*at++
		}
		from := 0
		for _, end := range ends {
			if end-from > 1 {
				b.sortByCache(rows[from:end], shift-8)
			}
			from = end
		}
		return
	}
}

// deeper returns the length of the longest common prefix of the rows' paths, which is at least
// depth, and loads their caches from there.
func (b *Buffer) deeper(rows []rowRef, depth int) int {
	first := b.path(rows[0])
	shared := len(first)
	for _, r := range rows[1:] {
		path := b.path(r)
		if shared = depth + codec.CommonPrefix(first[depth:shared], path[depth:]); shared == depth {
			break
		}
	}
	for i := range rows {
		rows[i].cache = loadPath(b.path(rows[i]), shared)
	}
	return shared
}

// insert sorts few rows whose paths agree in their first depth bytes or have ended before.
func (b *Buffer) insert(rows []rowRef, depth int) {
	for i := 1; i < len(rows); i++ {
		r, j := rows[i], i
		for ; j > 0 && b.compare(rows[j-1], r, depth) > 0; j-- {
			rows[j] = rows[j-1]
		}
		rows[j] = r
	}
}

// compare compares rows of a host whose paths agree in their first depth bytes or have ended
// before.
func (b *Buffer) compare(x, y rowRef, depth int) int {
	k, l := b.path(x), b.path(y)
	if c, d := loadPath(k, depth), loadPath(l, depth); c != d {
		return cmp.Compare(c, d)
	}
	if m := min(len(k), len(l)); depth+8 < m {
		depth += 8 + codec.CommonPrefix(k[depth+8:], l[depth+8:])
		if depth < m {
			return int(k[depth]) - int(l[depth])
		}
	}
	return cmp.Or(len(k)-len(l), bytes.Compare(b.suffixKey(x), b.suffixKey(y)))
}

// endedFirst sorts the rows of a group whose paths have at most depth bytes, moves them to its
// front and returns the others. Their caches are like those of paths with zero bytes there, of
// which they are prefixes, so they come first.
func (b *Buffer) endedFirst(group []rowRef, depth int) []rowRef {
	ended := 0
	for i, r := range group {
		if len(b.path(r)) <= depth {
			group[i], group[ended] = group[ended], group[i]
			ended++
		}
	}
	if ended > 1 {
		slices.SortFunc(group[:ended], func(x, y rowRef) int {
			return cmp.Or(len(b.path(x))-len(b.path(y)), bytes.Compare(b.suffixKey(x), b.suffixKey(y)))
		})
	}
	return group[ended:]
}

// loadPath returns the eight bytes of a path from depth on as a number that sorts like them, with
// zero bytes after its end.
func loadPath(path []byte, depth int) uint64 {
	if depth+8 <= len(path) {
		return binary.BigEndian.Uint64(path[depth:])
	}
	var last [8]byte
	if depth < len(path) {
		copy(last[:], path[depth:])
	}
	return binary.BigEndian.Uint64(last[:])
}
