package parquetin

import (
	"errors"
	"fmt"

	"github.com/urlake/urlake/internal/thrift"
)

const (
	// maxFooter is the longest Parquet footer read. Those of tables with thousands of columns and row groups
	// have some MiB; decoding takes at most eight times as much.
	maxFooter = 32 << 20

	// maxParquetDepth is the deepest nesting of a Parquet schema; schemas are read by recursion.
	maxParquetDepth = 64
)

var errFooter = errors.New("the footer is damaged")

// CheckFooter walks over a Parquet footer before it is decoded: decoders allocate what a length says and
// follow a schema's nesting, so that no length may be more than the bytes behind it can hold and no
// schema other than a tree of bounded depth.
func CheckFooter(footer []byte) error {
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
