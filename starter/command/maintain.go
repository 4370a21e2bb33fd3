package command

import (
	"bufio"
	"context"
	"io"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/starter/compaction"
	"github.com/urlake/urlake/starter/garbage"
)

// Verbs that start a workflow of the lake, wait for it and print its result.

func gcCommand(g *global) *cobra.Command {
	cmd, in := garbage.NewCommand()
	return maintain(g, cmd, &in.Lake, func(ctx context.Context, c client.Client) (client.WorkflowRun, error) {
		return garbage.Start(ctx, c, in)
	}, func() error { return garbage.Check(in) }, garbage.Print)
}

func compactCommand(g *global) *cobra.Command {
	cmd, in := compaction.NewCommand()
	return maintain(g, cmd, &in.Lake, func(ctx context.Context, c client.Client) (client.WorkflowRun, error) {
		return compaction.Start(ctx, c, in)
	}, nil, compaction.Print)
}

// maintain completes a verb whose input has the lake at lake. check may be nil.
func maintain[R any](
	g *global, cmd *cobra.Command, lake *string, start func(context.Context, client.Client) (client.WorkflowRun, error),
	check func() error, print func(io.Writer, *R),
) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if *lake, err = cli.LakeURL(g.lake); err != nil {
			return err
		}
		if check != nil {
			if err := check(); err != nil {
				return err
			}
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
		run, err := start(cmd.Context(), c)
		if err != nil {
			return err
		}
		return watchMaintenance(cmd, g, c, run, print)
	}
	g.lakeFlag(cmd)
	return cmd
}

// watchMaintenance waits until the workflow ends and prints its result.
func watchMaintenance[R any](
	cmd *cobra.Command, g *global, c client.Client, run client.WorkflowRun, print func(io.Writer, *R),
) error {
	var res R
	waits := newWaitLog(cmd.ErrOrStderr(), nil, c, run)
	if err := await(cmd, run, &res, false, c, nil, func(ctx context.Context) { waits.update(ctx, "") }); err != nil {
		return err
	}
	if g.json {
		return printJSON(cmd.OutOrStdout(), res)
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	print(out, &res)
	return out.Flush()
}
