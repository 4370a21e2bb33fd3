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
	"errors"
	"fmt"
	"slices"
	"time"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/activities"
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

// short returns a context for activities that read and write a few small objects.
func short(ctx workflow.Context, lake, pool string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           activities.TaskQueue(lake, pool),
		StartToCloseTimeout: 10 * time.Minute,
		HeartbeatTimeout:    heartbeatTimeout,
		RetryPolicy:         retryPolicy(20),
	})
}

// long returns a context for activities that move data. They may take a day; since they heartbeat,
// a dead worker is noticed soon nevertheless.
func long(ctx workflow.Context, lake, pool string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           activities.TaskQueue(lake, pool),
		StartToCloseTimeout: 24 * time.Hour,
		HeartbeatTimeout:    heartbeatTimeout,
		WaitForCancellation: true,
		RetryPolicy:         retryPolicy(10),
	})
}

// heartbeatLost is the name that Temporal's retry policies have for heartbeat timeouts. If it is
// among the types that are not retried, a timeout reaches the workflow at once.
const heartbeatLost = "TemporalTimeout:Heartbeat"

// countedDeaths limits how many heartbeat timeouts of one step the workflow itself handles. Temporal
// retries the step after further ones, so that they add nothing to the history.
const countedDeaths = 10

// execute runs an activity that moves data, with the options of ctx, and sets result, unless it is
// nil. The activity gets args and, as its last argument, how many workers died while they ran it:
// the number of heartbeat timeouts. After a timeout it is scheduled again.
func execute(ctx workflow.Context, result, activity any, args ...any) error {
	for deaths := 0; ; deaths++ {
		opts := workflow.GetActivityOptions(ctx)
		if deaths < countedDeaths {
			policy := *opts.RetryPolicy
			policy.NonRetryableErrorTypes = append(slices.Clip(policy.NonRetryableErrorTypes), heartbeatLost)
			opts.RetryPolicy = &policy
		}
		err := workflow.ExecuteActivity(
			workflow.WithActivityOptions(ctx, opts), activity, append(slices.Clip(args), deaths)...,
		).Get(ctx, result)
		// In older histories the workflow failed with the timeout.
		if !workerDied(err) || deaths >= countedDeaths ||
			workflow.GetVersion(ctx, "count-deaths", workflow.DefaultVersion, 1) == workflow.DefaultVersion {
			return err
		}
	}
}

// workerDied reports whether err is the heartbeat timeout of an activity.
func workerDied(err error) bool {
	var timeout *temporal.TimeoutError
	return errors.As(err, &timeout) && timeout.TimeoutType() == enums.TIMEOUT_TYPE_HEARTBEAT
}

func retryPolicy(attempts int32) *temporal.RetryPolicy {
	return &temporal.RetryPolicy{
		InitialInterval: time.Second, MaximumInterval: time.Minute, MaximumAttempts: attempts,
		NonRetryableErrorTypes: activities.FinalErrors,
	}
}

// window is how many activities of one workflow may be in flight. It is far below Temporal's limit
// of 2,000 pending activities and keeps dozens of workers busy.
const window = 64

// fanOut runs step for every index from first to n-1, at most window at a time. It stops early if
// the workflow should continue as new. It returns the first index that is not done; all indexes
// below it are done. A failed step cancels the steps in flight, and its error is returned when all
// have ended.
func fanOut(ctx workflow.Context, first, n int, step func(ctx workflow.Context, i int) error) (next int, err error) {
	ctx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	next = first
	running := 0
	var failed error
	for {
		for failed == nil && next < n && running < window && !workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			i := next
			next++
			running++
			workflow.Go(ctx, func(ctx workflow.Context) {
				err := step(ctx, i)
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
