// Package single starts workflows of which a lake has one at a time.
package single

import (
	"context"
	"errors"
	"fmt"
	"time"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/workflows"
)

// Start starts a workflow of a lake under id with the input in. If one with that id is running, the
// error says so; what is its name for people, such as "garbage collection".
func Start(
	ctx context.Context, c client.Client, id, what, lake string, workflow, in any,
) (client.WorkflowRun, error) {
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: id, TaskQueue: activities.TaskQueue(lake, activities.PoolControl),
		WorkflowIDReusePolicy:                    enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy:                 enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		Memo:                                     map[string]any{"lake": lake},
	}, workflow, in)
	var started *serviceerror.WorkflowExecutionAlreadyStarted
	if errors.As(err, &started) {
		return nil, fmt.Errorf("a %s of this lake is under way; to watch it: %s '%s'", what, cli.Typed("starter watch"), id)
	}
	return run, err
}

// Query asks a workflow for its progress. It is false if it does not answer, for example since no
// worker runs.
func Query(ctx context.Context, c client.Client, run client.WorkflowRun, p any) bool {
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	v, err := c.QueryWorkflow(ctx, run.GetID(), "", workflows.ProgressQuery)
	return err == nil && v.Get(p) == nil
}
