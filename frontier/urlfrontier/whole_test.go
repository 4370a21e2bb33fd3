//go:build unix

package urlfrontier_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/urlake/urlake/frontier"
	pb "github.com/urlake/urlake/frontier/urlfrontier/urlfrontierpb"
)

// TestAPartIsNotTheWhole lets Redis hang until the process may not serve its shards any more: what
// is about all of them is refused, instead of being answered with what is left.
func TestAPartIsNotTheWhole(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, func(o *frontier.Options) { o.Own = time.Second })
	p := c.processes[0]
	p.putMany(t, "", 3, "a.example", "b.example", "c.example", "d.example")
	c.redis.Pause(t)
	for p.f.Stats().Shards > 0 && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
	var errs [5]error
	_, errs[0] = p.ListCrawls(t.Context(), &pb.Local{})
	_, errs[1] = p.ListQueues(t.Context(), &pb.Pagination{})
	_, errs[2] = p.DeleteCrawl(t.Context(), &pb.DeleteCrawlMessage{Value: "DEFAULT"})
	_, errs[3] = p.CountURLs(t.Context(), &pb.CountUrlParams{Filter: new(string)})
	stream, err := p.ListURLs(t.Context(), &pb.ListUrlParams{})
	if err == nil {
		_, err = stream.Recv()
	}
	errs[4] = err
	for i, call := range []string{"ListCrawls", "ListQueues", "DeleteCrawl", "CountURLs", "ListURLs"} {
		if status.Code(errs[i]) != codes.Unavailable {
			t.Errorf("%s of no shards: %v", call, errs[i])
		}
	}
	c.redis.Resume(t)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		n, err := p.CountURLs(t.Context(), &pb.CountUrlParams{})
		if err == nil && n.GetValue() == 12 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d URLs are left of 12: %v", n.GetValue(), err)
		}
	}
}
