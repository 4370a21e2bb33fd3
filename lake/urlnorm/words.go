package urlnorm

import (
	"encoding/binary"
	"math/bits"
)

// Text is scanned as words of eight bytes, the first byte lowest. The functions below answer for
// each byte in its top bit; the other bits of an answer mean nothing. The top bits of the word have
// to be zero. No byte's answer depends on another byte: bytes below 0x80 are added to at most 0x80,
// which does not carry.

const (
	wordSize = 8
	ones     = 0x0101010101010101
	tops     = 0x80 * ones
)

// wordAt is s[i:i+8], with zeros for bytes past the end of s. s has eight bytes or more.
func wordAt(s []byte, i int) uint64 {
	if i+wordSize <= len(s) {
		return binary.LittleEndian.Uint64(s[i:])
	}
	return binary.LittleEndian.Uint64(s[len(s)-wordSize:]) >> uint(8*(i+wordSize-len(s)))
}

// within marks the bytes from first to last.
func within(w uint64, first, last byte) uint64 {
	return (w + uint64(0x80-first)*ones) &^ (w + uint64(0x80-last-1)*ones)
}

// other marks the bytes that are not c.
func other(w uint64, c byte) uint64 { return w ^ uint64(c)*ones + 0x7f*ones }

// firstByte is the index of the first byte whose top bit is set.
func firstByte(w uint64) int { return bits.TrailingZeros64(w) / 8 }

// topBits gathers the top bits of a word that has no other bits, the first byte's lowest.
func topBits(w uint64) uint64 { return w >> 7 * 0x0102040810204080 >> 56 }

// scanName reads letters, digits, hyphens and dots from s[start] on, 64 at most. It returns
// where they end, and the dots and hyphens among them as bits counted from start.
func scanName(s []byte, start int) (end int, dots, hyphens uint64) {
	for i := uint(0); i < 64; i += wordSize {
		w := wordAt(s, start+int(i))
		v := w &^ tops
		dot := ^other(v, '.')
		hyphen := ^other(v, '-')
		stop := (^(within(v, 'a', 'z') | within(v, '0', '9') | dot | hyphen) | w) & tops
		before := (stop - 1) &^ stop & tops // bytes before the first stop; all if there is none
		dots |= topBits(dot&before) << (i & 63)
		hyphens |= topBits(hyphen&before) << (i & 63)
		if stop != 0 {
			return start + int(i) + firstByte(stop), dots, hyphens
		}
	}
	return start + 64, dots, hyphens
}

// plain marks bytes that need no change in paths and queries: letters, digits, '_', and the plain
// ones from first to ';'. A few rare plain bytes are not marked.
func plain(w uint64, first byte) uint64 {
	return within(w|0x20*ones, 'a', 'z') | within(w, first, ';') | ^other(w, '_')
}

// scanPath returns the index of the first byte from s[start] on that may have to be changed in a
// path or end it, or len(s). A slash or a dot after a slash is such a byte. Some rare bytes stop it
// without need: the second of two that are each a slash or a dot, and some punctuation. s has eight
// bytes or more, and start is not 0.
func scanPath(s []byte, start int) int {
	pair := slashOrDot(uint64(s[start-1])) & 0x80
	for i := start; i < len(s); i += wordSize {
		if i+wordSize > len(s) {
			i, pair = len(s)-wordSize, 0 // some bytes are scanned twice
		}
		w := binary.LittleEndian.Uint64(s[i:])
		// Only the first stop counts. A byte from 0x80 on is one, and falsifies only later bits.
		pairs := slashOrDot(w) & tops
		stops := (pairs&(pairs<<8|pair) | ^plain(w, '&') | w) & tops
		if stops != 0 {
			return max(start, i+firstByte(stops))
		}
		pair = pairs >> 56
	}
	return len(s)
}

// slashOrDot marks '/' and '.', which differ in the lowest bit only.
func slashOrDot(w uint64) uint64 { return ^other(w|ones, '/') }

// scanQuery scans up to 64 bytes of a query from s[from] on. As bits counted from there it
// returns which of them end a parameter, the end of s included, which are '=', and which are
// special: they may end the query or have to be changed. A few bytes are called special without
// need.
func scanQuery(s []byte, from int) (ends, equals, special uint64) {
	n := min(len(s)-from, 64)
	for i := uint(0); int(i) < n; i += wordSize {
		w := wordAt(s, from+int(i))
		v := w &^ tops
		end, equal := ^other(v, '&')&^w&tops, ^other(v, '=')&^w&tops
		stops := (^plain(v, '\'') | w) & tops &^ (end | equal)
		ends |= topBits(end) << (i & 63)
		equals |= topBits(equal) << (i & 63)
		special |= topBits(stops) << (i & 63)
	}
	here := uint64(1)<<n - 1 // all ones if n is 64
	return ends&here | (here + 1), equals & here, special & here
}

// textStops marks the bytes of a word that may have to be escaped, are part of an escape, or are a
// backslash.
func textStops(w uint64) uint64 {
	v := w &^ tops
	return (other(v, '=')&^plain(v, '&') | w) & tops
}
