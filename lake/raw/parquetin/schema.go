package parquetin

import (
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/jsondoc"
)

// Field is a column of the schema, or a group of fields.
type Field struct {
	name   string
	parent *Field
	// full is the path in the schema. short leaves out the names that only make a list or a map
	// (https://github.com/apache/parquet-format/blob/master/LogicalTypes.md).
	full, short        []string
	optional, repeated bool
	list, mapped       bool // the logical type is LIST or MAP
	// wrapper marks the repeated group inside a list of three levels or inside a map.
	wrapper  bool
	def, rep int16 // the definition and repetition levels of an entry that has the field
	children []*Field
	later    bool           // the type of the field or a group around it is from a later Parquet
	column   int            // the index of the column, -1 for a group
	desc     *schema.Column // nil for a group
}

// IsColumn reports whether the field is a column and not a group.
func (f *Field) IsColumn() bool { return f.column >= 0 }

// IsTopLevel reports whether the field is in no group and has at most one value a row.
func (f *Field) IsTopLevel() bool { return len(f.full) == 1 && !f.repeated }

// IsBeside reports whether the column is in the group that has the column url, or in one around
// that group, and has one value for each value of url. At the top level it is beside a url that is
// nil.
func (f *Field) IsBeside(url *Field) bool {
	if url == nil || f.IsTopLevel() {
		return f.IsTopLevel()
	}
	return f.parent.contains(url) && f.rep == f.parent.rep
}

// IsText reports whether the values of the column are strings or bytes without a narrower type.
func (f *Field) IsText() bool { return f.IsColumn() && !f.later && kindOf(f.desc) == textKind }

// Number returns the number of the column, from 1 in the file's order; 0 for a group.
func (f *Field) Number() int { return f.column + 1 }

// Path returns the names on the way to the field, without those that only make a list or a map. The
// caller must not change it.
func (f *Field) Path() []string { return f.short }

// contains reports whether the group f contains the field n, at any depth.
func (f *Field) contains(n *Field) bool {
	for n = n.parent; n != nil; n = n.parent {
		if n == f {
			return true
		}
	}
	return false
}

// add copies a node of arrow-go's schema, and what is below it, to the fields of parent. A hidden
// node, the element of a three-level list, adds no name to the short path.
func (o *Object) add(parent *Field, n schema.Node, hidden bool) {
	f := &Field{name: n.Name(), parent: parent, def: parent.def, rep: parent.rep, column: -1,
		full: append(slices.Clip(parent.full), n.Name()), short: parent.short}
	switch n.RepetitionType() {
	case parquet.Repetitions.Optional:
		f.optional = true
		f.def++
	case parquet.Repetitions.Repeated:
		f.repeated = true
		f.def++
		f.rep++
	}
	hideChildren := false
	switch {
	case hidden:
	case f.repeated && parent.list && len(parent.full) > 0:
		// In a list of two levels the repeated field is the element itself: it is no group, or a
		// group of several members, or has one of two names.
		g, ok := n.(*schema.GroupNode)
		f.wrapper = ok && g.NumFields() == 1 && n.Name() != "array" && n.Name() != parent.name+"_tuple"
		hideChildren = f.wrapper
	case f.repeated && parent.mapped:
		g, ok := n.(*schema.GroupNode)
		f.wrapper = ok && g.NumFields() == 2
	default:
		f.short = append(slices.Clip(parent.short), n.Name())
	}
	f.later = parent.later || o.later[o.elements]
	o.elements++
	parent.children = append(parent.children, f)
	switch n := n.(type) {
	case *schema.GroupNode:
		if n.NumFields() == 1 && n.Field(0).RepetitionType() == parquet.Repetitions.Repeated {
			switch n.LogicalType().(type) {
			case schema.ListLogicalType:
				f.list = true
			case schema.MapLogicalType:
				f.mapped = true
			}
		}
		for i := range n.NumFields() {
			o.add(f, n.Field(i), hideChildren)
		}
	case *schema.PrimitiveNode:
		f.column = len(o.columns)
		f.desc = o.meta.Schema.Column(f.column)
		o.columns = append(o.columns, f)
	}
}

// Columns returns the columns in the file's order. The caller must not change the slice.
func (o *Object) Columns() []*Field { return o.columns }

// Unknown returns the fields that all extras leave out: columns whose type is from a later Parquet,
// and the lists and maps around them.
func (o *Object) Unknown() (fields []*Field) {
	for _, f := range o.columns {
		if !f.later {
			continue
		}
		for fields = append(fields, f); f.parent.list || f.parent.mapped || f.parent.wrapper; fields = append(fields, f) {
			f = f.parent
		}
	}
	return fields
}

// Name returns the name of a field for the user: its path, or its full path in the schema if Find
// returns another field for its path.
func (o *Object) Name(f *Field) string {
	short := jsondoc.JoinPath(f.short)
	if o.Find(short) == f {
		return short
	}
	return jsondoc.JoinPath(f.full)
}

// Names returns the names of all columns in the file's order.
func (o *Object) Names() []string {
	var names []string
	for _, c := range o.columns {
		names = append(names, o.Name(c))
	}
	return names
}

// Find returns the field at a path, nil if there is none. It compares the full path in the schema
// first, then Field.Path, then Field.Path without regard to case. A path that is none of these may
// be the number of a column. If several fields match, Find returns the first column, else the first
// group.
func (o *Object) Find(path string) *Field {
	if o.byPath == nil {
		o.byPath = &[2]map[string]*Field{{}, {}}
		o.root.walk(func(f *Field) {
			for i, p := range [][]string{f.full, f.short} {
				key := jsondoc.JoinPath(p)
				if first := o.byPath[i][key]; first == nil || !first.IsColumn() && f.IsColumn() {
					o.byPath[i][key] = f
				}
			}
		})
	}
	want := jsondoc.SplitPath(path)
	key := jsondoc.JoinPath(want)
	for _, m := range o.byPath {
		if f := m[key]; f != nil {
			return f
		}
	}
	var found *Field
	o.root.walk(func(f *Field) {
		if (found == nil || !found.IsColumn() && f.IsColumn()) && slices.EqualFunc(f.short, want, strings.EqualFold) {
			found = f
		}
	})
	if i, ok := raw.ColumnNumber(path); found == nil && ok && i <= len(o.columns) {
		return o.columns[i-1]
	}
	return found
}

// walk calls visit for the fields below f, a group before its fields.
func (f *Field) walk(visit func(*Field)) {
	for _, c := range f.children {
		visit(c)
		c.walk(visit)
	}
}

// columnsIn returns how many columns f is or has.
func (f *Field) columnsIn() (n int) {
	if f.IsColumn() {
		return 1
	}
	f.walk(func(c *Field) {
		if c.IsColumn() {
			n++
		}
	})
	return n
}
