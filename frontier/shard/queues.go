package shard

import (
	"encoding/binary"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/urlake/urlake/frontier/arena"
)

// queue counts the URLs of a queue, and has those in memory.
//
// There are millions, so it has 64 bytes, which is a line of a cache, and no pointers: the garbage
// collector does not look at it.
type queue struct {
	id     QueueID
	name   arena.Place // in queueTable.names
	number uint32
	crawl  uint32 // see crawls.at; noCrawl once it is forgotten
	// memory has the heaps of the entries that wait in memory, of the batch with each side.
	memory [2]node
	// heads has the next entry of each run that there was at a generation of the shard's runs.
	heads      node
	generation uint32
	n          [states]uint32
}

// suspect says that entries of the queue in memory or in runs may not count any more. It is the
// upper bit of a count.
const suspect = 1 << 31

func (q *queue) isSuspect() bool { return q.n[isLeased]&suspect != 0 }

func (q *queue) setSuspect(s bool) {
	q.n[isLeased] &^= suspect
	if s {
		q.n[isLeased] |= suspect
	}
}

// has is how many entries of the queue are in a state.
func (q *queue) has(state int) int64 { return int64(q.n[state] &^ suspect) }

func (q *queue) counts() (c Counts) {
	for i := range q.n {
		c[i] = q.has(i)
	}
	return c
}

const (
	// queuesChunk is how many queues share an object, slotsLeast how many slots a table begins
	// with.
	queuesChunk = 256
	slotsLeast  = 64
)

// queueTable has the queues of a shard by id, in an open-addressed table like that of package
// statetable. A queue stays at its address, and has its number, until it is released.
type queueTable struct {
	chunks []*[queuesChunk]queue
	used   int      // how many queues of the chunks were ever used
	free   []uint32 // the numbers of those that were released
	names  arena.Arena
	dead   int // the bytes of the names of released queues
	// slots are a power of two, at most three quarters of which are used. The upper half of a slot
	// is the hash of a queue's id, the lower one its number + 1. A free one is 0.
	slots []uint64
	n     int
	seed  uint64 // odd and random, so that no one can choose queues that lie in one place
}

func newQueueTable() queueTable {
	return queueTable{slots: make([]uint64, slotsLeast), seed: rand.Uint64() | 1}
}

func (t *queueTable) len() int { return t.n }

// at returns the queue with a number.
func (t *queueTable) at(number uint32) *queue {
	return &t.chunks[number/queuesChunk][number%queuesChunk]
}

// name returns a copy of a queue's name.
func (t *queueTable) name(q *queue) string { return string(t.names.Get(q.name)) }

func (t *queueTable) hash(id *QueueID) uint32 {
	return uint32(binary.LittleEndian.Uint64(id[:]) * t.seed >> 32)
}

// home is the slot at which the search for a hash begins. It depends on the upper bits.
func (t *queueTable) home(hash uint32) int {
	return int(uint64(hash) * uint64(len(t.slots)) >> 32)
}

// find returns the slot of a queue and the queue, or the slot at which it belongs and nil.
func (t *queueTable) find(id *QueueID) (slot int, q *queue) {
	hash := t.hash(id)
	for i := t.home(hash); ; i++ {
		i &= len(t.slots) - 1
		s := t.slots[i]
		if s == 0 {
			return i, nil
		}
		if uint32(s>>32) == hash {
			if q := t.at(uint32(s) - 1); q.id == *id {
				return i, q
			}
		}
	}
}

// get returns a queue, or nil.
func (t *queueTable) get(id *QueueID) *queue {
	_, q := t.find(id)
	return q
}

// touch loads what a search for an id looks at first, as table.Touch does.
func (t *queueTable) touch(id *QueueID) uint64 { return t.slots[t.home(t.hash(id))] }

// add makes a queue that there is not.
func (t *queueTable) add(id QueueID, name string) *queue {
	if t.n++; 4*t.n > 3*len(t.slots) {
		t.grow()
	}
	number := uint32(t.used)
	if last := len(t.free) - 1; last >= 0 {
		number, t.free = t.free[last], t.free[:last]
	} else {
		if t.used++; t.used > len(t.chunks)*queuesChunk {
			t.chunks = append(t.chunks, new([queuesChunk]queue))
		}
	}
	q := t.at(number)
	*q = queue{id: id, name: t.names.Keep([]byte(name)), number: number}
	slot, _ := t.find(&id)
	t.slots[slot] = uint64(t.hash(&id))<<32 | uint64(number+1)
	return q
}

func (t *queueTable) grow() {
	old := t.slots
	t.slots = make([]uint64, 2*len(old))
	for _, s := range old {
		if s == 0 {
			continue
		}
		i := t.home(uint32(s >> 32))
		for t.slots[i] != 0 {
			i = (i + 1) & (len(t.slots) - 1)
		}
		t.slots[i] = s
	}
}

// remove has a queue not found any more. Its number still leads to its id and its name.
func (t *queueTable) remove(q *queue) {
	hole, _ := t.find(&q.id)
	mask := len(t.slots) - 1
	for i := hole; ; {
		i = (i + 1) & mask
		s := t.slots[i]
		if s == 0 {
			break
		}
		// It may lie in the hole unless its search begins behind that.
		if home := t.home(uint32(s >> 32)); (i-home)&mask >= (i-hole)&mask {
			t.slots[hole], hole = s, i
		}
	}
	t.slots[hole] = 0
	t.n--
}

// release lets others have the numbers of queues that were removed.
func (t *queueTable) release(numbers []uint32) {
	for _, number := range numbers {
		q := t.at(number)
		t.dead += len(t.names.Get(q.name))
		*q = queue{crawl: noCrawl}
		t.free = append(t.free, number)
	}
	if t.dead < max(t.names.Size()/2, t.used) {
		return
	}
	var names arena.Arena
	for i := range t.used {
		if q := t.at(uint32(i)); q.id != (QueueID{}) {
			q.name = names.Keep(t.names.Get(q.name))
		}
	}
	t.names, t.dead = names, 0
}

// all yields the queues in no order.
func (t *queueTable) all() iter.Seq[*queue] {
	return func(yield func(*queue) bool) {
		for _, s := range t.slots {
			if s != 0 && !yield(t.at(uint32(s)-1)) {
				return
			}
		}
	}
}

// crawl has the numbers of the queues of a crawl.
type crawl struct {
	name   string
	number uint32
	queues []uint32
	counts Counts
}

// noCrawl is no crawl's number.
const noCrawl = 1<<32 - 1

// crawls are those of a shard that have queues.
type crawls struct {
	byName   map[string]*crawl
	byNumber []*crawl // nil where there is none
}

// get returns a crawl, which it makes if there is none.
func (c *crawls) get(name string) *crawl {
	of := c.byName[name]
	if of == nil {
		number := slices.Index(c.byNumber, nil)
		if number < 0 {
			number, c.byNumber = len(c.byNumber), append(c.byNumber, nil)
		}
		of = &crawl{name: strings.Clone(name), number: uint32(number)}
		c.byName[of.name], c.byNumber[number] = of, of
	}
	return of
}

func (c *crawls) of(q *queue) *crawl { return c.byNumber[q.crawl] }

func (c *crawls) remove(of *crawl) {
	delete(c.byName, of.name)
	c.byNumber[of.number] = nil
}

// queue returns a queue, which it makes if there is none.
func (s *Shard) queue(id QueueID, name string) *queue {
	q := s.queues.get(&id)
	if q != nil {
		return q
	}
	q = s.queues.add(id, name)
	of := s.crawls.get(crawlOf(name))
	q.crawl = of.number
	of.queues = append(of.queues, q.number)
	// What was deleted of it may still lie in files.
	q.setSuspect(s.opening || s.marks[id] != nil)
	if !q.isSuspect() { // no file has anything of it
		q.generation = s.generation
	}
	if n := s.unnamed[id.tag()]; n != nil {
		delete(s.unnamed, id.tag())
		for state, n := range n {
			s.count(q, state, int(n))
		}
	}
	return q
}

// forget removes queues that have no URLs. Entries in memory may have their numbers, so these are
// released when the batch is in files.
func (s *Shard) forget(queues []*queue) {
	of := map[*crawl]struct{}{}
	for _, q := range queues {
		of[s.crawls.of(q)] = struct{}{}
		q.crawl = noCrawl
		s.dropHeads(q)
		s.queues.remove(q)
		s.batch.forgotten = append(s.batch.forgotten, q.number)
	}
	for c := range of {
		c.queues = slices.DeleteFunc(c.queues, func(number uint32) bool { return s.queues.at(number).crawl == noCrawl })
		if len(c.queues) == 0 {
			s.crawls.remove(c)
		}
	}
}

// count changes how many entries of a queue are in a state.
func (s *Shard) count(q *queue, state int, by int) {
	q.n[state] += uint32(by)
	s.crawls.of(q).counts[state] += int64(by)
	s.counts[state] += int64(by)
}
