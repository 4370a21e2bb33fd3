package urllist

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/serve/format"
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/shortlived"
)

// Program is what the verb needs of the program that has it.
type Program struct {
	// Open returns the lake that --lake names, and its URL. Check fails if there is none.
	Open  func(ctx context.Context) (blob.Store, string, error)
	Check func(ctx context.Context, store blob.Store, url string) error
	// Explain says more of the error that no version is published.
	Explain func(ctx context.Context, store blob.Store, err error) error
	// LakeFlag adds --lake to a verb.
	LakeFlag func(cmd *cobra.Command)
	// JSON tells whether --json was given.
	JSON *bool
}

// NewCommand returns "starter urls".
func NewCommand(p Program) *cobra.Command {
	var o Options
	var form string
	cmd := &cobra.Command{
		Use:   "urls DOMAIN --lake URL --dataset NAME [flags]",
		Short: "List the URLs that a dataset has of a domain",
		Long: `Urls lists the rows that a dataset has of a domain in the current version, or in that
of --at, as the read server does, and reads the lake itself. DOMAIN is any spelling of a
host or a URL; the list is for the registrable domain that it belongs to.

--host, --prefix, --from, --to and --filter select rows. A host, and a prefix within it,
is found by binary search; everything else by reading the rows.
--unique lists each URL once, sorted by host, path and query, scheme and port, with the
number of its rows and their first and last time. It merges up to 64 parts; a dataset of
more batches is to be compacted first.

On a terminal it prints a table of up to 100 rows, in a pipe all rows as NDJSON. The
fields docs/api.md describes.`,
		Example: `  starter urls example.com --lake /data/lake --dataset crawl
  starter urls example.com --lake /data/lake --dataset crawl --host www.example.com --prefix /docs/ --format text
  starter urls example.com --lake /data/lake --dataset crawl --from 2026-11-01 --to 2026-12-01 --format csv > november.csv
  starter urls example.com --lake /data/lake --dataset crawl --unique | wc -l`,
		Args: cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Domain = args[0]
			terminal := isTerminal(cmd.OutOrStdout())
			switch {
			case o.Dataset == "":
				return cli.Usagef("--dataset is missing; name the dataset whose URLs to list")
			case o.Limit < 0:
				return cli.Usagef("--limit is %d; use a number of rows, or 0 for all", o.Limit)
			case *p.JSON && form != "" && form != string(format.NDJSON):
				return cli.Usagef("--json prints NDJSON; leave out --format %s", form)
			case *p.JSON || form == "" && !terminal:
				o.Format = format.NDJSON
			case form == "" || form == string(Table):
				o.Format = Table
			default:
				var err error
				if o.Format, err = format.Parse(form); err != nil || o.Format == format.JSON {
					return cli.Usagef("--format is %q; use table, ndjson, csv, text or parquet", form)
				}
			}
			if o.Format == format.Parquet && terminal {
				return cli.Usagef("a Parquet file is not for a terminal; redirect it, as in > urls.parquet")
			}
			if o.Format == format.Text && o.Fields != "" {
				return cli.Usagef("--fields is not for text, which has a URL a line; use csv or ndjson")
			}
			if terminal && !cmd.Flags().Changed("limit") {
				o.Limit = lookup.DefaultLimit
			}
			store, url, err := p.Open(cmd.Context())
			if err != nil {
				return err
			}
			if err := p.Check(cmd.Context(), store, url); err != nil {
				return err
			}
			stdout := cmd.OutOrStdout()
			if terminal || o.Format == format.NDJSON {
				stdout = cli.Printable(stdout)
			}
			out := bufio.NewWriter(stdout)
			err = o.Print(cmd.Context(), store, url, out, cmd.ErrOrStderr())
			return lake.Explained(url, errors.Join(p.Explain(cmd.Context(), store, err), out.Flush()))
		},
	}
	p.LakeFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&o.Dataset, "dataset", "", "`NAME` or id of the dataset")
	f.StringVar(&o.Version, "at", "", "list the rows of this `VERSION`, an id or a name, instead of the current one")
	f.StringVar(&o.Host, "host", "", "list the URLs of this `HOST` of the domain alone")
	f.StringVar(&o.Prefix, "prefix", "", "list the URLs whose path and query begin with this `TEXT`, e.g. /docs/")
	f.StringVar(&o.From, "from", "", "list the rows with a time from this `TIME` on, a date or RFC 3339")
	f.StringVar(&o.To, "to", "", "list the rows with a time before this `TIME`, a date or RFC 3339")
	f.StringArrayVar(&o.Filters, "filter", nil,
		"list the rows whose extras meet this `CONDITION`: status=404, status!=200 or mime~^image/; may be repeated")
	f.BoolVar(&o.Unique, "unique", false, "list each URL once")
	f.StringVar(&o.Fields, "fields", "", "print these `NAMES`, with commas between them (default: url_id,url,ts)")
	f.StringVar(&form, "format", "", "`FORMAT`: table, ndjson, csv, text or parquet (default: table on a terminal, else ndjson)")
	f.Int64Var(&o.Limit, "limit", 0, "print at most so many `ROWS`; 0 is all (default: 100 on a terminal, else all)")
	f.StringVar(&o.Cache, "cache", shortlived.DefaultCache(), "`FOLDER` for copies of the mapped index files of an S3 lake")
	return cmd
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
