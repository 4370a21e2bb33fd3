package part

import (
	"bytes"
	"fmt"
)

// NewDomainPlan plans to read all rows of pages [from, to) of the block with Plan.DomainRuns.
func NewDomainPlan(b *PageIndexBlock, from, to int) (*Plan, error) {
	if from < 0 || from >= to || to > b.Pages() {
		return nil, fmt.Errorf("plan pages %d to %d of row group %d: the block has %d", from, to, b.RowGroup, b.Pages())
	}
	first, end := b.PageStart(from), b.PageStart(to)
	return NewPlan(b, b.FirstRow+first, end-first, ColDomain, ColTS, ColSize)
}

// DomainRuns decodes data, the bytes of p.Ranges, into dst and reuses its memory. p is from
// NewDomainPlan. Errors name file as their source. After an error dst must not be used.
func (p *Plan) DomainRuns(dst *DomainRuns, file string, data [][]byte) error {
	if err := p.checkRanges(file, data); err != nil {
		return err
	}
	dst.reset()
	dec := pageDecoders.Get().(*pageDecoder)
	defer pageDecoders.Put(dec)
	measured := false // a row has a timestamp or a size
	for _, pc := range p.planned[:p.nplanned] {
		for i := p.from; i < p.to; i++ {
			pg := p.page(pc, i, file, data)
			values, _, h, err := dec.open(&pg)
			if err != nil {
				return err
			}
			if pc.col == ColDomain {
				if !dec.appendRuns(dst, values, pg.rows) {
					return pg.corrupt(fmt.Sprintf("%d strings", pg.rows), fmt.Sprintf("other in %d bytes", len(values)))
				}
				continue
			}
			// Most pages of the other columns are all null. Only if one is not, both are decoded
			// below.
			measured = measured || h.Nulls < pg.rows
			if h.Nulls == pg.rows && len(values) > 0 {
				return pg.corrupt("no values", fmt.Sprintf("%d bytes", len(values)))
			}
		}
	}
	if !measured {
		return nil
	}
	m := &dst.Measures
	for _, pc := range p.planned[:p.nplanned] {
		if pc.col == ColDomain {
			continue
		}
		m.grow(pc.col, int(p.rows))
		for i := p.from; i < p.to; i++ {
			pg := p.page(pc, i, file, data)
			if err := dec.appendColumn(m, &pg, 0, pg.rows); err != nil {
				return err
			}
		}
	}
	m.Rows = int(p.rows)
	return nil
}

// appendRuns appends the runs of a page of n values as DELTA_BYTE_ARRAY. The first one extends the
// last run of dst if it has the same domain. A value whose prefix is the whole previous value and
// whose suffix is empty extends the run, so no string is made for it.
func (d *pageDecoder) appendRuns(dst *DomainRuns, values []byte, n int) bool {
	prefixes, suffixes, rest, ok := d.readLengths(values, n)
	if !ok {
		return false
	}
	last, first := 0, true // length of the previous value; no value of the page was seen yet
	left := maxPageBytes   // bytes of text that the page may still add
	for i, prefix := range prefixes {
		suffix := int(suffixes[i])
		if suffix == 0 && int(prefix) == last && !first {
			dst.extend(1)
			continue
		}
		if prefix < 0 || int(prefix) > last || suffix < 0 || suffix > len(rest) {
			return false
		}
		last = int(prefix) + suffix
		if left -= last; left < 0 {
			return false
		}
		if first && dst.Len() > 0 && bytes.Equal(dst.last(), rest[:suffix]) {
			dst.extend(1)
		} else {
			dst.append(dst.last()[:prefix], rest[:suffix], 1)
		}
		first = false
		rest = rest[suffix:]
	}
	return len(rest) == 0
}
