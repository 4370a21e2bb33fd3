package effect

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
)

// Input is what a batch record says of an object by which the object can be known again.
type Input struct {
	Name  string
	Bytes int64
}

// Inputs returns what the finished batches of a dataset were made from, published or not, without
// retired ones and without the batch except. It reads all their records. One that is lost is a
// *codec.CorruptError, since its objects might be read twice.
func Inputs(ctx context.Context, store blob.Store, dataset, except string) (map[Input]bool, error) {
	datasets, err := catalog.DatasetsNamed(ctx, store, dataset)
	d, ok := datasets[dataset]
	if err != nil || !ok {
		return nil, err
	}
	s, err := catalog.LookBatches(ctx, store, d.ID)
	if err != nil {
		return nil, err
	}
	records, err := s.Current(ctx, d.ID)
	if err != nil {
		return nil, err
	}
	delete(records, except)
	found := map[Input]bool{}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(reads)
	for batch, digest := range records {
		g.Go(func() error {
			key := lake.BatchKey(d.ID, batch, digest)
			b, err := read(ctx, store, key)
			if errors.Is(err, blob.ErrNotExist) {
				err = codec.Corrupt(key, "object", -1, "one that exists", "none")
			}
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			for _, in := range b.Inputs {
				found[Input{in.Name, in.Bytes}] = true
			}
			return nil
		})
	}
	return found, g.Wait()
}
