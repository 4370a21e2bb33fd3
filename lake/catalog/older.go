package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

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
		v, err := codec.Confirm(func() (*Version, error) {
			data, _, err := store.Get(ctx, VersionKey(id))
			if err != nil {
				return nil, err
			}
			return DecodeVersion(store, data, VersionKey(id))
		})
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
