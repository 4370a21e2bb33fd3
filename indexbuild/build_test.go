package indexbuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/verify"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/urlnorm"
)

func mustBuild(tb testing.TB, store blob.Store, batches []segment.BatchRef, opt Options) segment.Ref {
	tb.Helper()
	if opt.TempDir == "" {
		opt.TempDir = tb.TempDir()
	}
	ref, err := BuildSegment(context.Background(), store, batches, opt)
	if err != nil {
		tb.Fatal(err)
	}
	left, err := os.ReadDir(opt.TempDir)
	if err != nil {
		tb.Fatal(err)
	}
	if len(left) > 0 {
		tb.Errorf("temporary files left: %v", left)
	}
	return ref
}

func mustVerify(tb testing.TB, store blob.Store, ref segment.Ref, deep bool) verify.Report {
	tb.Helper()
	report, err := verify.Segment(context.Background(), store, ref, deep, tb.TempDir())
	if err != nil {
		tb.Fatalf("%v\n%+v", err, report.Problems)
	}
	return report
}

// A segment answers what a scan over the rows does.
func TestSegmentsAnswerLikeAScan(t *testing.T) {
	for seed := range uint64(6) {
		limits := indextest.TinyParts
		if seed%3 == 0 {
			limits = part.Limits{}
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			l := indextest.RandomLake(t, seed, limits)
			ref := mustBuild(t, l.Store, l.Batches, Options{})
			l.CompareSegment(t, ref)
			report := mustVerify(t, l.Store, ref, true)
			rows := int64(0)
			for _, r := range l.Rows {
				rows += int64(len(r))
			}
			if report.Rows != rows || report.PartRows != rows || ref.Rows != rows ||
				report.Bytes != ref.Bytes || report.Domains != ref.Domains {
				t.Errorf("%d rows, report %+v, reference %+v", rows, report, ref)
			}
		})
	}
}

// A segment depends on its batches alone, not on their order, the memory or the number of
// processors.
func TestBuildIsDeterministic(t *testing.T) {
	l := indextest.RandomLake(t, 42, indextest.TinyParts)
	// There are more lists than are merged at once.
	rng := rand.New(rand.NewPCG(9, 9))
	for i := range maxWidth {
		o := indextest.Options{Rows: 1 + rng.IntN(4), Domains: 30}
		l.AddBatch(t, 5, fmt.Sprintf("b%04d", i), indextest.RandomRows(rng, o), o)
	}
	ref := mustBuild(t, l.Store, l.Batches, Options{})
	want := indextest.SegmentObjects(t, l.Store, ref.ID)
	l.CompareSegment(t, ref)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for i, memory := range []int{1, 5000, 1 << 20} {
		runtime.GOMAXPROCS([]int{1, 3, 7}[i])
		for key := range want {
			if err := l.Store.Delete(context.Background(), key); err != nil {
				t.Fatal(err)
			}
		}
		shuffled := slices.Clone(l.Batches)
		rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		again := mustBuild(t, l.Store, shuffled, Options{Memory: memory})
		if again != ref {
			t.Errorf("memory %d: reference %+v, want %+v", memory, again, ref)
		}
		got := indextest.SegmentObjects(t, l.Store, ref.ID)
		for key := range want {
			if !bytes.Equal(got[key], want[key]) {
				t.Errorf("memory %d: %s differs", memory, key)
			}
		}
	}
}

// A segment that exists is found by its batches. A second build mends what is damaged.
func TestBuildAgain(t *testing.T) {
	l := indextest.RandomLake(t, 1, part.Limits{})
	ref := mustBuild(t, l.Store, l.Batches, Options{})
	want := indextest.SegmentObjects(t, l.Store, ref.ID)
	if found, ok, err := FindSegment(t.Context(), l.Store, l.Batches, Options{}); err != nil || !ok || found != ref {
		t.Errorf("found %+v, %v, %v; want %+v", found, ok, err, ref)
	}
	for key := range want {
		indextest.Put(t, l.Store, key, []byte("damaged"))
	}
	if again := mustBuild(t, l.Store, l.Batches, Options{}); again != ref {
		t.Errorf("reference %+v, want %+v", again, ref)
	}
	if d := cmp.Diff(want, indextest.SegmentObjects(t, l.Store, ref.ID)); d != "" {
		t.Error(d)
	}
}

// TestBytesOfASegment holds that all builds of one generation write the same bytes: segment ids
// have only the generation and the versions of modules. If the bytes of a segment have changed,
// raise segment's generation, unless go.mod or this test's input changed them, and record the new
// digest.
func TestBytesOfASegment(t *testing.T) {
	l := indextest.RandomLake(t, 1, part.Limits{})
	ref := mustBuild(t, l.Store, l.Batches, Options{Builder: "0123456789abcdef"})
	objects := indextest.SegmentObjects(t, l.Store, ref.ID)
	var all []byte
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		all = append(all, key...)
		all = append(all, objects[key]...)
	}
	const recorded = "34b5b376de27b1ba2e525fec40c0fae2"
	if got := lake.Digest(all); got != recorded {
		t.Errorf("the digest of the segment is %s, recorded is %s", got, recorded)
	}
}

// Another build of urlake writes its segment to other keys, which do not touch the first one's.
func TestOtherBuildHasItsOwnKeys(t *testing.T) {
	l := indextest.RandomLake(t, 1, part.Limits{})
	ref := mustBuild(t, l.Store, l.Batches, Options{})
	for _, other := range []segment.Builder{segment.Unnamed, "0123456789abcdef"} {
		if got := mustBuild(t, l.Store, l.Batches, Options{Builder: other}); got.ID == ref.ID {
			t.Errorf("build %q made %s too", other, ref.ID)
		}
	}
}

// After a crash at any point there is no segment or a complete one, and the next build completes
// it.
func TestBuildCrashes(t *testing.T) {
	l := indextest.RandomLake(t, 2, indextest.TinyParts)
	ctx := context.Background()
	complete := mustBuild(t, l.Store, l.Batches, Options{})
	want := indextest.SegmentObjects(t, l.Store, complete.ID)
	for key := range want {
		if err := l.Store.Delete(ctx, key); err != nil {
			t.Fatal(err)
		}
	}
	for n := 0; ; n += testenv.Every(4) {
		faulty := blobtest.NewFaulty(l.Store)
		faulty.CrashAfter(n)
		_, err := BuildSegment(ctx, faulty, l.Batches, Options{TempDir: t.TempDir()})
		if err == nil {
			if n < len(want) {
				t.Errorf("a build with %d changes, want at least %d", n, len(want))
			}
			break
		}
		if !errors.Is(err, blobtest.ErrCrashed) {
			t.Fatalf("crash after %d changes: %v", n, err)
		}
		if _, ok, err := FindSegment(ctx, l.Store, l.Batches, Options{}); ok || err != nil {
			t.Fatalf("after a crash at change %d: found %v, %v", n, ok, err)
		}
		if n%3 != 0 {
			continue // the next build finds what this one has left
		}
		for key := range indextest.SegmentObjects(t, l.Store, complete.ID) {
			if err := l.Store.Delete(ctx, key); err != nil {
				t.Fatal(err)
			}
		}
	}
	if d := cmp.Diff(want, indextest.SegmentObjects(t, l.Store, complete.ID)); d != "" {
		t.Error(d)
	}
}

// Concurrent builds of a segment write the same bytes.
func TestConcurrentBuilds(t *testing.T) {
	l := indextest.RandomLake(t, 3, indextest.TinyParts)
	refs := make([]segment.Ref, 4)
	var wg sync.WaitGroup
	for i := range refs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var err error
			refs[i], err = BuildSegment(context.Background(), l.Store, l.Batches, Options{TempDir: t.TempDir()})
			if err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	for _, ref := range refs {
		if ref != refs[0] {
			t.Errorf("references %+v and %+v", ref, refs[0])
		}
	}
	mustVerify(t, l.Store, refs[0], true)
}

// Two domains with the same key are an error that has their names.
func TestCollision(t *testing.T) {
	l := indextest.RandomLake(t, 4, indextest.TinyParts)
	names := slices.Sorted(func(yield func(string) bool) {
		for d := range l.Totals() {
			if !yield(d) {
				return
			}
		}
	})
	a, b := names[2], names[len(names)-3]
	keyOf := func(d []byte) segment.Key {
		if string(d) == a {
			return postings.DomainKey([]byte(b))
		}
		return postings.DomainKey(d)
	}
	opt := Options{TempDir: t.TempDir(), Memory: 1 << 20, KeyOf: keyOf}
	_, err := BuildSegment(context.Background(), l.Store, l.Batches, opt)
	var c *CollisionError
	if !errors.As(err, &c) || c.Domains != [2]string{a, b} || c.Key != segment.KeyOf(b) {
		t.Fatalf("%q and %q have the same key: %v", a, b, err)
	}
	for i, domain := range c.Domains {
		var datasets []uint32
		for _, ref := range c.Batches[i] {
			datasets = append(datasets, ref.DatasetID)
		}
		want := slices.Sorted(maps.Keys(l.Totals()[domain]))
		if d := cmp.Diff(want, slices.Compact(datasets)); d != "" || len(want) == 0 {
			t.Errorf("datasets with %q: %s", domain, d)
		}
	}
}

// Batches that do not fit together, or whose objects contradict each other, are rejected.
func TestBuildRejects(t *testing.T) {
	l := indextest.RandomLake(t, 5, indextest.TinyParts)
	ctx := context.Background()
	build := func(refs ...segment.BatchRef) error {
		_, err := BuildSegment(ctx, l.Store, refs, Options{TempDir: t.TempDir()})
		return err
	}
	if err := build(); err == nil {
		t.Error("no batches: no error")
	}
	if err := build(l.Batches[0], l.Batches[0]); err == nil {
		t.Error("a batch twice: no error")
	}
	absent := l.Batches[0]
	absent.Digest = lake.Digest([]byte("absent"))
	if err := build(absent); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("an absent batch: %v", err)
	}

	read := func(ref segment.BatchRef) *lake.Batch {
		data, _, err := l.Store.Get(ctx, ref.Key())
		if err != nil {
			t.Fatal(err)
		}
		b, err := lake.DecodeBatch(data, ref.Key())
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	other := read(l.Batches[0])
	other.CanonicalForm = "another"
	refs := append([]segment.BatchRef{indextest.PutBatch(t, l.Store, other)}, l.Batches[1:]...)
	if err := build(refs...); err == nil || !strings.Contains(err.Error(), "another") {
		t.Errorf("batches of two canonical forms: %v", err)
	}
	for name, change := range map[string]func(b *lake.Batch){
		"a part without postings":          func(b *lake.Batch) { b.Postings = b.Postings[1:] },
		"postings of another part":         func(b *lake.Batch) { b.Parts = b.Parts[1:] },
		"a part twice":                     func(b *lake.Batch) { b.Parts = append(b.Parts, b.Parts[0]) },
		"postings twice":                   func(b *lake.Batch) { b.Postings = append(b.Postings, b.Postings[0]) },
		"a part of another size":           func(b *lake.Batch) { b.Parts[0].Bytes++ },
		"a part of more rows":              func(b *lake.Batch) { b.Parts[0].Rows++ },
		"postings with another footer":     func(b *lake.Batch) { b.Postings[0].FooterXXH64 = "0123456789abcdef" },
		"postings with too large a footer": func(b *lake.Batch) { b.Postings[0].FooterBytes = b.Postings[0].Bytes + 1 },
		"the postings of another batch":    func(b *lake.Batch) { b.Postings = read(l.Batches[len(l.Batches)-1]).Postings },
	} {
		b := read(l.Batches[0])
		change(b)
		if err := build(indextest.PutBatch(t, l.Store, b)); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Damaged postings never become a segment.
func TestDamagedPostings(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	l := &indextest.Lake{Store: blob.NewMemory()}
	o := indextest.Options{Rows: 60, Domains: 20, Limits: indextest.TinyParts, Sizes: true, Times: true}
	b := l.AddBatch(t, 1, "b", indextest.RandomRows(rng, o), o)
	ctx := context.Background()
	want := mustBuild(t, l.Store, l.Batches, Options{})
	good, _, err := l.Store.Get(ctx, b.Postings[0].Key)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, data []byte) {
		t.Helper()
		for key := range indextest.SegmentObjects(t, l.Store, want.ID) {
			if err := l.Store.Delete(ctx, key); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.Store.Put(ctx, b.Postings[0].Key, data, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		ref, err := BuildSegment(ctx, l.Store, l.Batches, Options{TempDir: t.TempDir()})
		if err == nil && ref != want ||
			err != nil && !errors.Is(err, codec.ErrCorrupt) && !errors.Is(err, blob.ErrRange) {
			t.Errorf("%s: %+v, %v", what, ref, err)
		}
	}
	for i := range good {
		if i%7 == 0 {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << (i % 8)
			try(fmt.Sprintf("flip of byte %d", i), bad)
		}
		if i%31 == 0 {
			try(fmt.Sprintf("truncated to %d bytes", i), good[:i])
		}
	}
}

// All steps of an ingest lead from text files to a segment.
func TestSegmentOfAnIngest(t *testing.T) {
	ctx := context.Background()
	store := blob.NewMemory()
	dir := t.TempDir()
	want := map[string]int64{}
	rng := rand.New(rand.NewPCG(8, 8))
	for f := range 3 {
		var text strings.Builder
		for range 300 {
			sub := []string{"www", "a", "b.c"}[rng.IntN(3)]
			fmt.Fprintf(&text, "https://%s.site%d.co.uk/%d?q=%d\n", sub, rng.IntN(40), rng.IntN(1000), f)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.txt", f)), []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for line := range strings.Lines(text.String()) {
			u, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), strings.TrimSpace(line))
			if err != nil {
				t.Fatal(err)
			}
			if !seen[line] {
				seen[line] = true
				want[u.Domain]++
			}
		}
	}
	const run = "run"
	plan, err := ingest.MakePlan(ctx, store, run, ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range plan.Splits {
		if _, err := ingest.Normalize(ctx, store, run, i, nil); err != nil {
			t.Fatal(err)
		}
	}
	merge, err := ingest.PlanMerge(ctx, store, run)
	if err != nil {
		t.Fatal(err)
	}
	for i := range merge.Tasks {
		if _, err := ingest.Merge(ctx, store, run, i, t.TempDir(), postings.Collect(t.TempDir()), nil); err != nil {
			t.Fatal(err)
		}
	}
	done, err := ingest.Finish(ctx, store, run)
	if err != nil {
		t.Fatal(err)
	}
	batch := segment.BatchRef{DatasetID: plan.DatasetID, Batch: plan.Batch, Digest: done.Digest}
	ref := mustBuild(t, store, []segment.BatchRef{batch}, Options{})
	mustVerify(t, store, ref, true)
	s, err := segment.Open(ctx, store, ref, segment.Options{CacheDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got := map[string]int64{}
	for d, err := range s.Domains(ctx, 0) {
		if err != nil {
			t.Fatal(err)
		}
		e, ok, err := s.Entry(ctx, segment.KeyOf(d), plan.DatasetID)
		if err != nil || !ok {
			t.Fatalf("%s: %v, %v", d, ok, err)
		}
		got[d] = e.Rows
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// A deep check is not needed to find tuples that do not locate the rows of their part. No postings
// object can say that, so the builder is changed between its steps.
func TestVerifyReportsWrongTuples(t *testing.T) {
	for name, change := range map[string]func(o *object){
		"another end of a row group": func(o *object) {
			g := o.Parts()[0].Groups
			g[0]++
			g[1]--
		},
		"a row group that does not exist": func(o *object) {
			p := &o.Parts()[0]
			n := len(p.Groups) - 1
			p.Groups = append(p.Groups[:n:n], p.Groups[n]-1, 1)
		},
		"one row group": func(o *object) {
			p := &o.Parts()[0]
			p.Groups = []int64{p.Rows}
		},
		"a part twice": func(o *object) { o.files[0] = o.files[1] },
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			rng := rand.New(rand.NewPCG(12, 12))
			l := &indextest.Lake{Store: blob.NewMemory()}
			o := indextest.Options{Rows: 80, Domains: 12, Limits: indextest.TinyParts}
			l.AddBatch(t, 1, "b", indextest.RandomRows(rng, o), o)
			b := &build{
				ctx: ctx, store: l.Store, batches: l.Batches, opt: Options{TempDir: t.TempDir()},
				keyOf: postings.DomainKey,
			}
			defer b.close()
			if err := b.readBatches(); err != nil {
				t.Fatal(err)
			}
			b.out = segment.NewWriter(b.ctx, l.Store, b.batches, "")
			if err := errors.Join(b.writeFiles(), b.writeParts()); err != nil {
				t.Fatal(err)
			}
			change(&b.objects[0])
			if err := b.writeDomains(); err != nil {
				t.Fatal(err)
			}
			ref, err := b.out.Finish(b.info)
			if err != nil {
				t.Fatal(err)
			}
			for _, deep := range []bool{false, true} {
				if _, err := verify.Segment(ctx, l.Store, ref, deep, t.TempDir()); !errors.Is(err, codec.ErrCorrupt) {
					t.Errorf("deep %v: %v", deep, err)
				}
			}
		})
	}
}
