package lake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
)

// RegistryFormat is the version of both registry documents.
const RegistryFormat = 1

// Dataset is a named source of URLs.
type Dataset struct {
	// ID is given once, in the order datasets are asked for, from 1, and never again.
	ID      uint32 `json:"dataset_id"`
	Name    string `json:"name"`
	Title   string `json:"title,omitempty"`
	Source  string `json:"source,omitempty"`
	Licence string `json:"licence,omitempty"`
}

// Rules are what the rows of a lake depend on beside its inputs. All rows of a lake follow the same.
type Rules struct {
	// CanonicalForm is urlnorm.Form.
	CanonicalForm string `json:"canonical_form"`
	// PublicSuffix is the version of the public suffix list, urlnorm.PSLVersion: domains are sorted and partitioned on.
	PublicSuffix string `json:"public_suffix_list"`
}

// CurrentRules are those of this program.
func CurrentRules() Rules {
	return Rules{CanonicalForm: urlnorm.Form, PublicSuffix: urlnorm.PSLVersion()}
}

// RulesError refuses work for a lake whose rows follow other rules than this program's. A program of
// the lake's version can do it, or this one after a rebuild.
type RulesError struct{ Lake, Program Rules }

func (e *RulesError) Error() string {
	if e.Lake.CanonicalForm != e.Program.CanonicalForm {
		return fmt.Sprintf("the lake's canonical form is %s, this program's is %s; rebuild the lake first", e.Lake.CanonicalForm, e.Program.CanonicalForm)
	}
	return fmt.Sprintf("the lake's public suffix list is %q, this program's is %q; rebuild the lake first", e.Lake.PublicSuffix, e.Program.PublicSuffix)
}

// CheckRules returns a *RulesError unless the rules are this program's.
func CheckRules(r Rules) error {
	if have := CurrentRules(); r != have {
		return &RulesError{Lake: r, Program: have}
	}
	return nil
}

var (
	// ErrUnknownRun: a run finishes an ingest that it never registered.
	ErrUnknownRun = errors.New("run has not registered an ingest of this batch")
	// ErrBusy: others kept changing a registry document.
	ErrBusy = errors.New("registry kept changing")
)

// registry is the document at RegistryKey.
type registry struct {
	Format int   `json:"format"`
	Rules  Rules `json:"rules"`
	// NextID is the next dataset's. It is kept apart from the list so that an id is not given again
	// when an entry goes.
	NextID   uint32    `json:"next_id"`
	Datasets []Dataset `json:"datasets"` // by id
}

// Registry returns the lake's datasets in the order of their ids, none where there is no registry yet.
func Registry(ctx context.Context, store blob.Store) ([]Dataset, error) {
	r, _, err := read[registry](ctx, store, RegistryKey)
	if err != nil {
		return nil, err
	}
	return r.Datasets, nil
}

// RegisterDataset returns the dataset with d's name and gives it the next id if it is new. D's ID is not looked at. What
// d says about a known dataset replaces what is there; what it leaves empty stays. The first
// dataset fixes the lake's rules; later ones are refused with a *RulesError where the program's are others.
//
// A registry that is missing although the lake has batches or versions is a *codec.CorruptError: ids would be given again.
//
// It may be repeated and run at once any number of times. A reply that was lost does no harm: the document is read again.
func RegisterDataset(ctx context.Context, store blob.Store, d Dataset) (Dataset, error) {
	if err := CheckDatasetName(d.Name); err != nil {
		return Dataset{}, err
	}
	var out Dataset
	err := update(ctx, store, RegistryKey, func(r *registry) (bool, error) {
		if r.Format == 0 {
			*r = registry{Format: RegistryFormat, Rules: CurrentRules(), NextID: 1}
		}
		if err := CheckRules(r.Rules); err != nil {
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
	if err != nil {
		return Dataset{}, fmt.Errorf("register dataset %q: %w", d.Name, err)
	}
	return out, nil
}

// AdoptRules records that all rows of the lake now follow this program's rules: what a rebuild does once its version
// is published.
func AdoptRules(ctx context.Context, store blob.Store) error {
	err := update(ctx, store, RegistryKey, func(r *registry) (bool, error) {
		if r.Format == 0 {
			return false, nil // the first dataset will say
		}
		have := r.Rules
		r.Rules = CurrentRules()
		return have != r.Rules, nil
	})
	if err != nil {
		return fmt.Errorf("adopt rules: %w", err)
	}
	return nil
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
	// Digest names the batch's record once the ingest has finished.
	Digest string `json:"digest,omitempty"`
}

// keepSuperseded is how many ingests that a later one replaced stay registered. They are looked up only by
// a run that finishes twice; one that is a thousand ingests late is refused.
const keepSuperseded = 1000

// RegisterIngest puts an ingest in the order of its dataset's: of two runs of one batch the one registered
// later wins, whichever finishes first. It is idempotent by run and batch. A registry that is missing although the dataset has
// batches is a *codec.CorruptError.
func RegisterIngest(ctx context.Context, store blob.Store, dataset uint32, batch, run string) (seq int64, err error) {
	if err := CheckBatchName(batch); err != nil {
		return 0, err
	}
	err = update(ctx, store, BatchRegistryKey(dataset), func(r *batchRegistry) (bool, error) {
		if err := r.of(dataset); err != nil {
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
		return true, nil
	})
	if err != nil {
		return 0, fmt.Errorf("register ingest of batch %q of dataset %d: %w", batch, dataset, err)
	}
	return seq, nil
}

// FinishIngest records that run has finished its ingest of a batch with the record of that digest. Current is false where
// a run registered later has finished the batch already: its content stands. The record has to be in
// the store before.
func FinishIngest(ctx context.Context, store blob.Store, dataset uint32, batch, run, digest string) (current bool, err error) {
	err = update(ctx, store, BatchRegistryKey(dataset), func(r *batchRegistry) (bool, error) {
		if err := r.of(dataset); err != nil {
			return false, err
		}
		own, changed := int64(-1), false
		for i := range r.Ingests {
			if e := &r.Ingests[i]; e.Run == run && e.Batch == batch {
				changed = e.Digest != digest
				own, e.Digest = e.Seq, digest
			}
		}
		if own < 0 {
			return false, fmt.Errorf("%w: run %q", ErrUnknownRun, run)
		}
		current = r.winners()[batch].Seq == own
		r.drop()
		return changed, nil
	})
	if err != nil {
		return false, fmt.Errorf("finish ingest of batch %q of dataset %d: %w", batch, dataset, err)
	}
	return current, nil
}

// CurrentBatches returns the digest of the record that stands for each finished batch of a dataset.
func CurrentBatches(ctx context.Context, store blob.Store, dataset uint32) (map[string]string, error) {
	r, etag, err := read[batchRegistry](ctx, store, BatchRegistryKey(dataset))
	if err == nil && etag != "" {
		err = r.of(dataset)
	}
	if err != nil {
		return nil, err
	}
	current := map[string]string{}
	for name, e := range r.winners() {
		current[name] = e.Digest
	}
	return current, nil
}

// of makes a new document that of a dataset and checks a read one.
func (r *batchRegistry) of(dataset uint32) error {
	if r.Format == 0 {
		*r = batchRegistry{Format: RegistryFormat, DatasetID: dataset, NextSeq: 1}
	}
	if r.DatasetID != dataset {
		return codec.Corrupt(BatchRegistryKey(dataset), "dataset_id", -1, dataset, r.DatasetID)
	}
	return nil
}

// winners finds the finished ingest of each batch that was registered last.
func (r *batchRegistry) winners() map[string]entry {
	last := map[string]entry{}
	for _, e := range r.Ingests {
		if e.Digest != "" {
			last[e.Batch] = e
		}
	}
	return last
}

// drop forgets the oldest superseded ingests beyond keepSuperseded, so that the document stays as small as the dataset's list of batches.
func (r *batchRegistry) drop() {
	last := r.winners()
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

func (r registry) format() int      { return r.Format }
func (r batchRegistry) format() int { return r.Format }

// read gets a registry document and its ETag; where there is none the zero document and "".
func read[T interface{ format() int }](ctx context.Context, store blob.Store, key string) (doc T, etag string, err error) {
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
	if doc.format() != RegistryFormat {
		return doc, "", codec.Corrupt(key, "format", -1, RegistryFormat, doc.format())
	}
	return doc, info.ETag, nil
}

// manifestKey is the manifest's, whose package imports this one.
const manifestKey = "index/manifest.json"

// witnesses are beginnings of keys that nothing is stored under before the registry document key is.
func witnesses(key string) []string {
	if id, ok := strings.CutPrefix(key, strings.TrimSuffix(BatchRegistryKey(0), "0.json")); ok {
		return []string{"batches/dataset_id=" + strings.TrimSuffix(id, ".json") + "/"}
	}
	return []string{manifestKey, "registry/batches/", "batches/"}
}

// CheckPresent returns a *codec.CorruptError if a registry document, the one at RegistryKey or at a dataset's BatchRegistryKey, is missing and
// the lake holds what is only written after it. An absent one is in order in a lake or a dataset that is new.
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
	// It may have been written since it was looked for, and the witness after it.
	if _, err := store.Stat(ctx, key); !errors.Is(err, blob.ErrNotExist) {
		return err
	}
	return codec.Corrupt(key, "object", -1, "one that exists, since "+witness+" does", `none; "starter publish --rebuild" restores it from the current version`)
}

// readNew is what an update goes by that has found no document: none where the lake or the dataset is new.
func readNew[T interface{ format() int }](ctx context.Context, store blob.Store, key string) (doc T, etag string, err error) {
	if err := CheckPresent(ctx, store, key); err != nil {
		return doc, "", err
	}
	return read[T](ctx, store, key)
}

// RestoreRegistry writes the registry anew from the datasets that a version holds, if it is lost: missing from a lake that is not new, or not what
// was sealed. Ids that the lake's objects name and datasets does not are not given again; nameless are those. Restored is false where there
// was nothing to do.
func RestoreRegistry(ctx context.Context, store blob.Store, rules Rules, datasets []Dataset) (restored bool, nameless []uint32, err error) {
	cond, lost, err := isLost[registry](ctx, store, RegistryKey)
	if err != nil || !lost {
		return false, nil, err
	}
	r := registry{Format: RegistryFormat, Rules: rules, NextID: 1, Datasets: slices.Clone(datasets)}
	slices.SortFunc(r.Datasets, func(a, b Dataset) int { return cmp.Compare(a.ID, b.ID) })
	used := map[uint32]bool{}
	for _, prefix := range []string{"registry/batches/", "batches/", "urls/"} {
		for info, err := range store.List(ctx, prefix) {
			if err != nil {
				return false, nil, err
			}
			var id uint32
			if n, _ := fmt.Sscanf(strings.TrimPrefix(info.Key, prefix), "dataset_id=%d", &id); n == 1 {
				used[id] = true
			}
		}
	}
	for _, d := range r.Datasets {
		delete(used, d.ID)
		r.NextID = max(r.NextID, d.ID+1)
	}
	nameless = slices.Sorted(maps.Keys(used))
	if n := len(nameless); n > 0 {
		r.NextID = max(r.NextID, nameless[n-1]+1)
	}
	data, err := codec.Seal(r)
	if err != nil {
		return false, nil, err
	}
	_, err = store.Put(ctx, RegistryKey, data, cond)
	return err == nil, nameless, err
}

// RestoreBatchRegistry writes the batch registry of a dataset anew, if it is lost, from the digests of the batches that a version holds, by
// name. Other batches of the dataset have to be ingested again, and a run that is under way fails.
func RestoreBatchRegistry(ctx context.Context, store blob.Store, dataset uint32, batches map[string]string) (restored bool, err error) {
	key := BatchRegistryKey(dataset)
	cond, lost, err := isLost[batchRegistry](ctx, store, key)
	if err != nil || !lost {
		return false, err
	}
	r := batchRegistry{Format: RegistryFormat, DatasetID: dataset, NextSeq: 1, Ingests: []entry{}}
	for _, name := range slices.Sorted(maps.Keys(batches)) {
		r.Ingests = append(r.Ingests, entry{Seq: r.NextSeq, Batch: name, Run: "restored", Digest: batches[name]})
		r.NextSeq++
	}
	data, err := codec.Seal(r)
	if err != nil {
		return false, err
	}
	_, err = store.Put(ctx, key, data, cond)
	return err == nil, err
}

// isLost tells whether a registry document has to be restored, and the condition under which it may be replaced. One of another
// format is another program's, and stays.
func isLost[T interface{ format() int }](ctx context.Context, store blob.Store, key string) (blob.Condition, bool, error) {
	data, info, err := store.Get(ctx, key)
	if errors.Is(err, blob.ErrNotExist) {
		err = CheckPresent(ctx, store, key)
		lost := errors.Is(err, codec.ErrCorrupt)
		if lost {
			err = nil
		}
		return blob.Condition{IfAbsent: true}, lost, err
	}
	if err != nil {
		return blob.Condition{}, false, err
	}
	var doc T
	var c *codec.CorruptError
	lost := errors.As(codec.Unseal(data, key, &doc), &c) && c.Section == "seal"
	return blob.Condition{IfMatch: info.ETag}, lost, nil
}

const (
	// updateRounds is how often an update starts again on what others wrote. Each lost round is another's success.
	updateRounds = 200
	// updatePause spreads those that lost a round; it grows with the rounds, up to 32 times.
	updatePause = 2 * time.Millisecond
)

// update applies change to a document by conditional put. Change returns whether it changed anything. It is called again with what is in the
// store after every put that did not plainly succeed, and finds its own change there if only the reply was lost.
func update[T interface{ format() int }](ctx context.Context, store blob.Store, key string, change func(*T) (bool, error)) error {
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
			// The put may have taken effect all the same. If not, this is what to report.
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
