package registry

import (
	"cmp"
	"context"
	"fmt"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
)

// ReplaceRecord gives the current ingest of a batch another record: to instead of from, both
// digests. The new record must be in the store already, with the same rows under other rules.
// Current reports whether to is the batch's record now. It is false, and nothing changes, if the
// batch has another current record, since a later ingest has finished meanwhile. The registry
// keeps the digest that the ingest finished with.
//
// Calls may be repeated and concurrent.
func ReplaceRecord(
	ctx context.Context, store blob.Store, dataset uint32, batch, from, to string,
) (current bool, err error) {
	err = update(ctx, store, lake.BatchRegistryKey(dataset), func(r *batchRegistry) (bool, error) {
		if err := r.belongTo(dataset); err != nil {
			return false, err
		}
		last, ok := r.current()[batch]
		current = ok && (last.Digest == from || last.Digest == to)
		if !current || last.Digest == to {
			return false, nil
		}
		for i := range r.Ingests {
			if e := &r.Ingests[i]; e.Seq == last.Seq {
				e.Digest, e.MovedFrom = to, cmp.Or(e.MovedFrom, from)
			}
		}
		return true, nil
	})
	if err != nil {
		return false, fmt.Errorf("replace the record of batch %q of dataset %d: %w", batch, dataset, err)
	}
	return current, nil
}
