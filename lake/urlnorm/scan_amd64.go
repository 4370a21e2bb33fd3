package urlnorm

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// hasAVX2 gates scanPathAVX2.
var hasAVX2 = cpu.X86.HasAVX2

// scanPathAVX2 is scanPath for the n bytes at s, n above 32.
//
// It reads 32 bytes at a time, and the byte before each step. Its last step is moved back to end at
// s+n, so it reads nothing outside of s: start is not 0, and n is above 32.
//
// It needs AVX2 (hasAVX2). FuzzWords compares it with a loop over bytes and with scanPathWords,
// which replaces it.
//
//go:noescape
func scanPathAVX2(s *byte, start, n int) int

// scanPath returns the index of the first byte from s[start] on that may have to be changed in a
// path or end it, or len(s). A slash or a dot after a slash is such a byte. s has eight bytes or
// more, and start is not 0.
func scanPath(s []byte, start int) int {
	if hasAVX2 && len(s) > 32 {
		return scanPathAVX2(unsafe.SliceData(s), start, len(s))
	}
	return scanPathWords(s, start)
}
