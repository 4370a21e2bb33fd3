package lake

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
)

// Partitions is the number of partitions rows are spread over: one for each value of the top byte of the domain_id.
const Partitions = 256

// errZeroByte: a row's key would be ambiguous.
var errZeroByte = errors.New("zero byte in a row's domain, host, path_query, scheme or extras")

// ErrRowTooLarge is the error of a row whose key would be longer than MaxKey.
var ErrRowTooLarge = errors.New("row too large")

// RowSink takes rows in their order: PartWriter is one. What it is given is valid during the call.
type RowSink interface {
	// Rows takes the next hosts and their rows, those of one host behind those of the one before. Hosts ascend by domain, then host; the first may also be
	// the last of the call before, whose rows go on. Rows of a host ascend by path, then by the fields of their tails in their order. Of rows
	// that are the same record, which differ in their raw URLs at most, the first is taken; the number of records is returned.
	Rows(hosts []SortedHost, rows []SortedRow) (records int, err error)
}

// SortedHost is a host of rows in their order.
type SortedHost struct {
	Domain, Host string
	DomainID     uint64 // urlnorm.DomainID(Domain)
	Rows         int
}

// SortedRow is a row of a host. A tail at the same address as that of another row of the call is the same.
type SortedRow struct {
	Path []byte
	Tail *Tail
}

// RowBuffer collects rows in memory up to a budget. It is not safe for concurrent use.
//
// Rows come in no order, and a core that looks for each in a memory of many megabytes does little else. So they are written one after the other as
// they come, and when all are there their places are written down by host, hosts in the order in which they are needed. Whoever goes through hosts and
// places then knows what comes next, and asks for it long before: a core waits for many lines of its memory at once as long as for one. What is
// sorted at a time is one host's paths.
type RowBuffer struct {
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
	ends    [Partitions]int
	starts  [Partitions]int // of each group's rows in places
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
	passHosts []SortedHost
	passRows  []SortedRow
	passTails []Tail
}

// bufferHost is a host with rows. Hosts may be there several times. It has no pointers and is half a line of a core's cache: there are millions, which are gone through in no order.
type bufferHost struct {
	id     uint64 // of the domain
	rows   uint32
	name   uint32 // its place in names
	length uint16 // of the name
	domain uint16 // the length of the domain, which is the name's end; where ownDomain is added to it, it stands behind the name
	data   uint32 // where its rows lie one behind the other, where they are not in blocks
	bytes  uint32 // of these, or 0
}

// ownDomain is above the length of any domain.
const ownDomain = 1 << 15

// nameBytes is what a host has in names.
func (h *bufferHost) nameBytes() int {
	if h.domain < ownDomain {
		return int(h.length)
	}
	return int(h.length) + int(h.domain-ownDomain)
}

// domainBytes is the length of a host's domain.
func (h *bufferHost) domainBytes() int { return int(h.domain &^ ownDomain) }

// hostCount counts what was added of a host.
type hostCount struct {
	rows, bytes uint32
}

// rowRef finds a row. Cache holds eight bytes of its path from where the sort is looking.
type rowRef struct {
	cache     uint64
	data, off uint32 // of its path: a chunk, and where it is there
}

// hostRef finds a host. Cache sorts like the beginning of its domain; see domainCache.
type hostRef struct {
	cache     uint64
	host      uint32
	partition uint8
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
	passRows  = 256
	passHosts = 128
)

// NewRowBuffer makes a buffer of about budget bytes, 1 GiB at most: places of rows are 32 bits.
func NewRowBuffer(budget int64) *RowBuffer {
	b := rowBuffers.Get().(*RowBuffer)
	b.budget = budget
	return b
}

// rowBuffers and bufferSlabs are memory that was released: what a split needs of it, which can be half a gigabyte, need not be cleared each time.
var (
	rowBuffers = sync.Pool{New: func() any {
		return &RowBuffer{depth: 1, passHosts: make([]SortedHost, 0, passHosts), passRows: make([]SortedRow, 0, passRows), passTails: make([]Tail, 0, passRows)}
	}}
	bufferSlabs = sync.Pool{New: func() any { return new([bufferSlab]byte) }}
)

// Hosts is the number of hosts that are known: the next is given this number.
func (b *RowBuffer) Hosts() int { return len(b.hosts) }

// Host makes a host known and returns its number, for Add: 0, 1, 2 and so on until the buffer is emptied. A host may have several
// numbers; its rows are together all the same.
func (b *RowBuffer) Host(domain, host string, domainID uint64) (uint32, error) {
	if strings.IndexByte(domain, 0) >= 0 || strings.IndexByte(host, 0) >= 0 {
		return 0, errZeroByte
	}
	if len(domain)+len(host) > maxHost {
		return 0, ErrRowTooLarge
	}
	b.PlainHost(domain, host, domainID)
	return uint32(len(b.hosts) - 1), nil
}

// PlainHost is Host for a host as urlnorm returns it, which has no zero byte and is short.
func (b *RowBuffer) PlainHost(domain, host string, domainID uint64) {
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
func (b *RowBuffer) GrowHosts(n int) { b.hosts = slices.Grow(b.hosts, n) }

// newName returns memory for a name and its place. An empty one has a place too: no slab is filled to its end, for what begins there is in none.
func (b *RowBuffer) newName(size int) ([]byte, uint32) {
	if cap(b.text)-len(b.text) <= size {
		slab := b.slab()
		b.slabs = append(b.slabs, slab)
		b.text, b.names = slab[:0], appendChunks(b.names, slab[:])
	}
	from := len(b.text)
	b.text = b.text[:from+size]
	return b.text[from:], uint32(len(b.names))<<chunkBits - bufferSlab + uint32(from)
}

// hostName is the name of a host.
func (b *RowBuffer) hostName(h *bufferHost) string {
	return view(b.names[h.name>>chunkBits][h.name&(1<<chunkBits-1):][:h.length])
}

// domainName is the domain of a host.
func (b *RowBuffer) domainName(h *bufferHost) string {
	end := h.nameBytes()
	return view(b.names[h.name>>chunkBits][h.name&(1<<chunkBits-1):][end-h.domainBytes() : end])
}

// sameHost reports whether two are one host.
func (b *RowBuffer) sameHost(h, k *bufferHost) bool {
	return h.length == k.length && b.hostName(h) == b.hostName(k) && b.domainName(h) == b.domainName(k)
}

// Add copies a row of a host into the buffer, whose number may also be one that Host will give before the rows are used. A row over MaxKey is refused with ErrRowTooLarge.
// The buffer takes a row also where Full; whoever fills it writes it out then.
func (b *RowBuffer) Add(host uint32, path []byte, tail *Tail) error {
	kind, rest := tail.kind(), 0
	size := len(path)
	if kind == ownTail {
		rest = tail.keySize()
		size += 4 + rest
		if strings.IndexByte(tail.Scheme, 0) >= 0 || strings.IndexByte(tail.Extras, 0) >= 0 {
			return errZeroByte
		}
	}
	if size > MaxKey-maxHost {
		return ErrRowTooLarge
	}
	if bytes.IndexByte(path, 0) >= 0 {
		return errZeroByte
	}
	dst := b.row(host, path, kind, size)
	if kind == ownTail {
		binary.LittleEndian.PutUint32(dst, uint32(rest))
		tail.appendKey(dst[:4])
	}
	if len(path) == 0 || path[0] != '/' {
		b.depth = 0
	}
	return nil
}

// AddPlain is Add of a row that has neither port nor ts, size, extras or raw URL and whose scheme is https or else http. The path is one that
// [urlnorm.Normalizer.ParseBatch] returned: it begins with a slash, and is not looked at for zero bytes, which it does not have.
func (b *RowBuffer) AddPlain(host uint32, path []byte, https bool) error {
	kind := httpTail
	if https {
		kind = httpsTail
	}
	if len(path) > MaxKey-maxHost {
		return ErrRowTooLarge
	}
	b.row(host, path, kind, len(path))
	return nil
}

// AddParsed is AddPlain of URLs of which [urlnorm.Normalizer.ParseBatch] says that they have an HTTPOrigin or HTTPSOrigin, with the host first + Origin. It returns how many
// rows it added: all up to the first URL that is another or has a path that AddPlain refuses, or up to that which made the buffer Full.
func (b *RowBuffer) AddParsed(first uint32, urls []urlnorm.Parsed) (added int) {
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
func (b *RowBuffer) row(host uint32, path []byte, kind, size int) []byte {
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
	binary.LittleEndian.PutUint64(dst, uint64(host)|uint64(len(path)<<tailBits|kind)<<32)
	dst = dst[8:]
	return dst[copy(dst, path):]
}

// growCounts makes counts of n hosts at least.
func (b *RowBuffer) growCounts(n int) {
	n = max(n, 2*len(b.counts), 1<<10)
	if n > cap(b.counts) {
		b.counts = append(make([]hostCount, 0, n), b.counts...)
	}
	b.counts = b.counts[:n]
}

// room returns size bytes, at the end of the open slab unless they are many.
func (b *RowBuffer) room(size int) []byte {
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
func (b *RowBuffer) closeBlock() {
	if len(b.open) > 0 {
		b.blocks, b.blockAt = append(b.blocks, b.open), append(b.blockAt, b.openAt)
		b.openAt += uint32(len(b.open))
		b.open = b.open[len(b.open):]
	}
}

// newPlace returns the place of a new memory of blocks.
func (b *RowBuffer) newPlace(data []byte) uint32 {
	place := uint32(len(b.chunks)) << chunkBits
	b.chunks = appendChunks(b.chunks, data)
	return place
}

func (b *RowBuffer) slab() *[bufferSlab]byte {
	if n := len(b.spare); n > 0 {
		slab := b.spare[n-1]
		b.spare = b.spare[:n-1]
		return slab
	}
	return bufferSlabs.Get().(*[bufferSlab]byte)
}

// Release drops all rows and hosts and gives the buffer's memory to others. The buffer is of no use after it.
func (b *RowBuffer) Release() {
	b.Shrink()
	b.asked = nil
	rowBuffers.Put(b)
}

// Shrink drops all rows and hosts and gives the memory of rows to others.
func (b *RowBuffer) Shrink() {
	b.Empty()
	for _, slab := range b.spare {
		bufferSlabs.Put(slab)
	}
	clear(b.spare)
	b.spare = b.spare[:0]
}

// Empty drops all rows and hosts and keeps their memory.
func (b *RowBuffer) Empty() {
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
func (b *RowBuffer) Len() int { return b.len }

// Full reports that the budget is used up.
func (b *RowBuffer) Full() bool { return b.used >= b.budget }

// keyRest is what the key of a row has at most beyond domain, host, their ends and the row as it is here: the scheme and the ends of the others, less the head.
const keyRest = len("\x00https\x00\x00\x00\x00\x00") - 4

// Count adds the rows of each partition, and the bytes that their keys have at most, to what is there. Both are sums over rows, whatever
// buffers they are in.
func (b *RowBuffer) Count(rows, keyBytes *[Partitions]int64) {
	b.settle()
	for i, c := range b.counts[:len(b.hosts)] {
		h := &b.hosts[i]
		rows[h.id>>56] += int64(c.rows)
		keyBytes[h.id>>56] += h.keyBytes(c.rows, c.bytes)
	}
}

// settle ends the open block, and sees to it that all hosts have counts.
func (b *RowBuffer) settle() {
	b.closeBlock()
	if len(b.counts) < len(b.hosts) {
		b.growCounts(len(b.hosts))
	}
}

// rowSize is the size of the row at the beginning of data.
func rowSize(data []byte) int {
	head := binary.LittleEndian.Uint32(data)
	size := 4 + int(head>>tailBits)
	if head&(1<<tailBits-1) == ownTail {
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
func (b *RowBuffer) place(order []hostRef) {
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

// Rows passes the rows of partitions first to last, both included, to sink, in the order of their keys (see Row.AppendKey), one of each record: the one with the smallest raw
// URL. They stay in the buffer. All calls are to be for equal numbers of partitions, of which first is a multiple.
func (b *RowBuffer) Rows(ctx context.Context, first, last byte, sink RowSink) error {
	n := int(last) - int(first) + 1
	if b.partsOf != n {
		b.arrange(n)
	}
	group, from := int(first)/n, 0
	if group > 0 {
		from = b.ends[group-1]
	}
	order := b.order[from:b.ends[group]]
	b.passNone()
	at := b.starts[group]
	hosts, rows := 0, at // which were asked for
	for i := 0; i < len(order); {
		if i >= hosts {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			b.askInOrder(order, hosts)
			hosts += askAhead
		}
		h := &b.hosts[order[i].host]
		b.refs = b.refs[:0]
		for k := h; ; {
			if k.bytes == 0 {
				for todo := int(k.rows); todo > 0; {
					n := min(todo, askAhead)
					if at+n+rowsAhead-8 > rows {
						to := min(at+n+rowsAhead, len(b.places))
						askRows(b.places[rows:to], b.chunks)
						rows = to
					}
					b.load(b.places[at : at+n])
					at += n
					todo -= n
				}
			} else {
				b.loadData(k)
			}
			if i++; i == len(order) || order[i].cache != order[i-1].cache {
				break
			}
			if k = &b.hosts[order[i].host]; !b.sameHost(h, k) {
				break
			}
		}
		if err := b.pass(h, sink); err != nil {
			return err
		}
	}
	return b.passOn(sink)
}

// passOn passes on what is there to be.
func (b *RowBuffer) passOn(sink RowSink) error {
	_, err := sink.Rows(b.passHosts, b.passRows)
	b.passNone()
	return err
}

// passNone forgets what is to be passed on.
func (b *RowBuffer) passNone() {
	b.passHosts, b.passRows, b.passTails = b.passHosts[:0], b.passRows[:0], b.passTails[:0]
}

// askInOrder asks for hosts that come in order after those from at to at + askAhead, which are used now, and for the names of those next. At 0 it asks for
// those at 0 first. At is a multiple of askAhead.
func (b *RowBuffer) askInOrder(order []hostRef, at int) {
	if at == 0 {
		askHosts(order[:min(2*askAhead, len(order))], b.hosts)
		askNames(order[:min(askAhead, len(order))], b.hosts, b.names, b.chunks)
	}
	if next := order[min(at+askAhead, len(order)):]; len(next) > 0 {
		askNames(next[:min(askAhead, len(next))], b.hosts, b.names, b.chunks)
		next = next[min(askAhead, len(next)):]
		askHosts(next[:min(askAhead, len(next))], b.hosts)
	}
}

// askRefs asks for the rows that come askAhead after one, and before the first one for those before them.
func (b *RowBuffer) askRefs(refs []rowRef, from int) {
	to := min(from+2*askAhead, len(refs))
	if from > 0 {
		from += askAhead
	}
	if from < to {
		askRefs(refs[from:to], b.chunks)
	}
}

// load adds rows at places to refs.
func (b *RowBuffer) load(places []uint32) {
	n := len(b.refs)
	b.refs = slices.Grow(b.refs, len(places))[:n+len(places)]
	refs, chunks, depth := b.refs[n:], b.chunks, uint(b.depth)
	for i, place := range places {
		chunk := place >> chunkBits
		off := place&(1<<chunkBits-1) + 4
		data := chunks[chunk][off-4:]
		cache := binary.BigEndian.Uint64(data[4+depth:])
		if more := uint(binary.LittleEndian.Uint32(data)>>tailBits) - depth; more < 8 {
			cache &^= ^uint64(0) >> (8 * more)
		}
		refs[i] = rowRef{cache, chunk, off}
	}
}

// loadData adds the rows of a host that lie one behind the other to refs.
func (b *RowBuffer) loadData(h *bufferHost) {
	b.refs = slices.Grow(b.refs, int(h.rows))
	chunk := h.data >> chunkBits
	data := b.chunks[chunk]
	at := h.data & (1<<chunkBits - 1)
	for end := at + h.bytes; at < end; {
		row := data[at:end]
		b.refs = append(b.refs, rowRef{loadPath(row[4:4+binary.LittleEndian.Uint32(row)>>tailBits], b.depth), chunk, at + 4})
		at += uint32(rowSize(row))
	}
}

// compareHosts orders hosts by domain and name, the same by number.
func (b *RowBuffer) compareHosts(x, y hostRef) int {
	h, k := &b.hosts[x.host], &b.hosts[y.host]
	// Domains with the same id are not to be mixed.
	if hd, kd := b.domainName(h), b.domainName(k); h.id != k.id || hd != kd {
		if c := strings.Compare(hd, kd); c != 0 {
			return c
		}
	}
	if c := strings.Compare(b.hostName(h), b.hostName(k)); c != 0 {
		return c
	}
	return int(x.host) - int(y.host)
}

// sortRefs sorts hosts by what is cached of their domains. To is memory for as many. Where they are many it sorts them by the upper halves of their caches, which tell most of them apart, eleven bits at a
// time from the last (Knuth, The Art of Computer Programming 3, 5.2.5), and then those that are left together.
func sortRefs(order, to []hostRef) {
	if len(order) < radixSort {
		slices.SortFunc(order, func(x, y hostRef) int { return cmp.Compare(x.cache, y.cache) })
		return
	}
	sortByDigits(order, to, refDigits/2*refDigit)
	for i := 0; i < len(order); {
		first, alike := i, true
		for i++; i < len(order) && order[i].cache>>(refDigits/2*refDigit) == order[first].cache>>(refDigits/2*refDigit); i++ {
			alike = alike && order[i].cache == order[first].cache
		}
		switch n := i - first; {
		case alike:
		case n <= insertSort:
			for k := first + 1; k < i; k++ {
				o, j := order[k], k
				for ; j > first && order[j-1].cache > o.cache; j-- {
					order[j] = order[j-1]
				}
				order[j] = o
			}
		case n < radixSort:
			slices.SortFunc(order[first:i], func(x, y hostRef) int { return cmp.Compare(x.cache, y.cache) })
		default:
			sortByDigits(order[first:i], to, 0)
		}
	}
}

const (
	refDigit  = 11
	refDigits = 6
	radixSort = 1 << 9 // hosts, from which on digits take less than comparisons
)

// sortByDigits sorts hosts by half of the digits of their caches, those from a bit on.
func sortByDigits(order, to []hostRef, low int) {
	var counts [refDigits / 2][1 << refDigit]uint32
	for _, o := range order {
		for d := range counts {
			counts[d][o.cache>>(low+d*refDigit)&(1<<refDigit-1)]++
		}
	}
	from, to := order, to[:len(order)]
	for d := range counts {
		shift := low + d*refDigit
		c, sum := &counts[d], uint32(0)
		if c[order[0].cache>>shift&(1<<refDigit-1)] == uint32(len(order)) {
			continue // all alike
		}
		for i, n := range c {
			c[i] = sum
			sum += n
		}
		for _, o := range from {
			at := &c[o.cache>>shift&(1<<refDigit-1)]
			to[*at] = o
			*at++
		}
		from, to = to, from
	}
	if &from[0] != &order[0] {
		copy(order, from)
	}
}

// arrange sorts hosts, by groups of n partitions, and puts their rows into that order.
func (b *RowBuffer) arrange(n int) {
	b.settle()
	// Assembly does not look whether a row's host is known.
	if i := slices.IndexFunc(b.counts[len(b.hosts):], func(c hostCount) bool { return c.rows > 0 }); i >= 0 {
		panic(fmt.Sprintf("a RowBuffer of %d hosts has rows of host %d", len(b.hosts), len(b.hosts)+i))
	}
	order := slices.Grow(b.order[:0], len(b.hosts))
	for i := range b.hosts {
		h := &b.hosts[i]
		if n := b.counts[i].rows; n > 0 {
			h.rows, h.bytes = n, 0
		}
		if h.rows > 0 {
			order = append(order, hostRef{domainCache(b.domainName(h)), uint32(i), uint8(h.id >> 56)})
		}
	}
	other := slices.Grow(b.other[:0], len(order))[:len(order)]
	clear(b.ends[:])
	if n < Partitions {
		for _, o := range order {
			b.ends[int(o.partition)/n]++
		}
		sum := 0
		for i := range b.ends {
			b.ends[i], sum = sum, sum+b.ends[i]
		}
		for _, o := range order {
			at := &b.ends[int(o.partition)/n]
			other[*at] = o
			*at++
		}
		order, other = other, order
	} else {
		b.ends[0] = len(order)
	}
	from := 0
	for _, end := range b.ends[:Partitions/n] {
		sortRefs(order[from:end], other[from:end])
		b.sortAlike(order[from:end])
		from = end
	}
	b.order, b.other = order, other
	b.place(order)
	b.partsOf = n
}

// sortAlike sorts hosts that are sorted by their caches.
func (b *RowBuffer) sortAlike(order []hostRef) {
	var starts, ends [askAhead]int
	for at := 0; at < len(order); {
		n := 0
		for ; n < askAhead && at < len(order); at++ {
			start := at
			for at+1 < len(order) && order[at+1].cache == order[start].cache {
				at++
			}
			if at > start {
				starts[n], ends[n] = start, at+1
				askHosts(order[start:min(at+1, start+askAhead)], b.hosts)
				n++
			}
		}
		for i, start := range starts[:n] {
			askNames(order[start:min(ends[i], start+askAhead)], b.hosts, b.names, b.chunks)
		}
		for i, start := range starts[:n] {
			alike := order[start:ends[i]]
			if len(alike) > insertSort {
				slices.SortFunc(alike, b.compareHosts)
				continue
			}
			for i := 1; i < len(alike); i++ {
				o, j := alike[i], i
				for ; j > 0 && b.compareHosts(alike[j-1], o) > 0; j-- {
					alike[j] = alike[j-1]
				}
				alike[j] = o
			}
		}
	}
}

// A hostRef's cache is a number of twelve digits to the base of 40, one for each of the first bytes of its domain, which sorts like it: 0 for the end, and the others for - . 0 to 9 _ a
// to z, which are nearly all that domains have. Eight bytes as they are would leave half of the hosts alike with others.
const (
	domainDigits = 12
	domainBase   = 40
)

// domainDigit is the digit of a byte. That of one without a digit is one that is not above those of the bytes above it nor below those of
// the bytes below it, and 64 or 128 more: it is the last, and those behind are 0, or where it is 128, the largest.
var domainDigit = func() (digits [256]uint8) {
	var next uint8 // the digit of the next byte that has one
	const all = "-.0123456789_abcdefghijklmnopqrstuvwxyz"
	for c := range digits {
		switch {
		case int(next) == len(all):
			digits[c] = next | 128
		case all[next] == byte(c):
			next++
			digits[c] = next
		default:
			digits[c] = next + 1 | 64
		}
	}
	return digits
}()

// domainCache is the cache of a domain.
func domainCache(domain string) (cache uint64) {
	n := min(len(domain), domainDigits)
	for i := range n {
		digit := domainDigit[domain[i]]
		if digit >= 64 {
			return domainCacheOdd(cache, digit, domainDigits-i-1)
		}
		cache = cache*domainBase + uint64(digit)
	}
	return cache * domainPowers[domainDigits-n]
}

// domainCacheOdd adds the last digit, with n behind it.
func domainCacheOdd(cache uint64, digit uint8, n int) uint64 {
	cache = cache*domainBase + uint64(digit&63)
	cache *= domainPowers[n]
	if digit >= 128 {
		cache += domainPowers[n] - 1
	}
	return cache
}

// domainPowers are the powers of domainBase.
var domainPowers = func() (powers [domainDigits + 1]uint64) {
	powers[0] = 1
	for i := range domainDigits {
		powers[i+1] = powers[i] * domainBase // the last is nine tenths of 1<<64
	}
	return powers
}()

// head is the head of a row.
func (b *RowBuffer) head(r rowRef) (data []byte, head uint32) {
	data = b.chunks[r.data]
	return data, binary.LittleEndian.Uint32(data[r.off-4:])
}

// path is a row's path.
func (b *RowBuffer) path(r rowRef) []byte {
	data, head := b.head(r)
	return data[r.off : r.off+head>>tailBits]
}

// tailKey is a row's tail as in a key.
func (b *RowBuffer) tailKey(r rowRef) []byte {
	data, head := b.head(r)
	if kind := head & (1<<tailBits - 1); kind != ownTail {
		return usualKeys[kind]
	}
	at := r.off + head>>tailBits
	n := binary.LittleEndian.Uint32(data[at:])
	return data[at+4 : at+4+n]
}

// pass sorts the rows of a host, which are in refs, and passes them on.
func (b *RowBuffer) pass(h *bufferHost, sink RowSink) error {
	refs := b.refs
	if len(refs) == 2 {
		if refs[0].cache > refs[1].cache || refs[0].cache == refs[1].cache && b.compare(refs[0], refs[1], b.depth) > 0 {
			refs[0], refs[1] = refs[1], refs[0]
		}
	} else if len(refs) > 2 {
		b.sort(refs, b.depth)
	}
	for from := 0; from < len(refs); {
		if len(b.passHosts) == passHosts || len(b.passRows) == passRows {
			if err := b.passOn(sink); err != nil {
				return err
			}
		}
		n := min(len(refs)-from, passRows-len(b.passRows))
		// What is put together elsewhere is read before it has been written there.
		k := len(b.passHosts)
		b.passHosts = b.passHosts[:k+1]
		p := &b.passHosts[k]
		p.Domain, p.Host, p.DomainID, p.Rows = b.domainName(h), b.hostName(h), h.id, n
		k = len(b.passRows)
		b.passRows = b.passRows[:k+n]
		rows := b.passRows[k:]
		for i, r := range refs[from : from+n] {
			if len(refs) > askSort && (from+i)%askAhead == 0 {
				b.askRefs(refs, from+i)
			}
			data := b.chunks[r.data][r.off-4:]
			head := binary.LittleEndian.Uint32(data)
			var tail *Tail
			if kind := head & (1<<tailBits - 1); kind != ownTail {
				tail = &usualTails[kind]
			} else {
				b.passTails = append(b.passTails, Tail{})
				tail = &b.passTails[len(b.passTails)-1]
				if _, err := tail.parse(b.tailKey(r)); err != nil {
					return err
				}
			}
			rows[i].Path, rows[i].Tail = data[4:4+head>>tailBits], tail
		}
		from += n
	}
	return nil
}

const (
	// insertSort is the number of rows up to which inserting them one by one is the fastest.
	insertSort = 16
	// alikeSort is the same for rows that have to be looked at.
	alikeSort = 6
)

// insertByCache sorts few rows by their caches.
func insertByCache(rows []rowRef) {
	for i := 1; i < len(rows); i++ {
		r, j := rows[i], i
		for ; j > 0 && rows[j-1].cache > r.cache; j-- {
			rows[j] = rows[j-1]
		}
		rows[j] = r
	}
}

// sort sorts rows that agree in their first depth bytes and have the next eight in their caches. It looks at the rows again only where these
// agree: URLs of one site share long beginnings, and a comparison of whole paths is mostly a cache miss.
// (The caching of Ng and Kakehi, "Cache efficient radix sort for string sorting", 2007.)
func (b *RowBuffer) sort(rows []rowRef, depth int) {
	for {
		same := true
		for i := 1; i < len(rows) && same; i++ {
			same = rows[i].cache == rows[0].cache
		}
		if !same {
			b.spread(rows, 56)
		}
		depth += 8
		// All but the longest of the groups that agree so far are sorted by recursion, that one by
		// the loop: the stack stays shallow however long the paths.
		var longest []rowRef
		far := len(rows) > askSort
		for ask := 0; len(rows) > 0; {
			if far && ask <= 0 {
				b.askRefs(rows, askAhead)
				ask += askAhead
			}
			n := 1
			for n < len(rows) && rows[n].cache == rows[0].cache {
				n++
			}
			group := rows[:n]
			rows = rows[n:]
			ask -= n
			if n == 1 {
				continue
			}
			if n <= alikeSort {
				b.insert(group, depth)
				continue
			}
			group = b.endedFirst(group, depth)
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

// spread sorts rows by their caches, of which all agree in the bits above the eight from shift on: byte by byte, until few are left that agree so far (Knuth,
// The Art of Computer Programming 3, 5.2.5).
func (b *RowBuffer) spread(rows []rowRef, shift int) {
	if n := len(rows); cap(b.apart) < n {
		b.apart = make([]rowRef, max(n+n/2, smallSort))
	}
	for ; shift >= 0; shift -= 8 {
		if len(rows) <= smallSort {
			b.sortSmall(rows)
			return
		}
		var ends [256]int
		for i := range rows {
			ends[byte(rows[i].cache>>shift)]++
		}
		if ends[byte(rows[0].cache>>shift)] == len(rows) {
			continue
		}
		sum := 0
		for i, n := range ends {
			ends[i] = sum
			sum += n
		}
		apart := b.apart[:len(rows)]
		copy(apart, rows)
		for _, r := range apart {
			at := &ends[byte(r.cache>>shift)]
			rows[*at] = r
			*at++
		}
		from := 0
		for _, end := range ends {
			if end-from > 1 {
				b.spread(rows[from:end], shift-8)
			}
			from = end
		}
		return
	}
}

// deeper passes what all rows have in common and loads the caches from there.
func (b *RowBuffer) deeper(rows []rowRef, depth int) int {
	first := b.path(rows[0])
	shared := len(first)
	for _, r := range rows[1:] {
		path := b.path(r)
		if shared = depth + codec.CommonPrefix(first[depth:shared], path[depth:]); shared == depth {
			break
		}
	}
	for i := range rows {
		rows[i].cache = loadPath(b.path(rows[i]), shared)
	}
	return shared
}

// insert sorts few rows that agree in their first depth bytes, or have ended before.
func (b *RowBuffer) insert(rows []rowRef, depth int) {
	for i := 1; i < len(rows); i++ {
		r, j := rows[i], i
		for ; j > 0 && b.compare(rows[j-1], r, depth) > 0; j-- {
			rows[j] = rows[j-1]
		}
		rows[j] = r
	}
}

// compare compares rows of a host that agree in their first depth bytes, or have ended before.
func (b *RowBuffer) compare(x, y rowRef, depth int) int {
	k, l := b.path(x), b.path(y)
	if c, d := loadPath(k, depth), loadPath(l, depth); c != d {
		return cmp.Compare(c, d)
	}
	if m := min(len(k), len(l)); depth+8 < m {
		depth += 8 + codec.CommonPrefix(k[depth+8:], l[depth+8:])
		if depth < m {
			return int(k[depth]) - int(l[depth])
		}
	}
	return cmp.Or(len(k)-len(l), bytes.Compare(b.tailKey(x), b.tailKey(y)))
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
