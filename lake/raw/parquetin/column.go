package parquetin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow/float16"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/raw/jsondoc"
	"github.com/urlake/urlake/lake/raw/timestamp"
)

// valueKind is what the values of a column mean, by its physical and its logical type.
type valueKind int

const (
	textKind valueKind = iota
	bytesKind
	boolKind
	intKind
	uintKind
	floatKind
	float16Kind
	decimalKind
	dateKind
	clockKind
	timestampKind
	uuidKind
)

func kindOf(c *schema.Column) valueKind {
	switch c.PhysicalType() {
	case parquet.Types.Boolean:
		return boolKind
	case parquet.Types.Float, parquet.Types.Double:
		return floatKind
	case parquet.Types.Int96:
		return timestampKind
	case parquet.Types.Int32, parquet.Types.Int64:
		switch t := c.LogicalType().(type) {
		case schema.DecimalLogicalType:
			return decimalKind
		case schema.DateLogicalType:
			return dateKind
		case schema.TimeLogicalType:
			return clockKind
		case schema.TimestampLogicalType:
			return timestampKind
		case schema.IntLogicalType:
			if !t.IsSigned() {
				return uintKind
			}
		}
		return intKind
	}
	switch c.LogicalType().(type) {
	case schema.DecimalLogicalType:
		return decimalKind
	case schema.UUIDLogicalType:
		return uuidKind
	case schema.Float16LogicalType:
		return float16Kind
	case schema.BSONLogicalType, schema.IntervalLogicalType, schema.GeometryLogicalType, schema.GeographyLogicalType:
		return bytesKind
	}
	return textKind
}

// column reads the entries of a column one after another. An entry is a value or a null with its
// definition and repetition levels (Dremel, https://research.google/pubs/pub36632/, section 4).
// Entries are decoded in batches. Between peek and advance, one of them is the current entry.
type column struct {
	field  *Field
	desc   *schema.Column
	kind   valueKind
	unit   schema.TimeUnitType
	utc    bool
	scale  int32
	maxDef int16
	maxRep int16
	chunk  file.ColumnChunkReader
	pages  *checkedPages

	def, rep []int16
	i, n     int // the index of the current entry in the batch, and the size of the batch
	v        int // the index of the current entry's value, if it has one

	bools  []bool
	i32    []int32
	i64    []int64
	i96    []parquet.Int96
	f32    []float32
	f64    []float64
	arrays []parquet.ByteArray
	fixed  []parquet.FixedLenByteArray

	// readBatch reads up to batch entries from one page of chunk.
	readBatch func(batch int64) (levels int64, values int, err error)
}

// batchReader allocates the values of a column and returns the function that reads a batch of them.
func batchReader[T any](c *column, values *[]T) func(batch int64) (int64, int, error) {
	*values = make([]T, batchSize)
	return func(batch int64) (int64, int, error) {
		r, ok := c.chunk.(interface {
			ReadBatchInPage(batch int64, values []T, def, rep []int16) (int64, int, error)
		})
		if !ok {
			return 0, 0, errFooter
		}
		return r.ReadBatchInPage(batch, *values, c.def, c.rep)
	}
}

// newColumn returns a reader for the column n, or an error and nil if a record cannot hold its
// values.
func newColumn(n *Field) (*column, error) {
	c := &column{field: n, desc: n.desc, kind: kindOf(n.desc), maxDef: n.def, maxRep: n.rep,
		def: make([]int16, batchSize), rep: make([]int16, batchSize)}
	if n.later {
		return nil, errors.New("has a type that this build does not know")
	}
	switch t := n.desc.LogicalType().(type) {
	case schema.DecimalLogicalType:
		c.scale = t.Scale()
	case schema.TimestampLogicalType:
		c.unit, c.utc = t.TimeUnit(), t.IsAdjustedToUTC()
	case schema.TimeLogicalType:
		c.unit = t.TimeUnit()
	}
	if c.desc.MaxDefinitionLevel() != n.def || c.desc.MaxRepetitionLevel() != n.rep {
		return nil, errFooter
	}
	const maxWidth = 64 << 10
	switch n.desc.PhysicalType() {
	case parquet.Types.Boolean:
		c.readBatch = batchReader(c, &c.bools)
	case parquet.Types.Int32:
		c.readBatch = batchReader(c, &c.i32)
	case parquet.Types.Int64:
		c.readBatch = batchReader(c, &c.i64)
	case parquet.Types.Int96:
		c.readBatch = batchReader(c, &c.i96)
	case parquet.Types.Float:
		c.readBatch = batchReader(c, &c.f32)
	case parquet.Types.Double:
		c.readBatch = batchReader(c, &c.f64)
	case parquet.Types.ByteArray:
		c.readBatch = batchReader(c, &c.arrays)
	case parquet.Types.FixedLenByteArray:
		if l := n.desc.TypeLength(); l < 1 || l > maxWidth {
			return nil, fmt.Errorf("values of %d bytes, want 1 to %d", l, maxWidth)
		}
		c.readBatch = batchReader(c, &c.fixed)
	default:
		return nil, errFooter
	}
	return c, nil
}

// wrap names the column in an error.
func (c *column) wrap(err error) error {
	return fmt.Errorf("column %q: %w", jsondoc.JoinPath(c.field.full), err)
}

// open moves to the column's chunk in a row group.
func (c *column) open(r *fileReader, group int) error {
	c.close()
	c.i, c.n, c.v = 0, 0, 0
	err := guard("pages", func() error {
		g := r.RowGroup(group)
		if g.NumColumns() != r.MetaData().Schema.NumColumns() {
			return fmt.Errorf("row group %d has %d columns, the schema has %d",
				group, g.NumColumns(), r.MetaData().Schema.NumColumns())
		}
		pages, err := g.GetColumnPageReader(c.field.column)
		if err != nil {
			return err
		}
		pages.SetMaxPageHeaderSize(r.header)
		c.pages = &checkedPages{PageReader: pages, desc: c.desc, budget: r.budget}
		//lint:ignore SA1019 RowGroupReader.Column gives no access to pages before they are decoded
		c.chunk = file.NewColumnReader(c.desc, c.pages, memory.DefaultAllocator, r.BufferPool())
		return nil
	})
	if err != nil {
		return c.wrap(err)
	}
	return nil
}

// close returns the buffers. Its error is dropped: the entries have been read.
func (c *column) close() {
	if c.chunk != nil {
		_ = guard("pages", c.chunk.Close)
		c.chunk = nil
	}
}

// peek decodes the next batch if the current one is used up, which makes values returned earlier
// invalid. It returns false at the end of the chunk.
func (c *column) peek() (bool, error) {
	if c.i < c.n {
		return true, nil
	}
	if err := guard("pages", c.fill); err != nil {
		return false, c.wrap(err)
	}
	return c.n > 0, nil
}

// fill decodes the next batch and checks its levels.
func (c *column) fill() error {
	c.i, c.n, c.v = 0, 0, 0
	if !c.chunk.HasNext() {
		return c.chunk.Err()
	}
	batch := c.pages.batch
	n, values, err := c.readBatch(batch)
	if err != nil {
		return err
	}
	if n <= 0 || n > batch {
		return errors.New("a page ends before its values do")
	}
	want := int(n)
	if c.maxDef > 0 {
		want = 0
		for _, d := range c.def[:n] {
			if d == c.maxDef {
				want++
			}
			if d < 0 || d > c.maxDef {
				return fmt.Errorf("definition level %d, want at most %d", d, c.maxDef)
			}
		}
	}
	if c.maxRep > 0 {
		for _, r := range c.rep[:n] {
			if r < 0 || r > c.maxRep {
				return fmt.Errorf("repetition level %d, want at most %d", r, c.maxRep)
			}
		}
	}
	if values != want {
		return errors.New("a page ends before its values do")
	}
	c.n = int(n)
	return nil
}

// level returns the repetition level of the current entry.
func (c *column) level() int16 {
	if c.maxRep == 0 {
		return 0
	}
	return c.rep[c.i]
}

// defined returns the definition level of the current entry.
func (c *column) defined() int16 {
	if c.maxDef == 0 {
		return 0
	}
	return c.def[c.i]
}

func (c *column) null() bool { return c.defined() < c.maxDef }

// advance moves past the current entry.
func (c *column) advance() {
	if !c.null() {
		c.v++
	}
	c.i++
}

// raw returns the current value of a column of bytes. It is valid until the next call of peek.
func (c *column) raw() []byte {
	if c.fixed != nil {
		return c.fixed[c.v]
	}
	return c.arrays[c.v]
}

func (c *column) integer() int64 {
	if c.i32 != nil {
		return int64(c.i32[c.v])
	}
	return c.i64[c.v]
}

// time returns the current value in milliseconds since the Unix epoch. ok is false if the column's
// type is no time.
func (c *column) time() (ms int64, ok bool) {
	switch {
	case c.kind == dateKind:
		return c.integer() * 86_400_000, true
	case c.kind != timestampKind:
		return 0, false
	case c.i96 != nil:
		// Nanoseconds of a Julian day (Parquet's deprecated INT96 timestamps).
		b := c.i96[c.v]
		day := int64(binary.LittleEndian.Uint32(b[8:])) - 2_440_588
		return day*86_400_000 + int64(binary.LittleEndian.Uint64(b[:])/1e6), true
	}
	unit := int64(1)
	switch c.unit {
	case schema.TimeUnitMicros:
		unit = 1e3
	case schema.TimeUnitNanos:
		unit = 1e6
	}
	v := c.integer()
	ms = v / unit
	if v%unit < 0 {
		ms--
	}
	return ms, true
}

// text appends the current value as a CSV table would have it.
func (c *column) text(dst []byte) []byte {
	switch c.kind {
	case boolKind:
		return strconv.AppendBool(dst, c.bools[c.v])
	case intKind:
		return strconv.AppendInt(dst, c.integer(), 10)
	case uintKind:
		if c.i32 != nil {
			return strconv.AppendUint(dst, uint64(uint32(c.i32[c.v])), 10)
		}
		return strconv.AppendUint(dst, uint64(c.i64[c.v]), 10)
	case floatKind:
		if c.f32 != nil {
			return strconv.AppendFloat(dst, float64(c.f32[c.v]), 'g', -1, 32)
		}
		return appendDecimal(dst, c.f64[c.v])
	case float16Kind:
		if b := c.raw(); len(b) == 2 {
			return strconv.AppendFloat(dst, float64(float16.FromLEBytes(b).Float32()), 'g', -1, 32)
		}
	case decimalKind:
		return c.decimal(dst)
	case dateKind:
		return time.Unix(c.integer()*86_400, 0).UTC().AppendFormat(dst, time.DateOnly)
	case clockKind:
		return c.clock(dst)
	case timestampKind:
		return c.timestamp(dst)
	case uuidKind:
		if b := c.raw(); len(b) == 16 {
			return fmt.Appendf(dst, "%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
		}
	case bytesKind:
		return fmt.Appendf(dst, "%x", c.raw())
	}
	return append(dst, c.raw()...)
}

// appendDecimal appends numbers below 2^63 without an exponent, so that whole ones can be read as
// sizes and timestamps.
func appendDecimal(dst []byte, f float64) []byte {
	if math.Abs(f) < 1<<63 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	return strconv.AppendFloat(dst, f, 'g', -1, 64)
}

func (c *column) decimal(dst []byte) []byte {
	n := new(big.Int)
	switch {
	case c.i32 != nil, c.i64 != nil:
		n.SetInt64(c.integer())
	default:
		b := c.raw()
		n.SetBytes(b)
		if len(b) > 0 && b[0]&0x80 != 0 { // two's complement, big-endian
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(len(b))*8))
		}
	}
	const mostDigits = 1000 // decimals have at most 76 digits; a longer array is no decimal
	if c.scale <= 0 || c.scale > mostDigits || n.BitLen() > 4*mostDigits {
		return n.Append(dst, 10)
	}
	if n.Sign() < 0 {
		dst = append(dst, '-')
		n.Neg(n)
	}
	digits := n.Append(nil, 10)
	for len(digits) <= int(c.scale) {
		digits = append([]byte{'0'}, digits...)
	}
	point := len(digits) - int(c.scale)
	dst = append(append(dst, digits[:point]...), '.')
	return append(dst, digits[point:]...)
}

func (c *column) clock(dst []byte) []byte {
	v := c.integer()
	switch c.unit {
	case schema.TimeUnitMillis:
		v *= 1e6
	case schema.TimeUnitMicros:
		v *= 1e3
	}
	return time.Unix(0, v).UTC().AppendFormat(dst, "15:04:05.999999999")
}

func (c *column) timestamp(dst []byte) []byte {
	var t time.Time
	switch {
	case c.i96 != nil:
		b := c.i96[c.v]
		t = time.Unix((int64(binary.LittleEndian.Uint32(b[8:]))-2_440_588)*86_400, 0)
		t = t.Add(time.Duration(binary.LittleEndian.Uint64(b[:]) % 86_400e9))
	case c.unit == schema.TimeUnitMicros:
		t = time.UnixMicro(c.integer())
	case c.unit == schema.TimeUnitNanos:
		t = time.Unix(0, c.integer())
	default:
		t = time.UnixMilli(c.integer())
	}
	layout := "2006-01-02T15:04:05.999999999"
	if c.utc {
		layout += "Z"
	}
	return t.UTC().AppendFormat(dst, layout)
}

// json appends the current value as canonical JSON (RFC 8785). A whole number that a double cannot
// hold becomes a string. scratch is a buffer.
func (c *column) json(dst []byte, scratch *[]byte) []byte {
	*scratch = c.text((*scratch)[:0])
	switch c.kind {
	case boolKind:
		return append(dst, *scratch...)
	case intKind, uintKind, floatKind, float16Kind:
		if b := *scratch; timestamp.IsDigit(b[len(b)-1]) { // neither NaN nor Inf
			return jsondoc.AppendNumber(dst, b)
		}
	}
	return codec.AppendJSONString(dst, *scratch)
}

// expect peeks and checks that there is a current entry of the given repetition level.
func (c *column) expect(level int16) error {
	ok, err := c.peek()
	if err != nil {
		return err
	}
	if !ok {
		return c.wrap(errors.New("it ends before other columns"))
	}
	if c.level() != level {
		return c.wrap(errRowStarts)
	}
	return nil
}
