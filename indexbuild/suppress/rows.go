package suppress

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/segment/overlay"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/partreader"
	"github.com/urlake/urlake/lake/takedown"
	"github.com/urlake/urlake/lake/urlnorm"
)

// pagesAtOnce is how many pages of a part are decoded together.
const pagesAtOnce = 8

// remains is what is left of an entry, and what a probe matches of it.
type remains struct {
	overlay.Entry
	tuples          []segment.Tuple
	probed, undated int64
}

// rowReader reads the rows of entries of what a version has of a segment.
type rowReader struct {
	store blob.Store
	seg   *segment.Segment
	dead  *overlay.Overlay // may be nil
}

func newRowReader(
	ctx context.Context, store blob.Store, seg *segment.Segment, dead *manifest.Dead,
) (*rowReader, error) {
	o, err := openDead(ctx, store, dead)
	return &rowReader{store: store, seg: seg, dead: o}, err
}

// openDead opens the overlay of dead rows, nil for none.
func openDead(ctx context.Context, store blob.Store, dead *manifest.Dead) (*overlay.Overlay, error) {
	if dead == nil {
		return nil, nil
	}
	return overlay.Open(ctx, store, overlay.Ref(dead.Overlay), segment.NewFrameCache(cacheBytes))
}

// entries returns the entries of a domain, with the totals of the rows that are not dead.
func (r *rowReader) entries(ctx context.Context, k segment.Key) ([]segment.Entry, error) {
	all, err := r.seg.Entries(ctx, k, 0, 0)
	if err != nil || !r.dead.May(k) {
		return all, err
	}
	live := all[:0]
	for _, e := range all {
		left, ok, err := r.dead.Entry(ctx, k, e.Dataset)
		if err != nil {
			return nil, err
		}
		if ok {
			e.Totals = left.Totals
		}
		if e.Rows > 0 {
			live = append(live, e)
		}
	}
	return live, nil
}

// tuples returns where the rows of an entry are that are not dead.
func (r *rowReader) tuples(ctx context.Context, e segment.Entry) ([]segment.Tuple, error) {
	left, ok, err := r.dead.Entry(ctx, e.Key, e.Dataset)
	if err != nil {
		return nil, err
	}
	if ok {
		return left.Tuples()
	}
	return r.seg.Tuples(ctx, e)
}

// left finds out what m leaves of an entry of a domain. Rows are read only if that depends on them.
func (r *rowReader) left(
	ctx context.Context, domain string, e segment.Entry, m, probe, undated *takedown.Matcher,
) (remains, error) {
	out := remains{Entry: overlay.Entry{Key: e.Key, Dataset: e.Dataset, Totals: e.Totals}}
	if !m.May(e.Dataset) && !probe.May(e.Dataset) {
		return out, nil
	}
	whole := m.HidesAll(e.Dataset)
	if whole {
		out.Totals, out.Dead, out.DeadSize = segment.Totals{}, e.Rows, e.Size
	}
	if whole && (!probe.May(e.Dataset) || probe.HidesAll(e.Dataset)) || !m.May(e.Dataset) && probe.HidesAll(e.Dataset) {
		if probe.HidesAll(e.Dataset) {
			out.probed = e.Rows
		}
		return out, nil
	}
	tuples, err := r.tuples(ctx, e)
	if err != nil {
		return remains{}, err
	}
	parts, _, err := r.read(ctx, domain, e.Dataset, tuples, m, probe, undated)
	if err != nil {
		return remains{}, err
	}
	sum := remains{Entry: overlay.Entry{Key: e.Key, Dataset: e.Dataset}}
	for _, p := range parts {
		sum.Totals.Add(p.Totals)
		sum.Dead += p.Dead
		sum.DeadSize = overlay.AddSize(sum.DeadSize, p.DeadSize)
		sum.tuples = append(sum.tuples, p.tuples...)
		sum.probed += p.probed
		sum.undated += p.undated
	}
	if sum.Dead+sum.Rows != e.Rows {
		return remains{}, codec.Corrupt(segment.Prefix(r.seg.Info().Segment)+segment.PostingsName(0), "rows", -1,
			fmt.Sprintf("%d of domain %016x in dataset %d", e.Rows, e.ID, e.Dataset), sum.Dead+sum.Rows)
	}
	if whole {
		out.probed, out.undated = sum.probed, sum.undated
		return out, nil
	}
	return sum, nil
}

// run is consecutive rows of a block of a page index.
type run struct {
	part            string
	tuple           segment.Tuple
	block           *part.PageIndexBlock
	firstRow, count int64
}

// read reads rows of an entry, and returns what is left of each run of them, in order.
func (r *rowReader) read(
	ctx context.Context, domain string, dataset uint32, tuples []segment.Tuple, m, probe, undated *takedown.Matcher,
) ([]remains, []run, error) {
	var runs []run
	for _, t := range tuples {
		f, err := r.seg.File(ctx, t.FileID)
		if err != nil {
			return nil, nil, err
		}
		if f.DatasetID != dataset {
			return nil, nil, codec.Corrupt(segment.Prefix(r.seg.Info().Segment)+segment.FilesName, fmt.Sprintf("line %d", t.FileID), -1,
				fmt.Sprintf("a part of dataset %d, as the postings say", dataset), f.DatasetID)
		}
		blocks, err := r.seg.PageBlocks(ctx, t.FileID, t.RowGroup, t.FirstRow, t.Rows)
		if err != nil {
			return nil, nil, err
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
				runs = append(runs, run{part: f.Path, tuple: t, block: b, firstRow: row, count: end - row})
				row = end
			}
		}
	}
	out := make([]remains, len(runs))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readsAtOnce)
	for i := range runs {
		group.Go(func() (err error) {
			out[i], err = r.readRun(ctx, domain, dataset, &runs[i], m, probe, undated)
			return err
		})
	}
	return out, runs, group.Wait()
}

// readRun reads the rows of a run.
func (r *rowReader) readRun(
	ctx context.Context, domain string, dataset uint32, n *run, m, probe, undated *takedown.Matcher,
) (remains, error) {
	columns := []part.Column{part.ColHost, part.ColTS, part.ColSize}
	paths := m.NeedsPaths() || probe.NeedsPaths() || undated.NeedsPaths()
	if paths {
		columns = append(columns, part.ColScheme, part.ColPort, part.ColPathQuery)
	}
	c, err := partreader.ReadColumns(ctx, r.store, n.part, n.block, n.firstRow, n.count, columns...)
	if err != nil {
		return remains{}, err
	}
	var out remains
	checked := ""
	for i := range c.Rows {
		row := takedown.Row{Dataset: dataset, Host: c.Host[i], TS: c.TS[i], HasTS: c.HasTS[i], Port: -1}
		if paths {
			row.Scheme, row.Port, row.Path = c.Scheme[i], c.Port[i], c.PathQuery[i]
		}
		if row.Host != checked {
			if rest, ok := strings.CutSuffix(row.Host, domain); !ok || rest != "" && !strings.HasSuffix(rest, ".") {
				return remains{}, codec.Corrupt(n.part, "column host", -1,
					"hosts of domain "+urlnorm.FormatID(urlnorm.DomainID(domain)), "a host of another domain")
			}
			checked = row.Host
		}
		if probe.Hides(&row) {
			out.probed++
		} else if !row.HasTS && undated.Hides(&row) {
			out.undated++
		}
		if m.Hides(&row) {
			out.Dead++
			out.DeadSize = overlay.AddSize(out.DeadSize, c.Size[i])
			continue
		}
		one := segment.Totals{Rows: 1}
		if c.HasSize[i] {
			one.HasSize, one.Size = true, c.Size[i]
		}
		if c.HasTS[i] {
			one.HasTS, one.FirstTS, one.LastTS = true, c.TS[i], c.TS[i]
		}
		out.Totals.Add(one)
		at := n.firstRow + int64(i)
		if k := len(out.tuples); k > 0 && out.tuples[k-1].FirstRow+out.tuples[k-1].Rows == at {
			out.tuples[k-1].Rows++
		} else {
			out.tuples = append(out.tuples,
				segment.Tuple{FileID: n.tuple.FileID, RowGroup: n.tuple.RowGroup, FirstRow: at, Rows: 1})
		}
	}
	return out, nil
}
