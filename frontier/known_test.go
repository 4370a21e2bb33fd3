//go:build unix

package frontier_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/internal/testenv"
)

// listed returns all URLs of a crawl or a queue, in pages of a few.
func listed(t *testing.T, f *frontier.Frontier, crawl, key string) map[string]frontier.KnownURL {
	t.Helper()
	all := map[string]frontier.KnownURL{}
	for cursor, more := "", true; more; {
		n := 0
		next, err := f.URLs(crawl, key, cursor, func(u frontier.KnownURL) bool {
			if _, twice := all[u.Crawl+" "+u.URL]; twice {
				t.Errorf("%s comes twice", u.URL)
			}
			all[u.Crawl+" "+u.URL] = u
			n++
			return n < 3
		})
		if err != nil {
			t.Fatal(err)
		}
		cursor, more = next, next != ""
	}
	return all
}

// TestRefetch takes a URL through updates by lease and by URL: a settled URL comes again when it is
// due, a leased one is settled by its URL, and a lease of an entry that was replaced has ended.
func TestRefetch(t *testing.T) {
	c := newClock()
	f := start(t, testenv.NewRedis(t), options(t, c, 0))
	const url = "https://a.example/1"
	add(t, f, frontier.Added, frontier.URL{URL: url, Update: true})
	created := c.now().UTC().Truncate(time.Second)
	first := claim(t, f, frontier.ClaimRequest{})
	settle(t, f, frontier.Settled, frontier.Outcome{Lease: first[0].Lease, Status: 200, Refetch: c.now().Add(time.Hour)})
	find := func(want frontier.KnownURL) {
		t.Helper()
		got, ok, err := f.Find("", "", url)
		want.URL, want.Crawl, want.Key, want.Created = url, "DEFAULT", "a.example", created
		if !ok || err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%+v, %v, %v, want %+v", got, ok, err, want)
		}
	}
	find(frontier.KnownURL{State: frontier.StateLater, Due: c.now().UTC().Add(time.Hour), Fetched: created, Status: 200})
	if got := claim(t, f, frontier.ClaimRequest{}); len(got) != 0 {
		t.Fatalf("claimed %+v before it is due", got)
	}
	fetched := created
	c.pass(time.Hour)
	second := claim(t, f, frontier.ClaimRequest{Wait: 20 * time.Second})
	if len(second) != 1 || second[0].URL != url || second[0].Tries != 0 {
		t.Fatalf("%+v", second)
	}
	find(frontier.KnownURL{State: frontier.StateLeased, Fetched: fetched, Status: 200})
	add(t, f, frontier.Known, frontier.URL{URL: url})
	// It is settled by its URL, so the lease is over.
	add(t, f, frontier.Updated, frontier.URL{URL: url, Update: true, Done: true, Metadata: []byte(`"m"`)})
	settle(t, f, frontier.Ended, frontier.Outcome{Lease: second[0].Lease, Status: 200})
	find(frontier.KnownURL{State: frontier.StateDone, Metadata: []byte(`"m"`), Fetched: fetched, Status: 200})
	if got := claim(t, f, frontier.ClaimRequest{}); len(got) != 0 {
		t.Fatalf("claimed %+v, which is done", got)
	}
	// An update has it fetched again, and the next one comes with what it says.
	add(t, f, frontier.Updated, frontier.URL{URL: url, Update: true, Depth: 7})
	add(t, f, frontier.Updated, frontier.URL{URL: url, Update: true, Depth: 8, Priority: 3})
	third := claim(t, f, frontier.ClaimRequest{Max: 10, PerQueue: 10})
	if len(third) != 1 || third[0].Depth != 8 || third[0].Priority != 3 {
		t.Fatalf("%+v", third)
	}
	// The lease of an entry that was replaced can be neither prolonged nor returned.
	add(t, f, frontier.Updated, frontier.URL{URL: url, Update: true, Depth: 9})
	results, _, err := f.Extend(t.Context(), []string{third[0].Lease})
	if err != nil || results[0].Result != frontier.Ended {
		t.Fatal(results, err)
	}
	fourth := claim(t, f, frontier.ClaimRequest{})
	if len(fourth) != 1 || fourth[0].Depth != 9 {
		t.Fatalf("%+v", fourth)
	}
	settle(t, f, frontier.Ended, frontier.Outcome{Lease: third[0].Lease, Status: 200})
	settle(t, f, frontier.Settled, frontier.Outcome{Lease: fourth[0].Lease, Status: 200})
	results2, err := f.Add(t.Context(), []frontier.URL{{URL: url, Done: true}})
	if err != nil || results2[0].Result != frontier.Rejected {
		t.Error(results2, err)
	}
}

// TestListAndDelete lists URLs in every state, and deletes by queue, by crawl and by time. Counts
// are exact, and hold after a restart.
func TestListAndDelete(t *testing.T) {
	c := newClock()
	server := testenv.NewRedis(t)
	o := options(t, c, 0)
	f := start(t, server, o)
	for _, crawl := range []string{"one", "two"} {
		for q := range 5 {
			var urls []frontier.URL
			for i := range 8 {
				u := frontier.URL{URL: fmt.Sprintf("https://site%d.example/%d", q, i), Crawl: crawl, Depth: uint32(i)}
				if i == 7 {
					u.Due = c.now().Add(time.Hour)
				}
				urls = append(urls, u)
			}
			add(t, f, frontier.Added, urls...)
		}
		c.pass(10 * time.Second)
	}
	for i, cl := range claim(t, f, frontier.ClaimRequest{Crawl: "one", Max: 10, PerQueue: 2}) {
		if i%2 == 0 {
			settle(t, f, frontier.Settled, frontier.Outcome{Lease: cl.Lease, Status: 404})
		}
	}
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	f = start(t, server, o)
	if got, _ := f.Crawls(); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("crawls %q", got)
	}
	states := map[string]int{}
	for _, u := range listed(t, f, "one", "") {
		states[u.State]++
	}
	if want := map[string]int{frontier.StateWaiting: 25, frontier.StateLater: 5, frontier.StateLeased: 5, frontier.StateDone: 5}; !maps.Equal(states, want) {
		t.Errorf("%v, want %v", states, want)
	}
	if st, _ := f.CrawlStats("one", ""); st.Waiting() != 25 || st.Later() != 5 || st.Leased() != 5 || st.Done() != 5 || st.Queues != 5 {
		t.Errorf("%+v", st)
	}
	if got := listed(t, f, "two", "site3.example"); len(got) != 8 {
		t.Errorf("%d URLs of a queue", len(got))
	}
	remove := func(want int64, n int64, err error) {
		t.Helper()
		if n != want || err != nil {
			t.Fatalf("deleted %d, %v, want %d", n, err, want)
		}
	}
	n, err := f.DeleteQueue(t.Context(), "one", "site3.example")
	remove(8, n, err)
	n, err = f.DeleteQueue(t.Context(), "one", "site3.example")
	remove(0, n, err)
	add(t, f, frontier.Added, frontier.URL{URL: "https://site3.example/1", Crawl: "one"})
	claimed := 0
	for got := claim(t, f, frontier.ClaimRequest{Crawl: "one"}); len(got) > 0; got = claim(t, f, frontier.ClaimRequest{Crawl: "one"}) {
		claimed += len(got)
	}
	if claimed != 4*5+1 {
		t.Errorf("%d URLs claimed, want 21", claimed)
	}
	n, _, err = f.Purge(t.Context(), "one", "", c.now().Add(-time.Second))
	remove(4*8, n, err)
	if got := listed(t, f, "one", ""); len(got) != 1 || got["one https://site3.example/1"].State != frontier.StateLeased {
		t.Errorf("%+v", got)
	}
	n, _, err = f.DeleteCrawl(t.Context(), "one")
	remove(1, n, err)
	if got, _ := f.Crawls(); !slices.Equal(got, []string{"two"}) {
		t.Errorf("crawls %q", got)
	}
	if got := claim(t, f, frontier.ClaimRequest{Crawl: "one"}); len(got) != 0 {
		t.Errorf("claimed %+v of a crawl that was deleted", got)
	}
	queues := map[string]int64{}
	f.Queues("two", false, func(q frontier.QueueCounts) bool { queues[q.Key] = q.All(); return true })
	if len(queues) != 5 || queues["site0.example"] != 8 {
		t.Errorf("%v", queues)
	}
	// What is settled is inactive.
	var one string
	for range 7 {
		got := claim(t, f, frontier.ClaimRequest{Crawl: "two", Max: 100, PerQueue: 100})
		for _, cl := range got {
			one = cl.Key
			settle(t, f, frontier.Settled, frontier.Outcome{Lease: cl.Lease, Status: 200})
		}
	}
	add(t, f, frontier.Updated, frontier.URL{URL: "https://" + one + "/7", Crawl: "two", Update: true, Done: true})
	count := func(inactive bool) (n int) {
		f.Queues("two", inactive, func(frontier.QueueCounts) bool { n++; return true })
		return n
	}
	if all, active := count(true), count(false); all != 5 || active != 4 {
		t.Errorf("%d queues, %d active", all, active)
	}
}

// TestCoveredShards lets the time of one shard of four be over. What asks all shards says that it
// is about three of them.
func TestCoveredShards(t *testing.T) {
	f := start(t, testenv.NewRedis(t), options(t, newClock(), 0))
	var urls []frontier.URL
	for i := range 40 {
		urls = append(urls, frontier.URL{URL: fmt.Sprintf("https://site%d.example/", i)})
	}
	add(t, f, frontier.Added, urls...)
	check := func(want ...int) {
		t.Helper()
		_, crawls := f.Crawls()
		_, stats := f.CrawlStats("", "")
		queues := f.Queues("", true, func(frontier.QueueCounts) bool { return true })
		listed, err := f.OwnURLs("", "", func(frontier.KnownURL) bool { return true })
		_, purged, failed := f.Purge(t.Context(), "", "", time.Unix(1, 0))
		if err != nil || failed != nil {
			t.Fatal(err, failed)
		}
		for _, got := range [][]int{crawls, stats, queues, listed, purged} {
			if !slices.Equal(got, want) {
				t.Errorf("shards %v, %v, %v, %v, %v are covered, want %v", crawls, stats, queues, listed, purged, want)
				return
			}
		}
	}
	check(0, 1, 2, 3)
	f.Lapse(2)
	check(0, 1, 3)
	n, shards, err := f.DeleteCrawl(t.Context(), "")
	if err != nil || n == 0 || n == 40 || !slices.Equal(shards, []int{0, 1, 3}) {
		t.Errorf("deleted %d of 40 URLs in shards %v: %v", n, shards, err)
	}
}
