package files

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"
)

const (
	// chunkRows is how many rows are encoded at once.
	chunkRows = 4096
	// groupRows and groupBytes end a row group, which is kept in memory until then, as values
	// before compression.
	groupRows  = 1 << 20
	groupBytes = 48 << 20
)

// Format is a form of files.
type Format string

// The formats, whose names are the ends of files' names.
const (
	Parquet Format = "parquet"
	CSV     Format = "csv"
)

// encoder writes rows to a file.
type encoder interface {
	add(r *rowView) error
	// end writes what is left.
	end() error
}

func newEncoder(f Format, w io.Writer, chosen []column) encoder {
	if f == CSV {
		return newCSV(w, chosen)
	}
	return newParquet(w, chosen)
}

// parquetFile encodes columns in chunks, which costs a fraction of what rows would.
type parquetFile struct {
	w      *parquet.GenericWriter[any]
	fields []column // in the order of the file's columns
	chunk  []chunk
	in     int // rows in the chunks
	rows   int // of the row group, those in the chunks included
	bytes  int
}

// chunk is the values of a column that were not passed on yet. Text points into arena.
type chunk struct {
	values []parquet.Value
	arena  []byte
	ends   []int // of text in arena, -1 for none
}

func newParquet(w io.Writer, chosen []column) *parquetFile {
	group := parquet.Group{}
	byName := map[string]column{}
	for _, c := range chosen {
		group[c.name] = c.node()
		byName[c.name] = c
	}
	schema := parquet.NewSchema("urlake", group)
	p := &parquetFile{w: parquet.NewGenericWriter[any](w, schema,
		parquet.Compression(&parquet.Zstd), parquet.CreatedBy("urlake", "export", ""), parquet.DataPageStatistics(true))}
	for _, f := range schema.Fields() {
		p.fields = append(p.fields, byName[f.Name()])
	}
	p.chunk = make([]chunk, len(p.fields))
	return p
}

func (p *parquetFile) add(r *rowView) error {
	for i := range p.fields {
		c, f := &p.chunk[i], &p.fields[i]
		if f.number != nil {
			v := parquet.NullValue().Level(0, 0, i)
			if n, ok := f.number(r); ok {
				v = parquet.Int64Value(n).Level(0, 1, i)
			}
			c.values = append(c.values, v)
			p.bytes += 8
			continue
		}
		before := len(c.arena)
		text, ok := f.text(c.arena, r)
		if c.arena = text; ok {
			c.ends = append(c.ends, len(text))
		} else {
			c.arena = text[:before]
			c.ends = append(c.ends, -1)
		}
		p.bytes += len(c.arena) - before + 4
	}
	p.in++
	if p.rows++; p.in < chunkRows {
		return nil
	}
	return p.flush(p.rows >= groupRows || p.bytes >= groupBytes)
}

// flush passes the chunks on, and ends the row group.
func (p *parquetFile) flush(group bool) error {
	writers := p.w.ColumnWriters()
	for i := range p.chunk {
		c := &p.chunk[i]
		start := 0
		for _, end := range c.ends {
			v := parquet.NullValue().Level(0, 0, i)
			if end >= 0 {
				v = parquet.ByteArrayValue(c.arena[start:end]).Level(0, 1, i)
				start = end
			}
			c.values = append(c.values, v)
		}
		if _, err := writers[i].WriteRowValues(c.values); err != nil {
			return fmt.Errorf("parquet: %w", err)
		}
		c.values, c.ends, c.arena = c.values[:0], c.ends[:0], c.arena[:0]
	}
	p.in = 0
	if !group || p.rows == 0 {
		return nil
	}
	p.rows, p.bytes = 0, 0
	if err := p.w.Flush(); err != nil {
		return fmt.Errorf("parquet: %w", err)
	}
	return nil
}

func (p *parquetFile) end() error {
	if err := p.flush(true); err != nil {
		return err
	}
	if err := p.w.Close(); err != nil {
		return fmt.Errorf("parquet: %w", err)
	}
	return nil
}

// csvFile writes a line for each row, as RFC 4180 has it, after one with the names. A value that is
// not there is an empty field.
type csvFile struct {
	w      io.Writer
	fields []column
	buf    []byte
}

// csvBytes is how many bytes are passed on at once.
const csvBytes = 256 << 10

func newCSV(w io.Writer, chosen []column) *csvFile {
	c := &csvFile{w: w, fields: chosen}
	for i, f := range chosen {
		if i > 0 {
			c.buf = append(c.buf, ',')
		}
		c.buf = append(c.buf, f.name...)
	}
	c.buf = append(c.buf, '\n')
	return c
}

func (c *csvFile) add(r *rowView) error {
	for i := range c.fields {
		if i > 0 {
			c.buf = append(c.buf, ',')
		}
		f := &c.fields[i]
		if f.number != nil {
			n, ok := f.number(r)
			switch {
			case !ok:
			case f.csv != nil:
				c.buf = f.csv(c.buf, n)
			default:
				c.buf = strconv.AppendInt(c.buf, n, 10)
			}
			continue
		}
		start := len(c.buf)
		text, ok := f.text(c.buf, r)
		if c.buf = text; !ok {
			c.buf = text[:start]
			continue
		}
		c.buf = quote(c.buf, start)
	}
	c.buf = append(c.buf, '\n')
	if len(c.buf) < csvBytes {
		return nil
	}
	return c.end()
}

// quote puts what follows start into quotes if it has to be.
func quote(b []byte, start int) []byte {
	if len(b) > start && !slices.ContainsFunc(b[start:], func(c byte) bool { return c == ',' || c == '"' || c == '\n' || c == '\r' }) {
		return b
	}
	text := strings.ReplaceAll(string(b[start:]), `"`, `""`)
	return append(append(append(b[:start], '"'), text...), '"')
}

func (c *csvFile) end() error {
	_, err := c.w.Write(c.buf)
	c.buf = c.buf[:0]
	return err
}
