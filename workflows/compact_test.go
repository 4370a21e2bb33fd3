package workflows

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/gc"
	"github.com/urlake/urlake/publish/suppress"
)

// A compaction by the workflow and its real steps drops what takedowns hide. Before its commit one
// of two takedowns is lifted, and another one is added. So it plans again, and drops the rows of
// the two that are in force.
func TestCompactionFollowsTakedowns(t *testing.T) {
	store := blob.NewMemory()
	var records []testlake.Record
	for i := range 40 {
		records = append(records, testlake.Record{URL: fmt.Sprintf("https://site%d.test/%d", i%5, i)})
	}
	for _, batch := range []string{"b1", "b2"} {
		testlake.Ingest(t, store, "alpha", batch, records)
		testlake.Publish(t, store)
	}
	add := func(host string) string {
		target, err := catalog.ParseTarget(urlnorm.BuiltinSuffixes(), catalog.DomainTarget, host)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now().UTC().Truncate(time.Second)
		r := catalog.Takedown{ID: catalog.NewTakedownID(now), Target: target, Reason: "test", Created: now}
		if _, err := suppress.Add(t.Context(), store, r, suppress.Options{}); err != nil {
			t.Fatal(err)
		}
		return r.ID
	}
	ids := []string{add("site1.test"), add("site2.test")}

	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(20 * time.Second)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{TaskQueue: activities.TaskQueue(testLake, activities.PoolControl)})
	of := activities.Lake{Store: store, URL: testLake, TempDir: t.TempDir()}
	env.RegisterActivity(&activities.Control{Lake: of})
	env.RegisterActivity(&activities.Write{Lake: of})
	env.RegisterActivity(&activities.Index{Lake: of})
	env.RegisterActivity(&activities.Publish{Lake: of})
	env.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, _ converter.EncodedValues) {
		pool, _, _ := strings.Cut(info.TaskQueue, "@")
		small := slices.Contains([]string{"CleanUp", "PlanCompaction", "CommitVersion"}, info.ActivityType.Name)
		if pool != activities.PoolBackground && !small {
			t.Errorf("%s runs in the pool %s, where ingests would wait for it", info.ActivityType.Name, pool)
		}
	})
	commits := 0
	env.OnActivity("CommitVersion", mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything).
		Return(func(_ context.Context, _, planKey string, built publish.Built, _ activities.Answers) (activities.Committed, error) {
			if commits++; commits == 1 {
				if _, err := suppress.Lift(t.Context(), store, ids[0], "me", "over", suppress.Options{}); err != nil {
					return activities.Committed{}, err
				}
				ids = append(ids, add("site3.test"))
			}
			done, err := publish.Commit(t.Context(), store, planKey, built, t.TempDir())
			return activities.Committed{Committed: done}, err
		})
	env.ExecuteWorkflow(CompactWorkflow, CompactInput{Lake: testLake})
	var res CompactResult
	if err := env.GetWorkflowResult(&res); err != nil {
		t.Fatal(err)
	}
	if res.Dropped != 32 || commits != 2 || res.Rounds != 1 {
		t.Errorf("%d commits, %+v", commits, res)
	}
	if _, err := gc.Collect(t.Context(), store, gc.Options{Keep: 1}); err != nil {
		t.Fatal(err)
	}
	m, _, err := catalog.ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	v, err := catalog.ReadVersion(t.Context(), store, m.Versions[0])
	if err != nil || v.Counts.Rows != 80-32 {
		t.Fatalf("%+v, %v", v, err)
	}
	for _, id := range ids[1:] {
		if s, err := suppress.Inspect(t.Context(), store, id, true); err != nil || !s.Gone {
			t.Errorf("%+v, %v", s, err)
		}
	}
}

// A plan may have far more unions than steps may be pending in a workflow. No more than the window
// of the plan are in flight.
func TestUnionsAreBounded(t *testing.T) {
	const tasks, window = 200, 16
	s := newFakes(t)
	s.env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute}) // of a busy machine
	s.env.SetTestTimeout(time.Minute)
	plans := 0
	a := mock.Anything
	s.env.OnActivity("PlanCompaction", a, a, a, a, a).Return(func(context.Context, string, string, int, publish.Compaction) (publish.Summary, error) {
		plans++
		return publish.Summary{Nothing: plans > 1, RewriteKey: "k", Window: window, RewriteTasks: tasks}, nil
	})
	inFlight := watchActivities(s.env)
	s.env.OnActivity("RewriteParts", a, a, a, a, a).Return(publish.Rewritten{Parts: 1}, nil).After(time.Second)
	s.env.ExecuteWorkflow(CompactWorkflow, CompactInput{Lake: testLake})
	if err := s.env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	if peak, done := inFlight(); peak > window || done["RewriteParts"] != tasks {
		t.Errorf("%d steps were in flight, want at most %d; done %v", peak, window, done)
	}
}

// watchActivities returns a function that tells how many activities were in flight at once, and how
// many of each type have ended.
func watchActivities(env *testsuite.TestWorkflowEnvironment) func() (peak int, done map[string]int) {
	var mu sync.Mutex
	pending, peak, done := 0, 0, map[string]int{}
	env.SetOnActivityStartedListener(func(*activity.Info, context.Context, converter.EncodedValues) {
		mu.Lock()
		defer mu.Unlock()
		pending++
		peak = max(peak, pending)
	})
	env.SetOnActivityCompletedListener(func(info *activity.Info, _ converter.EncodedValue, _ error) {
		mu.Lock()
		defer mu.Unlock()
		pending--
		done[info.ActivityType.Name]++
	})
	return func() (int, map[string]int) {
		mu.Lock()
		defer mu.Unlock()
		return peak, done
	}
}

// Each segment of a plan is built and verified by a task of its own, at most a window of them at
// once. The commit gets all, in the order of the plan.
func TestSegmentsAreBuiltByTasks(t *testing.T) {
	const segments, window = 7, 3
	p := newPublisher(t)
	p.segments, p.window = segments, window
	p.buildTask = func(task int) publish.Built {
		return publish.Built{Segments: []segment.Ref{{ID: fmt.Sprint("s", task)}}}
	}
	inFlight := watchActivities(p.env)
	p.env.ExecuteWorkflow(PublishWorkflow, PublishInput{Lake: testLake})
	if err := p.env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, s := range p.committed.Segments {
		ids = append(ids, s.ID)
	}
	if !slices.Equal(ids, []string{"s0", "s1", "s2", "s3", "s4", "s5", "s6"}) {
		t.Errorf("committed %+v", p.committed)
	}
	if peak, done := inFlight(); peak > window || done["BuildSegment"] != segments || done["VerifySegment"] != segments {
		t.Errorf("%d steps were in flight, want at most %d; done %v", peak, window, done)
	}
}

// A task that finds damaged batches ends the build, and the next plan is built.
func TestDamageInOneOfSeveralSegments(t *testing.T) {
	p := newPublisher(t)
	p.segments, p.window = 3, 3
	found := false
	p.buildTask = func(task int) publish.Built {
		p.mu.Lock()
		defer p.mu.Unlock()
		if task == 1 && !found {
			found = true
			return publish.Built{Damaged: 1}
		}
		return publish.Built{Segments: []segment.Ref{{ID: fmt.Sprint("s", task)}}}
	}
	p.env.ExecuteWorkflow(PublishWorkflow, PublishInput{Lake: testLake})
	var res PublishResult
	if err := p.env.GetWorkflowResult(&res); err != nil {
		t.Fatal(err)
	}
	if p.plans != 2 || res.Rounds != 1 || res.Batches != 1 {
		t.Errorf("%d plans, %+v", p.plans, res)
	}
}
