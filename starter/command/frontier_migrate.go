package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/frontier/migrate"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/workflows"
)

// migrateCommand returns the verb, without what runs it and without --lake, and what its flags say.
func migrateCommand() (*cobra.Command, *workflows.FrontierMigrateInput) {
	in := &workflows.FrontierMigrateInput{}
	cmd := &cobra.Command{
		Use:   "migrate --lake URL --dsn DSN --frontier URL [flags]",
		Short: "Bring the frontier of a crawler from PostgreSQL into a frontier",
		Long: `Migrate brings the tables of a crawler that had its frontier in PostgreSQL into a frontier:

  visited_urls     become visits with time, status, content, redirect and error: their URLs
                   are settled
  frontier         become URLs that wait, with depth and priority, unless they were visited
  domain_metadata  set delays, exclusions and robots.txt files of domains

A table that is not there is left out, and so is a column. Rows whose URL has no canonical
form are counted by reason. Each table is read in pages by its primary key, or by another
unique key without nulls; nothing is written to the database. The crawler may go on
meanwhile: run the same command again at the end, and what came since is added.

If a worker dies, another goes on where it was. What is sent twice is known the second
time.

--verify sends nothing. It compares every visit of the table with those of the frontier,
and says of every row of the other tables whether the frontier has it. It exits with 1 if
something is missing or differs.

The workers of the lake do the work; the lake itself is neither read nor written. They
connect to the hosts that their --allow-target names; "starter export postgres --help" says
how a DSN may have a password.`,
		Example: `  starter frontier migrate --lake /data/lake --dsn postgres://crawler@db/crawl --frontier http://127.0.0.1:7070 --wait
  starter frontier migrate --lake /data/lake --dsn env:URLAKE_DSN_CRAWL --frontier http://127.0.0.1:7070 --verify --wait`,
		Args: cli.Args(cobra.NoArgs),
	}
	f := cmd.Flags()
	frontierFlag(cmd, &in.Frontier)
	f.StringVar(&in.DSN, "dsn", "", "how workers connect: a `DSN` without a password, as a URL or keywords, or env:URLAKE_DSN_…")
	f.StringVar(&in.Schema, "schema", migrate.DefaultSchema, "`SCHEMA` of the tables")
	f.StringVar(&in.Crawl, "crawl", "", "`NAME` of the crawl in the frontier (default: DEFAULT)")
	f.BoolVar(&in.ByHost, "by-host", false, "the frontier groups URLs by host (frontierd --queue-by host)")
	f.BoolVar(&in.Verify, "verify", false, "compare the tables with the frontier, and send nothing")
	f.StringVar(&in.Deadline, "deadline", "", "give up after this `DURATION`, e.g. 6h (default: 7d)")
	return cmd, in
}

// checkMigrate returns an error for flags that make no sense.
func checkMigrate(in *workflows.FrontierMigrateInput) error {
	switch {
	case in.DSN == "":
		return cli.Usagef("--dsn is missing; use e.g. postgres://user@host/database")
	case in.Frontier == "":
		return cli.Usagef("--frontier is missing; use e.g. --frontier http://127.0.0.1:7070")
	}
	spec := in.Spec
	return checkSpec(&spec, &spec.Lake, in.Deadline)
}

// startMigrate starts the workflow, unless one for the same database and frontier is running.
func startMigrate(ctx context.Context, c client.Client, in *workflows.FrontierMigrateInput) (client.WorkflowRun, error) {
	id := idOf("frontier-migrate", strings.Join([]string{in.Frontier, in.DSN, in.Schema}, "\n"), in.Lake)
	return startSingle(ctx, c, id, "run of this migration", in.Lake, workflows.FrontierMigrateWorkflow, *in)
}

// migrateProgress asks a migration how far it is: see compaction.Progress.
func migrateProgress(ctx context.Context, c client.Client, run client.WorkflowRun) (share float64, stage, line string, ok bool) {
	var p workflows.FrontierMigrateProgress
	if !singleQuery(ctx, c, run, &p) {
		return 0, "", "", false
	}
	all := int64(0)
	for _, n := range p.Rows {
		all += n
	}
	switch p.Stage {
	case workflows.StageMigrate:
		var now migrate.Progress
		if heartbeat(ctx, c, run, "MigrateFrontier", &now) && len(now.Counts) > 0 {
			p.Progress = now
		}
		rows := int64(0)
		for _, c := range p.Progress.Counts {
			rows += c.Rows
		}
		stage := migrate.Stages[min(p.Progress.Stage, len(migrate.Stages)-1)]
		return min(1, float64(rows)/float64(max(1, all))), p.Stage,
			fmt.Sprintf("%s of about %s sent, now of %s", cli.Count(rows), cli.Plural(all, "row"), stage), true
	case workflows.StageVerify:
		var now migrate.Verifying
		heartbeat(ctx, c, run, "VerifyMigration", &now)
		return min(1, float64(now.Rows)/float64(max(1, all))), p.Stage,
			fmt.Sprintf("%s of about %s, %s and %s that wait read", cli.Count(now.Rows), cli.Plural(all, "row"),
				cli.Plural(now.Visits, "visit"), cli.Plural(now.URLs, "URL")), true
	}
	return 0, p.Stage, "planning", true
}

// differs returns an error if a migration that has ended was a comparison, and found differences.
func differs(ctx context.Context, run client.WorkflowRun) error {
	var r workflows.FrontierMigrateResult
	err := run.Get(ctx, &r)
	if err == nil && r.Compared != nil && !r.Compared.Equal {
		err = errors.New("the frontier differs from the tables")
	}
	return err
}

// printMigrate prints the result of a migration for people.
func printMigrate(w io.Writer, r *workflows.FrontierMigrateResult) {
	if r.Compared != nil {
		printCompared(w, r.Compared)
		return
	}
	for _, name := range migrate.Stages {
		c := r.Counts[name]
		if c.Rows == 0 {
			continue
		}
		cli.Fprintf(w, "%s: %s\n", name, cli.Plural(c.Rows, "row"))
		if c.Changed > 0 {
			cli.Fprintf(w, "  set          %s\n", cli.Count(c.Changed))
		} else {
			cli.Fprintf(w, "  added        %s\n  known        %s\n", cli.Count(c.Added), cli.Count(c.Known))
		}
		printLeft(w, c.Left)
	}
	if r.Restarts > 0 {
		cli.Fprintf(w, "It was interrupted %s: what it had added and not yet counted is among the known.\n", cli.Plural(int64(r.Restarts), "time"))
	}
}

func printLeft(w io.Writer, left map[string]int64) {
	for _, reason := range slices.Sorted(maps.Keys(left)) {
		cli.Fprintf(w, "  left out     %s: %s\n", cli.Count(left[reason]), reason)
	}
}

func printCompared(w io.Writer, c *migrate.Comparison) {
	for _, name := range migrate.Tables {
		s := c.Sets[name]
		if s == nil {
			continue
		}
		cli.Fprintf(w, "%s: %s\n  equal        %s\n", name, cli.Plural(s.Rows, "row"), cli.Count(s.Equal))
		for _, line := range []struct {
			what string
			n    int64
		}{
			{"of a URL that another row counts for", s.Same}, {"with a value that the frontier cannot hold and has as the next one that it can", s.Altered},
			{"visited, as visited_urls has it", s.Visited}, {"changed since by the frontier's crawlers", s.Newer},
			{"missing in the frontier", s.Missing}, {"different in the frontier", s.Differ}, {"in the frontier alone", s.Only},
		} {
			if line.n > 0 {
				cli.Fprintf(w, "  other        %s: %s\n", cli.Count(line.n), line.what)
			}
		}
		printLeft(w, s.Left)
		for _, e := range s.Examples {
			cli.Fprintf(w, "    %s\n", e)
		}
	}
	if c.Equal {
		cli.Fprintf(w, "The frontier has everything that the tables have.\n")
	} else {
		cli.Fprintf(w, "The frontier does not have everything that the tables have. \"starter frontier migrate\" without --verify adds what is missing.\n")
	}
}
