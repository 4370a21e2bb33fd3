package registry_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/registry"
)

// putRecord writes a batch record with that many rows and returns its digest.
func putRecord(t *testing.T, store blob.Store, dataset uint32, batch string, rows int64) string {
	t.Helper()
	b := lake.Batch{Format: lake.BatchFormat, DatasetID: dataset, Batch: batch, Rows: rows}
	data, digest, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(t.Context(), lake.BatchKey(dataset, batch, digest), data, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	return digest
}

// A lost shard of the ledger comes back from the version and the batch records. What cannot be
// known is said.
func TestShardIsRestoredFromRecords(t *testing.T) {
	onStores(t, func(t *testing.T, store blob.Store) {
		if _, err := registry.RegisterDataset(t.Context(), store, lake.Dataset{Name: "one"}); err != nil {
			t.Fatal(err)
		}
		key := registry.ShardKey(1)
		if err := store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		old := putRecord(t, store, 1, "live", 1)
		again := putRecord(t, store, 1, "again", 1)
		newer := putRecord(t, store, 1, "again", 2)
		before := putRecord(t, store, 1, "before", 1)
		after := putRecord(t, store, 1, "before", 2)
		waits := putRecord(t, store, 1, "waits", 1)
		one, two := putRecord(t, store, 1, "unclear", 1), putRecord(t, store, 1, "unclear", 2)
		bad := lake.BatchKey(1, "bad", strings.Repeat("0", 32))
		if _, err := store.Put(t.Context(), bad, []byte("damaged"), blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		putRecord(t, store, 11, "other-dataset", 1)
		published := map[string]string{"live": old, "again": again, "before": after}
		out, err := registry.RestoreShard(t.Context(), store, 1, live(1, published), []string{before})
		missing := []registry.BatchID{{DatasetID: 1, Batch: "waits"}}
		if err != nil || !slices.Equal(out.Keys, []string{key}) || !slices.Equal(out.Retired, missing) || len(out.Found) > 0 {
			t.Fatalf("%+v, %v", out, err)
		}
		got, err := registry.CurrentBatches(t.Context(), store, 1)
		want := map[string]string{"live": old, "again": again, "before": after}
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%v, %s", err, d)
		}
		said := strings.Join(out.Unclear, "\n")
		for _, s := range []string{newer, one, two, bad} {
			if !strings.Contains(said, s) {
				t.Errorf("%s is not in %q", s, said)
			}
		}
		if len(out.Unclear) != 3 {
			t.Errorf("%q", out.Unclear)
		}
		pending, settled, err := registry.PendingBatches(t.Context(), store, func(_ int, err error) { t.Error(err) })
		if err != nil || settled != 3 || len(pending) != 1 || !pending[0].Retired || pending[0].Batch != "waits" {
			t.Errorf("%+v wait, %d do not, %v", pending, settled, err)
		}
		if r := registry.RestoreBatches(t.Context(), store, missing)[0]; r.Err != nil || r.Ingest.Digest != waits {
			t.Errorf("restored: %+v", r)
		}
		if out, err := registry.RestoreShard(t.Context(), store, 1, live(1, nil), nil); err != nil || len(out.Keys) > 0 {
			t.Errorf("an intact one: %+v, %v", out, err)
		}
	})
}

// A registry is restored with the names of datasets of which nothing is published.
func TestRegistryIsRestoredFromItsCopy(t *testing.T) {
	onStores(t, func(t *testing.T, store blob.Store) {
		var want []lake.Dataset
		for _, name := range []string{"one", "two", "three"} {
			d, err := registry.RegisterDataset(t.Context(), store, lake.Dataset{Name: name, Title: "Title of " + name})
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, d)
		}
		if err := store.Delete(t.Context(), lake.RegistryKey); err != nil {
			t.Fatal(err)
		}
		if _, err := registry.Datasets(t.Context(), store); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("lost: %v", err)
		}
		version := []lake.Dataset{{ID: 2, Name: "two", Title: "An older title"}}
		out, err := registry.RestoreRegistry(t.Context(), store, lake.CurrentRules(), version)
		if !slices.Equal(out.Keys, []string{lake.RegistryKey}) || out.Anew || len(out.Nameless) > 0 || err != nil {
			t.Fatalf("%+v, %v", out, err)
		}
		if got, err := registry.Datasets(t.Context(), store); err != nil || cmp.Diff(want, got) != "" {
			t.Errorf("%v, %v; want %v", got, err, want)
		}
		// A damaged copy is written again.
		if _, err := store.Put(t.Context(), registry.CopyKey, []byte("damaged"), blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		if got := damaged(t, store); !slices.Equal(got, []string{registry.CopyKey}) {
			t.Errorf("damaged are %q", got)
		}
		out, err = registry.RestoreRegistry(t.Context(), store, lake.CurrentRules(), version)
		if err != nil || !slices.Equal(out.Keys, []string{registry.CopyKey}) || len(damaged(t, store)) > 0 {
			t.Errorf("%+v, %v", out, err)
		}
	})
}

// damaged returns the objects that Check finds damaged.
func damaged(t *testing.T, store blob.Store) (keys []string) {
	t.Helper()
	err := registry.Check(t.Context(), store, func(err error) error {
		var c *codec.CorruptError
		if !errors.As(err, &c) {
			return err
		}
		keys = append(keys, c.File)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// Every object of the registry that is lost alone is found and restored, and nothing that anyone
// was told is forgotten but the titles of datasets that no version has and runs of the lost part.
func TestEveryLostObjectIsRestored(t *testing.T) {
	ctx := t.Context()
	for _, how := range []string{"missing", "flipped"} {
		original := blob.NewMemory()
		var named []lake.Dataset
		for n := range 300 {
			named = append(named, lake.Dataset{Name: fmt.Sprint("d", n), Title: "title"})
		}
		datasets, err := registry.RegisterDatasets(ctx, original, named)
		if err != nil {
			t.Fatal(err)
		}
		records := map[registry.BatchID]string{}
		var published []registry.Pending
		for _, d := range datasets[:32] {
			for n := range 40 {
				id := registry.BatchID{DatasetID: d.ID, Batch: fmt.Sprintf("b%02d", n)}
				digest := putRecord(t, original, d.ID, id.Batch, int64(n))
				records[id] = digest
				if n < 38 { // the others wait to be published
					published = append(published, registry.Pending{DatasetID: d.ID, Batch: id.Batch, Digest: digest})
				}
			}
		}
		finishAll(t, original, records)
		if err := registry.Settle(ctx, original, "v1", published); err != nil {
			t.Fatal(err)
		}
		version := func() (map[registry.BatchID]string, error) {
			all := map[registry.BatchID]string{}
			for _, p := range published {
				all[registry.BatchID{DatasetID: p.DatasetID, Batch: p.Batch}] = p.Digest
			}
			return all, nil
		}
		keys := current(t, original)
		if len(keys) < 2+registry.Shards+registry.Shards {
			t.Fatalf("%d objects: %q", len(keys), keys)
		}
		for _, key := range keys {
			store := blob.NewMemory()
			for info, err := range original.List(ctx, "") {
				if err != nil {
					t.Fatal(err)
				}
				data, _, err := original.Get(ctx, info.Key)
				if err == nil {
					_, err = store.Put(ctx, info.Key, data, blob.Condition{})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			data, _, err := store.Get(ctx, key)
			if err != nil {
				t.Fatal(err)
			}
			if how == "missing" {
				err = store.Delete(ctx, key)
			} else {
				flipped := slices.Clone(data)
				flipped[len(data)/2] ^= 1
				_, err = store.Put(ctx, key, flipped, blob.Condition{})
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := damaged(t, store); !slices.Equal(got, []string{key}) && (how == "flipped" || key != registry.CopyKey) {
				t.Errorf("%s is %s: found %q", key, how, got)
			}
			if _, err := registry.RestoreRegistry(ctx, store, lake.CurrentRules(), datasets[:32]); err != nil {
				t.Errorf("%s: %v", key, err)
			}
			for n := range registry.Shards {
				shard := func() (map[registry.BatchID]string, error) {
					all, _ := version()
					for id := range all {
						if registry.ShardOf(id.DatasetID) != n {
							delete(all, id)
						}
					}
					return all, nil
				}
				if out, err := registry.RestoreShard(ctx, store, n, shard, nil); err != nil || len(out.Unclear) > 0 {
					t.Errorf("%s: %+v, %v", key, out, err)
				}
			}
			if got := damaged(t, store); len(got) > 0 {
				t.Errorf("%s was %s: left are %q", key, how, got)
			}
			pending, settled, err := registry.PendingBatches(ctx, store, func(_ int, err error) { t.Error(err) })
			if err != nil || len(pending) != len(records)-len(published) || settled != int64(len(published)) {
				t.Errorf("%s was %s: %d wait, %d are settled, %v", key, how, len(pending), settled, err)
			}
			got, err := registry.Datasets(ctx, store)
			if err != nil || len(got) != len(datasets) {
				t.Fatalf("%s was %s: %d datasets, %v", key, how, len(got), err)
			}
			for i, d := range got {
				if d.ID != datasets[i].ID || d.Name != datasets[i].Name {
					t.Errorf("%s was %s: %+v, want %+v", key, how, d, datasets[i])
				}
			}
			if t.Failed() {
				return
			}
		}
	}
}

// finishAll registers and finishes ingests with these records.
func finishAll(t *testing.T, store blob.Store, records map[registry.BatchID]string) {
	t.Helper()
	var ids []registry.IngestID
	var done []registry.Finish
	for id, digest := range records {
		in := registry.IngestID{DatasetID: id.DatasetID, Batch: id.Batch, Run: "run of " + id.Batch}
		ids = append(ids, in)
		done = append(done, registry.Finish{IngestID: in, Digest: digest})
	}
	for _, out := range append(registry.RegisterIngests(t.Context(), store, ids), registry.FinishIngests(t.Context(), store, done)...) {
		if out.Err != nil {
			t.Fatal(out.Err)
		}
	}
}

// current returns the keys of the objects that the registry consists of now: documents, and the
// pieces that Check reads.
func current(t *testing.T, store blob.Store) (keys []string) {
	t.Helper()
	trace := &blob.Trace{}
	ctx := blob.WithTrace(t.Context(), trace)
	if err := registry.Check(ctx, blob.NewCounting(store), func(err error) error { return err }); err != nil {
		t.Fatal(err)
	}
	for _, a := range trace.Accesses() {
		if a.Op == blob.OpGet && !slices.Contains(keys, a.Key) {
			keys = append(keys, a.Key)
		}
	}
	return keys
}

// Ingests that never finish do not make the registry grow for ever.
func TestUnfinishedIngestsDoNotPileUp(t *testing.T) {
	store := blob.NewMemory()
	size := func() int {
		t.Helper()
		data, _, err := store.Get(t.Context(), registry.ShardKey(registry.ShardOf(1)))
		if err != nil {
			t.Fatal(err)
		}
		return len(data)
	}
	register := func(n int) {
		t.Helper()
		if _, err := registry.RegisterIngest(t.Context(), store, 1, fmt.Sprint("b", n), fmt.Sprint("run", n)); err != nil {
			t.Fatal(err)
		}
	}
	register(0)
	if _, err := registry.FinishIngest(t.Context(), store, 1, "b0", "run0", "0123"); err != nil {
		t.Fatal(err)
	}
	before := size()
	for n := 1; n < 50; n++ {
		register(n)
		if err := registry.AbandonIngest(t.Context(), store, 1, fmt.Sprint("b", n), fmt.Sprint("run", n)); err != nil {
			t.Fatal(err)
		}
	}
	if after := size(); after > before+10 {
		t.Errorf("%d bytes after 50 abandoned ingests, %d before", after, before)
	}
	if _, err := registry.FinishIngest(t.Context(), store, 1, "b7", "run7", "4567"); !errors.Is(err, registry.ErrUnknownRun) {
		t.Errorf("an abandoned run finishes: %v", err)
	}
	// A finished ingest is not abandoned, nor one of another dataset that has no registry.
	for dataset := uint32(1); dataset <= 2; dataset++ {
		if err := registry.AbandonIngest(t.Context(), store, dataset, "b0", "run0"); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := registry.CurrentBatches(t.Context(), store, 1); err != nil || got["b0"] != "0123" {
		t.Errorf("%v, %v", got, err)
	}
}
