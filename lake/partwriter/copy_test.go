package partwriter

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
)

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

// Nothing behind a piece, or behind where it goes, is read or written.
func TestPiecesAreCopiedInTheirMemoryOnly(t *testing.T) {
	const room = 128 // what appendTwice may write to
	from, to := testenv.Guarded(t, 300), testenv.Guarded(t, 300)
	for i := range from {
		from[i] = byte(i)
	}
	for size := range len(from) + 1 {
		piece := from[len(from)-size:]
		a, b := appendTwice(nil, []byte("x"), piece)
		if !bytes.Equal(a, piece) || !bytes.Equal(b[1:], piece) || b[0] != 'x' {
			t.Fatalf("%d bytes appended as %x and %x", size, a, b)
		}
		clear(to)
		at := len(to) - max(size, room)
		if a, _ = appendTwice(to[:at], nil, piece); !bytes.Equal(a[at:], piece) {
			t.Fatalf("%d bytes appended as %x", size, a[at:])
		}
	}
}
