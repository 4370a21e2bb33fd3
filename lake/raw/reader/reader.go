// Package reader yields the records of an object: of a list, a table, JSON, what web archives have,
// a Parquet file, or an archive of these, plain or compressed. New plans and opens an object; Open
// opens it by a plan that another process made. Ranges cuts a large object, and OpenRange reads one
// of its ranges. Package raw describes what a Reader promises; lake/ingest calls it.
package reader

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/net/html/charset"
	"golang.org/x/text/encoding/unicode"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/detect"
	"github.com/urlake/urlake/lake/raw/markup"
	"github.com/urlake/urlake/lake/raw/parquetin"
	"github.com/urlake/urlake/lake/raw/text"
	"github.com/urlake/urlake/lake/raw/unpack"
	"github.com/urlake/urlake/lake/raw/warcin"
)

// lowMemoryBuffered replaces parquetin.MaxBuffered with raw.Options.LittleMemory.
const lowMemoryBuffered = 4 << 20

// batchBytes is how much text of records NextBatch copies before it returns. The copy of a batch
// stays in a core's second-level cache.
const batchBytes = 128 << 10

var errNotList = errors.New("NextURLs reads lists only")

// Reader yields the records of one object in order. It is not safe for concurrent use, owns no
// goroutine and needs no closing.
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
	batch  []byte // the copied text of a batch's records
	badTS  string // see BadTS
	inside bool   // the range does not begin the object, so that line numbers are not the object's
	cut    bool   // a field can have more than its URL
	rest   []byte // the text behind the URL in the last record's field
	turned []byte // the URL of a reversed host
}

// New opens an object. It plans by opt and the object's first bytes. r yields the object's bytes as
// stored; name is its key or path, which breaks ties and is for errors.
//
// Parquet and zip are not read in order: if r is a parquetin.RandomAccess too, as *bytes.Reader and
// *io.SectionReader are, New reads only the columns or members it needs. Otherwise, and inside
// compression and archives, it holds the file in memory, up to parquetin.MaxBuffered.
//
// The error is a *raw.FormatError if the object is in no format urlake reads. New reports damage to
// a Parquet footer, and damage before the first decompressed byte; Next reports all other damage.
func New(r io.Reader, name string, opt raw.Options) (*Reader, error) {
	return newReader(r, name, opt, nil)
}

// newMember is New for a member of an archive, which must not be an archive itself.
func newMember(r io.Reader, name string, opt raw.Options, archive *unpack.Source) (*Reader, error) {
	return newReader(r, name, opt, archive)
}

func newReader(r io.Reader, name string, opt raw.Options, archive *unpack.Source) (*Reader, error) {
	opt, err := opt.WithDefaults()
	if err != nil {
		return nil, err
	}
	rd := &Reader{name: name, src: unpack.New(r)}
	rd.src.LowMemory = opt.LowMemory
	rd.src.Record()
	if rd.src.SetArchive(archive); archive != nil {
		rd.src.PageMemory = archive.PageMemory
	} else {
		rd.limitPages(r)
	}
	compression, err := rd.src.Decompress("")
	rd.plan.Compression = compression
	rd.in = text.NewInput(rd.src, opt.MaxLine)
	if err != nil {
		return nil, rd.fail(err)
	}
	head, err := rd.in.Peek(raw.HeadSize)
	if err != nil && err != io.EOF && (len(head) == 0 || opt.LowMemory) {
		return nil, rd.fail(err)
	}
	records := detect.RecordFormat(name, head, opt)
	switch {
	case bytes.HasPrefix(head, []byte(parquetin.Magic)):
		rd.src.Forget()
		if opt.Format != raw.Auto && opt.Format != raw.Parquet {
			return nil, &raw.FormatError{
				Name:   name,
				Reason: "it is a Parquet file and not " + opt.Format,
				Advice: "let urlake recognise its format (--format auto)",
			}
		}
		o, err := rd.openParquet()
		if err != nil {
			return nil, rd.fail(err)
		}
		plan, err := detect.Parquet(name, o, opt)
		if err != nil {
			return nil, rd.fail(err)
		}
		plan.Compression = compression
		return rd.startParquet(o, plan, nil)
	case records != "":
		plan, err := detect.Records(name, records, head, opt)
		if err != nil {
			return nil, err
		}
		plan.Compression = compression
		rd.src.Rewind()
		return rd.startWARC(plan)
	case isZip(head) && archive == nil:
		rd.src.Forget()
		plan := raw.Plan{Compression: compression, Format: raw.WACZ, Members: &opt, MaxLine: opt.MaxLine}
		return rd.startZip(plan)
	case isTar(head) && archive == nil:
		rd.src.Forget()
		plan := raw.Plan{Compression: compression, Format: raw.Tar, Members: &opt, MaxLine: opt.MaxLine}
		return rd.startTar(plan)
	}
	rd.src.Forget()
	encoding := detect.Encoding(head)
	if encoding != "" {
		rd.decode(encoding, opt.MaxLine)
		if head, err = rd.in.Peek(raw.HeadSize); err != nil && err != io.EOF && (len(head) == 0 || opt.LowMemory) {
			return nil, rd.fail(err)
		}
	}
	plan, err := detect.Detect(name, head, opt)
	if err != nil {
		return nil, err
	}
	plan.Compression, plan.Encoding = compression, encoding
	return rd.start(plan)
}

// decode makes the Input that of the text's UTF-8.
func (r *Reader) decode(name string, maxLine int) {
	encoding, _ := charset.Lookup(name)
	switch name {
	case raw.UTF16LE:
		encoding = unicode.UTF16(unicode.LittleEndian, unicode.UseBOM)
	case raw.UTF16BE:
		encoding = unicode.UTF16(unicode.BigEndian, unicode.UseBOM)
	}
	r.in = text.NewInput(encoding.NewDecoder().Reader(r.in), maxLine)
}

// Open opens an object by a plan that New or Ranges made for it; r is as for New. If the object is
// not compressed as the plan says, it has changed since and the error is a *raw.DataError.
func Open(r io.Reader, name string, plan raw.Plan) (*Reader, error) {
	opt := raw.Options{MaxLine: plan.MaxLine, TSFormat: plan.TSFormat}
	if (plan.Format == raw.Tar || plan.Format == raw.WACZ || plan.Format == raw.Zip) && plan.Members != nil {
		opt = *plan.Members
	}
	opt, err := opt.WithDefaults()
	if err != nil {
		return nil, err
	}
	rd := &Reader{name: name, src: unpack.New(r), plan: plan}
	rd.limitPages(r)
	if plan.Format == raw.WARC || plan.Format == raw.ARC {
		return rd.startWARC(plan)
	}
	_, err = rd.src.Decompress(plan.Compression)
	rd.in = text.NewInput(rd.src, opt.MaxLine)
	if err != nil {
		return nil, rd.fail(err)
	}
	switch plan.Format {
	case raw.Parquet:
		o, err := rd.openParquet()
		if err != nil {
			return nil, rd.fail(err)
		}
		return rd.startParquet(o, plan, nil)
	case raw.Tar:
		plan.Members = &opt
		return rd.startTar(plan)
	case raw.WACZ, raw.Zip:
		plan.Members = &opt
		return rd.startZip(plan)
	}
	if plan.Encoding != "" {
		head, err := rd.in.Peek(raw.HeadSize)
		if err != nil && err != io.EOF {
			return nil, rd.fail(err)
		}
		if detect.Encoding(head) != plan.Encoding {
			return nil, rd.fail(fmt.Errorf("the plan says it is text in %s, which it is not: it was changed since",
				plan.Encoding))
		}
		rd.decode(plan.Encoding, opt.MaxLine)
	}
	return rd.start(plan)
}

// start makes the parser of text.
func (r *Reader) start(plan raw.Plan) (*Reader, error) {
	r.plan, r.cut = plan, isCut(plan.Format)
	r.in.SkipBOM()
	if plan.CRLines {
		r.in.UseCR()
	}
	p, err := newTextParser(r.in, plan, &r.counts)
	if err != nil {
		return nil, err
	}
	r.parse = p
	return r, nil
}

// isCut reports whether a field of a format can have more than its URL.
func isCut(format string) bool {
	return !slices.Contains(raw.CaptureFormats, format) && !slices.Contains(raw.MarkupFormats, format)
}

// newTextParser returns the parser of text that is read by plan.
func newTextParser(in *text.Input, plan raw.Plan, counts *raw.Counts) (text.Parser, error) {
	if !slices.Contains(raw.MarkupFormats, plan.Format) {
		return text.NewParser(in, plan, counts)
	}
	f, err := text.NewFields(plan, counts)
	if err != nil {
		return nil, err
	}
	return markup.NewParser(in, plan, f)
}

// keepStored is how many stored bytes of a WARC file are kept, to find the member behind a damaged
// one.
const keepStored = 256 << 10

// startWARC makes the parser of a WARC or ARC file. No stored byte of the file has been used yet.
func (r *Reader) startWARC(plan raw.Plan) (*Reader, error) {
	r.plan = plan
	r.in = text.NewRowInput()
	if plan.Compression == "gzip" || plan.Compression == "zstd" {
		r.src.Keep(keepStored)
	} else {
		r.src.Forget()
	}
	head, _ := r.src.Stored().Peek(10)
	if r.src.Err != nil {
		return nil, r.fail(r.src.Err)
	}
	if is := unpack.CompressionOf(head); is != plan.Compression {
		_, err := r.src.Decompress(plan.Compression)
		return nil, r.fail(err)
	}
	f, err := text.NewFields(plan, &r.counts)
	if err != nil {
		return nil, err
	}
	p, err := warcin.NewParser(r.name, r.src, r.in, plan, f)
	if err != nil {
		return nil, r.fail(err)
	}
	r.parse = p
	return r, nil
}

// startTar opens the first member, so that an archive without readable members is rejected here.
// The notes of the first member's plan become the archive's.
func (r *Reader) startTar(plan raw.Plan) (*Reader, error) {
	p := newTarParser(r, *plan.Members)
	members := *plan.Members
	members.LowMemory = false
	plan.Members = &members
	r.plan = plan
	r.parse = p
	if err := p.next(); err != nil && err != io.EOF {
		return nil, r.fail(err)
	}
	r.noteMember(&p.memberParser)
	return r, nil
}

// noteMember adds the notes of the member that is open to the archive's.
func (r *Reader) noteMember(p *memberParser) {
	if p.current != nil && r.plan.Notes == nil {
		for _, note := range p.current.plan.Notes {
			r.plan.Notes = append(r.plan.Notes, "in "+p.member+", "+note)
		}
	}
}

// openParquet reads the footer.
func (r *Reader) openParquet() (*parquetin.Object, error) {
	at, stored, err := r.randomAccess("a Parquet file")
	if err != nil {
		return nil, err
	}
	o, err := r.openParquetAt(at)
	if stored > 0 {
		r.src.Size = stored
	}
	return o, err
}

// randomAccess returns the reader below if that has random access, else a copy of the object in
// memory, of which stored bytes were read. what is the object, for an error.
func (r *Reader) randomAccess(what string) (at parquetin.RandomAccess, stored int64, err error) {
	if at, ok := r.src.Below().(parquetin.RandomAccess); ok && r.plan.Compression == raw.NoCompression {
		return at, 0, nil
	}
	limit := r.src.Limit(parquetin.MaxBuffered, lowMemoryBuffered)
	data, err := io.ReadAll(io.LimitReader(&tarStream{in: r.in}, limit+1))
	if err != nil {
		return nil, 0, err
	}
	switch {
	case int64(len(data)) <= limit:
		return bytes.NewReader(data), r.src.Used(), nil
	case r.src.LowMemory:
		return nil, 0, raw.ErrLowMemory
	}
	return nil, 0, &raw.FormatError{
		Name:   r.name,
		Reason: fmt.Sprintf("it is %s of more than %d MiB inside compression or an archive", what, parquetin.MaxBuffered>>20),
		Advice: "unpack it first",
	}
}

func (r *Reader) openParquetAt(at parquetin.RandomAccess) (*parquetin.Object, error) {
	r.src.SetSize(at.Size())
	r.in = text.NewRowInput()
	return parquetin.Open(r.name, at, r.src)
}

// startParquet makes the parser of the row groups of a range, of all if rg is nil.
func (r *Reader) startParquet(o *parquetin.Object, plan raw.Plan, rg *raw.Range) (*Reader, error) {
	r.plan = plan
	f, err := text.NewFields(plan, &r.counts)
	if err != nil {
		return nil, err
	}
	r.cut = !plan.LakePart
	p, err := parquetin.NewParser(r.name, o, r.in, plan, f)
	if err != nil {
		return nil, r.fail(err)
	}
	if rg == nil {
		rg = &raw.Range{To: int64(o.NumRowGroups()), StoredTo: r.src.Size}
	}
	size := float64(rg.StoredTo - rg.Stored)
	err = p.SetRange(*rg, func(read, rows int64) {
		fetched := rg.Stored
		if rows > 0 {
			fetched += int64(size * float64(min(read, rows)) / float64(rows))
		}
		r.src.SetFetched(fetched)
	})
	if err != nil {
		return nil, r.fail(err)
	}
	r.parse = p
	return r, nil
}

// Plan returns the plan by which the object is read.
func (r *Reader) Plan() raw.Plan { return r.plan }

// Notes returns the plan's notes and what reading told so far: how many members of an archive were
// left out, how many captures have no offset.
func (r *Reader) Notes() []string {
	notes := r.plan.Notes
	tally := r.tally()
	notes = append(slices.Clip(notes), tally.Notes()...)
	if p, ok := r.parse.(*zipParser); ok && p.noIndex {
		notes = append(slices.Clip(notes), "its index lists no captures; they were read from its WARC files")
	}
	if a, ok := r.parse.(archive); ok && r.counts.LeftOut > 0 {
		notes = append(slices.Clip(notes), fmt.Sprintf(
			"%d members of an archive hold no records, by their names, and were left out; the first is %s",
			r.counts.LeftOut, a.members().firstLeftOut))
	}
	return notes
}

// tally returns the counts of the WARC and ARC files that were read so far.
func (r *Reader) tally() (t warcin.Tally) {
	switch p := r.parse.(type) {
	case *warcin.Parser:
		t = p.Tally()
	case archive:
		if t = p.members().tally; p.members().current != nil {
			t.Add(p.members().current.tally())
		}
	}
	return t
}

// archive is a parser of an archive's members.
type archive interface{ members() *memberParser }

// Member returns the member of an archive that is being read and its plan. ok is false outside of
// archives and between members.
func (r *Reader) Member() (name string, plan raw.Plan, ok bool) {
	a, ok := r.parse.(archive)
	if !ok || a.members().current == nil {
		return "", raw.Plan{}, false
	}
	return a.members().member, a.members().current.plan, true
}

// Unread returns the first members of an archive that were left out so far because they cannot be
// read, and the number of all of them. There are none without raw.Options.SkipUnreadable.
func (r *Reader) Unread() (first []raw.Unread, all int64) {
	if a, ok := r.parse.(archive); ok {
		return a.members().unread, a.members().unreadAll
	}
	return nil, 0
}

// Counts returns the counts so far.
func (r *Reader) Counts() raw.Counts { return r.counts }

// Next returns the next record or the next reject, and nil for the other. They are valid until the
// next call. At the end the error is io.EOF. Every other error is final: it is a *raw.DataError if
// the object is at fault, else it wraps the error of the reader below.
func (r *Reader) Next() (*raw.Record, *raw.Reject, error) {
	if r.err != nil {
		return nil, nil, r.err
	}
	if r.rest != nil {
		// The record before has the same extras.
		if err := r.src.Made(int64(len(r.rec.Extras))); err != nil {
			r.err = r.fail(err)
			return nil, nil, r.err
		}
		r.rec.URL, r.rej = r.rest, raw.Reject{}
		r.cutURL()
	} else {
		r.rec, r.rej = raw.Record{}, raw.Reject{}
		if err := r.parse.Next(&r.rec, &r.rej); err != nil {
			if err != io.EOF {
				err = r.fail(err)
			}
			r.err = err
			return nil, nil, err
		}
		if r.plan.Reversed {
			r.turned = text.AppendReversed(r.turned[:0], r.rec.URL)
			r.rec.URL = r.turned
		}
		if r.cut && (r.plan.Enclosed || !text.IsPlain(r.rec.URL)) && r.rej.Reason == "" {
			r.cutURL()
		}
	}
	if r.badTS == "" && r.rec.BadTS != "" && r.rej.Reason != raw.BadTS {
		r.badTS = r.rec.BadTS
	}
	if r.rej.Reason != "" {
		r.counts.Rejects++
		if r.rej.Reason == raw.BadTS && r.rej.Member == "" {
			r.rej.Value = r.rec.BadTS
		}
		at := r.in.Record()
		r.rej.Line, r.rej.Offset = at.Line, at.Offset
		return nil, &r.rej, nil
	}
	r.counts.Records++
	at := r.in.Record()
	r.rec.Line, r.rec.Offset = at.Line, at.Offset
	return &r.rec, nil, nil
}

// cutURL leaves the first URL of its field to the record, and the others to rest. A field without a
// URL is the parser's to reject.
func (r *Reader) cutURL() {
	field := r.rec.URL
	end := r.memberIn(field)
	r.rec.URL, r.rest, r.rej.Reason = text.CutURL(text.TrimSpace(field[:end]))
	if end < len(field) && r.rest == nil {
		r.rest = field[end:]
	} else if end < len(field) {
		r.rest = field[cap(field)-cap(r.rest):]
	}
	if r.rej.Reason == "" && bytes.IndexByte(r.rec.URL, ' ') >= 0 {
		r.counts.Spaced++
	}
}

// memberIn returns the index in a line of a list at which a gzip member begins with a URL, the
// length of the line for none. Files whose last lines lack a line feed were joined there. A line of
// a file that was compressed in pieces goes on.
func (r *Reader) memberIn(line []byte) int {
	if _, ok := r.parse.(*text.ListParser); !ok || r.plan.Encoding != "" || r.plan.SURT || r.plan.Reversed {
		return len(line)
	}
	begin := r.in.OffsetOf(line)
	end := begin + int64(len(line))
	for at := r.src.MemberIn(begin, end); at > 0; at = r.src.MemberIn(at, end) {
		if i := int(at - begin); text.BeginsWithScheme(line[i:]) {
			return i
		}
	}
	return len(line)
}

// BadTS returns the unreadable time of the first row that was counted in Counts.BadTS, cut as in
// [raw.Reject.Value]; "" for none.
func (r *Reader) BadTS() string { return r.badTS }

// NextBatch is Next for many records. It sets recs[:n] to the next records, and returns before recs
// is full if a reject follows or if no more records are in memory. A reject comes after recs[:n]; n
// may then be 0. An error, io.EOF too, comes alone. Otherwise n is at least 1. Records and reject
// are valid until the next call of Next or NextBatch.
//
// The URLs of a list are slices of the read buffer; those of other formats are copied.
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
		some = r.buffered(list, urls[:min(text.LinesAtOnce, len(recs)-n)], lines[:])
	}
	return n, rej, err
}

// IsList reports whether the object is a list. Its records are nothing but URLs, and NextURLs is
// the fastest way to read them.
func (r *Reader) IsList() bool {
	_, ok := r.parse.(*text.ListParser)
	return ok
}

// NextURLs is NextBatch for a list. It sets urls[:n] to the next URLs and lines[:n] to their
// positions; lines must be at least as long as urls. It returns an error if the object is no list.
func (r *Reader) NextURLs(urls [][]byte, lines []text.Position) (n int, rej *raw.Reject, err error) {
	list, ok := r.parse.(*text.ListParser)
	if !ok {
		return 0, nil, errNotList
	}
	if r.err == nil {
		n = r.buffered(list, urls, lines)
	}
	if n == 0 && len(urls) > 0 {
		rec, rej, err := r.Next()
		if err != nil || rej != nil {
			return 0, rej, err
		}
		urls[0], lines[0] = rec.URL, text.Position{Line: rec.Line, Offset: rec.Offset}
		// The read that returned this URL may have filled the buffer with more.
		return 1 + r.buffered(list, urls[1:], lines[1:]), nil, nil
	}
	return n, nil, nil
}

// buffered is [text.ListParser.Batch], unless the last line has more URLs, which come first.
func (r *Reader) buffered(list *text.ListParser, urls [][]byte, lines []text.Position) int {
	if r.rest != nil {
		return 0
	}
	n := list.Batch(urls, lines)
	r.counts.Records += int64(n)
	return n
}

// keep returns a copy of b that is valid as long as the batch.
func (r *Reader) keep(b []byte) []byte {
	start := len(r.batch)
	r.batch = append(r.batch, b...)
	return r.batch[start:len(r.batch):len(r.batch)]
}

// Offset returns the offset in the decompressed object up to which it has been parsed.
func (r *Reader) Offset() int64 { return r.in.Offset() }

// CompressedOffset returns the offset in the object as stored up to which it has been read, for
// progress. For Parquet it is the share of the rows that have been read, times the object's size.
func (r *Reader) CompressedOffset() int64 { return r.src.Used() }

// PageMemory is implemented by readers of objects whose pages of Parquet may take at most so many
// bytes of memory. An object that needs more fails with raw.ErrPageMemory.
type PageMemory interface{ PageMemory() int64 }

// limitPages sets the memory for pages to what the reader below says.
func (r *Reader) limitPages(below io.Reader) {
	if m, ok := below.(PageMemory); ok {
		r.src.PageMemory = m.PageMemory()
	}
}

// fail returns err as an error of the reader below, if that failed, else as one of the object with
// the position of the record.
func (r *Reader) fail(err error) error {
	at := r.in.Position()
	if r.inside {
		at.Line = 0
	}
	if r.src.Err != nil {
		return fmt.Errorf("%s: read at byte %d: %w", r.name, r.src.Used(), r.src.Err)
	}
	if errors.Is(err, raw.ErrPageMemory) {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	var format *raw.FormatError
	var data *raw.DataError
	if errors.As(err, &format) || errors.As(err, &data) {
		return err // it names the archive's member or the column
	}
	return &raw.DataError{Name: r.name, Line: at.Line, Offset: at.Offset, Compression: r.plan.Compression,
		CompressedOffset: r.src.Used(), Err: err}
}
