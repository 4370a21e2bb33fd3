package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/format"
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/shortlived"
)

// newURLsCommand returns "starter urls".
func newURLsCommand(g *global) *cobra.Command {
	var o urlsOptions
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
			case g.json && form != "" && form != string(format.NDJSON):
				return cli.Usagef("--json prints NDJSON; leave out --format %s", form)
			case g.json || form == "" && !terminal:
				o.Format = format.NDJSON
			case form == "" || form == string(urlsTable):
				o.Format = urlsTable
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
			store, url, err := g.store(cmd.Context())
			if err != nil {
				return err
			}
			if err := requireLake(cmd.Context(), store, url); err != nil {
				return err
			}
			stdout := cmd.OutOrStdout()
			if terminal || o.Format == format.NDJSON {
				stdout = cli.Printable(stdout)
			}
			out := bufio.NewWriter(stdout)
			err = o.Print(cmd.Context(), store, url, out, cmd.ErrOrStderr())
			return lake.Explained(url, errors.Join(noVersion(cmd.Context(), store, err), out.Flush()))
		},
	}
	g.lakeFlag(cmd)
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

// urlsTable is the format for people. The others are those of package format, except JSON.
const urlsTable format.Format = "table"

// urlsOptions say what to list.
type urlsOptions struct {
	// Domain is any spelling of a host or a URL, Dataset a name or an id.
	Domain, Dataset string
	// Version is an id or a tag, "" for the current version.
	Version string
	// Host, Prefix, From and To are those of lookup.ParseSelection.
	Host, Prefix, From, To string
	// Filters are those of lookup.Selection.AddFilter.
	Filters []string
	Unique  bool
	// Fields are names with commas between them, "" for the default.
	Fields string
	Format format.Format
	// Limit is the largest number of rows, 0 for all.
	Limit int64
	// Cache is a folder for copies of the mapped index files of an S3 lake.
	Cache string
}

// pageTime is how long finding the next rows may take.
const pageTime = time.Minute

// Print lists URLs of the lake in store, whose URL is url. What is no row goes to notes.
func (o urlsOptions) Print(ctx context.Context, store blob.Store, url string, out, notes io.Writer) error {
	q := lookup.URLsQuery{Unique: o.Unique}
	var err error
	if q.Target, err = lookup.ParseTarget(o.Domain); err != nil {
		return cli.Usagef("%q: %w", o.Domain, err)
	}
	if q.Selection, err = lookup.ParseSelection(o.Host, o.Prefix, o.From, o.To); err != nil {
		return cli.Usagef("--%w", err)
	}
	for _, text := range o.Filters {
		if err := q.Selection.AddFilter(text); err != nil {
			return cli.Usagef("--%w", err)
		}
	}
	fields, err := format.ParseFields(o.Fields, o.Unique)
	if err != nil {
		return cli.Usagef("--fields %w", err)
	}
	if o.Format != format.Text {
		q.Columns = fields.Columns()
	}
	server, err := shortlived.New(store, url, o.Cache, "starter urls "+cli.Version(), pageTime)
	if err != nil {
		return err
	}
	defer server.Close()
	if err := server.Refresh(ctx); err != nil {
		return fmt.Errorf("lake %s: %w", url, err)
	}
	snap, err := server.Acquire(ctx, o.Version)
	if err != nil {
		return err
	}
	defer snap.Release()
	if q.Dataset, err = datasetNamed(ctx, o.Dataset, snap); err != nil {
		return err
	}
	list, err := snap.List(ctx, q)
	var reject *urlnorm.RejectError
	if errors.As(err, &reject) {
		return cli.Usagef("%q: %w", o.Domain, err)
	}
	if err != nil {
		return err
	}
	if err := o.print(ctx, list, fields, out, notes); err != nil || !snap.IsPublicSuffix(q.Target) {
		return err
	}
	note, err := suffixNote(ctx, snap, q.Target.Host)
	if err == nil {
		cli.Fprintf(notes, "%s\n", note)
	}
	return err
}

// print prints the rows of a list.
func (o urlsOptions) print(ctx context.Context, list *lookup.List, fields format.Fields, out, notes io.Writer) error {
	limit := o.Limit
	if limit == 0 {
		limit = math.MaxInt64
	}
	encoder, buf := format.NewStream(o.Format, fields)
	rows := int64(0)
	for {
		page, err := list.Next(ctx, int(min(limit-rows, lookup.MaxLimit)))
		if err != nil {
			return err
		}
		if rows += int64(page.Len()); o.Format == urlsTable && page.Len() > 0 {
			if err := printTable(out, page, fields); err != nil {
				return err
			}
		}
		for i := 0; i < page.Len() && o.Format != urlsTable; i++ {
			if buf, err = encoder.Append(buf, page, i); err != nil {
				return err
			}
		}
		last := page.Cursor == "" || rows == limit
		if last {
			if buf, err = encoder.End(buf); err != nil {
				return err
			}
		}
		if _, err := out.Write(buf); err != nil {
			return err
		}
		if buf = buf[:0]; !last {
			continue
		}
		switch {
		case page.Cursor != "" && page.NotCounted == "":
			cli.Fprintf(notes, "%s of %s. All of them: --limit 0\n", cli.Plural(rows, "row"), cli.Count(page.Total))
		case page.Cursor != "":
			cli.Fprintf(notes, "These are the first %s; more may follow. All of them: --limit 0\n", cli.Count(rows))
		case rows == 0:
			cli.Fprintf(notes, "%s: the dataset has no such URL.\n", page.Domain)
		}
		if page.Host != "" {
			cli.Fprintf(notes, "These are the URLs of the domain %s. Those of the host alone: --host %s\n", page.Domain, page.Host)
		}
		if len(page.OtherDomains) > 0 {
			cli.Fprintf(notes, "%s may also belong to %s.\n", o.Domain, strings.Join(page.OtherDomains, ", "))
		}
		return nil
	}
}

// printTable prints the rows of a page for people.
func printTable(out io.Writer, page *lookup.URLsPage, fields format.Fields) error {
	names := fields.Names()
	for i := range names {
		if names[i] == "rows" || names[i] == "size" || names[i] == "port" {
			names[i] = ">" + names[i]
		}
	}
	rows := make([][]string, page.Len())
	for i := range rows {
		rows[i] = fields.Texts(page, i)
	}
	return cli.Table(out, strings.ToUpper(strings.Join(names, " ")), rows)
}
