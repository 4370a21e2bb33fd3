package indexbuild

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
)

// extractMemory is what Extract sorts in memory. A merge task has far fewer domains than rows:
// usually all fit.
const extractMemory = 64 << 20

// Extract makes the postings object of what one merge task of a run wrote: the domains of all
// its parts with exact totals and the places of their rows, and the parts' page indexes. It reads of
// the parts only the pages of domain, ts and size. It returns the object, which is named by
// its content, and the number of domains. Temporary files are in tempDir, "" is the system's folder.
func Extract(ctx context.Context, store blob.Store, run string, task int, tempDir string) (lake.FrameObject, int64, error) {
	t, err := ingest.ReadMerged(ctx, store, run, task)
	if err == nil {
		var o lake.FrameObject
		var domains int64
		if o, domains, err = extract(ctx, store, t, tempDir, extractMemory, nil); err == nil {
			return o, domains, nil
		}
	}
	return lake.FrameObject{}, 0, fmt.Errorf("extract postings of task %d of run %s: %w", task, run, err)
}

// extract asks accept, where not nil, before it writes the object under its key.
func extract(ctx context.Context, store blob.Store, t *ingest.MergedTask, tempDir string, memory int, accept func(key string) error) (lake.FrameObject, int64, error) {
	lists := partLists{dir: tempDir, memory: memory}
	defer lists.close()
	for i := range t.Parts {
		p := &t.Parts[i]
		lists.begin()
		d := domainRuns{key: p.Part.Key, file: uint32(i), each: func(r *record) error {
			r.dataset = t.DatasetID
			return lists.add(r)
		}}
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
	}

	// The object is named by its content, which is known when all of it is written.
	tmp, err := os.CreateTemp(tempDir, "postings-*.tmp")
	if err != nil {
		return lake.FrameObject{}, 0, err
	}
	defer func() {
		tmp.Close()
		_ = os.Remove(tmp.Name())
	}()
	_ = os.Remove(tmp.Name()) // gone when the process dies, where the system allows that
	hash := xxh3.New()
	buf := bufio.NewWriterSize(tmp, 256<<10)
	w := newBatchWriter(io.MultiWriter(buf, hash), t.DatasetID, t.Batch)
	if err := lists.merge(ctx, w); err != nil {
		return lake.FrameObject{}, 0, err
	}
	if w.dir.rows != t.Rows {
		return lake.FrameObject{}, 0, fmt.Errorf("parts have %d rows, the merge wrote %d", w.dir.rows, t.Rows)
	}
	for i := range t.Parts {
		p := &t.Parts[i]
		blocks := make([][]byte, len(p.Blocks))
		for n := range p.Blocks {
			blocks[n] = p.Blocks[n].Append(nil)
		}
		if err := w.part(&p.Part, blocks); err != nil {
			return lake.FrameObject{}, 0, err
		}
	}
	ff, err := w.finish()
	if err != nil {
		return lake.FrameObject{}, 0, err
	}
	if err := buf.Flush(); err != nil {
		return lake.FrameObject{}, 0, err
	}
	key := lake.PostingsKey(t.DatasetID, t.Batch, lake.FormatDigest(hash.Sum128()))
	if accept != nil {
		if err := accept(key); err != nil {
			return lake.FrameObject{}, 0, err
		}
	}
	if err := upload(ctx, store, key, tmp); err != nil {
		return lake.FrameObject{}, 0, err
	}
	return lake.NewFrameObject(key, ff), w.dir.domains, nil
}

// partLists has the domains of each part as a sorted list: in memory, or in a temporary file if they are too many.
type partLists struct {
	dir    string
	memory int
	lists  []partList
	used   int
	spool  *spool
	buf    []byte
}

// partList is the list of one part: first what is in the file.
type partList struct {
	spooled spooled
	slabs   []*slab
}

func (l *partList) next(ctx context.Context) (*slab, error) {
	if len(l.spooled.at) > 0 {
		return l.spooled.next(ctx)
	}
	if len(l.slabs) == 0 {
		return nil, nil
	}
	s := l.slabs[0]
	l.slabs = l.slabs[1:]
	return s, nil
}

func (p *partLists) close() { p.spool.close() }

// begin begins the list of the next part.
func (p *partLists) begin() { p.lists = append(p.lists, partList{}) }

// add appends a record of the part's next domain.
func (p *partLists) add(r *record) error {
	l := &p.lists[len(p.lists)-1]
	n := len(l.slabs) - 1
	if n < 0 || len(l.slabs[n].text)+len(l.slabs[n].vals) >= slabBytes {
		if n >= 0 {
			p.used += l.slabs[n].bytes()
		}
		if p.used >= p.memory {
			if err := p.spill(); err != nil {
				return err
			}
		}
		l.slabs = append(l.slabs, newSlab())
		n = len(l.slabs) - 1
	}
	l.slabs[n].add(r)
	return nil
}

// spill writes all slabs to the file.
func (p *partLists) spill() (err error) {
	if p.spool == nil {
		if p.spool, err = newSpool(p.dir); err != nil {
			return err
		}
	}
	for i := range p.lists {
		l := &p.lists[i]
		l.spooled.spool = p.spool
		for _, s := range l.slabs {
			var at extent
			if at, p.buf, err = p.spool.writeSlab(s, p.buf); err != nil {
				return err
			}
			l.spooled.at = append(l.spooled.at, at)
			s.release()
		}
		l.slabs = l.slabs[:0]
	}
	p.used = 0
	return nil
}

// merge writes the domains of all parts.
func (p *partLists) merge(ctx context.Context, w *batchWriter) error {
	sources := make([]slabSource, len(p.lists))
	for i := range p.lists {
		sources[i] = &p.lists[i]
	}
	if len(sources) > mergeWidth {
		if err := p.spill(); err != nil {
			return err
		}
		var err error
		if sources, err = narrow(ctx, sources, p.spool); err != nil {
			return err
		}
	}
	return mergeSlabs(ctx, sources, nil, func(m *window) error {
		for i := range m.ends {
			val := m.val(i)
			_, n := uvarint(val, 0) // the dataset, which is the object's
			rows, end := uvarint(val, max(n, 0))
			if n <= 0 || end <= 0 {
				return codec.Corrupt("sorted records", "record", -1, "dataset and rows", fmt.Sprintf("%x", val))
			}
			if err := w.packed(m.domain(i), int64(rows), val[n:]); err != nil {
				return err
			}
		}
		return ctx.Err()
	})
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
	file uint32 // its number in tuples
	each func(*record) error

	rec   record
	group uint32 // row group of the last rows
}

// add takes the next rows of the part. It calls each with every domain that ended before them,
// in their order, as a record whose key is the domain. The record is valid during the call.
func (d *domainRuns) add(r rows) error {
	// A run goes on over reads of one row group; another row group begins another tuple.
	fresh := r.group != d.group
	d.group = r.group
	for from := 0; from < r.Rows; {
		domain := r.Domain[from]
		if string(d.rec.key) != domain {
			if domain <= string(d.rec.key) || len(domain) > segment.MaxDomain {
				return codec.Corrupt(d.key, fmt.Sprintf("row %d of row group %d", r.first+int64(from), r.group), -1,
					fmt.Sprintf("a domain of at most %d bytes after %q", segment.MaxDomain, d.rec.key), fmt.Sprintf("%q", domain))
			}
			if err := d.end(); err != nil {
				return err
			}
			d.rec.key = append(d.rec.key[:0], domain...)
			fresh = true
		}
		to := from + 1
		for to < r.Rows && r.Domain[to] == domain {
			to++
		}
		if fresh {
			d.rec.tuples = append(d.rec.tuples, segment.Tuple{FileID: d.file, RowGroup: r.group, FirstRow: r.first + int64(from)})
			fresh = false
		}
		d.rec.tuples[len(d.rec.tuples)-1].Rows += int64(to - from)
		d.rec.totals.Rows += int64(to - from)
		for i := from; i < to; i++ {
			if r.HasSize[i] || r.HasTS[i] {
				d.rec.totals.Add(segment.Totals{HasSize: r.HasSize[i], Size: r.Size[i], HasTS: r.HasTS[i], FirstTS: r.TS[i], LastTS: r.TS[i]})
			}
		}
		from = to
	}
	return nil
}

// end calls each with the last domain.
func (d *domainRuns) end() error {
	if len(d.rec.key) == 0 {
		return nil
	}
	err := d.each(&d.rec)
	d.rec.totals, d.rec.tuples = segment.Totals{}, d.rec.tuples[:0]
	return err
}
