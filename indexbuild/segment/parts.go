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

const (
	// partsVersion is the version of parts.idx.
	partsVersion = 1

	// partsFence is the width of a fence of parts.idx: file_id, row_group and first_row.
	partsFence = 16
)

// putPartsFence writes bytes that sort like (file_id, row_group, first_row).
func putPartsFence(f *[partsFence]byte, file, rowGroup uint32, firstRow int64) {
	binary.BigEndian.PutUint32(f[:], file)
	binary.BigEndian.PutUint32(f[4:], rowGroup)
	binary.BigEndian.PutUint64(f[8:], uint64(firstRow))
}

// PartsWriter writes parts.idx.zst: page index blocks in the order of files, row groups and rows.
type PartsWriter struct{ blocks *blockWriter }

// NewPartsWriter returns a PartsWriter that writes to w.
func NewPartsWriter(w io.Writer) *PartsWriter { return &PartsWriter{newBlockWriter(w, "parts.idx")} }

// Add writes the next block; data is the encoding of b.
func (w *PartsWriter) Add(file uint32, b *part.PageIndexBlock, data []byte) error {
	return w.blocks.add(file, uint32(b.RowGroup), b.FirstRow, data)
}

// Finish writes the footer.
func (w *PartsWriter) Finish() (seekable.File, error) { return w.blocks.finish() }

// blockWriter writes a frame file of blocks about pages of parts, in the order of files, row groups
// and rows. A frame has as many blocks as fit into BlockBytes.
type blockWriter struct {
	name  string // for errors
	fw    *seekable.Writer
	frame []byte
	fence [partsFence]byte // of the frame
	last  [partsFence]byte
	n     int
}

func newBlockWriter(w io.Writer, name string) *blockWriter {
	b := &blockWriter{name: name, fw: seekable.NewWriter(w, partsFence)}
	b.fw.SetConcurrency(framesAhead())
	return b
}

func (w *blockWriter) add(file, rowGroup uint32, firstRow int64, data []byte) error {
	var fence [partsFence]byte
	putPartsFence(&fence, file, rowGroup, firstRow)
	if w.n > 0 && bytes.Compare(w.last[:], fence[:]) >= 0 {
		return fmt.Errorf("%s: block %x after %x", w.name, fence, w.last)
	}
	w.last = fence
	w.n++
	if len(w.frame) > 0 && len(w.frame)+len(data) > BlockBytes {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if len(w.frame) == 0 {
		w.fence = fence
	}
	w.frame = codec.AppendUvarint(w.frame, uint64(file-binary.BigEndian.Uint32(w.fence[:])))
	w.frame = codec.AppendUvarint(w.frame, uint64(len(data)))
	w.frame = append(w.frame, data...)
	return nil
}

func (w *blockWriter) flush() error {
	if len(w.frame) == 0 {
		return nil
	}
	_, _, err := w.fw.Frame(w.fence[:], w.frame)
	w.frame = w.frame[:0]
	return err
}

func (w *blockWriter) finish() (seekable.File, error) {
	if err := w.flush(); err != nil {
		return seekable.File{}, err
	}
	return w.fw.Finish()
}

// eachBlock decodes frame i of a file that a blockWriter wrote. It calls add with each block and
// the number of its file; add returns the block's row group and first row. They have to ascend from
// the frame's fence on.
func (f *frames) eachBlock(i int, data []byte, add func(file uint32, data []byte) (rowGroup uint32, firstRow int64, err error)) error {
	fence := f.Fence(i)
	first := binary.BigEndian.Uint32(fence)
	d := codec.NewDecoder(data, f.key, frameSection(i))
	var last [partsFence]byte
	for n := 0; d.Err() == nil && d.Len() > 0; n++ {
		file := first + uint32(d.Uint(uint64(math.MaxUint32-first)))
		block := d.Bytes(int(d.Uint(uint64(d.Len()))))
		if d.Err() != nil {
			break
		}
		rowGroup, firstRow, err := add(file, block)
		if err != nil {
			return err
		}
		var own [partsFence]byte
		putPartsFence(&own, file, rowGroup, firstRow)
		if n == 0 && !bytes.Equal(own[:], fence) {
			return codec.Corrupt(f.key, frameSection(i), -1, fmt.Sprintf("fence %x", own), fmt.Sprintf("%x", fence))
		}
		if n > 0 && bytes.Compare(last[:], own[:]) >= 0 {
			return codec.Corrupt(f.key, frameSection(i), -1, fmt.Sprintf("a block after %x", last), fmt.Sprintf("%x", own))
		}
		last = own
	}
	return d.Close()
}

// decodePages decodes frame i of parts.idx and compares it with its fence.
func (s *Segment) decodePages(i int, data []byte) (blocks []PartPages, memory int64, err error) {
	add := func(file uint32, data []byte) (rowGroup uint32, firstRow int64, err error) {
		b, err := part.DecodePageIndexBlock(data, s.parts.key)
		if err != nil {
			return 0, 0, err
		}
		blocks = append(blocks, PartPages{file, b})
		memory += b.MemoryBytes()
		return uint32(b.RowGroup), b.FirstRow, nil
	}
	err = s.parts.eachBlock(i, data, add)
	return blocks, memory, err
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
	if lo == hi {
		want := fmt.Sprintf("row group %d of file %d", rowGroup, file)
		return nil, codec.Corrupt(s.parts.key, "fences", -1, want, "none")
	}
	frames, err := loadRange(ctx, s.parts, s.cache, lo, hi, s.decodePages)
	if err != nil {
		return nil, err
	}
	var blocks []*part.PageIndexBlock
	end := firstRow + rows
	for _, frame := range frames {
		for _, b := range frame {
			if b.File == file && b.RowGroup == int(rowGroup) && b.FirstRow < end && b.FirstRow+b.Rows() > firstRow {
				blocks = append(blocks, b.PageIndexBlock)
			}
		}
	}
	section := frameSection(lo)
	if len(blocks) == 0 || blocks[0].FirstRow > firstRow {
		want := fmt.Sprintf("rows from %d of row group %d of file %d", firstRow, rowGroup, file)
		return nil, codec.Corrupt(s.parts.key, section, -1, want, fmt.Sprintf("%d blocks", len(blocks)))
	}
	at := blocks[0].FirstRow
	for _, b := range blocks {
		if b.FirstRow != at {
			want := fmt.Sprintf("first row %d", at)
			return nil, codec.Corrupt(s.parts.key, section, -1, want, b.FirstRow)
		}
		at += b.Rows()
	}
	if at < end {
		want := fmt.Sprintf("rows up to %d", end)
		return nil, codec.Corrupt(s.parts.key, section, -1, want, at)
	}
	return blocks, nil
}

// PartBlocks returns all page index blocks of a file, in the order of its rows. It makes at most
// one read.
func (s *Segment) PartBlocks(ctx context.Context, file uint32) ([]*part.PageIndexBlock, error) {
	f, err := s.File(ctx, file)
	if err != nil {
		return nil, err
	}
	var first, last [partsFence]byte
	putPartsFence(&first, file, 0, 0)
	putPartsFence(&last, file, math.MaxUint32, math.MaxInt64)
	lo, hi := s.parts.Find(first[:], last[:])
	frames, err := loadRange(ctx, s.parts, s.cache, lo, hi, s.decodePages)
	if err != nil {
		return nil, err
	}
	var blocks []*part.PageIndexBlock
	group, row, rows := 0, int64(0), int64(0)
	for _, frame := range frames {
		for _, b := range frame {
			if b.File != file {
				continue
			}
			if b.RowGroup == group+1 && row > 0 {
				group, row = b.RowGroup, 0
			}
			if b.RowGroup != group || b.FirstRow != row {
				return nil, codec.Corrupt(s.parts.key, frameSection(lo), -1,
					fmt.Sprintf("row %d of row group %d of file %d", row, group, file),
					fmt.Sprintf("row %d of row group %d", b.FirstRow, b.RowGroup))
			}
			row += b.Rows()
			rows += b.Rows()
			blocks = append(blocks, b.PageIndexBlock)
		}
	}
	if rows != f.Rows {
		return nil, codec.Corrupt(s.parts.key, frameSection(lo), -1, fmt.Sprintf("%d rows of file %d", f.Rows, file), rows)
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
			blocks, _, err := s.decodePages(f.number, f.data)
			if err != nil {
				yield(PartPages{}, err)
				return
			}
			for _, b := range blocks {
				if !yield(b, nil) {
					return
				}
			}
		}
	}
}
