package takedown

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
)

// Program is what the verbs need of the program that has them.
type Program struct {
	// Open returns the lake that --lake names, and its URL. Check fails if there is none.
	Open  func(ctx context.Context) (blob.Store, string, error)
	Check func(ctx context.Context, store blob.Store, url string) error
	// LakeFlag adds --lake to a verb.
	LakeFlag func(cmd *cobra.Command)
	// JSON tells whether --json was given.
	JSON *bool
}

// NewCommand returns "starter takedown" with its verbs.
func NewCommand(p Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "takedown",
		Short: "Hide a site or a URL in every version of the lake",
		Long: `Takedown hides a domain, a host, a URL or all URLs with a prefix, in every kept version
at once and in what is ingested later. Counts, totals and lists of datasets are exact
without the hidden rows. Servers follow with their next refresh.

The rows are hidden, not deleted: they stay in the lake's Parquet files, which other
programs can read. "starter compact" writes the batches that have them again without
them, and then "starter gc" deletes the old files. A bucket with versioning keeps these
as older versions; "takedown purge" deletes them. "takedown status" looks what still
holds the rows.`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(cmd.ErrOrStderr())
			if err := cmd.Help(); err != nil {
				return err
			}
			return cli.Usagef("no verb given; choose add, list, status, purge or lift")
		},
	}
	cmd.AddCommand(p.add(), p.list(), p.status(), p.purge(), p.lift())
	return cmd
}

// verb completes a verb with what it does.
func (p Program) verb(cmd *cobra.Command, o *options, do func(ctx context.Context, store blob.Store, args []string, out io.Writer) error) *cobra.Command {
	p.LakeFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.json = *p.JSON
		store, url, err := p.Open(cmd.Context())
		if err == nil {
			err = p.Check(cmd.Context(), store, url)
		}
		if err != nil {
			return err
		}
		return lake.Explained(url, do(cmd.Context(), store, args, cmd.OutOrStdout()))
	}
	return cmd
}

func (p Program) add() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "add --lake URL (--domain D | --host H | --url U | --prefix P) --reason TEXT",
		Short: "Hide rows in every version",
		Long: `Add hides rows in every kept version with one change of the manifest, and those that are
ingested later. It reads the rows of the domain in question, no others.

  --domain  a registrable domain with all hosts below it, e.g. example.com
  --host    one host with all its URLs, without the hosts below it
  --url     one URL
  --prefix  all URLs of one host that begin with this text

Any spelling is taken to the canonical form that the lake has. A URL or a prefix without
a scheme is meant with http, https and ftp. With --from or --to, rows without a time are
not hidden; the command says how many there are.

An equal takedown that is in force already is named, and nothing changes. The record of a
takedown has no URL: when it is lifted, a digest of what it named stays.`,
		Example: `  starter takedown add --lake /data/lake --domain example.com --reason "request 17" --dry-run
  starter takedown add --lake /data/lake --domain example.com --reason "request 17"
  starter takedown add --lake s3://b/lake --prefix https://example.org/user/ada/ --reason GDPR --by legal
  starter takedown add --lake s3://b/lake --host a.example.org --dataset crawl --to 2020-01-01 --reason old`,
		Args: cli.Args(cobra.NoArgs),
	}
	f := cmd.Flags()
	f.StringVar(&o.domain, "domain", "", "hide this `DOMAIN` with all its hosts")
	f.StringVar(&o.host, "host", "", "hide this `HOST`")
	f.StringVar(&o.url, "url", "", "hide this `URL`")
	f.StringVar(&o.prefix, "prefix", "", "hide all URLs that begin with this `TEXT`: a host, a slash, perhaps more")
	f.StringVar(&o.dataset, "dataset", "", "only in this dataset, by `NAME` or id (default: in all)")
	f.StringVar(&o.from, "from", "", "only rows of this `TIME` or later, e.g. 2024-11-20")
	f.StringVar(&o.to, "to", "", "only rows before this `TIME`")
	f.StringVar(&o.reason, "reason", "", "why, for the record; no URLs: it stays (`TEXT`)")
	f.StringVar(&o.by, "by", userName(), "who asked for it, for the record (`NAME`)")
	f.BoolVar(&o.dryRun, "dry-run", false, "only say what would be hidden")
	return p.verb(cmd, o, func(ctx context.Context, store blob.Store, _ []string, out io.Writer) error {
		return o.add(ctx, store, out)
	})
}

func (p Program) list() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "list --lake URL",
		Short: "List the takedowns",
		Example: `  starter takedown list --lake /data/lake
  starter takedown list --lake /data/lake --all --json`,
		Args: cli.Args(cobra.NoArgs),
	}
	cmd.Flags().BoolVar(&o.all, "all", false, "also those that were lifted, without what they named")
	return p.verb(cmd, o, func(ctx context.Context, store blob.Store, _ []string, out io.Writer) error {
		return o.list(ctx, store, out)
	})
}

func (p Program) status() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "status ID --lake URL",
		Short: "Look what still holds rows of a takedown",
		Long: `Status looks at the objects of the lake: for each kept version, how many rows the
takedown matches, and that none of them is shown; and which objects still hold such rows,
or the name of the domain, and which commands end that. It reads the parts of kept versions by their
index, and the other parts, those of a failed ingest for example, as a whole. With --deep
it reads all parts in which the rows can be. In a bucket that keeps older versions of
objects it reads those too.

It ends with exit code 0 if nothing holds anything any more, and with 3 if something does,
or if that is not known.`,
		Example: `  starter takedown status 20261120-0f3c9a7152 --lake /data/lake`,
		Args:    cli.Args(cobra.ExactArgs(1)),
	}
	cmd.Flags().BoolVar(&o.deep, "deep", false, "trust no index; read every part in which the rows can be")
	return p.verb(cmd, o, func(ctx context.Context, store blob.Store, args []string, out io.Writer) error {
		return o.status(ctx, store, args[0], out)
	})
}

func (p Program) purge() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "purge ID --lake URL",
		Short: "Delete older versions of objects that hold hidden rows",
		Long: `Purge is for buckets with versioning, which keep what "starter gc" deletes. It deletes
the older versions of objects that hold rows of a takedown, or the name of the domain, and
no others, and never the current version of an object. Run it after "starter compact" and
"starter gc", which make the versions older. No program that uses the lake needs an older
version, so it may run beside all of them, be stopped, and be repeated.

The role needs s3:ListBucketVersions, s3:GetObjectVersion and s3:DeleteObjectVersion. What
it may not delete is named. The exit code is 3 if an older version is left that holds
something, or could not be looked into.`,
		Example: `  starter takedown purge 20261120-0f3c9a7152 --lake s3://b/lake --dry-run
  starter takedown purge 20261120-0f3c9a7152 --lake s3://b/lake`,
		Args: cli.Args(cobra.ExactArgs(1)),
	}
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "only say what would be deleted")
	return p.verb(cmd, o, func(ctx context.Context, store blob.Store, args []string, out io.Writer) error {
		return o.purge(ctx, store, args[0], out)
	})
}

func (p Program) lift() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "lift ID --lake URL",
		Short: "End a takedown",
		Long: `Lift ends a takedown. Its rows are shown again in all versions that still have them,
unless another takedown hides them. Rows that a compaction has dropped do not come back:
retire their batch, publish, and ingest it again. A compaction that has not ended drops
nothing of a takedown that is lifted. The record of the takedown stays.`,
		Example: `  starter takedown lift 20261120-0f3c9a7152 --lake /data/lake --reason "withdrawn"`,
		Args:    cli.Args(cobra.ExactArgs(1)),
	}
	f := cmd.Flags()
	f.StringVar(&o.reason, "reason", "", "why, for the record (`TEXT`)")
	f.StringVar(&o.by, "by", userName(), "who asked for it, for the record (`NAME`)")
	return p.verb(cmd, o, func(ctx context.Context, store blob.Store, args []string, out io.Writer) error {
		return o.lift(ctx, store, args[0], out)
	})
}
