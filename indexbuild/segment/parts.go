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
	// 1: first. Each frame is one block.
	// 2: a frame has as many blocks as fit into BlockBytes.
	partsVersion = 2

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
type PartsWriter struct {
	fw    *seekable.Writer
	frame []byte
	fence [partsFence]byte // of the frame
	last  [partsFence]byte
	n     int
}

// NewPartsWriter returns a PartsWriter that writes to w.
func NewPartsWriter(w io.Writer) *PartsWriter {
	p := &PartsWriter{fw: seekable.NewWriter(w, partsFence)}
	p.fw.SetConcurrency(framesAhead())
	return p
}

// Add writes the next block; data is the encoding of b.
func (w *PartsWriter) Add(file uint32, b *part.PageIndexBlock, data []byte) error {
	var fence [partsFence]byte
	putPartsFence(&fence, file, uint32(b.RowGroup), b.FirstRow)
	if w.n > 0 && bytes.Compare(w.last[:], fence[:]) >= 0 {
		return fmt.Errorf("parts.idx: block %x after %x", fence, w.last)
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

func (w *PartsWriter) flush() error {
	if len(w.frame) == 0 {
		return nil
	}
	_, _, err := w.fw.Frame(w.fence[:], w.frame)
	w.frame = w.frame[:0]
	return err
}

// Finish writes the footer.
func (w *PartsWriter) Finish() (seekable.File, error) {
	if err := w.flush(); err != nil {
		return seekable.File{}, err
	}
	return w.fw.Finish()
}

// decodePages decodes frame i of parts.idx and compares it with its fence.
func (s *Segment) decodePages(i int, data []byte) (blocks []PartPages, memory int64, err error) {
	fence := s.parts.Fence(i)
	file := binary.BigEndian.Uint32(fence)
	add := func(file uint32, data []byte) error {
		b, err := part.DecodePageIndexBlock(data, s.parts.key)
		if err != nil {
			return err
		}
		var own, last [partsFence]byte
		putPartsFence(&own, file, uint32(b.RowGroup), b.FirstRow)
		if n := len(blocks); n == 0 {
			if !bytes.Equal(own[:], fence) {
				return codec.Corrupt(s.parts.key, frameSection(i), -1, fmt.Sprintf("fence %x", own), fmt.Sprintf("%x", fence))
			}
		} else {
			putPartsFence(&last, blocks[n-1].File, uint32(blocks[n-1].RowGroup), blocks[n-1].FirstRow)
			if bytes.Compare(last[:], own[:]) >= 0 {
				return codec.Corrupt(s.parts.key, frameSection(i), -1, fmt.Sprintf("a block after %x", last), fmt.Sprintf("%x", own))
			}
		}
		blocks = append(blocks, PartPages{file, b})
		memory += b.MemoryBytes()
		return nil
	}
	if s.info.File(PartsName).Format < partsVersion {
		err := add(file, data)
		return blocks, memory, err
	}
	d := codec.NewDecoder(data, s.parts.key, frameSection(i))
	for d.Err() == nil && d.Len() > 0 {
		number := file + uint32(d.Uint(uint64(math.MaxUint32-file)))
		block := d.Bytes(int(d.Uint(uint64(d.Len()))))
		if d.Err() != nil {
			break
		}
		if err := add(number, block); err != nil {
			return nil, 0, err
		}
	}
	return blocks, memory, d.Close()
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
