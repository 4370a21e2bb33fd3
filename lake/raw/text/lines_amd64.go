package text

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// hasVectors says that the processor has what lineEndsVectors needs: AVX-512F and BW, BMI1, BMI2
// and POPCNT.
var hasVectors = cpu.X86.HasAVX512BW && cpu.X86.HasBMI1 && cpu.X86.HasBMI2 && cpu.X86.HasPOPCNT

// lineEndsVectors writes the offsets of lineEnd in the n bytes at s to ends, in ascending order,
// and returns how many. It looks at 64 bytes at a time and stops after those with the most-th
// lineEnd, so that it may return up to 63 more than most. The Go version is lineEndsGo;
// FuzzLineEnds compares the two.
//
// It reads only s[:n]: the last load is masked, and masked bytes do not fault. It writes only to
// ends: most is at most LinesAtOnce, and at most LinesAtOnce-1 ends precede the last 64 bytes
// looked at, which have up to 64. Elements from the returned count on are overwritten with
// anything.
//
//go:noescape
func lineEndsVectors(s *byte, n int, lineEnd byte, most int, ends *lineEndOffsets) int

// lineEnds does what lineEndsGo does.
func lineEnds(s []byte, lineEnd byte, most int, ends *lineEndOffsets) int {
	if !hasVectors {
		return lineEndsGo(s, lineEnd, most, ends)
	}
	return min(most, lineEndsVectors(unsafe.SliceData(s), len(s), lineEnd, most, ends))
}
