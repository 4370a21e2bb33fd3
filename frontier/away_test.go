//go:build unix

package frontier_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/internal/testenv"
)

// TestLargeClaim holds that a claim of more domains than Redis is told of at once gets some, and
// others the rest.
func TestLargeClaim(t *testing.T) {
	o := options(t, newClock(), time.Second)
	o.Shards = 1
	f := start(t, testenv.NewRedis(t), o)
	const n = 5000
	var urls []frontier.URL
	for i := range n {
		urls = append(urls, frontier.URL{URL: fmt.Sprintf("https://site%d.example/", i)})
	}
	add(t, f, frontier.Added, urls...)
	for got := 0; got < n; {
		claims := claim(t, f, frontier.ClaimRequest{Max: 10_000})
		if len(claims) == 0 {
			t.Fatalf("%d of %d URLs were claimed", got, n)
		}
		got += len(claims)
	}
}

// TestRedisIsAwayForSeconds takes Redis away, and lets time pass in which the frontier wants to
// tell it something. URLs and results are taken all the while, and no shard is opened again.
func TestRedisIsAwayForSeconds(t *testing.T) {
	o := options(t, newClock(), 0)
	o.Shards = 1
	server := testenv.NewRedis(t)
	f := start(t, server, o)
	addAll(t, f, pages("a.example", 4))
	got := claim(t, f, frontier.ClaimRequest{Max: 4, PerQueue: 4})
	if len(got) != 4 {
		t.Fatal(got)
	}
	server.Kill(t)
	settle(t, f, frontier.Settled, frontier.Outcome{Lease: got[0].Lease, Status: 200})
	testenv.Until(t, "Redis is missed", func() bool { return f.RedisIsAway(t.Context()) })
	missed := f.Counts().Redis.Errors
	testenv.Until(t, "what is done each second was tried", func() bool { return f.Counts().Redis.Errors > missed+3 })
	add(t, f, frontier.Added, frontier.URL{URL: "https://c.example/"})
	// A result that asks for a rest is to be sent again, and takes none with it.
	results, err := f.Settle(t.Context(), []frontier.Outcome{{Lease: got[1].Lease, Status: 200}, {Lease: got[2].Lease, Status: 503}})
	if err != nil || results[0].Result != frontier.Settled || results[1].Result != frontier.Elsewhere {
		t.Errorf("%v, %v", results, err)
	}
	server.Start(t)
	testenv.Until(t, "Redis is back", func() bool {
		results, err = f.Settle(t.Context(), []frontier.Outcome{{Lease: got[2].Lease, Status: 503}})
		return err == nil && results[0].Result == frontier.Retried
	})
	var urls []string
	for _, c := range claimsSoon(t, f) {
		urls = append(urls, c.URL)
	}
	if slices.Sort(urls); !slices.Equal(urls, []string{got[2].URL, "https://c.example/"}) {
		t.Error(urls)
	}
}

// TestALostNumber loses a URL that was claimed before its record was certain, as it may be when a
// machine dies, or when a snapshot has the lease and not the URL. Its number is given to no other
// URL: the lease, which Redis still has beside others, would hold for that.
func TestALostNumber(t *testing.T) {
	o := options(t, newClock(), 0)
	o.Shards = 1
	server := testenv.NewRedis(t)
	f := start(t, server, o)
	addAll(t, f, pages("a.example", 5))
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(o.Dir)); err != nil {
		t.Fatal(err)
	}
	add(t, f, frontier.Added, frontier.URL{URL: "https://a.example/lost"}) // these files do not have it
	var lost frontier.Claim
	for _, c := range claim(t, f, frontier.ClaimRequest{Max: 10, PerQueue: 10}) {
		if c.URL == "https://a.example/lost" {
			lost = c
		}
	}
	if lost.Lease == "" {
		t.Fatal("the URL was not claimed")
	}
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.Dir = dir
	f = start(t, server, o)
	settle(t, f, frontier.Ended, frontier.Outcome{Lease: lost.Lease, Status: 200})
	add(t, f, frontier.Added, frontier.URL{URL: "https://a.example/other"})
	f.Doubt(0)
	served(t, f)
	settle(t, f, frontier.Ended, frontier.Outcome{Lease: lost.Lease, Status: 200})
	if k, ok, err := f.Find("", "a.example", "https://a.example/other"); !ok || err != nil || k.State != frontier.StateWaiting {
		t.Errorf("another URL has the lease: %+v, %v, %v", k, ok, err)
	}
}
