package bbhash

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/urlake/urlake/lake/codec"
)

// encode builds the hash of keys in some parts and returns its bytes.
func encode(tb testing.TB, keys []uint64, parts int) []byte {
	tb.Helper()
	split := make([][]uint64, parts)
	for _, k := range keys {
		i := PartOf(k, parts)
		split[i] = append(split[i], k)
	}
	var buf bytes.Buffer
	w, err := NewWriter(&buf, parts)
	if err != nil {
		tb.Fatal(err)
	}
	for _, keys := range split {
		p, err := Build(keys)
		if err != nil {
			tb.Fatal(err)
		}
		if _, err := w.Add(p); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Finish(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

// The bytes of 40 keys are those that another implementation of the serialisation wrote.
func TestBytesOfAnotherImplementation(t *testing.T) {
	keys := make([]uint64, 40)
	for i := range keys {
		keys[i] = uint64(i+1) * 0x9e3779b97f4a7c15
	}
	for parts, want := range map[int]string{
		1: "01020200000074c30472200c0040242a0016804ac81901000000800204000000000a",
		3: "030101000000300b041220080803020100000000220034804c8412010000000040000000080000010100000060c000420002444a0d0000001c000000",
	} {
		if got := hex.EncodeToString(encode(t, keys, parts)); got != want {
			t.Errorf("%d parts: %s, want %s", parts, got, want)
		}
	}
}

func TestSlotsAreDistinct(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 100, 5000, 60_000} {
		for _, parts := range []int{1, 2, 7, maxParts} {
			rng := rand.New(rand.NewPCG(uint64(n), uint64(parts)))
			keys := make([]uint64, n)
			for i := range keys {
				keys[i] = rng.Uint64()
			}
			// Some keys come several times.
			h, err := Open(encode(t, append(slices.Clone(keys), keys[n/2:]...), parts), "hash")
			if err != nil {
				t.Fatal(err)
			}
			if h.Keys() != uint64(n) {
				t.Fatalf("%d keys, want %d", h.Keys(), n)
			}
			taken := make([]bool, n)
			for _, k := range keys {
				slot, ok := h.Slot(k)
				if !ok || slot >= uint64(n) || taken[slot] {
					t.Fatalf("%d keys in %d parts: key %x has slot %d, %t", n, parts, k, slot, ok)
				}
				taken[slot] = true
			}
			for range 1000 {
				if slot, ok := h.Slot(rng.Uint64()); ok && slot >= uint64(n) {
					t.Fatalf("an absent key has slot %d of %d", slot, n)
				}
			}
		}
	}
}

func TestPartsFollowFromTheNumberOfKeys(t *testing.T) {
	for n, want := range map[uint64]int{0: 1, 1: 1, partKeys: 1, partKeys + 1: 2, 10_000_000: 77, MaxKeys: maxParts} {
		if got := Parts(n); got != want {
			t.Errorf("%d keys: %d parts, want %d", n, got, want)
		}
	}
}

func TestWriterRefusesWrongParts(t *testing.T) {
	for _, parts := range []int{-1, 0, maxParts + 1} {
		if _, err := NewWriter(&bytes.Buffer{}, parts); err == nil {
			t.Errorf("%d parts", parts)
		}
	}
	w, err := NewWriter(&bytes.Buffer{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(); err == nil {
		t.Error("finished without a part")
	}
	p, err := Build([]uint64{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := w.Add(p); first != 0 || err != nil {
		t.Errorf("the first part begins at %d: %v", first, err)
	}
	if _, err := w.Add(p); err == nil {
		t.Error("added a part too many")
	}
	if _, err := w.Add(&Part{keys: MaxKeys}); err == nil {
		t.Error("added too many keys")
	}
}

func TestTruncatedHash(t *testing.T) {
	keys := []uint64{1, 2, 3, 1 << 63, 77}
	for _, parts := range []int{1, 3} {
		whole := encode(t, keys, parts)
		for n := range whole {
			if _, err := Open(whole[:n], "hash"); !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("%d of %d bytes: %v", n, len(whole), err)
			}
		}
		if _, err := Open(append(slices.Clone(whole), 0), "hash"); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("a byte too many: %v", err)
		}
	}
}

// FuzzOpen finds no bytes that make Open or Slot panic, or give a slot that there is not.
func FuzzOpen(f *testing.F) {
	for _, parts := range []int{1, 3} {
		f.Add(encode(f, []uint64{1, 2, 3, 99, 1 << 40}, parts))
	}
	f.Add([]byte{1, 0})
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := Open(data, "hash")
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		for k := range uint64(200) {
			if slot, ok := h.Slot(k * 0x9e3779b97f4a7c15); ok && slot >= h.Keys() {
				t.Fatalf("slot %d of %d", slot, h.Keys())
			}
		}
	})
}

func BenchmarkSlot(b *testing.B) {
	for _, n := range []int{1_000_000, 10_000_000} {
		rng := rand.New(rand.NewPCG(1, 1))
		keys := make([]uint64, n)
		for i := range keys {
			keys[i] = rng.Uint64()
		}
		h, err := Open(encode(b, slices.Clone(keys), Parts(uint64(n))), "hash")
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("%d", n), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if _, ok := h.Slot(keys[i%n]); !ok {
					b.Fatal("a key has no slot")
				}
			}
		})
	}
}
