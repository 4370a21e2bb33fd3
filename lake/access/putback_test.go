package access_test

import (
	"errors"
	"testing"
	"time"

	"github.com/urlake/urlake/lake/access"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// A server that has read a list or tokens follows no older ones, even if their copies are put back
// with them. It answers again when there are newer ones.
func TestFollowerNeverGoesBack(t *testing.T) {
	store := blob.NewMemory()
	change := func(dataset string, readers access.Readers) {
		t.Helper()
		if _, err := access.Change(t.Context(), store, access.Edit{Dataset: dataset, Readers: &readers}); err != nil {
			t.Fatal(err)
		}
	}
	change("d", access.Readers{Names: []string{"ada"}})
	if _, _, err := access.NewToken(t.Context(), store, "ada", time.Now(), nil); err != nil {
		t.Fatal(err)
	}
	before := map[string][]byte{}
	for info, err := range store.List(t.Context(), access.Root) {
		if err != nil {
			t.Fatal(err)
		}
		if before[info.Key], _, err = store.Get(t.Context(), info.Key); err != nil {
			t.Fatal(err)
		}
	}
	change("d", access.Readers{})
	if _, err := access.Revoke(t.Context(), store, "ada", "", time.Now()); err != nil {
		t.Fatal(err)
	}
	f := access.NewFollower(store)
	poll := func() (list, tokens error) {
		t.Helper()
		if err := f.Poll(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, list = f.List()
		_, tokens = f.Tokens()
		return list, tokens
	}
	if list, tokens := poll(); list != nil || tokens != nil {
		t.Fatal(list, tokens)
	}
	for key, data := range before {
		if _, err := store.Put(t.Context(), key, data, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if list, tokens := poll(); !errors.Is(list, codec.ErrCorrupt) || !errors.Is(tokens, codec.ErrCorrupt) {
			t.Fatalf("the older list: %v; the older tokens: %v", list, tokens)
		}
	}
	for range 2 {
		change("d", access.Readers{Public: true})
		change("d", access.Readers{})
		if _, _, err := access.NewToken(t.Context(), store, "eve", time.Now(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if list, tokens := poll(); list != nil || tokens != nil {
		t.Fatal(list, tokens)
	}
}
