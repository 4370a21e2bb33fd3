package registry_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/registry"
)

// finishAs registers and finishes an ingest of dataset 1 with a record of that many rows.
func finishAs(t *testing.T, store blob.Store, batch, run string, rows int64) string {
	t.Helper()
	digest := putRecord(t, store, 1, batch, rows)
	if _, err := registry.RegisterIngest(t.Context(), store, 1, batch, run); err != nil {
		t.Fatal(err)
	}
	if _, err := registry.FinishIngest(t.Context(), store, 1, batch, run, digest); err != nil {
		t.Fatal(err)
	}
	return digest
}

// A retirement or restoration whose replies are lost has happened once, and says so.
func TestRetirementWithLostReplies(t *testing.T) {
	store := blobtest.NewFaulty(blob.NewMemory())
	if _, err := registry.RegisterDataset(t.Context(), store, lake.Dataset{Name: "one"}); err != nil {
		t.Fatal(err)
	}
	digest := finishAs(t, store, "b", "run", 1)
	id := []registry.BatchID{{DatasetID: 1, Batch: "b"}}
	lose := func() {
		store.Heal()
		store.Inject(blobtest.Fault{Op: blob.OpPut, Key: func(key string) bool { return key == registry.ShardKey(1) }, Nth: 1, After: true})
	}
	lose()
	r := registry.RetireBatches(t.Context(), store, "retire", id)[0]
	if r.Err != nil || r.Already || r.Ingest.Digest != digest || store.Fired() != 1 {
		t.Fatalf("%+v, %d faults", r, store.Fired())
	}
	if r := registry.RetireBatches(t.Context(), store, "retire", id)[0]; r.Err != nil || r.Already {
		t.Errorf("the same call again: %+v", r)
	}
	if r := registry.RetireBatches(t.Context(), store, "other", id)[0]; r.Err != nil || !r.Already {
		t.Errorf("another call: %+v", r)
	}
	if all, err := registry.IngestsOf(t.Context(), store, id); err != nil || len(all[id[0]]) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
	lose()
	if r := registry.RestoreBatches(t.Context(), store, id)[0]; r.Err != nil || r.Ingest.Digest != digest || store.Fired() != 2 {
		t.Fatalf("%+v, %d faults", r, store.Fired())
	}
	store.Heal()
	if all, err := registry.IngestsOf(t.Context(), store, id); err != nil || len(all[id[0]]) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}

// What a lost shard had retired stays retired, and can still be restored. If no version tells which
// record was the newest, the batch is named.
func TestLostShardBringsNothingRetiredBack(t *testing.T) {
	onStores(t, func(t *testing.T, store blob.Store) {
		if _, err := registry.RegisterDataset(t.Context(), store, lake.Dataset{Name: "one"}); err != nil {
			t.Fatal(err)
		}
		finishAs(t, store, "replaced", "r1", 1) // no version knows it
		want := map[string]string{"replaced": finishAs(t, store, "replaced", "r2", 2)}
		published := map[string]string{}
		for i, batch := range []string{"live", "gone", "again", "back"} {
			want[batch] = finishAs(t, store, batch, "r", int64(i))
			published[batch] = want[batch]
		}
		delete(published, "gone")
		ids := func(names ...string) (ids []registry.BatchID) {
			for _, name := range names {
				ids = append(ids, registry.BatchID{DatasetID: 1, Batch: name})
			}
			return ids
		}
		for _, r := range registry.RetireBatches(t.Context(), store, "retire", ids("replaced", "gone", "again", "back")) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		if r := registry.RestoreBatches(t.Context(), store, ids("back"))[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
		want["again"] = finishAs(t, store, "again", "later", 9)
		delete(published, "again")
		if err := store.Delete(t.Context(), registry.ShardKey(1)); err != nil {
			t.Fatal(err)
		}
		out, err := registry.RestoreShard(t.Context(), store, 1, live(1, published), []string{want["gone"]})
		if err != nil || len(out.Unclear) != 2 || !strings.Contains(out.Unclear[1], "replaced") {
			t.Fatalf("%+v, %v", out, err)
		}
		if d := cmp.Diff(ids("gone"), out.Retired); d != "" {
			t.Errorf("retired: %s", d)
		}
		got, err := registry.CurrentBatches(t.Context(), store, 1)
		live := map[string]string{"live": want["live"], "back": want["back"]}
		if d := cmp.Diff(live, got); d != "" || err != nil {
			t.Errorf("%v, %s", err, d)
		}
		for _, r := range registry.RestoreBatches(t.Context(), store, ids("gone")) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		live["gone"] = want["gone"]
		if got, err = registry.CurrentBatches(t.Context(), store, 1); cmp.Diff(live, got) != "" || err != nil {
			t.Errorf("%v, %s", err, cmp.Diff(live, got))
		}
	})
}
