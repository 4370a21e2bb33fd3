package workflows

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/ingest/many"
)

// IngestInput describes the ingest of one batch of one dataset. People type it as JSON.
type IngestInput struct {
	ingest.Spec
	// NoPublish ends the workflow with the batch record. A later publish includes the batch.
	NoPublish bool `json:"no_publish,omitempty"`

	// Resume is the state with which an earlier run continued as new, and List names the list
	// of the parent workflow, with the dataset and the inputs. People leave both out.
	Resume *IngestState `json:"resume,omitempty"`
	List   *many.Ref    `json:"list,omitempty"`

	// problem says what is wrong with the JSON that this was decoded from; see UnmarshalJSON.
	problem string
}

// IngestState is what a run of IngestWorkflow passes to the next when its history grows long.
type IngestState struct {
	Run      string             `json:"run"`
	Plan     ingest.PlanSummary `json:"plan"`
	Progress IngestProgress     `json:"progress"`
	// Merge is nil until all splits are normalized.
	Merge *ingest.MergeSummary `json:"merge,omitempty"`
	// Result is that of the finished batch. It is nil until the batch is finished.
	Result *IngestResult `json:"result,omitempty"`
	// Until is the ingest's deadline.
	Until time.Time `json:"until,omitzero"`
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
	// Deadline is when the ingest gives up.
	Deadline time.Time `json:"deadline,omitzero"`
	// Waiting says what went wrong with the publish that the ingest waits for. Temporal knows why
	// other steps are retried.
	Waiting string `json:"waiting,omitempty"`
}

// For estimates: the time of writing and of publishing as multiples of the time of reading, as the
// table of steps of bench/compare has them.
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
	// Run is the run whose staging the ingest used, and Digest the digest of the batch record.
	Run    string `json:"run,omitempty"`
	Digest string `json:"digest"`
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
	// WorstFiles are the files, or members of archives, with the most rejects.
	WorstFiles []ingest.FileRejects `json:"worst_files,omitempty"`
	// Groups say how the objects were read, by format and columns: the first of GroupCount.
	Groups     []ingest.Group `json:"groups,omitempty"`
	GroupCount int            `json:"group_count,omitempty"`
	// Unread are the first of UnreadCount files and members that skip_unreadable left out, as a
	// whole or from some position on. The batch record names more.
	Unread      []lake.Unread `json:"unread,omitempty"`
	UnreadCount int64         `json:"unread_count,omitempty"`
	// Unwrapped is how many records were URLs of archives' copies, whose page's URL was taken.
	Unwrapped int64 `json:"unwrapped,omitempty"`
	// BadTS counts the rows whose time could not be read. A note has an example.
	BadTS int64 `json:"bad_ts,omitempty"`
	// Notes say what was detected in the inputs, for example which column holds the URL. A note
	// names the first object that it is about.
	Notes     []string `json:"notes,omitempty"`
	Domains   int64    `json:"domains"`
	PartBytes int64    `json:"part_bytes"`
	// Unchanged means that the batch had the same content before. Its objects were written again,
	// which repairs damaged ones.
	Unchanged bool `json:"unchanged,omitempty"`
	// Superseded means that an ingest of the same batch that began later finished first, or that
	// the batch was retired since. The batch keeps that ingest's content.
	Superseded bool `json:"superseded,omitempty"`
	// Effect says whether the batch is new in the dataset or took the place of an earlier ingest,
	// and what the dataset has besides. It is nil if that could not be read.
	Effect *ingest.Effect `json:"effect,omitempty"`
	// Known is how many objects were left out with NewOnly, since other batches of the dataset have
	// read them. Nothing tells that these are all: there is no batch.
	Known   int  `json:"known,omitempty"`
	Nothing bool `json:"nothing,omitempty"`
	// Version is the version that holds the batch. It is empty with NoPublish.
	Version string `json:"version,omitempty"`
}

// ProgressQuery is the name of the query that IngestWorkflow and PublishWorkflow answer.
const ProgressQuery = "progress"

// ingestFlow is one run of IngestWorkflow.
type ingestFlow struct {
	IngestInput
	*IngestState
	steps steps
	// asked tells that the step that finished the batch has asked for a publish.
	asked bool
}

// IngestWorkflow takes raw objects to a finished batch and, without NoPublish, to a published
// version. It plans, normalizes the splits, merges each group of partitions into Parquet and
// postings, writes the batch record, requests a publish and waits for it.
//
// Its staging is removed when it succeeds, is cancelled, or fails because of its input. After any
// other failure the staging stays, and the same ingest, or a reset, continues with it.
func IngestWorkflow(ctx workflow.Context, in IngestInput) (*IngestResult, error) {
	if in.problem != "" {
		return nil, temporal.NewNonRetryableApplicationError("the input of the ingest: "+in.problem, activities.ErrInput, nil)
	}
	if in.Lake == "" || in.List == nil && (in.Dataset == "" || len(in.Inputs)+len(in.Manifests) == 0) {
		return nil, temporal.NewNonRetryableApplicationError("an ingest needs lake, dataset and inputs", activities.ErrInput, nil)
	}
	if err := checkQueue(ctx, in.Lake); err != nil {
		return nil, err
	}
	takeDate(ctx, &in.Spec)
	s, err := newSteps(ctx, in.Lake, in.Deadline)
	if err != nil {
		return nil, err
	}
	f := &ingestFlow{IngestInput: in, IngestState: in.Resume, steps: s}
	if f.IngestState != nil {
		if err := checkResume(ctx); err != nil {
			return nil, err
		}
	}
	if f.List != nil && workflow.GetInfo(ctx).ParentWorkflowExecution == nil {
		return nil, temporal.NewNonRetryableApplicationError(
			"list is what a workflow passes on to a child; leave it out", activities.ErrInput, nil)
	}
	switch {
	case f.IngestState == nil:
		// The id of the original run survives a reset, so that a reset workflow finds its staging.
		f.IngestState = &IngestState{Run: workflow.GetInfo(ctx).OriginalRunID, Until: s.until}
		f.Progress.enter(ctx, StagePlan)
	case !f.Until.IsZero() && !s.until.IsZero():
		f.steps.until = f.Until
	}
	p := &f.Progress
	p.Deadline = f.steps.until
	if err := workflow.SetQueryHandler(ctx, ProgressQuery, func() (IngestProgress, error) { return *p, nil }); err != nil {
		return nil, err
	}

	tidied := func() {}
	if f.Result == nil {
		f.Result, err = f.run(ctx)
		switch {
		case workflow.IsContinueAsNewError(err):
			return nil, err
		case ctx.Err() != nil:
			return f.abandon(ctx)
		case err != nil && resumable(err):
			var app *temporal.ApplicationError
			if errors.As(err, &app) && (app.Type() == activities.ErrDeadline || app.Type() == activities.ErrCorrupt) {
				err = temporal.NewNonRetryableApplicationError(
					app.Message()+"; what is done is kept for a week: start the same ingest again to continue", app.Type(), nil)
			}
			return nil, err
		}
		if err != nil {
			f.steps.cleanUp(ctx, f.Run)
			return nil, err
		}
		tidied = f.steps.cleanUpBeside(ctx, f.Run)
	}
	if in.NoPublish || f.Result.Nothing {
		tidied()
		p.enter(ctx, StageDone)
		return f.Result, nil
	}
	if p.Stage != StagePublish {
		p.enter(ctx, StagePublish)
	}
	f.Result.Version, err = f.publish(ctx)
	tidied()
	switch {
	case err == nil:
		p.enter(ctx, StageDone)
		return f.Result, setAttributes(ctx, f.Plan.Searchable, activities.AttributeVersion, f.Result.Version)
	case ctx.Err() != nil:
		return f.abandon(ctx)
	}
	return nil, err
}

// isType reports whether an error is an application error of a type.
func isType(err error, kind string) bool {
	var app *temporal.ApplicationError
	return errors.As(err, &app) && app.Type() == kind
}

// resumable reports whether the same ingest may succeed with the staging of this one, after an
// error that is not the fault of the input or of the staging.
func resumable(err error) bool {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) {
		return true
	}
	switch app.Type() {
	case activities.ErrInput:
		return false
	case activities.ErrCorrupt:
		var damage activities.Damage
		return app.HasDetails() && app.Details(&damage) == nil && damage.Mendable
	}
	return true
}

// began is when the workflow began, by Temporal's clock. It orders the ingests of a batch.
func began(ctx workflow.Context) int64 { return workflow.GetInfo(ctx).WorkflowStartTime.UnixNano() }

// abandon ends a cancelled ingest. Of one that has not finished nothing is left. What has finished
// is published nevertheless, and the result says so.
func (f *ingestFlow) abandon(ctx workflow.Context) (*IngestResult, error) {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	f.steps.cleanUp(ctx, f.Run)
	finished := f.Result != nil
	if !finished && f.Plan.Batch != "" { // the step that finishes it may have been under way
		if err := f.steps.each(f.steps.limit).run(
			ctx, activities.PoolControl, &finished, (*activities.Control)(nil).HasFinished, f.Lake, f.request(ctx),
		); err != nil {
			return nil, temporal.NewNonRetryableApplicationError(fmt.Sprintf(
				"cancelled, but batch %s may still be published: %s", f.Plan.Batch, message(err)), activities.ErrPublish, nil)
		}
	}
	if !finished {
		return nil, temporal.NewCanceledError("nothing of the ingest is published")
	}
	return nil, temporal.NewCanceledError(fmt.Sprintf(
		"the cancellation came too late: batch %s is finished, and the next publish adds it; \"starter retire\" takes it out", f.Plan.Batch))
}

// run takes the batch to its record, step by step. With a long history it returns an error that
// continues the workflow as new.
func (f *ingestFlow) run(ctx workflow.Context) (*IngestResult, error) {
	p := &f.Progress
	if p.Stage == StagePlan {
		if err := f.plan(ctx); err != nil {
			return nil, err
		}
		if f.Plan.Nothing {
			return &IngestResult{Dataset: f.Dataset, Nothing: true, Known: f.Plan.Known}, nil
		}
		p.enter(ctx, StageNormalize)
		p.DatasetID, p.Batch = f.Plan.DatasetID, f.Plan.Batch
		p.Splits, p.Objects, p.BytesTotal = f.Plan.Splits, f.Plan.Objects, f.Plan.Bytes
		memo := map[string]any{"dataset": f.Dataset, "dataset_id": f.Plan.DatasetID, "batch": f.Plan.Batch, "lake": f.Lake}
		if err := workflow.UpsertMemo(ctx, memo); err != nil {
			return nil, err
		}
		if err := f.planned(ctx); err != nil {
			return nil, err
		}
	}

	if p.Stage == StageNormalize && f.Plan.Small {
		return f.small(ctx)
	}
	if p.Stage == StageNormalize {
		next, err := fanOut(ctx, f.Plan.Window, p.SplitsDone, p.Splits, func(ctx workflow.Context, i int) error {
			var r ingest.SplitResult
			if err := f.steps.move(
				ctx, activities.PoolNormalize, &r, (*activities.Normalize)(nil).NormalizeSplit, f.Lake, f.Run, i,
			); err != nil {
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
			return nil, f.continueAsNew(ctx)
		}
		f.Merge = new(ingest.MergeSummary)
		if err := f.steps.run(
			ctx, activities.PoolControl, f.Merge, (*activities.Control)(nil).PlanMerge, f.Lake, f.Run,
		); err != nil {
			return nil, err
		}
		p.enter(ctx, StageWrite)
		p.Tasks = f.Merge.Tasks
	}

	if p.Stage == StageWrite {
		next, err := fanOut(ctx, f.Plan.Window, p.TasksDone, p.Tasks, f.merge)
		if err != nil {
			return nil, err
		}
		if next < p.Tasks {
			return nil, f.continueAsNew(ctx)
		}
		p.enter(ctx, StageRecord)
	}

	var r activities.Finished
	if err := f.steps.run(
		ctx, activities.PoolControl, &r, (*activities.Control)(nil).FinishIngest, f.Lake, f.Run, f.ask(ctx),
	); err != nil {
		return nil, err
	}
	f.asked = r.Asked
	return f.result(r.FinishResult), nil
}

// request returns the request for a publish of the batch, without its digest.
func (f *ingestFlow) request(ctx workflow.Context) activities.PublishRequest {
	info := workflow.GetInfo(ctx).WorkflowExecution
	return activities.PublishRequest{WorkflowID: info.ID, RunID: info.RunID, DatasetID: f.Plan.DatasetID, Batch: f.Plan.Batch, Start: f.Plan.Start}
}

// ask returns the request that the step that finishes the batch sends to the publisher, nil if it
// sends none.
func (f *ingestFlow) ask(ctx workflow.Context) *activities.PublishRequest {
	if f.NoPublish {
		return nil
	}
	req := f.request(ctx)
	return &req
}

// plan makes the plan of the batch, in the staging of this ingest or of an earlier one that it
// continues.
func (f *ingestFlow) plan(ctx workflow.Context) error {
	var p activities.ClaimedPlan
	var err error
	if f.List != nil {
		err = f.steps.move(ctx, activities.PoolControl, &p, (*activities.Control)(nil).PlanLarge, f.Lake, f.List, f.Run)
	} else {
		err = f.steps.move(ctx, activities.PoolControl, &p, (*activities.Control)(nil).PlanIngest, f.Spec, f.Run, began(ctx))
	}
	if err == nil {
		f.Run, f.Plan, f.Dataset = p.Run, p.Plan, cmp.Or(f.Dataset, p.Dataset)
	}
	return err
}

// merge does one merge task.
func (f *ingestFlow) merge(ctx workflow.Context, task int) error {
	p := &f.Progress
	var m ingest.MergeResult
	if err := f.steps.move(
		ctx, activities.PoolWrite, &m, (*activities.Write)(nil).MergePartitions, f.Lake, f.Run, task,
	); err != nil {
		return err
	}
	p.TasksDone++
	p.addMerge(m)
	p.Estimate(workflow.Now(ctx))
	return nil
}

// small takes a small batch to its record in one activity.
func (f *ingestFlow) small(ctx workflow.Context) (*IngestResult, error) {
	p := &f.Progress
	var r activities.FinishedSmall
	if err := f.steps.move(
		ctx, activities.PoolNormalize, &r, (*activities.Normalize)(nil).IngestSmall, f.Lake, f.Run, f.ask(ctx),
	); err != nil {
		return nil, err
	}
	f.asked = r.Asked
	p.addSplit(r.Split)
	p.addMerge(r.Merge)
	p.Tasks, p.TasksDone = 1, 1
	p.enter(ctx, StageRecord)
	return f.result(r.Finish), nil
}

// addSplit adds the result of a normalized split.
func (p *IngestProgress) addSplit(r ingest.SplitResult) {
	p.SplitsDone++
	p.BytesDone += r.Bytes
	p.Records += r.Records
	p.Kept += r.Kept
	if p.Rejected == nil { // at first, and where an earlier run had none to pass on
		p.Rejected = map[string]int64{}
	}
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
func (f *ingestFlow) result(r ingest.FinishResult) *IngestResult {
	p := &f.Progress
	return &IngestResult{
		Dataset: f.Dataset, DatasetID: f.Plan.DatasetID, Batch: f.Plan.Batch, Run: f.Run, Digest: r.Digest,
		Objects: p.Objects, Bytes: p.BytesTotal,
		Records: p.Records, Rows: p.Rows, Merged: p.Records - p.Rows - sum(p.Rejected),
		Rejected: p.Rejected, RejectsKey: r.RejectsKey, ListedRejects: r.Listed,
		Examples: r.Examples, WorstFiles: r.Worst, Groups: r.Groups, GroupCount: r.GroupCount,
		Unread: r.Unread, UnreadCount: r.UnreadCount, Unwrapped: r.Unwrapped, BadTS: r.BadTS, Notes: r.Notes,
		Domains: r.Domains, PartBytes: p.PartBytes, Unchanged: r.Existed, Superseded: !r.Current, Effect: r.Effect,
		Known: f.Plan.Known,
	}
}

// continueAsNew returns the error that continues the workflow with an empty history. The next run
// would not know that this one was cancelled, so that a cancelled workflow ends instead.
func (f *ingestFlow) continueAsNew(ctx workflow.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	next := f.IngestInput
	next.Resume = f.IngestState
	return workflow.NewContinueAsNewError(ctx, IngestWorkflow, next)
}

func sum(counts map[string]int64) int64 {
	var n int64
	for _, k := range workflow.DeterministicKeys(counts) {
		n += counts[k]
	}
	return n
}
