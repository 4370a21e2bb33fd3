package row

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"sync"

	"github.com/urlake/urlake/lake/urlnorm"
)

// Buffer collects rows in memory up to a budget and passes them on sorted. It is not safe for
// concurrent use.
//
// Rows arrive in no order, and moving each to its host would be a cache miss a row. So rows are
// appended as they arrive, and only their 4-byte offsets are sorted by host. The visiting order is
// then known, so hosts, names and rows are touched by the dozen: many cache misses at once take
// hardly longer than one. The paths of one host are sorted at a time.
//
//	order    host 2  |  host 0  |  host 1             hosts with rows, by domain and host
//	offsets    24    |   4  34  |    14               of their rows, host by host
//
//	offset     4       14      24      34
//	blocks   0 row | 1 row | 2 row | 0 row | …        host number and row, as they were added
//
//	hosts    host 0 | host 1 | host 2 | …             id, number of rows, offset of the name, …
//	names    www.a.example | b.example | a.example …  in the order of host numbers
//
// Blocks and names are in slabs. An offset is the number of a chunk and a position in it; chunks
// are pieces of slabs and of larger rows.
//
// load adds rows in another way. It knows all hosts before it reads a row, so it reserves memory
// for each host and copies its rows there, one after the other and without host numbers. Their
// bufferHost has the offset of that memory in data and its size in bytes, and offsets has no entry
// for them.
type Buffer struct {
	budget int64
	// used is an upper bound: it counts the memory in which rows are sorted as if all but spared
	// rows had the same host. See Full.
	used   int64
	spared int
	full   bool
	len    int
	depth  int // 1 while all paths begin with a slash, so that sorting may skip it, else 0

	hosts []bufferHost
	names [][]byte // chunks of the hosts' names; bufferHost.name is an offset in it
	text  []byte   // the open slab of names, up to its last name

	// Blocks have the rows that were added, each as
	//	u32 host number | row
	// and a row is
	//	u32 length of the path << suffixBits | kind of the suffix; path
	//	if the kind is OwnSuffix: u32 length of the suffix; suffix as in a key
	blocks       [][]byte
	blockOffsets []uint32 // where blocks begin
	open         []byte   // the rest of the open slab from the block that is being filled on
	openOffset   uint32
	rowSlabs     []rowSlab // of blocks; the last one is the open slab
	chunks       [][]byte  // the memory of rows, see appendChunks

	// counts are of hosts by number, including hosts that are not known yet. The elements between
	// its length and its capacity are zero.
	counts []hostCount

	// order has all hosts with rows, by groups of groupWidth partitions and sorted within each
	// group; the hosts of group i end at ends[i]. groupWidth is 0 while nothing is sorted.
	order      []hostRef
	ends       [Partitions]int
	starts     [Partitions]int // where each group's rows start in offsets
	groupWidth int
	offsets    []uint32 // of the rows in blocks, in the order of their hosts

	// Scratch space of arrange.
	other []hostRef
	next  []uint32 // by host number: where in offsets the host's next row goes

	slabs []*[bufferSlab]byte // of names and loaded rows
	spare []*[bufferSlab]byte

	prefetched *shuffleLoad // the reads that prefetch started, for the next load

	// Scratch space for sorting the rows of one host.
	refs  []rowRef
	apart []rowRef

	touched byte // set by the functions that touch, so that the compiler keeps their reads

	// The arguments of the next call of Sink.Rows.
	passHosts    []SortedHost
	passRows     []SortedRow
	passSuffixes []Suffix
}

const (
	// bufferSlab is how much a Buffer allocates at a time. A row, or the loaded rows of a host, of
	// more than bufferRow bytes have memory of their own, so that little of a slab is left empty.
	bufferSlab = 4 << 20
	bufferRow  = bufferSlab / 16

	// rowOverhead is what a row takes besides its path and suffix: the number of its host, its
	// header and its offset. sortOverhead is what it takes while its host is sorted: two rowRefs.
	// hostOverhead is a bufferHost, its count, its element of next and two hostRefs.
	rowOverhead  = 4 + 4 + 4
	sortOverhead = 2 * rowRefSize
	rowRefSize   = 16
	hostOverhead = 32 + 8 + 4 + 2*16

	// maxVectorPath is the longest path that addVectors takes; longer ones are rare. It may write
	// vectorSlack bytes from the start of a row.
	maxVectorPath = 4 << 10
	vectorSlack   = 8 + maxVectorPath + 128

	// maxHost is the longest domain and host together: a DNS name has 253 bytes.
	maxHost = 1 << 10

	// touchBatch is how many hosts, or rows, are touched at a time and then used one after the
	// other.
	touchBatch = 64

	// touchSort is the number of rows of a host above which they may have left the nearest
	// caches before the sort returns to them.
	touchSort = 1024

	// pathSlack is how many bytes may be read after the end of a row.
	pathSlack = 8

	// passRows and passHosts are the most rows and hosts in one call of Sink.Rows. Many small hosts
	// share a call, and what the buffer reads for a call is still in the core's cache in the Sink.
	passRows  = 256
	passHosts = 128
)

// NewBuffer returns a Buffer that is full at about budget bytes, which are at most 1 GiB: offsets
// of rows have 32 bits.
func NewBuffer(budget int64) *Buffer {
	b := buffers.Get().(*Buffer)
	b.budget = budget
	return b
}

// buffers and bufferSlabs keep released memory. A split needs up to half a gigabyte, which would
// otherwise be cleared for each split.
var (
	buffers = sync.Pool{New: func() any {
		return &Buffer{
			depth:        1,
			passHosts:    make([]SortedHost, 0, passHosts),
			passRows:     make([]SortedRow, 0, passRows),
			passSuffixes: make([]Suffix, 0, passRows),
		}
	}}
	bufferSlabs = sync.Pool{New: func() any { return new([bufferSlab]byte) }}
)

// Hosts returns the number of known hosts, which is the number that the next host gets.
func (b *Buffer) Hosts() int { return len(b.hosts) }

// Host makes a host known and returns its number, for Add: 0, 1, 2 and so on until the buffer is
// emptied. A host may have several numbers; its rows are passed on together all the same.
func (b *Buffer) Host(domain, host string, domainID uint64) (uint32, error) {
	if strings.IndexByte(domain, 0) >= 0 || strings.IndexByte(host, 0) >= 0 {
		return 0, errZeroByte
	}
	if len(domain)+len(host) > maxHost {
		return 0, ErrRowTooLarge
	}
	b.PlainHost(domain, host, domainID)
	return uint32(len(b.hosts) - 1), nil
}

// PlainHost is Host for a host that urlnorm returned: it has no zero byte and is short.
func (b *Buffer) PlainHost(domain, host string, domainID uint64) {
	own := len(domain)
	if end := len(host) - own; end >= 0 && host[end:] == domain {
		domain = ""
	} else {
		own += ownDomain
	}
	text, offset := b.newName(len(host) + len(domain))
	copy(text[copy(text, host):], domain)
	b.groupWidth = 0
	b.hosts = append(b.hosts, bufferHost{
		id: domainID, name: offset, length: uint16(len(host)), domain: uint16(own),
	})
	b.used += int64(own&^ownDomain + len(host) + hostOverhead)
}

// GrowHosts allocates memory for n more hosts at once.
func (b *Buffer) GrowHosts(n int) { b.hosts = slices.Grow(b.hosts, n) }

// newName returns memory for a name and its offset. An empty name has an offset too. Slabs are
// never filled to their end, because an offset there would be in no chunk.
func (b *Buffer) newName(size int) ([]byte, uint32) {
	if cap(b.text)-len(b.text) <= size {
		slab := b.slab()
		b.slabs = append(b.slabs, slab)
		b.text, b.names = slab[:0], appendChunks(b.names, slab[:])
	}
	from := len(b.text)
	b.text = b.text[:from+size]
	return b.text[from:], uint32(len(b.names))<<chunkBits - bufferSlab + uint32(from)
}

// Add copies a row of a host into the buffer. The host's number may be one that Host is still to
// return before the rows are used. A row that would be longer than row.MaxKey as a key is rejected
// with row.ErrRowTooLarge. A Full buffer takes rows too; its owner is to write it out soon.
func (b *Buffer) Add(host uint32, path []byte, suffix *Suffix) error {
	kind, rest := suffix.kind(), 0
	size := len(path)
	if kind == OwnSuffix {
		rest = suffix.keySize()
		size += 4 + rest
		if suffix.hasZeroByte() {
			return errZeroByte
		}
	}
	if size > MaxKey-maxHost {
		return ErrRowTooLarge
	}
	if bytes.IndexByte(path, 0) >= 0 {
		return errZeroByte
	}
	dst := b.appendRow(host, path, kind, size)
	if kind == OwnSuffix {
		binary.LittleEndian.PutUint32(dst, uint32(rest))
		suffix.appendKey(dst[:4])
	}
	if len(path) == 0 || path[0] != '/' {
		b.depth = 0
	}
	return nil
}

// AddPlain is Add for a row without port, ts, size, extras and raw URL, whose scheme is https or
// else http. The path is one that [urlnorm.Normalizer.ParseBatch] returned: it begins with a slash
// and has no zero byte, which is not checked.
func (b *Buffer) AddPlain(host uint32, path []byte, https bool) error {
	kind := HTTPSuffix
	if https {
		kind = HTTPSSuffix
	}
	if len(path) > MaxKey-maxHost {
		return ErrRowTooLarge
	}
	b.appendRow(host, path, kind, len(path))
	return nil
}

// AddParsed is AddPlain for consecutive URLs of [urlnorm.Normalizer.ParseBatch]; the host of each
// is first + its Origin. It returns how many rows it added. It stops before a URL of an OtherOrigin
// or with a path that AddPlain rejects, and after the URL that makes the buffer Full.
func (b *Buffer) AddParsed(first uint32, urls []urlnorm.Parsed) (added int) {
	for added < len(urls) {
		if n := b.addMany(first, urls[added:]); n > 0 {
			added += n
			continue
		}
		p := &urls[added]
		if p.Kind == urlnorm.OtherOrigin || b.AddPlain(first+p.Origin, p.PathQuery, p.Kind == urlnorm.HTTPSOrigin) != nil {
			break
		}
		if added++; b.Full() {
			break
		}
	}
	return added
}

// appendRow appends a row of size bytes after its header, copies its path, and returns the memory
// after the path.
func (b *Buffer) appendRow(host uint32, path []byte, kind, size int) []byte {
	b.used += int64(size + rowOverhead + sortOverhead)
	b.len++
	b.groupWidth = 0
	if int(host) >= len(b.counts) {
		b.growCounts(int(host) + 1)
	}
	c := &b.counts[host]
	c.rows++
	c.bytes += uint32(4 + size)
	dst := b.allocate(8 + size)
	binary.LittleEndian.PutUint64(dst, uint64(host)|uint64(len(path)<<suffixBits|kind)<<32)
	dst = dst[8:]
	return dst[copy(dst, path):]
}

// growCounts makes counts of at least n hosts.
func (b *Buffer) growCounts(n int) {
	n = max(n, 2*len(b.counts), 1<<10)
	if n > cap(b.counts) {
		b.counts = append(make([]hostCount, 0, n), b.counts...)
	}
	b.counts = b.counts[:n]
}

// allocate returns size bytes of a block: at the end of the open block, or of a block of their own
// if they are many.
func (b *Buffer) allocate(size int) []byte {
	if size > bufferRow {
		b.closeBlock()
		data := make([]byte, size+pathSlack)
		b.blocks, b.blockOffsets = append(b.blocks, data[:size]), append(b.blockOffsets, b.addChunks(data))
		return data[:size]
	}
	if cap(b.open)-len(b.open) < size+pathSlack {
		b.closeBlock()
		slab := b.slab()
		b.rowSlabs = append(b.rowSlabs, rowSlab{slab, len(b.blocks)})
		b.open, b.openOffset = slab[:0], b.addChunks(slab[:])
	}
	from := len(b.open)
	b.open = b.open[:from+size]
	return b.open[from:]
}

// rowSlab is a slab of blocks. Its first block has the number from, if it has any.
type rowSlab struct {
	slab *[bufferSlab]byte
	from int
}

// releaseSlabs returns the slabs of the first blocks to a pool. Their rows are no longer used.
func (b *Buffer) releaseSlabs(blocks int) {
	n := 0
	for n+1 < len(b.rowSlabs) && b.rowSlabs[n+1].from <= blocks {
		bufferSlabs.Put(b.rowSlabs[n].slab)
		n++
	}
	b.rowSlabs = slices.Delete(b.rowSlabs, 0, n)
}

// closeBlock ends the open block. The next block is the rest of its slab.
func (b *Buffer) closeBlock() {
	if len(b.open) > 0 {
		b.blocks, b.blockOffsets = append(b.blocks, b.open), append(b.blockOffsets, b.openOffset)
		b.openOffset += uint32(len(b.open))
		b.open = b.open[len(b.open):]
	}
}

// addChunks adds memory for rows and returns its offset.
func (b *Buffer) addChunks(data []byte) uint32 {
	offset := uint32(len(b.chunks)) << chunkBits
	b.chunks = appendChunks(b.chunks, data)
	return offset
}

func (b *Buffer) slab() *[bufferSlab]byte {
	if n := len(b.spare); n > 0 {
		slab := b.spare[n-1]
		b.spare = b.spare[:n-1]
		return slab
	}
	return bufferSlabs.Get().(*[bufferSlab]byte)
}

// Release removes all rows and hosts and returns the buffer's memory to a pool. The buffer must not
// be used afterwards.
func (b *Buffer) Release() {
	b.Shrink()
	b.prefetched = nil
	buffers.Put(b)
}

// Shrink removes all rows and hosts and returns the memory of rows to a pool.
func (b *Buffer) Shrink() {
	b.empty()
	for _, slab := range b.spare {
		bufferSlabs.Put(slab)
	}
	clear(b.spare)
	b.spare = b.spare[:0]
}

// empty removes all rows and hosts and keeps their memory.
func (b *Buffer) empty() {
	b.spare = append(b.spare, b.slabs...)
	for _, s := range b.rowSlabs {
		b.spare = append(b.spare, s.slab)
	}
	clear(b.counts)
	clear(b.slabs)
	clear(b.rowSlabs)
	clear(b.blocks)
	clear(b.chunks)
	clear(b.names)
	clear(b.passHosts[:cap(b.passHosts)])
	clear(b.passRows[:cap(b.passRows)])
	clear(b.passSuffixes[:cap(b.passSuffixes)])
	b.slabs, b.rowSlabs, b.chunks = b.slabs[:0], b.rowSlabs[:0], b.chunks[:0]
	b.blocks, b.blockOffsets = b.blocks[:0], b.blockOffsets[:0]
	b.hosts, b.names, b.counts = b.hosts[:0], b.names[:0], b.counts[:0]
	b.open, b.text = nil, nil
	b.used, b.spared, b.full, b.len, b.depth, b.groupWidth = 0, 0, false, 0, 1, 0
}

// Len returns the number of rows in the buffer.
func (b *Buffer) Len() int { return b.len }

// Full reports whether the budget is used up.
func (b *Buffer) Full() bool {
	if b.used >= b.budget && !b.full {
		b.spareHosts()
		// When little is left, most calls would count the rows of hosts again.
		b.full = b.used >= b.budget-b.budget/fullShare
	}
	return b.full
}

// fullShare is the share of the budget that may stay unused, as a divisor, and the share of all
// rows that makes a host a large one.
const fullShare = 64

// spareHosts counts memory to sort in for large hosts alone: hosts are sorted one at a time. It is
// counted for all of them: they may be one host with several numbers.
func (b *Buffer) spareHosts() {
	spared := 0
	for _, c := range b.counts {
		if int(c.rows) <= b.len/fullShare {
			spared += int(c.rows)
		}
	}
	for i := range b.hosts {
		if h := &b.hosts[i]; h.bytes > 0 && int(h.rows) <= b.len/fullShare {
			spared += int(h.rows)
		}
	}
	b.used -= int64(spared-b.spared) * sortOverhead
	b.spared = spared
}

// keyRest is how many bytes the key of a row has at most besides its domain and host, their zero
// bytes, and the bytes of the row in the buffer.
const keyRest = len("\x00https\x00\x00\x00\x00\x00") - 4

// Count adds the number of rows of each partition to rows, and an upper bound of the size of their
// keys to keyBytes. Both are sums over rows and do not depend on how rows are divided among
// buffers.
func (b *Buffer) Count(rows, keyBytes *[Partitions]int64) {
	b.finishAdding()
	for i, c := range b.counts[:len(b.hosts)] {
		h := &b.hosts[i]
		rows[h.id>>56] += int64(c.rows)
		keyBytes[h.id>>56] += h.keyBytes(c.rows, c.bytes)
	}
}

// finishAdding closes the open block and gives every known host a count.
func (b *Buffer) finishAdding() {
	b.closeBlock()
	if len(b.counts) < len(b.hosts) {
		b.growCounts(len(b.hosts))
	}
}

// rowSize returns the size of the row at the beginning of data.
func rowSize(data []byte) int {
	header := binary.LittleEndian.Uint32(data)
	size := 4 + int(header>>suffixBits)
	if header&(1<<suffixBits-1) == OwnSuffix {
		size += 4 + int(binary.LittleEndian.Uint32(data[size:]))
	}
	return size
}

// chunkBits is the number of low bits of an offset, which are a position in a chunk; the others are
// the chunk's number. A large row or host leaves less than one chunk empty and a slab at most a
// sixteenth, so 32 bits are enough for the offsets of all rows of a Buffer.
const chunkBits = 18

// appendChunks appends the chunks of data. Each starts 1<<chunkBits bytes after the one before and
// ends with data, so that a row that starts in one chunk is read from that chunk to its end.
func appendChunks(chunks [][]byte, data []byte) [][]byte {
	for at := 0; at < len(data); at += 1 << chunkBits {
		chunks = append(chunks, data[at:])
	}
	return chunks
}

// listOffsets sets offsets to the offsets of the rows in blocks, by hosts in order, which has all
// hosts with rows.
func (b *Buffer) listOffsets(order []hostRef) {
	if n := len(b.hosts); cap(b.next) < n {
		b.next = make([]uint32, n)
	}
	if cap(b.offsets) < b.len {
		b.offsets = make([]uint32, b.len)
	}
	next := b.next[:len(b.hosts)]
	rows, from := uint32(0), 0
	for group, end := range b.ends {
		b.starts[group] = int(rows)
		for _, o := range order[from:max(from, end)] {
			next[o.host] = rows
			rows += b.counts[o.host].rows
		}
		from = max(from, end)
	}
	offsets := b.offsets[:rows]
	b.offsets = offsets
	for i, data := range b.blocks {
		for offset := b.blockOffsets[i] + 4; len(data) > 0; {
			to := &next[binary.LittleEndian.Uint32(data)]
			offsets[*to] = offset
			*to++
			size := 4 + rowSize(data[4:])
			offset += uint32(size)
			data = data[size:]
		}
	}
}
