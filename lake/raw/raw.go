// Package raw reads the records of a dataset as people publish them: lists of URLs,
// CSV and TSV, JSON Lines, JSON arrays and maps, CDX and CDXJ indexes, Parquet, and tar archives of
// these, plain or compressed with gzip, zstd, bzip2 or xz. What an object is, is decided by its
// first bytes ([Detect]); its name only breaks ties.
//
// Promises:
//
//   - Every record of an object ends as a [Record] or as a [Reject] with its place and
//     reason. Only blank lines and rows, comment lines of lists, the rows up to a
//     table's header, and members of an archive that are no data by their name are neither;
//     [Reader.Counts] has their number.
//   - Memory is bounded by Options.MaxLine, in Parquet also by limits on footer and pages (a
//     few hundred MiB at worst), whatever the object holds. A longer line is a Reject, and is
//     skipped without being held.
//   - One stray quote or brace costs one record. What cannot be read past (damaged
//     compression, a JSON array broken between two elements) is an error that matches
//     [ErrInput] and names its place; a truncated object is never a shorter one.
//   - The same bytes, name and options give the same plan and the same records.
//
// A URL is handed on as its bytes stand, unescaped from CSV or JSON and without the white
// space around it; what it means is lake/urlnorm's business. Bytes that are not UTF-8 stay
// in URLs and become U+FFFD in extras, which are JSON and must be UTF-8.
package raw

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
)

const (
	// HeadSize is how much of a decompressed object Detect looks at: hundreds of lines of
	// any list, and longer than nearly every JSON document a line.
	HeadSize = 256 << 10

	// DefaultMaxLine is the longest record in bytes. A URL may have 64 KiB; documents of
	// text corpora with their text beside the URL reach a few hundred KiB.
	DefaultMaxLine = 1 << 20

	// maxMaxLine keeps positions inside a record within 32 bits, with room for what is
	// read ahead.
	maxMaxLine = 1 << 30

	// maxZstdWindow bounds what a zstd frame makes its reader hold; `zstd --long` uses
	// 128 MiB, --long=31 (2 GiB) is refused.
	maxZstdWindow = 128 << 20

	// maxXZDictionary bounds the same for xz; `xz -9` uses 64 MiB.
	maxXZDictionary = 128 << 20

	// These limits replace the others with Options.LittleMemory. Nearly all objects are within
	// them: zstd up to level 19 and xz up to level 6 use at most 8 MiB, and pages of Parquet have
	// about 1 MiB.
	littleWindow   = 8 << 20
	littleFooter   = 1 << 20
	littlePage     = 8 << 20
	littleBuffered = 4 << 20
)

// How many bytes of memory NewReader, Open and Ranges use at most before the first record is read.
// An archive needs two decompressors, its own and one for a member.
const (
	// LittleMemory is the bound with Options.LittleMemory.
	LittleMemory = 24 << 20
	// MuchMemory is the bound without. Parquet with pages of the largest size can take as much
	// again.
	MuchMemory = 288 << 20
)

// The formats of Options.Format and Plan.Format.
const (
	Auto      = "auto"
	Lines     = "lines" // one URL a line; a line that begins with # is a comment
	CSV       = "csv"   // RFC 4180, any of , ; | or tab between fields
	TSV       = "tsv"   // tab between fields; no line break inside quotes
	JSONLines = "jsonl" // one JSON object or string a line
	JSON      = "json"  // an array of objects or strings, such values one after another, or one object of them
	CDX       = "cdx"   // web archive index: fields between spaces, see cdx.go
	CDXJ      = "cdxj"  // SURT key, timestamp and a JSON object
	Parquet   = "parquet"

	// Tar is only a Plan's: each member has a format of its own, which Options.Format may say.
	Tar = "tar"
)

// The reasons of a Reject.
const (
	TooLong = "too_long_line" // the record is longer than Options.MaxLine
	BadCSV  = "bad_csv"       // a quoted field does not end, or goes on after its closing quote
	BadJSON = "bad_json"      // the line or the array's element is not JSON
	BadCDX  = "bad_cdx"       // the line has no URL field
	NoURL   = "no_url"        // the record is well formed and its URL is absent, empty or no string
	BadTS   = "bad_ts"        // the column named as timestamp holds something else
	BadSize = "bad_size"      // the column named as size holds no whole number from 0 to 2^63-1
)

// Reasons lists every reason a Reject can have.
var Reasons = []string{TooLong, BadCSV, BadJSON, BadCDX, NoURL, BadTS, BadSize}

// Record is one record. Its slices are valid until the next call of Next.
type Record struct {
	URL []byte
	// TS is milliseconds since the Unix epoch, when HasTS.
	TS    int64
	HasTS bool
	// Size is the value of the column the caller named, when HasSize.
	Size    int64
	HasSize bool
	// Extras is a JSON object in canonical form (RFC 8785), nil where there is none.
	Extras []byte
	// Member is the archive's member that holds the record, "" outside of archives.
	Member string
	// Line is the record's first line, from 1; Offset its first byte. Both count in the
	// decompressed object or member. In Parquet Line is the row and Offset is -1.
	Line, Offset int64
}

// Reject is a record that could not be read: its place, as in Record, and one of Reasons.
// It never holds the record's text.
type Reject struct {
	Member       string
	Line, Offset int64
	Reason       string
}

// Counts says what a Reader has passed so far.
type Counts struct {
	Records, Rejects int64
	// Blank counts empty lines, rows whose cells are all empty, and rows of Parquet whose list
	// of URLs is; Comments the comment lines of lists and indexes.
	Blank, Comments int64
	// BadTS counts records whose timestamp was not understood and was left out, because no
	// caller had named that column. (In a named column such a record is a Reject.)
	BadTS int64
	// Of archives: Members were read, LeftOut hold no records by their kind or name. Folders
	// are not counted.
	Members, LeftOut int64
}

// Options says how an object is to be read. The zero value decides by content.
type Options struct {
	// Format is one of the formats above; "" is Auto.
	Format string `json:"format,omitempty"`

	// URLColumn, TSColumn and SizeField name columns: in tables by header or by number from
	// 1, in JSON by the path of the member (`attributes.url`; digits index an array, `\.` is
	// a dot inside a name), in CDX by the names in cdx.go. In Parquet by the path in the schema,
	// with or without what only makes a list (`links.list.element.url`, `links.url`); a column
	// inside lists yields a record for every element.
	//
	// Without URLColumn the column is chosen by its name and its values, see Detect. Without
	// TSColumn a column called ts or timestamp is used where all values of the head are times
	// from 1990 to 2100, and CDX uses its own. Size is only ever read from a named column.
	URLColumn string `json:"url_column,omitempty"`
	TSColumn  string `json:"ts_column,omitempty"`
	SizeField string `json:"size_field,omitempty"`

	// Extras are the columns to keep beside these, or "*" for all others; none by default.
	// Of tables empty cells are left out, and those beyond the width of header and most rows.
	Extras []string `json:"extras,omitempty"`

	// MaxLine is the longest record in bytes, without its line end; 0 is DefaultMaxLine.
	MaxLine int `json:"max_line,omitempty"`

	// TSFormat is how timestamps are written where they are not in a form of [ParseTime]: a
	// strftime pattern (`%m/%d/%Y %H:%M`) or a layout of Go's time package.
	TSFormat string `json:"ts_format,omitempty"`

	// LittleMemory opens an object within LittleMemory bytes. An object that needs more fails,
	// though not always with an error that says so; the caller tries again without this option.
	LittleMemory bool `json:"-"`
}

// Check reports options that no object could be read by: an unknown format, a longest line out
// of bounds, a time format that is none. NewReader, Open and Detect report the same.
func (o Options) Check() error {
	_, err := o.check()
	return err
}

// check returns the options with their defaults filled in.
func (o Options) check() (Options, error) {
	switch o.Format {
	case "":
		o.Format = Auto
	case Auto, Lines, CSV, TSV, JSONLines, JSON, CDX, CDXJ, Parquet:
	default:
		return o, fmt.Errorf("format %q is none of auto, lines, csv, tsv, jsonl, json, cdx, cdxj, parquet", o.Format)
	}
	if o.MaxLine == 0 {
		o.MaxLine = DefaultMaxLine
	}
	if o.MaxLine < 1 || o.MaxLine > maxMaxLine {
		return o, fmt.Errorf("longest line %d is not between 1 and %d", o.MaxLine, maxMaxLine)
	}
	if _, err := newTimeFormat(o.TSFormat); err != nil {
		return o, err
	}
	return o, nil
}

// Column is one column of a record.
type Column struct {
	// Name is the header's word, or the path of a JSON member ("" is the value itself).
	Name string `json:"name"`
	// Number counts a table's columns from 1, those of Parquet in the order of its schema; 0 in JSON.
	Number int `json:"number,omitempty"`
}

// Plan is everything decided about an object before its records are read. It is plain
// data: one process plans, others read by it ([Open]) without deciding again.
type Plan struct {
	Compression string `json:"compression"` // none, gzip, zstd, bzip2, xz
	Format      string `json:"format"`      // one of the formats, never Auto
	// CRLines is set for text whose lines end in a bare carriage return.
	CRLines bool `json:"cr_lines,omitempty"`
	// Separator stands between the fields of a CSV or TSV; "" means one column, in which
	// commas are part of the URL.
	Separator string `json:"separator,omitempty"`
	// HeaderRow is the row with the column names, from 1, blank rows not counted; it and
	// the title rows before it are no records. 0: no header.
	HeaderRow int `json:"header_row,omitempty"`
	// Columns are a table's columns in order. Those the header leaves nameless, or names
	// twice, are called by their number.
	Columns []string `json:"columns,omitempty"`
	// Depth is how many objects or arrays stand around a record of JSON; 0 is at most an array.
	Depth int `json:"depth,omitempty"`
	// LakePart is set for Parquet that is a part of a lake: the URL is its columns scheme, host, port and path_query, and its
	// extras are those of the records, if no others are asked for. URL is the column path_query.
	LakePart bool `json:"lake_part,omitempty"`
	// Members is how the members of an archive are to be read; of Plan's other fields an archive has
	// Compression, MaxLine and Notes.
	Members *Options `json:"members,omitempty"`

	URL  Column  `json:"url"`
	TS   *Column `json:"ts,omitempty"`
	Size *Column `json:"size,omitempty"`
	// TSChosen is set where no caller named TS: values that are no timestamps are left out
	// and counted.
	TSChosen bool `json:"ts_chosen,omitempty"`
	// AllExtras keeps every other column; else Extras are kept.
	AllExtras bool     `json:"all_extras,omitempty"`
	Extras    []Column `json:"extras,omitempty"`

	MaxLine  int    `json:"max_line"`
	TSFormat string `json:"ts_format,omitempty"`
	// Notes tell a person what was guessed, and how to choose otherwise.
	Notes []string `json:"notes,omitempty"`
}

// ErrInput matches every error whose cause is what the object holds, or how it was asked
// to be read: trying again cannot help. Errors of the store below do not match it.
var ErrInput = errors.New("unusable input")

// FormatError refuses an object: it is in no format this package reads, or it has not the
// columns that were asked for. It matches ErrInput.
type FormatError struct {
	Name string
	// Reason is what the object is, Advice what can be done; Advice may be empty.
	Reason, Advice string
}

func (e *FormatError) Error() string {
	s := e.Name + ": " + e.Reason
	if e.Advice != "" {
		s += "; " + e.Advice
	}
	return s
}

// Is makes errors.Is(err, ErrInput) true.
func (e *FormatError) Is(target error) bool { return target == ErrInput }

// DataError says where an object stops being readable. It matches ErrInput.
type DataError struct {
	Name string
	// Line and Offset are the first record that could not be read, in the decompressed
	// object, as in Record. Line is 0 in a range that does not begin the object, and between the
	// members of an archive.
	Line, Offset int64
	// Compression is the plan's. CompressedOffset is how far the compressed bytes were used.
	Compression      string
	CompressedOffset int64
	Err              error
}

func (e *DataError) Error() string {
	s := e.Name + ": "
	if e.Line > 0 {
		s += fmt.Sprintf("line %d, ", e.Line)
	}
	if e.Offset >= 0 {
		s += fmt.Sprintf("byte %d", e.Offset)
	} else {
		s = fmt.Sprintf("%s: row %d", e.Name, e.Line)
	}
	if e.Compression != noCompression {
		s += fmt.Sprintf(" (byte %d of the %s data)", e.CompressedOffset, e.Compression)
	}
	return s + ": " + e.Reason()
}

// Reason says what is wrong, without the place.
func (e *DataError) Reason() string {
	if errors.Is(e.Err, io.ErrUnexpectedEOF) {
		return "the data ends in the middle; the object is truncated"
	}
	return e.Err.Error()
}

// Is makes errors.Is(err, ErrInput) true.
func (e *DataError) Is(target error) bool { return target == ErrInput }

// Unwrap returns the decompressor's or parser's error.
func (e *DataError) Unwrap() error { return e.Err }

// Reader yields the records of one object in order. It is not safe for concurrent use, owns
// no goroutine and needs no closing.
type Reader struct {
	name   string
	plan   Plan
	src    *source
	in     *input
	parse  parser
	rec    Record
	rej    Reject
	counts Counts
	err    error
	batch  []byte // what the records of a batch point into, if not into the input
	inside bool   // of a range that does not begin the object: line numbers are not the object's
}

// parser fills rec, or sets rej.Reason and leaves the input behind the bad record. Line and
// Offset are taken from input.at. Errors are final; io.EOF is the end.
type parser interface {
	next(rec *Record, rej *Reject) error
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
func NewReader(r io.Reader, name string, opt Options) (*Reader, error) {
	return newReader(r, name, opt, false)
}

// newMember reads a member of an archive.
func newMember(r io.Reader, name string, opt Options) (*Reader, error) {
	return newReader(r, name, opt, true)
}

func newReader(r io.Reader, name string, opt Options, member bool) (*Reader, error) {
	opt, err := opt.check()
	if err != nil {
		return nil, err
	}
	rd := &Reader{name: name, src: newSource(r)}
	rd.src.little = opt.LittleMemory
	compression, err := rd.src.decompress("")
	rd.plan.Compression = compression
	if err != nil {
		rd.in = newInput(rd.src, opt.MaxLine)
		return nil, rd.fail(err)
	}
	rd.in = newInput(rd.src, opt.MaxLine)
	for rd.in.w < HeadSize && rd.in.fill() {
	}
	if rd.in.err != nil && rd.in.err != io.EOF && (rd.in.w == 0 || opt.LittleMemory) {
		return nil, rd.fail(rd.in.err)
	}
	head := rd.in.buf[:min(rd.in.w, HeadSize)]
	switch {
	case bytes.HasPrefix(head, parquetMagic):
		if opt.Format != Auto && opt.Format != Parquet {
			return nil, &FormatError{Name: name, Reason: "it is a Parquet file and not " + opt.Format, Advice: "leave its format to be recognised (--format auto)"}
		}
		o, err := rd.parquet()
		if err != nil {
			return nil, rd.fail(err)
		}
		d, err := newDetector(name, nil, opt)
		if err != nil {
			return nil, err
		}
		if err := d.planParquet(o); err != nil {
			return nil, rd.fail(err)
		}
		d.plan.Compression = compression
		return rd.startParquet(o, d.plan, nil)
	case isTar(head) && !member:
		return rd.startTar(Plan{Compression: compression, Format: Tar, Members: &opt, MaxLine: opt.MaxLine})
	}
	plan, err := Detect(name, head, opt)
	if err != nil {
		return nil, err
	}
	plan.Compression = compression
	return rd.start(plan)
}

// Open reads an object by a plan made earlier; r is as for NewReader. An object that is not compressed
// as the plan says was changed since and is a *DataError.
func Open(r io.Reader, name string, plan Plan) (*Reader, error) {
	opt := Options{Format: plan.Format, MaxLine: plan.MaxLine, TSFormat: plan.TSFormat}
	if plan.Format == Tar && plan.Members != nil {
		opt = *plan.Members
	}
	opt, err := opt.check()
	if err != nil {
		return nil, err
	}
	rd := &Reader{name: name, src: newSource(r), plan: plan}
	_, err = rd.src.decompress(plan.Compression)
	rd.in = newInput(rd.src, opt.MaxLine)
	if err != nil {
		return nil, rd.fail(err)
	}
	switch plan.Format {
	case Parquet:
		o, err := rd.parquet()
		if err != nil {
			return nil, rd.fail(err)
		}
		return rd.startParquet(o, plan, nil)
	case Tar:
		plan.Members = &opt
		return rd.startTar(plan)
	}
	return rd.start(plan)
}

func (r *Reader) start(plan Plan) (*Reader, error) {
	r.plan = plan
	r.in.skipBOM()
	if plan.CRLines {
		r.in.eol = '\r'
	}
	p, err := newParser(r.in, plan, &r.counts)
	if err != nil {
		return nil, err
	}
	r.parse = p
	return r, nil
}

// startTar goes to the first member, so that an archive that holds nothing readable is refused here. Its
// guesses are the plan's notes.
func (r *Reader) startTar(plan Plan) (*Reader, error) {
	p := newTarParser(r, *plan.Members)
	members := *plan.Members
	members.LittleMemory = false
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
func (r *Reader) parquet() (*parquetObject, error) {
	if at, ok := r.src.below.(randomAccess); ok && r.plan.Compression == noCompression {
		return r.parquetAt(at)
	}
	most := r.src.atMost(maxBufferedParquet, littleBuffered)
	data, err := io.ReadAll(io.LimitReader(&tarStream{in: r.in}, most+1))
	if err != nil {
		return nil, err
	}
	switch {
	case int64(len(data)) <= most:
	case r.src.little:
		return nil, errLittleMemory
	default:
		return nil, &FormatError{Name: r.name, Reason: fmt.Sprintf("it is a Parquet file of more than %d MiB inside of compression or an archive", maxBufferedParquet>>20), Advice: "unpack it first"}
	}
	stored := r.src.used()
	o, err := r.parquetAt(bytes.NewReader(data))
	r.src.size = stored
	return o, err
}

func (r *Reader) parquetAt(at randomAccess) (*parquetObject, error) {
	r.src.whole(at.Size())
	r.in = &input{base: -1, line: 1, eol: '\n', err: io.EOF}
	return openParquet(r.name, parquetBytes{at: at, size: at.Size(), src: r.src})
}

// startParquet reads the row groups of a range, all of them without one.
func (r *Reader) startParquet(o *parquetObject, plan Plan, rg *Range) (*Reader, error) {
	r.plan = plan
	f, err := newFields(plan, &r.counts)
	if err != nil {
		return nil, err
	}
	p, err := newParquetParser(r.name, o, r.in, plan, f)
	if err != nil {
		return nil, r.fail(err)
	}
	if rg == nil {
		rg = &Range{To: int64(o.meta.NumRowGroups()), StoredTo: r.src.size}
	}
	rows, err := p.within(*rg)
	if err != nil {
		return nil, r.fail(err)
	}
	before, stored := p.total, rg.Stored
	size := rg.StoredTo - stored
	p.fetched = func(total int64) {
		r.src.fetched = stored
		if rows > 0 {
			r.src.fetched += int64(float64(size) * float64(min(total-before, rows)) / float64(rows))
		}
	}
	p.fetched(before)
	r.parse = p
	return r, nil
}

func newParser(in *input, plan Plan, counts *Counts) (parser, error) {
	fields, err := newFields(plan, counts)
	if err != nil {
		return nil, err
	}
	switch plan.Format {
	case Lines:
		return &listParser{in: in, counts: counts}, nil
	case CSV, TSV:
		return newCSVParser(in, plan, fields, counts), nil
	case CDX:
		return newCDXParser(in, plan, fields, counts), nil
	case CDXJ:
		return newCDXJParser(in, plan, fields, counts), nil
	case JSONLines:
		return newJSONLParser(in, plan, fields, counts), nil
	case JSON:
		if plan.Depth > 0 {
			return newJSONTreeParser(in, plan, fields), nil
		}
		return newJSONParser(in, plan, fields), nil
	}
	return nil, fmt.Errorf("plan has format %q", plan.Format)
}

// Plan returns how the object is being read.
func (r *Reader) Plan() Plan { return r.plan }

// Notes returns the plan's notes and, of an archive, how many members were left out so far.
func (r *Reader) Notes() []string {
	notes := r.plan.Notes
	if p, ok := r.parse.(*tarParser); ok && r.counts.LeftOut > 0 {
		notes = append(slices.Clip(notes), fmt.Sprintf("%d members of an archive hold no records, by their names, and were left out; the first is %s", r.counts.LeftOut, p.first))
	}
	return notes
}

// Counts returns the counts so far.
func (r *Reader) Counts() Counts { return r.counts }

// Next returns the next record or reject; exactly one of the two is non-nil while err is nil.
// Both are valid until the next call. At the end err is io.EOF. Every other error is final
// for the object: a *DataError where the object is at fault, else one that wraps the error of
// the reader below.
func (r *Reader) Next() (*Record, *Reject, error) {
	if r.err != nil {
		return nil, nil, r.err
	}
	r.rec, r.rej = Record{}, Reject{}
	if err := r.parse.next(&r.rec, &r.rej); err != nil {
		if err != io.EOF {
			err = r.fail(err)
		}
		r.err = err
		return nil, nil, err
	}
	if r.rej.Reason != "" {
		r.counts.Rejects++
		r.rej.Line, r.rej.Offset = r.in.at.line, r.in.at.offset
		return nil, &r.rej, nil
	}
	r.counts.Records++
	r.rec.Line, r.rec.Offset = r.in.at.line, r.in.at.offset
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
func (r *Reader) NextBatch(recs []Record) (n int, rej *Reject, err error) {
	if list, ok := r.parse.(*listParser); ok {
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
func (r *Reader) listBatch(list *listParser, recs []Record) (n int, rej *Reject, err error) {
	var urls [linesAtOnce][]byte
	var lines [linesAtOnce]Line
	some, rej, err := r.NextURLs(urls[:min(linesAtOnce, len(recs))], lines[:])
	for some > 0 {
		for i, url := range urls[:some] {
			recs[n+i] = Record{URL: url, Line: lines[i].Line, Offset: lines[i].Offset}
		}
		n += some
		some = list.batch(urls[:min(linesAtOnce, len(recs)-n)], lines[:])
		r.counts.Records += int64(some)
	}
	return n, rej, err
}

// Line is where a URL of a list stands, as in Record.
type Line struct{ Line, Offset int64 }

// IsList reports that the object is a list: its records are nothing but URLs, and NextURLs is the fastest way to read them.
func (r *Reader) IsList() bool {
	_, ok := r.parse.(*listParser)
	return ok
}

// NextURLs is NextBatch for a list: it sets urls[:n], and lines[:n] to their places, of which there are to be as many. Of what is no list it returns an error.
func (r *Reader) NextURLs(urls [][]byte, lines []Line) (n int, rej *Reject, err error) {
	list, ok := r.parse.(*listParser)
	if !ok {
		return 0, nil, errNoList
	}
	if r.err == nil {
		n = list.batch(urls, lines)
	}
	if n == 0 && len(urls) > 0 {
		rec, rej, err := r.Next()
		if err != nil || rej != nil {
			return 0, rej, err
		}
		urls[0], lines[0] = rec.URL, Line{rec.Line, rec.Offset}
		// What was read for this line holds those that follow.
		n = list.batch(urls[1:], lines[1:])
		r.counts.Records += int64(n)
		return 1 + n, nil, nil
	}
	r.counts.Records += int64(n)
	return n, nil, nil
}

// errLittleMemory is the error of an object that needs more than LittleMemory to be opened.
var errLittleMemory = errors.New("opening it needs more memory")

var errNoList = errors.New("records that are no lines of a list")

// keep copies a part of a record for the length of a batch.
func (r *Reader) keep(b []byte) []byte {
	at := len(r.batch)
	r.batch = append(r.batch, b...)
	return r.batch[at:len(r.batch):len(r.batch)]
}

// Offset returns how far the decompressed object has been used.
func (r *Reader) Offset() int64 { return r.in.base + int64(r.in.r) }

// CompressedOffset returns how far the object as stored has been read, for progress; of Parquet the same share
// of its size as of its rows.
func (r *Reader) CompressedOffset() int64 { return r.src.used() }

func (r *Reader) fail(err error) error {
	at := r.in.here()
	if r.inside {
		at.line = 0
	}
	if r.src.err != nil {
		return fmt.Errorf("%s: read at byte %d: %w", r.name, r.src.used(), r.src.err)
	}
	var format *FormatError
	var data *DataError
	if errors.As(err, &format) || errors.As(err, &data) {
		return err // of a member, or of Parquet's columns
	}
	return &DataError{Name: r.name, Line: at.line, Offset: at.offset, Compression: r.plan.Compression,
		CompressedOffset: r.src.used(), Err: err}
}

// listParser reads one URL a line. White space around it is no part of it. A line that begins with # is a
// comment; any other # belongs to the URL, so that a line means here what it means to urlnorm.
type listParser struct {
	in     *input
	counts *Counts
	ends   [linesAtOnce + 64]int32 // of lines of a window
}

// linesAtOnce is how many lines are looked for at a time.
const linesAtOnce = 64

func (p *listParser) next(rec *Record, rej *Reject) (err error) {
	rec.URL, err = p.in.nextLine(rej, p.url)
	return err
}

// batch sets urls to those of lines that stand in the window whole, and lines to their places, and returns how many. Lines of the greatest
// length are left to next.
func (p *listParser) batch(urls [][]byte, lines []Line) (n int) {
	in := p.in
	window := in.buf[:in.w]
	last := len(window) // place of the last line, at most
	if in.stop != 0 {
		last = int(min(int64(last), in.stop-in.base))
	}
	at, line := in.r, in.line
	lines = lines[:len(urls)]
	for n < len(urls) && at <= last {
		start := at
		ends := p.ends[:lineEnds(window[start:], in.eol, min(linesAtOnce, len(urls)-n), &p.ends)]
		for _, end := range ends {
			end := start + int(end)
			if at > last || end-at > in.max {
				last = -1
				break
			}
			text := window[at:end:end]
			offset := in.base + int64(at)
			at = end + 1
			line++
			if len(text) == 0 || text[0] <= ' ' || text[0] == '#' || text[0] == bom[0] || text[len(text)-1] <= ' ' {
				if text = p.url(text); text == nil {
					continue
				}
			}
			urls[n], lines[n] = text, Line{line - 1, offset}
			n++
		}
		if len(ends) == 0 {
			break
		}
	}
	in.r, in.line = at, line
	return n
}

// lineEndsBytes sets ends to the places of eol in s, most of them at most, and returns how many.
func lineEndsBytes(s []byte, eol byte, most int, ends *[linesAtOnce + 64]int32) (n int) {
	for at := 0; n < most; n++ {
		i := bytes.IndexByte(s[at:], eol)
		if i < 0 {
			break
		}
		ends[n] = int32(at + i)
		at += i + 1
	}
	return n
}

// url returns the URL of a line, nil if it has none.
func (p *listParser) url(line []byte) []byte {
	// Files joined by cat have their marks in the middle.
	line = trimSpace(bytes.TrimPrefix(line, bom))
	switch {
	case len(line) == 0:
		p.counts.Blank++
		return nil
	case line[0] == '#':
		p.counts.Comments++
		return nil
	}
	return line
}

var bom = []byte("\xef\xbb\xbf")

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

func trimSpace(b []byte) []byte {
	for len(b) > 0 && isSpace(b[0]) {
		b = b[1:]
	}
	for len(b) > 0 && isSpace(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}

// fields is what tables and JSON do alike with the values they found.
type fields struct {
	time     timeFormat
	tsChosen bool
	counts   *Counts
}

func newFields(plan Plan, counts *Counts) (fields, error) {
	tf, err := newTimeFormat(plan.TSFormat)
	return fields{time: tf, tsChosen: plan.TSChosen, counts: counts}, err
}

// setTS takes the text of the timestamp; empty text is none. It says whether the record stands.
func (f *fields) setTS(rec *Record, b []byte) bool {
	b = trimSpace(b)
	if len(b) == 0 {
		return true
	}
	ms, ok := f.time.parse(b)
	if ok {
		rec.TS, rec.HasTS = ms, true
		return true
	}
	if f.tsChosen {
		f.counts.BadTS++
		return true
	}
	return false
}

// setSize takes the text of the size; empty text is none. It says whether the record stands.
func setSize(rec *Record, b []byte) bool {
	b = trimSpace(b)
	if len(b) == 0 {
		return true
	}
	n, ok := parseSize(b)
	rec.Size, rec.HasSize = n, ok
	return ok
}

// parseSize reads decimal digits, with a fraction of zeros as float columns write it.
func parseSize(b []byte) (int64, bool) {
	if i := bytes.IndexByte(b, '.'); i > 0 {
		if len(bytes.Trim(b[i+1:], "0")) > 0 {
			return 0, false
		}
		b = b[:i]
	}
	if len(b) == 0 {
		return 0, false
	}
	var n uint64
	for _, c := range b {
		d := uint64(c - '0')
		if d > 9 || n > (1<<63-1-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return int64(n), true
}

// sortColumns puts columns in the order of canonical JSON.
func sortColumns(cols []Column) []Column {
	cols = slices.Clone(cols)
	slices.SortStableFunc(cols, func(a, b Column) int { return compareUTF16([]byte(a.Name), []byte(b.Name)) })
	return cols
}
