package lake

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
)

// A shuffle file has the rows of one split in staging, for the merges that each take some partitions of all splits: a frame file without
// fences (package codec), not compressed. Its frames but the last hold rows of one partition each, by host and otherwise as they
// came; the last says where each partition is:
//
//	rows        u8 slash | uvarint bytes of the groups | uvarint bytes of the names | n × {uvarint host, uvarint own domain, uvarint rows} | names | rows
//	directory   "SHFL" u32 ver=1 | uvarint n | n × {u8 partition, uvarint rows, uvarint frames}
//
// Slash is 1 where all paths of the frame begin with one. A group is rows of one host: names has the host's bytes and then those of its domain, of which own domain
// is 1 more than the length, or, where it is 0, a uvarint follows that says how many of the host's last bytes are the domain. A row is as in a RowBuffer: a u32 that is
// four times the length of the path and the kind of the tail (0 https, 1 http and nothing else, 2 any), the path, and of kind 2 the u32 length
// of the tail and the tail as in a key (see Row.AppendKey).
//
// The directory stands before the tail, so that one read opens a file. A merge uses rows where they lie in what it read.

const (
	shuffleMagic   = "SHFL"
	shuffleVersion = 1

	// shuffleFrame is the size of a frame's rows at which it ends, unless its last row is large: what fits into one block of a zstd frame is
	// used as it was read.
	shuffleFrame = 96 << 10

	// shuffleRead is how much of a file one read fetches at most, unless a frame is larger, and shuffleReads how many reads of a merge
	// are under way or not yet used: enough to hide an object store's latency.
	shuffleRead  = 1 << 20
	shuffleReads = 16
)

// ShuffleFile describes a finished shuffle file.
type ShuffleFile struct {
	FrameObject
	// DirectoryBytes is the size of the directory frame.
	DirectoryBytes int64 `json:"directory_bytes"`
	Rows           int64 `json:"rows"`
}

// framedRows are the frames [first, end) of a partition.
type framedRows struct {
	rows       int64
	first, end int
}

// WriteShuffle writes the rows to a shuffle file under key and empties the buffer. After an error the buffer has the same rows still.
func (b *RowBuffer) WriteShuffle(ctx context.Context, store blob.Store, key string) (ShuffleFile, error) {
	out, err := store.Create(ctx, key)
	if err != nil {
		return ShuffleFile{}, err
	}
	defer out.Abort()
	w := shuffleWriter{b: b, w: codec.NewFrameWriter(out, 0), rows: make([][]byte, 1, 64)}
	f, err := w.write(ctx)
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
	f.FrameObject = NewFrameObject(key, ff)
	b.Empty()
	return f, nil
}

// shuffleWriter writes a shuffle file.
type shuffleWriter struct {
	b *RowBuffer
	w *codec.FrameWriter

	frames int
	// The frame under construction.
	heads, names []byte
	rows         [][]byte // pieces of memory with the rows, after one for what stands before them
	size         int      // of the rows
	frame        []byte
}

func (w *shuffleWriter) write(ctx context.Context) (f ShuffleFile, err error) {
	b := w.b
	b.settle()
	// Hosts by partition, by their numbers.
	var starts [Partitions + 1]int
	for i := range b.hosts {
		starts[b.hosts[i].id>>56+1]++
	}
	for p := range Partitions {
		starts[p+1] += starts[p]
	}
	order := make([]hostRef, len(b.hosts))
	next := starts
	for i := range b.hosts {
		p := b.hosts[i].id >> 56
		order[next[p]].host = uint32(i)
		next[p]++
	}
	b.move(order)
	b.partsOf = 0

	dir := make([]byte, 0, 4<<10)
	partitions := 0
	for p := range Partitions {
		if ctx.Err() != nil {
			return f, context.Cause(ctx)
		}
		part := framedRows{first: w.frames}
		for i, o := range order[starts[p]:starts[p+1]] {
			if i += starts[p]; i%askAhead == 0 {
				b.askHosts(order, i+2*askAhead)
				b.askNames(order, i+askAhead)
			}
			h := &b.hosts[o.host]
			part.rows += int64(h.rows)
			if err := w.add(h); err != nil {
				return f, err
			}
		}
		if err := w.flush(); err != nil {
			return f, err
		}
		if part.rows > 0 {
			partitions++
			dir = append(dir, byte(p))
			dir = codec.AppendUvarint(dir, uint64(part.rows))
			dir = codec.AppendUvarint(dir, uint64(w.frames-part.first))
			f.Rows += part.rows
		}
	}
	head := codec.AppendUvarint(codec.AppendMagic(nil, shuffleMagic, shuffleVersion), uint64(partitions))
	before := w.w.Bytes()
	if err := w.w.StoredFrame(head, dir); err != nil {
		return f, err
	}
	f.DirectoryBytes = w.w.Bytes() - before
	return f, nil
}

// add adds the rows of a host to frames.
func (w *shuffleWriter) add(h *bufferHost) error {
	rows, data := h.rows, h.data
	for rows > 0 {
		if w.size > 0 && w.size+len(data) > shuffleFrame {
			if err := w.flush(); err != nil {
				return err
			}
		}
		n, size := rows, len(data)
		if size > shuffleFrame {
			for n, size = 0, 0; n < rows && size < shuffleFrame; n++ {
				size += rowSize(data[size:])
			}
		}
		w.piece(data[:size])
		rows, data = rows-n, data[size:]
		w.heads = codec.AppendUvarint(w.heads, uint64(len(h.host)))
		w.names = append(w.names, h.host...)
		if at := len(h.host) - len(h.domain); at >= 0 && h.host[at:] == h.domain {
			w.heads = append(w.heads, 0)
			w.heads = codec.AppendUvarint(w.heads, uint64(len(h.domain)))
		} else {
			w.heads = codec.AppendUvarint(w.heads, uint64(len(h.domain))+1)
			w.names = append(w.names, h.domain...)
		}
		w.heads = codec.AppendUvarint(w.heads, uint64(n))
	}
	return nil
}

// piece adds rows to the frame, whose memory mostly follows that of those before.
func (w *shuffleWriter) piece(data []byte) {
	w.size += len(data)
	if last := &w.rows[len(w.rows)-1]; cap(*last) >= len(*last)+len(data) && unsafe.Add(unsafe.Pointer(unsafe.SliceData(*last)), len(*last)) == unsafe.Pointer(unsafe.SliceData(data)) {
		*last = (*last)[:len(*last)+len(data)]
		return
	}
	w.rows = append(w.rows, data)
}

// flush writes the frame under construction, if there is one.
func (w *shuffleWriter) flush() error {
	if len(w.heads) == 0 {
		return nil
	}
	w.frame = append(w.frame[:0], byte(w.b.depth))
	w.frame = codec.AppendUvarint(w.frame, uint64(len(w.heads)))
	w.frame = codec.AppendUvarint(w.frame, uint64(len(w.names)))
	w.frame = append(append(w.frame, w.heads...), w.names...)
	w.rows[0] = w.frame
	err := w.w.StoredFrame(w.rows...)
	w.heads, w.names, w.rows, w.size = w.heads[:0], w.names[:0], append(w.rows[:0], nil), 0
	w.frames++
	return err
}

// Shuffle reads shuffle files. It is safe for concurrent use.
type Shuffle struct {
	store blob.Store
	files []shuffleReader
}

// shuffleReader is one opened file.
type shuffleReader struct {
	key    string
	frames *codec.Frames
	parts  [Partitions]framedRows
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
	if f.TailBytes < 0 || f.DirectoryBytes < 1 || f.TailBytes > f.Bytes || f.DirectoryBytes > f.Bytes-f.TailBytes {
		return codec.Corrupt(f.Key, "tail", -1, fmt.Sprintf("tail and directory in %d bytes", f.Bytes), fmt.Sprintf("%d and %d", f.TailBytes, f.DirectoryBytes))
	}
	n := f.TailBytes + f.DirectoryBytes
	end, err := readShuffle(ctx, store, f.Key, f.Bytes-n, n)
	if err != nil {
		return err
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
	if r.frames, err = codec.OpenFramesAt(ctx, read, ff, f.Key, 0); err != nil {
		return err
	}
	last := r.frames.Len() - 1
	if last < 0 {
		return codec.Corrupt(f.Key, "directory", -1, "a frame", "none")
	}
	if _, size := r.frames.Place(last, last+1); size != f.DirectoryBytes {
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

func (r *shuffleReader) parseDirectory(dir []byte) (rows int64, err error) {
	d := codec.NewDecoder(dir, r.key, "directory")
	d.Magic(shuffleMagic, shuffleVersion)
	frames := r.frames.Len() - 1
	next, prev := 0, -1
	for n := d.Uint(Partitions); n > 0 && d.Err() == nil; n-- {
		part := int(d.U8())
		if part <= prev {
			d.Fail(fmt.Sprintf("a partition above %d", prev), part)
			break
		}
		prev = part
		p := framedRows{rows: int64(d.Uint(maxRows)), first: next}
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

// shuffleFetch is a read of frames [lo, hi) of a file.
type shuffleFetch struct {
	file   *shuffleReader
	lo, hi int
	// rows are those of all the file's fetches, where it is its last, else 0.
	rows int64
	done chan struct{}
	raw  []byte
	err  error
}

func (f *shuffleFetch) do(ctx context.Context, store blob.Store) {
	defer close(f.done)
	off, n := f.file.frames.Place(f.lo, f.hi)
	f.raw, f.err = readShuffle(ctx, store, f.file.key, off, n)
}

// readShuffle reads a range of a file that is said to have it.
func readShuffle(ctx context.Context, store blob.Store, key string, off, n int64) ([]byte, error) {
	b, err := store.ReadRange(ctx, key, off, n)
	if errors.Is(err, blob.ErrRange) {
		return nil, codec.Corrupt(key, "size", -1, fmt.Sprintf("%d bytes at least", off+n), err)
	}
	if err != nil {
		return nil, fmt.Errorf("read shuffle file: %w", err)
	}
	return b, nil
}

// fetches are the reads of partitions first to last of all files. The frames of neighbouring partitions lie side by side.
func (s *Shuffle) fetches(first, last byte) (out []*shuffleFetch) {
	for i := range s.files {
		r := &s.files[i]
		lo, end, rows := 0, 0, int64(0)
		for _, p := range r.parts[first : int(last)+1] {
			if p.rows > 0 {
				if rows == 0 {
					lo = p.first
				}
				end = p.end
				rows += p.rows
			}
		}
		for lo < end {
			f := &shuffleFetch{file: r, lo: lo, hi: lo + 1, done: make(chan struct{})}
			for f.hi < end {
				if _, n := r.frames.Place(lo, f.hi+1); n > shuffleRead {
					break
				}
				f.hi++
			}
			if lo = f.hi; lo == end {
				f.rows = rows
			}
			out = append(out, f)
		}
	}
	return out
}

// Load adds the rows of partitions first to last, both included, of all files to the buffer. When it is Full, Load calls full, which has to
// empty it.
func (b *RowBuffer) Load(ctx context.Context, s *Shuffle, first, last byte, full func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of reads under way
	fetches := s.fetches(first, last)
	var rows int64 // of the open file
	for i, f := range fetches {
		if i == 0 {
			for _, f := range fetches[:min(shuffleReads, len(fetches))] {
				go f.do(ctx, s.store)
			}
		} else if i+shuffleReads <= len(fetches) {
			go fetches[i+shuffleReads-1].do(ctx, s.store)
		}
		<-f.done
		if f.err != nil {
			return f.err
		}
		for i := f.lo; i < f.hi; i++ {
			_, size := f.file.frames.Place(i, i+1)
			frame, err := f.file.frames.Decode(i, f.raw[:size])
			if err != nil {
				return err
			}
			f.raw = f.raw[size:]
			n, err := b.adopt(f.file.key, i, frame, first, last)
			if err != nil {
				return err
			}
			rows += n
		}
		if f.rows > 0 {
			if rows != f.rows {
				return codec.Corrupt(f.file.key, "rows", -1, fmt.Sprintf("%d in partitions %02x to %02x", f.rows, first, last), rows)
			}
			rows = 0
		}
		if b.Full() {
			if err := full(); err != nil {
				return err
			}
		}
		fetches[i] = nil // whose memory is the buffer's
	}
	return nil
}

// adopt adds the rows of a frame, which it keeps, and returns their number. Each is looked at: what follows trusts their lengths.
func (b *RowBuffer) adopt(key string, number int, frame []byte, first, last byte) (added int64, err error) {
	section := fmt.Sprintf("frame %d", number)
	d := codec.NewDecoder(frame, key, section)
	slash := d.Uint(1)
	groups := int(d.Uint(uint64(len(frame))))
	names := int(d.Uint(uint64(len(frame))))
	heads := codec.NewDecoder(d.Bytes(groups), key, section+" groups")
	text := d.Bytes(names)
	rows := d.Bytes(d.Len())
	if err := d.Close(); err != nil {
		return 0, err
	}
	b.depth = min(b.depth, int(slash))
	at := 0
	for heads.Len() > 0 && heads.Err() == nil {
		hostSize := int(heads.Uint(uint64(len(text))))
		var domain, host string
		if own := int(heads.Uint(uint64(len(text) - hostSize + 1))); own > 0 {
			host, domain = view(text[:hostSize]), view(text[hostSize:hostSize+own-1])
			text = text[hostSize+own-1:]
		} else {
			size := int(heads.Uint(uint64(hostSize)))
			host, domain = view(text[:hostSize]), view(text[hostSize-size:hostSize])
			text = text[hostSize:]
		}
		count := heads.Uint(uint64(len(rows)))
		if count == 0 {
			heads.Fail("rows", "none")
		}
		if heads.Err() != nil {
			return 0, heads.Err()
		}
		id := urlnorm.DomainID(domain)
		if p := byte(id >> 56); p < first || p > last {
			heads.Fail(fmt.Sprintf("a domain of partitions %02x to %02x", first, last), fmt.Sprintf("%02x", p))
			return 0, heads.Err()
		}
		if len(host)+len(domain) > maxHost {
			heads.Fail(fmt.Sprintf("%d bytes of host and domain", maxHost), len(host)+len(domain))
			return 0, heads.Err()
		}
		from := at
		for range count {
			size := int64(0)
			if at+4 <= len(rows) {
				head := binary.LittleEndian.Uint32(rows[at:])
				size = int64(head >> tailBits)
				if kind := head & (1<<tailBits - 1); kind == ownTail && int64(at)+8+size <= int64(len(rows)) {
					size += 4 + int64(binary.LittleEndian.Uint32(rows[int64(at)+4+size:]))
				} else if kind >= ownTail {
					size = int64(len(rows))
				}
			}
			if int64(at)+4+size > int64(len(rows)) {
				heads.Fail("rows to the end of the frame", fmt.Sprintf("a row of %d bytes at %d of %d", size, at, len(rows)))
				return 0, heads.Err()
			}
			path := rows[at+4 : at+4+int(binary.LittleEndian.Uint32(rows[at:])>>tailBits)]
			if bytes.IndexByte(path, 0) >= 0 || slash == 1 && (len(path) == 0 || path[0] != '/') {
				heads.Fail("a path without a zero byte, and with a slash where all have one", fmt.Sprintf("another at %d", at))
				return 0, heads.Err()
			}
			at += 4 + int(size)
		}
		b.host(bufferHost{domain, host, id, int(count), rows[from:at:at]})
		added += int64(count)
	}
	if at != len(rows) || len(text) > 0 {
		heads.Fail("nothing after the last row", fmt.Sprintf("%d bytes", len(rows)-at+len(text)))
	}
	if heads.Err() != nil {
		return 0, heads.Err()
	}
	b.len += int(added)
	b.used += int64(len(rows)) + added*2*rowRefSize
	return added, nil
}
