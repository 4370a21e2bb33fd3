package row

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

// A shuffle file holds the rows of one split in staging, for the merge tasks, each of which reads
// some partitions of all splits. It is a frame file without fences (package seekable), not
// compressed. The rows come first, then the hosts; each frame belongs to one partition. The last
// frame is the directory, which has the size of each partition:
//
//	rows        n × {u32 host, row}
//	hosts       n × {u32 rows, u32 bytes, u16 length, u16 domain, host, domain}
//	directory   "SHFL" u32 ver=1 | u8 slash | uvarint n | n × {u8 partition,
//	            uvarint rows, uvarint frames of rows, uvarint hosts, uvarint frames of hosts}
//
// A row is as in a Buffer: a u32 header, which is the length of the path × 4 + the kind of the
// suffix (row.Suffix.Kind); the path; for OwnSuffix the u32 length of the suffix and the suffix as
// in a key (see row.Row.AppendKey). A host's number counts from 0 in its partition. The rows and
// the hosts of a partition are in the order in which they were added. A host has the number of its
// rows and their size without host numbers. Domain is the length of the domain if the host ends
// with it; else ownDomain is added, and the domain follows the host. A host without rows has no
// names. Slash is 1 if all paths of the file begin with a slash.
//
// Writing each row to its host's memory at once would be a cache miss a row. So rows are moved in
// two steps, each of which writes to few addresses at a time: by the writer to their partitions,
// and by the merge, one partition after the other, to their hosts. The merge reads the hosts of all
// files first, so it knows how much memory each host needs.
//
// The directory is directly before the footer, so one read opens a file.

const (
	shuffleMagic   = "SHFL"
	shuffleVersion = 1

	// hostHeader is the size of a host without names.
	hostHeader = 2*4 + 2*2

	// hostBits is the number of bits of a host's number in its partition. A Buffer holds fewer
	// hosts.
	hostBits = 24

	// shuffleFrame is the size of the largest frame, unless it is a single larger row. A frame that
	// fits into one stored zstd block is used in place, without a copy.
	shuffleFrame = seekable.MaxRawBlock

	// shuffleChunk is how much memory a partition gets at a time.
	shuffleChunk = bufferSlab / 64

	// shuffleRead is the most bytes that one read fetches, unless a frame is larger. shuffleReads
	// is how many reads of a load may be in flight or not used yet: enough to hide an object
	// store's latency.
	shuffleRead  = 2 << 20
	shuffleReads = 8

	// shufflePrefetch is how many reads of rows Prefetch starts. It is few, because the buffer is
	// still full of other rows.
	shufflePrefetch = 3

	// shuffleHeld limits how many bytes of all files are read before they are used: a read may
	// cover several partitions, so with many files each reads less at a time.
	shuffleHeld = 32 << 20
)

// ShuffleFile describes a finished shuffle file. Its XXH64 is 0.
type ShuffleFile struct {
	lake.FrameObject
	// DirectoryBytes is the size of the directory frame.
	DirectoryBytes int64 `json:"directory_bytes"`
	Rows           int64 `json:"rows"`
}

// WriteShuffle writes the rows to a shuffle file under key and empties the buffer, also if it
// fails. It adds to rows and keyBytes what Count does. Rows that Load added cannot be written to a
// shuffle file.
//
// The rows are copied, by partition. The memory of what is copied is used for what is still to be,
// so that both together take little more than the rows.
func (b *Buffer) WriteShuffle(
	ctx context.Context, store blob.Store, key string, rows, keyBytes *[Partitions]int64,
) (ShuffleFile, error) {
	defer b.Empty()
	out, err := store.Create(ctx, key)
	if err != nil {
		return ShuffleFile{}, err
	}
	defer out.Abort()
	w := shuffleWriters.Get().(*shuffleWriter)
	defer w.release()
	w.w = seekable.NewWriter(out, 0)
	w.w.SkipHash()
	f, err := w.write(ctx, b)
	if err != nil {
		return ShuffleFile{}, fmt.Errorf("write shuffle file %s: %w", key, err)
	}
	ff, err := w.w.Finish()
	if err != nil {
		return ShuffleFile{}, fmt.Errorf("write shuffle file %s: %w", key, err)
	}
	if _, err := out.Finish(); err != nil {
		return ShuffleFile{}, err
	}
	f.FrameObject = lake.NewFrameObject(key, ff)
	for i := range w.parts {
		rows[i] += w.parts[i].rows
		keyBytes[i] += w.parts[i].keyBytes
	}
	return f, nil
}

// keyBytes returns an upper bound of the size of the keys of a host's rows.
func (h *bufferHost) keyBytes(rows, bytes uint32) int64 {
	return int64(rows)*int64(h.domainBytes()+int(h.length)+2+keyRest) + int64(bytes)
}

// shuffleWriters keeps the memory of released writers.
var shuffleWriters = sync.Pool{New: func() any { return new(shuffleWriter) }}

// shuffleWriter writes a shuffle file.
type shuffleWriter struct {
	w       *seekable.Writer
	numbers []uint32 // of the buffer's hosts: partition << hostBits | number in it
	parts   [Partitions]framedPart
	// open has the piece that is being filled of each partition, full the pieces before it. A frame
	// is one or more pieces.
	open [Partitions][]byte
	full [Partitions][][]byte

	slabs []*[bufferSlab]byte // of pieces of rows
	rest  []byte              // of the last slab
	hosts []byte              // memory of pieces of hosts
}

// framedPart is a partition of the file.
type framedPart struct {
	rows, keyBytes, hosts int64
	hostBytes             int // at most
	rowFrames, hostFrames int
}

// release returns the writer's memory to pools.
func (w *shuffleWriter) release() {
	for _, slab := range w.slabs {
		bufferSlabs.Put(slab)
	}
	clear(w.slabs)
	clear(w.open[:])
	for p, full := range &w.full {
		clear(full)
		w.full[p] = full[:0]
	}
	w.w, w.slabs, w.rest = nil, w.slabs[:0], nil
	shuffleWriters.Put(w)
}

func (w *shuffleWriter) write(ctx context.Context, b *Buffer) (f ShuffleFile, err error) {
	b.finishAdding()
	w.parts = [Partitions]framedPart{}
	w.numbers = slices.Grow(w.numbers[:0], len(b.hosts))[:len(b.hosts)]
	for i := range b.hosts {
		h, c := &b.hosts[i], &b.counts[i]
		p := &w.parts[h.id>>56]
		w.numbers[i] = uint32(h.id>>56<<hostBits) | uint32(p.hosts)
		p.hosts++
		p.hostBytes += hostHeader + h.nameBytes()
		p.rows += int64(c.rows)
		p.keyBytes += h.keyBytes(c.rows, c.bytes)
		f.Rows += int64(c.rows)
	}
	if f.Rows != int64(b.len) {
		return f, fmt.Errorf("%d rows were loaded from shuffle files; only added rows can be written", int64(b.len)-f.Rows)
	}
	for i, data := range b.blocks {
		if ctx.Err() != nil {
			return f, context.Cause(ctx)
		}
		w.spread(data)
		b.blocks[i] = nil
		b.releaseSlabs(i + 1)
	}
	for i := range w.parts {
		if ctx.Err() != nil {
			return f, context.Cause(ctx)
		}
		if w.parts[i].rowFrames, err = w.flush(i); err != nil {
			return f, err
		}
	}
	w.addHosts(b)
	partitions := 0
	dir := make([]byte, 0, 4<<10)
	for i := range w.parts {
		p := &w.parts[i]
		if p.rows == 0 {
			continue
		}
		if p.hostFrames, err = w.flush(i); err != nil {
			return f, err
		}
		partitions++
		dir = append(dir, byte(i))
		for _, n := range []int64{p.rows, int64(p.rowFrames), p.hosts, int64(p.hostFrames)} {
			dir = codec.AppendUvarint(dir, uint64(n))
		}
	}
	header := append(codec.AppendMagic(nil, shuffleMagic, shuffleVersion), byte(b.depth))
	header = codec.AppendUvarint(header, uint64(partitions))
	before := w.w.Bytes()
	if err := w.w.StoredFrame(header, dir); err != nil {
		return f, err
	}
	f.DirectoryBytes = w.w.Bytes() - before
	return f, nil
}

// spread copies the rows of a block to their partitions.
func (w *shuffleWriter) spread(rows []byte) {
	for len(rows) > 0 {
		size := 4 + rowSize(rows[4:])
		number := w.numbers[binary.LittleEndian.Uint32(rows)]
		p := number >> hostBits
		if cap(w.open[p])-len(w.open[p]) < size {
			w.endPiece(p)
			w.open[p] = w.chunk(p, size)
		}
		n := len(w.open[p])
		w.open[p] = w.open[p][:n+size]
		to := w.open[p][n:]
		binary.LittleEndian.PutUint32(to, number&(1<<hostBits-1))
		copy(to[4:], rows[4:size])
		rows = rows[size:]
	}
}

// chunk returns memory for a piece of a partition whose first row has size bytes.
func (w *shuffleWriter) chunk(p uint32, size int) []byte {
	if size > shuffleChunk/2 {
		return make([]byte, 0, size)
	}
	if len(w.rest) == 0 {
		slab := bufferSlabs.Get().(*[bufferSlab]byte)
		w.slabs = append(w.slabs, slab)
		w.rest = slab[:]
	}
	chunk := w.rest[:0:shuffleChunk]
	w.rest = w.rest[shuffleChunk:]
	if len(w.full[p]) == 0 {
		// Rows are written to all partitions in turn. If all pieces were at the same offset in a
		// page, they would compete for the few cache lines of one set.
		from := p % 64 * 64
		chunk = chunk[from:from]
	}
	return chunk
}

// endPiece ends the open piece of a partition. The rest of its memory is the next piece.
func (w *shuffleWriter) endPiece(p uint32) {
	if open := w.open[p]; len(open) > 0 {
		w.full[p] = append(w.full[p], open)
		w.open[p] = open[len(open):]
	}
}

// flush writes the pieces of a partition in frames and returns the number of frames.
func (w *shuffleWriter) flush(p int) (frames int, err error) {
	w.endPiece(uint32(p))
	for pieces := w.full[p]; len(pieces) > 0; frames++ {
		n := 1
		for size := len(pieces[0]); n < len(pieces); n++ {
			if size += len(pieces[n]); size > shuffleFrame {
				break
			}
		}
		if err := w.w.StoredFrame(pieces[:n]...); err != nil {
			return 0, err
		}
		pieces = pieces[n:]
	}
	clear(w.full[p])
	w.full[p] = w.full[p][:0]
	return frames, nil
}

// addHosts makes the pieces of all hosts.
func (w *shuffleWriter) addHosts(b *Buffer) {
	size := 0
	for i := range w.parts {
		size += w.parts[i].hostBytes
	}
	w.hosts = slices.Grow(w.hosts[:0], size)[:size]
	at := 0
	for i := range w.parts {
		n := w.parts[i].hostBytes
		w.open[i] = w.hosts[at : at : at+n]
		at += n
	}
	for i := range b.hosts {
		h, c := &b.hosts[i], &b.counts[i]
		p := w.numbers[i] >> hostBits
		names, sizes := h.nameBytes(), uint32(h.length)|uint32(h.domain)<<16
		if c.rows == 0 {
			names, sizes = 0, 0
		}
		if len(w.open[p])+hostHeader+names > shuffleFrame {
			w.endPiece(p)
		}
		to := w.open[p]
		to = binary.LittleEndian.AppendUint64(to, uint64(c.rows)|uint64(c.bytes)<<32)
		to = binary.LittleEndian.AppendUint32(to, sizes)
		w.open[p] = append(to, b.names[h.name>>chunkBits][h.name&(1<<chunkBits-1):][:names]...)
	}
}

// Shuffle reads shuffle files. It is safe for concurrent use.
type Shuffle struct {
	store blob.Store
	files []shuffleReader
}

// shuffleReader is an open file.
type shuffleReader struct {
	key    string
	frames *seekable.Frames
	slash  byte
	parts  [Partitions]storedPart
}

// storedPart is a partition of a file. Its rows are in frames firstRows up to endRows, exclusive,
// its hosts in firstHosts up to endHosts.
type storedPart struct {
	rows, hosts          int64
	firstRows, endRows   int
	firstHosts, endHosts int
}

// OpenShuffle reads and checks the footers and directories of shuffle files, with one read for each
// file.
func OpenShuffle(ctx context.Context, store blob.Store, files []ShuffleFile) (*Shuffle, error) {
	s := &Shuffle{store: store, files: make([]shuffleReader, len(files))}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(concurrentReads)
	for i := range files {
		g.Go(func() error { return s.files[i].open(ctx, store, &files[i]) })
	}
	return s, g.Wait()
}

func (r *shuffleReader) open(ctx context.Context, store blob.Store, f *ShuffleFile) error {
	if f.FooterBytes < 0 || f.DirectoryBytes < 1 || f.FooterBytes > f.Bytes || f.DirectoryBytes > f.Bytes-f.FooterBytes {
		return codec.Corrupt(f.Key, "footer", -1, fmt.Sprintf("footer and directory in %d bytes", f.Bytes),
			fmt.Sprintf("%d and %d", f.FooterBytes, f.DirectoryBytes))
	}
	n := f.FooterBytes + f.DirectoryBytes
	end, err := store.ReadRange(ctx, f.Key, f.Bytes-n, n)
	if err != nil {
		return shuffleError(f.Key, f.Bytes, err)
	}
	ff, err := f.FrameFile()
	if err != nil {
		return err
	}
	read := func(_ context.Context, off, n int64) ([]byte, error) {
		from := off - (f.Bytes - int64(len(end)))
		return end[from : from+n], nil
	}
	r.key = f.Key
	if r.frames, err = seekable.OpenAt(ctx, read, ff, f.Key, 0); err != nil {
		return err
	}
	last := r.frames.Len() - 1
	if last < 0 {
		return codec.Corrupt(f.Key, "directory", -1, "a frame", "none")
	}
	if _, size := r.frames.Range(last, last+1); size != f.DirectoryBytes {
		return codec.Corrupt(f.Key, "directory", -1, fmt.Sprintf("%d bytes", f.DirectoryBytes), size)
	}
	dir, err := r.frames.Decode(last, end[:f.DirectoryBytes])
	if err != nil {
		return err
	}
	rows, err := r.parseDirectory(dir)
	if err == nil && rows != f.Rows {
		err = codec.Corrupt(f.Key, "directory", -1, fmt.Sprintf("%d rows", f.Rows), rows)
	}
	return err
}

// shuffleError is the error of a read of a file that should have at least size bytes.
func shuffleError(key string, size int64, err error) error {
	if errors.Is(err, blob.ErrRange) {
		return codec.Corrupt(key, "size", -1, fmt.Sprintf("at least %d bytes", size), err)
	}
	return fmt.Errorf("read shuffle file: %w", err)
}

func (r *shuffleReader) parseDirectory(dir []byte) (rows int64, err error) {
	d := codec.NewDecoder(dir, r.key, "directory")
	d.Magic(shuffleMagic, shuffleVersion)
	if r.slash = d.U8(); r.slash > 1 {
		d.Fail("1 where all paths begin with a slash, else 0", r.slash)
	}
	frames := r.frames.Len() - 1
	prev, rowFrames, hostFrames := -1, 0, 0
	for n := d.Uint(Partitions); n > 0 && d.Err() == nil; n-- {
		i := int(d.U8())
		if i <= prev {
			d.Fail(fmt.Sprintf("a partition above %d", prev), i)
			break
		}
		prev = i
		p := storedPart{firstRows: rowFrames, firstHosts: hostFrames}
		p.rows = int64(d.Uint(maxShuffleRows))
		rowFrames += int(d.Uint(uint64(frames)))
		p.hosts = int64(d.Uint(1<<hostBits - 1))
		hostFrames += int(d.Uint(uint64(frames)))
		p.endRows, p.endHosts = rowFrames, hostFrames
		empty := p.rows == 0 || p.hosts == 0 || p.endRows == p.firstRows || p.endHosts == p.firstHosts
		if d.Err() == nil && (empty || rowFrames+hostFrames > frames) {
			d.Fail(fmt.Sprintf("rows and hosts in some of %d frames", frames),
				fmt.Sprintf("%d and %d in %d and %d", p.rows, p.hosts, p.endRows-p.firstRows, p.endHosts-p.firstHosts))
		}
		rows += p.rows
		r.parts[i] = p
	}
	if d.Err() == nil && rowFrames+hostFrames != frames {
		d.Fail(fmt.Sprintf("%d frames", frames), rowFrames+hostFrames)
	}
	if err := d.Close(); err != nil {
		return 0, err
	}
	for i := range r.parts {
		p := &r.parts[i]
		p.firstHosts += rowFrames
		p.endHosts += rowFrames
		// readHosts allocates memory for them before it reads them.
		if n := r.rawSize(p.firstHosts, p.endHosts); p.hosts > n/hostHeader {
			want := fmt.Sprintf("at most %d hosts of partition %02x", n/hostHeader, i)
			return 0, codec.Corrupt(r.key, "directory", -1, want, p.hosts)
		}
	}
	return rows, nil
}

// maxShuffleRows is the most rows of a partition that a directory may claim, so that sums of them
// cannot overflow.
const maxShuffleRows = 1 << 40
