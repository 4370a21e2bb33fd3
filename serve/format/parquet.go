package format

import (
	"bytes"
	"fmt"

	"github.com/parquet-go/parquet-go"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/serve/lookup"
)

const (
	// groupRows and groupBytes end a row group, which is kept in memory until then. The bytes are
	// those of its values before compression.
	groupRows  = 128 << 10
	groupBytes = 8 << 20
)

// parquetFile is a Parquet file under construction. Each field is a column; the columns have the
// order of their names.
type parquetFile struct {
	out    bytes.Buffer // what was not passed on yet
	w      *parquet.GenericWriter[any]
	fields Fields // in the order of the columns
	row    parquet.Row
	text   []byte // of the values of row
	rows   int    // of the row group
	bytes  int
}

func newParquet(list Fields) *parquetFile {
	group := parquet.Group{}
	byName := map[string]field{}
	for _, f := range list {
		group[f.name] = parquet.Optional(f.node())
		byName[f.name] = f
	}
	schema := parquet.NewSchema("urlake", group)
	p := &parquetFile{}
	for _, column := range schema.Fields() {
		p.fields = append(p.fields, byName[column.Name()])
	}
	p.w = parquet.NewGenericWriter[any](&p.out, schema, parquet.Compression(&parquet.Zstd), parquet.CreatedBy("urlake", cli.Version(), ""))
	return p
}

// node is the type of the field's column. Ids are two's complement, as in parts.
func (f *field) node() parquet.Node {
	if f.json {
		return parquet.JSON()
	}
	switch f.kind {
	case urlID, rows, size:
		return parquet.Int(64)
	case port:
		return parquet.Int(32)
	case ts, firstTS, lastTS:
		return parquet.Timestamp(parquet.Millisecond)
	}
	return parquet.String()
}

// append adds row i of page.
func (p *parquetFile) append(page *lookup.URLsPage, i int) error {
	p.row, p.text = p.row[:0], p.text[:0]
	for column := range p.fields {
		v := p.value(&p.fields[column], page, i)
		level := 1
		if v.IsNull() {
			level = 0
		}
		p.row = append(p.row, v.Level(0, level, column))
	}
	if _, err := p.w.WriteRows([]parquet.Row{p.row}); err != nil {
		return fmt.Errorf("parquet: %w", err)
	}
	p.rows++
	if p.bytes += len(p.text) + 8*len(p.fields); p.rows < groupRows && p.bytes < groupBytes {
		return nil
	}
	p.rows, p.bytes = 0, 0
	if err := p.w.Flush(); err != nil {
		return fmt.Errorf("parquet: %w", err)
	}
	return nil
}

// value is the value of a field of row i, null if there is none.
func (p *parquetFile) value(f *field, page *lookup.URLsPage, i int) parquet.Value {
	number := func(n int64, ok bool) parquet.Value {
		if !ok {
			return parquet.NullValue()
		}
		return parquet.Int64Value(n)
	}
	switch f.kind {
	case urlID:
		return number(int64(page.ID(i)), true)
	case ts, firstTS:
		return number(page.TS(i))
	case lastTS:
		_, ok := page.TS(i)
		_, last := page.Count(i)
		return number(last, ok)
	case rows:
		n, _ := page.Count(i)
		return number(n, true)
	case size:
		return number(page.Size(i))
	case port:
		_, _, digits, _ := parts(page.URL(i))
		n := int32(0)
		for _, digit := range digits {
			n = 10*n + int32(digit-'0')
		}
		if len(digits) == 0 {
			return parquet.NullValue()
		}
		return parquet.Int32Value(n)
	}
	start := len(p.text)
	var ok bool
	if p.text, ok = f.append(p.text, page, i); !ok {
		return parquet.NullValue()
	}
	return parquet.ByteArrayValue(p.text[start:])
}

// take appends to dst what is ready to be sent.
func (p *parquetFile) take(dst []byte) []byte {
	dst = append(dst, p.out.Bytes()...)
	p.out.Reset()
	return dst
}

// end appends the rest of the file to dst.
func (p *parquetFile) end(dst []byte) ([]byte, error) {
	if err := p.w.Close(); err != nil {
		return dst, fmt.Errorf("parquet: %w", err)
	}
	return p.take(dst), nil
}
