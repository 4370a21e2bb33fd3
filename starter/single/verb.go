package single

import (
	"context"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/internal/cli"
)

// Program is what a Verb takes from the program that has it.
type Program struct {
	// LakeFlag adds --lake to a verb, Lake returns what it says; with exists it is an error if
	// there is no lake. JSON returns what --json says.
	LakeFlag func(*cobra.Command)
	Lake     func(ctx context.Context, exists bool) (string, error)
	JSON     func() bool
	Connect  func(context.Context) (client.Client, error)
	// Watch shows the progress of a workflow of a type until it ends, and prints its result.
	Watch func(cmd *cobra.Command, c client.Client, run client.WorkflowRun, workflow string) error
	// Idle tells the user which pools no worker polls.
	Idle func(ctx context.Context, c client.Client, lake string, cmd *cobra.Command) error
}

// Verb starts a workflow, and waits for it with --wait.
type Verb struct {
	// Lake points to the lake of the input, which has to exist if Reads is set.
	Lake  *string
	Reads bool
	// Check returns an error for flags that make no sense.
	Check func() error
	// Workflow is the type of the workflow, What its name for people, as in "the export".
	Workflow, What string
	Start          func(context.Context, client.Client) (client.WorkflowRun, error)
}

// Complete makes cmd run the verb.
func (p Program) Complete(cmd *cobra.Command, v Verb) *cobra.Command {
	wait := false
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until it ends, and print its result")
	p.LakeFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		ctx := cmd.Context()
		if err := v.Check(); err != nil {
			return err
		}
		if *v.Lake, err = p.Lake(ctx, v.Reads); err != nil {
			return err
		}
		c, err := p.Connect(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		run, err := v.Start(ctx, c)
		if err != nil {
			return err
		}
		if wait {
			return p.Watch(cmd, c, run, v.Workflow)
		}
		if p.JSON() {
			return cli.WriteJSON(cmd.OutOrStdout(), map[string]string{"workflow_id": run.GetID(), "run_id": run.GetRunID()}, true)
		}
		cli.Fprintf(cmd.OutOrStdout(), "Started %s; to watch it: %s '%s'\n", v.What, cli.Typed("starter watch"), run.GetID())
		return p.Idle(ctx, c, *v.Lake, cmd)
	}
	return cmd
}
