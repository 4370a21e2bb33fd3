package workflows

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/activities"
)

// Every activity has a summary, and no other name has one.
func TestEveryActivityHasASummary(t *testing.T) {
	left := map[string]bool{}
	for name := range summaries {
		left[name] = true
	}
	of := reflect.TypeFor[context.Context]()
	for _, pool := range []any{
		&activities.Control{}, &activities.Normalize{}, &activities.Write{}, &activities.Index{}, &activities.Publish{},
	} {
		kind := reflect.TypeOf(pool)
		for i := range kind.NumMethod() {
			if m := kind.Method(i); m.Type.NumIn() > 1 && m.Type.In(1) == of {
				if name := nameOf(m.Func.Interface()); name != m.Name || summaries[name] == "" {
					t.Errorf("%s, named %q, has the summary %q", m.Name, name, summaries[name])
				}
				delete(left, m.Name)
			}
		}
	}
	for name := range left {
		t.Errorf("%s is no activity", name)
	}
	if name := nameOf((*activities.Control)(nil).PlanIngest); name != "PlanIngest" {
		t.Errorf("a method is named %s", name)
	}
}

// Temporal's pages show the steps of a workflow, the latest last, with how many are done.
func TestDetailsShowTheSteps(t *testing.T) {
	for name, c := range map[string]struct {
		splits, failSplit int
		shows             []string
	}{
		"succeeds": {3, -1, []string{
			"* find the inputs: done", "* read inputs, and normalise their URLs: 3 of 3 done, 0 running",
			"* sort the rows of partitions into Parquet: 2 of 2 done, 0 running", "* record the batch: done",
		}},
		"fails": {1, 0, []string{"* find the inputs: done", "* read inputs, and normalise their URLs: failed"}},
	} {
		s := newFakes(t)
		s.splits, s.tasks, s.bytes, s.failSplit = c.splits, 2, 1<<40, c.failSplit
		details := ""
		run := func(ctx workflow.Context) error {
			in := input()
			in.NoPublish = true
			_, err := IngestWorkflow(ctx, in)
			details = workflow.GetCurrentDetails(ctx)
			return err
		}
		s.env.RegisterWorkflow(run)
		s.env.ExecuteWorkflow(run)
		for _, line := range c.shows {
			if !strings.Contains(details, line+"\n") {
				t.Errorf("%s: the details lack %q:\n%s", name, line, details)
			}
		}
		if err := s.env.GetWorkflowError(); (err == nil) != (c.failSplit < 0) || err != nil && strings.Contains(err.Error(), "activity error") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
