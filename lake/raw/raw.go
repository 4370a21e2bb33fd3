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
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/urlake/urlake/lake/raw/timestamp"
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
)

// noCompression is a Plan's Compression of an object that is stored as it is.
const NoCompression = "none"

// How many bytes of memory opening an object takes at most before the first record is read. An
// archive needs two decompressors, its own and one for a member.
const (
	// LowMemory is the bound with Options.LowMemory.
	LowMemory = 24 << 20
	// OpenMemory is the bound without. Parquet with pages of the largest size can take as much
	// again.
	OpenMemory = 288 << 20
)

// ErrLowMemory is the error of an object that needs more than LowMemory to be opened.
var ErrLowMemory = errors.New("opening it needs more memory")

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

	// LowMemory opens an object within LowMemory bytes. An object that needs more fails,
	// though not always with an error that says so; the caller tries again without this option.
	LowMemory bool `json:"-"`
}

// Check reports options that no object could be read by: an unknown format, a longest line out
// of bounds, a time format that is none. NewReader, Open and Detect report the same.
func (o Options) Check() error {
	_, err := o.WithDefaults()
	return err
}

// WithDefaults returns the options with their defaults filled in.
func (o Options) WithDefaults() (Options, error) {
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
	if _, err := timestamp.NewFormat(o.TSFormat); err != nil {
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
	if e.Compression != NoCompression {
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
		return p.Compression == NoCompression
	case Lines, TSV, JSONLines, CDX, CDXJ:
		return p.Compression == NoCompression || p.Compression == "zstd"
	}
	return false
}

// border is a place where an object may be cut.
type Boundary struct{ Offset, Stored int64 }

// columnNumber reads a column given as a number from 1.
func ColumnNumber(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && n >= 1
}

func QuoteNames(names []string) string {
	const most = 20
	var s []string
	for _, n := range names[:min(len(names), most)] {
		s = append(s, strconv.Quote(n))
	}
	if len(names) > most {
		s = append(s, fmt.Sprintf("and %d more", len(names)-most))
	}
	return strings.Join(s, ", ")
}
