package text

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

var hasVectors = cpu.X86.HasAVX512BW && cpu.X86.HasBMI1 && cpu.X86.HasBMI2 && cpu.X86.HasPOPCNT

// lineEndsVectors sets ends to the places of eol in the n bytes at s, those that are there in the vectors of 64 bytes up to the one with the most-th, and
// returns how many.
//
//go:noescape
func lineEndsVectors(s *byte, n int, eol byte, most int, ends *[LinesAtOnce + 64]int32) int

// lineEnds is lineEndsBytes.
func lineEnds(s []byte, eol byte, most int, ends *[LinesAtOnce + 64]int32) int {
	if !hasVectors {
		return lineEndsBytes(s, eol, most, ends)
	}
	return min(most, lineEndsVectors(unsafe.SliceData(s), len(s), eol, most, ends))
}
