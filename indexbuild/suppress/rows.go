package suppress

import (
	"context"
	"fmt"
	"math"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/segment/overlay"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
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

// rowReader reads the rows of entries of a segment.
type rowReader struct {
	store blob.Store
	seg   *segment.Segment
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
	tuples, err := r.seg.Tuples(ctx, e)
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
		sum.DeadSize = saturate(sum.DeadSize, p.DeadSize)
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
			out.DeadSize = saturate(out.DeadSize, c.Size[i])
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

// saturate is a sum of sizes, 2^63-1 if it is that or more.
func saturate(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
