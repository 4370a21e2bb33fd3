package indexbuild

import (
	"context"
	"encoding/binary"
	"math"
	"math/bits"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
)

const (
	// sourceBits are the low bits of a tree node, which hold the number of a source.
	sourceBits = postings.CodeFreeBits
	sourceMask = maxWidth - 1

	// maxWidth is the largest number of sources that are merged at once. Each takes about 110 KB
	// for its blocks and what it decodes them from, up to 190 KB with sizes and times.
	maxWidth = 1 << sourceBits

	// endCode is the code of a source at its end: more than the code of any domain.
	endCode = math.MaxUint64 &^ sourceMask

	// blocksPerSource is one block being merged, one waiting, one being loaded.
	blocksPerSource = 3

	// windowBytes is about how many bytes of text and records a window has.
	windowBytes = 256 << 10
)

// domainSource yields a sorted list of domains, each once, with its records.
type domainSource interface {
	// Load returns the next block (package postings), with at least one domain, in the memory of
	// buf if that is large enough; nil at the end. It is called by one goroutine.
	Load(ctx context.Context, buf []byte) ([]byte, error)
}

// feed loads the blocks of a source ahead.
type feed struct {
	source domainSource
	loaded chan []byte
	free   chan []byte
}

// run loads all blocks. It closes loaded at the end of the source, but not after an error, which
// must not look like the end.
func (f *feed) run(ctx context.Context) error {
	for {
		var buf []byte
		select {
		case buf = <-f.free:
		case <-ctx.Done():
			return ctx.Err()
		}
		block, err := f.source.Load(ctx, buf)
		if err != nil {
			return err
		}
		if block == nil {
			close(f.loaded)
			return nil
		}
		f.loaded <- block // has capacity for all blocks
	}
}

// cursor is at a domain of a source. Cursors are small, so that all of them stay in the L1 cache.
type cursor struct {
	block  []byte // nil before the first and after the last
	offset int    // of the domain in block
	feed   *feed
	ended  bool
}

// current returns the domain, which is valid until the next call of next.
func (c *cursor) current() postings.BlockDomain { return c.block[c.offset:] }

// code returns the domain's code, or endCode at the end.
func (c *cursor) code() uint64 {
	if c.ended {
		return endCode
	}
	return c.current().Code()
}

// next moves to the next domain, or to the end.
func (c *cursor) next(ctx context.Context) error {
	if c.block != nil {
		c.offset += c.current().Len()
		if c.offset < len(c.block)-postings.BlockSlack {
			return nil
		}
		c.feed.free <- c.block
		c.block = nil
	}
	select {
	case block, more := <-c.feed.loaded:
		if !more {
			c.ended = true
			return ctx.Err()
		}
		c.block, c.offset = block, 0
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// mergeDomains merges at most maxWidth sources and passes the domains to sink, window by window,
// from one goroutine. All records of a domain in one dataset become one record; the tuples of
// earlier sources come first. datasets are those of the files. keyOf may be nil; windows then have
// no keys. A window is valid until sink returns.
//
// Each source is loaded by a goroutine of its own, and keys are computed by others. The merge
// itself is one loop, which takes less time than sink usually does.
func mergeDomains(
	ctx context.Context, sources []domainSource, datasets []uint32, keyOf func([]byte) segment.Key,
	sink func(*window) error,
) error {
	return mergeWindows(ctx, sources, datasets, keyOf, windowBytes, sink)
}

// mergeWindows is mergeDomains with windows of about size bytes.
func mergeWindows(
	ctx context.Context, sources []domainSource, datasets []uint32, keyOf func([]byte) segment.Key, size int,
	sink func(*window) error,
) error {
	g, ctx := errgroup.WithContext(ctx)
	cursors := make([]cursor, len(sources))
	for i, s := range sources {
		f := &feed{s, make(chan []byte, blocksPerSource), make(chan []byte, blocksPerSource)}
		for range blocksPerSource {
			f.free <- nil
		}
		cursors[i].feed = f
		g.Go(func() error { return f.run(ctx) })
	}
	type job struct {
		window *window
		done   chan struct{} // closed when the window has its keys
	}
	queue := make(chan job, 2*runtime.GOMAXPROCS(0))
	g.Go(func() error {
		defer close(queue)
		m := merger{cursors: cursors, datasets: datasets, windowBytes: size}
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
			if err := sink(j.window); err != nil {
				return err
			}
			windowPool.Put(j.window)
		}
		return ctx.Err()
	})
	return g.Wait()
}

// windowPool keeps the memory of windows that sink has returned.
var windowPool = sync.Pool{New: func() any { return new(window) }}

// merger merges the domains of cursors with a loser tree (Knuth, The Art of Computer Programming 3,
// 5.4.1).
//
// Node n > 0 of the tree is the cursor that lost there; node 0 is the winner. A node has the code
// of its cursor's domain, with the cursor's number in the low bits. The code is relative to the
// domain that won at the node. When the winner moves on, its next domain has a code relative to the
// same domain, and so has every loser that it meets on its way up. So a comparison is one of two
// numbers, without a branch. A code of 0 is the domain that won last, once more. Domains are
// compared only if two codes are equal and not 0.
//
// Package row merges rows with a different loser tree, which keeps for each node only the
// length of the prefix that its key shares with the winner (Ng and Kakehi 2008). Keys of rows are
// long and share most of their bytes with their neighbours, and their readers know these lengths
// already. Domains are short, come from hundreds of sources, and often share equally many bytes
// with the winner. A code therefore has the next bytes as well.
type merger struct {
	cursors     []cursor
	datasets    []uint32 // of the files
	windowBytes int
	tree        []uint64
}

// play returns which of two nodes comes first, and the other with its code relative to that.
func (m *merger) play(a, b uint64) (winner, loser uint64) {
	if (a^b)>>sourceBits == 0 && a>>sourceBits != 0 {
		return m.tie(a, b)
	}
	return min(a, b), max(a, b)
}

// tie is play for nodes with the same code. Of equal domains that of the earlier source wins.
func (m *merger) tie(a, b uint64) (winner, loser uint64) {
	a, b = min(a, b), max(a, b)
	c, d := &m.cursors[a&sourceMask], &m.cursors[b&sourceMask]
	if c.ended {
		return a, b // both have ended
	}
	// The code says how many bytes are the same. Eight bytes are compared at a time. They may be
	// past the end of a domain, where the slack makes reading safe; a difference there does not
	// count.
	p, x := c.current().Text()
	q, y := d.current().Text()
	n := min(x, y)
	same := postings.SharedBytes(a)
	for same < n {
		v, w := binary.BigEndian.Uint64(p[same:]), binary.BigEndian.Uint64(q[same:])
		if v == w {
			same += 8
			continue
		}
		if same += bits.LeadingZeros64(v^w) / 8; same >= n {
			break
		}
		if v < w {
			return a, postings.OffsetCode(q, y, same) | b&sourceMask
		}
		return b, postings.OffsetCode(p, x, same) | a&sourceMask
	}
	switch {
	case x == y:
		return a, b & sourceMask
	case x < y:
		return a, postings.OffsetCode(q, y, n) | b&sourceMask
	}
	return b, postings.OffsetCode(p, x, n) | a&sourceMask
}

// begin plays all matches at and below node n and returns the winner. All cursors are at their
// first domain, or at the end.
func (m *merger) begin(n int) uint64 {
	if k := len(m.cursors); n >= k {
		return m.cursors[n-k].code() | uint64(n-k)
	}
	winner, loser := m.play(m.begin(2*n), m.begin(2*n+1))
	m.tree[n] = loser
	return winner
}

// run merges all domains and calls each with every window, which then belongs to each.
func (m *merger) run(ctx context.Context, each func(*window) error) error {
	k := len(m.cursors)
	if k == 0 {
		return nil
	}
	for i := range k {
		if err := m.cursors[i].next(ctx); err != nil {
			return err
		}
	}
	m.tree = make([]uint64, k)
	tree := m.tree
	tree[0] = m.begin(1)
	w := windowBuilder{datasets: m.datasets}
	for {
		top := tree[0]
		i := int(top & sourceMask)
		c := &m.cursors[i]
		if top>>sourceBits != 0 { // not the last domain of the window
			if top >= endCode {
				break
			}
			if w.window != nil {
				w.endDomain()
				if len(w.text)+len(w.records) >= m.windowBytes {
					if err := each(w.window); err != nil {
						return err
					}
					w.window = nil
				}
			}
			if w.window == nil {
				w.begin()
			}
			w.addDomain(c.current())
		}
		if err := w.addRecords(c.current().Records()); err != nil {
			return err
		}
		if err := c.next(ctx); err != nil {
			return err
		}
		top = c.code() | uint64(i)
		for n := uint(i+k) / 2; n > 0; n /= 2 {
			// This is play, which is too large to be inlined, and is called ten times for each
			// record.
			other := tree[n]
			if (top^other)>>sourceBits == 0 && top>>sourceBits != 0 {
				top, tree[n] = m.tie(top, other)
				continue
			}
			tree[n] = max(top, other)
			top = min(top, other)
		}
		tree[0] = top
	}
	if w.window == nil {
		return nil
	}
	w.endDomain()
	return each(w.window)
}
