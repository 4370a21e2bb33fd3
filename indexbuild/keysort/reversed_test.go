package keysort

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// reversedLines are random lines, of which many have long ends in common, end with zeros, or are
// other ones with zeros before them.
func reversedLines(rng *rand.Rand, n int) [][]byte {
	ends := [][]byte{nil, []byte(".com"), []byte(".co.uk"), bytes.Repeat([]byte("same"), 10), bytes.Repeat([]byte{0}, 20)}
	all := make([][]byte, n)
	for i := range all {
		for range rng.IntN(20) {
			all[i] = append(all[i], byte(rng.IntN(3)*rng.IntN(2)))
		}
		all[i] = append(all[i], ends[rng.IntN(len(ends))]...)
	}
	all[0] = bytes.Repeat([]byte("x"), MaxReversed)
	return all
}

// Lines come out in the order of a plain sort of the reversed ones, with any memory.
func TestReversedEqualsASort(t *testing.T) {
	for _, c := range []struct{ lines, memory int }{
		{1, 0}, {100, 1 << 20}, {100, 0}, {distributed - 1, 1 << 20}, {distributed, 1 << 20}, {40 * distributed, 100 << 20},
		{40 * distributed, 500_000}, {40 * distributed, 5000},
	} {
		rng := rand.New(rand.NewPCG(uint64(c.lines), uint64(c.memory)))
		lines := reversedLines(rng, c.lines)
		r := NewReversed(t.TempDir(), c.memory, rng.Int64N(int64(2*c.lines)))
		defer r.Close()
		var want [][]byte
		for left := lines; len(left) > 0; {
			some := left[:1+rng.IntN(min(len(left), 400))]
			left = left[len(some):]
			var text []byte
			var ends []uint32
			for _, line := range some {
				text = append(append(text, line...), '\n')
				ends = append(ends, uint32(len(text)))
				line = bytes.Clone(line)
				slices.Reverse(line)
				want = append(want, line)
			}
			if err := r.AddLines(text, ends); err != nil {
				t.Fatal(err)
			}
		}
		slices.SortFunc(want, bytes.Compare)
		var got [][]byte
		if err := r.Each(t.Context(), func(line []byte) error { got = append(got, bytes.Clone(line)); return nil }); err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("%+v: another order than that of a sort", c)
		}
	}
}
