// Package deletion takes rows out of segments, which never change. A deletion table is an
// immutable, sorted file beside a segment that says which rows are left: it has those entries of
// the segment's postings that have lost rows. An entry of the table takes the place of the
// segment's own. Its totals and tuples count the rows that are left; without any, it has none.
//
// What a version has of a segment has at most one table. The version names the table of the batches
// that were retired or replaced (OfBatches). If takedowns hide rows, too, the takedowns name a
// table that takes the place of the version's (OfRules). So a reader applies one table, which does
// not say why rows are dead.
//
// A lookup of a domain that the table does not have costs a look into a filter in memory. What is
// read of the file is checked before it is used; damage is a *codec.CorruptError.
//
// docs/formats/deletion.md describes every byte.
package deletion

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/codec"
)

const (
	magic   = "UOVL"
	version = 1

	fenceBytes = 16

	// blockBytes bounds a block of several entries: what a lookup decodes.
	blockBytes = 16 << 10
	// minEntry is the least bytes of an entry of a block.
	minEntry = 5
	// filterFrame is how many bytes of the filter are in one frame.
	filterFrame = 4 << 20
	// wholeBytes is the size up to which a file is read and kept as a whole when it is opened.
	wholeBytes = 4 << 20
)

// Entry is what is left of one domain in one dataset of a segment.
type Entry struct {
	segment.Key
	Dataset uint32
	// Totals are those of the rows that are left, zero if none is.
	segment.Totals
	// Dead is the number of rows that are not left, DeadSize the sum of their sizes, 2^63-1 if it
	// is that or more.
	Dead, DeadSize int64

	file, section string
	tuples        []byte
}

// Sums are what a table takes away from a dataset.
type Sums struct {
	Dataset uint32
	// Rows and Size are those of all dead rows. Domains counts the domains of which the segment has
	// no row of the dataset left.
	Rows, Size, Domains int64
}

// Compare orders entries: by domain_id, check bits and dataset.
func Compare(a, b *Entry) int {
	return cmp.Or(segment.CompareKeys(a.Key, b.Key), cmp.Compare(a.Dataset, b.Dataset))
}

// Tuples returns where the rows are that are left, in ascending order. Unlike those of postings
// several can be in one row group; they do not touch each other.
func (e *Entry) Tuples() ([]segment.Tuple, error) {
	if e.Rows == 0 {
		return nil, nil
	}
	d := codec.NewDecoder(e.tuples, e.file, e.section)
	tuples := readTuples(d, e.Rows)
	if err := d.Close(); err != nil {
		return nil, err
	}
	return tuples, nil
}

// appendTuples encodes tuples that ascend and of which none touches the one before.
func appendTuples(out []byte, tuples []segment.Tuple) ([]byte, error) {
	out = codec.AppendUvarint(out, uint64(len(tuples)))
	var prev segment.Tuple
	for i, t := range tuples {
		if t.Rows < 1 || t.FirstRow < 0 || t.FirstRow > math.MaxInt64-t.Rows {
			return nil, fmt.Errorf("tuple %+v", t)
		}
		first, start := i == 0, uint64(t.FirstRow)
		switch c := segment.CompareTuples(prev, t); {
		case first || c < 0:
		case c > 0 || t.FirstRow <= prev.FirstRow+prev.Rows:
			return nil, fmt.Errorf("tuple %+v after %+v", t, prev)
		default:
			start = uint64(t.FirstRow - prev.FirstRow - prev.Rows - 1)
		}
		sameFile := !first && t.FileID == prev.FileID
		out = codec.AppendUvarint(out, uint64(t.FileID-prev.FileID))
		if sameFile {
			out = codec.AppendUvarint(out, uint64(t.RowGroup-prev.RowGroup))
		} else {
			out = codec.AppendUvarint(out, uint64(t.RowGroup))
		}
		out = codec.AppendUvarint(out, start)
		out = codec.AppendUvarint(out, uint64(t.Rows-1))
		prev = t
	}
	return out, nil
}

// readTuples decodes what appendTuples wrote, of rows rows in all.
func readTuples(d *codec.Decoder, rows int64) []segment.Tuple {
	n := int(d.Uint(uint64(d.Len() / 4))) // a tuple takes at least four bytes
	if d.Err() == nil && n < 1 {
		d.Fail("tuples", "none")
	}
	if d.Err() != nil {
		return nil
	}
	tuples := make([]segment.Tuple, 0, n)
	var prev segment.Tuple
	var sum uint64
	for i := range n {
		step := d.Uint(math.MaxUint32 - uint64(prev.FileID))
		t := segment.Tuple{FileID: prev.FileID + uint32(step)}
		least := uint64(0)
		if i > 0 && step == 0 {
			group := d.Uint(math.MaxUint32 - uint64(prev.RowGroup))
			t.RowGroup = prev.RowGroup + uint32(group)
			if group == 0 {
				least = uint64(prev.FirstRow) + uint64(prev.Rows) + 1
			}
		} else {
			t.RowGroup = uint32(d.Uint(math.MaxUint32))
		}
		if least > math.MaxInt64-1 {
			d.Fail("a row group of fewer rows", least)
			return nil
		}
		t.FirstRow = int64(least + d.Uint(math.MaxInt64-1-least))
		t.Rows = int64(d.Uint(uint64(math.MaxInt64-t.FirstRow)-1)) + 1
		if d.Err() != nil {
			return nil
		}
		if sum += uint64(t.Rows); sum > uint64(rows) {
			d.Fail(fmt.Sprintf("tuples of %d rows", rows), fmt.Sprintf("%d or more", sum))
			return nil
		}
		tuples = append(tuples, t)
		prev = t
	}
	if sum != uint64(rows) {
		d.Fail(fmt.Sprintf("tuples of %d rows", rows), sum)
	}
	return tuples
}

// Flags of an entry.
const (
	hasSize = 1 << iota
	hasTS
	allFlags = hasSize | hasTS
)

// appendEntry encodes an entry that follows prev in a block. Tuples are encoded.
func appendEntry(out []byte, prev segment.Key, e *Entry, tuples []byte) []byte {
	out = codec.AppendUvarint(out, e.ID-prev.ID)
	out = codec.AppendU32(out, e.Check)
	out = codec.AppendUvarint(out, uint64(e.Dataset))
	flags := uint8(0)
	if e.HasSize {
		flags |= hasSize
	}
	if e.HasTS {
		flags |= hasTS
	}
	out = append(out, flags)
	out = codec.AppendUvarint(out, uint64(e.Rows))
	out = codec.AppendUvarint(out, uint64(e.Dead))
	out = codec.AppendUvarint(out, uint64(e.DeadSize))
	if e.HasSize {
		out = codec.AppendUvarint(out, uint64(e.Size))
	}
	if e.HasTS {
		out = codec.AppendVarint(out, e.FirstTS)
		out = codec.AppendUvarint(out, uint64(e.LastTS)-uint64(e.FirstTS))
	}
	if e.Rows > 0 {
		out = codec.AppendUvarint(out, uint64(len(tuples)))
		out = append(out, tuples...)
	}
	return out
}

// readEntry decodes the entry that follows prev.
func readEntry(d *codec.Decoder, prev segment.Key, file, section string) Entry {
	e := Entry{file: file, section: section}
	e.ID = prev.ID + d.Uint(math.MaxUint64-prev.ID)
	e.Check = d.U32()
	e.Dataset = uint32(d.Uint(math.MaxUint32))
	flags := d.U8()
	if d.Err() == nil && flags&^allFlags != 0 {
		d.Fail("known flags", flags)
	}
	e.HasSize, e.HasTS = flags&hasSize != 0, flags&hasTS != 0
	e.Rows = int64(d.Uint(math.MaxInt64))
	e.Dead = int64(d.Uint(math.MaxInt64))
	e.DeadSize = int64(d.Uint(math.MaxInt64))
	if e.HasSize {
		e.Size = int64(d.Uint(math.MaxInt64))
	}
	if e.HasTS {
		e.FirstTS = d.Varint()
		e.LastTS = int64(uint64(e.FirstTS) + d.Uvarint())
	}
	if d.Err() != nil {
		return e
	}
	if e.Rows > 0 {
		e.tuples = d.Bytes(int(d.Uint(uint64(d.Len()))))
	}
	if err := e.validate(); err != nil && d.Err() == nil {
		d.Fail("an entry", err)
	}
	return e
}

// validate tells whether the numbers of an entry fit together.
func (e *Entry) validate() error {
	switch {
	case e.Key == segment.Key{}:
		return fmt.Errorf("domain 0")
	case e.Dead < 1 || e.DeadSize < 0 || e.Rows > math.MaxInt64-e.Dead:
		return fmt.Errorf("%d dead rows of size %d", e.Dead, e.DeadSize)
	case e.Rows == 0 && e.Totals != segment.Totals{}:
		return fmt.Errorf("totals without rows")
	case e.Rows == 0:
		return nil
	}
	return e.Validate()
}

// putFence writes bytes that sort as entries do. The frames of the header have the key 0.
func putFence(f *[fenceBytes]byte, k segment.Key, dataset uint32) {
	binary.BigEndian.PutUint64(f[:], k.ID)
	binary.BigEndian.PutUint32(f[8:], k.Check)
	binary.BigEndian.PutUint32(f[12:], dataset)
}

// AddSize is a sum of sizes, 2^63-1 if it is that or more.
func AddSize(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// compareTuples orders tuples by file, row group and row.
func compareTuples(a, b segment.Tuple) int {
	return cmp.Or(segment.CompareTuples(a, b), cmp.Compare(a.FirstRow, b.FirstRow))
}

// Difference returns the rows of all that are not in some, and the number of those that are. Both
// are in order, and no row is in two tuples of either.
func Difference(all, some []segment.Tuple) (rest []segment.Tuple, common int64) {
	for _, t := range all {
		for t.Rows > 0 {
			for len(some) > 0 && (segment.CompareTuples(some[0], t) < 0 ||
				segment.CompareTuples(some[0], t) == 0 && some[0].FirstRow+some[0].Rows <= t.FirstRow) {
				some = some[1:]
			}
			if len(some) == 0 || segment.CompareTuples(some[0], t) > 0 || some[0].FirstRow >= t.FirstRow+t.Rows {
				rest = append(rest, t)
				break
			}
			if before := some[0].FirstRow - t.FirstRow; before > 0 {
				keep := t
				keep.Rows = before
				rest = append(rest, keep)
			}
			from, end := max(t.FirstRow, some[0].FirstRow), min(t.FirstRow+t.Rows, some[0].FirstRow+some[0].Rows)
			common += end - from
			t.FirstRow, t.Rows = end, t.FirstRow+t.Rows-end
		}
	}
	return rest, common
}
