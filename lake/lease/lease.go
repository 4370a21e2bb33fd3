// Package lease holds what decides which objects of a lake may be deleted: the leases of readers,
// and the sweeps of garbage collections with the lists of what they are to delete.
//
// A lease is a small object in which a program names the versions that it reads. A garbage
// collector deletes nothing that a version in a live lease refers to. Read servers hold leases;
// whatever deletes published objects reads them.
//
// # How a reader and a collector see each other
//
// Both write first and read afterwards:
//
//   - A reader writes a lease that names the version (Set returns when it is durable), then reads
//     the manifest. It reads the version's objects only if the manifest lists it.
//   - A collector commits a manifest that does not list the version, then reads the leases (All).
//     It deletes the version's objects only if no live lease names it.
//
// If the reader's manifest still lists the version, the commit came after the reader's lease, and
// the collector finds the lease. Otherwise the reader does not use the version. The order of two
// operations on different objects suffices for this: no locks, no conditions, and clocks only to
// notice a program that died.
//
// # Clocks of leases
//
// A lease expires by the clock of its holder. The collector's clock may be off by MaxSkew: it takes
// a lease for dead only when its own clock shows more than MaxSkew after the expiry. So a program
// that is killed stops holding after its TTL and MaxSkew. One that ends removes its lease.
//
// A holder never renews a lease that has expired by its own clock. It writes another object and
// removes the old one. So a lease that is dead stays dead, and a collector may delete its object.
//
// # How a writer and a collector see each other
//
// Objects are named by their content. So a writer may write an object, or find one there, and refer
// to it, while a collection that has found no reference to it deletes it. Nothing may be lost by
// that, without locks and whatever the clocks show.
//
// A collection announces a sweep, number e, in SweepKey. It then writes e into every document that
// makes objects live (the manifest and the documents of the registry), then reads what they refer
// to, deletes what is not referred to, and ends the sweep.
//
// A writer replaces such a document by a conditional put. In each attempt it reads the document,
// waits until the sweep that the document names has ended (AwaitSweep), writes the objects that the
// document is to refer to, or looks that they are there, and then puts the document. So either
//
//   - a later sweep has written its number into the document meanwhile: the put fails, and the
//     writer begins again; or
//   - none has: then every later sweep writes its number after the put, reads the references after
//     that, and finds the new one. All earlier sweeps had ended before the writer looked.
//
// An ingest puts its plan into staging, and waits in this way, before it writes its first object.
// From then on a collection leaves alone whatever can belong to its batch.
//
// # A collection that dies
//
// In a folder a sweep holds a lock that the operating system releases when the process dies. Who
// gets the lock ends the sweep.
//
// Elsewhere the document of a sweep is renewed as long as the sweep lasts. Who has seen the same
// document for the time that it states ends the sweep. A collection deletes only within a quarter
// of that time after it began the last renewal that succeeded. No two clocks are compared: only the
// lengths of times count. See docs/formats/trash.md for a process that is frozen in between.
//
// docs/formats/lease.md and docs/formats/trash.md describe the objects.
package lease

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

const (
	// Root is the folder of the leases.
	Root = "index/leases/"
	// leaseFormat is the newest format version of leases.
	// 1: first.
	leaseFormat = 1

	// DefaultTTL is how long a lease lasts after it was written. A holder that is killed keeps the
	// collector waiting for so long, and for MaxSkew.
	DefaultTTL = 2 * time.Minute
	// MinTTL leaves time for three renewals over a slow network, MaxTTL limits how long a holder
	// that was killed is waited for.
	MinTTL = 10 * time.Second
	MaxTTL = time.Hour
	// MaxSkew is how far apart the clocks of a holder and of a collector may be. Services of S3
	// refuse requests of clocks that differ more from theirs.
	MaxSkew = 15 * time.Minute

	suffix = ".json"
	// maxHost is how many bytes of a host's name are part of a holder's.
	maxHost = 64
)

// Lease is a lease as a collector reads it.
type Lease struct {
	// Object is the lease's object.
	Object blob.Info
	// Holder names who holds the lease: a host and a random number.
	Holder string
	// Versions are the ids of the versions that the holder reads, ascending.
	Versions []string
	// Renewed is when the lease was written, and Expires when it ends, both by the holder's clock.
	Renewed, Expires time.Time
	// Program is the holder's program and build.
	Program string
	// Err says why the object cannot be read as a lease. It is a *codec.CorruptError for a damaged
	// lease and for one of a newer format. All other fields but Object and Holder are then empty,
	// and the lease must be taken as live and as naming every version, until the store says that
	// the object is older than MaxTTL and MaxSkew: a holder that lives would have replaced it.
	Err error
}

// Live reports whether the holder may still use the versions, as judged by a clock that shows now
// and differs from the holder's by at most skew. A lease with an Err is always live; see Err for
// when to stop heeding it.
func (l *Lease) Live(now time.Time, skew time.Duration) bool {
	return l.Err != nil || l.Expires.Add(skew).After(now)
}

// leaseKey is the key of the lease of a holder.
func leaseKey(holder string) string { return Root + holder + suffix }

// All reads all leases, live or not, in the order of their keys. One that is damaged has an Err.
// One that is removed meanwhile is left out. Other objects below Root are leases with an Err too:
// something that cannot be understood holds everything.
func All(ctx context.Context, store blob.Store) ([]Lease, error) {
	var all []Lease
	for info, err := range store.List(ctx, Root) {
		if err != nil {
			return nil, err
		}
		data, read, err := store.Get(ctx, info.Key)
		if errors.Is(err, blob.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, decode(data, read))
	}
	return all, nil
}

// document is the JSON of a lease.
type document struct {
	Format   int       `json:"format"`
	Holder   string    `json:"holder"`
	Program  string    `json:"program"`
	Versions []string  `json:"versions"`
	Renewed  time.Time `json:"renewed"`
	Expires  time.Time `json:"expires"`
}

func (d *document) encode() ([]byte, error) {
	d.Format = leaseFormat
	if err := d.check(leaseKey(d.Holder)); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return codec.Seal(d)
}

func decode(data []byte, info blob.Info) Lease {
	l := Lease{Object: info, Holder: strings.TrimSuffix(strings.TrimPrefix(info.Key, Root), suffix)}
	var d document
	if l.Err = codec.Unseal(data, info.Key, leaseFormat, &d); l.Err != nil {
		return l
	}
	if l.Err = d.check(info.Key); l.Err != nil {
		return l
	}
	l.Versions, l.Renewed, l.Expires, l.Program = d.Versions, d.Renewed, d.Expires, d.Program
	return l
}

var holderName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}-[0-9a-f]{16}$`)

func (d *document) check(key string) error {
	if d.Format != leaseFormat {
		return codec.Corrupt(key, "format", -1, leaseFormat, d.Format)
	}
	if !holderName.MatchString(d.Holder) || leaseKey(d.Holder) != key {
		return codec.Corrupt(key, "holder", -1, "the holder of this key", d.Holder)
	}
	for i, id := range d.Versions {
		if id == "" || i > 0 && d.Versions[i-1] >= id {
			return codec.Corrupt(key, "versions["+strconv.Itoa(i)+"]", -1, "ascending ids", id)
		}
	}
	if d.Renewed.Location() != time.UTC || d.Expires.Location() != time.UTC || !d.Expires.After(d.Renewed) {
		return codec.Corrupt(key, "expires", -1, "a time in UTC after renewed",
			d.Renewed.Format(time.RFC3339)+" to "+d.Expires.Format(time.RFC3339))
	}
	return nil
}

// newHolder returns a name that no other lease has. It begins with the host's name, less the
// characters that a key should not have.
func newHolder(host string) string {
	safe := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-', r == '_':
			return r
		}
		return '_'
	}, host)
	safe = strings.TrimLeft(safe[:min(len(safe), maxHost)], ".-")
	if safe == "" {
		safe = "host"
	}
	var random [8]byte
	rand.Read(random[:]) // never fails
	return safe + "-" + hex.EncodeToString(random[:])
}
