package activities

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
)

// TestStoppingWorkerReturnsItsStep checks that a step is cancelled when its worker stops, and that
// the error can be retried.
func TestStoppingWorkerReturnsItsStep(t *testing.T) {
	for name, step := range map[string]func(m *Memory) func(context.Context) (int, error){
		"at work": func(m *Memory) func(context.Context) (int, error) {
			return func(ctx context.Context) (int, error) {
				return withHeartbeat(ctx, m, 1, func(ctx context.Context, _ func(any)) (int, error) {
					<-ctx.Done()
					return 0, ctx.Err()
				})
			}
		},
		"waiting for memory": func(m *Memory) func(context.Context) (int, error) {
			return func(ctx context.Context) (int, error) {
				release, err := m.acquire(ctx, 1)
				if err != nil {
					return 0, err
				}
				defer release()
				return withHeartbeat(ctx, m, 1, func(context.Context, func(any)) (int, error) { return 1, nil })
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var suite testsuite.WorkflowTestSuite
			env := suite.NewTestActivityEnvironment()
			stop := make(chan struct{})
			close(stop)
			env.SetWorkerStopChannel(stop)
			activity := step(NewMemory(1))
			env.RegisterActivity(activity)
			_, err := env.ExecuteActivity(activity)
			var app *temporal.ApplicationError
			if !errors.As(err, &app) || app.Type() != "WorkerStops" || app.NonRetryable() {
				t.Errorf("error %v, want a WorkerStops error that can be retried", err)
			}
		})
	}
}

// TestInterruptedStepNamesTheInterruption checks that the error does not name the object that the
// step was writing.
func TestInterruptedStepNamesTheInterruption(t *testing.T) {
	for name, c := range map[string]struct {
		cause error
		kind  string // of the error, "" for a cancellation
	}{
		"cancelled":     {temporal.NewCanceledError(), ""},
		"no heartbeats": {serviceerror.NewUnavailable("connection refused"), "LostTouch"},
		"no answers":    {context.DeadlineExceeded, "LostTouch"},
		"too late":      {fmt.Errorf("heartbeat: %w", serviceerror.NewNotFound("no such activity")), "Gone"},
		"paused":        {activity.ErrActivityPaused, "Paused"},
		"reset":         {activity.ErrActivityReset, "Reset"},
	} {
		t.Run(name, func(t *testing.T) {
			var suite testsuite.WorkflowTestSuite
			env := suite.NewTestActivityEnvironment()
			var err error
			step := func(ctx context.Context) error {
				ctx, cancel := context.WithCancelCause(ctx)
				_, err = withHeartbeat(ctx, nil, 0, func(ctx context.Context, _ func(any)) (int, error) {
					cancel(c.cause)
					<-ctx.Done()
					return 0, fmt.Errorf("write run staging/0a/runs/3: %w", ctx.Err())
				})
				return nil
			}
			env.RegisterActivity(step)
			if _, err := env.ExecuteActivity(step); err != nil {
				t.Fatal(err)
			}
			if err == nil || strings.Contains(err.Error(), "staging") {
				t.Errorf("error %v names the object", err)
			}
			var app *temporal.ApplicationError
			switch {
			case c.kind == "" && !temporal.IsCanceledError(err):
				t.Errorf("error %v, want a cancellation", err)
			case c.kind != "" && (!errors.As(err, &app) || app.Type() != c.kind || app.NonRetryable()):
				t.Errorf("error %v, want a %s error that can be retried", err, c.kind)
			}
		})
	}
}

func TestFinalErrorsDoNotRepeatTheirText(t *testing.T) {
	err := finalError(&ingest.InputError{Reason: "no record is a URL"})
	if n := strings.Count(err.Error(), "no record is a URL"); n != 1 {
		t.Errorf("the reason is there %d times: %v", n, err)
	}
}

// TestPanickingStepReleasesItsMemory matters because the SDK recovers from a panic, and the other
// steps of the worker still need the memory.
func TestPanickingStepReleasesItsMemory(t *testing.T) {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	m := NewMemory(1)
	step := func(ctx context.Context) (int, error) {
		return withHeartbeat(ctx, m, 1, func(context.Context, func(any)) (int, error) { panic("a defect") })
	}
	env.RegisterActivity(step)
	if _, err := env.ExecuteActivity(step); err == nil {
		t.Fatal("no error")
	}
	if !m.free.TryAcquire(1) {
		t.Error("the memory was not released")
	}
}

// TestHeartbeatsOfLongStepsAreRare counts the heartbeats of a step, which Temporal Cloud bills.
func TestHeartbeatsOfLongStepsAreRare(t *testing.T) {
	beats := func(length time.Duration) (n int) {
		for at := heartbeatAfter(0); at < length; at += heartbeatAfter(at) {
			n++
		}
		return n
	}
	for _, c := range []struct {
		length    time.Duration
		from, til int
	}{{20 * time.Second, 9, 10}, {time.Minute, 20, 30}, {24 * time.Hour, 8600, 8700}} {
		if n := beats(c.length); n < c.from || n > c.til {
			t.Errorf("%d heartbeats in %v, want %d to %d", n, c.length, c.from, c.til)
		}
	}
}

// TestDamageIsExplained checks that an error about a damaged object ends with the command that
// mends it.
func TestDamageIsExplained(t *testing.T) {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	damage := codec.Corrupt(lake.RegistryKey, "seal", 7, "this", "that")
	step := func(ctx context.Context) (int, error) {
		return withHeartbeat(ctx, NewMemory(1), 1, func(context.Context, func(any)) (int, error) {
			return 0, fmt.Errorf("plan: %w", damage)
		})
	}
	env.RegisterActivity(step)
	_, err := env.ExecuteActivity(step)
	var app *temporal.ApplicationError
	want := "plan: " + damage.Error() + "; " + lake.Remedy("", lake.RegistryKey)
	if !errors.As(err, &app) || app.Type() != ErrCorrupt || app.Message() != want {
		t.Errorf("%v, want %q", err, want)
	}
}
