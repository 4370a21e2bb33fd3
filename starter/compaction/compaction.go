// Package compaction is what the verb compact of the starter starts and prints.
package compaction

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/starter/single"
	"github.com/urlake/urlake/workflows"
)

// NewCommand returns the verb, without what runs it and without --lake, and what its flags say.
func NewCommand() (*cobra.Command, *workflows.CompactInput) {
	in := &workflows.CompactInput{}
	cmd := &cobra.Command{
		Use:   "compact --lake URL",
		Short: "Merge small segments of the index and small parts of datasets",
		Long: `Compact makes a version with the same batches in fewer files. It merges small segments
of the index into one, and the rows of their batches of one dataset into common parts,
sorted as if they were one batch. Each row keeps its batch, which can still be
retired or replaced, and all counts stay as they are.

A publish starts a compaction by itself when the version has many segments. With --full
all segments become one, and all small batches of each dataset one set of parts; that
writes most of the lake again. Ingests, publishes and servers go on meanwhile. The old
files stay until "starter gc" deletes them.`,
		Example: `  starter compact --lake s3://b/lake
  starter compact --lake s3://b/lake --full`,
		Args: cli.Args(cobra.NoArgs),
	}
	f := cmd.Flags()
	f.BoolVar(&in.Full, "full", false, "merge all segments, and all small batches of each dataset")
	f.StringVar(&in.Deadline, "deadline", "", "give up after this `DURATION`, e.g. 6h (default: 7d)")
	return cmd, in
}

// Start starts the workflow, unless one of the lake is running.
func Start(ctx context.Context, c client.Client, in *workflows.CompactInput) (client.WorkflowRun, error) {
	return single.Start(ctx, c, activities.CompactorID(in.Lake), "compaction", in.Lake, workflows.CompactWorkflow, *in)
}

// Print prints the result of a compaction for people.
func Print(out io.Writer, res *workflows.CompactResult) {
	if res.Rounds == 0 {
		cli.Fprintf(out, "Nothing to compact\n")
		if res.Version != "" {
			cli.Fprintf(out, "Version: %s\n", res.Version)
		}
		return
	}
	cli.Fprintf(out, "Merged %s with %s of %s\n", cli.Plural(int64(res.Segments), "segment"),
		cli.Plural(res.Rows, "row"), cli.Plural(int64(res.Batches), "batch"))
	if res.Unions > 0 {
		cli.Fprintf(out, "United the small parts of %s: %s of %s in the place of %s\n", cli.Plural(int64(res.Unions), "dataset"),
			cli.Plural(res.Parts, "part"), cli.Size(res.Bytes), cli.Size(res.From))
	}
	cli.Fprintf(out, "Version: %s\n", res.Version)
}
