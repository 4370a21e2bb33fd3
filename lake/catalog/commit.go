package catalog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"

	"github.com/urlake/urlake/lake/lease"
)

// ErrBusy means that the store rejected replacing the manifest again and again, although nobody had
// changed it. Publish again later.
var ErrBusy = errors.New("store rejects replacing the manifest; publish again later")

// maxRejections is how many times in a row a store may reject a conditional put of a manifest that
// nobody has changed. S3 answers 409 while another put of the key is in flight; if that one fails,
// the manifest stays as it was.
const maxRejections = 8

// firstCommitTime is how long a lake's first commit may take from writing its version to writing
// the manifest. Until then, versions without a manifest are not a sign that the manifest was lost.
const firstCommitTime = 3 * time.Second

// Commit is one change of a lake's published state.
type Commit struct {
	// ID is a digest of the change's inputs and of the version that it was planned on: 32 hex
	// digits. If the manifest lists ID, the commit has been made, by this process or by another one
	// with the same plan.
	ID string
	// BuiltBy names the program and its build.
	BuiltBy string
	// Build returns what the version holds that follows parent, which is nil for a lake's first.
	// When another commit came first, Apply calls Build again with the new parent. Build returns an
	// error if the change's inputs are no longer live; that error ends the commit.
	Build func(ctx context.Context, parent *Version) (*Next, error)
	// Check is called in each attempt, after Build, if a garbage collection has ever swept the
	// lake, with the number of the last sweep, which has ended. It returns an error unless the
	// objects exist that the version is to have and the parent has not: a sweep may have found them
	// before anything referred to them. That error ends the commit. Later sweeps make the attempt
	// fail.
	Check func(ctx context.Context, swept uint64) error
	// Cover is called in each attempt if the lake has takedowns, with the manifest that the commit
	// replaces and the version that it adds. It returns the takedowns with the tables of the
	// version's segments, so that both are published by one put. A later change of the takedowns
	// makes the attempt fail. Without Cover the version may only have segments that its parent has.
	Cover func(ctx context.Context, m *Manifest, v *Version) (*TakedownRef, error)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Committed is the result of a commit.
type Committed struct {
	Version VersionRef
	// Generation is that of a manifest that lists the version.
	Generation uint64
	// Existed tells that the commit had been made before.
	Existed bool
}

// Apply makes the commit. It writes the version, its pieces first, then replaces the manifest on
// the condition that it is still the one that was read. If the store answers with an error, Apply
// reads the manifest again: if it lists the commit's ID, the commit has succeeded; if it is another
// manifest, Apply builds again on the new parent. After an error the commit may or may not have
// been made; applying the same commit again is safe and tells.
//
// If the manifest or its current version is lost, the commit follows what Recover finds. The
// generation is then higher than that of any lost manifest, so that readers which saw those accept
// it.
//
// The version of a commit that lost a race stays behind as an object that nothing refers to.
func (c Commit) Apply(ctx context.Context, store blob.Store) (Committed, error) {
	if !validCommit(c.ID) {
		return Committed{}, fmt.Errorf("commit id %q: want 32 hex digits", c.ID)
	}
	if err := probe(ctx, store); err != nil {
		return Committed{}, err
	}
	done, m, err := c.apply(ctx, store)
	if err == nil {
		err = m.note(ctx, store)
	}
	if err != nil {
		return Committed{}, fmt.Errorf("commit %s: %w", c.ID, err)
	}
	return done, nil
}

func (c Commit) apply(ctx context.Context, store blob.Store) (Committed, *Manifest, error) {
	rejections := 0
	started, wrote := time.Now(), false
	for round := 0; ; round++ {
		s, err := Look(ctx, store)
		if err != nil {
			return Committed{}, nil, err
		}
		// The first committer of a lake finds no version and does not wait.
		// What the version shares with earlier ones must not be deleted before it is published.
		if s.Manifest != nil && !s.manifestLost {
			if err := lease.AwaitSweep(ctx, store, s.Manifest.Swept); err != nil {
				return Committed{}, nil, err
			}
		}
		if s.missing && s.last != "" && time.Since(started) < firstCommitTime {
			select {
			case <-ctx.Done():
				return Committed{}, nil, context.Cause(ctx)
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		if s.manifestLost && s.Manifest != nil {
			if err := s.put(ctx, store, s.Manifest); err != nil {
				return Committed{}, nil, err
			}
			continue
		}
		if done, ok := c.find(s.Manifest); ok {
			// If this call has written nothing yet, an earlier attempt made the commit.
			done.Existed = !wrote
			return done, s.Manifest, nil
		}
		next, ref, err := c.write(ctx, store, s)
		if errors.Is(err, codec.ErrCorrupt) && s.Manifest != nil {
			// What a later version has no longer may be collected while this one reads it.
			if m, _, readErr := ReadManifestUnchecked(ctx, store); readErr == nil && m.Generation != s.Manifest.Generation {
				continue
			}
		}
		if err != nil {
			return Committed{}, nil, err
		}
		wrote = true
		data, err := next.encode()
		if err != nil {
			return Committed{}, nil, err
		}
		_, err = store.Put(ctx, ManifestKey, data, s.cond)
		if err == nil {
			return Committed{Version: ref, Generation: next.Generation}, next, nil
		}
		// Any error, a rejection too, may follow a success whose reply was lost.
		seen, seenTag, readErr := ReadManifestUnchecked(ctx, store)
		if readErr != nil && !errors.Is(readErr, ErrNoVersion) {
			return Committed{}, nil, err
		}
		if done, ok := c.find(seen); ok {
			return done, seen, nil
		}
		if seenTag == s.cond.IfMatch {
			if !errors.Is(err, blob.ErrPrecondition) {
				return Committed{}, nil, err
			}
			if rejections++; rejections == maxRejections {
				return Committed{}, nil, fmt.Errorf("%w: %w", ErrBusy, err)
			}
		} else {
			rejections = 0
		}
		// Another commit succeeds in each lost round, so this ends. The pause spreads the retries.
		pause := rand.N(time.Duration(min(round+1, 32)) * 5 * time.Millisecond)
		select {
		case <-ctx.Done():
			return Committed{}, nil, context.Cause(ctx)
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

// write builds and stores the version that follows the state's, and returns the manifest that
// publishes it.
func (c Commit) write(ctx context.Context, store blob.Store, s *State) (*Manifest, VersionRef, error) {
	next := Manifest{TakedownEpoch: s.takedowns, Takedowns: s.takedownRef}
	parent, last, parentID := s.Current, s.last, ""
	var err error
	if s.Manifest != nil {
		next = *s.Manifest
		parentID = parent.ID
	} else if next.Swept, err = lease.LastSweep(ctx, store); err != nil {
		return nil, VersionRef{}, err
	}
	built, err := c.Build(ctx, parent)
	if err != nil {
		return nil, VersionRef{}, err
	}
	if next.Swept > 0 && c.Check != nil {
		if err := c.Check(ctx, next.Swept); err != nil {
			return nil, VersionRef{}, err
		}
	}
	v, err := built.make(ctx, store, parent)
	if err != nil {
		return nil, VersionRef{}, fmt.Errorf("build version: %w", err)
	}
	if next.Takedowns != nil {
		if next.Takedowns, err = c.cover(ctx, &next, parent, v); err != nil {
			return nil, VersionRef{}, fmt.Errorf("apply the takedowns: %w", err)
		}
	}
	now := time.Now
	if c.Now != nil {
		now = c.Now
	}
	created := now()
	v.Parent = parentID
	v.Commit = c.ID
	v.Created = created.UTC().Format("2006-01-02T15:04:05.000Z07:00")
	v.BuiltBy = c.BuiltBy
	for {
		v.ID = nextVersionID(last, created, c.ID)
		key := VersionKey(v.ID)
		data, err := v.encode(key)
		if err != nil {
			return nil, VersionRef{}, fmt.Errorf("encode version: %w", err)
		}
		_, err = store.Put(ctx, key, data, blob.Condition{IfAbsent: true})
		if errors.Is(err, blob.ErrPrecondition) {
			// The same commit ran in the same millisecond, or the reply to this put's first try was
			// lost.
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
		ref := refOf(v, data)
		next.CurrentVersion = v.ID
		if next.Generation, err = s.above(s.last, created); err != nil {
			return nil, VersionRef{}, err
		}
		next.Versions = append(next.Versions[:len(next.Versions):len(next.Versions)], ref)
		return &next, ref, nil
	}
}

// cover returns the takedowns of the manifest that publishes v.
func (c Commit) cover(ctx context.Context, m *Manifest, parent, v *Version) (*TakedownRef, error) {
	if c.Cover != nil {
		return c.Cover(ctx, m, v)
	}
	for i := range v.Segments {
		if parent == nil || !slices.ContainsFunc(parent.Segments, func(s Segment) bool { return s.View() == v.Segments[i].View() }) {
			return nil, fmt.Errorf("segment %s is new, and this program does not apply takedowns to it", v.Segments[i].ID)
		}
	}
	return m.Takedowns, nil
}

// ProbeRoot is the folder of the objects by which conditional puts are checked. Only processes that
// were killed leave any.
const ProbeRoot = "index/probe/"

// probed holds the URLs of the stores whose conditional puts have been checked.
var probed sync.Map

// probe checks, once per process, that the store's conditional puts work. On a store that ignores
// conditions two commits could overwrite each other unnoticed.
func probe(ctx context.Context, store blob.Store) error {
	if _, ok := probed.Load(store.URL()); ok {
		return nil
	}
	if err := blob.ProbeConditional(ctx, store, strings.TrimSuffix(ProbeRoot, "/")); err != nil {
		return err
	}
	probed.Store(store.URL(), true)
	return nil
}
