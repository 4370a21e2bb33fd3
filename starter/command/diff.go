package command

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/shortlived"
)

// diffOptions say what to compare.
type diffOptions struct {
	// From and To are ids or tags of versions. To is by default the current one, From the one that
	// To followed.
	From, To string
	// Dataset is the name of the only dataset to compare, "" for all.
	Dataset string
	// Cache is a folder for copies of the mapped index files of an S3 lake.
	Cache string
	// JSON prints a line for each change and one with the counts, instead of text for people.
	JSON bool
}

const (
	// pageChanges is how many changes are found before they are printed, some 30 MB.
	pageChanges = 100_000
	// diffPageTime is how long finding them may take; then what was found is printed.
	diffPageTime = 10 * time.Second
	// shownChanges is how many changes are named in the text for people.
	shownChanges = 20
)

// datasetDiff counts the changes of one dataset.
type datasetDiff struct {
	DatasetID uint32 `json:"dataset_id"`
	Name      string `json:"name"`
	// Added, Removed and Changed are numbers of domains.
	Added   int64 `json:"domains_added"`
	Removed int64 `json:"domains_removed"`
	Changed int64 `json:"domains_changed"`
	// RowsAdded and RowsRemoved sum up the differences of domains that have more rows and of those
	// that have fewer.
	RowsAdded   int64 `json:"rows_added"`
	RowsRemoved int64 `json:"rows_removed"`
}

func (d *datasetDiff) add(c *lookup.Change) {
	switch c.Kind() {
	case "added":
		d.Added++
	case "removed":
		d.Removed++
	default:
		d.Changed++
	}
	if n := c.After.Rows - c.Before.Rows; n > 0 {
		d.RowsAdded += n
	} else {
		d.RowsRemoved -= n
	}
}

// Print compares two versions of the lake in store, whose URL is url.
func (o diffOptions) Print(ctx context.Context, store blob.Store, url string, out io.Writer) error {
	server, err := shortlived.New(store, url, o.Cache, "starter diff "+cli.Version(), diffPageTime)
	if err != nil {
		return err
	}
	defer server.Close()
	if err := server.Refresh(ctx); err != nil {
		return fmt.Errorf("lake %s: %w", url, err)
	}
	after, err := server.Acquire(ctx, o.To)
	if err != nil {
		return err
	}
	defer after.Release()
	from := cmp.Or(o.From, after.Version().Parent)
	if from == "" {
		return fmt.Errorf("version %s is the first of this lake; there is none to compare it with", after.Version().ID)
	}
	before, err := server.Acquire(ctx, from)
	if err != nil {
		return err
	}
	defer before.Release()
	q := lookup.DiffQuery{Limit: pageChanges}
	if o.Dataset != "" {
		if q.Dataset, err = datasetNamed(ctx, o.Dataset, after, before); err != nil {
			return err
		}
		q.OneDataset = true
	}
	sums := map[uint32]*datasetDiff{}
	var largest []lookup.Change
	changes := 0 // in rows
	for {
		page, err := after.Diff(ctx, before, q)
		if err != nil {
			return err
		}
		for i := range page.Changes {
			c := &page.Changes[i]
			d := sums[c.Dataset]
			if d == nil {
				d = &datasetDiff{DatasetID: c.Dataset, Name: c.Name}
				sums[c.Dataset] = d
			}
			if d.add(c); o.JSON {
				if err := printChange(out, c); err != nil {
					return err
				}
			}
		}
		page.Changes = slices.DeleteFunc(page.Changes, func(c lookup.Change) bool { return c.Before.Rows == c.After.Rows })
		changes += len(page.Changes)
		largest = largestChanges(append(largest, page.Changes...))
		if q.Cursor = page.Cursor; q.Cursor == "" {
			break
		}
	}
	datasets := slices.AppendSeq([]*datasetDiff{}, maps.Values(sums))
	slices.SortFunc(datasets, func(a, b *datasetDiff) int { return strings.Compare(a.Name, b.Name) })
	if o.JSON {
		return cli.WriteJSON(out, struct {
			From     string         `json:"from"`
			To       string         `json:"to"`
			Complete bool           `json:"complete"`
			Datasets []*datasetDiff `json:"datasets"`
		}{before.Version().ID, after.Version().ID, true, datasets}, false)
	}
	return printDiff(out, before, after, datasets, largest, changes-len(largest))
}

// largestChanges sorts changes by how many rows were added or removed, and keeps the first ones.
func largestChanges(all []lookup.Change) []lookup.Change {
	slices.SortFunc(all, func(a, b lookup.Change) int {
		return cmp.Or(cmp.Compare(abs(b.After.Rows-b.Before.Rows), abs(a.After.Rows-a.Before.Rows)),
			strings.Compare(a.Domain, b.Domain), strings.Compare(a.Name, b.Name))
	})
	return slices.Clip(slices.Clone(all[:min(len(all), shownChanges)]))
}

func abs(n int64) int64 { return max(n, -n) }

// printDiff prints the counts and the largest changes for people; more is how many others there
// are.
func printDiff(out io.Writer, before, after *lookup.Snapshot, datasets []*datasetDiff, largest []lookup.Change, more int) error {
	for _, v := range []struct {
		name string
		snap *lookup.Snapshot
	}{{"From", before}, {"To", after}} {
		c := v.snap.Version().Counts
		cli.Fprintf(out, "%-5s %s  %s of %s in %s\n", v.name, v.snap.Version().ID, cli.Plural(c.Rows, "row"),
			cli.Plural(int64(c.Datasets), "dataset"), cli.Plural(int64(c.Batches), "batch"))
	}
	if len(datasets) == 0 {
		cli.Fprintf(out, "\nNo domain has other totals in any dataset.\n")
		return nil
	}
	cli.Fprintf(out, "\nDomains of each dataset, and the rows that they gained and lost:\n")
	rows := make([][]string, len(datasets))
	for i, d := range datasets {
		rows[i] = []string{d.Name, cli.Count(d.Added), cli.Count(d.Removed), cli.Count(d.Changed), signed(d.RowsAdded), signed(-d.RowsRemoved)}
	}
	if err := cli.Table(out, "DATASET >ADDED >REMOVED >CHANGED >+ROWS >-ROWS", rows); err != nil {
		return err
	}
	if len(largest) == 0 {
		cli.Fprintf(out, "\nNo domain has another number of rows: sizes or times changed; --json prints them.\n")
		return nil
	}
	cli.Fprintf(out, "\nThe largest changes, in rows:\n")
	rows = make([][]string, len(largest))
	for i := range largest {
		c := &largest[i]
		rows[i] = []string{c.Domain, c.Name, cli.Count(c.Before.Rows), cli.Count(c.After.Rows), signed(c.After.Rows - c.Before.Rows)}
	}
	if err := cli.Table(out, "DOMAIN DATASET >BEFORE >AFTER >CHANGE", rows); err != nil {
		return err
	}
	if more > 0 {
		cli.Fprintf(out, "… and %s; --json prints all\n", cli.Plural(int64(more), "other change"))
	}
	return nil
}

// signed formats a difference.
func signed(n int64) string {
	switch {
	case n > 0:
		return "+" + cli.Count(n)
	case n < 0:
		return "-" + cli.Count(-n)
	}
	return "0"
}

// printChange prints a change as a line of JSON.
func printChange(out io.Writer, c *lookup.Change) error {
	return cli.WriteJSON(out, struct {
		Change    string      `json:"change"`
		Domain    string      `json:"domain"`
		DomainID  string      `json:"domain_id"`
		DatasetID uint32      `json:"dataset_id"`
		Name      string      `json:"name"`
		Before    *diffTotals `json:"before"`
		After     *diffTotals `json:"after"`
	}{c.Kind(), c.Domain, urlnorm.FormatID(c.DomainID), c.Dataset, c.Name, totalsOf(&c.Before), totalsOf(&c.After)}, false)
}

// diffTotals are totals in JSON, with the names that the server uses.
type diffTotals struct {
	Rows         int64   `json:"url_count_est"`
	Size         *int64  `json:"size"`
	SizeOverflow bool    `json:"size_overflow,omitempty"`
	FirstTS      *string `json:"first_ts"`
	LastTS       *string `json:"last_ts"`
}

func totalsOf(t *segment.Totals) *diffTotals {
	if t.Rows == 0 {
		return nil
	}
	d := &diffTotals{Rows: t.Rows, SizeOverflow: t.SizeOverflows()}
	if t.HasSize && !t.SizeOverflows() {
		d.Size = &t.Size
	}
	if t.HasTS {
		first, last := formatTime(t.FirstTS), formatTime(t.LastTS)
		d.FirstTS, d.LastTS = &first, &last
	}
	return d
}

// formatTime formats milliseconds of Unix time as the server does.
func formatTime(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

func diffCommand(g *global) *cobra.Command {
	var o diffOptions
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
