package urlfrontier

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/urlake/urlake/frontier"
	pb "github.com/urlake/urlake/frontier/urlfrontier/urlfrontierpb"
	"github.com/urlake/urlake/lake/urlnorm"
)

const (
	// batchURLs is how many URLs are committed at once, at most.
	batchURLs = 20_000
	// streamBytes bounds what a stream has sent and what was not acknowledged yet. A client that
	// sends more waits, by the flow control of HTTP/2.
	streamBytes = 8 << 20
	// streamMessages bounds their number.
	streamMessages = 10_000
	// batchesAtOnce is how many batches of PutDiscovered are worked on at once: one is added while
	// another waits for the disk.
	batchesAtOnce = 2
)

var errStopping = status.Error(codes.Unavailable, "the server stops: send again what was not acknowledged")

// pump receives messages and calls do with batches of them, which answers each: as many as have
// come while the batch before was worked on, so that one commit serves many. Weigh says how many
// URLs a message has, and about how many bytes.
func pump[In, Out any](
	ctx, stopping context.Context, workers int, recv func() (In, error), send func(Out) error,
	weigh func(In) (urls, bytes int), do func(context.Context, []In) []Out,
) error {
	room := semaphore.NewWeighted(streamBytes)
	type weighed struct {
		m     In
		urls  int
		bytes int64
	}
	queue := make(chan weighed, streamMessages)
	group, ctx := errgroup.WithContext(ctx)
	// The receiver is not waited for: when the stream ends with an error, it may still wait for the
	// client, and ends with the call.
	received := make(chan error, 1)
	go func() {
		defer close(queue)
		for {
			m, err := recv()
			if errors.Is(err, io.EOF) {
				err = nil
				received <- err
				return
			}
			w := weighed{m: m}
			if err == nil {
				var bytes int
				w.urls, bytes = weigh(m)
				w.bytes = int64(min(bytes, streamBytes))
				err = room.Acquire(ctx, w.bytes)
			}
			if err != nil {
				received <- err
				return
			}
			select {
			case queue <- w:
			case <-ctx.Done():
				received <- ctx.Err()
				return
			}
		}
	}()
	var sending sync.Mutex
	for range workers {
		group.Go(func() error {
			var batch []In
			for {
				count, bytes := 0, int64(0)
				clear(batch)
				batch = batch[:0]
				add := func(w weighed) {
					batch = append(batch, w.m)
					count += w.urls
					bytes += w.bytes
				}
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-stopping.Done():
					return errStopping
				case w, ok := <-queue:
					if !ok {
						return nil
					}
					add(w)
				}
				for more := true; more && count < batchURLs; {
					select {
					case w, ok := <-queue:
						if more = ok; ok {
							add(w)
						}
					default:
						more = false
					}
				}
				answers := do(ctx, batch)
				room.Release(bytes)
				sending.Lock()
				for _, a := range answers {
					if err := send(a); err != nil {
						sending.Unlock()
						return err
					}
				}
				sending.Unlock()
			}
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return <-received
}

// PutURLs implements the protocol.
func (s *Server) PutURLs(stream pb.URLFrontier_PutURLsServer) error {
	hop := forwarded(stream.Context())
	// One batch after the other, so that of two reports of a URL the later one counts.
	err := pump(stream.Context(), s.stopping, 1, stream.Recv, stream.Send,
		func(item *pb.URLItem) (urls, bytes int) { return 1, weighURL(putOf(item).info) + len(item.GetID()) },
		func(ctx context.Context, items []*pb.URLItem) []*pb.AckMessage {
			puts := make([]put, len(items))
			acks := make([]*pb.AckMessage, len(items))
			for i, item := range items {
				puts[i] = putOf(item)
				acks[i] = &pb.AckMessage{ID: item.GetID()}
				if acks[i].ID == "" {
					acks[i].ID = puts[i].info.GetUrl()
				}
			}
			for i, st := range s.put(ctx, puts, hop) {
				acks[i].Status = st
			}
			count(s.metrics, "PutURLs", acks, (*pb.AckMessage).GetStatus)
			return acks
		})
	return s.failure(err)
}

// PutDiscovered implements the protocol.
func (s *Server) PutDiscovered(stream pb.URLFrontier_PutDiscoveredServer) error {
	hop := forwarded(stream.Context())
	err := pump(stream.Context(), s.stopping, batchesAtOnce, stream.Recv, stream.Send,
		func(b *pb.DiscoveredBatch) (urls, bytes int) {
			for _, info := range b.GetItems() {
				bytes += weighURL(info)
			}
			return len(b.GetItems()), bytes + len(b.GetID())
		},
		func(ctx context.Context, batches []*pb.DiscoveredBatch) []*pb.BatchAck {
			var puts []put
			for _, b := range batches {
				for _, info := range b.GetItems() {
					puts = append(puts, put{info: info})
				}
			}
			statuses := s.put(ctx, puts, hop)
			count(s.metrics, "PutDiscovered", statuses, func(st pb.AckMessage_Status) pb.AckMessage_Status { return st })
			acks := make([]*pb.BatchAck, len(batches))
			for i, b := range batches {
				n := len(b.GetItems())
				acks[i] = &pb.BatchAck{ID: b.GetID(), Statuses: statuses[:n:n]}
				statuses = statuses[n:]
			}
			return acks
		})
	return s.failure(err)
}

// overhead is about what a message, a string or an entry of a map takes besides its text.
const overhead = 16

// weighURL returns about how many bytes a URL takes.
func weighURL(info *pb.URLInfo) int {
	return 4*overhead + len(info.GetUrl()) + len(info.GetKey()) + len(info.GetCrawlID()) + weighMetadata(info.GetMetadata())
}

func weighMetadata(metadata map[string]*pb.StringList) (bytes int) {
	for name, list := range metadata {
		bytes += overhead + len(name)
		for _, v := range list.GetValues() {
			bytes += overhead + len(v)
		}
	}
	return bytes
}

// put is a URL that a client puts. Date is when a known one is to be fetched again, 0 for never.
type put struct {
	info  *pb.URLInfo
	known bool
	date  uint64
}

func putOf(item *pb.URLItem) put {
	if known := item.GetKnown(); known != nil {
		return put{info: known.GetInfo(), known: true, date: known.GetRefetchableFromDate()}
	}
	return put{info: item.GetDiscovered().GetInfo()}
}

// put puts URLs, those that other processes serve with them unless hop says that one has sent them,
// and returns the status of each.
func (s *Server) put(ctx context.Context, puts []put, hop bool) []pb.AckMessage_Status {
	statuses := make([]pb.AckMessage_Status, len(puts))
	urls := make([]frontier.URL, 0, len(puts))
	places := make([]int, 0, len(puts))
	n := s.normalizer()
	now := s.f.Now()
	for i := range puts {
		u, ok := puts[i].url(n, now)
		if !ok {
			statuses[i] = pb.AckMessage_SKIPPED
			continue
		}
		urls, places = append(urls, u), append(places, i)
	}
	results, err := s.f.Add(ctx, urls)
	if err != nil {
		s.log.Error(err.Error())
	}
	away := map[string][]int{}
	for i, place := range places {
		switch r := results[i]; r.Result {
		case frontier.Added, frontier.Updated:
			statuses[place] = pb.AckMessage_OK
		case frontier.Known, frontier.Rejected:
			statuses[place] = pb.AckMessage_SKIPPED
		case frontier.Elsewhere:
			statuses[place] = pb.AckMessage_FAIL
			if r.Reason != "" && !hop {
				away[r.Reason] = append(away[r.Reason], place)
			}
		default: // not known because of the error
			statuses[place] = pb.AckMessage_FAIL
		}
	}
	s.putAway(ctx, puts, away, statuses)
	return statuses
}

func (s *Server) normalizer() *urlnorm.Normalizer {
	n, err := urlnorm.New(urlnorm.BuiltinSuffixes(), urlnorm.Options{})
	if err != nil {
		panic(err) // the builtin list and no options are always right
	}
	return n
}

// statusName is the name in the metadata under which StormCrawler has the HTTP status of a fetch.
const statusName = "fetch.statusCode"

// url is what the frontier gets of a URL, false if it cannot be fetched.
//
// The protocol orders the URLs of a queue by their dates, and knows no depth, which orders what has
// the same priority. So the date stands in the place of the depth; one before frontier.Dated counts
// as that.
func (p *put) url(n *urlnorm.Normalizer, now time.Time) (u frontier.URL, ok bool) {
	text := p.info.GetUrl()
	parsed, err := n.Parse([]byte(text))
	if err != nil {
		return u, false
	}
	u = frontier.URL{URL: parsed.String(), Crawl: crawlOf(p.info.GetCrawlID()), Key: p.info.GetKey(), Depth: uint32(now.Unix())}
	if u.Key == "" {
		u.Key = parsed.Host
	}
	spelled := ""
	if u.URL != text {
		spelled = text
	}
	u.Metadata = appendMetadata(make([]byte, 0, weighMetadata(p.info.GetMetadata())+2*len(spelled)), p.info.GetMetadata(), spelled)
	if p.known {
		u.Update, u.Done, u.Fetched = true, p.date == 0, true
		if values := p.info.GetMetadata()[statusName].GetValues(); len(values) > 0 {
			if n, err := strconv.ParseUint(values[0], 10, 16); err == nil {
				u.Status = uint16(n)
			}
		}
		u.Depth = uint32(min(max(p.date, frontier.Dated), 1<<32-1))
		u.Due = time.Unix(int64(u.Depth), 0)
	}
	return u, true
}
