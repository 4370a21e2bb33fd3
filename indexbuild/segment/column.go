package segment

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"github.com/urlake/urlake/lake/codec"
)

// A packed column holds n integers such that each can be read without the others: all take the same
// number of bits, and the few that need more have their upper bits in a list of exceptions
// ("patched frame of reference", Zukowski et al., "Super-Scalar RAM-CPU Cache Compression", ICDE
// 2006).
//
//	varint base | u8 width | uvarint exceptions | [u8 upper, if there are exceptions]
//	n × width bits of (value-base)
//	exceptions × bits.Len(n-1) bits: the index in the column, ascending
//	exceptions × upper bits: (value-base) >> width
//
// Differences are modulo 2^64. Bits fill bytes from the lowest, and each of the three lists starts
// on a byte.

// bitString is a bit vector that also reads numbers of any width.
type bitString []byte

// at returns the width bits that start at bit off. They must be inside the string.
func (b bitString) at(off, width uint) uint64 {
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

// word returns the 64 bits from bit 64*i on, with zeros past the end.
func (b bitString) word(i int) uint64 {
	if len(b) >= i*8+8 {
		return binary.LittleEndian.Uint64(b[i*8:])
	}
	var v uint64
	for j, c := range b[i*8:] {
		v |= uint64(c) << (8 * j)
	}
	return v
}

// words returns the number of words that hold the string.
func (b bitString) words() int { return (len(b) + 7) / 8 }

func (b bitString) has(i int) bool { return b[i>>3]>>(i&7)&1 != 0 }

// rank returns the number of ones before bit i.
func (b bitString) rank(i int) int {
	n := 0
	for w := range i >> 6 {
		n += bits.OnesCount64(b.word(w))
	}
	if i&63 != 0 {
		n += bits.OnesCount64(b.word(i>>6) & lowMask(uint(i&63)))
	}
	return n
}

// selectOne returns the index of the one with number k, from 0, or -1 if there are fewer ones.
func (b bitString) selectOne(k int) int {
	for w := range b.words() {
		v := b.word(w)
		if n := bits.OnesCount64(v); k >= n {
			k -= n
			continue
		}
		return w<<6 + selectInWord(v, k)
	}
	return -1
}

// selectZero returns the index of the zero with number k, from 0, among the first limit bits, or -1
// if there are fewer zeros.
func (b bitString) selectZero(k, limit int) int {
	for w := range b.words() {
		v := ^b.word(w)
		if left := limit - w<<6; left < 64 {
			if left <= 0 {
				return -1
			}
			v &= lowMask(uint(left))
		}
		if n := bits.OnesCount64(v); k >= n {
			k -= n
			continue
		}
		return w<<6 + selectInWord(v, k)
	}
	return -1
}

func selectInWord(v uint64, k int) int {
	for range k {
		v &= v - 1
	}
	return bits.TrailingZeros64(v)
}

func lowMask(width uint) uint64 { return 1<<width - 1 }

func bitBytes(n int, width uint) int { return (n*int(width) + 7) / 8 }

// bitWriter appends numbers of any width to a bit vector.
type bitWriter struct {
	out  []byte
	acc  uint64
	have uint
}

func (w *bitWriter) put(v uint64, width uint) {
	v &= lowMask(width)
	w.acc |= v << w.have
	if w.have+width < 64 {
		w.have += width
		return
	}
	w.out = binary.LittleEndian.AppendUint64(w.out, w.acc)
	// A shift by 64, if have is 0 and width 64, gives 0.
	w.acc = v >> (64 - w.have)
	w.have += width - 64
}

// align pads the last byte with zeros and returns all bytes.
func (w *bitWriter) align() []byte {
	for ; w.have > 0; w.have -= min(8, w.have) {
		w.out = append(w.out, byte(w.acc))
		w.acc >>= 8
	}
	w.acc = 0
	return w.out
}

// appendBits appends the low width bits of each value.
func appendBits(out []byte, values []uint64, width uint) []byte {
	if width == 0 {
		return out
	}
	if width > 56 {
		w := bitWriter{out: out}
		for _, v := range values {
			w.put(v, width)
		}
		return w.align()
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

// packing is how a column is packed.
type packing struct {
	width, upper uint
	exceptions   int
}

// choosePacking finds the packing in which values, which are differences to the base, are smallest.
func choosePacking(values []uint64) packing {
	entries := len(values)
	// Neighbours often have the same length. Two sets of counters halve the chains of increments.
	var count, odd [65]int
	for len(values) >= 2 {
		count[bits.Len64(values[0])]++
		odd[bits.Len64(values[1])]++
		values = values[2:]
	}
	for _, v := range values {
		count[bits.Len64(v)]++
	}
	for i, n := range odd {
		count[i] += n
	}
	longest := uint(64)
	for longest > 0 && count[longest] == 0 {
		longest--
	}
	best := packing{width: longest}
	bestSize := bitBytes(entries, longest)
	index := indexWidth(entries)
	above := 0
	for width := int(longest) - 1; width >= 0; width-- {
		above += count[width+1]
		upper := longest - uint(width)
		size := bitBytes(entries, uint(width)) + bitBytes(above, index) + bitBytes(above, upper) + 1
		if above > 127 {
			size++ // a second byte for the number of exceptions
		}
		if size < bestSize {
			best, bestSize = packing{uint(width), upper, above}, size
		}
	}
	return best
}

// indexWidth is how many bits the index of an exception takes in a column of n values.
func indexWidth(n int) uint { return uint(bits.Len(uint(max(n-1, 0)))) }

// appendColumn appends a packed column of base plus each of values. It overwrites values.
func appendColumn(out []byte, base int64, values []uint64) []byte {
	p := choosePacking(values)
	out = codec.AppendVarint(out, base)
	out = append(out, byte(p.width))
	out = codec.AppendUvarint(out, uint64(p.exceptions))
	if p.exceptions > 0 {
		out = append(out, byte(p.upper))
	}
	out = appendBits(out, values, p.width)
	if p.exceptions == 0 {
		return out
	}
	indexes := bitWriter{out: out}
	width := indexWidth(len(values))
	upper := values[:0] // is never ahead of the loop
	for i, v := range values {
		if v>>p.width != 0 {
			indexes.put(uint64(i), width)
			upper = append(upper, v>>p.width)
		}
	}
	return appendBits(indexes.align(), upper, p.upper)
}

// appendInts appends a column whose base is its smallest value. It returns the scratch memory too.
func appendInts(out []byte, values []int64, scratch []uint64) ([]byte, []uint64) {
	if len(values) == 0 {
		return appendColumn(out, 0, scratch[:0]), scratch
	}
	base, most := values[0], values[0]
	for _, v := range values {
		base, most = min(base, v), max(most, v)
	}
	if base == most {
		return appendEqual(out, base), scratch
	}
	scratch = slices.Grow(scratch[:0], len(values))[:len(values)]
	for i, v := range values {
		scratch[i] = uint64(v) - uint64(base)
	}
	return appendColumn(out, base, scratch), scratch
}

// appendEqual appends a column whose values are all base.
func appendEqual(out []byte, base int64) []byte {
	return append(codec.AppendVarint(out, base), 0, 0) // no width, no exceptions
}

// column reads a packed column, whose bytes belong to the block.
type column struct {
	base       uint64
	width      uint
	exceptions int
	index      uint // width of an exception's index
	upper      uint // width of its upper bits
	low        bitString
	indexes    bitString // of the exceptions
	uppers     bitString
}

// readColumn reads a column of n values from d. It checks the form, so that at reads only inside
// the column.
func readColumn(d *codec.Decoder, n int) column {
	c := column{base: uint64(d.Varint()), width: uint(d.U8())}
	if d.Err() == nil && c.width > 64 {
		d.Fail("a width of at most 64", c.width)
	}
	c.exceptions = int(d.Uint(uint64(n)))
	if c.exceptions > 0 {
		c.index = indexWidth(n)
		c.upper = uint(d.U8())
		if d.Err() == nil && (c.upper == 0 || c.upper+c.width > 64) {
			d.Fail(fmt.Sprintf("1 to %d upper bits", 64-c.width), c.upper)
		}
	}
	if d.Err() != nil {
		return column{}
	}
	c.low = d.Bytes(bitBytes(n, c.width))
	c.indexes = d.Bytes(bitBytes(c.exceptions, c.index))
	c.uppers = d.Bytes(bitBytes(c.exceptions, c.upper))
	if d.Err() != nil {
		return column{}
	}
	for i, last := 0, -1; i < c.exceptions; i++ {
		at := int(c.indexes.at(uint(i)*c.index, c.index))
		if at <= last || at >= n {
			d.Fail(fmt.Sprintf("exceptions that ascend to below %d", n), at)
			return column{}
		}
		last = at
	}
	return c
}

// at returns value i.
func (c *column) at(i int) int64 {
	v := uint64(0)
	if c.width > 0 {
		v = c.low.at(uint(i)*c.width, c.width)
	}
	if c.exceptions > 0 {
		lo, hi := 0, c.exceptions
		for lo < hi {
			mid := (lo + hi) / 2
			if int(c.indexes.at(uint(mid)*c.index, c.index)) < i {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		if lo < c.exceptions && int(c.indexes.at(uint(lo)*c.index, c.index)) == i {
			v |= c.uppers.at(uint(lo)*c.upper, c.upper) << c.width
		}
	}
	return int64(c.base + v)
}

// unpack returns all n values in the memory of out. It is several times as fast as a cursor.
func (c *column) unpack(out []int64, n int) []int64 {
	out = slices.Grow(out[:0], n)[:n]
	i := 0
	if c.width > 0 && c.width <= 56 && len(c.low) >= 8 {
		// This loop reads eight bytes at the byte where a value starts; they must be inside.
		mask := lowMask(c.width)
		fast := min(n, (8*(len(c.low)-8)+7)/int(c.width)+1)
		off := uint(0)
		for i = range out[:fast] {
			out[i] = int64(c.base + binary.LittleEndian.Uint64(c.low[off>>3:])>>(off&7)&mask)
			off += c.width
		}
		i = fast
	}
	for ; i < n; i++ {
		v := uint64(0)
		if c.width > 0 {
			v = c.low.at(uint(i)*c.width, c.width)
		}
		out[i] = int64(c.base + v)
	}
	for e := range uint(c.exceptions) {
		out[c.indexes.at(e*c.index, c.index)] += int64(c.uppers.at(e*c.upper, c.upper) << c.width)
	}
	return out
}

// cursor reads a column from its start, faster than at.
type cursor struct {
	c    *column
	i    int
	next int // exception
	stop int // its index, -1 after the last exception
}

func (c *column) cursor() cursor {
	k := cursor{c: c, stop: -1}
	k.load()
	return k
}

// load reads the index of the next exception.
func (k *cursor) load() {
	k.stop = -1
	if k.next < k.c.exceptions {
		k.stop = int(k.c.indexes.at(uint(k.next)*k.c.index, k.c.index))
	}
}

// read returns the next value.
func (k *cursor) read() int64 {
	c := k.c
	v := uint64(0)
	if c.width > 0 {
		v = c.low.at(uint(k.i)*c.width, c.width)
	}
	if k.i == k.stop {
		v |= c.uppers.at(uint(k.next)*c.upper, c.upper) << c.width
		k.next++
		k.load()
	}
	k.i++
	return int64(c.base + v)
}
