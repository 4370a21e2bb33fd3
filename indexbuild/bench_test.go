package indexbuild

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/urlnorm"
)

// syntheticLake has batches of postings only, without parts: pairs of domain and dataset as
// large lakes have them. Every dataset holds a random share of the domains, partitioned into 16 parts, and
// a domain's rows there follow a power law.
func syntheticLake(tb testing.TB, store blob.Store, domains, datasets, pairs int, totals bool) []BatchRef {
	tb.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	names := make([]string, domains)
	for i := range names {
		// About as long and as alike as registered names are.
		names[i] = syllables(rng) + []string{".com", ".org", ".de", ".co.uk", ".net"}[rng.IntN(5)]
	}
	slices.Sort(names)
	names = slices.Compact(names)
	var refs []BatchRef
	for dataset := uint32(1); dataset <= uint32(datasets); dataset++ {
		b := &lake.Batch{Format: lake.BatchFormat, DatasetID: dataset, Batch: "2026", CanonicalForm: "urlake-1", PublicSuffix: "test"}
		const parts, groupRows = 16, 1_000_000
		var in [parts][]string
		for _, name := range names {
			if rng.IntN(domains*datasets) < pairs {
				part := urlnorm.DomainID(name) >> 60
				in[part] = append(in[part], name)
			}
		}
		var buf bytes.Buffer
		w := newBatchWriter(&buf, dataset, b.Batch)
		for i := range in {
			all := int64(0)
			for _, name := range in[i] {
				rows := 1 + int64(math.Min(1e6, math.Pow(rng.Float64(), -0.9)-1))
				t := segment.Totals{Rows: rows}
				if totals {
					t.HasSize, t.Size = true, rows*(2000+rng.Int64N(60000))
					t.HasTS, t.FirstTS = true, 1.7e12+1000*rng.Int64N(60*86400)
					t.LastTS = t.FirstTS
					if rows > 1 {
						t.LastTS += 1000 * rng.Int64N(30*86400)
					}
				}
				if err := w.domain([]byte(name), &t); err != nil {
					tb.Fatal(err)
				}
				all += rows
			}
			if all == 0 {
				continue
			}
			var groups []int64
			for left := all; left > 0; left -= groupRows {
				groups = append(groups, min(left, groupRows))
			}
			p := lake.Part{DomainPrefix: fmt.Sprintf("%x", i), Rows: all, RowGroups: len(groups)}
			p.Key = lake.PartKey(dataset, p.DomainPrefix, b.Batch, lake.Digest([]byte{byte(dataset), byte(i)}), 0)
			pages, size := syntheticPages(all)
			p.Bytes, p.XXH64 = size, "0000000000000000"
			b.Parts = append(b.Parts, p)
			if err := w.part(&p, groups, pages); err != nil {
				tb.Fatal(err)
			}
		}
		ff, err := w.finish()
		if err != nil {
			tb.Fatal(err)
		}
		key := lake.PostingsKey(dataset, b.Batch, lake.Digest(buf.Bytes()))
		put(tb, store, key, buf.Bytes())
		b.Postings = []lake.FrameObject{lake.NewFrameObject(key, ff)}
		refs = append(refs, putBatch(tb, store, b))
	}
	return refs
}

func syllables(rng *rand.Rand) string {
	s := ""
	for range 2 + rng.IntN(4) {
		s += string("bcdfghklmnprstvw"[rng.IntN(16)]) + string("aeiou"[rng.IntN(5)])
		if rng.IntN(3) == 0 {
			s += string("nrst"[rng.IntN(4)])
		}
	}
	if rng.IntN(5) == 0 {
		s += fmt.Sprint(rng.IntN(1000))
	}
	return s
}

// syntheticPages is the page index of a part of that many rows, 2,048 a page, and the part's size.
func syntheticPages(rows int64) ([][]byte, int64) {
	rng := rand.New(rand.NewPCG(uint64(rows), 1))
	var blocks [][]byte
	off := uint64(4)
	for group := int64(0); group*1_000_000 < rows; group++ {
		left := min(1_000_000, rows-group*1_000_000)
		for first := int64(0); first < left; first += 2048 * lake.PageIndexPages {
			n := (min(left-first, 2048*lake.PageIndexPages) + 2047) / 2048
			b := codec.AppendUvarint(nil, uint64(group))
			b = codec.AppendUvarint(b, uint64(first))
			b = codec.AppendUvarint(b, uint64(n))
			for i := range n {
				b = codec.AppendUvarint(b, uint64(min(2048, left-first-i*2048)))
			}
			for range lake.NumColumns {
				b = codec.AppendUvarint(b, off)
				for range n {
					size := 100 + rng.Uint64N(20000)
					b = codec.AppendUvarint(b, size)
					off += size
				}
				for range n {
					b = codec.AppendU32(b, rng.Uint32())
				}
			}
			blocks = append(blocks, b)
		}
	}
	return blocks, int64(off)
}

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
			refs := syntheticLake(b, store, pairs/2, 20, pairs, totals)
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
	refs := syntheticLake(b, store, pairs/2, 20, pairs, false)
	ref, err := BuildSegment(ctx, store, refs, Options{TempDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	var report Report
	started := processorTime(b)
	for b.Loop() {
		if report, err = VerifySegment(ctx, store, ref, false, b.TempDir()); err != nil {
			b.Fatal(err)
		}
	}
	perEntry(b, started, report.Entries)
}

// BenchmarkExtract extracts the postings of a merge task of a million rows.
func BenchmarkExtract(b *testing.B) {
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(7, 7))
	l := &testLake{store: blob.NewMemory()}
	o := lakeOptions{rows: 1_000_000, domains: 120_000, width: 1}
	var task *ingest.MergedTask
	l.writeBatch(b, 1, "b", randomRows(rng, o), o, func(t *ingest.MergedTask) lake.FrameObject {
		task = t
		return lake.FrameObject{}
	})
	l.rows = nil
	started := processorTime(b)
	for b.Loop() {
		if _, _, err := extract(ctx, l.store, task, b.TempDir(), nil); err != nil {
			b.Fatal(err)
		}
	}
	perEntry(b, started, task.Rows)
}

// BenchmarkCollector makes the postings of such a task from what the writer of its parts tells.
func BenchmarkCollector(b *testing.B) {
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(7, 7))
	l := &testLake{store: blob.NewMemory()}
	o := lakeOptions{rows: 1_000_000, domains: 400_000}
	var part *lake.WrittenPart
	l.writeBatch(b, 1, "b", randomRows(rng, o), o, func(t *ingest.MergedTask) lake.FrameObject {
		part = &t.Parts[0]
		return lake.FrameObject{}
	})
	l.rows = nil
	pages, domains := domainPages(b, l.store, part), int64(0)
	started := processorTime(b)
	for b.Loop() {
		c := NewCollector(1, "b", b.TempDir())
		for _, p := range pages {
			if err := c.Domains(p); err != nil {
				b.Fatal(err)
			}
		}
		if err := c.EndPart(part); err != nil {
			b.Fatal(err)
		}
		var err error
		if _, domains, err = c.Finish(ctx, l.store); err != nil {
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
	refs := syntheticLake(b, store, pairs/2, 20, pairs, false)
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

// BenchmarkPartitions adds a million values of one to a few records to as many partitions as sort ten million.
func BenchmarkPartitions(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	var w window
	for range 1 << 20 {
		w.keys = append(w.keys, segment.Key{ID: rng.Uint64(), Check: rng.Uint32()})
		for more := true; more; more = rng.IntN(2) == 0 {
			w.vals = appendPlain(w.vals, 1, 2, 3, 4)
		}
		w.valEnds = append(w.valEnds, uint32(len(w.vals)))
	}
	var free [][]byte
	for b.Loop() {
		p := newPartitions("", 1<<30, 200<<20, 0)
		p.free = free
		if err := p.addAll(&w); err != nil {
			b.Fatal(err)
		}
		free = p.free
		for i := range p.parts {
			for _, c := range append(p.parts[i].chunks, p.parts[i].open) {
				if cap(c) == partitionChunk {
					free = append(free, c[:0])
				}
			}
		}
		p.close()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(w.keys)), "ns/value")
}

// mapCache forgets nothing.
type mapCache map[segment.CacheKey]any

func (c mapCache) Get(k segment.CacheKey) (any, bool)     { v, ok := c[k]; return v, ok }
func (c mapCache) Add(k segment.CacheKey, v any, _ int64) { c[k] = v }

func BenchmarkEntry(b *testing.B) {
	ctx := context.Background()
	store := blob.NewMemory()
	refs := syntheticLake(b, store, 500_000, 20, 1_000_000, true)
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
