package lookup

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/urlake/urlake/indexbuild/deletion"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/turns"
)

// diffsAtOnce is how many pages of differences are made at once. Each takes about a megabyte for
// every segment that only one of its two versions has, of which there are at most 64. The others
// wait.
const diffsAtOnce = 2

// DiffQuery selects a page of the differences between two versions.
type DiffQuery struct {
	// Dataset is the only dataset to compare if OneDataset is set.
	Dataset    uint32
	OneDataset bool
	// Limit is the largest number of changes, 1 to MaxLimit, or more for callers that have the
	// memory: a change takes some 300 bytes.
	Limit int
	// Cursor is the one of the page before, or empty.
	Cursor string
}

// Change is a domain of a dataset that has other totals in one version than in another. Totals
// without rows mean that the version does not have the domain in that dataset.
type Change struct {
	Domain   string
	DomainID uint64
	Dataset  uint32
	// Name is the dataset's name, in the later version if it is there.
	Name          string
	Before, After segment.Totals
}

// Kind says what happened: the domain was "added" to the dataset, "removed" from it, or "changed".
func (c *Change) Kind() string {
	switch {
	case c.Before.Rows == 0:
		return "added"
	case c.After.Rows == 0:
		return "removed"
	}
	return "changed"
}

// DiffPage is one page of the differences between two versions, by domain_id, then by dataset.
type DiffPage struct {
	Before, After string // the versions
	TakedownEpoch uint64
	Changes       []Change
	// StoppedBy is "deadline" if that ended the page before its limit, and otherwise empty.
	StoppedBy string
	// Cursor is where the next page starts. It is empty on the last page.
	Cursor string
}

// Diff compares a version, before, with the one of s: for which domains and datasets the number of
// rows, the sum of sizes, or the first or last time differ. Only the segments that are not in both
// versions are read in full; where they differ, the others are asked for the rest of the totals. So
// the cost depends on what was published between the two, not on the lake. Other content with the
// same totals is not noticed.
func (s *Snapshot) Diff(ctx context.Context, before *Snapshot, q DiffQuery) (*DiffPage, error) {
	if q.Limit < 1 {
		return nil, ErrRange
	}
	if q.OneDataset {
		_, now := s.Dataset(q.Dataset)
		if _, then := before.Dataset(q.Dataset); !now && !then {
			return nil, fmt.Errorf("%w: %d", ErrUnknownDataset, q.Dataset)
		}
	}
	after, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	// Both versions are compared as the same takedowns leave them.
	then, err := before.at(ctx, after.takedowns)
	if err != nil {
		return nil, err
	}
	d := &differ{q: q, views: [2]*view{then, after}, before: before, after: s, until: time.Now().Add(s.server.opt.Deadline)}
	if err := s.server.acquireDiff(ctx, d.until); err != nil {
		return nil, err
	}
	defer s.server.diffs.Release(1)
	d.page = &DiffPage{Before: before.version.ID, After: s.version.ID, TakedownEpoch: after.takedowns.epoch}
	from := pair{}
	if q.Cursor != "" {
		c, err := s.parseCursor(q.Cursor, cursorDiff, d.name(), q.Dataset)
		if err != nil {
			return nil, err
		}
		from = pair{segment.Key{ID: c.at.domain, Check: uint32(c.at.check)}, uint32(c.at.dataset)}
		if c.at.check > math.MaxUint32 || c.at.dataset > math.MaxUint32 || !from.increment() {
			return nil, fmt.Errorf("%w: no domain and dataset are after it", ErrBadCursor)
		}
	}
	d.open(from)
	if err := d.run(ctx); err != nil {
		return nil, err
	}
	return d.page, d.nameDomains(ctx)
}

// acquireDiff waits until another page of differences may be made. The caller has to release it.
func (s *Server) acquireDiff(ctx context.Context, until time.Time) error {
	if s.diffs.TryAcquire(1) {
		return nil
	}
	turns.Own(ctx).Give()
	ctx, cancel := context.WithDeadlineCause(ctx, until, ErrDeadline)
	defer cancel()
	if err := s.diffs.Acquire(ctx, 1); err != nil {
		return deadline(ctx, err)
	}
	return nil
}

// pair is a domain and a dataset, the order of entries in a segment.
type pair struct {
	segment.Key
	dataset uint32
}

func comparePairs(a, b pair) int {
	return cmp.Or(segment.CompareKeys(a.Key, b.Key), cmp.Compare(a.dataset, b.dataset))
}

// increment makes p the next possible pair. It returns false if p is the last.
func (p *pair) increment() bool {
	if p.dataset++; p.dataset != 0 {
		return true
	}
	if p.Check++; p.Check != 0 {
		return true
	}
	p.ID++
	return p.ID != 0
}

// differ is a Diff in progress.
type differ struct {
	q             DiffQuery
	before, after *Snapshot
	until         time.Time
	page          *DiffPage

	views [2]*view    // of before and after
	scans []*diffScan // of segments that one of the versions has
	both  []shared    // of segments that both have
	// sources are those of the page's changes.
	sources []changeSource
}

// tabled is a segment with its deletion table.
type tabled struct {
	*segment.Segment
	table *deletion.Table
}

// shared is a segment that both versions have, with the deletion table of each.
type shared struct {
	*segment.Segment
	before, after *deletion.Table
}

// entries are entries of a segment, ascending. Next returns nil after the last.
type entries interface {
	Next(ctx context.Context) (*segment.Entry, error)
}

// changeSource is the key of a change's domain, and a segment that has the domain.
type changeSource struct {
	segment.Key
	segment *segment.Segment
}

// diffScan reads a segment that only one of the versions has, or those entries of a segment of
// both of which one version lacks rows that the other may have.
type diffScan struct {
	seg   tabled
	scan  entries
	both  bool           // the segment is one of both versions
	later bool           // the segment is one of the later version
	next  *segment.Entry // nil at the end
}

// name distinguishes the query in cursors. Its dataset is distinguished too.
func (d *differ) name() string {
	if d.q.OneDataset {
		return d.before.version.ID + " dataset"
	}
	return d.before.version.ID
}

func (d *differ) open(from pair) {
	for i, seg := range d.before.segments {
		of := tabled{seg, d.views[0].tables[i]}
		at := slices.Index(d.after.segments, seg)
		switch {
		case at < 0:
			d.scans = append(d.scans, &diffScan{seg: of, scan: seg.ScanEntries(from.Key, from.dataset)})
		case d.before.version.Segments[i].View() == d.after.version.Segments[at].View():
			d.both = append(d.both, shared{seg, of.table, of.table})
		default:
			d.both = append(d.both, shared{seg, of.table, d.views[1].tables[at]})
			dead := []*deletion.Table{d.before.dead[i], d.after.dead[at]}
			d.scans = append(d.scans, &diffScan{seg: of, scan: newDeadScan(seg, from, dead), both: true})
		}
	}
	for i, seg := range d.after.segments {
		if !slices.Contains(d.before.segments, seg) {
			d.scans = append(d.scans, &diffScan{
				seg: tabled{seg, d.views[1].tables[i]}, scan: seg.ScanEntries(from.Key, from.dataset), later: true,
			})
		}
	}
}

// deadScan reads those entries of a segment that one of some deletion tables has.
type deadScan struct {
	seg   *segment.Segment
	scans []*deletion.Scan
}

func newDeadScan(seg *segment.Segment, from pair, tables []*deletion.Table) *deadScan {
	s := &deadScan{seg: seg}
	for _, o := range tables {
		if o != nil {
			s.scans = append(s.scans, o.Scan(from.Key, from.dataset))
		}
	}
	return s
}

// Next implements entries.
func (s *deadScan) Next(ctx context.Context) (*segment.Entry, error) {
	var first *deletion.Entry
	for _, scan := range s.scans {
		e, err := scan.Peek(ctx)
		if err != nil {
			return nil, err
		}
		if e != nil && (first == nil || deletion.Compare(e, first) < 0) {
			first = e
		}
	}
	if first == nil {
		return nil, nil
	}
	at := *first
	for _, scan := range s.scans {
		e, err := scan.Peek(ctx)
		if err != nil {
			return nil, err
		}
		if e != nil && deletion.Compare(e, &at) == 0 {
			scan.Skip()
		}
	}
	e, ok, err := s.seg.Entry(ctx, at.Key, at.Dataset)
	if err == nil && !ok {
		err = codec.Corrupt(segment.Prefix(s.seg.Info().Segment)+segment.PostingsName(0), "entries", -1,
			fmt.Sprintf("domain %016x in dataset %d, which has dead rows", at.ID, at.Dataset), "none")
	}
	return &e, err
}

const (
	// looks is how many pairs are compared between two looks at the clock.
	looks = 4096
	// pairsInTurn is how many are compared between two chances for others.
	pairsInTurn = 128
)

// run finds the changes of the page.
func (d *differ) run(ctx context.Context) (err error) {
	for _, sc := range d.scans {
		if sc.next, err = sc.scan.Next(ctx); err != nil {
			return err
		}
	}
	own := turns.Own(ctx)
	for compared := 1; ; compared++ {
		if compared%pairsInTurn == 1 {
			if err := own.Yield(ctx); err != nil {
				return err
			}
		}
		var at pair
		found := false
		for _, sc := range d.scans {
			if sc.next != nil {
				if p := (pair{sc.next.Key, sc.next.Dataset}); !found || comparePairs(p, at) < 0 {
					at, found = p, true
				}
			}
		}
		if !found {
			return nil
		}
		if err := d.compare(ctx, at); err != nil {
			return err
		}
		full := len(d.page.Changes) == d.q.Limit
		if late := compared%looks == 0 && time.Now().After(d.until); full || late {
			if !full {
				d.page.StoppedBy = "deadline"
			}
			// If nothing follows, the next page is empty.
			at = d.disclosed(at)
			c := cursor{kind: cursorDiff, fingerprint: fingerprint(cursorDiff, d.name(), d.q.Dataset),
				version: d.page.After, at: position{domain: at.ID, check: uint64(at.Check), dataset: uint64(at.dataset)}}
			d.page.Cursor = c.String()
			return nil
		}
		if compared%looks == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// visible reports whether the reader may read a dataset of one of the versions.
func (d *differ) visible(dataset uint32) bool {
	if d.before.readable == nil && d.after.readable == nil {
		return true
	}
	_, then := d.before.Dataset(dataset)
	_, now := d.after.Dataset(dataset)
	return then || now
}

// coarse are the bits of a domain's id that a cursor leaves out if the page ended at a pair that
// the reader may not know of. What is left is one of 65,536 places in the order of hashes, which
// says how far the page came and nothing about the domain.
const coarse = 1<<48 - 1

// disclosed is where the next page starts after a page that ended at a pair. If that is hidden, the
// page starts a little earlier, at a place that names no domain, but after the page's last change.
func (d *differ) disclosed(at pair) pair {
	if d.visible(at.dataset) {
		return at
	}
	at = pair{Key: segment.Key{ID: at.ID &^ coarse}}
	if n := len(d.page.Changes); n > 0 {
		last := pair{d.sources[n-1].Key, d.page.Changes[n-1].Dataset}
		if comparePairs(last, at) > 0 {
			return last
		}
	}
	return at
}

// compare compares the totals of a pair, which is the next one of some scans, and lets these go on.
func (d *differ) compare(ctx context.Context, at pair) (err error) {
	c := Change{DomainID: at.ID, Dataset: at.dataset}
	var source *segment.Segment
	both := false
	for _, sc := range d.scans {
		if sc.next == nil || sc.next.Key != at.Key || sc.next.Dataset != at.dataset {
			continue
		}
		source = sc.seg.Segment
		left, err := leftOf(ctx, sc.seg.table, sc.next)
		if err != nil {
			return err
		}
		switch {
		case sc.both: // counted below
			both = true
		case sc.later:
			c.After.Add(left)
		default:
			c.Before.Add(left)
		}
		if sc.next, err = sc.scan.Next(ctx); err != nil {
			return err
		}
	}
	if !both && c.Before == c.After || d.q.OneDataset && at.dataset != d.q.Dataset || !d.visible(at.dataset) {
		return nil
	}
	for _, seg := range d.both {
		if _, ok, err := seg.Ordinal(at.Key); err != nil {
			return err
		} else if !ok {
			continue
		}
		e, ok, err := seg.Entry(ctx, at.Key, at.dataset)
		if err != nil {
			return err
		}
		if ok {
			for _, of := range []struct {
				table *deletion.Table
				sum   *segment.Totals
			}{{seg.before, &c.Before}, {seg.after, &c.After}} {
				left, err := leftOf(ctx, of.table, &e)
				if err != nil {
					return err
				}
				of.sum.Add(left)
			}
		}
	}
	if c.Before == c.After { // the others have the same first and last times, or sizes beyond all sums
		return nil
	}
	dataset, ok := d.after.Dataset(at.dataset)
	if !ok {
		dataset, ok = d.before.Dataset(at.dataset)
	}
	if !ok {
		return codec.Corrupt(segment.Prefix(source.Info().Segment)+segment.FilesName, "datasets", -1,
			"datasets of the version", at.dataset)
	}
	c.Name = dataset.Name
	d.page.Changes = append(d.page.Changes, c)
	d.sources = append(d.sources, changeSource{at.Key, source})
	return nil
}

// nameDomains sets the domains of all changes. Entries have domain ids alone; domains are read in
// the order in which each segment stores them, so that each frame is read once.
func (d *differ) nameDomains(ctx context.Context) error {
	for _, sc := range d.scans {
		var keys []segment.Key
		var changes []int
		for i, source := range d.sources {
			if source.segment == sc.seg.Segment {
				keys, changes = append(keys, source.Key), append(changes, i)
			}
		}
		ordinals := make([]uint32, len(keys))
		if err := sc.seg.Ordinals(keys, ordinals); err != nil {
			return err
		}
		order := make([]int, len(keys))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int { return cmp.Compare(ordinals[a], ordinals[b]) })
		sorted := make([]uint32, len(order))
		for i, o := range order {
			sorted[i] = ordinals[o]
		}
		wrong := -1
		err := sc.seg.DomainsAt(ctx, sorted, func(i int, domain []byte) {
			c := &d.page.Changes[changes[order[i]]]
			if c.Domain = string(domain); segment.KeyOf(c.Domain) != keys[order[i]] {
				wrong = i
			}
		})
		if err != nil {
			return err
		}
		if wrong >= 0 {
			return codec.Corrupt(segment.Prefix(sc.seg.Info().Segment)+segment.DomainsName, fmt.Sprintf("domain %d", sorted[wrong]), -1,
				"the domain with id "+urlnorm.FormatID(keys[order[wrong]].ID), "another")
		}
	}
	return nil
}
