package shard

import "encoding/binary"

const (
	// arenaChunk is how many bytes share an object. The first ones are smaller.
	arenaChunk = 32 << 10
	arenaLeast = 1 << 10
)

// arena keeps byte strings in a few objects without pointers: the garbage collector would need a
// cache miss for each object. What is kept does not change.
type arena struct {
	chunks [][]byte // all of their length; of the last one, used bytes have something
	used   int
	size   int // the bytes of all strings
}

// place is where an arena has a string.
type place struct{ chunk, at uint32 }

// keep copies a string.
func (a *arena) keep(b []byte) place {
	n := len(b) + binary.MaxVarintLen32
	if len(a.chunks) == 0 || len(a.chunks[len(a.chunks)-1])-a.used < n {
		a.chunks, a.used = append(a.chunks, make([]byte, max(n, min(arenaChunk, max(arenaLeast, a.size))))), 0
	}
	last := len(a.chunks) - 1
	p := place{uint32(last), uint32(a.used)}
	rest := a.chunks[last][a.used:]
	n = binary.PutUvarint(rest, uint64(len(b)))
	n += copy(rest[n:], b)
	a.used += n
	a.size += n
	return p
}

// get returns a string.
func (a *arena) get(p place) []byte {
	b := a.chunks[p.chunk][p.at:]
	n, from := binary.Uvarint(b)
	end := from + int(n)
	return b[from:end:end]
}
