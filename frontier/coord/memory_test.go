//go:build unix

package coord_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/frontier/ready"
	"github.com/urlake/urlake/internal/testenv"
)

// BenchmarkMemory fills a Redis with the state of URLAKE_BENCH_DOMAINS domains, 100,000 by default,
// of which something waits in one crawl, and prints the bytes that each takes: ready, while a delay
// lasts, with settings, in a second crawl, and for each lease. Names have 20 bytes.
func BenchmarkMemory(b *testing.B) {
	n := 100_000
	if s := os.Getenv("URLAKE_BENCH_DOMAINS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	const shards = 32
	for b.Loop() {
		ctx := context.Background()
		server := testenv.NewRedis(b)
		opt, err := redis.ParseURL(server.URL)
		if err != nil {
			b.Fatal(err)
		}
		client := redis.NewClient(opt)
		f, err := coord.Open(ctx, client, "f", "node", shards)
		if err != nil {
			b.Fatal(err)
		}
		var owned [shards]*coord.Shard
		for i := range owned {
			if owned[i], _, err = f.Own(ctx, i, time.Hour); err != nil {
				b.Fatal(err)
			}
			if _, err := owned[i].Load(ctx); err != nil {
				b.Fatal(err)
			}
		}
		used := func() int64 {
			info, err := client.InfoMap(ctx, "memory").Result()
			if err != nil {
				b.Fatal(err)
			}
			bytes, err := strconv.ParseInt(info["Memory"]["used_memory_dataset"], 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			return bytes
		}
		before := used()
		report := func(what string) {
			now := used()
			b.ReportMetric(float64(now-before)/float64(n), what)
			before = now
		}
		const now = 1_700_000_000_000
		each := func(do func(s *coord.Shard, keys []string) error) {
			for i, s := range owned {
				var keys []string
				for k := i; k < n; k += shards {
					keys = append(keys, fmt.Sprintf("site%08d.example", k))
					if len(keys) == 1000 || k+shards >= n {
						if err := do(s, keys); err != nil {
							b.Fatal(err)
						}
						keys = keys[:0]
					}
				}
			}
		}
		each(func(s *coord.Shard, keys []string) error {
			var queues []string
			for _, k := range keys {
				queues = append(queues, "DEFAULT\x00"+k)
			}
			s.Wake(now, queues)
			claim, _ := s.Claim("DEFAULT", now, 1000, 70*time.Second)
			return s.Lease(ctx, now, nil, claim)
		})
		report("B/delay")
		token := uint64(0)
		each(func(s *coord.Shard, keys []string) error {
			var leases []coord.Lease
			for _, k := range keys {
				token++
				leases = append(leases, coord.NewLease(token<<32, token, "DEFAULT\x00"+k))
			}
			return s.Lease(ctx, now+600_000, leases, ready.Claim{})
		})
		report("B/lease")
		own := 5 * time.Second
		each(func(s *coord.Shard, keys []string) error {
			for _, k := range keys {
				if _, err := s.Change(ctx, k, coord.Change{Delay: &own}); err != nil {
					return err
				}
			}
			return nil
		})
		report("B/settings")
		if err := client.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
