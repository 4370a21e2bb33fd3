package mph

import (
	"encoding/binary"
	"math/bits"
	"sync"
)

// batchSize is the number of keys that are looked up together. Their state and their lines fit into
// the first two levels of a core's cache. A larger batch has relatively fewer keys on its last
// levels, where few cache misses overlap.
const batchSize = 512

// batch is the state of up to batchSize lookups in lock-step. Each step is a loop without branches
// on loaded data, so that the processor runs ahead and the cache misses of many keys overlap. The
// keys that a level did not find move to the beginning of key, tag and pos for the next level.
type batch struct {
	key [batchSize]uint64
	tag [batchSize]uint64 // lower half: index in the batch; upper half: index in dir
	pos [batchSize]uint64 // bit offset in lines

	// Of the keys that were found. rank replaces foundPos by the slots.
	foundTag [batchSize]uint64
	foundPos [batchSize]uint64

	slot [batchSize]uint64 // by index
	off  [batchSize]uint64 // of the record in records, by index
	word [batchSize]uint64 // words of lines; then the records' keys, by index
}

const (
	tagIndex  = 1<<32 - 1
	tagBucket = 32
)

// batches pools batches: clearing a new one costs as much as some lookups.
var batches = sync.Pool{New: func() any { return new(batch) }}

// LookupBatch sets ordinals[i] to the ordinal of keys[i], or to Absent. It gives the answers of
// Lookup faster, since the cache misses of many keys overlap. ordinals must be at least as long as
// keys; after an error its contents are undefined.
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

// levels is the hash: lines, and the directory of each bucket's levels in them.
type levels struct {
	dir        []openBucket
	lines      []byte
	seed       uint64
	bucketBits uint32
}

// slots sets slots to the slots of the batch's first len(slots) keys, or to absentSlot. Keys that
// are not in the table get any slot or none.
func (t *Table) slots(b *batch, slots []uint64) error {
	left, found := len(slots), 0
	t.locateFirst(b, left)
	mul := uint64(hashMul)
	for level := 0; ; level++ {
		if level >= t.minLevels {
			var err error
			if left, err = t.searchEnded(b, left, level, slots); err != nil {
				return err
			}
		}
		if left == 0 {
			break
		}
		if t.unverifiedLines.Load() != 0 {
			for _, pos := range b.pos[:left] {
				if err := t.check(t.trailer.layout.lines+pos/8, 1); err != nil {
					return err
				}
			}
		}
		before := left
		left = t.partition(b, left, found)
		found += before - left
		if left == 0 {
			break
		}
		mul += hashStep
		t.locateNext(b, left, level+1, mul)
	}
	if bad := t.rank(b, found, slots); bad >= 0 {
		off := b.foundPos[bad] / (8 * lineSize) * lineSize
		r := rank((*[lineSize]byte)(t.lines[off:]), b.foundPos[bad]%(8*lineSize))
		return t.rankError(t.bucket(b.foundTag[bad]), off, r)
	}
	return nil
}

// locateFirst computes the buckets of the batch's n keys and their bits on the first level.
func (t *levels) locateFirst(b *batch, n int) {
	seed, buckets := t.seed, uint64(1)<<t.bucketBits
	for i, key := range b.key[:n] {
		j, h := bits.Mul64(mum(key^seed, hashMul), buckets)
		tag := j<<tagBucket | uint64(i)
		l := &t.bucket(tag).levels[0]
		line, bit := locate(h, uint64(l.lines))
		b.tag[i] = tag
		b.pos[i] = (uint64(l.line)+line)*(8*lineSize) + bit
	}
}

// locateNext computes the bits of the batch's n keys on a further level. Their buckets have that
// level.
func (t *levels) locateNext(b *batch, n, level int, mul uint64) {
	seed := t.seed
	for i, key := range b.key[:n] {
		l := &t.bucket(b.tag[i]).levels[level]
		line, bit := locate(mum(key^seed, mul), uint64(l.lines))
		b.pos[i] = (uint64(l.line)+line)*(8*lineSize) + bit
	}
}

// bucket returns the bucket of a tag.
func (t *levels) bucket(tag uint64) *openBucket {
	return &t.dir[tag>>tagBucket]
}

// partition divides the batch's n keys by their bits. Keys with a one join the found keys, of which
// there are found so far; the others move to the beginning. It returns the number of the others.
func (t *levels) partition(b *batch, n, found int) (left int) {
	lines := t.lines
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

// rank replaces foundPos of the batch's n found keys by their slots, and stores these in slots by
// index unless slots is nil. It returns -1, or the number of a found key whose rank in its bucket
// is not below the bucket's keys, which only damaged lines cause.
func (t *levels) rank(b *batch, n int, slots []uint64) (bad int) {
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

// searchEnded looks up those of the batch's n keys in the fallback whose buckets have no such
// level, and moves the others to the beginning. It returns the number of the others.
func (t *Table) searchEnded(b *batch, n, level int, slots []uint64) (left int, err error) {
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

// ordinals sets ordinals from the records at the batch's slots, checking keys and check bits.
func (t *Table) ordinals(b *batch, keys []Key, ordinals []uint32) error {
	records := t.records
	if len(records) == 0 {
		for i := range ordinals {
			ordinals[i] = Absent
		}
		return nil
	}
	if t.unverifiedRecords.Load() != 0 {
		for _, slot := range b.slot[:len(keys)] {
			if slot >= t.trailer.keys {
				slot = 0 // see below
			}
			if at := t.trailer.layout.records + slot*recordSize; !t.isVerified(at) {
				if err := t.check(at, recordSize); err != nil {
					return err
				}
			}
		}
	}
	for i, slot := range b.slot[:len(keys)] {
		if slot >= t.trailer.keys {
			slot = 0 // no record: load any, its contents are ignored
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
