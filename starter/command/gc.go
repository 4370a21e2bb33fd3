package command

import (
	"bufio"
	"context"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/starter/garbage"
)

func gcCommand(g *global) *cobra.Command {
	cmd, in := garbage.NewCommand()
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if in.Lake, err = cli.LakeURL(g.lake); err != nil {
			return err
		}
		if err := garbage.Check(in); err != nil {
			return err
		}
		store, url, err := g.store(cmd.Context())
		if err == nil {
			err = requireLake(cmd.Context(), store, url)
		}
		if err != nil {
			return err
		}
		c, err := connect(cmd.Context())
		if err != nil {
			return err
		}
		defer c.Close()
		run, err := garbage.Start(cmd.Context(), c, in)
		if err != nil {
			return err
		}
		return watchGC(cmd, g, c, run)
	}
	g.lakeFlag(cmd)
	return cmd
}

// watchGC waits until a garbage collection ends and prints its result.
func watchGC(cmd *cobra.Command, g *global, c client.Client, run client.WorkflowRun) error {
	var res activities.Garbage
	waits := newWaitLog(cmd.ErrOrStderr(), nil, c, run)
	if err := await(cmd, run, &res, false, c, nil, func(ctx context.Context) { waits.update(ctx, "") }); err != nil {
		return err
	}
	if g.json {
		return printJSON(cmd.OutOrStdout(), res)
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	garbage.Print(out, &res)
	return out.Flush()
}
