package lookup

import (
	"context"
	"errors"
	"slices"
	"sort"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/part"
)

// pieceIndex says where the pages of a piece are.
type pieceIndex struct {
	*Index
	part string
}

// index looks up the pages of a piece, and their keys. Its reads are concurrent.
func (s *Snapshot) index(ctx context.Context, pc *piece) (*pieceIndex, error) {
	seg, t := s.segments[pc.segment], pc.tuple
	var f segment.FileInfo
	var blocks []*part.PageIndexBlock
	var keys []*part.PageKeyBlock
	group, groupCtx := newGroup(ctx)
	group.Go(func() (err error) {
		blocks, err = seg.PageBlocks(groupCtx, t.FileID, t.RowGroup, t.FirstRow, t.Rows)
		return err
	})
	if t.Rows > 1 {
		group.Go(func() (err error) {
			keys, err = seg.PageKeys(groupCtx, t.FileID, t.RowGroup, t.FirstRow, t.Rows)
			return err
		})
	}
	if seg.Files() == nil {
		group.Go(func() (err error) {
			f, err = s.file(groupCtx, pc)
			return err
		})
	} else {
		var err error
		if f, err = s.file(ctx, pc); err != nil {
			return nil, errors.Join(err, group.Wait())
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return &pieceIndex{newPageSearch(blocks, keys, t.FirstRow, pc.end()), f.Path}, nil
}

// pager reads pages of row groups and keeps those that it read last. It is for one goroutine.
type pager struct {
	s    *Snapshot
	wide Columns
	read int64 // counts the pages
	// of are the row group of index and of the pages that are kept.
	of     segment.Tuple
	seg    int
	index  *pieceIndex
	window run
	// fetched are pages that were read before they are needed.
	fetched []run
}

func newPager(s *Snapshot, wide Columns) *pager { return &pager{s: s, wide: wide} }

// is reports whether the index is that of the row group of pc.
func (g *pager) is(pc *piece) bool {
	return g.index != nil && g.seg == pc.segment && segment.CompareTuples(g.of, pc.tuple) == 0
}

// use makes x the index of pc.
func (g *pager) use(pc *piece, x *pieceIndex) {
	g.of, g.seg, g.index, g.window = pc.tuple, pc.segment, x, run{}
}

// open gets the index of pc, unless it has it.
func (g *pager) open(ctx context.Context, pc *piece) error {
	if g.is(pc) && g.index.Covers(pc.tuple.FirstRow, pc.end()) {
		return nil
	}
	x, err := g.s.index(ctx, pc)
	if err == nil {
		g.use(pc, x)
	}
	return err
}

// has reports whether the page of a row is kept.
func (g *pager) has(pc *piece, row int64) bool {
	return g.window.block != nil && g.is(pc) && row >= g.window.starts[0] && row < g.window.starts[len(g.window.pages)]
}

// at returns the page of a row of pc, and the page's first row. If it is not kept, up to ahead
// pages are read from it on.
func (g *pager) at(ctx context.Context, pc *piece, row int64, ahead int) (*rowPage, int64, error) {
	if !g.has(pc, row) {
		if err := g.open(ctx, pc); err != nil {
			return nil, 0, err
		}
		r, ok := g.fetchedRun(row)
		if !ok {
			r = g.index.run(row, pc.end(), ahead, g.wide)
			if err := g.s.load(ctx, &r); err != nil {
				return nil, 0, err
			}
		}
		g.read += int64(len(r.pages))
		g.window = r
	}
	i := 0
	for g.window.starts[i+1] <= row {
		i++
	}
	return g.window.pages[i], g.window.starts[i], nil
}

// fetchedRun returns fetched pages with a row of the index, if there are any.
func (g *pager) fetchedRun(row int64) (run, bool) {
	b := g.index.Block(row)
	for _, r := range g.fetched {
		if r.block == b && r.part == g.index.part && row >= r.starts[0] && row < r.starts[len(r.pages)] && !slices.Contains(r.pages, nil) {
			return r, true
		}
	}
	return run{}, false
}

// run is the page of a row, and the pages behind it in its block that begin before row end, at most
// n in all.
func (x *pieceIndex) run(row, end int64, n int, wide Columns) run {
	b := x.Block(row)
	first, next := b.Page(row)
	r := run{part: x.part, block: b, wide: wide, starts: []int64{first, next}}
	for len(r.starts) <= n && next < min(end, b.FirstRow+b.Rows()) {
		_, next = b.Page(next)
		r.starts = append(r.starts, next)
	}
	r.pages = make([]*rowPage, len(r.starts)-1)
	return r
}

// search returns the first one of the rows [lo, hi) of pc that is not before the bound, hi if there
// is none. The rows have the order of a part, hidden ones included. By the keys of pages, what is
// left is one page. Without keys the page of lo is tried first, then halves of what is left.
func (g *pager) search(ctx context.Context, pc *piece, lo, hi int64, to bound) (int64, error) {
	if lo >= hi {
		return lo, nil
	}
	if err := g.open(ctx, pc); err != nil {
		return 0, err
	}
	if to.key != nil {
		lo, hi = g.index.Narrow(lo, hi, to.key)
	}
	for mid := lo; lo < hi; mid = lo + (hi-lo)/2 {
		p, first, err := g.at(ctx, pc, mid, 1)
		if err != nil {
			return 0, err
		}
		a, b := max(first, lo), min(first+int64(p.rows()), hi)
		switch {
		case !to.row(p, int(a-first)):
			hi = a
		case to.row(p, int(b-1-first)):
			lo = b
		default:
			from := int(a - first)
			return a + int64(sort.Search(int(b-a), func(i int) bool { return !to.row(p, from+i) })), nil
		}
	}
	return lo, nil
}

// next returns the first row of pc from row on whose page may have rows of the selection, by host
// and path, as far as keys tell. It is the end of pc if there is none.
func (g *pager) next(ctx context.Context, pc *piece, sel *Selection, row int64) (int64, error) {
	if sel.keys().All() || g.has(pc, row) {
		return row, nil
	}
	if err := g.open(ctx, pc); err != nil {
		return 0, err
	}
	next, _ := g.index.Next(row, sel.keys())
	return min(next, pc.end()), nil
}

// skip returns the first row behind row that the selection may have by host and path. The selection
// does not have row, which is on page p, whose first row is first.
func (g *pager) skip(ctx context.Context, pc *piece, sel *Selection, p *rowPage, first, row int64) (int64, error) {
	i := int(row - first)
	c := sel.place(p, i)
	lower, _ := sel.bounds()
	host := p.host(i)
	switch {
	case sel.Host != "" && c > 0:
		return pc.end(), nil
	case sel.Host != "":
	case c > 0: // the next host
		lower = bound{
			func(p *rowPage, i int) bool { return p.host(i) <= host },
			func(k *part.PageKey) bool { return k.Host <= host },
		}
	default:
		within := selection{Host: host, Prefix: sel.Prefix}
		lower = bound{
			func(p *rowPage, i int) bool { return compare(within, p.host(i), p.path(i)) < 0 },
			func(k *part.PageKey) bool { return compare(within, k.Host, k.Path) < 0 },
		}
	}
	return g.search(ctx, pc, row+1, pc.end(), lower)
}

// fetch reads the pages with the ends of the rows between two bounds, and those with the rows
// [from, until), all at once. So searches for the ends take one round of reads, not one for each
// page. It does nothing if keys do not tell the pages.
func (g *pager) fetch(ctx context.Context, pc *piece, lower, upper bound, from, until int64) error {
	if err := g.open(ctx, pc); err != nil {
		return err
	}
	a, next := g.index.Narrow(pc.tuple.FirstRow, pc.end(), lower.key)
	b, last := g.index.Narrow(a, pc.end(), upper.key)
	if _, end := g.index.Page(a); next > end {
		return nil
	}
	if _, end := g.index.Page(b); last > end {
		return nil
	}
	rows := [][2]int64{{a, a + 1}, {b, b + 1}, {max(from, pc.tuple.FirstRow), min(until, pc.end())}}
	if next <= b { // the first row may be that of the next page
		rows = append(rows, [2]int64{next, min(next+1, pc.end())})
	}
	runs := g.index.runs(rows, g.wide)
	if len(runs) == 1 && len(runs[0].pages) == 1 {
		return nil // the search reads it
	}
	g.fetched = runs
	return g.s.loadAll(ctx, runs)
}

// runs are the pages with some ranges of rows [from, until), each page once, and up to readAhead in
// a run, so that the gate admits it.
func (x *pieceIndex) runs(rows [][2]int64, wide Columns) (runs []run) {
	var starts []int64
	for _, r := range rows {
		for row := r[0]; row < r[1]; {
			var first int64
			first, row = x.Page(row)
			starts = append(starts, first)
		}
	}
	slices.Sort(starts)
	for _, first := range slices.Compact(starts) {
		b := x.Block(first)
		_, end := b.Page(first)
		if k := len(runs) - 1; k >= 0 && runs[k].block == b && runs[k].starts[len(runs[k].starts)-1] == first &&
			len(runs[k].starts) <= readAhead {
			runs[k].starts = append(runs[k].starts, end)
		} else {
			runs = append(runs, run{part: x.part, block: b, wide: wide, starts: []int64{first, end}})
		}
	}
	return finished(runs)
}

// indexes are the indexes of pieces, looked up at once.
func (s *Snapshot) indexes(ctx context.Context, pieces []piece) ([]*pieceIndex, error) {
	all := make([]*pieceIndex, len(pieces))
	group, groupCtx := newGroup(ctx)
	group.SetLimit(searchesAtOnce)
	for i := range pieces {
		group.Go(func() (err error) {
			all[i], err = s.index(groupCtx, &pieces[i])
			return err
		})
	}
	return all, group.Wait()
}

// expected returns the rows of each piece that a page of the list may have, as far as keys tell
// before the ends of the selection are known, up to the most pages of an answer.
func (l *List) expected(indexes []*pieceIndex, lower, upper bound) [][2]int64 {
	rows := make([][2]int64, len(indexes))
	least, most := int64(0), int64(0) // rows of the list before the piece
	total := int64(0)
	for i := range l.pieces {
		total += l.pieces[i].tuple.Rows
	}
	skip := min(l.q.Offset, total)
	end := skip + int64(l.q.Limit)
	left := l.q.Columns.maxPages()
	for i, x := range indexes {
		pc := &l.pieces[i]
		if least >= end {
			break
		}
		from := pc.tuple.FirstRow
		if l.cursor != nil {
			switch c := pc.compare(l.cursor); {
			case c < 0:
				continue
			case c == 0:
				from = min(max(from, int64(l.cursor.row)), pc.end())
			}
		}
		a, b := x.Narrow(from, pc.end(), lower.key)
		c, d := x.Narrow(from, pc.end(), upper.key)
		// At row r of the piece are at least least+r-b rows of the list before, and at most
		// most+r-a.
		first, until := a+max(0, skip-most), min(d, b+end-least)
		rows[i] = [2]int64{first, first}
		for ; left > 0 && rows[i][1] < until; left-- {
			_, rows[i][1] = x.Page(rows[i][1])
		}
		least, most = least+max(0, c-b), most+d-a
	}
	return rows
}

// ahead reads the pages that a scan for the selection's host and prefix may need, all at once, up
// to those with as many rows as the page is to have. It also returns the indexes of the next
// pieces. What it does not get is left out, or nil: it is read, and fails, again when it is needed.
func (l *List) ahead(ctx context.Context) (indexes []*pieceIndex, runs []run) {
	sel := l.q.Selection.keys()
	if sel.All() {
		return nil, nil
	}
	pieces := l.pieces[l.at:min(l.at+MaxRowGroups, len(l.pieces))]
	indexes, err := l.s.indexes(ctx, pieces)
	if err != nil {
		return indexes, nil
	}
	pages, rows := 0, int64(0)
	for i, x := range indexes {
		row := pieces[i].tuple.FirstRow
		if i == 0 {
			row = max(row, l.row)
		}
		var list [][2]int64
		for end := pieces[i].end(); row < end && pages < l.q.Columns.maxPages() && rows < int64(l.q.Limit); pages++ {
			next, all := x.Next(row, sel)
			if next >= end {
				break
			}
			list = append(list, [2]int64{next, next + 1})
			if _, row = x.Page(next); all {
				rows += min(row, end) - next
			}
		}
		runs = append(runs, x.runs(list, l.q.Columns)...)
	}
	_ = l.s.loadAll(ctx, runs)
	return indexes, runs
}

// loadAll gets the pages of runs, all at once.
func (s *Snapshot) loadAll(ctx context.Context, runs []run) error {
	group, groupCtx := newGroup(ctx)
	for i := range runs {
		group.Go(func() error { return s.load(groupCtx, &runs[i]) })
	}
	return group.Wait()
}
