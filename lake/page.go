package lake

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"sort"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/internal/thrift"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// Rows are served without opening a Parquet footer. A page index block, kept in a
// segment's parts.idx.zst, says where the pages of a run of rows lie in each column and what
// their bytes have to be; a reader fetches exactly those bytes. The checksums cover the page headers,
// which Parquet's own page checksums do not: a flipped bit there can otherwise give wrong
// rows without an error.

const (
	// PageIndexPages is the most pages one block describes: a million rows or two in
	// some 25 KB, which is fetched and decoded as one.
	PageIndexPages = 256

	// MaxPageBytes bounds a page before and after decompression: it is what a reader allocates on the
	// word of an index. A writer stays below: a page ends at PageColumnBytes, and no value is longer than MaxKey.
	MaxPageBytes = 16 << 20

	// maxPageRows, maxRows, maxRowGroups and maxFileBytes bound the other numbers of an index so that sums of
	// them cannot overflow. Row groups are numbered by an int16 in Parquet.
	maxPageRows  = 1 << 20
	maxRows      = 1 << 40
	maxRowGroups = math.MaxInt16
	maxFileBytes = 1 << 40

	// minPageBytes is less than any page header takes.
	minPageBytes = 8
)

// PageIndexBlock describes consecutive pages of one row group in all columns. Pages end at the same
// row in every column. Blocks are immutable and safe for concurrent use.
type PageIndexBlock struct {
	// RowGroup is the row group's number in the part, from 0.
	RowGroup int
	// FirstRow is the row of the row group with which the block's first page starts.
	FirstRow int64

	starts []int64 // first row of each page relative to FirstRow, then the block's rows
	cols   [NumColumns]pageRun
}

// pageRun is one column's pages: page i lies at offs[i] up to offs[i+1].
type pageRun struct {
	offs []int64
	sums []uint32 // CRC-32C of header and data
}

// Pages is the number of pages a column has in the block.
func (b *PageIndexBlock) Pages() int { return len(b.starts) - 1 }

// Rows is the number of rows the block covers.
func (b *PageIndexBlock) Rows() int64 { return b.starts[len(b.starts)-1] }

// Page returns the rows of the page that holds row: first up to end, counted in the row group like
// FirstRow. The block has to cover row.
func (b *PageIndexBlock) Page(row int64) (first, end int64) {
	rel := row - b.FirstRow
	i := sort.Search(b.Pages(), func(i int) bool { return b.starts[i+1] > rel })
	return b.FirstRow + b.starts[i], b.FirstRow + b.starts[i+1]
}

// MemoryBytes is what the block takes in memory.
func (b *PageIndexBlock) MemoryBytes() int64 {
	return int64(b.Pages()*(8*(NumColumns+1)+4*NumColumns) + 1024)
}

// Append appends the block's encoding, which docs/formats/page-index.md describes.
func (b *PageIndexBlock) Append(dst []byte) []byte {
	n := b.Pages()
	dst = codec.AppendUvarint(dst, uint64(b.RowGroup))
	dst = codec.AppendUvarint(dst, uint64(b.FirstRow))
	dst = codec.AppendUvarint(dst, uint64(n))
	for i := range n {
		dst = codec.AppendUvarint(dst, uint64(b.starts[i+1]-b.starts[i]))
	}
	for c := range b.cols {
		run := &b.cols[c]
		dst = codec.AppendUvarint(dst, uint64(run.offs[0]))
		for i := range n {
			dst = codec.AppendUvarint(dst, uint64(run.offs[i+1]-run.offs[i]))
		}
		for _, sum := range run.sums {
			dst = codec.AppendU32(dst, sum)
		}
	}
	return dst
}

// newPageIndexBlock is a block of n pages with room for everything in two allocations.
func newPageIndexBlock(rowGroup int, firstRow int64, n int) *PageIndexBlock {
	b := &PageIndexBlock{RowGroup: rowGroup, FirstRow: firstRow}
	wide := make([]int64, (n+1)*(NumColumns+1))
	sums := make([]uint32, n*NumColumns)
	b.starts, wide = wide[:n+1:n+1], wide[n+1:]
	for c := range b.cols {
		b.cols[c].offs, wide = wide[:n+1:n+1], wide[n+1:]
		b.cols[c].sums, sums = sums[:n:n], sums[n:]
	}
	return b
}

// DecodePageIndexBlock decodes a block that is all of data; file names where it was read. The block
// does not keep data.
func DecodePageIndexBlock(data []byte, file string) (*PageIndexBlock, error) {
	d := codec.NewDecoder(data, file, "page index block")
	rowGroup := int(d.Uint(maxRowGroups))
	firstRow := int64(d.Uint(maxRows))
	n := int(d.Uint(PageIndexPages))
	if d.Err() == nil && n == 0 {
		d.Fail("at least one page", 0)
	}
	if d.Err() != nil {
		return nil, d.Err()
	}
	b := newPageIndexBlock(rowGroup, firstRow, n)
	for i := range n {
		rows := int64(d.Uint(maxPageRows))
		if d.Err() == nil && rows == 0 {
			d.Fail("a page with rows", 0)
		}
		b.starts[i+1] = b.starts[i] + rows
	}
	var end int64 = int64(len(parquetMagic))
	for c := range b.cols {
		run := &b.cols[c]
		run.offs[0] = int64(d.Uint(maxFileBytes))
		if d.Err() == nil && run.offs[0] < end {
			d.Fail(fmt.Sprintf("pages of %s from byte %d on", Column(c), end), run.offs[0])
		}
		for i := range n {
			size := int64(d.Uint(MaxPageBytes))
			if d.Err() == nil && size < minPageBytes {
				d.Fail(fmt.Sprintf("a page of at least %d bytes", minPageBytes), size)
			}
			run.offs[i+1] = run.offs[i] + size
		}
		end = run.offs[n]
		if sums := d.Bytes(4 * n); sums != nil {
			for i := range n {
				run.sums[i] = binary.LittleEndian.Uint32(sums[4*i:])
			}
		}
	}
	if err := d.Close(); err != nil {
		return nil, err
	}
	return b, nil
}

// Range is a run of bytes of an object.
type Range struct{ Offset, Bytes int64 }

// ReadPlan is what has to be read for a run of rows of some columns, and how to decode it.
type ReadPlan struct {
	// Ranges are to be read from the part, each as a whole: one per column in
	// the order of the columns, but scheme and port, whose pages are tiny, share one.
	Ranges []Range

	block    *PageIndexBlock
	from, to int   // pages [from, to)
	skip     int64 // rows of page from that come before the first asked one
	rows     int64
	planned  [NumColumns]plannedColumn
	nplanned int
}

type plannedColumn struct {
	col Column
	rng int // index into Ranges
}

// Plan plans the reading of rows rows from firstRow on, counted in the row group like
// FirstRow; all of them have to be in the block.
func (b *PageIndexBlock) Plan(firstRow, rows int64, cols ...Column) (*ReadPlan, error) {
	rel := firstRow - b.FirstRow
	if rel < 0 || rows <= 0 || rows > b.Rows()-rel {
		return nil, fmt.Errorf("plan rows %d to %d of row group %d: the block has %d to %d",
			firstRow, firstRow+rows, b.RowGroup, b.FirstRow, b.FirstRow+b.Rows())
	}
	var want [NumColumns]bool
	for _, c := range cols {
		if c < 0 || int(c) >= NumColumns {
			return nil, fmt.Errorf("plan rows: no %v", c)
		}
		want[c] = true
	}
	p := &ReadPlan{block: b, rows: rows}
	p.from = sort.Search(b.Pages(), func(i int) bool { return b.starts[i+1] > rel })
	p.to = sort.Search(b.Pages(), func(i int) bool { return b.starts[i] >= rel+rows })
	p.skip = rel - b.starts[p.from]
	p.Ranges = make([]Range, 0, len(cols))
	for c := range Column(NumColumns) {
		if !want[c] {
			continue
		}
		off, end := b.cols[c].offs[p.from], b.cols[c].offs[p.to]
		if c == ColPort && want[ColScheme] {
			last := &p.Ranges[len(p.Ranges)-1] // scheme comes just before port
			last.Bytes = end - last.Offset
		} else {
			p.Ranges = append(p.Ranges, Range{off, end - off})
		}
		p.planned[p.nplanned] = plannedColumn{c, len(p.Ranges) - 1}
		p.nplanned++
	}
	return p, nil
}

// Columns holds rows by column. Only the columns that were asked for are filled; those
// have Rows entries each. Strings are copies that do not keep pages in memory.
type Columns struct {
	Rows      int
	DatasetID []uint32
	Batch     []string
	Scheme    []string
	Port      []int32 // -1: the scheme's default
	DomainID  []uint64
	Domain    []string
	Host      []string
	TS        []int64 // milliseconds since 1970 in UTC, 0 without one
	HasTS     []bool
	Size      []int64 // 0 without one
	HasSize   []bool
	PathQuery []string
	URLID     []uint64
	RawURL    []string // "" is none
	Extras    []string // "" is none
}

// Decode decodes the bytes of p.Ranges. Part names them in errors.
func (p *ReadPlan) Decode(part string, data [][]byte) (*Columns, error) {
	c := new(Columns)
	if err := p.AppendTo(c, part, data); err != nil {
		return nil, err
	}
	return c, nil
}

// AppendTo is Decode for runs of rows that lie in several blocks: it appends to dst, whose
// earlier rows are of the same columns. After an error dst is of no use.
func (p *ReadPlan) AppendTo(dst *Columns, part string, data [][]byte) error {
	if err := p.checkRanges(part, data); err != nil {
		return err
	}
	dec := pageDecoders.Get().(*pageDecoder)
	defer pageDecoders.Put(dec)
	for _, pc := range p.planned[:p.nplanned] {
		run := &p.block.cols[pc.col]
		base := p.Ranges[pc.rng].Offset
		dst.grow(pc.col, int(p.rows))
		lo := p.skip
		left := p.rows
		for i := p.from; i < p.to; i++ {
			raw := data[pc.rng][run.offs[i]-base : run.offs[i+1]-base]
			rows := p.block.starts[i+1] - p.block.starts[i]
			n := min(rows-lo, left)
			if err := dec.page(dst, pc.col, part, run.offs[i], raw, run.sums[i], int(rows), int(lo), int(lo+n)); err != nil {
				return err
			}
			lo, left = 0, left-n
		}
	}
	dst.Rows += int(p.rows)
	return nil
}

// checkRanges checks that data are the bytes of p.Ranges.
func (p *ReadPlan) checkRanges(part string, data [][]byte) error {
	if len(data) != len(p.Ranges) {
		return fmt.Errorf("decode pages of %s: %d ranges, planned are %d", part, len(data), len(p.Ranges))
	}
	for i, r := range p.Ranges {
		if int64(len(data[i])) != r.Bytes {
			return codec.Corrupt(part, "page range", r.Offset, fmt.Sprintf("%d bytes", r.Bytes), len(data[i]))
		}
	}
	return nil
}

// ReadColumns reads rows rows from firstRow of b's row group on, at once for all columns.
func ReadColumns(ctx context.Context, store blob.Store, part string, b *PageIndexBlock, firstRow, rows int64, cols ...Column) (*Columns, error) {
	p, err := b.Plan(firstRow, rows, cols...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", part, err)
	}
	data := make([][]byte, len(p.Ranges))
	g, ctx := errgroup.WithContext(ctx)
	for i, r := range p.Ranges {
		g.Go(func() (err error) {
			data[i], err = store.ReadRange(ctx, part, r.Offset, r.Bytes)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("read pages of %s: %w", part, err)
	}
	return p.Decode(part, data)
}

// grow makes room for n more rows of column c.
func (c *Columns) grow(col Column, n int) {
	switch col {
	case ColDatasetID:
		c.DatasetID = slices.Grow(c.DatasetID, n)
	case ColPort:
		c.Port = slices.Grow(c.Port, n)
	case ColDomainID:
		c.DomainID = slices.Grow(c.DomainID, n)
	case ColTS:
		c.TS, c.HasTS = slices.Grow(c.TS, n), slices.Grow(c.HasTS, n)
	case ColSize:
		c.Size, c.HasSize = slices.Grow(c.Size, n), slices.Grow(c.HasSize, n)
	case ColURLID:
		c.URLID = slices.Grow(c.URLID, n)
	default:
		s := c.strings(col)
		*s = slices.Grow(*s, n)
	}
}

// strings is the field of a string column.
func (c *Columns) strings(col Column) *[]string {
	switch col {
	case ColBatch:
		return &c.Batch
	case ColScheme:
		return &c.Scheme
	case ColDomain:
		return &c.Domain
	case ColHost:
		return &c.Host
	case ColPathQuery:
		return &c.PathQuery
	case ColRawURL:
		return &c.RawURL
	case ColExtras:
		return &c.Extras
	}
	panic(col.String() + " holds no strings")
}

// pageDecoder decodes one page at a time.
type pageDecoder struct {
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

var pageDecoders = sync.Pool{New: func() any {
	// The destination's capacity is the limit: a page does not decompress to more than its header says, whatever
	// the zstd frame claims.
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderMaxMemory(MaxPageBytes))
	if err != nil {
		panic(err) // the options are constants
	}
	return &pageDecoder{zstd: dec}
}}

// pageHeader is what a data page v2 says of itself, and where its data starts.
type pageHeader struct {
	size         int // of the header
	uncompressed int // levels and values before compression
	compressed   int // levels and values
	crc          uint32
	nulls        int
	levels       int // bytes of definition levels, never compressed
	zstd         bool
}

// readPageHeader decodes the header that starts raw, which has to be one page of rows rows of col.
func readPageHeader(raw []byte, col Column, rows int, part string, section string) (h pageHeader, err error) {
	r := thrift.NewReader(raw, part, section)
	var seen, seenV2 int // bit i: field i
	for f := (thrift.Field{}); r.Next(&f); {
		seen |= 1 << f.ID
		switch f.ID {
		case 1: // type: DATA_PAGE_V2
			r.Int(f, thrift.I32, 3, 3)
		case 2:
			h.uncompressed = int(r.Int(f, thrift.I32, 0, MaxPageBytes))
		case 3:
			h.compressed = int(r.Int(f, thrift.I32, 0, MaxPageBytes))
		case 4:
			h.crc = uint32(r.Int(f, thrift.I32, math.MinInt32, math.MaxInt32))
		case 8:
			if !r.Want(f, thrift.Struct) {
				break
			}
			for g := (thrift.Field{}); r.Next(&g); {
				seenV2 |= 1 << g.ID
				switch g.ID {
				case 1: // values
					r.Int(g, thrift.I32, int64(rows), int64(rows))
				case 2:
					h.nulls = int(r.Int(g, thrift.I32, 0, int64(rows)))
				case 3: // rows
					r.Int(g, thrift.I32, int64(rows), int64(rows))
				case 4:
					encoding := int64(columnDefs[col].encoding())
					r.Int(g, thrift.I32, encoding, encoding)
				case 5:
					h.levels = int(r.Int(g, thrift.I32, 0, MaxPageBytes))
				case 6: // repetition levels
					r.Int(g, thrift.I32, 0, 0)
				case 7:
					if h.zstd = g.Kind == thrift.True; !h.zstd && g.Kind != thrift.False {
						r.Fail("a boolean", fmt.Sprintf("type %d", g.Kind))
					}
					if h.zstd && columnDefs[col].codec != format.Zstd { // other readers go by the column
						r.Fail("a page that is not compressed", "one that is")
					}
				default:
					r.Fail("a field of a data page header", g.ID)
				}
			}
		default:
			r.Fail("a field of a page header", f.ID)
		}
		if r.Err() != nil || f.ID > 8 {
			break
		}
	}
	const all, allV2 = 1<<1 | 1<<2 | 1<<3 | 1<<4 | 1<<8, 1<<8 - 2
	if r.Err() == nil && (seen != all || seenV2 != allV2) {
		r.Fail("a complete data page header", fmt.Sprintf("fields %b, %b", seen, seenV2))
	}
	h.size = r.Offset()
	if r.Err() == nil && (h.compressed != r.Len() || h.levels > h.compressed || h.levels > h.uncompressed ||
		(h.levels != 0) != columnDefs[col].optional || (h.nulls != 0 && !columnDefs[col].optional)) {
		r.Fail("sizes that agree", fmt.Sprintf("%d bytes left, %+v", r.Len(), h))
	}
	return h, r.Err()
}

// rebase makes the offset of a corruption found in bytes that start at byte base of a file one in the file.
func rebase(err error, base int64) error {
	var c *codec.CorruptError
	if !errors.As(err, &c) || c.Offset < 0 {
		return err
	}
	moved := *c
	moved.Offset += base
	return &moved
}

// open checks a page of rows rows, which lies at byte off of part and has the checksum sum, and returns its values decompressed, valid
// until the next page. Of an optional column defined tells which rows have one.
func (d *pageDecoder) open(col Column, part string, off int64, raw []byte, sum uint32, rows int) (values []byte, defined []bool, h pageHeader, err error) {
	if got := codec.CRC32C(raw); got != sum {
		return nil, nil, h, codec.Corrupt(part, pageSection(col), off, fmt.Sprintf("crc32c %08x", sum), fmt.Sprintf("%08x", got))
	}
	if h, err = readPageHeader(raw, col, rows, part, "page"); err != nil {
		return nil, nil, h, rebase(err, off)
	}
	bad := func(want, got any) error {
		return codec.Corrupt(part, pageSection(col), off, want, got)
	}
	defined = d.defined[:0]
	if h.levels > 0 {
		defined, err = appendLevels(defined, raw[h.size:h.size+h.levels], rows, h.nulls)
		d.defined = defined[:0]
		if err != nil {
			return nil, nil, h, bad("definition levels", err)
		}
	}
	values = raw[h.size+h.levels:]
	if size := h.uncompressed - h.levels; h.zstd {
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
func (d *pageDecoder) page(dst *Columns, col Column, part string, off int64, raw []byte, sum uint32, rows, lo, hi int) error {
	values, defined, h, err := d.open(col, part, off, raw, sum, rows)
	if err != nil {
		return err
	}
	bad := func(want, got any) error {
		return codec.Corrupt(part, pageSection(col), off, want, got)
	}
	n := rows - h.nulls
	switch col {
	case ColDatasetID, ColPort:
		if len(values) != 4*n {
			return bad(fmt.Sprintf("%d values of 4 bytes", n), len(values))
		}
	case ColDomainID, ColURLID, ColTS, ColSize:
		if len(values) != 8*n {
			return bad(fmt.Sprintf("%d values of 8 bytes", n), len(values))
		}
	default:
		if !d.appendStrings(dst.strings(col), values, defined, n, lo, hi) {
			return bad(fmt.Sprintf("%d strings", n), fmt.Sprintf("other in %d bytes", len(values)))
		}
		return nil
	}
	switch col {
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
					return bad("a port", port)
				}
				v++
			}
			dst.Port = append(dst.Port, port)
		}
	case ColTS:
		dst.TS, dst.HasTS = appendInt64s(dst.TS, values, defined, lo, hi), append(dst.HasTS, defined[lo:hi]...)
	case ColSize:
		dst.Size, dst.HasSize = appendInt64s(dst.Size, values, defined, lo, hi), append(dst.HasSize, defined[lo:hi]...)
	}
	return nil
}

func pageSection(col Column) string { return col.String() + " page" }

// appendLevels decodes definition levels of 0 and 1 (Parquet's RLE and bit-packing hybrid of width 1) and
// appends whether each row has a value.
func appendLevels(dst []bool, levels []byte, rows, nulls int) ([]bool, error) {
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

// appendStrings appends the strings of rows [lo, hi) of a page of n values as DELTA_BYTE_ARRAY. Defined is
// empty where every row has one. A value that repeats the one before is the same string.
func (d *pageDecoder) appendStrings(dst *[]string, values []byte, defined []bool, n, lo, hi int) bool {
	lengths, rest, ok := readDeltaPacked(d.lengths[:0], values, n)
	if ok {
		lengths, rest, ok = readDeltaPacked(lengths, rest, n)
	}
	d.lengths = lengths
	if !ok {
		return false
	}
	prefixes, suffixes := lengths[:n], lengths[n:]
	from, to := lo, hi // values, where rows are without nulls
	if len(defined) > 0 {
		from = countTrue(defined[:lo])
		to = from + countTrue(defined[lo:hi])
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
	value := view(before)
	i := from
	for row := lo; row < hi; row++ {
		if len(defined) > 0 && !defined[row] {
			out = append(out, "")
			continue
		}
		prefix, suffix := int(prefixes[i]), int(suffixes[i])
		if suffix > 0 || prefix != len(value) || i == from {
			start := len(buf)
			buf = append(append(buf, value[:prefix]...), rest[:suffix]...)
			rest = rest[suffix:]
			value = view(buf[start:])
		}
		out = append(out, value)
		i++
	}
	*dst = out
	return true
}

// parquetMagic starts and ends a Parquet file.
const parquetMagic = "PAR1"

const (
	// indexReadBytes is how much is read at once where a whole part is read.
	indexReadBytes = 4 << 20
	// maxIndexBytes bounds a part's footer, and its column and offset indexes together. A part of PartBytes has at
	// most 2,048 pages a column, whose bounds take 3 KB at the very most.
	maxIndexBytes = 64 << 20
	// footerGuess covers footer, column and offset indexes of a usual part: one read instead of three.
	footerGuess = 256 << 10
)

// chunkMeta is where one column of one row group lies.
type chunkMeta struct {
	off, bytes           int64
	indexOff, indexBytes int64
	groupRows            int64
}

// BuildPageIndex computes the page index of a part from the file alone: r has size bytes; part names it in
// errors. It reads every page, in large reads, and checks what a footer and the pages' own
// checksums allow to check: the schema, that row groups, columns and pages follow each other without
// a gap and with the same rows in every column.
func BuildPageIndex(r io.ReaderAt, size int64, part string) ([]PageIndexBlock, error) {
	groups, tail, tailOff, err := readFooter(r, size, part)
	if err != nil {
		return nil, err
	}
	var blocks []PageIndexBlock
	end := int64(len(parquetMagic))
	for g, chunks := range groups {
		var starts []int64 // of the first column
		first := len(blocks)
		for c, m := range chunks {
			col := Column(c)
			section := fmt.Sprintf("offset index of %s in row group %d", col, g)
			if m.off != end || m.bytes < 0 || m.bytes > tailOff-m.off {
				return nil, codec.Corrupt(part, fmt.Sprintf("footer, %s in row group %d", col, g), -1,
					fmt.Sprintf("pages between byte %d and %d", end, tailOff), fmt.Sprintf("%d bytes at %d", m.bytes, m.off))
			}
			end += m.bytes
			if m.indexOff < tailOff || m.indexBytes < 0 || m.indexBytes > tailOff+int64(len(tail))-m.indexOff {
				return nil, codec.Corrupt(part, section, m.indexOff, "a place after the pages", m.indexBytes)
			}
			at := m.indexOff - tailOff
			offs, rows, err := readOffsetIndex(tail[at:at+m.indexBytes], m, part, section)
			if err != nil {
				return nil, rebase(err, m.indexOff)
			}
			if c == 0 {
				starts = rows
				for from := 0; from < len(offs)-1; from += PageIndexPages {
					b := newPageIndexBlock(g, rows[from], min(PageIndexPages, len(offs)-1-from))
					for i := range b.starts {
						b.starts[i] = rows[from+i] - rows[from]
					}
					blocks = append(blocks, *b)
				}
			} else if !slices.Equal(starts, rows) {
				return nil, codec.Corrupt(part, section, m.indexOff, "pages of the same rows as in the first column", "others")
			}
			for i := range blocks[first:] {
				copy(blocks[first+i].cols[c].offs, offs[i*PageIndexPages:])
			}
			if err := sumPages(r, blocks[first:], col, part); err != nil {
				return nil, err
			}
		}
	}
	return blocks, nil
}

// readFooter returns the chunks of every row group and the bytes from tailOff, where
// the pages end, to the end of the file.
func readFooter(r io.ReaderAt, size int64, part string) (groups [][NumColumns]chunkMeta, tail []byte, tailOff int64, err error) {
	const trailer = 4 + len(parquetMagic)
	bad := func(at int64, want, got any) ([][NumColumns]chunkMeta, []byte, int64, error) {
		return nil, nil, 0, codec.Corrupt(part, "footer", at, want, got)
	}
	if size < int64(trailer+len(parquetMagic)) || size > maxFileBytes {
		return bad(-1, "a Parquet file", fmt.Sprintf("%d bytes", size))
	}
	read := func(off, end int64) ([]byte, error) {
		b := make([]byte, end-off)
		// ReaderAt may return io.EOF with a read that ends at the end.
		if n, err := r.ReadAt(b, off); n < len(b) {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, fmt.Errorf("read %s: %w", part, err)
		}
		return b, nil
	}
	if tail, err = read(max(0, size-footerGuess), size); err != nil {
		return nil, nil, 0, err
	}
	tailOff = size - int64(len(tail))
	if got := tail[len(tail)-4:]; string(got) != parquetMagic {
		return bad(size-4, parquetMagic, fmt.Sprintf("%q", got))
	}
	head, err := read(0, int64(len(parquetMagic)))
	if err != nil {
		return nil, nil, 0, err
	}
	if string(head) != parquetMagic {
		return bad(0, parquetMagic, fmt.Sprintf("%q", head))
	}
	n := int64(binary.LittleEndian.Uint32(tail[len(tail)-trailer:]))
	footerOff := size - int64(trailer) - n
	if footerOff < int64(len(parquetMagic)) || n > maxIndexBytes {
		return bad(size-int64(trailer), "the size of a footer", n)
	}
	if footerOff < tailOff {
		more, err := read(footerOff, tailOff)
		if err != nil {
			return nil, nil, 0, err
		}
		tail, tailOff = append(more, tail...), footerOff
	}
	footer := tail[footerOff-tailOff : size-int64(trailer)-tailOff]
	groups, err = decodeFooter(footer, part)
	if err != nil {
		return nil, nil, 0, rebase(err, footerOff)
	}
	dataEnd := int64(len(parquetMagic))
	for g := range groups {
		for c := range groups[g] {
			m := &groups[g][c]
			if m.bytes > size-dataEnd {
				return bad(footerOff, fmt.Sprintf("at most %d bytes of pages", size-dataEnd), m.bytes)
			}
			dataEnd += m.bytes
		}
	}
	if dataEnd > footerOff || footerOff-dataEnd > maxIndexBytes {
		return bad(footerOff, "indexes between pages and footer", fmt.Sprintf("%d bytes", footerOff-dataEnd))
	}
	if dataEnd < tailOff {
		more, err := read(dataEnd, tailOff)
		if err != nil {
			return nil, nil, 0, err
		}
		return groups, append(more, tail...), dataEnd, nil
	}
	return groups, tail[dataEnd-tailOff:], dataEnd, nil
}

// decodeFooter decodes what BuildPageIndex needs of a FileMetaData.
func decodeFooter(footer []byte, part string) (groups [][NumColumns]chunkMeta, err error) {
	r := thrift.NewReader(footer, part, "footer")
	var fileRows, rows int64
	schema := false
	r.Struct(func(f thrift.Field) {
		switch f.ID {
		case 2:
			if !r.Want(f, thrift.List) {
				return
			}
			at := r.Offset()
			r.Skip(f)
			if schema = r.Err() == nil && bytes.Equal(footer[at:r.Offset()], schemaBytes); !schema {
				r.Fail("the schema of a part", "another")
			}
		case 3:
			fileRows = r.Int(f, thrift.I64, 1, maxRows)
		case 4:
			for range r.List(f, thrift.Struct) {
				if len(groups) > maxRowGroups {
					r.Fail(fmt.Sprintf("at most %d row groups", maxRowGroups), "more")
				}
				chunks, n := decodeRowGroup(r)
				if r.Err() != nil {
					return
				}
				groups = append(groups, chunks)
				rows += n
			}
		default:
			r.Skip(f)
		}
	})
	if r.Err() == nil && (!schema || fileRows == 0 || rows != fileRows) {
		r.Fail("a schema, and rows that the row groups add up to", fmt.Sprintf("%v, %d, %d", schema, fileRows, rows))
	}
	return groups, r.Close()
}

func decodeRowGroup(r thrift.Reader) (chunks [NumColumns]chunkMeta, rows int64) {
	r.Struct(func(f thrift.Field) {
		switch f.ID {
		case 1:
			if n := r.List(f, thrift.Struct); r.Err() == nil && n != NumColumns {
				r.Fail(fmt.Sprintf("%d columns", NumColumns), n)
			}
			for c := 0; c < NumColumns && r.Err() == nil; c++ {
				decodeChunk(r, columnDefs[c].codec, &chunks[c])
			}
		case 3:
			rows = r.Int(f, thrift.I64, 1, maxRows)
		default:
			r.Skip(f)
		}
	})
	for c, m := range chunks {
		if r.Err() == nil && (rows == 0 || m.groupRows != rows || m.bytes == 0 || m.off == 0 || m.indexOff == 0 || m.indexBytes == 0) {
			r.Fail(fmt.Sprintf("the place of %d values of %s", rows, Column(c)), fmt.Sprintf("%+v", m))
		}
	}
	return chunks, rows
}

func decodeChunk(r thrift.Reader, compression format.CompressionCodec, m *chunkMeta) {
	r.Struct(func(f thrift.Field) {
		switch f.ID {
		case 3:
			if !r.Want(f, thrift.Struct) {
				return
			}
			r.Struct(func(f thrift.Field) {
				switch f.ID {
				case 4:
					r.Int(f, thrift.I32, int64(compression), int64(compression))
				case 5:
					m.groupRows = r.Int(f, thrift.I64, 1, maxRows)
				case 7:
					m.bytes = r.Int(f, thrift.I64, 1, maxFileBytes)
				case 9:
					m.off = r.Int(f, thrift.I64, 1, maxFileBytes)
				case 11:
					r.Fail("no dictionary", "one")
				default:
					r.Skip(f)
				}
			})
		case 4:
			m.indexOff = r.Int(f, thrift.I64, 1, maxFileBytes)
		case 5:
			m.indexBytes = r.Int(f, thrift.I32, 1, maxIndexBytes)
		default:
			r.Skip(f)
		}
	})
}

// readOffsetIndex decodes an offset index: the pages' offsets and where the last ends, their first rows and the rows of all.
func readOffsetIndex(data []byte, m chunkMeta, part, section string) (offs, rows []int64, err error) {
	r := thrift.NewReader(data, part, section)
	end, next := m.off, int64(0)
	r.Struct(func(f thrift.Field) {
		if f.ID != 1 {
			r.Skip(f)
			return
		}
		for range r.List(f, thrift.Struct) {
			var size, first int64
			off := int64(-1)
			r.Struct(func(f thrift.Field) {
				switch f.ID {
				case 1:
					off = r.Int(f, thrift.I64, end, end)
				case 2:
					size = r.Int(f, thrift.I32, minPageBytes, min(MaxPageBytes, m.off+m.bytes-end))
				case 3:
					first = r.Int(f, thrift.I64, next, m.groupRows-1)
				default:
					r.Fail("a page location", f.ID)
				}
			})
			if r.Err() == nil && (off < 0 || size == 0 || (first == 0) != (len(rows) == 0) || (len(rows) > 0 && first-rows[len(rows)-1] > maxPageRows)) {
				r.Fail("a page location", fmt.Sprintf("offset %d, %d bytes, first row %d", off, size, first))
			}
			if r.Err() != nil {
				return
			}
			offs, rows = append(offs, off), append(rows, first)
			end, next = end+size, first+1
		}
	})
	if r.Err() == nil && (len(offs) == 0 || end != m.off+m.bytes || m.groupRows-rows[len(rows)-1] > maxPageRows) {
		r.Fail(fmt.Sprintf("pages up to byte %d", m.off+m.bytes), end)
	}
	return append(offs, end), append(rows, m.groupRows), r.Close()
}

// sumPages reads the pages of one column of one row group, checks their headers and Parquet's
// checksums, and fills in the blocks' own.
func sumPages(r io.ReaderAt, blocks []PageIndexBlock, col Column, part string) error {
	var buf []byte
	var bufOff int64
	last := blocks[len(blocks)-1].cols[col].offs
	end := last[len(last)-1]
	for i := range blocks {
		b := &blocks[i]
		run := &b.cols[col]
		for p := range run.sums {
			off, size := run.offs[p], run.offs[p+1]-run.offs[p]
			if off+size > bufOff+int64(len(buf)) {
				bufOff = off
				buf = slices.Grow(buf[:0], int(min(end-off, max(size, indexReadBytes))))[:min(end-off, max(size, indexReadBytes))]
				if n, err := r.ReadAt(buf, off); n < len(buf) {
					return fmt.Errorf("read %s: %w", part, err)
				}
			}
			raw := buf[off-bufOff:][:size]
			h, err := readPageHeader(raw, col, int(b.starts[p+1]-b.starts[p]), part, pageSection(col))
			if err != nil {
				return rebase(err, off)
			}
			if got := crc32.ChecksumIEEE(raw[h.size:]); got != h.crc {
				return codec.Corrupt(part, pageSection(col), off, fmt.Sprintf("crc32 %08x", h.crc), fmt.Sprintf("%08x", got))
			}
			run.sums[p] = codec.CRC32C(raw)
		}
	}
	return nil
}
