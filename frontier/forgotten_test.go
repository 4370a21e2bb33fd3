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
	for seed := range uint64(4 / testenv.Every(2)) {
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
	// Workers go on until stop is closed, and settings are changed until stopSettings is.
	stop, stopSettings := make(chan struct{}), make(chan struct{})
	var workers, settings sync.WaitGroup
	until := func(g *sync.WaitGroup, stop chan struct{}, do func(rng *rand.Rand)) {
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
	run := func(do func(rng *rand.Rand)) { until(&workers, stop, do) }
	set := func(do func(rng *rand.Rand)) { until(&settings, stopSettings, do) }
	key := func(rng *rand.Rand) string { return fmt.Sprintf("site%d.example", rng.IntN(domains)) }
	var n, fetched atomic.Int64
	adds := func(times int) {
		var adders sync.WaitGroup
		for range 2 {
			rng := rand.New(rand.NewPCG(seed, rand.Uint64()))
			adders.Go(func() {
				for range times {
					u := frontier.URL{URL: fmt.Sprintf("https://%s/%d", key(rng), n.Add(1)), Crawl: crawls[rng.IntN(3)]}
					if rng.IntN(4) == 0 {
						u.Due = time.Now().Add(time.Duration(rng.IntN(50)) * time.Millisecond)
					}
					if _, err := f.Add(t.Context(), []frontier.URL{u}); err != nil {
						t.Error(err)
					}
					// Others have a turn: whoever asks Redis lets them.
					if err := f.Expire(t.Context(), u.Key); err != nil {
						t.Error(err)
					}
				}
			})
		}
		adders.Wait()
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
	})
	set(func(rng *rand.Rand) {
		out := rules{}
		for range rng.IntN(5) {
			out[key(rng)] = true
		}
		current.Store(&out)
		if err := f.Refresh(t.Context()); err != nil {
			t.Error(err)
		}
	})
	set(func(rng *rand.Rand) {
		_ = f.SetLimit(t.Context(), crawls[rng.IntN(3)], key(rng), int64(rng.IntN(3)*4))
	})
	set(func(rng *rand.Rand) {
		if rng.IntN(50) == 0 {
			k, cr := key(rng), crawls[rng.IntN(3)]
			_, _ = f.DeleteQueue(t.Context(), cr, k)
		}
		if err := f.Refresh(t.Context()); err != nil { // so that it is not done all the time
			t.Error(err)
		}
	})
	adds(150)
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
	adds(50)
	close(stop)
	workers.Wait()
	left := int64(-1)
	for end := time.After(20 * time.Second); left != 0; {
		for _, cr := range crawls {
			got, err := f.Claim(t.Context(), frontier.ClaimRequest{Crawl: cr, Max: 100, PerQueue: 10, Wait: 5 * time.Millisecond})
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
		select {
		case <-end:
			for _, cr := range crawls {
				f.Queues(cr, false, func(q frontier.QueueCounts) bool {
					t.Logf("%s %s: %+v", q.Crawl, q.Key, q.Counts)
					return true
				})
			}
			t.Fatalf("seed %d: %d URLs are left", seed, left)
		default:
		}
	}
	if f.Counts().Reopened != 0 {
		t.Errorf("seed %d: a shard was opened again", seed)
	}
	if n.Load() < 100 || fetched.Load() < 20 {
		t.Errorf("only %d URLs were added, and %d settled", n.Load(), fetched.Load())
	}
}
