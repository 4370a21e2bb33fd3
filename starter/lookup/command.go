package lookup

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/serve/shortlived"
)

// Program is what the verb needs of starter.
type Program struct {
	Open  func(ctx context.Context) (blob.Store, string, error)
	Check func(ctx context.Context, store blob.Store, url string) error
	// Failed explains the error of a lake without versions.
	Failed   func(ctx context.Context, store blob.Store, err error) error
	LakeFlag func(cmd *cobra.Command)
	JSON     *bool
}

// NewCommand returns the verb.
func NewCommand(p Program) *cobra.Command {
	var o Options
	cmd := &cobra.Command{
		Use:   "lookup DOMAIN… | --file LIST --lake URL",
		Short: "Say which datasets hold domains, and how much of them",
		Long: `Lookup says for each domain which datasets hold it: the number of rows, which is exact,
the sum of their sizes, and their first and last time. It reads the lake itself and
needs no server; the answers are those of the server's POST /v1/domains:lookup.

A domain may be any spelling of a host or a URL; the answer is for its registrable
domain. --file reads a list: a domain a line; CSV, whose first column is read, or one
named domain, host or url; or NDJSON. "-" is standard input. A list may have any
length. Answers are in the order of the questions. They are a table on a terminal, and
otherwise a line of JSON for each.

With --matrix there is one row for each question, with a column for each dataset.

A question that is no domain is answered with the reason. If there is one, the exit
code is 1 after all have been answered.`,
		Example: `  starter lookup cdc.gov nasa.gov --lake /data/lake
  starter lookup --file optout.txt --lake s3://bucket/lake --csv > held.csv
  starter lookup --file list.csv --matrix --csv --lake /data/lake > matrix.csv
  zcat hosts.gz | starter lookup --file - --presence --lake /data/lake | jq -r 'select(.total_datasets > 0).asked'`,
		Args: cli.Args(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.JSON = *p.JSON; o.CSV && o.JSON {
				return cli.Usagef("--csv and --json are two forms of the answer; choose one")
			}
			questions, err := Questions(args, o.File, cmd.InOrStdin())
			if err != nil {
				return err
			}
			store, url, err := p.Open(cmd.Context())
			if err != nil {
				return err
			}
			if err := p.Check(cmd.Context(), store, url); err != nil {
				return err
			}
			err = o.Print(cmd.Context(), store, url, questions, cmd.OutOrStdout(), cmd.ErrOrStderr())
			return lake.Explained(url, p.Failed(cmd.Context(), store, err))
		},
	}
	p.LakeFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&o.File, "file", "", "`LIST` of domains; - is standard input")
	f.StringVar(&o.Datasets, "dataset", "", "count only these datasets: `NAMES` or ids, separated by commas")
	f.StringVar(&o.Version, "at", "", "ask this `VERSION`, an id or a name, instead of the current one")
	f.BoolVar(&o.CSV, "csv", false, "print CSV")
	f.BoolVar(&o.Matrix, "matrix", false, "print a column for each dataset")
	f.BoolVar(&o.Presence, "presence", false, "say only which datasets hold a domain, which reads next to nothing")
	f.StringVar(&o.Cache, "cache", shortlived.DefaultCache(), "`FOLDER` for copies of the mapped index files of an S3 lake")
	return cmd
}
