package coord

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// Lease is the claim of a client to a URL, as Redis has it: a token, the number of the entry in its
// shard, 8 bytes each, and the name of the queue. The token is a random number, so no two leases of
// a URL are the same.
type Lease string

// LeaseHead is how many bytes of a lease are before the queue.
const LeaseHead = 16

// NewLease makes a lease of the number and the queue of an entry.
func NewLease(token, seq uint64, queue string) Lease {
	return AppendLease(&strings.Builder{}, token, seq, queue)
}

// AppendLease makes a lease in memory that others share.
func AppendLease(to *strings.Builder, token, seq uint64, queue string) Lease {
	var head [LeaseHead]byte
	binary.BigEndian.PutUint64(head[:], token)
	binary.BigEndian.PutUint64(head[8:], seq)
	from := to.Len()
	to.Write(head[:])
	to.WriteString(queue)
	return Lease(to.String()[from:])
}

// ParseLease returns the lease of what Redis, or a client, has of it.
func ParseLease(text string) (Lease, error) {
	if len(text) < LeaseHead {
		return "", fmt.Errorf("a lease of %d bytes", len(text))
	}
	return Lease(text), nil
}

// Seq is the number of the entry.
func (l Lease) Seq() uint64 { return l.number(8) }

func (l Lease) token() uint64 { return l.number(0) }

// number is the one whose bytes begin at a place.
func (l Lease) number(from int) (n uint64) {
	for i := from; i < from+8; i++ {
		n = n<<8 | uint64(l[i])
	}
	return n
}

// Fenced says that the lease has a token, which is not 0: a client reports by it.
func (l Lease) Fenced() bool { return l.token() != 0 }

// Queue is the name of the queue.
func (l Lease) Queue() string { return string(l[LeaseHead:]) }
