//go:build !amd64

package partwriter

// appendTwice appends a piece to two texts.
func appendTwice(a, b, piece []byte) (_, _ []byte) { return append(a, piece...), append(b, piece...) }
