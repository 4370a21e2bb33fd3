package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/ingest"
)

// backfill is one backfill of a schedule.
type backfill struct {
	*found
	overlap enums.ScheduleOverlapPolicy
	runs    []runSchedule
	// late is how many dates are left out because they are not due yet.
	late int
}

// maxBackfill is the most runs of a backfill. Temporal takes about a thousand that wait.
const maxBackfill = 1000

// newBackfill returns the backfill of the dates from first to last, both included.
func newBackfill(ctx context.Context, c client.Client, f *found, first, last ingest.Date, overlap string) (*backfill, error) {
	if !f.Dated() {
		return nil, fmt.Errorf("schedule %s has no dates to make up for, since its inputs have no placeholder such as {date}; "+
			"%q runs it once", f.Name, cli.Typed("starter schedule trigger"))
	}
	usual := enums.SCHEDULE_OVERLAP_POLICY_ALLOW_ALL
	if f.ordered() {
		usual = enums.SCHEDULE_OVERLAP_POLICY_BUFFER_ALL
	}
	b := &backfill{found: f}
	var err error
	if b.overlap, err = overlapOf(overlap, usual); err != nil {
		return nil, err
	}
	location, err := ingest.DateZone(f.spec.DateZone)
	if err != nil {
		return nil, err
	}
	offset, err := ingest.ParseDateOffset(f.spec.DateOffset)
	if err != nil {
		return nil, err
	}
	from, to := offset.Ticks(first, last, location)
	now := time.Now()
	for from.Before(to) {
		r, err := c.WorkflowService().ListScheduleMatchingTimes(ctx, &workflowservice.ListScheduleMatchingTimesRequest{
			Namespace: namespace(), ScheduleId: f.id, StartTime: timestamppb.New(from), EndTime: timestamppb.New(to),
		})
		if err != nil {
			return nil, fmt.Errorf("list the times of schedule %s: %w", f.Name, err)
		}
		times := r.GetStartTime()
		for _, t := range times {
			due := t.AsTime()
			date, err := f.dateOf(due)
			if err != nil {
				return nil, err
			}
			if date.Compare(first) < 0 || date.Compare(last) > 0 {
				continue
			}
			if due.After(now) {
				b.late++
				continue
			}
			b.runs = append(b.runs, runSchedule{Tick: f.tick(due), WorkflowID: f.runID(due), Status: statusWaiting})
		}
		if len(times) < maxBackfill {
			break
		}
		from = times[len(times)-1].AsTime().Add(time.Second)
	}
	switch {
	case len(b.runs) > maxBackfill:
		return nil, fmt.Errorf("the schedule was due %s times for these dates, and one backfill has at most %s; take fewer dates at a time",
			cli.Count(int64(len(b.runs))), cli.Count(maxBackfill))
	case len(b.runs) == 0 && b.late > 0:
		return nil, fmt.Errorf("schedule %s is due for these dates only later", f.Name)
	case len(b.runs) == 0:
		return nil, fmt.Errorf("schedule %s (%s) is due for none of these dates", f.Name, strings.Join(cronLines(f.schedule.Spec), "; "))
	}
	return b, nil
}

// start asks Temporal for the runs. Each keeps in RunID the last run of its id from before.
func (b *backfill) start(ctx context.Context, c client.Client) error {
	for i := range b.runs {
		d, err := c.DescribeWorkflowExecution(ctx, b.runs[i].WorkflowID, "")
		var missing *serviceerror.NotFound
		switch {
		case err == nil:
			b.runs[i].RunID = d.GetWorkflowExecutionInfo().GetExecution().GetRunId()
		case !errors.As(err, &missing):
			return fmt.Errorf("describe %s: %w", b.runs[i].WorkflowID, err)
		}
	}
	// One range, so that the schedule's own times between the first and the last are taken. Whether
	// its start belongs to it depends on Temporal's version.
	return b.handle.Backfill(ctx, client.ScheduleBackfillOptions{Backfill: []client.ScheduleBackfill{{
		Start: b.runs[0].Due.Add(-time.Second), End: b.runs[len(b.runs)-1].Due, Overlap: b.overlap,
	}}})
}

const (
	// lookPause is the time between two looks at runs that go on.
	lookPause = time.Second
	// looked is how many runs are looked at, at a time.
	looked = 32
	// patience is how long a schedule that runs nothing may take to start what was asked for.
	patience = 15 * time.Second
)

// wait waits until all runs have ended, and calls each with every one that has.
func (b *backfill) wait(ctx context.Context, c client.Client, each func(*runSchedule)) error {
	before := make([]string, len(b.runs))
	open := make([]int, len(b.runs))
	for i := range b.runs {
		before[i], open[i] = b.runs[i].RunID, i
	}
	idleSince := time.Now()
	for {
		some := open[:min(looked, len(open))]
		ended := map[int]bool{}
		for _, i := range some {
			r := b.runs[i]
			r.RunID = ""
			if err := r.look(ctx, c, b.Kind); err != nil {
				return err
			}
			if r.Status == statusUnknown || r.RunID == before[i] && r.Status != statusRunning {
				continue // it has not begun
			}
			idleSince = time.Now()
			if b.runs[i] = r; r.Status != statusRunning {
				ended[i] = true
				each(&b.runs[i])
			}
		}
		open = slices.DeleteFunc(open, func(i int) bool { return ended[i] })
		if len(open) == 0 {
			return nil
		}
		if len(ended) == 0 && time.Since(idleSince) > patience {
			f, err := findSchedule(ctx, c, b.Lake, b.Name)
			if err != nil {
				return err
			}
			if len(f.info.RunningWorkflows) == 0 {
				for _, i := range open {
					b.runs[i].Status, b.runs[i].RunID = "left out", ""
					b.runs[i].Error = "another run went on"
					each(&b.runs[i])
				}
				return nil
			}
			idleSince = time.Now()
		}
		if len(ended) > 0 {
			continue
		}
		// What was looked at goes behind the others.
		open = append(slices.Clone(open[len(some):]), open[:len(some)]...)
		select {
		case <-ctx.Done():
			return fmt.Errorf("stopped watching; the backfill continues. To see it: %s",
				cli.Typed("starter schedule show --lake "+cli.ShellWord(b.Lake)+" "+b.Name))
		case <-time.After(lookPause):
		}
	}
}

// failed returns how many runs are not done.
func (b *backfill) failed() (n int) {
	for i := range b.runs {
		if b.runs[i].Status != statusDone {
			n++
		}
	}
	return n
}

// print prints what a backfill will run.
func (b *backfill) print(w io.Writer) {
	for i := range b.runs {
		r := &b.runs[i]
		cli.Fprintf(w, "%s  due %s\n", r.Batch, r.Due.In(b.zone()).Format(scheduleTimeFormat))
	}
}
