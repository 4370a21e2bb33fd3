package frontier

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
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
				go b.do(want.busy, func() {
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
