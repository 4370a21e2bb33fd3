package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/access"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/starter/find"
)

// run opens the lake and does what a verb does. Ahead lets it begin with a lake that has nothing
// yet.
func (g *global) runAccess(cmd *cobra.Command, ahead bool, do func(ctx context.Context, store blob.Store, out io.Writer) error) error {
	ctx := cmd.Context()
	store, url, err := g.store(ctx)
	if err == nil && !ahead {
		if err = requireLake(ctx, store, url); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	return lake.Explained(url, errors.Join(do(ctx, store, out), out.Flush()))
}

// acl are the flags of "starter acl".
type acl struct {
	dataset, readers, byDefault string
	ahead, repair               bool
}

// newACLCommand returns "starter acl".
func newACLCommand(g *global) *cobra.Command {
	var o acl
	cmd := &cobra.Command{
		Use:   "acl --lake URL [--dataset NAME] [--readers WHO] [--default WHO]",
		Short: "Say who may read which dataset",
		Long: `Acl says which datasets of a lake a server shows to whom. Servers with --auth follow it
with their next look at the lake, after 2 seconds by default, also for versions and lists
that clients have begun to read. A server without --auth shows everything to everybody.

  --readers public      everybody, also those who send no token
  --readers none        nobody
  --readers ada,web-1   those whose token, or subject at the identity provider, has one of
                        these names
  --readers default     the same as datasets that have no readers of their own

Datasets without readers of their own are public, unless --default says otherwise. To
close a lake before it has anything, use --default none --ahead; to set the readers of a
dataset before its first ingest, --ahead as well.

Without --readers and --default acl shows the readers: of one dataset, or of all. Readers
are of servers: whoever may read the files of the lake reads everything.`,
		Example: `  starter acl --lake /data/lake
  starter acl --lake /data/lake --dataset crawl --readers ada,web-1
  starter acl --lake s3://b/lake --default none --ahead`,
		Args: cli.Args(cobra.NoArgs),
	}
	g.lakeFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&o.dataset, "dataset", "", "the dataset, by `NAME` or id")
	f.StringVar(&o.readers, "readers", "", "who may read it: `WHO` is public, none, default, or names with commas between them")
	f.StringVar(&o.byDefault, "default", "", "who may read datasets without readers of their own (`WHO`)")
	f.BoolVar(&o.ahead, "ahead", false, "the dataset, or the lake, need not be there yet")
	f.BoolVar(&o.repair, "repair", false, "take the copy of a list that is damaged or lost; without a copy nobody may read anything")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for _, name := range []string{"readers", "default"} {
			if f := f.Lookup(name); f.Changed && f.Value.String() == "" {
				return cli.Usagef("--%s is empty; write none for nobody, public for everybody, or names", name)
			}
		}
		edit, err := o.edit()
		if err != nil {
			return err
		}
		return g.runAccess(cmd, o.ahead, func(ctx context.Context, store blob.Store, out io.Writer) error {
			if _, byID := lake.DatasetID(o.dataset); byID {
				d, err := find.Dataset(ctx, store, o.dataset)
				if err != nil {
					return err
				}
				o.dataset, edit.Dataset = d.Name, d.Name
			}
			switch {
			case o.repair:
				return repair(ctx, store, g.json, out)
			case edit == (access.Edit{}), edit == access.Edit{Dataset: o.dataset} && o.readers == "":
				return o.show(ctx, store, g.json, out)
			}
			return o.change(ctx, store, edit, g.json, out)
		})
	}
	return cmd
}

// edit is what the flags ask for. It is zero, but for the dataset, if they only ask to be shown.
func (o *acl) edit() (e access.Edit, err error) {
	switch {
	case o.repair && (o.dataset != "" || o.readers != "" || o.byDefault != "" || o.ahead):
		return e, cli.Usagef("--repair is alone")
	case o.readers != "" && o.dataset == "":
		return e, cli.Usagef("--readers are of a dataset; name it with --dataset, or use --default for all that have none")
	case o.ahead && o.readers == "" && o.byDefault == "":
		return e, cli.Usagef("--ahead is for --readers and --default")
	}
	if o.dataset != "" {
		if err := lake.CheckDatasetName(o.dataset); err != nil {
			return e, &cli.UsageError{Err: err}
		}
	}
	parse := func(text string) (*access.Readers, error) {
		r, err := access.ParseReaders(text)
		if err != nil {
			return nil, &cli.UsageError{Err: err}
		}
		return &r, nil
	}
	if o.byDefault != "" {
		if e.Default, err = parse(o.byDefault); err != nil {
			return e, err
		}
	}
	e.Dataset = o.dataset
	if o.readers != "" && o.readers != access.Default {
		e.Readers, err = parse(o.readers)
	}
	return e, err
}

// shown is a dataset with its readers.
type shown struct {
	Dataset string         `json:"dataset"`
	Readers access.Readers `json:"readers"`
	// Own tells that the dataset has readers of its own, and not those of the default.
	Own bool `json:"own"`
	// Ahead tells that the lake has no such dataset yet.
	Ahead bool `json:"ahead,omitempty"`
}

func (s *shown) row() []string {
	why := "by default"
	if s.Own {
		why = "its own"
	}
	if s.Ahead {
		why += "; not in the lake yet"
	}
	return []string{s.Dataset, s.Readers.String(), why}
}

func of(l *access.List, name string, known bool) shown {
	r, own := l.Of(name)
	return shown{Dataset: name, Readers: *r, Own: own, Ahead: !known}
}

// show prints the readers of one dataset, or of all.
func (o *acl) show(ctx context.Context, store blob.Store, asJSON bool, out io.Writer) error {
	l, err := access.Load(ctx, store)
	if err != nil {
		return err
	}
	if o.dataset != "" {
		known := true
		if _, own := l.Of(o.dataset); !own { // those set ahead are found, too
			if _, err := find.Dataset(ctx, store, o.dataset); err != nil {
				return err
			}
		} else if named, err := catalog.DatasetsNamed(ctx, store, o.dataset); err != nil {
			return err
		} else {
			_, known = named[o.dataset]
		}
		s := of(l, o.dataset, known)
		if asJSON {
			return cli.WriteJSON(out, s, true)
		}
		return cli.Table(out, "DATASET READERS WHY", [][]string{s.row()})
	}
	all, err := catalog.Datasets(ctx, store)
	if err != nil {
		return err
	}
	list := []shown{}
	names := map[string]bool{}
	for _, d := range all {
		names[d.Name] = true
		list = append(list, of(l, d.Name, true))
	}
	for _, d := range l.Datasets {
		if !names[d.Name] {
			list = append(list, of(l, d.Name, false))
		}
	}
	if asJSON {
		return cli.WriteJSON(out, struct {
			Default  access.Readers `json:"default"`
			Datasets []shown        `json:"datasets"`
		}{l.Default, list}, true)
	}
	rows := make([][]string, len(list))
	for i := range list {
		rows[i] = list[i].row()
	}
	if err := cli.Table(out, "DATASET READERS WHY", rows); err != nil {
		return err
	}
	cli.Fprintf(out, "\nDatasets without readers of their own: %s\n", l.Default)
	return nil
}

func (o *acl) change(ctx context.Context, store blob.Store, e access.Edit, asJSON bool, out io.Writer) error {
	known := true
	if o.dataset != "" {
		_, err := find.Dataset(ctx, store, o.dataset)
		if err != nil && !o.ahead && e.Readers != nil {
			return fmt.Errorf("%w; to set readers before the first ingest: --ahead", err)
		}
		known = err == nil
	}
	l, err := access.Change(ctx, store, e)
	if err != nil {
		return err
	}
	s := of(l, o.dataset, known)
	if asJSON {
		answer := struct {
			Default access.Readers `json:"default"`
			*shown
		}{Default: l.Default}
		if o.dataset != "" {
			answer.shown = &s
		}
		return cli.WriteJSON(out, answer, true)
	}
	if e.Default != nil {
		cli.Fprintf(out, "Datasets without readers of their own: %s\n", l.Default)
	}
	if o.dataset != "" {
		row := s.row()
		cli.Fprintf(out, "%s: %s (%s)\n", row[0], row[1], row[2])
	}
	cli.Fprintf(out, "Servers with --auth follow with their next look at the lake, after 2 seconds by default.\n")
	return nil
}

func repair(ctx context.Context, store blob.Store, asJSON bool, out io.Writer) error {
	l, fromCopy, err := access.Repair(ctx, store)
	if err != nil {
		return err
	}
	if asJSON {
		return cli.WriteJSON(out, struct {
			Default  access.Readers `json:"default"`
			Datasets int            `json:"datasets"`
			FromCopy bool           `json:"from_copy"`
		}{l.Default, len(l.Datasets), fromCopy}, true)
	}
	if fromCopy {
		cli.Fprintf(out, "The list of readers is that of the copy again. A change that was made just before the loss can be missing.\n")
	}
	cli.Fprintf(out, "%s with readers of their own; others: %s\n", cli.Plural(int64(len(l.Datasets)), "dataset"), l.Default)
	return nil
}
