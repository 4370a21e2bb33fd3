// Package prefetch reads memory from end to end that no cache has, as when megabytes are hashed that were written a while ago. A core asks for some lines of such memory
// ahead by itself, which is too few where the memory is far away: on a server's processor XXH64 (the hash of most of the lake's checksums) then waits for half of its time.
package prefetch

import (
	"iter"

	"github.com/cespare/xxhash/v2"
)

const (
	// chunk is how much is asked for at once.
	chunk = 1 << 10
	// ahead is how far before it is used: memory takes some 200 ns to answer, in which a hash goes over 2 KiB.
	ahead = 2 * chunk
)

// Chunks yields b piece by piece, while the memory of those behind is asked for.
func Chunks(b []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if len(b) > chunk {
			ask(b[:min(ahead, len(b))])
		}
		for len(b) > chunk {
			if len(b) > ahead {
				ask(b[ahead:min(ahead+chunk, len(b))])
			}
			if !yield(b[:chunk:chunk]) {
				return
			}
			b = b[chunk:]
		}
		if len(b) > 0 {
			yield(b)
		}
	}
}

// Sum64 is the XXH64 of b with the seed 0.
func Sum64(b []byte) uint64 {
	if len(b) <= chunk {
		return xxhash.Sum64(b)
	}
	var d xxhash.Digest
	d.Reset()
	for piece := range Chunks(b) {
		d.Write(piece)
	}
	return d.Sum64()
}
