package parquetin

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/jsondoc"
	"github.com/urlake/urlake/lake/raw/text"
	"github.com/urlake/urlake/lake/raw/unpack"
)

// Parser yields one record for every entry of the URL column. The other columns of a record are
// side values.
type Parser struct {
	fields    text.Fields
	in        *text.Input // holds positions only: Line is the row
	object    *Object
	file      *fileReader
	maxRecord int // the longest value in bytes

	url      *column // nil where there is nothing to read
	urlBlank int16   // an entry with a lower definition level means that the row's list has no element
	ts, size *sideValue
	sides    []*sideValue // all of them, ts and size too
	columns  []*column    // all that are read
	extras   []extra
	buf      []byte // the extras of the current record
	scratch  []byte
	lakePart *lakePart // nil for other files

	nextGroup, endGroup int   // the row groups still to open
	open                bool  // a row group is open
	groupRows           int64 // the rows of the open row group
	row                 int64 // how many of them have begun
	rowsBefore          int64 // the rows of all row groups before
	progress            func(rows int64)
	ratio               unpack.Ratio // of the records to the file
}

// recordSize is what a record counts beside its URL and extras in the ratio of records to the
// file's size: a run of equal values, or of nulls, takes no bytes in a file.
const recordSize = 16

// errRowStarts means that the repetition levels of two columns do not agree.
var errRowStarts = errors.New("its rows do not begin where those of other columns do")

// NewParser returns a parser that reads o by a plan: all of it, unless SetRange follows. name is
// for errors. The parser reports the position of a record in in.Line and in.At, and counts in
// fields. The error is a *raw.FormatError if o has not the columns of the plan.
func NewParser(name string, o *Object, in *text.Input, plan raw.Plan, fields text.Fields) (*Parser, error) {
	p := &Parser{fields: fields, in: in, object: o, maxRecord: plan.MaxLine,
		endGroup: o.NumRowGroups(), progress: func(int64) {}}
	reject := func(c raw.Column, reason, advice string) error {
		return &raw.FormatError{Name: name, Reason: fmt.Sprintf("column %q %s", c.Name, reason), Advice: advice}
	}
	find := func(c raw.Column) (*Field, error) {
		f := o.Find(c.Name)
		if f == nil || !f.IsColumn() {
			return nil, reject(c, "is not there", "name one of "+raw.QuoteNames(o.Names()))
		}
		return f, nil
	}
	if plan.URL.Name == "" && o.NumRows() == 0 {
		return p, nil
	}
	url, err := find(plan.URL)
	if err != nil {
		return nil, err
	}
	if p.url, err = newColumn(url); err != nil {
		return nil, reject(plan.URL, err.Error(), "")
	}
	if p.url.kind != textKind {
		return nil, reject(plan.URL, "holds no text", "name a column that does (--url-column)")
	}
	p.columns = append(p.columns, p.url)
	for f := url; f != nil; f = f.parent {
		if f.repeated {
			p.urlBlank = f.def
			break
		}
	}
	skip := map[*Field]bool{url: true}
	single := func(c *raw.Column) (*sideValue, error) {
		if c == nil {
			return nil, nil
		}
		f, err := find(*c)
		if err != nil {
			return nil, err
		}
		s, err := p.addSide(f, url, nil)
		if err != nil {
			return nil, reject(*c, err.Error(), "")
		}
		if f.rep != s.rep {
			return nil, reject(*c, fmt.Sprintf("is a list beside %q", plan.URL.Name), "name one with a value for every record")
		}
		skip[f] = true
		return s, nil
	}
	if p.ts, err = single(plan.TS); err != nil {
		return nil, err
	}
	if p.size, err = single(plan.Size); err != nil {
		return nil, err
	}
	if plan.LakePart {
		if !o.IsLakePart() {
			return nil, &raw.FormatError{Name: name, Reason: "it is no part of a lake, as its plan says"}
		}
		p.lakePart = &lakePart{doc: jsondoc.Document{Deep: true}}
		for _, c := range []struct {
			name string
			to   **sideValue
		}{
			{"scheme", &p.lakePart.scheme},
			{"host", &p.lakePart.host},
			{"port", &p.lakePart.port},
			{"extras", &p.lakePart.extras},
		} {
			if c.name == "extras" && len(plan.Extras) > 0 {
				continue
			}
			s, err := p.addSide(o.Find(c.name), url, nil)
			if err != nil {
				return nil, reject(raw.Column{Name: c.name}, err.Error(), "")
			}
			s.plain = true
			*c.to = s
		}
	}
	// Memory above the limit is not allocated.
	columns := len(o.columns)
	if plan.LakePart || !plan.AllExtras {
		columns = len(p.columns)
		for _, c := range plan.Extras {
			if f := o.Find(c.Name); f != nil {
				columns += f.columnsIn()
			}
		}
	}
	if columns > MaxColumns {
		reason := fmt.Sprintf("and the extras make %d columns, more than %d", columns, MaxColumns)
		return nil, reject(plan.URL, reason, "name the extras to keep (--extras)")
	}
	if plan.AllExtras && !plan.LakePart {
		for _, f := range o.Unknown() {
			skip[f] = true
		}
		if p.extras, err = p.addAllExtras(url, skip); err != nil {
			reason := "has others beside it that cannot be read: " + err.Error()
			return nil, reject(plan.URL, reason, "name those to keep (--extras)")
		}
	} else {
		for _, c := range text.SortColumns(plan.Extras) {
			f := o.Find(c.Name)
			if f == nil {
				return nil, reject(c, "is not there", "name one of "+raw.QuoteNames(o.Names()))
			}
			s, err := p.addSide(f, url, nil)
			if err != nil {
				return nil, reject(c, err.Error(), "")
			}
			p.extras = append(p.extras, newExtra(c.Name, s, nil))
		}
	}
	p.file, err = o.reader(len(p.columns), raw.PageMemory)
	return p, err
}

// Object returns the object that the parser reads.
func (p *Parser) Object() *Object { return p.object }

// IsEmpty reports whether the parser reads no column, because the file has no rows.
func (p *Parser) IsEmpty() bool { return p.url == nil }

// SetRange makes the parser read the row groups of a range only. Call it before Next. It calls
// progress at once and then every few rows, with the number of rows read so far and the number of
// rows in the range that the footer states.
func (p *Parser) SetRange(rg raw.Range, progress func(read, rows int64)) error {
	groups := p.object.meta.RowGroups
	if rg.To > int64(len(groups)) {
		return fmt.Errorf("it has %d row groups, want %d", len(groups), rg.To)
	}
	p.nextGroup, p.endGroup = int(rg.From), int(rg.To)
	for _, g := range groups[:p.nextGroup] {
		if g.NumRows < 0 {
			return errFooter
		}
		p.rowsBefore += g.NumRows
	}
	rows := int64(0)
	for _, g := range groups[p.nextGroup:p.endGroup] {
		rows += g.NumRows
	}
	first := p.rowsBefore
	p.progress = func(total int64) { progress(total-first, rows) }
	p.progress(first)
	return nil
}

// Next reads the next record into rec, or the reason for its rejection into rej. It returns io.EOF
// after the last record.
func (p *Parser) Next(rec *raw.Record, rej *raw.Reject) error {
	if p.url == nil {
		return io.EOF
	}
	for {
		if !p.open {
			if err := p.openGroup(); err != nil {
				return err
			}
		}
		c := p.url
		p.in.SetLine(p.rowsBefore + p.row + 1)
		ok, err := c.peek()
		if err != nil {
			return err
		}
		if !ok {
			if err := p.closeGroup(); err != nil {
				return err
			}
			continue
		}
		level := c.level()
		if level == 0 {
			if p.row == p.groupRows {
				return c.wrap(fmt.Errorf("more than the %d rows of row group %d", p.groupRows, p.nextGroup-1))
			}
			p.row++
			if p.row%batchSize == 0 {
				p.progress(p.rowsBefore + p.row)
			}
		} else if p.row == 0 {
			return c.wrap(errRowStarts)
		}
		p.in.SetLine(p.rowsBefore + p.row)
		p.in.SetRecord(p.in.Position())
		for _, s := range p.sides {
			if level <= s.rep {
				if err := p.load(s, level); err != nil {
					return err
				}
			}
		}
		if c.defined() < p.urlBlank {
			p.fields.Counts.Blank++
			c.advance()
			if err := p.ratio.Add(recordSize, p.object.file.size); err != nil {
				return err
			}
			continue
		}
		rej.Reason = p.record(rec)
		c.advance()
		return p.ratio.Add(int64(recordSize+len(rec.URL)+len(rec.Extras)), p.object.file.size)
	}
}

// record fills rec from the current entry of the URL column and the loaded side values, or returns
// the reason for which it is rejected.
func (p *Parser) record(rec *raw.Record) (reason string) {
	if p.url.null() {
		return raw.NoURL
	}
	url := p.url.raw()
	if len(url) > p.maxRecord {
		return raw.TooLong
	}
	if url = text.TrimSpace(url); len(url) == 0 {
		return raw.NoURL
	}
	if p.ts != nil {
		if rec.BadTS = p.ts.rec.BadTS; !p.ts.ok {
			return raw.BadTS
		}
	}
	if p.size != nil && !p.size.ok {
		return raw.BadSize
	}
	if len(p.extras) > 0 {
		for _, s := range p.sides {
			if s.tooLong {
				return raw.TooLong
			}
		}
		p.buf = appendExtras(p.buf[:0], p.extras)
		if len(p.buf) > len("{}") {
			rec.Extras = p.buf
		}
	}
	rec.URL = url
	if p.lakePart != nil {
		if reason := p.lakePart.record(rec, url, p.maxRecord); reason != "" {
			return reason
		}
	}
	if p.ts != nil {
		rec.TS, rec.HasTS = p.ts.rec.TS, p.ts.rec.HasTS
	}
	if p.size != nil {
		rec.Size, rec.HasSize = p.size.rec.Size, p.size.rec.HasSize
	}
	return ""
}

// openGroup opens the next row group. It returns io.EOF after the last one.
func (p *Parser) openGroup() error {
	if p.nextGroup == p.endGroup {
		if p.endGroup == p.object.NumRowGroups() && p.rowsBefore != p.object.NumRows() {
			return fmt.Errorf("the row groups have %d rows, the footer says %d", p.rowsBefore, p.object.NumRows())
		}
		return io.EOF
	}
	p.in.SetLine(p.rowsBefore + 1)
	for _, c := range p.columns {
		if err := c.open(p.file, p.nextGroup); err != nil {
			return err
		}
	}
	if p.groupRows = p.object.meta.RowGroups[p.nextGroup].NumRows; p.groupRows < 0 {
		return errFooter
	}
	p.nextGroup++
	p.open, p.row = true, 0
	return nil
}

// closeGroup checks that all columns end with the row group's last row.
func (p *Parser) closeGroup() error {
	if p.row != p.groupRows {
		return p.url.wrap(fmt.Errorf("it ends after %d of the %d rows of row group %d", p.row, p.groupRows, p.nextGroup-1))
	}
	for _, c := range p.columns {
		ok, err := c.peek()
		if err != nil {
			return err
		}
		if ok {
			return c.wrap(fmt.Errorf("it has more than the %d rows of row group %d", p.groupRows, p.nextGroup-1))
		}
		c.close()
	}
	p.rowsBefore += p.groupRows
	p.progress(p.rowsBefore)
	p.open = false
	return nil
}

// addAllExtras adds side values for all fields but those in skip, and returns the extras that are
// made of them. The record of a URL inside groups and lists is its row with one element of each
// list on the way to the URL.
func (p *Parser) addAllExtras(url *Field, skip map[*Field]bool) ([]extra, error) {
	onPath := map[*Field]bool{}
	for f := url; f != nil; f = f.parent {
		onPath[f] = true
	}
	var walk func(f *Field) ([]extra, error)
	walk = func(f *Field) ([]extra, error) {
		var out []extra
		for _, c := range f.children {
			switch {
			case onPath[c]:
				members, err := walk(c)
				if err != nil {
					return nil, err
				}
				if len(members) == 0 {
					continue
				}
				if len(c.short) == len(f.short) {
					out = append(out, members...) // c only makes a list and has no name
					continue
				}
				out = append(out, newExtra(c.name, nil, members))
			case !skip[c]:
				s, err := p.addSide(c, url, skip)
				if err != nil {
					return nil, fmt.Errorf("%q: %w", jsondoc.JoinPath(c.full), err)
				}
				if s != nil {
					out = append(out, newExtra(c.name, s, nil))
				}
			}
		}
		slices.SortStableFunc(out, func(a, b extra) int { return jsondoc.CompareUTF16([]byte(a.name), []byte(b.name)) })
		return slices.CompactFunc(out, func(a, b extra) bool { return a.name == b.name }), nil
	}
	return walk(p.object.root)
}

// addSide adds a side value of the field f with the columns in it, but for the fields in skip. It
// returns nil if skip leaves no column.
func (p *Parser) addSide(f, url *Field, skip map[*Field]bool) (*sideValue, error) {
	tree, err := newValueTree(f, skip)
	if err != nil || tree == nil {
		return nil, err
	}
	common := f.parent
	for !common.contains(url) {
		if common.repeated {
			// f is in another list than the URL: its values are a list too.
			for t := tree.field.parent; t != common.parent; t = t.parent {
				tree = &valueTree{field: t, children: []*valueTree{tree}, columns: tree.columns, transparent: true}
			}
		}
		common = common.parent
	}
	s := &sideValue{tree: tree, rep: common.rep}
	p.sides = append(p.sides, s)
	p.columns = append(p.columns, tree.columns...)
	return s, nil
}
