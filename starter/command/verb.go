package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/workflows"
)

// verb starts a workflow, and waits for it with --wait.
type verb struct {
	// Lake points to the lake of the input, which has to exist if Reads is set.
	Lake  *string
	Reads bool
	// Check returns an error for flags that make no sense.
	Check func() error
	// Workflow is the type of the workflow, What its name for people, as in "the export".
	Workflow, What string
	Start          func(context.Context, client.Client) (client.WorkflowRun, error)
}

// startVerb makes cmd run the verb.
func (g *global) startVerb(cmd *cobra.Command, v verb) *cobra.Command {
	wait := false
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until it ends, and print its result")
	g.lakeFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		ctx := cmd.Context()
		if err := v.Check(); err != nil {
			return err
		}
		store, url, err := g.store(ctx)
		if err == nil && v.Reads {
			err = requireLake(ctx, store, url)
		}
		if err != nil {
			return err
		}
		*v.Lake = url
		c, err := connect(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		run, err := v.Start(ctx, c)
		if err != nil {
			return err
		}
		if wait {
			return g.watch(cmd, c, run, v.Workflow)
		}
		if g.json {
			return cli.WriteJSON(cmd.OutOrStdout(), map[string]string{"workflow_id": run.GetID(), "run_id": run.GetRunID()}, true)
		}
		cli.Fprintf(cmd.OutOrStdout(), "Started %s; to watch it: %s '%s'\n", v.What, cli.Typed("starter watch"), run.GetID())
		return warnIdlePools(ctx, c, url, cmd.ErrOrStderr())
	}
	return cmd
}

// startSingle starts a workflow of a lake under id with the input in. If one with that id is
// running, the error says so; what is its name for people, such as "garbage collection".
func startSingle(
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

// singleQuery asks a workflow for its progress. It is false if it does not answer, for example
// since no worker runs.
func singleQuery(ctx context.Context, c client.Client, run client.WorkflowRun, p any) bool {
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	v, err := c.QueryWorkflow(ctx, run.GetID(), "", workflows.ProgressQuery)
	return err == nil && v.Get(p) == nil
}
