package deletion

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/urlnorm"
)

const (
	// fewNames is up to how many domains are looked up in the postings alone. For more the perfect
	// hash is opened, which a store other than a folder has to copy as a whole.
	fewNames = 256
	// pagesAtOnce is how many pages of a part are decoded together.
	pagesAtOnce = 8
)

// Rules say which rows of a segment takedowns hide.
type Rules struct {
	// InForce are all rules. The entries of domains that Changed names are made anew; the others
	// stay as they are in the takedowns' table. A nil Changed makes all anew.
	InForce, Changed *catalog.Takedowns
	// Probe are rules whose matches are counted, Undated the same rules without their times. Both
	// may be nil.
	Probe, Undated *catalog.Takedowns
	// Suffixes is the public suffix list of the versions with the segment, nil if it is not known.
	Suffixes *urlnorm.SuffixList
	// TempDir holds copies of index files for many rules; "" is the system's.
	TempDir string
}

// Match is what a probe matches in a dataset of a segment.
type Match struct {
	Rows, Undated int64
	Domains       map[segment.Key]bool
}

// Add adds what a probe matches elsewhere.
func (m *Match) Add(o *Match) {
	m.Rows += o.Rows
	m.Undated += o.Undated
	if m.Domains == nil {
		m.Domains = map[segment.Key]bool{}
	}
	for k := range o.Domains {
		m.Domains[k] = true
	}
}

// OfRules writes the table of the rows of a version's segment that the version lacks and that rules
// hide. It returns what covers the segment then, and what the probe matches by dataset. If rules
// hide nothing, no table covers the segment. Have is what covered it under the rules before; if
// there is none, Changed is nil. Rows are read only if it depends on them whether they are hidden.
func OfRules(
	ctx context.Context, store blob.Store, s *catalog.Segment, have catalog.TakedownSegment, r Rules,
) (covered catalog.TakedownSegment, matched map[uint32]*Match, err error) {
	covered, matched, err = ofRules(ctx, store, s, have, r)
	if err != nil {
		return catalog.TakedownSegment{}, nil, fmt.Errorf("segment %s: %w", s.ID, err)
	}
	return covered, matched, nil
}

func ofRules(
	ctx context.Context, store blob.Store, s *catalog.Segment, have catalog.TakedownSegment, r Rules,
) (covered catalog.TakedownSegment, matched map[uint32]*Match, err error) {
	covered = catalog.TakedownSegment{ID: s.View()}
	changed := r.InForce
	if r.Changed != nil {
		changed, covered.Table, covered.Hidden = r.Changed, have.Table, have.Hidden
	}
	names := changed.Names()
	if s.Rows == 0 || len(names) == 0 {
		return covered, nil, nil
	}
	opt := segment.Options{PostingsOnly: len(names) <= fewNames}
	if !opt.PostingsOnly {
		if opt.CacheDir, err = os.MkdirTemp(r.TempDir, "urlake-takedowns-"); err != nil {
			return covered, nil, err
		}
		defer os.RemoveAll(opt.CacheDir)
	}
	b, err := newBuilder(ctx, store, s, opt)
	if err != nil {
		return covered, nil, err
	}
	defer b.seg.Close()
	domains, err := Domains(ctx, b.seg, changed, r.Suffixes)
	if err == nil && !opt.PostingsOnly {
		domains, err = present(b.seg, domains)
	}
	if err != nil {
		return covered, nil, err
	}
	again := make(map[segment.Key]bool, len(domains))
	for _, d := range domains {
		again[d.Key] = true
	}
	before := b.own
	if covered.Table != nil {
		if before, err = Open(ctx, store, *covered.Table, nil); err != nil {
			return covered, nil, err
		}
	}
	stop := b.change(before, func(e *Entry) bool { return again[e.Key] })
	defer stop()
	// Without a table before, none is begun until a row is hidden: in most segments none is.
	begun, touched := r.Changed != nil, false
	var unhidden []remains
	matched = map[uint32]*Match{}
	for _, d := range domains {
		entries, err := b.seg.Entries(ctx, d.Key, 0, 0)
		if err != nil {
			return covered, nil, err
		}
		touched = touched || len(entries) > 0
		m := matchers{r.InForce.For(d.Name), r.Probe.For(d.Name), r.Undated.For(d.Name)}
		for _, e := range entries {
			had, err := b.live(e)
			if err != nil {
				return covered, nil, err
			}
			left, err := b.leave(d.Name, &had, m)
			if err != nil {
				return covered, nil, err
			}
			left.count(matched)
			if left.Dead == 0 {
				continue
			}
			unhidden = append(unhidden, left.remains)
			if begun = begun || left.Dead > had.own.Dead; !begun {
				continue
			}
			for i := range unhidden {
				if err := b.add(&unhidden[i]); err != nil {
					return covered, nil, err
				}
			}
			unhidden = unhidden[:0]
		}
	}
	if !begun || !touched {
		return covered, matched, nil
	}
	if err := b.advance(nil); err != nil {
		return covered, nil, err
	}
	covered.Table = nil
	if covered.Hidden = b.out.Dead() - (s.Rows - s.Live()); covered.Hidden > 0 {
		table, err := b.finish(s.View())
		if err != nil {
			return covered, nil, err
		}
		covered.Table = &table
	}
	return covered, matched, nil
}

// Domain is a domain in which rules may hide rows.
type Domain struct {
	Name string
	segment.Key
}

// Domains returns the domains in which rules may hide rows of a segment, by key. The segment need
// not have all of them. List is the one of the versions with the segment: rules are made by the
// list that a lake follows, and a domain that a rule names can be a public suffix of another one.
// If the list is nil, all domains below are returned, which may be more.
func Domains(
	ctx context.Context, seg *segment.Segment, rules *catalog.Takedowns, list *urlnorm.SuffixList,
) ([]Domain, error) {
	parents := map[string]bool{}
	for _, d := range rules.Domains() {
		if list == nil || list.Domain("a."+d) == "a."+d {
			parents[d] = true
		}
	}
	names := rules.Names()
	if len(parents) > 0 {
		for domain, err := range seg.Domains(ctx, 0) {
			if err != nil {
				return nil, err
			}
			for name := domain; ; {
				_, above, ok := strings.Cut(name, ".")
				if !ok {
					break
				}
				if parents[above] {
					names = append(names, strings.Clone(domain))
					break
				}
				name = above
			}
		}
		slices.Sort(names)
		names = slices.Compact(names)
	}
	domains := make([]Domain, len(names))
	for i, name := range names {
		domains[i] = Domain{name, segment.KeyOf(name)}
	}
	slices.SortFunc(domains, func(a, b Domain) int { return segment.CompareKeys(a.Key, b.Key) })
	return domains, nil
}

// present returns the domains that the perfect hash of a segment may have.
func present(seg *segment.Segment, domains []Domain) ([]Domain, error) {
	keys := make([]segment.Key, len(domains))
	for i := range domains {
		keys[i] = domains[i].Key
	}
	ordinals := make([]uint32, len(keys))
	if err := seg.Ordinals(keys, ordinals); err != nil {
		return nil, err
	}
	have := domains[:0]
	for i, o := range ordinals {
		if int64(o) < seg.Info().Domains {
			have = append(have, domains[i])
		}
	}
	return have, nil
}

// matchers tell which rows of a domain are hidden, which a probe matches, and which it would match
// if they had a time.
type matchers struct{ rules, probe, undated *catalog.Matcher }

// ruled is what rules leave of an entry, and what a probe matches of it.
type ruled struct {
	remains
	probed, undated int64
}

// count adds what the probe matches, by dataset.
func (r *ruled) count(matched map[uint32]*Match) {
	if r.probed == 0 && r.undated == 0 {
		return
	}
	m := matched[r.Dataset]
	if m == nil {
		m = &Match{Domains: map[segment.Key]bool{}}
		matched[r.Dataset] = m
	}
	m.Rows += r.probed
	m.Undated += r.undated
	if r.probed > 0 {
		m.Domains[r.Key] = true
	}
}

// leave finds out what rules leave of an entry of a domain.
func (b *builder) leave(domain string, e *live, m matchers) (ruled, error) {
	out := ruled{remains: remains{Entry: Entry{Key: e.Key, Dataset: e.Dataset, Dead: e.own.Dead, DeadSize: e.own.DeadSize}}}
	hides, probes := m.rules.May(e.Dataset), m.probe.May(e.Dataset)
	all, allProbed := m.rules.HidesAll(e.Dataset), m.probe.HidesAll(e.Dataset)
	if allProbed {
		out.probed, probes, m.probe = e.Rows, false, nil
	}
	if all {
		out.Dead, out.DeadSize = out.Dead+e.Rows, AddSize(out.DeadSize, e.Size)
	}
	if e.Rows == 0 || all && !probes {
		return out, nil
	}
	if !all {
		out.Totals = e.Totals
	}
	if !hides && !probes && e.own.Dead == 0 {
		return out, nil
	}
	tuples, err := b.tuples(e)
	if err != nil {
		return out, err
	}
	if !all {
		out.tuples = tuples
	}
	if !probes && (all || !hides) {
		return out, nil
	}
	runs, err := readRows(b.ctx, b.store, b.seg, domain, e.Dataset, tuples, m)
	if err != nil {
		return out, err
	}
	var left remains
	for i := range runs {
		r := &runs[i].ruled
		left.Totals.Add(r.Totals)
		left.Dead += r.Dead
		left.DeadSize = AddSize(left.DeadSize, r.DeadSize)
		left.tuples = append(left.tuples, r.tuples...)
		out.probed += r.probed
		out.undated += r.undated
	}
	if left.Dead+left.Rows != e.Rows {
		return out, b.corrupt("rows", fmt.Sprintf("%d of domain %016x in dataset %d", e.Rows, e.ID, e.Dataset), left.Dead+left.Rows)
	}
	if !all {
		out.Totals, out.tuples = left.Totals, left.tuples
		out.Dead, out.DeadSize = out.Dead+left.Dead, AddSize(out.DeadSize, left.DeadSize)
	}
	return out, nil
}

// Count returns how many of some rows of a domain in a dataset of a segment a matcher hides, by
// part.
func Count(
	ctx context.Context, store blob.Store, seg *segment.Segment, domain string, dataset uint32, rows []segment.Tuple,
	m *catalog.Matcher,
) (map[string]int64, error) {
	runs, err := readRows(ctx, store, seg, domain, dataset, rows, matchers{rules: m})
	if err != nil {
		return nil, err
	}
	byPart := map[string]int64{}
	for i := range runs {
		if runs[i].Dead > 0 {
			byPart[runs[i].part] += runs[i].Dead
		}
	}
	return byPart, nil
}

// rowRun is consecutive rows of a block of a page index, and what rules leave of them.
type rowRun struct {
	part            string
	tuple           segment.Tuple
	block           *part.PageIndexBlock
	firstRow, count int64
	ruled
}

// readRows reads rows of a domain in a dataset, in runs, in order.
func readRows(
	ctx context.Context, store blob.Store, seg *segment.Segment, domain string, dataset uint32, tuples []segment.Tuple, m matchers,
) ([]rowRun, error) {
	var runs []rowRun
	for _, t := range tuples {
		f, err := seg.File(ctx, t.FileID)
		if err != nil {
			return nil, err
		}
		if f.DatasetID != dataset {
			return nil, codec.Corrupt(segment.Prefix(seg.Info().Segment)+segment.FilesName, fmt.Sprintf("line %d", t.FileID), -1,
				fmt.Sprintf("a part of dataset %d, as the postings say", dataset), f.DatasetID)
		}
		blocks, err := seg.PageBlocks(ctx, t.FileID, t.RowGroup, t.FirstRow, t.Rows)
		if err != nil {
			return nil, err
		}
		row, last := t.FirstRow, t.FirstRow+t.Rows
		for _, b := range blocks {
			for row < last && row < b.FirstRow+b.Rows() {
				end := row
				for range pagesAtOnce {
					if end < last && end < b.FirstRow+b.Rows() {
						_, end = b.Page(end)
					}
				}
				end = min(end, last)
				runs = append(runs, rowRun{part: f.Path, tuple: t, block: b, firstRow: row, count: end - row})
				row = end
			}
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readsAtOnce)
	for i := range runs {
		group.Go(func() error { return runs[i].read(ctx, store, domain, dataset, m) })
	}
	return runs, group.Wait()
}

// read reads the rows of a run.
func (n *rowRun) read(ctx context.Context, store blob.Store, domain string, dataset uint32, m matchers) error {
	columns := []part.Column{part.ColHost, part.ColTS, part.ColSize}
	paths := m.rules.NeedsPaths() || m.probe.NeedsPaths() || m.undated.NeedsPaths()
	if paths {
		columns = append(columns, part.ColScheme, part.ColPort, part.ColPathQuery)
	}
	c, err := part.ReadColumns(ctx, store, n.part, n.block, n.firstRow, n.count, columns...)
	if err != nil {
		return err
	}
	checked := ""
	for i := range c.Rows {
		row := catalog.Row{Dataset: dataset, Host: c.Host[i], TS: c.TS[i], HasTS: c.HasTS[i], Port: -1}
		if paths {
			row.Scheme, row.Port, row.Path = c.Scheme[i], c.Port[i], c.PathQuery[i]
		}
		if row.Host != checked {
			if rest, ok := strings.CutSuffix(row.Host, domain); !ok || rest != "" && !strings.HasSuffix(rest, ".") {
				return codec.Corrupt(n.part, "column host", -1,
					"hosts of domain "+urlnorm.FormatID(urlnorm.DomainID(domain)), "a host of another domain")
			}
			checked = row.Host
		}
		if m.probe.Hides(&row) {
			n.probed++
		} else if !row.HasTS && m.undated.Hides(&row) {
			n.undated++
		}
		if m.rules.Hides(&row) {
			n.Dead++
			n.DeadSize = AddSize(n.DeadSize, c.Size[i])
			continue
		}
		addRow(&n.Totals, c, i)
		at := n.firstRow + int64(i)
		if k := len(n.tuples); k > 0 && n.tuples[k-1].FirstRow+n.tuples[k-1].Rows == at {
			n.tuples[k-1].Rows++
		} else {
			n.tuples = append(n.tuples,
				segment.Tuple{FileID: n.tuple.FileID, RowGroup: n.tuple.RowGroup, FirstRow: at, Rows: 1})
		}
	}
	return nil
}
