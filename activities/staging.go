package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/urlake/urlake/lake/ingest"
)

const (
	// keepFailed is how long the staging of a failed workflow is kept, so that the same ingest or a
	// reset continues it.
	keepFailed = 7 * 24 * time.Hour

	// keepEnded is how long the staging of a workflow is kept that was terminated, or did not clean
	// up. A reset terminates a workflow before it continues it.
	keepEnded = time.Hour
)

// claim makes the calling workflow the owner of a run's staging, and returns the run: its own, or
// that of an earlier workflow that failed before it finished the same ingest.
func (c *Control) claim(ctx context.Context, spec ingest.Spec, run string) (string, error) {
	owner, err := c.owner(ctx)
	if err != nil {
		return "", err
	}
	return ingest.Claim(ctx, c.Store, run, spec, owner, func(ctx context.Context, other ingest.Owner) (bool, error) {
		if other.Namespace != owner.Namespace {
			return false, nil // nobody here knows its workflow
		}
		e, err := c.newest(ctx, other.WorkflowID)
		return err == nil && !open(e), err
	})
}

// CleanUp removes a run's staging. It refuses to remove that of another workflow.
func (c *Control) CleanUp(ctx context.Context, lakeURL, run string) error {
	if err := c.check(lakeURL); err != nil {
		return err
	}
	_, err := withHeartbeat(ctx, c.Memory, smallMemory, func(ctx context.Context, _ func(any)) (struct{}, error) {
		owner, ok, err := ingest.ReadOwner(ctx, c.Store, run)
		if err != nil {
			return struct{}{}, err
		}
		if id := activity.GetInfo(ctx).WorkflowExecution.ID; ok && owner.WorkflowID != id {
			return struct{}{}, temporal.NewNonRetryableApplicationError(
				fmt.Sprintf("the staging of run %s belongs to workflow %s, not to %s", run, owner.WorkflowID, id), ErrInput, nil)
		}
		return struct{}{}, ingest.Cleanup(ctx, c.Store, run)
	})
	return err
}

// SweepStaging removes the staging of runs that nobody will continue: those of workflows that were
// terminated, were lost with Temporal, or failed long ago. It is tried once, unless its worker
// stops or dies: the next publish sweeps again.
func (c *Control) SweepStaging(ctx context.Context, lakeURL string) (ingest.Swept, error) {
	if err := c.check(lakeURL); err != nil {
		return ingest.Swept{}, err
	}
	swept, err := withHeartbeat(ctx, c.Memory, smallMemory, func(ctx context.Context, _ func(any)) (ingest.Swept, error) {
		return c.sweep(ctx, ingest.SweepOptions{Interval: ingest.SweepInterval})
	})
	var typed *temporal.ApplicationError // for example that the worker stops
	if err == nil || ctx.Err() != nil || temporal.IsCanceledError(err) || errors.As(err, &typed) {
		return swept, err
	}
	return swept, temporal.NewNonRetryableApplicationError(err.Error(), errSweep, nil)
}

// sweep removes the staging of runs that nobody will continue.
func (c *Control) sweep(ctx context.Context, opt ingest.SweepOptions) (ingest.Swept, error) {
	self, err := c.owner(ctx)
	if err != nil {
		return ingest.Swept{}, err
	}
	now := time.Now()
	return ingest.Sweep(ctx, c.Store, now, opt, func(ctx context.Context, run string, o ingest.Owner, ok bool) (ingest.RunState, error) {
		var e *workflow.WorkflowExecutionInfo
		var err error
		switch {
		case ok && o.Namespace != self.Namespace:
			return ingest.RunUnknown, nil
		case ok:
			e, err = c.newest(ctx, o.WorkflowID)
		default:
			// That of a publish: the folder is named by the workflow's run.
			e, err = c.newestOf(ctx, run)
		}
		if err != nil {
			return ingest.RunUnknown, err
		}
		return runState(e, now), nil
	}, ingest.Cleanup)
}

// errSweep is the type of the error of a sweep that failed.
const errSweep = "SweepError"

// runState returns the state of a run from its workflow's newest execution. It is nil if Temporal
// does not have it any more: it may have failed, and Temporal may forget sooner than keepFailed.
func runState(e *workflow.WorkflowExecutionInfo, now time.Time) ingest.RunState {
	switch {
	case e == nil:
		return ingest.RunUnknown
	case open(e):
		return ingest.RunLive
	}
	keep := keepEnded
	switch e.GetStatus() {
	case enums.WORKFLOW_EXECUTION_STATUS_FAILED, enums.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		keep = keepFailed
	}
	if now.Sub(e.GetCloseTime().AsTime()) < keep {
		return ingest.RunLive
	}
	return ingest.RunOver
}

// open reports whether a workflow is running.
func open(e *workflow.WorkflowExecutionInfo) bool {
	switch e.GetStatus() {
	case enums.WORKFLOW_EXECUTION_STATUS_RUNNING, enums.WORKFLOW_EXECUTION_STATUS_PAUSED,
		enums.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW:
		return true
	}
	return false
}

// owner returns the workflow that called the activity, as the owner of staging.
func (c *Control) owner(ctx context.Context) (ingest.Owner, error) {
	info := activity.GetInfo(ctx)
	d, err := c.Temporal.WorkflowService().DescribeNamespace(ctx,
		&workflowservice.DescribeNamespaceRequest{Namespace: info.Namespace})
	if err != nil {
		return ingest.Owner{}, fmt.Errorf("describe namespace %s: %w", info.Namespace, err)
	}
	return ingest.Owner{Namespace: d.GetNamespaceInfo().GetId(), WorkflowID: info.WorkflowExecution.ID}, nil
}

// newest returns the newest execution of a workflow id, nil if Temporal has none.
func (c *Control) newest(ctx context.Context, workflowID string) (*workflow.WorkflowExecutionInfo, error) {
	return execution(ctx, c.Temporal, workflowID, "")
}

// execution returns a run of a workflow id, the newest if run is empty. It is nil if Temporal does
// not have it.
func execution(ctx context.Context, c client.Client, workflowID, run string) (*workflow.WorkflowExecutionInfo, error) {
	d, err := c.DescribeWorkflowExecution(ctx, workflowID, run)
	var gone *serviceerror.NotFound
	if errors.As(err, &gone) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("describe workflow %s: %w", workflowID, err)
	}
	return d.GetWorkflowExecutionInfo(), nil
}

// newestOf returns the newest execution that continues a run: by a reset, or as new. It is the run
// itself if none does, and nil if Temporal does not know the run.
func (c *Control) newestOf(ctx context.Context, run string) (*workflow.WorkflowExecutionInfo, error) {
	list, err := c.Temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		PageSize: 1, Query: fmt.Sprintf("RunId = %q", run),
	})
	if err != nil {
		return nil, fmt.Errorf("look for run %s: %w", run, err)
	}
	if len(list.GetExecutions()) == 0 {
		return nil, nil
	}
	id := list.GetExecutions()[0].GetExecution().GetWorkflowId()
	self, err := execution(ctx, c.Temporal, id, run)
	if err != nil || self == nil {
		return nil, err
	}
	newest, err := c.newest(ctx, id)
	if err != nil {
		return nil, err
	}
	// A publisher that was started later has another first run. Older servers do not tell it.
	if newest != nil && newest.GetFirstRunId() != self.GetFirstRunId() {
		return self, nil
	}
	return newest, nil
}
