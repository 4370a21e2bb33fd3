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
	indexes := writer{Out: out}
	width := indexWidth(len(values))
	upper := values[:0] // is never ahead of the loop
	for i, v := range values {
		if v>>p.width != 0 {
			indexes.Put(uint64(i), width)
			upper = append(upper, v>>p.width)
		}
	}
	return appendBits(indexes.Align(), upper, p.upper)
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
		at := int(c.indexes.At(uint(i)*c.index, c.index))
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
		v = c.low.At(uint(i)*c.width, c.width)
	}
	if c.exceptions > 0 {
		lo, hi := 0, c.exceptions
		for lo < hi {
			mid := (lo + hi) / 2
			if int(c.indexes.At(uint(mid)*c.index, c.index)) < i {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		if lo < c.exceptions && int(c.indexes.At(uint(lo)*c.index, c.index)) == i {
			v |= c.uppers.At(uint(lo)*c.upper, c.upper) << c.width
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
			v = c.low.At(uint(i)*c.width, c.width)
		}
		out[i] = int64(c.base + v)
	}
	for e := range uint(c.exceptions) {
		out[c.indexes.At(e*c.index, c.index)] += int64(c.uppers.At(e*c.upper, c.upper) << c.width)
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
		k.stop = int(k.c.indexes.At(uint(k.next)*k.c.index, k.c.index))
	}
}

// read returns the next value.
func (k *cursor) read() int64 {
	c := k.c
	v := uint64(0)
	if c.width > 0 {
		v = c.low.At(uint(k.i)*c.width, c.width)
	}
	if k.i == k.stop {
		v |= c.uppers.At(uint(k.next)*c.upper, c.upper) << c.width
		k.next++
		k.load()
	}
	k.i++
	return int64(c.base + v)
}
