package urlfrontier

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/urlake/urlake/frontier"
	pb "github.com/urlake/urlake/frontier/urlfrontier/urlfrontierpb"
)

// defaultPage is how many queues or URLs are listed if the client does not say.
const defaultPage = 100

func pageOf(size uint32) int {
	if size == 0 {
		return defaultPage
	}
	return int(size)
}

// ListCrawls implements the protocol.
func (s *Server) ListCrawls(ctx context.Context, q *pb.Local) (*pb.StringList, error) {
	var list pb.StringList
	err := gather(ctx, s, q.GetLocal(), func() (*pb.StringList, []int, error) {
		crawls, shards := s.f.Crawls()
		return &pb.StringList{Values: crawls}, shards, nil
	}, pb.URLFrontierClient.ListCrawls, q, func(part *pb.StringList) { list.Values = append(list.Values, part.GetValues()...) })
	slices.Sort(list.Values)
	list.Values = slices.Compact(list.Values)
	return &list, err
}

// ListQueues implements the protocol.
func (s *Server) ListQueues(ctx context.Context, q *pb.Pagination) (*pb.QueueList, error) {
	crawl := crawlOf(q.GetCrawlID())
	start, size := int(q.GetStart()), pageOf(q.GetSize())
	here := func() (*pb.QueueList, []int, error) {
		keys, shards := s.queues(crawl, q.GetIncludeInactive())
		return &pb.QueueList{Values: keys[:min(start+size, len(keys))], Total: uint64(len(keys))}, shards, nil
	}
	// The first ones of each process have among them the page of all.
	part := &pb.Pagination{
		Size: uint32(min(start+size, math.MaxUint32)), IncludeInactive: q.GetIncludeInactive(), CrawlID: crawl,
	}
	var all []string
	list := pb.QueueList{Start: q.GetStart(), CrawlID: crawl}
	err := gather(ctx, s, q.GetLocal(), here, pb.URLFrontierClient.ListQueues, part, func(part *pb.QueueList) {
		all = append(all, part.GetValues()...)
		list.Total += part.GetTotal()
	})
	slices.Sort(all)
	list.Values = all[min(start, len(all)):min(start+size, len(all))]
	list.Size = uint32(len(list.Values))
	return &list, err
}

// queues returns the sorted keys of the queues of a crawl that this process serves: those that hold
// URLs which are not done and that are not blocked, or all.
func (s *Server) queues(crawl string, inactive bool) (keys []string, shards []int) {
	shards = s.f.Queues(crawl, inactive, func(q frontier.QueueCounts) bool {
		if inactive || !s.f.Blocked(q.Key) {
			keys = append(keys, q.Key)
		}
		return true
	})
	slices.Sort(keys)
	return keys, shards
}

// GetStats implements the protocol.
func (s *Server) GetStats(ctx context.Context, q *pb.QueueWithinCrawlParams) (*pb.Stats, error) {
	crawl := crawlOf(q.GetCrawlID())
	here := func() (*pb.Stats, []int, error) {
		c, shards, err := s.count(ctx, crawl, q.GetKey())
		if err != nil {
			return nil, nil, err
		}
		active := 0
		if q.GetKey() == "" {
			listed := s.f.Queues(crawl, false, func(frontier.QueueCounts) bool { active++; return true })
			if !slices.Equal(listed, shards) {
				return nil, nil, frontier.ErrElsewhere
			}
		} else if c.All() > c.Done() {
			active = 1
		}
		return &pb.Stats{
			Size: uint64(c.All() - c.Done()), InProcess: uint32(c.Leased()), NumberOfQueues: uint64(c.Queues), CrawlID: crawl,
			Counts: map[string]uint64{"completed": uint64(c.Done()), "active_queues": uint64(active)},
		}, shards, nil
	}
	if q.GetKey() != "" {
		return atOwner(ctx, s, q.GetLocal(), q.GetKey(), alone(here), pb.URLFrontierClient.GetStats, q)
	}
	sum := pb.Stats{CrawlID: crawl, Counts: map[string]uint64{}}
	err := gather(ctx, s, q.GetLocal(), here, pb.URLFrontierClient.GetStats, q, func(part *pb.Stats) {
		sum.Size += part.GetSize()
		sum.InProcess += part.GetInProcess()
		sum.NumberOfQueues += part.GetNumberOfQueues()
		for name, n := range part.GetCounts() {
			sum.Counts[name] += n
		}
	})
	return &sum, err
}

// count counts what this process has of a crawl or a queue, once the leases that are over have
// ended.
func (s *Server) count(ctx context.Context, crawl, key string) (c frontier.CrawlStats, shards []int, err error) {
	if err := s.f.Expire(ctx, key); err != nil {
		return c, nil, err
	}
	c, shards = s.f.CrawlStats(crawl, key)
	if key != "" && len(shards) == 0 {
		return c, nil, frontier.ErrElsewhere
	}
	return c, shards, nil
}

// long is the answer that counts something of some shards.
func long(n int64, shards []int, err error) (*pb.Long, []int, error) {
	return &pb.Long{Value: uint64(n)}, shards, err
}

// DeleteQueue implements the protocol. A queue that there is not has no URLs.
func (s *Server) DeleteQueue(ctx context.Context, q *pb.QueueWithinCrawlParams) (*pb.Long, error) {
	if q.GetKey() == "" {
		return nil, errNoKey
	}
	return atOwner(ctx, s, q.GetLocal(), q.GetKey(), func() (*pb.Long, error) {
		n, err := s.f.DeleteQueue(ctx, crawlOf(q.GetCrawlID()), q.GetKey())
		return &pb.Long{Value: uint64(n)}, err
	}, pb.URLFrontierClient.DeleteQueue, q)
}

// DeleteCrawl implements the protocol.
func (s *Server) DeleteCrawl(ctx context.Context, q *pb.DeleteCrawlMessage) (*pb.Long, error) {
	var sum pb.Long
	err := gather(ctx, s, q.GetLocal(), func() (*pb.Long, []int, error) {
		return long(s.f.DeleteCrawl(ctx, crawlOf(q.GetValue())))
	}, pb.URLFrontierClient.DeleteCrawl, q, func(part *pb.Long) { sum.Value += part.GetValue() })
	return &sum, err
}

// PurgeURLs implements the protocol.
func (s *Server) PurgeURLs(ctx context.Context, q *pb.PurgeUrlParams) (*pb.Long, error) {
	// Times of creation are whole seconds; one that began before that many days ago counts.
	before := s.f.Now().AddDate(0, 0, -int(q.GetDays())).Truncate(time.Second).Add(time.Second)
	here := func() (*pb.Long, []int, error) {
		return long(s.f.Purge(ctx, crawlOf(q.GetCrawlID()), q.GetKey(), before))
	}
	if q.GetKey() != "" {
		return atOwner(ctx, s, false, q.GetKey(), alone(here), pb.URLFrontierClient.PurgeURLs, q)
	}
	var sum pb.Long
	err := gather(ctx, s, false, here, pb.URLFrontierClient.PurgeURLs, q, func(part *pb.Long) { sum.Value += part.GetValue() })
	return &sum, err
}

// itemOf is what a client is told of a URL: as a known one, so that it can be put again. The date
// of one that waits is not 0, since that would say that it is done.
func itemOf(u *frontier.KnownURL) *pb.URLItem {
	item := &pb.KnownURLItem{Info: infoOf(u.URL, u.Crawl, u.Key, u.Metadata)}
	switch {
	case u.State == frontier.StateDone:
	case !u.Due.IsZero():
		item.RefetchableFromDate = uint64(u.Due.Unix())
	case u.Depth >= frontier.Dated:
		item.RefetchableFromDate = uint64(u.Depth)
	default:
		item.RefetchableFromDate = uint64(u.Created.Unix())
	}
	return &pb.URLItem{Item: &pb.URLItem_Known{Known: item}, CreationDate: uint64(u.Created.Unix())}
}

// GetURLStatus implements the protocol. The URL may be in any spelling.
func (s *Server) GetURLStatus(ctx context.Context, q *pb.URLStatusRequest) (*pb.URLItem, error) {
	u, ok := (&put{info: &pb.URLInfo{Url: q.GetUrl(), Key: q.GetKey(), CrawlID: q.GetCrawlID()}}).url(s.normalizer(), s.f.Now())
	if !ok {
		return nil, status.Errorf(codes.InvalidArgument, "%q is no URL that can be fetched", q.GetUrl())
	}
	return atOwner(ctx, s, false, u.Key, func() (*pb.URLItem, error) {
		known, ok, err := s.f.Find(u.Crawl, u.Key, u.URL)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, status.Errorf(codes.NotFound, "crawl %q, queue %q: %s was not put, or was deleted", u.Crawl, u.Key, u.URL)
		}
		return itemOf(&known), nil
	}, pb.URLFrontierClient.GetURLStatus, q)
}

// matcher says which URLs contain a text.
func matcher(text string, ignoreCase bool) func(string) bool {
	switch {
	case strings.TrimSpace(text) == "":
		return func(string) bool { return true }
	case ignoreCase:
		text = strings.ToLower(text)
		return func(url string) bool { return strings.Contains(strings.ToLower(url), text) }
	}
	return func(url string) bool { return strings.Contains(url, text) }
}

// errEnough ends a list.
var errEnough = errors.New("enough")

// ListURLs implements the protocol. The URLs come shard by shard, in the order of the shards'
// numbers, whichever process is asked and whoever serves a shard. So pages fit together while
// nothing is put, taken or deleted, and a page has all URLs up to its last: a shard that nobody
// serves fails it.
func (s *Server) ListURLs(q *pb.ListUrlParams, stream pb.URLFrontier_ListURLsServer) error {
	ctx := stream.Context()
	skip, left := int(q.GetStart()), pageOf(q.GetSize())
	emit := func(item *pb.URLItem) error {
		if skip > 0 {
			skip--
			return nil
		}
		if left == 0 {
			return errEnough
		}
		left--
		return stream.Send(item)
	}
	crawl, match := crawlOf(q.GetCrawlID()), matcher(q.GetFilter(), q.GetIgnoreCase())
	var ended error
	each := func(u frontier.KnownURL) bool {
		if item := itemOf(&u); match(item.GetKnown().GetInfo().GetUrl()) {
			ended = emit(item)
		}
		return ended == nil
	}
	if q.GetLocal() {
		_, err := s.f.OwnURLs(crawl, q.GetKey(), each)
		return s.ended(errors.Join(err, ended))
	}
	cursor := ""
	if forwarded(ctx) {
		cursor = strings.Join(metadata.ValueFromIncomingContext(ctx, listFrom), "")
	}
	for {
		next, err := s.f.URLs(crawl, q.GetKey(), cursor, each)
		if cursor = next; forwarded(ctx) && (err == nil || errors.Is(err, frontier.ErrElsewhere)) {
			stream.SetTrailer(metadata.Pairs(listNext, cursor))
			return s.ended(ended)
		}
		if ended != nil || !errors.Is(err, frontier.ErrElsewhere) {
			return s.ended(errors.Join(err, ended))
		}
		owner, err := s.f.ListOwner(q.GetKey(), cursor)
		if err == nil && owner == "" {
			err = frontier.ErrElsewhere
		}
		if err == nil {
			next, err = s.listFrom(ctx, owner, cursor, q, skip+left+1, emit)
		}
		if err == nil && next == cursor {
			err = frontier.ErrElsewhere
		}
		if cursor = next; err != nil || cursor == "" {
			return s.ended(err)
		}
	}
}

// ended is the status of a list's end.
func (s *Server) ended(err error) error {
	if errors.Is(err, errEnough) {
		return nil
	}
	return s.failure(err)
}

// listFrom calls emit with what another process lists from a cursor on, up to a number of URLs. It
// returns the cursor of the first shard that the process does not serve, "" if there is none.
func (s *Server) listFrom(ctx context.Context, name, cursor string, q *pb.ListUrlParams, most int, emit func(*pb.URLItem) error) (next string, err error) {
	client, err := s.peers.to(name)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(mark(ctx), listFrom, cursor))
	defer cancel()
	stream, err := client.ListURLs(ctx, &pb.ListUrlParams{
		Size: uint32(min(most, math.MaxUint32)), Key: q.GetKey(), CrawlID: q.GetCrawlID(), Filter: q.Filter, IgnoreCase: q.IgnoreCase,
	})
	if err != nil {
		return "", err
	}
	for {
		item, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			at := stream.Trailer().Get(listNext)
			if len(at) != 1 {
				return "", status.Errorf(codes.Unavailable, "process %s is of an earlier version, which lists in another order", addressOf(name))
			}
			return at[0], nil
		}
		if err != nil {
			return "", err
		}
		if err := emit(item); err != nil {
			return "", err
		}
	}
}

// CountURLs implements the protocol.
func (s *Server) CountURLs(ctx context.Context, q *pb.CountUrlParams) (*pb.Long, error) {
	crawl := crawlOf(q.GetCrawlID())
	match := matcher(q.GetFilter(), q.GetIgnoreCase())
	here := func() (*pb.Long, []int, error) {
		if strings.TrimSpace(q.GetFilter()) == "" {
			c, shards, err := s.count(ctx, crawl, q.GetKey())
			return long(c.All(), shards, err)
		}
		n := int64(0)
		shards, err := s.f.OwnURLs(crawl, q.GetKey(), func(u frontier.KnownURL) bool {
			if match(infoOf(u.URL, u.Crawl, u.Key, u.Metadata).GetUrl()) {
				n++
			}
			return ctx.Err() == nil
		})
		return long(n, shards, errors.Join(err, ctx.Err()))
	}
	if q.GetKey() != "" {
		return atOwner(ctx, s, q.GetLocal(), q.GetKey(), alone(here), pb.URLFrontierClient.CountURLs, q)
	}
	var sum pb.Long
	err := gather(ctx, s, q.GetLocal(), here, pb.URLFrontierClient.CountURLs, q, func(part *pb.Long) { sum.Value += part.GetValue() })
	return &sum, err
}
