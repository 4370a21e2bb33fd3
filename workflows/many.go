package workflows

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/ingest/many"
)

// IngestManyInput describes the ingest of many datasets. People type it as JSON.
type IngestManyInput struct {
	many.Spec
	// NoPublish ends the workflow with the batch records. A later publish includes the batches.
	NoPublish bool `json:"no_publish,omitempty"`

	// Resume is the state with which an earlier run continued as new. People leave it out.
	Resume *IngestManyState `json:"resume,omitempty"`

	// problem says what is wrong with the JSON that this was decoded from; see UnmarshalJSON.
	problem string
}

// IngestManyState is what a run of IngestManyWorkflow passes to the next when its history grows
// long. It has no outcomes of lists: these are in the run's staging and reports.
type IngestManyState struct {
	Run      string             `json:"run"`
	Plan     many.Summary       `json:"plan"`
	Progress IngestManyProgress `json:"progress"`
	// Next is the first group or large list that is not done.
	Next int `json:"next"`
	// Reason is why the last group that failed did, "" if none has.
	Reason string `json:"reason,omitempty"`
	// Finished are the sums of what has been reported.
	Finished many.Finished `json:"finished"`
	// LargeDone tells that a large list has finished.
	LargeDone bool `json:"large_done,omitempty"`
	// Until is the ingest's deadline.
	Until time.Time `json:"until,omitzero"`
}

// IngestManyProgress answers the "progress" query of IngestManyWorkflow.
type IngestManyProgress struct {
	// Stage is StagePlan, StageIngest, StagePublish or StageDone.
	Stage string `json:"stage"`
	// Datasets is the number of datasets to ingest. Done of them have ended, Failed of these with
	// an error. Unchanged others were left out.
	Datasets  int `json:"datasets"`
	Unchanged int `json:"unchanged"`
	Done      int `json:"done"`
	Failed    int `json:"failed"`
	// BytesDone of BytesTotal stored bytes were ingested.
	Objects    int   `json:"objects"`
	BytesTotal int64 `json:"bytes_total"`
	BytesDone  int64 `json:"bytes_done"`
	Records    int64 `json:"records"`
	Rows       int64 `json:"rows"`

	StageStarted time.Time `json:"stage_started,omitzero"`
	Updated      time.Time `json:"updated,omitzero"`
	Deadline     time.Time `json:"deadline,omitzero"`
	// Waiting says what went wrong with the publish that the ingest waits for.
	Waiting string `json:"waiting,omitempty"`
}

// StageIngest is the stage of IngestManyWorkflow in which the lists are ingested.
const StageIngest = "ingest"

func (p *IngestManyProgress) enter(ctx workflow.Context, stage string) {
	now := workflow.Now(ctx)
	p.Stage, p.StageStarted, p.Updated = stage, now, now
}

// IngestManyResult is the result of an ingest of many datasets.
type IngestManyResult struct {
	// Datasets is the number of datasets in the inputs: Unchanged, ingested or failed.
	Datasets  int `json:"datasets"`
	Unchanged int `json:"unchanged"`
	many.Finished
	// LakeURL is the lake, Run the run whose reports in it have a line for each dataset that was
	// not left out.
	LakeURL string `json:"lake"`
	Run     string `json:"run"`
	// Notes say which of the inputs are not read.
	Notes []string `json:"notes,omitempty"`
	// Version is the version that holds the batches. It is empty with NoPublish, or if there was
	// nothing to ingest.
	Version string `json:"version,omitempty"`
	// Damaged are the first of DamagedBatches, with the reason: batches that were damaged before
	// they were published, so that no version has them.
	Damaged        []string `json:"damaged,omitempty"`
	DamagedBatches int      `json:"damaged_batches,omitempty"`
}

// manyFlow is one run of IngestManyWorkflow.
type manyFlow struct {
	IngestManyInput
	*IngestManyState
	steps steps
}

// IngestManyWorkflow ingests many datasets: each file, or each folder, of the inputs. Small lists
// share activities. Large ones are child workflows, IngestWorkflows. What is done is left to a
// publish at the end and, in a long run, after finishAfter, again and again, and a publish is
// requested each time. A list that fails is named in the result and stops no other.
func IngestManyWorkflow(ctx workflow.Context, in IngestManyInput) (*IngestManyResult, error) {
	if in.problem != "" {
		return nil, temporal.NewNonRetryableApplicationError("the input of the ingest: "+in.problem, activities.ErrInput, nil)
	}
	if in.Lake == "" || len(in.Inputs) == 0 {
		return nil, temporal.NewNonRetryableApplicationError("an ingest needs lake and inputs", activities.ErrInput, nil)
	}
	if err := checkQueue(ctx, in.Lake); err != nil {
		return nil, err
	}
	takeDate(ctx, &in.Spec.Spec)
	s, err := newSteps(ctx, in.Lake, in.Deadline)
	if err != nil {
		return nil, err
	}
	f := &manyFlow{IngestManyInput: in, IngestManyState: in.Resume, steps: s}
	if f.IngestManyState != nil {
		if err := checkResume(ctx); err != nil {
			return nil, err
		}
	}
	switch {
	case f.IngestManyState == nil:
		f.IngestManyState = &IngestManyState{Run: workflow.GetInfo(ctx).OriginalRunID, Until: s.until}
		f.Progress.enter(ctx, StagePlan)
	case !f.Until.IsZero() && !s.until.IsZero():
		f.steps.until = f.Until
	}
	f.Progress.Deadline = f.steps.until
	if err := workflow.SetQueryHandler(ctx, ProgressQuery, func() (IngestManyProgress, error) { return f.Progress, nil }); err != nil {
		return nil, err
	}
	result, err := f.run(ctx)
	switch {
	case workflow.IsContinueAsNewError(err):
		return nil, err
	case ctx.Err() != nil:
		return nil, f.abandon(ctx)
	case err != nil:
		f.steps.cleanUp(ctx, f.Run)
		return nil, err
	}
	f.Progress.enter(ctx, StageDone)
	return result, nil
}

// run takes all lists to a published version.
func (f *manyFlow) run(ctx workflow.Context) (*IngestManyResult, error) {
	p := &f.Progress
	if p.Stage == StagePlan {
		if err := f.steps.move(
			ctx, activities.PoolControl, &f.Plan, (*activities.Control)(nil).PlanMany, f.Spec, f.Run, began(ctx),
		); err != nil {
			return nil, err
		}
		p.enter(ctx, StageIngest)
		p.Datasets, p.Unchanged = f.Plan.Datasets-f.Plan.Unchanged, f.Plan.Unchanged
		p.Objects, p.BytesTotal = f.Plan.Objects, f.Plan.Bytes
		if err := setAttributes(ctx, f.Plan.Searchable, activities.AttributeLake, f.Lake,
			activities.AttributeBatch, cmp.Or(f.Plan.Batch, f.Batch, many.DefaultBatch)); err != nil {
			return nil, err
		}
	}
	if p.Stage == StageIngest {
		err := f.ingest(ctx)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			f.failed(err)
		}
		more := err == nil && f.Next < f.Plan.Groups+f.Plan.Large
		// What is done counts, also if the ingest cannot go on.
		if finishErr := f.finish(ctx, !more); err != nil || finishErr != nil {
			return nil, cmp.Or(err, finishErr)
		}
		if more {
			return nil, f.continueAsNew(ctx)
		}
		p.enter(ctx, StagePublish)
	}
	r := &IngestManyResult{Datasets: f.Plan.Datasets, Unchanged: f.Plan.Unchanged, Finished: f.Finished, LakeURL: f.Lake, Run: f.Run, Notes: f.Plan.Notes}
	tidied := f.steps.cleanUpBeside(ctx, f.Run)
	var err error
	if f.Finished.Ingested > 0 && !f.NoPublish {
		if err = f.publish(ctx, r); err == nil {
			err = setAttributes(ctx, f.Plan.Searchable, activities.AttributeVersion, r.Version)
		}
	}
	tidied()
	return r, err
}

// ingest ingests the groups and then the large lists, whose steps keep many workers busy. It stops
// early when the workflow should continue as new.
func (f *manyFlow) ingest(ctx workflow.Context) (err error) {
	beside, stop := workflow.WithCancel(ctx)
	ended := workflow.NewChannel(ctx)
	workflow.Go(beside, func(ctx workflow.Context) {
		f.finishNowAndThen(ctx)
		ended.Close()
	})
	larges := workflow.NewSemaphore(ctx, int64(max(f.Plan.LargeAtOnce, 1)))
	f.Next, err = fanOut(ctx, f.Plan.Window, f.Next, f.Plan.Groups+f.Plan.Large, func(ctx workflow.Context, i int) error {
		if i < f.Plan.Groups {
			return f.group(at(ctx, i, f.Plan.Groups), i)
		}
		if err := larges.Acquire(ctx, 1); err != nil {
			return err
		}
		defer larges.Release(1)
		return f.large(at(ctx, i-f.Plan.Groups, f.Plan.Large), i)
	})
	stop()
	wait, _ := workflow.NewDisconnectedContext(ctx)
	ended.Receive(wait, nil)
	return err
}

// stops reports whether an error of a list or a group is that of the whole ingest.
func stops(err error) bool { return isType(err, activities.ErrLake) }

// group ingests a group.
func (f *manyFlow) group(ctx workflow.Context, group int) error {
	var r many.Progress
	err := f.steps.move(ctx, activities.PoolNormalize, &r, (*activities.Normalize)(nil).IngestGroup, f.Lake, f.Run, group)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && stops(err):
		return err
	case err != nil:
		f.failed(err)
	}
	f.count(ctx, IngestManyProgress{Done: r.Done, Failed: r.Failed, BytesDone: r.BytesRead, Records: r.Records, Rows: r.Kept})
	return nil
}

// failed notes why lists of groups fail, in at most maxReason bytes.
func (f *manyFlow) failed(err error) {
	reason := message(err)
	f.Reason = strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")
}

// maxReason bounds what payloads say of a failure.
const maxReason = 4 << 10

// count adds what has ended to the progress.
func (f *manyFlow) count(ctx workflow.Context, q IngestManyProgress) {
	p := &f.Progress
	p.Done += q.Done
	p.Failed += q.Failed
	p.BytesDone += q.BytesDone
	p.Records += q.Records
	p.Rows += q.Rows
	p.Updated = workflow.Now(ctx)
}

// large ingests a large list and records its outcome.
func (f *manyFlow) large(ctx workflow.Context, number int) error {
	left := f.steps.left(ctx)
	if left <= 0 {
		f.failed(f.steps.missed("a step could begin", nil))
		return nil
	}
	list := many.Ref{Run: f.Run, Number: number}
	in := IngestInput{Spec: ingest.Spec{Lake: f.Lake, Deadline: left.String()}, NoPublish: true, List: &list}
	id := strings.TrimSuffix(workflow.GetInfo(ctx).WorkflowExecution.ID, "@"+f.Lake)
	child := workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID: fmt.Sprintf("%s:%06d@%s", id, number, f.Lake), WaitForCancellation: true,
	}), IngestWorkflow, in)
	var r IngestResult
	err := child.Get(ctx, &r)
	o := many.Outcome{Run: r.Run, Digest: r.Digest, Records: r.Records, Rows: r.Rows, Merged: r.Merged, Rejected: r.Rejected,
		RejectsKey: r.RejectsKey, Domains: r.Domains, PartBytes: r.PartBytes, Examples: r.Examples, Notes: r.Notes,
		Worst: r.WorstFiles, Unread: r.Unread, UnreadCount: r.UnreadCount, Unchanged: r.Unchanged, Superseded: r.Superseded}
	p := IngestManyProgress{Done: 1, BytesDone: r.Bytes, Records: r.Records, Rows: r.Rows}
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil && stops(err):
		return err
	case err != nil:
		o, p.Failed = many.Outcome{Error: message(err)}, 1
	default:
		f.LargeDone = true
	}
	// Also after a cancellation: the list is finished.
	noting, _ := workflow.NewDisconnectedContext(ctx)
	if err := f.steps.each(max(tidyLimit, left)).run(
		noting, activities.PoolControl, nil, (*activities.Control)(nil).NoteLarge, f.Lake, list, o,
	); err != nil {
		return err
	}
	f.count(ctx, p)
	return nil
}

// finishAfter is how long after its begin a run finishes and publishes what is done, so that the
// results of a long run become visible before its end. The pauses after that are as long while
// there is something new, and else double up to finishRarely.
const (
	finishAfter  = 10 * time.Minute
	finishRarely = 2 * time.Hour
)

// finishNowAndThen finishes what is done, again and again until ctx is cancelled.
func (f *manyFlow) finishNowAndThen(ctx workflow.Context) {
	for pause := finishAfter; workflow.Sleep(ctx, pause) == nil; {
		before := f.Finished.Ingested + f.Finished.Failed
		if err := f.finish(ctx, false); err != nil {
			workflow.GetLogger(ctx).Warn("what is done is not finished yet", "run", f.Run, "error", err)
		}
		if pause = min(2*pause, finishRarely); f.Finished.Ingested+f.Finished.Failed > before {
			pause = finishAfter
		}
	}
}

// request returns the request for a publish of everything that the run has reported.
func (f *manyFlow) request(ctx workflow.Context) activities.PublishRequest {
	info, reports := workflow.GetInfo(ctx).WorkflowExecution, many.ReportPrefix(f.Run)
	return activities.PublishRequest{WorkflowID: info.ID, RunID: info.RunID, Report: reports, Digest: reports, Start: f.Plan.Start}
}

// finish finishes what is done, with last everything, and asks for a publish. The workflow waits
// only for the last one.
func (f *manyFlow) finish(ctx workflow.Context, last bool) error {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	var ask *activities.PublishRequest
	if !f.NoPublish {
		ask = new(activities.PublishRequest)
		if last {
			*ask = f.request(ctx)
		}
	}
	// The deadline may have passed, which is then the reason why groups have failed.
	return f.steps.each(max(tidyLimit, f.steps.left(ctx))).run(
		ctx, activities.PoolControl, &f.Finished, (*activities.Control)(nil).FinishMany, f.Lake, f.Run, last, f.Reason, ask)
}

// publish waits for the version that holds all batches but those that are damaged.
func (f *manyFlow) publish(ctx workflow.Context, r *IngestManyResult) error {
	req := f.request(ctx)
	look, err := f.steps.version(ctx, req, req.Digest, true, func(reason string) {
		f.Progress.Waiting, f.Progress.Updated = reason, workflow.Now(ctx)
	})
	switch {
	case errors.Is(err, errLong):
		return f.continueAsNew(ctx)
	case err != nil:
		return unpublished(fmt.Sprintf("%d datasets are finished but not published; the next publish adds them", f.Finished.Ingested),
			f.Progress.Waiting, err)
	}
	r.Version, r.Damaged, r.DamagedBatches = look.Version, look.Damaged, look.DamagedBatches
	return nil
}

// continueAsNew returns the error that continues the workflow with an empty history.
func (f *manyFlow) continueAsNew(ctx workflow.Context) error {
	next := f.IngestManyInput
	next.Resume = f.IngestManyState
	return workflow.NewContinueAsNewError(ctx, IngestManyWorkflow, next)
}

// abandon ends a cancelled ingest and returns its error. What it has finished is published
// nevertheless.
func (f *manyFlow) abandon(ctx workflow.Context) error {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	f.steps.cleanUp(ctx, f.Run)
	if f.Finished.Ingested > 0 || f.LargeDone {
		return temporal.NewCanceledError("the cancellation came too late for the datasets that were finished, which the next " +
			"publish adds; \"starter retire\" takes them out")
	}
	return temporal.NewCanceledError("nothing of the ingest is published")
}
