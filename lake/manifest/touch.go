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
	if err := touch(ctx, store); err != nil {
		return fmt.Errorf("touch the manifest: %w", err)
	}
	return nil
}

func touch(ctx context.Context, store blob.Store) error {
	for rejections := 0; ; rejections++ {
		m, etag, err := Read(ctx, store)
		if errors.Is(err, ErrNoVersion) {
			return nil
		}
		if err != nil {
			return err
		}
		m.Generation++
		data, err := m.encode()
		if err != nil {
			return err
		}
		_, err = store.Put(ctx, Key, data, blob.Condition{IfMatch: etag})
		// Another commit may be first; then the manifest is touched after that one.
		if err == nil || !errors.Is(err, blob.ErrPrecondition) || rejections == maxRejections {
			return err
		}
	}
}
