package indexbuild

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

// A large segment is built by several workers, in four steps:
//
//	SplitSegment  one task: cuts the domains, in their order, into ranges of about as many pairs
//	MergeRange    a task for each range: merges the domains of the range from all parts, and stages
//	              their names, their sets of datasets, and their records partitioned by key; one
//	              more task writes files.tsv.zst and parts.idx.zst
//	WriteRange    tasks that read what all ranges staged: one writes domains.txt.zst and
//	              domains.mphf, one domain_to_datasets.roar, each other some shards of postings
//	FinishSegment one task: writes segment.json
//
// A task that has finished leaves a document, and does nothing when it is repeated. A task that
// dies is repeated alone. The files have the bytes that BuildSegment gives them, whatever the
// number of ranges: the names of all ranges, one after the other, are the merged domains.
//
// The number of a part's rows before a range is the sum over the ranges before, which other workers
// merge at the same time. So a range numbers rows by itself, and the tasks that write postings
// compute where the rows are (postings.RangeSource).

const (
	// splitFormat is the format version of what the tasks of a build stage.
	splitFormat = 1

	// rangePairs is the number of pairs of domain and dataset for which there is one more range,
	// unless Options say otherwise: a second of one core. rangeStep is what the number of ranges is
	// a multiple of, so that up to eight workers have equal shares.
	rangePairs = 4 << 20
	rangeStep  = 8

	// minRanges is how many ranges of pairs a segment has at least that is built in ranges.
	// Ordering the tasks takes about as long as a range.
	minRanges = 4

	// maxRanges bounds the tasks of a build. Beyond a quarter of a billion pairs, ranges grow.
	maxRanges = 64

	// maxRangeFiles bounds the number of ranges times files: each task that writes postings has 8
	// bytes for each. Many small parts are also slow to open in many ranges.
	maxRangeFiles = 1 << 20

	// samplesPerRange is how many domains are sampled for each range. The largest range then has a
	// third more pairs than the average at most, nearly always.
	samplesPerRange = 64

	// maxWriters is the largest number of tasks that write postings.
	maxWriters = 64

	// namesWriter and setsWriter are the tasks of WriteRange before those that write postings.
	namesWriter, setsWriter, firstShardWriter = 0, 1, 2
)

// Split describes a build in ranges.
type Split struct {
	// Segment is the id of the segment.
	Segment string `json:"segment"`
	// Key is the key of the plan. What the tasks stage is in the same folder.
	Key string `json:"key"`
	// Merges and Writes are the numbers of tasks of MergeRange and of WriteRange.
	Merges int `json:"merges"`
	Writes int `json:"writes"`
}

// ErrOtherBuild says that another build of urlake began the build of a segment. It has to be begun
// anew, since this build may write other bytes.
var ErrOtherBuild = errors.New("another build of urlake began this segment")

// splitPlan is the document at Split.Key.
type splitPlan struct {
	Format  int                `json:"format"`
	Segment string             `json:"segment"`
	Batches []segment.BatchRef `json:"batches"`
	// CanonicalForm and PublicSuffix are those of the segment.
	CanonicalForm string `json:"canonical_form"`
	PublicSuffix  string `json:"public_suffix_list"`
	// Pairs is the number of domains of all parts: the segment has at most as many entries.
	Pairs int64 `json:"pairs"`
	// Cuts are the domains at which the second range and those after it begin.
	Cuts [][]byte `json:"cuts"`
	// ShardWriters is the number of tasks that write postings.
	ShardWriters int `json:"shard_writers"`
	// Files describes the parts: see splitFile.
	Files lake.FrameObject `json:"files"`
}

// splitFile is what the tasks that write postings know of a part.
type splitFile struct {
	batch   int // in the plan
	domains int64
	ends    []int64 // of its row groups, as numbers of rows
}

func (f *splitFile) rows() int64 {
	if len(f.ends) == 0 {
		return 0
	}
	return f.ends[len(f.ends)-1]
}

// SplitSegment plans the build of the segment over batches in ranges, whose tasks stage their
// results below dir. It returns a Split without tasks if the segment is so small that BuildSegment
// is as fast.
func SplitSegment(ctx context.Context, store blob.Store, batches []segment.BatchRef, dir string, opt Options) (Split, error) {
	b, err := newBuild(ctx, store, batches, opt)
	if err != nil {
		return Split{}, fmt.Errorf("split segment: %w", err)
	}
	defer b.close()
	s, err := b.split(dir)
	if err != nil {
		return Split{}, fmt.Errorf("split segment: %w", err)
	}
	return s, nil
}

// SplitPairs is the least number of pairs of domain and dataset of a segment that SplitSegment
// splits into ranges of about so many pairs; 0 is the number that Options have by default.
func SplitPairs(pairs int64) int64 { return minRanges * cmp.Or(pairs, rangePairs) }

// ranges returns the number of ranges of a segment.
func (b *build) ranges(pairs int64) int {
	if b.opt.Ranges > 0 {
		return b.opt.Ranges
	}
	if pairs < SplitPairs(b.opt.RangePairs) {
		return 1
	}
	each := cmp.Or(b.opt.RangePairs, rangePairs)
	n := int(min((pairs+each-1)/each, maxRanges))
	n = min((n+rangeStep-1)/rangeStep*rangeStep, maxRanges)
	return min(n, maxRangeFiles/max(len(b.files), 1))
}

func (b *build) split(dir string) (Split, error) {
	if err := b.readBatches(); err != nil {
		return Split{}, err
	}
	p := splitPlan{
		Format: splitFormat, Segment: segment.ID(b.batches, b.opt.Builder), Batches: b.batches,
		CanonicalForm: b.info.CanonicalForm, PublicSuffix: b.info.PublicSuffix,
	}
	for i := range b.objects {
		p.Pairs += b.objects[i].Domains()
	}
	n := b.ranges(p.Pairs)
	if n < 2 && b.opt.Ranges == 0 || p.Pairs == 0 {
		return Split{}, nil
	}
	var err error
	if p.Cuts, err = b.cuts(p.Pairs, n); err != nil {
		return Split{}, err
	}
	p.ShardWriters = min(1<<shardBits(p.Pairs), maxWriters)
	if p.Files, err = b.stageFiles(dir + "files"); err != nil {
		return Split{}, err
	}
	data, err := codec.Seal(&p)
	if err != nil {
		return Split{}, err
	}
	key := dir + "split.json"
	if _, err := b.store.Put(b.ctx, key, data, blob.Condition{}); err != nil {
		return Split{}, err
	}
	return Split{Segment: p.Segment, Key: key, Merges: len(p.Cuts) + 2, Writes: firstShardWriter + p.ShardWriters}, nil
}

// cuts returns the domains that cut n ranges of about as many pairs out of a sample.
func (b *build) cuts(pairs int64, n int) ([][]byte, error) {
	count := int(min(int64(n*samplesPerRange), pairs))
	samples := make([][]byte, count)
	g, ctx := errgroup.WithContext(b.ctx)
	g.SetLimit(concurrentReads)
	next, before := 0, int64(0) // the next sample, and the domains of the parts so far
	for i := range b.objects {
		o := &b.objects[i]
		for part, p := range o.Parts() {
			for ; next < count; next++ {
				at := pairs/int64(count)*int64(next) + pairs%int64(count)*int64(next)/int64(count) - before
				if at >= p.Domains {
					break
				}
				sample := &samples[next]
				g.Go(func() (err error) {
					*sample, err = o.Sample(ctx, part, at)
					return err
				})
			}
			before += p.Domains
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(samples, bytes.Compare)
	var cuts [][]byte
	for i := 1; i < n; i++ {
		cut := samples[i*len(samples)/n]
		if len(cuts) == 0 && len(cut) > 0 || len(cuts) > 0 && !bytes.Equal(cuts[len(cuts)-1], cut) {
			cuts = append(cuts, cut)
		}
	}
	return cuts, nil
}

// filesPerFrame is how many files a frame of staged files describes.
const filesPerFrame = 1 << 12

// stageFiles stages the splitFile of each part.
func (b *build) stageFiles(key string) (lake.FrameObject, error) {
	w, err := newStagedWriter(b, key, 0)
	if err != nil {
		return lake.FrameObject{}, err
	}
	defer w.abort()
	batch := map[segment.BatchRef]int{}
	for i, ref := range b.batches {
		batch[ref] = i
	}
	var frame []byte
	for id, src := range b.parts {
		o := &b.objects[src.object]
		p := &o.Parts()[src.part]
		frame = codec.AppendUvarint(frame, uint64(batch[o.Batch()]))
		frame = codec.AppendUvarint(frame, uint64(p.Domains))
		frame = codec.AppendUvarint(frame, uint64(len(p.Groups)))
		for _, rows := range p.Groups {
			frame = codec.AppendUvarint(frame, uint64(rows))
		}
		if (id+1)%filesPerFrame == 0 || id == len(b.parts)-1 {
			if _, _, err := w.Frame(nil, frame); err != nil {
				return lake.FrameObject{}, err
			}
			frame = frame[:0]
		}
	}
	return w.finish()
}

// readFiles reads what stageFiles has staged, with the datasets of the files.
func (b *build) readFiles(o lake.FrameObject) ([]splitFile, error) {
	var files []splitFile
	err := b.eachFrame(o, func(data []byte) error {
		d := codec.NewDecoder(data, o.Key, "files")
		for d.Len() > 0 && d.Err() == nil {
			f := splitFile{batch: int(d.Uint(uint64(len(b.batches) - 1))), domains: int64(d.Uvarint())}
			end := int64(0)
			for range d.Uint(uint64(d.Len())) {
				end += int64(d.Uvarint())
				f.ends = append(f.ends, end)
			}
			files = append(files, f)
			if d.Err() == nil {
				b.files = append(b.files, segment.FileInfo{DatasetID: b.batches[f.batch].DatasetID, Rows: end})
			}
		}
		return d.Close()
	})
	return files, err
}

// openSplit reads a plan and begins a task of it.
func openSplit(ctx context.Context, store blob.Store, key string, opt Options) (*build, *splitPlan, error) {
	data, _, err := store.Get(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	p := new(splitPlan)
	err = codec.Unseal(data, key, splitFormat, p)
	if codec.IsFormat(err) || err == nil && p.Format != splitFormat {
		return nil, nil, ErrOtherBuild
	}
	if err != nil {
		return nil, nil, err
	}
	b, err := newBuild(ctx, store, p.Batches, opt)
	if err != nil {
		return nil, nil, err
	}
	if segment.ID(b.batches, opt.Builder) != p.Segment {
		return nil, nil, ErrOtherBuild
	}
	b.info = segment.Info{CanonicalForm: p.CanonicalForm, PublicSuffix: p.PublicSuffix}
	return b, p, nil
}

// stagedWriter writes a staged frame file, which is stored and not compressed: it is read once,
// soon.
type stagedWriter struct {
	*seekable.Writer
	key string
	out blob.Writer
}

func newStagedWriter(b *build, key string, fence int) (*stagedWriter, error) {
	out, err := b.store.Create(b.ctx, key)
	if err != nil {
		return nil, err
	}
	fw := seekable.NewWriter(out, fence)
	fw.DisableCompression()
	fw.SkipHash()
	return &stagedWriter{fw, key, out}, nil
}

func (w *stagedWriter) finish() (lake.FrameObject, error) {
	ff, err := w.Finish()
	if err != nil {
		return lake.FrameObject{}, err
	}
	_, err = w.out.Finish()
	return lake.NewFrameObject(w.key, ff), err
}

func (w *stagedWriter) abort() { w.out.Abort() }

// stagedFile reads a staged frame file.
type stagedFile struct {
	*seekable.Frames
	store blob.Store
	key   string
}

func (b *build) openStaged(o lake.FrameObject, fence int) (*stagedFile, error) {
	read := func(ctx context.Context, off, n int64) ([]byte, error) { return b.store.ReadRange(ctx, o.Key, off, n) }
	ff, err := o.FrameFile()
	if err != nil {
		return nil, err
	}
	frames, err := seekable.OpenAt(b.ctx, read, ff, o.Key, fence)
	return &stagedFile{frames, b.store, o.Key}, err
}

// read reads the frames [lo, hi) in one request, and appends their contents to out. They may be
// views of buf, which read grows.
func (f *stagedFile) read(ctx context.Context, lo, hi int, out [][]byte, buf *[]byte) ([][]byte, error) {
	off, n := f.Range(lo, hi)
	*buf = slices.Grow((*buf)[:0], int(n)+blob.AlignSlack)
	raw := blob.AlignedSlice((*buf)[:int(n)+blob.AlignSlack], off, n)
	stream, err := f.store.Open(ctx, f.key, off, n)
	if err != nil {
		return nil, err
	}
	_, err = io.ReadFull(stream, raw)
	if cerr := stream.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, fmt.Errorf("read frames %d to %d of %s: %w", lo, hi, f.key, err)
	}
	for ; lo < hi; lo++ {
		_, n := f.Range(lo, lo+1)
		data, err := f.Decode(lo, raw[:n])
		if err != nil {
			return nil, err
		}
		out, raw = append(out, data), raw[n:]
	}
	return out, nil
}

// stagedRead is about how many bytes of a staged file are read at once.
const stagedRead = 2 << 20

// eachFrame calls each with the content of every frame of a staged file without fences, which is
// valid until each returns. It reads ahead.
func (b *build) eachFrame(o lake.FrameObject, each func(data []byte) error) error {
	f, err := b.openStaged(o, 0)
	if err != nil {
		return err
	}
	type batch struct {
		frames [][]byte
		buf    []byte
	}
	const ahead = 2
	free, queue := make(chan *batch, ahead), make(chan *batch, ahead)
	for range ahead {
		free <- &batch{}
	}
	g, ctx := errgroup.WithContext(b.ctx)
	g.Go(func() error {
		defer close(queue)
		for lo := 0; lo < f.Len(); {
			hi := lo + 1
			for ; hi < f.Len(); hi++ {
				if _, n := f.Range(lo, hi+1); n > stagedRead {
					break
				}
			}
			select {
			case next := <-free:
				if next.frames, err = f.read(ctx, lo, hi, next.frames[:0], &next.buf); err != nil {
					return err
				}
				queue <- next // has capacity for all batches
			case <-ctx.Done():
				return ctx.Err()
			}
			lo = hi
		}
		return nil
	})
	g.Go(func() error {
		for next := range queue {
			for _, data := range next.frames {
				if err := each(data); err != nil {
					return err
				}
			}
			free <- next
		}
		return ctx.Err()
	})
	return g.Wait()
}

// outcome reads the document of a finished task. ok is false if the task has not finished.
func (b *build) outcome(key string, into any) (ok bool, err error) {
	data, _, err := b.store.Get(b.ctx, key)
	if errors.Is(err, blob.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	err = codec.Unseal(data, key, splitFormat, into)
	if codec.IsFormat(err) {
		return false, ErrOtherBuild
	}
	return true, err
}

func (b *build) putOutcome(key string, doc any) error {
	data, err := codec.Seal(doc)
	if err != nil {
		return err
	}
	_, err = b.store.Put(b.ctx, key, data, blob.Condition{})
	return err
}

// valueFence is the fence of a frame of staged values: u32 number of the emission | u32 partition |
// u32 number of the frame among those of both, big-endian.
const valueFence = 12

func appendValueFence(out []byte, emission, partition, frame int) []byte {
	out = binary.BigEndian.AppendUint32(out, uint32(emission))
	out = binary.BigEndian.AppendUint32(out, uint32(partition))
	return binary.BigEndian.AppendUint32(out, uint32(frame))
}

// damagedFile returns the error for a file of which the ranges have not read what its directory
// says.
func (b *build) damagedFile(id int, f *splitFile, domains, rows int64) error {
	ref := b.batches[f.batch]
	return postings.Damaged(ref, codec.Corrupt(lake.BatchPrefix(ref.DatasetID, ref.Batch), "postings", -1,
		fmt.Sprintf("%d domains, %d rows in part %d of the segment", f.domains, f.rows(), id),
		fmt.Sprintf("%d, %d", domains, rows)))
}
