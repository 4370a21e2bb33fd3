package indexbuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/codec"
)

// Whatever is wrong with a batch's objects, the error names the batch; what is wrong with the store is no damage.
func TestDamagedBatchesAreNamed(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 21))
	ctx := context.Background()
	l := &testLake{store: blob.NewMemory()}
	var sick *lake.Batch
	for dataset := uint32(1); dataset <= 3; dataset++ {
		o := lakeOptions{rows: 200, domains: 60, width: 1, tasks: 2, limits: tinyParts}
		if b := l.addBatch(t, dataset, "b", randomRows(rng, o), o); dataset == 2 {
			sick = b
		}
	}
	ref := l.batches[1]
	try := func(what string, deep bool) {
		t.Helper()
		_, err := BuildSegment(ctx, l.store, l.batches, Options{TempDir: t.TempDir()})
		var d *DamageError
		if !errors.As(err, &d) || d.Batch != ref {
			t.Errorf("%s: build: %v", what, err)
		}
		for i, other := range l.batches {
			_, err := CheckBatch(ctx, l.store, other, true)
			if errors.As(err, &d) != (i == 1) || i != 1 && err != nil {
				t.Errorf("%s: check of %v: %v", what, other, err)
			}
			if _, err := CheckBatch(ctx, l.store, other, false); i != 1 && err != nil || i == 1 && !deep && !errors.As(err, &d) {
				t.Errorf("%s: short check of %v: %v", what, other, err)
			}
		}
	}
	for _, key := range []string{ref.Key(), sick.Postings[0].Key, sick.Postings[1].Key} {
		good, _, err := l.store.Get(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int{0, len(good) / 3, len(good) / 2, len(good) - 1} {
			bad := bytes.Clone(good)
			bad[at] ^= 0x10
			put(t, l.store, key, bad)
			try(fmt.Sprintf("%s with another byte %d", key, at), true)
		}
		put(t, l.store, key, good[:len(good)/2])
		try(key+" cut", true)
		if err := l.store.Delete(ctx, key); err != nil {
			t.Fatal(err)
		}
		try(key+" missing", false)
		put(t, l.store, key, good)
	}
	mustBuild(t, l.store, l.batches, Options{})

	faulty := blobtest.NewFaulty(l.store)
	faulty.CrashAfter(0)
	if _, err := faulty.Put(ctx, "x", nil, blob.Condition{}); !errors.Is(err, blobtest.ErrCrashed) {
		t.Fatal(err)
	}
	var d *DamageError
	if _, err := CheckBatch(ctx, faulty, ref, true); !errors.Is(err, blobtest.ErrCrashed) || errors.As(err, &d) {
		t.Errorf("store down: %v", err)
	}
}

// Lost postings objects come back from the parts, byte by byte, however many of a batch are lost.
func TestLostPostingsAreRestored(t *testing.T) {
	rng := rand.New(rand.NewPCG(22, 22))
	ctx := context.Background()
	l := &testLake{store: blob.NewMemory()}
	o := lakeOptions{rows: 900, domains: 300, width: 1, tasks: 4, sizes: true, limits: tinyParts}
	b := l.addBatch(t, 1, "b", randomRows(rng, o), o)
	ref := l.batches[0]
	want := map[string][]byte{}
	for _, p := range b.Postings {
		data, _, err := l.store.Get(ctx, p.Key)
		if err != nil {
			t.Fatal(err)
		}
		want[p.Key] = data
	}
	for _, lost := range [][]int{{}, {0}, {2}, {3}, {1, 2}, {0, 3}, {0, 1, 2, 3}} {
		for n, i := range lost {
			key := b.Postings[i].Key
			if n%2 == 0 {
				if err := l.store.Delete(ctx, key); err != nil {
					t.Fatal(err)
				}
			} else {
				put(t, l.store, key, want[key][1:])
			}
		}
		n, err := RestorePostings(ctx, l.store, ref, t.TempDir())
		if err != nil || n != len(lost) {
			t.Fatalf("lost %v: %d, %v", lost, n, err)
		}
		for key, data := range want {
			if got, _, err := l.store.Get(ctx, key); err != nil || !bytes.Equal(got, data) {
				t.Errorf("lost %v: %s: %v", lost, key, err)
			}
		}
	}

	// A part that is lost too is named, and nothing is written.
	key := b.Postings[0].Key
	if err := l.store.Delete(ctx, key, b.Parts[0].Key); err != nil {
		t.Fatal(err)
	}
	if _, err := RestorePostings(ctx, l.store, ref, t.TempDir()); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("without a part: %v", err)
	}
	if _, err := l.store.Stat(ctx, key); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("without a part: %v", err)
	}
}

// A damaged segment is made whole, file by file, and readers of the sound ones notice nothing.
func TestDamagedSegmentsAreRebuilt(t *testing.T) {
	ctx := context.Background()
	for name, store := range map[string]blob.Store{"memory": blob.NewMemory(), "files": localStore(t)} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(23, 23))
			l := &testLake{store: store}
			var batches []*lake.Batch
			for dataset := uint32(1); dataset <= 2; dataset++ {
				o := lakeOptions{rows: 200, domains: 60, times: true, limits: tinyParts}
				batches = append(batches, l.addBatch(t, dataset, "b", randomRows(rng, o), o))
			}
			ref := mustBuild(t, store, l.batches, Options{})
			want := segmentObjects(t, store, ref.ID)
			rebuild := func(what string, files ...string) {
				t.Helper()
				counting := blob.NewCounting(store)
				out, err := RebuildSegment(ctx, counting, ref, l.batches, t.TempDir())
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
				if d := cmp.Diff(want, segmentObjects(t, store, ref.ID)); d != "" {
					t.Errorf("%s: %s", what, d)
				}
			}
			rebuild("nothing is wrong")
			for key, good := range want {
				file := key[len(segment.Prefix(ref.ID)):]
				bad := bytes.Clone(good)
				bad[len(bad)/2] ^= 1
				put(t, store, key, bad)
				rebuild(key+" damaged", file)
				put(t, store, key, good[:len(good)-1])
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
			put(t, store, mphf, bad)
			if err := store.Delete(ctx, idx); err != nil {
				t.Fatal(err)
			}
			report, err := VerifySegment(ctx, store, ref, false, t.TempDir())
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
			l.compare(t, ref)

			// What would come out otherwise is not written.
			put(t, store, segment.Prefix(ref.ID)+segment.MPHFName, []byte("damaged"))
			other := ref
			other.XXH64 = "0123456789abcdef"
			if _, err := RebuildSegment(ctx, store, other, l.batches, t.TempDir()); err == nil {
				t.Error("another segment: no error")
			}
			if got := segmentObjects(t, store, ref.ID)[segment.Prefix(ref.ID)+segment.MPHFName]; string(got) != "damaged" {
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
	l := smallLake(t)
	ref := mustBuild(t, l.store, l.batches, Options{})
	ctx := context.Background()
	for key, good := range segmentObjects(t, l.store, ref.ID) {
		for i := 0; i < len(good); i += 1 + len(good)/40 {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << (i % 8)
			put(t, l.store, key, bad)
			report, err := VerifySegment(ctx, l.store, ref, false, t.TempDir())
			if !errors.Is(err, codec.ErrCorrupt) || report.Found != 1 {
				t.Errorf("byte %d of %s: %d problems: %v", i, key, report.Found, report.Problems)
			}
			for _, p := range report.Problems {
				if p.Place != key || bytes.Count([]byte(p.Text), []byte(key)) != 1 || bytes.ContainsAny([]byte(p.Text), "{}\n") {
					t.Errorf("byte %d of %s: %+v", i, key, p)
				}
			}
		}
		put(t, l.store, key, good)
	}
}
