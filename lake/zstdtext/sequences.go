package zstdtext

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// minMatch is the shortest match that zstd can express.
const minMatch = 3

// sequence is some literals and the match behind them, as it is written (RFC 8878, 3.1.1.3.2.1.1).
type sequence struct {
	offset uint32 // offset value: 1 for the last distance again, else the distance plus 3
	extra  uint32 // low bits of the lengths: those of the literals' and above them those of the match's
	// codes are those of literals, match and offset, a byte each from below, and how many bits extra has.
	codes uint32
}

func (s *sequence) ll() uint32        { return s.codes & 0x3f }
func (s *sequence) ml() uint32        { return s.codes >> 8 & 0x3f }
func (s *sequence) of() uint32        { return s.codes >> 16 & 0x3f }
func (s *sequence) extraBits() uint32 { return s.codes >> 24 }

// lengthCode is the code of a length and its low bits that stand beside that, as a sequence has both.
type lengthCode struct{ codes, extra uint32 }

// The codes of the smaller lengths, of literals and of matches less minMatch (RFC 8878, tables 16 and 17).
var (
	litCodes   [64]lengthCode
	matchCodes [128]lengthCode
)

func init() {
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
	fill(litCodes[:], litBits[:], 0)
	fill(matchCodes[:], matchBits[:], 8)
}

func litCode(n uint32) lengthCode {
	if n < uint32(len(litCodes)) {
		return litCodes[n]
	}
	w := uint32(bits.Len32(n)) - 1
	return lengthCode{w + 19 | w<<24, n & (1<<w - 1)}
}

func matchCode(n uint32) lengthCode {
	if n < uint32(len(matchCodes)) {
		return matchCodes[n]
	}
	w := uint32(bits.Len32(n)) - 1
	return lengthCode{(w+36)<<8 | w<<24, n & (1<<w - 1)}
}

// The distributions that need not be written (RFC 8878, 3.1.1.3.2.2), and their accuracies.
var (
	predefinedLits    = []int16{4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1}
	predefinedMatches = []int16{1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1}
	predefinedOffsets = []int16{1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1}
)

const (
	predefinedLitsLog    = 6
	predefinedMatchesLog = 6
	predefinedOffsetsLog = 5
)

// firstDistance is what counts as the last distance before the first sequence of a frame (RFC 8878, 3.1.1.5).
const firstDistance = 1

// codeTable is how one of the three kinds of codes is written.
type codeTable struct {
	counts [64]uint32
	fse    fseEncoder
}

// sequences writes matches.
type sequences struct {
	literals   []byte
	list       []sequence
	ll, of, ml codeTable
}

// reset forgets all, and makes room for some literals and sequences.
func (q *sequences) reset(literals, n int) {
	if literals > cap(q.literals) {
		q.literals = make([]byte, literals)
	}
	if n > cap(q.list) {
		q.list = make([]sequence, n+n/2)
	}
	q.literals, q.list = q.literals[:0], q.list[:0]
	q.ll.counts, q.of.counts, q.ml.counts = [64]uint32{}, [64]uint32{}, [64]uint32{}
}

// set takes the matches of text[from:] apart into sequences and literals. Last is the distance before them; it returns the last of theirs.
//
// Only a distance that is the last one is written as repeated: of words of a text the other two that a decoder remembers say nothing, so
// that they would cost more, all together, than they save.
func (q *sequences) set(text []byte, from int, matches []match, last uint32) uint32 {
	const stride = 32 // literals that are copied at once; few are more
	q.reset(len(text)-from+stride, len(matches))
	lits, list := q.literals[:cap(q.literals)], q.list[:len(matches)]
	at, anchor := 0, from
	for i := range matches {
		m := &matches[i]
		n := int(m.start) - anchor
		if n <= stride && anchor+stride <= len(text) {
			*(*[stride]byte)(lits[at : at+stride]) = *(*[stride]byte)(text[anchor : anchor+stride])
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
		litLength, matchLength := uint32(n), uint32(m.end-m.start)-minMatch
		var ll, ml lengthCode
		if litLength < uint32(len(litCodes)) && matchLength < uint32(len(matchCodes)) {
			ll, ml = litCodes[litLength], matchCodes[matchLength]
		} else {
			ll, ml = litCode(litLength), matchCode(matchLength)
		}
		of := uint32(bits.Len32(offset)-1) & 0x3f
		list[i] = sequence{offset, ll.extra | ml.extra<<(ll.codes>>24&31), ll.codes + ml.codes + of<<16}
		q.ll.counts[ll.codes&0x3f]++
		q.ml.counts[ml.codes>>8&0x3f]++
		q.of.counts[of]++
	}
	at += copy(lits[at:], text[anchor:])
	q.literals, q.list = lits[:at], list
	return last
}

// add adds a sequence.
func (q *sequences) add(literals, matched, offset uint32) {
	ll, ml := litCode(literals), matchCode(matched-minMatch)
	of := uint32(bits.Len32(offset)-1) & 0x3f
	q.list = append(q.list, sequence{offset, ll.extra | ml.extra<<(ll.codes>>24&31), ll.codes + ml.codes + of<<16})
	q.ll.counts[ll.codes&0x3f]++
	q.ml.counts[ml.codes>>8&0x3f]++
	q.of.counts[of]++
}

// The ways to write codes (RFC 8878, 3.1.1.3.2.1).
const (
	modePredefined = 0
	modeRLE        = 1
	modeFSE        = 2
)

// appendTable chooses how n codes are written, prepares for that and appends what a decoder needs to know.
func (t *codeTable) appendTable(dst []byte, n int, predefined []int16, predefinedLog uint) (_ []byte, mode int) {
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
	log := uint(min(maxFSELog, max(5, bits.Len(uint(n))-2, bits.Len(uint(distinct)))))
	normalize(norm[:], counts, uint32(n), log)
	from := len(dst)
	dst = appendNorm(dst, norm[:last+1], log)
	plain, ok := cost(counts, predefined, predefinedLog)
	fitted, _ := cost(counts, norm[:], log)
	if ok && plain <= fitted+uint32(len(dst)-from)*8*costUnit {
		t.fse.init(predefined, predefinedLog)
		return dst[:from], modePredefined
	}
	t.fse.init(norm[:last+1], log)
	return dst, modeFSE
}

// append appends the sequences section of a block (RFC 8878, 3.1.1.3.2).
func (q *sequences) append(dst []byte) []byte {
	n := len(q.list)
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
	dst, ll := q.ll.appendTable(dst, n, predefinedLits, predefinedLitsLog)
	dst, of := q.of.appendTable(dst, n, predefinedOffsets, predefinedOffsetsLog)
	dst, ml := q.ml.appendTable(dst, n, predefinedMatches, predefinedMatchesLog)
	dst[modes] = byte(ll<<6 | of<<4 | ml<<2)

	// A sequence takes at most 3*maxFSELog bits of states, 32 of lengths and 17 of the offset.
	dst = slices.Grow(dst, n*10+32)
	return dst[:len(dst)+q.encode(dst[len(dst):cap(dst)])]
}

// sequenceBits is how far the bits of sequences have been written.
type sequenceBits struct {
	ll, ml, of uint32 // states
	have       uint32 // bits in acc, less than eight after each sequence
	acc        uint64
	at         int // bytes written
}

// encode writes the bits of the sequences, the last one first, and returns their bytes.
func (q *sequences) encode(buf []byte) int {
	last := &q.list[len(q.list)-1]
	b := sequenceBits{ll: q.ll.fse.first(last.ll()), ml: q.ml.fse.first(last.ml()), of: q.of.fse.first(last.of())}
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

// encodeSlowly is encodeAll without assembly.
func (q *sequences) encodeSlowly(buf []byte, b *sequenceBits) {
	const stateMask = 1<<maxFSELog - 1
	acc, have, at := b.acc, b.have, b.at
	ll, ml, of := b.ll, b.ml, b.of
	for i := len(q.list) - 1; ; {
		s := &q.list[i]
		acc |= uint64(s.extra) << (have & 63)
		have += s.extraBits()
		if have > 32 { // rarely, as few lengths have extra bits
			binary.LittleEndian.PutUint64(buf[at:at+8], acc)
			at += int(have >> 3)
			acc >>= have &^ 7 & 63
			have &= 7
		}
		n := s.of()
		acc |= uint64(s.offset&(1<<(n&31)-1)) << (have & 63)
		have += n
		binary.LittleEndian.PutUint64(buf[at:at+8], acc)
		at += int(have >> 3)
		acc >>= have &^ 7 & 63
		have &= 7
		if i--; i < 0 {
			break
		}
		s = &q.list[i]

		t := q.of.fse.symbols[s.of()]
		n = (of + t.deltaBits) >> 16 & 31
		acc |= uint64(of&(1<<n-1)) << (have & 63)
		have += n
		of = uint32(q.of.fse.states[(of>>n+uint32(t.deltaFind))&stateMask])

		t = q.ml.fse.symbols[s.ml()]
		n = (ml + t.deltaBits) >> 16 & 31
		acc |= uint64(ml&(1<<n-1)) << (have & 63)
		have += n
		ml = uint32(q.ml.fse.states[(ml>>n+uint32(t.deltaFind))&stateMask])

		t = q.ll.fse.symbols[s.ll()]
		n = (ll + t.deltaBits) >> 16 & 31
		acc |= uint64(ll&(1<<n-1)) << (have & 63)
		have += n
		ll = uint32(q.ll.fse.states[(ll>>n+uint32(t.deltaFind))&stateMask])
	}
	*b = sequenceBits{ll, ml, of, have, acc, at}
}
