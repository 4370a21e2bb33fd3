package indexbuild

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/urlake/urlake/indexbuild/keysort"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// mergeOutcome is what a task of MergeRange leaves when it has finished.
type mergeOutcome struct {
	Format int `json:"format"`
	// Domains and Entries count those of the range.
	Domains int64 `json:"domains"`
	Entries int64 `json:"entries"`
	// Names has frames of some domains each: u32 domains | u8 length of each | u64 domain_id of
	// each | u32 check bits of each | text, one domain a line.
	Names lake.FrameObject `json:"names"`
	// Sets has frames of some domains each: for each domain uvarint datasets, uvarint the first of
	// them, uvarint how much more each other one is.
	Sets lake.FrameObject `json:"sets"`
	// Values has the records, as a keysort.Shuffle emits them, in frames with a valueFence.
	Values lake.FrameObject `json:"values"`
	// Shares has for each file uvarint domains, and unless that is 0 uvarint rows and uvarint
	// number of the first row in the range (postings.Share).
	Shares []byte `json:"shares"`
	// Files are the files that the last task of MergeRange has written.
	Files []segment.File `json:"files,omitempty"`
}

const (
	// maxValueFrame bounds the frames of staged values. Values may continue in the next frame.
	maxValueFrame = 8 << 20

	// domainsPerFrame is how many domains a frame of staged names has: most such frames are one raw
	// block, which is read without a copy.
	domainsPerFrame = 3 << 10
)

func (p *splitPlan) mergeKey(dir string, i int) string {
	return fmt.Sprintf("%smerge-%04d.json", dir, i)
}

// MergeRange runs task i of the Merges tasks of a Split, in any order and on any worker. It does
// nothing if the task has finished before. A batch that cannot be indexed is a
// *postings.DamageError; a split by another build of urlake is ErrOtherBuild.
func MergeRange(ctx context.Context, store blob.Store, split Split, i int, opt Options) error {
	err := runTask(ctx, store, split, opt, i, split.Merges, (*build).mergeTask)
	if err != nil {
		return fmt.Errorf("merge range %d of %d: %w", i, split.Merges, err)
	}
	return nil
}

// runTask runs task i of n.
func runTask(
	ctx context.Context, store blob.Store, split Split, opt Options, i, n int,
	run func(b *build, p *splitPlan, dir string, i int) error,
) error {
	if i < 0 || i >= n {
		return fmt.Errorf("no such task")
	}
	b, p, err := openSplit(ctx, store, split.Key, opt)
	if err != nil {
		return err
	}
	defer b.close()
	return run(b, p, split.dir(), i)
}

func (b *build) mergeTask(p *splitPlan, dir string, i int) error {
	key := p.mergeKey(dir, i)
	var done mergeOutcome
	if ok, err := b.outcome(key, &done); ok || err != nil {
		return err
	}
	if err := b.readBatches(); err != nil {
		return err
	}
	done.Format = splitFormat
	var err error
	if i > len(p.Cuts) {
		b.out = segment.NewWriter(b.ctx, b.store, b.batches, b.opt.Builder)
		err = concurrently(b.writeFiles, b.writeParts)
		done.Files = b.out.Files()
	} else {
		err = b.mergeRange(p, dir, i, &done)
	}
	if err != nil {
		return err
	}
	return b.putOutcome(key, &done)
}

// mergeRange merges the domains of range i and stages what the tasks of WriteRange need.
func (b *build) mergeRange(p *splitPlan, dir string, i int, done *mergeOutcome) error {
	var from, until []byte
	if i > 0 {
		from = p.Cuts[i-1]
	}
	if i < len(p.Cuts) {
		until = p.Cuts[i]
	}
	var staged [3]*stagedWriter
	defer func() {
		for _, w := range staged {
			if w != nil {
				w.abort()
			}
		}
	}()
	for n, name := range []string{"names", "sets", "values"} {
		fence := 0
		if name == "values" {
			fence = valueFence
		}
		w, err := newStagedWriter(b, fmt.Sprintf("%s%s-%04d", dir, name, i), fence)
		if err != nil {
			return err
		}
		staged[n] = w
	}
	names, sets, values := staged[0], staged[1], staged[2]
	shuffle := keysort.NewShuffle(b.opt.Memory, p.partitionBits(), values.emission())

	sources := make([]*postings.RangeSource, len(b.files))
	guess := float64(i) / float64(len(p.Cuts)+1)
	var frame []byte
	err := b.mergeSources(func(o *object, part int, file uint32) domainSource {
		s := o.RangeSource(part, file, from, until, guess)
		sources[file] = s
		b.sources = append(b.sources, s)
		return s
	}, func(w *window) error {
		for from := 0; from < w.len(); from += domainsPerFrame {
			to := min(from+domainsPerFrame, w.len())
			frame = appendNames(frame[:0], w, from, to)
			if _, _, err := names.Frame(nil, frame); err != nil {
				return err
			}
			frame = appendSets(frame[:0], w, from, to)
			if _, _, err := sets.Frame(nil, frame); err != nil {
				return err
			}
		}
		for i, k := range w.keys {
			if err := shuffle.Add(k, w.recordsOf(i)); err != nil {
				return err
			}
		}
		done.Domains += int64(w.len())
		done.Entries += int64(len(w.sets))
		return b.ctx.Err()
	})
	if err == nil {
		err = shuffle.Flush()
	}
	if err != nil {
		return err
	}
	for n, to := range []*lake.FrameObject{&done.Names, &done.Sets, &done.Values} {
		if *to, err = staged[n].finish(); err != nil {
			return err
		}
	}
	for _, s := range sources {
		share := s.Share()
		done.Shares = codec.AppendUvarint(done.Shares, uint64(share.Domains))
		if share.Domains > 0 {
			done.Shares = codec.AppendUvarint(done.Shares, uint64(share.Rows))
			done.Shares = codec.AppendUvarint(done.Shares, uint64(share.First))
		}
	}
	return nil
}

// partitionBits is the base-2 logarithm of the number of partitions of the staged values.
func (p *splitPlan) partitionBits() int { return keysort.PartitionBits(p.Pairs, shardBits(p.Pairs)) }

// emission returns a function that writes what a Shuffle emits.
func (w *stagedWriter) emission() func(partition int, values []byte) error {
	emission, last := 0, -1
	var fence []byte
	return func(partition int, values []byte) error {
		if partition <= last {
			emission++
		}
		last = partition
		for frame := 0; len(values) > 0; frame++ {
			n := min(len(values), maxValueFrame)
			fence = appendValueFence(fence[:0], emission, partition, frame)
			if _, _, err := w.Frame(fence, values[:n]); err != nil {
				return err
			}
			values = values[n:]
		}
		return nil
	}
}

// appendNames appends the frame of the names of a window's domains [from, to) to out.
func appendNames(out []byte, w *window, from, to int) []byte {
	out = codec.AppendU32(out, uint32(to-from))
	first := uint32(0)
	if from > 0 {
		first = w.ends[from-1]
	}
	start := first
	for _, end := range w.ends[from:to] {
		out = append(out, byte(end-start-1))
		start = end
	}
	for _, k := range w.keys[from:to] {
		out = codec.AppendU64(out, k.ID)
	}
	for _, k := range w.keys[from:to] {
		out = codec.AppendU32(out, k.Check)
	}
	return append(out, w.text[first:start]...)
}

// stagedNames is a decoded frame of names.
type stagedNames struct {
	text []byte
	ends []uint32
	keys []segment.Key
}

// decode decodes a frame of a staged file. The text is a view of it.
func (s *stagedNames) decode(data []byte, file string) error {
	bad := func(want string, got any) error { return codec.Corrupt(file, "names", -1, want, got) }
	const perDomain = 1 + 8 + 4
	if len(data) < 4 {
		return bad("a number of domains", fmt.Sprintf("%d bytes", len(data)))
	}
	le := binary.LittleEndian
	n := int64(le.Uint32(data))
	data = data[4:]
	if n*perDomain > int64(len(data)) {
		return bad(fmt.Sprintf("%d domains", n), fmt.Sprintf("%d bytes", len(data)))
	}
	lengths, ids, checks := data[:n], data[n:9*n], data[9*n:perDomain*n]
	s.text, s.ends, s.keys = data[perDomain*n:], s.ends[:0], s.keys[:0]
	end := uint32(0)
	for i, length := range lengths {
		end += uint32(length) + 1
		s.ends = append(s.ends, end)
		s.keys = append(s.keys, segment.Key{ID: le.Uint64(ids[8*i:]), Check: le.Uint32(checks[4*i:])})
	}
	if int(end) != len(s.text) {
		return bad(fmt.Sprintf("%d bytes of text", end), len(s.text))
	}
	return nil
}

// appendSets appends the frame of the sets of datasets of a window's domains [from, to) to out.
func appendSets(out []byte, w *window, from, to int) []byte {
	start := uint32(0)
	if from > 0 {
		start = w.setEnds[from-1]
	}
	for _, end := range w.setEnds[from:to] {
		out = codec.AppendUvarint(out, uint64(end-start))
		last := uint32(0)
		for _, dataset := range w.sets[start:end] {
			out = codec.AppendUvarint(out, uint64(dataset-last))
			last = dataset
		}
		start = end
	}
	return out
}

// stagedSets is a decoded frame of sets.
type stagedSets struct{ datasets, ends []uint32 }

func (s *stagedSets) decode(data []byte, file string) error {
	s.datasets, s.ends = s.datasets[:0], s.ends[:0]
	at := 0
	next := func() (uint32, bool) {
		if at < len(data) && data[at] < 0x80 {
			at++
			return uint32(data[at-1]), true
		}
		v, n := binary.Uvarint(data[at:])
		at += max(n, 0)
		return uint32(v), n > 0 && v <= 1<<32-1
	}
	for at < len(data) {
		n, ok := next()
		last := uint32(0)
		for ; n > 0 && ok; n-- {
			var more uint32
			more, ok = next()
			last += more
			s.datasets = append(s.datasets, last)
		}
		if !ok {
			return codec.Corrupt(file, "sets", int64(at), "a number", "none")
		}
		s.ends = append(s.ends, uint32(len(s.datasets)))
	}
	return nil
}

// decodeShares decodes what the files have in a range. share gets those of which it has domains.
func decodeShares(data []byte, file string, files int, share func(id int, s postings.Share)) error {
	d := codec.NewDecoder(data, file, "shares")
	for id := range files {
		s := postings.Share{Domains: int64(d.Uvarint())}
		if s.Domains == 0 {
			continue
		}
		s.Rows, s.First = int64(d.Uvarint()), int64(d.Uvarint())
		share(id, s)
	}
	return d.Close()
}
