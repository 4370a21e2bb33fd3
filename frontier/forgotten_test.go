//go:build unix

package frontier_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/internal/testenv"
)

// TestNothingIsForgotten does anything at the same time: adds, also for later, claims of both
// kinds, workers that die, release and settle, settings that hold keys and let them go, exclusions,
// limits and deletions. When all settings are gone everything that waits is handed out, without a
// shard being opened again: no queue was forgotten in memory.
func TestNothingIsForgotten(t *testing.T) {
	for seed := range uint64(4) {
		nothingIsForgotten(t, seed, seed%2 == 1)
	}
}

func nothingIsForgotten(t *testing.T, seed uint64, delays bool) {
	o := options(t, newClock(), 0)
	o.Now = time.Now
	o.Tries = 1_000_000
	o.Lease = 300 * time.Millisecond
	if delays {
		o.Delay = 5 * time.Millisecond
	}
	o.Shards = 2
	var current atomic.Pointer[rules]
	current.Store(&rules{})
	o.Refresh = 3 * time.Millisecond
	o.Exclusions = func(context.Context) (frontier.Exclusions, error) { return current.Load(), nil }
	f := start(t, testenv.NewRedis(t), o)
	const domains = 12
	crawls := []string{"a", "b", "c"}
	stop := make(chan struct{})
	var all sync.WaitGroup
	stopSettings := make(chan struct{})
	var settings sync.WaitGroup
	runIn := func(g *sync.WaitGroup, stop chan struct{}, do func(rng *rand.Rand)) {
		rng := rand.New(rand.NewPCG(seed, rand.Uint64()))
		g.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					do(rng)
				}
			}
		})
	}
	run := func(do func(rng *rand.Rand)) { runIn(&all, stop, do) }
	set := func(do func(rng *rand.Rand)) { runIn(&settings, stopSettings, do) }
	key := func(rng *rand.Rand) string { return fmt.Sprintf("site%d.example", rng.IntN(domains)) }
	var n, fetched atomic.Int64
	for range 2 {
		run(func(rng *rand.Rand) {
			u := frontier.URL{URL: fmt.Sprintf("https://%s/%d", key(rng), n.Add(1)), Crawl: crawls[rng.IntN(3)]}
			if rng.IntN(4) == 0 {
				u.Due = time.Now().Add(time.Duration(rng.IntN(50)) * time.Millisecond)
			}
			if _, err := f.Add(t.Context(), []frontier.URL{u}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Duration(rng.IntN(500)) * time.Microsecond)
		})
	}
	for range 3 {
		run(func(rng *rand.Rand) {
			r := frontier.ClaimRequest{Crawl: crawls[rng.IntN(3)], Max: 1 + rng.IntN(6), PerQueue: 1 + rng.IntN(3)}
			got, err := f.Claim(t.Context(), r)
			if err != nil {
				t.Error(err)
			}
			for _, cl := range got {
				switch rng.IntN(6) {
				case 0: // dies
				case 1:
					_, _ = f.Release(t.Context(), []string{cl.Lease})
				case 2:
					_, _ = f.Settle(t.Context(), []frontier.Outcome{{Lease: cl.Lease, Error: "x", RetryAfter: time.Millisecond}})
				case 3:
					_, _ = f.Settle(t.Context(), []frontier.Outcome{{Lease: cl.Lease, Status: 200, Refetch: time.Now().Add(10 * time.Millisecond)}})
				default:
					_, _ = f.Settle(t.Context(), []frontier.Outcome{{Lease: cl.Lease, Status: 200}})
					fetched.Add(1)
				}
			}
		})
	}
	run(func(rng *rand.Rand) {
		_ = f.ClaimQueues(t.Context(), frontier.QueueRequest{MaxQueues: 3, PerQueue: 2, Lease: 20 * time.Millisecond}, func(cl frontier.Claim) error {
			if rng.IntN(5) == 0 {
				return errors.New("left")
			}
			return nil
		})
		time.Sleep(time.Millisecond)
	})
	set(func(rng *rand.Rand) {
		yes := rng.IntN(2) == 0
		block := time.Duration(rng.IntN(4)-1) * 5 * time.Millisecond
		var c frontier.DomainChange
		switch rng.IntN(4) {
		case 0:
			c.Pause = &yes
		case 1:
			c.Block = &block
		case 2:
			c.Exclude = &yes
		case 3:
			d := time.Duration(rng.IntN(4)-1) * 3 * time.Millisecond
			c.Delay = &d
		}
		if err := f.ChangeDomain(t.Context(), key(rng), c); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
	})
	set(func(rng *rand.Rand) {
		out := rules{}
		for range rng.IntN(5) {
			out[key(rng)] = true
		}
		current.Store(&out)
		time.Sleep(time.Duration(rng.IntN(8000)) * time.Microsecond)
	})
	set(func(rng *rand.Rand) {
		_ = f.SetLimit(t.Context(), crawls[rng.IntN(3)], key(rng), int64(rng.IntN(3)*4))
		time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
	})
	set(func(rng *rand.Rand) {
		if rng.IntN(5) == 0 {
			k, cr := key(rng), crawls[rng.IntN(3)]
			_, _ = f.DeleteQueue(t.Context(), cr, k)
		}
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
	})
	time.Sleep(300 * time.Millisecond)
	close(stopSettings)
	settings.Wait()
	current.Store(&rules{})
	no, none, def := false, time.Duration(0), time.Duration(-1)
	for d := range domains {
		k := fmt.Sprintf("site%d.example", d)
		if err := f.ChangeDomain(t.Context(), k, frontier.DomainChange{Pause: &no, Exclude: &no, Block: &none, Delay: &def}); err != nil {
			t.Fatal(err)
		}
		for _, cr := range crawls {
			if err := f.SetLimit(t.Context(), cr, k, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	time.Sleep(300 * time.Millisecond)
	close(stop)
	all.Wait()
	left := int64(-1)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		for _, cr := range crawls {
			got, err := f.Claim(t.Context(), frontier.ClaimRequest{Crawl: cr, Max: 100, PerQueue: 10})
			if err != nil {
				t.Fatal(err)
			}
			for _, cl := range got {
				_, _ = f.Settle(t.Context(), []frontier.Outcome{{Lease: cl.Lease, Status: 200}})
			}
		}
		left = 0
		for _, cr := range crawls {
			st, _ := f.CrawlStats(cr, "")
			left += st.All() - st.Done()
		}
		if left == 0 {
			break
		}
	}
	if left != 0 || f.Counts().Reopened != 0 {
		for _, cr := range crawls {
			f.Queues(cr, false, func(q frontier.QueueCounts) bool { t.Logf("%s %s: %+v", q.Crawl, q.Key, q.Counts); return true })
		}
		t.Errorf("seed %d: %d URLs are left, %d reopened", seed, left, f.Counts().Reopened)
	}
	if n.Load() < 100 || fetched.Load() < 20 {
		t.Errorf("only %d URLs were added, and %d settled", n.Load(), fetched.Load())
	}
}
