package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

const (
	// PendingRoot is the folder of all documents.
	PendingRoot = "pending/"

	pendingFormat = 1
	manyFolder    = "many"

	// pendingReads is how many documents are read concurrently.
	pendingReads = 32
)

// Change is what a publish is to do with one batch.
type Change struct {
	DatasetID uint32 `json:"dataset_id"`
	Batch     string `json:"batch"`
	// Digest names the record of the batch or, if the batch is retired, the record that it had.
	Digest string `json:"digest"`
	// Retired takes the batch out of the lake. Replace takes out all other batches of the dataset
	// whose ingests began before this one.
	Retired bool `json:"retired,omitempty"`
	Replace bool `json:"replace,omitempty"`
}

func (c *Change) name() BatchName {
	return BatchName{DatasetID: c.DatasetID, Batch: c.Batch}
}

// pendingDocument is what one run has finished.
type pendingDocument struct {
	lake.KeyedHeader
	// Start is when the run began: nanoseconds since 1970, by Temporal's clock for an ingest.
	Start   int64    `json:"start"`
	Run     string   `json:"run"`
	Changes []Change `json:"changes"`
}

// PutPending writes what a run that began at start has finished. The records must be in the store.
// A run that finishes in several parts gives each another name.
func PutPending(ctx context.Context, store blob.Store, run string, start int64, changes []Change) error {
	folder := strconv.FormatUint(uint64(changes[0].DatasetID), 10)
	for i := range changes {
		if changes[i].DatasetID != changes[0].DatasetID {
			folder = manyFolder
		}
	}
	key := fmt.Sprintf("%s%s/%019d-%s.json", PendingRoot, folder, start, run)
	_, err := lake.SaveKeyed(ctx, store, key, pendingFormat, &pendingDocument{Start: start, Run: run, Changes: changes}, blob.Condition{})
	return err
}

// DamagedDocument is a document that cannot be read.
type DamagedDocument struct {
	Key string
	// DatasetID is the dataset whose changes are lost, 0 if they are of several.
	DatasetID uint32
	Err       error // a *codec.CorruptError
}

// readPending returns the documents of some datasets, or of all, by start. Those that are deleted
// meanwhile are left out: a version has what they name.
func readPending(ctx context.Context, store blob.Store, datasets []uint32) (docs []*pendingDocument, damaged []DamagedDocument, err error) {
	folders := []string{PendingRoot}
	if len(datasets) > 0 {
		folders = []string{PendingRoot + manyFolder + "/"}
		for _, id := range datasets {
			folders = append(folders, fmt.Sprintf("%s%d/", PendingRoot, id))
		}
	}
	var keys []string
	for _, folder := range folders {
		for info, err := range store.List(ctx, folder) {
			if err != nil {
				return nil, nil, err
			}
			keys = append(keys, info.Key)
		}
	}
	all, errs := make([]*pendingDocument, len(keys)), make([]error, len(keys))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(pendingReads)
	for i, key := range keys {
		g.Go(func() error {
			d, err := codec.Confirm(func() (*pendingDocument, error) {
				d := new(pendingDocument)
				etag, err := lake.LoadKeyed(gctx, store, key, pendingFormat, d)
				if etag == "" {
					return nil, err
				}
				return d, err
			})
			if errors.Is(err, codec.ErrCorrupt) {
				errs[i], err = err, nil
			} else {
				all[i] = d
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	for i, err := range errs {
		if err != nil {
			folder, _, _ := strings.Cut(strings.TrimPrefix(keys[i], PendingRoot), "/")
			id, _ := strconv.ParseUint(folder, 10, 32)
			damaged = append(damaged, DamagedDocument{keys[i], uint32(id), err})
		}
	}
	all = slices.DeleteFunc(all, func(d *pendingDocument) bool { return d == nil })
	slices.SortFunc(all, func(a, b *pendingDocument) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), strings.Compare(a.Object, b.Object))
	})
	return all, damaged, nil
}

// BatchState is a lake's batches: those of its current version, and what waits to change them.
type BatchState struct {
	Version *Version // nil if nothing is published
	// Damaged are the documents that cannot be read.
	Damaged []DamagedDocument

	docs     []*pendingDocument
	latest   map[BatchName]startedChange // the last change of each batch
	replaced map[uint32]startedChange    // the last one of each dataset that replaces it
}

type startedChange struct {
	Change
	start int64
}

// PendingBatch is a batch with all changes that wait.
type PendingBatch struct {
	BatchName
	// Digest names the record, or the record that a retired batch had. Start is when the ingest, or
	// the retirement, began.
	Digest  string
	Start   int64
	Retired bool
	// By is the batch that replaces the dataset, if that retires this one.
	By string
	// Live is what the version has of the batch, nil for nothing.
	Live *Batch
	// Published tells that the version has the batch, or lacks it, as it is here, and Known that it
	// knows the start, too.
	Published, Known bool
}

// LookBatches reads the batches of some datasets, or of all. It reads what waits before the
// version: what is published meanwhile is found there.
func LookBatches(ctx context.Context, store blob.Store, datasets ...uint32) (*BatchState, error) {
	s, err := ReadWaiting(ctx, store, datasets...)
	if err != nil {
		return nil, err
	}
	published, err := Look(ctx, store)
	if err != nil {
		return nil, err
	}
	s.Version = published.Current
	return s, nil
}

// ReadWaiting is Look without the version, for a caller who sets it.
func ReadWaiting(ctx context.Context, store blob.Store, datasets ...uint32) (*BatchState, error) {
	s := &BatchState{}
	var err error
	if s.docs, s.Damaged, err = readPending(ctx, store, datasets); err != nil {
		return nil, err
	}
	s.index()
	return s, nil
}

// Without returns the state without the changes that began at start.
func (s *BatchState) Without(start int64) *BatchState {
	left := *s
	left.docs = slices.DeleteFunc(slices.Clone(s.docs), func(d *pendingDocument) bool { return d.Start == start })
	left.index()
	return &left
}

func (s *BatchState) index() {
	s.latest, s.replaced = map[BatchName]startedChange{}, map[uint32]startedChange{}
	for _, d := range s.docs {
		for _, c := range d.Changes {
			s.latest[c.name()] = startedChange{c, d.Start}
			if c.Replace {
				s.replaced[c.DatasetID] = startedChange{c, d.Start}
			}
		}
	}
}

// Names returns the batches of a dataset with changes that wait, or all for 0.
func (s *BatchState) Names(dataset uint32) (names []BatchName) {
	for name := range s.latest {
		if dataset == 0 || name.DatasetID == dataset {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, CompareNames)
	return names
}

// Replaced returns the start before which every other batch of a dataset is retired, since a batch
// that waits replaces the dataset, and that batch. It is 0 if none does.
func (s *BatchState) Replaced(dataset uint32) (start int64, by string) {
	r := s.replaced[dataset]
	return r.start, r.Batch
}

// known is what the version knows of some batches.
type known struct {
	live map[BatchName]Batch
	gone map[BatchName]Gone
}

func (s *BatchState) known(ctx context.Context, names []BatchName) (k known, err error) {
	if k.live, err = s.Version.FindBatches(ctx, names); err != nil {
		return k, err
	}
	with := slices.Clone(names)
	for i, n := range names {
		if i == 0 || names[i-1].DatasetID != n.DatasetID {
			with = append(with, BatchName{DatasetID: n.DatasetID})
		}
	}
	k.gone, err = s.Version.FindGone(ctx, with)
	return k, err
}

// has reports whether the version knows a change of the batch that began at start, or a later one.
func (k *known) has(n BatchName, start int64) bool {
	live, isLive := k.live[n]
	gone, isGone := k.gone[n]
	return live.Start >= start || gone.Start >= start || (isLive || isGone) && k.cut(n.DatasetID) > start
}

// cut is the last start of a batch that replaced the dataset.
func (k *known) cut(dataset uint32) int64 {
	return k.gone[BatchName{DatasetID: dataset}].Start
}

// of returns a batch. ok is false if there is none of that name.
func (s *BatchState) of(k *known, n BatchName) (b PendingBatch, ok bool) {
	b.BatchName = n
	if live, found := k.live[n]; found {
		b.Live, b.Digest, b.Start, ok = &live, live.Digest, live.Start, true
	}
	if gone, found := k.gone[n]; found && b.Live == nil {
		b.Digest, b.Start, b.Retired, ok = gone.Digest, gone.Start, true, true
	}
	cut := k.cut(n.DatasetID)
	switch c, found := s.latest[n]; {
	case !found || ok && c.start <= b.Start:
	case c.start < cut && !ok:
		b.Digest, b.Start, b.Retired, ok = c.Digest, cut, true, true
	case c.start >= cut:
		b.Digest, b.Start, b.Retired, ok = c.Digest, c.start, c.Retired, true
	}
	if r, found := s.replaced[n.DatasetID]; found && ok && n.Batch != r.Batch && b.Start < r.start {
		b.Start, b.By = r.start, r.Batch
		b.Retired = true
	}
	if b.Retired {
		b.Published = b.Live == nil
	} else {
		b.Published = b.Live != nil && b.Live.Digest == b.Digest
	}
	b.Known = b.Published && k.has(n, b.Start)
	return b, ok
}

// Find returns those of the named batches that there are, retired ones among them.
func (s *BatchState) Find(ctx context.Context, names ...BatchName) (map[BatchName]PendingBatch, error) {
	k, err := s.known(ctx, names)
	if err != nil {
		return nil, err
	}
	found := map[BatchName]PendingBatch{}
	for _, n := range names {
		if b, ok := s.of(&k, n); ok {
			found[n] = b
		}
	}
	return found, nil
}

// Has reports whether the ingest of a batch that began at start waits, or the version has it.
func (s *BatchState) Has(ctx context.Context, name BatchName, start int64) (bool, error) {
	for _, d := range s.docs {
		if d.Start == start && slices.ContainsFunc(d.Changes, func(c Change) bool { return c.name() == name }) {
			return true, nil
		}
	}
	live, _, err := s.Version.FindBatch(ctx, name.DatasetID, name.Batch)
	return live.Start == start, err
}

// Batches returns all batches of a dataset by name, retired ones among them.
func (s *BatchState) Batches(ctx context.Context, dataset uint32) ([]PendingBatch, error) {
	names := s.Names(dataset)
	for b, err := range s.Version.BatchesOf(ctx, dataset) {
		if err != nil {
			return nil, err
		}
		names = append(names, b.BatchName)
	}
	for g, err := range s.Version.Gone(ctx, dataset) {
		if err != nil {
			return nil, err
		}
		if g.Batch != "" {
			names = append(names, g.BatchName)
		}
	}
	found, err := s.Find(ctx, names...)
	byName := func(a, b PendingBatch) int { return CompareNames(a.BatchName, b.BatchName) }
	return slices.SortedFunc(maps.Values(found), byName), err
}

// Current returns the digests of the records of the batches of a dataset that are not retired.
func (s *BatchState) Current(ctx context.Context, dataset uint32) (map[string]string, error) {
	all, err := s.Batches(ctx, dataset)
	records := map[string]string{}
	for _, b := range all {
		if !b.Retired {
			records[b.Batch] = b.Digest
		}
	}
	return records, err
}

// Changes are what a version lacks of what waits.
type Changes struct {
	// Batches are the batches that are not Known, by dataset and name.
	Batches []PendingBatch
	// Replaced are the datasets that a batch replaces, by id: the name of the batch is that one.
	Replaced []Gone
	// Settled are the keys of the documents whose changes the version has, or has later ones of the
	// same batches. Superseded are the keys of documents whose batches later documents change.
	Settled, Superseded []string
}

// Unpublished returns the batches that the version lacks, or has although they are retired, by
// dataset and name.
func (s *BatchState) Unpublished(ctx context.Context) ([]PendingBatch, error) {
	c, err := s.Changes(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(c.Batches, func(b PendingBatch) bool { return b.Published }), nil
}

// Changes compares what waits with the version.
func (s *BatchState) Changes(ctx context.Context) (*Changes, error) {
	names := s.Names(0)
	for dataset, r := range s.replaced {
		for b, err := range s.Version.BatchesOf(ctx, dataset) {
			if err != nil {
				return nil, err
			}
			if b.Start < r.start {
				names = append(names, b.BatchName)
			}
		}
	}
	slices.SortFunc(names, CompareNames)
	names = slices.Compact(names)
	k, err := s.known(ctx, names)
	if err != nil {
		return nil, err
	}
	out := &Changes{}
	for _, n := range names {
		if b, ok := s.of(&k, n); ok && !b.Known {
			out.Batches = append(out.Batches, b)
		}
	}
	for _, dataset := range slices.Sorted(maps.Keys(s.replaced)) {
		if r := s.replaced[dataset]; k.cut(dataset) < r.start {
			out.Replaced = append(out.Replaced, Gone{BatchName: r.name(), Start: r.start})
		}
	}
	for _, d := range s.docs {
		superseded, settled := true, true
		for _, c := range d.Changes {
			later := s.latest[c.name()].start > d.Start && (!c.Replace || s.replaced[c.DatasetID].start > d.Start)
			superseded = superseded && later
			settled = settled && (later || k.has(c.name(), d.Start) && (!c.Replace || k.cut(c.DatasetID) >= d.Start))
		}
		switch {
		case superseded:
			out.Superseded = append(out.Superseded, d.Object)
		case settled:
			out.Settled = append(out.Settled, d.Object)
		}
	}
	return out, nil
}
