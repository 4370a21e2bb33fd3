//go:build unix

package urlfrontier_test

import (
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/urlake/urlake/frontier"
	pb "github.com/urlake/urlake/frontier/urlfrontier/urlfrontierpb"
	"github.com/urlake/urlake/internal/testenv"
)

// TestAPartIsNotTheWhole lets Redis hang until the process may not serve its shards any more: what
// is about all of them is refused, instead of being answered with what is left.
func TestAPartIsNotTheWhole(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, func(o *frontier.Options) { o.Own = time.Second })
	p := c.processes[0]
	p.putMany(t, "", 3, "a.example", "b.example", "c.example", "d.example")
	c.redis.Pause(t)
	testenv.Until(t, "the process serves no shard", func() bool { return p.f.Stats().Shards == 0 })
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
	testenv.Until(t, "all 12 URLs are counted again", func() bool {
		n, err := p.CountURLs(t.Context(), &pb.CountUrlParams{})
		return err == nil && n.GetValue() == 12
	})
}

// TestPagesOutliveMoves lists URLs by pages while half of the shards move to another process, and
// asks both. Nothing is put meanwhile, so the pages have each URL once, in the order of before. A
// page before which a shard is served by nobody is refused, though others could fill it.
func TestPagesOutliveMoves(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, func(o *frontier.Options) { o.Own = 5 * time.Second })
	first := c.processes[0]
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"} {
		first.putMany(t, "", 5, key+".example")
	}
	page := func(p *process, start, size int) (urls []string, err error) {
		stream, err := p.ListURLs(t.Context(), &pb.ListUrlParams{Start: uint32(start), Size: uint32(size)})
		for err == nil {
			var item *pb.URLItem
			if item, err = stream.Recv(); err == nil {
				urls = append(urls, item.GetKnown().GetInfo().GetUrl())
			}
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return urls, err
	}
	before, err := page(first, 0, 100)
	if err != nil || len(before) != 60 {
		t.Fatal(len(before), err)
	}
	asked := []*process{first}
	var got []string
	for n := 0; len(got) < len(before); n++ {
		var urls []string
		testenv.Until(t, "a page is served", func() bool {
			urls, err = page(asked[n%len(asked)], len(got), 7)
			if err != nil && status.Code(err) != codes.Unavailable {
				t.Fatalf("after %d URLs: %v", len(got), err)
			}
			return err == nil
		})
		if got = append(got, urls...); len(got) == 14 {
			asked = append(asked, c.start())
			testenv.Until(t, "the first process gives away half of its shards", func() bool { return first.f.Stats().Shards <= 4 })
		}
	}
	if !slices.Equal(got, before) {
		t.Errorf("pages %v, want %v", got, before)
	}
	// The shards of the second process are served by nobody until its time is over.
	second := asked[1]
	testenv.Until(t, "the second process serves half of the shards", func() bool { return second.f.Stats().Shards >= 4 })
	second.halt()
	refused := 0
	for start := range before {
		urls, err := page(first, start, 1)
		switch {
		case status.Code(err) == codes.Unavailable:
			refused++
		case err != nil || len(urls) != 1 || urls[0] != before[start]:
			t.Errorf("page %d: %v, %v, want %s", start, urls, err, before[start])
		}
	}
	if refused == 0 {
		t.Error("no page was refused while a process was away")
	}
}
