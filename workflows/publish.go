package workflows

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/publish"
)

// PublishInput names the lake whose finished batches are to be published.
type PublishInput struct {
	Lake string `json:"lake"`
	// Waiting are the requests that an earlier run of this workflow received and did not answer
	// before it continued as new. People leave it out.
	Waiting []activities.PublishRequest `json:"waiting,omitempty"`
	// Deadline is how long a round may take, as in ingest.Spec. A request can ask for another.
	Deadline string `json:"deadline,omitempty"`
	// Result is what an earlier run did before it continued as new. People leave it out.
	Result *PublishResult `json:"result,omitempty"`
	// Staging is the run whose staging an unfinished round continues with: it has the outcomes of
	// moves, and the batches that builds found damaged. People leave it out.
	Staging string `json:"staging,omitempty"`
}

// PublishResult is the result of a publish.
type PublishResult struct {
	// Version is the last version that the publisher made, or the current one if it made none.
	Version string `json:"version"`
	// Batches is how many batches this run added to versions. It is 0 if there was nothing new.
	Batches int `json:"batches"`
	// Removed is how many retired batches this run took out of versions.
	Removed int `json:"removed,omitempty"`
	// Rounds is the number of versions that this run made.
	Rounds int `json:"rounds"`
	// Skipped are finished batches that the version lacks because they are damaged: the first of
	// SkippedBatches.
	Skipped        []publish.Skipped `json:"skipped,omitempty"`
	SkippedBatches int               `json:"skipped_batches,omitempty"`
	// Moved says what a change of the lake's public suffix list has moved. It is nil if there was
	// none.
	Moved *publish.Rewritten `json:"moved,omitempty"`
	// Lost says what of the manifest and of the current version was lost when a round began, and
	// what took its place.
	Lost []string `json:"lost,omitempty"`
}

// PublishProgress answers the "progress" query.
type PublishProgress struct {
	Stage   string `json:"stage"` // plan, rewrite, build, verify, commit
	Batches int    `json:"batches"`
	Waiting int    `json:"waiting"`
	Rounds  int    `json:"rounds"`
	// Tasks is how many tasks the stage has that several workers share, Done how many of them are
	// done. Both are 0 in stages that are one step.
	Tasks int `json:"tasks,omitempty"`
	Done  int `json:"done,omitempty"`
}

// publishFlow is one run of PublishWorkflow.
type publishFlow struct {
	PublishInput
	// own is the run of the workflow. It differs from Staging if that is of an earlier run.
	own      string
	steps    steps
	progress PublishProgress
	result   *PublishResult
	requests workflow.ReceiveChannel
	// answering are the requests that the current round answers, waiting those that arrived since.
	// known has both.
	answering, waiting []activities.PublishRequest
	known              map[activities.PublishRequest]bool
	// told says that the commit of the round has answered its requests.
	told bool
	// tell is how many requests one step answers.
	tell int
}

// PublishWorkflow publishes every finished batch that the current version lacks. In each round it
// builds a segment over these batches, or several if they are large, verifies them, and commits a
// version to the manifest. Damaged batches are left out and named. Requests that arrive during a
// round are answered by the next one; the workflow ends when no request waits.
//
// A round that fails fails nobody's ingest: ingests look for their version themselves, and one of
// them starts the publisher again.
func PublishWorkflow(ctx workflow.Context, in PublishInput) (*PublishResult, error) {
	if in.Lake == "" {
		return nil, temporal.NewNonRetryableApplicationError("a publish needs a lake", activities.ErrInput, nil)
	}
	if err := checkQueue(ctx, in.Lake); err != nil {
		return nil, err
	}
	s, err := newSteps(ctx, in.Lake, in.Deadline)
	if err != nil {
		return nil, err
	}
	f := &publishFlow{
		PublishInput: in, steps: s, progress: PublishProgress{Stage: "plan"}, result: cmp.Or(in.Result, &PublishResult{}),
		requests: workflow.GetSignalChannel(ctx, activities.PublishSignal),
		waiting:  in.Waiting, known: map[activities.PublishRequest]bool{},
	}
	info := workflow.GetInfo(ctx)
	// The id of the original run survives a reset. The test environment of the SDK has none.
	f.own = cmp.Or(info.OriginalRunID, info.WorkflowExecution.RunID)
	f.Staging = cmp.Or(f.Staging, f.own)
	for _, req := range in.Waiting {
		f.known[req] = true
	}
	if err := workflow.SetQueryHandler(ctx, ProgressQuery, func() (PublishProgress, error) { return f.progress, nil }); err != nil {
		return nil, err
	}
	return f.serve(ctx)
}

// receive takes the requests that have arrived. An ingest repeats its request when a round takes
// long; it gets one answer.
func (f *publishFlow) receive() {
	for {
		var req activities.PublishRequest
		if !f.requests.ReceiveAsync(&req) {
			return
		}
		if req.WorkflowID == "" || !f.known[req] {
			f.known[req] = true
			f.waiting = append(f.waiting, req)
		}
	}
}

// serve makes rounds until no request waits.
func (f *publishFlow) serve(ctx workflow.Context) (*PublishResult, error) {
	for {
		f.receive()
		// A round answers the requests that arrived before its plan.
		f.answering, f.waiting = f.waiting, nil
		f.progress.Waiting = len(f.answering)
		f.steps = f.steps.each(f.limit())
		f.steps.until = workflow.Now(ctx).Add(f.steps.limit)
		err := f.round(ctx)
		if errors.Is(err, errLongHistory) {
			if err = f.continueRound(ctx); workflow.IsContinueAsNewError(err) {
				return nil, err
			}
		}
		if !f.told {
			f.answer(ctx, f.answering, err)
		}
		f.told = false
		if err != nil {
			f.tidy(ctx)
			f.receive() // requests that arrived meanwhile get the error too
			f.answer(ctx, f.waiting, err)
			return nil, err
		}
		f.receive() // drops requests that were repeated during the round, since they are answered
		f.answering = nil
		clear(f.known)
		for _, req := range f.waiting {
			f.known[req] = true
		}
		if len(f.waiting) == 0 {
			ended := f.tidyUntilAsked(ctx)
			f.receive() // requests that arrived during the clean-up need another round
			switch {
			case !ended:
				return nil, f.continueAsNew(ctx, "")
			case len(f.waiting) == 0:
				return f.result, nil
			}
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			f.cleanUp(ctx)
			f.receive()
			return nil, f.continueAsNew(ctx, "")
		}
	}
}

// limit returns how long the round may take: the longest time that somebody asked for.
func (f *publishFlow) limit() time.Duration {
	var limit time.Duration
	for _, req := range f.answering {
		asked := cmp.Or(req.Deadline, f.Deadline)
		if d, err := ingest.ParseDeadline(asked); err == nil {
			limit = max(limit, d)
		}
	}
	if limit == 0 {
		limit, _ = ingest.ParseDeadline(f.Deadline) // newSteps has checked it
	}
	return limit
}

// continueRound returns the error that continues the workflow, in the middle of a round, with an
// empty history. The next run needs the staging: without it a round that is longer than a history
// would begin again and again. A workflow that is cancelled meanwhile ends instead.
func (f *publishFlow) continueRound(ctx workflow.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if f.own != f.Staging {
		f.steps.cleanUp(ctx, f.own) // markers of the steps of this run
	}
	f.receive() // also what arrived during the clean-up
	return f.continueAsNew(ctx, f.Staging)
}

// cleanUp removes the publisher's staging.
func (f *publishFlow) cleanUp(ctx workflow.Context) {
	f.steps.cleanUp(ctx, f.Staging)
	if f.own != f.Staging {
		f.steps.cleanUp(ctx, f.own)
	}
}

// tidyUntilAsked tidies until that has ended, or a request has arrived, and reports whether it has
// ended. A worker that stops may lose a step that was on the way to it, so that tidying takes until
// the heartbeat timeout. The publisher then continues as new, with other staging. A sweep removes
// what is left of this one.
func (f *publishFlow) tidyUntilAsked(ctx workflow.Context) (ended bool) {
	workflow.Go(ctx, func(ctx workflow.Context) {
		f.tidy(ctx)
		ended = true
	})
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	if err := workflow.Await(ctx, func() bool { return ended || f.requests.Len() > 0 }); err != nil {
		workflow.GetLogger(ctx).Warn("tidying was not awaited", "error", err)
	}
	return ended
}

// tidy removes the publisher's staging, and that of runs that nobody will continue.
func (f *publishFlow) tidy(ctx workflow.Context) {
	f.cleanUp(ctx)
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	if err := f.steps.each(tidyLimit).run(
		ctx, activities.PoolControl, nil, (*activities.Control)(nil).SweepStaging, f.Lake,
	); err != nil {
		workflow.GetLogger(ctx).Warn("staging was not swept", "error", err)
	}
}

// maxWaiting is how many bytes of requests a run passes on to the next: half of what a payload may
// have. The ingests of the others look for their version, and ask again.
const maxWaiting = 1 << 20

// continueAsNew returns the error that continues the workflow with an empty history.
func (f *publishFlow) continueAsNew(ctx workflow.Context, staging string) error {
	next := PublishInput{Lake: f.Lake, Deadline: f.Deadline, Staging: staging, Result: f.result}
	bytes := 0
	for _, req := range slices.Concat(f.answering, f.waiting) {
		if bytes += requestBytes(req); bytes > maxWaiting {
			break
		}
		next.Waiting = append(next.Waiting, req)
	}
	return workflow.NewContinueAsNewError(ctx, PublishWorkflow, next)
}

// requestBytes is the size of a request in a payload, at most.
func requestBytes(r activities.PublishRequest) int {
	return 160 + 2*(len(r.WorkflowID)+len(r.RunID)+len(r.Batch)+len(r.Digest)+len(r.Deadline))
}

// errLongHistory says that the round has to go on with an empty history.
var errLongHistory = errors.New("the history is long")

// maxPause is the longest pause between two plans of a round.
const maxPause = time.Minute

// round makes one version, or none if there is nothing new. It plans again if a build finds damaged
// batches, which the next plan leaves out, or if another publisher, for example of another
// Temporal, commits first.
func (f *publishFlow) round(ctx workflow.Context) error {
	for pause := time.Duration(0); ; pause = min(maxPause, max(2*pause, time.Second)) {
		again, err := f.version(ctx)
		if err != nil || !again {
			return err
		}
		f.progress.Rounds++
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return errLongHistory
		}
		if pause > 0 {
			if err := workflow.Sleep(ctx, pause); err != nil {
				return err
			}
		}
	}
}

// planRound plans a round. If the plan needs parts that are not there, such as batches by another
// public suffix list, it has them written first and then plans again.
func (f *publishFlow) planRound(ctx workflow.Context, run string) (publish.Summary, error) {
	for {
		f.progress.Stage = "plan"
		var plan publish.Summary
		if err := f.steps.run(
			ctx, activities.PoolPublish, &plan, (*activities.Publish)(nil).PlanPublish, f.Lake, run, f.progress.Rounds,
		); err != nil || plan.RewriteTasks == 0 {
			return plan, err
		}
		var done publish.Rewritten
		if err := f.rewrite(ctx, &plan, &done); err != nil {
			return publish.Summary{}, err
		}
		if done.Batches > 0 {
			done.Add(cmp.Or(f.result.Moved, &publish.Rewritten{}))
			f.result.Moved = &done
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return publish.Summary{}, errLongHistory // some may be left
		}
	}
}

// version plans, builds, verifies and commits one version, if there is something new. It reports
// whether to plan again.
func (f *publishFlow) version(ctx workflow.Context) (again bool, err error) {
	plan, err := f.planRound(ctx, f.Staging)
	if err != nil {
		return false, err
	}
	f.tell = plan.Tell
	f.result.Version, f.result.Skipped, f.result.SkippedBatches = plan.Current, plan.Skipped, plan.SkippedBatches
	if len(plan.Lost) > 0 {
		f.result.Lost = plan.Lost
	}
	if plan.Nothing {
		return false, nil
	}
	f.progress.Batches = plan.Batches
	built, again, err := f.build(ctx, &plan)
	if again || err != nil {
		return again, err
	}
	f.progress.Stage = "commit"
	var committed activities.Committed
	var tell activities.Answers
	if all := f.toTell(f.answering); len(all) <= plan.Tell {
		tell = activities.Answers{Requests: all, Skipped: f.result.Skipped}
	}
	if err := f.steps.run(
		ctx, activities.PoolPublish, &committed, (*activities.Publish)(nil).CommitVersion, f.Lake, plan.PlanKey, built, tell,
	); err != nil {
		return false, err
	}
	if committed.Stale {
		return true, nil
	}
	f.told = committed.Told
	f.progress.Rounds++
	f.result.Rounds++
	f.result.Batches += plan.Batches
	f.result.Removed += plan.Removed
	f.result.Version = committed.Version
	f.compactAfter(ctx, &committed.Committed)
	return false, setAttributes(ctx, plan.Searchable,
		activities.AttributeLake, f.Lake, activities.AttributeVersion, committed.Version)
}

// errDamaged says that a task has found damaged batches, which the next plan leaves out.
var errDamaged = errors.New("damaged batches")

// build builds and verifies the segments of a plan, each in an activity of its own, so that several
// workers share them. It reports whether to plan again.
func (f *publishFlow) build(ctx workflow.Context, plan *publish.Summary) (built publish.Built, again bool, err error) {
	defer func() { f.progress.Tasks, f.progress.Done = 0, 0 }()
	tasks := make([]publish.Built, max(plan.Builds, 1))
	f.progress.Stage, f.progress.Tasks, f.progress.Done = "build", len(tasks), 0
	err = all(ctx, plan.Window, len(tasks), func(ctx workflow.Context, i int) error {
		err := f.steps.move(
			ctx, activities.PoolIndex, &tasks[i], (*activities.Index)(nil).BuildSegment, f.Lake, plan.PlanKey, i,
		)
		if err == nil && tasks[i].Damaged > 0 {
			return errDamaged
		}
		f.progress.Done++
		return err
	})
	if err != nil {
		if errors.Is(err, errDamaged) {
			return publish.Built{}, true, nil
		}
		return publish.Built{}, false, err
	}
	f.progress.Stage, f.progress.Done = "verify", 0
	err = all(ctx, plan.Window, len(tasks), func(ctx workflow.Context, i int) error {
		err := f.steps.move(ctx, activities.PoolPublish, nil, (*activities.Publish)(nil).VerifySegment, f.Lake, tasks[i])
		f.progress.Done++
		return err
	})
	return publish.Join(tasks), false, err
}

// toTell returns the requests of those that wait for an answer.
func (f *publishFlow) toTell(requests []activities.PublishRequest) []activities.PublishRequest {
	return slices.DeleteFunc(slices.Clone(requests), func(r activities.PublishRequest) bool { return r.WorkflowID == "" })
}

// answer tells the workflows that requested a round about it. It ignores workflows that have ended
// meanwhile, and does not mention a round that failed.
func (f *publishFlow) answer(ctx workflow.Context, requests []activities.PublishRequest, err error) {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	if err != nil {
		return
	}
	for some := range slices.Chunk(f.toTell(requests), max(f.tell, 1)) {
		if err := f.steps.each(tidyLimit).run(
			ctx, activities.PoolControl, nil, (*activities.Control)(nil).TellIngests, f.Lake, some, f.result.Skipped,
		); err != nil {
			workflow.GetLogger(ctx).Info("waiting ingests could not be told", "error", err)
		}
	}
}
