package command

import (
	"bufio"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/serve/shortlived"
	"github.com/urlake/urlake/starter/versiondiff"
)

func diffCommand(g *global) *cobra.Command {
	var o versiondiff.Options
	cmd := &cobra.Command{
		Use:   "diff [FROM [TO]] --lake URL",
		Short: "Show which domains of which datasets changed between two versions",
		Long: `Diff compares two versions, which are ids or names: by default the current one with
the one before it. FROM alone is compared with the current one. Diff counts, for each
dataset, the domains that were added to it, removed from it, or have another number of
rows, sum of sizes, or first or last time; and it names the domains whose number of rows
changed most. With --json it prints every change on a line of its own, in the order of
domain ids, and on the last line the counts.

The counts are exact. Only the index of what was published between the two versions is
read, not the lake. Other URLs with the same totals are not noticed.`,
		Example: `  starter diff --lake /data/lake
  starter diff 20261120T101112.123Z-0f3c9a71 20261121T101204.031Z-77aa01c2 --lake s3://b/lake
  starter diff --lake /data/lake --dataset news --json | jq -r 'select(.change == "added").domain'`,
		Args: cli.Args(cobra.MaximumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, url, err := g.store(cmd.Context())
			if err != nil {
				return err
			}
			if err := requireLake(cmd.Context(), store, url); err != nil {
				return err
			}
			o.JSON = g.json
			if slices.Contains(args, "") {
				return cli.Usagef("a version is empty; leave it out for the default")
			}
			o.From, o.To = append(args, "", "")[0], append(args, "", "")[1]
			out := bufio.NewWriter(cmd.OutOrStdout())
			return lake.Explained(url, errors.Join(noVersion(cmd.Context(), store, o.Print(cmd.Context(), store, url, out)), out.Flush()))
		},
	}
	g.lakeFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&o.Dataset, "dataset", "", "compare this dataset alone, by `NAME` or id")
	f.StringVar(&o.Cache, "cache", shortlived.DefaultCache(), "`FOLDER` for copies of the mapped index files of an S3 lake")
	return cmd
}
