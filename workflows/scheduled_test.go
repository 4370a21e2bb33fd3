package workflows

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/ingest/many"
	"github.com/urlake/urlake/publish"
)

// environment returns an environment without activities, in which a workflow has an id.
func environment(id string) *testsuite.TestWorkflowEnvironment {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: id, TaskQueue: activities.TaskQueue(testLake, activities.PoolControl)})
	env.RegisterActivity(&activities.Control{})
	env.RegisterActivity(&activities.Index{})
	env.RegisterActivity(&activities.Publish{})
	return env
}

// A workflow hands the time at which its schedule was due to the plan: that of the search
// attribute, or else that of its id. What a person has typed stays.
func TestTheDateOfASchedule(t *testing.T) {
	due := time.Date(2026, 11, 20, 3, 0, 0, 0, time.FixedZone("", 3600))
	enough := temporal.NewNonRetryableApplicationError("enough", activities.ErrInput, nil)
	for _, c := range []struct {
		id        string
		attribute bool
		date      string
		want      string
	}{
		{"ingest:crawl@file:///lake-2026-11-20T03:00:00Z", true, "scheduled", "2026-11-20T02:00:00Z"},
		{"ingest:crawl@file:///lake-2026-11-19T03:00:00Z", false, "scheduled", "2026-11-19T03:00:00Z"},
		{"ingest:crawl@file:///lake", false, "scheduled", "scheduled"},
		{"ingest:crawl@file:///lake-2026-11-19T03:00:00Z", true, "2026-11-01", "2026-11-01"},
		{"ingest:crawl@file:///lake-2026-11-19T03:00:00Z", true, "", ""},
	} {
		for _, lists := range []bool{false, true} {
			env := environment(c.id)
			if c.attribute {
				attributes := temporal.NewSearchAttributes(scheduledStart.ValueSet(due))
				if err := env.SetTypedSearchAttributesOnStart(attributes); err != nil {
					t.Fatal(err)
				}
			}
			got := "no plan"
			env.OnActivity("PlanIngest", mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything).Return(
				func(_ context.Context, spec ingest.Spec, _ string, _ int64, _ int) (activities.ClaimedPlan, error) {
					got = spec.Date
					return activities.ClaimedPlan{}, enough
				}).Maybe()
			env.OnActivity("PlanMany", mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything).Return(
				func(_ context.Context, spec many.Spec, _ string, _ int64, _ int) (many.Summary, error) {
					got = spec.Date
					return many.Summary{}, enough
				}).Maybe()
			env.OnActivity("CleanUp", mock.Anything, mock.Anything, mock.Anything).Return(nil).Maybe()
			spec := ingest.Spec{Lake: testLake, Inputs: []string{"/in/{date}"}, Date: c.date}
			if lists {
				env.ExecuteWorkflow(IngestManyWorkflow, IngestManyInput{Spec: many.Spec{Spec: spec, DatasetsFrom: many.FromFiles}})
			} else {
				spec.Dataset = "crawl"
				env.ExecuteWorkflow(IngestWorkflow, IngestInput{Spec: spec})
			}
			if err := env.GetWorkflowError(); err == nil || !strings.Contains(err.Error(), "enough") || got != c.want {
				t.Errorf("%+v, lists %v: date %q, %v", c, lists, got, err)
			}
		}
	}
}

// A rebuild inspects all tasks, plans until there is nothing left, and publishes what waits.
func TestRebuild(t *testing.T) {
	p := newPublisher(t)
	a := mock.Anything
	var mu sync.Mutex // of what activities count
	inspected, plans := 0, 0
	p.env.OnActivity("StartRebuild", a, a, a).Return(activities.RebuildTasks{Tasks: 3, Window: 64}, nil)
	p.env.OnActivity("InspectForRebuild", a, a, a, a, a).Return(func(_ context.Context, _, _ string, n, deaths int) (publish.Inspected, error) {
		mu.Lock()
		defer mu.Unlock()
		if n == 1 && deaths < 2 { // its worker dies twice
			return publish.Inspected{}, temporal.NewNonRetryableApplicationError("lost", "", temporal.NewHeartbeatTimeoutError())
		}
		inspected++
		return publish.Inspected{}, nil
	})
	p.env.OnActivity("PlanRebuild", a, a, a, a).Return(func(_ context.Context, _, _ string, round int) (activities.RebuildPlan, error) {
		if inspected != 3 || round != plans || p.plans > 0 {
			t.Errorf("plan %d in round %d after %d tasks", plans, round, inspected)
		}
		plans++
		s := publish.Summary{PlanKey: "plan", Builds: 1, Window: 64, Nothing: plans == 2}
		return activities.RebuildPlan{Summary: s, Rebuilt: publish.Rebuilt{Version: "v1", Lost: []string{"a part"}, LostBatches: 1, LostRows: 7}}, nil
	})
	p.env.ExecuteWorkflow(RebuildWorkflow, RebuildInput{Lake: testLake})
	var res RebuildResult
	if err := p.env.GetWorkflowResult(&res); err != nil {
		t.Fatal(err)
	}
	if plans != 2 || p.plans != 1 || res.Version == "" || res.LostRows != 7 || len(p.cleaned) == 0 {
		t.Errorf("%d plans, cleaned %q: %+v", plans, p.cleaned, res)
	}
}

func TestVerifyFailsWithTheRemedy(t *testing.T) {
	var app *temporal.ApplicationError
	env := environment("verify@" + testLake)
	problems := []string{"p1", "p2", "p3", "p4", "p5", "p6"}
	env.OnActivity("VerifyLake", mock.Anything, mock.Anything, mock.Anything).Return(activities.Verified{Problems: problems, Found: 9}, nil)
	env.ExecuteWorkflow(VerifyWorkflow, VerifyInput{VerifySpec: activities.VerifySpec{Lake: testLake}})
	if err := env.GetWorkflowError(); !errors.As(err, &app) || app.Type() != activities.ErrCorrupt ||
		app.Message() != `9 objects are damaged: p1; p2; p3; p4; p5; and 4 more, which "starter verify" lists` {
		t.Errorf("%v", err)
	}
}

func TestWhatAPersonTypesIsChecked(t *testing.T) {
	for _, c := range []struct {
		workflow string
		input    map[string]any
		word     string
	}{
		{"RebuildWorkflow", map[string]any{"lake": testLake, "depe": true}, "depe"},
		{"RebuildWorkflow", map[string]any{}, "needs a lake"},
		{"RebuildWorkflow", map[string]any{"lake": "file:///other"}, "file:///other"},
		{"RebuildWorkflow", map[string]any{"lake": testLake, "deadline": "soon"}, "soon"},
		{"VerifyWorkflow", map[string]any{"lake": testLake, "deep": "yes"}, "deep"},
		{"VerifyWorkflow", map[string]any{"deep": true}, "needs a lake"},
	} {
		env := environment("x")
		env.RegisterWorkflow(RebuildWorkflow)
		env.RegisterWorkflow(VerifyWorkflow)
		env.ExecuteWorkflow(c.workflow, c.input)
		var app *temporal.ApplicationError
		if err := env.GetWorkflowError(); !errors.As(err, &app) || !app.NonRetryable() || !strings.Contains(app.Message(), c.word) {
			t.Errorf("%v: %v, want an error with %q", c.input, err, c.word)
		}
	}
}
