package command

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/starter/frontier"
	"github.com/urlake/urlake/workflows"
)

// frontierCommand returns "starter frontier".
func frontierCommand(g *global) *cobra.Command {
	seed, seeds := frontier.SeedCommand()
	ingest, visits := frontier.IngestCommand()
	return frontier.NewCommand(
		startable(g, seed, true, &seeds.Lake, seeds.Check, "the seed", func(ctx context.Context, c client.Client) (client.WorkflowRun, error) {
			return frontier.StartSeed(ctx, c, &seeds.CrawlSeedInput)
		}, frontier.SeedProgress, frontier.PrintSeed),
		startable(g, ingest, false, &visits.Lake, func() error { return frontier.CheckIngest(visits) }, "the ingest of visits",
			func(ctx context.Context, c client.Client) (client.WorkflowRun, error) {
				return frontier.StartIngest(ctx, c, visits)
			}, frontier.IngestProgress, frontier.PrintIngest),
		migrateCommand(g),
	)
}

// errDiffers is the end of a comparison that found differences; what they are is printed.
var errDiffers = errors.New("the frontier differs from the tables")

func migrateCommand(g *global) *cobra.Command {
	cmd, in := frontier.MigrateCommand()
	differs := false
	cmd = startable(g, cmd, false, &in.Lake, func() error { return frontier.CheckMigrate(in) }, "the migration",
		func(ctx context.Context, c client.Client) (client.WorkflowRun, error) {
			return frontier.StartMigrate(ctx, c, in)
		}, frontier.MigrateProgress, func(w io.Writer, r *workflows.FrontierMigrateResult) {
			frontier.PrintMigrate(w, r)
			differs = r.Compared != nil && !r.Compared.Equal
		})
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		if err == nil && differs {
			err = errDiffers
		}
		return err
	}
	return cmd
}

// startable completes a verb whose input has the lake at lake: it starts a workflow, and waits for
// it with --wait. A verb that reads the lake requires that there is one.
func startable[R any](
	g *global, cmd *cobra.Command, reads bool, lake *string, wrong func() error, what string,
	start func(context.Context, client.Client) (client.WorkflowRun, error), progress progressOf, print func(io.Writer, *R),
) *cobra.Command {
	wait := false
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until it ends, and print its result")
	g.lakeFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		if err := wrong(); err != nil {
			return err
		}
		store, url, err := g.store(ctx)
		if *lake = url; err == nil && reads {
			err = requireLake(ctx, store, url)
		}
		if err != nil {
			return err
		}
		c, err := connect(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		run, err := start(ctx, c)
		if err != nil {
			return err
		}
		if wait {
			return watchMaintenance(cmd, g, c, run, progress, print)
		}
		if g.json {
			return printJSON(cmd.OutOrStdout(), map[string]string{"workflow_id": run.GetID(), "run_id": run.GetRunID()})
		}
		cli.Fprintf(cmd.OutOrStdout(), "Started %s; to watch it: %s '%s'\n", what, cli.Typed("starter watch"), run.GetID())
		return warnIdlePools(ctx, c, url, cmd.ErrOrStderr())
	}
	return cmd
}
