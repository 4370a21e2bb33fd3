package urlnorm

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

var hasAVX2 = cpu.X86.HasAVX2

// scanPathAVX2 is scanPathWords of the n bytes at s, which are more than 32, but that it stops nowhere in vain.
//
//go:noescape
func scanPathAVX2(s *byte, start, n int) int

// scanPath returns the place of the first byte from s[start] on that may have to be changed in a path or end it, len(s) if there
// is none. A slash or a dot after a slash is such a place. s has eight bytes or more, and start is not 0.
func scanPath(s []byte, start int) int {
	if hasAVX2 && len(s) > 32 {
		return scanPathAVX2(unsafe.SliceData(s), start, len(s))
	}
	return scanPathWords(s, start)
}
