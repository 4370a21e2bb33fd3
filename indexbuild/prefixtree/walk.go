package prefixtree

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/urlake/urlake/internal/mapped"
	"github.com/urlake/urlake/lake/codec"
)

// Node returns a node. A position that the index does not have is an error.
func (x *Index) Node(pos uint64) (n Node, err error) {
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, x.files...)
	return x.node(pos)
}

func (x *Index) node(pos uint64) (n Node, err error) {
	n.Position = pos
	if n.End, err = x.subtreeEnd(pos); err != nil {
		return n, err
	}
	if n.Objects, err = x.objects.at(pos); err != nil {
		return n, err
	}
	if n.Bytes, err = x.bytes.at(pos); err != nil {
		return n, err
	}
	depth, err := x.depth.at(pos)
	if err != nil {
		return n, err
	}
	deepest, err := x.maxDepth.at(pos)
	if err != nil {
		return n, err
	}
	if depth > deepest || deepest > uint64(x.doc.MaxDepth) {
		return n, x.maxDepth.bad(pos, fmt.Sprintf("%d to %d", depth, x.doc.MaxDepth), deepest)
	}
	n.Depth, n.MaxDepth = uint32(depth), uint32(deepest)
	return n, nil
}

// Sums returns the sums of a node alone, which costs less than Node.
func (x *Index) Sums(pos uint64) (s Sum, err error) {
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, x.files...)
	if s.Objects, err = x.objects.at(pos); err != nil {
		return s, err
	}
	s.Bytes, err = x.bytes.at(pos)
	return s, err
}

// subtreeEnd returns the position of the last node below a node, or its own.
func (x *Index) subtreeEnd(pos uint64) (uint64, error) {
	end, err := x.end.at(pos)
	if err == nil && (end < pos || end >= x.doc.NodeCount) {
		err = x.end.bad(pos, fmt.Sprintf("%d to %d", pos, x.doc.NodeCount-1), end)
	}
	return end, err
}

// Tiers returns the sums of a node by tier, those of tiers without objects left out; nil if the
// index has no tiers.
func (x *Index) Tiers(pos uint64) (all []TierSum, err error) {
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, x.files...)
	for i, t := range x.tiers {
		objects, err := x.tierObjects[i].at(pos)
		if err != nil {
			return nil, err
		}
		bytes, err := x.tierBytes[i].at(pos)
		if err != nil {
			return nil, err
		}
		if objects > 0 || bytes > 0 {
			all = append(all, TierSum{t.ID, Sum{objects, bytes}})
		}
	}
	return all, nil
}

// EachChild calls yield with the nodes directly below a node, in the order of their names, until it
// returns false. It costs one step a child, however many nodes are below the child.
func (x *Index) EachChild(pos uint64, yield func(Node) bool) error {
	n, err := x.Node(pos)
	if err != nil {
		return err
	}
	for at := pos + 1; at <= n.End; {
		child, err := x.Node(at)
		if err != nil {
			return err
		}
		if child.End > n.End || child.Depth != n.Depth+1 {
			return x.end.bad(at, fmt.Sprintf("a child of node %d", pos), child.End)
		}
		if !yield(child) {
			return nil
		}
		at = child.End + 1
	}
	return nil
}

// Level is the list of the descendants of a node at one depth below it.
type Level struct {
	x        *Index
	a        *array
	from, to uint64 // in a
	node     Node
}

// Descendants returns the descendants of a node that are depth levels below it; 1 means its
// children. It costs two binary searches.
func (x *Index) Descendants(pos uint64, depth uint32) (l Level, err error) {
	n, err := x.Node(pos)
	if err != nil {
		return Level{}, err
	}
	l = Level{x: x, node: n}
	if depth == 0 || uint64(n.Depth)+uint64(depth) > uint64(n.MaxDepth) {
		return l, nil
	}
	a, from, to, err := x.level(n.Depth + depth)
	if err != nil {
		return Level{}, err
	}
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, a.File)
	l.a = a
	if l.from, err = a.search(from, to, pos+1); err != nil {
		return Level{}, err
	}
	l.to, err = a.search(l.from, to, n.End+1)
	return l, err
}

// level returns the array with the positions of a depth, and its range in the array.
func (x *Index) level(depth uint32) (_ *array, from, to uint64, err error) {
	if x.layout.depthPositions != "" {
		defer mapped.Guard(debug.SetPanicOnFault(true), &err, x.files...)
		if from, err = x.depthOffsets.at(uint64(depth)); err != nil {
			return nil, 0, 0, err
		}
		if to, err = x.depthOffsets.at(uint64(depth) + 1); err != nil {
			return nil, 0, 0, err
		}
		if from > to || to > x.depthPositions.count {
			return nil, 0, 0, x.depthOffsets.bad(uint64(depth), fmt.Sprintf("%d to %d", from, x.depthPositions.count), to)
		}
		return &x.depthPositions, from, to, nil
	}
	p := &x.levels[depth]
	if a := p.Load(); a != nil {
		return a, 0, a.count, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if a := p.Load(); a != nil {
		return a, 0, a.count, nil
	}
	a, err := x.openLevel(depth)
	if err != nil {
		return nil, 0, 0, err
	}
	p.Store(a)
	return a, 0, a.count, nil
}

// openLevel opens the file of a depth.
func (x *Index) openLevel(depth uint32) (a *array, err error) {
	f, err := x.file(depthFile(depth))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, f.File)
	head, err := f.slice(0, countBytes)
	if err != nil {
		return nil, err
	}
	count := binary.LittleEndian.Uint64(head)
	if rest := uint64(f.Size() - countBytes); rest%8 != 0 || rest/8 != count || count == 0 {
		return nil, codec.Corrupt(f.Name(), "file", 0, fmt.Sprintf("%d positions", rest/8), count)
	}
	return &array{mappedFile: f, data: f.Data()[countBytes:], base: countBytes, width: 8, count: count}, nil
}

// Len is the number of nodes.
func (l Level) Len() uint64 { return l.to - l.from }

// At returns a node of the list, which is in the order of the prefixes.
func (l Level) At(i uint64) (Node, error) {
	pos, err := l.position(i)
	if err != nil {
		return Node{}, err
	}
	return l.x.Node(pos)
}

func (l Level) position(i uint64) (pos uint64, err error) {
	if i >= l.Len() {
		return 0, fmt.Errorf("node %d of %d", i, l.Len())
	}
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, l.a.File)
	pos, err = l.a.at(l.from + i)
	if err == nil && (pos <= l.node.Position || pos > l.node.End) {
		err = l.a.bad(l.from+i, fmt.Sprintf("a position of %d to %d", l.node.Position+1, l.node.End), pos)
	}
	return pos, err
}

// Order is an order of nodes by size.
type Order int

// ByBytes orders by bytes and then objects, ByObjects by objects and then bytes; equal nodes are
// in the order of their prefixes.
const (
	ByBytes Order = iota
	ByObjects
)

// compare is negative if a is the larger one.
func (o Order) compare(a, b *Node) int {
	byBytes, byObjects := cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Objects, a.Objects)
	if o == ByObjects {
		byBytes, byObjects = byObjects, byBytes
	}
	return cmp.Or(byBytes, byObjects, cmp.Compare(a.Position, b.Position))
}

// Filter selects nodes.
type Filter struct{ MinObjects, MinBytes uint64 }

// Match tells whether a node has at least as many objects and bytes as the filter wants.
func (f Filter) Match(n *Node) bool { return n.Objects >= f.MinObjects && n.Bytes >= f.MinBytes }

// Top returns the count largest nodes of the list that match, largest first. It reads the sums of
// all nodes of the list, and holds count of them.
func (l Level) Top(ctx context.Context, count int, order Order, filter Filter) ([]Node, error) {
	if count <= 0 {
		return nil, nil
	}
	// top is a heap whose first node is the smallest.
	var top []Node
	smaller := func(i, j int) bool { return order.compare(&top[i], &top[j]) > 0 }
	for i := range l.Len() {
		if i%ctxNodes == 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
		}
		n, err := l.At(i)
		if err != nil {
			return nil, err
		}
		switch {
		case !filter.Match(&n):
		case len(top) < count:
			top = append(top, n)
			for i := len(top) - 1; i > 0 && smaller(i, (i-1)/2); i = (i - 1) / 2 {
				top[i], top[(i-1)/2] = top[(i-1)/2], top[i]
			}
		case order.compare(&n, &top[0]) < 0:
			top[0] = n
			for i := 0; ; {
				least := i
				for c := 2*i + 1; c <= 2*i+2 && c < len(top); c++ {
					if smaller(c, least) {
						least = c
					}
				}
				if least == i {
					break
				}
				top[i], top[least] = top[least], top[i]
				i = least
			}
		}
	}
	slices.SortFunc(top, func(a, b Node) int { return order.compare(&a, &b) })
	return top, nil
}

// Find returns the position of the folder that a person means: prefix as it is, or with a slash at
// its end.
func (x *Index) Find(prefix string) (pos uint64, ok bool, err error) {
	p := []byte(prefix)
	if len(p) > 0 && !bytes.HasSuffix(p, []byte("/")) {
		p = append(p, '/')
	}
	return x.Lookup(p)
}
