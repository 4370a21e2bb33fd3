package many_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/ingest/many"
)

// An attempt of a group that was given up records what it has done after another attempt has done
// all. What that has done stays, and the late attempt fails.
func TestLateAttemptForgetsNothing(t *testing.T) {
	files := map[string]string{}
	const lists = 6
	for n := range lists {
		// Too large to be read beside others.
		files[fmt.Sprintf("%d.txt", n)] = strings.Repeat(fmt.Sprintf("https://a%d.test/%s\n", n, strings.Repeat("x", 100)), 12_000)
	}
	inner := blob.NewMemory()
	run := testlake.Run()
	plan, err := many.Plan(t.Context(), inner, run, specOf(inner, many.FromFiles, writeLists(t, files)))
	if err != nil || plan.Groups != 1 {
		t.Fatalf("%+v, %v", plan, err)
	}
	attempt := func(ctx context.Context, store blob.Store, report func(many.Progress)) error {
		r, err := many.Open(t.Context(), store, run)
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Group(ctx, 0, options(t), report)
		return err
	}
	store := blobtest.NewFaulty(inner)
	store.Inject(blobtest.Fault{Op: blob.OpPut, Key: func(key string) bool { return strings.Contains(key, "/groups/") }, Nth: 1, Do: func() {
		if err := attempt(t.Context(), inner, func(many.Progress) {}); err != nil {
			t.Error(err)
		}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := attempt(ctx, store, func(p many.Progress) {
		if p.Done > 0 {
			cancel()
		}
	}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for _, o := range finish(t, inner, run) {
		if o.Error != "" {
			t.Errorf("%s: %s", o.Dataset, o.Error)
		}
	}
}

// Of two attempts to finish a run, one writes the report. The other one fails, and its repetition
// returns the same sums.
func TestFinishTwiceAtOnce(t *testing.T) {
	inner := blob.NewMemory()
	run := testlake.Run()
	dir := writeLists(t, map[string]string{"a.txt": "https://a.test/\n", "b.txt": "https://b.test/\n"})
	if _, err := many.Plan(t.Context(), inner, run, specOf(inner, many.FromFiles, dir)); err != nil {
		t.Fatal(err)
	}
	r, err := many.Open(t.Context(), inner, run)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Group(t.Context(), 0, options(t), func(many.Progress) {}); err != nil {
		t.Fatal(err)
	}
	finish := func(store blob.Store) (many.Finished, error) {
		sum, _, err := many.Finish(t.Context(), store, run, true, "")
		return sum, err
	}
	store := blobtest.NewFaulty(inner)
	store.Inject(blobtest.Fault{Op: blob.OpPut, Key: func(key string) bool { return strings.HasPrefix(key, many.ReportRoot) }, Nth: 1, Do: func() {
		if sum, err := finish(inner); err != nil || sum.Ingested != 2 {
			t.Errorf("%+v, %v", sum, err)
		}
	}})
	if _, err := finish(store); !errors.Is(err, blob.ErrPrecondition) {
		t.Errorf("the second: %v", err)
	}
	if sum, err := finish(store); err != nil || sum.Ingested != 2 || sum.Failed != 0 {
		t.Errorf("again: %+v, %v", sum, err)
	}
}

// The batches of a run are known from its plan on until it is cleaned up, so that no garbage
// collection takes what it writes.
func TestRunningKnowsThePlan(t *testing.T) {
	store := blob.NewMemory()
	run, spec := testlake.Run(), specOf(store, many.FromFiles, writeLists(t, map[string]string{"a.txt": "https://a.test/\n", "b.txt": "https://b.test/\n"}))
	if _, err := many.Plan(t.Context(), store, run, spec); err != nil {
		t.Fatal(err)
	}
	one := testlake.Spec(t, store, "one", "b", []testlake.Record{{URL: "https://c.test/"}})
	if _, err := ingest.MakePlan(t.Context(), store, testlake.Run(), one); err != nil {
		t.Fatal(err)
	}
	if running, err := many.Running(t.Context(), store); err != nil || len(running) != 3 {
		t.Errorf("%v run, %v", running, err)
	}
	if err := ingest.Cleanup(t.Context(), store, run); err != nil {
		t.Fatal(err)
	}
	if running, err := many.Running(t.Context(), store); err != nil || len(running) != 1 || running[0].Batch != "b" {
		t.Errorf("%v run, %v", running, err)
	}
}
