package activities

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
)

// Normalize is the pool that reads raw objects.
type Normalize struct {
	Lake
	// Temporal is the client with which IngestSmall asks for a publish.
	Temporal client.Client
}

// NormalizeSplit reads one split of a plan and writes its rejects, and its rows by partition, to
// staging.
func (n *Normalize) NormalizeSplit(ctx context.Context, lakeURL, run string, split, deaths int) (ingest.SplitResult, error) {
	if err := n.check(lakeURL); err != nil {
		return ingest.SplitResult{}, err
	}
	s := step{run: run, name: fmt.Sprintf("normalize-%06d", split), deaths: deaths}
	return withPages(ctx, &n.Lake, s, func(ctx context.Context, store blob.Store, report func(any)) (ingest.SplitResult, error) {
		return ingest.Normalize(ctx, store, run, split, func(p ingest.Progress) { report(p) })
	})
}

// FinishedSmall is the result of IngestSmall.
type FinishedSmall struct {
	ingest.SmallResult
	// Asked tells that the publisher has the request.
	Asked bool `json:"asked,omitempty"`
}

// IngestSmall does for a small batch all steps between PlanIngest and CleanUp. Scheduling them one
// by one would take longer than they do. Then it asks for a publish, unless ask is nil.
func (n *Normalize) IngestSmall(
	ctx context.Context, lakeURL, run string, ask *PublishRequest, deaths int,
) (FinishedSmall, error) {
	if err := n.check(lakeURL); err != nil {
		return FinishedSmall{}, err
	}
	s := step{run: run, name: "small", deaths: deaths}
	r, err := withPages(ctx, &n.Lake, s, func(ctx context.Context, store blob.Store, report func(any)) (ingest.SmallResult, error) {
		return ingest.IngestSmall(ctx, store, run, n.TempDir, postings.CollectInMemory, postings.Collect(n.TempDir),
			func(p ingest.Progress) { report(p) })
	})
	if err != nil {
		return FinishedSmall{}, err
	}
	return withHeartbeat(ctx, n.Memory, smallMemory, func(ctx context.Context, _ func(any)) (FinishedSmall, error) {
		asked := ask != nil && askFor(ctx, n.Temporal, lakeURL, *ask, r.Finish)
		return FinishedSmall{r, asked}, ctx.Err()
	})
}

// withPages runs a step that reads raw objects. If pages of Parquet need more memory than usual, it
// waits until that much is free and runs the step once more.
func withPages[T any](
	ctx context.Context, l *Lake, s step, do func(ctx context.Context, store blob.Store, report func(any)) (T, error),
) (T, error) {
	out, err := contained(ctx, l, s, normalizeMemory, func(ctx context.Context, store blob.Store, report func(any)) (T, error) {
		return do(ingest.WithPageMemory(ctx, usualPages), store, report)
	})
	if errors.Is(err, ingest.ErrPageMemory) {
		return contained(ctx, l, s, pageMemory, do)
	}
	return out, err
}

// Write is the pool that writes Parquet.
type Write struct{ Lake }

// MergePartitions sorts the partitions of one task, of all splits, into parts, and writes the
// postings of the parts.
func (w *Write) MergePartitions(ctx context.Context, lakeURL, run string, task, deaths int) (ingest.MergeResult, error) {
	if err := w.check(lakeURL); err != nil {
		return ingest.MergeResult{}, err
	}
	s := step{run: run, name: fmt.Sprintf("merge-%06d", task), deaths: deaths, ofLake: true}
	return contained(ctx, &w.Lake, s, mergeMemory, func(ctx context.Context, store blob.Store, report func(any)) (ingest.MergeResult, error) {
		return ingest.Merge(ctx, store, run, task, w.TempDir, postings.Collect(w.TempDir), func(p ingest.Progress) { report(p) })
	})
}
