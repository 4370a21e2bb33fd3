package mph

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
)

const (
	// bucketKeys is the most keys that a bucket has on average, for up to 2^maxBucketBits times as
	// many keys. A bucket takes 7 MB while it is built: its levels stay in a core's first two
	// caches, and its records, which are written in random order, nearly in the second.
	bucketKeys = 1 << 17

	// chunkKeys is the number of keys in a chunk, which is sorted by bucket. Input and output stay
	// in a core's second-level cache.
	chunkKeys = 1 << 15

	// chunkBucketKeys is the least average number of keys of one bucket in a chunk. Those keys are
	// copied together later.
	chunkBucketKeys = 1 << 7

	// memoryKeys is the most keys held in memory, 16 bytes each. Beyond that the oldest quarter is
	// spilled to the temporary file. A smaller number touches no disk.
	memoryKeys = 10 << 20

	// writeSize is the size of writes to the temporary file.
	writeSize = 1 << 20

	// sorters is the most chunks that are sorted while the next one fills. Sorting a chunk takes
	// less than twice as long as filling one.
	sorters = 2
)

// Options are a builder's options.
type Options struct {
	// Seed is the seed of the hash and part of the file. Derive it from the segment's inputs: then
	// nobody can choose domains that all collide.
	Seed uint64
	// Dir is the folder of the temporary file, which exists if there are more than ten million
	// domains and takes up to 17 bytes a domain. "" means the system's folder for temporary files.
	Dir string
	// Expect is the approximate number of domains, 0 if unknown. It affects speed alone.
	Expect int64
	// Parallelism is the number of buckets that are built concurrently, each in 7 MB. 0 means
	// GOMAXPROCS.
	Parallelism int
}

// Stats describes a finished file.
type Stats struct {
	Domains    int
	Keys       int // distinct
	Buckets    int
	Levels     int   // of the bucket that has most
	LevelBytes int64 // of the lines: the hash itself
	Fallback   int   // keys that no level placed
	Shared     int   // domains that share their key with another
	Bytes      int64 // of the file
}

// DuplicateError says that two domains have the same key and the same check bits. The file cannot
// distinguish them.
type DuplicateError struct {
	Key      uint64
	Check    uint32
	Ordinals [2]uint32
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("domains %d and %d share key %016x and check bits %08x", e.Ordinals[0], e.Ordinals[1], e.Key, e.Check)
}

// entry is what a record holds.
type entry struct {
	key            uint64
	check, ordinal uint32
}

func (e entry) append(p []byte) []byte {
	p = binary.LittleEndian.AppendUint64(p, e.key)
	p = binary.LittleEndian.AppendUint32(p, e.check)
	return binary.LittleEndian.AppendUint32(p, e.ordinal)
}

// Builder builds the file of a segment's domains. One goroutine may use it; it starts others. Its
// memory is bounded: 16 bytes a domain up to 160 MB, 40 MB more while it spills, and 7 MB for each
// of Parallelism + 1 buckets.
type Builder struct {
	opt        Options
	bucketKeys int
	chunkKeys  int
	memoryKeys int

	added    uint64
	chunk        // being filled
	size     int // of a full chunk, in keys
	idle     chan chunk
	started  int // chunks that exist besides the one being filled
	runs     []*run
	held     int      // keys in memory
	file     *os.File // runs, then lines; nil until the first spill
	fileSize int64
	spilling chan error // gets the result of the spill in flight; nil if there is none
	spilled  []*run     // runs that this spill writes
	free     []*run     // runs whose memory is reused
	writing  []byte     // buffer of the spill
	failed   error      // first error of a spill
	finished bool
}

// NewBuilder returns an empty builder. The caller must close it, after Finish too.
func NewBuilder(opt Options) *Builder {
	if opt.Parallelism <= 0 {
		opt.Parallelism = runtime.GOMAXPROCS(0)
	}
	return &Builder{opt: opt, bucketKeys: bucketKeys, chunkKeys: chunkKeys, memoryKeys: memoryKeys}
}

var errFinished = errors.New("build domains.mphf: builder is finished")

// Add adds the next domain. Domains get the ordinals 0, 1 and so on, as in domains.txt.zst. Adding
// more than MaxDomains is an error.
func (b *Builder) Add(key uint64, check uint32) error {
	if len(b.keys) == cap(b.keys) || b.added >= MaxDomains {
		if err := b.reserve(); err != nil {
			return err
		}
	}
	b.keys = append(b.keys, key)
	b.values = append(b.values, uint64(check)|b.added<<32)
	b.added++
	return nil
}

// reserve makes capacity for the next key. It is called when the chunk is full.
func (b *Builder) reserve() error {
	if b.finished {
		return errFinished
	}
	if b.added >= MaxDomains {
		return fmt.Errorf("build domains.mphf: more than %d domains", uint64(MaxDomains))
	}
	if b.size == 0 {
		b.size = b.chunkSize(b.runBits())
		b.idle = make(chan chunk, sorters)
	}
	if n := cap(b.keys); n < b.size {
		// Many segments are small: start small and double.
		n = int(min(int64(b.size), max(int64(2*n), 64, b.opt.Expect)))
		b.keys, b.values = append(make([]uint64, 0, n), b.keys...), append(make([]uint64, 0, n), b.values...)
		return nil
	}
	if err := b.spill(); err != nil {
		return fmt.Errorf("build domains.mphf: %w", err)
	}
	b.sortChunk()
	return nil
}

// chunkSize is the size of chunks that are sorted by n bits.
func (b *Builder) chunkSize(n uint32) int {
	if n == 0 {
		return max(1, min(b.bucketKeys, b.memoryKeys/4)) // one bucket: nothing to sort
	}
	return max(1, min(max(b.chunkKeys, chunkBucketKeys<<n), b.memoryKeys/4))
}

// sortChunk sorts the full chunk in another goroutine and takes a free one.
func (b *Builder) sortChunk() {
	r := &run{}
	b.runs = append(b.runs, r)
	b.held += len(b.keys)
	if n := len(b.free); n > 0 {
		r.keys, r.values = b.free[n-1].keys, b.free[n-1].values
		b.free = b.free[:n-1]
	}
	full, n := b.chunk, b.runBits()
	if b.started < min(sorters, b.opt.Parallelism) {
		b.started++
		b.chunk = chunk{keys: make([]uint64, 0, b.size), values: make([]uint64, 0, b.size)}
	} else {
		b.chunk = <-b.idle
	}
	go func() {
		r.sort(&full, b.opt.Seed, n)
		b.idle <- chunk{full.keys[:0], full.values[:0], full.buckets}
	}()
}

// waitSorts waits until all started chunks are sorted.
func (b *Builder) waitSorts() {
	var idle [sorters]chunk
	for i := range b.started {
		idle[i] = <-b.idle
	}
	for i := range b.started {
		b.idle <- idle[i]
	}
}

// Close frees all resources, the temporary file too. A second call does nothing.
func (b *Builder) Close() error {
	b.finished = true
	b.waitSorts()
	_ = b.waitSpill() // Add or Finish returned its error, or nobody needs the spill
	b.chunk, b.idle, b.started = chunk{}, nil, 0
	b.runs, b.free = nil, nil
	if b.file == nil {
		return nil
	}
	f := b.file
	b.file = nil
	err := f.Close()
	// Where the system allows it, the file was removed when it was created.
	if rerr := os.Remove(f.Name()); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return err
}

// runBits is the number of bits by which runs are sorted: that of the final buckets, if Expect
// tells it.
func (b *Builder) runBits() uint32 {
	if b.opt.Expect <= 0 {
		return maxBucketBits
	}
	return bucketBits(uint64(b.opt.Expect), b.bucketKeys)
}

// spill starts writing the oldest runs to the file if memory holds too many keys. It waits for a
// spill in flight once memory holds a quarter more.
func (b *Builder) spill() error {
	if b.failed != nil {
		return b.failed
	}
	for b.held+len(b.keys) > b.memoryKeys {
		if b.spilling != nil {
			if len(b.spilling) == 0 && b.held+len(b.keys) <= b.memoryKeys+b.memoryKeys/4 {
				return nil
			}
			if err := b.waitSpill(); err != nil {
				return err
			}
			continue
		}
		if b.file == nil {
			f, err := os.CreateTemp(b.opt.Dir, "domains-mphf-*.tmp")
			if err != nil {
				return err
			}
			b.file = f
			// A file without a name disappears with the process. Where the system forbids to remove
			// an open file, Close does it.
			_ = os.Remove(f.Name())
		}
		from := slices.IndexFunc(b.runs, func(r *run) bool { return !r.spilled })
		if from < 0 {
			return nil // memory holds the chunk alone
		}
		b.waitSorts()
		to, n := from, 0
		for ; to < len(b.runs) && n < (b.memoryKeys+3)/4; to++ {
			n += len(b.runs[to].keys)
		}
		one := &run{bits: b.runBits(), spilled: true, off: b.fileSize}
		b.fileSize += int64(n) * recordSize
		b.spilled = slices.Clone(b.runs[from:to])
		b.runs = slices.Replace(b.runs, from, to, one)
		b.spilling = make(chan error, 1)
		if b.writing == nil {
			b.writing = make([]byte, 0, writeSize+writeSize/4)
		}
		go func(done chan<- error, file *os.File, old []*run) {
			done <- one.write(file, old, int64(n), b.writing)
		}(b.spilling, b.file, b.spilled)
	}
	return nil
}

// waitSpill waits for the spill in flight and returns the first error of all spills.
func (b *Builder) waitSpill() error {
	if b.spilling == nil {
		return b.failed
	}
	b.failed = cmp.Or(b.failed, <-b.spilling)
	for _, r := range b.spilled {
		b.held -= len(r.keys)
	}
	b.free = append(b.free, b.spilled...)
	b.spilling, b.spilled = nil, nil
	return b.failed
}

func (b *Builder) writeFile(p []byte) error {
	_, err := b.file.WriteAt(p, b.fileSize)
	b.fileSize += int64(len(p))
	return err
}

// bucketBits returns the smallest n with which 2^n buckets have at most bucketKeys keys on average.
func bucketBits(domains uint64, bucketKeys int) uint32 {
	n := uint32(0)
	for n < maxBucketBits && domains > uint64(bucketKeys)<<n {
		n++
	}
	return n
}

// Finish writes the file of all added domains to w. domainsXXH64 is the xxh64 of the
// domains.txt.zst that lists them. The error is a *DuplicateError if the file cannot distinguish
// two domains, else that of ctx, w or the temporary file; what w got is then useless. The builder
// is finished in any case.
func (b *Builder) Finish(ctx context.Context, w io.Writer, domainsXXH64 uint64) (Stats, error) {
	if b.finished {
		return Stats{}, errFinished
	}
	b.finished = true
	s, err := b.finish(ctx, w, domainsXXH64)
	if err != nil {
		return Stats{}, fmt.Errorf("build domains.mphf: %w", err)
	}
	return s, nil
}

// output counts the bytes written and keeps the first error.
type output struct {
	w   io.Writer
	off uint64
	err error
}

func (o *output) Write(p []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.w.Write(p)
	o.off += uint64(n)
	o.err = err
	return n, err
}

// append writes b. An error is kept in err, and nothing is written after it.
func (o *output) append(b []byte) { _, _ = o.Write(b) }

func (o *output) pad() {
	if n := align(o.off) - o.off; n > 0 {
		o.append(make([]byte, n))
	}
}

func (b *Builder) finish(ctx context.Context, w io.Writer, domainsXXH64 uint64) (Stats, error) {
	nbits := bucketBits(b.added, b.bucketKeys)
	if len(b.keys) > 0 || len(b.runs) == 0 {
		last := &run{}
		b.runs = append(b.runs, last)
		if n := max(nbits, b.runBits()); n == 0 {
			*last = run{ends: []uint32{uint32(len(b.keys))}, keys: b.keys, values: b.values}
		} else {
			last.sort(&b.chunk, b.opt.Seed, n)
		}
	}
	b.waitSorts()
	b.chunk, b.idle, b.started = chunk{}, nil, 0
	if err := b.waitSpill(); err != nil {
		return Stats{}, err
	}
	b.free, b.writing = nil, nil

	t := trailer{seed: b.opt.Seed, domainsXXH64: domainsXXH64, domains: b.added, bucketBits: nbits}
	stats := Stats{Domains: int(b.added), Buckets: 1 << nbits}
	out := &output{w: w}
	out.append(appendHeader(nil))

	// A bucket's records are written when it is built. Lines come after all records: until then
	// they are kept in memory, or in the temporary file if it exists.
	var lines []byte
	linesOff := b.fileSize
	var rest []entry
	directory := make([]byte, 0, entrySize<<nbits)
	err := b.buildBuckets(ctx, nbits, func(k *bucketBuild) error {
		k.dir.slot, k.dir.line = t.keys, t.lines
		t.keys += uint64(k.dir.keys)
		t.lines += k.dir.lines()
		stats.Levels = max(stats.Levels, int(k.dir.levels))
		directory = k.dir.append(directory)
		rest = append(rest, k.unplaced...)
		if b.file == nil {
			lines = append(lines, k.lines...)
		} else if err := b.writeFile(k.lines); err != nil {
			return err
		}
		_, err := out.Write(k.records)
		return err
	})
	if err != nil {
		return Stats{}, err
	}

	fallback, records, side, shared, err := encodeFallback(rest)
	if err != nil {
		return Stats{}, err
	}
	t.fallback = uint64(len(fallback) / 8)
	t.keys += t.fallback
	t.side = uint64(len(side) / sideSize)
	t.arrange()

	out.append(records)
	out.pad()
	if b.file == nil {
		out.append(lines)
	} else if _, err := io.Copy(out, io.NewSectionReader(b.file, linesOff, b.fileSize-linesOff)); err != nil {
		return Stats{}, err
	}
	out.append(fallback)
	out.pad()
	out.append(side)
	out.pad()
	out.append(directory)
	out.append(t.append(nil, directory))
	if out.err != nil {
		return Stats{}, out.err
	}
	if out.off != t.layout.size {
		return Stats{}, fmt.Errorf("wrote %d bytes where %d were planned", out.off, t.layout.size)
	}
	stats.Keys = int(t.keys)
	stats.LevelBytes = int64(t.lines) * lineSize
	stats.Fallback = int(t.fallback)
	stats.Shared = shared
	stats.Bytes = int64(t.layout.size)
	return stats, nil
}

// encodeFallback encodes the keys that no level placed: the sorted keys, their records, and the
// side table. Domains that share a key are all among them, since no level separates equal keys.
// They are a group in the side table, to which the key's record points.
func encodeFallback(rest []entry) (fallback, records, side []byte, shared int, err error) {
	slices.SortFunc(rest, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.check, b.check), cmp.Compare(a.ordinal, b.ordinal))
	})
	le := binary.LittleEndian
	for len(rest) > 0 {
		n := 1
		for n < len(rest) && rest[n].key == rest[0].key {
			if p, e := rest[n-1], rest[n]; p.check == e.check {
				return nil, nil, nil, 0, &DuplicateError{e.key, e.check, [2]uint32{p.ordinal, e.ordinal}}
			}
			n++
		}
		group := rest[:n]
		rest = rest[n:]
		fallback = le.AppendUint64(fallback, group[0].key)
		if n == 1 {
			records = group[0].append(records)
			continue
		}
		records = entry{group[0].key, uint32(len(side) / sideSize), sideFlag}.append(records)
		shared += n
		side = le.AppendUint32(side, uint32(n))
		side = le.AppendUint32(side, sideFlag)
		for _, e := range group {
			side = le.AppendUint32(side, e.check)
			side = le.AppendUint32(side, e.ordinal)
		}
	}
	return fallback, records, side, shared, nil
}

// buildBuckets builds all buckets, Parallelism at a time, and calls emit with them in order.
func (b *Builder) buildBuckets(ctx context.Context, nbits uint32, emit func(*bucketBuild) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	// One more, so that building goes on while emit runs.
	n := min(b.opt.Parallelism+1, 1<<nbits)
	free := make(chan *bucketBuild, n)
	for range n {
		free <- &bucketBuild{done: make(chan error, 1)}
	}
	running := make(chan struct{}, b.opt.Parallelism)
	queue := make(chan *bucketBuild, n)
	go func() {
		defer close(queue)
		for i := range 1 << nbits {
			var k *bucketBuild
			select {
			case <-ctx.Done():
				return
			case k = <-free:
			}
			queue <- k
			running <- struct{}{}
			go func() {
				defer func() { <-running }()
				k.done <- b.buildBucket(k, i, nbits)
			}()
		}
	}()
	var err error
	for k := range queue {
		// After a failure, wait for the buckets in flight: they read the file.
		if berr := <-k.done; err == nil {
			err = berr
		}
		if err == nil {
			err = emit(k)
		}
		if err != nil {
			cancel()
		}
		free <- k
	}
	return cmp.Or(err, ctx.Err())
}
