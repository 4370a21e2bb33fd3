package prefixtree

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"
)

// benchFolders is the number of nodes of the index of the benchmarks of lookups.
const benchFolders = 1_000_000

// keyMaker makes keys as buckets have them: data sets partitioned by date, logs by host, and
// uploads below hashes. Each key is in a folder that no other key is in.
type keyMaker struct {
	rng *rand.Rand
	buf []byte
	n   int
}

func newKeyMaker(seed uint64) *keyMaker {
	return &keyMaker{rng: rand.New(rand.NewPCG(seed, 2))}
}

// next returns the next key, which is valid until the call after it.
func (k *keyMaker) next() []byte {
	n := k.n
	k.n++
	b := k.buf[:0]
	switch n % 3 {
	case 0: // by data set and date, a partition for each hour
		i := n / 3
		b = append(b, "warehouse/events_"...)
		b = strconv.AppendInt(b, int64(i/8784), 10)
		hour := i % 8784
		b = fmt.Appendf(b, "/year=2026/month=%02d/day=%02d/hour=%02d/part-0000.parquet", hour/744+1, hour/24%31+1, hour%24)
	case 1: // by host and day
		i := n / 3
		b = fmt.Appendf(b, "logs/web-%04d/2026-%02d-%02d/access.log.gz", i/366, i%366/31+1, i%31+1)
	default: // by hash
		h := uint64(n) * 0x9e3779b97f4a7c15
		b = fmt.Appendf(b, "uploads/%02x/%02x/%012x/original.jpg", h>>56, h>>48&0xff, h&0xffffffffffff)
	}
	k.buf = b
	return b
}

// benchIndex builds an index with about that many nodes, from keys in random order, and returns its
// folder.
func benchIndex(b *testing.B, format Format, folders int) (string, Stats) {
	b.Helper()
	builder, err := NewBuilder(Options{Format: format, Collectors: 2})
	if err != nil {
		b.Fatal(err)
	}
	defer builder.Close()
	done := make(chan error, 2)
	for half := range 2 {
		c, err := builder.Collector()
		if err != nil {
			b.Fatal(err)
		}
		go func() {
			k := newKeyMaker(uint64(half))
			var err error
			for i := 0; err == nil && i < folders; i++ {
				key := k.next()
				if i%2 == half {
					err = c.Add(key, uint64(i), Tier(i%2))
				}
			}
			done <- err
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	dir := filepath.Join(b.TempDir(), "index")
	stats, err := builder.Finish(context.Background(), dir)
	if err != nil {
		b.Fatal(err)
	}
	return dir, stats
}

// BenchmarkBuild builds the index of about as many folders as its name says.
func BenchmarkBuild(b *testing.B) {
	for _, format := range Formats() {
		for _, folders := range []int{100_000, 9_500_000} {
			b.Run(fmt.Sprintf("%s/%d", format, folders), func(b *testing.B) {
				if folders > 1_000_000 && testing.Short() {
					b.Skip("large")
				}
				for b.Loop() {
					_, stats := benchIndex(b, format, folders)
					b.ReportMetric(float64(stats.Bytes)/float64(stats.Nodes), "B/prefix")
					b.ReportMetric(float64(stats.Nodes), "prefixes")
				}
			})
		}
	}
}
