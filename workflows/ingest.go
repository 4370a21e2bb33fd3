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

// IngestInput is what a person types to ingest one batch of one dataset.
type IngestInput struct {
	ingest.Spec
	// NoPublish ends with the batch record; a later publish takes it.
	NoPublish bool `json:"no_publish,omitempty"`

	// Resume is where an earlier run of this workflow left off; people leave it out.
	Resume *IngestState `json:"resume,omitempty"`

	// problem is what was wrong with the JSON this was decoded from.
	problem string
}

// IngestState is what one run of an IngestWorkflow hands to the next when its history grows long.
type IngestState struct {
	Run      string             `json:"run"`
	Plan     ingest.PlanSummary `json:"plan"`
	Progress IngestProgress     `json:"progress"`
	// Merge is nil until all splits are normalised.
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

	// StageStarted is when the stage began and Updated when a step of it last ended, both in the workflow's time.
	StageStarted time.Time `json:"stage_started,omitzero"`
	Updated      time.Time `json:"updated,omitzero"`
	// ReadSeconds is how long the normalize stage took, once it is over.
	ReadSeconds float64 `json:"read_seconds,omitempty"`
	// PerSecond counts the records read, or the rows written, a second in the stage up to Updated. SecondsLeft is
	// about how long the ingest will take from then on; 0 is not known.
	PerSecond   int64 `json:"per_second,omitempty"`
	SecondsLeft int64 `json:"seconds_left,omitempty"`
}

// What writing and publishing take, as multiples of the time of reading: for estimates, from the steps in
// docs/performance.md.
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

// Estimate sets Updated, and from it PerSecond and SecondsLeft.
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

// IngestResult is what an ingest ends with.
type IngestResult struct {
	Dataset   string `json:"dataset"`
	DatasetID uint32 `json:"dataset_id"`
	Batch     string `json:"batch"`
	Digest    string `json:"digest"`
	// Objects of Bytes, as stored, were read, with Records in them.
	Objects  int              `json:"objects"`
	Bytes    int64            `json:"bytes"`
	Records  int64            `json:"records"`
	Rows     int64            `json:"rows"`
	Merged   int64            `json:"merged"`
	Rejected map[string]int64 `json:"rejected,omitempty"`
	// RejectsKey is the object that lists the places of the rejects, Examples are the first of them.
	RejectsKey string          `json:"rejects_key,omitempty"`
	Examples   []ingest.Reject `json:"examples,omitempty"`
	// Notes say what was guessed about how the inputs are read, such as which column holds the URL.
	Notes     []string `json:"notes,omitempty"`
	Domains   int64    `json:"domains"`
	PartBytes int64    `json:"part_bytes"`
	// Unchanged: the batch had this very content before. The same objects were written again, which mends damaged ones.
	Unchanged bool `json:"unchanged,omitempty"`
	// Superseded: an ingest of the same batch that was registered later has finished before this one; its
	// content stands.
	Superseded bool `json:"superseded,omitempty"`
	// Version holds the batch; empty when it was not to be published.
	Version string `json:"version,omitempty"`
}

// ProgressQuery is the name of the query that IngestWorkflow and PublishWorkflow answer.
const ProgressQuery = "progress"

// publishedSignal tells a waiting ingest what became of its batch.
const publishedSignal = "published"

// republishInterval is how long an ingest waits for its version before it asks again: the
// publisher it asked may have been terminated with the request.
const republishInterval = 2 * time.Minute

// IngestWorkflow takes raw objects to a finished batch and, unless told otherwise, to a published
// version: plan, normalise and sort splits, merge each group of partitions into Parquet and
// extract its postings, write the batch record, ask for a publish and wait for it.
func IngestWorkflow(ctx workflow.Context, in IngestInput) (*IngestResult, error) {
	// Ingests that were under way before inputs were checked go on with what they understood.
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
		// The original run's id survives a reset, so a reset finds what its first run staged.
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
	return res, nil
}

// run takes the batch to its record.
func (in *IngestInput) run(ctx workflow.Context, st *IngestState) (*IngestResult, error) {
	control := short(ctx, in.Lake, activities.PoolControl)
	p := &st.Progress
	if p.Stage == StagePlan {
		if err := workflow.ExecuteActivity(control, (*activities.Control)(nil).PlanIngest, in.Spec, st.Run).Get(ctx, &st.Plan); err != nil {
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
	}

	if p.Stage == StageNormalize && st.Plan.Small() && workflow.GetVersion(ctx, "small-batch", workflow.DefaultVersion, 1) == 1 {
		return in.small(ctx, st)
	}
	if p.Stage == StageNormalize {
		opts := long(ctx, in.Lake, activities.PoolNormalize)
		next, err := fanOut(opts, p.SplitsDone, p.Splits, func(ctx workflow.Context, i int) error {
			var r ingest.SplitResult
			if err := workflow.ExecuteActivity(ctx, (*activities.Normalize)(nil).NormalizeSplit, in.Lake, st.Run, i).Get(ctx, &r); err != nil {
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
			return nil, in.again(ctx, st)
		}
		st.Merge = new(ingest.MergeSummary)
		if err := workflow.ExecuteActivity(control, (*activities.Control)(nil).PlanMerge, in.Lake, st.Run).Get(ctx, st.Merge); err != nil {
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
			if err := workflow.ExecuteActivity(inherit(ctx, write), (*activities.Write)(nil).MergePartitions, in.Lake, st.Run, i).Get(ctx, &m); err != nil {
				return err
			}
			x := activities.Extracted{Postings: m.Postings, Domains: m.Domains}
			// A merge by an older worker has made none; and a workflow that asked for them nevertheless asks again when it is replayed.
			if x.Postings.Key == "" || workflow.GetVersion(ctx, "merge-postings", workflow.DefaultVersion, 1) == workflow.DefaultVersion {
				if err := workflow.ExecuteActivity(inherit(ctx, index), (*activities.Index)(nil).ExtractPostings, in.Lake, st.Run, i).Get(ctx, &x); err != nil {
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
			return nil, in.again(ctx, st)
		}
		p.enter(ctx, StageRecord)
	}

	var f ingest.FinishResult
	if err := workflow.ExecuteActivity(control, (*activities.Control)(nil).FinishIngest, in.Lake, st.Run, st.Postings, st.Domains).Get(ctx, &f); err != nil {
		return nil, err
	}
	return in.result(st, f), nil
}

// small takes a small batch to its record.
func (in *IngestInput) small(ctx workflow.Context, st *IngestState) (*IngestResult, error) {
	p := &st.Progress
	var r ingest.SmallResult
	opts := long(ctx, in.Lake, activities.PoolNormalize)
	if err := workflow.ExecuteActivity(opts, (*activities.Normalize)(nil).IngestSmall, in.Lake, st.Run).Get(ctx, &r); err != nil {
		return nil, err
	}
	p.addSplit(r.Split)
	p.addMerge(r.Merge)
	p.Tasks, p.TasksDone, st.Domains = 1, 1, r.Domains
	p.enter(ctx, StageRecord)
	return in.result(st, r.Finish), nil
}

// addSplit counts a split that is normalised.
func (p *IngestProgress) addSplit(r ingest.SplitResult) {
	p.SplitsDone++
	p.BytesDone += r.Bytes
	p.Records += r.Records
	p.Kept += r.Kept
	for _, reason := range workflow.DeterministicKeys(r.Rejected) {
		p.Rejected[reason] += r.Rejected[reason]
	}
}

// addMerge counts what a merge wrote.
func (p *IngestProgress) addMerge(m ingest.MergeResult) {
	p.Rows += m.Rows
	p.Merged += m.Merged
	p.PartBytes += m.Bytes
}

func (in *IngestInput) result(st *IngestState, f ingest.FinishResult) *IngestResult {
	p := &st.Progress
	return &IngestResult{
		Dataset: in.Dataset, DatasetID: st.Plan.DatasetID, Batch: st.Plan.Batch, Digest: f.Digest,
		Objects: p.Objects, Bytes: p.BytesTotal,
		Records: p.Records, Rows: p.Rows, Merged: p.Records - p.Rows - sum(p.Rejected), Rejected: p.Rejected, RejectsKey: f.RejectsKey,
		Examples: f.Examples, Notes: f.Notes, Domains: st.Domains, PartBytes: p.PartBytes, Unchanged: f.Existed, Superseded: !f.Current,
	}
}

// cleanUp removes a run's staging, whether the run succeeded, failed or was cancelled. What stays behind
// costs space and nothing else.
func cleanUp(ctx workflow.Context, lakeURL, run string) {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	if err := workflow.ExecuteActivity(short(ctx, lakeURL, activities.PoolControl), (*activities.Control)(nil).CleanUp, lakeURL, run).Get(ctx, nil); err != nil {
		workflow.GetLogger(ctx).Warn("staging was left behind", "run", run, "error", err)
	}
}

// inherit takes the activity options of opts into ctx, which a step may cancel.
func inherit(ctx, opts workflow.Context) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.GetActivityOptions(opts))
}

func (in *IngestInput) again(ctx workflow.Context, st *IngestState) error {
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

// publish asks the lake's publisher to take the batch and waits until it says which version
// holds it.
func (in *IngestInput) publish(ctx workflow.Context, res *IngestResult) (version string, err error) {
	info := workflow.GetInfo(ctx).WorkflowExecution
	req := activities.PublishRequest{WorkflowID: info.ID, RunID: info.RunID, DatasetID: res.DatasetID, Batch: res.Batch}
	done := workflow.GetSignalChannel(ctx, publishedSignal)
	for {
		if err := workflow.ExecuteActivity(short(ctx, in.Lake, activities.PoolControl), (*activities.Control)(nil).RequestPublish, in.Lake, req).Get(ctx, nil); err != nil {
			return "", err
		}
		var p Published
		if ok, _ := done.ReceiveWithTimeout(ctx, republishInterval, &p); ok {
			if p.Error != "" {
				return "", temporal.NewNonRetryableApplicationError(fmt.Sprintf("batch %s is finished but not published: %s", res.Batch, p.Error), activities.ErrPublish, nil)
			}
			return p.Version, nil
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
	}
}
