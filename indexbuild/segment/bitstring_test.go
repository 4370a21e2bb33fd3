package segment

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
		b := make(bitString, 1+rng.IntN(30))
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
		for _, c := range []struct {
			name     string
			selector func() selector
			want     []int
		}{{"one", b.Ones, ones}, {"zero", b.Zeros, zeros}} {
			resumed := c.selector()
			for k, want := range c.want {
				fresh := c.selector()
				if got := fresh.Select(k); got != want {
					t.Fatalf("%s %d of %x: %d, want %d", c.name, k, b, got, want)
				}
				if rng.IntN(3) == 0 {
					continue
				}
				for range 1 + rng.IntN(2) {
					if got := resumed.Select(k); got != want {
						t.Fatalf("%s %d of %x after those before: %d, want %d", c.name, k, b, got, want)
					}
				}
			}
		}
		for _, k := range []int{len(ones), len(ones) + 1, 9 * total} {
			s := b.Ones()
			for range 2 {
				if got := s.Select(k); got != -1 {
					t.Fatalf("%x has %d ones, and number %d was found at %d", b, len(ones), k, got)
				}
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
