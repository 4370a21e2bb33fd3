// Package urlfrontier serves a frontier by the URLFrontier protocol of crawler-commons over gRPC,
// so that crawlers that speak it, such as StormCrawler, need no change. Package urlfrontierpb has
// the protocol.
//
// # What the protocol does not say
//
// A URL is known by its canonical form: of two spellings of one URL the second is known. The client
// gets the spelling back that it has put. The queue of a URL without a key is the host of its
// canonical form.
//
// The metadata of a URL is kept as a JSON object with an array of strings for each name. So it can
// be read over HTTP, too. Of metadata that came over HTTP, strings and arrays of strings are
// returned as they are, and other values as JSON.
//
// The protocol has no leases: a client reports by URL. A report that comes after another client has
// got the URL counts as if that one had sent it. Only the HTTP front fences.
//
// # Several processes
//
// Whichever process is asked answers for all, unless the request says local. It asks the others by
// the same protocol, with the request marked so that it is not sent on once more. Where a process
// cannot be reached, or nobody serves a part of the frontier, the answer is UNAVAILABLE; URLs are
// acknowledged with FAIL, and GetURLs does without.
package urlfrontier

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/urlake/urlake/frontier"
	pb "github.com/urlake/urlake/frontier/urlfrontier/urlfrontierpb"
)

// window is how much a client may send on a connection before it was read: enough for a fast
// network, and the bound of what waits in memory for a slow frontier.
const window = 4 << 20

// Server serves a frontier.
type Server struct {
	// A method that is missing is an error of the compiler, not an answer.
	pb.UnsafeURLFrontierServer

	f       *frontier.Frontier
	log     *slog.Logger
	level   *slog.LevelVar
	grpc    *grpc.Server
	peers   peers
	metrics *metrics
	health  *health.Server
	// stopping ends the streams of clients.
	stopping context.Context
	stop     context.CancelFunc
}

// New returns a server of a frontier, which counts in a registry. SetLogLevel changes level.
func New(f *frontier.Frontier, log *slog.Logger, level *slog.LevelVar, registry prometheus.Registerer) *Server {
	s := &Server{f: f, log: log, level: level, metrics: newMetrics(registry), health: health.NewServer()}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.grpc = grpc.NewServer(
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingInterval / 2}),
		grpc.UnaryInterceptor(s.unary), grpc.StreamInterceptor(s.stream),
	)
	pb.RegisterURLFrontierServer(s.grpc, s)
	grpc_health_v1.RegisterHealthServer(s.grpc, s.health)
	return s
}

// failure is the status of an error.
func (s *Server) failure(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	case errors.Is(err, frontier.ErrElsewhere):
		return status.Error(codes.Unavailable, err.Error()+", or none does at the moment: try again")
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	s.log.Error(err.Error())
	return status.Error(codes.Unavailable, "the frontier cannot do this now; its log says why")
}

// crawlOf is the crawl that a crawlID means.
func crawlOf(id string) string {
	if strings.TrimSpace(id) == "" {
		return frontier.DefaultCrawl
	}
	return id
}

// Serve serves until Stop.
func (s *Server) Serve(listener net.Listener) error { return s.grpc.Serve(listener) }

// Stop ends the streams of clients, and waits for their last acknowledgements and for running
// requests, until the context is over.
func (s *Server) Stop(ctx context.Context) error {
	s.stop()
	s.health.Shutdown()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.grpc.GracefulStop()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		s.grpc.Stop()
		<-done
	}
	return s.peers.close()
}
