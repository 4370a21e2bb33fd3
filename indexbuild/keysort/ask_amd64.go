package keysort

import "unsafe"

// ask asks the core for the two lines at off in b, or past its end, so that they are there when they are looked at: it does not wait for them.
func Ask(b []byte, off int) { askPrefetch(unsafe.SliceData(b), off) }

//go:noescape
func askPrefetch(p *byte, off int)
