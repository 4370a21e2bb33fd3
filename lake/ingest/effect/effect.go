// Package effect tells what an ingest did to its dataset: whether its batch is new there or took
// the place of an earlier ingest, what the dataset has besides, and which other batches were made
// from the same inputs. It reads about 12 MiB of records at most, so that a small ingest costs the
// same in a dataset of any size, and leaves out the rest.
package effect

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/registry"
)

const (
	// maxBatches bounds the records with which the inputs of an ingest are compared, as maxRead
	// does, so that an ingest costs the same in a dataset of a million batches. A year of daily
	// batches is far below.
	maxBatches = 1000

	// maxShared is how many batches with the same inputs are named.
	maxShared = 20

	reads = 16
)

// Effect is what an ingest did.
type Effect struct {
	// Replaced tells that the batch had an earlier ingest, whose place this one took. That had
	// ReplacedRows rows, -1 if its record is damaged. Otherwise the batch is new in the dataset, or
	// Returned: it was retired.
	Replaced     bool  `json:"replaced"`
	ReplacedRows int64 `json:"replaced_rows,omitempty"`
	Returned     bool  `json:"returned,omitempty"`
	// Displaced is how many other batches of the current version the ingest has retired, since it
	// replaces the dataset, and DisplacedRows how many rows they have.
	Displaced     int64 `json:"displaced_batches,omitempty"`
	DisplacedRows int64 `json:"displaced_rows,omitempty"`
	// OtherRows is how many rows the dataset has in OtherBatches batches besides this one.
	OtherRows    int64 `json:"other_rows"`
	OtherBatches int64 `json:"other_batches"`
	// Shared are the first of SharedBatches other batches that were made from inputs of the same
	// names and sizes.
	Shared        []Shared `json:"shared,omitempty"`
	SharedBatches int      `json:"shared_batches,omitempty"`
	// Uncompared is how many other batches were not compared, since there are too many, or since
	// their records are damaged.
	Uncompared int64 `json:"uncompared,omitempty"`
	// Retired tells that the batch was retired after the ingest had begun. The other fields are
	// those of nothing then.
	Retired bool `json:"retired,omitempty"`
}

// Shared is another batch with the same inputs.
type Shared struct {
	Batch string `json:"batch"`
	// Inputs is how many of the ingest's inputs it was made from.
	Inputs int `json:"inputs"`
}

// Of returns what the ingest of a run did, which has finished with the record at key. It is nil if
// a later ingest of the batch has finished before.
func Of(ctx context.Context, store blob.Store, run, key string) (*Effect, error) {
	spender := newSpender(store)
	record, err := read(ctx, store, key)
	if err != nil {
		return nil, err
	}
	id := registry.BatchID{DatasetID: record.DatasetID, Batch: record.Batch}
	all, err := registry.IngestsOf(ctx, store, []registry.BatchID{id})
	if err != nil {
		return nil, err
	}
	var before, own registry.Ingest
	for _, in := range all[id] {
		switch {
		case in.Run == run && !in.Retired:
			own = in
		case in.Finished() && own.Run == "":
			before = in
		case in.Retired:
			return &Effect{Retired: true}, nil
		case in.Finished():
			return nil, nil
		}
	}
	e := &Effect{Replaced: before.Digest != "", Returned: before.Retired}
	if e.Replaced {
		earlier, err := read(ctx, spender, lake.BatchKey(id.DatasetID, id.Batch, before.Digest))
		switch {
		case err == nil:
			e.ReplacedRows = earlier.Rows
		case lost(err):
			e.ReplacedRows = -1
		default:
			return nil, err
		}
	}
	others, err := e.others(ctx, store, id, run)
	if err != nil {
		return nil, err
	}
	return e, e.compare(ctx, spender, record, others)
}

// lost reports whether err means that a record is missing or damaged, or that maxRead is used up.
func lost(err error) bool {
	return errors.Is(err, blob.ErrNotExist) || errors.Is(err, codec.ErrCorrupt) || errors.Is(err, errSpent)
}

func read(ctx context.Context, store blob.Store, key string) (*lake.Batch, error) {
	data, _, err := store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	return lake.DecodeBatch(data, key)
}

// other is the record of another batch of the dataset.
type other struct {
	batch, key string
	counts     bool // its rows are not in OtherRows yet
}

// others counts the other batches of the dataset: those of the version, with what is not published
// yet. It returns the keys of the first ones' records.
func (e *Effect) others(
	ctx context.Context, store blob.Store, own registry.BatchID, run string,
) (all []other, err error) {
	// The ledger is read first: what is published meanwhile is found in both, and counts once.
	pending, _, err := registry.PendingBatches(ctx, store, func(int, error) {})
	if err != nil {
		return nil, err
	}
	pending = slices.DeleteFunc(pending, func(p registry.Pending) bool {
		return p.DatasetID != own.DatasetID || p.Batch == own.Batch
	})
	state, err := manifest.Look(ctx, store)
	if err != nil {
		return nil, err
	}
	v := state.Current
	datasets, err := v.FindDatasets(ctx, []uint32{own.DatasetID})
	if err != nil {
		return nil, err
	}
	e.OtherRows, e.OtherBatches = datasets[own.DatasetID].Rows, int64(datasets[own.DatasetID].Batches)
	later := map[string]bool{own.Batch: true} // what the version has of these does not count
	displaced := map[string]bool{}
	for _, p := range pending {
		later[p.Batch] = true
		if p.Retired && p.By == own.Batch && p.Run == run {
			displaced[p.Batch] = true
		}
		if !p.Retired {
			all = append(all, other{batch: p.Batch, key: lake.BatchKey(p.DatasetID, p.Batch, p.Digest), counts: true})
			e.OtherBatches++
		}
	}
	names := make([]manifest.BatchName, 0, len(later))
	for batch := range later {
		names = append(names, manifest.BatchName{DatasetID: own.DatasetID, Batch: batch})
	}
	live, err := v.FindBatches(ctx, names)
	if err != nil {
		return nil, err
	}
	for _, b := range live {
		e.OtherRows -= b.Rows
		e.OtherBatches--
		if displaced[b.Batch] {
			e.Displaced++
			e.DisplacedRows += b.Rows
		}
	}
	if len(all) > maxBatches {
		e.OtherRows = -1
		return all[:maxBatches], nil
	}
	for b, err := range v.BatchesOf(ctx, own.DatasetID) {
		if err != nil {
			return nil, err
		}
		if len(all) == maxBatches {
			break
		}
		if !later[b.Batch] {
			all = append(all, other{batch: b.Batch, key: b.Record()})
		}
	}
	return all, nil
}

// compare finds the batches that were made from the same inputs as a record.
func (e *Effect) compare(ctx context.Context, store blob.Store, record *lake.Batch, others []other) error {
	inputs := map[Input]bool{}
	for _, in := range record.Inputs {
		inputs[Input{in.Name, in.Bytes}] = true
	}
	var mu sync.Mutex
	compared, unknown := int64(0), e.OtherRows < 0
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(reads)
	for _, o := range others {
		g.Go(func() error {
			b, err := read(ctx, store, o.key)
			if errors.Is(err, errSpent) && o.counts {
				mu.Lock()
				defer mu.Unlock()
				unknown = true
			}
			if lost(err) {
				return nil // no version can have it, unless it is one too many
			}
			if err != nil {
				return err
			}
			same := 0
			for _, in := range b.Inputs {
				if inputs[Input{in.Name, in.Bytes}] {
					same++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			compared++
			if o.counts {
				e.OtherRows += b.Rows
			}
			if same > 0 {
				e.Shared = append(e.Shared, Shared{o.batch, same})
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if unknown {
		e.OtherRows = -1
	}
	slices.SortFunc(e.Shared, func(a, b Shared) int { return strings.Compare(a.Batch, b.Batch) })
	e.SharedBatches, e.Shared = len(e.Shared), e.Shared[:min(len(e.Shared), maxShared)]
	e.Uncompared = e.OtherBatches - compared
	return nil
}
