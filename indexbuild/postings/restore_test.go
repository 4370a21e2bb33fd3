package postings_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
)

// An error about a batch's objects names the batch. A failure of the store is not damage.
func TestDamagedBatches(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 21))
	ctx := context.Background()
	l := &indextest.Lake{Store: blob.NewMemory()}
	var damaged *lake.Batch
	for dataset := uint32(1); dataset <= 3; dataset++ {
		o := indextest.Options{Rows: 200, Domains: 60, Width: 1, Tasks: 2, Limits: indextest.TinyParts}
		if b := l.AddBatch(t, dataset, "b", indextest.RandomRows(rng, o), o); dataset == 2 {
			damaged = b
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
			_, err = indexbuild.CheckBatch(ctx, l.Store, other, false)
			if i != 1 && err != nil || i == 1 && !deep && !errors.As(err, &d) {
				t.Errorf("%s: shallow check of %v: %v", what, other, err)
			}
		}
	}
	for _, key := range []string{ref.Key(), damaged.Postings[0].Key, damaged.Postings[1].Key} {
		good, _, err := l.Store.Get(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int{0, len(good) / 3, len(good) / 2, len(good) - 1} {
			bad := bytes.Clone(good)
			bad[at] ^= 0x10
			indextest.Put(t, l.Store, key, bad)
			try(fmt.Sprintf("%s with byte %d changed", key, at), true)
		}
		indextest.Put(t, l.Store, key, good[:len(good)/2])
		try(key+" truncated", true)
		if err := l.Store.Delete(ctx, key); err != nil {
			t.Fatal(err)
		}
		try(key+" missing", false)
		indextest.Put(t, l.Store, key, good)
	}
	if _, err := indexbuild.BuildSegment(ctx, l.Store, l.Batches, indexbuild.Options{TempDir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}

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

// Any number of lost postings objects of a batch are restored from its parts, with the same bytes.
func TestRestorePostings(t *testing.T) {
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
		n := 0
		err := postings.Restore(ctx, l.Store, ref, t.TempDir(), func(string) error { n++; return nil })
		if err != nil || n != len(lost) {
			t.Fatalf("lost %v: %d, %v", lost, n, err)
		}
		for key, data := range want {
			if got, _, err := l.Store.Get(ctx, key); err != nil || !bytes.Equal(got, data) {
				t.Errorf("lost %v: %s: %v", lost, key, err)
			}
		}
	}

	// If a part is lost too, the error names it and nothing is written.
	key := b.Postings[0].Key
	if err := l.Store.Delete(ctx, key, b.Parts[0].Key); err != nil {
		t.Fatal(err)
	}
	if err := postings.Restore(ctx, l.Store, ref, t.TempDir(), func(string) error { return nil }); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("without a part: %v", err)
	}
	if _, err := l.Store.Stat(ctx, key); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("without a part: %v", err)
	}
}
