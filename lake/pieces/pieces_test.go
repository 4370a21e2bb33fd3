package pieces_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/pieces"
)

const folder = "test/pieces/"

func entries(m map[string]string) iter.Seq2[pieces.Entry, error] {
	return func(yield func(pieces.Entry, error) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(pieces.Entry{Key: []byte(k), Value: []byte(m[k])}, nil) {
				return
			}
		}
	}
}

func build(t testing.TB, store blob.Store, m map[string]string) *pieces.Map {
	t.Helper()
	built, err := pieces.Build(t.Context(), store, folder, entries(m))
	if err != nil {
		t.Fatal(err)
	}
	return built
}

func content(t testing.TB, m *pieces.Map) map[string]string {
	t.Helper()
	got := map[string]string{}
	last := ""
	for e, err := range m.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if string(e.Key) <= last {
			t.Fatalf("%q after %q", e.Key, last)
		}
		last = string(e.Key)
		got[last] = string(e.Value)
	}
	return got
}

// randomKey returns one of n keys of different lengths with long common prefixes.
func randomKey(r *rand.Rand, n int) string {
	k := r.IntN(n)
	return fmt.Sprintf("dataset-%d/batch-%d", k/300, k%300)
}

// However a map came about, the same content is the same map, and it answers as a Go map does.
func TestMapIsItsContent(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 1))
		store := blob.NewMemory()
		model := map[string]string{}
		keys := []int{20, 500, 5_000, 60_000}[seed%4]
		m := build(t, store, model)
		for range 12 {
			var edits []pieces.Edit
			n := []int{1, 3, 40, keys / 2, keys}[r.IntN(5)]
			all := r.IntN(6) == 0
			for range n {
				e := pieces.Edit{Entry: pieces.Entry{Key: []byte(randomKey(r, keys))}}
				if all || r.IntN(3) == 0 {
					e.Delete = true
					delete(model, string(e.Key))
				} else {
					e.Value = bytes.Repeat([]byte{byte(r.Uint32())}, r.IntN(60))
					model[string(e.Key)] = string(e.Value)
				}
				edits = append(edits, e)
			}
			if all && r.IntN(2) == 0 {
				for k := range model {
					edits = append(edits, pieces.Edit{Entry: pieces.Entry{Key: []byte(k)}, Delete: true})
				}
				clear(model)
			}
			before, was := m.Ref(), content(t, m)
			next, err := m.Apply(t.Context(), edits)
			if err != nil {
				t.Fatal(err)
			}
			if want := build(t, blob.NewMemory(), model).Ref(); next.Ref() != want {
				t.Fatalf("seed %d: %+v after %d edits, %+v if built from the same %d entries", seed, next.Ref(), len(edits), want, len(model))
			}
			// Another reader, without what is cached.
			read := pieces.Open(store, folder, next.Ref())
			if !maps.Equal(content(t, read), model) {
				t.Fatalf("seed %d: other entries than the model", seed)
			}
			if m.Ref() != before || !maps.Equal(content(t, pieces.Open(store, folder, before)), was) {
				t.Fatal("Apply changed the map it was called on")
			}
			m = next
			var ask [][]byte
			for range 50 {
				ask = append(ask, []byte(randomKey(r, 2*keys)))
			}
			found, err := pieces.Open(store, folder, m.Ref()).GetMany(t.Context(), ask)
			if err != nil {
				t.Fatal(err)
			}
			for i, k := range ask {
				want, ok := model[string(k)]
				if ok != (found[i] != nil) || ok && (string(found[i].Value) != want || !bytes.Equal(found[i].Key, k)) {
					t.Fatalf("%q: got %v, want %q, %v", k, found[i], want, ok)
				}
			}
			checkRange(t, pieces.Open(store, folder, m.Ref()), model, randomKey(r, keys), randomKey(r, keys))
		}
	}
}

func checkRange(t *testing.T, m *pieces.Map, model map[string]string, from, to string) {
	t.Helper()
	var want, got []string
	for _, k := range slices.Sorted(maps.Keys(model)) {
		if k >= from && k < to {
			want = append(want, k)
		}
	}
	for e, err := range m.Range(t.Context(), []byte(from), []byte(to)) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(e.Key))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%q to %q: %d entries, want %d", from, to, len(got), len(want))
	}
}

// One change of a large map reads and writes a few small pieces.
func TestChangeCostsAFewPieces(t *testing.T) {
	memory := blob.NewMemory()
	n := int64(400_000)
	m, err := pieces.Build(t.Context(), memory, folder, func(yield func(pieces.Entry, error) bool) {
		for i := range n {
			e := pieces.Entry{Key: fmt.Appendf(nil, "%04d/2026-%03d", i/365, i%365), Value: make([]byte, 40)}
			if !yield(e, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var reads, writes, bytes int64
	r := rand.New(rand.NewPCG(2, 2))
	for range 100 {
		store := blob.NewCounting(memory)
		i := r.Int64N(n)
		key := fmt.Appendf(nil, "%04d/2026-%03d", i/365, i%365)
		edit := pieces.Edit{Entry: pieces.Entry{Key: key, Value: fmt.Append(nil, i)}}
		if _, err := pieces.Open(store, folder, m.Ref()).Apply(t.Context(), []pieces.Edit{edit}); err != nil {
			t.Fatal(err)
		}
		read, written := store.Reads(), store.Writes()
		reads, writes, bytes = max(reads, read.Requests), max(writes, written.Requests), max(bytes, written.Bytes)
	}
	t.Logf("at most %d pieces read, %d written, %d bytes", reads, writes, bytes)
	if reads > 8 || writes > 6 || bytes > 64<<10 {
		t.Errorf("at most %d pieces read, %d written, %d bytes; want 8, 6, 64 KiB", reads, writes, bytes)
	}
}

// A damaged or missing piece is named; no other answer is given.
func TestDamageIsNamed(t *testing.T) {
	store := blob.NewMemory()
	model := map[string]string{}
	for i := range 3000 {
		model[fmt.Sprintf("key %05d", i)] = fmt.Sprint(i)
	}
	m := build(t, store, model)
	n := 0
	for key, err := range m.Pieces(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		sound, _, err := store.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		for place := range 6 {
			if place == 0 {
				err = store.Delete(t.Context(), key)
			} else {
				bad := bytes.Clone(sound)
				bad[(place-1)*(len(bad)-1)/4] ^= 1
				_, err = store.Put(t.Context(), key, bad, blob.Condition{})
			}
			if err != nil {
				t.Fatal(err)
			}
			read := pieces.Open(store, folder, m.Ref())
			_, err := drain(read.All(t.Context()))
			var corrupt *codec.CorruptError
			if !errors.As(err, &corrupt) || corrupt.File != key {
				t.Fatalf("piece %s damaged at %d: %v", key, place, err)
			}
			named := 0
			for k, err := range read.Pieces(t.Context()) {
				if errors.Is(err, codec.ErrCorrupt) && k == key {
					named++
				} else if err != nil {
					t.Fatal(k, err)
				}
			}
			if named != 1 {
				t.Fatalf("%s was named %d times", key, named)
			}
		}
		if _, err := store.Put(t.Context(), key, sound, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	if n < 5 {
		t.Fatalf("a map of %d pieces", n)
	}
}

func drain(seq iter.Seq2[pieces.Entry, error]) (n int, err error) {
	for _, err = range seq {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func TestBadEntriesAreRefused(t *testing.T) {
	store := blob.NewMemory()
	one := func(keys ...string) iter.Seq2[pieces.Entry, error] {
		return func(yield func(pieces.Entry, error) bool) {
			for _, k := range keys {
				if !yield(pieces.Entry{Key: []byte(k)}, nil) {
					return
				}
			}
		}
	}
	for _, keys := range [][]string{{"b", "a"}, {"a", "a"}} {
		if _, err := pieces.Build(t.Context(), store, folder, one(keys...)); !errors.Is(err, pieces.ErrOrder) {
			t.Errorf("%q: %v", keys, err)
		}
	}
	for _, bad := range []pieces.Entry{
		{}, {Key: make([]byte, pieces.MaxKey+1)}, {Key: []byte("k"), Value: make([]byte, pieces.MaxValue+1)},
	} {
		if _, err := build(t, store, map[string]string{"x": "y"}).Apply(t.Context(), []pieces.Edit{{Entry: bad}}); err == nil {
			t.Errorf("a key of %d and a value of %d bytes were taken", len(bad.Key), len(bad.Value))
		}
	}
	most := pieces.Entry{Key: make([]byte, pieces.MaxKey), Value: make([]byte, pieces.MaxValue)}
	m, err := build(t, store, map[string]string{"x": "y"}).Apply(t.Context(), []pieces.Edit{{Entry: most}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := pieces.Open(store, folder, m.Ref()).GetMany(t.Context(), [][]byte{most.Key})
	if err != nil || got[0] == nil || len(got[0].Value) != pieces.MaxValue {
		t.Errorf("the largest entry: %v, %v", got, err)
	}
}

func TestCheckRef(t *testing.T) {
	sound := build(t, blob.NewMemory(), map[string]string{"a": "b"}).Ref()
	for _, ok := range []pieces.Ref{{}, sound} {
		if err := ok.Check("f"); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []pieces.Ref{
		{Entries: 1}, {Root: sound.Root}, {Root: sound.Root, Entries: -1}, {Root: "x", Entries: 1},
		{Root: sound.Root[2:], Entries: 1}, {Root: sound.Root, Entries: 1, Level: -1}, {Root: sound.Root, Entries: 1, Level: 99},
	} {
		if err := bad.Check("f"); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestCancelledReadEnds(t *testing.T) {
	store := blob.NewMemory()
	m := build(t, store, map[string]string{"a": "b"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pieces.Open(store, folder, m.Ref()).GetMany(ctx, [][]byte{[]byte("a")}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
