//go:build !amd64

package prefetch

// ask does nothing without assembly for the processor.
func ask([]byte) {}
