//go:build !linux || race

package command

// hugePagesForHeap does nothing: not Linux, or the race detector, which writes a multiple of what
// is reserved as its own memory of who used it.
func hugePagesForHeap() {}
