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
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
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

// Options of a Holder. A field that is zero has its default.
type Options struct {
	// TTL is how long the lease lasts after it was written, at most MaxTTL. It is renewed after a
	// third of that.
	TTL time.Duration
	// Program is the program and build that the lease names.
	Program string
	// Host is part of the holder's name, by default the name of the machine.
	Host string
	// Log receives a line when the lease can no longer be written and when it can be again. The
	// default is slog's default logger.
	Log *slog.Logger
	// Now is the clock for the times in the lease, by default time.Now.
	Now func() time.Time
}

const (
	// retryPause is the time between two attempts to write a lease after a failure, if a third of
	// the TTL is not shorter. The store has retried each attempt already.
	retryPause = 5 * time.Second
	// refusedPause is the same if the store refuses the write. A person has to change that, and
	// many servers are meant to have no permission to write.
	refusedPause = 10 * time.Minute
	// ambiguities is how many times one write reads the object again to find out what it replaces.
	// An earlier write whose reply was lost can still take effect, but each only once.
	ambiguities = 4
)

// errClosed is the error of Set after Close.
var errClosed = errors.New("lease is closed")

// Holder keeps one lease. It is safe for concurrent use.
type Holder struct {
	store blob.Store
	opt   Options
	life  context.Context // of the renewals
	stop  context.CancelFunc

	// writing is the right to write the object, and guards the fields up to the next blank line.
	writing chan struct{}
	name    string
	started bool // Set was called
	closed  bool
	maybe   bool     // the object may exist
	etag    string   // of the object, "" if there is none
	unsure  bool     // the last write may have taken effect, or may still do so
	stale   []string // keys of this holder's expired leases, which it has to remove

	mu       sync.Mutex // guards the fields below
	versions []string   // to be named
	named    []string   // in the lease for sure
	expires  time.Time  // of the lease that was written last
	failures int64
	err      error       // of the last write
	next     time.Time   // of the next attempt to write
	wake     *time.Timer // fires then
}

// Hold returns a holder. Its lease begins with the first Set; until then it contacts nothing. When
// ctx ends, the lease is no longer renewed, but only Close removes it.
func Hold(ctx context.Context, store blob.Store, opt Options) *Holder {
	opt.TTL = min(cmp.Or(opt.TTL, DefaultTTL), MaxTTL)
	if opt.Host == "" {
		opt.Host, _ = os.Hostname() // without a name, the random number has to do
	}
	if opt.Log == nil {
		opt.Log = slog.Default()
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	h := &Holder{store: store, opt: opt, name: newHolder(opt.Host), writing: make(chan struct{}, 1)}
	h.life, h.stop = context.WithCancel(ctx)
	return h
}

// Set makes the lease name these versions. It returns when the lease is durable. After an error the
// holder retries in the background; until that succeeds, the lease names what it did before, or
// what it should. If the store has refused an earlier write, Set returns that error without a
// request most of the time. Of calls that overlap, the last one counts.
func (h *Holder) Set(ctx context.Context, versions []string) error {
	list := append([]string{}, versions...)
	slices.Sort(list)
	list = slices.Compact(list)
	h.mu.Lock()
	h.versions = list
	h.mu.Unlock()
	if err := h.lock(ctx); err != nil {
		return err
	}
	defer h.unlock()
	if h.closed {
		return errClosed
	}
	if !h.started {
		h.started = true
		h.wake = time.NewTimer(h.opt.TTL)
		go h.renew()
	}
	h.mu.Lock()
	err, next := h.err, h.next
	h.mu.Unlock()
	if Refused(err) && time.Now().Before(next) {
		return err
	}
	return h.write(ctx)
}

// lock gets the right to write the object.
func (h *Holder) lock(ctx context.Context) error {
	select {
	case h.writing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *Holder) unlock() { <-h.writing }

// renew writes the lease again whenever that is due.
func (h *Holder) renew() {
	for {
		select {
		case <-h.life.Done():
			return
		case <-h.wake.C:
		}
		if h.lock(h.life) != nil {
			return
		}
		if h.life.Err() != nil {
			h.unlock()
			return
		}
		h.mu.Lock()
		due := time.Until(h.next)
		h.mu.Unlock()
		if due > 0 { // another write was faster
			h.schedule(due)
		} else {
			ctx, cancel := context.WithTimeout(h.life, h.opt.TTL/3)
			_ = h.write(ctx) // logged, and in the status
			cancel()
		}
		h.unlock()
	}
}

// schedule sets the time of the next attempt.
func (h *Holder) schedule(in time.Duration) {
	h.mu.Lock()
	h.next = time.Now().Add(in)
	h.wake.Reset(in)
	h.mu.Unlock()
}

// write writes the lease and notes the result. The caller has the right to write.
func (h *Holder) write(ctx context.Context) error {
	now := h.opt.Now().UTC().Truncate(time.Millisecond)
	doc := document{Program: h.opt.Program, Renewed: now, Expires: now.Add(h.opt.TTL)}
	h.mu.Lock()
	doc.Versions = h.versions
	h.mu.Unlock()
	err := h.put(ctx, &doc)
	if err == nil && len(h.stale) > 0 && h.store.Delete(ctx, h.stale...) == nil {
		h.stale = nil
	}
	h.note(ctx, &doc, err)
	return err
}

// put writes the object, on the condition that it is the one that this holder wrote last. Without
// that, a write that was given up on could take effect later and undo one that came after it.
func (h *Holder) put(ctx context.Context, doc *document) error {
	if h.unsure {
		if _, err := h.look(ctx); err != nil {
			return err
		}
	}
	h.mu.Lock()
	if h.maybe && !doc.Renewed.Before(h.expires) {
		// The lease has expired, and a collector may be about to delete the object.
		h.stale = append(h.stale, leaseKey(h.name))
		h.name, h.etag, h.maybe = newHolder(h.opt.Host), "", false
		h.named, h.expires = nil, time.Time{}
	}
	h.mu.Unlock()
	doc.Holder = h.name
	data, err := doc.encode()
	if err != nil {
		return err
	}
	for range ambiguities {
		var info blob.Info
		info, err = h.store.Put(ctx, leaseKey(h.name), data, blob.Condition{IfAbsent: h.etag == "", IfMatch: h.etag})
		if err == nil {
			h.etag, h.maybe = info.ETag, true
			return nil
		}
		if Refused(err) {
			return err // nothing was written
		}
		h.unsure, h.maybe = true, true
		if !errors.Is(err, blob.ErrPrecondition) {
			return err
		}
		found, err := h.look(ctx)
		if err != nil || bytes.Equal(found, data) {
			return err
		}
	}
	return err
}

// look finds out which object a write will replace.
func (h *Holder) look(ctx context.Context) ([]byte, error) {
	data, info, err := h.store.Get(ctx, leaseKey(h.name))
	if errors.Is(err, blob.ErrNotExist) {
		data, info, err = nil, blob.Info{}, nil
	}
	if err != nil {
		return nil, err
	}
	h.etag, h.maybe, h.unsure = info.ETag, data != nil, false
	return data, nil
}

// note records the result of a write, logs a change, and schedules the next write.
func (h *Holder) note(ctx context.Context, doc *document, err error) {
	if h.life.Err() != nil {
		return // Close has interrupted the write
	}
	h.mu.Lock()
	before := h.err
	h.err = err
	pause := h.opt.TTL / 3
	switch {
	case err == nil:
		h.named, h.expires = doc.Versions, doc.Expires
		if !slices.Equal(h.versions, doc.Versions) {
			pause = 0 // a Set gave up waiting for this write
		}
	case Refused(err):
		h.failures++
		pause = max(pause, refusedPause)
	default:
		h.failures++
		pause = min(pause, retryPause)
		// It may have taken effect all the same.
		h.named = common(h.named, doc.Versions)
		if h.expires.IsZero() {
			h.expires = doc.Expires
		}
	}
	h.mu.Unlock()
	h.schedule(pause)
	switch {
	case err == nil && before != nil:
		h.opt.Log.LogAttrs(ctx, slog.LevelInfo, "the lease is written again", slog.String("lease", leaseKey(doc.Holder)))
	case err != nil && Refused(err) && !Refused(before):
		h.opt.Log.LogAttrs(ctx, slog.LevelInfo,
			"the store takes no lease: only the garbage collector's grace period keeps the versions that are read here",
			slog.String("error", err.Error()))
	case err != nil && !Refused(err) && (before == nil || Refused(before)):
		h.opt.Log.LogAttrs(ctx, slog.LevelWarn, "the lease cannot be written", slog.String("error", err.Error()))
	}
}

// common returns the versions of a that b has too.
func common(a, b []string) []string {
	if slices.Equal(a, b) {
		return a
	}
	return slices.DeleteFunc(slices.Clone(a), func(id string) bool { return !slices.Contains(b, id) })
}

// Refused reports whether err says that the store does not let this program write, for a reason
// that lasts.
func Refused(err error) bool {
	return errors.Is(err, blob.ErrDenied) && !errors.Is(err, blob.ErrCredentials) ||
		errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
}

// Status is the state of a lease.
type Status struct {
	// Versions are those that the lease names and that its next renewal will name, ascending. It is
	// nil if there is no lease or it has expired. The caller must not change it.
	Versions []string
	// Expires is when the lease ends unless it is renewed.
	Expires time.Time
	// Failures counts the writes that failed.
	Failures int64
	// Err is why the last write failed, nil if it did not.
	Err error
}

// Status returns the state of the lease.
func (h *Holder) Status() Status {
	now := h.opt.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	s := Status{Expires: h.expires, Failures: h.failures, Err: h.err}
	if now.Before(h.expires) {
		s.Versions = common(h.named, h.versions)
	}
	return s
}

// Close ends the renewals and removes the lease. It costs no request if nothing was written. If the
// object cannot be removed, the lease ends when it expires.
func (h *Holder) Close(ctx context.Context) error {
	h.stop()
	if err := h.lock(ctx); err != nil {
		return err
	}
	defer h.unlock()
	if h.closed {
		return nil
	}
	h.closed = true
	h.mu.Lock()
	h.named, h.expires = nil, time.Time{}
	h.mu.Unlock()
	keys := h.stale
	if h.maybe {
		keys = append(keys, leaseKey(h.name))
	}
	if len(keys) == 0 {
		return nil
	}
	return h.store.Delete(ctx, keys...)
}
