package prefetch

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// Chunks are all of the bytes in their order, and Sum64 is the library's, whatever the length and wherever the bytes lie.
func TestChunks(t *testing.T) {
	data := make([]byte, 5*chunk)
	random := rand.NewChaCha8([32]byte{1})
	random.Read(data)
	for n := range len(data) {
		from := random.Uint64() % uint64(len(data)-n)
		b := data[from:][:n]
		var got []byte
		for piece := range Chunks(b) {
			if len(piece) == 0 {
				t.Fatalf("an empty piece of %d bytes", n)
			}
			got = append(got, piece...)
		}
		if !bytes.Equal(got, b) {
			t.Fatalf("the pieces of %d bytes are others", n)
		}
		if got, want := Sum64(b), xxhash.Sum64(b); got != want {
			t.Fatalf("sum of %d bytes: %016x, want %016x", n, got, want)
		}
	}
	for piece := range Chunks(data) {
		if len(piece) != chunk {
			t.Fatalf("the first piece has %d bytes", len(piece))
		}
		break // and nothing more is yielded
	}
}

// Memory that no cache has: blocks of the size of a page of a part, of so many that they are forgotten before they are read again.
func BenchmarkSum64(b *testing.B) {
	blocks := make([][]byte, 2048)
	for i := range blocks {
		blocks[i] = bytes.Repeat([]byte{byte(i)}, 64<<10)
	}
	for _, f := range []struct {
		name string
		sum  func([]byte) uint64
	}{{"asked", Sum64}, {"library", xxhash.Sum64}} {
		b.Run(fmt.Sprintf("far/%s", f.name), func(b *testing.B) {
			b.SetBytes(int64(len(blocks[0])))
			i := 0
			for b.Loop() {
				f.sum(blocks[i*797%len(blocks)])
				i++
			}
		})
		b.Run(fmt.Sprintf("near/%s", f.name), func(b *testing.B) {
			b.SetBytes(int64(len(blocks[0])))
			for b.Loop() {
				f.sum(blocks[0])
			}
		})
	}
}
