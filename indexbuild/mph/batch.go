package mph

import (
	"encoding/binary"
	"math/bits"
	"sync"
)

// batchSize keys are looked up together: as many as a uint8 can index, so that no index is
// checked. Their state stays in the first-level cache.
const batchSize = 256

// batch is the state of batchSize lookups in lock-step. Each step is a loop without branches
// that depend on what was loaded, so that the processor runs ahead over many keys and their
// cache misses overlap.
type batch struct {
	key    [batchSize]uint64
	bucket [batchSize]uint32
	pos    [batchSize]uint64 // of the bit in the lines section, then of the record in bytes
	slot   [batchSize]uint64
	word   [batchSize]uint64 // that the bit is in, then the record's key
	left   [batchSize]uint8  // indexes of keys not found on earlier levels
	found  [batchSize]uint8  // and of those that were
}

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
		if err := t.slots(b, n); err != nil {
			return err
		}
		if err := t.ordinals(b, keys[:n], ordinals[:n]); err != nil {
			return err
		}
		keys, ordinals = keys[n:], ordinals[n:]
	}
	return nil
}

// SlotBatch is Slot for many keys, overlapped as in LookupBatch: slots[i] becomes the slot of
// keys[i], or 2^64-1 where it gets none. slots must be at least as long as keys.
func (t *Table) SlotBatch(keys, slots []uint64) error {
	slots = slots[:len(keys)]
	b := batches.Get().(*batch)
	defer batches.Put(b)
	for len(keys) > 0 {
		n := copy(b.key[:], keys)
		if err := t.slots(b, n); err != nil {
			return err
		}
		copy(slots, b.slot[:n])
		keys, slots = keys[n:], slots[n:]
	}
	return nil
}

// slots finds the slots of the first n keys.
func (t *Table) slots(b *batch, n int) error {
	dir, lines, seed := t.dir, t.lines, t.trailer.seed
	mul := uint64(hashMul)
	for i := range n {
		i := uint8(i)
		j, h := bits.Mul64(mum(b.key[i]^seed, mul), uint64(len(dir)))
		l := &dir[j].levels[0]
		line, bit := place(h, l.lines)
		b.bucket[i] = uint32(j)
		b.pos[i] = (l.line+line)*(8*lineSize) + bit
		b.left[i] = i
	}
	nleft, nfound := uint(n), uint(0)
	for level := 0; ; {
		if level >= t.minLevels {
			var err error
			if nleft, err = t.endLevels(b, nleft, level); err != nil {
				return err
			}
		}
		if t.cold.Load() != 0 {
			for _, i := range b.left[:nleft] {
				if err := t.check(t.trailer.layout.lines+b.pos[i]/8, 1); err != nil {
					return err
				}
			}
		}
		left := b.left[:nleft]
		for _, i := range left {
			b.word[i] = binary.LittleEndian.Uint64(lines[b.pos[i]/64*8:])
		}
		nleft = 0
		for _, i := range left {
			hit := uint(b.word[i] >> (b.pos[i] & 63) & 1)
			b.found[uint8(nfound)] = i
			b.left[uint8(nleft)] = i
			nfound += hit
			nleft += 1 - hit
		}
		if nleft == 0 {
			break
		}
		level++
		mul += hashStep
		for _, i := range b.left[:nleft] {
			l := &dir[b.bucket[i]].levels[level]
			line, bit := place(mum(b.key[i]^seed, mul), l.lines)
			b.pos[i] = (l.line+line)*(8*lineSize) + bit
		}
	}
	for _, i := range b.found[:nfound] {
		d := &dir[b.bucket[i]]
		p := b.pos[i]
		off := p / (8 * lineSize) * lineSize
		r := rank((*[lineSize]byte)(lines[off:]), p%(8*lineSize))
		if r >= d.keys {
			return t.rankError(d, off, r)
		}
		b.slot[i] = d.slot + r
	}
	return nil
}

// endLevels gives the keys left whose buckets have no such level their slots from the
// fallback, and returns the number of those still left.
func (t *Table) endLevels(b *batch, nleft uint, level int) (uint, error) {
	left := b.left[:nleft]
	nleft = 0
	for _, i := range left {
		if t.dir[b.bucket[i]].levels[level].lines != 0 {
			b.left[nleft] = i
			nleft++
			continue
		}
		slot, ok, err := t.searchFallback(b.key[i])
		if err != nil {
			return 0, err
		}
		if !ok {
			slot = absentSlot
		}
		b.slot[i] = slot
	}
	return nleft, nil
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
	for i := range keys {
		off := b.slot[uint8(i)] * recordSize
		if off >= uint64(len(records)) {
			off = 0 // no slot: any record will do, since none has this key
		}
		if at := t.trailer.layout.records + off; !t.seen(at) {
			if err := t.check(at, recordSize); err != nil {
				return err
			}
		}
		b.pos[uint8(i)] = off
	}
	for i := range keys {
		b.word[uint8(i)] = binary.LittleEndian.Uint64(records[b.pos[uint8(i)]:])
	}
	for i, k := range keys {
		if b.word[uint8(i)] != k.ID {
			ordinals[i] = Absent
			continue
		}
		off := b.pos[uint8(i)]
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
