package lookup

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/serve/turns"
)

const (
	// MaxMerged is the maximum number of parts that a list of distinct URLs merges. A merge holds
	// pages of each.
	MaxMerged = 64
	// mergedPages is how many pages all merges together hold, about 64 MiB if all are full. Others
	// wait.
	mergedPages = 2 * MaxMerged
)

// TooManyPartsError means that distinct URLs would have to be merged from more than Max parts. That
// is MaxMerged, or less with filters, since pages with extras are larger.
type TooManyPartsError struct{ Parts, Max int }

func (e *TooManyPartsError) Error() string {
	return fmt.Sprintf("the rows of the domain are in %d parts, and distinct URLs are merged from %d at most", e.Parts, e.Max)
}

// walk goes through the rows of pieces. The next one is row of pieces[at], or the first one behind
// it that is not hidden.
type walk struct {
	pieces []piece
	at     int
	row    int64
}

// settle moves on to the next row that is not hidden. It reports whether there is one.
func (w *walk) settle() bool {
	for w.at < len(w.pieces) {
		if row, ok := w.pieces[w.at].next(w.row); ok {
			w.row = row
			return true
		}
		w.at, w.row = w.at+1, 0
	}
	return false
}

// chain is the rows of one part, which are sorted, and the page that has the next one.
type chain struct {
	walk
	pg    *pager
	ahead int      // pages to read at once
	p     *rowPage // nil behind the last row
	i     int
}

// openChains groups the pieces by their parts.
func (l *List) openChains() error {
	for i := range l.pieces {
		pc := &l.pieces[i]
		if k := len(l.chains); k > 0 {
			last := &l.chains[k-1].pieces
			if end := &(*last)[len(*last)-1]; end.segment == pc.segment && end.tuple.FileID == pc.tuple.FileID {
				*last = append(*last, *pc)
				continue
			}
		}
		l.chains = append(l.chains, &chain{walk: walk{pieces: []piece{*pc}}, pg: newPager(l.s, l.q.Columns)})
	}
	if most := MaxMerged / int(l.q.Columns.cost()); len(l.chains) > most {
		return &TooManyPartsError{len(l.chains), most}
	}
	return nil
}

// compareURLs orders rows by host, path and query, scheme and port, as parts do. It is 0 if they
// have the same URL.
func compareURLs(p *rowPage, i int, q *rowPage, j int) int {
	if c := cmp.Or(strings.Compare(p.host(i), q.host(j)), bytes.Compare(p.path(i), q.path(j))); c != 0 {
		return c
	}
	scheme, port := p.origin(i)
	otherScheme, otherPort := q.origin(j)
	return cmp.Or(strings.Compare(scheme, otherScheme), cmp.Compare(port, otherPort))
}

// merge makes a page of distinct URLs. What it returns is the position of a row of the last URL.
func (l *List) merge(ctx context.Context, page *URLsPage) (*position, error) {
	if len(l.chains) == 0 {
		return nil, nil
	}
	cost := int(l.q.Columns.cost())
	ahead := max(1, min(readAhead, MaxMerged/2/cost/len(l.chains)))
	held := int64(ahead * len(l.chains) * cost)
	if err := l.s.server.merged.Acquire(ctx, held); err != nil {
		return nil, err
	}
	defer l.s.server.merged.Release(held)
	defer func() {
		for _, c := range l.chains { // the client may take its time before it asks for more
			c.p, c.pg.window = nil, run{}
		}
	}()
	heap, err := l.start(ctx, ahead)
	if err != nil {
		return nil, err
	}
	moved := false
	before := l.pagesRead()
	for len(heap) > 0 && page.Len() < l.q.Limit {
		if moved && l.pagesRead()-before >= int64(l.q.Columns.maxPages()) {
			page.StoppedBy = "pages"
			break
		}
		if l.filtered() {
			page.StoppedBy = "filter"
			break
		}
		p, i, part := heap[0].p, heap[0].i, heap[0].pg.window.part
		at := heap[0].pieces[heap[0].at].position(heap[0].row)
		sum := urlTotals{}
		if heap, err = l.mergeURL(ctx, heap, ahead, &sum); err != nil {
			// Some parts may be past this URL. So the next page searches for the one before it.
			if moved && errors.Is(deadline(ctx, err), ErrDeadline) {
				page.StoppedBy = "deadline"
				l.resume = true
				return l.cursor, nil
			}
			return nil, err
		}
		if sum.rows > 0 {
			if err := page.addURL(p, i, &sum, l.r.domain, part); err != nil {
				return nil, err
			}
		}
		l.cursor, moved = at, true
	}
	if len(heap) == 0 {
		return nil, nil
	}
	return l.cursor, nil
}

// pagesRead counts the pages that were read for the list.
func (l *List) pagesRead() (n int64) {
	for _, c := range l.chains {
		n += c.pg.read
	}
	return n
}

// start moves all chains to the first row of their next URL, and returns those that have one as a
// heap.
func (l *List) start(ctx context.Context, ahead int) ([]*chain, error) {
	var after *rowPage
	row := 0
	if l.resume {
		at := l.cursor
		pc := &piece{
			segment: int(at.segment), dataset: l.q.Dataset,
			tuple: segment.Tuple{FileID: uint32(at.file), RowGroup: uint32(at.rowGroup), FirstRow: int64(at.row), Rows: 1},
		}
		p, first, err := newPager(l.s, 0).at(ctx, pc, int64(at.row), 1)
		if err != nil {
			return nil, err
		}
		after, row = p, int(int64(at.row)-first)
	}
	group, groupCtx := newGroup(ctx)
	group.SetLimit(searchesAtOnce)
	for _, c := range l.chains {
		group.Go(func() error {
			if after != nil {
				if err := c.seek(groupCtx, after, row); err != nil {
					return err
				}
			}
			c.ahead = 0 // few of the pages that were read ahead may be needed for this page
			return c.load(groupCtx, &l.q.Selection, ahead)
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	l.resume = false
	var heap []*chain
	for _, c := range l.chains {
		if c.p != nil {
			heap = append(heap, c)
		}
	}
	for i := len(heap)/2 - 1; i >= 0; i-- {
		siftDown(heap, i)
	}
	return heap, nil
}

// seek moves to the first row behind the URL of row i of page p.
func (c *chain) seek(ctx context.Context, p *rowPage, i int) error {
	_, behind := boundsOf(p, i)
	for c.at, c.row = 0, 0; c.at < len(c.pieces); c.at++ {
		pc := &c.pieces[c.at]
		row, err := c.pg.search(ctx, pc, pc.tuple.FirstRow, pc.end(), behind)
		if err != nil {
			return err
		}
		if row < pc.end() {
			c.row = row
			break
		}
	}
	return nil
}

// load moves to the next row that has the host and the path of the selection, and gets its page. A
// chain that is read on reads more pages at once, up to ahead.
func (c *chain) load(ctx context.Context, sel *Selection, ahead int) error {
	for c.p = nil; c.settle(); {
		pc := &c.pieces[c.at]
		next, err := c.pg.next(ctx, pc, sel, c.row)
		if err != nil {
			return err
		}
		if next > c.row {
			c.row = next
			continue
		}
		if !c.pg.has(pc, c.row) {
			c.ahead = min(max(1, 2*c.ahead), ahead)
		}
		p, first, err := c.pg.at(ctx, pc, c.row, c.ahead)
		if err != nil {
			return err
		}
		if sel.Host == "" && sel.Prefix == "" || sel.place(p, int(c.row-first)) == 0 {
			c.p, c.i = p, int(c.row-first)
			return nil
		}
		if c.row, err = c.pg.skip(ctx, pc, sel, p, first, c.row); err != nil {
			return err
		}
	}
	return nil
}

// mergeURL moves the chains of the heap past the first URL that they have, and adds up its rows
// that the selection has.
func (l *List) mergeURL(ctx context.Context, heap []*chain, ahead int, sum *urlTotals) ([]*chain, error) {
	p, i := heap[0].p, heap[0].i
	for len(heap) > 0 && compareURLs(heap[0].p, heap[0].i, p, i) == 0 {
		c := heap[0]
		pc := &c.pieces[c.at]
		hi := c.row + 1
		// Most URLs have one row of a part.
		if next := c.i + 1; hi < pc.end() && (next == c.p.rows() || compareURLs(c.p, next, p, i) == 0) {
			var err error
			_, behind := boundsOf(p, i)
			if hi, err = c.pg.search(ctx, pc, hi, pc.end(), behind); err != nil {
				return nil, err
			}
		}
		if err := sum.add(ctx, c.pg, pc, &l.q.Selection, c.row, hi); err != nil {
			return nil, err
		}
		c.row = hi
		if err := c.load(ctx, &l.q.Selection, ahead); err != nil {
			return nil, err
		}
		switch {
		case c.p == nil:
			heap[0] = heap[len(heap)-1]
			heap = heap[:len(heap)-1]
		case compareURLs(c.p, c.i, p, i) < 0:
			return nil, codec.Corrupt(c.pg.window.part, "rows", -1, "URLs in the order of a part", "one before its predecessor")
		}
		siftDown(heap, 0)
	}
	return heap, nil
}

// siftDown restores the order of a heap below element i.
func siftDown(heap []*chain, i int) {
	for {
		least := i
		for k := 2*i + 1; k <= 2*i+2 && k < len(heap); k++ {
			if compareURLs(heap[k].p, heap[k].i, heap[least].p, heap[least].i) < 0 {
				least = k
			}
		}
		if least == i {
			return
		}
		heap[i], heap[least] = heap[least], heap[i]
		i = least
	}
}

// urlTotals sums up rows of one URL.
type urlTotals struct {
	rows        int64
	first, last int64 // times, if hasTS
	hasTS       bool
}

// add adds the rows [lo, hi) of pc as far as the selection has them; it has their host and path.
// All have the same URL, so they are sorted by time, and those without one come first.
func (t *urlTotals) add(ctx context.Context, g *pager, pc *piece, sel *Selection, lo, hi int64) error {
	if sel.Filters.Len() > 0 {
		return t.addEach(ctx, g, pc, sel, lo, hi)
	}
	from := func(least int64) bound {
		return bound{row: func(p *rowPage, i int) bool {
			ms, ok := p.time(i)
			return !ok || ms < least
		}}
	}
	timed, err := g.search(ctx, pc, lo, hi, bound{row: func(p *rowPage, i int) bool { _, ok := p.time(i); return !ok }})
	if err != nil {
		return err
	}
	if sel.timed() {
		lo = timed
	}
	if sel.From != nil {
		if lo, err = g.search(ctx, pc, lo, hi, from(*sel.From)); err != nil {
			return err
		}
	}
	if sel.To != nil {
		if hi, err = g.search(ctx, pc, lo, hi, from(*sel.To)); err != nil {
			return err
		}
	}
	t.rows += pc.count(lo, hi)
	first, last := max(lo, timed), hi
	if first, last = pc.ends(first, last); first > last {
		return nil
	}
	for _, row := range []int64{first, last} {
		p, at, err := g.at(ctx, pc, row, 1)
		if err != nil {
			return err
		}
		t.addTime(p.time(int(row - at)))
	}
	return nil
}

// addEach is add for a selection that has to look at each row.
func (t *urlTotals) addEach(ctx context.Context, g *pager, pc *piece, sel *Selection, lo, hi int64) error {
	own := turns.Own(ctx)
	for row, ok := pc.next(lo); ok && row < hi; row, ok = pc.next(row + 1) {
		p, first, err := g.at(ctx, pc, row, 1)
		if err != nil {
			return err
		}
		i := int(row - first)
		ok, err := sel.has(ctx, p, i)
		own.Give()
		if err != nil {
			return err
		}
		if ok {
			t.rows++
			t.addTime(p.time(i))
		}
	}
	return nil
}

func (t *urlTotals) addTime(ms int64, ok bool) {
	switch {
	case !ok:
	case !t.hasTS:
		t.first, t.last, t.hasTS = ms, ms, true
	default:
		t.first, t.last = min(t.first, ms), max(t.last, ms)
	}
}

// addURL appends the URL of row i of page p, and its totals.
func (r *Rows) addURL(p *rowPage, i int, t *urlTotals, domain, part string) error {
	if err := r.add(p, i, i+1, domain, part); err != nil {
		return err
	}
	n := len(r.ts) - 1
	r.ts[n], r.hasTS[n] = t.first, t.hasTS
	r.count, r.last = append(r.count, t.rows), append(r.last, t.last)
	return nil
}
