package command

import (
	"bufio"
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/workflows"
)

// Verbs that start a workflow of the lake, wait for it and print its result.

func gcCommand(g *global) *cobra.Command {
	cmd, in := newGarbageCommand()
	return maintain(g, cmd, &in.Lake, func(ctx context.Context, c client.Client) (client.WorkflowRun, error) {
		return startGarbage(ctx, c, in)
	}, func() error { return checkGarbage(in) }, nil, printGarbage)
}

func compactCommand(g *global) *cobra.Command {
	cmd, in := newCompactCommand()
	return maintain(g, cmd, &in.Lake, func(ctx context.Context, c client.Client) (client.WorkflowRun, error) {
		return startCompaction(ctx, c, in)
	}, nil, compactionProgress, printCompaction)
}

func rebuildCommand(g *global) *cobra.Command {
	cmd, in := newRebuildCommand()
	return maintain(g, cmd, &in.Lake, func(ctx context.Context, c client.Client) (client.WorkflowRun, error) {
		return startRebuild(ctx, c, in)
	}, func() error { return checkDeadline(in.Deadline) }, nil, printRebuilt, teller)
}

// progressOf tells how far a workflow is: see compactionProgress.
type progressOf func(context.Context, client.Client, client.WorkflowRun) (share float64, stage, line string, ok bool)

// maintain completes a verb whose input has the lake at lake. wrong, which may be nil, returns an
// error for wrong usage. progress, which may be nil, tells a bar how far the workflow is, tellers
// print lines about it.
func maintain[R any](
	g *global, cmd *cobra.Command, lake *string, start func(context.Context, client.Client) (client.WorkflowRun, error),
	wrong func() error, progress progressOf, print func(io.Writer, *R), tellers ...func(client.Client, client.WorkflowRun) tell,
) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if *lake, err = cli.LakeURL(g.lake); err != nil {
			return err
		}
		if wrong != nil {
			if err := wrong(); err != nil {
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
		var tells []tell
		for _, teller := range tellers {
			tells = append(tells, teller(c, run))
		}
		return watchMaintenance(cmd, g, c, run, progress, print, tells...)
	}
	g.lakeFlag(cmd)
	return cmd
}

// watchMaintenance waits until the workflow ends and prints its result.
func watchMaintenance[R any](
	cmd *cobra.Command, g *global, c client.Client, run client.WorkflowRun, progress progressOf, print func(io.Writer, *R),
	tells ...tell,
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
		for _, tell := range tells {
			if !g.json {
				tell(ctx, cmd.ErrOrStderr())
			}
		}
	})
	b.finish(err)
	if err != nil {
		return err
	}
	var lost error
	if r, ok := any(&res).(*workflows.RebuildResult); ok {
		lost = checkLost(r)
	}
	if g.json {
		return errors.Join(printJSON(cmd.OutOrStdout(), res), lost)
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	print(out, &res)
	return errors.Join(out.Flush(), lost)
}
