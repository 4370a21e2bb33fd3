package zstdtext

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// compareLiterals encodes literals with and without assembly and compares the results.
func compareLiterals(t *testing.T, h *huffman, lits []byte) {
	t.Helper()
	fast := hasAVX512
	defer func() { hasAVX512 = fast }()
	got := bytes.Clone(h.append(nil, lits))
	hasAVX512 = false
	if want := h.append(nil, lits); !bytes.Equal(got, want) {
		at := 0
		for at < min(len(got), len(want)) && got[at] == want[at] {
			at++
		}
		t.Fatalf("%d literals are %d bytes, without assembly %d; they differ from byte %d on", len(lits), len(got), len(want), at)
	}
}

func TestAssemblyEncodesLiterals(t *testing.T) {
	var h huffman
	for name, text := range texts() {
		compareLiterals(t, &h, text[:min(len(text), 1<<17)])
		if t.Failed() {
			t.Fatal(name)
		}
	}
	for n := range 200 {
		compareLiterals(t, &h, words(uint64(n), 8000+n))
	}
}

func TestAssemblySortsSymbols(t *testing.T) {
	fast := hasAVX512
	defer func() { hasAVX512 = fast }()
	rng := rand.New(rand.NewPCG(10, 1))
	var h huffman
	for range 5000 {
		h.total = [256]uint32{}
		for range 1 + rng.IntN(400) {
			h.total[rng.IntN(256)] = uint32(rng.IntN(1 + 1<<rng.IntN(18)))
		}
		hasAVX512 = fast
		h.sort()
		got := slices.Clone(h.order)
		hasAVX512 = false
		if h.sort(); !slices.Equal(got, h.order) {
			t.Fatalf("counts %d are sorted to %d, without assembly to %d", h.total, got, h.order)
		}
	}
}

func FuzzLiterals(f *testing.F) {
	f.Add([]byte("/a/b/c/index.html"), uint16(1000))
	f.Add(words(1, 3000), uint16(3))
	f.Add(fibonacci()[:10_000], uint16(1))
	f.Add(random(3, 3000, 128), uint16(2))
	var h huffman
	f.Fuzz(func(t *testing.T, text []byte, times uint16) {
		text = varied(text, int(times))
		compareLiterals(t, &h, text[:min(len(text), 1<<17)])
	})
}
