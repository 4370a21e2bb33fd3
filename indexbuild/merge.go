package indexbuild

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/keysort"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/prefetch"
)

const (
	// sourceBits is how many bits of a node name its source.
	sourceBits = 10

	// mergeWidth is how many sources are merged at once at most, each with its blocks and what it makes them of: some 110 KB, with sizes and times up to 190. More
	// are merged in several passes.
	mergeWidth = 1 << sourceBits

	// blocksAhead are the blocks of a source: one is looked at, one waits, one is made.
	blocksAhead = 3

	// askAhead is how many bytes ahead of a source's domain the core is asked for its block, which another core may have made: it does not see by itself that
	// so many blocks are read at once, each from its beginning to its end.
	askAhead = 128

	// windowBytes is about how much of text and records a window has.
	windowBytes = 256 << 10

	// spooledBytes is windowBytes for lists that are merged again.
	spooledBytes = 32 << 10
)

// domainSource yields the domains of one sorted list, each once, with its records.
type domainSource interface {
	// load makes the next block, of one domain at least, in the memory of buf if that is enough; nil at the end. It is for one
	// goroutine.
	Load(ctx context.Context, buf []byte) ([]byte, error)
}

// feed has a source's blocks made while others are looked at.
type feed struct {
	source domainSource
	loaded chan []byte
	free   chan []byte
}

// cursor is at a domain of a source. It is small: those of all sources stay in the nearest cache.
type cursor struct {
	block []byte // in use; nil if none is
	at    int    // where the domain stands in it
	feed  *feed
	ended bool
}

func (c *cursor) code() uint64 {
	if c.ended {
		return endCode
	}
	return binary.LittleEndian.Uint64(c.block[c.at:])
}

// domain is the cursor's domain, valid until the next step, as are its records.
func (c *cursor) domain() []byte {
	start := c.at + postings.BlockHeader
	return c.block[start : start+int(c.block[start-1])]
}

func (c *cursor) records() []byte {
	start := c.at + postings.BlockHeader + int(c.block[c.at+postings.BlockHeader-1])
	return c.block[start : start+int(binary.LittleEndian.Uint32(c.block[c.at+8:]))]
}

// next moves to the next domain, or to the end.
func (c *cursor) next(ctx context.Context) error {
	if c.block != nil {
		p := c.block[c.at:]
		c.at += postings.BlockHeader + int(p[postings.BlockHeader-1]) + int(binary.LittleEndian.Uint32(p[8:]))
		if c.at < len(c.block)-postings.BlockSlack {
			prefetch.At(c.block, c.at+askAhead)
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
		c.block, c.at = block, 0
		prefetch.At(block, 0)
		prefetch.At(block, askAhead)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

const (
	// sourceMask are the bits of a node that name its source.
	sourceMask = mergeWidth - 1

	// endCode is that of a cursor at its end, more than any domain's.
	endCode = math.MaxUint64 &^ sourceMask
)

// load makes the blocks of the source.
func (f *feed) load(ctx context.Context) error {
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
			close(f.loaded) // not after an error: what is missing is no end
			return nil
		}
		f.loaded <- block // has room for all
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
		f := &feed{s, make(chan []byte, blocksAhead), make(chan []byte, blocksAhead)}
		for range blocksAhead {
			f.free <- nil
		}
		cursors[i].feed = f
		g.Go(func() error { return f.load(ctx) })
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
	// A tree of losers (Knuth, The Art of Computer Programming 3, 5.4.1): node n > 0 is the cursor that lost there, node 0 has won. A
	// node is the code of its cursor's domain and the cursor's number in the lowest bits. The code is relative to the domain that won
	// there, which is the same for all that the next one of the winner meets on its way, and comes before it. So a comparison is one of two numbers, of
	// which the processor makes no branch; what has won next is the domain that won last if its code is 0; and domains are looked at
	// only where codes are equal and not 0.
	tree []uint64
}

// play tells which of two nodes comes first, and makes the code of the other relative to it.
func (m *merger) play(a, b uint64) (winner, loser uint64) {
	if (a^b)>>sourceBits == 0 && a>>sourceBits != 0 {
		return m.tie(a, b)
	}
	return min(a, b), max(a, b)
}

// tie is play for nodes with the same code. Of equal domains that of the earlier source comes first.
func (m *merger) tie(a, b uint64) (winner, loser uint64) {
	a, b = min(a, b), max(a, b)
	c, d := &m.cursors[a&sourceMask], &m.cursors[b&sourceMask]
	if c.ended {
		return a, b // so has the other
	}
	// As many bytes as the code says are the same. What is compared past the end of one is there, and does not count.
	p, q := c.block[c.at+postings.BlockHeader-1:], d.block[d.at+postings.BlockHeader-1:]
	x, y := int(p[0]), int(q[0]) // lengths
	p, q = p[1:], q[1:]
	n := min(x, y)
	same := postings.ColumnBytes * (postings.FirstColumn - int(a>>58))
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
			return a, postings.OffsetCodeFast(q, y, same) | b&sourceMask
		}
		return b, postings.OffsetCodeFast(p, x, same) | a&sourceMask
	}
	switch {
	case x == y:
		return a, b & sourceMask
	case x < y:
		return a, postings.OffsetCodeFast(q, y, n) | b&sourceMask
	}
	return b, postings.OffsetCodeFast(p, x, n) | a&sourceMask
}

// begin plays all matches at and below node n, whose sources have begun, and returns the winner.
func (m *merger) begin(n int) uint64 {
	if k := len(m.cursors); n >= k {
		return m.cursors[n-k].code() | uint64(n-k)
	}
	winner, loser := m.play(m.begin(2*n), m.begin(2*n+1))
	m.tree[n] = loser
	return winner
}

// run merges all and calls each with every window.
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
	var w windowMerge
	w.datasets = m.datasets
	for {
		top := tree[0]
		i := int(top & sourceMask)
		c := &m.cursors[i]
		if top>>sourceBits != 0 { // not the domain that the window ends with
			if top >= endCode {
				break
			}
			if w.window != nil {
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
			w.addDomain(c)
		}
		if err := w.addRecords(c.records()); err != nil {
			return err
		}
		if err := c.next(ctx); err != nil {
			return err
		}
		top = c.code() | uint64(i)
		for n := uint(i+k) / 2; n > 0; n /= 2 {
			// play, which is too large to be inlined: it is done ten times for each record.
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

// windowMerge collects the records of one domain after another.
type windowMerge struct {
	*window
	datasets []uint32 // of the files
	set      int      // where the domain's datasets start
	start    int      // where its last record starts
	a, b     postings.Record
}

// begin begins a window.
func (m *windowMerge) begin() {
	w := windows.Get().(*window)
	w.text, w.ends, w.vals, w.valEnds = w.text[:0], w.ends[:0], w.vals[:0], w.valEnds[:0]
	w.keys, w.sets, w.setEnds = w.keys[:0], w.sets[:0], w.setEnds[:0]
	m.window, m.set = w, 0
}

// addDomain begins the domain of a cursor.
func (m *windowMerge) addDomain(c *cursor) {
	w := m.window
	start, at := c.at+postings.BlockHeader, len(w.text)
	n := int(c.block[start-1])
	w.text = slices.Grow(w.text, segment.MaxDomain+1+postings.BlockSlack)
	text := w.text[at : at+segment.MaxDomain+1+postings.BlockSlack]
	from := (*[postings.BlockSlack]byte)(c.block[start:])
	*(*[16]byte)(text) = *(*[16]byte)(from[:]) // most of them, in two goes
	*(*[16]byte)(text[16:]) = *(*[16]byte)(from[16:])
	if n > postings.BlockSlack {
		copy(text, c.block[start:start+n])
	}
	text[n] = '\n'
	w.text = w.text[:at+n+1]
	w.ends = append(w.ends, uint32(len(w.text)))
}

// addRecords takes records of the domain that the window's text ends with.
func (m *windowMerge) addRecords(records []byte) error {
	if len(records) == postings.RecordHeader {
		return m.addRecord(records)
	}
	for len(records) > 0 {
		n := postings.RecordLength(records)
		if err := m.addRecord(records[:n]); err != nil {
			return err
		}
		records = records[n:]
	}
	return nil
}

func (m *windowMerge) addRecord(packed []byte) error {
	w := m.window
	if len(w.vals) > math.MaxUint32-len(packed) {
		return fmt.Errorf("domains up to %q have records of 4 GiB", w.domain(len(w.ends)-1))
	}
	dataset := m.datasets[postings.RecordFile(packed)]
	if len(w.sets) == m.set || w.sets[len(w.sets)-1] != dataset {
		m.start = len(w.vals)
		w.sets = append(w.sets, dataset)
		if len(packed) == postings.RecordHeader {
			w.vals = slices.Grow(w.vals, postings.RecordHeader)[:m.start+postings.RecordHeader]
			*(*[postings.RecordHeader]byte)(w.vals[m.start:]) = *(*[postings.RecordHeader]byte)(packed)
			return nil
		}
		w.vals = append(w.vals, packed...)
		return nil
	}
	// Parts of one partition, or batches of one dataset, share the domain.
	if err := m.a.Read(w.vals[m.start:]); err != nil {
		return err
	}
	if err := m.b.Read(packed); err != nil {
		return err
	}
	m.a.Totals.Add(m.b.Totals)
	m.a.Tuples = append(m.a.Tuples, m.b.Tuples...)
	if !slices.IsSortedFunc(m.a.Tuples, segment.CompareTuples) {
		slices.SortFunc(m.a.Tuples, segment.CompareTuples)
	}
	w.vals = m.a.Append(w.vals[:m.start])
	return nil
}

// endDomain ends the domain that the window's text ends with.
func (m *windowMerge) endDomain() {
	w := m.window
	w.valEnds = append(w.valEnds, uint32(len(w.vals)))
	w.setEnds = append(w.setEnds, uint32(len(w.sets)))
	m.set = len(w.sets)
}

// sourcesAtOnce is how many sources are merged at once by this process: each has a file open, or a connection to the store, and half of those that it may have are for others.
func sourcesAtOnce() int { return max(2, min(mergeWidth, openFiles()/2)) }

// narrow merges neighbours among sources, of which the numbers of domains are known, into lists in the spool until at most width
// are left: as few domains as that takes, if it takes one list, else all. The spool's space is given back when it is closed, not before.
func narrow(ctx context.Context, sources []domainSource, domains []int64, datasets []uint32, sp *keysort.Spool, width int) ([]domainSource, error) {
	for len(sources) > width {
		n, first, end := width, 0, len(sources)
		if over := len(sources) - width + 1; over <= width {
			n = over
			first = lightest(domains, n)
			end = first + n
		}
		merged, counts := slices.Clone(sources[:first]), slices.Clone(domains[:first])
		for from := first; from < end; from += n {
			out := &spooled{spool: sp}
			count := int64(0)
			var list postings.BlockWriter
			err := mergeWindows(ctx, sources[from:min(from+n, end)], datasets, nil, spooledBytes, func(w *window) error {
				count += int64(w.len())
				return out.write(&list, &w.slab)
			})
			if err != nil {
				return nil, err
			}
			merged, counts = append(merged, out), append(counts, count)
		}
		sources, domains = append(merged, sources[end:]...), append(counts, domains[end:]...)
	}
	return sources, nil
}

// lightest is where the n neighbours start that have the smallest sum.
func lightest(weights []int64, n int) int {
	best, sum := 0, int64(0)
	least := int64(math.MaxInt64)
	for i, w := range weights {
		sum += w
		if i < n-1 {
			continue
		}
		if sum < least {
			best, least = i-n+1, sum
		}
		sum -= weights[i-n+1]
	}
	return best
}
