package registry_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/registry"
)

func TestWithdrawnIngestLeavesTheEarlierOne(t *testing.T) {
	ctx := context.Background()
	store := blob.NewMemory()
	for _, run := range []string{"first", "second"} {
		if _, err := registry.RegisterIngest(ctx, store, 4, "b", run); err != nil {
			t.Fatal(err)
		}
		if _, err := registry.FinishIngest(ctx, store, 4, "b", run, "digest of "+run); err != nil {
			t.Fatal(err)
		}
	}
	for attempt, want := range []string{"digest of second", ""} {
		in, registered, err := registry.WithdrawIngest(ctx, store, 4, "b", "second", "")
		if err != nil || in.Digest != want || registered != (attempt == 0) {
			t.Fatalf("attempt %d: %+v, registered %v, %v", attempt, in, registered, err)
		}
	}
	current, err := registry.CurrentBatches(ctx, store, 4)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"b": "digest of first"}, current); diff != "" {
		t.Errorf("current batches: %s", diff)
	}
	// A step of the withdrawn run that is still running cannot finish it again.
	if _, err := registry.FinishIngest(ctx, store, 4, "b", "second", "digest of second"); !errors.Is(err, registry.ErrUnknownRun) {
		t.Errorf("finish after the withdrawal: %v", err)
	}
	ingests, err := registry.Ingests(ctx, store, 4)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]registry.Ingest{{Seq: 1, Run: "first", Digest: "digest of first"}}, ingests["b"]); diff != "" {
		t.Errorf("ingests: %s", diff)
	}
	if in, registered, err := registry.WithdrawIngest(ctx, store, 9, "b", "none", "x"); err != nil || registered {
		t.Errorf("a dataset without ingests: %+v, %v, %v", in, registered, err)
	}
}

// An ingest that is put back is where it was in the order, however often that is done.
func TestReturnedIngestKeepsItsPlace(t *testing.T) {
	store := blob.NewMemory()
	for _, run := range []string{"first", "second", "third"} {
		if _, err := registry.RegisterIngest(t.Context(), store, 4, "b", run); err != nil {
			t.Fatal(err)
		}
		if _, err := registry.FinishIngest(t.Context(), store, 4, "b", run, "digest of "+run); err != nil {
			t.Fatal(err)
		}
	}
	before, err := registry.Ingests(t.Context(), store, 4)
	if err != nil {
		t.Fatal(err)
	}
	in, _, err := registry.WithdrawIngest(t.Context(), store, 4, "b", "second", "")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := registry.ReturnIngest(t.Context(), store, 4, "b", in); err != nil {
			t.Fatal(err)
		}
	}
	after, err := registry.Ingests(t.Context(), store, 4)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
}

// A batch that comes back, and that a later ingest replaces, is retired by that one once, however
// many batches that one has retired.
func TestWithdrawnIngestRetiresOnce(t *testing.T) {
	store := blob.NewMemory()
	finish := func(batch string, replace bool) {
		t.Helper()
		if _, err := registry.RegisterIngest(t.Context(), store, 4, batch, "run of "+batch); err != nil {
			t.Fatal(err)
		}
		if _, err := registry.FinishReplacing(t.Context(), store, 4, batch, "run of "+batch, "digest of "+batch, replace); err != nil {
			t.Fatal(err)
		}
	}
	finish("a", false)
	finish("first", true)
	finish("b", false)
	finish("c", false)
	finish("second", true)
	withdrawFirst(t, store, 5)
}

// A batch that two ingests have retired, of which the one that registered first finished last, is
// retired by the other once if that one is withdrawn.
func TestWithdrawnIngestLeavesRetirementsOnce(t *testing.T) {
	store := blob.NewMemory()
	for _, batch := range []string{"a", "first", "second"} {
		if _, err := registry.RegisterIngest(t.Context(), store, 4, batch, "run of "+batch); err != nil {
			t.Fatal(err)
		}
	}
	for _, batch := range []string{"a", "second", "first"} {
		if _, err := registry.FinishReplacing(t.Context(), store, 4, batch, "run of "+batch, "digest of "+batch, batch != "a"); err != nil {
			t.Fatal(err)
		}
	}
	withdrawFirst(t, store, 3)
}

// withdrawFirst withdraws the ingest of the batch first, and holds that a is retired then by that
// of second alone, which has a number.
func withdrawFirst(t *testing.T, store blob.Store, second int64) {
	t.Helper()
	if _, _, err := registry.WithdrawIngest(t.Context(), store, 4, "first", "run of first", ""); err != nil {
		t.Fatal(err)
	}
	ingests, err := registry.Ingests(t.Context(), store, 4)
	if err != nil {
		t.Fatal(err)
	}
	want := []registry.Ingest{
		{Seq: 1, Run: "run of a", Digest: "digest of a"},
		{Seq: second, Run: "run of second", Retired: true, By: "second"},
	}
	if diff := cmp.Diff(want, ingests["a"]); diff != "" {
		t.Error(diff)
	}
}
