package indexbuild

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/verify"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/part"
)

// benchPairs is how many pairs of domain and dataset the benchmarks have; BENCH_PAIRS sets another number.
func benchPairs(b *testing.B) int {
	n := 1_000_000
	if s := os.Getenv("BENCH_PAIRS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	return n
}

// processorTime is what all threads of this process have used so far.
func processorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// perEntry reports time and processor time of each entry.
func perEntry(b *testing.B, started time.Duration, entries int64) {
	n := float64(b.N) * float64(entries)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/n, "ns/entry")
	b.ReportMetric(float64((processorTime(b)-started).Nanoseconds())/n, "cpu-ns/entry")
}

// BenchmarkBuildSegment builds a segment of a million entries and reports what it takes on disk.
func BenchmarkBuildSegment(b *testing.B) {
	for _, totals := range []bool{false, true} {
		b.Run(fmt.Sprintf("totals=%v", totals), func(b *testing.B) {
			ctx := context.Background()
			store := blob.NewMemory()
			pairs := benchPairs(b)
			refs := indextest.SyntheticLake(b, store, pairs/2, 20, pairs, totals)
			var info *segment.Info
			b.ReportAllocs()
			started := processorTime(b)
			for b.Loop() {
				ref, err := BuildSegment(ctx, store, refs, Options{TempDir: b.TempDir()})
				if err != nil {
					b.Fatal(err)
				}
				if info, err = segment.ReadInfo(ctx, store, ref); err != nil {
					b.Fatal(err)
				}
				if err := store.Delete(ctx, segment.Prefix(ref.ID)+segment.InfoName); err != nil {
					b.Fatal(err)
				}
			}
			perEntry(b, started, info.Entries)
			perDomain := func(bytes int64) float64 { return float64(bytes) / float64(info.Domains) }
			var postings int64
			for _, f := range info.Files {
				if strings.HasPrefix(f.Name, "postings/") {
					postings += f.Bytes
				}
			}
			for name, bytes := range map[string]int64{
				"all": info.Bytes(), "txt": info.File(segment.DomainsName).Bytes, "mphf": info.File(segment.MPHFName).Bytes,
				"roar": info.File(segment.MembershipName).Bytes, "postings": postings, "parts": info.File(segment.PartsName).Bytes,
			} {
				b.ReportMetric(perDomain(bytes), name+"-B/domain")
			}
			b.ReportMetric(float64(postings)/float64(info.Entries), "postings-B/entry")
			b.ReportMetric(float64(info.Entries)/float64(info.Domains), "entries/domain")
			b.ReportMetric(100*float64(info.Inline)/float64(info.Entries), "%inline")
		})
	}
}

// BenchmarkVerifySegment reads such a segment back.
func BenchmarkVerifySegment(b *testing.B) {
	ctx := context.Background()
	store, err := blob.Open(ctx, b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	pairs := benchPairs(b)
	refs := indextest.SyntheticLake(b, store, pairs/2, 20, pairs, false)
	ref, err := BuildSegment(ctx, store, refs, Options{TempDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	var report verify.Report
	started := processorTime(b)
	for b.Loop() {
		if report, err = verify.Segment(ctx, store, ref, false, b.TempDir()); err != nil {
			b.Fatal(err)
		}
	}
	perEntry(b, started, report.Entries)
}

// BenchmarkExtract extracts the postings of a merge task of a million rows.
func BenchmarkExtract(b *testing.B) {
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(7, 7))
	l := &indextest.Lake{Store: blob.NewMemory()}
	o := indextest.Options{Rows: 1_000_000, Domains: 120_000, Width: 1}
	var task *ingest.MergedTask
	l.WriteBatch(b, 1, "b", indextest.RandomRows(rng, o), o, func(t *ingest.MergedTask) lake.FrameObject {
		task = t
		return lake.FrameObject{}
	})
	l.Rows = nil
	started := processorTime(b)
	for b.Loop() {
		if _, _, err := postings.ExtractIf(ctx, l.Store, task, b.TempDir(), nil); err != nil {
			b.Fatal(err)
		}
	}
	perEntry(b, started, task.Rows)
}

// BenchmarkCollector makes the postings of such a task from what the writer of its parts tells.
func BenchmarkCollector(b *testing.B) {
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(7, 7))
	l := &indextest.Lake{Store: blob.NewMemory()}
	o := indextest.Options{Rows: 1_000_000, Domains: 400_000}
	var onePart *part.Written
	l.WriteBatch(b, 1, "b", indextest.RandomRows(rng, o), o, func(t *ingest.MergedTask) lake.FrameObject {
		onePart = &t.Parts[0]
		return lake.FrameObject{}
	})
	l.Rows = nil
	pages, domains := indextest.DomainPages(b, l.Store, onePart), int64(0)
	started := processorTime(b)
	for b.Loop() {
		c := postings.NewCollector(1, "b", b.TempDir())
		for _, p := range pages {
			if err := c.Domains(p); err != nil {
				b.Fatal(err)
			}
		}
		if err := c.EndPart(onePart); err != nil {
			b.Fatal(err)
		}
		var err error
		if _, domains, err = c.Finish(ctx, l.Store); err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
	perEntry(b, started, domains)
}

// BenchmarkMerge merges the domains of a million entries, without keys and sinks.
func BenchmarkMerge(b *testing.B) {
	ctx := context.Background()
	store := blob.NewMemory()
	pairs := benchPairs(b)
	refs := indextest.SyntheticLake(b, store, pairs/2, 20, pairs, false)
	entries := int64(0)
	started := processorTime(b)
	for b.Loop() {
		build := &build{ctx: ctx, store: store, batches: refs}
		if err := build.readBatches(); err != nil {
			b.Fatal(err)
		}
		entries = 0
		if err := build.mergeAll(func(w *window) error {
			entries += int64(len(w.sets))
			return nil
		}); err != nil {
			b.Fatal(err)
		}
		build.close()
	}
	perEntry(b, started, entries)
}

// mapCache forgets nothing.
type mapCache map[segment.CacheKey]any

func (c mapCache) Get(k segment.CacheKey) (any, bool)     { v, ok := c[k]; return v, ok }
func (c mapCache) Add(k segment.CacheKey, v any, _ int64) { c[k] = v }

func BenchmarkEntry(b *testing.B) {
	ctx := context.Background()
	store := blob.NewMemory()
	refs := indextest.SyntheticLake(b, store, 500_000, 20, 1_000_000, true)
	ref, err := BuildSegment(ctx, store, refs, Options{TempDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	var keys []segment.Key
	for _, cache := range []segment.Cache{nil, mapCache{}} {
		s, err := segment.Open(ctx, store, ref, segment.Options{CacheDir: dir, Cache: cache})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		if keys == nil {
			for d, err := range s.Domains(ctx, 0) {
				if err != nil {
					b.Fatal(err)
				}
				keys = append(keys, segment.KeyOf(d))
			}
			rand.New(rand.NewPCG(4, 4)).Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			keys = keys[:20_000]
		}
		state := "cold"
		if cache != nil {
			state = "warm"
			for _, k := range keys {
				if _, err := s.Entries(ctx, k, 0, 0); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.Run("entry/"+state, func(b *testing.B) {
			i := 0
			for b.Loop() {
				if _, _, err := s.Entry(ctx, keys[i%len(keys)], 7); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
		b.Run("entries/"+state, func(b *testing.B) {
			i := 0
			for b.Loop() {
				if _, err := s.Entries(ctx, keys[i%len(keys)], 0, 0); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
		b.Run("ordinal+datasets/"+state, func(b *testing.B) {
			i := 0
			for b.Loop() {
				o, _, err := s.Ordinal(keys[i%len(keys)])
				if err != nil {
					b.Fatal(err)
				}
				if _, err := s.Datasets(o); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}
