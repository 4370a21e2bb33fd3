package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
)

const (
	// probeTimeout is how long Temporal and the store may take to answer a probe.
	probeTimeout = 3 * time.Second
	// probeEvery is how long the answers are kept, so that frequent probes cost little. Those of a
	// worker that is not ready are kept for probeStart, as it is soon.
	probeEvery = 5 * time.Second
	probeStart = 200 * time.Millisecond
	// pollerGone is how long after its last poll a poller counts as gone. A poll takes up to 70
	// seconds if there is no work.
	pollerGone = 150 * time.Second
	// headerTimeout is how long a client of the probes may take to send its request.
	headerTimeout = 10 * time.Second
)

// probes says whether a worker can work: it is connected to Temporal, its store answers, and its
// pools poll their queues.
type probes struct {
	lakeURL  string
	store    blob.Store
	draining atomic.Bool

	mu        sync.Mutex    // guards the connection
	client    client.Client // nil until connected
	namespace string
	polling   map[string]string // pool to the identity of its worker; nil until all have started

	looking sync.Mutex // guards last
	last    state
}

// state is what the last look at Temporal and the store found.
type state struct {
	at      time.Time
	pools   int      // that polled then
	reasons []string // why the worker is not ready
	queues  map[string]*taskqueue.TaskQueueStats
}

// connected tells the probes of the connection to Temporal.
func (p *probes) connected(c client.Client, namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.client, p.namespace = c, namespace
}

// started tells the probes that all pools poll, under these identities.
func (p *probes) started(polling map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.polling = polling
}

// look returns the state of at most probeEvery ago, or probeStart if the worker was not ready.
func (p *probes) look(ctx context.Context) state {
	if p.draining.Load() {
		return state{reasons: []string{"the worker stops and takes no more steps"}}
	}
	p.mu.Lock()
	c, polling := p.client, p.polling
	p.mu.Unlock()
	p.looking.Lock()
	defer p.looking.Unlock()
	keep := probeEvery
	if len(p.last.reasons) > 0 {
		keep = probeStart
	}
	if p.last.pools == len(polling) && time.Since(p.last.at) < keep {
		return p.last
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
	defer cancel()
	s := state{pools: len(polling), queues: map[string]*taskqueue.TaskQueueStats{}}
	// The store and Temporal are asked at once, so that a probe takes probeTimeout at most.
	stored := make(chan error, 1)
	go func() {
		_, err := p.store.Stat(ctx, lake.RegistryKey)
		if errors.Is(err, blob.ErrNotExist) {
			err = nil // the first ingest makes the lake
		}
		stored <- err
	}()
	switch {
	case c == nil:
		s.reasons = append(s.reasons, "waiting for Temporal")
	case polling == nil:
		s.reasons = append(s.reasons, "the pools are starting")
	default:
		for _, pool := range activities.Pools {
			if identity, ok := polling[pool]; ok {
				if err := p.describe(ctx, c, pool, identity, s.queues); err != nil {
					s.reasons = append(s.reasons, err.Error())
				}
			}
		}
	}
	if err := <-stored; err != nil {
		s.reasons = append(s.reasons, "the store: "+err.Error())
	}
	s.at = time.Now()
	p.last = s
	return s
}

// describe adds the statistics of a pool's queue to queues. It returns an error if Temporal does
// not answer or does not see the pool poll.
func (p *probes) describe(
	ctx context.Context, c client.Client, pool, identity string, queues map[string]*taskqueue.TaskQueueStats,
) error {
	queue := activities.TaskQueue(p.lakeURL, pool)
	r, err := c.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
		Namespace: p.namespace, TaskQueue: &taskqueue.TaskQueue{Name: queue},
		TaskQueueType: enums.TASK_QUEUE_TYPE_ACTIVITY, ReportStats: true,
	})
	if err != nil {
		return fmt.Errorf("Temporal: describe task queue %s: %w", queue, err)
	}
	queues[pool] = r.GetStats()
	for _, poller := range r.GetPollers() {
		if poller.GetIdentity() == identity && time.Since(poller.GetLastAccessTime().AsTime()) < pollerGone {
			return nil
		}
	}
	return fmt.Errorf("pool %s does not poll %s", pool, queue)
}

// ServeHTTP answers /readyz: 200 if the worker can work, or 503 and a line for each reason why not.
func (p *probes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	s := p.look(r.Context())
	if len(s.reasons) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, strings.Join(s.reasons, "\n"))
		return
	}
	fmt.Fprintln(w, "ready")
}

var (
	ready      = desc("ready", "1 if /readyz answers 200, otherwise 0.")
	backlog    = desc("pool_backlog", "Steps of the pool that wait in Temporal for a worker, approximately.", "pool")
	backlogAge = desc("pool_backlog_age_seconds", "How long the oldest of these steps waits.", "pool")
)

// Describe implements prometheus.Collector.
func (p *probes) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{ready, backlog, backlogAge} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (p *probes) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s := p.look(context.Background())
	if len(s.reasons) == 0 {
		gauge(ready, 1)
	} else {
		gauge(ready, 0)
	}
	for _, pool := range slices.Sorted(maps.Keys(s.queues)) {
		gauge(backlog, float64(s.queues[pool].GetApproximateBacklogCount()), pool)
		gauge(backlogAge, s.queues[pool].GetApproximateBacklogAge().AsDuration().Seconds(), pool)
	}
}

// listen serves /metrics, /healthz and /readyz on an address until stop is called.
func listen(address string, m *metrics, p *probes, stderr io.Writer) (stop func(), err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--metrics: %w", err)
	}
	m.registry.MustRegister(p)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	mux.Handle("GET /readyz", p)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	log := slog.NewTextHandler(cli.Printable(stderr), nil)
	server := &http.Server{
		Handler: new(cli.Hosts).Guard("about:blank", slog.New(log), mux, address), ReadHeaderTimeout: headerTimeout,
		ErrorLog: slog.NewLogLogger(log, slog.LevelWarn),
	}
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			cli.Fprintf(stderr, "worker: metrics: %v\n", err)
		}
	}()
	cli.Fprintf(stderr, "worker: metrics at http://%s/metrics\n", l.Addr())
	return func() { server.Close() }, nil
}
