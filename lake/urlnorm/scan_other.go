//go:build !amd64

package urlnorm

// scanPath returns the index of the first byte from s[start] on that may have to be changed in a
// path or end it, or len(s). A slash or a dot after a slash is such a byte. s has eight bytes or
// more, and start is not 0.
func scanPath(s []byte, start int) int { return scanPathWords(s, start) }
