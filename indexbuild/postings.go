package indexbuild

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// A postings object holds what an index needs to know of some parts of one batch, so that
// building a segment reads no Parquet. It is a frame file without fences:
//
//	domain frames     of each part the domains, sorted, with how many rows they have
//	page index frames the parts' page index blocks, part after part, a block a frame
//	directory         the last frame
//
// A domain's rows stand together in a part, in the order of the domains: where they are follows from how many they are.
// docs/formats/batch-postings.md describes every byte.
const (
	batchMagic   = "BPX1"
	batchVersion = 2
	// 1: domains of all parts in one list, with tuples.
	// 2: a list for each part, in columns; tuples follow from rows.

	// batchFrame is how many bytes of names a domain frame holds. A build has three frames of each part in memory.
	batchFrame = 32 << 10

	// batchFrameHeader is u32 domains, u32 bytes of rows, u32 bytes of totals.
	batchFrameHeader = 12

	// batchBuffer is what is read at once of each part's domains.
	batchBuffer = 64 << 10

	// maxParts bounds the parts of one object.
	maxParts = 1 << 20
)

// batchPart is a part as a postings object names it.
type batchPart struct {
	key     string
	bytes   int64
	rows    int64
	domains int64
	groups  []int64 // rows of each row group
	frames  int     // domain frames
	blocks  int     // page index frames
}

// batchDirectory is the last frame of a postings object.
type batchDirectory struct {
	dataset uint32
	batch   string
	parts   []batchPart
}

// domains adds up those of the parts; one that two parts have counts twice.
func (b *batchDirectory) domains() (n int64) {
	for i := range b.parts {
		n += b.parts[i].domains
	}
	return n
}

func (b *batchDirectory) append(out []byte) []byte {
	out = codec.AppendMagic(out, batchMagic, batchVersion)
	out = codec.AppendUvarint(out, uint64(b.dataset))
	out = codec.AppendString(out, b.batch)
	out = codec.AppendUvarint(out, uint64(len(b.parts)))
	for _, p := range b.parts {
		out = codec.AppendString(out, p.key)
		out = codec.AppendUvarint(out, uint64(p.bytes))
		out = codec.AppendUvarint(out, uint64(p.domains))
		out = codec.AppendUvarint(out, uint64(p.frames))
		out = codec.AppendUvarint(out, uint64(p.blocks))
		out = codec.AppendUvarint(out, uint64(len(p.groups)))
		for _, n := range p.groups {
			out = codec.AppendUvarint(out, uint64(n))
		}
	}
	return codec.AppendCRC32C(out)
}

// decodeDirectory reads the last of frames frames.
func decodeDirectory(data []byte, file string, frames int) (*batchDirectory, error) {
	body, err := codec.CheckCRC32C(data, file, "directory")
	if err != nil {
		return nil, err
	}
	d := codec.NewDecoder(body, file, "directory")
	d.Magic(batchMagic, batchVersion)
	b := &batchDirectory{dataset: uint32(d.Uint(math.MaxUint32)), batch: d.String()}
	left, room := frames-1, uint64(math.MaxInt64) // frames, and rows of all parts
	n := int(d.Uint(min(maxParts, uint64(d.Len()))))
	for range n {
		p := batchPart{key: d.String(), bytes: int64(d.Uint(math.MaxInt64)), domains: int64(d.Uint(math.MaxInt64))}
		p.frames = int(d.Uint(uint64(left)))
		p.blocks = int(d.Uint(uint64(left - p.frames)))
		left -= p.frames + p.blocks
		for range d.Uint(uint64(d.Len())) {
			n := d.Uint(room)
			if d.Err() != nil {
				return nil, d.Close()
			}
			if n == 0 {
				d.Fail("a row group with rows", "none")
			}
			room -= n
			p.rows += int64(n)
			p.groups = append(p.groups, int64(n))
		}
		if d.Err() != nil {
			return nil, d.Close()
		}
		b.parts = append(b.parts, p)
	}
	if d.Err() == nil && left != 0 {
		d.Fail(fmt.Sprintf("%d frames", frames), frames-left)
	}
	return b, d.Close()
}

// batchWriter writes a postings object: of each part all domains in order, then part; at last finish.
type batchWriter struct {
	fw     *codec.FrameWriter
	dir    batchDirectory
	blocks [][]byte // page index blocks of all parts so far

	domains int64 // of all parts, one that goes on in the next part counted once

	open batchPart // that domains are added to
	last []byte    // domain of it
	end  []byte    // the last domain of the part before

	// The columns of the open frame.
	shared, rest []byte
	rows         []byte
	totals       []byte // of all domains of the frame once one has some
	text         []byte
	frame        []byte
}

func newBatchWriter(w io.Writer, dataset uint32, batch string) *batchWriter {
	b := &batchWriter{fw: codec.NewFrameWriter(w, 0), dir: batchDirectory{dataset: dataset, batch: batch}}
	b.fw.Ahead(runtime.GOMAXPROCS(0))
	return b
}

// domain adds the open part's next domain, whose rows follow those of the one before.
func (w *batchWriter) domain(domain []byte, t *segment.Totals) error {
	if string(domain) <= string(w.last) || len(domain) > segment.MaxDomain {
		return fmt.Errorf("domain %q after %q, wanted are at most %d bytes", domain, w.last, segment.MaxDomain)
	}
	if err := t.Validate(); err != nil {
		return fmt.Errorf("domain %q: %w", domain, err)
	}
	if len(w.text) >= batchFrame {
		if err := w.flush(); err != nil {
			return err
		}
	}
	shared := 0
	if len(w.shared) > 0 {
		for shared < len(domain) && shared < len(w.last) && domain[shared] == w.last[shared] {
			shared++
		}
	}
	if t.HasSize || t.HasTS || len(w.totals) > 0 {
		if len(w.totals) == 0 {
			w.totals = append(w.totals, make([]byte, len(w.shared))...) // those before have none
		}
		w.totals = appendMeasures(w.totals, t)
	}
	w.shared = append(w.shared, byte(shared))
	w.rest = append(w.rest, byte(len(domain)-shared))
	w.rows = codec.AppendUvarint(w.rows, uint64(t.Rows))
	w.text = append(w.text, domain[shared:]...)
	w.last = append(w.last[:shared], domain[shared:]...)
	if w.open.domains > 0 || string(domain) != string(w.end) {
		w.domains++
	}
	w.open.domains++
	w.open.rows += t.Rows
	return nil
}

// flush writes the open frame.
func (w *batchWriter) flush() error {
	n := len(w.shared)
	if n == 0 {
		return nil
	}
	f := codec.AppendU32(w.frame[:0], uint32(n))
	f = codec.AppendU32(f, uint32(len(w.rows)))
	f = codec.AppendU32(f, uint32(len(w.totals)))
	f = append(append(f, w.shared...), w.rest...)
	f = append(append(append(f, w.rows...), w.totals...), w.text...)
	_, _, err := w.fw.Pieces(nil, f, batchFrameHeader, n, n, len(w.rows), len(w.totals), len(w.text))
	w.shared, w.rest, w.rows, w.totals, w.text, w.frame = w.shared[:0], w.rest[:0], w.rows[:0], w.totals[:0], w.text[:0], f
	w.open.frames++
	return err
}

// part ends the open part, whose page index these blocks are.
func (w *batchWriter) part(p *lake.Part, groups []int64, blocks [][]byte) error {
	if err := w.flush(); err != nil {
		return err
	}
	rows := int64(0)
	for _, n := range groups {
		rows += n
	}
	if rows != p.Rows || w.open.rows != p.Rows {
		return fmt.Errorf("%s has %d rows, its domains %d and its row groups %d", p.Key, p.Rows, w.open.rows, rows)
	}
	w.open.key, w.open.bytes, w.open.groups, w.open.blocks = p.Key, p.Bytes, groups, len(blocks)
	w.dir.parts = append(w.dir.parts, w.open)
	w.blocks = append(w.blocks, blocks...)
	w.end = append(w.end[:0], w.last...)
	w.open, w.last = batchPart{}, w.last[:0]
	return nil
}

func (w *batchWriter) finish() (codec.FrameFile, error) {
	for _, b := range w.blocks {
		if _, _, err := w.fw.Frame(nil, b); err != nil {
			return codec.FrameFile{}, err
		}
	}
	if _, _, err := w.fw.Frame(nil, w.dir.append(nil)); err != nil {
		return codec.FrameFile{}, err
	}
	return w.fw.Finish()
}

// batchReader reads a postings object.
type batchReader struct {
	*batchDirectory
	store  blob.Store
	key    string
	frames *codec.Frames
}

// openBatch reads tail and directory.
func openBatch(ctx context.Context, store blob.Store, o lake.FrameObject) (*batchReader, error) {
	ff, err := o.FrameFile()
	if err != nil {
		return nil, err
	}
	r := &batchReader{store: store, key: o.Key}
	if r.frames, err = codec.OpenFramesAt(ctx, r.read, ff, o.Key, 0); err != nil {
		return nil, err
	}
	n := r.frames.Len()
	if n == 0 {
		return nil, codec.Corrupt(o.Key, "seek table", -1, "a frame", "none")
	}
	last, err := r.frames.Read(ctx, r.read, n-1, n)
	if err != nil {
		return nil, err
	}
	if r.batchDirectory, err = decodeDirectory(last[0], o.Key, n); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *batchReader) read(ctx context.Context, off, n int64) ([]byte, error) {
	return r.store.ReadRange(ctx, r.key, off, n)
}

// pages reads the page index frames of part number n.
func (r *batchReader) pages(ctx context.Context, n int) ([][]byte, error) {
	if r.parts[n].blocks == 0 {
		return nil, nil
	}
	at := 0
	for i := range r.parts {
		at += r.parts[i].frames
		if i < n {
			at += r.parts[i].blocks
		}
	}
	return r.frames.Read(ctx, r.read, at, at+r.parts[n].blocks)
}

// batchSource yields the domains of one part of a postings object, a frame a block. It opens its stream when the first is asked
// for, and closes it after the last.
type batchSource struct {
	batch BatchRef
	r     *batchReader
	part  int

	stream     io.ReadCloser
	buf        *bufio.Reader
	packed     []byte
	frame, end int // the next domain frame to be read, and the part's last

	// What is not looked at yet of the frame in use, by column.
	shared, rest, counts, measures, text []byte
	measured                             bool

	used    int // frames
	domains int64
	rows    int64
	places  rowPlaces
	rec     record
	val     []byte
}

func newBatchSource(o *postingsObject, part int) *batchSource {
	s := &batchSource{batch: o.batch, r: o.reader, part: part, places: rowPlaces{file: o.files[part], groups: o.reader.parts[part].groups}}
	for i := range part {
		s.frame += o.reader.parts[i].frames
	}
	s.used, s.end = s.frame, s.frame+o.reader.parts[part].frames
	return s
}

func (s *batchSource) close() {
	if s.stream != nil {
		s.stream.Close()
		s.stream, s.buf = nil, nil
	}
}

// corrupt says what is wrong with the frame in use.
func (s *batchSource) corrupt(want, got any) error {
	return damaged(s.batch, codec.Corrupt(s.r.key, fmt.Sprintf("frame %d", s.used-1), -1, want, got))
}

func (s *batchSource) load(ctx context.Context, buf []byte) ([]byte, error) {
	data, err := s.loadFrame(ctx, buf)
	if data == nil {
		s.close()
	}
	return data, damaged(s.batch, err)
}

// loadFrame decodes the next domain frame; nil after the last.
func (s *batchSource) loadFrame(ctx context.Context, buf []byte) ([]byte, error) {
	r := s.r
	if s.frame == s.end {
		if p := &r.parts[s.part]; p.frames == 0 && (p.domains > 0 || p.rows > 0) {
			return nil, codec.Corrupt(r.key, "directory", -1, fmt.Sprintf("frames of %d domains, %d rows", p.domains, p.rows), "none")
		}
		return nil, nil
	}
	if s.stream == nil {
		off, n := r.frames.Place(s.frame, s.end)
		var err error
		if s.stream, err = r.store.Open(ctx, r.key, off, n); err != nil {
			return nil, err
		}
		s.buf = bufio.NewReaderSize(s.stream, int(min(n, batchBuffer)))
	}
	_, n := r.frames.Place(s.frame, s.frame+1)
	s.packed = slices.Grow(s.packed[:0], int(n))[:n]
	if _, err := io.ReadFull(s.buf, s.packed); err != nil {
		return nil, fmt.Errorf("read frame %d of %s: %w", s.frame, r.key, err)
	}
	data, err := r.frames.DecodeInto(s.frame, s.packed, buf)
	if err != nil {
		return nil, err
	}
	if at := len(s.packed) - len(data); at >= 0 && &s.packed[at] == &data[0] {
		data = append(buf[:0], data...) // it was a view
	}
	s.frame++
	return data, nil
}

func (s *batchSource) use(data []byte) error {
	s.used++
	if len(data) < batchFrameHeader {
		return s.corrupt(fmt.Sprintf("%d bytes or more", batchFrameHeader), len(data))
	}
	le := binary.LittleEndian
	domains, rows, totals := int64(le.Uint32(data)), int64(le.Uint32(data[4:])), int64(le.Uint32(data[8:]))
	data = data[batchFrameHeader:]
	if text := int64(len(data)) - 2*domains - rows - totals; domains < 1 || text < domains {
		return s.corrupt(fmt.Sprintf("columns of %d bytes", len(data)), fmt.Sprintf("%d domains, %d bytes of rows, %d of totals", domains, rows, totals))
	}
	s.shared, s.rest, data = data[:domains], data[domains:2*domains], data[2*domains:]
	s.counts, s.measures, s.text = data[:rows], data[rows:rows+totals], data[rows+totals:]
	s.measured = totals > 0
	if s.shared[0] != 0 {
		return s.corrupt("a whole domain", fmt.Sprintf("one that shares %d bytes", s.shared[0]))
	}
	return nil
}

func (s *batchSource) step(c *cursor) (bool, error) {
	if len(s.shared) == 0 {
		return false, s.endFrame()
	}
	shared, n := int(s.shared[0]), int(s.rest[0])
	s.shared, s.rest = s.shared[1:], s.rest[1:]
	if shared > c.n || n > len(s.text) || shared+n > segment.MaxDomain || string(s.text[:n]) <= string(c.buf[shared:c.n]) {
		return false, s.corrupt(fmt.Sprintf("a domain of at most %d bytes after %q", segment.MaxDomain, c.domain()),
			fmt.Sprintf("%d of its bytes and %q", shared, s.text[:min(n, len(s.text))]))
	}
	c.set(shared, s.text[:n])
	s.text = s.text[n:]

	count := uint64(0)
	if len(s.counts) > 0 && s.counts[0] < 0x80 {
		count, s.counts = uint64(s.counts[0]), s.counts[1:]
	} else {
		v, n := uvarint(s.counts, 0)
		if n <= 0 {
			return false, s.corrupt("rows", fmt.Sprintf("%x", s.counts[:min(len(s.counts), 10)]))
		}
		count, s.counts = v, s.counts[n:]
	}
	if left := s.r.parts[s.part].rows - s.rows; count < 1 || count > uint64(left) {
		return false, s.corrupt(fmt.Sprintf("1 to %d rows", left), count)
	}
	s.domains++
	s.rows += int64(count)
	switch at := &s.places; {
	case s.measured:
		t, n := readMeasuresFast(s.measures, int64(count))
		if n == 0 {
			d := codec.NewDecoder(s.measures, s.r.key, fmt.Sprintf("totals in frame %d", s.used-1))
			t = readMeasures(d, int64(count))
			if err := d.Err(); err != nil {
				return false, damaged(s.batch, err)
			}
			n = d.Offset()
		}
		s.measures = s.measures[n:]
		c.val = s.record(t)
	case int64(count) <= at.left() && plainPlace(at.group, at.row, int64(count)):
		c.val = appendPlain(c.plain[:0], at.file, uint32(at.group), uint32(at.row), uint32(count))
		at.advance(int64(count))
	default:
		c.val = s.record(segment.Totals{Rows: int64(count)})
	}
	return true, nil
}

// endFrame checks that columns end together, and after the last frame that there was all that the directory says.
func (s *batchSource) endFrame() error {
	if len(s.text)+len(s.counts)+len(s.measures) > 0 {
		return s.corrupt("columns of as many domains", fmt.Sprintf("%d bytes of text, %d of rows, %d of totals more", len(s.text), len(s.counts), len(s.measures)))
	}
	if p := &s.r.parts[s.part]; s.used == s.end && (s.domains != p.domains || s.rows != p.rows) {
		return damaged(s.batch, codec.Corrupt(s.r.key, "directory", -1, fmt.Sprintf("%d domains, %d rows of %s", s.domains, s.rows, p.key), fmt.Sprintf("%d, %d", p.domains, p.rows)))
	}
	return nil
}

// record is that of a domain with these totals, of the next rows.
func (s *batchSource) record(t segment.Totals) []byte {
	s.rec.totals, s.rec.tuples = t, s.places.take(t.Rows, s.rec.tuples[:0])
	s.val = s.rec.append(s.val[:0])
	return s.val
}
