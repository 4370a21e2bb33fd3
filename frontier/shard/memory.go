package shard

import (
	"cmp"
	"slices"
)

// memoryQueue has the waiting entries of a queue that are in memory, by class, and within a class
// by number. Entries mostly come in the order of their numbers, so each class is a list to which
// they are appended.
type memoryQueue struct {
	classes []class
}

// class are the entries of a queue of one priority and depth. Those before head were taken.
type class struct {
	class   uint64
	entries []memoryEntry
	head    int
}

type memoryEntry struct {
	seq  uint64
	data []byte // as Entry.append has written it
}

func bySeq(e memoryEntry, seq uint64) int { return cmp.Compare(e.seq, seq) }

// push adds an entry.
func (q *memoryQueue) push(k rank, data []byte) {
	i, ok := slices.BinarySearchFunc(q.classes, k.class, func(c class, k uint64) int { return cmp.Compare(c.class, k) })
	if !ok {
		q.classes = slices.Insert(q.classes, i, class{class: k.class})
	}
	c := &q.classes[i]
	e := memoryEntry{k.seq, data}
	if n := len(c.entries); n == 0 || c.entries[n-1].seq < k.seq {
		c.entries = append(c.entries, e)
		return
	}
	// It was due later, and has the number from when it was added.
	at, _ := slices.BinarySearchFunc(c.entries[c.head:], k.seq, bySeq)
	c.entries = slices.Insert(c.entries, c.head+at, e)
}

// first returns the rank of the first entry.
func (q *memoryQueue) first() (rank, bool) {
	if q == nil || len(q.classes) == 0 {
		return rank{}, false
	}
	c := &q.classes[0]
	return rank{c.class, c.entries[c.head].seq}, true
}

// pop takes the first entry.
func (q *memoryQueue) pop() []byte {
	c := &q.classes[0]
	data := c.entries[c.head].data
	c.head++
	if c.head == len(c.entries) {
		q.classes = q.classes[1:]
	}
	return data
}

// len is the number of entries.
func (q *memoryQueue) len() (n int) {
	if q == nil {
		return 0
	}
	for i := range q.classes {
		n += len(q.classes[i].entries) - q.classes[i].head
	}
	return n
}

// take removes the entry of a number, which may be anywhere, and returns its bytes.
func (q *memoryQueue) take(wanted func(seq uint64) bool) (data [][]byte) {
	for i := range q.classes {
		c := &q.classes[i]
		left := make([]memoryEntry, 0, len(c.entries)-c.head)
		for _, e := range c.entries[c.head:] {
			if wanted(e.seq) {
				data = append(data, e.data)
			} else {
				left = append(left, e)
			}
		}
		c.entries, c.head = left, 0
	}
	q.classes = slices.DeleteFunc(q.classes, func(c class) bool { return len(c.entries) == 0 })
	return data
}

// frozen are the entries in memory of which a run is being written. Entries are taken from it
// meanwhile, and none are added.
type frozen struct {
	queues map[QueueID]*memoryQueue
	// written are the same lists as they were at first, by queue, for who writes the run.
	written []frozenQueue
	// settled are leased entries from before that were settled or came back since. The checkpoint
	// has them as leased: what the journal says of them comes after it.
	settled []*Entry
	// next and visits are those of the shard at that moment, and segment the first of the journal
	// after it.
	next, segment uint64
	visits        int64
	seen          map[URLID]uint64
}

type frozenQueue struct {
	id      QueueID
	name    string
	classes []class
	count   int
}

// first and pop are those of a queue of the frozen entries, if there are any.
func (f *frozen) queue(id QueueID) *memoryQueue {
	if f == nil {
		return nil
	}
	return f.queues[id]
}
