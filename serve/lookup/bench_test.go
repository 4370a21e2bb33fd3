package lookup

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/publish"
)

// benchLake returns a lake with 20,000 small domains and one domain of 20,000 rows a dataset, in
// two datasets and two segments.
func benchLake(b *testing.B) *Snapshot {
	b.Helper()
	store := blob.NewMemory()
	for batch := range 2 {
		for d := range 2 {
			var records []testlake.Record
			for i := range 20_000 {
				url := fmt.Sprintf("https://www.site%05d.test/some/path/%d/%d?q=%d", i, batch, d, i)
				records = append(records, testlake.Record{URL: url})
				if batch == 0 {
					url := fmt.Sprintf("https://www.large.test/another/path/%06d", i)
					records = append(records, testlake.Record{URL: url, TS: int64(i) * 1000, HasTS: true})
				}
			}
			testlake.Ingest(b, store, fmt.Sprintf("d%d", d), fmt.Sprint(batch), records)
		}
		testlake.Publish(b, store)
	}
	return acquire(b, serve(b, store, Options{}), "")
}

func BenchmarkDomain(b *testing.B) {
	snap := benchLake(b)
	for _, c := range []struct{ name, domain string }{{"found", "site00077.test"}, {"absent", "no-such-domain.test"}} {
		tg := target(b, c.domain)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := snap.Domain(b.Context(), tg, ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDomainMix looks up domains drawn by Zipf's law, one in ten of them unknown, on all
// processors, and reports quantiles of the times of lookups.
func BenchmarkDomainMix(b *testing.B) {
	snap := benchLake(b)
	rng := rand.New(rand.NewPCG(1, 1))
	zipf := rand.NewZipf(rng, 1.1, 1, 20_000)
	targets := make([]Target, 1<<14)
	for i := range targets {
		n := zipf.Uint64()
		if rng.IntN(10) == 0 {
			n += 20_000
		}
		targets[i] = target(b, fmt.Sprintf("site%05d.test", n))
	}
	var mu sync.Mutex
	var all []time.Duration
	b.RunParallel(func(pb *testing.PB) {
		var took []time.Duration
		for i := 0; pb.Next(); i++ {
			started := time.Now()
			if _, err := snap.Domain(b.Context(), targets[i%len(targets)], ""); err != nil {
				b.Error(err)
				return
			}
			took = append(took, time.Since(started))
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, took...)
	})
	slices.Sort(all)
	for _, percent := range []int{50, 99} {
		b.ReportMetric(float64(all[len(all)*percent/100].Nanoseconds()), fmt.Sprintf("p%d-ns", percent))
	}
}

// BenchmarkFirstPage reads pages whose rows and index frames are cached. The cold case decodes them
// again, from a store in memory.
func BenchmarkFirstPage(b *testing.B) {
	snap := benchLake(b)
	for _, c := range []struct {
		name   string
		domain string
		offset int64
		limit  int
		cold   bool
	}{
		{"small domain", "site00077.test", 0, 100, false},
		{"100 rows", "large.test", 0, 100, false},
		{"100 rows at 15000", "large.test", 15_000, 100, false},
		{"10000 rows", "large.test", 0, 10_000, false},
		{"100 rows, cold", "large.test", 0, 100, true},
	} {
		q := URLsQuery{Target: target(b, c.domain), Dataset: 1, Offset: c.offset, Limit: c.limit}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if c.cold {
					snap.server.clearCaches(true, true)
				}
				if _, err := snap.URLs(b.Context(), q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCompacted asks lakes with the same rows: one of 365 daily batches, each published by
// itself; the same, compacted; and one batch.
func BenchmarkCompacted(b *testing.B) {
	day := func(d int) (records []testlake.Record) {
		for i := range 500 {
			url := fmt.Sprintf("https://www.site%03d.test/%03d/%d.html", (i*i+d)%200, d, i)
			records = append(records, testlake.Record{URL: url, TS: int64(d) * 86_400_000, HasTS: true})
		}
		return records
	}
	days, one := blob.NewMemory(), blob.NewMemory()
	var all []testlake.Record
	for d := range 365 {
		testlake.Ingest(b, days, "crawl", fmt.Sprintf("d%03d", d), day(d))
		testlake.Publish(b, days)
		all = append(all, day(d)...)
	}
	testlake.Ingest(b, one, "crawl", "all", all)
	testlake.Publish(b, one)
	compacted := blob.NewMemory()
	blobtest.Copy(b, days, compacted)
	if _, err := publish.CompactAll(b.Context(), compacted, testlake.Run(), publish.Compaction{Full: true}, b.TempDir()); err != nil {
		b.Fatal(err)
	}
	for _, lake := range []struct {
		name  string
		store blob.Store
	}{{"days", days}, {"compacted", compacted}, {"one batch", one}} {
		snap := acquire(b, serve(b, lake.store, Options{}), "")
		q := URLsQuery{Target: target(b, "site077.test"), Dataset: 1, Limit: 100}
		for _, cold := range []bool{false, true} {
			name := lake.name + "/cached"
			if cold {
				name = lake.name + "/cold"
			}
			run := func(what string, ask func() error) {
				b.Run(what+"/"+name, func(b *testing.B) {
					for b.Loop() {
						if cold {
							snap.server.clearCaches(true, true)
						}
						if err := ask(); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
			run("domain", func() error {
				_, err := snap.Domain(b.Context(), q.Target, "")
				return err
			})
			run("100 rows", func() error {
				_, err := snap.URLs(b.Context(), q)
				return err
			})
		}
	}
}
