package command

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/zeebo/xxh3"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/export/postgres"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/workflows"
)

// newPostgresExportCommand returns the verb, without what runs it and without --lake, and what its
// flags say.
func newPostgresExportCommand() (*cobra.Command, *workflows.PostgresExportInput) {
	in := &workflows.PostgresExportInput{}
	cmd := &cobra.Command{
		Use:   "postgres --lake URL --dsn DSN [flags]",
		Short: "Bring a schema of a PostgreSQL database to a version of the lake",
		Long: `Postgres copies the URLs of a version, or of some datasets or domains of it, into a schema
of a PostgreSQL 14 or later. The first export creates the schema. Later ones load the
datasets that have changed, by batches or by takedowns, and write nothing of the others.

A dataset is loaded into new tables, which take the place of the old ones in one
transaction, in which its rows are counted and compared with the lake's. Readers see either
the version before or the new one.

Workers connect to the database, to hosts that their --allow-target names (default: their
own machine), and without a password. A DSN with a password, a service, a file or another
host is in a variable of their environment, which --dsn env:URLAKE_DSN_… names.

docs/postgres.md describes the tables, and how to ask them.`,
		Example: `  starter export postgres --lake s3://b/lake --dsn postgres://urlake@db/urls --wait
  starter export postgres --lake s3://b/lake --dsn env:URLAKE_DSN_CRAWL --dataset crawl --schema crawl
  starter export postgres --lake s3://b/lake --dsn env:URLAKE_DSN --domain example.com`,
		Args: cli.Args(cobra.NoArgs),
	}
	f := cmd.Flags()
	f.StringVar(&in.DSN, "dsn", "", "how workers connect: a `DSN` without a password, as a URL or keywords, or env:URLAKE_DSN_…")
	f.StringVar(&in.Schema, "schema", postgres.DefaultSchema, "`SCHEMA` of the tables, created if it is missing")
	f.StringArrayVar(&in.Datasets, "dataset", nil, "export only this dataset, by `NAME` or number; repeatable (default: all)")
	f.StringArrayVar(&in.Domains, "domain", nil, "export only this registrable `DOMAIN`; repeatable (default: all)")
	f.StringVar(&in.Version, "version", "", "`VERSION` of the lake or its tag (default: the current one)")
	f.StringVar(&in.Layout, "layout", postgres.DefaultLayout, "`BITS` of a number's TLD, domain, subdomain and path")
	f.StringArrayVar(&in.Partitions, "partition", nil, "give the numbers of this TLD, site or host a partition of their own, by `NAME`; repeatable")
	f.StringArrayVar(&in.IDMap, "id-map", nil,
		"`DATASET=FIELD`: the dataset's URLs are those that were requested, and this field of the extras has the canonical ones; repeatable")
	f.BoolVar(&in.Rebuild, "rebuild", false, "load all datasets, also those that have not changed")
	f.StringVar(&in.Deadline, "deadline", "", "give up after this `DURATION`, e.g. 6h (default: 7d)")
	return cmd, in
}

// checkPostgresExport returns an error for flags that make no sense.
func checkPostgresExport(in *workflows.PostgresExportInput) error {
	if in.DSN == "" {
		return cli.Usagef("--dsn is missing; use e.g. postgres://user@host/database")
	}
	_, err := ingest.ParseDeadline(in.Deadline)
	if err = cmp.Or(in.Spec.Check(), err); err != nil {
		return &cli.UsageError{Err: err}
	}
	return nil
}

// startPostgresExport starts the workflow, unless one for the same schema is running: two at once
// would get in each other's way.
func startPostgresExport(ctx context.Context, c client.Client, in *workflows.PostgresExportInput) (client.WorkflowRun, error) {
	id := fmt.Sprintf("export-postgres:%s:%08x@%s", in.Schema, uint32(xxh3.HashString(in.DSN)), in.Lake)
	return startSingle(ctx, c, id, "run of this export", in.Lake, workflows.PostgresExportWorkflow, *in)
}

// postgresProgress asks an export how far it is: the share that is done, its stage and a line that
// describes it. ok is false if it does not answer, for example since no worker runs.
func postgresProgress(ctx context.Context, c client.Client, run client.WorkflowRun) (share float64, stage, line string, ok bool) {
	var p workflows.PostgresExportProgress
	if !singleQuery(ctx, c, run, &p) {
		return 0, "", "", false
	}
	share, line = 0, "planning"
	switch p.Stage {
	case "load": // which takes most of the time
		share = 0.02 + 0.58*float64(p.ChunksDone)/float64(max(1, p.Chunks))
		line = fmt.Sprintf("loading, %s of about %s done", cli.Count(p.RowsDone), cli.Plural(p.Rows, "row"))
	case "finish":
		share, line = 0.60, "indexing, counting, and making the rows visible"
	}
	return share, p.Stage, line, true
}

// printPostgresExport prints the result of an export for people.
func printPostgresExport(w io.Writer, r *postgres.Result) {
	if r.Current {
		cli.Fprintf(w, "The database has version %s already: %s of %s in %s. Nothing was written\n", r.Version,
			cli.Plural(r.Rows, "row"), cli.Plural(r.URLs, "URL"), cli.Plural(r.Datasets, "dataset"))
		return
	}
	cli.Fprintf(w, "The database has version %s: %s of %s in %s, as many of each dataset as the lake\n", r.Version,
		cli.Plural(r.Rows, "row"), cli.Plural(r.URLs, "URL"), cli.Plural(r.Datasets, "dataset"))
	cli.Fprintf(w, "  changed      %s\n  added        %s\n  removed      %s\n",
		cli.Plural(r.Changed, "dataset"), cli.Plural(r.Added, "URL"), cli.Plural(r.Removed, "URL"))
	if r.Collisions > 0 {
		cli.Fprintf(w, "  collisions   %s in the table collisions, whose keys other URLs have\n", cli.Plural(r.Collisions, "URL"))
	}
}

// postgresKind schedules exports.
func postgresKind() scheduleKind {
	return scheduleKind{
		Use:     "postgres --lake URL --dsn DSN --cron '30 5 * * *' [flags]",
		Short:   "Bring a schema of a PostgreSQL database to the current version regularly",
		Long:    `Each run does what "starter export postgres" does.`,
		Example: `  starter schedule create postgres --lake s3://b/lake --dsn env:URLAKE_DSN --cron '30 5 * * *'`,
		New: func(cmd *cobra.Command) func(string, []string) (*Work, error) {
			once, in := newPostgresExportCommand()
			cmd.Flags().AddFlagSet(once.Flags())
			cmd.Args = cli.Args(cobra.NoArgs)
			return func(lake string, _ []string) (*Work, error) {
				in.Lake = lake
				return &Work{Kind: "postgres", Lake: lake, Name: "postgres-" + in.Schema,
					Workflow: workflows.PostgresExportWorkflow, Input: in}, checkPostgresExport(in)
			}
		},
	}
}

// exportPostgresCommand returns "starter export postgres".
func exportPostgresCommand(g *global) *cobra.Command {
	cmd, in := newPostgresExportCommand()
	return g.startVerb(cmd, verb{
		Lake: &in.Lake, Reads: true, Check: func() error { return checkPostgresExport(in) },
		Workflow: "PostgresExportWorkflow", What: "the export",
		Start: func(ctx context.Context, c client.Client) (client.WorkflowRun, error) {
			return startPostgresExport(ctx, c, in)
		},
	})
}
