package row

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
)

// Load adds the rows of partitions first to last, both included, of all files to the buffer. It
// calls full, which must empty the buffer, when the rows of the next file do not fit into the
// budget, and at the end if the buffer is Full. The rows of one file are loaded together, whatever
// the budget.
func (b *Buffer) Load(ctx context.Context, s *Shuffle, first, last byte, full func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of reads in flight
	l := b.shuffleLoad(s, first, last)
	l.shuffleScratch = shuffleScratches.Get().(*shuffleScratch)
	defer l.release()
	return l.all(func() error { return l.load(ctx) }, full)
}

// all calls load for as many files at a time as fit into the buffer, and full between these calls
// and, if the buffer is full, at the end.
func (l *shuffleLoad) all(load, full func() error) error {
	for next := 0; next < len(l.s.files); {
		if next = l.take(next, l.b.used); len(l.files) == 0 {
			break
		}
		if err := load(); err != nil {
			return err
		}
		if next < len(l.s.files) {
			if err := full(); err != nil {
				return err
			}
		}
	}
	if l.b.Full() {
		return full()
	}
	return nil
}

// Prefetch starts the first reads of the next Load, in the background, and returns at once. They
// are used if the next Load is of the same partitions of s, into an empty buffer; other reads are
// dropped. Ctx is the context of the reads: the caller cancels it when it no longer needs them.
func (b *Buffer) Prefetch(ctx context.Context, s *Shuffle, first, last byte) {
	l := b.shuffleLoad(s, first, last)
	if l.take(0, 0); len(l.files) == 0 {
		return
	}
	l.plan()
	b.prefetched = l
	// All hosts are read, and some rows; as in a load, shuffleReads reads are in flight at a time.
	from, end := l.started, min(len(l.files)+shufflePrefetch, len(l.fetches))
	for i := from; i < min(from+shuffleReads, end); i++ {
		go func() {
			for number := i; number < end; number += shuffleReads {
				l.fetches[number].do(ctx, s.store)
			}
		}()
	}
	l.started = max(from, end)
}

func (b *Buffer) shuffleLoad(s *Shuffle, first, last byte) *shuffleLoad {
	return &shuffleLoad{b: b, s: s, first: int(first), end: int(last) + 1}
}

// take sets l.files to the files of the next load: those with rows, from number from on, as many as
// fit into a buffer of which used bytes are used, but at least one. It returns the number of the
// next file with rows, or the number of files.
func (l *shuffleLoad) take(from int, used int64) (next int) {
	l.files = nil
	for next = from; next < len(l.s.files); next++ {
		r := &l.s.files[next]
		n := r.memory(l.first, l.end)
		if n == 0 {
			continue
		}
		if len(l.files) > 0 && used+n > l.b.budget {
			break
		}
		l.files = append(l.files, r)
		used += n
	}
	return next
}

// memory returns how much of a buffer's budget the rows of partitions first up to end, exclusive,
// take.
func (r *shuffleReader) memory(first, end int) (n int64) {
	for i := first; i < end; i++ {
		if p := &r.parts[i]; p.rows > 0 {
			n += p.rows*2*rowRefSize + r.rawSize(p.firstRows, p.endRows)
			n += p.hosts*hostOverhead + r.rawSize(p.firstHosts, p.endHosts)
		}
	}
	return n
}

// rawSize returns the size of the content of frames first up to end, exclusive.
func (r *shuffleReader) rawSize(first, end int) (n int64) {
	for i := first; i < end; i++ {
		n += r.frames.RawSize(i)
	}
	return n
}

// shuffleLoad loads rows of files into a buffer.
type shuffleLoad struct {
	b          *Buffer
	s          *Shuffle
	first, end int // partitions, end excluded
	files      []*shuffleReader
	fetches    []*shuffleFetch
	started    int // number of fetches that were started
	*shuffleScratch
}

// shuffleScratch is memory for loading.
type shuffleScratch struct {
	// hosts has the hosts of the first partition, one file after the other, then those of the next
	// partition. starts has where the hosts of each partition of each file begin.
	hosts  []bufferHost
	starts []int
	// offsets has, for each host, the offset of its next row in the lower half and the number of
	// its rows so far in the upper half. ends is what offsets is when all rows have been read.
	offsets, ends []uint64
	order, other  []hostRef
}

// nowhere is the offset of hosts without rows: the last byte that can have an offset, where no row
// fits.
const nowhere = 1<<32 - 1

var shuffleScratches = sync.Pool{New: func() any { return new(shuffleScratch) }}

func (l *shuffleLoad) release() {
	shuffleScratches.Put(l.shuffleScratch)
}

// load adds the rows of l.files to the buffer. After an error the buffer has the rows that it had.
func (l *shuffleLoad) load(ctx context.Context) error {
	b := l.b
	before := len(b.hosts)
	l.plan()
	defer l.drop()
	err := l.readHosts(ctx)
	if err == nil {
		err = l.reserve()
	}
	if err == nil {
		err = l.readRows(ctx)
	}
	if err != nil {
		b.hosts = b.hosts[:before]
		return err
	}
	b.groupWidth = 0
	// The hosts of an empty buffer are already in the order that Rows needs.
	if n := l.end - l.first; before == 0 && Partitions%n == 0 && l.first%n == 0 {
		b.order, l.order = l.order, b.order
		for i := range b.ends {
			b.ends[i] = 0
			if i >= l.first/n {
				b.ends[i] = len(b.order)
			}
		}
		b.groupWidth = n
	}
	for _, r := range l.files {
		for i := l.first; i < l.end; i++ {
			b.len += int(r.parts[i].rows)
		}
		b.used += r.memory(l.first, l.end)
		b.depth = min(b.depth, int(r.slash))
	}
	return nil
}

// plan sets l.fetches to the reads of l.files in the order in which they are needed: the hosts of
// each file, then the rows by partition. If Prefetch planned the same load, it takes over those
// reads.
func (l *shuffleLoad) plan() {
	p := l.b.prefetched
	l.b.prefetched = nil
	if p != nil && p.first == l.first && p.end == l.end && slices.Equal(p.files, l.files) {
		l.fetches, l.started = p.fetches, p.started
		return
	}
	l.fetches, l.started = nil, 0
	next, ends := make([]int, len(l.files)), make([]int, len(l.files))
	for i, r := range l.files {
		hosts := &shuffleFetch{file: r}
		for p := l.first; p < l.end; p++ {
			if part := &r.parts[p]; part.rows > 0 {
				if hosts.hi == 0 {
					hosts.lo = part.firstHosts
				}
				hosts.hi, ends[i] = part.endHosts, part.endRows
			}
		}
		l.fetches = append(l.fetches, hosts)
	}
	most := int64(shuffleRead)
	if l.end-l.first > 1 { // of one partition, each file's reads are used before those of the next file
		most = int64(min(shuffleRead, shuffleHeld/len(l.files)))
	}
	for p := l.first; p < l.end; p++ {
		for i, r := range l.files {
			for lo := max(next[i], r.parts[p].firstRows); lo < r.parts[p].endRows; lo = next[i] {
				f := &shuffleFetch{file: r, lo: lo, hi: lo + 1, pooled: most == shuffleRead}
				for f.hi < ends[i] {
					if _, n := r.frames.Range(lo, f.hi+1); n > most {
						break
					}
					f.hi++
				}
				next[i] = f.hi
				l.fetches = append(l.fetches, f)
			}
		}
	}
	for _, f := range l.fetches {
		f.done = make(chan struct{})
	}
}

// wait returns a fetch when it is done, and starts the fetches after it, up to shuffleReads at a
// time.
func (l *shuffleLoad) wait(ctx context.Context, number int) (*shuffleFetch, error) {
	for ; l.started < min(number+shuffleReads, len(l.fetches)); l.started++ {
		go l.fetches[l.started].do(ctx, l.s.store)
	}
	f := l.fetches[number]
	<-f.done
	return f, f.err
}

// drop forgets the reads, so that their memory can be freed.
func (l *shuffleLoad) drop() {
	l.fetches = nil
}

// shuffleFetch is a read of frames lo up to hi, exclusive, of a file.
type shuffleFetch struct {
	file   *shuffleReader
	lo, hi int
	pooled bool // read into a buffer of shuffleBuffers, if the frames fit
	done   chan struct{}
	raw    []byte // the frames that are not used yet, as stored
	buffer *shuffleBuffer
	err    error
}

// shuffleBuffers are for reads that are used soon after they are done.
var shuffleBuffers = sync.Pool{New: func() any { return new(shuffleBuffer) }}

type shuffleBuffer [shuffleRead + blob.AlignSlack]byte

// do reads the frames and closes f.done.
func (f *shuffleFetch) do(ctx context.Context, store blob.Store) {
	defer close(f.done)
	off, n := f.file.frames.Range(f.lo, f.hi)
	if f.pooled && n <= shuffleRead {
		f.buffer = shuffleBuffers.Get().(*shuffleBuffer)
		f.raw = blob.AlignedSlice(f.buffer[:], off, n)
	} else {
		f.raw = blob.NewAlignedSlice(off, n)
	}
	r, err := store.Open(ctx, f.file.key, off, n)
	if err == nil {
		_, err = io.ReadFull(r, f.raw)
		r.Close()
	}
	if err != nil {
		f.err = shuffleError(f.file.key, off+n, err)
	}
}

// frame returns the content of the next frame, whose number is given.
func (f *shuffleFetch) frame(number int) ([]byte, error) {
	_, n := f.file.frames.Range(number, number+1)
	data, err := f.file.frames.Decode(number, f.raw[:n])
	f.raw = f.raw[n:]
	return data, err
}

// release frees the memory of a read whose frames have all been used.
func (f *shuffleFetch) release() {
	if f.buffer != nil {
		shuffleBuffers.Put(f.buffer)
	}
	f.raw, f.buffer = nil, nil
}

// readHosts reads the hosts of all files into l.hosts. It sets l.order to those with rows, and
// l.ends to the number and size of each host's rows.
func (l *shuffleLoad) readHosts(ctx context.Context) error {
	hosts := 0
	for _, r := range l.files {
		for p := l.first; p < l.end; p++ {
			hosts += int(r.parts[p].hosts)
		}
	}
	l.hosts, l.ends = slices.Grow(l.hosts[:0], hosts), slices.Grow(l.ends[:0], hosts)
	l.order = slices.Grow(l.order[:0], hosts)
	l.starts = l.starts[:0]
	for p := l.first; p < l.end; p++ {
		for i, r := range l.files {
			f, err := l.wait(ctx, i)
			if err != nil {
				return err
			}
			part, start := &r.parts[p], len(l.hosts)
			l.starts = append(l.starts, start)
			if part.rows == 0 {
				continue
			}
			var rows, size uint64
			for number := part.firstHosts; number < part.endHosts; number++ {
				frame, err := f.frame(number)
				if err != nil {
					return err
				}
				m, n, err := l.addHosts(r.key, number, p, frame)
				if err != nil {
					return err
				}
				rows, size = rows+m, size+n
			}
			n, rowBytes := len(l.hosts)-start, r.rawSize(part.firstRows, part.endRows)
			if int64(n) != part.hosts || rows != uint64(part.rows) || size+4*rows != uint64(rowBytes) {
				return codec.Corrupt(r.key, "hosts", -1,
					fmt.Sprintf("%d with %d rows in %d bytes in partition %02x", part.hosts, part.rows, rowBytes, p),
					fmt.Sprintf("%d with %d in %d", n, rows, size+4*rows))
			}
		}
	}
	l.starts = append(l.starts, len(l.hosts))
	if n := len(l.b.names); n > 1<<(32-chunkBits) {
		return fmt.Errorf("read shuffle files: %d MiB of host names do not fit into one load", n>>(20-chunkBits))
	}
	return nil
}

// addHosts adds the hosts of a frame, and returns the number of their rows and the size of these.
func (l *shuffleLoad) addHosts(key string, number, partition int, frame []byte) (rows, size uint64, err error) {
	bad := func(at int, want, got any) (uint64, uint64, error) {
		return 0, 0, codec.Corrupt(key, fmt.Sprintf("frame %d", number), int64(at), want, got)
	}
	hosts, ends, order := l.hosts, l.ends, l.order
	for at := 0; at < len(frame); {
		if len(frame)-at < hostHeader {
			return bad(at, "a host", fmt.Sprintf("%d bytes", len(frame)-at))
		}
		counts, sizes := binary.LittleEndian.Uint64(frame[at:]), binary.LittleEndian.Uint32(frame[at+8:])
		length, own, names := int(sizes&(1<<16-1)), int(sizes>>16), int(sizes&(1<<16-1))
		if own >= ownDomain {
			own -= ownDomain
			names += own
		}
		if own > names || length+own > maxHost || names > len(frame)-at-hostHeader {
			return bad(at, fmt.Sprintf("names in %d bytes", min(maxHost, len(frame)-at-hostHeader)),
				fmt.Sprintf("%d and %d", length, own))
		}
		at += hostHeader
		text := frame[at : at+names]
		at += names
		h, end := bufferHost{rows: uint32(counts), length: uint16(length), domain: uint16(sizes >> 16)}, uint64(nowhere)
		if h.rows > 0 {
			end = counts<<32 | counts>>32
			var name []byte
			name, h.name = l.b.newName(names)
			copy(name, text)
			domain := View(text[names-own:])
			h.id = urlnorm.DomainID(domain)
			if p := int(h.id >> 56); p != partition {
				return bad(at-names, fmt.Sprintf("a domain of partition %02x", partition), fmt.Sprintf("%02x", p))
			}
			order = append(order, hostRef{domainCache(domain), uint32(len(hosts)), uint8(partition)})
		}
		hosts, ends = append(hosts, h), append(ends, end)
		rows += uint64(uint32(counts))
		size += counts >> 32
	}
	l.hosts, l.ends, l.order = hosts, ends, order
	return rows, size, nil
}

// reserve sorts the hosts of all files, adds them to the buffer, reserves memory for the rows of
// each, and sets l.offsets. It sorts one partition after the other, whose hosts fit into a core's
// cache.
func (l *shuffleLoad) reserve() error {
	b := l.b
	if len(l.order) == 0 {
		return nil
	}
	l.other = slices.Grow(l.other[:0], len(l.order))[:len(l.order)]

	known := slices.Grow(b.hosts, len(l.order))
	l.offsets = slices.Grow(l.offsets[:0], len(l.hosts))[:len(l.hosts)]
	copy(l.offsets, l.ends) // for hosts without rows
	order := l.other[:0]
	var end, free uint32 // of the last slab: the offset of its end, and how much is free
	for rest := l.order; len(rest) > 0; {
		p, n := rest[0].partition, 1
		for n < len(rest) && rest[n].partition == p {
			n++
		}
		hosts := rest[:n]
		rest = rest[n:]
		b.hosts = l.hosts
		sortRefs(hosts, l.other[len(order):])
		b.sortAlike(hosts)
		for i := 0; i < len(hosts); {
			h := l.hosts[hosts[i].host]
			size := int(uint32(l.ends[hosts[i].host]))
			first := i
			for i++; i < len(hosts) && hosts[i].cache == hosts[first].cache; i++ {
				k := &l.hosts[hosts[i].host]
				if !b.sameHost(&h, k) {
					break
				}
				h.rows += k.rows
				size += int(uint32(l.ends[hosts[i].host]))
			}
			if h.bytes = uint32(size); size > bufferRow {
				h.data = b.addChunks(make([]byte, size))
			} else {
				if free < uint32(size) {
					s := b.slab()
					b.slabs = append(b.slabs, s)
					end, free = b.addChunks(s[:])+bufferSlab, bufferSlab
				}
				h.data = end - free
				free -= uint32(size)
			}
			offset := h.data
			for _, o := range hosts[first:i] {
				l.offsets[o.host] = uint64(offset)
				l.ends[o.host] += uint64(offset)
				offset = uint32(l.ends[o.host])
			}
			order = append(order, hostRef{hosts[first].cache, uint32(len(known)), p})
			known = append(known, h)
		}
	}
	b.hosts = known
	if len(b.chunks) > 1<<(32-chunkBits) {
		return fmt.Errorf("read shuffle files: %d MiB of rows do not fit into one load", len(b.chunks)>>(20-chunkBits))
	}
	l.order, l.other = order, l.order
	// Merge the orders of the partitions.
	if l.end-l.first > 1 {
		sortRefs(order, l.other)
		for i := 0; i < len(order); {
			first, sorted := i, true
			for i++; i < len(order) && order[i].cache == order[first].cache; i++ {
				sorted = sorted && order[i].partition == order[i-1].partition && order[i].host > order[i-1].host
			}
			if !sorted {
				b.sortAlike(order[first:i])
			}
		}
	}
	return nil
}

// readRows reads rows, partition by partition, and copies each to its host's memory.
func (l *shuffleLoad) readRows(ctx context.Context) error {
	next := len(l.files)
	open := make([]*shuffleFetch, len(l.files))
	for p := l.first; p < l.end; p++ {
		for i, r := range l.files {
			part := &r.parts[p]
			number := (p-l.first)*len(l.files) + i
			from, to := l.starts[number], l.starts[number+1]
			offsets := l.offsets[from:to]
			for frame := part.firstRows; frame < part.endRows; frame++ {
				if open[i] == nil {
					var err error
					if open[i], err = l.wait(ctx, next); err != nil {
						return err
					}
					next++
				}
				rows, err := open[i].frame(frame)
				if err != nil {
					return err
				}
				if rest := l.scatter(rows, offsets, r.slash == 1); rest > 0 {
					return codec.Corrupt(r.key, fmt.Sprintf("frame %d", frame), int64(len(rows)-rest),
						"a valid row of a host of the partition", "another")
				}
				if open[i].hi == frame+1 {
					open[i].release()
					open[i] = nil
				}
			}
			if !slices.Equal(offsets, l.ends[from:to]) {
				return codec.Corrupt(r.key, "hosts", -1, fmt.Sprintf("the rows of partition %02x", p), "other counts or sizes")
			}
		}
	}
	return nil
}

// scatter copies rows to their hosts' memory and advances offsets. It returns how many bytes are
// left from the first invalid row on, 0 if all rows are valid. It checks every row, because sorting
// trusts their lengths and that paths have no zero bytes.
func (l *shuffleLoad) scatter(rows []byte, offsets []uint64, slash bool) (rest int) {
	for len(rows) >= 8 {
		host, header := binary.LittleEndian.Uint32(rows), binary.LittleEndian.Uint32(rows[4:])
		length := int(header >> SuffixBits)
		size := 4 + length
		if kind := header & (1<<SuffixBits - 1); kind == OwnSuffix && len(rows) >= 8+size {
			size += 4 + int(binary.LittleEndian.Uint32(rows[4+size:]))
		} else if kind >= OwnSuffix {
			break
		}
		if len(rows) < 4+size || int64(host) >= int64(len(offsets)) {
			break
		}
		path := rows[8 : 8+length]
		if bytes.IndexByte(path, 0) >= 0 || slash && (length == 0 || path[0] != '/') {
			break
		}
		offset := offsets[host]
		chunk, at := uint32(offset)>>chunkBits, int(offset&(1<<chunkBits-1))
		if int(chunk) >= len(l.b.chunks) || len(l.b.chunks[chunk])-at < size {
			break
		}
		copy(l.b.chunks[chunk][at:], rows[4:4+size])
		offsets[host] = offset + 1<<32 + uint64(size)
		rows = rows[4+size:]
	}
	return len(rows)
}
