// Package storemetrics exports what a blob.Counting counts, for Prometheus. A worker and a server
// have the same metrics of their store.
package storemetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/urlake/urlake/lake/blob"
)

var (
	requests = prometheus.NewDesc("urlake_store_requests_total",
		"Requests to the lake's store.", []string{"operation"}, nil)
	failures = prometheus.NewDesc("urlake_store_errors_total",
		"Requests to the lake's store that failed, by reason. Absent objects and failed conditions are often expected.",
		[]string{"operation", "reason"}, nil)
	readBytes = prometheus.NewDesc("urlake_store_read_bytes_total",
		"Bytes read from the lake's store.", []string{"operation"}, nil)
	writtenBytes = prometheus.NewDesc("urlake_store_written_bytes_total",
		"Bytes written to the lake's store.", []string{"operation"}, nil)
)

// bytesOf names the operations that move bytes and the metric that counts them.
var bytesOf = map[blob.Op]*prometheus.Desc{
	blob.OpGet: readBytes, blob.OpReadRange: readBytes, blob.OpOpen: readBytes,
	blob.OpPut: writtenBytes, blob.OpCreate: writtenBytes,
}

type collector struct {
	store *blob.Counting
	ops   []blob.Op
}

// New returns a collector of the counts of some operations of a store.
func New(store *blob.Counting, ops ...blob.Op) prometheus.Collector { return collector{store, ops} }

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{requests, failures, readBytes, writtenBytes} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for _, op := range c.ops {
		n := c.store.Count(op)
		counter(requests, n.Requests, op.String())
		for _, why := range blob.Failures {
			counter(failures, c.store.Failed(op, why), op.String(), why.String())
		}
		if d := bytesOf[op]; d != nil {
			counter(d, n.Bytes, op.String())
		}
	}
}
