package zstdtext

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestAssemblySetsSequences compares codesAVX512 and copyAVX2 with Go for matches of all lengths
// and distances, with few and many literals between them, up to the end of the text.
func TestAssemblySetsSequences(t *testing.T) {
	fast := hasAVX512
	defer func() { hasAVX512 = fast }()
	rng := rand.New(rand.NewPCG(13, 1))
	text := random(21, 1<<17, 256)
	var got, want sequences
	for round := range 2000 {
		from := rng.IntN(5) * rng.IntN(100)
		var matches []match
		gaps, lengths, distances := rng.IntN(14), rng.IntN(14), rng.IntN(18)
		for end := from; len(matches) < 1+round; {
			start := end + rng.IntN(1+rng.IntN(1<<gaps))
			end = start + minMatch + rng.IntN(1+rng.IntN(1<<lengths))
			if end > len(text) {
				break
			}
			matches = append(matches, match{int32(start), int32(end), int32(1 + rng.IntN(1<<distances))})
		}
		text := text[:len(text)-rng.IntN(2)*rng.IntN(100)]
		for len(matches) > 0 && int(matches[len(matches)-1].end) > len(text) {
			matches = matches[:len(matches)-1]
		}
		if len(matches) == 0 {
			continue
		}
		if rng.IntN(2) == 0 {
			text = text[:matches[len(matches)-1].end]
		}
		matches = slices.Grow(matches, sequenceSlack)
		hasAVX512 = fast
		lastGot := got.set(text, from, matches, 7)
		hasAVX512 = false
		last := want.set(text, from, matches, 7)
		if last != lastGot || !bytes.Equal(got.literals, want.literals) ||
			!slices.Equal(got.bits, want.bits) || !slices.Equal(got.codes, want.codes) ||
			got.ll.counts != want.ll.counts || got.ml.counts != want.ml.counts || got.of.counts != want.of.counts {
			t.Fatalf("%d matches of up to %d bits, literals %d, distances %d: other sequences than without assembly",
				len(matches), lengths, gaps, distances)
		}
	}
}

// TestAssemblyEncodesSequences compares encodeBMI2 with encodeGeneric for sequences of all lengths
// and distances, few and many, with tables of all kinds.
func TestAssemblyEncodesSequences(t *testing.T) {
	fast := hasBMI2
	defer func() { hasBMI2 = fast }()
	rng := rand.New(rand.NewPCG(12, 1))
	var q sequences
	for range 3000 {
		n := 1 + rng.IntN(1+1<<rng.IntN(13))
		q.reset(0, n)
		lits, lengths, offsets := rng.IntN(18), rng.IntN(18), rng.IntN(18)
		for range n {
			q.add(uint32(rng.IntN(1<<lits)), minMatch+uint32(rng.IntN(1<<lengths)), 1+uint32(rng.IntN(1<<offsets)))
		}
		hasBMI2 = fast
		got := q.append(nil)
		hasBMI2 = false
		if want := q.append(nil); !bytes.Equal(got, want) {
			t.Fatalf("%d sequences of up to %d, %d and %d bits: %d bytes, and other %d bytes without assembly",
				n, lits, lengths, offsets, len(got), len(want))
		}
	}
}

// FuzzFrames compares frames with those made without assembly.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("lengths"), []byte("/a/b/c/index.html"), uint16(1))
	f.Add(bytes.Repeat([]byte{1, 2}, 50), words(1, 3000), uint16(3))
	f.Add([]byte{}, words(2, 500), uint16(700))
	var fast, slow Encoder
	f.Fuzz(func(t *testing.T, lengths, text []byte, times uint16) {
		text = varied(text, int(times))
		got := fast.Append(nil, lengths, text)
		defer func(b, c, d bool) { hasBMI2, hasAVX2, hasAVX512 = b, c, d }(hasBMI2, hasAVX2, hasAVX512)
		hasBMI2, hasAVX2, hasAVX512 = false, false, false
		if want := slow.Append(nil, lengths, text); !bytes.Equal(got, want) {
			t.Fatalf("%d and %d bytes: a frame of %d bytes, without assembly another of %d",
				len(lengths), len(text), len(got), len(want))
		}
	})
}
