package parquetin

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	// maxFooter is the longest Parquet footer read. Those of tables with thousands of columns and row groups
	// have some MiB; decoding takes at most eight times as much.
	maxFooter = 32 << 20

	// maxParquetDepth is the deepest nesting of a Parquet schema; schemas are read by recursion.
	maxParquetDepth = 64
)

// The types of the Thrift compact protocol
// (https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md).
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
	thriftUUID   = 13
)

var errFooter = errors.New("the footer is damaged")

// checkFooter walks over a Parquet footer before it is decoded: decoders allocate what a length says and
// follow a schema's nesting, so that no length may be more than the bytes behind it can hold and no
// schema other than a tree of bounded depth.
func CheckFooter(footer []byte) error {
	w := &thriftWalker{b: footer}
	var children []int32
	schemas := 0
	err := w.fields(0, func(id int16, typ byte) error {
		if id != 2 || typ != thriftList { // FileMetaData.schema
			return w.skip(typ, 1)
		}
		schemas++
		elem, n, err := w.list()
		if err != nil || elem != thriftStruct {
			return errFooter
		}
		for range n {
			count := int32(0)
			err := w.fields(2, func(id int16, typ byte) error {
				if id != 5 || typ != thriftI32 { // SchemaElement.num_children
					return w.skip(typ, 3)
				}
				v, err := w.varint()
				count = int32(v>>1) ^ -int32(v&1)
				return err
			})
			if err != nil {
				return err
			}
			children = append(children, count)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if schemas != 1 {
		return errFooter
	}
	var open []int32 // children yet to come, a level an element
	for i, n := range children {
		for len(open) > 0 && open[len(open)-1] == 0 {
			open = open[:len(open)-1]
		}
		if i > 0 {
			if len(open) == 0 {
				return errFooter
			}
			open[len(open)-1]--
		}
		if n < 0 || int(n) > len(children)-i-1 {
			return errFooter
		}
		if len(open) > maxParquetDepth {
			return fmt.Errorf("the schema is nested more than %d levels deep", maxParquetDepth)
		}
		open = append(open, n)
	}
	for _, n := range open {
		if n != 0 {
			return errFooter
		}
	}
	return nil
}

// thriftWalker passes over values of the compact protocol.
type thriftWalker struct {
	b []byte
	i int
}

func (w *thriftWalker) byte() (byte, error) {
	if w.i >= len(w.b) {
		return 0, errFooter
	}
	w.i++
	return w.b[w.i-1], nil
}

func (w *thriftWalker) varint() (uint64, error) {
	v, n := binary.Uvarint(w.b[w.i:])
	if n <= 0 {
		return 0, errFooter
	}
	w.i += n
	return v, nil
}

func (w *thriftWalker) pass(n uint64) error {
	if n > uint64(len(w.b)-w.i) {
		return errFooter
	}
	w.i += int(n)
	return nil
}

// fields calls f, which has to consume the value, for each field of the struct that stands here.
func (w *thriftWalker) fields(depth int, f func(id int16, typ byte) error) error {
	if depth > maxParquetDepth {
		return errFooter
	}
	id := int16(0)
	for {
		head, err := w.byte()
		if err != nil {
			return err
		}
		if head&0x0f == 0 {
			return nil
		}
		if delta := head >> 4; delta > 0 {
			id += int16(delta)
		} else {
			v, err := w.varint()
			if err != nil {
				return err
			}
			id = int16(v>>1) ^ -int16(v&1)
		}
		if err := f(id, head&0x0f); err != nil {
			return err
		}
	}
}

// list reads the head of a list. An element has at least a byte.
func (w *thriftWalker) list() (elem byte, n int, err error) {
	head, err := w.byte()
	if err != nil {
		return 0, 0, err
	}
	size := uint64(head >> 4)
	if size == 15 {
		if size, err = w.varint(); err != nil {
			return 0, 0, err
		}
	}
	if size > uint64(len(w.b)-w.i) {
		return 0, 0, errFooter
	}
	return head & 0x0f, int(size), nil
}

// skip passes a field's value.
func (w *thriftWalker) skip(typ byte, depth int) error {
	switch typ {
	case thriftTrue, thriftFalse:
		return nil // the type is the value
	case thriftList, thriftSet:
		elem, n, err := w.list()
		if err != nil {
			return err
		}
		for range n {
			if err := w.element(elem, depth); err != nil {
				return err
			}
		}
		return nil
	case thriftMap:
		n, err := w.varint()
		if err != nil || n == 0 {
			return err
		}
		types, err := w.byte()
		if err != nil || n > uint64(len(w.b)-w.i) {
			return errFooter
		}
		for range n {
			if err := w.element(types>>4, depth); err != nil {
				return err
			}
			if err := w.element(types&0x0f, depth); err != nil {
				return err
			}
		}
		return nil
	case thriftStruct:
		return w.fields(depth, func(_ int16, typ byte) error { return w.skip(typ, depth+1) })
	}
	return w.element(typ, depth)
}

// element passes a value inside a list or map, where also truth values have a byte.
func (w *thriftWalker) element(typ byte, depth int) error {
	switch {
	case typ == thriftTrue, typ == thriftFalse, typ == thriftByte:
		return w.pass(1)
	case typ > thriftByte && typ <= thriftI64:
		_, err := w.varint()
		return err
	case typ == thriftDouble:
		return w.pass(8)
	case typ == thriftUUID:
		return w.pass(16)
	case typ == thriftBinary:
		n, err := w.varint()
		if err != nil {
			return err
		}
		return w.pass(n)
	case typ >= thriftList && typ <= thriftStruct && depth < maxParquetDepth:
		return w.skip(typ, depth+1)
	}
	return errFooter
}
