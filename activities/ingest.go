package activities

import (
	"context"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/lake/ingest"
)

// Normalize is the pool that reads raw objects.
type Normalize struct{ Lake }

// NormalizeSplit reads one split of a plan and writes its rejects, and its rows by partition, to
// staging. For a batch of one split it writes what MergePartitions would write of the rows.
func (n *Normalize) NormalizeSplit(ctx context.Context, lakeURL, run string, split, deaths int) (ingest.SplitResult, error) {
	if err := n.check(lakeURL); err != nil {
		return ingest.SplitResult{}, err
	}
	return withHeartbeat(ctx, n.Memory, normalizeMemory, func(ctx context.Context, report func(any)) (ingest.SplitResult, error) {
		return ingest.Normalize(ctx, n.Store, run, split, postings.CollectInMemory, func(p ingest.Progress) { report(p) })
	})
}

// IngestSmall does for a small batch all steps between PlanIngest and CleanUp. Scheduling them one
// by one would take longer than they do.
func (n *Normalize) IngestSmall(ctx context.Context, lakeURL, run string, deaths int) (ingest.SmallResult, error) {
	if err := n.check(lakeURL); err != nil {
		return ingest.SmallResult{}, err
	}
	return withHeartbeat(ctx, n.Memory, normalizeMemory, func(ctx context.Context, report func(any)) (ingest.SmallResult, error) {
		return ingest.IngestSmall(ctx, n.Store, run, n.TempDir, postings.CollectInMemory, postings.Collect(n.TempDir),
			func(p ingest.Progress) { report(p) })
	})
}

// Write is the pool that writes Parquet.
type Write struct{ Lake }

// MergePartitions sorts the partitions of one task, of all splits, into parts, and writes the
// postings of the parts.
func (w *Write) MergePartitions(ctx context.Context, lakeURL, run string, task, deaths int) (ingest.MergeResult, error) {
	if err := w.check(lakeURL); err != nil {
		return ingest.MergeResult{}, err
	}
	return withHeartbeat(ctx, w.Memory, mergeMemory, func(ctx context.Context, report func(any)) (ingest.MergeResult, error) {
		return ingest.Merge(ctx, w.Store, run, task, w.TempDir, postings.Collect(w.TempDir), func(p ingest.Progress) { report(p) })
	})
}
