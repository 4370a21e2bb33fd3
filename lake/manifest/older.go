package manifest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/registry"
	"github.com/urlake/urlake/lake/takedown"
)

// older returns a *codec.CorruptError if the lake has published more than the manifest has: the
// manifest was put back, perhaps from a backup. A version counts as published if the registry names
// it, or if another version follows it. An epoch of takedowns counts as published if the registry
// names it, or if another epoch follows it. Lost versions and epochs prove nothing: a manifest
// without them may be all that is left.
//
// It reads the registry's document, and lists the versions and the documents of takedowns.
func (m *Manifest) older(ctx context.Context, store blob.Store) error {
	found, err := m.since(ctx, store)
	if err != nil || found == "" {
		return err
	}
	// Another writer may have replaced the manifest since the caller read it.
	if now, _, err := read(ctx, store); err == nil && now.Generation != m.Generation {
		return nil
	}
	return codec.Corrupt(Key, "generation", -1, "a manifest that has "+found+", which was published",
		fmt.Sprintf("one of version %s and epoch %d of the takedowns: it was put back, perhaps from a backup", m.newest(), m.TakedownEpoch))
}

// newest is the id of the newest version of the manifest.
func (m *Manifest) newest() string { return m.Versions[len(m.Versions)-1].ID }

// since names a published version or epoch that the manifest lacks, "" for none.
func (m *Manifest) since(ctx context.Context, store blob.Store) (string, error) {
	told, epoch, err := registry.Published(ctx, store)
	if err != nil {
		return "", err
	}
	ids, err := versionIDs(ctx, store)
	if err != nil {
		return "", err
	}
	slices.Reverse(ids)
	for _, id := range ids {
		if id <= m.newest() {
			break
		}
		data, _, err := store.Get(ctx, VersionKey(id))
		if errors.Is(err, blob.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		v, err := DecodeVersion(store, data, VersionKey(id))
		switch {
		case err != nil: // lost, or of another format
		case id == told:
			return "version " + id, nil
		case v.Parent > m.newest():
			return "version " + v.Parent, nil
		}
	}
	listed, err := takedown.NewestEpoch(ctx, store)
	if err != nil || listed <= m.TakedownEpoch || epoch <= m.TakedownEpoch && listed <= m.TakedownEpoch+1 {
		return "", err
	}
	if _, listed, err = takedown.Newest(ctx, store); err != nil || listed <= m.TakedownEpoch {
		return "", err
	}
	return fmt.Sprintf("epoch %d of the takedowns", listed), nil
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
