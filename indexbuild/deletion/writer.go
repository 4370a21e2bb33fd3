package deletion

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

// Builder makes the bytes of a table, which depend on the entries alone.
type Builder struct {
	entries int64
	blocks  []block
	open    []byte // entries of the block that is not full
	count   int
	first   Entry // of the open block
	last    Entry
	keys    []segment.Key
	sums    map[uint32]*Sums
}

// block is encoded entries and the first of them.
type block struct {
	fence [fenceBytes]byte
	data  []byte
}

// Add adds an entry. Entries ascend by domain_id, check bits and dataset. Tuples are those of the
// rows that are left, ascending; tuples of one row group that touch each other are joined. An entry
// without dead rows is none: it is left out.
func (b *Builder) Add(e Entry, tuples []segment.Tuple) error {
	if e.Dead == 0 {
		return nil
	}
	fail := func(err error) error {
		return fmt.Errorf("deletion table: domain %016x/%08x in dataset %d: %w", e.ID, e.Check, e.Dataset, err)
	}
	if err := e.validate(); err != nil {
		return fail(err)
	}
	if b.entries > 0 && Compare(&b.last, &e) >= 0 {
		return fail(fmt.Errorf("after %016x/%08x in dataset %d", b.last.ID, b.last.Check, b.last.Dataset))
	}
	var packed []byte
	if e.Rows > 0 {
		joined := join(tuples)
		rows := int64(0)
		for _, t := range joined {
			rows += t.Rows
		}
		if rows != e.Rows {
			return fail(fmt.Errorf("%d rows in tuples, %d in all", rows, e.Rows))
		}
		var err error
		if packed, err = appendTuples(nil, joined); err != nil {
			return fail(err)
		}
		if len(packed) > seekable.MaxFrame-1024 {
			return fail(fmt.Errorf("%d runs of rows take %d bytes, more than a frame; use a rule that hides longer runs",
				len(joined), len(packed)))
		}
	} else if len(tuples) > 0 {
		return fail(fmt.Errorf("%d tuples of no rows", len(tuples)))
	}
	return b.add(&e, packed)
}

// Keep adds an entry of another table as it is.
func (b *Builder) Keep(e Entry) error {
	if b.entries > 0 && Compare(&b.last, &e) >= 0 {
		return fmt.Errorf("deletion table: domain %016x: entries do not ascend", e.ID)
	}
	return b.add(&e, e.tuples)
}

func (b *Builder) add(e *Entry, packed []byte) error {
	prev := b.last.Key
	if b.count == 0 {
		prev = segment.Key{}
	}
	data := appendEntry(nil, prev, e, packed)
	if b.count > 0 && len(b.open)+len(data) > blockBytes-16 {
		b.flush()
		data = appendEntry(nil, segment.Key{}, e, packed)
	}
	if b.count == 0 {
		b.first = *e
	}
	b.open = append(b.open, data...)
	b.count++
	if n := len(b.keys); n == 0 || b.keys[n-1] != e.Key {
		b.keys = append(b.keys, e.Key)
	}
	if b.sums == nil {
		b.sums = map[uint32]*Sums{}
	}
	s := b.sums[e.Dataset]
	if s == nil {
		s = &Sums{Dataset: e.Dataset}
		b.sums[e.Dataset] = s
	}
	s.add(e)
	b.last = *e
	b.entries++
	return nil
}

func (s *Sums) add(e *Entry) {
	s.Rows += e.Dead
	s.Size = AddSize(s.Size, e.DeadSize)
	if e.Rows == 0 {
		s.Domains++
	}
}

// join joins tuples that touch each other.
func join(tuples []segment.Tuple) []segment.Tuple {
	var joined []segment.Tuple
	for _, t := range tuples {
		if n := len(joined); n > 0 {
			if last := &joined[n-1]; segment.CompareTuples(*last, t) == 0 && last.FirstRow+last.Rows == t.FirstRow {
				last.Rows += t.Rows
				continue
			}
		}
		joined = append(joined, t)
	}
	return joined
}

func (b *Builder) flush() {
	if b.count == 0 {
		return
	}
	data := codec.AppendUvarint(nil, uint64(b.count))
	data = codec.AppendCRC32C(append(data, b.open...))
	bl := block{data: data}
	putFence(&bl.fence, b.first.Key, b.first.Dataset)
	b.blocks = append(b.blocks, bl)
	b.open, b.count = b.open[:0], 0
}

// Dead is the number of dead rows.
func (b *Builder) Dead() (rows int64) {
	for _, s := range b.sums {
		rows += s.Rows
	}
	return rows
}

// Finish returns the bytes of the file. A table has at least one entry.
func (b *Builder) Finish() ([]byte, seekable.File, error) {
	b.flush()
	if b.entries == 0 {
		return nil, seekable.File{}, fmt.Errorf("deletion table without entries")
	}
	f := newFilter(int64(len(b.keys)))
	for _, k := range b.keys {
		f.add(k)
	}
	chunks := slices.Collect(slices.Chunk([]byte(f), filterFrame))
	head := codec.AppendMagic(nil, magic, version)
	head = codec.AppendUvarint(head, uint64(len(chunks)))
	head = codec.AppendUvarint(head, uint64(len(f)))
	head = codec.AppendUvarint(head, uint64(b.entries))
	head = codec.AppendUvarint(head, uint64(len(b.keys)))
	head = codec.AppendUvarint(head, uint64(len(b.sums)))
	before := uint32(0)
	for _, id := range slices.Sorted(maps.Keys(b.sums)) {
		s := b.sums[id]
		head = codec.AppendUvarint(head, uint64(id-before))
		head = codec.AppendUvarint(head, uint64(s.Rows))
		head = codec.AppendUvarint(head, uint64(s.Size))
		head = codec.AppendUvarint(head, uint64(s.Domains))
		before = id
	}
	head = codec.AppendCRC32C(head)
	var out bytes.Buffer
	w := seekable.NewWriter(&out, fenceBytes)
	var fence [fenceBytes]byte
	for i, data := range append([][]byte{head}, chunks...) {
		putFence(&fence, segment.Key{}, uint32(i))
		if _, _, err := w.Frame(fence[:], data); err != nil {
			return nil, seekable.File{}, err
		}
	}
	for _, bl := range b.blocks {
		if _, _, err := w.Frame(bl.fence[:], bl.data); err != nil {
			return nil, seekable.File{}, err
		}
	}
	file, err := w.Finish()
	return out.Bytes(), file, err
}
