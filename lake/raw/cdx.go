package raw

import "bytes"

// cdxNames are the columns of a CDX line by the letters of its legend
// (https://archive.org/web/researcher/cdx_legend.php), as the CDX server calls them.
var cdxNames = map[byte]string{
	'N': "urlkey", 'b': "timestamp", 'a': "original", 'm': "mimetype", 's': "statuscode",
	'k': "digest", 'c': "digest_old", 'r': "redirect", 'M': "robotflags", 'S': "length",
	'V': "offset", 'g': "filename", 'n': "document_length", 'h': "host", 'e': "ip", 'o': "port",
	'p': "path", 't': "title", 'A': "canonized_url",
}

// Legends of lines without one, by their number of fields.
var cdxLegends = map[int]string{
	9:  "N b a m s k r V g",
	10: "N b a m s k r M V g",
	11: "N b a m s k r M S V g",
}

var urlKeyName = []byte("urlkey")

// cdxParser reads CDX lines: fields between single spaces, - for an empty one. Legend lines,
// wherever they stand, are comments.
type cdxParser struct{ csvParser }

func newCDXParser(in *input, plan Plan, f fields, counts *Counts) *cdxParser {
	f.time.cdx = true
	p := &cdxParser{*newCSVParser(in, plan, f, counts)}
	p.dash = true
	return p
}

func (p *cdxParser) next(rec *Record, rej *Reject) error {
	line, err := p.in.nextLine(rej, func(line []byte) []byte { return indexLine(line, p.counts) })
	if line == nil {
		return err
	}
	p.row, p.cells = line, p.cells[:0]
	p.split()
	if len(p.cells) <= p.url {
		rej.Reason = BadCDX
		return nil
	}
	rej.Reason = p.record(rec)
	return nil
}

// cdxjParser reads CDXJ lines: SURT key, timestamp, JSON object. In extras the key is urlkey.
type cdxjParser struct {
	in     *input
	counts *Counts
	jsonFields
	lineTS bool
}

func newCDXJParser(in *input, plan Plan, f fields, counts *Counts) *cdxjParser {
	f.time.cdx = true
	return &cdxjParser{in: in, counts: counts, jsonFields: newJSONFields(plan, f),
		lineTS: plan.TS != nil && plan.TS.Number > 0}
}

func (p *cdxjParser) next(rec *Record, rej *Reject) error {
	line, err := p.in.nextLine(rej, func(line []byte) []byte { return indexLine(line, p.counts) })
	if line == nil {
		return err
	}
	key, ts, text, ok := cutCDXJ(line)
	switch {
	case !ok:
		rej.Reason = BadCDX
	case p.lineTS && !p.setTS(rec, ts):
		rej.Reason = BadTS
	default:
		rej.Reason = p.record(rec, text, key)
	}
	return nil
}

func cutCDXJ(line []byte) (key, ts, text []byte, ok bool) {
	key, rest, ok1 := bytes.Cut(line, []byte{' '})
	ts, text, ok2 := bytes.Cut(rest, []byte{' '})
	return key, ts, text, ok1 && ok2
}

// indexLine returns a line of an index, nil if it is blank or a header.
func indexLine(line []byte, counts *Counts) []byte {
	switch {
	case len(trimSpace(line)) == 0:
		counts.Blank++
		return nil
	case isCDXHeader(line), line[0] == '!':
		counts.Comments++
		return nil
	}
	return line
}

func isCDXHeader(line []byte) bool {
	return bytes.HasPrefix(line, []byte(" CDX ")) || bytes.HasPrefix(line, []byte("CDX "))
}
