package membership

import "math/bits"

// Most sets have few datasets with small numbers. They are packed into one or two words and found
// in hash tables without a bitmap being built.

// smallKey is a set of at most eight datasets below 2^16-1, packed: 16 bits for each, its number
// plus one; 0 where there is none.
type smallKey [2]uint64

// packSmall packs a set. It returns false if the set has too many or too large datasets or does not
// ascend.
func packSmall(datasets []uint32) (key smallKey, ok bool) {
	if len(datasets) > 8 {
		return smallKey{}, false
	}
	before := uint32(0)
	for i, d := range datasets {
		d++
		if d <= before || d >= 1<<16 {
			return smallKey{}, false
		}
		key[i/4] |= uint64(d) << (i % 4 * 16)
		before = d
	}
	return key, true
}

// hash spreads sets over a table.
func (k *smallKey) hash() uint64 {
	hi, lo := bits.Mul64(k[0]^0x9e3779b97f4a7c15, k[1]^0xd1b54a32d192ed02)
	return hi ^ lo
}

// maxTiny is how many datasets a tiny set has at most. Its key is the first word of a smallKey.
const maxTiny = 4

// tinyMasks keeps as many datasets as a set has.
var tinyMasks = [maxTiny + 1][maxTiny]uint64{
	1: {1<<64 - 1},
	2: {1<<64 - 1, 1<<64 - 1},
	3: {1<<64 - 1, 1<<64 - 1, 1<<64 - 1},
	4: {1<<64 - 1, 1<<64 - 1, 1<<64 - 1, 1<<64 - 1},
}

// packTiny is packSmall for the first n datasets. It has no branch on n, which would mispredict. It
// also packs sets that do not ascend; no table has the key of one.
func packTiny(datasets *[maxTiny]uint32, n int) (key uint64, ok bool) {
	m := &tinyMasks[n]
	a, b := (uint64(datasets[0])+1)&m[0], (uint64(datasets[1])+1)&m[1]
	c, d := (uint64(datasets[2])+1)&m[2], (uint64(datasets[3])+1)&m[3]
	return a | b<<16 | c<<32 | d<<48, (a|b|c|d)>>16 == 0
}

// smallSets maps small sets to their bitmaps: a hash table with linear probing of which at most
// half is used.
type smallSets struct {
	slots []smallSlot // a power of two
	n     int
}

type smallSlot struct {
	key smallKey // zero in a free slot
	byteRange
}

// slot returns the slot of a set, or the free one where it belongs.
func (t *smallSets) slot(key smallKey) *smallSlot {
	mask := uint64(len(t.slots) - 1)
	for i := key.hash() & mask; ; i = (i + 1) & mask {
		if s := &t.slots[i]; s.key == key || s.key == (smallKey{}) {
			return s
		}
	}
}

// add adds a set that the table does not have.
func (t *smallSets) add(key smallKey, at byteRange) {
	if 2*t.n >= len(t.slots) {
		old := t.slots
		t.slots = touchedSlots[smallSlot](2 * len(old))
		for i := range old {
			if s := &old[i]; s.key != (smallKey{}) {
				*t.slot(s.key) = *s
			}
		}
	}
	*t.slot(key) = smallSlot{key, at}
	t.n++
}

// tinySets is smallSets for tiny sets, which nearly all domains have. Every domain is looked up in
// it, in random order, so its slots are small enough for most of the table to stay in a core's
// cache.
type tinySets struct {
	slots []tinySlot // a power of two
	n     int
}

type tinySlot struct {
	key uint64 // 0 in a free slot
	at  uint64 // start, and in the lowest eight bits the length
}

func (s tinySlot) byteRange() byteRange { return byteRange{int64(s.at >> 8), int64(s.at & 0xff)} }

// home is the slot at which the search for a set starts.
func (t *tinySets) home(key uint64) uint64 {
	hi, lo := bits.Mul64(key, 0x9e3779b97f4a7c15)
	return (hi ^ lo) & uint64(len(t.slots)-1)
}

// slot returns the slot of a set, or the free one where it belongs.
func (t *tinySets) slot(key uint64) *tinySlot {
	mask := uint64(len(t.slots) - 1)
	for i := t.home(key); ; i = (i + 1) & mask {
		if s := &t.slots[i]; s.key == key || s.key == 0 {
			return s
		}
	}
}

// add adds a set that the table does not have.
func (t *tinySets) add(key uint64, at byteRange) {
	if 2*t.n >= len(t.slots) {
		old := t.slots
		t.slots = touchedSlots[tinySlot](2 * len(old))
		for _, s := range old {
			if s.key != 0 {
				*t.slot(s.key) = s
			}
		}
	}
	*t.slot(key) = tinySlot{key, uint64(at.start)<<8 | uint64(at.length)}
	t.n++
}

// touchedSlots returns n zero slots that were written. Memory whose first access is a read is
// mapped twice, page by page, and the second time interrupts all processors.
func touchedSlots[T any](n int) []T {
	slots := make([]T, n)
	clear(slots)
	return slots
}
