package urlnorm

import (
	"encoding/binary"
	"math/bits"
)

// Text is scanned eight bytes at a time: as a word, the first byte lowest. The functions below answer
// for each byte in its top bit, where the word's own top bits must be zero; what the other bits
// of an answer are means nothing. No byte's answer depends on another's: bytes below 0x80 are
// added to at most 0x80, which carries nothing over.

const (
	wordSize = 8
	ones     = 0x0101010101010101
	tops     = 0x80 * ones
)

// wordAt is s[i:i+8], with zeros for what is beyond the end of s. s has eight bytes or more.
func wordAt(s []byte, i int) uint64 {
	if i+wordSize <= len(s) {
		return binary.LittleEndian.Uint64(s[i:])
	}
	return binary.LittleEndian.Uint64(s[len(s)-wordSize:]) >> uint(8*(i+wordSize-len(s)))
}

// within says which bytes are first to last.
func within(w uint64, first, last byte) uint64 {
	return (w + uint64(0x80-first)*ones) &^ (w + uint64(0x80-last-1)*ones)
}

// other says which bytes are not c.
func other(w uint64, c byte) uint64 { return w ^ uint64(c)*ones + 0x7f*ones }

// firstByte is the place of the first byte whose top bit is set.
func firstByte(w uint64) int { return bits.TrailingZeros64(w) / 8 }

// topBits gathers the top bits of a word that has no others, the first byte's lowest.
func topBits(w uint64) uint64 { return w >> 7 * 0x0102040810204080 >> 56 }

// scanNameWords reads the letters, digits, hyphens and dots from s[start] on, and returns where they end and which of them, counted
// from start, are dots and hyphens. It reads no more than 64 of them.
func scanNameWords(s []byte, start int) (end int, dots, hyphens uint64) {
	for i := uint(0); i < 64; i += wordSize {
		w := wordAt(s, start+int(i))
		v := w &^ tops
		dot := ^other(v, '.')
		hyphen := ^other(v, '-')
		stop := (^(within(v, 'a', 'z') | within(v, '0', '9') | dot | hyphen) | w) & tops
		before := (stop - 1) &^ stop & tops // bytes before the first stop, all where there is none
		dots |= topBits(dot&before) << (i & 63)
		hyphens |= topBits(hyphen&before) << (i & 63)
		if stop != 0 {
			return start + int(i) + firstByte(stop), dots, hyphens
		}
	}
	return start + 64, dots, hyphens
}

// plain says which bytes are certainly plain in paths and queries: letters, digits, '_', and what else there is from
// first to ';'. There are a few more, which are rare.
func plain(w uint64, first byte) uint64 {
	return within(w|0x20*ones, 'a', 'z') | within(w, first, ';') | ^other(w, '_')
}

// scanPathWords is scanPath, but that it also stops at some other bytes that are rare: two of which each is a slash or a dot,
// the second of them, and some punctuation.
func scanPathWords(s []byte, start int) int {
	pair := slashOrDot(uint64(s[start-1])) & 0x80
	for i := start; i < len(s); i += wordSize {
		if i+wordSize > len(s) {
			i, pair = len(s)-wordSize, 0 // the bytes before are looked at again
		}
		w := binary.LittleEndian.Uint64(s[i:])
		// Only the first stop counts, and what is wrong because of a byte from 0x80 on stands behind that.
		pairs := slashOrDot(w) & tops
		stops := (pairs&(pairs<<8|pair) | ^plain(w, '&') | w) & tops
		if stops != 0 {
			return max(start, i+firstByte(stops))
		}
		pair = pairs >> 56
	}
	return len(s)
}

// slashOrDot says which bytes are '/' or '.', which is '/' with another lowest bit.
func slashOrDot(w uint64) uint64 { return ^other(w|ones, '/') }

// scanQueryWords looks at up to 64 bytes of a query from s[from] on. It says which of them are '=', which end a parameter, the end of s among them, and
// which may end the query or have to be changed. There are a few more of these than need be.
func scanQueryWords(s []byte, from int) (ends, equals, odd uint64) {
	n := min(len(s)-from, 64)
	for i := uint(0); int(i) < n; i += wordSize {
		w := wordAt(s, from+int(i))
		v := w &^ tops
		end, equal := ^other(v, '&')&^w&tops, ^other(v, '=')&^w&tops
		stops := (^plain(v, '\'') | w) & tops &^ (end | equal)
		ends |= topBits(end) << (i & 63)
		equals |= topBits(equal) << (i & 63)
		odd |= topBits(stops) << (i & 63)
	}
	here := uint64(1)<<n - 1 // all where n is 64
	return ends&here | (here + 1), equals & here, odd & here
}

// textStops are the bytes of a word that may be escaped, part of an escape, or a backslash.
func textStops(w uint64) uint64 {
	v := w &^ tops
	return (other(v, '=')&^plain(v, '&') | w) & tops
}
