package postings

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/part"
)

// Collector makes a postings object from the domains of parts in the order of their rows. A part
// writer passes them on while it writes, so the parts need not be read again. It is for one
// goroutine.
type Collector struct {
	out     scratch
	hash    *xxh3.Hasher
	w       *Writer
	counter *DomainCounter // of the open part
}

// Collect lets merges write postings objects. Temporary files are in tempDir, see NewCollector.
func Collect(tempDir string) ingest.NewPostings {
	return func(dataset uint32, batch string) ingest.PostingsWriter { return NewCollector(dataset, batch, tempDir) }
}

// CollectInMemory is Collect without temporary files, for merges of rows in memory: their postings
// take a fraction of that.
func CollectInMemory(dataset uint32, batch string) ingest.PostingsWriter {
	c := NewCollector(dataset, batch, "")
	c.out.capacity = math.MaxInt
	return c
}

// NewCollector returns a Collector for parts of a dataset's batch. The object is named by its
// content, so it is kept until it is complete: in memory while it is small, then in a temporary
// file in tempDir; "" is the system's temporary folder. Call Close in any case.
func NewCollector(dataset uint32, batch, tempDir string) *Collector {
	c := &Collector{out: scratch{dir: tempDir, capacity: scratchMemory}, hash: xxh3.New()}
	c.w = NewWriter(io.MultiWriter(&c.out, c.hash), dataset, batch)
	c.counter = &DomainCounter{key: "part", each: c.w.add, writer: c.w}
	return c
}

// Close removes the temporary file.
func (c *Collector) Close() { c.out.close() }

// Domains adds the open part's next rows, of any number of row groups. The domains of a part must
// ascend; the first may be that of the rows before.
func (c *Collector) Domains(rows *part.DomainRuns) error {
	return c.counter.addRuns(domainRows{DomainRuns: rows})
}

// EndPart ends the open part, all of whose rows must have been added.
func (c *Collector) EndPart(p *part.Written) error {
	if err := c.counter.End(); err != nil {
		return err
	}
	c.counter.domain = c.counter.domain[:0]
	var groups []int64
	blocks := make([][]byte, len(p.Blocks))
	for i := range p.Blocks {
		b := &p.Blocks[i]
		if b.RowGroup == len(groups) {
			groups = append(groups, 0)
		}
		if b.RowGroup != len(groups)-1 || b.FirstRow != groups[b.RowGroup] {
			return codec.Corrupt(p.Part.Key, "page index", -1, "consecutive row groups and rows",
				fmt.Sprintf("row %d of row group %d", b.FirstRow, b.RowGroup))
		}
		groups[b.RowGroup] += b.Rows()
		blocks[i] = b.Append(nil)
	}
	return c.w.EndPart(&p.Part, groups, blocks)
}

// Copy adds part n of another object of the batch, as if the part had just been written. The part
// itself is not read.
func (c *Collector) Copy(ctx context.Context, r *Reader, n int) error {
	for d, err := range r.PartDomains(ctx, n) {
		if err == nil {
			err = c.w.AddDomain(d.Name, &d.Totals)
		}
		if err != nil {
			return err
		}
	}
	blocks, err := r.PageIndex(ctx, n)
	if err != nil {
		return err
	}
	p := &r.dir.parts[n]
	c.counter.domain = c.counter.domain[:0]
	return c.w.EndPart(&lake.Part{Object: lake.Object{Key: p.Key, Bytes: p.Bytes}, Rows: p.Rows}, p.Groups, blocks)
}

// Finish writes the object to the store and returns it with the number of its domains. A domain
// that continues in the next part counts once.
func (c *Collector) Finish(ctx context.Context, store blob.Store) (lake.FrameObject, int64, error) {
	return c.finish(ctx, store, nil)
}

func (c *Collector) finish(
	ctx context.Context, store blob.Store, accept func(key string) error,
) (o lake.FrameObject, domains int64, err error) {
	ff, err := c.w.Finish()
	if err != nil {
		return lake.FrameObject{}, 0, err
	}
	key := lake.PostingsKey(c.w.dir.dataset, c.w.dir.batch, lake.FormatDigest(c.hash.Sum128()))
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

// scratchMemory is the capacity of a Collector's memory. Most postings objects fit.
const scratchMemory = 2 << 20

// scratch holds bytes that are written once and then read once. Those that exceed its capacity in
// memory are in a temporary file.
type scratch struct {
	dir      string
	capacity int
	chunks   [][]byte // the bytes in memory; all chunks but the last are full
	size     int      // of the bytes in memory
	file     *os.File // the bytes before them; nil if there are none
}

// maxChunk is the capacity of a chunk at most. Chunks are not copied when more bytes come, as a
// buffer that grows would be.
const maxChunk = 256 << 10

// Write appends p.
func (s *scratch) Write(p []byte) (int, error) {
	if s.size > 0 && s.size+len(p) > s.capacity {
		if err := s.spill(); err != nil {
			return 0, err
		}
	}
	total := len(p)
	for len(p) > 0 {
		last := len(s.chunks) - 1
		if last < 0 || len(s.chunks[last]) == cap(s.chunks[last]) {
			s.chunks = append(s.chunks, make([]byte, 0, min(max(s.size, len(p)), maxChunk)))
			last++
		}
		n := min(len(p), cap(s.chunks[last])-len(s.chunks[last]))
		s.chunks[last] = append(s.chunks[last], p[:n]...)
		p = p[n:]
		s.size += n
	}
	return total, nil
}

// spill moves what is in memory to the file.
func (s *scratch) spill() (err error) {
	if s.file == nil {
		if s.file, err = os.CreateTemp(s.dir, "postings-*.tmp"); err != nil {
			return err
		}
		// Without a name the file disappears with the process. Where an open file cannot be
		// removed, close removes it.
		_ = os.Remove(s.file.Name())
	}
	return s.moveTo(s.file)
}

// moveTo writes what is in memory to w and empties the memory.
func (s *scratch) moveTo(w io.Writer) error {
	for _, c := range s.chunks {
		if _, err := w.Write(c); err != nil {
			return err
		}
	}
	s.chunks, s.size = nil, 0
	return nil
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
	if err := s.moveTo(out); err != nil {
		return err
	}
	_, err = out.Finish()
	return err
}

// close removes the file.
func (s *scratch) close() {
	if s.file != nil {
		s.file.Close()
		_ = os.Remove(s.file.Name())
	}
}
