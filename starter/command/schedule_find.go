package command

// A schedule is one of Temporal: what a person changes there, in the UI or with temporal, counts.
// It has a name, which is one in its lake, and the id NAME@LAKE. Runs that it starts have this id
// and the time at which they were due at its end. An ingest of inputs with a date in their names
// takes the date from that time (ingest.Date), so that late runs and backfills read what they
// would have read in time.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/ingest"
)

// Work is what a schedule runs.
type Work struct {
	// scheduleKind is the verb that does the same once: ingest, gc, rebuild, verify.
	Kind string
	// Lake is the lake's URL, Name the name of the schedule if the user gives none.
	Lake, Name string
	Workflow   any
	// Input points to the workflow's input.
	Input any

	// spec is that of an ingest, nil for other work.
	spec   *ingest.Spec
	hourly bool
}

// Ingest makes the work one that reads the inputs of spec. Placeholders in names make it an ingest
// of dates.
func (w *Work) Ingest(spec *ingest.Spec) {
	w.spec, w.hourly = spec, ingest.HasHours(names(spec)...)
}

// names returns all names of a spec that may have placeholders.
func names(s *ingest.Spec) []string {
	return slices.Concat(s.Inputs, s.Manifests, s.Include, s.Exclude, []string{s.Batch})
}

// hasPlaceholders reports whether names of a spec have placeholders for parts of a date.
func hasPlaceholders(s *ingest.Spec) bool { return slices.ContainsFunc(names(s), ingest.HasDate) }

// Dated reports whether each run is for the date at which it is due.
func (w *Work) Dated() bool { return w.spec != nil && w.spec.Date == ingest.ScheduledDate }

// ordered reports whether runs have to come one after the other: each looks at what the others have
// ingested.
func (w *Work) ordered() bool { return w.spec != nil && (w.spec.NewOnly || w.spec.Replace) }

// String says what is run.
func (w *Work) String() string {
	if w.spec == nil {
		return w.Kind
	}
	what := w.spec.Dataset
	if what == "" {
		what = "many datasets"
	}
	return w.Kind + " of " + what
}

// scheduleName is what names may be: they are part of ids, before the @ of the lake.
var scheduleName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,149}$`)

// scheduleID returns the id of the schedule with that name. A name may also be an id.
func scheduleID(lake, name string) (string, error) {
	name = strings.TrimSuffix(name, "@"+lake)
	if !scheduleName.MatchString(name) {
		return "", cli.Usagef("schedule %q: a name has 1 to 150 of A-Z a-z 0-9 . _ : -, the first a letter or digit", name)
	}
	return name + "@" + lake, nil
}

// create creates a schedule, or with overwrite replaces one; whether it is paused stays as it was.
func create(ctx context.Context, c client.Client, id string, w *Work, t *times, overwrite bool) (replaced bool, err error) {
	name := strings.TrimSuffix(id, "@"+w.Lake)
	spec, policy := t.spec(), t.policies(w)
	action := &client.ScheduleWorkflowAction{
		ID: id, Workflow: w.Workflow, Args: []any{reflect.ValueOf(w.Input).Elem().Interface()},
		TaskQueue:     activities.TaskQueue(w.Lake, activities.PoolControl),
		StaticSummary: fmt.Sprintf("%s into %s, by schedule %s", w, w.Lake, name),
		Memo:          map[string]any{"lake": w.Lake, "schedule": name},
	}
	if w.spec == nil {
		action.StaticSummary = fmt.Sprintf("%s of %s, by schedule %s", w.Kind, w.Lake, name)
	}
	_, err = c.ScheduleClient().Create(ctx, client.ScheduleOptions{
		ID: id, Spec: spec, Action: action,
		Overlap: policy.Overlap, CatchupWindow: policy.CatchupWindow, PauseOnFailure: policy.PauseOnFailure,
		Paused: t.paused, Memo: map[string]any{"lake": w.Lake, "kind": w.Kind},
	})
	if errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
		if !overwrite {
			return false, fmt.Errorf("schedule %s exists already; --overwrite changes it, --name NAME makes another", name)
		}
		replaced = true
		err = c.ScheduleClient().GetHandle(ctx, id).Update(ctx, client.ScheduleUpdateOptions{
			DoUpdate: func(u client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
				s := u.Description.Schedule
				s.Spec, s.Action, s.Policy = &spec, action, &policy
				if t.paused && s.State != nil {
					s.State.Paused = true
				}
				return &client.ScheduleUpdate{Schedule: &s}, nil
			},
		})
	}
	var invalid *serviceerror.InvalidArgument
	if errors.As(err, &invalid) {
		return false, cli.Usagef("Temporal rejects --cron %q with --time-zone %q: %s", strings.Join(t.cron, "; "), t.zone, invalid.Message)
	}
	if err != nil {
		return false, fmt.Errorf("schedule %s: %w", name, err)
	}
	return replaced, nil
}

// found is a schedule of a lake, as Temporal describes it.
type found struct {
	Work
	id       string
	handle   client.ScheduleHandle
	schedule client.Schedule
	info     client.ScheduleInfo
	input    json.RawMessage
}

// findSchedule reads a schedule.
func findSchedule(ctx context.Context, c client.Client, lake, name string) (*found, error) {
	id, err := scheduleID(lake, name)
	if err != nil {
		return nil, err
	}
	f := &found{id: id, handle: c.ScheduleClient().GetHandle(ctx, id)}
	d, err := describePatiently(ctx, f.handle)
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) {
		return nil, fmt.Errorf("this lake has no schedule %q; %q lists them", strings.TrimSuffix(id, "@"+lake),
			cli.Typed("starter schedule list --lake "+cli.ShellWord(lake)))
	}
	if err != nil {
		return nil, fmt.Errorf("schedule %s: %w", name, err)
	}
	f.schedule, f.info = d.Schedule, d.Info
	f.Lake, f.Name = lake, strings.TrimSuffix(id, "@"+lake)
	action, ok := d.Schedule.Action.(*client.ScheduleWorkflowAction)
	if !ok {
		return f, nil
	}
	kind, _ := action.Workflow.(string)
	f.Kind = kindOf(kind)
	if len(action.Args) > 0 {
		if payload, ok := action.Args[0].(*commonpb.Payload); ok {
			f.input = payload.GetData()
			f.readInput(payload)
		}
	}
	return f, nil
}

// describeLimit is how long Temporal may take to describe a schedule. While it waits for a run that
// it cancels (cancel-other), it answers only now and then.
const describeLimit = time.Minute

// describePatiently describes a schedule, and asks again if Temporal does not answer in time.
func describePatiently(ctx context.Context, handle client.ScheduleHandle) (*client.ScheduleDescription, error) {
	for began := time.Now(); ; {
		d, err := handle.Describe(ctx)
		var late *serviceerror.DeadlineExceeded
		timedOut := errors.Is(err, context.DeadlineExceeded) || errors.As(err, &late)
		if !timedOut || ctx.Err() != nil || time.Since(began) > describeLimit {
			return d, err
		}
	}
}

// readInput takes what is known of an ingest from its input.
func (f *found) readInput(payload *commonpb.Payload) {
	if f.Kind != kindIngest {
		return
	}
	var spec ingest.Spec
	if converter.GetDefaultDataConverter().FromPayload(payload, &spec) == nil {
		f.Ingest(&spec)
	}
}

// kindIngest is the Work.Kind of ingests.
const kindIngest = "ingest"

// scheduleKinds are what a schedule may run, by workflow.
var scheduleKinds = map[string]string{
	"IngestWorkflow": kindIngest, "IngestManyWorkflow": kindIngest,
	"GCWorkflow": "gc", "RebuildWorkflow": "rebuild", "VerifyWorkflow": "verify", "CompactWorkflow": "compact",
	"PostgresExportWorkflow": "postgres",
	"CrawlSeedWorkflow":      "seed",
	"VisitedIngestWorkflow":  "visits",
	"PublishWorkflow":        "publish",
}

// kindOf returns what a workflow does; of one that is not urlake's it is the name.
func kindOf(workflow string) string {
	if kind, ok := scheduleKinds[workflow]; ok {
		return kind
	}
	return workflow
}

// all returns the schedules of a lake by name. Temporal lists a new schedule some moments later.
func all(ctx context.Context, c client.Client, lake string) ([]*found, error) {
	list, err := c.ScheduleClient().List(ctx, client.ScheduleListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the schedules: %w", err)
	}
	var out []*found
	for list.HasNext() {
		entry, err := list.Next()
		if err != nil {
			return nil, fmt.Errorf("list the schedules: %w", err)
		}
		if name, of, ok := strings.Cut(entry.ID, "@"); !ok || of != lake || !scheduleName.MatchString(name) {
			continue
		}
		f, err := findSchedule(ctx, c, lake, entry.ID)
		if err != nil {
			if exists(ctx, c, entry.ID) {
				return nil, err
			}
			continue // it was deleted meanwhile
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b *found) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// exists reports whether there is a schedule. Unknown is yes.
func exists(ctx context.Context, c client.Client, id string) bool {
	_, err := c.ScheduleClient().GetHandle(ctx, id).Describe(ctx)
	var missing *serviceerror.NotFound
	return !errors.As(err, &missing)
}

// zone returns the zone of a schedule's times.
func (f *found) zone() *time.Location {
	if f.schedule.Spec != nil {
		if location, err := ingest.DateZone(f.schedule.Spec.TimeZoneName); err == nil {
			return location
		}
	}
	return time.UTC
}

// at returns the spec of an ingest that is due at a time; ok is false for other work.
func (f *found) at(due time.Time) (spec ingest.Spec, ok bool) {
	if !f.Dated() {
		return ingest.Spec{}, false
	}
	s := *f.spec
	s.Date = due.UTC().Format(time.RFC3339)
	out, err := s.OnDate()
	return out, err == nil
}

// dateOf returns the date of a run that is due at a time.
func (f *found) dateOf(due time.Time) (ingest.Date, error) {
	return ingest.DateOf(due.UTC().Format(time.RFC3339), f.spec.DateZone, f.spec.DateOffset)
}

// runID returns the id of the workflow that a schedule starts when it is due.
func (f *found) runID(due time.Time) string {
	base := f.id
	if action, ok := f.schedule.Action.(*client.ScheduleWorkflowAction); ok && action.ID != "" {
		base = action.ID
	}
	return base + "-" + due.UTC().Format(time.RFC3339)
}
