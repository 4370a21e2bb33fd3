package parquetin

import (
	"bytes"
	"slices"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/jsondoc"
	"github.com/urlake/urlake/lake/raw/text"
)

// sideValue is the value beside a URL that a column, or a group of columns, has for a record. A
// side value that is repeated no more often than the fields it shares with the URL column has one
// value for a record, or one for several records.
type sideValue struct {
	tree *valueTree
	// rep is the repetition level of the innermost field shared with the URL column. A new value
	// comes with every URL entry of at most this level.
	rep int16

	// A timestamp or size is in rec; ok is false if the record must be rejected for it.
	rec raw.Record
	ok  bool

	// An extra is in value: as JSON, or as text if plain is set; nil if it is null. tooLong is set
	// if it was longer than a record may be.
	value   []byte
	plain   bool
	tooLong bool
}

// valueTree is the part of the schema that a side value is made of.
type valueTree struct {
	field    *Field
	column   *column // nil for a group
	children []*valueTree
	columns  []*column // all columns in the tree
	// transparent marks a group whose value is that of its only child.
	transparent bool
}

// newValueTree makes a tree of f and the fields in it, but for those in skip. It returns nil if
// skip leaves no column.
func newValueTree(f *Field, skip map[*Field]bool) (*valueTree, error) {
	if skip[f] {
		return nil, nil
	}
	t := &valueTree{field: f}
	if f.IsColumn() {
		c, err := newColumn(f)
		if err != nil {
			return nil, err
		}
		t.column, t.columns = c, []*column{c}
		return t, nil
	}
	for _, child := range f.children {
		c, err := newValueTree(child, skip)
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
	if f.mapped || f.wrapper || f.list {
		return t, nil
	}
	slices.SortStableFunc(t.children, func(a, b *valueTree) int {
		return jsondoc.CompareUTF16([]byte(a.field.name), []byte(b.field.name))
	})
	return t, nil
}

// load reads the side value of the URL entry that has the given repetition level.
func (p *Parser) load(s *sideValue, level int16) error {
	for _, c := range s.tree.columns {
		if err := c.expect(level); err != nil {
			return err
		}
	}
	switch s {
	case p.ts:
		s.rec, s.ok = raw.Record{}, true
		c := s.tree.column
		if !c.null() {
			if ms, ok := c.time(); ok {
				s.rec.TS, s.rec.HasTS = ms, true
			} else {
				p.scratch = c.text(p.scratch[:0])
				s.ok = p.fields.SetTS(&s.rec, p.scratch)
			}
		}
		c.advance()
		return nil
	case p.size:
		s.rec, s.ok = raw.Record{}, true
		c := s.tree.column
		if !c.null() {
			p.scratch = c.text(p.scratch[:0])
			s.ok = text.SetSize(&s.rec, p.scratch)
		}
		c.advance()
		return nil
	}
	s.tooLong = false
	if s.plain {
		c := s.tree.column
		if c.null() {
			s.value = nil
		} else {
			s.value = c.text(s.value[:0])
			s.tooLong = len(s.value) > p.maxRecord
		}
		c.advance()
		return nil
	}
	value, err := p.appendValue(s.value[:0], s, s.tree)
	if err != nil {
		return err
	}
	if s.value = value; string(value) == "null" {
		s.value = nil
	}
	return nil
}

// appendValue appends the JSON of the tree t, whose columns all have a current entry, and advances
// them past it. If dst gets longer than a record may be, appendValue sets s.tooLong and reads on
// without appending.
func (p *Parser) appendValue(dst []byte, s *sideValue, t *valueTree) ([]byte, error) {
	s.tooLong = s.tooLong || len(dst) > p.maxRecord
	write := func(text string) {
		if !s.tooLong {
			dst = append(dst, text...)
		}
	}
	if (t.field.repeated || t.field.optional) && t.columns[0].defined() < t.field.def {
		for _, c := range t.columns {
			if c.defined() >= t.field.def {
				return nil, c.wrap(errRowStarts)
			}
			c.advance()
		}
		if t.field.repeated {
			write("[]")
		} else {
			write("null")
		}
		return dst, nil
	}
	if !t.field.repeated {
		return p.appendDefined(dst, s, t)
	}
	write("[")
	for n := 0; ; n++ {
		if n > 0 {
			write(",")
		}
		var err error
		if dst, err = p.appendDefined(dst, s, t); err != nil {
			return nil, err
		}
		more := false
		for i, c := range t.columns {
			ok, err := c.peek()
			if err != nil {
				return nil, err
			}
			again := ok && c.level() == t.field.rep
			if i > 0 && again != more || ok && c.level() > t.field.rep {
				return nil, c.wrap(errRowStarts)
			}
			more = again
		}
		if !more {
			write("]")
			return dst, nil
		}
	}
}

// appendDefined is appendValue for a value, or an element of a list, that is not null.
func (p *Parser) appendDefined(dst []byte, s *sideValue, t *valueTree) ([]byte, error) {
	switch {
	case t.column != nil:
		if s.tooLong = s.tooLong || len(dst) > p.maxRecord; !s.tooLong {
			dst = t.column.json(dst, &p.scratch)
		}
		t.column.advance()
		return dst, nil
	case t.transparent, t.field.wrapper && len(t.children) == 1, t.field.list:
		return p.appendValue(dst, s, t.children[0])
	case t.field.mapped && t.children[0].field.wrapper && len(t.children[0].children) == 2:
		from := len(dst)
		dst, err := p.appendValue(dst, s, t.children[0])
		if err != nil || s.tooLong {
			return dst, err
		}
		return appendMap(dst[:from], dst[from:]), nil
	}
	var err error
	start := len(dst) + 1
	if !s.tooLong {
		dst = append(dst, '{')
	}
	for i, m := range t.children {
		before := len(dst)
		if !s.tooLong {
			if before > start {
				dst = append(dst, ',')
			}
			dst = append(codec.AppendJSONString(dst, m.field.name), ':')
		}
		from := len(dst)
		if dst, err = p.appendValue(dst, s, m); err != nil {
			return nil, err
		}
		// Nulls are left out. Of two members with one name the first one is kept.
		if !s.tooLong && (string(dst[from:]) == "null" || i > 0 && t.children[i-1].field.name == m.field.name) {
			dst = dst[:before]
		}
	}
	if !s.tooLong {
		dst = append(dst, '}')
	}
	return dst, nil
}

// appendMap appends the object with the members in an array of {"key":…,"value":…}. A key that is
// no string becomes a name by its JSON. Of equal keys the last one is kept.
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

// extra is a member of a record's extras: a side value, or an object of further members.
type extra struct {
	name    string
	key     []byte // the name as JSON and a colon
	side    *sideValue
	members []extra
}

func newExtra(name string, side *sideValue, members []extra) extra {
	return extra{name: name, key: append(codec.AppendJSONString(nil, name), ':'), side: side, members: members}
}

// appendExtras appends the object of those members that are not null.
func appendExtras(dst []byte, members []extra) []byte {
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
		} else if m.side.value != nil {
			dst = append(dst, m.side.value...)
			continue
		}
		dst = dst[:before]
	}
	return append(dst, '}')
}
