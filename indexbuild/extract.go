package indexbuild

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"unsafe"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
)

// Extract makes the postings object of what one merge task of a run wrote: the domains of each of
// its parts with exact totals, and the parts' page indexes. It reads of
// the parts only the pages of domain, ts and size. It returns the object, which is named by
// its content, and the number of domains. A temporary file is in tempDir, "" is the system's folder.
func Extract(ctx context.Context, store blob.Store, run string, task int, tempDir string) (lake.FrameObject, int64, error) {
	t, err := ingest.ReadMerged(ctx, store, run, task)
	if err == nil {
		var o lake.FrameObject
		var domains int64
		if o, domains, err = extract(ctx, store, t, tempDir, nil); err == nil {
			return o, domains, nil
		}
	}
	return lake.FrameObject{}, 0, fmt.Errorf("extract postings of task %d of run %s: %w", task, run, err)
}

// extract asks accept, where not nil, before it writes the object under its key.
func extract(ctx context.Context, store blob.Store, t *ingest.MergedTask, tempDir string, accept func(key string) error) (lake.FrameObject, int64, error) {
	c, err := NewCollector(t.DatasetID, t.Batch, tempDir)
	if err != nil {
		return lake.FrameObject{}, 0, err
	}
	defer c.Close()
	rows := int64(0)
	for i := range t.Parts {
		p := &t.Parts[i]
		d := domainRuns{key: p.Part.Key, each: c.Domain}
		for r, err := range storedPart(store, p.Part.Key).scan(ctx, pageIndex(p.Blocks), countRows, countColumns) {
			if err == nil {
				err = d.add(r)
			}
			if err != nil {
				return lake.FrameObject{}, 0, err
			}
		}
		if err := d.end(); err != nil {
			return lake.FrameObject{}, 0, err
		}
		if err := c.EndPart(p); err != nil {
			return lake.FrameObject{}, 0, err
		}
		rows += p.Part.Rows
	}
	if rows != t.Rows {
		return lake.FrameObject{}, 0, fmt.Errorf("parts have %d rows, the merge wrote %d", rows, t.Rows)
	}
	return c.finish(ctx, store, accept)
}

// Collector makes the postings object of some parts of one batch from their domains, in the order in which the parts have them:
// whoever writes parts can tell it each domain as it is written, and then nobody has to read them again. It is for one goroutine.
type Collector struct {
	tmp  *os.File
	buf  *bufio.Writer
	hash *xxh3.Hasher
	w    *batchWriter
}

// NewCollector keeps what it collects in a temporary file in tempDir, "" is the system's folder: the object is named by its content,
// which is known when all of it is written. Close it, whether it was finished or not.
func NewCollector(dataset uint32, batch, tempDir string) (*Collector, error) {
	tmp, err := os.CreateTemp(tempDir, "postings-*.tmp")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(tmp.Name()) // gone when the process dies, where the system allows that
	c := &Collector{tmp: tmp, buf: bufio.NewWriterSize(tmp, 256<<10), hash: xxh3.New()}
	c.w = newBatchWriter(io.MultiWriter(c.buf, c.hash), dataset, batch)
	return c, nil
}

// Close drops the temporary file.
func (c *Collector) Close() {
	c.tmp.Close()
	_ = os.Remove(c.tmp.Name())
}

// Domain adds the open part's next domain: all its rows there, which follow those of the domain before, whatever row groups they
// are in. Domains of a part ascend. Neither argument is kept.
func (c *Collector) Domain(domain []byte, t *segment.Totals) error { return c.w.domain(domain, t) }

// EndPart ends the open part; further domains are the next one's. Its domains have to have all its rows.
func (c *Collector) EndPart(p *lake.WrittenPart) error {
	var groups []int64
	blocks := make([][]byte, len(p.Blocks))
	for i := range p.Blocks {
		b := &p.Blocks[i]
		if b.RowGroup == len(groups) {
			groups = append(groups, 0)
		}
		if b.RowGroup != len(groups)-1 || b.FirstRow != groups[b.RowGroup] {
			return codec.Corrupt(p.Part.Key, "page index", -1, "row groups and rows that follow each other", fmt.Sprintf("row %d of row group %d", b.FirstRow, b.RowGroup))
		}
		groups[b.RowGroup] += b.Rows()
		blocks[i] = b.Append(nil)
	}
	return c.w.part(&p.Part, groups, blocks)
}

// Finish writes the object and returns it with the number of domains, one that goes on in the next part counted once.
func (c *Collector) Finish(ctx context.Context, store blob.Store) (lake.FrameObject, int64, error) {
	return c.finish(ctx, store, nil)
}

func (c *Collector) finish(ctx context.Context, store blob.Store, accept func(key string) error) (lake.FrameObject, int64, error) {
	ff, err := c.w.finish()
	if err != nil {
		return lake.FrameObject{}, 0, err
	}
	if err := c.buf.Flush(); err != nil {
		return lake.FrameObject{}, 0, err
	}
	key := lake.PostingsKey(c.w.dir.dataset, c.w.dir.batch, lake.FormatDigest(c.hash.Sum128()))
	if accept != nil {
		if err := accept(key); err != nil {
			return lake.FrameObject{}, 0, err
		}
	}
	if err := upload(ctx, store, key, c.tmp); err != nil {
		return lake.FrameObject{}, 0, err
	}
	return lake.NewFrameObject(key, ff), c.w.domains, nil
}

// upload writes a file's bytes to key.
func upload(ctx context.Context, store blob.Store, key string, f *os.File) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	out, err := store.Create(ctx, key)
	if err != nil {
		return err
	}
	defer out.Abort()
	if _, err := io.Copy(out, f); err != nil {
		return err
	}
	_, err = out.Finish()
	return err
}

// countColumns are what totals are made of.
var countColumns = []lake.Column{lake.ColDomain, lake.ColTS, lake.ColSize}

// pageIndex makes pointers of blocks.
func pageIndex(blocks []lake.PageIndexBlock) []*lake.PageIndexBlock {
	p := make([]*lake.PageIndexBlock, len(blocks))
	for i := range blocks {
		p[i] = &blocks[i]
	}
	return p
}

const (
	// countRows is how many rows of domain, ts and size are read at once: a megabyte or less of
	// each column, and seldom more than ten decompressed.
	countRows = 1 << 18
	// checkRows is how many rows of all columns are read at once: extras may have a megabyte a page.
	checkRows = 1 << 14
)

// partReader reads bytes of one part.
type partReader struct {
	key  string
	read codec.RangeReader
}

func storedPart(store blob.Store, key string) partReader {
	return partReader{key, func(ctx context.Context, off, n int64) ([]byte, error) { return store.ReadRange(ctx, key, off, n) }}
}

// columns reads rows of some columns, all at once, into c.
func (p partReader) columns(ctx context.Context, c *lake.Columns, b *lake.PageIndexBlock, firstRow, rows int64, cols []lake.Column) error {
	plan, err := b.Plan(firstRow, rows, cols...)
	if err != nil {
		return fmt.Errorf("%s: %w", p.key, err)
	}
	data := make([][]byte, len(plan.Ranges))
	g, ctx := errgroup.WithContext(ctx)
	for i, r := range plan.Ranges {
		g.Go(func() (err error) {
			data[i], err = p.read(ctx, r.Offset, r.Bytes)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	*c = lake.Columns{DatasetID: c.DatasetID[:0], Batch: c.Batch[:0], Scheme: c.Scheme[:0], Port: c.Port[:0], DomainID: c.DomainID[:0], Domain: c.Domain[:0],
		Host: c.Host[:0], TS: c.TS[:0], HasTS: c.HasTS[:0], Size: c.Size[:0], HasSize: c.HasSize[:0], PathQuery: c.PathQuery[:0], URLID: c.URLID[:0],
		RawURL: c.RawURL[:0], Extras: c.Extras[:0]}
	return plan.AppendTo(c, p.key, data)
}

// rows is a run of rows of one row group.
type rows struct {
	group uint32
	first int64
	*lake.Columns
}

// scan yields all rows of a part, batch rows at a time, and reads the next while one is looked
// at. What is yielded is valid until the next. An error is the last thing yielded.
func (p partReader) scan(ctx context.Context, blocks []*lake.PageIndexBlock, batch int64, cols []lake.Column) iter.Seq2[rows, error] {
	return func(yield func(rows, error) bool) {
		type result struct {
			rows rows
			err  error
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ahead := make(chan result)
		free := make(chan *lake.Columns, 2) // one is read while the other is looked at
		free <- new(lake.Columns)
		free <- new(lake.Columns)
		go func() {
			defer close(ahead)
			for _, b := range blocks {
				for at := int64(0); at < b.Rows(); at += batch {
					r := result{rows: rows{group: uint32(b.RowGroup), first: b.FirstRow + at}}
					select {
					case r.rows.Columns = <-free:
					case <-ctx.Done():
						return
					}
					r.err = p.columns(ctx, r.rows.Columns, b, r.rows.first, min(batch, b.Rows()-at), cols)
					select {
					case ahead <- r:
					case <-ctx.Done():
						return
					}
					if r.err != nil {
						return
					}
				}
			}
		}()
		for r := range ahead {
			if !yield(r.rows, r.err) {
				return
			}
			free <- r.rows.Columns
		}
		if err := ctx.Err(); err != nil {
			yield(rows{}, err)
		}
	}
}

// domainRuns puts together what a part has of each domain.
type domainRuns struct {
	key  string // of the part
	each func(domain []byte, t *segment.Totals) error

	domain []byte
	totals segment.Totals
}

// add takes the next rows of the part. It calls each with every domain that ended before them, in their order.
func (d *domainRuns) add(r rows) error {
	for from := 0; from < r.Rows; {
		domain := r.Domain[from]
		if string(d.domain) != domain {
			if domain <= string(d.domain) || len(domain) > segment.MaxDomain {
				return codec.Corrupt(d.key, fmt.Sprintf("row %d of row group %d", r.first+int64(from), r.group), -1,
					fmt.Sprintf("a domain of at most %d bytes after %q", segment.MaxDomain, d.domain), fmt.Sprintf("%q", domain))
			}
			if err := d.end(); err != nil {
				return err
			}
			d.domain = append(d.domain[:0], domain...)
		}
		to := from + 1
		for to < r.Rows && sameString(r.Domain[to], domain) {
			to++
		}
		d.totals.Rows += int64(to - from)
		for i := from; i < to; i++ {
			if r.HasSize[i] || r.HasTS[i] {
				d.totals.Add(segment.Totals{HasSize: r.HasSize[i], Size: r.Size[i], HasTS: r.HasTS[i], FirstTS: r.TS[i], LastTS: r.TS[i]})
			}
		}
		from = to
	}
	return nil
}

// sameString is a == b, faster where both are one string in memory: rows of a page with one domain are.
func sameString(a, b string) bool {
	return unsafe.StringData(a) == unsafe.StringData(b) && len(a) == len(b) || a == b
}

// end calls each with the last domain.
func (d *domainRuns) end() error {
	if len(d.domain) == 0 {
		return nil
	}
	err := d.each(d.domain, &d.totals)
	d.totals = segment.Totals{}
	return err
}
