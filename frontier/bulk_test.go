package frontier

import (
	"runtime"
	"slices"
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
				go b.do(func() bool { return want.busy }, func() float64 { return 0 }, func() {
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

// TestBulkRestsWhileClaimsWait holds how long much work rests before the next, which depends on how
// far claims are behind at that time, and that the first one does not wait.
func TestBulkRestsWhileClaimsWait(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	for _, want := range []struct {
		busy       bool
		behind     float64
		took, rest time.Duration
	}{
		{false, 9, time.Millisecond, 0}, {true, 0, time.Millisecond, 0}, {true, 0.5, 2 * time.Millisecond, time.Millisecond},
		{true, 2, time.Millisecond, 2 * time.Millisecond}, {true, 50, time.Millisecond, restMost * time.Millisecond},
		{true, 9, time.Minute, longestRest},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, began := newBulk(), time.Now()
			busy, behind := func() bool { return want.busy }, func() float64 { return want.behind }
			var all sync.WaitGroup
			var ends [3]time.Duration
			for i := range ends {
				all.Go(func() {
					b.do(busy, behind, func() { time.Sleep(want.took) })
					ends[i] = time.Since(began)
				})
			}
			all.Wait()
			slices.Sort(ends[:])
			expect := [3]time.Duration{want.took, 2*want.took + want.rest, 3*want.took + 2*want.rest}
			if !want.busy { // two at the same time
				expect = [3]time.Duration{want.took, want.took, 2 * want.took}
			}
			if ends != expect {
				t.Errorf("%+v: three pieces of work have ended after %v, want %v", want, ends, expect)
			}
		})
	}
	// Claims that have ended meanwhile are not rested for.
	synctest.Test(t, func(t *testing.T) {
		b, began := newBulk(), time.Now()
		var claims atomic.Bool
		claims.Store(true)
		behind := func() float64 { return 1 }
		b.do(claims.Load, behind, func() { time.Sleep(time.Millisecond) })
		claims.Store(false)
		b.do(claims.Load, behind, func() {})
		if took := time.Since(began); took != time.Millisecond {
			t.Errorf("two pieces of work took %v, of which one takes no time", took)
		}
	})
}
