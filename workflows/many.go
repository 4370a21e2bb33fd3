package workflows

import (
	"cmp"
	"fmt"
	"slices"
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
// long.
type IngestManyState struct {
	Run      string             `json:"run"`
	Plan     many.Summary       `json:"plan"`
	Progress IngestManyProgress `json:"progress"`
	// Next is the first large list that has not begun. Large are those that have begun and not
	// ended.
	Next  int         `json:"next"`
	Large []LargeList `json:"large,omitempty"`
	// GroupsDone tells that all groups have ended.
	GroupsDone bool `json:"groups_done,omitempty"`
	// Round is the next round. It has the large lists that have ended since the last one.
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
		return nil, f.withdraw(ctx)
	case err != nil:
		f.cleanUp(ctx)
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
		if err := setAttributes(ctx, f.Plan.Searchable, activities.AttributeLake, f.Lake,
			activities.AttributeBatch, cmp.Or(f.Plan.Batch, f.Batch, many.DefaultBatch)); err != nil {
			return nil, err
		}
	}
	if p.Stage == StageIngest {
		err := f.ingest(ctx)
		if workflow.IsContinueAsNewError(err) || ctx.Err() != nil {
			return nil, err
		}
		if err != nil {
			f.Round.Reason = message(err)
		}
		// What is done counts, also if the ingest cannot go on.
		if finishErr := f.finish(ctx, true); err != nil || finishErr != nil {
			return nil, cmp.Or(err, finishErr)
		}
		p.enter(ctx, StagePublish)
	}
	r := &IngestManyResult{Datasets: f.Plan.Datasets, Unchanged: f.Plan.Unchanged, Finished: f.Finished, LakeURL: f.Lake, Run: f.Run, Notes: f.Plan.Notes}
	r.Groups = nil // only rounds need them
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

// ingest ingests all lists. Large lists and groups are ingested side by side, so that the steps of
// some fill the pauses of others, and the largest begin first. It returns an error that continues
// the workflow as new if the history grows long before all have ended.
func (f *manyFlow) ingest(ctx workflow.Context) error {
	within, cancel := workflow.WithCancel(ctx)
	defer cancel()
	var failed error
	begin := func(ctx workflow.Context, do func(ctx workflow.Context) error) workflow.WaitGroup {
		ends := workflow.NewWaitGroup(ctx)
		ends.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer ends.Done()
			if err := do(ctx); err != nil && failed == nil {
				failed = err
				cancel()
			}
		})
		return ends
	}
	larges, groups := begin(within, f.larges), begin(within, f.groups)
	beside, stop := workflow.WithCancel(within)
	rounds := begin(beside, f.rounds)
	// A cancelled workflow still waits for the steps that it started.
	wait, _ := workflow.NewDisconnectedContext(ctx)
	larges.Wait(wait)
	groups.Wait(wait)
	stop()
	rounds.Wait(wait)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case failed != nil:
		return failed
	case f.Next == f.Plan.Large && len(f.Large) == 0 && (f.GroupsDone || f.Plan.Groups == 0):
		return nil
	}
	next := f.IngestManyInput
	next.Resume = f.IngestManyState
	return workflow.NewContinueAsNewError(ctx, IngestManyWorkflow, next)
}

// groups ingests the groups. It stops early when the workflow should continue as new.
func (f *manyFlow) groups(ctx workflow.Context) error {
	crews := min(max(f.Plan.Crews, 1), f.Plan.Groups)
	if f.GroupsDone {
		return nil
	}
	within, cancel := workflow.WithCancel(ctx)
	defer cancel()
	stop := make([]workflow.CancelFunc, crews)
	running := 0
	var failed error
	for i := range crews {
		var crew workflow.Context
		crew, stop[i] = workflow.WithCancel(within)
		running++
		workflow.Go(crew, func(ctx workflow.Context) {
			var c activities.Crew
			err := f.steps.move(ctx, activities.QueueGroups, &c, (*activities.Normalize)(nil).IngestGroups, f.Lake, f.Run, i)
			running--
			switch {
			case err == nil:
				f.count(c.Progress)
				for n := range stop {
					if !slices.Contains(c.Begun, n) {
						stop[n]() // it would find nothing to do
					}
				}
			case temporal.IsCanceledError(err):
			case stops(err):
				failed = err
				cancel()
			default:
				f.Round.Reason = message(err)
			}
		})
	}
	wait, _ := workflow.NewDisconnectedContext(ctx)
	suspended := false
	for running > 0 {
		before := running
		if err := workflow.Await(wait, func() bool { return running < before }); err != nil {
			return err
		}
		if running > 0 && !suspended && workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			// The crews keep their groups and go on with them in the next run.
			suspended = true
			cancel()
		}
	}
	f.GroupsDone = failed == nil && !suspended && ctx.Err() == nil
	return failed
}

// count adds the progress of a crew that has ended.
func (f *manyFlow) count(r many.Progress) {
	p := &f.Progress
	p.Done += r.Done
	p.Failed += r.Failed
	p.BytesDone += r.BytesRead
	p.Records += r.Records
	p.Rows += r.Kept
}

// larges ingests the large lists.
func (f *manyFlow) larges(ctx workflow.Context) error {
	begun := f.Large
	f.Large = nil
	all := len(begun) + f.Plan.Large - f.Next
	done, err := fanOut(ctx, f.Plan.LargeAtOnce, 0, all, func(ctx workflow.Context, i int) error {
		if i < len(begun) {
			return f.large(ctx, &begun[i])
		}
		return f.large(ctx, &LargeList{Number: f.Next + i - len(begun)})
	})
	f.Large = append(f.Large, begun[min(done, len(begun)):]...)
	f.Next += max(0, done-len(begun))
	return err
}

// stops reports whether an error of a list or a group is that of the whole ingest.
func stops(err error) bool { return isType(err, activities.ErrLake) }

// large ingests a large list.
func (f *manyFlow) large(ctx workflow.Context, l *LargeList) error {
	o := &l.Outcome
	// If rounds take long, lists wait for them.
	err := workflow.Await(ctx, func() bool { return !f.roundIsFull() })
	if err == nil {
		err = f.largeSteps(ctx, l)
	}
	switch {
	case workflow.IsContinueAsNewError(err):
		f.Large = append(f.Large, *l)
		return nil
	case ctx.Err() != nil:
		f.Large = append(f.Large, *l) // to be withdrawn
		return ctx.Err()
	case err != nil && stops(err):
		return err
	case err != nil:
		o.Error = cutText(message(err), maxOutcomeError)
		f.Progress.Failed++
	}
	if l.State.Run != "" && (err == nil || !resumable(err)) {
		f.steps.cleanUp(ctx, l.State.Run)
	}
	f.Progress.Done++
	f.Progress.BytesDone += o.Bytes
	f.Progress.Records += o.Records
	f.Progress.Rows += o.Rows
	f.Round.Large = append(f.Round.Large, many.LargeOutcome{Number: l.Number, Outcome: *o})
	f.Progress.Updated = workflow.Now(ctx)
	return nil
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
	one.Spec, one.NoPublish = ingest.Spec{Lake: f.Lake, Dataset: l.Outcome.Dataset}, true
	r, err := one.run(ctx)
	if err != nil {
		return err
	}
	o := &l.Outcome
	o.DatasetID, o.Batch, o.Digest = r.DatasetID, r.Batch, r.Digest
	o.Records, o.Rows, o.Merged, o.Rejected, o.RejectsKey = r.Records, r.Rows, r.Merged, r.Rejected, r.RejectsKey
	o.Domains, o.PartBytes, o.Examples, o.Notes = r.Domains, r.PartBytes, r.Examples, r.Notes
	o.Worst, o.Unread, o.UnreadCount = r.WorstFiles, r.Unread, r.UnreadCount
	o.Unchanged, o.Superseded = r.Unchanged, r.Superseded
	return nil
}

// roundInterval is how long after the last round what is done is finished and published, so that
// the results of a long run become visible before its end. It doubles up to maxRoundInterval while
// there is nothing new. A round begins sooner when Plan.Round large lists have ended.
const (
	roundInterval    = 10 * time.Minute
	maxRoundInterval = 2 * time.Hour
)

// maxOutcomeError is the most bytes of an outcome's error. A round passes on many outcomes at once.
const maxOutcomeError = 4 << 10

// cutText returns a text of at most n bytes: s, or its beginning.
func cutText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-len("…")], "") + "…"
}

// rounds finishes now and then what is done, until ctx is cancelled.
func (f *manyFlow) rounds(ctx workflow.Context) error {
	for pause := roundInterval; ; {
		if _, err := workflow.AwaitWithTimeout(ctx, pause, f.roundIsFull); err != nil {
			return nil //nolint:nilerr // the lists have ended
		}
		before := f.Finished.Ingested + f.Finished.Failed
		if err := f.finish(ctx, false); err != nil {
			return err
		}
		if pause = min(2*pause, maxRoundInterval); f.Finished.Ingested+f.Finished.Failed > before {
			pause = roundInterval
		}
	}
}

// roundIsFull reports whether the next round should begin now, so that payloads get no more
// outcomes of large lists.
func (f *manyFlow) roundIsFull() bool {
	return f.Plan.Round > 0 && len(f.Round.Large) >= f.Plan.Round
}

// finish finishes what has ended since the last round, and asks for a publish. The workflow waits
// only for that of the last round.
func (f *manyFlow) finish(ctx workflow.Context, last bool) error {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	round := f.Round
	round.Last, round.Before = last, f.Finished.Groups
	f.Round.Large = nil
	var req *activities.PublishRequest
	if !f.NoPublish {
		req = &activities.PublishRequest{Digest: f.Finished.Report}
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
	if r.Report != "" {
		f.Round.Number++
	}
	f.add(r)
	return nil
}

// add adds a round to what is finished.
func (f *manyFlow) add(r many.Finished) {
	all := &f.Finished
	all.Groups = append(all.Groups, r.Groups...)
	all.Ingested += r.Ingested
	all.Failed += r.Failed
	all.Objects += r.Objects
	all.Bytes += r.Bytes
	all.Records += r.Records
	all.Rows += r.Rows
	all.Merged += r.Merged
	all.Domains += r.Domains
	all.PartBytes += r.PartBytes
	if all.Rejected == nil {
		all.Rejected = map[string]int64{}
	}
	for _, reason := range workflow.DeterministicKeys(r.Rejected) {
		all.Rejected[reason] += r.Rejected[reason]
	}
	all.Failures = append(all.Failures, r.Failures[:min(len(r.Failures), many.MaxFailures-len(all.Failures))]...)
	all.Report = cmp.Or(r.Report, all.Report)
}

// publish waits for the version that holds all batches but those that are damaged.
func (f *manyFlow) publish(ctx workflow.Context, r *IngestManyResult) error {
	if f.steps.until.IsZero() { // the workflow was reset
		f.steps.until = workflow.Now(ctx).Add(f.steps.limit)
	}
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
			p = activities.Published{} // it was for an earlier workflow of this id
		}
		switch {
		case p.Version != "":
			r.Version = p.Version
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case f.steps.left(ctx) <= 0:
			return f.unpublished(f.steps.missed("a version held it", nil))
		}
		var look activities.Look
		if err := f.steps.run(ctx, activities.PoolControl, &look, (*activities.Control)(nil).FindMany, f.Lake, req, seen); err != nil {
			return f.unpublished(err)
		}
		seen = look.Seen
		f.Progress.Waiting, f.Progress.Updated = look.Reason, workflow.Now(ctx)
		if look.Version != "" {
			r.Version, r.Damaged, r.DamagedBatches = look.Version, look.Damaged, look.DamagedBatches
			return nil
		}
		if look.Ask {
			if err := f.steps.run(ctx, activities.PoolControl, nil, (*activities.Control)(nil).RequestPublish, f.Lake, req); err != nil {
				return f.unpublished(err)
			}
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			next := f.IngestManyInput
			next.Resume = f.IngestManyState
			return workflow.NewContinueAsNewError(ctx, IngestManyWorkflow, next)
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

// withdraw ends a cancelled ingest such that nothing of it is published, and returns its error.
func (f *manyFlow) withdraw(ctx workflow.Context) error {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	var large []activities.LargeRun
	for _, o := range f.Round.Large {
		if o.Error == "" {
			large = append(large, activities.LargeRun{DatasetID: o.DatasetID, Batch: o.Batch, Run: o.Run, Digest: o.Digest})
		}
	}
	for _, l := range f.Large {
		if l.State.Run != "" {
			large = append(large, activities.LargeRun{DatasetID: l.Outcome.DatasetID, Batch: l.Outcome.Batch, Run: l.State.Run})
		}
	}
	var w activities.Withdrawn
	if err := f.steps.each(f.steps.limit).run(
		ctx, activities.PoolControl, &w, (*activities.Control)(nil).WithdrawMany, f.Lake, f.Run, large,
	); err != nil {
		return temporal.NewNonRetryableApplicationError(fmt.Sprintf(
			"cancelled, but its datasets may still be published; reset this workflow or start it again and cancel it: %s",
			message(err)), activities.ErrPublish, nil)
	}
	f.cleanUp(ctx)
	if w.Published > 0 {
		return temporal.NewCanceledError(fmt.Sprintf("the cancellation came too late for %d datasets: version %s has them",
			w.Published, w.Version))
	}
	return temporal.NewCanceledError("nothing of the ingest is published")
}

// cleanUp removes the staging of the run and of its large lists.
func (f *manyFlow) cleanUp(ctx workflow.Context) {
	for _, l := range f.Large {
		if l.State.Run != "" {
			f.steps.cleanUp(ctx, l.State.Run)
		}
	}
	f.steps.cleanUp(ctx, f.Run)
}
