// Package workflows defines the two durable workflows: IngestWorkflow takes a batch from raw
// objects to its record, and PublishWorkflow makes finished batches a published version. Workers
// run them; starter, schedules and people start them.
//
// Workflow code only orders activities. It uses no I/O, clock, randomness or environment, so that
// any later build can replay a history. Payloads are object keys, counts and checksums, never rows.
// The input of a workflow is one plain JSON object, so that a person can start it from Temporal's
// UI.
package workflows

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/lake/ingest"
)

// checkQueue returns an error if the workflow was started on the queue of another lake, or of the
// same lake spelled differently. Its activities would wait on queues that no worker polls.
func checkQueue(ctx workflow.Context, lake string) error {
	if queue := workflow.GetInfo(ctx).TaskQueueName; queue != activities.TaskQueue(lake, activities.PoolControl) {
		return temporal.NewNonRetryableApplicationError(
			fmt.Sprintf("lake %q does not belong to task queue %q; name the lake exactly as the queue does after %s@",
				lake, queue, activities.PoolControl), activities.ErrLake, nil)
	}
	return nil
}

// heartbeatTimeout is how long the step of a dead worker stays idle before another worker gets it.
// Activities heartbeat every two to ten seconds.
const heartbeatTimeout = 25 * time.Second

// steps schedules the activities of one workflow. All of them have to end before the deadline;
// until then they are retried, however often they fail for a reason that a person or time may mend.
// There is no limit for one attempt: activities heartbeat, and the time that many of them need
// grows with the input.
type steps struct {
	lake string
	// until is the ingest. If it is zero, each step has the time limit for itself.
	until time.Time
	limit time.Duration
	// background is set if no ingest waits for the steps. Long steps then run in
	// activities.PoolBackground, and only small ones in the pools control and publish.
	background bool
	// details are shared by the copies.
	details *details
}

// newSteps returns the steps of a workflow that has a ingest. After a reset each step has that
// time for itself, since the reset workflow keeps the start time of the one that failed.
func newSteps(ctx workflow.Context, lake, deadline string) (steps, error) {
	limit, err := ingest.ParseDeadline(deadline)
	if err != nil {
		return steps{}, temporal.NewNonRetryableApplicationError(err.Error(), activities.ErrInput, nil)
	}
	s := steps{lake: lake, limit: limit, details: &details{}}
	// The test environment of the SDK has no id of the original run.
	if info := workflow.GetInfo(ctx); cmp.Or(info.OriginalRunID, info.WorkflowExecution.RunID) == info.WorkflowExecution.RunID {
		s.until = info.WorkflowStartTime.Add(limit)
	}
	return s, nil
}

// inBackground returns steps for which no ingest waits.
func (s steps) inBackground() steps {
	s.background = true
	return s
}

// tidyLimit is how long steps are retried that only tidy up.
const tidyLimit = time.Hour

// each returns steps that have limit for each step.
func (s steps) each(limit time.Duration) steps {
	s.until, s.limit = time.Time{}, limit
	return s
}

// left returns how long the next step may take.
func (s steps) left(ctx workflow.Context) time.Duration {
	if s.until.IsZero() {
		return s.limit
	}
	return s.until.Sub(workflow.Now(ctx))
}

// attempts is the limit of attempts; 0 is none. The test environment of the SDK takes that for ten,
// so the tests have another.
var attempts int32

// execute runs an activity once and returns its error. With deaths it fails at the first heartbeat
// timeout.
func (s steps) execute(ctx workflow.Context, pool string, deaths bool, result, activity any, args ...any) error {
	left := s.left(ctx)
	if left <= 0 {
		return s.missed("a step could begin", nil)
	}
	policy := &temporal.RetryPolicy{
		InitialInterval: time.Second, MaximumInterval: time.Minute, MaximumAttempts: attempts,
		NonRetryableErrorTypes: slices.Clip(activities.FinalErrors),
	}
	if deaths {
		policy.NonRetryableErrorTypes = append(policy.NonRetryableErrorTypes, heartbeatLost)
	}
	if s.background && (pool == activities.PoolWrite || pool == activities.PoolIndex) {
		pool = activities.PoolBackground
	}
	summary, ended := s.details.begin(ctx, activity)
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              activities.TaskQueue(s.lake, pool),
		ScheduleToCloseTimeout: left,
		HeartbeatTimeout:       heartbeatTimeout,
		WaitForCancellation:    true,
		RetryPolicy:            policy,
		Summary:                summary,
	}), activity, args...).Get(ctx, result)
	ended(err)
	var failed *temporal.ActivityError
	var app *temporal.ApplicationError
	switch {
	case errors.As(err, &failed) && gaveUp(failed):
		return s.missed(fmt.Sprintf("it could %s, in the pool %s", summary, pool), err)
	case errors.As(err, &app):
		return app // whose message is the reason, and the first line that Temporal's pages show
	}
	return err
}

// gaveUp reports whether an activity was retried until its ingest.
func gaveUp(err *temporal.ActivityError) bool {
	var app *temporal.ApplicationError
	var timeout *temporal.TimeoutError
	switch {
	case err.RetryState() == enums.RETRY_STATE_TIMEOUT:
		return true
	case errors.As(err, &timeout):
		return timeout.TimeoutType() == enums.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE ||
			timeout.TimeoutType() == enums.TIMEOUT_TYPE_SCHEDULE_TO_START
	case err.RetryState() == enums.RETRY_STATE_UNSPECIFIED: // in the test environment of the SDK
		return errors.As(err, &app) && !app.NonRetryable() && !slices.Contains(activities.FinalErrors, app.Type())
	}
	return false
}

// missed returns the error of a workflow whose deadline passed before something happened.
func (s steps) missed(before string, err error) error {
	text := fmt.Sprintf("the deadline of %s passed before %s", s.limit, before)
	if reason := message(err); reason != "" {
		text += "; the last attempt: " + reason
	}
	return temporal.NewNonRetryableApplicationError(text, activities.ErrDeadline, nil)
}

// message returns the text of an activity's error without Temporal's wrapping, "" for the timeout
// of an activity that never failed.
func message(err error) string {
	var app *temporal.ApplicationError
	var timeout *temporal.TimeoutError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &app):
		return app.Message()
	case errors.As(err, &timeout) && timeout.TimeoutType() == enums.TIMEOUT_TYPE_HEARTBEAT:
		return "its worker died or lost Temporal"
	case errors.As(err, &timeout) && timeout.TimeoutType() == enums.TIMEOUT_TYPE_SCHEDULE_TO_START:
		return "no worker took it"
	case errors.As(err, &timeout):
		return ""
	}
	return err.Error()
}

// run runs an activity that reads and writes a few small objects, and sets result, unless it is
// nil.
func (s steps) run(ctx workflow.Context, pool string, result, activity any, args ...any) error {
	return s.execute(ctx, pool, false, result, activity, args...)
}

// heartbeatLost is the name that Temporal's retry policies have for heartbeat timeouts. If it is
// among the types that are not retried, a timeout reaches the workflow at once.
const heartbeatLost = "TemporalTimeout:Heartbeat"

// countedDeaths limits how many heartbeat timeouts of one step the workflow itself handles.
// Temporal retries the step after further ones, so that they add nothing to the history. Another
// number changes the commands of workflows that run.
const countedDeaths = 10

// move runs an activity that moves data, and sets result, unless it is nil. The activity gets args
// and, as its last argument, how many workers died while they ran it: the number of heartbeat
// timeouts. After a timeout it is scheduled again.
func (s steps) move(ctx workflow.Context, pool string, result, activity any, args ...any) error {
	if s.background {
		pool = activities.PoolBackground
	}
	for deaths := 0; ; deaths++ {
		counted := deaths < countedDeaths
		err := s.execute(ctx, pool, counted, result, activity, append(slices.Clip(args), deaths)...)
		if !counted || !workerDied(err) {
			return err
		}
	}
}

// workerDied reports whether err is the heartbeat timeout of an activity.
func workerDied(err error) bool {
	var timeout *temporal.TimeoutError
	return errors.As(err, &timeout) && timeout.TimeoutType() == enums.TIMEOUT_TYPE_HEARTBEAT
}

// cleanUp removes the staging of a run. If that fails, the staging only wastes space until it is
// swept, so cleanUp logs the error.
func (s steps) cleanUp(ctx workflow.Context, run string) {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	if err := s.each(tidyLimit).run(ctx, activities.PoolControl, nil, (*activities.Control)(nil).CleanUp, s.lake, run); err != nil {
		workflow.GetLogger(ctx).Warn("staging was not removed", "run", run, "error", err)
	}
}

// cleanUpBeside is cleanUp beside what the workflow does meanwhile, until it calls the function
// that cleanUpBeside returns.
func (s steps) cleanUpBeside(ctx workflow.Context, run string) (wait func()) {
	ended := workflow.NewChannel(ctx)
	workflow.Go(ctx, func(ctx workflow.Context) {
		s.cleanUp(ctx, run)
		ended.Close()
	})
	return func() {
		ctx, _ := workflow.NewDisconnectedContext(ctx)
		ended.Receive(ctx, nil)
	}
}

// fanOut runs step for every index from first to n-1, at most window at a time, at least one. It
// stops early if the workflow should continue as new. It returns the first index that is not done;
// all indexes below it are done. A failed step cancels the steps in flight, and its error is
// returned when all have ended.
func fanOut(ctx workflow.Context, window, first, n int, step func(ctx workflow.Context, i int) error) (next int, err error) {
	ctx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	next = first
	running := 0
	var failed error
	for {
		for failed == nil && next < n && running < max(window, 1) && !workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			i := next
			next++
			running++
			workflow.Go(ctx, func(ctx workflow.Context) {
				err := step(at(ctx, i, n), i)
				running--
				if err != nil && failed == nil {
					failed = err
					cancel()
				}
			})
		}
		if running == 0 {
			return next, failed
		}
		// A cancelled workflow still waits for the steps that it started.
		before := running
		wait, _ := workflow.NewDisconnectedContext(ctx)
		if err := workflow.Await(wait, func() bool { return running < before }); err != nil {
			return next, err
		}
		if failed == nil && ctx.Err() != nil {
			failed = ctx.Err()
		}
	}
}
