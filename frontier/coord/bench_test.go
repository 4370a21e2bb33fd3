//go:build unix

package coord_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/internal/testenv"
)

// BenchmarkScripts claims keys, leases a URL of each, ends the leases, and reports failures of
// some, and says what that takes Redis.
func BenchmarkScripts(b *testing.B) {
	for _, delay := range []time.Duration{0, time.Second} {
		for _, claim := range []int{20, 1000} {
			b.Run(fmt.Sprintf("%s/%d", delay, claim), func(b *testing.B) { benchScripts(b, delay, claim) })
		}
	}
}

func benchScripts(b *testing.B, delay time.Duration, claim int) {
	ctx := b.Context()
	opt, err := redis.ParseURL(testenv.NewRedis(b).URL)
	if err != nil {
		b.Fatal(err)
	}
	client := redis.NewClient(opt)
	defer client.Close()
	f, err := coord.Open(ctx, client, "f", "node", 1)
	if err != nil {
		b.Fatal(err)
	}
	s, _, err := f.Own(ctx, 0, time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := s.Load(ctx); err != nil {
		b.Fatal(err)
	}
	const domains = 10_000
	now := int64(1_700_000_000_000)
	queues := make([]string, domains)
	for i := range queues {
		queues[i] = fmt.Sprintf("DEFAULT\x00site%d.example", i)
	}
	s.Wake(now, queues)
	used := func() (sum float64) {
		info, err := client.InfoMap(ctx, "cpu").Result()
		if err != nil {
			b.Fatal(err)
		}
		for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
			v, err := strconv.ParseFloat(info["CPU"][name], 64)
			if err != nil {
				b.Fatal(err)
			}
			sum += v
		}
		return sum
	}
	var leasing, failing float64
	failed := 0
	token := uint64(0)
	for b.Loop() {
		var all []coord.Lease
		began := used()
		for range domains / claim {
			claimed, _ := s.Claim("DEFAULT", now, claim, delay)
			if len(claimed.Keys) != claim {
				b.Fatal(len(claimed.Keys))
			}
			first := len(all)
			for _, key := range claimed.Keys {
				token++
				all = append(all, coord.NewLease(token*0x9e3779b97f4a7c15, token, "DEFAULT\x00"+key))
			}
			if err := s.Lease(ctx, now+600_000, all[first:], claimed); err != nil {
				b.Fatal(err)
			}
		}
		ended := used()
		leasing += ended - began
		some := all[:domains/20]
		reports := make([]coord.Report, len(some))
		for i := range reports {
			reports[i].Failed = true
		}
		if _, _, err := s.Report(ctx, now, some, reports, coord.Backoff{}); err != nil {
			b.Fatal(err)
		}
		failing += used() - ended
		failed += len(some)
		s.End(all)
		now += delay.Milliseconds() + 1
	}
	b.ReportMetric(leasing*1e6/domains/float64(b.N), "claim-µs/URL")
	b.ReportMetric(failing*1e6/float64(failed), "failure-µs/URL")
}
