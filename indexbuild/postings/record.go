package postings

import (
	"encoding/binary"
	"math"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
)

// DomainKey returns segment.KeyOf(string(domain)) without a conversion.
func DomainKey(domain []byte) segment.Key {
	id, check := urlnorm.DomainHashes(domain)
	return segment.Key{ID: id, Check: check}
}

// Record is what one or more parts of a dataset have of a domain.
type Record struct {
	Totals segment.Totals
	Tuples []segment.Tuple // in the order of files and rows
}

// During a build, records are encoded in one of two forms. Most are plain: one tuple, no size, no
// ts, small numbers.
//
//	plain  u32 file | u32 row_group | u32 first row | u32 rows
//	other  u32 file of the first tuple | u32 2^32-1 | u32 n | u32 0
//	       n bytes: uvarint rows | measures | tuples
const (
	// PlainBytes is the size of a plain record. Other records are longer.
	PlainBytes = 16

	otherRecord = math.MaxUint32 // in place of a row group
)

// isPlain reports whether a tuple has numbers for a plain record.
func isPlain(group int, first, rows int64) bool {
	return int64(group) < otherRecord && first <= math.MaxUint32 && rows <= math.MaxUint32
}

func appendPlain(out []byte, file, group, first, rows uint32) []byte {
	le := binary.LittleEndian
	out = le.AppendUint64(out, uint64(file)|uint64(group)<<32)
	return le.AppendUint64(out, uint64(first)|uint64(rows)<<32)
}

// Append appends the encoded record to out.
func (r *Record) Append(out []byte) []byte {
	if t := r.Tuples[0]; len(r.Tuples) == 1 && !r.Totals.HasSize && !r.Totals.HasTS &&
		isPlain(int(t.RowGroup), t.FirstRow, t.Rows) {
		return appendPlain(out, t.FileID, t.RowGroup, uint32(t.FirstRow), uint32(t.Rows))
	}
	start := len(out)
	out = appendPlain(out, r.Tuples[0].FileID, otherRecord, 0, 0)
	out = codec.AppendUvarint(out, uint64(r.Totals.Rows))
	out = segment.AppendTuples(appendMeasures(out, &r.Totals), r.Tuples)
	binary.LittleEndian.PutUint32(out[start+8:], uint32(len(out)-start-PlainBytes))
	return out
}

// Decode decodes p, which is one encoded record. It reuses the memory of Tuples.
func (r *Record) Decode(p []byte) error {
	if file, group, first, rows, ok := DecodePlain(p); ok {
		r.Totals = segment.Totals{Rows: int64(rows)}
		r.Tuples = append(r.Tuples[:0], segment.Tuple{
			FileID: file, RowGroup: group, FirstRow: int64(first), Rows: int64(rows),
		})
		return nil
	}
	d := codec.NewDecoder(p[PlainBytes:], "sorted records", "record")
	r.Totals = readMeasures(d, int64(d.Uint(math.MaxInt64)))
	r.Tuples = segment.ReadTuples(d, r.Tuples[:0], r.Totals.Rows)
	return d.Close()
}

// DecodePlain decodes the record that p starts with, if it is plain.
func DecodePlain(p []byte) (file, group, firstRow, rows uint32, ok bool) {
	a, b := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])
	return uint32(a), uint32(a >> 32), uint32(b), uint32(b >> 32), a>>32 != otherRecord
}

// RecordFile returns the file of the first tuple of the encoded record that p starts with.
func RecordFile(p []byte) uint32 { return binary.LittleEndian.Uint32(p) }

// RecordLen returns the length of the encoded record that p starts with.
func RecordLen(p []byte) int {
	le := binary.LittleEndian
	if le.Uint32(p[4:]) != otherRecord {
		return PlainBytes
	}
	return PlainBytes + int(le.Uint32(p[8:]))
}

// Flags of measures, which are the totals without rows.
const (
	hasSize = 1 << iota
	hasTS
)

// appendMeasures encodes the measures of t: u8 flags, [uvarint size], [varint first ts, uvarint
// last ts less first].
func appendMeasures(out []byte, t *segment.Totals) []byte {
	flags := byte(0)
	if t.HasSize {
		flags |= hasSize
	}
	if t.HasTS {
		flags |= hasTS
	}
	out = append(out, flags)
	if t.HasSize {
		out = codec.AppendUvarint(out, uint64(t.Size))
	}
	if t.HasTS {
		out = codec.AppendVarint(out, t.FirstTS)
		out = codec.AppendUvarint(out, uint64(t.LastTS)-uint64(t.FirstTS))
	}
	return out
}

// readMeasures decodes measures into totals of that many rows, and validates them.
func readMeasures(d *codec.Decoder, rows int64) segment.Totals {
	t := segment.Totals{Rows: rows}
	flags := d.U8()
	if d.Err() == nil && flags > hasSize|hasTS {
		d.Fail("flags 0 to 3", flags)
	}
	if flags&hasSize != 0 {
		t.HasSize, t.Size = true, int64(d.Uvarint())
	}
	if flags&hasTS != 0 {
		t.HasTS, t.FirstTS = true, d.Varint()
		t.LastTS = t.FirstTS + int64(d.Uvarint())
	}
	if d.Err() == nil {
		if err := t.Validate(); err != nil {
			d.Fail("totals of rows", err)
		}
	}
	return t
}

// readMeasuresFast is readMeasures for valid measures at the start of p. It returns their length,
// or 0 if readMeasures has to find out what is wrong with them.
func readMeasuresFast(p []byte, rows int64) (t segment.Totals, n int) {
	if len(p) == 0 || p[0] > hasSize|hasTS {
		return t, 0
	}
	t.Rows = rows
	flags, n := p[0], 1
	var v uint64
	if flags&hasSize != 0 {
		if v, n = uvarint(p, n); n <= 0 || v > math.MaxInt64 {
			return t, 0
		}
		t.HasSize, t.Size = true, int64(v)
	}
	if flags&hasTS != 0 {
		if v, n = uvarint(p, n); n <= 0 {
			return t, 0
		}
		t.HasTS, t.FirstTS = true, int64(v>>1)^-int64(v&1)
		if v, n = uvarint(p, n); n <= 0 {
			return t, 0
		}
		if t.LastTS = t.FirstTS + int64(v); t.LastTS < t.FirstTS {
			return t, 0
		}
	}
	return t, n
}

// uvarint decodes a number at p[at:] and returns the offset of its end. The offset is 0 if the
// number is truncated, too large or not in its shortest form.
func uvarint(p []byte, at int) (uint64, int) {
	if at < len(p) && p[at] < 0x80 {
		return uint64(p[at]), at + 1
	}
	v, n := binary.Uvarint(p[min(at, len(p)):])
	if n <= 0 || p[at+n-1] == 0 {
		return 0, 0
	}
	return v, at + n
}

// RowCursor locates the rows of a part's domains, which follow each other through all row groups.
type RowCursor struct {
	file   uint32
	groups []int64 // rows of each row group
	group  int     // of the next row
	row    int64   // in it
}

// NewRowCursor returns a cursor at the first row of a part, whose row groups have these rows. The
// cursor keeps groups.
func NewRowCursor(file uint32, groups []int64) RowCursor {
	return RowCursor{file: file, groups: groups}
}

// AppendTuples appends the tuples of the next rows to out, and moves past these rows. The part must
// have them.
func (c *RowCursor) AppendTuples(out []segment.Tuple, rows int64) []segment.Tuple {
	for rows > 0 {
		n := min(rows, c.left())
		out = append(out, segment.Tuple{FileID: c.file, RowGroup: uint32(c.group), FirstRow: c.row, Rows: n})
		c.row += n
		if c.left() == 0 && c.group < len(c.groups)-1 {
			c.group, c.row = c.group+1, 0
		}
		rows -= n
	}
	return out
}

// left returns how many rows the row group has from the next row on.
func (c *RowCursor) left() int64 { return c.groups[c.group] - c.row }
