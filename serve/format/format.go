// Package format writes rows of lists of URLs as JSON, NDJSON, CSV, plain text and Parquet, for
// the server and for starter urls. docs/api.md describes the formats for clients.
package format

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/serve/lookup"
)

// Format is a form in which rows are written.
type Format string

// The formats. JSON is a document for each page; the others are streams of rows.
const (
	JSON   Format = "json"
	NDJSON Format = "ndjson"
	CSV    Format = "csv"
	Text   Format = "text"
	// Parquet is a file whose end is written last: without it, nothing of it can be read.
	Parquet Format = "parquet"
)

// All are all formats, by preference.
var All = []Format{JSON, NDJSON, CSV, Text, Parquet}

// Parse returns the format with this name.
func Parse(name string) (Format, error) {
	if f := Format(name); slices.Contains(All, f) {
		return f, nil
	}
	return "", fmt.Errorf("is %q; use json, ndjson, csv, text or parquet", name)
}

// ContentType is the media type of the format.
func (f Format) ContentType() string {
	switch f {
	case NDJSON:
		return "application/x-ndjson; charset=utf-8"
	case CSV:
		return "text/csv; charset=utf-8; header=present"
	case Text:
		return "text/plain; charset=utf-8"
	case Parquet:
		return "application/vnd.apache.parquet"
	}
	return "application/json"
}

// Accepted returns the format that an Accept header prefers: of several with the same quality the
// first one in All. It is JSON if the header names none of them.
func Accepted(header string) Format {
	best, quality := JSON, 0.0
	for _, f := range All {
		kind, _, _ := strings.Cut(f.ContentType(), ";")
		if q := acceptQuality(header, kind); q > quality {
			best, quality = f, q
		}
	}
	return best
}

// acceptQuality is the quality that an Accept header gives to a media type, by the most specific
// range that matches it; 0 if none does.
func acceptQuality(header, kind string) float64 {
	quality, specific := 0.0, -1
	main, _, _ := strings.Cut(kind, "/")
	for item := range strings.SplitSeq(header, ",") {
		name, parameters, _ := strings.Cut(item, ";")
		name = strings.ToLower(strings.TrimSpace(name))
		rank := -1
		switch {
		case name == kind, kind == "application/x-ndjson" && name == "application/ndjson":
			rank = 2
		case name == main+"/*":
			rank = 1
		case name == "*/*":
			rank = 0
		}
		if rank <= specific {
			continue
		}
		q := 1.0
		for p := range strings.SplitSeq(parameters, ";") {
			if text, ok := strings.CutPrefix(strings.TrimSpace(p), "q="); ok {
				var err error
				if q, err = strconv.ParseFloat(text, 64); err != nil {
					q = 0
				}
			}
		}
		quality, specific = q, rank
	}
	return quality
}

// kind says which value a field has.
type kind int

const (
	urlID kind = iota
	theURL
	ts
	rows
	firstTS
	lastTS
	domain
	scheme
	host
	port
	path
	size
	text // of a column of parts
)

// field is a column of the output.
type field struct {
	name   string
	kind   kind
	column part.Column // of size and text
	// rows and unique are set if lists of rows, or of distinct URLs, may have it.
	rows, unique bool
	// quoted is set if its JSON is a string without characters that have to be escaped, json if its
	// text is JSON.
	quoted, json bool
}

var fields = []field{
	{name: "url_id", kind: urlID, rows: true, unique: true, quoted: true},
	{name: "url", kind: theURL, rows: true, unique: true},
	{name: "ts", kind: ts, rows: true, quoted: true},
	{name: "rows", kind: rows, unique: true},
	{name: "first_ts", kind: firstTS, unique: true, quoted: true},
	{name: "last_ts", kind: lastTS, unique: true, quoted: true},
	{name: "domain", kind: domain, rows: true, unique: true},
	{name: "scheme", kind: scheme, rows: true, unique: true, quoted: true},
	{name: "host", kind: host, rows: true, unique: true},
	{name: "port", kind: port, rows: true, unique: true},
	{name: "path", kind: path, rows: true, unique: true},
	{name: "size", kind: size, rows: true, column: part.ColSize},
	{name: "extras", kind: text, rows: true, column: part.ColExtras, json: true},
	{name: "raw_url", kind: text, rows: true, column: part.ColRawURL},
	{name: "batch", kind: text, rows: true, column: part.ColBatch, quoted: true},
}

// Fields are the columns that are written, in their order.
type Fields []field

// Default are the fields of rows, or of distinct URLs, for which no others were asked.
func Default(unique bool) Fields {
	names := "url_id,url,ts"
	if unique {
		names = "url_id,url,rows,first_ts,last_ts"
	}
	f, err := ParseFields(names, unique)
	if err != nil {
		panic(err) // the names are constants
	}
	return f
}

// ParseFields reads a list of names with commas between them, "" for the default.
func ParseFields(names string, unique bool) (Fields, error) {
	if names == "" {
		return Default(unique), nil
	}
	var list Fields
	for name := range strings.SplitSeq(names, ",") {
		known := func(f field) bool { return f.name == name && (f.rows && !unique || f.unique && unique) }
		i := slices.IndexFunc(fields, known)
		if i < 0 {
			what := "rows"
			if unique {
				what = "distinct URLs"
			}
			return nil, fmt.Errorf("has %q; the fields of %s are %s", name, what, strings.Join(Names(unique), ", "))
		}
		if slices.ContainsFunc(list, known) {
			return nil, fmt.Errorf("has %q twice", name)
		}
		list = append(list, fields[i])
	}
	return list, nil
}

// Names are the names of all fields of rows, or of distinct URLs.
func Names(unique bool) (names []string) {
	for _, f := range fields {
		if f.rows && !unique || f.unique && unique {
			names = append(names, f.name)
		}
	}
	return names
}

// Columns are the columns of lookup that the fields need.
func (f Fields) Columns() (c lookup.Columns) {
	for i := range f {
		if k := f[i].kind; k == size || k == text {
			c |= lookup.With(f[i].column)
		}
	}
	return c
}

// Names are the names of the fields.
func (f Fields) Names() []string {
	names := make([]string, len(f))
	for i := range f {
		names[i] = f[i].name
	}
	return names
}

// Texts are the values of row i of page as text, "" where there is none.
func (f Fields) Texts(page *lookup.URLsPage, i int) []string {
	texts := make([]string, len(f))
	for j := range f {
		b, _ := f[j].append(nil, page, i)
		texts[j] = string(b)
	}
	return texts
}

// Stream writes the rows of a list in one of the formats, except JSON.
type Stream struct {
	format  Format
	fields  Fields
	parquet *parquetFile
}

// NewStream returns a stream of rows with these fields, and what precedes the rows.
func NewStream(f Format, list Fields) (*Stream, []byte) {
	s := &Stream{format: f, fields: list}
	switch f {
	case CSV:
		return s, []byte(strings.Join(list.Names(), ",") + "\n")
	case Parquet:
		s.parquet = newParquet(list)
	}
	return s, nil
}

// Append appends what can be sent when row i of page has been added. Parquet has row groups, so
// most rows add nothing.
func (s *Stream) Append(dst []byte, page *lookup.URLsPage, i int) ([]byte, error) {
	if s.parquet == nil {
		return Append(dst, s.format, s.fields, page, i), nil
	}
	err := s.parquet.append(page, i)
	return s.parquet.take(dst), err
}

// End appends what follows the last row.
func (s *Stream) End(dst []byte) ([]byte, error) {
	if s.parquet == nil {
		return dst, nil
	}
	return s.parquet.end(dst)
}

// Append appends row i of page: with the end of its line, or in JSON as an object.
func Append(dst []byte, f Format, list Fields, page *lookup.URLsPage, i int) []byte {
	switch f {
	case Text:
		return append(append(dst, page.URL(i)...), '\n')
	case CSV:
		for j := range list {
			if j > 0 {
				dst = append(dst, ',')
			}
			start := len(dst)
			dst, _ = list[j].append(dst, page, i)
			switch list[j].kind {
			case urlID, ts, rows, firstTS, lastTS, port, size: // never need quotes
			default:
				dst = quoteCSV(dst, start)
			}
		}
		return append(dst, '\n')
	}
	dst = append(dst, '{')
	for j := range list {
		if j > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, '"'), list[j].name...), '"', ':')
		dst = list[j].appendJSON(dst, page, i)
	}
	if dst = append(dst, '}'); f == NDJSON {
		dst = append(dst, '\n')
	}
	return dst
}

// appendJSON appends the value of row i as JSON.
func (f *field) appendJSON(dst []byte, page *lookup.URLsPage, i int) []byte {
	switch f.kind {
	case theURL:
		return codec.AppendJSONString(dst, page.URL(i))
	case text:
		if v := page.Text(f.column, i); v != "" && !f.json && !f.quoted {
			return codec.AppendJSONString(dst, v)
		}
	case path:
		_, _, _, v := parts(page.URL(i))
		return codec.AppendJSONString(dst, v)
	case host:
		_, v, _, _ := parts(page.URL(i))
		return codec.AppendJSONString(dst, v)
	case domain:
		return codec.AppendJSONString(dst, page.Domain)
	}
	start := len(dst)
	if f.quoted {
		dst = append(dst, '"')
	}
	dst, ok := f.append(dst, page, i)
	if !ok {
		return append(dst[:start], "null"...)
	}
	if f.quoted {
		dst = append(dst, '"')
	}
	return dst
}

// append appends the value of row i as text. It appends nothing and returns false if there is none.
func (f *field) append(dst []byte, page *lookup.URLsPage, i int) ([]byte, bool) {
	switch f.kind {
	case urlID:
		return appendID(dst, page.ID(i)), true
	case theURL:
		return append(dst, page.URL(i)...), true
	case ts, firstTS:
		ms, ok := page.TS(i)
		return appendTime(dst, ms, ok)
	case lastTS:
		_, ok := page.TS(i)
		_, ms := page.Count(i)
		return appendTime(dst, ms, ok)
	case rows:
		n, _ := page.Count(i)
		return strconv.AppendInt(dst, n, 10), true
	case domain:
		return append(dst, page.Domain...), true
	case size:
		n, ok := page.Size(i)
		if !ok {
			return dst, false
		}
		return strconv.AppendInt(dst, n, 10), true
	case text:
		v := page.Text(f.column, i)
		return append(dst, v...), v != ""
	}
	theScheme, theHost, thePort, thePath := parts(page.URL(i))
	switch f.kind {
	case scheme:
		return append(dst, theScheme...), true
	case host:
		return append(dst, theHost...), true
	case port:
		return append(dst, thePort...), len(thePort) > 0
	}
	return append(dst, thePath...), true
}

// parts takes a canonical URL apart. Port is empty for that of the scheme.
func parts(url []byte) (scheme, host, port, path []byte) {
	scheme, host, _ = bytes.Cut(url, []byte("://"))
	if i := bytes.IndexByte(host, '/'); i >= 0 {
		host, path = host[:i], host[i:]
	}
	if i := bytes.LastIndexByte(host, ':'); i > bytes.LastIndexByte(host, ']') {
		host, port = host[:i], host[i+1:]
	}
	return scheme, host, port, path
}

// quoteCSV puts what was appended to dst since start in quotes if it needs them (RFC 4180).
func quoteCSV(dst []byte, start int) []byte {
	value := dst[start:]
	plain := len(value) == 0 || value[0] != ' '
	for _, c := range value {
		if c == ',' || c == '"' || c == '\r' || c == '\n' {
			plain = false
			break
		}
	}
	if plain {
		return dst
	}
	value = bytes.ReplaceAll(value, []byte(`"`), []byte(`""`))
	return append(append(append(dst[:start], '"'), value...), '"')
}

func appendTime(dst []byte, ms int64, ok bool) ([]byte, bool) {
	if !ok {
		return dst, false
	}
	return AppendTime(dst, ms), true
}

// appendID appends a 64-bit id as 16 hex digits.
func appendID(dst []byte, id uint64) []byte {
	const hexDigits = "0123456789abcdef"
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, hexDigits[id>>shift&15])
	}
	return dst
}

// AppendTime appends ms, milliseconds since the epoch, as 2006-01-02T15:04:05.000Z.
func AppendTime(dst []byte, ms int64) []byte {
	t := time.UnixMilli(ms).UTC()
	year, month, day := t.Date()
	if year < 0 || year > 9999 {
		return t.AppendFormat(dst, "2006-01-02T15:04:05.000Z")
	}
	hour, minute, second := t.Clock()
	two := func(v int) { dst = append(dst, byte('0'+v/10), byte('0'+v%10)) }
	two(year / 100)
	two(year % 100)
	dst = append(dst, '-')
	two(int(month))
	dst = append(dst, '-')
	two(day)
	dst = append(dst, 'T')
	two(hour)
	dst = append(dst, ':')
	two(minute)
	dst = append(dst, ':')
	two(second)
	milli := t.Nanosecond() / 1e6
	dst = append(dst, '.', byte('0'+milli/100))
	two(milli % 100)
	return append(dst, 'Z')
}
