package lake_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
)

func TestWithdrawnIngestLeavesTheEarlierOne(t *testing.T) {
	ctx := context.Background()
	store := blob.NewMemory()
	for _, run := range []string{"first", "second"} {
		if _, err := lake.RegisterIngest(ctx, store, 4, "b", run); err != nil {
			t.Fatal(err)
		}
		if _, err := lake.FinishIngest(ctx, store, 4, "b", run, "digest of "+run); err != nil {
			t.Fatal(err)
		}
	}
	for attempt, want := range []string{"digest of second", ""} {
		digest, registered, err := lake.WithdrawIngest(ctx, store, 4, "b", "second")
		if err != nil || digest != want || registered != (attempt == 0) {
			t.Fatalf("attempt %d: digest %q, registered %v, %v", attempt, digest, registered, err)
		}
	}
	current, err := lake.CurrentBatches(ctx, store, 4)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"b": "digest of first"}, current); diff != "" {
		t.Errorf("current batches: %s", diff)
	}
	// A step of the withdrawn run that is still running cannot finish it again.
	if _, err := lake.FinishIngest(ctx, store, 4, "b", "second", "digest of second"); !errors.Is(err, lake.ErrUnknownRun) {
		t.Errorf("finish after the withdrawal: %v", err)
	}
	ingests, err := lake.Ingests(ctx, store, 4)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]lake.Ingest{{Run: "first", Digest: "digest of first"}}, ingests["b"]); diff != "" {
		t.Errorf("ingests: %s", diff)
	}
	if digest, registered, err := lake.WithdrawIngest(ctx, store, 9, "b", "none"); err != nil || registered || digest != "" {
		t.Errorf("a dataset without ingests: %q, %v, %v", digest, registered, err)
	}
}
