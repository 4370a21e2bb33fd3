package postings

import (
	"context"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"sync"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/partreader"
	"github.com/urlake/urlake/lake/seekable"
)

// Extract makes the postings object of what one merge task of a run wrote: the domains of each of
// its parts with exact totals, and the parts' page indexes. Where the merge had a Collector, it has made that already; else
// of the parts only the pages of domain, ts and size are read. It returns the object, which is named by
// its content, and the number of domains. A temporary file is in tempDir, "" is the system's folder.
func Extract(ctx context.Context, store blob.Store, run string, task int, tempDir string) (lake.FrameObject, int64, error) {
	t, err := ingest.ReadMerged(ctx, store, run, task)
	if err == nil && t.Postings.Key != "" {
		return t.Postings, t.Domains, nil
	}
	if err == nil {
		var o lake.FrameObject
		var domains int64
		if o, domains, err = ExtractIf(ctx, store, t, tempDir, nil); err == nil {
			return o, domains, nil
		}
	}
	return lake.FrameObject{}, 0, fmt.Errorf("extract postings of task %d of run %s: %w", task, run, err)
}

// extract asks accept, where not nil, before it writes the object under its key.
func ExtractIf(ctx context.Context, store blob.Store, t *ingest.MergedTask, tempDir string, accept func(key string) error) (lake.FrameObject, int64, error) {
	c := NewCollector(t.DatasetID, t.Batch, tempDir)
	defer c.Close()
	rows := int64(0)
	for i := range t.Parts {
		p := &t.Parts[i]
		c.runs.Key = p.Part.Key
		for r, err := range storedPart(store, p.Part.Key).scanDomains(ctx, p.Blocks) {
			if err == nil {
				err = c.runs.addRuns(r)
			}
			if err != nil {
				return lake.FrameObject{}, 0, err
			}
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
// whoever writes parts can tell it the domains as they are written, and then nobody has to read them again. It is for one goroutine.
type Collector struct {
	out  scratch
	hash *xxh3.Hasher
	w    *batchWriter
	runs DomainRuns // of the open part
}

// Collect makes merges write postings objects; NewCollector says what is in tempDir.
func Collect(tempDir string) ingest.NewPostings {
	return func(dataset uint32, batch string) ingest.PostingsWriter { return NewCollector(dataset, batch, tempDir) }
}

// CollectInMemory is Collect without a temporary file, for merges of rows that are in memory themselves: what is collected of them is a fraction
// of what they take.
func CollectInMemory(dataset uint32, batch string) ingest.PostingsWriter {
	c := NewCollector(dataset, batch, "")
	c.out.most = math.MaxInt
	return c
}

// NewCollector keeps what it collects in memory while that is little, then in a temporary file in tempDir, "" is the system's folder: the object
// is named by its content, which is known when all of it is written. Close it, whether it was finished or not.
func NewCollector(dataset uint32, batch, tempDir string) *Collector {
	c := &Collector{out: scratch{dir: tempDir, most: scratchMemory}, hash: xxh3.New()}
	c.w = NewBatchWriter(io.MultiWriter(&c.out, c.hash), dataset, batch)
	c.runs = DomainRuns{Key: "part", Each: c.w.add, writer: c.w}
	return c
}

// Close drops the temporary file.
func (c *Collector) Close() { c.out.close() }

// Domains adds the open part's next rows, whatever row groups they are in. Domains of a part ascend; the first may be that of the rows before.
func (c *Collector) Domains(rows *part.DomainRuns) error {
	return c.runs.addRuns(domains{DomainRuns: rows})
}

// EndPart ends the open part; further domains are the next one's. Its domains have to have all its rows.
func (c *Collector) EndPart(p *part.Written) error {
	if err := c.runs.End(); err != nil {
		return err
	}
	c.runs.domain = c.runs.domain[:0]
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
	return c.w.Part(&p.Part, groups, blocks)
}

// Finish writes the object and returns it with the number of domains, one that goes on in the next part counted once.
func (c *Collector) Finish(ctx context.Context, store blob.Store) (lake.FrameObject, int64, error) {
	return c.finish(ctx, store, nil)
}

func (c *Collector) finish(ctx context.Context, store blob.Store, accept func(key string) error) (lake.FrameObject, int64, error) {
	ff, err := c.w.Finish()
	if err != nil {
		return lake.FrameObject{}, 0, err
	}
	key := lake.PostingsKey(c.w.dir.Dataset, c.w.dir.Batch, lake.FormatDigest(c.hash.Sum128()))
	if accept != nil {
		if err := accept(key); err != nil {
			return lake.FrameObject{}, 0, err
		}
	}
	if err := c.out.upload(ctx, store, key); err != nil {
		return lake.FrameObject{}, 0, err
	}
	return lake.NewFrameObject(key, ff), c.w.domains, nil
}

// scratchMemory is what a Collector has in memory: most postings objects altogether.
const scratchMemory = 2 << 20

// scratch is what is written once and then read once.
type scratch struct {
	dir  string
	most int // bytes in memory
	buf  []byte
	file *os.File // what was written before buf; nil if nothing was
}

func (s *scratch) Write(p []byte) (int, error) {
	if len(s.buf) > 0 && len(s.buf)+len(p) > s.most {
		if err := s.flush(); err != nil {
			return 0, err
		}
	}
	s.buf = append(s.buf, p...)
	return len(p), nil
}

// flush moves buf to the file.
func (s *scratch) flush() (err error) {
	if s.file == nil {
		if s.file, err = os.CreateTemp(s.dir, "postings-*.tmp"); err != nil {
			return err
		}
		_ = os.Remove(s.file.Name()) // gone when the process dies, where the system allows that
	}
	_, err = s.file.Write(s.buf)
	s.buf = s.buf[:0]
	return err
}

// upload writes everything to key.
func (s *scratch) upload(ctx context.Context, store blob.Store, key string) error {
	out, err := store.Create(ctx, key)
	if err != nil {
		return err
	}
	defer out.Abort()
	if s.file != nil {
		if _, err := s.file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.Copy(out, s.file); err != nil {
			return err
		}
	}
	if _, err := out.Write(s.buf); err != nil {
		return err
	}
	_, err = out.Finish()
	return err
}

func (s *scratch) close() {
	if s.file != nil {
		s.file.Close()
		_ = os.Remove(s.file.Name())
	}
}

// pageIndex makes pointers of blocks.
func PageIndex(blocks []part.PageIndexBlock) []*part.PageIndexBlock {
	p := make([]*part.PageIndexBlock, len(blocks))
	for i := range blocks {
		p[i] = &blocks[i]
	}
	return p
}

const (
	// countPages is how many pages of domain, ts and size are read at once: a megabyte or less of
	// each column, and seldom more than ten decompressed.
	countPages = 64
	// checkRows is how many rows of all columns are read at once: extras may have a megabyte a page.
	CheckRows = 1 << 14
)

// partReader reads bytes of one part.
type PartReader struct {
	Key  string
	Read seekable.RangeReader
}

func storedPart(store blob.Store, key string) PartReader {
	return PartReader{key, func(ctx context.Context, off, n int64) ([]byte, error) { return store.ReadRange(ctx, key, off, n) }}
}

// ranges reads what a plan needs.
func (p PartReader) ranges(ctx context.Context, plan *partreader.Plan) ([][]byte, error) {
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

// columns reads rows of some columns, all at once, into c.
func (p PartReader) columns(ctx context.Context, c *part.Columns, b *part.PageIndexBlock, firstRow, rows int64, cols []part.Column) error {
	plan, err := partreader.NewPlan(b, firstRow, rows, cols...)
	if err != nil {
		return fmt.Errorf("%s: %w", p.Key, err)
	}
	data, err := p.ranges(ctx, plan)
	if err != nil {
		return err
	}
	*c = part.Columns{DatasetID: c.DatasetID[:0], Batch: c.Batch[:0], Scheme: c.Scheme[:0], Port: c.Port[:0], DomainID: c.DomainID[:0], Domain: c.Domain[:0],
		Host: c.Host[:0], TS: c.TS[:0], HasTS: c.HasTS[:0], Size: c.Size[:0], HasSize: c.HasSize[:0], PathQuery: c.PathQuery[:0], URLID: c.URLID[:0],
		RawURL: c.RawURL[:0], Extras: c.Extras[:0]}
	return plan.AppendTo(c, p.Key, data)
}

// rows is a run of rows of one row group.
type Rows struct {
	Group uint32
	First int64
	*part.Columns
}

// scan yields all rows of a part, batch rows at a time.
func (p PartReader) Scan(ctx context.Context, blocks []*part.PageIndexBlock, batch int64, cols []part.Column) iter.Seq2[Rows, error] {
	return ahead(ctx, [2]Rows{{Columns: new(part.Columns)}, {Columns: new(part.Columns)}}, func(read func(func(context.Context, *Rows) error) bool) {
		for _, b := range blocks {
			for at := int64(0); at < b.Rows(); at += batch {
				if !read(func(ctx context.Context, r *Rows) error {
					r.Group, r.First = uint32(b.RowGroup), b.FirstRow+at
					return p.columns(ctx, r.Columns, b, r.First, min(batch, b.Rows()-at), cols)
				}) {
					return
				}
			}
		}
	})
}

// domains are the domains of a run of rows of one row group.
type domains struct {
	group uint32
	first int64
	*part.DomainRuns
}

// runsMemory keeps the memory of domains that were read.
var runsMemory = sync.Pool{New: func() any { return new(part.DomainRuns) }}

// scanDomains yields the domains of all rows of a part.
func (p PartReader) scanDomains(ctx context.Context, blocks []part.PageIndexBlock) iter.Seq2[domains, error] {
	return func(yield func(domains, error) bool) {
		var memory [2]domains
		for i := range memory {
			memory[i].DomainRuns = runsMemory.Get().(*part.DomainRuns)
			defer runsMemory.Put(memory[i].DomainRuns)
		}
		ahead(ctx, memory, func(read func(func(context.Context, *domains) error) bool) {
			for i := range blocks {
				b := &blocks[i]
				for from := 0; from < b.Pages(); from += countPages {
					if !read(func(ctx context.Context, d *domains) error {
						plan, err := partreader.NewDomainPlan(b, from, min(from+countPages, b.Pages()))
						if err != nil {
							return fmt.Errorf("%s: %w", p.Key, err)
						}
						d.group, d.first = uint32(b.RowGroup), plan.FirstRow()
						data, err := p.ranges(ctx, plan)
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

// ahead does what each asks for, one after the other, and yields what was read, reading the next while one is looked
// at. What is yielded is valid until the next; it uses the memory of both. An error is the last thing yielded. All reading has ended
// when it returns.
func ahead[T any](ctx context.Context, memory [2]T, each func(read func(func(context.Context, *T) error) bool)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		type result struct {
			of  *T
			err error
		}
		ctx, cancel := context.WithCancel(ctx)
		done := make(chan result)
		free := make(chan *T, len(memory)) // one is read while the other is looked at
		for i := range memory {
			free <- &memory[i]
		}
		go func() {
			defer close(done)
			each(func(read func(context.Context, *T) error) bool {
				var r result
				select {
				case r.of = <-free:
				case <-ctx.Done():
					return false
				}
				r.err = read(ctx, r.of)
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
			for range done { // until it has ended
			}
		}()
		for r := range done {
			if !yield(*r.of, r.err) || r.err != nil {
				return
			}
			free <- r.of
		}
		if err := ctx.Err(); err != nil {
			var none T
			yield(none, err)
		}
	}
}

// domainRuns puts together what a part has of each domain.
type DomainRuns struct {
	Key string // of the part
	// each is told how many bytes the domain shares with the one before.
	Each   func(domain []byte, shared int, t *segment.Totals) error
	writer *batchWriter // to which each adds, where addRuns is used

	domain []byte
	shared int
	totals segment.Totals
}

// begin begins the next domain, unless it is the one that is open. It calls each with that.
func (d *DomainRuns) begin(domain []byte, group uint32, row int64) error {
	shared := codec.CommonPrefix(d.domain, domain)
	if shared > 0 && shared == len(domain) && shared == len(d.domain) {
		return nil
	}
	if !follows(domain, d.domain, shared) {
		return d.misplaced(domain, d.domain, group, row)
	}
	if err := d.End(); err != nil {
		return err
	}
	d.domain, d.shared = append(d.domain[:shared], domain[shared:]...), shared
	return nil
}

// misplaced says that a domain does not follow the one before, or is too long.
func (d *DomainRuns) misplaced(domain, before []byte, group uint32, row int64) error {
	return codec.Corrupt(d.Key, fmt.Sprintf("row %d of row group %d", row, group), -1,
		fmt.Sprintf("a domain of at most %d bytes after %q", segment.MaxDomain, before), fmt.Sprintf("%q", domain))
}

// count adds rows [from, to) of c, which has them all if it has any, to the open domain.
func (d *DomainRuns) count(c *part.Columns, from, to int) {
	d.totals.Rows += int64(to - from)
	if c.Rows == 0 {
		return
	}
	for i := from; i < to; i++ {
		if c.HasSize[i] || c.HasTS[i] {
			d.totals.Add(segment.Totals{HasSize: c.HasSize[i], Size: c.Size[i], HasTS: c.HasTS[i], FirstTS: c.TS[i], LastTS: c.TS[i]})
		}
	}
}

// addRuns takes the next rows of the part. It calls each with every domain that ended before them, in their order.
func (d *DomainRuns) addRuns(r domains) error {
	at, i := 0, 0
	for ; i < r.Len() && (i < 2 || r.Measures.Rows > 0); i++ {
		domain, rows := r.Run(i)
		if err := d.begin(domain, r.group, r.first+int64(at)); err != nil {
			return err
		}
		d.count(&r.Measures, at, at+int(rows))
		at += int(rows)
	}
	if i == r.Len() {
		return nil
	}
	// The rest has neither size nor ts, and none goes on one that was open before. The last one stays open.
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
		return d.misplaced(domain, before, r.group, r.first+int64(at))
	}
	d.domain, d.shared, d.totals.Rows = append(d.domain[:0], domain...), shared, rows
	return nil
}

// add is addRuns for rows with all their columns.
func (d *DomainRuns) Add(r Rows) error {
	for from := 0; from < r.Rows; {
		domain := r.Domain[from]
		to := from + 1
		for to < r.Rows && r.Domain[to] == domain {
			to++
		}
		if err := d.begin([]byte(domain), r.Group, r.First+int64(from)); err != nil {
			return err
		}
		d.count(r.Columns, from, to)
		from = to
	}
	return nil
}

// end calls each with the last domain.
func (d *DomainRuns) End() error {
	if len(d.domain) == 0 {
		return nil
	}
	err := d.Each(d.domain, d.shared, &d.totals)
	d.totals = segment.Totals{}
	return err
}

// follows tells whether domain a, of at most segment.MaxDomain bytes, comes after b, with which it shares so many bytes.
func follows(a, b []byte, shared int) bool {
	return shared < len(a) && (shared == len(b) || a[shared] > b[shared]) && len(a) <= segment.MaxDomain
}
