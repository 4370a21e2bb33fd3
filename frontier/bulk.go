package frontier

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// bulkLeast is how many URLs are many: fewer are worked on within a millisecond, and wait for
// nobody.
const bulkLeast = 256

// bulk shares the processors between work for many URLs at once and that of workers who claim.
// Without it a few clients that add URLs as fast as they are answered hold every processor, and
// claims wait for seconds.
type bulk struct {
	processors *semaphore.Weighted
	// rest is until when such work rests, in nanoseconds since 1970.
	rest atomic.Int64
}

const (
	// restMost bounds how long a rest is, as a multiple of the time that the work before took, and
	// longestRest in time: the work may have waited for a lock meanwhile.
	restMost    = 10
	longestRest = 20 * time.Millisecond
)

func newBulk() *bulk {
	return &bulk{processors: semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0)))}
}

// do calls work. While it is busy no more than half of the processors are with such work, one at
// least, and there is a rest before the next if claims are behind by some of their turns.
func (b *bulk) do(busy func() bool, behind func() float64, work func()) {
	share := int64(1)
	if busy() {
		share = min(2, int64(runtime.GOMAXPROCS(0)))
	}
	_ = b.processors.Acquire(context.Background(), share) // fails only with its context
	defer b.processors.Release(share)
	if busy() {
		time.Sleep(min(time.Until(time.Unix(0, b.rest.Load())), longestRest)) // the clock may be set
	}
	began := time.Now()
	work()
	rest := time.Duration(float64(time.Since(began)) * min(behind(), restMost))
	b.rest.Store(time.Now().Add(min(rest, longestRest)).UnixNano())
}

// Bulk calls work, which computes something for so many URLs and waits for no answer. It waits
// while enough others do that already, and rests while more claims wait than are answered together.
// Work must not call Bulk. The caller holds no locks.
func (f *Frontier) Bulk(urls int, work func()) {
	if urls < bulkLeast {
		work()
		return
	}
	busy := func() bool { return within(busyFor, &f.claimedAt) }
	f.bulk.do(busy, f.claims.behind, work)
}
