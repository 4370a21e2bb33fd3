package prefixtree

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/urlake/urlake/internal/mapped"
	"github.com/urlake/urlake/lake/codec"
)

// fileNames returns the names of all files of the manifest, sorted.
func (x *Index) fileNames() []string { return slices.Sorted(maps.Keys(x.doc.Files)) }

func checkSHA256(name string, data []byte, want string) error {
	sum := sha256.Sum256(data)
	if got := hex.EncodeToString(sum[:]); !strings.EqualFold(got, want) {
		return codec.Corrupt(name, "file", -1, "SHA-256 "+want, got)
	}
	return nil
}

// tierDoc reads tiers.json, which an index without tiers does not have. Another program does not
// name it in its manifest.
func (x *Index) tierDoc() (doc tierDoc, err error) {
	f := mappedFile{}
	if _, ok := x.doc.Files[tiersName]; ok {
		f, err = x.file(tiersName)
	} else {
		size, ok, serr := x.source.size(tiersName)
		if !ok || serr != nil || x.blocks != nil {
			return doc, serr
		}
		f.File, err = x.source.open(tiersName, mapped.Sums{Bytes: size})
	}
	if err != nil {
		return doc, err
	}
	x.files = append(x.files, f.File)
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, f.File)
	data, err := f.slice(0, uint64(f.Size()))
	if err != nil {
		return doc, err
	}
	return doc, decodeSealed(data, tiersName, &doc)
}

// Verify reads everything: that each file has the hash that the manifest gives, and that the files
// agree with each other. A sum of a node that is not below that of its children and of its own
// objects cannot be told: the index does not have the objects. The first fault is returned. It
// takes about a second for ten million nodes.
func (x *Index) Verify(ctx context.Context, progress func(Progress)) (err error) {
	if progress == nil {
		progress = func(Progress) {}
	}
	names := x.fileNames()
	for i, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		progress(Progress{StageCheck, uint64(i), uint64(len(names))})
		if err := x.verifyFile(name); err != nil {
			return err
		}
	}
	c := checker{x: x, levels: make([]uint64, x.doc.MaxDepth+1)}
	return c.run(ctx, progress)
}

func (x *Index) verifyFile(name string) (err error) {
	want, err := x.sumsOf(name)
	if err != nil {
		return err
	}
	f, err := x.source.open(name, want)
	if err != nil {
		return err
	}
	defer f.Close()
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, f)
	return x.checkFile(name, f.Data())
}

// checker walks through the nodes of an index in pre-order and compares its files.
type checker struct {
	x      *Index
	open   []openNode // the node and those above it
	path   []byte     // its prefix
	levels []uint64   // nodes of each depth so far
}

// openNode is a node of which not all nodes below it were seen.
type openNode struct {
	Node
	length  int    // of its prefix
	left    Sum    // what its children so far do not have
	tiers   []Sum  // the same by tier
	deepest uint32 // of those below it
}

func (c *checker) run(ctx context.Context, progress func(Progress)) (err error) {
	x := c.x
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, x.files...)
	if _, err := x.perfect(); err != nil {
		return err
	}
	for pos := range x.doc.NodeCount {
		if pos%ctxNodes == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			progress(Progress{StageTree, pos, x.doc.NodeCount})
		}
		for len(c.open) > 0 && c.open[len(c.open)-1].End < pos {
			if err := c.close(); err != nil {
				return err
			}
		}
		if err := c.node(pos); err != nil {
			return err
		}
	}
	for len(c.open) > 0 {
		if err := c.close(); err != nil {
			return err
		}
	}
	for depth, count := range c.levels {
		if depth == 0 && x.layout.depthPositions == "" {
			continue
		}
		a, from, to, err := x.level(uint32(depth))
		if err != nil {
			return err
		}
		if to-from != count {
			return codec.Corrupt(a.Name(), "array", -1, fmt.Sprintf("%d nodes of depth %d", count, depth), to-from)
		}
	}
	return nil
}

// node compares the node at pos with those above it, and everything that refers to it.
func (c *checker) node(pos uint64) error {
	x := c.x
	n, err := x.node(pos)
	if err != nil {
		return err
	}
	o := openNode{Node: n, left: n.Sum, deepest: n.Depth}
	if err := c.place(&n); err != nil {
		return err
	}
	if err := c.prefix(&o); err != nil {
		return err
	}
	if err := c.tiers(&o); err != nil {
		return err
	}
	if err := c.indexed(&n); err != nil {
		return err
	}
	c.open = append(c.open, o)
	return nil
}

// place compares a node with the one above it.
func (c *checker) place(n *Node) error {
	x := c.x
	if len(c.open) == 0 {
		if n.Depth > 0 {
			return x.depth.bad(n.Position, "0 for the root", uint64(n.Depth))
		}
		if n.End != x.doc.NodeCount-1 {
			return x.end.bad(n.Position, fmt.Sprintf("%d for the root", x.doc.NodeCount-1), n.End)
		}
		if n.MaxDepth != x.doc.MaxDepth {
			return x.maxDepth.bad(n.Position, fmt.Sprint(x.doc.MaxDepth), uint64(n.MaxDepth))
		}
		return nil
	}
	above := &c.open[len(c.open)-1]
	switch {
	case n.Depth != above.Depth+1:
		return x.depth.bad(n.Position, fmt.Sprint(above.Depth+1), uint64(n.Depth))
	case n.End > above.End:
		return x.end.bad(n.Position, fmt.Sprintf("at most %d", above.End), n.End)
	case n.Objects > above.left.Objects:
		return x.objects.bad(n.Position, fmt.Sprintf("at most %d", above.left.Objects), n.Objects)
	case n.Bytes > above.left.Bytes:
		return x.bytes.bad(n.Position, fmt.Sprintf("at most %d", above.left.Bytes), n.Bytes)
	}
	above.left = Sum{above.left.Objects - n.Objects, above.left.Bytes - n.Bytes}
	return nil
}

// prefix looks at a node's prefix and looks it up.
func (c *checker) prefix(o *openNode) error {
	x := c.x
	p, err := x.prefix(o.Position)
	if err != nil {
		return err
	}
	off, err := x.offsets.at(o.Position)
	if err != nil {
		return err
	}
	bad := func(want string) error {
		return codec.Corrupt(x.blob.Name(), fmt.Sprintf("prefix %d", o.Position), int64(off), want, fmt.Sprintf("%.80q", p))
	}
	if len(c.open) == 0 {
		if len(p) > 0 {
			return bad("an empty prefix")
		}
	} else {
		above := c.open[len(c.open)-1].length
		if len(p) <= above || !bytes.HasPrefix(p, c.path[:above]) || bytes.IndexByte(p[above:], '/') != len(p)-above-1 {
			return bad(fmt.Sprintf("%.80q with one element more", c.path[:above]))
		}
		if o.Position > 0 && bytes.Compare(c.path, p) >= 0 {
			return bad(fmt.Sprintf("a prefix after %.80q", c.path))
		}
	}
	c.path, o.length = append(c.path[:0], p...), len(p)
	pos, ok, err := x.Lookup(p)
	if err != nil {
		return err
	}
	if !ok || pos != o.Position {
		return codec.Corrupt(x.slots.Name(), "array", -1, fmt.Sprintf("position %d for %.80q", o.Position, p), fmt.Sprint(pos, ok))
	}
	slot, _ := x.hash.Load().Slot(fnv1a(fnvOffset, p))
	value, err := x.slots.at(slot)
	if err != nil {
		return err
	}
	at, place, err := x.split(slot, value)
	if err != nil || at != pos {
		return err // the slot is another prefix's
	}
	if x.packed && place != off {
		return x.slots.bad(slot, fmt.Sprintf("offset %d", off), place)
	}
	if x.layout.prints == "" {
		return nil
	}
	print, err := x.prints.at(slot)
	if want := fnv1(fnvOffset, p); err == nil && print != want {
		err = x.prints.bad(slot, fmt.Sprintf("the fingerprint %016x", want), print)
	}
	return err
}

// tiers compares the sums by tier with the sum of all and with those of the node above.
func (c *checker) tiers(o *openNode) error {
	x := c.x
	if len(x.tiers) == 0 {
		return nil
	}
	rest := o.Sum
	o.tiers = make([]Sum, len(x.tiers))
	for i := range x.tiers {
		objects, err := x.tierObjects[i].at(o.Position)
		if err != nil {
			return err
		}
		bytes, err := x.tierBytes[i].at(o.Position)
		if err != nil {
			return err
		}
		sum := Sum{objects, bytes}
		o.tiers[i] = sum
		most := rest
		if len(c.open) > 0 {
			left := &c.open[len(c.open)-1].tiers[i]
			most = Sum{min(most.Objects, left.Objects), min(most.Bytes, left.Bytes)}
			left.Objects -= min(left.Objects, objects)
			left.Bytes -= min(left.Bytes, bytes)
		}
		if objects > most.Objects {
			return x.tierObjects[i].bad(o.Position, fmt.Sprintf("at most %d", most.Objects), objects)
		}
		if bytes > most.Bytes {
			return x.tierBytes[i].bad(o.Position, fmt.Sprintf("at most %d", most.Bytes), bytes)
		}
		rest.Objects -= objects
		rest.Bytes -= bytes
	}
	if rest != (Sum{}) {
		return x.objects.bad(o.Position, fmt.Sprintf("%d in all tiers", o.Objects-rest.Objects), o.Objects)
	}
	return nil
}

// indexed looks for a node in the depth index.
func (c *checker) indexed(n *Node) error {
	seen := c.levels[n.Depth]
	c.levels[n.Depth]++
	if n.Depth == 0 && c.x.layout.depthPositions == "" {
		return nil
	}
	a, from, to, err := c.x.level(n.Depth)
	if err != nil {
		return err
	}
	if from+seen >= to {
		return codec.Corrupt(a.Name(), "array", -1, fmt.Sprintf("node %d of depth %d", n.Position, n.Depth), "the end")
	}
	got, err := a.at(from + seen)
	if err == nil && got != n.Position {
		err = a.bad(from+seen, fmt.Sprint(n.Position), got)
	}
	return err
}

// close ends the node on top, of which all nodes below it were seen.
func (c *checker) close() error {
	o := &c.open[len(c.open)-1]
	c.open = c.open[:len(c.open)-1]
	if o.deepest != o.MaxDepth {
		return c.x.maxDepth.bad(o.Position, fmt.Sprint(o.deepest), uint64(o.MaxDepth))
	}
	if len(c.open) > 0 {
		above := &c.open[len(c.open)-1]
		above.deepest = max(above.deepest, o.deepest)
	}
	return nil
}
