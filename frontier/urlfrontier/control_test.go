//go:build unix

package urlfrontier_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/urlake/urlake/frontier/urlfrontier/urlfrontierpb"
)

// TestBlockedForEver holds that a queue is blocked until no time that cannot be shown.
func TestBlockedForEver(t *testing.T) {
	t.Parallel()
	p := newCluster(t, 1, nil).processes[0]
	const last = 253402300799
	if _, err := p.BlockQueueUntil(t.Context(), &pb.BlockQueueParams{Key: "a.example", Time: last + 1}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("the year 10000: %v", err)
	}
	if _, err := p.BlockQueueUntil(t.Context(), &pb.BlockQueueParams{Key: "a.example", Time: last}); err != nil {
		t.Fatal(err)
	}
	d, err := p.f.Domain(t.Context(), "a.example")
	if err != nil || d.Blocked.Unix() != last {
		t.Fatalf("%+v, %v", d, err)
	}
	if _, err := json.Marshal(d); err != nil {
		t.Error(err)
	}
}

// TestNoKey holds that what is said of one queue says nothing of others if it names no key: a
// deletion and a limit are refused, and a block blocks nothing.
func TestNoKey(t *testing.T) {
	t.Parallel()
	for _, processes := range []int{1, 2} {
		p := newCluster(t, processes, nil).processes[0]
		var items []*pb.URLItem
		const urls = 50
		for i := range urls {
			items = append(items, discovered("", info(fmt.Sprintf("http://e%d.example/", i), "", "")))
		}
		p.putAll(t, pb.AckMessage_OK, items...)
		n, err := p.DeleteQueue(t.Context(), &pb.QueueWithinCrawlParams{})
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%d processes: DeleteQueue deletes %d URLs: %v", processes, n.GetValue(), err)
		}
		if _, err := p.BlockQueueUntil(t.Context(), &pb.BlockQueueParams{Time: 1 << 32}); err != nil {
			t.Errorf("BlockQueueUntil: %v", err)
		}
		if _, err := p.SetCrawlLimit(t.Context(), &pb.CrawlLimitParams{Limit: 1}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("SetCrawlLimit: %v", err)
		}
		if left, err := p.CountURLs(t.Context(), &pb.CountUrlParams{}); err != nil || left.GetValue() != urls {
			t.Errorf("%d processes: %d of %d URLs are left: %v", processes, left.GetValue(), urls, err)
		}
		if got := p.get(t, &pb.GetParams{}); len(got) != urls {
			t.Errorf("%d processes: %d of %d URLs are handed out", processes, len(got), urls)
		}
	}
}
