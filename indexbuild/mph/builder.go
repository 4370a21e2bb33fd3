package mph

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"os"
	"runtime"
	"slices"
)

const (
	// bucketKeys is the most keys a bucket has on average, unless there are more than 2^maxBucketBits times as many. So many take 7 MB
	// while they are built: their levels stay in a core's first two caches, and their records, which are written in a random order,
	// nearly in its second. Buckets eight times as large take a third longer.
	bucketKeys = 1 << 17

	// chunkKeys are sorted by bucket at once: they stay in a core's second-level cache, before and after.
	chunkKeys = 1 << 15

	// chunkBucketKeys is how many keys each bucket has in a chunk at least, on average: they are copied from there together.
	chunkBucketKeys = 1 << 7

	// memoryKeys are held in memory, 16 bytes each, before the oldest quarter of them goes to the temporary file. What is not more
	// touches no disk.
	memoryKeys = 10 << 20

	// writeSize bytes are written to the temporary file at once.
	writeSize = 1 << 20

	// sorters is how many chunks are sorted while the next is collected, which takes longer than half as long.
	sorters = 2
)

// Options are the builder's.
type Options struct {
	// Seed changes where keys go. It is part of the file; a value that follows from the
	// segment's inputs keeps others from making domains that all go to one place.
	Seed uint64
	// Dir is where a temporary file of up to 17 bytes a domain is kept if there are more than
	// ten million; the system's folder for such files where empty.
	Dir string
	// Expect is about how many domains will be added, 0 where that is not known. Only speed depends on it.
	Expect int64
	// Parallelism is the number of buckets built at once, each in 7 MB; GOMAXPROCS where 0.
	Parallelism int
}

// Stats tells what was built.
type Stats struct {
	Domains    int
	Keys       int   // distinct
	Buckets    int   // keys are spread over
	Levels     int   // of the bucket with the most
	LevelBytes int64 // bits and samples of ones: the hash itself
	Fallback   int   // keys that no level placed
	Shared     int   // domains that have their key in common with another
	Bytes      int64 // of the file
}

// DuplicateError says that two domains have the same key and check bits: the file cannot tell
// them apart.
type DuplicateError struct {
	Key      uint64
	Check    uint32
	Ordinals [2]uint32
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("domains %d and %d share key %016x and check bits %08x", e.Ordinals[0], e.Ordinals[1], e.Key, e.Check)
}

// entry is a domain on its way to its record.
type entry struct {
	key            uint64
	check, ordinal uint32
}

func (e entry) append(p []byte) []byte {
	p = binary.LittleEndian.AppendUint64(p, e.key)
	p = binary.LittleEndian.AppendUint32(p, e.check)
	return binary.LittleEndian.AppendUint32(p, e.ordinal)
}

// Builder takes the domains of a segment one after another and writes their file. It is for
// one goroutine, and uses more of its own. Its memory is bounded: 16 bytes a domain up to 160 MB, 40 MB while more than that are
// written to the temporary file, and 7 MB for each bucket under way, of which there is one more than Parallelism.
type Builder struct {
	opt        Options
	bucketKeys int
	chunkKeys  int
	memoryKeys int
	lanes      bool // eight keys are worked on at a time

	added    uint64
	chunk        // that is being filled
	size     int // of a full one
	idle     chan chunk
	started  int // chunks besides that one
	runs     []*run
	held     int      // keys in memory
	file     *os.File // runs, then lines; nil until the first run is spilled
	fileSize int64
	spilling chan error // tells when a run has been written; nil while none is
	spilled  []*run     // that it is made of
	free     []*run     // whose memory is for the next
	writing  []byte
	failed   error // of writing; it stays
	finished bool
}

// chunk is memory for keys until they are sorted. A value is what follows the key in its record.
type chunk struct {
	keys, values []uint64
	tops         []uint16
}

// run is a part of the keys with their values, sorted by the top bits of the keys' hash. It is in memory or in the builder's file.
type run struct {
	bits         uint32
	ends         []uint32 // of each value of the bits, in keys
	keys, values []uint64
	spilled      bool
	off          int64 // there, of all keys and then all values
}

// slice returns the keys' range that holds bucket i of 1<<bits, and maybe others if the run is sorted by fewer bits.
func (r *run) slice(i int, bits uint32) (from, to int) {
	if bits > r.bits {
		i, bits = i>>(bits-r.bits), r.bits
	}
	per := 1 << (r.bits - bits)
	if i > 0 {
		from = int(r.ends[i*per-1])
	}
	return from, int(r.ends[(i+1)*per-1])
}

// NewBuilder returns an empty builder. Close it, whether it was finished or not.
func NewBuilder(opt Options) *Builder {
	if opt.Parallelism <= 0 {
		opt.Parallelism = runtime.GOMAXPROCS(0)
	}
	return &Builder{opt: opt, bucketKeys: bucketKeys, chunkKeys: chunkKeys, memoryKeys: memoryKeys, lanes: hasLanes}
}

var errFinished = errors.New("build domains.mphf: builder is finished")

// Add adds the next domain: the first call's has ordinal 0, the next 1, as they stand in
// domains.txt.zst. It is an error to add more than MaxDomains.
func (b *Builder) Add(key uint64, check uint32) error {
	if len(b.keys) == cap(b.keys) || b.added >= MaxDomains {
		if err := b.room(); err != nil {
			return err
		}
	}
	b.keys = append(b.keys, key)
	b.values = append(b.values, uint64(check)|b.added<<32)
	b.added++
	return nil
}

// room makes room for the next key.
func (b *Builder) room() error {
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
		// Not all that is built is large.
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

// chunkSize is how many keys are sorted by n bits at once.
func (b *Builder) chunkSize(n uint32) int {
	if n == 0 {
		return max(1, min(b.bucketKeys, b.memoryKeys/4)) // there is nothing to sort
	}
	return max(1, min(max(b.chunkKeys, chunkBucketKeys<<n), b.memoryKeys/4))
}

// sortChunk has the chunk sorted while the next is collected.
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
		b.idle <- chunk{full.keys[:0], full.values[:0], full.tops}
	}()
}

// sorted waits until all chunks are.
func (b *Builder) sorted() {
	var idle [sorters]chunk
	for i := range b.started {
		idle[i] = <-b.idle
	}
	for i := range b.started {
		b.idle <- idle[i]
	}
}

// Close drops the temporary file. It does nothing the second time.
func (b *Builder) Close() error {
	b.finished = true
	b.sorted()
	_ = b.written() // of no use to anybody now
	b.chunk, b.idle, b.started = chunk{}, nil, 0
	b.runs, b.free = nil, nil
	if b.file == nil {
		return nil
	}
	f := b.file
	b.file = nil
	err := f.Close()
	// Where open files can be removed, it is gone already.
	if rerr := os.Remove(f.Name()); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return err
}

// top is the bucket of a key among 1<<bits.
func top(key, seed uint64, n uint32) uint64 {
	i, _ := bits.Mul64(mum(key^seed, hashMul), 1<<n)
	return i
}

// sort makes the chunk's keys and values a run by the top n bits of the keys' hash, in the memory of its own if it has some.
func (r *run) sort(c *chunk, seed uint64, n uint32) {
	keys, values := c.keys, c.values
	r.bits, r.ends = n, make([]uint32, 1<<n)
	r.keys, r.values = grow(r.keys, len(keys)), grow(r.values, len(values))
	if n == 0 {
		r.ends[0] = uint32(copy(r.keys, keys))
		copy(r.values, values)
		return
	}
	c.tops = grow(c.tops, len(keys))
	for i, key := range keys {
		c.tops[i] = uint16(top(key, seed, n))
	}
	var ends [1 << maxBucketBits]uint32
	const mask = 1<<maxBucketBits - 1
	for _, t := range c.tops {
		ends[t&mask]++
	}
	sum := uint32(0)
	for i, n := range ends[:1<<n] {
		ends[i] = sum
		sum += n
	}
	to := r.values[:len(r.keys)]
	for i, t := range c.tops {
		end := ends[t&mask]
		ends[t&mask] = end + 1
		r.keys[end] = keys[i]
		to[end] = values[i]
	}
	copy(r.ends, ends[:])
}

// runBits is by how many bits runs are sorted: by those that buckets will be told apart by, if that is known.
func (b *Builder) runBits() uint32 {
	if b.opt.Expect <= 0 {
		return maxBucketBits
	}
	return bucketBits(uint64(b.opt.Expect), b.bucketKeys)
}

// spill has the oldest runs written to the file if there are too many in memory.
func (b *Builder) spill() error {
	if b.failed != nil {
		return b.failed
	}
	for b.held+len(b.keys) > b.memoryKeys {
		if b.spilling != nil {
			if len(b.spilling) == 0 && b.held+len(b.keys) <= b.memoryKeys+b.memoryKeys/4 {
				return nil
			}
			if err := b.written(); err != nil {
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
			// Without its name the file is gone when the process dies. Where that is not allowed,
			// Close removes it.
			_ = os.Remove(f.Name())
		}
		from := slices.IndexFunc(b.runs, func(r *run) bool { return !r.spilled })
		if from < 0 {
			return nil // only the chunk is in memory
		}
		b.sorted()
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

// written waits until the run that is being written is, and returns the first error of all that were.
func (b *Builder) written() error {
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

// write writes runs of n keys in all, sorted by the same bits, as one, by way of buf.
func (r *run) write(file *os.File, runs []*run, n int64, buf []byte) error {
	r.ends = make([]uint32, 1<<r.bits)
	for i := range r.ends {
		for _, old := range runs {
			r.ends[i] += old.ends[i]
		}
	}
	column := func(off int64, of func(*run) []uint64) error {
		buf := buf[:0]
		flush := func() error {
			_, err := file.WriteAt(buf, off)
			off += int64(len(buf))
			buf = buf[:0]
			return err
		}
		for i := range r.ends {
			for _, old := range runs {
				from, to := old.slice(i, r.bits)
				for _, v := range of(old)[from:to] {
					buf = binary.LittleEndian.AppendUint64(buf, v)
				}
				if len(buf) >= writeSize {
					if err := flush(); err != nil {
						return err
					}
				}
			}
		}
		return flush()
	}
	return cmp.Or(
		column(r.off, func(r *run) []uint64 { return r.keys }),
		column(r.off+n*8, func(r *run) []uint64 { return r.values }),
	)
}

func (b *Builder) writeFile(p []byte) error {
	_, err := b.file.WriteAt(p, b.fileSize)
	b.fileSize += int64(len(p))
	return err
}

// bucketBits is the smallest number for which buckets have at most bucketKeys on average.
func bucketBits(domains uint64, bucketKeys int) uint32 {
	n := uint32(0)
	for n < maxBucketBits && domains > uint64(bucketKeys)<<n {
		n++
	}
	return n
}

// Finish writes the file for all domains added. domainsXXH64 is the xxh64 of the
// domains.txt.zst that holds them in this order. The error is a *DuplicateError if two of
// them cannot be told apart, ctx's when it is done, or that of w or of the temporary file;
// what w got is then of no use. The builder is finished either way.
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

// output counts what it has written and remembers the first error.
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

func (o *output) pad() {
	if n := align(o.off) - o.off; n > 0 {
		o.Write(make([]byte, n))
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
	b.sorted()
	b.chunk, b.idle, b.started = chunk{}, nil, 0
	if err := b.written(); err != nil {
		return Stats{}, err
	}
	b.free, b.writing = nil, nil

	t := trailer{seed: b.opt.Seed, domainsXXH64: domainsXXH64, domains: b.added, bucketBits: nbits}
	stats := Stats{Domains: int(b.added), Buckets: 1 << nbits}
	out := &output{w: w}
	out.Write(appendHeader(nil))

	// Records are final as soon as their bucket is built; lines follow all of them and wait in
	// memory, or in the file if there is one.
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
		rest = append(rest, k.rest...)
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

	fallback, records, side, shared, err := leftovers(rest)
	if err != nil {
		return Stats{}, err
	}
	t.fallback = uint64(len(fallback) / 8)
	t.keys += t.fallback
	t.side = uint64(len(side) / sideSize)
	t.arrange()

	out.Write(records)
	out.pad()
	if b.file == nil {
		out.Write(lines)
	} else if _, err := io.Copy(out, io.NewSectionReader(b.file, linesOff, b.fileSize-linesOff)); err != nil {
		return Stats{}, err
	}
	out.Write(fallback)
	out.pad()
	out.Write(side)
	out.pad()
	out.Write(directory)
	out.Write(t.append(nil, directory))
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

// leftovers encodes what no level placed: the sorted keys, their records, and the groups of
// domains that share a key, to which the key's record points. Such domains are all here,
// since no level parts them.
func leftovers(rest []entry) (fallback, records, side []byte, shared int, err error) {
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

// buildBuckets builds all buckets, several at once, and hands them to emit in order.
func (b *Builder) buildBuckets(ctx context.Context, nbits uint32, emit func(*bucketBuild) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	// One more than is built at once, so that building goes on while one is written.
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
		// After a failure what is under way is still waited for: it reads the file.
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

// bucketBuild is the result of building a bucket, and memory that serves for the next.
type bucketBuild struct {
	dir     bucket
	records []byte  // of the keys placed, in slot order
	lines   []byte  // of all levels
	rest    []entry // not placed

	keys, values []uint64 // of the bucket, where they are not in one run
	twice        []byte   // bits that more than one key wants, laid out like a level's lines
	left         []uint64 // keys that are not yet placed
	tags         []uint64 // their indexes in the bucket
	bytes        []byte   // from the file
	batch        batch
	open         [1]openBucket
	done         chan error
}

func (b *Builder) buildBucket(k *bucketBuild, i int, nbits uint32) error {
	if r := b.runs[0]; len(b.runs) == 1 && !r.spilled && r.bits >= nbits {
		from, to := r.slice(i, nbits)
		k.build(r.keys[from:to], r.values[from:to], b.opt.Seed, nbits, b.lanes)
		return nil
	}
	n := 0
	for _, r := range b.runs {
		from, to := r.slice(i, nbits)
		n += to - from
	}
	k.keys = slices.Grow(k.keys[:0], n)
	k.values = slices.Grow(k.values[:0], n)
	for _, r := range b.runs {
		from, to := r.slice(i, nbits)
		start := len(k.keys)
		if !r.spilled {
			k.keys = append(k.keys, r.keys[from:to]...)
			k.values = append(k.values, r.values[from:to]...)
		} else {
			n := int64(r.ends[len(r.ends)-1])
			var err error
			if k.keys, err = k.read(k.keys, b.file, r.off+int64(from)*8, to-from); err != nil {
				return err
			}
			if k.values, err = k.read(k.values, b.file, r.off+(n+int64(from))*8, to-from); err != nil {
				return err
			}
		}
		if r.bits < nbits {
			k.keepBucket(start, b.opt.Seed, uint64(i), nbits)
		}
	}
	k.build(k.keys, k.values, b.opt.Seed, nbits, b.lanes)
	return nil
}

// read appends n numbers of the file to p.
func (k *bucketBuild) read(p []uint64, file *os.File, off int64, n int) ([]uint64, error) {
	k.bytes = grow(k.bytes, n*8)
	if _, err := file.ReadAt(k.bytes, off); err != nil {
		return nil, err
	}
	p = slices.Grow(p, n)
	for b := k.bytes; len(b) >= 8; b = b[8:] {
		p = append(p, binary.LittleEndian.Uint64(b))
	}
	return p, nil
}

// keepBucket drops the keys of other buckets from start on.
func (k *bucketBuild) keepBucket(start int, seed, bucket uint64, nbits uint32) {
	n := start
	for i, key := range k.keys[start:] {
		if top(key, seed, nbits) == bucket {
			k.keys[n] = key
			k.values[n] = k.values[start+i]
			n++
		}
	}
	k.keys, k.values = k.keys[:n], k.values[:n]
}

// grow returns p with length n and undefined contents.
func grow[T any](p []T, n int) []T { return slices.Grow(p[:0], n)[:n] }

// build places the keys level by level, and their records.
func (k *bucketBuild) build(keys, values []uint64, seed uint64, bucketBits uint32, lanes bool) {
	k.dir = bucket{}
	k.open[0] = openBucket{keys: math.MaxUint32}
	k.lines = k.lines[:0]
	k.lines = slices.Grow(k.lines, 2*levelLines(len(keys))*lineSize) // nearly always enough for all levels
	k.records = grow(k.records, len(keys)*recordSize)
	in := levels{dir: k.open[:], lanes: lanes}
	l := level{seed: seed, drop: uint64(bucketBits), mul: hashMul}
	rest := keys
	tags := k.tags[:0]
	total := uint64(0)
	for k.dir.levels < maxLevels && len(rest) > 0 {
		n := levelLines(len(rest))
		l.lines = uint64(n)
		start := len(k.lines)
		k.lines = slices.Grow(k.lines, n*lineSize)[:start+n*lineSize]
		clear(k.lines[start:])
		k.twice = grow(k.twice, n*lineSize)
		clear(k.twice)
		in.lines = k.lines[start:]
		l.mark(rest, in.lines, k.twice)
		placed := sample(in.lines, k.twice, total)
		if placed == 0 {
			// These keys do not part, because they are equal or few.
			k.lines = k.lines[:start]
			break
		}
		total += placed

		if len(rest) == len(keys) {
			k.left = grow(k.left, len(rest)-int(placed)+lanesPast)
			k.tags = grow(k.tags, len(rest)-int(placed)+lanesPast)
		}
		left := 0
		for from := 0; from < len(rest); from += batchSize {
			to, base := min(from+batchSize, len(rest)), uint64(0)
			chunk := indexes[:to-from]
			if k.dir.levels == 0 {
				base = uint64(from)
			} else {
				chunk = tags[from:to]
			}
			m := l.sift(rest[from:to], chunk, base, in.lines, k.left[left:], k.tags[left:], &k.batch)
			in.rank(&k.batch, to-from-m, nil)
			k.record(to-from-m, keys, values)
			left += m
		}
		rest, tags = k.left[:left], k.tags[:left]
		k.dir.lineEnd[k.dir.levels] = uint32(len(k.lines) / lineSize)
		k.dir.levels++
		l.drop = 0
		l.mul += hashStep
	}
	k.dir.keys = uint32(total)
	k.rest = k.rest[:0]
	for i, key := range rest {
		tag := uint64(i)
		if k.dir.levels > 0 {
			tag = tags[i]
		}
		v := values[tag]
		k.rest = append(k.rest, entry{key, uint32(v), uint32(v >> 32)})
	}
	k.records = k.records[:total*recordSize]
}

// record puts the records of the batch's n keys found to their slots.
func (k *bucketBuild) record(n int, keys, values []uint64) {
	values = values[:len(keys)]
	slots := k.batch.foundPos[:n]
	for i, tag := range k.batch.foundTag[:n] {
		p := k.records[slots[i]*recordSize:][:recordSize]
		binary.LittleEndian.PutUint64(p, keys[tag])
		binary.LittleEndian.PutUint64(p[8:], values[tag])
	}
}

// indexes are 0, 1 and so on.
var indexes = func() (v [batchSize]uint64) {
	for i := range v {
		v[i] = uint64(i)
	}
	return v
}()

// level is one that a bucket's keys are placed on.
type level struct {
	seed, mul uint64
	drop      uint64 // bits of the hash that chose the bucket
	lines     uint64
}

// bit is the place of the key's bit on the level.
func (l *level) bit(key uint64) uint64 {
	line, bit := place(mum(key^l.seed, l.mul)<<l.drop, l.lines)
	return line*(8*lineSize) + bit
}

// mark sets the keys' bits in the level's lines, and in twice those that were set.
func (l *level) mark(keys []uint64, lines, twice []byte) {
	le := binary.LittleEndian
	twice = twice[:len(lines)]
	for _, key := range keys {
		p := l.bit(key)
		off := p / 64 * 8
		bit := uint64(1) << (p & 63)
		a, b := lines[off:][:8], twice[off:][:8]
		w := le.Uint64(a)
		le.PutUint64(b, le.Uint64(b)|w&bit)
		le.PutUint64(a, w|bit)
	}
}

// sift moves the keys whose bits are not set to left, where keys may lie, and their tags, base added, to leftTags. It returns their number.
// Those of the other keys it moves to the batch, with the places of their bits. Keys are at most batchSize.
func (l *level) sift(keys, tags []uint64, base uint64, lines []byte, left, leftTags []uint64, b *batch) (nleft int) {
	found := 0
	for i, key := range keys {
		p := l.bit(key)
		hit := int(binary.LittleEndian.Uint64(lines[p/64*8:]) >> (p & 63) & 1)
		left[nleft] = key
		leftTags[nleft] = tags[i] + base
		b.foundPos[found], b.foundTag[found] = p, tags[i]+base
		found += hit
		nleft += 1 - hit
	}
	return nleft
}

// sample drops the bits that more than one key wants, puts the number of ones before it into each line, and returns how many there are.
func sample(lines, twice []byte, before uint64) (ones uint64) {
	le := binary.LittleEndian
	for off := 0; off < len(lines); off += lineSize {
		at := before + ones
		line, t := (*[lineSize]byte)(lines[off:]), (*[lineSize]byte)(twice[off:])
		for i := 0; i < lineSize; i += 8 {
			w := le.Uint64(line[i:]) &^ le.Uint64(t[i:])
			le.PutUint64(line[i:], w)
			ones += uint64(bits.OnesCount64(w))
		}
		le.PutUint32(line[lineSize-4:], uint32(at))
	}
	return ones
}
