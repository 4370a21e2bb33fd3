//go:build unix

package frontier_test

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/frontier/shard"
	"github.com/urlake/urlake/internal/testenv"
)

// start starts a frontier on a Redis of its own.
func start(tb testing.TB, server *testenv.Redis, o frontier.Options, hooks ...redis.Hook) *frontier.Frontier {
	tb.Helper()
	opt, err := redis.ParseURL(server.URL)
	if err != nil {
		tb.Fatal(err)
	}
	opt.MaxRetries = -1
	client := redis.NewClient(opt)
	for _, h := range hooks {
		client.AddHook(h)
	}
	c, err := coord.Open(tb.Context(), client, "test", "node"+strconv.Itoa(rand.Int()), o.Shards)
	if err != nil {
		tb.Fatal(err)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	f, err := frontier.New(tb.Context(), c, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := f.Close(tb.Context()); err != nil && tb.Context().Err() == nil {
			tb.Error(err)
		}
		if err := client.Close(); err != nil {
			tb.Error(err)
		}
	})
	return f
}

// BenchmarkFrontier adds URLAKE_BENCH_URLS URLs, by default 500,000, of a twentieth as many
// domains, adds them again, and then claims and settles them. It prints URLs a second for each.
func BenchmarkFrontier(b *testing.B) {
	n := 500_000
	if s := os.Getenv("URLAKE_BENCH_URLS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		f := start(b, testenv.NewRedis(b), frontier.Options{
			Dir: b.TempDir(), Shards: 32, Lease: time.Hour, Tries: 3, Own: 30 * time.Second, Shard: shard.Options{MemoryBytes: 8 << 20},
		})
		rng := rand.New(rand.NewPCG(1, 1))
		batches := make([][]frontier.URL, 0, n/10_000+1)
		for i := range n {
			if i%10_000 == 0 {
				batches = append(batches, nil)
			}
			last := &batches[len(batches)-1]
			*last = append(*last, frontier.URL{URL: fmt.Sprintf("https://site%d.example/path/to/page-%d.html", rng.IntN(n/20), i)})
		}
		rate := func(name string, do func() int) {
			started := time.Now()
			count := do()
			b.ReportMetric(float64(count)/time.Since(started).Seconds(), name+"/s")
		}
		add := func() int {
			for _, batch := range batches {
				if _, err := f.Add(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
			}
			return n
		}
		rate("added", add)
		rate("known", add)
		queries := make([]frontier.SeenQuery, 10_000)
		rate("seen", func() int {
			for _, batch := range batches {
				for i := range batch {
					queries[i].URL = batch[i].URL
				}
				answers, err := f.SeenAll(queries[:len(batch)])
				if err != nil || !answers[0].Seen {
					b.Fatal(answers[0], err)
				}
			}
			return n
		})
		var claims []frontier.Claim
		rate("claimed", func() int {
			for len(claims) < n/2 {
				got, err := f.Claim(b.Context(), frontier.ClaimRequest{Max: 100})
				if err != nil || len(got) == 0 {
					b.Fatal(len(got), err)
				}
				claims = append(claims, got...)
			}
			return len(claims)
		})
		rate("settled", func() int {
			for i := 0; i < len(claims); i += 100 {
				var outcomes []frontier.Outcome
				for _, c := range claims[i:min(i+100, len(claims))] {
					outcomes = append(outcomes, frontier.Outcome{Lease: c.Lease, Status: 200})
				}
				if _, err := f.Settle(b.Context(), outcomes); err != nil {
					b.Fatal(err)
				}
			}
			return len(claims)
		})
	}
}
