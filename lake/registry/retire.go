package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake"
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
//
// Marks beside the records keep a lost ledger from bringing the batches back. They are written
// first: what was to be retired when the ledger was lost is then retired by its restoration.
func RetireBatches(ctx context.Context, store blob.Store, run string, batches []BatchID) []Retirement {
	err := CheckFormats(ctx, store)
	if err != nil {
		return failed("retire", batches, err)
	}
	before, err := IngestsOf(ctx, store, batches)
	if err == nil {
		err = markRetired(ctx, store, run, before)
	}
	if err != nil {
		return failed("retire", batches, err)
	}
	out := retire(ctx, store, run, batches)
	missed := map[BatchID][]Ingest{} // what has finished or was moved meanwhile
	for i := range out {
		r := &out[i]
		if r.Err != nil || r.Already {
			continue
		}
		if !slices.Equal(finishedOf(before[r.BatchID]), r.Ingests) {
			missed[r.BatchID] = r.Ingests
		}
	}
	if err := markRetired(ctx, store, run, missed); err != nil {
		return failed("retire", batches, err)
	}
	return out
}

func retire(ctx context.Context, store blob.Store, run string, batches []BatchID) []Retirement {
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
// Calls may be repeated; only the first finds the batches retired. The mark of the record that
// becomes current is cancelled first, so that a ledger that is lost meanwhile comes back with the
// batch. The marks of earlier records stay: the batch does not return to them.
func RestoreBatches(ctx context.Context, store blob.Store, batches []BatchID) []Retirement {
	before, err := IngestsOf(ctx, store, batches)
	if err == nil {
		var marks []string
		for id, ingests := range before {
			if finished := finishedOf(ingests); len(finished) > 0 {
				marks = append(marks, markKeys(id, finished[len(finished)-1:])...)
			}
		}
		err = cancelMarks(ctx, store, marks)
	}
	if err != nil {
		return failed("restore", batches, err)
	}
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
// in the batch's order, unless the batch was restored since. Kept has what finished of those that
// stay retired. The orders lack the ingest itself.
func returnOthers(orders map[BatchID]*order, own BatchID, in Ingest) (kept map[BatchID][]Ingest) {
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
	kept = map[BatchID][]Ingest{}
	for _, o := range returned {
		for _, e := range replacing {
			if e.By != o.Batch && o.before(e.Seq) && !slices.Contains(o.Ingests, e) {
				o.insert(e)
			}
		}
		if at := o.current(); at >= 0 && o.Ingests[at].Retired {
			kept[o.BatchID] = finishedOf(o.Ingests)
		}
	}
	return kept
}

// markReplaced writes the marks of batches that ingests are about to retire: those at of finished.
func markReplaced(ctx context.Context, store blob.Store, finished []Finish, at []int) error {
	for _, i := range at {
		f := finished[i]
		if !f.Replace {
			continue
		}
		all, err := Ingests(ctx, store, f.DatasetID)
		if err != nil {
			return err
		}
		own := slices.IndexFunc(all[f.Batch], func(in Ingest) bool { return in.Run == f.Run && !in.Retired })
		if own < 0 || all[f.Batch][own].Finished() {
			continue
		}
		marked := map[BatchID][]Ingest{}
		for batch, ingests := range all {
			o := order{Ingests: ingests}
			if at := o.current(); batch != f.Batch && at >= 0 && ingests[at].Seq < all[f.Batch][own].Seq {
				marked[BatchID{f.DatasetID, batch}] = ingests
			}
		}
		if err := markRetired(ctx, store, f.Run, marked); err != nil {
			return err
		}
	}
	return nil
}

// replacedBy returns the ingests of the batches that an ingest has retired.
func replacedBy(ctx context.Context, store blob.Store, own BatchID, in Ingest) (map[BatchID][]Ingest, error) {
	all, err := Ingests(ctx, store, own.DatasetID)
	found := map[BatchID][]Ingest{}
	for batch, ingests := range all {
		if slices.ContainsFunc(ingests, func(e Ingest) bool { return e.Retired && e.By == own.Batch && e.Run == in.Run }) {
			found[BatchID{own.DatasetID, batch}] = ingests
		}
	}
	return found, err
}

// unmarkReplaced cancels the marks of batches that come back when an ingest is withdrawn, before it
// is. The marks of batches that other entries retired, too, stay.
func unmarkReplaced(ctx context.Context, store blob.Store, own BatchID, run, digest string) error {
	in, _, err := FindIngest(ctx, store, own.DatasetID, own.Batch, run, digest)
	if err != nil || !in.Replaces {
		return err
	}
	all, err := Ingests(ctx, store, own.DatasetID)
	if err != nil {
		return err
	}
	orders := map[BatchID]*order{}
	for batch, ingests := range all {
		id := BatchID{own.DatasetID, batch}
		orders[id] = &order{BatchID: id, Ingests: slices.Clone(ingests)}
	}
	if o := orders[own]; o != nil {
		o.Ingests = slices.DeleteFunc(o.Ingests, func(e Ingest) bool { return e == in })
	}
	returnOthers(orders, own, in)
	var marks []string
	for id, o := range orders {
		at := o.current()
		if len(o.Ingests) < len(all[id.Batch]) && id != own && at >= 0 && !o.Ingests[at].Retired {
			marks = append(marks, markKeys(id, o.Ingests[at:at+1])...)
		}
	}
	return cancelMarks(ctx, store, marks)
}

// remark writes the marks again that unmarkReplaced has cancelled, when the ingest was returned.
func remark(ctx context.Context, store blob.Store, own BatchID, in Ingest) error {
	replaced, err := replacedBy(ctx, store, own, in)
	if err != nil {
		return err
	}
	for id, ingests := range replaced {
		o := order{Ingests: ingests}
		if at := o.current(); at < 0 || !ingests[at].Retired {
			delete(replaced, id)
			continue
		}
		replaced[id] = finishedOf(ingests)
	}
	return markRetired(ctx, store, in.Run, replaced)
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

// markFormat is the format version of the marks of retired batches.
const markFormat = 1

// retiredMark is the document at lake.RetiredKey of each record of a retired batch.
type retiredMark struct {
	Format int    `json:"format"`
	Run    string `json:"run"` // that retired the batch
	// Digest is that of the record that was the batch's before.
	Digest string `json:"digest"`
	// Cancelled marks no longer count: the batch was about to return.
	Cancelled bool `json:"cancelled,omitempty"`
}

func (m *retiredMark) newest() int { return markFormat }

func (m *retiredMark) check(key string) error {
	if m.Format != markFormat {
		return codec.Corrupt(key, "format", -1, markFormat, m.Format)
	}
	return nil
}

// markKeys returns the keys of the marks of a batch with these ingests: one for each record, since
// a restoration that finds another record without a mark would take that.
func markKeys(id BatchID, ingests []Ingest) (keys []string) {
	for _, in := range ingests {
		for _, digest := range in.records() {
			keys = append(keys, lake.RetiredKey(id.DatasetID, id.Batch, digest))
		}
	}
	return keys
}

// records returns the digests of the records of a finished ingest: that of today, and that of
// before its batch was moved to another list.
func (in *Ingest) records() []string {
	return slices.DeleteFunc([]string{in.Digest, in.MovedFrom}, func(digest string) bool { return digest == "" })
}

// marksAtOnce is how many marks are written concurrently.
const marksAtOnce = 32

// markRetired writes the marks of batches that are to be retired. Batches that are retired already
// have theirs.
func markRetired(ctx context.Context, store blob.Store, run string, batches map[BatchID][]Ingest) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(marksAtOnce)
	for id, ingests := range batches {
		o := order{Ingests: ingests}
		record, ok := o.record()
		if !ok {
			continue
		}
		data, err := codec.Seal(retiredMark{Format: markFormat, Run: run, Digest: record})
		if err != nil {
			return err
		}
		for _, in := range ingests {
			for _, digest := range in.records() {
				g.Go(func() error {
					// The mark of a record that was collected would stay for good. If that is not
					// known, the mark is written.
					_, err := store.Stat(ctx, lake.BatchKey(id.DatasetID, id.Batch, digest))
					if errors.Is(err, blob.ErrNotExist) {
						return nil
					}
					_, err = store.Put(ctx, lake.RetiredKey(id.DatasetID, id.Batch, digest), data, blob.Condition{})
					return err
				})
			}
		}
	}
	return g.Wait()
}

// cancelMarks cancels marks. They are not deleted, so that a mark that is missing is one that was
// lost. A garbage collection deletes them with their records.
func cancelMarks(ctx context.Context, store blob.Store, keys []string) error {
	data, err := codec.Seal(retiredMark{Format: markFormat, Cancelled: true})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(marksAtOnce)
	for _, key := range keys {
		g.Go(func() error {
			_, err := store.Put(ctx, key, data, blob.Condition{})
			return err
		})
	}
	return g.Wait()
}

// lostMark is the mark of a retired batch that is missing or damaged.
type lostMark struct {
	key, etag string
	mark      retiredMark // what it was
	err       error       // how it was lost
}

// lostMarks calls do with every lost mark of a retired batch, not concurrently. Records that were
// deleted by a garbage collection need none. Damaged shards are skipped.
func lostMarks(ctx context.Context, store blob.Store, do func(lostMark) error) error {
	shards, err := readShards(ctx, store, func(int, error) {})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(marksAtOnce)
	for _, s := range shards {
		if s == nil || s.Retired == 0 {
			continue
		}
		for o, err := range s.all(ctx, store, 0) {
			if errors.Is(err, codec.ErrCorrupt) {
				break
			}
			if err != nil {
				g.Go(func() error { return err })
				break
			}
			at, finished := o.current(), finishedOf(o.Ingests)
			if at < 0 || !o.Ingests[at].Retired || len(finished) == 0 {
				continue
			}
			mark := retiredMark{Format: markFormat, Run: o.Ingests[at].Run, Digest: finished[len(finished)-1].Digest}
			for _, in := range finished {
				for _, digest := range in.records() {
					record := lake.BatchKey(o.DatasetID, o.Batch, digest)
					g.Go(func() error {
						l := lostMark{key: lake.RetiredKey(o.DatasetID, o.Batch, digest), mark: mark}
						lost, err := l.look(ctx, store, record)
						if err != nil || !lost {
							return err
						}
						mu.Lock()
						defer mu.Unlock()
						return do(l)
					})
				}
			}
		}
	}
	return g.Wait()
}

// look reports whether the mark is lost, and sets how. A mark is deleted after its record.
func (l *lostMark) look(ctx context.Context, store blob.Store, record string) (lost bool, err error) {
	_, l.etag, err = read[retiredMark](ctx, store, l.key)
	if errors.Is(err, codec.ErrCorrupt) {
		l.err = err
		return true, nil
	}
	if err != nil || l.etag != "" {
		return false, err
	}
	if _, err := store.Stat(ctx, record); err != nil {
		if errors.Is(err, blob.ErrNotExist) {
			err = nil
		}
		return false, err
	}
	l.err = codec.Corrupt(l.key, "object", -1, "one that exists, since the batch is retired", "none")
	return true, nil
}

// checkMarks calls damaged with an error for every lost mark of a retired batch.
func checkMarks(ctx context.Context, store blob.Store, damaged func(err error) error) error {
	return lostMarks(ctx, store, func(l lostMark) error { return damaged(l.err) })
}

// RestoreMarks writes the lost marks of retired batches again, and returns their keys.
func RestoreMarks(ctx context.Context, store blob.Store) (keys []string, err error) {
	err = lostMarks(ctx, store, func(l lostMark) error {
		data, err := codec.Seal(l.mark)
		if err != nil {
			return err
		}
		_, err = store.Put(ctx, l.key, data, blob.Condition{IfAbsent: l.etag == "", IfMatch: l.etag})
		if errors.Is(err, blob.ErrPrecondition) { // the batch was about to return, or was retired again
			return nil
		}
		keys = append(keys, l.key)
		return err
	})
	return keys, err
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
