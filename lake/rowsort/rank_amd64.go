package rowsort

import "golang.org/x/sys/cpu"

// smallSort is the number of rows up to which sortSmall is the fastest; at most 127.
var smallSort = func() int {
	if hasAVX512Ranks {
		return 64
	}
	return insertSort
}()

// hasAVX512Ranks is set if rankAVX512 may be called.
var hasAVX512Ranks = hasVectors && cpu.X86.HasAVX512DQ

// rankAVX512 sets ranks to the ranks of n rows by their caches; rows with equal caches rank in
// their order. It sets a multiple of eight ranks, so ranks must have memory for n rounded up. N is
// 1 to 127. Loads of rows are masked: it reads n rows. It needs the features of hasAVX512Ranks.
// Without them insertByCache replaces it; FuzzSortSmall compares both with a stable sort.
//
//go:noescape
func rankAVX512(rows *rowRef, n int, ranks *uint64)

// sortSmall sorts at most smallSort rows by their caches.
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
