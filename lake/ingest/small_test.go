package ingest_test

import (
	"context"
	"errors"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
)

// small runs MakePlan and IngestSmall.
func small(
	ctx context.Context, store blob.Store, run string, spec ingest.Spec, l ingest.Limits,
) (ingest.SmallResult, error) {
	if _, err := ingest.MakePlanWithin(ctx, store, run, spec, l); err != nil {
		return ingest.SmallResult{}, err
	}
	l.Postings = countDomains
	return ingest.IngestSmallWithin(ctx, store, run, os.TempDir(), l)
}

// smallBatches are ways to divide the work of one split, with the objects that each leaves in
// staging.
var smallBatches = map[string]struct {
	ingest.Limits
	staged []string
}{
	"one task": {ingest.Limits{}, []string{"plan.json", "rejects/", "small.json"}},
	"several tasks": {ingest.Limits{AnyPrefix: 1, Task: 10_000},
		[]string{"plan.json", "rejects/", "small.json"}},
	"too large for memory": {ingest.Limits{Arena: 20_000, AnyPrefix: 1, Task: 10_000},
		[]string{"plan.json", "rejects/", "shuffle/", "small.json"}},
}

func TestSmall(t *testing.T) {
	for _, c := range []struct {
		splits int
		bytes  int64
		small  bool
	}{{1, 0, true}, {1, 128 << 20, true}, {1, 128<<20 + 1, false}, {2, 1000, false}} {
		if got := ingest.IsSmall(c.splits, c.bytes); got != c.small {
			t.Errorf("%d splits of %d bytes: small is %v", c.splits, c.bytes, got)
		}
	}
}

func TestIngestSmallEqualsAllSteps(t *testing.T) {
	ctx := context.Background()
	dir, _ := madeUp(t, 3000)
	spec := madeUpSpec(dir)
	for name, c := range smallBatches {
		t.Run(name, func(t *testing.T) {
			l := c.Limits
			one := blob.NewMemory()
			want, err := steps(ctx, one, "run", spec, l)
			if err != nil {
				t.Fatal(err)
			}
			store := blob.NewMemory()
			got, err := small(ctx, store, "run", spec, l)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got.Finish); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if got.Split.Records != want.Records || got.Merge.Rows != want.Rows || got.Merge.Merged != want.Merged || got.Merge.Parts != want.Parts || got.Merge.Bytes != want.PartBytes {
				t.Errorf("%+v of %+v", got, want)
			}
			sameObjects(t, objects(t, one), objects(t, store))
			var staged []string
			for info, err := range store.List(ctx, "staging/run/") {
				if err != nil {
					t.Fatal(err)
				}
				rest := strings.TrimPrefix(info.Key, "staging/run/")
				if folder, _, ok := strings.Cut(rest, "/"); ok {
					rest = folder + "/"
				}
				staged = append(staged, rest)
			}
			if staged = slices.Compact(staged); !slices.Equal(staged, c.staged) {
				t.Errorf("staged are %q, want %q", staged, c.staged)
			}
		})
	}
}

func TestIngestSmallAfterACrashAnywhere(t *testing.T) {
	ctx := context.Background()
	dir, _ := madeUp(t, 100)
	spec := madeUpSpec(dir)
	for name, c := range smallBatches {
		alone := blob.NewMemory()
		want, err := small(ctx, alone, "run", spec, c.Limits)
		if err != nil {
			t.Fatal(err)
		}
		crashes := 0
		for ; ; crashes++ {
			inner := blob.NewMemory()
			store := blobtest.NewFaulty(inner)
			store.CrashAfter(crashes)
			_, err := small(ctx, store, "run", spec, c.Limits)
			if !store.Crashed() {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			if !errors.Is(err, blobtest.ErrCrashed) {
				t.Fatalf("%s: crash after %d changes: %v", name, crashes, err)
			}
			got, err := small(ctx, inner, "run", spec, c.Limits)
			if err != nil {
				t.Fatalf("%s: after a crash after %d changes: %v", name, crashes, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s: after a crash after %d changes the result differs: %s", name, crashes, diff)
			}
			sameObjects(t, objects(t, alone), objects(t, inner))
		}
		if crashes < 8 {
			t.Errorf("%s: only %d crash points", name, crashes)
		}
	}
}

// TestIngestSmallAgain repeats a run. Its work is not done again, even if the inputs have changed,
// but is registered if it was not.
func TestIngestSmallAgain(t *testing.T) {
	ctx := context.Background()
	dir, _ := madeUp(t, 100)
	spec := madeUpSpec(dir)
	store := blob.NewMemory()
	first, err := small(ctx, store, "run", spec, ingest.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	second, err := small(ctx, store, "run2", spec, ingest.Limits{})
	if err != nil || !second.Finish.Existed || !second.Finish.Current || second.Finish.Digest != first.Finish.Digest {
		t.Errorf("the same content again: %+v, %v", second.Finish, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	first.Finish.Current, first.Finish.Effect = false, nil // run2's is
	again, err := small(ctx, store, "run", spec, ingest.Limits{})
	if diff := cmp.Diff(first, again); err != nil || diff != "" {
		t.Errorf("done again: %v, %s", err, diff)
	}
	if current := testlake.Batches(t, store, 1); current[spec.Batch] != first.Finish.Digest {
		t.Errorf("current are %v", current)
	}
}

// TestIngestSmallCrashedWhileAnotherRunFinished runs another ingest of the batch between a crash
// and its repetition. The content of the run that was planned last is current, and both runs report
// that.
func TestIngestSmallCrashedWhileAnotherRunFinished(t *testing.T) {
	ctx := context.Background()
	dir, _ := madeUp(t, 100)
	other, _ := madeUp(t, 150)
	spec := madeUpSpec(dir)
	for _, same := range []bool{true, false} {
		late := spec
		if !same {
			late.Inputs = []string{other}
		}
		for crashes := 0; ; crashes++ {
			inner := blob.NewMemory()
			store := blobtest.NewFaulty(inner)
			store.CrashAfter(crashes)
			_, err := small(ctx, store, "run", spec, ingest.Limits{})
			if !store.Crashed() {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			// A run that was planned before the other one finished has not seen its content.
			_, _, err = inner.Get(ctx, "staging/run/plan.json")
			planned := err == nil
			second, err := small(ctx, inner, "run2", late, ingest.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			first, err := small(ctx, inner, "run", spec, ingest.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if first.Finish.Current == planned || first.Finish.Existed != (same && !planned) {
				t.Errorf("crash after %d changes, planned: %v: %+v", crashes, planned, first.Finish)
			}
			want := first
			if planned {
				want = second
			}
			if current := testlake.Batches(t, inner, 1); current[spec.Batch] != want.Finish.Digest {
				t.Errorf("crash after %d changes: current are %v", crashes, current)
			}
		}
	}
}

func TestIngestSmallTwiceConcurrently(t *testing.T) {
	ctx := context.Background()
	dir, _ := madeUp(t, 1000)
	alone := blob.NewMemory()
	want, err := small(ctx, alone, "run", madeUpSpec(dir), ingest.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	store := blob.NewMemory()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			got, err := small(ctx, store, "run", madeUpSpec(dir), ingest.Limits{})
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%v, %s", err, diff)
			}
		})
	}
	wg.Wait()
	sameObjects(t, objects(t, alone), objects(t, store))
}

func TestIngestSmallRefusesWhatTheStepsRefuse(t *testing.T) {
	ctx := context.Background()
	for _, text := range []string{"http://a.example/\nmailto:x\nmailto:y\n", "mailto:x\n", "# nothing\n"} {
		spec := ingest.Spec{Dataset: "d", Batch: "b",
			Inputs: []string{folder(t, map[string]string{"x.txt": text})}, Format: "lines"}
		_, want := steps(ctx, blob.NewMemory(), "run", spec, ingest.Limits{})
		store := blob.NewMemory()
		_, err := small(ctx, store, "run", spec, ingest.Limits{})
		var input *ingest.InputError
		if !errors.As(err, &input) || want == nil || err.Error() != want.Error() {
			t.Errorf("got %v, want %v", err, want)
		}
		for key := range objects(t, store) {
			if !strings.HasPrefix(key, "registry/") && !strings.HasPrefix(key, "rules/") {
				t.Errorf("the failed batch left %s", key)
			}
		}
	}
	dir, _ := madeUp(t, 100)
	if _, err := small(ctx, blob.NewMemory(), "run", madeUpSpec(dir), ingest.Limits{Split: 1, Object: 1}); err == nil {
		t.Error("a batch of several splits: no error")
	}
}

func TestDamagedStagingOfASmallBatchIsCorrupt(t *testing.T) {
	ctx := context.Background()
	dir, _ := madeUp(t, 100)
	spec := madeUpSpec(dir)
	for _, name := range []string{"plan.json", "small.json"} {
		store := blob.NewMemory()
		if _, err := small(ctx, store, "run", spec, ingest.Limits{}); err != nil {
			t.Fatal(err)
		}
		key := path.Join("staging/run", name)
		data, _, err := store.Get(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int{0, len(data) / 2, len(data) - 1} {
			bad := slices.Clone(data)
			bad[at] ^= 0x40
			if _, err := store.Put(ctx, key, bad, blob.Condition{}); err != nil {
				t.Fatal(err)
			}
			if _, err := small(ctx, store, "run", spec, ingest.Limits{}); !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("%s byte %d: %v", name, at, err)
			}
		}
	}
}
