package workflows

import (
	"cmp"
	"errors"
	"time"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/publish"
)

// CompactInput says which lake to compact.
type CompactInput struct {
	Lake string `json:"lake"`
	publish.Compaction
	// Deadline is how long the compaction may take, as in ingest.Spec.
	Deadline string `json:"deadline,omitempty"`
	// Result is what an earlier run did before it continued as new, Staging the run whose staging
	// it goes on with. People leave them out.
	Result  *CompactResult `json:"result,omitempty"`
	Staging string         `json:"staging,omitempty"`
}

// CompactResult is the result of a compaction.
type CompactResult struct {
	// Version is the last version that the compaction made, or the current one if it made none.
	Version string `json:"version"`
	// Rounds is the number of versions that it made.
	Rounds int `json:"rounds"`
	// Segments is the number of segments that were merged, Batches and Rows what they covered.
	Segments int   `json:"segments"`
	Batches  int   `json:"batches"`
	Rows     int64 `json:"rows"`
	// Unions is the number of unions of batches that the versions have got, with Parts parts of
	// Bytes bytes in the place of parts of From bytes.
	Unions int   `json:"unions"`
	Parts  int64 `json:"parts"`
	Bytes  int64 `json:"bytes"`
	From   int64 `json:"from"`
	// Dropped is the number of rows that the versions lack because takedowns hide them.
	Dropped int64 `json:"dropped,omitempty"`
}

// CompactProgress answers the "progress" query.
type CompactProgress struct {
	Stage string `json:"stage"` // plan, rewrite, build, verify, commit
	// Done of Tasks tasks of the stage are done. Both are 0 in stages that are one step.
	Tasks int `json:"tasks,omitempty"`
	Done  int `json:"done,omitempty"`
	CompactResult
}

// CompactWorkflow merges the small segments of a lake, and the small parts of its datasets, until
// there is nothing more to merge by the rule of publish.ChooseSegments, and no segment has rows
// that takedowns hide; or all of them, once, if the input asks for that. It runs beside ingests,
// publishes, readers and garbage collections: when a publish comes first with something that the
// compaction was to replace, it plans again.
func CompactWorkflow(ctx workflow.Context, in CompactInput) (*CompactResult, error) {
	if in.Lake == "" {
		return nil, temporal.NewNonRetryableApplicationError("a compaction needs a lake", activities.ErrInput, nil)
	}
	if err := checkQueue(ctx, in.Lake); err != nil {
		return nil, err
	}
	s, err := newSteps(ctx, in.Lake, in.Deadline)
	if err != nil {
		return nil, err
	}
	s = s.inBackground()
	// Building is what a publish does, without requests.
	f := &publishFlow{PublishInput: PublishInput{Lake: in.Lake}, steps: s, own: workflow.GetInfo(ctx).WorkflowExecution.RunID}
	f.Staging = cmp.Or(in.Staging, f.own)
	out := cmp.Or(in.Result, &CompactResult{})
	var unions publish.Rewritten
	if err := workflow.SetQueryHandler(ctx, ProgressQuery, func() (CompactProgress, error) {
		return CompactProgress{f.progress.Stage, f.progress.Tasks, f.progress.Done, *out}, nil
	}); err != nil {
		return nil, err
	}
	again := false // as another run
	defer func() {
		if !again {
			f.cleanUp(ctx)
		}
	}()
	for round, pause := 0, time.Duration(0); ; round++ {
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			in.Result, in.Staging, again = out, f.Staging, true
			return nil, workflow.NewContinueAsNewError(ctx, CompactWorkflow, in)
		}
		f.progress.Stage = "plan"
		var plan publish.Summary
		if err := s.run(ctx, activities.PoolPublish, &plan, (*activities.Publish)(nil).PlanCompaction,
			in.Lake, f.Staging, round, in.Compaction); err != nil {
			return nil, err
		}
		out.Version = plan.Current
		if plan.Nothing {
			return out, nil
		}
		if plan.RewriteTasks > 0 {
			if err := f.rewrite(ctx, &plan, &unions); err != nil {
				return nil, err
			}
			continue
		}
		committed, err := f.buildAndCommit(ctx, &plan)
		if err != nil {
			return nil, err
		}
		if committed.Version == "" { // stale, or with damage that the next plan leaves out
			if pause > 0 {
				if err := workflow.Sleep(ctx, pause); err != nil {
					return nil, err
				}
			}
			pause = min(maxPause, max(2*pause, time.Second))
			continue
		}
		pause = 0
		out.Version = committed.Version
		out.Rounds++
		out.Segments += plan.Segments
		out.Batches += plan.Covered
		out.Rows += plan.Rows
		out.Unions += plan.Unions
		out.Dropped += plan.Dropped
		out.Parts, out.Bytes, out.From = out.Parts+unions.Parts, out.Bytes+unions.Bytes, out.From+unions.From
		unions = publish.Rewritten{}
		if in.Full {
			return out, nil
		}
	}
}

// buildAndCommit does what follows the plan of a compaction. The result names no version if another
// plan is needed.
func (f *publishFlow) buildAndCommit(ctx workflow.Context, plan *publish.Summary) (activities.Committed, error) {
	built, again, err := f.build(ctx, plan)
	if again || err != nil {
		return activities.Committed{}, err
	}
	f.progress.Stage = "commit"
	var committed activities.Committed
	err = f.steps.run(ctx, activities.PoolPublish, &committed, (*activities.Publish)(nil).CommitVersion,
		f.Lake, plan.PlanKey, built, activities.Answers{})
	return committed, err
}

// rewrite runs all tasks of a list of parts to write. If the history becomes long, it may leave
// some; the next plan asks for them again.
func (f *publishFlow) rewrite(ctx workflow.Context, plan *publish.Summary, sum *publish.Rewritten) error {
	f.progress.Stage, f.progress.Tasks, f.progress.Done = "rewrite", plan.RewriteTasks, 0
	defer func() { f.progress.Tasks, f.progress.Done = 0, 0 }()
	_, err := fanOut(ctx, plan.Window, 0, plan.RewriteTasks, func(ctx workflow.Context, task int) error {
		var r publish.Rewritten
		if err := f.steps.move(
			ctx, activities.PoolWrite, &r, (*activities.Write)(nil).RewriteParts, f.Lake, plan.RewriteKey, task,
		); err != nil {
			return err
		}
		f.progress.Done++
		sum.Add(&r)
		return nil
	})
	return err
}

// compactAfter starts the workflow that compacts the lake if a version needs it, and does not wait
// for it. A compaction that runs already goes on until nothing is left to do.
func (f *publishFlow) compactAfter(ctx workflow.Context, c *publish.Committed) {
	if !c.Compact {
		return
	}
	child := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID:            activities.CompactorID(f.Lake),
		TaskQueue:             activities.TaskQueue(f.Lake, activities.PoolControl),
		ParentClosePolicy:     enums.PARENT_CLOSE_POLICY_ABANDON,
		WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		Memo:                  map[string]any{"lake": f.Lake},
	})
	err := workflow.ExecuteChildWorkflow(child, CompactWorkflow, CompactInput{Lake: f.Lake}).
		GetChildWorkflowExecution().Get(ctx, nil)
	var running *temporal.ChildWorkflowExecutionAlreadyStartedError
	if err != nil && !errors.As(err, &running) {
		workflow.GetLogger(ctx).Warn("the compaction was not started", "error", err)
	}
}
