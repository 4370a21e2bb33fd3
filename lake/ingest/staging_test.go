package ingest_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
)

func TestStepsOutOfOrderAreRefused(t *testing.T) {
	ctx := context.Background()
	store := blob.NewMemory()
	dir := folder(t, map[string]string{"x.txt": "http://a.example/\n"})
	try := func(want error, steps ...func() error) {
		t.Helper()
		for i, step := range steps {
			if err := step(); !errors.Is(err, want) {
				t.Errorf("step %d: %v", i, err)
			}
		}
	}
	normalize := func() error { _, err := ingest.Normalize(ctx, store, "run", 0, nil); return err }
	planMerge := func() error { _, err := ingest.PlanMerge(ctx, store, "run"); return err }
	merge := func() error { _, err := ingest.Merge(ctx, store, "run", 0, "", countDomains, nil); return err }
	finish := func() error { _, err := ingest.Finish(ctx, store, "run"); return err }
	try(blob.ErrNotExist, normalize, planMerge, merge, finish)
	if _, err := ingest.MakePlan(ctx, store, "run", ingest.Spec{Dataset: "d", Inputs: []string{dir}}); err != nil {
		t.Fatal(err)
	}
	try(blob.ErrNotExist, planMerge, merge, finish)
	try(nil, normalize)
	try(blob.ErrNotExist, merge, finish)
	try(nil, planMerge)
	try(nil, merge, finish)
	if _, err := ingest.Normalize(ctx, store, "run", 1, nil); err == nil {
		t.Error("a split that is not planned: no error")
	}
	if _, err := ingest.Merge(ctx, store, "run", 1, "", countDomains, nil); err == nil {
		t.Error("a task that is not planned: no error")
	}
}

func TestWorkerOfOtherRulesRefuses(t *testing.T) {
	ctx := context.Background()
	store := blob.NewMemory()
	dir := folder(t, map[string]string{"x.txt": "http://a.example/\n"})
	if _, err := ingest.MakePlan(ctx, store, "run", ingest.Spec{Dataset: "d", Inputs: []string{dir}}); err != nil {
		t.Fatal(err)
	}
	key := "staging/run/plan.json"
	data, _, err := store.Get(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := codec.Unseal(data, key, 99, &doc); err != nil {
		t.Fatal(err)
	}
	doc["rules"].(map[string]any)["public_suffix_list"] = "of another day"
	if data, err = codec.Seal(doc); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(ctx, key, data, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	var missing *lake.MissingListError
	if _, err := ingest.Normalize(ctx, store, "run", 0, nil); !errors.As(err, &missing) || missing.Identity != "of another day" {
		t.Errorf("got %v", err)
	}
}

func TestDamagedStagingIsCorrupt(t *testing.T) {
	ctx := context.Background()
	dir, _ := madeUp(t, 100)
	spec := madeUpSpec(dir)
	l := ingest.Limits{Split: 1, Object: 1}
	store := blob.NewMemory()
	f, err := steps(ctx, store, "run", spec, l)
	if err != nil {
		t.Fatal(err)
	}
	for info, err := range store.List(ctx, "staging/") {
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := store.Get(ctx, info.Key)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int{0, len(data) / 2, len(data) - 1} {
			bad := bytes.Clone(data)
			bad[at] ^= 0x40
			// A copy of the store without the objects made from the damaged one.
			broken := blob.NewMemory()
			for other := range store.List(ctx, "") {
				d, _, err := store.Get(ctx, other.Key)
				if err != nil {
					t.Fatal(err)
				}
				if strings.HasPrefix(info.Key, "staging/run/shuffle/") && strings.HasPrefix(other.Key,
					"staging/run/merged/") {
					continue
				}
				if strings.HasPrefix(info.Key, "staging/run/plan-") && strings.HasPrefix(other.Key,
					"staging/run/splits/") {
					continue
				}
				if _, err := broken.Put(ctx, other.Key, d, blob.Condition{}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := broken.Put(ctx, info.Key, bad, blob.Condition{}); err != nil {
				t.Fatal(err)
			}
			got, err := steps(ctx, broken, "run", spec, l)
			if err == nil && got.Digest != f.Digest || err != nil && !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("%s byte %d: digest %s, want %s; %v", info.Key, at, got.Digest, f.Digest, err)
			}
		}
	}
}

// TestExchangedSplitsAreCorrupt stores the document of one split under the key of another. If it
// was accepted, the rows of the one would be there twice and those of the other not at all.
func TestExchangedSplitsAreCorrupt(t *testing.T) {
	ctx := context.Background()
	dir, _ := madeUp(t, 3000)
	store := blob.NewMemory()
	plan, err := ingest.MakePlanWithin(ctx, store, "run", madeUpSpec(dir), ingest.Limits{Split: 20_000, Object: 1})
	if err != nil || plan.Splits < 2 {
		t.Fatalf("%+v, %v", plan, err)
	}
	for i := range plan.Splits {
		if _, err := ingest.Normalize(ctx, store, "run", i, nil); err != nil {
			t.Fatal(err)
		}
	}
	data, _, err := store.Get(ctx, "staging/run/splits/000001.json")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(ctx, "staging/run/splits/000000.json", data, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.PlanMerge(ctx, store, "run"); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("got %v", err)
	}
}

// TestShortShuffleFileIsCorrupt truncates a staging object. That is corruption, since retries of
// the read cannot succeed.
func TestShortShuffleFileIsCorrupt(t *testing.T) {
	ctx := context.Background()
	dir, _ := madeUp(t, 3000)
	store := blob.NewMemory()
	within := ingest.Limits{Arena: 20_000}
	if _, err := ingest.MakePlan(ctx, store, "run", madeUpSpec(dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.NormalizeWithin(ctx, store, "run", 0, within); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.PlanMerge(ctx, store, "run"); err != nil {
		t.Fatal(err)
	}
	for info, err := range store.List(ctx, "staging/run/shuffle/") {
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := store.Get(ctx, info.Key)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Put(ctx, info.Key, data[:len(data)/2], blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		break
	}
	if _, err := ingest.Merge(ctx, store, "run", 0, t.TempDir(), countDomains, nil); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("got %v", err)
	}
}
