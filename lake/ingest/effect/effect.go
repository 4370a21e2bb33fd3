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
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
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
	// Displaced is how many other batches of the current version the ingest retires, since it
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

// Of returns what an ingest does that began at start and has the record at key, if it finishes now;
// with replace it is to be the only batch of its dataset. The effect is nil if a version has the
// batch already. Current is false if an ingest of the batch that began later has finished, or if
// the batch was retired since.
func Of(ctx context.Context, store blob.Store, key string, start int64, replace bool) (e *Effect, current bool, err error) {
	spender := newSpender(store)
	record, err := read(ctx, store, key)
	if err != nil {
		return nil, false, err
	}
	s, err := catalog.LookBatches(ctx, store, record.DatasetID)
	if err != nil {
		return nil, false, err
	}
	s = s.Without(start)
	id := catalog.BatchName{DatasetID: record.DatasetID, Batch: record.Batch}
	waiting, err := s.Find(ctx, append(s.Names(id.DatasetID), id)...)
	if err != nil {
		return nil, false, err
	}
	before, known := waiting[id]
	delete(waiting, id)
	switch {
	case known && before.Start == start:
		return nil, true, nil
	case known && before.Start > start && before.Retired:
		return &Effect{Retired: true}, false, nil
	case known && before.Start > start:
		return nil, false, nil
	}
	e = &Effect{Replaced: known && !before.Retired, Returned: before.Retired}
	if e.Replaced {
		earlier, err := read(ctx, spender, lake.BatchKey(id.DatasetID, id.Batch, before.Digest))
		switch {
		case err == nil:
			e.ReplacedRows = earlier.Rows
		case lost(err):
			e.ReplacedRows = -1
		default:
			return nil, true, err
		}
	}
	if !replace {
		start = 0
	}
	others, err := e.others(ctx, s, before.Live, id, waiting, start)
	if err != nil {
		return nil, true, err
	}
	return e, true, e.compare(ctx, spender, record, others)
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
// yet. Those that began before start are displaced. It returns the keys of the first ones' records.
func (e *Effect) others(
	ctx context.Context, s *catalog.BatchState, own *catalog.Batch, id catalog.BatchName,
	waiting map[catalog.BatchName]catalog.PendingBatch, start int64,
) (all []other, err error) {
	v := s.Version
	cut, by := s.Replaced(id.DatasetID)
	datasets, err := v.FindDatasets(ctx, []uint32{id.DatasetID})
	if err != nil {
		return nil, err
	}
	e.OtherRows, e.OtherBatches = datasets[id.DatasetID].Rows, int64(datasets[id.DatasetID].Batches)
	drop := func(live *catalog.Batch) {
		if live != nil {
			e.OtherRows -= live.Rows
			e.OtherBatches--
		}
	}
	displace := func(live *catalog.Batch) {
		if drop(live); live != nil {
			e.Displaced++
			e.DisplacedRows += live.Rows
		}
	}
	drop(own)
	for _, b := range waiting {
		switch {
		case b.Retired:
			drop(b.Live)
		case b.Published: // it is among the version's below
		case b.Start < start:
			displace(b.Live)
		default:
			drop(b.Live)
			all = append(all, other{batch: b.Batch, key: lake.BatchKey(b.DatasetID, b.Batch, b.Digest), counts: true})
			e.OtherBatches++
		}
	}
	if len(all) > maxBatches {
		e.OtherRows = -1
		return all[:maxBatches], nil
	}
	for b, err := range v.BatchesOf(ctx, id.DatasetID) {
		if err != nil {
			return nil, err
		}
		now, ok := waiting[b.BatchName]
		if ok && (now.Retired || !now.Published) || b.BatchName == id {
			continue
		}
		b.Start = max(b.Start, now.Start)
		if b.Start < cut && b.Batch != by {
			drop(&b)
			continue
		}
		if b.Start < start {
			displace(&b)
			continue
		}
		if len(all) == maxBatches && start == 0 && cut == 0 {
			break
		}
		if len(all) < maxBatches {
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
