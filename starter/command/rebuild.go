package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/starter/check"
	"github.com/urlake/urlake/workflows"
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
	var res workflows.RebuildResult
	waits := newWaitLog(cmd.ErrOrStderr(), nil, c, run)
	last := ""
	if err := await(cmd, run, &res, false, c, nil, func(ctx context.Context) {
		waits.update(ctx, "")
		var p workflows.RebuildProgress
		v, err := c.QueryWorkflow(ctx, run.GetID(), "", workflows.ProgressQuery)
		if err != nil || v.Get(&p) != nil || g.json {
			return
		}
		if now := rebuildText(p); now != last {
			last = now
			cli.Fprintf(cmd.ErrOrStderr(), "%s\n", now)
		}
	}); err != nil {
		return err
	}
	if g.json {
		return printJSON(cmd.OutOrStdout(), res)
	}
	check.PrintRebuilt(cmd.OutOrStdout(), &res)
	return nil
}

// rebuildText is one line about a rebuild that goes on.
func rebuildText(p workflows.RebuildProgress) string {
	switch {
	case p.Stage == "postings" && p.Tasks > 0:
		return fmt.Sprintf("postings  %d of %s", p.TasksDone, plural(int64(p.Tasks), "task"))
	case p.Stage == "segments":
		return fmt.Sprintf("segments  %d of %d", p.SegmentsDone, p.Segments)
	}
	return p.Stage
}

// watchVerify waits until a check ends and prints its result.
func watchVerify(cmd *cobra.Command, g *global, c client.Client, run client.WorkflowRun) error {
	var res activities.Verified
	waits := newWaitLog(cmd.ErrOrStderr(), nil, c, run)
	if err := await(cmd, run, &res, false, c, nil, func(ctx context.Context) { waits.update(ctx, "") }); err != nil {
		return err
	}
	if g.json {
		return printJSON(cmd.OutOrStdout(), res)
	}
	check.PrintVerified(cmd.OutOrStdout(), &res)
	return nil
}
