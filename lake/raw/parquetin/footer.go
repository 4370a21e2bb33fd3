package parquetin

import (
	"errors"
	"fmt"

	"github.com/urlake/urlake/internal/thrift"
)

const (
	// maxFooter is the size of the longest footer that is read. The footers of tables with
	// thousands of columns and row groups have a few MiB. Decoding takes at most eight times the
	// size.
	maxFooter = 32 << 20

	// maxSchemaDepth is the deepest nesting of a schema: schemas are read by recursion.
	maxSchemaDepth = 64
)

var errFooter = errors.New("the footer is damaged")

// checkFooter checks a footer before it is decoded, because a decoder allocates what a length says
// and recurses as deep as the schema is nested. No length may exceed the bytes left, and the schema
// must be one tree of at most maxSchemaDepth levels.
func checkFooter(footer []byte) error {
	r := thrift.NewReader(footer, "", "footer")
	r.Lenient = true
	var children []int32
	schemas := 0
	r.Struct(func(f thrift.Field) {
		if f.ID != 2 || f.Kind != thrift.List { // FileMetaData.schema
			r.Skip(f)
			return
		}
		schemas++
		elem, n := r.ListHeader()
		if elem != thrift.Struct {
			r.Fail("a list of schema elements", elem)
		}
		for i := 0; i < n && r.Err() == nil; i++ {
			count := int32(0)
			r.Struct(func(f thrift.Field) {
				if f.ID != 5 || f.Kind != thrift.I32 { // SchemaElement.num_children
					r.Skip(f)
					return
				}
				count = int32(r.Varint())
			})
			children = append(children, count)
		}
	})
	if r.Err() != nil || schemas != 1 {
		return errFooter
	}
	var open []int32 // for every open level, how many children are still to come
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
		if len(open) > maxSchemaDepth {
			return fmt.Errorf("the schema is nested more than %d levels deep", maxSchemaDepth)
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
