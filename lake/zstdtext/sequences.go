package zstdtext

import (
	"encoding/binary"
	mathbits "math/bits"
	"slices"
)

// minMatch is the shortest match that zstd can express.
const minMatch = 3

const (
	// copyWidth is how many literals are copied in one step. Few runs of literals are longer.
	copyWidth = 32
	// sequenceSlack is how many sequences or matches assembly may read or write past the last one.
	sequenceSlack = 15
	// maxUnflushedBits is the most extra bits of a sequence for which the accumulator is not
	// flushed before the states' bits: with those and seven bits left over they are at most 63, so
	// that a shift can remove them.
	maxUnflushedBits = 63 - 7 - 3*maxFSELog
)

// lengthCode is the code of a length and its extra bits, as sequences.codes and .bits have them.
type lengthCode struct{ codes, extra uint32 }

// Codes of the smaller lengths, of literals and of matches less minMatch (RFC 8878, tables 16 and
// 17).
var litCodes, matchCodes = lengthCodes()

func lengthCodes() (lits [64]lengthCode, matches [128]lengthCode) {
	litBits := [...]uint8{16: 1, 1, 1, 1, 2, 2, 3, 3, 4}
	matchBits := [...]uint8{32: 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5}
	fill := func(codes []lengthCode, width []uint8, shift int) {
		for c, w := range width {
			for i := range 1 << w {
				codes[0] = lengthCode{uint32(c)<<shift | uint32(w)<<24, uint32(i)}
				codes = codes[1:]
			}
		}
	}
	fill(lits[:], litBits[:], 0)
	fill(matches[:], matchBits[:], 8)
	return lits, matches
}

func litCode(n uint32) lengthCode {
	if n < uint32(len(litCodes)) {
		return litCodes[n]
	}
	w := uint32(mathbits.Len32(n)) - 1
	return lengthCode{w + 19 | w<<24, n & (1<<w - 1)}
}

func matchCode(n uint32) lengthCode {
	if n < uint32(len(matchCodes)) {
		return matchCodes[n]
	}
	w := uint32(mathbits.Len32(n)) - 1
	return lengthCode{(w+36)<<8 | w<<24, n & (1<<w - 1)}
}

// predefined is a distribution that the format defines, so that no block describes it (RFC 8878,
// 3.1.1.3.2.2).
type predefined struct {
	norm []int16
	fse  fseEncoder
}

func newPredefined(log uint, norm ...int16) *predefined {
	p := &predefined{norm: norm}
	p.fse.init(norm, log)
	return p
}

var (
	predefinedLits = newPredefined(6,
		4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1,
		2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1,
		-1, -1, -1, -1)
	predefinedMatches = newPredefined(6,
		1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1,
		1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
		1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1,
		-1, -1, -1, -1, -1)
	predefinedOffsets = newPredefined(5,
		1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1,
		1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1)
)

// firstDistance is the repeated distance at the start of a frame (RFC 8878, 3.1.1.5).
const firstDistance = 1

// codeTable is the table of one of the three kinds of codes.
type codeTable struct {
	counts [64]uint32
	fse    fseEncoder
}

// sequences encodes the sequences of a block.
type sequences struct {
	literals []byte
	// A sequence is some literals and the match after them (RFC 8878, 3.1.1.3.2.1.1). An element of
	// bits has its extra bits: from the lowest, those of the literals' length, of the match's
	// length and of the offset value, which is 1 to repeat the last distance, else the distance
	// plus 3. An element of codes has, from the lowest byte, the codes of literals, match and
	// offset, and the number of extra bits.
	bits       []uint64
	codes      []uint32
	ll, of, ml codeTable
}

// reset removes all sequences and makes room for so many literals and sequences.
func (q *sequences) reset(literals, n int) {
	if literals > cap(q.literals) {
		q.literals = make([]byte, literals)
	}
	if n+sequenceSlack > min(cap(q.bits), cap(q.codes)) {
		q.bits, q.codes = make([]uint64, n+n/2+sequenceSlack), make([]uint32, n+n/2+sequenceSlack)
	}
	q.literals, q.bits, q.codes = q.literals[:0], q.bits[:0], q.codes[:0]
	q.ll.counts, q.of.counts, q.ml.counts = [64]uint32{}, [64]uint32{}, [64]uint32{}
}

// set makes sequences and literals of the matches of text[from:]. last is the distance before them;
// the result is the last of theirs.
//
// Of the three distances that a decoder remembers only the last one is written as repeated. In text
// made of words the other two predict nothing, and would cost more in all than they save.
func (q *sequences) set(text []byte, from int, matches []match, last uint32) uint32 {
	q.reset(len(text)-from+copyWidth, len(matches))
	lits, bits, codes := q.literals[:cap(q.literals)], q.bits[:len(matches)], q.codes[:len(matches)]
	i, at, anchor := q.setFast(text, from, matches, last)
	if i > 0 {
		last = uint32(matches[i-1].distance)
	}
	for ; i < len(matches); i++ {
		m := &matches[i]
		n := int(m.start) - anchor
		if n <= copyWidth && anchor+copyWidth <= len(text) {
			*(*[copyWidth]byte)(lits[at : at+copyWidth]) = *(*[copyWidth]byte)(text[anchor : anchor+copyWidth])
		} else {
			copy(lits[at:], text[anchor:anchor+n])
		}
		at += n
		anchor = int(m.end)

		distance := uint32(m.distance)
		offset := distance + 3
		if distance == last && n > 0 {
			offset = 1
		}
		last = distance
		bits[i], codes[i] = q.sequence(uint32(n), uint32(m.end-m.start), offset)
	}
	at += copy(lits[at:], text[anchor:])
	q.literals, q.bits, q.codes = lits[:at], bits, codes
	return last
}

// sequence returns the bits and codes of a sequence, and counts the codes.
func (q *sequences) sequence(literals, matched, offset uint32) (bits uint64, codes uint32) {
	matched -= minMatch
	var ll, ml lengthCode
	if literals < uint32(len(litCodes)) && matched < uint32(len(matchCodes)) {
		ll, ml = litCodes[literals], matchCodes[matched]
	} else {
		ll, ml = litCode(literals), matchCode(matched)
	}
	of := uint32(mathbits.Len32(offset)-1) & 0x3f
	q.ll.counts[ll.codes&0x3f]++
	q.ml.counts[ml.codes>>8&0x3f]++
	q.of.counts[of]++
	codes = ll.codes + ml.codes
	bits = uint64(ll.extra) | uint64(ml.extra)<<(ll.codes>>24&63) | uint64(offset&^(1<<(of&31)))<<(codes>>24&63)
	return bits, codes + of<<16 + of<<24
}

// add appends a sequence.
func (q *sequences) add(literals, matched, offset uint32) {
	bits, codes := q.sequence(literals, matched, offset)
	q.bits, q.codes = append(q.bits, bits), append(q.codes, codes)
}

// Compression modes of codes (RFC 8878, 3.1.1.3.2.1).
const (
	modePredefined = 0
	modeRLE        = 1
	modeFSE        = 2
)

// appendTable chooses how n codes are written, builds the table for that, and appends its
// description.
func (t *codeTable) appendTable(dst []byte, n int, fixed *predefined) (_ []byte, mode int) {
	last, distinct := 0, 0
	for s, c := range t.counts {
		if c > 0 {
			last = s
			distinct++
		}
	}
	counts := t.counts[:last+1]
	if distinct == 1 {
		t.fse.initRLE(uint8(last))
		return append(dst, byte(last)), modeRLE
	}
	var norm [64]int16
	log := uint(min(maxFSELog, max(5, mathbits.Len(uint(n))-2, mathbits.Len(uint(distinct)))))
	normalize(norm[:], counts, uint32(n), log)
	from := len(dst)
	dst = appendNorm(dst, norm[:last+1], log)
	plain, ok := cost(counts, fixed.norm, fixed.fse.log)
	fitted, _ := cost(counts, norm[:], log)
	if ok && plain <= fitted+uint32(len(dst)-from)*8*costUnit {
		t.fse = fixed.fse
		return dst[:from], modePredefined
	}
	t.fse.init(norm[:last+1], log)
	return dst, modeFSE
}

// append appends the sequences section of a block (RFC 8878, 3.1.1.3.2).
func (q *sequences) append(dst []byte) []byte {
	n := len(q.codes)
	switch {
	case n < 128:
		dst = append(dst, byte(n))
	case n < 0x7f00:
		dst = append(dst, byte(n>>8)+128, byte(n))
	default:
		dst = append(dst, 255, byte(n-0x7f00), byte((n-0x7f00)>>8))
	}
	if n == 0 {
		return dst
	}
	modes := len(dst)
	dst = append(dst, 0)
	dst, ll := q.ll.appendTable(dst, n, predefinedLits)
	dst, of := q.of.appendTable(dst, n, predefinedOffsets)
	dst, ml := q.ml.appendTable(dst, n, predefinedMatches)
	dst[modes] = byte(ll<<6 | of<<4 | ml<<2)

	// A sequence takes at most 3*maxFSELog bits for its states, 32 for lengths and 17 for the
	// offset.
	dst = slices.Grow(dst, n*10+32)
	return dst[:len(dst)+q.encode(dst[len(dst):cap(dst)])]
}

// sequenceBits is the state of encoding: of the three tables and of the output.
type sequenceBits struct {
	ll, ml, of uint32 // states
	have       uint32 // number of bits in acc, less than eight after each sequence
	acc        uint64
	at         int // bytes written
}

// encode writes the bits of the sequences to buf, the last sequence first, and returns their size
// in bytes.
func (q *sequences) encode(buf []byte) int {
	last := q.codes[len(q.codes)-1]
	b := sequenceBits{
		ll: q.ll.fse.initialState(last),
		ml: q.ml.fse.initialState(last >> 8),
		of: q.of.fse.initialState(last >> 16),
	}
	q.encodeAll(buf, &b)
	for _, end := range [...]struct {
		bits uint32
		n    uint
	}{{b.ml, q.ml.fse.log}, {b.of, q.of.fse.log}, {b.ll, q.ll.fse.log}, {1, 1}} {
		b.acc |= uint64(end.bits&(1<<end.n-1)) << b.have
		b.have += uint32(end.n)
	}
	binary.LittleEndian.PutUint64(buf[b.at:], b.acc)
	return b.at + int(b.have+7)/8
}

// encodeGeneric is encodeAll without assembly, the reference of encodeBMI2.
func (q *sequences) encodeGeneric(buf []byte, b *sequenceBits) {
	const stateMask = 1<<maxFSELog - 1
	acc, have, at := b.acc, b.have, b.at
	ll, ml, of := b.ll, b.ml, b.of
	all := q.bits[:len(q.codes)]
	for i := len(all) - 1; ; {
		n := q.codes[i] >> 24
		acc |= all[i] << (have & 63)
		have += n
		if i--; i < 0 || n > maxUnflushedBits { // rare: few lengths have many bits
			binary.LittleEndian.PutUint64(buf[at:at+8], acc)
			at += int(have >> 3)
			acc >>= have &^ 7 & 63
			have &= 7
			if i < 0 {
				break
			}
		}
		s := q.codes[i]

		t := q.of.fse.symbols[s>>16&0x3f]
		n = (of + t.deltaBits) >> 16 & 31
		acc |= uint64(of&(1<<n-1)) << (have & 63)
		have += n
		of = uint32(q.of.fse.states[(of>>n+uint32(t.deltaFind))&stateMask])

		t = q.ml.fse.symbols[s>>8&0x3f]
		n = (ml + t.deltaBits) >> 16 & 31
		acc |= uint64(ml&(1<<n-1)) << (have & 63)
		have += n
		ml = uint32(q.ml.fse.states[(ml>>n+uint32(t.deltaFind))&stateMask])

		t = q.ll.fse.symbols[s&0x3f]
		n = (ll + t.deltaBits) >> 16 & 31
		acc |= uint64(ll&(1<<n-1)) << (have & 63)
		have += n
		ll = uint32(q.ll.fse.states[(ll>>n+uint32(t.deltaFind))&stateMask])

		binary.LittleEndian.PutUint64(buf[at:at+8], acc)
		at += int(have >> 3)
		acc >>= have &^ 7 & 63
		have &= 7
	}
	*b = sequenceBits{ll, ml, of, have, acc, at}
}
