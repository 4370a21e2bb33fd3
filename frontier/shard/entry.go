package shard

import (
	"cmp"
	"math"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/lake/codec"
)

// Entry is a URL that is to be fetched.
type Entry struct {
	// Seq is the entry's number in its shard. An entry that comes back after a lease gets a new
	// one.
	Seq uint64
	// Queue is the name of the queue: see QueueName.
	Queue string
	// URL is canonical.
	URL string
	// Priority orders the entries of a queue, the highest first; then Depth does, the lowest first;
	// then the time at which they were added.
	Priority uint16
	Depth    uint32
	// Tries is how many leases of the entry have ended without a result that settles it.
	Tries uint32
	// Due is when the entry may be fetched at the earliest, in milliseconds since 1970, 0 for at
	// once.
	Due int64
	// Metadata is the client's, returned as it came.
	Metadata []byte
}

// rank orders the entries of a queue: the lowest is taken first.
type rank struct {
	class uint64 // priority, then depth
	seq   uint64
}

func (e *Entry) rank() rank {
	return rank{uint64(math.MaxUint16-e.Priority)<<32 | uint64(e.Depth), e.Seq}
}

func (a rank) compare(b rank) int {
	return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.seq, b.seq))
}

// QueueID is the first 16 bytes of the XXH3-128 hash of a queue's name, URLID that of a crawl and a
// URL. Among 2^40 names two are equal with a probability of 2^-49.
type (
	QueueID [16]byte
	URLID   [16]byte
)

// QueueName is the name of the queue of a crawl and a key, which is mostly a domain.
func QueueName(crawl, key string) string { return crawl + "\x00" + key }

// crawlOf returns the crawl of a queue.
func crawlOf(queue string) string {
	crawl, _, _ := strings.Cut(queue, "\x00")
	return crawl
}

// IDOfQueue returns the id of the queue with a name.
func IDOfQueue(name string) QueueID { return xxh3.HashString128(name).Bytes() }

// IDOfURL returns the id of a URL within a crawl. Scratch is memory that it may use.
func IDOfURL(crawl, url string, scratch []byte) (id URLID, buf []byte) {
	buf = append(append(append(scratch[:0], crawl...), 0), url...)
	return xxh3.Hash128(buf).Bytes(), buf
}

// append appends the entry without its queue, which journals and runs have elsewhere.
func (e *Entry) append(b []byte) []byte {
	b = codec.AppendUvarint(b, e.Seq)
	b = codec.AppendUvarint(b, uint64(e.Priority))
	b = codec.AppendUvarint(b, uint64(e.Depth))
	b = codec.AppendUvarint(b, uint64(e.Tries))
	b = codec.AppendUvarint(b, uint64(e.Due))
	b = codec.AppendString(b, e.URL)
	return append(b, e.Metadata...)
}

// parseRank returns the rank of what append has written.
func parseRank(b []byte, file string) (rank, error) {
	d := codec.NewDecoder(b, file, "entry")
	r := rank{seq: d.Uvarint()}
	priority, depth := d.Uint(math.MaxUint16), d.Uint(math.MaxUint32)
	r.class = (math.MaxUint16-priority)<<32 | depth
	return r, d.Err()
}

// parseEntry returns what append has written. Its strings are copies.
func parseEntry(b []byte, queue, file string) (Entry, error) {
	d := codec.NewDecoder(b, file, "entry")
	e := Entry{
		Queue: queue, Seq: d.Uvarint(), Priority: uint16(d.Uint(math.MaxUint16)),
		Depth: uint32(d.Uint(math.MaxUint32)), Tries: uint32(d.Uint(math.MaxUint32)),
		Due: int64(d.Uint(math.MaxInt64)), URL: d.String(),
	}
	if rest := d.Rest(); len(rest) > 0 {
		e.Metadata = append([]byte(nil), rest...)
	}
	return e, d.Err()
}

// The kinds of records of a shard's journal.
const (
	recordAdd  = 'A' // an entry
	recordDone = 'D' // the sequence number of an entry, and its visit
	recordBack = 'B' // the sequence number of an entry, and the entry under another number
)
