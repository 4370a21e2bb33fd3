// Package indexbuild makes segments out of finished batches and checks them.
//
// Extract reads the parts of one merge task, only the pages of domain, ts and size, and
// writes a postings object; BuildSegment merges the postings objects of any number of batches
// into one segment and reads no Parquet; VerifySegment reads a segment back, byte by byte, and
// if asked counts everything again from the parts.
//
// What they promise: the same input gives the same bytes under the same keys, whatever the
// memory, the splits and the crashes, so that each may run twice, or on two workers at once. Memory is
// bounded; what does not fit is sorted in temporary files. Nothing is changed in place, and a
// segment exists once its segment.json does.
package indexbuild

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/mph"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// BatchRef names a finished batch.
type BatchRef = segment.BatchRef

// SegmentRef names a segment.
type SegmentRef = segment.Ref

const (
	// defaultMemory is what a build sorts in memory: five million entries.
	defaultMemory = 256 << 20

	// shardEntries is how many entries a shard of postings has at most, until there are 1,024
	// shards: some 80 MB, a size that one worker reads and writes in a few seconds.
	shardEntries = 8 << 20

	// readParallel is how many small objects are fetched at once.
	readParallel = 16
)

// Options of BuildSegment.
type Options struct {
	// TempDir holds temporary files: at most about 60 bytes for each pair of domain and dataset,
	// and 17 for each domain. The system's folder for such files where empty.
	TempDir string
	// Memory bounds in bytes what is sorted in memory; 256 MiB where 0. Besides it a build takes
	// some 300 MiB, whatever it builds. The segment does not depend on it.
	Memory int
}

// CollisionError says that two domains have the same domain_id and check bits, which an index
// cannot tell apart. Among 3·10⁸ domains that has a chance of one in 10¹².
type CollisionError struct {
	Key     segment.Key
	Domains [2]string
}

func (e *CollisionError) Error() string {
	return fmt.Sprintf("domains %q and %q share domain_id %016x and check bits %08x", e.Domains[0], e.Domains[1], e.Key.ID, e.Key.Check)
}

// BuildSegment builds the segment over batches, at least one, in any order. If it is there
// already it is only looked up.
func BuildSegment(ctx context.Context, store blob.Store, batches []BatchRef, opt Options) (SegmentRef, error) {
	ref, err := buildSegment(ctx, store, batches, opt, urlKey)
	if err != nil {
		return SegmentRef{}, fmt.Errorf("build segment: %w", err)
	}
	return ref, nil
}

// urlKey is segment.KeyOf for bytes.
func urlKey(domain []byte) segment.Key {
	return segment.Key{ID: xxh3.Hash(domain), Check: uint32(xxh3.Hash128(domain).Hi >> 32)}
}

func buildSegment(ctx context.Context, store blob.Store, batches []BatchRef, opt Options, keyOf func(domain []byte) segment.Key) (SegmentRef, error) {
	if len(batches) == 0 {
		return SegmentRef{}, errors.New("no batches")
	}
	batches = slices.Clone(batches)
	if err := segment.SortBatches(batches); err != nil {
		return SegmentRef{}, err
	}
	if ref, ok, err := segment.Find(ctx, store, batches); ok || err != nil {
		return ref, err
	}
	b := &build{ctx: ctx, store: store, batches: batches, opt: opt, keyOf: keyOf}
	if b.opt.Memory <= 0 {
		b.opt.Memory = defaultMemory
	}
	defer b.close()
	return b.run()
}

// build is one run of BuildSegment.
type build struct {
	ctx     context.Context
	store   blob.Store
	batches []BatchRef
	opt     Options
	keyOf   func(domain []byte) segment.Key

	files   []segment.FileInfo
	parts   []partSource // of the files
	objects []postingsObject
	info    segment.Info
	out     *segment.Writer

	spool   *spool
	entries *sorter
	sources []*batchSource
}

// postingsObject is one postings object and the file ids of its parts.
type postingsObject struct {
	reader *batchReader
	files  []uint32
}

// partSource says where a file's page index blocks are.
type partSource struct{ object, part int }

func (b *build) close() {
	for _, s := range b.sources {
		s.close()
	}
	b.spool.close()
	if b.entries != nil {
		b.entries.close()
	}
}

func (b *build) run() (SegmentRef, error) {
	if err := b.readBatches(); err != nil {
		return SegmentRef{}, err
	}
	b.out = segment.NewWriter(b.ctx, b.store, b.batches)
	for _, step := range []func() error{b.writeFiles, b.writeParts, b.writeDomains, b.writePostings} {
		if err := step(); err != nil {
			return SegmentRef{}, err
		}
	}
	return b.out.Finish(b.info)
}

// readBatches reads the batch records, numbers their parts and opens their postings.
func (b *build) readBatches() error {
	records := make([]*lake.Batch, len(b.batches))
	g, ctx := errgroup.WithContext(b.ctx)
	g.SetLimit(readParallel)
	for i, ref := range b.batches {
		g.Go(func() error {
			data, _, err := b.store.Get(ctx, ref.Key())
			if err != nil {
				return err
			}
			records[i], err = lake.DecodeBatch(data, ref.Key())
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}

	first := records[0]
	b.info = segment.Info{CanonicalForm: first.CanonicalForm, PublicSuffix: first.PublicSuffix, Batches: b.batches}
	ids := map[string]uint32{}
	for i, r := range records {
		if r.CanonicalForm != first.CanonicalForm || r.PublicSuffix != first.PublicSuffix {
			return fmt.Errorf("%s was made with %s and public suffix list %s, %s with %s and %s", b.batches[i].Key(), r.CanonicalForm, r.PublicSuffix,
				b.batches[0].Key(), first.CanonicalForm, first.PublicSuffix)
		}
		for _, p := range r.Parts {
			if _, twice := ids[p.Key]; twice {
				return codec.Corrupt(b.batches[i].Key(), "parts", -1, "each part once", p.Key)
			}
			ids[p.Key] = uint32(len(b.files))
			b.files = append(b.files, segment.FileInfo{DatasetID: r.DatasetID, DomainPrefix: p.DomainPrefix, Path: p.Key, Batch: r.Batch, Bytes: p.Bytes, Rows: p.Rows})
		}
		for range r.Postings {
			b.objects = append(b.objects, postingsObject{})
		}
	}
	b.info.Parts = int64(len(b.files))

	g, ctx = errgroup.WithContext(b.ctx)
	g.SetLimit(readParallel)
	at := 0
	for _, r := range records {
		for _, o := range r.Postings {
			to := &b.objects[at].reader
			at++
			g.Go(func() (err error) {
				*to, err = openBatch(ctx, b.store, o)
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return b.matchParts(ids)
}

// matchParts gives the parts of each postings object their file ids, and sees to it that
// every part is in one.
func (b *build) matchParts(ids map[string]uint32) error {
	b.parts = make([]partSource, len(b.files))
	seen := make([]bool, len(b.files))
	for i := range b.objects {
		o := &b.objects[i]
		bad := func(want, got any) error { return codec.Corrupt(o.reader.key, "directory", -1, want, got) }
		for n, p := range o.reader.parts {
			id, ok := ids[p.key]
			if !ok || seen[id] {
				return bad("parts of its batch, each once", p.key)
			}
			if f := &b.files[id]; f.DatasetID != o.reader.dataset || f.Batch != o.reader.batch || f.Bytes != p.bytes || f.Rows != p.rows {
				return bad(fmt.Sprintf("%s of %d bytes and %d rows in batch %s of dataset %d", p.key, f.Bytes, f.Rows, f.Batch, f.DatasetID),
					fmt.Sprintf("%d bytes and %d rows in batch %s of dataset %d", p.bytes, p.rows, o.reader.batch, o.reader.dataset))
			}
			seen[id] = true
			b.parts[id] = partSource{i, n}
			o.files = append(o.files, id)
		}
	}
	if i := slices.Index(seen, false); i >= 0 {
		f := &b.files[i]
		return codec.Corrupt(lake.BatchPrefix(f.DatasetID, f.Batch), "postings", -1, "all parts of the batch", "none of "+f.Path)
	}
	return nil
}

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

// writeParts copies the page index blocks in the order of the files, fetching some ahead.
func (b *build) writeParts() error {
	f, err := b.out.Create(segment.PartsName)
	if err != nil {
		return err
	}
	defer f.Abort()
	w := segment.NewPartsWriter(f)
	g, ctx := errgroup.WithContext(b.ctx)
	type fetched struct {
		file   int
		blocks [][]byte
	}
	queue := make(chan chan fetched, readParallel)
	g.Go(func() error {
		defer close(queue)
		for id, p := range b.parts {
			slot := make(chan fetched, 1)
			select {
			case queue <- slot:
			case <-ctx.Done():
				return ctx.Err()
			}
			g.Go(func() error {
				blocks, err := b.objects[p.object].reader.pages(ctx, p.part)
				if err == nil {
					slot <- fetched{id, blocks}
				}
				return err
			})
		}
		return nil
	})
	g.Go(func() error {
		for slot := range queue {
			var got fetched
			select {
			case got = <-slot:
			case <-ctx.Done():
				return ctx.Err()
			}
			if err := b.addPages(w, got.file, got.blocks); err != nil {
				return err
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
	return f.FinishFrames(ff)
}

// addPages writes the blocks of one file. They have to cover its row groups one after another.
func (b *build) addPages(w *segment.PartsWriter, file int, blocks [][]byte) error {
	src := b.parts[file]
	r := b.objects[src.object].reader
	group, first, rows := 0, int64(0), int64(0)
	for _, data := range blocks {
		block, err := lake.DecodePageIndexBlock(data, r.key)
		if err != nil {
			return err
		}
		if block.RowGroup == group+1 && first > 0 {
			group, first = group+1, 0
		}
		if block.RowGroup != group || block.FirstRow != first {
			return codec.Corrupt(r.key, "page index of "+b.files[file].Path, -1, fmt.Sprintf("row %d of row group %d", first, group),
				fmt.Sprintf("row %d of row group %d", block.FirstRow, block.RowGroup))
		}
		first += block.Rows()
		rows += block.Rows()
		if err := w.Add(uint32(file), block, data); err != nil {
			return err
		}
	}
	if want := r.parts[src.part]; rows != want.rows || group+1 != want.rowGroups {
		return codec.Corrupt(r.key, "page index of "+b.files[file].Path, -1, fmt.Sprintf("%d rows in %d row groups", want.rows, want.rowGroups),
			fmt.Sprintf("%d in %d", rows, group+1))
	}
	return nil
}

// merged returns the domains of all postings objects in order; of one domain those of smaller
// file ids come first.
func (b *build) merged() (source, error) {
	sources := make([]source, len(b.objects))
	for i := range b.objects {
		s := &batchSource{ctx: b.ctx, r: b.objects[i].reader, files: b.objects[i].files}
		b.sources = append(b.sources, s)
		sources[i] = s
	}
	if len(sources) > mergeWidth {
		var err error
		if b.spool == nil {
			if b.spool, err = newSpool(b.opt.TempDir); err != nil {
				return nil, err
			}
		}
		if sources, err = narrow(b.ctx, sources, b.spool); err != nil {
			return nil, err
		}
	}
	return newMerger(sources)
}

// entryKey is the length of what entries are sorted by, domain_id and check bits. The datasets of
// one domain stay in their order.
const entryKey = 12

// writeDomains goes over all domains in their order. It writes domains.txt.zst, domains.mphf
// and domain_to_datasets.roar, and hands the entries over to the sorter.
func (b *build) writeDomains() error {
	in, err := b.merged()
	if err != nil {
		return err
	}
	f, err := b.out.Create(segment.DomainsName)
	if err != nil {
		return err
	}
	defer f.Abort()
	domains := segment.NewDomainsWriter(f)
	sets, err := segment.NewMembershipWriter(b.opt.TempDir)
	if err != nil {
		return err
	}
	defer sets.Close()
	hash := mph.NewBuilder(mph.Options{Seed: b.seed(), Dir: b.opt.TempDir})
	defer hash.Close()
	b.entries = newSorter(b.opt.TempDir, b.opt.Memory)

	var datasets []uint32
	var domain []byte
	var entry record
	var key [entryKey]byte
	// endEntry hands over what was collected of one domain in one dataset.
	endEntry := func() error {
		if len(datasets) == 0 {
			return nil
		}
		if !slices.IsSortedFunc(entry.tuples, segment.CompareTuples) {
			slices.SortFunc(entry.tuples, segment.CompareTuples)
		}
		b.info.Entries++
		b.info.Rows += entry.totals.Rows
		return b.entries.add(&entry)
	}
	endDomain := func() error {
		if err := endEntry(); err != nil || len(datasets) == 0 {
			return err
		}
		err := sets.Add(datasets)
		datasets = datasets[:0]
		return err
	}
	r, err := in.next()
	for n := 1; r != nil && err == nil; n++ {
		if n%checkEvery == 0 && b.ctx.Err() != nil {
			return b.ctx.Err()
		}
		if len(datasets) == 0 || string(domain) != string(r.key) {
			if err := endDomain(); err != nil {
				return err
			}
			domain = append(domain[:0], r.key...)
			k := b.keyOf(domain)
			putEntryKey(&key, k)
			if err := hash.Add(k.ID, k.Check); err != nil {
				return err
			}
			if err := domains.Add(domain); err != nil {
				return err
			}
		}
		if last := len(datasets) - 1; last < 0 || datasets[last] != r.dataset {
			if last >= 0 {
				if err := endEntry(); err != nil {
					return err
				}
			}
			datasets = append(datasets, r.dataset)
			entry.key, entry.dataset = key[:], r.dataset
			entry.totals, entry.tuples = segment.Totals{}, entry.tuples[:0]
		}
		entry.totals.Add(r.totals)
		entry.tuples = append(entry.tuples, r.tuples...)
		r, err = in.next()
	}
	if err == nil {
		err = endDomain()
	}
	if err != nil {
		return err
	}
	b.info.Domains = domains.Count()
	if want := b.totalRows(); b.info.Rows != want {
		return fmt.Errorf("postings have %d rows, parts %d", b.info.Rows, want)
	}

	ff, err := domains.Finish()
	if err != nil {
		return err
	}
	if err := f.FinishFrames(ff); err != nil {
		return err
	}
	if err := b.writeMembership(sets); err != nil {
		return err
	}
	return b.writeHash(hash, ff)
}

func putEntryKey(p *[entryKey]byte, k segment.Key) {
	binary.BigEndian.PutUint64(p[:], k.ID)
	binary.BigEndian.PutUint32(p[8:], k.Check)
}

// seed follows from the inputs, so that nobody can prepare domains that the hash takes to one
// place.
func (b *build) seed() uint64 { return xxh3.HashString(segment.ID(b.batches)) }

func (b *build) totalRows() int64 {
	var n int64
	for i := range b.files {
		n += b.files[i].Rows
	}
	return n
}

func (b *build) writeMembership(sets *segment.MembershipWriter) error {
	f, err := b.out.Create(segment.MembershipName)
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := sets.Write(f); err != nil {
		return err
	}
	return f.FinishMapped()
}

func (b *build) writeHash(hash *mph.Builder, domains codec.FrameFile) error {
	f, err := b.out.Create(segment.MPHFName)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := hash.Finish(b.ctx, f, domains.XXH64); err != nil {
		var twice *mph.DuplicateError
		if errors.As(err, &twice) {
			return b.collision(segment.Key{ID: twice.Key, Check: twice.Check}, twice.Ordinals)
		}
		return err
	}
	return f.FinishMapped()
}

// collision names the domains with these ordinals, by going over the postings once more.
func (b *build) collision(k segment.Key, ordinals [2]uint32) error {
	in, err := b.merged()
	if err != nil {
		return err
	}
	e := &CollisionError{Key: k}
	ordinal := int64(-1)
	last := ""
	for {
		r, err := in.next()
		if err != nil {
			return err
		}
		if r == nil {
			return e
		}
		if ordinal < 0 || string(r.key) != last {
			ordinal++
			last = string(r.key)
		}
		for i, o := range ordinals {
			if ordinal == int64(o) {
				e.Domains[i] = last
			}
		}
	}
}

// writePostings writes the shards.
func (b *build) writePostings() error {
	in, err := b.entries.sorted(b.ctx)
	if err != nil {
		return err
	}
	b.info.ShardBits = min(bits.Len64(uint64(max(b.info.Entries-1, 0)/shardEntries)), segment.MaxShardBits)
	r, err := in.next()
	if err != nil {
		return err
	}
	for shard := range 1 << b.info.ShardBits {
		if r, err = b.writeShard(in, r, shard); err != nil {
			return err
		}
	}
	return nil
}

// writeShard writes the entries of one shard, from r on, and returns the first of the next.
func (b *build) writeShard(in source, r *record, shard int) (*record, error) {
	idx, err := b.out.Create(segment.PostingsName(shard))
	if err != nil {
		return nil, err
	}
	defer idx.Abort()
	dat, err := b.out.Create(segment.PayloadsName(shard))
	if err != nil {
		return nil, err
	}
	defer dat.Abort()
	w := segment.NewPostingsWriter(idx, dat, shard, b.info.ShardBits)
	for n := 1; r != nil; n++ {
		if n%checkEvery == 0 && b.ctx.Err() != nil {
			return nil, b.ctx.Err()
		}
		k := segment.Key{ID: binary.BigEndian.Uint64(r.key), Check: binary.BigEndian.Uint32(r.key[8:])}
		if int(k.ID>>(64-b.info.ShardBits)) != shard {
			break
		}
		if err := w.Add(segment.Entry{Key: k, Dataset: r.dataset, Totals: r.totals}, r.tuples); err != nil {
			return nil, err
		}
		if r, err = in.next(); err != nil {
			return nil, err
		}
	}
	_, inline := w.Entries()
	b.info.Inline += inline
	idxFile, datFile, err := w.Finish()
	if err != nil {
		return nil, err
	}
	if err := idx.FinishFrames(idxFile); err != nil {
		return nil, err
	}
	return r, dat.FinishFrames(datFile)
}
