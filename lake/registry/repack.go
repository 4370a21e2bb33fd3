package registry

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/urlake/urlake/lake/blob"
)

// Repacked says that what the ingests of a batch finished with is in another pack: To instead of
// From.
type Repacked struct {
	BatchID
	From, To string
}

// Repack names other packs in the ingests of batches. Write is called in each attempt, after the
// last sweep of a garbage collection has ended, and has to write the packs. Ingests that name
// neither of the packs stay as they are.
func Repack(ctx context.Context, store blob.Store, all []Repacked, write func(ctx context.Context) error) error {
	errs := eachShard(len(all), func(i int) uint32 { return all[i].DatasetID }, func(n int, at []int) error {
		ids := make([]BatchID, len(at))
		for k, i := range at {
			ids[k] = all[i].BatchID
		}
		return edit(ctx, store, n, ids, func(_ *shard, orders map[BatchID]*order) (changed bool, err error) {
			for _, i := range at {
				o := orders[all[i].BatchID]
				for k := range o.Ingests {
					if in := &o.Ingests[k]; in.Pack == all[i].From {
						in.Pack, changed = all[i].To, true
					}
				}
			}
			if changed {
				err = write(ctx)
			}
			return changed, err
		})
	})
	if err := cmp.Or(errs...); err != nil {
		return fmt.Errorf("name other packs of %d batches: %w", len(all), err)
	}
	return nil
}

// KeptRecordsOf returns the records of batches that a garbage collection keeps because of the
// ledger: see Order.Keeps.
func KeptRecordsOf(ctx context.Context, store blob.Store, ids []BatchID) (map[BatchID][]Record, error) {
	var mu sync.Mutex
	all := map[BatchID][]Record{}
	errs := eachShard(len(ids), func(i int) uint32 { return ids[i].DatasetID }, func(n int, at []int) error {
		s, err := readShard(ctx, store, n)
		if err != nil {
			return err
		}
		of := make([]BatchID, len(at))
		for k, i := range at {
			of[k] = ids[i]
		}
		orders, err := s.find(ctx, store, of)
		mu.Lock()
		defer mu.Unlock()
		for id, o := range orders {
			all[id], _ = (&Order{o.BatchID, o.Settled, o.Ingests}).Keeps()
		}
		return err
	})
	return all, cmp.Or(errs...)
}
