package rowsort

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
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/seekable"
)

// A shuffle file has the rows of one split in staging, for the merges that each take some partitions of all splits: a frame file without
// fences (package codec), not compressed. First come the rows, each frame with those of one partition, then the hosts in the same way, and last what says where each partition is:
//
//	rows        n × {u32 host, row}
//	hosts       n × {u32 rows, u32 bytes, u16 length, u16 domain, host, domain}
//	directory   "SHFL" u32 ver=1 | u8 slash | uvarint n | n × {u8 partition, uvarint rows, uvarint frames of rows, uvarint hosts, uvarint frames of hosts}
//
// A row is as in a RowBuffer: a u32 that is four times the length of the path and the kind of the tail (0 https, 1 http and nothing else, 2 any), the path, and of kind 2 the u32
// length of the tail and the tail as in a key (see Row.AppendKey). Its host is a number: those of a partition count from 0. Rows of a partition and its hosts stand as they came. A host has so many rows, with so many
// bytes without their hosts' numbers. Domain is the length of the domain where that is the host's end; else ownDomain is added to it, and the domain stands behind the host. A host
// without rows has no names. Slash is 1 where all paths of the file begin with one.
//
// Rows come in no order, and who writes each to its place among very many waits for memory. So they are moved in two steps, to few places each, which a core has at hand: to
// their partitions, of which each is written from its beginning to its end; and by a merge, one partition after the other, to where the rows of a host lie together, for
// which it has the hosts of all files first and knows how much each needs.
//
// The directory stands before the tail, so that one read opens a file.

const (
	shuffleMagic   = "SHFL"
	shuffleVersion = 1

	// hostHead is the size of a host without names.
	hostHead = 2*4 + 2*2

	// hostBits are the bits of a host's number in its partition: a RowBuffer has memory for fewer.
	hostBits = 24

	// shuffleFrame is the most that a frame holds, unless it is one row: what fits into one block of a zstd frame is used as it was read.
	shuffleFrame = seekable.MaxRawBlock

	// shuffleChunk is the memory that a partition is given at a time.
	shuffleChunk = bufferSlab / 64

	// shuffleRead is how much of a file one read fetches at most, unless a frame is larger, and shuffleReads how many reads of a merge
	// are under way or not yet used: enough to hide an object store's latency.
	shuffleRead  = 2 << 20
	shuffleReads = 8

	// shuffleAsked is how many reads of rows Ask has begin, while memory is full of other rows.
	shuffleAsked = 3

	// shuffleHeld is how much of all files may have been read in advance, since a read is of several partitions: where there are many files, less is read at once.
	shuffleHeld = 32 << 20
)

// ShuffleFile describes a finished shuffle file. Its XXH64 is 0.
type ShuffleFile struct {
	lake.FrameObject
	// DirectoryBytes is the size of the directory frame.
	DirectoryBytes int64 `json:"directory_bytes"`
	Rows           int64 `json:"rows"`
}

// WriteShuffle writes the rows to a shuffle file under key and empties the buffer. Of each partition it adds to rows and keyBytes what Count does. After an error the buffer
// has the same rows still. Rows that came by Load cannot be written so.
func (b *Buffer) WriteShuffle(ctx context.Context, store blob.Store, key string, rows, keyBytes *[row.Partitions]int64) (ShuffleFile, error) {
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
	b.Empty()
	return f, nil
}

// keyBytes is what the keys of so many rows of a host have at most.
func (h *bufferHost) keyBytes(rows, bytes uint32) int64 {
	return int64(rows)*int64(h.domainBytes()+int(h.length)+2+keyRest) + int64(bytes)
}

// shuffleWriters are writers with the memory that they had.
var shuffleWriters = sync.Pool{New: func() any { return new(shuffleWriter) }}

// shuffleWriter writes a shuffle file.
type shuffleWriter struct {
	w       *seekable.Writer
	numbers []uint32 // of the buffer's hosts: partition << hostBits | number in it
	parts   [row.Partitions]framedPart
	// Open is what is under construction of each partition, full what is before that: pieces of frames.
	open [row.Partitions][]byte
	full [row.Partitions][][]byte

	slabs []*[bufferSlab]byte // of pieces
	room  []byte              // the rest of the last
	names []byte              // of pieces of hosts
}

// framedPart is a partition: what it has, and in how many frames.
type framedPart struct {
	rows, keyBytes, hosts int64
	hostBytes             int // at most
	rowFrames, hostFrames int
}

// release gives the writer's memory to others.
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
	w.w, w.slabs, w.room = nil, w.slabs[:0], nil
	shuffleWriters.Put(w)
}

func (w *shuffleWriter) write(ctx context.Context, b *Buffer) (f ShuffleFile, err error) {
	b.settle()
	w.parts = [row.Partitions]framedPart{}
	w.numbers = slices.Grow(w.numbers[:0], len(b.hosts))[:len(b.hosts)]
	for i := range b.hosts {
		h, c := &b.hosts[i], &b.counts[i]
		p := &w.parts[h.id>>56]
		w.numbers[i] = uint32(h.id>>56<<hostBits) | uint32(p.hosts)
		p.hosts++
		p.hostBytes += hostHead + h.nameBytes()
		p.rows += int64(c.rows)
		p.keyBytes += h.keyBytes(c.rows, c.bytes)
		f.Rows += int64(c.rows)
	}
	if f.Rows != int64(b.len) {
		return f, fmt.Errorf("%d rows that were loaded", int64(b.len)-f.Rows)
	}
	for _, data := range b.blocks {
		if ctx.Err() != nil {
			return f, context.Cause(ctx)
		}
		w.spread(data)
	}
	for i := range w.parts {
		if ctx.Err() != nil {
			return f, context.Cause(ctx)
		}
		if w.parts[i].rowFrames, err = w.flush(i); err != nil {
			return f, err
		}
	}
	w.listHosts(b)
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
	head := codec.AppendUvarint(append(codec.AppendMagic(nil, shuffleMagic, shuffleVersion), byte(b.depth)), uint64(partitions))
	before := w.w.Bytes()
	if err := w.w.StoredFrame(head, dir); err != nil {
		return f, err
	}
	f.DirectoryBytes = w.w.Bytes() - before
	return f, nil
}

// spread copies rows to their partitions.
func (w *shuffleWriter) spread(rows []byte) {
	for len(rows) > 0 {
		if rows = rows[w.spreadMany(rows):]; len(rows) == 0 {
			return
		}
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

// chunk returns memory for rows of a partition, of which the first has that size.
func (w *shuffleWriter) chunk(p uint32, size int) []byte {
	if size > shuffleChunk/2 {
		return make([]byte, 0, size)
	}
	if len(w.room) == 0 {
		slab := bufferSlabs.Get().(*[bufferSlab]byte)
		w.slabs = append(w.slabs, slab)
		w.room = slab[:]
	}
	chunk := w.room[:0:shuffleChunk]
	w.room = w.room[shuffleChunk:]
	if len(w.full[p]) == 0 {
		// What all partitions are at must not be at the same place of a page: caches have few lines for each.
		from := p % 64 * 64
		chunk = chunk[from:from]
	}
	return chunk
}

// endPiece ends the piece of a partition that is under construction. What is left of its memory is the next.
func (w *shuffleWriter) endPiece(p uint32) {
	if open := w.open[p]; len(open) > 0 {
		w.full[p] = append(w.full[p], open)
		w.open[p] = open[len(open):]
	}
}

// flush writes the pieces of a partition in frames and returns how many these were.
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

// listHosts makes the pieces of all hosts.
func (w *shuffleWriter) listHosts(b *Buffer) {
	size := 0
	for i := range w.parts {
		size += w.parts[i].hostBytes
	}
	w.names = slices.Grow(w.names[:0], size)[:size]
	at := 0
	for i := range w.parts {
		n := w.parts[i].hostBytes
		w.open[i] = w.names[at : at : at+n]
		at += n
	}
	for i := range b.hosts {
		h, c := &b.hosts[i], &b.counts[i]
		p := w.numbers[i] >> hostBits
		names, sizes := h.nameBytes(), uint32(h.length)|uint32(h.domain)<<16
		if c.rows == 0 {
			names, sizes = 0, 0
		}
		if len(w.open[p])+hostHead+names > shuffleFrame {
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

// shuffleReader is one opened file.
type shuffleReader struct {
	key    string
	frames *seekable.Frames
	slash  byte
	parts  [row.Partitions]placedPart
}

// placedPart is a partition of a file: rows are in the frames [firstRows, endRows), hosts in [firstHosts, endHosts).
type placedPart struct {
	rows, hosts          int64
	firstRows, endRows   int
	firstHosts, endHosts int
}

// OpenShuffle reads and checks the tails and directories of shuffle files, one read each.
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
		return codec.Corrupt(f.Key, "footer", -1, fmt.Sprintf("footer and directory in %d bytes", f.Bytes), fmt.Sprintf("%d and %d", f.FooterBytes, f.DirectoryBytes))
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

// shuffleError is the error of a read of a file that is said to have so many bytes at least.
func shuffleError(key string, size int64, err error) error {
	if errors.Is(err, blob.ErrRange) {
		return codec.Corrupt(key, "size", -1, fmt.Sprintf("%d bytes at least", size), err)
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
	for n := d.Uint(row.Partitions); n > 0 && d.Err() == nil; n-- {
		i := int(d.U8())
		if i <= prev {
			d.Fail(fmt.Sprintf("a partition above %d", prev), i)
			break
		}
		prev = i
		p := placedPart{firstRows: rowFrames, firstHosts: hostFrames}
		p.rows = int64(d.Uint(maxShuffleRows))
		rowFrames += int(d.Uint(uint64(frames)))
		p.hosts = int64(d.Uint(1<<hostBits - 1))
		hostFrames += int(d.Uint(uint64(frames)))
		p.endRows, p.endHosts = rowFrames, hostFrames
		if d.Err() == nil && (p.rows == 0 || p.hosts == 0 || p.endRows == p.firstRows || p.endHosts == p.firstHosts || rowFrames+hostFrames > frames) {
			d.Fail(fmt.Sprintf("rows and hosts in some of %d frames", frames), fmt.Sprintf("%d and %d in %d and %d", p.rows, p.hosts, p.endRows-p.firstRows, p.endHosts-p.firstHosts))
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
		// A reader has memory for so many before it sees them.
		if n := r.rawSize(p.firstHosts, p.endHosts); p.hosts > n/hostHead {
			return 0, codec.Corrupt(r.key, "directory", -1, fmt.Sprintf("%d hosts of partition %02x at most", n/hostHead, i), p.hosts)
		}
	}
	return rows, nil
}

// maxShuffleRows bounds the rows that a shuffle file says a partition has, so that sums of them cannot overflow.
const maxShuffleRows = 1 << 40
