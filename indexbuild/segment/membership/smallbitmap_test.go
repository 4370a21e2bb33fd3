package membership

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
)

// bitmapOf returns a set as the library writes it.
func bitmapOf(tb testing.TB, values []uint32) []byte {
	tb.Helper()
	b := roaring.BitmapOf(values...)
	b.RunOptimize()
	data, err := b.ToBytes()
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// appendBitmap writes what the library writes, and readSmallBitmap reads it.
func TestSmallBitmapsMatchTheLibrary(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	small := 0
	for range 20_000 {
		var values []uint32
		next := uint32(rng.IntN(1 << rng.IntN(18)))
		for range 1 + rng.IntN(1<<rng.IntN(12)) {
			values = append(values, next)
			if next++; rng.IntN(3) == 0 {
				next += uint32(rng.IntN(1 << rng.IntN(8)))
			}
		}
		got, ok := appendBitmap([]byte("x"), values)
		if !ok {
			if len(values) <= maxSmallValues && values[len(values)-1] < 1<<16 {
				t.Fatalf("%d values up to %d are rejected", len(values), values[len(values)-1])
			}
			continue
		}
		small++
		want := bitmapOf(t, values)
		if !bytes.Equal(got[1:], want) {
			t.Fatalf("%v: %x, want %x", values, got[1:], want)
		}
		back, ok := readSmallBitmap(want, []uint32{7})
		if !ok || !slices.Equal(back[1:], values) || back[0] != 7 {
			t.Fatalf("%v: read %v, %v", values, back, ok)
		}
	}
	if small < 10_000 {
		t.Errorf("only %d sets were small", small)
	}
}

// readSmallBitmap accepts only bitmaps that the library accepts, and reads the same values.
func FuzzReadSmallBitmap(f *testing.F) {
	for _, values := range [][]uint32{{0}, {1, 2, 3, 4, 5}, {1, 3, 70, 65535}, {1, 2, 3, 4, 9, 10, 11, 12, 13, 65535}} {
		f.Add(bitmapOf(f, values))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, ok := readSmallBitmap(data, nil)
		if !ok {
			return
		}
		b, err := readBitmap(data)
		if err != nil {
			t.Fatalf("the library fails (%v) where readSmallBitmap reads %v", err, got)
		}
		if want := b.ToArray(); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}
