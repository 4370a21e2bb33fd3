// Package ready orders the keys of crawls, such as domains, by when they may be fetched from next.
// A key has one time, which all crawls share: when one has claimed it, the others wait as well.
//
// A Table has no pointers to keys, so the garbage collector does not look at each: there may be
// millions. Times are in milliseconds. A Table is for one goroutine at a time.
package ready

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/frontier/arena"
)

// looksAtOnce bounds how many keys a claim looks at that cannot be claimed, since another crawl has
// moved their times.
const looksAtOnce = 10_000

// keysLeast is how many keys a Table may have before it looks for some that need not be there.
const keysLeast = 1024

// Table has the keys that were woken or put off, of which Compact drops some.
type Table struct {
	names   arena.Arena
	keys    []key
	index   []slot // a power of two
	crawls  map[string]*crawl
	last    uint32 // the number of the newest crawl
	seed    uint64 // random, so that no one can choose keys that lie in one place
	compact int    // with how many keys Compact looks at them
}

// key is a key by number. Next is from when on it may be fetched from. Most keys are of one crawl:
// at is when to look at the key in that, if it has a number, and others have their own.
type key struct {
	name  arena.Place
	next  int64
	at    int64
	crawl uint32
}

// slot has the number of a key, from 1 on, 0 if it is free, where the hash of its name says, or
// after that.
type slot struct{ hash, number uint32 }

// crawl has the keys of which something waits in a crawl, and when each is to be looked at, which
// is never later than it may be fetched from. These times are in keys, or in others for keys that
// are of other crawls, too. Heap has an entry of each, and may have some that say another time.
type crawl struct {
	table  *Table
	number uint32
	n      int
	others map[uint32]int64
	heap   heap
}

// at returns when a key is to be looked at. It is false if nothing waits of it.
func (c *crawl) at(number uint32) (at int64, ok bool) {
	if k := &c.table.keys[number]; k.crawl == c.number {
		return k.at, true
	}
	if len(c.others) == 0 {
		return 0, false
	}
	at, ok = c.others[number]
	return at, ok
}

// set has a key looked at from a time on, without an entry of the heap.
func (c *crawl) set(number uint32, at int64) {
	if _, ok := c.at(number); !ok {
		c.n++
	}
	k := &c.table.keys[number]
	if _, other := c.others[number]; k.crawl == c.number || k.crawl == 0 && !other {
		k.at, k.crawl = at, c.number
		return
	}
	if c.others == nil {
		c.others = map[uint32]int64{}
	}
	c.others[number] = at
}

// drop notes that nothing waits of a key.
func (c *crawl) drop(number uint32) {
	if _, ok := c.at(number); !ok {
		return
	}
	c.n--
	if k := &c.table.keys[number]; k.crawl == c.number {
		k.crawl = 0
		return
	}
	delete(c.others, number)
}

// Rule is what holds for a key besides its time.
type Rule struct {
	// Held keys are not claimed until they are woken.
	Held bool
	// Blocked is until when the key is not claimed.
	Blocked int64
	// Delay is for how long it rests once it was claimed.
	Delay int64
}

// Claim is what was claimed of a crawl.
type Claim struct {
	Keys    []string
	at      int64 // when they were claimed
	of      *Table
	numbers []uint32 // in that
}

// New returns an empty Table.
func New() *Table {
	return &Table{index: make([]slot, 16), crawls: map[string]*crawl{}, compact: keysLeast, seed: rand.Uint64()}
}

// find returns the number of a key, and the slot in which it is, or would be.
func (t *Table) find(name string) (number uint32, hash, at uint32, ok bool) {
	hash = uint32(xxh3.HashStringSeed(name, t.seed))
	mask := uint32(len(t.index) - 1)
	for at = hash & mask; ; at = (at + 1) & mask {
		s := t.index[at]
		if s.number == 0 {
			return 0, hash, at, false
		}
		if s.hash == hash && string(t.names.Get(t.keys[s.number-1].name)) == name {
			return s.number - 1, hash, at, true
		}
	}
}

// add returns the number of a key, which is a new one if there is none yet.
func (t *Table) add(name string) uint32 {
	number, hash, at, ok := t.find(name)
	if ok {
		return number
	}
	t.keys = append(t.keys, key{name: t.names.Keep([]byte(name))})
	t.index[at] = slot{hash, uint32(len(t.keys))}
	if 4*len(t.keys) > 3*len(t.index) {
		t.grow()
	}
	return uint32(len(t.keys) - 1)
}

func (t *Table) grow() {
	old := t.index
	t.index = make([]slot, 2*len(old))
	mask := uint32(len(t.index) - 1)
	for _, s := range old {
		if s.number == 0 {
			continue
		}
		at := s.hash & mask
		for t.index[at].number != 0 {
			at = (at + 1) & mask
		}
		t.index[at] = s
	}
}

// Next is from when on a key may be fetched from, 0 if it was not put off.
func (t *Table) Next(name string) int64 {
	if number, _, _, ok := t.find(name); ok {
		return t.keys[number].next
	}
	return 0
}

// Rest puts a key off until a time. It never comes nearer by this.
func (t *Table) Rest(name string, until int64) {
	k := &t.keys[t.add(name)]
	k.next = max(k.next, until)
}

// Wake notes that something waits of a key in a crawl, and that it is to be looked at from a time
// on.
func (t *Table) Wake(of, name string, at int64) {
	c := t.crawls[of]
	if c == nil {
		t.last++
		c = &crawl{table: t, number: t.last}
		t.crawls[strings.Clone(of)] = c
	}
	number := t.add(name)
	if before, ok := c.at(number); !ok || at < before {
		c.set(number, at)
		c.heap.push(entry{at, number})
		c.clean()
	}
}

// Idle notes that nothing waits of a key in a crawl.
func (t *Table) Idle(of, name string) {
	c := t.crawls[of]
	number, _, _, ok := t.find(name)
	if c == nil || !ok {
		return
	}
	c.drop(number)
	t.leave(of, c)
}

// leave ends work on a crawl, and forgets it if nothing waits.
func (t *Table) leave(of string, c *crawl) {
	if c.clean(); c.n == 0 {
		delete(t.crawls, of)
	}
}

// clean drops the entries that say another time once they are the most.
func (c *crawl) clean() {
	if len(c.heap) <= 2*c.n+64 {
		return
	}
	seen := make(map[uint32]struct{}, c.n)
	c.heap = slices.DeleteFunc(c.heap, func(e entry) bool {
		if at, ok := c.at(e.number); !ok || at != e.at {
			return true
		}
		_, twice := seen[e.number]
		seen[e.number] = struct{}{}
		return twice
	})
	c.heap.order()
}

// Claim claims up to n keys of a crawl that may be fetched from now, those first that were looked
// at least recently, and puts each off. Without any it returns when to look again, -1 if nothing
// waits. The name that rule gets is valid during the call.
func (t *Table) Claim(of string, now int64, n int, rule func(name []byte) Rule) (claim Claim, next int64) {
	c := t.crawls[of]
	if c == nil {
		return claim, -1
	}
	claim.numbers = make([]uint32, 0, min(n, c.n))
	var again []uint32 // those that rest for no time
	for looks := 0; len(claim.numbers) < n && looks < looksAtOnce && len(c.heap) > 0 && c.heap[0].at <= now; looks++ {
		number := c.heap[0].number
		if at, ok := c.at(number); !ok || at != c.heap[0].at {
			c.heap.pop()
			continue
		}
		at, claimed := t.look(c, number, now, rule)
		switch {
		case at < 0:
			c.heap.pop()
		case at > now:
			c.heap.replace(entry{at, number})
		default: // it must not come twice
			c.heap.pop()
			c.drop(number)
			again = append(again, number)
		}
		if claimed {
			claim.numbers = append(claim.numbers, number)
		}
	}
	for _, number := range again {
		c.set(number, now)
		c.heap.push(entry{now, number})
	}
	next = -1 // or when to look again. An entry that says another time may be earlier than that.
	if c.n > 0 {
		next = c.heap[0].at
	}
	t.leave(of, c)
	return t.named(claim, now), next
}

// ClaimOnly is Claim of some keys only, no two of which are the same.
func (t *Table) ClaimOnly(of string, now int64, n int, rule func(name []byte) Rule, names []string) (claim Claim, next int64) {
	c := t.crawls[of]
	if c == nil {
		return claim, -1
	}
	next = -1
	for _, name := range names {
		number, _, _, ok := t.find(name)
		if !ok {
			continue
		}
		at, ok := c.at(number)
		if !ok {
			continue
		}
		if at <= now && len(claim.numbers) < n {
			later, claimed := t.look(c, number, now, rule)
			if later >= 0 {
				c.heap.push(entry{later, number})
			}
			if claimed {
				claim.numbers = append(claim.numbers, number)
				continue
			}
			at = later
		}
		if at >= 0 && (next < 0 || at < next) {
			next = at
		}
	}
	t.leave(of, c)
	return t.named(claim, now), next
}

// look claims a key that is to be looked at, if it may be fetched from now, and returns when to
// look again, -1 if it is held.
func (t *Table) look(c *crawl, number uint32, now int64, rule func(name []byte) Rule) (at int64, claimed bool) {
	k := &t.keys[number]
	r := rule(t.names.Get(k.name))
	if r.Held {
		c.drop(number)
		return -1, false
	}
	if at = max(k.next, r.Blocked); at <= now {
		at, claimed = now+max(r.Delay, 0), true
		if r.Delay > 0 {
			k.next = at
		}
	}
	c.set(number, at)
	return at, claimed
}

// named sets the names of what was claimed, which share memory.
func (t *Table) named(c Claim, now int64) Claim {
	size := 0
	for _, number := range c.numbers {
		size += len(t.names.Get(t.keys[number].name))
	}
	var all strings.Builder
	all.Grow(size)
	c.at, c.of, c.Keys = now, t, make([]string, len(c.numbers))
	for i, number := range c.numbers {
		from := all.Len()
		all.Write(t.names.Get(t.keys[number].name))
		c.Keys[i] = all.String()[from:]
	}
	return c
}

// Rests calls yield with the keys of a claim that rest after it, and until when.
func (t *Table) Rests(c Claim, yield func(key *string, until int64)) {
	for i := range c.Keys {
		var next int64
		if c.of == t {
			next = t.keys[c.numbers[i]].next
		} else { // it was compacted meanwhile
			next = t.Next(c.Keys[i])
		}
		if next > c.at {
			yield(&c.Keys[i], next)
		}
	}
}

// Compact returns a table without the keys of which nothing waits and whose time is over, if these
// are most: the table itself otherwise. It mostly looks at nothing.
func (t *Table) Compact(now int64) *Table {
	if len(t.keys) < t.compact {
		return t
	}
	waits := map[uint32]struct{}{}
	for _, c := range t.crawls {
		for number := range c.others {
			waits[number] = struct{}{}
		}
	}
	needed := func(number uint32) bool {
		k := &t.keys[number]
		_, other := waits[number]
		return k.crawl != 0 || other || k.next > now
	}
	n := 0
	for number := range t.keys {
		if needed(uint32(number)) {
			n++
		}
	}
	if t.compact = 2 * len(t.keys); n > len(t.keys)/2 {
		return t
	}
	to := New()
	to.compact = max(keysLeast, 4*n)
	name := func(number uint32) string { return string(t.names.Get(t.keys[number].name)) }
	for number := range t.keys {
		if needed(uint32(number)) {
			to.Rest(name(uint32(number)), t.keys[number].next)
		}
	}
	for of, c := range t.crawls {
		for _, e := range c.heap {
			if at, ok := c.at(e.number); ok && at == e.at {
				to.Wake(of, name(e.number), at)
			}
		}
	}
	return to
}

// Count returns how many keys of a crawl are to be looked at by now, and how many there are.
func (t *Table) Count(of string, now int64) (ready, all int) {
	c := t.crawls[of]
	if c == nil {
		return 0, 0
	}
	for _, e := range c.heap {
		if at, ok := c.at(e.number); ok && at == e.at && at <= now {
			ready++
		}
	}
	return min(ready, c.n), c.n
}
