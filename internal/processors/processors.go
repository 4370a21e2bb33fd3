// Package processors tells the Go runtime and the kernel how a process that does steps uses the machine's processors.
package processors

import (
	"runtime"
	"time"
)

const (
	// waiting is how many processors more than there are the Go runtime is told of. Steps write files and flush them, and what a goroutine ran on that waits in the system
	// is given to another only after a while, up to 10 ms.
	waiting = 2

	// slice is how long a thread may run before another is given its processor. More threads are ready to run than there are processors, and each finds the caches full of what
	// another one needed: the kernel's usual 3 ms cost a step up to 7 % of its time.
	slice = 100 * time.Millisecond
)

// Use makes this process one that does steps on n processors: the runtime runs more goroutines at once than that, since some of them wait for the disk, and on Linux the kernel takes it for a
// batch job (SCHED_BATCH, sched(7)), whose threads do not push each other aside when they wake up. Where the kernel does not, nothing else changes.
func Use(n int) {
	runtime.GOMAXPROCS(n + waiting)
	batch()
}
