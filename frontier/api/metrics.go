package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/urlake/urlake/frontier"
)

// metrics are what a server tells Prometheus.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.HistogramVec
	lines    *prometheus.CounterVec
	claims   *prometheus.CounterVec
}

// lineResults are what can become of lines, and claims.
var lineResults = []string{"added", "known", "updated", "rejected", "elsewhere", "claimed", "settled", "retried", "ended"}

func newMetrics(f *frontier.Frontier) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "urlake_frontier_request_seconds", Help: "Time that requests took, by route and status; claims include their wait.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}, []string{"route", "status"}),
		lines: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "urlake_frontier_results_total", Help: "URLs and results by what became of them, and claims.",
		}, []string{"result"}),
		claims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "urlake_frontier_claims_total", Help: "Requests for claims by what they found: some, or none until the end of their wait.",
		}, []string{"found"}),
	}
	for _, result := range lineResults {
		m.lines.WithLabelValues(result) // a rate needs a first value
	}
	for _, found := range []string{"some", "none"} {
		m.claims.WithLabelValues(found)
	}
	m.registry.MustRegister(m.requests, m.lines, m.claims, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		statsCollector{f}, domainsCollector{f}, countsCollector{f})
	return m
}

// statsCollector asks the shards once for each scrape.
type statsCollector struct{ f *frontier.Frontier }

var (
	statNames  = []string{"shards", "queues", "waiting", "later", "leased", "settled", "visits", "memory_bytes", "runs", "seen_files"}
	statHelps  = []string{"Shards that this process serves.", "Queues with URLs that wait or are leased.", "URLs that wait.", "URLs that are due later.", "URLs that are leased.", "URLs that are settled.", "Results that were kept.", "About the memory of URLs that wait to be written to files.", "Files of waiting URLs.", "Files of seen URLs."}
	statsDescs = func() (all []*prometheus.Desc) {
		for i, name := range statNames {
			all = append(all, prometheus.NewDesc("urlake_frontier_"+name, statHelps[i], nil, nil))
		}
		return all
	}()
)

// Describe implements prometheus.Collector.
func (statsCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range statsDescs {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c statsCollector) Collect(to chan<- prometheus.Metric) {
	s := c.f.Stats()
	values := []int64{int64(s.Shards), s.Queues, s.Pending, s.Later, s.Leased, s.Done, s.Visits, s.Memory, s.Runs, s.SeenFiles}
	for i, v := range values {
		to <- prometheus.MustNewConstMetric(statsDescs[i], prometheus.GaugeValue, float64(v))
	}
}

// Registry is what GET /metrics shows. The program's other servers add theirs.
func (h *Handler) Registry() prometheus.Registerer { return h.metrics.registry }

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// count counts lines of an answer. Those that another process has sent on that one counts.
func (m *metrics) count(r *http.Request, results []lineResult) {
	if r.Header.Get(forwarded) != "" {
		return
	}
	for i := 0; i < len(results); {
		n := i + 1
		for n < len(results) && results[n].Result == results[i].Result {
			n++
		}
		if results[i].Result != "" {
			m.lines.WithLabelValues(results[i].Result).Add(float64(n - i))
		}
		i = n
	}
}

// claimed counts a request for claims that found n.
func (m *metrics) claimed(r *http.Request, n int) {
	if r.Header.Get(forwarded) != "" {
		return
	}
	found := "some"
	if n == 0 {
		found = "none"
	}
	m.claims.WithLabelValues(found).Inc()
	m.lines.WithLabelValues("claimed").Add(float64(n))
}

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// timed measures a route.
func (m *metrics) timed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		sw := &statusWriter{w, http.StatusOK}
		next.ServeHTTP(sw, r)
		m.requests.WithLabelValues(r.Pattern, strconv.Itoa(sw.status)).Observe(time.Since(began).Seconds())
	})
}
