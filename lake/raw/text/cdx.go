package text

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/urlake/urlake/lake/raw"
)

// cdxNames are the columns of a CDX line by the letters of its legend
// (https://archive.org/web/researcher/cdx_legend.php), as the CDX server calls them.
var cdxNames = map[byte]string{
	'N': "urlkey", 'b': "timestamp", 'a': "original", 'm': "mimetype", 's': "statuscode",
	'k': "digest", 'c': "digest_old", 'r': "redirect", 'M': "robotflags", 'S': "length",
	'V': "offset", 'g': "filename", 'n': "document_length", 'h': "host", 'e': "ip", 'o': "port",
	'p': "path", 't': "title", 'A': "canonized_url",
}

// cdxLegends are the usual legends by their number of fields.
var cdxLegends = map[int]string{
	9:  "N b a m s k r V g",
	10: "N b a m s k r M V g",
	11: "N b a m s k r M S V g",
}

// CDXLegend returns the usual legend of CDX lines with so many fields. If there is none, ok is
// false and the legend is that of 11 fields, the most common.
func CDXLegend(fields int) (legend string, ok bool) {
	if legend, ok = cdxLegends[fields]; ok {
		return legend, true
	}
	return cdxLegends[11], false
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

// urlKeyName is the name in extras of the SURT key that begins a CDXJ line.
var urlKeyName = []byte("urlkey")

// cdxParser reads CDX lines: fields between single spaces, - for an empty one. Legend lines are
// comments wherever they are.
type cdxParser struct{ csvParser }

func newCDXParser(in *Input, plan raw.Plan, f Fields) *cdxParser {
	f.time.CDX = true
	p := &cdxParser{*newCSVParser(in, plan, f)}
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
	if len(p.cells) <= p.url {
		rej.Reason = raw.BadCDX
		return nil
	}
	rej.Reason = p.record(rec)
	return nil
}

// cdxjParser reads CDXJ lines: SURT key, timestamp, JSON object.
type cdxjParser struct {
	in *Input
	jsonFields
	lineTS bool // the timestamp is the line's second field, not a member of the object
}

func newCDXJParser(in *Input, plan raw.Plan, f Fields) *cdxjParser {
	f.time.CDX = true
	return &cdxjParser{in: in, jsonFields: newJSONFields(plan, f),
		lineTS: plan.TS != nil && plan.TS.Number > 0}
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

// CutCDXJ cuts a CDXJ line at its first two spaces. It returns false if it has fewer.
func CutCDXJ(line []byte) (key, ts, object []byte, ok bool) {
	key, rest, ok1 := bytes.Cut(line, []byte{' '})
	ts, object, ok2 := bytes.Cut(rest, []byte{' '})
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

// IsCDXHeader reports whether line is the legend of a CDX index.
func IsCDXHeader(line []byte) bool {
	return bytes.HasPrefix(line, []byte(" CDX ")) || bytes.HasPrefix(line, []byte("CDX "))
}
