package prefetch

import "unsafe"

// At prefetches two cache lines: the one at offset off of b and the next. The offset may be past
// the end of b, or of its memory: prefetches never fault.
func At(b []byte, off int) { twoLines(unsafe.SliceData(b), off) }

// ForWriting prefetches the cache lines of the n bytes at p, which are about to be written. N must
// be above 0. Prefetches never fault, so p need not point to n bytes of one object.
func ForWriting(p unsafe.Pointer, n int) { linesForWriting(p, n) }

// lines prefetches the cache lines of b, which must not be empty, into the second-level cache. The
// first level handles only about 16 misses at a time.
func lines(b []byte) { secondLevelLines(&b[0], len(b)) }

//go:noescape
func secondLevelLines(p *byte, n int)

//go:noescape
func twoLines(p *byte, off int)

//go:noescape
func linesForWriting(p unsafe.Pointer, n int)
