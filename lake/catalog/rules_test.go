package catalog_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
)

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
