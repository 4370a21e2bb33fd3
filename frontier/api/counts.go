package api

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/urlake/urlake/frontier"
)

// countsCollector tells what happened in the process, and which queues are ready.
type countsCollector struct{ f *frontier.Frontier }

var (
	reopenedDesc   = prometheus.NewDesc("urlake_frontier_reopened_total", "Shards that were opened again, because files or Redis had failed.", nil, nil)
	tornDesc       = prometheus.NewDesc("urlake_frontier_torn_total", "Journals whose end was cut: a process or machine had died while it was written.", nil, nil)
	expiredDesc    = prometheus.NewDesc("urlake_frontier_expired_total", "Leases that ended without a result.", nil, nil)
	commandsDesc   = prometheus.NewDesc("urlake_frontier_redis_commands_total", "Commands and pipelines that Redis was sent.", nil, nil)
	secondsDesc    = prometheus.NewDesc("urlake_frontier_redis_seconds_total", "How long Redis took for them, together.", nil, nil)
	errorsDesc     = prometheus.NewDesc("urlake_frontier_redis_errors_total", "Those without an answer, or that Redis could not do.", nil, nil)
	configuredDesc = prometheus.NewDesc("urlake_frontier_shards_configured", "Shards that the frontier has.", nil, nil)
	heldDesc       = prometheus.NewDesc("urlake_frontier_shards_held", "Shards that the process would serve if another one, which Redis does not hear of, did not have their files open.", nil, nil)
	readyDesc      = prometheus.NewDesc("urlake_frontier_ready", "Queues with URLs that wait and that may be asked now, by crawl.", []string{"crawl"}, nil)
	restingDesc    = prometheus.NewDesc("urlake_frontier_resting", "Queues with URLs that wait and that may not be asked yet, by crawl.", []string{"crawl"}, nil)
)

// Describe implements prometheus.Collector.
func (countsCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{reopenedDesc, tornDesc, expiredDesc, commandsDesc, secondsDesc, errorsDesc, configuredDesc, heldDesc, readyDesc, restingDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c countsCollector) Collect(to chan<- prometheus.Metric) {
	n := c.f.Counts()
	for d, v := range map[*prometheus.Desc]float64{
		reopenedDesc: float64(n.Reopened), tornDesc: float64(n.Torn), expiredDesc: float64(n.Expired),
		commandsDesc: float64(n.Redis.Commands), secondsDesc: n.Redis.Time.Seconds(), errorsDesc: float64(n.Redis.Errors),
	} {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v)
	}
	to <- prometheus.MustNewConstMetric(configuredDesc, prometheus.GaugeValue, float64(c.f.Shards()))
	to <- prometheus.MustNewConstMetric(heldDesc, prometheus.GaugeValue, float64(c.f.Held()))
	for _, r := range c.f.Ready() {
		crawl := strings.ToValidUTF8(r.Crawl, "?")
		to <- prometheus.MustNewConstMetric(readyDesc, prometheus.GaugeValue, float64(r.Ready), crawl)
		to <- prometheus.MustNewConstMetric(restingDesc, prometheus.GaugeValue, float64(r.All-r.Ready), crawl)
	}
}
