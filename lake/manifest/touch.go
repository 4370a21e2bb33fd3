package manifest

import (
	"context"
	"errors"
	"fmt"

	"github.com/urlake/urlake/lake/blob"
)

// Touch replaces the manifest by an equal one of the next generation. A commit that is in flight
// then finds its condition broken and builds again, so whatever its Build checks is checked after
// Touch began. In a lake without a manifest there is nothing to touch.
func Touch(ctx context.Context, store blob.Store) error {
	err := update(ctx, store, func(*Manifest) (bool, error) { return true, nil })
	if err != nil && !errors.Is(err, ErrNoVersion) {
		return fmt.Errorf("touch the manifest: %w", err)
	}
	return nil
}

// update replaces the manifest by what change makes of it, of the next generation, unless change
// returns false. If another writer comes first, change is called again with that one's manifest.
func update(ctx context.Context, store blob.Store, change func(m *Manifest) (changed bool, err error)) error {
	for rejections := 0; ; rejections++ {
		m, etag, err := Read(ctx, store)
		if err != nil {
			return err
		}
		if changed, err := change(m); !changed || err != nil {
			return err
		}
		if err := probe(ctx, store); err != nil {
			return err
		}
		m.Generation++
		data, err := m.encode()
		if err != nil {
			return err
		}
		_, err = store.Put(ctx, Key, data, blob.Condition{IfMatch: etag})
		if err == nil || !errors.Is(err, blob.ErrPrecondition) || rejections == maxRejections {
			return err
		}
	}
}
