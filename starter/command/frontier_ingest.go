package command

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/frontier/feed"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/workflows"
)

// newFrontierIngestCommand returns the verb, without what runs it and without --lake, and what its
// flags say.
func newFrontierIngestCommand() (*cobra.Command, *workflows.VisitedIngestInput) {
	in := &workflows.VisitedIngestInput{}
	cmd := &cobra.Command{
		Use:   "ingest --lake URL --frontier URL --dataset NAME [flags]",
		Short: "Ingest what a frontier has visited since the last time",
		Long: `Ingest takes the visits that a frontier has had since the last time, makes a batch of the
dataset of them, and publishes it. The dataset is an ordinary one: its URLs are those that
were fetched, their time is that of the visit, and the extras have crawl, domain, status,
error, content, redirect and depth. If nothing is new, there is no batch.

Each visit is in one batch. What a dataset has is noted in the lake
(frontier/visits/NAME/cursor.json), so it does not matter who runs this, how often, or
whether it dies: the next run goes on with the batch that was not finished.

The first run of a dataset takes all visits, or those since --since.`,
		Example: `  starter frontier ingest --lake /data/lake --frontier http://127.0.0.1:7070 --dataset visits --wait
  starter schedule create visits --lake s3://b/lake --frontier http://frontier:7070 --dataset visits --cron '*/30 * * * *'`,
		Args: cli.Args(cobra.NoArgs),
	}
	f := cmd.Flags()
	frontierFlag(cmd, &in.Frontier)
	f.StringVar(&in.Dataset, "dataset", "", "`NAME` of the dataset")
	f.StringVar(&in.Since, "since", "", "`TIME` of the first visit, e.g. 2026-11-26T08:00:00Z, if the dataset has none yet (default: all)")
	f.BoolVar(&in.Moved, "moved", false, "the frontier whose visits the dataset has is at another address now")
	f.BoolVar(&in.NoPublish, "no-publish", false, "leave the batch to the next publish")
	f.StringVar(&in.Deadline, "deadline", "", "give up after this `DURATION`, e.g. 6h (default: 7d)")
	return cmd, in
}

// checkIngest returns an error for flags that make no sense.
func checkIngest(in *workflows.VisitedIngestInput) error {
	switch {
	case in.Frontier == "":
		return cli.Usagef("--frontier is missing; use e.g. --frontier http://127.0.0.1:7070")
	case in.Dataset == "":
		return cli.Usagef("--dataset is missing; use e.g. --dataset visits")
	}
	spec := in.VisitsSpec
	return checkSpec(&spec, &spec.Lake, in.Deadline)
}

// startFrontierIngest starts the workflow, unless one of the dataset is running.
func startFrontierIngest(ctx context.Context, c client.Client, in *workflows.VisitedIngestInput) (client.WorkflowRun, error) {
	id := fmt.Sprintf("frontier-ingest:%s@%s", in.Dataset, in.Lake)
	return startSingle(ctx, c, id, "run of this ingest", in.Lake, workflows.VisitedIngestWorkflow, *in)
}

// ingestProgress asks an ingest of visits how far it is: see compaction.Progress.
func ingestProgress(ctx context.Context, c client.Client, run client.WorkflowRun) (share float64, stage, line string, ok bool) {
	var p workflows.VisitedIngestProgress
	if !singleQuery(ctx, c, run, &p) {
		return 0, "", "", false
	}
	switch p.Stage {
	case workflows.StageCollect:
		var now feed.Collecting
		heartbeat(ctx, c, run, "CollectVisits", &now)
		return 0.05, p.Stage, fmt.Sprintf("reading visits, %s so far", cli.Count(p.Visits+now.Visits)), true
	case workflows.StageIngest:
		return 0.5, p.Stage, fmt.Sprintf("ingesting batch %s; to watch that: %s '%s'", p.Batch, cli.Typed("starter watch"), p.Ingest), true
	}
	return 1, p.Stage, "done", true
}

// printVisited prints the result of an ingest of visits for people.
func printVisited(w io.Writer, r *workflows.VisitedIngestResult) {
	if len(r.Batches) == 0 {
		cli.Fprintf(w, "Nothing new: dataset %s has all %s of the frontier\n", r.Dataset, cli.Plural(r.Total, "visit"))
		return
	}
	in := "batch " + r.Batches[0]
	if n := len(r.Batches); n > 1 {
		in = fmt.Sprintf("batches %s to %s", r.Batches[0], r.Batches[n-1])
	}
	cli.Fprintf(w, "Ingested %s into %s of %s: %s\n", cli.Plural(r.Visits, "visit"), in, r.Dataset, cli.Plural(r.Rows, "row"))
	if r.Rejected > 0 {
		cli.Fprintf(w, "  rejected     %s; to see which: %s\n", cli.Count(r.Rejected), cli.Typed("starter rejects"))
	}
	if r.Version == "" {
		cli.Fprintf(w, "The next publish makes a version of it.\n")
		return
	}
	cli.Fprintf(w, "Version: %s\n", r.Version)
}

// frontierIngestKind schedules ingests of visits.
func frontierIngestKind() scheduleKind {
	return scheduleKind{
		Use:     "visits --lake URL --frontier URL --dataset NAME --cron '*/30 * * * *' [flags]",
		Short:   "Ingest what a frontier has visited regularly",
		Long:    `Each run does what "starter frontier ingest" does.`,
		Example: `  starter schedule create visits --lake s3://b/lake --frontier http://frontier:7070 --dataset visits --cron '*/30 * * * *'`,
		New: func(cmd *cobra.Command) func(string, []string) (*Work, error) {
			once, in := newFrontierIngestCommand()
			cmd.Flags().AddFlagSet(once.Flags())
			cmd.Args = cli.Args(cobra.NoArgs)
			return func(lake string, _ []string) (*Work, error) {
				in.Lake = lake
				return &Work{Kind: "visits", Lake: lake, Name: "visits-" + in.Dataset,
					Workflow: workflows.VisitedIngestWorkflow, Input: in}, checkIngest(in)
			}
		},
	}
}
