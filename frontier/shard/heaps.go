package shard

import "slices"

// node is the number of a heapEntry, 0 for none.
type node uint32

// heapEntry stands in a heap for an entry. Data says where that is.
type heapEntry[P any] struct {
	seq         uint64
	data        P
	left, right node
	// low and high are the parts of the entry's class, which has 48 bits.
	low  uint32
	high uint16
	// height is the number of nodes on the way to the right.
	height uint8
}

func (e *heapEntry[P]) rank() rank { return rank{uint64(e.high)<<32 | uint64(e.low), e.seq} }

// heapsChunk is how many entries share an object.
const heapsChunk = 512

// heaps are leftist heaps of entries by rank, one for each queue: the first entry is the root, and
// the way to the right of a node is never longer than that of its left child, so it has at most
// log2(n) nodes. P has no pointers: the garbage collector does not look at millions of entries.
type heaps[P any] struct {
	chunks []*[heapsChunk]heapEntry[P]
	last   node
	free   node // the first of those that were popped; left is the next
}

func (h *heaps[P]) at(n node) *heapEntry[P] { return &h.chunks[(n-1)/heapsChunk][(n-1)%heapsChunk] }

// push adds an entry to a heap and returns its new root.
func (h *heaps[P]) push(root node, k rank, data P) node {
	n := h.free
	if n != 0 {
		h.free = h.at(n).left
	} else {
		if int(h.last) == len(h.chunks)*heapsChunk {
			h.chunks = append(h.chunks, new([heapsChunk]heapEntry[P]))
		}
		h.last++
		n = h.last
	}
	*h.at(n) = heapEntry[P]{seq: k.seq, data: data, low: uint32(k.class), high: uint16(k.class >> 32), height: 1}
	return h.meld(root, n)
}

// pop takes the first entry of a heap, and returns the new root and its data.
func (h *heaps[P]) pop(root node) (node, P) {
	e := h.at(root)
	rest := h.meld(e.left, e.right)
	e.left, h.free = h.free, root
	return rest, e.data
}

// meld makes one heap of two.
func (h *heaps[P]) meld(a, b node) node {
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

func (h *heaps[P]) height(n node) uint8 {
	if n == 0 {
		return 0
	}
	return h.at(n).height
}

// ranked is an entry with its rank.
type ranked[P any] struct {
	rank
	data P
}

// appendAll appends the entries of a heap in no order.
func (h *heaps[P]) appendAll(all []ranked[P], root node) []ranked[P] {
	var left [32]node
	stack := left[:0]
	for root != 0 || len(stack) > 0 {
		if root == 0 {
			root, stack = stack[len(stack)-1], stack[:len(stack)-1]
		}
		e := h.at(root)
		all = append(all, ranked[P]{e.rank(), e.data})
		if e.right != 0 {
			stack = append(stack, e.right)
		}
		root = e.left
	}
	return all
}

func sortRanked[P any](all []ranked[P]) {
	slices.SortFunc(all, func(a, b ranked[P]) int { return a.compare(b.rank) })
}
