package segment

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"math"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/seekable"
)

// partsFence is the width of a fence of parts.idx: file_id, row_group and first_row.
const partsFence = 16

// putPartsFence writes bytes that sort like (file_id, row_group, first_row).
func putPartsFence(f *[partsFence]byte, file, rowGroup uint32, firstRow int64) {
	binary.BigEndian.PutUint32(f[:], file)
	binary.BigEndian.PutUint32(f[4:], rowGroup)
	binary.BigEndian.PutUint64(f[8:], uint64(firstRow))
}

// PartsWriter writes parts.idx.zst: one page index block per frame, in the order of files, row
// groups and rows.
type PartsWriter struct{ fw *seekable.Writer }

// NewPartsWriter returns a PartsWriter that writes to w.
func NewPartsWriter(w io.Writer) *PartsWriter {
	p := &PartsWriter{seekable.NewWriter(w, partsFence)}
	p.fw.SetConcurrency(framesAhead())
	return p
}

// Add writes the next block; data is the encoding of b.
func (w *PartsWriter) Add(file uint32, b *part.PageIndexBlock, data []byte) error {
	var fence [partsFence]byte
	putPartsFence(&fence, file, uint32(b.RowGroup), b.FirstRow)
	_, _, err := w.fw.Frame(fence[:], data)
	return err
}

// Finish writes the footer.
func (w *PartsWriter) Finish() (seekable.File, error) { return w.fw.Finish() }

// decodePages decodes frame i of parts.idx and compares it with its fence.
func (s *Segment) decodePages(i int, data []byte) (*part.PageIndexBlock, int64, error) {
	b, err := part.DecodePageIndexBlock(data, s.parts.key)
	if err != nil {
		return nil, 0, err
	}
	var fence [partsFence]byte
	got := s.parts.Fence(i)
	putPartsFence(&fence, binary.BigEndian.Uint32(got), uint32(b.RowGroup), b.FirstRow)
	if !bytes.Equal(fence[:], got) {
		want := fmt.Sprintf("fence %x", fence)
		return nil, 0, codec.Corrupt(s.parts.key, frameSection(i), -1, want, fmt.Sprintf("%x", got))
	}
	return b, b.MemoryBytes(), nil
}

// PageBlocks returns the page index blocks of the rows [firstRow, firstRow+rows) of a row group of
// a file. The blocks follow each other without a gap. PageBlocks makes at most one read.
func (s *Segment) PageBlocks(
	ctx context.Context, file, rowGroup uint32, firstRow, rows int64,
) ([]*part.PageIndexBlock, error) {
	if firstRow < 0 || rows < 1 || firstRow > math.MaxInt64-rows {
		return nil, fmt.Errorf("page index of file %d: %d rows from row %d", file, rows, firstRow)
	}
	var first, last [partsFence]byte
	putPartsFence(&first, file, rowGroup, firstRow)
	putPartsFence(&last, file, rowGroup, firstRow+rows-1)
	lo, hi := s.parts.Find(first[:], last[:])
	if lo == hi || !bytes.Equal(s.parts.Fence(lo)[:8], first[:8]) {
		want := fmt.Sprintf("row group %d of file %d", rowGroup, file)
		return nil, codec.Corrupt(s.parts.key, "fences", -1, want, "none")
	}
	blocks, err := loadRange(ctx, s.parts, s.cache, lo, hi, s.decodePages)
	if err != nil {
		return nil, err
	}
	at := blocks[0].FirstRow
	for i, b := range blocks {
		if b.FirstRow != at {
			want := fmt.Sprintf("first row %d", at)
			return nil, codec.Corrupt(s.parts.key, frameSection(lo+i), -1, want, b.FirstRow)
		}
		at += b.Rows()
	}
	if at < firstRow+rows {
		want := fmt.Sprintf("rows up to %d", firstRow+rows)
		return nil, codec.Corrupt(s.parts.key, frameSection(hi-1), -1, want, at)
	}
	return blocks, nil
}

// PartPages is a page index block and the file whose pages it describes.
type PartPages struct {
	File uint32
	*part.PageIndexBlock
}

// Pages yields all page index blocks in order. An error is the last thing yielded. Pages bypasses
// the cache.
func (s *Segment) Pages(ctx context.Context) iter.Seq2[PartPages, error] {
	return func(yield func(PartPages, error) bool) {
		for f, err := range s.parts.scan(ctx, 0, s.parts.Len()) {
			if err != nil {
				yield(PartPages{}, err)
				return
			}
			b, _, err := s.decodePages(f.number, f.data)
			if err != nil {
				yield(PartPages{}, err)
				return
			}
			if !yield(PartPages{binary.BigEndian.Uint32(s.parts.Fence(f.number)), b}, nil) {
				return
			}
		}
	}
}
