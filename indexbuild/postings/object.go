// Package postings holds the postings object of a batch: what an index needs to know of some parts
// of the batch, so that a segment is built without reading Parquet.
//
// A Collector makes the object while a merge writes the parts. Extract makes the same object from
// finished parts. A Reader reads it back: its Sources yield the sorted domains of each part, in
// blocks that package indexbuild merges, and PageIndex yields the page indexes.
//
// Objects depend only on the rows of their parts and are named by their content. Everything that a
// Reader returns has been checked: checksums, order, lengths and the directory's numbers. What is
// wrong with a batch's objects is a *DamageError that names the batch.
//
// The ingest collects postings, the activities extract them, package indexbuild builds segments
// from them, and a rebuild restores lost ones. Package verify counts the rows of parts again with a
// PartScanner and a DomainCounter.
package postings

import (
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
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/seekable"
)

// A postings object is a frame file without fences:
//
//	domain frames     for each part its sorted domains, with the number of their rows
//	page index frames for each part the blocks of its page index, one in a frame
//	directory         the last frame
//
// The rows of a part are in the order of its domains, so their location follows from their number.
// docs/formats/batch-postings.md describes every byte.
const (
	objectMagic   = "BPX1"
	objectVersion = 1

	// domainFrameBytes is how many bytes of names a domain frame holds. A build has three frames of
	// each part in memory.
	domainFrameBytes = 32 << 10

	// domainFrameHeader is u32 domains, u32 bytes of rows, u32 bytes of totals.
	domainFrameHeader = 12

	// maxParts bounds the parts of an object.
	maxParts = 1 << 20
)

// Part is a part in the directory of a postings object.
type Part struct {
	Key     string
	Bytes   int64
	Rows    int64
	Domains int64
	Groups  []int64 // rows of each row group

	domainFrames int
	indexFrames  int // of the page index
}

// directory is the last frame of a postings object.
type directory struct {
	dataset uint32
	batch   string
	parts   []Part
}

func (d *directory) encode() []byte {
	out := codec.AppendMagic(nil, objectMagic, objectVersion)
	out = codec.AppendUvarint(out, uint64(d.dataset))
	out = codec.AppendString(out, d.batch)
	out = codec.AppendUvarint(out, uint64(len(d.parts)))
	for _, p := range d.parts {
		out = codec.AppendString(out, p.Key)
		out = codec.AppendUvarint(out, uint64(p.Bytes))
		out = codec.AppendUvarint(out, uint64(p.Domains))
		out = codec.AppendUvarint(out, uint64(p.domainFrames))
		out = codec.AppendUvarint(out, uint64(p.indexFrames))
		out = codec.AppendUvarint(out, uint64(len(p.Groups)))
		for _, n := range p.Groups {
			out = codec.AppendUvarint(out, uint64(n))
		}
	}
	return codec.AppendCRC32C(out)
}

// decodeDirectory decodes the directory of an object that has this many frames.
func decodeDirectory(data []byte, file string, frames int) (*directory, error) {
	body, err := codec.CheckCRC32C(data, file, "directory")
	if err != nil {
		return nil, err
	}
	d := codec.NewDecoder(body, file, "directory")
	d.Magic(objectMagic, objectVersion)
	dir := &directory{dataset: uint32(d.Uint(math.MaxUint32)), batch: d.String()}
	framesLeft, rowsLeft := frames-1, uint64(math.MaxInt64)
	n := int(d.Uint(min(maxParts, uint64(d.Len()))))
	for range n {
		p := Part{Key: d.String(), Bytes: int64(d.Uint(math.MaxInt64)), Domains: int64(d.Uint(math.MaxInt64))}
		p.domainFrames = int(d.Uint(uint64(framesLeft)))
		p.indexFrames = int(d.Uint(uint64(framesLeft - p.domainFrames)))
		framesLeft -= p.domainFrames + p.indexFrames
		for range d.Uint(uint64(d.Len())) {
			n := d.Uint(rowsLeft)
			if d.Err() != nil {
				return nil, d.Close()
			}
			if n == 0 {
				d.Fail("a row group with rows", "none")
			}
			rowsLeft -= n
			p.Rows += int64(n)
			p.Groups = append(p.Groups, int64(n))
		}
		if d.Err() != nil {
			return nil, d.Close()
		}
		dir.parts = append(dir.parts, p)
	}
	if d.Err() == nil && framesLeft != 0 {
		d.Fail(fmt.Sprintf("%d frames", frames), frames-framesLeft)
	}
	return dir, d.Close()
}

// Writer writes a postings object: for each part AddDomain with all its domains in order, then
// EndPart; at last Finish.
type Writer struct {
	frames *seekable.Writer
	dir    directory
	blocks [][]byte // of the page index, of all parts so far

	domains int64 // of all parts; a domain that continues in the next part counts once

	open       Part   // the part that domains are added to
	last       []byte // its last domain
	endOfParts []byte // the last domain of the part before

	// The columns of the open domain frame.
	shared, rest []byte
	rows         []byte
	totals       []byte // empty until a domain of the frame has a size or ts, then of all domains
	text         []byte

	frame []byte // scratch memory
}

// NewWriter returns a Writer of an object to w, with the postings of parts of a dataset's batch.
func NewWriter(w io.Writer, dataset uint32, batch string) *Writer {
	pw := &Writer{frames: seekable.NewWriter(w, 0), dir: directory{dataset: dataset, batch: batch}}
	pw.frames.SetConcurrency(runtime.GOMAXPROCS(0))
	return pw
}

// AddDomain adds the open part's next domain. Its rows follow those of the previous domain.
func (w *Writer) AddDomain(domain []byte, t *segment.Totals) error {
	return w.add(domain, codec.CommonPrefix(domain, w.last), t)
}

// add is AddDomain for a domain that shares so many bytes with the previous one.
func (w *Writer) add(domain []byte, shared int, t *segment.Totals) error {
	if !follows(domain, w.last, shared) {
		return fmt.Errorf("domain %q after %q: domains must ascend and have at most %d bytes",
			domain, w.last, segment.MaxDomain)
	}
	if err := t.Validate(); err != nil {
		return fmt.Errorf("domain %q: %w", domain, err)
	}
	if len(w.text) >= domainFrameBytes {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if len(w.shared) == 0 {
		shared = 0
	}
	if t.HasSize || t.HasTS || len(w.totals) > 0 {
		if len(w.totals) == 0 {
			w.totals = append(w.totals, make([]byte, len(w.shared))...) // flags of the domains before
		}
		w.totals = appendMeasures(w.totals, t)
	}
	w.shared = append(w.shared, byte(shared))
	w.rest = append(w.rest, byte(len(domain)-shared))
	w.rows = codec.AppendUvarint(w.rows, uint64(t.Rows))
	w.text = append(w.text, domain[shared:]...)
	w.last = append(w.last[:shared], domain[shared:]...)
	if w.open.Domains > 0 || string(domain) != string(w.endOfParts) {
		w.domains++
	}
	w.open.Domains++
	w.open.Rows += t.Rows
	return nil
}

// addPlain is add for the runs [from, to) of r, which have neither size nor ts. Run from-1 must be
// the last domain that was added. addPlain returns the number of the first run that does not follow
// the run before it, or to.
func (w *Writer) addPlain(r *part.DomainRuns, from, to int) (int, error) {
	before, _ := r.Run(from - 1)
	i := from
	sum := int64(0)
	for ; i < to; i++ {
		domain, rows := r.Run(i)
		shared := codec.CommonPrefix(before, domain)
		if !follows(domain, before, shared) {
			break
		}
		if len(w.text) >= domainFrameBytes {
			if err := w.flush(); err != nil {
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
		if len(w.totals) > 0 {
			w.totals = appendMeasures(w.totals, &segment.Totals{Rows: rows})
		}
		sum += rows
	}
	w.last = append(w.last[:0], before...)
	w.domains += int64(i - from)
	w.open.Domains += int64(i - from)
	w.open.Rows += sum
	return i, nil
}

// flush writes the open domain frame.
func (w *Writer) flush() error {
	n := len(w.shared)
	if n == 0 {
		return nil
	}
	f := codec.AppendU32(w.frame[:0], uint32(n))
	f = codec.AppendU32(f, uint32(len(w.rows)))
	f = codec.AppendU32(f, uint32(len(w.totals)))
	f = append(append(f, w.shared...), w.rest...)
	f = append(append(append(f, w.rows...), w.totals...), w.text...)
	_, _, err := w.frames.SectionedFrame(nil, f, domainFrameHeader, n, n, len(w.rows), len(w.totals), len(w.text))
	w.shared, w.rest, w.frame = w.shared[:0], w.rest[:0], f
	w.rows, w.totals, w.text = w.rows[:0], w.totals[:0], w.text[:0]
	w.open.domainFrames++
	return err
}

// EndPart ends the open part. Its row groups have the rows in groups, its page index has these
// blocks.
func (w *Writer) EndPart(p *lake.Part, groups []int64, blocks [][]byte) error {
	if err := w.flush(); err != nil {
		return err
	}
	rows := int64(0)
	for _, n := range groups {
		rows += n
	}
	if rows != p.Rows || w.open.Rows != p.Rows {
		return fmt.Errorf("%s has %d rows, its domains %d and its row groups %d", p.Key, p.Rows, w.open.Rows, rows)
	}
	w.open.Key, w.open.Bytes, w.open.Groups, w.open.indexFrames = p.Key, p.Bytes, groups, len(blocks)
	w.dir.parts = append(w.dir.parts, w.open)
	w.blocks = append(w.blocks, blocks...)
	w.endOfParts = append(w.endOfParts[:0], w.last...)
	w.open, w.last = Part{}, w.last[:0]
	return nil
}

// Finish writes the page indexes and the directory.
func (w *Writer) Finish() (seekable.File, error) {
	for _, b := range w.blocks {
		if _, _, err := w.frames.Frame(nil, b); err != nil {
			return seekable.File{}, err
		}
	}
	if _, _, err := w.frames.Frame(nil, w.dir.encode()); err != nil {
		return seekable.File{}, err
	}
	return w.frames.Finish()
}

// follows reports whether domain a may come after b, with which it shares so many bytes: it is
// larger and has at most segment.MaxDomain bytes.
func follows(a, b []byte, shared int) bool {
	return shared < len(a) && (shared == len(b) || a[shared] > b[shared]) && len(a) <= segment.MaxDomain
}

// Reader reads a postings object. It may be used by several goroutines.
type Reader struct {
	store  blob.Store
	batch  segment.BatchRef
	key    string
	frames *seekable.Frames
	dir    *directory
}

// Open opens a postings object of batch: it reads the footer and the directory. Whatever is wrong
// with the object is a *DamageError, here and in all methods.
func Open(ctx context.Context, store blob.Store, batch segment.BatchRef, o lake.FrameObject) (*Reader, error) {
	r := &Reader{store: store, batch: batch, key: o.Key}
	if err := r.open(ctx, o); err != nil {
		return nil, Damaged(batch, err)
	}
	return r, nil
}

func (r *Reader) open(ctx context.Context, o lake.FrameObject) error {
	ff, err := o.FrameFile()
	if err != nil {
		return err
	}
	if r.frames, err = seekable.OpenAt(ctx, r.read, ff, o.Key, 0); err != nil {
		return err
	}
	n := r.frames.Len()
	if n == 0 {
		return codec.Corrupt(o.Key, "seek table", -1, "a frame", "none")
	}
	last, err := r.frames.Read(ctx, r.read, n-1, n)
	if err != nil {
		return err
	}
	if r.dir, err = decodeDirectory(last[0], o.Key, n); err != nil {
		return err
	}
	if r.dir.dataset != r.batch.DatasetID || r.dir.batch != r.batch.Batch {
		return codec.Corrupt(o.Key, "directory", -1,
			fmt.Sprintf("batch %s of dataset %d", r.batch.Batch, r.batch.DatasetID),
			fmt.Sprintf("batch %s of dataset %d", r.dir.batch, r.dir.dataset))
	}
	return nil
}

func (r *Reader) read(ctx context.Context, off, n int64) ([]byte, error) {
	return r.store.ReadRange(ctx, r.key, off, n)
}

// Batch returns the batch of the object.
func (r *Reader) Batch() segment.BatchRef { return r.batch }

// Key returns the key of the object.
func (r *Reader) Key() string { return r.key }

// Parts returns the parts in the object's order.
func (r *Reader) Parts() []Part { return r.dir.parts }

// Domains returns the number of domains; a domain in two parts counts twice.
func (r *Reader) Domains() (n int64) {
	for i := range r.dir.parts {
		n += r.dir.parts[i].Domains
	}
	return n
}

// PageIndex reads the blocks of the page index of part n.
func (r *Reader) PageIndex(ctx context.Context, n int) ([][]byte, error) {
	parts := r.dir.parts
	if parts[n].indexFrames == 0 {
		return nil, nil
	}
	at := 0
	for i := range parts {
		at += parts[i].domainFrames
		if i < n {
			at += parts[i].indexFrames
		}
	}
	blocks, err := r.frames.Read(ctx, r.read, at, at+parts[n].indexFrames)
	return blocks, Damaged(r.batch, err)
}

// Pages reads and decodes the page index of part n. Its blocks must cover the row groups of the
// part, in order and without gaps.
func (r *Reader) Pages(ctx context.Context, n int) ([]*part.PageIndexBlock, error) {
	encoded, err := r.PageIndex(ctx, n)
	if err != nil {
		return nil, err
	}
	p := &r.dir.parts[n]
	blocks := make([]*part.PageIndexBlock, len(encoded))
	var groups []int64
	for i, data := range encoded {
		b, err := part.DecodePageIndexBlock(data, r.key)
		if err != nil {
			return nil, err
		}
		if b.RowGroup == len(groups) {
			groups = append(groups, 0)
		}
		if b.RowGroup != len(groups)-1 || b.FirstRow != groups[b.RowGroup] {
			return nil, codec.Corrupt(r.key, "page index of "+p.Key, -1, "consecutive row groups and rows",
				fmt.Sprintf("row %d of row group %d", b.FirstRow, b.RowGroup))
		}
		groups[b.RowGroup] += b.Rows()
		blocks[i] = b
	}
	if !slices.Equal(groups, p.Groups) {
		return nil, codec.Corrupt(r.key, "page index of "+p.Key, -1, fmt.Sprintf("row groups of %d rows", p.Groups), groups)
	}
	return blocks, nil
}
