package lake

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
)

// A run is a sorted, deduplicated set of rows in staging: a frame file without fences (package codec) whose
// frames but the last hold keys (see Row.AppendKey) sorted by (partition, key), each frame of one
// partition, and whose last frame says where each partition is:
//
//	key frame   uvarint bytes of the lengths | n × {uvarint shared, uvarint length} | n × length bytes
//	directory   "RUND" u32 ver=3 | uvarint n | n × {u8 partition, uvarint rows, uvarint frames}
//
// Shared is what a key has in common with the one before in the frame, the longest
// possible, so that order is checked by one byte of each key. The directory stands before the tail, so that one read opens a run.

const (
	runMagic   = "RUND"
	runVersion = 3

	// Partitions is the number of partitions rows are sorted into: one for each value of the top byte of the domain_id.
	Partitions = 256

	// runFrame is the size in decompressed bytes at which a frame of a run ends. A merge holds one
	// decoded frame of every run, and zstd gains little from more than this.
	runFrame = 64 << 10
)

// errZeroByte: a row's key would be ambiguous.
var errZeroByte = errors.New("zero byte in a row's domain, host, path_query, scheme or extras")

// ErrRowTooLarge is the error of a row whose key would be longer than MaxKey.
var ErrRowTooLarge = errors.New("row too large")

// PartitionOf is the partition of a domain's rows.
func PartitionOf(domain string) byte { return byte(urlnorm.DomainID(domain) >> 56) }

// Run describes a finished run.
type Run struct {
	FrameObject
	// DirectoryBytes is the compressed size of the directory frame.
	DirectoryBytes int64 `json:"directory_bytes"`
	Rows           int64 `json:"rows"`
}

// runPartition is one entry of a run's directory.
type runPartition struct {
	rows int64
	// Frames [first, end) hold it.
	first, end int
}

// runWriter writes a run from keys that come in order.
type runWriter struct {
	key   string
	blob  blob.Writer
	w     *codec.FrameWriter
	parts [Partitions]runPartition
	part  byte
	open  packedKeys // of the frame under construction
	frame []byte

	last []byte // the key before in the run
	rows int64
}

func newRunWriter(ctx context.Context, store blob.Store, key string) (*runWriter, error) {
	b, err := store.Create(ctx, key)
	if err != nil {
		return nil, err
	}
	w := &runWriter{key: key, blob: b, w: codec.NewFrameWriter(b, 0)}
	w.w.Store() // packed keys are small already, and compressing them takes as long as all else that is done with a run
	return w, nil
}

// append adds a key that has a prefix of shared bytes, the longest possible, in common with the one before in its
// partition. (partition, key) must not be below the one before, and is left out where it is equal.
func (w *runWriter) append(partition byte, key []byte, shared int) error {
	switch {
	case w.rows > 0 && partition < w.part:
		return fmt.Errorf("write run %s: partition %d after %d", w.key, partition, w.part)
	case w.rows > 0 && partition == w.part:
		if shared == len(key) && shared == len(w.last) {
			return nil
		}
		if shared == len(key) || shared < len(w.last) && w.last[shared] > key[shared] {
			return fmt.Errorf("write run %s: row %d is below the one before", w.key, w.rows)
		}
		if len(w.open.lengths)+len(w.open.text) >= runFrame {
			if err := w.flush(); err != nil {
				return err
			}
		}
	default:
		if err := w.flush(); err != nil {
			return err
		}
		w.part, shared = partition, 0
	}
	w.last = append(w.last[:shared], key[shared:]...)
	if len(w.open.lengths) == 0 {
		shared = 0
	}
	w.open.add(key, shared)
	p := &w.parts[partition]
	p.rows++
	w.rows++
	return nil
}

// flush writes the frame under construction, if there is one.
func (w *runWriter) flush() error {
	if len(w.open.lengths) == 0 {
		return nil
	}
	w.frame = codec.AppendUvarint(w.frame[:0], uint64(len(w.open.lengths)))
	w.frame = append(append(w.frame, w.open.lengths...), w.open.text...)
	n, _, err := w.w.Frame(nil, w.frame)
	if err != nil {
		return fmt.Errorf("write run %s: %w", w.key, err)
	}
	p := &w.parts[w.part]
	if p.end == 0 {
		p.first = n
	}
	p.end = n + 1
	w.open.lengths, w.open.text = w.open.lengths[:0], w.open.text[:0]
	return nil
}

// finish writes the directory and makes the run visible.
func (w *runWriter) finish() (Run, error) {
	if err := w.flush(); err != nil {
		return Run{}, err
	}
	dir := codec.AppendMagic(nil, runMagic, runVersion)
	n := 0
	for _, p := range w.parts {
		if p.rows > 0 {
			n++
		}
	}
	dir = codec.AppendUvarint(dir, uint64(n))
	for i, p := range w.parts {
		if p.rows > 0 {
			dir = append(dir, byte(i))
			dir = codec.AppendUvarint(dir, uint64(p.rows))
			dir = codec.AppendUvarint(dir, uint64(p.end-p.first))
		}
	}
	before := w.w.Bytes()
	if _, _, err := w.w.Frame(nil, dir); err != nil {
		return Run{}, fmt.Errorf("write run %s: %w", w.key, err)
	}
	dirBytes := w.w.Bytes() - before
	ff, err := w.w.Finish()
	if err != nil {
		return Run{}, fmt.Errorf("write run %s: %w", w.key, err)
	}
	if _, err := w.blob.Finish(); err != nil {
		return Run{}, err
	}
	return Run{FrameObject: NewFrameObject(w.key, ff), DirectoryBytes: dirBytes, Rows: w.rows}, nil
}

// abort discards the run unless it is finished.
func (w *runWriter) abort() { w.blob.Abort() }

// commonPrefix is the length of the longest common prefix of a and b.
func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for ; i+8 <= n; i += 8 {
		if x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// RunReader reads one run. It is safe for concurrent use.
type RunReader struct {
	store  blob.Store
	key    string
	frames *codec.Frames
	parts  [Partitions]runPartition
}

// OpenRun reads and checks a run's tail and directory, in one read.
func OpenRun(ctx context.Context, store blob.Store, run Run) (*RunReader, error) {
	if run.TailBytes < 0 || run.DirectoryBytes < 1 || run.TailBytes > run.Bytes || run.DirectoryBytes > run.Bytes-run.TailBytes {
		return nil, codec.Corrupt(run.Key, "tail", -1, fmt.Sprintf("tail and directory in %d bytes", run.Bytes), fmt.Sprintf("%d and %d", run.TailBytes, run.DirectoryBytes))
	}
	n := run.TailBytes + run.DirectoryBytes
	end, err := store.ReadRange(ctx, run.Key, run.Bytes-n, n)
	if err != nil {
		return nil, fmt.Errorf("open run: %w", err)
	}
	ff, err := run.FrameFile()
	if err != nil {
		return nil, err
	}
	read := func(_ context.Context, off, n int64) ([]byte, error) {
		from := off - (run.Bytes - int64(len(end)))
		return end[from : from+n], nil
	}
	r := &RunReader{store: store, key: run.Key}
	if r.frames, err = codec.OpenFramesAt(ctx, read, ff, run.Key, 0); err != nil {
		return nil, err
	}
	last := r.frames.Len() - 1
	if last < 0 {
		return nil, codec.Corrupt(run.Key, "directory", -1, "a frame", "none")
	}
	if _, size := r.frames.Place(last, last+1); size != run.DirectoryBytes {
		return nil, codec.Corrupt(run.Key, "directory", -1, fmt.Sprintf("%d bytes", run.DirectoryBytes), size)
	}
	dir, err := r.frames.Decode(last, end[:run.DirectoryBytes])
	if err != nil {
		return nil, err
	}
	rows, err := r.parseDirectory(dir)
	if err != nil {
		return nil, err
	}
	if rows != run.Rows {
		return nil, codec.Corrupt(run.Key, "directory", -1, fmt.Sprintf("%d rows", run.Rows), rows)
	}
	return r, nil
}

func (r *RunReader) parseDirectory(dir []byte) (rows int64, err error) {
	d := codec.NewDecoder(dir, r.key, "directory")
	d.Magic(runMagic, runVersion)
	frames := r.frames.Len() - 1
	next, prev := 0, -1
	for n := d.Uint(Partitions); n > 0 && d.Err() == nil; n-- {
		part := int(d.U8())
		if part <= prev {
			d.Fail(fmt.Sprintf("a partition above %d", prev), part)
			break
		}
		prev = part
		p := runPartition{
			rows:  int64(d.Uint(maxRows)),
			first: next,
		}
		p.end = next + int(d.Uint(uint64(frames-next)))
		next = p.end
		if d.Err() == nil && (p.rows == 0 || p.end == p.first) {
			d.Fail("rows and frames", fmt.Sprintf("%d and %d", p.rows, p.end-p.first))
		}
		rows += p.rows
		r.parts[part] = p
	}
	if d.Err() == nil && next != frames {
		d.Fail(fmt.Sprintf("%d frames", frames), next)
	}
	return rows, d.Close()
}

// Rows is the number of rows in a partition.
func (r *RunReader) Rows(partition byte) int64 { return r.parts[partition].rows }

// runSection iterates over the keys of one partition of a run. It reads ahead: while the frames of one
// read are used, the next are fetched.
type runSection struct {
	run       *RunReader
	partition byte
	left      int64 // rows not yet returned

	want, end int   // frames [want, end) are not yet asked for
	readBytes int64 // bytes as stored of one read, unless a frame is larger
	slots     chan struct{}
	fetched   chan fetch // the read under way, nil if none

	raw     []byte // frames [lo, hi) as stored
	lo, hi  int
	lengths []byte // not yet used, of the open frame
	text    []byte // the same
	first   bool   // the next key is the open frame's first
	key     []byte // the last one returned
}

// fetch is the outcome of one read.
type fetch struct {
	raw    []byte
	lo, hi int
	err    error
}

// section starts reading a partition with rows. Slots bounds how many reads are under way at once.
func (r *RunReader) section(ctx context.Context, partition byte, readBytes int64, slots chan struct{}) *runSection {
	p := r.parts[partition]
	s := &runSection{run: r, partition: partition, left: p.rows, want: p.first, end: p.end, readBytes: readBytes, slots: slots}
	s.ahead(ctx)
	return s
}

// ahead starts the next read, if there is one.
func (s *runSection) ahead(ctx context.Context) {
	s.fetched = nil
	if s.want == s.end {
		return
	}
	lo, hi := s.want, s.want+1
	for hi < s.end {
		if _, n := s.run.frames.Place(lo, hi+1); n > s.readBytes {
			break
		}
		hi++
	}
	s.want = hi
	// One element, so that a reader that gives up leaves no goroutine behind.
	done := make(chan fetch, 1)
	s.fetched = done
	run, slots := s.run, s.slots
	go func() {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			done <- fetch{err: context.Cause(ctx)}
			return
		}
		off, n := run.frames.Place(lo, hi)
		raw, err := run.store.ReadRange(ctx, run.key, off, n)
		if err != nil {
			err = fmt.Errorf("read run: %w", err)
		}
		done <- fetch{raw, lo, hi, err}
	}()
}

func (s *runSection) next(ctx context.Context) (key []byte, common int, err error) {
	for len(s.lengths) == 0 {
		if len(s.text) > 0 {
			return nil, 0, s.bad("the end of the frame", fmt.Sprintf("%d bytes more", len(s.text)))
		}
		more, err := s.nextFrame(ctx)
		if err != nil {
			return nil, 0, err
		}
		if !more {
			return nil, 0, nil
		}
	}
	shared, n := binary.Uvarint(s.lengths)
	if n <= 0 {
		return nil, 0, s.bad("a varint", "none")
	}
	length, m := binary.Uvarint(s.lengths[n:])
	if m <= 0 {
		return nil, 0, s.bad("a varint", "none")
	}
	s.lengths = s.lengths[n+m:]
	switch {
	case length == 0 || length > uint64(len(s.text)):
		return nil, 0, s.bad(fmt.Sprintf("1 to %d bytes", len(s.text)), length)
	case s.first && shared != 0:
		return nil, 0, s.bad("a whole key first", fmt.Sprintf("%d bytes shared", shared))
	case shared > uint64(len(s.key)) || shared+length > MaxKey:
		return nil, 0, s.bad(fmt.Sprintf("at most %d bytes shared, %d in all", len(s.key), MaxKey), fmt.Sprintf("%d and %d", shared, length))
	case s.left == 0:
		return nil, 0, s.bad("the end", "another row")
	}
	suffix := s.text[:length]
	s.text = s.text[length:]
	common = int(shared)
	if s.first {
		common = commonPrefix(s.key, suffix)
		s.first = false
	}
	// What follows the common prefix is above what followed it in the key before.
	if rest := suffix[common-int(shared):]; len(rest) == 0 || common < len(s.key) && s.key[common] >= rest[0] {
		return nil, 0, s.bad("ascending keys", "another order")
	}
	s.key = append(s.key[:shared], suffix...)
	s.left--
	return s.key, common, nil
}

// nextFrame opens the next frame and reports whether there is one.
func (s *runSection) nextFrame(ctx context.Context) (bool, error) {
	if s.lo == s.hi {
		if s.fetched == nil {
			if s.left != 0 {
				return false, codec.Corrupt(s.run.key, s.name(), -1, fmt.Sprintf("%d more rows", s.left), "the end")
			}
			return false, nil
		}
		f := <-s.fetched
		if f.err != nil {
			return false, f.err
		}
		s.raw, s.lo, s.hi = f.raw, f.lo, f.hi
		s.ahead(ctx)
	}
	_, n := s.run.frames.Place(s.lo, s.lo+1)
	frame, err := s.run.frames.Decode(s.lo, s.raw[:n])
	if err != nil {
		return false, err
	}
	s.raw = s.raw[n:]
	if s.lo++; s.lo == s.hi {
		s.raw = nil // what is empty would keep the read in memory
	}
	size, at := binary.Uvarint(frame)
	if at <= 0 || size == 0 || size > uint64(len(frame)-at) {
		return false, s.bad(fmt.Sprintf("1 to %d bytes of lengths", len(frame)), size)
	}
	s.lengths, s.text, s.first = frame[at:at+int(size)], frame[at+int(size):], true
	return true, nil
}

func (s *runSection) name() string { return fmt.Sprintf("partition %02x", s.partition) }

func (s *runSection) bad(want, got any) error {
	return codec.Corrupt(s.run.key, fmt.Sprintf("frame %d", s.lo-1), -1, want, got)
}

// RowBuffer collects rows in memory up to a budget and writes them out as runs.
// It is not safe for concurrent use.
//
// Rows are kept by partition from the start. What is sorted and copied out together then
// fits into a core's cache, and a run of half a gigabyte costs a row no more than a small one.
type RowBuffer struct {
	budget int64
	used   int64
	len    int
	parts  [Partitions]bufferPart
	slabs  []*[bufferSlab]byte
	slab   []byte   // the last one's bytes that no partition has yet
	spare  [][]byte // chunks of runs before
}

// bufferPart is the rows of one partition: a u32 length and a key each, within one chunk.
type bufferPart struct {
	chunks [][]byte
	open   int // 1 + the chunk that takes the next row, 0 if there is none
	rows   []rowRef
}

// rowRef finds a row. Cache holds eight bytes of its key from where the sort is looking.
type rowRef struct {
	cache      uint64
	chunk, off uint32
}

const (
	// bufferSlab is how much a RowBuffer allocates at a time, and bufferChunk how much of it a partition gets: the
	// rows of a small input lie in one slab, whatever their partitions. A row over bufferRow bytes has a chunk of
	// its own, so that no more than an eighth of the others is left empty.
	bufferSlab  = 4 << 20
	bufferChunk = bufferSlab / Partitions
	bufferRow   = bufferChunk / 8
	// rowOverhead is what a row takes beside its key: its length, and its rowRef, twice since a slice that grows
	// is copied.
	rowOverhead = 4 + 2*16
)

// NewRowBuffer makes a buffer of about budget bytes.
func NewRowBuffer(budget int64) *RowBuffer { return &RowBuffer{budget: budget} }

// Add copies a row into the buffer and returns its partition and the length of its key. A row over MaxKey is refused with ErrRowTooLarge.
// The buffer takes a row also where Full; whoever fills it writes a run then.
func (b *RowBuffer) Add(row *Row) (partition byte, size int, err error) {
	room := 4 + len(row.Domain) + len(row.Host) + len(row.PathQuery) + len(row.Scheme) + len(row.Extras) + len(row.RawURL) + 5 + 3 + 9 + 9
	if room > MaxKey {
		return 0, 0, ErrRowTooLarge
	}
	for _, s := range [...]string{row.Domain, row.Host, row.PathQuery, row.Scheme, row.Extras} {
		if strings.IndexByte(s, 0) >= 0 {
			return 0, 0, errZeroByte
		}
	}
	partition = PartitionOf(row.Domain)
	p := &b.parts[partition]
	chunk := p.open - 1
	switch {
	case room > bufferRow:
		chunk = len(p.chunks)
		p.chunks = append(p.chunks, make([]byte, 0, room))
	case chunk < 0 || bufferChunk-len(p.chunks[chunk]) < room:
		chunk = len(p.chunks)
		p.chunks = append(p.chunks, b.chunk())
		p.open = len(p.chunks)
	}
	c := p.chunks[chunk]
	off := len(c) + 4
	c = row.AppendKey(append(c, 0, 0, 0, 0))
	n := len(c) - off
	binary.LittleEndian.PutUint32(c[off-4:], uint32(n))
	p.chunks[chunk] = c
	p.rows = append(p.rows, rowRef{chunk: uint32(chunk), off: uint32(off)})
	b.used += int64(n) + rowOverhead
	b.len++
	return partition, n, nil
}

// chunk returns an empty chunk of bufferChunk bytes.
func (b *RowBuffer) chunk() []byte {
	if n := len(b.spare); n > 0 {
		c := b.spare[n-1]
		b.spare = b.spare[:n-1]
		return c
	}
	if len(b.slab) == 0 {
		slab := bufferSlabs.Get().(*[bufferSlab]byte)
		b.slabs = append(b.slabs, slab)
		b.slab = slab[:]
	}
	c := b.slab[:0:bufferChunk]
	b.slab = b.slab[bufferChunk:]
	return c
}

// bufferSlabs are those of buffers that were released: half a gigabyte a split need not be cleared each time.
var bufferSlabs = sync.Pool{New: func() any { return new([bufferSlab]byte) }}

// Release gives the buffer's memory to others. The buffer is of no use after it.
func (b *RowBuffer) Release() {
	for _, slab := range b.slabs {
		bufferSlabs.Put(slab)
	}
	*b = RowBuffer{}
}

// Len is the number of rows in the buffer.
func (b *RowBuffer) Len() int { return b.len }

// Full reports that the budget is used up.
func (b *RowBuffer) Full() bool { return b.used >= b.budget }

// row is a row's key.
func (p *bufferPart) row(r rowRef) []byte {
	c := p.chunks[r.chunk]
	n := binary.LittleEndian.Uint32(c[r.off-4:])
	return c[r.off : r.off+n]
}

// WriteRun sorts the rows, leaves one of those that are equal, writes them as a run under key and empties the
// buffer. After an error the buffer has the same rows still.
func (b *RowBuffer) WriteRun(ctx context.Context, store blob.Store, key string) (Run, error) {
	w, err := newRunWriter(ctx, store, key)
	if err != nil {
		return Run{}, err
	}
	defer w.abort()
	for i := range b.parts {
		s := b.parts[i].section()
		for {
			row, shared, err := s.next(ctx)
			if err != nil {
				return Run{}, err
			}
			if row == nil {
				break
			}
			if err := w.append(byte(i), row, shared); err != nil {
				return Run{}, err
			}
		}
	}
	run, err := w.finish()
	if err != nil {
		return Run{}, err
	}
	b.empty()
	return run, nil
}

// Merge does what MergeRuns does with the rows in the buffer, which stay there.
func (b *RowBuffer) Merge(ctx context.Context, first, last byte, yield func(*Key) error) error {
	// A merge jumps from one partition to the next. A partition that is packed when it has been sorted, and is in the core's
	// cache still, is then read from the memory once, one byte after the other.
	all := packedKeys{make([]byte, 0, 3*b.len), make([]byte, 0, b.used/2)}
	packed := make([]packedSection, 0, int(last)-int(first)+1)
	for p := int(first); p <= int(last); p++ {
		if len(b.parts[p].rows) == 0 {
			continue
		}
		lengths, text := len(all.lengths), len(all.text)
		s := b.parts[p].section()
		for {
			key, shared, err := s.next(ctx)
			if err != nil {
				return err
			}
			if key == nil {
				break
			}
			all.add(key, shared)
		}
		packed = append(packed, packedSection{packedKeys: packedKeys{all.lengths[lengths:], all.text[text:]}})
	}
	sections := make([]section, len(packed))
	for i := range packed {
		sections[i] = &packed[i]
	}
	return mergeKeys(ctx, sections, records(yield))
}

// packedKeys are sorted keys without the beginnings that they share with those before.
type packedKeys struct {
	lengths []byte // uvarint shared, uvarint length
	text    []byte // length bytes
}

func (p *packedKeys) add(key []byte, shared int) {
	p.lengths = binary.AppendUvarint(p.lengths, uint64(shared))
	p.lengths = binary.AppendUvarint(p.lengths, uint64(len(key)-shared))
	p.text = append(p.text, key[shared:]...)
}

// packedSection iterates over packed keys in memory.
type packedSection struct {
	packedKeys
	key []byte
}

func (s *packedSection) next(context.Context) (key []byte, shared int, err error) {
	if len(s.lengths) == 0 {
		return nil, 0, nil
	}
	common, n := binary.Uvarint(s.lengths)
	length, m := binary.Uvarint(s.lengths[n:])
	s.lengths = s.lengths[n+m:]
	s.key = append(s.key[:common], s.text[:length]...)
	s.text = s.text[length:]
	return s.key, int(common), nil
}

// empty drops all rows and keeps their memory.
func (b *RowBuffer) empty() {
	for i := range b.parts {
		p := &b.parts[i]
		for _, c := range p.chunks {
			if cap(c) == bufferChunk {
				b.spare = append(b.spare, c[:0])
			}
		}
		clear(p.chunks) // large rows are not kept
		p.chunks, p.open, p.rows = p.chunks[:0], 0, p.rows[:0]
	}
	b.used, b.len = 0, 0
}

// bufferSection iterates over the rows of one partition of a buffer.
type bufferSection struct {
	part *bufferPart
	at   int
	last []byte
}

// section sorts the partition's rows.
func (p *bufferPart) section() *bufferSection {
	p.sort(p.rows, 0)
	return &bufferSection{part: p}
}

func (s *bufferSection) next(context.Context) (key []byte, shared int, err error) {
	if s.at == len(s.part.rows) {
		return nil, 0, nil
	}
	key = s.part.row(s.part.rows[s.at])
	s.at++
	shared = commonPrefix(s.last, key)
	s.last = key
	return key, shared, nil
}

// smallSort is the number of rows up to which comparing whole rows beats reloading caches.
const smallSort = 12

// sort sorts rows that agree in their first depth bytes. It compares eight bytes at a time that stand
// beside the reference, and looks at the rows again only where these agree: URLs of one
// site share long beginnings, and a comparison of whole keys is mostly a cache miss.
// (The caching of Ng and Kakehi, "Cache efficient radix sort for string sorting", 2007.)
func (p *bufferPart) sort(rows []rowRef, depth int) {
	for len(rows) > smallSort {
		depth = p.shared(rows, depth)
		for i := range rows {
			rows[i].cache = p.load(rows[i], depth)
		}
		slices.SortFunc(rows, func(x, y rowRef) int {
			switch {
			case x.cache < y.cache:
				return -1
			case x.cache > y.cache:
				return 1
			}
			return 0
		})
		depth += 8
		// All but the longest of the groups that agree so far are sorted by recursion, that one by
		// the loop: the stack stays shallow however long the keys.
		var longest []rowRef
		for len(rows) > 0 {
			n := 1
			for n < len(rows) && rows[n].cache == rows[0].cache {
				n++
			}
			group := rows[:n]
			rows = rows[n:]
			if n > 1 {
				group = p.endedFirst(group, depth)
			}
			if len(group) > len(longest) {
				group, longest = longest, group
			}
			if len(group) > 1 {
				p.sort(group, depth)
			}
		}
		rows = longest
	}
	// Insertion sort.
	for i := 1; i < len(rows); i++ {
		r := rows[i]
		key := p.row(r)[depth:]
		j := i
		for ; j > 0 && bytes.Compare(p.row(rows[j-1])[depth:], key) > 0; j-- {
			rows[j] = rows[j-1]
		}
		rows[j] = r
	}
}

// endedFirst moves the rows of a group that are not longer than depth to its front, shortest
// first, and returns the others. In load's padding those that ended look like rows with
// zero bytes there, and as beginnings of these come before them.
func (p *bufferPart) endedFirst(group []rowRef, depth int) []rowRef {
	ended := 0
	for i, r := range group {
		if p.length(r) <= depth {
			group[i], group[ended] = group[ended], group[i]
			ended++
		}
	}
	slices.SortFunc(group[:ended], func(x, y rowRef) int { return p.length(x) - p.length(y) })
	return group[ended:]
}

// shared is the length of the prefix common to all rows, which agree in their first depth bytes.
func (p *bufferPart) shared(rows []rowRef, depth int) int {
	first := p.row(rows[0])
	shared := len(first)
	for _, r := range rows[1:] {
		row := p.row(r)
		if shared = depth + commonPrefix(first[depth:shared], row[depth:]); shared == depth {
			break
		}
	}
	return shared
}

func (p *bufferPart) length(r rowRef) int {
	return int(binary.LittleEndian.Uint32(p.chunks[r.chunk][r.off-4:]))
}

// load returns the eight bytes of a row from depth on as a number that sorts like them, with zeros
// where it has ended.
func (p *bufferPart) load(r rowRef, depth int) uint64 {
	row := p.row(r)
	if depth+8 <= len(row) {
		return binary.BigEndian.Uint64(row[depth:])
	}
	var last [8]byte
	if depth < len(row) {
		copy(last[:], row[depth:])
	}
	return binary.BigEndian.Uint64(last[:])
}
