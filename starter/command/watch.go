package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/workflows"
)

func watchCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "watch WORKFLOW_ID",
		Short: "Show the progress of a started ingest, publish or other workflow until it ends",
		Long: `Watch follows a running ingest, publish, compact, gc, rebuild, verify or export and prints
its result. It does not matter whether starter, Temporal's UI or a schedule started it.
"starter ingest" and "starter schedule show" print workflow ids, and Temporal's UI lists
them.

Ctrl-C ends only the watching; the workflow continues. The exit code is 0 if the
workflow succeeds and 1 if it fails.`,
		Example: `  starter watch 'ingest:crawl:2026-11-20@s3://b/lake'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("no workflow given; %q prints the id of the one it starts", cli.Typed("starter ingest"))
			}
			return cli.Args(cobra.ExactArgs(1))(cmd, args)
		},
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
			return g.watch(cmd, c, run, d.GetWorkflowExecutionInfo().GetType().GetName())
		},
	}
}

// watch shows the progress of a workflow of a type until it ends, and prints its result.
func (g *global) watch(cmd *cobra.Command, c client.Client, run client.WorkflowRun, kind string) error {
	switch kind {
	case "IngestWorkflow":
		return watchIngest(cmd, g, c, run, false)
	case "IngestManyWorkflow":
		return watchMany(cmd, g, c, run, false)
	case "PublishWorkflow":
		return watchPublish(cmd, g, c, run)
	case "GCWorkflow":
		return watchMaintenance(cmd, g, c, run, nil, printGarbage)
	case "CompactWorkflow":
		return watchMaintenance(cmd, g, c, run, compactionProgress, printCompaction)
	case "PostgresExportWorkflow":
		return watchMaintenance(cmd, g, c, run, postgresProgress, printPostgresExport)
	case "CrawlSeedWorkflow":
		return watchMaintenance(cmd, g, c, run, seedProgress, printSeed)
	case "VisitedIngestWorkflow":
		return watchMaintenance(cmd, g, c, run, ingestProgress, printVisited)
	case "FrontierMigrateWorkflow":
		if err := watchMaintenance(cmd, g, c, run, migrateProgress, printMigrate); err != nil {
			return err
		}
		return differs(cmd.Context(), run)
	case "RebuildWorkflow":
		return watchMaintenance(cmd, g, c, run, nil, printRebuilt, teller(c, run))
	case "VerifyWorkflow":
		return watchMaintenance(cmd, g, c, run, nil, printVerified)
	default:
		return fmt.Errorf("%s is a %s; only workflows of urlake can be watched", run.GetID(), kind)
	}
}

// watchIngest shows the progress of an ingest until it ends, and prints its result.
func watchIngest(cmd *cobra.Command, g *global, c client.Client, run client.WorkflowRun, cancel bool) error {
	var res workflows.IngestResult
	bar := newIngestBar(cmd.ErrOrStderr(), g.json)
	waits := newWaitLog(cmd.ErrOrStderr(), bar.bar, c, run)
	err := await(cmd, run, &res, cancel, c, bar.bar, func(ctx context.Context) {
		publisher := ""
		if p, ok := progress(ctx, c, run); ok {
			bar.update(p, time.Now())
			publisher = p.Waiting
		}
		waits.update(ctx, publisher)
	})
	bar.finish(err)
	if err != nil {
		return err
	}
	if g.json {
		return printJSON(cmd.OutOrStdout(), res)
	}
	printIngest(cmd.OutOrStdout(), &res, duration(cmd.Context(), c, run))
	return nil
}

// pollInterval is how often a watcher asks Temporal for progress that a bar on a terminal shows.
// Otherwise it asks every slowPollInterval: each question is work for Temporal and a worker.
const (
	pollInterval     = 500 * time.Millisecond
	slowPollInterval = 2 * time.Second
)

// await waits until a workflow ends, stores its result in result, and meanwhile calls update at the
// intervals of the bar. If the context of cmd ends first, the workflow continues, or is cancelled
// if cancel is set, and the error says which.
func await(
	cmd *cobra.Command, run client.WorkflowRun, result any, cancel bool, c client.Client, b *bar, update func(context.Context),
) error {
	ctx := cmd.Context()
	done := make(chan error, 1)
	go func() { done <- outlast(ctx, pollInterval, func() error { return run.Get(ctx, result) }) }()
	timer := time.NewTicker(b.interval())
	defer timer.Stop()
	for {
		select {
		case err := <-done:
			if ctx.Err() == nil {
				return rootCause(run.GetID(), err)
			}
		case <-timer.C:
			if update != nil {
				update(ctx)
			}
			continue
		case <-ctx.Done():
		}
		if cancel {
			ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			err := c.CancelWorkflow(ctx, run.GetID(), run.GetRunID())
			stop()
			if err != nil {
				return fmt.Errorf("cancel %s: %w", run.GetID(), err)
			}
			return fmt.Errorf("stopped; the cancellation of %s is requested", run.GetID())
		}
		return fmt.Errorf("stopped watching; %s continues. To watch it again: %s '%s'. "+
			"To cancel it: temporal workflow cancel -w '%s'", run.GetID(), cli.Typed("starter watch"), run.GetID(), run.GetID())
	}
}

// outlast repeats a request to Temporal for as long as Temporal does not answer. The SDK repeats
// one for about a minute only.
func outlast(ctx context.Context, pause time.Duration, request func() error) error {
	for {
		err := request()
		var unavailable *serviceerror.Unavailable
		var late *serviceerror.DeadlineExceeded
		away := errors.Is(err, context.DeadlineExceeded) || errors.As(err, &unavailable) || errors.As(err, &late)
		if !away || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// rootCause reduces the error of a workflow to what went wrong, without Temporal's wrapping.
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
		var detail string
		if cancelled.HasDetails() && cancelled.Details(&detail) == nil {
			return fmt.Errorf("%s was cancelled: %s", id, detail)
		}
		return fmt.Errorf("%s was cancelled", id)
	case errors.As(err, &terminated):
		return fmt.Errorf("%s was terminated", id)
	case errors.As(err, &timeout):
		return fmt.Errorf("%s timed out: %w", id, timeout)
	case errors.As(err, &missing):
		return fmt.Errorf("no workflow %s: %s", id, missing.Message)
	}
	return err
}

// duration returns how long a finished workflow ran, or 0 if Temporal does not know.
func duration(ctx context.Context, c client.Client, run client.WorkflowRun) time.Duration {
	d, err := c.DescribeWorkflowExecution(ctx, run.GetID(), run.GetRunID())
	if err != nil || d.GetWorkflowExecutionInfo().GetCloseTime() == nil {
		return 0
	}
	info := d.GetWorkflowExecutionInfo()
	return info.GetCloseTime().AsTime().Sub(info.GetStartTime().AsTime())
}

// maxPollerAge is how long ago a live worker can have polled last. A poll lasts one minute, and
// Temporal lists the pollers of workers that have stopped for some minutes more.
const maxPollerAge = 70 * time.Second

const (
	// startGrace is how long work may lie in a queue until it is asked whether any worker is there,
	// and how long a worker that was just started may take until it polls.
	startGrace = 3 * time.Second
	// startPause is the time between two looks at the queues.
	startPause = 200 * time.Millisecond
)

// idlePools returns the pools of a lake that no worker polls.
func idlePools(ctx context.Context, c client.Client, lakeURL string) (idle []string, err error) {
	for _, pool := range activities.Pools {
		kind := enums.TASK_QUEUE_TYPE_ACTIVITY
		d, err := c.DescribeTaskQueue(ctx, activities.TaskQueue(lakeURL, pool), kind)
		if err != nil {
			return nil, fmt.Errorf("list the workers of pool %s: %w", pool, err)
		}
		if !slices.ContainsFunc(d.GetPollers(), func(p *taskqueue.PollerInfo) bool {
			return time.Since(p.GetLastAccessTime().AsTime()) < maxPollerAge
		}) {
			idle = append(idle, pool)
		}
	}
	return idle, nil
}

// idleText says that no worker polls some pools of a lake, and how to start one.
func idleText(lakeURL string, idle []string) string {
	start := cli.Typed("worker --lake " + cli.ShellWord(lakeURL))
	if len(idle) < len(activities.Pools) {
		start += " --pools " + strings.Join(idle, ",")
	}
	return fmt.Sprintf("No worker polls %s of this lake, so the work waits. To start one: %s", strings.Join(idle, ", "), start)
}

// warnIdlePools names the pools that no worker polls. A workflow that needs one of them waits
// without an error. Workers that were just started have startGrace to appear.
func warnIdlePools(ctx context.Context, c client.Client, lakeURL string, w io.Writer) error {
	for began := time.Now(); ; {
		idle, err := idlePools(ctx, c, lakeURL)
		if err != nil || len(idle) == 0 {
			return err
		}
		if time.Since(began) >= startGrace {
			cli.Fprintf(w, "%s\n", idleText(lakeURL, idle))
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(startPause):
		}
	}
}
