//go:build !amd64

package lake

const smallSort = insertSort

// sortSmall sorts rows, smallSort at most, by their caches.
func (b *RowBuffer) sortSmall(rows []rowRef) { insertByCache(rows) }
