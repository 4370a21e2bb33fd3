package zstdtext

import "golang.org/x/sys/cpu"

// hasBMI2 gates encodeBMI2.
var hasBMI2 = cpu.X86.HasBMI2

// encodeBMI2 is encodeGeneric for n sequences.
//
// It reads bits, codes and tables of q. Codes are below 64 and states below 1<<maxFSELog, so that
// they are within the tables. It writes eight bytes at a time to buf, up to seven past the encoded
// ones; append reserves ten bytes a sequence and 32 more, and a sequence takes less.
//
// It needs BMI2 (hasBMI2). FuzzFrames and TestAssemblyEncodesSequences compare it with
// encodeGeneric.
//
//go:noescape
func encodeBMI2(q *sequences, n int, buf *byte, b *sequenceBits)

// encodeAll writes the bits of all sequences, the last one first.
func (q *sequences) encodeAll(buf []byte, b *sequenceBits) {
	if hasBMI2 {
		encodeBMI2(q, len(q.codes), &buf[0], b)
	} else {
		q.encodeGeneric(buf, b)
	}
}

// lengthTables has the codes of the smaller lengths, of literals and of matches less minMatch, and
// the number of extra bits of each code.
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

// codesAVX512 sets bits and codes of the sequences of n matches, as sequence does. The match before
// the first ends at end and has the distance given.
//
// It works on 16 matches at a time, so it reads and writes up to sequenceSlack elements past the
// n-th of matches, bits and codes; setFast checks their capacities. Indexes into lengths are masked
// by the instructions.
//
// It needs the features of hasAVX512. FuzzFrames and TestAssemblySetsSequences compare it with
// sequence.
//
//go:noescape
func codesAVX512(matches *match, n, end int, distance uint32, lengths *lengthTables, bits *uint64, codes *uint32)

// copyAVX2 copies the literals before each of n matches to lits and counts the codes in q, as the
// loop of set and sequence do. The literals of the first match begin at anchor. It stops at a match
// that begins above limit. It returns the number of matches done, of literals copied, and where the
// last match ends.
//
// It reads whole steps of copyWidth bytes, up to copyWidth past the start of a match: limit is
// len(text) - copyWidth. It writes up to copyWidth bytes past the literals, for which set reserves
// room.
//
// It needs AVX2, and runs where hasAVX512 is set, on codes that codesAVX512 has set. FuzzFrames and
// TestAssemblySetsSequences compare it with set.
//
//go:noescape
func copyAVX2(q *sequences, codes *uint32, text *byte, matches *match, n, anchor, limit int,
	lits *byte) (i, at, end int)

// setFast sets the sequences of the first matches, usually nearly all, if there is assembly for
// them. It returns their number, the number of their literals, and where the last one ends.
func (q *sequences) setFast(text []byte, from int, matches []match, last uint32) (i, at, end int) {
	n := len(matches)
	if !hasAVX512 || n == 0 || min(cap(matches), cap(q.bits), cap(q.codes)) < n+sequenceSlack {
		return 0, 0, from
	}
	codesAVX512(&matches[0], n, from, last, &lengths, &q.bits[:1][0], &q.codes[:1][0])
	return copyAVX2(q, &q.codes[:1][0], &text[0], &matches[0], n, from, len(text)-copyWidth, &q.literals[:1][0])
}
