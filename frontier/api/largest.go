package api

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/urlake/urlake/frontier"
)

// largestShown is how many of the largest queues metrics and stats have.
const largestShown = 10

// sizeAnswer is how many URLs wait in a queue.
type sizeAnswer struct {
	Domain  string `json:"domain"`
	Crawl   string `json:"crawl"`
	Waiting int64  `json:"waiting"`
}

func (h *Handler) largest() []sizeAnswer {
	all := []sizeAnswer{}
	top, _ := h.f.Largest(largestShown)
	for _, q := range top {
		all = append(all, sizeAnswer{q.Key, q.Crawl, q.Waiting})
	}
	return all
}

// domainsCollector tells about the largest queues and about exclusions.
type domainsCollector struct{ f *frontier.Frontier }

var (
	largestDesc  = prometheus.NewDesc("urlake_frontier_largest_waiting", "URLs that wait in the ten largest queues.", []string{"domain", "crawl"}, nil)
	alarmedDesc  = prometheus.NewDesc("urlake_frontier_large_queues", "Queues in which more URLs wait than --alarm-waiting.", nil, nil)
	rulesDesc    = prometheus.NewDesc("urlake_frontier_exclusions", "Takedowns of the lake that are exclusions.", nil, nil)
	hiddenDesc   = prometheus.NewDesc("urlake_frontier_excluded_domains", "Domains with waiting URLs that takedowns keep back.", nil, nil)
	droppedDesc  = prometheus.NewDesc("urlake_frontier_excluded_total", "URLs that were taken down while they waited.", nil, nil)
	failuresDesc = prometheus.NewDesc("urlake_frontier_exclusions_failures", "Times that the lake could not be read, since it was read last.", nil, nil)
	ageDesc      = prometheus.NewDesc("urlake_frontier_exclusions_age_seconds", "How long ago the lake was read last.", nil, nil)
)

// Describe implements prometheus.Collector.
func (domainsCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{largestDesc, alarmedDesc, rulesDesc, hiddenDesc, droppedDesc, failuresDesc, ageDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c domainsCollector) Collect(to chan<- prometheus.Metric) {
	top, large := c.f.Largest(largestShown)
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, q := range top {
		gauge(largestDesc, float64(q.Waiting), strings.ToValidUTF8(q.Key, "?"), strings.ToValidUTF8(q.Crawl, "?"))
	}
	gauge(alarmedDesc, float64(large))
	s := c.f.ExclusionStats()
	to <- prometheus.MustNewConstMetric(droppedDesc, prometheus.CounterValue, float64(s.Dropped))
	if s.Read.IsZero() {
		return
	}
	gauge(rulesDesc, float64(s.Rules))
	gauge(hiddenDesc, float64(s.Hidden))
	gauge(failuresDesc, float64(s.Failures))
	gauge(ageDesc, time.Since(s.Read).Seconds())
}
