package catalog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"

	"github.com/urlake/urlake/lake/lease"
)

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
	if err := probe(ctx, store); err != nil {
		return err
	}
	rejections, before := 0, ""
	for {
		m, etag, err := ReadManifest(ctx, store)
		if err != nil {
			return err
		}
		if etag != before {
			rejections, before = 0, etag
		}
		if err := lease.AwaitSweep(ctx, store, m.Swept); err != nil {
			return err
		}
		ref, epoch, err := change(ctx, m)
		if errors.Is(err, codec.ErrCorrupt) || errors.Is(err, blob.ErrNotExist) {
			// What a later manifest refers to no longer may be collected while it is read.
			if now, _, readErr := ReadManifestUnchecked(ctx, store); readErr == nil && now.Generation != m.Generation {
				continue
			}
		}
		if err != nil {
			return err
		}
		if ref == nil {
			_ = m.note(ctx, store) // perhaps of a change whose note is missing
			return nil
		}
		next := *m
		next.Takedowns, next.TakedownEpoch = ref, epoch
		next.Generation++
		data, err := next.encode()
		if err != nil {
			return err
		}
		_, err = store.Put(ctx, ManifestKey, data, blob.Condition{IfMatch: etag})
		if err == nil {
			_ = next.note(ctx, store)
			return nil
		}
		if now, _, readErr := ReadManifestUnchecked(ctx, store); readErr == nil && now.Generation == m.Generation {
			if !errors.Is(err, blob.ErrPrecondition) {
				return err
			}
			if rejections++; rejections == maxRejections {
				return fmt.Errorf("%w: %w", ErrBusy, err)
			}
		} else if readErr != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(rand.N(10 * time.Millisecond)): // spreads the retries
		}
	}
}
