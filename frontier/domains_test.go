//go:build unix

package frontier_test

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/internal/testenv"
)

// TestCrawlsShareADelay lets many clients of three crawls poll the same domains in simulated time.
// No two claims of a domain are closer than its delay, whichever crawls they are of, no domain
// rests longer while something waits, and each crawl gets its URLs.
func TestCrawlsShareADelay(t *testing.T) {
	c := newClock()
	const delay, domains, each = 10 * time.Second, 12, 20
	f := start(t, testenv.NewRedis(t), options(t, c, delay))
	crawls := []string{"a", "b", "c"}
	var urls []frontier.URL
	for _, crawl := range crawls {
		for d := range domains {
			for i := range each {
				urls = append(urls, frontier.URL{URL: fmt.Sprintf("https://site%d.example/%d", d, i), Crawl: crawl})
			}
		}
	}
	add(t, f, frontier.Added, urls...)
	slow, own := "site0.example", 25*time.Second
	if err := f.ChangeDomain(t.Context(), slow, frontier.DomainChange{Delay: &own}); err != nil {
		t.Fatal(err)
	}
	last := map[string]time.Time{}
	claims := map[string]int{} // by crawl and domain
	var mu sync.Mutex
	for step := 0; len(claims) > 0 || step == 0; step++ {
		var clients sync.WaitGroup
		for n := range 12 {
			clients.Go(func() {
				got, err := f.Claim(t.Context(), frontier.ClaimRequest{Crawl: crawls[n%3], Max: 1 + n})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				for _, cl := range got {
					wait := delay
					if cl.Key == slow {
						wait = own
					}
					switch before, ok := last[cl.Key]; {
					case ok && c.now().Sub(before) < wait:
						t.Errorf("%s was claimed %v after the claim before", cl.Key, c.now().Sub(before))
					case ok && c.now().Sub(before) > wait:
						t.Errorf("%s rested for %v", cl.Key, c.now().Sub(before))
					}
					last[cl.Key] = c.now()
					claims[cl.Crawl+" "+cl.Key]++
				}
				for _, cl := range got {
					settle(t, f, frontier.Settled, frontier.Outcome{Lease: cl.Lease, Status: 200})
				}
			})
		}
		clients.Wait()
		total := 0
		for _, n := range claims {
			total += n
		}
		if total == len(urls) {
			break
		}
		if step > 3600 || t.Failed() {
			t.Fatalf("%d of %d URLs after %d seconds: %v", total, len(urls), step, claims)
		}
		c.pass(time.Second)
	}
	for _, crawl := range crawls {
		for d := range domains {
			if n := claims[fmt.Sprintf("%s site%d.example", crawl, d)]; n != each {
				t.Errorf("crawl %s got %d URLs of domain %d", crawl, n, d)
			}
		}
	}
}

// TestDomain holds what is told of a domain of two crawls.
func TestDomain(t *testing.T) {
	c := newClock()
	f := start(t, testenv.NewRedis(t), options(t, c, 30*time.Second))
	add(t, f, frontier.Added, frontier.URL{URL: "https://a.example/1", Crawl: "x"}, frontier.URL{URL: "https://a.example/2", Crawl: "x"},
		frontier.URL{URL: "https://www.a.example/1", Crawl: "y"}, frontier.URL{URL: "https://b.example/", Crawl: "z"})
	if got := claim(t, f, frontier.ClaimRequest{Crawl: "y"}); len(got) != 1 {
		t.Fatal(got)
	}
	d, err := f.Domain(t.Context(), "a.example")
	if err != nil || fmt.Sprint(d.Crawls) != "[{x [2 0 0 0]} {y [0 1 0 0]}]" || d.Waiting != 2 || d.Leased != 1 ||
		!d.Next.Equal(c.now().Add(30*time.Second)) || d.Delay != 30*time.Second || d.Cap != -1 {
		t.Fatalf("%+v, %v", d, err)
	}
	if got := claim(t, f, frontier.ClaimRequest{Crawl: "x"}); len(got) != 0 {
		t.Fatal("another crawl asked the domain at once", got)
	}
}

// TestQueueByHost holds that hosts of one domain have a delay each, if that is wanted.
func TestQueueByHost(t *testing.T) {
	o := options(t, newClock(), time.Minute)
	o.QueueBy = frontier.ByHost
	f := start(t, testenv.NewRedis(t), o)
	add(t, f, frontier.Added, frontier.URL{URL: "https://www.a.example/1"}, frontier.URL{URL: "https://a.example/1"},
		frontier.URL{URL: "https://b.a.example/1", Key: "192.0.2.1"}, frontier.URL{URL: "https://c.a.example/1", Key: "192.0.2.1"})
	keys := map[string]int{}
	for _, cl := range claim(t, f, frontier.ClaimRequest{Max: 10}) {
		keys[cl.Key]++
	}
	if fmt.Sprint(keys) != "map[192.0.2.1:1 a.example:1 www.a.example:1]" {
		t.Fatal(keys)
	}
}

// TestExclude holds that nothing of an excluded domain is added or handed out, over a restart, that
// leases that are out are reported, and that what waited comes back.
func TestExclude(t *testing.T) {
	server, o := testenv.NewRedis(t), options(t, newClock(), 0)
	f := start(t, server, o)
	yes, no := true, false
	add(t, f, frontier.Added, frontier.URL{URL: "https://a.example/1"}, frontier.URL{URL: "https://a.example/2"},
		frontier.URL{URL: "https://a.example/3", Crawl: "other"})
	out := claim(t, f, frontier.ClaimRequest{})
	if err := f.ChangeDomain(t.Context(), "a.example", frontier.DomainChange{Exclude: &yes}); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		got, err := f.Add(t.Context(), []frontier.URL{{URL: "https://a.example/4"}, {URL: "https://b.example/"}})
		if err != nil || got[0] != (frontier.AddResult{Result: frontier.Rejected, Reason: frontier.ReasonExcluded}) {
			t.Fatal(got, err)
		}
		for _, crawl := range []string{"", "other"} {
			for _, cl := range claim(t, f, frontier.ClaimRequest{Max: 10, Crawl: crawl}) {
				if cl.Key == "a.example" {
					t.Fatal(cl)
				}
			}
		}
	}
	check()
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	f = start(t, server, o)
	check()
	settle(t, f, frontier.Retried, frontier.Outcome{Lease: out[0].Lease, Status: 500})
	check()
	if d, err := f.Domain(t.Context(), "a.example"); err != nil || !d.Excluded || d.Waiting != 3 || d.Failures != 1 {
		t.Fatalf("%+v, %v", d, err)
	}
	if err := f.ChangeDomain(t.Context(), "a.example", frontier.DomainChange{Exclude: &no}); err != nil {
		t.Fatal(err)
	}
	add(t, f, frontier.Added, frontier.URL{URL: "https://a.example/4"})
	n := 0
	for _, crawl := range []string{"", "other"} {
		for range 3 {
			n += len(claim(t, f, frontier.ClaimRequest{Max: 10, PerQueue: 10, Crawl: crawl}))
		}
	}
	if n != 4 {
		t.Fatalf("%d URLs came back, want 4", n)
	}
}

// TestCap holds that a queue takes no more URLs than its cap allows, and takes them again later.
func TestCap(t *testing.T) {
	server, o := testenv.NewRedis(t), options(t, newClock(), 0)
	o.MaxWaiting = 3
	f := start(t, server, o)
	two, none := int64(2), int64(-1)
	full := frontier.AddResult{Result: frontier.Rejected, Reason: frontier.ReasonCap}
	fill := func(domain string, want int) {
		t.Helper()
		var urls []frontier.URL
		for i := range 6 {
			urls = append(urls, frontier.URL{URL: fmt.Sprintf("https://%s/%d", domain, i)})
		}
		got, err := f.Add(t.Context(), urls)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range got {
			if i < want && r.Result == frontier.Rejected || i >= want && r != full {
				t.Fatalf("URL %d of %s: %+v", i, domain, r)
			}
		}
	}
	for _, cap := range []struct {
		domain string
		cap    *int64
		want   int
	}{{"a.example", nil, 3}, {"b.example", &two, 2}, {"c.example", &none, 3}} {
		if err := f.ChangeDomain(t.Context(), cap.domain, frontier.DomainChange{Cap: cap.cap}); err != nil {
			t.Fatal(err)
		}
		fill(cap.domain, cap.want)
	}
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	f = start(t, server, o)
	fill("b.example", 2)
	if d, err := f.Domain(t.Context(), "b.example"); err != nil || d.Cap != 2 || d.Waiting != 2 {
		t.Fatalf("%+v, %v", d, err)
	}
	if got := claim(t, f, frontier.ClaimRequest{Max: 3, PerQueue: 1}); len(got) != 3 {
		t.Fatal(got)
	}
	fill("b.example", 3)
}

// TestBackoffOutlivesRestarts holds that failures one after the other are counted over restarts: a
// domain rests for twice its own delay, then four times, until a server answers; and that what a
// server asked for holds.
func TestBackoffOutlivesRestarts(t *testing.T) {
	c := newClock()
	server, o := testenv.NewRedis(t), options(t, c, time.Second)
	o.Tries = 100
	f := start(t, server, o)
	add(t, f, frontier.Added, frontier.URL{URL: "https://a.example/"})
	own := 3 * time.Second
	if err := f.ChangeDomain(t.Context(), "a.example", frontier.DomainChange{Delay: &own}); err != nil {
		t.Fatal(err)
	}
	rests := func(o frontier.Outcome, want time.Duration) {
		t.Helper()
		got := claim(t, f, frontier.ClaimRequest{})
		if len(got) != 1 {
			t.Fatal(got)
		}
		o.Lease = got[0].Lease
		settle(t, f, frontier.Retried, o)
		d, err := f.Domain(t.Context(), "a.example")
		if err != nil || d.Next.Sub(c.now()) != want {
			t.Fatalf("the domain rests for %v, want %v; %v", d.Next.Sub(c.now()), want, err)
		}
	}
	again := func() {
		t.Helper()
		if err := f.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		f = start(t, server, o)
	}
	rests(frontier.Outcome{Error: "refused"}, 2*own)
	again()
	c.pass(2*own - time.Second)
	if got := claim(t, f, frontier.ClaimRequest{}); len(got) != 0 {
		t.Fatal(got)
	}
	c.pass(time.Second)
	rests(frontier.Outcome{Status: 503}, 4*own)
	again()
	c.pass(4 * own)
	rests(frontier.Outcome{Status: 429, RetryAfter: 100 * time.Second}, 100*time.Second)
	again()
	c.pass(99 * time.Second)
	if got := claim(t, f, frontier.ClaimRequest{}); len(got) != 0 {
		t.Fatal(got)
	}
	c.pass(time.Second)
	rests(frontier.Outcome{Error: "refused"}, 16*own)
	c.pass(16 * own)
	settle(t, f, frontier.Settled, frontier.Outcome{Lease: claim(t, f, frontier.ClaimRequest{})[0].Lease, Status: 200})
	if d, err := f.Domain(t.Context(), "a.example"); err != nil || d.Failures != 0 || d.Next.Sub(c.now()) != own {
		t.Fatalf("%+v, %v", d, err)
	}
}

// TestNothingStarves claims one URL after the other of domains that could give more than that: some
// without a delay and with many URLs of the highest priority, some with failures, some with a cap.
// Each domain has its turn: it waits for no more than one claim of each other one in each shard.
func TestNothingStarves(t *testing.T) {
	c := newClock()
	o := options(t, c, 2*time.Second)
	o.Tries = 1000
	f := start(t, testenv.NewRedis(t), o)
	const domains, step, steps = 24, 100 * time.Millisecond, 3000
	none, cap := time.Duration(0), int64(3)
	var urls []frontier.URL
	for d := range domains {
		change, n := frontier.DomainChange{}, 200
		switch d % 4 {
		case 0:
			change.Delay, n = &none, 1500
		case 1:
			change.Cap = &cap
		}
		if err := f.ChangeDomain(t.Context(), fmt.Sprintf("site%d.example", d), change); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			urls = append(urls, frontier.URL{URL: fmt.Sprintf("https://site%d.example/%d", d, i), Priority: uint16(1000 - d), Depth: uint32(i % 7)})
		}
	}
	if _, err := f.Add(t.Context(), urls); err != nil {
		t.Fatal(err)
	}
	free := map[string]time.Time{} // from when on a domain may be asked
	claims := map[string]int{}
	for n := range steps {
		got := claim(t, f, frontier.ClaimRequest{})
		if len(got) != 1 {
			t.Fatalf("claim %d: %v", n, got)
		}
		key, d := got[0].Key, 0
		if _, err := fmt.Sscanf(key, "site%d.example", &d); err != nil {
			t.Fatal(err)
		}
		if wait := c.now().Sub(free[key]); claims[key] > 0 && wait > domains*time.Duration(o.Shards)*step {
			t.Fatalf("claim %d: %s had to wait for %v", n, key, wait)
		}
		claims[key]++
		outcome, want := frontier.Outcome{Lease: got[0].Lease, Status: 200}, frontier.Settled
		if d%4 == 3 && claims[key]%2 == 0 {
			outcome, want = frontier.Outcome{Lease: got[0].Lease, Error: "refused"}, frontier.Retried
		}
		settle(t, f, want, outcome)
		state, err := f.Domain(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		free[key] = c.now()
		if state.Next.After(c.now()) {
			free[key] = state.Next
		}
		if d%4 == 1 {
			add(t, f, frontier.Added, frontier.URL{URL: fmt.Sprintf("https://%s/more/%d", key, n)})
		}
		c.pass(step)
	}
	for d := range domains {
		if n := claims[fmt.Sprintf("site%d.example", d)]; n < 10 {
			t.Errorf("domain %d was claimed %d times of %d", d, n, steps)
		}
	}
}

// TestSeveralURLsOfADomain holds that a domain rests for its delay for each URL that it gave, and
// not for those that it was asked for and did not have.
func TestSeveralURLsOfADomain(t *testing.T) {
	c := newClock()
	f := start(t, testenv.NewRedis(t), options(t, c, 10*time.Second))
	own := 3 * time.Second
	if err := f.ChangeDomain(t.Context(), "b.example", frontier.DomainChange{Delay: &own}); err != nil {
		t.Fatal(err)
	}
	var urls []frontier.URL
	for i := range 7 {
		urls = append(urls, frontier.URL{URL: fmt.Sprintf("https://a.example/%d", i)}, frontier.URL{URL: fmt.Sprintf("https://b.example/%d", i)})
	}
	add(t, f, frontier.Added, urls...)
	for _, want := range []struct {
		after time.Duration
		n     map[string]int
	}{
		{0, map[string]int{"a.example": 5, "b.example": 5}}, {14 * time.Second, map[string]int{}},
		{time.Second, map[string]int{"b.example": 2}}, {5 * time.Second, map[string]int{}},
		{29 * time.Second, map[string]int{}}, {time.Second, map[string]int{"a.example": 2}},
	} {
		c.pass(want.after)
		got := map[string]int{}
		for _, cl := range claim(t, f, frontier.ClaimRequest{Max: 10, PerQueue: 5}) {
			got[cl.Key]++
		}
		if fmt.Sprint(got) != fmt.Sprint(want.n) {
			t.Fatalf("after %v: %v, want %v", want.after, got, want.n)
		}
	}
	for key, want := range map[string]time.Duration{"a.example": 20 * time.Second, "b.example": 0} {
		d, err := f.Domain(t.Context(), key)
		if err != nil || want > 0 && d.Next.Sub(c.now()) != want || want == 0 && !d.Next.IsZero() {
			t.Errorf("%s: %+v, %v; want %v", key, d, err, want)
		}
	}
}

// TestFailuresOfABatch holds that results of one request count in their order, and that those of
// leases that never were count for nothing.
func TestFailuresOfABatch(t *testing.T) {
	o := options(t, newClock(), 0)
	o.Tries = 100
	f := start(t, testenv.NewRedis(t), o)
	addAll(t, f, pages("a.example", 20))
	batch := func(want int, statuses ...uint16) {
		t.Helper()
		n := len(statuses)
		got := claim(t, f, frontier.ClaimRequest{Max: n, PerQueue: n})
		if len(got) != n {
			t.Fatal(len(got))
		}
		var outcomes []frontier.Outcome
		for i, status := range statuses {
			outcomes = append(outcomes, frontier.Outcome{Lease: got[i].Lease, Status: status})
		}
		if _, err := f.Settle(t.Context(), outcomes); err != nil {
			t.Fatal(err)
		}
		if d, err := f.Domain(t.Context(), "a.example"); err != nil || d.Failures != want {
			t.Errorf("%d failures after %v, want %d; %v", d.Failures, statuses, want, err)
		}
	}
	batch(1, 500)
	batch(1, 200, 500)
	batch(0, 200)
	batch(0, 500, 200)
	batch(2, 200, 503, 503)
	batch(0, 200)
	ended := claim(t, f, frontier.ClaimRequest{})[0].Lease
	settle(t, f, frontier.Settled, frontier.Outcome{Lease: ended, Status: 200})
	settle(t, f, frontier.Ended, frontier.Outcome{Lease: ended, Status: 500})
	if n := f.Failing(); n != 0 {
		t.Errorf("%d keys are remembered, want none", n)
	}
}

// TestHugePerQueue holds that a bound of a queue that is no bound is none.
func TestHugePerQueue(t *testing.T) {
	f := start(t, testenv.NewRedis(t), options(t, newClock(), 0))
	addAll(t, f, pages("a.example", 3))
	if got := claim(t, f, frontier.ClaimRequest{Max: 2, PerQueue: math.MaxInt}); len(got) != 2 {
		t.Fatal(got)
	}
}

// TestNextIsATime holds that a long delay for many URLs leads to no time that cannot be written.
func TestNextIsATime(t *testing.T) {
	f := start(t, testenv.NewRedis(t), options(t, newClock(), 0))
	years := 100 * 365 * 24 * time.Hour
	if err := f.ChangeDomain(t.Context(), "a.example", frontier.DomainChange{Delay: &years}); err != nil {
		t.Fatal(err)
	}
	addAll(t, f, pages("a.example", 100))
	if got := claim(t, f, frontier.ClaimRequest{Max: 100, PerQueue: 100}); len(got) != 100 {
		t.Fatal(len(got))
	}
	d, err := f.Domain(t.Context(), "a.example")
	if err != nil || d.Next.Year() != 9999 {
		t.Fatalf("%v, %v", d.Next, err)
	}
}
