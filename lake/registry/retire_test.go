package registry_test

import (
	"errors"
	"fmt"
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
	for info, err := range store.List(t.Context(), lake.BatchPrefix(1, "b")) {
		if err != nil {
			t.Fatal(err)
		}
		if mark, _, err := store.Get(t.Context(), info.Key); strings.HasSuffix(info.Key, lake.RetiredSuffix) &&
			!strings.Contains(string(mark), `"cancelled": true`) {
			t.Errorf("%s still counts: %s, %v", info.Key, mark, err)
		}
	}
}

// What a lost shard had retired stays retired, and can still be restored, whether a version has it
// or not.
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
		out, err := registry.RestoreShard(t.Context(), store, 1, live(1, published), map[string]bool{want["gone"]: true})
		if err != nil || len(out.Unclear) > 0 {
			t.Fatalf("%+v, %v", out, err)
		}
		if d := cmp.Diff(ids("gone", "replaced"), out.Retired); d != "" {
			t.Errorf("retired: %s", d)
		}
		got, err := registry.CurrentBatches(t.Context(), store, 1)
		live := map[string]string{"live": want["live"], "again": want["again"], "back": want["back"]}
		if d := cmp.Diff(live, got); d != "" || err != nil {
			t.Errorf("%v, %s", err, d)
		}
		for _, r := range registry.RestoreBatches(t.Context(), store, ids("gone", "replaced")) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		if got, err = registry.CurrentBatches(t.Context(), store, 1); cmp.Diff(want, got) != "" || err != nil {
			t.Errorf("%v, %s", err, cmp.Diff(want, got))
		}
	})
}

// An ingest with the record of a retired batch deletes the record's mark. If it is withdrawn, the
// batch is retired again and has its mark again; if it is then returned, the mark goes.
func TestMarkOfARetiredBatchAfterAWithdrawal(t *testing.T) {
	ctx, store := t.Context(), blob.NewMemory()
	if _, err := registry.RegisterDataset(ctx, store, lake.Dataset{Name: "one"}); err != nil {
		t.Fatal(err)
	}
	digest := fmt.Sprintf("%032x", 1)
	if _, err := store.Put(ctx, lake.BatchKey(1, "b", digest), []byte("bytes"), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	ingest := func(run string) {
		t.Helper()
		if _, err := registry.RegisterIngest(ctx, store, 1, "b", run); err != nil {
			t.Fatal(err)
		}
		if _, err := registry.FinishIngest(ctx, store, 1, "b", run, digest); err != nil {
			t.Fatal(err)
		}
	}
	marked := func(want bool) {
		t.Helper()
		_, err := store.Stat(ctx, lake.RetiredKey(1, "b", digest))
		if err != nil && !errors.Is(err, blob.ErrNotExist) || (err == nil) != want {
			t.Errorf("marked: %v, want %v", err, want)
		}
		if found := damaged(t, store); len(found) > 0 {
			t.Errorf("damaged: %q", found)
		}
	}
	ingest("first")
	if r := registry.RetireBatches(ctx, store, "retire", []registry.BatchID{{DatasetID: 1, Batch: "b"}}); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	marked(true)
	ingest("second")
	marked(false)
	in, ok, err := registry.WithdrawIngest(ctx, store, 1, "b", "second", digest)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	marked(true)
	// The call died before it wrote the mark, and is repeated.
	if err := store.Delete(ctx, lake.RetiredKey(1, "b", digest)); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := registry.WithdrawIngest(ctx, store, 1, "b", "second", digest); ok || err != nil {
		t.Fatal(ok, err)
	}
	marked(true)
	if err := registry.ReturnIngest(ctx, store, 1, "b", in); err != nil {
		t.Fatal(err)
	}
	marked(false)
}
