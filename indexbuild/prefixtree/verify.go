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

	"github.com/cespare/xxhash/v2"

	"github.com/urlake/urlake/internal/mapped"
	"github.com/urlake/urlake/lake/codec"
)

// Verify reads everything: that each file has the hash that the manifest gives, and that the files
// agree with each other. A sum of a node that is not below that of its children cannot be told: the
// index does not have the objects. The first fault is returned. Progress is called now and then
// with how many nodes are compared.
func (x *Index) Verify(ctx context.Context, progress func(nodes uint64)) (err error) {
	for _, name := range slices.Sorted(maps.Keys(x.doc.Files)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := x.verifyFile(name); err != nil {
			return err
		}
	}
	files := slices.Clone(x.files)
	for depth := x.firstLevel(); depth <= x.doc.MaxDepth; depth++ {
		l, err := x.level(depth)
		if err != nil {
			return err
		}
		files = append(files, l.File)
	}
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, files...)
	c := checker{x: x, levels: make([]uint64, x.doc.MaxDepth+1)}
	for pos := range x.doc.NodeCount {
		if pos%ctxNodes == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			progress(pos)
		}
		if err := c.close(pos); err != nil {
			return err
		}
		if err := c.node(pos); err != nil {
			return err
		}
	}
	if err := c.close(x.doc.NodeCount); err != nil {
		return err
	}
	if c.slots != x.slots.count {
		return codec.Corrupt(x.slots.Name(), "array", -1, fmt.Sprintf("a prefix of its own for each of %d slots", x.slots.count), c.slots)
	}
	for depth := x.firstLevel(); depth <= x.doc.MaxDepth; depth++ {
		if l, err := x.level(depth); err != nil || l.to-l.from != c.levels[depth] {
			return orCorrupt(err, l.Name(), fmt.Sprintf("%d nodes of depth %d", c.levels[depth], depth), l.to-l.from)
		}
	}
	return nil
}

// firstLevel is the first depth that the depth index has.
func (x *Index) firstLevel() uint32 {
	if x.depthPositions == "" {
		return 1
	}
	return 0
}

// orCorrupt returns err, or else that an array is not as it has to be.
func orCorrupt(err error, name, want string, got any) error {
	if err == nil {
		err = codec.Corrupt(name, "array", -1, want, got)
	}
	return err
}

func (x *Index) verifyFile(name string) (err error) {
	want, err := x.doc.sums(name)
	if err != nil {
		return err
	}
	f, err := x.open(name, want)
	if err != nil {
		return err
	}
	defer f.Close()
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, f)
	expected, got := x.doc.Files[name].XXHash64, hex64(xxhash.Sum64(f.Data()))
	if x.sha256 {
		sum := sha256.Sum256(f.Data())
		expected, got = x.doc.Files[name].Checksum, hex.EncodeToString(sum[:])
	}
	if !strings.EqualFold(got, expected) {
		return codec.Corrupt(name, "file", -1, "the hash "+expected, got)
	}
	return nil
}

// checker walks through the nodes of an index in pre-order and compares its files.
type checker struct {
	x      *Index
	open   []openNode // the node and those above it
	path   []byte     // its prefix
	levels []uint64   // nodes of each depth so far
	slots  uint64     // prefixes that have a slot, so far
}

// openNode is a node of which not all nodes below it were seen.
type openNode struct {
	Node
	length  int    // of its prefix
	deepest uint32 // of those below it
	// objects and bytes are what its children so far do not have.
	objects, bytes uint64
}

// node compares the node at pos with the one above it, and with everything that refers to it.
func (c *checker) node(pos uint64) error {
	x := c.x
	n, err := x.node(pos)
	if err != nil {
		return err
	}
	above := &openNode{
		Node: Node{End: n.End, MaxDepth: x.doc.MaxDepth}, objects: n.Objects, bytes: n.Bytes,
	}
	depth := uint32(0)
	if len(c.open) > 0 {
		above = &c.open[len(c.open)-1]
		depth = above.Depth + 1
	}
	switch {
	case n.Depth != depth:
		return x.depth.bad(pos, fmt.Sprint(depth), uint64(n.Depth))
	case n.End > above.End || pos == 0 && n.End != x.doc.NodeCount-1:
		return x.end.bad(pos, fmt.Sprintf("at most %d, and the last node for the root", above.End), n.End)
	case pos == 0 && n.MaxDepth != x.doc.MaxDepth:
		return x.maxDepth.bad(pos, fmt.Sprint(x.doc.MaxDepth), uint64(n.MaxDepth))
	case n.Objects > above.objects:
		return x.objectCount.bad(pos, fmt.Sprintf("at most %d", above.objects), n.Objects)
	case n.Bytes > above.bytes:
		return x.totalBytes.bad(pos, fmt.Sprintf("at most %d", above.bytes), n.Bytes)
	}
	above.objects, above.bytes = above.objects-n.Objects, above.bytes-n.Bytes
	p, err := x.prefix(pos)
	if err != nil {
		return err
	}
	before := c.path[:above.length]
	if pos == 0 && len(p) > 0 || pos > 0 && (!bytes.HasPrefix(p, before) || bytes.Compare(c.path, p) >= 0 ||
		bytes.IndexByte(p[above.length:], '/') != len(p)-above.length-1) {
		return codec.Corrupt(x.prefixBlob.Name(), fmt.Sprintf("prefix %d", pos), -1,
			fmt.Sprintf("%.80q with one element more, after %.80q", before, c.path), fmt.Sprintf("%.80q", p))
	}
	c.path = append(c.path[:0], p...)
	slot, at, ok, err := x.bySlot(p)
	switch {
	case err == nil && !ok: // perhaps another prefix with the same key has it
		at, ok, err = x.Lookup(p)
	case err == nil:
		c.slots++
		if err := c.fingerprint(slot, p); err != nil {
			return err
		}
	}
	if err != nil || !ok || at != pos {
		return orCorrupt(err, x.slots.Name(), fmt.Sprintf("position %d for %.80q", pos, p), fmt.Sprint(at, ok))
	}
	if n.Depth >= x.firstLevel() {
		l, err := x.level(n.Depth)
		at := x.doc.NodeCount
		if i := l.from + c.levels[n.Depth]; err == nil && i < l.to {
			at, err = l.at(i)
		}
		if err != nil || at != pos {
			return orCorrupt(err, l.Name(), fmt.Sprintf("node %d of depth %d", pos, n.Depth), at)
		}
	}
	c.levels[n.Depth]++
	c.open = append(c.open, openNode{n, len(p), n.Depth, n.Objects, n.Bytes})
	return nil
}

// fingerprint compares the fingerprint of a slot with that of its prefix.
func (c *checker) fingerprint(slot uint64, prefix []byte) error {
	if c.x.prints == "" {
		return nil
	}
	got, err := c.x.fingerprints.at(slot)
	if want := fnv1(prefix); err == nil && got != want {
		err = c.x.fingerprints.bad(slot, fmt.Sprintf("the FNV-1 %d of %.80q", want, prefix), got)
	}
	return err
}

// close ends the nodes that have none below them from pos on.
func (c *checker) close(pos uint64) error {
	for len(c.open) > 0 && c.open[len(c.open)-1].End < pos {
		o := &c.open[len(c.open)-1]
		c.open = c.open[:len(c.open)-1]
		if o.deepest != o.MaxDepth {
			return c.x.maxDepth.bad(o.Position, fmt.Sprint(o.deepest), uint64(o.MaxDepth))
		}
		if len(c.open) > 0 {
			above := &c.open[len(c.open)-1]
			above.deepest = max(above.deepest, o.deepest)
		}
	}
	return nil
}
