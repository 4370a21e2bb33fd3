//go:build unix

package urlfrontier_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/frontier/shard"
	"github.com/urlake/urlake/frontier/urlfrontier"
	pb "github.com/urlake/urlake/frontier/urlfrontier/urlfrontierpb"
	"github.com/urlake/urlake/internal/testenv"
)

// process is a process of a frontier that serves gRPC, and a client of it.
type process struct {
	pb.URLFrontierClient
	f        *frontier.Frontier
	address  string
	level    *slog.LevelVar
	registry *prometheus.Registry
	// halt stops the server, stop everything.
	halt, stop func()
}

// cluster are the processes of a frontier, and what they share.
type cluster struct {
	t         testing.TB
	redis     *testenv.Redis
	options   frontier.Options
	processes []*process
}

// newCluster starts a frontier of so many processes without a delay; change may change its options.
func newCluster(t testing.TB, processes int, change func(*frontier.Options)) *cluster {
	t.Helper()
	c := &cluster{t: t, redis: testenv.NewRedis(t), options: frontier.Options{
		Dir: t.TempDir(), Shards: 8, Lease: time.Minute, Tries: 3, Own: 6 * time.Second, Shard: shard.Options{MemoryBytes: 1 << 20},
		Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}}
	if change != nil {
		change(&c.options)
	}
	// All are known before the first begins, so that each takes its share of the shards and no
	// more.
	var starts []func() *process
	for range processes {
		starts = append(starts, c.prepare())
	}
	for _, start := range starts {
		start()
	}
	return c
}

// start starts another process.
func (c *cluster) start() *process {
	c.t.Helper()
	return c.prepare()()
}

// prepare makes a process known, which start starts.
func (c *cluster) prepare() (start func() *process) {
	t := c.t
	t.Helper()
	opt, err := redis.ParseURL(c.redis.URL)
	if err != nil {
		t.Fatal(err)
	}
	opt.MaxRetries = -1
	client := redis.NewClient(opt)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &process{address: listener.Addr().String(), level: new(slog.LevelVar), registry: prometheus.NewRegistry()}
	// The HTTP address stands for the process in what is kept of it over restarts.
	shared, err := coord.Open(t.Context(), client, "test", urlfrontier.NameWith(p.address, "1", p.address), c.options.Shards)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shared.Join(t.Context(), c.options.Own); err != nil {
		t.Fatal(err)
	}
	return func() *process {
		t.Helper()
		c.run(p, client, shared, listener)
		return p
	}
}

// run starts a process that was prepared.
func (c *cluster) run(p *process, client *redis.Client, shared *coord.Frontier, listener net.Listener) {
	t := c.t
	t.Helper()
	var err error
	if p.f, err = frontier.New(t.Context(), shared, c.options); err != nil {
		t.Fatal(err)
	}
	server := urlfrontier.New(p.f, c.options.Log, p.level, p.registry)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///"+p.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	p.URLFrontierClient = pb.NewURLFrontierClient(conn)
	ctx := context.WithoutCancel(t.Context())
	p.halt = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err := errors.Join(server.Stop(ctx), <-served); err != nil {
			t.Error(err)
		}
	})
	p.stop = sync.OnceFunc(func() {
		p.halt()
		if err := errors.Join(conn.Close(), p.f.Close(ctx), client.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(p.stop)
	c.processes = append(c.processes, p)
}

func info(url, key, crawl string) *pb.URLInfo { return &pb.URLInfo{Url: url, Key: key, CrawlID: crawl} }

func discovered(id string, u *pb.URLInfo) *pb.URLItem {
	return &pb.URLItem{ID: id, Item: &pb.URLItem_Discovered{Discovered: &pb.DiscoveredURLItem{Info: u}}}
}

func known(id string, u *pb.URLInfo, date int64) *pb.URLItem {
	return &pb.URLItem{ID: id, Item: &pb.URLItem_Known{Known: &pb.KnownURLItem{Info: u, RefetchableFromDate: uint64(date)}}}
}

// put puts URLs, and returns the status of each by its ID.
func (p *process) put(t testing.TB, items ...*pb.URLItem) map[string]pb.AckMessage_Status {
	t.Helper()
	stream, err := p.PutURLs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range items {
		if err := stream.Send(item); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	acks := map[string]pb.AckMessage_Status{}
	for {
		ack, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return acks
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := acks[ack.GetID()]; twice {
			t.Errorf("%s was acknowledged twice", ack.GetID())
		}
		acks[ack.GetID()] = ack.GetStatus()
	}
}

// get gets URLs.
func (p *process) get(t testing.TB, q *pb.GetParams) (all []*pb.URLInfo) {
	t.Helper()
	stream, err := p.GetURLs(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	for {
		info, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, info)
	}
}
