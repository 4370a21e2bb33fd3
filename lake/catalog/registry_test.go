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

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
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

func TestRegistryIsAsItsPageShows(t *testing.T) {
	ctx := context.Background()
	store := blob.NewMemory()
	for _, d := range []lake.Dataset{
		{Name: "eot-2024", Title: "End of Term 2024 seeds", Source: "https://github.com/end-of-term/eot2024", Licence: "Apache-2.0"},
		{Name: "smallweb"},
	} {
		if _, err := catalog.RegisterDataset(ctx, store, d); err != nil {
			t.Fatal(err)
		}
	}
	for info, key := range map[string]string{"json datasets": lake.RegistryKey} {
		data, _, err := store.Get(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		testenv.Shows(t, "registry.md", info, string(data))
	}
}

// A restored registry has the names of datasets without published batches, too.
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

func parseList(t *testing.T, dat string) *urlnorm.SuffixList {
	t.Helper()
	list, err := urlnorm.ParseSuffixList([]byte(dat))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func exists(t *testing.T, store blob.Store, key string) bool {
	t.Helper()
	_, err := store.Stat(t.Context(), key)
	if err != nil && !errors.Is(err, blob.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func TestNewLakePinsTheProgramsList(t *testing.T) {
	ctx := context.Background()
	own := urlnorm.BuiltinSuffixes()
	key := lake.SuffixListKey(own.Identity())
	onStores(t, func(t *testing.T, inner blob.Store) {
		store := blobtest.NewFaulty(inner)
		lost := errors.New("no route to host")
		for _, folder := range []string{"rules/", "registry/"} {
			store.Inject(blobtest.Fault{Op: blob.OpPut, Err: lost, Key: func(key string) bool { return strings.HasPrefix(key, folder) }})
			if _, err := catalog.RegisterDataset(ctx, store, lake.Dataset{Name: "d"}); !errors.Is(err, lost) {
				t.Errorf("%s: %v", folder, err)
			}
			store.Heal()
			// What the registry would name is there before the registry.
			if exists(t, inner, lake.RegistryKey) || exists(t, inner, key) != (folder == "registry/") {
				t.Errorf("a put in %s fails: wrong order of writes", folder)
			}
		}
		rules, list, err := catalog.LoadRules(ctx, inner)
		if err != nil || rules != lake.CurrentRules() || list != own {
			t.Errorf("a new lake: %+v, %v", rules, err)
		}
		if _, err := catalog.RegisterDataset(ctx, store, lake.Dataset{Name: "d"}); err != nil {
			t.Fatal(err)
		}
		if rules, err := catalog.ReadRules(ctx, inner); err != nil || rules != lake.CurrentRules() {
			t.Errorf("%+v, %v", rules, err)
		}
		// The next writer adds the object to a lake that has none.
		for _, damage := range []func() error{
			func() error { return inner.Delete(ctx, key) },
			func() error { _, err := inner.Put(ctx, key, []byte("half"), blob.Condition{}); return err },
		} {
			if err := damage(); err != nil {
				t.Fatal(err)
			}
			if _, err := catalog.RegisterDataset(ctx, inner, lake.Dataset{Name: "d"}); err != nil {
				t.Fatal(err)
			}
			data, _, err := inner.Get(ctx, key)
			if err != nil || !strings.HasSuffix(string(data), "\n"+own.Text()) {
				t.Errorf("%d bytes, %v", len(data), err)
			}
		}
	})
}

// A program whose list is another one than the lake's goes on with the lake's. A lake whose list is
// nowhere says which it is and what to do.
func TestLakeKeepsItsList(t *testing.T) {
	ctx := context.Background()
	store := blob.NewMemory()
	list := testlake.SetList(t, store, "com example.com uk")
	if _, err := catalog.RegisterDataset(ctx, store, lake.Dataset{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	rules, got, err := catalog.LoadRules(ctx, store)
	if err != nil || rules != lake.RulesOf(list) || got.Text() != list.Text() {
		t.Errorf("%+v, %v", rules, err)
	}
	testlake.LoseList(t, store, list)
	for name, f := range map[string]func() error{
		"load": func() error { _, _, err := catalog.LoadRules(ctx, store); return err },
		"register": func() error {
			_, err := catalog.RegisterDataset(ctx, store, lake.Dataset{Name: "b"})
			return err
		},
	} {
		var missing *lake.MissingListError
		err := f()
		if !errors.As(err, &missing) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range []string{list.Identity(), lake.SuffixListKey(list.Identity()), "starter rules update --lake", "--psl FILE"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", name, err, want)
			}
		}
	}
	if all, err := catalog.Datasets(ctx, store); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	// It is moved all the same.
	if err := catalog.SetRules(ctx, store, rules, urlnorm.BuiltinSuffixes()); err != nil {
		t.Fatal(err)
	}
	if d, err := catalog.RegisterDataset(ctx, store, lake.Dataset{Name: "b"}); err != nil || d.ID != 2 {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestSetRules(t *testing.T) {
	ctx := context.Background()
	a, b := parseList(t, "com\nuk\n"), parseList(t, "com\nco.uk\n")
	onStores(t, func(t *testing.T, store blob.Store) {
		set := func(from lake.Rules, to *urlnorm.SuffixList) error { return catalog.SetRules(ctx, store, from, to) }
		var changed *catalog.RulesChangedError
		if err := set(lake.RulesOf(a), b); !errors.As(err, &changed) || changed.Got != (lake.Rules{}) {
			t.Errorf("a new lake has rules: %v", err)
		}
		if err := set(lake.Rules{}, a); err != nil {
			t.Fatal(err)
		}
		if d, err := catalog.RegisterDataset(ctx, store, lake.Dataset{Name: "d"}); err != nil || d.ID != 1 {
			t.Errorf("%+v, %v", d, err)
		}
		if err := set(lake.CurrentRules(), b); !errors.As(err, &changed) || changed.Got != lake.RulesOf(a) {
			t.Errorf("other rules: %v", err)
		}
		for range 2 { // a repetition finds its own change
			if err := set(lake.RulesOf(a), b); err != nil {
				t.Fatal(err)
			}
		}
		if rules, err := catalog.ReadRules(ctx, store); err != nil || rules != lake.RulesOf(b) {
			t.Errorf("%+v, %v", rules, err)
		}
		// Versions still follow the list before.
		for _, list := range []*urlnorm.SuffixList{a, b} {
			if !exists(t, store, lake.SuffixListKey(list.Identity())) {
				t.Errorf("no object of %q", list.Identity())
			}
		}
		// A damaged object is written again.
		key := lake.SuffixListKey(b.Identity())
		good, _, err := store.Get(ctx, key)
		if err == nil {
			_, err = store.Put(ctx, key, []byte("damaged"), blob.Condition{})
		}
		if err == nil {
			err = set(lake.RulesOf(b), b)
		}
		if data, _, e := store.Get(ctx, key); err != nil || e != nil || string(data) != string(good) {
			t.Errorf("%q, %v, %v", data, err, e)
		}
		if all, err := catalog.Datasets(ctx, store); err != nil || len(all) != 1 {
			t.Errorf("%+v, %v", all, err)
		}
	})
	// The old list is this program's, in a lake from before lists were objects.
	store := blob.NewMemory()
	if _, err := catalog.RegisterDataset(ctx, store, lake.Dataset{Name: "d"}); err != nil {
		t.Fatal(err)
	}
	key := lake.SuffixListKey(urlnorm.BuiltinSuffixes().Identity())
	if err := store.Delete(ctx, key); err != nil {
		t.Fatal(err)
	}
	if err := catalog.SetRules(ctx, store, lake.CurrentRules(), a); err != nil || !exists(t, store, key) {
		t.Errorf("the list that versions follow is an object: %v, %v", exists(t, store, key), err)
	}
	// The rules of a lake whose registry is lost are not those of a new lake.
	if _, err := store.Put(ctx, lake.BatchKey(1, "b", "0123"), []byte("x"), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(ctx, lake.RegistryKey); err != nil {
		t.Fatal(err)
	}
	if _, err := catalog.ReadRules(ctx, store); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("read: %v", err)
	}
	if err := catalog.SetRules(ctx, store, lake.Rules{}, a); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("set: %v", err)
	}
}

func TestSuffixListIsAsItsPageShows(t *testing.T) {
	ctx := context.Background()
	store := blob.NewMemory()
	list := parseList(t, "// VERSION: 2026-02-06_07-36-33_UTC\ncom\nuk\nco.uk\nрф\n*.ck\n!www.ck\n")
	if err := catalog.SetRules(ctx, store, lake.Rules{}, list); err != nil {
		t.Fatal(err)
	}
	key := lake.SuffixListKey(list.Identity())
	data, _, err := store.Get(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	testenv.Shows(t, "public-suffix.md", "text", string(data))
	// The object can be given to --psl.
	if again := parseList(t, string(data)); !again.SameRules(list) {
		t.Errorf("parsed again, the rules are %q", again.Text())
	}
	load := func(data []byte) (*urlnorm.SuffixList, error) {
		if _, err := store.Put(ctx, key, data, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		return lake.LoadSuffixList(ctx, store, list.Identity())
	}
	for i := range data {
		bad := []byte(string(data))
		bad[i] ^= 4
		if _, err := load(bad); !errors.Is(err, codec.ErrCorrupt) || !strings.Contains(err.Error(), key) {
			t.Errorf("byte %d changed: %v", i, err)
		}
		if _, err := load(data[:i]); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
	other := parseList(t, "com\n")
	if err := catalog.SetRules(ctx, store, lake.RulesOf(list), other); err != nil {
		t.Fatal(err)
	}
	swapped, _, err := store.Get(ctx, lake.SuffixListKey(other.Identity()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := load(swapped); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("another list: %v", err)
	}
	got, err := load(data)
	if err != nil || got.Identity() != list.Identity() || got.Text() != list.Text() {
		t.Errorf("%+v, %v", got, err)
	}
}
