package workflows

import (
	"fmt"
	"slices"
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
// long.
type IngestManyState struct {
	Run      string             `json:"run"`
	Plan     many.Summary       `json:"plan"`
	Progress IngestManyProgress `json:"progress"`
	// Next is the first unit of work that has not begun: the large lists come first, then the
	// groups. Large are the large lists that have begun and not ended.
	Next  int         `json:"next"`
	Large []LargeList `json:"large,omitempty"`
	// Round is what has ended since the last round.
	Round many.Round `json:"round"`
	// Finished is the sum of the rounds.
	Finished many.Finished `json:"finished"`
	// Until is the ingest's deadline.
	Until time.Time `json:"until,omitzero"`
}

// LargeList is a large list that has begun.
type LargeList struct {
	Number  int          `json:"number"`
	Outcome many.Outcome `json:"outcome"`
	State   IngestState  `json:"state"`
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
	// Running are the groups that have begun and not ended.
	Running int `json:"running"`

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
}

// manyFlow is one run of IngestManyWorkflow.
type manyFlow struct {
	IngestManyInput
	*IngestManyState
	steps   steps
	rounded time.Time // when the last round began
	busy    bool      // a round is being finished
}

// IngestManyWorkflow ingests many datasets: each file, or each folder, of the inputs. Small lists
// share activities. Large ones take the steps of IngestWorkflow within this workflow. What is done
// is finished in the registry at the end or, in a long run, in rounds of roundInterval, and a
// publish is requested for each. A list that fails is named in the result and stops no other.
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
	s, err := newSteps(ctx, in.Lake, in.Deadline, true)
	if err != nil {
		return nil, err
	}
	f := &manyFlow{IngestManyInput: in, IngestManyState: in.Resume, steps: s}
	switch {
	case f.IngestManyState == nil:
		f.IngestManyState = &IngestManyState{Run: workflow.GetInfo(ctx).OriginalRunID, Until: s.until}
		f.Progress.enter(ctx, StagePlan)
	case workflow.GetInfo(ctx).ContinuedExecutionRunID == "":
		return nil, temporal.NewNonRetryableApplicationError(
			"resume is the state of an earlier run, which only the workflow itself passes on; leave it out", activities.ErrInput, nil)
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
	case err != nil:
		f.abandon(ctx)
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
			ctx, activities.PoolControl, &f.Plan, (*activities.Control)(nil).PlanMany, f.Spec, f.Run,
		); err != nil {
			return nil, err
		}
		p.enter(ctx, StageIngest)
		p.Datasets, p.Unchanged = f.Plan.Datasets-f.Plan.Unchanged, f.Plan.Unchanged
		p.Objects, p.BytesTotal = f.Plan.Objects, f.Plan.Bytes
		if err := setAttributes(ctx, f.Plan.Searchable, activities.AttributeLake, f.Lake, activities.AttributeBatch, f.Batch); err != nil {
			return nil, err
		}
	}
	if p.Stage == StageIngest {
		if err := f.ingest(ctx); err != nil {
			return nil, err
		}
		if err := f.finish(ctx, true); err != nil {
			return nil, err
		}
		p.enter(ctx, StagePublish)
	}
	r := &IngestManyResult{Datasets: f.Plan.Datasets, Unchanged: f.Plan.Unchanged, Finished: f.Finished, LakeURL: f.Lake, Run: f.Run, Notes: f.Plan.Notes}
	tidied := workflow.NewChannel(ctx)
	workflow.Go(ctx, func(ctx workflow.Context) { // beside the publish
		f.steps.cleanUp(ctx, f.Run)
		tidied.Close()
	})
	var err error
	if f.Finished.Ingested > 0 && !f.NoPublish {
		if r.Version, err = f.publish(ctx); err == nil {
			err = setAttributes(ctx, f.Plan.Searchable, activities.AttributeVersion, r.Version)
		}
	}
	tidied.Receive(ctx, nil)
	return r, err
}

// largeAtOnce is how many large lists are in progress at once. Each occupies staging with its rows,
// and their steps alone keep many workers busy.
const largeAtOnce = 4

// ingest ingests all lists, the largest first.
func (f *manyFlow) ingest(ctx workflow.Context) error {
	f.rounded = f.Progress.StageStarted
	large := workflow.NewSemaphore(ctx, largeAtOnce)
	begun := f.Large
	f.Large = nil
	all := len(begun) + f.Plan.Large + f.Plan.Groups - f.Next
	done, err := fanOut(ctx, 0, all, func(ctx workflow.Context, i int) error {
		if i < len(begun) {
			return f.large(ctx, large, &begun[i])
		}
		if i += f.Next - len(begun); i < f.Plan.Large {
			return f.large(ctx, large, &LargeList{Number: i})
		}
		return f.group(ctx, i-f.Plan.Large)
	})
	if err != nil {
		return err
	}
	f.Large = append(f.Large, begun[min(done, len(begun)):]...)
	f.Next += max(0, done-len(begun))
	if done < all || len(f.Large) > 0 {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		next := f.IngestManyInput
		next.Resume = f.IngestManyState
		return workflow.NewContinueAsNewError(ctx, IngestManyWorkflow, next)
	}
	return nil
}

// stops reports whether an error of a list or a group is that of the whole ingest.
func stops(ctx workflow.Context, err error) bool {
	return ctx.Err() != nil || isType(err, activities.ErrLake)
}

// group ingests the lists of one group. If it cannot be ended, its lists that are not done have
// failed.
func (f *manyFlow) group(ctx workflow.Context, group int) error {
	p := &f.Progress
	p.Running++
	var r many.Progress
	err := f.steps.move(
		ctx, activities.PoolNormalize, &r, (*activities.Normalize)(nil).IngestGroup, f.Lake, f.Run, group,
	)
	p.Running--
	switch {
	case err != nil && stops(ctx, err):
		return err
	case err != nil:
		if f.Round.Unfinished == nil {
			f.Round.Unfinished = map[int]string{}
		}
		f.Round.Unfinished[group] = message(err)
	}
	f.Round.Groups = append(f.Round.Groups, group)
	p.Done += r.Done
	p.Failed += r.Failed
	p.BytesDone += r.BytesRead
	p.Records += r.Records
	p.Rows += r.Kept
	return f.ended(ctx)
}

// large ingests a large list.
func (f *manyFlow) large(ctx workflow.Context, at workflow.Semaphore, l *LargeList) error {
	if err := at.Acquire(ctx, 1); err != nil {
		return err
	}
	defer at.Release(1)
	o := &l.Outcome
	err := f.largeSteps(ctx, l)
	switch {
	case workflow.IsContinueAsNewError(err):
		f.Large = append(f.Large, *l)
		return nil
	case err != nil && stops(ctx, err):
		return err
	case err != nil:
		o.Error = message(err)
		f.Progress.Failed++
	}
	if err == nil || !resumable(err) {
		f.steps.cleanUp(ctx, l.State.Run)
	}
	f.Progress.Done++
	f.Progress.BytesDone += o.Bytes
	f.Progress.Records += o.Records
	f.Progress.Rows += o.Rows
	f.Round.Large = append(f.Round.Large, *o)
	return f.ended(ctx)
}

// largeSteps takes a large list to its record.
func (f *manyFlow) largeSteps(ctx workflow.Context, l *LargeList) error {
	if l.State.Run == "" {
		var plan activities.LargePlan
		if err := f.steps.move(
			ctx, activities.PoolControl, &plan, (*activities.Control)(nil).PlanLarge, f.Lake, f.Run, l.Number,
		); err != nil {
			return err
		}
		l.Outcome = plan.Outcome
		l.State = IngestState{Run: plan.Run, Plan: plan.Plan}
		s := &l.State.Progress
		s.enter(ctx, StageNormalize)
		s.DatasetID, s.Batch = plan.Plan.DatasetID, plan.Plan.Batch
		s.Splits, s.Objects, s.BytesTotal = plan.Plan.Splits, plan.Plan.Objects, plan.Plan.Bytes
	}
	one := &ingestFlow{IngestState: &l.State, steps: f.steps}
	one.Spec = ingest.Spec{Lake: f.Lake, Dataset: l.Outcome.Dataset}
	r, err := one.run(ctx)
	if err != nil {
		return err
	}
	o := &l.Outcome
	o.DatasetID, o.Batch, o.Digest = r.DatasetID, r.Batch, r.Digest
	o.Records, o.Rows, o.Merged, o.Rejected, o.RejectsKey = r.Records, r.Rows, r.Merged, r.Rejected, r.RejectsKey
	o.Domains, o.PartBytes, o.Examples, o.Notes = r.Domains, r.PartBytes, r.Examples, r.Notes
	o.Unchanged, o.Superseded = r.Unchanged, r.Superseded
	return nil
}

// roundInterval is how long after the last round what is done is finished and published, so that
// the results of a long run become visible before its end.
const roundInterval = 10 * time.Minute

// ended finishes a round if the last one was long ago.
func (f *manyFlow) ended(ctx workflow.Context) error {
	now := workflow.Now(ctx)
	f.Progress.Updated = now
	if f.busy || now.Sub(f.rounded) < roundInterval {
		return nil
	}
	return f.finish(ctx, false)
}

// finish finishes what has ended since the last round, and asks for a publish. The workflow waits
// only for the last one.
func (f *manyFlow) finish(ctx workflow.Context, last bool) error {
	f.busy = true
	defer func() { f.busy = false }()
	f.rounded = workflow.Now(ctx)
	round := f.Round
	f.Round = many.Round{Number: round.Number + 1}
	if len(round.Groups)+len(round.Large) == 0 {
		return nil
	}
	slices.Sort(round.Groups)
	var req *activities.PublishRequest
	if !f.NoPublish {
		req = new(activities.PublishRequest)
		if last {
			info := workflow.GetInfo(ctx).WorkflowExecution
			req.WorkflowID, req.RunID = info.ID, info.RunID
		}
	}
	var r many.Finished
	// The deadline may have passed, which is then the reason why groups have failed.
	if err := f.steps.each(max(tidyLimit, f.steps.left(ctx))).run(
		ctx, activities.PoolControl, &r, (*activities.Control)(nil).FinishMany, f.Lake, f.Run, round, req,
	); err != nil {
		return err
	}
	f.Finished.Add(r)
	return nil
}

// publish waits for the version that holds all batches.
func (f *manyFlow) publish(ctx workflow.Context) (string, error) {
	info := workflow.GetInfo(ctx).WorkflowExecution
	report := f.Finished.Report
	req := activities.PublishRequest{WorkflowID: info.ID, RunID: info.RunID, Report: many.ReportPrefix(f.Run), Digest: report}
	told := workflow.GetSignalChannel(ctx, activities.PublishedSignal)
	pause, seen := firstLook, ""
	for {
		var p activities.Published
		for {
			ok, _ := told.ReceiveWithTimeout(ctx, min(pause, f.steps.left(ctx)), &p)
			if !ok || p.Digest == report {
				break
			}
			p = activities.Published{}
		}
		switch {
		case p.Version != "":
			return p.Version, nil
		case ctx.Err() != nil:
			return "", ctx.Err()
		case f.steps.left(ctx) <= 0:
			return "", f.unpublished(f.steps.missed("a version held it", nil))
		}
		var look activities.Look
		if err := f.steps.run(ctx, activities.PoolControl, &look, (*activities.Control)(nil).FindMany, f.Lake, req, seen); err != nil {
			return "", f.unpublished(err)
		}
		seen = look.Seen
		f.Progress.Waiting, f.Progress.Updated = look.Reason, workflow.Now(ctx)
		if look.Version != "" {
			return look.Version, nil
		}
		if look.Ask {
			if err := f.steps.run(ctx, activities.PoolControl, nil, (*activities.Control)(nil).RequestPublish, f.Lake, req); err != nil {
				return "", f.unpublished(err)
			}
		}
		pause = min(2*pause, lastLook)
	}
}

// unpublished returns the error of an ingest that could not wait for its version to the end.
func (f *manyFlow) unpublished(err error) error {
	if workflow.IsContinueAsNewError(err) || temporal.IsCanceledError(err) {
		return err
	}
	text := fmt.Sprintf("%d datasets are finished but not published; the next publish adds them: %s", f.Finished.Ingested, message(err))
	if f.Progress.Waiting != "" {
		text += "; the last publish: " + f.Progress.Waiting
	}
	return temporal.NewNonRetryableApplicationError(text, activities.ErrDeadline, nil)
}

// abandon ends an ingest that has failed as a whole or was cancelled.
func (f *manyFlow) abandon(ctx workflow.Context) {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	if err := f.steps.each(tidyLimit).run(
		ctx, activities.PoolControl, nil, (*activities.Control)(nil).AbandonMany, f.Lake, f.Run,
	); err != nil {
		workflow.GetLogger(ctx).Warn("ingests were not abandoned", "run", f.Run, "error", err)
	}
	f.steps.cleanUp(ctx, f.Run)
}
