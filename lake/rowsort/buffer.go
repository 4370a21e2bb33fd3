package rowsort

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"sync"

	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/urlnorm"
)

// RowBuffer collects rows in memory up to a budget. It is not safe for concurrent use.
//
// Rows come in no order, and a core that looks for each in a memory of many megabytes does little else. So they are written one after the other as
// they come, and when all are there their places are written down by host, hosts in the order in which they are needed. Whoever goes through hosts and
// places then knows what comes next, and asks for it long before: a core waits for many lines of its memory at once as long as for one. What is
// sorted at a time is one host's paths.
type Buffer struct {
	budget int64
	used   int64
	len    int
	depth  int // 1 while all paths begin with a slash, so that the first byte tells nothing, else 0

	// Names are those of hosts, of which bufferHost.name is a place. Text is the end of the open slab.
	hosts []bufferHost
	names [][]byte
	text  []byte

	// Blocks have the rows that were added, each as
	//	u32 host number | row
	// and a row is
	//	u32 length of the path << 2 | kind of the tail; path; of kind 2 u32 length, tail as in a key
	blocks  [][]byte
	blockAt []uint32 // the places where they begin
	open    []byte   // the end of the open slab, which is no block yet
	openAt  uint32
	chunks  [][]byte // the memory of rows: a place is a chunk << chunkBits and an offset in it
	// Counts are of hosts by their numbers, those that have none yet included. Behind them all is zero up to their capacity.
	counts []hostCount
	// Order is of all hosts with rows, by groups of partsOf partitions and sorted within each; those of group i end at ends[i]. PartsOf is 0 while nothing is
	// sorted.
	order   []hostRef
	ends    [row.Partitions]int
	starts  [row.Partitions]int // of each group's rows in places
	partsOf int
	// Places are those of the rows in blocks, in the order of their hosts.
	places []uint32

	// Scratch space of arrange.
	other []hostRef
	next  []uint32 // where in places the next row of a host goes

	slabs []*[bufferSlab]byte // of blocks and names
	spare []*[bufferSlab]byte

	asked *shuffleLoad // what Ask began, for the next load

	// Of the host whose rows are sorted.
	refs  []rowRef
	apart []rowRef
	ranks [128]uint64

	// What is passed on next.
	passHosts []row.SortedHost
	passRows  []row.SortedRow
	passTails []row.Suffix
}

const (
	// bufferSlab is how much a RowBuffer allocates at a time. A row, and the rows of a host, over bufferRow bytes have memory of their own, so that little
	// of a slab is left empty.
	bufferSlab = 4 << 20
	bufferRow  = bufferSlab / 16
	// rowOverhead is what a row takes beside path and tail, which are in memory twice: the number of its host, two heads, and while its host's rows are sorted two
	// rowRefs. hostOverhead is a bufferHost, its count, where its rows go and two hostRefs.
	rowOverhead  = 4 + 2*4 + 2*rowRefSize
	rowRefSize   = 16
	hostOverhead = 32 + 8 + 4 + 2*16

	// maxVectorPath is the longest path that addVectors takes; longer ones are rare. vectorRoom is what it may write behind the place where a row starts.
	maxVectorPath = 4 << 10
	vectorRoom    = 8 + maxVectorPath + 128

	// maxHost is the longest domain and host together: a DNS name has 253 bytes.
	maxHost = 1 << 10

	// askAhead is how many hosts, or rows, are asked for at a time before they are used one after the other, and rowsAhead how many rows are under way of hosts that follow
	// each other: eight at least are asked for at a time.
	askAhead  = 32
	rowsAhead = 48

	// askSort is the number of rows of a host above which it is not to be expected that they are still in the core's nearest caches when they have been looked at once.
	askSort = 1024

	// pathRoom is what may be read behind the end of a row.
	pathRoom = 8

	// passRows is how many rows are passed on at a time, and passHosts how many hosts: many small hosts share the call, and what was looked at stays in the core's cache.
	PassRows  = 256
	PassHosts = 128
)

// NewRowBuffer makes a buffer of about budget bytes, 1 GiB at most: places of rows are 32 bits.
func NewBuffer(budget int64) *Buffer {
	b := rowBuffers.Get().(*Buffer)
	b.budget = budget
	return b
}

// rowBuffers and bufferSlabs are memory that was released: what a split needs of it, which can be half a gigabyte, need not be cleared each time.
var (
	rowBuffers = sync.Pool{New: func() any {
		return &Buffer{depth: 1, passHosts: make([]row.SortedHost, 0, PassHosts), passRows: make([]row.SortedRow, 0, PassRows), passTails: make([]row.Suffix, 0, PassRows)}
	}}
	bufferSlabs = sync.Pool{New: func() any { return new([bufferSlab]byte) }}
)

// Hosts is the number of hosts that are known: the next is given this number.
func (b *Buffer) Hosts() int { return len(b.hosts) }

// Host makes a host known and returns its number, for Add: 0, 1, 2 and so on until the buffer is emptied. A host may have several
// numbers; its rows are together all the same.
func (b *Buffer) Host(domain, host string, domainID uint64) (uint32, error) {
	if strings.IndexByte(domain, 0) >= 0 || strings.IndexByte(host, 0) >= 0 {
		return 0, row.ErrZeroByte
	}
	if len(domain)+len(host) > maxHost {
		return 0, row.ErrRowTooLarge
	}
	b.PlainHost(domain, host, domainID)
	return uint32(len(b.hosts) - 1), nil
}

// PlainHost is Host for a host as urlnorm returns it, which has no zero byte and is short.
func (b *Buffer) PlainHost(domain, host string, domainID uint64) {
	own := len(domain)
	if end := len(host) - own; end >= 0 && host[end:] == domain {
		domain = ""
	} else {
		own += ownDomain
	}
	text, place := b.newName(len(host) + len(domain))
	copy(text[copy(text, host):], domain)
	b.partsOf = 0
	b.hosts = append(b.hosts, bufferHost{id: domainID, name: place, length: uint16(len(host)), domain: uint16(own)})
	b.used += int64(own&^ownDomain + len(host) + hostOverhead)
}

// GrowHosts makes room for n more hosts.
func (b *Buffer) GrowHosts(n int) { b.hosts = slices.Grow(b.hosts, n) }

// newName returns memory for a name and its place. An empty one has a place too: no slab is filled to its end, for what begins there is in none.
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

// Add copies a row of a host into the buffer, whose number may also be one that Host will give before the rows are used. A row over MaxKey is refused with ErrRowTooLarge.
// The buffer takes a row also where Full; whoever fills it writes it out then.
func (b *Buffer) Add(host uint32, path []byte, tail *row.Suffix) error {
	kind, rest := tail.Kind(), 0
	size := len(path)
	if kind == row.OwnSuffix {
		rest = tail.KeySize()
		size += 4 + rest
		if strings.IndexByte(tail.Scheme, 0) >= 0 || strings.IndexByte(tail.Extras, 0) >= 0 {
			return row.ErrZeroByte
		}
	}
	if size > row.MaxKey-maxHost {
		return row.ErrRowTooLarge
	}
	if bytes.IndexByte(path, 0) >= 0 {
		return row.ErrZeroByte
	}
	dst := b.row(host, path, kind, size)
	if kind == row.OwnSuffix {
		binary.LittleEndian.PutUint32(dst, uint32(rest))
		tail.AppendKey(dst[:4])
	}
	if len(path) == 0 || path[0] != '/' {
		b.depth = 0
	}
	return nil
}

// AddPlain is Add of a row that has neither port nor ts, size, extras or raw URL and whose scheme is https or else http. The path is one that
// [urlnorm.Normalizer.ParseBatch] returned: it begins with a slash, and is not looked at for zero bytes, which it does not have.
func (b *Buffer) AddPlain(host uint32, path []byte, https bool) error {
	kind := row.HTTPSuffix
	if https {
		kind = row.HTTPSSuffix
	}
	if len(path) > row.MaxKey-maxHost {
		return row.ErrRowTooLarge
	}
	b.row(host, path, kind, len(path))
	return nil
}

// AddParsed is AddPlain of URLs of which [urlnorm.Normalizer.ParseBatch] says that they have an HTTPOrigin or HTTPSOrigin, with the host first + Origin. It returns how many
// rows it added: all up to the first URL that is another or has a path that AddPlain refuses, or up to that which made the buffer Full.
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

// row adds a row of size bytes after its head, and returns what is behind the path.
func (b *Buffer) row(host uint32, path []byte, kind, size int) []byte {
	b.used += int64(2*size + rowOverhead)
	b.len++
	b.partsOf = 0
	if int(host) >= len(b.counts) {
		b.growCounts(int(host) + 1)
	}
	c := &b.counts[host]
	c.rows++
	c.bytes += uint32(4 + size)
	dst := b.room(8 + size)
	binary.LittleEndian.PutUint64(dst, uint64(host)|uint64(len(path)<<row.SuffixBits|kind)<<32)
	dst = dst[8:]
	return dst[copy(dst, path):]
}

// growCounts makes counts of n hosts at least.
func (b *Buffer) growCounts(n int) {
	n = max(n, 2*len(b.counts), 1<<10)
	if n > cap(b.counts) {
		b.counts = append(make([]hostCount, 0, n), b.counts...)
	}
	b.counts = b.counts[:n]
}

// room returns size bytes, at the end of the open slab unless they are many.
func (b *Buffer) room(size int) []byte {
	if size > bufferRow {
		b.closeBlock()
		data := make([]byte, size+pathRoom)
		b.blocks, b.blockAt = append(b.blocks, data[:size]), append(b.blockAt, b.newPlace(data))
		return data[:size]
	}
	if cap(b.open)-len(b.open) < size+pathRoom {
		b.closeBlock()
		slab := b.slab()
		b.slabs = append(b.slabs, slab)
		b.open, b.openAt = slab[:0], b.newPlace(slab[:])
	}
	from := len(b.open)
	b.open = b.open[:from+size]
	return b.open[from:]
}

// closeBlock ends the open block. What is left of its slab is the next.
func (b *Buffer) closeBlock() {
	if len(b.open) > 0 {
		b.blocks, b.blockAt = append(b.blocks, b.open), append(b.blockAt, b.openAt)
		b.openAt += uint32(len(b.open))
		b.open = b.open[len(b.open):]
	}
}

// newPlace returns the place of a new memory of blocks.
func (b *Buffer) newPlace(data []byte) uint32 {
	place := uint32(len(b.chunks)) << chunkBits
	b.chunks = appendChunks(b.chunks, data)
	return place
}

func (b *Buffer) slab() *[bufferSlab]byte {
	if n := len(b.spare); n > 0 {
		slab := b.spare[n-1]
		b.spare = b.spare[:n-1]
		return slab
	}
	return bufferSlabs.Get().(*[bufferSlab]byte)
}

// Release drops all rows and hosts and gives the buffer's memory to others. The buffer is of no use after it.
func (b *Buffer) Release() {
	b.Shrink()
	b.asked = nil
	rowBuffers.Put(b)
}

// Shrink drops all rows and hosts and gives the memory of rows to others.
func (b *Buffer) Shrink() {
	b.Empty()
	for _, slab := range b.spare {
		bufferSlabs.Put(slab)
	}
	clear(b.spare)
	b.spare = b.spare[:0]
}

// Empty drops all rows and hosts and keeps their memory.
func (b *Buffer) Empty() {
	b.spare = append(b.spare, b.slabs...)
	clear(b.counts)
	clear(b.blocks)
	clear(b.chunks)
	clear(b.names)
	clear(b.passHosts[:cap(b.passHosts)])
	clear(b.passRows[:cap(b.passRows)])
	clear(b.passTails[:cap(b.passTails)])
	b.slabs, b.blocks, b.blockAt, b.chunks = b.slabs[:0], b.blocks[:0], b.blockAt[:0], b.chunks[:0]
	b.hosts, b.names, b.counts = b.hosts[:0], b.names[:0], b.counts[:0]
	b.open, b.text = nil, nil
	b.used, b.len, b.depth, b.partsOf = 0, 0, 1, 0
}

// Len is the number of rows in the buffer.
func (b *Buffer) Len() int { return b.len }

// Full reports that the budget is used up.
func (b *Buffer) Full() bool { return b.used >= b.budget }

// keyRest is what the key of a row has at most beyond domain, host, their ends and the row as it is here: the scheme and the ends of the others, less the head.
const keyRest = len("\x00https\x00\x00\x00\x00\x00") - 4

// Count adds the rows of each partition, and the bytes that their keys have at most, to what is there. Both are sums over rows, whatever
// buffers they are in.
func (b *Buffer) Count(rows, keyBytes *[row.Partitions]int64) {
	b.settle()
	for i, c := range b.counts[:len(b.hosts)] {
		h := &b.hosts[i]
		rows[h.id>>56] += int64(c.rows)
		keyBytes[h.id>>56] += h.keyBytes(c.rows, c.bytes)
	}
}

// settle ends the open block, and sees to it that all hosts have counts.
func (b *Buffer) settle() {
	b.closeBlock()
	if len(b.counts) < len(b.hosts) {
		b.growCounts(len(b.hosts))
	}
}

// rowSize is the size of the row at the beginning of data.
func rowSize(data []byte) int {
	head := binary.LittleEndian.Uint32(data)
	size := 4 + int(head>>row.SuffixBits)
	if head&(1<<row.SuffixBits-1) == row.OwnSuffix {
		size += 4 + int(binary.LittleEndian.Uint32(data[size:]))
	}
	return size
}

// chunkBits are the bits of an offset in a chunk: memory is cut into chunks of that size, each with all that follows. A row or host that is large leaves less than one of
// them empty, and a slab a sixteenth, so that 32 bits are enough for the places of all rows of a RowBuffer.
const chunkBits = 18

// appendChunks appends the chunks of a memory.
func appendChunks(chunks [][]byte, data []byte) [][]byte {
	for at := 0; at < len(data); at += 1 << chunkBits {
		chunks = append(chunks, data[at:])
	}
	return chunks
}

// place writes down the places of the rows in blocks, in the order of hosts, which has all that have rows.
func (b *Buffer) place(order []hostRef) {
	if n := len(b.hosts); cap(b.next) < n {
		b.next = make([]uint32, n)
	}
	if cap(b.places) < b.len {
		b.places = make([]uint32, b.len)
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
	places := b.places[:rows]
	b.places = places
	for i, data := range b.blocks {
		if placeMany(data, b.blockAt[i]+4, next, places) {
			continue
		}
		for place := b.blockAt[i] + 4; len(data) > 0; {
			to := &next[binary.LittleEndian.Uint32(data)]
			places[*to] = place
			*to++
			size := 4 + rowSize(data[4:])
			place += uint32(size)
			data = data[size:]
		}
	}
}
