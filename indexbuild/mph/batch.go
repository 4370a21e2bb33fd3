package mph

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"unsafe"
)

// batchSize keys are looked up together. Their state, and the lines that they are looked up in, stay in the first two levels of a core's
// cache; the last few keys of a batch, for whose levels the processor waits one after the other, are few among so many.
const batchSize = 512

// lanesPast is how far past the end of their keys eight lanes read and write.
const lanesPast = 8

// batch is the state of batchSize lookups in lock-step. Each step is a loop without branches
// that depend on what was loaded, so that the processor runs ahead over many keys and their
// cache misses overlap. Keys that a level did not find stand densely at the arrays' beginning for the next.
type batch struct {
	key [batchSize + lanesPast]uint64
	tag [batchSize + lanesPast]uint64 // index in the batch, and above it the offset of the bucket in the directory in memory
	pos [batchSize + lanesPast]uint64 // of the bit in the lines section

	// Of the keys that were found.
	foundTag [batchSize + lanesPast]uint64
	foundPos [batchSize + lanesPast]uint64

	slot [batchSize]uint64 // by index
	off  [batchSize]uint64 // of the record in the records section, by index
	word [batchSize]uint64 // the record's key, by index
}

const (
	tagIndex  = 1<<32 - 1
	tagBucket = 32
)

// batches are kept because clearing one would cost as much as looking up a few keys.
var batches = sync.Pool{New: func() any { return new(batch) }}

// LookupBatch looks up many domains with the memory latency of one overlapping that of the
// others: ordinals[i] becomes the ordinal of keys[i] or Absent. It answers as Lookup does.
// ordinals must be at least as long as keys; after an error its contents are undefined.
func (t *Table) LookupBatch(keys []Key, ordinals []uint32) error {
	ordinals = ordinals[:len(keys)]
	b := batches.Get().(*batch)
	defer batches.Put(b)
	for len(keys) > 0 {
		n := min(len(keys), batchSize)
		for i, k := range keys[:n] {
			b.key[i] = k.ID
		}
		if err := t.slots(b, b.slot[:n]); err != nil {
			return err
		}
		if err := t.ordinals(b, keys[:n], ordinals[:n]); err != nil {
			return err
		}
		keys, ordinals = keys[n:], ordinals[n:]
	}
	return nil
}

// levels is what keys are looked up in: the lines, and where those of each bucket's levels lie.
type levels struct {
	dir        []openBucket
	lines      []byte
	seed       uint64
	bucketBits uint32
	lanes      bool // eight keys are worked on at a time
}

// bucketStride is from one bucket to the next in memory.
const bucketStride = uint64(unsafe.Sizeof(openBucket{}))

// slots finds the slots of the batch's first keys, as many as there is room for.
func (t *Table) slots(b *batch, slots []uint64) error {
	left, found := len(slots), 0
	t.placeFirst(b, left)
	mul := uint64(hashMul)
	for level := 0; ; level++ {
		if level >= t.minLevels {
			var err error
			if left, err = t.endLevels(b, left, level, slots); err != nil {
				return err
			}
		}
		if left == 0 {
			break
		}
		if t.cold.Load() != 0 {
			for _, pos := range b.pos[:left] {
				if err := t.check(t.trailer.layout.lines+pos/8, 1); err != nil {
					return err
				}
			}
		}
		before := left
		left = t.part(b, left, found)
		found += before - left
		if left == 0 {
			break
		}
		mul += hashStep
		t.placeNext(b, left, level+1, mul)
	}
	if bad := t.rank(b, found, slots); bad >= 0 {
		off := b.foundPos[bad] / (8 * lineSize) * lineSize
		r := rank((*[lineSize]byte)(t.lines[off:]), b.foundPos[bad]%(8*lineSize))
		return t.rankError(t.bucket(b.foundTag[bad]), off, r)
	}
	return nil
}

// placeFirst finds buckets and bits of the batch's n keys on the first level.
func (t *levels) placeFirst(b *batch, n int) {
	dir, seed, buckets := t.dir, t.seed, uint64(1)<<t.bucketBits
	if t.lanes {
		placeFirstAVX512(b, n, seed, uint64(t.bucketBits), &dir[0], unsafe.SliceData(t.lines))
		return
	}
	for i, key := range b.key[:n] {
		j, h := bits.Mul64(mum(key^seed, hashMul), buckets)
		tag := j*bucketStride<<tagBucket | uint64(i)
		l := &t.bucket(tag).levels[0]
		line, bit := place(h, uint64(l.lines))
		b.tag[i] = tag
		b.pos[i] = (uint64(l.line)+line)*(8*lineSize) + bit
	}
}

// placeNext finds bits of n keys left on a further level, which their buckets have.
func (t *levels) placeNext(b *batch, n, level int, mul uint64) {
	seed := t.seed
	if t.lanes {
		placeNextAVX512(b, n, seed, mul, &t.dir[0].levels[level], unsafe.SliceData(t.lines))
		return
	}
	for i, key := range b.key[:n] {
		l := &t.bucket(b.tag[i]).levels[level]
		line, bit := place(mum(key^seed, mul), uint64(l.lines))
		b.pos[i] = (uint64(l.line)+line)*(8*lineSize) + bit
	}
}

// bucket is the one that a tag leads to.
func (t *levels) bucket(tag uint64) *openBucket {
	return &t.dir[(tag>>tagBucket)/bucketStride]
}

// part adds those of n keys whose bits are set to the keys found, and moves the others to the front. It returns how many these are.
func (t *levels) part(b *batch, n, found int) (left int) {
	lines := t.lines
	if t.lanes {
		return partAVX512(b, n, found, unsafe.SliceData(lines))
	}
	for i, pos := range b.pos[:n] {
		b.word[i] = binary.LittleEndian.Uint64(lines[pos/64*8:])
	}
	for i, pos := range b.pos[:n] {
		hit := int(b.word[i] >> (pos & 63) & 1)
		key, tag := b.key[i], b.tag[i]
		b.foundTag[found], b.foundPos[found] = tag, pos
		b.key[left], b.tag[left] = key, tag
		found += hit
		left += 1 - hit
	}
	return left
}

// rank makes the places of the n keys found their slots, and puts these by index to slots unless it is nil. It returns -1, or the number of a key whose rank is not below the
// keys of its bucket.
func (t *levels) rank(b *batch, n int, slots []uint64) (bad int) {
	if n == 0 {
		return -1
	}
	if t.lanes {
		clear(b.foundPos[n:][:lanesPast]) // may be of other lines
		return rankAVX512(b, n, &t.dir[0], unsafe.SliceData(t.lines), unsafe.SliceData(slots))
	}
	lines := t.lines
	for i := range n {
		d := t.bucket(b.foundTag[i])
		p := b.foundPos[i]
		r := rank((*[lineSize]byte)(lines[p/(8*lineSize)*lineSize:]), p%(8*lineSize))
		if r >= uint64(d.keys) {
			return i
		}
		b.foundPos[i] = uint64(d.slot) + r
		if slots != nil {
			slots[b.foundTag[i]&tagIndex] = b.foundPos[i]
		}
	}
	return -1
}

// endLevels gives the keys left whose buckets have no such level their slots from the
// fallback, and returns the number of those still left.
func (t *Table) endLevels(b *batch, n, level int, slots []uint64) (left int, err error) {
	for i, tag := range b.tag[:n] {
		if t.bucket(tag).levels[level].lines != 0 {
			b.key[left], b.tag[left], b.pos[left] = b.key[i], tag, b.pos[i]
			left++
			continue
		}
		slot, ok, err := t.searchFallback(b.key[i])
		if err != nil {
			return 0, err
		}
		if !ok {
			slot = absentSlot
		}
		slots[tag&tagIndex] = slot
	}
	return left, nil
}

// ordinals takes slots to ordinals by way of the records.
func (t *Table) ordinals(b *batch, keys []Key, ordinals []uint32) error {
	records := t.records
	if len(records) == 0 {
		for i := range ordinals {
			ordinals[i] = Absent
		}
		return nil
	}
	if t.coldRecords.Load() != 0 {
		for _, slot := range b.slot[:len(keys)] {
			if slot >= t.trailer.keys {
				slot = 0 // as below
			}
			if at := t.trailer.layout.records + slot*recordSize; !t.seen(at) {
				if err := t.check(at, recordSize); err != nil {
					return err
				}
			}
		}
	}
	if t.lanes && ordinalsAVX512(b, keys, unsafe.SliceData(records), t.trailer.keys, t.trailer.domains, unsafe.SliceData(ordinals)) == 0 {
		return nil
	}
	for i, slot := range b.slot[:len(keys)] {
		if slot >= t.trailer.keys {
			slot = 0 // there is none: any record will do, it is not looked at
		}
		b.off[i] = slot * recordSize
	}
	for i, off := range b.off[:len(keys)] {
		b.word[i] = binary.LittleEndian.Uint64(records[off:])
	}
	for i, k := range keys {
		if b.word[i] != k.ID || b.slot[i] >= t.trailer.keys {
			ordinals[i] = Absent
			continue
		}
		off := b.off[i]
		v := binary.LittleEndian.Uint64(records[off+8:])
		if uint32(v) == k.Check && v>>32 < t.trailer.domains {
			ordinals[i] = uint32(v >> 32)
			continue
		}
		var err error
		if ordinals[i], err = t.resolve(off/recordSize, uint32(v), uint32(v>>32), k.Check); err != nil {
			return err
		}
	}
	return nil
}
