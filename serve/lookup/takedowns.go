package lookup

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/urlake/urlake/indexbuild/deletion"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
)

// tablesAtOnce is how many deletion tables are opened at the same time.
const tablesAtOnce = 8

// takedowns are those of one manifest. A request uses the ones that it began with.
type takedowns struct {
	epoch  uint64
	object string // the document, "" if there never was a takedown
	rules  int64
	// segments are those that the rules were applied to, by what versions have of them
	// (catalog.Segment.View).
	segments map[string]catalog.TakedownSegment
	// took is how long it took to read them.
	took time.Duration

	mu     sync.Mutex
	tables map[string]*deletion.Table // those that are open, by object
}

// loadTakedowns reads the takedowns of a manifest, unless they are known, and opens the tables of
// all open segments before any request uses them. Tables that did not change stay open. The
// caller holds s.loading.
func (s *Server) loadTakedowns(ctx context.Context, m *catalog.Manifest) error {
	before := s.takedowns.Load()
	object := ""
	if m.Takedowns != nil {
		object = m.Takedowns.Object
	}
	if before != nil && before.object == object {
		return nil
	}
	started := time.Now()
	doc, err := catalog.ReadTakedowns(ctx, s.store, m.Takedowns)
	if err != nil {
		return fmt.Errorf("takedowns: %w", err)
	}
	t := &takedowns{
		epoch: m.TakedownEpoch, object: object, rules: doc.RulePieces.Entries,
		segments: make(map[string]catalog.TakedownSegment, len(doc.Segments)), tables: map[string]*deletion.Table{},
	}
	for _, seg := range doc.Segments {
		t.segments[seg.ID] = seg
	}
	s.mu.Lock()
	open := make([]string, 0, len(s.segments))
	for _, shared := range s.segments {
		for view := range shared.views {
			open = append(open, view)
		}
	}
	s.mu.Unlock()
	if before != nil {
		before.mu.Lock()
		for _, id := range open {
			// A document leaves out the segments of versions that are no longer kept. What was true
			// of them still is unless the rules have changed.
			if old, ok := before.segments[id]; ok && before.epoch == t.epoch {
				if _, covered := t.segments[id]; !covered {
					t.segments[id] = old
				}
			}
		}
		for _, seg := range t.segments {
			if seg.Table != nil && before.tables[seg.Table.Key] != nil {
				t.tables[seg.Table.Key] = before.tables[seg.Table.Key]
			}
		}
		before.mu.Unlock()
	}
	group, groupCtx := newGroup(ctx)
	group.SetLimit(tablesAtOnce)
	for _, id := range open {
		group.Go(func() error {
			if _, covered := t.segments[id]; !covered {
				return nil // a version that is no longer kept has it
			}
			_, err := s.table(groupCtx, t, id)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("takedowns: %w", err)
	}
	t.took = time.Since(started)
	s.takedowns.Store(t)
	if object != "" {
		s.opt.Log.LogAttrs(ctx, slog.LevelInfo, "takedowns read", slog.Uint64("epoch", t.epoch),
			slog.Int64("takedowns", t.rules), slog.Int64("us", t.took.Microseconds()))
	}
	return nil
}

// table returns the table of the takedowns for what a version has of a segment, nil if they hide
// nothing of it, so that the version's own table stands. The error is
// ErrGone for one that the rules were not applied to: no version that is kept has it.
func (s *Server) table(ctx context.Context, t *takedowns, id string) (*deletion.Table, error) {
	seg, ok := t.segments[id]
	if !ok && t.rules > 0 {
		return nil, fmt.Errorf("%w: takedowns have changed since", ErrGone)
	}
	if seg.Table == nil {
		return nil, nil
	}
	t.mu.Lock()
	table := t.tables[seg.Table.Key]
	t.mu.Unlock()
	if table != nil {
		return table, nil
	}
	table, err := deletion.Open(ctx, s.store, *seg.Table, s.frames)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	t.tables[seg.Table.Key] = table
	t.mu.Unlock()
	return table, nil
}

// hidden is the number of rows that are hidden in what a version has of segments. Those that the
// takedowns do not cover count as shown: they are of versions that nobody can ask for.
func (t *takedowns) hidden(views []string) (rows int64) {
	for _, id := range views {
		rows += t.segments[id].Hidden
	}
	return rows
}

func (t *takedowns) memoryBytes() (n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, table := range t.tables {
		n += table.MemoryBytes()
	}
	return n
}

// view is a version as its dead rows and the takedowns leave it. It is immutable.
type view struct {
	takedowns *takedowns
	tables    []*deletion.Table // of the snapshot's segments; nil where all rows are left
	any       bool              // a table is not nil
	datasets  []catalog.Dataset // with the rows that are left
	rows      int64             // that are left
	// whole is the version for whoever may read all of it.
	whole *Snapshot
}

// view returns the version as the newest takedowns leave it, with all datasets.
func (s *openVersion) view(ctx context.Context) (*view, error) {
	t := s.server.takedowns.Load()
	if v := s.applied.Load(); v != nil && v.takedowns == t {
		return v, nil
	}
	return s.viewBy(ctx, t)
}

// viewBy is view for certain takedowns.
func (s *openVersion) viewBy(ctx context.Context, t *takedowns) (*view, error) {
	v := &view{
		takedowns: t, tables: make([]*deletion.Table, len(s.segments)), datasets: s.every, rows: s.version.Counts.Rows,
	}
	gone := map[uint32]int64{}
	for i := range s.version.Segments {
		table, err := s.server.table(ctx, t, s.version.Segments[i].View())
		if err != nil {
			return nil, fmt.Errorf("version %s: %w", s.version.ID, err)
		}
		if table == nil { // the version counts no dead rows
			v.tables[i] = s.dead[i]
		} else {
			v.tables[i] = table
			for dataset, rows := range table.Beyond(s.dead[i]) {
				gone[dataset] += rows
				v.rows -= rows
			}
		}
		v.any = v.any || v.tables[i] != nil
	}
	if len(gone) > 0 {
		v.datasets = slices.Clone(s.every)
		for id, rows := range gone {
			at, ok := slices.BinarySearchFunc(v.datasets, id, func(d catalog.Dataset, id uint32) int { return cmp.Compare(d.ID, id) })
			if !ok || rows < 0 || v.datasets[at].Rows < rows {
				return nil, codec.Corrupt(t.object, "sums", -1, fmt.Sprintf("rows of datasets of version %s", s.version.ID),
					fmt.Sprintf("%d rows of dataset %d", rows, id))
			}
			v.datasets[at].Rows -= rows
		}
	}
	v.whole = &Snapshot{openVersion: s, seen: v}
	s.applied.Store(v)
	return v, nil
}

// left returns what is left of a domain in segment i: the set of datasets, nil if it is empty, and
// the entries of the table. Set is what the segment has, and is not changed.
func (v *view) left(ctx context.Context, i int, k segment.Key, set *roaring.Bitmap) (*roaring.Bitmap, []deletion.Entry, error) {
	if set == nil || !v.tables[i].May(k) {
		return set, nil, nil
	}
	entries, err := v.tables[i].Entries(ctx, k, 0, 1<<32-1)
	if err != nil || len(entries) == 0 {
		return set, nil, err
	}
	set = set.Clone()
	for j := range entries {
		if entries[j].Rows == 0 {
			set.Remove(entries[j].Dataset)
		}
	}
	if set.IsEmpty() {
		set = nil
	}
	return set, entries, nil
}

// apply puts what is left in the place of the entries of a segment. Both ascend by dataset.
func (v *view) apply(i int, entries []segment.Entry, left []deletion.Entry) ([]segment.Entry, error) {
	out := entries[:0]
	for _, e := range entries {
		for len(left) > 0 && left[0].Dataset < e.Dataset {
			left = left[1:]
		}
		if len(left) > 0 && left[0].Dataset == e.Dataset {
			if err := v.fits(i, &e, &left[0]); err != nil {
				return nil, err
			}
			if e.Totals = left[0].Totals; e.Rows == 0 {
				continue
			}
		}
		out = append(out, e)
	}
	return out, nil
}

// fits checks that an entry of a deletion table is about the rows that the segment has.
func (v *view) fits(i int, e *segment.Entry, left *deletion.Entry) error {
	if left.Rows+left.Dead != e.Rows {
		return codec.Corrupt(v.tables[i].Ref().Key, "entries", -1,
			fmt.Sprintf("%d rows of domain %016x in dataset %d", e.Rows, e.ID, e.Dataset), left.Rows+left.Dead)
	}
	return nil
}

// leftOf returns what is left of an entry of a segment, as its deletion table says. It is zero if
// nothing is left.
func leftOf(ctx context.Context, table *deletion.Table, e *segment.Entry) (segment.Totals, error) {
	if !table.May(e.Key) {
		return e.Totals, nil
	}
	left, ok, err := table.Entry(ctx, e.Key, e.Dataset)
	if err != nil || !ok {
		return e.Totals, err
	}
	return left.Totals, nil
}
