package zstdtext

import (
	"encoding/binary"
	"math/bits"
)

// The finder takes the nearest earlier position whose next hashBytes bytes are equal, if the table
// still has it, and extends the match in both directions. It accepts a match that is worth its
// cost, and replaces it by a better one that covers it. That yields most of what a longer search
// would find.
//
// It works on a chunk of positions at a time, in two steps. The scan looks every position up and
// lists the candidates, where a match may begin; the choice goes through the list. Thus no step of
// the scan waits for the choice, and neither has branches that depend on the text, whose
// mispredictions took most of the time of one loop that did both. Lookups inside matches are in
// vain, but cost less than the branches that would avoid them. The AVX-512 code chooses from one
// chunk while it scans the next: the scan waits for the table, the choice for its own results.
const (
	// hashBytes is how many bytes are hashed. Five would find a little more, at distances where
	// a match hardly pays.
	hashBytes = 6
	// tableBits gives the table half as many entries as a usual page has positions. Twice as many
	// would save half a per cent of the bytes and take half a megabyte of the L2 cache.
	tableBits = 16

	// An entry has, from the top: the low bits of a position; a tag, some bits of the hash, which
	// excludes most positions that do not match without a look at the text; and the epoch.
	posBits   = 17
	epochBits = 5
	posShift  = 32 - posBits
	posMask   = 1<<posBits - 1
	tagMask   = 1<<posShift - 1<<epochBits
	// checkMask selects the bits that have to be equal: tag and epoch.
	checkMask = 1<<posShift - 1
	maxEpoch  = 1<<epochBits - 1

	hashPrime1 = 0x9E3779B1
	hashPrime2 = 0x85EBCA77

	// literalCost and sequenceCost are the approximate costs of a literal and of a sequence, in
	// eighths of a literal. A sequence costs the bits of its distance in addition.
	literalCost  = 8
	sequenceCost = 26

	// minParse is the shortest text that is searched for matches.
	minParse = 32
	// chunk is how many positions are scanned before candidates are chosen from.
	chunk = 1 << 11
	// candidateCapacity holds the candidates of a chunk and the 16 that assembly may write past
	// them.
	candidateCapacity = chunk + 16
)

// A candidate is the distance of a match from posShift on and, in the bits of rankMask, the
// position's rank in the chunk.
const rankMask = 1<<posShift - 1

// match is a range of text that occurs distance bytes earlier too.
type match struct {
	start, end, distance int32
}

// finder finds matches. The zero value is ready.
type finder struct {
	table      [1 << tableBits]uint32
	epoch      uint32 // of the current text, 1 to maxEpoch; entries of other epochs count as empty
	last       uint32 // distance<<posShift that the scan found at the position before, or 0
	candidates [candidateCapacity]uint32
	matches    []match
	choice     choice
	// scan and measures are used by assembly only.
	scan     scanState
	measures measures
}

// choice is the state of the choice among candidates. Positions and gains are in units of cost:
// literalCost for each byte.
type choice struct {
	last int // index of the last match, -1 before the first
	// The last match may still be replaced. Matches that end at or before prevEnd are final.
	prevEnd, lastStart, lastEnd, lastGain int
}

func load64(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[i : i+8]) }

// reset starts another text, in which no match refers to earlier texts.
func (f *finder) reset() {
	if f.epoch++; f.epoch > maxEpoch {
		clear(f.table[:])
		f.epoch = 1
	}
}

// parse finds the matches of text[from:], which may refer to all of text before them. text[:from]
// has been parsed before. The result is valid until the next call.
func (f *finder) parse(text []byte, from int) []match {
	if len(text)-from < minParse {
		return nil
	}
	// A match worth its cost has at least minMatch bytes. One more is scratch space of chooseAVX2,
	// and sequences.setFast reads up to sequenceSlack past the last.
	if n := (len(text)-from)/minMatch + 2 + sequenceSlack; n > len(f.matches) {
		f.matches = make([]match, n)
	}
	f.last = 0
	// lastStart is 0: no match starts there.
	f.choice = choice{last: -1, prevEnd: from * literalCost, lastEnd: from * literalCost}
	if f.parseFast(text, from) {
		return f.matches[:f.choice.last+1]
	}
	for at := from; at <= len(text)-8; at += chunk {
		n := f.scanChunk(text, at, min(chunk, len(text)-7-at))
		f.choose(text, at, f.candidates[:n])
	}
	return f.matches[:f.choice.last+1]
}

// scanGeneric enters n positions, from at+rank on, into the table. It appends those whose entry
// looks equal to f.candidates, after the first found ones, and returns how many there are then. Of
// consecutive positions with the same distance it lists the first. It is the reference of scanAVX2
// and of the scan in scanChooseAVX512.
func (f *finder) scanGeneric(text []byte, at, rank, n, found int) int {
	last, epoch := f.last, f.epoch
	table, candidates := &f.table, &f.candidates
	for i := range n {
		w := load64(text, at+rank+i)
		h := uint32(w)*hashPrime1 + uint32(w>>32&(1<<(8*hashBytes-32)-1))*hashPrime2
		entry := &table[h>>(32-tableBits)]
		now := uint32(at+rank+i)<<posShift | h&tagMask | epoch
		distance := now - *entry
		*entry = now
		// Branches would mispredict here. The distance becomes 0 if the check bits differ. It is a
		// candidate unless it is 0 or the same as at the position before.
		distance &= uint32(int32(distance&checkMask-1) >> 31)
		candidates[found] = distance | uint32(rank+i)
		differs := distance ^ last
		found += int((distance | -distance) & (differs | -differs) >> 31)
		last = distance
	}
	f.last = last
	return found
}

// chooseOne considers the match at p of the distance given, and accepts it if it is worth its cost.
// It is the reference of chooseAVX2 and, together, of measureAVX512, scanChooseAVX512 and
// emitAVX512.
func (f *finder) chooseOne(text []byte, p, distance int) {
	c := &f.choice
	if p*literalCost < c.lastEnd && c.last >= 0 && int(f.matches[c.last].distance) == distance {
		return // within the last match, which may be long
	}
	end := (p + forward(text, p-distance, p)) * literalCost
	from := (p - backward(text, p-distance, p, c.prevEnd/literalCost)) * literalCost
	cost := sequenceCost + bits.Len(uint(distance))
	if from <= c.lastStart {
		// It covers the last match: only one of them can stay.
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

// forward returns how many bytes from a on equal those from b on. a is below b.
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

// backward returns how many bytes before a equal those before b, without going below limit from b.
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
