package workflows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/frontier/feed"
	"github.com/urlake/urlake/frontier/migrate"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
)

func frontierEnv(t *testing.T) *testsuite.TestWorkflowEnvironment {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(20 * time.Second)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{TaskQueue: activities.TaskQueue(testLake, activities.PoolControl)})
	of := activities.Lake{URL: testLake, Store: blob.NewMemory(), TempDir: t.TempDir()}
	env.RegisterActivity(&activities.Control{Lake: of})
	env.RegisterActivity(&activities.Index{Lake: of})
	env.RegisterWorkflow(IngestWorkflow)
	return env
}

const testFrontier = "http://127.0.0.1:7070"

// Batches are collected, ingested and settled one after the other, for as long as there are more. A
// batch that an earlier run has left does not end it.
func TestVisitedIngestTakesAllBatches(t *testing.T) {
	env := frontierEnv(t)
	left := []feed.Collected{
		{Batch: "visits-00000004", Visits: 10, Again: true, Total: 30}, {Batch: "visits-00000005", Visits: 20, More: true, Total: 40},
		{Batch: "visits-00000006", Visits: 5, Total: 60},
	}
	a := mock.Anything
	var order []string
	env.OnActivity("CollectVisits", a, a).Return(func(_ context.Context, spec feed.VisitsSpec) (feed.Collected, error) {
		c := left[0]
		c.Most = 500
		left = left[1:]
		c.Ingest = ingest.Spec{Lake: spec.Lake, Dataset: spec.Dataset, Batch: c.Batch, Inputs: []string{"memory://x"}}
		order = append(order, "collect "+c.Batch)
		return c, nil
	})
	env.OnWorkflow("IngestWorkflow", a, a).Return(func(_ workflow.Context, in IngestInput) (*IngestResult, error) {
		order = append(order, "ingest "+in.Batch)
		return &IngestResult{Rows: 4, Rejected: map[string]int64{"host": 1}, Version: "version of " + in.Batch}, nil
	})
	env.OnActivity("SettleVisits", a, a, a).Return(func(_ context.Context, _ feed.VisitsSpec, batch string) error {
		order = append(order, "settle "+batch)
		return nil
	})
	env.ExecuteWorkflow(VisitedIngestWorkflow, VisitedIngestInput{VisitsSpec: feed.VisitsSpec{Lake: testLake, Frontier: testFrontier, Dataset: "visits"}})
	var res VisitedIngestResult
	if err := env.GetWorkflowResult(&res); err != nil {
		t.Fatal(err)
	}
	if res.Visits != 35 || res.Rows != 12 || res.Rejected != 3 || res.Total != 65 || len(res.Batches) != 3 || res.Version != "version of visits-00000006" {
		t.Errorf("%+v", res)
	}
	var want []string
	for n := 4; n <= 6; n++ {
		for _, step := range []string{"collect", "ingest", "settle"} {
			want = append(want, fmt.Sprintf("%s visits-%08d", step, n))
		}
	}
	if !slices.Equal(order, want) {
		t.Errorf("%q, want %q", order, want)
	}
}

// A batch whose ingest fails is not settled: the next run ingests it.
func TestVisitedIngestThatFails(t *testing.T) {
	env := frontierEnv(t)
	a := mock.Anything
	env.OnActivity("CollectVisits", a, a).Return(feed.Collected{Batch: "visits-00000001", Visits: 1}, nil)
	env.OnWorkflow("IngestWorkflow", a, a).Return(nil, temporal.NewNonRetryableApplicationError("it is damaged", activities.ErrCorrupt, nil))
	env.ExecuteWorkflow(VisitedIngestWorkflow, VisitedIngestInput{VisitsSpec: feed.VisitsSpec{Lake: testLake, Frontier: testFrontier, Dataset: "visits"}})
	if err := env.GetWorkflowError(); err == nil || !strings.Contains(err.Error(), "it is damaged") {
		t.Errorf("%v", err)
	}
	env.AssertNotCalled(t, "SettleVisits", a, a, a)
}

// A seed and a migration are activities that go on where the one before has ended.
func TestSeedsAndMigrationsGoOn(t *testing.T) {
	a := mock.Anything
	env := frontierEnv(t)
	env.OnActivity("PlanSeed", a, a).Return(activities.SeedPlan{SeedPlan: feed.SeedPlan{Version: "v", Rows: 30, Parts: 3}}, nil)
	env.OnActivity("SeedFrontier", a, a, "v", a).Return(func(_ context.Context, _ feed.SeedSpec, _ string, at feed.SeedProgress) (activities.Seeded, error) {
		at.Part++
		at.Rows, at.Added, at.Done = at.Rows+10, at.Added+7, at.Part == 3
		return activities.Seeded{SeedProgress: at}, nil
	})
	env.ExecuteWorkflow(CrawlSeedWorkflow, CrawlSeedInput{SeedSpec: feed.SeedSpec{Lake: testLake, Frontier: testFrontier}})
	var seeded CrawlSeedResult
	if err := env.GetWorkflowResult(&seeded); err != nil || seeded.Version != "v" || seeded.Rows != 30 || seeded.Added != 21 || !seeded.Done {
		t.Errorf("%+v, %v", seeded, err)
	}

	spec := migrate.Spec{Lake: testLake, Frontier: testFrontier, DSN: "service=crawl"}
	env = frontierEnv(t)
	env.OnActivity("PlanMigration", a, a).Return(migrate.Plan{Rows: map[string]int64{"frontier": 2}}, nil)
	env.OnActivity("MigrateFrontier", a, a, a).Return(func(_ context.Context, _ migrate.Spec, at migrate.Progress) (activities.Migrated, error) {
		at.Stage++
		at.Done = at.Stage == len(migrate.Stages)
		return activities.Migrated{Progress: at}, nil
	})
	env.ExecuteWorkflow(FrontierMigrateWorkflow, FrontierMigrateInput{Spec: spec})
	var migrated FrontierMigrateResult
	if err := env.GetWorkflowResult(&migrated); err != nil || migrated.Stage != len(migrate.Stages) || migrated.Compared != nil {
		t.Errorf("%+v, %v", migrated, err)
	}

	spec.Verify = true
	env = frontierEnv(t)
	env.OnActivity("PlanMigration", a, a).Return(migrate.Plan{}, nil)
	env.OnActivity("VerifyMigration", a, a).Return(migrate.Comparison{Equal: true}, nil)
	env.ExecuteWorkflow(FrontierMigrateWorkflow, FrontierMigrateInput{Spec: spec})
	migrated = FrontierMigrateResult{}
	if err := env.GetWorkflowResult(&migrated); err != nil || migrated.Compared == nil || !migrated.Compared.Equal {
		t.Errorf("%+v, %v", migrated, err)
	}
}

// What a person has typed wrongly is said, and nothing is begun.
func TestInputsOfFrontierWorkflows(t *testing.T) {
	for text, want := range map[string]string{
		`{"lake": "l", "frontier": "http://f:7070", "prioriti": 3}`:      "prioriti",
		`{"lake": "l", "frontier": "http://f:7070", "priority": "high"}`: "priority is a JSON string",
		`["l"]`: "use an object",
	} {
		var in CrawlSeedInput
		if err := json.Unmarshal([]byte(text), &in); err != nil || !strings.Contains(in.problem, want) {
			t.Errorf("%s: %q, %v, want %q", text, in.problem, err, want)
		}
	}
	visits := feed.VisitsSpec{Lake: testLake, Frontier: testFrontier}
	since := visits
	since.Dataset, since.Since = "v", "noon"
	for _, c := range []struct {
		workflow, input any
		want            string
	}{
		{CrawlSeedWorkflow, CrawlSeedInput{SeedSpec: feed.SeedSpec{Lake: testLake}}, "frontier: "},
		{CrawlSeedWorkflow, CrawlSeedInput{SeedSpec: feed.SeedSpec{Lake: testLake, Frontier: testFrontier}, Resume: &CrawlSeedState{At: feed.SeedProgress{Done: true}}}, "resume is"},
		{FrontierMigrateWorkflow, FrontierMigrateInput{Spec: migrate.Spec{Lake: testLake, Frontier: testFrontier, DSN: "service=x"}, Resume: &FrontierMigrateState{}}, "resume is"},
		{VisitedIngestWorkflow, VisitedIngestInput{VisitsSpec: visits}, "dataset: it is missing"},
		{VisitedIngestWorkflow, VisitedIngestInput{VisitsSpec: since}, `"noon" is no time`},
		{FrontierMigrateWorkflow, FrontierMigrateInput{Spec: migrate.Spec{Lake: testLake, Frontier: testFrontier, DSN: "postgres://u:p@h/d"}}, "it has a password"},
		{FrontierMigrateWorkflow, FrontierMigrateInput{Spec: migrate.Spec{Lake: "elsewhere", Frontier: testFrontier, DSN: "service=x"}}, "does not belong to task queue"},
	} {
		env := frontierEnv(t)
		env.ExecuteWorkflow(c.workflow, c.input)
		var app *temporal.ApplicationError
		if err := env.GetWorkflowError(); !errors.As(err, &app) || !strings.Contains(app.Message(), c.want) || !app.NonRetryable() {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
