package indextest

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// BenchPairs returns how many pairs of domain and dataset a benchmark has: a million, or the number
// in the environment variable BENCH_PAIRS.
func BenchPairs(b *testing.B) int {
	n := 1_000_000
	if s := os.Getenv("BENCH_PAIRS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	return n
}

// ReportPerEntry reports the time and the processor time of a benchmark for each of its entries.
// started is what ProcessorTime returned before the benchmark.
func ReportPerEntry(b *testing.B, started time.Duration, entries int64) {
	n := float64(b.N) * float64(entries)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/n, "ns/entry")
	if used := ProcessorTime(b) - started; used > 0 {
		b.ReportMetric(float64(used.Nanoseconds())/n, "cpu-ns/entry")
	}
}
