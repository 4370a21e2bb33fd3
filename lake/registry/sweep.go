package registry

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/pieces"
	"github.com/urlake/urlake/lake/trash"
)

func (h *head) sweep() uint64  { return h.Swept }
func (s *shard) sweep() uint64 { return s.Swept }

// Announce writes the number of a sweep of a garbage collection into all documents of the registry,
// so that updates that are in flight begin again and wait for the end of the sweep (package trash).
// Damaged and missing documents are an error.
func Announce(ctx context.Context, store blob.Store, sweep uint64) error {
	// set returns the change of a document's number.
	set := func(number *uint64) (bool, error) {
		if *number > sweep {
			return false, fmt.Errorf("%w: sweep %d", trash.ErrLost, *number)
		}
		changed := *number != sweep
		*number = sweep
		return changed, nil
	}
	least, err := copied(ctx, store)
	if err != nil {
		return fmt.Errorf("announce sweep %d: %w", sweep, err)
	}
	h, err := replace(ctx, store, lake.RegistryKey,
		func() (*head, error) { return &head{}, missing(lake.RegistryKey) },
		func(h *head) (bool, error) {
			if err := h.notOlder(least); err != nil {
				return false, err
			}
			changed, err := set(&h.Swept)
			if changed {
				h.Generation++
			}
			return changed, err
		})
	if err == nil {
		// A writer of an earlier state may still be about to write the copy. It finds a later one.
		err = keepCopy(ctx, store, h)
	}
	if err != nil {
		return fmt.Errorf("announce sweep %d: %w", sweep, err)
	}
	g, ctx := errgroup.WithContext(ctx)
	for n := range Shards {
		g.Go(func() error {
			_, err := replace(ctx, store, ShardKey(n),
				func() (*shard, error) { return nil, missing(ShardKey(n)) },
				func(s *shard) (bool, error) {
					if err := s.notOlder(h.ledger(n)); err != nil {
						return false, err
					}
					changed, err := set(&s.Swept)
					if changed {
						s.Generation++
					}
					return changed, err
				})
			if err != nil {
				return fmt.Errorf("announce sweep %d: %w", sweep, err)
			}
			return nil
		})
	}
	return g.Wait()
}

func missing(key string) error {
	return codec.Corrupt(key, "object", -1, "one that exists", "none")
}

// Order is what the ledger has of a batch.
type Order struct {
	BatchID
	// Settled is the digest of the record that a version has, as far as the ledger was told.
	Settled string
	// Ingests are by number.
	Ingests []Ingest
}

// Keeps returns the digests of records that must not be deleted, and whether an ingest is under
// way, which may write any object of the batch.
//
// As long as the current record is not settled, its ingest may be withdrawn, and an earlier one is
// current again. So the settled record and all later ones are kept then, and all if none is
// settled. Of a batch that is retired, and that a version is known to lack, nothing is kept.
func (o *Order) Keeps() (digests []string, running bool) {
	own := order{Ingests: o.Ingests}
	current, from := own.current(), 0
	for i, in := range o.Ingests {
		running = running || !in.Finished()
		if in.Finished() && in.settled() == o.Settled {
			from = i
		}
	}
	for i := from; i <= current; i++ {
		if in := o.Ingests[i]; in.Digest != "" {
			digests = append(digests, in.Digest)
		}
	}
	return digests, running
}

// Orders calls each with what the ledger has of every batch, by shard, dataset and name. Any error,
// also that each returns, ends it.
func Orders(ctx context.Context, store blob.Store, each func(*Order) error) error {
	for n := range Shards {
		s, etag, err := read[shard](ctx, store, ShardKey(n))
		if err == nil && etag == "" {
			err = missing(ShardKey(n))
		}
		if err != nil {
			return err
		}
		for o, err := range s.all(ctx, store, 0) {
			if err == nil {
				err = each(&Order{o.BatchID, o.Settled, o.Ingests})
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Pieces calls each with the key of every piece that the registry's documents name, its copy among
// them. Damage is an error.
func Pieces(ctx context.Context, store blob.Store, each func(key string)) error {
	names := func(maps ...*pieces.Map) error {
		for _, m := range maps {
			for key, err := range m.Names(ctx) {
				if err != nil {
					return err
				}
				each(key)
			}
		}
		return nil
	}
	for _, key := range []string{lake.RegistryKey, CopyKey} {
		h, etag, err := read[head](ctx, store, key)
		if err != nil {
			return err
		}
		if etag == "" && key == lake.RegistryKey {
			return missing(key)
		}
		if etag == "" {
			continue
		}
		if err := names(h.byID(store), h.byName(store)); err != nil {
			return err
		}
	}
	for n := range Shards {
		s, etag, err := read[shard](ctx, store, ShardKey(n))
		if err == nil && etag == "" {
			err = missing(ShardKey(n))
		}
		if err == nil {
			err = names(s.pieces(store))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
