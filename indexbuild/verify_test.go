package indexbuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
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
		return lyingPostings(t, l.store, task, func(n, _ int, d *namedTotals) {
			if n == 0 {
				d.totals.Size++
				d.totals.HasSize = true
			}
		})
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

// Segments whose bytes are sound and whose contents are wrong: made from postings that lie. Only a recount can tell.
func TestVerifyReportsWrongContents(t *testing.T) {
	for name, change := range map[string]func(n int, d *namedTotals){
		"size":     func(_ int, d *namedTotals) { d.totals.Size++; d.totals.HasSize = true },
		"first ts": func(_ int, d *namedTotals) { d.totals.FirstTS--; d.totals.HasTS = true },
		"a domain": func(_ int, d *namedTotals) { d.name += "x" },
	} {
		t.Run(name, func(t *testing.T) {
			l, b := lyingBatch(t, func(n, domains int, d *namedTotals) {
				if n == domains/2 {
					change(n, d)
				}
			})
			verifyLie(t, l, mustBuild(t, l.store, []BatchRef{putBatch(t, l.store, b)}, Options{}), true)
		})
	}
	t.Run("a row of the next domain", func(t *testing.T) {
		moved := int64(0)
		l, b := lyingBatch(t, func(n, domains int, d *namedTotals) {
			switch {
			case n >= domains/2 && moved == 0 && d.totals.Rows > 1:
				d.totals.Rows--
				moved++
			case moved == 1:
				d.totals.Rows++
				moved++
			}
		})
		verifyLie(t, l, mustBuild(t, l.store, []BatchRef{putBatch(t, l.store, b)}, Options{}), true)
	})
}

// Segments whose tuples are not where rows are. No postings object says so: the build is lied to in the middle.
func TestVerifyReportsWrongPlaces(t *testing.T) {
	for name, change := range map[string]func(o *postingsObject){
		"another end of a row group": func(o *postingsObject) {
			g := o.reader.parts[0].groups
			g[0]++
			g[1]--
		},
		"a row group that is not there": func(o *postingsObject) {
			p := &o.reader.parts[0]
			n := len(p.groups) - 1
			p.groups = append(p.groups[:n:n], p.groups[n]-1, 1)
		},
		"one row group": func(o *postingsObject) {
			p := &o.reader.parts[0]
			p.groups = []int64{p.rows}
		},
		"a part twice": func(o *postingsObject) { o.files[0] = o.files[1] },
	} {
		t.Run(name, func(t *testing.T) {
			l, b := lyingBatch(t, func(int, int, *namedTotals) {})
			build := &build{ctx: context.Background(), store: l.store, batches: []BatchRef{putBatch(t, l.store, b)}, opt: Options{TempDir: t.TempDir(), Memory: 1 << 20}, keyOf: urlKey}
			defer build.close()
			if err := build.readBatches(); err != nil {
				t.Fatal(err)
			}
			build.out = segment.NewWriter(build.ctx, l.store, build.batches)
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
func verifyLie(t *testing.T, l *testLake, ref SegmentRef, deep bool) {
	t.Helper()
	ctx := context.Background()
	if report, err := VerifySegment(ctx, l.store, ref, false, t.TempDir()); deep != (err == nil) || err != nil && !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("verify: %v, %+v", err, report.Problems)
	}
	if _, err := VerifySegment(ctx, l.store, ref, true, t.TempDir()); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("deep verify: %v", err)
	}
}

// lyingBatch writes a batch of several parts and row groups whose postings were changed.
func lyingBatch(t *testing.T, change func(n, domains int, d *namedTotals)) (*testLake, *lake.Batch) {
	rng := rand.New(rand.NewPCG(12, 12))
	l := &testLake{store: blob.NewMemory()}
	o := lakeOptions{rows: 80, domains: 12, limits: tinyParts}
	return l, l.writeBatch(t, 1, "b", randomRows(rng, o), o, func(task *ingest.MergedTask) lake.FrameObject {
		return lyingPostings(t, l.store, task, change)
	})
}

// lyingPostings writes a postings object in which what it says of domains was changed.
func lyingPostings(tb testing.TB, store blob.Store, task *ingest.MergedTask, change func(n, domains int, d *namedTotals)) lake.FrameObject {
	tb.Helper()
	ctx := context.Background()
	object, _, err := extract(ctx, store, task, tb.TempDir(), nil)
	if err != nil {
		tb.Fatal(err)
	}
	r, err := openBatch(ctx, store, object)
	if err != nil {
		tb.Fatal(err)
	}
	o := &postingsObject{reader: r, files: make([]uint32, len(task.Parts))}
	var buf bytes.Buffer
	w := newBatchWriter(&buf, task.DatasetID, task.Batch)
	n := 0
	for i := range task.Parts {
		all, err := sourceRecords(newBatchSource(o, i))
		if err != nil {
			tb.Fatal(err)
		}
		for _, rec := range all {
			d := namedTotals{string(rec.key), rec.totals}
			change(n, int(r.domains()), &d)
			n++
			if err := w.domain([]byte(d.name), &d.totals); err != nil {
				tb.Fatal(err)
			}
		}
		blocks, err := r.pages(ctx, i)
		if err != nil {
			tb.Fatal(err)
		}
		w.open.rows = task.Parts[i].Part.Rows
		if err := w.part(&task.Parts[i].Part, r.parts[i].groups, blocks); err != nil {
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
	faulty := blobtest.NewFaulty(l.store)
	faulty.CrashAfter(0)
	put := func() error { _, err := faulty.Put(context.Background(), "x", nil, blob.Condition{}); return err }
	if err := put(); !errors.Is(err, blobtest.ErrCrashed) {
		t.Fatal(err)
	}
	if _, err := VerifySegment(context.Background(), faulty, ref, true, t.TempDir()); !errors.Is(err, blobtest.ErrCrashed) || errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("store down: %v", err)
	}
}

// Runs of plain blocks, handed over in columns, hold what their entries do.
func TestPlainBlocksAreTheEntries(t *testing.T) {
	for _, totals := range []bool{false, true} {
		blocks, others := readBothWays(t, totals)
		if (blocks > 10) == totals || (others > 0) != totals {
			t.Errorf("sizes and ts %v: %d plain blocks, %d runs with others", totals, blocks, others)
		}
	}
}

// readBothWays reads a segment and holds plain blocks, of which it returns the number, against entries. Others is the number of runs that have any.
func readBothWays(t *testing.T, totals bool) (blocks, others int) {
	ctx := context.Background()
	store := blob.NewMemory()
	ref := mustBuild(t, store, syntheticLake(t, store, 60_000, 6, 100_000, totals), Options{})
	s, err := segment.Open(ctx, store, ref, segment.Options{CacheDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, r := range s.PostingsRuns(0) {
		for lo := r[0]; lo < r[1]; lo += 3 {
			hi := min(lo+3, r[1])
			var run, columns segment.PostingsRun
			if err := s.ReadPostings(ctx, 0, lo, hi, &run, nil); err != nil {
				t.Fatal(err)
			}
			var got []segment.Entry
			if err := s.ReadPostings(ctx, 0, lo, hi, &columns, func(b *segment.PlainBlock) {
				blocks++
				domain, starts := 0, b.Starts(nil)
				for i, place := range b.Places {
					if i == int(starts[domain+1]) {
						domain++
					}
					got = append(got, segment.Entry{Key: b.Keys[domain], Dataset: b.Datasets[place], Totals: segment.Totals{Rows: b.Rows[i]}, Inline: true,
						First: segment.Tuple{FileID: b.FileIDs[place], RowGroup: uint32(b.Groups[i]), FirstRow: b.Firsts[i], Rows: b.Rows[i]}})
				}
			}); err != nil {
				t.Fatal(err)
			}
			if len(columns.Entries) > 0 {
				others++
				got = columns.Entries
			}
			if !slices.Equal(got, run.Entries) {
				t.Fatalf("frames %d to %d: %d entries in columns, %d else, and others", lo, hi, len(got), len(run.Entries))
			}
			var end, endColumns segment.PostingsEnd
			if err := errors.Join(s.Follow(0, &run, &end), s.Follow(0, &columns, &endColumns)); err != nil && lo == 0 {
				t.Fatal(err)
			}
			if end != endColumns {
				t.Errorf("frames %d to %d end at %+v, in columns at %+v", lo, hi, end, endColumns)
			}
		}
	}
	return blocks, others
}

// What verifying sums up of plain blocks is what it does of their entries, sound or not.
func TestPlainBlocksAreCountedAsTheirEntries(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		v := &verifier{ctx: context.Background(), info: &segment.Info{}}
		number := 0
		for range 4 {
			var groups []rowGroup
			for range rng.IntN(3) {
				groups = append(groups, rowGroup{rows: 1 + rng.Int64N(50), number: number})
				number++
			}
			v.groups = append(v.groups, groups)
		}
		v.partial.pages = rng.IntN(10) == 0
		var want, got postingsRange
		var run segment.PostingsRun
		var p plainRange
		tiles, tilesPlain := make([]tiled, number), make([]tiled, number)
		id := uint64(0)
		for range 1 + rng.IntN(3) {
			b := segment.PlainBlock{FileIDs: []uint32{0, 1, 3, 9}, Datasets: []uint32{1, 1, 2, 3}}
			for range 1 + rng.IntN(6) {
				id += rng.Uint64N(2)
				k, place := segment.Key{ID: id, Check: 7}, rng.IntN(4)
				tuple := segment.Tuple{FileID: b.FileIDs[place], RowGroup: uint32(rng.IntN(3)), FirstRow: rng.Int64N(40), Rows: 1 + rng.Int64N(20)}
				b.Keys = append(b.Keys, k)
				b.Places, b.Rows = append(b.Places, int64(place)), append(b.Rows, tuple.Rows)
				b.Groups, b.Firsts = append(b.Groups, int64(tuple.RowGroup)), append(b.Firsts, tuple.FirstRow)
				run.Entries = append(run.Entries, segment.Entry{Key: k, Dataset: b.Datasets[place], Totals: segment.Totals{Rows: tuple.Rows}, First: tuple, Inline: true})
			}
			v.plainBlock(&got, &p, &b, 0, tilesPlain)
		}
		got.endRange(p.open)
		want.run = &run
		if err := v.postingsRange(v.ctx, &want, 0, nil, tiles); err != nil {
			t.Fatal(err)
		}
		want.run = nil
		if !reflect.DeepEqual(want, got) || !slices.Equal(tiles, tilesPlain) {
			t.Fatalf("of blocks %+v %v, of entries %+v %v", got, tilesPlain, want, tiles)
		}
	}
}
