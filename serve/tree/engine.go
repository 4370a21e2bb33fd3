package tree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/segment/pathtree"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/serve/lookup"
)

const (
	// openIndexes is how many indexes of segments are kept open.
	openIndexes = 256
	// lookAgain is how long a segment is taken to have no index after none was found.
	lookAgain = 30 * time.Second
)

// Engine answers queries. It is safe for concurrent use.
type Engine struct {
	maxRows  int64
	maxNodes int

	mu      sync.Mutex
	indexes map[string]*opened // by segment
}

// opened is the index of a segment, nil if it had none at the time.
type opened struct {
	mu     sync.Mutex
	index  *pathtree.Index
	looked time.Time
}

// NewEngine returns an engine for the snapshots of one lake. An answer reads at most maxRows rows
// and counts at most maxNodes nodes; 0 stands for DefaultMaxRows and DefaultMaxNodes.
func NewEngine(maxRows int64, maxNodes int) *Engine {
	return &Engine{
		maxRows: cmp.Or(maxRows, DefaultMaxRows), maxNodes: cmp.Or(maxNodes, DefaultMaxNodes),
		indexes: map[string]*opened{},
	}
}

// index opens the index of a segment. It is nil if the segment has none.
func (e *Engine) index(ctx context.Context, h *lookup.Holdings, segment string) (*pathtree.Index, error) {
	e.mu.Lock()
	o := e.indexes[segment]
	if o == nil {
		for id := range e.indexes {
			if len(e.indexes) < openIndexes {
				break
			}
			delete(e.indexes, id) // any other one
		}
		o = new(opened)
		e.indexes[segment] = o
	}
	e.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.index != nil || time.Since(o.looked) < lookAgain {
		return o.index, nil
	}
	store, cache := h.Store()
	index, err := pathtree.Open(ctx, store, segment, cache)
	if err == nil {
		o.index, o.looked = index, time.Now()
	}
	return index, err
}

// forget drops the index of a segment, which may be damaged and be made again.
func (e *Engine) forget(segment string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.indexes, segment)
}

// source is what one segment has of a domain, and how that is counted.
type source struct {
	segment  int
	index    *pathtree.Index
	holdings []lookup.Holding
	// indexed are the datasets that are looked up in the index.
	indexed map[uint32]bool
	rows    int64 // that the index has of these
}

// sources divides the holdings by segments, and opens their indexes.
func (e *Engine) sources(ctx context.Context, h *lookup.Holdings) ([]source, error) {
	var all []source
	for _, one := range h.All {
		if one.Rows == 0 {
			continue
		}
		if n := len(all); n == 0 || all[n-1].segment != one.Segment {
			all = append(all, source{segment: one.Segment, indexed: map[uint32]bool{}})
		}
		last := &all[len(all)-1]
		last.holdings = append(last.holdings, one)
	}
	g, ctx := errgroup.WithContext(ctx)
	for i := range all {
		g.Go(func() error {
			return lookup.Contain(func() (err error) {
				all[i].index, err = e.index(ctx, h, h.Segment(all[i].segment))
				return err
			})
		})
	}
	return all, g.Wait()
}

// count counts the nodes of a query.
func (e *Engine) count(ctx context.Context, h *lookup.Holdings, q *Query, at place, page *Page) (*trie, error) {
	sources, err := e.sources(ctx, h)
	if err != nil {
		return nil, err
	}
	var shown, hidden []lookup.Holding
	for i := range sources {
		s := &sources[i]
		scans := false
		for _, one := range s.holdings {
			if s.index == nil || one.Hidden > one.Rows {
				shown, scans = append(shown, one), true
				continue
			}
			s.indexed[one.Dataset], s.rows = true, s.rows+one.Rows+one.Hidden
			if one.Hidden > 0 {
				hidden = append(hidden, one)
			}
		}
		if scans {
			page.Scanned++
		}
		if len(s.indexed) > 0 {
			page.Indexed++
		}
	}
	// An index counts the children of a node. They are those of the answer if nothing else has rows
	// of the domain; otherwise they have to be looked at.
	counted := len(sources) == 1 && len(shown)+len(hidden) == 0 && (h.Covered[sources[0].segment] || len(sources[0].holdings) == 1)
	levels := q.Depth
	if !counted {
		levels++
	}
	t := newTrie(at.base, levels, e.maxNodes)
	t.reserve = q.Reserve
	if err := e.lookUp(ctx, h, sources, t, counted); err != nil {
		return nil, err
	}
	page.RowsRead, err = h.Read(ctx, hidden, true, at.rows, e.maxRows, func(c *part.Columns, lo, hi int) error {
		for i := lo; i < hi; i++ {
			ok, err := t.remove(c.Host[i], c.PathQuery[i], c.Size[i], c.HasSize[i])
			if err == nil && !ok {
				err = codec.Corrupt(pathtree.InfoKey(h.Segment(hidden[0].Segment)), "nodes", -1, "those of all rows of the segment", "fewer")
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	rows, err := h.Read(ctx, shown, false, at.rows, e.maxRows-page.RowsRead, func(c *part.Columns, lo, hi int) error {
		for i := lo; i < hi; i++ {
			if err := t.add(c.Host[i], c.PathQuery[i], c.Size[i], c.HasSize[i]); err != nil {
				return err
			}
		}
		return nil
	})
	page.RowsRead += rows
	var tooMany *lookup.TooManyRowsError
	if errors.As(err, &tooMany) {
		err = &lookup.TooManyRowsError{Rows: page.RowsRead, Max: e.maxRows}
	}
	if err != nil {
		return nil, err
	}
	if !t.link(counted) {
		return nil, codec.Corrupt(pathtree.InfoKey(h.Segment(sources[0].segment)), "nodes", -1, "counts of the rows of the segment", "others")
	}
	return t, nil
}

// lookUp adds the nodes of those sources that are indexed to a trie. With counted the nodes have
// the numbers of their children.
func (e *Engine) lookUp(ctx context.Context, h *lookup.Holdings, sources []source, t *trie, counted bool) error {
	base := []byte(t.base)
	level := pathtree.Level(base)
	var ranges []pathtree.Range
	if level > 0 {
		ranges = append(ranges, pathtree.Range{Level: level, Prefix: base})
	}
	for i := range t.levels {
		ranges = append(ranges, pathtree.Range{Level: level + 1 + i, Prefix: base})
	}
	var one sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	for i := range sources {
		s := &sources[i]
		if len(s.indexed) == 0 {
			continue
		}
		look := func() error {
			rows := int64(0)
			err := s.index.Read(ctx, h.Key, ranges, func(j int, found *pathtree.Node) error {
				var sum pathtree.Counts
				children := int64(0)
				for k := range found.Entries {
					if entry := &found.Entries[k]; s.indexed[entry.Dataset] {
						sum.Add(&entry.Counts)
						children = entry.Children
					}
				}
				if sum.Rows == 0 {
					return nil
				}
				if len(s.indexed) > 1 {
					children = found.Children
				}
				one.Lock()
				defer one.Unlock()
				if level == 0 && j == 0 {
					rows += sum.Rows
					below := sum
					below.Direct = 0
					t.root.Add(&below)
				}
				n, err := t.node(found.Path, ranges[j].Level-level)
				if err != nil {
					return err
				}
				n.Add(&sum)
				if counted {
					n.children = int(children)
				}
				return nil
			})
			if err == nil && level == 0 && rows != s.rows {
				err = codec.Corrupt(s.index.Info().Object(), "nodes", -1, fmt.Sprintf("%d rows of domain %016x, as in the postings", s.rows, h.Key.ID), rows)
			}
			if errors.Is(err, codec.ErrCorrupt) {
				e.forget(h.Segment(s.segment))
			}
			return err
		}
		g.Go(func() error { return lookup.Contain(look) })
	}
	return g.Wait()
}
