package names

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestSearchTakesFewRounds searches as many frames as segments of different sizes have, up to the
// largest, and compares with the frame that was meant. A read takes a second.
func TestSearchTakesFewRounds(t *testing.T) {
	const largest = math.MaxUint32 / 1024
	rng := rand.New(rand.NewPCG(1, 2))
	for _, frames := range []int{0, 1, 2, 15, 16, 17, 100, 1000, 4096, 97_657, largest} {
		at := []int{-1, 0, frames / 2, frames - 1}
		for range 20 {
			at = append(at, rng.IntN(frames+1)-1)
		}
		for _, want := range at {
			if want >= frames {
				continue
			}
			// Frame i begins with name 2i, and the text is behind that of the frame.
			text := fmt.Sprintf("%09d", 2*want+1)
			if want < 0 {
				text = ""
			}
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				reads := 0
				started := time.Now()
				lo, hi, err := search(t.Context(), frames, text, func(_ context.Context, frame int) (string, error) {
					mu.Lock()
					reads++
					mu.Unlock()
					time.Sleep(time.Second)
					return fmt.Sprintf("%09d", 2*frame), nil
				})
				took := int(time.Since(started) / time.Second)
				most := searchRounds
				if frames <= oneRead {
					most = 0
				} else if frames <= oneRead*leastProbes {
					most = 1
				}
				if max(want, 0) < lo || hi > frames || want >= hi || hi-lo > oneRead || err != nil || took > most {
					t.Errorf("frame %d of %d: got %d to %d, %v, in %d rounds", want, frames, lo, hi, err, took)
				}
				if reads > 3*int(math.Cbrt(float64(frames)))+3*leastProbes {
					t.Errorf("frame %d of %d: %d reads", want, frames, reads)
				}
			})
		}
	}
	broken := errors.New("broken")
	if _, _, err := search(t.Context(), 1000, "a", func(_ context.Context, frame int) (string, error) {
		return "", map[bool]error{true: broken}[frame > 500]
	}); !errors.Is(err, broken) {
		t.Errorf("%v, want that of the read", err)
	}
}

// TestSearchEqualsALinearOne uses names of which many are equal to the text or begin with it.
func TestSearchEqualsALinearOne(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		names := make([]string, rng.IntN(200))
		for i := range names {
			names[i] = fmt.Sprintf("%c%d", 'a'+rng.IntN(3), rng.IntN(100))
		}
		slices.Sort(names)
		names = slices.Compact(names)
		text := fmt.Sprintf("%c%d", 'a'+rng.IntN(3), rng.IntN(100))[:1+rng.IntN(2)]
		want := -1
		for i, name := range names {
			if name < text {
				want = i
			}
		}
		lo, hi, err := search(t.Context(), len(names), text, func(_ context.Context, frame int) (string, error) { return names[frame], nil })
		if max(want, 0) < lo || hi > len(names) || want >= hi || hi-lo > oneRead || err != nil {
			t.Fatalf("%q in %q: %d to %d, %v, want %d", text, names, lo, hi, err, want)
		}
	}
}
