package command

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"
)

// maxSDKSeries bounds the series of the Temporal SDK. A worker has some hundreds. People can start
// workflows of any name, which the SDK uses as a label.
const maxSDKSeries = 4000

// sdkBuckets are upper bounds in seconds of the SDK's timers: requests to Temporal take
// milliseconds, steps up to hours.
var sdkBuckets = []float64{1e-3, 5e-3, 10e-3, 50e-3, 100e-3, 500e-3, 1, 5, 10, 60, 600, 3600, 6 * 3600}

// sdkMetrics is the Temporal SDK's metrics for Prometheus. The names are those that Temporal's
// documentation and dashboards use: counters end in _total, timers in _seconds. The SDK's own
// OpenTelemetry handler exports counters as gauges.
type sdkMetrics struct {
	mu     sync.Mutex
	series map[string]prometheus.Metric
}

func newSDKMetrics() *sdkMetrics { return &sdkMetrics{series: map[string]prometheus.Metric{}} }

// Describe implements prometheus.Collector. It describes nothing, because the SDK makes up its
// metrics as it runs, some of one name with different labels.
func (m *sdkMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *sdkMetrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	all := slices.Collect(maps.Values(m.series))
	m.mu.Unlock()
	for _, s := range all {
		ch <- s
	}
}

// Handler returns the handler for the options of a client.
func (m *sdkMetrics) Handler() client.MetricsHandler { return sdkHandler{metrics: m} }

// sdkHandler makes series with its tags as labels.
type sdkHandler struct {
	metrics *sdkMetrics
	tags    map[string]string
}

// get returns the series of that name and the tags, which it makes if there is none. It returns
// false if there are too many series.
func get[M prometheus.Metric](h sdkHandler, name string, create func(prometheus.Labels) M) (M, bool) {
	var key strings.Builder
	key.WriteString(name)
	for _, k := range slices.Sorted(maps.Keys(h.tags)) {
		key.WriteString("\x00" + k + "\x00" + h.tags[k])
	}
	h.metrics.mu.Lock()
	defer h.metrics.mu.Unlock()
	if found, ok := h.metrics.series[key.String()]; ok {
		m, ok := found.(M)
		return m, ok
	}
	var none M
	if len(h.metrics.series) >= maxSDKSeries {
		return none, false
	}
	m := create(h.tags)
	h.metrics.series[key.String()] = m
	return m, true
}

const sdkHelp = "A metric of the Temporal SDK; see its documentation."

// WithTags implements client.MetricsHandler.
func (h sdkHandler) WithTags(tags map[string]string) client.MetricsHandler {
	all := maps.Clone(tags)
	for k, v := range h.tags {
		if _, ok := tags[k]; !ok {
			all[k] = v
		}
	}
	return sdkHandler{h.metrics, all}
}

// Counter implements client.MetricsHandler.
func (h sdkHandler) Counter(name string) client.MetricsCounter {
	c, ok := get(h, name+"_total", func(l prometheus.Labels) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name + "_total", Help: sdkHelp, ConstLabels: l})
	})
	if !ok {
		return client.MetricsNopHandler.Counter(name)
	}
	return counter{c}
}

// Gauge implements client.MetricsHandler.
func (h sdkHandler) Gauge(name string) client.MetricsGauge {
	g, ok := get(h, name, func(l prometheus.Labels) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: sdkHelp, ConstLabels: l})
	})
	if !ok {
		return client.MetricsNopHandler.Gauge(name)
	}
	return gauge{g}
}

// Timer implements client.MetricsHandler.
func (h sdkHandler) Timer(name string) client.MetricsTimer {
	t, ok := get(h, name+"_seconds", func(l prometheus.Labels) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: name + "_seconds", Help: sdkHelp, ConstLabels: l, Buckets: sdkBuckets,
		})
	})
	if !ok {
		return client.MetricsNopHandler.Timer(name)
	}
	return timer{t}
}

type counter struct{ c prometheus.Counter }

func (c counter) Inc(n int64) {
	if n > 0 { // a counter panics below 0
		c.c.Add(float64(n))
	}
}

type gauge struct{ g prometheus.Gauge }

func (g gauge) Update(v float64) { g.g.Set(v) }

type timer struct{ h prometheus.Histogram }

func (t timer) Record(d time.Duration) { t.h.Observe(d.Seconds()) }
