package postings

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/seekable"
)

// domainPages is how many pages of domain, ts and size are read at once: at most about a megabyte
// of each column, and rarely more than ten megabytes decompressed.
const domainPages = 64

// PartScanner reads the rows of a part in order.
type PartScanner struct {
	Key  string // for errors
	Read seekable.RangeReader
}

// Rows are consecutive rows of one row group.
type Rows struct {
	Group    uint32
	FirstRow int64 // of Group
	*part.Columns
}

// Scan yields these columns of all rows of a part, at most batch rows at a time: whole pages,
// unless one has more rows, so that no page is decoded twice. Blocks are the part's page index.
// While the caller looks at some rows, Scan reads the next ones. Rows are valid until the next
// ones. Scan stops after an error.
func (p PartScanner) Scan(
	ctx context.Context, blocks []*part.PageIndexBlock, batch int64, cols []part.Column,
) iter.Seq2[Rows, error] {
	memory := [2]Rows{{Columns: new(part.Columns)}, {Columns: new(part.Columns)}}
	return readAhead(ctx, memory, func(read func(func(context.Context, *Rows) error) bool) {
		for _, b := range blocks {
			for at, page := int64(0), 0; at < b.Rows(); {
				end := min(at+batch, b.Rows())
				for page < b.Pages() && b.PageStart(page+1) <= end {
					page++
				}
				if start := b.PageStart(page); start > at {
					end = start
				}
				if !read(func(ctx context.Context, r *Rows) error {
					r.Group, r.FirstRow = uint32(b.RowGroup), b.FirstRow+at
					return p.readColumns(ctx, r.Columns, b, r.FirstRow, end-at, cols)
				}) {
					return
				}
				at = end
			}
		}
	})
}

// readColumns reads some columns of rows into c.
func (p PartScanner) readColumns(
	ctx context.Context, c *part.Columns, b *part.PageIndexBlock, firstRow, rows int64, cols []part.Column,
) error {
	plan, err := part.NewPlan(b, firstRow, rows, cols...)
	if err != nil {
		return fmt.Errorf("%s: %w", p.Key, err)
	}
	data, err := p.readRanges(ctx, plan)
	if err != nil {
		return err
	}
	c.Reset()
	return plan.AppendTo(c, p.Key, data)
}

// readRanges reads what a plan needs, all ranges at once.
func (p PartScanner) readRanges(ctx context.Context, plan *part.Plan) ([][]byte, error) {
	data := make([][]byte, len(plan.Ranges))
	g, ctx := errgroup.WithContext(ctx)
	for i, r := range plan.Ranges {
		g.Go(func() (err error) {
			data[i], err = p.Read(ctx, r.Offset, r.Bytes)
			return err
		})
	}
	return data, g.Wait()
}

// domainRows are the domains of consecutive rows of one row group.
type domainRows struct {
	group    uint32
	firstRow int64
	*part.DomainRuns
}

// runsPool keeps the memory of scans that have ended.
var runsPool = sync.Pool{New: func() any { return new(part.DomainRuns) }}

// scanDomains yields the domains of all rows of a part, like Scan.
func (p PartScanner) scanDomains(ctx context.Context, blocks []part.PageIndexBlock) iter.Seq2[domainRows, error] {
	return func(yield func(domainRows, error) bool) {
		var memory [2]domainRows
		for i := range memory {
			memory[i].DomainRuns = runsPool.Get().(*part.DomainRuns)
		}
		runs := [2]*part.DomainRuns{memory[0].DomainRuns, memory[1].DomainRuns}
		defer func() {
			runsPool.Put(runs[0])
			runsPool.Put(runs[1])
		}()
		readAhead(ctx, memory, func(read func(func(context.Context, *domainRows) error) bool) {
			for i := range blocks {
				b := &blocks[i]
				for from := 0; from < b.Pages(); from += domainPages {
					if !read(func(ctx context.Context, d *domainRows) error {
						plan, err := part.NewDomainPlan(b, from, min(from+domainPages, b.Pages()))
						if err != nil {
							return fmt.Errorf("%s: %w", p.Key, err)
						}
						d.group, d.firstRow = uint32(b.RowGroup), plan.FirstRow()
						data, err := p.readRanges(ctx, plan)
						if err != nil {
							return err
						}
						return plan.DomainRuns(d.DomainRuns, p.Key, data)
					}) {
						return
					}
				}
			}
		})(yield)
	}
}

// readAhead runs the reads that each passes to its argument, one after another, and yields their
// results. It runs the next read while the caller looks at a result, which is valid until the next
// one: the two take turns with memory. An error is yielded last. All reads have ended when
// readAhead returns.
func readAhead[T any](
	ctx context.Context, memory [2]T, each func(read func(func(context.Context, *T) error) bool),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		type result struct {
			value *T
			err   error
		}
		ctx, cancel := context.WithCancel(ctx)
		done := make(chan result)
		free := make(chan *T, len(memory))
		for i := range memory {
			free <- &memory[i]
		}
		go func() {
			defer close(done)
			each(func(read func(context.Context, *T) error) bool {
				var r result
				select {
				case r.value = <-free:
				case <-ctx.Done():
					return false
				}
				r.err = read(ctx, r.value)
				select {
				case done <- r:
				case <-ctx.Done():
					return false
				}
				return r.err == nil
			})
		}()
		defer func() {
			cancel()
			for range done { // wait for the goroutine
			}
		}()
		for r := range done {
			if !yield(*r.value, r.err) || r.err != nil {
				return
			}
			free <- r.value
		}
		if err := ctx.Err(); err != nil {
			var none T
			yield(none, err)
		}
	}
}
