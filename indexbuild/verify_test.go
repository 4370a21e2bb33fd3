package indexbuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
)

// smallLake has two datasets, domains in both, and domains over several row groups.
func smallLake(tb testing.TB) *testLake {
	rng := rand.New(rand.NewPCG(11, 11))
	l := &testLake{store: blob.NewMemory()}
	for dataset := uint32(1); dataset <= 2; dataset++ {
		o := lakeOptions{rows: 60, domains: 12, sizes: true, times: dataset == 2, limits: tinyParts}
		l.addBatch(tb, dataset, "b", randomRows(rng, o), o)
	}
	return l
}

func put(tb testing.TB, store blob.Store, key string, data []byte) {
	tb.Helper()
	if _, err := store.Put(context.Background(), key, data, blob.Condition{}); err != nil {
		tb.Fatal(err)
	}
}

// Every changed, missing or added byte of a segment is reported.
func TestVerifyReportsAllDamage(t *testing.T) {
	l := smallLake(t)
	ref := mustBuild(t, l.store, l.batches, Options{})
	if report := mustVerify(t, l.store, ref, false); report.Found != 0 {
		t.Fatalf("%+v", report)
	}
	ctx := context.Background()
	expect := func(what string) {
		t.Helper()
		report, err := VerifySegment(ctx, l.store, ref, false, t.TempDir())
		if !errors.Is(err, codec.ErrCorrupt) || report.Found == 0 || len(report.Problems) == 0 {
			t.Errorf("%s: %v, %+v", what, err, report.Problems)
		}
	}
	for key, good := range segmentObjects(t, l.store, ref.ID) {
		for i := 0; i < len(good); i += 1 + len(good)/120 {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << (i % 8)
			put(t, l.store, key, bad)
			expect(fmt.Sprintf("flip of byte %d of %s", i, key))
		}
		for i := 0; i < len(good); i += 1 + len(good)/20 {
			put(t, l.store, key, good[:i])
			expect(fmt.Sprintf("%s cut to %d", key, i))
		}
		put(t, l.store, key, append(bytes.Clone(good), 0))
		expect(key + " longer by one")
		if err := l.store.Delete(ctx, key); err != nil {
			t.Fatal(err)
		}
		expect(key + " is missing")
		put(t, l.store, key, good)
	}
	mustVerify(t, l.store, ref, true)
}

// Only reading the parts shows damage there.
func TestDeepVerifyReportsDamagedParts(t *testing.T) {
	l := smallLake(t)
	ref := mustBuild(t, l.store, l.batches, Options{})
	ctx := context.Background()
	parts := 0
	for info, err := range l.store.List(ctx, "urls/") {
		if err != nil {
			t.Fatal(err)
		}
		parts++
		good, _, err := l.store.Get(ctx, info.Key)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(good); i += 1 + len(good)/15 {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << (i % 8)
			put(t, l.store, info.Key, bad)
			if _, err := VerifySegment(ctx, l.store, ref, true, t.TempDir()); !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("flip of byte %d of %s: %v", i, info.Key, err)
			}
		}
		if err := l.store.Delete(ctx, info.Key); err != nil {
			t.Fatal(err)
		}
		if _, err := VerifySegment(ctx, l.store, ref, true, t.TempDir()); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%s is missing: %v", info.Key, err)
		}
		put(t, l.store, info.Key, good)
	}
	if parts == 0 {
		t.Fatal("no parts")
	}
	mustVerify(t, l.store, ref, true)
}

// A damaged or missing part is named once, nothing sound is accused, and the datasets without it are counted all the same.
func TestDeepVerifyNamesEachDamagedPartOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 13))
	l := &testLake{store: blob.NewMemory()}
	o := lakeOptions{rows: 60, domains: 12, limits: tinyParts}
	ctx := context.Background()
	l.addBatch(t, 1, "b", randomRows(rng, o), o)
	lying := l.writeBatch(t, 2, "b", randomRows(rng, o), o, func(task *ingest.MergedTask) lake.FrameObject {
		return lyingPostings(t, l.store, task, func(_ int, r *record) { r.totals.Size++; r.totals.HasSize = true })
	})
	for _, batches := range [][]BatchRef{l.batches, append(slices.Clone(l.batches), putBatch(t, l.store, lying))} {
		ref, err := BuildSegment(ctx, l.store, batches, Options{TempDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		for info, err := range l.store.List(ctx, "urls/dataset_id=1/") {
			if err != nil {
				t.Fatal(err)
			}
			good, _, err := l.store.Get(ctx, info.Key)
			if err != nil {
				t.Fatal(err)
			}
			bad := bytes.Clone(good)
			bad[len(bad)/2] ^= 2
			for _, how := range []func(){
				func() { put(t, l.store, info.Key, bad) },
				func() {
					if err := l.store.Delete(ctx, info.Key); err != nil {
						t.Fatal(err)
					}
				},
			} {
				how()
				report, err := VerifySegment(ctx, l.store, ref, true, t.TempDir())
				if !errors.Is(err, codec.ErrCorrupt) || report.Problems[0].Place != info.Key || !slices.Equal(report.Uncounted, []uint32{1}) {
					t.Fatalf("%v, %+v", err, report)
				}
				// Of the lying batch's entries one differs from its rows.
				if report.Found != int64(len(batches)) {
					t.Errorf("%d batches: %+v", len(batches), report.Problems)
				}
			}
			put(t, l.store, info.Key, good)
		}
	}
}

// Segments whose bytes are sound and whose contents are wrong: made from postings that lie.
func TestVerifyReportsWrongContents(t *testing.T) {
	type lie struct {
		deep   bool // only a recount can tell
		change func(n int, r *record)
	}
	for name, lie := range map[string]lie{
		"size":      {true, func(n int, r *record) { r.totals.Size++; r.totals.HasSize = true }},
		"first ts":  {true, func(n int, r *record) { r.totals.FirstTS--; r.totals.HasTS = true }},
		"a domain":  {true, func(n int, r *record) { r.key = append(r.key, 'x') }},
		"first row": {false, func(n int, r *record) { r.tuples[0].FirstRow++ }},
		"row group": {false, func(n int, r *record) { r.tuples[len(r.tuples)-1].RowGroup += 100 }},
		"rows":      {false, func(n int, r *record) { r.tuples[0].Rows++; r.totals.Rows++ }},
		"part": {false, func(n int, r *record) {
			r.tuples = r.tuples[:1]
			r.tuples[0].FileID = uint32(n % 2)
			r.tuples[0].Rows = r.totals.Rows
		}},
		"a tuple twice": {false, func(n int, r *record) { r.tuples = []segment.Tuple{{Rows: r.totals.Rows}} }},
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(12, 12))
			l := &testLake{store: blob.NewMemory()}
			o := lakeOptions{rows: 80, domains: 12, limits: tinyParts}
			ctx := context.Background()
			b := l.writeBatch(t, 1, "b", randomRows(rng, o), o, func(task *ingest.MergedTask) lake.FrameObject {
				return lyingPostings(t, l.store, task, lie.change)
			})
			ref, err := BuildSegment(ctx, l.store, []BatchRef{putBatch(t, l.store, b)}, Options{TempDir: t.TempDir()})
			if err != nil {
				if strings.Contains(err.Error(), "rows") {
					return // noticed when it was built
				}
				t.Fatal(err)
			}
			if report, err := VerifySegment(ctx, l.store, ref, false, t.TempDir()); lie.deep != (err == nil) || err != nil && !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("verify: %v, %+v", err, report.Problems)
			}
			if _, err := VerifySegment(ctx, l.store, ref, true, t.TempDir()); !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("deep verify: %v", err)
			}
		})
	}
}

// lyingPostings writes a postings object in which the record of the middle domain was changed.
func lyingPostings(tb testing.TB, store blob.Store, task *ingest.MergedTask, change func(int, *record)) lake.FrameObject {
	tb.Helper()
	ctx := context.Background()
	object, domains, err := extract(ctx, store, task, tb.TempDir(), 1<<20, nil)
	if err != nil {
		tb.Fatal(err)
	}
	r, err := openBatch(ctx, store, object)
	if err != nil {
		tb.Fatal(err)
	}
	files := make([]uint32, len(task.Parts))
	for i := range files {
		files[i] = uint32(i)
	}
	all, err := sourceRecords(&batchSource{r: r, files: files})
	if err != nil {
		tb.Fatal(err)
	}
	var buf bytes.Buffer
	w := newBatchWriter(&buf, task.DatasetID, task.Batch)
	for n := range all {
		rec := &all[n]
		if int64(n) == domains/2 {
			change(n, rec)
		}
		if err := w.domain(rec); err != nil {
			tb.Fatal(err)
		}
	}
	// The directory's sum is that of the parts.
	w.dir.rows = task.Rows
	for i := range task.Parts {
		blocks, err := r.pages(ctx, i)
		if err != nil {
			tb.Fatal(err)
		}
		if err := w.part(&task.Parts[i].Part, blocks); err != nil {
			tb.Fatal(err)
		}
	}
	ff, err := w.finish()
	if err != nil {
		tb.Fatal(err)
	}
	key := lake.PostingsKey(task.DatasetID, task.Batch, lake.Digest(buf.Bytes()))
	put(tb, store, key, buf.Bytes())
	return lake.NewFrameObject(key, ff)
}

// What cannot be read for other reasons is not called corrupt.
func TestVerifyTellsFailureFromDamage(t *testing.T) {
	l := smallLake(t)
	ref := mustBuild(t, l.store, l.batches, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := VerifySegment(ctx, l.store, ref, true, t.TempDir()); !errors.Is(err, context.Canceled) || errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("cancelled: %v", err)
	}
	faulty := blob.NewFaulty(l.store)
	faulty.CrashAfter(0)
	put := func() error { _, err := faulty.Put(context.Background(), "x", nil, blob.Condition{}); return err }
	if err := put(); !errors.Is(err, blob.ErrCrashed) {
		t.Fatal(err)
	}
	if _, err := VerifySegment(context.Background(), faulty, ref, true, t.TempDir()); !errors.Is(err, blob.ErrCrashed) || errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("store down: %v", err)
	}
}
