package part

import (
	"context"
	"fmt"
	"sort"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// Range is a run of bytes of an object.
type Range struct{ Offset, Bytes int64 }

// Plan says which bytes of a part hold a run of rows of some columns, and decodes them. A plan is
// immutable and safe for concurrent use.
type Plan struct {
	// Ranges are to be read from the part, each as a whole. There is one for each column, in the
	// order of the columns. Only scheme and port, whose pages are tiny, share one.
	Ranges []Range

	block    *PageIndexBlock
	from, to int   // pages [from, to)
	skip     int64 // rows of page from that precede the first requested one
	rows     int64
	planned  [NumColumns]plannedColumn
	nplanned int
}

// plannedColumn is a requested column and the range that holds its pages.
type plannedColumn struct {
	col Column
	rng int // index into Ranges
}

// NewPlan plans to read rows rows from firstRow on, which is counted in the row group like
// b.FirstRow. b has to cover all of them.
func NewPlan(b *PageIndexBlock, firstRow, rows int64, cols ...Column) (*Plan, error) {
	rel := firstRow - b.FirstRow
	if rel < 0 || rows <= 0 || rows > b.Rows()-rel {
		return nil, fmt.Errorf("plan rows %d to %d of row group %d: the block has %d to %d",
			firstRow, firstRow+rows, b.RowGroup, b.FirstRow, b.FirstRow+b.Rows())
	}
	var want [NumColumns]bool
	for _, c := range cols {
		if c < 0 || int(c) >= NumColumns {
			return nil, fmt.Errorf("plan rows: no %v", c)
		}
		want[c] = true
	}
	p := &Plan{block: b, rows: rows}
	p.from = sort.Search(b.Pages(), func(i int) bool { return b.PageStart(i+1) > rel })
	p.to = sort.Search(b.Pages(), func(i int) bool { return b.PageStart(i) >= rel+rows })
	p.skip = rel - b.PageStart(p.from)
	p.Ranges = make([]Range, 0, len(cols))
	for c := range Column(NumColumns) {
		if !want[c] {
			continue
		}
		off, end := b.PageOffset(c, p.from), b.PageOffset(c, p.to)
		if c == ColPort && want[ColScheme] {
			last := &p.Ranges[len(p.Ranges)-1] // scheme's, which directly precedes port
			last.Bytes = end - last.Offset
		} else {
			p.Ranges = append(p.Ranges, Range{off, end - off})
		}
		p.planned[p.nplanned] = plannedColumn{c, len(p.Ranges) - 1}
		p.nplanned++
	}
	return p, nil
}

// FirstRow is the first row that the plan reads, counted in the row group.
func (p *Plan) FirstRow() int64 { return p.block.FirstRow + p.block.PageStart(p.from) + p.skip }

// Decode decodes data, the bytes of p.Ranges. Errors name file as their source.
func (p *Plan) Decode(file string, data [][]byte) (*Columns, error) {
	c := new(Columns)
	if err := p.AppendTo(c, file, data); err != nil {
		return nil, err
	}
	return c, nil
}

// AppendTo is Decode for rows that span several blocks. It appends to dst, whose rows so far have
// the same columns. After an error dst must not be used.
func (p *Plan) AppendTo(dst *Columns, file string, data [][]byte) error {
	if err := p.checkRanges(file, data); err != nil {
		return err
	}
	dec := pageDecoders.Get().(*pageDecoder)
	defer pageDecoders.Put(dec)
	for _, pc := range p.planned[:p.nplanned] {
		dst.grow(pc.col, int(p.rows))
		lo := p.skip
		left := p.rows
		for i := p.from; i < p.to; i++ {
			pg := p.page(pc, i, file, data)
			n := min(int64(pg.rows)-lo, left)
			if err := dec.appendColumn(dst, &pg, int(lo), int(lo+n)); err != nil {
				return err
			}
			lo, left = 0, left-n
		}
	}
	dst.Rows += int(p.rows)
	return nil
}

// page is page i of a planned column, taken from data.
func (p *Plan) page(pc plannedColumn, i int, file string, data [][]byte) encodedPage {
	b := p.block
	off, base := b.PageOffset(pc.col, i), p.Ranges[pc.rng].Offset
	return encodedPage{
		col: pc.col, file: file, off: off,
		raw:  data[pc.rng][off-base : b.PageOffset(pc.col, i+1)-base],
		sum:  b.pageSum(pc.col, i),
		rows: int(b.PageStart(i+1) - b.PageStart(i)),
	}
}

// checkRanges checks that data has the sizes of p.Ranges.
func (p *Plan) checkRanges(file string, data [][]byte) error {
	if len(data) != len(p.Ranges) {
		return fmt.Errorf("decode pages of %s: %d ranges, planned are %d", file, len(data), len(p.Ranges))
	}
	for i, r := range p.Ranges {
		if int64(len(data[i])) != r.Bytes {
			return codec.Corrupt(file, "page range", r.Offset, fmt.Sprintf("%d bytes", r.Bytes), len(data[i]))
		}
	}
	return nil
}

// ReadColumns reads and decodes rows rows of the part file from firstRow of b's row group on. All
// ranges are read at the same time.
func ReadColumns(
	ctx context.Context, store blob.Store, file string,
	b *PageIndexBlock, firstRow, rows int64, cols ...Column,
) (*Columns, error) {
	p, err := NewPlan(b, firstRow, rows, cols...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	data, err := p.Read(ctx, store, file)
	if err != nil {
		return nil, err
	}
	return p.Decode(file, data)
}

// Read reads what Decode needs from the part file, all ranges at the same time.
func (p *Plan) Read(ctx context.Context, store blob.Store, file string) ([][]byte, error) {
	data := make([][]byte, len(p.Ranges))
	g, ctx := errgroup.WithContext(ctx)
	for i, r := range p.Ranges {
		g.Go(func() (err error) {
			data[i], err = store.ReadRange(ctx, file, r.Offset, r.Bytes)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("read pages of %s: %w", file, err)
	}
	return data, nil
}
