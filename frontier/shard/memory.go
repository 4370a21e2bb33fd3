package shard

import (
	"cmp"
	"slices"
)

// batch is what is in memory and not yet in files. It is written as a whole.
type batch struct {
	queues []*memoryQueue // of entries that wait
	later  laterHeap
	done   []settledEntry
	seen   *stateTable
	// chunk is where the bytes of the next entries go, and lists where the next queues do: the
	// garbage collector has few objects to look at.
	chunk []byte
	lists []memoryQueue
}

const (
	// entriesChunk is how many bytes of entries share an object, and listsChunk how many queues.
	entriesChunk = 32 << 10
	listsChunk   = 32
)

func newBatch() *batch { return &batch{seen: newStateTable()} }

// queue adds a queue.
func (b *batch) queue(id QueueID, name string) *memoryQueue {
	if len(b.lists) == cap(b.lists) {
		b.lists = make([]memoryQueue, 0, listsChunk)
	}
	b.lists = append(b.lists, memoryQueue{of: b, id: id, name: name})
	q := &b.lists[len(b.lists)-1]
	q.classes = q.one[:0]
	b.queues = append(b.queues, q)
	return q
}

// keep returns the bytes of an entry, which live as long as the batch. Encoded are these bytes if
// somebody has them.
func (b *batch) keep(e *Entry, encoded []byte) []byte {
	room := len(encoded)
	if encoded == nil {
		room = entryRoom(e)
	}
	if cap(b.chunk)-len(b.chunk) < room {
		b.chunk = make([]byte, 0, max(room, entriesChunk))
	}
	from := len(b.chunk)
	if encoded == nil {
		b.chunk = e.append(b.chunk)
	} else {
		b.chunk = append(b.chunk, encoded...)
	}
	return b.chunk[from:len(b.chunk):len(b.chunk)]
}

// frozen is a batch that is being written. Entries are taken from it meanwhile, and none are added.
type frozen struct {
	*batch
	// next, visits and marks are those of the shard at that moment, and segment the first of the
	// journal after it.
	next, segment uint64
	visits        int64
	marks         map[QueueID]*mark
	fresh         []QueueID // those of marks that are new
	empty         []*run    // which are not needed any more
}

// settledEntry is an entry that does not wait.
type settledEntry struct {
	id   QueueID
	name string
	seq  uint64
	data []byte // as Entry.append has written it
}

// memoryQueue has the waiting entries of a queue that are in memory, by class, and within a class
// by number. Entries mostly come in the order of their numbers, so each class is a list to which
// they are appended.
type memoryQueue struct {
	of *batch
	// older is the same queue in the batch before, nil if it has nothing there.
	older   *memoryQueue
	id      QueueID
	name    string
	classes []class
	one     [1]class // the memory of classes, for the most have one
	// gone says, once the batch is frozen, how many classes were taken, goneOfNext how many entries
	// after the head of the next class. The lists themselves do not change: they are being written.
	gone, goneOfNext int
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

// frozenFirst and frozenPop are first and pop of a frozen batch.
func (q *memoryQueue) frozenFirst() (rank, bool) {
	if q == nil {
		return rank{}, false
	}
	for q.gone < len(q.classes) {
		c := &q.classes[q.gone]
		if at := c.head + q.goneOfNext; at < len(c.entries) {
			return rank{c.class, c.entries[at].seq}, true
		}
		q.gone, q.goneOfNext = q.gone+1, 0
	}
	return rank{}, false
}

func (q *memoryQueue) frozenPop() []byte {
	c := &q.classes[q.gone]
	q.goneOfNext++
	return c.entries[c.head+q.goneOfNext-1].data
}

// each calls yield for every entry that is left.
func (q *memoryQueue) each(yield func(seq uint64, data []byte) error) error {
	for i := range q.classes {
		c := &q.classes[i]
		for _, e := range c.entries[c.head:] {
			if err := yield(e.seq, e.data); err != nil {
				return err
			}
		}
	}
	return nil
}

// laterHeap are entries that are due later, the first one first.
type laterHeap []*Entry

func (h laterHeap) Len() int           { return len(h) }
func (h laterHeap) Less(i, j int) bool { return h[i].Due < h[j].Due }
func (h laterHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *laterHeap) Push(x any)        { *h = append(*h, x.(*Entry)) }
func (h *laterHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
