package command

import (
	"bufio"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/indexbuild/gc"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/starter/gcreport"
	"github.com/urlake/urlake/workflows"
)

// gcWorkflowID is the id of the garbage collection of a lake.
func gcWorkflowID(lakeURL string) string { return "gc@" + lakeURL }

func gcCommand(g *global) *cobra.Command {
	in := workflows.GCInput{}
	cmd := &cobra.Command{
		Use:   "gc --lake URL",
		Short: "Drop old versions and delete what nothing needs any more",
		Long: `Gc drops the versions beyond the newest ones, but keeps those with a tag. It then writes
down every object that no kept version, no finished or running ingest, no publish and no
server needs, and deletes what it or an earlier gc wrote down at least --grace ago. So
space is free after the second run, or at once with --grace 0s. It also removes what
ingests that failed, or were terminated, have left in staging.

Gc may run beside ingests, publishes, servers and another gc. Requests that begin or end
an ingest wait while it deletes, for some seconds. Servers that can write to the lake
hold what they read; for others, and for readers of Parquet files, the time of grace
must be longer than they take. Run it from time to time, for example after the nightly
publish.`,
		Example: `  starter gc --lake s3://b/lake
  starter gc --lake s3://b/lake --keep 30 --grace 3d
  starter gc --lake s3://b/lake --dry-run`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			url, err := cli.LakeURL(g.lake)
			if err != nil {
				return err
			}
			in.Lake = url
			if in.Keep < 1 {
				return cli.Usagef("--keep %d: want at least 1", in.Keep)
			}
			if _, err := in.Options(); err != nil {
				return &cli.UsageError{Err: err}
			}
			c, err := connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			run, err := c.ExecuteWorkflow(cmd.Context(), client.StartWorkflowOptions{
				ID: gcWorkflowID(url), TaskQueue: activities.TaskQueue(url, activities.PoolControl),
				WorkflowIDReusePolicy:                    enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
				WorkflowIDConflictPolicy:                 enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
				WorkflowExecutionErrorWhenAlreadyStarted: true,
				Memo:                                     map[string]any{"lake": url},
			}, workflows.GCWorkflow, in)
			var started *serviceerror.WorkflowExecutionAlreadyStarted
			if errors.As(err, &started) {
				return fmt.Errorf("a garbage collection of this lake is under way; to watch it: %s '%s'",
					cli.Typed("starter watch"), gcWorkflowID(url))
			}
			if err != nil {
				return err
			}
			return watchGC(cmd, g, c, run)
		},
	}
	g.lakeFlag(cmd)
	f := cmd.Flags()
	f.IntVar(&in.Keep, "keep", gc.DefaultKeep, "keep the newest `N` versions, and those with a tag")
	f.StringVar(&in.Grace, "grace", "24h",
		"delete what was found unused at least this `DURATION` ago, e.g. 36h, 3d or 0s")
	f.BoolVar(&in.DryRun, "dry-run", false, "only say what would be dropped and deleted")
	f.StringVar(&in.Deadline, "deadline", "", "give up after this `DURATION`, e.g. 6h (default: 7d)")
	return cmd
}

// watchGC waits until a garbage collection ends and prints its result.
func watchGC(cmd *cobra.Command, g *global, c client.Client, run client.WorkflowRun) error {
	var res activities.Garbage
	if err := await(cmd, run, &res, false, c, nil, nil); err != nil {
		return err
	}
	if g.json {
		return printJSON(cmd.OutOrStdout(), res)
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	gcreport.Print(out, &res)
	return out.Flush()
}
