package lookup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/urlake/urlake/indexbuild/deletion"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/spans"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
)

const (
	// MaxDatasets is the maximum number of datasets on a page.
	MaxDatasets = 1000
	// MaxLimit is the maximum number of URLs on a page, DefaultLimit the number without a limit.
	MaxLimit     = 10_000
	DefaultLimit = 100
	// MaxRowGroups is the maximum number of row groups that one page of an answer reads.
	MaxRowGroups = 32
	// MaxPages is the maximum number of pages of parts that one page of an answer decodes. A page
	// of a part ends after 8,192 rows or 256 KiB of paths, so the paths of an answer take about 16
	// MiB at most. Only lists of very long URLs reach this limit before MaxLimit.
	MaxPages = 64
)

// resolved is the domain of a version that a query answers for.
type resolved struct {
	domain string
	key    segment.Key
	// others are further domains of the version that the host could belong to.
	others []string
}

// resolve finds the domain that a query for t answers for, by the public suffix list that the
// version follows. If the lake lacks the list, the rows of the host may be under any of its parents
// or under the host itself. All of these names are looked up in the perfect hash, without reads of
// the store. If the domain by this program's list does not exist, the longest name that does is
// used. The other names that exist are returned as others.
func (s *Snapshot) resolve(ctx context.Context, v *view, t Target) (_ resolved, err error) {
	ctx, step := spans.Start(ctx, "resolve")
	defer func() { step.End(err) }()
	list := cmp.Or(s.suffixes, urlnorm.BuiltinSuffixes())
	domain := list.Domain(t.Host)
	r := resolved{domain: domain, key: segment.KeyOf(domain)}
	if t.doubt != nil && (t.Several() != nil || !list.IsSuffix(t.Host)) { // else it is a public suffix, such as uk
		if ok, err := s.contains(ctx, v, r.key); !ok || t.Host != domain || err != nil {
			return r, cmp.Or[error](err, t.doubt)
		}
	}
	if !s.LacksSuffixes() || strings.HasPrefix(t.Host, "[") {
		return r, nil
	}
	found, err := s.contains(ctx, v, r.key)
	if err != nil {
		return r, err
	}
	for name := t.Host; ; {
		if name != domain {
			key := segment.KeyOf(name)
			exists, err := s.contains(ctx, v, key)
			switch {
			case err != nil:
				return r, err
			case exists && !found:
				// Names get shorter, so this is the longest one that exists.
				r.domain, r.key, found = name, key, true
			case exists:
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

// contains reports whether any segment has rows of the domain that are not hidden.
func (s *Snapshot) contains(ctx context.Context, v *view, k segment.Key) (bool, error) {
	for i, seg := range s.segments {
		_, ok, err := seg.Ordinal(k)
		if err != nil {
			return false, err
		}
		if ok && (s.readable != nil || v.tables[i].May(k)) {
			set, err := s.members(i, k)
			if err != nil {
				return false, err
			}
			if set, _, err = v.left(ctx, i, k, set); err != nil {
				return false, err
			}
			ok = set != nil
		}
		if ok {
			return true, nil
		}
	}
	return false, nil
}

// members returns the datasets that the reader may read and that contain the domain in segment i.
// It is nil if there are none.
func (s *Snapshot) members(i int, k segment.Key) (*roaring.Bitmap, error) {
	set, err := s.allMembers(i, k)
	return s.visibleOf(set), err
}

// allMembers is members for whoever may read all datasets. It is for counting what the segment has
// stored.
func (s *openVersion) allMembers(i int, k segment.Key) (*roaring.Bitmap, error) {
	ordinal, ok, err := s.segments[i].Ordinal(k)
	if !ok || err != nil {
		return nil, err
	}
	return s.segments[i].Datasets(ordinal)
}

// appendAllMembers is allMembers for a domain whose ordinal in segment i is known. It appends the
// datasets to out, ascending.
func (s *openVersion) appendAllMembers(i int, ordinal uint32, out []uint32) ([]uint32, error) {
	return s.segments[i].AppendDatasets(out, ordinal)
}

// Answer has the fields that the answers to both queries share.
type Answer struct {
	Domain   string
	DomainID uint64
	Version  string
	// TakedownEpoch tells which takedowns the answer takes into account; see catalog.Manifest.
	TakedownEpoch uint64
	// OtherDomains are further domains of the version that the target's host could belong to. They
	// exist only if the lake lacks the public suffix list that the version follows.
	OtherDomains []string
	// Cursor is where the next page starts. It is empty on the last page.
	Cursor string
}

func (s *Snapshot) answer(v *view, r resolved) Answer {
	return Answer{
		Domain: r.domain, DomainID: r.key.ID, Version: s.version.ID,
		TakedownEpoch: v.takedowns.epoch, OtherDomains: r.others,
	}
}

// DomainPage is one page of the datasets that contain a domain.
type DomainPage struct {
	Answer
	// Total is the number of datasets that contain the domain. Datasets are those of this page, by
	// id.
	Total    int
	Datasets []DatasetTotals
}

// DatasetTotals sums up the rows that a dataset has of a domain. All numbers are exact.
type DatasetTotals struct {
	ID   uint32
	Name string
	segment.Totals
}

// Domain lists the datasets that contain the target's domain, MaxDatasets a page, starting at
// cursorText. An empty cursor starts at the beginning.
func (s *Snapshot) Domain(ctx context.Context, t Target, cursorText string) (*DomainPage, error) {
	v, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	r, err := s.resolve(ctx, v, t)
	if err != nil {
		return nil, err
	}
	from := uint32(0)
	if cursorText != "" {
		if from, err = s.datasetAfter(cursorText, cursorDatasets, r.domain); err != nil {
			return nil, err
		}
	}
	page, err := s.domainPage(ctx, v, r, from)
	if err == nil && page.Total > 0 {
		s.server.ahead.names.Note(r.domain)
	}
	return page, err
}

// domainPage lists the datasets that contain a domain, from an id on.
func (s *Snapshot) domainPage(ctx context.Context, v *view, r resolved, from uint32) (page *DomainPage, err error) {
	ctx, step := spans.Start(ctx, "select")
	defer func() { step.End(err) }()
	page = &DomainPage{Answer: s.answer(v, r)}
	full := make([]*roaring.Bitmap, len(s.segments)) // of the segments
	sets := full                                     // of what is left of them and may be read
	var left [][]deletion.Entry
	if v.any || s.readable != nil {
		sets = make([]*roaring.Bitmap, len(s.segments))
	}
	if v.any {
		left = make([][]deletion.Entry, len(s.segments))
	}
	var all *roaring.Bitmap
	shared := false // all is one of sets
	for i := range s.segments {
		if full[i], err = s.allMembers(i, r.key); err != nil {
			return nil, err
		}
		sets[i] = s.visibleOf(full[i])
		if v.any {
			if sets[i], left[i], err = v.left(ctx, i, r.key, sets[i]); err != nil {
				return nil, err
			}
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
		known, ok := s.Dataset(d.ID)
		if !ok {
			return nil, codec.Corrupt(segment.Prefix("*")+segment.MembershipName, "bitmaps", -1,
				"datasets of version "+s.version.ID, d.ID)
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
		// Rank counts the ids up to and including its argument.
		n := int(full[i].Rank(last))
		if first > 0 {
			n -= int(full[i].Rank(first - 1))
		}
		if n == 0 {
			return nil
		}
		if found[i], err = s.segments[i].Entries(ctx, r.key, first, n); err != nil {
			return err
		}
		// Entries ascend. So if there are n of them and all are in the set, they are those of the
		// set.
		stray := func(e segment.Entry) bool { return e.Dataset > last || !full[i].Contains(e.Dataset) }
		if len(found[i]) != n || slices.ContainsFunc(found[i], stray) {
			return s.disagree(i, r.key.ID)
		}
		if s.readable != nil {
			found[i] = slices.DeleteFunc(found[i], func(e segment.Entry) bool { return !s.mayRead(e.Dataset) })
		}
		if left != nil && left[i] != nil {
			found[i], err = v.apply(i, found[i], left[i])
		}
		return err
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

// disagree is the error for a segment whose membership and postings list different datasets of a
// domain.
func (s *Snapshot) disagree(i int, domainID uint64) error {
	return codec.Corrupt(segment.Prefix(s.version.Segments[i].ID)+segment.MembershipName, "bitmaps", -1,
		"the datasets that the postings have for domain "+urlnorm.FormatID(domainID), "other datasets")
}

// each calls f for every chosen segment. Several calls run concurrently.
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

// parseCursor decodes a cursor and checks that it belongs to this version and query.
func (s *Snapshot) parseCursor(text string, kind byte, domain string, dataset uint32) (*cursor, error) {
	c, err := parseCursor(text, kind)
	if err != nil {
		return nil, err
	}
	if err := c.check(domain, dataset); err != nil {
		return nil, err
	}
	if c.version != s.version.ID {
		return nil, fmt.Errorf("%w: it belongs to version %s, not to %s", ErrBadCursor, c.version, s.version.ID)
	}
	return c, nil
}

// CursorVersion returns the version that a cursor of any kind belongs to: the one to Acquire for
// it. The cursor is checked in full when it is used.
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

// deadline returns ErrDeadline if the deadline of ctx caused err, and otherwise err. Stores have
// various errors for requests that ended with their context.
func deadline(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), ErrDeadline) && !errors.Is(err, codec.ErrCorrupt) && !errors.Is(err, ErrBadCursor) {
		return ErrDeadline
	}
	return err
}

// plan says where the rows of a page are stored.
type plan struct {
	total, offset int64
	pieces        []piece
	stopped       string // the cap that ended the plan, or empty
}

// piece is rows in one row group.
type piece struct {
	segment int
	dataset uint32
	tuple   segment.Tuple // from the first row of the page to the last
	spans   []span        // of which these, in order
}

// span is a run of rows of a row group.
type span struct{ first, rows int64 }

// planned is what a plan knows of the rows of one segment.
type planned struct {
	entry segment.Entry // rows is 0 if the segment has no entry
	has   bool
	// overlaid tells that rows are hidden. Left are those that are not.
	overlaid bool
	left     deletion.Entry
	rows     int64 // that are left
	tuples   []segment.Tuple
}

// load reads where the rows are that are left.
func (p *planned) load(ctx context.Context, seg *segment.Segment) (err error) {
	if p.overlaid {
		p.tuples, err = p.left.Tuples()
	} else {
		p.tuples, err = seg.Tuples(ctx, p.entry)
	}
	return err
}

// planned looks up the rows that each segment has of a domain in a dataset.
func (s *Snapshot) planned(ctx context.Context, v *view, k segment.Key, dataset uint32) ([]planned, error) {
	of := make([]planned, len(s.segments))
	for i := range s.segments {
		set, err := s.members(i, k)
		if err != nil {
			return nil, err
		}
		of[i].has = set != nil && set.Contains(dataset)
	}
	err := s.each(ctx, func(i int) bool { return of[i].has }, func(ctx context.Context, i int) error {
		p := &of[i]
		var ok bool
		var err error
		if p.entry, ok, err = s.segments[i].Entry(ctx, k, dataset); err != nil {
			return err
		}
		if !ok {
			return s.disagree(i, k.ID)
		}
		p.rows = p.entry.Rows
		if !v.tables[i].May(k) {
			return nil
		}
		if p.left, p.overlaid, err = v.tables[i].Entry(ctx, k, dataset); err != nil || !p.overlaid {
			return err
		}
		p.rows = p.left.Rows
		return v.fits(i, &p.entry, &p.left)
	})
	return of, err
}

// plan finds the rows of a page: up to q.Limit rows from the position at, or from q.Offset if at is
// nil.
func (s *Snapshot) plan(ctx context.Context, v *view, k segment.Key, q URLsQuery, at *position) (*plan, error) {
	of, err := s.planned(ctx, v, k, q.Dataset)
	if err != nil {
		return nil, err
	}
	n := len(of)
	p := &plan{}
	for i := range of {
		p.total += of[i].rows
	}

	// Tuples are read of the segments from first on, and skip is how many rows of first come before
	// the page. How many rows follow a cursor in its own segment is known only from the tuples, so
	// those rows are not counted when it is decided which further segments to read.
	first, skip := 0, q.Offset
	if at != nil {
		if at.segment >= uint64(n) || !of[at.segment].has {
			return nil, fmt.Errorf("%w: it starts in a segment without the domain", ErrBadCursor)
		}
		first, skip = int(at.segment), 0
		for i := range first {
			p.offset += of[i].rows
		}
	} else {
		p.offset = min(q.Offset, p.total)
		for first < n && skip >= of[first].rows {
			skip -= of[first].rows
			first++
		}
	}
	needed := make([]bool, n)
	enough := int64(q.Limit)
	for i := first; i < n && enough > 0; i++ {
		needed[i] = of[i].has
		switch {
		case i > first:
			enough -= of[i].rows
		case at == nil:
			enough -= of[i].rows - skip
		}
	}
	err = s.each(ctx, func(i int) bool { return needed[i] }, func(ctx context.Context, i int) error {
		return of[i].load(ctx, s.segments[i])
	})
	if err != nil {
		return nil, err
	}
	if at != nil {
		// The rows before the cursor, and the one at it, may be hidden since it was made. So it is
		// held against what the segment has.
		whole := of[first].tuples
		if of[first].overlaid {
			if whole, err = s.segments[first].Tuples(ctx, of[first].entry); err != nil {
				return nil, err
			}
		}
		if skip, err = at.rowsBefore(whole); err != nil {
			return nil, err
		}
		if of[first].overlaid {
			skip = at.leftBefore(of[first].tuples)
		}
		p.offset += skip
	}

	left, groups := int64(q.Limit), 0
	for i := first; i < n && left > 0; i++ {
		for _, t := range of[i].tuples {
			if skip >= t.Rows {
				skip -= t.Rows
				continue
			}
			if left == 0 {
				break
			}
			t.FirstRow, t.Rows, skip = t.FirstRow+skip, t.Rows-skip, 0
			t.Rows = min(t.Rows, left)
			sp := span{t.FirstRow, t.Rows}
			if k := len(p.pieces); k > 0 && p.pieces[k-1].segment == i && segment.CompareTuples(p.pieces[k-1].tuple, t) == 0 {
				last := &p.pieces[k-1]
				last.spans = append(last.spans, sp)
				last.tuple.Rows = t.FirstRow + t.Rows - last.tuple.FirstRow
			} else {
				if groups == MaxRowGroups {
					p.stopped = "row_groups"
					return p, nil
				}
				groups++
				p.pieces = append(p.pieces, piece{i, q.Dataset, t, []span{sp}})
			}
			left -= t.Rows
		}
	}
	return p, nil
}

// rowsBefore counts the rows of tuples before the position. A position that is neither at a row of
// a tuple nor directly after its last row is forged and returns ErrBadCursor.
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
	return 0, fmt.Errorf("%w: it starts at no row of the list", ErrBadCursor)
}

// leftBefore counts the rows of tuples before a position that rowsBefore has accepted. The tuples
// are those of the rows that are left.
func (p *position) leftBefore(tuples []segment.Tuple) (before int64) {
	at := segment.Tuple{FileID: uint32(p.file), RowGroup: uint32(p.rowGroup)}
	for _, t := range tuples {
		switch c := segment.CompareTuples(t, at); {
		case c < 0:
			before += t.Rows
		case c == 0 && uint64(t.FirstRow) < p.row:
			before += min(t.Rows, int64(p.row)-t.FirstRow)
		default:
			return before
		}
	}
	return before
}
