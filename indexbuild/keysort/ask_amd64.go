package keysort

import "unsafe"

// Ask prefetches the two cache lines at b[off], which may be past the end of b, without waiting for
// them. A prefetch of any address is safe: it never faults.
func Ask(b []byte, off int) { askPrefetch(unsafe.SliceData(b), off) }

//go:noescape
func askPrefetch(p *byte, off int)
