// Package deadrows takes batches out of a segment without building it again. It writes the overlay
// (package overlay) of the rows that are left when batches of a segment are retired or replaced.
// The version names the overlay beside the segment (manifest.Dead).
//
// That costs what the batches cost. Their own postings say where their rows are; the rows of a
// batch of a union are found in one pass over the parts of the union, which reads four columns. The
// totals of a domain follow from those of the segment and those of the dead rows, all but one: if a
// dead row has the first or the last time of all, or if no size is left, the rows that are left are
// read, of the columns of times or sizes alone.
package deadrows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/segment/overlay"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/takedown"
)

const (
	// domainsAtOnce is about how many domains with dead rows are kept in memory. Of more the
	// batches are read several times, each time for a range of domains.
	domainsAtOnce = 2 << 20
	// scanRows is how many rows of the part of a union are read at once.
	scanRows = 64 << 10
	// cacheBytes is what is kept of the segment's frames.
	cacheBytes = 64 << 20
)

// Batch is a batch whose rows die.
type Batch struct {
	// Stored is what has its rows: the batch itself, or a union.
	Stored segment.BatchRef
	// Member is the name of the batch in a union, "" if all rows of Stored die.
	Member string
	// Rows is the number of its rows.
	Rows int64
}

// Write writes the overlay that takes batches out of a segment of a version, beside those that are
// dead already, and returns what the next version is to say of the segment, all but the list of
// batches. A damaged file is a *codec.CorruptError, one of a batch a *postings.DamageError.
func Write(ctx context.Context, store blob.Store, s *manifest.Segment, batches []Batch) (manifest.Dead, error) {
	dead, err := write(ctx, store, s, batches, domainsAtOnce)
	if err != nil {
		return manifest.Dead{}, fmt.Errorf("take batches out of segment %s: %w", s.ID, err)
	}
	return dead, nil
}

func write(
	ctx context.Context, store blob.Store, s *manifest.Segment, batches []Batch, domains int64,
) (manifest.Dead, error) {
	ref := segment.Ref{ID: s.ID, XXH64: s.SegmentXXH64, Bytes: s.Bytes, Domains: s.Domains, Rows: s.Rows}
	seg, err := segment.Open(ctx, store, ref, segment.Options{
		Cache: segment.NewFrameCache(cacheBytes), PostingsOnly: true, WholeFiles: true,
	})
	if err != nil {
		return manifest.Dead{}, err
	}
	defer seg.Close()
	w := &writer{ctx: ctx, store: store, seg: seg, files: map[string]uint32{}}
	for id := range seg.Files().Len() {
		w.files[seg.Files().Info(uint32(id)).Path] = uint32(id)
	}
	want := int64(0)
	for _, b := range batches {
		want += b.Rows
	}
	merged := overlay.Merger{}
	if s.Dead != nil {
		if w.before, err = overlay.Open(ctx, store, overlay.Ref(s.Dead.Overlay), segment.NewFrameCache(cacheBytes)); err != nil {
			return manifest.Dead{}, err
		}
		end := merged.Merge(w.before.All(ctx), func(e *overlay.Entry) bool { return w.replaced[owner{e.Key, e.Dataset}] })
		defer end()
		want += s.Dead.Rows
	}
	// A row has one domain, so there are at most as many domains as rows.
	passes := 1 + uint64(want/domains)
	width := math.MaxUint64 / passes
	for pass := range passes {
		first, last := pass*width, (pass+1)*width-1
		if pass == passes-1 {
			last = math.MaxUint64
		}
		left, err := w.left(batches, first, last)
		if err != nil {
			return manifest.Dead{}, err
		}
		for i := range left {
			if err := merged.Add(left[i].Entry, left[i].tuples); err != nil {
				return manifest.Dead{}, err
			}
		}
	}
	if err := merged.Drain(); err != nil {
		return manifest.Dead{}, err
	}
	if got := merged.Dead(); got != want {
		return manifest.Dead{}, codec.Corrupt(segment.Prefix(s.ID), "dead rows", -1, fmt.Sprintf("%d of the batches", want), got)
	}
	data, file, err := merged.Finish()
	if err != nil {
		return manifest.Dead{}, err
	}
	key := manifest.DeadKey(s.ID, lake.Digest(data))
	if _, err := store.Put(ctx, key, data, blob.Condition{}); err != nil {
		return manifest.Dead{}, err
	}
	return manifest.Dead{Overlay: takedown.Overlay(overlay.NewRef(key, file)), Rows: want}, nil
}

// owner is a domain in a dataset.
type owner struct {
	segment.Key
	dataset uint32
}

func compareOwners(a, b owner) int {
	return cmp.Or(segment.CompareKeys(a.Key, b.Key), cmp.Compare(a.dataset, b.dataset))
}

// died are dead rows of a domain in a dataset.
type died struct {
	totals segment.Totals
	tuples []segment.Tuple
}

// remains is what is left of an entry.
type remains struct {
	overlay.Entry
	tuples []segment.Tuple
	// times and sizes tell that these totals have to be read from the rows.
	times, sizes bool
}

type writer struct {
	ctx    context.Context
	store  blob.Store
	seg    *segment.Segment
	before *overlay.Overlay  // of batches that died before, may be nil
	files  map[string]uint32 // of the segment, by object
	// replaced are the entries that are made anew.
	replaced map[owner]bool
}

// left returns what is left of each entry with rows of the batches, of the domains from first to
// last.
func (w *writer) left(batches []Batch, first, last uint64) ([]remains, error) {
	all := map[owner]*died{}
	for _, b := range batches {
		if err := w.find(&b, func(k segment.Key, t *segment.Totals, tuples []segment.Tuple) {
			if k.ID < first || k.ID > last {
				return
			}
			o := owner{k, b.Stored.DatasetID}
			d := all[o]
			if d == nil {
				d = &died{}
				all[o] = d
			}
			d.totals.Add(*t)
			d.tuples = append(d.tuples, tuples...)
		}); err != nil {
			return nil, err
		}
	}
	owners := make([]owner, 0, len(all))
	w.replaced = make(map[owner]bool, len(all))
	for o := range all {
		owners = append(owners, o)
		w.replaced[o] = true
	}
	slices.SortFunc(owners, compareOwners)
	out := make([]remains, len(owners))
	for i, o := range owners {
		var err error
		if out[i], err = w.subtract(o, all[o]); err != nil {
			return nil, err
		}
		delete(all, o)
	}
	return out, w.readTotals(out)
}

// find calls each with the rows of a batch: those of a domain in one part, or some of them. The
// tuples belong to find.
func (w *writer) find(b *Batch, each func(segment.Key, *segment.Totals, []segment.Tuple)) error {
	data, _, err := w.store.Get(w.ctx, b.Stored.Key())
	var record *lake.Batch
	if err == nil {
		record, err = lake.DecodeBatch(data, b.Stored.Key())
	}
	if err != nil {
		return postings.Damaged(b.Stored, err)
	}
	for _, o := range record.Postings {
		r, err := postings.Open(w.ctx, w.store, b.Stored, o)
		if err != nil {
			return err
		}
		for n, p := range r.Parts() {
			file, ok := w.files[p.Key]
			if !ok {
				return codec.Corrupt(segment.Prefix(w.seg.Info().Segment)+segment.FilesName, "files", -1, p.Key, "none")
			}
			if b.Member == "" {
				err = w.whole(r, n, file, each)
			} else {
				err = postings.Damaged(b.Stored, w.member(r, n, file, b.Member, each))
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// whole finds all rows of a part, by its postings.
func (w *writer) whole(
	r *postings.Reader, n int, file uint32, each func(segment.Key, *segment.Totals, []segment.Tuple),
) error {
	for d, err := range r.PartDomains(w.ctx, n) {
		if err != nil {
			return err
		}
		for i := range d.Tuples {
			d.Tuples[i].FileID = file
		}
		each(postings.DomainKey(d.Name), &d.Totals, d.Tuples)
	}
	return nil
}

// member finds the rows of a batch in a part of a union.
func (w *writer) member(
	r *postings.Reader, n int, file uint32, batch string, each func(segment.Key, *segment.Totals, []segment.Tuple),
) error {
	blocks, err := r.Pages(w.ctx, n)
	if err != nil {
		return err
	}
	key := r.Parts()[n].Key
	scan := postings.PartScanner{Key: key, Read: func(ctx context.Context, off, n int64) ([]byte, error) {
		return w.store.ReadRange(ctx, key, off, n)
	}}
	columns := []part.Column{part.ColBatch, part.ColDomain, part.ColTS, part.ColSize}
	for rows, err := range scan.Scan(w.ctx, blocks, scanRows, columns) {
		if err != nil {
			return err
		}
		for i := 0; i < rows.Rows; {
			domain := rows.Domain[i]
			var t segment.Totals
			var tuples []segment.Tuple
			for ; i < rows.Rows && rows.Domain[i] == domain; i++ {
				if rows.Batch[i] != batch {
					continue
				}
				addRow(&t, rows.Columns, i)
				at := segment.Tuple{FileID: file, RowGroup: rows.Group, FirstRow: rows.FirstRow + int64(i), Rows: 1}
				if k := len(tuples) - 1; k >= 0 && tuples[k].FirstRow+tuples[k].Rows == at.FirstRow {
					tuples[k].Rows++
				} else {
					tuples = append(tuples, at)
				}
			}
			if t.Rows > 0 {
				each(segment.KeyOf(domain), &t, tuples)
			}
		}
	}
	return nil
}

// addRow adds a row to totals.
func addRow(t *segment.Totals, c *part.Columns, i int) {
	one := segment.Totals{Rows: 1, HasSize: c.HasSize[i], HasTS: c.HasTS[i]}
	if one.HasSize {
		one.Size = c.Size[i]
	}
	if one.HasTS {
		one.FirstTS, one.LastTS = c.TS[i], c.TS[i]
	}
	t.Add(one)
}

// subtract takes dead rows out of an entry, as far as that follows without reading rows.
func (w *writer) subtract(o owner, d *died) (remains, error) {
	entry, ok, err := w.seg.Entry(w.ctx, o.Key, o.dataset)
	if err != nil {
		return remains{}, err
	}
	corrupt := func(want, got any) (remains, error) {
		return remains{}, codec.Corrupt(segment.Prefix(w.seg.Info().Segment)+segment.PostingsName(0),
			fmt.Sprintf("domain %016x in dataset %d", o.ID, o.dataset), -1, want, got)
	}
	if !ok {
		return corrupt(fmt.Sprintf("%d rows or more", d.totals.Rows), "none")
	}
	had := overlay.Entry{Key: o.Key, Dataset: o.dataset, Totals: entry.Totals}
	var tuples []segment.Tuple
	earlier := false
	if w.before.May(o.Key) {
		var e overlay.Entry
		if e, earlier, err = w.before.Entry(w.ctx, o.Key, o.dataset); err != nil {
			return remains{}, err
		}
		if earlier {
			had = e
			tuples, err = e.Tuples()
		}
	}
	if !earlier {
		tuples, err = w.seg.Tuples(w.ctx, entry)
	}
	if err != nil {
		return remains{}, err
	}
	slices.SortFunc(d.tuples, compareTuples)
	left, taken := difference(tuples, d.tuples)
	if taken != d.totals.Rows || taken > had.Rows {
		return corrupt(fmt.Sprintf("%d rows, of which %d die", had.Rows, d.totals.Rows), taken)
	}
	out := remains{tuples: left, Entry: overlay.Entry{Key: o.Key, Dataset: o.dataset,
		Dead: had.Dead + taken, DeadSize: overlay.AddSize(had.DeadSize, d.totals.Size)}}
	out.Rows = had.Rows - taken
	switch {
	case out.Rows == 0:
		return out, nil
	case !had.HasSize:
	case had.Size == math.MaxInt64 || had.Size == d.totals.Size:
		out.sizes = true
	default:
		out.HasSize, out.Size = true, had.Size-d.totals.Size
	}
	switch {
	case !had.HasTS:
	case d.totals.HasTS && (d.totals.FirstTS == had.FirstTS || d.totals.LastTS == had.LastTS):
		out.times = true
	default:
		out.HasTS, out.FirstTS, out.LastTS = true, had.FirstTS, had.LastTS
	}
	if out.Size < 0 {
		return corrupt(fmt.Sprintf("a size of at least %d", d.totals.Size), had.Size)
	}
	return out, nil
}

// compareTuples orders tuples by file, row group and row.
func compareTuples(a, b segment.Tuple) int {
	return cmp.Or(segment.CompareTuples(a, b), cmp.Compare(a.FirstRow, b.FirstRow))
}

// difference returns the rows of all that are not in dead, and the number of those that are. Both
// are in order, and no row is in two tuples of either.
func difference(all, dead []segment.Tuple) (left []segment.Tuple, taken int64) {
	for _, t := range all {
		for t.Rows > 0 {
			for len(dead) > 0 && (segment.CompareTuples(dead[0], t) < 0 ||
				segment.CompareTuples(dead[0], t) == 0 && dead[0].FirstRow+dead[0].Rows <= t.FirstRow) {
				dead = dead[1:]
			}
			if len(dead) == 0 || segment.CompareTuples(dead[0], t) > 0 || dead[0].FirstRow >= t.FirstRow+t.Rows {
				left = append(left, t)
				break
			}
			if before := dead[0].FirstRow - t.FirstRow; before > 0 {
				keep := t
				keep.Rows = before
				left = append(left, keep)
			}
			from, end := max(t.FirstRow, dead[0].FirstRow), min(t.FirstRow+t.Rows, dead[0].FirstRow+dead[0].Rows)
			taken += end - from
			t.FirstRow, t.Rows = end, t.FirstRow+t.Rows-end
		}
	}
	return left, taken
}

// IsDamage reports whether Write has failed because something in the lake is damaged or missing. A
// segment can be built again instead, from the batches that are left.
func IsDamage(err error) bool {
	var d *postings.DamageError
	return errors.As(err, &d) || errors.Is(err, codec.ErrCorrupt) || errors.Is(err, blob.ErrNotExist)
}
