package move

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/partreader"
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/rowsort"
	"github.com/urlake/urlake/lake/seekable"
	"github.com/urlake/urlake/lake/urlnorm"
)

// checkpointObjects is how many postings objects a scan reads before it notes in staging what it
// has found. It does so earlier if the rows that move fill half of its memory.
const checkpointObjects = 32

// rowColumns are the columns from which a row can be written again. The other columns follow from
// them and from the batch.
var rowColumns = []part.Column{
	part.ColScheme, part.ColPort, part.ColDomain, part.ColHost, part.ColTS, part.ColSize, part.ColPathQuery,
	part.ColRawURL, part.ColExtras,
}

// columns returns the columns that a row is written again from; those of a union have a batch each.
func (m *mover) columns() []part.Column {
	if lake.IsUnionName(m.ref.Batch) {
		return append(slices.Clone(rowColumns), part.ColBatch)
	}
	return rowColumns
}

// scan finds the rows that move, writes them to shuffle files, and finds out which parts they
// leave. It goes on where an earlier attempt stopped.
func (m *mover) scan() (*scanned, error) {
	const name = "scan.json"
	s := &scanned{}
	if _, err := m.load(name, s); err != nil {
		return nil, err
	}
	if s.Next > len(m.objects) || len(s.Lost) != s.Next || len(s.Domains) != s.Next {
		return nil, codec.Corrupt(m.staging+name, "next", -1, fmt.Sprintf("at most %d objects", len(m.objects)), s.Next)
	}
	sc := scanner{mover: m, found: s, buffer: rowsort.NewBuffer(m.limits.arena)}
	defer sc.buffer.Release()
	for i, o := range m.objects {
		if i < s.Next {
			for _, p := range o.Parts() {
				m.progress.Scanned += p.Rows
			}
			continue
		}
		if err := sc.object(o); err != nil {
			return nil, err
		}
		if last := i == len(m.objects)-1; !last && i-s.Next+1 < m.limits.checkpoint && sc.bytes < m.limits.arena/2 {
			continue
		}
		if err := sc.flush(); err != nil {
			return nil, err
		}
		s.Next = i + 1
		if err := m.save(name, s); err != nil {
			return nil, err
		}
	}
	for _, n := range s.Rows {
		m.progress.Moved += n
	}
	return s, nil
}

// scanner is the state of a scan.
type scanner struct {
	*mover
	found  *scanned
	buffer *rowsort.Buffer
	bytes  int64 // about the size of the rows in buffer
	moved  int64 // rows

	// The last row was of this host, which has this domain by the new list, and this number in the
	// buffer. A host without number is not there yet.
	host, domain string
	number       uint32
	hasNumber    bool
}

// flush writes the rows in the buffer to a shuffle file.
func (sc *scanner) flush() error {
	if sc.buffer.Len() == 0 {
		return nil
	}
	var keyBytes [row.Partitions]int64
	key := fmt.Sprintf("%sshuffle/%06d", sc.staging, len(sc.found.Shuffled))
	f, err := sc.buffer.WriteShuffle(sc.ctx, sc.store, key, &sc.found.Rows, &keyBytes)
	if err != nil {
		return err
	}
	sc.found.Shuffled = append(sc.found.Shuffled, f)
	sc.bytes, sc.hasNumber = 0, false
	return nil
}

// object scans a postings object and the affected domains of its parts.
func (sc *scanner) object(o *postings.Reader) error {
	lost := []int{}
	domains := int64(0)
	var last []byte // domain of the part before
	for n, p := range o.Parts() {
		pages := pageReader{mover: sc.mover, key: p.Key, want: sc.columns(), load: func() ([]*part.PageIndexBlock, error) {
			return o.Pages(sc.ctx, n)
		}}
		before, number := sc.moved, 0
		for d, err := range o.PartDomains(sc.ctx, n) {
			if err != nil {
				return err
			}
			if number > 0 || string(last) != string(d.Name) {
				domains++ // else a domain continues from the part before, and counts once
			}
			number++
			last = append(last[:0], d.Name...)
			if sc.change.affects(string(d.Name)) {
				for _, t := range d.Tuples {
					if err := pages.each(string(d.Name), int(t.RowGroup), t.FirstRow, t.FirstRow+t.Rows, sc.row); err != nil {
						return err
					}
				}
			}
		}
		if sc.moved > before {
			lost = append(lost, n)
		}
		sc.progress.Scanned += p.Rows
		if err := sc.report(); err != nil {
			return err
		}
	}
	sc.found.Lost, sc.found.Domains = append(sc.found.Lost, lost), append(sc.found.Domains, domains)
	return nil
}

// each calls do for the rows [row, end) of a row group, which are of a domain, and reports the
// progress after each page.
func (p *pageReader) each(domain string, group int, row, end int64, do func(c *part.Columns, i int) error) error {
	for row < end {
		c, first, err := p.page(group, row)
		if err != nil {
			return err
		}
		to := min(end, first+int64(c.Rows))
		for i := int(row - first); i < int(to-first); i++ {
			if err := p.checkDomain(c, first, i, domain); err != nil {
				return err
			}
			if err := do(c, i); err != nil {
				return err
			}
		}
		if err := p.report(); err != nil {
			return err
		}
		row = to
	}
	return nil
}

// row adds a row to the buffer if it moves.
func (sc *scanner) row(c *part.Columns, i int) error {
	if host := c.Host[i]; host != sc.host {
		sc.host, sc.domain, sc.hasNumber = strings.Clone(host), strings.Clone(sc.change.Domain(host)), false
	}
	if sc.domain == c.Domain[i] {
		return nil
	}
	if !sc.hasNumber {
		var err error
		if sc.number, err = sc.buffer.Host(sc.domain, sc.host, urlnorm.DomainID(sc.domain)); err != nil {
			return err
		}
		sc.hasNumber = true
	}
	if err := addRow(sc.buffer, sc.number, c, i); err != nil {
		return err
	}
	sc.moved++
	sc.bytes += int64(2 * (len(c.PathQuery[i]) + len(c.Extras[i]) + len(c.RawURL[i])))
	if sc.buffer.Full() {
		return sc.flush()
	}
	return nil
}

// addRow adds a row to a buffer, as one of the host with this number.
func addRow(b *rowsort.Buffer, host uint32, c *part.Columns, i int) error {
	batch := ""
	if len(c.Batch) > 0 { // the batch is a union
		batch = c.Batch[i]
	}
	s := row.Suffix{
		Scheme: c.Scheme[i], Port: c.Port[i], TS: c.TS[i], HasTS: c.HasTS[i], Size: c.Size[i], HasSize: c.HasSize[i],
		Extras: c.Extras[i], RawURL: c.RawURL[i], Batch: batch,
	}
	return b.Add(host, []byte(c.PathQuery[i]), &s)
}

// readerOf returns what reads ranges of an object.
func (m *mover) readerOf(key string) seekable.RangeReader {
	return func(ctx context.Context, off, n int64) ([]byte, error) { return m.store.ReadRange(ctx, key, off, n) }
}

// pageReader reads single pages of a part and keeps the last one.
type pageReader struct {
	*mover
	key    string
	want   []part.Column // to read
	load   func() ([]*part.PageIndexBlock, error)
	blocks []*part.PageIndexBlock // nil before the first page

	columns *part.Columns // of the last page; nil if there is none
	group   int
	first   int64 // its first row
}

// page returns the page of a row of a row group, and the page's first row.
func (p *pageReader) page(group int, row int64) (*part.Columns, int64, error) {
	if p.columns != nil && p.group == group && p.first <= row && row < p.first+int64(p.columns.Rows) {
		return p.columns, p.first, nil
	}
	if p.blocks == nil {
		var err error
		if p.blocks, err = p.load(); err != nil {
			return nil, 0, err
		}
	}
	i, found := slices.BinarySearchFunc(p.blocks, row, func(b *part.PageIndexBlock, row int64) int {
		switch {
		case b.RowGroup != group:
			return b.RowGroup - group
		case b.FirstRow > row:
			return 1
		case b.FirstRow+b.Rows() <= row:
			return -1
		}
		return 0
	})
	if !found {
		return nil, 0, codec.Corrupt(p.key, "page index", -1, fmt.Sprintf("row %d of row group %d", row, group), "none")
	}
	first, end := p.blocks[i].Page(row)
	c, err := partreader.ReadColumns(p.ctx, p.store, p.key, p.blocks[i], first, end-first, p.want...)
	if err != nil {
		return nil, 0, err
	}
	p.columns, p.group, p.first = c, group, first
	return c, first, nil
}

// checkDomain checks that row i of a page of the row group read last, whose first row is given, is
// of the domain of which the postings say so.
func (p *pageReader) checkDomain(c *part.Columns, first int64, i int, domain string) error {
	if c.Domain[i] == domain {
		return nil
	}
	return codec.Corrupt(p.key, fmt.Sprintf("row %d of row group %d", first+int64(i), p.group), -1,
		"a row of domain "+urlnorm.FormatID(urlnorm.DomainID(domain)), "one of another domain")
}
