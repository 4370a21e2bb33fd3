package catalog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
)

// onStores runs a test on a store in memory and on a local store.
func onStores(t *testing.T, test func(t *testing.T, store blob.Store)) {
	t.Run("memory", func(t *testing.T) { test(t, blob.NewMemory()) })
	t.Run("files", func(t *testing.T) {
		store, err := blob.NewLocal(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		test(t, store)
	})
}

// together runs f(0) to f(n-1) concurrently and fails the test if one returns an error.
func together(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestDatasetIDsAreAssignedInOrderAndKept(t *testing.T) {
	ctx := context.Background()
	onStores(t, func(t *testing.T, store blob.Store) {
		if got, err := catalog.Datasets(ctx, store); err != nil || len(got) != 0 {
			t.Fatalf("no registry: %v, %v", got, err)
		}
		for i, name := range []string{"crawl", "Crawl", "seeds", "crawl"} {
			d, err := catalog.RegisterDataset(ctx, store, lake.Dataset{ID: 77, Name: name})
			if err != nil {
				t.Fatal(err)
			}
			if want := uint32(i%3 + 1); d.ID != want {
				t.Errorf("%s is %d, want %d", name, d.ID, want)
			}
		}
		before, _, err := store.Get(ctx, lake.RegistryKey)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := catalog.RegisterDataset(ctx, store, lake.Dataset{Name: "seeds"}); err != nil {
			t.Fatal(err)
		}
		if after, _, _ := store.Get(ctx, lake.RegistryKey); !bytes.Equal(before, after) {
			t.Error("registering a known dataset changed the registry")
		}
		if _, err := catalog.RegisterDataset(ctx, store, lake.Dataset{Name: "seeds", Title: "Seeds", Licence: "CC0"}); err != nil {
			t.Fatal(err)
		}
		got, err := catalog.RegisterDataset(ctx, store, lake.Dataset{Name: "seeds", Source: "here", Licence: "CC-BY"})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(lake.Dataset{ID: 3, Name: "seeds", Title: "Seeds", Source: "here", Licence: "CC-BY"}, got); diff != "" {
			t.Errorf("differs: %s", diff)
		}
		if _, err := catalog.RegisterDataset(ctx, store, lake.Dataset{Name: "a/b"}); err == nil {
			t.Error("a name with a slash: no error")
		}
	})
}

func TestConcurrentRegistrations(t *testing.T) {
	ctx := context.Background()
	onStores(t, func(t *testing.T, store blob.Store) {
		const n = 20
		got := make([]lake.Dataset, n)
		together(t, n, func(i int) (err error) {
			// Each name is registered twice.
			got[i], err = catalog.RegisterDataset(ctx, store, lake.Dataset{Name: fmt.Sprintf("d%02d", i/2)})
			return err
		})
		all, err := catalog.Datasets(ctx, store)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) != n/2 {
			t.Fatalf("%d datasets, want %d", len(all), n/2)
		}
		for i, d := range all {
			if d.ID != uint32(i+1) {
				t.Errorf("dataset %d of the list has id %d", i, d.ID)
			}
		}
		for _, d := range got {
			if !slices.Contains(all, d) {
				t.Errorf("%+v is not registered", d)
			}
		}
	})
}

func TestLostRepliesDoNoHarm(t *testing.T) {
	ctx := context.Background()
	lost := errors.New("connection reset")
	onStores(t, func(t *testing.T, inner blob.Store) {
		store := blobtest.NewFaulty(inner)
		for _, err := range []error{lost, blob.ErrPrecondition} {
			// The put takes effect and its reply is lost; or the store retries it and reports that
			// the condition no longer holds.
			name := fmt.Sprintf("d-%d", len(err.Error()))
			for _, folder := range []string{"rules/", lake.RegistryKey} {
				store.Inject(blobtest.Fault{Op: blob.OpPut, Nth: 1, After: true, Err: err,
					Key: func(key string) bool {
						return strings.HasPrefix(key, folder) && !strings.HasPrefix(key, catalog.RegistryPiecesRoot)
					}})
			}
			d, e := catalog.RegisterDataset(ctx, store, lake.Dataset{Name: name})
			if e != nil {
				t.Fatalf("register after %v: %v", err, e)
			}
			store.Inject(blobtest.Fault{Op: blob.OpPut, Nth: 1, After: true, Err: err})
			if again, e := catalog.RegisterDataset(ctx, inner, lake.Dataset{Name: name}); e != nil || again != d {
				t.Errorf("%+v became %+v (%v)", d, again, e)
			}
			store.Heal()
		}
		all, err := catalog.Datasets(ctx, inner)
		if err != nil || len(all) != 2 || all[0].ID != 1 || all[1].ID != 2 {
			t.Errorf("%+v, %v", all, err)
		}
		// A put that did not take effect is an error, not a success.
		store.Inject(blobtest.Fault{Op: blob.OpPut, Err: lost})
		if _, err := catalog.RegisterDataset(ctx, store, lake.Dataset{Name: "none"}); !errors.Is(err, lost) {
			t.Errorf("got %v", err)
		}
		if all, _ := catalog.Datasets(ctx, inner); len(all) != 2 {
			t.Errorf("%+v", all)
		}
	})
}

func TestUpdateEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	store := blobtest.NewFaulty(blob.NewMemory())
	tries := 0
	isRegistry := func(key string) bool { return key == lake.RegistryKey }
	store.Inject(blobtest.Fault{Op: blob.OpPut, Key: isRegistry, Do: func() {
		if tries++; tries == 3 {
			cancel()
		}
	}, Err: blob.ErrPrecondition})
	if _, err := catalog.RegisterDataset(ctx, store, lake.Dataset{Name: "d"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v after %d tries", err, tries)
	}
}

func TestDamagedRegistryIsCorrupt(t *testing.T) {
	ctx := context.Background()
	store := blob.NewMemory()
	if _, err := catalog.RegisterDataset(ctx, store, lake.Dataset{Name: "d"}); err != nil {
		t.Fatal(err)
	}
	data, _, err := store.Get(ctx, lake.RegistryKey)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if _, err := store.Put(ctx, lake.RegistryKey, data, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	if _, err := catalog.RegisterDataset(ctx, store, lake.Dataset{Name: "e"}); !errors.Is(err, codec.ErrCorrupt) {
		t.Error(err)
	}
}

func TestLakeOfOtherCanonicalFormRejectsDatasets(t *testing.T) {
	ctx := context.Background()
	store := blob.NewMemory()
	if _, err := catalog.RegisterDataset(ctx, store, lake.Dataset{Name: "d"}); err != nil {
		t.Fatal(err)
	}
	data, _, err := store.Get(ctx, lake.RegistryKey)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := codec.Unseal(data, lake.RegistryKey, 99, &doc); err != nil {
		t.Fatal(err)
	}
	doc["rules"].(map[string]any)["canonical_form"] = "urlake-0"
	if data, err = codec.Seal(doc); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(ctx, lake.RegistryKey, data, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	var form *lake.FormError
	if _, err := catalog.RegisterDataset(ctx, store, lake.Dataset{Name: "d"}); !errors.As(err, &form) || form.Form != "urlake-0" {
		t.Errorf("register: %v", err)
	}
	if _, _, err := catalog.LoadRules(ctx, store); !errors.As(err, &form) {
		t.Errorf("load: %v", err)
	}
	rules, err := catalog.ReadRules(ctx, store)
	if err != nil || rules.CanonicalForm != "urlake-0" {
		t.Errorf("read: %+v, %v", rules, err)
	}
	if err := catalog.SetRules(ctx, store, rules, urlnorm.BuiltinSuffixes()); !errors.As(err, &form) {
		t.Errorf("set: %v", err)
	}
}

// If a registry is lost from a lake with objects, no id is given again.
func TestLostRegistryIsReportedAndRestored(t *testing.T) {
	ctx := context.Background()
	for _, left := range []string{"index/manifest.json", lake.BatchKey(7, "b", "0123"), lake.PostingsKey(7, "b", "0123")} {
		onStores(t, func(t *testing.T, store blob.Store) {
			put := func(key string, data []byte) {
				t.Helper()
				if _, err := store.Put(ctx, key, data, blob.Condition{}); err != nil {
					t.Fatal(err)
				}
			}
			put(lake.StagingPrefix("run")+"plan.json", []byte("x"))
			if out, err := catalog.RestoreRegistry(ctx, store, lake.CurrentRules(), nil); err != nil || len(out.Keys) > 0 {
				t.Fatalf("a new lake: %+v, %v", out, err)
			}
			put(left, []byte("x"))
			var c *codec.CorruptError
			if _, err := catalog.RegisterDataset(ctx, store, lake.Dataset{Name: "new"}); !errors.As(err, &c) || c.File != lake.RegistryKey {
				t.Fatalf("registry lost, %s left: %v", left, err)
			}
			known := []lake.Dataset{{ID: 5, Name: "five", Title: "Five"}, {ID: 2, Name: "two"}}
			out, err := catalog.RestoreRegistry(ctx, store, lake.CurrentRules(), known)
			want, next := []uint32{7}, uint32(8)
			if left == "index/manifest.json" {
				want, next = nil, 6
			}
			if err != nil || !out.Anew || !slices.Equal(out.Keys, []string{lake.RegistryKey}) || !slices.Equal(out.Nameless, want) {
				t.Fatalf("%+v, %v", out, err)
			}
			if d, err := catalog.RegisterDataset(ctx, store, lake.Dataset{Name: "new"}); err != nil || d.ID != next {
				t.Errorf("%+v, %v; want id %d", d, err, next)
			}
			if d, err := catalog.RegisterDataset(ctx, store, lake.Dataset{Name: "five"}); err != nil || d != known[0] {
				t.Errorf("%+v, %v", d, err)
			}
			if out, err := catalog.RestoreRegistry(ctx, store, lake.CurrentRules(), nil); err != nil || len(out.Keys) > 0 {
				t.Errorf("an intact registry: %+v, %v", out, err)
			}
		})
	}
}
