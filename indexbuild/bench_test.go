package indexbuild

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/blob"
)

// BenchmarkBuildSegment builds a segment of a million entries and reports the sizes of its files.
func BenchmarkBuildSegment(b *testing.B) {
	for _, totals := range []bool{false, true} {
		b.Run(fmt.Sprintf("totals=%v", totals), func(b *testing.B) {
			ctx := context.Background()
			store := blob.NewMemory()
			pairs := indextest.BenchPairs(b)
			refs := indextest.SyntheticLake(b, store, pairs/2, 20, pairs, totals)
			var info *segment.Info
			b.ReportAllocs()
			started := indextest.ProcessorTime(b)
			for b.Loop() {
				ref, err := BuildSegment(ctx, store, refs, Options{TempDir: b.TempDir(), SkipPageKeys: true})
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
			indextest.ReportPerEntry(b, started, info.Entries)
			perDomain := func(bytes int64) float64 { return float64(bytes) / float64(info.Domains) }
			var postings int64
			for _, f := range info.Files {
				if strings.HasPrefix(f.Name, "postings/") {
					postings += f.Bytes
				}
			}
			for name, bytes := range map[string]int64{
				"all":      info.Bytes(),
				"txt":      info.File(segment.DomainsName).Bytes,
				"reversed": info.File(segment.ReversedName).Bytes,
				"mphf":     info.File(segment.MPHFName).Bytes,
				"roar":     info.File(segment.MembershipName).Bytes,
				"postings": postings,
				"parts":    info.File(segment.PartsName).Bytes,
			} {
				b.ReportMetric(perDomain(bytes), name+"-B/domain")
			}
			b.ReportMetric(float64(postings)/float64(info.Entries), "postings-B/entry")
			b.ReportMetric(float64(info.Entries)/float64(info.Domains), "entries/domain")
			b.ReportMetric(100*float64(info.Inline)/float64(info.Entries), "%inline")
		})
	}
}

// BenchmarkMerge merges the domains of a million entries without computing keys.
func BenchmarkMerge(b *testing.B) {
	ctx := context.Background()
	store := blob.NewMemory()
	pairs := indextest.BenchPairs(b)
	refs := indextest.SyntheticLake(b, store, pairs/2, 20, pairs, false)
	entries := int64(0)
	started := indextest.ProcessorTime(b)
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
	indextest.ReportPerEntry(b, started, entries)
}

// mapCache is a cache that evicts nothing.
type mapCache map[segment.CacheKey]any

func (c mapCache) Get(k segment.CacheKey) (any, bool)     { v, ok := c[k]; return v, ok }
func (c mapCache) Again(k segment.CacheKey) (any, bool)   { return c.Get(k) }
func (c mapCache) Add(k segment.CacheKey, v any, _ int64) { c[k] = v }

// BenchmarkEntry looks up entries and sets of datasets, with and without a cache.
func BenchmarkEntry(b *testing.B) {
	ctx := context.Background()
	store := blob.NewMemory()
	refs := indextest.SyntheticLake(b, store, 500_000, 20, 1_000_000, true)
	ref, err := BuildSegment(ctx, store, refs, Options{TempDir: b.TempDir(), SkipPageKeys: true})
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
