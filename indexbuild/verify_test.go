package indexbuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/verify"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
)

// Every changed, missing or added byte of a segment is reported.
func TestVerifyReportsAllDamage(t *testing.T) {
	l := indextest.SmallLake(t)
	ref := mustBuild(t, l.Store, l.Batches, Options{})
	if report := mustVerify(t, l.Store, ref, false); report.Found != 0 {
		t.Fatalf("%+v", report)
	}
	ctx := context.Background()
	expect := func(what string) {
		t.Helper()
		report, err := verify.Segment(ctx, l.Store, ref, false, t.TempDir())
		if !errors.Is(err, codec.ErrCorrupt) || report.Found == 0 || len(report.Problems) == 0 {
			t.Errorf("%s: %v, %+v", what, err, report.Problems)
		}
	}
	for key, good := range indextest.SegmentObjects(t, l.Store, ref.ID) {
		for i := 0; i < len(good); i += 1 + len(good)/120 {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << (i % 8)
			indextest.Put(t, l.Store, key, bad)
			expect(fmt.Sprintf("flip of byte %d of %s", i, key))
		}
		for i := 0; i < len(good); i += 1 + len(good)/20 {
			indextest.Put(t, l.Store, key, good[:i])
			expect(fmt.Sprintf("%s cut to %d", key, i))
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

// Only reading the parts shows damage there.
func TestDeepVerifyReportsDamagedParts(t *testing.T) {
	l := indextest.SmallLake(t)
	ref := mustBuild(t, l.Store, l.Batches, Options{})
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
		for i := 0; i < len(good); i += 1 + len(good)/15 {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << (i % 8)
			indextest.Put(t, l.Store, info.Key, bad)
			if _, err := verify.Segment(ctx, l.Store, ref, true, t.TempDir()); !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("flip of byte %d of %s: %v", i, info.Key, err)
			}
		}
		if err := l.Store.Delete(ctx, info.Key); err != nil {
			t.Fatal(err)
		}
		if _, err := verify.Segment(ctx, l.Store, ref, true, t.TempDir()); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%s is missing: %v", info.Key, err)
		}
		indextest.Put(t, l.Store, info.Key, good)
	}
	if parts == 0 {
		t.Fatal("no parts")
	}
	mustVerify(t, l.Store, ref, true)
}

// A damaged or missing part is named once, nothing sound is accused, and the datasets without it are counted all the same.
func TestDeepVerifyNamesEachDamagedPartOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 13))
	l := &indextest.Lake{Store: blob.NewMemory()}
	o := indextest.Options{Rows: 60, Domains: 12, Limits: indextest.TinyParts}
	ctx := context.Background()
	l.AddBatch(t, 1, "b", indextest.RandomRows(rng, o), o)
	lying := l.WriteBatch(t, 2, "b", indextest.RandomRows(rng, o), o, func(task *ingest.MergedTask) lake.FrameObject {
		return lyingPostings(t, l.Store, task, func(n, _ int, d *indextest.NamedTotals) {
			if n == 0 {
				d.Totals.Size++
				d.Totals.HasSize = true
			}
		})
	})
	for _, batches := range [][]postings.BatchRef{l.Batches, append(slices.Clone(l.Batches), indextest.PutBatch(t, l.Store, lying))} {
		ref, err := BuildSegment(ctx, l.Store, batches, Options{TempDir: t.TempDir()})
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
				report, err := verify.Segment(ctx, l.Store, ref, true, t.TempDir())
				if !errors.Is(err, codec.ErrCorrupt) || report.Problems[0].Place != info.Key || !slices.Equal(report.Uncounted, []uint32{1}) {
					t.Fatalf("%v, %+v", err, report)
				}
				// Of the lying batch's entries one differs from its rows.
				if report.Found != int64(len(batches)) {
					t.Errorf("%d batches: %+v", len(batches), report.Problems)
				}
			}
			indextest.Put(t, l.Store, info.Key, good)
		}
	}
}

// Segments whose bytes are sound and whose contents are wrong: made from postings that lie. Only a recount can tell.
func TestVerifyReportsWrongContents(t *testing.T) {
	for name, change := range map[string]func(n int, d *indextest.NamedTotals){
		"size":     func(_ int, d *indextest.NamedTotals) { d.Totals.Size++; d.Totals.HasSize = true },
		"first ts": func(_ int, d *indextest.NamedTotals) { d.Totals.FirstTS--; d.Totals.HasTS = true },
		"a domain": func(_ int, d *indextest.NamedTotals) { d.Name += "x" },
	} {
		t.Run(name, func(t *testing.T) {
			l, b := lyingBatch(t, func(n, domains int, d *indextest.NamedTotals) {
				if n == domains/2 {
					change(n, d)
				}
			})
			verifyLie(t, l, mustBuild(t, l.Store, []postings.BatchRef{indextest.PutBatch(t, l.Store, b)}, Options{}), true)
		})
	}
	t.Run("a row of the next domain", func(t *testing.T) {
		moved := int64(0)
		l, b := lyingBatch(t, func(n, domains int, d *indextest.NamedTotals) {
			switch {
			case n >= domains/2 && moved == 0 && d.Totals.Rows > 1:
				d.Totals.Rows--
				moved++
			case moved == 1:
				d.Totals.Rows++
				moved++
			}
		})
		verifyLie(t, l, mustBuild(t, l.Store, []postings.BatchRef{indextest.PutBatch(t, l.Store, b)}, Options{}), true)
	})
}

// Segments whose tuples are not where rows are. No postings object says so: the build is lied to in the middle.
func TestVerifyReportsWrongPlaces(t *testing.T) {
	for name, change := range map[string]func(o *postings.PostingsObject){
		"another end of a row group": func(o *postings.PostingsObject) {
			g := o.Reader.Parts[0].Groups
			g[0]++
			g[1]--
		},
		"a row group that is not there": func(o *postings.PostingsObject) {
			p := &o.Reader.Parts[0]
			n := len(p.Groups) - 1
			p.Groups = append(p.Groups[:n:n], p.Groups[n]-1, 1)
		},
		"one row group": func(o *postings.PostingsObject) {
			p := &o.Reader.Parts[0]
			p.Groups = []int64{p.Rows}
		},
		"a part twice": func(o *postings.PostingsObject) { o.Files[0] = o.Files[1] },
	} {
		t.Run(name, func(t *testing.T) {
			l, b := lyingBatch(t, func(int, int, *indextest.NamedTotals) {})
			build := &build{ctx: context.Background(), store: l.Store, batches: []postings.BatchRef{indextest.PutBatch(t, l.Store, b)}, opt: Options{TempDir: t.TempDir(), Memory: 1 << 20}, keyOf: postings.DomainKey}
			defer build.close()
			if err := build.readBatches(); err != nil {
				t.Fatal(err)
			}
			build.out = segment.NewWriter(build.ctx, l.Store, build.batches)
			if err := errors.Join(build.writeFiles(), build.writeParts()); err != nil {
				t.Fatal(err)
			}
			change(&build.objects[0])
			if err := build.writeDomains(); err != nil {
				t.Fatal(err)
			}
			ref, err := build.out.Finish(build.info)
			if err != nil {
				t.Fatal(err)
			}
			verifyLie(t, l, ref, false)
		})
	}
}

// verifyLie checks that a segment is found to be wrong; deep says that only a recount can tell.
func verifyLie(t *testing.T, l *indextest.Lake, ref postings.SegmentRef, deep bool) {
	t.Helper()
	ctx := context.Background()
	if report, err := verify.Segment(ctx, l.Store, ref, false, t.TempDir()); deep != (err == nil) || err != nil && !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("verify: %v, %+v", err, report.Problems)
	}
	if _, err := verify.Segment(ctx, l.Store, ref, true, t.TempDir()); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("deep verify: %v", err)
	}
}

// lyingBatch writes a batch of several parts and row groups whose postings were changed.
func lyingBatch(t *testing.T, change func(n, domains int, d *indextest.NamedTotals)) (*indextest.Lake, *lake.Batch) {
	rng := rand.New(rand.NewPCG(12, 12))
	l := &indextest.Lake{Store: blob.NewMemory()}
	o := indextest.Options{Rows: 80, Domains: 12, Limits: indextest.TinyParts}
	return l, l.WriteBatch(t, 1, "b", indextest.RandomRows(rng, o), o, func(task *ingest.MergedTask) lake.FrameObject {
		return lyingPostings(t, l.Store, task, change)
	})
}

// lyingPostings writes a postings object in which what it says of domains was changed.
func lyingPostings(tb testing.TB, store blob.Store, task *ingest.MergedTask, change func(n, domains int, d *indextest.NamedTotals)) lake.FrameObject {
	tb.Helper()
	ctx := context.Background()
	object, _, err := postings.ExtractIf(ctx, store, task, tb.TempDir(), nil)
	if err != nil {
		tb.Fatal(err)
	}
	r, err := postings.OpenBatch(ctx, store, object)
	if err != nil {
		tb.Fatal(err)
	}
	o := &postings.PostingsObject{Reader: r, Files: make([]uint32, len(task.Parts))}
	var buf bytes.Buffer
	w := postings.NewBatchWriter(&buf, task.DatasetID, task.Batch)
	n := 0
	for i := range task.Parts {
		all, err := sourceRecords(postings.NewBatchSource(o, i))
		if err != nil {
			tb.Fatal(err)
		}
		for _, rec := range all {
			d := indextest.NamedTotals{Name: string(rec.Key), Totals: rec.Totals}
			change(n, int(r.Domains()), &d)
			n++
			if err := w.Domain([]byte(d.Name), &d.Totals); err != nil {
				tb.Fatal(err)
			}
		}
		blocks, err := r.Pages(ctx, i)
		if err != nil {
			tb.Fatal(err)
		}
		w.Open.Rows = task.Parts[i].Part.Rows
		if err := w.Part(&task.Parts[i].Part, r.Parts[i].Groups, blocks); err != nil {
			tb.Fatal(err)
		}
	}
	ff, err := w.Finish()
	if err != nil {
		tb.Fatal(err)
	}
	key := lake.PostingsKey(task.DatasetID, task.Batch, lake.Digest(buf.Bytes()))
	indextest.Put(tb, store, key, buf.Bytes())
	return lake.NewFrameObject(key, ff)
}

// What cannot be read for other reasons is not called corrupt.
func TestVerifyTellsFailureFromDamage(t *testing.T) {
	l := indextest.SmallLake(t)
	ref := mustBuild(t, l.Store, l.Batches, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := verify.Segment(ctx, l.Store, ref, true, t.TempDir()); !errors.Is(err, context.Canceled) || errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("cancelled: %v", err)
	}
	faulty := blobtest.NewFaulty(l.Store)
	faulty.CrashAfter(0)
	put := func() error { _, err := faulty.Put(context.Background(), "x", nil, blob.Condition{}); return err }
	if err := put(); !errors.Is(err, blobtest.ErrCrashed) {
		t.Fatal(err)
	}
	if _, err := verify.Segment(context.Background(), faulty, ref, true, t.TempDir()); !errors.Is(err, blobtest.ErrCrashed) || errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("store down: %v", err)
	}
}
