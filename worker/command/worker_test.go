package command

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/ingest/allow"
	"github.com/urlake/urlake/publish"
)

// TestStepsReachWhatIsAllowed looks at the context that every step of every pool has.
func TestStepsReachWhatIsAllowed(t *testing.T) {
	for _, tc := range []struct {
		targets []string
		host    string
		ok      bool
	}{
		{nil, "127.0.0.1", true},
		{nil, "db.example", false},
		{[]string{"db.example:5432"}, "db.example", true},
		{[]string{"db.example:5433"}, "db.example", false},
		{[]string{"db.example"}, "127.0.0.1", false},
		{[]string{"*"}, "db.example", true},
	} {
		ctx, err := stepContext(nil, tc.targets, "s3://bucket/lake")
		if err != nil {
			t.Fatal(err)
		}
		if err := allow.TargetsOf(ctx).Check(tc.host, 5432); (err == nil) != tc.ok {
			t.Errorf("--allow-target %q: %s: %v", tc.targets, tc.host, err)
		}
		if allow.Of(ctx) == nil {
			t.Error("every input is allowed beside a lake in a bucket")
		}
	}
	if _, err := stepContext(nil, []string{"a.example:0"}, "s3://bucket/lake"); err == nil {
		t.Error("a target that is no host is accepted")
	}
}

func TestSDKMetricsFollowPrometheusConventions(t *testing.T) {
	m := newSDKMetrics()
	h := m.Handler().WithTags(map[string]string{"namespace": "default"})
	h.Counter("temporal_request").Inc(2)
	h.WithTags(map[string]string{"operation": "Poll", "namespace": "other"}).Counter("temporal_request").Inc(1)
	h.Counter("temporal_request").Inc(1)
	h.Counter("temporal_request").Inc(-5) // a counter does not go down
	h.Gauge("temporal_num_pollers").Update(3)
	h.Timer("temporal_request_latency").Record(30 * time.Millisecond)
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(m)
	const want = `
# HELP temporal_num_pollers A metric of the Temporal SDK; see its documentation.
# TYPE temporal_num_pollers gauge
temporal_num_pollers{namespace="default"} 3
# HELP temporal_request_total A metric of the Temporal SDK; see its documentation.
# TYPE temporal_request_total counter
temporal_request_total{namespace="default"} 3
temporal_request_total{namespace="other",operation="Poll"} 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), "temporal_num_pollers", "temporal_request_total"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(r, "temporal_request_latency_seconds"); n != 1 || err != nil {
		t.Errorf("%d series of temporal_request_latency_seconds, error %v", n, err)
	}
}

func TestSDKSeriesAreBounded(t *testing.T) {
	m := newSDKMetrics()
	for i := range maxSDKSeries + 100 {
		m.Handler().WithTags(map[string]string{"workflow_type": fmt.Sprint(i)}).Counter("temporal_workflow_completed").Inc(1)
	}
	if n := testutil.CollectAndCount(m); n != maxSDKSeries {
		t.Errorf("%d series, want %d", n, maxSDKSeries)
	}
}

func TestOutcomesOfSteps(t *testing.T) {
	m := newMetrics("mem://lake", blob.NewCounting(blob.NewMemory()), nil)
	p := m.pool(activities.PoolWrite, 4)
	for name, c := range map[string]struct {
		outcome, kind string
		step          func(context.Context) error
	}{
		"completes": {outcomeCompleted, "", func(context.Context) error { return nil }},
		"is cancelled": {outcomeCancelled, "", func(context.Context) error {
			return temporal.NewCanceledError()
		}},
		"returns to Temporal": {outcomeReturned, "", func(context.Context) error {
			return temporal.NewApplicationErrorWithOptions("the worker stops", "WorkerStops",
				temporal.ApplicationErrorOptions{Category: temporal.ApplicationErrorCategoryBenign})
		}},
		"finds bad input": {outcomeFailed, activities.ErrInput, func(context.Context) error {
			return temporal.NewNonRetryableApplicationError("no such file", activities.ErrInput, nil)
		}},
		"is an unknown type": {outcomeFailed, "other", func(context.Context) error {
			return temporal.NewApplicationError("s3://bucket/key: connection refused", "s3://bucket/key")
		}},
		"has any error": {outcomeFailed, "other", func(context.Context) error { return errors.New("connection refused") }},
		"panics":        {outcomeFailed, "panic", func(context.Context) error { panic("a defect") }},
		"saturates": {outcomeCompleted, "", func(context.Context) error {
			if got := testutil.ToFloat64(gaugeOf{m, saturation}); got != 25 {
				t.Errorf("one of four slots is a saturation of %v %%", got)
			}
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m.durations.Reset()
			m.failures.Reset()
			var suite testsuite.WorkflowTestSuite
			env := suite.NewTestActivityEnvironment()
			env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{p}})
			env.RegisterActivity(c.step)
			_, err := env.ExecuteActivity(c.step)
			var app *temporal.ApplicationError
			if errors.As(err, &app); name == "has any error" && (app == nil || app.Type() != "Retried") {
				t.Errorf("Temporal's pages show another type than Retried: %#v", err)
			}
			if n := testutil.CollectAndCount(m.durations); n != 1 {
				t.Fatalf("%d series of durations", n)
			}
			labels := prometheus.Labels{"outcome": c.outcome}
			if n := testutil.CollectAndCount(m.durations.MustCurryWith(labels).(prometheus.Collector)); n != 1 {
				t.Errorf("the outcome is not %s", c.outcome)
			}
			failed := 0
			if c.kind != "" {
				failed = 1
			}
			if n := testutil.CollectAndCount(m.failures); n != failed {
				t.Errorf("%d series of errors, want %d", n, failed)
			}
			if p.busy.Load() != 0 {
				t.Errorf("%d steps run after the end", p.busy.Load())
			}
		})
	}
}

// gaugeOf collects one gauge of a collector.
type gaugeOf struct {
	prometheus.Collector
	desc *prometheus.Desc
}

func (g gaugeOf) Collect(ch chan<- prometheus.Metric) {
	all := make(chan prometheus.Metric, 100)
	g.Collector.Collect(all)
	close(all)
	for m := range all {
		if m.Desc() == g.desc {
			ch <- m
		}
	}
}

// readyz returns the answer of /readyz.
func readyz(p *probes) (status int, body string) {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	return w.Code, w.Body.String()
}

func TestReadyzNamesEveryReason(t *testing.T) {
	store := blobtest.NewFaulty(blob.NewMemory())
	store.Inject(blobtest.Fault{Op: blob.OpStat, Err: errors.New("connection refused")})
	p := &probes{lakeURL: "mem://lake", store: store}
	status, body := readyz(p)
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "waiting for Temporal") || !strings.Contains(body, "connection refused") {
		t.Errorf("%d %q, want 503 with both reasons", status, body)
	}
	p.draining.Store(true)
	if status, body := readyz(p); status != http.StatusServiceUnavailable || !strings.Contains(body, "stops") {
		t.Errorf("while it stops: %d %q", status, body)
	}
}

// TestProbesAreAnsweredFromOneLook checks that frequent probes do not burden the store.
func TestProbesAreAnsweredFromOneLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := blob.NewCounting(blob.NewMemory())
		p := &probes{lakeURL: "mem://lake", store: store}
		for range 20 {
			readyz(p)
		}
		if n := store.Count(blob.OpStat).Requests; n != 1 {
			t.Errorf("%d requests of the store, want 1", n)
		}
	})
}

// TestWorkflowCacheHasMemoryOfItsOwn checks the memory of steps and of the process.
func TestWorkflowCacheHasMemoryOfItsOwn(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	const mib = 1 << 20
	for _, c := range []struct {
		limit          int64 // MiB
		env            int64 // MiB, 0 for none
		control        bool
		steps, process int64 // MiB; 0 steps are no limit
	}{
		{limit: 1024, control: true, steps: 1024, process: 1024 + 64},
		{limit: 1024, steps: 1024, process: 1024},
		{limit: 64, control: true, steps: 64, process: 64 + 16},
		{limit: 8192, control: true, steps: 8192, process: 8192 + 512},
		{limit: 0, control: true, steps: 0, process: math.MaxInt64 / mib},
		{limit: 1024, env: 2048, control: true, steps: 2048 - 128, process: 2048},
		{limit: 1024, env: 2048, steps: 2048, process: 2048},
	} {
		debug.SetMemoryLimit(math.MaxInt64)
		t.Setenv("GOMEMLIMIT", "")
		if c.env > 0 {
			t.Setenv("GOMEMLIMIT", fmt.Sprintf("%dMiB", c.env))
			debug.SetMemoryLimit(c.env * mib) // as Go does when a process starts
		}
		steps := limitMemory(c.limit, c.control).Usage().Limit / mib
		if process := debug.SetMemoryLimit(-1) / mib; steps != c.steps || process != c.process {
			t.Errorf("%+v: %d MiB for steps, %d MiB for the process", c, steps, process)
		}
	}
}

func TestWhatChecksAndRebuildsFoundIsCounted(t *testing.T) {
	m := newMetrics("mem://lake", blob.NewCounting(blob.NewMemory()), nil)
	m.add(activities.Verified{Found: 3, Problems: []string{"a"}})
	m.add(publish.Inspected{Lost: 1, Restored: 3})
	if damaged, restored := testutil.ToFloat64(m.damaged), testutil.ToFloat64(m.restored); damaged != 4 || restored != 3 {
		t.Errorf("%v damaged, %v restored", damaged, restored)
	}
}
