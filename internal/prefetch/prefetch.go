// Package prefetch speeds up sequential reads of memory that is in no cache, e.g. hashing megabytes
// that were written a while ago. Processors prefetch a few cache lines by themselves. That is too
// little if memory has a high latency: on a server's processor, XXH64, the hash of most of the
// lake's checksums, then waits half of its time. Packages lake and codec hash large buffers with
// it.
package prefetch

import (
	"iter"

	"github.com/cespare/xxhash/v2"
)

const (
	// chunk is how many bytes are prefetched at a time.
	chunk = 1 << 10
	// ahead is the prefetch distance in bytes. A miss of all caches takes about 200 ns, in which a
	// hash reads 2 KiB.
	ahead = 2 * chunk
)

// Chunks yields b in consecutive chunks and prefetches the chunks after the one that it yields.
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

// Sum64 returns the XXH64 of b with seed 0.
func Sum64(b []byte) uint64 {
	if len(b) <= chunk {
		return xxhash.Sum64(b)
	}
	var d xxhash.Digest
	d.Reset()
	for c := range Chunks(b) {
		d.Write(c)
	}
	return d.Sum64()
}
