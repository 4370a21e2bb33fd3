package text

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/timestamp"
)

// cdxNames are the columns of a CDX line by the letters of its legend
// (https://archive.org/web/researcher/cdx_legend.php), as the CDX server calls them.
var cdxNames = map[byte]string{
	'N': "urlkey", 'b': "timestamp", 'a': "original", 'm': "mimetype", 's': "statuscode",
	'k': "digest", 'c': "digest_old", 'r': "redirect", 'M': "robotflags", 'S': "length",
	'V': "offset", 'g': "filename", 'n': "document_length", 'h': "host", 'e': "ip", 'o': "port",
	'p': "path", 't': "title", 'A': "canonized_url",
}

// CDXColumns returns the column names of a legend, whose letters are separated by spaces. A column
// whose letter is unknown or repeated is called by the letter and its number, from 1.
func CDXColumns(legend string) []string {
	var columns []string
	for i, letter := range strings.Fields(legend) {
		name := ""
		if len(letter) == 1 {
			name = cdxNames[letter[0]]
		}
		if name == "" || slices.Contains(columns, name) {
			name = letter + strconv.Itoa(i+1)
		}
		columns = append(columns, name)
	}
	return columns
}

// CDXHeader cuts the first line of a CDX index, which names its columns. Its first byte separates
// the fields of all lines; a space there may be missing. legend has the letters of the columns
// between spaces. ok is false if line is no such header.
func CDXHeader(line []byte) (separator byte, legend string, ok bool) {
	const mark = "CDX"
	if bytes.HasPrefix(line, []byte(mark+" ")) {
		return ' ', string(TrimSpace(line[len(mark):])), true
	}
	if len(line) < len(mark)+2 || string(line[1:1+len(mark)]) != mark || line[0] != line[1+len(mark)] {
		return 0, "", false
	}
	separator, line = line[0], line[len(mark)+2:]
	if separator == ' ' {
		return ' ', string(TrimSpace(line)), true
	}
	letters := bytes.Split(trimCR(line), []byte{separator})
	for _, l := range letters {
		if len(l) != 1 || l[0]|0x20 < 'a' || l[0]|0x20 > 'z' {
			return 0, "", false
		}
	}
	return separator, string(bytes.Join(letters, []byte{' '})), true
}

// IsCDXHeader reports whether line is the header of a CDX index.
func IsCDXHeader(line []byte) bool {
	_, _, ok := CDXHeader(line)
	return ok
}

// AppendSURTURL appends the URL of a SURT key, the sort-friendly form of a URL in archive indexes:
// com,example,www:8080)/path is http://www.example.com:8080/path. Keys have no scheme unless they
// are in the form http://(com,example,)/path. What is no SURT key is appended as it is.
func AppendSURTURL(b, key []byte) []byte {
	scheme, rest := "http", key
	if i := bytes.Index(key, []byte("://(")); i > 0 {
		scheme, rest = string(key[:i]), key[i+4:]
	} else if len(key) > 0 && key[0] == '(' {
		rest = key[1:]
	}
	end := bytes.IndexByte(rest, ')')
	if end <= 0 || bytes.ContainsAny(rest[:end], "/?#@ ") {
		return append(b, key...)
	}
	host, path := rest[:end], rest[end+1:]
	var port []byte
	if i := bytes.IndexByte(host, ':'); i >= 0 {
		host, port = host[:i], host[i:]
	}
	b = append(append(b, scheme...), "://"...)
	labels := bytes.Split(bytes.TrimSuffix(host, []byte{','}), []byte{','})
	for i := len(labels) - 1; i >= 0; i-- {
		b = append(b, labels[i]...)
		if i > 0 {
			b = append(b, '.')
		}
	}
	return append(append(b, port...), path...)
}

// urlKeyName is the name in extras of the SURT key that begins a CDXJ line.
var urlKeyName = []byte("urlkey")

// cdxParser reads CDX lines: fields between single separators, - for an empty one. Legend lines are
// comments wherever they are.
type cdxParser struct {
	csvParser
	fieldsOfLine int // see raw.Plan.Fields
}

func newCDXParser(in *Input, plan raw.Plan, f Fields) *cdxParser {
	f.time.CDX = true
	p := &cdxParser{*newCSVParser(in, plan, f), plan.Fields}
	p.dash = true
	return p
}

func (p *cdxParser) Next(rec *raw.Record, rej *raw.Reject) error {
	line, err := p.in.nextLine(rej, func(line []byte) []byte { return indexLine(line, p.counts) })
	if line == nil {
		return err
	}
	p.row, p.cells = line, p.cells[:0]
	p.split()
	if len(p.cells) <= p.url || p.tooMany() {
		rej.Reason = raw.BadCDX
		return nil
	}
	rej.Reason = p.record(rec)
	return nil
}

// tooMany reports whether the line has more fields than the index: a URL with a blank, or two lines
// without a line break between them. The three that pywb appends to a resolved revisit, the length,
// offset and file of the original, are none too many.
func (p *cdxParser) tooMany() bool {
	line := TrimSpace(p.row)
	if p.fieldsOfLine == 0 || bytes.Count(line, []byte{p.comma}) < p.fieldsOfLine {
		return false
	}
	f := bytes.Split(line, []byte{p.comma})
	isNumber := func(b []byte) bool { return string(b) == "-" || timestamp.AllDigits(b) }
	n := p.fieldsOfLine
	return len(f) != n+3 || !isNumber(f[n]) || !isNumber(f[n+1])
}

// cdxjParser reads CDXJ lines: SURT key, timestamp, JSON object.
type cdxjParser struct {
	in *Input
	jsonFields
	lineTS bool // the timestamp is the line's second field, not a member of the object
}

func newCDXJParser(in *Input, plan raw.Plan, f Fields) *cdxjParser {
	f.time.CDX = true
	p := &cdxjParser{in: in, jsonFields: newJSONFields(plan, f),
		lineTS: plan.TS != nil && plan.TS.Number > 0}
	return p
}

func (p *cdxjParser) Next(rec *raw.Record, rej *raw.Reject) error {
	line, err := p.in.nextLine(rej, func(line []byte) []byte { return indexLine(line, p.Counts) })
	if line == nil {
		return err
	}
	key, ts, object, ok := CutCDXJ(line)
	switch {
	case !ok:
		rej.Reason = raw.BadCDX
	case p.lineTS && !p.SetTS(rec, ts):
		rej.Reason = raw.BadTS
	default:
		rej.Reason = p.record(rec, object, key)
	}
	return nil
}

// CutCDXJ cuts a CDXJ line at its first two spaces. It returns false if it has fewer. Some dialects
// have the type of the record before the object; it is left out.
func CutCDXJ(line []byte) (key, ts, object []byte, ok bool) {
	key, rest, ok1 := bytes.Cut(line, []byte{' '})
	ts, object, ok2 := bytes.Cut(rest, []byte{' '})
	if len(object) > 0 && object[0] != '{' {
		if _, after, ok := bytes.Cut(object, []byte{' '}); ok && len(after) > 0 && after[0] == '{' {
			object = after
		}
	}
	return key, ts, object, ok1 && ok2
}

// indexLine returns a line of an index, nil if it is blank or a header.
func indexLine(line []byte, counts *raw.Counts) []byte {
	switch {
	case len(TrimSpace(line)) == 0:
		counts.Blank++
		return nil
	case IsCDXHeader(line), line[0] == '!':
		counts.Comments++
		return nil
	}
	return line
}
