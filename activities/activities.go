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

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

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
	// PoolWrite merges runs into Parquet: processor and local disk.
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
}

// check refuses another lake's work. Task queues keep lakes apart already; an input typed by hand can
// still name one lake on another's queue.
func (l *Lake) check(url string) error {
	if url != l.URL {
		return temporal.NewNonRetryableApplicationError(fmt.Sprintf("this worker serves the lake %s, the work is for %s", l.URL, url), ErrLake, nil)
	}
	return nil
}

// typed gives an error that no retry mends its type.
func typed(err error) error {
	var input *ingest.InputError
	var rules *lake.RulesError
	var mixed *publish.RulesError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &input):
		return temporal.NewNonRetryableApplicationError(err.Error(), ErrInput, err)
	case errors.As(err, &rules), errors.As(err, &mixed):
		return temporal.NewNonRetryableApplicationError(err.Error(), ErrLake, err)
	case errors.Is(err, codec.ErrCorrupt):
		return temporal.NewNonRetryableApplicationError(err.Error(), ErrCorrupt, err)
	case errors.Is(err, blob.ErrDenied):
		return temporal.NewNonRetryableApplicationError(err.Error(), ErrStore, err)
	case errors.Is(err, blob.ErrNotExist), errors.Is(err, blob.ErrInvalidKey):
		return temporal.NewNonRetryableApplicationError(err.Error(), ErrInput, err)
	}
	return err
}

// beatInterval keeps well below the workflows' heartbeat timeout.
const beatInterval = 5 * time.Second

// beating runs step and heartbeats, with the last progress that step reported, until it returns. When
// the worker is told to stop, the step is too, and is handed to another worker at once.
func beating[T any](ctx context.Context, step func(report func(any)) (T, error)) (T, error) {
	var mu sync.Mutex
	var last any
	ctx, stop := context.WithCancel(ctx)
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
	out, err := step(func(p any) {
		mu.Lock()
		last = p
		mu.Unlock()
	})
	stop()
	<-ended
	if stopping && err != nil {
		return out, temporal.NewApplicationErrorWithOptions("the worker stops", "WorkerStops", temporal.ApplicationErrorOptions{NextRetryDelay: time.Second, Cause: err})
	}
	return out, typed(err)
}

// Normalize is the pool that reads raw objects.
type Normalize struct{ Lake }

// NormalizeSplit reads one split of a plan and writes its sorted runs and rejects to staging.
func (n *Normalize) NormalizeSplit(ctx context.Context, lakeURL, run string, split int) (ingest.SplitResult, error) {
	if err := n.check(lakeURL); err != nil {
		return ingest.SplitResult{}, err
	}
	return beating(ctx, func(report func(any)) (ingest.SplitResult, error) {
		return ingest.Normalize(ctx, n.Store, run, split, func(p ingest.Progress) { report(p) })
	})
}

// Write is the pool that writes Parquet.
type Write struct{ Lake }

// MergePartitions merges one task's partitions of all runs into parts.
func (w *Write) MergePartitions(ctx context.Context, lakeURL, run string, task int) (ingest.MergeResult, error) {
	if err := w.check(lakeURL); err != nil {
		return ingest.MergeResult{}, err
	}
	return beating(ctx, func(report func(any)) (ingest.MergeResult, error) {
		return ingest.Merge(ctx, w.Store, run, task, w.TempDir, func(p ingest.Progress) { report(p) })
	})
}

// Extracted is the postings object of one merge task.
type Extracted struct {
	Postings lake.FrameObject `json:"postings"`
	Domains  int64            `json:"domains"`
}
