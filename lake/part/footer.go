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

// parquetMagic is the start and the end of a Parquet file.
const parquetMagic = "PAR1"

const (
	// indexReadBytes is the size of reads when a whole part is read.
	indexReadBytes = 4 << 20
	// maxIndexBytes bounds the footer of a part, and its column and offset indexes together. A part
	// of PartBytes has about 2,000 pages a column, whose bounds take at most 3 KB.
	maxIndexBytes = 64 << 20
	// footerGuess covers footer, column and offset indexes of a usual part, so that one read gets
	// all of them.
	footerGuess = 256 << 10
)

// chunkMeta is the location of one column of one row group, and of its offset index.
type chunkMeta struct {
	off, bytes           int64
	indexOff, indexBytes int64
	groupRows            int64
}

// BuildPageIndex computes the page index of a part from its file. r has size bytes; errors name
// part.
//
// It reads every page, in large reads, and verifies the schema, the headers and checksums of all
// pages, and that row groups, columns and pages follow each other without a gap and have the same
// rows in every column.
func BuildPageIndex(r io.ReaderAt, size int64, part string) ([]PageIndexBlock, error) {
	groups, rest, restOff, err := readFooter(r, size, part)
	if err != nil {
		return nil, err
	}
	var blocks []PageIndexBlock
	end := int64(len(parquetMagic)) // of the pages so far
	for g, chunks := range groups {
		var starts []int64 // rows at which pages of the first column start
		var groupBlocks []PageIndexBlock
		for c, m := range chunks {
			col := Column(c)
			section := fmt.Sprintf("offset index of %s in row group %d", col, g)
			if m.off != end || m.bytes < 0 || m.bytes > restOff-m.off {
				return nil, codec.Corrupt(part, fmt.Sprintf("footer, %s in row group %d", col, g), -1,
					fmt.Sprintf("pages between byte %d and %d", end, restOff),
					fmt.Sprintf("%d bytes at %d", m.bytes, m.off))
			}
			end += m.bytes
			if m.indexOff < restOff || m.indexBytes < 0 || m.indexBytes > restOff+int64(len(rest))-m.indexOff {
				return nil, codec.Corrupt(part, section, m.indexOff, "an offset after the pages", m.indexBytes)
			}
			at := m.indexOff - restOff
			offsets, rows, err := readOffsetIndex(rest[at:at+m.indexBytes], m, part, section)
			if err != nil {
				return nil, rebase(err, m.indexOff)
			}
			if c == 0 {
				starts = rows
				groupBlocks = NewPageIndex(g, starts)
			} else if !slices.Equal(starts, rows) {
				return nil, codec.Corrupt(part, section, m.indexOff, "the rows of the first column's pages", "others")
			}
			if err := sumPages(r, groupBlocks, offsets, col, part); err != nil {
				return nil, err
			}
		}
		blocks = append(blocks, groupBlocks...)
	}
	return blocks, nil
}

// partTrailer is the size of what follows the footer: its size and parquetMagic.
const partTrailer = 4 + len(parquetMagic)

// partTail is the end of a part: its bytes from off on.
type partTail struct {
	read      func(off, n int64) ([]byte, error)
	data      []byte
	off       int64
	footerOff int64
}

// readTail reads the last guess bytes of a part of size bytes, or as much more as the footer needs.
func readTail(read func(off, n int64) ([]byte, error), size, guess int64, part string) (*partTail, error) {
	bad := func(at int64, want, got any) (*partTail, error) {
		return nil, codec.Corrupt(part, "footer", at, want, got)
	}
	if size < int64(partTrailer+len(parquetMagic)) || size > maxFileBytes {
		return bad(-1, "a Parquet file", fmt.Sprintf("%d bytes", size))
	}
	t := &partTail{read: read, off: size}
	if err := t.from(max(0, size-guess)); err != nil {
		return nil, err
	}
	trailer := t.data[len(t.data)-partTrailer:]
	if got := trailer[4:]; string(got) != parquetMagic {
		return bad(size-int64(len(parquetMagic)), parquetMagic, fmt.Sprintf("%q", got))
	}
	n := int64(binary.LittleEndian.Uint32(trailer))
	t.footerOff = size - int64(partTrailer) - n
	if t.footerOff < int64(len(parquetMagic)) || n > maxIndexBytes {
		return bad(size-int64(partTrailer), "the size of a footer", n)
	}
	return t, t.from(t.footerOff)
}

// from makes the tail begin at byte off at the latest.
func (t *partTail) from(off int64) error {
	if off >= t.off {
		return nil
	}
	more, err := t.read(off, t.off-off)
	t.data, t.off = append(more, t.data...), off
	return err
}

// footer returns the footer, which readTail has read.
func (t *partTail) footer() []byte { return t.data[t.footerOff-t.off : len(t.data)-partTrailer] }

// readFooter returns the chunks of every row group. rest is the end of the file behind the pages,
// from offset restOff on: the indexes and the footer.
func readFooter(r io.ReaderAt, size int64, part string) (
	groups [][NumColumns]chunkMeta, rest []byte, restOff int64, err error,
) {
	bad := func(at int64, want, got any) ([][NumColumns]chunkMeta, []byte, int64, error) {
		return nil, nil, 0, codec.Corrupt(part, "footer", at, want, got)
	}
	read := func(off, n int64) ([]byte, error) {
		b := make([]byte, n)
		// A full read that reaches the end of the file may return io.EOF.
		if n, err := r.ReadAt(b, off); n < len(b) {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, fmt.Errorf("read %s: %w", part, err)
		}
		return b, nil
	}
	tail, err := readTail(read, size, footerGuess, part)
	if err != nil {
		return nil, nil, 0, err
	}
	start, err := read(0, int64(len(parquetMagic)))
	if err != nil {
		return nil, nil, 0, err
	}
	if string(start) != parquetMagic {
		return bad(0, parquetMagic, fmt.Sprintf("%q", start))
	}
	groups, err = decodeFooter(tail.footer(), part)
	if err != nil {
		return nil, nil, 0, rebase(err, tail.footerOff)
	}
	dataEnd := int64(len(parquetMagic))
	for g := range groups {
		for c := range groups[g] {
			m := &groups[g][c]
			if m.bytes > size-dataEnd {
				return bad(tail.footerOff, fmt.Sprintf("at most %d bytes of pages", size-dataEnd), m.bytes)
			}
			dataEnd += m.bytes
		}
	}
	if n := tail.footerOff - dataEnd; n < 0 || n > maxIndexBytes {
		return bad(tail.footerOff, "indexes between pages and footer", fmt.Sprintf("%d bytes", n))
	}
	if err := tail.from(dataEnd); err != nil {
		return nil, nil, 0, err
	}
	return groups, tail.data[dataEnd-tail.off:], dataEnd, nil
}

// decodeFooter decodes the parts of a FileMetaData that BuildPageIndex needs.
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

// decodeRowGroup decodes a RowGroup.
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
		if r.Err() == nil && (rows == 0 || m.groupRows != rows || m.bytes == 0 || m.off == 0 ||
			m.indexOff == 0 || m.indexBytes == 0) {
			r.Fail(fmt.Sprintf("the location of %d values of %s", rows, Column(c)), fmt.Sprintf("%+v", m))
		}
	}
	return chunks, rows
}

// decodeChunk decodes a ColumnChunk.
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

// readOffsetIndex decodes an offset index. offs are the offsets of all pages and the end of the
// last one, rows their first rows and the number of all rows.
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
					size = r.Int(f, thrift.I32, minPageBytes, min(maxPageBytes, m.off+m.bytes-end))
				case 3:
					first = r.Int(f, thrift.I64, next, m.groupRows-1)
				default:
					r.Fail("a page location", f.ID)
				}
			})
			if r.Err() == nil && (off < 0 || size == 0 || (first == 0) != (len(rows) == 0) ||
				(len(rows) > 0 && first-rows[len(rows)-1] > maxPageRows)) {
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
// checksums, and sets their locations and checksums in blocks. offsets are those of all pages and
// the end of the last one.
func sumPages(r io.ReaderAt, blocks []PageIndexBlock, offsets []int64, col Column, part string) error {
	var buf []byte
	var bufOff int64
	end := offsets[len(offsets)-1]
	for i := range blocks {
		b := &blocks[i]
		for p := range b.Pages() {
			off := offsets[i*PageIndexPages+p]
			size := offsets[i*PageIndexPages+p+1] - off
			if off+size > bufOff+int64(len(buf)) {
				bufOff = off
				n := int(min(end-off, max(size, indexReadBytes)))
				buf = slices.Grow(buf[:0], n)[:n]
				if n, err := r.ReadAt(buf, off); n < len(buf) {
					return fmt.Errorf("read %s: %w", part, err)
				}
			}
			raw := buf[off-bufOff:][:size]
			h, err := readPageHeader(raw, col, int(b.starts[p+1]-b.starts[p]), part)
			if err != nil {
				return rebase(err, off)
			}
			if got := crc32.ChecksumIEEE(raw[h.Size:]); got != h.CRC {
				return codec.Corrupt(part, pageSection(col), off,
					fmt.Sprintf("crc32 %08x", h.CRC), fmt.Sprintf("%08x", got))
			}
			b.SetPage(col, p, off, size, codec.CRC32C(raw))
		}
	}
	return nil
}
