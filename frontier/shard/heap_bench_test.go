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

// scanned returns the bytes of the heap that the garbage collector has to look at, and the least
// processor time that a collection took of some.
func scanned(b *testing.B) (bytes int64, least time.Duration) {
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	least = time.Hour
	for range 10 {
		before := used()
		runtime.GC()
		least = min(least, used()-before)
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
