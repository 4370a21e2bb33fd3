package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"golang.org/x/term"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/indexbuild/publish"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/workflows"
)

// quiet drops the Temporal client's own log: what a person has to know is printed.
var quiet = slog.New(slog.DiscardHandler)

type ingestFlags struct {
	spec      ingest.Spec
	noPublish bool
	wait      bool
	cancel    bool
}

func (f *ingestFlags) register(g *global, cmd *cobra.Command) {
	g.lakeFlag(cmd)
	fs := cmd.Flags()
	fs.StringVar(&f.spec.Dataset, "dataset", "", "`NAME` of the dataset; a new one is registered")
	fs.StringVar(&f.spec.Batch, "batch", "", "`NAME` of the batch, a date, say (default: a hash of the inputs' names, sizes and ETags)")
	fs.StringSliceVar(&f.spec.Include, "include", nil, "read only files that match a `GLOB`, by name or, with a slash, by path below the input; also takes names with . or _ in front that it spells out")
	fs.StringSliceVar(&f.spec.Exclude, "exclude", nil, "do not read what matches a `GLOB`, files or folders")
	fs.StringVar(&f.spec.Format, "format", "auto", "`FORMAT`: lines, csv, tsv, jsonl, json, cdx, cdxj, parquet, or auto: recognised by content (of a tar, its members')")
	fs.StringVar(&f.spec.URLColumn, "url-column", "", "the URL's `COLUMN` by name or 1-based number, or JSON member (default: recognised)")
	fs.StringVar(&f.spec.TSColumn, "ts-column", "", "the time's `COLUMN` or member (default: recognised)")
	fs.StringVar(&f.spec.TSFormat, "ts-format", "", "the time's `FORMAT` where it is none of those recognised: %d/%m/%Y %H:%M, or a layout of Go's")
	fs.StringVar(&f.spec.SizeField, "size-field", "", "the `COLUMN` or member to keep as size and to sum up by domain: bytes or tokens")
	fs.StringSliceVar(&f.spec.Extras, "extras", nil, "other `COLUMNS` to keep, by name; '*' keeps all")
	fs.BoolVar(&f.spec.KeepRaw, "keep-raw", false, "keep the raw URL, in column raw_url, where it differs from the canonical one")
	fs.IntVar(&f.spec.MaxLine, "max-line", 0, "longest record in `BYTES`; longer ones are rejects (default: 1 MiB)")
	fs.Float64Var(&f.spec.MaxRejectRate, "max-reject-rate", ingest.DefaultMaxRejectRate, "fail the batch when more than this `SHARE` of its records is rejected, 0 to 1")
	fs.StringSliceVar(&f.spec.StripParams, "strip-params", nil, "query `PARAMETERS` to strip: names or globs such as 'utm_*,gclid'")
	fs.StringVar(&f.spec.Title, "title", "", "`TITLE` of the dataset, for people")
	fs.StringVar(&f.spec.Source, "source", "", "`WHERE` the dataset comes from")
	fs.StringVar(&f.spec.Licence, "licence", "", "`LICENCE` of the dataset")
	fs.BoolVar(&f.noPublish, "no-publish", false, "end with the finished batch; a later publish takes it")
}

// input checks the flags and gives the workflow's input. Local paths become absolute: workers run in
// other folders.
func (f *ingestFlags) input(g *global, args []string) (workflows.IngestInput, error) {
	url, err := cli.LakeURL(g.lake)
	if err != nil {
		return workflows.IngestInput{}, err
	}
	in := workflows.IngestInput{Spec: f.spec, NoPublish: f.noPublish}
	in.Lake = url
	if in.MaxRejectRate == 0 {
		in.MaxRejectRate = ingest.NoRejects // in a Spec 0 is the default
	}
	if in.Dataset == "" {
		return in, cli.Usagef("which dataset? Give --dataset NAME")
	}
	if in.MaxRejectRate > 1 || f.spec.MaxRejectRate < 0 {
		return in, cli.Usagef("--max-reject-rate %v: want a share, 0 to 1", f.spec.MaxRejectRate)
	}
	if len(args) == 0 {
		return in, cli.Usagef("which input? Give a file, a glob, a folder, or s3://bucket/prefix/")
	}
	for _, a := range args {
		if !strings.Contains(a, "://") {
			if a, err = filepath.Abs(a); err != nil {
				return in, err
			}
		}
		in.Inputs = append(in.Inputs, a)
	}
	// What no worker could do is refused here, before anything is started.
	if err := in.Check(); err != nil {
		return in, &cli.UsageError{Err: err}
	}
	return in, nil
}

func ingestCommand(g *global) *cobra.Command {
	var f ingestFlags
	cmd := &cobra.Command{
		Use:   "ingest --lake URL --dataset NAME [flags] INPUT…",
		Short: "Ingest one batch of a dataset and publish it",
		Long: `Ingest starts a workflow that reads the inputs, makes every URL canonical, writes sorted Parquet and
its postings, and publishes a version that holds the batch.

An input is a file, a glob, a folder (all files below it but names that begin with . or _), s3://bucket/key,
s3://bucket/glob or s3://bucket/prefix/. Workers read it: a path has to be one of theirs. Format and columns are
recognised by content, and what was guessed is noted at the end; flags settle it.

Ingesting a batch again replaces it; with the same content it writes the same objects again, which mends damaged ones, changes
nothing else and says so. Without --batch a changed input is another batch, and adds to the dataset. Records that are
no URLs are counted and listed by place; too many of them fail the batch, and nothing is published.

Without --wait it prints the workflow's id and ends; "starter watch" follows it. With --wait it shows stage,
records, rate, time left and rejects on standard error while it runs, and at the end, on standard output, what was
read, kept, merged, rejected and written.`,
		Example: `  starter ingest --lake /data/lake --dataset seeds-2024 --wait seeds/*.csv.gz
  starter ingest --lake s3://b/lake --dataset crawl --batch 2026-11-20 s3://raw/crawl/2026-11-20/`,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := f.input(g, args)
			if err != nil {
				return err
			}
			c, err := connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			run, err := startIngest(cmd.Context(), c, in)
			if err != nil {
				return err
			}
			if err := warnIdlePools(cmd.Context(), c, in.Lake, cmd.ErrOrStderr()); err != nil {
				return err
			}
			if !f.wait {
				if g.json {
					return printJSON(cmd.OutOrStdout(), map[string]string{"workflow_id": run.GetID(), "run_id": run.GetRunID()})
				}
				fmt.Fprintf(cmd.OutOrStdout(), "Started %s\nWatch it:  starter watch '%s'\n", run.GetID(), run.GetID())
				return nil
			}
			return watchIngest(cmd, g, c, run, f.cancel)
		},
	}
	f.register(g, cmd)
	cmd.Flags().BoolVar(&f.wait, "wait", false, "stay until the end: show progress, print the result")
	cmd.Flags().BoolVar(&f.cancel, "cancel-on-interrupt", false, "with --wait: Ctrl-C cancels the ingest too")
	return cmd
}

func startIngest(ctx context.Context, c client.Client, in workflows.IngestInput) (client.WorkflowRun, error) {
	name := in.Batch
	if name == "" {
		var b [4]byte
		rand.Read(b[:])
		name = "run-" + hex.EncodeToString(b[:])
	}
	id := fmt.Sprintf("ingest:%s:%s@%s", in.Dataset, name, in.Lake)
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                                       id,
		TaskQueue:                                activities.TaskQueue(in.Lake, activities.PoolControl),
		WorkflowIDConflictPolicy:                 enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		StaticSummary:                            fmt.Sprintf("ingest %s into %s", in.Dataset, in.Lake),
	}, workflows.IngestWorkflow, in)
	var already *serviceerror.WorkflowExecutionAlreadyStarted
	if errors.As(err, &already) {
		return nil, fmt.Errorf("batch %s of %s is being ingested already; watch it: starter watch '%s'", in.Batch, in.Dataset, id)
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", id, err)
	}
	return run, nil
}

func watchCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "watch WORKFLOW_ID",
		Short: "Show the progress of a started ingest or publish until it ends",
		Long: `Watch follows a workflow that somebody started, here, in Temporal's UI or by a schedule, and prints its
result. Its id is what "starter ingest" printed, and stands in the UI. Ctrl-C ends the watching alone. The exit
code is the workflow's: 0 done, 1 failed.`,
		Example: `  starter watch 'ingest:crawl:2026-11-20@s3://b/lake'`,
		Args:    cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			run := c.GetWorkflow(cmd.Context(), args[0], "")
			d, err := c.DescribeWorkflowExecution(cmd.Context(), args[0], "")
			if err != nil {
				return rootCause(args[0], err)
			}
			switch kind := d.GetWorkflowExecutionInfo().GetType().GetName(); kind {
			case "IngestWorkflow":
				return watchIngest(cmd, g, c, run, false)
			case "PublishWorkflow":
				return watchPublish(cmd, g, c, run)
			default:
				return fmt.Errorf("%s is a %s, which is none of urlake's", args[0], kind)
			}
		},
	}
}

func publishCommand(g *global) *cobra.Command {
	var rebuild string
	cmd := &cobra.Command{
		Use:   "publish --lake URL",
		Short: "Publish every finished batch that is in no version yet",
		Long: `Publish makes a version that holds what the current one does and every finished batch that it does not, and
waits for it. An ingest does the same at its end unless it was told --no-publish. A finished batch whose record or postings are damaged is
left out and named; where the version has an earlier ingest of it, that stays.

With --rebuild the current version's index is read first, and what is damaged or missing of it is built again from what batches
have left, postings of batches from their Parquet. Nothing is written that is sound or would come out otherwise. The exit
status is 1 if something cannot be mended.`,
		Example: `  starter publish --lake s3://b/lake
  starter publish --lake s3://b/lake --rebuild
  starter publish --lake s3://b/lake --rebuild=0332092f8e9d03535bf33a9358df167a`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			url, err := cli.LakeURL(g.lake)
			if err != nil {
				return err
			}
			c, err := connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			run, err := activities.SignalPublisher(cmd.Context(), c, url, activities.PublishRequest{Rebuild: rebuild})
			if err != nil {
				return err
			}
			if err := warnIdlePools(cmd.Context(), c, url, cmd.ErrOrStderr()); err != nil {
				return err
			}
			return watchPublish(cmd, g, c, run)
		},
	}
	cmd.Flags().StringVar(&rebuild, "rebuild", "", "first rebuild damaged segments: all of them, or `SEGMENT` alone")
	cmd.Flags().Lookup("rebuild").NoOptDefVal = publish.RebuildAll
	g.lakeFlag(cmd)
	return cmd
}

// watchPublish waits for a publisher's end and prints its result.
func watchPublish(cmd *cobra.Command, g *global, c client.Client, run client.WorkflowRun) error {
	var res workflows.PublishResult
	if err := await(cmd, run, &res, false, c, newTroubles(cmd.ErrOrStderr(), nil, c, run).show); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	var unmended error
	if r := res.Rebuilt; r != nil && len(r.Unmended) > 0 {
		unmended = fmt.Errorf("%s cannot be mended", plural(int64(len(r.Unmended)), "object"))
	}
	if g.json {
		return errors.Join(printJSON(out, res), unmended)
	}
	if r := res.Rebuilt; r != nil {
		fmt.Fprintf(out, "Checked %s: %s written anew in %d, %s restored\n", plural(int64(r.Checked), "segment"),
			plural(int64(r.Files), "file"), len(r.Segments), plural(int64(r.Postings), "postings object"))
		for _, key := range r.Registries {
			fmt.Fprintf(out, "Restored from the version: %s\n", key)
		}
		for _, line := range r.Unmended {
			fmt.Fprintf(out, "Not mended: %s\n", line)
		}
	}
	for _, s := range res.Skipped {
		fmt.Fprintf(out, "Left out: batch %s of %s: %s\n", s.Batch, s.Dataset, s.Reason)
	}
	if more := res.SkippedBatches - len(res.Skipped); more > 0 {
		fmt.Fprintf(out, "Left out: %d more damaged batches\n", more)
	}
	switch {
	case res.Batches > 0:
		fmt.Fprintf(out, "Published %s with %s more\n", res.Version, plural(int64(res.Batches), "batch"))
	case res.Version == "" && res.SkippedBatches == 0:
		fmt.Fprintln(out, "Nothing to publish: no batch is finished")
	case res.Version == "":
		fmt.Fprintln(out, "Nothing to publish: no finished batch is sound")
	case res.SkippedBatches > 0:
		fmt.Fprintf(out, "Nothing new: %s holds every finished batch that is sound\n", res.Version)
	default:
		fmt.Fprintf(out, "Nothing new: %s holds every finished batch\n", res.Version)
	}
	return unmended
}

// troubles prints why steps are tried again, each reason once.
type troubles struct {
	w    io.Writer
	bar  *bar // to be cleared first, nil if there is none
	c    client.Client
	run  client.WorkflowRun
	told map[string]bool
}

func newTroubles(w io.Writer, b *bar, c client.Client, run client.WorkflowRun) *troubles {
	return &troubles{w: w, bar: b, c: c, run: run, told: map[string]bool{}}
}

func (t *troubles) show(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	d, err := t.c.DescribeWorkflowExecution(ctx, t.run.GetID(), "")
	if err != nil {
		return // the next look will tell
	}
	for _, a := range d.PendingActivities {
		why := a.GetLastFailure().GetMessage()
		if why == "" || t.told[why] {
			continue
		}
		t.told[why] = true
		t.bar.clear()
		fmt.Fprintf(t.w, "%s is tried again (attempt %d of %d): %s\n", a.GetActivityType().GetName(), a.GetAttempt(), a.GetMaximumAttempts(), why)
	}
}

// pollerAge is how long ago a living worker may have polled last: a poll lasts a minute, and Temporal
// lists those who left for some minutes more.
const pollerAge = 70 * time.Second

// warnIdlePools says which pools nobody polls: without them a workflow waits, however patient its watcher.
func warnIdlePools(ctx context.Context, c client.Client, lakeURL string, w io.Writer) error {
	var idle []string
	for _, pool := range activities.Pools {
		kind := enums.TASK_QUEUE_TYPE_ACTIVITY
		d, err := c.DescribeTaskQueue(ctx, activities.TaskQueue(lakeURL, pool), kind)
		if err != nil {
			return fmt.Errorf("ask Temporal who polls pool %s: %w", pool, err)
		}
		if !slices.ContainsFunc(d.GetPollers(), func(p *taskqueue.PollerInfo) bool {
			return time.Since(p.GetLastAccessTime().AsTime()) < pollerAge
		}) {
			idle = append(idle, pool)
		}
	}
	if len(idle) > 0 {
		fmt.Fprintf(w, "No worker polls %s of this lake: the work waits until one does. Start it: worker --lake %s --pools %s\n",
			strings.Join(idle, ", "), lakeURL, strings.Join(idle, ","))
	}
	return nil
}

// pollInterval is how often a watcher asks for progress.
const pollInterval = 500 * time.Millisecond

// await waits for a workflow's end and calls tick meanwhile. When the context ends first, the
// workflow goes on, or is cancelled if asked for.
func await(cmd *cobra.Command, run client.WorkflowRun, result any, cancel bool, c client.Client, tick func(context.Context)) error {
	ctx := cmd.Context()
	done := make(chan error, 1)
	go func() { done <- run.Get(ctx, result) }()
	timer := time.NewTicker(pollInterval)
	defer timer.Stop()
	for {
		select {
		case err := <-done:
			if ctx.Err() == nil {
				return rootCause(run.GetID(), err)
			}
		case <-timer.C:
			if tick != nil {
				tick(ctx)
			}
			continue
		case <-ctx.Done():
		}
		if cancel {
			ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer stop()
			if err := c.CancelWorkflow(ctx, run.GetID(), run.GetRunID()); err != nil {
				return fmt.Errorf("cancel %s: %w", run.GetID(), err)
			}
			return fmt.Errorf("stopped; %s was asked to cancel", run.GetID())
		}
		return fmt.Errorf("stopped watching; %s goes on. Watch it again: starter watch '%s'. Cancel it: temporal workflow cancel -w '%s'", run.GetID(), run.GetID(), run.GetID())
	}
}

// rootCause is what went wrong without Temporal's wrapping.
func rootCause(id string, err error) error {
	if err == nil {
		return nil
	}
	var app *temporal.ApplicationError
	var cancelled *temporal.CanceledError
	var timeout *temporal.TimeoutError
	var terminated *temporal.TerminatedError
	var missing *serviceerror.NotFound
	switch {
	case errors.As(err, &app):
		return errors.New(app.Message())
	case errors.As(err, &cancelled):
		return fmt.Errorf("%s was cancelled", id)
	case errors.As(err, &terminated):
		return fmt.Errorf("%s was terminated", id)
	case errors.As(err, &timeout):
		return fmt.Errorf("%s timed out: %v", id, timeout)
	case errors.As(err, &missing):
		return fmt.Errorf("no workflow %s: %s", id, missing.Message)
	}
	return err
}

// watchIngest shows an ingest's progress on a terminal and prints its result.
func watchIngest(cmd *cobra.Command, g *global, c client.Client, run client.WorkflowRun, cancel bool) error {
	var res workflows.IngestResult
	bar := newBar(cmd.ErrOrStderr(), g.json)
	trouble := newTroubles(cmd.ErrOrStderr(), bar, c, run)
	err := await(cmd, run, &res, cancel, c, func(ctx context.Context) {
		if p, ok := progress(ctx, c, run); ok {
			bar.show(p, time.Now())
		}
		trouble.show(ctx)
	})
	bar.finish()
	if err != nil {
		return err
	}
	if g.json {
		return printJSON(cmd.OutOrStdout(), res)
	}
	report(cmd.OutOrStdout(), &res, took(cmd.Context(), c, run))
	return nil
}

// took is how long a finished workflow ran, 0 if Temporal does not say.
func took(ctx context.Context, c client.Client, run client.WorkflowRun) time.Duration {
	d, err := c.DescribeWorkflowExecution(ctx, run.GetID(), run.GetRunID())
	if err != nil || d.GetWorkflowExecutionInfo().GetCloseTime() == nil {
		return 0
	}
	info := d.GetWorkflowExecutionInfo()
	return info.GetCloseTime().AsTime().Sub(info.GetStartTime().AsTime())
}

// snapshot is an ingest's progress with what its running steps have done so far.
type snapshot struct {
	workflows.IngestProgress
	rejected int64
}

// progress joins what the workflow knows, finished steps, with what the running activities last reported.
func progress(ctx context.Context, c client.Client, run client.WorkflowRun) (snapshot, bool) {
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	var p snapshot
	v, err := c.QueryWorkflow(ctx, run.GetID(), "", workflows.ProgressQuery)
	if err != nil || v.Get(&p.IngestProgress) != nil {
		return p, false // a worker that is not there yet answers no query
	}
	for _, n := range p.Rejected {
		p.rejected += n
	}
	d, err := c.DescribeWorkflowExecution(ctx, run.GetID(), "")
	if err != nil {
		return p, true
	}
	for _, a := range d.PendingActivities {
		var part ingest.Progress
		if a.GetHeartbeatDetails() == nil || converter.GetDefaultDataConverter().FromPayloads(a.GetHeartbeatDetails(), &part) != nil {
			continue
		}
		switch a.GetActivityType().GetName() {
		case "NormalizeSplit", "IngestSmall":
			p.BytesDone += part.BytesRead
			p.Records += part.Records
			p.Kept += part.Kept
			p.rejected += part.Rejected
		case "MergePartitions":
			p.Rows += part.Kept
		}
	}
	return p, true
}

// words say where an ingest is: stage, bytes, counts, rate, time left, rejects, as far as each is known. Number prints counts.
func (p *snapshot) words(number func(int64) string) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	switch p.Stage {
	case workflows.StagePlan:
		return "planning"
	case workflows.StageNormalize:
		if p.Records == 0 {
			add("reading %s in %s", size(p.BytesTotal), plural(int64(p.Objects), "object"))
			break
		}
		done, total := size(p.BytesDone), size(p.BytesTotal)
		if n, unit, _ := strings.Cut(done, " "); strings.HasSuffix(total, " "+unit) {
			done = n
		}
		add("reading %s/%s", done, total)
		add("%s records", number(p.Records))
	case workflows.StageWrite:
		if p.Rows == 0 {
			add("writing %s rows", number(p.Kept))
			break
		}
		add("writing %s of %s rows", number(p.Rows), number(p.Kept-p.Merged))
		if p.PartBytes > 0 {
			add("%s", size(p.PartBytes))
		}
	case workflows.StageRecord:
		return fmt.Sprintf("recording %s rows", number(p.Rows))
	case workflows.StagePublish:
		return fmt.Sprintf("publishing %s rows", number(p.Rows))
	}
	if p.PerSecond > 0 {
		add("%s/s", number(p.PerSecond))
	}
	if p.SecondsLeft > 0 {
		add("%s left", time.Duration(p.SecondsLeft)*time.Second)
	}
	if p.rejected > 0 {
		add("%s rejected", number(p.rejected))
	}
	return strings.Join(parts, ", ")
}

// share is how much of an ingest is done, 0 to 1: its stages weigh what they take of its time, so that it never
// runs backwards.
func (p *snapshot) share() float64 {
	const all = 1 + workflows.WriteShare + workflows.PublishShare
	ratio := func(done, total int64) float64 {
		if total <= 0 {
			return 0
		}
		return min(1, float64(done)/float64(total))
	}
	switch p.Stage {
	case workflows.StageNormalize:
		return ratio(p.BytesDone, p.BytesTotal) / all
	case workflows.StageWrite:
		return (1 + workflows.WriteShare*ratio(p.Rows+p.Merged, p.Kept)) / all
	case workflows.StageRecord, workflows.StagePublish:
		return (1 + workflows.WriteShare) / all
	case workflows.StageDone:
		return 1
	}
	return 0
}

// bar shows the progress of one ingest: on a terminal as one line that moves, elsewhere as a line at the beginning
// of every stage and one every now and then, for logs. A nil bar and one without either show nothing.
type bar struct {
	*progressbar.ProgressBar
	terminal *os.File
	plain    io.Writer
	stage    string
	told     time.Time
	done     int64 // bytes read and rows written when they last changed, at moved
	moved    time.Time
}

const (
	barSteps = 1000
	// barWidth is how many columns the bar itself takes where there is room.
	barWidth = 24
	// barRest is how many columns the percentage and the narrowest bar take; the words have the rest. In fewer than
	// wideTerminal columns they are put shortly.
	barRest, wideTerminal = 12, 112
	// plainInterval is how often a stage that lasts gives another line where there is no terminal.
	plainInterval = 10 * time.Second
)

func newBar(w io.Writer, json bool) *bar {
	f, ok := w.(*os.File)
	if json {
		return &bar{}
	}
	if !ok || !isatty.IsTerminal(f.Fd()) {
		return &bar{plain: w}
	}
	return &bar{terminal: f, ProgressBar: progressbar.NewOptions(barSteps,
		progressbar.OptionSetWriter(w), progressbar.OptionSetWidth(barWidth), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false))}
}

func (b *bar) show(p snapshot, now time.Time) {
	// Steps report now and then: a rate holds until the next report, and the time left runs down.
	if done := p.BytesDone + p.Rows; done != b.done || b.stage != p.Stage {
		b.done, b.moved = done, now
	}
	if p.Stage == workflows.StageNormalize && p.Records > 0 || p.Stage == workflows.StageWrite && p.Rows > 0 {
		p.Estimate(b.moved)
		if p.SecondsLeft > 0 {
			p.SecondsLeft = max(1, p.SecondsLeft-int64(now.Sub(b.moved).Seconds()))
		}
	}
	switch {
	case p.Stage == workflows.StageDone:
	case b.ProgressBar != nil:
		columns, _, err := term.GetSize(int(b.terminal.Fd()))
		if err != nil || columns <= 0 {
			columns = 80
		}
		number := count
		if columns < wideTerminal {
			number = short
		}
		words := p.words(number)
		b.Describe(words[:min(len(words), max(0, columns-barRest))])
		b.Set(max(1, int(barSteps*p.share())))
	case b.plain != nil && (b.stage != p.Stage || now.Sub(b.told) >= plainInterval):
		fmt.Fprintln(b.plain, p.words(count))
		b.told = now
	}
	b.stage = p.Stage
}

// clear makes room for another line.
func (b *bar) clear() {
	if b != nil && b.ProgressBar != nil {
		b.Clear()
	}
}

func (b *bar) finish() {
	if b.ProgressBar != nil {
		b.Finish()
	}
}

// leastRated is the size of the inputs from which on the end of an ingest has a rate: less is read in under a second.
const leastRated = 4 << 20

// report prints the end of an ingest for people.
func report(w io.Writer, r *workflows.IngestResult, took time.Duration) {
	fmt.Fprintf(w, "Dataset %s (id %d), batch %s\n", r.Dataset, r.DatasetID, r.Batch)
	fmt.Fprintf(w, "  read      %12s records, %s in %s\n", count(r.Records), size(r.Bytes), plural(int64(r.Objects), "object"))
	fmt.Fprintf(w, "  kept      %12s rows of %s\n", count(r.Rows), plural(r.Domains, "domain"))
	fmt.Fprintf(w, "  merged    %12s equal to a kept row\n", count(r.Merged))
	var rejected int64
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(r.Rejected)) {
		rejected += r.Rejected[reason]
		reasons = append(reasons, fmt.Sprintf("%s %s", reason, count(r.Rejected[reason])))
	}
	fmt.Fprintf(w, "  rejected  %12s", count(rejected))
	if rejected > 0 {
		fmt.Fprintf(w, " (%s); places in %s", strings.Join(reasons, ", "), r.RejectsKey)
	}
	fmt.Fprintln(w)
	for _, e := range r.Examples {
		fmt.Fprintf(w, "    %s\n", e)
	}
	fmt.Fprintf(w, "  written   %12s of Parquet, %.1f bytes a row\n", size(r.PartBytes), float64(r.PartBytes)/float64(max(1, r.Rows)))
	for _, n := range r.Notes {
		fmt.Fprintf(w, "  note: %s\n", n)
	}
	switch {
	case r.Superseded:
		fmt.Fprintln(w, "A later ingest of this batch finished first: its content stands.")
	case r.Unchanged:
		fmt.Fprintln(w, "The batch had this content already: nothing new; its objects were written again.")
	}
	after := ""
	if took > 0 {
		after = fmt.Sprintf(" after %s", took.Round(100*time.Millisecond))
		// Of less the rate says how long Temporal takes, or the wait for a worker, not urlake.
		if took >= 5*time.Second && r.Bytes >= leastRated {
			after += fmt.Sprintf(", %s records a second", count(int64(float64(r.Records)/took.Seconds())))
		}
	}
	if r.Version != "" {
		fmt.Fprintf(w, "In version %s%s\n", r.Version, after)
	} else {
		fmt.Fprintf(w, "Finished%s; in no version until the next publish\n", after)
	}
}
