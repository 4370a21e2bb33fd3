package parquetin

import (
	"errors"
	"fmt"

	"github.com/urlake/urlake/internal/thrift"
)

const (
	// maxFooter is the size of the longest footer that is read. The footers of tables with
	// thousands of columns and row groups have a few MiB.
	maxFooter = 32 << 20

	// maxFooterMemory is how many bytes a decoded footer may take, by the estimates below. It is
	// enough for some 150,000 columns, counted in every row group, and lowFooterMemory for 6,000.
	maxFooterMemory = 192 << 20
	lowFooterMemory = 8 << 20

	// The last types that this build, and arrow-go, know: of parquet.thrift, version 2.12.
	lastType, lastConvertedType, lastLogicalType = 7, 21, 18

	// maxSchemaDepth is the deepest nesting of a schema: schemas are read by recursion.
	maxSchemaDepth = 64
)

// What the values of a footer take at least when they are decoded, in bytes: an element of the
// schema with the field and the nodes that are made of it, any other structure, and a string or a
// number in a list. A footer of a byte each for a million of them is a small file.
const (
	schemaElementMemory = 1024
	pathMemory          = 3 // for each byte of the path to an element
	structMemory        = 160
	elementMemory       = 48
)

var errFooter = errors.New("the footer is damaged")

// errFooterMemory is the error of a footer that is sound, but takes more memory than it may.
var errFooterMemory = errors.New("its footer describes too many columns and row groups")

// footerWalk goes through a footer once, without allocating what it describes.
type footerWalk struct {
	thrift.Reader
	children []int32 // of each element of the schema
	names    []int32 // the bytes of each one's name
	footer   []byte
	// later has the elements whose type this build does not know.
	later   map[int]bool
	schemas int
	// left is how many bytes of memory are left for the decoded footer.
	left int64
}

// take counts bytes of memory. It ends the walk when too many are counted.
func (w *footerWalk) take(n int64) {
	if w.left -= n; w.left < 0 {
		w.Fail("a footer that fits into memory", "more")
	}
}

// value walks through a value of the kind given, in a list or in a structure.
func (w *footerWalk) value(kind uint8, inList bool, depth int) {
	switch {
	case depth > thrift.MaxDepth:
		w.Fail(fmt.Sprintf("at most %d levels", thrift.MaxDepth), "more")
	case kind == thrift.Struct:
		w.take(structMemory)
		w.Struct(func(f thrift.Field) { w.value(f.Kind, false, depth+1) })
	case kind == thrift.List || kind == thrift.Set:
		elem, n := w.ListHeader()
		w.take(int64(n) * elementMemory)
		for i := 0; i < n && w.Err() == nil; i++ {
			w.value(elem, true, depth+1)
		}
	case kind == thrift.Map:
		// Parquet's footers have none, so a decoder skips it.
		w.Skip(thrift.Field{Kind: kind})
	case inList && (kind == thrift.True || kind == thrift.False):
		w.U8()
	default:
		before := w.Len()
		w.Skip(thrift.Field{Kind: kind})
		w.take(int64(before - w.Len()))
	}
}

// schema walks through FileMetaData.schema.
func (w *footerWalk) schema() {
	w.schemas++
	elem, n := w.ListHeader()
	if elem != thrift.Struct {
		w.Fail("a list of schema elements", elem)
	}
	for i := 0; i < n && w.Err() == nil; i++ {
		w.take(schemaElementMemory)
		count, name := int32(0), int32(0)
		w.Struct(func(f thrift.Field) {
			before := w.Len()
			switch {
			case f.ID == 1 && f.Kind == thrift.I32: // SchemaElement.type
				if t := w.Varint(); t < 0 || t > lastType {
					w.later[i] = true
				}
			case f.ID == 5 && f.Kind == thrift.I32: // SchemaElement.num_children
				count = int32(w.Varint())
			case f.ID == 6 && f.Kind == thrift.I32: // SchemaElement.converted_type
				if t := w.Varint(); t < 0 || t > lastConvertedType || w.later[i] {
					w.hide(i, before)
				}
			case f.ID == 10 && f.Kind == thrift.Struct: // SchemaElement.logicalType
				if !w.logicalType() || w.later[i] {
					w.hide(i, before)
				}
			default:
				w.value(f.Kind, false, 1)
				if f.ID == 4 { // SchemaElement.name
					name = int32(before - w.Len())
				}
			}
		})
		w.children, w.names = append(w.children, count), append(w.names, name)
	}
}

// logicalType walks through the union SchemaElement.logicalType, and reports whether its member is
// known, and the unit of a time too.
func (w *footerWalk) logicalType() (known bool) {
	w.take(structMemory)
	w.Struct(func(member thrift.Field) {
		known = member.ID >= 1 && member.ID <= lastLogicalType && member.ID != 9 && member.Kind == thrift.Struct
		if !known || member.ID != 7 && member.ID != 8 { // TIME and TIMESTAMP
			w.value(member.Kind, false, 2)
			return
		}
		known = false
		w.take(structMemory)
		w.Struct(func(f thrift.Field) {
			if f.ID != 2 || f.Kind != thrift.Struct {
				w.value(f.Kind, false, 3)
				return
			}
			w.Struct(func(unit thrift.Field) {
				known = unit.ID >= 1 && unit.ID <= 3
				w.value(unit.Kind, false, 4)
			})
		})
	})
	return known
}

// hide makes a decoder skip the annotation of an element whose value is followed by so many bytes,
// the value and all behind it: of an i32 it makes an i64, which is encoded alike, and of the last
// field of an element, logicalType, one with an unknown number.
func (w *footerWalk) hide(element, left int) {
	w.later[element] = true
	header := w.footer[:len(w.footer)-left]
	last := len(header) - 1
	switch {
	case header[last]&0x0f == thrift.I32: // of field 6 in a long header, the last byte is 12
		header[last]++
	case header[last]&0x0f == thrift.Struct && header[last] != 12:
		header[last] |= 0xf0
	case header[last] == 12:
		header[last-1]++
	default:
		header[last] = 0x7e // field 63
	}
}

// checkFooter checks a footer before it is decoded, because a decoder allocates what a length says
// and recurses as deep as the schema is nested. No length may exceed the bytes left, the schema
// must be one tree of at most maxSchemaDepth levels, and all that is decoded must fit into the
// memory given.
//
// It returns the elements of the schema whose type this build does not know, as later versions of
// Parquet have them, and makes their annotations unknown fields in footer, so that a decoder takes
// the columns for plain bytes and numbers.
func checkFooter(footer []byte, memory int64) (later map[int]bool, err error) {
	w := footerWalk{Reader: thrift.NewReader(footer, "", "footer"), left: memory, footer: footer, later: map[int]bool{}}
	w.Lenient = true
	w.Struct(func(f thrift.Field) {
		if f.ID == 2 && f.Kind == thrift.List { // FileMetaData.schema
			w.schema()
		} else {
			w.value(f.Kind, false, 0)
		}
	})
	if w.left < 0 {
		return nil, errFooterMemory
	}
	if w.Err() != nil || w.schemas != 1 {
		return nil, errFooter
	}
	children := w.children
	var open []int32  // for every open level, how many children are still to come
	var paths []int64 // for every open level, the bytes of its path
	for i, n := range children {
		for len(open) > 0 && open[len(open)-1] == 0 {
			open, paths = open[:len(open)-1], paths[:len(paths)-1]
		}
		if i > 0 {
			if len(open) == 0 {
				return nil, errFooter
			}
			open[len(open)-1]--
		}
		if n < 0 || int(n) > len(children)-i-1 {
			return nil, errFooter
		}
		if len(open) > maxSchemaDepth {
			return nil, fmt.Errorf("the schema is nested more than %d levels deep", maxSchemaDepth)
		}
		// A decoder makes a string of every path, and so does Object.Find.
		size := int64(w.names[i])
		if len(paths) > 0 {
			size += paths[len(paths)-1]
		}
		if w.left -= pathMemory * size; w.left < 0 {
			return nil, errFooterMemory
		}
		open, paths = append(open, n), append(paths, size)
	}
	for _, n := range open {
		if n != 0 {
			return nil, errFooter
		}
	}
	return w.later, nil
}
