package tree

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/shortlived"
	"github.com/urlake/urlake/serve/tree"
	starterlookup "github.com/urlake/urlake/starter/lookup"
)

// Form is how a tree is printed.
type Form int

// The forms: for people, a line of JSON for each node, and one JSON document.
const (
	Drawn Form = iota
	NDJSON
	JSON
)

// Options say what to print.
type Options struct {
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
	Form    Form
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
func (o *Options) query() (q tree.Query, err error) {
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
func (o *Options) Print(ctx context.Context, store blob.Store, url string, out, notes io.Writer) error {
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
		id, err := starterlookup.DatasetNamed(ctx, name, snap)
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
	case JSON:
		err = printJSON(out, page)
	case NDJSON:
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

func printJSON(out io.Writer, page *tree.Page) error {
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
func (o *Options) draw(out io.Writer, page *tree.Page) error {
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
