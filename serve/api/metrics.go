package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/urlake/urlake/internal/storemetrics"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/lru"
	"github.com/urlake/urlake/serve/turns"
)

// Metrics are the measurements of one server, for Prometheus. Requests add to histograms. All other
// values are read from the server and its store when the metrics are collected.
type Metrics struct {
	registry *prometheus.Registry
	requests *prometheus.HistogramVec
	sent     *prometheus.CounterVec
	cut      *prometheus.CounterVec
	waits    *prometheus.HistogramVec
	state    *state
}

// buckets are upper bounds in seconds. A warm lookup takes tens of microseconds, a cold page over a
// slow network most of a second.
var buckets = []float64{
	25e-6, 50e-6, 100e-6, 250e-6, 500e-6,
	1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 100e-3, 250e-3,
	1, 2.5, 10,
}

// NewMetrics returns the metrics of a server and of the store that it reads.
func NewMetrics(server *lookup.Server, store *blob.Counting) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "urlake_http_request_duration_seconds",
			Help: "Time from reading a request's headers until the last byte of its answer is handed to the kernel, " +
				"by route and status. 499: the client closed the connection first.",
			Buckets: buckets,
		}, []string{"route", "status"}),
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "urlake_http_sent_bytes_total", Help: "Bytes of answers sent, as compressed, without headers.",
		}, []string{"route"}),
		cut: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "urlake_http_cut_total",
			Help: "Answers that were not sent to their end: the client went, or received too slowly, or a stream failed.",
		}, []string{"route"}),
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "urlake_http_wait_seconds", Help: "How long admitted requests waited at their gate.", Buckets: buckets,
		}, []string{"gate"}),
		state: &state{server: server, turns: server.Turns()},
	}
	m.registry.MustRegister(m.requests, m.sent, m.cut, m.waits, m.state, storemetrics.New(store, storeOps...), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector())
	return m
}

// Handler serves the metrics in Prometheus's text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// measured are the metrics of one route. The histogram of status 200 is kept apart, because finding
// it by its label costs as much as hashing a domain.
type measured struct {
	ok    prometheus.Observer
	other prometheus.ObserverVec
	sent  prometheus.Counter
	cut   prometheus.Counter
}

func (m *Metrics) route(name string) *measured {
	vec := m.requests.MustCurryWith(prometheus.Labels{"route": name})
	return &measured{
		ok: vec.WithLabelValues("200"), other: vec, sent: m.sent.WithLabelValues(name), cut: m.cut.WithLabelValues(name),
	}
}

func (l *measured) observe(status int, took time.Duration, sent int64, cut bool) {
	observer := l.ok
	if status != http.StatusOK {
		observer = l.other.WithLabelValues(strconv.Itoa(status))
	}
	observer.Observe(took.Seconds())
	l.sent.Add(float64(sent))
	if cut {
		l.cut.Inc()
	}
}

// gate makes a gate ready and measures it.
func (m *Metrics) gate(g *gate) *gate {
	g.holders, g.moving = map[client]*holder{}, map[*ticket]*Transfer{}
	g.waits = m.waits.WithLabelValues(g.name)
	m.state.gates = append(m.state.gates, g)
	return g
}

// Connections measures those of a server.
func (m *Metrics) Connections(c *Connections) { m.state.connections = c }

// state collects the values that the server counts itself.
type state struct {
	server  *lookup.Server
	gates   []*gate
	turns   *turns.Turns
	answers *answerCache
	// tokens counts the tokens of principals that were verified before; nil if each is looked up.
	tokens      interface{ Stats() lru.Stats }
	connections *Connections // nil if they are not counted
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("urlake_"+name, help, labels, nil)
}

var (
	versionInfo      = desc("version_info", "Always 1; the label is the current version.", "version")
	versionPublished = desc("version_published_timestamp_seconds", "When the current version was published.")
	versionRows      = desc("version_rows", "Rows of the current version.")
	versionDatasets  = desc("version_datasets", "Datasets of the current version.")
	versionSegments  = desc("version_segments", "Segments of the current version.")
	versionDeadRows  = desc("version_dead_rows",
		"Rows of the segments that the current version does not have. A compaction drops them.")
	openVersions = desc("open_versions",
		"Open versions: the current one and those kept open for version= and cursors.")

	leasedVersions = desc("leased_versions",
		"Versions that the server's lease names. 0 without a lease and after it has expired.")
	leaseFailures = desc("lease_failures_total", "Writes of the server's lease that failed.")

	manifestGeneration = desc("manifest_generation", "Generation of the newest manifest seen.")
	manifestRead       = desc("manifest_read_timestamp_seconds", "When the manifest was last read or found unchanged.")
	manifestFollowed   = desc("manifest_followed", "1 while the newest manifest is served, 0 while it cannot be.")

	takedownEpoch = desc("takedown_epoch", "Grows by one whenever a takedown is added or lifted, as far as this server has seen.")
	takedownRules = desc("takedowns", "Takedowns in force.")
	takedownRead  = desc("takedown_refresh_seconds", "How long it took to read the takedowns when they last changed.")
	deletionBytes = desc("deletion_bytes", "Memory of the deletion tables, which say which rows are hidden or dead.")

	gateInFlight = desc("http_in_flight", "Requests that passed the gate and whose answers are not sent yet.", "gate")
	gateWorking  = desc("http_working", "Answers that are being made.", "gate")
	gateWaiting  = desc("http_waiting", "Requests that wait at the gate.", "gate")
	gateBytes    = desc("http_answer_bytes", "Memory that answers take or are expected to take until they are sent.", "gate")
	gateBudget   = desc("http_answer_limit_bytes", "Memory for answers.", "gate")
	gateShed     = desc("http_shed_total",
		"Requests that were shed. full: no room at the gate, 503. client: the client's own requests took it, 429. "+
			"slow: it was cut, because it was slow to send or to receive and others waited.", "gate", "reason")

	hotNames = desc("hot_names", "Domains and lists whose requests are counted, to have them in the caches before a version is served.")
	warmed   = desc("warm_total",
		"What was asked for most and was to be read before a version was served. ok: it was. late: there was no time, or it could not be read.", "result")
	warmTime  = desc("warm_seconds_total", "How long new versions waited for what is asked for most.")
	readAhead = desc("read_ahead_total",
		"Pages of lists before they were asked for. read: they were read. skipped: too many were being read. cancelled: nobody waited any more, or they failed.",
		"result")

	turnWaits = desc("turn_waits_total",
		"How often heavy work waited for its turn at the processors, of which one is left to light requests while these come.")
	turnWaited = desc("turn_wait_seconds_total", "How long heavy work waited for its turns.")

	connectionsNow   = desc("connections", "Connections of clients. idle: between two requests, or before the first.", "state")
	connectionsLimit = desc("connections_limit", "The highest number of connections (--max-connections).")
	connectionsShed  = desc("connections_shed_total",
		"Connections that were closed. idle: to make room for a new one. full: new ones, as none was idle. headers: their headers were too large for the memory left.",
		"reason")
	headerBytes = desc("header_bytes", "Memory of large headers of requests.")

	cacheHits    = desc("cache_hits_total", "Values found in a cache.", "cache")
	cacheMisses  = desc("cache_misses_total", "Values not found in a cache.", "cache")
	cacheEntries = desc("cache_entries", "Values in a cache.", "cache")
	cacheBytes   = desc("cache_bytes", "Bytes of the values in a cache.", "cache")
	indexBytes   = desc("index_bytes", "Memory of the open segments, without caches and mapped files.")
	mappedBytes  = desc("mapped_bytes", "Size of the mapped index files, resident or not.")
)

// storeOps are the store operations that a server uses. It puts and deletes its lease alone.
var storeOps = []blob.Op{blob.OpStat, blob.OpGet, blob.OpReadRange, blob.OpOpen, blob.OpPut, blob.OpDelete}

// Describe implements prometheus.Collector. It describes nothing, because the metrics of the
// version exist only while a version is open.
func (s *state) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s *state) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	st := s.server.Status()
	followed := 0.0
	if st.Version != "" {
		gauge(versionInfo, 1, st.Version)
		gauge(versionPublished, float64(st.Published.UnixMilli())/1e3)
		gauge(versionRows, float64(st.Counts.Rows))
		gauge(versionDatasets, float64(st.Counts.Datasets))
		gauge(versionSegments, float64(st.Counts.Segments))
		gauge(versionDeadRows, float64(st.DeadRows))
		gauge(manifestGeneration, float64(st.Generation))
		if st.Err == nil {
			followed = 1
		}
	}
	if !st.Polled.IsZero() {
		gauge(manifestRead, float64(st.Polled.UnixMilli())/1e3)
	}
	gauge(manifestFollowed, followed)
	gauge(openVersions, float64(st.Open))
	gauge(leasedVersions, float64(st.Leased))
	counter(leaseFailures, st.LeaseFailures)
	caches := map[string]lru.Stats{
		"frames": st.Frames, "pages": st.Pages, "answers": s.answers.Stats(),
	}
	if s.tokens != nil {
		caches["tokens"] = s.tokens.Stats()
	}
	for name, c := range caches {
		counter(cacheHits, c.Hits, name)
		counter(cacheMisses, c.Misses, name)
		gauge(cacheEntries, float64(c.Entries), name)
		gauge(cacheBytes, float64(c.Bytes), name)
	}
	ahead := &st.Ahead
	gauge(hotNames, float64(ahead.Hot))
	counter(warmed, ahead.Warmed, "ok")
	counter(warmed, ahead.Late, "late")
	ch <- prometheus.MustNewConstMetric(warmTime, prometheus.CounterValue, ahead.WarmTime.Seconds())
	counter(readAhead, ahead.Pages, "read")
	counter(readAhead, ahead.Skipped, "skipped")
	counter(readAhead, ahead.Cancelled, "cancelled")
	gauge(indexBytes, float64(st.IndexBytes))
	gauge(takedownEpoch, float64(st.TakedownEpoch))
	gauge(takedownRules, float64(st.Takedowns))
	gauge(takedownRead, st.TakedownRefresh.Seconds())
	gauge(deletionBytes, float64(st.DeletionBytes))
	gauge(mappedBytes, float64(st.MappedBytes))
	for _, g := range s.gates {
		st := g.stats()
		gauge(gateInFlight, float64(st.admitted), g.name)
		gauge(gateWorking, float64(st.working), g.name)
		gauge(gateWaiting, float64(st.waiting), g.name)
		gauge(gateBytes, float64(st.used), g.name)
		gauge(gateBudget, float64(st.budget), g.name)
		for reason := range shedReasons {
			counter(gateShed, g.shed[reason].Load(), g.name, reason.String())
		}
	}
	waits := s.turns.Stats()
	counter(turnWaits, waits.Waits)
	ch <- prometheus.MustNewConstMetric(turnWaited, prometheus.CounterValue, waits.Waited.Seconds())
	if c := s.connections; c != nil {
		st := c.Stats()
		gauge(connectionsNow, float64(st.Idle), "idle")
		gauge(connectionsNow, float64(st.Open-st.Idle), "active")
		gauge(connectionsLimit, float64(st.Limit))
		gauge(headerBytes, float64(st.Headers))
		for reason, n := range st.Shed {
			counter(connectionsShed, n, reason)
		}
	}
}
