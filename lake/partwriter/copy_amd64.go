package partwriter

import (
	"slices"
	"unsafe"

	"golang.org/x/sys/cpu"
)

var hasAVX512 = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasBMI2

var hasVBMI = hasAVX512 && cpu.X86.HasAVX512VBMI

// copyTwiceVBMI copies n bytes, 128 at most, to two places with room for copyRoom.
//
//go:noescape
func copyTwiceVBMI(a, b, from *byte, n int)

// appendTwice appends a piece to two texts, one without bytes as append does: what is nil stays so. Up to copyRoom bytes of their memory
// behind them are written to.
func appendTwice(a, b, piece []byte) (_, _ []byte) {
	n := len(piece)
	if !hasVBMI || n > copyRoom || n == 0 {
		return append(a, piece...), append(b, piece...)
	}
	if cap(a)-len(a) < copyRoom {
		a = slices.Grow(a, copyRoom)
	}
	if cap(b)-len(b) < copyRoom {
		b = slices.Grow(b, copyRoom)
	}
	i, j := len(a), len(b)
	a, b = a[:i+n], b[:j+n]
	copyTwiceVBMI(unsafe.SliceData(a[i:]), unsafe.SliceData(b[j:]), unsafe.SliceData(piece), n)
	return a, b
}

// copyRoom is how much may be written where a piece is copied to.
const copyRoom = 128
