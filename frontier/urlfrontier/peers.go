package urlfrontier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/urlake/urlake/frontier"
	pb "github.com/urlake/urlake/frontier/urlfrontier/urlfrontierpb"
)

const (
	// hop marks a request that another process of the frontier has sent. It is not sent on once
	// more.
	hop = "urlake-forwarded"
	// shardsServed is in the trailer of an answer to such a request: the numbers of the shards that
	// it is about.
	shardsServed = "urlake-shards"
	// listFrom is the cursor at which a list of another process goes on, listNext, in the trailer
	// of its answer, that of what follows.
	listFrom = "urlake-from-bin"
	listNext = "urlake-next-bin"
	// peerTimeout bounds a request to another process, but for lists, which take their time.
	peerTimeout = 30 * time.Second
	// maxAnswer bounds an answer of another process: the keys of its queues.
	maxAnswer = 1 << 30
	// pingInterval is how often a process that is silent is asked whether it lives.
	pingInterval = 10 * time.Second
)

// NameWith returns the name of a process that other processes reach by HTTP at an address, and by
// gRPC at another, "" if it does not serve it. Unique is what no other process has.
func NameWith(address, unique, grpc string) string { return address + "#" + unique + "#" + grpc }

// addressOf is where a process serves gRPC, "" if it does not.
func addressOf(name string) string {
	_, unique, _ := strings.Cut(name, "#")
	_, address, _ := strings.Cut(unique, "#")
	return address
}

// peers are connections to other processes.
type peers struct {
	mu    sync.Mutex
	conns map[string]*grpc.ClientConn
}

// to returns a client of the process of a name.
func (p *peers) to(name string) (pb.URLFrontierClient, error) {
	address := addressOf(name)
	if address == "" {
		return nil, status.Errorf(codes.Unavailable, "process %s serves a part of the frontier, but no gRPC: start it with --grpc", name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	conn := p.conns[address]
	if conn == nil {
		var err error
		conn, err = grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingInterval, Timeout: pingInterval}))
		if err != nil {
			return nil, err
		}
		if p.conns == nil {
			p.conns = map[string]*grpc.ClientConn{}
		}
		p.conns[address] = conn
	}
	return pb.NewURLFrontierClient(conn), nil
}

// close closes the connections.
func (p *peers) close() (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.conns {
		err = errors.Join(err, conn.Close())
	}
	p.conns = nil
	return err
}

// forwarded says that another process has sent a request.
func forwarded(ctx context.Context) bool { return len(metadata.ValueFromIncomingContext(ctx, hop)) > 0 }

// marked is the context of a request to another process.
func marked(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(mark(ctx), peerTimeout)
}

func mark(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, hop, "1")
}

// call asks another process.
func call[Req, Res any](
	ctx context.Context, s *Server, name string, ask func(pb.URLFrontierClient, context.Context, Req, ...grpc.CallOption) (Res, error), req Req,
	opts ...grpc.CallOption,
) (res Res, err error) {
	client, err := s.peers.to(name)
	if err != nil {
		return res, err
	}
	ctx, cancel := marked(ctx)
	defer cancel()
	res, err = ask(client, ctx, req, opts...)
	if err != nil {
		err = fmt.Errorf("process %s: %w", addressOf(name), err)
	}
	return res, err
}

// gather asks for what all processes have: first this one, by here, and then the others, unless the
// request is for this one alone. The answer of each goes to add. It fails if the answers are not
// about each shard of the frontier once.
func gather[Req, Res any](
	ctx context.Context, s *Server, local bool, here func() (Res, []int, error),
	ask func(pb.URLFrontierClient, context.Context, Req, ...grpc.CallOption) (Res, error), req Req, add func(Res),
) error {
	res, served, err := here()
	if err != nil {
		return s.failure(err)
	}
	add(res)
	if forwarded(ctx) {
		return s.failure(grpc.SetTrailer(ctx, trailerOf(served)))
	}
	if local {
		return nil
	}
	for _, name := range s.f.Others() {
		var trailer metadata.MD
		res, err := call(ctx, s, name, ask, req, grpc.Trailer(&trailer))
		if err != nil {
			return s.failure(err)
		}
		served = append(served, shardsOf(trailer)...)
		add(res)
	}
	return s.whole(served)
}

// trailerOf says which shards an answer is about.
func trailerOf(shards []int) metadata.MD {
	numbers := make([]string, len(shards))
	for i, n := range shards {
		numbers[i] = strconv.Itoa(n)
	}
	return metadata.Pairs(shardsServed, strings.Join(numbers, ","))
}

// shardsOf are the shards that an answer is about.
func shardsOf(trailer metadata.MD) (shards []int) {
	for _, numbers := range trailer.Get(shardsServed) {
		for number := range strings.SplitSeq(numbers, ",") {
			if n, err := strconv.Atoi(number); err == nil {
				shards = append(shards, n)
			}
		}
	}
	return shards
}

// whole fails unless the served shards are all, each once: one that moves meanwhile may be served
// by two processes, or by none.
func (s *Server) whole(served []int) error {
	times := make([]int, s.f.NumShards())
	once := 0
	for _, n := range served {
		if n < 0 || n >= len(times) {
			continue
		}
		switch times[n]++; times[n] {
		case 1:
			once++
		case 2:
			once--
		}
	}
	if once < len(times) {
		return status.Errorf(codes.Unavailable, "%d of %d shards of the frontier have answered; the others have no process at the moment, or move between two: try again", once, len(times))
	}
	return nil
}

// alone is an answer of this process without its shards.
func alone[Res any](here func() (Res, []int, error)) func() (Res, error) {
	return func() (Res, error) {
		res, _, err := here()
		return res, err
	}
}

// atOwner asks the process that serves a queue, which may be this one.
func atOwner[Req, Res any](
	ctx context.Context, s *Server, local bool, key string, here func() (Res, error),
	ask func(pb.URLFrontierClient, context.Context, Req, ...grpc.CallOption) (Res, error), req Req,
) (res Res, err error) {
	res, err = here()
	if errors.Is(err, frontier.ErrElsewhere) && !local && !forwarded(ctx) {
		if owner := s.f.Owner(key); owner != "" {
			res, err = call(ctx, s, owner, ask, req)
		}
	}
	return res, s.failure(err)
}

// putAway sends URLs to the processes that serve their queues, and sets their statuses. Those of a
// process that does not answer fail.
func (s *Server) putAway(ctx context.Context, puts []put, away map[string][]int, statuses []pb.AckMessage_Status) {
	var all sync.WaitGroup
	for name, places := range away {
		all.Go(func() {
			if err := s.putTo(ctx, name, puts, places, statuses); err != nil && ctx.Err() == nil {
				s.log.Warn("URLs for another process", "error", err)
			}
		})
	}
	all.Wait()
}

func (s *Server) putTo(ctx context.Context, name string, puts []put, places []int, statuses []pb.AckMessage_Status) error {
	client, err := s.peers.to(name)
	if err != nil {
		return err
	}
	ctx, cancel := marked(ctx)
	defer cancel()
	stream, err := client.PutURLs(ctx)
	if err != nil {
		return err
	}
	// The other process acknowledges while it reads, and stops reading while nobody reads what it
	// says.
	sent := make(chan error, 1)
	go func() {
		for _, i := range places {
			item := &pb.URLItem{ID: strconv.Itoa(i)}
			if puts[i].known {
				item.Item = &pb.URLItem_Known{Known: &pb.KnownURLItem{Info: puts[i].info, RefetchableFromDate: puts[i].date}}
			} else {
				item.Item = &pb.URLItem_Discovered{Discovered: &pb.DiscoveredURLItem{Info: puts[i].info}}
			}
			if err := stream.Send(item); err != nil { // Recv says why
				sent <- nil
				return
			}
		}
		sent <- stream.CloseSend()
	}()
	for range places {
		ack, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			cancel()
			return errors.Join(err, <-sent)
		}
		i, err := strconv.Atoi(ack.GetID())
		if err != nil || i < 0 || i >= len(statuses) {
			cancel()
			err = fmt.Errorf("process %s acknowledges %q, which it was not sent", addressOf(name), ack.GetID())
			return errors.Join(err, <-sent)
		}
		statuses[i] = ack.GetStatus()
	}
	return <-sent
}
