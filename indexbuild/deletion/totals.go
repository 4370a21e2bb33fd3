package deletion

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/part"
)

const (
	// readsAtOnce is how many runs of rows are read at the same time.
	readsAtOnce = 8
	// runRows is about how many rows a run has at most, and gapRows how many rows that nobody asks
	// for are read along with a run, so that it is one request.
	runRows = 256 << 10
	gapRows = 16 << 10
)

// wanted are rows whose times or sizes an entry needs.
type wanted struct {
	segment.Tuple
	entry int
}

// run is neighbours among the wanted rows, up to the row end.
type run struct {
	rows         []wanted
	end          int64
	times, sizes bool
}

// readTotals reads the totals that subtract has left open. Neighbours are read together.
func (u *batchBuilder) readTotals(left []remains) error {
	var rows []wanted
	for i := range left {
		if left[i].times || left[i].sizes {
			for _, t := range left[i].tuples {
				rows = append(rows, wanted{t, i})
			}
		}
	}
	slices.SortFunc(rows, func(a, b wanted) int { return compareTuples(a.Tuple, b.Tuple) })
	var runs []run
	for _, r := range rows {
		// The rows of a large domain are several runs.
		for r.Rows > 0 {
			one := r
			one.Rows = min(r.Rows, runRows)
			r.FirstRow, r.Rows = r.FirstRow+one.Rows, r.Rows-one.Rows
			n, end := len(runs)-1, one.FirstRow+one.Rows
			if n < 0 || segment.CompareTuples(runs[n].rows[0].Tuple, one.Tuple) != 0 ||
				one.FirstRow > runs[n].end+gapRows || end > runs[n].rows[0].FirstRow+runRows {
				runs = append(runs, run{})
				n++
			}
			runs[n].rows, runs[n].end = append(runs[n].rows, one), end
			runs[n].times = runs[n].times || left[one.entry].times
			runs[n].sizes = runs[n].sizes || left[one.entry].sizes
		}
	}
	for some := range slices.Chunk(runs, 16*readsAtOnce) {
		sums := make([][]segment.Totals, len(some))
		group, ctx := errgroup.WithContext(u.ctx)
		group.SetLimit(readsAtOnce)
		for i := range some {
			group.Go(func() (err error) {
				sums[i], err = u.readRun(ctx, &some[i])
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		for i := range some {
			for j, sum := range sums[i] {
				left[some[i].rows[j].entry].include(sum)
			}
		}
	}
	return nil
}

// include adds the totals of some of the rows that are left, as far as they are open.
func (r *remains) include(sum segment.Totals) {
	add := segment.Totals{}
	if r.times {
		add.HasTS, add.FirstTS, add.LastTS = sum.HasTS, sum.FirstTS, sum.LastTS
	}
	if r.sizes {
		add.HasSize, add.Size = sum.HasSize, sum.Size
	}
	r.Totals.Add(add)
}

// readRun returns the totals of each of the rows of a run, as far as they are open.
func (u *batchBuilder) readRun(ctx context.Context, r *run) ([]segment.Totals, error) {
	first := r.rows[0]
	f, err := u.seg.File(ctx, first.FileID)
	if err != nil {
		return nil, err
	}
	blocks, err := u.seg.PageBlocks(ctx, first.FileID, first.RowGroup, first.FirstRow, r.end-first.FirstRow)
	if err != nil {
		return nil, err
	}
	var columns []part.Column
	if r.times {
		columns = append(columns, part.ColTS)
	}
	if r.sizes {
		columns = append(columns, part.ColSize)
	}
	sums := make([]segment.Totals, len(r.rows))
	at := 0
	for _, b := range blocks {
		from, to := max(first.FirstRow, b.FirstRow), min(r.end, b.FirstRow+b.Rows())
		c, err := part.ReadColumns(ctx, u.store, f.Path, b, from, to-from, columns...)
		if err != nil {
			return nil, err
		}
		for i := at; i < len(r.rows) && r.rows[i].FirstRow < to; i++ {
			t := r.rows[i]
			for row := max(t.FirstRow, from); row < min(t.FirstRow+t.Rows, to); row++ {
				var one segment.Totals
				if k := row - from; r.times && c.HasTS[k] {
					one.HasTS, one.FirstTS, one.LastTS = true, c.TS[k], c.TS[k]
				}
				if k := row - from; r.sizes && c.HasSize[k] {
					one.HasSize, one.Size = true, c.Size[k]
				}
				sums[i].Add(one)
			}
			if t.FirstRow+t.Rows <= to {
				at = i + 1
			}
		}
	}
	return sums, nil
}
