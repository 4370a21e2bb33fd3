package tree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"github.com/urlake/urlake/indexbuild/segment/pathtree"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/lru"
)

const (
	// DefaultOpenBytes is the default memory for open indexes of segments. A GiB of nodes takes a
	// MiB. A larger index is opened for each answer.
	DefaultOpenBytes = 16 << 20
	// lookAgain is how long a segment is taken to have no index after none was found, and openTime
	// how long an index is used before its document is read again: another one may have replaced
	// it, whose file a garbage collection deletes later.
	lookAgain = 30 * time.Second
	openTime  = 10 * time.Minute
	// segmentsAtOnce is how many segments are opened or read at the same time for an answer.
	segmentsAtOnce = 4
)

// Engine answers queries. It is safe for concurrent use.
type Engine struct {
	maxRows  int64
	maxNodes int

	indexes *lru.Cache[string, opened] // by segment
	opening singleflight.Group         // by segment
}

// opened is the index of a segment, nil if it had none when it was looked for.
type opened struct {
	index  *pathtree.Index
	looked time.Time
}

// NewEngine returns an engine for the snapshots of one lake. An answer reads at most maxRows rows
// and counts at most maxNodes nodes, and indexes of openBytes bytes stay open; 0 stands for
// DefaultMaxRows, DefaultMaxNodes and DefaultOpenBytes.
func NewEngine(maxRows int64, maxNodes int, openBytes int64) *Engine {
	return &Engine{
		maxRows: cmp.Or(maxRows, DefaultMaxRows), maxNodes: cmp.Or(maxNodes, DefaultMaxNodes),
		indexes: lru.NewWhole[string, opened](cmp.Or(openBytes, DefaultOpenBytes)),
	}
}

// index opens the index of a segment. It is nil if the segment has none. Answers that need the same
// index at once open it once.
func (e *Engine) index(ctx context.Context, h *lookup.Holdings, segment string) (*pathtree.Index, error) {
	if o, ok := e.open(segment); ok {
		return o.index, nil
	}
	own := false
	done := e.opening.DoChan(segment, func() (index any, err error) {
		if o, ok := e.open(segment); ok { // another answer has just opened it
			return o.index, nil
		}
		own = true
		err = lookup.Contain(func() (err error) {
			index, err = e.read(ctx, h, segment)
			return err
		})
		return index, err
	})
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case res := <-done:
		if res.Err == nil {
			return res.Val.(*pathtree.Index), nil
		}
		// The answer that opened it for this one may have been cancelled, which this one was not.
		if own || ctx.Err() != nil {
			return nil, res.Err
		}
		return e.read(ctx, h, segment)
	}
}

// open returns what is known of the index of a segment, unless that is too old.
func (e *Engine) open(segment string) (o opened, ok bool) {
	o, ok = e.indexes.Get(segment)
	age := time.Since(o.looked)
	return o, ok && (o.index != nil && age < openTime || age < lookAgain)
}

// read opens the index of a segment.
func (e *Engine) read(ctx context.Context, h *lookup.Holdings, segment string) (*pathtree.Index, error) {
	store, cache := h.Store()
	index, err := pathtree.Open(ctx, store, segment, cache)
	if err != nil {
		return nil, err
	}
	bytes := int64(0)
	if index != nil {
		bytes = index.MemoryBytes()
	}
	e.indexes.Add(segment, opened{index, time.Now()}, bytes)
	return index, nil
}

// forget drops the index of a segment, which may be damaged and be made again.
func (e *Engine) forget(segment string) { e.indexes.Add(segment, opened{}, 0) }

// source is what one segment has of a domain, and how that is counted.
type source struct {
	segment  int
	index    *pathtree.Index
	holdings []lookup.Holding
	// whole tells that holdings are all that the segment has of the domain: no dataset is left out,
	// and none has hidden rows alone.
	whole bool
	// indexed are the datasets that are looked up in the index.
	indexed map[uint32]bool
	rows    int64 // that the index has of these
}

// sources divides the holdings by segments, and opens their indexes.
func (e *Engine) sources(ctx context.Context, h *lookup.Holdings) ([]source, error) {
	var all []source
	for _, one := range h.All {
		if n := len(all); n == 0 || all[n-1].segment != one.Segment {
			all = append(all, source{segment: one.Segment, whole: h.Covered[one.Segment], indexed: map[uint32]bool{}})
		}
		last := &all[len(all)-1]
		if one.Rows == 0 {
			last.whole = false
			continue
		}
		last.holdings = append(last.holdings, one)
	}
	all = slices.DeleteFunc(all, func(s source) bool { return len(s.holdings) == 0 })
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(segmentsAtOnce)
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
	counted := len(sources) == 1 && len(shown)+len(hidden) == 0 && (sources[0].whole || len(sources[0].holdings) == 1)
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
	g.SetLimit(segmentsAtOnce)
	for i := range sources {
		s := &sources[i]
		if len(s.indexed) == 0 {
			continue
		}
		look := func() error {
			rows, held := int64(0), int64(0)
			reserve := func(bytes int64) error {
				one.Lock()
				defer one.Unlock()
				held += bytes
				return t.hold(bytes)
			}
			defer func() {
				one.Lock()
				t.held -= held
				one.Unlock()
			}()
			err := s.index.Read(ctx, h.Key, ranges, reserve, func(j int, found *pathtree.Node) error {
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
