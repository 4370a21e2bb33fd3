// Package keysort sorts values by the keys of domains in bounded memory. What does not fit is
// spilled to one temporary file.
//
// Keys are hashes and therefore evenly spread, so a Sorter partitions values by the first bits of
// their keys while they are added, and sorts each partition in a core's cache when it is read.
// Values with equal keys keep the order in which they were added. The order of values does not
// depend on the memory. Records and Runs sort records by keys of any bytes: by merging sorted runs.
// Reversed sorts lines by their reversed bytes, with Runs.
//
// Package indexbuild sorts the domains of a segment and their records with it, package verify the
// rows that it counts again. Package indexbuild also keeps the intermediate lists of its merge in a
// Spool. Package treebuild sorts directories with Runs.
package keysort

import (
	"context"
	"encoding/binary"
	"iter"
	"math/bits"
	"slices"
	"sync"

	"github.com/urlake/urlake/indexbuild/segment"
)

const (
	// defaultMemory holds about three million values. Spilling more values costs little.
	defaultMemory = 128 << 20

	// valueBytes is about what a value takes with its header: most values are one or two postings
	// of 16 bytes.
	valueBytes = 40

	// partitionBytes is the intended size of a partition, which is sorted in a core's cache.
	partitionBytes = 512 << 10

	// maxPartitionBits allows 4,096 partitions, of about 20 MB each for a lake of a billion
	// postings.
	maxPartitionBits = 12

	// splitBits is the base-2 logarithm of the number of partitions that a partition is split into
	// if it does not fit in memory.
	splitBits = 8

	// keyBits is the number of bits of a key.
	keyBits = 96

	// chunkBytes is the unit in which large partitions grow.
	chunkBytes = 16 << 10

	// valueHeader is what a chunk has before each value: u64 domain_id, u32 check bits, u32 length.
	valueHeader = 16

	// copyStep is the step in which values are copied: most values are a few postings of this size.
	copyStep = 16
)

// Sorter sorts values by key. Add all values first, from one goroutine. Then read each of the Len
// partitions with Each, once; several partitions may be read at the same time. Close releases the
// temporary file.
type Sorter struct {
	dir        string
	memory     int
	limit      int64 // bytes of a partition that are sorted at once
	skip       uint  // leading bits that all keys have in common
	bits       uint  // the next bits of a key are the number of its partition
	partitions []partition
	used       int      // bytes of chunks in memory
	free       [][]byte // chunks of chunkBytes
	spool      *Spool
	scratch    []byte
}

// partition holds values in the order in which they were added: extents, then chunks, then open.
type partition struct {
	open    []byte // the last chunk, kept apart because Add needs nothing else
	chunks  [][]byte
	extents []Extent
}

// size is the number of bytes of the values and their headers.
func (p *partition) size() int64 {
	n := int64(len(p.open))
	for _, c := range p.chunks {
		n += int64(len(c))
	}
	for _, e := range p.extents {
		n += e.Bytes
	}
	return n
}

// New returns a Sorter for about expect values. It keeps up to memory bytes before it spills to a
// temporary file in dir; memory 0 is 128 MiB, dir "" is the system's temporary folder. The Sorter
// has at least 1<<minBits partitions.
func New(dir string, memory int, expect int64, minBits int) *Sorter {
	if memory <= 0 {
		memory = defaultMemory
	}
	n := bits.Len64(uint64(max(expect*valueBytes-1, 0)) / partitionBytes)
	return newSorter(dir, memory, 0, uint(min(max(n, minBits), maxPartitionBits)))
}

func newSorter(dir string, memory int, skip, n uint) *Sorter {
	return &Sorter{
		dir: dir, memory: memory, limit: int64(max(memory/16, partitionBytes)),
		skip: skip, bits: n, partitions: make([]partition, 1<<n),
	}
}

// Close removes the temporary file. It does nothing on a nil Sorter.
func (s *Sorter) Close() {
	if s != nil {
		s.spool.Close()
	}
}

// Len returns the number of partitions, a power of two. A partition has all values whose keys begin
// with its number, so partitions ascend.
func (s *Sorter) Len() int { return len(s.partitions) }

// partitionOf returns the number of the partition that k belongs to.
func (s *Sorter) partitionOf(k segment.Key) int {
	var w uint64
	if s.skip < 64 {
		w = k.ID<<s.skip | uint64(k.Check)<<32>>(64-s.skip)
	} else {
		w = uint64(k.Check) << (s.skip - 32)
	}
	return int(w >> (64 - s.bits)) // >>64 is 0
}

// Add adds a copy of val under k.
func (s *Sorter) Add(k segment.Key, val []byte) error {
	p := &s.partitions[s.partitionOf(k)]
	size := valueHeader + len(val)
	if cap(p.open)-len(p.open) < size {
		if err := s.grow(p, size); err != nil {
			return err
		}
	}
	at := len(p.open)
	p.open = p.open[:at+size]
	to := p.open[at:]
	binary.LittleEndian.PutUint64(to, k.ID)
	binary.LittleEndian.PutUint64(to[8:], uint64(k.Check)|uint64(len(val))<<32)
	for to = to[valueHeader:]; len(val) >= copyStep && len(to) >= copyStep; {
		*(*[copyStep]byte)(to) = *(*[copyStep]byte)(val)
		to, val = to[copyStep:], val[copyStep:]
	}
	copy(to, val)
	return nil
}

// grow gives p a new open chunk with space for size bytes. If the memory is full, it first spills
// all chunks.
func (s *Sorter) grow(p *partition, size int) error {
	if s.used >= s.memory {
		if err := s.spill(); err != nil {
			return err
		}
	}
	var c []byte
	switch n := len(s.free); {
	case size > chunkBytes:
		c = make([]byte, 0, size)
	case n > 0:
		c, s.free = s.free[n-1], s.free[:n-1]
	default:
		// Chunks start small and double, so that a small sort takes little memory.
		c = make([]byte, 0, max(size, int(min(chunkBytes, max(512, 2*p.size())))))
	}
	s.used += cap(c)
	if p.open != nil {
		p.chunks = append(p.chunks, p.open)
	}
	p.open = c
	return nil
}

// spill moves all chunks to the temporary file.
func (s *Sorter) spill() error {
	if s.spool == nil {
		var err error
		if s.spool, err = NewSpool(s.dir); err != nil {
			return err
		}
	}
	for i := range s.partitions {
		p := &s.partitions[i]
		if p.open == nil {
			continue
		}
		s.scratch = s.scratch[:0]
		for _, c := range append(p.chunks, p.open) {
			s.scratch = append(s.scratch, c...)
			if cap(c) == chunkBytes {
				s.free = append(s.free, c[:0])
			}
		}
		p.chunks, p.open = p.chunks[:0], nil
		e, err := s.spool.Write(s.scratch)
		if err != nil {
			return err
		}
		p.extents = append(p.extents, e)
	}
	s.used = 0
	return nil
}

// Values are the sorted values of a partition, or of a range of keys of one.
type Values struct {
	chunks [][]byte
	refs   []valueRef
	spare  []valueRef // refs are distributed from one to the other
	ends   []uint32   // of the buckets of that distribution
	loaded []byte     // the partition's extents
}

// valueRef refers to a value.
type valueRef struct {
	id            uint64 // domain_id of its key
	chunk, offset uint32
}

// valuesPool keeps the memory of Values that were read.
var valuesPool = sync.Pool{New: func() any { return new(Values) }}

// Len returns the number of values.
func (v *Values) Len() int { return len(v.refs) }

// Bytes returns how many bytes the values have, including 16 bytes of each value's header.
func (v *Values) Bytes() (n int) {
	for _, c := range v.chunks {
		n += len(c)
	}
	return n
}

// At returns value i and its key. It prefetches a value some indexes ahead, so it is fastest in
// ascending order.
func (v *Values) At(i int) (segment.Key, []byte) {
	r := v.refs[i]
	c := v.chunks[r.chunk][r.offset:]
	n := binary.LittleEndian.Uint32(c[12:])
	return segment.Key{ID: r.id, Check: binary.LittleEndian.Uint32(c[8:])}, c[valueHeader : valueHeader+n]
}

// Each sorts partition i and passes its values to yield: all at once, or, if they have more than
// s.limit bytes, in several calls with ascending keys. Values are valid during the call. Each
// empties the partition.
func (s *Sorter) Each(ctx context.Context, i int, yield func(*Values) error) error {
	p := &s.partitions[i]
	size := p.size()
	if size == 0 {
		return nil
	}
	taken := *p
	*p = partition{}
	if size > s.limit && s.skip+s.bits < keyBits {
		return s.split(ctx, s.readAll(&taken), yield)
	}
	v := valuesPool.Get().(*Values)
	defer valuesPool.Put(v)
	v.chunks = v.chunks[:0]
	if len(taken.extents) > 0 {
		v.loaded = v.loaded[:0]
		for _, e := range taken.extents {
			start := len(v.loaded)
			b, err := s.spool.Read(e, v.loaded[start:start])
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
	v.chunks = append(append(v.chunks, taken.chunks...), taken.open)
	err := v.each(s.skip+s.bits, yield)
	if cap(v.loaded) > 16*partitionBytes {
		v.loaded = nil
	}
	return err
}

// readAll yields the values of a partition, extent by extent. What it yields is valid until the
// next extent.
func (s *Sorter) readAll(p *partition) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var buf []byte
		for _, e := range p.extents {
			var err error
			if buf, err = s.spool.Read(e, buf); !yield(buf, err) || err != nil {
				return
			}
		}
		for _, c := range append(p.chunks, p.open) {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// each sorts the values of all chunks, whose keys have the first skip bits in common, and passes
// them to yield.
func (v *Values) each(skip uint, yield func(*Values) error) error {
	v.refs = v.refs[:0]
	for n, c := range v.chunks {
		for at := 0; at < len(c); {
			v.refs = append(v.refs, valueRef{binary.LittleEndian.Uint64(c[at:]), uint32(n), uint32(at)})
			at += valueHeader + int(binary.LittleEndian.Uint32(c[at+12:]))
		}
	}
	v.sort(skip)
	err := yield(v)
	clear(v.chunks)
	return err
}

// sort sorts the refs, whose ids have the first skip bits in common. It distributes them by the
// next bits into about as many buckets as there are refs. Ids are evenly spread, so an insertion
// sort then moves few of them.
func (v *Values) sort(skip uint) {
	if len(v.refs) < 2 {
		return
	}
	width := uint(min(bits.Len(uint(len(v.refs))), 16))
	if skip < 64 {
		bucket := func(r valueRef) uint64 { return r.id << skip >> (64 - width) }
		v.ends = slices.Grow(v.ends[:0], 1<<width+1)[:1<<width+1]
		clear(v.ends)
		ends := v.ends
		for _, r := range v.refs {
			ends[bucket(r)+1]++
		}
		for i := 1; i <= 1<<width; i++ {
			ends[i] += ends[i-1]
		}
		v.spare = slices.Grow(v.spare[:0], len(v.refs))[:len(v.refs)]
		for _, r := range v.refs {
			i := bucket(r)
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
				// Ids are not evenly spread: somebody chose these domains.
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
	check := func(r valueRef) uint32 { return binary.LittleEndian.Uint32(v.chunks[r.chunk][r.offset+8:]) }
	return segment.CompareKeys(segment.Key{ID: a.id, Check: check(a)}, segment.Key{ID: b.id, Check: check(b)})
}

// split sorts values with a Sorter of its own, by the bits that follow in the keys.
func (s *Sorter) split(ctx context.Context, values iter.Seq2[[]byte, error], yield func(*Values) error) error {
	sub := newSorter(s.dir, s.memory, s.skip+s.bits, min(splitBits, keyBits-s.skip-s.bits))
	sub.limit = s.limit
	defer sub.Close()
	for c, err := range values {
		if err != nil {
			return err
		}
		for at := 0; at < len(c); {
			n := int(binary.LittleEndian.Uint32(c[at+12:]))
			k := segment.Key{ID: binary.LittleEndian.Uint64(c[at:]), Check: binary.LittleEndian.Uint32(c[at+8:])}
			if err := sub.Add(k, c[at+valueHeader:at+valueHeader+n]); err != nil {
				return err
			}
			at += valueHeader + n
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	for i := range sub.partitions {
		if err := sub.Each(ctx, i, yield); err != nil {
			return err
		}
	}
	return nil
}
