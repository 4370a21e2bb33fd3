package postings

import (
	"encoding/binary"
	"math"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/codec"
)

// record is a domain's rows in one dataset, or some of them, on their way to the index.
type Record struct {
	Key     []byte // the domain
	Dataset uint32
	Totals  segment.Totals
	Tuples  []segment.Tuple
}

const (
	hasSize = 1 << iota
	hasTS
)

// appendMeasures encodes what totals have besides rows: u8 flags, [uvarint size], [varint first ts, uvarint last less first].
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

// readMeasures reads what appendMeasures made into totals of that many rows.
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

// readMeasuresFast is readMeasures at the start of p. It returns how many bytes they take; 0 if they want a closer look.
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

// uvarint reads a number at p[at:] and returns where it ends; 0 or less if it has no end or is not in its shortest form.
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

// A record is encoded, on its way through the build, in one of two forms. Most are plain: one tuple, no size, no ts, small numbers.
//
//	plain  u32 file | u32 row_group | u32 first row | u32 rows
//	other  u32 file of the first tuple | u32 2^32-1 | u32 n | u32 0 | n bytes: uvarint rows, the other totals, tuples
const (
	RecordHeader = 16
	OtherRecord  = math.MaxUint32 // in place of a row group
)

// plainPlace tells whether a tuple has numbers for a plain record.
func plainPlace(group int, first, rows int64) bool {
	return int64(group) < OtherRecord && first <= math.MaxUint32 && rows <= math.MaxUint32
}

func appendPlain(out []byte, file, group, first, rows uint32) []byte {
	le := binary.LittleEndian
	out = le.AppendUint64(out, uint64(file)|uint64(group)<<32)
	return le.AppendUint64(out, uint64(first)|uint64(rows)<<32)
}

// appendOther begins a record that is not plain; endOther ends it.
func appendOther(out []byte, file uint32) []byte {
	return appendPlain(out, file, OtherRecord, 0, 0)
}

// endOther notes the length of the record that starts at start and ends where out does.
func endOther(out []byte, start int) {
	binary.LittleEndian.PutUint32(out[start+8:], uint32(len(out)-start-RecordHeader))
}

// append encodes the record but for its key and dataset, which is that of the file.
func (r *Record) Append(out []byte) []byte {
	if t := r.Tuples[0]; len(r.Tuples) == 1 && !r.Totals.HasSize && !r.Totals.HasTS && plainPlace(int(t.RowGroup), t.FirstRow, t.Rows) {
		return appendPlain(out, t.FileID, t.RowGroup, uint32(t.FirstRow), uint32(t.Rows))
	}
	start := len(out)
	out = appendOther(out, r.Tuples[0].FileID)
	out = codec.AppendUvarint(out, uint64(r.Totals.Rows))
	out = segment.AppendTuples(appendMeasures(out, &r.Totals), r.Tuples)
	endOther(out, start)
	return out
}

// recordFile is the file of an encoded record's first tuple.
func RecordFile(p []byte) uint32 { return binary.LittleEndian.Uint32(p) }

// recordLength is the length of the encoded record that p starts with.
func RecordLength(p []byte) int {
	le := binary.LittleEndian
	if le.Uint32(p[4:]) != OtherRecord {
		return RecordHeader
	}
	return RecordHeader + int(le.Uint32(p[8:]))
}

// read reads what append made, all of p. It leaves key and dataset alone.
func (r *Record) Read(p []byte) error {
	le := binary.LittleEndian
	if group := le.Uint32(p[4:]); group != OtherRecord {
		rows := int64(le.Uint32(p[12:]))
		r.Totals = segment.Totals{Rows: rows}
		r.Tuples = append(r.Tuples[:0], segment.Tuple{FileID: le.Uint32(p), RowGroup: group, FirstRow: int64(le.Uint32(p[8:])), Rows: rows})
		return nil
	}
	d := codec.NewDecoder(p[RecordHeader:], "sorted records", "record")
	r.Totals = readMeasures(d, int64(d.Uint(math.MaxInt64)))
	r.Tuples = segment.ReadTuples(d, r.Tuples[:0], r.Totals.Rows)
	return d.Close()
}

// rowPlaces tells where the rows of a part's domains are, one domain after the other.
type RowPlaces struct {
	File   uint32
	Groups []int64 // rows of each row group
	group  int     // of the next row
	row    int64   // in it
}

// left is how many rows the row group has from the next on.
func (p *RowPlaces) left() int64 { return p.Groups[p.group] - p.row }

// advance passes over rows of the row group, at most those that are left.
func (p *RowPlaces) advance(rows int64) {
	p.row += rows
	if p.left() == 0 && p.group < len(p.Groups)-1 {
		p.group, p.row = p.group+1, 0
	}
}

// take appends the tuples of a domain with the next rows to tuples. The part has to have that many.
func (p *RowPlaces) Take(rows int64, tuples []segment.Tuple) []segment.Tuple {
	for rows > 0 {
		n := min(rows, p.left())
		tuples = append(tuples, segment.Tuple{FileID: p.File, RowGroup: uint32(p.group), FirstRow: p.row, Rows: n})
		p.advance(n)
		rows -= n
	}
	return tuples
}
