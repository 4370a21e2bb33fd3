package rewrite

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/part"
)

// Hosts finds the rows that have another domain by the new list, and no other.
func TestHostsAreThoseThatMove(t *testing.T) {
	found := 0
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 5))
		from, to := randomRules(rng), randomRules(rng)
		l := &indextest.Lake{Store: blob.NewMemory()}
		o := indextest.Options{Width: rng.IntN(3), Tasks: 1 + rng.IntN(4)}
		if rng.IntN(2) == 0 {
			o.Limits = part.Limits{PageRows: 3, RowGroupBytes: 2000, PartBytes: 4000}
		}
		l.AddBatch(t, 1, "b", randomRows(rng, 1+rng.IntN(400), from), o)
		c := changeTo(to, l.Rows[1], rng)
		if rng.IntN(3) == 0 {
			c.Affected = nil
		}
		want := map[MovedHost]int64{}
		for _, r := range l.Rows[1] {
			if domain := to.domain(r.Host); domain != r.Domain {
				want[MovedHost{Host: r.Host, From: r.Domain, To: domain}]++
			}
		}
		store := blobtest.NewFaulty(l.Store)
		store.Inject(blobtest.Fault{Op: blob.OpPut}) // nothing is written
		got := map[MovedHost]int64{}
		err := Hosts(t.Context(), store, l.Batches[0], c, func(h MovedHost) error {
			rows := h.Rows
			h.Rows = 0
			got[h] += rows
			return nil
		})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d: hosts differ (-want +got):\n%s", seed, diff)
		}
		found += len(got)
	}
	if found < 100 {
		t.Errorf("only %d hosts move", found)
	}
}

func TestHostsEnd(t *testing.T) {
	store := blob.NewMemory()
	ref, c := smallBatch(t, store)
	enough, calls := errors.New("enough"), 0
	err := Hosts(t.Context(), store, ref, c, func(MovedHost) error { calls++; return enough })
	if !errors.Is(err, enough) || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
	b := readRecord(t, store, ref.Key())
	for _, key := range []string{b.Parts[0].Key, b.Postings[0].Key, ref.Key()} {
		data, _, err := store.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		var damage *postings.DamageError
		if err := Hosts(t.Context(), store, ref, c, func(MovedHost) error { return nil }); !errors.As(err, &damage) {
			t.Errorf("%s is missing: %v", key, err)
		}
		if _, err := store.Put(t.Context(), key, data, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
}
