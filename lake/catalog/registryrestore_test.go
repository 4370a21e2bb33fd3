package catalog_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
)

// A registry is restored with the names of datasets of which nothing is published.
func TestRegistryIsRestoredFromItsCopy(t *testing.T) {
	onStores(t, func(t *testing.T, store blob.Store) {
		var want []lake.Dataset
		for _, name := range []string{"one", "two", "three"} {
			d, err := catalog.RegisterDataset(t.Context(), store, lake.Dataset{Name: name, Title: "Title of " + name})
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, d)
		}
		if err := store.Delete(t.Context(), lake.RegistryKey); err != nil {
			t.Fatal(err)
		}
		if _, err := catalog.Datasets(t.Context(), store); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("lost: %v", err)
		}
		version := []lake.Dataset{{ID: 2, Name: "two", Title: "An older title"}}
		out, err := catalog.RestoreRegistry(t.Context(), store, lake.CurrentRules(), version)
		if !slices.Equal(out.Keys, []string{lake.RegistryKey}) || out.Anew || len(out.Nameless) > 0 || err != nil {
			t.Fatalf("%+v, %v", out, err)
		}
		if got, err := catalog.Datasets(t.Context(), store); err != nil || cmp.Diff(want, got) != "" {
			t.Errorf("%v, %v; want %v", got, err, want)
		}
		// A damaged copy is written again.
		if _, err := store.Put(t.Context(), catalog.RegistryCopyKey, []byte("damaged"), blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		if got := damaged(t, store); !slices.Equal(got, []string{catalog.RegistryCopyKey}) {
			t.Errorf("damaged are %q", got)
		}
		out, err = catalog.RestoreRegistry(t.Context(), store, lake.CurrentRules(), version)
		if err != nil || !slices.Equal(out.Keys, []string{catalog.RegistryCopyKey}) || len(damaged(t, store)) > 0 {
			t.Errorf("%+v, %v", out, err)
		}
	})
}

// damaged returns the objects that Check finds damaged.
func damaged(t *testing.T, store blob.Store) (keys []string) {
	t.Helper()
	err := catalog.CheckRegistry(t.Context(), store, func(err error) error {
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
// was told is forgotten but the titles of datasets that no version has.
func TestEveryLostObjectIsRestored(t *testing.T) {
	ctx := t.Context()
	for _, how := range []string{"missing", "flipped"} {
		original := blob.NewMemory()
		var named []lake.Dataset
		for n := range 300 {
			named = append(named, lake.Dataset{Name: fmt.Sprint("d", n), Title: "title"})
		}
		datasets, err := catalog.RegisterDatasets(ctx, original, named)
		if err != nil {
			t.Fatal(err)
		}
		keys := current(t, original)
		if len(keys) < 4 {
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
			if got := damaged(t, store); !slices.Equal(got, []string{key}) && (how == "flipped" || key != catalog.RegistryCopyKey) {
				t.Errorf("%s is %s: found %q", key, how, got)
			}
			if _, err := catalog.RestoreRegistry(ctx, store, lake.CurrentRules(), datasets[:32]); err != nil {
				t.Errorf("%s: %v", key, err)
			}
			if got := damaged(t, store); len(got) > 0 {
				t.Errorf("%s was %s: left are %q", key, how, got)
			}
			got, err := catalog.Datasets(ctx, store)
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

// current returns the keys of the objects that the registry consists of now: documents, and the
// pieces that Check reads.
func current(t *testing.T, store blob.Store) (keys []string) {
	t.Helper()
	trace := &blob.Trace{}
	ctx := blob.WithTrace(t.Context(), trace)
	if err := catalog.CheckRegistry(ctx, blob.NewCounting(store), func(err error) error { return err }); err != nil {
		t.Fatal(err)
	}
	for _, a := range trace.Accesses() {
		if a.Op == blob.OpGet && !slices.Contains(keys, a.Key) {
			keys = append(keys, a.Key)
		}
	}
	return keys
}
