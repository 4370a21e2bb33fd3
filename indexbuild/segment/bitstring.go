package segment

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// bitString is a bit vector that also reads numbers of any width. Bits fill bytes from the lowest.
type bitString []byte

// At returns the width bits that start at bit off. They must be inside the string.
func (b bitString) At(off, width uint) uint64 {
	i, s := off>>3, off&7
	if uint(len(b)) >= i+9 {
		v := binary.LittleEndian.Uint64(b[i:]) >> s
		// A shift by 64, if s is 0, gives 0.
		v |= uint64(b[i+8]) << (64 - s)
		return v & lowMask(width)
	}
	var v uint64
	for got := uint(0); got < width; {
		v |= uint64(b[i]>>s) << got
		got += 8 - s
		i, s = i+1, 0
	}
	return v & lowMask(width)
}

// Word returns the 64 bits from bit 64*i on, with zeros past the end.
func (b bitString) Word(i int) uint64 {
	if len(b) >= i*8+8 {
		return binary.LittleEndian.Uint64(b[i*8:])
	}
	var v uint64
	for j, c := range b[i*8:] {
		v |= uint64(c) << (8 * j)
	}
	return v
}

// Words returns the number of words that hold the string.
func (b bitString) Words() int { return (len(b) + 7) / 8 }

// Has reports whether bit i is set. It must be inside the string.
func (b bitString) Has(i int) bool { return b[i>>3]>>(i&7)&1 != 0 }

// Rank returns the number of ones before bit i.
func (b bitString) Rank(i int) int {
	n := 0
	for w := range i >> 6 {
		n += bits.OnesCount64(b.Word(w))
	}
	if i&63 != 0 {
		n += bits.OnesCount64(b.Word(i>>6) & lowMask(uint(i&63)))
	}
	return n
}

// selector finds the ones or the zeros of a string by their numbers. It counts on from where the
// last search ended, so the numbers must not descend.
type selector struct {
	bits   bitString
	flip   uint64 // all ones to find zeros
	word   int    // where the search goes on
	before int    // how many are before that word
}

// Ones returns a Selector of the ones.
func (b bitString) Ones() selector { return selector{bits: b} }

// Zeros returns a Selector of the zeros. The bits after the string's end in its last word count as
// zeros too.
func (b bitString) Zeros() selector { return selector{bits: b, flip: math.MaxUint64} }

// Select returns the index of the bit with number k, from 0, or -1 if there are fewer.
func (s *selector) Select(k int) int {
	for ; s.word < s.bits.Words(); s.word++ {
		v := s.bits.Word(s.word) ^ s.flip
		n := bits.OnesCount64(v)
		if k-s.before < n {
			return s.word<<6 + selectInWord(v, k-s.before)
		}
		s.before += n
	}
	return -1
}

func selectInWord(v uint64, k int) int {
	for range k {
		v &= v - 1
	}
	return bits.TrailingZeros64(v)
}

// lowMask has the lowest width bits set.
func lowMask(width uint) uint64 { return 1<<width - 1 }

// bitBytes is how many bytes n numbers of width bits take.
func bitBytes(n int, width uint) int { return (n*int(width) + 7) / 8 }

// writer appends numbers of any width to a bit vector.
type writer struct {
	Out  []byte // what has been written; set it before the first number to append to it
	acc  uint64
	have uint
}

// Put appends the low width bits of v.
func (w *writer) Put(v uint64, width uint) {
	v &= lowMask(width)
	w.acc |= v << w.have
	if w.have+width < 64 {
		w.have += width
		return
	}
	w.Out = binary.LittleEndian.AppendUint64(w.Out, w.acc)
	// A shift by 64, if have is 0 and width 64, gives 0.
	w.acc = v >> (64 - w.have)
	w.have += width - 64
}

// Align pads the last byte with zeros and returns all bytes.
func (w *writer) Align() []byte {
	for ; w.have > 0; w.have -= min(8, w.have) {
		w.Out = append(w.Out, byte(w.acc))
		w.acc >>= 8
	}
	w.acc = 0
	return w.Out
}

// appendBits appends the low width bits of each value, from the start of a byte.
func appendBits(out []byte, values []uint64, width uint) []byte {
	if width == 0 {
		return out
	}
	if width > 56 {
		w := writer{Out: out}
		for _, v := range values {
			w.Put(v, width)
		}
		return w.Align()
	}
	// Each write depends on the one before, so up to four values are combined first. A write starts
	// with the less than eight bits left of the write before and ends in zeros.
	at := len(out)
	end := at + bitBytes(len(values), width)
	out = slices.Grow(out, end+8-at)[:end+8]
	mask := lowMask(width)
	acc, have := uint64(0), uint(0)
	put := func(v uint64, width uint) {
		acc |= v << (have & 7)
		binary.LittleEndian.PutUint64(out[at:], acc)
		have += width
		at += int(have >> 3)
		acc >>= have &^ 7 & 63
		have &= 7
	}
	one := width & 63
	for two, four := 2*one&63, 4*width; four <= 56 && len(values) >= 4; values = values[4:] {
		put(values[0]&mask|values[1]&mask<<one|(values[2]&mask|values[3]&mask<<one)<<two, four)
	}
	for two := 2 * width; two <= 56 && len(values) >= 2; values = values[2:] {
		put(values[0]&mask|values[1]&mask<<one, two)
	}
	for _, v := range values {
		put(v&mask, width)
	}
	return out[:end]
}
