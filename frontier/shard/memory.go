package shard

import (
	"slices"

	"github.com/urlake/urlake/frontier/arena"
	"github.com/urlake/urlake/frontier/statetable"
)

// batch is what is in memory and not yet in files. It is written as a whole.
//
// Nothing of it has pointers to entries or queues: the garbage collector would look at all of them
// again and again.
type batch struct {
	// side says which of queue.memory are its heaps: 0 or 1, and the other one for the next batch.
	side    int
	waiting heaps
	later   laterHeap
	done    []settledEntry
	seen    *statetable.Table
	texts   arena.Arena // of the entries, as Entry.append has written them
	// forgotten are the numbers of queues that were forgotten since the batch before was frozen.
	forgotten []uint32
}

func newBatch(side int) *batch { return &batch{side: side, seen: statetable.New()} }

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
	queues queueTable
}

// settledEntry is an entry that does not wait.
type settledEntry struct {
	queue uint32
	data  arena.Place
}

// node is the number of a waitingEntry, 0 for none.
type node uint32

// waitingEntry is an entry that waits, in a heap of its queue.
type waitingEntry struct {
	seq         uint64
	data        arena.Place
	left, right node
	// low and high are the parts of the entry's class, which has 48 bits.
	low  uint32
	high uint16
	// height is the number of nodes on the way to the right.
	height uint8
}

func (e *waitingEntry) rank() rank { return rank{uint64(e.high)<<32 | uint64(e.low), e.seq} }

// heapsChunk is how many entries share an object.
const heapsChunk = 512

// heaps are leftist heaps of entries, one for each queue: the first entry is the root, and the way
// to the right of a node is never longer than that of its left child, so it has at most log2(n)
// nodes.
type heaps struct {
	chunks []*[heapsChunk]waitingEntry
	last   node
	free   node // the first of those that were popped; left is the next
}

func (h *heaps) at(n node) *waitingEntry { return &h.chunks[(n-1)/heapsChunk][(n-1)%heapsChunk] }

// push adds an entry to a heap and returns its new root.
func (h *heaps) push(root node, k rank, data arena.Place) node {
	n := h.free
	if n != 0 {
		h.free = h.at(n).left
	} else {
		if int(h.last) == len(h.chunks)*heapsChunk {
			h.chunks = append(h.chunks, new([heapsChunk]waitingEntry))
		}
		h.last++
		n = h.last
	}
	*h.at(n) = waitingEntry{seq: k.seq, data: data, low: uint32(k.class), high: uint16(k.class >> 32), height: 1}
	return h.meld(root, n)
}

// pop takes the first entry of a heap, and returns the new root and its bytes.
func (h *heaps) pop(root node) (node, arena.Place) {
	e := h.at(root)
	rest := h.meld(e.left, e.right)
	e.left, h.free = h.free, root
	return rest, e.data
}

// meld makes one heap of two.
func (h *heaps) meld(a, b node) node {
	if a == 0 {
		return b
	}
	if b == 0 {
		return a
	}
	e, f := h.at(a), h.at(b)
	if f.rank().compare(e.rank()) < 0 {
		a, b, e = b, a, f
	}
	e.right = h.meld(e.right, b)
	if h.height(e.left) < h.height(e.right) {
		e.left, e.right = e.right, e.left
	}
	e.height = h.height(e.right) + 1
	return a
}

func (h *heaps) height(n node) uint8 {
	if n == 0 {
		return 0
	}
	return h.at(n).height
}

// ranked is an entry with its rank.
type ranked struct {
	rank
	data arena.Place
}

// appendAll appends the entries of a heap in no order.
func (h *heaps) appendAll(all []ranked, root node) []ranked {
	var left [32]node
	stack := left[:0]
	for root != 0 || len(stack) > 0 {
		if root == 0 {
			root, stack = stack[len(stack)-1], stack[:len(stack)-1]
		}
		e := h.at(root)
		all = append(all, ranked{e.rank(), e.data})
		if e.right != 0 {
			stack = append(stack, e.right)
		}
		root = e.left
	}
	return all
}

func sortRanked(all []ranked) {
	slices.SortFunc(all, func(a, b ranked) int { return a.compare(b.rank) })
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
