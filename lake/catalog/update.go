package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/lease"
)

// updateManifest replaces the manifest by what change makes of it, of the next generation, unless
// change returns false. See replace for when change is called again.
func updateManifest(ctx context.Context, store blob.Store, change func(m *Manifest) (changed bool, err error)) error {
	if err := probe(ctx, store); err != nil {
		return err
	}
	return replace(ctx, store, ManifestKey, func() ([]byte, blob.Condition, error) {
		m, etag, err := ReadManifest(ctx, store)
		cond := blob.Condition{IfMatch: etag}
		if err != nil {
			return nil, cond, err
		}
		if changed, err := change(m); !changed || err != nil {
			return nil, cond, err
		}
		m.Generation++
		data, err := m.encode()
		return data, cond, err
	})
}

// SetTakedowns replaces the takedowns of the manifest. In each attempt it reads the manifest and
// waits until the last sweep has ended. Then it calls change, which writes what its result refers
// to and returns the document and its epoch, or nil if there is nothing to change. The put has the
// condition that the manifest is the one that change was given. If it is not, another attempt
// follows. After a put whose reply was lost, change is called again: it has to see in the
// manifest's takedowns whether its change was made.
//
// The takedowns are in force once the manifest is written. If the registry cannot be told of them
// then, the next commit or change of takedowns tells it.
func SetTakedowns(
	ctx context.Context, store blob.Store,
	change func(ctx context.Context, m *Manifest) (*TakedownRef, uint64, error),
) error {
	var last *Manifest
	err := updateManifest(ctx, store, func(m *Manifest) (bool, error) {
		if err := lease.AwaitSweep(ctx, store, m.Swept); err != nil {
			return false, err
		}
		last = m
		ref, epoch, err := change(ctx, m)
		if ref == nil || err != nil {
			return false, err
		}
		m.Takedowns, m.TakedownEpoch = ref, epoch
		return true, nil
	})
	if err == nil {
		_ = last.note(ctx, store) // perhaps of an earlier change whose note is missing
	}
	return err
}

// Announce writes the number of a sweep into the manifest and the registry. A change of them that
// is in flight then finds its condition broken; its next attempt waits for the end of the sweep. In
// a lake without a manifest the error is ErrNoVersion. A lost registry is an error too.
func Announce(ctx context.Context, store blob.Store, sweep uint64) error {
	announce := func(swept *uint64) (changed bool, err error) {
		if *swept > sweep {
			return false, fmt.Errorf("%w: sweep %d", lease.ErrSweepLost, *swept)
		}
		changed = *swept != sweep
		*swept = sweep
		return changed, nil
	}
	err := updateManifest(ctx, store, func(m *Manifest) (bool, error) { return announce(&m.Swept) })
	if err != nil {
		return fmt.Errorf("announce sweep %d in the manifest: %w", sweep, err)
	}
	// A writer of an earlier state of the registry may still be about to write its copy. It finds a
	// later one.
	err = updateRegistry(ctx, store, func(h *head) (bool, error) {
		if h.Format == 0 {
			return false, missingRegistry()
		}
		return announce(&h.Swept)
	})
	if err != nil {
		return fmt.Errorf("announce sweep %d: %w", sweep, err)
	}
	return nil
}

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
		now.Versions = slices.DeleteFunc(now.Versions, func(v VersionRef) bool { return slices.Contains(dropped, v) })
		return len(dropped) > 0, nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("drop versions: %w", err)
	}
	return dropped, m, nil
}

// DropLost removes those versions from the manifest whose objects are lost, with their tags, and
// returns their keys. The current version stays. Requests that name a dropped version are told that
// it is unknown.
func DropLost(ctx context.Context, store blob.Store) (dropped []string, err error) {
	err = updateManifest(ctx, store, func(m *Manifest) (bool, error) {
		dropped = nil
		m.Versions = slices.DeleteFunc(m.Versions, func(ref VersionRef) bool {
			if ref.ID == m.CurrentVersion {
				return false
			}
			if _, err := ReadVersion(ctx, store, ref); !isLost(err) {
				return false
			}
			dropped = append(dropped, ref.Object)
			m.Tags = slices.DeleteFunc(m.Tags, func(t Tag) bool { return t.Version == ref.ID })
			return true
		})
		return len(dropped) > 0, nil
	})
	if errors.Is(err, ErrNoVersion) {
		return nil, nil
	}
	return dropped, err
}
