package parquetin_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/reader"
)

// emptyFile returns a Parquet file without rows, whose schema has the elements of these names below
// its root: INT32 columns, the first one of strings. If group is set, they are in a group of that
// name. The footer is written by hand, in Thrift's compact protocol: the upper half of a field's
// header is the difference between its number and the previous field's.
func emptyFile(group string, names []string) []byte {
	b := []byte{0x15, 2, 0x19} // version 1, the schema
	elements := len(names) + 1
	if group != "" {
		elements++
	}
	b = binary.AppendUvarint(append(b, 0xfc), uint64(elements))
	element := func(name string, children int, kind, repetition byte) {
		if children < 0 {
			b = append(b, 0x15, kind, 0x25, repetition, 0x18)
		} else {
			b = append(b, 0x35, repetition, 0x18)
		}
		b = append(binary.AppendUvarint(b, uint64(len(name))), name...)
		if children >= 0 {
			b = binary.AppendVarint(append(b, 0x15), int64(children))
		}
		b = append(b, 0)
	}
	if group == "" {
		element("schema", len(names), 0, 0)
	} else {
		element("schema", 1, 0, 0)
		element(group, len(names), 0, 0)
	}
	for i, name := range names {
		kind := byte(2) // INT32
		if i == 0 {
			kind = 12 // BYTE_ARRAY
		}
		element(name, -1, kind, 2) // optional
	}
	b = append(b, 0x16, 0, 0x19, 0x0c, 0) // no rows, no row groups
	file := append([]byte("PAR1"), b...)
	return append(binary.LittleEndian.AppendUint32(file, uint32(len(b))), "PAR1"...)
}

// columnNames returns n names of columns. The first one may hold URLs.
func columnNames(n int) []string {
	names := []string{"url"}
	for i := range n - 1 {
		names = append(names, fmt.Sprintf("column_%d", i))
	}
	return names
}

// TestSchemasAreReadInLinearTime opens files whose schemas have as many columns as may be, in a
// fraction of a second. Quadratic time would be a minute.
func TestSchemasAreReadInLinearTime(t *testing.T) {
	var took [2]time.Duration
	for i, n := range []int{14_900, 149_000} {
		data := emptyFile("", columnNames(n))
		start := time.Now()
		r, err := reader.New(bytes.NewReader(data), "a.parquet", raw.Options{})
		took[i] = time.Since(start)
		if err != nil {
			t.Fatalf("%d columns, %d bytes: %v", n, len(data), err)
		}
		if plan := r.Plan(); plan.Format != raw.Parquet {
			t.Errorf("%d columns: %+v", n, plan)
		}
	}
	if took[1] > 50*took[0] {
		t.Errorf("10 times as many columns take %v instead of %v", took[1], took[0])
	}
	_, err := reader.New(bytes.NewReader(emptyFile("", columnNames(20_000))), "a.parquet", raw.Options{Extras: []string{"*"}, URLColumn: "url"})
	if err == nil || !strings.Contains(err.Error(), "20000 columns, more than 256") {
		t.Errorf("all of 20,000 columns: %v", err)
	}
	// A long name that is part of every path.
	data := emptyFile(strings.Repeat("g", 100_000), columnNames(10_000))
	if _, err := reader.New(bytes.NewReader(data), "a.parquet", raw.Options{}); !errors.Is(err, raw.ErrInput) || !strings.Contains(err.Error(), "too many columns") {
		t.Errorf("long paths: %v", err)
	}
	if _, err := reader.New(bytes.NewReader(data), "a.parquet", raw.Options{LowMemory: true}); !errors.Is(err, raw.ErrLowMemory) {
		t.Errorf("long paths in little memory: %v", err)
	}
}
