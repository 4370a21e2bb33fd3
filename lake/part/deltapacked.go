package part

import (
	"encoding/binary"
	"slices"
)

// readDeltaPacked decodes n values of DELTA_BINARY_PACKED, appends them to dst and returns the
// bytes behind them. ok is false unless data starts with exactly n values in blocks and miniblocks
// of the usual size.
func readDeltaPacked(dst []int32, data []byte, n int) (values []int32, rest []byte, ok bool) {
	for _, want := range [...]uint64{DeltaBlock, DeltaMiniblocks, uint64(n)} {
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
	dst = slices.Grow(dst, n)
	last := int32(first)
	dst = append(dst, last)
	for left := n - 1; left > 0; {
		low, size := binary.Varint(data)
		if size <= 0 || len(data)-size < DeltaMiniblocks {
			return dst, nil, false
		}
		widths := data[size : size+DeltaMiniblocks]
		data = data[size+DeltaMiniblocks:]
		for m := 0; m < DeltaMiniblocks && left > 0; m++ {
			width := int(widths[m])
			bytes := width * DeltaMiniblock / 8
			if width > 32 || bytes > len(data) {
				return dst, nil, false
			}
			k := min(left, DeltaMiniblock)
			left -= k
			out := dst[len(dst) : len(dst)+k]
			dst = dst[:len(dst)+k]
			switch width {
			case 0:
				for i := range out {
					last += int32(low)
					out[i] = last
				}
			case 8:
				for i, b := range data[:k] {
					last += int32(low) + int32(b)
					out[i] = last
				}
			default:
				var buf uint64
				have, at := 0, 0
				mask := uint64(1)<<width - 1
				for i := range out {
					if have < width {
						buf |= uint64(binary.LittleEndian.Uint32(data[at:])) << have
						have += 32
						at += 4
					}
					last += int32(low) + int32(uint32(buf&mask))
					buf >>= width
					have -= width
					out[i] = last
				}
			}
			data = data[bytes:]
		}
	}
	return dst, data, true
}

// readLengths decodes what precedes the suffixes of a page of n values as DELTA_BYTE_ARRAY: the
// lengths of the prefixes and suffixes, valid until the next page. rest starts with the suffixes.
func (d *pageDecoder) readLengths(values []byte, n int) (prefixes, suffixes []int32, rest []byte, ok bool) {
	lengths, rest, ok := readDeltaPacked(d.lengths[:0], values, n)
	if ok {
		lengths, rest, ok = readDeltaPacked(lengths, rest, n)
	}
	d.lengths = lengths
	if !ok {
		return nil, nil, nil, false
	}
	return lengths[:n], lengths[n:], rest, true
}
