package lake_test

import (
	"errors"
	"testing"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
)

// A record is replaced only where it is the current one, and a repeated call finds that it was.
func TestReplaceRecord(t *testing.T) {
	ctx := t.Context()
	store := blobtest.NewFaulty(blob.NewMemory())
	finish := func(batch, run, digest string) {
		t.Helper()
		if _, err := lake.RegisterIngest(ctx, store, 7, batch, run); err != nil {
			t.Fatal(err)
		}
		if _, err := lake.FinishIngest(ctx, store, 7, batch, run, digest); err != nil {
			t.Fatal(err)
		}
	}
	finish("a", "r1", "old")
	finish("b", "r1", "other")
	replace := func(batch, from, to string, current bool, digest string) {
		t.Helper()
		got, err := lake.ReplaceRecord(ctx, store, 7, batch, from, to)
		if err != nil || got != current {
			t.Errorf("%s from %s to %s: %v, %v, want %v", batch, from, to, got, err, current)
		}
		have, err := lake.CurrentBatches(ctx, store, 7)
		if err != nil || have[batch] != digest {
			t.Errorf("%s: current is %q, %v, want %q", batch, have[batch], err, digest)
		}
	}
	store.Inject(blobtest.Fault{Op: blob.OpPut, Nth: 1, After: true}) // the reply is lost
	replace("a", "old", "new", true, "new")
	store.Heal()
	replace("a", "old", "new", true, "new")
	replace("a", "other", "newer", false, "new")
	replace("absent", "old", "new", false, "")
	finish("a", "r2", "later")
	replace("a", "new", "newer", false, "later")
	if have, err := lake.CurrentBatches(ctx, store, 7); err != nil || have["b"] != "other" {
		t.Errorf("another batch changed: %v, %v", have, err)
	}
	// A repeated FinishIngest of the run brings its own record back, which the next publish sees.
	if _, err := lake.FinishIngest(ctx, store, 7, "a", "r1", "old"); err != nil {
		t.Fatal(err)
	}
	replace("a", "later", "moved", true, "moved")
	store.Inject(blobtest.Fault{Op: blob.OpGet})
	if _, err := lake.ReplaceRecord(ctx, store, 7, "a", "moved", "x"); !errors.Is(err, blobtest.ErrInjected) {
		t.Errorf("got %v", err)
	}
}
