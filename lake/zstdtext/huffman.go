package zstdtext

import (
	"encoding/binary"
	"slices"
)

// maxCodeBits is the longest Huffman code that zstd allows (RFC 8878, 4.2.1).
const maxCodeBits = 11

// huffman makes the Huffman coded literals of a block.
type huffman struct {
	counts [4][256]uint32 // of each stream, so that the same literal in two of them does not wait
	total  [256]uint32
	// codes has a code's length in the low eight bits and the code above.
	codes   [256]uint32
	lengths [256]uint8
	order   []uint32 // of the symbols, by how many there are: that number and the symbol in the low eight bits
	orders  [2]orders
	nodes   [512]uint32
	parents [512]uint16
	fse     fseEncoder
	// The codes once more, for assembly, if split.
	splitCodes splitCodes
	split      bool
}

// splitCodes are the codes of all symbols, their lengths, low and high bytes apart.
type splitCodes [3][256]uint8

// count counts n literals in the streams that they will stand in and returns the largest one, how many there are, and whether they are too much
// alike in number for codes of different lengths to save anything.
func (h *huffman) count(lits []byte, streams int) (last, distinct int, even bool) {
	h.counts = [4][256]uint32{}
	size := (len(lits) + streams - 1) / streams
	c0, c1, c2, c3 := &h.counts[0], &h.counts[1], &h.counts[2], &h.counts[3]
	if streams == 4 {
		a, b, c, d := lits[:size], lits[size:2*size], lits[2*size:3*size], lits[3*size:]
		b, c = b[:len(a)], c[:len(a)]
		n := len(d)
		for i, v := range d {
			c0[a[i]]++
			c1[b[i]]++
			c2[c[i]]++
			c3[v]++
		}
		for i := n; i < size; i++ {
			c0[a[i]]++
			c1[b[i]]++
			c2[c[i]]++
		}
	} else {
		for _, v := range lits {
			c0[v]++
		}
	}
	squares := uint64(0)
	for s := range h.total {
		t := c0[s] + c1[s] + c2[s] + c3[s]
		h.total[s] = t
		squares += uint64(t) * uint64(t)
		if t > 0 {
			last = s
			distinct++
		}
	}
	// Of random bytes it is n*n/256 + n, about. The entropy is that much more than eight bits less its logarithm.
	n := uint64(len(lits))
	return last, distinct, squares*256 <= n*n+n*n/32+n*256*5/4
}

// build finds the codes of the symbols up to last, of which there are at least two.
func (h *huffman) build(last int) (longest int) {
	h.sort()
	order := h.order
	n := len(order)
	// Leaves 0 to n-1 and inner nodes n to 2n-2 both ascend.
	weight, parent := h.nodes[:2*n-1], h.parents[:2*n-1]
	for i, o := range order {
		weight[i] = o >> 8
	}
	leaf, inner := 0, n
	for next := n; next < 2*n-1; next++ {
		var sum uint32
		for range 2 {
			pick := inner
			if leaf < n && (inner == next || weight[leaf] <= weight[inner]) {
				pick = leaf
				leaf++
			} else {
				inner++
			}
			sum += weight[pick]
			parent[pick] = uint16(next)
		}
		weight[next] = sum
	}
	depth := weight // from the root down; a parent stands behind its children
	depth[2*n-2] = 0
	for i := 2*n - 3; i >= 0; i-- {
		depth[i] = depth[parent[i]] + 1
	}
	limit(depth[:n])
	longest = int(depth[0])

	var ranks [maxCodeBits + 1]uint32
	h.lengths = [256]uint8{}
	for i, o := range order {
		h.lengths[o&0xff] = uint8(depth[i])
		ranks[depth[i]]++
	}
	var first [maxCodeBits + 1]uint32
	code := uint32(0)
	for l := longest; l > 0; l-- {
		first[l] = code
		code = (code + ranks[l]) >> 1
	}
	for s, l := range h.lengths[:last+1] {
		h.codes[s] = 0
		if l > 0 {
			h.codes[s] = first[l]<<8 | uint32(l)
			first[l]++
		}
	}
	return longest
}

// orders has room for all symbols and for what assembly writes behind them.
type orders [256 + 16]uint32

// sortSlowly sets h.order without assembly.
func (h *huffman) sortSlowly() {
	order := h.orders[0][:0]
	for s, c := range h.total {
		if c > 0 {
			order = append(order, c<<8|uint32(s))
		}
	}
	slices.Sort(order)
	h.order = order
}

// limit shortens code lengths to maxCodeBits, and lengthens others until they are a complete code again. Lengths
// descend, those of the rarest symbols first, and do so afterwards.
func limit(lengths []uint32) {
	if lengths[0] <= maxCodeBits {
		return
	}
	// A code of l bits fills 1<<(maxCodeBits-l) of 1<<maxCodeBits places.
	over := -(1 << maxCodeBits)
	for i, l := range lengths {
		lengths[i] = min(l, maxCodeBits)
		over += 1 << (maxCodeBits - lengths[i])
	}
	next := 0
	for over > 0 {
		for lengths[next] == maxCodeBits {
			next++
		}
		lengths[next]++
		over -= 1 << (maxCodeBits - lengths[next])
	}
	// That may have been too much. As all shorter codes fill an even share, there are enough of the longest to fill the rest, one place each.
	for next < len(lengths) && lengths[next] == maxCodeBits {
		next++
	}
	for ; over < 0; over++ {
		next--
		lengths[next]--
	}
}

// appendTable appends the description of the codes (RFC 8878, 4.2.1); false if there is none.
func (h *huffman) appendTable(dst []byte, last, longest int) ([]byte, bool) {
	var weights [256]uint8
	var counts [16]uint32
	for s, l := range h.lengths[:last] {
		if l > 0 {
			weights[s] = uint8(longest) + 1 - l
		}
		counts[weights[s]]++
	}
	from := len(dst)
	top, most := 0, uint32(0)
	for w, c := range counts {
		if c > 0 {
			top = w
		}
		most = max(most, c)
	}
	if last > 2 && most > 1 && most < uint32(last) {
		const log = 6
		dst = append(dst, 0)
		var norm [16]int16
		normalize(norm[:], counts[:top+1], uint32(last), log)
		dst = appendNorm(dst, norm[:top+1], log)
		h.fse.initWhole(norm[:top+1], log)
		dst = h.fse.appendTwo(dst, weights[:last])
		if n := len(dst) - from - 1; n < 128 && (n < (last+1)/2 || last > 128) {
			dst[from] = byte(n)
			return dst, true
		}
		dst = dst[:from]
	}
	if last > 128 {
		return dst, false
	}
	dst = append(dst, byte(127+last))
	for s := 0; s < last; s += 2 {
		dst = append(dst, weights[s]<<4|weights[s+1])
	}
	return dst, true
}

// appendTwo appends symbols, at least two, of two states that take turns (RFC 8878, 4.2.1.2).
func (f *fseEncoder) appendTwo(dst []byte, symbols []uint8) []byte {
	n := len(symbols)
	from := len(dst)
	dst = slices.Grow(dst, n*maxFSELog/8+16)
	buf, at := dst[from:cap(dst)], 0
	var acc uint64
	var have uint
	now, other := f.first(uint32(symbols[n-1])), f.first(uint32(symbols[n-2]))
	for i := n - 3; i >= 0; i-- {
		s := f.symbols[symbols[i]&63]
		out := (now + s.deltaBits) >> 16 & 31
		acc |= uint64(now&(1<<out-1)) << (have & 63)
		have += uint(out)
		now, other = other, uint32(f.states[(now>>out+uint32(s.deltaFind))&(1<<maxFSELog-1)])
		if have > 64-3*maxFSELog-1 {
			binary.LittleEndian.PutUint64(buf[at:], acc)
			at += int(have >> 3)
			acc >>= have &^ 7 & 63
			have &= 7
		}
	}
	// The turn is that of the state that the decoder begins with second.
	for _, st := range [2]uint32{now, other} {
		acc |= uint64(st&(1<<f.log-1)) << have
		have += f.log
	}
	acc |= 1 << have
	binary.LittleEndian.PutUint64(buf[at:], acc)
	return dst[:from+at+int(have>>3)+1]
}

// size is what the literals take, in bytes, less what streams end with: up to two for each.
func (h *huffman) size(last int) int {
	n := uint32(0)
	for s, c := range h.total[:last+1] {
		n += c * (h.codes[s] & 0xff)
	}
	return int(n / 8)
}

// encode writes one stream to dst, which has eight bytes more than it takes, and returns its bytes.
func (h *huffman) encode(dst, lits []byte) int {
	codes := &h.codes
	lits, at, acc, have := h.encodeMost(dst, lits)
	for ; len(lits) >= 5; lits = lits[:len(lits)-5] {
		// At most 7 + 5*11 bits.
		five := lits[len(lits)-5:]
		a, b, c, d, e := codes[five[0]], codes[five[1]], codes[five[2]], codes[five[3]], codes[five[4]]
		v := uint64(a >> 8)
		v = v<<(b&63) | uint64(b>>8)
		v = v<<(c&63) | uint64(c>>8)
		v = v<<(d&63) | uint64(d>>8)
		v = v<<(e&63) | uint64(e>>8)
		acc |= v << (have & 63)
		have += uint((a + b + c + d + e) & 0xff)
		binary.LittleEndian.PutUint64(dst[at:at+8], acc)
		at += int(have >> 3)
		acc >>= have &^ 7 & 63
		have &= 7
	}
	for i := len(lits) - 1; i >= 0; i-- {
		c := codes[lits[i]]
		acc |= uint64(c>>8) << (have & 63)
		have += uint(c & 0xff)
	}
	acc |= 1 << have
	binary.LittleEndian.PutUint64(dst[at:at+8], acc)
	return at + int(have>>3) + 1
}

// append appends the literals section of a block (RFC 8878, 3.1.1.3.1).
func (h *huffman) append(dst, lits []byte) []byte {
	const (
		raw        = 0
		rle        = 1
		compressed = 2
		// minCompressed literals cost less with a table than without.
		minCompressed = 32
		// minFour literals are split into four streams, which decoders read at once and which cost six bytes.
		minFour = 512
	)
	n := len(lits)
	if n < minCompressed {
		return append(appendLiteralsHeader(dst, raw, n), lits...)
	}
	streams := 1
	if n >= minFour {
		streams = 4
	}
	last, distinct, even := h.count(lits, streams)
	if distinct == 1 {
		return append(appendLiteralsHeader(dst, rle, n), lits[0])
	}
	if even {
		return append(appendLiteralsHeader(dst, raw, n), lits...)
	}
	longest := h.build(last)
	size := h.size(last)
	if size >= n {
		return append(appendLiteralsHeader(dst, raw, n), lits...)
	}
	from := len(dst)
	format, width := 0, 10 // one stream, two sizes of ten bits
	switch {
	case n >= 1<<14:
		format, width = 3, 18
	case n >= 1<<10:
		format, width = 2, 14
	case streams == 4:
		format = 1
	}
	head := (4 + 2*width + 7) / 8
	dst, ok := h.appendTable(append(dst, make([]byte, head)[:]...), last, longest)
	if !ok || len(dst)-from-head+size >= n {
		return append(appendLiteralsHeader(dst[:from], raw, n), lits...)
	}
	sizes := len(dst) // of the streams but the last
	if streams == 4 {
		dst = append(dst, 0, 0, 0, 0, 0, 0)
	}
	dst = slices.Grow(dst, size+2*streams+8)
	part := (n + streams - 1) / streams
	h.splitUp(n)
	for i := range streams {
		at := len(dst)
		dst = dst[:at+h.encode(dst[at:cap(dst)], lits[min(n, i*part):min(n, (i+1)*part)])]
		if i < 3 && streams == 4 {
			binary.LittleEndian.PutUint16(dst[sizes+2*i:], uint16(len(dst)-at))
		}
	}
	total := len(dst) - from - head
	if total >= n {
		return append(appendLiteralsHeader(dst[:from], raw, n), lits...)
	}
	v := uint64(compressed) | uint64(format)<<2 | uint64(n)<<4 | uint64(total)<<(4+width)
	for i := range head {
		dst[from+i] = byte(v >> (8 * i))
	}
	return dst
}

// appendLiteralsHeader appends the header of literals that are not compressed.
func appendLiteralsHeader(dst []byte, kind, n int) []byte {
	switch {
	case n < 1<<5:
		return append(dst, byte(kind|n<<3))
	case n < 1<<12:
		return append(dst, byte(kind|1<<2|n<<4), byte(n>>4))
	}
	return append(dst, byte(kind|3<<2|n<<4), byte(n>>4), byte(n>>12))
}
