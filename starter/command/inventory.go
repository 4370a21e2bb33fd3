package command

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/urlake/urlake/indexbuild/prefixtree"
	"github.com/urlake/urlake/indexbuild/treebuild"
	"github.com/urlake/urlake/internal/cli"
)

// show shows that a task is in a stage and done to fraction, from 0 to 1. Text describes it, with
// numbers that it formats with number.
type show func(fraction float64, stage string, text func(number func(int64) string) string)

// newInventoryCommand returns the verb.
func newInventoryCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inventory",
		Short: "Sum up the objects of a bucket by folder, from its S3 Inventory",
		Long: `Inventory makes an index of a bucket's folders from a report of S3 Inventory: how many
objects are below each, and how many bytes they have. The index is a folder of files
that queries map; they take microseconds, whatever the size of the bucket. It needs
neither a lake nor Temporal.`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(cmd.ErrOrStderr())
			if err := cmd.Help(); err != nil {
				return err
			}
			return cli.Usagef("choose one of build, query and verify")
		},
	}
	cmd.AddCommand(buildCommand(g), queryCommand(g), newInventoryVerifyCommand(g))
	return cmd
}

func buildCommand(g *global) *cobra.Command {
	var out, format string
	var memory int64
	var opt treebuild.InventoryOptions
	cmd := &cobra.Command{
		Use:   "build --out DIR INPUT…",
		Short: "Build the index of a report",
		Long: `Build reads reports of S3 Inventory and writes the index of all objects that they list
to a new folder, which appears whole or not at all.

An input is the manifest.json of a report, or a file of one: CSV, compressed with gzip
or not, or Parquet; a path, or a URL of file or s3. Only a manifest.json has its files
compared with their sizes and MD5 checksums. Files of CSV without a manifest need a
first line with the names of the columns, or --schema. The columns read are Bucket, Key,
Size, IsLatest and IsDeleteMarker; Key is needed. ORC is not read.

Older versions and delete markers are left out. Objects without a size count as 0 bytes.
An object that is listed twice counts twice. All objects must be in one bucket.

Format seed is the one of the document of s3-inv-db, s3inv the one that its programs
read. Both give the same answers; docs/formats/prefixtree.md describes them.`,
		Example: `  starter inventory build --out folders s3://reports/bucket/weekly/2026-01-04T01-00Z/manifest.json
  starter inventory build --out folders --schema 'Bucket, Key, Size' part1.csv.gz part2.csv.gz`,
		Args: cli.Args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return cli.Usagef("--out is missing: the folder of the index")
			}
			opt.Format = prefixtree.Format(format)
			if !slices.Contains(prefixtree.Formats(), opt.Format) {
				return cli.Usagef("--format %q; choose one of %q", format, prefixtree.Formats())
			}
			if memory < 1 {
				return cli.Usagef("--memory %d; want 1 or more MiB", memory)
			}
			opt.MemoryBytes = memory << 20
			return build(cmd, g, out, args, opt)
		},
	}
	f := cmd.Flags()
	f.StringVar(&out, "out", "", "`DIR` of the index, which must not exist")
	f.StringVar(&format, "format", string(prefixtree.Seed), "`FORMAT` of the index: seed or s3inv")
	f.StringVar(&opt.CSV.Schema, "schema", "", "`COLUMNS` of files of CSV without a first line that names them, as in a report's fileSchema")
	f.BoolVar(&opt.CSV.PlainKeys, "plain-keys", false, "keys in files of CSV without a manifest are not URL-encoded")
	f.Int64Var(&memory, "memory", 256, "`MIB` that folders take while files are read; more go to temporary files beside the index")
	return cmd
}

// built is what build --json prints.
type built struct {
	Dir          string  `json:"dir"`
	Format       string  `json:"format"`
	Bucket       string  `json:"bucket,omitempty"`
	Files        int     `json:"files"`
	Folders      uint64  `json:"folders"`
	MaxDepth     uint32  `json:"max_depth"`
	Objects      uint64  `json:"objects"`
	Bytes        uint64  `json:"bytes"`
	Old          uint64  `json:"old"`
	Unsized      uint64  `json:"unsized"`
	IndexBytes   int64   `json:"index_bytes"`
	DurationSecs float64 `json:"duration_s"`
}

func build(cmd *cobra.Command, g *global, out string, inputs []string, opt treebuild.InventoryOptions) error {
	show, finish := g.taskBar(cmd.ErrOrStderr())
	opt.Progress = func(p treebuild.InventoryProgress) {
		// Writing takes about as long as reading.
		part, stage := float64(p.Files)/float64(2*max(1, p.TotalFiles)), "read"
		if p.Folders > 0 {
			stage = "write"
		}
		show(part, stage, func(number func(int64) string) string {
			if p.Folders > 0 {
				return fmt.Sprintf("writing: %s folders", number(int64(p.Folders)))
			}
			return fmt.Sprintf("reading: %s of %s files, %s objects", number(int64(p.Files)), number(int64(p.TotalFiles)), number(int64(p.Objects)))
		})
	}
	started := time.Now()
	r, err := treebuild.Inventory(cmd.Context(), out, inputs, opt)
	finish(err)
	if err != nil {
		return err
	}
	if g.json {
		return cli.WriteJSON(cmd.OutOrStdout(), built{
			Dir: out, Format: string(r.Format), Bucket: r.Bucket, Files: r.Files, Folders: r.Nodes, MaxDepth: r.Root.MaxDepth,
			Objects: r.Root.Objects, Bytes: r.Root.Bytes, Old: r.Old, Unsized: r.Unsized,
			IndexBytes: r.Stats.Bytes, DurationSecs: time.Since(started).Seconds(),
		}, true)
	}
	w := cmd.OutOrStdout()
	cli.Fprintf(w, "%s: %s, %s in %s", out, inventoryPlural(r.Root.Objects, "object"), inventorySize(r.Root.Bytes), inventoryPlural(r.Nodes, "folder"))
	cli.Fprintf(w, "; the index has %s\n", cli.Size(r.Stats.Bytes))
	if r.Old > 0 {
		cli.Fprintf(w, "left out: %s that are older versions or delete markers\n", inventoryPlural(r.Old, "object"))
	}
	if r.Unsized > 0 {
		cli.Fprintf(w, "without size, counted as 0 bytes: %s\n", inventoryPlural(r.Unsized, "object"))
	}
	return nil
}

func newInventoryVerifyCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "verify DIR",
		Short: "Check every byte of an index",
		Long: `Verify compares all files of an index with their checksums, and with each other: that
each folder is found, is in its place, and has what the folders in it have. The first
fault is printed, and the exit code is 1.

Queries check what they read themselves, if this program wrote the index: an index of
another program has checksums of whole files only.`,
		Example: `  starter inventory verify folders`,
		Args:    cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			x, err := prefixtree.Open(args[0])
			if err != nil {
				return err
			}
			defer x.Close()
			show, finish := g.taskBar(cmd.ErrOrStderr())
			err = x.Verify(cmd.Context(), func(nodes uint64) {
				show(float64(nodes)/float64(x.Len()), "check", func(number func(int64) string) string {
					return fmt.Sprintf("checking: %s of %s folders", number(int64(nodes)), number(int64(x.Len())))
				})
			})
			finish(err)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if g.json {
				return cli.WriteJSON(cmd.OutOrStdout(), map[string]any{"dir": args[0], "folders": x.Len(), "ok": true}, true)
			}
			cli.Fprintf(cmd.OutOrStdout(), "%s: %s, no fault\n", args[0], inventoryPlural(x.Len(), "folder"))
			return nil
		},
	}
}

func queryCommand(g *global) *cobra.Command {
	var q query
	var by, list string
	var encoded bool
	cmd := &cobra.Command{
		Use:   "query DIR [PREFIX]",
		Short: "Say what is below a folder",
		Long: `Query prints how many objects are below a folder, how many bytes they have, and the same
for the folders in it, in the order of their names, or the largest with --top. Without
PREFIX it is the whole bucket. FOLDERS is the number of folders directly in a folder.

With --depth 2 the folders in these follow, and so on; 0 prints the folder alone.
--min-count and --min-bytes leave out smaller folders, with everything below them.

With --prefixes a file names the folders, one a line, and each gets a line in the same
order; one in which no object is has a dash for each number. "-" is standard input.

With --json the answer is one document, in which folders are nested, and with --prefixes
a document a line. A prefix that is not UTF-8 has the member prefix_url, URL-encoded,
beside it.`,
		Example: `  starter inventory query folders
  starter inventory query folders data/2026 --depth 2 --top 10
  starter inventory query folders logs --min-bytes 1000000000 --json
  starter inventory query folders --prefixes teams.txt`,
		Args: cli.Args(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch by {
			case "bytes":
				q.order = prefixtree.ByBytes
			case "objects":
				q.order = prefixtree.ByObjects
			default:
				return cli.Usagef("--by %q; choose bytes or objects", by)
			}
			if q.top < 0 {
				return cli.Usagef("--top %d; want 0 or more", q.top)
			}
			prefix := ""
			if len(args) == 2 {
				prefix = args[1]
			}
			if encoded {
				var err error
				if prefix, err = url.QueryUnescape(prefix); err != nil {
					return cli.Usagef("PREFIX is not URL-encoded: %v", err)
				}
			}
			if list != "" && (prefix != "" || cmd.Flags().Changed("depth") || q.top > 0 || q.filter != (prefixtree.Filter{})) {
				return cli.Usagef("--prefixes goes without PREFIX, --depth, --top, --min-count and --min-bytes")
			}
			x, err := prefixtree.Open(args[0])
			if err != nil {
				return err
			}
			defer x.Close()
			q.x = x
			q.w = bufio.NewWriterSize(cmd.OutOrStdout(), 64<<10)
			if list != "" {
				in, err := openList(cmd, list)
				if err != nil {
					return err
				}
				defer in.Close()
				if err := q.list(cmd.Context(), in, encoded, g.json); err != nil {
					return errors.Join(fmt.Errorf("%s: %w", list, err), q.w.Flush())
				}
				return q.w.Flush()
			}
			if err := q.answer(cmd.Context(), args[0], prefix, g.json); err != nil {
				return err
			}
			return q.w.Flush()
		},
	}
	f := cmd.Flags()
	f.Uint32Var(&q.depth, "depth", 1, "print `N` levels of folders below PREFIX")
	f.Uint64Var(&q.filter.MinObjects, "min-count", 0, "leave out folders with fewer than `N` objects")
	f.Uint64Var(&q.filter.MinBytes, "min-bytes", 0, "leave out folders with fewer than `N` bytes")
	f.IntVar(&q.top, "top", 0, "print only the `N` largest folders of each folder, largest first; 0 prints all")
	f.StringVar(&by, "by", "bytes", "what is large with --top: `SUM` of bytes or objects")
	f.StringVar(&list, "prefixes", "", "print a line for each folder that `FILE` names, one a line")
	f.BoolVar(&encoded, "url-encoded", false, "PREFIX is URL-encoded, or each line of --prefixes")
	return cmd
}

// openList opens the list of --prefixes.
func openList(cmd *cobra.Command, name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(cmd.InOrStdin()), nil
	}
	return os.Open(name)
}

func inventoryPlural(n uint64, thing string) string { return cli.Plural(int64(n), thing) }

func inventorySize(n uint64) string { return cli.Size(int64(n)) }

// query is a question about a folder. Answers are written as they are found, so that memory does
// not grow with them; with top it holds the largest folders of the folders that are open.
type query struct {
	x      *prefixtree.Index
	w      *bufio.Writer
	depth  uint32
	top    int
	order  prefixtree.Order
	filter prefixtree.Filter

	buf []byte
}

// answer prints the answer about a folder of the index in dir.
func (q *query) answer(ctx context.Context, dir, prefix string, asJSON bool) error {
	pos, ok, err := q.x.Lookup([]byte(folderOf(prefix)))
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if !ok {
		return q.notFound(dir, prefix)
	}
	n, err := q.x.Node(pos)
	if err == nil && asJSON {
		err = q.json(ctx, n, 0, "")
		q.w.WriteByte('\n')
	} else if err == nil {
		err = q.text(ctx, n)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// folderOf returns the folder that a person means: prefix as it is, or with a slash at its end.
func folderOf(prefix string) string {
	if prefix == "" || strings.HasSuffix(prefix, "/") {
		return prefix
	}
	return prefix + "/"
}

// notFound names the nearest folder above one that is not there. The root always is, or its lookup
// fails.
func (q *query) notFound(dir, prefix string) error {
	above := strings.TrimSuffix(prefix, "/")
	for {
		above = above[:strings.LastIndexByte(above, '/')+1]
		_, ok, err := q.x.Lookup([]byte(above))
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		switch {
		case ok && above == "":
			return fmt.Errorf("%s: no object is below %q; without a prefix, query lists the folders that there are", dir, prefix)
		case ok:
			return fmt.Errorf("%s: no object is below %q; the nearest folder is %q", dir, prefix, above)
		}
		above = strings.TrimSuffix(above, "/")
	}
}

// eachChild calls yield with the children of a node that are printed.
func (q *query) eachChild(ctx context.Context, n prefixtree.Node, yield func(prefixtree.Node) error) error {
	if q.top > 0 {
		l, err := q.x.Descendants(n.Position, 1)
		if err != nil {
			return err
		}
		top, err := l.Top(ctx, q.top, q.order, q.filter)
		if err != nil {
			return err
		}
		for _, c := range top {
			if err := yield(c); err != nil {
				return err
			}
		}
		return nil
	}
	var failed error
	err := q.x.EachChild(n.Position, func(c prefixtree.Node) bool {
		if failed = ctx.Err(); failed == nil && q.filter.Match(&c) {
			failed = yield(c)
		}
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	return err
}

// prefix returns the prefix of a node, which is valid until the next call.
func (q *query) prefix(n prefixtree.Node) (string, error) {
	var err error
	q.buf, err = q.x.AppendPrefix(q.buf[:0], n.Position)
	return string(q.buf), err
}

func (q *query) children(n prefixtree.Node) (uint64, error) {
	l, err := q.x.Descendants(n.Position, 1)
	return l.Len(), err
}

func (q *query) text(ctx context.Context, n prefixtree.Node) error {
	prefix, err := q.prefix(n)
	if err != nil {
		return err
	}
	fmt.Fprintf(q.w, "%15s %10s %12s  %s\n", "OBJECTS", "SIZE", "FOLDERS", "NAME")
	if prefix == "" {
		prefix = "(all)"
	}
	if err := q.line(n, 0, prefix); err != nil {
		return err
	}
	return q.lines(ctx, n, 1)
}

// lines prints the folders in a node.
func (q *query) lines(ctx context.Context, n prefixtree.Node, depth uint32) error {
	if depth > q.depth {
		return nil
	}
	above, err := q.prefix(n)
	if err != nil {
		return err
	}
	return q.eachChild(ctx, n, func(c prefixtree.Node) error {
		prefix, err := q.prefix(c)
		if err != nil {
			return err
		}
		if err := q.line(c, int(depth), strings.TrimPrefix(prefix, above)); err != nil {
			return err
		}
		return q.lines(ctx, c, depth+1)
	})
}

func (q *query) line(n prefixtree.Node, indent int, name string) error {
	children, err := q.children(n)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(q.w, "%15s %10s %12s  %s%s\n", cli.Count(int64(n.Objects)), inventorySize(n.Bytes), cli.Count(int64(children)),
		strings.Repeat("  ", indent), cli.Escape(name))
	return err
}

// folder is what query --json says of a folder, before its children.
type folder struct {
	Prefix    string  `json:"prefix"`
	PrefixURL *string `json:"prefix_url,omitempty"`
	Objects   uint64  `json:"objects"`
	Bytes     uint64  `json:"bytes"`
	Levels    uint32  `json:"levels"` // of folders below it
	Folders   uint64  `json:"folders"`
}

// json prints a node and those below it, without a line end.
func (q *query) json(ctx context.Context, n prefixtree.Node, depth uint32, indent string) error {
	prefix, err := q.prefix(n)
	if err != nil {
		return err
	}
	f := folder{Prefix: prefix, Objects: n.Objects, Bytes: n.Bytes, Levels: n.MaxDepth - n.Depth}
	if !utf8.ValidString(prefix) {
		encoded := url.QueryEscape(prefix)
		f.PrefixURL = &encoded
	}
	if f.Folders, err = q.children(n); err != nil {
		return err
	}
	doc, err := json.Marshal(f)
	if err != nil {
		return err
	}
	q.w.WriteString(indent)
	if depth == q.depth {
		_, err = q.w.Write(doc)
		return err
	}
	q.w.Write(doc[:len(doc)-1])
	q.w.WriteString(`,"children":[`)
	any := false
	err = q.eachChild(ctx, n, func(c prefixtree.Node) error {
		if any {
			q.w.WriteByte(',')
		}
		any = true
		q.w.WriteByte('\n')
		return q.json(ctx, c, depth+1, indent+"  ")
	})
	if err != nil {
		return err
	}
	if any {
		q.w.WriteString("\n" + indent)
	}
	_, err = q.w.WriteString("]}")
	return err
}

// maxLine bounds a line of a list, in bytes. A key of S3 has at most 1,024, and URL encoding
// makes three of one.
const maxLine = 1 << 20

// row is what query --prefixes --json says of a folder.
type row struct {
	Prefix    string  `json:"prefix"`
	PrefixURL *string `json:"prefix_url,omitempty"`
	Found     bool    `json:"found"`
	Objects   uint64  `json:"objects"`
	Bytes     uint64  `json:"bytes"`
	Folders   uint64  `json:"folders"`
}

// list prints a line for each folder that a list names, in its order.
func (q *query) list(ctx context.Context, in io.Reader, encoded, asJSON bool) error {
	if !asJSON {
		fmt.Fprintf(q.w, "%15s %10s %12s  %s\n", "OBJECTS", "SIZE", "FOLDERS", "NAME")
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	number := 0
	for lines.Scan() {
		number++
		prefix := strings.TrimSuffix(lines.Text(), "\r")
		if encoded {
			var err error
			if prefix, err = url.QueryUnescape(prefix); err != nil {
				return fmt.Errorf("line %d is not URL-encoded: %w", number, err)
			}
		}
		if err := cmp.Or(q.row(folderOf(prefix), asJSON), ctx.Err()); err != nil {
			return err
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("line %d is longer than %s", number+1, cli.Size(maxLine))
	}
	return lines.Err()
}

// row prints the line of a folder.
func (q *query) row(prefix string, asJSON bool) error {
	pos, found, err := q.x.Lookup([]byte(prefix))
	if err != nil {
		return err
	}
	var n prefixtree.Node
	r := row{Prefix: prefix, Found: found}
	if r.Found {
		if n, err = q.x.Node(pos); err != nil {
			return err
		}
	}
	name := r.Prefix
	if name == "" {
		name = "(all)"
	}
	switch {
	case !asJSON && !r.Found:
		_, err = fmt.Fprintf(q.w, "%15s %10s %12s  %s\n", "-", "-", "-", cli.Escape(name))
		return err
	case !asJSON:
		return q.line(n, 0, name)
	}
	if !utf8.ValidString(r.Prefix) {
		escaped := url.QueryEscape(r.Prefix)
		r.PrefixURL = &escaped
	}
	if r.Found {
		r.Objects, r.Bytes = n.Objects, n.Bytes
		if r.Folders, err = q.children(n); err != nil {
			return err
		}
	}
	doc, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = q.w.Write(append(doc, '\n'))
	return err
}
