package part

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/row"
)

// Postings builds the postings object of parts while they are written. It is not safe for
// concurrent use.
type Postings interface {
	DomainSink
	// Finish writes the object and returns it with its number of domains.
	Finish(ctx context.Context, store blob.Store) (lake.FrameObject, int64, error)
}

// progressEvery is the number of rows, some milliseconds of work, after which WriteTask reports.
const progressEvery = 4096

// TaskParts is what WriteTask has written.
type TaskParts struct {
	// Rows is the number of rows in the parts.
	Rows int64
	// Parts are in the order of their prefixes and, within one prefix, of their rows.
	Parts []Written
	// Postings is the postings object of the parts, Domains its number of domains. They are zero
	// without a Postings.
	Postings lake.FrameObject
	Domains  int64
}

// WriteTask writes the parts of some prefixes. opt is for all of them; its Prefix and Domains are
// not looked at. postings may be nil. report is called with the number of rows at intervals, in the
// goroutine of the caller; an error of it ends the work. At most two parts are in opt.TempDir.
func WriteTask(
	ctx context.Context, store blob.Store, prefixes []string, source row.Source, opt Options,
	postings Postings, report func(rows int64) error,
) (TaskParts, error) {
	if postings != nil {
		opt.Domains = postings
	}
	var out TaskParts
	written := make([][]Written, len(prefixes))
	// Storing a part is mostly waiting, so the rows of the next one are sorted meanwhile. At most
	// one part is being stored, because it is held in memory.
	storing, within := errgroup.WithContext(ctx)
	storing.SetLimit(1)
	var err error
	for i, prefix := range prefixes {
		if within.Err() != nil {
			break
		}
		opt.Prefix = prefix
		var w *Writer
		if w, err = writePrefix(within, store, source, opt, &out.Rows, report); err != nil {
			break
		}
		storing.Go(func() (err error) {
			defer w.Abort()
			written[i], err = w.Finish()
			return err
		})
	}
	if err == nil && postings != nil {
		out.Postings, out.Domains, err = postings.Finish(within, store)
	}
	// If a part could not be stored, other errors follow from that.
	if err := cmp.Or(storing.Wait(), err); err != nil {
		return TaskParts{}, err
	}
	out.Parts = slices.Concat(written...)
	return out, report(out.Rows)
}

// writePrefix writes the rows of one domain_prefix to parts. The caller finishes the returned
// writer, which stores the last of them. It adds the number of rows to rows.
func writePrefix(
	ctx context.Context, store blob.Store, source row.Source, opt Options, rows *int64, report func(int64) error,
) (*Writer, error) {
	first, last, err := row.PartitionsOf(opt.Prefix)
	if err != nil {
		return nil, fmt.Errorf("domain prefix %q: %w", opt.Prefix, err)
	}
	w := NewWriter(ctx, store, opt)
	err = source(opt.Prefix, first, last, &countedRows{w, rows, report})
	if err == nil {
		err = w.End()
	}
	if err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

// countedRows counts rows and calls report every progressEvery rows.
type countedRows struct {
	*Writer
	rows   *int64
	report func(int64) error
}

func (c *countedRows) Rows(hosts []row.SortedHost, rows []row.SortedRow) (records int, err error) {
	records, err = c.Writer.Rows(hosts, rows)
	before := *c.rows
	*c.rows += int64(records)
	if err == nil && *c.rows/progressEvery > before/progressEvery {
		err = c.report(*c.rows)
	}
	return records, err
}
