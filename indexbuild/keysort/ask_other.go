//go:build !amd64

package keysort

// ask is for processors that can be asked for memory.
func Ask([]byte, int) {}
