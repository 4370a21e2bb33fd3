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

// pageHeader is what a data page v2 says of itself, and where its data starts.
type PageHeader struct {
	Size         int // of the header
	Uncompressed int // levels and values before compression
	Compressed   int // levels and values
	Crc          uint32
	Nulls        int
	Levels       int // bytes of definition levels, never compressed
	Zstd         bool
}

// readPageHeader decodes the header that starts raw, which has to be one page of rows rows of col.
func ReadPageHeader(raw []byte, col Column, rows int, part string, section string) (h PageHeader, err error) {
	r := thrift.NewReader(raw, part, section)
	var seen, seenV2 int // bit i: field i
	for f := (thrift.Field{}); r.Next(&f); {
		seen |= 1 << f.ID
		switch f.ID {
		case 1: // type: DATA_PAGE_V2
			r.Int(f, thrift.I32, 3, 3)
		case 2:
			h.Uncompressed = int(r.Int(f, thrift.I32, 0, MaxPageBytes))
		case 3:
			h.Compressed = int(r.Int(f, thrift.I32, 0, MaxPageBytes))
		case 4:
			h.Crc = uint32(r.Int(f, thrift.I32, math.MinInt32, math.MaxInt32))
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
					encoding := int64(ColumnDefs[col].Encoding())
					r.Int(g, thrift.I32, encoding, encoding)
				case 5:
					h.Levels = int(r.Int(g, thrift.I32, 0, MaxPageBytes))
				case 6: // repetition levels
					r.Int(g, thrift.I32, 0, 0)
				case 7:
					if h.Zstd = g.Kind == thrift.True; !h.Zstd && g.Kind != thrift.False {
						r.Fail("a boolean", fmt.Sprintf("type %d", g.Kind))
					}
					if h.Zstd && ColumnDefs[col].Codec != format.Zstd { // other readers go by the column
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
		(h.Levels != 0) != ColumnDefs[col].Optional || (h.Nulls != 0 && !ColumnDefs[col].Optional)) {
		r.Fail("sizes that agree", fmt.Sprintf("%d bytes left, %+v", r.Len(), h))
	}
	return h, r.Err()
}

// rebase makes the offset of a corruption found in bytes that start at byte base of a file one in the file.
func Rebase(err error, base int64) error {
	var c *codec.CorruptError
	if !errors.As(err, &c) || c.Offset < 0 {
		return err
	}
	moved := *c
	moved.Offset += base
	return &moved
}

func PageSection(col Column) string { return col.String() + " page" }

// appendPageHeader encodes a PageHeader of a data page v2 of rows rows in Thrift's compact protocol.
func AppendPageHeader(dst []byte, h PageHeader, rows, encoding int) []byte {
	num := func(v int) { dst = binary.AppendVarint(append(dst, 1<<4|thrift.I32), int64(v)) }
	num(3) // DATA_PAGE_V2
	num(h.Uncompressed)
	num(h.Compressed)
	num(int(int32(h.Crc)))
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
