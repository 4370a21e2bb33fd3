package lease

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

const (
	// TrashRoot is the folder of the sweep and of the lists.
	TrashRoot = "index/trash/"
	// SweepKey is the key of the document of the last sweep.
	SweepKey = TrashRoot + "sweep.json"

	sweepFormat = 1

	// defaultSweepTimeout is how long a sweep's document may stay unchanged until others end the
	// sweep. What a collection may delete after the last renewal that it knows of, it asks S3 for
	// within a quarter and a twentieth of that time. S3 refuses requests that are 15 minutes older
	// than its own clock, which may differ by as much from the one by which the request is signed.
	defaultSweepTimeout = 45 * time.Minute
	minTimeout          = 20 * time.Millisecond
	maxTimeout          = 24 * time.Hour

	// Parts of the timeout: between two renewals; until when deletions may begin after the begin of
	// a renewal; for one deletion.
	renewPart, deletePart, requestPart = 32, 4, 20

	// lostRenewals is how many documents of its own a sweep finds in the place of the one that it
	// knows. Renewals are conditional, so that of all that were given up on one can take effect.
	lostRenewals = 4

	// maxAwait is how long Await waits. A step that fails then is repeated, and says why it waits.
	maxAwait = 15 * time.Second

	firstPause, lastPause = 10 * time.Millisecond, 500 * time.Millisecond // of who waits

	lockName = "sweep"
)

var (
	// ErrSweepLost means that a sweep was ended by others, because its document was not renewed in
	// time or was changed. Nothing more may be deleted in it.
	ErrSweepLost = errors.New("the sweep was ended by another process")
	// ErrSweepOpen means that a collection is deleting, so that others have to wait, or that one
	// has died while it did.
	ErrSweepOpen = errors.New("a garbage collection is deleting")
)

// sweepDocument is the document at SweepKey.
type sweepDocument struct {
	Format int `json:"format"`
	// Epoch is the number of the sweep, from 1.
	Epoch uint64 `json:"epoch"`
	// Open tells that the sweep has not ended.
	Open bool `json:"open"`
	// Holder is a random name of the process that sweeps, Renewals how often it has renewed this.
	Holder   string `json:"holder"`
	Renewals uint64 `json:"renewals"`
	// Timeout is how long the document may stay as it is until others end the sweep, in
	// milliseconds.
	Timeout int64 `json:"timeout_ms"`
}

func (d *sweepDocument) timeout() time.Duration { return time.Duration(d.Timeout) * time.Millisecond }

func (d *sweepDocument) check() error {
	switch {
	case d.Format != sweepFormat:
		return codec.Corrupt(SweepKey, "format", -1, sweepFormat, d.Format)
	case d.Epoch == 0:
		return codec.Corrupt(SweepKey, "epoch", -1, "at least 1", d.Epoch)
	case d.timeout() < minTimeout || d.timeout() > maxTimeout:
		return codec.Corrupt(SweepKey, "timeout_ms", -1, "20 to 86400000", d.Timeout)
	}
	return nil
}

// readSweep returns the document of the last sweep. If there is none, or it is damaged, ok is
// false, and the ETag is the ETag of the damaged one, "" for none.
func readSweep(ctx context.Context, store blob.Store) (d sweepDocument, etag string, ok bool, err error) {
	etag, err = lake.LoadSealed(ctx, store, SweepKey, sweepFormat, &d)
	if err == nil && etag != "" {
		err = d.check()
	}
	if codec.IsUnsealed(err) {
		return sweepDocument{}, etag, false, nil
	}
	return d, etag, err == nil && etag != "", err
}

// putSweep writes a document on the condition that the one with that ETag is still there, none for
// "".
func putSweep(ctx context.Context, store blob.Store, d sweepDocument, etag string) (string, error) {
	d.Format = sweepFormat
	data, err := codec.Seal(&d)
	if err != nil {
		return "", err
	}
	info, err := store.Put(ctx, SweepKey, data, blob.Condition{IfMatch: etag, IfAbsent: etag == ""})
	if err == nil {
		return info.ETag, nil
	}
	// The put may have taken effect although its reply was lost. No other process writes the same.
	if have, etag, ok, readErr := readSweep(ctx, store); readErr == nil && ok && have == d {
		return etag, nil
	}
	return "", err
}

// pause waits for a time, or until ctx ends, which is an error.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// damagedSweep is the error about a document whose number is not known.
func damagedSweep() error {
	return fmt.Errorf("%w; delete it when no garbage collection has run for an hour",
		codec.Corrupt(SweepKey, "seal", -1, "an intact document", "a damaged one"))
}

// CheckSweep returns a *codec.CorruptError if the document of the last sweep is damaged, or missing
// although swept, which the manifest names, is not 0.
func CheckSweep(ctx context.Context, store blob.Store, swept uint64) error {
	d, etag, ok, err := readSweep(ctx, store)
	switch {
	case err != nil:
		return err
	case !ok && etag != "":
		return codec.Corrupt(SweepKey, "seal", -1, "an intact document", "a damaged one")
	case d.Epoch < swept:
		return codec.Corrupt(SweepKey, "epoch", -1, fmt.Sprintf("at least %d, which the manifest names", swept), d.Epoch)
	}
	return nil
}

// CheckSweepFormat returns a *codec.FormatError if a newer urlake has written the sweep's document.
// A change that begins with other writes calls it first, so that it changes nothing of such a lake.
func CheckSweepFormat(ctx context.Context, store blob.Store) error {
	if _, _, _, err := readSweep(ctx, store); codec.IsFormat(err) {
		return err
	}
	return nil
}

// LastSweep returns the number of the last sweep, 0 if there was none, after that has ended. It is
// for those who write a document that makes objects live in the place of one that is lost.
func LastSweep(ctx context.Context, store blob.Store) (epoch uint64, err error) {
	d, etag, ok, err := readSweep(ctx, store)
	if err != nil || !ok && etag == "" {
		return 0, err
	}
	if !ok { // damaged: the number is not known
		return 0, damagedSweep()
	}
	return d.Epoch, AwaitSweep(ctx, store, d.Epoch)
}

// AwaitSweep returns when sweep number epoch has ended. 0 stands for none. Callers have read the
// number in the document that they are about to replace. The error is ErrSweepOpen if it has not
// ended after maxAwait: the caller's step is to be repeated.
func AwaitSweep(ctx context.Context, store blob.Store, epoch uint64) error {
	if epoch == 0 {
		return nil
	}
	began := time.Now()
	for wait := firstPause; ; wait = min(2*wait, lastPause) {
		d, etag, ok, err := readSweep(ctx, store)
		if err != nil {
			return fmt.Errorf("wait for garbage collection: %w", err)
		}
		if ok && d.Epoch >= epoch && (d.Epoch > epoch || !d.Open) {
			return nil
		}
		if !ok || d.Epoch < epoch { // lost: whether the sweep has ended is not known
			d = sweepDocument{Epoch: epoch, Open: true, Timeout: defaultSweepTimeout.Milliseconds()}
		}
		ended, left, err := endAbandoned(ctx, store, d, etag)
		if err != nil {
			return fmt.Errorf("end an abandoned garbage collection: %w", err)
		}
		if ended {
			continue
		}
		if time.Since(began) > maxAwait {
			return fmt.Errorf("%w; if its process has died, others go on after %v", ErrSweepOpen, left.Round(time.Second))
		}
		if err := pause(ctx, min(wait, d.timeout()/renewPart)); err != nil {
			return fmt.Errorf("wait for garbage collection: %w", err)
		}
	}
}

// seen has, for each lake, the document of an open sweep that this process has seen last, and when
// it saw that first.
var seen sync.Map // of sighting by URL

type sighting struct {
	sweepDocument
	since time.Time
}

// endAbandoned ends a sweep if its process has died, and reports whether the caller has to look
// again. Left is how long the sweep is waited for at most, if its process has died. d is the
// sweep's document and etag that of what is in the store.
func endAbandoned(ctx context.Context, store blob.Store, d sweepDocument, etag string) (ended bool, left time.Duration, err error) {
	release, held, known, err := blob.TryHold(store, lockName)
	if err != nil {
		return false, 0, err
	}
	if known && !held {
		return false, 0, nil // the process lives
	}
	if known {
		defer release()
		// The sweep may have ended, and another begun, before the lock was taken.
		now, _, ok, err := readSweep(ctx, store)
		if err != nil || ok && now != d {
			return err == nil, 0, err
		}
	} else {
		s, ok := seen.Load(store.URL())
		if first, _ := s.(sighting); ok && first.sweepDocument == d {
			left = d.timeout() - time.Since(first.since)
		} else {
			seen.Store(store.URL(), sighting{d, time.Now()})
			left = d.timeout()
		}
		if left > 0 {
			return false, left, nil
		}
	}
	d.Open = false
	if _, err := putSweep(ctx, store, d, etag); err != nil && !errors.Is(err, blob.ErrPrecondition) {
		return false, 0, err
	}
	return true, 0, nil
}

// Sweep is a sweep that this process has begun.
type Sweep struct {
	store   blob.Store
	epoch   uint64
	timeout time.Duration

	mu      sync.Mutex
	doc     sweepDocument
	etag    string
	renewed time.Time // when the last renewal that succeeded began
	lost    error
	release func() // gives back the lock

	stop func()
	done chan struct{}
}

// BeginSweep begins a sweep, and renews it until End. Timeout is 0 for defaultSweepTimeout. If
// another sweep has not ended after maxAwait, the error is ErrSweepOpen.
func BeginSweep(ctx context.Context, store blob.Store, timeout time.Duration) (*Sweep, error) {
	if timeout == 0 {
		timeout = defaultSweepTimeout
	}
	random := make([]byte, 8)
	_, _ = rand.Read(random) // never fails
	next := sweepDocument{
		Format: sweepFormat, Epoch: 1, Open: true, Holder: hex.EncodeToString(random),
		Timeout: timeout.Milliseconds(),
	}
	if err := next.check(); err != nil {
		return nil, err
	}
	for tries := 0; ; tries++ {
		d, etag, ok, err := readSweep(ctx, store)
		if err == nil && !ok && etag != "" {
			err = damagedSweep()
		}
		if err == nil && d.Open {
			if err = AwaitSweep(ctx, store, d.Epoch); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, fmt.Errorf("begin to delete: %w", err)
		}
		release, held, known, err := blob.TryHold(store, lockName)
		if err == nil && known && !held { // somebody else begins, or looks
			if tries < 100 {
				if err := pause(ctx, firstPause); err != nil {
					return nil, err
				}
				continue
			}
			err = ErrSweepOpen
		}
		if err != nil {
			return nil, fmt.Errorf("begin to delete: %w", err)
		}
		if !known {
			release = func() {}
		}
		next.Epoch = d.Epoch + 1
		began := time.Now()
		etag, err = putSweep(ctx, store, next, etag)
		if err != nil {
			release()
			if errors.Is(err, blob.ErrPrecondition) && tries < 100 {
				continue
			}
			return nil, fmt.Errorf("begin to delete: %w", err)
		}
		renewCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
		s := &Sweep{
			store: store, epoch: next.Epoch, timeout: next.timeout(), doc: next, etag: etag, renewed: began,
			release: release, stop: stop, done: make(chan struct{}),
		}
		go s.renew(renewCtx)
		return s, nil
	}
}

// Epoch is the number of the sweep.
func (s *Sweep) Epoch() uint64 { return s.epoch }

// renew renews the document until the context ends or the sweep is lost.
func (s *Sweep) renew(ctx context.Context) {
	defer close(s.done)
	tick := time.NewTicker(s.timeout / renewPart)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		began := time.Now()
		s.mu.Lock()
		next, etag := s.doc, s.etag
		s.mu.Unlock()
		next.Renewals++
		putCtx, cancel := context.WithTimeout(ctx, s.timeout/requestPart)
		etag, err := s.replace(putCtx, next, etag)
		cancel()
		s.mu.Lock()
		switch {
		case err == nil:
			s.doc, s.etag, s.renewed = next, etag, began
		case errors.Is(err, blob.ErrPrecondition):
			s.lost = ErrSweepLost
		} // after another error the next tick tries again, as long as there is time
		lost := s.lost
		s.mu.Unlock()
		if lost != nil {
			return
		}
	}
}

// Delete deletes objects unless the sweep may have been ended by others, which is ErrSweepLost.
// After an error some of the objects may be deleted.
func (s *Sweep) Delete(ctx context.Context, keys ...string) error {
	s.mu.Lock()
	lost, left := s.lost, s.timeout/deletePart-time.Since(s.renewed)
	s.mu.Unlock()
	if lost == nil && left <= 0 {
		lost = fmt.Errorf("%w: it could not be renewed in time", ErrSweepLost)
	}
	if lost != nil {
		return lost
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout/requestPart)
	defer cancel()
	return s.store.Delete(ctx, keys...)
}

// End ends the sweep. Writers that wait for it go on. If that fails, they go on after its timeout.
func (s *Sweep) End(ctx context.Context) error {
	s.stop()
	<-s.done
	defer s.release()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost != nil {
		return s.lost
	}
	next := s.doc
	next.Open = false
	ctx, cancel := context.WithTimeout(ctx, s.timeout/requestPart)
	defer cancel()
	_, err := s.replace(ctx, next, s.etag)
	if errors.Is(err, blob.ErrPrecondition) {
		return ErrSweepLost
	}
	return err
}

// replace puts the next document of the sweep over the one with that ETag, or over a renewal of the
// sweep that took effect although it was given up on, or its reply was lost.
func (s *Sweep) replace(ctx context.Context, next sweepDocument, etag string) (string, error) {
	for range lostRenewals {
		put, err := putSweep(ctx, s.store, next, etag)
		if !errors.Is(err, blob.ErrPrecondition) {
			return put, err
		}
		d, found, ok, readErr := readSweep(ctx, s.store)
		if readErr != nil {
			return "", readErr
		}
		if !ok || !d.Open || d.Epoch != s.epoch || d.Holder != next.Holder || found == etag {
			return "", err
		}
		etag = found
	}
	return "", fmt.Errorf("%w: earlier renewals arrived again and again", blob.ErrPrecondition)
}

const (
	// listFormat is the format version of lists.
	listFormat = 1
	listRoot   = TrashRoot + "lists/"
	timeLayout = "20060102T150405.000Z"

	// maxListed is the most objects of a list. A sweep may end after each.
	maxListed = 10_000
)

// TrashObject is an object that nothing referred to when its list was written.
type TrashObject struct {
	Key   string `json:"key"`
	Bytes int64  `json:"bytes"`
}

// TrashList is a list of objects that nothing referred to when it was written. They are deleted
// when the time of grace has passed and still nothing refers to them.
type TrashList struct {
	Format int `json:"format"`
	// Created is the time by the clock of the collection: UTC, in milliseconds.
	Created time.Time `json:"created"`
	// Objects are in the order in which they are deleted: what refers to another object comes
	// before that.
	Objects []TrashObject `json:"objects"`
}

// TrashRef names a list in the store.
type TrashRef struct {
	Key     string
	Created time.Time
}

var listKey = regexp.MustCompile(`^` + listRoot + `([0-9]{8}T[0-9]{6}\.[0-9]{3}Z)-[0-9]{6}-[0-9a-f]{32}\.json$`)

// WriteTrash writes the lists of objects, whose time is now. What a collection that died has listed
// is listed again by the next, which does no harm.
func WriteTrash(ctx context.Context, store blob.Store, now time.Time, objects iter.Seq2[TrashObject, error]) (lists int, err error) {
	l := TrashList{Format: listFormat, Created: now.UTC().Truncate(time.Millisecond)}
	flush := func() error {
		data, err := codec.Seal(&l)
		if err != nil {
			return err
		}
		key := fmt.Sprintf("%s%s-%06d-%s.json", listRoot, l.Created.Format(timeLayout), lists, lake.Digest(data))
		_, err = store.Put(ctx, key, data, blob.Condition{})
		lists++
		l.Objects = l.Objects[:0]
		return err
	}
	for o, err := range objects {
		if err != nil {
			return lists, err
		}
		if l.Objects = append(l.Objects, o); len(l.Objects) == maxListed {
			if err := flush(); err != nil {
				return lists, err
			}
		}
	}
	if len(l.Objects) == 0 {
		return lists, nil
	}
	return lists, flush()
}

// TrashLists returns the lists of a lake, the oldest first.
func TrashLists(ctx context.Context, store blob.Store) ([]TrashRef, error) {
	var all []TrashRef
	for info, err := range store.List(ctx, listRoot) {
		if err != nil {
			return nil, err
		}
		m := listKey.FindStringSubmatch(info.Key)
		if m == nil {
			continue
		}
		created, err := time.Parse(timeLayout, m[1])
		if err != nil {
			continue
		}
		all = append(all, TrashRef{Key: info.Key, Created: created})
	}
	return all, nil
}

// Read reads a list.
func (r TrashRef) Read(ctx context.Context, store blob.Store) (*TrashList, error) {
	data, _, err := store.Get(ctx, r.Key)
	if err != nil {
		return nil, err
	}
	var l TrashList
	switch err := codec.Unseal(data, r.Key, listFormat, &l); {
	case err != nil:
		return nil, err
	case l.Format != listFormat:
		return nil, codec.Corrupt(r.Key, "format", -1, listFormat, l.Format)
	case !l.Created.Equal(r.Created) || !strings.Contains(r.Key, lake.Digest(data)):
		return nil, codec.Corrupt(r.Key, "name", -1, "that of its content", l.Created)
	}
	return &l, nil
}
