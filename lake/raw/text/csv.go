package text

import (
	"bytes"
	"io"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/raw"
)

// csvParser reads RFC 4180 records, with what the wild adds: any line end, rows of unequal
// length, quotes inside unquoted fields (kept), spaces behind a closing quote (dropped).
//
// A quoted field that does not end within the longest record, or at all, or that goes on
// after its closing quote, rejects the record; reading goes on at the line after the one
// where that field began. So a stray quote costs a record and never the rest of the object,
// and since the next line with such a quote ends every search for the end of a field, no
// input makes this quadratic. In TSV a line break inside quotes is not a thing
// (text/tab-separated-values has no quoting); what only looks quoted there is taken literally.
type csvParser struct {
	in     *Input
	fields Fields
	counts *raw.Counts

	comma  byte
	single bool // one column: no separator
	tsv    bool
	dash   bool // a lone - is an empty cell, as in CDX
	skip   int  // rows still to skip: titles and header

	// Columns from 0; -1: none. width is how many fields of a row are looked at.
	url, ts, size, Width int
	extras               []extraColumn

	limit int  // scanRow looks no further than this, -1: anywhere
	ended bool // scanRow came to where the input ends

	Row     []byte // the record, valid until the next fill
	Cells   []cell
	Scratch []byte
	out     []byte
}

// extraColumn is a column with its name ready as a member of a JSON object.
type extraColumn struct {
	index int
	key   []byte // `"name":`
}

// cell is a field's place in the row, without its quotes; escaped: "" stands for " in it.
type cell struct {
	start, end int
	escaped    bool
}

func NewCSVParser(in *Input, plan raw.Plan, f Fields, counts *raw.Counts) *csvParser {
	p := &csvParser{in: in, fields: f, counts: counts, tsv: plan.Format == raw.TSV, skip: plan.HeaderRow}
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
	p.Width = max(p.url, p.ts, p.size) + 1
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
		p.extras = append(p.extras, extraColumn{c.Number - 1, append(codec.AppendJSONString(nil, c.Name), ':')})
		p.Width = max(p.Width, c.Number)
	}
	return p
}

func (p *csvParser) Next(rec *raw.Record, rej *raw.Reject) error {
	for {
		reason, err := p.Read()
		if err != nil {
			return err
		}
		switch {
		case reason == "" && p.Blank():
			p.counts.Blank++
		case p.skip > 0:
			p.skip--
		case reason == "" && p.single && p.Row[0] == '#':
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

// blank reports whether no cell of the row holds anything.
func (p *csvParser) Blank() bool {
	for _, c := range p.Row {
		if !IsSpace(c) && c != '"' && (p.single || c != p.comma) {
			return false
		}
	}
	return true
}

// record makes a record of the row and returns the reason where it cannot.
func (p *csvParser) record(rec *raw.Record) string {
	p.Scratch = p.Scratch[:0]
	rec.URL = TrimSpace(p.Cell(p.url))
	if len(rec.URL) == 0 {
		return raw.NoURL
	}
	if p.ts >= 0 && !p.fields.SetTS(rec, p.Cell(p.ts)) {
		return raw.BadTS
	}
	if p.size >= 0 && !SetSize(rec, p.Cell(p.size)) {
		return raw.BadSize
	}
	if len(p.extras) == 0 {
		return ""
	}
	p.out = append(p.out[:0], '{')
	for _, x := range p.extras {
		v := p.Cell(x.index)
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

// cell returns field i, nil where the row is too short.
func (p *csvParser) Cell(i int) []byte {
	if i < 0 || i >= len(p.Cells) {
		return nil
	}
	c := p.Cells[i]
	b := p.Row[c.start:c.end]
	if p.dash && len(b) == 1 && b[0] == '-' {
		return nil
	}
	if !c.escaped {
		return b
	}
	from := len(p.Scratch)
	for {
		j := bytes.IndexByte(b, '"')
		if j < 0 {
			break
		}
		p.Scratch = append(p.Scratch, b[:j+1]...)
		b = b[j+2:]
	}
	p.Scratch = append(p.Scratch, b...)
	return p.Scratch[from:len(p.Scratch):len(p.Scratch)]
}

// read takes the next row into row and cells, or returns why it is rejected.
func (p *csvParser) Read() (reason string, err error) {
	in := p.in
	n, long, err := in.peekLine()
	if err != nil {
		return "", err
	}
	in.At = in.Here()
	p.Cells = p.Cells[:0]
	if long {
		in.skipLine()
		return raw.TooLong, nil
	}
	line := in.Buf[in.R : in.R+n]
	if bytes.IndexByte(line, '"') >= 0 {
		return p.readQuoted(n)
	}
	in.passLine(n)
	p.Row = trimCR(line)
	if len(p.Row) > in.Max {
		return raw.TooLong, nil
	}
	p.split()
	return "", nil
}

// split cuts a row without quotes, as far as anything is wanted of it.
func (p *csvParser) split() {
	if p.single {
		p.Cells = append(p.Cells, cell{0, len(p.Row), false})
		return
	}
	start := 0
	for len(p.Cells) < p.Width {
		i := bytes.IndexByte(p.Row[start:], p.comma)
		if i < 0 {
			p.Cells = append(p.Cells, cell{start, len(p.Row), false})
			return
		}
		p.Cells = append(p.Cells, cell{start, start + i, false})
		start += i + 1
	}
}

// readQuoted takes a row that has quotes and may go on over lines; its first n bytes are the
// first line. Positions count from in.r, which stays until the row is complete.
func (p *csvParser) readQuoted(n int) (reason string, err error) {
	in := p.in
	p.limit, p.ended = -1, false
	if p.tsv {
		p.limit = n
	}
	reason, bad, end, next := p.scanRow()
	switch {
	case p.ended && in.Err != io.EOF:
		return "", in.Err
	case reason != "":
		in.Line += int64(bytes.Count(in.Buf[in.R:in.R+bad], []byte{in.Eol}))
		in.R += bad
		in.skipLine()
	default:
		p.Row = in.Buf[in.R : in.R+end]
		in.Line += int64(bytes.Count(p.Row, []byte{in.Eol}))
		in.passLine(next)
		if end > in.Max {
			reason = raw.TooLong
		}
	}
	return reason, nil
}

// scanRow finds the row's cells. The row is [0, end) and its line end stands at next; with a
// reason, bad is the field after whose first line reading goes on.
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
			if next > p.in.Max+1 {
				return raw.TooLong, pos, 0, 0
			}
			end = next
			p.Cells = append(p.Cells, cell{pos, end, false})
		}
		if c, ok := p.at(next); ok && c == p.comma && !p.single {
			continue
		}
		// The CR of the line end is no part of the last cell.
		last := &p.Cells[len(p.Cells)-1]
		if !quoted && last.end > last.start && p.in.Buf[p.in.R+last.end-1] == '\r' {
			last.end--
			end--
		}
		return "", 0, end, next
	}
}

// at returns the byte at pos; false at the end of what may be looked at.
func (p *csvParser) at(pos int) (byte, bool) {
	in := p.in
	if p.limit >= 0 && pos >= p.limit {
		return 0, false
	}
	for pos >= in.W-in.R {
		if !in.Fill() {
			p.ended = true
			return 0, false
		}
	}
	return in.Buf[in.R+pos], true
}

// unquoted returns where the field that begins at pos ends, or a position over in.max+1.
func (p *csvParser) unquoted(pos int) int {
	in := p.in
	for ; pos <= in.Max+1; pos++ {
		c, ok := p.at(pos)
		if !ok || c == in.Eol || c == p.comma && !p.single {
			break
		}
	}
	return pos
}

// quoted appends the cell whose opening quote is at pos. The cell and its quotes are [pos, end);
// next is the separator or line end behind it. Nothing is appended with a reason.
func (p *csvParser) quoted(pos int) (end, next int, reason string) {
	in := p.in
	escaped := false
	i := pos + 1
	for {
		stop := in.W - in.R
		if p.limit >= 0 {
			stop = p.limit
		}
		if i < stop {
			if j := bytes.IndexByte(in.Buf[in.R+i:in.R+stop], '"'); j >= 0 {
				i += j
				if i > in.Max {
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
		if i > in.Max {
			return 0, 0, raw.TooLong
		}
		if _, ok := p.at(i); !ok {
			return 0, 0, raw.BadCSV
		}
	}
	end = i + 1
	next = end
	c, ok := p.at(next)
	for ok && c == ' ' && next < in.Max {
		next++
		c, ok = p.at(next)
	}
	if ok && c == '\r' && in.Eol != '\r' {
		next++
		if c, ok = p.at(next); ok && c != in.Eol {
			return 0, 0, raw.BadCSV
		}
	}
	if ok && c != in.Eol && (c != p.comma || p.single) {
		return 0, 0, raw.BadCSV
	}
	p.Cells = append(p.Cells, cell{pos + 1, end - 1, escaped})
	return end, next, ""
}
