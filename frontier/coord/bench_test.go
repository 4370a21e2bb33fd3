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

// BenchmarkScripts claims, leases and settles 20 URLs at a time of 10,000 domains of a shard,
// without and with a delay, and prints the processor time of Redis for each URL, in microseconds.
// Of a domain that gives a URL nothing waits once in six times.
func BenchmarkScripts(b *testing.B) {
	for _, delay := range []time.Duration{0, time.Second} {
		b.Run(delay.String(), func(b *testing.B) { benchScripts(b, delay) })
	}
}

func benchScripts(b *testing.B, delay time.Duration) {
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
	const domains, claim = 10_000, 20
	now := int64(1_700_000_000_000)
	queues := make([]string, domains)
	for i := range queues {
		queues[i] = fmt.Sprintf("DEFAULT\x00site%d.example", i)
	}
	if err := s.Wake(ctx, now, queues); err != nil {
		b.Fatal(err)
	}
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
	var claiming, leasing, settling float64
	token := uint64(0)
	var all []coord.Lease
	var woken []string
	for b.Loop() {
		const rounds = domains / claim
		began := used()
		var claimed [rounds][]string
		for i := range claimed {
			if claimed[i], _, err = s.Claim(ctx, "DEFAULT", now, claim, delay); err != nil || len(claimed[i]) != claim {
				b.Fatal(len(claimed[i]), err)
			}
		}
		ended := used()
		claiming += ended - began
		for _, keys := range claimed {
			leases := make([]coord.Lease, len(keys))
			var empty []string
			for j, key := range keys {
				token++
				leases[j] = coord.NewLease(token*0x9e3779b97f4a7c15, token, "DEFAULT\x00"+key)
				if token%6 == 0 {
					empty = append(empty, key)
					woken = append(woken, leases[j].Queue())
				}
			}
			if err := s.Lease(ctx, "DEFAULT", now+600_000, leases, empty); err != nil {
				b.Fatal(err)
			}
			all = append(all, leases...)
		}
		began = used()
		leasing += began - ended
		if len(all) >= 10*domains {
			reports := make([]coord.Report, domains)
			for i := range reports {
				reports[i].Answered = true
			}
			if _, err := s.Report(ctx, now, all[:domains], reports, coord.Backoff{}); err != nil {
				b.Fatal(err)
			}
			s.End(all[:domains])
			settling += (used() - began) * 1e6 / domains
			all = all[domains:]
		}
		now += delay.Milliseconds() + 1
		if err := s.Wake(ctx, now, woken); err != nil {
			b.Fatal(err)
		}
		woken = woken[:0]
	}
	each := 1e6 / domains / float64(b.N)
	b.ReportMetric(claiming*each, "claim-µs/URL")
	b.ReportMetric(leasing*each, "lease-µs/URL")
	b.ReportMetric(settling/float64(max(b.N-9, 1)), "settle-µs/URL")
}
