package part

import (
	"encoding/binary"

	"github.com/parquet-go/parquet-go/format"
)

// numberRuns collects a column of numbers of the open page, as runs of rows with the same value or
// without one.
type numberRuns struct{ runs []numberRun }

// numberRun is a value and the row of the page from which on rows have it.
type numberRun struct {
	row   int32
	null  bool
	value int64
}

// set sets the value of all rows from row on.
func (c *numberRuns) set(row int, v int64) {
	if n := len(c.runs); n == 0 || c.runs[n-1].null || c.runs[n-1].value != v {
		c.runs = append(c.runs, numberRun{row: int32(row), value: v})
	}
}

// setNull makes all rows from row on null.
func (c *numberRuns) setNull(row int) {
	if n := len(c.runs); n == 0 || !c.runs[n-1].null {
		c.runs = append(c.runs, numberRun{row: int32(row), null: true})
	}
}

// setOptional is set if has is true, else setNull.
func (c *numberRuns) setOptional(row int, v int64, has bool) {
	if has {
		c.set(row, v)
	} else {
		c.setNull(row)
	}
}

// end is the end of run i in a page of rows rows.
func (c *numberRuns) end(i, rows int) int {
	if i+1 < len(c.runs) {
		return int(c.runs[i+1].row)
	}
	return rows
}

// nulls is the number of null rows in a page of rows rows.
func (c *numberRuns) nulls(rows int) (n int) {
	for i, r := range c.runs {
		if r.null {
			n += c.end(i, rows) - int(r.row)
		}
	}
	return n
}

// toMicros turns milliseconds into microseconds.
func (c *numberRuns) toMicros() {
	for i := range c.runs {
		c.runs[i].value *= 1000
	}
}

// bounds returns the smallest and the largest value, 0 if there is none.
func (c *numberRuns) bounds() (low, high int64) {
	first := true
	for _, r := range c.runs {
		switch {
		case r.null:
		case first:
			low, high, first = r.value, r.value, false
		default:
			low, high = min(low, r.value), max(high, r.value)
		}
	}
	return low, high
}

// appendPlain appends the values of a page of rows rows as PLAIN, each in width bytes.
func (c *numberRuns) appendPlain(dst []byte, rows, width int) []byte {
	for i, r := range c.runs {
		if r.null {
			continue
		}
		for range c.end(i, rows) - int(r.row) {
			dst = appendNumber(dst, r.value, width)
		}
	}
	return dst
}

// appendOptional appends to values the values of a page of rows rows, 0 for null, and to has
// whether each row has one.
func (c *numberRuns) appendOptional(values []int64, has []bool, rows int) ([]int64, []bool) {
	for i, r := range c.runs {
		for range c.end(i, rows) - int(r.row) {
			values, has = append(values, r.value), append(has, !r.null)
		}
	}
	return values, has
}

// appendRuns appends the value of each run to values, in width bytes, and the number of its rows in
// a page of rows rows to counts.
func (c *numberRuns) appendRuns(values []byte, counts []int32, rows, width int) ([]byte, []int32) {
	for i, r := range c.runs {
		if !r.null {
			values = appendNumber(values, r.value, width)
			counts = append(counts, int32(c.end(i, rows))-r.row)
		}
	}
	return values, counts
}

// reset begins the next page.
func (c *numberRuns) reset() { c.runs = c.runs[:0] }

// appendNumber appends v as PLAIN in width bytes, 4 or 8.
func appendNumber(dst []byte, v int64, width int) []byte {
	if width == 4 {
		return binary.LittleEndian.AppendUint32(dst, uint32(v))
	}
	return binary.LittleEndian.AppendUint64(dst, uint64(v))
}

// numberWidth is the size of a column's numbers as PLAIN.
func numberWidth(col Column) int {
	if col.kind() == format.Int32 {
		return 4
	}
	return 8
}

// measureDomains sets d.Measures to the timestamps and sizes of a page of rows rows.
func measureDomains(d *DomainRuns, ts, size *numberRuns, rows int) {
	m := &d.Measures
	m.Rows = 0
	if ts.nulls(rows) == rows && size.nulls(rows) == rows {
		return
	}
	m.Rows = rows
	m.TS, m.HasTS = ts.appendOptional(m.TS[:0], m.HasTS[:0], rows)
	m.Size, m.HasSize = size.appendOptional(m.Size[:0], m.HasSize[:0], rows)
}
