package indexbuild

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/codec"
)

// record is a domain's rows in one dataset, or some of them, on their way to the index.
type record struct {
	key     []byte // the domain
	dataset uint32
	totals  segment.Totals
	tuples  []segment.Tuple
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
	recordHeader = 16
	otherRecord  = math.MaxUint32 // in place of a row group
)

// plainPlace tells whether a tuple has numbers for a plain record.
func plainPlace(group int, first, rows int64) bool {
	return int64(group) < otherRecord && first <= math.MaxUint32 && rows <= math.MaxUint32
}

func appendPlain(out []byte, file, group, first, rows uint32) []byte {
	le := binary.LittleEndian
	out = le.AppendUint64(out, uint64(file)|uint64(group)<<32)
	return le.AppendUint64(out, uint64(first)|uint64(rows)<<32)
}

// appendOther begins a record that is not plain; endOther ends it.
func appendOther(out []byte, file uint32) []byte {
	return appendPlain(out, file, otherRecord, 0, 0)
}

// endOther notes the length of the record that starts at start and ends where out does.
func endOther(out []byte, start int) {
	binary.LittleEndian.PutUint32(out[start+8:], uint32(len(out)-start-recordHeader))
}

// append encodes the record but for its key and dataset, which is that of the file.
func (r *record) append(out []byte) []byte {
	if t := r.tuples[0]; len(r.tuples) == 1 && !r.totals.HasSize && !r.totals.HasTS && plainPlace(int(t.RowGroup), t.FirstRow, t.Rows) {
		return appendPlain(out, t.FileID, t.RowGroup, uint32(t.FirstRow), uint32(t.Rows))
	}
	start := len(out)
	out = appendOther(out, r.tuples[0].FileID)
	out = codec.AppendUvarint(out, uint64(r.totals.Rows))
	out = segment.AppendTuples(appendMeasures(out, &r.totals), r.tuples)
	endOther(out, start)
	return out
}

// recordFile is the file of an encoded record's first tuple.
func recordFile(p []byte) uint32 { return binary.LittleEndian.Uint32(p) }

// recordLength is the length of the encoded record that p starts with.
func recordLength(p []byte) int {
	le := binary.LittleEndian
	if le.Uint32(p[4:]) != otherRecord {
		return recordHeader
	}
	return recordHeader + int(le.Uint32(p[8:]))
}

// read reads what append made, all of p. It leaves key and dataset alone.
func (r *record) read(p []byte) error {
	le := binary.LittleEndian
	if group := le.Uint32(p[4:]); group != otherRecord {
		rows := int64(le.Uint32(p[12:]))
		r.totals = segment.Totals{Rows: rows}
		r.tuples = append(r.tuples[:0], segment.Tuple{FileID: le.Uint32(p), RowGroup: group, FirstRow: int64(le.Uint32(p[8:])), Rows: rows})
		return nil
	}
	d := codec.NewDecoder(p[recordHeader:], "sorted records", "record")
	r.totals = readMeasures(d, int64(d.Uint(math.MaxInt64)))
	r.tuples = segment.ReadTuples(d, r.tuples[:0], r.totals.Rows)
	return d.Close()
}

// rowPlaces tells where the rows of a part's domains are, one domain after the other.
type rowPlaces struct {
	file   uint32
	groups []int64 // rows of each row group
	group  int     // of the next row
	row    int64   // in it
}

// left is how many rows the row group has from the next on.
func (p *rowPlaces) left() int64 { return p.groups[p.group] - p.row }

// advance passes over rows of the row group, at most those that are left.
func (p *rowPlaces) advance(rows int64) {
	p.row += rows
	if p.left() == 0 && p.group < len(p.groups)-1 {
		p.group, p.row = p.group+1, 0
	}
}

// take appends the tuples of a domain with the next rows to tuples. The part has to have that many.
func (p *rowPlaces) take(rows int64, tuples []segment.Tuple) []segment.Tuple {
	for rows > 0 {
		n := min(rows, p.left())
		tuples = append(tuples, segment.Tuple{FileID: p.file, RowGroup: uint32(p.group), FirstRow: p.row, Rows: n})
		p.advance(n)
		rows -= n
	}
	return tuples
}

// slab holds domains in their order, each once, with what is known of them: what comes out when sources are merged.
type slab struct {
	text    []byte   // a domain a line
	ends    []uint32 // of the lines
	vals    []byte   // of each domain records as record.append makes them, by dataset
	valEnds []uint32
}

func (s *slab) len() int { return len(s.ends) }

func (s *slab) domain(i int) []byte {
	start := uint32(0)
	if i > 0 {
		start = s.ends[i-1]
	}
	return s.text[start : s.ends[i]-1]
}

func (s *slab) val(i int) []byte {
	start := uint32(0)
	if i > 0 {
		start = s.valEnds[i-1]
	}
	return s.vals[start:s.valEnds[i]]
}

// spool keeps slabs and partitions in one temporary file. It is for one goroutine, but for reading.
type spool struct {
	file *os.File
	size int64
}

// extent is a place in a spool.
type extent struct{ off, n int64 }

func newSpool(dir string) (*spool, error) {
	f, err := os.CreateTemp(dir, "sort-*.tmp")
	if err != nil {
		return nil, err
	}
	// Without its name the file is gone when the process dies. Where that is not allowed,
	// close removes it.
	_ = os.Remove(f.Name())
	return &spool{file: f}, nil
}

func (s *spool) close() {
	if s == nil {
		return
	}
	s.file.Close()
	_ = os.Remove(s.file.Name())
}

// write appends b.
func (s *spool) write(b []byte) (extent, error) {
	at := extent{s.size, int64(len(b))}
	_, err := s.file.WriteAt(b, s.size)
	s.size += int64(len(b))
	return at, err
}

// read reads e into b, whose memory it uses.
func (s *spool) read(e extent, b []byte) ([]byte, error) {
	b = slices.Grow(b[:0], int(e.n))[:e.n]
	if _, err := s.file.ReadAt(b, e.off); err != nil {
		return nil, fmt.Errorf("read %s: %w", s.file.Name(), err)
	}
	return b, nil
}

// spooled yields what was written of a merged list.
type spooled struct {
	spool *spool
	at    []spooledBlock
	buf   []byte
}

// spooledBlock is a block in a spool.
type spooledBlock struct {
	extent
	sum uint64 // xxh3
}

// write appends a slab of the list.
func (s *spooled) write(w *blockWriter, sl *slab) error {
	s.buf = s.buf[:0]
	for i := range sl.ends {
		var ok bool
		if s.buf, ok = w.add(s.buf, sl.domain(i), sl.val(i)); !ok {
			return fmt.Errorf("merge: %q after %q", sl.domain(i), w.last)
		}
	}
	s.buf = w.end(s.buf)
	at, err := s.spool.write(s.buf)
	s.at = append(s.at, spooledBlock{at, xxh3.Hash(s.buf)})
	return err
}

// load reads what write wrote. Its bytes are this process's own, and a hash tells if the disk has changed them.
func (s *spooled) load(_ context.Context, buf []byte) ([]byte, error) {
	if len(s.at) == 0 {
		return nil, nil
	}
	b := s.at[0]
	s.at, s.buf = s.at[1:], nil
	buf, err := s.spool.read(b.extent, buf)
	if err != nil {
		return nil, err
	}
	if xxh3.Hash(buf) != b.sum {
		return nil, fmt.Errorf("read %s: bytes at %d are not what was written", s.spool.file.Name(), b.off)
	}
	return buf, nil
}
