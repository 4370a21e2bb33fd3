package part

import (
	"encoding/binary"
	"fmt"
	"math"
	"sort"

	"github.com/urlake/urlake/lake/codec"
)

// A server reads rows without opening a Parquet footer. The page index, kept in a segment's
// parts.idx.zst, has the offset, size and checksum of every page, and a reader fetches exactly the
// pages that it needs. The checksums cover page headers too. Parquet's own checksums do not, and a
// flipped bit in a header can produce wrong rows without an error.

const (
	// PageIndexPages is the most pages one block describes. A block is fetched and decoded as a
	// whole; a full one covers one or two million rows in about 25 KB.
	PageIndexPages = 256

	// maxPageBytes bounds a page before and after decompression. A reader allocates that much
	// because an index says so. A writer stays below: a page ends at PageColumnBytes, and no value
	// is longer than row.MaxKey.
	maxPageBytes = 16 << 20

	// maxPageRows, maxRows and maxFileBytes bound the other numbers of an index, so that their sums
	// cannot overflow. maxRowGroups is the limit of Parquet, which numbers row groups by an int16.
	maxPageRows  = 1 << 20
	maxRows      = 1 << 40
	maxFileBytes = 1 << 40
	maxRowGroups = math.MaxInt16

	// minPageBytes is less than the size of any page header.
	minPageBytes = 8
)

// PageIndexBlock describes consecutive pages of one row group in all columns. Pages end at the same
// row in every column. A complete block is immutable and safe for concurrent use.
type PageIndexBlock struct {
	// RowGroup is the row group's number in the part, from 0.
	RowGroup int
	// FirstRow is the row of the row group with which the block's first page starts.
	FirstRow int64

	starts []int64 // first row of each page relative to FirstRow, then the block's rows
	cols   [NumColumns]pageRun
}

// pageRun is the pages of one column: page i has the bytes from offsets[i] to offsets[i+1].
type pageRun struct {
	offsets []int64
	sums    []uint32 // CRC-32C of header and data
}

// NewPageIndex returns the blocks of a row group whose page i starts at row starts[i]. The last
// element of starts is the number of rows. The caller fills in all pages with SetPage.
func NewPageIndex(rowGroup int, starts []int64) []PageIndexBlock {
	var blocks []PageIndexBlock
	pages := len(starts) - 1
	for from := 0; from < pages; from += PageIndexPages {
		b := newPageIndexBlock(rowGroup, starts[from], min(PageIndexPages, pages-from))
		for i := range b.starts {
			b.starts[i] = starts[from+i] - b.FirstRow
		}
		blocks = append(blocks, *b)
	}
	return blocks
}

// newPageIndexBlock allocates a block of n pages in two pieces.
func newPageIndexBlock(rowGroup int, firstRow int64, n int) *PageIndexBlock {
	b := &PageIndexBlock{RowGroup: rowGroup, FirstRow: firstRow}
	wide := make([]int64, (n+1)*(NumColumns+1))
	sums := make([]uint32, n*NumColumns)
	b.starts, wide = wide[:n+1:n+1], wide[n+1:]
	for c := range b.cols {
		b.cols[c].offsets, wide = wide[:n+1:n+1], wide[n+1:]
		b.cols[c].sums, sums = sums[:n:n], sums[n:]
	}
	return b
}

// SetPage sets the location of page i of a column, and the CRC-32C of its header and data. Pages of
// a column follow each other without a gap.
func (b *PageIndexBlock) SetPage(col Column, i int, offset, size int64, sum uint32) {
	run := &b.cols[col]
	run.offsets[i], run.offsets[i+1], run.sums[i] = offset, offset+size, sum
}

// Pages is the number of pages a column has in the block.
func (b *PageIndexBlock) Pages() int { return len(b.starts) - 1 }

// Rows is the number of rows the block covers.
func (b *PageIndexBlock) Rows() int64 { return b.starts[len(b.starts)-1] }

// PageStart is the first row of page i relative to FirstRow. PageStart(Pages()) is Rows().
func (b *PageIndexBlock) PageStart(i int) int64 { return b.starts[i] }

// PageOffset is the offset in the part at which page i of a column starts. PageOffset(col, Pages())
// is the end of the last page.
func (b *PageIndexBlock) PageOffset(col Column, i int) int64 { return b.cols[col].offsets[i] }

// pageSum is the CRC-32C of header and data of page i of a column.
func (b *PageIndexBlock) pageSum(col Column, i int) uint32 { return b.cols[col].sums[i] }

// Page returns the rows [first, end) of the page that holds row. All three are counted in the row
// group, like FirstRow. The block has to cover row.
func (b *PageIndexBlock) Page(row int64) (first, end int64) {
	rel := row - b.FirstRow
	i := sort.Search(b.Pages(), func(i int) bool { return b.starts[i+1] > rel })
	return b.FirstRow + b.starts[i], b.FirstRow + b.starts[i+1]
}

// MemoryBytes is the approximate size of the block in memory.
func (b *PageIndexBlock) MemoryBytes() int64 {
	return int64(b.Pages()*(8*(NumColumns+1)+4*NumColumns) + 1024)
}

// Append appends the encoded block to dst, as described in docs/formats/page-index.md.
func (b *PageIndexBlock) Append(dst []byte) []byte {
	n := b.Pages()
	dst = codec.AppendUvarint(dst, uint64(b.RowGroup))
	dst = codec.AppendUvarint(dst, uint64(b.FirstRow))
	dst = codec.AppendUvarint(dst, uint64(n))
	for i := range n {
		dst = codec.AppendUvarint(dst, uint64(b.starts[i+1]-b.starts[i]))
	}
	dst = codec.AppendUvarint(dst, uint64(NumColumns))
	for c := range b.cols {
		run := &b.cols[c]
		dst = codec.AppendUvarint(dst, uint64(run.offsets[0]))
		for i := range n {
			dst = codec.AppendUvarint(dst, uint64(run.offsets[i+1]-run.offsets[i]))
		}
		for _, sum := range run.sums {
			dst = codec.AppendU32(dst, sum)
		}
	}
	return dst
}

// DecodePageIndexBlock decodes a block that takes up all of data. Errors name file as the source.
// The block does not keep data.
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
	if columns := d.Uint(math.MaxUint16); d.Err() == nil && columns != uint64(NumColumns) {
		d.Fail(fmt.Sprintf("%d columns", NumColumns), columns)
	}
	end := int64(len(parquetMagic))
	for c := range b.cols {
		run := &b.cols[c]
		run.offsets[0] = int64(d.Uint(maxFileBytes))
		if d.Err() == nil && run.offsets[0] < end {
			d.Fail(fmt.Sprintf("pages of %s from byte %d on", Column(c), end), run.offsets[0])
		}
		for i := range n {
			size := int64(d.Uint(maxPageBytes))
			if d.Err() == nil && size < minPageBytes {
				d.Fail(fmt.Sprintf("a page of at least %d bytes", minPageBytes), size)
			}
			run.offsets[i+1] = run.offsets[i] + size
		}
		end = run.offsets[n]
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
