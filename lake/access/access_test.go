package access_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/access"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/codec"
)

var now = time.Date(2026, 11, 20, 10, 12, 0, 0, time.UTC)

func readers(t *testing.T, text string) *access.Readers {
	t.Helper()
	r, err := access.ParseReaders(text)
	if err != nil {
		t.Fatal(err)
	}
	return &r
}

func change(t *testing.T, store blob.Store, e access.Edit) *access.List {
	t.Helper()
	l, err := access.Change(t.Context(), store, e)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func bytesOf(t *testing.T, store blob.Store, key string) []byte {
	t.Helper()
	data, _, err := store.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestReaders(t *testing.T) {
	for text, want := range map[string]string{
		"public": "public", "none": "none", "ada": "ada", "bea, ada,bea": "ada,bea", "auth0|x,a@b.example": "a@b.example,auth0|x",
	} {
		r, err := access.ParseReaders(text)
		if err != nil || r.String() != want {
			t.Errorf("%q: %q, %v", text, r.String(), err)
		}
	}
	for _, bad := range []string{
		"", ",", "ada,", "ada,public", "none,ada", "default", "a b", "-x", "é", "a\nb", strings.Repeat("a", 256), strings.Repeat("x,", 1001) + "y",
	} {
		if r, err := access.ParseReaders(bad); err == nil && len(r.Names) != 2 {
			t.Errorf("%.20q is taken as %s", bad, r)
		}
	}
	many := make([]string, access.MaxReaders+1)
	for i := range many {
		many[i] = fmt.Sprint("n", i)
	}
	if _, err := access.ParseReaders(strings.Join(many, ",")); err == nil {
		t.Error("more readers than a dataset can have")
	}
}

func TestList(t *testing.T) {
	store := blob.NewMemory()
	empty, err := access.Load(t.Context(), store)
	if err != nil || !empty.May("", "x") || !empty.All("") {
		t.Fatalf("a lake without a list: %+v, %v", empty, err)
	}
	change(t, store, access.Edit{Dataset: "crawl", Readers: readers(t, "web-1,ada")})
	change(t, store, access.Edit{Dataset: "seeds", Readers: readers(t, "public")})
	l := change(t, store, access.Edit{Dataset: "drafts", Readers: readers(t, "none"), Default: readers(t, "ada")})
	for _, c := range []struct {
		name, dataset string
		may           bool
	}{
		{"", "crawl", false}, {"", "seeds", true}, {"", "drafts", false}, {"", "other", false},
		{"ada", "crawl", true}, {"ada", "seeds", true}, {"ada", "drafts", false}, {"ada", "other", true},
		{"web-1", "crawl", true}, {"web-1", "other", false}, {"zoe", "crawl", false}, {"zoe", "seeds", true},
	} {
		if l.May(c.name, c.dataset) != c.may || l.May(l.Group(c.name), c.dataset) != c.may {
			t.Errorf("%q may read %s: %v", c.name, c.dataset, !c.may)
		}
	}
	if l.All("ada") || l.Group("zoe") != "" || l.Group("web-1") != "web-1" {
		t.Errorf("%+v", l)
	}
	testenv.Shows(t, "access.md", "json readers", string(bytesOf(t, store, access.ListKey)))
	if l = change(t, store, access.Edit{Dataset: "drafts", Readers: readers(t, "ada")}); !l.All("ada") {
		t.Error("ada may read all")
	}
	before := bytesOf(t, store, access.ListKey)
	change(t, store, access.Edit{Dataset: "drafts", Readers: readers(t, "ada")})
	if !bytes.Equal(before, bytesOf(t, store, access.ListKey)) {
		t.Error("an edit that changes nothing writes")
	}
	if l = change(t, store, access.Edit{Dataset: "drafts"}); len(l.Datasets) != 2 {
		t.Errorf("%+v", l.Datasets)
	}
	copied := strings.Replace(string(bytesOf(t, store, access.CopyKey)), access.CopyKey, access.ListKey, 1)
	if listed := string(bytesOf(t, store, access.ListKey)); copied[:len(copied)-30] != listed[:len(listed)-30] {
		t.Errorf("the copy is\n%s", copied)
	}
}

// TestWritersAtOnce holds that no change of several writers is lost, also if replies are.
func TestWritersAtOnce(t *testing.T) {
	faulty := blobtest.NewFaulty(blob.NewMemory())
	var wg sync.WaitGroup
	for i := range 8 {
		faulty.Inject(blobtest.Fault{Op: blob.OpPut, Nth: 3 * (i + 1), After: true, Err: errors.New("the reply is lost")})
	}
	tokens := make([]string, 8)
	for i := range 8 {
		wg.Go(func() {
			name := fmt.Sprint("n", i)
			r := access.Readers{Names: []string{name}}
			if _, err := access.Change(t.Context(), faulty, access.Edit{Dataset: name, Readers: &r}); err != nil {
				t.Error(err)
			}
			var err error
			if tokens[i], _, err = access.NewToken(t.Context(), faulty, name, now, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if faulty.Fired() == 0 {
		t.Fatal("no reply was lost")
	}
	l, err := access.Load(t.Context(), faulty)
	if err != nil || len(l.Datasets) != 8 {
		t.Fatalf("%+v, %v", l, err)
	}
	known, err := access.LoadTokens(t.Context(), faulty)
	if err != nil || len(known.Tokens) != 8 {
		t.Fatalf("%d tokens, %v", len(known.Tokens), err)
	}
	for i, text := range tokens {
		if tok, err := known.Find(text, now); err != nil || tok.Name != fmt.Sprint("n", i) {
			t.Errorf("%+v, %v", tok, err)
		}
	}
}

// TestCrashes ends a change after each of its writes, and changes the list again.
func TestCrashes(t *testing.T) {
	for n := range 3 {
		faulty := blobtest.NewFaulty(blob.NewMemory())
		faulty.CrashAfter(n)
		_, _ = access.Change(t.Context(), faulty, access.Edit{Default: &access.Readers{}})
		faulty.Heal()
		l, err := access.Load(t.Context(), faulty)
		if err != nil || l.Default.Public != (n == 0) {
			t.Errorf("after %d writes: %+v, %v", n, l, err)
		}
		if found := access.Check(t.Context(), faulty); len(found) > 0 {
			t.Errorf("after %d writes: %v", n, found)
		}
		if l, err = access.Change(t.Context(), faulty, access.Edit{Default: &access.Readers{}}); err != nil || l.Default.Public {
			t.Errorf("again, after %d writes: %+v, %v", n, l, err)
		}
		if _, err := faulty.Stat(t.Context(), access.CopyKey); err != nil {
			t.Errorf("after %d writes there is no copy: %v", n, err)
		}
	}
}

func TestTokens(t *testing.T) {
	store := blob.NewMemory()
	soon := now.Add(time.Hour)
	text, rec, err := access.NewToken(t.Context(), store, "ada", now, &soon)
	if err != nil {
		t.Fatal(err)
	}
	forever, _, err := access.NewToken(t.Context(), store, "ada", now, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := access.NewToken(t.Context(), store, "bea", now, nil)
	if err != nil {
		t.Fatal(err)
	}
	data := bytesOf(t, store, access.TokensKey)
	for _, secret := range []string{text, strings.TrimPrefix(text, "urlake_"), forever, other, "urlake_"} {
		if bytes.Contains(data, []byte(secret)) {
			t.Fatalf("the lake has the token:\n%s", data)
		}
	}
	load := func() *access.Tokens {
		t.Helper()
		known, err := access.LoadTokens(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		return known
	}
	known := load()
	if tok, err := known.Find(text, now); err != nil || tok.ID != rec.ID || tok.Name != "ada" {
		t.Errorf("%+v, %v", tok, err)
	}
	if _, err := known.Find(text, soon); !errors.Is(err, access.ErrExpired) {
		t.Errorf("after its time: %v", err)
	}
	for _, bad := range []string{"", "urlake_", text + "x", text[:len(text)-1], " " + text, strings.ToLower(text), rec.SHA256, rec.ID} {
		if _, err := known.Find(bad, now); !errors.Is(err, access.ErrUnknownToken) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if ended, err := access.Revoke(t.Context(), store, "ada", rec.ID, now); err != nil || len(ended) != 1 {
		t.Fatalf("%v, %v", ended, err)
	}
	if _, err := load().Find(text, now); !errors.Is(err, access.ErrRevoked) {
		t.Errorf("%v", err)
	}
	if _, err := load().Find(forever, now); err != nil {
		t.Errorf("the other token of the name: %v", err)
	}
	if ended, err := access.Revoke(t.Context(), store, "ada", "", now.Add(time.Minute)); err != nil || len(ended) != 1 {
		t.Fatalf("%v, %v", ended, err)
	}
	if ended, err := access.Revoke(t.Context(), store, "ada", "", now.Add(time.Hour)); err != nil || len(ended) != 0 {
		t.Fatalf("twice: %v, %v", ended, err)
	}
	// Tokens that ended long ago leave with the next change.
	if _, _, err := access.NewToken(t.Context(), store, "cy", now.AddDate(0, 4, 0), nil); err != nil {
		t.Fatal(err)
	}
	left := []string{}
	for _, tok := range load().Tokens {
		left = append(left, tok.Name)
	}
	if !slices.Equal(left, []string{"bea", "cy"}) {
		t.Errorf("%v are left", left)
	}
	if _, _, err := access.NewToken(t.Context(), store, "ada", now, &now); err == nil {
		t.Error("a token that has expired is made")
	}
	if _, _, err := access.NewToken(t.Context(), store, "public", now, nil); err == nil {
		t.Error("a token of a name that nobody can have")
	}
	if n, err := access.RevokeAll(t.Context(), store); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if len(load().Tokens) != 0 {
		t.Error("tokens are left")
	}
}

func TestTokensAreAsTheirPageShows(t *testing.T) {
	soon := now.AddDate(0, 3, 0)
	doc := access.Tokens{Tokens: []access.Token{
		{ID: "0f3c9a7152d8", Name: "web-1", SHA256: strings.Repeat("0123456789abcdef", 4), Created: now, Expires: &soon},
		{ID: "5d21b0e2c3f4", Name: "ada", SHA256: strings.Repeat("fedcba9876543210", 4), Created: now, Revoked: &soon},
	}}
	doc.Format, doc.Object = 1, access.TokensKey
	data, err := codec.Seal(doc)
	if err != nil {
		t.Fatal(err)
	}
	testenv.Shows(t, "access.md", "json tokens", string(data))
	store := blob.NewMemory()
	if _, err := store.Put(t.Context(), access.TokensKey, data, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	if known, err := access.LoadTokens(t.Context(), store); err != nil || len(known.Tokens) != 2 {
		t.Fatalf("%v", err)
	}
}

// TestDamage changes every byte of each document, cuts it, and puts it in the place of another.
func TestDamage(t *testing.T) {
	store := blob.NewMemory()
	change(t, store, access.Edit{Dataset: "crawl", Readers: readers(t, "ada")})
	if _, _, err := access.NewToken(t.Context(), store, "ada", now, nil); err != nil {
		t.Fatal(err)
	}
	put := func(key string, data []byte) {
		t.Helper()
		if _, err := store.Put(t.Context(), key, data, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	for key, load := range map[string]func() error{
		access.ListKey:   func() error { _, err := access.Load(t.Context(), store); return err },
		access.TokensKey: func() error { _, err := access.LoadTokens(t.Context(), store); return err },
	} {
		intact := bytesOf(t, store, key)
		for i := range intact {
			bad := bytes.Clone(intact)
			bad[i] ^= 4
			put(key, bad)
			if err := load(); !errors.Is(err, codec.ErrCorrupt) {
				t.Fatalf("%s, byte %d: %v", key, i, err)
			}
			put(key, intact[:i])
			if err := load(); !errors.Is(err, codec.ErrCorrupt) {
				t.Fatalf("%s, %d bytes: %v", key, i, err)
			}
		}
		put(key, bytesOf(t, store, access.CopyKey))
		if err := load(); !errors.Is(err, codec.ErrCorrupt) && !codec.IsFormat(err) {
			t.Errorf("%s is the copy: %v", key, err)
		}
		for _, doc := range []map[string]any{
			{"format": 2, "object": key}, {"format": 1, "object": key, "more": 1},
		} {
			data, err := codec.Seal(doc)
			if err != nil {
				t.Fatal(err)
			}
			put(key, data)
			if err := load(); !codec.IsFormat(err) {
				t.Errorf("%v: %v", doc, err)
			}
		}
		put(key, intact)
	}
	// Documents that are intact and say what no program writes.
	for _, text := range []string{
		`{"default":{"public":true,"names":["ada"]}}`, `{"default":{"names":["b","a"]}}`, `{"default":{"names":["public"]}}`,
		`{"datasets":[{"name":"b"},{"name":"a"}]}`, `{"datasets":[{"name":""}]}`, `{"datasets":[{"name":"a","readers":{"names":["x y"]}}]}`,
	} {
		l := &access.List{}
		if err := json.Unmarshal([]byte(text), l); err != nil {
			t.Fatal(err)
		}
		l.Format, l.Object = 1, access.ListKey
		data, err := codec.Seal(l)
		if err != nil {
			t.Fatal(err)
		}
		put(access.ListKey, data)
		if _, err := access.Load(t.Context(), store); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestRepair(t *testing.T) {
	fresh := func() blob.Store {
		store := blob.NewMemory()
		change(t, store, access.Edit{Dataset: "crawl", Readers: readers(t, "ada")})
		return store
	}
	spoil := func(store blob.Store, keys ...string) {
		for _, key := range keys {
			if _, err := store.Put(t.Context(), key, []byte("damaged"), blob.Condition{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	store := fresh()
	if _, fromCopy, err := access.Repair(t.Context(), store); fromCopy || err != nil {
		t.Errorf("an intact list: %v, %v", fromCopy, err)
	}
	spoil(store, access.ListKey)
	l, fromCopy, err := access.Repair(t.Context(), store)
	if err != nil || !fromCopy || l.May("", "crawl") || !l.May("ada", "crawl") || !l.May("", "other") {
		t.Errorf("from the copy: %+v, %v", l, err)
	}
	if err := store.Delete(t.Context(), access.ListKey); err != nil {
		t.Fatal(err)
	}
	if _, err := access.Load(t.Context(), store); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("a list that is lost: %v", err)
	}
	if _, err := access.Change(t.Context(), store, access.Edit{Default: &access.Readers{}}); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("a change of a list that is lost: %v", err)
	}
	if l, fromCopy, err = access.Repair(t.Context(), store); err != nil || !fromCopy || l.May("", "crawl") {
		t.Errorf("from the copy: %+v, %v", l, err)
	}
	if found := access.Check(t.Context(), store); len(found) != 0 {
		t.Errorf("an intact lake: %v", found)
	}
	// A list that is damaged and has no copy at all lets nobody read anything either.
	spoil(store, access.ListKey)
	if err := store.Delete(t.Context(), access.CopyKey); err != nil {
		t.Fatal(err)
	}
	if l, fromCopy, err = access.Repair(t.Context(), store); err != nil || fromCopy || l.May("", "other") {
		t.Errorf("without any copy: %+v, %v", l, err)
	}
	spoil(store, access.ListKey, access.CopyKey, access.TokensKey)
	if found := access.Check(t.Context(), store); len(found) != 3 {
		t.Errorf("three damaged documents: %v", found)
	}
	if l, fromCopy, err = access.Repair(t.Context(), store); err != nil || fromCopy || l.May("", "other") || l.May("ada", "crawl") {
		t.Errorf("without a copy: %+v, %v", l, err)
	}
	if l, err = access.Load(t.Context(), store); err != nil || l.May("", "other") {
		t.Errorf("%+v, %v", l, err)
	}
	if _, _, err := access.NewToken(t.Context(), store, "ada", now, nil); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("a token among damaged ones: %v", err)
	}
	if _, err := access.RevokeAll(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	if _, _, err := access.NewToken(t.Context(), store, "ada", now, nil); err != nil {
		t.Error(err)
	}
}

// TestFollower holds that documents that did not change cost one request each.
func TestFollower(t *testing.T) {
	store := blob.NewMemory()
	counting := blob.NewCounting(store)
	f := access.NewFollower(counting)
	if _, err := f.List(); !errors.Is(err, access.ErrNotRead) {
		t.Errorf("before the first poll: %v", err)
	}
	poll := func() {
		t.Helper()
		if err := f.Poll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	poll()
	if l, err := f.List(); err != nil || !l.All("") {
		t.Errorf("%+v, %v", l, err)
	}
	change(t, store, access.Edit{Default: &access.Readers{}})
	if _, _, err := access.NewToken(t.Context(), store, "ada", now, nil); err != nil {
		t.Fatal(err)
	}
	poll()
	first, err := f.List()
	if err != nil || first.All("") {
		t.Errorf("%+v, %v", first, err)
	}
	before := counting.Reads().Requests
	poll()
	if n := counting.Reads().Requests - before; n != 2 {
		t.Errorf("%d requests", n)
	}
	if again, _ := f.List(); again != first {
		t.Error("a list that did not change is another one")
	}
	// All is gone, copy and all: the follower remembers that there was a list.
	if err := store.Delete(t.Context(), access.ListKey, access.CopyKey); err != nil {
		t.Fatal(err)
	}
	poll()
	if _, err := f.List(); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("a list that has gone: %v", err)
	}
}

// TestLossOfAllIsNoticed loses the folder of the list: a lake that was closed is not open then.
func TestLossOfAllIsNoticed(t *testing.T) {
	store := blob.NewMemory()
	change(t, store, access.Edit{Dataset: "crawl", Readers: readers(t, "ada")})
	for _, key := range []string{access.ListKey, access.CopyKey, access.TokensKey} {
		if err := store.Delete(t.Context(), key); err != nil && !errors.Is(err, blob.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if l, err := access.Load(t.Context(), store); !errors.Is(err, codec.ErrCorrupt) {
		t.Fatalf("%+v, %v", l, err)
	}
	f := access.NewFollower(store)
	if err := f.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.List(); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("a fresh follower: %v", err)
	}
	l, fromCopy, err := access.Repair(t.Context(), store)
	if err != nil || fromCopy || l.May("ada", "crawl") || l.May("", "other") {
		t.Errorf("repaired: %+v, %v, %v", l, fromCopy, err)
	}
	// If the mark is lost, the next change makes one, also one of nothing.
	if err := store.Delete(t.Context(), access.MarkKey); err != nil {
		t.Fatal(err)
	}
	change(t, store, access.Edit{})
	if _, err := store.Stat(t.Context(), access.MarkKey); err != nil {
		t.Errorf("the mark: %v", err)
	}
}
