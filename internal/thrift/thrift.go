// Package thrift reads Thrift's compact protocol, in which Parquet encodes its metadata
// (https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md).
//
// The bytes come from object stores, so nothing in them is trusted: a list, a set, a map or a
// binary cannot claim more than the bytes left can hold, nesting is bounded, and reading allocates
// nothing. A generated decoder allocates whatever a length says. The first fault is kept as a
// *codec.CorruptError; after it every read returns zeros.
//
// Package lake reads the page headers and footers of its own parts with a strict Reader; package
// lake/raw checks the footers of other programs' files with a lenient one.
package thrift

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/urlake/urlake/lake/codec"
)

// Kinds of values. As a field, a boolean is its kind and has no further byte; as an element of a
// list, set or map it is one byte.
const (
	True   = 1
	False  = 2
	I8     = 3
	I16    = 4
	I32    = 5
	I64    = 6
	Double = 7
	Binary = 8
	List   = 9
	Set    = 10
	Map    = 11
	Struct = 12
	UUID   = 13
)

// MaxDepth is the deepest nesting of a value that Skip passes over. Parquet's metadata nests less
// than ten levels deep.
const MaxDepth = 64

// Reader reads the fields of structures from the bytes of its Decoder.
type Reader struct {
	*codec.Decoder

	// Lenient accepts all of the protocol. Otherwise Reader accepts what urlake writes: numbers in
	// their shortest form, field ids that ascend by less than 16, and no sets, maps and UUIDs.
	Lenient bool
}

// NewReader returns a strict Reader of data; file and section name data in errors.
func NewReader(data []byte, file, section string) Reader {
	return Reader{Decoder: codec.NewDecoder(data, file, section)}
}

// Field is the header of a structure's field. The zero value stands before the first field.
type Field struct {
	ID   int16
	Kind uint8
}

// Next reads the header of the field after f into f. It returns false at the structure's end and
// after a fault. The caller reads or skips the field's value before it calls Next again.
func (r Reader) Next(f *Field) bool {
	b := r.U8()
	if r.Err() != nil || b&15 == 0 && (b == 0 || r.Lenient) {
		return false
	}
	delta := int16(b >> 4)
	switch {
	case r.Lenient && delta == 0:
		f.ID = int16(r.Varint())
	case !r.Lenient && (delta == 0 || f.ID > math.MaxInt16-delta):
		r.Fail("a field header", fmt.Sprintf("%#02x", b))
		return false
	default:
		f.ID += delta
	}
	f.Kind = b & 15
	return r.Err() == nil
}

// Struct consumes one structure and calls field for each of its fields. The function reads or
// skips the field's value.
func (r Reader) Struct(field func(f Field)) {
	for f := (Field{}); r.Next(&f); {
		field(f)
	}
}

// Want records a fault and returns false unless the field is of the given kind.
func (r Reader) Want(f Field, kind uint8) bool {
	if f.Kind != kind {
		r.Fail(fmt.Sprintf("field %d of type %d", f.ID, kind), fmt.Sprintf("type %d", f.Kind))
	}
	return r.Err() == nil
}

// Int reads an integer field of the given kind, whose value is between lo and hi, both included.
func (r Reader) Int(f Field, kind uint8, lo, hi int64) int64 {
	if !r.Want(f, kind) {
		return 0
	}
	v := r.Varint()
	if r.Err() == nil && (v < lo || v > hi) {
		r.Fail(fmt.Sprintf("field %d from %d to %d", f.ID, lo, hi), v)
		return 0
	}
	return v
}

// List reads the header of a list field and returns its number of elements, which must be of the
// given kind. The caller reads the elements.
func (r Reader) List(f Field, elem uint8) int {
	if !r.Want(f, List) {
		return 0
	}
	kind, n := r.ListHeader()
	if r.Err() == nil && kind != elem {
		r.Fail(fmt.Sprintf("a list of type %d", elem), fmt.Sprintf("of type %d", kind))
		return 0
	}
	return n
}

// ListHeader reads the header of a list or a set. It claims no more elements than bytes are left:
// every element takes a byte or more.
func (r Reader) ListHeader() (kind uint8, n int) {
	b := r.U8()
	if n = int(b >> 4); n == 15 {
		n = r.length()
	} else if r.Lenient && n > r.Len() {
		r.Fail(fmt.Sprintf("at most %d", r.Len()), n)
		n = 0
	}
	return b & 15, n
}

// Uvarint reads an unsigned number.
func (r Reader) Uvarint() uint64 {
	if !r.Lenient {
		return r.Decoder.Uvarint()
	}
	v, n := binary.Uvarint(r.Rest())
	if n <= 0 {
		r.Fail("a varint", "none")
		return 0
	}
	r.Bytes(n)
	return v
}

// Varint reads a signed number, which stands in zigzag form.
func (r Reader) Varint() int64 {
	u := r.Uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// length reads a number of bytes or elements, which is at most the number of bytes left.
func (r Reader) length() int {
	if !r.Lenient {
		return int(r.Uint(uint64(r.Len())))
	}
	n := r.Uvarint()
	if n > uint64(r.Len()) {
		r.Fail(fmt.Sprintf("at most %d", r.Len()), n)
		return 0
	}
	return int(n)
}

// Skip passes over a field's value.
func (r Reader) Skip(f Field) { r.skip(f.Kind, false, 0) }

func (r Reader) skip(kind uint8, inList bool, depth int) {
	if depth > MaxDepth {
		r.Fail(fmt.Sprintf("at most %d levels", MaxDepth), "more")
		return
	}
	switch {
	case kind == True, kind == False:
		if inList {
			r.U8()
		}
	case kind == I8:
		r.U8()
	case kind == I16, kind == I32, kind == I64:
		r.Uvarint()
	case kind == Double:
		r.U64()
	case kind == Binary:
		r.Bytes(r.length())
	case kind == List, kind == Set && r.Lenient:
		elem, n := r.ListHeader()
		for i := 0; i < n && r.Err() == nil; i++ {
			r.skip(elem, true, depth+1)
		}
	case kind == Struct:
		for f := (Field{}); r.Next(&f); {
			r.skip(f.Kind, false, depth+1)
		}
	case kind == Map && r.Lenient:
		r.skipMap(depth)
	case kind == UUID && r.Lenient:
		r.Bytes(16)
	default:
		r.Fail("a type that Parquet uses", kind)
	}
}

func (r Reader) skipMap(depth int) {
	n := r.length()
	if n == 0 {
		return // an empty map has no byte for its kinds
	}
	kinds := r.U8()
	for i := 0; i < n && r.Err() == nil; i++ {
		r.skip(kinds>>4, true, depth+1)
		r.skip(kinds&15, true, depth+1)
	}
}
