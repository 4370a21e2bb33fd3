// Package numbers has values by number, for millions of them. A table is an open-addressed one,
// because cache misses of several searches can overlap, unlike those of a map, and has no pointers
// but those of its values. It is divided by hash into parts that grow at different times, so that
// nobody waits while all of a large table is moved.
package numbers

import (
	"iter"
	"math/bits"
	"math/rand/v2"
)

const (
	partBits = 6
	parts    = 1 << partBits
	// least is how many slots a part begins with, and the fewest to which it shrinks.
	least = 16
)

// Table has a value of each of some numbers, which are less than 1<<64 - 1.
type Table[V any] struct {
	parts [parts]part[V]
	seed  uint64 // odd and random, so that no one can choose numbers that lie in one place
}

// part has the numbers whose hashes begin with the same bits. The slots are a power of two.
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

// hash mixes both halves of a product, since numbers often follow one another: multiplied alone
// they lie in a few rows, for some seeds.
func (t *Table[V]) hash(number uint64) uint64 {
	hi, lo := bits.Mul64(number^t.seed, 0x9e3779b97f4a7c15)
	return (hi ^ lo) * t.seed
}

// part returns the part of a number, which one that is, and the rest of its hash.
func (t *Table[V]) part(number uint64) (p *part[V], which int, hash uint64) {
	hash = t.hash(number)
	which = int(hash >> (64 - partBits))
	return &t.parts[which], which, hash << partBits
}

// full says whether a part with n values is to have more slots. The parts are of about the same
// size, and become so full one after the other: the first is half full then, the last three
// quarters.
func full(n, slots, which int) bool { return 4*parts*n > (2*parts+which)*slots }

// empty says whether it is to have fewer, again one part after the other: an eighth of the slots
// are used then, or a quarter less than that.
func empty(n, slots, which int) bool { return slots > least && 32*parts*n < (3*parts+which)*slots }

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
	p, _, hash := t.part(number)
	if p.n == 0 {
		return 0
	}
	return p.slots[p.home(hash)].next
}

// At returns the value of a number, nil if it has none. It stays there until the next Set or Delete
// of any number.
func (t *Table[V]) At(number uint64) *V {
	p, _, hash := t.part(number)
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
	p, which, hash := t.part(number)
	if full(p.n+1, len(p.slots), which) {
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
	p, which, hash := t.part(number)
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
		_, _, hash := t.part(p.slots[j].next - 1)
		if (j-p.home(hash))&mask >= (j-i)&mask {
			p.slots[i] = p.slots[j]
			i = j
		}
	}
	p.slots[i] = slot[V]{}
	if empty(p.n, len(p.slots), which) {
		t.resize(p, len(p.slots)/2)
	}
	return true
}

func (t *Table[V]) resize(p *part[V], n int) {
	old := p.slots
	p.slots = make([]slot[V], n)
	for i := range old {
		if s := &old[i]; s.next != 0 {
			_, _, hash := t.part(s.next - 1)
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
