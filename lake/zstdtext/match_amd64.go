package zstdtext

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// hasAVX2 gates scanAVX2 and chooseAVX2.
var hasAVX2 = cpu.X86.HasAVX2 && cpu.X86.HasBMI1 && cpu.X86.HasPOPCNT

// vectorSpan is how many bytes scanAVX2 reads from the first of eight positions on, and half of
// what chooseAVX2 reads from any.
const vectorSpan = 16

// scanAVX2 enters n positions, a multiple of eight, into the table, and lists the candidates among
// them, as scanGeneric does. pos is the first position as an entry has it, position<<posShift |
// epoch; text points at its byte; ranks count from 0. It updates *last and returns the number of
// candidates.
//
// It reads 16 bytes from the first of each eight positions on, so the last position has 15 bytes of
// text after it (scanChunk sees to that). It writes up to eight candidates past the last one;
// candidateCapacity has room for them. Indexes into the table are 16 bits of a hash, so they are
// within it.
//
// It needs AVX2 and POPCNT (hasAVX2). FuzzMatches compares it with scanGeneric.
//
//go:noescape
func scanAVX2(text *byte, n int, pos uint32, table, candidates, last *uint32, lanes *[256]uint64) int

// chooseAVX2 is chooseOne for n candidates of the chunk at offset at, up to the first one that it
// leaves to chooseOne. It returns how many it has done. It leaves matches of 32 bytes and more
// after the candidate or of eight and more before it, positions above limit, and sources below 8.
//
// It reads text from eight bytes before a source on to 32 bytes after a position, which the limits
// on both keep within the text: limit is len(text) - 32. A match that is not accepted is written
// past the last one, for which parse keeps an entry.
//
// It needs AVX2 and BMI1 (hasAVX2). FuzzMatches compares it with chooseOne.
//
//go:noescape
func chooseAVX2(text *byte, at int, candidates *uint32, n, limit int, matches *match, c *choice) int

// Assembly relies on these offsets: a match is three 32-bit numbers.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(match{}.start)]
	_ = [1]struct{}{}[unsafe.Offsetof(match{}.end)-4]
	_ = [1]struct{}{}[unsafe.Offsetof(match{}.distance)-8]
	_ = [1]struct{}{}[unsafe.Sizeof(match{})-12]
)

// setLanes has, for each set of eight lanes, the numbers of those in it, ascending, a byte each.
var setLanes = func() (all [256]uint64) {
	for set := range all {
		n := 0
		for i := range 8 {
			if set>>i&1 > 0 {
				all[set] |= uint64(i) << (8 * n)
				n++
			}
		}
	}
	return all
}()

// scanChunk looks up the n positions of text from at on and returns how many candidates it found.
func (f *finder) scanChunk(text []byte, at, n int) int {
	found, done := 0, 0
	if fast := min(n, len(text)-at-vectorSpan+1) &^ 7; hasAVX2 && fast > 0 {
		pos := uint32(at)<<posShift | f.epoch
		found = scanAVX2(&text[at], fast, pos, &f.table[0], &f.candidates[0], &f.last, &setLanes)
		done = fast
	}
	return f.scanGeneric(text, at, done, n-done, found)
}

// choose chooses matches among the candidates of the chunk at at.
func (f *finder) choose(text []byte, at int, candidates []uint32) {
	for len(candidates) > 0 {
		if hasAVX2 {
			n := chooseAVX2(&text[0], at, &candidates[0], len(candidates), len(text)-2*vectorSpan,
				&f.matches[0], &f.choice)
			if candidates = candidates[n:]; len(candidates) == 0 {
				return
			}
		}
		f.chooseOne(text, at+int(candidates[0]&rankMask), int(candidates[0]>>posShift))
		candidates = candidates[1:]
	}
}
