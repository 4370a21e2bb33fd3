package mph

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"runtime"
	"slices"
)

const (
	// bucketKeys is the most keys a bucket has on average. So many take 5 MB while they are built: their levels stay in a core's
	// first-level cache, and their records, which are written in a random order, nearly in its second. Buckets eight times as large take
	// a third longer.
	bucketKeys = 1 << 17

	// runEntries are sorted in memory (16 bytes each) before they are spilled. What is
	// not larger touches no disk.
	runEntries = 1 << 21

	// spillers is how many runs are sorted and written while the next is collected.
	spillers = 2
)

// Options are the builder's.
type Options struct {
	// Seed changes where keys go. It is part of the file; a value that follows from the
	// segment's inputs keeps others from making domains that all go to one place.
	Seed uint64
	// Dir is where a temporary file of 17 bytes a domain is kept if there are more than two
	// million; the system's folder for such files where empty.
	Dir string
	// Expect is about how many domains will be added, 0 where that is not known. Only speed depends on it.
	Expect int64
	// Parallelism is the number of buckets built at once, each in 5 MB; GOMAXPROCS where 0.
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
// one goroutine, and uses more of its own. Its memory is bounded: five times 32 MB while domains are added, then
// 32 MB and 5 MB for each bucket under way, of which there is one more than Parallelism.
type Builder struct {
	opt        Options
	bucketKeys int
	runEntries int

	added    uint64
	buf      []entry
	runs     []*run
	file     *os.File // runs, then lines; nil until the first run is spilled
	fileSize int64
	spilling chan *spilled // those that are idle
	started  int           // of them
	finished bool
}

// spilled is a run that is being sorted and written, and memory that serves for the next.
type spilled struct {
	buf    []entry
	sorted []byte
	err    error
}

// run is a part of the entries, sorted by the top bits of their keys' hash.
type run struct {
	bits    uint32
	ends    []uint32 // of each value of the bits, in entries
	entries []byte   // as records are, unless they are in the builder's file
	spilled bool
	off     int64 // there
}

// slice returns the entries' range that holds bucket i of 1<<bits, and maybe others if the run is sorted by fewer bits.
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
	return &Builder{opt: opt, bucketKeys: bucketKeys, runEntries: runEntries}
}

var errFinished = errors.New("build domains.mphf: builder is finished")

// Add adds the next domain: the first call's has ordinal 0, the next 1, as they stand in
// domains.txt.zst. It is an error to add more than MaxDomains.
func (b *Builder) Add(key uint64, check uint32) error {
	if b.finished {
		return errFinished
	}
	if b.added == MaxDomains {
		return fmt.Errorf("build domains.mphf: more than %d domains", uint64(MaxDomains))
	}
	if b.buf == nil {
		b.buf = make([]entry, 0, max(0, min(b.opt.Expect, int64(b.runEntries))))
	}
	if len(b.buf) == b.runEntries {
		if err := b.spill(); err != nil {
			return fmt.Errorf("build domains.mphf: %w", err)
		}
	}
	b.buf = append(b.buf, entry{key, check, uint32(b.added)})
	b.added++
	return nil
}

// Close drops the temporary file. It does nothing the second time.
func (b *Builder) Close() error {
	b.finished = true
	_ = b.settle() // of no use to anybody now
	b.buf, b.runs = nil, nil
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

// sorted makes entries a run by the top n bits of their keys' hash, in the memory of into.
func (b *Builder) sorted(entries []entry, into []byte, n uint32) run {
	le := binary.LittleEndian
	r := run{bits: n, ends: make([]uint32, 1<<n), entries: grow(into, len(entries)*recordSize)}
	seed := b.opt.Seed
	for i := range entries {
		r.ends[top(entries[i].key, seed, n)]++
	}
	sum := uint32(0)
	for i, n := range r.ends {
		r.ends[i] = sum
		sum += n
	}
	for i := range entries {
		e := &entries[i]
		end := &r.ends[top(e.key, seed, n)]
		p := r.entries[uint64(*end)*recordSize:][:recordSize]
		le.PutUint64(p, e.key)
		le.PutUint64(p[8:], uint64(e.check)|uint64(e.ordinal)<<32)
		*end++
	}
	return r
}

// runBits is by how many bits spilled runs are sorted: by those that buckets will be told apart by, if that is known.
func (b *Builder) runBits() uint32 {
	if b.opt.Expect <= 0 {
		return maxBucketBits
	}
	return bucketBits(uint64(b.opt.Expect), b.bucketKeys)
}

// spill has the buffered entries sorted and written to the file as one run, while the next are collected.
func (b *Builder) spill() error {
	if b.file == nil {
		f, err := os.CreateTemp(b.opt.Dir, "domains-mphf-*.tmp")
		if err != nil {
			return err
		}
		b.file = f
		// Without its name the file is gone when the process dies. Where that is not allowed,
		// Close removes it.
		_ = os.Remove(f.Name())
		b.spilling = make(chan *spilled, spillers)
	}
	var s *spilled
	select {
	case s = <-b.spilling:
	default:
		if b.started < min(spillers, b.opt.Parallelism) {
			s = &spilled{buf: make([]entry, 0, b.runEntries)}
			b.started++
		} else {
			s = <-b.spilling
		}
	}
	if s.err != nil {
		b.spilling <- s
		return s.err
	}
	b.buf, s.buf = s.buf[:0], b.buf
	r := &run{spilled: true, off: b.fileSize}
	b.fileSize += int64(len(s.buf)) * recordSize
	b.runs = append(b.runs, r)
	n, file := b.runBits(), b.file
	go func() {
		sorted := b.sorted(s.buf, s.sorted, n)
		r.bits, r.ends, s.sorted = sorted.bits, sorted.ends, sorted.entries
		_, s.err = file.WriteAt(s.sorted, r.off)
		b.spilling <- s
	}()
	return nil
}

// settle waits until all runs are written.
func (b *Builder) settle() (err error) {
	for ; b.started > 0; b.started-- {
		if s := <-b.spilling; s.err != nil {
			err = s.err
		}
	}
	return err
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
	last := b.sorted(b.buf, nil, nbits)
	b.runs = append(b.runs, &last)
	b.buf = nil
	if err := b.settle(); err != nil {
		return Stats{}, err
	}

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
	n := b.opt.Parallelism + 1
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
	packed  []byte  // all entries of the bucket, as records are
	twice   []byte  // bits that more than one key wants, laid out like a level's lines
	done    chan error
}

func (b *Builder) buildBucket(k *bucketBuild, i int, nbits uint32) error {
	if len(b.runs) == 1 {
		// All is in memory, and sorted by these bits: nobody else needs this bucket's entries.
		r := b.runs[0]
		from, to := r.slice(i, nbits)
		k.packed = r.entries[from*recordSize : to*recordSize]
		k.build(b.opt.Seed, 1<<nbits)
		k.packed = nil
		return nil
	}
	k.packed = k.packed[:0]
	for _, r := range b.runs {
		from, to := r.slice(i, nbits)
		start := len(k.packed)
		if !r.spilled {
			k.packed = append(k.packed, r.entries[from*recordSize:to*recordSize]...)
		} else {
			k.packed = slices.Grow(k.packed, (to-from)*recordSize)[:start+(to-from)*recordSize]
			if _, err := b.file.ReadAt(k.packed[start:], r.off+int64(from)*recordSize); err != nil {
				return err
			}
		}
		if r.bits < nbits {
			k.packed = k.packed[:start+keepBucket(k.packed[start:], b.opt.Seed, uint64(i), nbits)]
		}
	}
	k.build(b.opt.Seed, 1<<nbits)
	return nil
}

// keepBucket moves the records of one bucket to the front of p and returns their length.
func keepBucket(p []byte, seed, bucket uint64, nbits uint32) int {
	n := 0
	for at := 0; at < len(p); at += recordSize {
		if top(binary.LittleEndian.Uint64(p[at:]), seed, nbits) == bucket {
			n += copy(p[n:], p[at:at+recordSize])
		}
	}
	return n
}

// grow returns p with length n and undefined contents.
func grow(p []byte, n int) []byte { return slices.Grow(p[:0], n)[:n] }

// build places the entries level by level.
func (k *bucketBuild) build(seed, buckets uint64) {
	le := binary.LittleEndian
	k.dir = bucket{}
	k.lines = k.lines[:0]
	k.records = grow(k.records, len(k.packed))
	rest := k.packed // moves to its front as entries are placed
	total := uint64(0)
	mul := uint64(hashMul)
	for k.dir.levels < maxLevels && len(rest) > 0 {
		n := levelLines(len(rest) / recordSize)
		start := len(k.lines)
		k.lines = slices.Grow(k.lines, n*lineSize)[:start+n*lineSize]
		level := k.lines[start:]
		clear(level)
		k.twice = grow(k.twice, n*lineSize)
		twice := k.twice
		clear(twice)

		// The top bits chose the bucket.
		drop := uint64(1)
		if mul == hashMul {
			drop = buckets
		}
		for p := rest; len(p) >= recordSize; p = p[recordSize:] {
			line, bit := place(mum(le.Uint64(p)^seed, mul)*drop, uint64(n))
			off := line*lineSize + bit>>6*8
			mask := uint64(1) << (bit & 63)
			l, t := level[off:][:8], twice[off:][:8]
			w := le.Uint64(l)
			le.PutUint64(t, le.Uint64(t)|w&mask)
			le.PutUint64(l, w|mask)
		}

		before := total
		for off := 0; off < len(level); off += lineSize {
			sample := total
			line, t := (*[lineSize]byte)(level[off:]), (*[lineSize]byte)(twice[off:])
			for i := 0; i < lineSize; i += 8 {
				w := le.Uint64(line[i:]) &^ le.Uint64(t[i:])
				le.PutUint64(line[i:], w)
				total += uint64(bits.OnesCount64(w))
			}
			le.PutUint32(line[lineSize-4:], uint32(sample))
		}
		if total == before {
			// These keys do not part, because they are equal or few.
			k.lines = k.lines[:start]
			break
		}

		left := 0
		for p := rest; len(p) >= recordSize; p = p[recordSize:] {
			key, value := le.Uint64(p), le.Uint64(p[8:])
			lineAt, bit := place(mum(key^seed, mul)*drop, uint64(n))
			line := (*[lineSize]byte)(level[lineAt*lineSize:])
			to := rest[left:]
			if le.Uint64(line[(bit>>6&7)*8:])>>(bit&63)&1 != 0 {
				to = k.records[rank(line, bit)*recordSize:]
			} else {
				left += recordSize
			}
			to = to[:recordSize]
			le.PutUint64(to, key)
			le.PutUint64(to[8:], value)
		}
		rest = rest[:left]
		k.dir.lineEnd[k.dir.levels] = uint32(len(k.lines) / lineSize)
		k.dir.levels++
		mul += hashStep
	}
	k.dir.keys = uint32(total)
	k.records = k.records[:total*recordSize]
	k.rest = k.rest[:0]
	for p := rest; len(p) > 0; p = p[recordSize:] {
		k.rest = append(k.rest, entry{le.Uint64(p), le.Uint32(p[8:]), le.Uint32(p[12:])})
	}
}
