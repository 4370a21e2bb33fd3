package indexbuild

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sort"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/segment"
)

// mergeWidth is how many sources are merged at once, each with three slabs and a buffer: a third of a megabyte. More are
// merged in several passes.
const mergeWidth = 256

// window is a range of domains, merged from all sources that have some of them.
type window struct {
	slab
	keys    []segment.Key // of the domains
	sets    []uint32      // datasets of each, ascending
	setEnds []uint32
}

// windows keeps the memory of windows that were used.
var windows = sync.Pool{New: func() any { return new(window) }}

// mergeSlabs merges sources and hands what comes out to sink, window after window, from one goroutine; of one domain and dataset
// the records of earlier sources come first and become one. Datasets are those of the files. keyOf may be nil: then windows have
// no keys. A window is the sink's until it returns.
//
// Sources are read ahead, each by a goroutine. The domains up to the smallest of the sources' last ones are complete: they
// make a window, and windows are merged at the same time, one by each processor.
func mergeSlabs(ctx context.Context, sources []slabSource, datasets []uint32, keyOf func([]byte) segment.Key, sink func(*window) error) error {
	g, ctx := errgroup.WithContext(ctx)
	ahead := make([]chan *slab, len(sources))
	for i, s := range sources {
		ahead[i] = make(chan *slab, 1)
		g.Go(func() error {
			for {
				sl, err := s.next(ctx)
				if err != nil {
					return err
				}
				if sl == nil {
					close(ahead[i]) // not after an error: what is missing is no end
					return nil
				}
				select {
				case ahead[i] <- sl:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
	}
	type job struct {
		out  *window
		done chan error
	}
	queue := make(chan job, 2*runtime.GOMAXPROCS(0))
	g.Go(func() error {
		defer close(queue)
		return cutWindows(ctx, ahead, func(pieces []piece) error {
			j := job{windows.Get().(*window), make(chan error, 1)}
			select {
			case queue <- j:
			case <-ctx.Done():
				return ctx.Err()
			}
			go func() { j.done <- j.out.merge(pieces, datasets, keyOf) }()
			return nil
		})
	})
	g.Go(func() error {
		for j := range queue {
			err := <-j.done
			if err == nil {
				err = sink(j.out)
			}
			if err != nil {
				return err
			}
			windows.Put(j.out)
		}
		return ctx.Err()
	})
	return g.Wait()
}

// piece is the domains [from, to) of a slab of source number order.
type piece struct {
	slab     *slab
	from, to int
	order    int
}

// cutWindows calls each with what makes one window, in their order. Each piece holds a reference to its slab.
func cutWindows(ctx context.Context, ahead []chan *slab, each func([]piece) error) error {
	heads := make([]piece, 0, len(ahead))
	for i := range ahead {
		heads = append(heads, piece{order: i})
	}
	for {
		// Every source shows a slab, or has ended.
		live := heads[:0]
		for _, h := range heads {
			for h.slab == nil || h.from == h.to {
				if h.slab != nil {
					h.slab.release()
				}
				var ok bool
				select {
				case h.slab, ok = <-ahead[h.order]:
				case <-ctx.Done():
					return ctx.Err()
				}
				if !ok {
					break
				}
				h.from, h.to = 0, h.slab.len()
			}
			if h.slab != nil {
				live = append(live, h)
			}
		}
		if heads = live; len(heads) == 0 {
			return nil
		}
		first := 0
		for i := 1; i < len(heads); i++ {
			if a, b := &heads[i], &heads[first]; compareDomains(a.slab, a.to-1, b.slab, b.to-1) < 0 {
				first = i
			}
		}
		bound, last := heads[first].slab, heads[first].to-1
		pieces := make([]piece, 0, len(heads))
		for i := range heads {
			h := &heads[i]
			n := sort.Search(h.to-h.from, func(n int) bool { return compareDomains(h.slab, h.from+n, bound, last) > 0 })
			if n > 0 {
				h.slab.refs.Add(1)
				pieces = append(pieces, piece{h.slab, h.from, h.from + n, h.order})
				h.from += n
			}
		}
		if err := each(pieces); err != nil {
			return err
		}
	}
}

func compareDomains(a *slab, i int, b *slab, j int) int {
	if p, q := a.prefix[i], b.prefix[j]; p != q {
		if p < q {
			return -1
		}
		return 1
	}
	return bytes.Compare(a.domain(i), b.domain(j))
}

// cursor is a place in a piece.
type cursor struct {
	// prefix and next are the first and the next eight bytes of the domain there, all ones at the end.
	prefix, next uint64
	line         []byte
	piece
}

func (c *cursor) step() {
	c.from++
	c.load()
}

func (c *cursor) load() {
	if c.from == c.to {
		c.prefix, c.next, c.line = 1<<64-1, 1<<64-1, nil
		return
	}
	c.prefix = c.slab.prefix[c.from]
	c.line = c.slab.line(c.from)
	if len(c.line) > 16 {
		c.next = binary.BigEndian.Uint64(c.line[8:])
	} else {
		c.next = textPrefix(c.line[min(8, len(c.line)-1) : len(c.line)-1])
	}
}

// before tells which of two cursors comes first.
func (c *cursor) before(o *cursor) bool {
	if c.prefix != o.prefix {
		return c.prefix < o.prefix
	}
	return c.beforeLater(o)
}

// beforeLater is before for domains whose first eight bytes are the same, or ends.
func (c *cursor) beforeLater(o *cursor) bool {
	if c.next != o.next {
		return c.next < o.next
	}
	if n := len(c.line); n == len(o.line) && n <= 17 && n > 0 {
		return c.order < o.order
	}
	switch {
	case c.from == c.to:
		return false
	case o.from == o.to:
		return true
	}
	if d := bytes.Compare(c.line[:len(c.line)-1], o.line[:len(o.line)-1]); d != 0 {
		return d < 0
	}
	return c.order < o.order
}

// merge fills the window from pieces, and releases them.
func (w *window) merge(pieces []piece, datasets []uint32, keyOf func([]byte) segment.Key) error {
	defer func() {
		for _, p := range pieces {
			p.slab.release()
		}
	}()
	w.text, w.ends, w.vals, w.valEnds = w.text[:0], w.ends[:0], w.vals[:0], w.valEnds[:0]
	w.keys, w.sets, w.setEnds = w.keys[:0], w.sets[:0], w.setEnds[:0]
	m := windowMerge{window: w, datasets: datasets}
	cursors := make([]cursor, len(pieces))
	for i, p := range pieces {
		cursors[i].piece = p
		cursors[i].load()
	}

	// A tree of losers (Knuth, The Art of Computer Programming 3, 5.4.1): node n > 0 has the cursor that lost there.
	k := len(cursors)
	tree := make([]int32, k)
	for i := range tree {
		tree[i] = -1
	}
	top := int32(-1)
	for i := range cursors {
		top = int32(i)
		for n := (i + k) / 2; n > 0; n /= 2 {
			if tree[n] < 0 {
				tree[n], top = top, -1
				break
			}
			if cursors[tree[n]].before(&cursors[top]) {
				tree[n], top = top, tree[n]
			}
		}
	}
	prefix, next := uint64(0), uint64(0) // of the last domain
	var last []byte
	for {
		c := &cursors[top]
		if c.from == c.to {
			break
		}
		if c.prefix != prefix || c.next != next || !bytes.Equal(c.line, last) {
			if last != nil {
				m.endDomain()
			}
			prefix, next, last = c.prefix, c.next, c.line
			w.text = append(w.text, c.line...)
			w.ends = append(w.ends, uint32(len(w.text)))
		}
		for val := c.slab.val(c.from); len(val) > 0; {
			n := recordLength(val)
			if err := m.add(val[:n:n]); err != nil {
				return err
			}
			val = val[n:]
		}
		c.step()
		at := top
		for n := (int(top) + k) / 2; n > 0; n /= 2 {
			if other := &cursors[tree[n]]; other.before(c) {
				tree[n], at = at, tree[n]
				c = other
			}
		}
		top = at
	}
	if last != nil {
		m.endDomain()
	}
	if keyOf != nil {
		for i := range w.ends {
			w.keys = append(w.keys, keyOf(w.domain(i)))
		}
	}
	return nil
}

// windowMerge collects the records of one domain after another.
type windowMerge struct {
	*window
	datasets []uint32 // of the files
	set      int      // where the domain's datasets start
	start    int      // where its last record starts
	a, b     record
}

// add takes a record of the domain that the window's text ends with.
func (m *windowMerge) add(packed []byte) error {
	w := m.window
	if len(w.vals)+len(packed) > math.MaxUint32 || len(w.text) > math.MaxUint32-segment.MaxDomain {
		return fmt.Errorf("domains up to %q have records of 4 GiB", w.domain(len(w.ends)-1))
	}
	dataset := m.datasets[recordFile(packed)]
	if len(w.sets) == m.set || w.sets[len(w.sets)-1] != dataset {
		m.start = len(w.vals)
		w.vals = append(w.vals, packed...)
		w.sets = append(w.sets, dataset)
		return nil
	}
	// Parts of one partition, or batches of one dataset, share the domain.
	if err := m.a.read(w.vals[m.start:]); err != nil {
		return err
	}
	if err := m.b.read(packed); err != nil {
		return err
	}
	m.a.totals.Add(m.b.totals)
	m.a.tuples = append(m.a.tuples, m.b.tuples...)
	if !slices.IsSortedFunc(m.a.tuples, segment.CompareTuples) {
		slices.SortFunc(m.a.tuples, segment.CompareTuples)
	}
	w.vals = m.a.append(w.vals[:m.start])
	return nil
}

// endDomain ends the domain that the window's text ends with.
func (m *windowMerge) endDomain() {
	w := m.window
	w.valEnds = append(w.valEnds, uint32(len(w.vals)))
	w.setEnds = append(w.setEnds, uint32(len(w.sets)))
	m.set = len(w.sets)
}

// narrow merges neighbours among sources into lists in the spool until at most mergeWidth are
// left. The spool's space is given back when it is closed, not before.
func narrow(ctx context.Context, sources []slabSource, datasets []uint32, sp *spool) ([]slabSource, error) {
	for len(sources) > mergeWidth {
		var merged []slabSource
		for group := range slices.Chunk(sources, mergeWidth) {
			out := &spooled{spool: sp}
			var buf []byte
			err := mergeSlabs(ctx, group, datasets, nil, func(w *window) error {
				var at extent
				var err error
				at, buf, err = sp.writeSlab(&w.slab, buf)
				out.at = append(out.at, at)
				return err
			})
			if err != nil {
				return nil, err
			}
			merged = append(merged, out)
		}
		sources = merged
	}
	return sources, nil
}
