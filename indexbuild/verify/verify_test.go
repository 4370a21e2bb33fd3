package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/codec"
)

// Every changed, missing or added byte of a segment is reported.
func TestDamage(t *testing.T) {
	l := indextest.SmallLake(t)
	ref := mustBuild(t, l.Store, l.Batches, indexbuild.Options{})
	if report := mustVerify(t, l.Store, ref, false); report.Found != 0 {
		t.Fatalf("%+v", report)
	}
	ctx := context.Background()
	expect := func(what string) {
		t.Helper()
		report, err := Segment(ctx, l.Store, ref, false, t.TempDir())
		if !errors.Is(err, codec.ErrCorrupt) || report.Found == 0 || len(report.Problems) == 0 {
			t.Errorf("%s: %v, %+v", what, err, report.Problems)
		}
	}
	for key, good := range indextest.SegmentObjects(t, l.Store, ref.ID) {
		for i := 0; i < len(good); i += 1 + len(good)*testenv.Every(10)/120 {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << (i % 8)
			indextest.Put(t, l.Store, key, bad)
			expect(fmt.Sprintf("flip of byte %d of %s", i, key))
		}
		for i := 0; i < len(good); i += 1 + len(good)*testenv.Every(4)/20 {
			indextest.Put(t, l.Store, key, good[:i])
			expect(fmt.Sprintf("%s truncated to %d", key, i))
		}
		indextest.Put(t, l.Store, key, append(bytes.Clone(good), 0))
		expect(key + " longer by one")
		if err := l.Store.Delete(ctx, key); err != nil {
			t.Fatal(err)
		}
		expect(key + " is missing")
		indextest.Put(t, l.Store, key, good)
	}
	mustVerify(t, l.Store, ref, true)
}

// A deep check reports damage of parts.
func TestDeepDamage(t *testing.T) {
	l := indextest.SmallLake(t)
	ref := mustBuild(t, l.Store, l.Batches, indexbuild.Options{})
	ctx := context.Background()
	parts := 0
	for info, err := range l.Store.List(ctx, "urls/") {
		if err != nil {
			t.Fatal(err)
		}
		parts++
		good, _, err := l.Store.Get(ctx, info.Key)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(good); i += 1 + len(good)*testenv.Every(3)/15 {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << (i % 8)
			indextest.Put(t, l.Store, info.Key, bad)
			if _, err := Segment(ctx, l.Store, ref, true, t.TempDir()); !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("flip of byte %d of %s: %v", i, info.Key, err)
			}
		}
		if err := l.Store.Delete(ctx, info.Key); err != nil {
			t.Fatal(err)
		}
		if _, err := Segment(ctx, l.Store, ref, true, t.TempDir()); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%s is missing: %v", info.Key, err)
		}
		indextest.Put(t, l.Store, info.Key, good)
	}
	if parts == 0 {
		t.Fatal("no parts")
	}
	mustVerify(t, l.Store, ref, true)
}

// A damaged or missing part is reported once and nothing else is, and the datasets without it are
// counted.
func TestDeepReportsEachPartOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 13))
	l := &indextest.Lake{Store: blob.NewMemory()}
	o := indextest.Options{Rows: 60, Domains: 12, Limits: indextest.TinyParts}
	ctx := context.Background()
	l.AddBatch(t, 1, "b", indextest.RandomRows(rng, o), o)
	wrong := l.WriteBatch(t, 2, "b", indextest.RandomRows(rng, o), o, func(task *indextest.Task) lake.FrameObject {
		return indextest.WritePostings(t, l.Store, task, func(part int, domains []indextest.DomainTotals) {
			if part == 0 {
				domains[0].Totals.Size++
				domains[0].Totals.HasSize = true
			}
		})
	})
	both := append(slices.Clone(l.Batches), indextest.PutBatch(t, l.Store, wrong))
	for _, batches := range [][]segment.BatchRef{l.Batches, both} {
		ref, err := indexbuild.BuildSegment(ctx, l.Store, batches, indexbuild.Options{TempDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		for info, err := range l.Store.List(ctx, "urls/dataset_id=1/") {
			if err != nil {
				t.Fatal(err)
			}
			good, _, err := l.Store.Get(ctx, info.Key)
			if err != nil {
				t.Fatal(err)
			}
			bad := bytes.Clone(good)
			bad[len(bad)/2] ^= 2
			for _, how := range []func(){
				func() { indextest.Put(t, l.Store, info.Key, bad) },
				func() {
					if err := l.Store.Delete(ctx, info.Key); err != nil {
						t.Fatal(err)
					}
				},
			} {
				how()
				report, err := Segment(ctx, l.Store, ref, true, t.TempDir())
				if !errors.Is(err, codec.ErrCorrupt) || report.Problems[0].Object != info.Key ||
					!slices.Equal(report.Uncounted, []uint32{1}) {
					t.Fatalf("%v, %+v", err, report)
				}
				// One entry of the wrong batch differs from its rows.
				if report.Found != int64(len(batches)) {
					t.Errorf("%d batches: %+v", len(batches), report.Problems)
				}
			}
			indextest.Put(t, l.Store, info.Key, good)
		}
	}
}

// A deep check reports a segment whose files are valid and contradict the parts, because it was
// built from wrong postings.
func TestWrongPostings(t *testing.T) {
	for name, change := range map[string]func(domains []indextest.DomainTotals){
		"size": func(domains []indextest.DomainTotals) {
			t := &domains[0].Totals
			t.Size++
			t.HasSize = true
		},
		"first ts": func(domains []indextest.DomainTotals) {
			t := &domains[0].Totals
			t.FirstTS--
			t.HasTS = true
		},
		"a domain": func(domains []indextest.DomainTotals) { domains[0].Name += "x" },
		"a row of the next domain": func(domains []indextest.DomainTotals) {
			domains[0].Totals.Rows--
			domains[1].Totals.Rows++
		},
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(12, 12))
			l := &indextest.Lake{Store: blob.NewMemory()}
			o := indextest.Options{Rows: 80, Domains: 12, Limits: indextest.TinyParts}
			changed := false
			b := l.WriteBatch(t, 1, "b", indextest.RandomRows(rng, o), o, func(task *indextest.Task) lake.FrameObject {
				return indextest.WritePostings(t, l.Store, task, func(part int, domains []indextest.DomainTotals) {
					for i := range domains[:len(domains)-1] {
						if part > 0 && !changed && domains[i].Totals.Rows > 1 {
							change(domains[i:])
							changed = true
						}
					}
				})
			})
			if !changed {
				t.Fatal("no domain was changed")
			}
			ctx := context.Background()
			ref := mustBuild(t, l.Store, []segment.BatchRef{indextest.PutBatch(t, l.Store, b)}, indexbuild.Options{})
			if report, err := Segment(ctx, l.Store, ref, false, t.TempDir()); err != nil {
				t.Errorf("not deep: %v, %+v", err, report.Problems)
			}
			if _, err := Segment(ctx, l.Store, ref, true, t.TempDir()); !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("deep: %v", err)
			}
		})
	}
}

// A failure of the store or a cancelled context is not corruption.
func TestFailureIsNotDamage(t *testing.T) {
	l := indextest.SmallLake(t)
	ref := mustBuild(t, l.Store, l.Batches, indexbuild.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := Segment(ctx, l.Store, ref, true, t.TempDir())
	if !errors.Is(err, context.Canceled) || errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("cancelled: %v", err)
	}
	faulty := blobtest.NewFaulty(l.Store)
	faulty.CrashAfter(0)
	put := func() error { _, err := faulty.Put(context.Background(), "x", nil, blob.Condition{}); return err }
	if err := put(); !errors.Is(err, blobtest.ErrCrashed) {
		t.Fatal(err)
	}
	_, err = Segment(context.Background(), faulty, ref, true, t.TempDir())
	if !errors.Is(err, blobtest.ErrCrashed) || errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("store down: %v", err)
	}
}

// Damage in one place is one problem. Its text is one line that names the object once and says what
// to do.
func TestEachDamageIsOneProblem(t *testing.T) {
	l := indextest.SmallLake(t)
	ref := mustBuild(t, l.Store, l.Batches, indexbuild.Options{})
	ctx := context.Background()
	for key, good := range indextest.SegmentObjects(t, l.Store, ref.ID) {
		for i := 0; i < len(good); i += 1 + len(good)*testenv.Every(4)/40 {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << (i % 8)
			indextest.Put(t, l.Store, key, bad)
			report, err := Segment(ctx, l.Store, ref, false, t.TempDir())
			if !errors.Is(err, codec.ErrCorrupt) || report.Found != 1 {
				t.Errorf("byte %d of %s: %d problems: %v", i, key, report.Found, report.Problems)
			}
			for _, p := range report.Problems {
				if p.Object != key || strings.Count(p.Text, key) != 1 || strings.ContainsAny(p.Text, "{}\n") ||
					!strings.HasSuffix(p.Text, lake.Remedy(l.Store.URL(), key)) {
					t.Errorf("byte %d of %s: %+v", i, key, p)
				}
			}
		}
		indextest.Put(t, l.Store, key, good)
	}
}

var damagedPart = lake.PartKey(3, "any", "b", strings.Repeat("0", 32), 0)

// What to do depends on what is wrong: files of the segment, what it was built from, or neither.
func TestRemedies(t *testing.T) {
	v := &verifier{ref: segment.Ref{ID: "s"}, store: blob.NewMemory()}
	for _, c := range []struct {
		object string
		intact bool
		want   string
	}{
		{v.key(segment.MPHFName), false, lake.Remedy(v.store.URL(), v.key(segment.MPHFName))},
		{v.key(segment.MPHFName), true, "the files are as they were built, so report this as a bug"},
		{damagedPart, true, lake.Remedy(v.store.URL(), damagedPart)},
	} {
		v.intact = c.intact
		if got := v.remedy(c.object); got != c.want {
			t.Errorf("%s, intact %v: %q, want %q", c.object, c.intact, got, c.want)
		}
	}
}

func mustVerify(tb testing.TB, store blob.Store, ref segment.Ref, deep bool) Report {
	tb.Helper()
	report, err := Segment(context.Background(), store, ref, deep, tb.TempDir())
	if err != nil {
		tb.Fatalf("%v\n%+v", err, report.Problems)
	}
	return report
}

// BenchmarkVerifySegment reads a segment of a million entries.
func BenchmarkVerifySegment(b *testing.B) {
	ctx := context.Background()
	store, err := blob.Open(ctx, b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	pairs := indextest.BenchPairs(b)
	ref := mustBuild(b, store, indextest.SyntheticLake(b, store, pairs/2, 20, pairs, false), indexbuild.Options{SkipPageKeys: true})
	var report Report
	started := indextest.ProcessorTime(b)
	for b.Loop() {
		if report, err = Segment(ctx, store, ref, false, b.TempDir()); err != nil {
			b.Fatal(err)
		}
	}
	indextest.ReportPerEntry(b, started, report.Entries)
}
