package rowsort

import "golang.org/x/sys/cpu"

// smallSort is the number of rows up to which comparing all with all, or inserting them one by one where that is what the core can do, is the fastest. It is at most 127.
var smallSort = func() int {
	if hasAVX512Ranks {
		return 64
	}
	return insertSort
}()

var hasAVX512Ranks = hasVectors && cpu.X86.HasAVX512DQ

// rankAVX512 sets the ranks of n rows, 127 at most, by their caches, rows with the same in their order. It sets a multiple of eight.
//
//go:noescape
func rankAVX512(rows *rowRef, n int, ranks *uint64)

// sortSmall sorts rows, smallSort at most, by their caches.
func (b *Buffer) sortSmall(rows []rowRef) {
	if len(rows) < 4 || !hasAVX512Ranks {
		insertByCache(rows)
		return
	}
	rankAVX512(&rows[0], len(rows), &b.ranks[0])
	apart := b.apart[:len(rows)]
	copy(apart, rows)
	for i, r := range apart {
		rows[b.ranks[i]] = r
	}
}
