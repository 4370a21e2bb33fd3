package segment

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/urlake/urlake/lake/blob"
)

// TestOneRequestReadsAFrameAgain has many requests for one frame, and ends the one that reads it
// for all in the middle of that.
func TestOneRequestReadsAFrameAgain(t *testing.T) {
	m := randomModel(rand.New(rand.NewPCG(2, 9)), modelOptions{datasets: 5, files: 9, domains: 120, groupRows: 20})
	store := blob.NewMemory()
	s := mustOpen(t, store, m.write(t, store, 1), Options{Cache: &lockedCache{m: mapCache{}}})
	synctest.Test(t, func(t *testing.T) {
		read, reads := s.domains.frames.read, atomic.Int32{}
		defer func() { s.domains.frames.read = read }()
		s.domains.frames.read = func(ctx context.Context, off, n int64) ([]byte, error) {
			reads.Add(1)
			select {
			case <-time.After(time.Second):
				return read(ctx, off, n)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		leaving, leave := context.WithTimeout(t.Context(), time.Second/2)
		defer leave()
		var all sync.WaitGroup
		for i := range 30 {
			all.Go(func() {
				ctx := t.Context()
				if i == 0 {
					ctx = leaving
				}
				name, err := s.Domain(ctx, 7)
				if i == 0 && !errors.Is(err, context.DeadlineExceeded) || i > 0 && (err != nil || name != m.names()[7]) {
					t.Errorf("request %d: %q, %v", i, name, err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if n := reads.Load(); n != 2 {
			t.Errorf("%d reads, want one, and one more", n)
		}
	})
}
