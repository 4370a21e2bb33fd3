package zstdtext

import (
	"encoding/binary"
	mathbits "math/bits"
	"slices"
)

// minMatch is the shortest match that zstd can express.
const minMatch = 3

const (
	// stride is how many literals are copied at once; few are more.
	stride = 32
	// sequenceRoom is how many sequences assembly may write behind the last.
	sequenceRoom = 15
	// mostBits are beside the codes of most sequences: with seven left over and those of three states they are less than 64, which is more than a shift can take away.
	mostBits = 63 - 7 - 3*maxFSELog
)

// lengthCode is the code of a length and its low bits that stand beside that, as a sequence has both.
type lengthCode struct{ codes, extra uint32 }

// The codes of the smaller lengths, of literals and of matches less minMatch (RFC 8878, tables 16 and 17).
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

// predefined is a distribution that need not be written (RFC 8878, 3.1.1.3.2.2).
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
	predefinedLits    = newPredefined(6, 4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1)
	predefinedMatches = newPredefined(6, 1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1)
	predefinedOffsets = newPredefined(5, 1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1)
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
	literals []byte
	// A sequence is some literals and the match behind them, as it is written (RFC 8878, 3.1.1.3.2.1.1). Bits are the low bits that stand beside the
	// codes, those of the literals' length, of the match's and above them of the offset value, which is 1 for the last distance again, else the distance plus 3.
	// Codes are those of literals, match and offset, a byte each from below, and how many bits there are.
	bits       []uint64
	codes      []uint32
	ll, of, ml codeTable
}

// reset forgets all, and makes room for some literals and sequences.
func (q *sequences) reset(literals, n int) {
	if literals > cap(q.literals) {
		q.literals = make([]byte, literals)
	}
	if n+sequenceRoom > min(cap(q.bits), cap(q.codes)) {
		q.bits, q.codes = make([]uint64, n+n/2+sequenceRoom), make([]uint32, n+n/2+sequenceRoom)
	}
	q.literals, q.bits, q.codes = q.literals[:0], q.bits[:0], q.codes[:0]
	q.ll.counts, q.of.counts, q.ml.counts = [64]uint32{}, [64]uint32{}, [64]uint32{}
}

// set takes the matches of text[from:] apart into sequences and literals. Last is the distance before them; it returns the last of theirs.
//
// Only a distance that is the last one is written as repeated: of words of a text the other two that a decoder remembers say nothing, so
// that they would cost more, all together, than they save.
func (q *sequences) set(text []byte, from int, matches []match, last uint32) uint32 {
	q.reset(len(text)-from+stride, len(matches))
	lits, bits, codes := q.literals[:cap(q.literals)], q.bits[:len(matches)], q.codes[:len(matches)]
	i, at, anchor := q.setMost(text, from, matches, last)
	if i > 0 {
		last = uint32(matches[i-1].distance)
	}
	for ; i < len(matches); i++ {
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

// add adds a sequence.
func (q *sequences) add(literals, matched, offset uint32) {
	bits, codes := q.sequence(literals, matched, offset)
	q.bits, q.codes = append(q.bits, bits), append(q.codes, codes)
}

// The ways to write codes (RFC 8878, 3.1.1.3.2.1).
const (
	modePredefined = 0
	modeRLE        = 1
	modeFSE        = 2
)

// appendTable chooses how n codes are written, prepares for that and appends what a decoder needs to know.
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
	t.fse.initWhole(norm[:last+1], log)
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
	last := q.codes[len(q.codes)-1]
	b := sequenceBits{ll: q.ll.fse.first(last), ml: q.ml.fse.first(last >> 8), of: q.of.fse.first(last >> 16)}
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
	all := q.bits[:len(q.codes)]
	for i := len(all) - 1; ; {
		n := q.codes[i] >> 24
		acc |= all[i] << (have & 63)
		have += n
		if i--; i < 0 || n > mostBits { // rarely, as few lengths have many bits
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
