package shard

import (
	"github.com/urlake/urlake/frontier/arena"
)

// batch is what is in memory and not yet in files. It is written as a whole.
//
// Nothing of it has pointers to entries or queues: the garbage collector would look at all of them
// again and again.
type batch struct {
	// side says which of queue.memory are its heaps: 0 or 1, and the other one for the next batch.
	side    int
	waiting heaps[arena.Place]
	later   laterHeap
	done    []settledEntry
	seen    *table
	texts   arena.Arena // of the entries, as Entry.append has written them
	// forgotten are the numbers of queues that were forgotten since the batch before was frozen.
	forgotten []uint32
}

func newBatch(side int) *batch { return &batch{side: side, seen: newStateTable()} }

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
	// queues are those of that moment, of which only ids and names may be looked at without the
	// lock.
	queues  queueTable
	touched uint64 // so that the compiler keeps loads whose values do not matter
}

// settledEntry is an entry that does not wait.
type settledEntry struct {
	queue uint32
	data  arena.Place
}

// laterEntry is an entry that is due later.
type laterEntry struct {
	due int64
	settledEntry
}

// laterHeap are entries that are due later, the first one first.
type laterHeap []laterEntry

func (h laterHeap) Len() int           { return len(h) }
func (h laterHeap) Less(i, j int) bool { return h[i].due < h[j].due }
func (h laterHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *laterHeap) Push(x any)        { *h = append(*h, x.(laterEntry)) }
func (h *laterHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

// inMemory returns the heaps of a queue in the batch and in the frozen one, 0 if it has none.
func (s *Shard) inMemory(q *queue) (recent, frozen node) {
	recent = q.memory[s.batch.side]
	if s.frozen != nil {
		frozen = q.memory[s.frozen.side]
	}
	return recent, frozen
}

// place puts an entry that waits into memory, of which it has the bytes.
func (s *Shard) place(q *queue, k rank, encoded []byte) {
	root := &q.memory[s.batch.side]
	*root = s.batch.waiting.push(*root, k, s.batch.texts.Keep(encoded))
	s.memory += entryOverhead + len(encoded)
}

// popFrom takes the first entry in memory of a queue and returns its bytes.
func (b *batch) popFrom(q *queue) []byte {
	root, data := b.waiting.pop(q.memory[b.side])
	q.memory[b.side] = root
	return b.texts.Get(data)
}
