package indexbuild

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/urlnorm"
)

// testLake is a store with finished batches, and all their rows in memory: the oracle is a
// scan over those.
type testLake struct {
	store   blob.Store
	batches []BatchRef
	// rows: dataset → rows in the order of parts.
	rows map[uint32][]lake.Row
}

// lakeOptions shape a random batch.
type lakeOptions struct {
	rows, domains int
	width         int // of partitions, in hex digits
	tasks         int // partitions are dealt out to
	sizes, times  bool
	limits        lake.PartLimits
}

// tinyParts make several parts, row groups and pages of a few rows.
var tinyParts = lake.PartLimits{PageRows: 3, RowGroupBytes: 700, PartBytes: 2000}

func randomRows(rng *rand.Rand, o lakeOptions) []lake.Row {
	rows := make([]lake.Row, o.rows)
	for i := range rows {
		// Few domains have many rows.
		domain := fmt.Sprintf("d%d.example", int(float64(o.domains)*rng.Float64()*rng.Float64()))
		r := lake.Row{Domain: domain, Host: domain, PathQuery: fmt.Sprintf("/%x", rng.Uint32()), Scheme: "https", Port: -1}
		if rng.IntN(4) == 0 {
			r.Host = "www." + domain
		}
		if o.sizes && rng.IntN(5) > 0 {
			r.HasSize, r.Size = true, rng.Int64N(1e6)
		}
		if o.times && rng.IntN(5) > 0 {
			r.HasTS, r.TS = true, 1.6e12+1000*rng.Int64N(1e7)
		}
		rows[i] = r
	}
	return rows
}

// addBatch writes rows as a finished batch. Postings are the same collected while parts are written and extracted from them.
func (l *testLake) addBatch(tb testing.TB, dataset uint32, name string, rows []lake.Row, o lakeOptions) *lake.Batch {
	tb.Helper()
	b := l.writeBatch(tb, dataset, name, rows, o, func(t *ingest.MergedTask) lake.FrameObject {
		object, domains, err := extract(context.Background(), l.store, t, tb.TempDir(), nil)
		if err != nil {
			tb.Fatal(err)
		}
		if domains < 1 || domains != t.Domains || object != t.Postings {
			tb.Errorf("%d domains in %+v, collected %d in %+v", domains, object, t.Domains, t.Postings)
		}
		return object
	})
	l.batches = append(l.batches, putBatch(tb, l.store, b))
	return b
}

func putBatch(tb testing.TB, store blob.Store, b *lake.Batch) BatchRef {
	tb.Helper()
	data, digest, err := b.Encode()
	if err != nil {
		tb.Fatal(err)
	}
	ref := BatchRef{DatasetID: b.DatasetID, Batch: b.Batch, Digest: digest}
	if _, err := store.Put(context.Background(), ref.Key(), data, blob.Condition{}); err != nil {
		tb.Fatal(err)
	}
	return ref
}

func (l *testLake) writeBatch(tb testing.TB, dataset uint32, name string, rows []lake.Row, o lakeOptions, postings func(*ingest.MergedTask) lake.FrameObject) *lake.Batch {
	tb.Helper()
	ctx := context.Background()
	partitions := map[string][]lake.Row{}
	for _, r := range rows {
		prefix := lake.AnyPrefix
		if o.width > 0 {
			prefix = urlnorm.FormatID(urlnorm.DomainID(r.Domain))[:o.width]
		}
		partitions[prefix] = append(partitions[prefix], r)
	}
	b := &lake.Batch{Format: lake.BatchFormat, DatasetID: dataset, Batch: name, CanonicalForm: "urlake-1", PublicSuffix: "test", Rows: int64(len(rows))}
	prefixes := slices.Sorted(maps.Keys(partitions))
	tasks := min(max(o.tasks, 1), len(prefixes))
	for i := range tasks {
		task := &ingest.MergedTask{DatasetID: dataset, Batch: name}
		collector := NewCollector(dataset, name, tb.TempDir())
		defer collector.Close()
		for _, prefix := range prefixes[i*len(prefixes)/tasks : (i+1)*len(prefixes)/tasks] {
			in := partitions[prefix]
			slices.SortFunc(in, func(a, b lake.Row) int { return bytes.Compare(a.AppendKey(nil), b.AppendKey(nil)) })
			w := lake.NewPartWriter(ctx, l.store, lake.PartOptions{Dataset: dataset, Batch: name, Prefix: prefix, Limits: o.limits, Domains: collector})
			var key lake.Key
			for _, r := range in {
				if err := key.Next(r.AppendKey(nil)); err != nil {
					tb.Fatal(err)
				}
				if err := key.Pass(w); err != nil {
					tb.Fatal(err)
				}
			}
			parts, err := w.Finish()
			if err != nil {
				tb.Fatal(err)
			}
			task.Parts = append(task.Parts, parts...)
			task.Rows += int64(len(in))
			if l.rows == nil {
				l.rows = map[uint32][]lake.Row{}
			}
			l.rows[dataset] = append(l.rows[dataset], in...)
		}
		var err error
		if task.Postings, task.Domains, err = collector.Finish(ctx, blob.NewMemory()); err != nil {
			tb.Fatal(err)
		}
		for _, p := range task.Parts {
			b.Parts = append(b.Parts, p.Part)
		}
		b.Postings = append(b.Postings, postings(task))
	}
	return b
}

// randomLake has several datasets of several batches each.
func randomLake(tb testing.TB, seed uint64, limits lake.PartLimits) *testLake {
	rng := rand.New(rand.NewPCG(seed, seed))
	l := &testLake{store: blob.NewMemory()}
	for dataset := uint32(1); dataset <= 4; dataset++ {
		for batch := range rng.IntN(3) + 1 {
			o := lakeOptions{rows: 1 + rng.IntN(400), domains: 1 + rng.IntN(60), width: rng.IntN(3), tasks: 1 + rng.IntN(3),
				sizes: rng.IntN(2) == 0, times: rng.IntN(2) == 0, limits: limits}
			l.addBatch(tb, dataset, fmt.Sprintf("b%d", batch), randomRows(rng, o), o)
		}
	}
	return l
}

// totals scans the rows.
func (l *testLake) totals() map[string]map[uint32]segment.Totals {
	all := map[string]map[uint32]segment.Totals{}
	for dataset, rows := range l.rows {
		for _, r := range rows {
			if all[r.Domain] == nil {
				all[r.Domain] = map[uint32]segment.Totals{}
			}
			t := all[r.Domain][dataset]
			t.Rows++
			if r.HasSize {
				t.HasSize = true
				t.Size += r.Size
			}
			if r.HasTS {
				if !t.HasTS || r.TS < t.FirstTS {
					t.FirstTS = r.TS
				}
				if !t.HasTS || r.TS > t.LastTS {
					t.LastTS = r.TS
				}
				t.HasTS = true
			}
			all[r.Domain][dataset] = t
		}
	}
	return all
}

// compare asks the segment for everything, down to the rows of the parts.
func (l *testLake) compare(tb testing.TB, ref SegmentRef) {
	tb.Helper()
	ctx := context.Background()
	s, err := segment.Open(ctx, l.store, ref, segment.Options{CacheDir: tb.TempDir()})
	if err != nil {
		tb.Fatal(err)
	}
	defer s.Close()
	all := l.totals()
	if got := s.Info().Domains; got != int64(len(all)) {
		tb.Fatalf("%d domains, want %d", got, len(all))
	}
	for i, domain := range slices.Sorted(maps.Keys(all)) {
		k := segment.KeyOf(domain)
		ordinal, ok, err := s.Ordinal(k)
		if err != nil || !ok || int(ordinal) != i {
			tb.Fatalf("ordinal of %s: %d, %v, %v, want %d", domain, ordinal, ok, err, i)
		}
		if got, err := s.Domain(ctx, ordinal); err != nil || got != domain {
			tb.Fatalf("domain %d: %q, %v, want %q", ordinal, got, err, domain)
		}
		want := slices.Sorted(maps.Keys(all[domain]))
		if set, err := s.Datasets(ordinal); err != nil || !slices.Equal(set.ToArray(), want) {
			tb.Fatalf("datasets of %s: %v, %v, want %v", domain, set, err, want)
		}
		entries, err := s.Entries(ctx, k, 0, 0)
		if err != nil || len(entries) != len(want) {
			tb.Fatalf("entries of %s: %v, %v, want %v", domain, entries, err, all[domain])
		}
		for j, e := range entries {
			if e.Dataset != want[j] || e.Totals != all[domain][e.Dataset] {
				tb.Fatalf("entry of %s in %d: %+v, want %+v", domain, want[j], e, all[domain][want[j]])
			}
			l.compareRows(tb, s, domain, e)
		}
	}
}

// compareRows reads an entry's rows and holds them against a scan.
func (l *testLake) compareRows(tb testing.TB, s *segment.Segment, domain string, e segment.Entry) {
	tb.Helper()
	ctx := context.Background()
	var want, got []string
	line := func(host, path string, ts, size int64) string { return fmt.Sprintf("%s%s %d %d", host, path, ts, size) }
	for _, r := range l.rows[e.Dataset] {
		if r.Domain == domain {
			want = append(want, line(r.Host, r.PathQuery, r.TS, r.Size))
		}
	}
	tuples, err := s.Tuples(ctx, e)
	if err != nil {
		tb.Fatal(err)
	}
	for _, t := range tuples {
		f, err := s.File(t.FileID)
		if err != nil {
			tb.Fatal(err)
		}
		blocks, err := s.PageBlocks(ctx, t.FileID, t.RowGroup, t.FirstRow, t.Rows)
		if err != nil {
			tb.Fatal(err)
		}
		for _, b := range blocks {
			from, to := max(t.FirstRow, b.FirstRow), min(t.FirstRow+t.Rows, b.FirstRow+b.Rows())
			c, err := lake.ReadColumns(ctx, l.store, f.Path, b, from, to-from, lake.ColDomain, lake.ColHost, lake.ColPathQuery, lake.ColTS, lake.ColSize)
			if err != nil {
				tb.Fatal(err)
			}
			for i := range c.Rows {
				if c.Domain[i] != domain {
					tb.Fatalf("row of %s where %s should be", c.Domain[i], domain)
				}
				got = append(got, line(c.Host[i], c.PathQuery[i], c.TS[i], c.Size[i]))
			}
		}
	}
	if !slices.Equal(got, want) {
		tb.Fatalf("rows of %s in %d: got\n%s\nwant\n%s", domain, e.Dataset, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// sortRefs orders batches as a segment does.
func sortRefs(refs []BatchRef) []BatchRef {
	out := slices.Clone(refs)
	slices.SortFunc(out, func(a, b BatchRef) int {
		return cmp.Or(cmp.Compare(a.DatasetID, b.DatasetID), strings.Compare(a.Batch, b.Batch))
	})
	return out
}

// segmentObjects are the objects of a segment.
func segmentObjects(tb testing.TB, store blob.Store, id string) map[string][]byte {
	tb.Helper()
	ctx := context.Background()
	all := map[string][]byte{}
	for info, err := range store.List(ctx, segment.Prefix(id)) {
		if err != nil {
			tb.Fatal(err)
		}
		data, _, err := store.Get(ctx, info.Key)
		if err != nil {
			tb.Fatal(err)
		}
		all[info.Key] = data
	}
	return all
}

// domainPages are the domains of a part's pages.
func domainPages(tb testing.TB, store blob.Store, part *lake.WrittenPart) (pages []*lake.DomainRuns) {
	tb.Helper()
	for i := range part.Blocks {
		for page := range part.Blocks[i].Pages() {
			plan, err := part.Blocks[i].PlanDomainRuns(page, page+1)
			if err != nil {
				tb.Fatal(err)
			}
			data, err := storedPart(store, part.Part.Key).ranges(context.Background(), plan)
			if err != nil {
				tb.Fatal(err)
			}
			runs := new(lake.DomainRuns)
			if err := plan.DomainRuns(runs, part.Part.Key, data); err != nil {
				tb.Fatal(err)
			}
			pages = append(pages, runs)
		}
	}
	return pages
}
