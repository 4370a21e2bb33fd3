package lookup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/spans"
	"github.com/urlake/urlake/serve/turns"
)

// URLsQuery selects a list of the URLs of a domain in a dataset, and a page of it.
type URLsQuery struct {
	Target  Target
	Dataset uint32
	// Selection says which rows of the domain the list has.
	Selection Selection
	// Unique lists distinct URLs in place of rows, by host, path and query, scheme and port.
	Unique bool
	// Columns are read for each row, besides the URL and the time. Distinct URLs have none.
	Columns Columns
	// Offset is the number of rows of the list before the page. It must be 0 with a Cursor, and if
	// the rows of the selection are not counted.
	Offset int64
	// Limit is 1 to MaxLimit.
	Limit int
	// Cursor is the one of the page before, or empty.
	Cursor string
}

// name is what a cursor belongs to, besides the dataset.
func (q *URLsQuery) name(domain string) string {
	if q.Selection.All() && !q.Unique {
		return domain
	}
	return fmt.Sprintf("%s\x00%s\x00%v", domain, q.Selection.text(), q.Unique)
}

// URLsPage is one page of a list of URLs.
type URLsPage struct {
	Answer
	DatasetID uint32
	// Host is the target's, if that is below its domain and the selection names none. The list is
	// that of the domain.
	Host string
	// Total is the number of rows in the list, or of distinct URLs, Offset the number of rows
	// before this page. They are 0 if they are not known without reading all rows. NotCounted says
	// why: "from_to", "filter", "prefix", "row_groups" or "unique". It is empty if they are known.
	// Distinct URLs are counted if all are on the first page.
	Total, Offset int64
	NotCounted    string
	Rows
	// StoppedBy names the cap that ended the page before its limit: "row_groups", "pages", "filter"
	// or "deadline", or is empty. The page is complete up to Cursor; if the rows are not counted it
	// may be empty.
	StoppedBy string
}

// ErrNotCounted means that a query has an offset, but the rows of its selection are not counted, so
// that no row is known to be at it.
var ErrNotCounted = errors.New("no offset in a list whose rows are not counted")

// URLs returns a page of the URLs of the target's domain in a dataset. The list is ordered by
// segment and part, and within a part by row, unless it has distinct URLs.
func (s *Snapshot) URLs(ctx context.Context, q URLsQuery) (*URLsPage, error) {
	// Rows that are late at the deadline are left for the next page. Without the index there is no
	// page.
	early, cancel := context.WithTimeoutCause(ctx, s.server.opt.Deadline, ErrDeadline)
	defer cancel()
	l, err := s.list(early, q)
	if err != nil {
		return nil, deadline(early, err)
	}
	page, err := l.next(early, q.Limit)
	if err != nil {
		return nil, deadline(early, err)
	}
	if page.Total > 0 {
		s.server.ahead.names.Note(ListName(l.r.domain, q.Dataset))
	}
	if q.Cursor != "" {
		// Whoever follows a cursor likely follows the next one.
		l.readAhead(ctx, s.server.ahead.ctx, q.Limit)
	}
	return page, nil
}

// List is a list of URLs that is read page by page. All pages hold what the takedowns left when the
// list was opened. It is not safe for concurrent use, and must not be used after the snapshot's
// Release.
type List struct {
	s *Snapshot
	v *view
	r resolved
	q URLsQuery
	// asked is Host of the pages.
	asked string
	// cursor is where the next page starts, unless the walk knows it, nil for the beginning. That
	// of a list of distinct URLs is at a row of the last one of the page before.
	cursor *position
	// walk has the rows that the selection may have. If they are counted it has those alone;
	// otherwise notCounted says why not.
	walk
	counted    bool
	notCounted string
	// chains have the rows of a list of distinct URLs. Resume tells that they have to move to
	// behind the URL at the cursor.
	chains []*chain
	resume bool
	// Begun tells that the next page is not the first one of the list.
	begun, done bool
	workBefore  int64 // that of the filters before the page
}

// List opens a list of URLs. Limit does not matter.
func (s *Snapshot) List(ctx context.Context, q URLsQuery) (*List, error) {
	early, cancel := context.WithTimeoutCause(ctx, s.server.opt.Deadline, ErrDeadline)
	defer cancel()
	q.Limit = 1
	l, err := s.list(early, q)
	return l, deadline(early, err)
}

// Next returns the next page, of at most limit rows, 1 to MaxLimit. The page after the last one is
// nil. A page that a cap ended may be empty; the next one goes on from there.
func (l *List) Next(ctx context.Context, limit int) (*URLsPage, error) {
	if l.done {
		return nil, nil
	}
	early, cancel := context.WithTimeoutCause(ctx, l.s.server.opt.Deadline, ErrDeadline)
	defer cancel()
	page, err := l.next(early, limit)
	if err == nil {
		l.readAhead(ctx, ctx, limit)
	}
	return page, deadline(early, err)
}

func (s *Snapshot) list(ctx context.Context, q URLsQuery) (_ *List, err error) {
	ctx, step := spans.Start(ctx, "select")
	defer func() { step.End(err) }()
	if q.Limit < 1 || q.Limit > MaxLimit || q.Offset < 0 || (q.Offset > 0 && q.Cursor != "") {
		return nil, ErrRange
	}
	if _, ok := s.Dataset(q.Dataset); !ok {
		return nil, fmt.Errorf("%w: %d", ErrUnknownDataset, q.Dataset)
	}
	v, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	r, err := s.resolve(ctx, v, q.Target)
	if err != nil {
		return nil, err
	}
	asked := ""
	if q.Selection.Host == "" && q.Target.Host != r.domain {
		asked = q.Target.Host
	}
	if h := q.Selection.Host; h != "" && !ofDomain(h, r.domain) {
		return nil, &SelectionError{"host", fmt.Sprintf("is %s, which is not of the domain %s", h, r.domain)}
	}
	if q.Columns |= q.Selection.columns(); q.Unique {
		q.Columns = q.Selection.columns()
	}
	l := &List{s: s, v: v, r: r, q: q, asked: asked, begun: q.Cursor != ""}
	if q.Cursor != "" {
		c, err := s.parseCursor(q.Cursor, cursorURLs, q.name(r.domain), q.Dataset)
		if err != nil {
			return nil, err
		}
		l.cursor = &c.at
	}
	if q.Selection.All() && !q.Unique {
		return l, nil
	}
	return l, l.open(ctx)
}

func (l *List) next(ctx context.Context, limit int) (page *URLsPage, err error) {
	ctx, step := spans.Start(ctx, "read rows")
	defer func() { step.End(err) }()
	if limit < 1 || limit > MaxLimit {
		return nil, ErrRange
	}
	l.q.Limit, l.workBefore = limit, l.q.Selection.Filters.Work()
	page = &URLsPage{Answer: l.s.answer(l.v, l.r), DatasetID: l.q.Dataset, Host: l.asked, NotCounted: l.notCounted}
	var end *position
	switch {
	case l.q.Unique:
		end, err = l.merge(ctx, page)
	case l.q.Selection.All():
		end, err = l.all(ctx, page)
	case l.counted:
		end, err = l.slice(ctx, page)
	default:
		end, err = l.scan(ctx, page)
	}
	if err != nil {
		return nil, err
	}
	if l.q.Unique && !l.begun && end == nil { // the page is the whole list
		page.Total, page.NotCounted = int64(page.Len()), ""
	}
	l.begun = true
	if l.done = end == nil; !l.done {
		c := cursor{
			kind: cursorURLs, fingerprint: fingerprint(cursorURLs, l.q.name(l.r.domain), l.q.Dataset),
			version: l.s.version.ID, at: *end,
		}
		page.Cursor = c.String()
	}
	return page, nil
}

// all makes a page of the list of all rows of the domain. It returns where the next page starts, or
// nil.
func (l *List) all(ctx context.Context, page *URLsPage) (*position, error) {
	page.Offset = l.q.Offset
	pl, err := l.s.plan(ctx, l.v, l.r.key, l.q, l.cursor)
	if err != nil {
		return nil, err
	}
	page.Total, page.Offset, page.StoppedBy = pl.total, pl.offset, pl.stopped
	if len(pl.pieces) == 0 {
		return nil, nil
	}
	return l.read(ctx, page, pl.pieces)
}

// read reads the rows of pieces, which are the next ones of a list whose rows are counted.
func (l *List) read(ctx context.Context, page *URLsPage, pieces []piece) (*position, error) {
	end, stopped, err := l.s.read(ctx, l.r.domain, pieces, l.q.Columns, &page.Rows)
	if err != nil {
		return nil, err
	}
	if stopped != "" {
		page.StoppedBy = stopped
	}
	if page.Offset+int64(page.Len()) >= page.Total {
		return nil, nil
	}
	l.cursor, l.q.Offset = &end, 0
	return &end, nil
}

// open finds the rows that the selection may have, and where its first page starts.
func (l *List) open(ctx context.Context) error {
	s, q := l.s, &l.q
	of, err := s.planned(ctx, l.v, l.r.key, q.Dataset)
	if err != nil {
		return err
	}
	may := make([]bool, len(of))
	for i := range of {
		t := &of[i].entry.Totals
		if of[i].overlaid {
			t = &of[i].left.Totals
		}
		may[i] = of[i].has && of[i].rows > 0 && q.Selection.overlaps(t)
	}
	err = s.each(ctx, func(i int) bool { return may[i] }, func(ctx context.Context, i int) error {
		return of[i].load(ctx, s.segments[i])
	})
	if err != nil {
		return err
	}
	for i := range of {
		if may[i] {
			l.pieces = appendPieces(l.pieces, i, q.Dataset, of[i].tuples)
		}
	}
	if l.cursor != nil {
		if err := l.checkCursor(ctx, of); err != nil {
			return err
		}
	}
	switch {
	case q.Unique:
		l.notCounted = "unique"
		if q.Offset > 0 {
			return ErrNotCounted
		}
		l.resume = l.cursor != nil
		return l.openChains()
	case q.Selection.timed():
		l.notCounted = "from_to"
	case q.Selection.Filters.Len() > 0:
		l.notCounted = "filter"
	case q.Selection.Host == "":
		l.notCounted = "prefix"
	case len(l.pieces) > MaxCounted:
		l.notCounted = "row_groups"
	default:
		l.counted = true
		return l.narrow(ctx)
	}
	if q.Offset > 0 {
		return ErrNotCounted
	}
	if l.cursor != nil {
		l.at, _ = slices.BinarySearchFunc(l.pieces, l.cursor, func(pc piece, at *position) int { return pc.compare(at) })
		if l.at < len(l.pieces) && l.pieces[l.at].compare(l.cursor) == 0 {
			l.row = int64(l.cursor.row)
		}
	}
	return nil
}

// checkCursor returns ErrBadCursor unless the cursor is at a row of the domain or directly after
// one. The row may be hidden since the cursor was made.
func (l *List) checkCursor(ctx context.Context, of []planned) error {
	at := l.cursor
	if at.segment >= uint64(len(of)) || !of[at.segment].has {
		return fmt.Errorf("%w: it starts in a segment without the domain", ErrBadCursor)
	}
	whole, err := l.s.segments[at.segment].Tuples(ctx, of[at.segment].entry)
	if err != nil {
		return err
	}
	_, err = at.rowsBefore(whole)
	if err == nil && l.q.Unique && !slices.ContainsFunc(whole, func(t segment.Tuple) bool {
		return uint64(t.FileID) == at.file && uint64(t.RowGroup) == at.rowGroup && at.row-uint64(t.FirstRow) < uint64(t.Rows)
	}) {
		err = fmt.Errorf("%w: it is at no row of the list", ErrBadCursor)
	}
	return err
}

// appendPieces appends the rows of tuples of a segment, which ascend.
func appendPieces(pieces []piece, seg int, dataset uint32, tuples []segment.Tuple) []piece {
	for _, t := range tuples {
		sp := span{t.FirstRow, t.Rows}
		if k := len(pieces); k > 0 && pieces[k-1].segment == seg && segment.CompareTuples(pieces[k-1].tuple, t) == 0 {
			last := &pieces[k-1]
			last.spans = append(last.spans, sp)
			last.tuple.Rows = sp.first + sp.rows - last.tuple.FirstRow
			continue
		}
		pieces = append(pieces, piece{seg, dataset, t, []span{sp}})
	}
	return pieces
}

// narrow reduces the pieces to the rows of a selection of one host. By the keys of pages it knows
// which ones it needs, and those that the next page of the list needs, and reads all at once.
func (l *List) narrow(ctx context.Context) error {
	indexes, err := l.s.indexes(ctx, l.pieces)
	if err != nil {
		return err
	}
	lower, upper := l.q.Selection.bounds()
	expected := l.expected(indexes, lower, upper)
	group, groupCtx := newGroup(ctx)
	group.SetLimit(searchesAtOnce)
	for i := range l.pieces {
		group.Go(func() error {
			pc := &l.pieces[i]
			pg := newPager(l.s, l.q.Columns)
			pg.use(pc, indexes[i])
			if err := pg.fetch(groupCtx, pc, lower, upper, expected[i][0], expected[i][1]); err != nil {
				return err
			}
			lo, err := pg.search(groupCtx, pc, pc.tuple.FirstRow, pc.end(), lower)
			if err != nil {
				return err
			}
			hi, err := pg.search(groupCtx, pc, lo, pc.end(), upper)
			pc.clip(lo, hi)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	l.pieces = slices.DeleteFunc(l.pieces, func(pc piece) bool { return len(pc.spans) == 0 })
	return nil
}

// slice makes a page of a selection whose rows are counted.
func (l *List) slice(ctx context.Context, page *URLsPage) (*position, error) {
	for i := range l.pieces {
		page.Total += l.pieces[i].rows()
	}
	skip := min(l.q.Offset, page.Total)
	if l.cursor != nil {
		for i := range l.pieces {
			pc := &l.pieces[i]
			switch c := pc.compare(l.cursor); {
			case c < 0:
				skip += pc.rows()
			case c == 0:
				skip += pc.count(pc.tuple.FirstRow, int64(l.cursor.row))
			}
		}
	}
	page.Offset = skip
	var pieces []piece
	left := int64(l.q.Limit)
	for i := range l.pieces {
		pc := l.pieces[i]
		rows := pc.rows()
		if skip >= rows {
			skip -= rows
			continue
		}
		if left == 0 {
			break
		}
		if len(pieces) == MaxRowGroups {
			page.StoppedBy = "row_groups"
			break
		}
		pc.spans = slices.Clone(pc.spans)
		pc.take(skip, left)
		skip = 0
		left -= pc.rows()
		pieces = append(pieces, pc)
	}
	if len(pieces) == 0 {
		return nil, nil
	}
	return l.read(ctx, page, pieces)
}

// filtered reports whether the filters have taken so many steps that the page ends.
func (l *List) filtered() bool { return l.q.Selection.Filters.Work() >= l.workBefore+maxFilterWork }

// scan makes a page by reading the rows one after the other, except those of other hosts and paths.
func (l *List) scan(ctx context.Context, page *URLsPage) (*position, error) {
	pg := newPager(l.s, l.q.Columns)
	sel := &l.q.Selection
	groups, moved := 0, false
	ahead := 1
	start := l.at
	var indexes []*pieceIndex
	indexes, pg.fetched = l.ahead(ctx)
	own := turns.Own(ctx)
	for l.settle() && page.Len() < l.q.Limit {
		if l.filtered() {
			page.StoppedBy = "filter"
			break
		}
		pc := &l.pieces[l.at]
		if !pg.is(pc) {
			if groups == MaxRowGroups {
				page.StoppedBy = "row_groups"
				break
			}
			groups++
			ahead = 1
			if i := l.at - start; i < len(indexes) && indexes[i] != nil {
				pg.use(pc, indexes[i])
			}
		}
		next, err := pg.next(ctx, pc, sel, l.row)
		if err == nil && next > l.row {
			l.row, moved = next, true
			continue
		}
		left := l.q.Columns.maxPages() - int(pg.read)
		if err == nil && left <= 0 && !pg.has(pc, l.row) {
			page.StoppedBy = "pages"
			break
		}
		var p *rowPage
		var first int64
		if err == nil {
			p, first, err = pg.at(ctx, pc, l.row, min(ahead, max(1, left)))
		}
		if err == nil {
			ahead = min(2*ahead, readAhead)
			end := min(first+int64(p.rows()), pc.end())
			row := l.row
			l.row, err = l.take(ctx, page, p, pc, first, row, end, pg.window.part)
			own.Give()
			if err == nil && l.row == end && end < pc.end() && sel.place(p, int(end-1-first)) != 0 {
				l.row, err = pg.skip(ctx, pc, sel, p, first, end-1)
				ahead = 1
				if err != nil { // the rows up to here are the page
					l.row = end
				}
			}
			moved = moved || l.row > row
		}
		if err != nil {
			if moved && errors.Is(deadline(ctx, err), ErrDeadline) {
				page.StoppedBy = "deadline"
				break
			}
			return nil, err
		}
	}
	if !l.settle() {
		return nil, nil
	}
	return l.pieces[l.at].position(l.row), nil
}

// take appends the selected ones of rows [row, end) of pc, which are on page p, whose first row is
// first. It returns the row behind the last one that it looked at, also with an error.
func (l *List) take(
	ctx context.Context, page *URLsPage, p *rowPage, pc *piece, first, row, end int64, part string,
) (_ int64, err error) {
	left := l.q.Limit - page.Len()
	for row < end && left > 0 && err == nil && !l.filtered() {
		from, ok := pc.next(row)
		if !ok || from >= end {
			return end, nil
		}
		has := true
		for row = from; left > 0 && row < end && pc.shows(row) && !l.filtered(); left-- {
			if has, err = l.q.Selection.has(ctx, p, int(row-first)); !has {
				break
			}
			row++
		}
		if row > from {
			if err := page.add(p, int(from-first), int(row-first), l.r.domain, part); err != nil {
				return row, err
			}
		}
		if !has && err == nil {
			row++
		}
	}
	return row, err
}
