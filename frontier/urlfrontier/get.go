package urlfrontier

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/urlake/urlake/frontier"
	pb "github.com/urlake/urlake/frontier/urlfrontier/urlfrontierpb"
)

// defaultLease is how long a URL is leased if the client does not say.
const defaultLease = 30 * time.Second

// infoOf is what a client gets of a URL, in the spelling in which it was put.
func infoOf(url, crawl, key string, metadata []byte) *pb.URLInfo {
	info := &pb.URLInfo{Url: url, Key: key, CrawlID: crawl}
	var put string
	if info.Metadata, put = parseMetadata(metadata); put != "" {
		info.Url = put
	}
	return info
}

// GetURLs implements the protocol.
func (s *Server) GetURLs(q *pb.GetParams, stream pb.URLFrontier_GetURLsServer) error {
	r := frontier.QueueRequest{
		Key: q.GetKey(), PerQueue: int(q.GetMaxUrlsPerQueue()),
		Lease: time.Duration(q.GetDelayRequestable()) * time.Second,
	}
	if _, ok := q.GetItem().(*pb.GetParams_CrawlID); ok {
		r.Crawl = crawlOf(q.GetCrawlID())
	}
	if r.Lease == 0 {
		r.Lease = defaultLease
	}
	ctx := stream.Context()
	// queues are those that the client got URLs of.
	queues := map[[2]string]struct{}{}
	send := func(info *pb.URLInfo) error {
		if err := stream.Send(info); err != nil {
			return err
		}
		queues[[2]string{info.GetCrawlID(), info.GetKey()}] = struct{}{}
		s.metrics.urls.WithLabelValues("GetURLs", "OK").Inc()
		return nil
	}
	// Here and from ask for URLs of up to n queues, of any number if n is 0.
	here := func(n int) error {
		r.MaxQueues = n
		return s.f.ClaimQueues(ctx, r, func(c frontier.Claim) error { return send(infoOf(c.URL, c.Crawl, c.Key, c.Metadata)) })
	}
	limit := int(q.GetMaxQueues())
	if forwarded(ctx) {
		return s.failure(here(limit))
	}
	sources, others := []func(n int) error{here}, s.f.Others()
	if owner := s.f.Owner(q.GetKey()); q.GetKey() != "" {
		others = nil
		if owner != "" {
			sources, others = nil, []string{owner}
		}
	}
	for _, name := range others {
		sources = append(sources, func(n int) error { return s.getFrom(ctx, name, q, n, send) })
	}
	// The processes are asked in a random order, so that none is always asked last.
	rand.Shuffle(len(sources), func(i, j int) { sources[i], sources[j] = sources[j], sources[i] })
	for _, source := range sources {
		n := 0
		if limit > 0 {
			if n = limit - len(queues); n <= 0 {
				break
			}
		}
		if err := source(n); err != nil {
			return s.failure(err)
		}
	}
	return nil
}

// getFrom sends on what another process hands out of up to n queues, of any number if n is 0.
// One that does not answer has nothing.
func (s *Server) getFrom(ctx context.Context, name string, q *pb.GetParams, n int, send func(*pb.URLInfo) error) error {
	part := proto.CloneOf(q)
	part.MaxQueues = uint32(n)
	client, err := s.peers.to(name)
	if err != nil {
		return nil // a process without gRPC serves those who ask it over HTTP
	}
	peer, cancel := context.WithCancel(mark(ctx))
	defer cancel()
	stream, err := client.GetURLs(peer, part)
	for err == nil {
		var info *pb.URLInfo
		if info, err = stream.Recv(); err == nil {
			if err := send(info); err != nil {
				return err
			}
		}
	}
	if !errors.Is(err, io.EOF) && ctx.Err() == nil {
		s.log.Warn("URLs of another process", "error", err)
	}
	return ctx.Err()
}
