package zstdtext

import (
	"encoding/binary"
	"math/bits"
)

// The finder takes the nearest earlier place whose next hashBytes bytes are the same, if a table still knows it, and extends the match both ways. It
// takes what is worth its cost and gives it up again for a better one that covers it; that is most of what more searching would find.
const (
	// hashBytes: five would find a little more, at distances where it hardly pays.
	hashBytes = 6
	// tableBits: a page has some 2^17 positions, one an entry; the table, half a megabyte, stays in the second level cache. Half of it costs half a per cent of bytes and saves a tenth of the time.
	tableBits = 17

	// An entry has, from the top, the low bits of a position, the epoch, and some bits of the hash, so that what does
	// not match is mostly known without a look at the text.
	posBits   = 17
	epochBits = 5
	tagBits   = 32 - posBits - epochBits
	posMask   = 1<<posBits - 1
	tagMask   = 1<<tagBits - 1
	// checkMask are the bits that say whether an entry is of this text and hash.
	checkMask = 1<<(32-posBits) - 1
	maxEpoch  = 1<<epochBits - 1

	hashPrime = 0x9E3779B185EBCA87

	// What a literal and a sequence cost in bits, about; a sequence costs the bits of its distance in addition.
	literalCost  = 6
	sequenceCost = 14

	// resume is how far before the end of a match the search goes on.
	resume = 0

	// minParse is the shortest text that is searched.
	minParse = 32
)

// match is a range of text that stands there already, distance bytes before.
type match struct {
	start, end, distance int32
}

// finder finds matches. The zero value is ready.
type finder struct {
	table   [1 << tableBits]uint32
	epoch   uint32 // of the text at hand, 1 to maxEpoch; entries of others are as good as empty
	matches []match
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
	// A match that is worth it has at least minMatch bytes.
	if n := (len(text)-from)/minMatch + 1; n > len(f.matches) {
		f.matches = make([]match, n)
	}
	all := f.matches
	last := -1
	// The last match may still be replaced. What ends before prevEnd stays.
	prevEnd, lastStart, lastEnd, lastGain := from, from-1, from, 0
	for i := from; ; {
		p, entry := f.scan(text, i)
		if p < 0 {
			return all[:last+1]
		}
		i = p + 1
		distance := (p - int(entry>>(32-posBits))) & posMask
		if distance == 0 || distance > p {
			continue
		}
		c := p - distance
		end := p
		if p+16 <= len(text) {
			// Without a branch, as most end within these.
			x, y := load64(text, c)^load64(text, p), load64(text, c+8)^load64(text, p+8)
			n := bits.TrailingZeros64(x) >> 3
			n += bits.TrailingZeros64(y) >> 3 * (n >> 3)
			end += n
			if n == 16 {
				end += forward(text, c+16, p+16)
			}
		} else {
			end += forward(text, c, p)
		}
		start := p
		if c >= 8 {
			x := load64(text, c-8) ^ load64(text, p-8)
			start -= bits.LeadingZeros64(x) >> 3
			if x == 0 {
				start -= backward(text, c-8, p-8)
			}
		} else {
			start -= backward(text, c, p)
		}
		start = max(start, prevEnd)
		// All ones if it covers the last match's start, so that only one of both can stay; else it begins where that ends.
		replace := (start - lastStart - 1) >> 63
		start = max(start, lastEnd&^replace)
		gain := (end-start)*literalCost - bits.Len32(uint32(distance)) - sequenceCost
		if gain <= lastGain&replace {
			continue
		}
		last += 1 + replace
		all[last] = match{int32(start), int32(end), int32(distance)}
		prevEnd = prevEnd&replace | lastEnd&^replace
		lastStart, lastEnd, lastGain = start, end, gain
		// Positions within the match mostly stand in the table as of before; the first and the last are renewed.
		stop := len(text) - 9
		f.insertTwo(text, min(i, stop))
		i = max(i, min(end-resume, stop))
		f.insertTwo(text, i-2)
	}
}

// scan enters positions from i on into the table until one has an entry that looks the same, and returns both; p is
// -1 if there is none.
func (f *finder) scan(text []byte, i int) (p int, entry uint32) {
	const shift = 64 - 8*hashBytes
	table := &f.table
	for ; i <= len(text)-16; i += 8 {
		t := text[i : i+16]
		base := uint32(i)<<(32-posBits) | f.epoch<<tagBits

		h := binary.LittleEndian.Uint64(t) << shift * hashPrime
		at := &table[h>>(64-tableBits)]
		now := uint32(h>>32)&tagMask + base
		entry, *at = *at, now
		if (entry^now)&checkMask == 0 {
			return i, entry
		}

		h = binary.LittleEndian.Uint64(t[1:]) << shift * hashPrime
		at = &table[h>>(64-tableBits)]
		now = uint32(h>>32)&tagMask + base + 1<<(32-posBits)
		entry, *at = *at, now
		if (entry^now)&checkMask == 0 {
			return i + 1, entry
		}

		h = binary.LittleEndian.Uint64(t[2:]) << shift * hashPrime
		at = &table[h>>(64-tableBits)]
		now = uint32(h>>32)&tagMask + base + 2<<(32-posBits)
		entry, *at = *at, now
		if (entry^now)&checkMask == 0 {
			return i + 2, entry
		}

		h = binary.LittleEndian.Uint64(t[3:]) << shift * hashPrime
		at = &table[h>>(64-tableBits)]
		now = uint32(h>>32)&tagMask + base + 3<<(32-posBits)
		entry, *at = *at, now
		if (entry^now)&checkMask == 0 {
			return i + 3, entry
		}

		h = binary.LittleEndian.Uint64(t[4:]) << shift * hashPrime
		at = &table[h>>(64-tableBits)]
		now = uint32(h>>32)&tagMask + base + 4<<(32-posBits)
		entry, *at = *at, now
		if (entry^now)&checkMask == 0 {
			return i + 4, entry
		}

		h = binary.LittleEndian.Uint64(t[5:]) << shift * hashPrime
		at = &table[h>>(64-tableBits)]
		now = uint32(h>>32)&tagMask + base + 5<<(32-posBits)
		entry, *at = *at, now
		if (entry^now)&checkMask == 0 {
			return i + 5, entry
		}

		h = binary.LittleEndian.Uint64(t[6:]) << shift * hashPrime
		at = &table[h>>(64-tableBits)]
		now = uint32(h>>32)&tagMask + base + 6<<(32-posBits)
		entry, *at = *at, now
		if (entry^now)&checkMask == 0 {
			return i + 6, entry
		}

		h = binary.LittleEndian.Uint64(t[7:]) << shift * hashPrime
		at = &table[h>>(64-tableBits)]
		now = uint32(h>>32)&tagMask + base + 7<<(32-posBits)
		entry, *at = *at, now
		if (entry^now)&checkMask == 0 {
			return i + 7, entry
		}
	}
	for ; i <= len(text)-8; i++ {
		h := load64(text, i) << shift * hashPrime
		at := &table[h>>(64-tableBits)]
		now := uint32(h>>32)&tagMask | uint32(i)<<(32-posBits) | f.epoch<<tagBits
		entry, *at = *at, now
		if (entry^now)&checkMask == 0 {
			return i, entry
		}
	}
	return -1, 0
}

// insertTwo enters the positions i and i+1.
func (f *finder) insertTwo(text []byte, i int) {
	const shift = 64 - 8*hashBytes
	w := load64(text, i)
	base := uint32(i)<<(32-posBits) | f.epoch<<tagBits
	h := w << shift * hashPrime
	f.table[h>>(64-tableBits)] = uint32(h>>32)&tagMask + base
	h = w >> 8 << shift * hashPrime
	f.table[h>>(64-tableBits)] = uint32(h>>32)&tagMask + base + 1<<(32-posBits)
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

// backward is how many bytes before a and before b are equal.
func backward(text []byte, a, b int) int {
	n := 0
	for n < a && text[a-n-1] == text[b-n-1] {
		n++
	}
	return n
}
