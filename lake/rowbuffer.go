package lake

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
	"strings"
	"sync"

	"github.com/zeebo/xxh3"
)

// Partitions is the number of partitions rows are spread over: one for each value of the top byte of the domain_id.
const Partitions = 256

// errZeroByte: a row's key would be ambiguous.
var errZeroByte = errors.New("zero byte in a row's domain, host, path_query, scheme or extras")

// ErrRowTooLarge is the error of a row whose key would be longer than MaxKey.
var ErrRowTooLarge = errors.New("row too large")

// RowSink takes rows in their order, one of each record: PartWriter is one. What it is given is valid during the call.
type RowSink interface {
	// Host starts the rows of a host. Hosts ascend by domain, then host.
	Host(domain, host string, domainID uint64) error
	// Row is the next row of the host. Shared is the length of the longest prefix that path has in common with that of
	// the host's row before, 0 for its first. A tail at the same address as that of the row before is the same.
	Row(path []byte, shared int, tail *Tail) error
}

// RowBuffer collects rows in memory up to a budget, by host: what a row costs is its path, and domains
// and hosts are hashed, compared and sorted once each. It is not safe for concurrent use.
//
// Rows lie in blocks as they came. Each is a head, the path, and a tail unless it is a usual one:
//
//	u32 host number (of rows that were added; not of those in a shuffle file) | u32 head = length of the path << 2 | kind of the tail | path
//	kind 2: u32 length | tail as in a key
type RowBuffer struct {
	budget int64
	used   int64
	len    int

	hosts []bufferHost
	slots []hostSlot // of hosts by hash, open addressing; the length is a power of two
	mask  uint32
	names []byte // of the open block of names

	blocks []rowBlock
	slabs  []*[bufferSlab]byte
	spare  []*[bufferSlab]byte
	open   []byte // the open slab, at the end of blocks

	refs  []rowRef
	depth int // 1 while all paths begin with a slash, so that the first byte tells nothing, else 0
	tails [2]Tail
	turn  int
	sum   byte // of what was touched
}

// bufferHost is a host with rows.
type bufferHost struct {
	domain, host string
	id           uint64 // of the domain
	rows         int
	bytes        int64 // of the keys behind the host
	// end is where the next of its rows goes in refs, and at last where they end.
	end int
}

// hostSlot is a slot of the table of hosts: 1 + the host's number, 0 where it is empty, and some bits of its hash.
type hostSlot struct{ host, hash uint32 }

// rowBlock is a piece of memory with rows.
type rowBlock struct {
	data []byte
	// groups are those of a frame of a shuffle file; nil where each row has its host's number.
	groups []rowGroup
}

// rowGroup is rows of one host that lie together from an offset in a block on.
type rowGroup struct{ host, rows, at uint32 }

// rowRef finds a row. Cache holds eight bytes of its path from where the sort is looking.
type rowRef struct {
	cache      uint64
	block, off uint32 // of its path, in the data of the block
}

const (
	// bufferSlab is how much a RowBuffer allocates at a time. A row over bufferRow bytes has a block of its own, so that little
	// of a slab is left empty.
	bufferSlab = 4 << 20
	bufferRow  = bufferSlab / 16
	// rowOverhead is what a row takes beside path and tail: its head and its rowRef. hostOverhead is a bufferHost, its slots in a table that is a quarter full, and a hostRef.
	rowOverhead  = 8 + 16
	hostOverhead = 64 + 4*8 + 16
	// firstSlots is the size of the table of hosts of an empty buffer.
	firstSlots = 1 << 10

	// touchAhead is how many rows are looked at before they are used one after the other: rows of one host lie anywhere in the memory, and
	// a core waits for many lines of it at once as long as for one.
	touchAhead = 128
)

// NewRowBuffer makes a buffer of about budget bytes.
func NewRowBuffer(budget int64) *RowBuffer { return &RowBuffer{budget: budget, depth: 1} }

// Host returns the number of a host, for Add. It stands until the buffer is emptied, by WriteShuffle, or Release. Strings are copied.
func (b *RowBuffer) Host(domain, host string, domainID uint64) (uint32, error) {
	if len(b.slots) == 0 {
		b.slots, b.mask = make([]hostSlot, firstSlots), firstSlots-1
	}
	hash := uint32(xxh3.HashString(host) >> 32)
	at := hash & b.mask
	for ; b.slots[at].host != 0; at = (at + 1) & b.mask {
		if b.slots[at].hash != hash {
			continue
		}
		n := b.slots[at].host - 1
		if h := &b.hosts[n]; h.host == host && h.domain == domain {
			return n, nil
		}
	}
	if strings.IndexByte(domain, 0) >= 0 || strings.IndexByte(host, 0) >= 0 {
		return 0, errZeroByte
	}
	if len(domain)+len(host) > MaxKey {
		return 0, ErrRowTooLarge
	}
	n := uint32(len(b.hosts))
	b.hosts = append(b.hosts, bufferHost{domain: b.name(domain), host: b.name(host), id: domainID})
	b.slots[at] = hostSlot{n + 1, hash}
	b.used += int64(len(domain) + len(host) + hostOverhead)
	if len(b.hosts) > len(b.slots)/2 {
		b.grow()
	}
	return n, nil
}

// grow doubles the table of hosts.
func (b *RowBuffer) grow() {
	old := b.slots
	b.slots = make([]hostSlot, 2*len(old))
	b.mask = uint32(len(b.slots) - 1)
	for _, s := range old {
		if s.host == 0 {
			continue
		}
		at := s.hash & b.mask
		for b.slots[at].host != 0 {
			at = (at + 1) & b.mask
		}
		b.slots[at] = s
	}
}

// name copies a string.
func (b *RowBuffer) name(s string) string {
	if len(s) > cap(b.names)-len(b.names) {
		b.names = make([]byte, 0, max(64<<10, len(s)))
	}
	from := len(b.names)
	b.names = append(b.names, s...)
	return view(b.names[from:])
}

// Add copies a row of a host into the buffer. A row over MaxKey is refused with ErrRowTooLarge.
// The buffer takes a row also where Full; whoever fills it writes it out then.
func (b *RowBuffer) Add(host uint32, path []byte, tail *Tail) error {
	h := &b.hosts[host]
	kind := tail.kind()
	size, rest := len(path), 0 // of the row in memory, and of the tail in a key
	if kind == ownTail {
		rest = tail.keySize()
		size += 4 + rest
		if strings.IndexByte(tail.Scheme, 0) >= 0 || strings.IndexByte(tail.Extras, 0) >= 0 {
			return errZeroByte
		}
	} else {
		rest = len(usualKeys[kind])
	}
	if len(h.domain)+1+len(h.host)+1+len(path)+1+rest > MaxKey {
		return ErrRowTooLarge
	}
	if bytes.IndexByte(path, 0) >= 0 {
		return errZeroByte
	}
	dst := b.room(8 + size)
	binary.LittleEndian.PutUint32(dst, host)
	binary.LittleEndian.PutUint32(dst[4:], uint32(len(path))<<tailBits|uint32(kind))
	dst = dst[8:]
	copy(dst, path)
	if kind == ownTail {
		binary.LittleEndian.PutUint32(dst[len(path):], uint32(rest))
		tail.appendKey(dst[:len(path)+4])
	}
	if len(path) == 0 || path[0] != '/' {
		b.depth = 0
	}
	h.rows++
	h.bytes += int64(len(path) + 1 + rest)
	b.used += int64(size + rowOverhead)
	b.len++
	return nil
}

// room returns size bytes, at the end of the open slab unless they are many.
func (b *RowBuffer) room(size int) []byte {
	if size > bufferRow {
		b.closeSlab()
		data := make([]byte, size)
		b.blocks = append(b.blocks, rowBlock{data: data})
		return data
	}
	if cap(b.open)-len(b.open) < size {
		b.closeSlab()
		var slab *[bufferSlab]byte
		if n := len(b.spare); n > 0 {
			slab, b.spare = b.spare[n-1], b.spare[:n-1]
		} else {
			slab = bufferSlabs.Get().(*[bufferSlab]byte)
		}
		b.slabs = append(b.slabs, slab)
		b.open = slab[:0]
	}
	from := len(b.open)
	b.open = b.open[:from+size]
	return b.open[from : from+size]
}

// closeSlab ends the open slab.
func (b *RowBuffer) closeSlab() {
	if len(b.open) > 0 {
		b.blocks = append(b.blocks, rowBlock{data: b.open})
		// What is left of it is the next block.
		b.open = b.open[len(b.open):]
	}
}

// bufferSlabs are those of buffers that were released: half a gigabyte a split need not be cleared each time.
var bufferSlabs = sync.Pool{New: func() any { return new([bufferSlab]byte) }}

// Release drops all rows and hosts and gives the buffer's memory to others.
func (b *RowBuffer) Release() {
	for _, slab := range append(b.slabs, b.spare...) {
		bufferSlabs.Put(slab)
	}
	*b = *NewRowBuffer(b.budget)
}

// Empty drops all rows and hosts and keeps their memory.
func (b *RowBuffer) Empty() {
	clear(b.slots)
	clear(b.hosts)
	clear(b.blocks)
	b.spare = append(b.spare, b.slabs...)
	b.slabs, b.blocks, b.hosts, b.names, b.open = b.slabs[:0], b.blocks[:0], b.hosts[:0], nil, nil
	b.used, b.len, b.depth = 0, 0, 1
}

// Len is the number of rows in the buffer.
func (b *RowBuffer) Len() int { return b.len }

// Full reports that the budget is used up.
func (b *RowBuffer) Full() bool { return b.used >= b.budget }

// Count adds the number of rows of each partition and the bytes of their keys to what is there.
func (b *RowBuffer) Count(rows, keyBytes *[Partitions]int64) {
	for i := range b.hosts {
		h := &b.hosts[i]
		rows[h.id>>56] += int64(h.rows)
		keyBytes[h.id>>56] += int64(h.rows*(len(h.domain)+len(h.host)+2)) + h.bytes
	}
}

// Rows passes all rows to sink, in the order of their keys (see Row.AppendKey), one of each record: the one with the smallest raw
// URL. They stay in the buffer.
func (b *RowBuffer) Rows(ctx context.Context, sink RowSink) error {
	order := make([]hostRef, len(b.hosts))
	for i := range b.hosts {
		order[i] = hostRef{prefix8(b.hosts[i].domain), uint32(i)}
	}
	slices.SortFunc(order, func(x, y hostRef) int {
		if x.cache != y.cache {
			if x.cache < y.cache {
				return -1
			}
			return 1
		}
		h, k := &b.hosts[x.host], &b.hosts[y.host]
		return cmp.Or(strings.Compare(h.domain, k.domain), strings.Compare(h.host, k.host))
	})
	b.group(order)
	from, touched := 0, 0
	for _, o := range order {
		h := &b.hosts[o.host]
		if from >= touched {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			touched = min(from+touchAhead, len(b.refs))
			b.touch(b.refs[from:touched])
		}
		if err := b.pass(h, b.refs[from:h.end], sink); err != nil {
			return err
		}
		from = h.end
	}
	return nil
}

// hostRef finds a host. Cache holds the first bytes of its domain.
type hostRef struct {
	cache uint64
	host  uint32
}

// prefix8 is the first eight bytes of s, padded with zeros, as a number that sorts like them.
func prefix8(s string) uint64 {
	var b [8]byte
	copy(b[:], s)
	return binary.BigEndian.Uint64(b[:])
}

// group fills refs with all rows, by host in that order, those of a host as they came.
func (b *RowBuffer) group(order []hostRef) {
	n := 0
	for _, o := range order {
		b.hosts[o.host].end = n
		n += b.hosts[o.host].rows
	}
	b.refs = slices.Grow(b.refs[:0], n)[:n]
	b.closeSlab()
	for i := range b.blocks {
		data := b.blocks[i].data
		if b.blocks[i].groups == nil {
			for at := 0; at < len(data); {
				at = b.refer(&b.hosts[binary.LittleEndian.Uint32(data[at:])], data, uint32(i), at+4)
			}
			continue
		}
		for _, g := range b.blocks[i].groups {
			h, at := &b.hosts[g.host], int(g.at)
			for range g.rows {
				at = b.refer(h, data, uint32(i), at)
			}
		}
	}
}

// refer notes the row of a host at an offset of a block, and returns where the row ends.
func (b *RowBuffer) refer(h *bufferHost, data []byte, block uint32, at int) int {
	head := binary.LittleEndian.Uint32(data[at:])
	at += 4
	end := at + int(head>>tailBits)
	b.refs[h.end] = rowRef{loadPath(data[at:end], b.depth), block, uint32(at)}
	h.end++
	if head&(1<<tailBits-1) == ownTail {
		end += 4 + int(binary.LittleEndian.Uint32(data[end:]))
	}
	return end
}

// touch reads the beginnings of rows, so that they are on their way into the core's cache.
func (b *RowBuffer) touch(rows []rowRef) {
	for _, r := range rows {
		b.sum += b.blocks[r.block].data[r.off-1]
	}
}

// head is the head of a row in data.
func (r rowRef) head(data []byte) uint32 { return binary.LittleEndian.Uint32(data[r.off-4:]) }

// path is a row's path.
func (b *RowBuffer) path(r rowRef) []byte {
	data := b.blocks[r.block].data
	head := r.head(data)
	return data[r.off : r.off+head>>tailBits]
}

// tailKey is a row's tail as in a key.
func (b *RowBuffer) tailKey(r rowRef) []byte {
	data := b.blocks[r.block].data
	head := r.head(data)
	if kind := head & (1<<tailBits - 1); kind != ownTail {
		return usualKeys[kind]
	}
	at := r.off + head>>tailBits
	n := binary.LittleEndian.Uint32(data[at:])
	return data[at+4 : at+4+n]
}

// tail is a row's tail.
func (b *RowBuffer) tail(r rowRef) (*Tail, error) {
	data := b.blocks[r.block].data
	if kind := r.head(data) & (1<<tailBits - 1); kind != ownTail {
		return &usualTails[kind], nil
	}
	b.turn ^= 1
	t := &b.tails[b.turn]
	_, err := t.parse(b.tailKey(r))
	return t, err
}

// pass sorts the rows of a host and passes them on.
func (b *RowBuffer) pass(h *bufferHost, rows []rowRef, sink RowSink) error {
	if len(rows) == 0 {
		return nil
	}
	b.sort(rows, b.depth)
	if err := sink.Host(h.domain, h.host, h.id); err != nil {
		return err
	}
	var last []byte
	touched := touchAhead // the first of them are already
	for i, r := range rows {
		if i == touched {
			touched = min(i+touchAhead, len(rows))
			b.touch(rows[i:touched])
		}
		path := b.path(r)
		shared := 0
		if i > 0 {
			shared = commonPrefix(last, path)
			if shared == len(path) && shared == len(last) && b.sameRecord(rows[i-1], r) {
				continue
			}
		}
		last = path
		tail, err := b.tail(r)
		if err != nil {
			return err
		}
		if err := sink.Row(path, shared, tail); err != nil {
			return err
		}
	}
	return nil
}

// sameRecord reports whether rows with the same path differ in their raw URLs at most.
func (b *RowBuffer) sameRecord(x, y rowRef) bool {
	k, l := b.tailKey(x), b.tailKey(y)
	if bytes.Equal(k, l) {
		return true
	}
	var t Tail
	m, err := t.parse(k)
	if err != nil {
		return false
	}
	n, err := t.parse(l)
	return err == nil && bytes.Equal(k[:m], l[:n])
}

// smallSort is the number of rows up to which inserting them one by one is the fastest.
const smallSort = 16

// sort sorts rows that agree in their first depth bytes and have the next eight in their caches. It looks at the rows again only where these
// agree: URLs of one site share long beginnings, and a comparison of whole paths is mostly a cache miss.
// (The caching of Ng and Kakehi, "Cache efficient radix sort for string sorting", 2007.)
func (b *RowBuffer) sort(rows []rowRef, depth int) {
	for {
		if len(rows) <= smallSort {
			b.insert(rows)
			return
		}
		same := true
		for i := 1; i < len(rows) && same; i++ {
			same = rows[i].cache == rows[0].cache
		}
		if !same {
			slices.SortFunc(rows, func(x, y rowRef) int {
				switch {
				case x.cache < y.cache:
					return -1
				case x.cache > y.cache:
					return 1
				}
				return 0
			})
		}
		depth += 8
		// All but the longest of the groups that agree so far are sorted by recursion, that one by
		// the loop: the stack stays shallow however long the paths.
		var longest []rowRef
		for len(rows) > 0 {
			n := 1
			for n < len(rows) && rows[n].cache == rows[0].cache {
				n++
			}
			group := rows[:n]
			rows = rows[n:]
			if n > 1 {
				group = b.endedFirst(group, depth)
			}
			if len(group) > len(longest) {
				group, longest = longest, group
			}
			if len(group) > 1 {
				b.sort(group, b.deeper(group, depth))
			}
		}
		if len(longest) < 2 {
			return
		}
		rows, depth = longest, b.deeper(longest, depth)
	}
}

// deeper passes what all rows have in common and loads the caches from there.
func (b *RowBuffer) deeper(rows []rowRef, depth int) int {
	b.touch(rows)
	first := b.path(rows[0])
	shared := len(first)
	for _, r := range rows[1:] {
		path := b.path(r)
		if shared = depth + commonPrefix(first[depth:shared], path[depth:]); shared == depth {
			break
		}
	}
	for i := range rows {
		rows[i].cache = loadPath(b.path(rows[i]), shared)
	}
	return shared
}

// insert sorts few rows.
func (b *RowBuffer) insert(rows []rowRef) {
	for i := 1; i < len(rows); i++ {
		r := rows[i]
		j := i
		for ; j > 0 && (rows[j-1].cache > r.cache || rows[j-1].cache == r.cache && b.compare(rows[j-1], r) > 0); j-- {
			rows[j] = rows[j-1]
		}
		rows[j] = r
	}
}

// compare compares whole rows of a host.
func (b *RowBuffer) compare(x, y rowRef) int {
	if c := bytes.Compare(b.path(x), b.path(y)); c != 0 {
		return c
	}
	return bytes.Compare(b.tailKey(x), b.tailKey(y))
}

// endedFirst moves the rows of a group whose paths are not longer than depth to its front, in their order, and returns the
// others. In the caches those that ended look like rows with zero bytes there, and as beginnings of these come before them.
func (b *RowBuffer) endedFirst(group []rowRef, depth int) []rowRef {
	ended := 0
	for i, r := range group {
		if len(b.path(r)) <= depth {
			group[i], group[ended] = group[ended], group[i]
			ended++
		}
	}
	if ended > 1 {
		slices.SortFunc(group[:ended], func(x, y rowRef) int {
			return cmp.Or(len(b.path(x))-len(b.path(y)), bytes.Compare(b.tailKey(x), b.tailKey(y)))
		})
	}
	return group[ended:]
}

// loadPath returns the eight bytes of a path from depth on as a number that sorts like them, with zeros
// where it has ended.
func loadPath(path []byte, depth int) uint64 {
	if depth+8 <= len(path) {
		return binary.BigEndian.Uint64(path[depth:])
	}
	var last [8]byte
	if depth < len(path) {
		copy(last[:], path[depth:])
	}
	return binary.BigEndian.Uint64(last[:])
}

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
