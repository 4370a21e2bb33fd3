package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/export/files"
	"github.com/urlake/urlake/export/scan"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/serve/lookup"
)

// newExportCommand returns "starter export" with the verbs for files, and more verbs.
func newExportCommand(g *global, more ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write a slice of the lake in another form",
		Long: `Export writes the rows of a version of the lake, or of some of its datasets and
domains, in another form. An export has exactly the rows that the read server lists,
without those of retired batches and takedowns, and ends with counts that are compared
with the lake's index.`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(cmd.ErrOrStderr())
			if err := cmd.Help(); err != nil {
				return err
			}
			return cli.Usagef("no form given; choose one of the commands above")
		},
	}
	cmd.AddCommand(filesCommand(g, files.Parquet), filesCommand(g, files.CSV))
	cmd.AddCommand(more...)
	return cmd
}

// slice is the flags that choose what is exported.
type slice struct {
	Datasets []string
	Domains  []string
	Version  string
}

// AddFlags adds the flags to a verb.
func (s *slice) AddFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&s.Datasets, "dataset", nil, "`NAME` or id of a dataset; may be repeated (default: all)")
	f.StringArrayVar(&s.Domains, "domain", nil, "`DOMAIN`, host or URL whose domain is exported; may be repeated (default: all)")
	f.StringVar(&s.Version, "version", "", "`ID` or tag of the version (default: the current one)")
}

// Options returns what the flags say, as package scan has it.
func (s *slice) Options() (scan.Options, error) {
	o := scan.Options{Version: s.Version, Datasets: s.Datasets}
	for _, text := range s.Domains {
		t, err := lookup.ParseTarget(text)
		if err = cmp.Or(err, t.Several()); err != nil {
			return o, cli.Usagef("--domain %q: %w", text, err)
		}
		o.Hosts = append(o.Hosts, t.Host)
	}
	return o, nil
}

// filesOptions are the flags of "export parquet" and "export csv".
type filesOptions struct {
	slice    slice
	out      string
	layout   string
	columns  []string
	fileRows int64
	format   files.Format
}

func filesCommand(g *global, format files.Format) *cobra.Command {
	o := filesOptions{format: format}
	name := map[files.Format]string{files.Parquet: "Parquet", files.CSV: "CSV"}[format]
	cmd := &cobra.Command{
		Use:   string(format) + " --lake URL --out FOLDER|FILE [flags]",
		Short: "Write a slice of the lake as " + name + " files",
		Long: `Export ` + string(format) + ` writes a row for each row of the slice, with these columns:

  url      canonical URL
  key      63-bit key of the URL (docs/formats/urlkey.md)
  domain64 number of the host (docs/formats/domain64.md), with --domain64
  dataset  name of the dataset
  ts       time
  size     bytes or tokens
  extras   the record's other members, as JSON

--columns chooses others; domain, host, url_id, dataset_id, batch and raw_url are there
too.

FOLDER may be s3://bucket/prefix. It is to be empty, or to have an earlier export,
whose place this one takes. The files are complete when _export.json is there, which
lists them and is written last. An export that is there already is not written again.
A FILE ends in .` + string(format) + `, and appears when it is complete.

--domain64 gives numbers to hosts that have none yet, and keeps them in the lake.`,
		Example: `  starter export ` + string(format) + ` --lake /data/lake --out /data/export
  starter export ` + string(format) + ` --lake /data/lake --dataset crawl --domain example.com --out example.` + string(format) + `
  starter export ` + string(format) + ` --lake s3://bucket/lake --out s3://bucket/export --domain64 12-28-24-0`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd, g) },
	}
	g.lakeFlag(cmd)
	o.slice.AddFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.out, "out", "", "`FOLDER`, file or s3:// prefix to write to")
	f.StringVar(&o.layout, "domain64", "", "add the column domain64 in this `LAYOUT`: 12-28-24-0, 8-24-8-24, or other widths")
	f.StringSliceVar(&o.columns, "columns", nil, "write these `NAMES`, with commas between them: "+strings.Join(files.ColumnNames(), ", "))
	f.Int64Var(&o.fileRows, "file-rows", files.DefaultFileRows, "write about this many `ROWS` to a file of a folder")
	return cmd
}

// result is what "export parquet --json" prints.
type result struct {
	Out     string `json:"out"`
	Written bool   `json:"written"` // false if the folder had the export already
	*files.Manifest
}

func (o *filesOptions) run(cmd *cobra.Command, g *global) error {
	ctx := cmd.Context()
	opt := files.Options{Format: o.format, Columns: o.columns, FileRows: o.fileRows}
	switch {
	case o.out == "":
		return cli.Usagef("--out is missing; name a folder or a file to write to")
	case o.fileRows < 1:
		return cli.Usagef("--file-rows is %d; use a number of rows", o.fileRows)
	}
	if o.layout != "" {
		var err error
		if opt.Layout, err = domain64.ParseLayout(o.layout); err != nil {
			return cli.Usagef("--domain64: %w", err)
		}
	}
	store, url, err := g.store(ctx)
	if err != nil {
		return err
	}
	if err := requireLake(ctx, store, url); err != nil {
		return err
	}
	out, name, err := o.target(ctx)
	if err != nil {
		return err
	}
	res, err := o.export(ctx, store, out, name, opt, newProgress(cmd.ErrOrStderr(), g.json))
	if err != nil {
		return lake.Explained(url, noVersion(ctx, store, err))
	}
	res.Out = o.out
	return res.print(cmd.OutOrStdout(), g.json)
}

// target returns the store to write to, and the name of the file there, "" for a folder of files.
func (o *filesOptions) target(ctx context.Context) (out blob.Store, name string, err error) {
	folder := o.out
	if strings.HasSuffix(o.out, "."+string(o.format)) {
		at := strings.LastIndexByte(o.out, '/')
		folder, name = o.out[:max(at, 0)], o.out[at+1:]
		switch {
		case at < 0:
			folder = "."
		case at == 0:
			folder = "/"
		}
	}
	if !strings.Contains(folder, "://") {
		if folder, err = filepath.Abs(folder); err != nil {
			return nil, "", err
		}
	}
	out, err = blob.Open(ctx, folder)
	return out, name, err
}

func (o *filesOptions) export(
	ctx context.Context, store, out blob.Store, name string, opt files.Options, bar *exportProgress,
) (*result, error) {
	defer bar.end()
	slice, err := o.slice.Options()
	if err != nil {
		return nil, err
	}
	s, err := scan.Open(ctx, store, slice)
	if err != nil {
		return nil, err
	}
	release, err := s.Hold(ctx, "starter export "+cli.Version())
	if err != nil {
		return nil, err
	}
	defer release()
	opt.Progress = bar.show
	res := &result{Written: true}
	if name != "" {
		res.Manifest, err = files.ToFile(ctx, store, s, out, name, opt)
	} else {
		res.Manifest, res.Written, err = files.ToFolder(ctx, store, s, out, opt)
	}
	if err != nil {
		return nil, err
	}
	return res, nil
}

func (r *result) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return cli.WriteJSON(w, r, true)
	}
	if !r.Written {
		cli.Fprintf(w, "%s has %s of version %s already, in %s.\n", r.Out, cli.Plural(r.Rows, "row"), r.Version, cli.Plural(int64(len(r.Files)), "file"))
		return nil
	}
	cli.Fprintf(w, "%s of %s in version %s: %s (%s) in %s.\n", cli.Plural(r.Rows, "row"), cli.Plural(int64(len(r.Datasets)), "dataset"),
		r.Version, cli.Plural(int64(len(r.Files)), "file"), cli.Size(r.Bytes), r.Out)
	return nil
}

// exportProgress shows how far an export is: on a terminal one line that is written again,
// elsewhere a line every exportPlainInterval.
type exportProgress struct {
	w        io.Writer
	terminal bool
	rows     chan [2]int64
	done     chan struct{}
}

const (
	terminalInterval    = 200 * time.Millisecond
	exportPlainInterval = 10 * time.Second
)

func newProgress(w io.Writer, quiet bool) *exportProgress {
	f, ok := w.(*os.File)
	p := &exportProgress{w: w, terminal: ok && isatty.IsTerminal(f.Fd()), rows: make(chan [2]int64, 1), done: make(chan struct{})}
	if quiet {
		p.w = io.Discard
	}
	go p.run()
	return p
}

// show notes how many rows are written. Calls that come while a line is being written are left out.
func (p *exportProgress) show(rows, all int64) {
	select {
	case p.rows <- [2]int64{rows, all}:
	default:
	}
}

func (p *exportProgress) run() {
	defer close(p.done)
	interval := exportPlainInterval
	if p.terminal {
		interval = terminalInterval
	}
	last := time.Now()
	for n := range p.rows {
		if time.Since(last) < interval {
			continue
		}
		last = time.Now()
		line := fmt.Sprintf("%s of %s rows", cli.Count(n[0]), cli.Count(n[1]))
		if p.terminal {
			cli.Fprintf(p.w, "\r%s", line)
		} else {
			cli.Fprintf(p.w, "%s\n", line)
		}
	}
}

// end ends the line.
func (p *exportProgress) end() {
	close(p.rows)
	<-p.done
	if p.terminal {
		cli.Fprintf(p.w, "\r\x1b[K")
	}
}
