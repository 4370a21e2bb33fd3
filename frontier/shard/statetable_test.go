package shard

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestStateTableIsAMap compares a table with a map, while it grows.
func TestStateTableIsAMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	table, want := newStateTable(), map[URLID]packed{}
	var known []URLID
	for i := range 50_000 {
		id := URLID{15: byte(i)} // many begin with the same bytes
		for b := range id[:8] {
			id[b] = byte(rng.IntN(4))
		}
		if i%3 == 0 && len(known) > 0 {
			id = known[rng.IntN(len(known))]
		}
		got, ok := table.get(&id)
		if p, has := want[id]; got != p || ok != has {
			t.Fatalf("%x: %v, %t; the map has %v, %t", id, got, ok, p, has)
		}
		p := packed{rng.Uint64() | 1, rng.Uint64()}
		table.set(&id, p)
		want[id], known = p, append(known, id)
	}
	got := map[URLID]packed{}
	for id, p := range table.all() {
		got[*id] = p
	}
	if !maps.Equal(got, want) || table.len() != len(want) {
		t.Errorf("%d states, %d counted; the map has %d", len(got), table.len(), len(want))
	}
}

// TestStatesAreSorted writes tables of any size, of ids that are hashes and of some that are not.
func TestStatesAreSorted(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for _, n := range []int{0, 1, 2, 5, 100, 3000} {
		for _, random := range []int{256, 2} {
			table := newStateTable()
			var want [][]byte
			for i := range n {
				id := URLID{14: byte(i >> 8), 15: byte(i)}
				for b := range id[:14] {
					id[b] = byte(rng.IntN(random))
				}
				st := State{Seq: uint64(i + 1)}
				table.set(&id, st.pack())
				if i%7 != 0 {
					want = append(want, id[:])
				}
			}
			slices.SortFunc(want, bytes.Compare)
			elements := table.sorted(func(_ *URLID, p packed) bool { return (p.unpack().Seq-1)%7 == 0 })
			if len(elements) != len(want)*seenElement {
				t.Fatalf("%d bytes of %d states", len(elements), len(want))
			}
			for i, id := range want {
				e := elements[i*seenElement:][:seenElement]
				if p, _ := table.get((*URLID)(e)); !bytes.Equal(e[:16], id) || elementState(e) != p {
					t.Fatalf("element %d of %d is %x, not %x", i, n, e, id)
				}
			}
		}
	}
}

// TestTwiceInABatch adds URLs that one batch has twice, next to each other or far apart, to queues
// that are new or not.
func TestTwiceInABatch(t *testing.T) {
	s, _, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for round := range 3 {
		var entries []Entry
		for i := range 500 {
			for range 2 {
				entries = append(entries, Entry{Queue: QueueName("c", fmt.Sprint("q", i%7)), URL: fmt.Sprint("https://a/", round, i%350)})
			}
		}
		statuses, _, err := add(s, entries)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[[2]string]bool{}
		ids := make([]ID, len(entries))
		for i, e := range entries {
			name := [2]string{e.Queue, e.URL}
			if got := statuses[i] == Added; got == seen[name] {
				t.Fatalf("entry %d: %d", i, statuses[i])
			}
			seen[name], ids[i] = true, IDOf(e.Queue+"\x00"+e.URL+"?"[:i%2], len(e.Queue))
		}
		next := 0
		s.SeenAll(ids, func(i int, st State, ok bool) {
			if i != next || ok != (i%2 == 0) || ok && st.Seq == 0 {
				t.Errorf("%d, after %d: %v, %+v", i, next, ok, st)
			}
			next++
		})
		if next != len(ids) {
			t.Errorf("%d of %d answers", next, len(ids))
		}
		if err := s.Flush(); err != nil { // so that the next round has them in a file
			t.Fatal(err)
		}
	}
	if c := s.Stats(); c.Pending != 3*350 {
		t.Errorf("%+v", c)
	}
}
