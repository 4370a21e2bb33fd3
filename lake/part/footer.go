package part

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go/format"

	"github.com/urlake/urlake/internal/thrift"
	"github.com/urlake/urlake/lake/codec"
)

// parquetMagic starts and ends a Parquet file.
const ParquetMagic = "PAR1"

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
	end := int64(len(ParquetMagic))
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
				return nil, Rebase(err, m.indexOff)
			}
			if c == 0 {
				starts = rows
				for from := 0; from < len(offs)-1; from += PageIndexPages {
					b := NewPageIndexBlock(g, rows[from], min(PageIndexPages, len(offs)-1-from))
					for i := range b.Starts {
						b.Starts[i] = rows[from+i] - rows[from]
					}
					blocks = append(blocks, *b)
				}
			} else if !slices.Equal(starts, rows) {
				return nil, codec.Corrupt(part, section, m.indexOff, "pages of the same rows as in the first column", "others")
			}
			for i := range blocks[first:] {
				copy(blocks[first+i].Cols[c].Offs, offs[i*PageIndexPages:])
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
	const trailer = 4 + len(ParquetMagic)
	bad := func(at int64, want, got any) ([][NumColumns]chunkMeta, []byte, int64, error) {
		return nil, nil, 0, codec.Corrupt(part, "footer", at, want, got)
	}
	if size < int64(trailer+len(ParquetMagic)) || size > maxFileBytes {
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
	if got := tail[len(tail)-4:]; string(got) != ParquetMagic {
		return bad(size-4, ParquetMagic, fmt.Sprintf("%q", got))
	}
	head, err := read(0, int64(len(ParquetMagic)))
	if err != nil {
		return nil, nil, 0, err
	}
	if string(head) != ParquetMagic {
		return bad(0, ParquetMagic, fmt.Sprintf("%q", head))
	}
	n := int64(binary.LittleEndian.Uint32(tail[len(tail)-trailer:]))
	footerOff := size - int64(trailer) - n
	if footerOff < int64(len(ParquetMagic)) || n > maxIndexBytes {
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
		return nil, nil, 0, Rebase(err, footerOff)
	}
	dataEnd := int64(len(ParquetMagic))
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
				if len(groups) > MaxRowGroups {
					r.Fail(fmt.Sprintf("at most %d row groups", MaxRowGroups), "more")
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
				decodeChunk(r, ColumnDefs[c].Codec, &chunks[c])
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
	last := blocks[len(blocks)-1].Cols[col].Offs
	end := last[len(last)-1]
	for i := range blocks {
		b := &blocks[i]
		run := &b.Cols[col]
		for p := range run.Sums {
			off, size := run.Offs[p], run.Offs[p+1]-run.Offs[p]
			if off+size > bufOff+int64(len(buf)) {
				bufOff = off
				buf = slices.Grow(buf[:0], int(min(end-off, max(size, indexReadBytes))))[:min(end-off, max(size, indexReadBytes))]
				if n, err := r.ReadAt(buf, off); n < len(buf) {
					return fmt.Errorf("read %s: %w", part, err)
				}
			}
			raw := buf[off-bufOff:][:size]
			h, err := ReadPageHeader(raw, col, int(b.Starts[p+1]-b.Starts[p]), part, PageSection(col))
			if err != nil {
				return Rebase(err, off)
			}
			if got := crc32.ChecksumIEEE(raw[h.Size:]); got != h.Crc {
				return codec.Corrupt(part, PageSection(col), off, fmt.Sprintf("crc32 %08x", h.Crc), fmt.Sprintf("%08x", got))
			}
			run.Sums[p] = codec.CRC32C(raw)
		}
	}
	return nil
}
