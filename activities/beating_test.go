package activities

import (
	"context"
	"errors"
	"testing"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
)

// TestAWorkerThatStopsHandsItsStepBack: the step itself has to hear of it, and the error must be one that is tried again.
func TestAWorkerThatStopsHandsItsStepBack(t *testing.T) {
	for name, step := range map[string]func(m *Memory) func(context.Context) (int, error){
		"at work": func(m *Memory) func(context.Context) (int, error) {
			return func(ctx context.Context) (int, error) {
				return beating(ctx, m, 1, func(ctx context.Context, _ func(any)) (int, error) {
					<-ctx.Done()
					return 0, ctx.Err()
				})
			}
		},
		"waiting for memory": func(m *Memory) func(context.Context) (int, error) {
			return func(ctx context.Context) (int, error) {
				release, err := m.take(ctx, 1)
				if err != nil {
					return 0, err
				}
				defer release()
				return beating(ctx, m, 1, func(context.Context, func(any)) (int, error) { return 1, nil })
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
				t.Errorf("error %v, want one that is tried again elsewhere", err)
			}
		})
	}
}
