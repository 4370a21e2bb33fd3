package partreader

import (
	"bytes"
	"fmt"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
)

// domainColumns are those that are read for DomainRuns.
var domainColumns = []part.Column{part.ColDomain, part.ColTS, part.ColSize}

// NewDomainPlan plans the reading of the rows of pages [from, to) of the block with ReadPlan.DomainRuns.
func NewDomainPlan(b *part.PageIndexBlock, from, to int) (*Plan, error) {
	if from < 0 || from >= to || to > b.Pages() {
		return nil, fmt.Errorf("plan pages %d to %d of row group %d: the block has %d", from, to, b.RowGroup, b.Pages())
	}
	return NewPlan(b, b.FirstRow+b.Starts[from], b.Starts[to]-b.Starts[from], domainColumns...)
}

// FirstRow is the first of the rows that are read, counted in the row group.
func (p *Plan) FirstRow() int64 { return p.block.FirstRow + p.block.Starts[p.from] + p.skip }

// DomainRuns decodes the bytes of p.Ranges into dst, whose memory it uses. The plan is one of NewDomainPlan. Part names them in errors.
func (p *Plan) DomainRuns(dst *part.DomainRuns, onePart string, data [][]byte) error {
	if err := p.checkRanges(onePart, data); err != nil {
		return err
	}
	dst.Text, dst.Runs = dst.Text[:0], dst.Runs[:0]
	m := &dst.Measures
	m.Rows, m.TS, m.HasTS, m.Size, m.HasSize = 0, m.TS[:0], m.HasTS[:0], m.Size[:0], m.HasSize[:0]
	dec := PageDecoders.Get().(*PageDecoder)
	defer PageDecoders.Put(dec)
	measured := false
	for _, pc := range p.planned[:p.nplanned] {
		run := &p.block.Cols[pc.col]
		base := p.Ranges[pc.rng].Offset
		for i := p.from; i < p.to; i++ {
			raw := data[pc.rng][run.Offs[i]-base : run.Offs[i+1]-base]
			rows := int(p.block.Starts[i+1] - p.block.Starts[i])
			values, _, h, err := dec.open(pc.col, onePart, run.Offs[i], raw, run.Sums[i], rows)
			if err != nil {
				return err
			}
			if pc.col != part.ColDomain {
				// The values are left to the decoder of pages, which is asked if there are any.
				measured = measured || h.Nulls < rows
				if h.Nulls == rows && len(values) > 0 {
					return codec.Corrupt(onePart, part.PageSection(pc.col), run.Offs[i], "no values", fmt.Sprintf("%d bytes", len(values)))
				}
				continue
			}
			if !dec.DomainRuns(dst, values, rows) {
				return codec.Corrupt(onePart, part.PageSection(pc.col), run.Offs[i], fmt.Sprintf("%d strings", rows), fmt.Sprintf("other in %d bytes", len(values)))
			}
		}
	}
	if !measured {
		return nil
	}
	for _, pc := range p.planned[:p.nplanned] {
		if pc.col == part.ColDomain {
			continue
		}
		run := &p.block.Cols[pc.col]
		base := p.Ranges[pc.rng].Offset
		growColumn(m, pc.col, int(p.rows))
		for i := p.from; i < p.to; i++ {
			raw := data[pc.rng][run.Offs[i]-base : run.Offs[i+1]-base]
			rows := int(p.block.Starts[i+1] - p.block.Starts[i])
			if err := dec.page(m, pc.col, onePart, run.Offs[i], raw, run.Sums[i], rows, 0, rows); err != nil {
				return err
			}
		}
	}
	m.Rows = int(p.rows)
	return nil
}

// domainRuns appends the runs of a page of n values as DELTA_BYTE_ARRAY. The first goes on the last run where that has the same domain.
func (d *PageDecoder) DomainRuns(dst *part.DomainRuns, values []byte, n int) bool {
	lengths, rest, ok := ReadDeltaPacked(d.lengths[:0], values, n)
	if ok {
		lengths, rest, ok = ReadDeltaPacked(lengths, rest, n)
	}
	d.lengths = lengths
	if !ok {
		return false
	}
	prefixes, suffixes := lengths[:n], lengths[n:]
	last, first := 0, true    // length of the value before, and whether there is none in this page
	room := part.MaxPageBytes // for text
	for i, prefix := range prefixes {
		suffix := int(suffixes[i])
		if suffix == 0 && int(prefix) == last && !first {
			dst.Runs[len(dst.Runs)-1].Rows++
			continue
		}
		if prefix < 0 || int(prefix) > last || suffix < 0 || suffix > len(rest) {
			return false
		}
		last = int(prefix) + suffix
		if room -= last; room < 0 {
			return false
		}
		var before []byte
		if len(dst.Runs) > 0 {
			before, _ = dst.Run(len(dst.Runs) - 1)
		}
		if first && len(dst.Runs) > 0 && bytes.Equal(before, rest[:suffix]) {
			dst.Runs[len(dst.Runs)-1].Rows++
		} else {
			dst.Text = append(append(dst.Text, before[:prefix]...), rest[:suffix]...)
			dst.Runs = append(dst.Runs, part.DomainRun{End: len(dst.Text), Rows: 1})
		}
		first = false
		rest = rest[suffix:]
	}
	return len(rest) == 0
}
