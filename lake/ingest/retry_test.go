package ingest_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake"
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

// TestStepsMakeWhatIsMissing deletes each object of a run, one by one. An ingest that continues the
// run makes it again.
func TestStepsMakeWhatIsMissing(t *testing.T) {
	dir, _ := madeUp(t, 100)
	spec := madeUpSpec(dir)
	l := withLarge(t, dir, ingest.Limits{Arena: 20_000, AnyPrefix: 1, Task: 100_000})
	store := blob.NewMemory()
	if _, err := steps(t.Context(), store, "run", spec, l); err != nil {
		t.Fatal(err)
	}
	want := objects(t, store)
	var keys []string
	for _, prefix := range []string{lake.StagingPrefix("run"), "urls/"} {
		for info, err := range store.List(t.Context(), prefix) {
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, info.Key)
		}
	}
	if len(keys) < 20 {
		t.Fatalf("only %d objects: %q", len(keys), keys)
	}
	for _, key := range keys {
		if err := store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if _, err := steps(t.Context(), store, "run", spec, l); err != nil {
			t.Errorf("without %s: %v", key, err)
		}
		if _, err := store.Stat(t.Context(), key); err != nil {
			t.Errorf("%s was not made again: %v", key, err)
		}
	}
	sameObjects(t, want, objects(t, store))
}

// TestInputThatVanishes checks that an input that is deleted while it is read is named.
func TestInputThatVanishes(t *testing.T) {
	bucket := blob.NewMemory()
	if _, err := bucket.Put(t.Context(), "list.txt", []byte("http://a.test/\n"), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	vanishing := &vanishingStore{Store: bucket}
	ingest.BehindS3(t, vanishing)
	store := blob.NewMemory()
	if _, err := ingest.MakePlan(t.Context(), store, "run", ingest.Spec{Dataset: "d", Inputs: []string{"s3://in/list.txt"}}); err != nil {
		t.Fatal(err)
	}
	vanishing.gone = true
	_, err := ingest.Normalize(t.Context(), store, "run", 0, nil)
	var input *ingest.InputError
	if !errors.As(err, &input) || input.Object != "s3://in/list.txt" {
		t.Errorf("%v; want an InputError that names the object", err)
	}
}

// vanishingStore has objects whose streams end with blob.ErrNotExist once they are gone.
type vanishingStore struct {
	blob.Store
	gone bool
}

func (s *vanishingStore) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	r, err := s.Store.Open(ctx, key, off, n)
	if err == nil && s.gone {
		r = io.NopCloser(io.MultiReader(io.LimitReader(r, 5), iotest.ErrReader(blob.OpError("open", "s3://in", key, blob.ErrNotExist))))
	}
	return r, err
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
			t.Fatalf("crash after %d changes: %v", n, err)
		}
		got, err := steps(ctx, inner, "run", spec, l)
		if err != nil {
			t.Fatalf("after a crash after %d changes: %v", n, err)
		}
		if diff := cmp.Diff(f, got); diff != "" {
			t.Fatalf("after a crash after %d changes the result differs: %s", n, diff)
		}
		sameObjects(t, want, objects(t, inner))
	}
	if crashes < 30/testenv.Every(5) {
		t.Errorf("only %d crash points", crashes)
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
		for n := 1; ; n += testenv.Every(4) {
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
	_, err := ingest.Normalize(ctx, store, "run", 0, func(ingest.Progress) {
		seen++
		cancel()
	})
	if !errors.Is(err, context.Canceled) || seen != 1 {
		t.Errorf("%v after %d reports", err, seen)
	}
}
