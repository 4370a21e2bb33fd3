// Package pathtree is the index of the path trees of a segment: for each domain its hosts and
// directories, and for each of these and each dataset the number of rows at and below it, the sum
// of their sizes, and the number of its children. It stands beside the files of a segment and is
// not one of them: a segment is whole without it, and it can be made, or made again, at any time.
//
// The nodes of a domain are in the order of level and path. So the node that is asked for, its
// children and theirs are one run each, and a query knows all of them before it reads any. A domain
// that fits into a frame is in one frame. A larger one has frames of its own, and a directory of
// them at their end. So a query reads one frame, or a directory and then one run for each level.
//
// What is read is checked before it is used; damage is a *codec.CorruptError.
//
// docs/formats/tree.md describes every byte.
package pathtree

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/codec"
)

const (
	// Format is the format version of the document and of the frames.
	// 1: first.
	Format = 1

	// fenceBytes is the size of a fence: domain_id and check bits, and the number of the frame
	// among those that begin with the same domain.
	fenceBytes = 16
	// frameBytes is how many bytes of nodes a frame has at most, unless a single node has more.
	frameBytes = 32 << 10
	// maxPath is the longest path of a node, in bytes: a host, and a path of a canonical URL.
	maxPath = 17 << 10
)

// The kinds of frames, which are their first byte.
const (
	kindDomains   = 0 // whole domains
	kindNodes     = 1 // some nodes of a domain
	kindDirectory = 2 // the first nodes of the frames of a domain
)

// Sum is a sum of sizes that cannot overflow: each is below 2^63.
type Sum struct{ Hi, Lo uint64 }

// Add adds b.
func (s *Sum) Add(b Sum) {
	var carry uint64
	s.Lo, carry = bits.Add64(s.Lo, b.Lo, 0)
	s.Hi, _ = bits.Add64(s.Hi, b.Hi, carry)
}

// Sub takes b away, which is not more than s.
func (s *Sum) Sub(b Sum) {
	var borrow uint64
	s.Lo, borrow = bits.Sub64(s.Lo, b.Lo, 0)
	s.Hi, _ = bits.Sub64(s.Hi, b.Hi, borrow)
}

// Size is the sum, or 2^63-1 if it is that or more, as in segment.Totals.
func (s Sum) Size() int64 {
	if s.Hi > 0 || s.Lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(s.Lo)
}

// Counts are those of the rows of a dataset at a node or below it.
type Counts struct {
	Rows   int64
	Direct int64 // rows at the node itself
	Sized  int64 // rows that have a size
	Size   Sum
}

// Add adds b.
func (c *Counts) Add(b *Counts) {
	c.Rows, c.Direct, c.Sized = c.Rows+b.Rows, c.Direct+b.Direct, c.Sized+b.Sized
	c.Size.Add(b.Size)
}

// Valid reports whether c can be the counts of rows, of which there may be none.
func (c *Counts) Valid() bool {
	return c.Rows >= 0 && 0 <= c.Direct && c.Direct <= c.Rows && 0 <= c.Sized && c.Sized <= c.Rows &&
		c.Size.Hi < 1<<63 && (c.Sized > 0 || c.Size == Sum{})
}

// Entry is what a node has of a dataset: at least one row.
type Entry struct {
	Dataset uint32
	Counts
	// Children is the number of children of the node of which the dataset has rows.
	Children int64
}

// Node is a host or a directory of a domain.
type Node struct {
	// Path is the host and the path of the directory: "www.example.com/docs/".
	Path []byte
	// Children is the number of children.
	Children int64
	// Entries ascend by dataset. There is at least one.
	Entries []Entry
}

// Level is the level of the node with a path: 1 for hosts, 2 for their directories, 0 for the
// domain, whose path is "".
func Level(path []byte) int { return bytes.Count(path, []byte{'/'}) }

// Compare orders nodes of a domain: by level and path.
func Compare(a, b []byte) int {
	return cmp.Or(cmp.Compare(Level(a), Level(b)), bytes.Compare(a, b))
}

// ValidPath reports whether path can be that of a node.
func ValidPath(path []byte) bool {
	return len(path) > 1 && len(path) <= maxPath && path[len(path)-1] == '/' && path[0] != '/' && bytes.IndexByte(path, 0) < 0
}

// DirEnd is the length of the directory of a path and query: up to the last slash before the query.
func DirEnd(path string) int {
	if q := strings.IndexByte(path, '?'); q >= 0 {
		path = path[:q]
	}
	return strings.LastIndexByte(path, '/') + 1
}

// What an entry has besides rows, as bits.
const (
	hasChildren = 1 << iota // it has children; else all its rows are direct
	hasDirect               // with children: it has direct rows
	allSized                // all rows have a size
	someSized               // some have
	wideSize                // the sum of sizes takes more than 64 bits
	entryFlags  = 1<<iota - 1
)

// appendEntry encodes an entry behind one of another dataset, or of dataset 0.
func appendEntry(out []byte, before uint32, e *Entry) []byte {
	flags := byte(0)
	if e.Children > 0 {
		flags |= hasChildren
		if e.Direct > 0 {
			flags |= hasDirect
		}
	}
	switch {
	case e.Sized == e.Rows:
		flags |= allSized
	case e.Sized > 0:
		flags |= someSized
	}
	if e.Size.Hi > 0 {
		flags |= wideSize
	}
	out = append(out, flags)
	out = codec.AppendUvarint(out, uint64(e.Dataset-before))
	out = codec.AppendUvarint(out, uint64(e.Rows))
	if flags&hasChildren != 0 {
		out = codec.AppendUvarint(out, uint64(e.Children))
	}
	if flags&hasDirect != 0 {
		out = codec.AppendUvarint(out, uint64(e.Direct))
	}
	if flags&someSized != 0 {
		out = codec.AppendUvarint(out, uint64(e.Sized))
	}
	if flags&(allSized|someSized) != 0 {
		out = codec.AppendUvarint(out, e.Size.Lo)
	}
	if flags&wideSize != 0 {
		out = codec.AppendUvarint(out, e.Size.Hi)
	}
	return out
}

// readEntry decodes what appendEntry wrote. It has rows and is Valid, or d fails.
func readEntry(d *codec.Decoder, before uint32, first bool) (e Entry) {
	flags := d.U8()
	step := d.Uint(uint64(math.MaxUint32 - before))
	if d.Err() == nil && (flags > entryFlags || flags&(allSized|someSized) == allSized|someSized || step == 0 && !first) {
		d.Fail("an entry of a dataset after the one before", fmt.Sprintf("flags %#x, %d further", flags, step))
	}
	e.Dataset = before + uint32(step)
	e.Rows = int64(d.Uint(math.MaxInt64))
	e.Direct = e.Rows
	if flags&hasChildren != 0 {
		e.Children, e.Direct = int64(d.Uint(math.MaxInt64)), 0
	}
	if flags&hasDirect != 0 {
		e.Direct = int64(d.Uint(math.MaxInt64))
	}
	switch {
	case flags&allSized != 0:
		e.Sized = e.Rows
	case flags&someSized != 0:
		e.Sized = int64(d.Uint(math.MaxInt64))
	}
	if flags&(allSized|someSized) != 0 {
		e.Size.Lo = d.Uvarint()
	}
	if flags&wideSize != 0 {
		e.Size.Hi = d.Uvarint()
	}
	if d.Err() == nil {
		ok := e.Rows > 0 && e.Valid() && (flags&hasChildren != 0) == (e.Children > 0) &&
			(flags&hasDirect == 0 || flags&hasChildren != 0 && e.Direct > 0) &&
			(flags&someSized == 0 || 0 < e.Sized && e.Sized < e.Rows) && (flags&wideSize != 0) == (e.Size.Hi > 0) &&
			e.Children <= e.Rows-e.Direct
		if !ok {
			d.Fail("counts of rows", fmt.Sprintf("flags %#x, %+v", flags, e))
		}
	}
	return e
}

// appendNode encodes a node behind one with the path before.
func appendNode(out, before []byte, n *Node) []byte {
	shared := codec.CommonPrefix(before, n.Path)
	out = codec.AppendUvarint(out, uint64(shared))
	out = codec.AppendUvarint(out, uint64(len(n.Path)-shared))
	out = append(out, n.Path[shared:]...)
	return AppendEntries(out, n)
}

// AppendEntries encodes a node without its path.
func AppendEntries(out []byte, n *Node) []byte {
	out = codec.AppendUvarint(out, uint64(len(n.Entries)-1))
	if len(n.Entries) > 1 {
		out = codec.AppendUvarint(out, uint64(n.Children))
	}
	dataset := uint32(0)
	for i := range n.Entries {
		out = appendEntry(out, dataset, &n.Entries[i])
		dataset = n.Entries[i].Dataset
	}
	return out
}

// minEntry and minNode are the least bytes of an entry and of a node.
const (
	minEntry = 3
	minNode  = 5
)

// readNode decodes the next node into n, whose path is that of the node before, or empty. Spare is
// memory for its path, and gets that of the path before.
func readNode(d *codec.Decoder, n *Node, spare *[]byte, first bool) {
	shared := int(d.Uint(uint64(len(n.Path))))
	suffix := d.Bytes(int(d.Uint(maxPath)))
	if d.Err() != nil {
		return
	}
	if k := codec.CommonPrefix(n.Path[shared:], suffix); k > 0 {
		d.Fail("the longest shared prefix", shared)
		return
	}
	before := n.Path
	n.Path = append(append((*spare)[:0], before[:shared]...), suffix...)
	*spare = before
	if !ValidPath(n.Path) || !first && Compare(before, n.Path) >= 0 {
		d.Fail("a path after the one before", "another")
		return
	}
	readEntries(d, n)
}

// DecodeEntries decodes what AppendEntries wrote into n. File names the source in errors.
func DecodeEntries(data []byte, file string, n *Node) error {
	d := codec.NewDecoder(data, file, "entries")
	readEntries(d, n)
	return d.Close()
}

func readEntries(d *codec.Decoder, n *Node) {
	count := 1 + int(d.Uint(uint64(d.Len()/minEntry)))
	n.Children = 0
	if count > 1 {
		n.Children = int64(d.Uint(math.MaxInt64))
	}
	n.Entries = n.Entries[:0]
	dataset := uint32(0)
	most, sum := int64(0), int64(0)
	for i := range count {
		e := readEntry(d, dataset, i == 0)
		if d.Err() != nil {
			return
		}
		n.Entries = append(n.Entries, e)
		dataset = e.Dataset
		most, sum = max(most, e.Children), sum+e.Children
	}
	if count == 1 {
		n.Children = n.Entries[0].Children
	} else if n.Children < most || n.Children > sum {
		d.Fail(fmt.Sprintf("%d to %d children", most, sum), n.Children)
	}
}

// appendKey encodes a domain.
func appendKey(out []byte, k segment.Key) []byte {
	return codec.AppendU32(codec.AppendU64(out, k.ID), k.Check)
}

func readKey(d *codec.Decoder) (k segment.Key) {
	k.ID = d.U64()
	k.Check = d.U32()
	return k
}

// putFence encodes the fence of a frame, whose bytes sort like domains and numbers.
func putFence(f *[fenceBytes]byte, k segment.Key, n uint32) {
	be := func(out []byte, v uint64, width int) {
		for i := range width {
			out[i] = byte(v >> (8 * (width - 1 - i)))
		}
	}
	be(f[:8], k.ID, 8)
	be(f[8:12], uint64(k.Check), 4)
	be(f[12:], uint64(n), 4)
}
