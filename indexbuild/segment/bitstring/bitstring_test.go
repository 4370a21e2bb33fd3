package bitstring

import (
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

// Bit strings agree with arithmetic on one large number.
func TestBitStrings(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 200 {
		b := make(String, 1+rng.IntN(30))
		for i := range b {
			b[i] = byte(rng.Uint32()) & byte(rng.Uint32()>>rng.IntN(9))
		}
		le := slices.Clone(b)
		slices.Reverse(le)
		whole := new(big.Int).SetBytes(le)
		total := 8 * len(b)
		var ones, zeros []int
		for i := range total {
			if got, want := b.Has(i), whole.Bit(i) == 1; got != want {
				t.Fatalf("bit %d of %x", i, b)
			} else if got {
				ones = append(ones, i)
			} else {
				zeros = append(zeros, i)
			}
			before := len(ones)
			if b.Has(i) {
				before--
			}
			if got := b.Rank(i); got != before {
				t.Fatalf("rank %d of %x: %d", i, b, got)
			}
		}
		for k := range total {
			want := -1
			if k < len(ones) {
				want = ones[k]
			}
			if got := b.SelectOne(k); got != want {
				t.Fatalf("one %d of %x: %d, want %d", k, b, got, want)
			}
			want = -1
			limit := rng.IntN(total + 1)
			if k < len(zeros) && zeros[k] < limit {
				want = zeros[k]
			}
			if got := b.SelectZero(k, limit); got != want {
				t.Fatalf("zero %d of %d bits of %x: %d, want %d", k, limit, b, got, want)
			}
		}
		for range 100 {
			width := rng.IntN(min(64, total) + 1)
			off := rng.IntN(total - width + 1)
			want := new(big.Int).Rsh(whole, uint(off))
			want.And(want, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), uint(width)), big.NewInt(1)))
			if got := b.At(uint(off), uint(width)); got != want.Uint64() {
				t.Fatalf("%d bits at %d of %x: %x, want %x", width, off, b, got, want)
			}
		}
	}
}
