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

// Ranges plans an object of size stored bytes and cuts it into ranges of about every stored bytes.
// It cuts text anywhere, zstd between frames if the object ends with a seek table (facebook/zstd,
// contrib/seekable_format), and Parquet between row groups. If it returns no ranges, the object
// must be read whole, by New, and the plan is void.
//
// The first range of text has at least the raw.HeadSize bytes that the plan was made from, and so
// the header row. open returns a reader of the stored bytes from an offset to the end; for Parquet
// this must be a RandomAccess, as for New. Errors are those of New and open.
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
	if bytes.HasPrefix(head, []byte(parquetin.Magic)) {
		at, ok := r.(parquetin.RandomAccess)
		if !ok {
			return raw.Plan{}, nil, nil
		}
		return parquetRanges(struct {
			io.Reader
			parquetin.RandomAccess
		}{stored, at}, size, name, opt, n)
	}
	if isZip(head) {
		return raw.Plan{}, nil, nil
	}
	var frames []raw.Boundary
	var end raw.Boundary
	switch unpack.CompressionOf(head) {
	case raw.NoCompression:
	case "zstd":
		if frames, end, err = frameBorders(open, size, n); err != nil || end.Stored == 0 {
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
		var borders []raw.Boundary
		for k := int64(1); k < n; k++ {
			off := partStart(size, k, n)
			borders = append(borders, raw.Boundary{Offset: off, Stored: off})
		}
		return plan, rangesBetween(borders, raw.HeadSize, raw.Boundary{Offset: size, Stored: size}), nil
	}
	// The last range ends with the seek table, which every decompressor skips.
	return plan, rangesBetween(frames, raw.HeadSize, raw.Boundary{Offset: end.Offset, Stored: size}), nil
}

// parquetRanges is Ranges for Parquet, with n the number of ranges wanted.
func parquetRanges(r io.Reader, size int64, name string, opt raw.Options, n int64) (raw.Plan, []raw.Range, error) {
	rd, err := New(r, name, opt)
	if err != nil {
		return raw.Plan{}, nil, err
	}
	p := rd.parse.(*parquetin.Parser)
	groups := p.Object().RowGroups()
	if p.IsEmpty() || len(groups) == 0 {
		return rd.plan, nil, nil
	}
	// The footer follows the last row group. Every range reads it.
	end := raw.Boundary{Offset: int64(p.Object().NumRowGroups()), Stored: size}
	return rd.plan, rangesBetween(chooseBorders(slices.Values(groups), size, n), 1, end), nil
}

// chooseBorders returns, of the borders where an object may be cut, the first after each n-th of
// its stored size.
func chooseBorders(borders iter.Seq[raw.Boundary], size, n int64) []raw.Boundary {
	var chosen []raw.Boundary
	k := int64(1)
	for b := range borders {
		if b.Stored >= partStart(size, k, n) {
			chosen = append(chosen, b)
			for k < n && b.Stored >= partStart(size, k, n) {
				k++
			}
		}
	}
	return chosen
}

// partStart returns the offset at which the k-th of n equal parts of size bytes begins, k from 0.
func partStart(size, k, n int64) int64 { return size/n*k + size%n*k/n }

// rangesBetween makes ranges of ascending borders and the end of the object. It drops borders
// before the offset first. It returns nil if no border is left.
func rangesBetween(borders []raw.Boundary, first int64, end raw.Boundary) []raw.Range {
	var out []raw.Range
	last := raw.Boundary{}
	for _, b := range append(borders, end) {
		if b.Offset < first && b != end || b.Offset >= end.Offset && b != end || b.Offset <= last.Offset {
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

// maxSeekTable is the largest seek table that is read, in bytes. It has five million frames.
const maxSeekTable = 64 << 20

// frameBorders returns the borders that cut a zstd object into about n equal parts: the ends of
// frames. end is the end of the last frame. It is zero if the object has no seek table that
// describes it from its first byte.
func frameBorders(open func(off int64) (io.ReadCloser, error), size, n int64) (borders []raw.Boundary, end raw.Boundary, err error) {
	t, err := seekable.OpenSeekTable(open, size, "")
	if err == nil {
		defer t.Close()
		if size-t.Start > maxSeekTable {
			return nil, raw.Boundary{}, nil
		}
		borders = chooseBorders(func(yield func(raw.Boundary) bool) {
			for t.Next() {
				end.Stored += t.Frame.Stored
				end.Offset += t.Frame.Raw
				if !yield(end) {
					return
				}
			}
		}, size, n)
		if err = t.Err(); err == nil && end.Stored != t.Start {
			return nil, raw.Boundary{}, nil // the object is several files, of which the table describes the last
		}
	}
	if errors.Is(err, codec.ErrCorrupt) {
		return nil, raw.Boundary{}, nil
	}
	return borders, end, err
}

// OpenRange opens one range of an object by the object's plan. r yields the object's bytes as
// stored from rg.Stored to the end of the object, because the last record of a range may end after
// the range. For Parquet r must be a parquetin.RandomAccess; only the footer and the columns of the
// range's row groups are read.
//
// Offsets are those of the object. Line numbers of text count from the range's first line: add
// [Reader.Lines] of all ranges before. Rows of Parquet are numbered as in the object. If frames do
// not decompress to the sizes in the seek table, the error is a *raw.DataError: a wrong table loses
// no records unnoticed.
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
			return nil, fmt.Errorf("%s: ranges of Parquet need a reader with random access", name)
		}
		rd := &Reader{name: name, src: unpack.New(r)}
		rd.limitPages(r)
		rd.plan.Compression = raw.NoCompression
		o, err := rd.openParquetAt(at)
		if err != nil {
			return nil, rd.fail(err)
		}
		return rd.startParquet(o, plan, &rg)
	}
	rd := &Reader{name: name, plan: plan, src: unpack.New(r), inside: rg.From > 0, cut: isCut(plan.Format)}
	rd.src.SetFetched(rg.Stored)
	rd.src.SetReader(rd.src.Stored())
	if plan.Compression != raw.NoCompression {
		rd.src.SetReader(&rangeFrames{stored: rd.src.Stored(), size: rg.StoredTo - rg.Stored, left: rg.To - rg.From})
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
	plan.HeaderRow = 0 // it is in the range at 0
	if rd.parse, err = newTextParser(rd.in, plan, &rd.counts); err != nil {
		return nil, err
	}
	return rd, nil
}

// Lines returns how many line ends have been read: after the last record of a range, the number of
// the range's lines. It is 0 for Parquet, whose rows are numbered as in the object.
func (r *Reader) Lines() int64 {
	if r.plan.Format == raw.Parquet {
		return 0
	}
	return r.in.Line() - 1
}

// rangeFrames decompresses the frames of a range and then those after it, in which its last record
// may end.
type rangeFrames struct {
	stored *bufio.Reader
	d      *unpack.ZstdReader
	// size is how many stored bytes the range has. left is how many bytes it still has to
	// decompress to, -1 past the range.
	size, left int64
}

var errSeekTable = errors.New("the frames do not decompress to what the seek table says; compress the object again")

func (f *rangeFrames) Read(p []byte) (int, error) {
	if f.d == nil {
		d, err := unpack.NewZstdReader(io.LimitReader(f.stored, f.size))
		if err != nil {
			return 0, err
		}
		f.d = d
	}
	for {
		n, err := f.d.Read(p)
		if f.left < 0 {
			return n, err
		}
		if int64(n) > f.left {
			return 0, errSeekTable
		}
		f.left -= int64(n)
		if err != io.EOF {
			return n, err
		}
		if f.left != 0 {
			return 0, errSeekTable
		}
		f.left = -1
		if err := f.d.Reset(f.stored); err != nil {
			return n, err
		}
		if n > 0 {
			return n, nil
		}
	}
}
