package shard

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
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
	// Created is when the URL was added first, in seconds since 1970. It is kept until the URL is
	// deleted.
	Created uint32
	// Metadata is the client's, returned as it came.
	Metadata []byte
	// Update asks Add to replace what there is of the URL, Settled not to have it fetched. Add
	// heeds Settled only with Update.
	Update, Settled bool
	// OnlyKnown, with Update, does not add a URL that is not known.
	OnlyKnown bool
	// Visit, with Update, is what came of the fetch if the URL is leased. Add sets its time.
	Visit *Visit
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

// QueueID is the XXH3-128 hash of a queue's name. URLID is made of the first 9 bytes of the hash of
// a queue's name and a URL, and of the first 7 bytes of the QueueID: so it says of which queue it
// is. Among 2^30 URLs of a queue two are equal with a probability of 2^-13, among 2^20 with 2^-33.
type (
	QueueID [16]byte
	URLID   = stateID
)

// urlHash is how many bytes of a URLID are of the URL.
const urlHash = 9

// tag identifies the queue of a URLID.
type tag [16 - urlHash]byte

func (id *QueueID) tag() tag { return tag(id[:]) }

// number is the tag as a number of 56 bits, tagNumber the tag of such a number.
func (t *tag) number() (n uint64) {
	for _, b := range t {
		n = n<<8 | uint64(b)
	}
	return n
}

func tagNumber(n uint64) (t tag) {
	for i := range t {
		t[i] = byte(n >> (8 * (len(t) - 1 - i)))
	}
	return t
}

func tagOf(id []byte) tag { return tag(id[urlHash:]) }

// QueueName is the name of the queue of a crawl and a key, which is mostly a domain.
func QueueName(crawl, key string) string { return crawl + "\x00" + key }

// crawlOf returns the crawl of a queue.
func crawlOf(queue string) string {
	crawl, _, _ := strings.Cut(queue, "\x00")
	return crawl
}

// ID identifies a URL and its queue.
type ID struct {
	queue QueueID
	url   URLID
}

// IDOf returns the id of a URL. Text is the name of its queue, which is so many bytes long, a zero
// byte and the URL.
func IDOf(text string, queue int) ID {
	return newID(IDOfQueue(text[:queue]), xxh3.HashString128(text))
}

// idOf is IDOf for a name and a URL. The URL is not kept, so that []byte(text) copies nothing.
func (s *Shard) idOf(queue string, url []byte) ID {
	s.text = append(append(append(s.text[:0], queue...), 0), url...)
	return newID(IDOfQueue(queue), xxh3.Hash128(s.text))
}

// urlID is idOf for a queue whose id is known.
func (s *Shard) urlID(of QueueID, queue, url []byte) ID {
	s.text = append(append(append(s.text[:0], queue...), 0), url...)
	return newID(of, xxh3.Hash128(s.text))
}

func newID(of QueueID, text xxh3.Uint128) ID {
	id := ID{of, text.Bytes()}
	copy(id.url[urlHash:], of[:])
	return id
}

// IDOfQueue returns the id of the queue with a name.
func IDOfQueue(name string) QueueID { return xxh3.HashString128(name).Bytes() }

// append appends the entry without its queue, which journals and runs have elsewhere.
func (e *Entry) append(b []byte) []byte {
	b = codec.AppendUvarint(b, e.Seq)
	b = codec.AppendUvarint(b, uint64(e.Priority))
	b = codec.AppendUvarint(b, uint64(e.Depth))
	b = codec.AppendUvarint(b, uint64(e.Tries))
	b = codec.AppendUvarint(b, uint64(e.Due))
	b = codec.AppendUvarint(b, uint64(e.Created))
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

// seqOf returns the number of what append has written.
func seqOf(b []byte) uint64 {
	seq, _ := binary.Uvarint(b)
	return seq
}

// parseSeq returns the number of what append has written, as a rank.
func parseSeq(b []byte, file string) (rank, error) {
	d := codec.NewDecoder(b, file, "entry")
	return rank{seq: d.Uvarint()}, d.Err()
}

// parseDue returns the due time and the number of what appendQueued has written, as a rank.
func parseDue(b []byte, file string) (rank, error) {
	d := codec.NewDecoder(b, file, "entry")
	d.Bytes(int(d.Uint(uint64(len(b)))))
	r := rank{seq: d.Uvarint()}
	for range 3 {
		d.Uvarint()
	}
	r.class = d.Uint(math.MaxInt64)
	return r, d.Err()
}

// parseURL returns the number and the URL of what append has written, without copies.
func parseURL(b []byte, file string) (seq uint64, url []byte, err error) {
	d := codec.NewDecoder(b, file, "entry")
	seq = d.Uvarint()
	for range 5 {
		d.Uvarint()
	}
	url = d.Bytes(int(d.Uint(uint64(len(b)))))
	return seq, url, d.Err()
}

// parseView returns what append has written. The URL and the metadata are not in the entry, and are
// no copies.
func parseView(b []byte, file string) (e Entry, url, metadata []byte, err error) {
	d := codec.NewDecoder(b, file, "entry")
	e = Entry{
		Seq: d.Uvarint(), Priority: uint16(d.Uint(math.MaxUint16)), Depth: uint32(d.Uint(math.MaxUint32)),
		Tries: uint32(d.Uint(math.MaxUint32)), Due: int64(d.Uint(math.MaxInt64)), Created: uint32(d.Uint(math.MaxUint32)),
	}
	url = d.Bytes(int(d.Uint(uint64(d.Len()))))
	return e, url, d.Rest(), d.Err()
}

// parseEntry returns what append has written. Its strings are copies.
func parseEntry(b []byte, queue, file string) (Entry, error) {
	e, url, metadata, err := parseView(b, file)
	e.Queue, e.URL = queue, string(url)
	if len(metadata) > 0 {
		e.Metadata = slices.Clone(metadata)
	}
	return e, err
}

// appendQueued appends the name of an entry's queue and the bytes that append has written.
func appendQueued(b, queue, encoded []byte) []byte {
	b = append(codec.AppendUvarint(b, uint64(len(queue))), queue...)
	return append(b, encoded...)
}

func parseQueued(d *codec.Decoder, file string) (Entry, error) {
	queue := d.String()
	if err := d.Err(); err != nil {
		return Entry{}, err
	}
	return parseEntry(d.Rest(), queue, file)
}

// The kinds of records of a shard's journal. The entry is what the URL has from then on.
const (
	recordWait    = 'A' // queue and entry: the URL was added, updated, or is back
	recordSettled = 'S' // queue and entry: the URL was updated and is not to be fetched
	recordDone    = 'D' // outcome, queue and entry: the URL was fetched
	recordAgain   = 'R' // the same, and it waits again
	recordDelete  = 'X' // what was deleted
)
