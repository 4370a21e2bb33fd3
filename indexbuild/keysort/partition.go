package keysort

import (
	"context"
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/prefetch"
)

const (
	// partitionBytes is about what a partition holds: it is sorted in a core's cache.
	partitionBytes = 512 << 10

	// maxPartitionBits allows 4,096 partitions of about 20 MB for a lake of a billion entries.
	maxPartitionBits = 12

	// partitionChunk is the unit in which partitions grow.
	partitionChunk = 16 << 10

	// chunkAhead is how far ahead the core is asked for a chunk: where a value starts is known only from the one before.
	chunkAhead = 512

	// valuesAhead is how many values ahead it is asked for those of a partition in their order.
	ValuesAhead = 8

	// splitBits is into how many partitions one is split that does not fit in memory.
	splitBits = 8

	// keyBits is how many bits of a key there are to part records by.
	keyBits = 96

	// partitionHeader stands before a record: u64 domain_id, u32 check bits, u32 length.
	PartitionHeader = 16

	// smallValue is the step in which values are copied: most are a few plain records of this size.
	smallValue = 16
)

// defaultMemory is what is sorted in memory by default, about three million entries; writing more to a file costs little.
const DefaultMemory = 128 << 20

// partitions sort values by key in bounded memory: they are parted by the first bits of their keys, which are evenly
// spread, and each partition is sorted when it is asked for. Values with equal keys stay in the order in which they were
// added. What comes out does not depend on the memory.
type Sorter struct {
	dir     string
	memory  int
	limit   int64 // of what is sorted at once
	skip    uint  // first bits of all keys that are the same
	bits    uint
	parts   []partition
	used    int
	free    [][]byte
	spool   *Spool
	scratch []byte
}

type partition struct {
	open    []byte   // the last chunk, here since most of what adding takes is to find it
	chunks  [][]byte // those before
	extents []Extent // of what was added before chunks
}

// size is how many bytes the partition holds.
func (p *partition) size() int64 {
	n := int64(len(p.open))
	for _, c := range p.chunks {
		n += int64(len(c))
	}
	for _, e := range p.extents {
		n += e.n
	}
	return n
}

// newPartitions keeps up to memory bytes before it writes them to a file in dir. It makes partitions for about size bytes, at
// least 1<<atLeast of them.
func New(dir string, memory int, size int64, atLeast int) *Sorter {
	n := bits.Len64(uint64(max(size-1, 0)) / partitionBytes)
	return NewAt(dir, memory, 0, uint(min(max(n, atLeast), maxPartitionBits)))
}

func NewAt(dir string, memory int, skip, n uint) *Sorter {
	return &Sorter{dir: dir, memory: memory, limit: int64(max(memory/16, partitionBytes)), skip: skip, bits: n, parts: make([]partition, 1<<n)}
}

func (p *Sorter) Close() {
	if p != nil {
		p.spool.Close()
	}
}

// len is the number of partitions.
func (p *Sorter) Len() int { return len(p.parts) }

// place is the partition of a key.
func (p *Sorter) place(k segment.Key) int {
	var w uint64
	if p.skip < 64 {
		w = k.ID<<p.skip | uint64(k.Check)<<32>>(64-p.skip)
	} else {
		w = uint64(k.Check) << (p.skip - 32)
	}
	return int(w >> (64 - p.bits)) // >>64 is 0
}

// add adds a value. It is for one goroutine.
func (p *Sorter) Add(k segment.Key, val []byte) error {
	part := &p.parts[p.place(k)]
	size := PartitionHeader + len(val)
	if cap(part.open)-len(part.open) < size {
		if err := p.grow(part, size); err != nil {
			return err
		}
	}
	at := len(part.open)
	part.open = part.open[:at+size]
	to := part.open[at:]
	binary.LittleEndian.PutUint64(to, k.ID)
	binary.LittleEndian.PutUint64(to[8:], uint64(k.Check)|uint64(len(val))<<32)
	// Most values are a few plain records.
	for to = to[PartitionHeader:]; len(val) >= smallValue && len(to) >= smallValue; {
		*(*[smallValue]byte)(to) = *(*[smallValue]byte)(val)
		to, val = to[smallValue:], val[smallValue:]
	}
	copy(to, val)
	return nil
}

// grow gives a partition another chunk, after all were written to the file if they fill the memory.
func (p *Sorter) grow(part *partition, size int) error {
	if p.used >= p.memory {
		if err := p.spill(); err != nil {
			return err
		}
	}
	var c []byte
	switch n := len(p.free); {
	case size > partitionChunk:
		c = make([]byte, 0, size)
	case n > 0:
		c, p.free = p.free[n-1], p.free[:n-1]
	default:
		// A small sort does without large chunks: the next ones are as large as all before.
		c = make([]byte, 0, max(size, int(min(partitionChunk, max(512, 2*part.size())))))
	}
	p.used += cap(c)
	if part.open != nil {
		part.chunks = append(part.chunks, part.open)
	}
	part.open = c
	return nil
}

// spill writes all chunks to the file.
func (p *Sorter) spill() error {
	if p.spool == nil {
		var err error
		if p.spool, err = NewSpool(p.dir); err != nil {
			return err
		}
	}
	for i := range p.parts {
		part := &p.parts[i]
		if part.open == nil {
			continue
		}
		p.scratch = p.scratch[:0]
		for _, c := range append(part.chunks, part.open) {
			p.scratch = append(p.scratch, c...)
			if cap(c) == partitionChunk {
				p.free = append(p.free, c[:0])
			}
		}
		part.chunks, part.open = part.chunks[:0], nil
		e, err := p.spool.Write(p.scratch)
		if err != nil {
			return err
		}
		part.extents = append(part.extents, e)
	}
	p.used = 0
	return nil
}

// sortedValues is what a partition holds, or a part of it, in order.
type Values struct {
	chunks [][]byte
	refs   []valueRef
	spare  []valueRef
	ends   []uint32
	loaded []byte
}

// valueRef is the place of a record.
type valueRef struct {
	id         uint64
	chunk, off uint32
}

// sorts keeps the memory of partitions that were sorted.
var sorts = sync.Pool{New: func() any { return new(Values) }}

func (v *Values) Len() int { return len(v.refs) }

// bytes is about what the values and their headers take.
func (v *Values) Bytes() (n int) {
	for _, c := range v.chunks {
		n += len(c)
	}
	return n
}

// at returns value i and its key.
func (v *Values) At(i int) (segment.Key, []byte) {
	r := v.refs[i]
	c := v.chunks[r.chunk][r.off:]
	n := binary.LittleEndian.Uint32(c[12:])
	return segment.Key{ID: r.id, Check: binary.LittleEndian.Uint32(c[8:])}, c[PartitionHeader : PartitionHeader+n]
}

// ask asks the core for value i, if there is one.
func (v *Values) Ask(i int) {
	if i < len(v.refs) {
		r := v.refs[i]
		prefetch.At(v.chunks[r.chunk], int(r.off))
	}
}

// each hands over the values of partition i in their order, all at once or, where they do not fit in memory, many at a time.
// Nothing may be added any more, and each partition is asked for once; several may be at the same time. What is handed over is
// valid during the call.
func (p *Sorter) Each(ctx context.Context, i int, yield func(*Values) error) error {
	part := &p.parts[i]
	size := part.size()
	if size == 0 {
		return nil
	}
	if size > p.limit && p.skip+p.bits < keyBits {
		return p.split(ctx, part, yield)
	}
	v := sorts.Get().(*Values)
	defer sorts.Put(v)
	v.chunks, v.refs = v.chunks[:0], v.refs[:0]
	if len(part.extents) > 0 {
		v.loaded = v.loaded[:0]
		for _, e := range part.extents {
			start := len(v.loaded)
			b, err := p.spool.Read(e, v.loaded[start:start])
			if err != nil {
				return err
			}
			if start == 0 {
				v.loaded = b
			} else {
				v.loaded = append(v.loaded[:start], b...)
			}
		}
		v.chunks = append(v.chunks, v.loaded)
	}
	v.chunks = append(append(v.chunks, part.chunks...), part.open)
	*part = partition{}
	for n, c := range v.chunks {
		for off := 0; off < len(c); {
			prefetch.At(c, off+chunkAhead)
			v.refs = append(v.refs, valueRef{binary.LittleEndian.Uint64(c[off:]), uint32(n), uint32(off)})
			off += PartitionHeader + int(binary.LittleEndian.Uint32(c[off+12:]))
		}
	}
	v.sort(p.skip + p.bits)
	if err := yield(v); err != nil {
		return err
	}
	if cap(v.loaded) > 16*partitionBytes {
		v.loaded = nil
	}
	clear(v.chunks)
	return nil
}

// sort sorts the refs, whose ids have the first skip bits in common. Ids are evenly spread: after one distribution by the next
// bits hardly any is out of its place.
func (v *Values) sort(skip uint) {
	if len(v.refs) < 2 {
		return
	}
	width := uint(min(bits.Len(uint(len(v.refs))), 16))
	if skip < 64 {
		at := func(r valueRef) uint64 { return r.id << skip >> (64 - width) }
		v.ends = slices.Grow(v.ends[:0], 1<<width+1)[:1<<width+1]
		clear(v.ends)
		ends := v.ends
		for _, r := range v.refs {
			ends[at(r)+1]++
		}
		for i := 1; i <= 1<<width; i++ {
			ends[i] += ends[i-1]
		}
		v.spare = slices.Grow(v.spare[:0], len(v.refs))[:len(v.refs)]
		for _, r := range v.refs {
			i := at(r)
			v.spare[ends[i]] = r
			ends[i]++
		}
		v.refs, v.spare = v.spare, v.refs
	}
	const far = 64
	for i := 1; i < len(v.refs); i++ {
		r := v.refs[i]
		j := i
		for ; j > 0 && v.less(r, v.refs[j-1]); j-- {
			if i-j == far {
				// Somebody made these ids.
				v.refs[j] = r
				slices.SortStableFunc(v.refs, v.compare)
				return
			}
			v.refs[j] = v.refs[j-1]
		}
		v.refs[j] = r
	}
}

func (v *Values) less(a, b valueRef) bool {
	if a.id != b.id {
		return a.id < b.id
	}
	return v.compare(a, b) < 0
}

func (v *Values) compare(a, b valueRef) int {
	check := func(r valueRef) uint32 { return binary.LittleEndian.Uint32(v.chunks[r.chunk][r.off+8:]) }
	return segment.CompareKeys(segment.Key{ID: a.id, Check: check(a)}, segment.Key{ID: b.id, Check: check(b)})
}

// split parts a partition further and goes over the parts.
func (p *Sorter) split(ctx context.Context, part *partition, yield func(*Values) error) error {
	sub := NewAt(p.dir, p.memory, p.skip+p.bits, min(splitBits, keyBits-p.skip-p.bits))
	sub.limit = p.limit
	defer sub.Close()
	addAll := func(c []byte) error {
		for off := 0; off < len(c); {
			n := int(binary.LittleEndian.Uint32(c[off+12:]))
			k := segment.Key{ID: binary.LittleEndian.Uint64(c[off:]), Check: binary.LittleEndian.Uint32(c[off+8:])}
			if err := sub.Add(k, c[off+PartitionHeader:off+PartitionHeader+n]); err != nil {
				return err
			}
			off += PartitionHeader + n
		}
		return ctx.Err()
	}
	var buf []byte
	for _, e := range part.extents {
		var err error
		if buf, err = p.spool.Read(e, buf); err != nil {
			return err
		}
		if err := addAll(buf); err != nil {
			return err
		}
	}
	for _, c := range append(part.chunks, part.open) {
		if err := addAll(c); err != nil {
			return err
		}
	}
	*part = partition{}
	for i := range sub.parts {
		if err := sub.Each(ctx, i, yield); err != nil {
			return err
		}
	}
	return nil
}

// entryBytes is about what an entry takes while entries are sorted.
const EntryBytes = 40
