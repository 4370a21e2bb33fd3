package postings

import (
	"fmt"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
)

// DomainCounter adds up the totals of each domain of a part, whose rows it gets in order. Call End
// after the last row.
type DomainCounter struct {
	key    string // of the part, for errors
	each   func(domain []byte, shared int, t *segment.Totals) error
	writer *Writer // that each adds to; addRuns needs it

	domain []byte // the open domain
	shared int    // bytes that it shares with the domain before
	totals segment.Totals
}

// NewDomainCounter returns a DomainCounter for the part with this key. It calls each with every
// domain in order, and with the number of bytes that the domain shares with the one before. The
// arguments are valid during the call.
func NewDomainCounter(key string, each func(domain []byte, shared int, t *segment.Totals) error) *DomainCounter {
	return &DomainCounter{key: key, each: each}
}

// Add counts the part's next rows. They must have the columns domain, size and ts.
func (d *DomainCounter) Add(r Rows) error {
	for from := 0; from < r.Rows; {
		domain := r.Domain[from]
		to := from + 1
		for to < r.Rows && r.Domain[to] == domain {
			to++
		}
		if err := d.begin([]byte(domain), r.Group, r.FirstRow+int64(from)); err != nil {
			return err
		}
		d.count(r.Columns, from, to)
		from = to
	}
	return nil
}

// End calls each with the last domain.
func (d *DomainCounter) End() error {
	if len(d.domain) == 0 {
		return nil
	}
	err := d.each(d.domain, d.shared, &d.totals)
	d.totals = segment.Totals{}
	return err
}

// addRuns counts the part's next rows.
func (d *DomainCounter) addRuns(r domainRows) error {
	at, i := 0, 0
	for ; i < r.Len() && (i < 2 || r.Measures.Rows > 0); i++ {
		domain, rows := r.Run(i)
		if err := d.begin(domain, r.group, r.firstRow+int64(at)); err != nil {
			return err
		}
		d.count(&r.Measures, at, at+int(rows))
		at += int(rows)
	}
	if i == r.Len() {
		return nil
	}
	// The other runs have neither size nor ts, and none continues a domain that was open before.
	// The last one stays open.
	last := r.Len() - 1
	if err := d.End(); err != nil {
		return err
	}
	n, err := d.writer.addPlain(r.DomainRuns, i, last)
	if err != nil {
		return err
	}
	before, _ := r.Run(n - 1)
	domain, rows := r.Run(n)
	shared := codec.CommonPrefix(before, domain)
	if n < last || !follows(domain, before, shared) {
		for ; i < n; i++ {
			_, rows := r.Run(i)
			at += int(rows)
		}
		return d.outOfOrder(domain, before, r.group, r.firstRow+int64(at))
	}
	d.domain, d.shared, d.totals.Rows = append(d.domain[:0], domain...), shared, rows
	return nil
}

// begin opens a domain, if it is not the open one, and calls each with the domain that was open.
func (d *DomainCounter) begin(domain []byte, group uint32, row int64) error {
	shared := codec.CommonPrefix(d.domain, domain)
	if shared > 0 && shared == len(domain) && shared == len(d.domain) {
		return nil
	}
	if !follows(domain, d.domain, shared) {
		return d.outOfOrder(domain, d.domain, group, row)
	}
	if err := d.End(); err != nil {
		return err
	}
	d.domain, d.shared = append(d.domain[:shared], domain[shared:]...), shared
	return nil
}

// outOfOrder returns the error for a domain that does not follow the one before, or is too long.
func (d *DomainCounter) outOfOrder(domain, before []byte, group uint32, row int64) error {
	return codec.Corrupt(d.key, fmt.Sprintf("row %d of row group %d", row, group), -1,
		fmt.Sprintf("a domain of at most %d bytes after %q", segment.MaxDomain, before), fmt.Sprintf("%q", domain))
}

// count adds the rows [from, to) of c to the open domain. If c has no rows, none has size or ts.
func (d *DomainCounter) count(c *part.Columns, from, to int) {
	d.totals.Rows += int64(to - from)
	if c.Rows == 0 {
		return
	}
	for i := from; i < to; i++ {
		if c.HasSize[i] || c.HasTS[i] {
			d.totals.Add(segment.Totals{
				HasSize: c.HasSize[i], Size: c.Size[i],
				HasTS: c.HasTS[i], FirstTS: c.TS[i], LastTS: c.TS[i],
			})
		}
	}
}
