package lookup

import (
	"cmp"
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/serve/lookup/filter"
	"github.com/urlake/urlake/serve/turns"
)

const (
	// MaxCounted is the maximum number of row groups in which both ends of a selection of one host
	// are searched, so that its rows are counted. By the keys of pages a search reads one page; in
	// a part of usual size without keys it reads up to eight.
	MaxCounted = 256
	// searchesAtOnce is how many row groups of a list are searched at the same time.
	searchesAtOnce = 64
	// maxFilterWork is how many steps the filters of one page take, about a second.
	maxFilterWork = 1 << 25
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
	// Filters are conditions that all have to hold. They need part.ColExtras, which they add.
	Filters filter.Set
}

// SelectionError says which part of a selection is malformed or not of the domain: "host",
// "prefix", "from", "to" or "filter". What completes a sentence that begins with it.
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

// AddFilter adds a condition, see filter.Set. The error is a *SelectionError.
func (s *Selection) AddFilter(text string) error {
	if err := s.Filters.Add(text); err != nil {
		return &SelectionError{"filter", err.Error()}
	}
	return nil
}

// All reports whether all rows are selected.
func (s *Selection) All() bool {
	return s.Host == "" && s.Prefix == "" && !s.timed() && s.Filters.Len() == 0
}

// columns are those that the selection needs.
func (s *Selection) columns() Columns {
	if s.Filters.Len() > 0 {
		return With(part.ColExtras)
	}
	return 0
}

func (s *Selection) timed() bool { return s.From != nil || s.To != nil }

// text names the selection. No two selections have the same text: hosts and filters have no zero
// byte, and neither have prefixes that select anything.
func (s *Selection) text() string {
	bound := func(t *int64) string {
		if t == nil {
			return ""
		}
		return fmt.Sprint(*t)
	}
	parts := append([]string{s.Host, s.Prefix, bound(s.From), bound(s.To)}, s.Filters.Texts()...)
	return strings.Join(parts, "\x00")
}

// overlaps reports whether rows with these totals may have a time of the selection.
func (s *Selection) overlaps(t *segment.Totals) bool {
	if !s.timed() {
		return true
	}
	return t.HasTS && (s.From == nil || t.LastTS >= *s.From) && (s.To == nil || t.FirstTS < *s.To)
}

// keys are what the selection has by host and path.
func (s *Selection) keys() selection {
	return selection{Host: s.Host, Prefix: s.Prefix}
}

// place is 0 if the selection has the host and the path of row i, negative if it may only have
// later rows of the host, or of the domain, and else positive.
func (s *Selection) place(p *rowPage, i int) int {
	if s.Host == "" {
		return comparePath(p.path(i), s.Prefix)
	}
	return compare(s.keys(), p.host(i), p.path(i))
}

// bound divides the rows of a domain, in their order, into those before what is sought and the
// others. Key says the same of the keys of pages; it is nil if they do not tell.
type bound struct {
	row func(p *rowPage, i int) bool
	key func(k *part.PageKey) bool
}

// bounds are where the rows of the selection's host and prefix begin and end.
func (s *Selection) bounds() (lower, upper bound) {
	at := s.keys()
	key := func(k *part.PageKey) int { return compare(at, k.Host, k.Path) }
	return bound{
			func(p *rowPage, i int) bool { return s.place(p, i) < 0 },
			func(k *part.PageKey) bool { return key(k) < 0 },
		}, bound{
			func(p *rowPage, i int) bool { return s.place(p, i) <= 0 },
			func(k *part.PageKey) bool { return key(k) <= 0 },
		}
}

// boundsOf are where the rows with the URL of row j of q begin and end.
func boundsOf(q *rowPage, j int) (lower, upper bound) {
	scheme, port := q.origin(j)
	url := part.PageKey{Host: q.host(j), Path: string(q.path(j)), Scheme: scheme, Port: port}
	return bound{
			func(p *rowPage, i int) bool { return compareURLs(p, i, q, j) < 0 },
			func(k *part.PageKey) bool { return k.Compare(&url) < 0 },
		}, bound{
			func(p *rowPage, i int) bool { return compareURLs(p, i, q, j) <= 0 },
			func(k *part.PageKey) bool { return k.Compare(&url) <= 0 },
		}
}

// has reports whether the selection has row i. The error is that of ctx, or a
// *filter.TooLargeError. Heavy work may have its turn afterwards, which the caller gives back.
func (s *Selection) has(ctx context.Context, p *rowPage, i int) (bool, error) {
	if s.timed() {
		ms, ok := p.time(i)
		if !ok || s.From != nil && ms < *s.From || s.To != nil && ms >= *s.To {
			return false, nil
		}
	}
	if (s.Host != "" || s.Prefix != "") && s.place(p, i) != 0 {
		return false, nil
	}
	if s.Filters.Len() == 0 {
		return true, nil
	}
	if s.Filters.Rests() {
		if err := cmp.Or(context.Cause(ctx), turns.Own(ctx).Yield(ctx)); err != nil {
			return false, err
		}
	}
	return s.Filters.Passes(p.texts[part.ColExtras][i])
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
