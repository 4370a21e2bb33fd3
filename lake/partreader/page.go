package partreader

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/row"
)

// pageDecoder decodes one page at a time.
type PageDecoder struct {
	zstd    *zstd.Decoder
	raw     []byte // decompressed values
	defined []bool // per row, of optional columns
	lengths []int32
	before  []byte // the value before the first asked one
}

// keepDecoded is the most scratch space a pooled decoder keeps: the largest usual page.
const keepDecoded = 2 << 20

// decodeSlack is room after the end of a page that the zstd decoder may scribble on: with it, it takes a loop that
// is twice as fast. It is what that decoder calls compressedBlockOverAlloc.
const decodeSlack = 16

var PageDecoders = sync.Pool{New: func() any {
	// The destination's capacity is the limit: a page does not decompress to more than its header says, whatever
	// the zstd frame claims.
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderMaxMemory(part.MaxPageBytes))
	if err != nil {
		panic(err) // the options are constants
	}
	return &PageDecoder{zstd: dec}
}}

// open checks a page of rows rows, which lies at byte off of part and has the checksum sum, and returns its values decompressed, valid
// until the next page. Of an optional column defined tells which rows have one.
func (d *PageDecoder) open(col part.Column, onePart string, off int64, raw []byte, sum uint32, rows int) (values []byte, defined []bool, h part.PageHeader, err error) {
	if got := codec.CRC32C(raw); got != sum {
		return nil, nil, h, codec.Corrupt(onePart, part.PageSection(col), off, fmt.Sprintf("crc32c %08x", sum), fmt.Sprintf("%08x", got))
	}
	if h, err = part.ReadPageHeader(raw, col, rows, onePart, "page"); err != nil {
		return nil, nil, h, part.Rebase(err, off)
	}
	bad := func(want, got any) error {
		return codec.Corrupt(onePart, part.PageSection(col), off, want, got)
	}
	defined = d.defined[:0]
	if h.Levels > 0 {
		defined, err = AppendLevels(defined, raw[h.Size:h.Size+h.Levels], rows, h.Nulls)
		d.defined = defined[:0]
		if err != nil {
			return nil, nil, h, bad("definition levels", err)
		}
	}
	values = raw[h.Size+h.Levels:]
	if size := h.Uncompressed - h.Levels; h.Zstd {
		if cap(d.raw) < size+decodeSlack {
			d.raw = make([]byte, 0, size+decodeSlack)
		}
		buf := d.raw[: 0 : size+decodeSlack]
		if cap(d.raw) > keepDecoded {
			d.raw = nil
		}
		if values, err = d.zstd.DecodeAll(values, buf); err != nil {
			return nil, nil, h, bad(fmt.Sprintf("zstd of %d bytes", size), err)
		}
		if len(values) != size {
			return nil, nil, h, bad(fmt.Sprintf("%d bytes decompressed", size), len(values))
		}
	} else if len(values) != size {
		return nil, nil, h, bad(fmt.Sprintf("%d bytes", size), len(values))
	}
	return values, defined, h, nil
}

// page appends rows [lo, hi) of one page to dst. The page is raw, has rows rows, lies at byte off of
// part, and has the checksum sum.
func (d *PageDecoder) page(dst *part.Columns, col part.Column, onePart string, off int64, raw []byte, sum uint32, rows, lo, hi int) error {
	values, defined, h, err := d.open(col, onePart, off, raw, sum, rows)
	if err != nil {
		return err
	}
	bad := func(want, got any) error {
		return codec.Corrupt(onePart, part.PageSection(col), off, want, got)
	}
	n := rows - h.Nulls
	switch col {
	case part.ColDatasetID, part.ColPort:
		if len(values) != 4*n {
			return bad(fmt.Sprintf("%d values of 4 bytes", n), len(values))
		}
	case part.ColDomainID, part.ColURLID, part.ColTS, part.ColSize:
		if len(values) != 8*n {
			return bad(fmt.Sprintf("%d values of 8 bytes", n), len(values))
		}
	default:
		if !d.AppendStrings(columnStrings(dst, col), values, defined, n, lo, hi) {
			return bad(fmt.Sprintf("%d strings", n), fmt.Sprintf("other in %d bytes", len(values)))
		}
		return nil
	}
	switch col {
	case part.ColDatasetID:
		for i := lo; i < hi; i++ {
			dst.DatasetID = append(dst.DatasetID, binary.LittleEndian.Uint32(values[4*i:]))
		}
	case part.ColDomainID:
		dst.DomainID = appendUint64s(dst.DomainID, values[8*lo:8*hi])
	case part.ColURLID:
		dst.URLID = appendUint64s(dst.URLID, values[8*lo:8*hi])
	case part.ColPort:
		v := CountTrue(defined[:lo])
		for _, has := range defined[lo:hi] {
			port := int32(-1)
			if has {
				if port = int32(binary.LittleEndian.Uint32(values[4*v:])); port < 0 || port > math.MaxUint16 {
					return bad("a port", port)
				}
				v++
			}
			dst.Port = append(dst.Port, port)
		}
	case part.ColTS:
		dst.TS, dst.HasTS = appendInt64s(dst.TS, values, defined, lo, hi), append(dst.HasTS, defined[lo:hi]...)
	case part.ColSize:
		dst.Size, dst.HasSize = appendInt64s(dst.Size, values, defined, lo, hi), append(dst.HasSize, defined[lo:hi]...)
	}
	return nil
}

// appendLevels decodes definition levels of 0 and 1 (Parquet's RLE and bit-packing hybrid of width 1) and
// appends whether each row has a value.
func AppendLevels(dst []bool, levels []byte, rows, nulls int) ([]bool, error) {
	errLevels := errors.New("other runs")
	ones := 0
	for len(dst) < rows {
		h, n := binary.Uvarint(levels)
		if n <= 0 || len(levels) == n {
			return dst, errLevels
		}
		levels = levels[n:]
		left := rows - len(dst)
		run := h >> 1
		if h&1 == 0 { // run times the same level
			if run == 0 || run > uint64(left) || levels[0] > 1 {
				return dst, errLevels
			}
			dst = slices.Grow(dst, int(run))
			for range run {
				dst = append(dst, levels[0] == 1)
			}
			ones += int(run) * int(levels[0])
			levels = levels[1:]
			continue
		}
		// Run groups of eight levels, the lowest bit first; the last group may be longer than the page.
		if run == 0 || run > uint64(left+7)/8 || run > uint64(len(levels)) {
			return dst, errLevels
		}
		dst = slices.Grow(dst, left)
		for i := range min(int(run)*8, left) {
			bit := levels[i/8] >> (i % 8) & 1
			dst = append(dst, bit == 1)
			ones += int(bit)
		}
		levels = levels[run:]
	}
	if len(levels) != 0 {
		return dst, fmt.Errorf("%d bytes more", len(levels))
	}
	if ones != rows-nulls {
		return dst, fmt.Errorf("%d values of %d", ones, rows-nulls)
	}
	return dst, nil
}

func CountTrue(b []bool) int {
	n := 0
	for _, v := range b {
		if v {
			n++
		}
	}
	return n
}

func appendUint64s(dst []uint64, values []byte) []uint64 {
	for ; len(values) >= 8; values = values[8:] {
		dst = append(dst, binary.LittleEndian.Uint64(values))
	}
	return dst
}

func appendInt64s(dst []int64, values []byte, defined []bool, lo, hi int) []int64 {
	v := CountTrue(defined[:lo])
	for _, has := range defined[lo:hi] {
		if !has {
			dst = append(dst, 0)
			continue
		}
		dst = append(dst, int64(binary.LittleEndian.Uint64(values[8*v:])))
		v++
	}
	return dst
}

// appendStrings appends the strings of rows [lo, hi) of a page of n values as DELTA_BYTE_ARRAY. Defined is
// empty where every row has one. A value that repeats the one before is the same string.
func (d *PageDecoder) AppendStrings(dst *[]string, values []byte, defined []bool, n, lo, hi int) bool {
	lengths, rest, ok := ReadDeltaPacked(d.lengths[:0], values, n)
	if ok {
		lengths, rest, ok = ReadDeltaPacked(lengths, rest, n)
	}
	d.lengths = lengths
	if !ok {
		return false
	}
	prefixes, suffixes := lengths[:n], lengths[n:]
	from, to := lo, hi // values, where rows are without nulls
	if len(defined) > 0 {
		from = CountTrue(defined[:lo])
		to = from + CountTrue(defined[lo:hi])
	}
	// All lengths are checked, wherever they are, and with them how much memory the asked values take.
	arena, left, last := 0, len(rest), 0
	for i, prefix := range prefixes {
		suffix := int(suffixes[i])
		if prefix < 0 || int(prefix) > last || suffix < 0 || suffix > left {
			return false
		}
		left -= suffix
		if i >= from && i < to && (suffix > 0 || int(prefix) != last || i == from) {
			if arena += int(prefix) + suffix; arena > part.MaxPageBytes {
				return false
			}
		}
		if last = int(prefix) + suffix; last > part.MaxPageBytes {
			return false
		}
	}
	if left != 0 {
		return false
	}
	// The first asked value begins with bytes of those before it: each has the ones from its own prefix on.
	start, need := 0, 0
	for _, suffix := range suffixes[:from] {
		start += int(suffix)
	}
	if from < to {
		need = int(prefixes[from])
	}
	before := slices.Grow(d.before[:0], need)[:need]
	if d.before = before; cap(before) > keepDecoded {
		d.before = nil
	}
	for i, end := from-1, start; need > 0; i-- {
		end -= int(suffixes[i])
		if prefix := int(prefixes[i]); prefix < need {
			copy(before[prefix:need], rest[end:])
			need = prefix
		}
	}
	rest = rest[start:]
	buf := make([]byte, 0, arena)
	out := *dst
	value := row.View(before)
	i := from
	for thisRow := lo; thisRow < hi; thisRow++ {
		if len(defined) > 0 && !defined[thisRow] {
			out = append(out, "")
			continue
		}
		prefix, suffix := int(prefixes[i]), int(suffixes[i])
		if suffix > 0 || prefix != len(value) || i == from {
			start := len(buf)
			buf = append(append(buf, value[:prefix]...), rest[:suffix]...)
			rest = rest[suffix:]
			value = row.View(buf[start:])
		}
		out = append(out, value)
		i++
	}
	*dst = out
	return true
}
