package catalog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/lease"
)

// AnnounceInManifest writes the number of a sweep into the manifest. A commit that is in flight
// then finds its condition broken; its next attempt waits for the end of the sweep. In a lake
// without a manifest the error is ErrNoVersion.
func AnnounceInManifest(ctx context.Context, store blob.Store, sweep uint64) error {
	err := updateManifest(ctx, store, func(m *Manifest) (bool, error) {
		if m.Swept > sweep {
			return false, fmt.Errorf("%w: sweep %d", lease.ErrSweepLost, m.Swept)
		}
		m.Swept = sweep
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("announce sweep %d in the manifest: %w", sweep, err)
	}
	return nil
}

// updateManifest replaces the manifest by what change makes of it, of the next generation, unless
// change returns false. If another writer comes first, change is called again with that one's
// manifest, however often that happens: another write has succeeded each time. It returns ErrBusy
// if the store rejects replacing a manifest that nobody has changed.
func updateManifest(ctx context.Context, store blob.Store, change func(m *Manifest) (changed bool, err error)) error {
	rejections, before := 0, ""
	for {
		m, etag, err := ReadManifest(ctx, store)
		if err != nil {
			return err
		}
		if etag != before {
			rejections, before = 0, etag
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
		_, err = store.Put(ctx, ManifestKey, data, blob.Condition{IfMatch: etag})
		if !errors.Is(err, blob.ErrPrecondition) {
			return err
		}
		if rejections++; rejections == maxRejections {
			return fmt.Errorf("%w: %w", ErrBusy, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(rand.N(10 * time.Millisecond)): // spreads the retries
		}
	}
}
