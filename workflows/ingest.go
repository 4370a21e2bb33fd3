package workflows

import (
	"fmt"
	"math"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/ingest"
)

// IngestInput describes the ingest of one batch of one dataset. People type it as JSON.
type IngestInput struct {
	ingest.Spec
	// NoPublish ends the workflow with the batch record. A later publish includes the batch.
	NoPublish bool `json:"no_publish,omitempty"`

	// Resume is the state with which an earlier run continued as new. People leave it out.
	Resume *IngestState `json:"resume,omitempty"`

	// problem says what is wrong with the JSON that this was decoded from; see UnmarshalJSON.
	problem string
}

// IngestState is what a run of IngestWorkflow passes to the next when its history grows long.
type IngestState struct {
	Run      string             `json:"run"`
	Plan     ingest.PlanSummary `json:"plan"`
	Progress IngestProgress     `json:"progress"`
	// Merge is nil until all splits are normalized.
	Merge    *ingest.MergeSummary `json:"merge,omitempty"`
	Postings []lake.FrameObject   `json:"postings,omitempty"`
	Domains  int64                `json:"domains,omitempty"`
}

// Stages of an ingest, in order.
const (
	StagePlan      = "plan"
	StageNormalize = "normalize"
	StageWrite     = "write"
	StageRecord    = "record"
	StagePublish   = "publish"
	StageDone      = "done"
)

// IngestProgress answers the "progress" query.
type IngestProgress struct {
	Stage      string           `json:"stage"`
	DatasetID  uint32           `json:"dataset_id,omitempty"`
	Batch      string           `json:"batch,omitempty"`
	Objects    int              `json:"objects"`
	BytesTotal int64            `json:"bytes_total"`
	Splits     int              `json:"splits"`
	SplitsDone int              `json:"splits_done"`
	BytesDone  int64            `json:"bytes_done"`
	Records    int64            `json:"records"`
	Kept       int64            `json:"kept"`
	Rejected   map[string]int64 `json:"rejected,omitempty"`
	Tasks      int              `json:"tasks"`
	TasksDone  int              `json:"tasks_done"`
	Rows       int64            `json:"rows"`
	Merged     int64            `json:"merged"`
	PartBytes  int64            `json:"part_bytes"`

	// StageStarted is when the stage began, and Updated when a step of it last ended. Both are in
	// workflow time.
	StageStarted time.Time `json:"stage_started,omitzero"`
	Updated      time.Time `json:"updated,omitzero"`
	// ReadSeconds is how long the normalize stage took. It is set when the stage is over.
	ReadSeconds float64 `json:"read_seconds,omitempty"`
	// PerSecond is how many records the stage read, or rows it wrote, per second up to Updated.
	// SecondsLeft estimates how long the ingest takes from Updated on; 0 means unknown.
	PerSecond   int64 `json:"per_second,omitempty"`
	SecondsLeft int64 `json:"seconds_left,omitempty"`
}

// For estimates: the time of writing and of publishing as multiples of the time of reading. They
// follow from the steps in docs/performance.md.
const (
	WriteShare   = 0.75
	PublishShare = 0.35
)

// enter begins a stage.
func (p *IngestProgress) enter(ctx workflow.Context, stage string) {
	now := workflow.Now(ctx)
	if p.Stage == StageNormalize && !p.StageStarted.IsZero() {
		p.ReadSeconds = now.Sub(p.StageStarted).Seconds()
	}
	p.Stage, p.StageStarted, p.Updated, p.PerSecond, p.SecondsLeft = stage, now, now, 0, 0
}

// Estimate sets Updated to now, and PerSecond and SecondsLeft from what was done until now.
func (p *IngestProgress) Estimate(now time.Time) {
	p.Updated, p.PerSecond, p.SecondsLeft = now, 0, 0
	elapsed := now.Sub(p.StageStarted).Seconds()
	if p.StageStarted.IsZero() || elapsed <= 0 {
		return
	}
	var done, left float64
	switch p.Stage {
	case StageNormalize:
		p.PerSecond = int64(float64(p.Records) / elapsed)
		if p.BytesTotal > 0 {
			done = min(1, float64(p.BytesDone)/float64(p.BytesTotal))
		}
		left = (WriteShare + PublishShare) * elapsed / done
	case StageWrite:
		p.PerSecond = int64(float64(p.Rows) / elapsed)
		if p.Kept > 0 {
			done = min(1, float64(p.Rows+p.Merged)/float64(p.Kept))
		}
		left = PublishShare * p.ReadSeconds
	}
	if done > 0 {
		p.SecondsLeft = int64(math.Ceil(elapsed*(1-done)/done + left))
	}
}

// IngestResult is the result of an ingest.
type IngestResult struct {
	Dataset   string `json:"dataset"`
	DatasetID uint32 `json:"dataset_id"`
	Batch     string `json:"batch"`
	Digest    string `json:"digest"`
	// Objects is the number of objects that were read, Bytes their size as stored, and Records the
	// number of records in them.
	Objects  int              `json:"objects"`
	Bytes    int64            `json:"bytes"`
	Records  int64            `json:"records"`
	Rows     int64            `json:"rows"`
	Merged   int64            `json:"merged"`
	Rejected map[string]int64 `json:"rejected,omitempty"`
	// RejectsKey is the key of the object that lists the rejects, ListedRejects how many of them
	// it has: the first ones, 0 if all. Examples are some of them.
	RejectsKey    string          `json:"rejects_key,omitempty"`
	ListedRejects int64           `json:"listed_rejects,omitempty"`
	Examples      []ingest.Reject `json:"examples,omitempty"`
	// Notes say what was detected in the inputs, for example which column holds the URL.
	Notes     []string `json:"notes,omitempty"`
	Domains   int64    `json:"domains"`
	PartBytes int64    `json:"part_bytes"`
	// Unchanged means that the batch had the same content before. Its objects were written again,
	// which repairs damaged ones.
	Unchanged bool `json:"unchanged,omitempty"`
	// Superseded means that an ingest of the same batch that was registered later finished first.
	// The batch keeps that ingest's content.
	Superseded bool `json:"superseded,omitempty"`
	// Version is the version that holds the batch. It is empty with NoPublish.
	Version string `json:"version,omitempty"`
}

// ProgressQuery is the name of the query that IngestWorkflow and PublishWorkflow answer.
const ProgressQuery = "progress"

// publishedSignal carries a Published to a waiting ingest.
const publishedSignal = "published"

// republishInterval is how long an ingest waits for its version before it repeats its request. The
// publisher that has the request may have been terminated.
const republishInterval = 2 * time.Minute

// IngestWorkflow takes raw objects to a finished batch and, without NoPublish, to a published
// version. It plans, normalizes the splits, merges each group of partitions into Parquet and
// postings, writes the batch record, requests a publish and waits for it.
func IngestWorkflow(ctx workflow.Context, in IngestInput) (*IngestResult, error) {
	// Ingests that started before inputs were checked continue with the members that were decoded.
	if in.problem != "" && workflow.GetVersion(ctx, "check-input", workflow.DefaultVersion, 1) == 1 {
		return nil, temporal.NewNonRetryableApplicationError("the input of the ingest: "+in.problem, activities.ErrInput, nil)
	}
	if in.Lake == "" || in.Dataset == "" || len(in.Inputs) == 0 {
		return nil, temporal.NewNonRetryableApplicationError("an ingest needs lake, dataset and inputs", activities.ErrInput, nil)
	}
	if err := checkQueue(ctx, in.Lake); err != nil {
		return nil, err
	}
	st := in.Resume
	if st == nil {
		// The id of the original run survives a reset, so that a reset workflow finds its staging.
		st = &IngestState{Run: workflow.GetInfo(ctx).OriginalRunID}
		st.Progress.enter(ctx, StagePlan)
	}
	p := &st.Progress
	if err := workflow.SetQueryHandler(ctx, ProgressQuery, func() (IngestProgress, error) { return *p, nil }); err != nil {
		return nil, err
	}

	res, err := in.run(ctx, st)
	if workflow.IsContinueAsNewError(err) {
		return nil, err
	}
	cleanUp(ctx, in.Lake, st.Run)
	if err != nil {
		return nil, err
	}
	if in.NoPublish {
		p.enter(ctx, StageDone)
		return res, nil
	}
	p.enter(ctx, StagePublish)
	res.Version, err = in.publish(ctx, res)
	if err != nil {
		return nil, err
	}
	p.enter(ctx, StageDone)
	return res, setAttributes(ctx, st.Plan.Searchable, activities.AttributeVersion, res.Version)
}

// run takes the batch to its record, step by step. With a long history it returns an error that
// continues the workflow as new.
func (in *IngestInput) run(ctx workflow.Context, st *IngestState) (*IngestResult, error) {
	control := short(ctx, in.Lake, activities.PoolControl)
	p := &st.Progress
	if p.Stage == StagePlan {
		if err := execute(control, &st.Plan, (*activities.Control)(nil).PlanIngest, in.Spec, st.Run); err != nil {
			return nil, err
		}
		p.enter(ctx, StageNormalize)
		p.DatasetID, p.Batch = st.Plan.DatasetID, st.Plan.Batch
		p.Splits, p.Objects, p.BytesTotal = st.Plan.Splits, st.Plan.Objects, st.Plan.Bytes
		p.Rejected = map[string]int64{}
		memo := map[string]any{"dataset": in.Dataset, "dataset_id": st.Plan.DatasetID, "batch": st.Plan.Batch, "lake": in.Lake}
		if err := workflow.UpsertMemo(ctx, memo); err != nil {
			return nil, err
		}
		if err := in.planned(ctx, st); err != nil {
			return nil, err
		}
	}

	if p.Stage == StageNormalize && st.Plan.Small() && workflow.GetVersion(ctx, "small-batch", workflow.DefaultVersion, 1) == 1 {
		return in.small(ctx, st)
	}
	if p.Stage == StageNormalize {
		opts := long(ctx, in.Lake, activities.PoolNormalize)
		next, err := fanOut(opts, p.SplitsDone, p.Splits, func(ctx workflow.Context, i int) error {
			var r ingest.SplitResult
			if err := execute(ctx, &r, (*activities.Normalize)(nil).NormalizeSplit, in.Lake, st.Run, i); err != nil {
				return err
			}
			p.addSplit(r)
			p.Estimate(workflow.Now(ctx))
			return nil
		})
		if err != nil {
			return nil, err
		}
		if next < p.Splits {
			return nil, in.continueAsNew(ctx, st)
		}
		st.Merge = new(ingest.MergeSummary)
		if err := workflow.ExecuteActivity(
			control, (*activities.Control)(nil).PlanMerge, in.Lake, st.Run,
		).Get(ctx, st.Merge); err != nil {
			return nil, err
		}
		p.enter(ctx, StageWrite)
		p.Tasks = st.Merge.Tasks
		st.Postings = make([]lake.FrameObject, p.Tasks)
	}

	if p.Stage == StageWrite {
		write, index := long(ctx, in.Lake, activities.PoolWrite), long(ctx, in.Lake, activities.PoolIndex)
		next, err := fanOut(ctx, p.TasksDone, p.Tasks, func(ctx workflow.Context, i int) error {
			var m ingest.MergeResult
			if err := execute(inherit(ctx, write), &m, (*activities.Write)(nil).MergePartitions, in.Lake, st.Run, i); err != nil {
				return err
			}
			x := activities.Extracted{Postings: m.Postings, Domains: m.Domains}
			// Merges by older workers write no postings. Older workflows extracted postings after
			// every merge, and have to do so when they are replayed.
			if x.Postings.Key == "" || workflow.GetVersion(ctx, "merge-postings", workflow.DefaultVersion, 1) == workflow.DefaultVersion {
				if err := execute(inherit(ctx, index), &x, (*activities.Index)(nil).ExtractPostings, in.Lake, st.Run, i); err != nil {
					return err
				}
			}
			st.Postings[i] = x.Postings
			st.Domains += x.Domains
			p.TasksDone++
			p.addMerge(m)
			p.Estimate(workflow.Now(ctx))
			return nil
		})
		if err != nil {
			return nil, err
		}
		if next < p.Tasks {
			return nil, in.continueAsNew(ctx, st)
		}
		p.enter(ctx, StageRecord)
	}

	var f ingest.FinishResult
	if err := workflow.ExecuteActivity(
		control, (*activities.Control)(nil).FinishIngest, in.Lake, st.Run, st.Postings, st.Domains,
	).Get(ctx, &f); err != nil {
		return nil, err
	}
	return in.result(st, f), nil
}

// small takes a small batch to its record in one activity.
func (in *IngestInput) small(ctx workflow.Context, st *IngestState) (*IngestResult, error) {
	p := &st.Progress
	var r ingest.SmallResult
	opts := long(ctx, in.Lake, activities.PoolNormalize)
	if err := execute(opts, &r, (*activities.Normalize)(nil).IngestSmall, in.Lake, st.Run); err != nil {
		return nil, err
	}
	p.addSplit(r.Split)
	p.addMerge(r.Merge)
	p.Tasks, p.TasksDone, st.Domains = 1, 1, r.Domains
	p.enter(ctx, StageRecord)
	return in.result(st, r.Finish), nil
}

// addSplit adds the result of a normalized split.
func (p *IngestProgress) addSplit(r ingest.SplitResult) {
	p.SplitsDone++
	p.BytesDone += r.Bytes
	p.Records += r.Records
	p.Kept += r.Kept
	for _, reason := range workflow.DeterministicKeys(r.Rejected) {
		p.Rejected[reason] += r.Rejected[reason]
	}
}

// addMerge adds the result of a merge task.
func (p *IngestProgress) addMerge(m ingest.MergeResult) {
	p.Rows += m.Rows
	p.Merged += m.Merged
	p.PartBytes += m.Bytes
}

// result returns the result of a finished batch, without the version.
func (in *IngestInput) result(st *IngestState, f ingest.FinishResult) *IngestResult {
	p := &st.Progress
	return &IngestResult{
		Dataset: in.Dataset, DatasetID: st.Plan.DatasetID, Batch: st.Plan.Batch, Digest: f.Digest,
		Objects: p.Objects, Bytes: p.BytesTotal,
		Records: p.Records, Rows: p.Rows, Merged: p.Records - p.Rows - sum(p.Rejected),
		Rejected: p.Rejected, RejectsKey: f.RejectsKey, ListedRejects: f.Listed,
		Examples: f.Examples, Notes: f.Notes, Domains: st.Domains, PartBytes: p.PartBytes, Unchanged: f.Existed, Superseded: !f.Current,
	}
}

// cleanUp removes the staging of a run that succeeded, failed or was cancelled. If that fails, the
// staging only wastes space, so cleanUp logs the error.
func cleanUp(ctx workflow.Context, lakeURL, run string) {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	if err := workflow.ExecuteActivity(
		short(ctx, lakeURL, activities.PoolControl), (*activities.Control)(nil).CleanUp, lakeURL, run,
	).Get(ctx, nil); err != nil {
		workflow.GetLogger(ctx).Warn("staging was not removed", "run", run, "error", err)
	}
}

// inherit returns ctx, with its cancellation, and the activity options of opts.
func inherit(ctx, opts workflow.Context) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.GetActivityOptions(opts))
}

// continueAsNew returns the error that continues the workflow with an empty history.
func (in *IngestInput) continueAsNew(ctx workflow.Context, st *IngestState) error {
	next := *in
	next.Resume = st
	return workflow.NewContinueAsNewError(ctx, IngestWorkflow, next)
}

func sum(counts map[string]int64) int64 {
	var n int64
	for _, k := range workflow.DeterministicKeys(counts) {
		n += counts[k]
	}
	return n
}

// publish requests a publish from the lake's publisher and waits until the publisher answers with
// the version that holds the batch. It repeats the request every republishInterval.
func (in *IngestInput) publish(ctx workflow.Context, res *IngestResult) (version string, err error) {
	info := workflow.GetInfo(ctx).WorkflowExecution
	req := activities.PublishRequest{WorkflowID: info.ID, RunID: info.RunID, DatasetID: res.DatasetID, Batch: res.Batch}
	done := workflow.GetSignalChannel(ctx, publishedSignal)
	for {
		if err := workflow.ExecuteActivity(
			short(ctx, in.Lake, activities.PoolControl), (*activities.Control)(nil).RequestPublish, in.Lake, req,
		).Get(ctx, nil); err != nil {
			return "", err
		}
		var p Published
		if ok, _ := done.ReceiveWithTimeout(ctx, republishInterval, &p); ok {
			if p.Error != "" {
				return "", temporal.NewNonRetryableApplicationError(
					fmt.Sprintf("batch %s is finished but not published: %s", res.Batch, p.Error), activities.ErrPublish, nil)
			}
			return p.Version, nil
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
	}
}
