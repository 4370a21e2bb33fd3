// Package processors configures the Go runtime and the kernel scheduler for a process that runs the
// steps of a batch. Worker calls Use once at its start.
package processors

import (
	"runtime"
	"time"
)

const (
	// extra is added to GOMAXPROCS. Steps write and flush files. While a goroutine waits in a
	// system call, the runtime may take up to 10 ms to hand its processor to another goroutine.
	extra = 2

	// slice is how long a thread may run before another thread gets its processor. With extra there
	// are more ready threads than processors, and after each switch a thread finds the caches
	// filled by another. With the kernel's usual slice of 3 ms a step takes up to 7 % longer.
	slice = 100 * time.Millisecond
)

// Use configures this process to run steps on n processors. The Go runtime runs a few more than n
// goroutines at once, because some of them wait for the disk. On Linux, all threads get the
// scheduling policy SCHED_BATCH (sched(7)) with slices of 100 ms, so that a thread that wakes up
// does not preempt another. If the kernel rejects the policy, it stays as it was.
func Use(n int) {
	runtime.GOMAXPROCS(n + extra)
	batch()
}
