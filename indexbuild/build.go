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
	"runtime"
	"slices"
	"sync"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/keysort"
	"github.com/urlake/urlake/indexbuild/mph"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/seekable"
)

// FormatError says that another build of urlake wrote a segment, in formats that this build does
// not read.
type FormatError = segment.FormatError

const (
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
	// Memory bounds in bytes what is sorted in memory; 128 MiB where 0. Besides it a build takes
	// some 380 MiB, whatever it builds. The segment does not depend on it.
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
func BuildSegment(ctx context.Context, store blob.Store, batches []postings.BatchRef, opt Options) (postings.SegmentRef, error) {
	ref, err := buildSegment(ctx, store, batches, opt, postings.DomainKey)
	if err != nil {
		return postings.SegmentRef{}, fmt.Errorf("build segment: %w", err)
	}
	return ref, nil
}

func buildSegment(ctx context.Context, store blob.Store, batches []postings.BatchRef, opt Options, keyOf func(domain []byte) segment.Key) (postings.SegmentRef, error) {
	if len(batches) == 0 {
		return postings.SegmentRef{}, errors.New("no batches")
	}
	batches = slices.Clone(batches)
	if err := segment.SortBatches(batches); err != nil {
		return postings.SegmentRef{}, err
	}
	if ref, ok, err := segment.Find(ctx, store, batches); ok || err != nil {
		return ref, err
	}
	b := &build{ctx: ctx, store: store, batches: batches, opt: opt, keyOf: keyOf}
	if b.opt.Memory <= 0 {
		b.opt.Memory = keysort.DefaultMemory
	}
	defer b.close()
	return b.run()
}

// build is one run of BuildSegment.
type build struct {
	ctx     context.Context
	store   blob.Store
	batches []postings.BatchRef
	opt     Options
	keyOf   func(domain []byte) segment.Key

	records []*lake.Batch
	files   []segment.FileInfo
	parts   []partSource // of the files
	objects []postings.PostingsObject
	info    segment.Info
	out     *segment.Writer

	spool   *keysort.Spool
	entries *keysort.Sorter
	sources []*postings.BatchSource
}

// partSource says where a file's page index blocks are.
type partSource struct{ object, part int }

func (b *build) close() {
	for _, s := range b.sources {
		s.Close()
	}
	b.spool.Close()
	b.entries.Close()
}

func (b *build) run() (postings.SegmentRef, error) {
	if err := b.readBatches(); err != nil {
		return postings.SegmentRef{}, err
	}
	b.out = segment.NewWriter(b.ctx, b.store, b.batches)
	if err := b.atOnce(b.writeFiles, b.writeParts, b.writeDomains); err != nil {
		return postings.SegmentRef{}, err
	}
	return b.out.Finish(b.info)
}

// atOnce takes steps that do not need each other. All are waited for, since a step that was given up would leave an error of its
// own; the first one's error counts.
func (b *build) atOnce(steps ...func() error) error {
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

// readBatches reads the batch records, numbers their parts and opens their postings.
func (b *build) readBatches() error {
	b.records = make([]*lake.Batch, len(b.batches))
	records := b.records
	g, ctx := errgroup.WithContext(b.ctx)
	g.SetLimit(readParallel)
	for i, ref := range b.batches {
		g.Go(func() error {
			data, _, err := b.store.Get(ctx, ref.Key())
			if err == nil {
				records[i], err = lake.DecodeBatch(data, ref.Key())
			}
			return postings.Damaged(ref, err)
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
				return postings.Damaged(b.batches[i], codec.Corrupt(b.batches[i].Key(), "parts", -1, "each part once", p.Key))
			}
			ids[p.Key] = uint32(len(b.files))
			b.files = append(b.files, segment.FileInfo{DatasetID: r.DatasetID, DomainPrefix: p.DomainPrefix, Path: p.Key, Batch: r.Batch, Bytes: p.Bytes, Rows: p.Rows})
		}
		for range r.Postings {
			b.objects = append(b.objects, postings.PostingsObject{Batch: b.batches[i]})
		}
	}
	b.info.Parts = int64(len(b.files))

	g, ctx = errgroup.WithContext(b.ctx)
	g.SetLimit(readParallel)
	at := 0
	for i, r := range records {
		for _, o := range r.Postings {
			to := &b.objects[at].Reader
			at++
			g.Go(func() (err error) {
				*to, err = postings.OpenBatch(ctx, b.store, o)
				return postings.Damaged(b.batches[i], err)
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
		bad := func(want, got any) error {
			return postings.Damaged(o.Batch, codec.Corrupt(o.Reader.Key, "directory", -1, want, got))
		}
		for n, p := range o.Reader.Parts {
			id, ok := ids[p.Key]
			if !ok || seen[id] {
				return bad("parts of its batch, each once", p.Key)
			}
			if f := &b.files[id]; f.DatasetID != o.Reader.Dataset || f.Batch != o.Reader.Batch || f.Bytes != p.Bytes || f.Rows != p.Rows {
				return bad(fmt.Sprintf("%s of %d bytes and %d rows in batch %s of dataset %d", p.Key, f.Bytes, f.Rows, f.Batch, f.DatasetID),
					fmt.Sprintf("%d bytes and %d rows in batch %s of dataset %d", p.Bytes, p.Rows, o.Reader.Batch, o.Reader.Dataset))
			}
			seen[id] = true
			b.parts[id] = partSource{i, n}
			o.Files = append(o.Files, id)
		}
	}
	if i := slices.Index(seen, false); i >= 0 {
		f := &b.files[i]
		n := slices.IndexFunc(b.batches, func(r postings.BatchRef) bool { return r.DatasetID == f.DatasetID && r.Batch == f.Batch })
		return postings.Damaged(b.batches[n], codec.Corrupt(lake.BatchPrefix(f.DatasetID, f.Batch), "postings", -1, "all parts of the batch", "none of "+f.Path))
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
				blocks, err := b.objects[p.object].Reader.Pages(ctx, p.part)
				if err == nil {
					slot <- fetched{id, blocks}
				}
				return postings.Damaged(b.objects[p.object].Batch, err)
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
			if err := b.checkPages(got.file, got.blocks, func(block *part.PageIndexBlock, data []byte) error {
				return w.Add(uint32(got.file), block, data)
			}); err != nil {
				return postings.Damaged(b.objects[b.parts[got.file].object].Batch, err)
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

// checkPages hands on the blocks of one file. They have to cover its row groups one after another.
func (b *build) checkPages(file int, blocks [][]byte, each func(*part.PageIndexBlock, []byte) error) error {
	src := b.parts[file]
	r := b.objects[src.object].Reader
	want := r.Parts[src.part].Groups
	group, first := 0, int64(0)
	for _, data := range blocks {
		block, err := part.DecodePageIndexBlock(data, r.Key)
		if err != nil {
			return err
		}
		if group < len(want)-1 && first == want[group] {
			group, first = group+1, 0
		}
		if block.RowGroup != group || block.FirstRow != first {
			return codec.Corrupt(r.Key, "page index of "+b.files[file].Path, -1, fmt.Sprintf("row %d of row group %d", first, group),
				fmt.Sprintf("row %d of row group %d", block.FirstRow, block.RowGroup))
		}
		first += block.Rows()
		if err := each(block, data); err != nil {
			return err
		}
	}
	if len(want) > 0 && (group != len(want)-1 || first != want[group]) {
		return codec.Corrupt(r.Key, "page index of "+b.files[file].Path, -1, fmt.Sprintf("row groups of %d rows", want), fmt.Sprintf("%d rows of row group %d", first, group))
	}
	return nil
}

// mergeAll merges the domains of all parts; of one domain those of smaller file ids come first.
func (b *build) mergeAll(sink func(*window) error) error {
	datasets := make([]uint32, len(b.files))
	for i := range b.files {
		datasets[i] = b.files[i].DatasetID
	}
	var sources []domainSource
	var domains []int64
	for i := range b.objects {
		o := &b.objects[i]
		for part := range o.Reader.Parts {
			s := postings.NewBatchSource(o, part)
			b.sources = append(b.sources, s)
			sources, domains = append(sources, s), append(domains, o.Reader.Parts[part].Domains)
		}
	}
	if width := sourcesAtOnce(); len(sources) > width {
		var err error
		if b.spool == nil {
			if b.spool, err = keysort.NewSpool(b.opt.TempDir); err != nil {
				return err
			}
		}
		if sources, err = narrow(b.ctx, sources, domains, datasets, b.spool, width); err != nil {
			return err
		}
	}
	return mergeDomains(b.ctx, sources, datasets, b.keyOf, sink)
}

// addWindow adds the records of all domains of a window under their keys.
func addWindow(p *keysort.Sorter, w *window) error {
	for i, k := range w.keys {
		if err := p.Add(k, w.val(i)); err != nil {
			return err
		}
	}
	return nil
}

// writeDomains goes over all domains in their order. It writes domains.txt.zst and collects the rest: what the perfect hash, the
// sets of datasets and the postings are made of. Then it writes these.
func (b *build) writeDomains() error {
	f, err := b.out.Create(segment.DomainsName)
	if err != nil {
		return err
	}
	defer f.Abort()
	domains := segment.NewDomainsWriter(f)
	sets := segment.NewMembershipWriter(b.opt.TempDir)
	defer sets.Close()
	atMost := int64(0)
	for i := range b.objects {
		atMost += b.objects[i].Reader.Domains()
	}
	hash := mph.NewBuilder(mph.Options{Seed: b.seed(), Dir: b.opt.TempDir, Expect: atMost})
	defer hash.Close()
	b.entries = keysort.New(b.opt.TempDir, b.opt.Memory, atMost*keysort.EntryBytes, shardBits(atMost))

	err = b.mergeAll(func(w *window) error {
		if err := domains.AddLines(w.text, w.ends); err != nil {
			return err
		}
		if err := sets.AddAll(w.sets, w.setEnds); err != nil {
			return err
		}
		for _, k := range w.keys {
			if err := hash.Add(k.ID, k.Check); err != nil {
				return err
			}
		}
		if err := addWindow(b.entries, w); err != nil {
			return err
		}
		b.info.Entries += int64(len(w.sets))
		return b.ctx.Err()
	})
	if err != nil {
		return err
	}
	b.info.Domains = domains.Count()
	ff, err := domains.Finish()
	if err != nil {
		return err
	}
	return b.atOnce(
		func() error { return b.writeHash(hash, ff) }, // first: it tells if two domains are one
		b.writePostings,
		func() error { return b.writeMembership(sets) },
		func() error { return f.FinishFrames(ff) },
	)
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

func (b *build) writeHash(hash *mph.Builder, domains seekable.File) error {
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
	e := &CollisionError{Key: k}
	first := int64(0)
	err := b.mergeAll(func(w *window) error {
		for i, o := range ordinals {
			if n := int64(o) - first; n >= 0 && n < int64(w.len()) {
				e.Domains[i] = string(w.domain(int(n)))
			}
		}
		first += int64(w.len())
		return nil
	})
	if err != nil {
		return err
	}
	return e
}

// shardBits is into how many shards so many entries go.
func shardBits(entries int64) int {
	return min(bits.Len64(uint64(max(entries-1, 0)/shardEntries)), segment.MaxShardBits)
}

// writePostings writes the shards, as many at once as there are processors.
func (b *build) writePostings() error {
	b.info.ShardBits = shardBits(b.info.Entries)
	shards := 1 << b.info.ShardBits
	inline, rows := make([]int64, shards), make([]int64, shards)
	g, ctx := errgroup.WithContext(b.ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for shard := range shards {
		g.Go(func() (err error) {
			inline[shard], rows[shard], err = b.writeShard(ctx, shard)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for shard := range shards {
		b.info.Inline += inline[shard]
		b.info.Rows += rows[shard]
	}
	if want := b.totalRows(); b.info.Rows != want {
		return fmt.Errorf("postings have %d rows, parts %d", b.info.Rows, want)
	}
	return nil
}

// entriesMemory keeps the memory of entries that were written.
var entriesMemory = sync.Pool{New: func() any { return new(segment.Entries) }}

// writeShard writes the entries of one shard. Partitions are sorted and decoded ahead, their entries written in order.
func (b *build) writeShard(ctx context.Context, shard int) (inline, rows int64, err error) {
	idx, err := b.out.Create(segment.PostingsName(shard))
	if err != nil {
		return 0, 0, err
	}
	defer idx.Abort()
	dat, err := b.out.Create(segment.PayloadsName(shard))
	if err != nil {
		return 0, 0, err
	}
	defer dat.Abort()
	w := segment.NewPostingsWriter(idx, dat, shard, b.info.ShardBits)

	g, ctx := errgroup.WithContext(ctx)
	queue := make(chan chan *segment.Entries, 1+runtime.GOMAXPROCS(0)>>b.info.ShardBits)
	g.Go(func() error {
		defer close(queue)
		per := b.entries.Len() >> b.info.ShardBits
		for i := shard * per; i < (shard+1)*per; i++ {
			out := make(chan *segment.Entries, 1)
			select {
			case queue <- out:
			case <-ctx.Done():
				return ctx.Err()
			}
			g.Go(func() error {
				err := b.entries.Each(ctx, i, func(v *keysort.Values) error {
					e, err := b.decodeEntries(v)
					if err != nil {
						return err
					}
					select {
					case out <- e:
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				})
				if err == nil {
					close(out)
				}
				return err
			})
		}
		return nil
	})
	g.Go(func() error {
		for out := range queue {
			for more := true; more; {
				var e *segment.Entries
				select {
				case e, more = <-out:
				case <-ctx.Done():
					return ctx.Err()
				}
				if !more {
					break
				}
				if err := w.AddAll(e); err != nil {
					return err
				}
				rows += e.Rows()
				entriesMemory.Put(e)
			}
		}
		return ctx.Err()
	})
	if err := g.Wait(); err != nil {
		return 0, 0, err
	}
	_, inline = w.Entries()
	idxFile, datFile, err := w.Finish()
	if err != nil {
		return 0, 0, err
	}
	if err := idx.FinishFrames(idxFile); err != nil {
		return 0, 0, err
	}
	return inline, rows, dat.FinishFrames(datFile)
}

// decodeEntries reads the records of many domains.
func (b *build) decodeEntries(v *keysort.Values) (*segment.Entries, error) {
	out := entriesMemory.Get().(*segment.Entries)
	out.Reset()
	out.Grow(v.Bytes() / (keysort.PartitionHeader + postings.RecordHeader))
	le := binary.LittleEndian
	var r postings.Record
	for i := range v.Len() {
		v.Ask(i + keysort.ValuesAhead)
		k, p := v.At(i)
		for len(p) > 0 {
			file, group := le.Uint32(p), le.Uint32(p[4:])
			dataset := b.files[file].DatasetID
			if group != postings.OtherRecord {
				if err := out.AddPlain(k, dataset, file, group, le.Uint32(p[8:]), le.Uint32(p[12:])); err != nil {
					return nil, err
				}
				p = p[postings.RecordHeader:]
				continue
			}
			n := postings.RecordLength(p)
			if err := r.Read(p[:n]); err != nil {
				return nil, err
			}
			if err := out.Add(k, dataset, r.Totals, r.Tuples); err != nil {
				return nil, err
			}
			p = p[n:]
		}
	}
	return out, nil
}
