package shard

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"iter"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/urlake/urlake/lake/codec"
)

// stateTable has the states of URLs in memory, by id. It is an open-addressed table, because cache
// misses of several searches can overlap, unlike those of a map: see touch.
type stateTable struct {
	slots []stateSlot // a power of two of them, at most three quarters of which are used
	n     int
	seed  uint64 // odd and random, so that no one can choose URLs that lie in one place
	shift uint8  // from a product to a slot
}

// stateSlot is free if its state is 0: no entry has the number 0.
type stateSlot struct {
	id    URLID
	state packed
}

// statesLeast is how many slots a table begins with.
const statesLeast = 64

func newStateTable() *stateTable {
	return &stateTable{slots: make([]stateSlot, statesLeast), seed: rand.Uint64() | 1, shift: uint8(64 - bits.Len(statesLeast-1))}
}

func (t *stateTable) len() int { return t.n }

// slot returns where a search for an id begins.
func (t *stateTable) slot(id *URLID) int {
	return int(binary.LittleEndian.Uint64(id[:]) * t.seed >> (t.shift & 63))
}

// touch loads what a search for an id looks at first. Loads of several ids do not wait for each
// other. What it returns has no meaning.
func (t *stateTable) touch(id *URLID) uint64 { return t.slots[t.slot(id)].state[0] }

// find returns the slot of an id, or the free one at which it belongs.
func (t *stateTable) find(id *URLID) *stateSlot {
	for i := t.slot(id); ; i++ {
		s := &t.slots[i&(len(t.slots)-1)]
		if s.state[0] == 0 || s.id == *id {
			return s
		}
	}
}

func (t *stateTable) get(id *URLID) (p packed, ok bool) {
	s := t.find(id)
	return s.state, s.state[0] != 0
}

func (t *stateTable) set(id *URLID, p packed) {
	s := t.find(id)
	if s.state[0] == 0 {
		if t.n++; 4*t.n > 3*len(t.slots) {
			t.grow()
			s = t.find(id)
		}
		s.id = *id
	}
	s.state = p
}

func (t *stateTable) grow() {
	old := t.slots
	t.slots = make([]stateSlot, 2*len(old))
	t.shift--
	for i := range old {
		if s := &old[i]; s.state[0] != 0 {
			*t.find(&s.id) = *s
		}
	}
}

// all yields the ids and states in no order.
func (t *stateTable) all() iter.Seq2[*URLID, packed] {
	return func(yield func(*URLID, packed) bool) {
		for i := range t.slots {
			if s := &t.slots[i]; s.state[0] != 0 && !yield(&s.id, s.state) {
				return
			}
		}
	}
}

// sorted returns ids and states as elements of a file, sorted, without those that drop says.
func (t *stateTable) sorted(drop func(id *URLID, p packed) bool) []byte {
	all := make([]uint32, 0, t.n) // slots
	for i := range t.slots {
		if s := &t.slots[i]; s.state[0] != 0 && !drop(&s.id, s.state) {
			all = append(all, uint32(i))
		}
	}
	// Ids are hashes, so the buckets of their upper bits have a few each.
	buckets := uint64(max(1, len(all)/4))
	bucket := func(slot uint32) uint64 {
		hi, _ := bits.Mul64(binary.BigEndian.Uint64(t.slots[slot].id[:]), buckets)
		return hi
	}
	ends := make([]int32, buckets+1)
	for _, s := range all {
		ends[bucket(s)+1]++
	}
	for i := range buckets {
		ends[i+1] += ends[i]
	}
	order := make([]uint32, len(all))
	for _, s := range all {
		b := bucket(s)
		order[ends[b]] = s
		ends[b]++
	}
	elements := make([]byte, 0, len(all)*seenElement)
	first := int32(0)
	for _, end := range ends[:buckets] {
		some := order[first:end]
		first = end
		slices.SortFunc(some, func(i, j uint32) int {
			a, b := &t.slots[i].id, &t.slots[j].id
			return cmp.Or(cmp.Compare(binary.BigEndian.Uint64(a[:]), binary.BigEndian.Uint64(b[:])), bytes.Compare(a[8:], b[8:]))
		})
		for _, i := range some {
			s := &t.slots[i]
			elements = codec.AppendU64(codec.AppendU64(append(elements, s.id[:]...), s.state[0]), s.state[1])
		}
	}
	return elements
}
