package text

import (
	"bytes"
	"io"
	"math"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/raw"
)

// csvParser reads RFC 4180 records and what is found beyond it: any line end, rows of unequal
// length, quotes inside unquoted fields (kept), spaces behind a closing quote (dropped).
//
// A quoted field rejects its record if it does not end within the longest record, or at all, or if
// it goes on after its closing quote. Reading continues at the line after the one where that field
// began. So a stray quote costs one record and not the rest of the object. The next line with such
// a quote ends every search for the end of a field, so no input takes quadratic time. In TSV a
// quoted field cannot contain a line break (text/tab-separated-values has no quoting); a field that
// only looks quoted is taken literally.
type csvParser struct {
	in     *Input
	fields Fields
	counts *raw.Counts

	comma  byte
	single bool // one column: no separator
	tsv    bool
	dash   bool // a lone - is an empty cell, as in CDX
	skip   int  // rows still to skip: titles and header
	surt   bool // the URL column holds SURT keys

	// Columns from 0; -1: none. Fields of a row beyond width are not cut.
	url, ts, size, width int
	extras               []extraColumn

	limit int  // scanRow looks at no offset from here on; -1: no limit
	ended bool // scanRow reached the end of the input

	row     []byte // the record, valid until the next fill
	cells   []cell
	scratch []byte // unescaped cells
	urlBuf  []byte // the URL of a SURT key
	out     []byte // extras
}

// extraColumn is a column with its name ready as a member of a JSON object.
type extraColumn struct {
	index   int
	key     []byte // `"name":`
	capture captureField
}

// cell is the range of a field in the row, without its quotes. If it is escaped, "" in it stands
// for one ".
type cell struct {
	start, end int
	escaped    bool
}

func newCSVParser(in *Input, plan raw.Plan, f Fields) *csvParser {
	p := &csvParser{in: in, fields: f, counts: f.Counts, tsv: plan.Format == raw.TSV, skip: plan.HeaderRow,
		surt: plan.SURT}
	if plan.Separator == "" {
		p.single = true
	} else {
		p.comma = plan.Separator[0]
	}
	p.url, p.ts, p.size = plan.URL.Number-1, -1, -1
	if plan.TS != nil {
		p.ts = plan.TS.Number - 1
	}
	if plan.Size != nil {
		p.size = plan.Size.Number - 1
	}
	p.width = max(p.url, p.ts, p.size) + 1
	extras := plan.Extras
	if plan.AllExtras {
		extras = nil
		for i, name := range plan.Columns {
			if i != p.url && i != p.ts && i != p.size {
				extras = append(extras, raw.Column{Name: name, Number: i + 1})
			}
		}
	}
	for _, c := range SortColumns(extras) {
		key := append(codec.AppendJSONString(nil, c.Name), ':')
		x := extraColumn{index: c.Number - 1, key: key}
		if c.Capture {
			x.capture = captureFieldOf(c.Name)
		}
		p.extras = append(p.extras, x)
		p.width = max(p.width, c.Number)
	}
	return p
}

func (p *csvParser) Next(rec *raw.Record, rej *raw.Reject) error {
	for {
		reason, err := p.read()
		if err != nil {
			return err
		}
		switch {
		case reason == "" && p.blank():
			p.counts.Blank++
		case p.skip > 0:
			p.skip--
		case reason == "" && p.single && p.row[0] == '#':
			p.counts.Comments++
		case reason == "":
			rej.Reason = p.record(rec)
			return nil
		default:
			rej.Reason = reason
			return nil
		}
	}
}

// blank reports whether all cells of the row are empty.
func (p *csvParser) blank() bool {
	for _, c := range p.row {
		if !IsSpace(c) && c != '"' && (p.single || c != p.comma) {
			return false
		}
	}
	return true
}

// record makes a record of the row, or returns the reason of the reject.
func (p *csvParser) record(rec *raw.Record) string {
	p.scratch = p.scratch[:0]
	rec.URL = TrimSpace(p.cell(p.url))
	if len(rec.URL) == 0 {
		return raw.NoURL
	}
	if p.surt {
		p.urlBuf = AppendSURTURL(p.urlBuf[:0], rec.URL)
		rec.URL = p.urlBuf
	}
	if p.ts >= 0 && !p.fields.SetTS(rec, p.cell(p.ts)) {
		return raw.BadTS
	}
	if p.size >= 0 && !SetSize(rec, p.cell(p.size)) {
		return raw.BadSize
	}
	if len(p.extras) == 0 {
		return ""
	}
	p.out = append(p.out[:0], '{')
	for _, x := range p.extras {
		v := p.cell(x.index)
		if x.capture != noCapture {
			v = x.capture.value(v)
		}
		if len(v) == 0 {
			continue
		}
		if len(p.out) > 1 {
			p.out = append(p.out, ',')
		}
		p.out = append(p.out, x.key...)
		p.out = codec.AppendJSONString(p.out, v)
	}
	if len(p.out) > 1 {
		p.out = append(p.out, '}')
		rec.Extras = p.out
	}
	return ""
}

// cell returns field i, nil if the row is too short. It is in row or in scratch.
func (p *csvParser) cell(i int) []byte {
	if i < 0 || i >= len(p.cells) {
		return nil
	}
	c := p.cells[i]
	b := p.row[c.start:c.end]
	if p.dash && len(b) == 1 && b[0] == '-' {
		return nil
	}
	if !c.escaped {
		return b
	}
	from := len(p.scratch)
	for {
		j := bytes.IndexByte(b, '"')
		if j < 0 {
			break
		}
		p.scratch = append(p.scratch, b[:j+1]...)
		b = b[j+2:]
	}
	p.scratch = append(p.scratch, b...)
	return p.scratch[from:len(p.scratch):len(p.scratch)]
}

// read reads the next row into row and cells, or returns the reason of its reject.
func (p *csvParser) read() (reason string, err error) {
	in := p.in
	n, long, err := in.peekLine()
	if err != nil {
		return "", err
	}
	in.record = in.Position()
	p.cells = p.cells[:0]
	if long {
		in.skipLine()
		return raw.TooLong, nil
	}
	line := in.buf[in.r : in.r+n]
	if bytes.IndexByte(line, '"') >= 0 {
		return p.readQuoted(n)
	}
	in.consumeLine(n)
	p.row = trimCR(line)
	if len(p.row) > in.max {
		return raw.TooLong, nil
	}
	p.split()
	return "", nil
}

// split cuts a row without quotes into its first width cells.
func (p *csvParser) split() {
	if p.single {
		p.cells = append(p.cells, cell{0, len(p.row), false})
		return
	}
	start := 0
	for len(p.cells) < p.width {
		i := bytes.IndexByte(p.row[start:], p.comma)
		if i < 0 {
			p.cells = append(p.cells, cell{start, len(p.row), false})
			return
		}
		p.cells = append(p.cells, cell{start, start + i, false})
		start += i + 1
	}
}

// readQuoted reads a row that has quotes and may have several lines; its first n bytes are the
// first line. Offsets count from in.r, which does not change until the row is complete.
func (p *csvParser) readQuoted(n int) (reason string, err error) {
	in := p.in
	p.limit, p.ended = -1, false
	if p.tsv {
		p.limit = n
	}
	reason, bad, end, next := p.scanRow()
	switch {
	case p.ended && in.err != io.EOF:
		return "", in.err
	case reason != "":
		in.line += int64(bytes.Count(in.buf[in.r:in.r+bad], []byte{in.lineEnd}))
		in.r += bad
		in.skipLine()
	default:
		p.row = in.buf[in.r : in.r+end]
		in.line += int64(bytes.Count(p.row, []byte{in.lineEnd}))
		in.consumeLine(next)
		if end > in.max {
			reason = raw.TooLong
		}
	}
	return reason, nil
}

// scanRow finds the cells of the row, which is [0, end); its line end is at next. If it returns a
// reason, bad is the offset of the field after whose first line reading goes on.
func (p *csvParser) scanRow() (reason string, bad, end, next int) {
	for pos := 0; ; pos = next + 1 {
		c, _ := p.at(pos)
		quoted := c == '"'
		if quoted {
			end, next, reason = p.quoted(pos)
			if reason != "" && !p.tsv {
				return reason, pos, 0, 0
			}
			quoted = reason == ""
		}
		if !quoted {
			next = p.unquoted(pos)
			if next > p.in.max+1 {
				return raw.TooLong, pos, 0, 0
			}
			end = next
			p.cells = append(p.cells, cell{pos, end, false})
		}
		if c, ok := p.at(next); ok && c == p.comma && !p.single {
			continue
		}
		// The CR of the line end is not part of the last cell.
		last := &p.cells[len(p.cells)-1]
		if !quoted && last.end > last.start && p.in.buf[p.in.r+last.end-1] == '\r' {
			last.end--
			end--
		}
		return "", 0, end, next
	}
}

// at returns the byte at pos, false at the limit or the end of the input.
func (p *csvParser) at(pos int) (byte, bool) {
	in := p.in
	if p.limit >= 0 && pos >= p.limit {
		return 0, false
	}
	for pos >= in.w-in.r {
		if !in.fill() {
			p.ended = true
			return 0, false
		}
	}
	return in.buf[in.r+pos], true
}

// unquoted returns the end of the field that begins at pos, or an offset above in.max+1.
func (p *csvParser) unquoted(pos int) int {
	in := p.in
	for ; pos <= in.max+1; pos++ {
		c, ok := p.at(pos)
		if !ok || c == in.lineEnd || c == p.comma && !p.single {
			break
		}
	}
	return pos
}

// quoted appends the cell whose opening quote is at pos. The cell and its quotes are [pos, end);
// the separator or line end behind it is at next. If it returns a reason, it appends nothing.
func (p *csvParser) quoted(pos int) (end, next int, reason string) {
	in := p.in
	escaped := false
	i := pos + 1
	for {
		stop := in.w - in.r
		if p.limit >= 0 {
			stop = p.limit
		}
		if i < stop {
			if j := bytes.IndexByte(in.buf[in.r+i:in.r+stop], '"'); j >= 0 {
				i += j
				if i > in.max {
					return 0, 0, raw.TooLong
				}
				if c, ok := p.at(i + 1); ok && c == '"' {
					escaped = true
					i += 2
					continue
				}
				break
			}
			i = stop
		}
		if i > in.max {
			return 0, 0, raw.TooLong
		}
		if _, ok := p.at(i); !ok {
			return 0, 0, raw.BadCSV
		}
	}
	end = i + 1
	next = end
	c, ok := p.at(next)
	for ok && c == ' ' && next < in.max {
		next++
		c, ok = p.at(next)
	}
	if ok && c == '\r' && in.lineEnd != '\r' {
		next++
		if c, ok = p.at(next); ok && c != in.lineEnd {
			return 0, 0, raw.BadCSV
		}
	}
	if ok && c != in.lineEnd && (c != p.comma || p.single) {
		return 0, 0, raw.BadCSV
	}
	p.cells = append(p.cells, cell{pos + 1, end - 1, escaped})
	return end, next, ""
}

// Rows reads the rows of a CSV or TSV object without a plan.
type Rows struct {
	parser *csvParser
	cells  [][]byte
}

// NewRows returns the rows of an object. format is raw.CSV or raw.TSV. separator is what
// [raw.Plan.Separator] is.
func NewRows(in *Input, format, separator string) *Rows {
	p := newCSVParser(in, raw.Plan{Format: format, Separator: separator}, Fields{})
	p.width = math.MaxInt
	return &Rows{parser: p}
}

// Next returns the cells of the next row that is not blank, without their quotes. They are valid
// until the next call. If the row cannot be read, Next returns the reason of its reject and no
// cells. At the end err is io.EOF; every error is final.
func (r *Rows) Next() (cells [][]byte, reason string, err error) {
	p := r.parser
	for {
		reason, err := p.read()
		if reason != "" || err != nil {
			return nil, reason, err
		}
		if !p.blank() {
			break
		}
	}
	p.scratch, r.cells = p.scratch[:0], r.cells[:0]
	for i := range p.cells {
		r.cells = append(r.cells, p.cell(i))
	}
	return r.cells, "", nil
}
