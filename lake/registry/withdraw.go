package registry

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
)

// WithdrawIngest removes a run's ingest of a batch from the order of ingests, finished or not. The
// batch is then as if the run had not been: an earlier finished ingest is current again. It returns
// the ingest and whether it was registered. The run cannot finish afterwards, even if one of its
// steps is still running. Digest is as for FindIngest.
//
// Calls may be repeated and concurrent; only the first finds the ingest registered.
func WithdrawIngest(
	ctx context.Context, store blob.Store, dataset uint32, batch, run, digest string,
) (in Ingest, registered bool, err error) {
	err = update(ctx, store, lake.BatchRegistryKey(dataset), func(r *batchRegistry) (bool, error) {
		if err := r.belongTo(dataset); err != nil {
			return false, err
		}
		at := r.find(batch, run, digest)
		if at < 0 {
			return false, nil
		}
		in, registered = r.Ingests[at].ingest(), true
		r.Ingests = slices.Delete(r.Ingests, at, at+1)
		return true, nil
	})
	if err != nil {
		return Ingest{}, false, fmt.Errorf("withdraw ingest of batch %q of dataset %d: %w", batch, dataset, err)
	}
	return in, registered, nil
}

// ReturnIngest puts an ingest that was withdrawn back in its place in the order, unless it is
// there. Ingests that registered after it still win.
func ReturnIngest(ctx context.Context, store blob.Store, dataset uint32, batch string, in Ingest) error {
	err := update(ctx, store, lake.BatchRegistryKey(dataset), func(r *batchRegistry) (bool, error) {
		if err := r.belongTo(dataset); err != nil {
			return false, err
		}
		if r.find(batch, in.Run, in.Digest) >= 0 {
			return false, nil
		}
		e := entry{in.Seq, batch, in.Run, in.Digest, in.MovedFrom, in.Pack}
		at, taken := slices.BinarySearchFunc(r.Ingests, e.Seq, func(e entry, seq int64) int { return cmp.Compare(e.Seq, seq) })
		if taken || e.Seq >= r.NextSeq { // the registry was lost and restored meanwhile
			at, e.Seq = len(r.Ingests), r.NextSeq
			r.NextSeq++
		}
		r.Ingests = slices.Insert(r.Ingests, at, e)
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("return ingest of batch %q of dataset %d: %w", batch, dataset, err)
	}
	return nil
}

// Ingest is one registered ingest of a batch.
type Ingest struct {
	// Seq is its number in the order of its dataset's ingests, from 1.
	Seq int64  `json:"seq"`
	Run string `json:"run"`
	// Digest names the batch's record. It is "" until the ingest has finished.
	Digest string `json:"digest"`
	// MovedFrom is the digest that the ingest finished with, if the batch was moved to another
	// public suffix list since; else "".
	MovedFrom string `json:"moved_from,omitempty"`
	// Pack names the pack that holds what the ingest finished with, "" for none.
	Pack string `json:"pack,omitempty"`
}

func (e entry) ingest() Ingest { return Ingest{e.Seq, e.Run, e.Digest, e.MovedFrom, e.Pack} }

// Is reports whether the ingest finished with the record of that digest, moved since or not.
func (i Ingest) Is(digest string) bool {
	return digest != "" && (i.Digest == digest || i.MovedFrom == digest)
}

// FindIngest returns a run's ingest of a batch, and whether it is registered. A restored registry
// does not know its runs: there it is the restored ingest with that digest, moved since or not. The
// digest may be "" if the caller does not know it.
func FindIngest(
	ctx context.Context, store blob.Store, dataset uint32, batch, run, digest string,
) (in Ingest, registered bool, err error) {
	r, err := readOrder(ctx, store, dataset)
	if err != nil {
		return Ingest{}, false, err
	}
	at := r.find(batch, run, digest)
	if at < 0 {
		return Ingest{}, false, nil
	}
	return r.Ingests[at].ingest(), true, nil
}

// find is FindIngest in a document. It returns -1 if there is none.
func (r *batchRegistry) find(batch, run, digest string) int {
	at := slices.IndexFunc(r.Ingests, func(e entry) bool { return e.Run == run && e.Batch == batch })
	if at < 0 {
		at = slices.IndexFunc(r.Ingests, func(e entry) bool {
			return e.Run == restoredRun && e.Batch == batch && e.ingest().Is(digest)
		})
	}
	return at
}

// Ingests returns the registered ingests of each batch of a dataset, in the order of registration.
// Ingests that were superseded long ago are no longer registered.
func Ingests(ctx context.Context, store blob.Store, dataset uint32) (map[string][]Ingest, error) {
	r, err := readOrder(ctx, store, dataset)
	if err != nil {
		return nil, err
	}
	all := map[string][]Ingest{}
	for _, e := range r.Ingests {
		all[e.Batch] = append(all[e.Batch], e.ingest())
	}
	return all, nil
}

// readOrder reads a dataset's batch registry, which is empty if there is none.
func readOrder(ctx context.Context, store blob.Store, dataset uint32) (*batchRegistry, error) {
	r, etag, err := read[batchRegistry](ctx, store, lake.BatchRegistryKey(dataset))
	if err == nil && etag != "" {
		err = r.belongTo(dataset)
	}
	return &r, err
}
