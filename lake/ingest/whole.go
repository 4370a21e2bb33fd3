package ingest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
)

// SmallResult is the result of a batch of one split that is ingested by one step.
type SmallResult struct {
	Split  SplitResult  `json:"split"`
	Merge  MergeResult  `json:"merge"` // of all tasks
	Finish FinishResult `json:"finish"`
}

// smallRecord is small.json, without what finish sets.
type smallRecord struct {
	lake.KeyedHeader
	SmallResult
}

// isSmall reports whether one step is to ingest a batch. It takes a worker some seconds, or a
// minute if its inputs are compressed to a hundredth, so it may be repeated as a whole.
func isSmall(splits int, bytes int64, lim limits) bool { return splits == 1 && bytes <= lim.split }

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
		if done.SmallResult, err = p.whole(ctx, store, tempDir, inMemory, collect, progress, lim); err == nil {
			// The result is stored before it is known, so that a repetition returns the same.
			err = saveFirst(ctx, store, smallKey(run), &done)
		}
	}
	if err != nil {
		return SmallResult{}, err
	}
	return done.SmallResult, p.finish(ctx, store, &done.Finish)
}

// Whole is a batch that one call of IngestWhole takes from its objects to its record. The caller
// has registered the dataset, and leaves the batch to the next publish.
type Whole struct {
	// Folder is the folder below staging in which the list of rejects, and rows that do not fit
	// into memory, are kept between the parts of the work. It begins with the name of a run.
	Folder    string
	Spec      Spec
	DatasetID uint32
	Batch     string
	// Current is the digest of the batch's current record, "" if there is none.
	Current string
	Rules   lake.Rules
	Objects []Object
}

// FitsWhole reports whether IngestWhole can do a batch of these objects: they make one split, or,
// if large batches are allowed, their rows usually fit into memory. Those of compressed objects may
// not.
func FitsWhole(objects []Object, large bool) bool {
	most := defaultLimits.split
	if large {
		most = defaultLimits.whole
	}
	var bytes int64
	for _, o := range objects {
		if bytes += max(o.Bytes, defaultLimits.object); bytes > most {
			return false
		}
	}
	return true
}

// IngestWhole does all steps from MakePlan to Finish for a batch of one split, without a plan or
// results in staging: a repetition begins anew. The arguments are those of IngestSmall. The result
// lacks Current and Effect.
func IngestWhole(
	ctx context.Context, store blob.Store, w *Whole, tempDir string, inMemory, collect NewPostings,
	progress func(Progress),
) (FinishResult, error) {
	p := plan{Run: w.Folder, Spec: w.Spec, DatasetID: w.DatasetID, Batch: w.Batch, Current: w.Current, Rules: w.Rules,
		Objects: len(w.Objects), Count: 1}
	if err := lake.CheckForm(p.Rules); err != nil {
		return FinishResult{}, err
	}
	in := inputs{planning: true}
	plans, err := in.survey(ctx, w.Objects, &w.Spec)
	if err != nil {
		return FinishResult{}, err
	}
	p.Pieces = make([]piece, len(w.Objects))
	for i, o := range w.Objects {
		p.Bytes += o.Bytes
		p.Pieces[i] = piece{object: o, Plan: plans[i]}
	}
	r, err := p.whole(ctx, store, tempDir, inMemory, collect, progress, defaultLimits)
	return r.Finish, err
}

// whole takes a batch of one split from its plan to its record, which it stores.
func (p *plan) whole(
	ctx context.Context, store blob.Store, tempDir string, inMemory, collect NewPostings,
	progress func(Progress), lim limits,
) (r SmallResult, err error) {
	split, merged, err := normalizeSplit(ctx, store, p, 0, inMemory, progress, lim)
	if err != nil {
		return r, err
	}
	splits := []splitRecord{*split}
	m, err := newMergePlan(p, splits, lim)
	if err != nil {
		return r, err
	}
	if merged == nil {
		merged = make([]mergedRecord, m.Tasks)
		for task := range merged {
			if merged[task], err = mergeShuffled(ctx, store, p, &m, task, tempDir, collect, nil, lim); err != nil {
				return r, err
			}
		}
	}
	r.Split = split.SplitResult
	for task := range merged {
		out := merged[task].result()
		r.Merge.Rows += out.Rows
		r.Merge.Merged += out.Merged
		r.Merge.Parts += out.Parts
		r.Merge.Bytes += out.Bytes
	}
	r.Finish, err = record(ctx, store, p, &m.MergeSummary, splits, merged, lim.rejects)
	return r, err
}

// SortObjects sorts objects by name and removes duplicates, as MakePlan does.
func SortObjects(objects []Object) []Object {
	slices.SortFunc(objects, func(a, b Object) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(objects, func(a, b Object) bool { return a.Name == b.Name })
}
