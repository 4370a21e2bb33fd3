package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/internal/cli"
)

// wait is something that a workflow waits for.
type wait struct {
	// Step is the name of the activity, Steps the number of activities that wait for the same.
	Step  string    `json:"step"`
	Steps int       `json:"steps"`
	Since time.Time `json:"since"`
	// Reason is the last failure. It is empty if the step waits for a worker.
	Reason  string    `json:"reason,omitempty"`
	Attempt int32     `json:"attempt,omitempty"`
	Next    time.Time `json:"next,omitzero"`
}

// minQueued is how long a step has to be in its queue until it is said to wait for a worker.
const minQueued = 10 * time.Second

// waits returns what the activities of a workflow wait for, by reason: those that failed and will
// be repeated, and, if none runs, those that no worker has taken.
func waits(pending []*workflow.PendingActivityInfo, now time.Time) []wait {
	var all []wait
	add := func(w wait) {
		at := slices.IndexFunc(all, func(o wait) bool { return o.Reason == w.Reason && (w.Reason != "" || o.Step == w.Step) })
		if at < 0 {
			all = append(all, w)
			return
		}
		o := &all[at]
		o.Steps++
		if w.Since.Before(o.Since) {
			o.Since = w.Since
		}
		if w.Attempt > o.Attempt {
			o.Attempt = w.Attempt
		}
		if !w.Next.IsZero() && (o.Next.IsZero() || w.Next.Before(o.Next)) {
			o.Next = w.Next
		}
	}
	running := slices.ContainsFunc(pending, func(a *workflow.PendingActivityInfo) bool {
		return a.GetState() == enums.PENDING_ACTIVITY_STATE_STARTED && a.GetLastFailure() == nil
	})
	for _, a := range pending {
		w := wait{Step: a.GetActivityType().GetName(), Steps: 1, Attempt: a.GetAttempt()}
		scheduled := a.GetScheduledTime().AsTime()
		switch {
		case a.GetLastFailure() != nil:
			w.Reason = cmp.Or(a.GetLastFailure().GetMessage(), "it failed without a message")
			w.Since = failingSince(a, now)
			if next := a.GetNextAttemptScheduleTime(); next != nil && next.AsTime().After(now) {
				w.Next = next.AsTime()
			}
		case !running && a.GetState() == enums.PENDING_ACTIVITY_STATE_SCHEDULED && now.Sub(scheduled) >= minQueued:
			w.Since, w.Attempt = scheduled, 0
		default:
			continue
		}
		add(w)
	}
	slices.SortFunc(all, func(a, b wait) int { return a.Since.Compare(b.Since) })
	return all
}

// failingSince estimates when an activity first failed: Temporal tells the number of attempts, and
// when the last one ended. The pauses between them double from a second up to a minute.
func failingSince(a *workflow.PendingActivityInfo, now time.Time) time.Time {
	since := now
	if last := a.GetLastAttemptCompleteTime(); last != nil {
		since = last.AsTime()
	}
	// Attempt is the next one if the activity is between two.
	pause := time.Second
	for n := a.GetAttempt() - 2; n > 0; n-- {
		since = since.Add(-pause)
		if pause *= 2; pause > time.Minute {
			since = since.Add(-time.Duration(n-1) * time.Minute)
			break
		}
	}
	if scheduled := a.GetScheduledTime(); scheduled != nil && since.Before(scheduled.AsTime()) {
		since = scheduled.AsTime()
	}
	return since
}

// clock formats a time of day, with the date if it is not today.
func clock(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format("15:04")
	}
	return t.Format("2006-01-02 15:04")
}

// text is one sentence about a wait.
func (w wait) text(now time.Time) string {
	var s strings.Builder
	fmt.Fprintf(&s, "waiting since %s ", clock(w.Since, now))
	if w.Reason == "" {
		fmt.Fprintf(&s, "for a worker to take %s", w.Step)
	} else {
		fmt.Fprintf(&s, "to repeat %s", w.Step)
	}
	if w.Steps > 1 {
		fmt.Fprintf(&s, " and %s like it", plural(int64(w.Steps-1), "step"))
	}
	if w.Reason == "" {
		return s.String()
	}
	fmt.Fprintf(&s, ": %s; attempt %d", w.Reason, w.Attempt)
	if next := w.Next.Sub(now); !w.Next.IsZero() && next > 0 {
		fmt.Fprintf(&s, ", next in %s", max(next, time.Second).Round(time.Second))
	}
	return s.String()
}

// A waitLog prints what a workflow waits for: each reason when it is new, then after pauses that
// double from firstRepeat to lastRepeat while it stays.
type waitLog struct {
	w       io.Writer
	bar     *bar // cleared before a line is printed; may be nil
	c       client.Client
	run     client.WorkflowRun
	printed map[string]repeat // by reason
}

// repeat is when a line is printed again.
type repeat struct {
	next  time.Time
	pause time.Duration
}

const (
	firstRepeat = time.Minute
	lastRepeat  = time.Hour
)

func newWaitLog(w io.Writer, b *bar, c client.Client, run client.WorkflowRun) *waitLog {
	return &waitLog{w: w, bar: b, c: c, run: run, printed: map[string]repeat{}}
}

// update prints what is new since the last call. Publisher says what went wrong with the publish
// that the workflow waits for, if it does.
func (l *waitLog) update(ctx context.Context, publisher string) {
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	now := time.Now()
	if publisher != "" {
		l.print("publisher "+publisher, now, "waiting for a publish; the last one failed: "+publisher)
	}
	d, err := l.c.DescribeWorkflowExecution(ctx, l.run.GetID(), "")
	if err != nil {
		l.print("Temporal", now, "waiting for Temporal: "+err.Error())
		return
	}
	pending := d.GetPendingActivities()
	for _, child := range d.GetPendingChildren() { // a few: large lists
		of, err := l.c.DescribeWorkflowExecution(ctx, child.GetWorkflowId(), child.GetRunId())
		if err == nil {
			pending = append(pending, of.GetPendingActivities()...)
		}
	}
	found := waits(pending, now)
	if _, lakeURL, ok := strings.Cut(d.GetExecutionConfig().GetTaskQueue().GetName(), "@"); ok && untaken(d, now, startGrace) {
		idle, err := idlePools(ctx, l.c, lakeURL)
		if err == nil && len(idle) > 0 {
			l.print("workers "+strings.Join(idle, " "), now, idleText(lakeURL, idle))
			// That says more than the name of the step.
			found = slices.DeleteFunc(found, func(w wait) bool { return w.Reason == "" })
		}
	}
	for _, w := range found {
		l.print(w.Step+" "+w.Reason, now, w.text(now))
	}
}

// untaken reports whether no worker has taken the next step of a workflow for some time: a step of
// the workflow itself, or, if none runs, an activity that has not failed before.
func untaken(d *workflowservice.DescribeWorkflowExecutionResponse, now time.Time, since time.Duration) bool {
	if t := d.GetPendingWorkflowTask(); t != nil {
		scheduled := t.GetScheduledTime()
		return t.GetState() == enums.PENDING_WORKFLOW_TASK_STATE_SCHEDULED && scheduled != nil &&
			now.Sub(scheduled.AsTime()) >= since
	}
	waiting := false
	for _, a := range d.GetPendingActivities() {
		if a.GetState() != enums.PENDING_ACTIVITY_STATE_SCHEDULED {
			return false
		}
		scheduled := a.GetScheduledTime()
		waiting = waiting || a.GetLastFailure() == nil && scheduled != nil && now.Sub(scheduled.AsTime()) >= since
	}
	return waiting
}

// print prints a line unless it was printed for the same reason a short while ago.
func (l *waitLog) print(reason string, now time.Time, line string) {
	r := l.printed[reason]
	if now.Before(r.next) {
		return
	}
	r.pause = min(lastRepeat, max(2*r.pause, firstRepeat))
	r.next = now.Add(r.pause)
	l.printed[reason] = r
	l.bar.clear()
	cli.Fprintf(l.w, "%s\n", line)
}

// running is a workflow of a lake that has not ended.
type running struct {
	WorkflowID string    `json:"workflow_id"`
	Started    time.Time `json:"started"`
	Waits      []wait    `json:"waits,omitempty"`
	// Untaken means that no worker takes the workflow's next step.
	Untaken bool `json:"untaken,omitempty"`
}

// maxRunning is the most running workflows that status lists.
const maxRunning = 100

// findRunning lists workflows of a lake that have not ended, the oldest first, with what they wait
// for, and returns how many there are.
func findRunning(ctx context.Context, c client.Client, lakeURL string) (list []running, total int64, err error) {
	query := fmt.Sprintf("TaskQueue = %q AND ExecutionStatus = 'Running'", activities.TaskQueue(lakeURL, activities.PoolControl))
	count, err := c.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Query: query})
	if err != nil {
		return nil, 0, fmt.Errorf("count the running workflows: %w", err)
	}
	found, err := c.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{PageSize: maxRunning, Query: query})
	if err != nil {
		return nil, 0, fmt.Errorf("list the running workflows: %w", err)
	}
	for _, e := range found.GetExecutions() {
		r := running{WorkflowID: e.GetExecution().GetWorkflowId(), Started: e.GetStartTime().AsTime()}
		d, err := c.DescribeWorkflowExecution(ctx, r.WorkflowID, e.GetExecution().GetRunId())
		if err != nil {
			return nil, 0, fmt.Errorf("describe %s: %w", r.WorkflowID, err)
		}
		r.Waits, r.Untaken = waits(d.GetPendingActivities(), time.Now()), untaken(d, time.Now(), startGrace)
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b running) int { return a.Started.Compare(b.Started) })
	return list, count.GetCount(), nil
}

// printRunning prints how many workflows run, how many of these wait, and whether workers are
// there. With each, it prints each workflow and what it waits for.
func (s *lakeStatus) printRunning(out io.Writer, each bool) {
	if s.TemporalError != "" {
		// What follows is how gRPC says that nobody listens.
		reason, _, _ := strings.Cut(s.TemporalError, ": failed reaching server")
		cli.Fprintf(out, "Running     not known: %s\n", reason)
		return
	}
	waiting := int64(0)
	for _, r := range s.Running {
		if r.Untaken || len(r.Waits) > 0 {
			waiting++
		}
	}
	cli.Fprintf(out, "Running     %s", plural(s.RunningWorkflows, "workflow"))
	if waiting > 0 {
		cli.Fprintf(out, ", of which %s", count(waiting)+map[bool]string{true: " waits", false: " wait"}[waiting == 1])
	}
	cli.Fprintf(out, "\n")
	if len(s.IdlePools) > 0 {
		cli.Fprintf(out, "Workers     none for %s; to start one: %s\n", strings.Join(s.IdlePools, ", "),
			cli.Typed("worker --lake "+cli.ShellWord(s.Lake)))
	}
	if !each {
		return
	}
	now := time.Now()
	for _, r := range s.Running {
		cli.Fprintf(out, "            %s since %s\n", r.WorkflowID, clock(r.Started, now))
		for _, w := range r.Waits {
			cli.Fprintf(out, "              %s\n", w.text(now))
		}
	}
	if more := s.RunningWorkflows - int64(len(s.Running)); more > 0 {
		cli.Fprintf(out, "            and %d more\n", more)
	}
}
