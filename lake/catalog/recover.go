package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"

	"github.com/urlake/urlake/lake/lease"
)

// State is what a lake has published, as far as it can be read, and what of it is lost.
type State struct {
	// Manifest and Current, its current version, are nil if nothing was published, or if nothing of
	// what was published can be read.
	Manifest *Manifest
	Current  *Version
	// Lost says which documents are missing or damaged and what takes their place: one line each,
	// which begins with the document's key.
	Lost []string

	// manifestLost tells that the manifest is missing, although versions exist, or damaged.
	// Manifest then lists what is left, and is not in the store.
	manifestLost bool
	missing      bool           // the store has no manifest
	cond         blob.Condition // under which the next manifest may be written
	generation   uint64         // of the manifest in the store; 0 if that is not known
	last         string         // the newest version id so far, "" for none
	// takedowns and takedownRef are of the manifest in the store, or what was found in its place.
	takedowns   uint64
	takedownRef *TakedownRef
}

// Recover reads the manifest and its current version. If one of them is lost, it takes what is
// left:
//
//   - A lost manifest is written again. It lists the newest version that was published and its
//     predecessors. Their tags are lost. A manifest that was put back, perhaps from a backup,
//     although the lake has published more since, is lost too; its tags stay.
//   - If the current version is lost, Current is the newest earlier version that the manifest
//     lists. The manifest stays as it is until a commit on that version replaces it, because
//     readers would miss what the lost version had; see Settle.
//
// Documents of another format belong to another build of urlake. They are not lost, but an error.
func Recover(ctx context.Context, store blob.Store) (*State, error) {
	s, err := Look(ctx, store)
	if err == nil && s.manifestLost && s.Manifest != nil {
		err = s.put(ctx, store, s.Manifest)
	}
	return s, err
}

// Settle is for a caller that has nothing to commit. It notes what is published in the registry,
// whose writer may have died before. If the current version is lost, it writes the manifest of the
// recovered state: the earlier version becomes the current one.
func (s *State) Settle(ctx context.Context, store blob.Store) error {
	if s.Manifest == nil || s.manifestLost {
		return nil
	}
	if len(s.Lost) > 0 {
		next := *s.Manifest
		next.Generation++
		if err := s.put(ctx, store, &next); err != nil {
			return err
		}
	}
	return s.Manifest.note(ctx, store)
}

// put writes a manifest in the place of the one that was read. If another writer came first, that
// one's stays.
func (s *State) put(ctx context.Context, store blob.Store, m *Manifest) error {
	data, err := m.encode()
	if err != nil {
		return err
	}
	_, err = store.Put(ctx, ManifestKey, data, s.cond)
	if errors.Is(err, blob.ErrPrecondition) {
		return nil
	}
	return err
}

// Look is Recover without a write.
func Look(ctx context.Context, store blob.Store) (*State, error) {
	m, etag, err := readManifest(ctx, store)
	if errors.Is(err, blob.ErrNotExist) {
		s := &State{missing: true, cond: blob.Condition{IfAbsent: true}}
		if s.last, err = newestVersion(ctx, store); err != nil || s.last == "" {
			return s, err
		}
		s.Lost = []string{ManifestKey + ": it is missing; versions in the store take its place, without the names that starter tag gave them"}
		return s, s.fromVersions(ctx, store)
	}
	s := &State{cond: blob.Condition{IfMatch: etag}}
	if codec.IsUnsealed(err) {
		if s.last, err = newestVersion(ctx, store); err != nil {
			return nil, err
		}
		s.Lost = []string{ManifestKey + ": it is damaged; versions in the store take its place, without the names that starter tag gave them"}
		return s, s.fromVersions(ctx, store)
	}
	if err != nil {
		return nil, err
	}
	if err := m.older(ctx, store); errors.Is(err, codec.ErrCorrupt) {
		if s.last, err = newestVersion(ctx, store); err != nil {
			return nil, err
		}
		s.Lost = []string{ManifestKey + ": it was put back, perhaps from a backup, and is older than what was published; versions in the store take its place"}
		if err := s.fromVersions(ctx, store); err != nil || s.Manifest == nil {
			return s, err
		}
		s.Manifest.Tags = slices.DeleteFunc(m.Tags, func(t Tag) bool {
			return !slices.ContainsFunc(s.Manifest.Versions, func(v VersionRef) bool { return v.ID == t.Version })
		})
		return s, nil
	} else if err != nil {
		return nil, err
	}
	s.generation, s.last = m.Generation, m.Versions[len(m.Versions)-1].ID
	s.takedowns, s.takedownRef = m.TakedownEpoch, m.Takedowns
	at := slices.IndexFunc(m.Versions, func(v VersionRef) bool { return v.ID == m.CurrentVersion })
	for i := at; i >= 0; i-- {
		ref := m.Versions[i]
		v, err := ReadVersion(ctx, store, ref)
		if err == nil {
			s.Current = v
			s.Manifest = m
			if i < at {
				s.Lost = append(s.Lost, fmt.Sprintf("%s: version %s takes its place", m.Versions[at].Object, ref.ID))
				left := *m
				left.CurrentVersion, left.Versions = ref.ID, slices.Clone(m.Versions[:i+1])
				left.Tags = slices.DeleteFunc(slices.Clone(m.Tags), func(t Tag) bool { return t.Version > ref.ID })
				for _, t := range m.Tags {
					if t.Version > ref.ID {
						s.Lost = append(s.Lost, t.lost())
					}
				}
				s.Manifest = &left
			}
			return s, nil
		}
		if !isLost(err) {
			return nil, err
		}
		s.Lost = append(s.Lost, fmt.Sprintf("%s: it is missing or damaged", ref.Object))
	}
	return s, nil
}

// CheckManifestPresent returns a *codec.CorruptError if there is no manifest although versions were
// written, and nil if nothing was published yet.
func CheckManifestPresent(ctx context.Context, store blob.Store) error {
	id, err := newestVersion(ctx, store)
	if err != nil || id == "" {
		return err
	}
	if _, err := store.Stat(ctx, ManifestKey); !errors.Is(err, blob.ErrNotExist) {
		return err
	}
	return codec.Corrupt(ManifestKey, "object", -1, "one that exists, since version "+id+" was written", "none")
}

// isLost reports whether an error of ReadVersion says that a version's bytes are not in the store.
// A version of another format has the bytes that it was written with.
func isLost(err error) bool {
	var c *codec.CorruptError
	return errors.Is(err, blob.ErrNotExist) ||
		errors.As(err, &c) && (c.Section == sizeSection || c.Section == hashSection)
}

// fromVersions makes the manifest of the newest intact version that was published and its
// predecessors. Other versions are of commits that lost a race or were not made, and nothing refers
// to them. If a predecessor is lost, the newest version before it takes its place.
//
// Versions after the one that the registry was told were published only if others follow them.
// If it cannot tell, or nothing before is left, the newest version counts as published.
func (s *State) fromVersions(ctx context.Context, store blob.Store) error {
	s.manifestLost = true
	var err error
	if s.takedownRef, s.takedowns, err = newestTakedowns(ctx, store); err != nil {
		return err
	}
	ids, err := versionIDs(ctx, store)
	if err != nil {
		return err
	}
	told, _, err := notedPublished(ctx, store)
	if err != nil {
		return err
	}
	if told != "" {
		last, err := lastPublished(ctx, store, ids, told, told)
		if err != nil {
			return err
		}
		last = max(last, told)
		if n, found := slices.BinarySearch(ids, last); found {
			ids = ids[:n+1]
		} else if n > 0 {
			ids = ids[:n]
		}
	}
	slices.Reverse(ids)
	var refs []VersionRef
	parent := "" // of the last version in refs, until that is found or known to be lost
	for i, id := range ids {
		if parent != "" && id > parent {
			continue
		}
		if parent != "" && id < parent {
			s.Lost = append(s.Lost, VersionKey(parent)+": it is missing")
		}
		var data []byte
		v, err := codec.Confirm(func() (v *Version, err error) {
			if data, _, err = store.Get(ctx, VersionKey(id)); err != nil {
				return nil, err
			}
			return DecodeVersion(store, data, VersionKey(id))
		})
		if errors.Is(err, blob.ErrNotExist) {
			continue
		}
		if codec.IsUnsealed(err) {
			s.Lost = append(s.Lost, VersionKey(id)+": it is damaged")
			parent = ""
			continue
		}
		if err != nil {
			return err
		}
		if i == 0 || s.Current == nil {
			s.Current = v
		}
		refs = append(refs, refOf(v, data))
		if parent = v.Parent; parent == "" {
			break
		}
	}
	if s.Current == nil {
		return nil
	}
	slices.Reverse(refs)
	generation, err := s.above(s.last, time.Now())
	if err != nil {
		return err
	}
	s.Manifest = &Manifest{
		Format: ManifestFormat, Generation: generation, CurrentVersion: s.Current.ID, Versions: refs,
		TakedownEpoch: s.takedowns, Takedowns: s.takedownRef,
	}
	s.Manifest.Swept, err = lease.LastSweep(ctx, store)
	return err
}

// above returns a generation above that of any manifest that a reader may have seen. Without a
// manifest it is a time in milliseconds, at least that in a version's id: a lake that has lost its
// manifest counts from there, and commits are at least a millisecond apart.
func (s *State) above(id string, now time.Time) (uint64, error) {
	if s.generation > 0 {
		return s.generation + 1, nil
	}
	if id == "" {
		return 1, nil
	}
	t, err := versionTime(id)
	return max(t, uint64(max(0, now.UnixMilli()))), err
}

// refOf returns the reference of a version with its bytes.
func refOf(v *Version, data []byte) VersionRef {
	return VersionRef{
		ID: v.ID, Object: VersionKey(v.ID), Bytes: int64(len(data)),
		XXH64: fmt.Sprintf("%016x", xxhash.Sum64(data)), Commit: v.Commit,
	}
}

// DropLost removes those versions from the manifest whose objects are lost, with their tags, and
// returns their keys. The current version stays. Requests that name a dropped version are told that
// it is unknown.
func DropLost(ctx context.Context, store blob.Store) (dropped []string, err error) {
	m, etag, err := ReadManifest(ctx, store)
	if errors.Is(err, ErrNoVersion) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	next := *m
	next.Generation++
	next.Versions, next.Tags = nil, slices.Clone(m.Tags)
	for _, ref := range m.Versions {
		if ref.ID != m.CurrentVersion {
			if _, err := ReadVersion(ctx, store, ref); isLost(err) {
				dropped = append(dropped, ref.Object)
				next.Tags = slices.DeleteFunc(next.Tags, func(t Tag) bool { return t.Version == ref.ID })
				continue
			}
		}
		next.Versions = append(next.Versions, ref)
	}
	if len(dropped) == 0 {
		return nil, nil
	}
	data, err := next.encode()
	if err != nil {
		return nil, err
	}
	_, err = store.Put(ctx, ManifestKey, data, blob.Condition{IfMatch: etag})
	return dropped, err
}
