package shard

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// size returns a number of URLs from the environment.
func size(b *testing.B, otherwise int) int {
	s := os.Getenv("URLAKE_BENCH_URLS")
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// fill adds entries to queues, twenty to a queue, due when due says, and writes them to files.
func fill(b *testing.B, s *Shard, n int, due func(i int) int64) {
	b.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	entries := make([]Entry, 0, 10_000)
	for i := range n {
		q := rng.IntN(max(n/20, 1))
		e := Entry{Queue: QueueName("DEFAULT", fmt.Sprintf("site%d.example", q)), URL: fmt.Sprintf("https://site%d.example/path/to/page-%d.html", q, i)}
		if due != nil {
			e.Due = due(i)
		}
		if entries = append(entries, e); len(entries) < cap(entries) && i < n-1 {
			continue
		}
		if _, _, err := s.Add(entries); err != nil {
			b.Fatal(err)
		}
		if err := s.Commit(); err != nil {
			b.Fatal(err)
		}
		if err := s.Upkeep(); err != nil {
			b.Fatal(err)
		}
		entries = entries[:0]
	}
	if err := s.Flush(); err != nil {
		b.Fatal(err)
	}
}

// heap returns the bytes that live objects take.
func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkStalls adds, takes and settles in a shard of a million URLs in 50,000 queues while it
// writes its files again and again, and prints the longest wait of each, in milliseconds.
func BenchmarkStalls(b *testing.B) {
	n := size(b, 1_000_000)
	for b.Loop() {
		s, _, err := Open(filepath.Join(b.TempDir(), "shard"), Options{Sync: true, MemoryBytes: 8 << 20})
		if err != nil {
			b.Fatal(err)
		}
		fill(b, s, n, nil)
		stop := make(chan struct{})
		var writing sync.WaitGroup
		writes := 0
		writing.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := s.Flush(); err != nil {
					b.Error(err)
					return
				}
				writes++
			}
		})
		waits := map[string][]time.Duration{}
		timed := func(what string, do func() error) {
			started := time.Now()
			if err := do(); err != nil {
				b.Fatal(err)
			}
			waits[what] = append(waits[what], time.Since(started))
		}
		rng := rand.New(rand.NewPCG(3, 4))
		var leased []*Entry
		for i, end := 0, time.Now().Add(10*time.Second); time.Now().Before(end); i++ {
			q := rng.IntN(n / 20)
			name := QueueName("DEFAULT", fmt.Sprintf("site%d.example", q))
			entries := make([]Entry, 100)
			for j := range entries {
				entries[j] = Entry{Queue: name, URL: fmt.Sprintf("https://site%d.example/new/%d-%d", q, i, j)}
			}
			timed("add", func() error { _, _, err := s.Add(entries); return err })
			timed("take", func() error {
				taken, _, err := s.Take(name, 50)
				leased = append(leased, taken...)
				return err
			})
			for _, e := range leased[:min(len(leased), 20)] {
				timed("done", func() error { _, err := s.Done(e.Seq, Visit{Status: 200}, 0); return err })
			}
			leased = leased[min(len(leased), 20):]
		}
		close(stop)
		writing.Wait()
		for what, all := range waits {
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)-1].Microseconds())/1000, what+"-max-ms")
			b.ReportMetric(float64(all[len(all)*999/1000].Microseconds())/1000, what+"-p99.9-ms")
		}
		b.ReportMetric(float64(writes), "writes")
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
