package parquetin

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// A delta-encoded page cannot claim more values than it has bytes for.
func TestSkipDelta(t *testing.T) {
	delta := func(v ...uint64) []byte {
		var b []byte
		for _, n := range v {
			b = binary.AppendUvarint(b, n)
		}
		return b
	}
	// Three values 7, 8, 9: one block of four miniblocks, deltas 1 of width 0.
	good := append(delta(128, 4, 3, 14), append(delta(2), 0, 0, 0, 0)...)
	if rest, n, err := skipDelta(append(bytes.Clone(good), "rest"...)); err != nil || string(rest) != "rest" || n != 3 {
		t.Errorf("%d values, bytes behind the sequence: %q, %v", n, rest, err)
	}
	for name, b := range map[string][]byte{
		"a block of four billion values": delta(1<<32-128, 1, 3, 14, 2, 0),
		"two billion values":             append(delta(128, 4, 1<<31, 14), append(delta(2), 0, 0, 0, 0)...),
		"no miniblocks":                  delta(128, 0, 3, 14, 2, 0),
		"widths over 64":                 append(delta(128, 4, 3, 14, 2), 65, 0, 0, 0),
		"an end inside a block":          good[:len(good)-2],
	} {
		if _, _, err := skipDelta(b); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// onePage is a PageReader without pages.
type onePage struct{ file.PageReader }

func (onePage) Close() error { return nil }

// TestPagesStayWithinTheBudget checks pages of few bytes whose values take much memory.
func TestPagesStayWithinTheBudget(t *testing.T) {
	column := func(kind parquet.Type, length int) *schema.Column {
		n, err := schema.NewPrimitiveNode("c", parquet.Repetitions.Required, kind, -1, int32(length))
		if err != nil {
			t.Fatal(err)
		}
		return schema.NewColumn(n, 0, 0)
	}
	delta := func(values uint64) []byte { // all deltas are 0
		b := binary.AppendUvarint(binary.AppendUvarint(nil, 1<<16), 1)
		b = append(binary.AppendUvarint(b, values), 0)
		for n := int64(values) - 1; n > 0; n -= 1 << 16 {
			b = append(b, 0, 0)
		}
		return b
	}
	const values = 1 << 22
	text := column(parquet.Types.ByteArray, -1)
	page := func(encoding parquet.Encoding, data []byte) file.Page {
		return file.NewDataPageV1(memory.NewBufferBytes(data), values, encoding, encoding, encoding, int32(len(data)))
	}
	for name, c := range map[string]struct {
		column *schema.Column
		page   file.Page
		need   int64 // the least that a decoder allocates
	}{
		"a dictionary of empty strings": {text,
			file.NewDictionaryPage(memory.NewBufferBytes(make([]byte, 4*values)), values, parquet.Encodings.Plain), 24 * values},
		"lengths": {text, page(parquet.Encodings.DeltaLengthByteArray, delta(values)), 4 * values},
		"prefixes and suffixes": {text, page(parquet.Encodings.DeltaByteArray, append(delta(values), delta(values)...)),
			8 * values},
		"prefixes of a long string": {text, page(parquet.Encodings.DeltaByteArray,
			append(append(delta(64), delta(64)...), make([]byte, 4<<20)...)), 16 << 20},
		"wide values": {column(parquet.Types.FixedLenByteArray, 64<<10), page(parquet.Encodings.ByteStreamSplit, nil), 64 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			b := &budget{limit: 1 << 40}
			pages := &checkedPages{PageReader: onePage{}, desc: c.column, budget: b}
			if err := pages.check(c.page); err != nil {
				t.Fatal(err)
			}
			if b.used < c.need || b.used > 2*c.need+1<<20 {
				t.Errorf("%d bytes taken for a decoder that allocates %d", b.used, c.need)
			}
			if err := pages.Close(); err != nil || b.used != 0 {
				t.Errorf("%d bytes taken after the end, %v", b.used, err)
			}
			b.limit = c.need - 1
			var refused *budgetError
			if err := pages.check(c.page); !errors.As(err, &refused) {
				t.Errorf("with less memory: error %v", err)
			}
		})
	}
}

// TestGuardNamesTheBudget holds that buffers beyond the budget are not allocated, and that the
// error says so.
func TestGuardNamesTheBudget(t *testing.T) {
	b := &budget{heap: memory.NewGoAllocator(), limit: 1 << 20}
	buf := memory.NewResizableBuffer(b)
	err := guard("pages", func() error { buf.Resize(1 << 19); buf.Resize(1 << 40); return nil })
	var refused *budgetError
	if !errors.As(err, &refused) {
		t.Errorf("error %v", err)
	}
	if buf.Release(); b.used != 0 {
		t.Errorf("%d bytes in use after the end", b.used)
	}
}
