package command

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
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
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/shortlived"
	"github.com/urlake/urlake/serve/tree"
)

// newTreeCommand returns "starter tree".
func newTreeCommand(g *global) *cobra.Command {
	var o treeOptions
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
			case g.json:
				o.Form = treeJSON
			case ok && isatty.IsTerminal(out.Fd()):
				o.Form = drawn
			default:
				o.Form = ndjson
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
			if o.Form == drawn && o.Top == 0 {
				o.Limit = drawnChildren
			}
			store, url, err := g.store(cmd.Context())
			if err != nil {
				return err
			}
			if err := requireLake(cmd.Context(), store, url); err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if o.Form != treeJSON {
				w = cli.Printable(w)
			}
			buffered := bufio.NewWriter(w)
			err = o.Print(cmd.Context(), store, url, buffered, cmd.ErrOrStderr())
			return lake.Explained(url, errors.Join(noVersion(cmd.Context(), store, err), buffered.Flush()))
		},
	}
	g.lakeFlag(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&o.Datasets, "dataset", nil, "count only these datasets: `NAMES` or ids, separated by commas; may be repeated")
	f.IntVar(&o.Depth, "depth", 1, "show so many `LEVELS`")
	f.Int64Var(&o.MinCount, "min-count", 0, "leave out nodes with fewer `ROWS`")
	f.Int64Var(&o.MinBytes, "min-bytes", 0, "leave out nodes whose sum of sizes is less than so many `BYTES`")
	f.IntVar(&o.Top, "top", 0, "show only the `N` children of each node that have the most rows, or the largest sizes with --sort size")
	f.StringVar(&sort, "sort", "", "`ORDER` of the children of a node: name, rows or size (default: name, or rows with --top)")
	f.StringVar(&o.Version, "at", "", "ask this `VERSION`, an id or a name, instead of the current one")
	f.StringVar(&o.Cache, "cache", shortlived.DefaultCache(), "`FOLDER` for copies of the mapped index files of an S3 lake")
	cmd.AddCommand(newBuildCommand(g))
	return cmd
}

// form is how a tree is printed.
type form int

// The forms: for people, a line of JSON for each node, and one JSON document.
const (
	drawn form = iota
	ndjson
	treeJSON
)

// treeOptions say what to print.
type treeOptions struct {
	// Target is any spelling of a host, with a path behind it or not.
	Target string
	// Datasets are names or ids of those that count, none for all.
	Datasets []string
	// Depth, MinCount, MinBytes and Sort are those of a tree.Query.
	Depth              int
	MinCount, MinBytes int64
	Sort               tree.Sort
	// Top is how many children of a node are printed, Limit the same if they are not to be the
	// largest; 0 stands for all.
	Top, Limit int
	// Version is an id or a tag, "" for the current version.
	Version string
	Form    form
	// Cache is a folder for copies of the mapped index files of an S3 lake.
	Cache string
}

const (
	// drawnChildren is how many children of a node are drawn without --top.
	drawnChildren = 20
	// maxNodes bounds the memory of the verb, at some hundred bytes a node.
	maxNodes = 20_000_000
	// answerTime is how long the answer may take.
	answerTime = time.Hour
)

// query reads the target. A path follows the first slash behind the host.
func (o *treeOptions) query() (q tree.Query, err error) {
	text := o.Target
	if _, rest, ok := strings.Cut(text, "://"); ok {
		text = rest
	}
	host, path, hasPath := strings.Cut(text, "/")
	if q.Target, err = lookup.ParseTarget(host); err != nil {
		return q, cli.Usagef("%q: %w", o.Target, err)
	}
	if hasPath {
		q.Path = "/" + path
	}
	q.Depth, q.MinCount, q.MinBytes, q.Sort = o.Depth, o.MinCount, o.MinBytes, o.Sort
	q.Limit, q.Listed = cmp.Or(o.Top, o.Limit, math.MaxInt), math.MaxInt
	return q, nil
}

// Print prints a tree of the lake in store, whose URL is url. What is no node goes to notes.
func (o *treeOptions) Print(ctx context.Context, store blob.Store, url string, out, notes io.Writer) error {
	q, err := o.query()
	if err != nil {
		return err
	}
	server, err := shortlived.New(store, url, o.Cache, "starter tree "+cli.Version(), answerTime)
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
	for _, name := range o.Datasets {
		id, err := datasetNamed(ctx, name, snap)
		if err != nil {
			return err
		}
		q.Datasets = append(q.Datasets, id)
	}
	page, err := tree.NewEngine(math.MaxInt64, maxNodes, 0).Answer(ctx, snap, q)
	var wrong *lookup.SelectionError
	var reject *urlnorm.RejectError
	switch {
	case errors.As(err, &wrong):
		return cli.Usagef("%q: the %w", o.Target, err)
	case errors.As(err, &reject):
		return cli.Usagef("%q: %w", o.Target, err)
	}
	if err != nil {
		return err
	}
	switch o.Form {
	case treeJSON:
		err = printTreeJSON(out, page)
	case ndjson:
		err = printLines(out, &page.Node, 0)
	default:
		err = o.draw(out, page)
	}
	if err == nil && page.Rows == 0 {
		cli.Fprintf(notes, "%s: the lake has no such rows.\n", cmp.Or(page.Path, page.Domain))
	}
	if err == nil && len(page.OtherDomains) > 0 {
		cli.Fprintf(notes, "%s may also belong to %s.\n", o.Target, strings.Join(page.OtherDomains, ", "))
	}
	return err
}

// jsonNode is a node as JSON, with the members of the server's answers.
type jsonNode struct {
	Domain        string `json:"domain,omitempty"`
	Version       string `json:"version,omitempty"`
	Level         *int   `json:"level,omitempty"`
	Name          string `json:"name"`
	Path          string `json:"path"`
	Rows          int64  `json:"rows"`
	DirectRows    int64  `json:"direct_rows"`
	Size          *int64 `json:"size"`
	SizeOverflow  bool   `json:"size_overflow,omitempty"`
	TotalChildren *int   `json:"total_children,omitempty"`
	// Children is their number on the last level, and otherwise a list.
	Children any `json:"children"`
}

// newJSON returns a node without the nodes below it.
func newJSON(n *tree.Node) jsonNode {
	out := jsonNode{Name: n.Name, Path: n.Path, Rows: n.Rows, DirectRows: n.Direct, Children: n.Children}
	if n.HasSize && n.Size < math.MaxInt64 {
		out.Size = &n.Size
	}
	out.SizeOverflow = n.HasSize && n.Size == math.MaxInt64
	return out
}

// nested returns a node with all nodes below it.
func nested(n *tree.Node) jsonNode {
	out := newJSON(n)
	if n.Nodes != nil {
		list := make([]jsonNode, len(n.Nodes))
		for i := range n.Nodes {
			list[i] = nested(&n.Nodes[i])
		}
		out.TotalChildren, out.Children = &n.Children, list
	}
	return out
}

func printTreeJSON(out io.Writer, page *tree.Page) error {
	root := nested(&page.Node)
	root.Domain, root.Version = page.Domain, page.Version
	return writeJSON(out, root)
}

// printLines prints a node, and then those below it.
func printLines(out io.Writer, n *tree.Node, level int) error {
	line := newJSON(n)
	line.Level = &level
	if err := writeJSON(out, line); err != nil {
		return err
	}
	for i := range n.Nodes {
		if err := printLines(out, &n.Nodes[i], level+1); err != nil {
			return err
		}
	}
	return nil
}

func writeJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// draw draws a tree for people.
func (o *treeOptions) draw(out io.Writer, page *tree.Page) error {
	header, rows := "TREE >ROWS >HERE", [][]string{}
	sizes := page.HasSize
	if sizes {
		header += " >SIZE"
	}
	var add func(n *tree.Node, name, indent string)
	add = func(n *tree.Node, name, indent string) {
		row := []string{name, cli.Count(n.Rows), cli.Count(n.Direct)}
		if sizes {
			size := ""
			if n.HasSize {
				size = cli.Count(n.Size)
			}
			if n.Size == math.MaxInt64 {
				size = "over " + size
			}
			row = append(row, size)
		}
		rows = append(rows, row)
		left := n.Children - len(n.Nodes)
		for i := range n.Nodes {
			branch, below := "├── ", "│   "
			if i == len(n.Nodes)-1 && left == 0 {
				branch, below = "└── ", "    "
			}
			add(&n.Nodes[i], indent+branch+n.Nodes[i].Name, indent+below)
		}
		if n.Nodes != nil && left > 0 {
			rest := make([]string, len(row))
			rest[0] = indent + "└── (" + cli.Count(int64(left)) + " more)"
			rows = append(rows, rest)
		}
	}
	add(&page.Node, cmp.Or(page.Path, page.Domain), "")
	return cli.Table(out, header, rows)
}
