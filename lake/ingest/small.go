package ingest

import (
	"context"
	"fmt"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/registry"
)

// smallBatch is the stored size of the inputs up to which a batch of one split is small. Such a
// batch takes a worker about a second, or ten if its inputs are compressed to a hundredth, so it
// may be repeated as a whole.
const smallBatch = 32 << 20

// isSmall reports whether IngestSmall is to do a batch.
func isSmall(splits int, bytes int64) bool { return splits == 1 && bytes <= smallBatch }

// SmallResult is the result of IngestSmall, step by step.
type SmallResult struct {
	Split   SplitResult  `json:"split"`
	Merge   MergeResult  `json:"merge"` // of all tasks
	Domains int64        `json:"domains"`
	Finish  FinishResult `json:"finish"`
}

// smallRecord is small.json. It leaves out Finish.Current, which only the registry knows.
type smallRecord struct {
	lake.KeyedHeader
	SmallResult
}

// IngestSmall does all steps from Normalize to Finish for a batch of one split. Results go from
// step to step in memory: for a small batch, staging them takes longer than the steps do. inMemory
// starts the postings of parts that are written while their rows are in memory. collect starts
// those of other parts and may use tempDir. progress is as for Normalize.
func IngestSmall(
	ctx context.Context, store blob.Store, run, tempDir string, inMemory, collect NewPostings,
	progress func(Progress),
) (SmallResult, error) {
	return ingestSmall(ctx, store, run, tempDir, inMemory, collect, progress, defaultLimits)
}

func ingestSmall(
	ctx context.Context, store blob.Store, run, tempDir string, inMemory, collect NewPostings,
	progress func(Progress), lim limits,
) (SmallResult, error) {
	p, err := readPlan(ctx, store, run)
	if err != nil {
		return SmallResult{}, err
	}
	if p.Count != 1 {
		return SmallResult{}, &InputError{Reason: fmt.Sprintf("run %s has %d splits, want 1", run, p.Count)}
	}
	var done smallRecord
	ok, err := load(ctx, store, smallKey(run), &done)
	if err == nil && !ok {
		err = done.ingest(ctx, store, p, tempDir, inMemory, collect, progress, lim)
	}
	if err != nil {
		return SmallResult{}, err
	}
	// The result is stored before it is registered, so that a repetition returns the same.
	done.Finish.Current, err = registry.FinishReplacing(ctx, store, p.DatasetID, p.Batch, run, done.Finish.Digest, p.Spec.Replace)
	return done.SmallResult, err
}

// ingest does everything up to the registration of the finished batch.
func (r *smallRecord) ingest(
	ctx context.Context, store blob.Store, p *plan, tempDir string, inMemory, collect NewPostings,
	progress func(Progress), lim limits,
) error {
	record, err := r.make(ctx, store, p, tempDir, inMemory, collect, progress, lim)
	if err != nil {
		return err
	}
	if r.Finish.Existed, err = hasContent(ctx, store, p, r.Finish.Digest); err != nil {
		return err
	}
	if _, err := store.Put(ctx, r.Finish.BatchKey, record, blob.Condition{}); err != nil {
		return err
	}
	return saveFirst(ctx, store, smallKey(p.Run), r)
}

// make does everything up to the batch record, which it returns.
func (r *smallRecord) make(
	ctx context.Context, store blob.Store, p *plan, tempDir string, inMemory, collect NewPostings,
	progress func(Progress), lim limits,
) (record []byte, err error) {
	split, merged, err := normalizeSplit(ctx, store, p, 0, inMemory, progress, lim)
	if err != nil {
		return nil, err
	}
	splits := []splitRecord{*split}
	inputs, err := join(p.Run, splits)
	if err != nil {
		return nil, err
	}
	m, err := newMergePlan(p, splits, lim)
	if err != nil {
		return nil, err
	}
	if merged == nil {
		merged = make([]mergedRecord, m.Tasks)
		for task := range merged {
			if merged[task], err = mergeShuffled(ctx, store, p, &m, task, tempDir, collect, nil, lim); err != nil {
				return nil, err
			}
		}
	}
	r.Split = split.SplitResult
	postings := make([]lake.FrameObject, len(merged))
	for task := range merged {
		out := merged[task].result()
		r.Merge.Rows += out.Rows
		r.Merge.Merged += out.Merged
		r.Merge.Parts += out.Parts
		r.Merge.Bytes += out.Bytes
		r.Domains += out.Domains
		postings[task] = out.Postings
	}
	r.Finish, record, err = describe(ctx, store, p, &m.MergeSummary, splits, inputs, merged, postings,
		r.Domains, lim.rejects)
	return record, err
}
