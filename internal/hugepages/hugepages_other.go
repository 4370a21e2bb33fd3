//go:build !linux

package hugepages

// ForHeap does nothing.
func ForHeap() {}
