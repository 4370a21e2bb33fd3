// Package treebuild makes path trees: of the URLs of a segment, as the index that stands beside it
// (package pathtree), and of the objects that reports of S3 Inventory list, as files that leave the
// lake (package prefixtree).
//
// What is directly in each directory is counted in one pass, and the directories are sorted by
// domain and path, in bounded memory. In that order a directory is followed by all that is below
// it, so a second pass adds up what is below and counts children with a stack as deep as the tree.
//
// The bytes depend on what is counted alone, and on the program's compression.
package treebuild

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/keysort"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/segment/pathtree"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
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
	b := &nodeWriter{
		ctx: ctx, w: pathtree.NewWriter(buffered),
		levels: sorter{runs: keysort.NewRuns(opt.TempDir), budget: int(opt.MemoryBytes / levelMemory)},
	}
	defer b.levels.runs.Close()
	b.tree.closed = b.add
	if err := b.tree.merge(ctx, runs, rest, b.endDomain); err != nil {
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
			c := rowCollector{collector: collector{sorter: sorter{runs: runs, budget: int(opt.MemoryBytes) / workers}}}
			for b := range blocks {
				if err := c.readBlock(rctx, store, &b, read); err != nil {
					return err
				}
			}
			if err := c.close(); err != nil {
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

// rowCollector collects the directories of rows.
type rowCollector struct {
	collector
	domain, host, dir string
	dataset           uint32
}

// readBlock reads the rows of a block.
func (c *rowCollector) readBlock(ctx context.Context, store blob.Store, b *block, read chan<- int64) error {
	for first := b.pages.FirstRow; first < b.pages.FirstRow+b.pages.Rows(); {
		_, end := b.pages.Page(first)
		for n := 1; n < pagesAtOnce && end < b.pages.FirstRow+b.pages.Rows(); n++ {
			_, end = b.pages.Page(end)
		}
		cols, err := part.ReadColumns(ctx, store, b.file.Path, b.pages, first, end-first, columns...)
		switch {
		case errors.Is(err, blob.ErrNotExist):
			return codec.Corrupt(b.file.Path, "object", -1, "the rows of its pages", "no object")
		case errors.Is(err, blob.ErrRange):
			return codec.Corrupt(b.file.Path, "object", -1, "the rows of its pages", err)
		case err != nil:
			return err
		}
		for i := range cols.Rows {
			if err := c.row(cols, i, b.file.DatasetID); err != nil {
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

// row counts row i.
func (c *rowCollector) row(cols *part.Columns, i int, dataset uint32) error {
	path := cols.PathQuery[i]
	dir := path[:pathtree.DirEnd(path)]
	if dir != c.dir || cols.Host[i] != c.host || dataset != c.dataset || cols.Domain[i] != c.domain {
		// The strings of a page share memory, so these must not outlive it.
		c.dir, c.host, c.dataset, c.domain = strings.Clone(dir), strings.Clone(cols.Host[i]), dataset, strings.Clone(cols.Domain[i])
		if err := c.open(segment.KeyOf(c.domain), c.host, c.dir, dataset); err != nil {
			return err
		}
		if path := c.path(); !pathtree.ValidPath(path) {
			return codec.Corrupt("a part", "columns host and path_query", -1, "the path of a URL", string(path))
		}
	}
	size := int64(-1)
	if cols.HasSize[i] {
		size = cols.Size[i]
	}
	c.count(size)
	return nil
}

// nodeWriter sorts the nodes of each domain by level and path, and writes them.
type nodeWriter struct {
	ctx    context.Context
	w      *pathtree.Writer
	tree   tree
	levels sorter // of the open domain's nodes

	name, value []byte
	rest        [1]keysort.Source
}

func (b *nodeWriter) add(n *node) error {
	if n.depth == 0 {
		return nil // the domain; its hosts count all rows
	}
	b.name = append(binary.BigEndian.AppendUint16(b.name[:0], uint16(n.depth)), n.Path...)
	b.value = pathtree.AppendEntries(b.value[:0], &n.Node)
	return b.levels.add(b.name, b.value)
}

func (b *nodeWriter) endDomain() error {
	k := segment.Key{ID: binary.BigEndian.Uint64(b.tree.domain[:8]), Check: binary.BigEndian.Uint32(b.tree.domain[8:])}
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
