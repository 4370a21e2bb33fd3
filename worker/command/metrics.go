package command

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/export/postgres"
	"github.com/urlake/urlake/frontier/feed"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/storemetrics"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/ingest/many"
	"github.com/urlake/urlake/publish"
)

// stepBuckets are upper bounds in seconds. Steps of a small batch take milliseconds, a segment of
// billions of rows most of a day.
var stepBuckets = []float64{10e-3, 50e-3, 250e-3, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600}

// storeOps are the store operations that a worker uses.
var storeOps = []blob.Op{
	blob.OpStat, blob.OpGet, blob.OpReadRange, blob.OpOpen, blob.OpPut, blob.OpCreate, blob.OpFinish,
	blob.OpList, blob.OpDelete,
}

// metrics are the measurements of one worker, for Prometheus.
type metrics struct {
	registry  *prometheus.Registry
	sdk       *sdkMetrics
	durations *prometheus.HistogramVec
	failures  *prometheus.CounterVec
	records   *prometheus.CounterVec
	// readBytes counts input as stored, rows and partBytes what was written of it.
	readBytes, rows, partBytes prometheus.Counter
	// damaged counts objects that checks named and batches that rebuilds lost, restored the
	// postings objects that rebuilds extracted.
	damaged, restored prometheus.Counter
	// exported counts the rows that were copied into PostgreSQL.
	exported prometheus.Counter
	// frontier counts what was exchanged with crawl frontiers.
	frontier *prometheus.CounterVec

	memory *activities.Memory

	mu    sync.Mutex
	pools []*pool
}

// pool counts the steps of one pool.
type pool struct {
	interceptor.WorkerInterceptorBase
	metrics *metrics
	name    string
	slots   int
	busy    atomic.Int64 // slots that a step holds, also while it waits for memory
}

func newMetrics(lakeURL string, store *blob.Counting, memory *activities.Memory) *metrics {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "urlake_worker_" + name, Help: help}, labels)
	}
	one := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "urlake_worker_" + name, Help: help})
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		sdk:      newSDKMetrics(),
		memory:   memory,
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "urlake_worker_step_duration_seconds",
			Help: "Time of an attempt of a step, with its wait for memory, by activity and outcome: " +
				"completed, failed, cancelled, or returned, which is to another worker and no fault.",
			Buckets: stepBuckets,
		}, []string{"activity", "outcome"}),
		failures:  vec("step_errors_total", "Failed attempts of steps, by activity and type of error.", "activity", "type"),
		records:   vec("records_total", "Records that completed steps read, by outcome: kept or rejected.", "outcome"),
		readBytes: one("input_read_bytes_total", "Bytes of input, as stored, that completed steps read."),
		rows:      one("rows_written_total", "Rows that completed steps wrote to Parquet."),
		partBytes: one("parquet_written_bytes_total", "Bytes of Parquet that completed steps wrote."),
		damaged:   one("damaged_objects_total", "Damaged objects that checks named, and batches that rebuilds found lost."),
		restored:  one("restored_objects_total", "Lost postings objects that rebuilds extracted from Parquet."),
		exported:  one("exported_urls_total", "URLs that exports copied into PostgreSQL."),
		frontier: vec("frontier_lines_total",
			"What completed steps exchanged with crawl frontiers, by kind: seeded URLs, migrated rows, and visits.", "kind"),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "urlake_worker_info", Help: "Always 1; the labels are the worker's lake and build.",
		ConstLabels: prometheus.Labels{"lake": lakeURL, "version": cli.Version()},
	})
	info.Set(1)
	m.registry.MustRegister(m, m.sdk, m.durations, m.failures, m.records, m.readBytes, m.rows, m.partBytes, m.damaged, m.restored, m.exported, m.frontier, info,
		storemetrics.New(store, storeOps...), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector())
	return m
}

// pool adds a pool and returns the interceptor that counts its steps.
func (m *metrics) pool(name string, slots int) *pool {
	p := &pool{metrics: m, name: name, slots: slots}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pools = append(m.pools, p)
	return p
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("urlake_worker_"+name, help, labels, nil)
}

var (
	poolSlots   = desc("pool_slots", "Steps that the pool runs at once at most.", "pool")
	poolRunning = desc("pool_running", "Steps that run.", "pool")
	poolWaiting = desc("pool_waiting", "Steps that hold a slot and wait for memory, or for a step that runs alone.", "pool")
	saturation  = desc("pool_saturation", "Slots that hold a step, in percent of all slots of the pool.", "pool")
	memoryLimit = desc("memory_limit_bytes", "Memory for all steps together; 0 is no limit.")
	memoryHeld  = desc("memory_reserved_bytes", "Memory that running steps have reserved.")
)

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{poolSlots, poolRunning, poolWaiting, saturation, memoryLimit, memoryHeld} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	used := m.memory.Usage()
	gauge(memoryLimit, float64(used.Limit))
	gauge(memoryHeld, float64(used.Reserved))
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pools {
		busy, waiting := p.busy.Load(), used.Waiting[p.name]
		gauge(poolSlots, float64(p.slots), p.name)
		gauge(poolWaiting, float64(waiting), p.name)
		gauge(poolRunning, float64(max(0, busy-waiting)), p.name)
		gauge(saturation, 100*float64(busy)/float64(p.slots), p.name)
	}
}

// InterceptActivity implements interceptor.WorkerInterceptor.
func (p *pool) InterceptActivity(
	_ context.Context, next interceptor.ActivityInboundInterceptor,
) interceptor.ActivityInboundInterceptor {
	return &step{interceptor.ActivityInboundInterceptorBase{Next: next}, p}
}

// step counts the attempts of one step.
type step struct {
	interceptor.ActivityInboundInterceptorBase
	pool *pool
}

// ExecuteActivity implements interceptor.ActivityInboundInterceptor.
func (s *step) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (result any, err error) {
	m, name := s.pool.metrics, activity.GetInfo(ctx).ActivityType.Name
	s.pool.busy.Add(1)
	started := time.Now()
	outcome, kind := outcomeFailed, "panic" // unless the step returns
	defer func() {
		s.pool.busy.Add(-1)
		m.durations.WithLabelValues(name, outcome).Observe(time.Since(started).Seconds())
		if outcome == outcomeFailed {
			m.failures.WithLabelValues(name, kind).Inc()
		}
	}()
	result, err = s.Next.ExecuteActivity(ctx, in)
	if outcome, kind = classify(err); err == nil {
		m.add(result)
	}
	return result, named(err)
}

// named gives an error that Temporal retries a type for Temporal's pages, which otherwise show the
// error's type in Go.
func named(err error) error {
	var app *temporal.ApplicationError
	if err == nil || errors.As(err, &app) || temporal.IsCanceledError(err) || errors.Is(err, context.Canceled) {
		return err
	}
	return temporal.NewApplicationError(err.Error(), "Retried")
}

// Outcomes of an attempt of a step.
const (
	outcomeCompleted = "completed"
	outcomeFailed    = "failed"
	outcomeCancelled = "cancelled"
	outcomeReturned  = "returned"
)

// classify returns the outcome of an attempt and, if it failed, the type of the error: one of
// activities.FinalErrors, or "other", which Temporal retries.
func classify(err error) (outcome, kind string) {
	var app *temporal.ApplicationError
	switch {
	case err == nil:
		return outcomeCompleted, ""
	case temporal.IsCanceledError(err):
		return outcomeCancelled, ""
	case !errors.As(err, &app):
	case app.Category() == temporal.ApplicationErrorCategoryBenign:
		return outcomeReturned, ""
	case slices.Contains(activities.FinalErrors, app.Type()):
		return outcomeFailed, app.Type()
	}
	return outcomeFailed, "other"
}

// add adds what a step did to the counters.
func (m *metrics) add(result any) {
	switch r := result.(type) {
	case ingest.SplitResult:
		m.readBytes.Add(float64(r.Bytes))
		m.records.WithLabelValues("kept").Add(float64(r.Kept))
		m.records.WithLabelValues("rejected").Add(float64(r.Records - r.Kept))
	case ingest.MergeResult:
		m.rows.Add(float64(r.Rows))
		m.partBytes.Add(float64(r.Bytes))
	case publish.Rewritten:
		m.rows.Add(float64(r.Rows))
		m.partBytes.Add(float64(r.Bytes))
	case activities.FinishedSmall:
		m.add(r.Split)
		m.add(r.Merge)
	case activities.Verified:
		m.damaged.Add(float64(r.Found))
	case publish.Inspected:
		m.damaged.Add(float64(r.Lost))
		m.restored.Add(float64(r.Restored))
	case postgres.Loaded:
		m.exported.Add(float64(r.URLs))
	case activities.Seeded:
		m.frontier.WithLabelValues("seeded").Add(float64(r.Sent))
	case activities.Migrated:
		m.frontier.WithLabelValues("migrated").Add(float64(r.Sent))
	case feed.Collected:
		if !r.Again {
			m.frontier.WithLabelValues("visits").Add(float64(r.Visits))
		}
	case many.Progress:
		m.add(ingest.SplitResult{Bytes: r.BytesRead, Records: r.Records, Kept: r.Records - r.Rejected})
		m.add(ingest.MergeResult{Rows: r.Kept, Bytes: r.PartBytes})
	}
}
