//go:build unix

package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "github.com/urlake/urlake/frontier/urlfrontier/urlfrontierpb"
	"github.com/urlake/urlake/internal/testenv"
)

// dialGRPC returns a client of the gRPC that a daemon says in its log that it serves.
func dialGRPC(t *testing.T, log string) pb.URLFrontierClient {
	t.Helper()
	at := regexp.MustCompile(`grpc=(\S+)`)
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		if m := at.FindSubmatch(text); m != nil {
			conn, err := grpc.NewClient("passthrough:///"+string(m[1]), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			return pb.NewURLFrontierClient(conn)
		}
		if time.Now().After(end) {
			t.Fatalf("frontierd serves no gRPC:\n%s", text)
		}
	}
}

// acked is what a client of the protocol was told that it is kept.
type acked struct {
	mu   sync.Mutex
	urls map[string]bool // whether they are done
}

// put streams URLs that are new, and every third of them as done later, until the stream breaks.
func (a *acked) put(ctx context.Context, client pb.URLFrontierClient, worker int) error {
	stream, err := client.PutURLs(ctx)
	if err != nil {
		return err
	}
	go func() {
		for n := 0; ; n++ {
			info := &pb.URLInfo{Url: fmt.Sprintf("https://site%d.example/%d/%d", n%50, worker, n)}
			item := &pb.URLItem{ID: info.GetUrl(), Item: &pb.URLItem_Discovered{Discovered: &pb.DiscoveredURLItem{Info: info}}}
			if stream.Send(item) != nil {
				return
			}
			if n%3 == 0 {
				item := &pb.URLItem{ID: "done " + info.GetUrl(), Item: &pb.URLItem_Known{Known: &pb.KnownURLItem{Info: info}}}
				if stream.Send(item) != nil {
					return
				}
			}
		}
	}()
	for {
		ack, err := stream.Recv()
		if err != nil {
			return err
		}
		if ack.GetStatus() != pb.AckMessage_OK {
			continue
		}
		a.mu.Lock()
		var url string
		if n, _ := fmt.Sscanf(ack.GetID(), "done %s", &url); n == 1 {
			a.urls[url] = true
		} else {
			a.urls[ack.GetID()] = a.urls[ack.GetID()]
		}
		a.mu.Unlock()
	}
}

// TestAcknowledgedByGRPCIsKept kills frontierd again and again while clients stream URLs and what
// came of them. Afterwards there is every URL that was acknowledged, and done if that was.
func TestAcknowledgedByGRPCIsKept(t *testing.T) {
	redis := testenv.NewRedis(t)
	dir := t.TempDir()
	starts := 0
	start := func() (*daemon, pb.URLFrontierClient) {
		starts++
		log := filepath.Join(dir, fmt.Sprintf("log%d", starts))
		d := startDaemon(t, log, "--redis", redis.URL, "--data", filepath.Join(dir, "data"), "--grpc", "127.0.0.1:0",
			"--crawl-delay", "0s", "--own", "1s", "--shards", "4", "--memory", "1")
		return d, dialGRPC(t, log)
	}
	a := &acked{urls: map[string]bool{}}
	worker := 0
	for range 3 {
		d, client := start()
		var streams sync.WaitGroup
		before := a.count()
		for range 3 {
			worker++
			number := worker
			streams.Go(func() {
				if err := a.put(t.Context(), client, number); err == nil || errors.Is(err, io.EOF) {
					t.Errorf("the stream ends with %v", err)
				}
			})
		}
		testenv.Until(t, "3,000 URLs are acknowledged", func() bool { return a.count() >= before+3000 })
		d.kill(t)
		streams.Wait()
	}
	d, client := start()
	t.Cleanup(func() { d.kill(t) })
	// Until the shards of the process that was killed are this one's, there is no whole list.
	var lost map[string]bool
	testenv.Until(t, "the list is whole", func() bool {
		var err error
		if lost, err = a.missing(t, client); err != nil && status.Code(err) != codes.Unavailable {
			t.Fatal(err)
		}
		return err == nil
	})
	if len(lost) > 0 {
		t.Errorf("%d of %d URLs that were acknowledged are lost", len(lost), len(a.urls))
	}
}

// missing lists all URLs, and returns those that were acknowledged and are not listed.
func (a *acked) missing(t *testing.T, client pb.URLFrontierClient) (map[string]bool, error) {
	stream, err := client.ListURLs(t.Context(), &pb.ListUrlParams{Size: 1 << 31})
	if err != nil {
		return nil, err
	}
	lost := maps.Clone(a.urls)
	for {
		item, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return lost, nil
		}
		if err != nil {
			return nil, err
		}
		known := item.GetKnown()
		if done := known.GetRefetchableFromDate() == 0; a.urls[known.GetInfo().GetUrl()] && !done {
			t.Errorf("%s is not done, which was acknowledged", known.GetInfo().GetUrl())
		}
		delete(lost, known.GetInfo().GetUrl())
	}
}

func (a *acked) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.urls)
}

// TestFrontsThatDoNotShare holds that frontierd warns once if its fronts queue URLs without a key
// differently.
func TestFrontsThatDoNotShare(t *testing.T) {
	redis := testenv.NewRedis(t)
	for _, c := range []struct {
		by, grpc string
		warnings int
	}{{"domain", "127.0.0.1:0", 1}, {"domain", "", 0}, {"host", "127.0.0.1:0", 0}} {
		dir := t.TempDir()
		log := filepath.Join(dir, "log")
		d := startDaemon(t, log, "--redis", redis.URL, "--name", c.by+c.grpc, "--data", filepath.Join(dir, "data"), "--shards", "1", "--queue-by", c.by, "--grpc", c.grpc)
		d.kill(t)
		text, err := os.ReadFile(log)
		if n := bytes.Count(text, []byte("both work on the same URLs only with --queue-by host")); err != nil || n != c.warnings {
			t.Errorf("%+v: %d warnings, %v:\n%s", c, n, err, text)
		}
	}
}
