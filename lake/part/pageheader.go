package part

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/parquet-go/parquet-go/format"

	"github.com/urlake/urlake/internal/thrift"
	"github.com/urlake/urlake/lake/codec"
)

// pageHeader is the header of a data page v2.
type pageHeader struct {
	Size         int    // bytes of the header itself
	Uncompressed int    // bytes of levels and values before compression
	Compressed   int    // bytes of levels and values in the file
	CRC          uint32 // CRC-32 (IEEE) of levels and values in the file
	Nulls        int    // rows without a value
	Levels       int    // bytes of definition levels, which are never compressed
	Zstd         bool   // the values are compressed
}

// readPageHeader decodes and checks the header of a page. raw is exactly one page of rows rows of
// col. An error names part, and its offset counts from the start of the page.
func readPageHeader(raw []byte, col Column, rows int, part string) (h pageHeader, err error) {
	r := thrift.NewReader(raw, part, pageSection(col))
	var seen, seenV2 int // bit i: field i
	for f := (thrift.Field{}); r.Next(&f); {
		seen |= 1 << f.ID
		switch f.ID {
		case 1: // type: DATA_PAGE_V2
			r.Int(f, thrift.I32, 3, 3)
		case 2:
			h.Uncompressed = int(r.Int(f, thrift.I32, 0, maxPageBytes))
		case 3:
			h.Compressed = int(r.Int(f, thrift.I32, 0, maxPageBytes))
		case 4:
			h.CRC = uint32(r.Int(f, thrift.I32, math.MinInt32, math.MaxInt32))
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
					h.Nulls = int(r.Int(g, thrift.I32, 0, int64(rows)))
				case 3: // rows
					r.Int(g, thrift.I32, int64(rows), int64(rows))
				case 4:
					encoding := int64(col.encoding())
					r.Int(g, thrift.I32, encoding, encoding)
				case 5:
					h.Levels = int(r.Int(g, thrift.I32, 0, maxPageBytes))
				case 6: // repetition levels
					r.Int(g, thrift.I32, 0, 0)
				case 7:
					if h.Zstd = g.Kind == thrift.True; !h.Zstd && g.Kind != thrift.False {
						r.Fail("a boolean", fmt.Sprintf("type %d", g.Kind))
					}
					if h.Zstd && col.compression() != format.Zstd { // other readers trust the column's codec
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
	h.Size = r.Offset()
	if r.Err() == nil && (h.Compressed != r.Len() || h.Levels > h.Compressed || h.Levels > h.Uncompressed ||
		(h.Levels != 0) != col.optional() || (h.Nulls != 0 && !col.optional())) {
		r.Fail("sizes that agree", fmt.Sprintf("%d bytes left, %+v", r.Len(), h))
	}
	return h, r.Err()
}

// rebase returns err with the offset of a *codec.CorruptError moved by base. It turns an offset in
// a piece of a file that starts at byte base into an offset in the file.
func rebase(err error, base int64) error {
	var c *codec.CorruptError
	if !errors.As(err, &c) || c.Offset < 0 {
		return err
	}
	moved := *c
	moved.Offset += base
	return &moved
}

// pageSections is what pageSection returns. readPageHeader needs it for every page.
var pageSections = func() (names [NumColumns]string) {
	for c := range names {
		names[c] = Column(c).String() + " page"
	}
	return names
}()

// pageSection is the section that errors name for pages of a column.
func pageSection(col Column) string { return pageSections[col] }

// appendPageHeader appends the header of a page of rows rows to dst, in Thrift's compact protocol.
// h.Size is not used.
func appendPageHeader(dst []byte, h pageHeader, rows, encoding int) []byte {
	num := func(v int) { dst = binary.AppendVarint(append(dst, 1<<4|thrift.I32), int64(v)) }
	num(3) // DATA_PAGE_V2
	num(h.Uncompressed)
	num(h.Compressed)
	num(int(int32(h.CRC)))
	dst = append(dst, 4<<4|thrift.Struct) // data_page_header_v2
	num(rows)                             // values
	num(h.Nulls)
	num(rows)
	num(encoding)
	num(h.Levels)
	num(0) // no repetition levels
	if h.Zstd {
		dst = append(dst, 1<<4|thrift.True)
	} else {
		dst = append(dst, 1<<4|thrift.False)
	}
	return append(dst, 0, 0)
}
