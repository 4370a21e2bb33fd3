package indexbuild

import (
	"bufio"
	"context"
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
//	domain frames     the domains of all its parts, sorted
//	page index frames the parts' page index blocks, part after part, a block a frame
//	directory         the last frame
//
// docs/formats/batch-postings.md describes every byte.
const (
	batchMagic   = "BPX1"
	batchVersion = 1
	// 1: first.

	// batchFrame is how much a domain frame holds, a single record excepted. They are read from the
	// first to the last, so that larger frames only save on compression.
	batchFrame = 64 << 10

	// batchBuffer is what is read at once of each object that is merged.
	batchBuffer = 128 << 10

	// maxParts bounds the parts of one object.
	maxParts = 1 << 20
)

// batchPart is a part as a postings object names it.
type batchPart struct {
	key       string
	bytes     int64
	rows      int64
	rowGroups int
	blocks    int // page index frames
}

// batchDirectory is the last frame of a postings object.
type batchDirectory struct {
	dataset uint32
	batch   string
	domains int64
	rows    int64
	frames  int // that hold domains
	parts   []batchPart
}

func (b *batchDirectory) append(out []byte) []byte {
	out = codec.AppendMagic(out, batchMagic, batchVersion)
	out = codec.AppendUvarint(out, uint64(b.dataset))
	out = codec.AppendString(out, b.batch)
	out = codec.AppendUvarint(out, uint64(b.domains))
	out = codec.AppendUvarint(out, uint64(b.rows))
	out = codec.AppendUvarint(out, uint64(b.frames))
	out = codec.AppendUvarint(out, uint64(len(b.parts)))
	for _, p := range b.parts {
		out = codec.AppendString(out, p.key)
		out = codec.AppendUvarint(out, uint64(p.bytes))
		out = codec.AppendUvarint(out, uint64(p.rows))
		out = codec.AppendUvarint(out, uint64(p.rowGroups))
		out = codec.AppendUvarint(out, uint64(p.blocks))
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
	b.domains = int64(d.Uint(math.MaxInt64))
	b.rows = int64(d.Uint(math.MaxInt64))
	b.frames = int(d.Uint(uint64(frames)))
	total := b.frames + 1
	left := b.rows
	n := int(d.Uint(min(maxParts, uint64(d.Len()))))
	for range n {
		p := batchPart{key: d.String(), bytes: int64(d.Uint(math.MaxInt64)), rows: int64(d.Uint(uint64(left)))}
		p.rowGroups = int(d.Uint(math.MaxInt32))
		p.blocks = int(d.Uint(uint64(frames - total)))
		if d.Err() != nil {
			break
		}
		left -= p.rows
		total += p.blocks
		b.parts = append(b.parts, p)
	}
	if d.Err() == nil && (total != frames || left != 0) {
		d.Fail(fmt.Sprintf("%d frames, parts of %d rows", frames, b.rows), fmt.Sprintf("%d, %d", total, b.rows-left))
	}
	return b, d.Close()
}

// batchWriter writes a postings object: all domains in order, then all page index blocks, then Finish.
type batchWriter struct {
	fw    *codec.FrameWriter
	dir   batchDirectory
	frame []byte
	last  []byte // domain
	some  bool   // the frame has a record

	scratch []byte
}

func newBatchWriter(w io.Writer, dataset uint32, batch string) *batchWriter {
	b := &batchWriter{fw: codec.NewFrameWriter(w, 0), dir: batchDirectory{dataset: dataset, batch: batch}}
	b.fw.Ahead(runtime.GOMAXPROCS(0))
	return b
}

// domain adds the next domain. The tuples' files are numbers of parts in this object.
func (w *batchWriter) domain(r *record) error {
	w.scratch = segment.AppendTuples(appendTotals(w.scratch[:0], &r.totals), r.tuples)
	return w.packed(r.key, r.totals.Rows, w.scratch)
}

// packed is domain for totals and tuples that are encoded already.
func (w *batchWriter) packed(domain []byte, rows int64, packed []byte) error {
	if w.dir.domains > 0 && string(domain) <= string(w.last) {
		return fmt.Errorf("domain %q after %q", domain, w.last)
	}
	if len(w.frame) >= batchFrame {
		if err := w.flush(); err != nil {
			return err
		}
	}
	shared := 0
	if w.some {
		for shared < len(domain) && shared < len(w.last) && domain[shared] == w.last[shared] {
			shared++
		}
	}
	w.frame = codec.AppendUvarint(w.frame, uint64(shared))
	w.frame = codec.AppendUvarint(w.frame, uint64(len(domain)-shared))
	w.frame = append(w.frame, domain[shared:]...)
	w.frame = append(w.frame, packed...)
	w.last, w.some = append(w.last[:0], domain...), true
	w.dir.domains++
	w.dir.rows += rows
	return nil
}

func (w *batchWriter) flush() error {
	if !w.some {
		return nil
	}
	_, _, err := w.fw.Frame(nil, w.frame)
	w.frame, w.some = w.frame[:0], false
	w.dir.frames++
	return err
}

// part adds the next part with its page index blocks as they stand.
func (w *batchWriter) part(p *lake.Part, blocks [][]byte) error {
	if err := w.flush(); err != nil {
		return err
	}
	for _, b := range blocks {
		if _, _, err := w.fw.Frame(nil, b); err != nil {
			return err
		}
	}
	w.dir.parts = append(w.dir.parts, batchPart{p.Key, p.Bytes, p.Rows, p.RowGroups, len(blocks)})
	return nil
}

func (w *batchWriter) finish() (codec.FrameFile, error) {
	if err := w.flush(); err != nil {
		return codec.FrameFile{}, err
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
	at := r.batchDirectory.frames
	for _, p := range r.parts[:n] {
		at += p.blocks
	}
	if r.parts[n].blocks == 0 {
		return nil, nil
	}
	return r.frames.Read(ctx, r.read, at, at+r.parts[n].blocks)
}

// batchSource yields the domains of a postings object with file ids in place of part numbers, a
// slab a frame. It opens its stream when the first is asked for, and closes it after the last.
type batchSource struct {
	batch BatchRef
	r     *batchReader
	files []uint32 // of the parts

	stream  io.ReadCloser
	buf     *bufio.Reader
	frame   int
	packed  []byte
	last    []byte // domain
	domains int64
	rows    int64
	rec     record
	part    []segment.Tuple
}

func (s *batchSource) close() {
	if s.stream != nil {
		s.stream.Close()
		s.stream, s.buf = nil, nil
	}
}

func (s *batchSource) next(ctx context.Context) (*slab, error) {
	data, err := s.nextFrame(ctx)
	if data == nil || err != nil {
		s.close()
		return nil, damaged(s.batch, err)
	}
	sl := newSlab()
	sl.dataset = s.r.dataset
	d := codec.NewDecoder(data, s.r.key, fmt.Sprintf("frame %d", s.frame-1))
	for at := 0; at < len(data); {
		if n := s.readFast(sl, data[at:]); n > 0 {
			at += n
			continue
		}
		d.Bytes(at - d.Offset())
		if s.read(sl, d); d.Err() != nil {
			s.close()
			return nil, damaged(s.batch, d.Err())
		}
		at = d.Offset()
	}
	s.last = append(s.last[:0], sl.domain(sl.len()-1)...)
	return sl, nil
}

// readFast reads a record of the usual kind: a name of at most 127 bytes, one tuple. It returns its length, 0 where read has to
// look at it, and say what is wrong.
func (s *batchSource) readFast(sl *slab, p []byte) int {
	if len(p) < 2 || p[0] >= 0x80 || p[1] >= 0x80 {
		return 0
	}
	shared, n := int(p[0]), int(p[1])
	if 2+n > len(p) {
		return 0
	}
	before := s.last
	if sl.len() > 0 {
		before = sl.domain(sl.len() - 1)
	} else if shared > 0 {
		return 0
	}
	rest := p[2 : 2+n]
	if shared > len(before) || !after(rest, before[shared:]) || shared+n > segment.MaxDomain {
		return 0
	}
	start := 2 + n
	totals, used := readTotalsFast(p[start:])
	if used == 0 {
		return 0
	}
	at := start + used
	if at >= len(p) || p[at] != 1 {
		return 0
	}
	part, file := uvarint(p, at+1)
	if file <= 0 || part >= uint64(len(s.files)) {
		return 0
	}
	group, end := uvarint(p, file)
	if end <= 0 || group > math.MaxUint32 {
		return 0
	}
	first, end := uvarint(p, end)
	if end <= 0 || first > math.MaxInt64 || totals.Rows > math.MaxInt64-int64(first) {
		return 0
	}
	rows, end := uvarint(p, end)
	if end <= 0 || rows != uint64(totals.Rows-1) {
		return 0
	}
	sl.text = append(append(append(sl.text, before[:shared]...), rest...), '\n')
	sl.ends = append(sl.ends, uint32(len(sl.text)))
	sl.prefix = append(sl.prefix, textPrefix(sl.domain(len(sl.ends)-1)))
	sl.vals = codec.AppendUvarint(sl.vals, uint64(s.r.dataset))
	sl.vals = append(sl.vals, p[start:at+1]...)
	sl.vals = codec.AppendUvarint(sl.vals, uint64(s.files[part]))
	sl.vals = append(sl.vals, p[file:end]...)
	sl.valEnds = append(sl.valEnds, uint32(len(sl.vals)))
	s.domains++
	s.rows += totals.Rows
	return end
}

// read reads any record, or leaves an error in d.
func (s *batchSource) read(sl *slab, d *codec.Decoder) {
	before := s.last
	if sl.len() > 0 {
		before = sl.domain(sl.len() - 1)
	}
	shared := int(d.Uint(uint64(len(before))))
	if sl.len() == 0 && shared != 0 {
		d.Fail("a whole domain", fmt.Sprintf("one that shares %d bytes", shared))
	}
	n := d.Uint(segment.MaxDomain)
	rest := d.Bytes(int(n))
	if d.Err() == nil && s.domains > 0 && !after(rest, before[shared:]) {
		d.Fail(fmt.Sprintf("a domain after %q", before), fmt.Sprintf("%q", append(before[:shared:shared], rest...)))
	}
	s.rec.key = append(append(s.rec.key[:0], before[:shared]...), rest...)
	s.rec.dataset = s.r.dataset
	s.rec.totals = readTotals(d)
	s.part = segment.ReadTuples(d, s.part[:0], s.rec.totals.Rows)
	s.rec.tuples = s.rec.tuples[:0]
	for _, t := range s.part {
		if int64(t.FileID) >= int64(len(s.files)) {
			d.Fail(fmt.Sprintf("a part below %d", len(s.files)), t.FileID)
			break
		}
		t.FileID = s.files[t.FileID]
		s.rec.tuples = append(s.rec.tuples, t)
	}
	if !slices.IsSortedFunc(s.rec.tuples, segment.CompareTuples) {
		// Its parts are in another order than the batch record's.
		slices.SortFunc(s.rec.tuples, segment.CompareTuples)
	}
	if d.Err() == nil && (len(s.rec.key) == 0 || len(s.rec.key) > segment.MaxDomain) {
		d.Fail(fmt.Sprintf("a domain of 1 to %d bytes", segment.MaxDomain), len(s.rec.key))
	}
	if d.Err() == nil {
		sl.add(&s.rec)
		s.domains++
		s.rows += s.rec.totals.Rows
	}
}

// after tells whether a sorts after b.
func after(a, b []byte) bool { return string(a) > string(b) }

// nextFrame decodes the next domain frame; nil after the last.
func (s *batchSource) nextFrame(ctx context.Context) ([]byte, error) {
	r := s.r
	if s.frame == r.batchDirectory.frames {
		if s.domains != r.domains || s.rows != r.rows {
			return nil, codec.Corrupt(r.key, "directory", -1, fmt.Sprintf("%d domains, %d rows", s.domains, s.rows), fmt.Sprintf("%d, %d", r.domains, r.rows))
		}
		return nil, nil
	}
	if s.stream == nil {
		_, n := r.frames.Place(0, r.batchDirectory.frames)
		var err error
		if s.stream, err = r.store.Open(ctx, r.key, 0, n); err != nil {
			return nil, err
		}
		s.buf = bufio.NewReaderSize(s.stream, int(min(n, batchBuffer)))
	}
	_, n := r.frames.Place(s.frame, s.frame+1)
	if int64(cap(s.packed)) < n {
		s.packed = make([]byte, n)
	}
	s.packed = s.packed[:n]
	if _, err := io.ReadFull(s.buf, s.packed); err != nil {
		return nil, fmt.Errorf("read frame %d of %s: %w", s.frame, r.key, err)
	}
	data, err := r.frames.Decode(s.frame, s.packed)
	if err != nil {
		return nil, err
	}
	s.frame++
	return data, nil
}
