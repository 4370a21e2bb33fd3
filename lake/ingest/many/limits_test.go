package many_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/ingest/many"
	"github.com/urlake/urlake/lake/registry"
)

// More datasets than the ledger keeps ingests of are refused before anything is registered.
func TestTooManyDatasetsAreRefused(t *testing.T) {
	// Hard links of one file are made faster than files; a file may have some ten thousand.
	dir := t.TempDir()
	var inputs []string
	const links = 25_000
	for n := 0; n <= registry.MaxRunning; n++ {
		if n%links == 0 {
			inputs = append(inputs, filepath.Join(dir, fmt.Sprint("in", len(inputs))))
			writeList(t, filepath.Join(inputs[len(inputs)-1], fmt.Sprintf("%d.txt", n)), "https://a.test/\n")
			continue
		}
		in := inputs[len(inputs)-1]
		if err := os.Link(filepath.Join(in, fmt.Sprintf("%d.txt", n/links*links)), filepath.Join(in, fmt.Sprintf("%d.txt", n))); err != nil {
			t.Fatal(err)
		}
	}
	store := blob.NewMemory()
	_, err := many.Plan(t.Context(), store, testlake.Run(), specOf(store, many.FromFiles, inputs...))
	var input *ingest.InputError
	if !errors.As(err, &input) || !strings.Contains(err.Error(), fmt.Sprint(registry.MaxRunning+1)) {
		t.Errorf("%v", err)
	}
	if all, err := registry.Datasets(t.Context(), store); err != nil || len(all) > 0 {
		t.Errorf("%d datasets, %v", len(all), err)
	}
}

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

// An ingest that is cancelled, wherever its planning has died, leaves no ingest that seems to run.
func TestCancelledPlanLeavesNothingRunning(t *testing.T) {
	dir := writeLists(t, map[string]string{
		"small.txt": "https://a.test/\n", "large.txt": strings.Repeat("https://b.test/"+strings.Repeat("x", 1<<10)+"\n", 4<<10),
	})
	if err := os.Truncate(filepath.Join(dir, "large.txt"), 130<<20); err != nil { // nobody reads the end
		t.Fatal(err)
	}
	died := errors.New("the worker dies")
	for _, at := range []string{"many.json", "/many-"} {
		inner := blob.NewMemory()
		store := blobtest.NewFaulty(inner)
		store.Inject(blobtest.Fault{Op: blob.OpPut, Key: func(key string) bool { return strings.Contains(key, at) }, Err: died})
		run := testlake.Run()
		if _, err := many.Plan(t.Context(), store, run, specOf(inner, many.FromFiles, dir)); !errors.Is(err, died) {
			t.Fatal(err)
		}
		if _, err := many.Abandon(t.Context(), inner, run); err != nil {
			t.Fatal(err)
		}
		if running, err := registry.Running(t.Context(), inner); err != nil || len(running) > 0 {
			t.Errorf("%s: %v run, %v", at, running, err)
		}
	}
}

// A plan that died before its ingests were registered is complete after its repetition.
func TestRepeatedPlanRegistersItsIngests(t *testing.T) {
	inner := blob.NewMemory()
	store := blobtest.NewFaulty(inner)
	store.Inject(blobtest.Fault{Op: blob.OpPut, Key: func(key string) bool { return key == registry.ShardKey(registry.ShardOf(2)) }})
	if _, err := registry.RegisterDataset(t.Context(), inner, lake.Dataset{Name: "first"}); err != nil {
		t.Fatal(err)
	}
	run, spec := testlake.Run(), specOf(inner, many.FromFiles, writeLists(t, map[string]string{"a.txt": "https://a.test/\n", "b.txt": "https://b.test/\n"}))
	if _, err := many.Plan(t.Context(), store, run, spec); err == nil {
		t.Fatal("no fault happened")
	}
	if _, err := many.Plan(t.Context(), inner, run, spec); err != nil {
		t.Fatal(err)
	}
	if running, err := registry.Running(t.Context(), inner); err != nil || len(running) != 2 {
		t.Errorf("%v run, %v", running, err)
	}
}
