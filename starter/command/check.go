package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/workflows"
)

// newRebuildCommand returns the verb rebuild, without what runs it and without --lake, and its
// input.
func newRebuildCommand() (*cobra.Command, *workflows.RebuildInput) {
	in := &workflows.RebuildInput{}
	cmd := &cobra.Command{
		Use:   "rebuild --lake URL",
		Short: "Publish a version of everything in a damaged lake that is whole, and name what is lost",
		Long: `Rebuild reads every byte of the current version, and makes a version of the batches whose
records and Parquet are whole. Lost postings are extracted from Parquet, and damaged
segments are built again. One that has lost no batch gets its bytes and its name back, so
earlier versions can be read again, too. Lost documents of the registry, the manifest and
the takedowns are made of what versions, batch records and pieces tell. Then the batches
that wait are published.

What is lost is named, with the number of batches and rows. Ingest lost batches again. The
exit code is 1 then. In an intact lake nothing is written.

It may run beside ingests, publishes and servers, and goes on by itself when workers die.
"starter verify" names damage and changes nothing.`,
		Example: `  starter rebuild --lake s3://b/lake`,
		Args:    cli.Args(cobra.NoArgs),
	}
	deadlineFlag(cmd, &in.Deadline)
	return cmd, in
}

func deadlineFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "deadline", "", "give up after this `DURATION`, e.g. 6h (default: 7d)")
}

// checkDeadline returns a *cli.UsageError for a deadline that is none.
func checkDeadline(text string) error {
	if _, err := ingest.ParseDeadline(text); err != nil {
		return &cli.UsageError{Err: err}
	}
	return nil
}

// start starts a rebuild, unless one of the lake is running.
func startRebuild(ctx context.Context, c client.Client, in *workflows.RebuildInput) (client.WorkflowRun, error) {
	return startSingle(ctx, c, "rebuild@"+in.Lake, "rebuild", in.Lake, workflows.RebuildWorkflow, *in)
}

// tell prints how far a workflow is, if that is news.
type tell func(context.Context, io.Writer)

// teller tells how far a rebuild is.
func teller(c client.Client, run client.WorkflowRun) tell {
	last := ""
	return func(ctx context.Context, w io.Writer) {
		var p workflows.RebuildProgress
		v, err := c.QueryWorkflow(ctx, run.GetID(), "", workflows.ProgressQuery)
		if err != nil || v.Get(&p) != nil {
			return // no worker runs yet, for example
		}
		now := p.Stage
		if p.Tasks > 0 {
			now = fmt.Sprintf("%-8s %d of %s", p.Stage, p.Done, cli.Plural(int64(p.Tasks), "task"))
		}
		if now != last {
			last = now
			cli.Fprintf(w, "%s\n", now)
		}
	}
}

// printRebuilt prints the result of a rebuild for people.
func printRebuilt(w io.Writer, r *workflows.RebuildResult) {
	cli.Fprintf(w, "Checked %s: built %s again, extracted %s\n", cli.Plural(int64(r.Checked), "segment"),
		cli.Count(int64(len(r.Segments))), cli.Plural(int64(r.Postings), "postings object"))
	for _, key := range r.Restored {
		cli.Fprintf(w, "Restored: %s\n", key)
	}
	for _, line := range r.Lost {
		cli.Fprintf(w, "Lost: %s\n", line)
	}
	if r.LostBatches > 0 {
		cli.Fprintf(w, "Lost: %s of %s in all\n", cli.Plural(r.LostRows, "row"), cli.Plural(int64(r.LostBatches), "batch"))
	}
	if p := r.Published; p != nil {
		for _, s := range p.Skipped {
			if !slices.ContainsFunc(r.Lost, func(line string) bool { return strings.HasSuffix(line, s.Reason) }) {
				cli.Fprintf(w, "Left out: %s\n", s)
			}
		}
		if p.Batches > 0 {
			cli.Fprintf(w, "Published %s that waited\n", cli.Plural(int64(p.Batches), "batch"))
		}
	}
	if r.Version == "" {
		cli.Fprintf(w, "Nothing is published\n")
		return
	}
	cli.Fprintf(w, "The current version is %s\n", r.Version)
}

// checkLost is the error of a rebuild that has lost something.
func checkLost(r *workflows.RebuildResult) error {
	switch {
	case r.LostBatches > 0:
		return fmt.Errorf("lost %s with %s", cli.Plural(int64(r.LostBatches), "batch"), cli.Plural(r.LostRows, "row"))
	case len(r.Lost) > 0:
		return errors.New("not everything could be made again")
	}
	return nil
}

// printVerified prints the result of a check for people.
func printVerified(w io.Writer, v *activities.Verified) {
	how := "; of postings and Parquet, the directories and sizes"
	if v.Deep {
		how = ", with every row"
	}
	if v.Version == "" {
		cli.Fprintf(w, "Checked the lake, of which nothing is published%s: no problems found\n", how)
		return
	}
	cli.Fprintf(w, "Checked version %s: %s of %s, %s, %s%s\nNo problems found\n", v.Version, cli.Plural(v.Rows, "row"),
		cli.Plural(int64(v.Batches), "batch"), cli.Plural(v.Domains, "domain"), cli.Plural(int64(v.Segments), "segment"), how)
	if v.Unpublished > 0 {
		cli.Fprintf(w, "Not published yet, and checked too: %s\n", cli.Plural(int64(v.Unpublished), "finished batch"))
	}
}

// checkKinds are what of this package can be scheduled.
func checkKinds() []scheduleKind {
	return []scheduleKind{
		{
			Use: "rebuild --lake URL --cron '0 1 * * *' [flags]", Short: "Rebuild what is damaged regularly",
			Long: `Each run does what "starter rebuild" does: it reads every byte of the lake, makes a
version of what is whole if anything is damaged, and names what is lost.`,
			Example: `  starter schedule create rebuild --lake s3://b/lake --cron '0 1 * * 0'`,
			New: func(cmd *cobra.Command) func(string, []string) (*Work, error) {
				in := &workflows.RebuildInput{}
				deadlineFlag(cmd, &in.Deadline)
				cmd.Args = cli.Args(cobra.NoArgs)
				return func(lake string, _ []string) (*Work, error) {
					in.Lake = lake
					return &Work{Kind: "rebuild", Lake: lake, Name: "rebuild", Workflow: workflows.RebuildWorkflow, Input: in},
						checkDeadline(in.Deadline)
				}
			},
		},
		{
			Use: "verify --lake URL --cron '0 2 * * *' [flags]", Short: "Check regularly that the lake is complete and intact",
			Long: `Each run does what "starter verify" does, on a worker. It fails if something is damaged,
and names it with the command that mends it; --pause-on-failure then stops the schedule.`,
			Example: `  starter schedule create verify --lake s3://b/lake --cron '0 2 * * *'
  starter schedule create verify --lake s3://b/lake --name verify-deep --cron @weekly --deep`,
			New: func(cmd *cobra.Command) func(string, []string) (*Work, error) {
				in := &workflows.VerifyInput{}
				deadlineFlag(cmd, &in.Deadline)
				cmd.Flags().BoolVar(&in.Deep, "deep", false, "also read all postings and Parquet, and recount everything")
				cmd.Flags().BoolVar(&in.AllVersions, "all-versions", false, "also check what only earlier versions need")
				cmd.Args = cli.Args(cobra.NoArgs)
				return func(lake string, _ []string) (*Work, error) {
					in.Lake = lake
					return &Work{Kind: "verify", Lake: lake, Name: "verify", Workflow: workflows.VerifyWorkflow, Input: in},
						checkDeadline(in.Deadline)
				}
			},
		},
	}
}
