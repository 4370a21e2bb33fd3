package ingest_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/ingest"
)

func TestEveryStepMayRunTwiceConcurrently(t *testing.T) {
	ctx := context.Background()
	dir, _ := madeUp(t, 1000)
	l := withLarge(t, dir, ingest.Limits{Arena: 5000, AnyPrefix: 1})
	alone := blob.NewMemory()
	if _, err := steps(ctx, alone, "run", madeUpSpec(dir), l); err != nil {
		t.Fatal(err)
	}
	store := blob.NewMemory()
	const n = 4
	results := make([]ingest.FinishResult, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			// Workers with different memory write different runs.
			l := l
			l.Arena *= int64(i + 1)
			results[i], errs[i] = steps(ctx, store, "run", madeUpSpec(dir), l)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if diff := cmp.Diff(results[0], r); diff != "" {
			t.Errorf("results differ: %s", diff)
		}
	}
	sameObjects(t, objects(t, alone), objects(t, store))
}

func TestRunCompletesAfterACrashAnywhere(t *testing.T) {
	ctx := context.Background()
	dir, _ := madeUp(t, 100)
	spec := madeUpSpec(dir)
	l := withLarge(t, dir, ingest.Limits{Arena: 100_000, AnyPrefix: 1, Task: 100_000})
	alone := blob.NewMemory()
	f, err := steps(ctx, alone, "run", spec, l)
	if err != nil {
		t.Fatal(err)
	}
	want := objects(t, alone)
	for name, postings := range map[string]ingest.NewPostings{"extracted": nil, "collected": countDomains} {
		l.Postings = postings
		crashes := 0
		for n := 0; ; n += testenv.Every(5) {
			inner := blob.NewMemory()
			store := blobtest.NewFaulty(inner)
			store.CrashAfter(n)
			_, err := steps(ctx, store, "run", spec, l)
			if !store.Crashed() {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			crashes++
			if !errors.Is(err, blobtest.ErrCrashed) {
				t.Fatalf("postings %s: crash after %d changes: %v", name, n, err)
			}
			got, err := steps(ctx, inner, "run", spec, l)
			if err != nil {
				t.Fatalf("postings %s: after a crash after %d changes: %v", name, n, err)
			}
			if diff := cmp.Diff(f, got); diff != "" {
				t.Fatalf("postings %s: after a crash after %d changes the result differs: %s", name, n, diff)
			}
			sameObjects(t, want, objects(t, inner))
		}
		if crashes < 30/testenv.Every(5) {
			t.Errorf("postings %s: only %d crash points", name, crashes)
		}
	}
}

func TestLostRepliesDoNotShow(t *testing.T) {
	ctx := context.Background()
	dir, _ := madeUp(t, 100)
	l := ingest.Limits{Split: 1, Object: 1, AnyPrefix: 1}
	alone := blob.NewMemory()
	if _, err := steps(ctx, alone, "run", madeUpSpec(dir), l); err != nil {
		t.Fatal(err)
	}
	want := objects(t, alone)
	for _, op := range []blob.Op{blob.OpPut, blob.OpFinish} {
		for n := 1; ; n++ {
			inner := blob.NewMemory()
			store := blobtest.NewFaulty(inner)
			store.Inject(blobtest.Fault{Op: op, Nth: n, After: true})
			_, err := steps(ctx, store, "run", madeUpSpec(dir), l)
			if store.Fired() == 0 {
				break
			}
			if err != nil {
				if _, err = steps(ctx, store, "run", madeUpSpec(dir), l); err != nil {
					t.Fatalf("after a lost reply to %v %d: %v", op, n, err)
				}
			}
			sameObjects(t, want, objects(t, inner))
		}
	}
}

func TestCancelledStepStops(t *testing.T) {
	store := blob.NewMemory()
	dir, _ := madeUp(t, 30_000)
	if _, err := ingest.MakePlan(context.Background(), store, "run", madeUpSpec(dir)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	seen := 0
	_, err := ingest.Normalize(ctx, store, "run", 0, nil, func(ingest.Progress) {
		seen++
		cancel()
	})
	if !errors.Is(err, context.Canceled) || seen != 1 {
		t.Errorf("%v after %d reports", err, seen)
	}
}
