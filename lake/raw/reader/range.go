package reader

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/parquetin"
	"github.com/urlake/urlake/lake/raw/text"
	"github.com/urlake/urlake/lake/raw/unpack"
	"github.com/urlake/urlake/lake/seekable"
)

// Ranges plans an object of size stored bytes and cuts it into ranges of about every stored
// bytes: text anywhere, zstd between frames where it ends in a seek table (facebook/zstd,
// contrib/seekable_format), Parquet between row groups. No ranges mean that it has to be read whole, by [NewReader],
// and the plan is void.
//
// The first range of text has the HeadSize bytes that the plan was made from, header rows among them. Open
// reads the object from a stored offset to its end; for Parquet what it returns has to have ReadAt and Size, as
// for NewReader. Errors are those of NewReader and open.
func Ranges(open func(off int64) (io.ReadCloser, error), size int64, name string, opt raw.Options, every int64) (raw.Plan, []raw.Range, error) {
	r, err := open(0)
	if err != nil {
		return raw.Plan{}, nil, err
	}
	defer r.Close()
	stored := bufio.NewReaderSize(r, raw.HeadSize)
	head, err := stored.Peek(10)
	if err != nil && err != io.EOF {
		return raw.Plan{}, nil, err
	}
	n := (size + every - 1) / every
	if n < 2 {
		return raw.Plan{}, nil, nil
	}
	if bytes.HasPrefix(head, parquetin.Magic) {
		at, ok := r.(parquetin.RandomAccess)
		if !ok {
			return raw.Plan{}, nil, nil
		}
		return parquetRanges(struct {
			io.Reader
			parquetin.RandomAccess
		}{stored, at}, size, name, opt, n)
	}
	var frames []raw.Boundary
	var end raw.Boundary
	switch unpack.CompressionOf(head) {
	case raw.NoCompression:
	case "zstd":
		if frames, end, err = seekTable(open, size, n); err != nil || end.Stored == 0 {
			return raw.Plan{}, nil, err
		}
	default:
		return raw.Plan{}, nil, nil
	}
	rd, err := New(stored, name, opt)
	if err != nil {
		return raw.Plan{}, nil, err
	}
	plan := rd.Plan()
	if !plan.Ranged() {
		return plan, nil, nil
	}
	if plan.Compression == raw.NoCompression {
		var at []raw.Boundary
		for k := int64(1); k < n; k++ {
			off := evenly(size, k, n)
			at = append(at, raw.Boundary{Offset: off, Stored: off})
		}
		return plan, between(at, raw.HeadSize, raw.Boundary{Offset: size, Stored: size}), nil
	}
	// What stands behind the last frame is the table, which every decompressor passes.
	return plan, between(frames, raw.HeadSize, raw.Boundary{Offset: end.Offset, Stored: size}), nil
}

func parquetRanges(r io.Reader, size int64, name string, opt raw.Options, n int64) (raw.Plan, []raw.Range, error) {
	rd, err := New(r, name, opt)
	if err != nil {
		return raw.Plan{}, nil, err
	}
	p := rd.parse.(*parquetin.Parser)
	groups := p.Object.Groups()
	if p.Url == nil || len(groups) == 0 {
		return rd.plan, nil, nil
	}
	// The footer stands behind the last group. Every range reads it.
	return rd.plan, between(nearest(slices.Values(groups), size, n), 1, raw.Boundary{Offset: int64(p.Object.Meta.NumRowGroups()), Stored: size}), nil
}

// nearest chooses, of the places where an object may be cut, those next behind its n-ths.
func nearest(places iter.Seq[raw.Boundary], size, n int64) []raw.Boundary {
	var at []raw.Boundary
	k := int64(1)
	for b := range places {
		if b.Stored >= evenly(size, k, n) {
			at = append(at, b)
			for k < n && b.Stored >= evenly(size, k, n) {
				k++
			}
		}
	}
	return at
}

// evenly is where the k-th of n equal parts of size begins.
func evenly(size, k, n int64) int64 { return size/n*k + size%n*k/n }

// between makes ranges of ascending borders, of which the first may not lie before head, and the end; none where no
// border is left.
func between(at []raw.Boundary, head int64, end raw.Boundary) []raw.Range {
	var out []raw.Range
	last := raw.Boundary{}
	for _, b := range append(at, end) {
		if b.Offset < head && b != end || b.Offset >= end.Offset && b != end || b.Offset <= last.Offset {
			continue
		}
		out = append(out, raw.Range{From: last.Offset, To: b.Offset, Stored: last.Stored, StoredTo: b.Stored})
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
func seekTable(open func(off int64) (io.ReadCloser, error), size, n int64) (at []raw.Boundary, end raw.Boundary, err error) {
	t, err := seekable.OpenSeekTable(open, size, "")
	if err == nil {
		defer t.Close()
		if size-t.Start > maxSeekTable {
			return nil, raw.Boundary{}, nil
		}
		at = nearest(func(yield func(raw.Boundary) bool) {
			for t.Next() {
				end.Stored += t.Frame.Stored
				end.Offset += t.Frame.Raw
				if !yield(end) {
					return
				}
			}
		}, size, n)
		if err = t.Err(); err == nil && end.Stored != t.Start {
			return nil, raw.Boundary{}, nil // joined files: the table describes the last one only
		}
	}
	if errors.Is(err, codec.ErrCorrupt) {
		return nil, raw.Boundary{}, nil
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
func OpenRange(r io.Reader, name string, plan raw.Plan, rg raw.Range) (*Reader, error) {
	opt, err := raw.Options{Format: plan.Format, MaxLine: plan.MaxLine, TSFormat: plan.TSFormat}.WithDefaults()
	if err != nil {
		return nil, err
	}
	if !plan.Ranged() || rg.From < 0 || rg.To <= rg.From || rg.Stored < 0 || rg.StoredTo <= rg.Stored {
		return nil, fmt.Errorf("%s: no range %+v of %s (%s)", name, rg, plan.Format, plan.Compression)
	}
	if plan.Format == raw.Parquet {
		at, ok := r.(parquetin.RandomAccess)
		if !ok {
			return nil, fmt.Errorf("%s: row groups of Parquet cannot be read in order", name)
		}
		rd := &Reader{name: name, src: unpack.New(r)}
		rd.plan.Compression = raw.NoCompression
		o, err := rd.parquetAt(at)
		if err != nil {
			return nil, rd.fail(err)
		}
		return rd.startParquet(o, plan, &rg)
	}
	rd := &Reader{name: name, plan: plan, src: unpack.New(r), inside: rg.From > 0}
	rd.src.SetFetched(rg.Stored)
	rd.src.SetReader(rd.src.Stored())
	if plan.Compression != raw.NoCompression {
		rd.src.SetReader(&rangeFrames{stored: rd.src.Stored(), here: rg.StoredTo - rg.Stored, want: rg.To - rg.From})
	}
	rd.in = text.NewInput(rd.src, opt.MaxLine)
	rd.in.SetRange(rg.From, rg.To)
	if rg.From == 0 {
		return rd.start(plan)
	}
	if plan.CRLines {
		rd.in.UseCR()
	}
	rd.in.SkipPartialLine()
	plan.HeaderRow = 0 // it stands in the range at 0
	if rd.parse, err = text.NewParser(rd.in, plan, &rd.counts); err != nil {
		return nil, err
	}
	return rd, nil
}

// Lines returns how many line ends have been passed; after the last record of a range, how many
// lines belong to it. It is 0 of Parquet, where records are numbered from the object's first in every range.
func (r *Reader) Lines() int64 {
	if r.plan.Format == raw.Parquet {
		return 0
	}
	return r.in.Line() - 1
}

// rangeFrames decompresses the frames of a range and, for its last record, those behind.
type rangeFrames struct {
	stored *bufio.Reader
	d      *unpack.ZstdReader
	// here is how many stored bytes the range has, want what they have yet to decompress to; want is -1
	// behind the range.
	here, want int64
}

var errSeekTable = errors.New("the frames do not decompress to what the seek table says; compress the object again")

func (f *rangeFrames) Read(p []byte) (int, error) {
	if f.d == nil {
		d, err := unpack.NewZstdReader(io.LimitReader(f.stored, f.here))
		if err != nil {
			return 0, err
		}
		f.d = d
	}
	for {
		n, err := f.d.Read(p)
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
