package partreader

import (
	"context"
	"fmt"
	"slices"
	"sort"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
)

// Range is a run of bytes of an object.
type Range struct{ Offset, Bytes int64 }

// ReadPlan is what has to be read for a run of rows of some columns, and how to decode it.
type Plan struct {
	// Ranges are to be read from the part, each as a whole: one per column in
	// the order of the columns, but scheme and port, whose pages are tiny, share one.
	Ranges []Range

	block    *part.PageIndexBlock
	from, to int   // pages [from, to)
	skip     int64 // rows of page from that come before the first asked one
	rows     int64
	planned  [part.NumColumns]plannedColumn
	nplanned int
}

type plannedColumn struct {
	col part.Column
	rng int // index into Ranges
}

// Plan plans the reading of rows rows from firstRow on, counted in the row group like
// FirstRow; all of them have to be in the block.
func NewPlan(b *part.PageIndexBlock, firstRow, rows int64, cols ...part.Column) (*Plan, error) {
	rel := firstRow - b.FirstRow
	if rel < 0 || rows <= 0 || rows > b.Rows()-rel {
		return nil, fmt.Errorf("plan rows %d to %d of row group %d: the block has %d to %d",
			firstRow, firstRow+rows, b.RowGroup, b.FirstRow, b.FirstRow+b.Rows())
	}
	var want [part.NumColumns]bool
	for _, c := range cols {
		if c < 0 || int(c) >= part.NumColumns {
			return nil, fmt.Errorf("plan rows: no %v", c)
		}
		want[c] = true
	}
	p := &Plan{block: b, rows: rows}
	p.from = sort.Search(b.Pages(), func(i int) bool { return b.Starts[i+1] > rel })
	p.to = sort.Search(b.Pages(), func(i int) bool { return b.Starts[i] >= rel+rows })
	p.skip = rel - b.Starts[p.from]
	p.Ranges = make([]Range, 0, len(cols))
	for c := range part.Column(part.NumColumns) {
		if !want[c] {
			continue
		}
		off, end := b.Cols[c].Offs[p.from], b.Cols[c].Offs[p.to]
		if c == part.ColPort && want[part.ColScheme] {
			last := &p.Ranges[len(p.Ranges)-1] // scheme comes just before port
			last.Bytes = end - last.Offset
		} else {
			p.Ranges = append(p.Ranges, Range{off, end - off})
		}
		p.planned[p.nplanned] = plannedColumn{c, len(p.Ranges) - 1}
		p.nplanned++
	}
	return p, nil
}

// Decode decodes the bytes of p.Ranges. Part names them in errors.
func (p *Plan) Decode(onePart string, data [][]byte) (*part.Columns, error) {
	c := new(part.Columns)
	if err := p.AppendTo(c, onePart, data); err != nil {
		return nil, err
	}
	return c, nil
}

// AppendTo is Decode for runs of rows that lie in several blocks: it appends to dst, whose
// earlier rows are of the same columns. After an error dst is of no use.
func (p *Plan) AppendTo(dst *part.Columns, part string, data [][]byte) error {
	if err := p.checkRanges(part, data); err != nil {
		return err
	}
	dec := PageDecoders.Get().(*PageDecoder)
	defer PageDecoders.Put(dec)
	for _, pc := range p.planned[:p.nplanned] {
		run := &p.block.Cols[pc.col]
		base := p.Ranges[pc.rng].Offset
		growColumn(dst, pc.col, int(p.rows))
		lo := p.skip
		left := p.rows
		for i := p.from; i < p.to; i++ {
			raw := data[pc.rng][run.Offs[i]-base : run.Offs[i+1]-base]
			rows := p.block.Starts[i+1] - p.block.Starts[i]
			n := min(rows-lo, left)
			if err := dec.page(dst, pc.col, part, run.Offs[i], raw, run.Sums[i], int(rows), int(lo), int(lo+n)); err != nil {
				return err
			}
			lo, left = 0, left-n
		}
	}
	dst.Rows += int(p.rows)
	return nil
}

// checkRanges checks that data are the bytes of p.Ranges.
func (p *Plan) checkRanges(part string, data [][]byte) error {
	if len(data) != len(p.Ranges) {
		return fmt.Errorf("decode pages of %s: %d ranges, planned are %d", part, len(data), len(p.Ranges))
	}
	for i, r := range p.Ranges {
		if int64(len(data[i])) != r.Bytes {
			return codec.Corrupt(part, "page range", r.Offset, fmt.Sprintf("%d bytes", r.Bytes), len(data[i]))
		}
	}
	return nil
}

// ReadColumns reads rows rows from firstRow of b's row group on, at once for all columns.
func ReadColumns(ctx context.Context, store blob.Store, onePart string, b *part.PageIndexBlock, firstRow, rows int64, cols ...part.Column) (*part.Columns, error) {
	p, err := NewPlan(b, firstRow, rows, cols...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", onePart, err)
	}
	data := make([][]byte, len(p.Ranges))
	g, ctx := errgroup.WithContext(ctx)
	for i, r := range p.Ranges {
		g.Go(func() (err error) {
			data[i], err = store.ReadRange(ctx, onePart, r.Offset, r.Bytes)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("read pages of %s: %w", onePart, err)
	}
	return p.Decode(onePart, data)
}

// grow makes room for n more rows of column c.
func growColumn(c *part.Columns, col part.Column, n int) {
	switch col {
	case part.ColDatasetID:
		c.DatasetID = slices.Grow(c.DatasetID, n)
	case part.ColPort:
		c.Port = slices.Grow(c.Port, n)
	case part.ColDomainID:
		c.DomainID = slices.Grow(c.DomainID, n)
	case part.ColTS:
		c.TS, c.HasTS = slices.Grow(c.TS, n), slices.Grow(c.HasTS, n)
	case part.ColSize:
		c.Size, c.HasSize = slices.Grow(c.Size, n), slices.Grow(c.HasSize, n)
	case part.ColURLID:
		c.URLID = slices.Grow(c.URLID, n)
	default:
		s := columnStrings(c, col)
		*s = slices.Grow(*s, n)
	}
}

// strings is the field of a string column.
func columnStrings(c *part.Columns, col part.Column) *[]string {
	switch col {
	case part.ColBatch:
		return &c.Batch
	case part.ColScheme:
		return &c.Scheme
	case part.ColDomain:
		return &c.Domain
	case part.ColHost:
		return &c.Host
	case part.ColPathQuery:
		return &c.PathQuery
	case part.ColRawURL:
		return &c.RawURL
	case part.ColExtras:
		return &c.Extras
	}
	panic(col.String() + " holds no strings")
}
