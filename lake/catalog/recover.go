package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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
	const instead = "; versions in the store take its place"
	const nameless = instead + ", without the names that starter tag gave them"
	switch {
	case errors.Is(err, blob.ErrNotExist):
		return lookWithout(ctx, store, "", nil, "it is missing"+nameless)
	case codec.IsUnsealed(err):
		return lookWithout(ctx, store, etag, nil, "it is damaged"+nameless)
	case err == nil:
		err = m.older(ctx, store)
		if errors.Is(err, codec.ErrCorrupt) {
			return lookWithout(ctx, store, etag, m.Tags,
				"it was put back, perhaps from a backup, and is older than what was published"+instead)
		}
	}
	if err != nil {
		return nil, err
	}
	s := &State{
		cond: condition(etag), generation: m.Generation, last: m.newest(),
		takedowns: m.TakedownEpoch, takedownRef: m.Takedowns,
	}
	at := slices.IndexFunc(m.Versions, func(v VersionRef) bool { return v.ID == m.CurrentVersion })
	for i := at; i >= 0; i-- {
		ref := m.Versions[i]
		s.Current, err = ReadVersion(ctx, store, ref)
		if isLost(err) {
			s.Lost = append(s.Lost, fmt.Sprintf("%s: it is missing or damaged", ref.Object))
			continue
		}
		if err != nil {
			return nil, err
		}
		s.Manifest = m
		if i < at {
			s.Lost = append(s.Lost, fmt.Sprintf("%s: version %s takes its place", m.Versions[at].Object, ref.ID))
			m.CurrentVersion, m.Versions = ref.ID, m.Versions[:i+1]
			m.Tags = slices.DeleteFunc(m.Tags, func(t Tag) bool {
				if t.Version > ref.ID {
					s.Lost = append(s.Lost, t.lost())
				}
				return t.Version > ref.ID
			})
		}
		break
	}
	return s, nil
}

// lookWithout is Look for a lake whose manifest is lost, for the reason why: it makes the manifest
// of the newest intact version that was published and its predecessors. Other versions are of
// commits that lost a race or were not made, and nothing refers to them. If a predecessor is lost,
// the newest version before it takes its place. Etag is that of the manifest in the store, and tags
// are those that can be read there.
//
// Versions after the one that the registry was told were published only if others follow them.
// If it cannot tell, or nothing before is left, the newest version counts as published.
func lookWithout(ctx context.Context, store blob.Store, etag string, tags []Tag, why string) (*State, error) {
	s := &State{cond: condition(etag), missing: etag == ""}
	ids, err := versionIDs(ctx, store)
	if err != nil || s.missing && len(ids) == 0 {
		return s, err
	}
	s.manifestLost, s.Lost = true, []string{ManifestKey + ": " + why}
	if len(ids) > 0 {
		s.last = ids[len(ids)-1]
	}
	if s.takedownRef, s.takedowns, err = newestTakedowns(ctx, store); err != nil {
		return nil, err
	}
	told, _, err := notedPublished(ctx, store)
	if err != nil {
		return nil, err
	}
	if told != "" {
		last, err := lastPublished(ctx, store, ids, told, told)
		if err != nil {
			return nil, err
		}
		if n, found := slices.BinarySearch(ids, max(last, told)); found {
			ids = ids[:n+1]
		} else if n > 0 {
			ids = ids[:n]
		}
	}
	var refs []VersionRef
	parent := "" // of the last version in refs, until that is found or known to be lost
	for _, id := range slices.Backward(ids) {
		if parent != "" && id > parent {
			continue
		}
		if parent != "" && id < parent {
			s.Lost = append(s.Lost, VersionKey(parent)+": it is missing")
		}
		v, ref, err := versionAt(ctx, store, id)
		if errors.Is(err, blob.ErrNotExist) {
			continue
		}
		if codec.IsUnsealed(err) {
			s.Lost = append(s.Lost, VersionKey(id)+": it is damaged")
			parent = ""
			continue
		}
		if err != nil {
			return nil, err
		}
		if s.Current == nil {
			s.Current = v
		}
		refs = append(refs, ref)
		if parent = v.Parent; parent == "" {
			break
		}
	}
	if s.Current == nil {
		return s, nil
	}
	slices.Reverse(refs)
	generation, err := s.above(s.last, time.Now())
	if err != nil {
		return nil, err
	}
	s.Manifest = &Manifest{
		Format: ManifestFormat, Generation: generation, CurrentVersion: s.Current.ID, Versions: refs,
		TakedownEpoch: s.takedowns, Takedowns: s.takedownRef,
		Tags: slices.DeleteFunc(tags, func(t Tag) bool {
			return !slices.ContainsFunc(refs, func(v VersionRef) bool { return v.ID == t.Version })
		}),
	}
	s.Manifest.Swept, err = lease.LastSweep(ctx, store)
	return s, err
}

// CheckManifestPresent returns a *codec.CorruptError if there is no manifest although versions were
// written, and nil if nothing was published yet.
func CheckManifestPresent(ctx context.Context, store blob.Store) error {
	ids, err := versionIDs(ctx, store)
	if err != nil || len(ids) == 0 {
		return err
	}
	if _, err := store.Stat(ctx, ManifestKey); !errors.Is(err, blob.ErrNotExist) {
		return err
	}
	return codec.Corrupt(ManifestKey, "object", -1, "one that exists, since version "+ids[len(ids)-1]+" was written", "none")
}

// isLost reports whether an error of ReadVersion says that a version's bytes are not in the store.
// A version of another format has the bytes that it was written with.
func isLost(err error) bool {
	var c *codec.CorruptError
	return errors.Is(err, blob.ErrNotExist) ||
		errors.As(err, &c) && (c.Section == sizeSection || c.Section == hashSection)
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

// versionAt reads a version, listed by a manifest or not.
func versionAt(ctx context.Context, store blob.Store, id string) (v *Version, ref VersionRef, err error) {
	v, err = codec.Confirm(func() (*Version, error) {
		data, _, err := store.Get(ctx, VersionKey(id))
		if err != nil {
			return nil, err
		}
		v, err := DecodeVersion(store, data, VersionKey(id))
		if err == nil {
			ref = refOf(v, data)
		}
		return v, err
	})
	return v, ref, err
}

// refOf returns the reference of a version with its bytes.
func refOf(v *Version, data []byte) VersionRef {
	return VersionRef{
		ID: v.ID, Object: VersionKey(v.ID), Bytes: int64(len(data)),
		XXH64: xxh64(data), Commit: v.Commit,
	}
}

// older returns a *codec.CorruptError if the manifest is older than what the lake has published: it
// was put back, perhaps from a backup. The lake has published a version if the registry was told of
// it, or if another version follows it. An epoch of takedowns was published if the registry was
// told of it, or if another one follows it. A lost version or document proves nothing: a manifest
// without it may be all that is left.
//
// It reads the registry's document, and lists the versions and the documents of takedowns.
func (m *Manifest) older(ctx context.Context, store blob.Store) error {
	found, err := m.since(ctx, store)
	if err != nil || found == "" {
		return err
	}
	// Another writer may have replaced the manifest since the caller read it.
	if now, _, err := readManifest(ctx, store); err != nil || now.Generation != m.Generation {
		return err
	}
	return codec.Corrupt(ManifestKey, "generation", -1, "a manifest that has "+found+", which was published",
		fmt.Sprintf("one of version %s and epoch %d of the takedowns: it was put back, perhaps from a backup", m.newest(), m.TakedownEpoch))
}

// newest is the id of the newest version of the manifest.
func (m *Manifest) newest() string { return m.Versions[len(m.Versions)-1].ID }

// since names a published version or epoch that the manifest lacks, "" for none.
func (m *Manifest) since(ctx context.Context, store blob.Store) (string, error) {
	told, epoch, err := notedPublished(ctx, store)
	if err != nil {
		return "", err
	}
	m.toldVersion, m.toldEpoch = told, epoch
	ids, err := versionIDs(ctx, store)
	if err != nil {
		return "", err
	}
	id, err := lastPublished(ctx, store, ids, told, m.newest())
	if err != nil {
		return "", err
	}
	if id != "" {
		return "version " + id, nil
	}
	listed, err := newestEpoch(ctx, store)
	if err != nil || listed <= m.TakedownEpoch || epoch <= m.TakedownEpoch && listed <= m.TakedownEpoch+1 {
		return "", err
	}
	if _, listed, err = newestTakedowns(ctx, store); err != nil || listed <= m.TakedownEpoch {
		return "", err
	}
	return fmt.Sprintf("epoch %d of the takedowns", listed), nil
}

// lastPublished returns the last of the ids after a version whose object is intact and that was
// published for certain: the registry was told of it, or an intact version follows it. Other
// versions may be of commits that were not made. It returns "" if there is none.
func lastPublished(ctx context.Context, store blob.Store, ids []string, told, after string) (string, error) {
	followed := map[string]bool{}
	for _, id := range slices.Backward(ids) {
		if id <= after {
			break
		}
		v, _, err := versionAt(ctx, store, id)
		switch {
		case errors.Is(err, blob.ErrNotExist), errors.Is(err, codec.ErrCorrupt), codec.IsFormat(err):
			continue
		case err != nil:
			return "", err
		case id == told || followed[id]:
			return id, nil
		}
		followed[v.Parent] = true
	}
	return "", nil
}

// note tells the registry what the manifest publishes.
func (m *Manifest) note(ctx context.Context, store blob.Store) error {
	if m.toldVersion >= m.CurrentVersion && m.toldEpoch >= m.TakedownEpoch {
		return nil
	}
	return notePublished(ctx, store, m.CurrentVersion, m.TakedownEpoch)
}

// versionIDs returns the ids of all version objects, listed by a manifest or not, ascending.
func versionIDs(ctx context.Context, store blob.Store) (ids []string, err error) {
	for info, err := range store.List(ctx, versionRoot) {
		if err != nil {
			return nil, err
		}
		if id := strings.TrimSuffix(strings.TrimPrefix(info.Key, versionRoot), ".json"); ValidVersionID(id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}
