package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest/many"
	"github.com/urlake/urlake/workflows"
)

// startMany starts an ingest of many datasets. The workflow id follows from the inputs, so that the
// same inputs are ingested at most once at a time.
func startMany(ctx context.Context, c client.Client, in workflows.IngestManyInput) (client.WorkflowRun, error) {
	id, err := manyID(in)
	if err != nil {
		return nil, err
	}
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                                       id,
		TaskQueue:                                activities.TaskQueue(in.Lake, activities.PoolControl),
		WorkflowIDConflictPolicy:                 enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		StaticSummary:                            fmt.Sprintf("ingest datasets from %s into %s", in.DatasetsFrom, in.Lake),
	}, workflows.IngestManyWorkflow, in)
	var already *serviceerror.WorkflowExecutionAlreadyStarted
	if errors.As(err, &already) {
		return nil, fmt.Errorf("these inputs are being ingested already. To watch it: %s '%s'", cli.Typed("starter watch"), id)
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", id, err)
	}
	return run, nil
}

// manyID returns the workflow id of an ingest of many datasets.
func manyID(in workflows.IngestManyInput) (string, error) {
	name, err := manyName(in)
	return name + "@" + in.Lake, err
}

// manyName names an ingest of many datasets by its inputs.
func manyName(in workflows.IngestManyInput) (string, error) {
	data, err := json.Marshal([]any{in.Inputs, in.Manifests, in.Include, in.Exclude, in.Batch})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("ingest-%s:%s", in.DatasetsFrom, lake.Digest(data)[:12]), nil
}

// watchMany shows the progress of an ingest of many datasets until it ends, and prints its result.
// It returns an error if datasets failed.
func watchMany(cmd *cobra.Command, g *global, c client.Client, run client.WorkflowRun, cancel bool) error {
	var res workflows.IngestManyResult
	bar := newBar(cmd.ErrOrStderr(), g.json)
	var last manySnapshot
	waits := newWaitLog(cmd.ErrOrStderr(), bar, c, run)
	err := await(cmd, run, &res, cancel, c, bar, func(ctx context.Context) {
		publisher := ""
		if p, ok := manyProgress(ctx, c, run); ok {
			p.keepUp(&last)
			last = p
			bar.show(p.fraction(), p.Stage, time.Now(), p.text)
			publisher = p.Waiting
		}
		waits.update(ctx, publisher)
	})
	bar.finish(err)
	if err != nil {
		return err
	}
	lines, err := manyLines(cmd.Context(), res.LakeURL, res.Run)
	if err != nil {
		return fmt.Errorf("the ingest has ended, but its report cannot be read: %w", err)
	}
	if g.json {
		err = printJSON(cmd.OutOrStdout(), struct {
			workflows.IngestManyResult
			Failures any            `json:"failures,omitempty"`
			Lists    []many.Outcome `json:"lists"`
		}{IngestManyResult: res, Lists: lines})
	} else {
		err = reportMany(cmd.OutOrStdout(), &res, lines, duration(cmd.Context(), c, run))
	}
	switch {
	case err != nil:
	case res.Failed > 0:
		err = fmt.Errorf("%s failed", plural(int64(res.Failed), "dataset"))
	case res.DamagedBatches > 0:
		err = fmt.Errorf("%s damaged and not published", plural(int64(res.DamagedBatches), "batch"))
	}
	return err
}

// manyLines reads the reports of a run.
func manyLines(ctx context.Context, lakeURL, run string) ([]many.Outcome, error) {
	store, err := blob.Open(ctx, lakeURL)
	if err != nil {
		return nil, err
	}
	return many.ReadReports(ctx, store, many.ReportPrefix(run))
}

// manySnapshot is the progress of an ingest of many datasets, including what its running activities
// have done so far.
type manySnapshot struct {
	workflows.IngestManyProgress
}

func manyProgress(ctx context.Context, c client.Client, run client.WorkflowRun) (manySnapshot, bool) {
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	var p manySnapshot
	v, err := c.QueryWorkflow(ctx, run.GetID(), "", workflows.ProgressQuery)
	if err != nil || v.Get(&p.IngestManyProgress) != nil {
		return p, false // no worker runs yet, for example
	}
	d, err := c.DescribeWorkflowExecution(ctx, run.GetID(), "")
	if err != nil {
		return p, true
	}
	for _, a := range d.PendingActivities {
		var part many.Progress
		if details := a.GetHeartbeatDetails(); details != nil && a.GetActivityType().GetName() == "IngestGroup" &&
			converter.GetDefaultDataConverter().FromPayloads(details, &part) == nil {
			p.Done += part.Done
			p.Failed += part.Failed
			p.BytesDone += part.BytesRead
			p.Records += part.Records
		}
	}
	for _, child := range d.PendingChildren { // large lists
		if part, ok := progress(ctx, c, c.GetWorkflow(ctx, child.GetWorkflowId(), "")); ok {
			p.BytesDone += part.BytesDone
			p.Records += part.Records
		}
	}
	return p, true
}

// keepUp raises the counts of p to those of last, an earlier snapshot of the same ingest; see
// snapshot.keepUp.
func (p *manySnapshot) keepUp(last *manySnapshot) {
	p.Done = max(p.Done, last.Done)
	p.Failed = max(p.Failed, last.Failed)
	p.BytesDone = max(p.BytesDone, last.BytesDone)
	p.Records = max(p.Records, last.Records)
	if p.Datasets > 0 {
		p.Done = min(p.Done, p.Datasets)
	}
	if p.BytesTotal > 0 {
		p.BytesDone = min(p.BytesDone, p.BytesTotal)
	}
}

// text describes the progress in one line.
func (p *manySnapshot) text(number func(int64) string) string {
	switch p.Stage {
	case workflows.StagePlan:
		return "planning"
	case workflows.StagePublish:
		return fmt.Sprintf("publishing %s", plural(int64(p.Done-p.Failed), "dataset"))
	}
	s := fmt.Sprintf("ingested %s of %s, %s of %s", number(int64(p.Done)), plural(int64(p.Datasets), "dataset"),
		size(p.BytesDone), size(p.BytesTotal))
	if elapsed := time.Since(p.StageStarted).Seconds(); p.Records > 0 && elapsed >= 1 {
		s += fmt.Sprintf(", %s records/s", number(int64(float64(p.Records)/elapsed)))
	}
	if p.Failed > 0 {
		s += fmt.Sprintf(", %s failed", number(int64(p.Failed)))
	}
	return s
}

// fraction returns how much of the ingest is done, from 0 to 1.
func (p *manySnapshot) fraction() float64 {
	const ingest = 1 / (1 + workflows.PublishShare/2)
	switch p.Stage {
	case workflows.StageIngest:
		done := 0.0
		if p.BytesTotal > 0 {
			done = min(1, float64(p.BytesDone)/float64(p.BytesTotal))
		}
		if p.Datasets > 0 {
			done = (done + min(1, float64(p.Done)/float64(p.Datasets))) / 2
		}
		return ingest * done
	case workflows.StagePublish:
		return ingest
	case workflows.StageDone:
		return 1
	}
	return 0
}

// reportMany prints the result of an ingest of many datasets for people: a line for each dataset
// that was taken up.
func reportMany(w io.Writer, r *workflows.IngestManyResult, lines []many.Outcome, took time.Duration) error {
	var rows, failed [][]string
	for _, o := range lines {
		if o.Error != "" {
			failed = append(failed, []string{o.Dataset, o.Error})
			continue
		}
		note := ""
		switch {
		case o.Superseded:
			note = "a later ingest finished first"
		case o.Unchanged:
			note = "same content"
		}
		var rejected int64
		for _, n := range o.Rejected {
			rejected += n
		}
		rows = append(rows, []string{o.Dataset, fmt.Sprint(o.DatasetID), count(o.Records), count(o.Rows), count(o.Merged),
			count(rejected), count(o.Domains), note})
	}
	if len(rows) > 0 {
		if err := table(w, "dataset >id >records >rows >merged >rejected >domains note", rows); err != nil {
			return err
		}
	}
	for _, o := range lines {
		for _, u := range o.Unread {
			cli.Fprintf(w, "unread: %s: %s: %s\n", o.Dataset, u.Name, u.Reason)
		}
		if more := o.UnreadCount - int64(len(o.Unread)); more > 0 {
			cli.Fprintf(w, "unread: %s: and %s\n", o.Dataset, plural(more, "further file"))
		}
	}
	for _, f := range failed {
		cli.Fprintf(w, "failed: %s: %s\n", f[0], f[1])
	}
	for _, d := range r.Damaged {
		cli.Fprintf(w, "not published: %s\n", d)
	}
	for _, n := range r.Notes {
		cli.Fprintf(w, "note: %s\n", n)
	}
	cli.Fprintf(w, "%s: %s ingested, %s unchanged, %s failed\n", plural(int64(r.Datasets), "dataset"),
		count(int64(r.Ingested)), count(int64(r.Unchanged)), count(int64(r.Failed)))
	after := ""
	if took > 0 {
		after = fmt.Sprintf(" after %s", took.Round(100*time.Millisecond))
		if took >= 5*time.Second && r.Bytes >= minRatedBytes {
			after += fmt.Sprintf(", %s records a second", count(int64(float64(r.Records)/took.Seconds())))
		}
	}
	switch {
	case r.Version != "":
		cli.Fprintf(w, "%s records, %s rows in version %s%s\n", count(r.Records), count(r.Rows), r.Version, after)
	case r.Ingested > 0:
		cli.Fprintf(w, "Finished%s; the next publish adds the batches to a version\n", after)
	default:
		cli.Fprintf(w, "Nothing to publish%s\n", after)
	}
	return nil
}
