package command

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/workflows"
)

// newCompactCommand returns the verb, without what runs it and without --lake, and what its flags
// say.
func newCompactCommand() (*cobra.Command, *workflows.CompactInput) {
	in := &workflows.CompactInput{}
	cmd := &cobra.Command{
		Use:   "compact --lake URL",
		Short: "Merge small segments of the index and small parts of datasets",
		Long: `Compact makes a version with the same batches in fewer files. It merges small segments
of the index into one, and the rows of their batches of one dataset into common parts,
sorted as if they were one batch. Each row keeps its batch, which can still be
retired or replaced, and all counts stay as they are.

Rows that takedowns hide are dropped for good: batches that have any are written again
without them, however few segments there are. Older versions still have the rows, until
"starter gc" drops these versions. A takedown that is lifted later does not bring them
back.

A publish starts a compaction by itself when the version has many segments. With --full
all segments become one, and all small batches of each dataset one set of parts; that
writes most of the lake again. Ingests, publishes and servers go on meanwhile. The old
files stay until "starter gc" deletes them.`,
		Example: `  starter compact --lake s3://b/lake
  starter compact --lake s3://b/lake --full`,
		Args: cli.Args(cobra.NoArgs),
	}
	f := cmd.Flags()
	f.BoolVar(&in.Full, "full", false, "merge all segments, and all small batches of each dataset")
	f.StringVar(&in.Deadline, "deadline", "", "give up after this `DURATION`, e.g. 6h (default: 7d)")
	return cmd, in
}

// kind schedules compactions.
func compactionKind() scheduleKind {
	return scheduleKind{
		Use:     "compact --lake URL --cron '0 4 * * 0' [flags]",
		Short:   "Compact the lake regularly",
		Long:    `Each run does what "starter compact" does.`,
		Example: `  starter schedule create compact --lake s3://b/lake --cron '0 4 * * 0' --full`,
		New: func(cmd *cobra.Command) func(string, []string) (*Work, error) {
			once, in := newCompactCommand()
			cmd.Flags().AddFlagSet(once.Flags())
			cmd.Args = cli.Args(cobra.NoArgs)
			return func(lake string, _ []string) (*Work, error) {
				in.Lake = lake
				w := &Work{Kind: "compact", Lake: lake, Name: "compact", Workflow: workflows.CompactWorkflow, Input: in}
				if _, err := ingest.ParseDeadline(in.Deadline); err != nil {
					return nil, &cli.UsageError{Err: err}
				}
				return w, nil
			}
		},
	}
}

// startCompaction starts the workflow, unless one of the lake is running.
func startCompaction(ctx context.Context, c client.Client, in *workflows.CompactInput) (client.WorkflowRun, error) {
	return startSingle(ctx, c, activities.CompactorID(in.Lake), "compaction", in.Lake, workflows.CompactWorkflow, *in)
}

// compactionProgress asks a compaction how far it is: the share that is done, its stage and a line
// that describes it. ok is false if it does not answer, for example since no worker runs.
func compactionProgress(ctx context.Context, c client.Client, run client.WorkflowRun) (share float64, stage, line string, ok bool) {
	var p workflows.CompactProgress
	if !singleQuery(ctx, c, run, &p) {
		return 0, "", "", false
	}
	share, stage, line = describeCompaction(&p)
	return share, stage, line, true
}

// describeCompaction returns what Progress does. Uniting takes most of the time, then building.
func describeCompaction(p *workflows.CompactProgress) (share float64, stage, line string) {
	of := 0.0
	if p.Tasks > 0 {
		of = float64(p.Done) / float64(p.Tasks)
	}
	tasks := ""
	if p.Tasks > 1 {
		tasks = fmt.Sprintf(", %s of %s done", cli.Count(int64(p.Done)), cli.Plural(int64(p.Tasks), "task"))
	}
	switch p.Stage {
	case "rewrite":
		share, line = 0.01+0.69*of, "uniting small parts"+tasks
	case "build":
		share, line = 0.70+0.20*of, "building a segment"+tasks
	case "verify":
		share, line = 0.90+0.08*of, "verifying the segment"+tasks
	case "commit":
		share, line = 0.98, "committing the version"
	default:
		line = "planning"
	}
	if p.Rounds > 0 {
		line += fmt.Sprintf("; %s made so far", cli.Plural(int64(p.Rounds), "version"))
	}
	return share, p.Stage, line
}

// printCompaction prints the result of a compaction for people.
func printCompaction(out io.Writer, res *workflows.CompactResult) {
	if res.Rounds == 0 {
		cli.Fprintf(out, "Nothing to compact\n")
		if res.Version != "" {
			cli.Fprintf(out, "Version: %s\n", res.Version)
		}
		return
	}
	cli.Fprintf(out, "Merged %s with %s of %s\n", cli.Plural(int64(res.Segments), "segment"),
		cli.Plural(res.Rows, "row"), cli.Plural(int64(res.Batches), "batch"))
	if res.Unions > 0 {
		cli.Fprintf(out, "United the small parts of %s: %s of %s in the place of %s\n", cli.Plural(int64(res.Unions), "dataset"),
			cli.Plural(res.Parts, "part"), cli.Size(res.Bytes), cli.Size(res.From))
	}
	if res.Dropped > 0 {
		cli.Fprintf(out, "Dropped %s that takedowns hide. Older versions still have them: %s\n",
			cli.Plural(res.Dropped, "row"), cli.Typed("starter gc"))
	}
	cli.Fprintf(out, "Version: %s\n", res.Version)
}
