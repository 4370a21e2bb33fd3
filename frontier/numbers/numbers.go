// Package numbers has values by number, for millions of them. A table is an open-addressed one,
// because cache misses of several searches can overlap, unlike those of a map, and has no pointers
// but those of its values. It is divided by hash, and its parts grow one by one, so that nobody
// waits while all of a large table is moved.
package numbers

import (
	"iter"
	"math/bits"
	"math/rand/v2"
)

const (
	partBits = 6
	// least is how many slots a part begins with, and the fewest to which it shrinks.
	least = 16
)

// Table has a value of each of some numbers, which are less than 1<<64 - 1.
type Table[V any] struct {
	parts [1 << partBits]part[V]
	seed  uint64 // odd and random, so that no one can choose numbers that lie in one place
}

// part has the numbers whose hashes begin with the same bits. The slots are a power of two, at most
// three quarters of which are used.
type part[V any] struct {
	slots []slot[V]
	n     int
}

type slot[V any] struct {
	next  uint64 // the number and one, 0 if the slot is free
	value V
}

// New returns an empty table.
func New[V any]() *Table[V] { return &Table[V]{seed: rand.Uint64() | 1} }

// part returns the part of a number, and the rest of its hash.
func (t *Table[V]) part(number uint64) (p *part[V], hash uint64) {
	hash = number * t.seed
	return &t.parts[hash>>(64-partBits)], hash << partBits
}

// home returns where a search begins.
func (p *part[V]) home(hash uint64) int { return int(hash >> (64 - bits.Len(uint(len(p.slots)-1)))) }

// find returns the slot of a number, or the free one at which it belongs. There are slots.
func (p *part[V]) find(number, hash uint64) int {
	for i := p.home(hash); ; i++ {
		i &= len(p.slots) - 1
		if s := &p.slots[i]; s.next == 0 || s.next == number+1 {
			return i
		}
	}
}

// Touch loads what a search for a number looks at first. Loads of several numbers do not wait for
// each other. What it returns has no meaning.
func (t *Table[V]) Touch(number uint64) uint64 {
	p, hash := t.part(number)
	if p.n == 0 {
		return 0
	}
	return p.slots[p.home(hash)].next
}

// At returns the value of a number, nil if it has none. It stays there until the next Set or Delete
// of any number.
func (t *Table[V]) At(number uint64) *V {
	p, hash := t.part(number)
	if p.n == 0 {
		return nil
	}
	s := &p.slots[p.find(number, hash)]
	if s.next == 0 {
		return nil
	}
	return &s.value
}

// Set sets the value of a number.
func (t *Table[V]) Set(number uint64, v V) {
	p, hash := t.part(number)
	if 4*(p.n+1) > 3*len(p.slots) {
		t.resize(p, max(least, 2*len(p.slots)))
	}
	s := &p.slots[p.find(number, hash)]
	if s.next == 0 {
		s.next = number + 1
		p.n++
	}
	s.value = v
}

// Delete deletes a number, and says whether it was there.
func (t *Table[V]) Delete(number uint64) bool {
	p, hash := t.part(number)
	if p.n == 0 {
		return false
	}
	i := p.find(number, hash)
	if p.slots[i].next == 0 {
		return false
	}
	p.n--
	// What a search from its home would no longer reach moves to the free slot.
	mask := len(p.slots) - 1
	for j := (i + 1) & mask; p.slots[j].next != 0; j = (j + 1) & mask {
		_, hash := t.part(p.slots[j].next - 1)
		if (j-p.home(hash))&mask >= (j-i)&mask {
			p.slots[i] = p.slots[j]
			i = j
		}
	}
	p.slots[i] = slot[V]{}
	if len(p.slots) > least && 8*p.n < len(p.slots) {
		t.resize(p, len(p.slots)/2)
	}
	return true
}

func (t *Table[V]) resize(p *part[V], n int) {
	old := p.slots
	p.slots = make([]slot[V], n)
	for i := range old {
		if s := &old[i]; s.next != 0 {
			_, hash := t.part(s.next - 1)
			p.slots[p.find(s.next-1, hash)] = *s
		}
	}
}

// All yields numbers and values in no order. While it does, others may be set and deleted: those
// that are there all the time are yielded once, others perhaps.
func (t *Table[V]) All() iter.Seq2[uint64, V] {
	return func(yield func(uint64, V) bool) {
		var some []uint64
		for i := range t.parts {
			p := &t.parts[i]
			some = some[:0]
			for j := range p.slots {
				if next := p.slots[j].next; next != 0 {
					some = append(some, next-1)
				}
			}
			for _, number := range some {
				if v := t.At(number); v != nil && !yield(number, *v) {
					return
				}
			}
		}
	}
}
