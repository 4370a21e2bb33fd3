package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/urlake/urlake/internal/cli"
)

// description is a schedule as JSON shows it.
type description struct {
	Name string `json:"name"`
	ID   string `json:"schedule_id"`
	Kind string `json:"kind"`
	// Dataset is that of an ingest of one dataset. Input is the input of the workflow.
	Dataset        string          `json:"dataset,omitempty"`
	Input          json.RawMessage `json:"input,omitempty"`
	Cron           []string        `json:"cron"`
	TimeZone       string          `json:"time_zone"`
	Overlap        string          `json:"overlap"`
	CatchUp        string          `json:"catch_up"`
	PauseOnFailure bool            `json:"pause_on_failure,omitempty"`
	Paused         bool            `json:"paused,omitempty"`
	Note           string          `json:"note,omitempty"`
	// Next are the times at which it is due next, Recent the last runs, and those that go on, the
	// newest first. A list of schedules has one of each at most.
	Next   []Tick        `json:"next"`
	Recent []runSchedule `json:"recent"`
	// Missed is how many runs were left out because Temporal was away for longer than CatchUp,
	// Skipped how many because another run went on.
	Missed  int `json:"missed,omitempty"`
	Skipped int `json:"skipped,omitempty"`
}

// Tick is a time at which a schedule is due.
type Tick struct {
	Due   time.Time `json:"due"`
	Batch string    `json:"batch,omitempty"`
	// Inputs are those of that date.
	Inputs []string `json:"inputs,omitempty"`
}

// runSchedule is a run of a schedule.
type runSchedule struct {
	Tick
	WorkflowID string    `json:"workflow_id"`
	RunID      string    `json:"run_id,omitempty"`
	Started    time.Time `json:"started,omitzero"`
	Ended      time.Time `json:"ended,omitzero"`
	// Status is waiting, running, done, failed, cancelled, terminated, timed out, or unknown for a
	// run that Temporal no longer keeps.
	Status string `json:"status"`
	// Rows and Version are those of an ingest that is done.
	Rows    *int64 `json:"rows,omitempty"`
	Version string `json:"version,omitempty"`
	Error   string `json:"error,omitempty"`
}

// tick returns what is ingested at a time at which the schedule is due.
func (f *found) tick(due time.Time) Tick {
	t := Tick{Due: due.UTC()}
	if spec, ok := f.at(due); ok {
		t.Batch, t.Inputs = spec.Batch, append(spec.Inputs, spec.Manifests...)
	}
	return t
}

// describe describes a schedule with at most limit runs, and as many times at which it is due.
func (f *found) describe(ctx context.Context, c client.Client, limit int) (*description, error) {
	d := &description{Name: f.Name, ID: f.id, Kind: f.Kind, Input: f.input, TimeZone: "UTC", Next: []Tick{}, Recent: []runSchedule{}}
	if !json.Valid(d.Input) {
		d.Input = nil
	}
	if f.spec != nil {
		d.Dataset = f.spec.Dataset
	}
	if s := f.schedule.Spec; s != nil {
		d.Cron, d.TimeZone = cronLines(s), cmp.Or(s.TimeZoneName, "UTC")
	}
	if p := f.schedule.Policy; p != nil {
		d.Overlap, d.CatchUp, d.PauseOnFailure = policyOf(p.Overlap).name, long(p.CatchupWindow), p.PauseOnFailure
	}
	if s := f.schedule.State; s != nil {
		d.Paused, d.Note = s.Paused, s.Note
	}
	d.Missed, d.Skipped = f.info.NumActionsMissedCatchupWindow, f.info.NumActionsSkippedOverlap
	for _, due := range f.info.NextActionTimes[:min(limit, len(f.info.NextActionTimes))] {
		d.Next = append(d.Next, f.tick(due))
	}
	recent := f.info.RecentActions
	for i := len(recent) - 1; i >= 0 && len(d.Recent) < limit; i-- {
		if recent[i].StartWorkflowResult == nil {
			continue
		}
		r := runSchedule{Tick: f.tick(recent[i].ScheduleTime), WorkflowID: recent[i].StartWorkflowResult.WorkflowID,
			RunID: recent[i].StartWorkflowResult.FirstExecutionRunID, Started: recent[i].ActualTime.UTC()}
		if err := r.look(ctx, c, f.Kind); err != nil {
			return nil, err
		}
		d.Recent = append(d.Recent, r)
	}
	return d, nil
}

// long formats a duration of whole days as days.
func long(d time.Duration) string {
	if d > 0 && d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
	return strings.TrimSuffix(strings.TrimSuffix(d.String(), "0s"), "0m")
}

// Status of runs.
const (
	statusWaiting = "waiting"
	statusRunning = "running"
	statusDone    = "done"
	statusUnknown = "unknown"
)

var statuses = map[enums.WorkflowExecutionStatus]string{
	enums.WORKFLOW_EXECUTION_STATUS_RUNNING:    statusRunning,
	enums.WORKFLOW_EXECUTION_STATUS_COMPLETED:  statusDone,
	enums.WORKFLOW_EXECUTION_STATUS_FAILED:     "failed",
	enums.WORKFLOW_EXECUTION_STATUS_CANCELED:   "cancelled",
	enums.WORKFLOW_EXECUTION_STATUS_TERMINATED: "terminated",
	enums.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:  "timed out",
}

// look asks Temporal for the state of a run. Without a RunID it is the last of the id.
func (r *runSchedule) look(ctx context.Context, c client.Client, kind string) error {
	d, err := c.DescribeWorkflowExecution(ctx, r.WorkflowID, r.RunID)
	if err == nil && d.GetWorkflowExecutionInfo().GetStatus() == enums.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW {
		d, err = c.DescribeWorkflowExecution(ctx, r.WorkflowID, "") // what goes on has the same id
	}
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) {
		r.Status = statusUnknown
		return nil
	}
	if err != nil {
		return fmt.Errorf("describe %s: %w", r.WorkflowID, err)
	}
	info := d.GetWorkflowExecutionInfo()
	r.RunID = info.GetExecution().GetRunId()
	r.Status = cmp.Or(statuses[info.GetStatus()], statusUnknown)
	if start := info.GetExecutionTime(); start != nil && r.Started.IsZero() {
		r.Started = start.AsTime()
	}
	if payload, ok := info.GetMemo().GetFields()["batch"]; ok {
		var batch string // which counts: the schedule may have been changed since
		if converter.GetDefaultDataConverter().FromPayload(payload, &batch) == nil {
			r.Batch = batch
		}
	}
	if r.Status == statusRunning {
		return nil
	}
	if end := info.GetCloseTime(); end != nil {
		r.Ended = end.AsTime()
	}
	run := c.GetWorkflow(ctx, r.WorkflowID, r.RunID)
	if r.Status == statusDone {
		if kind == kindIngest {
			var res struct { // of an ingest of one dataset, and of many
				Rows    int64  `json:"rows"`
				Version string `json:"version"`
			}
			if run.Get(ctx, &res) == nil {
				r.Rows, r.Version = &res.Rows, res.Version
			}
		}
		return nil
	}
	var app *temporal.ApplicationError
	if err := run.Get(ctx, nil); errors.As(err, &app) {
		r.Error = app.Message()
	}
	return nil
}

// scheduleTimeFormat shows times in the zone of their schedule.
const scheduleTimeFormat = "2006-01-02 15:04 MST"

// printList prints the schedules of a lake for people.
func printList(w io.Writer, all []*found, descriptions []*description) error {
	var rows [][]string
	for i, d := range descriptions {
		var next string
		switch {
		case d.Paused:
			next = "paused"
			if d.Note != "" {
				next += ": " + d.Note
			}
		case len(d.Next) > 0:
			next = d.Next[0].Due.In(all[i].zone()).Format(scheduleTimeFormat)
		default:
			next = "never"
		}
		last := ""
		if len(d.Recent) > 0 {
			r := d.Recent[0]
			last = r.Due.In(all[i].zone()).Format(scheduleTimeFormat) + " " + r.Status
		}
		rows = append(rows, []string{d.Name, all[i].String(), strings.Join(d.Cron, "; ") + " " + d.TimeZone, next, last})
	}
	return cli.Table(w, "NAME RUNS WHEN NEXT LAST", rows)
}

// print prints a schedule for people.
func (f *found) print(w io.Writer, d *description) {
	line := func(name, format string, args ...any) {
		cli.Fprintf(w, "%-11s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("Schedule", "%s", d.Name)
	line("Runs", "%s", f.what())
	line("When", "%s in %s", strings.Join(d.Cron, "; "), d.TimeZone)
	if f.Dated() {
		date := "that on which it is due"
		if f.spec.DateOffset != "" {
			date += ", with offset " + f.spec.DateOffset
		}
		line("Date", "%s, in %s", date, cmp.Or(f.spec.DateZone, "UTC"))
	}
	if p := f.schedule.Policy; p != nil {
		line("Overlap", "%s: %s", d.Overlap, policyOf(p.Overlap).does)
	}
	line("Catch-up", "%s%s", d.CatchUp, map[bool]string{true: "; it is paused when a run fails"}[d.PauseOnFailure])
	switch {
	case d.Paused && d.Note != "":
		line("State", "paused: %s", d.Note)
	case d.Paused:
		line("State", "paused")
	case d.Note != "":
		line("State", "active: %s", d.Note)
	default:
		line("State", "active")
	}
	if d.Missed > 0 {
		line("Missed", "%s, since Temporal was away for longer than %s", cli.Plural(int64(d.Missed), "run"), d.CatchUp)
	}
	if d.Skipped > 0 {
		line("Left out", "%s, since another went on", cli.Plural(int64(d.Skipped), "run"))
	}
	name := "Next"
	for _, t := range d.Next {
		line(name, "%s%s", t.Due.In(f.zone()).Format(scheduleTimeFormat), batchText(t))
		name = ""
	}
	name = "Last"
	for _, r := range d.Recent {
		line(name, "%s%s  %s", r.Due.In(f.zone()).Format(scheduleTimeFormat), batchText(r.Tick), r.outcome())
		line("", "  %s", r.WorkflowID)
		name = ""
	}
	if len(d.Recent) == 0 {
		line("Last", "it has not run yet")
	}
}

// what says what a schedule runs, with the inputs of an ingest.
func (f *found) what() string {
	if f.spec == nil {
		return f.Kind
	}
	text := f.String()
	switch {
	case f.spec.Batch != "":
		text += ", batch " + f.spec.Batch
	case f.Dated():
		text += ", a batch for each date"
	}
	return text + ", from " + strings.Join(append(f.spec.Inputs, f.spec.Manifests...), " ")
}

func batchText(t Tick) string {
	if t.Batch == "" {
		return ""
	}
	return "  batch " + t.Batch
}

// outcome says for people what became of a run.
func (r *runSchedule) outcome() string {
	switch {
	case r.Error != "":
		return r.Status + ": " + r.Error
	case r.Version != "" && r.Rows != nil:
		return fmt.Sprintf("%s, %s in version %s", r.Status, cli.Plural(*r.Rows, "row"), r.Version)
	case r.Status == statusUnknown:
		return "Temporal no longer knows it"
	}
	return r.Status
}
