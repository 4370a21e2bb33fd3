// Package inventory is the verb "inventory" of starter: path trees of the objects that reports of
// S3 Inventory list.
package inventory

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/urlake/urlake/indexbuild/prefixtree"
	"github.com/urlake/urlake/indexbuild/treebuild"
	"github.com/urlake/urlake/internal/cli"
)

// Program is what the verb needs of starter.
type Program struct {
	JSON *bool
	// Bar returns the functions that show the progress of a task on w, and end it.
	Bar func(w io.Writer) (show Show, finish func(error))
}

// Show shows that a task is in a stage and done to fraction, from 0 to 1. Text describes it, with
// numbers that it formats with number.
type Show func(fraction float64, stage string, text func(number func(int64) string) string)

// NewCommand returns the verb.
func NewCommand(p Program) *cobra.Command {
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
	cmd.AddCommand(buildCommand(p), queryCommand(p), verifyCommand(p))
	return cmd
}

func buildCommand(p Program) *cobra.Command {
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
			return build(cmd, p, out, args, opt)
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

func build(cmd *cobra.Command, p Program, out string, inputs []string, opt treebuild.InventoryOptions) error {
	show, finish := p.Bar(cmd.ErrOrStderr())
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
	if *p.JSON {
		return cli.WriteJSON(cmd.OutOrStdout(), built{
			Dir: out, Format: string(r.Format), Bucket: r.Bucket, Files: r.Files, Folders: r.Nodes, MaxDepth: r.Root.MaxDepth,
			Objects: r.Root.Objects, Bytes: r.Root.Bytes, Old: r.Old, Unsized: r.Unsized,
			IndexBytes: r.Stats.Bytes, DurationSecs: time.Since(started).Seconds(),
		}, true)
	}
	w := cmd.OutOrStdout()
	cli.Fprintf(w, "%s: %s, %s in %s", out, plural(r.Root.Objects, "object"), size(r.Root.Bytes), plural(r.Nodes, "folder"))
	cli.Fprintf(w, "; the index has %s\n", cli.Size(r.Stats.Bytes))
	if r.Old > 0 {
		cli.Fprintf(w, "left out: %s that are older versions or delete markers\n", plural(r.Old, "object"))
	}
	if r.Unsized > 0 {
		cli.Fprintf(w, "without size, counted as 0 bytes: %s\n", plural(r.Unsized, "object"))
	}
	return nil
}

func verifyCommand(p Program) *cobra.Command {
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
			show, finish := p.Bar(cmd.ErrOrStderr())
			err = x.Verify(cmd.Context(), func(nodes uint64) {
				show(float64(nodes)/float64(x.Len()), "check", func(number func(int64) string) string {
					return fmt.Sprintf("checking: %s of %s folders", number(int64(nodes)), number(int64(x.Len())))
				})
			})
			finish(err)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if *p.JSON {
				return cli.WriteJSON(cmd.OutOrStdout(), map[string]any{"dir": args[0], "folders": x.Len(), "ok": true}, true)
			}
			cli.Fprintf(cmd.OutOrStdout(), "%s: %s, no fault\n", args[0], plural(x.Len(), "folder"))
			return nil
		},
	}
}

func queryCommand(p Program) *cobra.Command {
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
				if err := q.list(cmd.Context(), in, encoded, *p.JSON); err != nil {
					return errors.Join(fmt.Errorf("%s: %w", list, err), q.w.Flush())
				}
				return q.w.Flush()
			}
			if err := q.answer(cmd.Context(), args[0], prefix, *p.JSON); err != nil {
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

func plural(n uint64, thing string) string { return cli.Plural(int64(n), thing) }

func size(n uint64) string { return cli.Size(int64(n)) }
