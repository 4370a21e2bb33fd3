package command

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/remedy"
)

func tagCommand(g *global) *cobra.Command {
	var move, remove bool
	cmd := &cobra.Command{
		Use:   "tag [VERSION] [NAME] --lake URL",
		Short: "Give a version a name, or list the names",
		Long: `Tag gives a version a name, which can then be used wherever a version can: in version=
of a request, in "starter diff", and in --version-id. "current" stands for the version
that is the current one now. Without arguments tag lists the names.

A name has up to 64 letters, digits and . _ - and begins with a letter. A name of
another version is only moved with --move. Servers know a new name within seconds.`,
		Example: `  starter tag current release-2026-11 --lake s3://b/lake
  starter tag current production --move --lake s3://b/lake
  starter tag --remove release-2026-10 --lake s3://b/lake
  starter tag --lake s3://b/lake`,
		Args: cli.Args(cobra.MaximumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case remove && (move || len(args) != 1):
				return cli.Usagef("--remove takes one name, as in --remove release-2026-10")
			case !remove && len(args) == 1:
				return cli.Usagef("tag takes a version and a name, as in: tag current %s", args[0])
			case move && len(args) == 0:
				return cli.Usagef("--move takes a version and a name")
			}
			ctx, out := cmd.Context(), cmd.OutOrStdout()
			store, url, err := g.store(ctx)
			if err != nil {
				return err
			}
			if err := requireLake(ctx, store, url); err != nil {
				return err
			}
			var done any
			switch {
			case len(args) == 0:
				m, _, err := manifest.Read(ctx, store)
				if err != nil && !errors.Is(err, manifest.ErrNoVersion) {
					return remedy.Explained(url, err)
				}
				return printTags(cmd, g.json, m)
			case remove:
				if err := manifest.RemoveTag(ctx, store, args[0]); err != nil {
					return remedy.Explained(url, err)
				}
				done = struct {
					Removed string `json:"removed"`
				}{args[0]}
			default:
				version := args[0]
				if version == "current" {
					version = ""
				}
				id, err := manifest.SetTag(ctx, store, args[1], version, move)
				if errors.Is(err, manifest.ErrTagged) {
					return fmt.Errorf("%w; to move it: --move", err)
				}
				if err != nil {
					return remedy.Explained(url, err)
				}
				done = manifest.Tag{Name: args[1], Version: id}
			}
			if g.json {
				return printJSON(out, done)
			}
			if tag, ok := done.(manifest.Tag); ok {
				cli.Fprintf(out, "%s is version %s\n", tag.Name, tag.Version)
			} else {
				cli.Fprintf(out, "%s is removed; its version is still there\n", args[0])
			}
			return nil
		},
	}
	g.lakeFlag(cmd)
	f := cmd.Flags()
	f.BoolVar(&move, "move", false, "move a name from another version to this one")
	f.BoolVar(&remove, "remove", false, "remove a name; its version stays")
	return cmd
}

// printTags lists the tags of a lake. A lake without versions has none, and m is nil.
func printTags(cmd *cobra.Command, asJSON bool, m *manifest.Manifest) error {
	m = cmp.Or(m, &manifest.Manifest{})
	out := cmd.OutOrStdout()
	if asJSON {
		return printJSON(out, append([]manifest.Tag{}, m.Tags...))
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
