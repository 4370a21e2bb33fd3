package shard

// The states of millions of URLs are in memory, by id. The table is an open-addressed one, because
// cache misses of several searches can overlap, unlike those of a map, and has no pointers.

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

// stateID is the hash of a URL. A state is what is known of the URL; its first word is not 0.
type (
	stateID [16]byte
	state   = [2]uint64
)

// elementSize is how many bytes Sorted writes for a URL.
const elementSize = 16 + 16

// table has states by id.
type table struct {
	slots []slot // a power of two of them, at most three quarters of which are used
	n     int
	seed  uint64 // odd and random, so that no one can choose URLs that lie in one place
	shift uint8  // from a product to a slot
}

// slot is free if the first word of its state is 0.
type slot struct {
	id    stateID
	state state
}

// stateTableLeast is how many slots a table begins with.
const stateTableLeast = 64

// newStateTable returns an empty table.
func newStateTable() *table {
	return &table{slots: make([]slot, stateTableLeast), seed: rand.Uint64() | 1, shift: uint8(64 - bits.Len(stateTableLeast-1))}
}

// Len is how many states there are.
func (t *table) Len() int { return t.n }

// home returns where a search for an id begins.
func (t *table) home(id *stateID) int {
	return int(binary.LittleEndian.Uint64(id[:]) * t.seed >> (t.shift & 63))
}

// Touch loads what a search for an id looks at first. Loads of several ids do not wait for each
// other. What it returns has no meaning.
func (t *table) Touch(id *stateID) uint64 { return t.slots[t.home(id)].state[0] }

// find returns the slot of an id, or the free one at which it belongs.
func (t *table) find(id *stateID) *slot {
	for i := t.home(id); ; i++ {
		s := &t.slots[i&(len(t.slots)-1)]
		if s.state[0] == 0 || s.id == *id {
			return s
		}
	}
}

// Get returns the state of an id, if there is one.
func (t *table) Get(id *stateID) (s state, ok bool) {
	found := t.find(id)
	return found.state, found.state[0] != 0
}

// Set sets the state of an id.
func (t *table) Set(id *stateID, state state) {
	s := t.find(id)
	if s.state[0] == 0 {
		if t.n++; 4*t.n > 3*len(t.slots) {
			t.grow()
			s = t.find(id)
		}
		s.id = *id
	}
	s.state = state
}

func (t *table) grow() {
	old := t.slots
	t.slots = make([]slot, 2*len(old))
	t.shift--
	for i := range old {
		if s := &old[i]; s.state[0] != 0 {
			*t.find(&s.id) = *s
		}
	}
}

// All yields the ids and states in no order.
func (t *table) All() iter.Seq2[*stateID, state] {
	return func(yield func(*stateID, state) bool) {
		for i := range t.slots {
			if s := &t.slots[i]; s.state[0] != 0 && !yield(&s.id, s.state) {
				return
			}
		}
	}
}

// Sorted returns ids and states, each in little-endian words after its id, in the order of the ids,
// without those that drop says. It calls step for each slot and, several times, for each state.
func (t *table) Sorted(drop func(id *stateID, state state) bool, step func()) []byte {
	all := make([]uint32, 0, t.n) // slots
	for i := range t.slots {
		step()
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
		step()
		ends[bucket(s)+1]++
	}
	for i := range buckets {
		ends[i+1] += ends[i]
	}
	order := make([]uint32, len(all))
	for _, s := range all {
		step()
		b := bucket(s)
		order[ends[b]] = s
		ends[b]++
	}
	elements := make([]byte, 0, len(all)*elementSize)
	first := int32(0)
	for _, end := range ends[:buckets] {
		some := order[first:end]
		first = end
		slices.SortFunc(some, func(i, j uint32) int {
			a, b := &t.slots[i].id, &t.slots[j].id
			return cmp.Or(cmp.Compare(binary.BigEndian.Uint64(a[:]), binary.BigEndian.Uint64(b[:])), bytes.Compare(a[8:], b[8:]))
		})
		for _, i := range some {
			step()
			s := &t.slots[i]
			elements = codec.AppendU64(codec.AppendU64(append(elements, s.id[:]...), s.state[0]), s.state[1])
		}
	}
	return elements
}
