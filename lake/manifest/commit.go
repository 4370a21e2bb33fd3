package manifest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// ErrBusy says that the store refused to replace the manifest although nobody else had.
var ErrBusy = errors.New("store refuses to replace the manifest")

// refusals is how often in a row a store may refuse a conditional put of a manifest that nobody
// has changed. S3 answers 409 while another put of the key is under way; one that then fails leaves
// the manifest as it was.
const refusals = 8

// underWay is how long a lake's first commit may take from its version to its manifest: for so long versions without a
// manifest are not taken for what a lost manifest left behind.
const underWay = 3 * time.Second

// Commit is one change of a lake's published state.
type Commit struct {
	// ID is made of the inputs of the change and of the version it was planned on: 32 hex digits. A commit that
	// finds its ID in the manifest has been made, by this process or another one with the same plan.
	ID string
	// BuiltBy names the program.
	BuiltBy string
	// Build returns the version that follows parent (nil for the first), with Segments, Datasets, Batches,
	// CanonicalForm and PublicSuffix set; the rest is filled in. It is called again with the new parent
	// when another commit came first, and returns an error when the change's inputs are no longer live: that error
	// ends the commit. It must not change parent.
	Build func(ctx context.Context, parent *Version) (*Version, error)
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Committed is what a commit led to.
type Committed struct {
	Version VersionRef
	// Generation is that of the manifest in which the version was seen.
	Generation uint64
	// Existed: the commit had been made before.
	Existed bool
}

// Apply makes the commit. It writes the version, then replaces the manifest under the
// condition that it is still the one that was read. Whatever the store answers, the manifest is read again: the
// commit's own ID in it is success, another manifest means building again on the new parent.
// An error leaves the state either as it was or with the commit made; applying the
// same commit again finds out.
//
// Where the manifest is missing and versions are there, the new manifest's generation is higher than any that was lost, so that
// readers which have seen that go on with this one. It lists the new version alone.
//
// A version whose commit lost the race stays behind as an object nothing refers to.
func (c Commit) Apply(ctx context.Context, store blob.Store) (Committed, error) {
	if !validCommit(c.ID) {
		return Committed{}, fmt.Errorf("commit id %q: want 32 hex digits", c.ID)
	}
	if err := probe(ctx, store); err != nil {
		return Committed{}, err
	}
	done, err := c.apply(ctx, store)
	if err != nil {
		return Committed{}, fmt.Errorf("commit %s: %w", c.ID, err)
	}
	return done, nil
}

func (c Commit) apply(ctx context.Context, store blob.Store) (Committed, error) {
	refused := 0
	started, wrote := time.Now(), false
	for round := 0; ; round++ {
		old, etag, err := Read(ctx, store)
		if errors.Is(err, ErrNoVersion) {
			old, err = nil, nil
		}
		if err != nil {
			return Committed{}, err
		}
		if done, ok := c.find(old); ok {
			// Found before this one wrote anything it was made by an earlier attempt.
			done.Existed = !wrote
			return done, nil
		}
		newest := "" // of a lake without a manifest
		if old == nil {
			if newest, err = Newest(ctx, store); err != nil {
				return Committed{}, err
			}
			// The one whose version is there first has seen none and does not wait.
			if newest != "" && time.Since(started) < underWay {
				select {
				case <-ctx.Done():
					return Committed{}, context.Cause(ctx)
				case <-time.After(10 * time.Millisecond):
				}
				continue
			}
		}
		next, ref, err := c.write(ctx, store, old, newest)
		if err != nil {
			return Committed{}, err
		}
		wrote = true
		data, err := next.encode()
		if err != nil {
			return Committed{}, err
		}
		cond := blob.Condition{IfMatch: etag}
		if old == nil {
			cond = blob.Condition{IfAbsent: true}
		}
		_, err = store.Put(ctx, Key, data, cond)
		if err == nil {
			return Committed{Version: ref, Generation: next.Generation}, nil
		}
		// A refusal may follow a success whose reply was lost, and so may any other error.
		seen, seenTag, readErr := Read(ctx, store)
		if readErr != nil && !errors.Is(readErr, ErrNoVersion) {
			return Committed{}, err
		}
		if done, ok := c.find(seen); ok {
			return done, nil
		}
		if seenTag == etag {
			if !errors.Is(err, blob.ErrPrecondition) {
				return Committed{}, err
			}
			if refused++; refused == refusals {
				return Committed{}, fmt.Errorf("%w: %w", ErrBusy, err)
			}
		} else {
			refused = 0
		}
		// Each lost round is another commit's success, so this ends; the pause only spreads the losers.
		pause := rand.N(time.Duration(min(round+1, 32)) * 5 * time.Millisecond)
		select {
		case <-ctx.Done():
			return Committed{}, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

func (c Commit) find(m *Manifest) (Committed, bool) {
	if m == nil {
		return Committed{}, false
	}
	ref, ok := m.FindCommit(c.ID)
	return Committed{Version: ref, Generation: m.Generation}, ok
}

// write builds the version after old and stores it, and returns the manifest that would publish it. Where old is nil, newest is the newest version that a
// lost manifest left behind, "" if there is none.
func (c Commit) write(ctx context.Context, store blob.Store, old *Manifest, newest string) (*Manifest, VersionRef, error) {
	next := Manifest{Format: Format, Generation: 1}
	var parent *Version
	last, parentID := newest, ""
	if old != nil {
		ref, err := old.Version("")
		if err != nil {
			return nil, VersionRef{}, err
		}
		if parent, err = ReadVersion(ctx, store, ref); err != nil {
			return nil, VersionRef{}, err
		}
		next = *old
		next.Generation++
		last, parentID = old.Versions[len(old.Versions)-1].ID, parent.ID
	}
	lost := old == nil && last != ""
	v, err := c.Build(ctx, parent)
	if err != nil {
		return nil, VersionRef{}, err
	}
	now := time.Now
	if c.Now != nil {
		now = c.Now
	}
	created := now()
	v.Format = VersionFormat
	v.Parent = parentID
	v.Commit = c.ID
	v.Created = created.UTC().Format("2006-01-02T15:04:05.000Z07:00")
	v.BuiltBy = c.BuiltBy
	v.settle()
	for {
		v.ID = NextVersionID(last, created, c.ID)
		key := VersionKey(v.ID)
		if err := v.check(key); err != nil {
			return nil, VersionRef{}, fmt.Errorf("build version: %w", err)
		}
		data, err := codec.Seal(v)
		if err != nil {
			return nil, VersionRef{}, fmt.Errorf("encode version: %w", err)
		}
		_, err = store.Put(ctx, key, data, blob.Condition{IfAbsent: true})
		if errors.Is(err, blob.ErrPrecondition) {
			// The same commit was tried in the same millisecond, or this put's first reply was lost.
			have, _, err := store.Get(ctx, key)
			if err != nil {
				return nil, VersionRef{}, err
			}
			if string(have) != string(data) {
				last = v.ID
				continue
			}
		} else if err != nil {
			return nil, VersionRef{}, err
		}
		ref := VersionRef{ID: v.ID, Object: key, Bytes: int64(len(data)), XXH64: fmt.Sprintf("%016x", xxhash.Sum64(data)), Commit: c.ID}
		next.CurrentVersion = v.ID
		if lost {
			if next.Generation, err = versionTime(v.ID); err != nil {
				return nil, VersionRef{}, err
			}
		}
		next.Versions = append(next.Versions[:len(next.Versions):len(next.Versions)], ref)
		return &next, ref, nil
	}
}

// probed remembers the stores that were seen to honour conditions, by URL.
var probed sync.Map

// probe makes sure, once in a process, that the store's conditional puts work: one that ignores the
// condition would let two commits overwrite each other in silence.
func probe(ctx context.Context, store blob.Store) error {
	if _, ok := probed.Load(store.URL()); ok {
		return nil
	}
	if err := blob.ProbeConditional(ctx, store, "index/probe"); err != nil {
		return err
	}
	probed.Store(store.URL(), true)
	return nil
}
