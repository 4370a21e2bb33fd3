package urlfrontier

import (
	"context"
	"path"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	pb "github.com/urlake/urlake/frontier/urlfrontier/urlfrontierpb"
)

// metrics are what the front tells Prometheus.
type metrics struct {
	calls *prometheus.HistogramVec
	urls  *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "urlake_frontier_grpc_seconds", Help: "Time that gRPC calls took, by method and status; those of PutURLs and PutDiscovered last as long as clients like.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}, []string{"method", "code"}),
		urls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "urlake_frontier_grpc_urls_total", Help: "URLs that were put or got by gRPC, by method and status.",
		}, []string{"method", "status"}),
	}
	registry.MustRegister(m.calls, m.urls)
	return m
}

func (m *metrics) observe(method string, began time.Time, err error) {
	m.calls.WithLabelValues(path.Base(method), status.Code(err).String()).Observe(time.Since(began).Seconds())
}

// count counts the statuses of URLs.
func count[T any](m *metrics, method string, all []T, status func(T) pb.AckMessage_Status) {
	var n [3]int
	for _, v := range all {
		n[status(v)]++
	}
	for st, n := range n {
		if n > 0 {
			m.urls.WithLabelValues(method, pb.AckMessage_Status(st).String()).Add(float64(n))
		}
	}
}

func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	began := time.Now()
	res, err := next(ctx, req)
	s.metrics.observe(info.FullMethod, began, err)
	return res, err
}

func (s *Server) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	began := time.Now()
	err := next(srv, stream)
	s.metrics.observe(info.FullMethod, began, err)
	return err
}
