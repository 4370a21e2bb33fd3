package prefixtree

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/urlake/urlake/lake/codec"
)

// Node is a folder with everything below it.
type Node struct {
	// Position is the node's number in pre-order, which is also the byte order of the prefixes. End
	// is the position of the last node below it, or its own.
	Position, End uint64
	// Depth is the number of slashes of the prefix. MaxDepth is the largest depth of the node and
	// those below it.
	Depth, MaxDepth uint32
	// Sum is of all objects below the node.
	Sum
}

// Folder is a node that Preorder has opened.
type Folder struct {
	Node
	// Tiers is the node's Sum by tier.
	Tiers [tiers]Sum

	length int    // of the prefix
	hash   uint64 // FNV-1a of the prefix
	print  uint64 // FNV-1 of it
}

// Preorder turns folders in byte order into the nodes of their tree.
type Preorder struct {
	// Opened is called with each node in pre-order, when its Position and Depth are known. Closed
	// is called when it is complete: after all nodes below it. Both keep neither argument.
	Opened, Closed func(prefix []byte, n *Folder) error

	path  []byte   // the prefix of the node on top of the stack
	stack []Folder // the node that was opened last and those above it
	count uint64
}

// errOrder means that folders were not added in order.
var errOrder = errors.New("folders are not in order")

// Add adds objects that are directly in a folder, which is empty or ends in a slash. Folders come
// in byte order; the same folder may come several times, one after the other.
func (p *Preorder) Add(folder []byte, tier Tier, sum Sum) error {
	if len(p.stack) == 0 {
		if err := p.open(nil); err != nil {
			return err
		}
	}
	if len(folder) > 0 && folder[len(folder)-1] != '/' {
		return keyError(folder, "a folder without a slash at its end")
	}
	same := codec.CommonPrefix(p.path, folder)
	if same < len(p.path) && (same == len(folder) || folder[same] < p.path[same]) {
		return fmt.Errorf("%w: %w", keyError(folder, fmt.Sprintf("after %q", p.path)), errOrder)
	}
	for p.top().length > same {
		if err := p.close(); err != nil {
			return err
		}
	}
	for {
		from := p.top().length
		n := bytes.IndexByte(folder[from:], '/') + 1
		if n == 0 {
			break
		}
		if err := p.open(folder[:from+n]); err != nil {
			return err
		}
	}
	n := p.top()
	if err := n.Sum.add(sum); err != nil {
		return err
	}
	if tier < NoTier {
		return n.Tiers[tier].add(sum)
	}
	return nil
}

// Finish closes all nodes. There is at least one, the root.
func (p *Preorder) Finish() error {
	if p.count == 0 {
		if err := p.open(nil); err != nil {
			return err
		}
	}
	for len(p.stack) > 0 {
		if err := p.close(); err != nil {
			return err
		}
	}
	return nil
}

// Count is the number of nodes so far.
func (p *Preorder) Count() uint64 { return p.count }

func (p *Preorder) top() *Folder { return &p.stack[len(p.stack)-1] }

const (
	fnvOffset = 0xcbf29ce484222325
	fnvPrime  = 0x100000001b3
)

// fnv1a continues the 64-bit FNV-1a hash h over b.
func fnv1a(h uint64, b []byte) uint64 {
	for _, c := range b {
		h = (h ^ uint64(c)) * fnvPrime
	}
	return h
}

// fnv1 continues the 64-bit FNV-1 hash h over b.
func fnv1(h uint64, b []byte) uint64 {
	for _, c := range b {
		h = h*fnvPrime ^ uint64(c)
	}
	return h
}

// open opens the node of a prefix below the top of the stack.
func (p *Preorder) open(prefix []byte) error {
	if p.count == MaxNodes {
		return fmt.Errorf("more than %d folders", uint64(MaxNodes))
	}
	n := Folder{Node: Node{Position: p.count}, length: len(prefix), hash: fnvOffset, print: fnvOffset}
	if len(p.stack) > 0 {
		above := p.top()
		n.Depth = above.Depth + 1
		n.hash = fnv1a(above.hash, prefix[above.length:])
		n.print = fnv1(above.print, prefix[above.length:])
	}
	n.MaxDepth = n.Depth
	p.count++
	p.path = append(p.path[:0], prefix...)
	p.stack = append(p.stack, n)
	return p.Opened(prefix, p.top())
}

// close closes the top of the stack and adds its sums to the node above.
func (p *Preorder) close() error {
	n := p.top()
	n.End = p.count - 1
	if err := p.Closed(p.path, n); err != nil {
		return err
	}
	if len(p.stack) > 1 {
		above := &p.stack[len(p.stack)-2]
		above.MaxDepth = max(above.MaxDepth, n.MaxDepth)
		if err := above.Sum.add(n.Sum); err != nil {
			return err
		}
		for t := range n.Tiers {
			if n.Tiers[t] != (Sum{}) { // sums of tiers are below those of all, which did not overflow
				_ = above.Tiers[t].add(n.Tiers[t])
			}
		}
		p.path = p.path[:above.length]
	}
	p.stack = p.stack[:len(p.stack)-1]
	return nil
}
