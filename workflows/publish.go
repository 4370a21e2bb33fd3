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
	// Rebuild is "all" or the id of a segment of the current version. These segments are checked
	// first, and their damaged or missing files are built again.
	Rebuild string `json:"rebuild,omitempty"`
	// Waiting are the requests that an earlier run of this workflow received and did not answer
	// before it continued as new. People leave it out.
	Waiting []activities.PublishRequest `json:"waiting,omitempty"`
}

// Published is the answer to an ingest: the version that holds its batch, or why none does.
type Published struct {
	Version string `json:"version,omitempty"`
	Error   string `json:"error,omitempty"`
}

// PublishResult is the result of a publish.
type PublishResult struct {
	// Version is the last version that the publisher made, or the current one if it made none.
	Version string `json:"version"`
	// Batches is how many batches this run added to versions. It is 0 if there was nothing new.
	Batches int `json:"batches"`
	// Rounds is the number of versions that this run made.
	Rounds int `json:"rounds"`
	// Skipped are finished batches that the version lacks because they are damaged: the first of
	// SkippedBatches.
	Skipped        []publish.Skipped `json:"skipped,omitempty"`
	SkippedBatches int               `json:"skipped_batches,omitempty"`
	// Moved says what a change of the lake's public suffix list has moved. It is nil if there was
	// none.
	Moved *MoveProgress `json:"moved,omitempty"`
	// Lost says what of the manifest and of the current version was lost when a round began, and
	// what took its place.
	Lost []string `json:"lost,omitempty"`
	// Rebuilt says what was done about damaged segments. It is nil if no rebuild was requested.
	Rebuilt *publish.Rebuilt `json:"rebuilt,omitempty"`
}

// PublishProgress answers the "progress" query.
type PublishProgress struct {
	Stage   string `json:"stage"` // rebuild, plan, move, build, verify, commit
	Batches int    `json:"batches"`
	Segment string `json:"segment,omitempty"`
	Waiting int    `json:"waiting"`
	Rounds  int    `json:"rounds"`
	// Move is nil if no batch had to be moved to another public suffix list.
	Move *MoveProgress `json:"move,omitempty"`
}

// PublishWorkflow publishes every finished batch that the current version lacks. In each round it
// builds one segment over these batches, verifies the segment, and commits a version to the
// manifest. Damaged batches are left out and named. Requests that arrive during a round are
// answered by the next one; the workflow ends when no request waits.
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
	var answering []activities.PublishRequest // the requests that the current round answers
	receive := func() {
		for {
			var req activities.PublishRequest
			if !requests.ReceiveAsync(&req) {
				return
			}
			// An ingest repeats its request when a round takes long. It gets one answer.
			if req.WorkflowID == "" || !slices.Contains(answering, req) && !slices.Contains(waiting, req) {
				waiting = append(waiting, req)
			}
		}
	}

	result := &PublishResult{}
	if in.Rebuild != "" {
		waiting = append(waiting, activities.PublishRequest{Rebuild: in.Rebuild})
	}
	for {
		receive()
		// A round answers the requests that arrived before its plan.
		answering, waiting = waiting, nil
		progress.Waiting = len(answering)
		err := in.rebuild(ctx, answering, &progress, result)
		if err == nil {
			err = in.round(ctx, &progress, result)
		}
		answer(ctx, answering, result, err)
		if err != nil {
			cleanUp(ctx, in.Lake, workflow.GetInfo(ctx).OriginalRunID)
			receive() // requests that arrived meanwhile get the error too
			answer(ctx, waiting, result, err)
			return nil, err
		}
		receive() // drops requests that were repeated during the round, since they are answered
		answering = nil
		if len(waiting) == 0 {
			cleanUp(ctx, in.Lake, workflow.GetInfo(ctx).OriginalRunID)
			receive() // requests that arrived during the clean-up need another round
			if len(waiting) == 0 {
				return result, nil
			}
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return nil, workflow.NewContinueAsNewError(ctx, PublishWorkflow, PublishInput{Lake: in.Lake, Waiting: waiting})
		}
	}
}

// rebuild repairs the segments that the requests name, each once.
func (in *PublishInput) rebuild(
	ctx workflow.Context, requests []activities.PublishRequest, progress *PublishProgress, result *PublishResult,
) error {
	var done []string
	for _, req := range requests {
		if req.Rebuild == "" || slices.Contains(done, req.Rebuild) {
			continue
		}
		done = append(done, req.Rebuild)
		progress.Stage = "rebuild"
		var rebuilt publish.Rebuilt
		opts := long(ctx, in.Lake, activities.PoolIndex)
		if err := execute(opts, &rebuilt, (*activities.Index)(nil).RebuildSegments, in.Lake, req.Rebuild); err != nil {
			return err
		}
		if result.Rebuilt == nil {
			result.Rebuilt = &publish.Rebuilt{}
		}
		result.Rebuilt.Add(rebuilt)
	}
	return nil
}

// round makes one version, or none if there is nothing new.
func (in *PublishInput) round(ctx workflow.Context, progress *PublishProgress, result *PublishResult) error {
	plan, err := in.planRound(ctx, workflow.GetInfo(ctx).OriginalRunID, progress)
	if err != nil {
		return err
	}
	result.Version, result.Skipped, result.SkippedBatches = plan.Current, plan.Skipped, plan.SkippedBatches
	result.Moved = progress.Move
	if len(plan.Lost) > 0 {
		result.Lost = plan.Lost
	}
	if plan.Nothing {
		return nil
	}
	progress.Stage, progress.Batches = "build", plan.Batches
	var built publish.Built
	opts := long(ctx, in.Lake, activities.PoolIndex)
	if err := execute(opts, &built, (*activities.Index)(nil).BuildSegment, in.Lake, plan.PlanKey); err != nil {
		return err
	}
	if built.Damaged > 0 {
		// The next plan leaves the damaged batches out.
		progress.Rounds++
		return in.round(ctx, progress, result)
	}
	progress.Stage, progress.Segment = "verify", built.Segment.ID
	opts = long(ctx, in.Lake, activities.PoolPublish)
	if err := execute(opts, nil, (*activities.Publish)(nil).VerifySegment, in.Lake, built); err != nil {
		return err
	}
	progress.Stage = "commit"
	var committed publish.Committed
	if err := workflow.ExecuteActivity(
		short(ctx, in.Lake, activities.PoolPublish), (*activities.Publish)(nil).CommitVersion, in.Lake, plan.PlanKey, built,
	).Get(ctx, &committed); err != nil {
		return err
	}
	if committed.Stale {
		// Another publisher, for example of another Temporal, committed first. Plan on its version.
		progress.Rounds++
		return in.round(ctx, progress, result)
	}
	progress.Rounds++
	result.Rounds++
	result.Batches += plan.Batches
	result.Version = committed.Version
	return setAttributes(ctx, plan.Searchable,
		activities.AttributeLake, in.Lake, activities.AttributeVersion, committed.Version)
}

// message returns the text of an activity's error without Temporal's wrapping.
func message(err error) string {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return app.Message()
	}
	return err.Error()
}

// answer signals the outcome of a round to the workflows that requested it. It ignores workflows
// that have ended meanwhile.
func answer(ctx workflow.Context, requests []activities.PublishRequest, result *PublishResult, err error) {
	outcome := func(req activities.PublishRequest) Published {
		if err != nil {
			return Published{Error: message(err)}
		}
		for _, s := range result.Skipped {
			if s.Covers(req.DatasetID, req.Batch) {
				return Published{Error: s.Reason}
			}
		}
		return Published{Version: result.Version}
	}
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	var sent []workflow.Future
	for _, req := range requests {
		if req.WorkflowID != "" {
			sent = append(sent, workflow.SignalExternalWorkflow(ctx, req.WorkflowID, req.RunID, publishedSignal, outcome(req)))
		}
	}
	for _, f := range sent {
		if err := f.Get(ctx, nil); err != nil {
			workflow.GetLogger(ctx).Info("a waiting ingest could not be signalled", "error", err)
		}
	}
}
