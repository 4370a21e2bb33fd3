package frontier

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestBulkLeavesProcessors has much work done at once, and counts how much of it is at a time.
func TestBulkLeavesProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, want := range []struct {
		processors int
		busy       bool
		most       int64
	}{{1, false, 1}, {1, true, 1}, {2, false, 2}, {2, true, 1}, {8, false, 8}, {8, true, 4}} {
		runtime.GOMAXPROCS(want.processors)
		synctest.Test(t, func(t *testing.T) {
			const pieces = 20
			b, end := newBulk(), make(chan struct{})
			var working, done atomic.Int64
			for range pieces {
				go b.do(want.busy, 0, func() {
					working.Add(1)
					<-end
					working.Add(-1)
					done.Add(1)
				})
			}
			for left := int64(pieces); left > 0; left-- {
				synctest.Wait()
				if got := working.Load(); got != min(want.most, left) {
					t.Errorf("%+v: %d at a time with %d left", want, got, left)
				}
				end <- struct{}{}
			}
			synctest.Wait()
			if done.Load() != pieces {
				t.Errorf("%+v: %d of %d done", want, done.Load(), pieces)
			}
		})
	}
}

// TestBulkRestsWhileClaimsWait holds how long much work rests, which depends on how long claims have
// waited, and that other such work waits for the rest.
func TestBulkRestsWhileClaimsWait(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	const took = time.Millisecond
	for _, want := range []struct {
		busy         bool
		waited, rest time.Duration
	}{
		{false, time.Minute, 0}, {true, 0, 0}, {true, claimsWait, 0}, {true, 2 * claimsWait, 2 * took},
		{true, 3 * claimsWait, 3 * took}, {true, time.Minute, restMost * took},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, began := newBulk(), time.Now()
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() { b.do(want.busy, want.waited, func() { time.Sleep(took) }) })
			}
			both.Wait()
			all := 2 * (took + want.rest)
			if !want.busy { // at the same time
				all = took
			}
			if got := time.Since(began); got != all {
				t.Errorf("%+v: two pieces of work took %v, want %v", want, got, all)
			}
		})
	}
}
