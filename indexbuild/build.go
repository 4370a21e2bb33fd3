// Package indexbuild builds segments from the postings objects of finished batches (package
// postings). It reads no Parquet. Package verify reads segments back; neither package imports the
// other, so that verify is independent of what it checks.
//
// BuildSegment works in these steps:
//
//   - It reads the batch records and opens their postings objects. Parts are numbered in the order
//     of the batches; each part is one sorted list of domains.
//   - A k-way merge of these lists yields every domain once, with its records by dataset. Domains
//     have offset-value codes (Conner 1977), so a loser tree compares numbers and looks at domains
//     only if two codes are equal. Each list is decoded ahead by a goroutine of its own.
//   - The merged domains go, in their order, to domains.txt.zst, to the perfect hash (package mph)
//     and to the sets of datasets. Two sorters (package keysort) take them too: one of the domains
//     by their reversed bytes, for domains.reversed.zst, and one of their records, which it
//     partitions by hashed key.
//   - From the sorted partitions it writes the shards of postings, several at once.
//   - At the same time as all that it writes files.tsv.zst, parts.idx.zst and parts.keys.zst. Of
//     parts it reads nothing but the page keys of those with several pages.
//   - It writes segment.json last. A segment exists once that does.
//
// Memory is bounded whatever a build covers: Options.Memory for the sorters, up to 190 KB for each
// list that is merged, and fixed buffers. What exceeds it is spilled to temporary files. At most
// 1,024 lists are merged at once; more are first merged into temporary lists.
//
// The same batches give the same bytes under the same keys, whatever the memory, the number of
// processors, the order of the batches, and crashes. A build may therefore be retried, or run twice
// at once. Another build of urlake, which may write other bytes, has other keys (segment.Builder).
//
// Callers are package publish, and package lakecheck, which checks the batches of a lake.
package indexbuild

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/keysort"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
)

const (
	// concurrentReads is how many small objects are read at once.
	concurrentReads = 16

	// defaultMemory is that of Options.
	defaultMemory = 128 << 20
	// reversedShare is the share of it, one of so many, in which domains are sorted by their
	// reversed bytes.
	reversedShare = 4
)

// Options are options of BuildSegment.
type Options struct {
	// TempDir holds temporary files: at most about 60 bytes for each pair of domain and dataset,
	// and 17 and its name for each domain. "" is the system's temporary folder.
	TempDir string
	// Memory bounds, in bytes, what is sorted in memory; 0 is 128 MiB. A build takes about 380 MiB
	// more. The segment does not depend on it.
	Memory int
	// Builder is the build of urlake under whose name the segment is made. "" is this one.
	Builder segment.Builder
	// KeyOf hashes domains; nil is postings.DomainKey. Tests make collisions with it.
	KeyOf func(domain []byte) segment.Key
	// SkipPageKeys leaves out the keys of pages, for which parts are read. It is for tests and
	// benchmarks of batches without parts.
	SkipPageKeys bool
}

// CollisionError says that two domains have the same domain_id and the same check bits, so that an
// index cannot tell them apart. For 3·10⁸ domains the probability is 10⁻¹².
type CollisionError struct {
	Key     segment.Key
	Domains [2]string
	// Batches has, for each of the two domains, the batches with it, in the order of the build.
	Batches [2][]segment.BatchRef
}

func (e *CollisionError) Error() string {
	return fmt.Sprintf("domains %q and %q share domain_id %016x and check bits %08x",
		e.Domains[0], e.Domains[1], e.Key.ID, e.Key.Check)
}

// BuildSegment builds the segment over one or more batches, in any order, and returns its
// reference. Files of an earlier build of the same segment are replaced, by the same bytes unless
// they were damaged. A batch that cannot be indexed is a *postings.DamageError.
func BuildSegment(ctx context.Context, store blob.Store, batches []segment.BatchRef, opt Options) (segment.Ref, error) {
	ref, err := buildSegment(ctx, store, batches, opt)
	if err != nil {
		return segment.Ref{}, fmt.Errorf("build segment: %w", err)
	}
	return ref, nil
}

// FindSegment returns the reference of the segment that BuildSegment would build, if it exists. It
// reads segment.json alone; the other files may be damaged. A damaged segment.json is a
// *codec.CorruptError.
func FindSegment(
	ctx context.Context, store blob.Store, batches []segment.BatchRef, opt Options,
) (ref segment.Ref, ok bool, err error) {
	batches = slices.Clone(batches)
	if err := segment.SortBatches(batches); err != nil {
		return segment.Ref{}, false, err
	}
	return segment.Find(ctx, store, batches, opt.Builder)
}

func buildSegment(ctx context.Context, store blob.Store, batches []segment.BatchRef, opt Options) (segment.Ref, error) {
	if len(batches) == 0 {
		return segment.Ref{}, errors.New("no batches")
	}
	batches = slices.Clone(batches)
	if err := segment.SortBatches(batches); err != nil {
		return segment.Ref{}, err
	}
	opt.Memory = cmp.Or(opt.Memory, defaultMemory)
	b := &build{ctx: ctx, store: store, batches: batches, opt: opt, keyOf: opt.KeyOf}
	if b.keyOf == nil {
		b.keyOf = postings.DomainKey
	}
	defer b.close()
	return b.run()
}

// build is one run of BuildSegment.
type build struct {
	ctx     context.Context
	store   blob.Store
	batches []segment.BatchRef
	opt     Options
	keyOf   func(domain []byte) segment.Key

	records []*lake.Batch
	files   []segment.FileInfo
	parts   []partSource // of the files
	objects []object
	info    segment.Info
	out     *segment.Writer

	spool   *keysort.Spool // of lists that are merged again; nil if there are none
	entries *keysort.Sorter
	sources []*postings.Source
}

// object is a postings object, with the numbers that its parts have as files of the segment.
type object struct {
	*postings.Reader
	files []uint32
}

// partSource locates the page index of a file: a part of an object.
type partSource struct{ object, part int }

func (b *build) close() {
	for _, s := range b.sources {
		s.Close()
	}
	b.spool.Close()
	b.entries.Close()
}

func (b *build) run() (segment.Ref, error) {
	if err := b.readBatches(); err != nil {
		return segment.Ref{}, err
	}
	b.out = segment.NewWriter(b.ctx, b.store, b.batches, b.opt.Builder)
	if err := concurrently(b.writeFiles, b.writeParts, b.writeDomains); err != nil {
		return segment.Ref{}, err
	}
	return b.out.Finish(b.info)
}

// concurrently runs steps at the same time and waits for all of them. It returns the error of the
// first step in the list that failed. It cancels no step, because the error of a cancelled step
// could hide the cause.
func concurrently(steps ...func() error) error {
	errs := make([]error, len(steps))
	var wg sync.WaitGroup
	for i, step := range steps {
		wg.Add(1)
		go func() {
			defer wg.Done()
			errs[i] = step()
		}()
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// writeFiles writes files.tsv.zst.
func (b *build) writeFiles() error {
	f, err := b.out.Create(segment.FilesName)
	if err != nil {
		return err
	}
	defer f.Abort()
	ff, err := segment.WriteFiles(f, b.files)
	if err != nil {
		return err
	}
	return f.FinishFrames(ff)
}

// writeParts writes parts.idx.zst and parts.keys.zst: the page indexes and the page keys of all
// parts in the order of the files. It reads those of some files ahead.
func (b *build) writeParts() error {
	f, err := b.out.Create(segment.PartsName)
	if err != nil {
		return err
	}
	defer f.Abort()
	keysFile, err := b.out.Create(segment.PageKeysName)
	if err != nil {
		return err
	}
	defer keysFile.Abort()
	w, keys := segment.NewPartsWriter(f), segment.NewPageKeysWriter(keysFile)
	g, ctx := errgroup.WithContext(b.ctx)
	queue := make(chan chan partPages, concurrentReads)
	g.Go(func() error {
		defer close(queue)
		for id := range b.parts {
			result := make(chan partPages, 1)
			select {
			case queue <- result:
			case <-ctx.Done():
				return ctx.Err()
			}
			g.Go(func() error {
				read, err := b.readPages(ctx, id)
				if err == nil {
					result <- read
				}
				return err
			})
		}
		return nil
	})
	g.Go(func() error {
		for result := range queue {
			var read partPages
			select {
			case read = <-result:
			case <-ctx.Done():
				return ctx.Err()
			}
			for i, block := range read.blocks {
				if err := w.Add(uint32(read.file), block, read.encoded[i]); err != nil {
					return err
				}
			}
			for i := range read.keys {
				if err := keys.Add(uint32(read.file), &read.keys[i]); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	ff, err := w.Finish()
	if err != nil {
		return err
	}
	if err := f.FinishFrames(ff); err != nil {
		return err
	}
	if ff, err = keys.Finish(); err != nil {
		return err
	}
	return keysFile.FinishFrames(ff)
}

// partPages are the page index of a file, and the keys of its pages.
type partPages struct {
	file    int
	encoded [][]byte
	blocks  []*part.PageIndexBlock
	keys    []part.PageKeyBlock
}

// readPages reads the page index of a file from its postings object. The keys are in the part
// itself, since its bytes are all that a rebuild has. Most parts are a page, which has no key and
// is not read.
func (b *build) readPages(ctx context.Context, file int) (p partPages, err error) {
	src := b.parts[file]
	o := &b.objects[src.object]
	p.file = file
	if p.encoded, err = o.PageIndex(ctx, src.part); err != nil {
		return p, err
	}
	pages := int64(0)
	err = b.eachBlock(file, p.encoded, func(block *part.PageIndexBlock, _ []byte) error {
		p.blocks = append(p.blocks, block)
		pages += int64(block.Pages())
		return nil
	})
	if err == nil && pages > int64(len(o.Parts()[src.part].Groups)) && !b.opt.SkipPageKeys {
		f := &b.files[file]
		read := func(off, n int64) ([]byte, error) { return b.store.ReadRange(ctx, f.Path, off, n) }
		p.keys, err = part.ReadPageKeys(read, f.Bytes, pages, f.Path)
		if err == nil {
			err = matchKeys(p.blocks, p.keys, f.Path)
		}
	}
	return p, postings.Damaged(o.Batch(), err)
}

// matchKeys checks that blocks of page keys are about blocks of a page index, which ascend like
// them.
func matchKeys(blocks []*part.PageIndexBlock, keys []part.PageKeyBlock, path string) error {
	at := 0
	for i := range keys {
		k := &keys[i]
		for at < len(blocks) && (blocks[at].RowGroup != k.RowGroup || blocks[at].FirstRow != k.FirstRow) {
			at++
		}
		if at == len(blocks) || blocks[at].Pages() != len(k.Keys) {
			return codec.Corrupt(path, "page keys", -1, "the pages of the page index",
				fmt.Sprintf("%d pages from row %d of row group %d", len(k.Keys), k.FirstRow, k.RowGroup))
		}
	}
	return nil
}
