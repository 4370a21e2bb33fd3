package deletion_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/deletion"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// made is an entry as a test knows it.
type made struct {
	deletion.Entry
	tuples []segment.Tuple
}

// random makes entries of a number of domains, some in several datasets.
func random(rng *rand.Rand, domains int) []made {
	var list []made
	for i := range domains {
		for d := range 1 + rng.IntN(3)*rng.IntN(2) {
			m := made{Entry: deletion.Entry{Key: segment.KeyOf(fmt.Sprintf("site%d.test", i)), Dataset: uint32(1 + d*(1+rng.IntN(3)))}}
			if n := len(list); n > 0 && list[n-1].Key == m.Key && list[n-1].Dataset >= m.Dataset {
				continue
			}
			m.Dead, m.DeadSize = 1+rng.Int64N(100), rng.Int64N(1000)
			row := int64(0)
			for range rng.IntN(6) {
				row += 1 + rng.Int64N(50)
				t := segment.Tuple{FileID: uint32(len(m.tuples) / 3), RowGroup: uint32(len(m.tuples) / 2), FirstRow: row, Rows: 1 + rng.Int64N(9)}
				row += t.Rows
				m.tuples = append(m.tuples, t)
				m.Rows += t.Rows
			}
			if m.Rows > 0 && rng.IntN(2) == 0 {
				m.Size, m.HasSize = rng.Int64N(1<<40), true
			}
			if m.Rows > 0 && rng.IntN(2) == 0 {
				m.FirstTS, m.HasTS = rng.Int64N(1<<50)-1<<49, true
				m.LastTS = m.FirstTS + rng.Int64N(1<<40)
			}
			list = append(list, m)
		}
	}
	slices.SortFunc(list, func(a, b made) int {
		return cmp.Or(segment.CompareKeys(a.Key, b.Key), cmp.Compare(a.Dataset, b.Dataset))
	})
	return list
}

// write stores the table of entries.
func write(t testing.TB, store blob.Store, list []made) (lake.FrameObject, []byte) {
	t.Helper()
	var b deletion.Builder
	for _, m := range list {
		if err := b.Add(m.Entry, m.tuples); err != nil {
			t.Fatal(err)
		}
	}
	data, file, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(t.Context(), "o", data, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	return lake.NewFrameObject("o", file), data
}

func same(t testing.TB, want made, got deletion.Entry) {
	t.Helper()
	tuples, err := got.Tuples()
	if err != nil || got.Key != want.Key || got.Dataset != want.Dataset || got.Totals != want.Totals ||
		got.Dead != want.Dead || got.DeadSize != want.DeadSize || !slices.Equal(tuples, want.tuples) {
		t.Fatalf("got %+v %v, want %+v, %v", got, tuples, want, err)
	}
}

func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, domains := range []int{1, 2, 40, 3000} {
		store := blob.NewMemory()
		list := random(rng, domains)
		ref, _ := write(t, store, list)
		o, err := deletion.Open(t.Context(), store, ref, nil)
		if err != nil {
			t.Fatal(err)
		}
		i := 0
		sums := map[uint32]deletion.Sums{}
		for e, err := range o.All(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			same(t, list[i], e)
			s := sums[e.Dataset]
			s.Dataset, s.Rows, s.Size = e.Dataset, s.Rows+e.Dead, s.Size+e.DeadSize
			if e.Rows == 0 {
				s.Domains++
			}
			sums[e.Dataset] = s
			i++
		}
		if i != len(list) {
			t.Fatalf("%d entries of %d", i, len(list))
		}
		got := map[uint32]deletion.Sums{}
		for _, s := range o.Sums() {
			got[s.Dataset] = s
		}
		if diff := gocmp.Diff(sums, got); diff != "" {
			t.Fatal(diff)
		}
		for _, m := range list {
			e, ok, err := o.Entry(t.Context(), m.Key, m.Dataset)
			if err != nil || !ok {
				t.Fatalf("%+v: %v", m, err)
			}
			same(t, m, e)
		}
		let := 0
		for i := range 20_000 {
			k := segment.KeyOf(fmt.Sprintf("other%d.test", i))
			if o.May(k) {
				let++
			}
			if e, err := o.Entries(t.Context(), k, 0, 1<<32-1); err != nil || len(e) > 0 {
				t.Fatalf("%d entries, %v", len(e), err)
			}
		}
		if let > 60 {
			t.Errorf("%d domains: the filter lets %d of 20,000 others through", domains, let)
		}
	}
}

// Any flipped bit, and any truncation, is a *codec.CorruptError or changes nothing.
func TestDamage(t *testing.T) {
	list := random(rand.New(rand.NewPCG(3, 4)), 12)
	store := blob.NewMemory()
	ref, good := write(t, store, list)
	look := func(data []byte) error {
		bad := blob.NewMemory()
		if _, err := bad.Put(t.Context(), "o", data, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		o, err := deletion.Open(t.Context(), bad, ref, nil)
		if err != nil {
			return err
		}
		i := 0
		for e, err := range o.All(t.Context()) {
			if err != nil {
				return err
			}
			same(t, list[i], e)
			i++
		}
		return nil
	}
	if err := look(good); err != nil {
		t.Fatal(err)
	}
	for i := range good {
		data := slices.Clone(good)
		data[i] ^= 1 << (i % 8)
		if err := look(data); !errors.Is(err, codec.ErrCorrupt) {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
	for n := range good {
		if err := look(good[:n]); err == nil {
			t.Fatalf("%d bytes: no error", n)
		}
	}
}

func TestBuilderRefusesWhatCannotBe(t *testing.T) {
	k := segment.KeyOf("site.test")
	one := []segment.Tuple{{FirstRow: 3, Rows: 2}}
	left := segment.Totals{Rows: 2}
	for name, add := range map[string]func(b *deletion.Builder) error{
		"tuples of other rows": func(b *deletion.Builder) error {
			return b.Add(deletion.Entry{Key: k, Dataset: 1, Dead: 1, Totals: segment.Totals{Rows: 3}}, one)
		},
		"tuples of no rows": func(b *deletion.Builder) error {
			return b.Add(deletion.Entry{Key: k, Dataset: 1, Dead: 1}, one)
		},
		"order": func(b *deletion.Builder) error {
			err := b.Add(deletion.Entry{Key: k, Dataset: 2, Dead: 1, Totals: left}, one)
			if err != nil {
				t.Fatal(err)
			}
			return b.Add(deletion.Entry{Key: k, Dataset: 1, Dead: 1, Totals: left}, one)
		},
		"no entries": func(b *deletion.Builder) error {
			if err := b.Add(deletion.Entry{Key: k, Dataset: 1, Totals: left}, one); err != nil { // no dead rows
				t.Fatal(err)
			}
			_, _, err := b.Finish()
			return err
		},
	} {
		if err := add(&deletion.Builder{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// BenchmarkMay looks up a domain that a table of ten thousand others does not have.
func BenchmarkMay(b *testing.B) {
	store := blob.NewMemory()
	ref, _ := write(b, store, random(rand.New(rand.NewPCG(5, 6)), 10_000))
	o, err := deletion.Open(b.Context(), store, ref, nil)
	if err != nil {
		b.Fatal(err)
	}
	k := segment.KeyOf("example.com")
	for b.Loop() {
		if o.May(k) {
			b.Fatal("it may")
		}
	}
}
