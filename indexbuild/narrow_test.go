package indexbuild

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/urlake/urlake/indexbuild/keysort"
)

// However many lists there are, as few are left as are merged at once, and what they have is the
// same.
func TestNarrow(t *testing.T) {
	for _, c := range []struct{ width, n int }{
		{maxWidth, maxWidth}, {maxWidth, maxWidth + 1}, {maxWidth, maxWidth + 100}, {maxWidth, 2*maxWidth - 1},
		{maxWidth, 2 * maxWidth}, {maxWidth, 3*maxWidth + 7},
		{2, 9}, {3, 9}, {7, 100}, {100, 101},
	} {
		width, n := c.width, c.n
		rng := rand.New(rand.NewPCG(uint64(n), 5))
		want := map[string][]uint32{}
		var sources []domainSource
		var domains []int64
		for i := range n {
			src := &listSource{rng: rand.New(rand.NewPCG(uint64(i), 5))}
			for d := range 60 {
				if rng.IntN(20) == 0 {
					name := fmt.Sprintf("%02d.example", d)
					want[name] = append(want[name], uint32(i))
					src.list = append(src.list, oneRow(name, uint32(i)))
				}
			}
			sources, domains = append(sources, src), append(domains, int64(len(src.list)))
		}
		spool, err := keysort.NewSpool(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		left, err := narrow(context.Background(), slices.Clone(sources), domains, datasetsOfOne(n), spool, width)
		if err != nil {
			t.Fatal(err)
		}
		if exact := n < 2*width; len(left) > width || exact && len(left) < width {
			t.Errorf("%d of %d lists are left, want %d", len(left), n, width)
		}
		names, sets, err := mergeNames(left, datasetsOfOne(n))
		spool.Close()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.IsSorted(names) || !maps.EqualFunc(sets, want, slices.Equal) {
			t.Errorf("%d lists, width %d: other domains or datasets", n, width)
		}
	}
}

func TestLightest(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 5))
	for range 500 {
		weights := make([]int64, 1+rng.IntN(12))
		for i := range weights {
			weights[i] = rng.Int64N(5)
		}
		n := 1 + rng.IntN(len(weights))
		sum := func(from int) (all int64) {
			for _, w := range weights[from : from+n] {
				all += w
			}
			return all
		}
		want := 0
		for from := range len(weights) - n + 1 {
			if sum(from) < sum(want) {
				want = from
			}
		}
		if got := lightest(weights, n); got != want {
			t.Fatalf("the lightest %d of %d begin at %d, want %d", n, weights, got, want)
		}
	}
}
