package repair

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
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
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/codec"
)

// Whatever is wrong with a batch's objects, the error names the batch; what is wrong with the store is no damage.
func TestDamagedBatchesAreNamed(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 21))
	ctx := context.Background()
	l := &indextest.Lake{Store: blob.NewMemory()}
	var sick *lake.Batch
	for dataset := uint32(1); dataset <= 3; dataset++ {
		o := indextest.Options{Rows: 200, Domains: 60, Width: 1, Tasks: 2, Limits: indextest.TinyParts}
		if b := l.AddBatch(t, dataset, "b", indextest.RandomRows(rng, o), o); dataset == 2 {
			sick = b
		}
	}
	ref := l.Batches[1]
	try := func(what string, deep bool) {
		t.Helper()
		_, err := indexbuild.BuildSegment(ctx, l.Store, l.Batches, indexbuild.Options{TempDir: t.TempDir()})
		var d *postings.DamageError
		if !errors.As(err, &d) || d.Batch != ref {
			t.Errorf("%s: build: %v", what, err)
		}
		for i, other := range l.Batches {
			_, err := indexbuild.CheckBatch(ctx, l.Store, other, true)
			if errors.As(err, &d) != (i == 1) || i != 1 && err != nil {
				t.Errorf("%s: check of %v: %v", what, other, err)
			}
			if _, err := indexbuild.CheckBatch(ctx, l.Store, other, false); i != 1 && err != nil || i == 1 && !deep && !errors.As(err, &d) {
				t.Errorf("%s: short check of %v: %v", what, other, err)
			}
		}
	}
	for _, key := range []string{ref.Key(), sick.Postings[0].Key, sick.Postings[1].Key} {
		good, _, err := l.Store.Get(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int{0, len(good) / 3, len(good) / 2, len(good) - 1} {
			bad := bytes.Clone(good)
			bad[at] ^= 0x10
			indextest.Put(t, l.Store, key, bad)
			try(fmt.Sprintf("%s with another byte %d", key, at), true)
		}
		indextest.Put(t, l.Store, key, good[:len(good)/2])
		try(key+" cut", true)
		if err := l.Store.Delete(ctx, key); err != nil {
			t.Fatal(err)
		}
		try(key+" missing", false)
		indextest.Put(t, l.Store, key, good)
	}
	mustBuild(t, l.Store, l.Batches, indexbuild.Options{})

	faulty := blobtest.NewFaulty(l.Store)
	faulty.CrashAfter(0)
	if _, err := faulty.Put(ctx, "x", nil, blob.Condition{}); !errors.Is(err, blobtest.ErrCrashed) {
		t.Fatal(err)
	}
	var d *postings.DamageError
	if _, err := indexbuild.CheckBatch(ctx, faulty, ref, true); !errors.Is(err, blobtest.ErrCrashed) || errors.As(err, &d) {
		t.Errorf("store down: %v", err)
	}
}

// Lost postings objects come back from the parts, byte by byte, however many of a batch are lost.
func TestLostPostingsAreRestored(t *testing.T) {
	rng := rand.New(rand.NewPCG(22, 22))
	ctx := context.Background()
	l := &indextest.Lake{Store: blob.NewMemory()}
	o := indextest.Options{Rows: 900, Domains: 300, Width: 1, Tasks: 4, Sizes: true, Limits: indextest.TinyParts}
	b := l.AddBatch(t, 1, "b", indextest.RandomRows(rng, o), o)
	ref := l.Batches[0]
	want := map[string][]byte{}
	for _, p := range b.Postings {
		data, _, err := l.Store.Get(ctx, p.Key)
		if err != nil {
			t.Fatal(err)
		}
		want[p.Key] = data
	}
	for _, lost := range [][]int{{}, {0}, {2}, {3}, {1, 2}, {0, 3}, {0, 1, 2, 3}} {
		for n, i := range lost {
			key := b.Postings[i].Key
			if n%2 == 0 {
				if err := l.Store.Delete(ctx, key); err != nil {
					t.Fatal(err)
				}
			} else {
				indextest.Put(t, l.Store, key, want[key][1:])
			}
		}
		n, err := RestorePostings(ctx, l.Store, ref, t.TempDir())
		if err != nil || n != len(lost) {
			t.Fatalf("lost %v: %d, %v", lost, n, err)
		}
		for key, data := range want {
			if got, _, err := l.Store.Get(ctx, key); err != nil || !bytes.Equal(got, data) {
				t.Errorf("lost %v: %s: %v", lost, key, err)
			}
		}
	}

	// A part that is lost too is named, and nothing is written.
	key := b.Postings[0].Key
	if err := l.Store.Delete(ctx, key, b.Parts[0].Key); err != nil {
		t.Fatal(err)
	}
	if _, err := RestorePostings(ctx, l.Store, ref, t.TempDir()); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("without a part: %v", err)
	}
	if _, err := l.Store.Stat(ctx, key); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("without a part: %v", err)
	}
}

// A damaged segment is made whole, file by file, and readers of the sound ones notice nothing.
func TestDamagedSegmentsAreRebuilt(t *testing.T) {
	ctx := context.Background()
	for name, store := range map[string]blob.Store{"memory": blob.NewMemory(), "files": localStore(t)} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(23, 23))
			l := &indextest.Lake{Store: store}
			var batches []*lake.Batch
			for dataset := uint32(1); dataset <= 2; dataset++ {
				o := indextest.Options{Rows: 200, Domains: 60, Times: true, Limits: indextest.TinyParts}
				batches = append(batches, l.AddBatch(t, dataset, "b", indextest.RandomRows(rng, o), o))
			}
			ref := mustBuild(t, store, l.Batches, indexbuild.Options{})
			want := indextest.SegmentObjects(t, store, ref.ID)
			rebuild := func(what string, files ...string) {
				t.Helper()
				counting := blob.NewCounting(store)
				out, err := RebuildSegment(ctx, counting, ref, l.Batches, t.TempDir())
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				slices.Sort(out.Files)
				if d := cmp.Diff(files, out.Files); d != "" {
					t.Errorf("%s: files written: %s", what, d)
				}
				size := int64(0)
				for _, f := range files {
					size += int64(len(want[segment.Prefix(ref.ID)+f]))
				}
				if got := counting.Writes().Bytes; out.Postings == 0 && got != size {
					t.Errorf("%s: %d bytes written, want %d", what, got, size)
				}
				if d := cmp.Diff(want, indextest.SegmentObjects(t, store, ref.ID)); d != "" {
					t.Errorf("%s: %s", what, d)
				}
			}
			rebuild("nothing is wrong")
			for key, good := range want {
				file := key[len(segment.Prefix(ref.ID)):]
				bad := bytes.Clone(good)
				bad[len(bad)/2] ^= 1
				indextest.Put(t, store, key, bad)
				rebuild(key+" damaged", file)
				indextest.Put(t, store, key, good[:len(good)-1])
				rebuild(key+" cut", file)
				if err := store.Delete(ctx, key); err != nil {
					t.Fatal(err)
				}
				rebuild(key+" missing", file)
			}
			// Several at once, each of which is told.
			mphf, idx := segment.Prefix(ref.ID)+segment.MPHFName, segment.Prefix(ref.ID)+segment.PartsName
			bad := bytes.Clone(want[mphf])
			copy(bad[70:], "xxxx")
			indextest.Put(t, store, mphf, bad)
			if err := store.Delete(ctx, idx); err != nil {
				t.Fatal(err)
			}
			report, err := verify.Segment(ctx, store, ref, false, t.TempDir())
			var told []string
			for _, p := range report.Problems {
				told = append(told, p.Place)
			}
			slices.Sort(told)
			if d := cmp.Diff([]string{mphf, idx}, told); d != "" || !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("two files: %v, %s", err, d)
			}
			rebuild("two files", segment.MPHFName, segment.PartsName)
			// With postings gone too.
			if err := store.Delete(ctx, batches[0].Postings[0].Key, segment.Prefix(ref.ID)+segment.MPHFName); err != nil {
				t.Fatal(err)
			}
			rebuild("postings are missing too", segment.MPHFName)
			l.Compare(t, ref)

			// What would come out otherwise is not written.
			indextest.Put(t, store, segment.Prefix(ref.ID)+segment.MPHFName, []byte("damaged"))
			other := ref
			other.XXH64 = "0123456789abcdef"
			if _, err := RebuildSegment(ctx, store, other, l.Batches, t.TempDir()); err == nil {
				t.Error("another segment: no error")
			}
			if got := indextest.SegmentObjects(t, store, ref.ID)[segment.Prefix(ref.ID)+segment.MPHFName]; string(got) != "damaged" {
				t.Error("another segment was written")
			}
		})
	}
}

func localStore(tb testing.TB) blob.Store {
	tb.Helper()
	s, err := blob.NewLocal(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// A problem is one line that names the object once, and is told once.
func TestProblemsAreToldOnce(t *testing.T) {
	l := indextest.SmallLake(t)
	ref := mustBuild(t, l.Store, l.Batches, indexbuild.Options{})
	ctx := context.Background()
	for key, good := range indextest.SegmentObjects(t, l.Store, ref.ID) {
		for i := 0; i < len(good); i += 1 + len(good)/40 {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << (i % 8)
			indextest.Put(t, l.Store, key, bad)
			report, err := verify.Segment(ctx, l.Store, ref, false, t.TempDir())
			if !errors.Is(err, codec.ErrCorrupt) || report.Found != 1 {
				t.Errorf("byte %d of %s: %d problems: %v", i, key, report.Found, report.Problems)
			}
			for _, p := range report.Problems {
				if p.Place != key || bytes.Count([]byte(p.Text), []byte(key)) != 1 || bytes.ContainsAny([]byte(p.Text), "{}\n") {
					t.Errorf("byte %d of %s: %+v", i, key, p)
				}
			}
		}
		indextest.Put(t, l.Store, key, good)
	}
}

func mustBuild(tb testing.TB, store blob.Store, batches []postings.BatchRef, opt indexbuild.Options) postings.SegmentRef {
	tb.Helper()
	if opt.TempDir == "" {
		opt.TempDir = tb.TempDir()
	}
	ref, err := indexbuild.BuildSegment(context.Background(), store, batches, opt)
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
