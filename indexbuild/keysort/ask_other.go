//go:build !amd64

package keysort

// Ask does nothing without assembly for the processor.
func Ask([]byte, int) {}
