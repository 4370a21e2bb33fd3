package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// A document that was put back from a backup has an intact seal. So each document that can be
// replaced has a generation, and another document vouches for it: its copy for the registry's
// document, and the registry's document for the shards of the ledger and for the manifest. A
// document with a lower generation than vouched for is damaged, like one with a broken seal:
// readers and writers refuse it, and a rebuild makes it again.

// older returns the error of a document that was put back.
func older(key string, least, got uint64) error {
	return codec.Corrupt(key, "generation", -1, fmt.Sprintf("at least %d, which the lake has had", least),
		fmt.Sprintf("%d: it was put back, perhaps from a backup", got))
}

// copied returns the generation of the copy of the registry's document, 0 if that cannot be read.
// A document that is read afterwards has that generation or a higher one.
func copied(ctx context.Context, store blob.Store) (uint64, error) {
	h, _, err := read[head](ctx, store, CopyKey)
	if errors.Is(err, codec.ErrCorrupt) {
		return 0, nil
	}
	return h.Generation, err
}

// notOlder returns an error if the document is older than its copy was.
func (h *head) notOlder(copied uint64) error {
	if h.Format != 0 && h.Generation < copied {
		return older(lake.RegistryKey, copied, h.Generation)
	}
	return nil
}

// ledger returns the lowest generation that a shard may have.
func (h *head) ledger(n int) uint64 {
	if n < len(h.Ledger) {
		return h.Ledger[n]
	}
	return 0
}

// notOlder returns an error if the shard is older than a generation.
func (s *shard) notOlder(least uint64) error {
	if s.Generation < least {
		return older(ShardKey(s.Shard), least, s.Generation)
	}
	return nil
}

// leastGeneration returns the lowest generation that a shard may have when it is read afterwards, 0
// if the registry's document is lost or damaged.
func leastGeneration(ctx context.Context, store blob.Store, n int) (uint64, error) {
	h, _, err := read[head](ctx, store, lake.RegistryKey)
	if errors.Is(err, codec.ErrCorrupt) {
		return 0, nil
	}
	return h.ledger(n), err
}

// Published returns the newest version and the newest epoch of the takedowns that NotePublished has
// recorded. They are zero if the registry is lost or damaged.
func Published(ctx context.Context, store blob.Store) (version string, takedowns uint64, err error) {
	h, _, err := read[head](ctx, store, lake.RegistryKey)
	if errors.Is(err, codec.ErrCorrupt) {
		return "", 0, nil
	}
	return h.Version, h.Takedowns, err
}

// NotePublished records that a manifest with this current version and this epoch of the takedowns
// was written. In a lake without a registry, or with a damaged one, it does nothing.
func NotePublished(ctx context.Context, store blob.Store, version string, takedowns uint64) error {
	return note(ctx, store, func(h *head) (changed bool) {
		changed = version > h.Version || takedowns > h.Takedowns
		h.Version, h.Takedowns = max(h.Version, version), max(h.Takedowns, takedowns)
		return changed
	})
}

// noteLedger records the generations that shards of the ledger have; 0 says nothing of one. Shards
// that were put back afterwards, as they were before, are damaged.
func noteLedger(ctx context.Context, store blob.Store, generations [Shards]uint64) error {
	return note(ctx, store, func(h *head) (changed bool) {
		if len(h.Ledger) < Shards {
			h.Ledger = append(h.Ledger, make([]uint64, Shards-len(h.Ledger))...)
		}
		for n, g := range generations {
			changed = changed || g > h.Ledger[n]
			h.Ledger[n] = max(h.Ledger[n], g)
		}
		return changed
	})
}

// note changes the registry's document and its copy. It makes nothing live, so it need not wait for
// the end of a sweep.
func note(ctx context.Context, store blob.Store, change func(*head) (changed bool)) error {
	least, err := copied(ctx, store)
	if err != nil {
		return err
	}
	h, err := replace(ctx, store, lake.RegistryKey, func() (*head, error) { return &head{}, nil }, func(h *head) (bool, error) {
		if h.Format == 0 {
			return false, nil
		}
		if err := h.notOlder(least); err != nil {
			return false, err
		}
		changed := change(h)
		if changed {
			h.Generation++
		}
		return changed, nil
	})
	if errors.Is(err, codec.ErrCorrupt) {
		return nil
	}
	if err != nil || h.Format == 0 {
		return err
	}
	return keepCopy(ctx, store, h)
}
