package command

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/ingest/many"
	"github.com/urlake/urlake/workflows"
)

// quiet discards the log of the Temporal client. Whatever a person has to know is printed.
var quiet = slog.New(slog.DiscardHandler)

// ingestFlags are the flags and inputs that describe an ingest, for ingest and schedule.
type ingestFlags struct {
	spec         ingest.Spec
	datasetsFrom string
	again        bool
	noPublish    bool
	wait         bool
	cancel       bool
	dryRun       bool
}

func (f *ingestFlags) register(g *global, cmd *cobra.Command) {
	g.lakeFlag(cmd)
	fs := cmd.Flags()
	fs.StringVar(&f.spec.Dataset, "dataset", "", "`NAME` of the dataset; a new name registers a new dataset, and has a letter")
	fs.StringVar(&f.datasetsFrom, "datasets-from", "",
		"ingest many datasets at once: each of the `files`, or each of the folders directly below an input, is a dataset "+
			"named after it (files or folders)")
	fs.BoolVar(&f.again, "again", false, "with --datasets-from: take up unchanged inputs, too")
	fs.StringVar(&f.spec.Batch, "batch", "",
		"`NAME` of the batch, e.g. a date; replaces the batch of that name "+
			"(default: a hash of the inputs' names, sizes and ETags)")
	fs.BoolVar(&f.spec.Replace, "replace", false,
		"make the batch the dataset's only content: one version has it and lacks all other batches, which are retired")
	fs.BoolVar(&f.spec.NewOnly, "new-only", false,
		"take only objects that no other batch of the dataset has read, by name and size; retired batches do not count")
	fs.StringSliceVar(&f.spec.Include, "include", nil,
		"read only files that match a `GLOB`: by name or, with a slash in it, by path below the input; "+
			"hidden names (. or _ first) are read only if a glob names them explicitly")
	fs.StringSliceVar(&f.spec.Exclude, "exclude", nil, "skip files and folders that match a `GLOB`, matched as for --include")
	fs.StringVar(&f.spec.Format, "format", "auto",
		"`FORMAT` of the inputs, in a tar or zip archive of its members: "+
			"lines, csv, tsv, spaced, jsonl, json, cdx, cdxj, crawllog, warc, arc, parquet, "+
			"sitemap, rss, atom, opml, bookmarks, timemap, ntriples, or auto to detect it from the content")
	fs.StringVar(&f.spec.URLColumn, "url-column", "",
		"`COLUMN` of the URL: its name, its number from 1, or a JSON member (default: detected)")
	fs.StringVar(&f.spec.TSColumn, "ts-column", "", "`COLUMN` or JSON member of the timestamp, none for no time (default: detected)")
	fs.StringVar(&f.spec.TSFormat, "ts-format", "",
		"`FORMAT` of the timestamp, e.g. '%d/%m/%Y %H:%M' or a layout of Go's time package (default: detected)")
	fs.StringVar(&f.spec.SizeField, "size-field", "",
		"`COLUMN` or JSON member to keep as size and to sum per domain, e.g. bytes or tokens")
	fs.StringSliceVar(&f.spec.Extras, "extras", nil, "other `COLUMNS` to keep, by name; '*' keeps all, "+
		"none keeps nothing; by default the capture fields of CDX, CDXJ, WARC, WACZ and crawl logs")
	fs.BoolVar(&f.spec.KeepRaw, "keep-raw", false, "keep the raw URL in column raw_url where it differs from the canonical URL")
	fs.IntVar(&f.spec.MaxLine, "max-line", 0, "longest record in `BYTES`; longer ones are rejected (default: 1 MiB)")
	fs.Float64Var(&f.spec.MaxRejectRate, "max-reject-rate", ingest.DefaultMaxRejectRate,
		"fail the batch if more than this `SHARE` of its records is rejected, from 0 to 1")
	fs.StringSliceVar(&f.spec.StripParams, "strip-params", nil, "query `PARAMETERS` to strip: names or globs, e.g. 'utm_*,gclid'")
	fs.StringVar(&f.spec.Deadline, "deadline", "",
		"give up after this `DURATION`, e.g. 36h or 3d; until then whatever may pass is retried (default: 7d)")
	fs.StringVar(&f.spec.Title, "title", "", "`TITLE` of the dataset, shown to readers")
	fs.StringVar(&f.spec.Source, "source", "", "`WHERE` the dataset comes from, e.g. a URL")
	fs.StringVar(&f.spec.Licence, "licence", "", "`LICENCE` of the dataset")
	fs.StringSliceVar(&f.spec.Manifests, "manifest", nil,
		"`LIST` of further inputs: a manifest.json of S3 Inventory, or text with an input a line")
	fs.BoolVar(&f.spec.SkipUnreadable, "skip-unreadable", false,
		"leave out, and name, what cannot be read: unknown formats, files without URLs, what is damaged; also in archives")
	fs.BoolVar(&f.spec.Unwrap, "unwrap", false,
		"take the page's URL, and the time, from URLs of archives' copies: web.archive.org/web/2020…/http://…")
	fs.BoolVar(&f.noPublish, "no-publish", false, "finish the batch without publishing it; the next publish includes it")
}

// input checks the flags and returns the workflow's input. It makes local paths absolute, since
// workers run in other folders.
func (f *ingestFlags) input(g *global, args []string) (workflows.IngestInput, error) {
	in := workflows.IngestInput{Spec: f.spec, NoPublish: f.noPublish}
	var err error
	// Looking at inputs needs no lake.
	if in.Lake, err = cli.LakeURL(g.lake); err != nil && (!f.dryRun || g.lake != "") {
		return workflows.IngestInput{}, err
	}
	if in.MaxRejectRate == 0 {
		in.MaxRejectRate = ingest.NoRejects // in a Spec 0 stands for the default
	}
	if in.Extras != nil && len(in.Extras) == 0 {
		in.Extras = []string{"none"} // of a Spec's JSON an empty list is none at all
	}
	switch {
	case f.datasetsFrom != "" && in.Dataset != "":
		return in, cli.Usagef("--dataset and --datasets-from exclude each other")
	case f.datasetsFrom == "" && f.again:
		return in, cli.Usagef("--again needs --datasets-from")
	case f.datasetsFrom == "" && in.Dataset == "" && !f.dryRun:
		return in, cli.Usagef("no dataset given; use --dataset NAME, or --datasets-from files to name datasets after the files")
	}
	if in.MaxRejectRate > 1 || f.spec.MaxRejectRate < 0 || math.IsNaN(in.MaxRejectRate) {
		return in, cli.Usagef("--max-reject-rate %v is out of range; use a share from 0 to 1, e.g. 0.5", f.spec.MaxRejectRate)
	}
	for _, f := range []struct{ flag, value string }{
		{"title", in.Title}, {"source", in.Source}, {"licence", in.Licence},
	} {
		if err := cli.CheckPrintable(f.flag, f.value); err != nil {
			return in, err
		}
	}
	if len(args)+len(in.Manifests) == 0 {
		return in, cli.Usagef("no input given; add a file, a glob, a folder, or s3://bucket/prefix/, or --manifest LIST")
	}
	if in.Inputs, err = absolute(args); err != nil {
		return in, err
	}
	if in.Manifests, err = absolute(in.Manifests); err != nil {
		return in, err
	}
	if in.Date != "" && in.Date != ingest.ScheduledDate {
		if in.Spec, err = in.OnDate(); err != nil {
			return in, &cli.UsageError{Err: err}
		}
	}
	// Reject here what every worker would reject, before anything is started.
	checked := in
	if f.dryRun && in.Dataset == "" {
		checked.Dataset = "any"
	}
	check := checked.Check
	if f.datasetsFrom != "" {
		check = f.many(in).Check
	}
	if err := check(); err != nil {
		return in, &cli.UsageError{Err: err}
	}
	return in, nil
}

// absolute makes local paths absolute.
func absolute(names []string) (all []string, err error) {
	for _, name := range names {
		if !strings.Contains(name, "://") {
			if name, err = filepath.Abs(name); err != nil {
				return nil, err
			}
		}
		all = append(all, name)
	}
	return all, nil
}

// many returns the input of an ingest of many datasets.
func (f *ingestFlags) many(in workflows.IngestInput) *workflows.IngestManyInput {
	return &workflows.IngestManyInput{
		Spec: many.Spec{Spec: in.Spec, DatasetsFrom: f.datasetsFrom, Again: f.again}, NoPublish: in.NoPublish,
	}
}

func ingestCommand(g *global) *cobra.Command {
	var f ingestFlags
	cmd := &cobra.Command{
		Use:   "ingest --lake URL --dataset NAME [flags] INPUT…",
		Short: "Ingest one batch of a dataset and publish it",
		Long: `Ingest starts a workflow that reads the inputs, makes every URL canonical, writes
sorted Parquet and its postings, and publishes a version that holds the batch.

An input is a file, a glob, a folder, s3://bucket/key, s3://bucket/glob or
s3://bucket/prefix/. Of a folder or prefix every file below it is read, except hidden
names, which begin with . or _. Workers read the inputs, so a path has to exist on
their machines, and to be among what they may read (worker --allow-input). --manifest
names lists of inputs. Format and columns are detected from the content; the result says
what was chosen, and flags override it. --dry-run shows it before: it reads the first
records of every file from this machine, and needs neither a lake nor Temporal.

Ingesting a batch again replaces it. If the content is unchanged, the same objects are
written again, which repairs damaged ones, and the result says so. Without --batch a
changed input becomes another batch and adds to the dataset. The result says whether the
batch is new, how many rows the dataset has besides, and how many of the new ones it had
already; it warns if another batch was made from an input of the same name and size.

With --replace the batch becomes the dataset's only content, in one version: all other
batches whose ingests began before are retired with it. "starter restore" brings them
back. If the batch turns out damaged, the version keeps the others.

With --new-only, objects that another batch of the dataset was made from are left out,
so that a folder that grows is not read twice. They are known by name and size: a file
that was changed and kept its size is left out, too. If nothing is new, nothing is
ingested, and the exit code is 0.

With --datasets-from files each file is a dataset named after it, without extensions; with
--datasets-from folders each folder directly below an input. All of them are one workflow
with one progress display and one result. A file that fails is named and harms no other;
the exit code is then 1. The same command again takes up only what has changed: a changed
file replaces what its dataset holds in batch "current", or in --batch; a file that is gone
leaves its dataset as it is. --again takes up all.

Records that are not URLs are rejected. They are counted, and an object of the lake
lists the positions and reasons of the first million; "starter rejects" shows them by
file. If too many are rejected the batch fails, and nothing is published. A file that
cannot be read fails it too; with --skip-unreadable such files, and members of archives,
are left out and named. What was read of a damaged file before the damage is kept.

If the store, Temporal or the workers are away, or refuse, the ingest waits and goes on
by itself; --wait and "starter watch" say what it waits for. After --deadline it fails.
What it has done is kept for a week, and the same command continues it. Faults of the
input fail at once.

Without --wait the command prints the workflow id and exits; "starter watch" follows
the workflow. With --wait it shows the progress on standard error, and at the end
prints on standard output what was read, kept, merged, rejected and written.`,
		Example: `  starter ingest --lake /data/lake --dataset seeds-2024 --wait seeds/*.csv.gz
  starter ingest --lake s3://b/lake --dataset crawl --batch 2026-11-20 s3://raw/crawl/2026-11-20/
  starter ingest --lake /data/lake --datasets-from files --wait lists/
  starter ingest --dry-run seeds/`,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := f.input(g, args)
			if err != nil {
				return err
			}
			if f.dryRun {
				return f.preview(cmd, g, in)
			}
			c, err := connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			var run client.WorkflowRun
			watch := watchIngest
			if f.datasetsFrom != "" {
				watch = watchMany
				run, err = startMany(cmd.Context(), c, *f.many(in))
			} else {
				run, err = startIngest(cmd.Context(), c, in)
			}
			if err != nil {
				return err
			}
			if !f.wait {
				if err := warnIdlePools(cmd.Context(), c, in.Lake, cmd.ErrOrStderr()); err != nil {
					return err
				}
				if g.json {
					return printJSON(cmd.OutOrStdout(), map[string]string{"workflow_id": run.GetID(), "run_id": run.GetRunID()})
				}
				cli.Fprintf(cmd.OutOrStdout(), "Started %s\nTo watch it: %s '%s'\n", run.GetID(), cli.Typed("starter watch"), run.GetID())
				return nil
			}
			return watch(cmd, g, c, run, f.cancel)
		},
	}
	f.register(g, cmd)
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false,
		"only look at the inputs, from this machine: print the format, columns and first rows of each; exit code 1 if one is refused")
	cmd.Flags().StringVar(&f.spec.Date, "date", "",
		"put this `DATE`, e.g. 2026-11-20 or 2026-11-20T03, in the place of {date}, {yyyy}, {mm}, {dd} and {hh} in names")
	cmd.Flags().BoolVar(&f.wait, "wait", false, "wait until the ingest ends, show its progress and print its result")
	cmd.Flags().BoolVar(&f.cancel, "cancel-on-interrupt", false,
		"with --wait: Ctrl-C cancels the ingest instead of leaving it running")
	return cmd
}

// startIngest starts an ingest on the lake's control queue. The workflow id names dataset and
// batch, so that a batch is ingested at most once at a time; without a name for the batch it is
// random.
func startIngest(ctx context.Context, c client.Client, in workflows.IngestInput) (client.WorkflowRun, error) {
	name := in.Batch
	if name == "" {
		var b [4]byte
		rand.Read(b[:])
		name = "run-" + hex.EncodeToString(b[:])
	}
	id := ingestID(in, name)
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                                       id,
		TaskQueue:                                activities.TaskQueue(in.Lake, activities.PoolControl),
		WorkflowIDConflictPolicy:                 enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		StaticSummary:                            fmt.Sprintf("ingest %s into %s", in.Dataset, in.Lake),
	}, workflows.IngestWorkflow, in)
	var already *serviceerror.WorkflowExecutionAlreadyStarted
	if errors.As(err, &already) {
		return nil, fmt.Errorf("batch %s of %s %w. To watch it: %s '%s'",
			in.Batch, in.Dataset, errIngesting, cli.Typed("starter watch"), id)
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", id, err)
	}
	return run, nil
}

// errIngesting means that an ingest of the batch runs.
var errIngesting = errors.New("is being ingested already")

// ingestID is the workflow id of the ingest of a batch.
func ingestID(in workflows.IngestInput, batch string) string {
	return fmt.Sprintf("ingest:%s:%s@%s", in.Dataset, batch, in.Lake)
}
