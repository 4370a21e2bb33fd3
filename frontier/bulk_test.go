package frontier

import (
	"runtime"
	"sync"
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
		most       int
	}{{1, false, 1}, {1, true, 1}, {2, false, 2}, {2, true, 1}, {8, false, 8}, {8, true, 4}} {
		runtime.GOMAXPROCS(want.processors)
		synctest.Test(t, func(t *testing.T) {
			b := newBulk()
			var mu sync.Mutex
			working, most, done := 0, 0, 0
			for range 20 {
				go b.do(want.busy, func() {
					mu.Lock()
					working++
					most = max(most, working)
					mu.Unlock()
					time.Sleep(time.Second)
					mu.Lock()
					working, done = working-1, done+1
					mu.Unlock()
				})
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			if most != want.most || done != 20 {
				t.Errorf("%+v: %d at a time, %d done", want, most, done)
			}
		})
	}
}
