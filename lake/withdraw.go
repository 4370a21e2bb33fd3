package lake

import (
	"context"
	"fmt"
	"slices"

	"github.com/urlake/urlake/lake/blob"
)

// WithdrawIngest removes a run's ingest of a batch from the order of ingests, finished or not. The
// batch is then as if the run had not been: an earlier finished ingest is current again. It returns
// the digest that the run had finished with, "" if it had not, and whether the ingest was
// registered. The run cannot finish afterwards, even if one of its steps is still running.
//
// Calls may be repeated and concurrent; only the first finds the ingest registered.
func WithdrawIngest(
	ctx context.Context, store blob.Store, dataset uint32, batch, run string,
) (digest string, registered bool, err error) {
	err = update(ctx, store, BatchRegistryKey(dataset), func(r *batchRegistry) (bool, error) {
		if err := r.belongTo(dataset); err != nil {
			return false, err
		}
		at := slices.IndexFunc(r.Ingests, func(e entry) bool { return e.Run == run && e.Batch == batch })
		if at < 0 {
			return false, nil
		}
		digest, registered = r.Ingests[at].Digest, true
		r.Ingests = slices.Delete(r.Ingests, at, at+1)
		return true, nil
	})
	if err != nil {
		return "", false, fmt.Errorf("withdraw ingest of batch %q of dataset %d: %w", batch, dataset, err)
	}
	return digest, registered, nil
}

// Ingest is one registered ingest of a batch.
type Ingest struct {
	Run string
	// Digest names the batch's record. It is "" until the ingest has finished.
	Digest string
	// MovedFrom is the digest that the ingest finished with, if the batch was moved to another
	// public suffix list since; else "".
	MovedFrom string
}

// Is reports whether the ingest finished with the record of that digest, moved since or not.
func (i Ingest) Is(digest string) bool {
	return digest != "" && (i.Digest == digest || i.MovedFrom == digest)
}

// Ingests returns the registered ingests of each batch of a dataset, in the order of registration.
// Ingests that were superseded long ago are no longer registered.
func Ingests(ctx context.Context, store blob.Store, dataset uint32) (map[string][]Ingest, error) {
	r, etag, err := read[batchRegistry](ctx, store, BatchRegistryKey(dataset))
	if err == nil && etag != "" {
		err = r.belongTo(dataset)
	}
	if err != nil {
		return nil, err
	}
	all := map[string][]Ingest{}
	for _, e := range r.Ingests {
		all[e.Batch] = append(all[e.Batch], Ingest{Run: e.Run, Digest: e.Digest, MovedFrom: e.MovedFrom})
	}
	return all, nil
}
