package command

import (
	"bufio"
	"context"
	"io"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

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
	return watchPlain(cmd, g, c, run, nil, garbage.Print)
}

// watchPlain waits until a workflow ends and prints its result. Tell, unless it is nil, tells
// meanwhile how far it is.
func watchPlain[T any](
	cmd *cobra.Command, g *global, c client.Client, run client.WorkflowRun,
	tell func(ctx context.Context, w io.Writer), show func(io.Writer, *T),
) error {
	var res T
	waits := newWaitLog(cmd.ErrOrStderr(), nil, c, run)
	if err := await(cmd, run, &res, false, c, nil, func(ctx context.Context) {
		waits.update(ctx, "")
		if tell != nil && !g.json {
			tell(ctx, cmd.ErrOrStderr())
		}
	}); err != nil {
		return err
	}
	if g.json {
		return printJSON(cmd.OutOrStdout(), res)
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	show(out, &res)
	return out.Flush()
}
