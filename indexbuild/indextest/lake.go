// Package indextest makes finished batches for the tests and benchmarks of building and verifying
// segments: small ones with rows and parts (Lake), and large ones of postings alone
// (SyntheticLake). A Lake keeps its rows in memory, so that a scan over them can tell what a
// segment must answer.
package indextest

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

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/urlnorm"
)

// Lake is a store with finished batches, and all their rows in memory.
type Lake struct {
	Store   blob.Store
	Batches []segment.BatchRef
	Rows    map[uint32][]row.Row // by dataset, in the order of the parts
}

// Options shape a random batch.
type Options struct {
	Rows, Domains int
	Width         int // of the prefixes of partitions, in hex digits
	Tasks         int // merge tasks that the partitions are distributed to
	Sizes, Times  bool
	Limits        part.Limits
}

// TinyParts are limits that give several parts, row groups and pages for a few rows.
var TinyParts = part.Limits{PageRows: 3, RowGroupBytes: 700, PartBytes: 2000}

// RandomRows returns unsorted rows, most of them in few of the domains.
func RandomRows(rng *rand.Rand, o Options) []row.Row {
	rows := make([]row.Row, o.Rows)
	for i := range rows {
		domain := fmt.Sprintf("d%d.example", int(float64(o.Domains)*rng.Float64()*rng.Float64()))
		r := row.Row{Domain: domain, Host: domain, Scheme: "https", Port: -1}
		r.PathQuery = fmt.Sprintf("/%x", rng.Uint32())
		if rng.IntN(4) == 0 {
			r.Host = "www." + domain
		}
		if o.Sizes && rng.IntN(5) > 0 {
			r.HasSize, r.Size = true, rng.Int64N(1e6)
		}
		if o.Times && rng.IntN(5) > 0 {
			r.HasTS, r.TS = true, 1.6e12+1000*rng.Int64N(1e7)
		}
		rows[i] = r
	}
	return rows
}

// AddBatch writes rows as a finished batch. It extracts the postings from the parts and checks that
// a Collector has made the same while the parts were written.
func (l *Lake) AddBatch(tb testing.TB, dataset uint32, name string, rows []row.Row, o Options) *lake.Batch {
	tb.Helper()
	b := l.WriteBatch(tb, dataset, name, rows, o, func(t *Task) lake.FrameObject {
		object, domains, err := postings.ExtractTask(context.Background(), l.Store, &t.MergedTask, tb.TempDir(), nil)
		if err != nil {
			tb.Fatal(err)
		}
		if domains < 1 || domains != t.Domains || object != t.Postings {
			tb.Errorf("extracted %d domains in %+v, collected %d in %+v", domains, object, t.Domains, t.Postings)
		}
		return object
	})
	l.Batches = append(l.Batches, PutBatch(tb, l.Store, b))
	return b
}

// PutBatch writes a batch record.
func PutBatch(tb testing.TB, store blob.Store, b *lake.Batch) segment.BatchRef {
	tb.Helper()
	data, digest, err := b.Encode()
	if err != nil {
		tb.Fatal(err)
	}
	ref := segment.BatchRef{DatasetID: b.DatasetID, Batch: b.Batch, Digest: digest}
	Put(tb, store, ref.Key(), data)
	return ref
}

// Task is a merge task whose parts are written.
type Task struct {
	ingest.MergedTask
	// Postings and Domains are what a Collector has made of the parts.
	Postings lake.FrameObject
	Domains  int64
}

// WriteBatch writes the parts of a batch, and calls postingsOf to write the postings of each merge
// task. It returns the batch record, which is not written. The task passed to postingsOf has the
// postings that a Collector has made; they are not in the store.
func (l *Lake) WriteBatch(
	tb testing.TB, dataset uint32, name string, rows []row.Row, o Options,
	postingsOf func(*Task) lake.FrameObject,
) *lake.Batch {
	tb.Helper()
	ctx := context.Background()
	partitions := map[string][]row.Row{}
	for _, r := range rows {
		prefix := lake.AnyPrefix
		if o.Width > 0 {
			prefix = urlnorm.FormatID(urlnorm.DomainID(r.Domain))[:o.Width]
		}
		partitions[prefix] = append(partitions[prefix], r)
	}
	b := &lake.Batch{
		Format: lake.BatchFormat, DatasetID: dataset, Batch: name,
		CanonicalForm: "urlake-1", PublicSuffix: "test", Rows: int64(len(rows)),
	}
	prefixes := slices.Sorted(maps.Keys(partitions))
	tasks := min(max(o.Tasks, 1), len(prefixes))
	for i := range tasks {
		task := &Task{MergedTask: ingest.MergedTask{DatasetID: dataset, Batch: name}}
		collector := postings.NewCollector(dataset, name, tb.TempDir())
		tb.Cleanup(collector.Close)
		for _, prefix := range prefixes[i*len(prefixes)/tasks : (i+1)*len(prefixes)/tasks] {
			in := partitions[prefix]
			slices.SortFunc(in, func(a, b row.Row) int { return bytes.Compare(a.AppendKey(nil), b.AppendKey(nil)) })
			w := part.NewWriter(ctx, l.Store, part.Options{
				Dataset: dataset, Batch: name, Prefix: prefix, Limits: o.Limits, Domains: collector,
			})
			var key row.Key
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
			if l.Rows == nil {
				l.Rows = map[uint32][]row.Row{}
			}
			l.Rows[dataset] = append(l.Rows[dataset], in...)
		}
		var err error
		if task.Postings, task.Domains, err = collector.Finish(ctx, blob.NewMemory()); err != nil {
			tb.Fatal(err)
		}
		for _, p := range task.Parts {
			b.Parts = append(b.Parts, p.Part)
		}
		b.Postings = append(b.Postings, postingsOf(task))
	}
	return b
}

// RandomLake has four datasets of one to three batches.
func RandomLake(tb testing.TB, seed uint64, limits part.Limits) *Lake {
	rng := rand.New(rand.NewPCG(seed, seed))
	l := &Lake{Store: blob.NewMemory()}
	for dataset := uint32(1); dataset <= 4; dataset++ {
		for batch := range rng.IntN(3) + 1 {
			o := Options{
				Rows: 1 + rng.IntN(400), Domains: 1 + rng.IntN(60), Width: rng.IntN(3), Tasks: 1 + rng.IntN(3),
				Sizes: rng.IntN(2) == 0, Times: rng.IntN(2) == 0, Limits: limits,
			}
			l.AddBatch(tb, dataset, fmt.Sprintf("b%d", batch), RandomRows(rng, o), o)
		}
	}
	return l
}

// SmallLake has two datasets, domains in both, and domains with rows in several row groups.
func SmallLake(tb testing.TB) *Lake {
	rng := rand.New(rand.NewPCG(11, 11))
	l := &Lake{Store: blob.NewMemory()}
	for dataset := uint32(1); dataset <= 2; dataset++ {
		o := Options{Rows: 60, Domains: 12, Sizes: true, Times: dataset == 2, Limits: TinyParts}
		l.AddBatch(tb, dataset, "b", RandomRows(rng, o), o)
	}
	return l
}

// Totals returns the totals of each domain in each dataset, from a scan over the rows.
func (l *Lake) Totals() map[string]map[uint32]segment.Totals {
	all := map[string]map[uint32]segment.Totals{}
	for dataset, rows := range l.Rows {
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

// CompareSegment compares all answers of a segment, down to the rows of the parts, with a scan over
// the rows.
func (l *Lake) CompareSegment(tb testing.TB, ref segment.Ref) {
	tb.Helper()
	ctx := context.Background()
	s, err := segment.Open(ctx, l.Store, ref, segment.Options{CacheDir: tb.TempDir()})
	if err != nil {
		tb.Fatal(err)
	}
	defer s.Close()
	all := l.Totals()
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
	compareReversed(tb, s, slices.Collect(maps.Keys(all)))
}

// compareReversed compares the reversed domains of a segment with all domains.
func compareReversed(tb testing.TB, s *segment.Segment, domains []string) {
	tb.Helper()
	for i, domain := range domains {
		text := []byte(domain)
		slices.Reverse(text)
		domains[i] = string(text)
	}
	slices.Sort(domains)
	var got []string
	for f, err := range s.Reversed().Frames(context.Background(), 0, s.Info().Domains) {
		if err != nil {
			tb.Fatal(err)
		}
		for i := range f.Ends {
			got = append(got, string(f.Domain(i)))
		}
	}
	if !slices.Equal(domains, got) {
		tb.Fatalf("reversed domains: %q, want %q", got, domains)
	}
}

// compareRows compares the rows that an entry's tuples locate with a scan.
func (l *Lake) compareRows(tb testing.TB, s *segment.Segment, domain string, e segment.Entry) {
	tb.Helper()
	ctx := context.Background()
	var want, got []string
	line := func(host, path string, ts, size int64) string { return fmt.Sprintf("%s%s %d %d", host, path, ts, size) }
	for _, r := range l.Rows[e.Dataset] {
		if r.Domain == domain {
			want = append(want, line(r.Host, r.PathQuery, r.TS, r.Size))
		}
	}
	tuples, err := s.Tuples(ctx, e)
	if err != nil {
		tb.Fatal(err)
	}
	for _, t := range tuples {
		f, err := s.File(context.Background(), t.FileID)
		if err != nil {
			tb.Fatal(err)
		}
		blocks, err := s.PageBlocks(ctx, t.FileID, t.RowGroup, t.FirstRow, t.Rows)
		if err != nil {
			tb.Fatal(err)
		}
		for _, b := range blocks {
			from, to := max(t.FirstRow, b.FirstRow), min(t.FirstRow+t.Rows, b.FirstRow+b.Rows())
			c, err := part.ReadColumns(ctx, l.Store, f.Path, b, from, to-from,
				part.ColDomain, part.ColHost, part.ColPathQuery, part.ColTS, part.ColSize)
			if err != nil {
				tb.Fatal(err)
			}
			for i := range c.Rows {
				if c.Domain[i] != domain {
					tb.Fatalf("row of %s, want a row of %s", c.Domain[i], domain)
				}
				got = append(got, line(c.Host[i], c.PathQuery[i], c.TS[i], c.Size[i]))
			}
		}
	}
	if !slices.Equal(got, want) {
		tb.Fatalf("rows of %s in %d: got\n%s\nwant\n%s",
			domain, e.Dataset, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// SortRefs returns batches in the order in which a segment has them.
func SortRefs(refs []segment.BatchRef) []segment.BatchRef {
	out := slices.Clone(refs)
	slices.SortFunc(out, func(a, b segment.BatchRef) int {
		return cmp.Or(cmp.Compare(a.DatasetID, b.DatasetID), strings.Compare(a.Batch, b.Batch))
	})
	return out
}

// SegmentObjects returns the objects of a segment by key.
func SegmentObjects(tb testing.TB, store blob.Store, id string) map[string][]byte {
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

// DomainPages reads the domains of each page of a part.
func DomainPages(tb testing.TB, store blob.Store, written *part.Written) (pages []*part.DomainRuns) {
	tb.Helper()
	for i := range written.Blocks {
		for page := range written.Blocks[i].Pages() {
			plan, err := part.NewDomainPlan(&written.Blocks[i], page, page+1)
			if err != nil {
				tb.Fatal(err)
			}
			var data [][]byte
			for _, r := range plan.Ranges {
				b, err := store.ReadRange(context.Background(), written.Part.Key, r.Offset, r.Bytes)
				if err != nil {
					tb.Fatal(err)
				}
				data = append(data, b)
			}
			runs := new(part.DomainRuns)
			if err := plan.DomainRuns(runs, written.Part.Key, data); err != nil {
				tb.Fatal(err)
			}
			pages = append(pages, runs)
		}
	}
	return pages
}

// DomainTotals are the totals of a domain in a part.
type DomainTotals struct {
	Name   string
	Totals segment.Totals
}

// WritePostings writes the postings object of a merge task after change has altered the domains of
// each of its parts, which have the numbers 0, 1 and so on. The sum of a part's rows must stay the
// same.
func WritePostings(
	tb testing.TB, store blob.Store, task *Task, change func(part int, domains []DomainTotals),
) lake.FrameObject {
	tb.Helper()
	var buf bytes.Buffer
	w := postings.NewWriter(&buf, task.DatasetID, task.Batch)
	for n := range task.Parts {
		p := &task.Parts[n]
		domains := countDomains(tb, store, p)
		change(n, domains)
		for i := range domains {
			if err := w.AddDomain([]byte(domains[i].Name), &domains[i].Totals); err != nil {
				tb.Fatal(err)
			}
		}
		var groups []int64
		var blocks [][]byte
		for i := range p.Blocks {
			b := &p.Blocks[i]
			if b.RowGroup == len(groups) {
				groups = append(groups, 0)
			}
			groups[b.RowGroup] += b.Rows()
			blocks = append(blocks, b.Append(nil))
		}
		if err := w.EndPart(&p.Part, groups, blocks); err != nil {
			tb.Fatal(err)
		}
	}
	ff, err := w.Finish()
	if err != nil {
		tb.Fatal(err)
	}
	key := lake.PostingsKey(task.DatasetID, task.Batch, lake.Digest(buf.Bytes()))
	Put(tb, store, key, buf.Bytes())
	return lake.NewFrameObject(key, ff)
}

// countDomains reads the rows of a part and returns the totals of its domains.
func countDomains(tb testing.TB, store blob.Store, written *part.Written) (all []DomainTotals) {
	tb.Helper()
	ctx := context.Background()
	for i := range written.Blocks {
		b := &written.Blocks[i]
		c, err := part.ReadColumns(ctx, store, written.Part.Key, b, b.FirstRow, b.Rows(),
			part.ColDomain, part.ColTS, part.ColSize)
		if err != nil {
			tb.Fatal(err)
		}
		for i := range c.Rows {
			if len(all) == 0 || all[len(all)-1].Name != c.Domain[i] {
				all = append(all, DomainTotals{Name: c.Domain[i]})
			}
			all[len(all)-1].Totals.Add(segment.Totals{
				Rows: 1, HasSize: c.HasSize[i], Size: c.Size[i],
				HasTS: c.HasTS[i], FirstTS: c.TS[i], LastTS: c.TS[i],
			})
		}
	}
	return all
}

// Put writes an object.
func Put(tb testing.TB, store blob.Store, key string, data []byte) {
	tb.Helper()
	if _, err := store.Put(context.Background(), key, data, blob.Condition{}); err != nil {
		tb.Fatal(err)
	}
}
