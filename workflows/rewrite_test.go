package workflows

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/temporal"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/publish"
)

// mover counts the tasks that a publisher runs.
type mover struct {
	mu                sync.Mutex
	tasks             map[string][]int
	running, together int
}

// moveWith makes RewriteParts a fake that returns what do does.
func (p *publisher) moveWith(do func(ctx context.Context, task int) (publish.Rewritten, error)) *mover {
	m := &mover{tasks: map[string][]int{}}
	a := mock.Anything
	p.env.OnActivity("RewriteParts", a, a, a, a, a).Return(func(ctx context.Context, _, key string, task, _ int) (publish.Rewritten, error) {
		m.mu.Lock()
		m.tasks[key] = append(m.tasks[key], task)
		m.running++
		m.together = max(m.together, m.running)
		m.mu.Unlock()
		defer func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.running--
		}()
		return do(ctx, task)
	})
	return m
}

// A publisher runs every task of a list of batches to move, some of them at a time, and plans again
// until nothing is left to move. Then it builds.
func TestPublishMovesFirst(t *testing.T) {
	p := newPublisher(t)
	p.moves = []int{150, 1}
	m := p.moveWith(func(_ context.Context, task int) (publish.Rewritten, error) {
		if p.builds > 0 {
			t.Error("a segment was built before everything was moved")
		}
		return publish.Rewritten{Batches: 2, Again: task % 2, Damaged: task / 149, Moved: 10, Bytes: 100}, nil
	})
	p.env.ExecuteWorkflow(PublishWorkflow, PublishInput{Lake: testLake, Waiting: []activities.PublishRequest{{WorkflowID: "w"}}})
	var res PublishResult
	if err := p.env.GetWorkflowResult(&res); err != nil {
		t.Fatal(err)
	}
	for key, n := range map[string]int{"moves-150": 150, "moves-1": 1} {
		slices.Sort(m.tasks[key])
		for i := range n {
			if len(m.tasks[key]) != n || m.tasks[key][i] != i {
				t.Fatalf("tasks %v of %s, want each of %d once", m.tasks[key], key, n)
			}
		}
	}
	if m.together > p.window {
		t.Errorf("%d tasks at once, allowed are %d", m.together, p.window)
	}
	want := &publish.Rewritten{Batches: 302, Again: 75, Damaged: 1, Moved: 1510, Bytes: 15100}
	if diff := cmp.Diff(want, res.Moved); diff != "" || p.plans != 3 || res.Rounds != 1 || res.Version != "v1" {
		t.Errorf("%d plans, %+v: %s", p.plans, res, diff)
	}
	if len(p.answers) != 1 || p.answers[0].Version != "v1" {
		t.Errorf("answers %+v", p.answers)
	}
}

// A failed task ends the round with its error, after the tasks in flight.
func TestFailedMoveEndsTheRound(t *testing.T) {
	p := newPublisher(t)
	p.moves = []int{500}
	m := p.moveWith(func(_ context.Context, task int) (publish.Rewritten, error) {
		if task == 3 {
			return publish.Rewritten{}, temporal.NewNonRetryableApplicationError("no public suffix list", activities.ErrLake, nil)
		}
		return publish.Rewritten{Batches: 1}, nil
	})
	p.env.ExecuteWorkflow(PublishWorkflow, PublishInput{Lake: testLake, Waiting: []activities.PublishRequest{{WorkflowID: "w"}}})
	if err := p.env.GetWorkflowError(); err == nil || !strings.Contains(err.Error(), "no public suffix list") {
		t.Fatalf("error %v, want that of the task", err)
	}
	if len(p.answers) != 0 || p.builds > 0 {
		t.Errorf("answers %+v, %d builds", p.answers, p.builds)
	}
	// While the failure is on its way, tasks that end still make room for others.
	if n := len(m.tasks["moves-500"]); n > 4*p.window || m.running > 0 {
		t.Errorf("%d tasks were started, %d are running", n, m.running)
	}
}
