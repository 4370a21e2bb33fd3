//go:build unix

package urlfrontier_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/urlake/urlake/frontier"
	pb "github.com/urlake/urlake/frontier/urlfrontier/urlfrontierpb"
	"github.com/urlake/urlake/internal/testenv"
)

// clock is a time that a test sets.
type clock struct{ ms atomic.Int64 }

func newClock() *clock                { c := &clock{}; c.ms.Store(time.Now().UnixMilli()); return c }
func (c *clock) now() time.Time       { return time.UnixMilli(c.ms.Load()) }
func (c *clock) pass(d time.Duration) { c.ms.Add(d.Milliseconds()) }

// putMany puts URLs number 0 to n-1 of each of some keys.
func (p *process) putMany(t testing.TB, crawl string, n int, keys ...string) {
	t.Helper()
	var items []*pb.URLItem
	for i := range n {
		for _, key := range keys {
			url := fmt.Sprintf("https://%s/%d", key, i)
			items = append(items, discovered("", info(url, key, crawl)))
		}
	}
	p.putAll(t, pb.AckMessage_OK, items...)
}

// putAll puts URLs, each again while it fails, and fails the test if one has another status. A URL
// fails while its shard moves between processes.
func (p *process) putAll(t testing.TB, want pb.AckMessage_Status, items ...*pb.URLItem) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); len(items) > 0; {
		acks := p.put(t, items...)
		items = slices.DeleteFunc(items, func(item *pb.URLItem) bool {
			id := cmp.Or(item.GetID(), item.GetKnown().GetInfo().GetUrl(), item.GetDiscovered().GetInfo().GetUrl())
			st := acks[id]
			if st != want && st != pb.AckMessage_FAIL {
				t.Fatalf("%s: %v, want %v", id, st, want)
			}
			return st == want
		})
		if time.Now().After(end) {
			t.Fatalf("%d URLs fail", len(items))
		}
	}
}

// keysOf counts the URLs of each key.
func keysOf(urls []*pb.URLInfo) map[string]int {
	n := map[string]int{}
	for _, u := range urls {
		n[u.GetCrawlID()+" "+u.GetKey()]++
	}
	return n
}

// TestGetURLsBounds asks for numbers of queues and of URLs of each, of any crawl and of one.
func TestGetURLsBounds(t *testing.T) {
	t.Parallel()
	keys := []string{"a.example", "b.example", "c.example", "d.example", "e.example"}
	for _, processes := range []int{1, 3} {
		c := newCluster(t, processes, nil)
		c.settled()
		p := c.processes[0]
		for _, test := range []struct {
			name         string
			q            *pb.GetParams
			queues, each int
		}{
			{"everything", &pb.GetParams{}, 10, 7},
			{"any crawl", &pb.GetParams{Item: &pb.GetParams_AnyCrawlID{}}, 10, 7},
			{"DEFAULT", &pb.GetParams{Item: &pb.GetParams_CrawlID{CrawlID: "DEFAULT"}}, 5, 7},
			{"empty is DEFAULT", &pb.GetParams{Item: &pb.GetParams_CrawlID{CrawlID: " "}}, 5, 7},
			{"no such crawl", &pb.GetParams{Item: &pb.GetParams_CrawlID{CrawlID: "none"}}, 0, 0},
			{"three queues", &pb.GetParams{MaxQueues: 3}, 3, 7},
			{"two of each", &pb.GetParams{MaxUrlsPerQueue: 2}, 10, 2},
			{"two of three", &pb.GetParams{MaxQueues: 3, MaxUrlsPerQueue: 2}, 3, 2},
			{"a key in any crawl", &pb.GetParams{Key: "b.example"}, 2, 7},
			{"a key in a crawl", &pb.GetParams{Key: "b.example", MaxUrlsPerQueue: 3, Item: &pb.GetParams_CrawlID{CrawlID: "other"}}, 1, 3},
			{"no such key", &pb.GetParams{Key: "z.example"}, 0, 0},
		} {
			t.Run(fmt.Sprintf("%s, %d processes", test.name, processes), func(t *testing.T) {
				p.putMany(t, "", 7, keys...)
				p.putMany(t, "other", 7, keys...)
				got := p.get(t, test.q)
				counts := keysOf(got)
				if len(counts) != test.queues {
					t.Errorf("%d queues: %v", len(counts), counts)
				}
				for key, n := range counts {
					if n != test.each {
						t.Errorf("%d URLs of %s", n, key)
					}
				}
				seen := map[string]bool{}
				for _, u := range got {
					if id := u.GetCrawlID() + u.GetUrl(); seen[id] {
						t.Errorf("%s came twice", u.GetUrl())
					} else {
						seen[id] = true
					}
				}
				for _, crawl := range []string{"", "other"} {
					n, err := p.DeleteCrawl(t.Context(), &pb.DeleteCrawlMessage{Value: crawl})
					if err != nil || n.GetValue() != uint64(7*len(keys)) {
						t.Errorf("deleted %v of crawl %q: %v", n, crawl, err)
					}
				}
			})
		}
	}
}

// settled waits until the processes of a cluster share its shards evenly, and each knows what the
// others have.
func (c *cluster) settled() {
	c.t.Helper()
	want := c.options.Shards / len(c.processes)
	testenv.Until(c.t, "the processes share the shards", func() bool {
		done := true
		for _, p := range c.processes {
			done = done && p.f.Stats().Shards >= want
		}
		for i := range 100 { // keys of all shards
			key, known := fmt.Sprint("key", i), 0
			for _, p := range c.processes {
				if p.f.Owner(key) != "" {
					known++
				}
			}
			done = done && known == len(c.processes)-1
		}
		return done
	})
}

// TestQueuesRestForWhatTheyGave lets clients take URLs of several keys for an hour of simulated
// time: no key gives more than one URL for each of its delays, however many are asked for at once,
// and nothing is asked for that could not be fetched before its lease ends.
func TestQueuesRestForWhatTheyGave(t *testing.T) {
	t.Parallel()
	const delay = 10 * time.Second
	now := newClock()
	p := newCluster(t, 1, func(o *frontier.Options) { o.Delay, o.Now, o.Own = delay, now.now, time.Hour }).processes[0]
	keys := []string{"a.example", "b.example", "c.example"}
	p.putMany(t, "", 400, keys...)
	p.putMany(t, "other", 400, keys...)
	// A client cannot make the delay of all keys shorter.
	if _, err := p.SetDelay(t.Context(), &pb.QueueDelayParams{DelayRequestable: 1}); err != nil {
		t.Fatal(err)
	}
	begin := now.now()
	given := map[string]int{}
	free := map[string]time.Time{} // when what a key gave can have been fetched
	for turn := range 1200 {
		q := &pb.GetParams{MaxUrlsPerQueue: uint32(turn % 4), DelayRequestable: 60}
		for key, n := range keysOf(p.get(t, q)) {
			key = key[len(key)-len("a.example"):]
			if now.now().Before(free[key]) {
				t.Fatalf("%s gives %d URLs %v too soon", key, n, free[key].Sub(now.now()))
			}
			if n > 7 || q.MaxUrlsPerQueue > 0 && n > int(q.MaxUrlsPerQueue) {
				t.Fatalf("%s gives %d URLs at once", key, n)
			}
			free[key] = now.now().Add(time.Duration(n) * delay)
			given[key] += n
		}
		now.pass(3 * time.Second)
	}
	most := int(now.now().Sub(begin)/delay) + 7
	for _, key := range keys {
		// A queue whose URLs are leased gives nothing, so less than one for each delay is right.
		if n := given[key]; n > most || n < most/2 {
			t.Errorf("%s gave %d URLs in an hour, at most %d are allowed", key, n, most)
		}
	}
}

// TestAQueueGivesNothingWhileItsURLsAreOut asks one queue again while its URL is leased, and after
// that.
func TestAQueueGivesNothingWhileItsURLsAreOut(t *testing.T) {
	t.Parallel()
	now := newClock()
	p := newCluster(t, 1, func(o *frontier.Options) { o.Now, o.Own = now.now, time.Hour }).processes[0]
	p.putMany(t, "", 3, "a.example")
	q := &pb.GetParams{Key: "a.example", MaxUrlsPerQueue: 1, DelayRequestable: 2}
	first := p.get(t, q)
	if len(first) != 1 {
		t.Fatalf("%d URLs", len(first))
	}
	if got := p.get(t, q); len(got) != 0 {
		t.Errorf("%v while %v is out", got, first)
	}
	now.pass(1999 * time.Millisecond)
	if got := p.get(t, q); len(got) != 0 {
		t.Errorf("%v while %v is out", got, first)
	}
	now.pass(time.Millisecond)
	if got := p.get(t, q); len(got) != 1 {
		t.Errorf("%d URLs after the lease", len(got))
	}
}

// TestClientsThatLeave cancels a call in the midst of its answer: what was not sent waits again.
func TestClientsThatLeave(t *testing.T) {
	t.Parallel()
	p := newCluster(t, 1, nil).processes[0]
	const n = 60_000
	var urls []string
	for i := range n {
		urls = append(urls, fmt.Sprintf("https://site%d.example/a/long/path/so/that/the/answer/does/not/fit/into/a/window", i))
	}
	for part := range slices.Chunk(urls, 10_000) {
		var items []*pb.URLItem
		for _, u := range part {
			items = append(items, discovered("", info(u, "", "")))
		}
		p.put(t, items...)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := p.GetURLs(ctx, &pb.GetParams{DelayRequestable: 3600})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	cancel()
	got := 0
	testenv.Until(t, "another client gets what one did not read that left", func() bool {
		got += len(p.get(t, &pb.GetParams{DelayRequestable: 3600}))
		return got >= n/2
	})
}

// TestControl switches the frontier off and on, sets delays and blocks queues, by one process, and
// looks at all of them, and again after a restart.
func TestControl(t *testing.T) {
	for _, processes := range []int{1, 2} {
		t.Run(fmt.Sprint(processes), func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, processes, nil)
			c.settled()
			first, last := c.processes[0], c.processes[processes-1]
			keys := []string{"a.example", "b.example", "c.example", "d.example", "e.example", "f.example"}
			first.putMany(t, "", 50, keys...)
			must := func(_ *pb.Empty, err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			gives := func(p *process, want int) {
				t.Helper()
				got := p.get(t, &pb.GetParams{MaxUrlsPerQueue: 1, DelayRequestable: 1})
				if len(got) != want {
					t.Errorf("%d URLs, want %d: %v", len(got), want, keysOf(got))
				}
				for _, u := range got { // so that the queue gives another
					p.put(t, known("", info(u.GetUrl(), u.GetKey(), u.GetCrawlID()), 0))
				}
			}
			active := func(p *process, local, want bool) {
				t.Helper()
				got, err := p.GetActive(t.Context(), &pb.Local{Local: local})
				if err != nil || got.GetState() != want {
					t.Errorf("active: %v, %v, want %v", got.GetState(), err, want)
				}
			}
			gives(first, 6)
			must(first.SetActive(t.Context(), &pb.Active{State: false}))
			for _, p := range c.processes {
				active(p, true, false)
				active(p, false, false)
				gives(p, 0)
			}
			must(last.SetActive(t.Context(), &pb.Active{State: true}))
			for _, p := range c.processes {
				active(p, false, true)
				gives(p, 6)
			}
			must(first.SetActive(t.Context(), &pb.Active{State: false, Local: true}))
			active(first, true, false)
			active(last, false, false)
			active(last, true, processes > 1)
			must(last.SetActive(t.Context(), &pb.Active{State: true}))
			active(first, true, true)

			must(last.BlockQueueUntil(t.Context(), &pb.BlockQueueParams{Key: "a.example", Time: uint64(time.Now().Unix() + 3600)}))
			gives(first, 5)
			must(first.BlockQueueUntil(t.Context(), &pb.BlockQueueParams{Key: "b.example", Time: uint64(time.Now().Unix() + 3600)}))
			gives(last, 4)
			must(first.BlockQueueUntil(t.Context(), &pb.BlockQueueParams{Key: "a.example"}))
			gives(last, 5)
			must(last.SetDelay(t.Context(), &pb.QueueDelayParams{Key: "c.example", DelayRequestable: 3600}))
			gives(first, 5) // the delay begins with the next URL
			gives(first, 4)
			must(first.SetDelay(t.Context(), &pb.QueueDelayParams{DelayRequestable: 3600}))
			gives(last, 4)
			gives(first, 0)
			must(last.SetActive(t.Context(), &pb.Active{State: false}))
			for _, p := range c.processes {
				p.stop()
			}
			c.processes = nil
			again := c.start()
			active(again, false, false)
			gives(again, 0)
			must(again.SetActive(t.Context(), &pb.Active{State: true}))
			gives(again, 0) // all rest, and b.example is blocked
			must(again.BlockQueueUntil(t.Context(), &pb.BlockQueueParams{Key: "b.example"}))
			gives(again, 1)
		})
	}
}

// TestSetLogLevel sets the level of the log of all processes, and of one.
func TestSetLogLevel(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, nil)
	c.settled()
	first, second := c.processes[0], c.processes[1]
	if _, err := first.SetLogLevel(t.Context(), &pb.LogLevelParams{Package: "any", Level: pb.LogLevelParams_ERROR}); err != nil {
		t.Fatal(err)
	}
	if first.level.Level() != slog.LevelError || second.level.Level() != slog.LevelError {
		t.Errorf("levels %v and %v", first.level, second.level)
	}
	if _, err := second.SetLogLevel(t.Context(), &pb.LogLevelParams{Level: pb.LogLevelParams_TRACE, Local: true}); err != nil {
		t.Fatal(err)
	}
	if first.level.Level() != slog.LevelError || second.level.Level() != slog.LevelDebug {
		t.Errorf("levels %v and %v", first.level, second.level)
	}
	if _, err := second.SetLogLevel(t.Context(), &pb.LogLevelParams{Level: 7}); err == nil {
		t.Error("level 7 is none")
	}
}

// TestListNodes asks each process for all.
func TestListNodes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	want := []string{}
	for _, p := range c.processes {
		want = append(want, p.address)
	}
	slices.Sort(want)
	for _, p := range c.processes {
		got, err := p.ListNodes(t.Context(), &pb.Empty{})
		if err != nil || !slices.Equal(got.GetValues(), want) {
			t.Errorf("%v, %v, want %v", got.GetValues(), err, want)
		}
	}
}

// TestSetCrawlLimit limits a queue: once so many of its URLs are done it gives no more, to neither
// front and after a restart too, until the limit is lifted or one of them is deleted.
func TestSetCrawlLimit(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, nil)
	p := c.processes[0]
	p.putMany(t, "", 10, "a.example", "b.example")
	limit := func(n uint32) {
		t.Helper()
		if _, err := p.SetCrawlLimit(t.Context(), &pb.CrawlLimitParams{Key: "a.example", Limit: n}); err != nil {
			t.Fatal(err)
		}
	}
	gives := func(want ...string) {
		t.Helper()
		var got []string
		for _, u := range p.get(t, &pb.GetParams{MaxUrlsPerQueue: 1}) {
			got = append(got, u.GetKey())
			p.putAll(t, pb.AckMessage_OK, known("", info(u.GetUrl(), u.GetKey(), u.GetCrawlID()), 0))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("URLs of %v, want %v", got, want)
		}
	}
	limit(2)
	gives("a.example", "b.example")
	gives("a.example", "b.example")
	gives("b.example")
	claims, err := p.f.Claim(t.Context(), frontier.ClaimRequest{Max: 10})
	if err != nil || len(claims) != 1 || claims[0].Key != "b.example" {
		t.Errorf("%v, %v", claims, err)
	}
	p.stop()
	c.processes = nil
	p = c.start()
	gives() // that of b.example is claimed
	limit(3)
	gives("a.example")
	gives()
	limit(0)
	gives("a.example")
	if _, err := p.SetCrawlLimit(t.Context(), &pb.CrawlLimitParams{Limit: 1}); err == nil {
		t.Error("a limit of no queue")
	}
}

// TestReportsAreVisits reports what came of URLs: of those that are leased there is a visit, with
// the status that the metadata says, and over HTTP the date is no depth.
func TestReportsAreVisits(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, nil)
	p := c.processes[0]
	p.putMany(t, "", 3, "a.example")
	got := p.get(t, &pb.GetParams{MaxUrlsPerQueue: 2})
	if len(got) != 2 {
		t.Fatalf("%d URLs", len(got))
	}
	got[0].Metadata = map[string]*pb.StringList{"fetch.statusCode": {Values: []string{"404"}}}
	later := time.Now().Unix() + 1000
	p.putAll(t, pb.AckMessage_OK, known("1", got[0], 0), known("2", got[1], later), known("3", info("https://a.example/2", "a.example", ""), 0))
	p.putAll(t, pb.AckMessage_OK, known("4", got[0], 0)) // again
	look := func() {
		t.Helper()
		visits := map[string]uint16{}
		if _, _, err := p.f.Visited(time.Time{}, time.Time{}, "", 100, func(v frontier.Visit) bool {
			if visits[v.URL] = v.Status; v.Depth != 0 || v.Key != "a.example" || v.Time.IsZero() {
				t.Errorf("%+v", v)
			}
			return true
		}); err != nil {
			t.Fatal(err)
		}
		want := map[string]uint16{got[0].GetUrl(): 404, got[1].GetUrl(): 0}
		if !maps.Equal(visits, want) {
			t.Errorf("visits %v, want %v", visits, want)
		}
	}
	look()
	p.stop()
	c.processes = nil
	p = c.start()
	look()
	item, err := p.GetURLStatus(t.Context(), &pb.URLStatusRequest{Url: got[1].GetUrl(), Key: "a.example"})
	if err != nil || item.GetKnown().GetRefetchableFromDate() != uint64(later) {
		t.Errorf("%v, %v, want a date of %d", item, err, later)
	}
	// Dates have 32 bits, as docs/frontier.md says: one in milliseconds comes back as the last.
	p.putAll(t, pb.AckMessage_OK, known("6", info("https://a.example/4", "a.example", ""), later*1000))
	item, err = p.GetURLStatus(t.Context(), &pb.URLStatusRequest{Url: "https://a.example/4", Key: "a.example"})
	if err != nil || item.GetKnown().GetRefetchableFromDate() != 1<<32-1 {
		t.Errorf("%v, %v, want the last date", item, err)
	}
	p.putAll(t, pb.AckMessage_OK, known("5", info("https://a.example/3", "a.example", ""), 1))
	claims, err := p.f.Claim(t.Context(), frontier.ClaimRequest{Max: 10})
	if err != nil || len(claims) != 1 || claims[0].Depth != 0 {
		t.Errorf("%+v, %v", claims, err)
	}
}
