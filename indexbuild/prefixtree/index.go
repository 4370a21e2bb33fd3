package prefixtree

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/urlake/urlake/indexbuild/bbhash"
	"github.com/urlake/urlake/internal/mapped"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// Index is an open index. It is safe for concurrent use until Close. Bytes are hashed before they
// are used for the first time, in blocks of 1 MiB; an index of another program has no hashes of
// blocks, so only Verify finds its damage. Errors about bytes are *codec.CorruptErrors.
type Index struct {
	format Format
	*layout
	doc   manifest
	open  openFile
	files []*mapped.File

	end, depth, objectCount, totalBytes, maxDepth array

	prefixOffsets array
	prefixBlob    mappedFile
	slots         array                                 // the position of each slot of the hash
	fingerprints  array                                 // of the slots, if the format has them
	hash          func() (*bbhash.Hash, error)          // decodes it once
	level         func(depth uint32) (positions, error) // of all nodes of a depth

	mu     sync.Mutex
	levels []*mapped.File // the depths' files that are open
}

// openFile opens a file of an index. An absent file is a *codec.CorruptError.
type openFile func(name string, want mapped.Sums) (*mapped.File, error)

// inFolder opens the files of an index in a folder.
func inFolder(dir string) (openFile, error) {
	store, err := blob.NewLocal(dir)
	return func(name string, want mapped.Sums) (*mapped.File, error) {
		if want.Bytes == 0 { // nothing to map
			return mapped.New(name, nil, want), nil
		}
		f, err := mapped.Open(context.Background(), store, name, want, mapped.Options{})
		if errors.Is(err, blob.ErrNotExist) {
			err = codec.Corrupt(name, "file", -1, fmt.Sprintf("%d bytes", want.Bytes), "no file")
		}
		return f, err
	}, err
}

// ErrNoIndex means that a folder has no manifest.json of an index.
var ErrNoIndex = errors.New("no path-tree index")

// Open opens the index in a folder. It reads the manifest, and checks the sizes of all files, but
// for those of the depths of Seed, each of which is opened by the first query that needs it.
func Open(dir string) (*Index, error) {
	files, err := inFolder(dir)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(dir, manifestName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w: there is no %s", dir, ErrNoIndex, manifestName)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	doc, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil {
		return nil, err
	}
	x, err := openIndex(doc, files)
	if err != nil {
		return nil, fmt.Errorf("open index %s: %w", dir, err)
	}
	return x, nil
}

func openIndex(doc []byte, files openFile) (*Index, error) {
	m, f, err := DecodeManifest(doc)
	if err != nil {
		return nil, err
	}
	x := &Index{format: f, layout: layouts[f], doc: m, open: files}
	err = x.openNodes()
	if err == nil {
		err = x.openHash()
	}
	if err == nil {
		err = x.openDepths()
	}
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// file opens a file of the manifest, until Close.
func (x *Index) file(name string) (mappedFile, error) {
	f, err := x.mapFile(name)
	if err == nil {
		x.files = append(x.files, f.File)
	}
	return f, err
}

// mapFile opens a file of the manifest, which the caller closes.
func (x *Index) mapFile(name string) (mappedFile, error) {
	want, err := x.doc.sums(name)
	if err != nil {
		return mappedFile{}, err
	}
	f, err := x.open(name, want)
	return mappedFile{f, want.Blocks != nil}, err
}

// unknownCount stands for any number of elements.
const unknownCount = ^uint64(0)

// array opens the array of count elements of a file.
func (x *Index) array(name string, width, count uint64) (a array, err error) {
	if a.mappedFile, err = x.file(name); err != nil {
		return a, err
	}
	a.width, a.base = width, x.header
	rest := a.Size() - a.base
	if a.count = uint64(rest) / width; rest < 0 || uint64(rest)%width != 0 || count != unknownCount && a.count != count {
		return a, codec.Corrupt(name, "file", -1, fmt.Sprintf("elements of %d bytes as the manifest counts them", width), fmt.Sprintf("%d bytes", a.Size()))
	}
	a.data = a.Data()[a.base:]
	// Nothing of a header is used. If the file has hashes, Verify compares it by them; reading all
	// headers would take most of the time of Open.
	if x.header == 0 || a.lazy {
		return a, nil
	}
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, a.File)
	if want := x.appendHeader(nil, a.count, int(width)); !bytes.Equal(a.Data()[:x.header], want) {
		return a, codec.Corrupt(name, "header", 0, fmt.Sprintf("%x", want), fmt.Sprintf("%x", a.Data()[:x.header]))
	}
	return a, nil
}

// openNodes opens what is in pre-order.
func (x *Index) openNodes() (err error) {
	n := x.doc.NodeCount
	offsets := n
	if !x.lengths {
		offsets++
	}
	for _, a := range []struct {
		to           *array
		name         string
		width, count uint64
	}{
		{&x.end, endName, 8, n},
		{&x.depth, depthName, 4, n},
		{&x.objectCount, objectsName, 8, n},
		{&x.totalBytes, bytesName, 8, n},
		{&x.maxDepth, maxDepthName, 4, n},
		{&x.prefixOffsets, x.offsets, 8, offsets},
	} {
		if *a.to, err = x.array(a.name, a.width, a.count); err != nil {
			return err
		}
	}
	x.prefixBlob, err = x.file(x.blob)
	return err
}

func (x *Index) openHash() (err error) {
	if x.slots, err = x.array(x.positions, 8, unknownCount); err != nil {
		return err
	}
	if x.slots.count > x.doc.NodeCount {
		return codec.Corrupt(x.slots.Name(), "file", -1, fmt.Sprintf("at most %d slots", x.doc.NodeCount), x.slots.count)
	}
	if x.prints != "" {
		if x.fingerprints, err = x.array(x.prints, 8, x.slots.count); err != nil {
			return err
		}
	}
	f, err := x.file(x.layout.hash)
	x.hash = sync.OnceValues(func() (h *bbhash.Hash, err error) {
		defer mapped.Guard(debug.SetPanicOnFault(true), &err, f.File)
		data, err := f.slice(0, uint64(f.Size()))
		if err != nil {
			return nil, err
		}
		if h, err = bbhash.Open(data, f.Name()); err == nil && h.Keys() != x.slots.count {
			err = codec.Corrupt(f.Name(), "perfect hash", -1, fmt.Sprintf("%d slots", x.slots.count), h.Keys())
		}
		return h, err
	})
	return err
}

// positions are those of some nodes, in order: the elements from, to of an array.
type positions struct {
	array
	from, to uint64
}

func (x *Index) openDepths() error {
	if x.depthPositions == "" {
		levels := make([]positions, x.doc.MaxDepth+1)
		x.level = func(depth uint32) (_ positions, err error) {
			x.mu.Lock()
			defer x.mu.Unlock()
			if l := &levels[depth]; l.File == nil {
				if *l, err = x.openLevel(depth); err == nil {
					x.levels = append(x.levels, l.File)
				}
			}
			return levels[depth], err
		}
		return nil
	}
	offsets, err := x.array(x.depthOffsets, 8, uint64(x.doc.MaxDepth)+2)
	if err != nil {
		return err
	}
	all, err := x.array(x.depthPositions, 8, x.doc.NodeCount)
	x.level = func(depth uint32) (p positions, err error) {
		p.array = all
		if p.from, err = offsets.at(uint64(depth)); err != nil {
			return p, err
		}
		if p.to, err = offsets.at(uint64(depth) + 1); err == nil && (p.from > p.to || p.to > all.count) {
			err = offsets.bad(uint64(depth), fmt.Sprintf("%d to %d", p.from, all.count), p.to)
		}
		return p, err
	}
	return err
}

// openLevel opens the file of a depth, from 1.
func (x *Index) openLevel(depth uint32) (_ positions, err error) {
	f, err := x.mapFile(depthFile(depth))
	if err != nil {
		return positions{}, err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, f.File)
	if f.Size() < 2*countBytes || f.Size()%8 != 0 {
		return positions{}, codec.Corrupt(f.Name(), "file", -1, "a count and positions", fmt.Sprintf("%d bytes", f.Size()))
	}
	head, err := f.slice(0, countBytes)
	if err != nil {
		return positions{}, err
	}
	count := uint64(f.Size()-countBytes) / 8
	if got := binary.LittleEndian.Uint64(head); got != count {
		return positions{}, codec.Corrupt(f.Name(), "count", 0, fmt.Sprint(count), got)
	}
	return positions{array{mappedFile: f, data: f.Data()[countBytes:], base: countBytes, width: 8, count: count}, 0, count}, nil
}

// Close unmaps all files. No other call may be in flight.
func (x *Index) Close() error {
	var all error
	for _, f := range slices.Concat(x.files, x.levels) {
		all = errors.Join(all, f.Close())
	}
	x.files, x.levels = nil, nil
	return all
}

// Len is the number of nodes.
func (x *Index) Len() uint64 { return x.doc.NodeCount }

// mappedFile is a file of an open index. Its bytes are hashed before they are read, block by block,
// unless the index has no hashes of blocks.
type mappedFile struct {
	*mapped.File
	lazy bool // blocks are hashed
}

// slice returns n bytes at off.
func (f mappedFile) slice(off, n uint64) ([]byte, error) {
	size := uint64(f.Size())
	if off > size || n > size-off {
		return nil, codec.Corrupt(f.Name(), "file", int64(min(off, size)), fmt.Sprintf("%d bytes", n), fmt.Sprintf("the end at %d", size))
	}
	if f.lazy && n > 0 {
		if err := f.Check(int64(off), int64(n)); err != nil {
			return nil, err
		}
	}
	return f.Data()[off : off+n : off+n], nil
}

// array is an array of an open index.
type array struct {
	mappedFile
	data  []byte // the elements
	base  int64  // their offset in the file
	width uint64
	count uint64
}

// at returns an element.
func (a *array) at(i uint64) (uint64, error) {
	if i >= a.count {
		return 0, codec.Corrupt(a.Name(), "array", -1, fmt.Sprintf("element %d", i), fmt.Sprintf("%d elements", a.count))
	}
	off := i * a.width
	if a.lazy {
		if err := a.Check(a.base+int64(off), int64(a.width)); err != nil {
			return 0, err
		}
	}
	if a.width == 4 {
		return uint64(binary.LittleEndian.Uint32(a.data[off:])), nil
	}
	return binary.LittleEndian.Uint64(a.data[off:]), nil
}

// bad says that an element is not what the other files require.
func (a *array) bad(i uint64, want string, got uint64) error {
	return codec.Corrupt(a.Name(), "array", a.base+int64(i*a.width), want, got)
}

// search returns the first index in [from, to) whose element is at least v, or to.
func (a *array) search(from, to, v uint64) (uint64, error) {
	for from < to {
		mid := from + (to-from)/2
		got, err := a.at(mid)
		if err != nil {
			return 0, err
		}
		if got < v {
			from = mid + 1
		} else {
			to = mid
		}
	}
	return from, nil
}

const (
	fnvOffset = 0xcbf29ce484222325
	fnvPrime  = 0x100000001b3
)

// fnv1a returns the 64-bit FNV-1a hash of b, which is the key of a prefix.
func fnv1a(b []byte) uint64 {
	h := uint64(fnvOffset)
	for _, c := range b {
		h = (h ^ uint64(c)) * fnvPrime
	}
	return h
}

// fnv1 returns the 64-bit FNV-1 hash of b, which is the fingerprint of a prefix.
func fnv1(b []byte) uint64 {
	h := uint64(fnvOffset)
	for _, c := range b {
		h = h*fnvPrime ^ uint64(c)
	}
	return h
}

// Lookup returns the position of the node of a prefix, which is empty or ends in a slash. The first
// call decodes the perfect hash, which takes one or two milliseconds for ten million nodes.
func (x *Index) Lookup(prefix []byte) (pos uint64, ok bool, err error) {
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, x.files...)
	if len(prefix) == 0 {
		// Every index has the root, at position 0.
		if p, err := x.prefix(0); err != nil || len(p) > 0 {
			return 0, false, cmp.Or(err, codec.Corrupt(x.prefixBlob.Name(), "prefixes", 0, "the empty prefix first", fmt.Sprintf("%.40q", p)))
		}
		return 0, true, nil
	}
	if _, pos, ok, err = x.bySlot(prefix); err != nil || ok || x.slots.count == x.doc.NodeCount {
		return pos, ok, err
	}
	// Some prefixes have the same key as another and no slot.
	from, to := uint64(0), x.doc.NodeCount
	for from < to {
		mid := from + (to-from)/2
		p, err := x.prefix(mid)
		if err != nil {
			return 0, false, err
		}
		switch bytes.Compare(p, prefix) {
		case 0:
			return mid, true, nil
		case -1:
			from = mid + 1
		default:
			to = mid
		}
	}
	return 0, false, nil
}

// bySlot returns the slot of a prefix, and the position there. It is not ok if there is no slot, or
// the position is that of another prefix.
func (x *Index) bySlot(prefix []byte) (slot, pos uint64, ok bool, err error) {
	h, err := x.hash()
	if err != nil {
		return 0, 0, false, err
	}
	if slot, ok = h.Slot(fnv1a(prefix)); !ok {
		return 0, 0, false, nil
	}
	if pos, err = x.slots.at(slot); err != nil {
		return 0, 0, false, err
	}
	if pos >= x.doc.NodeCount {
		return 0, 0, false, x.slots.bad(slot, fmt.Sprintf("a position below %d", x.doc.NodeCount), pos)
	}
	if p, err := x.prefix(pos); err != nil || !bytes.Equal(p, prefix) {
		return 0, 0, false, err
	}
	return slot, pos, true, nil
}

// prefix returns the mapped bytes of a prefix.
func (x *Index) prefix(pos uint64) ([]byte, error) {
	off, err := x.prefixOffsets.at(pos)
	if err != nil {
		return nil, err
	}
	if size := uint64(x.prefixBlob.Size()); off > size {
		return nil, x.prefixOffsets.bad(pos, fmt.Sprintf("an offset up to %d", size), off)
	}
	if x.lengths {
		head, err := x.prefixBlob.slice(off, lengthBytes)
		if err != nil {
			return nil, err
		}
		return x.prefixBlob.slice(off+lengthBytes, uint64(binary.LittleEndian.Uint32(head)))
	}
	end, err := x.prefixOffsets.at(pos + 1)
	if err != nil {
		return nil, err
	}
	if end < off {
		return nil, x.prefixOffsets.bad(pos+1, fmt.Sprintf("an offset from %d", off), end)
	}
	return x.prefixBlob.slice(off, end-off)
}

// AppendPrefix appends the prefix of a node to buf.
func (x *Index) AppendPrefix(buf []byte, pos uint64) (_ []byte, err error) {
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, x.files...)
	p, err := x.prefix(pos)
	return append(buf, p...), err
}

// Node returns a node. A position that the index does not have is an error.
func (x *Index) Node(pos uint64) (n Node, err error) {
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, x.files...)
	return x.node(pos)
}

func (x *Index) node(pos uint64) (n Node, err error) {
	n.Position = pos
	var depth, deepest uint64
	for _, a := range [...]struct {
		of *array
		to *uint64
	}{{&x.end, &n.End}, {&x.objectCount, &n.Objects}, {&x.totalBytes, &n.Bytes}, {&x.depth, &depth}, {&x.maxDepth, &deepest}} {
		if *a.to, err = a.of.at(pos); err != nil {
			return n, err
		}
	}
	if n.End < pos || n.End >= x.doc.NodeCount {
		return n, x.end.bad(pos, fmt.Sprintf("%d to %d", pos, x.doc.NodeCount-1), n.End)
	}
	if depth > deepest || deepest > uint64(x.doc.MaxDepth) {
		return n, x.maxDepth.bad(pos, fmt.Sprintf("%d to %d", depth, x.doc.MaxDepth), deepest)
	}
	n.Depth, n.MaxDepth = uint32(depth), uint32(deepest)
	return n, nil
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

// Level is the list of the descendants of a node at one depth below it, in the order of their
// prefixes.
type Level struct {
	x    *Index
	list positions
	node Node
}

// Descendants returns the descendants of a node that are depth levels below it; 1 means its
// children. It costs two binary searches.
func (x *Index) Descendants(pos uint64, depth uint32) (l Level, err error) {
	n, err := x.Node(pos)
	if l = (Level{x: x, node: n}); err != nil || depth == 0 || uint64(n.Depth)+uint64(depth) > uint64(n.MaxDepth) {
		return l, err
	}
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, x.files...)
	if l.list, err = x.level(n.Depth + depth); err != nil {
		return l, err
	}
	return l, l.list.narrow(pos+1, n.End+1)
}

// narrow leaves the positions that are at least from and below to.
func (p *positions) narrow(from, to uint64) (err error) {
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, p.File)
	if p.from, err = p.search(p.from, p.to, from); err == nil {
		p.to, err = p.search(p.from, p.to, to)
	}
	return err
}

// Len is the number of nodes.
func (l Level) Len() uint64 { return l.list.to - l.list.from }

// At returns a node of the list.
func (l Level) At(i uint64) (Node, error) {
	pos, err := l.position(i)
	if err != nil {
		return Node{}, err
	}
	return l.x.Node(pos)
}

func (l *Level) position(i uint64) (pos uint64, err error) {
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, l.list.File)
	if pos, err = l.list.at(l.list.from + i); err == nil && (pos <= l.node.Position || pos > l.node.End) {
		err = l.list.bad(l.list.from+i, fmt.Sprintf("%d to %d", l.node.Position+1, l.node.End), pos)
	}
	return pos, err
}

// Order is an order of nodes, the largest first; of equal ones the first in the index.
type Order int

// The orders compare one sum, and if that is equal the other.
const (
	ByBytes Order = iota
	ByObjects
)

// compare is negative if a is the larger one.
func (o Order) compare(a, b Node) int {
	byBytes, byObjects := cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Objects, a.Objects)
	if o == ByObjects {
		byBytes, byObjects = byObjects, byBytes
	}
	return cmp.Or(byBytes, byObjects, cmp.Compare(a.Position, b.Position))
}

// Filter selects nodes.
type Filter struct{ MinObjects, MinBytes uint64 }

// Match reports whether a node has at least as many objects and bytes as the filter wants.
func (f Filter) Match(n *Node) bool { return n.Objects >= f.MinObjects && n.Bytes >= f.MinBytes }

// ctxNodes is the number of nodes between two looks at the context.
const ctxNodes = 1 << 16

// Top returns the count largest nodes of the list that match, largest first. It reads the sums of
// all nodes of the list, and holds twice as many as count of them, and some more.
func (l Level) Top(ctx context.Context, count int, order Order, filter Filter) ([]Node, error) {
	const more = 1000
	var top []Node
	shorten := func() {
		slices.SortFunc(top, order.compare)
		top = top[:min(count, len(top))]
	}
	for i := range l.Len() {
		if i%ctxNodes == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		n, err := l.At(i)
		if err != nil {
			return nil, err
		}
		if filter.Match(&n) {
			top = append(top, n)
		}
		if (len(top)-more)/2 > count {
			shorten()
		}
	}
	shorten()
	return top, nil
}
