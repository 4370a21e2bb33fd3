package scan

import (
	"context"
	"iter"
	"slices"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
)

// Part is a part of the lake, and how to choose among its rows.
type Part struct {
	Dataset uint32
	// Key is the object.
	Key string
	// Batch is that of all rows, "" for a union, whose rows name theirs.
	Batch string
	// Live reports whether the rows of a batch of a union are wanted. It is asked when the batch
	// changes from one row to the next.
	Live func(batch string) bool
	// Rules are the takedowns that hide rows; nil for none.
	Rules *catalog.Takedowns
}

// Run is a run of rows of a row group of a part.
type Run struct {
	Group uint32 `json:"group"`
	First int64  `json:"first"`
	Rows  int64  `json:"rows"`
}

// filterColumns are the columns by which takedowns decide.
var filterColumns = []part.Column{part.ColScheme, part.ColPort, part.ColDomain, part.ColHost, part.ColTS, part.ColPathQuery}

// Read yields some columns of the rows that are wanted, in the order of the part: those in runs, or
// in the whole part if runs is nil. Blocks are the part's page index, or as much of it as covers
// the runs. Read also reads the columns by which rows are chosen. Rows are valid until the next
// ones. An error is the last thing that Read yields.
func (p *Part) Read(
	ctx context.Context, store blob.Store, blocks []*part.PageIndexBlock, runs []Run, columns ...part.Column,
) iter.Seq2[Rows, error] {
	columns = slices.Clone(columns)
	if p.ruled() {
		columns = append(columns, filterColumns...)
	}
	if p.Batch == "" {
		columns = append(columns, part.ColBatch)
	}
	slices.Sort(columns)
	columns = slices.Compact(columns)
	return func(yield func(Rows, error) bool) {
		f := filter{p: p}
		if runs == nil {
			scan := postings.PartScanner{Key: p.Key, Read: func(ctx context.Context, off, n int64) ([]byte, error) {
				return store.ReadRange(ctx, p.Key, off, n)
			}}
			for r, err := range scan.Scan(ctx, blocks, batchRows, columns) {
				if err != nil {
					yield(Rows{}, err)
					return
				}
				if !yield(f.rows(r.Columns), nil) {
					return
				}
			}
			return
		}
		for _, r := range runs {
			for c, err := range p.run(ctx, store, blocks, r, columns) {
				if err != nil {
					yield(Rows{}, err)
					return
				}
				if !yield(f.rows(c), nil) {
					return
				}
			}
		}
	}
}

// run reads the rows of one run, at most batchRows at a time.
func (p *Part) run(
	ctx context.Context, store blob.Store, blocks []*part.PageIndexBlock, r Run, columns []part.Column,
) iter.Seq2[*part.Columns, error] {
	return func(yield func(*part.Columns, error) bool) {
		first, left := r.First, r.Rows
		for _, b := range blocks {
			if b.RowGroup != int(r.Group) || b.FirstRow+b.Rows() <= first {
				continue
			}
			for left > 0 && first < b.FirstRow+b.Rows() {
				n := min(left, batchRows, b.FirstRow+b.Rows()-first)
				c, err := part.ReadColumns(ctx, store, p.Key, b, first, n, columns...)
				if !yield(c, err) || err != nil {
					return
				}
				first, left = first+n, left-n
			}
		}
		if left > 0 {
			yield(nil, codec.Corrupt(p.Key, "page index", -1, "all rows that the index names", left))
		}
	}
}

// ruled reports whether there are rules.
func (p *Part) ruled() bool { return p.Rules != nil && p.Rules.Len() > 0 }

// Rows are consecutive rows of a part. Only the columns that were asked for are set.
type Rows struct {
	*part.Columns
	// Keep are the rows that are wanted, ascending. Nil stands for all.
	Keep []int32
	// Batch is that of all rows, "" if Columns.Batch has them.
	Batch string
}

// Len is how many rows are wanted.
func (r *Rows) Len() int {
	if r.Keep != nil {
		return len(r.Keep)
	}
	return r.Rows
}

// At is the row of Columns that wanted row i is.
func (r *Rows) At(i int) int {
	if r.Keep != nil {
		return int(r.Keep[i])
	}
	return i
}

// BatchAt is the batch of row At(i) of Columns.
func (r *Rows) BatchAt(at int) string {
	if r.Batch != "" {
		return r.Batch
	}
	return r.Columns.Batch[at]
}

// filter chooses the rows of a part.
type filter struct {
	p *Part

	begun  bool
	domain string
	hides  *catalog.Matcher // nil for a domain without hidden rows
	batch  string
	live   bool // batch
	keep   []int32
}

func (f *filter) rows(c *part.Columns) Rows {
	out := Rows{Columns: c, Batch: f.p.Batch}
	ruled := f.p.ruled()
	if f.p.Batch != "" && !ruled {
		return out
	}
	f.keep = f.keep[:0]
	for i := range c.Rows {
		if f.p.Batch == "" {
			if b := c.Batch[i]; !f.begun || b != f.batch {
				f.batch, f.live = b, f.p.Live(b)
			}
		}
		if ruled && (!f.begun || c.Domain[i] != f.domain) {
			f.domain = c.Domain[i]
			if f.hides = f.p.Rules.For(f.domain); !f.hides.May(f.p.Dataset) {
				f.hides = nil
			}
		}
		f.begun = true
		if f.p.Batch == "" && !f.live {
			continue
		}
		if f.hides != nil && f.hides.Hides(&catalog.Row{
			Dataset: f.p.Dataset, Scheme: c.Scheme[i], Host: c.Host[i], Path: c.PathQuery[i], Port: c.Port[i],
			TS: c.TS[i], HasTS: c.HasTS[i],
		}) {
			continue
		}
		f.keep = append(f.keep, int32(i))
	}
	if out.Keep = f.keep; out.Keep == nil {
		out.Keep = []int32{}
	}
	return out
}
