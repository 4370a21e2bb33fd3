package suppress_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/publish/suppress"
)

// published returns a lake with a version.
func published(t *testing.T) blob.Store {
	t.Helper()
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("x", 12))
	testlake.Publish(t, store)
	return store
}

func document(t *testing.T, store blob.Store) *catalog.TakedownDocument {
	t.Helper()
	m := current(t, store)
	doc, err := catalog.ReadTakedowns(t.Context(), store, m.Takedowns)
	if err != nil || doc.Epoch != m.TakedownEpoch {
		t.Fatalf("epoch %d in the manifest, %v: %+v", m.TakedownEpoch, err, doc)
	}
	return doc
}

func record(t *testing.T, store blob.Store, id string) catalog.TakedownRecord {
	t.Helper()
	rec, ok, err := document(t, store).Record(t.Context(), store, id)
	if err != nil || !ok {
		t.Fatalf("record of %s: %v, %v", id, ok, err)
	}
	return rec
}

// Two add equal rules at once. One is in force, and both are told its id.
func TestOneOfTwoEqualRulesIsAdded(t *testing.T) {
	ids := [2]string{}
	add := func(n int) func(blob.Store) error {
		r := rule(t, n, catalog.DomainTarget, "site0.test")
		return func(store blob.Store) error {
			res, err := suppress.Add(context.Background(), store, r, suppress.Options{})
			if err == nil {
				ids[n] = res.ID
				if res.Existed != (res.ID != r.ID) || res.Epoch != 1 {
					err = fmt.Errorf("%+v", res)
				}
			}
			return err
		}
	}
	interleave(t, published(t), add(0), add(1), func(store blob.Store, name string) {
		rules, err := document(t, store).Rules(t.Context(), store)
		if err != nil || rules.Len() != 1 || ids[0] != ids[1] || rules.All()[0].ID != ids[0] || current(t, store).TakedownEpoch != 1 {
			t.Fatalf("%s: ids %s, %v", name, ids, err)
		}
		sound(t, store, name)
	})
}

// The reply of a change is lost, and others change the takedowns before it is tried again. It is
// made once, and what others did since stays.
func TestLostReplyThenAnotherChange(t *testing.T) {
	prepared := published(t)
	old, r, other := rule(t, 1, catalog.DomainTarget, "site0.test"), rule(t, 2, catalog.HostTarget, "h1.site1.test"),
		rule(t, 3, catalog.HostTarget, "h2.site1.test")
	if _, err := suppress.Add(t.Context(), prepared, old, suppress.Options{}); err != nil {
		t.Fatal(err)
	}
	add := func(store blob.Store, r catalog.Takedown) *suppress.Result {
		t.Helper()
		res, err := suppress.Add(t.Context(), store, r, suppress.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	lift := func(store blob.Store, id, by string) *suppress.Result {
		t.Helper()
		res, err := suppress.Lift(t.Context(), store, id, by, "over", suppress.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	for _, c := range []struct {
		name  string
		do    func(blob.Store) *suppress.Result
		then  func(blob.Store)
		epoch uint64
		left  []string
	}{
		{"added, then another", func(s blob.Store) *suppress.Result { return add(s, r) },
			func(s blob.Store) { add(s, other) }, 3, []string{old.ID, r.ID, other.ID}},
		{"lifted, then another added", func(s blob.Store) *suppress.Result { return lift(s, old.ID, "me") },
			func(s blob.Store) { add(s, other) }, 3, []string{other.ID}},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := blob.NewMemory()
			blobtest.Copy(t, prepared, store)
			res := c.do(&lostReply{Store: store, do: func() { c.then(store) }})
			if m := current(t, store); res.Epoch != 2 || m.TakedownEpoch != c.epoch {
				t.Errorf("made in epoch %d, now it is %d", res.Epoch, m.TakedownEpoch)
			}
			rules, err := document(t, store).Rules(t.Context(), store)
			if err != nil || rules.Len() != len(c.left) {
				t.Errorf("%d rules, %v", rules.Len(), err)
			}
			for _, id := range c.left {
				if _, ok := rules.Find(id); !ok {
					t.Errorf("%s is lost", id)
				}
			}
			rec := record(t, store, res.ID)
			if _, ok := rules.Find(res.ID); ok != (rec.Lifted == nil) {
				t.Errorf("in force %v: %+v", ok, rec)
			}
			sound(t, store, c.name)
		})
	}
}

// The id of a lifted rule is not given again, so that its record stays.
func TestIDOfALiftedRuleIsTaken(t *testing.T) {
	store := published(t)
	r := rule(t, 1, catalog.DomainTarget, "site0.test")
	if _, err := suppress.Add(t.Context(), store, r, suppress.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := suppress.Lift(t.Context(), store, r.ID, "her", "over", suppress.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := suppress.Add(t.Context(), store, r, suppress.Options{}); !errors.Is(err, suppress.ErrTaken) {
		t.Errorf("got %v", err)
	}
	if rec := record(t, store, r.ID); rec.LiftedBy != "her" {
		t.Errorf("%+v", rec)
	}
}

// Many writers add and lift at once. No rule is lost, and each change has an epoch of its own.
func TestManyWritersOfTakedowns(t *testing.T) {
	const writers, each = 6, 4
	store := published(t)
	var rules []catalog.Takedown
	for n := range writers * each {
		rules = append(rules, rule(t, n, catalog.URLTarget, fmt.Sprintf("https://h1.site1.test/x/%d", n)))
	}
	epochs := make([][]uint64, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n, r := range rules[w*each : (w+1)*each] {
				r.ID = catalog.NewTakedownID(time.Unix(1_900_000_000, 0))
				rules[w*each+n].ID = r.ID
				res, err := suppress.Add(t.Context(), store, r, suppress.Options{})
				if err == nil {
					epochs[w] = append(epochs[w], res.Epoch)
					if n%2 == 1 {
						continue
					}
					res, err = suppress.Lift(t.Context(), store, r.ID, fmt.Sprint(w), "over", suppress.Options{})
				}
				if err != nil {
					t.Errorf("writer %d: %v", w, err)
					return
				}
				epochs[w] = append(epochs[w], res.Epoch)
			}
		})
	}
	wg.Wait()
	seen := map[uint64]bool{}
	for _, own := range epochs {
		for _, e := range own {
			if seen[e] {
				t.Errorf("two changes have epoch %d", e)
			}
			seen[e] = true
		}
	}
	const changes = writers * each * 3 / 2
	if m := current(t, store); m.TakedownEpoch != changes || len(seen) != changes {
		t.Fatalf("epoch %d, %d epochs in results, want %d", m.TakedownEpoch, len(seen), changes)
	}
	have, err := document(t, store).Rules(t.Context(), store)
	if err != nil || have.Len() != len(rules)/2 {
		t.Fatalf("%d rules, %v", have.Len(), err)
	}
	for n, r := range rules {
		rec := record(t, store, r.ID)
		_, ok := have.Find(r.ID)
		if ok != (n%2 == 1) || ok != (rec.Lifted == nil) || rec.Digest != r.Digest() || !ok && rec.LiftedBy != fmt.Sprint(n/each) {
			t.Errorf("rule %d is in force %v: %+v", n, ok, rec)
		}
	}
	sound(t, store, "many writers")
}
