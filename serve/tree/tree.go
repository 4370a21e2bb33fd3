// Package tree answers what is below a path of a site, and how much of it: the tree of the hosts
// and directories of a domain, with the number of rows and the sum of sizes at and below each, in
// one dataset or in all that the reader may read.
//
// # The tree
//
// The root is a domain. Its children are hosts, written "www.example.com/"; the children of a host
// or a directory are the parts of paths that end in a slash. What is counted are rows. A row
// belongs to the directory that ends at the last slash of its path, so the directory of
// /docs/a?x=/y is /docs/: from the question mark on everything is the leaf. Scheme and port are no
// part of the tree: http://a.example/x and https://a.example:8443/x are at the same node. Names and
// paths are those of canonical URLs.
//
// # How it is counted
//
// The rows of a domain are sorted by host and path, so a directory is one run of rows in each row
// group, and its nodes are counted in one pass over them. Segments with a tree index (package
// pathtree) are not scanned: their nodes are looked up, and the rows that the version does not have
// or that takedowns hide are read and subtracted. If more rows are hidden than shown, those that
// are shown are read instead. All answers are exact, or errors.
package tree

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urlake/urlake/serve/lookup"
)

const (
	// MaxDepth is the largest depth of a query.
	MaxDepth = 16
	// DefaultLimit is the number of children of a node that are listed, and DefaultListed that of
	// all nodes in an answer, unless the query says otherwise.
	DefaultLimit  = 100
	DefaultListed = 10_000
	// DefaultMaxRows is how many rows an answer reads at most, unless the engine was told
	// otherwise: a second or two of one processor.
	DefaultMaxRows = 4 << 20
	// DefaultMaxNodes is how many nodes are counted for an answer at most, unless the engine was
	// told otherwise.
	DefaultMaxNodes = 200_000
	// maxCursorName is how much of a name a cursor has.
	maxCursorName = 200
)

// Sort is an order of children.
type Sort string

// The orders: by the bytes of names, or the largest first and equal ones by name.
const (
	ByName Sort = "name"
	ByRows Sort = "rows"
	BySize Sort = "size"
)

// ParseSort reads the name of an order.
func ParseSort(text string) (Sort, error) {
	s := Sort(text)
	if s != ByName && s != ByRows && s != BySize {
		return "", fmt.Errorf("is name, rows or size")
	}
	return s, nil
}

// Query selects a node of the tree of a domain, and nodes below it.
type Query struct {
	Target lookup.Target
	// Path is a host of the domain and a directory, as in www.example.com/docs/, or a directory of
	// the target's host, as in /docs/. A slash at its end may be left out. "" stands for the
	// target's host, or for the whole domain if the target is that.
	Path string
	// Datasets are those that count, nil for all.
	Datasets []uint32
	// Depth is the number of levels below the node that are listed, 1 to MaxDepth.
	Depth int
	// MinCount and MinBytes leave nodes out of the lists that have fewer rows, or less size.
	MinCount, MinBytes int64
	Sort               Sort
	// Limit is how many children of a node are listed, at least 1, and Listed how many nodes in
	// all; see DefaultLimit. A page has one child of the node in any case.
	Limit, Listed int
	// Cursor is the one of the page before, or empty.
	Cursor string
	// Reserve is called before the answer takes that much memory in all, in bytes. Nil stands for
	// no limit.
	Reserve func(bytes int64) error
}

// Node is a host or a directory, or the domain.
type Node struct {
	// Name is the last part of Path, with its slash. Path begins with the host; that of the domain
	// is "".
	Name, Path string
	// Rows counts the rows at the node and below it, Direct those at the node itself.
	Rows, Direct int64
	// Size is the sum of the sizes of the rows that have one, 2^63-1 if it is that or more. HasSize
	// tells whether any has.
	Size    int64
	HasSize bool
	// Children is the number of children, listed or not. Nodes are those that are listed, nil at
	// the last level.
	Children int
	Nodes    []Node
}

// Page is an answer. Its Cursor is empty if all children are listed that the query selects.
type Page struct {
	lookup.Answer
	Node
	// Matching is the number of children that MinCount and MinBytes leave, on all pages.
	Matching int
	// StoppedBy is "nodes" if the page has fewer children than the limit because they have so many
	// nodes below them. It is empty otherwise.
	StoppedBy string
	// Indexed and Scanned count the segments that were looked up in a tree index, and those whose
	// rows were read because they have none. RowsRead counts all rows that were read.
	Indexed, Scanned int
	RowsRead         int64
}

// place is a node of the tree of a domain.
type place struct {
	base string           // its path
	rows lookup.Selection // that are at it or below it
}

// pathError is a mistake in Query.Path. What completes a sentence that begins with the parameter.
func pathError(what string) error { return &lookup.SelectionError{Part: "path", What: what} }

// place finds the node that a query is for.
func (q *Query) place(domain string) (place, error) {
	text := q.Path
	if strings.ContainsAny(text, "?#") {
		return place{}, pathError("has a query or a fragment; directories end before it, as in www.example.com/docs/")
	}
	host, dir, _ := strings.Cut(text, "/")
	switch {
	case text == "" && q.Target.Host == domain:
		return place{}, nil
	case host == "":
		host = q.Target.Host
	default:
		sel, err := lookup.ParseSelection(host, "", "", "")
		if err != nil {
			return place{}, pathError("starts with no name of a host; write www.example.com/docs/, or /docs/ for the host in question")
		}
		host = sel.Host
	}
	if host != domain && !strings.HasSuffix(host, "."+domain) {
		return place{}, pathError(fmt.Sprintf("is of the host %s, which is not of the domain %s", host, domain))
	}
	if dir = "/" + dir; !strings.HasSuffix(dir, "/") {
		dir += "/"
	}
	sel, err := lookup.ParseSelection("", dir, "", "")
	if err != nil {
		return place{}, pathError("is too long")
	}
	return place{host + sel.Prefix, lookup.Selection{Host: host, Prefix: sel.Prefix}}, nil
}

// check returns lookup.ErrRange if a number is out of range, and sets what is zero.
func (q *Query) check() error {
	q.Depth, q.Limit, q.Listed = cmp.Or(q.Depth, 1), cmp.Or(q.Limit, DefaultLimit), cmp.Or(q.Listed, DefaultListed)
	q.Sort = cmp.Or(q.Sort, ByName)
	if q.Depth < 1 || q.Depth > MaxDepth || q.Limit < 1 || q.Listed < 1 || q.MinCount < 0 || q.MinBytes < 0 {
		return lookup.ErrRange
	}
	return nil
}

// Answer returns a page of the nodes below the one that the query is for. A node that does not
// exist has no rows.
func (e *Engine) Answer(ctx context.Context, snap *lookup.Snapshot, q Query) (*Page, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	h, err := snap.Holdings(ctx, q.Target, q.Datasets)
	if err != nil {
		return nil, err
	}
	at, err := q.place(h.Domain)
	if err != nil {
		return nil, err
	}
	page := &Page{Answer: h.Answer}
	name := q.name(h.Domain, at.base)
	var after *lookup.TreePosition
	if q.Cursor != "" {
		if after, err = snap.ParseTreeCursor(q.Cursor, name); err != nil {
			return nil, err
		}
	}
	t, err := e.count(ctx, h, &q, at, page)
	if err != nil {
		return nil, err
	}
	if end := q.list(t.root, after, page); end != nil {
		page.Cursor = snap.TreeCursor(name, *end)
	}
	return page, nil
}

// name is what a cursor belongs to.
func (q *Query) name(domain, base string) string {
	ids := make([]string, len(q.Datasets))
	for i, id := range slices.Sorted(slices.Values(q.Datasets)) {
		ids[i] = strconv.FormatUint(uint64(id), 10)
	}
	return fmt.Sprintf("%s\x00%s\x00%s\x00%s\x00%d\x00%d", domain, base, strings.Join(ids, ","), q.Sort, q.MinCount, q.MinBytes)
}

// compare orders siblings.
func (s Sort) compare(a, b *node) int {
	c := 0
	switch s {
	case ByRows:
		c = cmp.Compare(b.Rows, a.Rows)
	case BySize:
		c = cmp.Compare(b.Size.Size(), a.Size.Size())
	}
	return cmp.Or(c, strings.Compare(a.path, b.path))
}

// selected returns the children of a node that the query selects, in its order.
func (q *Query) selected(n *node) []*node {
	kids := slices.DeleteFunc(n.kids, func(k *node) bool { return k.Rows < q.MinCount || k.Size.Size() < q.MinBytes })
	slices.SortFunc(kids, q.Sort.compare)
	return kids
}

// view returns a node as answers have it, without nodes below it.
func (n *node) view(parent string) Node {
	return Node{
		Name: n.path[len(parent):], Path: n.path, Rows: n.Rows, Direct: n.Direct,
		Size: n.Size.Size(), HasSize: n.Sized > 0, Children: n.children,
	}
}

// list lists the children of the root after a position, and what is below them. It returns where
// the next page starts, or nil.
func (q *Query) list(root *node, after *lookup.TreePosition, page *Page) *lookup.TreePosition {
	page.Node = root.view("")
	if i := strings.LastIndexByte(strings.TrimSuffix(root.path, "/"), '/'); i >= 0 {
		page.Name = root.path[i+1:]
	}
	page.Nodes = []Node{}
	kids := q.selected(root)
	page.Matching = len(kids)
	left := q.Listed
	start := q.start(root, kids, after)
	for i, kid := range kids[start:] {
		size := kid.nodes(q, q.Depth, q.Listed+1)
		if i == q.Limit || i > 0 && size > left {
			if i < q.Limit {
				page.StoppedBy = "nodes"
			}
			return q.position(root, kids[:start+i])
		}
		page.Nodes = append(page.Nodes, q.below(kid, root.path, q.Depth, &left))
	}
	return nil
}

// nodes counts the nodes that are listed for a node and below it, up to most.
func (n *node) nodes(q *Query, depth, most int) int {
	count := 1
	if depth == 1 {
		return count
	}
	listed := 0
	for _, k := range n.kids {
		if k.Rows < q.MinCount || k.Size.Size() < q.MinBytes {
			continue
		}
		if listed++; listed > q.Limit || count >= most {
			break
		}
		count += k.nodes(q, depth-1, most-count)
	}
	return count
}

// below returns a node and the nodes below it, as many as are left.
func (q *Query) below(n *node, parent string, depth int, left *int) Node {
	v := n.view(parent)
	*left--
	if depth == 1 {
		return v
	}
	v.Nodes = []Node{}
	for i, k := range q.selected(n) {
		if i == q.Limit || *left <= 0 {
			break
		}
		v.Nodes = append(v.Nodes, q.below(k, n.path, depth-1, left))
	}
	return v
}

// position is behind the last one of kids, which are the first children of the root.
func (q *Query) position(root *node, kids []*node) *lookup.TreePosition {
	last := kids[len(kids)-1]
	name := last.path[len(root.path):]
	at := &lookup.TreePosition{Name: name[:min(len(name), maxCursorName)], Value: q.value(last)}
	if len(name) > len(at.Name) {
		for _, k := range kids {
			if q.value(k) == at.Value && strings.HasPrefix(k.path[len(root.path):], at.Name) {
				at.Skip++
			}
		}
	}
	return at
}

// value is what children are sorted by, 0 for names.
func (q *Query) value(n *node) uint64 {
	switch q.Sort {
	case ByRows:
		return uint64(n.Rows)
	case BySize:
		return uint64(n.Size.Size())
	}
	return 0
}

// start is the index of the first one of kids behind a position.
func (q *Query) start(root *node, kids []*node, after *lookup.TreePosition) int {
	if after == nil {
		return 0
	}
	skip := after.Skip
	for i, k := range kids {
		name := k.path[len(root.path):]
		v := q.value(k)
		switch {
		case v > after.Value && q.Sort != ByName:
		case v < after.Value && q.Sort != ByName:
			return i
		case name < after.Name || name == after.Name:
		case strings.HasPrefix(name, after.Name) && skip > 0:
			skip--
		default:
			return i
		}
	}
	return len(kids)
}
