package segment

import (
	"fmt"
	"slices"

	"github.com/urlake/urlake/lake/seekable"
)

// Flags of an entry.
const (
	entrySize   = 1 << iota // has a size
	entryTS                 // has ts
	entryInline             // has a single tuple
)

// Entries are entries on their way to a PostingsWriter, in columns, since blocks are encoded column
// by column. Several goroutines can each fill their own. The zero value is empty.
type Entries struct {
	ids       []uint64
	checks    []uint32
	datasets  []uint32
	files     []uint32 // of the first tuple
	flags     []uint8
	rows      []int64
	rowGroups []uint32 // of the only tuple, 0 where there are several
	firstRows []int64
	rare      rareColumns
	payloads  []byte
	inline    int64
	sumRows   int64
}

// rareColumns are columns in which most entries have nothing. They end after the last entry that
// has something; fill extends them.
type rareColumns struct {
	sizes   []int64
	firstTS []int64
	lastTS  []int64
	offsets []int64 // of the payload, set by the writer
	lengths []int64 // of the payload, 0 where inline
}

// fill extends the columns to n entries with zeros.
func (c *rareColumns) fill(n int) {
	for _, col := range []*[]int64{&c.sizes, &c.firstTS, &c.lastTS, &c.offsets, &c.lengths} {
		*col = slices.Grow(*col, n-len(*col))
		clear((*col)[len(*col):n])
		*col = (*col)[:n]
	}
}

// Len returns the number of entries.
func (c *Entries) Len() int { return len(c.ids) }

// Inline returns the number of entries with a single tuple.
func (c *Entries) Inline() int64 { return c.inline }

// Rows returns the sum of the entries' rows.
func (c *Entries) Rows() int64 { return c.sumRows }

// Reset empties c; it keeps the memory.
func (c *Entries) Reset() {
	c.drop(c.Len())
	c.payloads, c.inline, c.sumRows = c.payloads[:0], 0, 0
}

// drop removes the first n entries but keeps the payloads.
func (c *Entries) drop(n int) {
	dropFirst(&c.ids, n)
	dropFirst(&c.checks, n)
	dropFirst(&c.datasets, n)
	dropFirst(&c.files, n)
	dropFirst(&c.flags, n)
	dropFirst(&c.rows, n)
	dropFirst(&c.rowGroups, n)
	dropFirst(&c.firstRows, n)
	n = min(n, len(c.rare.sizes))
	dropFirst(&c.rare.sizes, n)
	dropFirst(&c.rare.firstTS, n)
	dropFirst(&c.rare.lastTS, n)
	dropFirst(&c.rare.offsets, n)
	dropFirst(&c.rare.lengths, n)
}

func dropFirst[T any](s *[]T, n int) { *s = (*s)[:copy(*s, (*s)[n:])] }

// add appends the columns of o, except payloads and sums.
func (c *Entries) add(o *Entries) {
	if len(o.rare.sizes) > 0 {
		c.rare.fill(c.Len())
		c.rare.sizes = append(c.rare.sizes, o.rare.sizes...)
		c.rare.firstTS = append(c.rare.firstTS, o.rare.firstTS...)
		c.rare.lastTS = append(c.rare.lastTS, o.rare.lastTS...)
		c.rare.offsets = append(c.rare.offsets, o.rare.offsets...)
		c.rare.lengths = append(c.rare.lengths, o.rare.lengths...)
	}
	c.ids = append(c.ids, o.ids...)
	c.checks = append(c.checks, o.checks...)
	c.datasets = append(c.datasets, o.datasets...)
	c.files = append(c.files, o.files...)
	c.flags = append(c.flags, o.flags...)
	c.rows = append(c.rows, o.rows...)
	c.rowGroups = append(c.rowGroups, o.rowGroups...)
	c.firstRows = append(c.firstRows, o.firstRows...)
}

func (c *Entries) key(i int) Key { return Key{ID: c.ids[i], Check: c.checks[i]} }

// entryError adds the entry to an error.
func entryError(k Key, dataset uint32, err error) error {
	return fmt.Errorf("postings of domain %016x/%08x in dataset %d: %w", k.ID, k.Check, dataset, err)
}

// Add appends an entry. The tuples must ascend by (file_id, row_group) and their rows must add up
// to t.Rows. The slice is not kept.
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

// AddPlain is Add for an entry without size and ts whose rows start at row first of one row group.
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
	c.rowGroups = append(c.rowGroups, group)
	c.firstRows = append(c.firstRows, int64(first))
	return nil
}

// Grow allocates memory for n more entries.
func (c *Entries) Grow(n int) {
	c.ids = slices.Grow(c.ids, n)
	c.checks = slices.Grow(c.checks, n)
	c.datasets = slices.Grow(c.datasets, n)
	c.files = slices.Grow(c.files, n)
	c.flags = slices.Grow(c.flags, n)
	c.rows = slices.Grow(c.rows, n)
	c.rowGroups = slices.Grow(c.rowGroups, n)
	c.firstRows = slices.Grow(c.firstRows, n)
}

// append appends an entry that was checked. If it has several tuples, its payload starts at start
// in c.payloads.
func (c *Entries) append(k Key, dataset uint32, t *Totals, tuples []Tuple, start int) error {
	length := int64(len(c.payloads) - start)
	if length > seekable.MaxFrame-4 {
		c.payloads = c.payloads[:start]
		err := fmt.Errorf("%d tuples take %d bytes; a frame holds %d", len(tuples), length, seekable.MaxFrame-4)
		return entryError(k, dataset, err)
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
	if flags != entryInline {
		c.rare.fill(c.Len())
		c.rare.sizes = append(c.rare.sizes, t.Size)
		c.rare.firstTS = append(c.rare.firstTS, t.FirstTS)
		c.rare.lastTS = append(c.rare.lastTS, t.LastTS)
		c.rare.offsets = append(c.rare.offsets, 0)
		c.rare.lengths = append(c.rare.lengths, length)
	}
	c.ids = append(c.ids, k.ID)
	c.checks = append(c.checks, k.Check)
	c.datasets = append(c.datasets, dataset)
	c.files = append(c.files, tuples[0].FileID)
	c.flags = append(c.flags, flags)
	c.rows = append(c.rows, t.Rows)
	c.rowGroups = append(c.rowGroups, group)
	c.firstRows = append(c.firstRows, first)
	return nil
}
