package zstdtext

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// hasAVX2 says whether the machine has what the assembly needs.
var hasAVX2 = cpu.X86.HasAVX2 && cpu.X86.HasBMI1 && cpu.X86.HasPOPCNT

// hasAVX512 says whether it has what the wider assembly needs.
var hasAVX512 = hasAVX2 && cpu.X86.HasBMI2 && cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512CD && cpu.X86.HasAVX512VBMI

// scanAVX2 is scanWords of n positions, a multiple of eight, which pos is the first of, as entries have it with the epoch. The last one has 15 bytes of text behind it.
// It writes up to eight starts more than there are, and updates last.
//
//go:noescape
func scanAVX2(text *byte, n int, pos uint32, table, starts, last *uint32, order *[256]uint64) int

// takeAVX2 is takeOne of starts, up to one that takes a closer look, and returns how many these are. Text is all text, limit is
// what positions may be up to.
//
//go:noescape
func takeAVX2(text *byte, at int, starts *uint32, n, limit int, matches *match, c *choice) int

// measures are of the starts of a chunk: where a match begins and ends, what it gains if it began at 0, in units of costs, and its distance. Where measureAVX512
// did not see its end a match begins at its position and ends at 0. Of one that was taken there is then where it begins in place of the gain, else 0.
type measures [4][startRoom]uint32

// wide is how many bytes measureAVX512 reads before and behind a position.
const wide = 32

// measureAVX512 measures n starts of the chunk at at, of positions up to limit. It reads and writes up to 15 more.
//
//go:noescape
func measureAVX512(text *byte, starts *uint32, n, at, limit int, m *measures)

// pass is a scan under way: the next position, its rank, how many are left, a multiple of 16, and the starts found so far. The last one has 31 bytes of text behind it.
type pass struct{ at, rank, left, found int }

// stepAVX512 does a pass, as scanWords would, and meanwhile takes measured starts from i up to n, or up to one of which the end is not known, whose number it returns. It writes up to 16 starts more
// than there are.
//
//go:noescape
func stepAVX512(f *finder, text *byte, i, n int) int

// settleAVX512 makes matches of n measured starts from i on of which some were taken, where the last match, at last, started before. It returns the last one. It writes up to sequenceRoom more.
//
//go:noescape
func settleAVX512(m *measures, i, n, before int, matches *match, last int) int

// What stepAVX512 knows of finders, and settleAVX512 of matches.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(finder{}.table)]
	_ = [1]struct{}{}[unsafe.Offsetof(match{}.start)]
	_ = [1]struct{}{}[unsafe.Offsetof(match{}.end)-4]
	_ = [1]struct{}{}[unsafe.Offsetof(match{}.distance)-8]
	_ = [1]struct{}{}[unsafe.Sizeof(match{})-12]
)

// order has for eight bits the numbers of those that are set, a byte each.
var order = func() (all [256]uint64) {
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

// window is how many bytes scanAVX2 reads from a position on that is the first of eight, and half of what stepAVX512 reads from one of 16 and takeAVX2 from any.
const window = 16

// scan looks up the n positions of text from at on and returns how many starts it found.
func (f *finder) scan(text []byte, at, n int) int {
	found, done := 0, 0
	if fast := min(n, len(text)-at-window+1) &^ 7; hasAVX2 && fast > 0 {
		found = scanAVX2(&text[at], fast, uint32(at)<<posShift|f.epoch, &f.table[0], &f.starts[0], &f.last, &order)
		done = fast
	}
	return f.scanWords(text, at, done, n-done, found)
}

// take chooses matches from the starts of the chunk at at.
func (f *finder) take(text []byte, at int, starts []uint32) {
	for len(starts) > 0 {
		if hasAVX2 {
			if starts = starts[takeAVX2(&text[0], at, &starts[0], len(starts), len(text)-2*window, &f.matches[0], &f.choice):]; len(starts) == 0 {
				return
			}
		}
		f.takeOne(text, at+int(starts[0]&rankMask), int(starts[0]>>posShift))
		starts = starts[1:]
	}
}

// maxWide is the longest text of which stepAVX512 can tell positions in units of costs apart.
const maxWide = 1 << 28

// parseWide is what parse does with chunks, if there is a fast way.
func (f *finder) parseWide(text []byte, from int) bool {
	if !hasAVX512 || len(text) < 2*wide || len(text) > maxWide {
		return false
	}
	// A chunk is scanned while matches are taken from the starts of the one before.
	n := 0
	for at := from; n > 0 || at <= len(text)-8; at += chunk {
		if n > 0 {
			measureAVX512(&text[0], &f.starts[0], n, at-chunk, len(text)-wide, &f.measures)
		}
		size := max(0, min(chunk, len(text)-7-at))
		fast := max(0, min(size, len(text)-at-2*window+1)) &^ 15
		f.pass = pass{at, 0, fast, 0}
		for i := 0; ; i++ {
			before := f.choice.lastStart
			next := stepAVX512(f, &text[0], i, n)
			if next > i {
				f.choice.last = settleAVX512(&f.measures, i, next-i, before, &f.matches[0], f.choice.last)
			}
			if i = next; i == n {
				break
			}
			f.takeOne(text, int(f.measures[0][i]/literalCost), int(f.measures[3][i]))
		}
		n = f.scanWords(text, at, fast, size-fast, f.pass.found)
	}
	return true
}
