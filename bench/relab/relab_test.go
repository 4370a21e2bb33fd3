package relab

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/urlake/urlake/indexbuild/mph"
)

// TestSameBytesAsTheExchangeFormat holds the method against the project's own writer of that library's format.
func TestSameBytesAsTheExchangeFormat(t *testing.T) {
	for _, n := range []int{1, 2, 100, 20_000} {
		for _, parts := range []int{1, 2, 7} {
			rng := rand.New(rand.NewPCG(1, uint64(n)))
			keys := make([]uint64, n)
			for i := range keys {
				keys[i] = rng.Uint64()
			}
			h, err := Build(keys, parts)
			if err != nil {
				t.Fatal(err)
			}
			other, err := mph.BuildRelab(keys, parts)
			if err != nil {
				t.Fatal(err)
			}
			want, err := other.MarshalBinary()
			if err != nil {
				t.Fatal(err)
			}
			data := h.Encode()
			if !bytes.Equal(data, want) {
				t.Errorf("%d keys in %d parts: %d bytes, the exchange format has %d others", n, parts, len(data), len(want))
			}
			loaded := Load(data)
			seen := make([]bool, n)
			for _, k := range keys {
				at := h.Find(k)
				if at != other.Find(k) || at != loaded.Find(k) {
					t.Fatalf("%d keys in %d parts: key %x is number %d, %d in the exchange format, %d when loaded", n, parts, k, at, other.Find(k), loaded.Find(k))
				}
				if at < 1 || at > uint64(n) || seen[at-1] {
					t.Fatalf("%d keys in %d parts: number %d is not another's of %d", n, parts, at, n)
				}
				seen[at-1] = true
			}
		}
	}
}

func TestEqualKeysAreRefused(t *testing.T) {
	if _, err := Build([]uint64{7, 7}, 1); err == nil {
		t.Error("two equal keys have a perfect hash")
	}
}
