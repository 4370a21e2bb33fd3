package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/starter/find"
)

const (
	// rejectPlaces is how many places of a group of rejects are shown, maxPlaces the most that may
	// be asked for.
	rejectPlaces, maxPlaces = 3, 1000
)

// batchRejects is what "rejects --json" prints of a batch.
type batchRejects struct {
	Dataset string `json:"dataset"`
	Batch   string `json:"batch"`
	Records int64  `json:"records"`
	// Rejected counts the rejected records by reason. Listed of them are in the list that Groups
	// are made of, the first ones; 0 if all are.
	Rejected map[string]int64     `json:"rejected"`
	Listed   int64                `json:"listed_rejects,omitempty"`
	Key      string               `json:"rejects_key,omitempty"`
	Groups   []ingest.RejectGroup `json:"groups"`
	// Unread are the first of UnreadCount files that were not read to their end.
	Unread      []lake.Unread `json:"unread,omitempty"`
	UnreadCount int64         `json:"unread_count,omitempty"`
}

func rejectsCommand(g *global) *cobra.Command {
	var dataset, batch string
	var places int
	cmd := &cobra.Command{
		Use:   "rejects --lake URL --dataset NAME [--batch NAME]",
		Short: "Show which records of a batch were rejected, by file and reason",
		Long: `Rejects prints a line for every file, or member of an archive, and every reason for which
records of it were rejected, the most first: how many there are, and where the first ones
are. Lines and bytes count in the decompressed file. It shows the current content of one
batch, or of all batches of the dataset, published or not. With --json it prints one
document a batch, an array of them.

Files that "ingest --skip-unreadable" has left out follow.

A list has at most a million rejects; the counts by reason above the table are those of all
records. docs/sources.md explains the reasons.`,
		Example: `  starter rejects --lake /data/lake --dataset seeds-2024
  starter rejects --lake s3://b/lake --dataset crawl --batch 2026-11-20 --places 20 --json`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dataset == "" {
				return cli.Usagef("no dataset given; use --dataset NAME")
			}
			if places < 0 || places > maxPlaces {
				return cli.Usagef("--places is %d; use a number from 0 to %d", places, maxPlaces)
			}
			store, url, err := g.store(cmd.Context())
			if err != nil {
				return err
			}
			if err := requireLake(cmd.Context(), store, url); err != nil {
				return err
			}
			all, err := readBatchRejects(cmd.Context(), store, dataset, batch, places)
			if err != nil {
				return lake.Explained(url, err)
			}
			if g.json {
				return printJSON(cmd.OutOrStdout(), all)
			}
			for i := range all {
				if i > 0 {
					cli.Fprintf(cmd.OutOrStdout(), "\n")
				}
				if err := all[i].print(cmd.OutOrStdout()); err != nil {
					return err
				}
			}
			return nil
		},
	}
	g.lakeFlag(cmd)
	cmd.Flags().StringVar(&dataset, "dataset", "", "`NAME` or id of the dataset")
	cmd.Flags().StringVar(&batch, "batch", "", "`NAME` of the batch (default: all batches of the dataset)")
	cmd.Flags().IntVar(&places, "places", rejectPlaces, "`NUMBER` of places to show of each file and reason")
	return cmd
}

// readBatchRejects reads the rejects of a batch, or of all batches of a dataset in the order of
// their names.
func readBatchRejects(ctx context.Context, store blob.Store, dataset, batch string, places int) ([]batchRejects, error) {
	d, err := find.Dataset(ctx, store, dataset)
	if err != nil {
		return nil, err
	}
	state, err := catalog.LookBatches(ctx, store, d.ID)
	if err != nil {
		return nil, err
	}
	current, err := state.Current(ctx, d.ID)
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(current))
	if batch != "" {
		if _, ok := current[batch]; !ok {
			return nil, fmt.Errorf("dataset %s has no finished batch %s; it has %s", d.Name, batch, someNames(names))
		}
		names = []string{batch}
	}
	all := []batchRejects{}
	for _, name := range names {
		key := lake.BatchKey(d.ID, name, current[name])
		data, _, err := store.Get(ctx, key)
		if errors.Is(err, blob.ErrNotExist) {
			err = codec.Corrupt(key, "object", -1, "one that exists", "none")
		}
		if err != nil {
			return nil, err
		}
		b, err := lake.DecodeBatch(data, key)
		if err != nil {
			return nil, err
		}
		r := batchRejects{Dataset: d.Name, Batch: name, Records: b.Records, Rejected: b.Rejected, Listed: b.ListedRejects,
			Unread: b.Unread, UnreadCount: b.UnreadCount}
		if b.Rejects != nil {
			r.Key = b.Rejects.Key
		}
		if r.Groups, err = ingest.GroupRejects(ctx, store, b, places); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// someNames lists the first names of batches.
func someNames(names []string) string {
	const most = 5
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// print prints the rejects of a batch for people.
func (r *batchRejects) print(w io.Writer) error {
	var all int64
	for _, n := range r.Rejected {
		all += n
	}
	cli.Fprintf(w, "Dataset %s, batch %s: %s of %s rejected", r.Dataset, r.Batch, count(all), plural(r.Records, "record"))
	if all > 0 {
		cli.Fprintf(w, " (%s)", countsByReason(r.Rejected))
	}
	cli.Fprintf(w, "\n")
	if r.Listed > 0 {
		cli.Fprintf(w, "The first %s of them are listed:\n", count(r.Listed))
	}
	if len(r.Groups) > 0 {
		var rows [][]string
		for _, g := range r.Groups {
			var places []string
			for _, p := range g.Places {
				places = append(places, p.String())
			}
			rows = append(rows, []string{count(g.Count), g.Reason, g.Object, strings.Join(places, ", ")})
		}
		if err := table(w, ">REJECTED REASON FILE AT", rows); err != nil {
			return err
		}
	}
	for _, u := range r.Unread {
		cli.Fprintf(w, "unread: %s: %s\n", u.Name, u.Reason)
	}
	if more := r.UnreadCount - int64(len(r.Unread)); more > 0 {
		cli.Fprintf(w, "unread: and %s\n", plural(more, "further file"))
	}
	return nil
}
