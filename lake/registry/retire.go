package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

var (
	// ErrNoIngest: no ingest of the batch has finished, so there is nothing to retire or restore.
	ErrNoIngest = errors.New("no ingest of the batch has finished")
	// ErrNotRetired: the batch is not retired.
	ErrNotRetired = errors.New("the batch is not retired")
)

// Retirement is what became of one batch of RetireBatches or RestoreBatches.
type Retirement struct {
	BatchID
	// Ingest is the ingest whose rows the batch had before it was retired, or has again.
	Ingest Ingest
	// Ingests are all registered ingests of the batch that have finished.
	Ingests []Ingest
	// Already tells that the batch was retired before.
	Already bool
	// Err is ErrNoIngest, ErrNotRetired, or why the ledger could not be changed.
	Err error
}

// RetireBatches takes batches out of the lake: the next publish makes a version without them. It
// appends an entry to the order of ingests of each. Ingests that registered before, finished or
// not, no longer win; one that registers later does. Run names the call, which may be repeated. All
// batches of a dataset are retired at once. One that fails keeps none of the others back.
func RetireBatches(ctx context.Context, store blob.Store, run string, batches []BatchID) []Retirement {
	if err := CheckFormats(ctx, store); err != nil {
		return failed("retire", batches, err)
	}
	return retirements(ctx, store, batches, "retire", func(s *shard, o *order, r *Retirement) (changed bool) {
		at := o.current()
		if at < 0 || o.Ingests[at].Retired {
			if r.Already = at >= 0 && o.Ingests[at].Run != run; at < 0 {
				r.Err = ErrNoIngest
			}
			return false
		}
		o.insert(Ingest{Seq: s.NextSeq, Run: run, Retired: true})
		s.NextSeq++
		return true
	})
}

// RestoreBatches puts retired batches back: the ingest that was current before is current again,
// and the next publish makes a version with it. All batches of a dataset are restored at once. One
// that fails keeps none of the others back.
//
// Calls may be repeated; only the first finds the batches retired.
func RestoreBatches(ctx context.Context, store blob.Store, batches []BatchID) []Retirement {
	var restored sync.Map // of BatchID: the shards are edited concurrently
	return retirements(ctx, store, batches, "restore", func(_ *shard, o *order, r *Retirement) (changed bool) {
		at := o.current()
		earlier := slices.ContainsFunc(o.Ingests, func(i Ingest) bool { return i.Digest != "" })
		switch {
		case !earlier:
			r.Err = ErrNoIngest
			return false
		case !o.Ingests[at].Retired:
			if _, ok := restored.Load(o.BatchID); !ok { // else only the reply of the put was lost
				r.Err = ErrNotRetired
			}
			return false
		}
		for ; o.Ingests[at].Digest == ""; at-- {
			if o.Ingests[at].Retired {
				o.Ingests = slices.Delete(o.Ingests, at, at+1)
			}
		}
		o.Settled = "" // the next publish looks whether its version has the batch
		restored.Store(o.BatchID, true)
		return true
	})
}

// retirements calls do with the order of each batch.
func retirements(
	ctx context.Context, store blob.Store, batches []BatchID, verb string, do func(s *shard, o *order, r *Retirement) (changed bool),
) []Retirement {
	out := make([]Retirement, len(batches))
	errs := eachShard(len(batches), func(i int) uint32 { return batches[i].DatasetID }, func(n int, at []int) error {
		ids := make([]BatchID, len(at))
		for k, i := range at {
			ids[k] = batches[i]
		}
		return edit(ctx, store, n, ids, func(s *shard, orders map[BatchID]*order) (changed bool, err error) {
			for _, i := range at {
				o, r := orders[batches[i]], &out[i]
				*r = Retirement{BatchID: batches[i]}
				changed = do(s, o, r) || changed
				if r.Ingests = finishedOf(o.Ingests); len(r.Ingests) > 0 {
					r.Ingest = r.Ingests[len(r.Ingests)-1]
				}
			}
			return changed, nil
		})
	})
	for i, err := range errs {
		if err := cmp.Or(out[i].Err, err); err != nil {
			out[i].BatchID = batches[i]
			out[i].Err = fmt.Errorf("%s batch %q of dataset %d: %w", verb, batches[i].Batch, batches[i].DatasetID, err)
		}
	}
	return out
}

// failed is the result for batches about which nothing could be done.
func failed(verb string, batches []BatchID, err error) []Retirement {
	out := make([]Retirement, len(batches))
	for i, id := range batches {
		out[i] = Retirement{BatchID: id, Err: fmt.Errorf("%s batch %q of dataset %d: %w", verb, id.Batch, id.DatasetID, err)}
	}
	return out
}

// begun reports whether a run has registered and not finished.
func (o *order) begun(run string) bool {
	return slices.ContainsFunc(o.Ingests, func(i Ingest) bool { return i.Run == run && !i.Finished() })
}

// replaceOthers retires the other batches of the dataset in the place that an ingest has in the
// order. Orders has all of them.
func replaceOthers(orders map[BatchID]*order, own BatchID, in Ingest) {
	for id, o := range orders {
		if id.DatasetID == own.DatasetID && id != own && o.before(in.Seq) {
			o.insert(Ingest{Seq: in.Seq, Run: in.Run, Retired: true, By: own.Batch})
		}
	}
}

// before reports whether the order has an ingest with a lower number that is not retired in that
// place, finished or not.
func (o *order) before(seq int64) bool {
	found := false
	for _, in := range o.Ingests {
		if in.Seq < seq {
			found = !in.Retired
		}
	}
	return found
}

// returnOthers takes back what replaceOthers did. A batch that a later ingest replaces, too, stays
// retired, by that one: it found the batch retired already. What an earlier one did to a batch is
// in the batch's order, unless the batch was restored since. The orders lack the ingest itself.
func returnOthers(orders map[BatchID]*order, own BatchID, in Ingest) {
	var returned []*order
	var replacing []Ingest // what replaceOthers inserts for the other ingests
	for id, o := range orders {
		if id.DatasetID != own.DatasetID {
			continue
		}
		n := len(o.Ingests)
		if id != own {
			o.Ingests = slices.DeleteFunc(o.Ingests, func(e Ingest) bool {
				return e.Retired && e.By == own.Batch && e.Run == in.Run
			})
		}
		if len(o.Ingests) < n {
			o.Settled = "" // the next publish looks whether its version has the batch
			returned = append(returned, o)
		}
		for _, e := range o.Ingests {
			switch {
			case e.Seq <= in.Seq:
			case e.Retired && e.By != "": // also of an ingest that a version has, which no longer Replaces
				replacing = append(replacing, e)
			case e.Replaces && e.Finished():
				replacing = append(replacing, Ingest{Seq: e.Seq, Run: e.Run, Retired: true, By: o.Batch})
			}
		}
	}
	// Each of them has retired several batches, and all of those have told of it.
	slices.SortFunc(replacing, func(a, b Ingest) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.By, b.By), cmp.Compare(a.Run, b.Run))
	})
	replacing = slices.Compact(replacing)
	for _, o := range returned {
		for _, e := range replacing {
			if e.By != o.Batch && o.before(e.Seq) && !slices.Contains(o.Ingests, e) {
				o.insert(e)
			}
		}
	}
}

// finishedOf returns the ingests with a record.
func finishedOf(ingests []Ingest) (finished []Ingest) {
	for _, in := range ingests {
		if in.Digest != "" {
			finished = append(finished, in)
		}
	}
	return finished
}

// RetiredDatasets returns the datasets with a batch that is retired. It reads the whole shards that
// have retired batches, and nothing of the others. Damaged shards are left out.
func RetiredDatasets(ctx context.Context, store blob.Store) (map[uint32]bool, error) {
	shards, err := readShards(ctx, store, func(int, error) {})
	if err != nil {
		return nil, err
	}
	datasets := map[uint32]bool{}
	for _, s := range shards {
		if s == nil || s.Retired == 0 {
			continue
		}
		for o, err := range s.all(ctx, store, 0) {
			if errors.Is(err, codec.ErrCorrupt) {
				break
			}
			if err != nil {
				return nil, err
			}
			if at := o.current(); at >= 0 && o.Ingests[at].Retired {
				datasets[o.DatasetID] = true
			}
		}
	}
	return datasets, nil
}

// BatchState is what the ledger has of a batch of which an ingest has finished.
type BatchState struct {
	Batch string
	// Ingest is the current ingest, or that to which RestoreBatches would return.
	Ingest  Ingest
	Retired bool
}

// BatchStates returns the batches of a dataset of which an ingest has finished, by name, those that
// are retired among them.
func BatchStates(ctx context.Context, store blob.Store, dataset uint32) ([]BatchState, error) {
	s, err := readShard(ctx, store, ShardOf(dataset))
	if err != nil {
		return nil, err
	}
	var states []BatchState
	for o, err := range s.all(ctx, store, dataset) {
		if err != nil {
			return nil, err
		}
		state := BatchState{Batch: o.Batch}
		for _, in := range o.Ingests {
			switch {
			case in.Digest != "":
				state.Ingest, state.Retired = in, false
			case in.Retired:
				state.Retired = true
			}
		}
		if state.Ingest.Digest != "" {
			states = append(states, state)
		}
	}
	return states, nil
}
