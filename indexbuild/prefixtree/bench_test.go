package prefixtree

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// benchFolders is about the number of nodes of the index of the benchmarks that need no large one.
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

// randomPrefixes returns prefixes of nodes in random order.
func randomPrefixes(b *testing.B, x *Index, n int) [][]byte {
	b.Helper()
	rng := rand.New(rand.NewPCG(3, 3))
	prefixes := make([][]byte, n)
	for i := range prefixes {
		var err error
		if prefixes[i], err = x.AppendPrefix(nil, rng.Uint64N(x.Len())); err != nil {
			b.Fatal(err)
		}
	}
	return prefixes
}

// BenchmarkLookup looks up random folders of an index of about as many as its name says, after all
// its blocks were checked. They are so many that what one needs was evicted from the processor's
// caches when it comes again.
func BenchmarkLookup(b *testing.B) {
	for _, format := range Formats() {
		for _, folders := range []int{benchFolders, 9_780_000} {
			b.Run(fmt.Sprintf("%s/%d", format, folders), func(b *testing.B) {
				if folders > benchFolders && testing.Short() {
					b.Skip("large")
				}
				benchLookup(b, format, folders)
			})
		}
	}
}

func benchLookup(b *testing.B, format Format, folders int) {
	dir, _ := benchIndex(b, format, folders)
	x, err := Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	if err := x.Verify(context.Background(), nil); err != nil {
		b.Fatal(err)
	}
	prefixes := randomPrefixes(b, x, 1<<20)
	b.Run("one", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if _, ok, err := x.Lookup(prefixes[i%len(prefixes)]); !ok || err != nil {
				b.Fatal("not found", err)
			}
		}
	})
	b.Run("many", func(b *testing.B) {
		positions := make([]uint64, 1<<12)
		for i := 0; b.Loop(); i = (i + len(positions)) % len(prefixes) {
			if err := x.Lookups(prefixes[i:i+len(positions)], positions); err != nil || slices.Contains(positions, NotFound) {
				b.Fatal("not found", err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(positions)), "ns/lookup")
	})
	b.Run("sums", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			pos, _, err := x.Lookup(prefixes[i%len(prefixes)])
			if err == nil {
				_, err = x.Sums(pos)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	if err := x.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkOpen opens and closes an index of a million folders, and asks one question.
func BenchmarkOpen(b *testing.B) {
	for _, format := range Formats() {
		dir, _ := benchIndex(b, format, benchFolders)
		for name, first := range map[string]bool{"open": false, "first lookup": true} {
			b.Run(fmt.Sprintf("%s/%s", format, name), func(b *testing.B) {
				for b.Loop() {
					x, err := Open(dir)
					if err != nil {
						b.Fatal(err)
					}
					if first {
						if _, ok, err := x.Lookup([]byte("logs/")); !ok || err != nil {
							b.Fatal("not found", err)
						}
					}
					if err := x.Close(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkChildren lists the children of nodes with as many children as its name says, among a
// million folders: one page of a hundred with their sums, and the ten largest of all.
func BenchmarkChildren(b *testing.B) {
	builder, err := NewBuilder(Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer builder.Close()
	c, err := builder.Collector()
	if err != nil {
		b.Fatal(err)
	}
	fanOuts := []int{10, 100, 1000, 100_000}
	for _, n := range fanOuts {
		for i := range n {
			for k := range max(1, 200_000/n/2) {
				if err := c.Add(fmt.Appendf(nil, "fan%d/child%06d/%04d/x", n, i, k), uint64(i*7919%n), NoTier); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	dir := filepath.Join(b.TempDir(), "index")
	if _, err := builder.Finish(context.Background(), dir); err != nil {
		b.Fatal(err)
	}
	x, err := Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer x.Close()
	if err := x.Verify(context.Background(), nil); err != nil {
		b.Fatal(err)
	}
	for _, n := range fanOuts {
		pos, ok, err := x.Lookup(fmt.Appendf(nil, "fan%d/", n))
		if !ok || err != nil {
			b.Fatal("not found", err)
		}
		b.Run(fmt.Sprintf("page/%d", n), func(b *testing.B) {
			for b.Loop() {
				count := 0
				err := x.EachChild(pos, func(Node) bool { count++; return count < 100 })
				if err != nil || count != min(n, 100) {
					b.Fatal(count, err)
				}
			}
		})
		b.Run(fmt.Sprintf("count/%d", n), func(b *testing.B) {
			for b.Loop() {
				if l, err := x.Descendants(pos, 1); err != nil || l.Len() != uint64(n) {
					b.Fatal(l.Len(), err)
				}
			}
		})
		b.Run(fmt.Sprintf("top10/%d", n), func(b *testing.B) {
			for b.Loop() {
				l, err := x.Descendants(pos, 1)
				if err != nil {
					b.Fatal(err)
				}
				if top, err := l.Top(context.Background(), 10, ByBytes, Filter{}); err != nil || len(top) != 10 {
					b.Fatal(top, err)
				}
			}
		})
	}
}
