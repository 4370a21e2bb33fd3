package postings

import (
	"context"
	"iter"
)

// PartDomain is a domain of a part, with its totals and rows there. The tuples have no file number.
type PartDomain struct {
	Name []byte
	Record
}

// PartDomains yields the domains of part n in order. Each is valid until the next. It stops after
// an error.
func (r *Reader) PartDomains(ctx context.Context, n int) iter.Seq2[*PartDomain, error] {
	return func(yield func(*PartDomain, error) bool) {
		src := r.Source(n, 0)
		defer src.Close()
		var d PartDomain
		var block []byte
		for {
			next, err := src.Load(ctx, block)
			if err != nil {
				yield(nil, err)
				return
			}
			if next == nil {
				return
			}
			block = next
			for at := 0; at < len(block)-BlockSlack; {
				b := BlockDomain(block[at:])
				at += b.Len()
				text, n := b.Text()
				d.Name = text[:n]
				if err := d.Decode(b.Records()); err != nil {
					yield(nil, err)
					return
				}
				if !yield(&d, nil) {
					return
				}
			}
		}
	}
}
