package reader

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/detect"
	"github.com/urlake/urlake/lake/raw/parquetin"
	"github.com/urlake/urlake/lake/raw/text"
	"github.com/urlake/urlake/lake/raw/unpack"
)

// Reader yields the records of one object in order. It is not safe for concurrent use, owns
// no goroutine and needs no closing.
type Reader struct {
	name   string
	plan   raw.Plan
	src    *unpack.Source
	in     *text.Input
	parse  text.Parser
	rec    raw.Record
	rej    raw.Reject
	counts raw.Counts
	err    error
	batch  []byte // what the records of a batch point into, if not into the input
	inside bool   // of a range that does not begin the object: line numbers are not the object's
}

// NewReader decides by opt and the object's first bytes how it is to be read. r yields the
// object's bytes as stored; name is its key or path, for errors and as a hint.
//
// Parquet is not read in order: r then has to have ReadAt and Size too, as *bytes.Reader and
// *io.SectionReader have, both counted from the object's first byte. Elsewhere, and inside of
// compression and archives, a Parquet file is held in memory, up to 64 MiB.
//
// A refused object is a *FormatError. An object damaged within its head is reported by Next, but Parquet whose
// footer is damaged here.
func New(r io.Reader, name string, opt raw.Options) (*Reader, error) {
	return newReader(r, name, opt, false)
}

// newMember reads a member of an archive.
func newMember(r io.Reader, name string, opt raw.Options) (*Reader, error) {
	return newReader(r, name, opt, true)
}

func newReader(r io.Reader, name string, opt raw.Options, member bool) (*Reader, error) {
	opt, err := opt.WithDefaults()
	if err != nil {
		return nil, err
	}
	rd := &Reader{name: name, src: unpack.New(r)}
	rd.src.LowMemory = opt.LowMemory
	compression, err := rd.src.Decompress("")
	rd.plan.Compression = compression
	if err != nil {
		rd.in = text.NewInput(rd.src, opt.MaxLine)
		return nil, rd.fail(err)
	}
	rd.in = text.NewInput(rd.src, opt.MaxLine)
	head, err := rd.in.Peek(raw.HeadSize)
	if err != nil && err != io.EOF && (len(head) == 0 || opt.LowMemory) {
		return nil, rd.fail(err)
	}
	switch {
	case bytes.HasPrefix(head, parquetin.Magic):
		if opt.Format != raw.Auto && opt.Format != raw.Parquet {
			return nil, &raw.FormatError{Name: name, Reason: "it is a Parquet file and not " + opt.Format, Advice: "leave its format to be recognised (--format auto)"}
		}
		o, err := rd.parquet()
		if err != nil {
			return nil, rd.fail(err)
		}
		d, err := detect.NewDetector(name, nil, opt)
		if err != nil {
			return nil, err
		}
		if err := d.PlanParquet(o); err != nil {
			return nil, rd.fail(err)
		}
		d.Plan.Compression = compression
		return rd.startParquet(o, d.Plan, nil)
	case isTar(head) && !member:
		return rd.startTar(raw.Plan{Compression: compression, Format: raw.Tar, Members: &opt, MaxLine: opt.MaxLine})
	}
	plan, err := detect.Detect(name, head, opt)
	if err != nil {
		return nil, err
	}
	plan.Compression = compression
	return rd.start(plan)
}

// Open reads an object by a plan made earlier; r is as for NewReader. An object that is not compressed
// as the plan says was changed since and is a *DataError.
func Open(r io.Reader, name string, plan raw.Plan) (*Reader, error) {
	opt := raw.Options{Format: plan.Format, MaxLine: plan.MaxLine, TSFormat: plan.TSFormat}
	if plan.Format == raw.Tar && plan.Members != nil {
		opt = *plan.Members
	}
	opt, err := opt.WithDefaults()
	if err != nil {
		return nil, err
	}
	rd := &Reader{name: name, src: unpack.New(r), plan: plan}
	_, err = rd.src.Decompress(plan.Compression)
	rd.in = text.NewInput(rd.src, opt.MaxLine)
	if err != nil {
		return nil, rd.fail(err)
	}
	switch plan.Format {
	case raw.Parquet:
		o, err := rd.parquet()
		if err != nil {
			return nil, rd.fail(err)
		}
		return rd.startParquet(o, plan, nil)
	case raw.Tar:
		plan.Members = &opt
		return rd.startTar(plan)
	}
	return rd.start(plan)
}

func (r *Reader) start(plan raw.Plan) (*Reader, error) {
	r.plan = plan
	r.in.SkipBOM()
	if plan.CRLines {
		r.in.UseCR()
	}
	p, err := text.NewParser(r.in, plan, &r.counts)
	if err != nil {
		return nil, err
	}
	r.parse = p
	return r, nil
}

// startTar goes to the first member, so that an archive that holds nothing readable is refused here. Its
// guesses are the plan's notes.
func (r *Reader) startTar(plan raw.Plan) (*Reader, error) {
	p := newTarParser(r, *plan.Members)
	members := *plan.Members
	members.LowMemory = false
	plan.Members = &members
	r.plan = plan
	r.parse = p
	if err := p.advance(); err != nil && err != io.EOF {
		return nil, r.fail(err)
	}
	if p.cur != nil && plan.Notes == nil {
		for _, note := range p.cur.plan.Notes {
			r.plan.Notes = append(r.plan.Notes, "in "+p.member+", "+note)
		}
	}
	return r, nil
}

// parquet opens the object as Parquet: through the reader below where it can be read anywhere, else from memory.
func (r *Reader) parquet() (*parquetin.Object, error) {
	if at, ok := r.src.Below().(parquetin.RandomAccess); ok && r.plan.Compression == raw.NoCompression {
		return r.parquetAt(at)
	}
	limit := r.src.Limit(parquetin.MaxBufferedParquet, littleBuffered)
	data, err := io.ReadAll(io.LimitReader(&tarStream{in: r.in}, limit+1))
	if err != nil {
		return nil, err
	}
	switch {
	case int64(len(data)) <= limit:
	case r.src.LowMemory:
		return nil, raw.ErrLowMemory
	default:
		return nil, &raw.FormatError{Name: r.name, Reason: fmt.Sprintf("it is a Parquet file of more than %d MiB inside of compression or an archive", parquetin.MaxBufferedParquet>>20), Advice: "unpack it first"}
	}
	stored := r.src.Used()
	o, err := r.parquetAt(bytes.NewReader(data))
	r.src.Size = stored
	return o, err
}

func (r *Reader) parquetAt(at parquetin.RandomAccess) (*parquetin.Object, error) {
	r.src.SetSize(at.Size())
	r.in = text.NewRowInput()
	return parquetin.Open(r.name, parquetin.Bytes{At: at, Size: at.Size(), Src: r.src})
}

// startParquet reads the row groups of a range, all of them without one.
func (r *Reader) startParquet(o *parquetin.Object, plan raw.Plan, rg *raw.Range) (*Reader, error) {
	r.plan = plan
	f, err := text.NewFields(plan, &r.counts)
	if err != nil {
		return nil, err
	}
	p, err := parquetin.NewParser(r.name, o, r.in, plan, f)
	if err != nil {
		return nil, r.fail(err)
	}
	if rg == nil {
		rg = &raw.Range{To: int64(o.Meta.NumRowGroups()), StoredTo: r.src.Size}
	}
	rows, err := p.Within(*rg)
	if err != nil {
		return nil, r.fail(err)
	}
	before, stored := p.Total, rg.Stored
	size := rg.StoredTo - stored
	p.Fetched = func(total int64) {
		read := int64(0)
		if rows > 0 {
			read = int64(float64(size) * float64(min(total-before, rows)) / float64(rows))
		}
		r.src.SetFetched(stored + read)
	}
	p.Fetched(before)
	r.parse = p
	return r, nil
}

// Plan returns how the object is being read.
func (r *Reader) Plan() raw.Plan { return r.plan }

// Notes returns the plan's notes and, of an archive, how many members were left out so far.
func (r *Reader) Notes() []string {
	notes := r.plan.Notes
	if p, ok := r.parse.(*tarParser); ok && r.counts.LeftOut > 0 {
		notes = append(slices.Clip(notes), fmt.Sprintf("%d members of an archive hold no records, by their names, and were left out; the first is %s", r.counts.LeftOut, p.first))
	}
	return notes
}

// Counts returns the counts so far.
func (r *Reader) Counts() raw.Counts { return r.counts }

// Next returns the next record or reject; exactly one of the two is non-nil while err is nil.
// Both are valid until the next call. At the end err is io.EOF. Every other error is final
// for the object: a *DataError where the object is at fault, else one that wraps the error of
// the reader below.
func (r *Reader) Next() (*raw.Record, *raw.Reject, error) {
	if r.err != nil {
		return nil, nil, r.err
	}
	r.rec, r.rej = raw.Record{}, raw.Reject{}
	if err := r.parse.Next(&r.rec, &r.rej); err != nil {
		if err != io.EOF {
			err = r.fail(err)
		}
		r.err = err
		return nil, nil, err
	}
	if r.rej.Reason != "" {
		r.counts.Rejects++
		at := r.in.Record()
		r.rej.Line, r.rej.Offset = at.Line, at.Offset
		return nil, &r.rej, nil
	}
	r.counts.Records++
	at := r.in.Record()
	r.rec.Line, r.rec.Offset = at.Line, at.Offset
	return &r.rec, nil, nil
}

// batchBytes is how much text of records NextBatch copies before it returns: a batch of URLs of any usual
// length, and of records with extras as many as keep their copy in a core's second cache.
const batchBytes = 128 << 10

// NextBatch is Next for many records: it sets recs[:n] to those that come next, as many as there are at hand, and at least one where there is one more and
// no reject before it. A reject that is not nil follows recs[:n] and comes with every n, an error or io.EOF with no records
// and no reject. Records and reject are valid until the next call of Next or NextBatch.
//
// Of lists the URLs are parts of what was read, of other formats they are copied.
func (r *Reader) NextBatch(recs []raw.Record) (n int, rej *raw.Reject, err error) {
	if list, ok := r.parse.(*text.ListParser); ok {
		return r.listBatch(list, recs)
	}
	r.batch = r.batch[:0]
	for n < len(recs) && len(r.batch) < batchBytes {
		rec, rej, err := r.Next()
		if err != nil && n > 0 {
			break // the next call returns it again
		}
		if err != nil || rej != nil {
			return n, rej, err
		}
		recs[n] = *rec
		n++
		recs[n-1].URL = r.keep(rec.URL)
		if rec.Extras != nil {
			recs[n-1].Extras = r.keep(rec.Extras)
		}
	}
	return n, nil, nil
}

// listBatch is NextBatch for a list.
func (r *Reader) listBatch(list *text.ListParser, recs []raw.Record) (n int, rej *raw.Reject, err error) {
	var urls [text.LinesAtOnce][]byte
	var lines [text.LinesAtOnce]text.Position
	some, rej, err := r.NextURLs(urls[:min(text.LinesAtOnce, len(recs))], lines[:])
	for some > 0 {
		for i, url := range urls[:some] {
			recs[n+i] = raw.Record{URL: url, Line: lines[i].Line, Offset: lines[i].Offset}
		}
		n += some
		some = list.Batch(urls[:min(text.LinesAtOnce, len(recs)-n)], lines[:])
		r.counts.Records += int64(some)
	}
	return n, rej, err
}

// IsList reports that the object is a list: its records are nothing but URLs, and NextURLs is the fastest way to read them.
func (r *Reader) IsList() bool {
	_, ok := r.parse.(*text.ListParser)
	return ok
}

// NextURLs is NextBatch for a list: it sets urls[:n], and lines[:n] to their places, of which there are to be as many. Of what is no list it returns an error.
func (r *Reader) NextURLs(urls [][]byte, lines []text.Position) (n int, rej *raw.Reject, err error) {
	list, ok := r.parse.(*text.ListParser)
	if !ok {
		return 0, nil, errNoList
	}
	if r.err == nil {
		n = list.Batch(urls, lines)
	}
	if n == 0 && len(urls) > 0 {
		rec, rej, err := r.Next()
		if err != nil || rej != nil {
			return 0, rej, err
		}
		urls[0], lines[0] = rec.URL, text.Position{Line: rec.Line, Offset: rec.Offset}
		// What was read for this line holds those that follow.
		n = list.Batch(urls[1:], lines[1:])
		r.counts.Records += int64(n)
		return 1 + n, nil, nil
	}
	r.counts.Records += int64(n)
	return n, nil, nil
}

// littleBuffered replaces parquetin.MaxBufferedParquet with raw.Options.LowMemory.
const littleBuffered = 4 << 20

var errNoList = errors.New("records that are no lines of a list")

// keep copies a part of a record for the length of a batch.
func (r *Reader) keep(b []byte) []byte {
	at := len(r.batch)
	r.batch = append(r.batch, b...)
	return r.batch[at:len(r.batch):len(r.batch)]
}

// Offset returns how far the decompressed object has been used.
func (r *Reader) Offset() int64 { return r.in.Offset() }

// CompressedOffset returns how far the object as stored has been read, for progress; of Parquet the same share
// of its size as of its rows.
func (r *Reader) CompressedOffset() int64 { return r.src.Used() }

func (r *Reader) fail(err error) error {
	at := r.in.Position()
	if r.inside {
		at.Line = 0
	}
	if r.src.Err != nil {
		return fmt.Errorf("%s: read at byte %d: %w", r.name, r.src.Used(), r.src.Err)
	}
	var format *raw.FormatError
	var data *raw.DataError
	if errors.As(err, &format) || errors.As(err, &data) {
		return err // of a member, or of Parquet's columns
	}
	return &raw.DataError{Name: r.name, Line: at.Line, Offset: at.Offset, Compression: r.plan.Compression,
		CompressedOffset: r.src.Used(), Err: err}
}
