// Package treebuild makes the index of the path trees of a segment (package pathtree) from the
// Parquet parts that the segment indexes.
//
// The rows of a part are sorted by domain, host and path, so one pass over each part finds its
// directories and the rows that are directly in each. These are sorted by domain and path, in
// bounded memory. In that order a directory is followed by all that is below it, so a second pass
// adds up what is below and counts children with a stack as deep as the tree. A domain's nodes are
// then sorted by level and path, as the index has them.
//
// The bytes depend on the segment alone, and on the program's compression.
package treebuild

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/keysort"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/segment/pathtree"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/partreader"
)

// Options of a build. A field that is zero has its default.
type Options struct {
	// TempDir is where sorted runs and the file are written before they are stored, by default the
	// system's.
	TempDir string
	// MemoryBytes bounds the memory of records that are sorted. Decoding, and writing, take some 20
	// MiB more for each processor.
	MemoryBytes int64
	// Progress is called now and then with the number of rows that were read; nil for nobody.
	Progress func(rows int64)
}

const (
	// DefaultMemoryBytes is about what the directories of ten million rows take.
	DefaultMemoryBytes = 256 << 20
	// pagesAtOnce is how many pages of a part are decoded together.
	pagesAtOnce = 8
	// cacheBytes is for frames of files.tsv, which are few.
	cacheBytes = 4 << 20
	// levelMemory is the part of the memory for the nodes of one domain: a quarter.
	levelMemory = 4
)

var columns = []part.Column{part.ColDomain, part.ColHost, part.ColPathQuery, part.ColSize}

// Build makes and stores the index of a segment.
func Build(ctx context.Context, store blob.Store, ref segment.Ref, opt Options) (*pathtree.Info, error) {
	info, err := build(ctx, store, ref, opt)
	if err != nil {
		return nil, fmt.Errorf("build the trees of segment %s: %w", ref.ID, err)
	}
	return info, nil
}

func build(ctx context.Context, store blob.Store, ref segment.Ref, opt Options) (info *pathtree.Info, err error) {
	opt.MemoryBytes = cmp.Or(opt.MemoryBytes, DefaultMemoryBytes)
	out, err := os.CreateTemp(opt.TempDir, "trees-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, out.Close(), os.Remove(out.Name())) }()
	written, err := Write(ctx, store, ref, opt, out)
	if err != nil {
		return nil, err
	}
	if _, err := out.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return pathtree.Store(ctx, store, ref.ID, written, out)
}

// Write writes the file of the index of a segment to w.
func Write(ctx context.Context, store blob.Store, ref segment.Ref, opt Options, w io.Writer) (pathtree.Written, error) {
	opt.MemoryBytes = cmp.Or(opt.MemoryBytes, DefaultMemoryBytes)
	runs := keysort.NewRuns(opt.TempDir)
	defer runs.Close()
	rest, err := readParts(ctx, store, ref, opt, runs)
	if err != nil {
		return pathtree.Written{}, err
	}
	buffered := bufio.NewWriterSize(w, 1<<20)
	b := &builder{
		ctx: ctx, w: pathtree.NewWriter(buffered),
		levels: sorter{runs: keysort.NewRuns(opt.TempDir), budget: int(opt.MemoryBytes / levelMemory)},
	}
	defer b.levels.runs.Close()
	if err := runs.Merge(ctx, rest, b.add); err != nil {
		return pathtree.Written{}, err
	}
	if err := b.endDomain(); err != nil {
		return pathtree.Written{}, err
	}
	done, err := b.w.Finish()
	if err != nil {
		return done, err
	}
	if done.Rows != ref.Rows {
		return done, codec.Corrupt(segment.Prefix(ref.ID)+segment.InfoName, "rows", -1, fmt.Sprintf("%d rows in the parts", ref.Rows), done.Rows)
	}
	return done, buffered.Flush()
}

// block is adjacent pages of a part.
type block struct {
	file  segment.FileInfo
	pages *part.PageIndexBlock
}

// sorter sorts records in bounded memory. What does not fit is moved to runs.
type sorter struct {
	runs   *keysort.Runs
	budget int // bytes of memory
	keysort.Records
}

func (s *sorter) add(key, value []byte) error {
	if s.Len() > 0 && s.Bytes()+len(key)+len(value) > s.budget {
		if err := s.runs.Add(s.Sorted()); err != nil {
			return err
		}
		s.Reset()
	}
	s.Add(key, value)
	return nil
}

// readParts sorts the directories of all parts of a segment. Those that it returns are not in runs.
func readParts(
	ctx context.Context, store blob.Store, ref segment.Ref, opt Options, runs *keysort.Runs,
) (rest []keysort.Source, err error) {
	seg, err := segment.Open(ctx, store, ref, segment.Options{
		PostingsOnly: true, WholeFiles: true, Cache: segment.NewFrameCache(cacheBytes),
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, seg.Close()) }()
	workers := runtime.GOMAXPROCS(0)
	blocks := make(chan block, workers)
	read := make(chan int64, workers)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(blocks)
		for p, err := range seg.Pages(gctx) {
			if err != nil {
				return err
			}
			file, err := seg.File(gctx, p.File)
			if err != nil {
				return err
			}
			select {
			case blocks <- block{file, p.PageIndexBlock}:
			case <-gctx.Done():
				return context.Cause(gctx)
			}
		}
		return nil
	})
	readers, rctx := errgroup.WithContext(gctx)
	rest = make([]keysort.Source, workers)
	for i := range rest {
		readers.Go(func() error {
			c := collector{sorter: sorter{runs: runs, budget: int(opt.MemoryBytes) / workers}}
			for b := range blocks {
				if err := c.readBlock(rctx, store, &b, read); err != nil {
					return err
				}
			}
			if err := c.flush(); err != nil {
				return err
			}
			rest[i] = c.sorter.Sorted()
			return nil
		})
	}
	g.Go(func() error {
		defer close(read)
		return readers.Wait()
	})
	rows := int64(0)
	for n := range read {
		if rows += n; opt.Progress != nil {
			opt.Progress(rows)
		}
	}
	return rest, g.Wait()
}

// collector finds the directories of rows, which are sorted for the most part, and adds them to a
// sorter.
type collector struct {
	sorter sorter

	domain, host, dir string
	dataset           uint32
	counts            pathtree.Counts
	key, value        []byte
}

// readBlock reads the rows of a block.
func (c *collector) readBlock(ctx context.Context, store blob.Store, b *block, read chan<- int64) error {
	for first := b.pages.FirstRow; first < b.pages.FirstRow+b.pages.Rows(); {
		_, end := b.pages.Page(first)
		for n := 1; n < pagesAtOnce && end < b.pages.FirstRow+b.pages.Rows(); n++ {
			_, end = b.pages.Page(end)
		}
		cols, err := partreader.ReadColumns(ctx, store, b.file.Path, b.pages, first, end-first, columns...)
		switch {
		case errors.Is(err, blob.ErrNotExist):
			return codec.Corrupt(b.file.Path, "object", -1, "the rows of its pages", "no object")
		case errors.Is(err, blob.ErrRange):
			return codec.Corrupt(b.file.Path, "object", -1, "the rows of its pages", err)
		case err != nil:
			return err
		}
		for i := range cols.Rows {
			if err := c.add(cols, i, b.file.DatasetID); err != nil {
				return err
			}
		}
		select {
		case read <- end - first:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		first = end
	}
	return nil
}

// add adds row i.
func (c *collector) add(cols *part.Columns, i int, dataset uint32) error {
	path := cols.PathQuery[i]
	dir := path[:pathtree.DirEnd(path)]
	if dir != c.dir || cols.Host[i] != c.host || dataset != c.dataset || cols.Domain[i] != c.domain {
		if err := c.flush(); err != nil {
			return err
		}
		// The strings of a page share memory, so these must not outlive it.
		c.dir, c.host, c.dataset, c.domain = strings.Clone(dir), strings.Clone(cols.Host[i]), dataset, strings.Clone(cols.Domain[i])
	}
	c.counts.Rows++
	if cols.HasSize[i] {
		c.counts.Sized++
		c.counts.Size.Add(pathtree.Sum{Lo: uint64(cols.Size[i])})
	}
	return nil
}

// flush adds the rows of the directory that is open.
func (c *collector) flush() error {
	if c.counts.Rows == 0 {
		return nil
	}
	k := segment.KeyOf(c.domain)
	c.key = binary.BigEndian.AppendUint64(c.key[:0], k.ID)
	c.key = binary.BigEndian.AppendUint32(c.key, k.Check)
	c.key = append(append(c.key, c.host...), c.dir...)
	if path := c.key[keyBytes:]; !pathtree.ValidPath(path) {
		return codec.Corrupt("a part", "columns host and path_query", -1, "the path of a URL", string(path))
	}
	c.key = append(c.key, 0) // no path has it, so that a path sorts before those that begin with it
	c.key = binary.BigEndian.AppendUint32(c.key, c.dataset)
	c.value = binary.AppendUvarint(c.value[:0], uint64(c.counts.Rows))
	c.value = binary.AppendUvarint(c.value, uint64(c.counts.Sized))
	c.value = binary.AppendUvarint(c.value, c.counts.Size.Lo)
	c.value = binary.AppendUvarint(c.value, c.counts.Size.Hi)
	c.counts = pathtree.Counts{}
	return c.sorter.add(c.key, c.value)
}

// keyBytes is the size of domain_id and check bits in keys.
const keyBytes = 12

// builder makes the nodes of domains from their directories.
type builder struct {
	ctx    context.Context
	w      *pathtree.Writer
	levels sorter // of the open domain's nodes

	key  [keyBytes]byte
	open bool
	// stack has the open nodes, each below the one before; path is that of the last.
	stack []openNode
	path  []byte
	name  []byte
	value []byte
	rest  [1]keysort.Source
}

// openNode is a node of which all directories so far are counted.
type openNode struct {
	end  int // of its path
	node pathtree.Node
}

// add adds the rows of a dataset that are directly in a directory.
func (b *builder) add(key, value []byte) error {
	if !b.open || !bytes.Equal(b.key[:], key[:keyBytes]) {
		if err := b.endDomain(); err != nil {
			return err
		}
		b.key, b.open = [keyBytes]byte(key), true
	}
	path := key[keyBytes : len(key)-5]
	if err := b.enter(path); err != nil {
		return err
	}
	d := codec.NewDecoder(value, "sorted directories", "value")
	e := pathtree.Entry{Dataset: binary.BigEndian.Uint32(key[len(key)-4:])}
	e.Rows, e.Sized = int64(d.Uvarint()), int64(d.Uvarint())
	e.Size.Lo, e.Size.Hi = d.Uvarint(), d.Uvarint()
	if err := d.Close(); err != nil {
		return err
	}
	e.Direct = e.Rows
	n := &b.stack[len(b.stack)-1].node
	if k := len(n.Entries); k > 0 && n.Entries[k-1].Dataset == e.Dataset {
		n.Entries[k-1].Add(&e.Counts)
	} else {
		n.Entries = append(n.Entries, e)
	}
	return nil
}

// enter closes nodes that do not have a directory below them, and opens those down to it.
func (b *builder) enter(path []byte) error {
	for n := len(b.stack); n > 0 && !bytes.HasPrefix(path, b.path[:b.stack[n-1].end]); n-- {
		if err := b.leave(); err != nil {
			return err
		}
	}
	at := 0
	if n := len(b.stack); n > 0 {
		at = b.stack[n-1].end
	}
	b.path = append(b.path[:at], path[at:]...)
	for at < len(path) {
		at += bytes.IndexByte(path[at:], '/') + 1
		if n := len(b.stack); n < cap(b.stack) {
			b.stack = b.stack[:n+1] // with the memory of a node that was closed
			entries := b.stack[n].node.Entries[:0]
			b.stack[n] = openNode{end: at, node: pathtree.Node{Entries: entries}}
		} else {
			b.stack = append(b.stack, openNode{end: at})
		}
	}
	return nil
}

// leave closes the last node of the stack: it adds its rows to those of its parent.
func (b *builder) leave() error {
	last := &b.stack[len(b.stack)-1]
	n := &last.node
	if len(b.stack) > 1 {
		parent := &b.stack[len(b.stack)-2].node
		parent.Children++
		parent.Entries = addBelow(parent.Entries, n.Entries)
	}
	n.Path = b.path[:last.end]
	b.name = binary.BigEndian.AppendUint16(b.name[:0], uint16(pathtree.Level(n.Path)))
	b.name = append(b.name, n.Path...)
	b.value = pathtree.AppendEntries(b.value[:0], n)
	b.stack = b.stack[:len(b.stack)-1]
	return b.levels.add(b.name, b.value)
}

// addBelow adds the entries of a child to those of its parent. Both ascend.
func addBelow(parent, child []pathtree.Entry) []pathtree.Entry {
	at := 0
	for i := range child {
		e := &child[i]
		for at < len(parent) && parent[at].Dataset < e.Dataset {
			at++
		}
		if at == len(parent) || parent[at].Dataset != e.Dataset {
			parent = slices.Insert(parent, at, pathtree.Entry{Dataset: e.Dataset})
		}
		p := &parent[at]
		below := e.Counts
		below.Direct = 0
		p.Add(&below)
		p.Children++
	}
	return parent
}

// endDomain closes all nodes of the open domain, and writes them by level and path.
func (b *builder) endDomain() error {
	if !b.open {
		return nil
	}
	for len(b.stack) > 0 {
		if err := b.leave(); err != nil {
			return err
		}
	}
	k := segment.Key{ID: binary.BigEndian.Uint64(b.key[:8]), Check: binary.BigEndian.Uint32(b.key[8:])}
	var n pathtree.Node
	defer b.levels.Reset()
	defer b.levels.runs.Close()
	b.rest[0] = b.levels.Sorted()
	return b.levels.runs.Merge(b.ctx, b.rest[:], func(key, value []byte) error {
		if err := pathtree.DecodeEntries(value, "sorted nodes", &n); err != nil {
			return err
		}
		n.Path = key[2:]
		return b.w.Add(k, &n)
	})
}
