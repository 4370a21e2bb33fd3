// Package workflows defines the durable workflows: how a batch goes from raw objects to a
// finished record, and how finished batches become a published version.
//
// Workflow code only orders activities. It holds no I/O, clock, randomness or environment, so that
// a history can be replayed by any later build; payloads are object keys, counts and
// checksums, never rows. Every workflow's input is one plain JSON object, so that
// a person can start it from the Temporal UI.
package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/activities"
)

// checkQueue refuses a lake that is not the one of the queue the workflow was started on, be it spelled
// otherwise: its activities would wait on queues that nobody polls.
func checkQueue(ctx workflow.Context, lake string) error {
	if queue := workflow.GetInfo(ctx).TaskQueueName; queue != activities.TaskQueue(lake, activities.PoolControl) {
		return temporal.NewNonRetryableApplicationError(fmt.Sprintf("lake %q on task queue %q: want the lake exactly as the queue's name has it after %s@", lake, queue, activities.PoolControl), activities.ErrLake, nil)
	}
	return nil
}

// heartbeatTimeout is how long a dead worker's step lies idle before another worker takes it. Activities
// beat every two seconds.
const heartbeatTimeout = 20 * time.Second

// short is for steps that read and write a few small objects.
func short(ctx workflow.Context, lake, pool string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           activities.TaskQueue(lake, pool),
		StartToCloseTimeout: 10 * time.Minute,
		HeartbeatTimeout:    heartbeatTimeout,
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: time.Second, MaximumInterval: time.Minute, MaximumAttempts: 20, NonRetryableErrorTypes: activities.FinalErrors},
	})
}

// long is for steps that move data. They heartbeat, so a dead worker is noticed soon however
// long the step may take.
func long(ctx workflow.Context, lake, pool string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           activities.TaskQueue(lake, pool),
		StartToCloseTimeout: 24 * time.Hour,
		HeartbeatTimeout:    heartbeatTimeout,
		WaitForCancellation: true,
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: time.Second, MaximumInterval: time.Minute, MaximumAttempts: 10, NonRetryableErrorTypes: activities.FinalErrors},
	})
}

// window bounds how many activities of one workflow are under way: far below Temporal's 2,000 pending
// activities, and enough to keep dozens of workers busy.
const window = 64

// fanOut runs step for every index from first to n-1, at most window at a time, and stops early
// when the history should be continued as a new one: it returns the first index not
// done. All indexes below it are done. A failed step cancels those under way.
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
		// Detached from cancellation: a cancelled workflow still waits for what it started.
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
