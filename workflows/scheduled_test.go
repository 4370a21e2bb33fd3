package workflows

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/indexbuild/rebuild"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/ingest/many"
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
			env.OnActivity("PlanIngest", mock.Anything, mock.Anything, mock.Anything, mock.Anything).Return(
				func(_ context.Context, spec ingest.Spec, _ string, _ int) (activities.ClaimedPlan, error) {
					got = spec.Date
					return activities.ClaimedPlan{}, enough
				}).Maybe()
			env.OnActivity("PlanMany", mock.Anything, mock.Anything, mock.Anything, mock.Anything).Return(
				func(_ context.Context, spec many.Spec, _ string, _ int) (many.Summary, error) {
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

// rebuilding is an environment of a rebuild of three tasks and two segments.
func rebuilding(segment func(n, deaths int) (rebuild.Rebuilt, error)) (env *testsuite.TestWorkflowEnvironment, tasks *int, cleaned *bool) {
	env = environment("rebuild@" + testLake)
	tasks, cleaned = new(int), new(bool)
	var mu sync.Mutex // of what activities count
	a := mock.Anything
	env.OnActivity("PlanRebuild", a, a, a).Return(activities.RebuildPlan{
		Summary: rebuild.Summary{Version: "v1", Tasks: 3, Segments: 2, Batches: 5, Rows: 70}, Window: 64,
	}, nil)
	env.OnActivity("RebuildPostings", a, a, a, a, a).Return(func(context.Context, string, string, int, int) error {
		mu.Lock()
		defer mu.Unlock()
		*tasks++
		return nil
	})
	env.OnActivity("RebuildSegment", a, a, a, a, a).Return(func(_ context.Context, _, _ string, n, deaths int) (rebuild.Rebuilt, error) {
		mu.Lock()
		defer mu.Unlock()
		if *tasks != 3 {
			return rebuild.Rebuilt{}, errors.New("not all postings are there")
		}
		return segment(n, deaths)
	})
	env.OnActivity("CleanUp", a, a, a).Return(func(context.Context, string, string) error {
		*cleaned = true
		return nil
	})
	return env, tasks, cleaned
}

func TestRebuildAddsUpItsSegments(t *testing.T) {
	env, _, cleaned := rebuilding(func(n, deaths int) (rebuild.Rebuilt, error) {
		if n == 1 && deaths < 2 { // its worker dies twice
			return rebuild.Rebuilt{}, temporal.NewNonRetryableApplicationError("lost", "", temporal.NewHeartbeatTimeoutError())
		}
		return rebuild.Rebuilt{Equal: 1, Again: int64(30 + 10*n), Files: []string{"a"}}, nil
	})
	env.ExecuteWorkflow(RebuildWorkflow, RebuildInput{Lake: testLake})
	var res RebuildResult
	if err := env.GetWorkflowResult(&res); err != nil {
		t.Fatal(err)
	}
	want := RebuildResult{
		Summary: rebuild.Summary{Version: "v1", Tasks: 3, Segments: 2, Batches: 5, Rows: 70},
		Rebuilt: rebuild.Rebuilt{Equal: 2, Again: 70, Files: []string{"a", "a"}},
	}
	if diff := gocmp.Diff(want, res); diff != "" || !*cleaned {
		t.Errorf("cleaned %v (-want +got):\n%s", *cleaned, diff)
	}
}

// A rebuild that finds what it cannot mend does the other segments, and fails with the remedy.
func TestRebuildAndVerifyFailWithTheRemedy(t *testing.T) {
	done := 0
	env, _, cleaned := rebuilding(func(n, _ int) (rebuild.Rebuilt, error) {
		done++
		if n == 0 {
			return rebuild.Rebuilt{Unmended: []string{"urls/x: corrupt; ingest batch b again"}}, nil
		}
		return rebuild.Rebuilt{Equal: 1}, nil
	})
	env.ExecuteWorkflow(RebuildWorkflow, RebuildInput{Lake: testLake})
	var app *temporal.ApplicationError
	if err := env.GetWorkflowError(); !errors.As(err, &app) || app.Type() != activities.ErrCorrupt || done != 2 || !*cleaned ||
		app.Message() != "damaged: urls/x: corrupt; ingest batch b again" {
		t.Errorf("%d segments, cleaned %v: %v", done, *cleaned, err)
	}
	var details RebuildResult
	if err := app.Details(&details); err != nil || details.Equal != 1 || details.Version != "v1" {
		t.Errorf("%+v, %v", details, err)
	}

	env = environment("verify@" + testLake)
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
