// Package urllist prints the URLs of a domain in a dataset, as the read server lists them: the verb
// "starter urls".
package urllist

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/format"
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/shortlived"
	starterlookup "github.com/urlake/urlake/starter/lookup"
)

// Table is the format for people. The others are those of package format, except JSON.
const Table format.Format = "table"

// Options say what to list.
type Options struct {
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
func (o Options) Print(ctx context.Context, store blob.Store, url string, out, notes io.Writer) error {
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
	if q.Dataset, err = starterlookup.DatasetNamed(ctx, o.Dataset, snap); err != nil {
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
	note, err := starterlookup.SuffixNote(ctx, snap, q.Target.Host)
	if err == nil {
		cli.Fprintf(notes, "%s\n", note)
	}
	return err
}

// print prints the rows of a list.
func (o Options) print(ctx context.Context, list *lookup.List, fields format.Fields, out, notes io.Writer) error {
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
		if rows += int64(page.Len()); o.Format == Table && page.Len() > 0 {
			if err := printTable(out, page, fields); err != nil {
				return err
			}
		}
		for i := 0; i < page.Len() && o.Format != Table; i++ {
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
