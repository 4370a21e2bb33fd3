//go:build unix

package urlfrontier_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/urlake/urlake/frontier"
	pb "github.com/urlake/urlake/frontier/urlfrontier/urlfrontierpb"
)

// model is what the protocol promises, without any delay, in maps.
type model struct {
	urls    map[modelKey]*modelURL
	blocked map[string]int64 // by key, in seconds
	limits  map[[2]string]int
}

type modelKey struct{ crawl, key, url string }

type modelURL struct {
	info    *pb.URLInfo
	done    bool
	date    int64 // in seconds
	created int64
	leased  int64 // until when, in milliseconds
}

func (m *model) put(item *pb.URLItem, now time.Time) pb.AckMessage_Status {
	if k := item.GetKnown(); k != nil {
		id := modelKey{k.GetInfo().GetCrawlID(), k.GetInfo().GetKey(), k.GetInfo().GetUrl()}
		u := &modelURL{info: k.GetInfo(), created: now.Unix(), date: int64(k.GetRefetchableFromDate()), done: k.GetRefetchableFromDate() == 0}
		if old := m.urls[id]; old != nil {
			u.created = old.created
		}
		m.urls[id] = u
		return pb.AckMessage_OK
	}
	d := item.GetDiscovered().GetInfo()
	id := modelKey{d.GetCrawlID(), d.GetKey(), d.GetUrl()}
	if m.urls[id] != nil {
		return pb.AckMessage_SKIPPED
	}
	m.urls[id] = &modelURL{info: d, created: now.Unix(), date: now.Unix()}
	return pb.AckMessage_OK
}

// counts are what GetStats returns of a crawl, or of a queue.
func (m *model) counts(crawl, key string, now time.Time) (size, inProcess, completed int, queues, active map[string]int) {
	queues, active = map[string]int{}, map[string]int{}
	for id, u := range m.urls {
		if id.crawl != crawl || key != "" && id.key != key {
			continue
		}
		queues[id.key]++
		switch {
		case u.done:
			completed++
			continue
		case u.leased > now.UnixMilli():
			inProcess++
		}
		size++
		active[id.key]++
	}
	return size, inProcess, completed, queues, active
}

// due returns the URLs of each queue that may be handed out, by date.
func (m *model) due(crawl, key string, perQueue int, now time.Time) map[[2]string][]*modelURL {
	due := map[[2]string][]*modelURL{}
	leased, done := map[[2]string]int{}, map[[2]string]int{}
	for id, u := range m.urls {
		q := [2]string{id.crawl, id.key}
		switch {
		case u.done:
			done[q]++
		case u.leased > now.UnixMilli():
			leased[q]++
		case u.date <= now.Unix() && (crawl == "" || crawl == id.crawl) && (key == "" || key == id.key):
			due[q] = append(due[q], u)
		}
	}
	for q, urls := range due {
		limit, limited := m.limits[q]
		if m.blocked[q[1]] > now.Unix() || limited && done[q] >= limit || perQueue > 0 && leased[q] >= perQueue {
			delete(due, q)
			continue
		}
		slices.SortFunc(urls, func(a, b *modelURL) int { return int(a.date - b.date) })
	}
	return due
}

// TestEqualsModel does random things to frontiers of one process and of two, which restart, and
// compares every answer with that of the model.
func TestEqualsModel(t *testing.T) {
	for _, processes := range []int{1, 2} {
		t.Run(fmt.Sprint(processes), func(t *testing.T) {
			t.Parallel()
			now := newClock()
			now.ms.Store(now.ms.Load() / 1000 * 1000)
			c := newCluster(t, processes, func(o *frontier.Options) {
				o.Now, o.Shard.MemoryBytes = now.now, 8<<10
			})
			c.settled()
			m := &modelTest{t, c, now, &model{map[modelKey]*modelURL{}, map[string]int64{}, map[[2]string]int{}}, rand.New(rand.NewPCG(7, uint64(processes)))}
			for turn := range 100 {
				m.step()
				if turn%10 == 9 {
					m.compare()
				}
				if processes == 1 && turn%40 == 39 {
					c.processes[0].stop()
					c.processes = nil
					c.start()
				}
				if t.Failed() {
					t.Fatalf("in turn %d", turn)
				}
			}
		})
	}
}

type modelTest struct {
	t   *testing.T
	c   *cluster
	now *clock
	m   *model
	rng *rand.Rand
}

var (
	modelCrawls = []string{"DEFAULT", "other", "third"}
	modelKeys   = []string{"a.example", "b.example", "c.example", "d.example", "e.example"}
)

func (x *modelTest) any() *process { return x.c.processes[x.rng.IntN(len(x.c.processes))] }

// tick does what all processes do once a second, until what is due waits: while files are written,
// nothing becomes due.
func (x *modelTest) tick() {
	x.t.Helper()
	later := int64(0)
	for _, u := range x.m.urls {
		if !u.done && u.leased <= x.now.ms.Load() && u.date > x.now.now().Unix() {
			later++
		}
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		got := int64(0)
		for _, p := range x.c.processes {
			if err := p.f.Expire(x.t.Context(), ""); err != nil {
				x.t.Fatal(err)
			}
			got += p.f.Stats().Later
		}
		if got == later {
			return
		}
		if time.Now().After(end) {
			x.t.Fatalf("%d URLs are due later, want %d", got, later)
		}
	}
}

func (x *modelTest) item() *pb.URLItem {
	rng := x.rng
	u := &pb.URLInfo{
		Url: fmt.Sprintf("https://site.example/%c/%d", 'A'+rng.IntN(3), rng.IntN(40)), Key: modelKeys[rng.IntN(len(modelKeys))], CrawlID: modelCrawls[rng.IntN(len(modelCrawls))],
	}
	if rng.IntN(3) == 0 {
		u.Metadata = map[string]*pb.StringList{"n": {Values: []string{fmt.Sprint(rng.Uint32())}}}
	}
	switch rng.IntN(5) {
	case 0:
		return known("", u, 0)
	case 1:
		return known("", u, x.now.now().Unix()+1+rng.Int64N(600))
	case 2:
		return known("", u, x.now.now().Unix()-rng.Int64N(10_000))
	default:
		return discovered("", u)
	}
}

// step does one random thing.
func (x *modelTest) step() {
	t, m, rng, p := x.t, x.m, x.rng, x.any()
	t.Helper()
	crawl, key := modelCrawls[rng.IntN(len(modelCrawls))], modelKeys[rng.IntN(len(modelKeys))]
	must := func(_ *pb.Empty, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	deleted := func(got *pb.Long, err error, gone func(modelKey, *modelURL) bool) {
		t.Helper()
		want := 0
		maps.DeleteFunc(m.urls, func(id modelKey, u *modelURL) bool {
			if gone(id, u) {
				want++
				return true
			}
			return false
		})
		if err != nil || got.GetValue() != uint64(want) {
			t.Errorf("%v were deleted, want %d: %v", got, want, err)
		}
	}
	switch n := rng.IntN(20); {
	case n < 8:
		items := make([]*pb.URLItem, 1+rng.IntN(60))
		want := map[string]pb.AckMessage_Status{}
		for i := range items {
			items[i] = x.item()
			items[i].ID = fmt.Sprint(i)
			want[items[i].ID] = m.put(items[i], x.now.now())
		}
		if got := p.put(t, items...); !maps.Equal(got, want) {
			t.Errorf("acks %v, want %v", got, want)
		}
	case n < 13:
		if len(m.limits) > 0 { // a queue that is below its limit again wakes within a second
			x.tick()
		}
		x.get(p)
	case n < 15:
		x.now.pass(time.Duration(rng.IntN(200)) * time.Second)
		x.tick()
	case n == 15:
		got, err := p.DeleteQueue(t.Context(), &pb.QueueWithinCrawlParams{Key: key, CrawlID: crawl})
		deleted(got, err, func(id modelKey, _ *modelURL) bool { return id.crawl == crawl && id.key == key })
	case n == 16 && rng.IntN(3) == 0:
		got, err := p.DeleteCrawl(t.Context(), &pb.DeleteCrawlMessage{Value: crawl})
		deleted(got, err, func(id modelKey, _ *modelURL) bool { return id.crawl == crawl })
	case n == 16:
		x.now.pass(12 * time.Hour)
		x.tick()
	case n == 17:
		q := &pb.PurgeUrlParams{CrawlID: crawl, Days: uint32(1 + rng.IntN(2))}
		if rng.IntN(2) == 0 {
			q.Key = key
		}
		cut := x.now.now().AddDate(0, 0, -int(q.GetDays())).Unix()
		got, err := p.PurgeURLs(t.Context(), q)
		deleted(got, err, func(id modelKey, u *modelURL) bool {
			return id.crawl == crawl && (q.GetKey() == "" || id.key == q.GetKey()) && u.created <= cut
		})
	case n == 18:
		until := x.now.now().Unix() + rng.Int64N(300)
		if rng.IntN(2) == 0 {
			until = 0
		}
		must(p.BlockQueueUntil(t.Context(), &pb.BlockQueueParams{Key: key, CrawlID: crawl, Time: uint64(until)}))
		m.blocked[key] = until
	default:
		limit := rng.IntN(6)
		must(p.SetCrawlLimit(t.Context(), &pb.CrawlLimitParams{Key: key, CrawlID: crawl, Limit: uint32(limit)}))
		if delete(m.limits, [2]string{crawl, key}); limit > 0 {
			m.limits[[2]string{crawl, key}] = limit
		}
	}
}

// get gets URLs, and sometimes reports what came of them.
func (x *modelTest) get(p *process) {
	t, m, rng := x.t, x.m, x.rng
	t.Helper()
	q := &pb.GetParams{MaxUrlsPerQueue: uint32(rng.IntN(5)), DelayRequestable: uint32(rng.IntN(100))}
	crawl := ""
	if rng.IntN(2) == 0 {
		crawl = modelCrawls[rng.IntN(len(modelCrawls))]
		q.Item = &pb.GetParams_CrawlID{CrawlID: crawl}
	}
	if rng.IntN(3) == 0 {
		q.Key = modelKeys[rng.IntN(len(modelKeys))]
	}
	if rng.IntN(3) == 0 {
		q.MaxQueues = uint32(1 + rng.IntN(4))
	}
	due := m.due(crawl, q.GetKey(), int(q.GetMaxUrlsPerQueue()), x.now.now())
	got := map[[2]string][]*pb.URLInfo{}
	for _, u := range p.get(t, q) {
		id := [2]string{u.GetCrawlID(), u.GetKey()}
		got[id] = append(got[id], u)
	}
	want := len(due)
	if q.GetMaxQueues() > 0 {
		want = min(want, int(q.GetMaxQueues()))
	}
	if len(got) != want {
		t.Errorf("%v: URLs of %d queues, want %d: %v of %v", q, len(got), want, slices.Collect(maps.Keys(got)), slices.Collect(maps.Keys(due)))
	}
	lease := max(int64(q.GetDelayRequestable()), 0) * 1000
	if lease == 0 {
		lease = 30_000
	}
	var reports []*pb.URLItem
	for id, urls := range got {
		n := len(due[id])
		if q.GetMaxUrlsPerQueue() > 0 {
			n = min(n, int(q.GetMaxUrlsPerQueue()))
		}
		if len(urls) != n {
			t.Errorf("%v: %d URLs of %v, want %d", q, len(urls), id, n)
			continue
		}
		for i, info := range urls {
			u := m.urls[modelKey{id[0], id[1], info.GetUrl()}]
			if u == nil || u.done || u.leased > x.now.ms.Load() || !proto.Equal(u.info, info) {
				t.Errorf("%v: %v, want %+v", q, info, u)
				continue
			}
			// Those that are left are no sooner, and these come in order.
			if u.date != due[id][i].date {
				t.Errorf("%v: %s is of %d, want one of %d", q, info.GetUrl(), u.date, due[id][i].date)
			}
			u.leased = x.now.ms.Load() + lease
			if rng.IntN(2) == 0 {
				date := int64(0)
				if rng.IntN(2) == 0 {
					date = x.now.now().Unix() + rng.Int64N(500)
				}
				reports = append(reports, known(fmt.Sprint(len(reports)), info, date))
			}
		}
	}
	for _, r := range reports {
		m.put(r, x.now.now())
	}
	for id, st := range p.put(t, reports...) {
		if st != pb.AckMessage_OK {
			t.Errorf("report %s: %v", id, st)
		}
	}
}

// list lists URLs by pages.
func (x *modelTest) list(q *pb.ListUrlParams, page uint32) (all []*pb.URLItem) {
	t := x.t
	t.Helper()
	for {
		part := proto.CloneOf(q)
		part.Start, part.Size = uint32(len(all)), page
		stream, err := x.any().ListURLs(t.Context(), part)
		if err != nil {
			t.Fatal(err)
		}
		n := uint32(0)
		for {
			item, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, item)
			n++
		}
		if n > page {
			t.Errorf("a page of %d URLs, at most %d were asked for", n, page)
		}
		if n < page {
			return all
		}
	}
}

// compare compares everything that can be asked.
func (x *modelTest) compare() {
	t, m, now := x.t, x.m, x.now.now()
	t.Helper()
	ctx := t.Context()
	crawls := map[string]struct{}{}
	for id := range m.urls {
		crawls[id.crawl] = struct{}{}
	}
	if got, err := x.any().ListCrawls(ctx, &pb.Local{}); err != nil || !slices.Equal(got.GetValues(), slices.Sorted(maps.Keys(crawls))) {
		t.Errorf("crawls %v, want %v: %v", got.GetValues(), crawls, err)
	}
	for _, crawl := range modelCrawls {
		for _, key := range append([]string{"", "none"}, modelKeys...) {
			size, inProcess, completed, queues, active := m.counts(crawl, key, now)
			want := &pb.Stats{
				Size: uint64(size), InProcess: uint32(inProcess), NumberOfQueues: uint64(len(queues)), CrawlID: crawl,
				Counts: map[string]uint64{"completed": uint64(completed), "active_queues": uint64(len(active))},
			}
			got, err := x.any().GetStats(ctx, &pb.QueueWithinCrawlParams{Key: key, CrawlID: crawl})
			if err != nil || !proto.Equal(got, want) {
				t.Errorf("stats of %s %s: %v, %v, want %v", crawl, key, got, err, want)
			}
			if n, err := x.any().CountURLs(ctx, &pb.CountUrlParams{Key: key, CrawlID: crawl}); err != nil || n.GetValue() != uint64(size+completed) {
				t.Errorf("%v URLs of %s %s, want %d: %v", n, crawl, key, size+completed, err)
			}
			maps.DeleteFunc(active, func(key string, _ int) bool { return m.blocked[key] > now.Unix() })
			if key == "" {
				x.queues(crawl, true, slices.Sorted(maps.Keys(queues)))
				x.queues(crawl, false, slices.Sorted(maps.Keys(active)))
			}
			for _, filter := range []string{"", "/B/", "/b/"} {
				x.urls(crawl, key, filter, false)
				x.urls(crawl, key, filter, true)
			}
		}
	}
	for range 50 {
		id := modelKey{
			modelCrawls[x.rng.IntN(len(modelCrawls))], modelKeys[x.rng.IntN(len(modelKeys))],
			fmt.Sprintf("https://site.example/%c/%d", 'A'+x.rng.IntN(3), x.rng.IntN(40)),
		}
		got, err := x.any().GetURLStatus(ctx, &pb.URLStatusRequest{Url: id.url, Key: id.key, CrawlID: id.crawl})
		switch u := m.urls[id]; {
		case u == nil:
			if status.Code(err) != codes.NotFound {
				t.Errorf("%v: %v, %v, want that it is not found", id, got, err)
			}
		case err != nil || !proto.Equal(got, u.item()):
			t.Errorf("%v: %v, %v, want %v", id, got, err, u.item())
		}
	}
}

// item is what clients are told of a URL.
func (u *modelURL) item() *pb.URLItem {
	item := known("", u.info, u.date)
	item.CreationDate = uint64(u.created)
	return item
}

func (x *modelTest) queues(crawl string, inactive bool, want []string) {
	t := x.t
	t.Helper()
	var got []string
	for {
		list, err := x.any().ListQueues(t.Context(), &pb.Pagination{Start: uint32(len(got)), Size: 2, IncludeInactive: inactive, CrawlID: crawl})
		if err != nil {
			t.Fatal(err)
		}
		if list.GetTotal() != uint64(len(want)) || list.GetStart() != uint32(len(got)) || int(list.GetSize()) != len(list.GetValues()) || list.GetCrawlID() != crawl {
			t.Errorf("queues of %s: %v, want %v", crawl, list, want)
		}
		got = append(got, list.GetValues()...)
		if len(list.GetValues()) < 2 {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("queues of %s, inactive %v: %v, want %v", crawl, inactive, got, want)
	}
}

// urls compares the list and the count of the URLs that contain a text.
func (x *modelTest) urls(crawl, key, filter string, ignoreCase bool) {
	t := x.t
	t.Helper()
	want := map[[2]string]*pb.URLItem{}
	for id, u := range x.m.urls {
		url, text := id.url, filter
		if ignoreCase {
			url, text = strings.ToLower(url), strings.ToLower(text)
		}
		if id.crawl == crawl && (key == "" || id.key == key) && strings.Contains(url, text) {
			want[[2]string{id.key, id.url}] = u.item()
		}
	}
	got := x.list(&pb.ListUrlParams{Key: key, CrawlID: crawl, Filter: &filter, IgnoreCase: &ignoreCase}, 37)
	if len(got) != len(want) {
		t.Errorf("%d URLs of %s %s with %q, want %d", len(got), crawl, key, filter, len(want))
	}
	for _, item := range got {
		info := item.GetKnown().GetInfo()
		if w := want[[2]string{info.GetKey(), info.GetUrl()}]; !proto.Equal(item, w) {
			t.Errorf("%v, want %v", item, w)
		}
	}
	if n, err := x.any().CountURLs(t.Context(), &pb.CountUrlParams{Key: key, CrawlID: crawl, Filter: &filter, IgnoreCase: &ignoreCase}); err != nil || n.GetValue() != uint64(len(want)) {
		t.Errorf("%v URLs of %s %s with %q, want %d: %v", n, crawl, key, filter, len(want), err)
	}
}
