package postings

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/seekable"
	"github.com/zeebo/xxh3"
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
	batchVersion = 1

	// batchFrame is how many bytes of names a domain frame holds. A build has three frames of each part in memory.
	batchFrame = 32 << 10

	// batchFrameHeader is u32 domains, u32 bytes of rows, u32 bytes of totals.
	batchFrameHeader = 12

	// batchBuffer is what is read at once of each part's domains.
	BatchBuffer = 32 << 10

	// maxParts bounds the parts of one object.
	maxParts = 1 << 20
)

// batchPart is a part as a postings object names it.
type BatchPart struct {
	Key     string
	Bytes   int64
	Rows    int64
	Domains int64
	Groups  []int64 // rows of each row group
	Frames  int     // domain frames
	blocks  int     // page index frames
}

// batchDirectory is the last frame of a postings object.
type BatchDirectory struct {
	Dataset uint32
	Batch   string
	Parts   []BatchPart
}

// domains adds up those of the parts; one that two parts have counts twice.
func (b *BatchDirectory) Domains() (n int64) {
	for i := range b.Parts {
		n += b.Parts[i].Domains
	}
	return n
}

func (b *BatchDirectory) Append(out []byte) []byte {
	out = codec.AppendMagic(out, batchMagic, batchVersion)
	out = codec.AppendUvarint(out, uint64(b.Dataset))
	out = codec.AppendString(out, b.Batch)
	out = codec.AppendUvarint(out, uint64(len(b.Parts)))
	for _, p := range b.Parts {
		out = codec.AppendString(out, p.Key)
		out = codec.AppendUvarint(out, uint64(p.Bytes))
		out = codec.AppendUvarint(out, uint64(p.Domains))
		out = codec.AppendUvarint(out, uint64(p.Frames))
		out = codec.AppendUvarint(out, uint64(p.blocks))
		out = codec.AppendUvarint(out, uint64(len(p.Groups)))
		for _, n := range p.Groups {
			out = codec.AppendUvarint(out, uint64(n))
		}
	}
	return codec.AppendCRC32C(out)
}

// decodeDirectory reads the last of frames frames.
func decodeDirectory(data []byte, file string, frames int) (*BatchDirectory, error) {
	body, err := codec.CheckCRC32C(data, file, "directory")
	if err != nil {
		return nil, err
	}
	d := codec.NewDecoder(body, file, "directory")
	d.Magic(batchMagic, batchVersion)
	b := &BatchDirectory{Dataset: uint32(d.Uint(math.MaxUint32)), Batch: d.String()}
	left, room := frames-1, uint64(math.MaxInt64) // frames, and rows of all parts
	n := int(d.Uint(min(maxParts, uint64(d.Len()))))
	for range n {
		p := BatchPart{Key: d.String(), Bytes: int64(d.Uint(math.MaxInt64)), Domains: int64(d.Uint(math.MaxInt64))}
		p.Frames = int(d.Uint(uint64(left)))
		p.blocks = int(d.Uint(uint64(left - p.Frames)))
		left -= p.Frames + p.blocks
		for range d.Uint(uint64(d.Len())) {
			n := d.Uint(room)
			if d.Err() != nil {
				return nil, d.Close()
			}
			if n == 0 {
				d.Fail("a row group with rows", "none")
			}
			room -= n
			p.Rows += int64(n)
			p.Groups = append(p.Groups, int64(n))
		}
		if d.Err() != nil {
			return nil, d.Close()
		}
		b.Parts = append(b.Parts, p)
	}
	if d.Err() == nil && left != 0 {
		d.Fail(fmt.Sprintf("%d frames", frames), frames-left)
	}
	return b, d.Close()
}

// batchWriter writes a postings object: of each part all domains in order, then part; at last finish.
type batchWriter struct {
	fw     *seekable.Writer
	dir    BatchDirectory
	blocks [][]byte // page index blocks of all parts so far

	domains int64 // of all parts, one that goes on in the next part counted once

	Open BatchPart // that domains are added to
	last []byte    // domain of it
	end  []byte    // the last domain of the part before

	// The columns of the open frame.
	shared, rest []byte
	rows         []byte
	totals       []byte // of all domains of the frame once one has some
	text         []byte
	Frame        []byte
}

func NewBatchWriter(w io.Writer, dataset uint32, batch string) *batchWriter {
	b := &batchWriter{fw: seekable.NewWriter(w, 0), dir: BatchDirectory{Dataset: dataset, Batch: batch}}
	b.fw.SetConcurrency(runtime.GOMAXPROCS(0))
	return b
}

// domain adds the open part's next domain, whose rows follow those of the one before.
func (w *batchWriter) Domain(domain []byte, t *segment.Totals) error {
	return w.add(domain, codec.CommonPrefix(domain, w.last), t)
}

// add is domain for one that shares so many bytes with the one before.
func (w *batchWriter) add(domain []byte, shared int, t *segment.Totals) error {
	if !follows(domain, w.last, shared) {
		return fmt.Errorf("domain %q after %q, wanted are at most %d bytes", domain, w.last, segment.MaxDomain)
	}
	if err := t.Validate(); err != nil {
		return fmt.Errorf("domain %q: %w", domain, err)
	}
	if len(w.text) >= batchFrame {
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if len(w.shared) == 0 {
		shared = 0
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
	if w.Open.Domains > 0 || string(domain) != string(w.end) {
		w.domains++
	}
	w.Open.Domains++
	w.Open.Rows += t.Rows
	return nil
}

// addPlain is add for runs [from, to) of r, which have neither size nor ts and follow run from-1, which is the last one that was added. It returns
// the number of the first that does not follow the one before, or to.
func (w *batchWriter) addPlain(r *part.DomainRuns, from, to int) (int, error) {
	before, _ := r.Run(from - 1)
	i := from
	sum := int64(0)
	for ; i < to; i++ {
		domain, rows := r.Run(i)
		shared := codec.CommonPrefix(before, domain)
		if !follows(domain, before, shared) {
			break
		}
		if len(w.text) >= batchFrame {
			if err := w.Flush(); err != nil {
				return 0, err
			}
		}
		before = domain
		if len(w.shared) == 0 {
			shared = 0
		}
		w.shared = append(w.shared, byte(shared))
		w.rest = append(w.rest, byte(len(domain)-shared))
		w.rows = codec.AppendUvarint(w.rows, uint64(rows))
		w.text = append(w.text, domain[shared:]...)
		if len(w.totals) > 0 { // one before in the frame has some
			w.totals = appendMeasures(w.totals, &segment.Totals{Rows: rows})
		}
		sum += rows
	}
	w.last = append(w.last[:0], before...)
	w.domains += int64(i - from)
	w.Open.Domains += int64(i - from)
	w.Open.Rows += sum
	return i, nil
}

// flush writes the open frame.
func (w *batchWriter) Flush() error {
	n := len(w.shared)
	if n == 0 {
		return nil
	}
	f := codec.AppendU32(w.Frame[:0], uint32(n))
	f = codec.AppendU32(f, uint32(len(w.rows)))
	f = codec.AppendU32(f, uint32(len(w.totals)))
	f = append(append(f, w.shared...), w.rest...)
	f = append(append(append(f, w.rows...), w.totals...), w.text...)
	_, _, err := w.fw.SectionedFrame(nil, f, batchFrameHeader, n, n, len(w.rows), len(w.totals), len(w.text))
	w.shared, w.rest, w.rows, w.totals, w.text, w.Frame = w.shared[:0], w.rest[:0], w.rows[:0], w.totals[:0], w.text[:0], f
	w.Open.Frames++
	return err
}

// part ends the open part, whose page index these blocks are.
func (w *batchWriter) Part(p *lake.Part, groups []int64, blocks [][]byte) error {
	if err := w.Flush(); err != nil {
		return err
	}
	rows := int64(0)
	for _, n := range groups {
		rows += n
	}
	if rows != p.Rows || w.Open.Rows != p.Rows {
		return fmt.Errorf("%s has %d rows, its domains %d and its row groups %d", p.Key, p.Rows, w.Open.Rows, rows)
	}
	w.Open.Key, w.Open.Bytes, w.Open.Groups, w.Open.blocks = p.Key, p.Bytes, groups, len(blocks)
	w.dir.Parts = append(w.dir.Parts, w.Open)
	w.blocks = append(w.blocks, blocks...)
	w.end = append(w.end[:0], w.last...)
	w.Open, w.last = BatchPart{}, w.last[:0]
	return nil
}

func (w *batchWriter) Finish() (seekable.File, error) {
	for _, b := range w.blocks {
		if _, _, err := w.fw.Frame(nil, b); err != nil {
			return seekable.File{}, err
		}
	}
	if _, _, err := w.fw.Frame(nil, w.dir.Append(nil)); err != nil {
		return seekable.File{}, err
	}
	return w.fw.Finish()
}

// batchReader reads a postings object.
type batchReader struct {
	*BatchDirectory
	store  blob.Store
	Key    string
	Frames *seekable.Frames
}

// openBatch reads tail and directory.
func OpenBatch(ctx context.Context, store blob.Store, o lake.FrameObject) (*batchReader, error) {
	ff, err := o.FrameFile()
	if err != nil {
		return nil, err
	}
	r := &batchReader{store: store, Key: o.Key}
	if r.Frames, err = seekable.OpenAt(ctx, r.read, ff, o.Key, 0); err != nil {
		return nil, err
	}
	n := r.Frames.Len()
	if n == 0 {
		return nil, codec.Corrupt(o.Key, "seek table", -1, "a frame", "none")
	}
	last, err := r.Frames.Read(ctx, r.read, n-1, n)
	if err != nil {
		return nil, err
	}
	if r.BatchDirectory, err = decodeDirectory(last[0], o.Key, n); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *batchReader) read(ctx context.Context, off, n int64) ([]byte, error) {
	return r.store.ReadRange(ctx, r.Key, off, n)
}

// pages reads the page index frames of part number n.
func (r *batchReader) Pages(ctx context.Context, n int) ([][]byte, error) {
	if r.Parts[n].blocks == 0 {
		return nil, nil
	}
	at := 0
	for i := range r.Parts {
		at += r.Parts[i].Frames
		if i < n {
			at += r.Parts[i].blocks
		}
	}
	return r.Frames.Read(ctx, r.read, at, at+r.Parts[n].blocks)
}

// batchSource yields the domains of one part of a postings object. It opens its stream when the first is asked for, and closes it after
// the last.
type BatchSource struct {
	batch BatchRef
	r     *batchReader
	part  int

	stream     io.ReadCloser
	buf        *bufio.Reader
	data       []byte // the frame in use
	frame, end int    // the next domain frame to be read, and the part's last

	// What is not looked at yet of the frame in use, by column.
	shared, rest, counts, measures, text []byte
	measured                             bool

	used    int   // frames
	domains int64 // in frames that were begun
	left    int64 // rows of the part, of the domains to come
	places  RowPlaces
	rec     Record
	name    [segment.MaxDomain + batchCopy]byte // the last domain
	length  int                                 // of it
}

func NewBatchSource(o *PostingsObject, part int) *BatchSource {
	s := &BatchSource{batch: o.Batch, r: o.Reader, part: part, places: RowPlaces{File: o.Files[part], Groups: o.Reader.Parts[part].Groups}}
	for i := range part {
		s.frame += o.Reader.Parts[i].Frames
	}
	s.used, s.end = s.frame, s.frame+o.Reader.Parts[part].Frames
	s.left = o.Reader.Parts[part].Rows
	return s
}

func (s *BatchSource) Close() {
	s.data, s.shared, s.rest, s.counts, s.measures, s.text = nil, nil, nil, nil, nil, nil
	if s.stream != nil {
		s.stream.Close()
		s.stream, s.buf = nil, nil
	}
}

// corrupt says what is wrong with the frame in use.
func (s *BatchSource) corrupt(want, got any) error {
	return Damaged(s.batch, codec.Corrupt(s.r.Key, fmt.Sprintf("frame %d", s.used-1), -1, want, got))
}

func (s *BatchSource) Load(ctx context.Context, buf []byte) ([]byte, error) {
	block, err := s.loadBlock(ctx, slices.Grow(buf[:0], blockBytes+BlockSlack))
	if block == nil {
		s.Close()
	}
	return block, err
}

func (s *BatchSource) loadBlock(ctx context.Context, block []byte) ([]byte, error) {
	for len(block) < blockBytes {
		if len(s.shared) == 0 {
			if s.data != nil {
				if err := s.endFrame(); err != nil {
					return nil, err
				}
			}
			more, err := s.loadFrame(ctx)
			if err != nil {
				return nil, Damaged(s.batch, err)
			}
			if !more {
				break
			}
			if err := s.use(s.data); err != nil {
				return nil, err
			}
		}
		var err error
		if block, err = s.appendDomains(block); err != nil {
			return nil, err
		}
	}
	if len(block) == 0 {
		return nil, nil
	}
	return append(block, make([]byte, BlockSlack)...), nil
}

// packedFrames keeps memory for frames that do not fit in what is read at once, as those with sizes and times. Sources, of which there are many, have none of their own.
var packedFrames = sync.Pool{New: func() any { return new([]byte) }}

// loadFrame decodes the next domain frame; there is none after the last.
func (s *BatchSource) loadFrame(ctx context.Context) (more bool, err error) {
	r := s.r
	if s.frame == s.end {
		if p := &r.Parts[s.part]; p.Frames == 0 && (p.Domains > 0 || p.Rows > 0) {
			return false, codec.Corrupt(r.Key, "directory", -1, fmt.Sprintf("frames of %d domains, %d rows", p.Domains, p.Rows), "none")
		}
		return false, nil
	}
	if s.stream == nil {
		off, n := r.Frames.Range(s.frame, s.end)
		if s.stream, err = r.store.Open(ctx, r.Key, off, n); err != nil {
			return false, err
		}
		s.buf = bufio.NewReaderSize(s.stream, int(min(n, BatchBuffer)))
	}
	_, size := r.Frames.Range(s.frame, s.frame+1)
	n := int(size)
	packed, err := s.buf.Peek(min(n, s.buf.Size()))
	if err == nil && len(packed) < n {
		whole := packedFrames.Get().(*[]byte)
		defer packedFrames.Put(whole)
		*whole = slices.Grow((*whole)[:0], n)[:n]
		packed = *whole
		_, err = io.ReadFull(s.buf, packed)
		n = 0
	}
	if err != nil {
		return false, fmt.Errorf("read frame %d of %s: %w", s.frame, r.Key, err)
	}
	data, err := r.Frames.DecodeInto(s.frame, packed, s.data)
	if err != nil {
		return false, err
	}
	if at := len(packed) - len(data); at >= 0 && &packed[at] == &data[0] {
		data = append(s.data[:0], data...) // it was a view
	}
	if _, err := s.buf.Discard(n); err != nil {
		return false, err
	}
	s.data = data
	s.frame++
	return true, nil
}

func (s *BatchSource) use(data []byte) error {
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
	s.domains += domains
	if s.shared[0] != 0 {
		return s.corrupt("a whole domain", fmt.Sprintf("one that shares %d bytes", s.shared[0]))
	}
	return nil
}

// appendDomains appends domains of the frame in use to a block, until it is full or there are no more.
func (s *BatchSource) appendDomains(block []byte) ([]byte, error) {
	for {
		block = s.appendPlainDomains(block)
		if len(block) >= blockBytes || len(s.shared) == 0 {
			return block, nil
		}
		var err error
		if block, err = s.appendDomain(block); err != nil {
			return nil, err
		}
	}
}

// batchCopy is how many bytes of a domain are copied at once.
const batchCopy = 32

// appendPlainDomains appends domains as long as they are what most are: not long and not the last ones of the frame, with a plain
// record.
func (s *BatchSource) appendPlainDomains(block []byte) []byte {
	const (
		most  = batchCopy / 2 // bytes of a domain that are not shared
		entry = BlockHeader + batchCopy + RecordHeader
	)
	if s.measured || len(block) >= blockBytes {
		return block
	}
	block = slices.Grow(block, blockBytes+entry-len(block))
	le := binary.LittleEndian
	shared, rest, counts, text := s.shared, s.rest, s.counts, s.text
	length, left, at := s.length, s.left, &s.places
	row, end := at.row, int64(0)
	if at.group < len(at.Groups) && at.group < OtherRecord {
		end = min(at.Groups[at.group], math.MaxUint32) // rows below have plain records
	}
	file := uint64(at.File) | uint64(uint32(at.group))<<32
	i := 0
	for ; i < len(shared) && i < len(rest) && i < len(counts) && len(text) >= most && len(block) < blockBytes; i++ {
		have, n, count := int(shared[i]), int(rest[i]), int64(counts[i])
		name := (*[batchCopy]byte)(s.name[:])
		if uint(n-1) >= most || have > length || have+n > batchCopy || have < length && text[0] <= name[have] ||
			uint64(count-1) >= 0x7f || row+count >= end {
			break
		}
		*(*[most]byte)(s.name[have:]) = *(*[most]byte)(text)
		text = text[n:]
		length = have + n

		from := len(block)
		p := (*[entry]byte)(block[from : from+entry])
		le.PutUint64(p[:], OffsetCodeFast(s.name[:], length, have))
		le.PutUint32(p[8:], RecordHeader)
		p[12] = byte(length)
		*(*[most]byte)(p[BlockHeader:]) = *(*[most]byte)(name[:])
		*(*[most]byte)(p[BlockHeader+most:]) = *(*[most]byte)(name[most:])
		le.PutUint64(p[BlockHeader+length:], file)
		le.PutUint64(p[BlockHeader+length+8:], uint64(uint32(row))|uint64(count)<<32)
		block = block[:from+BlockHeader+length+RecordHeader]
		row += count
		left -= count
	}
	s.shared, s.rest, s.counts, s.text = shared[i:], rest[i:], counts[i:], text
	s.length, s.left, at.row = length, left, row
	return block
}

// appendDomain appends the next domain to a block.
func (s *BatchSource) appendDomain(block []byte) ([]byte, error) {
	shared, n := int(s.shared[0]), int(s.rest[0])
	text := s.text[:min(n, len(s.text))]
	before := s.name[:s.length]
	same := shared // what both have in common
	for same < s.length && same-shared < len(text) && text[same-shared] == before[same] {
		same++
	}
	if shared > s.length || n > len(text) || shared+n > segment.MaxDomain || same-shared == n || same < s.length && text[same-shared] < before[same] {
		return nil, s.corrupt(fmt.Sprintf("a domain of at most %d bytes after %q", segment.MaxDomain, before), fmt.Sprintf("%d of its bytes and %q", shared, text))
	}
	s.length = shared + copy(s.name[shared:], text)
	s.shared, s.rest, s.text = s.shared[1:], s.rest[1:], s.text[n:]

	le := binary.LittleEndian
	domain := s.name[:s.length]
	block = le.AppendUint64(block, OffsetCodeFast(s.name[:], len(domain), same))
	start := len(block)
	block = append(append(le.AppendUint32(block, 0), byte(len(domain))), domain...)
	records := len(block)
	block, err := s.appendRecord(block)
	if err != nil {
		return nil, err
	}
	if uint64(len(block)-records) > math.MaxUint32 {
		return nil, fmt.Errorf("domain %q has records of 4 GiB in %s", domain, s.r.Key)
	}
	le.PutUint32(block[start:], uint32(len(block)-records))
	return block, nil
}

// appendRecord appends the record of the next domain.
func (s *BatchSource) appendRecord(out []byte) ([]byte, error) {
	v, n := uvarint(s.counts, 0)
	if n <= 0 {
		return nil, s.corrupt("rows", fmt.Sprintf("%x", s.counts[:min(len(s.counts), 10)]))
	}
	s.counts = s.counts[n:]
	if v < 1 || v > uint64(s.left) {
		return nil, s.corrupt(fmt.Sprintf("1 to %d rows", s.left), v)
	}
	s.left -= int64(v)
	t := segment.Totals{Rows: int64(v)}
	if s.measured {
		if t, n = readMeasuresFast(s.measures, t.Rows); n == 0 {
			d := codec.NewDecoder(s.measures, s.r.Key, fmt.Sprintf("totals in frame %d", s.used-1))
			t = readMeasures(d, int64(v))
			if err := d.Err(); err != nil {
				return nil, Damaged(s.batch, err)
			}
			n = d.Offset()
		}
		s.measures = s.measures[n:]
	}
	s.rec.Totals, s.rec.Tuples = t, s.places.Take(t.Rows, s.rec.Tuples[:0])
	return s.rec.Append(out), nil
}

// endFrame checks that columns end together, and after the last frame that there was all that the directory says.
func (s *BatchSource) endFrame() error {
	if len(s.text)+len(s.counts)+len(s.measures) > 0 {
		return s.corrupt("columns of as many domains", fmt.Sprintf("%d bytes of text, %d of rows, %d of totals more", len(s.text), len(s.counts), len(s.measures)))
	}
	if p := &s.r.Parts[s.part]; s.used == s.end && (s.domains != p.Domains || s.left != 0) {
		return Damaged(s.batch, codec.Corrupt(s.r.Key, "directory", -1, fmt.Sprintf("%d domains, %d rows of %s", p.Domains, p.Rows, p.Key), fmt.Sprintf("%d, %d", s.domains, p.Rows-s.left)))
	}
	return nil
}

// BatchRef names a finished batch.
type BatchRef = segment.BatchRef

// SegmentRef names a segment.
type SegmentRef = segment.Ref

// urlKey is segment.KeyOf for bytes.
func DomainKey(domain []byte) segment.Key {
	return segment.Key{ID: xxh3.Hash(domain), Check: uint32(xxh3.Hash128(domain).Hi >> 32)}
}

// postingsObject is one postings object and the file ids of its parts.
type PostingsObject struct {
	Batch  BatchRef
	Reader *batchReader
	Files  []uint32
}
