//go:build !amd64

package prefetch

import "unsafe"

// At does nothing without assembly for the processor.
func At([]byte, int) {}

// ForWriting does nothing without assembly for the processor.
func ForWriting(unsafe.Pointer, int) {}

func lines([]byte) {}
