package lookup

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/part"
)

const (
	// MaxCounted is the maximum number of row groups in which both ends of a selection of one host
	// are searched, so that its rows are counted. In a part of usual size a search reads up to
	// eight pages.
	MaxCounted = 256
	// searchesAtOnce is how many row groups of a list are searched at the same time.
	searchesAtOnce = 8
	// readAhead is how many pages of a row group a scan reads at once.
	readAhead = 8
	// maxPrefix is the length of the longest canonical URL, in bytes.
	maxPrefix = 16 << 10
)

// Selection says which rows of a domain a list has. The zero value selects all.
type Selection struct {
	// Host is the only host, in canonical form, "" for all hosts of the domain.
	Host string
	// Prefix is what the path and query begin with, as in the canonical URL; "" for all.
	Prefix string
	// From and To are the first millisecond since the epoch that is in the selection, and the first
	// one after it. If one is set, rows without a time are left out.
	From, To *int64
}

// SelectionError says which part of a selection is malformed or not of the domain: "host",
// "prefix", "from" or "to". What completes a sentence that begins with it.
type SelectionError struct{ Part, What string }

func (e *SelectionError) Error() string { return e.Part + " " + e.What }

// ParseSelection reads a selection; "" is a part that is not there. Host is any spelling of a host.
// Prefix is compared with canonical URLs as it is, but for spaces and bytes that are not ASCII,
// which these have percent-encoded. From and to are times of RFC 3339 or dates, which begin at
// midnight UTC. The error is a *SelectionError.
func ParseSelection(host, prefix, from, to string) (sel Selection, err error) {
	if host != "" {
		t, err := ParseTarget(host)
		if err != nil || strings.ContainsAny(host, "/?#@") || host[0] != '[' && strings.Contains(host, ":") {
			return sel, &SelectionError{"host", "is no name of a host; give it alone, as in www.example.com"}
		}
		sel.Host = t.Host
	}
	switch {
	case prefix == "":
	case prefix[0] != '/':
		return sel, &SelectionError{"prefix", "is the beginning of a path and starts with a slash, as in /docs/"}
	case strings.Contains(prefix, "#"):
		return sel, &SelectionError{"prefix", "has a fragment, which no URL of a lake has"}
	case len(prefix) > maxPrefix:
		return sel, &SelectionError{"prefix", fmt.Sprintf("has %d bytes; no URL of a lake has more than %d", len(prefix), maxPrefix)}
	default:
		var b []byte
		for _, c := range []byte(prefix) {
			if c <= ' ' || c >= 0x7f {
				b = fmt.Appendf(b, "%%%02X", c)
			} else {
				b = append(b, c)
			}
		}
		sel.Prefix = string(b)
	}
	if sel.From, err = parseTime("from", from); err != nil {
		return sel, err
	}
	if sel.To, err = parseTime("to", to); err != nil {
		return sel, err
	}
	if sel.From != nil && sel.To != nil && *sel.From >= *sel.To {
		return sel, &SelectionError{"from", "is not before to; to is the first moment after the span"}
	}
	return sel, nil
}

// parseTime reads a bound as milliseconds since the epoch. A time between two of them is rounded
// up, since rows have whole ones.
func parseTime(part, text string) (*int64, error) {
	if text == "" {
		return nil, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		if t, err = time.Parse(time.DateOnly, text); err != nil {
			return nil, &SelectionError{part, "is a date or a time of RFC 3339, such as 2026-11-20 or 2026-11-20T10:11:12Z"}
		}
	}
	ms := t.Add(time.Millisecond - 1).UnixMilli()
	return &ms, nil
}

func (s *Selection) empty() bool { return s.Host == "" && s.Prefix == "" && !s.timed() }

func (s *Selection) timed() bool { return s.From != nil || s.To != nil }

// text names the selection. No two selections have the same text: hosts have no zero byte, and
// neither have prefixes that select anything.
func (s *Selection) text() string {
	bound := func(t *int64) string {
		if t == nil {
			return ""
		}
		return fmt.Sprint(*t)
	}
	return strings.Join([]string{s.Host, s.Prefix, bound(s.From), bound(s.To)}, "\x00")
}

// overlaps reports whether rows with these totals may have a time of the selection.
func (s *Selection) overlaps(t *segment.Totals) bool {
	if !s.timed() {
		return true
	}
	return t.HasTS && (s.From == nil || t.LastTS >= *s.From) && (s.To == nil || t.FirstTS < *s.To)
}

// place is 0 if the selection has the host and the path of row i, negative if it may only have
// later rows of the host, or of the domain, and else positive.
func (s *Selection) place(p *rowPage, i int) int {
	if s.Host != "" {
		if c := strings.Compare(p.host(i), s.Host); c != 0 {
			return c
		}
	}
	path := p.path(i)
	if len(path) >= len(s.Prefix) && string(path[:len(s.Prefix)]) == s.Prefix {
		return 0
	}
	return bytes.Compare(path, []byte(s.Prefix))
}

// has reports whether the selection has row i.
func (s *Selection) has(p *rowPage, i int) bool {
	if s.timed() {
		ms, ok := p.time(i)
		if !ok || s.From != nil && ms < *s.From || s.To != nil && ms >= *s.To {
			return false
		}
	}
	return s.Host == "" && s.Prefix == "" || s.place(p, i) == 0
}

// end is the row behind the last one of the piece.
func (pc *piece) end() int64 { return pc.tuple.FirstRow + pc.tuple.Rows }

// rows counts the rows of the piece.
func (pc *piece) rows() (n int64) {
	for _, sp := range pc.spans {
		n += sp.rows
	}
	return n
}

// spanAt is the index of the first span that ends behind row.
func (pc *piece) spanAt(row int64) int {
	if len(pc.spans) == 1 && row < pc.spans[0].first+pc.spans[0].rows {
		return 0
	}
	return sort.Search(len(pc.spans), func(i int) bool { return pc.spans[i].first+pc.spans[i].rows > row })
}

// next is the first row of the piece from row on.
func (pc *piece) next(row int64) (int64, bool) {
	i := pc.spanAt(row)
	if i == len(pc.spans) {
		return 0, false
	}
	return max(row, pc.spans[i].first), true
}

// shows reports whether the piece has row.
func (pc *piece) shows(row int64) bool {
	next, ok := pc.next(row)
	return ok && next == row
}

// ends are the first and the last row of the piece in [lo, hi). If it has none there, first is
// greater than last.
func (pc *piece) ends(lo, hi int64) (first, last int64) {
	first, ok := pc.next(lo)
	if !ok || first >= hi {
		return 1, 0
	}
	i := sort.Search(len(pc.spans), func(i int) bool { return pc.spans[i].first >= hi }) - 1
	return first, min(hi, pc.spans[i].first+pc.spans[i].rows) - 1
}

// count counts the rows of the piece in [lo, hi).
func (pc *piece) count(lo, hi int64) (n int64) {
	for _, sp := range pc.spans[pc.spanAt(lo):] {
		n += max(0, min(hi, sp.first+sp.rows)-max(lo, sp.first))
		if sp.first >= hi {
			break
		}
	}
	return n
}

// clip reduces the piece to its rows in [lo, hi).
func (pc *piece) clip(lo, hi int64) {
	var spans []span
	for _, sp := range pc.spans {
		first, end := max(lo, sp.first), min(hi, sp.first+sp.rows)
		if first < end {
			spans = append(spans, span{first, end - first})
		}
	}
	pc.setSpans(spans)
}

// take reduces the piece to its rows from number skip on, and to n of them.
func (pc *piece) take(skip, n int64) {
	var spans []span
	for _, sp := range pc.spans {
		drop := min(skip, sp.rows)
		skip -= drop
		sp.first, sp.rows = sp.first+drop, min(sp.rows-drop, n)
		if n -= sp.rows; sp.rows > 0 {
			spans = append(spans, sp)
		}
	}
	pc.setSpans(spans)
}

func (pc *piece) setSpans(spans []span) {
	if pc.spans = spans; len(spans) > 0 {
		last := spans[len(spans)-1]
		pc.tuple.FirstRow, pc.tuple.Rows = spans[0].first, last.first+last.rows-spans[0].first
	}
}

// compare orders the row groups of pieces and positions.
func (pc *piece) compare(at *position) int {
	return cmp.Or(cmp.Compare(uint64(pc.segment), at.segment), cmp.Compare(uint64(pc.tuple.FileID), at.file),
		cmp.Compare(uint64(pc.tuple.RowGroup), at.rowGroup))
}

// position is that of a row of the piece.
func (pc *piece) position(row int64) *position {
	return &position{
		segment: uint64(pc.segment), file: uint64(pc.tuple.FileID), rowGroup: uint64(pc.tuple.RowGroup), row: uint64(row),
	}
}

// rows is the number of rows of a page.
func (p *rowPage) rows() int { return len(p.pathEnds) }

// pager reads pages of row groups and keeps those that it read last. It is for one goroutine.
type pager struct {
	s    *Snapshot
	wide Columns
	read int64 // counts the pages
	// of are the row group and the pages that are kept.
	of     segment.Tuple
	seg    int
	window run
}

func newPager(s *Snapshot, wide Columns) *pager { return &pager{s: s, wide: wide} }

// in reports whether the pages that are kept are of the row group of pc.
func (g *pager) in(pc *piece) bool {
	return g.window.block != nil && g.seg == pc.segment && segment.CompareTuples(g.of, pc.tuple) == 0
}

// has reports whether the page of a row is kept.
func (g *pager) has(pc *piece, row int64) bool {
	return g.in(pc) && row >= g.window.starts[0] && row < g.window.starts[len(g.window.pages)]
}

// at returns the page of a row of pc, and the page's first row. If it is not kept, up to ahead
// pages are read from it on.
func (g *pager) at(ctx context.Context, pc *piece, row int64, ahead int) (*rowPage, int64, error) {
	if !g.has(pc, row) {
		if err := g.load(ctx, pc, row, ahead); err != nil {
			return nil, 0, err
		}
	}
	i := 0
	for g.window.starts[i+1] <= row {
		i++
	}
	return g.window.pages[i], g.window.starts[i], nil
}

func (g *pager) load(ctx context.Context, pc *piece, row int64, ahead int) error {
	f, err := g.s.file(ctx, pc)
	if err != nil {
		return err
	}
	var b *part.PageIndexBlock
	if old := g.window.block; g.in(pc) && row >= old.FirstRow && row < old.FirstRow+old.Rows() {
		b = old
	} else {
		blocks, err := g.s.segments[pc.segment].PageBlocks(ctx, pc.tuple.FileID, pc.tuple.RowGroup, row, 1)
		if err != nil {
			return err
		}
		b = blocks[0]
	}
	first, end := b.Page(row)
	r := run{part: f.Path, block: b, wide: g.wide, starts: []int64{first, end}}
	for len(r.starts) <= ahead && end < min(pc.end(), b.FirstRow+b.Rows()) {
		_, end = b.Page(end)
		r.starts = append(r.starts, end)
	}
	r.pages = make([]*rowPage, len(r.starts)-1)
	if err := g.s.load(ctx, &r); err != nil {
		return err
	}
	g.read += int64(len(r.pages))
	g.of, g.seg, g.window = pc.tuple, pc.segment, r
	return nil
}

// search returns the first one of the rows [lo, hi) of pc that is not before what is sought, hi if
// there is none. Before holds for none or for the first ones of the rows, which have the order of a
// part, hidden ones included. The page of lo is tried first, then halves of what is left.
func (g *pager) search(ctx context.Context, pc *piece, lo, hi int64, before func(p *rowPage, i int) bool) (int64, error) {
	for mid := lo; lo < hi; mid = lo + (hi-lo)/2 {
		p, first, err := g.at(ctx, pc, mid, 1)
		if err != nil {
			return 0, err
		}
		a, b := max(first, lo), min(first+int64(p.rows()), hi)
		switch {
		case !before(p, int(a-first)):
			hi = a
		case before(p, int(b-1-first)):
			lo = b
		default:
			from := int(a - first)
			return a + int64(sort.Search(int(b-a), func(i int) bool { return !before(p, from+i) })), nil
		}
	}
	return lo, nil
}

// skip returns the first row behind row that the selection may have by host and path. The selection
// does not have row, which is on page p, whose first row is first.
func (g *pager) skip(ctx context.Context, pc *piece, sel *Selection, p *rowPage, first, row int64) (int64, error) {
	i := int(row - first)
	c := sel.place(p, i)
	host := p.host(i)
	switch {
	case sel.Host != "" && c > 0:
		return pc.end(), nil
	case sel.Host != "":
		return g.search(ctx, pc, row+1, pc.end(), func(p *rowPage, i int) bool { return sel.place(p, i) < 0 })
	case c > 0:
		return g.search(ctx, pc, row+1, pc.end(), func(p *rowPage, i int) bool { return p.host(i) <= host })
	}
	return g.search(ctx, pc, row+1, pc.end(), func(p *rowPage, i int) bool {
		h := p.host(i)
		return h < host || h == host && sel.place(p, i) < 0
	})
}
