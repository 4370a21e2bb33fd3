package command

import (
	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/ingest/deadline"
	"github.com/urlake/urlake/starter/retire"
	"github.com/urlake/urlake/workflows"
)

// retireCommand is retire or restore.
func retireCommand(g *global, restore bool) *cobra.Command {
	cmd, o := retire.NewCommand(restore)
	g.lakeFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		if err := o.Check(); err != nil {
			return err
		}
		if _, err := deadline.Parse(o.Deadline); err != nil {
			return &cli.UsageError{Err: err}
		}
		store, url, err := g.store(ctx)
		if err != nil {
			return err
		}
		if err := requireLake(ctx, store, url); err != nil {
			return err
		}
		s, err := o.Select(ctx, store)
		if err != nil {
			return lake.Explained(url, err)
		}
		var c client.Client
		if !o.DryRun && !o.NoPublish { // before anything is changed
			if c, err = connect(ctx); err != nil {
				return err
			}
			defer c.Close()
		}
		if !o.DryRun {
			if err := s.Apply(ctx, store); err != nil {
				return lake.Explained(url, err)
			}
		}
		if c != nil {
			run, err := activities.SignalPublisher(ctx, c, url, activities.PublishRequest{Deadline: o.Deadline})
			if err != nil {
				return err
			}
			s.Workflow = run.GetID()
			if o.Wait {
				var res workflows.PublishResult
				if err := awaitPublish(cmd, c, run, &res); err != nil {
					return err
				}
				if err := s.Check(ctx, store, res.Skipped); err != nil {
					return err
				}
			}
		}
		if g.json {
			return printJSON(cmd.OutOrStdout(), s)
		}
		s.Print(cmd.OutOrStdout())
		return nil
	}
	return cmd
}
