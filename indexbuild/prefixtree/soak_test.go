//go:build soak

package prefixtree

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
)

// TestMillionKeysInBothFormats builds the index of a million keys in both formats, with so little
// memory that there are many runs, and compares every node of both with sums by prefix.
func TestMillionKeysInBothFormats(t *testing.T) {
	n := testenv.Scaled(t, 1_000_000, 10_000)
	k := newKeyMaker(1)
	var objects []object
	for i := range n {
		key := string(k.next())
		objects = append(objects, object{key, uint64(i), Tier(i % 3)})
		if i%5 == 0 {
			objects = append(objects, object{key + "x", uint64(i), Tier(i % 7)})
		}
	}
	want := bruteForce(objects)
	prefixes := slices.Sorted(maps.Keys(want))
	for _, format := range Formats() {
		dir, stats := build(t, Options{Format: format, Memory: 8 << 20, Collectors: 2}, objects)
		x := open(t, dir)
		if err := x.Verify(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		if stats.Nodes != uint64(len(prefixes)) {
			t.Fatalf("%d nodes, want %d", stats.Nodes, len(prefixes))
		}
		for pos, p := range prefixes {
			at, ok, err := x.Lookup([]byte(p))
			if err != nil || !ok || at != uint64(pos) {
				t.Fatalf("%q is at %d, %t, %v; want %d", p, at, ok, err, pos)
			}
			got, err := x.Node(at)
			e := want[p]
			if err != nil || got.Sum != e.Sum || got.Depth != e.Depth || got.MaxDepth != e.MaxDepth {
				t.Fatalf("%q is %+v, %v; want %+v", p, got, err, e)
			}
			tiers, err := x.Tiers(at)
			if err != nil || len(tiers) != len(e.Tiers) {
				t.Fatalf("%q has tiers %v, %v; want %v", p, tiers, err, e.Tiers)
			}
			for _, s := range tiers {
				if s.Sum != e.Tiers[s.Tier] {
					t.Fatalf("%q has %v; want %v", p, s, e.Tiers)
				}
			}
		}
	}
}
