package part

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/row"
)

// encodedPage is a page as read from a part.
type encodedPage struct {
	col  Column
	file string // the part, for errors
	off  int64  // of the page in the part
	raw  []byte // header and data
	sum  uint32 // CRC-32C of raw according to the index
	rows int
}

// corrupt is the error of a damaged page.
func (p *encodedPage) corrupt(want, got any) error {
	return codec.Corrupt(p.file, PageSection(p.col), p.off, want, got)
}

// pageDecoder decodes one page at a time.
type pageDecoder struct {
	zstd    *zstd.Decoder
	raw     []byte // decompressed values
	defined []bool // for each row of an optional column, whether it has a value
	lengths []int32
	before  []byte // the value before the first requested one
}

const (
	// keepDecoded is the most scratch space that a pooled decoder keeps: the largest usual page.
	keepDecoded = 2 << 20

	// decodeSlack is capacity behind the content of a page that the zstd decoder may overwrite.
	// With it, the decoder uses a loop that is twice as fast; it calls the same number
	// compressedBlockOverAlloc.
	decodeSlack = 16
)

// pageDecoders holds idle decoders.
var pageDecoders = sync.Pool{New: func() any {
	// The capacity of the destination limits the output, so a page does not decompress to more than
	// its header says, whatever the zstd frame claims.
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderMaxMemory(MaxPageBytes))
	if err != nil {
		panic(err) // the options are constants
	}
	return &pageDecoder{zstd: dec}
}}

// open verifies a page and returns its decompressed values, which are valid until the next page.
// For an optional column, defined says which rows have a value; otherwise it is empty.
func (d *pageDecoder) open(p *encodedPage) (values []byte, defined []bool, h PageHeader, err error) {
	if got := codec.CRC32C(p.raw); got != p.sum {
		return nil, nil, h, p.corrupt(fmt.Sprintf("crc32c %08x", p.sum), fmt.Sprintf("%08x", got))
	}
	if h, err = ReadPageHeader(p.raw, p.col, p.rows, p.file); err != nil {
		return nil, nil, h, Rebase(err, p.off)
	}
	defined = d.defined[:0]
	if h.Levels > 0 {
		defined, err = appendLevels(defined, p.raw[h.Size:h.Size+h.Levels], p.rows, h.Nulls)
		d.defined = defined[:0]
		if err != nil {
			return nil, nil, h, p.corrupt("definition levels", err)
		}
	}
	values = p.raw[h.Size+h.Levels:]
	if size := h.Uncompressed - h.Levels; h.Zstd {
		if cap(d.raw) < size+decodeSlack {
			d.raw = make([]byte, 0, size+decodeSlack)
		}
		buf := d.raw[: 0 : size+decodeSlack]
		if cap(d.raw) > keepDecoded {
			d.raw = nil
		}
		if values, err = d.zstd.DecodeAll(values, buf); err != nil {
			return nil, nil, h, p.corrupt(fmt.Sprintf("zstd of %d bytes", size), err)
		}
		if len(values) != size {
			return nil, nil, h, p.corrupt(fmt.Sprintf("%d bytes decompressed", size), len(values))
		}
	} else if len(values) != size {
		return nil, nil, h, p.corrupt(fmt.Sprintf("%d bytes", size), len(values))
	}
	return values, defined, h, nil
}

// appendColumn appends rows [lo, hi) of a page to its column of dst.
func (d *pageDecoder) appendColumn(dst *Columns, p *encodedPage, lo, hi int) error {
	values, defined, h, err := d.open(p)
	if err != nil {
		return err
	}
	n := p.rows - h.Nulls
	switch p.col {
	case ColDatasetID, ColPort:
		if len(values) != 4*n {
			return p.corrupt(fmt.Sprintf("%d values of 4 bytes", n), len(values))
		}
	case ColDomainID, ColURLID, ColTS, ColSize:
		if len(values) != 8*n {
			return p.corrupt(fmt.Sprintf("%d values of 8 bytes", n), len(values))
		}
	default:
		if !d.appendStrings(dst.Text(p.col), values, defined, n, lo, hi) {
			return p.corrupt(fmt.Sprintf("%d strings", n), fmt.Sprintf("other in %d bytes", len(values)))
		}
		return nil
	}
	switch p.col {
	case ColDatasetID:
		for i := lo; i < hi; i++ {
			dst.DatasetID = append(dst.DatasetID, binary.LittleEndian.Uint32(values[4*i:]))
		}
	case ColDomainID:
		dst.DomainID = appendUint64s(dst.DomainID, values[8*lo:8*hi])
	case ColURLID:
		dst.URLID = appendUint64s(dst.URLID, values[8*lo:8*hi])
	case ColPort:
		v := countTrue(defined[:lo])
		for _, has := range defined[lo:hi] {
			port := int32(-1)
			if has {
				if port = int32(binary.LittleEndian.Uint32(values[4*v:])); port < 0 || port > math.MaxUint16 {
					return p.corrupt("a port", port)
				}
				v++
			}
			dst.Port = append(dst.Port, port)
		}
	case ColTS:
		first := len(dst.TS)
		dst.TS, dst.HasTS = appendInt64s(dst.TS, values, defined, lo, hi), append(dst.HasTS, defined[lo:hi]...)
		for i, micros := range dst.TS[first:] {
			if micros%1000 != 0 {
				return p.corrupt("a time in whole milliseconds", fmt.Sprintf("%d µs", micros))
			}
			dst.TS[first+i] = micros / 1000
		}
	case ColSize:
		dst.Size, dst.HasSize = appendInt64s(dst.Size, values, defined, lo, hi), append(dst.HasSize, defined[lo:hi]...)
	}
	return nil
}

// errLevels is the error of definition levels that are malformed or end early.
var errLevels = errors.New("other runs")

// appendLevels decodes the definition levels of rows rows, of which nulls have no value, and
// appends to dst whether each row has one. The encoding is Parquet's hybrid of run-length encoding
// and bit-packing, with a width of one bit.
func appendLevels(dst []bool, levels []byte, rows, nulls int) ([]bool, error) {
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
		// run groups of eight levels, the first in the lowest bit. The last group may extend past
		// the page.
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

// countTrue is the number of elements of b that are true.
func countTrue(b []bool) int {
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
	v := countTrue(defined[:lo])
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

// appendStrings appends the strings of rows [lo, hi) of a page of n values as DELTA_BYTE_ARRAY.
// defined is empty if every row has a value. A value that repeats the previous one is the same
// string.
func (d *pageDecoder) appendStrings(dst *[]string, values []byte, defined []bool, n, lo, hi int) bool {
	prefixes, suffixes, rest, ok := d.readLengths(values, n)
	if !ok {
		return false
	}
	from, to := lo, hi // the requested values; without nulls, rows are values
	if len(defined) > 0 {
		from = countTrue(defined[:lo])
		to = from + countTrue(defined[lo:hi])
	}
	// All lengths of the page are checked. arena is the memory that the requested values need.
	arena, left, last := 0, len(rest), 0
	for i, prefix := range prefixes {
		suffix := int(suffixes[i])
		if prefix < 0 || int(prefix) > last || suffix < 0 || suffix > left {
			return false
		}
		left -= suffix
		if i >= from && i < to && (suffix > 0 || int(prefix) != last || i == from) {
			if arena += int(prefix) + suffix; arena > MaxPageBytes {
				return false
			}
		}
		if last = int(prefix) + suffix; last > MaxPageBytes {
			return false
		}
	}
	if left != 0 {
		return false
	}
	// The first requested value begins with bytes of earlier ones. Going backwards, each earlier
	// value provides the bytes from its own prefix on.
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
	for r := lo; r < hi; r++ {
		if len(defined) > 0 && !defined[r] {
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
