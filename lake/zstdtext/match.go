package zstdtext

import (
	"encoding/binary"
	"math/bits"
)

// The finder takes the nearest earlier place whose next hashBytes bytes are the same, if a table still knows it, and extends the match both ways. It
// takes what is worth its cost and gives it up again for a better one that covers it; that is most of what more searching would find.
//
// It does so in two steps, a chunk of positions at a time: scan looks up every position and lists those where a match may begin, take goes
// through the list. So nothing in the first step waits for the second, and neither has branches that depend on what the text is like, which took
// most of the time of a loop that does both. What is looked up in vain, within matches, costs less than that. Wide assembly takes a second list while it makes
// the next one: the first step waits for the table, the second for itself.
const (
	// hashBytes: five would find a little more, at distances where it hardly pays.
	hashBytes = 6
	// tableBits: a page has some 2^17 positions or more. A table for each of them takes half a per cent of the bytes away and half a megabyte of the second level cache.
	tableBits = 16

	// An entry has, from the top, the low bits of a position, some bits of the hash, so that what does not match is
	// mostly known without a look at the text, and the epoch.
	posBits   = 17
	epochBits = 5
	posShift  = 32 - posBits
	posMask   = 1<<posBits - 1
	tagMask   = 1<<posShift - 1<<epochBits
	// checkMask are the bits that say whether an entry is of this text and hash.
	checkMask = 1<<posShift - 1
	maxEpoch  = 1<<epochBits - 1

	hashPrime1 = 0x9E3779B1
	hashPrime2 = 0x85EBCA77

	// What a literal and a sequence cost in eighths of a literal, about; a sequence costs the bits of its distance in addition.
	literalCost  = 8
	sequenceCost = 26

	// minParse is the shortest text that is searched.
	minParse = 32
	// chunk is how many positions are scanned before what was found is looked at.
	chunk = 1 << 11
	// startRoom is for the starts of a chunk and what assembly writes behind them.
	startRoom = chunk + 16
)

// A start of a match is its distance, and below that, where entries have more of the hash, the position's rank in the chunk.
const rankMask = 1<<posShift - 1

// match is a range of text that stands there already, distance bytes before.
type match struct {
	start, end, distance int32
}

// finder finds matches. The zero value is ready.
type finder struct {
	table   [1 << tableBits]uint32
	epoch   uint32 // of the text at hand, 1 to maxEpoch; entries of others are as good as empty
	last    uint32 // what scan found at the position before: its distance as it stands in a start, or 0
	starts  [startRoom]uint32
	matches []match
	choice  choice
	// The scan and the starts once more, for assembly.
	pass     pass
	measures measures
}

// choice is what has been chosen so far. Positions are in units of costs: literalCost for each byte.
type choice struct {
	last int // match, -1 before the first
	// The last match may still be replaced. What ends before prevEnd stays.
	prevEnd, lastStart, lastEnd, lastGain int
}

func load64(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[i : i+8]) }

// reset forgets what was before.
func (f *finder) reset() {
	if f.epoch++; f.epoch > maxEpoch {
		clear(f.table[:])
		f.epoch = 1
	}
}

// parse finds the matches of text[from:], which may go back up to the beginning. Text before from has been parsed before. The result is
// valid until the next call.
func (f *finder) parse(text []byte, from int) []match {
	if len(text)-from < minParse {
		return nil
	}
	// A match that is worth it has at least minMatch bytes. One more is scratch space, and sequences.set reads some behind the last.
	if n := (len(text)-from)/minMatch + 2 + sequenceRoom; n > len(f.matches) {
		f.matches = make([]match, n)
	}
	f.last = 0
	f.choice = choice{last: -1, prevEnd: from * literalCost, lastEnd: from * literalCost} // nothing starts at 0
	if f.parseWide(text, from) {
		return f.matches[:f.choice.last+1]
	}
	for at := from; at <= len(text)-8; at += chunk {
		n := f.scan(text, at, min(chunk, len(text)-7-at))
		f.take(text, at, f.starts[:n])
	}
	return f.matches[:f.choice.last+1]
}

// scanWords enters the n positions from at+rank on into the table and lists those that had an entry which looks the same, behind the first found of
// starts, and returns how many starts there are then. Of
// positions that follow each other and have entries at the same distance it lists the first.
func (f *finder) scanWords(text []byte, at, rank, n, found int) int {
	last, epoch := f.last, f.epoch
	table, starts := &f.table, &f.starts
	for i := range n {
		w := load64(text, at+rank+i)
		h := uint32(w)*hashPrime1 + uint32(w>>32&(1<<(8*hashBytes-32)-1))*hashPrime2
		entry := &table[h>>(32-tableBits)]
		now := uint32(at+rank+i)<<posShift | h&tagMask | epoch
		distance := now - *entry
		*entry = now
		// Without branches, for nobody can tell: no distance if the check bits differ, and a start unless there is none or it is the last one's.
		distance &= uint32(int32(distance&checkMask-1) >> 31)
		starts[found] = distance | uint32(rank+i)
		differs := distance ^ last
		found += int((distance | -distance) & (differs | -differs) >> 31)
		last = distance
	}
	f.last = last
	return found
}

// takeOne looks at the start of a match at p, and takes the match if it is worth it.
func (f *finder) takeOne(text []byte, p, distance int) {
	c := &f.choice
	if p*literalCost < c.lastEnd && c.last >= 0 && int(f.matches[c.last].distance) == distance {
		return // within the same match, which may be long
	}
	end := (p + forward(text, p-distance, p)) * literalCost
	from := (p - backward(text, p-distance, p, c.prevEnd/literalCost)) * literalCost
	cost := sequenceCost + bits.Len(uint(distance))
	if from <= c.lastStart {
		// Only one of both can stay.
		from = max(from, c.prevEnd)
		gain := end - from - cost
		if gain <= c.lastGain {
			return
		}
		c.lastStart, c.lastEnd, c.lastGain = from, end, gain
	} else {
		// It begins where the last one ends.
		from = max(from, c.lastEnd)
		gain := end - from - cost
		if gain <= 0 {
			return
		}
		c.last++
		c.prevEnd, c.lastStart, c.lastEnd, c.lastGain = c.lastEnd, from, end, gain
	}
	f.matches[c.last] = match{int32(from / literalCost), int32(end / literalCost), int32(distance)}
}

// forward is how many bytes from a and from b on are equal.
func forward(text []byte, a, b int) int {
	n := 0
	for ; b+n+8 <= len(text); n += 8 {
		if x := load64(text, a+n) ^ load64(text, b+n); x != 0 {
			return n + bits.TrailingZeros64(x)>>3
		}
	}
	for b+n < len(text) && text[a+n] == text[b+n] {
		n++
	}
	return n
}

// backward is how many bytes before a and before b are equal, those before limit aside.
func backward(text []byte, a, b, limit int) int {
	n := 0
	most := min(a, b-limit)
	for ; n+8 <= most; n += 8 {
		if x := load64(text, a-n-8) ^ load64(text, b-n-8); x != 0 {
			return n + bits.LeadingZeros64(x)>>3
		}
	}
	for n < most && text[a-n-1] == text[b-n-1] {
		n++
	}
	return n
}
