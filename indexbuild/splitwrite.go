package indexbuild

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/urlake/urlake/indexbuild/keysort"
	"github.com/urlake/urlake/indexbuild/mph"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/segment/membership"
	"github.com/urlake/urlake/lake/blob"
)

// writeOutcome is what a task of WriteRange leaves when it has finished.
type writeOutcome struct {
	Format int            `json:"format"`
	Files  []segment.File `json:"files"`
	// Inline and Rows count those of the shards that the task has written.
	Inline int64 `json:"inline"`
	Rows   int64 `json:"rows"`
}

// dir is the folder of what the tasks stage.
func (s Split) dir() string { return s.Key[:strings.LastIndexByte(s.Key, '/')+1] }

// Remove removes what the tasks have staged. The plan goes last: until then, what is left is found.
func (s Split) Remove(ctx context.Context, store blob.Store) error {
	var keys []string
	for info, err := range store.List(ctx, s.dir()) {
		if err != nil {
			return err
		}
		if info.Key != s.Key {
			keys = append(keys, info.Key)
		}
	}
	if err := store.Delete(ctx, keys...); err != nil {
		return err
	}
	return store.Delete(ctx, s.Key)
}

func (p *splitPlan) writeKey(dir string, i int) string {
	return fmt.Sprintf("%swrite-%04d.json", dir, i)
}

// WriteRange runs task i of the Writes tasks of a Split, in any order and on any worker, after all
// tasks of MergeRange. It does nothing if the task has finished before. Domains that an index
// cannot tell apart are a *CollisionError, a batch that cannot be indexed is a
// *postings.DamageError, a split by another build of urlake is ErrOtherBuild.
func WriteRange(ctx context.Context, store blob.Store, split Split, i int, opt Options) error {
	err := runTask(ctx, store, split, opt, i, split.Writes, (*build).writeTask)
	if err != nil {
		return fmt.Errorf("write range %d of %d: %w", i, split.Writes, err)
	}
	return nil
}

func (b *build) writeTask(p *splitPlan, dir string, i int) error {
	key := p.writeKey(dir, i)
	done := writeOutcome{Format: splitFormat}
	if ok, err := b.outcome(key, &done); ok || err != nil {
		return err
	}
	merged, err := b.mergeOutcomes(p, dir)
	if err != nil {
		return err
	}
	b.out = segment.NewWriter(b.ctx, b.store, b.batches, b.opt.Builder)
	switch i {
	case namesWriter:
		err = b.writeNames(merged)
	case setsWriter:
		err = b.writeSets(merged)
	default:
		err = b.writeSomeShards(p, merged, i-firstShardWriter, &done)
	}
	if err != nil {
		return err
	}
	done.Files = b.out.Files()
	return b.putOutcome(key, &done)
}

// mergeOutcomes reads the outcomes of all tasks of MergeRange, and adds up their counts. Those of
// the ranges come first, in their order.
func (b *build) mergeOutcomes(p *splitPlan, dir string) ([]mergeOutcome, error) {
	merged := make([]mergeOutcome, len(p.Cuts)+2)
	for i := range merged {
		m := &merged[i]
		key := p.mergeKey(dir, i)
		ok, err := b.outcome(key, m)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, fmt.Errorf("%s: %w", key, blob.ErrNotExist)
		}
		if m.Format != splitFormat {
			return nil, ErrOtherBuild
		}
		b.info.Domains += m.Domains
		b.info.Entries += m.Entries
	}
	b.info.ShardBits = shardBits(b.info.Entries)
	return merged, nil
}

// writeNames writes domains.txt.zst, domains.reversed.zst, the starts of both, and domains.mphf.
func (b *build) writeNames(merged []mergeOutcome) error {
	f, err := b.out.Create(segment.DomainsName)
	if err != nil {
		return err
	}
	defer f.Abort()
	domains := segment.NewDomainsWriter(f)
	reversed := b.newReversed(b.info.Domains)
	defer reversed.Close()
	hash := mph.NewBuilder(mph.Options{Seed: b.seed(), Dir: b.opt.TempDir, Expect: b.info.Domains})
	defer hash.Close()
	var names stagedNames
	for i := range merged[:len(merged)-1] {
		o := merged[i].Names
		err := b.eachFrame(o, func(data []byte) error {
			if err := names.decode(data, o.Key); err != nil {
				return err
			}
			for _, k := range names.keys {
				if err := hash.Add(k.ID, k.Check); err != nil {
					return err
				}
			}
			if err := reversed.AddLines(names.text, names.ends); err != nil {
				return err
			}
			return domains.AddLines(names.text, names.ends)
		})
		if err != nil {
			return err
		}
	}
	ff, err := domains.Finish()
	if err != nil {
		return err
	}
	return concurrently(
		func() error { return b.writeHash(hash, ff.XXH64) },
		func() error { return f.FinishFrames(ff) },
		func() error { return b.writeStarts(segment.DomainStartsName, domains.Starts()) },
		func() error { return b.writeReversed(reversed) },
	)
}

// writeSets writes domain_to_datasets.roar.
func (b *build) writeSets(merged []mergeOutcome) error {
	w := membership.NewWriter(b.opt.TempDir)
	defer w.Close()
	var sets stagedSets
	for i := range merged[:len(merged)-1] {
		o := merged[i].Sets
		err := b.eachFrame(o, func(data []byte) error {
			if err := sets.decode(data, o.Key); err != nil {
				return err
			}
			return w.AddAll(sets.datasets, sets.ends)
		})
		if err != nil {
			return err
		}
	}
	return b.writeMembership(w)
}

// writeSomeShards writes the shards of a task.
func (b *build) writeSomeShards(p *splitPlan, merged []mergeOutcome, task int, done *writeOutcome) error {
	shards := 1 << b.info.ShardBits
	from, to := shards*task/p.ShardWriters, shards*(task+1)/p.ShardWriters
	if from == to {
		return nil
	}
	files, err := b.readFiles(p.Files)
	if err != nil {
		return err
	}
	s := &stagedPartitions{build: b, bits: p.partitionBits(), files: files}
	offsets, err := b.offsets(files, merged)
	if err != nil {
		return err
	}
	for i := range merged[:len(merged)-1] {
		v := valueFile{offsets: offsets[i]}
		if v.stagedFile, err = b.openStaged(merged[i].Values, valueFence); err != nil {
			return err
		}
		s.values = append(s.values, v)
	}
	s.plan(from, to)
	defer s.loads.Wait()
	done.Inline, done.Rows, err = b.writeShards(s, from, to)
	return err
}

// offsets returns for each range, by file, what the numbers of the rows lack to those in the file.
func (b *build) offsets(files []splitFile, merged []mergeOutcome) ([][]int64, error) {
	sums := make([]postings.Share, len(files))
	offsets := make([][]int64, len(merged)-1)
	for i := range offsets {
		offsets[i] = make([]int64, len(files))
		err := decodeShares(merged[i].Shares, fmt.Sprintf("range %d", i), len(files), func(id int, s postings.Share) {
			offsets[i][id] = sums[id].Rows - s.First
			sums[id].Rows += s.Rows
			sums[id].Domains += s.Domains
		})
		if err != nil {
			return nil, err
		}
	}
	for id := range files {
		if f, sum := &files[id], &sums[id]; sum.Domains != f.domains || sum.Rows != f.rows() {
			return nil, b.damagedFile(id, f, sum.Domains, sum.Rows)
		}
	}
	return offsets, nil
}

// valueFile is the staged values of one range.
type valueFile struct {
	*stagedFile
	offsets []int64 // of the range, by file
}

// emissions returns how often the values of the range were emitted.
func (v *valueFile) emissions() int {
	n := v.Len()
	if n == 0 {
		return 0
	}
	return int(binary.BigEndian.Uint32(v.Fence(n-1))) + 1
}

// partition returns the partition of the values of a frame.
func (v *valueFile) partition(frame int) int { return int(binary.BigEndian.Uint32(v.Fence(frame)[4:])) }

// find returns the frames of an emission that hold the partitions [from, to).
func (v *valueFile) find(emission, from, to int) (lo, hi int) {
	search := func(partition int) int {
		want := uint64(emission)<<32 | uint64(partition)
		return sort.Search(v.Len(), func(i int) bool { return binary.BigEndian.Uint64(v.Fence(i)) >= want })
	}
	return search(from), search(to)
}

// groupBytes is how many bytes of neighbouring partitions are read together: each of them is spread
// over all ranges, in small pieces.
const groupBytes = 16 << 20

// stagedPartitions are the staged values of all ranges.
type stagedPartitions struct {
	*build
	bits   int
	files  []splitFile
	values []valueFile
	groups []*partitionGroup // of the partitions of the task, in order
	byID   map[int]int       // the group of each partition
	loads  sync.WaitGroup
}

// partitionGroup is some neighbouring partitions.
type partitionGroup struct {
	from, to int
	size     int64
	once     sync.Once
	loaded   chan struct{}
	chunks   [][][]byte // by partition
	memory   *[]byte    // of the chunks
	left     atomic.Int64
	err      error
}

// memoryPool keeps the memory of groups.
var memoryPool = sync.Pool{New: func() any { return new([]byte) }}

func (s *stagedPartitions) Len() int { return 1 << s.bits }

// plan forms groups of the partitions of the shards [from, to).
func (s *stagedPartitions) plan(from, to int) {
	shift := s.bits - s.info.ShardBits
	first, end := from<<shift, to<<shift
	sizes := make([]int64, end-first)
	for i := range s.values {
		v := &s.values[i]
		for emission := range v.emissions() {
			lo, hi := v.find(emission, first, end)
			for ; lo < hi; lo++ {
				sizes[v.partition(lo)-first] += v.RawSize(lo)
			}
		}
	}
	s.byID = make(map[int]int, len(sizes))
	var g *partitionGroup
	for i, size := range sizes {
		if g == nil || g.size+size > groupBytes {
			g = &partitionGroup{from: first + i, loaded: make(chan struct{})}
			s.groups = append(s.groups, g)
		}
		g.to, g.size = first+i+1, g.size+size
		g.left.Add(1)
		s.byID[first+i] = len(s.groups) - 1
	}
}

// Each implements partitions.
func (s *stagedPartitions) Each(ctx context.Context, i int, yield func(*keysort.Values) error) error {
	n := s.byID[i]
	g := s.groups[n]
	if g.size > groupBytes {
		// One partition, which somebody has chosen domains for.
		chunks := func(yield func([]byte, error) bool) {
			memory := memoryPool.Get().(*[]byte)
			defer memoryPool.Put(memory)
			err := s.read(ctx, g, memory, func(_ int, chunk []byte) bool {
				*memory = (*memory)[:0]
				return yield(chunk, nil)
			})
			if err != nil {
				yield(nil, err)
			}
		}
		return keysort.SortPartition(ctx, s.opt.TempDir, s.opt.Memory, s.bits, g.size, chunks, yield)
	}
	s.load(g)
	if n+1 < len(s.groups) && s.groups[n+1].size <= groupBytes {
		s.load(s.groups[n+1])
	}
	select {
	case <-g.loaded:
	case <-ctx.Done():
		return ctx.Err()
	}
	if g.err != nil {
		return g.err
	}
	all := g.chunks[i-g.from]
	g.chunks[i-g.from] = nil
	size := int64(0)
	for _, c := range all {
		size += int64(len(c))
	}
	chunks := func(yield func([]byte, error) bool) {
		for _, c := range all {
			if !yield(c, nil) {
				return
			}
		}
	}
	err := keysort.SortPartition(ctx, s.opt.TempDir, s.opt.Memory, s.bits, size, chunks, yield)
	if g.left.Add(-1) == 0 {
		memoryPool.Put(g.memory)
	}
	return err
}

// load begins to load a group, unless it was begun before. Two shards may share a group, so the end
// of one of them does not cancel it.
func (s *stagedPartitions) load(g *partitionGroup) {
	g.once.Do(func() {
		s.loads.Add(1)
		go func() {
			defer s.loads.Done()
			defer close(g.loaded)
			g.chunks, g.memory = make([][][]byte, g.to-g.from), memoryPool.Get().(*[]byte)
			g.err = s.read(s.ctx, g, g.memory, func(partition int, chunk []byte) bool {
				g.chunks[partition-g.from] = append(g.chunks[partition-g.from], chunk)
				return true
			})
		}()
	})
}

// read reads the values of a group and passes them to each, with the rows where they are in the
// parts, until each returns false. The chunks of a partition are in the order in which a build in
// one piece adds the values. read appends them to memory.
func (s *stagedPartitions) read(
	ctx context.Context, g *partitionGroup, memory *[]byte, each func(partition int, chunk []byte) bool,
) error {
	*memory = slices.Grow((*memory)[:0], int(min(g.size, groupBytes)))
	buf := memoryPool.Get().(*[]byte)
	defer memoryPool.Put(buf)
	var relocator postings.Relocator
	var frames [][]byte
	for i := range s.values {
		v := &s.values[i]
		of := func(file uint32) (int64, []int64) {
			if int64(file) >= int64(len(s.files)) {
				return 0, nil
			}
			return v.offsets[file], s.files[file].ends
		}
		records := func(out, records []byte) ([]byte, error) { return relocator.Append(out, records, of) }
		for emission := range v.emissions() {
			lo, hi := v.find(emission, g.from, g.to)
			if lo == hi {
				continue
			}
			var err error
			if frames, err = v.read(ctx, lo, hi, frames[:0], buf); err != nil {
				return err
			}
			for n := 0; n < len(frames); {
				partition := v.partition(lo + n)
				values := frames[n]
				// Only a large partition has several frames.
				for n++; n < len(frames) && v.partition(lo+n) == partition; n++ {
					values = append(values[:len(values):len(values)], frames[n]...)
				}
				start := len(*memory)
				if *memory, err = keysort.Rewrite(*memory, values, records); err != nil {
					return fmt.Errorf("values of range %d: %w", i, err)
				}
				if end := len(*memory); !each(partition, (*memory)[start:end:end]) {
					return nil
				}
			}
		}
	}
	return nil
}

// FinishSegment writes segment.json after all tasks of WriteRange, and returns the reference of the
// segment.
func FinishSegment(ctx context.Context, store blob.Store, split Split, opt Options) (segment.Ref, error) {
	ref, err := finishSegment(ctx, store, split, opt)
	if err != nil {
		return segment.Ref{}, fmt.Errorf("finish segment: %w", err)
	}
	return ref, nil
}

func finishSegment(ctx context.Context, store blob.Store, split Split, opt Options) (segment.Ref, error) {
	b, p, err := openSplit(ctx, store, split.Key, opt)
	if err != nil {
		return segment.Ref{}, err
	}
	defer b.close()
	merged, err := b.mergeOutcomes(p, split.dir())
	if err != nil {
		return segment.Ref{}, err
	}
	b.out = segment.NewWriter(ctx, store, b.batches, opt.Builder)
	b.out.Add(merged[len(merged)-1].Files...)
	for i := range split.Writes {
		var done writeOutcome
		key := p.writeKey(split.dir(), i)
		ok, err := b.outcome(key, &done)
		switch {
		case err != nil:
			return segment.Ref{}, err
		case !ok:
			return segment.Ref{}, fmt.Errorf("%s: %w", key, blob.ErrNotExist)
		case done.Format != splitFormat:
			return segment.Ref{}, ErrOtherBuild
		}
		b.out.Add(done.Files...)
		b.info.Inline += done.Inline
		b.info.Rows += done.Rows
	}
	files, err := b.readFiles(p.Files)
	if err != nil {
		return segment.Ref{}, err
	}
	b.info.Parts = int64(len(files))
	if err := b.checkRows(); err != nil {
		return segment.Ref{}, err
	}
	return b.out.Finish(b.info)
}
