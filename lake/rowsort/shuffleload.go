package rowsort

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
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/urlnorm"
)

// Load adds the rows of partitions first to last, both included, of all files to the buffer. Where the next file's do not fit into its budget, and at the end where it is Full, Load
// calls full, which has to empty it. What one file has is taken as a whole, whatever the budget.
func (b *Buffer) Load(ctx context.Context, s *Shuffle, first, last byte, full func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of reads under way
	l := b.shuffleLoad(s, first, last)
	l.shuffleScratch = shuffleScratches.Get().(*shuffleScratch)
	defer l.release()
	return l.all(func() error { return l.load(ctx) }, full)
}

// all calls load for the files of one load after the other, and full between them and at the end where the buffer is full.
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

// Ask has the reads begin that a Load of these partitions begins with, if they are what is loaded next, into the buffer when it is empty: that load need not wait for them. The
// context is that of the reads.
func (b *Buffer) Ask(ctx context.Context, s *Shuffle, first, last byte) {
	l := b.shuffleLoad(s, first, last)
	if l.take(0, 0); len(l.files) == 0 {
		return
	}
	l.plan()
	b.asked = l
	// Of thousands of files as many hosts are read at once as by a load.
	from, end := l.started, min(len(l.files)+shuffleAsked, len(l.fetches))
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

// take chooses the files of the next load, from a number on, and returns the number of the first of those behind them that has rows: as many as fit into a buffer
// of which so much is used.
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

// memory is what the rows of some partitions take in a buffer, 0 where there are none.
func (r *shuffleReader) memory(first, end int) (n int64) {
	for i := first; i < end; i++ {
		if p := &r.parts[i]; p.rows > 0 {
			n += p.rows*2*rowRefSize + p.hosts*hostOverhead + r.rawSize(p.firstRows, p.endRows) + r.rawSize(p.firstHosts, p.endHosts)
		}
	}
	return n
}

// rawSize is the size of frames.
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
	first, end int // partitions
	files      []*shuffleReader
	fetches    []*shuffleFetch
	started    int // fetches
	*shuffleScratch
}

// shuffleScratch is memory for loading.
type shuffleScratch struct {
	// Hosts are those of a partition of one file after the other, then of the next partition. Starts says where each of these begins.
	hosts  []bufferHost
	starts []int
	// Places say where the next row of a host goes, a chunk << chunkBits and a place in it, and in the upper half how many went there. Ends are what becomes of that.
	places, ends []uint64
	order, other []hostRef
}

// nowhere is the place of hosts without rows. No row fits there: it is the last byte that can have a place.
const nowhere = 1<<32 - 1

var shuffleScratches = sync.Pool{New: func() any { return new(shuffleScratch) }}

func (l *shuffleLoad) release() {
	shuffleScratches.Put(l.shuffleScratch)
}

// load adds the rows of files.
func (l *shuffleLoad) load(ctx context.Context) error {
	b := l.b
	before := len(b.hosts)
	l.plan()
	defer l.drop()
	err := l.readHosts(ctx)
	if err == nil {
		err = l.placeHosts()
	}
	if err == nil {
		err = l.readRows(ctx)
	}
	if err != nil {
		b.hosts = b.hosts[:before]
		return err
	}
	b.partsOf = 0
	if n := l.end - l.first; before == 0 && row.Partitions%n == 0 && l.first%n == 0 {
		b.order, l.order = l.order, b.order
		for i := range b.ends {
			b.ends[i] = 0
			if i >= l.first/n {
				b.ends[i] = len(b.order)
			}
		}
		b.partsOf = n
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

// plan plans the reads of files in the order in which they are needed: hosts of each file, then rows by partition.
func (l *shuffleLoad) plan() {
	asked := l.b.asked
	l.b.asked = nil
	if asked != nil && asked.first == l.first && asked.end == l.end && slices.Equal(asked.files, l.files) {
		l.fetches, l.started = asked.fetches, asked.started
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
	if l.end-l.first > 1 { // else the reads of a file are used up before the next one's
		most = int64(min(shuffleRead, shuffleHeld/len(l.files)))
	}
	for p := l.first; p < l.end; p++ {
		for i, r := range l.files {
			for lo := max(next[i], r.parts[p].firstRows); lo < r.parts[p].endRows; lo = next[i] {
				f := &shuffleFetch{file: r, lo: lo, hi: lo + 1, lent: most == shuffleRead}
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

// wait returns the fetch of that number when it is done.
func (l *shuffleLoad) wait(ctx context.Context, number int) (*shuffleFetch, error) {
	for ; l.started < min(number+shuffleReads, len(l.fetches)); l.started++ {
		go l.fetches[l.started].do(ctx, l.s.store)
	}
	f := l.fetches[number]
	<-f.done
	return f, f.err
}

// drop gives up the memory of reads.
func (l *shuffleLoad) drop() {
	l.fetches = nil
}

// shuffleFetch is a read of frames [lo, hi) of a file.
type shuffleFetch struct {
	file   *shuffleReader
	lo, hi int
	lent   bool // a buffer is lent for what is read, which need not stay
	done   chan struct{}
	raw    []byte // what is not used yet
	buffer *shuffleBuffer
	err    error
}

// shuffleBuffers are lent to reads.
var shuffleBuffers = sync.Pool{New: func() any { return new(shuffleBuffer) }}

type shuffleBuffer [shuffleRead + blob.AlignSlack]byte

func (f *shuffleFetch) do(ctx context.Context, store blob.Store) {
	defer close(f.done)
	off, n := f.file.frames.Range(f.lo, f.hi)
	if f.lent && n <= shuffleRead {
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

// frame returns the next frame, which has that number.
func (f *shuffleFetch) frame(number int) ([]byte, error) {
	_, n := f.file.frames.Range(number, number+1)
	data, err := f.file.frames.Decode(number, f.raw[:n])
	f.raw = f.raw[n:]
	return data, err
}

// release gives up what was read, of which all is used.
func (f *shuffleFetch) release() {
	if f.buffer != nil {
		shuffleBuffers.Put(f.buffer)
	}
	f.raw, f.buffer = nil, nil
}

// readHosts reads the hosts of all files.
func (l *shuffleLoad) readHosts(ctx context.Context) error {
	hosts := 0
	for _, r := range l.files {
		for p := l.first; p < l.end; p++ {
			hosts += int(r.parts[p].hosts)
		}
	}
	l.hosts, l.ends, l.order = slices.Grow(l.hosts[:0], hosts), slices.Grow(l.ends[:0], hosts), slices.Grow(l.order[:0], hosts)
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
			if n := len(l.hosts) - start; int64(n) != part.hosts || rows != uint64(part.rows) || size+4*rows != uint64(r.rawSize(part.firstRows, part.endRows)) {
				return codec.Corrupt(r.key, "hosts", -1, fmt.Sprintf("%d with %d rows in %d bytes in partition %02x", part.hosts, part.rows, r.rawSize(part.firstRows, part.endRows), p),
					fmt.Sprintf("%d with %d in %d", n, rows, size+4*rows))
			}
		}
	}
	l.starts = append(l.starts, len(l.hosts))
	if n := len(l.b.names); n > 1<<(32-chunkBits) {
		return fmt.Errorf("read shuffle files: %d MiB of names at once", n>>(20-chunkBits))
	}
	return nil
}

// addHosts adds the hosts of a frame, and returns how many rows they have and their size.
func (l *shuffleLoad) addHosts(key string, number, partition int, frame []byte) (rows, size uint64, err error) {
	bad := func(at int, want, got any) (uint64, uint64, error) {
		return 0, 0, codec.Corrupt(key, fmt.Sprintf("frame %d", number), int64(at), want, got)
	}
	hosts, ends, order := l.hosts, l.ends, l.order
	for at := 0; at < len(frame); {
		if len(frame)-at < hostHead {
			return bad(at, "a host", fmt.Sprintf("%d bytes", len(frame)-at))
		}
		counts, sizes := binary.LittleEndian.Uint64(frame[at:]), binary.LittleEndian.Uint32(frame[at+8:])
		length, own, names := int(sizes&(1<<16-1)), int(sizes>>16), int(sizes&(1<<16-1))
		if own >= ownDomain {
			own -= ownDomain
			names += own
		}
		if own > names || length+own > maxHost || names > len(frame)-at-hostHead {
			return bad(at, fmt.Sprintf("names in %d bytes", min(maxHost, len(frame)-at-hostHead)), fmt.Sprintf("%d and %d", length, own))
		}
		at += hostHead
		text := frame[at : at+names]
		at += names
		h, end := bufferHost{rows: uint32(counts), length: uint16(length), domain: uint16(sizes >> 16)}, uint64(nowhere)
		if h.rows > 0 {
			end = counts<<32 | counts>>32
			var name []byte
			name, h.name = l.b.newName(names)
			copy(name, text)
			domain := row.View(text[names-own:])
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

// placeHosts sorts the hosts of all files, tells the buffer of them, and has memory for the rows of each. It takes one partition after the other: what belongs to it lies together, and a core
// has it at hand.
func (l *shuffleLoad) placeHosts() error {
	b := l.b
	if len(l.order) == 0 {
		return nil
	}
	l.other = slices.Grow(l.other[:0], len(l.order))[:len(l.order)]

	known := slices.Grow(b.hosts, len(l.order))
	l.places = slices.Grow(l.places[:0], len(l.hosts))[:len(l.hosts)]
	copy(l.places, l.ends) // of hosts without rows
	order := l.other[:0]
	var end, room uint32 // of the last slab, and what is left of it
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
				h.data = b.newPlace(make([]byte, size))
			} else {
				if room < uint32(size) {
					s := b.slab()
					b.slabs = append(b.slabs, s)
					end, room = b.newPlace(s[:])+bufferSlab, bufferSlab
				}
				h.data = end - room
				room -= uint32(size)
			}
			place := h.data
			for _, o := range hosts[first:i] {
				l.places[o.host] = uint64(place)
				l.ends[o.host] += uint64(place)
				place = uint32(l.ends[o.host])
			}
			order = append(order, hostRef{hosts[first].cache, uint32(len(known)), p})
			known = append(known, h)
		}
	}
	b.hosts = known
	if len(b.chunks) > 1<<(32-chunkBits) {
		return fmt.Errorf("read shuffle files: %d MiB of rows at once", len(b.chunks)>>(20-chunkBits))
	}
	l.order, l.other = order, l.order
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

// readRows reads rows, partition by partition, and copies each to its place.
func (l *shuffleLoad) readRows(ctx context.Context) error {
	next := len(l.files)
	open := make([]*shuffleFetch, len(l.files))
	for p := l.first; p < l.end; p++ {
		for i, r := range l.files {
			part := &r.parts[p]
			number := (p-l.first)*len(l.files) + i
			from, to := l.starts[number], l.starts[number+1]
			places := l.places[from:to]
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
				if rest := l.scatter(rows, places, r.slash == 1); rest > 0 {
					return codec.Corrupt(r.key, fmt.Sprintf("frame %d", frame), int64(len(rows)-rest), "a row of a host", "another")
				}
				if open[i].hi == frame+1 {
					open[i].release()
					open[i] = nil
				}
			}
			if !slices.Equal(places, l.ends[from:to]) {
				return codec.Corrupt(r.key, "hosts", -1, fmt.Sprintf("as many rows of each of partition %02x as there are", p), "others")
			}
		}
	}
	return nil
}

// scatter copies rows to their places, and returns how many bytes are left from the first on that has none. It looks at each: what follows trusts their lengths, and that paths have no zero
// bytes.
func (l *shuffleLoad) scatter(rows []byte, places []uint64, slash bool) (rest int) {
	for len(rows) > 0 {
		rows = rows[scatterMany(rows, places, l.b.chunks, slash):]
		if len(rows) < 8 {
			break
		}
		host, head := binary.LittleEndian.Uint32(rows), binary.LittleEndian.Uint32(rows[4:])
		length := int(head >> row.SuffixBits)
		size := 4 + length
		if kind := head & (1<<row.SuffixBits - 1); kind == row.OwnSuffix && len(rows) >= 8+size {
			size += 4 + int(binary.LittleEndian.Uint32(rows[4+size:]))
		} else if kind >= row.OwnSuffix {
			break
		}
		if len(rows) < 4+size || int64(host) >= int64(len(places)) {
			break
		}
		path := rows[8 : 8+length]
		if bytes.IndexByte(path, 0) >= 0 || slash && (length == 0 || path[0] != '/') {
			break
		}
		place := places[host]
		chunk, at := uint32(place)>>chunkBits, int(place&(1<<chunkBits-1))
		if int(chunk) >= len(l.b.chunks) || len(l.b.chunks[chunk])-at < size {
			break
		}
		copy(l.b.chunks[chunk][at:], rows[4:4+size])
		places[host] = place + 1<<32 + uint64(size)
		rows = rows[4+size:]
	}
	return len(rows)
}
