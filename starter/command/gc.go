package command

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/indexbuild/gc"
	"github.com/urlake/urlake/internal/cli"
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
	printGarbage(out, &res)
	return out.Flush()
}

// printGarbage prints the result of a garbage collection for people.
func printGarbage(out io.Writer, res *activities.Garbage) {
	dropped, deleted, removed := "Dropped", "Deleted", "Removed"
	if res.DryRun {
		dropped, deleted, removed = "Would drop", "Would delete", "Would remove"
	}
	if s := res.Staging; len(s.Runs) > 0 {
		cli.Fprintf(out, "%s the staging of %s that nobody continues: %s, %s\n", removed,
			plural(int64(len(s.Runs)), "run"), plural(s.Objects, "object"), size(s.Bytes))
	}
	if res.Nothing {
		cli.Fprintf(out, "Nothing was ever published in this lake, so nothing is collected\n")
		return
	}
	kept := "kept " + plural(int64(res.Kept), "version")
	if res.Tagged > 0 {
		kept += fmt.Sprintf(", %d of them for their tags", res.Tagged)
	}
	cli.Fprintf(out, "%s %s, %s\n", dropped, plural(int64(len(res.Dropped)), "version"), kept)
	for _, h := range res.Held {
		cli.Fprintf(out, "Held: version %s, by %s until %s or longer\n", h.Version, h.Holder, h.Until.Local().Format(time.DateTime))
	}
	if n := res.Deleted.Total(); n.Objects > 0 {
		cli.Fprintf(out, "%s %s, %s\n", deleted, plural(n.Objects, "object"), size(n.Bytes))
		names := slices.SortedFunc(maps.Keys(res.Deleted), func(a, b string) int {
			return cmp.Or(cmp.Compare(res.Deleted[b].Bytes, res.Deleted[a].Bytes), cmp.Compare(a, b))
		})
		for _, name := range names {
			n := res.Deleted[name]
			cli.Fprintf(out, "  %-17s %10s  %10s\n", name, count(n.Objects), size(n.Bytes))
		}
	} else {
		cli.Fprintf(out, "%s nothing\n", deleted)
	}
	if res.Spared.Objects > 0 {
		cli.Fprintf(out, "Needed again: %s, %s\n", plural(res.Spared.Objects, "object"), size(res.Spared.Bytes))
	}
	if n := res.Found.Total(); res.DryRun && n.Objects > 0 && res.Deleted.Total().Objects == 0 {
		cli.Fprintf(out, "Would write down %s, %s, to be deleted after the time of grace\n",
			plural(n.Objects, "object"), size(n.Bytes))
	}
	if n := res.Waiting; n.Objects > 0 {
		cli.Fprintf(out, "Waiting for the end of their time of grace: %s, %s; run gc again after %s\n",
			plural(n.Objects, "object"), size(n.Bytes), res.Next.Local().Format(time.DateTime))
	}
	for _, line := range res.Unreadable {
		cli.Fprintf(out, "Left alone, since it cannot be read: %s\n", line)
	}
}
