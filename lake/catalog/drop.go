package catalog

import (
	"context"
	"fmt"
	"slices"

	"github.com/urlake/urlake/lake/blob"
)

// Expired returns the versions that are not among the newest keep, have no tag and are not the
// current one, oldest first. Keep is at least 1.
func (m *Manifest) Expired(keep int) []VersionRef {
	var expired []VersionRef
	for _, v := range m.Versions[:max(0, len(m.Versions)-max(1, keep))] {
		if v.ID != m.CurrentVersion && len(m.TagsOf(v.ID)) == 0 {
			expired = append(expired, v)
		}
	}
	return expired
}

// DropExpired removes the Expired versions from the manifest, and returns them with the manifest as
// it is then. Requests that name one of them are told that it is unknown. Their objects stay.
func DropExpired(ctx context.Context, store blob.Store, keep int) (dropped []VersionRef, m *Manifest, err error) {
	err = updateManifest(ctx, store, func(now *Manifest) (bool, error) {
		m, dropped = now, now.Expired(keep)
		now.Versions = slices.DeleteFunc(slices.Clone(now.Versions), func(v VersionRef) bool {
			return slices.Contains(dropped, v)
		})
		return len(dropped) > 0, nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("drop versions: %w", err)
	}
	return dropped, m, nil
}
