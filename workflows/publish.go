package workflows

import (
	"errors"
	"slices"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/indexbuild/publish"
)

// PublishInput names the lake whose finished batches are to be published.
type PublishInput struct {
	Lake string `json:"lake"`
	// Rebuild is "all" or the id of a segment of the current version: it is read first, and what is damaged or missing of it is built again.
	Rebuild string `json:"rebuild,omitempty"`
	// Waiting are requests that an earlier run of this workflow took and has not answered; people leave it out.
	Waiting []activities.PublishRequest `json:"waiting,omitempty"`
}

// Published tells an ingest that its batch is in a version, or why it is not.
type Published struct {
	Version string `json:"version,omitempty"`
	Error   string `json:"error,omitempty"`
}

// PublishResult is the last version that a publisher made or found current.
type PublishResult struct {
	Version string `json:"version"`
	// Batches were taken into new versions by this run; 0 means there was nothing new.
	Batches int `json:"batches"`
	// Rounds is the number of versions made.
	Rounds int `json:"rounds"`
	// Skipped are finished batches that the version lacks because they are damaged, the first of all SkippedBatches.
	Skipped        []publish.Skipped `json:"skipped,omitempty"`
	SkippedBatches int               `json:"skipped_batches,omitempty"`
	// Rebuilt is what was done about damaged segments; nil where nobody asked.
	Rebuilt *publish.Rebuilt `json:"rebuilt,omitempty"`
}

// PublishProgress answers the "progress" query.
type PublishProgress struct {
	Stage   string `json:"stage"` // rebuild, plan, build, verify, commit
	Batches int    `json:"batches"`
	Segment string `json:"segment,omitempty"`
	Waiting int    `json:"waiting"`
	Rounds  int    `json:"rounds"`
}

// PublishWorkflow publishes every finished batch that the current version lacks: it builds one
// segment over them, verifies it, and flips the manifest. Damaged batches are left out and named. Requests that arrive
// meanwhile are taken in the next round; the workflow ends when none is waiting.
func PublishWorkflow(ctx workflow.Context, in PublishInput) (*PublishResult, error) {
	if in.Lake == "" {
		return nil, temporal.NewNonRetryableApplicationError("a publish needs a lake", activities.ErrInput, nil)
	}
	if err := checkQueue(ctx, in.Lake); err != nil {
		return nil, err
	}
	progress := PublishProgress{Stage: "plan"}
	if err := workflow.SetQueryHandler(ctx, ProgressQuery, func() (PublishProgress, error) { return progress, nil }); err != nil {
		return nil, err
	}
	requests := workflow.GetSignalChannel(ctx, activities.PublishSignal)
	waiting := in.Waiting
	var asked []activities.PublishRequest // those whom the current round answers
	take := func() {
		for {
			var req activities.PublishRequest
			if !requests.ReceiveAsync(&req) {
				return
			}
			// An ingest asks again when a round takes long; it is answered once.
			if req.WorkflowID == "" || !slices.Contains(asked, req) && !slices.Contains(waiting, req) {
				waiting = append(waiting, req)
			}
		}
	}

	result := &PublishResult{}
	if in.Rebuild != "" {
		waiting = append(waiting, activities.PublishRequest{Rebuild: in.Rebuild})
	}
	for {
		take()
		// Whoever asked before this round's plan is answered by this round.
		asked, waiting = waiting, nil
		progress.Waiting = len(asked)
		err := in.rebuild(ctx, asked, &progress, result)
		if err == nil {
			err = in.round(ctx, &progress, result)
		}
		tell(ctx, asked, result, err)
		if err != nil {
			cleanUp(ctx, in.Lake, workflow.GetInfo(ctx).OriginalRunID)
			take() // a failed publisher answers those too who asked meanwhile
			tell(ctx, waiting, result, err)
			return nil, err
		}
		take() // asks repeated during the round are answered already
		asked = nil
		if len(waiting) == 0 {
			cleanUp(ctx, in.Lake, workflow.GetInfo(ctx).OriginalRunID)
			take() // who asked during the clean-up is not left without an answer
			if len(waiting) == 0 {
				return result, nil
			}
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return nil, workflow.NewContinueAsNewError(ctx, PublishWorkflow, PublishInput{Lake: in.Lake, Waiting: waiting})
		}
	}
}

// rebuild does what asked want rebuilt.
func (in *PublishInput) rebuild(ctx workflow.Context, asked []activities.PublishRequest, progress *PublishProgress, result *PublishResult) error {
	var done []string
	for _, req := range asked {
		if req.Rebuild == "" || slices.Contains(done, req.Rebuild) {
			continue
		}
		done = append(done, req.Rebuild)
		progress.Stage = "rebuild"
		var rebuilt publish.Rebuilt
		if err := workflow.ExecuteActivity(long(ctx, in.Lake, activities.PoolIndex), (*activities.Index)(nil).RebuildSegments, in.Lake, req.Rebuild).Get(ctx, &rebuilt); err != nil {
			return err
		}
		if result.Rebuilt == nil {
			result.Rebuilt = &publish.Rebuilt{}
		}
		result.Rebuilt.Add(rebuilt)
	}
	return nil
}

// round makes one version, or finds that there is nothing new.
func (in *PublishInput) round(ctx workflow.Context, progress *PublishProgress, result *PublishResult) error {
	progress.Stage, progress.Segment = "plan", ""
	run := workflow.GetInfo(ctx).OriginalRunID
	var plan publish.Summary
	if err := workflow.ExecuteActivity(short(ctx, in.Lake, activities.PoolPublish), (*activities.Publish)(nil).PlanPublish, in.Lake, run, progress.Rounds).Get(ctx, &plan); err != nil {
		return err
	}
	result.Version, result.Skipped, result.SkippedBatches = plan.Current, plan.Skipped, plan.SkippedBatches
	if plan.Nothing {
		return nil
	}
	progress.Stage, progress.Batches = "build", plan.Batches
	var built publish.Built
	if err := workflow.ExecuteActivity(long(ctx, in.Lake, activities.PoolIndex), (*activities.Index)(nil).BuildSegment, in.Lake, plan.PlanKey).Get(ctx, &built); err != nil {
		return err
	}
	if built.Damaged > 0 {
		// The next plan leaves out what was found.
		progress.Rounds++
		return in.round(ctx, progress, result)
	}
	progress.Stage, progress.Segment = "verify", built.Segment.ID
	if err := workflow.ExecuteActivity(long(ctx, in.Lake, activities.PoolPublish), (*activities.Publish)(nil).VerifySegment, in.Lake, built).Get(ctx, nil); err != nil {
		return err
	}
	progress.Stage = "commit"
	var committed publish.Committed
	if err := workflow.ExecuteActivity(short(ctx, in.Lake, activities.PoolPublish), (*activities.Publish)(nil).CommitVersion, in.Lake, plan.PlanKey, built).Get(ctx, &committed); err != nil {
		return err
	}
	if committed.Stale {
		// Another publisher came first, by hand or from elsewhere: plan on what it left.
		progress.Rounds++
		return in.round(ctx, progress, result)
	}
	progress.Rounds++
	result.Rounds++
	result.Batches += plan.Batches
	result.Version = committed.Version
	return nil
}

// message is what an activity said, without Temporal's wrapping.
func message(err error) string {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return app.Message()
	}
	return err.Error()
}

// tell answers everyone who waits. One that has ended meanwhile is not an error.
func tell(ctx workflow.Context, asked []activities.PublishRequest, result *PublishResult, err error) {
	answer := func(req activities.PublishRequest) Published {
		if err != nil {
			return Published{Error: message(err)}
		}
		for _, s := range result.Skipped {
			if s.DatasetID == req.DatasetID && s.Batch == req.Batch {
				return Published{Error: s.Reason}
			}
		}
		return Published{Version: result.Version}
	}
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	var sent []workflow.Future
	for _, req := range asked {
		if req.WorkflowID != "" {
			sent = append(sent, workflow.SignalExternalWorkflow(ctx, req.WorkflowID, req.RunID, publishedSignal, answer(req)))
		}
	}
	for _, f := range sent {
		if err := f.Get(ctx, nil); err != nil {
			workflow.GetLogger(ctx).Info("a waiting ingest could not be told", "error", err)
		}
	}
}
