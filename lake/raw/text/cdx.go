package text

import (
	"bytes"

	"github.com/urlake/urlake/lake/raw"
)

// cdxNames are the columns of a CDX line by the letters of its legend
// (https://archive.org/web/researcher/cdx_legend.php), as the CDX server calls them.
var CDXNames = map[byte]string{
	'N': "urlkey", 'b': "timestamp", 'a': "original", 'm': "mimetype", 's': "statuscode",
	'k': "digest", 'c': "digest_old", 'r': "redirect", 'M': "robotflags", 'S': "length",
	'V': "offset", 'g': "filename", 'n': "document_length", 'h': "host", 'e': "ip", 'o': "port",
	'p': "path", 't': "title", 'A': "canonized_url",
}

// Legends of lines without one, by their number of fields.
var CDXLegends = map[int]string{
	9:  "N b a m s k r V g",
	10: "N b a m s k r M V g",
	11: "N b a m s k r M S V g",
}

var urlKeyName = []byte("urlkey")

// cdxParser reads CDX lines: fields between single spaces, - for an empty one. Legend lines,
// wherever they stand, are comments.
type cdxParser struct{ csvParser }

func NewCDXParser(in *Input, plan raw.Plan, f Fields, counts *raw.Counts) *cdxParser {
	f.time.Cdx = true
	p := &cdxParser{*NewCSVParser(in, plan, f, counts)}
	p.dash = true
	return p
}

func (p *cdxParser) Next(rec *raw.Record, rej *raw.Reject) error {
	line, err := p.in.nextLine(rej, func(line []byte) []byte { return indexLine(line, p.counts) })
	if line == nil {
		return err
	}
	p.Row, p.Cells = line, p.Cells[:0]
	p.split()
	if len(p.Cells) <= p.url {
		rej.Reason = raw.BadCDX
		return nil
	}
	rej.Reason = p.record(rec)
	return nil
}

// cdxjParser reads CDXJ lines: SURT key, timestamp, JSON object. In extras the key is urlkey.
type cdxjParser struct {
	in     *Input
	counts *raw.Counts
	jsonFields
	lineTS bool
}

func NewCDXJParser(in *Input, plan raw.Plan, f Fields, counts *raw.Counts) *cdxjParser {
	f.time.Cdx = true
	return &cdxjParser{in: in, counts: counts, jsonFields: newJSONFields(plan, f),
		lineTS: plan.TS != nil && plan.TS.Number > 0}
}

func (p *cdxjParser) Next(rec *raw.Record, rej *raw.Reject) error {
	line, err := p.in.nextLine(rej, func(line []byte) []byte { return indexLine(line, p.counts) })
	if line == nil {
		return err
	}
	key, ts, text, ok := CutCDXJ(line)
	switch {
	case !ok:
		rej.Reason = raw.BadCDX
	case p.lineTS && !p.SetTS(rec, ts):
		rej.Reason = raw.BadTS
	default:
		rej.Reason = p.record(rec, text, key)
	}
	return nil
}

func CutCDXJ(line []byte) (key, ts, text []byte, ok bool) {
	key, rest, ok1 := bytes.Cut(line, []byte{' '})
	ts, text, ok2 := bytes.Cut(rest, []byte{' '})
	return key, ts, text, ok1 && ok2
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

func IsCDXHeader(line []byte) bool {
	return bytes.HasPrefix(line, []byte(" CDX ")) || bytes.HasPrefix(line, []byte("CDX "))
}
