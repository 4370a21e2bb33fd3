package command

import (
	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/starter/check"
)

func rebuildCommand(g *global) *cobra.Command {
	cmd, in := check.RebuildCommand()
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := check.CheckDeadline(in.Deadline); err != nil {
			return err
		}
		store, url, err := g.store(cmd.Context())
		if err == nil {
			err = requireLake(cmd.Context(), store, url)
		}
		if err != nil {
			return err
		}
		in.Lake = url
		c, err := connect(cmd.Context())
		if err != nil {
			return err
		}
		defer c.Close()
		run, err := check.Start(cmd.Context(), c, in)
		if err != nil {
			return err
		}
		return watchRebuild(cmd, g, c, run)
	}
	g.lakeFlag(cmd)
	return cmd
}

// watchRebuild waits until a rebuild ends and prints its result.
func watchRebuild(cmd *cobra.Command, g *global, c client.Client, run client.WorkflowRun) error {
	return watchPlain(cmd, g, c, run, check.Teller(c, run), check.PrintRebuilt)
}

// watchVerify waits until a check ends and prints its result.
func watchVerify(cmd *cobra.Command, g *global, c client.Client, run client.WorkflowRun) error {
	return watchPlain(cmd, g, c, run, nil, check.PrintVerified)
}
