package lake

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// Pieces of any length come whole to where they go, and nothing around them changes.
func TestCopyEachCopiesPiecesOnly(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for round := range 200 {
		n := rng.IntN(33)
		got, want := make([]byte, 64<<10), make([]byte, 64<<10)
		for i := range got {
			got[i] = byte(rng.Uint32())
		}
		copy(want, got)
		var to, plain, from [][]byte
		at := 0
		for range n {
			size := rng.IntN(1 + rng.IntN(1<<rng.IntN(11)))
			piece := make([]byte, size)
			for i := range piece {
				piece[i] = byte(rng.Uint32())
			}
			at += rng.IntN(3)
			from, to, plain = append(from, piece), append(to, got[at:at+size]), append(plain, want[at:])
			at += size
		}
		copyEach(to, from)
		copyEachPlain(plain, from)
		if !bytes.Equal(got, want) {
			t.Fatalf("round %d: pieces came elsewhere", round)
		}
	}
}

// A piece is appended to two texts as append does it.
func TestAppendTwice(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for size := range 300 {
		piece := make([]byte, size)
		for i := range piece {
			piece[i] = byte(rng.Uint32())
		}
		text := []byte("what is there")
		a, b := make([]byte, rng.IntN(10), 10+rng.IntN(400)), bytes.Clone(text)
		wantA, wantB := append(bytes.Clone(a), piece...), append(bytes.Clone(b), piece...)
		a, b = appendTwice(a, b, piece)
		if !bytes.Equal(a, wantA) || !bytes.Equal(b, wantB) {
			t.Fatalf("%d bytes: another text", size)
		}
	}
	if a, b := appendTwice(nil, nil, nil); a != nil || b != nil {
		t.Errorf("nothing appended to nil is %v and %v", a, b)
	}
}
