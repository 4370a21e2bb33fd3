package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/publish/gc"
	"github.com/urlake/urlake/workflows"
)

// newGarbageCommand returns the verb, without what runs it and without --lake, and what its flags
// say.
func newGarbageCommand() (*cobra.Command, *workflows.GCInput) {
	in := &workflows.GCInput{}
	cmd := &cobra.Command{
		Use:   "gc --lake URL",
		Short: "Drop old versions and delete what nothing needs any more",
		Long: `Gc drops the versions beyond the newest ones, but keeps those with a tag. It then writes
down every object that no kept version, no finished or running ingest, no publish and no
server needs, and deletes what it or an earlier gc wrote down at least --grace ago. So
space is free after the second run, or at once with --grace 0s, but for versions that a
server has open: it lets go of them some seconds later. Gc also removes what ingests
that failed, or were terminated, have left in staging, and on S3 the parts of uploads
that were begun more than 7 days and --grace ago and never completed. Reports of ingests
of many datasets stay for 30 days.

Gc may run beside ingests, publishes and servers. Steps that begin or end an ingest wait
while it deletes, for some seconds. Servers that can write to the lake hold what they
read; for others, and for readers of Parquet files, the time of grace must be longer
than they take. Run it from time to time, for example after the nightly publish.`,
		Example: `  starter gc --lake s3://b/lake
  starter gc --lake s3://b/lake --keep 30 --grace 3d
  starter gc --lake s3://b/lake --dry-run`,
		Args: cli.Args(cobra.NoArgs),
	}
	f := cmd.Flags()
	f.IntVar(&in.Keep, "keep", gc.DefaultKeep, "keep the newest `N` versions, and those with a tag")
	f.StringVar(&in.Grace, "grace", "24h",
		"delete what was found unused at least this `DURATION` ago, e.g. 36h, 3d or 0s")
	f.BoolVar(&in.DryRun, "dry-run", false, "only say what would be dropped and deleted")
	f.StringVar(&in.Deadline, "deadline", "", "give up after this `DURATION`, e.g. 6h (default: 7d)")
	return cmd, in
}

// check returns an error for wrong usage.
func checkGarbage(in *workflows.GCInput) error {
	if in.Keep < 1 {
		return cli.Usagef("--keep %d: want at least 1", in.Keep)
	}
	if _, err := in.Options(); err != nil {
		return &cli.UsageError{Err: err}
	}
	return nil
}

// garbageKind schedules garbage collections.
func garbageKind() scheduleKind {
	return scheduleKind{
		Use:     "gc --lake URL --cron '0 5 * * *' [flags]",
		Short:   "Collect garbage regularly",
		Long:    `Each run does what "starter gc" does.`,
		Example: `  starter schedule create gc --lake s3://b/lake --cron '0 5 * * *' --keep 30 --grace 36h`,
		New: func(cmd *cobra.Command) func(string, []string) (*Work, error) {
			once, in := newGarbageCommand()
			for _, name := range []string{"keep", "grace", "deadline"} {
				cmd.Flags().AddFlag(once.Flags().Lookup(name))
			}
			cmd.Args = cli.Args(cobra.NoArgs)
			return func(lake string, _ []string) (*Work, error) {
				in.Lake = lake
				return &Work{Kind: "gc", Lake: lake, Name: "gc", Workflow: workflows.GCWorkflow, Input: in}, checkGarbage(in)
			}
		},
	}
}

// startGarbage starts the workflow, unless one of the lake is running.
func startGarbage(ctx context.Context, c client.Client, in *workflows.GCInput) (client.WorkflowRun, error) {
	return startSingle(ctx, c, "gc@"+in.Lake, "garbage collection", in.Lake, workflows.GCWorkflow, *in)
}

// timeFormat shows times of the local zone.
const timeFormat = "2006-01-02 15:04:05 MST"

// printGarbage prints the result of a garbage collection for people.
func printGarbage(out io.Writer, res *activities.Garbage) {
	dropped, deleted, removed := "Dropped", "Deleted", "Removed"
	if res.DryRun {
		dropped, deleted, removed = "Would drop", "Would delete", "Would remove"
	}
	if s := res.Staging; len(s.Runs) > 0 {
		cli.Fprintf(out, "%s the staging of %s that nobody continues: %s, %s\n", removed,
			cli.Plural(int64(len(s.Runs)), "run"), cli.Plural(s.Objects, "object"), cli.Size(s.Bytes))
	}
	if u := res.Uploads; u != nil {
		aborted := "Aborted"
		if res.DryRun {
			aborted = "Would abort"
		}
		if u.Aborted > 0 {
			cli.Fprintf(out, "%s %s never completed: their parts were stored\n", aborted, cli.Plural(u.Aborted, "upload"))
		}
		if u.Denied != "" {
			cli.Fprintf(out, "Note: %s\n", u.Denied)
		}
	}
	if res.Nothing {
		cli.Fprintf(out, "Nothing was ever published in this lake, so nothing is collected\n")
		return
	}
	kept := "kept " + cli.Plural(int64(res.Kept), "version")
	if res.DryRun {
		kept = "keep " + cli.Plural(int64(res.Kept), "version")
	}
	if res.Tagged > 0 {
		kept += fmt.Sprintf(", %d of them for their tags", res.Tagged)
	}
	cli.Fprintf(out, "%s %s, %s\n", dropped, cli.Plural(int64(len(res.Dropped)), "version"), kept)
	for rest := res.Held; len(rest) > 0; {
		h, n := rest[0], 0 // by holder
		for n < len(rest) && rest[n].Holder == h.Holder {
			n++
		}
		cli.Fprintf(out, "Held: %s that %s still reads; if it has died, until %s\n",
			cli.Plural(int64(n), "dropped version"), h.Holder, h.Until.Local().Format(timeFormat))
		rest = rest[n:]
	}
	if n := res.Deleted.Total(); n.Objects > 0 {
		cli.Fprintf(out, "%s %s, %s\n", deleted, cli.Plural(n.Objects, "object"), cli.Size(n.Bytes))
		printKinds(out, res.Deleted)
	} else {
		cli.Fprintf(out, "%s nothing\n", deleted)
	}
	if res.Spared.Objects > 0 {
		cli.Fprintf(out, "Needed again: %s, %s\n", cli.Plural(res.Spared.Objects, "object"), cli.Size(res.Spared.Bytes))
	}
	if n := res.Found.Total(); res.DryRun && n.Objects > 0 && res.Deleted.Total().Objects == 0 {
		cli.Fprintf(out, "Would write down %s, %s, to be deleted after the time of grace\n",
			cli.Plural(n.Objects, "object"), cli.Size(n.Bytes))
		printKinds(out, res.Found)
	}
	if n := res.Waiting; n.Objects > 0 {
		cli.Fprintf(out, "Waiting for the end of their time of grace: %s, %s; run gc again after %s\n",
			cli.Plural(n.Objects, "object"), cli.Size(n.Bytes), res.Next.Local().Format(timeFormat))
	}
	for _, line := range res.Unreadable {
		cli.Fprintf(out, "Left alone, since it cannot be read: %s\n", line)
	}
}

// printKinds prints amounts by kind, the largest first.
func printKinds(out io.Writer, all gc.Amounts) {
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(all[b].Bytes, all[a].Bytes), cmp.Compare(a, b))
	})
	for _, name := range names {
		cli.Fprintf(out, "  %-17s %10s  %10s\n", name, cli.Count(all[name].Objects), cli.Size(all[name].Bytes))
	}
}
