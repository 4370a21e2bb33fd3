// Package raw has the types that describe a dataset as people publish it: how an object is to be
// read ([Options], [Plan], [Range]) and what is read ([Record], [Reject], [Counts]). Package
// lake/raw/reader reads objects; it and the packages below lake/raw share these types. Options,
// Plan and Range are plain data with a JSON form, so that one process plans and another reads.
//
// Objects are lists of URLs, CSV and TSV, tables between blanks, JSON Lines, JSON arrays and maps,
// what web archives have (CDX and CDXJ indexes, WARC, ARC, WACZ, crawl logs of Heritrix, TimeMaps),
// sitemaps, feeds, bookmarks and N-Triples (lake/raw/markup), Parquet, and tar and zip archives of
// these, plain or compressed with gzip, zstd, bzip2 or xz. The first bytes of an
// object decide what it is (lake/raw/detect); its name only breaks ties.
//
// The reader promises:
//
//   - Every record of an object ends as a Record, or as a Reject with its position and reason. A
//     field with several URLs makes one record for each of them. The exceptions are blank lines and
//     rows, comment lines of lists, the rows up to a table's header, and members of an archive that
//     hold no data by their name. Counts has their numbers.
//   - Memory is bounded by Options.MaxLine whatever the object holds, in Parquet also by limits on
//     footer and pages (a few hundred MiB at worst). A longer line is a Reject and is skipped
//     without being buffered.
//   - One stray quote or brace costs one record. What reading cannot go on behind (damaged
//     compression, a JSON array broken between two elements) is an error that matches [ErrInput]
//     and has the position. A truncated object is an error, never a shorter object.
//   - The same bytes, name and options give the same plan and the same records.
//
// A URL is returned as its bytes are, unescaped from CSV or JSON and without the white space around
// it; package lake/urlnorm interprets it. Bytes that are not UTF-8 stay in URLs and become U+FFFD
// in extras, which are JSON and must be UTF-8.
package raw

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/urlake/urlake/lake/raw/timestamp"
)

const (
	// HeadSize is how many bytes of a decompressed object decide its plan: hundreds of lines of any
	// list, and more than nearly every JSON document of one line has.
	HeadSize = 256 << 10

	// DefaultMaxLine is the longest record in bytes. A URL may have 64 KiB; documents of text
	// corpora, which hold their text beside the URL, reach a few hundred KiB.
	DefaultMaxLine = 1 << 20

	// maxMaxLine keeps offsets inside a record and what is read ahead of it within 31 bits.
	maxMaxLine = 1 << 30
)

// The values of Plan.Encoding.
const (
	UTF16LE = "utf-16le"
	UTF16BE = "utf-16be"
)

// NoCompression is the Plan.Compression of an object that is not compressed.
const NoCompression = "none"

// How many bytes of memory it takes at most to open an object, before the first record is read. An
// archive needs two decompressors, its own and that of a member.
const (
	// LowMemory is the bound with Options.LowMemory.
	LowMemory = 24 << 20
	// OpenMemory is the bound without it. Parquet with the largest pages can take twice as much.
	OpenMemory = 288 << 20
	// PageMemory is how many bytes of memory the pages of a Parquet file take at most while its
	// records are read.
	PageMemory = 512 << 20
)

// ErrPageMemory is the error of an object whose pages need more memory than its reader may use
// now. With more it can be read. It does not match ErrInput.
var ErrPageMemory = errors.New("its pages need more memory")

// ErrLowMemory is the error of an object that needs more than LowMemory bytes to be opened.
var ErrLowMemory = errors.New("opening it needs more memory")

// The formats of Options.Format and Plan.Format.
const (
	Auto      = "auto"
	Lines     = "lines" // one URL a line; a line that begins with # is a comment
	CSV       = "csv"   // RFC 4180, any of , ; | or tab between fields
	TSV       = "tsv"   // tab between fields; no line break inside quotes
	JSONLines = "jsonl" // one JSON object or string a line
	JSON      = "json"  // arrays of objects or strings, such values in sequence, or one object of them
	CDX       = "cdx"   // web archive index: fields between spaces, see lake/raw/text/cdx.go
	CDXJ      = "cdxj"  // SURT key, timestamp and a JSON object
	Parquet   = "parquet"
	Spaced    = "spaced"   // a table with runs of blanks between its fields, one row a line
	CrawlLog  = "crawllog" // crawl.log of Heritrix, see lake/raw/text/spaced.go
	WARC      = "warc"     // web archive records, see lake/raw/warcin
	ARC       = "arc"      // the format before WARC
	// The formats of lake/raw/markup.
	Sitemap   = "sitemap"   // sitemaps.org, also a sitemap index
	RSS       = "rss"       // RSS 0.9 to 2.0
	Atom      = "atom"      // RFC 4287
	OPML      = "opml"      // lists of feeds
	Bookmarks = "bookmarks" // what browsers export as HTML
	TimeMap   = "timemap"   // application/link-format, RFC 7089
	NTriples  = "ntriples"  // N-Triples and N-Quads

	// Tar, Zip and WACZ are only used in Plan.Format. Each member has its own format, which
	// Options.Format can set in a tar or zip.
	Tar  = "tar"
	Zip  = "zip"
	WACZ = "wacz" // a zip of WARC files and their index
)

// MarkupFormats are the formats of lake/raw/markup. Their columns are known by the format.
var MarkupFormats = []string{Sitemap, RSS, Atom, OPML, Bookmarks, TimeMap, NTriples}

// The capture fields: what web archives know about a capture, under one name whatever the format
// calls it. All values are strings. A record of a format in CaptureFormats has those that it knows
// as extras, unless the options name others.
const (
	Status   = "status"   // the HTTP status; in crawl logs also Heritrix' negative codes
	MIME     = "mime"     // the media type without parameters; warc/revisit for a revisit
	Digest   = "digest"   // of the payload; without prefix it is SHA-1 in base 32
	Filename = "filename" // the WARC file, as an index names it, else without its folder
	Offset   = "offset"   // where the record begins in that file as stored
	Length   = "length"   // how many stored bytes the record has
	Via      = "via"      // the page on which the URL was found; only in crawl logs
)

// CaptureFields lists the capture fields.
var CaptureFields = []string{Status, MIME, Digest, Filename, Offset, Length, Via}

// CaptureFormats are the formats whose records are captures.
var CaptureFormats = []string{CDX, CDXJ, CrawlLog, WARC, ARC, WACZ}

// None is the name of a column that turns off what is chosen by default: as Options.TSColumn the
// time, as the only name of Options.Extras the capture fields.
const None = "none"

// The reasons of a Reject.
const (
	TooLong = "too_long_line" // the record is longer than Options.MaxLine
	BadCSV  = "bad_csv"       // a quoted field does not end, or goes on behind it, or two rows share a line
	BadJSON = "bad_json"      // the line or the array's element is not JSON
	BadCDX  = "bad_cdx"       // the line has no URL field
	NoURL   = "no_url"        // the record is well formed; its URL is absent, empty or not a string
	BadTS   = "bad_ts"        // the column named as timestamp holds something else
	BadSize = "bad_size"      // the column named as size holds no whole number from 0 to MaxSize
	BadWARC = "bad_warc"      // the record of a WARC or ARC is malformed, or not as long as it says
	BadLog  = "bad_log"       // the line has too few fields
	// BadMarkup is a malformed element of XML or HTML, BadLink a malformed link of a TimeMap, and
	// BadTriple a malformed statement of N-Triples.
	BadMarkup    = "bad_markup"
	BadLink      = "bad_link"
	BadTriple    = "bad_triple"
	SeveralURLs  = "several_urls"   // the field has several URLs and does not tell where they end
	TextAfterURL = "text_after_url" // the field has text behind the URL that may be part of it or not
)

// MaxSize is the largest size of a record. A thousand of these still have a sum of 63 bits, and any
// JSON reader understands the number. What is larger is no size.
const MaxSize = 1<<53 - 1

// Reasons lists every reason a Reject can have.
var Reasons = []string{TooLong, BadCSV, BadJSON, BadCDX, NoURL, BadTS, BadSize, BadWARC, BadLog,
	BadMarkup, BadLink, BadTriple,
	SeveralURLs, TextAfterURL}

// Record is one record. Its slices are valid until the next call of Next.
type Record struct {
	URL []byte
	// TS is in milliseconds since the Unix epoch; valid if HasTS.
	TS    int64
	HasTS bool
	// Size is the value of the column that the caller named, at most MaxSize; valid if HasSize.
	Size    int64
	HasSize bool
	// Extras is a JSON object in canonical form (RFC 8785), nil if there is none.
	Extras []byte
	// Member is the name of the archive's member that holds the record, "" outside of archives.
	Member string
	// Line is the record's first line, from 1, and Offset the offset of its first byte, both in the
	// decompressed object or member. In Parquet Line is the row and Offset is -1. In WARC and ARC
	// Line is 0, and Offset is as stored if the record begins a gzip member or zstd frame.
	Line, Offset int64
	// BadTS is the beginning of the timestamp column's value, as in Reject.Value, if it is no time.
	BadTS string
}

// Reject is a record that could not be read: its position, as in Record, and one of Reasons. It
// never holds the record's text but for Value.
type Reject struct {
	Member       string
	Line, Offset int64
	Reason       string
	// Value is the beginning of what the timestamp column holds, for BadTS. It is empty if that
	// looks like a URL.
	Value string
}

// Unread is a member of an archive that was left out since it could not be read, or not to its end:
// its name, the position from which it was not read as in Record, and the reason. Line is 0 if
// nothing of it was read.
type Unread struct {
	Member       string
	Line, Offset int64
	Reason       string
}

// Counts are the numbers of what a reader has read so far.
type Counts struct {
	Records, Rejects int64
	// Blank counts empty lines, rows whose cells are all empty, and rows of Parquet with an empty
	// list of URLs. Comments counts the comment lines of lists and indexes, and the records of WARC
	// that are no captures.
	Blank, Comments int64
	// Spaced counts the URLs that have a space inside.
	Spaced int64
	// BadTS counts records without their timestamp, because it could not be parsed and no caller
	// had named its column. (In a named column such a record is a Reject.)
	BadTS int64
	// Members counts the members of archives that were read, LeftOut those that hold no records by
	// their kind or name. Directories are not counted.
	Members, LeftOut int64
}

// Options says how an object is to be read. The zero value decides everything by content.
type Options struct {
	// Format is one of the formats above; "" is Auto.
	Format string `json:"format,omitempty"`

	// URLColumn, TSColumn and SizeField name columns: in tables by header or by number from 1; in
	// JSON by the path of the member (`attributes.url`; digits index an array, `\.` is a dot inside
	// a name); in CDX by the names in lake/raw/text/cdx.go; in Parquet by the path in the schema,
	// with or without the groups that only make a list (`links.list.element.url`, `links.url`). A
	// column inside lists yields a record for every element.
	//
	// Without URLColumn the column is chosen by its name and its values, see lake/raw/detect.
	// Without TSColumn the time is chosen likewise, and formats of captures use their own; None
	// reads none. Size is only read from a named column, and from crawl logs.
	URLColumn string `json:"url_column,omitempty"`
	TSColumn  string `json:"ts_column,omitempty"`
	SizeField string `json:"size_field,omitempty"`

	// Extras are the columns to keep beside these, or "*" for all others. By default these are the
	// capture fields in formats of captures, else none; None alone keeps none. The names of capture
	// fields stand for what the format calls them. Empty cells of tables are left out, and cells
	// beyond the width of the header and of most rows.
	Extras []string `json:"extras,omitempty"`

	// MaxLine is the longest record in bytes, without its line end; 0 is DefaultMaxLine.
	MaxLine int `json:"max_line,omitempty"`

	// TSFormat is the format of timestamps that package lake/raw/timestamp does not parse without
	// one: a strftime pattern (`%m/%d/%Y %H:%M`) or a layout of Go's time package.
	TSFormat string `json:"ts_format,omitempty"`

	// SkipUnreadable leaves out members of archives that cannot be read, instead of rejecting the
	// archive. The reader names them.
	SkipUnreadable bool `json:"skip_unreadable,omitempty"`

	// LowMemory opens an object within LowMemory bytes. An object that needs more fails, but not
	// always with ErrLowMemory: the caller tries again without this option.
	LowMemory bool `json:"-"`
}

// WantsExtras returns the columns to keep that the options name. defaults is true if they name
// none, so that capture fields are kept.
func (o Options) WantsExtras() (names []string, defaults bool) {
	if len(o.Extras) == 0 {
		return nil, true
	}
	if len(o.Extras) == 1 && (o.Extras[0] == None || o.Extras[0] == "") {
		return nil, false
	}
	return o.Extras, false
}

// Check returns an error if no object can be read by these options: the format is unknown, MaxLine
// is out of bounds, or TSFormat is invalid. Functions that take Options return the same error; it
// does not match ErrInput.
func (o Options) Check() error {
	_, err := o.WithDefaults()
	return err
}

// WithDefaults returns the options with their defaults filled in.
func (o Options) WithDefaults() (Options, error) {
	switch o.Format {
	case "":
		o.Format = Auto
	case Auto, Lines, CSV, TSV, Spaced, JSONLines, JSON, CDX, CDXJ, CrawlLog, WARC, ARC, Parquet:
	default:
		if !slices.Contains(MarkupFormats, o.Format) {
			return o, fmt.Errorf("format %q is none of auto, lines, csv, tsv, spaced, jsonl, json, cdx, cdxj, "+
				"crawllog, warc, arc, parquet, %s", o.Format, strings.Join(MarkupFormats, ", "))
		}
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
	// Name is the name in the header, or the path of a JSON member ("" is the value itself). Extras
	// have it as their name.
	Name string `json:"name"`
	// From is the path of a JSON member whose name in extras is Name; "" if that is the path.
	From string `json:"from,omitempty"`
	// Capture is set for a capture field: its value is written as a string in the form that all
	// formats share.
	Capture bool `json:"capture,omitempty"`
	// Number is the number of a table's column, from 1; in Parquet in the order of the schema. It
	// is 0 in JSON.
	Number int `json:"number,omitempty"`
}

// Path returns the path of a JSON member.
func (c Column) Path() string {
	if c.From != "" {
		return c.From
	}
	return c.Name
}

// Plan is everything that is decided about an object before its records are read. One process
// plans, and others read by the plan without deciding again.
type Plan struct {
	Compression string `json:"compression"` // none, gzip, zstd, bzip2, xz
	Format      string `json:"format"`      // one of the formats, never Auto
	// Encoding is UTF16LE or UTF16BE for text in that encoding. For XML or HTML it is the declared
	// encoding, by its name in the Encoding Standard of WHATWG. "" is UTF-8. Offsets count in the
	// text as UTF-8.
	Encoding string `json:"encoding,omitempty"`
	// CRLines is set for text whose lines end in a bare carriage return.
	CRLines bool `json:"cr_lines,omitempty"`
	// Separator stands between the fields of a CSV or TSV; "" means one column, in which commas are
	// part of the URL.
	Separator string `json:"separator,omitempty"`
	// Backslash is set for a CSV or TSV in which a backslash escapes the character behind it, and
	// \N is an empty field.
	Backslash bool `json:"backslash,omitempty"`
	// LongRow is the length in bytes from which a row may be two rows without a line break between
	// them.
	LongRow int `json:"long_row,omitempty"`
	// MaxCells is how many cells a row may have up to the last that is not empty: more are parts of
	// a field with a separator that is not quoted. 0 means any number.
	MaxCells int `json:"max_cells,omitempty"`
	// HeaderRow is the row with the column names, from 1, blank rows not counted; it and the title
	// rows before it are no records. 0 means no header.
	HeaderRow int `json:"header_row,omitempty"`
	// Columns are a table's columns in order. Columns without a name, or with a repeated one, are
	// called by their number.
	Columns []string `json:"columns,omitempty"`
	// Depth is how many objects or arrays enclose a record of JSON; 0 means at most an array.
	// AnyDepth means that every object with the URL is a record, also inside records.
	Depth int `json:"depth,omitempty"`
	// Keys is set for JSON whose URLs are the names of the records, which are members of objects.
	Keys bool `json:"keys,omitempty"`
	// Rows is set for JSON whose records are arrays. Columns and HeaderRow are then as in a table.
	Rows bool `json:"rows,omitempty"`
	// LakePart is set for Parquet that is a part of a lake. The URL is made of the columns scheme,
	// host, port and path_query; URL is the column path_query. The extras of the part's rows are
	// those of the records, unless others are asked for.
	LakePart bool `json:"lake_part,omitempty"`
	// Members is how the members of an archive are to be read. Of the other fields of Plan an
	// archive only uses Compression, Format, MaxLine and Notes.
	Members *Options `json:"members,omitempty"`

	// SURT is set for indexes without original URLs, and for lists of keys: URL is the column of
	// sort-friendly keys (com,example)/path), and URLs are made of them.
	SURT bool `json:"surt,omitempty"`
	// Derived is set for a WARC file whose rows are conversions or metadata, as in WET and WAT.
	Derived bool `json:"derived,omitempty"`
	// Legends are the legends of a CDX index, written like their lines (" CDX N b a"). The first
	// one defines Columns, and need not be in the index. The others are at the index's beginning.
	Legends []string `json:"legends,omitempty"`
	// Reversed is set for host names with the last label first (com.example.www), which are turned
	// round.
	Reversed bool `json:"reversed,omitempty"`
	// Enclosed is set for a list with URLs in quotes or angle brackets.
	Enclosed bool `json:"enclosed,omitempty"`

	URL  Column  `json:"url"`
	TS   *Column `json:"ts,omitempty"`
	Size *Column `json:"size,omitempty"`
	// TSChosen is set if no caller named TS: values that are no timestamps are then left out and
	// counted.
	TSChosen bool `json:"ts_chosen,omitempty"`
	// AllExtras keeps every other column; otherwise Extras are kept.
	AllExtras bool     `json:"all_extras,omitempty"`
	Extras    []Column `json:"extras,omitempty"`

	MaxLine  int    `json:"max_line"`
	TSFormat string `json:"ts_format,omitempty"`
	// Notes tell a person what was guessed, and how to change it.
	Notes []string `json:"notes,omitempty"`
}

// ErrInput matches every error that the content of the object or the options cause: a retry cannot
// help. Errors of the store do not match it.
var ErrInput = errors.New("unusable input")

// FormatError rejects an object as a whole: it is in no supported format, or it does not have the
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

// DataError is the error of an object that is readable only up to some record. It matches ErrInput.
type DataError struct {
	Name string
	// Line and Offset are the position of the first record that could not be read, as in Record.
	// Line is 0 in a range that does not begin the object, and between the members of an archive.
	Line, Offset int64
	// Compression is the plan's. CompressedOffset is how many of the compressed bytes were used.
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

// Reason returns what is wrong, without the position.
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

// Range is a part of an object that is read on its own. A line belongs to the range that has the
// line break before it, the first line to the range at 0. So every record belongs to exactly one
// range, wherever the object is cut. In Parquet a range is a sequence of row groups.
type Range struct {
	// From and To are offsets in the decompressed object. In Parquet they are the numbers, from 0,
	// of the first row group and of the one behind the last.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Stored and StoredTo are the offsets of From and To in the object as stored.
	Stored   int64 `json:"stored"`
	StoredTo int64 `json:"stored_to"`
}

// Ranged reports whether an object read by this plan can be cut into ranges: its records are lines,
// whatever they hold, or rows of Parquet that is not compressed as a whole. A record of CSV or JSON
// may have several lines, and only reading from the start tells whether a line break is within one.
func (p Plan) Ranged() bool {
	if p.Encoding != "" {
		return false // the offset of a line in UTF-8 does not tell that in UTF-16
	}
	switch p.Format {
	case Parquet:
		return p.Compression == NoCompression
	case Lines, TSV, Spaced, JSONLines, CDX, CDXJ, CrawlLog, NTriples:
		// A backslash may escape a line break.
		return !p.Backslash && (p.Compression == NoCompression || p.Compression == "zstd")
	}
	return false
}

// AnyDepth is the Plan.Depth of a JSON document whose records are at several depths.
const AnyDepth = -1

// Boundary is where an object can be cut into ranges. Offset is what [Range.From] and [Range.To]
// are, Stored the same offset in the object as stored.
type Boundary struct{ Offset, Stored int64 }

// ColumnNumber parses a column that is given as a number, from 1. It returns false if s is none.
func ColumnNumber(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && n >= 1
}

// QuoteNames returns up to 20 names in quotes, for error texts, and how many more there are.
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
