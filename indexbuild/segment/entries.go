package segment

import (
	"fmt"
	"slices"

	"github.com/urlake/urlake/lake/codec"
)

const (
	entrySize = 1 << iota
	entryTS
	entryInline
)

// Entries are entries in columns on their way to a PostingsWriter: a block is made column by column, and several goroutines
// can each fill some. The zero value is empty.
type Entries struct {
	ids       []uint64
	checks    []uint32
	datasets  []uint32
	files     []uint32 // of the first tuple
	flags     []uint8
	rows      []int64
	sizes     []int64
	firstTS   []int64
	lastTS    []int64
	rowGroups []uint32 // of the only tuple, 0 where there are several
	firstRows []int64
	offsets   []int64 // of the payload, set by the writer
	lengths   []int64 // of the payload, 0 where inline
	payloads  []byte
	inline    int64
	sumRows   int64
}

// Len is the number of entries.
func (c *Entries) Len() int { return len(c.ids) }

// Inline is the number of those with a single tuple, Rows the sum of their rows.
func (c *Entries) Inline() int64 { return c.inline }

// Rows is the sum of all rows.
func (c *Entries) Rows() int64 { return c.sumRows }

// Reset empties c and keeps its memory.
func (c *Entries) Reset() {
	c.drop(c.Len())
	c.payloads, c.inline, c.sumRows = c.payloads[:0], 0, 0
}

// drop removes the first n entries. Payloads stay.
func (c *Entries) drop(n int) {
	dropFirst(&c.ids, n)
	dropFirst(&c.checks, n)
	dropFirst(&c.datasets, n)
	dropFirst(&c.files, n)
	dropFirst(&c.flags, n)
	dropFirst(&c.rows, n)
	dropFirst(&c.sizes, n)
	dropFirst(&c.firstTS, n)
	dropFirst(&c.lastTS, n)
	dropFirst(&c.rowGroups, n)
	dropFirst(&c.firstRows, n)
	dropFirst(&c.offsets, n)
	dropFirst(&c.lengths, n)
}

func dropFirst[T any](s *[]T, n int) { *s = (*s)[:copy(*s, (*s)[n:])] }

// add appends the columns of o, but for payloads and sums.
func (c *Entries) add(o *Entries) {
	c.ids = append(c.ids, o.ids...)
	c.checks = append(c.checks, o.checks...)
	c.datasets = append(c.datasets, o.datasets...)
	c.files = append(c.files, o.files...)
	c.flags = append(c.flags, o.flags...)
	c.rows = append(c.rows, o.rows...)
	c.sizes = append(c.sizes, o.sizes...)
	c.firstTS = append(c.firstTS, o.firstTS...)
	c.lastTS = append(c.lastTS, o.lastTS...)
	c.rowGroups = append(c.rowGroups, o.rowGroups...)
	c.firstRows = append(c.firstRows, o.firstRows...)
	c.offsets = append(c.offsets, o.offsets...)
	c.lengths = append(c.lengths, o.lengths...)
}

func (c *Entries) key(i int) Key { return Key{ID: c.ids[i], Check: c.checks[i]} }

// entryError names the entry in an error.
func entryError(k Key, dataset uint32, err error) error {
	return fmt.Errorf("postings of domain %016x/%08x in dataset %d: %w", k.ID, k.Check, dataset, err)
}

// Add appends one entry. The tuples have to ascend by (file_id, row_group) and their rows to add up to t.Rows; they are not kept.
func (c *Entries) Add(k Key, dataset uint32, t Totals, tuples []Tuple) error {
	err := t.Validate()
	if err == nil {
		err = checkTuples(tuples, t.Rows)
	}
	if err != nil {
		return entryError(k, dataset, err)
	}
	start := len(c.payloads)
	if len(tuples) > 1 {
		c.payloads = AppendTuples(c.payloads, tuples)
	}
	return c.append(k, dataset, &t, tuples, start)
}

// AddPlain is Add for an entry of rows from row first on in one row group, without size and ts.
func (c *Entries) AddPlain(k Key, dataset, file, group, first, rows uint32) error {
	if rows == 0 {
		return entryError(k, dataset, fmt.Errorf("no rows"))
	}
	c.inline++
	c.sumRows += int64(rows)
	c.ids = append(c.ids, k.ID)
	c.checks = append(c.checks, k.Check)
	c.datasets = append(c.datasets, dataset)
	c.files = append(c.files, file)
	c.flags = append(c.flags, entryInline)
	c.rows = append(c.rows, int64(rows))
	c.sizes = append(c.sizes, 0)
	c.firstTS = append(c.firstTS, 0)
	c.lastTS = append(c.lastTS, 0)
	c.rowGroups = append(c.rowGroups, group)
	c.firstRows = append(c.firstRows, int64(first))
	c.offsets = append(c.offsets, 0)
	c.lengths = append(c.lengths, 0)
	return nil
}

// Grow makes room for n more entries.
func (c *Entries) Grow(n int) {
	c.ids = slices.Grow(c.ids, n)
	c.checks = slices.Grow(c.checks, n)
	c.datasets = slices.Grow(c.datasets, n)
	c.files = slices.Grow(c.files, n)
	c.flags = slices.Grow(c.flags, n)
	c.rows = slices.Grow(c.rows, n)
	c.sizes = slices.Grow(c.sizes, n)
	c.firstTS = slices.Grow(c.firstTS, n)
	c.lastTS = slices.Grow(c.lastTS, n)
	c.rowGroups = slices.Grow(c.rowGroups, n)
	c.firstRows = slices.Grow(c.firstRows, n)
	c.offsets = slices.Grow(c.offsets, n)
	c.lengths = slices.Grow(c.lengths, n)
}

// append appends a checked entry, whose payload, if it has several tuples, starts at start.
func (c *Entries) append(k Key, dataset uint32, t *Totals, tuples []Tuple, start int) error {
	length := int64(len(c.payloads) - start)
	if length > codec.MaxFrame-4 {
		c.payloads = c.payloads[:start]
		return entryError(k, dataset, fmt.Errorf("%d tuples take %d bytes, a frame holds %d", len(tuples), length, codec.MaxFrame-4))
	}
	flags := uint8(0)
	if t.HasSize {
		flags |= entrySize
	}
	if t.HasTS {
		flags |= entryTS
	}
	group, first := uint32(0), int64(0)
	if len(tuples) == 1 {
		flags |= entryInline
		c.inline++
		group, first = tuples[0].RowGroup, tuples[0].FirstRow
	}
	c.sumRows += t.Rows
	c.ids = append(c.ids, k.ID)
	c.checks = append(c.checks, k.Check)
	c.datasets = append(c.datasets, dataset)
	c.files = append(c.files, tuples[0].FileID)
	c.flags = append(c.flags, flags)
	c.rows = append(c.rows, t.Rows)
	c.sizes = append(c.sizes, t.Size)
	c.firstTS = append(c.firstTS, t.FirstTS)
	c.lastTS = append(c.lastTS, t.LastTS)
	c.rowGroups = append(c.rowGroups, group)
	c.firstRows = append(c.firstRows, first)
	c.offsets = append(c.offsets, 0)
	c.lengths = append(c.lengths, length)
	return nil
}
