//go:build unix

package frontier_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/frontier/shard"
	"github.com/urlake/urlake/internal/testenv"
)

// clock is a time that a test sets.
type clock struct{ ms atomic.Int64 }

func (c *clock) now() time.Time       { return time.UnixMilli(c.ms.Load()) }
func (c *clock) pass(d time.Duration) { c.ms.Add(d.Milliseconds()) }
func newClock() *clock                { c := &clock{}; c.ms.Store(1_700_000_000_000); return c }
func options(t *testing.T, c *clock, delay time.Duration) frontier.Options {
	return frontier.Options{
		Dir: t.TempDir(), Shards: 4, Delay: delay, Lease: time.Minute, Tries: 3, Own: time.Minute, Now: c.now,
		Shard: shard.Options{MemoryBytes: 1 << 20},
	}
}

func add(t *testing.T, f *frontier.Frontier, want string, urls ...frontier.URL) {
	t.Helper()
	results, err := f.Add(t.Context(), urls)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if r.Result != want {
			t.Fatalf("%s: %+v, want %s", urls[i].URL, r, want)
		}
	}
}

func claim(t *testing.T, f *frontier.Frontier, r frontier.ClaimRequest) []frontier.Claim {
	t.Helper()
	claims, err := f.Claim(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return claims
}

func settle(t *testing.T, f *frontier.Frontier, want string, o frontier.Outcome) {
	t.Helper()
	got, err := f.Settle(t.Context(), []frontier.Outcome{o})
	if err != nil || got[0].Result != want {
		t.Fatalf("%+v: %v, %v, want %s", o, got, err, want)
	}
}

// TestAnHourOfPoliteness lets three clients claim for an hour of simulated time: no domain is asked
// sooner than its delay, none waits longer, and the URLs of each come in their order.
func TestAnHourOfPoliteness(t *testing.T) {
	c := newClock()
	const delay, domains, each = 70 * time.Second, 60, 100
	f := start(t, testenv.NewRedis(t), options(t, c, delay))
	var urls []frontier.URL
	for d := range domains {
		for i := range each {
			urls = append(urls, frontier.URL{
				URL: fmt.Sprintf("https://site%d.example/%d", d, i), Priority: uint16(i % 3), Depth: uint32(i % 5),
			})
		}
	}
	add(t, f, frontier.Added, urls...)
	begin := c.now()
	slow := 7 * time.Second
	if err := f.ChangeDomain(t.Context(), "site0.example", frontier.DomainChange{Delay: &slow}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	times := map[string][]time.Duration{}
	last := map[string]frontier.Claim{}
	for range 3600 {
		var clients sync.WaitGroup
		var all []frontier.Claim
		for range 3 {
			clients.Go(func() {
				got, err := f.Claim(t.Context(), frontier.ClaimRequest{Max: 40})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				all = append(all, got...)
			})
		}
		clients.Wait()
		for _, cl := range all {
			times[cl.Key] = append(times[cl.Key], c.now().Sub(begin))
			if before, ok := last[cl.Key]; ok && (before.Priority < cl.Priority || before.Priority == cl.Priority && before.Depth > cl.Depth) {
				t.Errorf("%s after %s", cl.URL, before.URL)
			}
			last[cl.Key] = cl
			settle(t, f, frontier.Settled, frontier.Outcome{Lease: cl.Lease, Status: 200})
		}
		c.pass(time.Second)
	}
	for d := range domains {
		key, wait := fmt.Sprintf("site%d.example", d), delay
		if d == 0 {
			wait = slow
		}
		var want []time.Duration
		for at := time.Duration(0); at < time.Hour && len(want) < each; at += wait {
			want = append(want, at)
		}
		if !slices.Equal(times[key], want) {
			t.Fatalf("%s was claimed at %v, want %v", key, times[key], want)
		}
	}
}

// TestLeases follows a URL through leases that end, are prolonged, and settle.
func TestLeases(t *testing.T) {
	c := newClock()
	f := start(t, testenv.NewRedis(t), options(t, c, 0))
	add(t, f, frontier.Added, frontier.URL{URL: "https://example.com/", Metadata: []byte(`{"a":1}`)})
	add(t, f, frontier.Known, frontier.URL{URL: "HTTPS://EXAMPLE.COM"})
	add(t, f, frontier.Rejected, frontier.URL{URL: "mailto:a@example.com"})
	first := claim(t, f, frontier.ClaimRequest{Max: 5})
	if len(first) != 1 || first[0].URL != "https://example.com/" || string(first[0].Metadata) != `{"a":1}` || first[0].Tries != 0 {
		t.Fatalf("%+v", first)
	}
	if got := claim(t, f, frontier.ClaimRequest{Max: 5}); len(got) != 0 {
		t.Fatalf("claimed twice: %+v", got)
	}
	c.pass(40 * time.Second)
	live, until, err := f.Extend(t.Context(), []string{first[0].Lease, "bm8"})
	if err != nil || live[0].Result != frontier.Extended || live[1].Result != frontier.Ended || !until.Equal(c.now().Add(time.Minute)) {
		t.Fatal(live, until, err)
	}
	c.pass(40 * time.Second)
	if got := claim(t, f, frontier.ClaimRequest{Max: 5, Wait: 3 * time.Second}); len(got) != 0 {
		t.Fatalf("a prolonged lease ended: %+v", got)
	}
	c.pass(time.Minute)
	// A claim that waits gets it when the lease has ended.
	second := claim(t, f, frontier.ClaimRequest{Max: 5, Wait: 30 * time.Second})
	if len(second) != 1 || second[0].Tries != 1 || second[0].Lease == first[0].Lease {
		t.Fatalf("%+v", second)
	}
	settle(t, f, frontier.Ended, frontier.Outcome{Lease: first[0].Lease, Status: 200})
	if live, _, err := f.Extend(t.Context(), []string{first[0].Lease}); err != nil || live[0].Result != frontier.Ended {
		t.Fatal(live, err)
	}
	settle(t, f, frontier.Retried, frontier.Outcome{Lease: second[0].Lease, Error: "no answer"})
	c.pass(time.Minute)
	third := claim(t, f, frontier.ClaimRequest{})
	if len(third) != 1 || third[0].Tries != 2 {
		t.Fatalf("%+v", third)
	}
	settle(t, f, frontier.Settled, frontier.Outcome{Lease: third[0].Lease, Status: 503}) // the last try
	if got, err := f.Seen("", "", "http://example.com:80/"); err != nil || got.Seen {
		t.Fatal("another scheme is another URL", got, err)
	}
	got, err := f.Seen("", "", "https://example.com")
	if err != nil || !got.Seen || !got.Settled || got.Status != 503 || !got.Fetched.Equal(c.now().Truncate(time.Second)) {
		t.Fatal(got, err)
	}
	if _, err := f.Seen("", "", "::"); !errors.Is(err, frontier.ErrURL) {
		t.Fatal(err)
	}
}

// TestQueuesAreControlled pauses, blocks and slows down a queue, whether something waits in it or
// not, and starts the frontier again in between.
func TestQueuesAreControlled(t *testing.T) {
	c := newClock()
	server := testenv.NewRedis(t)
	o := options(t, c, time.Second)
	f := start(t, server, o)
	const key = "example.com"
	n := 0
	next := func() frontier.URL { n++; return frontier.URL{URL: fmt.Sprintf("https://example.com/%d", n)} }
	change := func(ch frontier.DomainChange) {
		t.Helper()
		if err := f.ChangeDomain(t.Context(), key, ch); err != nil {
			t.Fatal(err)
		}
	}
	claims := func(want int) {
		t.Helper()
		for _, cl := range claim(t, f, frontier.ClaimRequest{}) {
			settle(t, f, frontier.Settled, frontier.Outcome{Lease: cl.Lease, Status: 200})
			want--
		}
		if want != 0 {
			t.Fatalf("%d claims are missing", want)
		}
	}
	again := func() {
		t.Helper()
		if err := f.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		f = start(t, server, o)
	}
	yes, no, hour, ten := true, false, time.Hour, 10*time.Second
	change(frontier.DomainChange{Pause: &yes})
	add(t, f, frontier.Added, next(), next(), next(), next(), next())
	claims(0)
	again()
	claims(0)
	change(frontier.DomainChange{Pause: &no})
	claims(1)
	claims(0)
	c.pass(time.Second)
	change(frontier.DomainChange{Block: &hour})
	again()
	c.pass(59 * time.Minute)
	claims(0)
	c.pass(time.Minute)
	claims(1)
	change(frontier.DomainChange{Delay: &ten})
	c.pass(time.Second)
	claims(1)
	c.pass(9 * time.Second)
	claims(0)
	again()
	c.pass(time.Second)
	claims(1)
	// The queue becomes empty, and keeps its time.
	c.pass(10 * time.Second)
	claims(1)
	q, err := f.Domain(t.Context(), key)
	if err != nil || q.Waiting != 0 || q.Delay != ten || !q.Next.Equal(c.now().Add(ten)) {
		t.Fatalf("%+v, %v", q, err)
	}
	add(t, f, frontier.Added, next())
	claims(0)
	c.pass(10 * time.Second)
	claims(1)
	// A server that wants to be left alone.
	add(t, f, frontier.Added, next(), next())
	c.pass(10 * time.Second)
	got := claim(t, f, frontier.ClaimRequest{})
	settle(t, f, frontier.Retried, frontier.Outcome{Lease: got[0].Lease, Status: 429, RetryAfter: 100 * time.Second})
	c.pass(99 * time.Second)
	claims(0)
	c.pass(time.Second)
	claims(1)
}

// TestRedisForgets empties Redis under a running frontier: it finds out, what waits is ready again,
// and leases from before settle nothing.
func TestRedisForgets(t *testing.T) {
	c := newClock()
	server := testenv.NewRedis(t)
	o := options(t, c, 0)
	o.Own = 5 * time.Second
	f := start(t, server, o)
	add(t, f, frontier.Added, frontier.URL{URL: "https://a.example/"}, frontier.URL{URL: "https://b.example/"})
	before := claim(t, f, frontier.ClaimRequest{Max: 1})
	if len(before) != 1 {
		t.Fatal(before)
	}
	opt, err := redis.ParseURL(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opt)
	if err := errors.Join(client.FlushAll(t.Context()).Err(), client.Close()); err != nil {
		t.Fatal(err)
	}
	var after []frontier.Claim
	for end := time.Now().Add(time.Minute); len(after) < 2 && time.Now().Before(end); {
		after = append(after, claim(t, f, frontier.ClaimRequest{Max: 5, Wait: time.Second})...)
	}
	if len(after) != 2 {
		t.Fatalf("%+v", after)
	}
	settle(t, f, frontier.Ended, frontier.Outcome{Lease: before[0].Lease, Status: 200})
	for _, cl := range after {
		settle(t, f, frontier.Settled, frontier.Outcome{Lease: cl.Lease, Status: 200})
	}
}

// TestClientsThatLeave holds that a URL is claimed by the next client if the one before has left.
func TestClientsThatLeave(t *testing.T) {
	f := start(t, testenv.NewRedis(t), options(t, newClock(), 0))
	add(t, f, frontier.Added, frontier.URL{URL: "https://a.example/"}, frontier.URL{URL: "https://b.example/"})
	left, leave := context.WithCancel(t.Context())
	leave()
	if got, err := f.Claim(left, frontier.ClaimRequest{Max: 5}); len(got) != 0 || err != nil {
		t.Fatal(got, err)
	}
	if got := claim(t, f, frontier.ClaimRequest{Max: 5}); len(got) != 2 || got[0].Tries != 1 {
		t.Fatalf("%+v", got)
	}
}

// TestALeaseReportedTwice holds that of two results of one lease in a request the first counts.
func TestALeaseReportedTwice(t *testing.T) {
	f := start(t, testenv.NewRedis(t), options(t, newClock(), 0))
	add(t, f, frontier.Added, frontier.URL{URL: "https://a.example/"})
	lease := claim(t, f, frontier.ClaimRequest{})[0].Lease
	got, err := f.Settle(t.Context(), []frontier.Outcome{{Lease: lease, Status: 200}, {Lease: lease, Status: 404}})
	if err != nil || got[0].Result != frontier.Settled || got[1].Result != frontier.Ended {
		t.Fatal(got, err)
	}
	if seen, err := f.Seen("", "", "https://a.example/"); err != nil || seen.Status != 200 {
		t.Fatal(seen, err)
	}
}
