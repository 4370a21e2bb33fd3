package zstdtext

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// hasAVX2 gates scanAVX2 and chooseAVX2.
var hasAVX2 = cpu.X86.HasAVX2 && cpu.X86.HasBMI1 && cpu.X86.HasPOPCNT

// hasAVX512 gates all functions named AVX512 and copyAVX2. LZCNT, which measureAVX512 uses too, is
// in every processor with AVX-512.
var hasAVX512 = hasAVX2 && cpu.X86.HasBMI2 && cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL &&
	cpu.X86.HasAVX512BW && cpu.X86.HasAVX512CD && cpu.X86.HasAVX512VBMI

// vectorSpan is how many bytes scanAVX2 reads from the first of eight positions on. It is half of
// what scanChooseAVX512 reads from the first of 16, and chooseAVX2 from any.
const vectorSpan = 16

// scanAVX2 enters n positions, a multiple of eight, into the table, and lists the candidates among
// them, as scanGeneric does. pos is the first position as an entry has it, position<<posShift |
// epoch; text points at its byte; ranks count from 0. It updates *last and returns the number of
// candidates.
//
// It reads 16 bytes from the first of each eight positions on, so the last position has 15 bytes of
// text after it (scanChunk sees to that). It writes up to eight candidates past the last one;
// candidateCapacity has room for 16. Indexes into the table are 16 bits of a hash, so they are
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

// measures has, by row, what measureAVX512 knows of the candidates of a chunk: where a match begins
// and ends, what it would gain if it began at 0, all in units of cost, and its distance. If the end
// was not found, the match begins at the candidate's position and ends at 0. scanChooseAVX512
// replaces the gain by where an accepted match begins, or by 0.
type measures [4][candidateCapacity]uint32

// measureSpan is how many bytes measureAVX512 reads before and after a position.
const measureSpan = 32

// measureAVX512 sets m for n candidates of the chunk at offset at, whose positions in text are at
// most limit.
//
// It reads and writes up to 15 elements past the n-th of candidates and of each row of m, for which
// candidateCapacity has room. It reads text from measureSpan bytes before to measureSpan bytes
// after each position and source. A candidate whose position is above limit, len(text) -
// measureSpan, or whose source is below measureSpan is not read: offset measureSpan stands in for
// both, so text has at least 2*measureSpan bytes, and no end is found for it.
//
// It needs the features of hasAVX512, and LZCNT. With scanChooseAVX512 and emitAVX512 it does what
// chooseOne does; FuzzMatches compares them.
//
//go:noescape
func measureAVX512(text *byte, candidates *uint32, n, at, limit int, m *measures)

// scanState is a scan in progress: the next position, its rank in the chunk, how many positions are
// left, a multiple of 16, and how many candidates were found. The last position has 31 bytes of
// text after it.
type scanState struct{ at, rank, left, found int }

// scanChooseAVX512 continues the scan f.scan to its end, as scanGeneric would, and meanwhile
// chooses among the measured candidates from i up to n, as chooseOne would, up to the first whose
// end is not known. It returns that one's index, or n.
//
// It reads 32 bytes of text from the first of each 16 positions on; see scanState. It writes up to
// 16 candidates past the last one, for which candidateCapacity has room. Indexes into the table are
// 16 bits of a hash.
//
// It needs the features of hasAVX512. FuzzMatches compares it with scanGeneric and chooseOne.
//
//go:noescape
func scanChooseAVX512(f *finder, text *byte, i, n int) int

// emitAVX512 writes the matches that scanChooseAVX512 accepted among n measured candidates from i
// on. last is the index of the last match so far and before is where it began, in units of cost,
// when scanChooseAVX512 started: the first new match replaces it if it begins no later. It returns
// the index of the last match.
//
// It compacts the rows of m in place, never past what it has read. It reads up to 16 elements past
// the n-th of each row, for which candidateCapacity has room, and writes up to sequenceSlack
// matches past the last one, for which parse keeps room.
//
// It needs the features of hasAVX512. FuzzMatches compares it with chooseOne.
//
//go:noescape
func emitAVX512(m *measures, i, n, before int, matches *match, last int) int

// Assembly relies on these offsets: the table is at the start of a finder, and a match is three
// 32-bit numbers.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(finder{}.table)]
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

// maxFastText is the longest text whose positions fit the 32-bit units of cost of assembly.
const maxFastText = 1 << 28

// parseFast does the work of parse on all chunks, if the machine has AVX-512 and the text has a
// length for it.
func (f *finder) parseFast(text []byte, from int) bool {
	if !hasAVX512 || len(text) < 2*measureSpan || len(text) > maxFastText {
		return false
	}
	// A chunk is scanned while matches are chosen among the candidates of the chunk before.
	n := 0
	for at := from; n > 0 || at <= len(text)-8; at += chunk {
		if n > 0 {
			measureAVX512(&text[0], &f.candidates[0], n, at-chunk, len(text)-measureSpan, &f.measures)
		}
		size := max(0, min(chunk, len(text)-7-at))
		fast := max(0, min(size, len(text)-at-2*vectorSpan+1)) &^ 15
		f.scan = scanState{at, 0, fast, 0}
		for i := 0; ; i++ {
			before := f.choice.lastStart
			next := scanChooseAVX512(f, &text[0], i, n)
			if next > i {
				f.choice.last = emitAVX512(&f.measures, i, next-i, before, &f.matches[0], f.choice.last)
			}
			if i = next; i == n {
				break
			}
			f.chooseOne(text, int(f.measures[0][i]/literalCost), int(f.measures[3][i]))
		}
		n = f.scanGeneric(text, at, fast, size-fast, f.scan.found)
	}
	return true
}
