// Package steps runs the steps of ingests and publishes in one process, in the order in which the
// workflows run them, with a worker's slots and memory limit. It measures each kind of step. The
// programs of bench use it to measure what the steps cost without Temporal.
package steps

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/verify"
	"github.com/urlake/urlake/internal/processors"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/publish"
)

const (
	// Slots is how many steps of a pool run at once: a worker's default on two cores.
	Slots = 2
	// memoryLimit is the worker's default.
	memoryLimit = 1024 << 20
)

// Stage is what all steps of one kind took.
type Stage struct {
	Name  string  `json:"name"`
	Calls int     `json:"calls"`
	Busy  float64 `json:"busy"` // seconds of a slot
	// Read and Written count bytes of the lake's store, Requests its requests. Reads of mapped
	// files are not counted.
	Read     int64 `json:"read"`
	Written  int64 `json:"written"`
	Requests int64 `json:"requests"`
}

// Builder runs steps on one lake.
type Builder struct {
	Store blob.Store
	Temp  string // folder for temporary files

	slots  map[string]chan struct{} // by pool
	memory *semaphore.Weighted      // what steps may use together, as in a worker

	mu     sync.Mutex
	stages map[string]*Stage
}

// New opens a lake in dir. It gives this process a worker's memory limit and processors. Temporary
// files go to the folder spill beside dir.
func New(ctx context.Context, dir string) (*Builder, error) {
	debug.SetMemoryLimit(memoryLimit)
	processors.Use(Slots)
	store, err := blob.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	temp := filepath.Join(filepath.Dir(dir), "spill")
	if err := os.MkdirAll(temp, 0o777); err != nil {
		return nil, err
	}
	b := &Builder{Store: store, Temp: temp, slots: map[string]chan struct{}{}, memory: semaphore.NewWeighted(memoryLimit), stages: map[string]*Stage{}}
	for _, pool := range poolOf {
		b.slots[pool] = make(chan struct{}, Slots)
	}
	return b, nil
}

// order is the order of stages in a table.
var order = []string{
	"plan", "small batch", "normalize", "plan merge", "merge", "extract", "finish", "clean up",
	"plan publish", "build segment", "verify segment", "commit",
}

// poolOf is the worker pool of each stage.
var poolOf = map[string]string{
	"plan": "control", "plan merge": "control", "finish": "control", "clean up": "control", "plan publish": "control",
	"small batch": "normalize", "normalize": "normalize", "merge": "write", "extract": "index",
	"build segment": "index", "verify segment": "publish", "commit": "publish",
}

// memoryOf is what a worker reserves for a step (activities.Memory); other stages need little.
var memoryOf = map[string]int64{
	"small batch": 512 << 20, "normalize": 512 << 20, "merge": 320 << 20, "extract": 128 << 20,
	"build segment": 512 << 20, "verify segment": 512 << 20,
}

// TakeStages returns the stages measured since the last call. No step may be running.
func (b *Builder) TakeStages() (out []Stage) {
	for _, name := range order {
		if s := b.stages[name]; s != nil {
			out = append(out, *s)
		}
	}
	clear(b.stages)
	return out
}

// do waits for a slot of the step's pool and for memory, and runs the step with a store that
// counts.
func (b *Builder) do(ctx context.Context, name string, f func(store blob.Store) error) error {
	pool := b.slots[poolOf[name]]
	select {
	case pool <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-pool }()
	if need := memoryOf[name]; need > 0 {
		if err := b.memory.Acquire(ctx, need); err != nil {
			return err
		}
		defer b.memory.Release(need)
	}
	started := time.Now()
	store := blob.NewCounting(b.Store)
	err := f(store)
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stages[name]
	if s == nil {
		s = &Stage{Name: name}
		b.stages[name] = s
	}
	s.Calls++
	s.Busy += time.Since(started).Seconds()
	reads, writes := store.Reads(), store.Writes()
	s.Read += reads.Bytes
	s.Written += writes.Bytes
	s.Requests += reads.Requests + writes.Requests
	return err
}

// Lists ingests every list ds*.txt of a folder, each as a dataset of its own, and returns the rows
// of all and how many duplicates were merged into them.
func (b *Builder) Lists(ctx context.Context, dir string) (rows, merged int64, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "ds*.txt"))
	if err != nil {
		return 0, 0, err
	}
	// The largest first: otherwise the largest, started last, runs alone at the end.
	sizes := map[string]int64{}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			return 0, 0, err
		}
		sizes[f] = info.Size()
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Compare(sizes[b], sizes[a]) })
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	// A few batches at once keep the slots busy while one of them has a single step left.
	g.SetLimit(2 * Slots)
	for _, f := range files {
		g.Go(func() error {
			done, err := b.Batch(gctx, strings.TrimSuffix(filepath.Base(f), ".txt"), "bench", f)
			if err != nil {
				return fmt.Errorf("%s: %w", filepath.Base(f), err)
			}
			mu.Lock()
			defer mu.Unlock()
			rows += done.Rows
			merged += done.Merged
			return nil
		})
	}
	err = g.Wait()
	return rows, merged, err
}

// Batch ingests one batch in the order of IngestWorkflow.
func (b *Builder) Batch(ctx context.Context, dataset, batch string, inputs ...string) (done ingest.FinishResult, err error) {
	run := "run-" + dataset + "-" + batch
	var plan ingest.PlanSummary
	if err := b.do(ctx, "plan", func(store blob.Store) (err error) {
		plan, err = ingest.MakePlan(ctx, store, run, ingest.Spec{Lake: b.Store.URL(), Dataset: dataset, Batch: batch, Inputs: inputs})
		return err
	}); err != nil {
		return done, err
	}
	cleanUp := func() error {
		return b.do(ctx, "clean up", func(store blob.Store) error { return ingest.Cleanup(ctx, store, run) })
	}
	collect := postings.Collect(b.Temp)
	if plan.Small {
		var small ingest.SmallResult
		if err := b.do(ctx, "small batch", func(store blob.Store) (err error) {
			small, err = ingest.IngestSmall(ctx, store, run, b.Temp, postings.CollectInMemory, collect, nil)
			return err
		}); err != nil {
			return done, err
		}
		return small.Finish, cleanUp()
	}
	g, gctx := errgroup.WithContext(ctx)
	for split := range plan.Splits {
		g.Go(func() error {
			return b.do(gctx, "normalize", func(store blob.Store) error {
				_, err := ingest.Normalize(gctx, store, run, split, nil)
				return err
			})
		})
	}
	if err := g.Wait(); err != nil {
		return done, err
	}
	var merge ingest.MergeSummary
	if err := b.do(ctx, "plan merge", func(store blob.Store) (err error) {
		merge, err = ingest.PlanMerge(ctx, store, run)
		return err
	}); err != nil {
		return done, err
	}
	g, gctx = errgroup.WithContext(ctx)
	for task := range merge.Tasks {
		g.Go(func() error {
			return b.do(gctx, "merge", func(store blob.Store) error {
				_, err := ingest.Merge(gctx, store, run, task, b.Temp, collect, nil)
				return err
			})
		})
	}
	if err := g.Wait(); err != nil {
		return done, err
	}
	if err := b.do(ctx, "finish", func(store blob.Store) (err error) {
		done, err = ingest.Finish(ctx, store, run)
		return err
	}); err != nil {
		return done, err
	}
	return done, cleanUp()
}

// Publish publishes in the order of PublishWorkflow and returns what the verification of the new
// segment counted.
func (b *Builder) Publish(ctx context.Context) (report verify.Report, err error) {
	var plan publish.Summary
	var seg publish.Built
	var done publish.Committed
	for _, step := range []struct {
		name string
		do   func(store blob.Store) error
	}{
		{"plan publish", func(store blob.Store) (err error) {
			plan, err = publish.Plan(ctx, store, "publish", 0)
			return err
		}},
		{"build segment", func(store blob.Store) (err error) {
			seg, err = publish.Build(ctx, store, plan.PlanKey, 0, b.Temp)
			return err
		}},
		{"verify segment", func(store blob.Store) (err error) {
			report, err = verify.Segment(ctx, store, seg.Segments[0], false, b.Temp)
			return err
		}},
		{"commit", func(store blob.Store) (err error) {
			done, err = publish.Commit(ctx, store, plan.PlanKey, seg, "")
			return err
		}},
	} {
		if err := b.do(ctx, step.name, step.do); err != nil {
			return report, err
		}
	}
	if done.Version == "" || done.Existed {
		err = fmt.Errorf("publish made no version: %+v", done)
	}
	return report, err
}
