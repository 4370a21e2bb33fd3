package part

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// Lengths are DELTA_BINARY_PACKED. A page of at least byteLengths values stores their differences
// as whole bytes, less byteBase, so that the same difference is the same byte everywhere and an
// entropy coder can use that: tightly packed bits are a quarter larger than the entropy. Pages of
// few values are smaller when packed. So are blocks with differences that do not fit a byte: most
// differences would need two bytes, and the second ones spoil the statistics.
const (
	byteLengths = 256
	byteBase    = -128
)

// appendLengths appends lengths as DELTA_BINARY_PACKED.
func appendLengths(dst []byte, values []int32) []byte {
	if len(values) < byteLengths {
		return appendDeltaPacked(dst, values)
	}
	dst = appendDeltaHeader(dst, len(values), values[0])
	last := values[0]
	for values = values[1:]; len(values) > 0; {
		n := min(len(values), DeltaBlock)
		from := len(dst)
		var out []byte
		dst, out = appendByteBlock(dst, n)
		equal, fit := byteDiffs(out, last, values[:n])
		if equal {
			dst = appendEqualBlock(dst[:from])
		} else if !fit {
			dst = appendPackedBlock(dst[:from], last, values[:n])
		}
		last, values = values[n-1], values[n:]
	}
	return dst
}

// byteDiffs sets out[i] to the difference of values[i] from the previous value, less byteBase. last
// precedes values[0]. equal reports whether all values equal last, fit whether all differences fit
// a byte.
func byteDiffs(out []byte, last int32, values []int32) (equal, fit bool) {
	var all, any uint32
	out = out[:len(values)]
	for i, v := range values {
		d := v - last
		last = v
		out[i] = byte(d - byteBase)
		all |= uint32(d - byteBase)
		any |= uint32(d)
	}
	return any == 0, all <= 0xff
}

// appendDeltaHeader appends the header of n values, of which first is the first.
func appendDeltaHeader(dst []byte, n int, first int32) []byte {
	dst = binary.AppendUvarint(dst, DeltaBlock)
	dst = binary.AppendUvarint(dst, DeltaMiniblocks)
	dst = binary.AppendUvarint(dst, uint64(n))
	return binary.AppendVarint(dst, int64(first))
}

// equalMiniblocks is the content of a block whose differences are all 0, a byte each.
var equalMiniblocks = [DeltaBlock]byte(bytes.Repeat([]byte{-byteBase}, DeltaBlock))

// appendByteBlock appends a block of n differences of 0, a byte each. out is where they are in the
// block, for the caller to overwrite.
func appendByteBlock(dst []byte, n int) (_, out []byte) {
	dst = binary.AppendVarint(dst, byteBase)
	for m := range DeltaMiniblocks {
		if m*DeltaMiniblock < n {
			dst = append(dst, 8)
		} else {
			dst = append(dst, 0)
		}
	}
	at := len(dst)
	dst = append(dst, equalMiniblocks[:(n+DeltaMiniblock-1)&^(DeltaMiniblock-1)]...)
	return dst, dst[at:]
}

// appendEqualBlock appends a block whose differences are all 0, with a width of 0 bits.
func appendEqualBlock(dst []byte) []byte { return append(dst, 0, 0, 0, 0, 0) }

// appendPackedBlock appends a block of values in as few bits as possible. last precedes values[0].
// Differences wrap around, as the format prescribes.
func appendPackedBlock(dst []byte, last int32, values []int32) []byte {
	var deltas [DeltaBlock]int32
	low := values[0] - last
	for i, v := range values {
		deltas[i] = v - last
		low = min(low, deltas[i])
		last = v
	}
	dst = binary.AppendVarint(dst, int64(low))
	widths := len(dst)
	dst = append(dst, make([]byte, DeltaMiniblocks)...)
	for m := 0; m*DeltaMiniblock < len(values); m++ {
		var offsets [DeltaMiniblock]uint32
		var all uint32
		for i, d := range deltas[m*DeltaMiniblock : min(len(values), (m+1)*DeltaMiniblock)] {
			offsets[i] = uint32(d - low)
			all |= offsets[i]
		}
		width := bits.Len32(all)
		dst[widths+m] = byte(width)
		dst = appendBits(dst, &offsets, width)
	}
	return dst
}

// appendDeltaPacked appends values as DELTA_BINARY_PACKED in as few bits as possible.
func appendDeltaPacked(dst []byte, values []int32) []byte {
	if len(values) == 0 {
		return appendDeltaHeader(dst, 0, 0)
	}
	last := values[0]
	dst = appendDeltaHeader(dst, len(values), last)
	values = values[1:]
	for len(values) > 0 {
		n := min(len(values), DeltaBlock)
		dst = appendPackedBlock(dst, last, values[:n])
		last, values = values[n-1], values[n:]
	}
	return dst
}

// appendBits appends the low width bits of each value, the first value in the lowest bits.
func appendBits(dst []byte, values *[DeltaMiniblock]uint32, width int) []byte {
	if width == 0 {
		return dst
	}
	var buf uint64
	have := 0
	for _, v := range values {
		buf |= uint64(v) << have
		if have += width; have >= 32 {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(buf))
			buf >>= 32
			have -= 32
		}
	}
	return dst // 32 values of any width end at a multiple of 32 bits
}

// appendByteBlocks appends the blocks of differences that are one byte each.
func appendByteBlocks(dst, diffs []byte) []byte {
	for len(diffs) > 0 {
		n := min(len(diffs), DeltaBlock)
		if bytes.Equal(diffs[:n], equalMiniblocks[:n]) {
			dst = appendEqualBlock(dst)
		} else {
			var out []byte
			dst, out = appendByteBlock(dst, n)
			copy(out, diffs[:n])
		}
		diffs = diffs[n:]
	}
	return dst
}
