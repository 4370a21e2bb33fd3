package activities

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/codec"
)

const (
	// minHeartbeat is the interval of heartbeats at the beginning of a step, and how old the
	// progress is that a watcher sees of it.
	minHeartbeat = 2 * time.Second
	// maxHeartbeat is the interval in a step that takes minutes. It is less than half of the
	// heartbeat timeout of the workflows, so that one may be lost. Each heartbeat is work for
	// Temporal, and Temporal Cloud bills it.
	maxHeartbeat = 10 * time.Second
	// heartbeatGrowth is the part of a step's time that the interval is.
	heartbeatGrowth = 15
)

// heartbeatAfter returns the time until the next heartbeat of a step that has run for elapsed.
func heartbeatAfter(elapsed time.Duration) time.Duration {
	return min(max(minHeartbeat, elapsed/heartbeatGrowth), maxHeartbeat)
}

// withHeartbeat runs step as soon as its memory is available, and heartbeats until step returns,
// with the last progress that step reported. When the worker stops, it cancels step and returns an
// error with which Temporal gives the step to another worker at once.
func withHeartbeat[T any](
	ctx context.Context, m *Memory, need int64, step func(ctx context.Context, report func(any)) (T, error),
) (T, error) {
	return heartbeat(ctx, func(ctx context.Context) (func(), error) { return m.acquire(ctx, need) }, step)
}

// heartbeat is withHeartbeat for a step that runs when acquire returns. What acquire returns is
// called when the step ends.
func heartbeat[T any](
	ctx context.Context, acquire func(ctx context.Context) (release func(), err error),
	step func(ctx context.Context, report func(any)) (T, error),
) (T, error) {
	var mu sync.Mutex
	var last any
	parent := ctx
	ctx, stop := context.WithCancel(parent)
	ended := make(chan struct{})
	stopping := false
	go func() {
		defer close(ended)
		started := time.Now()
		next := time.NewTimer(minHeartbeat)
		defer next.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-activity.GetWorkerStopChannel(ctx):
				stopping = true
				stop()
				return
			case <-next.C:
				mu.Lock()
				p := last
				mu.Unlock()
				activity.RecordHeartbeat(ctx, p)
				next.Reset(heartbeatAfter(time.Since(started)))
			}
		}
	}()
	defer stop() // also if step panics, which the SDK turns into a failed attempt
	out, err := func() (out T, err error) {
		release, err := acquire(ctx)
		if err != nil {
			return out, err
		}
		defer release()
		// An error about damage is final, so the step has to find it twice.
		return codec.Confirm(func() (T, error) {
			return step(ctx, func(p any) {
				mu.Lock()
				last = p
				mu.Unlock()
			})
		})
	}()
	stop()
	<-ended
	switch {
	case err == nil:
		return out, nil
	case stopping, errors.Is(context.Cause(parent), worker.ErrWorkerShutdown):
		return out, retrySoon("the worker stops", "WorkerStops")
	case parent.Err() != nil && errors.Is(err, parent.Err()):
		return out, interrupted(parent)
	}
	_, lakeURL, _ := strings.Cut(activity.GetInfo(parent).TaskQueue, "@")
	return out, finalError(lake.Explained(lakeURL, err))
}

// interrupted returns the error of a step that ended because its context did. It says why the
// context ended, not what the step was doing.
func interrupted(ctx context.Context) error {
	cause := context.Cause(ctx)
	var gone *serviceerror.NotFound
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return ctx.Err() // Temporal has timed the step out already
	case temporal.IsCanceledError(cause):
		return temporal.NewCanceledError()
	case errors.Is(cause, activity.ErrActivityPaused):
		return retrySoon("the step is paused", "Paused")
	case errors.Is(cause, activity.ErrActivityReset):
		return retrySoon("the step is reset", "Reset")
	case errors.As(cause, &gone):
		return retrySoon("Temporal no longer waits for this step", "Gone")
	}
	// A heartbeat failed, and so did all of the SDK's retries.
	return retrySoon("lost the connection to Temporal", "LostTouch")
}

// retrySoon returns an error for which the step is not to blame. Temporal retries it after a
// second.
func retrySoon(message, kind string) error {
	return temporal.NewApplicationErrorWithOptions(message, kind, temporal.ApplicationErrorOptions{
		NextRetryDelay: time.Second,
		Category:       temporal.ApplicationErrorCategoryBenign, // the SDK does not log it as an error
	})
}
