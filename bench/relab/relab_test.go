package relab

import (
	"encoding/hex"
	"math/rand/v2"
	"testing"
)

// TestBytesOfTheExchangeFormat compares encoded hashes of 40 keys with bytes that another
// implementation of the format wrote.
func TestBytesOfTheExchangeFormat(t *testing.T) {
	keys := make([]uint64, 40)
	for i := range keys {
		keys[i] = uint64(i+1) * 0x9e3779b97f4a7c15
	}
	for parts, want := range map[int]string{
		1: "01020200000074c30472200c0040242a0016804ac81901000000800204000000000a",
		3: "030101000000300b041220080803020100000000220034804c8412010000000040000000080000010100000060c000420002444a0d0000001c000000",
	} {
		h, err := Build(keys, parts)
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(h.Encode()); got != want {
			t.Errorf("%d parts: encoded as %s, want %s", parts, got, want)
		}
	}
}

func TestHashIsMinimalAndPerfect(t *testing.T) {
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
			loaded := Load(h.Encode())
			seen := make([]bool, n)
			for _, k := range keys {
				at := h.Find(k)
				if got := loaded.Find(k); got != at {
					t.Fatalf("%d keys in %d parts: key %x is number %d, %d when loaded", n, parts, k, at, got)
				}
				if at < 1 || at > uint64(n) || seen[at-1] {
					t.Fatalf("%d keys in %d parts: key %x has number %d, want one of its own up to %d", n, parts, k, at, n)
				}
				seen[at-1] = true
			}
		}
	}
}

func TestEqualKeysAreRejected(t *testing.T) {
	if _, err := Build([]uint64{7, 7}, 1); err == nil {
		t.Error("Build accepts two equal keys")
	}
}
