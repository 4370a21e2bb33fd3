package registry_test

import (
	"errors"
	"testing"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/registry"
)

// A record is replaced only where it is the current one, and a repeated call finds that it was.
func TestReplaceRecord(t *testing.T) {
	ctx := t.Context()
	store := blobtest.NewFaulty(blob.NewMemory())
	finish := func(batch, run, digest string) {
		t.Helper()
		if _, err := registry.RegisterIngest(ctx, store, 7, batch, run); err != nil {
			t.Fatal(err)
		}
		if _, err := registry.FinishIngest(ctx, store, 7, batch, run, digest); err != nil {
			t.Fatal(err)
		}
	}
	finish("a", "r1", "old")
	finish("b", "r1", "other")
	replace := func(batch, from, to string, current bool, digest string) {
		t.Helper()
		got, err := registry.ReplaceRecord(ctx, store, 7, batch, from, to)
		if err != nil || got != current {
			t.Errorf("%s from %s to %s: %v, %v, want %v", batch, from, to, got, err, current)
		}
		have, err := registry.CurrentBatches(ctx, store, 7)
		if err != nil || have[batch] != digest {
			t.Errorf("%s: current is %q, %v, want %q", batch, have[batch], err, digest)
		}
	}
	store.Inject(blobtest.Fault{Op: blob.OpPut, Nth: 1, After: true}) // the reply is lost
	replace("a", "old", "new", true, "new")
	store.Heal()
	replace("a", "old", "new", true, "new")
	replace("a", "other", "newer", false, "new")
	// The ingest is still the one that finished with the old record, also if it finishes once more.
	finish("a", "r1", "old")
	replace("a", "new", "newest", true, "newest")
	ingests, err := registry.Ingests(ctx, store, 7)
	all := ingests["a"]
	if err != nil || len(all) != 1 || !all[0].Is("old") || !all[0].Is("newest") || all[0].Is("other") || all[0].Is("") {
		t.Errorf("ingests %+v, %v", all, err)
	}
	replace("absent", "old", "new", false, "")
	finish("a", "r2", "later")
	replace("a", "newest", "newer", false, "later")
	if have, err := registry.CurrentBatches(ctx, store, 7); err != nil || have["b"] != "other" {
		t.Errorf("another batch changed: %v, %v", have, err)
	}
	finish("a", "r2", "another") // of the same run, but not what it finished with before
	replace("a", "another", "moved", true, "moved")
	store.Inject(blobtest.Fault{Op: blob.OpGet})
	if _, err := registry.ReplaceRecord(ctx, store, 7, "a", "moved", "x"); !errors.Is(err, blobtest.ErrInjected) {
		t.Errorf("got %v", err)
	}
}
