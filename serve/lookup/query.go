package lookup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
)

const (
	// MaxDatasets is how many datasets one answer lists.
	MaxDatasets = 1000
	// MaxLimit is how many URLs one page has at most, DefaultLimit how many without a limit.
	MaxLimit     = 10_000
	DefaultLimit = 100
	// MaxRowGroups is how many row groups one page touches at most.
	MaxRowGroups = 32
	// MaxPages is how many pages of a part one page of an answer decodes at most: with at most 96 KiB of paths each,
	// six MiB. A page of ordinary URLs has two thousand, so only a dataset of very long ones gets there.
	MaxPages = 64
)

// Target is what a query asks for: the host that was given, and its domain.
type Target struct {
	// Host and Domain are canonical. Domain is the host's by this program's public suffix list.
	Host, Domain string
	// word is why a single label is no host, unless the version has it as a domain: http://intranet/ is a
	// URL, and its domain can be asked for by the name that answers give it.
	word *urlnorm.RejectError
}

// ParseTarget reads any spelling of a host or URL. What is none is a *urlnorm.RejectError.
func ParseTarget(text string) (Target, error) {
	u, err := urlnorm.Parse(text)
	var word *urlnorm.RejectError
	if errors.As(err, &word) && word.Reason == urlnorm.RejectNoHost && text != "" && !strings.ContainsAny(text, "/?#@: ") {
		u, err = urlnorm.Parse("http://" + text + "/")
	} else {
		word = nil
	}
	if err != nil {
		return Target{}, err
	}
	return Target{Host: strings.Clone(u.Host), Domain: strings.Clone(u.Domain), word: word}, nil
}

// resolved is the domain that a version files a target's rows under.
type resolved struct {
	domain string
	key    segment.Key
	// others are further domains of the version that the host could belong to.
	others []string
}

// resolve finds the domain to answer for. With one public suffix list on both sides that is the target's. Otherwise the version may have
// filed the host under any of its parents, or under itself: all are asked for, which costs nothing but
// a look into the perfect hash, and those that exist besides the one answered for are named.
func (s *Snapshot) resolve(t Target) (resolved, error) {
	r := resolved{domain: t.Domain, key: segment.KeyOf(t.Domain)}
	if t.word != nil {
		if ok, err := s.holds(r.key); !ok || err != nil {
			return r, cmp.Or[error](err, t.word)
		}
	}
	if !s.OtherSuffixes() || strings.HasPrefix(t.Host, "[") {
		return r, nil
	}
	own, err := s.holds(r.key)
	if err != nil {
		return r, err
	}
	for name := t.Host; ; {
		if name != t.Domain {
			key := segment.KeyOf(name)
			there, err := s.holds(key)
			switch {
			case err != nil:
				return r, err
			case there && !own:
				// The longest that exists, since names are asked for from the host upwards.
				r.domain, r.key, own = name, key, true
			case there:
				r.others = append(r.others, name)
			}
		}
		_, parent, ok := strings.Cut(name, ".")
		if !ok {
			return r, nil
		}
		name = parent
	}
}

// holds tells whether any segment has a domain.
func (s *Snapshot) holds(k segment.Key) (bool, error) {
	for _, seg := range s.segments {
		if _, ok, err := seg.Ordinal(k); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// datasets returns the datasets that segment i has for a domain, nil for none.
func (s *Snapshot) datasets(i int, k segment.Key) (*roaring.Bitmap, error) {
	ordinal, ok, err := s.segments[i].Ordinal(k)
	if !ok || err != nil {
		return nil, err
	}
	return s.segments[i].Datasets(ordinal)
}

// Answer is what both queries' answers say of themselves.
type Answer struct {
	Domain   string
	DomainID uint64
	Version  string
	// TakedownEpoch is the number of takedowns taken into account.
	TakedownEpoch uint64
	// OtherDomains are domains of the version, besides Domain, that the host asked for could belong to. Not empty only
	// when version and server have different public suffix lists.
	OtherDomains []string
	// Cursor is where the next page starts, "" after the last.
	Cursor string
}

func (s *Snapshot) answer(r resolved) Answer {
	return Answer{Domain: r.domain, DomainID: r.key.ID, Version: s.version.ID, TakedownEpoch: s.TakedownEpoch(), OtherDomains: r.others}
}

// DomainPage answers which datasets contain a domain.
type DomainPage struct {
	Answer
	// Total is the number of datasets that contain the domain; Datasets are this page's, by id.
	Total    int
	Datasets []DatasetTotals
}

// DatasetTotals is what a dataset has of a domain. All numbers are exact.
type DatasetTotals struct {
	ID   uint32
	Name string
	segment.Totals
}

// Domain lists the datasets that contain the target's domain, MaxDatasets at a time, from cursor on ("" is the beginning).
func (s *Snapshot) Domain(ctx context.Context, t Target, cursorText string) (*DomainPage, error) {
	r, err := s.resolve(t)
	if err != nil {
		return nil, err
	}
	from := uint32(0)
	if cursorText != "" {
		if from, err = s.datasetAfter(cursorText, cursorDatasets, r.domain); err != nil {
			return nil, err
		}
	}
	page := &DomainPage{Answer: s.answer(r)}
	sets := make([]*roaring.Bitmap, len(s.segments))
	var all *roaring.Bitmap
	shared := false // all is one of sets
	for i := range s.segments {
		if sets[i], err = s.datasets(i, r.key); err != nil {
			return nil, err
		}
		switch {
		case sets[i] == nil:
		case all == nil:
			all, shared = sets[i], true
		case shared:
			all, shared = roaring.Or(all, sets[i]), false
		default:
			all.Or(sets[i])
		}
	}
	if all == nil {
		return page, nil
	}
	page.Total = int(all.GetCardinality())
	page.Datasets = make([]DatasetTotals, 0, min(page.Total, s.server.datasets))

	it := all.Iterator()
	it.AdvanceIfNeeded(from)
	for it.HasNext() && len(page.Datasets) < s.server.datasets {
		d := DatasetTotals{ID: it.Next()}
		known, ok := s.version.Dataset(d.ID)
		if !ok {
			return nil, codec.Corrupt(segment.Prefix("*")+segment.MembershipName, "bitmaps", -1, "datasets of version "+s.version.ID, d.ID)
		}
		d.Name = known.Name
		page.Datasets = append(page.Datasets, d)
	}
	if len(page.Datasets) == 0 {
		return page, nil
	}
	last := page.Datasets[len(page.Datasets)-1].ID
	if it.HasNext() {
		page.Cursor = s.datasetCursor(cursorDatasets, r.domain, last)
	}

	first := page.Datasets[0].ID
	found := make([][]segment.Entry, len(s.segments))
	err = s.each(ctx, func(i int) bool { return sets[i] != nil }, func(ctx context.Context, i int) (err error) {
		// Rank counts up to and with its argument.
		n := int(sets[i].Rank(last))
		if first > 0 {
			n -= int(sets[i].Rank(first - 1))
		}
		if n == 0 {
			return nil
		}
		if found[i], err = s.segments[i].Entries(ctx, r.key, first, n); err != nil {
			return err
		}
		// They ascend, so as many as the set has, each in the set, are those of the set.
		if len(found[i]) != n || slices.ContainsFunc(found[i], func(e segment.Entry) bool { return e.Dataset > last || !sets[i].Contains(e.Dataset) }) {
			return s.disagree(i, r.key.ID)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, entries := range found {
		at := 0
		for _, e := range entries {
			for page.Datasets[at].ID != e.Dataset {
				at++
			}
			page.Datasets[at].Add(e.Totals)
		}
	}
	return page, nil
}

// disagree is the error of a segment whose membership and postings are not of one domain's same datasets.
func (s *Snapshot) disagree(i int, domainID uint64) error {
	return codec.Corrupt(segment.Prefix(s.version.Segments[i].ID)+segment.MembershipName, "bitmaps", -1,
		"the datasets that postings have of domain "+urlnorm.FormatID(domainID), "others")
}

// each calls f for the chosen segments, at once where they are several.
func (s *Snapshot) each(ctx context.Context, chosen func(i int) bool, f func(ctx context.Context, i int) error) error {
	var list []int
	for i := range s.segments {
		if chosen(i) {
			list = append(list, i)
		}
	}
	if len(list) == 1 {
		return f(ctx, list[0])
	}
	group, ctx := newGroup(ctx)
	for _, i := range list {
		group.Go(func() error { return f(ctx, i) })
	}
	return group.Wait()
}

// parseCursor reads a cursor and makes sure it belongs to this version and query.
func (s *Snapshot) parseCursor(text string, kind byte, domain string, dataset uint32) (*cursor, error) {
	c, err := parseCursor(text, kind)
	if err != nil {
		return nil, err
	}
	if err := c.check(domain, dataset); err != nil {
		return nil, err
	}
	if c.version != s.version.ID {
		return nil, fmt.Errorf("%w: of version %s, asked in %s", ErrBadCursor, c.version, s.version.ID)
	}
	return c, nil
}

// CursorVersion returns the version that a cursor of any kind belongs to: the one to Acquire for it.
// The cursor is checked in full when it is used.
func CursorVersion(text string) (string, error) {
	var err error
	for _, kind := range cursorKinds {
		var c *cursor
		if c, err = parseCursor(text, kind); err == nil {
			return c.version, nil
		}
	}
	return "", err
}

// URLsQuery asks for a page of the URLs of a domain in a dataset.
type URLsQuery struct {
	Target  Target
	Dataset uint32
	// Offset counts rows from the beginning of the list. Not with a Cursor.
	Offset int64
	// Limit is 1 to MaxLimit.
	Limit int
	// Cursor is an earlier page's; "" is none.
	Cursor string
}

// URLsPage is one page of a list of URLs.
type URLsPage struct {
	Answer
	DatasetID uint32
	// Total is the number of rows in the list, Offset the place of the first one of this page.
	Total, Offset int64
	Rows
	// StoppedBy names the cap that ended the page before its limit: "row_groups", "pages" or "deadline". It is complete up to
	// there and Cursor goes on.
	StoppedBy string
}

// URLs lists the URLs of the target's domain in a dataset, row by row: parts in the version's order, rows in theirs.
func (s *Snapshot) URLs(ctx context.Context, q URLsQuery) (*URLsPage, error) {
	if q.Limit < 1 || q.Limit > MaxLimit || q.Offset < 0 || (q.Offset > 0 && q.Cursor != "") {
		return nil, ErrRange
	}
	if _, ok := s.version.Dataset(q.Dataset); !ok {
		return nil, fmt.Errorf("%w: %d", ErrUnknownDataset, q.Dataset)
	}
	r, err := s.resolve(q.Target)
	if err != nil {
		return nil, err
	}
	page := &URLsPage{Answer: s.answer(r), DatasetID: q.Dataset, Offset: q.Offset}
	var at *position
	if q.Cursor != "" {
		c, err := s.parseCursor(q.Cursor, cursorURLs, r.domain, q.Dataset)
		if err != nil {
			return nil, err
		}
		at = &c.at
	}
	// What is late when the deadline comes is left out; what the index says has to be known.
	early, cancel := context.WithTimeoutCause(ctx, s.server.opt.Deadline, ErrDeadline)
	defer cancel()
	pl, err := s.plan(early, r.key, q, at)
	if err != nil {
		return nil, deadline(early, err)
	}
	page.Total, page.Offset, page.StoppedBy = pl.total, pl.offset, pl.stopped
	if len(pl.pieces) == 0 {
		return page, nil
	}
	end, stopped, err := s.read(early, r.domain, pl.pieces, &page.Rows)
	if err != nil {
		return nil, deadline(early, err)
	}
	if stopped != "" {
		page.StoppedBy = stopped
	}
	if page.Offset+int64(page.Len()) < page.Total {
		c := cursor{kind: cursorURLs, fingerprint: fingerprint(cursorURLs, r.domain, q.Dataset), version: s.version.ID, at: end}
		page.Cursor = c.String()
	}
	return page, nil
}

// deadline names the deadline where that is what an error comes from. Stores have errors of their own
// for requests that a context has ended.
func deadline(ctx context.Context, err error) error {
	if context.Cause(ctx) == ErrDeadline && !errors.Is(err, codec.ErrCorrupt) && !errors.Is(err, ErrBadCursor) {
		return ErrDeadline
	}
	return err
}

// plan is where the rows of a page are.
type plan struct {
	total, offset int64
	pieces        []piece
	stopped       string
}

// piece is a run of rows in one row group.
type piece struct {
	segment int
	tuple   segment.Tuple // cut to the rows asked for
}

// plan finds the rows of a page: from position at, or q.Offset where that is nil, q.Limit rows at most.
func (s *Snapshot) plan(ctx context.Context, k segment.Key, q URLsQuery, at *position) (*plan, error) {
	n := len(s.segments)
	entries := make([]segment.Entry, n)
	has := make([]bool, n)
	for i := range s.segments {
		set, err := s.datasets(i, k)
		if err != nil {
			return nil, err
		}
		has[i] = set != nil && set.Contains(q.Dataset)
	}
	err := s.each(ctx, func(i int) bool { return has[i] }, func(ctx context.Context, i int) error {
		e, ok, err := s.segments[i].Entry(ctx, k, q.Dataset)
		if err == nil && !ok {
			err = s.disagree(i, k.ID)
		}
		entries[i] = e
		return err
	})
	if err != nil {
		return nil, err
	}
	p := &plan{}
	for _, e := range entries {
		p.total += e.Rows // zero where there is none
	}

	// The segments from first on whose tuples are needed, and the rows of first to skip. Of a cursor's segment it is not
	// known before how many rows are left, so the next ones are read as if there were none.
	first, skip := 0, q.Offset
	if at != nil {
		if at.segment >= uint64(n) || !has[at.segment] {
			return nil, fmt.Errorf("%w: position", ErrBadCursor)
		}
		first, skip = int(at.segment), 0
		for _, e := range entries[:first] {
			p.offset += e.Rows
		}
	} else {
		p.offset = min(q.Offset, p.total)
		for first < n && skip >= entries[first].Rows {
			skip -= entries[first].Rows
			first++
		}
	}
	needed := make([]bool, n)
	enough := int64(q.Limit)
	for i := first; i < n && enough > 0; i++ {
		needed[i] = has[i]
		switch {
		case i > first:
			enough -= entries[i].Rows
		case at == nil:
			enough -= entries[i].Rows - skip
		}
	}
	tuples := make([][]segment.Tuple, n)
	err = s.each(ctx, func(i int) bool { return needed[i] }, func(ctx context.Context, i int) (err error) {
		tuples[i], err = s.segments[i].Tuples(ctx, entries[i])
		return err
	})
	if err != nil {
		return nil, err
	}
	if at != nil {
		if skip, err = at.rowsBefore(tuples[first]); err != nil {
			return nil, err
		}
		p.offset += skip
	}

	left := int64(q.Limit)
	for i := first; i < n && left > 0; i++ {
		for _, t := range tuples[i] {
			if skip >= t.Rows {
				skip -= t.Rows
				continue
			}
			if left == 0 {
				break
			}
			if len(p.pieces) == MaxRowGroups {
				p.stopped = "row_groups"
				return p, nil
			}
			t.FirstRow, t.Rows, skip = t.FirstRow+skip, t.Rows-skip, 0
			t.Rows = min(t.Rows, left)
			left -= t.Rows
			p.pieces = append(p.pieces, piece{i, t})
		}
	}
	return p, nil
}

// rowsBefore counts the rows of tuples that come before the position. A position that is not at one of
// their rows, or just behind the last of one, was made up.
func (p *position) rowsBefore(tuples []segment.Tuple) (int64, error) {
	before := int64(0)
	for _, t := range tuples {
		if uint64(t.FileID) == p.file && uint64(t.RowGroup) == p.rowGroup {
			if in := p.row - uint64(t.FirstRow); in <= uint64(t.Rows) {
				return before + int64(in), nil
			}
		}
		before += t.Rows
	}
	return 0, fmt.Errorf("%w: position", ErrBadCursor)
}
