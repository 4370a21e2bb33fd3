package partwriter

import (
	"bytes"
	"encoding/binary"
	"math/bits"

	"github.com/parquet-go/parquet-go/format"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/seekable"
)

// numberRuns collects the values of a column of numbers in which rows mostly repeat the one before, or have none.
type numberRuns struct{ runs []numberRun }

// numberRun is a value and the row with which it starts.
type numberRun struct {
	row   int32
	null  bool
	value int64
}

// set says that rows from row on have the value v.
func (c *numberRuns) set(row int, v int64) {
	if n := len(c.runs); n == 0 || c.runs[n-1].null || c.runs[n-1].value != v {
		c.runs = append(c.runs, numberRun{row: int32(row), value: v})
	}
}

// setNull says that rows from row on have no value.
func (c *numberRuns) setNull(row int) {
	if n := len(c.runs); n == 0 || !c.runs[n-1].null {
		c.runs = append(c.runs, numberRun{row: int32(row), null: true})
	}
}

// setOptional is set where there is a value, else setNull.
func (c *numberRuns) setOptional(row int, v int64, has bool) {
	if has {
		c.set(row, v)
	} else {
		c.setNull(row)
	}
}

// end is the row behind run i of a page of rows rows.
func (c *numberRuns) end(i, rows int) int {
	if i+1 < len(c.runs) {
		return int(c.runs[i+1].row)
	}
	return rows
}

// nulls is the number of rows without a value.
func (c *numberRuns) nulls(rows int) (n int) {
	for i, r := range c.runs {
		if r.null {
			n += c.end(i, rows) - int(r.row)
		}
	}
	return n
}

// bounds returns the smallest and the largest value; there has to be one.
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

// appendPlain appends the values of a page of rows rows, each in width bytes.
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

// appendOptional appends the values of a page of rows rows, 0 for none, and which rows have one.
func (c *numberRuns) appendOptional(values []int64, has []bool, rows int) ([]int64, []bool) {
	for i, r := range c.runs {
		for range c.end(i, rows) - int(r.row) {
			values, has = append(values, r.value), append(has, !r.null)
		}
	}
	return values, has
}

// appendRuns appends the value of each run to values, in width bytes, and how many rows of a page of rows rows have it to counts.
func (c *numberRuns) appendRuns(values []byte, counts []int32, rows, width int) ([]byte, []int32) {
	for i, r := range c.runs {
		if !r.null {
			values = appendNumber(values, r.value, width)
			counts = append(counts, int32(c.end(i, rows))-r.row)
		}
	}
	return values, counts
}

// reset starts the next page.
func (c *numberRuns) reset() { c.runs = c.runs[:0] }

// appendNumber appends v as PLAIN in width bytes, 4 or 8.
func appendNumber(dst []byte, v int64, width int) []byte {
	if width == 4 {
		return binary.LittleEndian.AppendUint32(dst, uint32(v))
	}
	return binary.LittleEndian.AppendUint64(dst, uint64(v))
}

// numberWidth is the size of a number as PLAIN.
func numberWidth(kind format.Type) int {
	if kind == format.Int32 {
		return 4
	}
	return 8
}

// levelWriter writes definition levels as runs of Parquet's hybrid of repeated levels and groups of eight.
type levelWriter struct {
	dst    []byte
	groups []byte // bits of groups that are in no run yet
	have   int    // levels in the last of them, 8 where it is full or there is none
}

// shortRun is the least number of equal levels that are worth a run, which ends one of groups and so costs a header more.
const shortRun = 48

// add appends n levels that are alike.
func (w *levelWriter) add(n int, defined bool) {
	if w.have < 8 {
		k := min(n, 8-w.have)
		w.bits(k, defined)
		n -= k
	}
	if n < shortRun {
		for n > 0 {
			w.groups, w.have = append(w.groups, 0), 0
			k := min(n, 8)
			w.bits(k, defined)
			n -= k
		}
		return
	}
	w.flush()
	w.dst = binary.AppendUvarint(w.dst, uint64(n)<<1)
	if defined {
		w.dst = append(w.dst, 1)
	} else {
		w.dst = append(w.dst, 0)
	}
}

// bits adds n levels to the last group.
func (w *levelWriter) bits(n int, defined bool) {
	if defined {
		w.groups[len(w.groups)-1] |= byte((1<<n - 1) << w.have)
	}
	w.have += n
}

// flush ends a run of groups.
func (w *levelWriter) flush() {
	if len(w.groups) > 0 {
		w.dst = append(binary.AppendUvarint(w.dst, uint64(len(w.groups))<<1|1), w.groups...)
		w.groups = w.groups[:0]
	}
}

// shortRepeat is the size of content from which on a block of one sequence is shorter: it has at most 17 bytes.
const shortRepeat = 24

// appendRepeated appends n times value, of 4 or 8 bytes, as a zstd frame: literals, and where there are more one sequence
// with offsets of that size. At most codec.MaxRawBlock bytes.
func appendRepeated(dst, value []byte, n int) []byte {
	dst = seekable.AppendZstdHeader(dst, n*len(value))
	// A block must not be longer than all content (3.1.1.2.4), which decoders check.
	if n*len(value) <= shortRepeat {
		return seekable.AppendRawBlock(dst, bytes.Repeat(value, n), true)
	}
	// RFC 8878, 3.1.1.3: raw literals; one sequence, whose three codes are said to be the same throughout.
	const singleCodes = 1<<6 | 1<<4 | 1<<2
	offset := len(value) + 3
	offsetCode := bits.Len(uint(offset)) - 1
	length := (n - 1) * len(value)
	code, base, extra := matchLengthCode(length)
	stream := uint64(length-base) | uint64(offset-1<<offsetCode)<<extra | 1<<(extra+offsetCode)
	size := 1 + len(value) + 5 + (bits.Len64(stream)+7)/8
	const compressedBlock, lastBlock = 2, 1
	dst = append(dst, byte(size<<3|compressedBlock<<1|lastBlock), byte(size>>5), 0, byte(len(value)<<3))
	dst = append(append(dst, value...), 1, singleCodes, byte(len(value)), byte(offsetCode), byte(code))
	for ; stream > 0; stream >>= 8 {
		dst = append(dst, byte(stream))
	}
	return dst
}

// matchLengthCode is the code of a match of n bytes, at least 4 (RFC 8878, 3.1.1.3.2.1.1): what lengths it starts from and how many bits
// are added to that.
func matchLengthCode(n int) (code, base, extra int) {
	// Codes 32 to 42 by what they start from; behind these, one for each power of two.
	bases := [...]int{35, 37, 39, 41, 43, 47, 51, 59, 67, 83, 99, 131}
	bitsOf := [...]int{1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5}
	switch {
	case n < bases[0]:
		return n - 3, n, 0
	case n >= bases[len(bases)-1]:
		extra = bits.Len(uint(n-3)) - 1
		return 36 + extra, 1<<extra + 3, extra
	}
	i := 0
	for bases[i+1] <= n {
		i++
	}
	return 32 + i, bases[i], bitsOf[i]
}

// measureDomains sets Measures to those of a page of rows rows.
func measureDomains(d *part.DomainRuns, ts, size *numberRuns, rows int) {
	m := &d.Measures
	m.Rows = 0
	if ts.nulls(rows) == rows && size.nulls(rows) == rows {
		return
	}
	m.Rows = rows
	m.TS, m.HasTS = ts.appendOptional(m.TS[:0], m.HasTS[:0], rows)
	m.Size, m.HasSize = size.appendOptional(m.Size[:0], m.HasSize[:0], rows)
}
