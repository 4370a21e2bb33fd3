package partwriter

import (
	"fmt"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
)

// partGroup is the open row group.
type partGroup struct {
	rows int64
	raw  int64 // bytes before compression, without headers
}

// partFile is the open part.
type partFile struct {
	spool  *spool // nil before the first row group
	rows   int64
	raw    int64
	groups []format.RowGroup
	colIdx [][part.NumColumns]format.ColumnIndex
	offIdx [][part.NumColumns]format.OffsetIndex
	blocks []part.PageIndexBlock
}

// endGroup adds the open row group to the part.
func (w *Writer) endGroup() error {
	if w.group.rows == 0 {
		return nil
	}
	f := &w.part
	g := len(f.groups)
	if g == 0 {
		f.spool = newSpool()
		if err := w.write([]byte(part.ParquetMagic)); err != nil {
			return err
		}
	}
	pages := w.cols[0].pages
	firstBlock := len(f.blocks)
	var row int64
	for from := 0; from < len(pages); from += part.PageIndexPages {
		b := part.NewPageIndexBlock(g, row, min(part.PageIndexPages, len(pages)-from))
		for i := range b.Pages() {
			b.Starts[i+1] = b.Starts[i] + int64(pages[from+i].rows)
		}
		row += b.Rows()
		f.blocks = append(f.blocks, *b)
	}
	group := format.RowGroup{
		NumRows:    w.group.rows,
		FileOffset: f.spool.size,
		Ordinal:    int16(g),
	}
	for _, c := range part.SortOrder {
		group.SortingColumns = append(group.SortingColumns, format.SortingColumn{ColumnIdx: int32(c), NullsFirst: true})
	}
	var colIdx [part.NumColumns]format.ColumnIndex
	var offIdx [part.NumColumns]format.OffsetIndex
	for i := range w.cols {
		c := &w.cols[i]
		meta := w.describeChunk(part.Column(i), &colIdx[i], &offIdx[i])
		group.Columns = append(group.Columns, format.ColumnChunk{MetaData: meta})
		group.TotalByteSize += meta.TotalUncompressedSize
		group.TotalCompressedSize += meta.TotalCompressedSize
		off := f.spool.size
		for p, page := range c.pages {
			run := &f.blocks[firstBlock+p/part.PageIndexPages].Cols[i]
			run.Offs[p%part.PageIndexPages] = off
			off += int64(page.bytes)
			run.Offs[p%part.PageIndexPages+1] = off
			run.Sums[p%part.PageIndexPages] = page.sum
		}
		if err := w.write(c.chunk...); err != nil {
			return err
		}
		c.chunk, c.pages = c.chunk[:0], c.pages[:0]
	}
	f.groups = append(f.groups, group)
	f.colIdx = append(f.colIdx, colIdx)
	f.offIdx = append(f.offIdx, offIdx)
	f.rows += w.group.rows
	f.raw += w.group.raw
	w.group = partGroup{}
	if f.spool.file != nil {
		w.freeSlabs()
	}
	return nil
}

// describeChunk is the metadata of one column of the open row group, which will start at the end of the file.
func (w *Writer) describeChunk(col part.Column, idx *format.ColumnIndex, off *format.OffsetIndex) format.ColumnMetaData {
	c, def := &w.cols[col], &part.ColumnDefs[col]
	meta := format.ColumnMetaData{
		Type:           def.Kind,
		Encoding:       thrift.Slice[format.Encoding]{format.Encoding(def.Encoding())},
		PathInSchema:   thrift.Slice[string]{def.Name},
		Codec:          def.Codec,
		NumValues:      w.group.rows,
		DataPageOffset: w.part.spool.size,
		EncodingStats: thrift.Slice[format.PageEncodingStats]{
			{PageType: format.DataPageV2, Encoding: format.Encoding(def.Encoding()), Count: int32(len(c.pages))}},
	}
	if def.Optional {
		meta.Encoding = append(meta.Encoding, format.RLE) // of the definition levels
	}
	var lo, hi []byte
	var row int64
	for _, p := range c.pages {
		off.PageLocations = append(off.PageLocations, format.PageLocation{
			Offset:             w.part.spool.size + meta.TotalCompressedSize,
			CompressedPageSize: int32(p.bytes),
			FirstRowIndex:      row,
		})
		row += int64(p.rows)
		meta.TotalCompressedSize += int64(p.bytes)
		meta.TotalUncompressedSize += int64(p.rawBytes)
		meta.Statistics.NullCount += int64(p.nulls)

		empty := p.nulls == p.rows
		idx.NullPages = append(idx.NullPages, empty)
		idx.NullCounts = append(idx.NullCounts, int64(p.nulls))
		idx.MinValues = append(idx.MinValues, p.min)
		idx.MaxValues = append(idx.MaxValues, p.max)
		if empty {
			continue
		}
		if lo == nil || compareBounds(def.Kind, p.min, lo) < 0 {
			lo = p.min
		}
		if hi == nil || compareBounds(def.Kind, p.max, hi) > 0 {
			hi = p.max
		}
	}
	meta.Statistics.MinValue, meta.Statistics.MaxValue = lo, hi
	idx.BoundaryOrder = boundaryOrder(def.Kind, idx)
	return meta
}

// boundaryOrder is whether the bounds of a column's pages ascend or descend.
func boundaryOrder(kind format.Type, idx *format.ColumnIndex) format.BoundaryOrder {
	up, down, last := true, true, -1
	for i, empty := range idx.NullPages {
		if empty {
			continue
		}
		if last >= 0 {
			lo := compareBounds(kind, idx.MinValues[last], idx.MinValues[i])
			hi := compareBounds(kind, idx.MaxValues[last], idx.MaxValues[i])
			up = up && lo <= 0 && hi <= 0
			down = down && lo >= 0 && hi >= 0
		}
		last = i
	}
	switch {
	case up:
		return format.Ascending
	case down:
		return format.Descending
	}
	return format.Unordered
}

// write adds blocks, which it takes over, to the part.
func (w *Writer) write(blocks ...[]byte) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	free, err := w.part.spool.write(blocks...)
	w.recycle(free)
	return err
}

// recycle keeps blocks for chunks to come.
func (w *Writer) recycle(blocks [][]byte) {
	for _, b := range blocks {
		if cap(b) == chunkBlock {
			w.chunkPool = append(w.chunkPool, b)
		}
	}
}

// dropPart gives up the open part, if there is one.
func (w *Writer) dropPart() {
	if w.part.spool != nil {
		w.recycle(w.part.spool.close())
	}
	w.part = partFile{}
	w.freeSlabs()
}

// endPart ends the open part and stores it.
func (w *Writer) endPart() error {
	if err := w.closePart(); err != nil {
		return err
	}
	return w.storePart()
}

// closePart ends the open row group and the part's file, with which its key is known.
func (w *Writer) closePart() error {
	if err := w.endGroup(); err != nil {
		return err
	}
	f := &w.part
	if f.spool == nil {
		return nil
	}
	for g := range f.groups {
		for c := range f.groups[g].Columns {
			b := part.MarshalThrift(f.colIdx[g][c])
			chunk := &f.groups[g].Columns[c]
			chunk.ColumnIndexOffset, chunk.ColumnIndexLength = f.spool.size, int32(len(b))
			if err := w.write(b); err != nil {
				return err
			}
		}
	}
	for g := range f.groups {
		for c := range f.groups[g].Columns {
			b := part.MarshalThrift(f.offIdx[g][c])
			chunk := &f.groups[g].Columns[c]
			chunk.OffsetIndexOffset, chunk.OffsetIndexLength = f.spool.size, int32(len(b))
			if err := w.write(b); err != nil {
				return err
			}
		}
	}
	meta := format.FileMetaData{
		Version:   2,
		Schema:    part.SchemaElements(),
		NumRows:   f.rows,
		RowGroups: f.groups,
		CreatedBy: part.CreatedBy,
	}
	for range part.NumColumns {
		meta.ColumnOrders = append(meta.ColumnOrders, format.ColumnOrder{Value: &format.TypeDefinedOrder{}})
	}
	footer := part.MarshalThrift(meta)
	footer = codec.AppendU32(footer, uint32(len(footer)))
	if err := w.write(append(footer, part.ParquetMagic...)); err != nil {
		return err
	}
	w.parts = append(w.parts, part.Written{
		Part: lake.Part{
			Object: lake.Object{
				Key:   lake.PartKey(w.opt.Dataset, w.opt.Prefix, w.opt.Batch, lake.FormatDigest(f.spool.xxh3.Sum128()), len(w.parts)),
				Bytes: f.spool.size,
				XXH64: fmt.Sprintf("%016x", f.spool.xxh64.Sum64()),
			},
			DomainPrefix: w.opt.Prefix,
			Rows:         f.rows,
			RowGroups:    len(f.groups),
		},
		Blocks: f.blocks,
	})
	if w.opt.Domains == nil {
		return nil
	}
	return w.opt.Domains.EndPart(&w.parts[len(w.parts)-1])
}

// storePart checks the file of the part that was closed last, if it is not stored yet, and copies it to its key.
func (w *Writer) storePart() error {
	f := &w.part
	if f.spool == nil {
		return nil
	}
	if err := f.spool.check(f.blocks); err != nil {
		return err
	}
	key := w.parts[len(w.parts)-1].Part.Key
	out, err := w.store.Create(w.ctx, key)
	if err != nil {
		return err
	}
	defer out.Abort()
	if err := f.spool.copyTo(out); err != nil {
		return fmt.Errorf("upload %s: %w", key, err)
	}
	if _, err := out.Finish(); err != nil {
		return fmt.Errorf("upload %s: %w", key, err)
	}
	w.dropPart()
	return nil
}
