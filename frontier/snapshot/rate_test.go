package snapshot

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// TestRate reads with a bound, and without.
func TestRate(t *testing.T) {
	read := func(t *testing.T, ctx context.Context, r *rate.Limiter, size int) (time.Duration, error) {
		t.Helper()
		began := time.Now()
		n, err := io.Copy(io.Discard, &ratedReader{ctx, r, bytes.NewReader(make([]byte, size))})
		if err == nil && n != int64(size) {
			t.Errorf("%d bytes, want %d", n, size)
		}
		return time.Since(began), err
	}
	synctest.Test(t, func(t *testing.T) {
		r := newLimiter(1 << 20)
		ahead := time.Second * readAtOnce >> 20
		for _, size := range []int{10 << 20, 3 << 20} {
			took, err := read(t, t.Context(), r, size)
			if want := time.Duration(size>>20) * time.Second; err != nil || took > want+ahead || took < want-ahead {
				t.Errorf("%d bytes took %v, want %v: %v", size, took, want, err)
			}
			time.Sleep(time.Minute) // which is no right to read faster
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		if took, err := read(t, ctx, r, 10<<20); !errors.Is(err, context.Canceled) || took != 3*time.Second {
			t.Errorf("ended after %v: %v", took, err)
		}
		if took, err := read(t, t.Context(), newLimiter(0), 64<<20); err != nil || took != 0 {
			t.Errorf("without a bound: %v, %v", took, err)
		}
	})
}
