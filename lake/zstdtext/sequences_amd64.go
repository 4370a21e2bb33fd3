package zstdtext

import "golang.org/x/sys/cpu"

// hasBMI2 says whether the machine has what encodeBMI2 needs.
var hasBMI2 = cpu.X86.HasBMI2

// encodeBMI2 is encodeSlowly of n sequences.
//
//go:noescape
func encodeBMI2(q *sequences, n int, buf *byte, b *sequenceBits)

// encodeAll writes the bits of all sequences, the last one first.
func (q *sequences) encodeAll(buf []byte, b *sequenceBits) {
	if hasBMI2 {
		encodeBMI2(q, len(q.codes), &buf[0], b)
	} else {
		q.encodeSlowly(buf, b)
	}
}

// lengthTables are the codes of the smaller lengths, of literals and of matches less minMatch, and how many bits stand beside each code.
type lengthTables struct {
	literals, literalBits [64]uint8
	matches               [128]uint8
	matchBits             [64]uint8
}

var lengths = func() (t lengthTables) {
	for i, c := range litCodes {
		t.literals[i] = uint8(c.codes)
		t.literalBits[c.codes&0x3f] = uint8(c.codes >> 24)
	}
	for i, c := range matchCodes {
		t.matches[i] = uint8(c.codes >> 8)
		t.matchBits[c.codes>>8&0x3f] = uint8(c.codes >> 24)
	}
	return t
}()

// codesAVX512 sets bits and codes of the sequences of n matches behind one that has an end and a distance. It reads and writes up to sequenceRoom more.
//
//go:noescape
func codesAVX512(matches *match, n, end int, distance uint32, lengths *lengthTables, bits *uint64, codes *uint32)

// copyAVX2 copies the literals before n matches, of which the first is behind anchor, up to a match that starts beyond the limit, and counts codes. It returns how many matches these
// are, how many literals and where the last match ends. It reads up to stride bytes from a start on, and writes that much behind the literals.
//
//go:noescape
func copyAVX2(q *sequences, codes *uint32, text *byte, matches *match, n, anchor, limit int, lits *byte) (i, at, end int)

// setMost sets the sequences of most matches, the first ones, if there is a fast way. It returns how many, their literals, and where the last one ends.
func (q *sequences) setMost(text []byte, from int, matches []match, last uint32) (i, at, end int) {
	n := len(matches)
	if !hasAVX512 || n == 0 || min(cap(matches), cap(q.bits), cap(q.codes)) < n+sequenceRoom {
		return 0, 0, from
	}
	codesAVX512(&matches[0], n, from, last, &lengths, &q.bits[:1][0], &q.codes[:1][0])
	return copyAVX2(q, &q.codes[:1][0], &text[0], &matches[0], n, from, len(text)-stride, &q.literals[:1][0])
}
