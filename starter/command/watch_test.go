package command

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.temporal.io/api/serviceerror"
)

// TestWatchingOutlastsTemporal holds that who waits for a workflow goes on while Temporal is away.
func TestWatchingOutlastsTemporal(t *testing.T) {
	end := errors.New("the workflow failed")
	answers := []error{
		context.DeadlineExceeded, serviceerror.NewUnavailable("connection refused"),
		serviceerror.NewDeadlineExceeded("no answer"), end,
	}
	asked := 0
	err := outlast(t.Context(), time.Microsecond, func() error {
		asked++
		return answers[asked-1]
	})
	if !errors.Is(err, end) || asked != len(answers) {
		t.Errorf("%v after %d requests", err, asked)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = outlast(ctx, time.Hour, func() error { cancel(); return answers[0] })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stopped: %v", err)
	}
}
