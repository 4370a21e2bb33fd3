package zstdtext

import "golang.org/x/sys/cpu"

// hasAVX2 says whether the machine has what the assembly needs.
var hasAVX2 = cpu.X86.HasAVX2 && cpu.X86.HasBMI1 && cpu.X86.HasPOPCNT

// hasAVX512 says whether it has what the wider assembly needs.
var hasAVX512 = hasAVX2 && cpu.X86.HasBMI2 && cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512CD && cpu.X86.HasAVX512VBMI

// scanAVX2 is scanWords of n positions, a multiple of eight, which pos is the first of, as entries have it with the epoch. The last one has 15 bytes of text behind it.
// It writes up to eight starts more than there are, and updates last.
//
//go:noescape
func scanAVX2(text *byte, n int, pos uint32, table, starts, last *uint32, order *[256]uint64) int

// scanAVX512 is scanAVX2 for a multiple of 16, the last of which has 31 bytes of text behind it. It writes up to 16 starts more than there are.
//
//go:noescape
func scanAVX512(text *byte, n int, pos uint32, table, starts, last *uint32) int

// takeAVX2 is takeOne of starts, up to one that takes a closer look, and returns how many these are. Text is all text, limit is
// what positions may be up to.
//
//go:noescape
func takeAVX2(text *byte, at int, starts *uint32, n, limit int, matches *match, c *choice) int

// prepared are the starts of a chunk as takeAVX512 wants them: positions, those that far before which may be the same, distances and costs. Where takeAVX512
// must not look both positions are wide.
type prepared [4][startRoom]uint32

// wide is how many bytes takeAVX512 reads before and behind a position.
const wide = 32

// prepareAVX512 prepares n starts of the chunk at at, of positions up to limit. It reads and writes up to 15 more.
//
//go:noescape
func prepareAVX512(starts *uint32, n, at, limit int, p *prepared)

// takeAVX512 is takeOne of the prepared starts from i up to n, or up to one that takes a closer look, and returns that one's number. Text is all text.
//
//go:noescape
func takeAVX512(text *byte, p *prepared, i, n int, matches *match, c *choice) int

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

// window is how many bytes scanAVX2 reads from a position on that is the first of eight, and half of what scanAVX512 reads from one of 16 and takeAVX2 from any.
const window = 16

// scan looks up the n positions of text from at on and returns how many starts it found.
func (f *finder) scan(text []byte, at, n int) int {
	found, done := 0, 0
	if fast := min(n, len(text)-at-2*window+1) &^ 15; hasAVX512 && fast > 0 {
		found = scanAVX512(&text[at], fast, uint32(at)<<posShift|f.epoch, &f.table[0], &f.starts[0], &f.last)
		done = fast
	} else if fast := min(n, len(text)-at-window+1) &^ 7; hasAVX2 && fast > 0 {
		found = scanAVX2(&text[at], fast, uint32(at)<<posShift|f.epoch, &f.table[0], &f.starts[0], &f.last, &order)
		done = fast
	}
	return f.scanWords(text, at, done, n-done, found)
}

// take chooses matches from the starts of the chunk at at.
func (f *finder) take(text []byte, at int, starts []uint32) {
	if hasAVX512 && len(starts) > 0 && len(text) >= 2*wide {
		p := &f.prepared
		prepareAVX512(&starts[0], len(starts), at, len(text)-wide, p)
		for i := 0; ; i++ {
			if i = takeAVX512(&text[0], p, i, len(starts), &f.matches[0], &f.choice); i == len(starts) {
				return
			}
			f.takeOne(text, at, starts[i])
		}
	}
	for len(starts) > 0 {
		if hasAVX2 {
			if starts = starts[takeAVX2(&text[0], at, &starts[0], len(starts), len(text)-2*window, &f.matches[0], &f.choice):]; len(starts) == 0 {
				return
			}
		}
		f.takeOne(text, at, starts[0])
		starts = starts[1:]
	}
}
