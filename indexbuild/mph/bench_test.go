package mph

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

var benchSizes = []int{1e5, 1e6, 1e7}

func sizeName(n int) string { return fmt.Sprintf("keys=%.0e", float64(n)) }

// randomKeys returns n random keys, the same for every call. They are distinct.
func randomKeys(n int) []Key {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	keys := make([]Key, n)
	for i := range keys {
		keys[i] = Key{rng.Uint64(), rng.Uint32()}
	}
	return keys
}

func benchTable(b *testing.B, keys []Key) *Table {
	b.Helper()
	builder := NewBuilder(Options{Dir: b.TempDir()})
	defer builder.Close()
	for _, k := range keys {
		if err := builder.Add(k.ID, k.Check); err != nil {
			b.Fatal(err)
		}
	}
	var buf bytes.Buffer
	stats, err := builder.Finish(context.Background(), &buf, testXXH64)
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("%+v, %.3f bits a key", stats, float64(stats.LevelBytes)*8/float64(stats.Keys))
	table, err := Open(buf.Bytes(), "bench", Expect{uint64(len(keys)), testXXH64}, func(off, n int64) error { return nil })
	if err != nil {
		b.Fatal(err)
	}
	return table
}

// processorTime returns the CPU time that the process has used so far.
func processorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// report reports the rate and the CPU time of a key.
func report(b *testing.B, started time.Duration, keys int) {
	n := float64(b.N) * float64(keys)
	b.ReportMetric(n/b.Elapsed().Seconds()/1e6, "Mkeys/s")
	b.ReportMetric(float64((processorTime(b)-started).Nanoseconds())/n, "cpu-ns/key")
}

// BenchmarkBuild measures building a file, from the first Add to the last byte written.
func BenchmarkBuild(b *testing.B) {
	for _, n := range benchSizes {
		for _, parallelism := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/par=%d", sizeName(n), parallelism), func(b *testing.B) {
				keys := randomKeys(n)
				dir := b.TempDir()
				started := processorTime(b)
				for b.Loop() {
					builder := NewBuilder(Options{Dir: dir, Parallelism: parallelism, Expect: int64(n)})
					for _, k := range keys {
						if err := builder.Add(k.ID, k.Check); err != nil {
							b.Fatal(err)
						}
					}
					if _, err := builder.Finish(context.Background(), io.Discard, 0); err != nil {
						b.Fatal(err)
					}
					builder.Close()
				}
				report(b, started, n)
			})
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	for _, n := range benchSizes {
		keys := randomKeys(n)
		// In random order, since neighbours would share cache lines.
		rng := rand.New(rand.NewPCG(2, 3))
		queries := make([]Key, 1<<20)
		ids := make([]uint64, len(queries))
		for i := range queries {
			queries[i] = keys[rng.IntN(n)]
			ids[i] = queries[i].ID
		}
		table := benchTable(b, keys)
		b.Run(sizeName(n)+"/hash", func(b *testing.B) {
			i := 0
			for b.Loop() {
				if _, _, err := table.Slot(ids[i%len(ids)]); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
		b.Run(sizeName(n)+"/hash-dependent", func(b *testing.B) {
			i := uint64(0)
			for b.Loop() {
				s, _, err := table.Slot(ids[i%uint64(len(ids))])
				if err != nil {
					b.Fatal(err)
				}
				i += s | 1
			}
		})
		b.Run(sizeName(n)+"/present", func(b *testing.B) {
			i := 0
			for b.Loop() {
				k := queries[i%len(queries)]
				if _, ok, err := table.Lookup(k.ID, k.Check); err != nil || !ok {
					b.Fatal(ok, err)
				}
				i++
			}
		})
		b.Run(sizeName(n)+"/absent", func(b *testing.B) {
			i := 0
			for b.Loop() {
				k := queries[i%len(queries)]
				if _, ok, err := table.Lookup(k.ID+1, k.Check); err != nil || ok {
					b.Fatal(ok, err)
				}
				i++
			}
		})
		b.Run(sizeName(n)+"/batch-present", func(b *testing.B) {
			const size = 1 << 10
			ordinals := make([]uint32, size)
			for i := 0; b.Loop(); i++ {
				from := i * size % len(queries)
				if err := table.LookupBatch(queries[from:from+size], ordinals); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N)/size, "ns/key")
		})
	}
}

// BenchmarkOpen measures Open, whose cost depends on the number of buckets alone.
func BenchmarkOpen(b *testing.B) {
	for _, n := range benchSizes {
		data := benchTable(b, randomKeys(n)).data
		b.Run(sizeName(n), func(b *testing.B) {
			for b.Loop() {
				if _, err := Open(data, "bench", Expect{uint64(n), testXXH64}, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
