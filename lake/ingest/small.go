package ingest

import (
	"context"
	"fmt"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
)

// smallBatch is the size of the inputs, as stored, up to which a batch of one split is small: what takes a worker a second, or ten where it was compressed to a
// hundredth, and may be done again. It must not shrink: workflows that are under way have gone by it.
const smallBatch = 32 << 20

// Small says that the batch is one for IngestSmall.
func (s PlanSummary) Small() bool { return s.Splits == 1 && s.Bytes <= smallBatch }

// SmallResult is the outcome of one IngestSmall, step by step.
type SmallResult struct {
	Split   SplitResult  `json:"split"`
	Merge   MergeResult  `json:"merge"` // of all tasks
	Domains int64        `json:"domains"`
	Finish  FinishResult `json:"finish"`
}

// smallRecord is small.json. What the registry says of the batch is not in it.
type smallRecord struct {
	header
	SmallResult
}

// IngestSmall does all steps from Normalize to Finish for a batch of one split. They hand on in memory what they would stage: of a small batch, to write
// that down and to read it again takes longer than the steps do. InMemory starts postings for parts that are written where the rows were read, collect for others, whose
// memory is on local disk in tempDir. Progress is Normalize's.
func IngestSmall(ctx context.Context, store blob.Store, run, tempDir string, inMemory, collect NewPostings, progress func(Progress)) (SmallResult, error) {
	return ingestSmall(ctx, store, run, tempDir, inMemory, collect, progress, defaultLimits)
}

func ingestSmall(ctx context.Context, store blob.Store, run, tempDir string, inMemory, collect NewPostings, progress func(Progress), lim limits) (SmallResult, error) {
	p, err := readPlan(ctx, store, run)
	if err != nil {
		return SmallResult{}, err
	}
	if p.Count != 1 {
		return SmallResult{}, &InputError{Reason: fmt.Sprintf("run %s has %d splits, which are not done at once", run, p.Count)}
	}
	var done smallRecord
	ok, err := load(ctx, store, smallKey(run), &done)
	if err == nil && !ok {
		err = done.ingest(ctx, store, p, tempDir, inMemory, collect, progress, lim)
	}
	if err != nil {
		return SmallResult{}, err
	}
	// What is to be registered is settled before, so that whoever does it again says the same.
	done.Finish.Current, err = lake.FinishIngest(ctx, store, p.DatasetID, p.Batch, run, done.Finish.Digest)
	return done.SmallResult, err
}

// ingest does all that comes before the batch is registered as finished.
func (r *smallRecord) ingest(ctx context.Context, store blob.Store, p *plan, tempDir string, inMemory, collect NewPostings, progress func(Progress), lim limits) error {
	split, merged, err := normalizeSplit(ctx, store, p, 0, inMemory, progress, lim)
	if err != nil {
		return err
	}
	splits := []splitRecord{*split}
	inputs, err := join(p.Run, splits)
	if err != nil {
		return err
	}
	m, err := newMergePlan(p, splits, lim)
	if err != nil {
		return err
	}
	if merged == nil {
		merged = make([]mergedRecord, m.Tasks)
		for task := range merged {
			if merged[task], err = mergeShuffled(ctx, store, p, &m, task, tempDir, collect, nil, lim); err != nil {
				return err
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
	var record []byte
	if r.Finish, record, err = describe(ctx, store, p, &m.MergeSummary, splits, inputs, merged, postings, r.Domains); err != nil {
		return err
	}
	if r.Finish.Existed, err = hasContent(ctx, store, p, r.Finish.Digest); err != nil {
		return err
	}
	if _, err := store.Put(ctx, r.Finish.BatchKey, record, blob.Condition{}); err != nil {
		return err
	}
	return settle(ctx, store, smallKey(p.Run), r)
}
