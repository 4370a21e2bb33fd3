package registry

import (
	"context"
	"errors"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// IngestID names one ingest: a run of a batch.
type IngestID struct {
	DatasetID uint32
	Batch     string
	Run       string
}

// Finish is an ingest that has finished with the batch record of that digest, in that pack; Pack is
// "" if the record is an object of its own.
type Finish struct {
	IngestID
	Digest string
	Pack   string
}

// Outcome is what became of one ingest of a call.
type Outcome struct {
	// Seq is the ingest's number in the order of ingests.
	Seq int64
	// Current is false if a run that registered later has finished the batch before. It is set by
	// FinishIngests.
	Current bool
	// Err is why nothing was done for this ingest, nil if it was.
	Err error
}

// Pending is the current ingest of a batch.
type Pending struct {
	DatasetID uint32
	Batch     string
	Seq       int64
	Digest    string
	Pack      string // of the record, "" for none
}

// reads is the most documents that are read concurrently.
const reads = 32

// RegisterDatasets is RegisterDataset for many. It returns them in the same order.
func RegisterDatasets(ctx context.Context, store blob.Store, datasets []lake.Dataset) ([]lake.Dataset, error) {
	out := make([]lake.Dataset, len(datasets))
	for i, d := range datasets {
		var err error
		if out[i], err = RegisterDataset(ctx, store, d); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// RegisterIngests is RegisterIngest for many, in the order of the slice. One that fails keeps none
// of the others back.
func RegisterIngests(ctx context.Context, store blob.Store, ingests []IngestID) []Outcome {
	out := make([]Outcome, len(ingests))
	for i, in := range ingests {
		out[i].Seq, out[i].Err = RegisterIngest(ctx, store, in.DatasetID, in.Batch, in.Run)
	}
	return out
}

// FinishIngests is FinishIngest for many. One that fails keeps none of the others back.
func FinishIngests(ctx context.Context, store blob.Store, finished []Finish) []Outcome {
	out := make([]Outcome, len(finished))
	for i, f := range finished {
		out[i].Current, out[i].Err = FinishPacked(ctx, store, f.DatasetID, f.Batch, f.Run, Record{f.Digest, f.Pack})
	}
	return out
}

// AbandonIngests is AbandonIngest for many. Its error joins those of the ingests that failed.
func AbandonIngests(ctx context.Context, store blob.Store, ingests []IngestID) error {
	var errs []error
	for _, in := range ingests {
		errs = append(errs, AbandonIngest(ctx, store, in.DatasetID, in.Batch, in.Run))
	}
	return errors.Join(errs...)
}

// PendingBatches returns the current ingest of each batch that has finished and is not settled, by
// dataset and name. It calls damaged for what it cannot read: has reports whether a dataset's
// batches are concerned.
func PendingBatches(
	ctx context.Context, store blob.Store, damaged func(has func(dataset uint32) bool, err error),
) ([]Pending, error) {
	return AllBatches(ctx, store, damaged)
}

// AllBatches is PendingBatches for all finished batches, settled or not.
func AllBatches(
	ctx context.Context, store blob.Store, damaged func(has func(dataset uint32) bool, err error),
) ([]Pending, error) {
	all, err := Datasets(ctx, store)
	if err != nil {
		return nil, err
	}
	winners := make([]map[string]Record, len(all))
	broken := make([]error, len(all))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(reads)
	for i := range all {
		group.Go(func() (err error) {
			winners[i], err = CurrentRecords(groupCtx, store, all[i].ID)
			if errors.Is(err, codec.ErrCorrupt) {
				broken[i], err = err, nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var finished []Pending
	for i, d := range all {
		if broken[i] != nil {
			damaged(func(dataset uint32) bool { return dataset == d.ID }, broken[i])
		}
		for _, name := range slices.Sorted(maps.Keys(winners[i])) {
			finished = append(finished, Pending{DatasetID: d.ID, Batch: name, Digest: winners[i][name].Digest, Pack: winners[i][name].Pack})
		}
	}
	return finished, nil
}

// Settle records that a version has these ingests, which PendingBatches has returned: it does not
// return them again. An ingest that has another record meanwhile is left as it is, so calls may be
// late and repeated. Call it after the commit of that version.
func Settle(ctx context.Context, store blob.Store, published []Pending) error { return nil }
