// Package activities is the work that the workflows order: one struct of dependencies for each
// pool of workers, with thin methods that call the lake and the index builder.
//
// Every activity may run twice, be killed at any point, or run at once on two workers: what it
// writes is named by content or replaced by conditional put. It heartbeats, so that it learns of a
// cancellation and its death is noticed.
package activities

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"golang.org/x/sync/semaphore"

	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/publish"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
)

// The pools of workers. Each has a task queue of its own, so that it is scaled on its own.
const (
	// PoolControl plans, records and cleans up: little work, and the workflows themselves.
	PoolControl = "control"
	// PoolNormalize reads raw objects and writes sorted runs: processor and network.
	PoolNormalize = "normalize"
	// PoolWrite sorts rows into Parquet: processor, memory and local disk.
	PoolWrite = "write"
	// PoolIndex extracts postings and builds segments: memory and local disk.
	PoolIndex = "index"
	// PoolPublish verifies segments and commits versions.
	PoolPublish = "publish"
)

// Pools lists all pools in the order in which a batch passes them.
var Pools = []string{PoolControl, PoolNormalize, PoolWrite, PoolIndex, PoolPublish}

// TaskQueue is the queue of one pool of one lake. The lake stands in its name, so that a worker
// never takes another lake's work.
func TaskQueue(lake, pool string) string { return pool + "@" + lake }

// Types of errors that no retry mends.
const (
	// ErrInput: the raw data or the request is at fault; the message names object, place and reason.
	ErrInput = "InputError"
	// ErrCorrupt: an object of the lake is not what was written.
	ErrCorrupt = "CorruptError"
	// ErrLake: work of another lake, or of a lake whose rules this build does not follow.
	ErrLake = "LakeError"
	// ErrStore: the store refuses: credentials, permissions, no such bucket.
	ErrStore = "StoreError"
	// ErrPublish: the publisher gave up on a batch.
	ErrPublish = "PublishError"
)

// FinalErrors are the types that retry policies name as not retryable.
var FinalErrors = []string{ErrInput, ErrCorrupt, ErrLake, ErrStore, ErrPublish}

// Lake is the one lake that a worker works on.
type Lake struct {
	Store blob.Store
	// URL is the lake as it stands in the names of task queues.
	URL string
	// TempDir holds spill files and parts on their way to the store.
	TempDir string
	// Memory is shared by all pools of a process.
	Memory *Memory
}

// What a step takes at most in the common case, in bytes. Small inputs take less.
const (
	// normalizeMemory: an arena for rows of 5/16 of ingest.WorkerMemory, the memo of origins and what is known of their hosts, then reading and compressing. Parquet of very
	// large pages can take as much again.
	normalizeMemory = ingest.WorkerMemory*5/16 + 192<<20
	// mergeMemory: an arena for rows (192 MiB), or the ends of all runs; what is read ahead, a row group compressed, a page.
	mergeMemory = 320 << 20
	// extractMemory: a sort of 64 MiB and a page of each column.
	extractMemory = 128 << 20
	// segmentMemory: a sort of 128 MiB, and some 380 MiB of buffers, sources that are merged and the perfect hash (indexbuild.Options).
	segmentMemory = 512 << 20
	// planMemory: decompressors of several objects, one of which may need much memory (zstd
	// --long).
	planMemory = ingest.PlanMemory
	// little: some small objects.
	little = 0
)

// poolMemory is the largest step of each pool that has large ones. In control only PlanIngest is
// large, and slots for its other steps do not depend on that.
var poolMemory = map[string]int64{PoolNormalize: normalizeMemory, PoolWrite: mergeMemory, PoolIndex: segmentMemory, PoolPublish: segmentMemory}

// Memory lets as many steps of a process run at once as fit into it. The others wait, heartbeating. What
// steps write does not depend on it. Nil is without bound.
type Memory struct {
	total int64
	free  *semaphore.Weighted
}

// NewMemory returns a memory of so many bytes.
func NewMemory(bytes int64) *Memory {
	return &Memory{total: bytes, free: semaphore.NewWeighted(bytes)}
}

// Slots is how many steps of a pool fit at once, n at most and 1 at least: a step larger than all of it runs alone.
func (m *Memory) Slots(pool string, n int) int {
	if m == nil || poolMemory[pool] == 0 {
		return n
	}
	return int(max(1, min(int64(n), m.total/poolMemory[pool])))
}

// take waits until a step that needs so many bytes fits.
func (m *Memory) take(ctx context.Context, need int64) (release func(), err error) {
	if m == nil || need == 0 {
		return func() {}, nil
	}
	need = min(need, m.total)
	if err := m.free.Acquire(ctx, need); err != nil {
		return nil, err
	}
	return func() { m.free.Release(need) }, nil
}

// check refuses another lake's work. Task queues keep lakes apart already; an input typed by hand can
// still name one lake on another's queue.
func (l *Lake) check(url string) error {
	if url != l.URL {
		return temporal.NewNonRetryableApplicationError(fmt.Sprintf("this worker serves the lake %s, the work is for %s", l.URL, url), ErrLake, nil)
	}
	return nil
}

// typed gives an error that no retry mends its type. The error is no cause of the new one, which would say everything twice.
func typed(err error) error {
	var input *ingest.InputError
	var rules *lake.RulesError
	var mixed *publish.RulesError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &input):
		return temporal.NewNonRetryableApplicationError(err.Error(), ErrInput, nil)
	case errors.As(err, &rules), errors.As(err, &mixed):
		return temporal.NewNonRetryableApplicationError(err.Error(), ErrLake, nil)
	case errors.Is(err, codec.ErrCorrupt), errors.Is(err, blob.ErrRange): // an object is shorter than it was
		return temporal.NewNonRetryableApplicationError(err.Error(), ErrCorrupt, nil)
	case errors.Is(err, blob.ErrDenied):
		return temporal.NewNonRetryableApplicationError(err.Error(), ErrStore, nil)
	case errors.Is(err, blob.ErrNotExist), errors.Is(err, blob.ErrInvalidKey):
		return temporal.NewNonRetryableApplicationError(err.Error(), ErrInput, nil)
	}
	return err
}

// beatInterval keeps well below the workflows' heartbeat timeout, and is how old a watched step's progress is at most.
const beatInterval = 2 * time.Second

// beating runs step as soon as there is memory for it, and heartbeats, with the last progress that step reported, until it
// returns. When the worker is told to stop, the step is too, and is handed to another worker at once.
func beating[T any](ctx context.Context, m *Memory, need int64, step func(ctx context.Context, report func(any)) (T, error)) (T, error) {
	var mu sync.Mutex
	var last any
	given := ctx
	ctx, stop := context.WithCancel(given)
	ended := make(chan struct{})
	stopping := false
	go func() {
		defer close(ended)
		tick := time.NewTicker(beatInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-activity.GetWorkerStopChannel(ctx):
				stopping = true
				stop()
				return
			case <-tick.C:
				mu.Lock()
				p := last
				mu.Unlock()
				activity.RecordHeartbeat(ctx, p)
			}
		}
	}()
	defer stop() // also where the step panics, which the SDK makes a failed attempt of
	out, err := func() (out T, err error) {
		release, err := m.take(ctx, need)
		if err != nil {
			return out, err
		}
		defer release()
		return step(ctx, func(p any) {
			mu.Lock()
			last = p
			mu.Unlock()
		})
	}()
	stop()
	<-ended
	switch {
	case err == nil:
		return out, nil
	case stopping, errors.Is(context.Cause(given), worker.ErrWorkerShutdown):
		return out, againSoon("the worker stops", "WorkerStops")
	case given.Err() != nil && errors.Is(err, given.Err()):
		return out, interrupted(given)
	}
	return out, typed(err)
}

// interrupted is the error of a step that ended because its context did. What it was at is of no interest.
func interrupted(ctx context.Context) error {
	cause := context.Cause(ctx)
	var gone *serviceerror.NotFound
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return ctx.Err() // Temporal has ended the step already
	case temporal.IsCanceledError(cause):
		return temporal.NewCanceledError()
	case errors.Is(cause, activity.ErrActivityPaused):
		return againSoon("the step is paused", "Paused")
	case errors.Is(cause, activity.ErrActivityReset):
		return againSoon("the step begins anew", "Reset")
	case errors.As(cause, &gone):
		return againSoon("Temporal no longer waits for this step", "Gone")
	}
	// A heartbeat failed for as long as the SDK retries one.
	return againSoon("lost touch with Temporal", "LostTouch")
}

// againSoon is an error that is no fault of the step: it is tried again in a second.
func againSoon(message, kind string) error {
	return temporal.NewApplicationErrorWithOptions(message, kind, temporal.ApplicationErrorOptions{
		NextRetryDelay: time.Second,
		Category:       temporal.ApplicationErrorCategoryBenign, // the SDK does not log it as an error
	})
}

// Normalize is the pool that reads raw objects.
type Normalize struct{ Lake }

// NormalizeSplit reads one split of a plan and writes its rows, by partition, and rejects to staging, or what MergePartitions would of them.
func (n *Normalize) NormalizeSplit(ctx context.Context, lakeURL, run string, split int) (ingest.SplitResult, error) {
	if err := n.check(lakeURL); err != nil {
		return ingest.SplitResult{}, err
	}
	return beating(ctx, n.Memory, normalizeMemory, func(ctx context.Context, report func(any)) (ingest.SplitResult, error) {
		return ingest.Normalize(ctx, n.Store, run, split, indexbuild.CollectInMemory, func(p ingest.Progress) { report(p) })
	})
}

// IngestSmall does all steps between plan and cleaning up for a small batch: ordering them one by one takes longer than they do.
func (n *Normalize) IngestSmall(ctx context.Context, lakeURL, run string) (ingest.SmallResult, error) {
	if err := n.check(lakeURL); err != nil {
		return ingest.SmallResult{}, err
	}
	return beating(ctx, n.Memory, normalizeMemory, func(ctx context.Context, report func(any)) (ingest.SmallResult, error) {
		return ingest.IngestSmall(ctx, n.Store, run, n.TempDir, indexbuild.CollectInMemory, indexbuild.Collect(n.TempDir), func(p ingest.Progress) { report(p) })
	})
}

// Write is the pool that writes Parquet.
type Write struct{ Lake }

// MergePartitions sorts one task's partitions of all splits into parts, and writes the postings of these.
func (w *Write) MergePartitions(ctx context.Context, lakeURL, run string, task int) (ingest.MergeResult, error) {
	if err := w.check(lakeURL); err != nil {
		return ingest.MergeResult{}, err
	}
	return beating(ctx, w.Memory, mergeMemory, func(ctx context.Context, report func(any)) (ingest.MergeResult, error) {
		return ingest.Merge(ctx, w.Store, run, task, w.TempDir, indexbuild.Collect(w.TempDir), func(p ingest.Progress) { report(p) })
	})
}

// Extracted is the postings object of one merge task.
type Extracted struct {
	Postings lake.FrameObject `json:"postings"`
	Domains  int64            `json:"domains"`
}
