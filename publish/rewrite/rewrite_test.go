package rewrite_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/verify"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/publish/rewrite"
)

// someBatches makes a lake with batches of dataset 1, partitioned in all ways, and the job of their
// union. Many rows are in several batches.
func someBatches(t testing.TB, n int) (*indextest.Lake, *rewrite.Job) {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, uint64(n)))
	l := &indextest.Lake{Store: blob.NewMemory()}
	j := &rewrite.Job{DatasetID: 1, CanonicalForm: "urlake-1", PublicSuffix: "test"}
	o := indextest.Options{Rows: 400, Domains: 30, Sizes: true, Times: true, Limits: indextest.TinyParts}
	all := indextest.RandomRows(rng, o)
	for i := range n {
		var rows []row.Row
		for k, r := range all {
			if r.Extras = ""; k%7 == 0 {
				r.Extras = fmt.Sprintf(`{"n":%d}`, rng.IntN(3))
			}
			if r.RawURL = ""; k%11 == 0 {
				r.RawURL = fmt.Sprintf("HTTP://Raw/%d", rng.IntN(3))
			}
			if rng.IntN(3) > 0 {
				rows = append(rows, r)
			}
		}
		o.Width = i % 3
		b := l.AddBatch(t, 1, fmt.Sprintf("b%02d", i), rows, o)
		ref := l.Batches[len(l.Batches)-1]
		j.Members = append(j.Members, lake.Member{Batch: b.Batch, Digest: ref.Digest, Rows: b.Rows})
		j.Sources = append(j.Sources, sourceOf(b, ref))
	}
	slices.SortStableFunc(l.Rows[1], func(a, b row.Row) int { return bytes.Compare(a.AppendKey(nil), b.AppendKey(nil)) })
	return l, j
}

func sourceOf(b *lake.Batch, ref segment.BatchRef) rewrite.Source {
	s := rewrite.Source{Batch: ref.Batch, Digest: ref.Digest}
	for _, p := range b.Parts {
		s.Bytes += p.Bytes
	}
	for _, m := range b.Members {
		s.Take = append(s.Take, m.Batch)
	}
	return s
}

func recordOf(t testing.TB, store blob.Store, r rewrite.Result) (*lake.Batch, segment.BatchRef) {
	t.Helper()
	ref := segment.BatchRef{DatasetID: 1, Batch: r.Name, Digest: r.Digest}
	data, _, err := store.Get(t.Context(), ref.Key())
	if err != nil {
		t.Fatal(err)
	}
	b, err := lake.DecodeBatch(data, ref.Key())
	if err != nil {
		t.Fatal(err)
	}
	return b, ref
}

// A union answers as a scan over the rows of its batches does, and a deep check finds as many rows
// of each batch in it as the batch has.
func TestUnionHasTheRowsOfItsBatches(t *testing.T) {
	l, j := someBatches(t, 5)
	r, err := rewrite.Do(t.Context(), l.Store, "run", j, rewrite.Options{TempDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	b, union := recordOf(t, l.Store, r)
	if b.Rows != int64(len(l.Rows[1])) || len(b.Parts) != 1 || r.Parts != 1 || len(b.Members) != 5 {
		t.Fatalf("%+v, %+v", r, b)
	}
	ref, err := indexbuild.BuildSegment(t.Context(), l.Store, []segment.BatchRef{union}, indexbuild.Options{TempDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	l.CompareSegment(t, ref)
	report, err := verify.Segment(t.Context(), l.Store, ref, true, t.TempDir())
	if err != nil || report.PartRows != b.Rows {
		t.Fatalf("%+v, %v", report, err)
	}
	// A record that tells the rows of two batches from each other wrongly is found out.
	b.Members[0].Rows++
	b.Members[1].Rows--
	wrong := indextest.PutBatch(t, l.Store, b)
	if ref, err = indexbuild.BuildSegment(t.Context(), l.Store, []segment.BatchRef{wrong}, indexbuild.Options{TempDir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	if report, err = verify.Segment(t.Context(), l.Store, ref, true, t.TempDir()); err == nil {
		t.Errorf("rows of another batch: %+v", report)
	}
}

// Whatever the sources and the memory, the same batches make the same union.
func TestSameMembersSameBytes(t *testing.T) {
	l, j := someBatches(t, 6)
	limits := row.MergeLimits{AnyPrefix: 1 << 10, OneDigit: 8 << 10, Task: 4 << 10} // two digits, several tasks
	opt := func(arena int64) rewrite.Options {
		return rewrite.Options{TempDir: t.TempDir(), Limits: limits, Arena: arena}
	}
	do := func(name string, j *rewrite.Job, opt rewrite.Options) rewrite.Result {
		t.Helper()
		r, err := rewrite.Do(t.Context(), l.Store, name, j, opt)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return r
	}
	want := do("in memory", j, opt(0))
	if want.Parts < 10 {
		t.Fatalf("%d parts", want.Parts)
	}
	if diff := cmp.Diff(want, do("spilled", j, opt(16<<10))); diff != "" {
		t.Errorf("with little memory:\n%s", diff)
	}
	// From a union of three, one of four of which one batch is taken, and two batches.
	part := func(members ...int) (*rewrite.Job, rewrite.Source) {
		some := *j
		some.Members, some.Sources = nil, nil
		for _, i := range members {
			some.Members, some.Sources = append(some.Members, j.Members[i]), append(some.Sources, j.Sources[i])
		}
		r := do(fmt.Sprint(members), &some, opt(0))
		b, ref := recordOf(t, l.Store, r)
		return &some, sourceOf(b, ref)
	}
	_, three := part(0, 2, 4)
	_, four := part(0, 1, 2, 3)
	again := *j
	again.Sources = []rewrite.Source{three, four, j.Sources[5]}
	again.Members = slices.Clone(j.Members)
	if _, err := rewrite.Do(t.Context(), l.Store, "twice", &again, opt(0)); err == nil {
		t.Error("batches that two sources have were taken twice")
	}
	_, one := part(1, 3)
	again.Sources = []rewrite.Source{three, one, j.Sources[5]}
	if diff := cmp.Diff(want, do("of unions", &again, opt(0))); diff != "" {
		t.Errorf("of unions:\n%s", diff)
	}
	// Some batches of a union.
	less := *j
	less.Members, less.Sources = []lake.Member{j.Members[0], j.Members[4]}, []rewrite.Source{three}
	single, _ := part(0, 4)
	r := do("less", &less, opt(0))
	if r.Name != single.Name() || r.Rows != less.Members[0].Rows+less.Members[1].Rows {
		t.Errorf("%+v", r)
	}
	if diff := cmp.Diff(do("0 4", single, opt(0)), r); diff != "" {
		t.Errorf("what is left of a union:\n%s", diff)
	}
}

// Damage of a source names the source.
func TestDamagedSource(t *testing.T) {
	l, j := someBatches(t, 3)
	b, _ := recordOf(t, l.Store, rewrite.Result{Name: j.Members[1].Batch, Digest: j.Members[1].Digest})
	key := b.Parts[len(b.Parts)/2].Key
	data, _, err := l.Store.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	damaged := 0
	for at := 10; at < len(data); at += 37 {
		bad := bytes.Clone(data)
		bad[at] ^= 4
		indextest.Put(t, l.Store, key, bad)
		_, err := rewrite.Do(t.Context(), l.Store, "run", j, rewrite.Options{TempDir: t.TempDir()})
		var d *postings.DamageError
		if err != nil && (!errors.As(err, &d) || d.Batch.Batch != "b01") {
			t.Fatalf("byte %d: %v", at, err)
		}
		if err != nil {
			damaged++
		}
	}
	if damaged == 0 {
		t.Error("no flipped bit was found")
	}
}

// BenchmarkUnite unites 100 batches with 20,000 rows each, in memory.
func BenchmarkUnite(b *testing.B) {
	l := &indextest.Lake{Store: blob.NewMemory()}
	j := &rewrite.Job{DatasetID: 1, CanonicalForm: "urlake-1", PublicSuffix: "test"}
	rng := rand.New(rand.NewPCG(1, 2))
	from := int64(0)
	for i := range 100 {
		o := indextest.Options{Rows: 20_000, Domains: 5000, Times: true}
		batch := l.AddBatch(b, 1, fmt.Sprintf("b%03d", i), indextest.RandomRows(rng, o), o)
		ref := l.Batches[i]
		j.Members = append(j.Members, lake.Member{Batch: batch.Batch, Digest: ref.Digest, Rows: batch.Rows})
		j.Sources = append(j.Sources, sourceOf(batch, ref))
		from += j.Sources[i].Bytes
	}
	rows := int64(0)
	for b.Loop() {
		r, err := rewrite.Do(b.Context(), l.Store, "run", j, rewrite.Options{TempDir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		rows = r.Rows
		b.ReportMetric(float64(r.Bytes)/float64(rows), "B/row")
	}
	b.ReportMetric(float64(from)/float64(rows), "B/row-before")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(rows), "ns/row")
}

// rowsOf is the number of rows of a domain in a batch.
func rowsOf(t *testing.T, store blob.Store, ref segment.BatchRef, domain string) (rows int64) {
	t.Helper()
	data, _, err := store.Get(t.Context(), ref.Key())
	if err != nil {
		t.Fatal(err)
	}
	b, err := lake.DecodeBatch(data, ref.Key())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range b.Postings {
		r, err := postings.Open(t.Context(), store, ref, o)
		if err != nil {
			t.Fatal(err)
		}
		for n := range r.Parts() {
			for d, err := range r.PartDomains(t.Context(), n) {
				if err != nil {
					t.Fatal(err)
				}
				if string(d.Name) == domain {
					rows += d.Totals.Rows
				}
			}
		}
	}
	return rows
}

// Rows that rules hide are dropped, by the same bytes whatever the memory, and step by step as at
// once. The record says how many of which batch. A job that hides another number is refused.
func TestHiddenRowsAreDropped(t *testing.T) {
	l, j := someBatches(t, 4)
	domain := l.Rows[1][len(l.Rows[1])/2].Domain
	rule := catalog.Takedown{ID: "20261120-0123456789", Target: catalog.Target{Kind: catalog.DomainTarget, Host: domain}, Reason: "test"}
	left, hidden := map[string]int64{}, map[string]int64{}
	var rows []row.Row
	for _, r := range l.Rows[1] {
		if r.Domain != domain {
			rows = append(rows, r)
		}
	}
	opt := rewrite.Options{TempDir: t.TempDir(), Limits: row.MergeLimits{AnyPrefix: 1 << 10, OneDigit: 8 << 10, Task: 4 << 10}}
	total := int64(0)
	for i := range j.Sources {
		s := &j.Sources[i]
		s.Hidden = rowsOf(t, l.Store, l.Batches[i], domain)
		total += s.Hidden
		hidden[s.Batch], left[s.Batch] = s.Hidden, j.Members[i].Rows-s.Hidden
	}
	if j.Rules = []string{rule.ID}; total != int64(len(l.Rows[1])-len(rows)) || total == 0 {
		t.Fatalf("%d rows are hidden, want %d", total, len(l.Rows[1])-len(rows))
	}
	if err := j.NameTakedowns(t.Context(), l.Store); err != nil {
		t.Fatal(err)
	}
	if _, err := rewrite.Do(t.Context(), l.Store, "none", j, opt); err == nil {
		t.Error("a job without its rules was done")
	}
	opt.Hide = catalog.NewTakedowns(rule)
	want, err := rewrite.Do(t.Context(), l.Store, "whole", j, opt)
	if err != nil {
		t.Fatal(err)
	}
	b, ref := recordOf(t, l.Store, want)
	if b.Rows != int64(len(rows)) || want.Dropped != total || !slices.Equal(b.Takedowns, []string{rule.ID}) {
		t.Errorf("%+v", want)
	}
	for _, m := range b.Members {
		if m.Rows != left[m.Batch] || m.Dropped != hidden[m.Batch] {
			t.Errorf("%+v, want %d and %d", m, left[m.Batch], hidden[m.Batch])
		}
	}
	l.Rows[1] = rows
	seg, err := indexbuild.BuildSegment(t.Context(), l.Store, []segment.BatchRef{ref}, indexbuild.Options{TempDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	l.CompareSegment(t, seg)
	if _, err := verify.Segment(t.Context(), l.Store, seg, true, t.TempDir()); err != nil {
		t.Error(err)
	}
	little := opt
	little.Arena = 16 << 10
	got, err := rewrite.Do(t.Context(), l.Store, "spilled", j, little)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("with little memory: %v\n%s", err, diff)
	}
	// First some batches, then all.
	some := *j
	some.Members, some.Sources = j.Members[:2], j.Sources[:2]
	first, err := rewrite.Do(t.Context(), l.Store, "some", &some, opt)
	if err != nil {
		t.Fatal(err)
	}
	record, union := recordOf(t, l.Store, first)
	again := *j
	source := sourceOf(record, union)
	source.Take = []string{j.Members[0].Batch, j.Members[1].Batch}
	again.Sources = append([]rewrite.Source{source}, j.Sources[2:]...)
	if got, err = rewrite.Do(t.Context(), l.Store, "again", &again, opt); err != nil {
		t.Fatal(err)
	}
	got.Dropped = want.Dropped // this job dropped less
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("step by step:\n%s", diff)
	}
	// A union without the takedowns of its sources would not say what it lacks.
	again.Takedowns, again.Rules, again.Sources = nil, nil, []rewrite.Source{source}
	again.Members = j.Members[:2]
	if _, err := rewrite.Do(t.Context(), l.Store, "forgets", &again, rewrite.Options{TempDir: t.TempDir()}); err == nil {
		t.Error("a union forgets the takedowns of its sources")
	}
	j.Sources = slices.Clone(j.Sources)
	j.Sources[1].Hidden++
	var d *postings.DamageError
	if _, err := rewrite.Do(t.Context(), l.Store, "wrong", j, opt); !errors.As(err, &d) || d.Batch.Batch != j.Sources[1].Batch {
		t.Errorf("another number of hidden rows: %v", err)
	}
}
