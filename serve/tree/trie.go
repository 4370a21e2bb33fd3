package tree

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/urlake/urlake/indexbuild/segment/pathtree"
)

// node is a host or a directory of a trie.
type node struct {
	pathtree.Counts
	path     string // from the domain on: "", "host/", "host/dir/"
	level    int    // below the base
	children int    // that are in the trie, or as an index says
	kids     []*node
}

// trie has the nodes from a base down to some level, with exact counts. Rows are added by their
// hosts and paths, and nodes with the counts of their subtrees.
type trie struct {
	base   string
	levels int // below the base
	most   int // nodes
	// reserve is called before the trie takes that much memory in all, in bytes; nil for nobody.
	reserve func(bytes int64) error
	held    int64 // bytes of memory besides the nodes
	all     map[string]*node
	root    *node

	// The nodes of the row that was added last, from the root down; whole tells that the last of
	// them is its directory.
	host, dir string
	stack     []*node
	whole     bool
	name      []byte
}

const (
	// nodeBytes is about what a node takes with its name and its place in the map.
	nodeBytes = 320
	// reserveNodes is for how many nodes memory is reserved at once.
	reserveNodes = 4096
)

// TooManyNodesError means that an answer takes more nodes than a trie may have.
type TooManyNodesError struct{ Max int }

func (e *TooManyNodesError) Error() string {
	return fmt.Sprintf("the answer takes more than %d directories", e.Max)
}

func newTrie(base string, levels, most int) *trie {
	t := &trie{base: base, levels: levels, most: most, all: map[string]*node{}}
	t.root = &node{path: base}
	t.all[base] = t.root
	return t
}

// hold reserves memory besides the nodes.
func (t *trie) hold(bytes int64) error {
	if t.held += bytes; t.reserve == nil {
		return nil
	}
	return t.reserve(t.held + int64(len(t.all)+reserveNodes)*nodeBytes)
}

// node returns the node of a path at a level, which it makes if there is none. The path need not
// stay valid.
func (t *trie) node(path []byte, level int) (*node, error) {
	n := t.all[string(path)]
	if n == nil {
		if len(t.all) >= t.most {
			return nil, &TooManyNodesError{t.most}
		}
		if t.reserve != nil && len(t.all)%reserveNodes == 0 {
			if err := t.reserve(t.held + int64(len(t.all)+reserveNodes)*nodeBytes); err != nil {
				return nil, err
			}
		}
		n = &node{path: string(path), level: level}
		t.all[n.path] = n
	}
	return n, nil
}

// find sets the stack for rows of a host and a directory, which are below the base.
func (t *trie) find(host, dir string) error {
	if host == t.host && dir == t.dir && t.stack != nil {
		return nil
	}
	t.host, t.dir = strings.Clone(host), strings.Clone(dir)
	t.stack = append(t.stack[:0], t.root)
	t.name = append(append(t.name[:0], host...), dir...)
	t.whole = len(t.name) == len(t.base)
	at := len(t.base)
	for level := 1; level <= t.levels && at < len(t.name); level++ {
		at += bytes.IndexByte(t.name[at:], '/') + 1
		n, err := t.node(t.name[:at], level)
		if err != nil {
			return err
		}
		t.stack = append(t.stack, n)
		t.whole = at == len(t.name)
	}
	return nil
}

// add adds a row, which is below the base.
func (t *trie) add(host, path string, size int64, hasSize bool) error {
	if err := t.find(host, path[:pathtree.DirEnd(path)]); err != nil {
		return err
	}
	for _, n := range t.stack {
		n.Rows++
		if hasSize {
			n.Sized++
			n.Size.Add(pathtree.Sum{Lo: uint64(size)})
		}
	}
	if t.whole {
		t.stack[len(t.stack)-1].Direct++
	}
	return nil
}

// remove takes a row away that is in the counts of its nodes. It reports false if a node is not
// there.
func (t *trie) remove(host, path string, size int64, hasSize bool) (bool, error) {
	had := len(t.all)
	if err := t.find(host, path[:pathtree.DirEnd(path)]); err != nil {
		return false, err
	}
	for _, n := range t.stack {
		n.Rows--
		if hasSize {
			n.Sized--
			n.Size.Sub(pathtree.Sum{Lo: uint64(size)})
		}
	}
	if t.whole {
		t.stack[len(t.stack)-1].Direct--
	}
	return len(t.all) == had, nil
}

// link gives nodes their children, without nodes of which no row is left, and counts them unless
// the counts of an index stand. It reports false if counts are not those of rows.
func (t *trie) link(counted bool) bool {
	for _, n := range t.all {
		if !n.Valid() {
			return false
		}
		if n.Rows == 0 || n == t.root {
			continue
		}
		parent := t.all[n.path[:strings.LastIndexByte(n.path[:len(n.path)-1], '/')+1]]
		if parent == nil {
			return false
		}
		parent.kids = append(parent.kids, n)
	}
	for _, n := range t.all {
		if n.level < t.levels || !counted {
			n.children = len(n.kids)
		}
	}
	return true
}
