package urlfrontier

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/urlake/urlake/frontier"
	pb "github.com/urlake/urlake/frontier/urlfrontier/urlfrontierpb"
)

// ListNodes implements the protocol.
func (s *Server) ListNodes(ctx context.Context, _ *pb.Empty) (*pb.StringList, error) {
	names, err := s.f.Nodes(ctx)
	if err != nil {
		return nil, s.failure(err)
	}
	var list pb.StringList
	for _, name := range names {
		if address := addressOf(name); address != "" {
			list.Values = append(list.Values, address)
		}
	}
	slices.Sort(list.Values)
	return &list, nil
}

// tellAll makes the other processes do what this one has done. One that cannot be told is an error,
// since the client has asked for all.
func tellAll[Req any](
	ctx context.Context, s *Server, ask func(pb.URLFrontierClient, context.Context, Req) (*pb.Empty, error), req Req,
) error {
	names, err := s.f.Nodes(ctx)
	for _, name := range names {
		if name == s.f.Node() || addressOf(name) == "" {
			continue
		}
		client, failed := s.peers.to(name)
		if failed == nil {
			peer, cancel := marked(ctx)
			_, failed = ask(client, peer, req)
			cancel()
		}
		err = errors.Join(err, failed)
	}
	return s.failure(err)
}

// SetActive implements the protocol. What it says is kept in Redis, and read by every process once
// a second: telling the others makes it hold at once.
func (s *Server) SetActive(ctx context.Context, q *pb.Active) (*pb.Empty, error) {
	if forwarded(ctx) {
		return &pb.Empty{}, s.failure(s.f.Refresh(ctx))
	}
	if err := s.f.SetActive(ctx, q.GetState(), !q.GetLocal()); err != nil || q.GetLocal() {
		return &pb.Empty{}, s.failure(err)
	}
	s.toldOrNot(s.refreshOthers(ctx))
	return &pb.Empty{}, nil
}

// refreshOthers makes the other processes read what was said of the frontier as a whole.
func (s *Server) refreshOthers(ctx context.Context) error {
	return tellAll(ctx, s, func(c pb.URLFrontierClient, ctx context.Context, q *pb.Active) (*pb.Empty, error) {
		return c.SetActive(ctx, q)
	}, &pb.Active{})
}

// toldOrNot logs that a process could not be told what it reads itself after a second.
func (s *Server) toldOrNot(err error) {
	if err != nil {
		s.log.Warn("tell the other processes", "error", err)
	}
}

// GetActive implements the protocol.
func (s *Server) GetActive(ctx context.Context, q *pb.Local) (*pb.Boolean, error) {
	active, err := s.f.Active(ctx, !q.GetLocal())
	return &pb.Boolean{State: active}, s.failure(err)
}

// SetDelay implements the protocol. The delay of a key holds in all crawls, whether anything waits
// or not; that without a key can only make --crawl-delay longer.
func (s *Server) SetDelay(ctx context.Context, q *pb.QueueDelayParams) (*pb.Empty, error) {
	delay := time.Duration(q.GetDelayRequestable()) * time.Second
	if q.GetKey() == "" {
		if err := s.f.SetDefaultDelay(ctx, delay); err != nil {
			return nil, s.failure(err)
		}
		s.toldOrNot(s.refreshOthers(ctx))
		return &pb.Empty{}, nil
	}
	return atOwner(ctx, s, q.GetLocal(), q.GetKey(), func() (*pb.Empty, error) {
		return &pb.Empty{}, s.f.ChangeDomain(ctx, q.GetKey(), frontier.DomainChange{Delay: &delay})
	}, pb.URLFrontierClient.SetDelay, q)
}

// lastSecond is the end of the year 9999, the last that a time in JSON can have.
const lastSecond = 253402300799

// errNoKey refuses what is said of one queue and does not name it. Every queue has a key: that of a
// URL without one is its host.
var errNoKey = status.Error(codes.InvalidArgument, "this is about one queue: name its key")

// BlockQueueUntil implements the protocol. It holds for the key in all crawls, whether anything
// waits or not.
func (s *Server) BlockQueueUntil(ctx context.Context, q *pb.BlockQueueParams) (*pb.Empty, error) {
	if q.GetKey() == "" { // the peer blocks nothing, and does not fail
		return &pb.Empty{}, nil
	}
	if q.GetTime() > lastSecond {
		return nil, status.Errorf(codes.InvalidArgument, "time %d: it is in seconds since 1970, up to %d", q.GetTime(), int64(lastSecond))
	}
	return atOwner(ctx, s, q.GetLocal(), q.GetKey(), func() (*pb.Empty, error) {
		return &pb.Empty{}, s.f.Block(ctx, q.GetKey(), time.Unix(int64(q.GetTime()), 0))
	}, pb.URLFrontierClient.BlockQueueUntil, q)
}

// SetCrawlLimit implements the protocol. It holds whether anything waits in the queue or not.
func (s *Server) SetCrawlLimit(ctx context.Context, q *pb.CrawlLimitParams) (*pb.Empty, error) {
	crawl := crawlOf(q.GetCrawlID())
	if q.GetKey() == "" {
		return nil, errNoKey
	}
	return atOwner(ctx, s, q.GetLocal(), q.GetKey(), func() (*pb.Empty, error) {
		return &pb.Empty{}, s.f.SetLimit(ctx, crawl, q.GetKey(), int64(q.GetLimit()))
	}, pb.URLFrontierClient.SetCrawlLimit, q)
}

// levels are what the levels of the protocol are in the log. There is none below debug.
var levels = map[pb.LogLevelParams_Level]slog.Level{
	pb.LogLevelParams_TRACE: slog.LevelDebug,
	pb.LogLevelParams_DEBUG: slog.LevelDebug,
	pb.LogLevelParams_INFO:  slog.LevelInfo,
	pb.LogLevelParams_WARN:  slog.LevelWarn,
	pb.LogLevelParams_ERROR: slog.LevelError,
}

// SetLogLevel implements the protocol. The level is of the whole log, since packages of the peer
// mean nothing here, and holds until the process ends.
func (s *Server) SetLogLevel(ctx context.Context, q *pb.LogLevelParams) (*pb.Empty, error) {
	level, ok := levels[q.GetLevel()]
	if !ok {
		return nil, status.Errorf(codes.InvalidArgument, "level %d: it is TRACE, DEBUG, INFO, WARN or ERROR", q.GetLevel())
	}
	s.level.Set(level)
	if q.GetLocal() || forwarded(ctx) {
		return &pb.Empty{}, nil
	}
	return &pb.Empty{}, tellAll(ctx, s, func(c pb.URLFrontierClient, ctx context.Context, q *pb.LogLevelParams) (*pb.Empty, error) {
		return c.SetLogLevel(ctx, q)
	}, q)
}
