package thrift

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/urlake/urlake/lake/codec"
)

// structure is the fields of a structure, with the byte that ends it.
func structure(fields ...[]byte) []byte {
	return append(bytes.Join(fields, nil), 0)
}

// field is a field whose id is delta after the one before.
func field(delta int, kind byte, value ...byte) []byte {
	return append([]byte{byte(delta)<<4 | kind}, value...)
}

// values has a field of every kind that both readers know.
func values() []byte {
	return structure(
		field(1, True),
		field(1, False),
		field(1, I8, 0xff),
		field(1, I16, 3),
		field(1, I32, 0x80, 1),
		field(1, I64, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1),
		field(1, Double, 1, 2, 3, 4, 5, 6, 7, 8),
		field(1, Binary, 3, 'a', 'b', 'c'),
		field(1, List, 2<<4|True, 1, 2),
		field(1, List, append([]byte{15<<4 | I8, 16}, make([]byte, 16)...)...),
		field(1, Struct, structure(field(15, I32, 2))...),
	)
}

// foreign has what only a lenient reader accepts.
func foreign() map[string][]byte {
	return map[string][]byte{
		"set":         structure(field(1, Set, 2<<4|I32, 2, 4)),
		"map":         structure(field(1, Map, 2, I32<<4|Binary, 2, 1, 'a', 4, 0)),
		"empty map":   structure(field(1, Map, 0)),
		"UUID":        structure(field(1, UUID, make([]byte, 16)...)),
		"explicit id": structure(field(0, I32, 40, 2)),
		"long varint": structure(field(1, I64, 0x82, 0x80, 0)),
	}
}

// skipAll skips the fields of a structure and returns their ids.
func skipAll(r Reader) (ids []int16) {
	for f := (Field{}); r.Next(&f); {
		ids = append(ids, f.ID)
		r.Skip(f)
	}
	return ids
}

func reader(data []byte, lenient bool) Reader {
	r := NewReader(data, "file", "section")
	r.Lenient = lenient
	return r
}

func TestSkipPassesOverEveryKind(t *testing.T) {
	for _, lenient := range []bool{false, true} {
		r := reader(values(), lenient)
		if ids := skipAll(r); len(ids) != 11 || ids[10] != 11 || r.Close() != nil {
			t.Errorf("lenient %v: fields %v, %v", lenient, ids, r.Close())
		}
	}
	for name, data := range foreign() {
		r := reader(data, true)
		if skipAll(r); r.Close() != nil {
			t.Errorf("%s: lenient: %v", name, r.Close())
		}
		r = reader(data, false)
		if skipAll(r); r.Err() == nil {
			t.Errorf("%s: a strict reader accepts it", name)
		}
	}
}

func TestTruncatedValuesAreFaults(t *testing.T) {
	texts := foreign()
	texts["values"] = values()
	for name, data := range texts {
		for n := range data {
			for _, lenient := range []bool{false, true} {
				r := reader(data[:n], lenient)
				if skipAll(r); !errors.Is(r.Err(), codec.ErrCorrupt) {
					t.Errorf("%s: %d of %d bytes, lenient %v: %v", name, n, len(data), lenient, r.Err())
				}
			}
		}
	}
}

func TestNoLengthExceedsTheBytesLeft(t *testing.T) {
	huge := binary.AppendUvarint(nil, math.MaxUint64)
	for name, data := range map[string][]byte{
		"list":       field(1, List, append([]byte{15<<4 | True}, huge...)...),
		"short list": field(1, List, 14<<4|True, 1),
		"set":        field(1, Set, append([]byte{15<<4 | True}, huge...)...),
		"map":        field(1, Map, huge...),
		"binary":     field(1, Binary, huge...),
	} {
		for _, lenient := range []bool{false, true} {
			r := reader(data, lenient)
			if skipAll(r); !errors.Is(r.Err(), codec.ErrCorrupt) {
				t.Errorf("%s, lenient %v: %v", name, lenient, r.Err())
			}
		}
	}
	// The number of elements is refused before anybody allocates them.
	r := reader(append([]byte{15<<4 | Struct}, huge...), true)
	if _, n := r.ListHeader(); n != 0 || r.Err() == nil {
		t.Errorf("%d elements, %v", n, r.Err())
	}
}

func TestNestingIsBounded(t *testing.T) {
	for name, open := range map[string][]byte{
		"structures": field(1, Struct),
		"lists":      {1<<4 | List},
	} {
		data := append(field(1, List), bytes.Repeat(open, 1<<20)...)
		for _, lenient := range []bool{false, true} {
			r := reader(data, lenient)
			if skipAll(r); r.Err() == nil || r.Offset() > 3*MaxDepth {
				t.Errorf("%s, lenient %v: read %d bytes, %v", name, lenient, r.Offset(), r.Err())
			}
		}
	}
}

func TestIntIsWithinItsBounds(t *testing.T) {
	for _, c := range []struct {
		value  byte // in zigzag form
		kind   uint8
		lo, hi int64
		want   int64
		ok     bool
	}{
		{4, I32, 0, 2, 2, true},
		{4, I32, 0, 1, 0, false},
		{3, I32, -2, 1, -2, true},
		{3, I32, 0, 1, 0, false},
		{4, I64, 0, 2, 0, false}, // another kind than the field's
	} {
		r := reader(structure(field(1, I32, c.value)), false)
		var f Field
		r.Next(&f)
		if got := r.Int(f, c.kind, c.lo, c.hi); got != c.want || (r.Err() == nil) != c.ok {
			t.Errorf("%+v: %d, %v", c, got, r.Err())
		}
	}
}

func TestReadingDoesNotAllocate(t *testing.T) {
	data := values()
	r := reader(data, false)
	if n := testing.AllocsPerRun(100, func() {
		*r.Decoder = *codec.NewDecoder(data, "file", "section")
		for f := (Field{}); r.Next(&f); {
			r.Skip(f)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzSkip(f *testing.F) {
	f.Add(values())
	for _, data := range foreign() {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		strict, lenient := reader(data, false), reader(data, true)
		skipAll(strict)
		skipAll(lenient)
		if strict.Err() == nil && (lenient.Err() != nil || strict.Offset() != lenient.Offset()) {
			t.Errorf("a lenient reader stops at %d, %v; a strict one at %d", lenient.Offset(), lenient.Err(), strict.Offset())
		}
	})
}
