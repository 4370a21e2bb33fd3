package parquetin

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/schema"
	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/jsondoc"
	"github.com/urlake/urlake/lake/raw/unpack"
)

var (
	Magic            = []byte("PAR1")
	encryptedParquet = []byte("PARE")
)

// randomAccess is what a reader may have beside Read, counted from its object's first byte.
type RandomAccess interface {
	io.ReaderAt
	Size() int64
}

// parquetBytes is a Parquet object as arrow-go wants it. Errors of the reader below are told
// apart from places that lie outside of the object.
type Bytes struct {
	At   io.ReaderAt
	Size int64
	Src  *unpack.Source
}

func (b Bytes) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > b.Size {
		return 0, errors.New("a column begins outside of the file")
	}
	n, err := b.At.ReadAt(p[:min(int64(len(p)), b.Size-off)], off)
	if err != nil && err != io.EOF {
		b.Src.Err = err
	}
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// Seek is only asked where a footer has to be found, which is found already.
func (b Bytes) Seek(int64, int) (int64, error) { return 0, errors.ErrUnsupported }

// guarded runs code of the Parquet library that decodes what, the footer or pages. It panics on some damaged files; what
// it panics with speaks of the library's code, not of the file.
func guarded(what string, f func() error) (err error) {
	damaged := fmt.Errorf("the Parquet file is damaged: its %s cannot be decoded", what)
	defer func() {
		if recover() != nil {
			err = damaged
		}
	}()
	err = f()
	// Some panics the library catches itself.
	var fault runtime.Error
	if errors.As(err, &fault) {
		return damaged
	}
	return err
}

// parquetObject is an opened Parquet file.
type Object struct {
	bytes Bytes
	Meta  *metadata.FileMetaData
	root  *Field
	// leaves are the columns in the file's order.
	Leaves []*Field
}

// parquetNode is a group or column of the schema.
type Field struct {
	Name   string
	parent *Field
	// full is the path in the schema, short the one without what only makes a list or map
	// (https://github.com/apache/parquet-format/blob/master/LogicalTypes.md).
	Full, Short        []string
	optional, Repeated bool
	list, mapped       bool  // the logical type
	wrapper            bool  // the repeated group of a three-level list, or of a map
	def, rep           int16 // the levels at which it is there
	children           []*Field
	Leaf               int // number of the column, -1 of a group
	Desc               *schema.Column
}

// openParquet reads the footer.
func Open(name string, b Bytes) (*Object, error) {
	tail := make([]byte, 8)
	if b.Size < 12 {
		return nil, io.ErrUnexpectedEOF
	}
	if _, err := b.ReadAt(tail, b.Size-8); err != nil {
		return nil, err
	}
	size := int64(binary.LittleEndian.Uint32(tail))
	switch {
	case bytes.Equal(tail[4:], encryptedParquet):
		return nil, &raw.FormatError{Name: name, Reason: "it is an encrypted Parquet file", Advice: "decrypt it first"}
	case !bytes.Equal(tail[4:], Magic):
		// It begins as one: the end is missing.
		return nil, io.ErrUnexpectedEOF
	case size > b.Size-12:
		return nil, fmt.Errorf("the footer is said to have %d bytes, of a file of %d", size, b.Size)
	case size > littleFooter && b.Src.LowMemory:
		return nil, raw.ErrLowMemory
	case size > maxFooter:
		return nil, &raw.FormatError{Name: name, Reason: fmt.Sprintf("its footer has %d MiB, more than %d", size>>20, maxFooter>>20), Advice: "write it as several files"}
	}
	footer := make([]byte, size)
	if _, err := b.ReadAt(footer, b.Size-8-size); err != nil {
		return nil, err
	}
	if err := CheckFooter(footer); err != nil {
		return nil, err
	}
	o := &Object{bytes: b}
	err := guarded("footer", func() (err error) {
		if o.Meta, err = metadata.NewFileMetaData(footer, nil); err != nil {
			return err
		}
		o.Meta.SetSourceFileSize(b.Size)
		o.root = &Field{Leaf: -1}
		for i := range o.Meta.Schema.Root().NumFields() {
			o.add(o.root, o.Meta.Schema.Root().Field(i), false)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if o.Meta.IsSetEncryptionAlgorithm() {
		return nil, &raw.FormatError{Name: name, Reason: "it is an encrypted Parquet file", Advice: "decrypt it first"}
	}
	if len(o.Leaves) != o.Meta.Schema.NumColumns() {
		return nil, errFooter
	}
	return o, nil
}

// add takes a node of the schema over. Hidden nodes, the element of a three-level list, have no name of their own.
func (o *Object) add(parent *Field, n schema.Node, hidden bool) {
	p := &Field{Name: n.Name(), parent: parent, def: parent.def, rep: parent.rep, Leaf: -1,
		Full: append(slices.Clip(parent.Full), n.Name()), Short: parent.Short}
	switch n.RepetitionType() {
	case parquet.Repetitions.Optional:
		p.optional = true
		p.def++
	case parquet.Repetitions.Repeated:
		p.Repeated = true
		p.def++
		p.rep++
	}
	hideChildren := false
	switch {
	case hidden:
	case p.Repeated && parent.list && len(parent.Full) > 0:
		// The element itself in lists of two levels: no group, of several members, or of a name that says so.
		g, ok := n.(*schema.GroupNode)
		p.wrapper = ok && g.NumFields() == 1 && n.Name() != "array" && n.Name() != parent.Name+"_tuple"
		hideChildren = p.wrapper
	case p.Repeated && parent.mapped:
		g, ok := n.(*schema.GroupNode)
		p.wrapper = ok && g.NumFields() == 2
	default:
		p.Short = append(slices.Clip(parent.Short), n.Name())
	}
	parent.children = append(parent.children, p)
	switch n := n.(type) {
	case *schema.GroupNode:
		if n.NumFields() == 1 && n.Field(0).RepetitionType() == parquet.Repetitions.Repeated {
			switch n.LogicalType().(type) {
			case schema.ListLogicalType:
				p.list = true
			case schema.MapLogicalType:
				p.mapped = true
			}
		}
		for i := range n.NumFields() {
			o.add(p, n.Field(i), hideChildren)
		}
	case *schema.PrimitiveNode:
		p.Leaf = len(o.Leaves)
		p.Desc = o.Meta.Schema.Column(p.Leaf)
		o.Leaves = append(o.Leaves, p)
	}
}

// name is how a column is called: by its short path, if no other goes by it.
func (o *Object) Name(n *Field) string {
	short := jsondoc.JoinPath(n.Short)
	if o.Find(short) == n {
		return short
	}
	return jsondoc.JoinPath(n.Full)
}

// names are those of all columns.
func (o *Object) Names() []string {
	var s []string
	for _, l := range o.Leaves {
		s = append(s, o.Name(l))
	}
	return s
}

// find returns the node a path means, nil for none: by its path in the schema, then by its short path, then without
// regard to case; else by a column's number.
func (o *Object) Find(path string) *Field {
	want := jsondoc.SplitPath(path)
	for _, equal := range []func(n *Field) bool{
		func(n *Field) bool { return slices.Equal(n.Full, want) },
		func(n *Field) bool { return slices.Equal(n.Short, want) },
		func(n *Field) bool { return slices.EqualFunc(n.Short, want, strings.EqualFold) },
	} {
		if n := findNode(o.root, equal); n != nil {
			return n
		}
	}
	if i, ok := raw.ColumnNumber(path); ok && i <= len(o.Leaves) {
		return o.Leaves[i-1]
	}
	return nil
}

// findNode prefers columns to groups and upper nodes to lower ones of the same path.
func findNode(n *Field, equal func(*Field) bool) *Field {
	var group *Field
	var walk func(n *Field) *Field
	walk = func(n *Field) *Field {
		for _, c := range n.children {
			if equal(c) {
				if c.Leaf >= 0 {
					return c
				}
				if group == nil {
					group = c
				}
			}
			if found := walk(c); found != nil {
				return found
			}
		}
		return nil
	}
	if leaf := walk(n); leaf != nil {
		return leaf
	}
	return group
}

// groups returns where the row groups begin, as far as each lies behind the one before; none where the footer
// does not say so of all.
func (o *Object) Groups() []raw.Boundary {
	var out []raw.Boundary
	last := int64(0)
	for i, g := range o.Meta.RowGroups {
		at := o.bytes.Size
		for _, c := range g.Columns {
			if c == nil || c.MetaData == nil {
				return nil
			}
			at = min(at, c.MetaData.DataPageOffset)
			if d := c.MetaData.DictionaryPageOffset; d != nil && *d > 0 { // some writers have 0 for none
				at = min(at, *d)
			}
		}
		if g.NumRows < 0 {
			return nil
		}
		if at > last && at < o.bytes.Size {
			out = append(out, raw.Boundary{Offset: int64(i), Stored: at})
			last = at
		}
	}
	return out
}

// reader returns arrow-go's reader, with limits for so many columns.
func (o *Object) Reader(columns int) (*file.Reader, error) {
	columns = max(columns, 1)
	props := parquet.NewReaderProperties(memory.NewGoAllocator())
	props.BufferedStreamEnabled = true
	props.BufferSize = int64(min(max(parquetReads/columns, 64<<10), 1<<20))
	props.MaxUncompressedPageSize = min(int64(max(parquetPages/columns, minParquetPage)), o.bytes.Src.Limit(maxParquetPage, littlePage))
	props.MaxCompressedPageSize = props.MaxUncompressedPageSize
	var r *file.Reader
	err := guarded("footer", func() (err error) {
		r, err = file.NewParquetReader(o.bytes, file.WithMetadata(o.Meta), file.WithReadProps(props))
		return err
	})
	return r, err
}

// isLakePart knows a part by who wrote it and by its columns.
func (o *Object) IsLakePart() bool {
	if !strings.HasPrefix(o.Meta.GetCreatedBy(), "urlake ") {
		return false
	}
	for _, c := range lakePartColumns {
		n := o.Find(c.name)
		if n == nil || n.Leaf < 0 || len(n.Full) != 1 || n.Repeated || KindOf(n.Desc) != c.kind {
			return false
		}
	}
	return true
}

// holds reports whether n is in the part of the schema below node.
func (node *Field) holds(n *Field) bool {
	for n = n.parent; n != nil; n = n.parent {
		if n == node {
			return true
		}
	}
	return false
}
