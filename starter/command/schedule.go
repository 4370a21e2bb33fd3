package command

import (
	"context"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/starter/check"
	"github.com/urlake/urlake/starter/compaction"
	"github.com/urlake/urlake/starter/frontier"
	"github.com/urlake/urlake/starter/garbage"
	"github.com/urlake/urlake/starter/pgexport"
	"github.com/urlake/urlake/starter/schedule"
	"github.com/urlake/urlake/workflows"
)

// scheduler is what schedule and backfill take from this program.
func scheduler(g *global) schedule.Starter {
	return schedule.Starter{
		LakeFlag: g.lakeFlag,
		Lake:     func() (string, error) { return cli.LakeURL(g.lake) },
		JSON:     func() bool { return g.json },
		Connect:  connect,
		Idle: func(ctx context.Context, c client.Client, lake string, cmd *cobra.Command) error {
			return warnIdlePools(ctx, c, lake, cmd.ErrOrStderr())
		},
	}
}

// scheduleCommand returns the verb schedule. What can be scheduled is a line each.
func scheduleCommand(g *global) *cobra.Command {
	kinds := []schedule.Kind{ingestKind(g), compaction.Kind(), garbage.Kind(), pgexport.Kind(), frontier.SeedKind(), frontier.IngestKind()}
	return schedule.NewCommand(scheduler(g), append(kinds, check.Kinds()...)...)
}

// ingestKind schedules ingests.
func ingestKind(g *global) schedule.Kind {
	return schedule.Kind{
		Use:   "ingest --lake URL --dataset NAME --cron '0 3 * * *' [flags] INPUT…",
		Short: "Ingest a dataset regularly, with the date in the names of the inputs or without",
		Long: `Each run lists the inputs again. The flags are those of "starter ingest".

Inputs, --manifest, --include, --exclude and --batch may have placeholders for the date
of a run:

  {date}  2026-11-20          {yyyy}  2026      {mm}  11      {dd}  20      {hh}  03

The date is that at which the run is due, in the zone of --time-zone, and not that at
which it starts: a run that is late, repeated or made up for by "starter backfill" has
its own date. --offset is added to it: with -1d (or -24h) the run of every day reads
what the day before has left. Days are days of the calendar, also where clocks change.

Each date is a batch, which a repetition replaces. Without --batch its name is the date,
as finely as the placeholders divide it: 2026-11, 2026-11-20 or 2026-11-20T03.

Without placeholders --batch NAME keeps one copy, which each run replaces. Without
--batch unchanged inputs change nothing, and changed inputs are added as another batch;
see --new-only and --replace.`,
		Example: `  starter schedule create ingest --lake s3://b/lake --dataset crawl --cron '0 3 * * *' --offset -1d 's3://raw/crawl/{date}/'
  starter schedule create ingest --lake s3://b/lake --dataset logs --name logs-hourly --cron '10 * * * *' --offset -1h \
    's3://raw/logs/{yyyy}/{mm}/{dd}/{hh}.cdx.gz'
  starter schedule create ingest --lake s3://b/lake --dataset seeds --batch latest --cron @daily s3://raw/seeds.txt`,
		New: func(cmd *cobra.Command) func(string, []string) (*schedule.Work, error) {
			var f ingestFlags
			var offset string
			f.register(g, cmd)
			cmd.Flags().StringVar(&offset, "offset", "",
				"`DURATION` to add to the time at which a run is due, for the date: e.g. -1d for the day before, or -1h")
			return func(lake string, args []string) (*schedule.Work, error) {
				named := f.spec
				named.Inputs = args
				switch {
				case schedule.HasPlaceholders(&named):
					f.spec.Date, f.spec.DateOffset = ingest.ScheduledDate, offset
				case offset != "":
					return nil, cli.Usagef("--offset %s: no input has a placeholder such as {date}", offset)
				}
				in, err := f.input(g, args)
				if err != nil {
					return nil, err
				}
				w := &schedule.Work{Kind: "ingest", Lake: lake, Name: "ingest:" + in.Dataset, Workflow: workflows.IngestWorkflow, Input: &in}
				w.Ingest(&in.Spec)
				if f.datasetsFrom != "" {
					many := f.many(in)
					if w.Name, err = manyName(*many); err != nil {
						return nil, err
					}
					w.Workflow, w.Input = workflows.IngestManyWorkflow, many
					w.Ingest(&many.Spec.Spec)
				}
				return w, nil
			}
		},
	}
}
