package indexbuild

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/segment"
)

const (
	// mergeWidth is how many sources are merged at once, each with three blocks and a buffer: a quarter of a megabyte. More are
	// merged in several passes.
	mergeWidth = 256

	// windowBytes is about how much of text and records a window has.
	windowBytes = 256 << 10
)

// domainSource yields the domains of one sorted list, each once, with its records. It reads block after block; what is read is
// looked at later, maybe by another goroutine.
type domainSource interface {
	// load reads the next block, into the memory of buf if that is enough; nil at the end. It is for one goroutine.
	load(ctx context.Context, buf []byte) ([]byte, error)
	// use begins a block that load returned, in their order, and step moves c to its next domain; false at its end. They are for one goroutine.
	use(block []byte) error
	step(c *cursor) (bool, error)
}

// cursor is at a domain of a source.
type cursor struct {
	source domainSource
	buf    [segment.MaxDomain + 16]byte // the domain, then zeros
	n      int
	val    []byte // its records, valid until the next step
	plain  [recordHeader]byte
	ended  bool

	block  []byte // in use; nil if none is
	loaded chan []byte
	free   chan []byte
}

func (c *cursor) domain() []byte { return c.buf[:c.n] }

// set makes the cursor's domain the first shared bytes of the one before, then rest, at most segment.MaxDomain bytes in all.
func (c *cursor) set(shared int, rest []byte) {
	c.n = shared + copy(c.buf[shared:], rest)
	*(*[16]byte)(c.buf[c.n:]) = [16]byte{}
}

// next moves to the next domain, or to the end.
func (c *cursor) next(ctx context.Context) error {
	for {
		if c.block != nil {
			ok, err := c.source.step(c)
			if ok || err != nil {
				return err
			}
			c.free <- c.block
			c.block = nil
		}
		select {
		case block, more := <-c.loaded:
			if !more {
				c.ended = true
				return ctx.Err()
			}
			c.block = block
			if err := c.source.use(block); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// blocksAhead are the blocks of a source: one is looked at, one waits, one is read.
const blocksAhead = 3

// load reads the blocks of the cursor's source.
func (c *cursor) load(ctx context.Context) error {
	for {
		var buf []byte
		select {
		case buf = <-c.free:
		case <-ctx.Done():
			return ctx.Err()
		}
		block, err := c.source.load(ctx, buf)
		if err != nil {
			return err
		}
		if block == nil {
			close(c.loaded) // not after an error: what is missing is no end
			return nil
		}
		c.loaded <- block // has room for all
	}
}

// window is a range of domains, merged from all sources that have some of them.
type window struct {
	slab
	keys    []segment.Key // of the domains
	sets    []uint32      // datasets of each, ascending
	setEnds []uint32
}

// windows keeps the memory of windows that were used.
var windows = sync.Pool{New: func() any { return new(window) }}

// mergeDomains merges sources and hands what comes out to sink, window after window, from one goroutine; of one domain and dataset
// the records of earlier sources come first and become one. Datasets are those of the files. keyOf may be nil: then windows have
// no keys. A window is the sink's until it returns.
//
// Sources are read ahead, each by a goroutine, and keys are made by others; the merge itself is one loop, which takes less time than what
// is done with what comes out.
func mergeDomains(ctx context.Context, sources []domainSource, datasets []uint32, keyOf func([]byte) segment.Key, sink func(*window) error) error {
	return mergeWindows(ctx, sources, datasets, keyOf, windowBytes, sink)
}

// mergeWindows is mergeDomains with windows of about size bytes.
func mergeWindows(ctx context.Context, sources []domainSource, datasets []uint32, keyOf func([]byte) segment.Key, size int, sink func(*window) error) error {
	g, ctx := errgroup.WithContext(ctx)
	cursors := make([]cursor, len(sources))
	for i, s := range sources {
		c := &cursors[i]
		c.source, c.loaded, c.free = s, make(chan []byte, blocksAhead), make(chan []byte, blocksAhead)
		for range blocksAhead {
			c.free <- nil
		}
		g.Go(func() error { return c.load(ctx) })
	}
	type job struct {
		out  *window
		done chan struct{}
	}
	queue := make(chan job, 2*runtime.GOMAXPROCS(0))
	g.Go(func() error {
		defer close(queue)
		m := merger{cursors: cursors, datasets: datasets, window: size}
		return m.run(ctx, func(w *window) error {
			j := job{w, make(chan struct{})}
			select {
			case queue <- j:
			case <-ctx.Done():
				return ctx.Err()
			}
			go func() {
				defer close(j.done)
				if keyOf == nil {
					return
				}
				for i := range w.ends {
					w.keys = append(w.keys, keyOf(w.domain(i)))
				}
			}()
			return nil
		})
	})
	g.Go(func() error {
		for j := range queue {
			<-j.done
			if err := sink(j.out); err != nil {
				return err
			}
			windows.Put(j.out)
		}
		return ctx.Err()
	})
	return g.Wait()
}

// merger merges what cursors yield.
type merger struct {
	cursors  []cursor
	datasets []uint32 // of the files
	window   int      // bytes
	// A tree of losers (Knuth, The Art of Computer Programming 3, 5.4.1): node n > 0 is the cursor that lost there, node 0 has won.
	tree []node
}

// node is a cursor by the first sixteen bytes of its domain, all ones at its end.
type node struct {
	first, next uint64
	cursor      int32
}

// before tells which of two cursors comes first.
func (m *merger) before(a, b *node) bool {
	if a.first != b.first {
		return a.first < b.first
	}
	if a.next != b.next {
		return a.next < b.next
	}
	return m.beforeLater(a.cursor, b.cursor)
}

// beforeLater is before where the first sixteen bytes are the same.
func (m *merger) beforeLater(i, j int32) bool {
	a, b := &m.cursors[i], &m.cursors[j]
	if a.ended || b.ended {
		return !a.ended || b.ended && i < j
	}
	if a.n != b.n || a.n > 16 {
		if d := bytes.Compare(a.domain(), b.domain()); d != 0 {
			return d < 0
		}
	}
	return i < j
}

// step moves cursor i on.
func (m *merger) step(ctx context.Context, i int32) (node, error) {
	c := &m.cursors[i]
	if err := c.next(ctx); err != nil || c.ended {
		return node{math.MaxUint64, math.MaxUint64, i}, err
	}
	return node{binary.BigEndian.Uint64(c.buf[:]), binary.BigEndian.Uint64(c.buf[8:]), i}, nil
}

// run merges all and calls each with every window.
func (m *merger) run(ctx context.Context, each func(*window) error) error {
	k := len(m.cursors)
	if k == 0 {
		return nil
	}
	m.tree = make([]node, k)
	for i := range m.tree {
		m.tree[i].cursor = -1
	}
	for i := range k {
		top, err := m.step(ctx, int32(i))
		if err != nil {
			return err
		}
		n := (i + k) / 2
		for ; n > 0 && m.tree[n].cursor >= 0; n /= 2 {
			if m.before(&m.tree[n], &top) {
				m.tree[n], top = top, m.tree[n]
			}
		}
		m.tree[n] = top
	}
	var w windowMerge
	w.datasets = m.datasets
	var last node // the domain that the window ends with
	var name [segment.MaxDomain]byte
	n := 0
	for {
		top := m.tree[0]
		c := &m.cursors[top.cursor]
		if c.ended {
			break
		}
		if top.first != last.first || top.next != last.next || c.n != n || n > 16 && !bytes.Equal(c.domain(), name[:n]) {
			if n > 0 {
				w.endDomain()
				if len(w.text)+len(w.vals) >= m.window {
					if err := each(w.window); err != nil {
						return err
					}
					w.window = nil
				}
			}
			if w.window == nil {
				w.begin()
			}
			last, n = top, copy(name[:], c.domain())
			w.text = append(append(w.text, c.domain()...), '\n')
			w.ends = append(w.ends, uint32(len(w.text)))
		}
		for val := c.val; len(val) > 0; {
			size := recordLength(val)
			if err := w.add(val[:size:size]); err != nil {
				return err
			}
			val = val[size:]
		}
		top, err := m.step(ctx, top.cursor)
		if err != nil {
			return err
		}
		for n := uint(int(top.cursor)+k) / 2; n > 0; n /= 2 {
			// What before does, here because it is the larger part of all that is done.
			other := &m.tree[n]
			if other.first > top.first || other.first == top.first && (other.next > top.next || other.next == top.next && m.beforeLater(top.cursor, other.cursor)) {
				continue
			}
			*other, top = top, *other
		}
		m.tree[0] = top
	}
	if n == 0 {
		return nil
	}
	w.endDomain()
	return each(w.window)
}

// windowMerge collects the records of one domain after another.
type windowMerge struct {
	*window
	datasets []uint32 // of the files
	set      int      // where the domain's datasets start
	start    int      // where its last record starts
	a, b     record
}

// begin begins a window.
func (m *windowMerge) begin() {
	w := windows.Get().(*window)
	w.text, w.ends, w.vals, w.valEnds = w.text[:0], w.ends[:0], w.vals[:0], w.valEnds[:0]
	w.keys, w.sets, w.setEnds = w.keys[:0], w.sets[:0], w.setEnds[:0]
	m.window, m.set = w, 0
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
func narrow(ctx context.Context, sources []domainSource, datasets []uint32, sp *spool) ([]domainSource, error) {
	for len(sources) > mergeWidth {
		var merged []domainSource
		for group := range slices.Chunk(sources, mergeWidth) {
			out := &spooled{spool: sp}
			var buf []byte
			err := mergeDomains(ctx, group, datasets, nil, func(w *window) error {
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
