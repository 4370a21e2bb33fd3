package raw

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/urlake/urlake/lake/codec"
)

// Range is a part of an object that is read on its own. A line belongs to the range that holds
// the line break before it, the first line to the range at 0: so the ranges of an object share
// its records out, each to one of them, whatever stands at their borders. Of Parquet a range is
// some row groups, one after another.
type Range struct {
	// From and To count in the decompressed object. Of Parquet they are the numbers, from 0, of the first row group and
	// of the one behind the last.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Stored and StoredTo are where the bytes of From and To stand in the object as stored.
	Stored   int64 `json:"stored"`
	StoredTo int64 `json:"stored_to"`
}

// Ranged reports whether an object read by this plan can be cut: its records are lines,
// whatever they hold, or rows of Parquet that can be read anywhere. Records of CSV and JSON may go
// over lines, and whether a line break stands inside one only reading from the start tells.
func (p Plan) Ranged() bool {
	switch p.Format {
	case Parquet:
		return p.Compression == noCompression
	case Lines, TSV, JSONLines, CDX, CDXJ:
		return p.Compression == noCompression || p.Compression == "zstd"
	}
	return false
}

// Ranges plans an object of size stored bytes and cuts it into ranges of about every stored
// bytes: text anywhere, zstd between frames where it ends in a seek table (facebook/zstd,
// contrib/seekable_format), Parquet between row groups. No ranges mean that it has to be read whole, by [NewReader],
// and the plan is void.
//
// The first range of text has the HeadSize bytes that the plan was made from, header rows among them. Open
// reads the object from a stored offset to its end; for Parquet what it returns has to have ReadAt and Size, as
// for NewReader. Errors are those of NewReader and open.
func Ranges(open func(off int64) (io.ReadCloser, error), size int64, name string, opt Options, every int64) (Plan, []Range, error) {
	r, err := open(0)
	if err != nil {
		return Plan{}, nil, err
	}
	defer r.Close()
	stored := bufio.NewReaderSize(r, HeadSize)
	head, err := stored.Peek(10)
	if err != nil && err != io.EOF {
		return Plan{}, nil, err
	}
	n := (size + every - 1) / every
	if n < 2 {
		return Plan{}, nil, nil
	}
	if bytes.HasPrefix(head, parquetMagic) {
		at, ok := r.(randomAccess)
		if !ok {
			return Plan{}, nil, nil
		}
		return parquetRanges(struct {
			io.Reader
			randomAccess
		}{stored, at}, size, name, opt, n)
	}
	var frames []border
	var end border
	switch compressionOf(head) {
	case noCompression:
	case "zstd":
		if frames, end, err = seekTable(open, size, n); err != nil || end.stored == 0 {
			return Plan{}, nil, err
		}
	default:
		return Plan{}, nil, nil
	}
	rd, err := NewReader(stored, name, opt)
	if err != nil {
		return Plan{}, nil, err
	}
	plan := rd.Plan()
	if !plan.Ranged() {
		return plan, nil, nil
	}
	if plan.Compression == noCompression {
		var at []border
		for k := int64(1); k < n; k++ {
			off := evenly(size, k, n)
			at = append(at, border{off, off})
		}
		return plan, between(at, HeadSize, border{size, size}), nil
	}
	// What stands behind the last frame is the table, which every decompressor passes.
	return plan, between(frames, HeadSize, border{end.off, size}), nil
}

func parquetRanges(r io.Reader, size int64, name string, opt Options, n int64) (Plan, []Range, error) {
	rd, err := NewReader(r, name, opt)
	if err != nil {
		return Plan{}, nil, err
	}
	p := rd.parse.(*parquetParser)
	groups := p.object.groups()
	if p.url == nil || len(groups) == 0 {
		return rd.plan, nil, nil
	}
	// The footer stands behind the last group. Every range reads it.
	return rd.plan, between(nearest(slices.Values(groups), size, n), 1, border{int64(p.object.meta.NumRowGroups()), size}), nil
}

// nearest chooses, of the places where an object may be cut, those next behind its n-ths.
func nearest(places iter.Seq[border], size, n int64) []border {
	var at []border
	k := int64(1)
	for b := range places {
		if b.stored >= evenly(size, k, n) {
			at = append(at, b)
			for k < n && b.stored >= evenly(size, k, n) {
				k++
			}
		}
	}
	return at
}

// evenly is where the k-th of n equal parts of size begins.
func evenly(size, k, n int64) int64 { return size/n*k + size%n*k/n }

// border is a place where an object may be cut.
type border struct{ off, stored int64 }

// between makes ranges of ascending borders, of which the first may not lie before head, and the end; none where no
// border is left.
func between(at []border, head int64, end border) []Range {
	var out []Range
	last := border{}
	for _, b := range append(at, end) {
		if b.off < head && b != end || b.off >= end.off && b != end || b.off <= last.off {
			continue
		}
		out = append(out, Range{From: last.off, To: b.off, Stored: last.stored, StoredTo: b.stored})
		last = b
	}
	if len(out) < 2 {
		return nil
	}
	return out
}

// maxSeekTable bounds the table that is read to cut an object: five million frames.
const maxSeekTable = 64 << 20

// seekTable returns where an object is cut into about n equal parts: the ends of the frames next after
// each n-th of its size. end is the end of the last frame, zero if the object has no seek table that
// covers it from its first byte.
func seekTable(open func(off int64) (io.ReadCloser, error), size, n int64) (at []border, end border, err error) {
	t, err := codec.OpenSeekTable(open, size, "")
	if err == nil {
		defer t.Close()
		if size-t.Start > maxSeekTable {
			return nil, border{}, nil
		}
		at = nearest(func(yield func(border) bool) {
			for t.Next() {
				end.stored += t.Frame.Stored
				end.off += t.Frame.Raw
				if !yield(end) {
					return
				}
			}
		}, size, n)
		if err = t.Err(); err == nil && end.stored != t.Start {
			return nil, border{}, nil // joined files: the table describes the last one only
		}
	}
	if errors.Is(err, codec.ErrCorrupt) {
		return nil, border{}, nil
	}
	return at, end, err
}

// OpenRange reads the records of one range by the object's plan. r yields the object's bytes as
// stored from rg.Stored to its end: the last record of a range may end behind it. For Parquet it has to have ReadAt and
// Size, counted from the object's first byte; nothing but the footer and the columns of the range's row groups is read.
//
// Offsets are the object's. Lines count from the first one of the range: the object's number
// is that plus the [Reader.Lines] of all ranges before. Rows of Parquet are the object's. Frames that do not decompress to what the
// ranges say are a *DataError, so that a wrong seek table loses nothing in silence.
func OpenRange(r io.Reader, name string, plan Plan, rg Range) (*Reader, error) {
	opt, err := Options{Format: plan.Format, MaxLine: plan.MaxLine, TSFormat: plan.TSFormat}.check()
	if err != nil {
		return nil, err
	}
	if !plan.Ranged() || rg.From < 0 || rg.To <= rg.From || rg.Stored < 0 || rg.StoredTo <= rg.Stored {
		return nil, fmt.Errorf("%s: no range %+v of %s (%s)", name, rg, plan.Format, plan.Compression)
	}
	if plan.Format == Parquet {
		at, ok := r.(randomAccess)
		if !ok {
			return nil, fmt.Errorf("%s: row groups of Parquet cannot be read in order", name)
		}
		rd := &Reader{name: name, src: newSource(r)}
		rd.plan.Compression = noCompression
		o, err := rd.parquetAt(at)
		if err != nil {
			return nil, rd.fail(err)
		}
		return rd.startParquet(o, plan, &rg)
	}
	rd := &Reader{name: name, plan: plan, src: newSource(r), inside: rg.From > 0}
	rd.src.fetched = rg.Stored
	rd.src.r = rd.src.stored
	if plan.Compression != noCompression {
		rd.src.r = &rangeFrames{stored: rd.src.stored, here: rg.StoredTo - rg.Stored, want: rg.To - rg.From}
	}
	rd.in = newInput(rd.src, opt.MaxLine)
	rd.in.base, rd.in.stop = rg.From, rg.To
	if rg.From == 0 {
		return rd.start(plan)
	}
	if plan.CRLines {
		rd.in.eol = '\r'
	}
	rd.in.skipIntoRange()
	plan.HeaderRow = 0 // it stands in the range at 0
	if rd.parse, err = newParser(rd.in, plan, &rd.counts); err != nil {
		return nil, err
	}
	return rd, nil
}

// Lines returns how many line ends have been passed; after the last record of a range, how many
// lines belong to it. It is 0 of Parquet, where records are numbered from the object's first in every range.
func (r *Reader) Lines() int64 {
	if r.plan.Format == Parquet {
		return 0
	}
	return r.in.line - 1
}

// skipIntoRange passes the line that began before the range. Where no line break stands in the
// range, no line belongs to it.
func (in *input) skipIntoRange() {
	for {
		n := int(min(int64(in.w), in.stop-in.base))
		if i := bytes.IndexByte(in.buf[in.r:n], in.eol); i >= 0 {
			in.r += i + 1
			return
		}
		in.r = n
		if in.base+int64(in.w) > in.stop {
			break
		}
		// A byte behind the range is asked for even when all of the range is there: that is when its
		// frames have been checked.
		if !in.fill() {
			if in.err != io.EOF {
				return // the first read returns it
			}
			break
		}
	}
	in.stop = -1
}

// rangeFrames decompresses the frames of a range and, for its last record, those behind.
type rangeFrames struct {
	stored *bufio.Reader
	d      *zstd.Decoder
	// here is how many stored bytes the range has, want what they have yet to decompress to; want is -1
	// behind the range.
	here, want int64
}

var errSeekTable = errors.New("the frames do not decompress to what the seek table says; compress the object again")

func (f *rangeFrames) Read(p []byte) (int, error) {
	if f.d == nil {
		d, err := newZstd(io.LimitReader(f.stored, f.here), maxZstdWindow)
		if err != nil {
			return 0, err
		}
		f.d = d
	}
	for {
		n, err := zstdFrames{f.d}.Read(p)
		if f.want < 0 {
			return n, err
		}
		if int64(n) > f.want {
			return 0, errSeekTable
		}
		f.want -= int64(n)
		if err != io.EOF {
			return n, err
		}
		if f.want != 0 {
			return 0, errSeekTable
		}
		f.want = -1
		if err := f.d.Reset(f.stored); err != nil {
			return n, err
		}
		if n > 0 {
			return n, nil
		}
	}
}
