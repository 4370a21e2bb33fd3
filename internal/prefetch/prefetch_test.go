package prefetch

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/cespare/xxhash/v2"
)

// For every length and alignment, Chunks yields all bytes in order, and Sum64 equals the library's
// sum.
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
				t.Fatalf("an empty chunk of %d bytes", n)
			}
			got = append(got, piece...)
		}
		if !bytes.Equal(got, b) {
			t.Fatalf("the chunks of %d bytes have other bytes", n)
		}
		if got, want := Sum64(b), xxhash.Sum64(b); got != want {
			t.Fatalf("sum of %d bytes: %016x, want %016x", n, got, want)
		}
	}
	for piece := range Chunks(data) {
		if len(piece) != chunk {
			t.Fatalf("the first chunk has %d bytes", len(piece))
		}
		break // Chunks must not panic
	}
}

// Any offset and any address may be prefetched; the bytes stay as they are.
func TestPrefetchesNeverFault(t *testing.T) {
	b := []byte("some bytes")
	for _, off := range []int{0, 5, 10, 64, 1 << 20, -1 << 20, math.MaxInt} {
		At(b, off)
		At(nil, off)
	}
	ForWriting(unsafe.Pointer(&b[0]), 1)
	ForWriting(unsafe.Pointer(&b[0]), 10_000)
	ForWriting(nil, 64)
	if string(b) != "some bytes" {
		t.Errorf("bytes changed to %q", b)
	}
}

// BenchmarkSum64 hashes blocks of 64 KiB. "far" has so many of them that each has left all caches
// before it is hashed again; "near" hashes the same one.
func BenchmarkSum64(b *testing.B) {
	blocks := make([][]byte, 2048)
	for i := range blocks {
		blocks[i] = bytes.Repeat([]byte{byte(i)}, 64<<10)
	}
	for _, f := range []struct {
		name string
		sum  func([]byte) uint64
	}{{"prefetched", Sum64}, {"library", xxhash.Sum64}} {
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
