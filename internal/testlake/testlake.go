// Package testlake makes small lakes for tests. It ingests every batch from a file, and publishes
// every version, by the steps that workers run, but in this process and without Temporal. Only
// tests import it.
package testlake

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish"
)

// Record is one raw record. TS, in milliseconds since the epoch, and Size are used only with HasTS
// and HasSize.
type Record struct {
	URL     string
	TS      int64
	HasTS   bool
	Size    int64
	HasSize bool
}

// runs counts the runs of this process.
var runs atomic.Int64

// Run returns a run id that is unique in this process.
func Run() string { return "run-" + strconv.FormatInt(runs.Add(1), 10) }

// folders holds the folder of each test's inputs, by testing.TB. A batch record names its inputs,
// so equal records must come from the same path to make equal batches.
var folders sync.Map

// input writes records to a file that is named by its content, and returns its path.
func input(tb testing.TB, records []Record) string {
	tb.Helper()
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	for _, r := range records {
		rec := struct {
			Size *int64 `json:"size,omitempty"`
			TS   string `json:"ts,omitempty"`
			URL  string `json:"url"`
		}{URL: r.URL}
		if r.HasTS {
			rec.TS = time.UnixMilli(r.TS).UTC().Format("2006-01-02T15:04:05.000Z07:00")
		}
		if r.HasSize {
			rec.Size = &r.Size
		}
		if err := enc.Encode(rec); err != nil {
			tb.Fatal(err)
		}
	}
	folder, ok := folders.Load(tb)
	if !ok {
		var loaded bool
		if folder, loaded = folders.LoadOrStore(tb, tb.TempDir()); !loaded {
			tb.Cleanup(func() { folders.Delete(tb) })
		}
	}
	path := filepath.Join(folder.(string), lake.Digest(buf.Bytes())+".jsonl")
	tmp := path + Run()
	if err := os.WriteFile(tmp, buf.Bytes(), 0o666); err != nil {
		tb.Fatal(err)
	}
	if err := os.Rename(tmp, path); err != nil {
		tb.Fatal(err)
	}
	return path
}

// Ingest ingests records as one batch of a dataset, without publishing it.
func Ingest(tb testing.TB, store blob.Store, dataset, batch string, records []Record) ingest.FinishResult {
	tb.Helper()
	return IngestSpec(tb, store, Spec(tb, store, dataset, batch, records))
}

// Replace is Ingest of a batch that becomes the dataset's only one.
func Replace(tb testing.TB, store blob.Store, dataset, batch string, records []Record) ingest.FinishResult {
	tb.Helper()
	spec := Spec(tb, store, dataset, batch, records)
	spec.Replace = true
	return IngestSpec(tb, store, spec)
}

// Spec returns the spec with which Ingest ingests records.
func Spec(tb testing.TB, store blob.Store, dataset, batch string, records []Record) ingest.Spec {
	tb.Helper()
	return ingest.Spec{
		Lake: store.URL(), Dataset: dataset, Batch: batch, Inputs: []string{input(tb, records)},
		Format: "jsonl", URLColumn: "url", TSColumn: "ts", SizeField: "size", MaxRejectRate: 1,
	}
}

// IngestSpec ingests the inputs of a spec as one batch, without publishing it.
func IngestSpec(tb testing.TB, store blob.Store, spec ingest.Spec) ingest.FinishResult {
	tb.Helper()
	done, err := Steps(tb.Context(), store, spec, tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	return done
}

// Steps runs the steps that IngestWorkflow orders, up to the batch record. It may be called
// concurrently.
func Steps(ctx context.Context, store blob.Store, spec ingest.Spec, tempDir string) (none ingest.FinishResult, err error) {
	run := Run()
	plan, err := ingest.MakePlan(ctx, store, run, spec)
	if err != nil {
		return none, err
	}
	for split := range plan.Splits {
		if _, err := ingest.Normalize(ctx, store, run, split, nil); err != nil {
			return none, err
		}
	}
	merge, err := ingest.PlanMerge(ctx, store, run)
	if err != nil {
		return none, err
	}
	for task := range merge.Tasks {
		if _, err := ingest.Merge(ctx, store, run, task, tempDir, postings.Collect(tempDir), nil); err != nil {
			return none, err
		}
	}
	done, err := ingest.Finish(ctx, store, run)
	if err != nil {
		return none, err
	}
	return done, ingest.Cleanup(ctx, store, run)
}

// SetList gives a lake the public suffix list with these rules, which are separated by white space.
func SetList(tb testing.TB, store blob.Store, rules string) *urlnorm.SuffixList {
	tb.Helper()
	list, err := urlnorm.ParseSuffixList([]byte(strings.Join(strings.Fields(rules), "\n")))
	if err != nil {
		tb.Fatal(err)
	}
	have, err := catalog.ReadRules(tb.Context(), store)
	if err == nil {
		err = catalog.SetRules(tb.Context(), store, have, list)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return list
}

// LoseList deletes the object of a public suffix list, and makes this process read lists again.
func LoseList(tb testing.TB, store blob.Store, list *urlnorm.SuffixList) {
	tb.Helper()
	if err := store.Delete(tb.Context(), lake.SuffixListKey(list.Identity())); err != nil {
		tb.Fatal(err)
	}
	// A process remembers few lists.
	for i := range 100 {
		other := blob.NewMemory()
		if _, err := lake.LoadSuffixList(tb.Context(), other, SetList(tb, other, fmt.Sprintf("a%d", i)).Identity()); err != nil {
			tb.Fatal(err)
		}
	}
}

// Publish publishes a version with every finished batch.
func Publish(tb testing.TB, store blob.Store) publish.Committed {
	tb.Helper()
	done, err := publish.All(tb.Context(), store, Run(), tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	return done
}

// Retire leaves the retirement of batches to the next publish.
func Retire(tb testing.TB, store blob.Store, batches ...catalog.BatchName) {
	tb.Helper()
	if err := TryRetire(tb.Context(), store, batches...); err != nil {
		tb.Fatal(err)
	}
}

// Restore leaves the return of retired batches to the next publish.
func Restore(tb testing.TB, store blob.Store, batches ...catalog.BatchName) {
	tb.Helper()
	if err := TryRestore(tb.Context(), store, batches...); err != nil {
		tb.Fatal(err)
	}
}

// TryRetire is Retire of a store that may fail. It may be repeated.
func TryRetire(ctx context.Context, store blob.Store, batches ...catalog.BatchName) error {
	return change(ctx, store, true, batches)
}

// TryRestore is Restore of a store that may fail. It may be repeated.
func TryRestore(ctx context.Context, store blob.Store, batches ...catalog.BatchName) error {
	return change(ctx, store, false, batches)
}

func change(ctx context.Context, store blob.Store, retired bool, batches []catalog.BatchName) error {
	s, err := catalog.LookBatches(ctx, store)
	if err != nil {
		return err
	}
	found, err := s.Find(ctx, batches...)
	if err != nil {
		return err
	}
	start := time.Now().UnixNano()
	var changes []catalog.Change
	for _, name := range batches {
		b, ok := found[name]
		if !ok {
			return fmt.Errorf("no batch %v", name)
		}
		start = max(start, b.Start+1)
		if b.Retired != retired {
			changes = append(changes, catalog.Change{DatasetID: b.DatasetID, Batch: b.Batch, Digest: b.Digest, Retired: retired})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	return catalog.PutPending(ctx, store, Run(), start, changes)
}

// Batches returns the digests of the records of a dataset's batches that are not retired, published
// or not.
func Batches(tb testing.TB, store blob.Store, dataset uint32) map[string]string {
	tb.Helper()
	s, err := catalog.LookBatches(tb.Context(), store, dataset)
	if err != nil {
		tb.Fatal(err)
	}
	current, err := s.Current(tb.Context(), dataset)
	if err != nil {
		tb.Fatal(err)
	}
	return current
}

// Finished returns the ingest that a batch is of.
func Finished(tb testing.TB, store blob.Store, dataset uint32, batch string) publish.Ingest {
	tb.Helper()
	s, err := catalog.LookBatches(tb.Context(), store, dataset)
	if err != nil {
		tb.Fatal(err)
	}
	name := catalog.BatchName{DatasetID: dataset, Batch: batch}
	found, err := s.Find(tb.Context(), name)
	if err != nil {
		tb.Fatal(err)
	}
	b := found[name]
	return publish.Ingest{BatchRef: segment.BatchRef{DatasetID: dataset, Batch: batch, Digest: b.Digest}, Start: b.Start}
}

// DropOldPieces deletes the pieces that only earlier states of the registry had: nothing reads
// them.
func DropOldPieces(tb testing.TB, store blob.Store) {
	tb.Helper()
	trace := &blob.Trace{}
	err := catalog.CheckRegistry(blob.WithTrace(tb.Context(), trace), blob.NewCounting(store), func(err error) error { return err })
	if err != nil {
		tb.Fatal(err)
	}
	used := map[string]bool{}
	for _, a := range trace.Accesses() {
		used[a.Key] = true
	}
	for info, err := range store.List(tb.Context(), catalog.RegistryPiecesRoot) {
		if err == nil && !used[info.Key] {
			err = store.Delete(tb.Context(), info.Key)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}
