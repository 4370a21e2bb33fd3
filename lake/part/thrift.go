package part

import (
	"fmt"
	"math"

	"github.com/urlake/urlake/lake/codec"
)

// Parquet's metadata is in Thrift's compact protocol (apache/thrift,
// doc/specs/thrift-compact-protocol.md). parquet-go writes it but does not read it here, because
// its decoder allocates as much as a list claims to hold, and these bytes come from object stores.
// This reader allocates nothing. A list cannot claim more elements than there are bytes left, and
// everything that the writer of parts does not write is rejected.

// Type codes of the compact protocol.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftI8     = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftStruct = 12
)

// thriftDepth bounds the nesting of skipped values. Parquet's metadata nests less than half as
// deep.
const thriftDepth = 16

// thriftReader reads the compact protocol. An error sticks, and reads after it return zeros.
type thriftReader struct{ *codec.Decoder }

// thriftField is the header of a structure's field. The zero value is the position before the
// first.
type thriftField struct {
	id   int16
	kind uint8
}

// next reads the header of the next field. It returns false at the end of the structure and after
// an error.
func (r thriftReader) next(f *thriftField) bool {
	b := r.U8()
	if r.Err() != nil || b == 0 {
		return false
	}
	// Ids ascend by less than 16 in all of Parquet's structures. The form without a delta is never
	// written, and it could repeat a field.
	delta := int16(b >> 4)
	if delta == 0 || f.id > math.MaxInt16-delta {
		r.Fail("a field header", fmt.Sprintf("%#02x", b))
		return false
	}
	f.id += delta
	f.kind = b & 15
	return true
}

// want fails unless the field is of the given kind.
func (r thriftReader) want(f thriftField, kind uint8) bool {
	if f.kind != kind {
		r.Fail(fmt.Sprintf("field %d of type %d", f.id, kind), fmt.Sprintf("type %d", f.kind))
	}
	return r.Err() == nil
}

// int reads an integer field, which has to be in [lo, hi].
func (r thriftReader) int(f thriftField, kind uint8, lo, hi int64) int64 {
	if !r.want(f, kind) {
		return 0
	}
	v := r.Varint()
	if r.Err() == nil && (v < lo || v > hi) {
		r.Fail(fmt.Sprintf("field %d from %d to %d", f.id, lo, hi), v)
		return 0
	}
	return v
}

// list reads the header of a list of elements of the given kind.
func (r thriftReader) list(f thriftField, elem uint8) int {
	if !r.want(f, thriftList) {
		return 0
	}
	kind, n := r.listHeader()
	if r.Err() == nil && kind != elem {
		r.Fail(fmt.Sprintf("a list of type %d", elem), fmt.Sprintf("of type %d", kind))
		return 0
	}
	return n
}

func (r thriftReader) listHeader() (kind uint8, n int) {
	b := r.U8()
	if n = int(b >> 4); n == 15 {
		n = int(r.Uint(uint64(r.Len()))) // every element takes a byte or more
	}
	return b & 15, n
}

// skip reads and ignores a field's value.
func (r thriftReader) skip(f thriftField) { r.skipValue(f.kind, false, 0) }

func (r thriftReader) skipValue(kind uint8, inList bool, depth int) {
	if depth > thriftDepth {
		r.Fail(fmt.Sprintf("at most %d levels", thriftDepth), "more")
		return
	}
	switch kind {
	case thriftTrue, thriftFalse:
		if inList { // as a field, the type is the value
			r.U8()
		}
	case thriftI8:
		r.U8()
	case thriftI16, thriftI32, thriftI64:
		r.Uvarint()
	case thriftDouble:
		r.U64()
	case thriftBinary:
		r.Bytes(int(r.Uint(uint64(r.Len()))))
	case thriftList:
		elem, n := r.listHeader()
		for i := 0; i < n && r.Err() == nil; i++ {
			r.skipValue(elem, true, depth+1)
		}
	case thriftStruct:
		for f := (thriftField{}); r.next(&f); {
			r.skipValue(f.kind, false, depth+1)
		}
	default:
		r.Fail("a type that Parquet uses", kind)
	}
}

// structure reads a structure and calls field for each of its fields. field reads or skips the
// value.
func (r thriftReader) structure(field func(f thriftField)) {
	for f := (thriftField{}); r.next(&f); {
		field(f)
	}
}
