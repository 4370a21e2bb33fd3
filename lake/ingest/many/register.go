package many

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/registry"
)

// RegisterDatasets registers several datasets.
func RegisterDatasets(ctx context.Context, store blob.Store, all []lake.Dataset) ([]lake.Dataset, error) {
	out := make([]lake.Dataset, len(all))
	for i, d := range all {
		var err error
		if out[i], err = registry.RegisterDataset(ctx, store, d); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// RegisterIngests registers a run's ingest of a batch of several datasets.
func RegisterIngests(ctx context.Context, store blob.Store, datasets []uint32, batch, run string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(reads)
	for _, d := range datasets {
		g.Go(func() error {
			_, err := registry.RegisterIngest(ctx, store, d, batch, run)
			return err
		})
	}
	return g.Wait()
}

// FinishIngests finishes a run's ingests. It returns which of them are current.
func FinishIngests(ctx context.Context, store blob.Store, done []Outcome, run string) ([]bool, error) {
	current := make([]bool, len(done))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(reads)
	for i, o := range done {
		g.Go(func() (err error) {
			current[i], err = registry.FinishPacked(ctx, store, o.DatasetID, o.Batch, run,
				registry.Record{Digest: o.Digest, Pack: o.Pack})
			return err
		})
	}
	return current, g.Wait()
}

// AbandonIngests removes a run's unfinished ingests of a batch.
func AbandonIngests(ctx context.Context, store blob.Store, datasets []uint32, batch, run string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(reads)
	for _, d := range datasets {
		g.Go(func() error { return registry.AbandonIngest(ctx, store, d, batch, run) })
	}
	return g.Wait()
}
