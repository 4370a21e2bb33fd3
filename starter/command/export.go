package command

import (
	"github.com/spf13/cobra"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/starter/pgexport"
)

// exportPostgresCommand returns "starter export postgres".
func exportPostgresCommand(g *global) *cobra.Command {
	cmd, in := pgexport.NewCommand()
	wait := false
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the export ends, and print its result")
	g.lakeFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		if err := pgexport.Check(in); err != nil {
			return err
		}
		store, url, err := g.store(ctx)
		if err == nil {
			in.Lake = url
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
		run, err := pgexport.Start(ctx, c, in)
		if err != nil {
			return err
		}
		if wait {
			return watchMaintenance(cmd, g, c, run, pgexport.Progress, pgexport.Print)
		}
		if g.json {
			return printJSON(cmd.OutOrStdout(), map[string]string{"workflow_id": run.GetID(), "run_id": run.GetRunID()})
		}
		cli.Fprintf(cmd.OutOrStdout(), "Started the export; to watch it: %s '%s'\n", cli.Typed("starter watch"), run.GetID())
		return warnIdlePools(ctx, c, url, cmd.ErrOrStderr())
	}
	return cmd
}
