package parquetin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/jsondoc"
	"github.com/urlake/urlake/lake/raw/text"
)

const (
	// maxParquetColumns is how many columns of one object are read; each holds a page.
	MaxParquetColumns = 256
	// parquetPages is what the pages of all columns may have, decompressed; one column has at least minParquetPage
	// and at most maxParquetPage. Pages have about 1 MiB with every common writer.
	parquetPages   = 512 << 20
	minParquetPage = 4 << 20
	maxParquetPage = 128 << 20
	// littlePage and littleFooter replace maxParquetPage and maxFooter with
	// raw.Options.LowMemory. Pages have about 1 MiB with every common writer.
	littlePage   = 8 << 20
	littleFooter = 1 << 20
	// parquetReads is what is read ahead of all columns together.
	parquetReads = 32 << 20

	// maxBufferedParquet is the largest Parquet file held in memory where it stands in a stream: compressed as a
	// whole, or in an archive.
	MaxBufferedParquet = 64 << 20

	parquetBatch = 1024
)

// lakePartColumns are the columns of a lake's part (docs/formats/part.md) that its records are read from.
var lakePartColumns = []struct {
	name string
	kind valueKind
}{{"scheme", TextKind}, {"host", TextKind}, {"port", intKind}, {"path_query", TextKind}, {"ts", timestampKind}, {"size", intKind}, {"extras", TextKind}}

// Records.

// parquetParser yields a record for every value of the URL column. Other columns follow it: one that is
// repeated no more than what it has in common with the URL column has one value a record, or one for several.
type Parser struct {
	text.Fields
	in     *text.Input // only for places: line is the row
	Object *Object
	r      *file.Reader
	max    int

	Url      *Column
	urlBlank int16 // definition level below which the row's list has no element
	ts, size *parquetSide
	sides    []*parquetSide
	all      []*Column
	out      []parquetExtra
	buf      []byte
	scratch  []byte
	part     *lakePart // nil for other files

	group   int // the next row group
	end     int // behind the last one
	open    bool
	rows    int64 // of the open row group
	row     int64 // begun in it
	Total   int64 // of those before
	Fetched func(rows int64)
}

// parquetSide is a column beside the URL column, or a group of columns that makes one extra.
type parquetSide struct {
	tree *parquetTree
	// rep is the repetition level of what it has in common with the URL column: a new value comes with every
	// entry there of at most this level.
	rep int16

	// Of a timestamp or size: the value for the current record, and whether it stands.
	rec raw.Record
	ok  bool
	// Of an extra: its JSON, or its text where plain is set, nil for null; long if it was longer than a record may be.
	json  []byte
	long  bool
	plain bool
}

// lakePart is what the records of a lake's part are made of beside path_query.
type lakePart struct {
	scheme, host, port *parquetSide
	extras             *parquetSide // nil where others were asked for
	url, out           []byte
	doc                jsondoc.Document
}

// record fills in the URL, and the extras in canonical form, or returns the reason why not.
func (l *lakePart) record(rec *raw.Record, pathQuery []byte, longest int) string {
	l.url = append(l.url[:0], l.scheme.json...)
	l.url = append(append(l.url, "://"...), l.host.json...)
	if l.port.json != nil {
		l.url = append(append(l.url, ':'), l.port.json...)
	}
	l.url = append(l.url, pathQuery...)
	switch {
	case l.scheme.json == nil || l.host.json == nil:
		return raw.NoURL
	case len(l.url) > longest || l.scheme.long || l.host.long || l.extras != nil && l.extras.long:
		return raw.TooLong
	}
	rec.URL = l.url
	if l.extras == nil || l.extras.json == nil {
		return ""
	}
	if !l.doc.Parse(l.extras.json) || l.doc.Nodes[0].Kind != '{' {
		return raw.BadJSON
	}
	l.out = l.doc.AppendCanonical(l.out[:0], 0, nil)
	rec.Extras = l.out
	return ""
}

// parquetTree is the part of the schema that one extra is made of, with columns of its own.
type parquetTree struct {
	node     *Field
	column   *Column // of a leaf
	children []*parquetTree
	columns  []*Column // of all leaves
	through  bool      // only stands around its one child: what it stands for is the child's
}

// parquetExtra is a member of the extras: a value, or an object of further members.
type parquetExtra struct {
	key     []byte // `"name":`
	name    string
	side    *parquetSide
	members []parquetExtra
}

func NewParser(name string, o *Object, in *text.Input, plan raw.Plan, f text.Fields) (*Parser, error) {
	p := &Parser{Fields: f, in: in, Object: o, max: plan.MaxLine}
	refuse := func(c raw.Column, reason, advice string) error {
		return &raw.FormatError{Name: name, Reason: fmt.Sprintf("column %q %s", c.Name, reason), Advice: advice}
	}
	find := func(c raw.Column) (*Field, error) {
		n := o.Find(c.Name)
		if n == nil || n.Leaf < 0 {
			return nil, refuse(c, "is not there", "name one of "+raw.QuoteNames(o.Names()))
		}
		return n, nil
	}
	if plan.URL.Name == "" && o.Meta.NumRows == 0 {
		return p, nil // p.url is nil, and there is nothing to read
	}
	urlNode, err := find(plan.URL)
	if err != nil {
		return nil, err
	}
	if p.Url, err = NewColumn(urlNode); err != nil {
		return nil, refuse(plan.URL, err.Error(), "")
	}
	if p.Url.kind != TextKind {
		return nil, refuse(plan.URL, "holds no text", "name a column that does (--url-column)")
	}
	p.all = append(p.all, p.Url)
	for n := urlNode; n != nil; n = n.parent {
		if n.Repeated {
			p.urlBlank = n.def
			break
		}
	}
	skip := map[*Field]bool{urlNode: true}
	value := func(c *raw.Column) (*parquetSide, error) {
		if c == nil {
			return nil, nil
		}
		n, err := find(*c)
		if err != nil {
			return nil, err
		}
		s, err := p.side(n, urlNode, nil)
		if err != nil {
			return nil, refuse(*c, err.Error(), "")
		}
		if n.rep != s.rep {
			return nil, refuse(*c, fmt.Sprintf("is a list beside %q", plan.URL.Name), "name one with a value for every record")
		}
		skip[n] = true
		return s, nil
	}
	if p.ts, err = value(plan.TS); err != nil {
		return nil, err
	}
	if p.size, err = value(plan.Size); err != nil {
		return nil, err
	}
	if plan.LakePart {
		if !o.IsLakePart() {
			return nil, &raw.FormatError{Name: name, Reason: "it is no part of a lake, as its plan says"}
		}
		p.part = &lakePart{doc: jsondoc.Document{Deep: true}}
		for _, c := range []struct {
			name string
			to   **parquetSide
		}{{"scheme", &p.part.scheme}, {"host", &p.part.host}, {"port", &p.part.port}, {"extras", &p.part.extras}} {
			if c.name == "extras" && len(plan.Extras) > 0 {
				continue
			}
			s, err := p.side(o.Find(c.name), urlNode, nil)
			if err != nil {
				return nil, refuse(raw.Column{Name: c.name}, err.Error(), "")
			}
			s.plain = true
			*c.to = s
		}
	}
	if plan.AllExtras && !plan.LakePart {
		if p.out, err = p.extrasBeside(urlNode, skip); err != nil {
			return nil, refuse(plan.URL, "has others beside it that cannot be read: "+err.Error(), "name those to keep (--extras)")
		}
	} else {
		for _, c := range text.SortColumns(plan.Extras) {
			n := o.Find(c.Name)
			if n == nil {
				return nil, refuse(c, "is not there", "name one of "+raw.QuoteNames(o.Names()))
			}
			s, err := p.side(n, urlNode, nil)
			if err != nil {
				return nil, refuse(c, err.Error(), "")
			}
			p.out = append(p.out, newParquetExtra(c.Name, s, nil))
		}
	}
	if len(p.all) > MaxParquetColumns {
		return nil, refuse(plan.URL, fmt.Sprintf("and the extras make %d columns, more than %d", len(p.all), MaxParquetColumns), "name the extras to keep (--extras)")
	}
	p.r, err = o.Reader(len(p.all))
	return p, err
}

func newParquetExtra(name string, side *parquetSide, members []parquetExtra) parquetExtra {
	return parquetExtra{key: append(codec.AppendJSONString(nil, name), ':'), name: name, side: side, members: members}
}

// within makes p read the row groups of a range, and returns how many rows they are said to have.
func (p *Parser) Within(rg raw.Range) (rows int64, err error) {
	groups := p.Object.Meta.RowGroups
	if rg.To > int64(len(groups)) {
		return 0, fmt.Errorf("it has %d row groups, want %d", len(groups), rg.To)
	}
	p.group, p.end = int(rg.From), int(rg.To)
	for _, g := range groups[:p.group] {
		if g.NumRows < 0 {
			return 0, errFooter
		}
		p.Total += g.NumRows
	}
	for _, g := range groups[p.group:p.end] {
		rows += g.NumRows
	}
	return rows, nil
}

// extrasBeside makes extras of everything but the URL and what is in skip: the record of a URL inside groups
// and lists is the row with one element of each list.
func (p *Parser) extrasBeside(url *Field, skip map[*Field]bool) ([]parquetExtra, error) {
	onPath := map[*Field]bool{}
	for n := url; n != nil; n = n.parent {
		onPath[n] = true
	}
	var walk func(n *Field) ([]parquetExtra, error)
	walk = func(n *Field) ([]parquetExtra, error) {
		var out []parquetExtra
		for _, c := range n.children {
			switch {
			case onPath[c]:
				members, err := walk(c)
				if err != nil {
					return nil, err
				}
				if len(members) == 0 {
					continue
				}
				if len(c.Short) == len(n.Short) {
					out = append(out, members...) // what only makes a list has no name
					continue
				}
				out = append(out, newParquetExtra(c.Name, nil, members))
			case !skip[c]:
				s, err := p.side(c, url, skip)
				if err != nil {
					return nil, fmt.Errorf("%q: %w", jsondoc.JoinPath(c.Full), err)
				}
				if s != nil {
					out = append(out, newParquetExtra(c.Name, s, nil))
				}
			}
		}
		slices.SortStableFunc(out, func(a, b parquetExtra) int { return jsondoc.CompareUTF16([]byte(a.name), []byte(b.name)) })
		return slices.CompactFunc(out, func(a, b parquetExtra) bool { return a.name == b.name }), nil
	}
	return walk(p.Object.root)
}

// side makes columns for what is at and below n; nil where skip leaves nothing of it.
func (p *Parser) side(n, url *Field, skip map[*Field]bool) (*parquetSide, error) {
	tree, err := newParquetTree(n, skip)
	if err != nil || tree == nil {
		return nil, err
	}
	common := n.parent
	for !common.holds(url) {
		if common.Repeated {
			// Of a list beside that of the URLs: its values are a list too.
			for t := tree.node.parent; t != common.parent; t = t.parent {
				tree = &parquetTree{node: t, children: []*parquetTree{tree}, columns: tree.columns, through: true}
			}
		}
		common = common.parent
	}
	s := &parquetSide{tree: tree, rep: common.rep}
	p.sides = append(p.sides, s)
	p.all = append(p.all, tree.columns...)
	return s, nil
}

func newParquetTree(n *Field, skip map[*Field]bool) (*parquetTree, error) {
	if skip[n] {
		return nil, nil
	}
	t := &parquetTree{node: n}
	if n.Leaf >= 0 {
		c, err := NewColumn(n)
		if err != nil {
			return nil, err
		}
		t.column, t.columns = c, []*Column{c}
		return t, nil
	}
	for _, child := range n.children {
		c, err := newParquetTree(child, skip)
		if err != nil {
			return nil, err
		}
		if c != nil {
			t.children = append(t.children, c)
			t.columns = append(t.columns, c.columns...)
		}
	}
	if len(t.columns) == 0 {
		return nil, nil
	}
	if n.mapped || n.wrapper || n.list {
		return t, nil
	}
	slices.SortStableFunc(t.children, func(a, b *parquetTree) int { return jsondoc.CompareUTF16([]byte(a.node.Name), []byte(b.node.Name)) })
	return t, nil
}

func (p *Parser) Next(rec *raw.Record, rej *raw.Reject) error {
	if p.Url == nil {
		return io.EOF
	}
	for {
		if !p.open {
			if err := p.openGroup(); err != nil {
				return err
			}
		}
		c := p.Url
		p.in.SetLine(p.Total + p.row + 1)
		ok, err := c.Peek()
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
			if p.row == p.rows {
				return c.wrong(fmt.Errorf("more than the %d rows of row group %d", p.rows, p.group-1))
			}
			p.row++
			if p.row%parquetBatch == 0 {
				p.Fetched(p.Total + p.row)
			}
		} else if p.row == 0 {
			return c.wrong(errRows)
		}
		p.in.SetLine(p.Total + p.row)
		p.in.SetRecord(p.in.Position())
		for _, s := range p.sides {
			if level <= s.rep {
				if err := p.load(s, level); err != nil {
					return err
				}
			}
		}
		if c.defined() < p.urlBlank {
			p.Counts.Blank++
			c.Pass()
			continue
		}
		rej.Reason = p.record(rec)
		c.Pass()
		return nil
	}
}

var errRows = errors.New("its rows do not begin where those of other columns do")

// record fills rec from the entry that stands and what is loaded, or returns the reason why not.
func (p *Parser) record(rec *raw.Record) string {
	if p.Url.Null() {
		return raw.NoURL
	}
	url := p.Url.raw()
	if len(url) > p.max {
		return raw.TooLong
	}
	if url = text.TrimSpace(url); len(url) == 0 {
		return raw.NoURL
	}
	if p.ts != nil && !p.ts.ok {
		return raw.BadTS
	}
	if p.size != nil && !p.size.ok {
		return raw.BadSize
	}
	if len(p.out) > 0 {
		for _, s := range p.sides {
			if s.long {
				return raw.TooLong
			}
		}
		p.buf = appendExtras(p.buf[:0], p.out)
		if len(p.buf) > 2 {
			rec.Extras = p.buf
		}
	}
	rec.URL = url
	if p.part != nil {
		if reason := p.part.record(rec, url, p.max); reason != "" {
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

// appendExtras appends the object of those members that are not null.
func appendExtras(dst []byte, members []parquetExtra) []byte {
	dst = append(dst, '{')
	start := len(dst)
	for i := range members {
		m := &members[i]
		before := len(dst)
		if before > start {
			dst = append(dst, ',')
		}
		dst = append(dst, m.key...)
		if m.side == nil {
			from := len(dst)
			if dst = appendExtras(dst, m.members); len(dst) > from+2 {
				continue
			}
		} else if m.side.json != nil {
			dst = append(dst, m.side.json...)
			continue
		}
		dst = dst[:before]
	}
	return append(dst, '}')
}

// openGroup goes to the next row group, io.EOF behind the last.
func (p *Parser) openGroup() error {
	if p.group == p.end {
		if p.end == p.Object.Meta.NumRowGroups() && p.Total != p.Object.Meta.NumRows {
			return fmt.Errorf("the row groups have %d rows, the footer says %d", p.Total, p.Object.Meta.NumRows)
		}
		return io.EOF
	}
	p.in.SetLine(p.Total + 1)
	for _, c := range p.all {
		if err := c.Open(p.r, p.group); err != nil {
			return err
		}
	}
	if p.rows = p.Object.Meta.RowGroups[p.group].NumRows; p.rows < 0 {
		return errFooter
	}
	p.group++
	p.open, p.row = true, 0
	return nil
}

// closeGroup checks that all columns end together.
func (p *Parser) closeGroup() error {
	if p.row != p.rows {
		return p.Url.wrong(fmt.Errorf("it ends behind %d of the %d rows of row group %d", p.row, p.rows, p.group-1))
	}
	for _, c := range p.all {
		ok, err := c.Peek()
		if err != nil {
			return err
		}
		if ok {
			return c.wrong(fmt.Errorf("it has more than the %d rows of row group %d", p.rows, p.group-1))
		}
		c.close()
	}
	p.Total += p.rows
	p.Fetched(p.Total)
	p.open = false
	return nil
}

// load reads the side's values that belong to the entry of the URL column that has this repetition level.
func (p *Parser) load(s *parquetSide, level int16) error {
	for _, c := range s.tree.columns {
		if err := c.stands(level); err != nil {
			return err
		}
	}
	switch s {
	case p.ts:
		s.rec, s.ok = raw.Record{}, true
		c := s.tree.column
		if c.Null() {
		} else if ms, ok := c.Time(); ok {
			s.rec.TS, s.rec.HasTS = ms, true
		} else {
			p.scratch = c.Text(p.scratch[:0])
			s.ok = p.SetTS(&s.rec, p.scratch)
		}
		c.Pass()
		return nil
	case p.size:
		s.rec, s.ok = raw.Record{}, true
		c := s.tree.column
		if !c.Null() {
			p.scratch = c.Text(p.scratch[:0])
			s.ok = text.SetSize(&s.rec, p.scratch)
		}
		c.Pass()
		return nil
	}
	s.long = false
	if s.plain {
		c := s.tree.column
		if c.Null() {
			s.json = nil
		} else {
			s.json = c.Text(s.json[:0])
			s.long = len(s.json) > p.max
		}
		c.Pass()
		return nil
	}
	json, err := p.value(s.json[:0], s, s.tree)
	if err != nil {
		return err
	}
	if s.json = json; string(json) == "null" {
		s.json = nil
	}
	return nil
}

// value appends the value of a node, the first entries of whose columns stand. What is longer than a record
// may be is passed without being held, and makes the side long.
func (p *Parser) value(dst []byte, s *parquetSide, t *parquetTree) ([]byte, error) {
	s.long = s.long || len(dst) > p.max
	put := func(text string) {
		if !s.long {
			dst = append(dst, text...)
		}
	}
	if (t.node.Repeated || t.node.optional) && t.columns[0].defined() < t.node.def {
		for _, c := range t.columns {
			if c.defined() >= t.node.def {
				return nil, c.wrong(errRows)
			}
			c.Pass()
		}
		if t.node.Repeated {
			put("[]")
		} else {
			put("null")
		}
		return dst, nil
	}
	if !t.node.Repeated {
		return p.body(dst, s, t)
	}
	put("[")
	for n := 0; ; n++ {
		if n > 0 {
			put(",")
		}
		var err error
		if dst, err = p.body(dst, s, t); err != nil {
			return nil, err
		}
		more := false
		for i, c := range t.columns {
			ok, err := c.Peek()
			if err != nil {
				return nil, err
			}
			again := ok && c.level() == t.node.rep
			if i > 0 && again != more || ok && c.level() > t.node.rep {
				return nil, c.wrong(errRows)
			}
			more = again
		}
		if !more {
			put("]")
			return dst, nil
		}
	}
}

// body appends a value that is there.
func (p *Parser) body(dst []byte, s *parquetSide, t *parquetTree) ([]byte, error) {
	switch {
	case t.column != nil:
		if s.long = s.long || len(dst) > p.max; !s.long {
			dst = t.column.json(dst, &p.scratch)
		}
		t.column.Pass()
		return dst, nil
	case t.through, t.node.wrapper && len(t.children) == 1, t.node.list:
		return p.value(dst, s, t.children[0])
	case t.node.mapped && t.children[0].node.wrapper && len(t.children[0].children) == 2:
		from := len(dst)
		dst, err := p.value(dst, s, t.children[0])
		if err != nil || s.long {
			return dst, err
		}
		return appendMap(dst[:from], dst[from:]), nil
	}
	var err error
	start := len(dst) + 1
	if !s.long {
		dst = append(dst, '{')
	}
	for i, m := range t.children {
		before := len(dst)
		if !s.long {
			if before > start {
				dst = append(dst, ',')
			}
			dst = append(codec.AppendJSONString(dst, m.node.Name), ':')
		}
		from := len(dst)
		if dst, err = p.value(dst, s, m); err != nil {
			return nil, err
		}
		// Nulls are left out; of two members with one name the first stays.
		if !s.long && (string(dst[from:]) == "null" || i > 0 && t.children[i-1].node.Name == m.node.Name) {
			dst = dst[:before]
		}
	}
	if !s.long {
		dst = append(dst, '}')
	}
	return dst, nil
}

// appendMap appends the object that an array of {"key":…,"value":…} stands for. Of keys that are no strings the
// JSON is the name; of equal ones the last stays.
func appendMap(dst, array []byte) []byte {
	doc := jsondoc.Document{Deep: true}
	if !doc.Parse(bytes.Clone(array)) || doc.Nodes[0].Kind != '[' {
		return append(dst, array...)
	}
	type member struct {
		name  []byte
		value int // its index in doc, 0 for none
	}
	var members []member
	for e := range doc.Children(0) {
		key, value := doc.Find(e, []string{"key"}), doc.Find(e, []string{"value"})
		if key == 0 {
			continue
		}
		n := &doc.Nodes[key]
		name := doc.Text(n)
		if n.Escaped {
			name = jsondoc.AppendUnescaped(nil, name)
		}
		members = append(members, member{name, value})
	}
	slices.SortStableFunc(members, func(a, b member) int { return jsondoc.CompareUTF16(a.name, b.name) })
	dst = append(dst, '{')
	first := true
	for i, m := range members {
		if i+1 < len(members) && bytes.Equal(m.name, members[i+1].name) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(codec.AppendJSONString(dst, m.name), ':')
		if m.value == 0 {
			dst = append(dst, "null"...)
		} else {
			dst = doc.AppendCanonical(dst, m.value, nil)
		}
	}
	return append(dst, '}')
}

// Pages.

const (
	// maxDeltaValues is the most values of a delta-encoded page: their lengths are decoded at once.
	maxDeltaValues = 1 << 24
	// maxDeltaBlock is the most values of a delta block; all writers use 128 or some hundreds.
	maxDeltaBlock = 1 << 16
	// Values of DELTA_BYTE_ARRAY repeat the one before, so that a small page can stand for far more; pages of it are
	// kept small and read in small batches.
	maxPrefixedPage = 8 << 20
	prefixedBatch   = 64
)
