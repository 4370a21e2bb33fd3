// Package check is what the starter says about runs of RebuildWorkflow and VerifyWorkflow, its verb
// rebuild, and how both are scheduled.
package check

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/internal/cli"
	limits "github.com/urlake/urlake/lake/ingest/deadline"
	"github.com/urlake/urlake/starter/schedule"
	"github.com/urlake/urlake/starter/single"
	"github.com/urlake/urlake/workflows"
)

// RebuildCommand returns the verb rebuild, without what runs it and without --lake, and its input.
func RebuildCommand() (*cobra.Command, *workflows.RebuildInput) {
	in := &workflows.RebuildInput{}
	cmd := &cobra.Command{
		Use:   "rebuild --lake URL",
		Short: "Make the index again from the Parquet alone, and compare it with the published one",
		Long: `Rebuild reads all Parquet of the current version, makes the postings and the segments
again without reading the published ones, and compares every byte. It proves that the
index says what the Parquet has, and that the index could be lost. Nothing is written if
all is equal.

What is damaged or missing of the index gets its bytes back. A segment that another build
of urlake made, and that comes out with other bytes, is replaced in a new version with
the same answers, after it was counted against the Parquet. What cannot be made again,
such as Parquet itself, is named with the command that mends it; the exit code is 1.

It may run beside ingests, publishes and servers, and goes on by itself when workers die.
It takes the work of an index over the whole lake; "starter publish --rebuild" reads less,
and mends manifest and registries, too.`,
		Example: `  starter rebuild --lake s3://b/lake`,
		Args:    cli.Args(cobra.NoArgs),
	}
	deadlineFlag(cmd, &in.Deadline)
	return cmd, in
}

func deadlineFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "deadline", "", "give up after this `DURATION`, e.g. 6h (default: 7d)")
}

// Deadline returns a *cli.UsageError for a deadline that is none.
func Deadline(text string) error {
	if _, err := limits.Parse(text); err != nil {
		return &cli.UsageError{Err: err}
	}
	return nil
}

// Start starts a rebuild, unless one of the lake is running.
func Start(ctx context.Context, c client.Client, in *workflows.RebuildInput) (client.WorkflowRun, error) {
	return single.Start(ctx, c, "rebuild@"+in.Lake, "rebuild", in.Lake, workflows.RebuildWorkflow, *in)
}

// Tell prints how far a workflow is, if that is news.
type Tell func(context.Context, io.Writer)

// Teller tells how far a rebuild is.
func Teller(c client.Client, run client.WorkflowRun) Tell {
	last := ""
	return func(ctx context.Context, w io.Writer) {
		var p workflows.RebuildProgress
		v, err := c.QueryWorkflow(ctx, run.GetID(), "", workflows.ProgressQuery)
		if err != nil || v.Get(&p) != nil {
			return // no worker runs yet, for example
		}
		now := p.Stage
		switch {
		case p.Stage == "postings":
			now = fmt.Sprintf("postings  %d of %s", p.TasksDone, cli.Plural(int64(p.Tasks), "task"))
		case p.Stage == "segments":
			now = fmt.Sprintf("segments  %d of %d", p.SegmentsDone, p.Segments)
		}
		if now != last {
			last = now
			cli.Fprintf(w, "%s\n", now)
		}
	}
}

// PrintRebuilt prints the result of a rebuild for people.
func PrintRebuilt(w io.Writer, r *workflows.RebuildResult) {
	if r.Version == "" {
		cli.Fprintf(w, "Nothing was ever published in this lake, so there is no index to rebuild\n")
		return
	}
	cli.Fprintf(w, "Rebuilt the index of version %s from %s of Parquet: %s of %s\n", r.Version, cli.Size(r.Bytes),
		cli.Plural(r.Again, "row"), cli.Plural(int64(r.Batches), "batch"))
	cli.Fprintf(w, "  equal        %s of %s\n", cli.Count(int64(r.Equal)), cli.Plural(int64(r.Segments), "segment"))
	for _, l := range bySegment(r.Files) {
		cli.Fprintf(w, "  restored     %s\n", l)
	}
	for _, l := range []struct {
		what  string
		lines []string
	}{
		{"restored", r.RestoredPostings}, {"replaced", r.Replaced}, {"other bytes", r.Otherwise}, {"damaged", r.Unmended},
	} {
		for _, line := range l.lines {
			cli.Fprintf(w, "  %-12s %s\n", l.what, line)
		}
	}
	if r.More > 0 {
		cli.Fprintf(w, "  and %s\n", cli.Plural(int64(r.More), "further line"))
	}
	if r.Superseded > 0 {
		cli.Fprintf(w, "  superseded   %s, by a publish meanwhile\n", cli.Plural(int64(r.Superseded), "segment"))
	}
	if len(r.Otherwise) > 0 {
		cli.Fprintf(w, "Another build of urlake made the postings of these batches; they were counted against the Parquet.\n")
	}
	if r.NewVersion != "" {
		cli.Fprintf(w, "In version %s, with the same answers\n", r.NewVersion)
	}
}

// bySegment joins the files of a segment in one line.
func bySegment(files []string) (lines []string) {
	for len(files) > 0 {
		segment := strings.Join(strings.SplitN(files[0], "/", 4)[:min(3, strings.Count(files[0], "/")+1)], "/") + "/"
		n := 0
		for n < len(files) && strings.HasPrefix(files[n], segment) {
			n++
		}
		if n < 2 {
			lines, files = append(lines, files[0]), files[1:]
			continue
		}
		lines, files = append(lines, fmt.Sprintf("%s of %s", cli.Plural(int64(n), "file"), segment)), files[n:]
	}
	return lines
}

// PrintVerified prints the result of a check for people.
func PrintVerified(w io.Writer, v *activities.Verified) {
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

// Kinds are what of this package can be scheduled.
func Kinds() []schedule.Kind {
	return []schedule.Kind{
		{
			Use: "rebuild --lake URL --cron '0 1 * * *' [flags]", Short: "Make the index again from the Parquet regularly",
			Long: `Each run does what "starter rebuild" does: it makes the index again from the Parquet
alone, compares it with the published one, and mends what is damaged.`,
			Example: `  starter schedule create rebuild --lake s3://b/lake --cron '0 1 * * 0'`,
			New: func(cmd *cobra.Command) func(string, []string) (*schedule.Work, error) {
				in := &workflows.RebuildInput{}
				deadlineFlag(cmd, &in.Deadline)
				cmd.Args = cli.Args(cobra.NoArgs)
				return func(lake string, _ []string) (*schedule.Work, error) {
					in.Lake = lake
					return &schedule.Work{Kind: "rebuild", Lake: lake, Name: "rebuild", Workflow: workflows.RebuildWorkflow, Input: in},
						Deadline(in.Deadline)
				}
			},
		},
		{
			Use: "verify --lake URL --cron '0 2 * * *' [flags]", Short: "Check regularly that the lake is complete and intact",
			Long: `Each run does what "starter verify" does, on a worker. It fails if something is damaged,
and names it with the command that mends it; --pause-on-failure then stops the schedule.`,
			Example: `  starter schedule create verify --lake s3://b/lake --cron '0 2 * * *'
  starter schedule create verify --lake s3://b/lake --name verify-deep --cron @weekly --deep`,
			New: func(cmd *cobra.Command) func(string, []string) (*schedule.Work, error) {
				in := &workflows.VerifyInput{}
				deadlineFlag(cmd, &in.Deadline)
				cmd.Flags().BoolVar(&in.Deep, "deep", false, "also read all postings and Parquet, and recount everything")
				cmd.Flags().BoolVar(&in.AllVersions, "all-versions", false, "also check what only earlier versions need")
				cmd.Args = cli.Args(cobra.NoArgs)
				return func(lake string, _ []string) (*schedule.Work, error) {
					in.Lake = lake
					return &schedule.Work{Kind: "verify", Lake: lake, Name: "verify", Workflow: workflows.VerifyWorkflow, Input: in},
						Deadline(in.Deadline)
				}
			},
		},
	}
}
