//go:build !amd64

package lake

// copyEach copies each piece to where it goes, which is no shorter.
func copyEach(to, from [][]byte) { copyEachPlain(to, from) }

// appendTwice appends a piece to two texts.
func appendTwice(a, b, piece []byte) (_, _ []byte) { return append(a, piece...), append(b, piece...) }
