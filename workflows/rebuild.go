package workflows

import (
	"cmp"
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/publish"
)

// RebuildInput names the lake that is rebuilt.
type RebuildInput struct {
	Lake string `json:"lake"`
	// Deadline is how long the rebuild may take, as in ingest.Spec.
	Deadline string `json:"deadline,omitempty"`

	problem string // see UnmarshalJSON
}

// RebuildResult is the result of a rebuild.
type RebuildResult struct {
	publish.Rebuilt
	// Published is what the rebuild published afterwards: batches that waited.
	Published *PublishResult `json:"published,omitempty"`
}

// RebuildProgress answers the "progress" query.
type RebuildProgress struct {
	Stage string `json:"stage"` // restore, inspect, plan, build, verify, commit, publish, done
	// Done of Tasks tasks of the stage are done. Both are 0 in stages that are one step.
	Tasks int `json:"tasks,omitempty"`
	Done  int `json:"done,omitempty"`
}

// RebuildWorkflow makes a version of the batches of a lake whose records and parts are whole. Lost
// postings are extracted from parts, damaged segments are built again, and lost documents of the
// registry and the manifest are made of what other documents tell. The result names what is lost.
// Then it publishes the batches that wait.
//
// Its staging is removed when it ends. After a failure of the deadline it begins anew.
func RebuildWorkflow(ctx workflow.Context, in RebuildInput) (*RebuildResult, error) {
	if in.problem != "" {
		return nil, temporal.NewNonRetryableApplicationError("the input of the rebuild: "+in.problem, activities.ErrInput, nil)
	}
	if in.Lake == "" {
		return nil, temporal.NewNonRetryableApplicationError("a rebuild needs a lake", activities.ErrInput, nil)
	}
	if err := checkQueue(ctx, in.Lake); err != nil {
		return nil, err
	}
	s, err := newSteps(ctx, in.Lake, in.Deadline)
	if err != nil {
		return nil, err
	}
	s = s.inBackground()
	info := workflow.GetInfo(ctx)
	f := &publishFlow{PublishInput: PublishInput{Lake: in.Lake}, steps: s, result: &PublishResult{}}
	f.own = cmp.Or(info.OriginalRunID, info.WorkflowExecution.RunID)
	f.Staging = f.own
	if err := workflow.SetQueryHandler(ctx, ProgressQuery, func() (RebuildProgress, error) {
		return RebuildProgress{f.progress.Stage, f.progress.Tasks, f.progress.Done}, nil
	}); err != nil {
		return nil, err
	}
	defer f.cleanUp(ctx)
	out := &RebuildResult{}
	if out.Rebuilt, err = f.rebuild(ctx); err != nil {
		return nil, err
	}
	// A publish that follows goes on with what a long history leaves.
	if err := f.round(ctx); err != nil && !errors.Is(err, errLongHistory) {
		return nil, err
	}
	out.Version = cmp.Or(f.result.Version, out.Version)
	if f.result.Rounds > 0 || f.result.SkippedBatches > 0 {
		out.Published = f.result
	}
	f.progress.Stage = StageDone
	return out, nil
}

// rebuild makes the version of what is whole.
func (f *publishFlow) rebuild(ctx workflow.Context) (out publish.Rebuilt, err error) {
	f.progress.Stage = "restore"
	var tasks activities.RebuildTasks
	if err := f.steps.run(ctx, activities.PoolBackground, &tasks, (*activities.Publish)(nil).StartRebuild, f.Lake, f.Staging); err != nil {
		return out, err
	}
	f.progress.Stage, f.progress.Tasks = "inspect", tasks.Tasks
	if err := all(ctx, tasks.Window, tasks.Tasks, func(ctx workflow.Context, i int) error {
		err := f.steps.move(ctx, activities.PoolIndex, nil, (*activities.Index)(nil).InspectForRebuild, f.Lake, f.Staging, i)
		f.progress.Done++
		return err
	}); err != nil {
		return out, err
	}
	f.progress.Tasks, f.progress.Done = 0, 0
	for round, pause := 0, time.Duration(0); ; round++ {
		f.progress.Stage = "plan"
		var plan activities.RebuildPlan
		if err := f.steps.run(
			ctx, activities.PoolPublish, &plan, (*activities.Publish)(nil).PlanRebuild, f.Lake, f.Staging, round,
		); err != nil || plan.Nothing {
			return plan.Rebuilt, err
		}
		if plan.RewriteTasks > 0 {
			if err := f.rewrite(ctx, &plan.Summary, &publish.Rewritten{}); err != nil {
				return out, err
			}
			continue
		}
		committed, err := f.buildAndCommit(ctx, &plan.Summary)
		if err != nil {
			return out, err
		}
		if committed.Version == "" { // stale, or with damage that the next plan leaves out
			if pause > 0 {
				if err := workflow.Sleep(ctx, pause); err != nil {
					return out, err
				}
			}
			pause = min(maxPause, max(2*pause, time.Second))
			continue
		}
		pause = 0
		f.compactAfter(ctx, &committed.Committed)
	}
}

// all runs step for every index below n. Plans bound n, so that no history is too long.
func all(ctx workflow.Context, window, n int, step func(ctx workflow.Context, i int) error) error {
	for next := 0; next < n; {
		done, err := fanOut(ctx, window, next, n, step)
		if err != nil {
			return err
		}
		if done == next { // the history is long; the steps that are left are few
			if err := step(at(ctx, next, n), next); err != nil {
				return err
			}
			done++
		}
		next = done
	}
	return nil
}
