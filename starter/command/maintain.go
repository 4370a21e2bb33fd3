package command

import (
	"bufio"
	"context"
	"io"
	"time"

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
	}, func() error { return garbage.Check(in) }, nil, garbage.Print)
}

func compactCommand(g *global) *cobra.Command {
	cmd, in := compaction.NewCommand()
	return maintain(g, cmd, &in.Lake, func(ctx context.Context, c client.Client) (client.WorkflowRun, error) {
		return compaction.Start(ctx, c, in)
	}, nil, compaction.Progress, compaction.Print)
}

// progressOf tells how far a workflow is: see compaction.Progress.
type progressOf func(context.Context, client.Client, client.WorkflowRun) (share float64, stage, line string, ok bool)

// maintain completes a verb whose input has the lake at lake. check and progress may be nil.
func maintain[R any](
	g *global, cmd *cobra.Command, lake *string, start func(context.Context, client.Client) (client.WorkflowRun, error),
	check func() error, progress progressOf, print func(io.Writer, *R),
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
		return watchMaintenance(cmd, g, c, run, progress, print)
	}
	g.lakeFlag(cmd)
	return cmd
}

// watchMaintenance waits until the workflow ends and prints its result.
func watchMaintenance[R any](
	cmd *cobra.Command, g *global, c client.Client, run client.WorkflowRun, progress progressOf, print func(io.Writer, *R),
) error {
	var res R
	var b *bar // shows nothing
	if progress != nil {
		b = newBar(cmd.ErrOrStderr(), g.json)
	}
	waits := newWaitLog(cmd.ErrOrStderr(), b, c, run)
	err := await(cmd, run, &res, false, c, b, func(ctx context.Context) {
		if progress != nil {
			if share, stage, line, ok := progress(ctx, c, run); ok {
				b.show(share, stage, time.Now(), func(func(int64) string) string { return line })
			}
		}
		waits.update(ctx, "")
	})
	b.finish(err)
	if err != nil {
		return err
	}
	if g.json {
		return printJSON(cmd.OutOrStdout(), res)
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	print(out, &res)
	return out.Flush()
}
