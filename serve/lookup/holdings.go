package lookup

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/urlake/urlake/indexbuild/deletion"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/turns"
)

// Holding is what one segment has of a domain in one dataset.
type Holding struct {
	// Segment is its index in the segments of the version.
	Segment int
	Dataset uint32
	// Totals are those of the rows that are shown. Hidden counts the others: those of batches that
	// the version does not have, and those that takedowns hide.
	segment.Totals
	Hidden int64

	entry    segment.Entry
	left     deletion.Entry
	overlaid bool
}

// Holdings are what a version has of one domain, by segment and dataset, as the snapshot's reader
// may read it. They are valid until the snapshot's Release, and safe for concurrent use. Package
// tree counts with them.
type Holdings struct {
	Answer
	Key segment.Key
	// All has those of which the segment has a row, also if all of them are hidden. They ascend by
	// segment and dataset.
	All []Holding
	// Covered tells for each segment whether All has every dataset that the segment has of the
	// domain.
	Covered []bool

	s *Snapshot
}

// Holdings finds what the version has of the target's domain, in some datasets that it has, or in
// all for nil. It reads no rows.
func (s *Snapshot) Holdings(ctx context.Context, t Target, only []uint32) (*Holdings, error) {
	for _, id := range only {
		if _, ok := s.Dataset(id); !ok {
			return nil, fmt.Errorf("%w: %d", ErrUnknownDataset, id)
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.server.opt.Deadline, ErrDeadline)
	defer cancel()
	v, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	r, err := s.resolve(ctx, v, t)
	if err != nil {
		return nil, deadline(ctx, err)
	}
	h := &Holdings{Answer: s.answer(v, r), Key: r.key, Covered: make([]bool, len(s.segments)), s: s}
	wanted := roaring.BitmapOf(only...)
	found := make([][]Holding, len(s.segments))
	full := make([]*roaring.Bitmap, len(s.segments))
	sets := make([]*roaring.Bitmap, len(s.segments))
	for i := range s.segments {
		if full[i], err = s.allMembers(i, r.key); err != nil {
			return nil, err
		}
		if sets[i] = s.visibleOf(full[i]); sets[i] != nil && only != nil {
			sets[i] = roaring.And(sets[i], wanted)
		}
		if sets[i] != nil && sets[i].IsEmpty() {
			sets[i] = nil
		}
		h.Covered[i] = full[i] == nil || sets[i] != nil && sets[i].GetCardinality() == full[i].GetCardinality()
	}
	err = s.each(ctx, func(i int) bool { return sets[i] != nil }, func(ctx context.Context, i int) error {
		entries, err := s.segments[i].Entries(ctx, r.key, 0, 0)
		if err != nil {
			return err
		}
		stray := func(e segment.Entry) bool { return !full[i].Contains(e.Dataset) }
		if uint64(len(entries)) != full[i].GetCardinality() || slices.ContainsFunc(entries, stray) {
			return s.disagree(i, r.key.ID)
		}
		var left []deletion.Entry
		if v.tables[i].May(r.key) {
			if left, err = v.tables[i].Entries(ctx, r.key, 0, math.MaxUint32); err != nil {
				return err
			}
		}
		for _, e := range entries {
			for len(left) > 0 && left[0].Dataset < e.Dataset {
				left = left[1:]
			}
			if !sets[i].Contains(e.Dataset) {
				continue
			}
			one := Holding{Segment: i, Dataset: e.Dataset, Totals: e.Totals, entry: e}
			if len(left) > 0 && left[0].Dataset == e.Dataset {
				if err := v.fits(i, &e, &left[0]); err != nil {
					return err
				}
				one.left, one.overlaid, one.Totals, one.Hidden = left[0], true, left[0].Totals, left[0].Dead
			}
			found[i] = append(found[i], one)
		}
		return nil
	})
	if err != nil {
		return nil, deadline(ctx, err)
	}
	h.All = slices.Concat(found...)
	return h, nil
}

// Segment is the id of a segment of the version.
func (h *Holdings) Segment(i int) string { return h.s.version.Segments[i].ID }

// Store is the store of the lake, with the cache of decoded frames of index files.
func (h *Holdings) Store() (blob.Store, segment.Cache) { return h.s.server.store, h.s.server.frames }

// tuples finds the rows of a holding, those that are hidden or those that are shown.
func (h *Holdings) tuples(ctx context.Context, one *Holding, hidden bool) ([]segment.Tuple, error) {
	if !hidden {
		p := planned{entry: one.entry, left: one.left, overlaid: one.overlaid}
		err := p.load(ctx, h.s.segments[one.Segment])
		return p.tuples, err
	}
	if one.Hidden == 0 {
		return nil, nil
	}
	whole, err := h.s.segments[one.Segment].Tuples(ctx, one.entry)
	if err != nil {
		return nil, err
	}
	left, err := one.left.Tuples()
	if err != nil {
		return nil, err
	}
	dead, _ := deletion.Difference(whole, left)
	return dead, nil
}

// TooManyRowsError means that an answer takes more rows than it may read. Rows are those at least
// that it takes.
type TooManyRowsError struct{ Rows, Max int64 }

func (e *TooManyRowsError) Error() string {
	return fmt.Sprintf("the answer takes %d rows or more, and at most %d are read for one", e.Rows, e.Max)
}

// Read calls f for the rows of some holdings, those that are hidden or those that are shown, as far
// as a selection of one host, or of all rows, has them: rows [lo, hi) of columns that have host,
// path and size. It reads several row groups at the same time, but calls of f do not overlap.
// Within a row group they are in the order of its rows. They are in the turn of ctx (turns.Own),
// which f may give. It returns how many rows these were. If there are more than most, the error is
// a *TooManyRowsError, and f may have been called.
func (h *Holdings) Read(
	ctx context.Context, holdings []Holding, hidden bool, at Selection, most int64, f func(c *part.Columns, lo, hi int) error,
) (rows int64, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, h.s.server.opt.Deadline, ErrDeadline)
	defer cancel()
	pieces := make([][]piece, len(holdings))
	lower, upper := at.bounds()
	group, groupCtx := newGroup(ctx)
	group.SetLimit(searchesAtOnce)
	for i := range holdings {
		group.Go(func() error {
			one := &holdings[i]
			tuples, err := h.tuples(groupCtx, one, hidden)
			if err != nil {
				return err
			}
			pieces[i] = appendPieces(nil, one.Segment, one.Dataset, tuples)
			for j := 0; !at.All() && j < len(pieces[i]); j++ {
				pc, pg := &pieces[i][j], newPager(h.s, 0)
				lo, err := pg.search(groupCtx, pc, pc.tuple.FirstRow, pc.end(), lower)
				if err != nil {
					return err
				}
				hi, err := pg.search(groupCtx, pc, lo, pc.end(), upper)
				if err != nil {
					return err
				}
				pc.clip(lo, hi)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, deadline(ctx, err)
	}
	for i := range pieces {
		for j := range pieces[i] {
			rows += pieces[i][j].rows()
		}
	}
	if rows > most {
		return rows, &TooManyRowsError{rows, most}
	}
	var one sync.Mutex
	group, groupCtx = newGroup(ctx)
	group.SetLimit(searchesAtOnce)
	own := turns.Own(ctx) // of whoever has the lock
	for i := range pieces {
		for j := range pieces[i] {
			group.Go(func() error {
				return h.readPiece(groupCtx, &pieces[i][j], func(c *part.Columns, lo, hi int) error {
					one.Lock()
					defer one.Unlock()
					defer own.Give()
					for ; lo < hi; lo += rowsInTurn {
						if err := own.Yield(groupCtx); err != nil {
							return err
						}
						if err := f(c, lo, min(lo+rowsInTurn, hi)); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
	}
	return rows, deadline(ctx, group.Wait())
}

// rowsInTurn is how many rows of a domain are looked at between two chances for other requests.
const rowsInTurn = 256

// readPiece reads the rows of a piece, some pages at a time, past the cache of pages.
func (h *Holdings) readPiece(ctx context.Context, pc *piece, f func(c *part.Columns, lo, hi int) error) error {
	file, err := h.s.file(ctx, pc)
	if err != nil {
		return err
	}
	for row, ok := pc.next(pc.tuple.FirstRow); ok; row, ok = pc.next(row) {
		blocks, err := h.s.segments[pc.segment].PageBlocks(ctx, pc.tuple.FileID, pc.tuple.RowGroup, row, 1)
		if err != nil {
			return err
		}
		b := blocks[0]
		last := min(pc.end(), b.FirstRow+b.Rows())
		pages := int64(1)
		_, end := b.Page(row)
		for ; end < last && pages < readAhead && pc.count(end, end+1) > 0; pages++ {
			_, end = b.Page(end)
		}
		end = min(end, last)
		if err := h.readPages(ctx, pc, b, file.Path, row, end, pages, f); err != nil {
			return err
		}
		row = end
	}
	return nil
}

// readPages reads rows [row, end) of a piece, which are on adjacent pages.
func (h *Holdings) readPages(
	ctx context.Context, pc *piece, b *part.PageIndexBlock, name string, row, end, pages int64, f func(c *part.Columns, lo, hi int) error,
) error {
	gate := h.s.server.decodes(ctx)
	if err := gate.Acquire(ctx, pages); err != nil {
		return err
	}
	defer gate.Release(pages)
	plan, err := part.NewPlan(b, row, end-row, part.ColHost, part.ColPathQuery, part.ColSize)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	data, err := plan.Read(ctx, h.s.server.store, name)
	if err != nil {
		return err
	}
	turn := turns.Of(ctx)
	if err := turn.Take(ctx); err != nil {
		return err
	}
	c, err := plan.Decode(name, data)
	turn.Give()
	if err != nil {
		return err
	}
	for i := range c.Host {
		if (i == 0 || c.Host[i] != c.Host[i-1]) && !ofDomain(c.Host[i], h.Domain) {
			return codec.Corrupt(name, "column host", -1,
				"hosts of domain "+urlnorm.FormatID(h.Key.ID), "a host of another domain")
		}
	}
	for from, ok := pc.next(row); ok && from < end; {
		to := from + 1
		if i := pc.spanAt(from); i < len(pc.spans) {
			to = min(end, pc.spans[i].first+pc.spans[i].rows)
		}
		if err := f(c, int(from-row), int(to-row)); err != nil {
			return err
		}
		from, ok = pc.next(to)
	}
	return nil
}
