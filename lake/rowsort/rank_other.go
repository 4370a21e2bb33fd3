//go:build !amd64

package rowsort

const smallSort = insertSort

// sortSmall sorts rows, smallSort at most, by their caches.
func (b *Buffer) sortSmall(rows []rowRef) { insertByCache(rows) }
