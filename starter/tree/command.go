// Package tree says what is below a path of a site, and how much of it, without a server: the verb
// "starter tree".
package tree

import (
	"bufio"
	"context"
	"errors"
	"os"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/serve/shortlived"
	"github.com/urlake/urlake/serve/tree"
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

// NewCommand returns "starter tree".
func NewCommand(p Program) *cobra.Command {
	var o Options
	sort := ""
	cmd := &cobra.Command{
		Use:   "tree DOMAIN[/path] --lake URL [flags]",
		Short: "Draw what is below a path of a site, and how much of it",
		Long: `Tree draws the hosts of a domain, or the directories of a host, with the number of rows
at and below each and the sum of their sizes, as the read server's /v1/domain/{d}/tree
has them. It reads the lake itself.

A directory is a part of a path that ends in a slash. Everything from a question mark on
belongs to the row, and scheme and port do not matter. Without a path the tree of a
domain begins with its hosts, and that of another host with its directories.

The rows of the domain are read, unless the lake has an index of trees: see
"starter tree build".

On a terminal it draws up to 20 children of each node; in a pipe it prints all as
NDJSON, a node a line, each after its parent, and with --json one document.`,
		Example: `  starter tree example.com --lake /data/lake --depth 2
  starter tree www.example.com/docs/ --lake /data/lake --dataset crawl --top 10
  starter tree example.com --lake /data/lake --depth 4 --min-count 1000
  starter tree example.com --lake /data/lake --depth 3 | jq -r 'select(.level == 3).path'`,
		Args: cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Target = args[0]
			out, ok := cmd.OutOrStdout().(*os.File)
			switch {
			case o.Depth < 1 || o.Depth > tree.MaxDepth:
				return cli.Usagef("--depth is %d; use 1 to %d", o.Depth, tree.MaxDepth)
			case o.Top < 0:
				return cli.Usagef("--top is %d; use a number of children, or 0 for all", o.Top)
			case o.MinCount < 0 || o.MinBytes < 0:
				return cli.Usagef("--min-count and --min-bytes are numbers of at least 0")
			case *p.JSON:
				o.Form = JSON
			case ok && isatty.IsTerminal(out.Fd()):
				o.Form = Drawn
			default:
				o.Form = NDJSON
			}
			if o.Sort = tree.ByName; o.Top > 0 {
				o.Sort = tree.ByRows
			}
			if sort != "" {
				var err error
				if o.Sort, err = tree.ParseSort(sort); err != nil {
					return cli.Usagef("--sort %w", err)
				}
			}
			if o.Form == Drawn && o.Top == 0 {
				o.Limit = drawnChildren
			}
			store, url, err := p.Open(cmd.Context())
			if err != nil {
				return err
			}
			if err := p.Check(cmd.Context(), store, url); err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if o.Form != JSON {
				w = cli.Printable(w)
			}
			buffered := bufio.NewWriter(w)
			err = o.Print(cmd.Context(), store, url, buffered, cmd.ErrOrStderr())
			return lake.Explained(url, errors.Join(p.Explain(cmd.Context(), store, err), buffered.Flush()))
		},
	}
	p.LakeFlag(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&o.Datasets, "dataset", nil, "count only these datasets: `NAMES` or ids, separated by commas; may be repeated")
	f.IntVar(&o.Depth, "depth", 1, "show so many `LEVELS`")
	f.Int64Var(&o.MinCount, "min-count", 0, "leave out nodes with fewer `ROWS`")
	f.Int64Var(&o.MinBytes, "min-bytes", 0, "leave out nodes whose sum of sizes is less than so many `BYTES`")
	f.IntVar(&o.Top, "top", 0, "show only the `N` children of each node that have the most rows, or the largest sizes with --sort size")
	f.StringVar(&sort, "sort", "", "`ORDER` of the children of a node: name, rows or size (default: name, or rows with --top)")
	f.StringVar(&o.Version, "at", "", "ask this `VERSION`, an id or a name, instead of the current one")
	f.StringVar(&o.Cache, "cache", shortlived.DefaultCache(), "`FOLDER` for copies of the mapped index files of an S3 lake")
	cmd.AddCommand(newBuildCommand(p))
	return cmd
}
