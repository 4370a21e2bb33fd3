package shard

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestStateTableIsAMap compares a table with a map, while it grows.
func TestStateTableIsAMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	table, want := newStateTable(), map[stateID]state{}
	var known []stateID
	for i := range 50_000 {
		id := stateID{15: byte(i)} // many begin with the same bytes
		for b := range id[:8] {
			id[b] = byte(rng.IntN(4))
		}
		if i%3 == 0 && len(known) > 0 {
			id = known[rng.IntN(len(known))]
		}
		got, ok := table.Get(&id)
		if p, has := want[id]; got != p || ok != has {
			t.Fatalf("%x: %v, %t; the map has %v, %t", id, got, ok, p, has)
		}
		p := state{rng.Uint64() | 1, rng.Uint64()}
		table.Set(&id, p)
		want[id], known = p, append(known, id)
	}
	got := map[stateID]state{}
	for id, p := range table.All() {
		got[*id] = p
	}
	if !maps.Equal(got, want) || table.Len() != len(want) {
		t.Errorf("%d states, %d counted; the map has %d", len(got), table.Len(), len(want))
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
				id := stateID{14: byte(i >> 8), 15: byte(i)}
				for b := range id[:14] {
					id[b] = byte(rng.IntN(random))
				}
				table.Set(&id, state{uint64(i + 1), rng.Uint64()})
				if i%7 != 0 {
					want = append(want, id[:])
				}
			}
			slices.SortFunc(want, bytes.Compare)
			elements := table.Sorted(func(_ *stateID, s state) bool { return (s[0]-1)%7 == 0 }, func() {})
			if len(elements) != len(want)*elementSize {
				t.Fatalf("%d bytes of %d states", len(elements), len(want))
			}
			for i, id := range want {
				e := elements[i*elementSize:][:elementSize]
				if p, _ := table.Get((*stateID)(e)); !bytes.Equal(e[:16], id) || binary.LittleEndian.Uint64(e[16:]) != p[0] || binary.LittleEndian.Uint64(e[24:]) != p[1] {
					t.Fatalf("element %d of %d is %x, not %x", i, n, e, id)
				}
			}
		}
	}
}
