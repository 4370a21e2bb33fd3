//go:build unix

package shard

import (
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"syscall"
	"testing"
	"time"
)

// processorTime is what the process has used.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// scanned returns the bytes of the heap that the garbage collector has to look at, and the least
// processor time that a collection took of some.
func scanned(b *testing.B) (bytes int64, least time.Duration) {
	least = time.Hour
	for range 10 {
		before := processorTime(b)
		runtime.GC()
		least = min(least, processorTime(b)-before)
	}
	sample := []metrics.Sample{{Name: "/gc/scan/heap:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64()), least
}

// BenchmarkHeap puts one URL into each of URLAKE_BENCH_URLS queues, and prints of each queue the
// bytes in memory, those that the garbage collector scans, and its processor time: with all URLs in
// files, leased, settled, and waiting in memory.
func BenchmarkHeap(b *testing.B) {
	n := size(b, 1_000_000)
	name := func(i int) string { return QueueName("DEFAULT", fmt.Sprintf("site%d.example", i)) }
	b.ReportAllocs()
	for b.Loop() {
		before := heapBytes()
		report := func(state string) {
			heap := heapBytes() - before
			scan, took := scanned(b)
			b.ReportMetric(float64(heap)/float64(n), state+"-bytes/queue")
			b.ReportMetric(float64(scan)/float64(n), state+"-scanned-bytes/queue")
			b.ReportMetric(float64(took.Nanoseconds())/float64(n), state+"-gc-ns/queue")
		}
		s, _, err := Open(filepath.Join(b.TempDir(), "shard"), Options{MemoryBytes: 1 << 30})
		if err != nil {
			b.Fatal(err)
		}
		committed := func(i int) { // so that nothing of the journal is in memory
			if i%10_000 == 9_999 {
				if err := s.Commit(); err != nil {
					b.Fatal(err)
				}
			}
		}
		fillEach := func(path string) {
			entries := make([]Entry, 0, 10_000)
			for i := range n {
				entries = append(entries, Entry{Queue: name(i), URL: fmt.Sprintf("https://site%d.example/path/to/%s.html", i, path)})
				if len(entries) < cap(entries) && i < n-1 {
					continue
				}
				if _, _, err := add(s, entries); err != nil {
					b.Fatal(err)
				}
				entries = entries[:0]
				committed(i)
			}
		}
		fillEach("page")
		if err := s.Flush(); err != nil {
			b.Fatal(err)
		}
		report("idle")
		seqs := make([]uint64, n)
		for i := range seqs {
			taken, _, err := s.Take(name(i), 1)
			if err != nil {
				b.Fatal(err)
			}
			seqs[i] = taken[0].Seq
		}
		report("leased")
		for i, seq := range seqs {
			if _, err := s.Done(seq, Visit{Status: 200}, 0); err != nil {
				b.Fatal(err)
			}
			committed(i)
		}
		report("settled")
		if err := s.Flush(); err != nil {
			b.Fatal(err)
		}
		fillEach("other")
		report("waiting")
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSteps takes, settles and adds again each of 100,000 URLs in 5,000 queues, of which files
// have all at first, and prints the processor time and the allocations of each step.
func BenchmarkSteps(b *testing.B) {
	const n = 100_000
	s, _, err := Open(filepath.Join(b.TempDir(), "shard"), Options{MemoryBytes: 256 << 20})
	if err != nil {
		b.Fatal(err)
	}
	fill(b, s, n, nil)
	var names []string
	s.Queues("DEFAULT", func(name string, _ Counts) bool { names = append(names, name); return true })
	step := func(what string, do func()) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		used := processorTime(b)
		do()
		used = processorTime(b) - used
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(used.Nanoseconds())/n, what+"-ns")
		b.ReportMetric(float64(after.Mallocs-before.Mallocs)/n, what+"-allocs")
		b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/n, what+"-bytes")
		if err := s.Commit(); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		entries, texts := make([]Entry, 0, n), make([]ID, 0, n)
		seqs := make([]uint64, 0, n)
		step("take", func() {
			for left := n; left > 0; {
				for _, name := range names {
					taken, _, err := s.Take(name, 1)
					if err != nil {
						b.Fatal(err)
					}
					left -= len(taken)
					for _, e := range taken {
						seqs = append(seqs, e.Seq)
						entries = append(entries, Entry{Queue: e.Queue, URL: e.URL, Update: true})
						texts = append(texts, IDOf(e.Queue+"\x00"+e.URL, len(e.Queue)))
					}
				}
			}
		})
		step("done", func() {
			for i, seq := range seqs {
				if _, err := s.Done(seq, Visit{Status: 200}, 0); err != nil {
					b.Fatal(err)
				}
				if i%1000 == 999 {
					if err := s.Commit(); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
		step("add", func() {
			for i := 0; i < n; i += 1000 {
				if _, _, err := s.Add(texts[i:i+1000], entries[i:i+1000]); err != nil {
					b.Fatal(err)
				}
				if err := s.Commit(); err != nil {
					b.Fatal(err)
				}
			}
		})
		if err := s.Flush(); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}
