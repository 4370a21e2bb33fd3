// Package pathtree is the index of the path trees of a segment: for each domain its hosts and
// directories, and for each of these and each dataset the number of rows at and below it, the sum
// of their sizes, and the number of its children. It stands beside the files of a segment and is
// not one of them: a segment is whole without it, and it can be made, or made again, at any time.
//
// Nodes are sorted by domain, level and path. So the node that is asked for, its children and
// theirs are one run each, and a query knows all of them before it reads any: an open index answers
// in one round of reads, however large the domain.
//
// What is read is checked before it is used; damage is a *codec.CorruptError.
//
// docs/formats/tree.md describes every byte.
package pathtree

import (
	"bytes"
	"encoding/binary"
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

	// keyBytes is the size of what the key of a node has before the path: domain_id, check bits and
	// level.
	keyBytes = 14
	// domainBytes is the size of domain_id and check bits.
	domainBytes = 12
	// frameBytes is how many bytes of nodes a frame has at most, unless a single node has more.
	frameBytes = 32 << 10
	// maxPath is the longest path of a node, in bytes: a host, and a path of a canonical URL.
	maxPath = 17 << 10
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

// appendKey appends the key of a node, or the first bytes of the keys of all nodes of a level whose
// paths begin so. Keys sort by their bytes.
func appendKey(out []byte, k segment.Key, level int, path []byte) []byte {
	out = binary.BigEndian.AppendUint64(out, k.ID)
	out = binary.BigEndian.AppendUint32(out, k.Check)
	out = binary.BigEndian.AppendUint16(out, uint16(level))
	return append(out, path...)
}

// appendShared appends a string of bytes behind another one: how many bytes they share, and the
// rest.
func appendShared(out, before, text []byte) []byte {
	shared := codec.CommonPrefix(before, text)
	out = codec.AppendUvarint(out, uint64(shared))
	out = codec.AppendUvarint(out, uint64(len(text)-shared))
	return append(out, text[shared:]...)
}

// readShared decodes what appendShared wrote, into the memory of the string before, which sorts
// before it.
func readShared(d *codec.Decoder, before []byte) []byte {
	shared := int(d.Uint(uint64(len(before))))
	rest := d.Bytes(int(d.Uint(keyBytes + maxPath)))
	if d.Err() == nil && bytes.Compare(before[shared:], rest) >= 0 {
		d.Fail("ascending keys", "others")
	}
	return append(before[:shared], rest...)
}

// AppendEntries encodes a node without its path.
func AppendEntries(out []byte, n *Node) []byte {
	out = codec.AppendUvarint(out, uint64(len(n.Entries)-1))
	if len(n.Entries) > 1 {
		out = codec.AppendUvarint(out, uint64(n.Children))
	}
	before := uint32(0)
	for i := range n.Entries {
		e := &n.Entries[i]
		out = codec.AppendUvarint(out, uint64(e.Dataset-before))
		out = codec.AppendUvarint(out, uint64(e.Rows))
		if out = codec.AppendUvarint(out, uint64(e.Rows-e.Direct)); e.Rows > e.Direct {
			out = codec.AppendUvarint(out, uint64(e.Children))
		}
		if out = codec.AppendUvarint(out, uint64(e.Sized)); e.Sized > 0 {
			out = codec.AppendUvarint(codec.AppendUvarint(out, e.Size.Lo), e.Size.Hi)
		}
		before = e.Dataset
	}
	return out
}

// DecodeEntries decodes what AppendEntries wrote into n. File names the source in errors.
func DecodeEntries(data []byte, file string, n *Node) error {
	d := codec.NewDecoder(data, file, "entries")
	readEntries(d, n)
	return d.Close()
}

// minEntry is the least bytes of an entry.
const minEntry = 4

// readEntries decodes entries that have rows and are Valid, or d fails.
func readEntries(d *codec.Decoder, n *Node) {
	count := 1 + int(d.Uint(uint64(d.Len()/minEntry)))
	n.Children = 0
	if count > 1 {
		n.Children = int64(d.Uint(math.MaxInt64))
	}
	n.Entries = n.Entries[:0]
	dataset, most, sum := uint32(0), int64(0), int64(0)
	for i := range count {
		step := uint32(d.Uint(uint64(math.MaxUint32 - dataset)))
		dataset += step
		e := Entry{Dataset: dataset}
		e.Rows = int64(d.Uint(math.MaxInt64))
		below := int64(d.Uint(uint64(e.Rows)))
		if e.Direct = e.Rows - below; below > 0 {
			e.Children = int64(d.Uint(uint64(below)))
		}
		if e.Sized = int64(d.Uint(uint64(e.Rows))); e.Sized > 0 {
			e.Size.Lo, e.Size.Hi = d.Uvarint(), d.Uvarint()
		}
		if d.Err() == nil && (step == 0 && i > 0 || e.Rows == 0 || !e.Valid() || (e.Children > 0) != (below > 0)) {
			d.Fail("counts of rows of a dataset after the one before", fmt.Sprintf("%d further, %+v", step, e))
		}
		if d.Err() != nil {
			return
		}
		n.Entries = append(n.Entries, e)
		most, sum = max(most, e.Children), sum+e.Children
	}
	if count == 1 {
		n.Children = n.Entries[0].Children
	} else if n.Children < most || n.Children > sum {
		d.Fail(fmt.Sprintf("%d to %d children", most, sum), n.Children)
	}
}
