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
		if _, _, err := add(s, entries); err != nil {
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

// collection is how long a garbage collection takes at least.
func collection() time.Duration {
	least := time.Hour
	for range 10 {
		began := time.Now()
		runtime.GC()
		least = min(least, time.Since(began))
	}
	return least
}

// BenchmarkStalls adds, takes, settles and commits in a shard of a million URLs in 50,000 queues
// while it writes its files again and again, and prints the longest wait of each, in milliseconds.
func BenchmarkStalls(b *testing.B) {
	b.Run("FsyncAlways", func(b *testing.B) { stalls(b, true) })
	b.Run("FsyncNever", func(b *testing.B) { stalls(b, false) })
}

func stalls(b *testing.B, fsync bool) {
	n := size(b, 1_000_000)
	for b.Loop() {
		s, _, err := Open(filepath.Join(b.TempDir(), "shard"), Options{Sync: fsync, MemoryBytes: 8 << 20})
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
		var leased []Entry
		for i, end := 0, time.Now().Add(10*time.Second); time.Now().Before(end); i++ {
			q := rng.IntN(n / 20)
			name := QueueName("DEFAULT", fmt.Sprintf("site%d.example", q))
			entries := make([]Entry, 100)
			for j := range entries {
				entries[j] = Entry{Queue: name, URL: fmt.Sprintf("https://site%d.example/new/%d-%d", q, i, j)}
			}
			timed("add", func() error { _, _, err := add(s, entries); return err })
			timed("take", func() error {
				taken, _, err := s.Take(name, 50)
				leased = append(leased, taken...)
				return err
			})
			for _, e := range leased[:min(len(leased), 20)] {
				timed("done", func() error { _, err := s.Done(e.Seq, Visit{Status: 200}, 0); return err })
			}
			leased = leased[min(len(leased), 20):]
			timed("commit", s.Commit)
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

// BenchmarkQueues fills a shard with URLAKE_BENCH_URLS URLs, twenty to a queue, all in files, and
// prints the bytes of memory for each queue, its part of a garbage collection, and how long Open
// takes.
func BenchmarkQueues(b *testing.B) {
	n := size(b, 1_000_000)
	for b.Loop() {
		dir := filepath.Join(b.TempDir(), "shard")
		o := Options{MemoryBytes: 64 << 20}
		s, _, err := Open(dir, o)
		if err != nil {
			b.Fatal(err)
		}
		fill(b, s, n, nil)
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		before := heapBytes()
		started := time.Now()
		if s, _, err = Open(dir, o); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(started).Seconds(), "open-s")
		filters := int64(0)
		for _, f := range s.seen {
			filters += int64(len(f.filter) * 8)
		}
		st := s.Stats()
		b.ReportMetric(float64(heapBytes()-before-filters)/float64(st.Queues), "bytes/queue")
		b.ReportMetric(float64(filters)/float64(n), "filter-bytes/URL")
		b.ReportMetric(float64(collection().Nanoseconds())/float64(st.Queues), "gc-ns/queue")
		b.ReportMetric(float64(st.Runs), "runs")
		if st.Pending != int64(n) {
			b.Fatalf("%+v", st)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLater fills a shard with URLAKE_BENCH_URLS URLs that are due later, over a month, and
// prints how much memory the process needs for them. Then a day passes, and what is due is put into
// its queues.
func BenchmarkLater(b *testing.B) {
	n := size(b, 1_000_000)
	const begin, day = int64(1_700_000_000_000), int64(24 * time.Hour / time.Millisecond)
	for b.Loop() {
		s, _, err := Open(filepath.Join(b.TempDir(), "shard"), Options{MemoryBytes: 64 << 20})
		if err != nil {
			b.Fatal(err)
		}
		before := heapBytes()
		rng := rand.New(rand.NewPCG(5, 6))
		started := time.Now()
		fill(b, s, n, func(int) int64 { return begin + 1 + rng.Int64N(30*day) })
		b.ReportMetric(float64(n)/time.Since(started).Seconds(), "added/s")
		filters := int64(0)
		for _, f := range s.seen {
			filters += int64(len(f.filter) * 8)
		}
		b.ReportMetric(float64(heapBytes()-before-filters)/(1<<20), "MB")
		b.ReportMetric(float64(filters)/(1<<20), "filter-MB")
		started = time.Now()
		most := int64(0)
		for more := true; more; {
			if _, more, err = s.Promote(begin+day, 1); err != nil {
				b.Fatal(err)
			}
			most = max(most, s.Stats().Memory)
			if err := s.Upkeep(); err != nil {
				b.Fatal(err)
			}
		}
		st := s.Stats()
		b.ReportMetric(float64(st.Pending)/time.Since(started).Seconds(), "promoted/s")
		b.ReportMetric(float64(most)/(1<<20), "promoting-MB")
		if st.Later+st.Pending != int64(n) || st.Pending < int64(n)/40 {
			b.Fatalf("%+v", st)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
