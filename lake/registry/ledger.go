package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

func (i IngestID) id() BatchID { return BatchID{i.DatasetID, i.Batch} }

// Finish is an ingest that has finished with the batch record of that digest.
type Finish struct {
	IngestID
	Digest string
	// Replace retires all other batches of the dataset whose ingests registered before.
	Replace bool
}

// Outcome is what became of one ingest of a call.
type Outcome struct {
	// Seq is the ingest's number in the order of ingests.
	Seq int64
	// Current is false if a run that registered later has finished the batch before, or if the
	// batch was retired since the run registered; then Retired is set. FinishIngests sets them.
	Current, Retired bool
	// Err is why nothing was done for this ingest, nil if it was.
	Err error
}

// Pending is the current ingest of a batch.
type Pending struct {
	DatasetID uint32
	Batch     string
	Seq       int64
	Run       string
	Digest    string
	// Retired tells that the batch is retired: no version is to have it. It has no record then. By
	// is the batch that took its place: a version has to have what is current of that one. It is ""
	// for none.
	Retired bool
	By      string
}

// pendingOf returns the current entry of a batch.
func pendingOf(id BatchID, in Ingest) Pending {
	return Pending{id.DatasetID, id.Batch, in.Seq, in.Run, in.Digest, in.Retired, in.By}
}

// settled is what Settle keeps of it.
func (p *Pending) settled() string { return Ingest{Digest: p.Digest, Retired: p.Retired}.settled() }

// eachShard calls do concurrently for each shard that has one of n items, with the indexes of those
// items. It returns the errors by index.
func eachShard(n int, dataset func(i int) uint32, do func(shard int, at []int) error) []error {
	at := make([][]int, Shards)
	for i := range n {
		s := ShardOf(dataset(i))
		at[s] = append(at[s], i)
	}
	errs := make([]error, n)
	var g errgroup.Group
	for s := range at {
		if len(at[s]) == 0 {
			continue
		}
		g.Go(func() error {
			if err := do(s, at[s]); err != nil {
				for _, i := range at[s] {
					errs[i] = err
				}
			}
			return nil
		})
	}
	_ = g.Wait() // each item has its error
	return errs
}

// RegisterIngests appends ingests to the order of ingests, in the order of the slice, and returns
// their numbers. Of two runs of one batch the one that registered later wins, whichever finishes
// first. A run that registers a batch again gets the same number. One that fails keeps none of the
// others back.
//
// The error is a *codec.CorruptError if the order of a dataset's ingests is lost.
func RegisterIngests(ctx context.Context, store blob.Store, ingests []IngestID) []Outcome {
	out := make([]Outcome, len(ingests))
	errs := eachShard(len(ingests), func(i int) uint32 { return ingests[i].DatasetID }, func(n int, at []int) error {
		var ids []BatchID
		for _, i := range at {
			if out[i].Err = lake.CheckBatchName(ingests[i].Batch); out[i].Err == nil {
				ids = append(ids, ingests[i].id())
			}
		}
		return edit(ctx, store, n, ids, func(s *shard, orders map[BatchID]*order) (changed bool, err error) {
			for _, i := range at {
				in, o := ingests[i], orders[ingests[i].id()]
				if out[i].Err != nil {
					continue
				}
				if own := slices.IndexFunc(o.Ingests, func(e Ingest) bool { return e.Run == in.Run && !e.Retired }); own >= 0 {
					out[i].Seq = o.Ingests[own].Seq
					continue
				}
				out[i].Seq, changed = s.NextSeq, true
				o.Ingests = append(o.Ingests, Ingest{Seq: s.NextSeq, Run: in.Run})
				s.NextSeq++
			}
			return changed, nil
		})
	})
	for i, err := range errs {
		if out[i].Err = cmp.Or(out[i].Err, err); out[i].Err != nil {
			in := ingests[i]
			out[i] = Outcome{Err: fmt.Errorf("register ingest of batch %q of dataset %d: %w", in.Batch, in.DatasetID, out[i].Err)}
		}
	}
	return out
}

// RegisterIngest is RegisterIngests for one.
func RegisterIngest(ctx context.Context, store blob.Store, dataset uint32, batch, run string) (seq int64, err error) {
	out := RegisterIngests(ctx, store, []IngestID{{dataset, batch, run}})
	return out[0].Seq, out[0].Err
}

// FinishIngests records the digests of the batch records of runs' ingests. The records must be in
// the store already. A run that has not registered the batch gets ErrUnknownRun. One that fails
// keeps none of the others back. A batch that replaces the others of its dataset is finished in the
// same update in which those are retired, so that one version has the one and lacks the others.
func FinishIngests(ctx context.Context, store blob.Store, finished []Finish) []Outcome {
	out := make([]Outcome, len(finished))
	errs := eachShard(len(finished), func(i int) uint32 { return finished[i].DatasetID }, func(n int, at []int) error {
		ids := make([]BatchID, len(at))
		for k, i := range at {
			ids[k] = finished[i].id()
		}
		// Which datasets get only one batch, and what they have.
		replacing := func(orders map[BatchID]*order) (datasets []uint32) {
			for _, i := range at {
				if f := finished[i]; f.Replace && orders[f.id()].begun(f.Run) {
					datasets = append(datasets, f.DatasetID)
				}
			}
			return datasets
		}
		return editAll(ctx, store, n, ids, replacing, func(_ *shard, orders map[BatchID]*order) (changed bool, err error) {
			for _, i := range at {
				f, o := finished[i], orders[finished[i].id()]
				own := slices.IndexFunc(o.Ingests, func(e Ingest) bool { return e.Run == f.Run && !e.Retired })
				if own < 0 {
					out[i] = Outcome{Err: fmt.Errorf("%w: run %q", ErrUnknownRun, f.Run)}
					continue
				}
				e := &o.Ingests[own]
				if f.Replace && e.Digest == "" {
					e.Replaces = true
					replaceOthers(orders, o.BatchID, *e)
				}
				if !e.Is(f.Digest) {
					e.Digest, e.MovedFrom, changed = f.Digest, "", true
				}
				current := o.current()
				out[i] = Outcome{Seq: e.Seq, Current: current == own, Retired: o.Ingests[current].Retired}
			}
			return changed, nil
		})
	})
	for i, err := range errs {
		if err := cmp.Or(out[i].Err, err); err != nil {
			f := finished[i]
			out[i] = Outcome{Err: fmt.Errorf("finish ingest of batch %q of dataset %d: %w", f.Batch, f.DatasetID, err)}
		}
	}
	return out
}

// FinishReplacing is FinishIngest, and retires the other batches of the dataset if replace is set.
func FinishReplacing(
	ctx context.Context, store blob.Store, dataset uint32, batch, run, digest string, replace bool,
) (current bool, err error) {
	if !replace {
		return FinishIngest(ctx, store, dataset, batch, run, digest)
	}
	out := FinishIngests(ctx, store, []Finish{{IngestID: IngestID{dataset, batch, run}, Digest: digest, Replace: true}})
	return out[0].Current, out[0].Err
}

// FinishIngest is FinishIngests for one. Current is false if a run that registered later has
// finished the batch before: that run's record stays current.
func FinishIngest(
	ctx context.Context, store blob.Store, dataset uint32, batch, run, digest string,
) (current bool, err error) {
	out := FinishIngests(ctx, store, []Finish{{IngestID: IngestID{dataset, batch, run}, Digest: digest}})
	return out[0].Current, out[0].Err
}

// AbandonIngests removes runs' ingests from the order unless they have finished, so that ingests
// that fail do not pile up. If such a run finishes the batch later nevertheless, it gets
// ErrUnknownRun, and nothing of it is published. The error is that of the first ingest that could
// not be removed: the others of a shard have the same.
func AbandonIngests(ctx context.Context, store blob.Store, ingests []IngestID) error {
	errs := eachShard(len(ingests), func(i int) uint32 { return ingests[i].DatasetID }, func(n int, at []int) error {
		ids := make([]BatchID, len(at))
		for k, i := range at {
			ids[k] = ingests[i].id()
		}
		return edit(ctx, store, n, ids, func(_ *shard, orders map[BatchID]*order) (changed bool, err error) {
			for _, i := range at {
				o := orders[ingests[i].id()]
				n := len(o.Ingests)
				o.Ingests = slices.DeleteFunc(o.Ingests, func(e Ingest) bool { return e.Run == ingests[i].Run && !e.Finished() })
				changed = changed || len(o.Ingests) < n
			}
			return changed, nil
		})
	})
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("abandon ingest of batch %q of dataset %d: %w", ingests[i].Batch, ingests[i].DatasetID, err)
		}
	}
	return nil
}

// AbandonIngest is AbandonIngests for one.
func AbandonIngest(ctx context.Context, store blob.Store, dataset uint32, batch, run string) error {
	return AbandonIngests(ctx, store, []IngestID{{dataset, batch, run}})
}

// change edits the order of one batch.
func change(ctx context.Context, store blob.Store, b BatchID, do func(s *shard, o *order) (changed bool)) error {
	return edit(ctx, store, ShardOf(b.DatasetID), []BatchID{b}, func(s *shard, orders map[BatchID]*order) (bool, error) {
		return do(s, orders[b]), nil
	})
}

// WithdrawIngest removes a run's ingest of a batch from the order of ingests, finished or not. The
// batch is then as if the run had not been: an earlier finished ingest is current again, and
// batches that the ingest has retired are back, unless another one replaces them, too. A batch that
// was retired before is retired again. It returns the ingest and whether it was registered. The run
// cannot finish afterwards, even if one of its steps is still running. Digest is as for FindIngest.
//
// Calls may be repeated and concurrent; only the first finds the ingest registered.
func WithdrawIngest(
	ctx context.Context, store blob.Store, dataset uint32, batch, run, digest string,
) (in Ingest, registered bool, err error) {
	id := BatchID{dataset, batch}
	err = editAll(ctx, store, ShardOf(dataset), []BatchID{id}, func(orders map[BatchID]*order) []uint32 {
		if o := orders[id]; o.find(run, digest) < 0 || !o.Ingests[o.find(run, digest)].Replaces {
			return nil
		}
		return []uint32{dataset}
	}, func(_ *shard, orders map[BatchID]*order) (bool, error) {
		o := orders[id]
		at := o.find(run, digest)
		if at < 0 {
			return false, nil
		}
		in, registered = o.Ingests[at], true
		o.Ingests = slices.Delete(o.Ingests, at, at+1)
		if in.Digest == o.Settled {
			o.Settled = "" // if it returns, the next publish looks for it
		}
		if in.Replaces {
			returnOthers(orders, id, in)
		}
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
	id := BatchID{dataset, batch}
	err := editAll(ctx, store, ShardOf(dataset), []BatchID{id}, func(map[BatchID]*order) []uint32 {
		if in.Replaces {
			return []uint32{dataset}
		}
		return nil
	}, func(s *shard, orders map[BatchID]*order) (bool, error) {
		o := orders[id]
		if o.find(in.Run, in.Digest) >= 0 {
			return false, nil
		}
		back := in
		taken := slices.ContainsFunc(o.Ingests, func(e Ingest) bool { return e.Seq == back.Seq })
		if taken || back.Seq >= s.NextSeq { // the ledger was lost and restored meanwhile
			back.Seq = s.NextSeq
			s.NextSeq++
		}
		o.insert(back)
		if in.Replaces {
			replaceOthers(orders, id, back)
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("return ingest of batch %q of dataset %d: %w", batch, dataset, err)
	}
	return nil
}

// ReplaceRecord gives the current ingest of a batch another record: to instead of from, both
// digests. The new record must be in the store already, with the same rows under other rules.
// Current reports whether to is the batch's record now. It is false, and nothing changes, if the
// batch has another current record, since a later ingest has finished meanwhile. The ledger keeps
// the digest that the ingest finished with.
//
// Calls may be repeated and concurrent.
func ReplaceRecord(
	ctx context.Context, store blob.Store, dataset uint32, batch, from, to string,
) (current bool, err error) {
	err = change(ctx, store, BatchID{dataset, batch}, func(_ *shard, o *order) bool {
		at := o.current()
		current = at >= 0 && !o.Ingests[at].Retired && (o.Ingests[at].Digest == from || o.Ingests[at].Digest == to)
		if !current || o.Ingests[at].Digest == to {
			return false
		}
		e := &o.Ingests[at]
		e.Digest, e.MovedFrom = to, cmp.Or(e.MovedFrom, from)
		return true
	})
	if err != nil {
		return false, fmt.Errorf("replace the record of batch %q of dataset %d: %w", batch, dataset, err)
	}
	return current, nil
}

// IngestsOf returns the registered ingests of some batches, in the order of registration. Ingests
// that were superseded long ago are no longer registered.
func IngestsOf(ctx context.Context, store blob.Store, batches []BatchID) (map[BatchID][]Ingest, error) {
	found := make([]map[BatchID]*order, Shards)
	errs := eachShard(len(batches), func(i int) uint32 { return batches[i].DatasetID }, func(n int, at []int) error {
		s, err := readShard(ctx, store, n)
		if err != nil {
			return err
		}
		ids := make([]BatchID, len(at))
		for k, i := range at {
			ids[k] = batches[i]
		}
		found[n], err = s.find(ctx, store, ids)
		return err
	})
	if err := cmp.Or(errs...); err != nil {
		return nil, err
	}
	all := make(map[BatchID][]Ingest, len(batches))
	for _, orders := range found {
		for id, o := range orders {
			if len(o.Ingests) > 0 {
				all[id] = o.Ingests
			}
		}
	}
	return all, nil
}

// FindIngest returns a run's ingest of a batch, and whether it is registered. A restored ledger
// does not know its runs: there it is the restored ingest with that digest, moved since or not. The
// digest may be "" if the caller does not know it.
func FindIngest(
	ctx context.Context, store blob.Store, dataset uint32, batch, run, digest string,
) (in Ingest, registered bool, err error) {
	id := BatchID{dataset, batch}
	all, err := IngestsOf(ctx, store, []BatchID{id})
	if err != nil {
		return Ingest{}, false, err
	}
	o := order{BatchID: id, Ingests: all[id]}
	at := o.find(run, digest)
	if at < 0 {
		return Ingest{}, false, nil
	}
	return o.Ingests[at], true, nil
}

// Ingests is IngestsOf for all batches of a dataset, by name.
func Ingests(ctx context.Context, store blob.Store, dataset uint32) (map[string][]Ingest, error) {
	s, err := readShard(ctx, store, ShardOf(dataset))
	if err != nil {
		return nil, err
	}
	all := map[string][]Ingest{}
	for o, err := range s.all(ctx, store, dataset) {
		if err != nil {
			return nil, err
		}
		if len(o.Ingests) > 0 {
			all[o.Batch] = o.Ingests
		}
	}
	return all, nil
}

// CurrentBatches returns the digest of the current record of each finished batch of a dataset that
// is not retired, by the name of the batch: the record of the finished ingest that registered last.
func CurrentBatches(ctx context.Context, store blob.Store, dataset uint32) (map[string]string, error) {
	s, err := readShard(ctx, store, ShardOf(dataset))
	if err != nil {
		return nil, err
	}
	records := map[string]string{}
	for o, err := range s.all(ctx, store, dataset) {
		if err != nil {
			return nil, err
		}
		if r, ok := o.record(); ok {
			records[o.Batch] = r
		}
	}
	return records, nil
}

// PendingBatches returns the current ingest of each batch that has finished and is not settled, by
// dataset and name, and the number of batches with a settled record. Batches that were retired, and
// of which it is not settled that a version lacks them, are among them. It calls damaged with each
// shard that it cannot read because of damage.
func PendingBatches(
	ctx context.Context, store blob.Store, damaged func(shard int, err error),
) (pending []Pending, settled int64, err error) {
	pending, settled, _, _, err = pendingBatches(ctx, store, damaged)
	return pending, settled, err
}

// pendingBatches is PendingBatches. Version is the newest one that Settle was told. Unnoted has
// the generations of the shards that the registry's document does not vouch for, and 0 for others.
func pendingBatches(
	ctx context.Context, store blob.Store, damaged func(shard int, err error),
) (pending []Pending, settled int64, version string, unnoted [Shards]uint64, err error) {
	shards, err := readShards(ctx, store, damaged)
	if err != nil {
		return nil, 0, "", unnoted, err
	}
	for n, s := range shards {
		if s == nil {
			continue
		}
		if s.Generation > s.noted {
			unnoted[n] = s.Generation
		}
		settled += s.Settled
		if s.Settled > 0 {
			version = max(version, s.Version)
		}
		last := map[BatchID]Ingest{}
		for _, o := range s.Open { // by number
			if o.Finished() {
				last[o.id()] = o.Ingest
			}
		}
		for id, in := range last {
			pending = append(pending, pendingOf(id, in))
		}
	}
	sortPending(pending)
	return pending, settled, version, unnoted, nil
}

// Waiting are the finished batches that a version may lack.
type Waiting struct {
	Batches []Pending
	All     bool // Batches are all finished batches, since a version was lost

	unnoted [Shards]uint64 // as of pendingBatches
}

// WaitingBatches returns the finished batches that a version may lack, which has a number of
// batches: those of PendingBatches or, if a version was lost, all. That is so if Settle was told of
// a later version, or if more batches are settled. It calls damaged with each shard that it cannot
// read because of damage.
func WaitingBatches(
	ctx context.Context, store blob.Store, version string, batches int64, damaged func(shard int, err error),
) (w Waiting, err error) {
	waiting, settled, told, unnoted, err := pendingBatches(ctx, store, damaged)
	w = Waiting{waiting, settled > batches || told > version, unnoted}
	if err == nil && w.All {
		w.Batches, err = AllBatches(ctx, store, damaged)
	}
	return w, err
}

// Note records the generations that the shards had, as Settle does, for a publish that finds
// nothing to do: the one before may have died before it did.
func (w *Waiting) Note(ctx context.Context, store blob.Store) error {
	if w.unnoted == [Shards]uint64{} {
		return nil
	}
	return noteLedger(ctx, store, w.unnoted)
}

// Running returns the datasets that have ingests without an end, each with their number.
func Running(ctx context.Context, store blob.Store) (map[uint32]int, error) {
	shards, err := readShards(ctx, store, func(int, error) {})
	if err != nil {
		return nil, err
	}
	running := map[uint32]int{}
	for _, s := range shards {
		if s == nil {
			continue
		}
		for i := range s.Open {
			if !s.Open[i].Finished() {
				running[s.Open[i].DatasetID]++
			}
		}
	}
	return running, nil
}

// Unfinished returns the ingests without an end, by shard and number. Damaged shards are left out.
func Unfinished(ctx context.Context, store blob.Store) ([]IngestID, error) {
	shards, err := readShards(ctx, store, func(int, error) {})
	if err != nil {
		return nil, err
	}
	var all []IngestID
	for _, s := range shards {
		if s == nil {
			continue
		}
		for i := range s.Open {
			if o := &s.Open[i]; !o.Finished() {
				all = append(all, IngestID{o.DatasetID, o.Batch, o.Run})
			}
		}
	}
	return all, nil
}

// CurrentRecordsOf returns the digests of the current records of some batches. One that has none,
// or is retired, is left out.
func CurrentRecordsOf(ctx context.Context, store blob.Store, batches []BatchID) (map[BatchID]string, error) {
	all, err := IngestsOf(ctx, store, batches)
	if err != nil {
		return nil, err
	}
	records := map[BatchID]string{}
	for id, ingests := range all {
		o := order{Ingests: ingests}
		if r, ok := o.record(); ok {
			records[id] = r
		}
	}
	return records, nil
}

// CurrentRecord returns the digest of the current record of a batch, "" if the batch has none or is
// retired.
func CurrentRecord(ctx context.Context, store blob.Store, b BatchID) (string, error) {
	records, err := CurrentRecordsOf(ctx, store, []BatchID{b})
	return records[b], err
}

// AllBatches is PendingBatches for all finished and all retired batches, settled or not. It reads
// the whole ledger.
func AllBatches(ctx context.Context, store blob.Store, damaged func(shard int, err error)) ([]Pending, error) {
	shards, err := readShards(ctx, store, damaged)
	if err != nil {
		return nil, err
	}
	var all []Pending
	for n, s := range shards {
		if s == nil {
			continue
		}
		for o, err := range s.all(ctx, store, 0) {
			if errors.Is(err, codec.ErrCorrupt) {
				damaged(n, err)
				break
			}
			if err != nil {
				return nil, err
			}
			if at := o.current(); at >= 0 {
				all = append(all, pendingOf(o.BatchID, o.Ingests[at]))
			}
		}
	}
	sortPending(all)
	return all, nil
}

// readShards reads all shards. It calls damaged with the damaged ones, which are nil.
func readShards(ctx context.Context, store blob.Store, damaged func(shard int, err error)) ([]*shard, error) {
	shards := make([]*shard, Shards)
	broken := make([]error, Shards)
	h, err := readHead(ctx, store)
	if err != nil || h.Format == 0 {
		return nil, err
	}
	g, ctx := errgroup.WithContext(ctx)
	for n := range shards {
		g.Go(func() error {
			s, err := readShardSince(ctx, store, n, h.ledger(n))
			switch {
			case errors.Is(err, codec.ErrCorrupt):
				broken[n] = err
			case err == nil:
				s.noted = h.ledger(n)
				shards[n] = s
			default:
				return err
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for n, err := range broken {
		if err != nil {
			damaged(n, err)
		}
	}
	return shards, nil
}

func sortPending(all []Pending) {
	slices.SortFunc(all, func(a, b Pending) int {
		return compareIDs(BatchID{a.DatasetID, a.Batch}, BatchID{b.DatasetID, b.Batch})
	})
}

// Settle records that a version has these ingests: PendingBatches does not return them again. A
// batch that has another record meanwhile is still returned. Call it after the commit of that
// version. Calls may be late and repeated: what is told of a version after a later one is ignored.
func Settle(ctx context.Context, store blob.Store, version string, published []Pending) error {
	return settle(ctx, store, version, published, false)
}

// SettleAll is Settle for all finished batches, after a later version was lost: it also replaces
// what was told of that one. A batch without a digest that is not retired is one that the version
// lacks.
func SettleAll(ctx context.Context, store blob.Store, version string, all []Pending) error {
	return settle(ctx, store, version, all, true)
}

func settle(ctx context.Context, store blob.Store, version string, published []Pending, anew bool) error {
	var generations [Shards]uint64
	errs := eachShard(len(published), func(i int) uint32 { return published[i].DatasetID }, func(n int, at []int) error {
		ids := make([]BatchID, len(at))
		for k, i := range at {
			ids[k] = BatchID{published[i].DatasetID, published[i].Batch}
		}
		return edit(ctx, store, n, ids, func(s *shard, orders map[BatchID]*order) (changed bool, err error) {
			defer func() {
				if generations[n] = s.Generation; changed {
					generations[n]++
				}
			}()
			if version < s.Version && !anew {
				return false, nil
			}
			changed = version != s.Version
			s.Version = version
			for k, i := range at {
				o := orders[ids[k]]
				if is := published[i].settled(); o.Settled != is && len(o.Ingests) > 0 {
					o.Settled, changed = is, true
				}
			}
			return changed, nil
		})
	})
	err := cmp.Or(errs...)
	if err == nil {
		err = noteLedger(ctx, store, generations)
	}
	if err != nil {
		return fmt.Errorf("settle %d batches: %w", len(published), err)
	}
	return nil
}
