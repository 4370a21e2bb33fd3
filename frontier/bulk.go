package frontier

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sync/semaphore"
)

// bulkLeast is how many URLs are many: fewer are worked on within a millisecond, and wait for
// nobody.
const bulkLeast = 256

// bulk shares the processors between work for many URLs at once and that of workers who claim.
// Without it a few clients that add URLs as fast as they are answered hold every processor, and
// claims wait for seconds.
type bulk struct{ processors *semaphore.Weighted }

func newBulk() bulk { return bulk{semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0)))} }

const (
	// claimsWait is how long claims may wait for their turns before much work rests, for as long as
	// it took. If they wait longer, rests are longer by as much, up to restMost times the work.
	claimsWait = 2 * time.Millisecond
	restMost   = 10
)

// do calls work. While it is busy no more than half of the processors are with such work, one at
// least, and with less than that if claims have waited for some time.
func (b bulk) do(busy bool, waited time.Duration, work func()) {
	share := int64(1)
	if busy {
		share = min(2, int64(runtime.GOMAXPROCS(0)))
	}
	_ = b.processors.Acquire(context.Background(), share) // fails only with its context
	defer b.processors.Release(share)
	began := time.Now()
	work()
	if busy && waited > claimsWait {
		took := time.Since(began)
		time.Sleep(time.Duration(float64(took) * min(float64(waited)/float64(claimsWait), restMost)))
	}
}

// Bulk calls work, which computes something for so many URLs and waits for nothing. It waits while
// enough others do that already. Work must not call Bulk.
func (f *Frontier) Bulk(urls int, work func()) {
	if urls < bulkLeast {
		work()
		return
	}
	f.bulk.do(f.claimsGoOn(), f.claims.waited(), work)
}

// busyFor is how long after a claim there is taken to be another one soon.
const busyFor = 5 * time.Millisecond

// claimsGoOn says that workers claim URLs all the time.
func (f *Frontier) claimsGoOn() bool {
	return int64(time.Since(begin))-f.claimedAt.Load() < int64(busyFor)
}
