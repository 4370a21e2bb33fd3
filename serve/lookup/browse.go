package lookup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/turns"
)

// DomainsQuery selects a page of the domains of a version.
type DomainsQuery struct {
	// Prefix and Suffix are what the names of the domains begin and end with.
	Prefix, Suffix string
	// Dataset is the only dataset that counts if OneDataset is set.
	Dataset    uint32
	OneDataset bool
	// Limit is 1 to MaxLimit.
	Limit int
	// Cursor is the one of the page before, or empty.
	Cursor string
}

// DomainSum sums up the rows of a domain.
type DomainSum struct {
	Domain   string
	DomainID uint64
	// Datasets is the number of datasets that have the domain.
	Datasets int
	segment.Totals
}

// DomainsPage is one page of the domains of a version, in the order of Domains.
type DomainsPage struct {
	Version       string
	TakedownEpoch uint64
	Domains       []DomainSum
	// StoppedBy is "deadline" if that ended the page before its limit, and otherwise empty.
	StoppedBy string
	// Cursor is where the next page starts. It is empty on the last page.
	Cursor string
	// Due is the time before which the page must not be given; see Options.Pace.
	Due time.Time
}

// Domains lists the domains that something is left of. They are in the order of their bytes; with a
// Suffix in that of their bytes from the last to the first. With a Suffix and a Prefix the order is
// that of which fewer names have to be read; it is the same for all pages of a version. Pages for
// which many names are read are made like differences, few at a time.
func (s *Snapshot) Domains(ctx context.Context, q DomainsQuery) (*DomainsPage, error) {
	if q.Limit < 1 || q.Limit > MaxLimit {
		return nil, ErrRange
	}
	begun := time.Now()
	until := begun.Add(s.server.opt.Deadline)
	var only []uint32
	if q.OneDataset {
		if _, ok := s.Dataset(q.Dataset); !ok {
			return nil, fmt.Errorf("%w: %d", ErrUnknownDataset, q.Dataset)
		}
		only = []uint32{q.Dataset}
	}
	b, err := s.Bulk(ctx, BulkQuery{Datasets: only})
	if err != nil {
		return nil, err
	}
	span := rangeOf(s.segments, q.Prefix, q.Suffix)
	name := fmt.Sprintf("%q %q %t", q.Prefix, q.Suffix, q.OneDataset) // distinguishes the query in cursors
	if span.Reversed {
		name += " reversed"
	}
	start := span.Prefix
	if q.Cursor != "" {
		c, err := s.parseCursor(q.Cursor, cursorDomains, name, q.Dataset)
		if err != nil {
			return nil, err
		}
		start = max(start, c.at.name)
	}
	few := span.Suffix != ""
	if few {
		if err := s.server.acquireDiff(ctx, until); err != nil {
			return nil, err
		}
	}
	defer func() {
		if few {
			s.server.diffs.Release(1)
		}
	}()
	w, err := s.walk(ctx, span, start, q.Limit+1, span.Suffix != "")
	if err != nil {
		return nil, err
	}
	defer w.Close()
	page := &DomainsPage{Version: b.Version, TakedownEpoch: b.TakedownEpoch, Domains: []DomainSum{}}
	defer func() { page.Due = s.due(begun) }()
	// A page may end early if the next one begins at a later name.
	moved := func() bool { return len(page.Domains) > 0 || w.Place() > start }
	// One more than the limit is looked for, so that the last page is known as such by what may be
	// read alone.
	for hidden := 0; !w.Done && len(page.Domains) <= q.Limit && page.StoppedBy == ""; {
		found := len(page.Domains)
		names, err := w.Next(ctx, min(q.Limit+1-len(page.Domains), bulkTexts), until)
		if err != nil {
			return nil, err
		}
		err = b.named(ctx, names, func(a *BulkAnswer) error {
			if len(a.Datasets) == 0 {
				return nil
			}
			sum := DomainSum{Domain: a.Domain, DomainID: a.DomainID, Datasets: len(a.Datasets)}
			for i := range a.Datasets {
				sum.Add(a.Datasets[i].Totals)
			}
			page.Domains = append(page.Domains, sum)
			return nil
		})
		if err != nil {
			return nil, err
		}
		if len(page.Domains) == found && s.audience != "" {
			hidden++
		}
		if hidden == manyRounds && !few && !w.Done {
			err := s.server.acquireDiff(ctx, until)
			if few = err == nil; !few && !(errors.Is(err, ErrDeadline) && moved()) {
				return nil, err
			}
		}
		if !time.Now().Before(until) && !w.Done && len(page.Domains) <= q.Limit && moved() {
			page.StoppedBy = "deadline"
		}
	}
	next := ""
	if len(page.Domains) > q.Limit {
		page.Domains = page.Domains[:q.Limit]
	} else if page.StoppedBy != "" {
		next = w.Place()
	} else {
		return page, nil
	}
	if n := len(page.Domains); n > 0 {
		next = max(next, span.Text(page.Domains[n-1].Domain)+"\x00")
	}
	c := cursor{
		kind: cursorDomains, fingerprint: fingerprint(cursorDomains, name, q.Dataset), version: s.version.ID,
		at: position{name: next},
	}
	page.Cursor = c.String()
	return page, nil
}

// manyRounds is how many times names are read for a page that are all hidden from the reader, until
// the page is made like differences, few at a time.
const manyRounds = 16

// due returns when a page or result that was begun at a time may be given; see Options.Pace.
func (s *Snapshot) due(begun time.Time) time.Time {
	if s.audience == "" {
		return time.Time{}
	}
	pace := s.server.opt.Pace
	for took := time.Since(begun); 0 < pace && pace < took; {
		pace *= 2
	}
	return begun.Add(min(pace, s.server.opt.Deadline))
}

// named calls answer for each domain of some names.
func (b *Bulk) named(ctx context.Context, names []string, answer func(a *BulkAnswer) error) error {
	b.lines, b.domains, b.keys, b.group = b.lines[:0], b.domains[:0], b.keys[:0], 0
	clear(b.index)
	for _, name := range names {
		b.lines = append(b.lines, bulkLine{domain: b.add(name, segment.KeyOf(name)), host: name})
	}
	if err := b.locate(); err != nil {
		return err
	}
	return b.answer(ctx, func(_ int, a *BulkAnswer) error { return answer(a) })
}

// walk begins a walk through a range of the domains, at the first name that is not before start, of
// which most names are wanted soon. With whole, that may be few of those that are read.
func (s *Snapshot) walk(ctx context.Context, r Range, start string, most int, whole bool) (*walkNames, error) {
	q := nameQuery{Range: r, Start: start, Most: most, Whole: whole, Yield: turns.Own(ctx).Yield}
	return newWalk(ctx, s.segments, q, s.each)
}

// DomainsBelow counts the domains of the version that are below a public suffix. The first call
// reads their names. The result is kept for all who may read the same; the error is ErrComputing if
// that takes longer than the deadline.
func (s *Snapshot) DomainsBelow(ctx context.Context, suffix string) (int64, error) {
	return compute(ctx, s, "below "+suffix+" "+s.audience, true, func(ctx context.Context) (int64, error) {
		b, err := s.Bulk(ctx, BulkQuery{PresenceOnly: true})
		if err != nil {
			return 0, err
		}
		r := rangeOf(s.segments, "", "."+suffix)
		w, err := s.walk(ctx, r, r.Prefix, bulkTexts, true)
		if err != nil {
			return 0, err
		}
		defer w.Close()
		count := int64(0)
		for !w.Done {
			names, err := w.Next(ctx, bulkTexts, time.Now().Add(time.Hour))
			if err != nil {
				return 0, err
			}
			err = b.named(ctx, names, func(a *BulkAnswer) error {
				if len(a.Datasets) > 0 {
					count++
				}
				return nil
			})
			if err != nil {
				return 0, err
			}
		}
		return count, nil
	})
}

// ValidNamePart reports whether text can be a part of the names that domains have in a lake. If
// not, the error says why.
func ValidNamePart(text string) error {
	if len(text) > segment.MaxDomain {
		return fmt.Errorf("has %d bytes; no domain has more than %d", len(text), segment.MaxDomain)
	}
	for i := range len(text) {
		switch c := text[i]; {
		case c >= 'A' && c <= 'Z':
			return fmt.Errorf("has capital letters; domains are in lower case")
		case c >= 0x80:
			return fmt.Errorf("has letters outside of ASCII; domains are in punycode (xn--…)")
		case c <= ' ' || strings.IndexByte("/?#@\\\x7f", c) >= 0:
			return fmt.Errorf("has characters that domains do not have")
		}
	}
	return nil
}

// Top are the largest domains of a dataset, and its sums.
type Top struct {
	// TakedownEpoch tells which takedowns the sums take into account.
	TakedownEpoch uint64
	segment.Totals
	// Domains is the number of domains of which the dataset has rows.
	Domains int64
	// ByRows and BySize have up to TopDomains domains each, the largest first, and equal ones by
	// domain_id. BySize has only those of which a row has a size.
	ByRows, BySize []DomainSum
}

// TopDomains is how many domains a Top lists.
const TopDomains = 20

// TopOf returns the largest domains of a dataset. The first call reads all postings of the version,
// and the result is kept; the error is ErrComputing if that takes longer than the deadline.
func (s *Snapshot) TopOf(ctx context.Context, dataset uint32) (*Top, error) {
	if _, ok := s.Dataset(dataset); !ok {
		return nil, fmt.Errorf("%w: %d", ErrUnknownDataset, dataset)
	}
	return compute(ctx, s, fmt.Sprint("top ", dataset), false, func(ctx context.Context) (*Top, error) { return s.topOf(ctx, dataset) })
}

// ranked is a domain that may be one of the largest. It has no name yet.
type ranked struct {
	segment.Key
	segment.Totals
	source int // a segment that has it
}

func (s *Snapshot) topOf(ctx context.Context, dataset uint32) (*Top, error) {
	v, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	scans := make([]*segment.EntryScan, len(s.segments))
	heads := make([]*segment.Entry, len(s.segments))
	advance := func(ctx context.Context, i int, turn *turns.Turn) (err error) {
		for looked := 1; ; looked++ {
			if heads[i], err = scans[i].Next(ctx); err != nil || heads[i] == nil || heads[i].Dataset == dataset {
				return err
			}
			if looked%pairsInTurn == 0 {
				if err := cmp.Or(context.Cause(ctx), turn.Yield(ctx)); err != nil {
					return err
				}
			}
		}
	}
	err = s.each(ctx, func(int) bool { return true }, func(ctx context.Context, i int) error {
		turn := turns.Of(ctx)
		defer turn.Give()
		scans[i] = s.segments[i].ScanEntries(segment.Key{}, 0)
		return advance(ctx, i, turn)
	})
	if err != nil {
		return nil, err
	}
	own, passed := turns.Own(ctx), 0
	top := &Top{TakedownEpoch: v.takedowns.epoch}
	byRows := largest{more: func(a, b *ranked) bool {
		return a.Rows > b.Rows || a.Rows == b.Rows && segment.CompareKeys(a.Key, b.Key) < 0
	}}
	bySize := largest{more: func(a, b *ranked) bool {
		return a.Size > b.Size || a.Size == b.Size && segment.CompareKeys(a.Key, b.Key) < 0
	}}
	for {
		first := -1
		for i, e := range heads {
			if e != nil && (first < 0 || segment.CompareKeys(e.Key, heads[first].Key) < 0) {
				first = i
			}
		}
		if first < 0 {
			break
		}
		r := ranked{Key: heads[first].Key, source: first}
		for i := range heads {
			if heads[i] == nil || heads[i].Key != r.Key {
				continue
			}
			left, err := leftOf(ctx, v.tables[i], heads[i])
			if err != nil {
				return nil, err
			}
			if left.Rows > 0 {
				r.Add(left)
			}
			if err := advance(ctx, i, own); err != nil {
				return nil, err
			}
		}
		if passed++; passed%pairsInTurn == 0 {
			if err := own.Yield(ctx); err != nil {
				return nil, err
			}
		}
		if r.Rows == 0 {
			continue
		}
		top.Domains++
		top.Add(r.Totals)
		byRows.add(r)
		if r.HasSize {
			bySize.add(r)
		}
	}
	names, err := s.nameRanked(ctx, append(byRows.list, bySize.list...))
	if err != nil {
		return nil, err
	}
	n := len(byRows.list)
	top.ByRows, top.BySize = names[:n:n], names[n:]
	return top, nil
}

// largest are the TopDomains largest domains that were added, the largest first.
type largest struct {
	more func(a, b *ranked) bool
	list []ranked
}

func (l *largest) add(r ranked) {
	if n := len(l.list); n == TopDomains && !l.more(&r, &l.list[n-1]) {
		return
	}
	at, _ := slices.BinarySearchFunc(l.list, &r, func(have ranked, r *ranked) int {
		if l.more(&have, r) {
			return -1
		}
		return 1
	})
	l.list = slices.Insert(l.list, at, r)
	l.list = l.list[:min(len(l.list), TopDomains)]
}

// nameRanked finds the names of domains. They are in many frames, which are read at once.
func (s *Snapshot) nameRanked(ctx context.Context, list []ranked) ([]DomainSum, error) {
	sums := make([]DomainSum, len(list))
	group, ctx := newGroup(ctx)
	for i := range list {
		group.Go(func() error {
			r := &list[i]
			seg := s.segments[r.source]
			ordinal, ok, err := seg.Ordinal(r.Key)
			name := ""
			if err == nil && ok {
				name, err = seg.Domain(ctx, ordinal)
			}
			if err != nil {
				return err
			}
			if segment.KeyOf(name) != r.Key {
				return s.disagree(r.source, r.ID)
			}
			sums[i] = DomainSum{Domain: name, DomainID: urlnorm.DomainID(name), Datasets: 1, Totals: r.Totals}
			return nil
		})
	}
	return sums, group.Wait()
}
