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
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
)

func tagCommand(g *global) *cobra.Command {
	var move, remove bool
	cmd := &cobra.Command{
		Use:   "tag [VERSION] [NAME] --lake URL",
		Short: "Give a version a name, or list the names",
		Long: `Tag gives a version a name, which can then be used wherever a version can: in version=
of a request, in "starter diff", and in --version-id. "current" always stands for the
version that is the current one. Without arguments tag lists the names.

A name has up to 64 letters, digits and . _ - and begins with a letter. A name of
another version is only moved with --move. Servers know a new name within seconds. If a
version or the manifest is lost, its names are lost too, and "starter rebuild" says so.`,
		Example: `  starter tag current release-2026-11 --lake s3://b/lake
  starter tag current production --move --lake s3://b/lake
  starter tag --remove release-2026-10 --lake s3://b/lake
  starter tag --lake s3://b/lake`,
		Args: cli.Args(cobra.MaximumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case remove && (move || len(args) != 1):
				return cli.Usagef("--remove takes one name and no --move, as in: tag --remove release-2026-10")
			case !remove && len(args) == 1 && (args[0] == catalog.Current || catalog.ValidVersionID(args[0])):
				return cli.Usagef("tag takes a version and a name, as in: tag %s release-2026-11", args[0])
			case !remove && len(args) == 1:
				return cli.Usagef("tag takes a version and a name, as in: tag current %s", args[0])
			case move && len(args) == 0:
				return cli.Usagef("--move takes a version and a name")
			}
			ctx := cmd.Context()
			store, url, err := g.store(ctx)
			if err != nil {
				return err
			}
			if err := requireLake(ctx, store, url); err != nil {
				return err
			}
			out := bufio.NewWriter(cmd.OutOrStdout())
			switch {
			case len(args) == 0:
				err = listTags(ctx, store, g.json, out)
			case remove:
				err = removeTag(ctx, store, args[0], g.json, out)
			default:
				err = setTag(ctx, store, args[0], args[1], move, g.json, out)
			}
			return lake.Explained(url, errors.Join(noVersion(ctx, store, err), out.Flush()))
		},
	}
	g.lakeFlag(cmd)
	f := cmd.Flags()
	f.BoolVar(&move, "move", false, "move a name from another version to this one")
	f.BoolVar(&remove, "remove", false, "remove a name; its version stays")
	return cmd
}

// setTag gives a version a name.
func setTag(ctx context.Context, store blob.Store, version, name string, move, asJSON bool, out io.Writer) error {
	id, before, err := catalog.SetTag(ctx, store, name, version, move)
	switch {
	case errors.Is(err, catalog.ErrTagged):
		return fmt.Errorf("%w; to move it: --move", err)
	case err != nil:
		return err
	case asJSON:
		return printJSON(out, struct {
			catalog.Tag
			Previous string `json:"previous,omitempty"`
		}{catalog.Tag{Name: name, Version: id}, before})
	case before != "" && before != id:
		cli.Fprintf(out, "%s is version %s; it was %s\n", name, id, before)
	default:
		cli.Fprintf(out, "%s is version %s\n", name, id)
	}
	return nil
}

// removeTag removes a name.
func removeTag(ctx context.Context, store blob.Store, name string, asJSON bool, out io.Writer) error {
	id, err := catalog.RemoveTag(ctx, store, name)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(out, struct {
			Removed catalog.Tag `json:"removed"`
		}{catalog.Tag{Name: name, Version: id}})
	}
	cli.Fprintf(out, "%s is removed; version %s stays\n", name, id)
	return nil
}

// listTags lists the names. A lake without versions has none.
func listTags(ctx context.Context, store blob.Store, asJSON bool, out io.Writer) error {
	m, _, err := catalog.ReadManifest(ctx, store)
	if err = noVersion(ctx, store, err); errors.Is(err, catalog.ErrNoVersion) {
		m, err = &catalog.Manifest{}, nil
	}
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(out, append([]catalog.Tag{}, m.Tags...))
	}
	if len(m.Tags) == 0 {
		cli.Fprintf(out, "No version has a name yet.\n")
		return nil
	}
	rows := make([][]string, len(m.Tags))
	for i, t := range m.Tags {
		mark := ""
		if t.Version == m.CurrentVersion {
			mark = "current"
		}
		rows[i] = []string{t.Name, t.Version, mark}
	}
	return table(out, "NAME VERSION STATE", rows)
}
