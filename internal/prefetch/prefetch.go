// Package prefetch starts loads of memory before it is used. A miss of all caches takes about 200
// ns; many misses at once take hardly longer than one. Prefetches change no result. They do nothing
// on processors without assembly here.
//
// Chunks and Sum64 speed up sequential reads of memory that no cache holds, e.g. hashing megabytes
// that were written a while ago. Processors prefetch a few cache lines by themselves, which is too
// little if memory has a high latency: on a server's processor, XXH64, the hash of most of the
// lake's checksums, otherwise waits half of its time. Package lake/seekable and the part writer
// hash and read large buffers with them.
//
// At and ForWriting prefetch single addresses, for callers that know their next accesses. Loops
// that prefetch through a package's own structs stay in that package's prefetch_amd64.s: a call for
// each access would cost as much as the loop saves.
package prefetch

import (
	"iter"

	"github.com/cespare/xxhash/v2"
)

const (
	// chunk is how many bytes are prefetched at a time.
	chunk = 1 << 10
	// ahead is the prefetch distance in bytes: what a hash reads during a miss of all caches.
	ahead = 2 * chunk
)

// Chunks yields b in consecutive chunks and prefetches the chunks after the one that it yields.
func Chunks(b []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if len(b) > chunk {
			lines(b[:min(ahead, len(b))])
		}
		for len(b) > chunk {
			if len(b) > ahead {
				lines(b[ahead:min(ahead+chunk, len(b))])
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
