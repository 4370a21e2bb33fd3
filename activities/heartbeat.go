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

	"github.com/urlake/urlake/lake/remedy"
)

// heartbeatInterval is far below the heartbeat timeout of the workflows. A watcher sees progress
// that is at most this old.
const heartbeatInterval = 2 * time.Second

// withHeartbeat runs step as soon as its memory is available, and heartbeats until step returns,
// with the last progress that step reported. When the worker stops, it cancels step and returns an
// error with which Temporal gives the step to another worker at once.
func withHeartbeat[T any](
	ctx context.Context, m *Memory, need int64, step func(ctx context.Context, report func(any)) (T, error),
) (T, error) {
	var mu sync.Mutex
	var last any
	parent := ctx
	ctx, stop := context.WithCancel(parent)
	ended := make(chan struct{})
	stopping := false
	go func() {
		defer close(ended)
		tick := time.NewTicker(heartbeatInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-activity.GetWorkerStopChannel(ctx):
				stopping = true
				stop()
				return
			case <-tick.C:
				mu.Lock()
				p := last
				mu.Unlock()
				activity.RecordHeartbeat(ctx, p)
			}
		}
	}()
	defer stop() // also if step panics, which the SDK turns into a failed attempt
	out, err := func() (out T, err error) {
		release, err := m.acquire(ctx, need)
		if err != nil {
			return out, err
		}
		defer release()
		return step(ctx, func(p any) {
			mu.Lock()
			last = p
			mu.Unlock()
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
	return out, finalError(remedy.Explained(lakeURL, err))
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
