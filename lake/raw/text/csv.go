package text

import (
	"bytes"
	"io"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/urlake/urlake/lake/raw"
)

// csvParser reads RFC 4180 records and what is found beyond it: any line end, rows of unequal
// length, quotes inside unquoted fields (kept), spaces before an opening and behind a closing quote
// (dropped).
//
// A quoted field rejects its record if it does not end within the longest record, or at all, or if
// it goes on after its closing quote. Reading continues at the line after the one where that field
// began. So a stray quote costs one record and not the rest of the object. The next line with such
// a quote ends every search for the end of a field, so no input takes quadratic time. In TSV a
// quoted field cannot contain a line break (text/tab-separated-values has no quoting); a field that
// only looks quoted is taken literally.
//
// Two rows without a line break between them are two records. The field in which they meet is of
// neither, and a row that has its URL there is rejected. A row with more cells than Plan.MaxCells
// is rejected, too: one of its fields has a separator, and may be the URL. A quoted field that
// holds whole rows does not end where its row has another width than the table, or where a quoted
// field begins.
//
// With Plan.Backslash, a backslash escapes quotes, backslashes, separators and line breaks, as
// Spark, MySQL and Hive write them; in TSV it also begins \t, \n and the like, as PostgreSQL and
// ClickHouse write them. A lone \N is an empty field. Any other backslash stands for itself, and so
// does one at the end of a line whose row would be too long with the next line, or too wide.
type csvParser struct {
	in     *Input
	fields Fields

	comma  byte
	single bool // one column: no separator
	tsv    bool
	dash   bool // a lone - is an empty cell, as in CDX
	skip   int  // rows still to skip: titles and header
	surt   bool // the URL column holds SURT keys
	escape bool // see raw.Plan.Backslash

	// Columns from 0; -1: none. Fields of a row beyond width are not cut.
	url, ts, size, width int
	extras               Extras
	columns              int  // of the table, 0 if unknown
	longRow              int  // see raw.Plan.LongRow
	maxCells             int  // see raw.Plan.MaxCells
	blanks               bool // runs of blanks separate the fields
	scanned              bool // all cells of the row are cut
	two                  bool // the row is the first of two without a line break between them

	unquotedTo int64 // between the row and this offset of the object is no quote

	joins  bool  // a backslash escapes a line break outside of quotes
	joined bool  // the row has such a line break
	alone  int64 // before this offset of the object none does

	window []byte // what is buffered of the row, and behind it unless limit is set
	limit  bool   // scanRow looks at no byte behind the window
	ended  bool   // scanRow reached the end of the input

	row     []byte // the record, valid until the next fill
	cells   []cell
	scratch []byte // unescaped cells
	urlBuf  []byte // the URL of a SURT key
}

// cell is the range of a field in the row, without its quotes.
type cell struct {
	start, end int
	escapes    escapes
	quoted     bool
}

// escapes says how a field is escaped.
type escapes uint8

const (
	noEscapes escapes = iota
	doubled           // "" for one "
	backslash         // backslashes, and in quotes "" for one "
)

func newCSVParser(in *Input, plan raw.Plan, f Fields) *csvParser {
	p := &csvParser{in: in, fields: f, tsv: plan.Format == raw.TSV, skip: plan.HeaderRow,
		surt: plan.SURT, escape: plan.Backslash, columns: len(plan.Columns),
		longRow: plan.LongRow, maxCells: plan.MaxCells}
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
				extras = append(extras, raw.Column{Name: name, Number: i + 1,
					Capture: plan.Format == raw.CDX && slices.Contains(raw.CaptureFields, name)})
			}
		}
	}
	p.extras = NewExtras(extras)
	for _, x := range p.extras.columns {
		p.width = max(p.width, x.index+1)
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
			p.fields.Counts.Blank++
		case p.skip > 0:
			p.skip--
		case reason == "" && p.single && p.row[0] == '#':
			p.fields.Counts.Comments++
		case reason == "":
			rej.Reason = p.rowRecord(rec)
			return nil
		default:
			rej.Reason = reason
			return nil
		}
	}
}

// rowRecord is record for a row that may be two.
func (p *csvParser) rowRecord(rec *raw.Record) string {
	if len(p.row) > p.longRow && p.columns > 1 && !p.two {
		p.cutTwo()
	}
	if p.maxCells > 0 && p.tooManyCells() {
		return raw.BadCSV
	}
	reason := p.record(rec)
	if reason == raw.NoURL && (p.two || p.in.second) {
		reason = raw.BadCSV // the URL is where the rows meet
	}
	return reason
}

// tooManyCells reports whether the row has more cells than maxCells, without empty ones at its end.
func (p *csvParser) tooManyCells() bool {
	n := len(p.cells)
	if !p.scanned {
		rest := p.row[p.cells[n-1].end:]
		if len(rest) <= p.maxCells-n {
			return false
		}
		if n += bytes.Count(rest, []byte{p.comma}); n > p.maxCells {
			empty := rest[len(bytes.TrimRight(rest, string(p.comma)+" ")):]
			n -= bytes.Count(empty, []byte{p.comma})
		}
		return n > p.maxCells
	}
	for n > p.maxCells && len(TrimSpace(p.cell(n-1))) == 0 {
		n--
	}
	return n > p.maxCells
}

// cutTwo sets two and leaves the row its own cells if it is two without a line break between them:
// it has as many cells as two rows, or one less, and a URL where each has it. The second one is
// read next. The cell in which they meet is then empty in both.
func (p *csvParser) cutTwo() {
	w := p.columns
	if !p.scanned {
		width, row := p.width, p.row
		p.width, p.cells = 2*w+1, p.cells[:0]
		if p.blanks {
			p.splitSpaced(row)
		} else {
			p.split()
		}
		p.width, p.scanned = width, true
	}
	n := len(p.cells)
	if n != 2*w && n != 2*w-1 || p.url < 0 {
		return
	}
	p.scratch = p.scratch[:0]
	url, second := p.cell(p.url), p.cell(n-w+p.url)
	if !alike(url, second) {
		return
	}
	meeting := p.cells[w-1]
	if n < 2*w && (meeting.quoted && meeting.escapes == noEscapes || p.url == 0 && beginsWithURL(second)) {
		return // the cell has nothing of another row
	}
	rest := p.cells[w].start
	if p.cells[w].quoted {
		rest--
	}
	if n < 2*w {
		p.cells[w-1].end = meeting.start
		rest-- // the separator behind the cell
	}
	p.two, p.cells = true, p.cells[:w]
	p.in.unread(p.row[rest:])
}

// alike reports whether both are URLs with a scheme, or both look like hosts.
func alike(a, b []byte) bool {
	mark := []byte("://")
	if bytes.Contains(a, mark) {
		return bytes.Contains(b, mark)
	}
	return looksHost(a) && looksHost(b)
}

// looksHost reports whether text may be a host, or begin with one: there is a letter behind a dot.
func looksHost(text []byte) bool {
	if i := bytes.IndexAny(text, "/:?#"); i >= 0 {
		text = text[:i]
	}
	dot := bytes.LastIndexByte(text, '.')
	return dot > 0 && bytes.IndexByte(text, ' ') < 0 && bytes.ContainsFunc(text[dot:], unicode.IsLetter)
}

// beginsWithURL reports whether text begins with a scheme, without a word before it.
func beginsWithURL(text []byte) bool {
	return BeginsWithScheme(text) && gluedScheme(text[:bytes.IndexByte(text, ':')]) == 0
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
	for i := range p.extras.columns {
		p.extras.add(&p.extras.columns[i], p.cell(p.extras.columns[i].index))
	}
	rec.Extras = p.extras.take()
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
	if c.escapes == noEscapes {
		return b
	}
	from := len(p.scratch)
	if c.escapes == backslash {
		if !c.quoted && string(b) == `\N` {
			return nil
		}
		p.scratch = p.appendUnescaped(p.scratch, b, c.quoted)
		return p.scratch[from:len(p.scratch):len(p.scratch)]
	}
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

// appendUnescaped appends the text of a field with backslashes. In quotes, "" stands for one ".
func (p *csvParser) appendUnescaped(dst, b []byte, quoted bool) []byte {
	for i := 0; i < len(b); i++ {
		c := b[i]
		if i+1 < len(b) && c == '"' && quoted && b[i+1] == '"' {
			i++
		} else if i+1 < len(b) && c == '\\' {
			next := b[i+1]
			letter := strings.IndexByte("ntrbfv0", next)
			switch {
			case p.tsv && letter >= 0:
				c = "\n\t\r\b\f\v\x00"[letter]
				i++
			case next == '"' || next == '\'' || next == '\\' || next == p.comma || next == '\n' || next == '\r':
				c = next
				i++
			}
		}
		dst = append(dst, c)
	}
	return dst
}

// read reads the next row into row and cells, or returns the reason of its reject.
func (p *csvParser) read() (reason string, err error) {
	in := p.in
	n, long, err := in.peekLine()
	if err != nil {
		return "", err
	}
	in.record = in.Position()
	p.cells, p.scanned, p.two = p.cells[:0], false, false
	if long {
		in.skipLine()
		return raw.TooLong, nil
	}
	line := in.buf[in.r : in.r+n]
	if p.hasQuote(line) || p.escape && bytes.IndexByte(line, '\\') >= 0 {
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

// hasQuote reports whether there is a quote in line, which is the next one. One search in all that
// is buffered serves all lines before the next quote.
func (p *csvParser) hasQuote(line []byte) bool {
	in := p.in
	if in.Offset()+int64(len(line)) <= p.unquotedTo {
		return false
	}
	i := bytes.IndexByte(in.Buffered(), '"')
	if i < 0 {
		i = in.w - in.r
	}
	p.unquotedTo = in.Offset() + int64(i)
	return i < len(line)
}

// split cuts a row without quotes into its first width cells.
func (p *csvParser) split() {
	if p.single {
		p.cells = append(p.cells, cell{end: len(p.row)})
		return
	}
	start := 0
	for len(p.cells) < p.width {
		i := bytes.IndexByte(p.row[start:], p.comma)
		if i < 0 {
			p.cells = append(p.cells, cell{start: start, end: len(p.row)})
			return
		}
		p.cells = append(p.cells, cell{start: start, end: start + i})
		start += i + 1
	}
}

// readQuoted reads a row that has quotes or backslashes and may have several lines; its first n
// bytes are the first line. Offsets count from in.r, which does not change until the row is
// complete.
func (p *csvParser) readQuoted(n int) (reason string, err error) {
	in := p.in
	p.scanned = true
	p.joins = in.Offset() >= p.alone
	reason, bad, end, next := p.scanLines(n)
	if p.joined && (reason == raw.TooLong || p.columns > 0 && len(p.cells) > p.columns) {
		if reason == raw.TooLong {
			end = in.max
		}
		p.alone = in.Offset() + int64(end)
		p.joins, p.cells = false, p.cells[:0]
		reason, bad, end, next = p.scanLines(n)
	}
	if reason == raw.BadCSV && !p.tsv && !p.escape && p.columns > 1 {
		// One row may have backslashes where none before had.
		cells := len(p.cells)
		p.escape = true
		again, _, e, n := p.scanRow()
		p.escape = false
		if p.cells = append(p.cells[:0], p.cells[cells:]...); again == "" && len(p.cells) == p.columns {
			reason, end, next = "", e, n
		}
	}
	if reason == "" && end > n && !p.tsv && p.columns > 1 {
		if bad = p.swallows(n, end); bad > 0 {
			reason = raw.BadCSV
		}
	}
	switch {
	case p.ended && in.err != io.EOF:
		return "", in.err
	case reason == raw.BadCSV && bad < n && p.scanTwo(n):
		reason = ""
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

// scanLines is scanRow for a row whose first line has n bytes.
func (p *csvParser) scanLines(n int) (reason string, bad, end, next int) {
	p.ended, p.joined, p.limit, p.window = false, false, false, p.in.Buffered()
	if p.tsv {
		end := p.continued(n)
		p.window, p.limit, p.joined = p.window[:end], true, end > n
	}
	return p.scanRow()
}

// continued returns the length of the row whose first line has n bytes, if a backslash escapes the
// line break.
func (p *csvParser) continued(n int) int {
	in := p.in
	for p.escape && p.joins && n <= in.max {
		line := p.window[:n]
		if (len(line)-len(bytes.TrimRight(line, `\`)))%2 == 0 {
			break
		}
		_, ok := p.at(n)
		for n++; ok && n <= in.max+1; n++ {
			var c byte
			if c, ok = p.at(n); c == in.lineEnd {
				break
			}
		}
		n = min(n, len(p.window))
		if !ok {
			break
		}
	}
	return n
}

// scanTwo consumes the line of n bytes, in which a quoted field does not end, if it is two rows.
func (p *csvParser) scanTwo(n int) bool {
	in := p.in
	if p.columns < 2 {
		return false
	}
	tsv := p.tsv
	p.tsv, p.cells, p.limit, p.window = true, p.cells[:0], true, in.Buffered()[:n]
	_, _, end, _ := p.scanRow()
	p.tsv = tsv
	p.row = in.buf[in.r : in.r+end]
	p.cutTwo()
	return p.two
}

// swallows returns the offset of a quoted field of the row [0, end) that only seems to end, 0 if
// there is none. The row's first line has n bytes. The second line of such a field is a row of the
// table. In addition, the row has more or fewer cells than the table has columns, or the field ends
// with a separator or a line break, as text before a quoted field does.
func (p *csvParser) swallows(n, end int) int {
	in := p.in
	row := in.buf[in.r : in.r+end]
	for _, c := range p.cells {
		if !c.quoted || c.end <= n {
			continue
		}
		if last := row[c.end-1]; len(p.cells) == p.columns && last != p.comma && last != in.lineEnd {
			continue
		}
		if i := bytes.IndexByte(row[c.start:c.end], in.lineEnd); i >= 0 {
			line, _, _ := bytes.Cut(row[c.start+i+1:], []byte{in.lineEnd})
			if p.isRow(line) {
				return c.start - 1
			}
		}
	}
	return 0
}

// isRow reports whether a line without quotes is a row of the table: it has as many cells, and what
// may be a URL in its place.
func (p *csvParser) isRow(line []byte) bool {
	if bytes.Count(line, []byte{p.comma}) != p.columns-1 || p.url < 0 {
		return false
	}
	for range p.url {
		line = line[bytes.IndexByte(line, p.comma)+1:]
	}
	url, _, _ := bytes.Cut(line, []byte{p.comma})
	return alike(url, url)
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
		} else if c == ' ' && !p.tsv && !p.single {
			end, next, quoted = p.quotedBehindBlanks(pos)
		}
		if !quoted {
			var found escapes
			next, found = p.unquoted(pos)
			if next > p.in.max+1 {
				return raw.TooLong, pos, 0, 0
			}
			end = next
			p.cells = append(p.cells, cell{start: pos, end: end, escapes: found})
		}
		if c, ok := p.at(next); ok && c == p.comma && !p.single {
			continue
		}
		// The CR of the line end is not part of the last cell.
		last := &p.cells[len(p.cells)-1]
		if !quoted && last.end > last.start && p.window[last.end-1] == '\r' {
			last.end--
			end--
		}
		return "", 0, end, next
	}
}

// at returns the byte at pos, false at the limit or the end of the input.
func (p *csvParser) at(pos int) (c byte, ok bool) {
	if pos < len(p.window) || p.fillTo(pos) {
		c, ok = p.window[pos], true
	}
	return c, ok
}

// fillTo adds the byte at pos to the window, and reports whether there is one.
func (p *csvParser) fillTo(pos int) bool {
	for pos >= len(p.window) {
		if p.limit {
			return false
		}
		if !p.in.fill() {
			p.ended = true
			return false
		}
		p.window = p.in.Buffered()
	}
	return true
}

// unquoted returns the end of the field that begins at pos, or an offset above in.max+1.
func (p *csvParser) unquoted(pos int) (end int, found escapes) {
	in := p.in
	for ; pos <= in.max+1; pos++ {
		c, ok := p.at(pos)
		if !ok || c == in.lineEnd || c == p.comma && !p.single {
			break
		}
		if c == '\\' && p.escape {
			if next, ok := p.at(pos + 1); ok && (next != in.lineEnd || p.joins) {
				p.joined = p.joined || next == in.lineEnd
				pos++
			}
			found = backslash
		}
	}
	return pos, found
}

// quoted appends the cell whose opening quote is at pos. The cell and its quotes are [pos, end);
// the separator or line end behind it is at next. If it returns a reason, it appends nothing.
func (p *csvParser) quoted(pos int) (end, next int, reason string) {
	in := p.in
	found := noEscapes
	i := pos + 1
	for {
		if i < len(p.window) {
			window := p.window[i:]
			j := bytes.IndexByte(window, '"')
			if p.escape {
				if j >= 0 {
					window = window[:j]
				}
				if k := bytes.IndexByte(window, '\\'); k >= 0 {
					found = backslash
					i += k + 2
					continue
				}
			}
			if j >= 0 {
				i += j
				if i > in.max {
					return 0, 0, raw.TooLong
				}
				if c, ok := p.at(i + 1); ok && c == '"' {
					found = max(found, doubled)
					i += 2
					continue
				}
				break
			}
			i = len(p.window)
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
	p.cells = append(p.cells, cell{pos + 1, end - 1, found, true})
	return end, next, ""
}

// quotedBehindBlanks is quoted for a field with blanks before its quote at pos. It reports whether
// there is one that ends in the same line: any other is as unquoted.
func (p *csvParser) quotedBehindBlanks(pos int) (end, next int, ok bool) {
	begin := pos
	c, ok := p.at(pos)
	for ok && c == ' ' && pos < p.in.max {
		pos++
		c, ok = p.at(pos)
	}
	if c != '"' {
		return 0, 0, false
	}
	end, next, reason := p.quoted(pos)
	if reason != "" {
		return 0, 0, false
	}
	if bytes.IndexByte(p.window[begin:end], p.in.lineEnd) >= 0 {
		p.cells = p.cells[:len(p.cells)-1]
		return 0, 0, false
	}
	return end, next, true
}

// Rows reads the rows of a CSV or TSV object without a plan.
type Rows struct {
	parser *csvParser
	cells  [][]byte
}

// NewRows returns the rows of an object. format is raw.CSV or raw.TSV. separator and backslash are
// as in [raw.Plan].
func NewRows(in *Input, format, separator string, backslash bool) *Rows {
	p := newCSVParser(in, raw.Plan{Format: format, Separator: separator, Backslash: backslash}, Fields{})
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
