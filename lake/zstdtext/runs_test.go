package zstdtext

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/urlake/urlake/lake/seekable"
)

// repeat is the content that AppendRuns encodes.
func repeat(values []byte, width int, counts []int32) (b []byte) {
	for i, n := range counts {
		b = append(b, bytes.Repeat(values[i*width:(i+1)*width], int(n))...)
	}
	return b
}

func TestOtherDecodersReadRuns(t *testing.T) {
	dec := newDecoder(t)
	rng := rand.New(rand.NewPCG(9, 1))
	var e Encoder
	for _, width := range []int{4, 8} {
		for _, letters := range []int{1, 3, 256} {
			for _, n := range []int{0, 1, 2, 3, 100, 5000, seekable.MaxRawBlock / width, 40_000} {
				for _, most := range []int{1, 2, 5, 300, 100_000} {
					values, counts := random(rng.Uint64(), n*width, letters), make([]int32, n)
					total := 0
					for i := range counts {
						counts[i] = int32(1 + rng.IntN(most))
						if total += int(counts[i]) * width; total > 600_000 {
							values, counts = values[:(i+1)*width], counts[:i+1]
							break
						}
					}
					want := repeat(values, width, counts)
					frame := e.AppendRuns([]byte("before"), values, width, counts)
					check(t, dec, frame[len("before"):], nil, want)
					if t.Failed() {
						t.Fatalf("%d values of %d bytes of %d letters, up to %d times", n, width, letters, most)
					}
					if most := len(want) + 9 + 3*(1+len(want)/seekable.MaxRawBlock); len(frame)-len("before") > most {
						t.Errorf("%d bytes compress to %d", len(want), len(frame))
					}
				}
			}
		}
	}
}

// Of a run that begins in a raw block, only that block's part is expanded.
func TestLongRunTakesLittleMemory(t *testing.T) {
	const width = 8
	values, counts := random(12, seekable.MaxRawBlock, 256), make([]int32, seekable.MaxRawBlock/width)
	for i := range counts {
		counts[i] = 1
	}
	counts[len(counts)-1] = 1 << 20
	var e Encoder
	check(t, newDecoder(t), e.AppendRuns(nil, values, width, counts), nil, repeat(values, width, counts))
	if n := cap(e.joined); n < seekable.MaxRawBlock || n > 2*seekable.MaxRawBlock {
		t.Errorf("scratch memory of %d bytes for a block of %d", n, seekable.MaxRawBlock)
	}
}

func FuzzAppendRuns(f *testing.F) {
	f.Add([]byte("abcdefghijklmnop"), []byte{1, 3}, true)
	f.Add(random(1, 4000, 256), random(2, 500, 9), true)
	f.Add(random(1, 4000, 2), random(2, 1000, 256), false)
	dec := newDecoder(f)
	var e Encoder
	f.Fuzz(func(t *testing.T, values, times []byte, wide bool) {
		width := 4
		if wide {
			width = 8
		}
		n := min(len(values)/width, len(times))
		counts := make([]int32, n)
		for i := range counts {
			counts[i] = 1 + int32(times[i])*int32(times[i])/4
		}
		values = values[:n*width]
		check(t, dec, e.AppendRuns(nil, values, width, counts), nil, repeat(values, width, counts))
	})
}

// AppendRuns takes no more bytes than a search for matches in the same content.
func TestRunsAreNoLargerThanSearchedText(t *testing.T) {
	rng := rand.New(rand.NewPCG(10, 1))
	values, counts := random(11, 8*3000, 256), make([]int32, 3000)
	for i := range counts {
		counts[i] = 1 + int32(rng.IntN(4))
	}
	var e Encoder
	own, found := len(e.AppendRuns(nil, values, 8, counts)), len(e.Append(nil, nil, repeat(values, 8, counts)))
	if own > found {
		t.Errorf("%d bytes, %d when matches are searched for", own, found)
	}
}
