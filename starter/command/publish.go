package command

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/workflows"
)

func publishCommand(g *global) *cobra.Command {
	var deadline string
	cmd := &cobra.Command{
		Use:   "publish --lake URL",
		Short: "Publish every finished batch that is in no version yet",
		Long: `Publish makes a version that holds what the current version holds and every finished
batch that it lacks, but no retired one, and waits until the version is published. An ingest publishes at
its end too, unless --no-publish is given.

A finished batch whose record or postings are damaged is left out and named. If the
current version holds an earlier ingest of that batch, the new version keeps it.
"starter rebuild" mends what can be mended.`,
		Example: `  starter publish --lake s3://b/lake`,
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			url, err := cli.LakeURL(g.lake)
			if err != nil {
				return err
			}
			if _, err := ingest.ParseDeadline(deadline); err != nil {
				return &cli.UsageError{Err: err}
			}
			c, err := connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			run, err := activities.SignalPublisher(cmd.Context(), c, url,
				activities.PublishRequest{Deadline: deadline})
			if err != nil {
				return err
			}
			return watchPublish(cmd, g, c, run)
		},
	}
	cmd.Flags().StringVar(&deadline, "deadline", "",
		"give up after this `DURATION`, e.g. 36h or 3d; until then whatever may pass is retried (default: 7d)")
	g.lakeFlag(cmd)
	return cmd
}

// watchPublish waits until a publisher ends and prints its result.
func watchPublish(cmd *cobra.Command, g *global, c client.Client, run client.WorkflowRun) error {
	var res workflows.PublishResult
	if err := awaitPublish(cmd, c, run, &res); err != nil {
		return err
	}
	if g.json {
		return printJSON(cmd.OutOrStdout(), res)
	}
	printPublish(cmd.OutOrStdout(), &res)
	return nil
}

// awaitPublish waits until a publisher ends.
func awaitPublish(cmd *cobra.Command, c client.Client, run client.WorkflowRun, res *workflows.PublishResult) error {
	waits := newWaitLog(cmd.ErrOrStderr(), nil, c, run)
	return await(cmd, run, res, false, c, nil, func(ctx context.Context) { waits.update(ctx, "") })
}

// printPublish prints the result of a publish for people.
func printPublish(out io.Writer, res *workflows.PublishResult) {
	for _, line := range res.Lost {
		cli.Fprintf(out, "Lost: %s\n", line)
	}
	if m := res.Moved; m != nil {
		cli.Fprintf(out, "Moved %s to other domains: rewrote %s of %s, %s\n", plural(m.Moved, "row"),
			count(int64(m.Again)), plural(int64(m.Batches), "batch"), size(m.Bytes))
		if m.Damaged > 0 {
			cli.Fprintf(out, "Not moved: %s\n", plural(int64(m.Damaged), "damaged batch"))
		}
	}
	for _, s := range res.Skipped {
		cli.Fprintf(out, "Left out: %s\n", s)
	}
	if more := res.SkippedBatches - len(res.Skipped); more > 0 {
		cli.Fprintf(out, "Left out: %d more damaged batches\n", more)
	}
	switch removed := plural(int64(res.Removed), "retired batch"); {
	case res.Batches > 0 && res.Removed > 0:
		cli.Fprintf(out, "Published %s, which adds %s, without %s\n", res.Version, plural(int64(res.Batches), "batch"), removed)
	case res.Batches > 0:
		cli.Fprintf(out, "Published %s, which adds %s\n", res.Version, plural(int64(res.Batches), "batch"))
	case res.Removed > 0:
		cli.Fprintf(out, "Published %s, without %s\n", res.Version, removed)
	case res.Moved != nil && res.Rounds > 0:
		cli.Fprintf(out, "Published %s, which follows the lake's public suffix list\n", res.Version)
	case res.Version == "" && res.SkippedBatches == 0:
		cli.Fprintf(out, "Nothing to publish: no batch is finished\n")
	case res.Version == "":
		cli.Fprintf(out, "Nothing to publish: every finished batch is damaged\n")
	case res.SkippedBatches > 0:
		cli.Fprintf(out, "Nothing new: %s holds every finished batch that is intact\n", res.Version)
	default:
		cli.Fprintf(out, "Nothing new: %s holds every finished batch\n", res.Version)
	}
}
