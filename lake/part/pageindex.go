package part

import (
	"encoding/binary"
	"fmt"
	"math"
	"sort"

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
	MaxRowGroups = math.MaxInt16
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

	Starts []int64 // first row of each page relative to FirstRow, then the block's rows
	Cols   [NumColumns]PageRun
}

// pageRun is one column's pages: page i lies at offs[i] up to offs[i+1].
type PageRun struct {
	Offs []int64
	Sums []uint32 // CRC-32C of header and data
}

// Pages is the number of pages a column has in the block.
func (b *PageIndexBlock) Pages() int { return len(b.Starts) - 1 }

// Rows is the number of rows the block covers.
func (b *PageIndexBlock) Rows() int64 { return b.Starts[len(b.Starts)-1] }

// Page returns the rows of the page that holds row: first up to end, counted in the row group like
// FirstRow. The block has to cover row.
func (b *PageIndexBlock) Page(row int64) (first, end int64) {
	rel := row - b.FirstRow
	i := sort.Search(b.Pages(), func(i int) bool { return b.Starts[i+1] > rel })
	return b.FirstRow + b.Starts[i], b.FirstRow + b.Starts[i+1]
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
		dst = codec.AppendUvarint(dst, uint64(b.Starts[i+1]-b.Starts[i]))
	}
	for c := range b.Cols {
		run := &b.Cols[c]
		dst = codec.AppendUvarint(dst, uint64(run.Offs[0]))
		for i := range n {
			dst = codec.AppendUvarint(dst, uint64(run.Offs[i+1]-run.Offs[i]))
		}
		for _, sum := range run.Sums {
			dst = codec.AppendU32(dst, sum)
		}
	}
	return dst
}

// newPageIndexBlock is a block of n pages with room for everything in two allocations.
func NewPageIndexBlock(rowGroup int, firstRow int64, n int) *PageIndexBlock {
	b := &PageIndexBlock{RowGroup: rowGroup, FirstRow: firstRow}
	wide := make([]int64, (n+1)*(NumColumns+1))
	sums := make([]uint32, n*NumColumns)
	b.Starts, wide = wide[:n+1:n+1], wide[n+1:]
	for c := range b.Cols {
		b.Cols[c].Offs, wide = wide[:n+1:n+1], wide[n+1:]
		b.Cols[c].Sums, sums = sums[:n:n], sums[n:]
	}
	return b
}

// DecodePageIndexBlock decodes a block that is all of data; file names where it was read. The block
// does not keep data.
func DecodePageIndexBlock(data []byte, file string) (*PageIndexBlock, error) {
	d := codec.NewDecoder(data, file, "page index block")
	rowGroup := int(d.Uint(MaxRowGroups))
	firstRow := int64(d.Uint(maxRows))
	n := int(d.Uint(PageIndexPages))
	if d.Err() == nil && n == 0 {
		d.Fail("at least one page", 0)
	}
	if d.Err() != nil {
		return nil, d.Err()
	}
	b := NewPageIndexBlock(rowGroup, firstRow, n)
	for i := range n {
		rows := int64(d.Uint(maxPageRows))
		if d.Err() == nil && rows == 0 {
			d.Fail("a page with rows", 0)
		}
		b.Starts[i+1] = b.Starts[i] + rows
	}
	var end int64 = int64(len(ParquetMagic))
	for c := range b.Cols {
		run := &b.Cols[c]
		run.Offs[0] = int64(d.Uint(maxFileBytes))
		if d.Err() == nil && run.Offs[0] < end {
			d.Fail(fmt.Sprintf("pages of %s from byte %d on", Column(c), end), run.Offs[0])
		}
		for i := range n {
			size := int64(d.Uint(MaxPageBytes))
			if d.Err() == nil && size < minPageBytes {
				d.Fail(fmt.Sprintf("a page of at least %d bytes", minPageBytes), size)
			}
			run.Offs[i+1] = run.Offs[i] + size
		}
		end = run.Offs[n]
		if sums := d.Bytes(4 * n); sums != nil {
			for i := range n {
				run.Sums[i] = binary.LittleEndian.Uint32(sums[4*i:])
			}
		}
	}
	if err := d.Close(); err != nil {
		return nil, err
	}
	return b, nil
}
