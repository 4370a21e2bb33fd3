package treebuild

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"

	"github.com/urlake/urlake/indexbuild/keysort"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/segment/pathtree"
	"github.com/urlake/urlake/lake/codec"
)

const (
	// DefaultMemoryBytes is about what the directories of ten million rows take.
	DefaultMemoryBytes = 256 << 20
	// domainBytes is the size of domain_id and check bits in keys.
	domainBytes = 12
	// keyEnd is the size of what a key has behind the path: a zero byte, so that a path sorts
	// before those that begin with it, and the dataset.
	keyEnd = 5
)

// sorter sorts records in bounded memory. What does not fit is moved to runs.
type sorter struct {
	runs   *keysort.Runs
	budget int // bytes of memory
	keysort.Records
}

func (s *sorter) add(key, value []byte) error {
	if s.Len() > 0 && s.Bytes()+len(key)+len(value) > s.budget {
		if err := s.runs.Add(s.Sorted()); err != nil {
			return err
		}
		s.Reset()
	}
	s.Add(key, value)
	return nil
}

// collector adds up what is directly in directories, and sorts them. What is added is in order for
// the most part, so that a directory is one record or a few. It is for one goroutine.
type collector struct {
	sorter sorter
	key    []byte // of the open directory: domain, path, zero, dataset
	value  []byte
	counts pathtree.Counts
}

// open opens a directory for a dataset. What is counted from then on is in it.
func (c *collector) open(k segment.Key, host, dir string, dataset uint32) error {
	if err := c.close(); err != nil {
		return err
	}
	c.key = binary.BigEndian.AppendUint64(c.key[:0], k.ID)
	c.key = binary.BigEndian.AppendUint32(c.key, k.Check)
	c.key = append(append(append(c.key, host...), dir...), 0)
	c.key = binary.BigEndian.AppendUint32(c.key, dataset)
	return nil
}

// path is the path of the open directory.
func (c *collector) path() []byte { return c.key[domainBytes : len(c.key)-keyEnd] }

// count counts a row. A size below zero stands for none.
func (c *collector) count(size int64) {
	c.counts.Rows++
	if size >= 0 {
		c.counts.Sized++
		c.counts.Size.Add(pathtree.Sum{Lo: uint64(size)})
	}
}

// close adds the open directory to the sorter, if anything was counted.
func (c *collector) close() error {
	if c.counts.Rows == 0 {
		return nil
	}
	c.value = codec.AppendUvarint(c.value[:0], uint64(c.counts.Rows))
	c.value = codec.AppendUvarint(c.value, uint64(c.counts.Sized))
	c.value = codec.AppendUvarint(c.value, c.counts.Size.Lo)
	c.value = codec.AppendUvarint(c.value, c.counts.Size.Hi)
	c.counts = pathtree.Counts{}
	return c.sorter.add(c.key, c.value)
}

// node is a node of a tree, with all nodes below it.
type node struct {
	pathtree.Node
	// position is the node's number in pre-order among the nodes of its domain, and end the number
	// of the last node below it. maxDepth is the largest depth in the node's subtree.
	position, end   uint64
	depth, maxDepth int

	length int // of the path
}

// tree makes nodes from sorted directories. In their order a directory is followed by all that is
// below it, so a stack as deep as the tree is enough. The root of a domain is the empty path.
type tree struct {
	// opened is called with the path of each node in pre-order, and closed with each node when it
	// is complete: after those below it. Both keep no argument.
	opened func(path []byte) error
	closed func(n *node) error

	domain [domainBytes]byte
	stack  []node // open nodes, each below the one before
	path   []byte // of the last one
	count  uint64
}

// merge makes the nodes of all directories in runs and sources, domain by domain. end, which may be
// nil, is called behind each domain.
func (t *tree) merge(ctx context.Context, runs *keysort.Runs, sources []keysort.Source, end func() error) error {
	err := runs.Merge(ctx, sources, func(key, value []byte) error {
		if len(t.stack) == 0 || !bytes.Equal(t.domain[:], key[:domainBytes]) {
			if err := t.finish(end); err != nil {
				return err
			}
			t.domain, t.count = [domainBytes]byte(key), 0
			if err := t.push(nil); err != nil {
				return err
			}
		}
		return t.add(key[domainBytes:], value)
	})
	if err != nil {
		return err
	}
	return t.finish(end)
}

// add adds a record of a collector, without the domain.
func (t *tree) add(key, value []byte) error {
	path := key[:len(key)-keyEnd]
	for !bytes.HasPrefix(path, t.path[:t.top().length]) {
		if err := t.pop(); err != nil {
			return err
		}
	}
	for at := t.top().length; at < len(path); {
		at += bytes.IndexByte(path[at:], '/') + 1
		if err := t.push(path[:at]); err != nil {
			return err
		}
	}
	d := codec.NewDecoder(value, "sorted directories", "value")
	e := pathtree.Entry{Dataset: binary.BigEndian.Uint32(key[len(key)-4:])}
	e.Rows, e.Sized = int64(d.Uvarint()), int64(d.Uvarint())
	e.Size.Lo, e.Size.Hi = d.Uvarint(), d.Uvarint()
	e.Direct = e.Rows
	n := t.top()
	if k := len(n.Entries); k > 0 && n.Entries[k-1].Dataset == e.Dataset {
		n.Entries[k-1].Add(&e.Counts)
	} else {
		n.Entries = append(n.Entries, e)
	}
	return d.Close()
}

func (t *tree) top() *node { return &t.stack[len(t.stack)-1] }

// push opens the node of a path, which is below the last one.
func (t *tree) push(path []byte) error {
	depth := len(t.stack)
	if depth < cap(t.stack) {
		t.stack = t.stack[:depth+1] // with the memory of a node that was closed
	} else {
		t.stack = append(t.stack, node{})
	}
	n := t.top()
	*n = node{position: t.count, depth: depth, maxDepth: depth, length: len(path), Node: pathtree.Node{Entries: n.Entries[:0]}}
	t.path = append(t.path[:0], path...)
	t.count++
	if t.opened == nil {
		return nil
	}
	return t.opened(path)
}

// pop closes the last node and adds its rows to its parent's.
func (t *tree) pop() error {
	n := t.top()
	if len(t.stack) > 1 {
		above := &t.stack[len(t.stack)-2]
		above.Children++
		above.Entries = addBelow(above.Entries, n.Entries)
		above.maxDepth = max(above.maxDepth, n.maxDepth)
	}
	n.Path, n.end = t.path[:n.length], t.count-1
	t.stack = t.stack[:len(t.stack)-1]
	return t.closed(n)
}

// addBelow adds the entries of a child to those of its parent. Both ascend.
func addBelow(parent, child []pathtree.Entry) []pathtree.Entry {
	at := 0
	for i := range child {
		e := &child[i]
		for at < len(parent) && parent[at].Dataset < e.Dataset {
			at++
		}
		if at == len(parent) || parent[at].Dataset != e.Dataset {
			parent = slices.Insert(parent, at, pathtree.Entry{Dataset: e.Dataset})
		}
		p := &parent[at]
		below := e.Counts
		below.Direct = 0
		p.Add(&below)
		p.Children++
	}
	return parent
}

// finish closes all nodes of the open domain, if there is one.
func (t *tree) finish(end func() error) error {
	if len(t.stack) == 0 {
		return nil
	}
	for len(t.stack) > 0 {
		if err := t.pop(); err != nil {
			return err
		}
	}
	if end == nil {
		return nil
	}
	return end()
}
