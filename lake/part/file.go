package part

import (
	"fmt"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/codec"
)

// rowGroup counts the open row group.
type rowGroup struct {
	rows int64
	raw  int64 // bytes before compression, without page headers
}

// partFile is the open part.
type partFile struct {
	spool  *spool // nil before the first row group
	rows   int64
	raw    int64
	groups []format.RowGroup
	colIdx [][NumColumns]format.ColumnIndex
	offIdx [][NumColumns]format.OffsetIndex
	blocks []PageIndexBlock
	keys   []PageKeyBlock
}

// endGroup appends the chunks of the open row group to the part and adds their metadata.
func (w *Writer) endGroup() error {
	if w.group.rows == 0 {
		return nil
	}
	f := &w.file
	g := len(f.groups)
	if g == 0 {
		f.spool = newSpool()
		if err := w.write([]byte(parquetMagic)); err != nil {
			return err
		}
	}
	pages := w.cols[0].pages
	starts := make([]int64, 1, len(pages)+1)
	for i, page := range pages {
		starts = append(starts, starts[i]+int64(page.rows))
	}
	blocks := NewPageIndex(g, starts)
	group := format.RowGroup{
		NumRows:    w.group.rows,
		FileOffset: f.spool.size,
		Ordinal:    int16(g),
	}
	for _, c := range sortOrder {
		group.SortingColumns = append(group.SortingColumns, format.SortingColumn{ColumnIdx: int32(c), NullsFirst: true})
	}
	var colIdx [NumColumns]format.ColumnIndex
	var offIdx [NumColumns]format.OffsetIndex
	for i := range w.cols {
		c := &w.cols[i]
		meta := w.describeChunk(Column(i), &colIdx[i], &offIdx[i])
		group.Columns = append(group.Columns, format.ColumnChunk{MetaData: meta})
		group.TotalByteSize += meta.TotalUncompressedSize
		group.TotalCompressedSize += meta.TotalCompressedSize
		off := f.spool.size
		for p, page := range c.pages {
			b := &blocks[p/PageIndexPages]
			b.SetPage(Column(i), p%PageIndexPages, off, int64(page.bytes), page.sum)
			off += int64(page.bytes)
		}
		if err := w.write(c.blocks...); err != nil {
			return err
		}
		c.blocks, c.pages = c.blocks[:0], c.pages[:0]
	}
	f.blocks = append(f.blocks, blocks...)
	f.keys = append(f.keys, NewPageKeys(g, starts, w.pageKeys)...)
	w.pageKeys = nil
	f.groups = append(f.groups, group)
	f.colIdx = append(f.colIdx, colIdx)
	f.offIdx = append(f.offIdx, offIdx)
	f.rows += w.group.rows
	f.raw += w.group.raw
	w.group = rowGroup{}
	if f.spool.file != nil {
		w.freeSlabs()
	}
	return nil
}

// describeChunk returns the metadata of one column of the open row group, which starts at the end
// of the file, and fills in its column and offset index.
func (w *Writer) describeChunk(
	col Column, idx *format.ColumnIndex, off *format.OffsetIndex,
) format.ColumnMetaData {
	c := &w.cols[col]
	encoding := format.Encoding(col.encoding())
	meta := format.ColumnMetaData{
		Type:           col.kind(),
		Encoding:       thrift.Slice[format.Encoding]{encoding},
		PathInSchema:   thrift.Slice[string]{col.String()},
		Codec:          col.compression(),
		NumValues:      w.group.rows,
		DataPageOffset: w.file.spool.size,
		EncodingStats: thrift.Slice[format.PageEncodingStats]{
			{PageType: format.DataPageV2, Encoding: encoding, Count: int32(len(c.pages))}},
	}
	if col.optional() {
		meta.Encoding = append(meta.Encoding, format.RLE) // of the definition levels
	}
	var lo, hi []byte
	var row int64
	for _, p := range c.pages {
		off.PageLocations = append(off.PageLocations, format.PageLocation{
			Offset:             w.file.spool.size + meta.TotalCompressedSize,
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
		if lo == nil || compareBounds(col.kind(), p.min, lo) < 0 {
			lo = p.min
		}
		if hi == nil || compareBounds(col.kind(), p.max, hi) > 0 {
			hi = p.max
		}
	}
	meta.Statistics.MinValue, meta.Statistics.MaxValue = lo, hi
	idx.BoundaryOrder = boundaryOrder(col.kind(), idx)
	return meta
}

// boundaryOrder says whether the bounds of a column's pages ascend or descend. Pages of nulls do
// not count.
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

// write appends blocks to the part and takes ownership of them. It fails if the context has ended.
func (w *Writer) write(blocks ...[]byte) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	free, err := w.file.spool.write(blocks...)
	w.recycle(free)
	return err
}

// recycle keeps free blocks for later chunks. Blocks of another size are pieces of slabs or
// metadata.
func (w *Writer) recycle(blocks [][]byte) {
	for _, b := range blocks {
		if cap(b) == chunkBlock {
			w.chunkPool = append(w.chunkPool, b)
		}
	}
}

// dropPart drops the open part, if there is one, and its memory and temporary file.
func (w *Writer) dropPart() {
	if w.file.spool != nil {
		w.recycle(w.file.spool.close())
	}
	w.file = partFile{}
	w.freeSlabs()
}

// endPart ends the open part and stores it.
func (w *Writer) endPart() error {
	if err := w.closePart(); err != nil {
		return err
	}
	return w.storePart()
}

// closePart ends the open row group and completes the part's file with indexes and footer. Then its
// key is known.
func (w *Writer) closePart() error {
	if err := w.endGroup(); err != nil {
		return err
	}
	f := &w.file
	if f.spool == nil {
		return nil
	}
	for g := range f.groups {
		for c := range f.groups[g].Columns {
			b := marshalThrift(f.colIdx[g][c])
			chunk := &f.groups[g].Columns[c]
			chunk.ColumnIndexOffset, chunk.ColumnIndexLength = f.spool.size, int32(len(b))
			if err := w.write(b); err != nil {
				return err
			}
		}
	}
	for g := range f.groups {
		for c := range f.groups[g].Columns {
			b := marshalThrift(f.offIdx[g][c])
			chunk := &f.groups[g].Columns[c]
			chunk.OffsetIndexOffset, chunk.OffsetIndexLength = f.spool.size, int32(len(b))
			if err := w.write(b); err != nil {
				return err
			}
		}
	}
	meta := format.FileMetaData{
		Version:   2,
		Schema:    schemaElements(),
		NumRows:   f.rows,
		RowGroups: f.groups,
		CreatedBy: createdBy,
	}
	if len(f.keys) > 0 {
		keys := appendPageKeys(nil, f.keys)
		name, value := pageKeysMetadata(keys, f.spool.size)
		meta.KeyValueMetadata = append(meta.KeyValueMetadata, format.KeyValue{Key: name, Value: value})
		if err := w.write(keys); err != nil {
			return err
		}
	}
	for range NumColumns {
		meta.ColumnOrders = append(meta.ColumnOrders, format.ColumnOrder{Value: &format.TypeDefinedOrder{}})
	}
	footer := marshalThrift(meta)
	footer = codec.AppendU32(footer, uint32(len(footer)))
	if err := w.write(append(footer, parquetMagic...)); err != nil {
		return err
	}
	w.parts = append(w.parts, Written{
		Part: lake.Part{
			Object: lake.Object{
				Key: lake.PartKey(w.opt.Dataset, w.opt.Prefix, w.opt.Batch,
					lake.FormatDigest(f.spool.xxh3.Sum128()), len(w.parts)),
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

// storePart verifies the file that closePart completed last and copies it to its key in the store.
// If there is none, or it is stored, storePart does nothing.
func (w *Writer) storePart() error {
	f := &w.file
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
