package lookup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/spans"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/turns"
)

// Rows are the URLs of one page and their times, and what else was asked for.
type Rows struct {
	text  []byte // all URLs, without separators
	ends  []int  // end of each URL in text
	ts    []int64
	hasTS []bool

	size    []int64 // if it was asked for
	hasSize []bool
	texts   texts

	count, last []int64 // of distinct URLs: rows, and last time, if hasTS
}

// Len is the number of rows.
func (r *Rows) Len() int { return len(r.ends) }

// Bytes is the memory that the rows take.
func (r *Rows) Bytes() int64 {
	n := cap(r.text) + 8*(cap(r.ends)+cap(r.ts)+cap(r.size)+cap(r.count)+cap(r.last)) + cap(r.hasTS) + cap(r.hasSize)
	for _, column := range r.texts {
		n += 16 * cap(column)
		for _, v := range column {
			n += len(v)
		}
	}
	return int64(n)
}

// texts are the values of columns of strings, nil for columns that were not asked for.
type texts [part.NumColumns][]string

// URL is the canonical URL of row i. The caller must not change it.
func (r *Rows) URL(i int) []byte {
	start := 0
	if i > 0 {
		start = r.ends[i-1]
	}
	return r.text[start:r.ends[i]:r.ends[i]]
}

// ID is the url_id of row i.
func (r *Rows) ID(i int) uint64 { return urlnorm.URLID(r.URL(i)) }

// TS is the time of row i in milliseconds since the epoch, if it has one.
func (r *Rows) TS(i int) (ms int64, ok bool) { return r.ts[i], r.hasTS[i] }

// Size is the size of row i, if it has one. The query asked for part.ColSize.
func (r *Rows) Size(i int) (size int64, ok bool) { return r.size[i], r.hasSize[i] }

// Text is the text of row i in a column that the query asked for, "" if it has none.
func (r *Rows) Text(col part.Column, i int) string { return r.texts[col][i] }

// Count is the number of rows of distinct URL i. TS is the first of their times, and last the last.
func (r *Rows) Count(i int) (rows, last int64) { return r.count[i], r.last[i] }

// Columns is a set of columns of a part that Rows have besides the URL and the time: of strings,
// and the size.
type Columns uint16

// With returns the set of the columns.
func With(cols ...part.Column) (c Columns) {
	for _, col := range cols {
		c |= 1 << col
	}
	return c
}

// has reports whether a column is in the set.
func (c Columns) has(col part.Column) bool { return c>>col&1 != 0 }

// list are the columns of a part to read.
func (c Columns) list() []part.Column {
	if c == 0 {
		return columns
	}
	list := slices.Clone(columns)
	for col := range part.Column(part.NumColumns) {
		if c.has(col) {
			list = append(list, col)
		}
	}
	return list
}

// cost is how many times the memory of a page without these columns one with them may take. Extras
// and raw URLs take up to part.PageColumnBytes each.
func (c Columns) cost() int64 {
	if c.has(part.ColExtras) || c.has(part.ColRawURL) {
		return 8
	}
	return 1
}

// maxPages is how many pages with these columns one page of an answer decodes.
func (c Columns) maxPages() int { return MaxPages / int(c.cost()) }

// columns are the columns of a URL and its time. They are read in four ranges, because scheme and
// port are adjacent.
var columns = []part.Column{part.ColScheme, part.ColPort, part.ColHost, part.ColTS, part.ColPathQuery}

// pageKey identifies one page of a part in the cache.
type pageKey struct {
	part     string
	rowGroup int
	firstRow int64
	wide     Columns
}

// rowPage holds the decoded columns of one page of a part, in the compact form that is cached:
// without a string header for each value, and with values that rows share stored once. Rows are
// sorted by host, so each host is a run of rows.
type rowPage struct {
	hosts    []string
	hostEnds []int32 // the row after each run
	schemes  []string
	scheme   []uint8 // index into schemes; nil if all rows have the same
	port     []int32 // nil if no row has one
	paths    []byte
	pathEnds []uint32
	ts       []int64 // nil if no row has one
	hasTS    []bool

	size    []int64 // if it was asked for
	hasSize []bool
	texts   texts
}

// newRowPage packs rows [lo, hi) of c, which has the wide columns, too. The name of the part is for
// errors.
func newRowPage(c *part.Columns, lo, hi int, wide Columns, name string) (*rowPage, error) {
	p := &rowPage{pathEnds: make([]uint32, 0, hi-lo)}
	size := 0
	for _, path := range c.PathQuery[lo:hi] {
		size += len(path)
	}
	p.paths = make([]byte, 0, size)
	for i := lo; i < hi; i++ {
		if i == lo || c.Host[i] != c.Host[i-1] {
			p.hosts = append(p.hosts, strings.Clone(c.Host[i]))
			p.hostEnds = append(p.hostEnds, 0)
		}
		p.hostEnds[len(p.hostEnds)-1] = int32(i - lo + 1)
		p.paths = append(p.paths, c.PathQuery[i]...)
		p.pathEnds = append(p.pathEnds, uint32(len(p.paths)))
		if !p.addScheme(c.Scheme[i], i-lo, hi-lo) {
			return nil, codec.Corrupt(name, "column scheme", -1, "at most 256 different names", "more")
		}
		if c.Port[i] >= 0 && p.port == nil {
			p.port = make([]int32, 0, hi-lo)
			for range i - lo {
				p.port = append(p.port, -1)
			}
		}
		if p.port != nil {
			p.port = append(p.port, c.Port[i])
		}
		if c.HasTS[i] && p.ts == nil {
			p.ts, p.hasTS = make([]int64, hi-lo), make([]bool, hi-lo)
		}
		if p.ts != nil {
			p.ts[i-lo], p.hasTS[i-lo] = c.TS[i], c.HasTS[i]
		}
	}
	for col := range part.Column(part.NumColumns) {
		switch {
		case !wide.has(col):
		case col == part.ColSize:
			p.size, p.hasSize = slices.Clone(c.Size[lo:hi]), slices.Clone(c.HasSize[lo:hi])
		default:
			p.texts[col] = slices.Clone((*c.Text(col))[lo:hi])
		}
	}
	return p, nil
}

// addScheme stores the scheme of a row of a page with the given number of rows. It reports false if
// the page has more than 256 different schemes.
func (p *rowPage) addScheme(name string, row, rows int) bool {
	n := len(p.schemes)
	at := 0
	for at < n && p.schemes[at] != name {
		at++
	}
	if at == n {
		if n > 255 {
			return false
		}
		p.schemes = append(p.schemes, strings.Clone(name))
	}
	if at > 0 && p.scheme == nil {
		p.scheme = make([]uint8, rows)
	}
	if p.scheme != nil {
		p.scheme[row] = uint8(at)
	}
	return true
}

// memoryBytes is the memory that the page takes, in bytes.
func (p *rowPage) memoryBytes() int64 {
	n := 512 + cap(p.paths) + 4*cap(p.pathEnds) + len(p.scheme) + 4*cap(p.port) + 9*len(p.ts) + 20*cap(p.hosts)
	for _, h := range p.hosts {
		n += len(h)
	}
	n += 9 * len(p.size)
	for _, column := range p.texts {
		n += 16 * len(column)
		for i, v := range column {
			if i == 0 || v != column[i-1] { // equal neighbours share their bytes
				n += len(v)
			}
		}
	}
	return int64(n)
}

// host is the host of row i.
func (p *rowPage) host(i int) string {
	if len(p.hosts) == 1 {
		return p.hosts[0]
	}
	return p.hosts[sort.Search(len(p.hostEnds), func(j int) bool { return int(p.hostEnds[j]) > i })]
}

// path is the path and query of row i.
func (p *rowPage) path(i int) []byte {
	start := uint32(0)
	if i > 0 {
		start = p.pathEnds[i-1]
	}
	return p.paths[start:p.pathEnds[i]]
}

// origin is the scheme of row i, and its port, or -1.
func (p *rowPage) origin(i int) (scheme string, port int32) {
	scheme, port = p.schemes[0], -1
	if p.scheme != nil {
		scheme = p.schemes[p.scheme[i]]
	}
	if p.port != nil {
		port = p.port[i]
	}
	return scheme, port
}

// time is the time of row i.
func (p *rowPage) time(i int) (ms int64, ok bool) {
	if p.ts == nil {
		return 0, false
	}
	return p.ts[i], p.hasTS[i]
}

// add appends rows [lo, hi) of the page. A host outside of the domain is a *codec.CorruptError of
// part.
func (r *Rows) add(p *rowPage, lo, hi int, domain, part string) error {
	run := sort.Search(len(p.hostEnds), func(j int) bool { return int(p.hostEnds[j]) > lo })
	checked := -1
	for i := lo; i < hi; i++ {
		for int(p.hostEnds[run]) <= i {
			run++
		}
		host := p.hosts[run]
		if run != checked {
			if !ofDomain(host, domain) {
				return codec.Corrupt(part, "column host", -1,
					"hosts of domain "+urlnorm.FormatID(urlnorm.DomainID(domain)), "a host of another domain")
			}
			checked = run
		}
		scheme, port := p.origin(i)
		r.text = append(r.text, scheme...)
		r.text = append(r.text, "://"...)
		r.text = append(r.text, host...)
		if port >= 0 {
			r.text = append(r.text, ':')
			r.text = strconv.AppendInt(r.text, int64(port), 10)
		}
		r.text = append(r.text, p.path(i)...)
		r.ends = append(r.ends, len(r.text))
		if p.ts != nil {
			r.ts, r.hasTS = append(r.ts, p.ts[i]), append(r.hasTS, p.hasTS[i])
		} else {
			r.ts, r.hasTS = append(r.ts, 0), append(r.hasTS, false)
		}
	}
	if p.size != nil {
		r.size, r.hasSize = append(r.size, p.size[lo:hi]...), append(r.hasSize, p.hasSize[lo:hi]...)
	}
	for col, column := range p.texts {
		if column != nil {
			r.texts[col] = append(r.texts[col], column[lo:hi]...)
		}
	}
	return nil
}

// allocate prepares the empty r for n rows.
func (r *Rows) allocate(n int) {
	const usualURL = 96 // bytes
	r.ends = make([]int, 0, n)
	r.ts = make([]int64, 0, n)
	r.hasTS = make([]bool, 0, n)
	r.text = make([]byte, 0, n*usualURL)
}

// ofDomain reports whether host is the domain or a name below it.
func ofDomain(host, domain string) bool {
	below, ok := strings.CutSuffix(host, domain)
	return ok && (below == "" || below[len(below)-1] == '.')
}

// run is consecutive pages of one block of a page index, and the rows of them that are read.
type run struct {
	piece  int // index into the pieces of the plan
	part   string
	block  *part.PageIndexBlock
	spans  []span // none is in two pages
	rows   int64  // of all spans
	wide   Columns
	pages  []*rowPage
	starts []int64 // first row of each page, then the row after the last
	err    error
}

// read reads the rows of pieces into rows. It returns where the next page starts, and the cap that
// ended this page early, or "".
func (s *Snapshot) read(
	ctx context.Context, domain string, pieces []piece, wide Columns, rows *Rows,
) (end position, stopped string, err error) {
	runs, stopped, err := s.runs(ctx, pieces, wide)
	if err != nil {
		return end, "", err
	}
	if len(runs) == 1 {
		runs[0].err = s.load(ctx, &runs[0])
	} else {
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		for i := range runs {
			wg.Go(func() {
				runs[i].err = contain(func() error { return s.load(ctx, &runs[i]) })
				if runs[i].err != nil && ctx.Err() == nil {
					cancel(runs[i].err)
				}
			})
		}
		wg.Wait()
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, ErrDeadline) {
			return end, "", cause
		}
	}
	if len(runs) > 0 && runs[0].err != nil {
		return end, "", runs[0].err
	}
	total := 0
	for i := range runs {
		total += int(runs[i].rows)
	}
	// Rows that are there at the deadline are the page, so the turn is waited for beyond it.
	late := context.WithoutCancel(ctx)
	turn := turns.Of(late)
	if err := turn.Take(late); err != nil {
		return end, "", err
	}
	defer turn.Give()
	rows.allocate(total)
	for i := range runs {
		if err := turn.Yield(late); err != nil {
			return end, "", err
		}
		r := &runs[i]
		if r.err != nil {
			// The rows before the first late one are the page.
			if errors.Is(deadline(ctx, r.err), ErrDeadline) {
				return end, "deadline", nil
			}
			return end, "", r.err
		}
		j := 0
		for _, sp := range r.spans {
			for sp.first >= r.starts[j+1] {
				j++
			}
			lo := sp.first - r.starts[j]
			if err := rows.add(r.pages[j], int(lo), int(lo+sp.rows), domain, r.part); err != nil {
				return end, "", err
			}
		}
		pc, last := &pieces[r.piece], r.spans[len(r.spans)-1]
		end = position{
			segment: uint64(pc.segment), file: uint64(pc.tuple.FileID), rowGroup: uint64(pc.tuple.RowGroup),
			row: uint64(last.first + last.rows),
		}
	}
	return end, stopped, nil
}

// runs looks up the pages of the pieces in the page index, up to the most pages of an answer. If
// there are more, stopped is "pages".
func (s *Snapshot) runs(ctx context.Context, pieces []piece, wide Columns) (runs []run, stopped string, err error) {
	blocks := make([][]*part.PageIndexBlock, len(pieces))
	files := make([]segment.FileInfo, len(pieces))
	lookUp := func(ctx context.Context, i int) (err error) {
		t := pieces[i].tuple
		blocks[i], err = s.segments[pieces[i].segment].PageBlocks(ctx, t.FileID, t.RowGroup, t.FirstRow, t.Rows)
		return err
	}
	name := func(ctx context.Context, i int) (err error) {
		files[i], err = s.file(ctx, &pieces[i])
		return err
	}
	atHand := func(i int) bool { return s.segments[pieces[i].segment].Files() != nil } // no read
	if len(pieces) == 1 && atHand(0) {
		if err = name(ctx, 0); err == nil {
			err = lookUp(ctx, 0)
		}
	} else {
		group, groupCtx := newGroup(ctx)
		for i := range pieces {
			if !atHand(i) {
				group.Go(func() error { return name(groupCtx, i) })
			} else if err := name(ctx, i); err != nil {
				return nil, "", errors.Join(err, group.Wait())
			}
			group.Go(func() error { return lookUp(groupCtx, i) })
		}
		err = group.Wait()
	}
	if err != nil {
		return nil, "", err
	}
	pages := 0
	for i, pc := range pieces {
		var r *run // the last one of the piece
		for _, sp := range pc.spans {
			row, last := sp.first, sp.first+sp.rows
			for _, b := range blocks[i] {
				for row < last && row >= b.FirstRow && row < b.FirstRow+b.Rows() {
					first, end := b.Page(row)
					known := r != nil && r.block == b && r.starts[len(r.starts)-1] == end
					if !known && pages == wide.maxPages() {
						return finished(runs), "pages", nil
					}
					if !known && (r == nil || r.block != b || r.starts[len(r.starts)-1] != first) {
						runs = append(runs, run{piece: i, part: files[i].Path, block: b, wide: wide, starts: []int64{first}})
						r = &runs[len(runs)-1]
					}
					if !known {
						r.starts = append(r.starts, end)
						pages++
					}
					end = min(end, last)
					r.spans = append(r.spans, span{row, end - row})
					r.rows += end - row
					row = end
				}
			}
		}
	}
	return finished(runs), "", nil
}

// file returns the part that a piece is in.
func (s *Snapshot) file(ctx context.Context, pc *piece) (f segment.FileInfo, err error) {
	f, err = s.segments[pc.segment].File(ctx, pc.tuple.FileID)
	if got := f.DatasetID; err == nil && got != pc.dataset {
		err = codec.Corrupt(s.version.Segments[pc.segment].FilesTSV, fmt.Sprintf("line %d", pc.tuple.FileID), -1,
			fmt.Sprintf("a part of dataset %d, as the postings say", pc.dataset), got)
	}
	return f, err
}

// finished allocates the pages of runs.
func finished(runs []run) []run {
	for i := range runs {
		runs[i].pages = make([]*rowPage, len(runs[i].starts)-1)
	}
	return runs
}

// load gets the pages of a run from the cache. Missing ones are read from the part: the pages from
// the first missing to the last missing one, in one range for each group of adjacent columns.
// Requests that miss the same pages at once read them once.
func (s *Snapshot) load(ctx context.Context, r *run) error {
	n := len(r.pages)
	first, last := n, 0
	for i := range r.pages {
		v, ok := s.server.pages.Get(r.key(i))
		spans.Cached(ctx, spans.Pages, ok)
		if ok {
			r.pages[i] = v.(*rowPage)
		} else {
			first, last = min(first, i), i+1
		}
	}
	if first >= last {
		return nil
	}
	// Light work does not wait for what heavy work reads: that may have to wait for its turn.
	key := fetchKey{r.key(first), r.starts[last], turns.Own(ctx) != nil}
	pages, err := s.server.fetching.Do(ctx, key, func() (pages []*rowPage, err error) {
		if pages = s.cached(r, first, last); pages != nil { // a call that ended since has read them
			return pages, nil
		}
		err = contain(func() (err error) {
			pages, err = s.fetch(ctx, r, first, last)
			return err
		})
		return pages, err
	})
	copy(r.pages[first:], pages)
	return err
}

// cached returns the pages [first, last) of a run, nil unless the cache has all of them.
func (s *Snapshot) cached(r *run, first, last int) []*rowPage {
	pages := make([]*rowPage, 0, last-first)
	for i := first; i < last; i++ {
		v, ok := s.server.pages.Again(r.key(i))
		if !ok {
			return nil
		}
		pages = append(pages, v.(*rowPage))
	}
	return pages
}

// fetchKey identifies pages of a part that are being read: from one of them to before a row.
type fetchKey struct {
	pageKey
	end   int64
	heavy bool
}

// decodes is the gate for decoding pages for ctx.
func (s *Server) decodes(ctx context.Context) *semaphore.Weighted {
	if turns.Own(ctx) == nil {
		return s.light
	}
	return s.gate
}

// fetch reads and decodes pages [first, last) of a run, and caches them. It waits until the gate
// admits that many.
func (s *Snapshot) fetch(ctx context.Context, r *run, first, last int) ([]*rowPage, error) {
	weight := int64(last-first) * r.wide.cost()
	gate := s.server.decodes(ctx)
	if err := gate.Acquire(ctx, weight); err != nil {
		return nil, err
	}
	defer gate.Release(weight)
	from := r.starts[first]
	plan, err := part.NewPlan(r.block, from, r.starts[last]-from, r.wide.list()...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.part, err)
	}
	data, err := plan.Read(ctx, s.server.store, r.part)
	if err != nil {
		return nil, err
	}
	turn := turns.Of(ctx)
	if err := turn.Take(ctx); err != nil {
		return nil, err
	}
	defer turn.Give()
	c, err := plan.Decode(r.part, data)
	if err != nil {
		return nil, err
	}
	pages := make([]*rowPage, 0, last-first)
	for i := first; i < last; i++ {
		if err := turn.Yield(ctx); err != nil {
			return nil, err
		}
		p, err := newRowPage(c, int(r.starts[i]-from), int(r.starts[i+1]-from), r.wide, r.part)
		if err != nil {
			return nil, err
		}
		pages = append(pages, p)
		s.server.pages.Add(r.key(i), p, p.memoryBytes())
	}
	return pages, nil
}

// key is the cache key of page i.
func (r *run) key(i int) pageKey { return pageKey{r.part, r.block.RowGroup, r.starts[i], r.wide} }
