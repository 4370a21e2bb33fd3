// Package registry keeps the two mutable records of a lake: its datasets with their names and ids,
// and the order of ingests.
package registry

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
)

// registryFormat is the version of both registry documents.
const registryFormat = 1

var (
	// ErrUnknownRun: FinishIngest was called for a run that is not registered, or no longer.
	ErrUnknownRun = errors.New("run has not registered an ingest of this batch")
	// ErrBusy: other writers replaced a registry document before each of many attempts to do so.
	ErrBusy = errors.New("registry kept changing")
)

// registry is the document at RegistryKey.
type registry struct {
	Format int        `json:"format"`
	Rules  lake.Rules `json:"rules"`
	// NextID is the next dataset's id. It is stored, so an id is not reused even if its entry is
	// removed.
	NextID   uint32         `json:"next_id"`
	Datasets []lake.Dataset `json:"datasets"` // by id
}

// Datasets returns the lake's datasets in the order of their ids. A new lake has no registry and no
// datasets; a registry that is missing from another lake is a *codec.CorruptError.
func Datasets(ctx context.Context, store blob.Store) ([]lake.Dataset, error) {
	r, etag, err := read[registry](ctx, store, lake.RegistryKey)
	if err == nil && etag == "" {
		r, _, err = readNew[registry](ctx, store, lake.RegistryKey)
	}
	if err != nil {
		return nil, err
	}
	return r.Datasets, nil
}

// RegisterDataset returns the dataset with d's name. A new dataset gets the next id; d.ID is
// ignored. The other fields of d replace those of a known dataset unless they are empty. A new lake
// gets the rules of this program, see CurrentRules. The error is a *FormError or a
// *MissingListError if this program cannot apply the lake's rules. A registry that is missing from
// a lake with batches or versions is a *codec.CorruptError, since ids would be given again.
//
// Calls may be repeated and concurrent. If a reply is lost, the document is read again.
func RegisterDataset(ctx context.Context, store blob.Store, d lake.Dataset) (lake.Dataset, error) {
	if err := lake.CheckDatasetName(d.Name); err != nil {
		return lake.Dataset{}, err
	}
	var out lake.Dataset
	err := update(ctx, store, lake.RegistryKey, func(r *registry) (bool, error) {
		if err := r.prepare(ctx, store, urlnorm.BuiltinSuffixes()); err != nil {
			return false, err
		}
		if _, err := lake.LoadSuffixList(ctx, store, r.Rules.PublicSuffix); err != nil {
			return false, err
		}
		for i := range r.Datasets {
			have := &r.Datasets[i]
			if have.Name != d.Name {
				continue
			}
			changed := false
			for _, f := range []struct {
				have *string
				want string
			}{{&have.Title, d.Title}, {&have.Source, d.Source}, {&have.Licence, d.Licence}} {
				if f.want != "" && *f.have != f.want {
					*f.have, changed = f.want, true
				}
			}
			out = *have
			return changed, nil
		}
		if r.NextID == math.MaxUint32 {
			return false, errors.New("no dataset id left")
		}
		out = d
		out.ID = r.NextID
		r.NextID++
		r.Datasets = append(r.Datasets, out)
		return true, nil
	})
	if err == nil {
		err = keepCopy(ctx, store, out)
	}
	if err != nil {
		return lake.Dataset{}, fmt.Errorf("register dataset %q: %w", d.Name, err)
	}
	return out, nil
}

// batchRegistry is the document at BatchRegistryKey.
type batchRegistry struct {
	Format    int     `json:"format"`
	DatasetID uint32  `json:"dataset_id"`
	NextSeq   int64   `json:"next_seq"`
	Ingests   []entry `json:"ingests"` // by seq
}

// entry is one ingest of one batch.
type entry struct {
	Seq   int64  `json:"seq"`
	Batch string `json:"batch"`
	Run   string `json:"run"`
	// Digest names the batch's record once the ingest has finished. If the batch was moved to
	// another public suffix list since, MovedFrom is the digest that the ingest finished with.
	Digest    string `json:"digest,omitempty"`
	MovedFrom string `json:"moved_from,omitempty"`
	// Pack names the pack of what the ingest finished with, see package lake/pack.
	Pack string `json:"pack,omitempty"`
}

// keepUnfinished is the number of ingests without an end that stay registered: the newest ones of
// the dataset. It is far more than run at once. AbandonIngest removes those that fail or are
// cancelled, so only runs that were terminated or deleted from Temporal count.
const keepUnfinished = 20_000

// keepSuperseded is the number of superseded ingests that stay registered. Only a run that finishes
// a second time looks for them; a run that is a thousand ingests late gets ErrUnknownRun.
const keepSuperseded = 1000

// RegisterIngest appends an ingest to the order of its dataset's ingests and returns its number,
// counted from 1. Of two runs of one batch the one that registered later wins, whichever finishes
// first. A run that registers a batch again gets the same number. A registry that is missing from a
// dataset with batches is a *codec.CorruptError.
func RegisterIngest(ctx context.Context, store blob.Store, dataset uint32, batch, run string) (seq int64, err error) {
	if err := lake.CheckBatchName(batch); err != nil {
		return 0, err
	}
	err = update(ctx, store, lake.BatchRegistryKey(dataset), func(r *batchRegistry) (bool, error) {
		if err := r.belongTo(dataset); err != nil {
			return false, err
		}
		for _, e := range r.Ingests {
			if e.Run == run && e.Batch == batch {
				seq = e.Seq
				return false, nil
			}
		}
		seq = r.NextSeq
		r.NextSeq++
		r.Ingests = append(r.Ingests, entry{Seq: seq, Batch: batch, Run: run})
		r.dropUnfinished()
		return true, nil
	})
	if err != nil {
		return 0, fmt.Errorf("register ingest of batch %q of dataset %d: %w", batch, dataset, err)
	}
	return seq, nil
}

// FinishIngest records the digest of the batch record of a run's ingest. The record must be in the
// store already. Current is false if a run that registered later has finished the batch before:
// that run's record stays current. A run that has not registered the batch gets ErrUnknownRun. The
// mark of an earlier ingest that was withdrawn with this record is removed.
func FinishIngest(
	ctx context.Context, store blob.Store, dataset uint32, batch, run, digest string,
) (current bool, err error) {
	return FinishPacked(ctx, store, dataset, batch, run, Record{Digest: digest})
}

// Record names a batch record, and the pack that holds it, "" if it is an object of its own.
type Record struct{ Digest, Pack string }

// FinishPacked is FinishIngest for a record in a pack. If the run is repeated with the same record
// in another pack, the last one is kept.
func FinishPacked(
	ctx context.Context, store blob.Store, dataset uint32, batch, run string, record Record,
) (current bool, err error) {
	digest := record.Digest
	err = update(ctx, store, lake.BatchRegistryKey(dataset), func(r *batchRegistry) (bool, error) {
		if err := r.belongTo(dataset); err != nil {
			return false, err
		}
		own, changed := int64(-1), false
		for i := range r.Ingests {
			if e := &r.Ingests[i]; e.Run == run && e.Batch == batch {
				own = e.Seq
				if e.Digest != digest && e.MovedFrom != digest {
					e.Digest, e.MovedFrom, changed = digest, "", true
				}
				changed, e.Pack = changed || e.Pack != record.Pack, record.Pack
			}
		}
		if own < 0 {
			return false, fmt.Errorf("%w: run %q", ErrUnknownRun, run)
		}
		current = r.current()[batch].Seq == own
		r.dropSuperseded()
		return changed, nil
	})
	if err == nil {
		err = store.Delete(ctx, lake.WithdrawnKey(dataset, batch, digest))
	}
	if err != nil {
		return false, fmt.Errorf("finish ingest of batch %q of dataset %d: %w", batch, dataset, err)
	}
	return current, nil
}

// AbandonIngest removes a run's ingest of a batch from the registry unless it has finished, so that
// ingests that fail do not pile up. If the run finishes the batch later nevertheless, it gets
// ErrUnknownRun, and nothing of it is published.
func AbandonIngest(ctx context.Context, store blob.Store, dataset uint32, batch, run string) error {
	err := update(ctx, store, lake.BatchRegistryKey(dataset), func(r *batchRegistry) (bool, error) {
		if err := r.belongTo(dataset); err != nil {
			return false, err
		}
		n := len(r.Ingests)
		r.Ingests = slices.DeleteFunc(r.Ingests, func(e entry) bool {
			return e.Run == run && e.Batch == batch && e.Digest == ""
		})
		return len(r.Ingests) < n, nil
	})
	if err != nil {
		return fmt.Errorf("abandon ingest of batch %q of dataset %d: %w", batch, dataset, err)
	}
	return nil
}

// CurrentBatches returns the digest of the current record of each finished batch of a dataset, by
// the name of the batch. A registry that is missing from a dataset with batches is a
// *codec.CorruptError.
func CurrentBatches(ctx context.Context, store blob.Store, dataset uint32) (map[string]string, error) {
	records, err := CurrentRecords(ctx, store, dataset)
	if err != nil {
		return nil, err
	}
	digests := map[string]string{}
	for name, r := range records {
		digests[name] = r.Digest
	}
	return digests, nil
}

// CurrentRecords is CurrentBatches with the packs of the records.
func CurrentRecords(ctx context.Context, store blob.Store, dataset uint32) (map[string]Record, error) {
	key := lake.BatchRegistryKey(dataset)
	r, etag, err := read[batchRegistry](ctx, store, key)
	if err == nil && etag == "" {
		r, etag, err = readNew[batchRegistry](ctx, store, key)
	}
	if err == nil && etag != "" {
		err = r.belongTo(dataset)
	}
	if err != nil {
		return nil, err
	}
	records := map[string]Record{}
	for name, e := range r.current() {
		records[name] = Record{e.Digest, e.Pack}
	}
	return records, nil
}

// belongTo fills in a new document for a dataset, and checks that a document that was read is the
// dataset's.
func (r *batchRegistry) belongTo(dataset uint32) error {
	if r.Format == 0 {
		*r = batchRegistry{Format: registryFormat, DatasetID: dataset, NextSeq: 1}
	}
	if r.DatasetID != dataset {
		return codec.Corrupt(lake.BatchRegistryKey(dataset), "dataset_id", -1, dataset, r.DatasetID)
	}
	return nil
}

// current returns the current ingest of each batch: of its finished ingests the one that registered
// last.
func (r *batchRegistry) current() map[string]entry {
	last := map[string]entry{}
	for _, e := range r.Ingests {
		if e.Digest != "" {
			last[e.Batch] = e
		}
	}
	return last
}

// dropSuperseded removes the oldest superseded ingests beyond keepSuperseded. This bounds the
// document by the number of the dataset's batches.
func (r *batchRegistry) dropSuperseded() {
	last := r.current()
	superseded := func(e entry) bool { return e.Seq < last[e.Batch].Seq }
	n := 0
	for _, e := range r.Ingests {
		if superseded(e) {
			n++
		}
	}
	kept := r.Ingests[:0]
	for _, e := range r.Ingests {
		if n > keepSuperseded && superseded(e) {
			n--
			continue
		}
		kept = append(kept, e)
	}
	r.Ingests = kept
}

// dropUnfinished removes the oldest ingests without an end beyond keepUnfinished.
func (r *batchRegistry) dropUnfinished() {
	n := 0
	for _, e := range r.Ingests {
		if e.Digest == "" {
			n++
		}
	}
	r.Ingests = slices.DeleteFunc(r.Ingests, func(e entry) bool {
		if n <= keepUnfinished || e.Digest != "" {
			return false
		}
		n--
		return true
	})
}

func (r registry) format() int      { return r.Format }
func (r batchRegistry) format() int { return r.Format }

// read returns a registry document and its ETag. If there is none, both are zero.
func read[T interface{ format() int }](
	ctx context.Context, store blob.Store, key string,
) (doc T, etag string, err error) {
	data, info, err := store.Get(ctx, key)
	if errors.Is(err, blob.ErrNotExist) {
		return doc, "", nil
	}
	if err != nil {
		return doc, "", err
	}
	if err := codec.Unseal(data, key, &doc); err != nil {
		return doc, "", err
	}
	if doc.format() != registryFormat {
		return doc, "", codec.Corrupt(key, "format", -1, registryFormat, doc.format())
	}
	return doc, info.ETag, nil
}

// manifestKey is manifest.Key. Package manifest imports this one.
const manifestKey = "index/manifest.json"

// witnesses returns prefixes of keys that are written only after the registry document at key.
func witnesses(key string) []string {
	if id, ok := strings.CutPrefix(key, strings.TrimSuffix(lake.BatchRegistryKey(0), "0.json")); ok {
		dataset := "dataset_id=" + strings.TrimSuffix(id, ".json") + "/"
		return []string{"batches/" + dataset, "urls/" + dataset} // a packed batch has parts alone there
	}
	return []string{manifestKey, "index/versions/", copyRoot, "registry/batches/", "batches/"}
}

// CheckPresent returns a *codec.CorruptError if a registry document is missing although the lake
// has objects that are written only after it. A new lake or dataset has no document, which is no
// error. Key is RegistryKey or a BatchRegistryKey.
func CheckPresent(ctx context.Context, store blob.Store, key string) error {
	witness := ""
	for _, prefix := range witnesses(key) {
		for info, err := range store.List(ctx, prefix) {
			if err != nil {
				return err
			}
			witness = info.Key
			break
		}
		if witness != "" {
			break
		}
	}
	if witness == "" {
		return nil
	}
	// The document may have been written since the caller looked for it, and the witness after
	// that.
	if _, err := store.Stat(ctx, key); !errors.Is(err, blob.ErrNotExist) {
		return err
	}
	return codec.Corrupt(key, "object", -1, "one that exists, since "+witness+" does", "none")
}

// readNew is read for an update that has found no document. It fails unless the lake, or the
// dataset, is new or the document has been written meanwhile.
func readNew[T interface{ format() int }](
	ctx context.Context, store blob.Store, key string,
) (doc T, etag string, err error) {
	if err := CheckPresent(ctx, store, key); err != nil {
		return doc, "", err
	}
	return read[T](ctx, store, key)
}

const (
	// updateRounds is the maximum number of attempts of an update. An attempt fails only because
	// another writer's has succeeded.
	updateRounds = 200
	// updatePause is the maximum pause after the first failed attempt. It grows with the attempts
	// to at most 32 times that, to spread the writers.
	updatePause = 2 * time.Millisecond
)

// update changes a document by conditional put. Change reports whether it changed the document.
// After every put that did not plainly succeed the document is read and change is called again; it
// finds its own change there if only the reply was lost.
func update[T interface{ format() int }](
	ctx context.Context, store blob.Store, key string, change func(*T) (bool, error),
) error {
	var failure error
	for round := range updateRounds {
		doc, etag, err := read[T](ctx, store, key)
		if err == nil && etag == "" {
			doc, etag, err = readNew[T](ctx, store, key)
		}
		if err != nil {
			return err
		}
		changed, err := change(&doc)
		if err != nil || !changed {
			return err
		}
		if failure != nil {
			return failure
		}
		data, err := codec.Seal(doc)
		if err != nil {
			return err
		}
		cond := blob.Condition{IfMatch: etag}
		if etag == "" {
			cond = blob.Condition{IfAbsent: true}
		}
		if _, err = store.Put(ctx, key, data, cond); err == nil {
			return nil
		}
		if !errors.Is(err, blob.ErrPrecondition) {
			// The put may have taken effect. If the next round finds that it has not, this is the
			// error to report.
			failure = err
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(rand.N(updatePause * time.Duration(min(round+1, 32)))):
		}
	}
	return fmt.Errorf("%w: %s", ErrBusy, key)
}
