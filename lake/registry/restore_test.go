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

// A lost order of ingests comes back from the version and the batch records. What cannot be known
// is said.
func TestBatchRegistryIsRestoredFromRecords(t *testing.T) {
	onStores(t, func(t *testing.T, store blob.Store) {
		live := putRecord(t, store, 1, "live", 1)
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
		published := map[string]registry.Record{"live": {Digest: live}, "again": {Digest: again}, "before": {Digest: after}}
		out, err := registry.RestoreBatchRegistry(t.Context(), store, 1, published, map[string]bool{before: true})
		if err != nil || !out.Restored || !slices.Equal(out.Found, []string{"waits"}) {
			t.Fatalf("%+v, %v", out, err)
		}
		got, err := registry.CurrentBatches(t.Context(), store, 1)
		want := map[string]string{"live": live, "again": again, "before": after, "waits": waits}
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
		if out, err := registry.RestoreBatchRegistry(t.Context(), store, 1, nil, nil); err != nil || out.Restored {
			t.Errorf("an intact one: %+v, %v", out, err)
		}
	})
}

// A registry is restored with the names of datasets of which nothing is published.
func TestRegistryIsRestoredFromItsCopies(t *testing.T) {
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
		restored, nameless, err := registry.RestoreRegistry(t.Context(), store, lake.CurrentRules(), version)
		if !restored || len(nameless) > 0 || err != nil {
			t.Fatalf("%v, %v, %v", restored, nameless, err)
		}
		if got, err := registry.Datasets(t.Context(), store); err != nil || cmp.Diff(want, got) != "" {
			t.Errorf("%v, %v; want %v", got, err, want)
		}
		// A damaged copy is written again.
		key := registry.DatasetCopyKey(2)
		if _, err := store.Put(t.Context(), key, []byte("damaged"), blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		if err := registry.CheckCopy(t.Context(), store, 2); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("damaged copy: %v", err)
		}
		if keys, err := registry.RestoreCopies(t.Context(), store); err != nil || !slices.Equal(keys, []string{key}) {
			t.Errorf("%v, %v", keys, err)
		}
		if err := registry.CheckCopy(t.Context(), store, 2); err != nil {
			t.Error(err)
		}
	})
}

// Ingests that never finish do not make the registry grow for ever.
func TestUnfinishedIngestsDoNotPileUp(t *testing.T) {
	store := blob.NewMemory()
	size := func() int {
		t.Helper()
		data, _, err := store.Get(t.Context(), lake.BatchRegistryKey(1))
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
