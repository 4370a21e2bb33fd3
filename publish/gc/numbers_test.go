package gc_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/export/domain64/numbers"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/publish/gc"
)

// numberedNames returns all names that have numbers in the document's layout.
func numberedNames(t testing.TB, store blob.Store) map[domain64.Name]domain64.Code {
	t.Helper()
	all := map[domain64.Name]domain64.Code{}
	for e, err := range numbers.Open(store, domain64.Document).All(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name] = e.Code
	}
	return all
}

// A collection deletes the pieces that later numbers replaced, and nothing else of them.
func TestNumbersOfDomain64AreKept(t *testing.T) {
	store := blob.NewMemory()
	used(t, store)
	want := numberedNames(t, store)
	if len(want) != 402 {
		t.Fatalf("%d names have numbers, want 402", len(want))
	}
	res := collect(t, store, now())
	if res.Deleted["pieces of domain64 numbers"].Objects == 0 {
		t.Errorf("deleted %+v, want pieces of replaced numbers", res.Deleted)
	}
	if got := numberedNames(t, store); !maps.Equal(got, want) {
		t.Errorf("%d names have numbers after a collection, want %d", len(got), len(want))
	}
	live := 0
	for key, err := range numbers.Pieces(t.Context(), store) {
		if err != nil {
			t.Fatal(key, err)
		}
		live++
	}
	if n := len(objects(t, store, numbers.PiecesRoot)); n != live {
		t.Errorf("%d pieces are left, of which %d are needed", n, live)
	}
	// A lake that lost the document is not collected: its pieces are what is left of the numbers.
	if err := store.Delete(t.Context(), numbers.Key); err != nil {
		t.Fatal(err)
	}
	if _, err := gc.Collect(t.Context(), store, now()); err == nil || !strings.Contains(err.Error(), numbers.Key) {
		t.Errorf("collection without the document of numbers: %v", err)
	}
	if n := len(objects(t, store, numbers.PiecesRoot)); n != live {
		t.Errorf("%d pieces are left, want all %d", n, live)
	}
}

// Numbers that are given while collections delete pieces stay whole.
func TestNumbersAreGivenWhileCollecting(t *testing.T) {
	store := blob.NewMemory()
	used(t, store)
	want := numberedNames(t, store)
	var g errgroup.Group
	stop := make(chan struct{})
	collections := 0
	g.Go(func() error {
		for {
			select {
			case <-stop:
				return nil
			default:
			}
			if _, err := gc.Collect(t.Context(), store, now()); err != nil {
				return err
			}
			collections++
		}
	})
	r := numbers.Open(store, domain64.Document)
	for i := range 40 {
		// The content of a layout goes back and forth between few states: another layout's
		// numbers are the same pieces.
		names := []domain64.Name{{TLD: "com", Domain: fmt.Sprint("new", i%7)}, {TLD: fmt.Sprint("t", i), Domain: "d"}}
		for _, r := range []*numbers.Registry{r, numbers.Open(store, domain64.Production)} {
			if _, err := r.Assign(t.Context(), names); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	got := numberedNames(t, store)
	for n, c := range want {
		if got[n] != c {
			t.Errorf("%v had the code %x and has %x", n, c, got[n])
		}
	}
	if len(got) != len(want)+7+80 || collections == 0 {
		t.Errorf("%d names after %d collections, want %d", len(got), collections, len(want)+87)
	}
	sound(t, store)
}
