//go:build !amd64

package rowsort

const smallSort = insertSort

// sortSmall sorts at most smallSort rows by their caches.
func (b *Buffer) sortSmall(rows []rowRef) { insertByCache(rows) }
