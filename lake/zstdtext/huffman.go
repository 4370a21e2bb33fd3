package zstdtext

import (
	"encoding/binary"
	"slices"
)

// maxCodeBits is the longest Huffman code that zstd allows (RFC 8878, 4.2.1).
const maxCodeBits = 11

// huffman encodes the literals of a block.
type huffman struct {
	counts [4][256]uint32 // by stream: increments of one literal in two streams do not depend on each other
	total  [256]uint32
	// codes[s] is the code of symbol s, with its length in the low eight bits.
	codes   [256]uint32
	lengths [256]uint8
	order   []uint32 // the symbols by ascending count: count<<8 | symbol
	nodes   [512]uint32
	parents [512]uint16
	fse     fseEncoder
}

// count counts literals by stream. It returns the largest symbol, the number of distinct ones, and
// whether the counts are so even that codes of different lengths would save nothing.
func (h *huffman) count(lits []byte, streams int) (last, distinct int, flat bool) {
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
	// The entropy of a literal is about 8 - log2(squares / (n*n/256)) bits. For n random bytes,
	// squares is about n*n/256 + n.
	n := uint64(len(lits))
	return last, distinct, squares*256 <= n*n+n*n/32+n*256*5/4
}

// build computes the codes of the symbols up to last, of which at least two occur.
func (h *huffman) build(last int) (longest int) {
	h.sort()
	order := h.order
	n := len(order)
	// Leaves 0 to n-1 and inner nodes n to 2n-2 are each sorted by weight.
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
	depth := weight // from the root down; a parent has a higher index than its children
	depth[2*n-2] = 0
	for i := 2*n - 3; i >= 0; i-- {
		depth[i] = depth[parent[i]] + 1
	}
	limitLengths(depth[:n])
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

// sort sets h.order.
func (h *huffman) sort() {
	order := h.order[:0]
	for s, c := range h.total {
		if c > 0 {
			order = append(order, c<<8|uint32(s))
		}
	}
	slices.Sort(order)
	h.order = order
}

// limitLengths shortens code lengths to maxCodeBits and then shortens others until the code is
// complete again. Lengths are in descending order, those of the rarest symbols first, and stay so.
func limitLengths(lengths []uint32) {
	if lengths[0] <= maxCodeBits {
		return
	}
	// A code of l bits fills 1<<(maxCodeBits-l) of 1<<maxCodeBits leaves.
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
	// This may overshoot. All shorter codes fill an even number of leaves, so there are enough of
	// the longest codes to fill the rest, one leaf each.
	for next < len(lengths) && lengths[next] == maxCodeBits {
		next++
	}
	for ; over < 0; over++ {
		next--
		lengths[next]--
	}
}

// appendTable appends the description of the codes (RFC 8878, 4.2.1). It returns false if they have
// none.
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
		h.fse.init(norm[:top+1], log)
		dst = h.fse.appendInterleaved(dst, weights[:last])
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

// appendInterleaved appends symbols, at least two, encoded with two states that alternate (RFC
// 8878, 4.2.1.2).
func (f *fseEncoder) appendInterleaved(dst []byte, symbols []uint8) []byte {
	n := len(symbols)
	from := len(dst)
	dst = slices.Grow(dst, n*maxFSELog/8+16)
	buf, at := dst[from:cap(dst)], 0
	var acc uint64
	var have uint
	now, other := f.initialState(uint32(symbols[n-1])), f.initialState(uint32(symbols[n-2]))
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
	// A decoder reads the bits backwards, so the state whose turn it is, written first, is its
	// second.
	for _, st := range [2]uint32{now, other} {
		acc |= uint64(st&(1<<f.log-1)) << have
		have += f.log
	}
	acc |= 1 << have
	binary.LittleEndian.PutUint64(buf[at:], acc)
	return dst[:from+at+int(have>>3)+1]
}

// size is the size of the encoded literals in bytes, without the padding at the end of each stream,
// at most two bytes.
func (h *huffman) size(last int) int {
	n := uint32(0)
	for s, c := range h.total[:last+1] {
		n += c * (h.codes[s] & 0xff)
	}
	return int(n / 8)
}

// encode writes one stream to dst, which has eight bytes more than the stream takes, and returns
// the stream's size.
func (h *huffman) encode(dst, lits []byte) int {
	codes := &h.codes
	var acc uint64
	var have uint
	at := 0
	for ; len(lits) >= 5; lits = lits[:len(lits)-5] {
		// At most 7 bits left over and 5*11 new ones.
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
		// Fewer than minCompressed literals are cheaper without a table.
		minCompressed = 32
		// From minFour literals on there are four streams: six bytes more, but decoders read them
		// in parallel.
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
	last, distinct, flat := h.count(lits, streams)
	if distinct == 1 {
		return append(appendLiteralsHeader(dst, rle, n), lits[0])
	}
	if flat {
		return append(appendLiteralsHeader(dst, raw, n), lits...)
	}
	longest := h.build(last)
	size := h.size(last)
	if size >= n {
		return append(appendLiteralsHeader(dst, raw, n), lits...)
	}
	from := len(dst)
	format, width := 0, 10 // one stream; width is the bits of each of the two sizes
	switch {
	case n >= 1<<14:
		format, width = 3, 18
	case n >= 1<<10:
		format, width = 2, 14
	case streams == 4:
		format = 1
	}
	header := (4 + 2*width + 7) / 8
	dst, ok := h.appendTable(append(dst, make([]byte, header)...), last, longest)
	if !ok || len(dst)-from-header+size >= n {
		return append(appendLiteralsHeader(dst[:from], raw, n), lits...)
	}
	sizes := len(dst) // offset of the sizes of the streams but the last
	if streams == 4 {
		dst = append(dst, 0, 0, 0, 0, 0, 0)
	}
	dst = slices.Grow(dst, size+2*streams+8)
	part := (n + streams - 1) / streams
	for i := range streams {
		at := len(dst)
		dst = dst[:at+h.encode(dst[at:cap(dst)], lits[min(n, i*part):min(n, (i+1)*part)])]
		if i < 3 && streams == 4 {
			binary.LittleEndian.PutUint16(dst[sizes+2*i:], uint16(len(dst)-at))
		}
	}
	total := len(dst) - from - header
	if total >= n {
		return append(appendLiteralsHeader(dst[:from], raw, n), lits...)
	}
	v := uint64(compressed) | uint64(format)<<2 | uint64(n)<<4 | uint64(total)<<(4+width)
	for i := range header {
		dst[from+i] = byte(v >> (8 * i))
	}
	return dst
}

// appendLiteralsHeader appends the header of n literals that are raw or RLE.
func appendLiteralsHeader(dst []byte, kind, n int) []byte {
	switch {
	case n < 1<<5:
		return append(dst, byte(kind|n<<3))
	case n < 1<<12:
		return append(dst, byte(kind|1<<2|n<<4), byte(n>>4))
	}
	return append(dst, byte(kind|3<<2|n<<4), byte(n>>4), byte(n>>12))
}
