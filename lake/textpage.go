package lake

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"

	"github.com/urlake/urlake/lake/codec"
)

// Text columns are written as DELTA_BYTE_ARRAY (Apache Parquet, Encodings.md): the lengths of the prefixes that each value
// shares with the one before, the lengths of the suffixes, both as DELTA_BINARY_PACKED, and the suffixes one
// after the other. In sorted rows most of a path stands in the one before, so that the compressor gets
// half of the bytes, and a value that repeats costs some bits.

// Parquet's numbers of the encodings of values that parts have.
const (
	encodingPlain          = 0
	encodingDeltaByteArray = 7
)

// The shape of DELTA_BINARY_PACKED that everybody writes: blocks of four miniblocks of 32 values.
const (
	deltaBlock      = 128
	deltaMiniblocks = 4
	deltaMiniblock  = deltaBlock / deltaMiniblocks
)

// textPage collects the values of a text column's open page.
type textPage struct {
	prefixes, suffixes []int32
	bytes              []byte // suffixes
	plain              int    // size of the values as PLAIN
	last               []byte // the value before, also that of the page before
	low, high          []byte // bounds of the values up to the last descent
	descended          bool
}

// unknown says that add has to find out what two values have in common.
const unknown = -1

// add adds a value and reports whether it is UTF-8, where the one before was. Shared is the length of the longest prefix that it
// has in common with that, or unknown.
func (t *textPage) add(v []byte, shared int) (valid bool) {
	if shared == unknown {
		shared = commonPrefix(t.last, v)
	}
	prefix, same := shared, shared == len(v) && shared == len(t.last)
	switch {
	case len(t.prefixes) == 0:
		prefix = 0
		t.low = append(t.low[:0], v...)
	case shared < len(t.last) && (shared == len(v) || v[shared] < t.last[shared]):
		t.descend(v)
	}
	t.prefixes = append(t.prefixes, int32(prefix))
	t.suffixes = append(t.suffixes, int32(len(v)-prefix))
	t.bytes = append(t.bytes, v[prefix:]...)
	t.last = append(t.last[:shared], v[shared:]...)
	t.plain += 4 + len(v)
	// ASCII behind what is valid and does not end within a character.
	return same || isASCII(v[max(shared-1, 0):]) || utf8.Valid(v)
}

// isASCII reports whether all bytes of b are below 0x80.
func isASCII(b []byte) bool {
	for ; len(b) >= 8; b = b[8:] {
		if binary.LittleEndian.Uint64(b)&0x8080808080808080 != 0 {
			return false
		}
	}
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// descend notes the bounds where v is below the value before. Columns mostly ascend: so it is known
// where the largest and the smallest values may be.
func (t *textPage) descend(v []byte) {
	if !t.descended || bytes.Compare(t.last, t.high) > 0 {
		t.high = append(t.high[:0], t.last...)
	}
	if bytes.Compare(v, t.low) < 0 {
		t.low = append(t.low[:0], v...)
	}
	t.descended = true
}

// bounds are the smallest and the largest value, valid until the next page.
func (t *textPage) bounds() (low, high []byte) {
	if t.descended && bytes.Compare(t.high, t.last) > 0 {
		return t.low, t.high
	}
	return t.low, t.last
}

// appendLengths appends what stands before the suffixes.
func (t *textPage) appendLengths(dst []byte) []byte {
	return appendDeltaPacked(appendDeltaPacked(dst, t.prefixes), t.suffixes)
}

// reset starts the next page.
func (t *textPage) reset() {
	t.prefixes, t.suffixes, t.bytes, t.plain, t.descended = t.prefixes[:0], t.suffixes[:0], t.bytes[:0], 0, false
}

// appendDeltaPacked appends values as DELTA_BINARY_PACKED.
func appendDeltaPacked(dst []byte, values []int32) []byte {
	dst = binary.AppendUvarint(dst, deltaBlock)
	dst = binary.AppendUvarint(dst, deltaMiniblocks)
	dst = binary.AppendUvarint(dst, uint64(len(values)))
	if len(values) == 0 {
		return append(dst, 0)
	}
	last := values[0]
	dst = binary.AppendVarint(dst, int64(last))
	values = values[1:]
	for len(values) > 0 {
		// Differences wrap around, as the format wants it.
		var deltas [deltaBlock]int32
		n := min(len(values), deltaBlock)
		low := values[0] - last
		for i, v := range values[:n] {
			deltas[i] = v - last
			low = min(low, deltas[i])
			last = v
		}
		values = values[n:]
		dst = binary.AppendVarint(dst, int64(low))
		widths := len(dst)
		dst = append(dst, make([]byte, deltaMiniblocks)...)
		for m := 0; m*deltaMiniblock < n; m++ {
			var offsets [deltaMiniblock]uint32
			var all uint32
			for i, d := range deltas[m*deltaMiniblock : min(n, (m+1)*deltaMiniblock)] {
				offsets[i] = uint32(d - low)
				all |= offsets[i]
			}
			width := bits.Len32(all)
			dst[widths+m] = byte(width)
			dst = appendBits(dst, &offsets, width)
		}
	}
	return dst
}

// appendBits appends the low width bits of each value, the first in the lowest bits.
func appendBits(dst []byte, values *[deltaMiniblock]uint32, width int) []byte {
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

// readDeltaPacked appends n values to dst and returns the bytes behind them; false for anything that is not
// n values in the shape that appendDeltaPacked writes.
func readDeltaPacked(dst []int32, data []byte, n int) (values []int32, rest []byte, ok bool) {
	for _, want := range [...]uint64{deltaBlock, deltaMiniblocks, uint64(n)} {
		v, size := binary.Uvarint(data)
		if size <= 0 || v != want {
			return dst, nil, false
		}
		data = data[size:]
	}
	first, size := binary.Varint(data)
	if size <= 0 {
		return dst, nil, false
	}
	data = data[size:]
	if n == 0 {
		return dst, data, true
	}
	last := int32(first)
	dst = append(dst, last)
	for left := n - 1; left > 0; {
		low, size := binary.Varint(data)
		if size <= 0 || len(data)-size < deltaMiniblocks {
			return dst, nil, false
		}
		widths := data[size : size+deltaMiniblocks]
		data = data[size+deltaMiniblocks:]
		for m := 0; m < deltaMiniblocks && left > 0; m++ {
			width := int(widths[m])
			bytes := width * deltaMiniblock / 8
			if width > 32 || bytes > len(data) {
				return dst, nil, false
			}
			k := min(left, deltaMiniblock)
			left -= k
			if width == 0 {
				for range k {
					last += int32(low)
					dst = append(dst, last)
				}
				continue
			}
			var buf uint64
			have, at := 0, 0
			mask := uint64(1)<<width - 1
			for range k {
				if have < width {
					buf |= uint64(binary.LittleEndian.Uint32(data[at:])) << have
					have += 32
					at += 4
				}
				last += int32(low) + int32(uint32(buf&mask))
				buf >>= width
				have -= width
				dst = append(dst, last)
			}
			data = data[bytes:]
		}
	}
	return dst, data, true
}

// rawLengths is how many times longer than the lengths suffixes are that are compressed apart from them. Lengths of
// short suffixes are worth compressing: they repeat.
const rawLengths = 8

// appendTextFrame appends one zstd frame with the lengths and the suffixes of a page. Lengths are packed bits, which hardly compress and would
// spoil the statistics of the text: they are a block of their own that is not compressed (RFC 8878, 3.1.1.2), and the suffixes
// are compressed as if they stood alone. A block without sequences leaves a decoder's history of
// offsets as it is, and no match goes back beyond the suffixes.
func appendTextFrame(enc *zstd.Encoder, dst, lengths, suffixes []byte) []byte {
	if len(suffixes) < rawLengths*len(lengths) || len(lengths) > codec.MaxRawBlock {
		return enc.EncodeAll(slices.Concat(lengths, suffixes), dst)
	}
	from := len(dst)
	dst = codec.AppendRawBlock(codec.AppendZstdHeader(dst, len(lengths)+len(suffixes)), lengths, false)
	start := len(dst)
	dst = enc.EncodeAll(suffixes, dst)
	var h zstd.Header
	if err := h.Decode(dst[start:]); err != nil || !h.SingleSegment || h.HasCheckSum || h.DictionaryID != 0 {
		return enc.EncodeAll(slices.Concat(lengths, suffixes), dst[:from])
	}
	return append(dst[:start], dst[start+h.HeaderSize:]...)
}
