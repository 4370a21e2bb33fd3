package lake

import (
	"bytes"
	"fmt"

	"github.com/urlake/urlake/lake/codec"
)

// DomainRuns are the domains of rows that follow each other, and what counting needs to know of the rows besides. Equal neighbours, which in a
// part are all rows of a domain, are one run: a page says how long it is without its strings being made.
type DomainRuns struct {
	text []byte
	runs []domainRun
	// Measures has TS and Size of all rows, and which have one. It has no rows where none has either.
	Measures Columns
}

// domainRun is a domain and its rows.
type domainRun struct {
	end  int // in text
	rows int64
}

// Len is the number of runs.
func (d *DomainRuns) Len() int { return len(d.runs) }

// Run returns run i. The domain is valid until the next rows are read.
func (d *DomainRuns) Run(i int) (domain []byte, rows int64) {
	start := 0
	if i > 0 {
		start = d.runs[i-1].end
	}
	return d.text[start:d.runs[i].end], d.runs[i].rows
}

// DomainSink is told what domains parts have while they are written, so that nobody has to read them again to know.
type DomainSink interface {
	// Domains tells of the next rows of the open part, which follow those of the call before. They are valid during the call.
	Domains(rows *DomainRuns) error
	// EndPart ends the open part, whose file is complete but not in the store yet: PartWriter.Finish tells whether all are. What follows is the next one's.
	EndPart(p *WrittenPart) error
}

// begin begins a page.
func (d *DomainRuns) begin() { d.text, d.runs = d.text[:0], d.runs[:0] }

// start says that the rows of the page from row on have another domain than those before.
func (d *DomainRuns) start(row int, domain []byte) {
	d.end(row)
	d.text = append(d.text, domain...)
	d.runs = append(d.runs, domainRun{len(d.text), -int64(row)})
}

// end says that what was started last ends before row.
func (d *DomainRuns) end(row int) {
	if n := len(d.runs); n > 0 {
		d.runs[n-1].rows += int64(row)
	}
}

// measure sets Measures to those of a page of rows rows.
func (d *DomainRuns) measure(ts, size *numberRuns, rows int) {
	m := &d.Measures
	m.Rows = 0
	if ts.nulls(rows) == rows && size.nulls(rows) == rows {
		return
	}
	m.Rows = rows
	m.TS, m.HasTS = ts.appendOptional(m.TS[:0], m.HasTS[:0], rows)
	m.Size, m.HasSize = size.appendOptional(m.Size[:0], m.HasSize[:0], rows)
}

// domainColumns are those that are read for DomainRuns.
var domainColumns = []Column{ColDomain, ColTS, ColSize}

// PlanDomainRuns plans the reading of the rows of pages [from, to) of the block with ReadPlan.DomainRuns.
func (b *PageIndexBlock) PlanDomainRuns(from, to int) (*ReadPlan, error) {
	if from < 0 || from >= to || to > b.Pages() {
		return nil, fmt.Errorf("plan pages %d to %d of row group %d: the block has %d", from, to, b.RowGroup, b.Pages())
	}
	return b.Plan(b.FirstRow+b.starts[from], b.starts[to]-b.starts[from], domainColumns...)
}

// FirstRow is the first of the rows that are read, counted in the row group.
func (p *ReadPlan) FirstRow() int64 { return p.block.FirstRow + p.block.starts[p.from] + p.skip }

// DomainRuns decodes the bytes of p.Ranges into dst, whose memory it uses. The plan is one of PlanDomainRuns. Part names them in errors.
func (p *ReadPlan) DomainRuns(dst *DomainRuns, part string, data [][]byte) error {
	if err := p.checkRanges(part, data); err != nil {
		return err
	}
	dst.text, dst.runs = dst.text[:0], dst.runs[:0]
	m := &dst.Measures
	m.Rows, m.TS, m.HasTS, m.Size, m.HasSize = 0, m.TS[:0], m.HasTS[:0], m.Size[:0], m.HasSize[:0]
	dec := pageDecoders.Get().(*pageDecoder)
	defer pageDecoders.Put(dec)
	measured := false
	for _, pc := range p.planned[:p.nplanned] {
		run := &p.block.cols[pc.col]
		base := p.Ranges[pc.rng].Offset
		for i := p.from; i < p.to; i++ {
			raw := data[pc.rng][run.offs[i]-base : run.offs[i+1]-base]
			rows := int(p.block.starts[i+1] - p.block.starts[i])
			values, _, h, err := dec.open(pc.col, part, run.offs[i], raw, run.sums[i], rows)
			if err != nil {
				return err
			}
			if pc.col != ColDomain {
				// The values are left to the decoder of pages, which is asked if there are any.
				measured = measured || h.nulls < rows
				if h.nulls == rows && len(values) > 0 {
					return codec.Corrupt(part, pageSection(pc.col), run.offs[i], "no values", fmt.Sprintf("%d bytes", len(values)))
				}
				continue
			}
			if !dec.domainRuns(dst, values, rows) {
				return codec.Corrupt(part, pageSection(pc.col), run.offs[i], fmt.Sprintf("%d strings", rows), fmt.Sprintf("other in %d bytes", len(values)))
			}
		}
	}
	if !measured {
		return nil
	}
	for _, pc := range p.planned[:p.nplanned] {
		if pc.col == ColDomain {
			continue
		}
		run := &p.block.cols[pc.col]
		base := p.Ranges[pc.rng].Offset
		m.grow(pc.col, int(p.rows))
		for i := p.from; i < p.to; i++ {
			raw := data[pc.rng][run.offs[i]-base : run.offs[i+1]-base]
			rows := int(p.block.starts[i+1] - p.block.starts[i])
			if err := dec.page(m, pc.col, part, run.offs[i], raw, run.sums[i], rows, 0, rows); err != nil {
				return err
			}
		}
	}
	m.Rows = int(p.rows)
	return nil
}

// domainRuns appends the runs of a page of n values as DELTA_BYTE_ARRAY. The first goes on the last run where that has the same domain.
func (d *pageDecoder) domainRuns(dst *DomainRuns, values []byte, n int) bool {
	lengths, rest, ok := readDeltaPacked(d.lengths[:0], values, n)
	if ok {
		lengths, rest, ok = readDeltaPacked(lengths, rest, n)
	}
	d.lengths = lengths
	if !ok {
		return false
	}
	prefixes, suffixes := lengths[:n], lengths[n:]
	last, first := 0, true // length of the value before, and whether there is none in this page
	room := MaxPageBytes   // for text
	for i, prefix := range prefixes {
		suffix := int(suffixes[i])
		if suffix == 0 && int(prefix) == last && !first {
			dst.runs[len(dst.runs)-1].rows++
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
		if len(dst.runs) > 0 {
			before, _ = dst.Run(len(dst.runs) - 1)
		}
		if first && len(dst.runs) > 0 && bytes.Equal(before, rest[:suffix]) {
			dst.runs[len(dst.runs)-1].rows++
		} else {
			dst.text = append(append(dst.text, before[:prefix]...), rest[:suffix]...)
			dst.runs = append(dst.runs, domainRun{len(dst.text), 1})
		}
		first = false
		rest = rest[suffix:]
	}
	return len(rest) == 0
}
