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
	// shardsServed is in the header of an answer to such a request: how many shards it is about.
	shardsServed = "urlake-shards"
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
// about the whole frontier.
func gather[Req, Res any](
	ctx context.Context, s *Server, local bool, here func() (Res, error),
	ask func(pb.URLFrontierClient, context.Context, Req, ...grpc.CallOption) (Res, error), req Req, add func(Res),
) error {
	alone := local || forwarded(ctx)
	served := s.f.Owned()
	if forwarded(ctx) {
		_ = grpc.SetHeader(ctx, metadata.Pairs(shardsServed, strconv.Itoa(served)))
	}
	res, err := here()
	if err != nil {
		return s.failure(err)
	}
	add(res)
	if alone {
		return nil
	}
	for _, name := range s.f.Others() {
		var header metadata.MD
		res, err := call(ctx, s, name, ask, req, grpc.Header(&header))
		if err != nil {
			return s.failure(err)
		}
		served += shardsOf(header)
		add(res)
	}
	return s.whole(served)
}

// shardsOf is how many shards an answer is about.
func shardsOf(header metadata.MD) int {
	for _, v := range header.Get(shardsServed) {
		if n, err := strconv.Atoi(v); err == nil {
			return n
		}
	}
	return 0
}

// whole fails unless so many shards are all.
func (s *Server) whole(served int) error {
	if all := s.f.NumShards(); served != all {
		return status.Errorf(codes.Unavailable, "%d of %d shards of the frontier have answered; others are moving between processes: try again", served, all)
	}
	return nil
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
