// Package arena keeps millions of byte strings in few objects that have no pointers, so that the
// garbage collector does not look at each. An Arena keeps them all until it is dropped itself, a
// Map until they are removed.
package arena

import "encoding/binary"

const (
	// chunkSize is how many bytes share an object. The first ones of an Arena are smaller.
	chunkSize = 32 << 10
	leastSize = 1 << 10
)

// Arena keeps strings that never change. The zero Arena has none.
type Arena struct {
	chunks [][]byte // all of their length; of the last one, used bytes have something
	used   int
	size   int
}

// Place is where an Arena has a string.
type Place struct{ chunk, at uint32 }

// Size is how many bytes the strings take together.
func (a *Arena) Size() int { return a.size }

// Keep copies a string.
func (a *Arena) Keep(b []byte) Place {
	n := len(b) + binary.MaxVarintLen32
	if len(a.chunks) == 0 || len(a.chunks[len(a.chunks)-1])-a.used < n {
		a.chunks, a.used = append(a.chunks, make([]byte, max(n, min(chunkSize, max(leastSize, a.size))))), 0
	}
	last := len(a.chunks) - 1
	p := Place{uint32(last), uint32(a.used)}
	rest := a.chunks[last][a.used:]
	n = binary.PutUvarint(rest, uint64(len(b)))
	n += copy(rest[n:], b)
	a.used += n
	a.size += n
	return p
}

// Get returns a string, which is no copy. A copy of an Arena has the strings of when it was made,
// also while others are added to the original.
func (a *Arena) Get(p Place) []byte {
	b := a.chunks[p.chunk][p.at:]
	n, from := binary.Uvarint(b)
	end := from + int(n)
	return b[from:end:end]
}
