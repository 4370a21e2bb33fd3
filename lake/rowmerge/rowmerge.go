// Package rowmerge turns rows that were shuffled by partition into the parts of a batch: it chooses
// how a batch is partitioned, divides the partitions into tasks, and writes the parts of a task. It
// is shared by ingests, whose rows come from raw objects, and compactions, whose rows come from the
// parts of several batches.
package rowmerge

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/rowsort"
)

// Partition counts the rows of one partition and the bytes of their keys, before equal rows are
// merged.
type Partition struct {
	Rows     int64 `json:"rows"`
	KeyBytes int64 `json:"key_bytes"`
}

// Task is some partitions that one call of Write writes.
type Task struct {
	// Prefixes are the domain_prefixes with rows, in ascending order.
	Prefixes []string `json:"prefixes"`
	Partition
}

// Limits are the sizes, in bytes of keys, by which Plan divides a batch. Only tests use others than
// DefaultLimits.
type Limits struct {
	// AnyPrefix and OneDigit are the sizes from which a batch is partitioned by one hex digit and
	// by two.
	AnyPrefix, OneDigit int64
	// Task is the size of a task.
	Task int64
}

// DefaultLimits are the limits of every lake, since the parts of a batch depend on them.
var DefaultLimits = Limits{AnyPrefix: 64 << 20, OneDigit: 1 << 30, Task: 64 << 20}

// Arena is the memory for the rows of one Write, in bytes. Rows beyond it are sorted in pieces.
const Arena = 192 << 20

// Plan chooses the width of prefixes, 0 to 2 hex digits, and groups those with rows, in order, into
// tasks of similar size. Both depend on the counts alone.
func Plan(parts *[row.Partitions]Partition, lim Limits) (width int, tasks []Task) {
	var total int64
	for _, p := range parts {
		total += p.KeyBytes
	}
	switch {
	case total < lim.AnyPrefix:
		width = 0
	case total < lim.OneDigit:
		width = 1
	default:
		width = 2
	}
	size := row.Partitions >> (4 * width)
	for first := 0; first < row.Partitions; first += size {
		var sum Partition
		for _, p := range parts[first : first+size] {
			sum.add(p)
		}
		if sum.Rows == 0 {
			continue
		}
		if n := len(tasks); n == 0 || tasks[n-1].KeyBytes+sum.KeyBytes > lim.Task {
			tasks = append(tasks, Task{})
		}
		t := &tasks[len(tasks)-1]
		t.Prefixes = append(t.Prefixes, rowsort.PrefixOf(first, width))
		t.add(sum)
	}
	return width, tasks
}

func (p *Partition) add(q Partition) {
	p.Rows += q.Rows
	p.KeyBytes += q.KeyBytes
}

// Source passes the rows of a range of partitions to sink, sorted and without duplicates. prefix is
// the domain_prefix of these partitions.
type Source func(prefix string, first, last byte, sink row.Sink) error

// FromShuffle returns a Source of the rows in shuffle files, for a Write with these prefixes. Rows
// beyond arena bytes are sorted in runs, whose keys spill returns: pass 0 has the runs of a prefix,
// others those merged from them. The caller calls release when it needs the Source no longer.
func FromShuffle(
	ctx context.Context, store blob.Store, files []rowsort.ShuffleFile, arena int64, prefixes []string,
	spill func(prefix string, pass, n int) string,
) (source Source, release func(), err error) {
	ctx, cancel := context.WithCancel(ctx) // ends prefetches that were not used
	shuffle, err := rowsort.OpenShuffle(ctx, store, files)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	buffer := rowsort.NewBuffer(arena)
	source = func(prefix string, first, last byte, sink row.Sink) error {
		var runs []rowsort.Run
		writeRun := func() error {
			r, err := buffer.WriteRun(ctx, store, spill(prefix, 0, len(runs)))
			runs = append(runs, r)
			return err
		}
		if err := buffer.Load(ctx, shuffle, first, last, writeRun); err != nil {
			return err
		}
		if len(runs) == 0 {
			if next := slices.Index(prefixes, prefix) + 1; next < len(prefixes) {
				if first, last, err := rowsort.PartitionsOf(prefixes[next]); err == nil { // an error is returned at their turn
					buffer.Prefetch(ctx, shuffle, first, last)
				}
			}
			defer buffer.Empty()
			return buffer.Rows(ctx, first, last, sink)
		}
		if err := writeRun(); err != nil {
			return err
		}
		buffer.Shrink() // MergeRuns allocates its own memory
		return rowsort.MergeRuns(ctx, store, runs, func(pass, n int) string { return spill(prefix, 1+pass, n) }, sink)
	}
	return source, func() { cancel(); buffer.Release() }, nil
}

// Postings builds the postings object of parts while they are written. It is not safe for
// concurrent use.
type Postings interface {
	part.DomainSink
	// Finish writes the object and returns it with its number of domains.
	Finish(ctx context.Context, store blob.Store) (lake.FrameObject, int64, error)
}

// progressEvery is the number of rows, some milliseconds of work, after which Write reports.
const progressEvery = 4096

// Written is what a Write has written.
type Written struct {
	// Rows is the number of rows in the parts.
	Rows int64
	// Parts are in the order of their prefixes and, within one prefix, of their rows.
	Parts []part.Written
	// Postings is the postings object of the parts, Domains its number of domains. They are zero
	// without a Postings.
	Postings lake.FrameObject
	Domains  int64
}

// Write writes the parts of some prefixes. opt is for all of them; its Prefix and Domains are not
// looked at. postings may be nil. report is called with the number of rows at intervals, in the
// goroutine of the caller; an error of it ends the work. At most two parts are in opt.TempDir.
func Write(
	ctx context.Context, store blob.Store, prefixes []string, source Source, opt part.Options,
	postings Postings, report func(rows int64) error,
) (Written, error) {
	if postings != nil {
		opt.Domains = postings
	}
	var out Written
	written := make([][]part.Written, len(prefixes))
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
		var w *part.Writer
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
		return Written{}, err
	}
	out.Parts = slices.Concat(written...)
	return out, report(out.Rows)
}

// writePrefix writes the rows of one domain_prefix to parts. The caller finishes the returned
// writer, which stores the last of them. It adds the number of rows to rows.
func writePrefix(
	ctx context.Context, store blob.Store, source Source, opt part.Options, rows *int64, report func(int64) error,
) (*part.Writer, error) {
	first, last, err := rowsort.PartitionsOf(opt.Prefix)
	if err != nil {
		return nil, fmt.Errorf("domain prefix %q: %w", opt.Prefix, err)
	}
	w := part.NewWriter(ctx, store, opt)
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
	*part.Writer
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
